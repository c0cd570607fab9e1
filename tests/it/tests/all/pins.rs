//! Clients that keep their server between transactions: seen, counted, bounded, and refused where that is wanted.

use harness::postgres::PASSWORD;
use harness::say::{bind, describe_statement, execute, parse, sync};
use harness::{Raw, World, eventually};

const TEMP: &str = "CREATE TEMP TABLE mine (i int)";

fn world(size: u32, policy: &'static str) -> World {
    World::with(size, |setup| setup.set("session_state", policy))
}

fn pins(world: &World) -> Vec<String> {
    world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons")
}

fn total(world: &World, reason: &str, column: &str) -> u64 {
    let which = [("database", "shop"), ("reason", reason)];
    let rows = world.howdah.rows("SHOW PIN_TOTALS", &which, column);
    rows.first().map_or(0, |cell| cell.parse().expect("a number"))
}

#[test]
fn pins_are_seen_and_counted() {
    howdah_only!("it pins nothing");
    let world = World::pool(2);
    let mut ann = world.client();
    ann.run(TEMP);
    eventually("it is pinned", || pins(&world) == ["temporary table"]);
    for view in ["SHOW CLIENTS", "SHOW SERVERS"] {
        let reasons = world.howdah.rows(view, &[("database", "shop")], "pin_reasons");
        assert!(reasons.contains(&"temporary table".to_owned()), "{view}: {reasons:?}");
        let since = world.howdah.rows(view, &[("database", "shop")], "pinned_since");
        assert!(since.iter().any(|cell| cell.starts_with("20")), "{view}: {since:?}");
    }
    assert_eq!(total(&world, "temporary table", "pinned"), 1);
    assert!(total(&world, "temporary table", "total_pin_time") > 0);
    ann.run("SELECT pg_advisory_lock(1)");
    eventually("both are counted", || total(&world, "advisory lock", "pinned") == 1);
    ann.run("DROP TABLE mine");
    ann.run("SELECT pg_advisory_unlock(1)");
    eventually("it is free again", || pins(&world).is_empty());
    for reason in ["temporary table", "advisory lock"] {
        assert_eq!(total(&world, reason, "pinned"), 0, "{reason}");
        assert_eq!(total(&world, reason, "total_pins"), 1, "{reason}");
        assert!(total(&world, reason, "longest_pin") > 0, "{reason}");
    }
    let log = world.howdah.log();
    assert!(log.contains("pinned to its server: temporary table"), "{log}");
    assert!(log.contains("unpinned from its server after "), "{log}");
}

/// A client that leaves pinned is counted out.
#[test]
fn who_leaves_pins_nothing() {
    howdah_only!("it pins nothing");
    let world = World::with(3, |setup| setup.set("max_pinned_servers", 1));
    for _ in 0..3 {
        let mut ann = world.client();
        ann.run(TEMP);
        eventually("it is pinned", || total(&world, "temporary table", "pinned") == 1);
        ann.leave();
        eventually("it is not", || total(&world, "temporary table", "pinned") == 0);
    }
    assert_eq!(total(&world, "temporary table", "total_pins"), 3);
}

#[test]
fn no_more_are_pinned_than_may_be() {
    howdah_only!("it pins nothing");
    let world = World::with(3, |setup| setup.set("max_pinned_servers", 1));
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run(TEMP);
    eventually("it is pinned", || pins(&world).len() == 1);
    bob.send(&harness::say::query("CREATE TEMP TABLE other (i int)"));
    let reply = bob.until_closed();
    let error = reply.error().expect("last words");
    assert_eq!((error.severity(), error.code()), ("FATAL", "53400"));
    assert!(reply.tags().contains('C'), "its statement was answered: {}", reply.tags());
    assert_eq!(ann.value("SELECT count(*) FROM mine"), "0");
    let mut next = world.client();
    assert!(next.query("SELECT * FROM pg_temp.other").error().is_some());
}

#[test]
fn a_pinned_client_that_idles_is_ended() {
    howdah_only!("it pins nothing");
    let world = World::with(1, |setup| setup.set("pin_idle_timeout", "0.5"));
    let (mut free, mut ann) = (world.client(), world.client());
    ann.run("SELECT pg_advisory_lock(7)");
    let error = ann.fatal();
    assert_eq!(error.code(), "57P05");
    assert!(error.text().contains("pin_idle_timeout"), "{}", error.text());
    assert_eq!(free.value("SELECT pg_try_advisory_lock(7)"), "t", "its server was cleaned");
}

