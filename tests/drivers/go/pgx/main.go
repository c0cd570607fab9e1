// pgx, which prepares every statement under the digest of its text, and asks for binary.
package main

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	wrong    = "SELECT * FROM nowhere"
	kill     = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'"
	sleepers = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'"
	big      = "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i"
	// What PostgreSQL says the checksum of big is.
	bigSum = "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + big + ") big"
	many   = 250
)

var (
	pooled = os.Getenv("THROUGH") == "howdah"
	ctx    = context.Background()
)

func ok(what string) { fmt.Printf("ok pgx: %s\n", what) }

func fail(what string, wanted, seen any) {
	fmt.Fprintf(os.Stderr, "FAILED pgx: %s\n  expected: %v\n  seen:     %v\n", what, wanted, seen)
	os.Exit(1)
}

func expect(what string, wanted, seen any) {
	if fmt.Sprint(wanted) != fmt.Sprint(seen) {
		fail(what, wanted, seen)
	}
}

func must(what string, err error) {
	if err != nil {
		fail(what, "success", err)
	}
}

func mustFail(what, sqlstate string, err error) {
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != sqlstate {
		fail(what, sqlstate, err)
	}
}

func connect(parameters string) *pgx.Conn {
	connection, err := pgx.Connect(ctx, parameters)
	must("connect", err)
	return connection
}

type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func value[T any](on asker, sql string, args ...any) T {
	var seen T
	must(sql, on.QueryRow(ctx, sql, args...).Scan(&seen))
	return seen
}

func do(on *pgx.Conn, sql string, args ...any) {
	_, err := on.Exec(ctx, sql, args...)
	must(sql, err)
}

func firstSteps(connection *pgx.Conn) {
	expect("who and where", "app shop", value[string](connection, "SELECT current_user || ' ' || current_database()"))
	ok("connect")

	_, err := connection.Exec(ctx, wrong)
	mustFail("an unknown table", "42P01", err)
	_, err = connection.Exec(ctx, wrong, pgx.QueryExecModeSimpleProtocol)
	mustFail("an unknown table, simple", "42P01", err)
	_, err = connection.Exec(ctx, "SELECT 1 / $1::int", 0)
	mustFail("a division by zero", "22012", err)
	expect("the next answer", 2, value[int](connection, "SELECT 1 + $1::int", 1))
	ok("an error and on")

	do(connection, "DROP TABLE IF EXISTS pgx_story")
	do(connection, "CREATE TABLE pgx_story (n int, text text)")
	for n, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(ctx) },
		func(tx pgx.Tx) error { return tx.Rollback(ctx) },
		func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, wrong)
			mustFail("an unknown table", "42P01", err)
			_, err = tx.Exec(ctx, "SELECT 1")
			mustFail("a failed transaction", "25P02", err)
			return tx.Rollback(ctx)
		},
		func(tx pgx.Tx) error {
			inner, err := tx.Begin(ctx) // a savepoint
			must("savepoint", err)
			_, err = inner.Exec(ctx, wrong)
			mustFail("an unknown table", "42P01", err)
			must("back to the savepoint", inner.Rollback(ctx))
			return tx.Commit(ctx)
		},
	} {
		tx, err := connection.Begin(ctx)
		must("begin", err)
		_, err = tx.Exec(ctx, "INSERT INTO pgx_story VALUES ($1, 'x')", n+1)
		must("insert", err)
		must("the end of a transaction", end(tx))
	}
	expect("what was committed", "{1,4}", value[string](connection, "SELECT array_agg(n)::text FROM pgx_story"))
	ok("commit, rollback, savepoint")
}

// Three clients at once, each with a connection of its own.
func atOnce(work func(number int, connection *pgx.Conn)) {
	var clients sync.WaitGroup
	for number := range 3 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			connection := connect("")
			work(number, connection)
			must("close", connection.Close(ctx))
		}()
	}
	clients.Wait()
}

