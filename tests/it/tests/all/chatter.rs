//! What drivers and frameworks say on their own, word for word, when they connect and when they give a connection back.

use harness::say::{bind, execute, parse, sync};
use harness::{Raw, World};

/// Said on giving back, or on taking out again, over and over.
const RESETS: &[(&str, &str)] = &[
    ("asyncpg", "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;"),
    (
        "asyncpg before 0.25",
        "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nDO $$\nBEGIN\n    PERFORM * FROM pg_listening_channels() LIMIT 1;\n    \
         IF FOUND THEN\n        UNLISTEN *;\n    END IF;\nEND;\n$$;\nRESET ALL;",
    ),
    ("Npgsql, Rails' reset!, pgx", "DISCARD ALL"),
    (
        "Npgsql with statements that it prepared",
        "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();\
         DISCARD SEQUENCES;DISCARD TEMP",
    ),
    ("psycopg2's reset()", "ABORT; RESET ALL; SET SESSION AUTHORIZATION DEFAULT;"),
    ("PHP's pg_pconnect", "RESET ALL;"),
    ("SQLAlchemy, psycopg, JDBC pools", "ROLLBACK"),
    ("pgjdbc's isValid", ""),
    ("pgx's ping", "-- ping"),
    ("Django's and others' check", "SELECT 1"),
    ("postgres.js", "UNLISTEN *"),
    ("pg_dump and others", "DEALLOCATE ALL"),
];

/// Said once after the login.
const GREETINGS: &[(&str, &[&str])] = &[
    (
        "Rails",
        &[
            "SET client_min_messages TO 'warning'",
            "SET standard_conforming_strings = on",
            "SET intervalstyle = iso_8601",
            "SET SESSION timezone TO 'UTC'",
            "SHOW max_identifier_length",
            "SHOW search_path",
            "SELECT t.oid, t.typname FROM pg_type as t WHERE t.typname IN ('int2', 'int4', 'int8')",
        ],
    ),
    (
        "Django",
        &[
            "SELECT set_config('TimeZone', 'UTC', false)",
            "SET TIME ZONE 'UTC'",
            "SET default_transaction_isolation TO 'read committed'",
        ],
    ),
    (
        "Npgsql",
        &[
            "SELECT ns.nspname, t.oid, t.typname FROM pg_type AS t JOIN pg_namespace AS ns ON (ns.oid = t.typnamespace) LIMIT 3",
        ],
    ),
    (
        "pgjdbc",
        &[
            "SET extra_float_digits = 3",
            "SET application_name = 'PostgreSQL JDBC Driver'",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            "SHOW TRANSACTION ISOLATION LEVEL",
        ],
    ),
    (
        "SQLAlchemy",
        &[
            "select pg_catalog.version()",
            "select current_schema()",
            "show standard_conforming_strings",
        ],
    ),
    (
        "Sequelize, Knex",
        &[
            "SHOW SERVER_VERSION",
            "SET standard_conforming_strings=on;SET client_min_messages TO warning;",
        ],
    ),
    ("psql", &["SELECT pg_catalog.set_config('search_path', '', false);"]),
];

fn pins(world: &World) -> Vec<String> {
    world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons")
}

fn bound(client: &mut Raw, sql: &str) {
    client.ask(&[parse("", sql), bind("", "", &[]), execute("", 0), sync()].concat());
}

#[test]
fn no_driver_is_pinned_by_what_it_says_itself() {
    howdah_only!("it pins nobody");
    let world = World::pool(2);
    let mut other = world.client();
    for (who, greetings) in GREETINGS {
        let mut client = world.client();
        for sql in *greetings {
            client.run(sql);
            other.run("SELECT 1");
            assert_eq!(pins(&world), Vec::<String>::new(), "{who}: {sql}");
        }
        for (who, reset) in RESETS {
            client.query(reset);
            other.run("SELECT 1");
            assert_eq!(pins(&world), Vec::<String>::new(), "{who}: {reset}");
        }
        client.leave();
    }
    let log = world.howdah.log();
    assert!(!log.contains("pinned to its server"), "{log}");
}

/// Where there is nothing to reset, nobody is asked whether there still is.
#[test]
fn resetting_what_is_new_asks_nothing() {
    howdah_only!("it never asks");
    let world = World::pool(1);
    let mut client = world
        .login()
        .parameter("client_encoding", "UTF8")
        .parameter("application_name", "x")
        .enter();
    let mut other = world.client();
    for (who, reset) in RESETS {
        let several = reset.trim_end_matches(';').contains(';');
        client.query(reset);
        other.run("SELECT 1");
        let before = world.statements().len();
        for _ in 0..5 {
            client.run("SELECT 2");
            client.query(reset);
            if !several {
                bound(&mut client, reset);
            }
            other.run("SELECT 1");
        }
        let statements = world.statements();
        let asked = statements[before..].iter().filter(|said| said.contains("pg_catalog")).count();
        assert_eq!(asked, 0, "{who}: {:?}", &statements[before..]);
    }
}

/// Caches of statements prepare by the protocol and give up by SQL, all the time.
#[test]
fn giving_up_what_the_protocol_prepared_asks_nothing() {
    howdah_only!("it never asks");
    let world = World::pool(1);
    let (mut client, mut other) = (world.client(), world.client());
    let run = [bind("", "s", &[]), execute("", 0), sync()].concat();
    client.run("SELECT 1");
    let before = world.statements().len();
    for _ in 0..5 {
        client.ask(&[parse("s", "SELECT 'mine'"), run.clone()].concat());
        other.run("SELECT 2");
        assert_eq!(client.run("DEALLOCATE s").command(), "DEALLOCATE");
        other.run("SELECT 2");
    }
    let statements = world.statements();
    let asked = statements[before..].iter().filter(|said| said.contains("pg_catalog")).count();
    assert_eq!(asked, 0, "{:?}", &statements[before..]);
    assert_eq!(client.ask(&run).code(), "26000");
    // What SQL prepared is asked about, and gone.
    client.run("PREPARE s AS SELECT 'yours'");
    other.run("SELECT 2");
    client.run("DEALLOCATE s");
    other.run("SELECT 2");
    assert_eq!(client.query("EXECUTE s").code(), "26000");
    assert_eq!(pins(&world), Vec::<String>::new());
}

/// And where there is something, it is gone afterwards, for the client and for others.
#[test]
fn resets_reset() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    for (who, reset) in &RESETS[..4] {
        let mut client =
            world.login().parameter("TimeZone", "Asia/Tokyo").parameter("work_mem", "9MB").enter();
        let mut other = world.client();
        for _ in 0..2 {
            client.run("SET work_mem = '7MB'");
            client.run("SET TimeZone = 'Europe/Zurich'");
            client.run("LISTEN news");
            client.run("SELECT pg_advisory_lock(1)");
            client.run("DECLARE c CURSOR WITH HOLD FOR SELECT 1");
            client.query(reset);
            assert_eq!(other.value("SELECT current_setting('work_mem') || count(*) FROM pg_cursors WHERE name = 'c'"), "4MB0", "{who}");
            assert_eq!(client.value("SHOW work_mem"), "9MB", "{who}");
            assert_eq!(client.value("SHOW TimeZone"), "Asia/Tokyo", "{who}");
            assert_eq!(pins(&world), Vec::<String>::new(), "{who}");
        }
        client.leave();
        other.leave();
    }
}
