//! Statements that a server lacks and cannot be given at the moment, or not any more: what PostgreSQL says without
//! looking at them again, it says here too.

use harness::say::{
    bind, close_portal, close_statement, describe_portal, describe_statement, execute, extended,
    parse, query, sync,
};
use harness::{Heard, seconds};

use crate::fit::{Twins, change, prepare, use_it, world, world_with_t};

/// Run without touching what has no name.
fn run(ann: &mut Twins<'_>, sql: &str) {
    ann.ask(&[parse("run", sql), bind("", "run", &[]), execute("", 0), sync()]);
    ann.ask(&[close_statement("run"), sync()]);
}

/// A failed transaction, and no statement is there.
fn fail(ann: &mut Twins<'_>) {
    ann.moves();
    run(ann, "BEGIN");
    run(ann, "SELECT 1/0");
}

/// It cannot be prepared any more, but its parameters are looked at first.
#[test]
fn parameters_are_looked_at_before_the_statement() {
    howdah_only!("they are looked at in its order");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    let sql = "SELECT a FROM t WHERE a > $1::int";
    ann.ask(&[prepare("told", sql), prepare("", sql)].concat());
    ann.ask(&[parse("untold", sql), parse("", sql), sync()]);
    change(&world, "ALTER TABLE t RENAME TO u");
    for name in ["told", "untold", ""] {
        for values in [&[][..], &["1", "2"]] {
            ann.moves();
            let reply = ann.ask(&use_it(name, values));
            assert_eq!(reply.code(), "08P01", "{name:?} {values:?}");
        }
        ann.moves();
        assert_eq!(ann.ask(&use_it(name, &["1"])).code(), "42P01", "{name:?}");
    }
    ann.moves();
    assert_eq!(ann.ask(&use_it("told", &["one"])).code(), "22P02");
    // The portal is looked at, too, and it is the client's.
    ann.ask(&[query("BEGIN"), parse("", "SELECT 1"), bind("p", "", &[]), sync()]);
    assert_eq!(ann.ask(&[bind("p", "told", &["1"]), sync()]).code(), "42P03");
    ann.ask(&[query("ROLLBACK")]);
    change(&world, "ALTER TABLE u RENAME TO t");
    ann.moves();
    let twice = [bind("p", "told", &["0"]), close_portal("p"), bind("p", "untold", &["0"])];
    ann.ask(&[query("BEGIN"), twice.concat(), execute("p", 0), sync(), query("COMMIT")]);
}

/// What is described that cannot be prepared any more tells of its parameters first; what returns nothing does not fail at
/// all.
#[test]
fn parameters_are_described_before_the_statement() {
    howdah_only!("they are told in its order");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    let (select, insert) = ("SELECT a FROM t WHERE a > $1", "INSERT INTO t VALUES ($1)");
    ann.ask(&prepare("told", select));
    ann.ask(&prepare("put", insert));
    ann.ask(&[parse("untold", "SELECT $1::int, a FROM t"), sync()]);
    let described = |name: &str| vec![describe_statement(name), sync()];
    for (sql, failed) in [(select, "tEZ"), (insert, "tnZ")] {
        ann.ask(&prepare("", sql));
        change(&world, "ALTER TABLE t RENAME TO u");
        ann.moves();
        assert_eq!(ann.ask(&described("")).tags(), failed);
        change(&world, "ALTER TABLE u RENAME TO t");
        ann.moves();
        ann.ask(&described(""));
    }
    change(&world, "ALTER TABLE t ALTER a TYPE text");
    for name in ["told", "untold", "put"] {
        for begins in [vec![], vec![query("BEGIN")], vec![query("BEGIN"), query("SELECT 1/0")]] {
            ann.moves();
            ann.ask(&[query("SET work_mem = '5MB'")]);
            ann.ask(&[begins.clone(), described(name)].concat());
            ann.ask(&described(name));
            ann.ask(&[query("ROLLBACK")]);
            ann.moves();
            ann.ask(&[query("SET work_mem = '6MB'")]);
            if !begins.is_empty() {
                ann.ask(&begins);
            }
            ann.ask(&described(name));
            ann.ask(&[query("ROLLBACK")]);
            ann.moves();
            let batch = [described(name), use_it(name, &["1"]), described(name)].concat();
            ann.ask(&batch);
            ann.moves();
            let unended = [describe_statement(name), describe_statement(name), sync()];
            ann.ask(&[unended.to_vec(), vec![query("SELECT 5")]].concat());
        }
    }
    change(&world, "ALTER TABLE t ALTER a TYPE int USING a::int");
    for name in ["told", "untold", "put"] {
        ann.moves();
        ann.ask(&[described(name), use_it(name, &["0"])].concat());
    }
}

