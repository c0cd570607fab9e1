// Go's database/sql, over lib/pq or over pgx: it keeps connections, and prepares a statement on each that it uses.
package main

import (
	"context"
	"crypto/md5"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

const (
	wrong    = "SELECT * FROM nowhere"
	kill     = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'"
	sleepers = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'"
	big      = "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i"
	// What PostgreSQL says the checksum of big is.
	bigSum = "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (" + big + ") big"
)

var (
	// `pq` or `stdlib`.
	name   = os.Args[1]
	pooled = os.Getenv("THROUGH") == "howdah"
	ctx    = context.Background()
)

func ok(what string) { fmt.Printf("ok %s: %s\n", name, what) }

func fail(what string, wanted, seen any) {
	fmt.Fprintf(os.Stderr, "FAILED %s: %s\n  expected: %v\n  seen:     %v\n", name, what, wanted, seen)
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

// Both tell it alike.
type coded interface{ SQLState() string }

func mustFail(what, sqlstate string, err error) {
	var told coded
	if !errors.As(err, &told) || told.SQLState() != sqlstate {
		fail(what, sqlstate, err)
	}
}

func open(parameters string) *sql.DB {
	driver := map[string]string{"pq": "postgres", "stdlib": "pgx"}[name]
	db, err := sql.Open(driver, parameters)
	must("open", err)
	return db
}

type asker interface {
	QueryRowContext(ctx context.Context, sql string, args ...any) *sql.Row
}

func value[T any](on asker, sql string, args ...any) T {
	var seen T
	must(sql, on.QueryRowContext(ctx, sql, args...).Scan(&seen))
	return seen
}

func do(db *sql.DB, sql string) {
	_, err := db.Exec(sql)
	must(sql, err)
}

func firstSteps(db *sql.DB) {
	expect("who and where", "app shop", value[string](db, "SELECT current_user || ' ' || current_database()"))
	ok("connect")

	_, err := db.Exec(wrong)
	mustFail("an unknown table", "42P01", err)
	_, err = db.Exec("SELECT 1 / $1::int", 0)
	mustFail("a division by zero", "22012", err)
	expect("the next answer", 2, value[int](db, "SELECT 1 + $1::int", 1))
	ok("an error and on")

	do(db, "DROP TABLE IF EXISTS "+name+"_story")
	do(db, "CREATE TABLE "+name+"_story (n int, text text)")
	insert := "INSERT INTO " + name + "_story VALUES ($1, 'x')"
	for n, story := range []func(*sql.Tx) error{
		func(tx *sql.Tx) error { return tx.Commit() },
		func(tx *sql.Tx) error { return tx.Rollback() },
		func(tx *sql.Tx) error {
			_, err := tx.Exec(wrong)
			mustFail("an unknown table", "42P01", err)
			_, err = tx.Exec("SELECT 1")
			mustFail("a failed transaction", "25P02", err)
			return tx.Rollback()
		},
		func(tx *sql.Tx) error {
			_, err := tx.Exec("SAVEPOINT here")
			must("a savepoint", err)
			_, err = tx.Exec(insert, 100)
			must("insert", err)
			_, err = tx.Exec(wrong)
			mustFail("an unknown table", "42P01", err)
			_, err = tx.Exec("ROLLBACK TO here")
			must("back to the savepoint", err)
			return tx.Commit()
		},
	} {
		tx, err := db.Begin()
		must("begin", err)
		_, err = tx.Exec(insert, n+1)
		must("insert", err)
		must("the end of a transaction", story(tx))
	}
	expect("what was committed", "{1,4}", value[string](db, "SELECT array_agg(n ORDER BY n)::text FROM "+name+"_story"))
	ok("commit, rollback, savepoint")
}

func prepared(db *sql.DB) {
	// One statement for all: database/sql prepares it on whatever connection it takes.
	one, err := db.Prepare("SELECT $1::int + 1, pg_backend_pid()")
	must("prepare", err)
	defer one.Close()
	var lock sync.Mutex
	pids := map[int]int{}
	var clients sync.WaitGroup
	for number := range 3 {
		clients.Add(1)
		go func() {
			defer clients.Done()
			base := number * 1_000_000
			own, err := db.Prepare(fmt.Sprintf("SELECT %d - $1::int", base))
			must("prepare", err)
			defer own.Close()
			for i := range 1000 {
				var seen, pid int
				must("a prepared statement", one.QueryRow(base+i).Scan(&seen, &pid))
				expect("a statement's answer", base+i+1, seen)
				lock.Lock()
				pids[pid]++
				lock.Unlock()
				if i%20 == 0 {
					tx, err := db.Begin()
					must("begin", err)
					must("a statement of a transaction", tx.Stmt(own).QueryRow(i).Scan(&seen))
					_, err = tx.Exec("SELECT pg_sleep(0.002)")
					must("sleep", err)
					must("commit", tx.Commit())
				} else {
					must("a prepared statement", own.QueryRow(i).Scan(&seen))
				}
				expect("a statement's answer", base-i, seen)
				// Parsed unnamed, and bound in the next flight: lib/pq's way.
				expect("an unnamed statement's answer", i, value[int](db, "SELECT $1::int", i))
			}
		}()
	}
	clients.Wait()
	if pooled && len(pids) < 2 {
		fail("servers that served three clients", "two or three", pids)
	}
	ok("prepared statements 1,000 times by three at once")
}

// COPY, and what each has of batches, is the driver's own.
func copyAndBatch(db *sql.DB) {
	table := name + "_story"
	do(db, "TRUNCATE "+table)
	connection, err := db.Conn(ctx)
	must("a connection", err)
	defer connection.Close()
	if name == "pq" {
		tx, err := connection.BeginTx(ctx, nil)
		must("begin", err)
		into, err := tx.Prepare(pq.CopyIn(table, "n", "text"))
		must("COPY in", err)
		for i := range 20000 {
			_, err = into.Exec(i, fmt.Sprintf("row %d", i))
			must("a row of COPY", err)
		}
		_, err = into.Exec()
		must("the end of COPY", err)
		must("the end of COPY", into.Close())
		must("commit", tx.Commit())
		// Several statements in a message are its batch.
		rows, err := connection.QueryContext(ctx, "SELECT 1; SELECT 2")
		must("several statements", err)
		for rows.Next() {
		}
		expect("there is a second result", true, rows.NextResultSet())
		must("several statements", rows.Close())
	} else {
		must("pgx itself", connection.Raw(func(driver any) error {
			under := driver.(*stdlib.Conn).Conn()
			source := pgx.CopyFromSlice(20000, func(i int) ([]any, error) { return []any{i, fmt.Sprintf("row %d", i)}, nil })
			if _, err := under.CopyFrom(ctx, pgx.Identifier{table}, []string{"n", "text"}, source); err != nil {
				return err
			}
			queue := &pgx.Batch{}
			for i := range 200 {
				queue.Queue("SELECT $1::int * 2", i).QueryRow(func(row pgx.Row) error {
					var seen int
					err := row.Scan(&seen)
					expect("a batch's answer", i*2, seen)
					return err
				})
			}
			return under.SendBatch(ctx, queue).Close()
		}))
	}
	sum := "SELECT count(*) || ' ' || sum(n) || ' ' || max(text) FROM " + table
	expect("rows by COPY", "20000 199990000 row 9999", value[string](connection, sum))
	ok("batch and COPY in")
}

func cancel(db, direct *sql.DB) {
	for _, args := range [][]any{{}, {30}} {
		query := "SELECT pg_sleep(30)"
		if len(args) > 0 {
			query = "SELECT pg_sleep(30) WHERE $1::int > 0"
		}
		within, strike := context.WithCancel(ctx)
		began := time.Now()
		go func() {
			for value[int](direct, sleepers) == 0 && time.Since(began) < 10*time.Second {
				time.Sleep(50 * time.Millisecond)
			}
			strike()
		}()
		_, err := db.ExecContext(within, query, args...)
		if err == nil || time.Since(began) > 15*time.Second {
			fail("a cancelled statement", "an error, soon", err)
		}
		strike()
		expect("the next answer", 3, value[int](db, "SELECT $1::int", 3))
		for value[int](direct, sleepers) > 0 {
			if time.Since(began) > 15*time.Second {
				fail("what still sleeps", "nothing", "something")
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	ok("cancel")
}

func large(db *sql.DB, wanted string) {
	for _, args := range [][]any{{}, {0}} {
		query := big
		if len(args) > 0 {
			query = "SELECT * FROM (" + big + ") big WHERE i > $1 ORDER BY i"
		}
		rows, err := db.Query(query, args...)
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

func reconnect(db, direct *sql.DB) {
	tx, err := db.Begin()
	must("begin", err)
	_, err = tx.Exec("SELECT 1")
	must("a first statement", err)
	do(direct, kill)
	if _, err := tx.Exec("SELECT 2"); err == nil {
		fail("a query on a dead server", "an error", "none")
	}
	_ = tx.Rollback()
	// A pooler may learn of a server's death only by using it.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var seen int
		err := db.QueryRow("SELECT 42").Scan(&seen)
		if err == nil {
			expect("the answer after that", 42, seen)
			break
		}
		if time.Now().After(end) {
			fail("reconnect", "success within some seconds", err)
		}
	}
	ok("reconnect after the servers were killed")
}

func main() {
	direct := open("dbname=postgres port=" + os.Getenv("DIRECT_PORT"))
	db := open("")
	db.SetMaxOpenConns(3)
	firstSteps(db)
	prepared(db)
	copyAndBatch(db)
	cancel(db, direct)
	large(db, value[string](direct, bigSum))
	reconnect(db, direct)
}
