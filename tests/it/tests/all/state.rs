//! Session state in transaction mode: nothing of one client's shows at another, and nothing of its own is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::fake::{self, FakeServer};
use harness::postgres::PASSWORD;
use harness::say::{self, bind, execute, extended, parse, sync};
use harness::{Raw, Setup, World, eventually};

/// Two clients of one server.
fn two(world: &World) -> (Raw, Raw) {
    (world.client(), world.client())
}

/// Every setting that a user may set in a session, to something else than it is.
fn settings(world: &World) -> Vec<(String, String)> {
    let query = "SELECT name, CASE vartype WHEN 'bool' THEN CASE setting WHEN 'on' THEN 'off' ELSE 'on' END \
                 WHEN 'enum' THEN enumvals[CASE WHEN enumvals[1] = setting THEN 2 ELSE 1 END] \
                 ELSE (CASE WHEN setting = max_val THEN setting::float8 - 1 ELSE setting::float8 + 1 END)::text END \
                 FROM pg_settings WHERE context = 'user' AND vartype <> 'string' \
                 AND name !~ 'transaction_|debug_|trace_|log_|statement_timeout|client_min|zero_damaged|ignore_|idle_' \
                 AND (vartype <> 'real' OR max_val::float8 > setting::float8 + 1) ORDER BY name";
    let rows = world.direct().run(query).rows();
    let text = |cell: &Option<String>| cell.clone().expect("no NULL");
    rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect()
}

#[test]
fn a01_no_setting_leaks_and_none_is_lost() {
    howdah_only!("it tracks six");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let settings = settings(&world);
    assert!(settings.len() > 80, "{}", settings.len());
    let mut set = Vec::new();
    for (name, value) in settings {
        let usual = bob.value(&format!("SHOW {name}"));
        if ann.query(&format!("SET {name} = '{value}'")).error().is_some() {
            continue;
        }
        let own = ann.value(&format!("SHOW {name}"));
        assert_eq!(bob.value(&format!("SHOW {name}")), usual, "{name}");
        set.push((name, own));
    }
    assert!(set.len() > 80, "{}", set.len());
    for (name, own) in &set {
        assert_eq!(ann.value(&format!("SHOW {name}")), *own, "{name}");
        bob.run("SELECT 1");
    }
}

#[test]
fn a02_a_setting_made_within_a_transaction_is_the_clients() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    for sql in ["BEGIN", "SELECT 1", "SET statement_timeout = '5s'", "COMMIT"] {
        ann.run(sql);
    }
    assert_eq!(bob.value("SHOW statement_timeout"), "0");
    assert_eq!(ann.value("SHOW statement_timeout"), "5s");
}

#[test]
fn a03_a_rollback_takes_settings_back() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("SET lock_timeout = 1000");
    let stories: [(&[&str], &str); 5] = [
        (&["BEGIN", "SET lock_timeout = 2000", "ROLLBACK"], "1s"),
        (&["BEGIN", "RESET lock_timeout", "ROLLBACK"], "1s"),
        (&["BEGIN", "SAVEPOINT a", "SET lock_timeout = 3000", "ROLLBACK TO a", "COMMIT"], "1s"),
        (&["BEGIN", "SAVEPOINT a", "SET lock_timeout = 4000", "RELEASE a", "COMMIT"], "4s"),
        (&["BEGIN", "SET LOCAL lock_timeout = 5000", "COMMIT"], "4s"),
    ];
    for (story, left) in stories {
        for sql in story {
            ann.run(sql);
        }
        assert_eq!(bob.value("SHOW lock_timeout"), "0", "{story:?}");
        assert_eq!(ann.value("SHOW lock_timeout"), left, "{story:?}");
    }
    ann.run("BEGIN");
    ann.run("SET lock_timeout = 6000");
    assert!(ann.query("SELECT 1/0").error().is_some());
    ann.run("COMMIT");
    assert_eq!(bob.value("SHOW lock_timeout"), "0");
    assert_eq!(ann.value("SHOW lock_timeout"), "4s");
}

#[test]
fn a06_set_config_in_any_disguise() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let hidden = "CREATE FUNCTION hidden(text) RETURNS void LANGUAGE plpgsql AS \
                  $$ BEGIN PERFORM set_config('work_mem', $1, false); END $$; \
                  CREATE TABLE t (i int); GRANT ALL ON t TO app; ";
    world.direct().run(&[hidden, FIRES, &trigger("t", "fires")].concat());
    let (mut ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    let mut expect = |ann: &mut Raw, value: &str, how: &str| {
        assert_eq!(bob.value("SHOW work_mem"), usual, "{how}");
        assert_eq!(ann.value("SHOW work_mem"), value, "{how}");
    };
    for (sql, value) in [
        ("/* x */ sEt WORK_MEM to '91MB'", "91MB"),
        ("SELECT 1; SET work_mem = '92MB'; SELECT 2", "92MB"),
        ("SELECT set_config('work_mem', '93MB', false)", "93MB"),
        ("SELECT hidden('94MB')", "94MB"),
        ("DO $$ BEGIN SET work_mem = '95MB'; END $$", "95MB"),
        ("INSERT INTO t VALUES (1)", "96MB"),
        ("WITH a AS (SELECT set_config('work_mem', '97MB', false)) SELECT * FROM a", "97MB"),
        ("UPDATE pg_settings SET setting = '99000' WHERE name = 'work_mem'", "99000kB"),
        ("COPY (SELECT set_config('work_mem', '89MB', false)) TO STDOUT", "89MB"),
        ("EXPLAIN ANALYZE SELECT set_config('work_mem', '88MB', false)", "88MB"),
    ] {
        ann.run(sql);
        expect(&mut ann, value, sql);
    }
    let bound = [
        parse("", "SELECT set_config($1, $2, false)"),
        bind("", "", &["work_mem", "98MB"]),
        execute("", 0),
        sync(),
    ];
    ann.ask(&bound.concat());
    expect(&mut ann, "98MB", "bound parameters");
}

/// What two transactions were seen to leave alone is believed of that very thing only.
struct Believed {
    ann: Raw,
    bob: Raw,
    usual: String,
}

impl Believed {
    /// Where each has done `before` several times, `after` shows at nobody else.
    fn expect(&mut self, before: &[&str], change: &str, after: &[&str]) {
        for sql in before.iter().cycle().take(3 * before.len()) {
            self.ann.query(sql);
        }
        self.ann.run(change);
        for sql in after {
            self.ann.run(sql);
        }
        assert_eq!(self.bob.value("SHOW work_mem"), self.usual, "{before:?}, {change}, {after:?}");
        assert_eq!(self.ann.value("SHOW work_mem"), "96MB", "{before:?}, {change}, {after:?}");
        self.ann.run("RESET work_mem");
    }
}

const FIRES: &str = "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN PERFORM set_config('work_mem', '96MB', false); RETURN NEW; END $$; \
                     CREATE FUNCTION rests() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN RETURN NEW; END $$; ";

fn trigger(table: &str, function: &str) -> String {
    let name = table.replace('.', "_");
    format!(
        "CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {function}(); "
    )
}

