//! Statements prepared by SQL in transaction mode: they follow their client, and the protocol's and SQL's are
//! of one name space.

use harness::say::{
    bind, close_statement, describe_portal, describe_statement, execute, parse, query, sync,
};
use harness::{Raw, World, eventually};

const PID: &str = "SELECT pg_backend_pid()";
const MINE: &str =
    "SELECT string_agg(name || ':' || from_sql, ',' ORDER BY name) FROM pg_prepared_statements";

fn two(world: &World) -> (Raw, Raw) {
    (world.client(), world.client())
}

/// Whether `client` is found to be, once the pooler has made up its mind.
fn pins(world: &World, client: &mut Raw) -> bool {
    client.run("SELECT 1");
    is_pinned(world)
}

fn is_pinned(world: &World) -> bool {
    !world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons").is_empty()
}

/// One server serves two clients who call different statements by one name.
#[test]
fn prepare_follows_its_client() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("PREPARE p (int) AS SELECT 'ann' || $1");
    bob.run("PREPARE p (int) AS SELECT 'bob' || $1");
    assert!(!pins(&world, &mut ann));
    for _ in 0..3 {
        assert_eq!(ann.value("EXECUTE p(1)"), "ann1");
        assert_eq!(bob.value("EXECUTE p(2)"), "bob2");
    }
    assert_eq!(ann.query("PREPARE p AS SELECT 1").code(), "42P05");
    let text = ann.value("SELECT statement FROM pg_prepared_statements");
    assert_eq!(text, "PREPARE p (int) AS SELECT 'ann' || $1");
    ann.run("DEALLOCATE p");
    assert_eq!(ann.query("EXECUTE p(1)").code(), "26000");
    assert_eq!(bob.value("EXECUTE p(2)"), "bob2");
    bob.run("DEALLOCATE ALL");
    assert_eq!(bob.query("EXECUTE p(1)").code(), "26000");
    ann.run("PREPARE p AS SELECT 3");
    ann.run("DISCARD ALL");
    assert_eq!(ann.query("EXECUTE p").code(), "26000");
}

/// PREPARE is not undone by a rollback; what it was prepared in does not matter where nothing was set there.
#[test]
fn prepare_outlives_its_transaction() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    for sql in ["BEGIN", "PREPARE p AS SELECT 7", "ROLLBACK"] {
        ann.run(sql);
    }
    assert!(!pins(&world, &mut ann));
    assert_eq!(bob.query("EXECUTE p").code(), "26000");
    assert_eq!(ann.value("EXECUTE p"), "7");
    ann.run("BEGIN");
    assert!(ann.query("SELECT 1/0").error().is_some());
    assert_eq!(ann.query("EXECUTE p").code(), "25P02");
    ann.run("ROLLBACK");
    assert_eq!(bob.query("EXECUTE p").code(), "26000");
    assert_eq!(ann.value("EXECUTE p"), "7");
}

/// Clients that know nothing of prepared statements pay nothing for those that do, nor do these when they go on.
#[test]
fn executing_what_is_clean_asks_nothing() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let mut ann = world.client();
    ann.run("PREPARE p (int) AS SELECT $1");
    for number in 0..3 {
        ann.run(&format!("EXECUTE p({number})"));
    }
    let before = world.statements().len();
    for number in 0..20 {
        ann.run(&format!("EXECUTE p({number})"));
    }
    // The log has a line for what is executed, too, at most.
    let after = world.statements();
    assert!(after[before..].iter().all(|text| !text.contains("pg_settings")), "{after:?}");
}

/// What it executes is looked at.
#[test]
fn executing_what_sets_something_is_asked_about() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("PREPARE p (text) AS SELECT set_config('work_mem', $1, false)");
    let usual = bob.value("SHOW work_mem");
    ann.run("EXECUTE p('91MB')");
    assert_eq!(bob.value("SHOW work_mem"), usual);
    assert_eq!(ann.value("SHOW work_mem"), "91MB");
    let named = [parse("q", "SELECT set_config('work_mem', $1, false)"), sync()].concat();
    ann.ask(&named);
    ann.run("EXECUTE q('92MB')");
    assert_eq!(bob.value("SHOW work_mem"), usual);
    assert_eq!(ann.value("SHOW work_mem"), "92MB");
}

