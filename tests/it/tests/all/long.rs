//! Texts that are too long to be parsed, or that nobody parses: what they do shows nowhere else than what others do.

use harness::postgres::PASSWORD;
use harness::say::{bind, execute, extended, parse, sync};
use harness::{Raw, World};

/// So many characters stand in front of what is of interest: a text that is parsed, one in one piece, one in several, one
/// in many.
const LENGTHS: [usize; 4] = [17, 17_000, 600_000, 2_500_000];

/// Functions that set `app.tenant`, and one that reads it, whose text does not say its name; so that nobody finds it by
/// that.
const FUNCTIONS: &str = "CREATE FUNCTION enter(t text) RETURNS text LANGUAGE plpgsql AS \
     $$ BEGIN RETURN set_config('app.tenant', t, false); END $$; \
     CREATE FUNCTION give(n text, t text) RETURNS text LANGUAGE plpgsql AS \
     $$ BEGIN RETURN set_config(n, t, false); END $$; \
     CREATE FUNCTION either(a int, b int) RETURNS text LANGUAGE sql AS $$ SELECT enter('ann') $$; \
     CREATE OPERATOR <=#=> (FUNCTION = either, LEFTARG = int, RIGHTARG = int); \
     CREATE FUNCTION found() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ DECLARE r record; \
     BEGIN FOR r IN SELECT c FROM jobs LOOP EXECUTE r.c; END LOOP; END $$; \
     CREATE TABLE jobs AS SELECT 'SET app' || '.tenant = ''ann''' AS c; GRANT SELECT ON jobs TO PUBLIC; \
     CREATE FUNCTION \"Enter it\"(t text) RETURNS text LANGUAGE sql AS 'SELECT enter(t)'; \
     CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
     $$ SELECT concat(current_setting('app' || '.tenant', true), current_setting('app' || '.größe', true), \
     current_setting('app.' || repeat('x', 100), true)) $$";

/// Two clients of so many servers.
fn two(world: &World) -> (Raw, Raw) {
    world.direct().run(FUNCTIONS);
    (world.client(), world.client())
}

/// Texts that set `app.tenant` to `ann`, behind so many characters.
fn ways(length: usize) -> Vec<String> {
    let filler = "x".repeat(length);
    let rows = "(1, 'it''s me'), ".repeat(length / 17);
    vec![
        format!("SELECT length('{filler}'), enter('ann')"),
        format!("SELECT length('{filler}'), give('app.tenant', 'ann')"),
        format!("SELECT length('{filler}'), set_config('app.tenant', 'ann', false)"),
        format!("SELECT set_config('app.{}', 'ann', false) /* {filler} */", "x".repeat(100)),
        format!("SELECT 1 /* it's {filler} \" $$ */, \"Enter it\"('ann')"),
        format!("SELECT $x${filler} $$ ' $x$, enter('ann')"),
        format!("SELECT 1 FROM (VALUES {rows} (1, 'x')) v, enter('ann') LIMIT 1"),
        format!("SELECT 'ann' -- ' {filler}\n, enter('ann')"),
        format!("SELECT E'\\'{filler}', 1 <=#=> 2"),
    ]
}

/// As [`ways`], which only a simple query can say.
fn simple_ways(length: usize) -> Vec<String> {
    let filler = "x".repeat(length);
    vec![
        format!("SELECT length('{filler}'); SET app.tenant = 'ann'"),
        format!("SELECT length('{filler}'); SET SESSION \"app\" . tenant TO ann"),
        format!("DO $$ BEGIN PERFORM length('{filler}'); PERFORM enter('ann'); END $$"),
        format!("DO $$ BEGIN PERFORM length('{filler}'); SET app.tenant = 'ann'; END $$"),
        format!("DO $$ BEGIN PERFORM length('{filler}'); EXECUTE 'SELECT enter(''ann'')'; END $$"),
        format!(
            "DO $$ BEGIN PERFORM length('{filler}'); EXECUTE 'SELECT enter(''' || 'ann' || ''')'; END $$"
        ),
        format!("DO 'BEGIN PERFORM length(''{filler}''); PERFORM \"Enter it\"(''ann''); END'"),
        format!("DO E'BEGIN PERFORM length(\\'{filler}\\');\\nPERFORM\\tenter(\\'ann\\'); END'"),
    ]
}