/// Who has not come so far as to do something has shown nothing.
#[test]
fn a06_what_failed_or_found_no_row_is_not_believed() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let made = [
        "CREATE TABLE t (i int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE u (i int); GRANT ALL ON t, u TO app; ",
        FIRES,
        &trigger("u", "fires"),
        "CREATE TRIGGER t BEFORE UPDATE OR INSERT ON t FOR EACH ROW EXECUTE FUNCTION fires()",
    ];
    world.direct().run(&made.concat());
    let (ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    let mut believed = Believed { ann, bob, usual };
    believed.expect(&["UPDATE t SET i = 1 WHERE i = 7"], "", &["UPDATE t SET i = 1 WHERE i = 1"]);
    believed.expect(&["INSERT INTO t VALUES (1/0)"], "", &["INSERT INTO t VALUES (2/1)"]);
    let insert = "INSERT INTO u VALUES (1)";
    believed.expect(&["BEGIN", "SELECT 1/0", insert, "ROLLBACK"], "", &["BEGIN", insert, "COMMIT"]);
    let insert = "INSERT INTO u SELECT 1 WHERE 1 = 2";
    believed.expect(&[insert], "", &["INSERT INTO u SELECT 1 WHERE 1 = 1"]);
    // Nor has what was bound and never executed.
    let insert = "INSERT INTO u VALUES ($1)";
    let bound = [parse("", insert), bind("", "", &["1"]), say::describe_portal(""), sync()];
    for _ in 0..3 {
        believed.ann.ask(&bound.concat());
    }
    believed.ann.ask(&[parse("", insert), bind("", "", &["1"]), execute("", 0), sync()].concat());
    believed.expect(&[], "", &[]);
}

#[test]
fn a06_what_was_seen_of_one_table_is_not_believed_of_another() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let role = format!("role_of_{}", world.db);
    let tables = "CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE one.t (i int); CREATE TABLE two.t (i int); \
                  CREATE TABLE temporary (i int); CREATE TABLE secret (i int); ";
    let policies = format!(
        "CREATE ROLE {role}; GRANT {role} TO app; ALTER TABLE secret ENABLE ROW LEVEL SECURITY; \
         INSERT INTO secret VALUES (1); \
         CREATE POLICY a ON secret TO app USING (true); \
         CREATE POLICY b ON secret TO {role} USING (set_config('work_mem', '96MB', false) <> ''); "
    );
    let rest = "GRANT ALL ON SCHEMA one, two TO PUBLIC; GRANT ALL ON one.t, two.t, temporary, secret TO PUBLIC";
    let made = [
        tables,
        FIRES,
        &trigger("two.t", "fires"),
        &trigger("temporary", "fires"),
        &policies,
        rest,
    ];
    world.direct().run(&made.concat());
    let (ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    let mut believed = Believed { ann, bob, usual };
    let insert = "INSERT INTO t VALUES (1)";
    believed.expect(&["SET search_path = one", insert], "SET search_path = two", &[insert]);
    believed.ann.run("RESET search_path");
    let local = |schema: &str| format!("SET LOCAL search_path = '{schema}'");
    let (one, two) = (local("one"), local("two"));
    let update = "INSERT INTO t VALUES (1), (2)";
    believed.expect(&["BEGIN", &one, update, "COMMIT"], "", &["BEGIN", &two, update, "COMMIT"]);
    let whole = |local: &str| format!("BEGIN; {local}; INSERT INTO t VALUES (1), (2), (3); COMMIT");
    believed.expect(&[&whole(&one)], "", &[&whole(&two)]);
    let temporary = "INSERT INTO temporary VALUES (1)";
    believed.expect(
        &["BEGIN", "CREATE TEMP TABLE temporary (i int) ON COMMIT DROP", temporary, "COMMIT"],
        "",
        &[temporary],
    );
    let take = format!("SET ROLE {role}");
    believed.expect(&["SELECT * FROM secret"], &take, &["SELECT * FROM secret"]);
    believed.ann.run("RESET ROLE");
    let take = format!("SET LOCAL ROLE {role}");
    let count = "SELECT count(*) FROM secret";
    believed.expect(&["BEGIN", count, "COMMIT"], "", &["BEGIN", &take, count, "COMMIT"]);
}

#[test]
fn a06_what_was_seen_of_a_table_is_not_believed_once_it_has_changed() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    world.direct().run(FIRES);
    world.direct().run("ALTER FUNCTION rests() OWNER TO app; GRANT CREATE ON SCHEMA public TO app");
    let (mut ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    for table in ["gets", "renews", "enabled"] {
        ann.run(&format!("CREATE TABLE {table} (i int)"));
    }
    ann.run(&trigger("renews", "rests"));
    ann.run(&trigger("enabled", "fires"));
    ann.run("ALTER TABLE enabled DISABLE TRIGGER enabled");
    ann.run("CREATE VIEW seen AS SELECT '1'::text AS a");
    let mut believed = Believed { ann, bob, usual };
    believed.expect(
        &["INSERT INTO gets VALUES (1)"],
        &trigger("gets", "fires"),
        &["INSERT INTO gets VALUES (2)"],
    );
    believed.expect(
        &["INSERT INTO renews VALUES (1)"],
        "CREATE OR REPLACE FUNCTION rests() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('work_mem', '96MB', false); RETURN NEW; END $$",
        &["INSERT INTO renews VALUES (2)"],
    );
    believed.expect(
        &["INSERT INTO enabled VALUES (1)"],
        "ALTER TABLE enabled ENABLE TRIGGER enabled",
        &["INSERT INTO enabled VALUES (2)"],
    );
    believed.expect(
        &["SELECT * FROM seen"],
        "CREATE OR REPLACE VIEW seen AS SELECT set_config('work_mem', '96MB', false) AS a",
        &["SELECT * FROM seen"],
    );
}

#[test]
fn a06_what_was_seen_in_one_database_is_not_believed_in_another() {
    howdah_only!("it leaks");
    let other = harness::Postgres::shared().database();
    let world = World::with(1, |setup| {
        setup.database("mall", &harness::Postgres::shared().target(&other)).set("workers", 1)
    });
    world.direct().run("CREATE TABLE t (i int); GRANT ALL ON t TO app");
    let table = ["CREATE TABLE t (i int); GRANT ALL ON t TO app; ", FIRES, &trigger("t", "fires")];
    world.postgres.superuser(&other).run(&table.concat());
    let mut ann = world.client();
    let insert =
        [parse("", "INSERT INTO t VALUES ($1)"), bind("", "", &["1"]), execute("", 0), sync()];
    for _ in 0..3 {
        ann.run("INSERT INTO t VALUES (1)");
        ann.ask(&insert.concat());
    }
    let mall = world.howdah.login("app", PASSWORD, "mall");
    let (mut cat, mut dan) = (mall.enter(), mall.enter());
    let usual = dan.value("SHOW work_mem");
    cat.run("INSERT INTO t VALUES (1)");
    assert_eq!(dan.value("SHOW work_mem"), usual);
    assert_eq!(cat.value("SHOW work_mem"), "96MB");
    cat.run("RESET work_mem");
    cat.ask(&insert.concat());
    assert_eq!(dan.value("SHOW work_mem"), usual);
    assert_eq!(cat.value("SHOW work_mem"), "96MB");
}

/// The server is asked what `round` left there at first, and not any more after a few of them.
fn pays_nothing_in_the_end(world: &World, mut round: impl FnMut()) {
    let asked = || {
        let statements = world.statements();
        statements.iter().filter(|sql| sql.contains("pg_catalog.pg_settings")).count()
    };
    round();
    assert!(asked() > 0);
    round();
    round();
    let before = asked();
    round();
    round();
    assert_eq!(asked(), before, "{:?}", world.statements());
}

