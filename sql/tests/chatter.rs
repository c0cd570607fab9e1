//! What drivers and frameworks say of their own accord, when they connect and when they give a connection back: all of it is
//! understood, and none of it makes a state that ties a client to a server.

use sql::{Reading, States, Touch};

const NONE: States = States::empty();
const SETTINGS: States = States::SETTINGS;
const ROLE: States = States::ROLE;

/// Who, what, and the states it may make.
const CHATTER: &[(&str, &str, States)] = &[
    ("anything", "", NONE),
    ("anything", "SELECT 1", NONE),
    ("anything", "DISCARD ALL", NONE),
    ("asyncpg", "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;", SETTINGS),
    (
        "asyncpg, before",
        "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nDO $$\nBEGIN\n    PERFORM * FROM pg_listening_channels() \
         LIMIT 1;\n    IF FOUND THEN\n        UNLISTEN *;\n    END IF;\nEND;\n$$;\nRESET ALL;",
        SETTINGS,
    ),
    (
        "asyncpg, types",
        "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new",
        SETTINGS.union(ROLE),
    ),
    (
        "asyncpg, types",
        "WITH RECURSIVE typeinfo_tree(oid, ns, depth) AS (SELECT ti.oid, ti.typnamespace, 0 FROM pg_type AS ti \
         WHERE ti.oid = any($1::oid[]) UNION ALL SELECT ti.oid, ti.typnamespace, tt.depth + 1 FROM pg_type ti, \
         typeinfo_tree tt WHERE tt.oid = ti.typelem) SELECT DISTINCT *, quote_ident(ns::text) AS q, \
         array_agg(oid ORDER BY depth) FROM typeinfo_tree GROUP BY 1, 2, 3 ORDER BY depth DESC",
        NONE,
    ),
    ("Rails", "SET client_min_messages TO 'warning'", SETTINGS),
    ("Rails", "SET standard_conforming_strings = on", SETTINGS),
    ("Rails", "SET SESSION timezone TO 'UTC'", SETTINGS),
    ("Rails", "SET intervalstyle = iso_8601", SETTINGS),
    ("Rails", "SHOW max_identifier_length", NONE),
    (
        "Rails",
        "SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype FROM \
         pg_type as t LEFT JOIN pg_range as r ON oid = rngtypid WHERE t.typname IN ('int2', 'int4') OR t.typtype \
         IN ('r', 'e', 'd') OR t.typinput::varchar = 'array_in' OR t.typelem != 0",
        NONE,
    ),
    ("Rails", "SAVEPOINT active_record_1", NONE),
    ("Rails", "RELEASE SAVEPOINT active_record_1", NONE),
    ("Django", "SELECT set_config('TimeZone', 'UTC', false)", SETTINGS.union(ROLE)),
    ("Django", "SET TIME ZONE 'UTC'", SETTINGS),
    ("Django", "SAVEPOINT \"s140_x1\"", NONE),
    ("Django", "SET CONSTRAINTS ALL IMMEDIATE", NONE),
    ("Django", "SET CONSTRAINTS ALL DEFERRED", NONE),
    (
        "Django",
        "DECLARE \"_django_curs_1_sync_1\" NO SCROLL CURSOR FOR SELECT \"t\".\"id\" FROM \"t\"",
        NONE,
    ),
    ("psycopg2", "SET datestyle TO 'ISO'", SETTINGS),
    ("psycopg2", "ABORT; RESET ALL; SET SESSION AUTHORIZATION DEFAULT;", SETTINGS.union(ROLE)),
    ("psycopg", "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY", NONE),
    (
        "Npgsql",
        "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();\
         DISCARD SEQUENCES;DISCARD TEMP",
        SETTINGS.union(ROLE),
    ),
    ("Npgsql", "SELECT version();", NONE),
    (
        "Npgsql",
        "SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid FROM (SELECT typ.oid, \
         typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind, elemtyp.oid AS \
         elemtypoid FROM (SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid, \
         CASE WHEN proc.proname='array_recv' THEN 'a' ELSE typ.typtype END AS typtype FROM pg_type AS typ LEFT JOIN \
         pg_class AS cls ON (cls.oid = typ.typrelid) LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive) AS typ \
         LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemoid) AS t JOIN pg_namespace AS ns ON (ns.oid = \
         typnamespace) WHERE typtype IN ('b', 'r', 'm', 'e', 'd')",
        NONE,
    ),
    ("pgjdbc", "SET extra_float_digits = 3", SETTINGS),
    ("pgjdbc", "SET application_name = 'PostgreSQL JDBC Driver'", SETTINGS),
    ("pgjdbc", "SHOW TRANSACTION ISOLATION LEVEL", NONE),
    (
        "pgjdbc",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        SETTINGS,
    ),
    ("pgjdbc", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", SETTINGS),
    ("pgjdbc", "select current_schema()", NONE),
    (
        "pgjdbc",
        "SELECT e.typdelim FROM pg_catalog.pg_type t, pg_catalog.pg_type e WHERE t.oid = $1 and t.typelem = e.oid",
        NONE,
    ),
    ("pgjdbc, autosave", "SAVEPOINT PGJDBC_AUTOSAVE", NONE),
    ("pgjdbc, autosave", "ROLLBACK TO SAVEPOINT PGJDBC_AUTOSAVE", NONE),
    ("SQLAlchemy", "select pg_catalog.version()", NONE),
    ("SQLAlchemy", "show standard_conforming_strings", NONE),
    ("SQLAlchemy", "show transaction isolation level", NONE),
    ("Laravel", "set names 'utf8'", SETTINGS),
    ("Laravel", "set search_path to \"public\"", SETTINGS),
    ("PDO", "DEALLOCATE pdo_stmt_00000001", NONE),
    (
        "Sequelize",
        "SET client_min_messages TO warning; SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE;",
        SETTINGS,
    ),
    ("pgx", "-- ping", NONE),
    ("pgx", ";", NONE),
    ("Hibernate", "select nextval ('hibernate_sequence')", States::SEQUENCES),
    ("Ecto", "LOCK TABLE \"schema_migrations\" IN SHARE UPDATE EXCLUSIVE MODE", NONE),
    ("pg_dump", "SELECT pg_catalog.set_config('search_path', '', false);", SETTINGS.union(ROLE)),
    ("pg_dump", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", NONE),
    ("pgbench", "vacuum pgbench_branches", NONE),
    ("pgbench", "SELECT abalance FROM pgbench_accounts WHERE aid = 5;", NONE),
    (
        "psql \\d",
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = \
         c.relnamespace WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default AND \
         pg_catalog.pg_table_is_visible(c.oid) ORDER BY 2, 3;",
        NONE,
    ),
];

#[test]
fn chatter_is_understood() {
    for (who, what, makes) in CHATTER {
        let reading = Reading::of(what.as_bytes(), true);
        assert_eq!(reading.unread, None, "{who}: {what}");
        assert!(reading.touch() < Touch::Unknown, "{who}: {what}: {reading:?}");
        assert_eq!(reading.makes(), *makes, "{who}: {what}");
    }
}

#[test]
fn a_block_is_known_to_the_letter() {
    let block = "DO $$ BEGIN PERFORM * FROM pg_listening_channels() LIMIT 1; IF FOUND THEN UNLISTEN *; END IF; END; $$";
    let reading = Reading::of(block.as_bytes(), true);
    assert_eq!((reading.touch(), reading.ends()), (Touch::Inert, States::CHANNELS));
    for other in [block.replace("UNLISTEN *", "LISTEN a"), block.replace("DO", "DO LANGUAGE plsh")]
    {
        assert_eq!(Reading::of(other.as_bytes(), true).touch(), Touch::Unknown, "{other}");
    }
}
