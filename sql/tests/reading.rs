//! Texts and what is read in them.

use sql::{
    Act, Discarded, Item, Mode, Object, Overloadable, Reading, Setting, Statement, States,
    TEXT_BYTES_MAX, Temporary, Touch, Transaction, Unread, Value,
};

fn read(text: &str) -> Reading {
    Reading::of(text.as_bytes(), true)
}

fn one(text: &str) -> Statement {
    let reading = read(text);
    assert_eq!(reading.unread, None, "{text}");
    let [statement] = &reading.statements[..] else { panic!("{text}: {reading:?}") };
    statement.clone()
}

fn act(text: &str) -> Act {
    let statement = one(text);
    let [act] = &statement.acts[..] else { panic!("{text}: {statement:?}") };
    act.clone()
}

fn text(value: &str) -> Value {
    Value::Items(vec![Item::Text(value.into())])
}

fn set(name: &str, value: Value) -> Act {
    Act::Set(Setting { name: name.into(), value, local: false })
}

#[test]
fn nothing_is_nothing() {
    for empty in ["", " ", ";", " ; ;", "-- nobody here", "/* nor /* here */ */"] {
        let reading = read(empty);
        assert_eq!((reading.statements.len(), reading.unread), (0, None), "{empty}");
        assert_eq!(reading.touch(), Touch::Inert);
    }
}

#[test]
fn transactions_are_told_by_name() {
    let mode = |name: &str, value: &str| Mode { name: name.into(), value: value.into() };
    let cases = [
        ("BEGIN", Transaction::Begin(vec![])),
        ("begin work", Transaction::Begin(vec![])),
        (
            "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, NOT DEFERRABLE",
            Transaction::Begin(vec![
                mode("transaction_isolation", "serializable"),
                mode("transaction_read_only", "on"),
                mode("transaction_deferrable", "off"),
            ]),
        ),
        ("COMMIT", Transaction::Commit { chain: false }),
        ("END", Transaction::Commit { chain: false }),
        ("COMMIT AND CHAIN", Transaction::Commit { chain: true }),
        ("ROLLBACK AND NO CHAIN", Transaction::Rollback { chain: false }),
        ("ABORT AND CHAIN", Transaction::Rollback { chain: true }),
        ("SAVEPOINT \"A b\"", Transaction::Savepoint("A b".into())),
        ("ROLLBACK TO SAVEPOINT Ab", Transaction::RollbackTo("ab".into())),
        ("RELEASE x", Transaction::Release("x".into())),
        ("PREPARE TRANSACTION 'g'", Transaction::Prepare("g".into())),
        ("COMMIT PREPARED 'g'", Transaction::CommitPrepared("g".into())),
        ("ROLLBACK PREPARED 'g'", Transaction::RollbackPrepared("g".into())),
    ];
    for (sql, expected) in cases {
        assert_eq!(act(sql), Act::Transaction(expected), "{sql}");
        assert_eq!((one(sql).touch, one(sql).makes), (Touch::Inert, States::empty()), "{sql}");
    }
}