/// What was seen often enough is not asked about, whatever else its transaction says of itself.
#[test]
fn steady_traffic_pays_nothing() {
    howdah_only!("it never pays");
    let world = World::pool(1);
    world.direct().run("CREATE TABLE t AS SELECT 1 AS i; GRANT ALL ON t TO app");
    let (mut ann, mut bob) = two(&world);
    let update = [parse("", "UPDATE t SET i = $1"), bind("", "", &["1"]), execute("", 0), sync()];
    let round = || {
        for client in [&mut ann, &mut bob] {
            client.run("SELECT i FROM t WHERE i = 1");
            client.ask(&update.concat());
            client.run("BEGIN; INSERT INTO t VALUES (2); DELETE FROM t WHERE i = 2; COMMIT");
            for sql in [
                "BEGIN",
                "SET LOCAL search_path = public",
                "TABLE t",
                "SAVEPOINT a",
                "RELEASE a",
                "COMMIT",
            ] {
                client.run(sql);
            }
        }
    };
    pays_nothing_in_the_end(&world, round);
}

/// Neither are functions and operators of one's own, once it is known what they are made of.
#[test]
fn calls_of_what_leaves_nothing_pay_nothing() {
    howdah_only!("it never pays");
    let world = World::pool(1);
    world.direct().run(
        "CREATE TABLE t (i int); INSERT INTO t VALUES (1); GRANT ALL ON t TO app; \
         CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql AS 'SELECT 2 * i'; \
         CREATE FUNCTION kept(i int) RETURNS int BEGIN ATOMIC SELECT twice(i) + 1; END; \
         CREATE FUNCTION found(i int) RETURNS boolean LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM 1 FROM t WHERE t.i = kept($1); UPDATE t SET i = t.i; RETURN FOUND; END $$; \
         CREATE OPERATOR <=> (FUNCTION = int4eq, LEFTARG = int, RIGHTARG = int); \
         CREATE OPERATOR ### (FUNCTION = found, RIGHTARG = int); \
         CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int)",
    );
    let (mut ann, mut bob) = two(&world);
    let mut count = 0;
    let round = || {
        for client in [&mut ann, &mut bob] {
            count += 1;
            client.run(&format!("SELECT twice({count}), public.kept({count})"));
            client.run(&format!("SELECT found({count}) WHERE {count} <=> 2"));
            client.run(&format!("SELECT ### {count}, total(i) FROM t"));
            client.ask(&[extended("SELECT twice($1)", &["1"]), sync()].concat());
            client.run("BEGIN; INSERT INTO t VALUES (twice(1)); COMMIT");
            for sql in ["BEGIN", "SET LOCAL search_path = public", "SELECT found(1)", "COMMIT"] {
                client.run(sql);
            }
        }
    };
    pays_nothing_in_the_end(&world, round);
}

/// A trigger that sets something only now and then is found out with `session_state_check_always`.
#[test]
fn a06_nothing_is_believed_where_that_is_wished() {
    howdah_only!("it leaks");
    let world = World::with(1, |setup| setup.set("session_state_check_always", 1));
    world.direct().run(
        "CREATE TABLE t (i int); GRANT ALL ON t TO app; \
         CREATE FUNCTION sometimes() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.i = 7 THEN PERFORM set_config('work_mem', '96MB', false); END IF; RETURN NEW; END $$; \
         CREATE TRIGGER sometimes BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION sometimes()",
    );
    let (ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    let mut doubted = Believed { ann, bob, usual };
    doubted.expect(&["INSERT INTO t VALUES (1)"], "", &["INSERT INTO t VALUES (7)"]);
}

/// It was seen twice to leave nothing, and what is attached to its table says that it might.
#[test]
fn a06_what_happens_only_now_and_then_is_not_missed() {
    howdah_only!("it leaks");
    let ways = [
        "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.i = 7 THEN PERFORM set_config('work_mem', '96MB', false); END IF; RETURN NEW; END $$; \
         CREATE TRIGGER fires BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fires()",
        "CREATE FUNCTION \"Far\"() RETURNS void LANGUAGE plpgsql AS $$ BEGIN SET work_mem = '96MB'; END $$; \
         CREATE FUNCTION near() RETURNS void LANGUAGE sql AS 'SELECT public.\"Far\"()'; \
         CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.i = 7 THEN PERFORM near(); END IF; RETURN NULL; END $$; \
         CREATE TRIGGER fires AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fires()",
        "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN EXECUTE TG_ARGV[NEW.i]; RETURN NEW; END $$; \
         CREATE TRIGGER fires BEFORE INSERT ON t FOR EACH ROW \
         EXECUTE FUNCTION fires('', 'SELECT 1', '', '', '', '', '', 'SET work_mem = ''96MB''')",
        "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN SET work_mem = '96MB'; RETURN NEW; END $$; \
         CREATE TRIGGER fires BEFORE INSERT ON t FOR EACH ROW WHEN (NEW.i = 7) EXECUTE FUNCTION fires()",
        "CREATE RULE fires AS ON INSERT TO t WHERE NEW.i = 7 DO ALSO SELECT set_config('work_mem', '96MB', false)",
        "ALTER TABLE t ADD CHECK (i <> 7 OR set_config('work_mem', '96MB', false) <> '')",
        "CREATE DOMAIN seldom AS int CHECK (VALUE <> 7 OR set_config('work_mem', '96MB', false) <> ''); \
         ALTER TABLE t ALTER i TYPE seldom",
        "CREATE TABLE one (i int, CHECK (i <> 7 OR set_config('work_mem', '96MB', false) <> '')); \
         ALTER TABLE t RENAME TO gone; GRANT ALL ON one TO app; CREATE VIEW t AS SELECT * FROM one; GRANT ALL ON t TO app",
        "ALTER TABLE t RENAME TO gone; CREATE TABLE t (i int) PARTITION BY LIST (i); GRANT ALL ON t TO app; \
         CREATE TABLE one PARTITION OF t FOR VALUES IN (1); CREATE TABLE two PARTITION OF t FOR VALUES IN (7); \
         CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN SET work_mem = '96MB'; RETURN NEW; END $$; \
         CREATE TRIGGER fires BEFORE INSERT ON two FOR EACH ROW EXECUTE FUNCTION fires()",
    ];
    for way in ways {
        let world = World::pool(1);
        world.direct().run("CREATE TABLE t (i int); GRANT ALL ON t TO app");
        world.direct().run(way);
        let (ann, mut bob) = two(&world);
        let usual = bob.value("SHOW work_mem");
        let mut seldom = Believed { ann, bob, usual };
        seldom.expect(&["INSERT INTO t VALUES (1)"], "", &["INSERT INTO t VALUES (7)"]);
    }
}

/// Neither of what is called: it is asked about unless its body says that it cannot matter.
#[test]
fn a06_what_is_called_may_do_something_only_now_and_then() {
    howdah_only!("it leaks");
    let sets = "CREATE FUNCTION sets(i int) RETURNS int LANGUAGE plpgsql AS \
                $$ BEGIN IF i = 7 THEN PERFORM set_config('work_mem', '96MB', false); END IF; RETURN i; END $$; ";
    let ways = [
        ("", "SELECT sets({})"),
        ("", "SELECT public.sets($1)"),
        ("", "SELECT 1; SELECT 1 WHERE sets({}) = 1"),
        ("", "WITH a AS (SELECT sets({})) SELECT * FROM a"),
        ("", "EXPLAIN ANALYZE SELECT sets({})"),
        ("", "COPY (SELECT sets({})) TO STDOUT"),
        ("CREATE OPERATOR <=> (FUNCTION = sets, RIGHTARG = int)", "SELECT <=> {}"),
        ("CREATE OPERATOR + (FUNCTION = sets, RIGHTARG = int)", "SELECT OPERATOR(public.+) {}"),
        (
            "CREATE FUNCTION upper(i int) RETURNS int LANGUAGE sql AS 'SELECT sets(i)'",
            "SELECT public.upper({})",
        ),
        (
            "CREATE FUNCTION kept(i int) RETURNS int BEGIN ATOMIC SELECT sets(i); END",
            "SELECT kept({})",
        ),
        (
            "CREATE FUNCTION pair(i int) RETURNS int LANGUAGE sql AS 'SELECT i'; \
             CREATE FUNCTION pair(i text) RETURNS text LANGUAGE sql AS 'SELECT sets(i::int)::text'",
            "SELECT pair('{}'::text)",
        ),
        (
            "CREATE FUNCTION plus(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT a + sets(b)'; \
             CREATE AGGREGATE total(int) (SFUNC = plus, STYPE = int, INITCOND = '0')",
            "SELECT total(a) FROM (VALUES ({})) AS v (a)",
        ),
        (
            "CREATE FUNCTION given(i int, j int DEFAULT sets(7)) RETURNS int LANGUAGE sql AS 'SELECT i + j'",
            "SELECT CASE WHEN {} = 7 THEN given(1) END",
        ),
    ];
    for (way, call) in ways {
        let world = World::pool(1);
        world.direct().run(&format!("{sets}{way}"));
        let (mut ann, mut bob) = two(&world);
        let usual = bob.value("SHOW work_mem");
        let mut run = |i: &str| match call.contains("$1") {
            true => _ = ann.ask(&[extended(call, &[i]), sync()].concat()),
            false => _ = ann.query(&call.replace("{}", i)),
        };
        (0..4).for_each(|_| run("1"));
        run("7");
        assert_eq!(bob.value("SHOW work_mem"), usual, "{call}");
        assert_eq!(ann.value("SHOW work_mem"), "96MB", "{call}");
    }
}

/// What goes past us tells nobody here. It is found out in a second or two, not only when the minute is over.
#[test]
fn a06_what_is_changed_elsewhere_is_found_out() {
    howdah_only!("it leaks");
    let fires = "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN SET work_mem = '96MB'; RETURN NEW; END $$; \
                 CREATE TRIGGER fires BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fires()";
    let becomes = "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE plpgsql AS \
                   $$ BEGIN SET work_mem = '96MB'; RETURN 1; END $$";
    for (change, sql) in [(fires, "INSERT INTO t VALUES (1)"), (becomes, "SELECT f()")] {
        let world = World::pool(1);
        world.direct().run(
            "CREATE TABLE t (i int); GRANT ALL ON t TO app; \
             CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$",
        );
        let (mut ann, mut bob) = two(&world);
        let usual = bob.value("SHOW work_mem");
        (0..6).for_each(|_| _ = ann.run(sql));
        world.direct().run(change);
        // PostgreSQL has counted it a moment later.
        let changed = Instant::now();
        let mut last_leak = Duration::ZERO;
        while changed.elapsed() < Duration::from_secs(8) {
            ann.run(sql);
            if bob.value("SHOW work_mem") != usual {
                last_leak = changed.elapsed();
            }
            ann.run("RESET work_mem");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(last_leak < Duration::from_secs(5), "{sql}: {last_leak:?}");
    }
}

/// What is called may become another thing.
#[test]
fn a06_what_is_called_is_looked_at_again_behind_its_change() {
    howdah_only!("it leaks");
    let rests = |name: &str| {
        format!("CREATE OR REPLACE FUNCTION {name}(i int) RETURNS int LANGUAGE sql AS 'SELECT i'")
    };
    let sets = |name: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION {name}(i int) RETURNS int LANGUAGE plpgsql AS \
             $$ BEGIN IF i = 7 THEN SET work_mem = '96MB'; END IF; RETURN i; END $$"
        )
    };
    let calls = "CREATE FUNCTION calls(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN far(i); END $$";
    let operator = "CREATE OPERATOR <=> (FUNCTION = f, RIGHTARG = int)";
    let ways: [(&[&str], &[&str], &str); 4] = [
        (&[&rests("f")], &[&sets("f")], "SELECT f({})"),
        (&[&rests("far"), calls], &[&sets("far")], "SELECT calls({})"),
        (&[&rests("f"), operator], &[&sets("f")], "SELECT <=> {}"),
        (
            &[&rests("f"), &sets("g"), operator],
            &[
                "DROP OPERATOR <=> (NONE, int)",
                "CREATE OPERATOR <=> (FUNCTION = g, RIGHTARG = int)",
            ],
            "SELECT <=> {}",
        ),
    ];
    for (before, change, call) in ways {
        let world = World::pool(1);
        world.direct().run("GRANT ALL ON SCHEMA public TO app");
        let (mut ann, mut bob) = two(&world);
        let usual = bob.value("SHOW work_mem");
        before.iter().for_each(|sql| _ = ann.run(sql));
        (0..4).for_each(|_| _ = ann.run(&call.replace("{}", "1")));
        change.iter().for_each(|sql| _ = ann.run(sql));
        (0..4).for_each(|_| _ = ann.run(&call.replace("{}", "1")));
        ann.run(&call.replace("{}", "7"));
        assert_eq!(bob.value("SHOW work_mem"), usual, "{change:?} {call}");
        assert_eq!(ann.value("SHOW work_mem"), "96MB", "{change:?} {call}");
    }
}

