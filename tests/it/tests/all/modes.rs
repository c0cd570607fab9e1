//! The three pool modes, and what else a setting changes about a session.

use harness::postgres::PASSWORD;
use harness::say::{extended, query, sync};
use harness::{Heard, World, eventually, seconds};

fn session(size: u32) -> World {
    World::with(size, |setup| setup.set("pool_mode", "session"))
}

#[test]
fn session_mode_keeps_the_server_to_the_end() {
    let world = session(1);
    let (mut first, mut second) = (world.client(), world.login());
    first.run("SET work_mem = '7MB'; CREATE TEMP TABLE mine (n int); LISTEN news");
    assert_eq!(first.value("SHOW work_mem"), "7MB");
    second.parameters.clear();
    let mut waiting = harness::Raw::open(&world.howdah.address()).expect("it listens");
    waiting.send(&second.startup());
    second.answer(&mut waiting).expect("in");
    waiting.send(&query("SHOW work_mem"));
    assert!(matches!(waiting.hear(seconds(0.5)), Heard::Quiet), "the server is the first one's");
    world.direct().run("NOTIFY news, 'heard'");
    assert_eq!(first.message().tag, b'A');
    first.leave();
    assert_eq!(waiting.until_ready().value(), "4MB");
    assert_eq!(waiting.query("SELECT * FROM mine").code(), "42P01");
    assert!(world.statements().iter().any(|sql| sql == "DISCARD ALL"));
}

#[test]
fn session_mode_ends_an_open_transaction() {
    let world = session(1);
    let mut first = world.client();
    first.run("CREATE TABLE t (n int)");
    first.run("BEGIN; INSERT INTO t VALUES (1)");
    first.leave();
    assert_eq!(world.client().value("SELECT count(*) FROM t"), "0");
}

#[test]
fn the_reset_query_is_for_sessions() {
    let world = World::with(1, |setup| setup.set("server_reset_query", "SELECT 'reset'"));
    world.client().run("SELECT 1");
    world.client().run("SELECT 2");
    assert!(!world.statements().contains(&"SELECT 'reset'".to_owned()));
    let world = World::with(1, |setup| {
        setup.set("server_reset_query", "SELECT 'reset'").set("server_reset_query_always", 1)
    });
    let mut client = world.client();
    client.run("SELECT 1");
    client.run("SELECT 2");
    eventually("it was sent after each", || {
        world.statements() == ["SELECT 1", "SELECT 'reset'", "SELECT 2", "SELECT 'reset'"]
    });
}

#[test]
fn a15_a_failed_reset_closes_the_server() {
    howdah_only!("the yardstick goes on with the server");
    let world = World::with(1, |setup| {
        setup.set("pool_mode", "session").set("server_reset_query", "SELECT nonsense")
    });
    let mut first = world.client();
    let pid = first.value("SELECT pg_backend_pid()");
    first.run("SET work_mem = '7MB'");
    first.leave();
    let mut next = world.client();
    assert_eq!(next.value("SHOW work_mem"), "4MB");
    assert_ne!(next.value("SELECT pg_backend_pid()"), pid);
}

#[test]
fn transaction_mode_shares_between_transactions() {
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    let pid = first.value("SELECT pg_backend_pid()");
    assert_eq!(second.value("SELECT pg_backend_pid()"), pid);
    first.run("BEGIN");
    second.send(&query("SELECT 'served'"));
    assert!(matches!(second.hear(seconds(0.3)), Heard::Quiet));
    first.run("COMMIT");
    assert_eq!(second.until_ready().column(), ["served"]);
}

#[test]
fn statement_mode_shares_between_statements() {
    let world = World::with(1, |setup| setup.set("pool_mode", "statement"));
    let (mut first, mut second) = (world.client(), world.client());
    first.run("CREATE TABLE t (n int)");
    for _ in 0..5 {
        first.run("INSERT INTO t VALUES (1)");
        second.ask(&[extended("INSERT INTO t VALUES (2)", &[]), sync()].concat());
    }
    assert_eq!(second.value("SELECT count(*) FROM t"), "10");
    first.send(&query("BEGIN"));
    let error = first.fatal();
    assert_eq!((error.severity(), error.code()), ("FATAL", "08P01"));
    assert_eq!(error.text(), "transaction blocks not allowed in statement pooling mode");
    assert_eq!(second.run("SELECT 1").status(), Some('I'));
}

