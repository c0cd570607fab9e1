//! sqlx: its pool, which pings before it lends, and its cache of a hundred statements.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use rust_drivers::*;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection as _, Error, Executor as _, PgConnection, Row as _};

fn there(port: &str, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host(&variable("PGHOST"))
        .port(variable(port).parse().expect("a port"))
        .database(database)
        .username(&variable("PGUSER"))
        .password(&variable("PGPASSWORD"))
        .ssl_mode(if with_tls() { PgSslMode::Require } else { PgSslMode::Disable })
}

fn must<T>(what: &str, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| fail(what, "success", format!("{error:?}")))
}

fn must_fail<T>(what: &str, sqlstate: &str, result: Result<T, Error>) {
    match result {
        Ok(_) => fail(what, sqlstate, "no error"),
        Err(Error::Database(error)) if error.code().is_some_and(|code| code == sqlstate) => {}
        Err(error) => fail(what, sqlstate, format!("{error:?}")),
    }
}

async fn first_steps(pool: &PgPool) {
    let who = "SELECT current_user || ' ' || current_database()";
    let seen: String = must("connect", sqlx::query_scalar(who).fetch_one(pool).await);
    expect("who and where", "app shop", &seen);
    ok("connect");

    must_fail("an unknown table", "42P01", sqlx::query(WRONG).fetch_all(pool).await);
    must_fail("an unknown table, simple", "42P01", sqlx::raw_sql(WRONG).execute(pool).await);
    let divided = sqlx::query("SELECT 1 / $1").bind(0).fetch_all(pool).await;
    must_fail("a division by zero", "22012", divided);
    let seen: i32 =
        must("1 + 1", sqlx::query_scalar("SELECT 1 + $1").bind(1).fetch_one(pool).await);
    expect("the next answer", 2, seen);
    ok("an error and on");

    let table = "DROP TABLE IF EXISTS sqlx_story; CREATE TABLE sqlx_story (n int, text text)";
    must("a table", sqlx::raw_sql(table).execute(pool).await);
    let insert = |n: i32| sqlx::query("INSERT INTO sqlx_story VALUES ($1, 'x')").bind(n);
    let mut transaction = must("begin", pool.begin().await);
    must("insert", insert(1).execute(&mut *transaction).await);
    must("commit", transaction.commit().await);
    let mut transaction = must("begin", pool.begin().await);
    must("insert", insert(2).execute(&mut *transaction).await);
    must_fail("an unknown table", "42P01", sqlx::query(WRONG).execute(&mut *transaction).await);
    // Rolled back by letting go.
    drop(transaction);
    let mut transaction = must("begin", pool.begin().await);
    must("insert", insert(3).execute(&mut *transaction).await);
    let mut inner = must("savepoint", transaction.begin().await);
    must("insert", insert(4).execute(&mut *inner).await);
    must_fail("an unknown table", "42P01", sqlx::query(WRONG).execute(&mut *inner).await);
    must("back to the savepoint", inner.rollback().await);
    must("commit", transaction.commit().await);
    let rows = sqlx::query_scalar("SELECT array_agg(n ORDER BY n) FROM sqlx_story");
    let seen: Vec<i32> = must("rows", rows.fetch_one(pool).await);
    expect("what was committed", "[1, 3]", &format!("{seen:?}"));
    ok("commit, rollback, savepoint");
}

async fn prepared(pool: &PgPool) {
    let of_one = |base: i32| async move {
        let mut pids = Vec::new();
        for i in 0..1000 {
            let ask = sqlx::query("SELECT $1 + $2, pg_backend_pid()").bind(base).bind(i);
            let row = if i % 20 == 0 {
                let mut transaction = must("begin", pool.begin().await);
                let row = must("a statement", ask.fetch_one(&mut *transaction).await);
                must("sleep", transaction.execute("SELECT pg_sleep(0.002)").await);
                must("commit", transaction.commit().await);
                row
            } else {
                must("a statement", ask.fetch_one(pool).await)
            };
            expect("a prepared statement's answer", base + i, row.get::<i32, _>(0));
            pids.push(row.get(1));
        }
        pids
    };
    let pids = join_all([0, 1_000_000, 2_000_000].map(of_one)).await.concat();
    several_servers(pids);
    ok("a prepared statement 1,000 times by each of three");

    // More than its cache holds: what falls out is closed.
    let mut one = must("acquire", pool.acquire().await);
    for turn in 0..2 {
        for i in 0..250 {
            let sql = format!("SELECT {i} + $1");
            let ask = sqlx::query_scalar(AssertSqlSafe(sql)).bind(turn).fetch_one(&mut *one).await;
            expect("one of many", i + turn, must("one of many", ask));
        }
    }
    ok("250 prepared statements, twice around");
}