/// The same text could mean something else elsewhere: then the client keeps its server.
#[test]
fn what_was_prepared_with_other_settings_pins() {
    howdah_only!("it loses them");
    let world = World::pool(2);
    world.direct().run(
        "CREATE SCHEMA one; CREATE SCHEMA two; GRANT ALL ON SCHEMA one, two TO app; \
         CREATE TABLE one.t AS SELECT 'one' AS a; CREATE TABLE two.t AS SELECT 'two' AS a; \
         GRANT ALL ON one.t, two.t TO app",
    );
    for (begin, end) in [
        ("SET search_path = two", "SET search_path = one"),
        ("SET TimeZone = 'Asia/Tokyo'", "SET TimeZone = 'Europe/Berlin'"),
    ] {
        let mut ann = world.client();
        ann.run("SET search_path = one");
        ann.run("SET TimeZone = 'Europe/Berlin'");
        ann.run("PREPARE p AS SELECT * FROM t");
        assert!(!pins(&world, &mut ann), "{begin}");
        ann.run(begin);
        assert!(pins(&world, &mut ann), "{begin}");
        ann.run(end);
        eventually("it is free again", || !is_pinned(&world));
        assert_eq!(ann.value("EXECUTE p"), "one", "{begin}");
        ann.run("SET statement_timeout = '1min'");
        assert!(!pins(&world, &mut ann), "a limit has no say in what a text means");
        ann.leave();
    }
    let mut ann = world.client();
    for sql in ["BEGIN", "SET LOCAL search_path = one", "PREPARE p AS SELECT * FROM t", "COMMIT"] {
        ann.run(sql);
    }
    assert!(pins(&world, &mut ann), "prepared while something else was set");
    ann.run("DEALLOCATE p");
    eventually("it is free again", || !is_pinned(&world));
    ann.run("PREPARE a AS SELECT 1; PREPARE b AS SELECT 2");
    assert!(pins(&world, &mut ann), "PostgreSQL keeps the whole text");
}

/// Its table is gone when it is to be prepared elsewhere: it is no more, until the table is there again.
#[test]
fn a_statement_that_cannot_be_prepared_costs_nobody_a_session() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let mut direct = world.direct();
    direct.run("CREATE TABLE t AS SELECT 1 AS a; GRANT ALL ON t TO app");
    ann.run("PREPARE p AS SELECT a FROM t");
    bob.run("SELECT 1");
    direct.run("DROP TABLE t");
    for _ in 0..3 {
        assert_eq!(ann.value("SELECT 5"), "5");
        assert!(ann.query("EXECUTE p").error().is_some());
        bob.run("SELECT 1");
    }
    direct.run("CREATE TABLE t AS SELECT 2 AS a; GRANT ALL ON t TO app");
    bob.run("SELECT 1");
    assert_eq!(ann.value("EXECUTE p"), "2");
}

/// c08: what SQL prepared the protocol may use, and close.
#[test]
fn c08_the_protocol_knows_what_sql_prepared() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("PREPARE p (int) AS SELECT $1 + 1");
    bob.run("SELECT 1");
    let use_it = [bind("", "p", &["41"]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&use_it).value(), "42");
    bob.run("SELECT 1");
    assert_eq!(ann.ask(&[describe_statement("p"), sync()].concat()).code(), "");
    bob.run("SELECT 1");
    assert_eq!(ann.ask(&[parse("p", "SELECT 1"), sync()].concat()).code(), "42P05");
    bob.run("SELECT 1");
    ann.ask(&[close_statement("p"), sync()].concat());
    bob.run("SELECT 1");
    assert_eq!(ann.query("EXECUTE p(1)").code(), "26000");
    ann.ask(&[parse("p", "SELECT 5"), sync()].concat());
    assert_eq!(ann.ask(&[bind("", "p", &[]), execute("", 0), sync()].concat()).value(), "5");
}

/// c07: what the protocol prepared SQL may use, and deallocate. PDO does.
#[test]
fn c07_sql_knows_what_the_protocol_prepared() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let prepare = [parse("p", "SELECT $1::int + 1"), sync()].concat();
    ann.ask(&prepare);
    bob.run("SELECT 1");
    assert_eq!(ann.value("EXECUTE p(1)"), "2");
    assert_eq!(bob.query("EXECUTE p(1)").code(), "26000");
    assert_eq!(ann.query("PREPARE p AS SELECT 1").code(), "42P05");
    ann.run("BEGIN");
    assert_eq!(ann.query("DEALLOCATE p").command(), "DEALLOCATE");
    ann.run("COMMIT");
    let use_it = [bind("", "p", &["1"]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&use_it).code(), "26000");
    assert_eq!(ann.ask(&prepare).code(), "");
    assert_eq!(ann.ask(&use_it).value(), "2");
    let by_protocol =
        [parse("", "DEALLOCATE p"), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&by_protocol).code(), "");
    assert_eq!(ann.ask(&use_it).code(), "26000");
    ann.ask(&prepare);
    let by_protocol =
        [parse("", "EXECUTE p(5)"), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&by_protocol).value(), "6");
    assert_eq!(ann.value("SELECT 1"), "1");
    assert_eq!(ann.ask(&use_it).value(), "2");
}

