//! What a client says and hears: bug classes B1 to B27, but for TLS and rewriting.

use std::time::Duration;

use harness::say::{
    bind, call, close_portal, close_statement, describe_portal, describe_statement, execute,
    extended, flush, parse, query, sync, terminate,
};
use harness::{Dice, Heard, Oracle, Raw, Until, World, eventually, fake, seconds};

#[test]
fn b01_what_follows_an_error_is_skipped_until_sync() {
    howdah_only!("the yardstick awaits a ReadyForQuery for a query that the server skips");
    let mut oracle = Oracle::new();
    let bad = [parse("", "SELECT nonsense"), bind("", "", &[]), execute("", 0)].concat();
    let step = |skipped: Vec<u8>| [bad.clone(), skipped, sync()].concat();
    oracle.step("a simple query among the skipped", &step(query("SELECT 1")), Until::Ready(1));
    oracle.step(
        "a function call among the skipped",
        &step(call(177, &[&[0; 4], &[0; 4]])),
        Until::Ready(1),
    );
    oracle.step("a close among the skipped", &step(close_statement("nobody")), Until::Ready(1));
    oracle.step(
        "nothing to come but the error",
        &[bad.clone(), query("SELECT 1")].concat(),
        Until::Tag(b'E'),
    );
    oracle.step("Sync ends it", &sync(), Until::Ready(1));
    oracle.query("BEGIN");
    oracle.query("SAVEPOINT s");
    oracle.step("a driver's savepoint mode", &step(query("RELEASE s")), Until::Ready(1));
    oracle.query("ROLLBACK TO s");
    oracle.query("SELECT 2");
    oracle.query("COMMIT");
    let after = [step(query("SELECT 1")), query("SELECT 'counted'")].concat();
    oracle.step("a simple query after the Sync", &after, Until::Ready(2));
    oracle.end();
}

#[test]
fn b02_many_syncs_in_one_flight_are_all_answered() {
    let world = World::pool(2);
    let flight = |who: usize| {
        let one =
            |n: usize| [extended(&format!("SELECT {who} * 1000 + {n}"), &[]), sync()].concat();
        (0..64).flat_map(one).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        for who in 1..=4 {
            let (flight, mut client) = (flight(who), world.client());
            scope.spawn(move || {
                for _ in 0..5 {
                    client.send(&flight);
                    let reply = client.until_readies(64);
                    let expected: Vec<_> = (0..64).map(|n| (who * 1000 + n).to_string()).collect();
                    assert_eq!(reply.column(), expected);
                    assert_eq!(reply.tags(), "12TDCZ".repeat(64));
                }
            });
        }
    });
    assert!(world.servers() <= 2);
}

#[test]
fn b02_a_server_is_kept_while_a_later_request_is_in_flight() {
    let mut oracle = Oracle::new();
    for _ in 0..10 {
        let three =
            [query("SELECT pg_sleep(0.01)"), query("SELECT 2"), query("BEGIN; SELECT 3; COMMIT")]
                .concat();
        oracle.step("three simple queries at once", &three, Until::Ready(3));
        let mixed =
            [query("BEGIN"), extended("SELECT 1", &[]), sync(), query("COMMIT"), sync()].concat();
        oracle.step("a transaction in one flight", &mixed, Until::Ready(4));
    }
    oracle.end();
}

/// The division is by something volatile: otherwise it depends on the plan, and so on how often a statement was used before,
/// whether Bind or Execute fails.
const TEXTS: &[&str] = &[
    "SELECT 1",
    "SELECT $1 || 'x'",
    "SELECT 1/($1::int + random()::int * 0)",
    "SELECT nonsense",
    "",
];
const ARGUMENTS: &[&[&str]] = &[&[], &["1"], &["0"]];
const IN_TRANSACTIONS: &[&str] =
    &["SELECT 1", "SELECT nonsense", "BEGIN", "COMMIT", "ROLLBACK", "SELECT $1 AS two"];