#[test]
fn a_pin_has_a_term() {
    howdah_only!("it pins nothing");
    let world =
        World::with(1, |setup| setup.database_also("shop", "pin_timeout=1 pin_idle_timeout=100"));
    let mut ann = world.client();
    ann.run(TEMP);
    ann.run("BEGIN");
    ann.run("SELECT pg_sleep(1.5)");
    assert_eq!(ann.value("SELECT count(*) FROM mine"), "0", "a transaction is not cut off");
    ann.send(&harness::say::query("COMMIT"));
    assert_eq!(ann.until_closed().error().expect("last words").code(), "57P01");
}

/// What a text shows is refused as the server would refuse it, and its session goes on.
#[test]
fn refused_state_is_an_error_of_the_statement() {
    howdah_only!("it leaks");
    let world = world(
        1,
        "temporary_table:error advisory_lock:error prepared_statement:error listen:error load:error \
         holdable_cursor:error seed:error sequence:error settings:error",
    );
    let mut ann = world.client();
    for sql in [
        TEMP,
        "SELECT 1; CREATE TEMP TABLE mine (i int)",
        "SELECT pg_advisory_lock(1)",
        "PREPARE p AS SELECT 1",
        "LISTEN ears",
        "LOAD 'plpgsql'",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "SELECT setseed(0.5)",
        "SELECT lastval()",
        "SET work_mem = '1MB'",
    ] {
        let reply = ann.query(sql);
        let error = reply.error().expect("it is refused");
        assert_eq!((error.severity(), error.code()), ("ERROR", "0A000"), "{sql}");
        assert!(error.field(b'H').contains(":error"), "{sql}");
        assert_eq!(reply.tags(), "EZ", "{sql}");
        assert_eq!(reply.status(), Some('I'), "{sql}");
    }
    for sql in [
        "SET LOCAL work_mem = '1MB'",
        "SET application_name = 'x'",
        "CREATE TEMP TABLE brief (i int) ON COMMIT DROP",
        "SELECT pg_advisory_xact_lock(1)",
        "SELECT set_config('work_mem', '1MB', true)",
    ] {
        assert!(ann.query(sql).error().is_none(), "{sql}");
    }
    ann.run("BEGIN");
    assert_eq!(ann.query(TEMP).status(), Some('E'));
    assert_eq!(ann.query("SELECT 1").code(), "25P02");
    assert_eq!(ann.run("ROLLBACK").status(), Some('I'));
    assert!(total(&world, "temporary table", "refused") >= 3);
    assert_eq!(pins(&world), [] as [&str; 0]);
}

#[test]
fn a_refused_parse_is_skipped_to_the_sync() {
    howdah_only!("it leaks");
    for prepared in [100, 0] {
        let world = World::with(1, |setup| {
            setup
                .set("session_state", "advisory_lock:error")
                .set("max_prepared_statements", prepared)
        });
        let mut ann = world.client();
        let lock = "SELECT pg_advisory_lock($1)";
        for name in ["", "named"] {
            let batch = [
                parse(name, lock),
                describe_statement(name),
                bind("", name, &["1"]),
                execute("", 0),
            ];
            let reply = ann.ask(&[batch.concat(), sync()].concat());
            assert_eq!(reply.tags(), "EZ", "{name}");
            assert_eq!(reply.code(), "0A000", "{name}");
            let good = [parse(name, "SELECT 7"), bind("", name, &[]), execute("", 0), sync()];
            assert_eq!(ann.ask(&good.concat()).value(), "7", "{name}");
        }
    }
}

/// What no text shows is found afterwards; its client goes, and its server is clean.
#[test]
fn hidden_state_that_is_refused_ends_its_client() {
    howdah_only!("it leaks");
    let world = World::with(1, |setup| {
        setup.database_also("shop", "session_state='advisory_lock:error, settings:error'")
    });
    world.direct().run(
        "CREATE FUNCTION locks() RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_lock(1); END $$; \
         CREATE FUNCTION sets() RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('work_mem', '1MB', false); END $$",
    );
    let mut free = world.client();
    for sql in ["SELECT locks()", "SELECT sets()"] {
        let mut ann: Raw = world.client();
        ann.send(&harness::say::query(sql));
        let reply = ann.until_closed();
        let error = reply.error().expect("last words");
        assert_eq!((error.severity(), error.code()), ("FATAL", "0A000"), "{sql}");
        assert_eq!(free.value("SELECT pg_try_advisory_xact_lock(1)"), "t");
        assert_ne!(free.value("SHOW work_mem"), "1MB");
    }
}