/// A DEALLOCATE that came to nothing has no say in what the next one does.
#[test]
fn c07_a_deallocate_that_failed_is_forgotten() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let mut ann = world.client();
    ann.ask(&[parse("a", "SELECT 'a'"), parse("b", "SELECT 'b'"), sync()].concat());
    ann.run("BEGIN");
    ann.query("SELECT 1/0");
    let failed = [parse("", "DEALLOCATE a"), bind("", "", &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&failed).code(), "25P02");
    ann.run("ROLLBACK");
    ann.ask(&[parse("", "DEALLOCATE a"), bind("", "", &[]), sync()].concat());
    ann.run("DEALLOCATE b");
    let use_it = |name| [bind("", name, &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&use_it("b")).code(), "26000");
    assert_eq!(ann.ask(&use_it("a")).value(), "a");
}

/// A name that SQL gave in a way that nobody can repeat is taken all the same.
#[test]
fn c08_a_name_given_in_the_midst_of_things_is_taken() {
    howdah_only!("it loses them");
    let world = World::pool(1);
    let mut ann = world.client();
    for sql in ["BEGIN", "SET LOCAL search_path = pg_catalog", "PREPARE p AS SELECT 1"] {
        ann.run(sql);
    }
    let again = [parse("p", "SELECT 2"), sync()].concat();
    assert_eq!(ann.ask(&again).code(), "42P05");
    ann.run("ROLLBACK");
    assert_eq!(ann.ask(&again).code(), "42P05");
    ann.run("DEALLOCATE p");
    assert_eq!(ann.ask(&again).code(), "");
}

