//! Functions that run what they are told: what that calls stands in no text but as a string, or as a value.

use harness::say::{bind, execute, extended, parse, sync};
use harness::{Raw, World};

/// No sequence has given this session anything.
const GONE: &str = "55000";

/// A function that sets `app.tenant`, and others that run what they are told.
const FUNCTIONS: &str = "CREATE FUNCTION enter(t text) RETURNS text LANGUAGE plpgsql AS \
     $$ BEGIN RETURN set_config('app.tenant', t, false); END $$; \
     CREATE FUNCTION enter() RETURNS text LANGUAGE sql AS $$ SELECT enter('ann') $$; \
     CREATE FUNCTION run(c text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE c; END $$; \
     CREATE FUNCTION relay(c text) RETURNS void LANGUAGE sql AS 'SELECT run(c)'; \
     CREATE FUNCTION call(f text) RETURNS void LANGUAGE plpgsql AS \
     $$ BEGIN EXECUTE format('SELECT %I(''ann'')', f); END $$; \
     CREATE PROCEDURE work(c text) LANGUAGE plpgsql AS $$ BEGIN EXECUTE c; END $$; \
     CREATE FUNCTION quotes(t text) RETURNS void LANGUAGE plpgsql AS \
     $$ BEGIN EXECUTE 'SELECT enter(''' || t || ''')'; END $$; \
     CREATE FUNCTION answer(c text) RETURNS text LANGUAGE plpgsql AS \
     $$ DECLARE v text; BEGIN EXECUTE c INTO v; RETURN v; END $$; \
     CREATE TABLE marked (i int); GRANT ALL ON marked TO PUBLIC; \
     CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM enter(); RETURN NEW; END $$; \
     CREATE TRIGGER mark BEFORE INSERT ON marked FOR EACH ROW EXECUTE FUNCTION mark(); \
     CREATE FUNCTION job(j jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE j->>'cmd'; END $$; \
     CREATE FUNCTION run_all(c text[]) RETURNS void LANGUAGE plpgsql AS $$ DECLARE one text; BEGIN \
     FOREACH one IN ARRAY c LOOP EXECUTE one; END LOOP; END $$; \
     CREATE FUNCTION \"EnterIt\"(t text) RETURNS text LANGUAGE sql AS 'SELECT enter(t)'; \
     CREATE FUNCTION \"войти\"(t text) RETURNS text LANGUAGE sql AS 'SELECT enter(t)'; \
     CREATE FUNCTION nightly() RETURNS void LANGUAGE sql AS $$ SELECT call('enter') $$; \
     CREATE EXTENSION tablefunc; \
     CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS \
     $$ SELECT concat(current_setting('app' || '.tenant', true)) $$";

/// What is told, and to whom.
const COMMANDS: [(&str, &str); 14] = [
    ("SELECT run($1)", "SELECT enter('ann')"),
    ("SELECT relay($1)", "select \"enter\"()"),
    ("SELECT call($1)", "enter"),
    ("SELECT quotes($1)", "ann"),
    ("CALL work($1)", "SELECT enter()"),
    ("SELECT run($1)", "INSERT INTO marked VALUES (1)"),
    ("SELECT job($1)", "{\"cmd\":\"SELECT enter('ann')\"}"),
    ("SELECT job($1)", "{\"cmd\": \"SELECT 1,\\nenter()\"}"),
    ("SELECT run_all($1)", "{\"SELECT enter()\"}"),
    ("SELECT call($1)", "EnterIt"),
    ("SELECT call($1)", "войти"),
    ("SELECT length($1), nightly()", "x"),
    ("SELECT query_to_xml($1, true, true, '')", "SELECT enter()"),
    ("SELECT * FROM crosstab($1) AS t (a text, b text)", "SELECT enter(), 'a'::text, 'b'::text"),
];

fn two(world: &World) -> (Raw, Raw) {
    world.direct().run(FUNCTIONS);
    (world.client(), world.client())
}

/// What was set is Ann's alone.
fn is_anns(ann: &mut Raw, bob: &mut Raw, what: &str) {
    for _ in 0..2 {
        assert_eq!(bob.value("SELECT tenant()"), "", "{what}");
        assert_eq!(ann.value("SELECT tenant()"), "ann", "{what}");
    }
}