#[test]
fn warned_of_state_pins_and_is_told_to_the_log() {
    howdah_only!("it leaks");
    let world = World::with(2, |setup| {
        setup
            .set("session_state", "temporary_table:error")
            .user("app", "session_state=temporary_table:warn")
    });
    let mut ann = world.client();
    ann.run(TEMP);
    eventually("it is counted", || total(&world, "temporary table", "warnings") == 1);
    let log = world.howdah.log();
    assert!(log.contains("session state: temporary table, by: CREATE TEMP TABLE mine"), "{log}");
}

/// What drivers and frameworks say on connecting and on giving a connection back.
#[test]
fn the_chatter_of_drivers_pins_nothing() {
    howdah_only!("it pins nothing");
    let world = World::pool(1);
    for (driver, chatter) in [
        ("asyncpg", &["SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"][..]),
        (
            "rails",
            &[
                "SET client_min_messages TO 'warning'",
                "SET standard_conforming_strings = on",
                "SET SESSION intervalstyle TO 'iso_8601'",
                "SET SESSION timezone TO 'UTC'",
                "SELECT pg_try_advisory_lock(2053462845)",
                "SELECT pg_advisory_unlock(2053462845)",
                "DEALLOCATE ALL",
            ],
        ),
        (
            "django",
            &["SELECT set_config('TimeZone', 'UTC', false)", "SET client_encoding TO 'UTF8'"],
        ),
        (
            "npgsql",
            &[
                "DISCARD ALL",
                "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;\
                 SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP",
            ],
        ),
        (
            "pgjdbc",
            &["SET extra_float_digits = 3", "SET application_name = 'PostgreSQL JDBC Driver'"],
        ),
        (
            "sqlalchemy",
            &[
                "select pg_catalog.version()",
                "select current_schema()",
                "show standard_conforming_strings",
                "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
            ],
        ),
        (
            "knex",
            &[
                "SELECT version();",
                "SET client_min_messages TO warning;SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE",
            ],
        ),
    ] {
        let mut client = world.client();
        for sql in chatter {
            assert!(client.query(sql).error().is_none(), "{driver}: {sql}");
        }
        // The one server is there for somebody else.
        assert_eq!(world.client().value("SELECT 1"), "1", "{driver}");
        assert_eq!(pins(&world), [] as [&str; 0], "{driver}");
    }
}

/// A connection of dblink's lives in the server process, where nobody can ask for it.
#[test]
fn an_extension_that_keeps_something_keeps_its_client() {
    howdah_only!("it leaks");
    let world = World::pool(2);
    let mut boss = world.direct();
    boss.run("CREATE EXTENSION dblink");
    boss.run("GRANT EXECUTE ON FUNCTION dblink_connect_u(text, text) TO app");
    let (mut ann, mut bob) = (world.client(), world.client());
    let (port, db) = (world.postgres.port(), &world.db);
    let way = format!("host=127.0.0.1 port={port} dbname={db} user=app password={PASSWORD}");
    ann.run(&format!("SELECT dblink_connect_u('mine', '{way}')"));
    let look = "SELECT * FROM dblink('mine', 'SELECT 7') AS t (n int)";
    for _ in 0..5 {
        let error = bob.query(look);
        assert!(error.error().is_some(), "{error:?}");
        assert_eq!(ann.value(look), "7");
    }
    ann.leave();
    for _ in 0..5 {
        let mut next = world.client();
        assert!(next.query(look).error().is_some());
    }
}

/// What nobody can ask for afterwards, and no text shows.
#[test]
fn what_functions_leave_in_the_process_pins() {
    howdah_only!("it leaks");
    let world = World::pool(2);
    world.direct().run(
        "CREATE FUNCTION seeds() RETURNS void LANGUAGE sql AS 'SELECT setseed(0.5)'; \
         CREATE FUNCTION loads() RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF false THEN LOAD 'plpgsql'; END IF; END $$; \
         CREATE FUNCTION rests() RETURNS float LANGUAGE sql AS 'SELECT random()'",
    );
    for (call, reasons) in [
        ("SELECT seeds()", &["seed"][..]),
        ("SELECT rests()", &[]),
        ("DO $$ BEGIN PERFORM seeds(); END $$", &["seed"]),
        ("SELECT loads()", &["load"]),
    ] {
        let mut ann = world.client();
        ann.run(call);
        // By then its server has said what there is.
        ann.run("SELECT 1");
        assert_eq!(pins(&world), reasons, "{call}");
        ann.leave();
        eventually("nobody is pinned", || pins(&world).is_empty());
    }
}