/// By the extended protocol, too.
#[test]
fn the_list_of_statements_is_the_clients_by_the_extended_protocol() {
    howdah_only!("it is the server's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    bob.ask(&[parse("bobs", "SELECT 1"), sync()].concat());
    ann.ask(&[parse("anns", "SELECT 2"), sync()].concat());
    ann.run("PREPARE anns_too AS SELECT 2");
    for _ in 0..2 {
        let look = [harness::say::extended(MINE, &[]), sync()].concat();
        assert_eq!(ann.ask(&look).value(), "anns:false,anns_too:true");
        assert_eq!(bob.ask(&look).value(), "bobs:false");
        ann.ask(&[parse("", MINE), describe_statement(""), sync()].concat());
        bob.run("SELECT 1");
        let look = [bind("", "", &[]), execute("", 0), sync()].concat();
        assert_eq!(ann.ask(&look).value(), "anns:false,anns_too:true");
        assert_eq!(ann.ask(&[bind("", "anns", &[]), execute("", 0), sync()].concat()).value(), "2");
    }
}

/// And by a statement with a name, which finds itself.
#[test]
fn a_named_statement_finds_itself_and_the_clients() {
    howdah_only!("it is the server's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    bob.ask(&[parse("bobs", "SELECT 1"), parse("look", MINE), sync()].concat());
    let look = [bind("", "look", &[]), describe_portal(""), execute("", 0), sync()].concat();
    let all = "anns:false,look:false";
    // In one flight, and in three.
    let flight = [
        parse("anns", "SELECT 2"),
        parse("look", MINE),
        describe_statement("look"),
        bind("", "look", &[]),
        execute("", 0),
        sync(),
    ];
    let reply = ann.ask(&flight.concat());
    assert_eq!((reply.tags().as_str(), reply.value().as_str()), ("11tT2DCZ", all));
    for _ in 0..2 {
        assert_eq!(bob.ask(&look).value(), "bobs:false,look:false");
        assert_eq!(ann.ask(&look).value(), all);
        ann.ask(&[close_statement("look"), sync()].concat());
        ann.ask(&[parse("look", MINE), describe_statement("look"), sync()].concat());
        assert_eq!(ann.ask(&look).value(), all);
        assert_eq!(ann.ask(&[describe_statement("look"), sync()].concat()).tags(), "tTZ");
        ann.run("BEGIN");
        assert_eq!(ann.ask(&look).value(), all);
        ann.send(&[query("SELECT 7"), look.clone(), look.clone()].concat());
        assert_eq!(ann.until_ready().value(), "7");
        assert_eq!(ann.until_ready().value(), all);
        assert_eq!(ann.until_ready().value(), all);
        ann.run("COMMIT");
    }
    let both = [
        parse("second", MINE),
        close_statement("second"),
        parse("second", MINE),
        bind("", "second", &[]),
        execute("", 0),
        sync(),
    ];
    let reply = ann.ask(&both.concat());
    assert_eq!(
        (reply.tags().as_str(), reply.value().as_str()),
        ("1312DCZ", "anns:false,look:false,second:false")
    );
    assert_eq!(ann.ask(&[parse("second", MINE), sync()].concat()).code(), "42P05");
    ann.run("DEALLOCATE second");
    assert_eq!(ann.ask(&look).value(), all);
    assert_eq!(ann.ask(&[bind("", "anns", &[]), execute("", 0), sync()].concat()).value(), "2");
    assert_eq!(bob.ask(&look).value(), "bobs:false,look:false");
}

/// Behind what sets its session in the same flight, too.
#[test]
fn who_looks_behind_its_settings_finds_its_own() {
    howdah_only!("it is the server's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("SET work_mem = '5MB'");
    bob.ask(&[parse("bobs", "SELECT 1"), sync()].concat());
    ann.ask(&[parse("anns", "SELECT 2"), sync()].concat());
    for _ in 0..2 {
        for (client, own) in [(&mut ann, "anns"), (&mut bob, "bobs")] {
            assert_eq!(client.value(MINE), format!("{own}:false"));
            let use_it = [bind("", own, &[]), execute("", 0), sync()].concat();
            assert_eq!(client.ask(&use_it).code(), "");
        }
    }
    for (client, own) in [(&mut ann, "anns:false"), (&mut bob, "bobs:false")] {
        assert_eq!(client.ask(&[harness::say::extended(MINE, &[]), sync()].concat()).value(), own);
        client.run("SELECT 1");
    }
}

/// What is given up need not be what it was.
#[test]
fn c07_what_cannot_be_prepared_can_be_deallocated() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    world.direct().run("CREATE TABLE t AS SELECT 1 AS a; GRANT ALL ON t TO app");
    let mut ann = world.client();
    ann.ask(&[parse("p", "SELECT * FROM t"), parse("q", "SELECT * FROM t"), sync()].concat());
    world.direct().run("DROP TABLE t");
    ann.run("BEGIN");
    assert_eq!(ann.query("DEALLOCATE p").command(), "DEALLOCATE");
    let deallocate = [parse("", "DEALLOCATE q"), bind("", "", &[]), execute("", 0), sync()];
    assert_eq!(ann.ask(&deallocate.concat()).command(), "DEALLOCATE");
    assert_eq!(ann.value("SELECT 1"), "1");
    ann.run("COMMIT");
    assert_eq!(ann.query("DEALLOCATE p").code(), "26000");
}

/// A client whose backslashes are escapes is understood where it writes none.
#[test]
fn c07_with_other_strings_too() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let mut ann = world.client();
    ann.run("SET standard_conforming_strings = off");
    ann.ask(&[parse("p", "SELECT 'a'"), sync()].concat());
    assert_eq!(ann.value("EXECUTE p"), "a");
    assert_eq!(ann.query("DEALLOCATE p").command(), "DEALLOCATE");
    let use_it = [bind("", "p", &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&use_it).code(), "26000");
}

/// What executes by name is described as what it executes; and of one text for two clients it is each client's own.
#[test]
fn c07_what_executes_is_what_it_executes() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.ask(&[parse("p", "SELECT 'ann' AS a"), sync()].concat());
    bob.ask(&[parse("p", "SELECT 1 AS one, 'bob' AS two"), sync()].concat());
    for name in ["", "q"] {
        for (client, columns, value) in [(&mut ann, 1, "ann"), (&mut bob, 2, "1")] {
            let reply =
                client.ask(&[parse(name, "EXECUTE p"), describe_statement(name), sync()].concat());
            assert_eq!((reply.tags(), reply.0[2].body[1]), ("1tTZ".into(), columns));
            let use_it = [bind("", name, &[]), describe_portal(""), execute("", 0), sync()];
            assert_eq!(client.ask(&use_it.concat()).value(), value);
        }
    }
    for (client, columns, value) in [(&mut ann, 1, "ann"), (&mut bob, 2, "1")] {
        let reply = client.ask(&[describe_statement("q"), sync()].concat());
        assert_eq!((reply.tags(), reply.0[1].body[1]), ("tTZ".into(), columns));
        client.run("BEGIN");
        client.ask(&[bind("c", "q", &[]), sync()].concat());
        let later = [describe_portal("c"), execute("c", 0), sync()].concat();
        assert_eq!(client.ask(&later).value(), value, "a portal is run after another Sync");
        client.run("COMMIT");
    }
}