#[test]
fn settings_are_told_in_every_spelling() {
    let number = |value: &str| Value::Items(vec![Item::Number(value.into())]);
    let list = |values: &[&str]| {
        Value::Items(values.iter().map(|value| Item::Text((*value).into())).collect())
    };
    let cases = [
        ("SET Work_Mem TO '64MB'", set("work_mem", text("64MB"))),
        ("/**/SET\n\"Work_Mem\"=DEFAULT", set("work_mem", Value::Default)),
        ("SET SESSION statement_timeout = 5000", set("statement_timeout", number("5000"))),
        ("SET geqo_seed = -0.5", set("geqo_seed", number("-0.5"))),
        ("SET enable_seqscan = off", set("enable_seqscan", text("off"))),
        ("SET enable_seqscan TO true", set("enable_seqscan", text("true"))),
        (
            "SET search_path TO \"$user\", Public, 'x y'",
            set("search_path", list(&["$user", "public", "x y"])),
        ),
        ("SET search_path = ''", set("search_path", text(""))),
        ("SET SCHEMA 'app'", set("search_path", text("app"))),
        ("SET app.Tenant = $tag$it's 7$tag$", set("app.tenant", text("it's 7"))),
        ("SET x TO U&'d\\0061ta'", set("x", text("data"))),
        ("SET x TO E'a\\'b'", set("x", text("a'b"))),
        ("SET TIME ZONE 'Europe/Rome'", set("timezone", text("Europe/Rome"))),
        ("SET TIME ZONE LOCAL", set("timezone", Value::Default)),
        ("SET TIME ZONE -7", set("timezone", number("-7"))),
        ("SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", set("timezone", Value::Interval)),
        ("SET NAMES 'latin1'", set("client_encoding", text("latin1"))),
        ("SET NAMES", set("client_encoding", Value::Default)),
        ("SET ROLE NONE", set("role", text("none"))),
        ("SET SESSION ROLE \"App Owner\"", set("role", text("App Owner"))),
        ("SET SESSION AUTHORIZATION bob", set("session_authorization", text("bob"))),
        ("SET SESSION AUTHORIZATION DEFAULT", set("session_authorization", Value::Default)),
        ("SET XML OPTION DOCUMENT", set("xmloption", text("DOCUMENT"))),
        ("SET x FROM CURRENT", set("x", Value::Current)),
        ("RESET Work_mem", Act::Reset("work_mem".into())),
        ("RESET ROLE", Act::Reset("role".into())),
        ("RESET SESSION AUTHORIZATION", Act::Reset("session_authorization".into())),
        ("RESET TIME ZONE", Act::Reset("timezone".into())),
        ("RESET TRANSACTION ISOLATION LEVEL", Act::Reset("transaction_isolation".into())),
        ("RESET ALL", Act::ResetAll),
        ("SHOW \"Work_Mem\"", Act::Show("work_mem".into())),
        ("SHOW TIME ZONE", Act::Show("timezone".into())),
        ("SHOW SESSION AUTHORIZATION", Act::Show("session_authorization".into())),
        ("SHOW ALL", Act::Show("all".into())),
    ];
    for (sql, expected) in cases {
        assert_eq!(act(sql), expected, "{sql}");
        let made = one(sql).makes;
        let kind = if sql.contains("ROLE") || sql.contains("AUTHORIZATION") {
            States::ROLE
        } else {
            States::SETTINGS
        };
        let expected = if sql.starts_with("SHOW") { States::empty() } else { kind };
        assert_eq!((made, one(sql).touch), (expected, Touch::Inert), "{sql}");
    }
}