/// Texts that set it by a name that does not stand in them as it is.
fn veiled_ways(length: usize) -> Vec<String> {
    let filler = "x".repeat(length);
    vec![
        format!("SELECT set_config('app.' || 'tenant', 'ann', false) /* {filler} */"),
        format!("SELECT length('{filler}'), set_config(E'app\\x2etenant', 'ann', false)"),
        format!(
            "SELECT length('{filler}'), set_config(U&'app!002Etenant' UESCAPE '!', 'ann', false)"
        ),
        format!("SELECT length('{filler}'), set_config('app.größe', 'ann', false)"),
        format!("SELECT length('{filler}'); SET app.größe = 'ann'"),
        format!("SELECT length('{filler}'), give('app.gr' || 'öße', 'ann')"),
        format!("SELECT length('{filler}'), found()"),
        format!(
            "DO $$ DECLARE r record; BEGIN PERFORM length('{filler}'); \
             FOR r IN SELECT c FROM jobs LOOP EXECUTE r.c; END LOOP; END $$"
        ),
        format!(
            "DO $$ BEGIN PERFORM length('{filler}'); EXECUTE 'SET app' || '.tenant = ''ann'''; END $$"
        ),
    ]
}

/// What was set is Ann's alone.
fn is_anns(ann: &mut Raw, bob: &mut Raw, what: &str) {
    let end: String = what.chars().rev().take(45).collect();
    let what = format!("{} bytes, …{}", what.len(), end.chars().rev().collect::<String>());
    for _ in 0..2 {
        assert_eq!(bob.value("SELECT pg_catalog.concat(tenant())"), "", "{what}");
        assert_eq!(ann.value("SELECT pg_catalog.concat(tenant())"), "ann", "{what}");
    }
}

#[test]
fn a09_what_a_long_query_sets_is_its_clients() {
    howdah_only!("it leaks");
    for length in LENGTHS {
        for text in ways(length).into_iter().chain(simple_ways(length)) {
            let world = World::pool(1);
            let (mut ann, mut bob) = two(&world);
            ann.run(&text);
            is_anns(&mut ann, &mut bob, &text);
        }
    }
}

#[test]
fn a09_what_a_long_statement_sets_is_its_clients() {
    howdah_only!("it leaks");
    for length in LENGTHS {
        for text in ways(length) {
            let world = World::pool(1);
            let (mut ann, mut bob) = two(&world);
            ann.ask(&[extended(&text, &[]), sync()].concat());
            is_anns(&mut ann, &mut bob, &text);
            ann.run("DISCARD ALL");
            ann.ask(&[parse("p", &text), sync()].concat());
            bob.run("SELECT 1");
            ann.ask(&[bind("", "p", &[]), execute("", 0), sync()].concat());
            is_anns(&mut ann, &mut bob, &text);
        }
    }
}

/// The name of what is set is a parameter, and stands behind a long one.
#[test]
fn a09_what_a_long_bind_sets_is_its_clients() {
    howdah_only!("it leaks");
    for most in [0, 200] {
        for length in LENGTHS {
            for call in ["set_config($2, $3, false)", "give($2, $3)"] {
                let world = World::with(1, |setup| setup.set("max_prepared_statements", most));
                let (mut ann, mut bob) = two(&world);
                let text = format!("SELECT length($1::text), {call}");
                let values = ["x".repeat(length), "app.tenant".to_owned(), "ann".to_owned()];
                let values: Vec<&str> = values.iter().map(String::as_str).collect();
                ann.ask(&[extended(&text, &values), sync()].concat());
                is_anns(&mut ann, &mut bob, &format!("{text}, {length}, {most}"));
            }
        }
    }
}

/// Nobody keeps its statements apart, and so nobody knows what is bound but by what was parsed.
#[test]
fn a09_what_a_statement_sets_is_its_clients_where_statements_are_nobodys() {
    howdah_only!("it leaks");
    let binds = |name: &str| [bind("", name, &[]), execute("", 0), sync()].concat();
    for length in LENGTHS {
        for text in ways(length) {
            let world = World::with(1, |setup| setup.set("max_prepared_statements", 0));
            let (mut ann, mut bob) = two(&world);
            ann.ask(&[extended(&text, &[]), sync()].concat());
            is_anns(&mut ann, &mut bob, &text);
            ann.run("DISCARD ALL");
            let parses = [parse("p", "SELECT 1"), parse("q", &text), sync()].concat();
            assert_eq!(ann.ask(&parses).tags(), "11Z");
            bob.run("SELECT 1");
            // There is one server, which has them both, and the one of the last Parse.
            ann.ask(&binds("p"));
            ann.ask(&binds("q"));
            is_anns(&mut ann, &mut bob, &text);
        }
    }
}

