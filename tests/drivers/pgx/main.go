// pgx: statements prepared and described by default, batches as pipelines, binary copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

func ok(what string) { fmt.Println("ok pgx", what) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgx:", err)
		os.Exit(1)
	}
}

func check(fine bool, what string) {
	if !fine {
		must(errors.New(what))
	}
}

func code(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

func number(ctx context.Context, conn *pgx.Conn, sql string, args ...any) int {
	var n int
	must(conn.QueryRow(ctx, sql, args...).Scan(&n))
	return n
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	conn, err := pgx.Connect(ctx, "")
	must(err)
	check(number(ctx, conn, "SELECT 1") == 1, "SELECT 1")
	ok("connect")

	_, err = conn.Exec(ctx, "SELECT nonsense")
	check(code(err) == "42703", code(err))
	ok("error")

	transaction(ctx, conn)

	_, err = conn.Prepare(ctx, "plus", "SELECT $1::int + 1")
	must(err)
	for n := range 200 {
		check(number(ctx, conn, "plus", n) == n+1, "plus")
	}
	for n := range 600 { // More than the driver's cache of 512.
		check(number(ctx, conn, fmt.Sprintf("SELECT $1::int + %d", n), n) == 2*n, "plus n")
	}
	must(conn.DeallocateAll(ctx))
	check(number(ctx, conn, "SELECT $1::int + 1", 1) == 2, "after DEALLOCATE ALL")
	ok("prepared statement 200 times")

	batch(ctx, conn)
	copying(ctx, conn)
	cancel(ctx, conn)

	var long string
	must(conn.QueryRow(ctx, "SELECT repeat('x', 5000000)").Scan(&long))
	check(len(long) == 5_000_000, "5 MB")
	ok("5 MB")

	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		for n := range 20 {
			check(number(ctx, conn, "SELECT $1::int", mode, n) == n, mode.String())
		}
	}
	ok("every mode of execution")

	pool(ctx)
	_, err = conn.Exec(ctx, "DROP TABLE pgx_t")
	must(err)
	must(conn.Close(ctx))
}

func transaction(ctx context.Context, conn *pgx.Conn) {
	_, err := conn.Exec(ctx, "DROP TABLE IF EXISTS pgx_t; CREATE TABLE pgx_t (n int PRIMARY KEY, words text)")
	must(err)
	must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO pgx_t VALUES ($1, $2)", 1, "kept")
		must(err)
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO pgx_t VALUES (1, 'twice')")
			return err
		})
		check(code(err) == "23505", code(err))
		return nil
	}))
	check(number(ctx, conn, "SELECT count(*) FROM pgx_t") == 1, "one row")
	ok("transaction")
}

func batch(ctx context.Context, conn *pgx.Conn) {
	batch := &pgx.Batch{}
	for n := range 100 {
		batch.Queue("SELECT $1::int * 2", n)
	}
	results := conn.SendBatch(ctx, batch)
	for n := range 100 {
		var got int
		must(results.QueryRow().Scan(&got))
		check(got == 2*n, "batch")
	}
	must(results.Close())
	failing := &pgx.Batch{}
	failing.Queue("INSERT INTO pgx_t VALUES (2, 'rolled back')")
	failing.Queue("SELECT 1/$1::int", 0)
	failing.Queue("INSERT INTO pgx_t VALUES (3, 'never')")
	check(code(conn.SendBatch(ctx, failing).Close()) == "22012", "the error of a batch")
	check(number(ctx, conn, "SELECT count(*) FROM pgx_t") == 1, "a batch is a transaction")
	ok("batch")
}

func copying(ctx context.Context, conn *pgx.Conn) {
	rows := make([][]any, 1000)
	for n := range rows {
		rows[n] = []any{n + 10, "copied"}
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"pgx_t"}, []string{"n", "words"}, pgx.CopyFromRows(rows))
	must(err)
	check(count == 1000, "1000 rows copied")
	var out strings.Builder
	_, err = conn.PgConn().CopyTo(ctx, &out, "COPY pgx_t TO STDOUT")
	must(err)
	check(strings.Count(out.String(), "\n") == 1001, "1001 rows copied out")
	_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader("bad\tx\n"+strings.Repeat("1\tx\n", 100000)), "COPY pgx_t FROM STDIN")
	check(code(err) == "22P02", code(err))
	check(number(ctx, conn, "SELECT 2") == 2, "after a failed copy")
	ok("copy")
}

func cancel(ctx context.Context, conn *pgx.Conn) {
	go func() {
		time.Sleep(500 * time.Millisecond)
		must(conn.PgConn().CancelRequest(ctx))
	}()
	start := time.Now()
	_, err := conn.Exec(ctx, "SELECT pg_sleep(15)")
	check(code(err) == "57014", code(err))
	check(time.Since(start) < 10*time.Second, "late")
	check(number(ctx, conn, "SELECT 3") == 3, "after a cancel")
	ok("cancel")
}

func pool(ctx context.Context) {
	config, err := pgxpool.ParseConfig("")
	must(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(err)
	defer pool.Close()
	var group sync.WaitGroup
	for n := range 40 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 20 {
				var got int
				must(pool.QueryRow(ctx, "SELECT $1::int * $2::int", n, i).Scan(&got))
				check(got == n*i, "pool")
			}
		}()
	}
	group.Wait()
	ok("a pool of its own")
}