/// What is attached later is looked at then, whoever is named by the text that attaches it.
#[test]
fn a06_what_happens_only_now_and_then_may_come_later() {
    howdah_only!("it leaks");
    let fires = "CREATE OR REPLACE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN IF NEW.i = 7 THEN SET work_mem = '96MB'; END IF; RETURN NEW; END $$";
    let trigger = "CREATE TRIGGER fires BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION fires()";
    let rests =
        "CREATE FUNCTION fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$";
    let ways: [(&[&str], &[&str], &str); 6] = [
        (&[], &[fires, trigger], "t"),
        (&[rests, trigger], &[fires], "t"),
        (
            &[
                "ALTER TABLE t RENAME TO gone",
                "CREATE TABLE t (i int) PARTITION BY LIST (i)",
                "CREATE TABLE one PARTITION OF t DEFAULT",
            ],
            &[fires, trigger],
            "one",
        ),
        (&["CREATE VIEW seen AS SELECT * FROM t"], &[fires, trigger], "seen"),
        (
            &["CREATE DOMAIN seldom AS int", "ALTER TABLE t ALTER i TYPE seldom"],
            &[
                "ALTER DOMAIN seldom ADD CHECK (VALUE <> 7 OR set_config('work_mem', '96MB', false) <> '')",
            ],
            "t",
        ),
        (
            &[],
            &[
                fires,
                "DO $$ BEGIN EXECUTE 'CREATE TRIGGER fires BEFORE INSERT ON ' || 't' || ' FOR EACH ROW EXECUTE FUNCTION fires()'; END $$",
            ],
            "t",
        ),
    ];
    for (before, change, table) in ways {
        let world = World::pool(1);
        world.direct().run(
            "CREATE TABLE t (i int); GRANT ALL ON SCHEMA public TO app; ALTER TABLE t OWNER TO app",
        );
        let (mut ann, mut bob) = two(&world);
        before.iter().for_each(|sql| _ = ann.run(sql));
        let usual = bob.value("SHOW work_mem");
        let mut seldom = Believed { ann, bob, usual };
        let insert = format!("INSERT INTO {table} VALUES (1)");
        (0..4).for_each(|_| _ = seldom.ann.run(&insert));
        change.iter().for_each(|sql| _ = seldom.ann.run(sql));
        seldom.expect(&[&insert], "", &[&insert.replace('1', "7")]);
    }
}