/// Nobody can ask for it: who sets it keeps its server, and what is there is reset behind it.
#[test]
fn a09_what_no_text_names_as_it_is_stays_with_its_server() {
    howdah_only!("it leaks");
    for length in [17, 17_000, 600_000] {
        for text in veiled_ways(length) {
            let world = World::pool(2);
            let (mut ann, mut bob) = two(&world);
            ann.run(&text);
            is_anns(&mut ann, &mut bob, &text);
            let pins = world.howdah.rows("SHOW PINS", &[], "reasons");
            assert_eq!(pins, ["unknown"], "{text:.80}");
            ann.leave();
            let mut carl = world.client();
            carl.run("BEGIN");
            bob.run("BEGIN");
            for client in [&mut bob, &mut carl] {
                assert_eq!(client.value("SELECT pg_catalog.concat(tenant())"), "", "{text:.80}");
            }
        }
    }
}

/// So it is with what a parameter says, and with a function that is called by its number.
#[test]
fn a09_what_no_parameter_names_as_it_is_stays_with_its_server() {
    howdah_only!("it leaks");
    let set = extended("SELECT set_config($1, $2, false)", &["app.größe", "ann"]);
    let mut call = 2078_u32.to_be_bytes().to_vec();
    call.extend_from_slice(&[0, 0, 0, 3]);
    for value in ["app.größe", "ann", "f"] {
        call.extend_from_slice(&u32::try_from(value.len()).expect("short").to_be_bytes());
        call.extend_from_slice(value.as_bytes());
    }
    call.extend_from_slice(&[0, 0]);
    for message in [[set, sync()].concat(), harness::say::message(b'F', &call)] {
        let world = World::pool(2);
        let (mut ann, mut bob) = two(&world);
        let reply = ann.ask(&message);
        assert!(reply.error().is_none(), "{reply:?}");
        is_anns(&mut ann, &mut bob, "by its number, or a parameter");
        assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), ["unknown"]);
    }
}

/// How strings end depends on settings, and on the encoding.
#[test]
fn a09_what_is_set_in_other_spellings_is_its_clients() {
    howdah_only!("it leaks");
    for length in [17, 17_000, 600_000] {
        let world = World::pool(1);
        let (mut ann, mut bob) = two(&world);
        ann.run("SET standard_conforming_strings = off; SET escape_string_warning = off");
        let text = format!("SELECT '\\'{}', enter('ann')", "x".repeat(length));
        ann.run(&text);
        is_anns(&mut ann, &mut bob, &text);
        let world = World::pool(1);
        world.direct().run(FUNCTIONS);
        let login = world.howdah.login("app", PASSWORD, "shop");
        let (mut ann, mut bob) =
            (login.parameter("client_encoding", "SJIS").enter(), world.client());
        let text = format!("SELECT '{}', enter('ann')", "表".repeat(length));
        let bytes = text.replace('表', "\u{1}");
        let mut query = Vec::new();
        for byte in bytes.bytes() {
            match byte {
                1 => query.extend([0x95, 0x5c]),
                byte => query.push(byte),
            }
        }
        ann.ask(&harness::say::message(b'Q', &[&query[..], &[0]].concat()));
        is_anns(&mut ann, &mut bob, &text);
    }
}

/// What nobody can ask for: a seed stays with its client, and so does what a library leaves.
#[test]
fn seeds_in_long_texts_stay_with_their_server() {
    howdah_only!("it leaks");
    for length in [17, 17_000, 600_000] {
        let world = World::pool(2);
        let mut ann = world.client();
        ann.run(&format!("SELECT length('{}'), setseed(0.5)", "x".repeat(length)));
        ann.run("SELECT 1");
        assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), ["seed"], "{length}");
    }
}