/// What is wrong with them is wrong with the client's message: all behind it in its batch is skipped, queries too.
#[test]
fn what_is_behind_wrong_parameters_is_skipped() {
    howdah_only!("it is the server's to say");
    let world = world_with_t();
    let mut ann = world.client();
    ann.ask(&[parse("s", "SELECT a FROM t WHERE a > $1"), sync()].concat());
    change(&world, "ALTER TABLE t ADD b int");
    world.howdah.order("RECONNECT");
    ann.send(&[bind("", "s", &["1", "2"]), query("SELECT 1"), query("SELECT 2")].concat());
    assert!(matches!(ann.hear(seconds(5.0)), Heard::Message(said) if said.tag == b'E'));
    assert!(matches!(ann.hear(seconds(0.1)), Heard::Quiet));
    assert_eq!(ann.ask(&sync()).tags(), "Z");
    assert_eq!(ann.value("SELECT 3"), "3");
}

/// However it comes.
#[test]
fn parameters_in_pieces_are_looked_at_before_the_statement() {
    howdah_only!("they are looked at in its order");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    let sql = "SELECT a FROM t WHERE a > $1::int";
    ann.ask(&[prepare("s", sql), prepare("", sql)].concat());
    fail(&mut ann);
    for name in ["s", ""] {
        let wrong = bind("", name, &["1", "2"]);
        // With the name, and without the number of parameters.
        let cut = 1 + 4 + 1 + name.len() + 1 + 2;
        assert_eq!(ann.ask_cut(&[wrong.clone(), sync()], cut).code(), "08P01", "{name:?}");
    }
    ann.ask(&[query("ROLLBACK")]);
    change(&world, "ALTER TABLE t RENAME TO u");
    ann.moves();
    assert_eq!(ann.ask_cut(&use_it("s", &["1", "2"]), 10).code(), "08P01");
    ann.moves();
    assert_eq!(ann.ask_cut(&use_it("s", &["1"]), 10).code(), "42P01");
}

/// The unnamed one, too, is prepared as it was meant.
#[test]
fn the_unnamed_statement_is_parsed_with_the_settings_of_then() {
    howdah_only!("it is parsed as it would be now");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET TimeZone = 'Asia/Tokyo'; SET search_path = one")]);
    let epoch = "SELECT extract(epoch FROM '2021-02-03 00:00'::timestamptz)::int + $1";
    ann.ask(&prepare("", epoch));
    ann.ask(&[extended("SET TimeZone = 'UTC'", &[]), sync()]);
    ann.ask(&prepare("", "SELECT a + $1 FROM p"));
    run(&mut ann, "SET TimeZone = 'UTC'");
    run(&mut ann, "SET search_path = two");
    ann.moves();
    assert_eq!(ann.ask(&use_it("", &["1", "2"])).code(), "08P01");
    assert_eq!(ann.ask(&use_it("", &["one"])).code(), "22P02");
}

/// Of a client that may have set anything, nobody knows with which settings it prepares; still it comes to an answer what
/// looks at the list of statements.
#[test]
fn the_unnamed_statement_looks_at_the_list_whatever_was_set() {
    howdah_only!("the list is its own");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SELECT set_config('app.' || 'x', '1', false)")]);
    let counts = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql";
    ann.ask(&prepare("", counts));
    assert_eq!(ann.ask(&use_it("", &[])).column(), ["0"]);
    assert_eq!(ann.ask(&use_it("", &["work_mem"])).code(), "08P01");
    ann.ask(&prepare("s", counts));
    assert_eq!(ann.ask(&use_it("s", &[])).column(), ["1"]);
}

/// What is underway without a name goes on, whatever is prepared beside it.
#[test]
fn a_portal_without_a_name_goes_on() {
    howdah_only!("nothing is prepared beside it");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET TimeZone = 'Asia/Tokyo'")]);
    ann.ask(&prepare("s", "SELECT '2021-02-03 00:00'::timestamptz"));
    ann.ask(&[query("SET TimeZone = 'UTC'")]);
    ann.moves();
    ann.ask(&[query("BEGIN"), extended("SELECT generate_series(1, 5)", &[]), sync()]);
    ann.ask(&[bind("", "", &[]), execute("", 2), sync()]);
    ann.ask(&[bind("p", "s", &[]), describe_portal("p"), execute("p", 0), sync()]);
    assert_eq!(ann.ask(&[execute("", 0), sync()]).column(), ["3", "4", "5"]);
    ann.ask(&[query("COMMIT")]);
}

