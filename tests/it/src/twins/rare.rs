//! What is rarer in an application's life: tables that change, portals that are left half read, settings made in disguise,
//! texts too long to be read, large objects, dice.

use super::{Act, Life};
use crate::say;

/// Ways to set `work_mem` that do not begin with SET.
const DISGUISES: &[&str] = &[
    "UPDATE pg_settings SET setting = '15000' WHERE name = 'work_mem'",
    "SELECT set_config(name, '16MB', false) FROM (VALUES ('work_mem')) v(name)",
    "DO $$ BEGIN EXECUTE 'SET work_mem = ''17MB'''; END $$",
    "SELECT CASE WHEN true THEN set_config('work_mem', '18MB', false) END",
    "COPY (SELECT set_config('work_mem', '24MB', false)) TO STDOUT",
    "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT set_config('work_mem', '25MB', false)",
    "SELECT set_config('work_mem', '26MB', false) FROM generate_series(1, 0)",
    "WITH s AS MATERIALIZED (SELECT set_config('work_mem', '28MB', false)) SELECT count(*) FROM s",
    "INSERT INTO own SELECT 9, set_config('work_mem', '29MB', false)",
    "VALUES (set_config('work_mem', '30MB', false))",
    "SELECT 1 WHERE set_config('search_path', 'two', false) IS NULL",
    "CREATE TEMP TABLE w AS SELECT set_config('work_mem', '23MB', false) AS v",
    "DROP TABLE IF EXISTS w",
    "SELECT count(*) FROM own WHERE set_config('geqo_seed', '0.7', false) = ''",
    "SELECT query_to_xml('SELECT set_config(''work_mem'', ''35MB'', false)', false, false, '') IS NULL",
    "DECLARE e CURSOR WITH HOLD FOR SELECT set_config('work_mem', '27MB', false)",
    "FETCH e",
    "CLOSE e",
    "SHOW work_mem",
    "SHOW work_mem",
    "SELECT current_setting('search_path'), current_setting('geqo_seed')",
];

/// In one go, for a process that has had a temporary schema says another thing of what is missing there.
const OF_NOBODY_ELSE: &str = "\
    CREATE OR REPLACE FUNCTION pg_temp.f() RETURNS text LANGUAGE sql SET work_mem = '19MB' \
    AS 'SELECT current_setting(''work_mem'')'; SELECT pg_temp.f(), current_setting('work_mem')";

pub(super) fn disguise(life: &mut Life) -> Act {
    if life.one_in(20) {
        return Act::query(OF_NOBODY_ELSE);
    }
    let sql = life.pick(DISGUISES);
    life.say(sql)
}

/// The pair's own table becomes another, under what was prepared.
pub(super) fn change(life: &mut Life) -> Act {
    let sql = life.pick(&[
        "ALTER TABLE own ADD COLUMN more int",
        "ALTER TABLE own DROP COLUMN IF EXISTS more",
        "ALTER TABLE own ALTER COLUMN i TYPE bigint",
        "ALTER TABLE own ALTER COLUMN i TYPE int",
        "ALTER TABLE own ALTER COLUMN t TYPE varchar(70)",
        "ALTER TABLE own ALTER COLUMN t TYPE text",
        "ALTER TABLE own RENAME COLUMN i TO j",
        "ALTER TABLE own RENAME COLUMN j TO i",
        "CREATE INDEX ON own (t)",
        "CREATE TRIGGER fires BEFORE INSERT ON own FOR EACH ROW EXECUTE FUNCTION fires()",
        "CREATE OR REPLACE TRIGGER fires AFTER UPDATE ON own EXECUTE FUNCTION fires()",
        "DROP TRIGGER IF EXISTS fires ON own",
        "ALTER TABLE own DISABLE TRIGGER ALL",
        "ALTER TABLE own ENABLE TRIGGER ALL",
        "ALTER TABLE own ADD COLUMN counts serial",
        "ALTER TABLE own DROP COLUMN IF EXISTS counts",
        "LOCK TABLE own IN SHARE MODE",
        "ANALYZE own",
    ]);
    life.say(sql)
}