/// What is prepared behind a change is analysed anew, and finds it.
#[test]
fn what_a_long_text_changes_counts_at_once() {
    howdah_only!("it does not know");
    for length in [17, 17_000, 600_000] {
        let world = World::pool(1);
        world.direct().run("GRANT ALL ON SCHEMA public TO app");
        let (mut ann, mut bob) = two(&world);
        ann.run("CREATE TABLE t AS SELECT 1 AS i");
        let rows = |name: &str| {
            let messages = [parse(name, "TABLE t"), bind("", name, &[]), execute("", 0), sync()];
            messages.concat()
        };
        assert_eq!(ann.ask(&rows("p")).tags(), "12DCZ");
        let filler = "x".repeat(length);
        bob.run(&format!("SELECT length('{filler}'); ALTER TABLE t ADD COLUMN j int DEFAULT 2"));
        let mut carl = world.client();
        carl.run("BEGIN");
        let reply = carl.ask(&rows("p"));
        assert_eq!(reply.rows(), [[Some("1".to_owned()), Some("2".to_owned())]], "{length}");
    }
}

/// Rows that are loaded by long texts say words and names of many things, and touch nothing.
#[test]
fn long_texts_that_load_rows_pin_nobody() {
    howdah_only!("it never pins");
    let world = World::pool(2);
    world.direct().run("CREATE TABLE t (i int, s text); GRANT ALL ON t TO app");
    let (mut ann, mut bob) = two(&world);
    for round in 0..3 {
        let row = |i: usize| {
            format!(
                "({i}, 'word{i} set_config example{round}.com do execute set app.x{i} {{}} \"f(\" $$'), "
            )
        };
        let dotted = |i: usize| format!("({i}, lower('example{i}.com')), ");
        for length in [300, 5000] {
            let rows: String = (0..length).map(row).collect();
            let names: String = (0..length).map(dotted).collect();
            let text = format!(
                "INSERT INTO public.t (i, s) VALUES {rows} {names} (0, upper('ä')) ON CONFLICT DO NOTHING"
            );
            for client in [&mut ann, &mut bob] {
                client.run(&text);
                client.ask(&[extended(&text, &[]), sync()].concat());
            }
        }
    }
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), [""; 0]);
}

/// What somebody parsed without a name is over when another text is parsed so.
#[test]
fn what_others_parsed_is_nobodys_where_statements_are_nobodys() {
    howdah_only!("it never pins");
    let world = World::with(1, |setup| setup.set("max_prepared_statements", 0));
    let (mut ann, mut bob) = two(&world);
    let veiled = "SELECT set_config(k, 'ann', false) FROM (SELECT 'app.' || 'tenant' AS k) AS q";
    ann.ask(&[extended(veiled, &[]), sync()].concat());
    assert_eq!(ann.value("SELECT pg_catalog.concat(tenant())"), "ann");
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), ["unknown"]);
    ann.leave();
    for _ in 0..3 {
        bob.ask(&[extended("SELECT 1 + 1", &[]), sync()].concat());
        assert_eq!(bob.value("SELECT pg_catalog.concat(tenant())"), "");
    }
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), [""; 0]);
}

/// There is more to be said of a table of many parts, and of many tables of one name, than is asked for at once.
#[test]
fn large_schemas_pin_nobody() {
    howdah_only!("it never pins");
    let world = World::pool(1);
    world.direct().run(
        "CREATE TABLE parts (i int, t text DEFAULT upper('x')) PARTITION BY LIST (i); GRANT ALL ON parts TO app; \
         CREATE TABLE own (i serial, t text); GRANT ALL ON own TO app; GRANT ALL ON own_i_seq TO app; \
         CREATE FUNCTION same(a int) RETURNS int LANGUAGE sql AS 'SELECT $1'",
    );
    for hundred in 0..11 {
        world.direct().run(&format!(
            "DO $$ BEGIN FOR i IN {} .. {} LOOP EXECUTE format('CREATE TABLE parts_%s PARTITION OF parts FOR VALUES IN (%s)', i, i); \
             EXECUTE format('CREATE SCHEMA s%s CREATE TABLE own (i serial, t text)', i); \
             EXECUTE format('CREATE FUNCTION s%s.same(a int) RETURNS int LANGUAGE sql AS ''SELECT $1''', i); END LOOP; END $$",
            100 * hundred,
            100 * hundred + 99
        ));
    }
    let (mut ann, mut bob) = (world.client(), world.client());
    let words: String = (0..60).map(|i| format!("same({i}) AS column_{i}, ")).collect();
    for client in [&mut ann, &mut bob] {
        client.run("INSERT INTO parts (i) VALUES (7)");
        client.run(&format!("SELECT {words} o.t FROM own AS o, parts AS p WHERE p.i = 7"));
        client.run("INSERT INTO own (t) VALUES ('x')");
    }
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), [""; 0]);
}