// Several statements in a message are its batch.
async fn batch(pool: &PgPool) {
    let several =
        "INSERT INTO sqlx_story VALUES (8, 'batch'); INSERT INTO sqlx_story VALUES (9, 'batch')";
    must("a batch", sqlx::raw_sql(several).execute(pool).await);
    let wrong = "INSERT INTO sqlx_story VALUES (10, 'batch'); SELECT 1 / 0";
    must_fail("a batch with an error", "22012", sqlx::raw_sql(wrong).execute(pool).await);
    let many: Vec<i32> = (0..1000).collect();
    let unnest =
        sqlx::query("INSERT INTO sqlx_story SELECT *, 'batch' FROM unnest($1::int[])").bind(many);
    must("an array", unnest.execute(pool).await);
    let count = sqlx::query_scalar("SELECT count(*) FROM sqlx_story WHERE text = 'batch'");
    expect("rows by batches", 1002i64, must("count", count.fetch_one(pool).await));
    ok("batch");
}

async fn copy(pool: &PgPool) {
    must("truncate", pool.execute("TRUNCATE sqlx_story").await);
    let lines: String = (0..20_000).map(|i| format!("{i}\trow {i}\n")).collect();
    let mut one = must("acquire", pool.acquire().await);
    let mut copy = must("COPY in", one.copy_in_raw("COPY sqlx_story FROM STDIN").await);
    must("COPY in", copy.send(lines.as_bytes()).await);
    expect("rows by COPY", 20_000, must("COPY in", copy.finish().await));
    let out = "COPY (SELECT * FROM sqlx_story ORDER BY n) TO STDOUT";
    let stream = must("COPY out", one.copy_out_raw(out).await);
    let parts: Vec<_> = must("COPY out", stream.try_collect().await);
    expect("what COPY gave back", true, parts.concat() == lines.as_bytes());
    let mut copy = must("COPY in", one.copy_in_raw("COPY sqlx_story FROM STDIN").await);
    must("COPY in", copy.send(b"no number\tx\n".as_slice()).await);
    must_fail("COPY of what is no number", "22P02", copy.finish().await);
    ok("COPY in and out");
}

/// It has no cancel of its own: what it gives up is closed. So the server is told by another way, as an operator does.
async fn cancel(pool: &PgPool, direct: &mut PgConnection) {
    let strike = async {
        let began = Instant::now();
        while must("sleepers", sqlx::query_scalar::<_, i64>(SLEEPERS).fetch_one(&mut *direct).await)
            == 0
            && began.elapsed() < Duration::from_secs(10)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(30)%'";
        must("the cancel", direct.execute(cancel).await);
    };
    let (told, ()) = tokio::join!(sqlx::query("SELECT pg_sleep(30)").execute(pool), strike);
    must_fail("a cancelled statement", "57014", told);
    let given_up = tokio::time::timeout(
        Duration::from_millis(300),
        sqlx::query("SELECT pg_sleep(2)").execute(pool),
    );
    expect("a statement given up", true, given_up.await.is_err());
    for i in 0..20 {
        let next = sqlx::query_scalar("SELECT $1").bind(i).fetch_one(pool).await;
        expect("the next answer", i, must("the next answer", next));
    }
    ok("cancel, and a query given up");
}

async fn large(pool: &PgPool, wanted: &str) {
    let mut sum = Checksum::default();
    let mut rows = sqlx::query(BIG).fetch(pool);
    while let Some(row) = must("a row", rows.try_next().await) {
        sum.add(row.get(0), row.get(1));
    }
    expect("the checksum of 50 MB", wanted, &sum.hex());
    ok("a large result");
}

async fn reconnect(pool: &PgPool, direct: &mut PgConnection) {
    let mut transaction = must("begin", pool.begin().await);
    must("a first statement", transaction.execute("SELECT 1").await);
    must("kill", direct.execute(KILL).await);
    if transaction.execute("SELECT 2").await.is_ok() {
        fail("a query on a dead server", "an error", "none");
    }
    drop(transaction);
    let began = Instant::now();
    // A pooler may learn of a server's death only by using it.
    loop {
        match sqlx::query_scalar::<_, i32>("SELECT 42").fetch_one(pool).await {
            Ok(seen) => {
                expect("the answer after that", 42, seen);
                break;
            }
            Err(error) if began.elapsed() > Duration::from_secs(5) => {
                fail("reconnect", "success within some seconds", error)
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    ok("reconnect after the servers were killed");
}

#[tokio::main]
async fn main() {
    let mut direct =
        must("connect", PgConnection::connect_with(&there("DIRECT_PORT", "postgres")).await);
    let options = there("PGPORT", &variable("PGDATABASE"));
    let pool = must("connect", PgPoolOptions::new().max_connections(3).connect_with(options).await);
    first_steps(&pool).await;
    prepared(&pool).await;
    batch(&pool).await;
    copy(&pool).await;
    cancel(&pool, &mut direct).await;
    let sum: String =
        must("the checksum", sqlx::query_scalar(BIG_SUM).fetch_one(&mut direct).await);
    large(&pool, &sum).await;
    reconnect(&pool, &mut direct).await;
}