fn with_literal(text: &str, command: &str) -> String {
    text.replace("$1", &format!("'{}'", command.replace('\'', "''")))
}

#[test]
fn a09_what_a_function_is_told_to_set_is_its_clients() {
    howdah_only!("it leaks");
    for (text, command) in COMMANDS {
        let text = with_literal(text, command);
        for most in [0, 200] {
            let world = World::with(1, |setup| setup.set("max_prepared_statements", most));
            let (mut ann, mut bob) = two(&world);
            ann.run(&text);
            is_anns(&mut ann, &mut bob, &text);
            ann.run("DISCARD ALL");
            ann.ask(&[extended(&text, &[]), sync()].concat());
            is_anns(&mut ann, &mut bob, &text);
        }
    }
}

#[test]
fn a09_what_a_function_is_told_by_a_parameter_is_its_clients() {
    howdah_only!("it leaks");
    for (text, command) in COMMANDS {
        for most in [0, 200] {
            let world = World::with(1, |setup| setup.set("max_prepared_statements", most));
            let (mut ann, mut bob) = two(&world);
            ann.ask(&[extended(text, &[command]), sync()].concat());
            is_anns(&mut ann, &mut bob, text);
            // As steady traffic, which is known.
            ann.run("RESET app.tenant");
            ann.ask(&[parse("p", text), bind("", "p", &["x"]), execute("", 0), sync()].concat());
            ann.ask(&[bind("", "p", &[command]), execute("", 0), sync()].concat());
            is_anns(&mut ann, &mut bob, text);
        }
        let world = World::pool(1);
        let (mut ann, mut bob) = two(&world);
        ann.run(&format!("PREPARE p AS {}", text.replace("CALL work", "SELECT run")));
        bob.run("SELECT 1");
        // That of another who says the same with other words is his.
        bob.run(&format!("PREPARE p AS {}", text.replace("CALL work", "SELECT run")));
        bob.query(&with_literal("EXECUTE p($1)", "1"));
        bob.run("DISCARD ALL");
        ann.run(&with_literal("EXECUTE p($1)", command));
        is_anns(&mut ann, &mut bob, text);
        ann.run("RESET app.tenant");
        ann.ask(&[bind("", "p", &[command]), execute("", 0), sync()].concat());
        is_anns(&mut ann, &mut bob, text);
    }
}

/// What a client has prepared by SQL tells what its text says, however it is run.
#[test]
fn a09_what_a_prepared_statement_tells_is_its_clients() {
    howdah_only!("it leaks");
    for text in ["SELECT enter('ann')", "SELECT run('SELECT enter()')", "SELECT call('enter')"] {
        let ways: [fn() -> Vec<u8>; 3] = [
            || harness::say::query("EXECUTE p"),
            || [bind("", "p", &[]), execute("", 0), sync()].concat(),
            || [extended("EXECUTE p", &[]), sync()].concat(),
        ];
        for (way, how) in ways.into_iter().zip(["simple", "bind", "extended"]) {
            for most in [0, 200] {
                let world = World::with(1, |setup| setup.set("max_prepared_statements", most));
                let (mut ann, mut bob) = two(&world);
                ann.run(&format!("PREPARE p AS {text}"));
                bob.run("SELECT 1");
                let reply = ann.ask(&way());
                assert!(reply.error().is_none(), "{text}: {reply:?}");
                is_anns(&mut ann, &mut bob, &format!("{text}, {how}, {most}"));
            }
        }
    }
}

/// What is prepared and executed where nobody keeps statements apart says names, too.
#[test]
fn a09_what_is_executed_where_statements_are_nobodys_is_its_clients() {
    howdah_only!("it leaks");
    let world = World::with(2, |setup| setup.set("max_prepared_statements", 0));
    let (mut ann, mut bob) = two(&world);
    ann.run("PREPARE p (text, text) AS SELECT set_config($1, $2, false)");
    bob.run("SELECT 1");
    ann.ask(&[extended("EXECUTE p('app.tenant', 'ann')", &[]), sync()].concat());
    is_anns(&mut ann, &mut bob, "a setting");
    ann.run("DISCARD ALL");
    ann.run("BEGIN");
    for text in ["PREPARE p AS SELECT enter('ann')", "EXECUTE p"] {
        let reply = ann.ask(&[extended(text, &[]), sync()].concat());
        assert!(reply.error().is_none(), "{text}: {reply:?}");
    }
    ann.run("COMMIT");
    is_anns(&mut ann, &mut bob, "in one transaction");
}