/// Other updates are believed to leave settings alone once they were seen to.
#[test]
fn a_setting_that_is_updated_is_its_clients_each_time() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let usual = bob.value("SHOW work_mem");
    for (update, value) in [
        ("UPDATE pg_settings SET setting = '99000' WHERE name = 'work_mem'", "99000kB"),
        (
            "WITH a AS (SELECT 1) UPDATE pg_catalog.pg_settings SET setting = '98000' FROM a \
             WHERE name = 'work_mem'",
            "98000kB",
        ),
    ] {
        ann.run(&format!("SET work_mem = '{value}'"));
        for _ in 0..3 {
            ann.run(update);
        }
        ann.run("RESET work_mem");
        ann.run(update);
        assert_eq!(bob.value("SHOW work_mem"), usual);
        assert_eq!(ann.value("SHOW work_mem"), value);
    }
}

#[test]
fn a08_roles_stay_with_who_took_them() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let role = format!("role_of_{}", world.db);
    world.direct().run(&format!("CREATE ROLE {role}; GRANT {role} TO app"));
    let (mut ann, mut bob) = two(&world);
    ann.run(&format!("SET ROLE {role}"));
    for _ in 0..3 {
        assert_eq!(bob.value("SELECT current_user || session_user"), "appapp");
        assert_eq!(ann.value("SELECT current_user"), role);
    }
    ann.run("RESET ALL");
    assert_eq!(ann.value("SELECT current_user"), role, "RESET ALL spares it");
    ann.run("RESET ROLE");
    assert_eq!(ann.value("SELECT current_user"), "app");
    ann.leave();
    world.direct().run(&format!("REVOKE {role} FROM app; DROP ROLE {role}"));
}

#[test]
fn a09_custom_settings_are_their_clients() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("SET app.tenant = 'ann'");
    assert_eq!(bob.value("SELECT coalesce(current_setting('app.tenant', true), '')"), "");
    bob.run("SELECT set_config('app.tenant', 'bob', false)");
    for _ in 0..3 {
        assert_eq!(ann.value("SHOW app.tenant"), "ann");
        assert_eq!(bob.value("SHOW app.tenant"), "bob");
    }
}

/// The usual way to tell policies of row-level security whose session it is.
#[test]
fn a09_custom_settings_that_only_a_function_names_are_their_clients() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    world.direct().run(
        "CREATE FUNCTION set_tenant(t text) RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM set_config('app.tenant', t, false); END $$; \
         CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
         $$ SELECT coalesce(current_setting('app.tenant', true), '') $$",
    );
    let (mut ann, mut bob) = two(&world);
    ann.run("SELECT set_tenant('ann')");
    assert_eq!(bob.value("SELECT tenant()"), "");
    bob.run("SELECT set_tenant('bob')");
    for _ in 0..3 {
        assert_eq!(ann.value("SELECT tenant()"), "ann");
        assert_eq!(bob.value("SELECT tenant()"), "bob");
    }
}

/// What makes functions that set `app.tenant` to `ann` where nobody names them as what they are: they have a name of
/// PostgreSQL's own, or are behind an operator, a cast, a domain; and what runs them.
fn unnamed_ways() -> [(String, &'static str); 7] {
    let sets = "LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'ann', false); RETURN true; END $$";
    [
        (format!("CREATE FUNCTION abs(a text) RETURNS bool {sets}"), "SELECT abs('x'::text)"),
        (
            format!(
                "CREATE FUNCTION f(a text, b text) RETURNS bool {sets}; \
                 CREATE OPERATOR + (FUNCTION = f, LEFTARG = text, RIGHTARG = text)"
            ),
            "SELECT 'x'::text + 'y'::text",
        ),
        (
            format!(
                "CREATE TYPE pair AS (a int, b int); CREATE FUNCTION f(a pair) RETURNS bool {sets}; \
                 CREATE CAST (pair AS bool) WITH FUNCTION f(pair)"
            ),
            "SELECT '(1,2)'::pair::bool",
        ),
        (
            format!(
                "CREATE FUNCTION f(a int) RETURNS bool {sets}; CREATE DOMAIN small AS int CHECK (f(VALUE))"
            ),
            "SELECT 1::small",
        ),
        (
            format!(
                "CREATE FUNCTION f(a int) RETURNS bool {sets}; CREATE FUNCTION abs(a text) RETURNS bool \
                 LANGUAGE sql AS 'SELECT f(1)'; CREATE FUNCTION g() RETURNS bool LANGUAGE plpgsql AS \
                 $$ BEGIN RETURN abs('x'::text); END $$"
            ),
            "SELECT g()",
        ),
        (
            format!(
                "CREATE FUNCTION abs(a text) RETURNS bool {sets}; CREATE TABLE t (i int); GRANT ALL ON t TO app; \
                 CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN IF NEW.i = 1 THEN PERFORM abs('x'::text); END IF; RETURN NEW; END $$; \
                 CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION g()"
            ),
            "INSERT INTO t VALUES (1)",
        ),
        (
            "CREATE DOMAIN small AS int CHECK (set_config('app.tenant', 'ann', false) <> '')"
                .into(),
            "SELECT 1::small",
        ),
    ]
}

#[test]
fn a09_custom_settings_that_only_what_nobody_names_sets_are_their_clients() {
    howdah_only!("it leaks");
    for (made, way) in unnamed_ways() {
        for elsewhere in [true, false] {
            let world = World::pool(1);
            world.direct().run(
                "CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
                 $$ SELECT coalesce(current_setting('app' || '.tenant', true), '') $$; \
                 GRANT ALL ON SCHEMA public TO app",
            );
            let (mut ann, mut bob) = two(&world);
            let finds = |client: &mut Raw| client.value("SELECT pg_catalog.concat(tenant())");
            if elsewhere {
                world.direct().run(&made);
            } else {
                // What was there before is known by then.
                for _ in 0..3 {
                    assert_eq!(finds(&mut ann), "");
                    ann.run("SELECT 1 + 1");
                }
                ann.run(&made);
            }
            for _ in 0..3 {
                ann.run(way);
                assert_eq!(finds(&mut bob), "", "{way}, {elsewhere}");
                assert_eq!(finds(&mut ann), "ann", "{way}, {elsewhere}");
            }
        }
    }
}

/// Where nobody can tell what they set, whoever may have run one keeps its server.
#[test]
fn what_nobody_names_may_set_what_nobody_can_tell() {
    howdah_only!("it leaks");
    let world = World::pool(2);
    world.direct().run(
        "CREATE FUNCTION abs(a text) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RETURN set_config('app.' || a, 'ann', false); END $$",
    );
    let (mut ann, mut bob) = two(&world);
    let look = "SELECT pg_catalog.concat(pg_catalog.current_setting('app.tenant', true))";
    ann.run("SELECT abs('ten' || 'ant'::text)");
    for _ in 0..3 {
        assert_eq!(bob.value(look), "");
        assert_eq!(ann.value(look), "ann");
    }
    let pins = world.howdah.console("SHOW PINS");
    assert_eq!(pins.rows().len(), 1, "{pins:?}");
}

/// Where such functions leave the session alone, and where there are none, nobody pays.
#[test]
fn names_of_ones_own_that_leave_nothing_pay_nothing() {
    howdah_only!("it never pays");
    let world = World::pool(1);
    world.direct().run(
        "CREATE FUNCTION abs(a text) RETURNS int LANGUAGE sql AS 'SELECT abs(length(a))'; \
         CREATE FUNCTION round(a text, b int) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RETURN round(a::numeric, b); END $$; \
         CREATE OPERATOR + (FUNCTION = textcat, LEFTARG = text, RIGHTARG = text); \
         CREATE TYPE pair AS (a int, b int); \
         CREATE FUNCTION f(a pair) RETURNS int LANGUAGE sql AS 'SELECT a.a'; \
         CREATE CAST (pair AS int) WITH FUNCTION f(pair); \
         CREATE FUNCTION upper(a \"char\") RETURNS text LANGUAGE internal IMMUTABLE STRICT AS 'char_text'; \
         CREATE DOMAIN small AS int CHECK (VALUE < 10)",
    );
    let (mut ann, mut bob) = two(&world);
    let mut count = 0;
    let round = || {
        for client in [&mut ann, &mut bob] {
            count += 1;
            client.run(&format!("SELECT abs('{count}'::text), upper('x'), {count} + 1"));
            client
                .run(&format!("SELECT '({count},1)'::pair::int, 1::small, 'a'::text + 'b'::text"));
            client.ask(&[extended("SELECT round($1::text, 2)", &["1"]), sync()].concat());
            client.run("BEGIN; SELECT now(); COMMIT");
        }
    };
    pays_nothing_in_the_end(&world, round);
}

/// So it is where that stands too deep in a text for it to be read.
#[test]
fn a09_custom_settings_that_only_a_function_names_are_their_clients_however_deep_it_is() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    world.direct().run(
        "CREATE FUNCTION enter(t text) RETURNS text LANGUAGE plpgsql AS \
         $$ BEGIN RETURN set_config('app.tenant', t, false); END $$; \
         CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
         $$ SELECT coalesce(current_setting('app.tenant', true), '') $$",
    );
    let (mut ann, mut bob) = two(&world);
    let (open, close) = ("coalesce(".repeat(100), ")".repeat(100));
    ann.run(&format!("SELECT {open}enter('ann'){close}"));
    assert_eq!(bob.value("SELECT pg_catalog.concat(tenant())"), "");
    assert_eq!(ann.value("SELECT pg_catalog.concat(tenant())"), "ann");
}