/// What stands on such a table. SQL never executes it: there what it returns is told with it, so that it may change.
pub(super) fn standing(life: &mut Life) -> Act {
    let name = life.pick(&["r1", "r2", ""]);
    let text = life.pick(&[
        "SELECT * FROM own ORDER BY t LIMIT 2",
        "INSERT INTO own (t) VALUES ('stands') RETURNING *",
        "UPDATE own SET t = t WHERE i = 1 RETURNING i",
        "TABLE place",
    ]);
    let text = life.mine(text);
    let use_it = [say::bind("", name, &[]), say::describe_portal(""), say::execute("", 0)].concat();
    let (what, messages) = match life.dice.below(3) {
        0 => (
            format!("close, parse, run {name} as {text}"),
            vec![say::close_statement(name), say::parse(name, &text), use_it],
        ),
        // Of what nobody was told, nothing else can be said later.
        1 => (
            format!("parse, describe {name} as {text}"),
            vec![say::parse(name, &text), say::describe_statement(name)],
        ),
        _ => (format!("run {name}"), vec![use_it]),
    };
    Act { what, bytes: [messages.concat(), say::sync()].concat(), readies: 1 }
}

/// Portals by names that cursors have, too.
pub(super) fn portal(life: &mut Life) -> Act {
    let (name, other) = (life.pick(&["c", "d", ""]), life.pick(&["c", "x"]));
    let rows = life.pick(&[0, 1, 3]);
    let series = say::parse("", "SELECT generate_series(1, 9)");
    // PostgreSQL 15 crashes where one is used whose transaction has failed.
    let choices = if life.status == 'E' { 2 } else { 6 };
    let (what, messages) = match life.dice.below(choices) {
        0 | 1 => (
            format!("{rows} rows of new {name:?}"),
            vec![series, say::bind(name, "", &[]), say::execute(name, rows)],
        ),
        2 => (format!("{rows} rows of {name:?}"), vec![say::execute(name, rows)]),
        3 => (format!("describe {name:?}"), vec![say::describe_portal(name)]),
        4 => (format!("close portal {name:?}"), vec![say::close_portal(name)]),
        _ => (
            format!("{rows} rows of new {name:?} and new {other:?} in turn"),
            vec![
                series,
                say::bind(name, "", &[]),
                say::parse("", "SELECT current_setting('work_mem') FROM generate_series(1, 3)"),
                say::bind(other, "", &[]),
                say::execute(name, rows),
                say::execute(other, 1),
                say::execute(name, rows),
                say::execute(other, 0),
            ],
        ),
    };
    Act { what, bytes: [messages.concat(), say::sync()].concat(), readies: 1 }
}

/// Fast-path calls, of `int4pl` and of `set_config` itself.
pub(super) fn call(life: &mut Life) -> Act {
    const SET_CONFIG: i32 = 2078;
    const INT4PL: i32 = 177;
    let bytes = match life.dice.below(3) {
        0 => say::call(INT4PL, &[&7_i32.to_be_bytes(), &8_i32.to_be_bytes()]),
        1 => say::call(SET_CONFIG, &[b"work_mem", b"36MB", &[0]]),
        _ => say::call(SET_CONFIG, &[b"work_mem", b"37MB", &[1]]),
    };
    Act { what: format!("call {:?}", String::from_utf8_lossy(&bytes)), bytes, readies: 1 }
}

/// Texts longer than anybody reads.
pub(super) fn length(life: &mut Life) -> Act {
    let end = life.pick(&[
        "1",
        "set_config('work_mem', '38MB', false)",
        "pg_try_advisory_xact_lock(KEY)",
        "nextval('SEQ')",
        "1; SET work_mem = '39MB'",
        "1; CREATE TEMP TABLE IF NOT EXISTS t (i int)",
        "1; PREPARE p1 AS SELECT 5",
        "1; BEGIN",
        "1; COMMIT",
        "1/0",
        "set_config('app.x', 'long', false)",
        "1; SET \"app\" . x = 'longer'",
        "put('app.x', 'from afar', false)",
        "public.named()",
        "public.twice(2)",
        "public.deeds(3)",
        "got('app.x')",
        "1; CREATE TABLE long_ME (i int); DROP TABLE long_ME",
    ]);
    let length = life.pick(&[17_000, 300_000]);
    let end = end.replace("SEQ", &format!("seq_{}", life.me));
    let end = end.replace("ME", &life.me.to_string());
    let end = end.replace("KEY", &(100 * life.me).to_string());
    let sql = format!("SELECT length('{}'), {end}", "x".repeat(length));
    let mut act = if end.contains(';') { Act::query(&sql) } else { life.say(&sql) };
    act.what = format!("SELECT length('x… ({length} bytes)'), {end}");
    act
}