/// So it is with arrays in their binary form.
#[test]
fn a09_what_a_binary_value_tells_is_its_clients() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = two(&world);
    let command = b"SELECT enter()";
    let mut array = Vec::new();
    // One dimension, no NULLs, of text, one element from 1 on.
    for number in [1_u32, 0, 25, 1, 1, 14] {
        array.extend_from_slice(&number.to_be_bytes());
    }
    array.extend_from_slice(command);
    let mut bind = b"\0\0\0\x01\0\x01\0\x01".to_vec();
    bind.extend_from_slice(&u32::try_from(array.len()).expect("short").to_be_bytes());
    bind.extend_from_slice(&array);
    bind.extend_from_slice(b"\0\0");
    let bind = harness::say::message(b'B', &bind);
    let reply = ann.ask(&[parse("", "SELECT run_all($1)"), bind, execute("", 0), sync()].concat());
    assert!(reply.error().is_none(), "{reply:?}");
    is_anns(&mut ann, &mut bob, "an array");
}

/// What is put together of several strings is found in each; of a long one, nobody knows.
#[test]
fn a09_what_is_told_in_pieces_is_its_clients() {
    howdah_only!("it leaks");
    let long = format!("SELECT length('{}'), enter('ann')", "x".repeat(20_000));
    for text in [
        "SELECT run('SELECT ' || 'enter(' || quote_literal('ann') || ')')".to_owned(),
        "SELECT run('SELECT enter(''' || 'ann' || ''')')".to_owned(),
        "SELECT run(format('SELECT %I(%L)', 'enter', 'ann'))".to_owned(),
        "SELECT run(E'SELECT\\nenter(\\'ann\\')')".to_owned(),
        "SELECT run($a$DO $b$BEGIN PERFORM run('SELECT enter()'); END$b$$a$)".to_owned(),
        with_literal("SELECT run($1)", &long),
    ] {
        let world = World::pool(if text.len() > long.len() { 2 } else { 1 });
        let (mut ann, mut bob) = two(&world);
        ann.run(&text);
        is_anns(&mut ann, &mut bob, &text);
    }
    let world = World::pool(2);
    let (mut ann, mut bob) = two(&world);
    ann.ask(&[extended("SELECT run($1)", &[&long]), sync()].concat());
    is_anns(&mut ann, &mut bob, "a long value");
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), ["unknown"]);
}

/// What nobody can ask for afterwards stays with its server.
#[test]
fn seeds_that_are_told_stay_with_their_server() {
    howdah_only!("it leaks");
    for most in [0, 200] {
        let world = World::with(2, |setup| setup.set("max_prepared_statements", most));
        let (mut ann, mut bob) = two(&world);
        ann.run("SELECT run('SELECT setseed(0.5)')");
        bob.ask(&[extended("SELECT run($1)", &["SELECT setseed(0.5)"]), sync()].concat());
        for client in [&mut ann, &mut bob] {
            client.run("SELECT 1");
        }
        assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), ["seed"; 2]);
    }
}

/// Ann was given something by a sequence. What `answer()` does is known by then.
fn given() -> (World, Raw, Raw) {
    let world = World::pool(1);
    world.direct().run(
        "CREATE SEQUENCE s; GRANT ALL ON s TO app; \
         CREATE FUNCTION last() RETURNS bigint LANGUAGE sql AS 'SELECT lastval()'",
    );
    let (mut ann, mut bob) = two(&world);
    bob.run("SELECT answer('SELECT 7')");
    ann.run("SELECT nextval('s')");
    (world, ann, bob)
}