#[test]
fn what_is_set_for_a_transaction_is_not_state() {
    let mode = |name: &str, value: &str| Mode { name: name.into(), value: value.into() };
    let local = one("SET LOCAL work_mem = '1GB'");
    assert!(matches!(&local.acts[..], [Act::Set(setting)] if setting.local));
    assert_eq!(local.makes, States::empty());
    let modes = vec![mode("transaction_isolation", "repeatable read")];
    assert_eq!(
        act("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        Act::SetTransaction(modes.clone())
    );
    let characteristics =
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    assert_eq!(act(characteristics), Act::SetCharacteristics(modes));
    assert_eq!(one(characteristics).makes, States::SETTINGS);
    assert_eq!(act("SET TRANSACTION SNAPSHOT '0-1'"), Act::SetSnapshot);
    assert_eq!(one("SET CONSTRAINTS ALL IMMEDIATE").touch, Touch::Ordinary);
}

#[test]
fn functions_are_looked_up_wherever_they_hide() {
    let cases = [
        ("SELECT set_config('a.b', $1, false)", States::SETTINGS | States::ROLE),
        (
            "SELECT 1 FROM t WHERE (SELECT pg_catalog.set_config($1, $2, true)) IS NULL",
            States::SETTINGS | States::ROLE,
        ),
        ("WITH a AS (SELECT nextval('s')) SELECT * FROM a", States::SEQUENCES),
        ("SELECT * FROM pg_advisory_lock(1)", States::LOCKS),
        ("SELECT * FROM t ORDER BY pg_try_advisory_lock_shared(id)", States::LOCKS),
        (
            "INSERT INTO t VALUES (setval('s', 1)) RETURNING setseed(0.1)",
            States::SEQUENCES | States::SEED,
        ),
        ("UPDATE t SET a = 1 WHERE b = ANY (ARRAY[nextval('s')])", States::SEQUENCES),
        ("DELETE FROM t USING LATERAL (SELECT pg_advisory_lock(1)) x", States::LOCKS),
        (
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET b = nextval('s')",
            States::SEQUENCES,
        ),
        ("SELECT CASE WHEN true THEN coalesce(NULL, setseed(1)) END", States::SEED),
        (
            "SELECT sum(a) FILTER (WHERE setseed(1) IS NULL) OVER (PARTITION BY nextval('s')) FROM t",
            States::SEED | States::SEQUENCES,
        ),
        ("VALUES (1, pg_advisory_lock(7))", States::LOCKS),
        ("SELECT extensions.dblink_connect('a', 'b')", States::BACKEND),
        ("SELECT 1 UNION SELECT 2 EXCEPT SELECT nextval('s')", States::SEQUENCES),
        ("SELECT \"set_config\"('a', 'b', false)", States::SETTINGS | States::ROLE),
        ("SELECT SET_CONFIG('a', 'b', false)", States::SETTINGS | States::ROLE),
        ("SELECT U&\"set\\005fconfig\"('a', 'b', false)", States::SETTINGS | States::ROLE),
        ("COPY (SELECT set_config('a', 'b', false)) TO STDOUT", States::SETTINGS | States::ROLE),
        ("COPY t FROM STDIN WHERE nextval('s') > 1", States::SEQUENCES),
        ("CREATE TABLE a AS SELECT nextval('s')", States::SEQUENCES),
        ("EXPLAIN (ANALYZE, BUFFERS) SELECT nextval('s')", States::SEQUENCES),
        ("EXPLAIN ANALYZE SELECT nextval('s')", States::SEQUENCES),
        ("DECLARE c CURSOR FOR SELECT nextval('s')", States::SEQUENCES),
        ("SELECT XMLELEMENT(name a, nextval('s'))", States::SEQUENCES),
        ("SELECT JSON_OBJECT('a': nextval('s'))", States::SEQUENCES),
        ("SELECT GREATEST(1, nextval('s')), ROW(nextval('s'))", States::SEQUENCES),
        ("SELECT * FROM t TABLESAMPLE system(1) REPEATABLE (nextval('s'))", States::SEQUENCES),
        ("SELECT * FROM ROWS FROM (generate_series(1, 2), nextval('s'))", States::SEQUENCES),
        ("SELECT a[nextval('s')] FROM t LIMIT nextval('s')", States::SEQUENCES),
        ("SELECT 1 FROM t GROUP BY GROUPING SETS ((nextval('s')))", States::SEQUENCES),
        ("SELECT (nextval('s')::int4)::text COLLATE \"C\"", States::SEQUENCES),
        (
            "SELECT DATE '2000-01-01' AT TIME ZONE set_config('a', 'b', true)",
            States::SETTINGS | States::ROLE,
        ),
    ];
    for (sql, makes) in cases {
        assert_eq!(one(sql).makes, makes, "{sql}");
    }
}

#[test]
fn unknown_names_are_unknown() {
    for (sql, name) in [
        ("SELECT f()", "f"),
        ("SELECT * FROM t, f(t.a)", "f"),
        ("SELECT a FROM t ORDER BY a USING @#@", "@#@"),
        ("SELECT a @#@ b", "@#@"),
        ("SELECT a @#@ ANY (SELECT 1)", "@#@"),
        ("SELECT count(*) FILTER (WHERE f(a)) FROM t", "f"),
        ("INSERT INTO t (a) VALUES (f(1))", "f"),
        ("EXPLAIN ANALYZE SELECT f()", "f"),
        ("SELECT dblink('x')", "dblink"),
        ("SELECT * FROM t TABLESAMPLE mine(1)", "mine"),
        ("EXECUTE p(f())", "f"),
        ("ALTER TABLE t ADD a int DEFAULT f()", "f"),
        ("CREATE INDEX ON t (f(a))", "f"),
    ] {
        let read = one(sql);
        assert_eq!((read.touch, &read.calls[..]), (Touch::Calls, &[name.to_owned()][..]), "{sql}");
    }
    assert_eq!(one("EXPLAIN SELECT f()").touch, Touch::Calls, "planning may run it");
}

/// Nor is it enough to know what these would call.
#[test]
fn what_may_do_anything_is_unknown() {
    for sql in [
        "SELECT app.now()",
        "SELECT a OPERATOR(app.+) b FROM t",
        "SELECT query_to_xml('SELECT set_config(1)', true, true, '')",
        "SELECT binary_upgrade_set_next_pg_type_oid(1)",
        "DO $$ BEGIN END $$",
        "CALL p()",
        "LOAD 'x'",
        "CREATE EXTENSION postgis",
        "UPDATE pg_settings SET setting = 'b' WHERE name = 'a'",
        "EXPLAIN ANALYZE UPDATE pg_catalog.pg_settings AS s SET setting = 'b'",
    ] {
        assert_eq!(one(sql).touch, Touch::Unknown, "{sql}");
    }
}

/// What it does is what was prepared, which its text does not say: whoever reads it has to look there.
#[test]
fn an_execute_is_as_what_was_prepared() {
    for sql in ["EXECUTE p", "CREATE TABLE a AS EXECUTE p", "EXPLAIN ANALYZE EXECUTE p(1)"] {
        assert_eq!(one(sql).touch, Touch::Ordinary, "{sql}");
    }
}

#[test]
fn harmless_statements_are_seen_to_be() {
    for sql in [
        "SELECT 1",
        "SELECT 'a' || $1::text, now(), current_user, CURRENT_TIMESTAMP",
        "VALUES (1), (2)",
        "SELECT pg_catalog.version()",
        "SELECT n.nspname, pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')",
        "SELECT * FROM information_schema.tables",
        "SELECT pg_advisory_xact_lock(1)",
        "SHOW server_version",
        "FETCH 10 FROM c",
        "MOVE c",
        "NOTIFY x, 'y'",
        "SELECT pg_notify('x', 'y')",
        "LOCK TABLE t",
        "EXPLAIN SELECT 1",
    ] {
        let statement = one(sql);
        assert_eq!((statement.touch, statement.makes), (Touch::Inert, States::empty()), "{sql}");
    }
    for sql in [
        "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
        "INSERT INTO t (a, b) VALUES ($1, lower($2)) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *",
        "UPDATE t SET a = a + 1 WHERE b BETWEEN 1 AND 2 AND c LIKE 'x%' AND d IN (1, 2)",
        "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a IS DISTINCT FROM t.a)",
        "SELECT count(*), sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b) FOR UPDATE SKIP LOCKED",
        "COPY t FROM STDIN",
        "COPY t TO STDOUT",
        "CREATE TABLE t (a serial PRIMARY KEY, b text DEFAULT f())",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT g(); END",
        "ALTER TABLE t ADD b int",
        "TRUNCATE t",
        "VACUUM ANALYZE t",
        "GRANT SELECT ON t TO u",
        "CREATE INDEX CONCURRENTLY ON t (lower(a))",
        "ALTER ROLE u SET work_mem = '1MB'",
        "EXPLAIN SELECT nextval('s')",
    ] {
        let statement = one(sql);
        assert!(statement.touch <= Touch::Ordinary, "{sql}: {statement:?}");
        assert_eq!(statement.makes, States::empty(), "{sql}");
    }
}

#[test]
fn overloadable_names_are_pointed_out() {
    let (length, anywhere) = (Overloadable::of("length"), Overloadable::ANYWHERE);
    assert!(!length.meets(anywhere) && !length.meets(Overloadable::of("now")));
    for (sql, what) in [
        ("SELECT length('x')", length | anywhere),
        ("SELECT pg_catalog.length('x')", anywhere),
        ("SELECT now()", Overloadable::of("now") | anywhere),
        ("SELECT 1 + 1", anywhere),
        ("SELECT a FROM t", anywhere),
        ("SELECT 'x'::d", anywhere),
        ("SELECT $1", anywhere),
        ("SELECT 1, 'x'", Overloadable::default()),
        ("BEGIN", Overloadable::default()),
    ] {
        assert_eq!(one(sql).overloadable, what, "{sql}");
    }
    assert_eq!(Reading::of(b"SELECT '", true).overloadable(), Overloadable::ALL);
}

#[test]
fn what_depends_on_state_says_so() {
    let cases = [
        ("SELECT currval('s')", States::SEQUENCES),
        ("SELECT lastval()", States::SEQUENCES),
        ("SELECT random()", States::SEED),
        ("SELECT * FROM pg_listening_channels()", States::CHANNELS),
        ("SELECT * FROM pg_prepared_statements", States::STATEMENTS),
        ("SELECT * FROM pg_catalog.pg_cursors", States::CURSORS),
        ("SELECT pg_backend_pid()", States::BACKEND),
        ("SELECT * FROM pg_temp.t", States::TEMPORARY),
        ("EXECUTE p(1)", States::STATEMENTS),
        ("EXPLAIN EXECUTE p", States::STATEMENTS),
        ("FETCH c", States::CURSORS),
        ("SELECT pg_advisory_unlock(1)", States::LOCKS),
    ];
    for (sql, reads) in cases {
        assert_eq!(one(sql).reads, reads, "{sql}");
    }
}

#[test]
fn statements_are_prepared_under_names() {
    let sql = " PREPARE \"P 1\" (int, \"AS\") AS  SELECT set_config('a', $1, false) ; SELECT 1";
    let reading = read(sql);
    assert_eq!(reading.statements.len(), 2);
    let first = &reading.statements[0];
    assert_eq!(first.makes, States::STATEMENTS);
    assert_eq!(first.touch, Touch::Inert, "nothing runs yet");
    let [Act::Prepare { name, body, inner }] = &first.acts[..] else { panic!("{first:?}") };
    assert_eq!(name, "P 1");
    let body = body.clone().expect("it was found");
    assert_eq!(sql[body].trim(), "SELECT set_config('a', $1, false)");
    assert_eq!(inner.makes, States::SETTINGS | States::ROLE);
    assert_eq!(act("DEALLOCATE \"P 1\""), Act::Deallocate("P 1".into()));
    assert_eq!(act("DEALLOCATE PREPARE ALL"), Act::DeallocateAll);
    assert_eq!(one("DEALLOCATE ALL").ends, States::STATEMENTS);
}

#[test]
fn cursors_channels_and_the_rest() {
    let declared = Act::Declare { name: "c".into(), hold: true };
    assert_eq!(act("DECLARE c BINARY SCROLL CURSOR WITH HOLD FOR SELECT 1"), declared);
    assert_eq!(one("DECLARE c CURSOR WITH HOLD FOR SELECT 1").makes, States::CURSORS);
    assert_eq!(one("DECLARE c CURSOR FOR SELECT 1").makes, States::empty());
    assert_eq!(act("CLOSE c"), Act::Close("c".into()));
    assert_eq!(act("CLOSE ALL"), Act::CloseAll);
    assert_eq!(act("LISTEN \"A\""), Act::Listen("A".into()));
    assert_eq!(act("UNLISTEN a"), Act::Unlisten("a".into()));
    assert_eq!(act("UNLISTEN *"), Act::UnlistenAll);
    assert_eq!(act("NOTIFY a"), Act::Notify { channel: "a".into(), payload: String::new() });
    assert_eq!(act("DISCARD ALL"), Act::Discard(Discarded::All));
    assert_eq!(one("DISCARD ALL").ends, States::DISCARDED);
    assert_eq!(one("DISCARD TEMP").ends, States::TEMPORARY);
    assert_eq!(one("DISCARD TEMPORARY").ends, States::TEMPORARY);
    assert_eq!(one("DISCARD SEQUENCES").ends, States::SEQUENCES);
    assert_eq!(one("DISCARD PLANS").ends, States::empty());
}

#[test]
fn temporary_objects_are_noticed() {
    for sql in [
        "CREATE TEMP TABLE t (a int)",
        "CREATE LOCAL TEMPORARY TABLE IF NOT EXISTS t (a int) ON COMMIT DELETE ROWS",
        "CREATE GLOBAL TEMP TABLE t (a int)",
        "CREATE TABLE pg_temp.t (a int)",
        "CREATE TABLE \"pg_temp_3\".t (a int)",
        "CREATE TEMP TABLE t AS SELECT 1",
        "SELECT 1 AS a INTO TEMP t",
        "SELECT 1 AS a INTO pg_temp.t UNION SELECT 2",
        "CREATE OR REPLACE TEMP VIEW v AS SELECT 1",
        "CREATE TEMP RECURSIVE VIEW v (a) AS SELECT 1",
        "CREATE TEMP SEQUENCE s",
        "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE pg_temp.t AS (a int)",
        "CREATE TYPE pg_temp.t AS ENUM ('a')",
        "CREATE DOMAIN pg_temp.d AS int",
        "CREATE AGGREGATE pg_temp.a (int) (sfunc = int4pl, stype = int)",
        "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
        "CREATE SCHEMA s CREATE TEMP TABLE t (a int)",
    ] {
        assert!(one(sql).makes.contains(States::TEMPORARY), "{sql}");
    }
    let object = Object { schema: None, name: "t".into() };
    let temporary = Temporary { object, on_commit_drop: true };
    let sql = "CREATE TEMP TABLE t (a int) ON COMMIT DROP";
    assert_eq!(act(sql), Act::CreateTemporary(temporary.clone()));
    let sql = "CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1";
    assert_eq!(act(sql), Act::CreateTemporary(temporary));
    let dropped = one("DROP TABLE IF EXISTS pg_temp.t, \"U\" CASCADE");
    assert_eq!(dropped.ends, States::TEMPORARY);
    let object = |schema: Option<&str>, name: &str| Object {
        schema: schema.map(str::to_owned),
        name: name.into(),
    };
    let objects = vec![object(Some("pg_temp"), "t"), object(None, "U")];
    assert_eq!(dropped.acts, [Act::Drop(objects)]);
    assert_eq!(one("CREATE TABLE t (a int)").makes, States::empty());
    assert_eq!(one("CREATE UNLOGGED TABLE t (a int)").makes, States::empty());
}

/// What EXPLAIN is asked to do decides whether it does it.
#[test]
fn explaining_is_not_doing() {
    for off in ["", "(ANALYZE off) ", "(ANALYZE false, VERBOSE) ", "(ANALYZE 0) ", "VERBOSE "] {
        let sql = format!("EXPLAIN {off}SELECT nextval('s')");
        assert_eq!(one(&sql).makes, States::empty(), "{sql}");
    }
    for on in [
        "ANALYZE ",
        "ANALYZE VERBOSE ",
        "(ANALYZE) ",
        "(ANALYZE true) ",
        "(ANALYZE 1) ",
        "(ANALYZE off, ANALYZE on) ",
        "(aNaLyZe ON) ",
    ] {
        let sql = format!("EXPLAIN {on}SELECT nextval('s')");
        assert_eq!(one(&sql).makes, States::SEQUENCES, "{sql}");
    }
}

#[test]
fn several_statements_are_told_apart() {
    let sql = "SET a.b = 'x;y'; /* ; */ SELECT $$;$$ ;; DISCARD ALL";
    let reading = read(sql);
    let texts: Vec<_> =
        reading.statements.iter().map(|statement| sql[statement.range.clone()].trim()).collect();
    assert_eq!(texts, ["SET a.b = 'x;y'", "SELECT $$;$$", "DISCARD ALL"], "comments are nobody's");
    assert_eq!(reading.makes(), States::SETTINGS);
    assert_eq!(reading.ends(), States::DISCARDED);
    assert_eq!(reading.acts().count(), 2);
}

/// The same bytes are one statement or two, and a string ends where the setting says.
#[test]
fn backslashes_are_read_as_the_session_reads_them() {
    let sql = br"SELECT '\'; SET work_mem = 1; --'";
    let conforming = Reading::of(sql, true);
    assert_eq!(conforming.statements.len(), 2);
    assert_eq!(conforming.makes(), States::SETTINGS);
    let escaping = Reading::of(sql, false);
    assert_eq!((escaping.statements.len(), escaping.unread), (1, None));
    assert_eq!(escaping.makes(), States::empty());
}

#[test]
fn what_is_no_text_is_unknown() {
    let unread = |bytes: &[u8]| {
        let reading = Reading::of(bytes, true);
        assert_eq!(reading.touch(), Touch::Unknown);
        reading.unread
    };
    assert_eq!(unread(b"SELECT 'a\0b'"), Some(Unread::NotText));
    assert_eq!(unread(b"SELECT '\xff'"), Some(Unread::NotText));
    assert_eq!(unread(b"SELEKT 1"), Some(Unread::Syntax));
    assert_eq!(unread(b"SELECT 1; SELEKT"), Some(Unread::Syntax));
    assert_eq!(unread(b"SELECT 'unfinished"), Some(Unread::Syntax));
    assert_eq!(unread(&vec![b' '; TEXT_BYTES_MAX + 1]), Some(Unread::TooLong));
    assert_eq!(unread(&vec![b'('; 100 << 20]), Some(Unread::TooLong));
}

/// Everything that nests, far deeper than any parser likes, on a stack as small as any of ours.
#[test]
fn depth_is_survived() {
    let nests: [(&str, &str, &str); 12] = [
        ("SELECT ", "(", ")"),
        ("SELECT ", "[", "]"),
        ("SELECT ARRAY", "[", "]"),
        ("SELECT 1", "+1", ""),
        ("SELECT ", "- ", ""),
        ("SELECT ", "NOT ", ""),
        ("SELECT ", "abs(", ")"),
        ("SELECT 1", "::int", ""),
        ("SELECT 1", " UNION SELECT 1", ""),
        ("", "SELECT (", ")"),
        ("SELECT ", "(SELECT a FROM t WHERE a = ", ")"),
        ("SELECT ", "CASE WHEN true THEN ", " END"),
    ];
    let play = move || {
        for (before, open, close) in nests {
            for count in
                [1_usize, 10, 30, 45, 60, 100, 500, 1_000, 5_000, 10_000, 100_000, 1_000_000]
            {
                let sql = format!("{before}{}1{}", open.repeat(count), close.repeat(count));
                let reading = Reading::of(sql.as_bytes(), true);
                assert!(
                    reading.unread.is_some() || reading.touch() <= Touch::Ordinary,
                    "{before}{open}…"
                );
                if count >= 100_000 {
                    assert!(reading.unread.is_some(), "{before}{open} {count}");
                }
            }
        }
    };
    for stack in [64 << 10, 512 << 10, 1 << 20, 2 << 20, 8 << 20] {
        let thread = std::thread::Builder::new().stack_size(stack).spawn(play);
        thread.expect("a thread").join().expect("it came to its end");
    }
}

#[test]
fn ordinary_depth_is_read() {
    let chain =
        |count: usize| format!("SELECT a FROM t WHERE {}", vec!["a = 1"; count].join(" OR "));
    assert_eq!(read(&chain(2_000)).touch(), Touch::Ordinary);
    let values = vec!["(1, 'x')"; 5_000].join(", ");
    assert_eq!(read(&format!("INSERT INTO t VALUES {values}")).touch(), Touch::Ordinary);
    let nested = format!("SELECT {}1{}", "(".repeat(500), ")".repeat(500));
    assert_eq!(read(&nested).touch(), Touch::Inert, "brackets alone make no tree");
    let sums = format!("SELECT 1{}", " + 1".repeat(30));
    assert_eq!(read(&sums).touch(), Touch::Inert);
}