#[test]
fn the_mode_of_a_user_comes_before_the_databases_and_the_global_one() {
    let world = World::with(1, |setup| {
        setup
            .database_also("shop", "pool_mode=statement")
            .user("app2", "pool_mode=session")
            .set("pool_mode", "transaction")
    });
    let mut statement = world.client();
    statement.send(&query("BEGIN"));
    assert_eq!(
        statement.fatal().text(),
        "transaction blocks not allowed in statement pooling mode"
    );
    let mut session = world.howdah.login("app2", PASSWORD, "shop").enter();
    session.run("SET work_mem = '7MB'");
    session.run("BEGIN; SELECT 1; COMMIT");
    assert_eq!(session.value("SHOW work_mem"), "7MB");
    let modes = |user: &str| {
        world.howdah.cell("SHOW POOLS", &[("database", "shop"), ("user", user)], "pool_mode")
    };
    assert_eq!((modes("app").as_str(), modes("app2").as_str()), ("statement", "session"));
}

/// Which servers ten transactions in a row got, when three lie idle.
fn reuse(round_robin: u8) -> Vec<String> {
    // One worker: with several, each has its own idle list.
    let world = World::with(3, |setup| {
        let setup = setup.set("server_round_robin", round_robin);
        if harness::subject() == harness::Subject::Howdah { setup.set("workers", 1) } else { setup }
    });
    let mut clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    for client in &mut clients {
        client.run("BEGIN");
    }
    for client in &mut clients {
        client.run("COMMIT");
    }
    (0..10).map(|_| clients[0].value("SELECT pg_backend_pid()")).collect()
}

#[test]
fn idle_servers_are_reused_last_in_first_out() {
    let mut pids = reuse(0);
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[test]
fn server_round_robin_takes_them_in_turn() {
    let pids = reuse(1);
    let distinct: std::collections::BTreeSet<_> = pids.iter().collect();
    assert_eq!(distinct.len(), 3);
    assert!(pids.windows(4).all(|four| four[0] == four[3]), "{pids:?}");
}

#[test]
fn disable_pqexec() {
    let world = World::with(1, |setup| setup.set("disable_pqexec", 1));
    let mut client = world.client();
    assert_eq!(client.ask(&[extended("SELECT 1", &[]), sync()].concat()).column(), ["1"]);
    client.send(&query("SELECT 1"));
    assert_eq!(client.fatal().text(), "PQexec disallowed");
}

#[test]
fn application_name_add_host() {
    let world = World::with(1, |setup| setup.set("application_name_add_host", 1));
    let mut client = world.login().parameter("application_name", "till").enter();
    let name = client.value("SHOW application_name");
    assert!(name.starts_with("till - 127.0.0.1:"), "{name}");
    client.run("SET application_name = 'counter'");
    assert_eq!(client.value("SHOW application_name"), "counter");
}

#[test]
fn connect_query() {
    let world = World::with(1, |setup| {
        setup.database_also("shop", "connect_query='SET work_mem = ''9MB'''")
    });
    let mut client = world.client();
    assert_eq!(client.value("SHOW work_mem"), "9MB");
    let connects = world.statements().iter().filter(|sql| sql.contains("9MB")).count();
    client.run("SELECT 1");
    assert_eq!(world.statements().iter().filter(|sql| sql.contains("9MB")).count(), connects);
}

#[test]
fn max_packet_size() {
    let world = World::with(1, |setup| setup.set("max_packet_size", 10_000));
    let mut client = world.client();
    let long = |size: usize| query(&format!("SELECT length('{}')", "x".repeat(size)));
    assert_eq!(client.ask(&long(9_000)).value(), "9000");
    client.send(&long(11_000));
    client.until_closed();
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn a_database_may_force_settings() {
    let world = World::with(1, |setup| {
        setup.database_also("shop", "client_encoding=LATIN1 datestyle=German timezone=Asia/Tokyo")
    });
    let mut client = world.client();
    assert_eq!(client.value("SHOW client_encoding"), "LATIN1");
    assert_eq!(client.value("SHOW DateStyle"), "German, DMY");
    assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo");
    client.run("SET TimeZone = 'UTC'");
    assert_eq!(client.value("SHOW TimeZone"), "UTC");
}

#[test]
fn settings_can_be_changed_on_a_live_pool() {
    let world = World::pool(1);
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    waiting.send(&query("SELECT 'served'"));
    assert!(matches!(waiting.hear(seconds(0.3)), Heard::Quiet));
    world.howdah.order("SET default_pool_size = 2");
    assert_eq!(waiting.until_ready().column(), ["served"]);
    world.howdah.order("SET query_wait_timeout = 1");
    waiting.run("BEGIN");
    let mut third = world.client();
    third.send(&query("SELECT 1"));
    assert_eq!(third.fatal().text(), "query_wait_timeout");
}