/// Expressions are kept as trees, in which no text stands.
#[test]
fn a09_custom_settings_that_only_an_expression_names_are_their_clients() {
    howdah_only!("it leaks");
    let ways = [
        ("CREATE VIEW v AS SELECT set_config('app.tenant', 'ann', false)", "SELECT * FROM v"),
        (
            "CREATE TABLE v (a text DEFAULT set_config('app.tenant', 'ann', false), i int)",
            "INSERT INTO v (i) VALUES (1)",
        ),
        (
            "CREATE TABLE v (i int CHECK (set_config('app.tenant', 'ann', false) <> ''))",
            "INSERT INTO v VALUES (1)",
        ),
    ];
    for (made, way) in ways {
        let world = World::pool(1);
        world.direct().run(&format!(
            "{made}; GRANT ALL ON v TO app; CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
             $$ SELECT coalesce(current_setting('app' || '.tenant', true), '') $$"
        ));
        let (mut ann, mut bob) = two(&world);
        for _ in 0..3 {
            ann.run(way);
            assert_eq!(bob.value("SELECT tenant()"), "", "{way}");
            assert_eq!(ann.value("SELECT tenant()"), "ann", "{way}");
        }
    }
}

/// Nobody can ask for what has no known name: its client keeps its server, and what is there is reset behind it.
#[test]
fn a09_custom_settings_that_nobody_names_stay_with_their_server() {
    howdah_only!("it leaks");
    let pins = |world: &World| world.howdah.rows("SHOW PINS", &[], "reasons").len();
    let ways = [
        ("SELECT put('tenant', 'ann')", 1),
        ("SELECT put('tenant', 'ann') /* s.put */", 1),
        ("SELECT set_config('app.' || 'tenant', 'ann', false)", 1),
        ("SELECT set_config('app.' || 'tenant', 'ann', true)", 0),
        ("DO $$ BEGIN EXECUTE 'SET ' || 'app' || '.tenant = 1'; END $$", 1),
        ("SELECT put_all('app.tenant', 'ann')", 0),
        ("SELECT put_all('work_mem', '96MB')", 0),
        ("SELECT put_all('work_mem', '96MB'), put_all('Work_Mem', '96MB')", 0),
        ("SELECT load_mine()", 1),
        ("SELECT kept('ann')", 0),
        ("SELECT put_kept('app.tenant', 'ann')", 0),
    ];
    for (way, pinned) in ways {
        let world = World::pool(2);
        world.direct().run(
            "CREATE FUNCTION put(a text, b text) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.' || a, b, false) $$; \
             CREATE FUNCTION put_all(a text, b text) RETURNS text LANGUAGE sql AS $$ SELECT set_config($1, $2, false) $$; \
             CREATE TABLE mine AS SELECT 'app.tenant' AS name, 'ann' AS value; GRANT SELECT ON mine TO app; \
             CREATE FUNCTION load_mine() RETURNS void LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN \
             FOR r IN SELECT * FROM mine LOOP PERFORM set_config(r.name, r.value, false); END LOOP; END $$; \
             CREATE FUNCTION kept(a text) RETURNS text BEGIN ATOMIC SELECT set_config('app.tenant', a, false); END; \
             CREATE FUNCTION put_kept(a text, b text) RETURNS text BEGIN ATOMIC SELECT set_config(a, b, false); END; \
             CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
             $$ SELECT coalesce(current_setting('app' || '.tenant', true), '') $$",
        );
        let mut ann = world.client();
        ann.run(way);
        // By then its server has said what there is.
        ann.run("SELECT 1");
        assert_eq!(pins(&world), pinned, "{way}");
        let own = if way.contains("true") || way.contains("work_mem") { "" } else { "ann" };
        let own = if way.contains("DO") { "1" } else { own };
        let mut others = [world.client(), world.client()];
        for _ in 0..3 {
            assert_eq!(others[0].value("SELECT tenant()"), "", "{way}");
            assert_eq!(ann.value("SELECT tenant()"), own, "{way}");
            others[1].run("BEGIN");
            assert_eq!(others[1].value("SELECT tenant()"), "", "{way}");
            assert_eq!(ann.value("SELECT tenant()"), own, "{way}");
            others[1].run("ROLLBACK");
        }
        ann.leave();
        eventually("its server is clean", || pins(&world) == 0);
        for _ in 0..3 {
            assert_eq!(others[0].value("SELECT tenant()"), "", "{way}");
            assert_eq!(others[1].value("SELECT tenant()"), "", "{way}");
        }
    }
}

#[test]
fn a10_values_survive_any_number_of_switches() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let hostile = [
        "",
        "\"$user\", public",
        "a,\"b c\",\"d\"\"e\"",
        "'; DROP TABLE t; --",
        "back\\slash \\' quote",
        "Grüße, \u{1f418}",
        "$$ $1 %s",
    ];
    for value in hostile {
        let literal = value.replace('\'', "''");
        let searchable =
            ann.query(&format!("SELECT set_config('search_path', '{literal}', false)"));
        ann.run(&format!("SELECT set_config('app.thing', '{literal}', false)"));
        for _ in 0..20 {
            assert_eq!(bob.value("SHOW search_path"), "\"$user\", public");
            if searchable.error().is_none() {
                assert_eq!(ann.value("SHOW search_path"), value);
            }
            assert_eq!(ann.value("SHOW app.thing"), value);
        }
    }
}

