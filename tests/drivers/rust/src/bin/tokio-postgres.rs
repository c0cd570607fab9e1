//! tokio-postgres, which prepares all it asks (s0, s1), sends ahead of answers, and looks types up.

use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use rust_drivers::*;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

fn there(port: &str, database: &str) -> Config {
    let mut config = Config::new();
    config.host(variable("PGHOST")).port(variable(port).parse().expect("a port")).dbname(database);
    config.user(variable("PGUSER")).password(variable("PGPASSWORD"));
    if with_tls() {
        config.ssl_mode(tokio_postgres::config::SslMode::Require);
    }
    config
}

async fn connect_to(config: &Config) -> Result<Client, Error> {
    // An error of the connection is told again by the query at hand.
    if with_tls() {
        let (client, connection) = config.connect(MakeRustlsConnect::new(credulous())).await?;
        tokio::spawn(async { drop(connection.await) });
        Ok(client)
    } else {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async { drop(connection.await) });
        Ok(client)
    }
}

async fn connect() -> Client {
    must("connect", connect_to(&there("PGPORT", &variable("PGDATABASE"))).await)
}

fn must<T>(what: &str, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| fail(what, "success", format!("{error:?}")))
}

fn must_fail<T>(what: &str, sqlstate: &str, result: Result<T, Error>) {
    match result {
        Ok(_) => fail(what, sqlstate, "no error"),
        Err(error) if error.code().is_some_and(|code| code.code() == sqlstate) => {}
        Err(error) => fail(what, sqlstate, format!("{error:?}")),
    }
}

async fn number(client: &Client, sql: &str, parameter: i32) -> i32 {
    must(sql, client.query_one(sql, &[&parameter]).await).get(0)
}

async fn first_steps(client: &mut Client) {
    let row = client.query_one("SELECT current_user || ' ' || current_database()", &[]).await;
    expect("who and where", "app shop", must("connect", row).get::<_, &str>(0));
    let types = "DROP TYPE IF EXISTS tokio_mood; CREATE TYPE tokio_mood AS ENUM ('calm', 'gay')";
    must("a type", client.batch_execute(types).await);
    let row = must("a type", client.query_one("SELECT 'gay'::tokio_mood", &[]).await);
    expect("a type it looks up", "tokio_mood", row.columns()[0].type_().name());
    ok("connect, and look types up");

    must_fail("an unknown table", "42P01", client.query(WRONG, &[]).await);
    must_fail("an unknown table, simple", "42P01", client.simple_query(WRONG).await);
    must_fail("a division by zero", "22012", client.query("SELECT 1 / $1::int", &[&0]).await);
    expect("the next answer", 2, number(client, "SELECT 1 + $1::int", 1).await);
    ok("an error and on");

    let table = "DROP TABLE IF EXISTS tokio_story; CREATE TABLE tokio_story (n int, text text)";
    must("a table", client.batch_execute(table).await);
    let insert = "INSERT INTO tokio_story VALUES ($1, 'x')";
    let transaction = must("begin", client.transaction().await);
    must("insert", transaction.execute(insert, &[&1]).await);
    must("commit", transaction.commit().await);
    let transaction = must("begin", client.transaction().await);
    must("insert", transaction.execute(insert, &[&2]).await);
    must_fail("an unknown table", "42P01", transaction.query(WRONG, &[]).await);
    must_fail("a failed transaction", "25P02", transaction.query("SELECT 1", &[]).await);
    // Rolled back by letting go.
    drop(transaction);
    let mut transaction = must("begin", client.transaction().await);
    must("insert", transaction.execute(insert, &[&3]).await);
    let inner = must("savepoint", transaction.transaction().await);
    must("insert", inner.execute(insert, &[&4]).await);
    must("back to the savepoint", inner.rollback().await);
    must("commit", transaction.commit().await);
    let seen = client.query_one("SELECT array_agg(n ORDER BY n)::text FROM tokio_story", &[]).await;
    expect("what was committed", "{1,3}", must("rows", seen).get::<_, &str>(0));
    ok("commit, rollback, savepoint");
}

async fn prepared() {
    let of_one = |base: i32| async move {
        let mut client = connect().await;
        let sql = format!("SELECT {base} + $1::int, pg_backend_pid()");
        let statement = must("prepare", client.prepare(&sql).await);
        let mut pids = Vec::new();
        for i in 0..1000 {
            let row = if i % 20 == 0 {
                let transaction = must("begin", client.transaction().await);
                let row = must("a statement", transaction.query_one(&statement, &[&i]).await);
                must("sleep", transaction.batch_execute("SELECT pg_sleep(0.002)").await);
                must("commit", transaction.commit().await);
                row
            } else {
                must("a statement", client.query_one(&statement, &[&i]).await)
            };
            expect("a prepared statement's answer", base + i, row.get::<_, i32>(0));
            pids.push(row.get(1));
        }
        pids
    };
    let pids = join_all([0, 1_000_000, 2_000_000].map(of_one)).await.concat();
    several_servers(pids);
    ok("a prepared statement 1,000 times on three connections");
}

