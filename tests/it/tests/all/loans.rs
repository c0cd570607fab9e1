//! What the protocol prepared and SQL executes: within batches and transactions, behind other settings, given anew.

use harness::say::{
    bind, close_statement, describe_portal, describe_statement, execute, extended, parse, query,
    sync,
};

use crate::fit::{Twins, change, prepare, use_it, world};

/// As a driver runs a text without parameters.
fn run(sql: &str) -> Vec<Vec<u8>> {
    vec![parse("", sql), bind("", "", &[]), describe_portal(""), execute("", 0)]
}

/// A name that its client closes and gives again within a batch means at once what it means then.
#[test]
fn a_name_given_anew_in_a_batch_is_executed_as_what_it_is() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("s", "SELECT 1"));
    let anew = |sql: &str| vec![close_statement("s"), parse("s", sql)];
    for begin in [vec![], vec![extended("BEGIN", &[])]] {
        let batch = [begin, run("EXECUTE s"), anew("SELECT 2"), run("EXECUTE s"), vec![sync()]];
        assert_eq!(ann.ask(&batch.concat()).rows().len(), 2);
        ann.ask(&[query("EXECUTE s")]);
        ann.ask(&[run("EXECUTE s"), anew("SELECT 1"), vec![query("EXECUTE s")]].concat());
        let gone = [run("EXECUTE s"), vec![close_statement("s")], run("EXECUTE s"), vec![sync()]];
        assert_eq!(ann.ask(&gone.concat()).code(), "26000");
        ann.ask(&[query("ROLLBACK")]);
        ann.ask(&[vec![close_statement("s")], prepare("s", "SELECT 1")].concat());
        let fails = [run("EXECUTE s"), vec![extended("SELECT 1/0", &[])], anew("SELECT 2")];
        ann.ask(&[fails.concat(), vec![sync()]].concat());
        ann.ask(&[run("EXECUTE s"), vec![sync()]].concat());
        ann.ask(&[fails.concat(), vec![sync()], anew("SELECT 3"), vec![sync()]].concat());
        assert_eq!(ann.ask(&[query("EXECUTE s")]).value(), "3");
        ann.ask(&[anew("SELECT 1"), vec![sync()]].concat());
        ann.moves();
    }
}

/// A batch that executes what was prepared with other settings, and cannot be any more, fails where PostgreSQL finds that.
#[test]
fn a_batch_executes_what_was_prepared_with_other_settings() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET search_path = one")]);
    ann.ask(&prepare("s", "SELECT a FROM p"));
    ann.ask(&prepare("e", "EXECUTE s"));
    ann.ask(&[query("SET search_path = ''; SET standard_conforming_strings = on")]);
    let both = [run("EXECUTE s"), vec![sync()]].concat();
    let parsed = [
        parse("", "EXECUTE s"),
        describe_statement(""),
        sync(),
        bind("", "", &[]),
        execute("", 0),
        sync(),
    ];
    let steps = [
        both.clone(),
        parsed.to_vec(),
        use_it("e", &[]),
        [run("SELECT 7"), both.clone()].concat(),
        [vec![extended("BEGIN", &[])], both.clone()].concat(),
        vec![query("EXECUTE s")],
        [vec![query("SELECT 1")], both.clone()].concat(),
        [vec![extended("SELECT 1", &[]), sync()], run("SELECT 8"), both.clone()].concat(),
        [vec![query("SET search_path = one")], both.clone()].concat(),
        [vec![query("SET search_path = ''")], both].concat(),
    ];
    for begins in ["", "BEGIN", "BEGIN; SAVEPOINT a; SELECT 1"] {
        for step in &steps {
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(step);
            ann.ask(&[query("ROLLBACK")]);
            ann.ask(&[query("SHOW search_path")]);
        }
    }
}

/// What is executed may have been prepared, given up and prepared again a moment ago.
#[test]
fn a_name_given_in_the_same_flight_is_executed() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    let given = |sql: &str| vec![close_statement("s"), parse("s", sql)];
    for sql in ["SELECT 1", "SELECT 2", "SELECT 1"] {
        for end in [vec![], vec![sync()], vec![query("SELECT 0")]] {
            let flight = [given(sql), end.clone(), vec![query("EXECUTE s")]].concat();
            ann.ask(&flight);
            let flight = [given(sql), end.clone(), run("EXECUTE s"), vec![sync()]].concat();
            ann.ask(&flight);
        }
        let broken = [given("BROKEN"), vec![sync()], run("EXECUTE s"), vec![sync()]];
        ann.ask(&broken.concat());
        for gone in ["DEALLOCATE s", "DEALLOCATE ALL", "DISCARD ALL"] {
            ann.ask(&[given("SELECT 5"), vec![sync()]].concat());
            let flight = [run("EXECUTE s"), run(gone), vec![parse("s", sql)], run("EXECUTE s")];
            ann.ask(&[flight.concat(), vec![sync()]].concat());
            let flight = [vec![query(gone), parse("s", sql)], run("EXECUTE s"), vec![sync()]];
            ann.ask(&flight.concat());
            ann.ask(&[query(gone), query("EXECUTE s")]);
        }
    }
}

/// What cannot be prepared again with any settings fails as it would have.
#[test]
fn what_is_gone_is_told_to_whoever_executes_it() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    change(&world, "CREATE TABLE one.gone AS SELECT 1 AS a");
    ann.ask(&[query("SET search_path = one")]);
    ann.ask(&prepare("s", "SELECT a FROM gone"));
    ann.ask(&[query("SET search_path = two")]);
    change(&world, "DROP TABLE one.gone");
    for begins in ["", "BEGIN"] {
        ann.moves();
        ann.ask(&[query(begins)]);
        let (pooled, direct) = ann.both(&[run("EXECUTE s"), vec![sync()]].concat());
        ann.ask(&[query("ROLLBACK")]);
        assert_eq!((pooled.code(), pooled.status()), (direct.code(), direct.status()), "{begins}");
    }
}