/// In a failed transaction nothing can be prepared, but much can be said.
#[test]
fn a_failed_transaction_says_what_it_can() {
    howdah_only!("it says it cannot");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("put", "INSERT INTO t VALUES ($1)"));
    ann.ask(&prepare("set", "SET work_mem = '5MB'"));
    ann.ask(&prepare("select", "SELECT a FROM t WHERE a = $1"));
    ann.ask(&prepare("end", "ROLLBACK"));
    ann.ask(&[parse("untold", "SET work_mem = '6MB'"), sync()]);
    ann.ask(&prepare("", "DELETE FROM t WHERE a = $1"));
    fail(&mut ann);
    assert_eq!(ann.ask(&[describe_statement("untold"), sync()]).tags(), "tnZ");
    for name in ["put", "set", "select", ""] {
        let tags = if name == "select" { "EZ" } else { "tnZ" };
        assert_eq!(ann.ask(&[describe_statement(name), sync()]).tags(), tags, "{name:?}");
        for values in [&[][..], &["1"], &["one"], &["1", "2"]] {
            let reply = ann.ask(&use_it(name, values));
            let right = values.len() == usize::from(name != "set");
            assert_eq!(reply.code(), if right { "25P02" } else { "08P01" }, "{name:?} {values:?}");
        }
    }
    let list = "SELECT name FROM pg_prepared_statements";
    ann.ask(&[query("ROLLBACK"), parse("list", list), sync()]);
    fail(&mut ann);
    assert_eq!(ann.ask(&use_it("list", &["1"])).code(), "08P01");
    assert_eq!(ann.ask(&use_it("list", &[])).code(), "25P02");
    // And nothing is run that was put in its place.
    assert_eq!(ann.ask(&[execute("", 0), sync()]).status(), Some('E'));
    assert_eq!(ann.ask(&use_it("end", &["1"])).code(), "08P01");
    assert_eq!(ann.ask(&use_it("end", &[])).status(), Some('I'));
    assert_eq!(ann.ask(&use_it("select", &["1"])).value(), "1");
}

/// Nobody knows yet that it will have failed.
#[test]
fn a_transaction_that_fails_meanwhile_says_it_too() {
    howdah_only!("it says it cannot");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("put", "INSERT INTO t VALUES ($1)"));
    ann.ask(&prepare("none", "BEGIN"));
    ann.ask(&[parse("", "PREPARE p AS SELECT $1"), sync()]);
    ann.moves();
    let used = [use_it("none", &[]), use_it("", &["1", "2"])].concat();
    ann.ask(&[used, vec![query("ROLLBACK")]].concat());
    for used in [use_it("put", &["1", "2"]), use_it("none", &["1"]), use_it("none", &[])] {
        ann.moves();
        let fails = vec![query("BEGIN"), query("SELECT 1/0")];
        ann.ask(&[fails, used, vec![query("ROLLBACK")]].concat());
    }
    for name in ["put", "none"] {
        ann.moves();
        let described = vec![describe_statement(name), sync(), query("ROLLBACK")];
        ann.ask(&[vec![query("BEGIN"), query("SELECT 1/0")], described].concat());
    }
}

/// What fails to be prepared with other settings has not become what it would have been with these.
#[test]
fn what_failed_with_other_settings_is_as_it_was() {
    howdah_only!("it is");
    let world = world();
    let mut ann = Twins::new(&world);
    for name in ["s", ""] {
        ann.ask(&[query("SET search_path = one")]);
        ann.ask(&[parse(name, "SELECT a FROM p WHERE a = $1::int"), sync()]);
        run(&mut ann, "SET search_path = ''");
        fail(&mut ann);
        assert_eq!(ann.ask(&use_it(name, &["1"])).code(), "25P02", "{name:?}");
        run(&mut ann, "ROLLBACK");
        assert_eq!(ann.ask(&use_it(name, &["one"])).code(), "22P02", "{name:?}");
        ann.moves();
        ann.ask(&[query("SELECT name FROM pg_prepared_statements ORDER BY 1")]);
    }
}

/// A Parse that fails does away with the unnamed statement before it fails.
#[test]
fn a_failed_parse_takes_the_unnamed_statement_with_it() {
    howdah_only!("it lends nothing");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[parse("s", "SELECT 7"), sync()]);
    ann.ask(&[query("BEGIN"), query("SELECT 1/0")]);
    ann.ask(&[parse("", "ROLLBACK"), sync()]);
    assert_eq!(ann.ask(&[parse("", "EXECUTE s"), sync()]).code(), "25P02");
    assert_eq!(ann.ask(&use_it("", &[])).code(), "26000");
    ann.ask(&[query("ROLLBACK")]);
}