/// Neither the list of statements, which is looked at first, nor settings of the transaction's make of it something else.
#[test]
fn what_is_executed_or_explained_behind_changed_settings_is_what_was_prepared() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let mut ann = world.client();
    ann.ask(&[parse("p", "SELECT $1::int + 1"), sync()].concat());
    ann.run("BEGIN");
    ann.run("SET LOCAL DateStyle = 'German'");
    for explain in ["EXPLAIN EXECUTE p(1)", "EXPLAIN (ANALYZE, TIMING off) EXECUTE p(1)"] {
        let plan = ann.query(explain);
        assert!(plan.column()[0].starts_with("Result"), "{plan:?}");
        let by_protocol = [parse("", explain), bind("", "", &[]), execute("", 0), sync()].concat();
        let plan = ann.ask(&by_protocol);
        assert!(plan.column()[0].starts_with("Result"), "{plan:?}");
    }
    let steps = [MINE, "EXECUTE p(1)"]
        .map(|text| [parse("", text), bind("", "", &[]), execute("", 0)].concat());
    let reply = ann.ask(&[&steps.concat()[..], &sync()].concat());
    assert_eq!(reply.column(), ["p:false", "2"], "{reply:?}");
    assert_eq!(ann.value("EXECUTE p(2)"), "3");
    ann.run("COMMIT");
    assert_eq!(ann.value("EXECUTE p(3)"), "4");
}

/// Each has another statement of this name.
fn two_with_p(world: &World) -> (Raw, Raw) {
    let (mut ann, mut bob) = two(world);
    ann.ask(&[parse("p", "SELECT length($1)"), sync()].concat());
    bob.ask(&[parse("p", "SELECT 'bob' || left($1, 1)"), sync()].concat());
    (ann, bob)
}

/// sqlx describes a statement of 65,535 parameters by explaining what it executes with as many nulls.
#[test]
fn a_long_text_executes_what_the_protocol_prepared() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let ((mut ann, mut bob), long) = (two_with_p(&world), "x".repeat(100_000));
    let by_protocol =
        |text: &str| [parse("", text), bind("", "", &[]), execute("", 0), sync()].concat();
    for (client, value) in [(&mut ann, "100000"), (&mut bob, "bobx")] {
        let text = format!("/* (1) */ Execute p ('{long}')");
        let reply = client.query(&text);
        assert_eq!(reply.code(), "");
        assert_eq!(reply.value(), value);
        assert_eq!(client.ask(&by_protocol(&text)).value(), value);
        let text = format!("EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE p('{long}')");
        assert!(client.value(&text).contains("Result"));
    }
    let other = ann.query(&format!("SELECT 'I execute p(' || '{long}'"));
    assert_eq!(other.value().len(), 100_012);
    assert_eq!(ann.value("EXECUTE p('abc')"), "3");
}

/// However a message is cut on its way.
#[test]
fn a_query_in_pieces_executes_what_the_protocol_prepared() {
    howdah_only!("names of ours are not the client's");
    let world = World::pool(1);
    let ((mut ann, mut bob), long) = (two_with_p(&world), "x".repeat(100_000));
    for (client, short_value, long_value) in [(&mut ann, "3", "100000"), (&mut bob, "boba", "bobx")]
    {
        client.send_bytewise(&query("EXECUTE p('abc')"));
        let reply = client.until_ready();
        assert_eq!(reply.code(), "");
        assert_eq!(reply.value(), short_value);
        let text = query(&format!("EXECUTE p('{long}')"));
        for at in [1, 5, 6, 14, 50, 20_000] {
            client.send(&text[..at]);
            // It is read by the time that somebody else is answered.
            is_pinned(&world);
            client.send(&text[at..]);
            let reply = client.until_ready();
            assert_eq!(reply.code(), "", "cut at {at}");
            assert_eq!(reply.value(), long_value, "cut at {at}");
        }
    }
}