/// The same by the extended protocol: PostgreSQL says that it was parsed and bound, and finds out when it is run.
#[test]
fn a_batch_executes_what_is_gone() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    for name in ["public.gone", "one.hidden"] {
        change(&world, &format!("CREATE TABLE {name} AS SELECT 1 AS a"));
    }
    ann.ask(&[query("SET search_path = one, public")]);
    for (name, sql) in [
        ("gone", "SELECT a FROM gone"),
        ("gone_with", "SELECT a FROM gone WHERE a = $1"),
        ("hidden", "SELECT a FROM hidden"),
        ("fine", "SELECT 5"),
        ("before", "EXECUTE hidden"),
    ] {
        ann.ask(&prepare(name, sql));
    }
    ann.ask(&[parse("", "EXECUTE gone"), sync()]);
    change(&world, "DROP TABLE gone");
    let texts = [
        "EXECUTE gone",
        "EXECUTE gone_with(1)",
        "EXECUTE gone_with('a')",
        "EXECUTE hidden",
        "EXECUTE fine",
        "EXPLAIN EXECUTE gone",
    ];
    let begins = ["", "BEGIN", "SET search_path = two", "BEGIN; SET LOCAL search_path = two"];
    for begins in begins {
        for text in texts {
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(&[run(text), vec![sync()]].concat());
            ann.ask(&[query("ROLLBACK; RESET ALL; SET search_path = one, public")]);
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(&[parse("", text), bind("", "", &[]), execute("", 0), sync()]);
            ann.ask(&[query("ROLLBACK; RESET ALL; SET search_path = one, public")]);
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(&[parse("", text), describe_statement(""), sync()]);
            ann.ask(&[query("ROLLBACK; RESET ALL; SET search_path = one, public")]);
        }
        ann.moves();
        ann.ask(&[query(begins)]);
        ann.ask(&[bind("", "before", &[]), execute("", 0), sync()]);
        ann.ask(&[query("ROLLBACK; RESET ALL; SET search_path = one, public")]);
    }
}

/// A text that executes what cannot be prepared again is run up to there, and hears why, but what is wrong with its own
/// parameters first.
#[test]
fn a_text_executes_what_is_gone() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    for name in ["gone", "lost"] {
        change(&world, &format!("CREATE TABLE public.{name} AS SELECT 1 AS a"));
    }
    ann.ask(&prepare("s", "SELECT a FROM gone"));
    ann.ask(&prepare("t", "SELECT a FROM lost WHERE a = $1"));
    let untold = [parse("u", "SELECT a FROM lost WHERE a = $1"), sync()];
    ann.ask(&untold);
    ann.ask(&prepare("fine", "SELECT $1::int"));
    change(&world, "DROP TABLE gone; ALTER TABLE lost RENAME a TO b");
    let texts = [
        "EXECUTE s",
        "SELECT 1; EXECUTE s; SELECT 2",
        "EXECUTE fine(1); EXECUTE s",
        "EXECUTE s; EXECUTE t(1)",
        "EXECUTE t(1)",
        "EXECUTE t('a')",
        "EXECUTE t",
        "EXECUTE t(1/0)",
        "EXECUTE t(1, 2)",
        "EXECUTE t('howdah_cannot_prepare_1')",
        "EXECUTE u(1)",
        "EXECUTE u(1, 2)",
        "EXPLAIN EXECUTE t(1)",
        "CREATE TABLE made AS EXECUTE t(1)",
        "SAVEPOINT a; SELECT 1; EXECUTE s",
        "SELECT 1; ROLLBACK; EXECUTE fine(2)",
    ];
    for begins in ["", "BEGIN", "SET search_path = one", "BEGIN; SET LOCAL search_path = two"] {
        for text in texts {
            ann.ask(&[query("RESET ALL")]);
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(&[query(text)]);
            ann.ask(&[query("SELECT 7")]);
            ann.ask(&[query("ROLLBACK; SELECT 8")]);
        }
    }
    ann.moves();
    ann.ask(&[query("DEALLOCATE t; SELECT 1; EXECUTE t(1)")]);
}

/// The same of what SQL prepared.
#[test]
fn a_text_executes_what_is_gone_and_sql_had_prepared() {
    howdah_only!("it does not know them");
    let world = world();
    let mut ann = Twins::new(&world);
    change(&world, "CREATE TABLE public.gone AS SELECT 1 AS a");
    ann.ask(&[query("PREPARE s AS SELECT a FROM gone")]);
    ann.ask(&[query("PREPARE fine AS SELECT 5")]);
    change(&world, "DROP TABLE gone");
    for begins in ["", "BEGIN"] {
        for text in ["EXECUTE s", "SELECT 1; EXECUTE s; SELECT 2", "EXECUTE fine", "EXECUTE nobody"]
        {
            ann.moves();
            ann.ask(&[query(begins)]);
            ann.ask(&[query(text)]);
            ann.ask(&[query("ROLLBACK; SELECT 8")]);
            if !text.contains(';') {
                ann.ask(&[parse("", text), bind("", "", &[]), execute("", 0), sync()]);
            }
        }
    }
    change(&world, "CREATE TABLE public.gone AS SELECT 1 AS a");
    ann.moves();
    assert_eq!(ann.ask(&[query("EXECUTE s")]).value(), "1");
}