#[test]
fn a11_a_reset_leads_back_to_the_login() {
    howdah_only!("it refuses such parameters");
    let world = World::pool(1);
    let mut ann = world
        .login()
        .parameter("work_mem", "71MB")
        .parameter("options", "-c lock_timeout=7s -c TimeZone=Asia/Tokyo")
        .enter();
    let mut bob = world.client();
    let mut is_as_at_login = |ann: &mut Raw, after: &str| {
        bob.run("SELECT 1");
        assert_eq!(ann.value("SHOW work_mem"), "71MB", "{after}");
        assert_eq!(ann.value("SHOW lock_timeout"), "7s", "{after}");
        assert_eq!(ann.value("SHOW TimeZone"), "Asia/Tokyo", "{after}");
    };
    is_as_at_login(&mut ann, "the login");
    for reset in ["RESET ALL", "DISCARD ALL", "RESET work_mem", "SET work_mem TO DEFAULT"] {
        ann.run("SET work_mem = '1MB'");
        ann.run("SET TimeZone = 'UTC'");
        ann.run(reset);
        if !reset.ends_with("ALL") {
            ann.run("RESET TimeZone");
        }
        is_as_at_login(&mut ann, reset);
    }
}

#[test]
fn a12_startup_parameters_are_postgresqls_to_judge() {
    howdah_only!("it refuses them all");
    let world = World::pool(1);
    for (name, value, code) in [
        ("extra_float_digits", "1", None),
        ("search_path", "nowhere", None),
        ("no_such_thing", "1", Some("42704")),
        ("work_mem", "lots", Some("22023")),
        ("options", "-c enable_seqscan=maybe", Some("22023")),
    ] {
        for _ in 0..2 {
            let attempt = world.login().parameter(name, value).attempt();
            let error = attempt.err().map(|refused| refused.error());
            let told = error.as_ref().map(|error| (error.severity(), error.code()));
            assert_eq!(told, code.map(|code| ("FATAL", code)), "{name}={value}");
        }
    }
    assert_eq!(world.client().value("SHOW enable_seqscan"), "on");
}

/// What exists on one server only keeps its client there, for as long as it exists.
#[test]
fn a13_what_cannot_follow_pins() {
    howdah_only!("it leaks");
    let world = World::pool(2);
    let pid = "SELECT pg_backend_pid()";
    for (reason, begin, check, end) in [
        (
            "temporary table",
            "CREATE TEMP TABLE mine AS SELECT 1",
            "SELECT * FROM mine",
            "DROP TABLE mine",
        ),
        ("advisory lock", "SELECT pg_advisory_lock(4711)", pid, "SELECT pg_advisory_unlock(4711)"),
        ("holdable cursor", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH c", "CLOSE c"),
        ("temporary table", "SELECT 1 AS i INTO TEMP mine", "SELECT * FROM mine", "DISCARD ALL"),
    ] {
        let (mut ann, mut bob) = two(&world);
        ann.run(begin);
        let server = ann.value(pid);
        for _ in 0..5 {
            assert_ne!(bob.value(pid), server, "{begin}");
            assert!(ann.query(check).error().is_none(), "{begin}");
            assert_eq!(ann.value(pid), server, "{begin}");
        }
        assert_eq!(world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons"), [reason]);
        ann.run(end);
        eventually("it is free again", || {
            world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons").is_empty()
        });
        assert!(bob.query("SELECT * FROM pg_temp.mine").error().is_some());
    }
}

/// A client that leaves takes everything with it.
#[test]
fn a14_who_leaves_leaves_nothing() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    for begin in [
        "SET work_mem = '77MB'",
        "CREATE TEMP TABLE mine (i int)",
        "SELECT pg_advisory_lock(1)",
        "PREPARE p AS SELECT 1",
        "LISTEN ears",
        "SELECT setseed(0.5)",
    ] {
        let mut ann = world.client();
        ann.run(begin);
        ann.leave();
        let mut bob = world.client();
        let clean = "SELECT count(*) FROM pg_settings WHERE source = 'session' AND name <> 'application_name'";
        assert_eq!(bob.value(clean), "0", "{begin}");
        assert_eq!(bob.value("SELECT count(*) FROM pg_prepared_statements WHERE from_sql"), "0");
        assert_eq!(bob.value("SELECT count(*) FROM pg_listening_channels()"), "0", "{begin}");
        let locks =
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        assert_eq!(bob.value(locks), "0", "{begin}");
        assert!(bob.query("SELECT * FROM pg_temp.mine").error().is_some(), "{begin}");
    }
}

/// Clients whose states are equal cost nothing more than those that have none.
#[test]
fn a20_equal_states_are_not_set_again() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    for client in [&mut ann, &mut bob] {
        client.run("SET work_mem = '55MB'");
        client.run("SELECT 1");
    }
    let before = world.statements().len();
    for _ in 0..50 {
        ann.run("SELECT 1");
        bob.run("SELECT 1");
    }
    let statements = world.statements();
    assert_eq!(statements.len() - before, 100, "{:?}", &statements[before..]);
}

#[test]
fn what_the_connect_query_sets_is_where_everybody_begins() {
    howdah_only!("it leaks");
    let world = World::with(1, |setup| {
        setup.database_also("shop", "connect_query='SET work_mem = ''44MB'''")
    });
    let (mut ann, mut bob) = two(&world);
    for _ in 0..3 {
        assert_eq!(ann.value("SHOW work_mem"), "44MB");
        ann.run("SET lock_timeout = 1");
        assert_eq!(bob.value("SHOW work_mem"), "44MB");
        assert_eq!(bob.value("SHOW lock_timeout"), "0");
    }
}

/// A limit of the client's own does not keep the pooler from asking.
#[test]
fn a_short_statement_timeout_does_not_blind_the_pooler() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    for _ in 0..5 {
        ann.query("SET statement_timeout = 1");
        assert_eq!(bob.value("SHOW statement_timeout"), "0");
        assert_eq!(ann.value("SHOW statement_timeout"), "1ms");
        ann.query("SET statement_timeout = 0");
    }
}

#[test]
fn it_can_be_switched_off() {
    howdah_only!("it cannot be switched on");
    let world = World::with(1, |setup| setup.set("track_session_state", 0));
    let (mut ann, mut bob) = two(&world);
    ann.run("SET work_mem = '33MB'");
    assert_eq!(bob.value("SHOW work_mem"), "33MB");
}

/// What sets a server's session goes out with the request that needs it so; a request that ends transactions waits for it.
#[test]
fn what_differs_goes_out_with_the_request() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    ann.run("SET work_mem = '11MB'");
    ann.run("SET TimeZone = 'Asia/Tokyo'");
    for _ in 0..3 {
        for sql in ["SHOW work_mem", "BEGIN; SHOW work_mem; COMMIT"] {
            bob.run("SELECT 1");
            let rows = ann.query(sql).rows();
            assert_eq!(rows[0][0].as_deref(), Some("11MB"), "{sql}");
        }
        bob.run("SELECT 1");
        let asked =
            [parse("", "SHOW TimeZone"), bind("", "", &[]), execute("", 0), sync()].concat();
        assert_eq!(ann.ask(&asked).rows()[0][0].as_deref(), Some("Asia/Tokyo"));
        bob.run("SELECT 1");
        ann.run("BEGIN");
        assert_eq!(ann.value("SHOW work_mem"), "11MB");
        ann.run("COMMIT");
        assert_eq!(
            bob.value("SHOW TimeZone"),
            bob.value("SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
        );
    }
}

/// Where a server refuses what its client is set to, the client's request is not run with something else.
#[test]
fn nothing_runs_where_the_session_cannot_be_set() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let role = format!("lost_{}", world.db);
    world.direct().run(&format!(
        "CREATE ROLE {role}; GRANT {role} TO app; CREATE TABLE t (i int); GRANT ALL ON t TO app"
    ));
    let (mut ann, mut bob) = two(&world);
    ann.run(&format!("SET ROLE {role}"));
    bob.run("SELECT 1");
    world.direct().run(&format!("REVOKE {role} FROM app"));
    let insert =
        [parse("", "INSERT INTO t VALUES (1)"), bind("", "", &[]), execute("", 0), sync()].concat();
    ann.send(&insert);
    assert_eq!(ann.until_closed().tags(), "E");
    assert_eq!(bob.value("SELECT count(*) FROM t"), "0");
    world.direct().run(&format!("DROP ROLE {role}"));
}