func prepared() {
	var lock sync.Mutex
	pids := map[int]int{}
	atOnce(func(number int, connection *pgx.Conn) {
		base := number * 1_000_000
		// The same name on each, for different statements, and the same text on each, so the same digest.
		_, err := connection.Prepare(ctx, "same", fmt.Sprintf("SELECT %d + $1::int, pg_backend_pid()", base))
		must("prepare", err)
		for i := range 1000 {
			var seen, pid int
			if i%20 == 0 {
				tx, err := connection.Begin(ctx)
				must("begin", err)
				must("a prepared statement", tx.QueryRow(ctx, "same", i).Scan(&seen, &pid))
				_, err = tx.Exec(ctx, "SELECT pg_sleep(0.002)")
				must("sleep", err)
				must("commit", tx.Commit(ctx))
			} else {
				must("a prepared statement", connection.QueryRow(ctx, "same", i).Scan(&seen, &pid))
			}
			expect("a named statement's answer", base+i, seen)
			expect("a cached statement's answer", base-i, value[int](connection, "SELECT $1::int - $2::int", base, i))
			lock.Lock()
			pids[pid]++
			lock.Unlock()
		}
		must("deallocate", connection.Deallocate(ctx, "same"))
		_, err = connection.Prepare(ctx, "same", "SELECT 'anew'")
		must("prepare anew", err)
		expect("a name used anew", "anew", value[string](connection, "same"))
	})
	if pooled && len(pids) < 2 {
		fail("servers that served three clients", "two or three", pids)
	}
	ok("a prepared statement 1,000 times on three connections")

	atOnce(func(number int, connection *pgx.Conn) {
		for turn := range 2 {
			for i := range many {
				seen := value[int](connection, fmt.Sprintf("SELECT %d + $1::int AS of_%d", i, number), turn)
				expect("one of many", i+turn, seen)
			}
		}
	})
	ok(fmt.Sprintf("%d prepared statements, twice around", many))

	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		atOnce(func(number int, connection *pgx.Conn) {
			for i := range 50 {
				var seen int
				sql := fmt.Sprintf("SELECT %d + $1::int", number*1000)
				must(mode.String(), connection.QueryRow(ctx, sql, mode, i).Scan(&seen))
				expect("an answer in mode "+mode.String(), number*1000+i, seen)
			}
		})
	}
	ok("its other modes")

	pool, err := pgxpool.New(ctx, "pool_max_conns=3")
	must("its pool", err)
	defer pool.Close()
	var borrowers sync.WaitGroup
	for number := range 6 {
		borrowers.Add(1)
		go func() {
			defer borrowers.Done()
			for i := range 30 {
				expect("an answer of its pool", number+i, value[int](pool, "SELECT $1::int + $2::int", number, i))
			}
		}()
	}
	borrowers.Wait()
	ok("its own pool")
}

func batch(connection *pgx.Conn) {
	queue := &pgx.Batch{}
	for i := range 200 {
		queue.Queue("SELECT $1::int * 2", i).QueryRow(func(row pgx.Row) error {
			var seen int
			err := row.Scan(&seen)
			expect("a batch's answer", i*2, seen)
			return err
		})
		queue.Queue("INSERT INTO pgx_story VALUES ($1, 'batch')", i)
	}
	must("a batch", connection.SendBatch(ctx, queue).Close())

	queue = &pgx.Batch{}
	queue.Queue("INSERT INTO pgx_story VALUES (1, 'batch')")
	queue.Queue("SELECT 1 / $1::int", 0)
	queue.Queue("INSERT INTO pgx_story VALUES (2, 'batch')")
	mustFail("a batch with an error", "22012", connection.SendBatch(ctx, queue).Close())
	expect("rows by batches", 200, value[int](connection, "SELECT count(*) FROM pgx_story WHERE text = 'batch'"))
	ok("batch")

	pipeline := connection.PgConn().StartPipeline(ctx)
	pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
	pipeline.SendPrepare("piped", "SELECT $1::int + 1", nil)
	pipeline.SendQueryPrepared("piped", [][]byte{[]byte("41")}, nil, nil)
	must("sync", pipeline.Sync())
	pipeline.SendQueryParams(wrong, nil, nil, nil, nil)
	pipeline.SendQueryParams("SELECT 2", nil, nil, nil, nil)
	must("sync", pipeline.Sync())
	pipeline.SendDeallocate("piped")
	pipeline.SendQueryParams("SELECT 3", nil, nil, nil, nil)
	must("sync", pipeline.Sync())
	var story []string
	for {
		results, err := pipeline.GetResults()
		var told *pgconn.PgError
		if errors.As(err, &told) {
			story = append(story, told.Code)
			continue
		}
		must("a pipeline", err)
		if results == nil {
			break
		}
		switch result := results.(type) {
		case *pgconn.ResultReader:
			read := result.Read()
			if errors.As(read.Err, &told) {
				story = append(story, told.Code)
				continue
			}
			must("a pipeline", read.Err)
			story = append(story, string(read.Rows[0][0]))
		case *pgconn.StatementDescription:
			story = append(story, "prepared")
		case *pgconn.CloseComplete:
			story = append(story, "closed")
		case *pgconn.PipelineSync:
			story = append(story, "synced")
		}
	}
	must("the pipeline's end", pipeline.Close())
	expect("a pipeline's answers", "1 prepared 42 synced 42P01 synced closed 3 synced", strings.Join(story, " "))
	ok("pipeline")
}