#[test]
fn what_is_told_finds_nothing_that_another_was_given() {
    howdah_only!("it leaks");
    for read in ["SELECT lastval()", "SELECT last()"] {
        let literal = harness::say::query(&with_literal("SELECT answer($1)", read));
        let value = [extended("SELECT answer($1)", &[read]), sync()].concat();
        for message in [literal, value] {
            let (_world, mut ann, mut bob) = given();
            assert_eq!(bob.ask(&message).code(), GONE, "{read}");
            bob.run("PREPARE p (text) AS SELECT answer($1)");
            bob.run("EXECUTE p('SELECT 7')");
            ann.run("SELECT nextval('s')");
            let executes = harness::say::query(&with_literal("EXECUTE p($1)", read));
            assert_eq!(bob.ask(&executes).code(), GONE, "{read}");
        }
        let (_world, _ann, mut bob) = given();
        let long = "x".repeat(100_000);
        let text = "SELECT answer($1), length($2)";
        let reply = bob.ask(&[extended(text, &[read, &long]), sync()].concat());
        assert_eq!(reply.code(), GONE, "{read}, a long Bind");
    }
}

/// Functions that put their commands together do so every day.
#[test]
fn functions_that_run_what_they_are_told_pin_nobody() {
    howdah_only!("it never pins");
    let world = World::pool(2);
    world.direct().run(
        "CREATE TABLE t (i int, s text); GRANT ALL ON t TO app; \
         CREATE FUNCTION rows(t text, like_s text) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN \
         EXECUTE 'SELECT count(*) FROM ' || quote_ident(t) || ' WHERE s LIKE $1' INTO n USING like_s; RETURN n; END $$; \
         CREATE FUNCTION add(j jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
         EXECUTE format('INSERT INTO %I (s) SELECT x FROM jsonb_array_elements_text($1) x', 't') USING j; END $$; \
         CREATE FUNCTION login() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('a.b' || 'c', 'x', false); END $$; \
         CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.i = 7 THEN \
         RAISE EXCEPTION 'cannot login twice, or don''t'; END IF; RETURN NEW; END $$; \
         CREATE TABLE warned (i int); GRANT ALL ON warned TO app; \
         CREATE TRIGGER warn BEFORE INSERT ON warned FOR EACH ROW EXECUTE FUNCTION warn(); \
         CREATE FUNCTION put(a text, b text, c text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
         EXECUTE format('INSERT INTO %I (s) VALUES ($1)', 't') USING a || b || c; END $$",
    );
    let (mut ann, mut bob) = two(&world);
    let prose: String = (0..3000).map(|i| format!("\"it's (word{i}) of example.com\", ")).collect();
    let prose = format!("[{prose} 1]");
    for client in [&mut ann, &mut bob] {
        for _ in 0..2 {
            client.run("SELECT rows('t', '%it''s select (me)%')");
            client.ask(
                &[extended("SELECT rows($1, $2)", &["t", "don't set app.x"]), sync()].concat(),
            );
            client.ask(&[extended("SELECT add($1)", &[&prose]), sync()].concat());
            client.run(&with_literal("SELECT add($1)", &prose));
        }
        assert_eq!(client.value("SELECT count(*) > 0 FROM t"), "t");
        client.run("INSERT INTO warned VALUES (1)");
        // Parsed by nobody.
        client.query("SELECT rows('t', 'x') FORM t");
        for value in ["load", "set", "Set 3 spoons", "{\"load\": 0.7, \"op\": \"set\"}", "größe"]
        {
            client.ask(&[extended("SELECT put($1, 'x', 'load')", &[value]), sync()].concat());
        }
        let number = [b"\0\0\0\x01\0\x01\0\x01\0\0\0\x04".as_slice(), &[0, 0, 0, 200], b"\0\0"];
        let number = harness::say::message(b'B', &number.concat());
        let text = "SELECT put('x', 'y', $1::int::text)";
        client.ask(&[parse("", text), number, execute("", 0), sync()].concat());
        client.run("BEGIN");
        for i in 0..1000 {
            let values = [format!("a{i} b{i}"), format!("c{i}"), format!("d{i} e{i}")];
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            client.ask(&[extended("SELECT put($1, $2, $3)", &values), sync()].concat());
        }
        client.run("COMMIT");
        // Words of another text are told to nobody.
        client.run("BEGIN");
        client.run(&format!(
            "INSERT INTO t (s) VALUES ('With kind regards'), ('{}')",
            "x".repeat(20_000)
        ));
        client.run("SELECT rows('t', 'x')");
        client.run("COMMIT");
    }
    // By then its server has said what there is.
    for client in [&mut ann, &mut bob] {
        client.run("SELECT 1");
    }
    assert_eq!(world.howdah.rows("SHOW PINS", &[], "reasons"), [""; 0]);
}