/// A batch of random messages with a Sync at its end: the messages, and how many Syncs.
fn random_batch(
    dice: &mut Dice,
    texts: &[&str],
    arguments: &[&[&'static str]],
) -> (String, Vec<u8>, usize) {
    let (names, portals) = (["a", "b", "c", ""], ["", "p"]);
    let (mut story, mut bytes, mut syncs) = (Vec::new(), Vec::new(), 1);
    for _ in 0..1 + dice.below(12) {
        let (name, portal, text) = (*dice.pick(&names), *dice.pick(&portals), *dice.pick(texts));
        let arguments = *dice.pick(arguments);
        let (what, message) = match dice.below(10) {
            0..=2 => (format!("Parse {name:?} {text:?}"), parse(name, text)),
            3..=4 => {
                (format!("Bind {portal:?} {name:?} {arguments:?}"), bind(portal, name, arguments))
            }
            5 => (format!("Execute {portal:?}"), execute(portal, 0)),
            6 => (format!("Describe S {name:?}"), describe_statement(name)),
            7 => (format!("Describe P {portal:?}"), describe_portal(portal)),
            8 => match dice.below(2) {
                0 => (format!("Close S {name:?}"), close_statement(name)),
                _ => (format!("Close P {portal:?}"), close_portal(portal)),
            },
            _ => {
                syncs += 1;
                ("Sync".into(), sync())
            }
        };
        story.push(what);
        bytes.extend(message);
    }
    bytes.extend(sync());
    (story.join(", "), bytes, syncs)
}

fn random_batches(limit: u32, texts: &[&str], arguments: &[&[&'static str]], rounds: usize) {
    let mut dice = Dice::new();
    let mut oracle = Oracle::with(|setup| setup.set("max_prepared_statements", limit)).torn();
    for _ in 0..rounds {
        let (story, bytes, syncs) = random_batch(&mut dice, texts, arguments);
        let reply = oracle.step(&story, &bytes, Until::Ready(syncs));
        if reply.status() != Some('I') && dice.below(3) == 0 {
            oracle.query("ROLLBACK");
        }
    }
    oracle.end();
}

#[test]
fn b03_random_batches_with_room_for_one_statement() {
    howdah_only!("prepared statements");
    random_batches(1, TEXTS, ARGUMENTS, 150);
}

#[test]
fn b03_random_batches_with_room_for_two_statements() {
    howdah_only!("prepared statements");
    random_batches(2, TEXTS, ARGUMENTS, 150);
}

#[test]
fn b03_random_batches_with_room_for_three_statements() {
    howdah_only!("prepared statements");
    random_batches(3, TEXTS, ARGUMENTS, 150);
}

#[test]
fn b03_random_batches_in_and_out_of_transactions() {
    howdah_only!("prepared statements");
    random_batches(2, IN_TRANSACTIONS, &[&[], &[], &["1"]], 200);
}

#[test]
fn b04_a_failed_parse_is_forgotten() {
    let mut oracle = Oracle::new();
    oracle.query("BEGIN");
    oracle.query("SELECT 1/0");
    oracle.synced("Parse in a failed transaction", &[parse("s", "SELECT 'text of s'")]);
    oracle.query("ROLLBACK");
    let use_it = [bind("", "s", &[]), execute("", 0)];
    oracle.synced("it does not exist", &use_it);
    oracle.synced(
        "Parse of the same name and text",
        &[parse("s", "SELECT 'text of s'"), use_it.concat()],
    );
    oracle.synced("a Parse that fails by itself", &[parse("bad", "SELECT nonsense")]);
    oracle.synced("once more", &[parse("bad", "SELECT nonsense")]);
    oracle.synced(
        "the name is free",
        &[parse("bad", "SELECT 'good'"), bind("", "bad", &[]), execute("", 0)],
    );
    oracle.end();
}

#[test]
fn b05_describe_may_stand_alone() {
    let mut oracle = Oracle::new();
    oracle.synced("prepare", &[parse("s", "SELECT $1::int AS number, 'x' AS letter")]);
    oracle.synced("describe the statement, later", &[describe_statement("s")]);
    oracle.synced("describe a portal", &[bind("p", "s", &["7"]), describe_portal("p")]);
    oracle.synced("the portal went with its transaction", &[describe_portal("p")]);
    oracle.synced("prepare BEGIN", &[parse("begin", "BEGIN"), describe_statement("begin")]);
    oracle.synced("and do it", &[bind("", "begin", &[]), execute("", 0)]);
    oracle.synced("inside", &[bind("", "s", &["8"]), execute("", 0)]);
    oracle.query("COMMIT");
    oracle.synced(
        "a statement without rows",
        &[parse("", "SET LOCAL work_mem = '1MB'"), describe_statement("")],
    );
    oracle.end();
}

#[test]
fn b06_statements_and_portals_have_names_of_their_own() {
    let mut oracle = Oracle::new();
    oracle.synced("closing what never was", &[close_statement("nobody"), close_portal("nobody")]);
    let both = [
        parse("x", "SELECT 1"),
        bind("x", "x", &[]),
        close_portal("x"),
        describe_statement("x"),
        bind("x", "x", &[]),
        close_statement("x"),
        execute("x", 0),
    ];
    oracle.synced("a portal and a statement of one name", &both);
    oracle.synced("the statement is closed", &[describe_statement("x")]);
    oracle.end();
}

#[test]
fn b07_a_flush_keeps_the_portal_and_the_server() {
    let mut oracle = Oracle::new();
    let rows = "SELECT generate_series(1, 5)";
    let begin = [parse("", rows), bind("p", "", &[]), describe_portal("p"), flush()].concat();
    let more = [execute("p", 2), flush()].concat();
    for _ in 0..3 {
        oracle.step("Parse Bind Describe Flush", &begin, Until::Tag(b'T'));
        assert_eq!(oracle.step("two rows", &more, Until::Tag(b's')).column(), ["1", "2"]);
        assert_eq!(oracle.step("two more", &more, Until::Tag(b's')).column(), ["3", "4"]);
        assert_eq!(oracle.step("the last", &more, Until::Tag(b'C')).column(), ["5"]);
        oracle.step("Sync", &sync(), Until::Ready(1));
    }
    oracle.step("Flush of nothing", &flush(), Until::Quiet);
    oracle.end();
}

#[test]
fn b08_a_row_is_committed_when_the_client_hears_so() {
    let world = World::pool(1);
    let (mut client, mut witness) = (world.client(), world.direct());
    client.run("CREATE TABLE t (n int)");
    for n in 1..=50 {
        client.send(
            &[parse("", "INSERT INTO t VALUES (1)"), describe_statement(""), flush()].concat(),
        );
        client.until(b'n');
        client.send(&[bind("", "", &[]), execute("", 0), flush()].concat());
        client.until(b'C');
        client.ask(&sync());
        assert_eq!(witness.value("SELECT count(*) FROM t"), n.to_string());
    }
}

#[test]
fn b10_a_batch_that_waited_too_long_is_not_sent_later() {
    let world = World::pool(1);
    let mut holder = world.client();
    holder.run("CREATE TABLE t (n int)");
    holder.run("BEGIN");
    let mut late = world.client();
    world.howdah.order("SET query_wait_timeout = 1");
    let insert = |n: u32| [extended(&format!("INSERT INTO t VALUES ({n})"), &[]), sync()].concat();
    late.send(&[insert(1), insert(2)].concat());
    assert_eq!(late.fatal().text(), "query_wait_timeout");
    world.howdah.order("SET query_wait_timeout = 120");
    holder.run("COMMIT");
    let mut other = world.client();
    other.ask(&insert(3));
    assert_eq!(other.run("SELECT n FROM t").column(), ["3"]);
}

/// Leaves in the middle of a batch, after each number of its bytes.
fn leave_after_every_byte(leave: fn(Raw)) {
    howdah_only!("the yardstick sends a Terminate into the middle of a message");
    let world = World::pool(1);
    let mut other = world.client();
    other.run("CREATE TABLE t (n int)");
    let batch = [extended("INSERT INTO t VALUES (1)", &[]), sync()].concat();
    let mut most = 0;
    for end in 1..batch.len() {
        let mut client = world.client();
        client.send(&batch[..end]);
        leave(client);
        let count: u32 = other.value("SELECT count(*) FROM t").parse().expect("a count");
        assert_eq!(count, 0, "a statement without its Sync was committed at byte {end}");
        most = most.max(world.servers());
    }
    assert!(most <= 2, "{most} servers in a pool of one and one that is ending");
    eventually("no server is left in the middle", || {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND state <> 'idle'",
            world.db
        );
        world.postgres.superuser("postgres").value(&sql) == "0"
    });
    let odd = |line: &String| {
        line.contains("invalid") || line.contains("unexpected message") || line.contains("protocol")
    };
    assert_eq!(world.postgres.lines(&world.db).into_iter().find(odd), None);
}

#[test]
fn b11_a_client_dies_at_any_byte_of_a_batch() {
    leave_after_every_byte(Raw::reset);
}

#[test]
fn b11_a_client_leaves_at_any_byte_of_a_batch() {
    leave_after_every_byte(drop);
}

#[test]
fn b12_a_server_is_not_reused_while_its_client_reads_slowly() {
    let world = World::pool(1);
    let (mut slow, mut other) = (world.client(), world.client());
    // Far more than all sockets in between have room for.
    slow.send(&query("SELECT repeat('a', 1000) FROM generate_series(1, 60000)"));
    slow.swallow(1000, seconds(5.0));
    other.send(&query("SELECT 'b'"));
    assert!(
        matches!(other.hear(Duration::from_millis(300)), Heard::Quiet),
        "the server is still busy"
    );
    assert!(slow.swallow(20_000_000, seconds(30.0)).len() == 20_000_000);
    assert!(other.hear(Duration::from_millis(10)).is_quiet(), "it is still busy");
    slow.swallow(60_000_000, seconds(2.0));
    assert_eq!(other.until_ready().column(), ["b"]);
}

#[test]
fn b13_a_terminate_behind_a_request_does_not_swallow_its_reply() {
    let world = World::pool(1);
    let mut witness = world.client();
    witness.run("CREATE TABLE t (n int)");
    for n in 0..30 {
        let mut client = world.client();
        client.send(&[query(&format!("INSERT INTO t VALUES ({n})")), terminate()].concat());
        let reply = client.until_closed();
        let count = witness.value(&format!("SELECT count(*) FROM t WHERE n = {n}"));
        let answered = reply.tags() == "CZ";
        assert!(answered || count == "0", "executed, and not answered: {reply:?}");
    }
}

/// The same, while it stands in line for a server, and with its side of the connection closed.
#[test]
fn b13_a_goodbye_in_line_does_not_leave_the_line() {
    howdah_only!("others drop the request, unanswered");
    let world = World::pool(1);
    let (mut holder, mut witness) = (world.client(), world.direct());
    holder.run("CREATE TABLE t (n int)");
    holder.run("BEGIN");
    let mut simple = world.client();
    simple.send(&[query("INSERT INTO t VALUES (1)"), terminate()].concat());
    simple.half_close();
    let mut extended_client = world.client();
    extended_client.send(&extended("INSERT INTO t VALUES (2)", &[]));
    extended_client.send(&[sync(), terminate()].concat());
    extended_client.half_close();
    // One that just goes has said nothing that anybody waits for.
    let gone = world.client();
    eventually("both wait", || world.pools("cl_waiting") == "2");
    drop(gone);
    holder.run("COMMIT");
    assert_eq!(simple.until_closed().tags(), "CZ");
    assert_eq!(extended_client.until_closed().tags(), "12nCZ");
    assert_eq!(witness.value("SELECT sum(n) FROM t"), "3");
    assert_eq!(holder.value("SELECT 'next'"), "next");
}

#[test]
fn b14_a_notification_to_an_idle_server_reaches_nobody_else() {
    let world = World::with(1, |setup| setup.own("track_session_state", 0));
    let (mut listener, mut other, mut notifier) = (world.client(), world.client(), world.direct());
    for _ in 0..10 {
        listener.run("LISTEN gossip");
        notifier.run("NOTIFY gossip");
        // It is either still to come or has closed the server; in both cases the next client must not hear it.
        let patience = std::time::Instant::now() + Duration::from_millis(150);
        while world.servers() > 0 && std::time::Instant::now() < patience {}
        assert_eq!(other.run("SELECT 1").tags(), "TDCZ");
    }
    assert_eq!(listener.run("SELECT 1").column(), ["1"]);
}

#[test]
fn b14_a_parameter_changed_on_idle_servers_is_taken_in_stride() {
    let postgres = harness::Postgres::start("");
    let db = postgres.database();
    let howdah = harness::Setup::new().database("shop", &postgres.target(&db)).start();
    let login = howdah.login("app", harness::postgres::PASSWORD, "shop");
    let mut client = login.enter();
    let mut boss = postgres.superuser(&db);
    for zone in ["Asia/Tokyo", "Europe/Berlin", "Asia/Tokyo"] {
        client.run("SELECT 1");
        boss.run(&format!(
            "ALTER SYSTEM SET IntervalStyle = '{}'",
            if zone < "B" { "iso_8601" } else { "postgres" }
        ));
        boss.run(&format!("ALTER SYSTEM SET log_timezone = '{zone}'"));
        boss.run("SELECT pg_reload_conf()");
        eventually("the change has arrived", || boss.value("SHOW log_timezone") == zone);
        for _ in 0..10 {
            let reply = client.run("SELECT 1");
            assert_eq!((reply.column(), reply.count(b'Z')), (vec!["1".to_owned()], 1));
        }
    }
}

#[test]
fn b14_an_error_on_an_idle_server_reaches_nobody() {
    let world = World::pool(3);
    let mut clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            client.run("BEGIN");
        }
        for client in &mut clients {
            client.run("COMMIT");
        }
        end_servers(&world);
        eventually("all servers are gone", || world.servers() == 0);
        for client in &mut clients {
            assert_eq!(client.query("SELECT 1").tags(), "TDCZ");
        }
    }
}

fn end_servers(world: &World) {
    let own = "datname = current_database() AND pid <> pg_backend_pid()";
    world
        .direct()
        .run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {own}"));
}

#[test]
fn b15_a_noisy_login_to_a_server_stays_unheard() {
    let world = World::pool(1);
    world
        .direct()
        .run(&format!("ALTER ROLE app IN DATABASE {} SET client_min_messages = debug5", world.db));
    let mut client = world.client();
    let reply = client.run("SELECT 'quiet'");
    assert_eq!(reply.column(), ["quiet"]);
    let welcome = client.welcome.tags();
    assert!(!welcome.contains('N'), "{welcome}");
}

#[test]
fn b15_notices_and_parameters_at_any_moment_of_a_login() {
    let server = fake::FakeServer::start(|mut guest| {
        if !matches!(guest.opening(), Some(fake::Opening::Login { .. })) {
            return;
        }
        let noise = || [fake::notice("noise"), fake::parameter("TimeZone", "Asia/Tokyo")].concat();
        guest.send(&fake::notice("before anything"));
        for part in
            [fake::authenticated(), fake::parameters(), fake::key(&[0, 0, 0, 9, 1, 2, 3, 4])]
        {
            guest.send(&[part, noise()].concat());
        }
        guest.send(&fake::ready());
        guest.serve();
    });
    let howdah = harness::Setup::new().database("fake", &server.target()).start();
    let mut client = howdah.login("app", harness::postgres::PASSWORD, "fake").enter();
    assert_eq!(client.run("SELECT 5").column(), ["SELECT 5"]);
}

#[test]
fn b16_function_calls() {
    let mut oracle = Oracle::new();
    let four = |n: i32| n.to_be_bytes();
    let add = call(177, &[&four(2), &four(3)]);
    let divide_by_zero = call(154, &[&four(1), &four(0)]);
    oracle.step("first of all", &add, Until::Ready(1));
    oracle.step("one that fails", &divide_by_zero, Until::Ready(1));
    oracle.step("one that is not there", &call(999_999, &[]), Until::Ready(1));
    oracle.step(
        "three at once",
        &[add.clone(), divide_by_zero, add.clone()].concat(),
        Until::Ready(3),
    );
    oracle.query("BEGIN");
    oracle.step("in a transaction", &add, Until::Ready(1));
    oracle.query("COMMIT");
    oracle.end();
}

/// A client is in the middle of something when its server dies: it hears one error, and the end.
fn server_dies(begin: impl FnOnce(&mut Raw)) {
    howdah_only!("the yardstick adds an error of its own to the server's");
    let world = World::pool(1);
    let mut client = world.client();
    client.run("CREATE TABLE t (n int)");
    begin(&mut client);
    end_servers(&world);
    let reply = client.until_closed();
    assert_eq!((reply.count(b'E'), reply.count(b'Z')), (1, 0), "{reply:?}");
    let mut other = world.client();
    assert_eq!(other.value("SELECT count(*) FROM t"), "0");
}

/// Sends, and waits until the server is at it.
fn start_sleeping(client: &mut Raw, bytes: &[u8]) {
    client.send(bytes);
    assert!(matches!(client.hear(Duration::from_millis(200)), Heard::Quiet));
}

#[test]
fn b17_a_server_dies_during_a_query() {
    server_dies(|client| start_sleeping(client, &query("SELECT pg_sleep(60)")));
}

#[test]
fn b17_a_server_dies_in_an_idle_transaction() {
    server_dies(|client| {
        client.run("BEGIN; INSERT INTO t VALUES (1)");
    });
}

#[test]
fn b17_a_server_dies_in_a_failed_transaction() {
    server_dies(|client| {
        client.query("BEGIN; SELECT 1/0");
    });
}

#[test]
fn b17_a_server_dies_in_a_pipeline() {
    let sleep = [
        extended("SELECT pg_sleep(60)", &[]),
        sync(),
        extended("INSERT INTO t VALUES (1)", &[]),
        sync(),
    ];
    server_dies(|client| start_sleeping(client, &sleep.concat()));
}

#[test]
fn b17_a_server_dies_during_copy() {
    server_dies(|client| {
        client.send(&query("COPY t FROM STDIN"));
        client.until(b'G');
    });
}

#[test]
fn b17_a_server_dies_after_a_flush() {
    server_dies(|client| {
        client.send(&[extended("INSERT INTO t VALUES (1)", &[]), flush()].concat());
        client.until(b'C');
    });
}

#[test]
fn b18_errors_at_random_places_of_a_pipeline() {
    let mut dice = Dice::new();
    let mut oracle = Oracle::new().torn();
    for round in 0..40 {
        let (mut bytes, mut syncs) = (Vec::new(), 1);
        for n in 0..2 + dice.below(10) {
            let sql = match dice.below(6) {
                0 => "SELECT 1/0".to_owned(),
                1 => "SELECT nonsense".to_owned(),
                _ => format!("SELECT {n}"),
            };
            bytes.extend(extended(&sql, &[]));
            if dice.below(4) == 0 {
                bytes.extend(sync());
                syncs += 1;
            }
        }
        bytes.extend(sync());
        oracle.step(&format!("pipeline {round}"), &bytes, Until::Ready(syncs));
    }
    oracle.end();
}

#[test]
fn b19_the_unnamed_statement_outlives_its_sync() {
    howdah_only!("others forget the unnamed statement");
    let mut oracle = Oracle::new();
    for n in 0..10 {
        let sql = format!("SELECT $1::int + {n}");
        oracle.synced("prepare without a name", &[parse("", &sql), describe_statement("")]);
        oracle.synced("use it", &[bind("", "", &["5"]), execute("", 0)]);
        oracle.synced("and again", &[bind("", "", &["6"]), describe_portal(""), execute("", 0)]);
    }
    oracle.query("SELECT 'a simple query ends the unnamed statement'");
    oracle.synced("it is gone", &[bind("", "", &["7"]), execute("", 0)]);
    oracle.end();
}

#[test]
fn b20_a_statement_that_cannot_be_prepared_again_fails_its_own_client_only() {
    howdah_only!("prepared statements");
    let world = World::pool(2);
    let (mut first, mut second, mut holder) = (world.client(), world.client(), world.client());
    first.run("CREATE TABLE t (n int)");
    let prepared = first.ask(&[parse("s", "SELECT n FROM t"), sync()].concat());
    assert_eq!(prepared.tags(), "1Z");
    // The server that knows the statement is held; what it reads goes away; the other server must prepare it anew.
    let pid = holder.run("BEGIN; SELECT pg_backend_pid()").value();
    second.run("DROP TABLE t");
    let failed = first.ask(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    assert_eq!((failed.tags().as_str(), failed.code().as_str()), ("EZ", "42P01"));
    assert_eq!(second.query("SELECT 1").tags(), "TDCZ");
    assert_ne!(second.value("SELECT pg_backend_pid()"), pid);
    first.run("CREATE TABLE t (n int)");
    let works = first.ask(&[bind("", "s", &[]), execute("", 0), sync()].concat());
    assert_eq!(works.tags(), "2CZ");
}

#[test]
fn b22_byte_by_byte() {
    howdah_only!("the yardstick does not wait for the rest of a first packet");
    let world = World::pool(1);
    let login = world.login();
    let mut client = Raw::open(&world.howdah.address()).expect("it listens");
    client.send_bytewise(&login.startup());
    login.answer(&mut client).expect("in");
    client.send_bytewise(&query("SELECT 'whole'"));
    assert_eq!(client.until_ready().column(), ["whole"]);
    client.send_bytewise(&[extended("SELECT $1", &["whole"]), sync()].concat());
    assert_eq!(client.until_ready().column(), ["whole"]);
}

#[test]
fn b22_messages_about_the_sizes_of_buffers() {
    let mut oracle = Oracle::new().torn();
    for size in [2048, 4096, 8192, 16_384, 65_536] {
        for near in [-6_i32, -5, -4, -1, 0, 1, 5] {
            let length = usize::try_from(size + near).expect("positive");
            // `SELECT '…'` of exactly that many bytes, tag and length included, and an answer about as long.
            let text = "x".repeat(length - 5 - "SELECT ''".len() - 1);
            oracle.query(&format!("SELECT '{text}'"));
            oracle.synced(
                "the same, extended",
                &[parse("", "SELECT $1"), bind("", "", &[&text]), execute("", 0)],
            );
        }
    }
    oracle.end();
}

#[test]
fn b22_a_large_query_and_a_large_answer() {
    let world = World::pool(1);
    let mut client = world.client();
    let text = "y".repeat(9_000_000);
    assert!(client.value(&format!("SELECT '{text}'")) == text);
    let bound = [parse("", "SELECT $1"), bind("", "", &[&text]), execute("", 0), sync()].concat();
    assert!(client.ask(&bound).value() == text);
}

#[test]
fn b22_lengths_that_lie_end_the_connection_and_nothing_else() {
    let mut world = World::pool(1);
    for length in [0_i32, 1, 3, -1, i32::MIN] {
        let mut client = world.client();
        client.send(&[b"Q".as_slice(), &length.to_be_bytes(), b"SELECT 1\0"].concat());
        client.until_closed();
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        client.send(&[length.to_be_bytes().as_slice(), &[0, 3, 0, 0], b"user\0app\0\0"].concat());
        client.until_closed();
    }
    // Two gigabytes are announced and never come: the memory must not be taken in advance.
    let before = world.howdah.resident_kb();
    let mut client = world.client();
    client.send(&[b"Q".as_slice(), &i32::MAX.to_be_bytes(), b"SELECT 1"].concat());
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert!(world.howdah.resident_kb() < before + 20_000);
    drop(client);
    world.howdah.must_live();
}

#[test]
fn b22_a_message_of_an_unknown_kind() {
    let mut world = World::pool(1);
    for tag in [b'!', b'T', 0, 255, b'v', b'R'] {
        let mut client = world.client();
        client.send(&harness::say::message(tag, b"what"));
        client.until_closed();
        assert_eq!(world.client().value("SELECT 1"), "1");
    }
    world.howdah.must_live();
}

#[test]
fn b24_the_servers_word_alone_tells_a_transaction() {
    let mut oracle = Oracle::new();
    oracle.query("CREATE TABLE t (n int)");
    oracle.query("CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t VALUES (1); COMMIT; END $$");
    let texts = [
        "",
        ";",
        "BEGIN; SELECT 1; COMMIT",
        "BEGIN; SELECT 1",
        "COMMIT; BEGIN",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
        "SELECT 1/0",
        "",
        "COMMIT AND CHAIN",
        "COMMIT",
        "SELECT 1; SELECT 1/0; SELECT 2",
        "DO $$ BEGIN INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); ROLLBACK; END $$",
        "CALL p()",
        "BEGIN; ROLLBACK; SELECT 1; BEGIN; SELECT 2; ROLLBACK; SELECT 3",
        "/* BEGIN */ SELECT 'BEGIN'",
        "START TRANSACTION READ ONLY",
        "INSERT INTO t VALUES (3)",
        "END",
        "ABORT",
        "COMMIT",
        "SELECT n FROM t",
    ];
    for text in texts {
        oracle.query(text);
    }
    oracle.synced("an empty statement", &[extended("", &[])]);
    oracle.query("BEGIN");
    oracle.query("SELECT nonsense");
    oracle.synced("an empty statement in a failed transaction", &[extended("", &[])]);
    oracle.synced("ROLLBACK, extended", &[extended("ROLLBACK", &[])]);
    oracle.end();
}

#[test]
fn b24_a_prepared_transaction_sets_the_server_free() {
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    first.run("CREATE TABLE t (n int)");
    let gid = format!("gid-{}", world.db);
    first.run("BEGIN");
    first.run("INSERT INTO t VALUES (1)");
    assert_eq!(first.run(&format!("PREPARE TRANSACTION '{gid}'")).status(), Some('I'));
    assert_eq!(second.value("SELECT count(*) FROM t"), "0");
    second.run(&format!("COMMIT PREPARED '{gid}'"));
    assert_eq!(first.value("SELECT count(*) FROM t"), "1");
}

#[test]
fn b25_begin_in_every_way() {
    let mut oracle = Oracle::new();
    let ways = [
        "BEGIN",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "START TRANSACTION",
        "begin transaction read only",
    ];
    for way in ways {
        oracle.synced(
            "described",
            &[parse("b", way), describe_statement("b"), bind("", "b", &[]), execute("", 0)],
        );
        oracle.query("SHOW transaction_isolation");
        oracle.query("SELECT 1/0");
        oracle.query("SELECT 1");
        oracle.synced("end, and forget", &[extended("ROLLBACK", &[]), close_statement("b")]);
    }
    let one_flight =
        [extended("BEGIN", &[]), extended("SELECT 1", &[]), extended("COMMIT", &[])].concat();
    oracle.synced("a transaction and one Sync", &[one_flight]);
    oracle.query("BEGIN");
    oracle.query("BEGIN");
    oracle.query("SELECT pg_advisory_xact_lock(1)");
    oracle.query("COMMIT");
    oracle.end();
}

#[test]
fn b26_a_failed_transaction_left_alone_is_ended_and_enters_nobody_else() {
    let world = World::with(1, |setup| setup.set("idle_transaction_timeout", 1));
    let (mut lazy, mut other) = (world.client(), world.client());
    lazy.query("BEGIN; SELECT 1/0");
    let reply = other.query("SELECT 1");
    assert_eq!((reply.tags().as_str(), reply.status()), ("TDCZ", Some('I')));
    assert_eq!(lazy.fatal().text(), "idle transaction timeout");
}

#[test]
fn b26_a_client_leaving_inside_a_transaction_leaves_no_trace() {
    let world = World::pool(1);
    let mut other = world.client();
    other.run("CREATE TABLE t (n int)");
    let ways: [fn(Raw); 3] = [Raw::leave, drop, Raw::reset];
    for (way, leave) in ["terminate", "close", "reset"].into_iter().zip(ways) {
        for begin in
            ["BEGIN; INSERT INTO t VALUES (1)", "BEGIN; INSERT INTO t VALUES (1); SELECT 1/0"]
        {
            let mut client = world.client();
            client.query(begin);
            leave(client);
            let reply = other.run("SELECT count(*) FROM t");
            assert_eq!((reply.value().as_str(), reply.status()), ("0", Some('I')), "{way}");
            assert_eq!(
                other.run("BEGIN").tags(),
                "CZ",
                "no warning of a transaction in progress ({way})"
            );
            other.run("ROLLBACK");
        }
    }
    assert!(world.servers() <= 1);
}

#[test]
fn b27_each_query_of_a_transaction_has_its_own_columns() {
    let mut oracle = Oracle::new();
    oracle.query("BEGIN");
    oracle.query("SELECT 1 AS one, 'x' AS letter");
    oracle.query("SELECT DISTINCT relkind FROM pg_class WHERE relname = 'pg_class'");
    oracle.synced(
        "extended",
        &[extended("SELECT 2.5 AS number", &[]), extended("SELECT NULL AS nothing", &[])],
    );
    oracle.query("VALUES (1), (2)");
    oracle.query("COMMIT");
    oracle.end();
}

#[test]
fn settings_that_a_server_reports_return_with_their_client() {
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    let told = first.run("SET TimeZone = 'Asia/Tokyo'");
    assert!(
        told.of(b'S')
            .any(|message| message.parameter() == ("TimeZone".into(), "Asia/Tokyo".into()))
    );
    assert_eq!(second.value("SHOW TimeZone"), "UTC");
    second.run("SET DateStyle = 'German'; SET client_encoding = 'LATIN1'");
    assert_eq!(first.value("SHOW TimeZone"), "Asia/Tokyo");
    assert_eq!(first.value("SHOW DateStyle"), "ISO, MDY");
    assert_eq!(second.value("SHOW DateStyle"), "German, DMY");
    assert_eq!(second.value("SHOW client_encoding"), "LATIN1");
    assert_eq!(first.value("SHOW client_encoding"), "UTF8");
}

#[test]
fn equal_settings_are_not_set_again() {
    howdah_only!("canonical forms are of 1.20");
    let world = World::pool(1);
    let mut clients = [world.login().parameter("DateStyle", "ISO").enter(), world.client()];
    for _ in 0..20 {
        for client in &mut clients {
            client.run("SELECT 1");
        }
    }
    let sets = world.statements().iter().filter(|sql| sql.starts_with("SET ")).count();
    assert!(sets <= 1, "{:?}", world.statements());
}

#[test]
fn the_welcome_is_the_servers() {
    let world = World::pool(1);
    let parameters = |raw: &Raw| {
        let mut all: Vec<_> = raw.welcome.of(b'S').map(harness::Message::parameter).collect();
        all.sort();
        all
    };
    let (direct, pooled) = (world.direct_app(), world.client());
    assert_eq!(parameters(&pooled), parameters(&direct));
    assert_eq!(
        pooled.welcome.tags().trim_start_matches('R'),
        direct.welcome.tags().trim_start_matches('R')
    );
}

#[test]
fn a_long_conversation_of_everything() {
    let mut dice = Dice::new();
    let mut oracle = Oracle::new().torn();
    oracle.query("CREATE TABLE t (n int PRIMARY KEY, words text)");
    let simple = [
        "SELECT * FROM t ORDER BY n",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "SELECT 1/0",
        "INSERT INTO t SELECT count(*), 'simple' FROM t",
        "DELETE FROM t WHERE n % 3 = 0",
        "DO $$ BEGIN RAISE NOTICE 'heard'; END $$",
        "SELECT repeat('long', 5000)",
        "",
    ];
    let mut status = Some('I');
    // There it may answer the next statement with "StartTransactionCommand: unexpected state STARTED", as it happens.
    let queries_before_a_sync = oracle.world.postgres.version() < 18;
    for round in 0..150 {
        let insert = extended(
            "INSERT INTO t VALUES ($1::int + 1000, $2) ON CONFLICT DO NOTHING",
            &["7", "extended"],
        );
        let reply = match dice.below(6) {
            0 => {
                let rows = [
                    parse("", "SELECT generate_series(1, 9)"),
                    bind("", "", &[]),
                    execute("", 4),
                    flush(),
                ];
                let reply = oracle.step("some rows, and a Flush", &rows.concat(), Until::Quiet);
                oracle.step(&format!("Sync after {}", reply.tags()), &sync(), Until::Ready(1))
            }
            1 => oracle.synced("insert", &[insert]),
            2 if status != Some('E') && queries_before_a_sync => {
                let two = [insert, query("SELECT count(*) FROM t"), sync()].concat();
                oracle.step("a simple query before the Sync", &two, Until::Ready(2))
            }
            _ => oracle.query(simple[(round + dice.below(simple.len())) % simple.len()]),
        };
        status = reply.status();
    }
    oracle.end();
}

/// A server says goodbye in the breath in which it gives its last answer. That is no answer of anybody's: the client has
/// had its own and lives, and who stands in line gets another server. Where a session is one, it ends with its server.
#[test]
fn a_farewell_behind_the_last_answer_is_heard_by_nobody() {
    for (mode, lives) in [("transaction", true), ("session", false)] {
        let server = fake::FakeServer::start(|mut guest| {
            if guest.admit().is_none() {
                return;
            }
            while let Some(sql) = guest.read_until(b'Q') {
                let sql = String::from_utf8_lossy(&sql).trim_end_matches('\0').to_owned();
                let last = sql.ends_with("last'");
                let farewell = if last {
                    fake::error("FATAL", "57P01", "terminating connection")
                } else {
                    Vec::new()
                };
                guest.send(&[fake::answer(&sql), farewell].concat());
                if last {
                    return;
                }
            }
        });
        let howdah = harness::Setup::new()
            .database("fake", &server.target())
            .set("default_pool_size", 1)
            .set("pool_mode", mode)
            .set("server_reset_query", "")
            .set("workers", 1)
            .start();
        let login = || howdah.login("app", harness::postgres::PASSWORD, "fake").enter();
        let mut client = login();
        for round in 0..20 {
            let sql = format!("SELECT '{round} last'");
            client.send(&query(&sql));
            let reply = client.until_ready();
            assert_eq!(reply.column(), [sql], "{mode}");
            if !lives {
                let farewell = client.hear(seconds(20.0));
                assert!(matches!(farewell, Heard::Message(message) if message.tag == b'E'));
                client = login();
            }
        }
        if lives {
            assert_eq!(client.run("SELECT 5").column(), ["SELECT 5"]);
            assert!(!howdah.log().contains("closing because: terminating connection"));
        }
    }
}