func copying(connection *pgx.Conn) {
	do(connection, "TRUNCATE pgx_story")
	var rows [][]any
	var text bytes.Buffer
	for i := range 20000 {
		rows = append(rows, []any{i, fmt.Sprintf("row %d", i)})
		fmt.Fprintf(&text, "%d\trow %d\n", i, i)
	}
	count, err := connection.CopyFrom(ctx, pgx.Identifier{"pgx_story"}, []string{"n", "text"}, pgx.CopyFromRows(rows))
	must("COPY in", err)
	expect("rows by COPY", 20000, count)
	var out bytes.Buffer
	_, err = connection.PgConn().CopyTo(ctx, &out, "COPY (SELECT * FROM pgx_story ORDER BY n) TO STDOUT")
	must("COPY out", err)
	expect("what COPY gave back", true, bytes.Equal(out.Bytes(), text.Bytes()))
	_, err = connection.PgConn().CopyFrom(ctx, strings.NewReader("no number\tx\n"), "COPY pgx_story FROM STDIN")
	mustFail("COPY of what is no number", "22P02", err)
	expect("rows after a failed COPY", 20000, value[int](connection, "SELECT count(*) FROM pgx_story"))
	ok("COPY in and out")
}

func cancel(connection, direct *pgx.Conn) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		began := time.Now()
		struck := make(chan error)
		go func() {
			for value[int](direct, sleepers) == 0 && time.Since(began) < 10*time.Second {
				time.Sleep(50 * time.Millisecond)
			}
			struck <- connection.PgConn().CancelRequest(ctx)
		}()
		_, err := connection.Exec(ctx, "SELECT pg_sleep(30)", mode)
		mustFail("a cancelled statement", "57014", err)
		must("the cancel", <-struck)
		if time.Since(began) > 15*time.Second {
			fail("time until the cancel", "little", time.Since(began))
		}
		expect("the next answer", 3, value[int](connection, "SELECT $1::int", 3))
	}
	ok("cancel")
}

func large(connection *pgx.Conn, wanted string) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		rows, err := connection.Query(ctx, big, mode)
		must("a large result", err)
		sum := md5.New()
		for rows.Next() {
			var number int
			var text string
			must("a row", rows.Scan(&number, &text))
			sum.Write([]byte(strconv.Itoa(number) + text))
		}
		must("a large result", rows.Err())
		expect("the checksum of 50 MB", wanted, fmt.Sprintf("%x", sum.Sum(nil)))
	}
	ok("a large result")
}

func reconnect(idle, direct *pgx.Conn) {
	do(idle, "SELECT 1")
	connection := connect("")
	do(connection, "BEGIN")
	do(direct, kill)
	if _, err := connection.Exec(ctx, "SELECT 2"); err == nil {
		fail("a query on a dead server", "an error", "none")
	}
	// A pooler may learn of a server's death only by using it.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		fresh, err := pgx.Connect(ctx, "")
		if err == nil {
			var seen int
			if err = fresh.QueryRow(ctx, "SELECT 42").Scan(&seen); err == nil {
				expect("a new connection's answer", 42, seen)
				break
			}
		}
		if time.Now().After(end) {
			fail("reconnect", "success within some seconds", err)
		}
	}
	if pooled {
		expect("the answer on a client that was idle", 43, value[int](idle, "SELECT $1::int", 43))
	}
	ok("reconnect after the servers were killed")
}

func console() {
	connection := connect("dbname=pgbouncer user=" + os.Getenv("CONSOLE_USER"))
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		rows, err := connection.Query(ctx, "SHOW POOLS", mode)
		must("SHOW POOLS", err)
		pools, err := pgx.CollectRows(rows, pgx.RowToMap)
		must("SHOW POOLS in mode "+mode.String(), err)
		var modes []any
		for _, pool := range pools {
			if pool["database"] == "shop" {
				modes = append(modes, pool["pool_mode"])
			}
		}
		expect("pool_mode in SHOW POOLS, mode "+mode.String(), "[transaction]", fmt.Sprint(modes))
	}
	if _, err := connection.Exec(ctx, "SHOW NONSENSE"); err == nil {
		fail("an unknown view", "an error", "none")
	}
	if value[string](connection, "SHOW VERSION") == "" {
		fail("SHOW VERSION", "a version", "nothing")
	}
	ok("the console")
}

func main() {
	direct := connect("dbname=postgres port=" + os.Getenv("DIRECT_PORT"))
	connection := connect("")
	firstSteps(connection)
	prepared()
	batch(connection)
	copying(connection)
	cancel(connection, direct)
	large(connection, value[string](direct, bigSum))
	reconnect(connection, direct)
	if pooled {
		console()
	}
}