pub(super) fn large_object(life: &mut Life) -> Act {
    let id = 5000 + life.me;
    let sql = life.pick(&[
        "SELECT lo_create(ID)",
        "SELECT lo_unlink(ID)",
        "SELECT lo_from_bytea(ID, 'abc')",
        "SELECT lo_get(ID)",
        "SELECT lo_put(ID, 1, 'xyz')",
        "SELECT lo_open(ID, 131072)",
        "SELECT loread(0, 2)",
        "SELECT lo_close(0)",
    ]);
    life.say(&sql.replace("ID", &id.to_string()))
}

/// Random numbers that are not.
pub(super) fn seed(life: &mut Life) -> Act {
    let seed = life.say("SELECT setseed(0.25)");
    let numbers: Vec<Act> =
        (0..2).map(|_| life.say("SELECT round(random()::numeric, 6)")).collect();
    numbers.iter().fold(seed, Act::then)
}

/// COPY by the extended protocol.
pub(super) fn copy(life: &mut Life) -> Act {
    let (into, end) = (
        life.mine("COPY own (t) FROM STDIN"),
        if life.one_in(3) { say::copy_fail("not now") } else { say::copy_done() },
    );
    let begun = [say::parse("", &into), say::bind("", "", &[]), say::execute("", 0)].concat();
    // Who executes it later does not end it.
    let gone = [say::close_statement(""), say::sync()].concat();
    let bytes = [begun, say::copy_data(b"extended\n"), end, say::sync(), gone].concat();
    Act { what: format!("extended {into}"), bytes, readies: 2 }
}

/// Several statements in one simple query, with what lasts.
pub(super) fn medley(life: &mut Life) -> Act {
    let count = 2 + life.dice.below(4);
    let name = format!("channel_{}_0", life.me);
    // What ends a failed transaction and goes on in one text cannot execute what only the protocol has prepared.
    let execute = if life.status == 'E' { "EXECUTE p1" } else { "EXECUTE s1" };
    // What a RESET in the midst of a text leads back to is known to differ.
    let reset = if life.asked.is_some() { "SHOW search_path" } else { "RESET search_path" };
    let mut texts: Vec<String> = (0..count)
        .map(|_| {
            life.pick(&[
                "BEGIN",
                "SET LOCAL work_mem = '41MB'",
                "SET work_mem = '42MB'",
                "SELECT set_config('work_mem', '43MB', true)",
                "SET LOCAL search_path = one",
                "SET LOCAL search_path = 'two'",
                "INSERT INTO deed VALUES (2)",
                reset,
                "SET ROLE twin_a",
                "RESET ROLE",
                "SELECT current_user",
                // Neither savepoints nor AND CHAIN: PostgreSQL 15 ends the session of some such texts.
                "COMMIT",
                "ROLLBACK",
                "LISTEN channel",
                "UNLISTEN *",
                "NOTIFY channel, 'of a medley'",
                "DISCARD TEMP",
                "DISCARD PLANS",
                "EXECUTE p1",
                "PREPARE p1 AS SELECT current_setting('work_mem')",
                "DEALLOCATE p1",
                "SELECT pg_try_advisory_xact_lock(KEY)",
                "SHOW work_mem",
                "SELECT count(*) FROM own",
                "SELECT 1/0",
                "SET CONSTRAINTS ALL DEFERRED",
                "SHOW search_path",
            ])
            .replace("channel", &name)
            .replace("KEY", &(100 * life.me).to_string())
        })
        .collect();
    if life.one_in(4) {
        // Only at the end: it may be a COMMIT, and PostgreSQL ends the session of who says another behind it.
        texts.push(execute.to_owned());
    }
    let sql = life.mine(&texts.join("; "));
    Act::query(&sql)
}