async fn pipelined(client: &Client) {
    let statement = must("prepare", client.prepare("SELECT 1000 / $1::int").await);
    let numbers: Vec<i32> = (1..=1000).collect();
    let sent = numbers.iter().map(|i| async { client.query_one(&statement, &[i]).await });
    let answers = must("a pipeline", try_join_all(sent).await);
    for (i, row) in numbers.iter().zip(answers) {
        expect("an answer of a pipeline", 1000 / i, row.get::<_, i32>(0));
    }
    let sent = [1, 0, 2].map(|i| {
        let statement = &statement;
        async move { client.query_one(statement, &[&i]).await }
    });
    let mut answers = join_all(sent).await.into_iter();
    must("before an error", answers.next().expect("three"));
    must_fail("the error", "22012", answers.next().expect("three"));
    must("after an error", answers.next().expect("three"));
    ok("pipeline");
}

async fn copy(client: &Client) {
    must("truncate", client.batch_execute("TRUNCATE tokio_story").await);
    let lines: String = (0..20_000).map(|i| format!("{i}\trow {i}\n")).collect();
    let mut sink = pin!(must("COPY in", client.copy_in("COPY tokio_story FROM STDIN").await));
    for part in lines.as_bytes().chunks(4096) {
        must("COPY in", sink.send(Bytes::copy_from_slice(part)).await);
    }
    expect("rows by COPY", 20_000, must("COPY in", sink.finish().await));
    let out = "COPY (SELECT * FROM tokio_story ORDER BY n) TO STDOUT";
    let parts: Vec<Bytes> =
        must("COPY out", must("COPY out", client.copy_out(out).await).try_collect().await);
    expect("what COPY gave back", true, parts.concat() == lines.as_bytes());
    let mut sink = pin!(must("COPY in", client.copy_in("COPY tokio_story FROM STDIN").await));
    must("COPY in", sink.send(Bytes::from_static(b"no number\tx\n")).await);
    must_fail("COPY of what is no number", "22P02", sink.finish().await);
    let count = number(client, "SELECT count(*)::int + $1 FROM tokio_story", 0).await;
    expect("rows after a failed COPY", 20_000, count);
    ok("COPY in and out");
}

async fn cancel(client: &Client, direct: &Client) {
    let began = Instant::now();
    let strike = async {
        while must("sleepers", direct.query_one(SLEEPERS, &[]).await).get::<_, i64>(0) == 0
            && began.elapsed() < Duration::from_secs(10)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let token = client.cancel_token();
        if with_tls() {
            must("the cancel", token.cancel_query(MakeRustlsConnect::new(credulous())).await);
        } else {
            must("the cancel", token.cancel_query(NoTls).await);
        }
    };
    let (told, ()) = tokio::join!(client.query("SELECT pg_sleep(30)", &[]), strike);
    must_fail("a cancelled statement", "57014", told);
    if began.elapsed() > Duration::from_secs(15) {
        fail("seconds until the cancel", "few", began.elapsed().as_secs());
    }
    expect("the next answer", 3, number(client, "SELECT $1::int", 3).await);
    ok("cancel");
}

async fn large(client: &mut Client, wanted: &str) {
    let mut sum = Checksum::default();
    let none: [i32; 0] = [];
    let mut rows = pin!(must("a large result", client.query_raw(BIG, none).await));
    while let Some(row) = rows.next().await {
        let row = must("a row", row);
        sum.add(row.get(0), row.get(1));
    }
    expect("the checksum of 50 MB", wanted, &sum.hex());

    let mut sum = Checksum::default();
    let transaction = must("begin", client.transaction().await);
    let portal = must("a portal", transaction.bind(BIG, &[]).await);
    loop {
        let rows = must("a part", transaction.query_portal(&portal, 1000).await);
        if rows.is_empty() {
            break;
        }
        rows.iter().for_each(|row| sum.add(row.get(0), row.get(1)));
    }
    must("commit", transaction.commit().await);
    expect("the checksum by a portal", wanted, &sum.hex());
    ok("a large result");
}

async fn reconnect(idle: &Client, direct: &Client) {
    let client = connect().await;
    must("begin", client.batch_execute("BEGIN; SELECT 1").await);
    must("kill", direct.query_one(KILL, &[]).await);
    if client.simple_query("SELECT 2").await.is_ok() {
        fail("a query on a dead server", "an error", "none");
    }
    let began = Instant::now();
    // A pooler may learn of a server's death only by using it.
    loop {
        let attempt = async {
            let client = connect_to(&there("PGPORT", &variable("PGDATABASE"))).await?;
            client.query_one("SELECT 42", &[]).await
        };
        match attempt.await {
            Ok(row) => {
                expect("a new connection's answer", 42, row.get::<_, i32>(0));
                break;
            }
            Err(error) if began.elapsed() > Duration::from_secs(5) => {
                fail("reconnect", "success within some seconds", error)
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    if pooled() {
        let seen = number(idle, "SELECT $1::int", 43).await;
        expect("the answer on a client that was idle", 43, seen);
    }
    ok("reconnect after the servers were killed");
}

#[tokio::main]
async fn main() {
    let direct = must("connect", connect_to(&there("DIRECT_PORT", "postgres")).await);
    let mut client = connect().await;
    first_steps(&mut client).await;
    prepared().await;
    pipelined(&client).await;
    copy(&client).await;
    cancel(&client, &direct).await;
    let sum: String = must("the checksum", direct.query_one(BIG_SUM, &[]).await).get(0);
    large(&mut client, &sum).await;
    reconnect(&client, &direct).await;
}