/// What executes something that executes something is looked at to the end.
#[test]
fn executing_in_two_steps_what_sets_something_is_asked_about() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    ann.run("PREPARE p AS SELECT set_config('work_mem', '93MB', false)");
    ann.ask(&[parse("q", "EXECUTE p"), sync()].concat());
    assert_eq!(ann.value("EXECUTE q"), "93MB");
    assert_eq!(bob.value("SHOW work_mem"), usual);
    assert_eq!(ann.value("SHOW work_mem"), "93MB");
}

/// Within one text and one flight, too.
#[test]
fn c07_deallocate_all_in_the_midst_of_a_text() {
    howdah_only!("it looks at the first word");
    let world = World::pool(1);
    let mut ann = world.client();
    ann.ask(&[parse("p", "SELECT 1"), sync()].concat());
    let flight = [
        query("SELECT 2; DEALLOCATE ALL; SELECT 3"),
        parse("p", "SELECT 4"),
        bind("", "p", &[]),
        execute("", 0),
        sync(),
    ];
    ann.send(&flight.concat());
    let reply = ann.until_readies(2);
    assert!(reply.error().is_none(), "{reply:?}");
    assert_eq!(reply.rows().last().and_then(|row| row[0].clone()).as_deref(), Some("4"));
}

/// Who looks finds its own statements by its own names, and nobody else's.
#[test]
fn the_list_of_statements_is_the_clients() {
    howdah_only!("it is the server's");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    bob.ask(&[parse("bobs", "SELECT 1"), sync()].concat());
    bob.run("PREPARE bobs_too AS SELECT 1");
    ann.ask(&[parse("anns", "SELECT 2"), sync()].concat());
    ann.run("PREPARE anns_too AS SELECT 2");
    for _ in 0..2 {
        assert_eq!(ann.value(MINE), "anns:false,anns_too:true");
        assert_eq!(bob.value(MINE), "bobs:false,bobs_too:true");
        let value = |client: &mut Raw, name: &str| {
            client.ask(&[bind("", name, &[]), execute("", 0), sync()].concat()).value()
        };
        assert_eq!((value(&mut ann, "anns"), value(&mut bob, "bobs")), ("2".into(), "1".into()));
    }
    ann.run(PID);
}

/// A Query ends the batch in front of it, which has no Sync, and is one transaction with it. What it calls is there, and
/// nothing of it is over any earlier.
#[test]
fn a_batch_that_a_query_ends_is_one_with_it() {
    howdah_only!("a statement of the protocol has another name");
    let world = World::pool(1);
    let own = world.direct();
    let mut told = Vec::new();
    for mut client in [world.client(), own] {
        client.run("CREATE TABLE IF NOT EXISTS t (i int); CREATE TABLE gone (i int)");
        client.run("TRUNCATE t");
        let insert =
            [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0)].concat();
        let wrong = [parse("", "SELECT 1/0"), bind("", "", &[]), execute("", 0)].concat();
        let made = [parse("s", "SELECT 42"), parse("g", "SELECT * FROM gone"), sync()].concat();
        client.ask(&made);
        client.run("DROP TABLE gone");
        let batches = [
            ([&insert[..], &query("EXECUTE s")].concat(), 1),
            ([&insert[..], &query("EXECUTE s; SELECT 1/0")].concat(), 1),
            ([&insert[..], &query("SELECT 1/0"), &query("EXECUTE s")].concat(), 2),
            ([&wrong[..], &query("SELECT 1"), &query("EXECUTE s"), &sync()].concat(), 1),
            ([&wrong[..], &query("EXECUTE s"), &sync()].concat(), 1),
            ([&wrong[..], &query("EXECUTE s"), &sync(), &query("EXECUTE s")].concat(), 2),
            ([&insert[..], &query("DEALLOCATE s"), &query("EXECUTE s")].concat(), 2),
            ([&insert[..], &query("EXECUTE g")].concat(), 1),
        ];
        let mut heard = Vec::new();
        for (bytes, readies) in batches {
            client.send(&bytes);
            let reply = client.until_readies(readies);
            let codes: Vec<String> =
                reply.of(b'E').map(|error| error.fields().code().to_owned()).collect();
            let counted = client.value("SELECT count(*) FROM t");
            heard.push((reply.tags().replace('1', ""), reply.column(), codes, counted));
        }
        client.run("DROP TABLE t");
        told.push(heard);
    }
    let [ours, theirs] = &told[..] else { unreachable!("two") };
    for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(ours, theirs, "batch {at}");
    }
}