/// A server whose guest it plays says nothing before it has been told both, and then that it refuses.
#[test]
fn a_request_goes_out_behind_what_sets_its_server() {
    howdah_only!("it waits for the answer");
    let refuses = Arc::new(AtomicBool::new(false));
    let says_no = refuses.clone();
    let server = FakeServer::start(move |mut guest| {
        if guest.admit().is_none() {
            return;
        }
        while let Some(sql) = guest.read_until(b'Q') {
            let sql = String::from_utf8_lossy(&sql).trim_end_matches('\0').to_owned();
            if !sql.starts_with("SET application_name='ann'") {
                guest.send(&fake::answer(&sql));
                continue;
            }
            let Some(request) = guest.read_until(b'Q') else { return };
            let request = String::from_utf8_lossy(&request).trim_end_matches('\0').to_owned();
            if says_no.load(Ordering::SeqCst) {
                guest.send(&fake::began());
                guest.send(&fake::error("ERROR", "22023", "refused"));
                guest.send(&say::message(b'Z', b"E"));
                guest.send(&fake::error("ERROR", "25P02", "aborted"));
                guest.send(&say::message(b'Z', b"E"));
            } else {
                guest.send(&fake::began());
                guest.send(&fake::parameter("application_name", "ann"));
                guest.send(&say::message(b'C', b"COMMIT\0"));
                guest.send(&fake::ready());
                guest.send(&fake::answer(&request));
            }
        }
    });
    let howdah =
        Setup::new().set("default_pool_size", 1).database("fake", &server.target()).start();
    let login = |name: &str| {
        howdah.login("app", PASSWORD, "fake").parameter("application_name", name).enter()
    };
    let mut bob = login("bob");
    bob.run("SELECT 'bob'");
    let mut ann = login("ann");
    assert_eq!(ann.value("SELECT 1"), "SELECT 1");
    bob.run("SELECT 'bob'");
    refuses.store(true, Ordering::SeqCst);
    ann.send(&say::query("SELECT 2"));
    assert_eq!(ann.until_closed().tags(), "E");
}

/// The client's encoding has not all that its settings hold.
#[test]
fn a_value_that_the_client_could_not_read_follows_it() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("SET app.x = 'ü→€'");
    ann.run("SET client_encoding = LATIN1");
    bob.run("SELECT 1");
    assert_eq!(ann.value("SELECT length(current_setting('app.x'))"), "3");
}

/// Fifty clients of five states on ten servers, all at once: how seldom a server has to be set anew.
#[test]
#[ignore = "a figure, which depends on the machine"]
fn how_often_states_are_set() {
    howdah_only!("it leaks");
    let world = World::pool(10);
    let before = world.statements().len();
    std::thread::scope(|scope| {
        for number in 0..50 {
            let world = &world;
            scope.spawn(move || {
                let mut client = world.client();
                client.run(&format!("SET work_mem = '{}MB'", 20 + number % 5));
                for _ in 0..100 {
                    client.run("SELECT 1");
                }
            });
        }
    });
    let statements = world.statements();
    let set = statements[before..]
        .iter()
        .filter(|said| said.starts_with("BEGIN;") || said.contains("set_config"))
        .count();
    println!("{set} of {}", statements.len() - before);
}

/// Nobody has said the name of the setting in a text: it is a parameter, and comes in two parts.
#[test]
fn custom_settings_whose_names_are_parameters_are_their_clients() {
    howdah_only!("it leaks");
    let set = "SELECT set_config($1, $2, false)";
    let long = format!("app.{}", "x".repeat(44));
    let bound = |name: &str| [bind("", "", &[name, "anns"]), execute("", 0), sync()].concat();
    for (name, part) in [("app.bound", 0), ("app.bound", 14), (&long, 0), (&long, 20)] {
        let world = World::pool(1);
        let (mut ann, mut bob) = (world.client(), world.client());
        let bound = bound(name);
        let (first, rest) = bound.split_at(part);
        ann.send(&[&parse("", set), &say::flush(), first].concat());
        assert_eq!(ann.message().tag, b'1');
        ann.send(rest);
        assert_eq!(ann.until_ready().code(), "");
        let look = format!("SELECT coalesce(current_setting('{name}', true), '')");
        assert_eq!(bob.value(&look), "");
        assert_eq!(ann.value(&look), "anns");
    }
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("PREPARE p AS SELECT set_config($1, $2, false)");
    ann.run("EXECUTE p('app.made', 'anns')");
    assert_eq!(bob.value("SELECT coalesce(current_setting('app.made', true), '')"), "");
    assert_eq!(ann.value("SELECT current_setting('app.made')"), "anns");
}

/// Where names pass through, too.
#[test]
fn custom_settings_are_their_clients_where_names_pass_through() {
    howdah_only!("it leaks");
    let look = "SELECT coalesce(current_setting('app.bound', true), '')";
    let ways = [
        ("SELECT set_config($1, $2, false)", "app.bound"),
        ("SELECT set_config('app.' || $1, $2, false) -- app.bound", "bound"),
    ];
    for (set, name) in ways {
        let world = World::with(1, |setup| setup.set("max_prepared_statements", 0));
        let (mut ann, mut bob) = (world.client(), world.client());
        ann.ask(&[extended(set, &[name, "anns"]), sync()].concat());
        assert_eq!(bob.value(look), "");
        assert_eq!(ann.value(look), "anns");
    }
}

/// What looks like names of settings in one text after the other leaves no list behind in which there is no room.
#[test]
fn what_is_no_setting_is_forgotten() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    world.direct().run("CREATE FUNCTION same(a int) RETURNS int LANGUAGE sql AS 'SELECT $1'");
    let (mut ann, mut bob) = (world.client(), world.client());
    for table in 0..300 {
        ann.run(&format!("SELECT same(t{table}.i) FROM (SELECT 1 AS i) AS t{table}"));
    }
    ann.run("SELECT set_config('app.late', 'anns', false)");
    assert_eq!(bob.value("SELECT coalesce(current_setting('app.late', true), '')"), "");
    assert_eq!(ann.value("SELECT current_setting('app.late')"), "anns");
}

/// A name that was once set stays known to its process, with an empty value, in PostgreSQL itself: a policy takes that for none.
#[test]
fn a_policy_finds_nothing_for_whom_nothing_is_set() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    world.direct().run(
        "CREATE TABLE orders AS SELECT 7 AS tenant; ALTER TABLE orders ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY own ON orders USING (tenant = nullif(current_setting('app.tenant', true), '')::int); \
         GRANT SELECT ON orders TO app",
    );
    let (mut ann, mut bob) = (world.client(), world.client());
    let look = "SELECT count(*) FROM orders";
    for _ in 0..3 {
        assert_eq!(bob.value(look), "0");
        ann.run("SET app.tenant = 7");
        assert_eq!(ann.value(look), "1");
        assert_eq!(bob.value(look), "0");
        ann.run("RESET app.tenant");
        assert_eq!(ann.value(look), "0");
        bob.run("BEGIN; SET LOCAL app.tenant = 7");
        assert_eq!(bob.value(look), "1");
        bob.run("COMMIT");
    }
    let mut own = world.direct_app();
    own.run("BEGIN; SET app.tenant = 7; ROLLBACK");
    assert_eq!(own.value("SELECT current_setting('app.tenant', true) IS NULL"), "f");
}
