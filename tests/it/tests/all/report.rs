//! SHOW SESSION_REPORT: what an application would meet in transaction mode, told before it is there.

use harness::postgres::PASSWORD;
use harness::say::{bind, call, close_statement, execute, flush, parse, query, sync};
use harness::{Howdah, Raw, World, eventually};

/// Session mode, as before a switch.
fn watching(size: u32, more: &str) -> World {
    World::with(size, |setup| {
        setup
            .database_also("shop", "pool_mode=session session_report=1")
            .database_also("shop", more)
    })
}

/// Cells of the rows with this kind.
fn of(howdah: &Howdah, kind: &str, column: &str) -> Vec<String> {
    howdah.rows("SHOW SESSION_REPORT", &[("database", "shop"), ("kind", kind)], column)
}

fn number(howdah: &Howdah, kind: &str, column: &str) -> u64 {
    of(howdah, kind, column).iter().map(|cell| cell.parse::<u64>().expect("a number")).sum()
}

fn runs(client: &mut Raw, statement: &str, parameters: &[&str], times: usize) {
    for _ in 0..times {
        let asked = [bind("", statement, parameters), execute("", 0), sync()].concat();
        assert_eq!(client.ask(&asked).code(), "");
    }
}

/// Every kind of state, once, in session mode: what it would be, and what to do.
#[test]
fn each_kind_is_told() {
    howdah_only!("a report of its own");
    let world = World::with(1, |setup| {
        setup.set("listen_hub", 0).database_also("shop", "pool_mode=session session_report=1")
    });
    world.direct().run("CREATE SEQUENCE s; GRANT ALL ON SEQUENCE s TO app");
    world.direct().run("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'");
    let mut ann = world.client();
    let told = [
        ("SET work_mem = '1MB'", "tracked", "setting", "SET work_mem = ?"),
        (
            "SELECT set_config('a.b', 'c', false)",
            "tracked",
            "setting",
            "SELECT set_config(?, ?, false)",
        ),
        ("SET TimeZone = 'UTC'", "tracked", "parameter", "SET TimeZone = ?"),
        ("SET ROLE app", "tracked", "role", "SET ROLE app"),
        ("PREPARE p AS SELECT 7", "tracked", "prepared statement", "PREPARE p AS SELECT ?"),
        ("LISTEN ears", "pinned", "listen", "LISTEN ears"),
        ("CREATE TEMP TABLE t (i int)", "pinned", "temporary table", "CREATE TEMP TABLE t (i int)"),
        ("SELECT pg_advisory_lock(7)", "pinned", "advisory lock", "SELECT pg_advisory_lock(?)"),
        (
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            "pinned",
            "holdable cursor",
            "DECLARE c CURSOR WITH HOLD FOR SELECT ?",
        ),
        ("LOAD 'plpgsql'", "pinned", "load", "LOAD ?"),
        ("SELECT setseed(0.5)", "pinned", "seed", "SELECT setseed(?)"),
        ("SELECT currval('s')", "pinned", "sequence", "SELECT currval(?)"),
        ("SELECT pg_backend_pid()", "breaks", "backend pid", "SELECT pg_backend_pid()"),
        ("SELECT f()", "asked", "unknown function", "SELECT f()"),
        ("SELEC 'hush'", "asked", "unread", "SELEC ?"),
        ("DISCARD ALL", "tracked", "reset", "DISCARD ALL"),
    ];
    ann.run("SELECT nextval('s')");
    for (text, ..) in told {
        ann.query(text);
    }
    for (text, verdict, kind, statement) in told {
        let which = [("kind", kind), ("statement", statement)];
        let cell = |column| world.howdah.cell("SHOW SESSION_REPORT", &which, column);
        assert_eq!(cell("verdict"), verdict, "{text}");
        assert_eq!((cell("count"), cell("clients")), ("1".into(), "1".into()), "{text}");
        assert!(cell("advice").ends_with('.'), "{text}");
        assert!(cell("first_seen").starts_with("20") && cell("last_seen").starts_with("20"));
    }
    let all = world.howdah.rows("SHOW SESSION_REPORT", &[], "kind");
    assert_eq!(all.len(), told.len() + 1, "{all:?}");
    assert_eq!(of(&world.howdah, "nothing", "count"), ["1"], "the nextval");
    assert!(of(&world.howdah, "listen", "advice")[0].contains("listen_hub"));
    assert!(of(&world.howdah, "advisory lock", "advice")[0].contains("pg_advisory_xact_lock"));
}

/// The worst comes first.
#[test]
fn the_order_is_by_gravity() {
    howdah_only!("a report of its own");
    let world = watching(1, "");
    let mut ann = world.client();
    for text in ["SELECT 1", "SET work_mem = 64", "SELECT pg_backend_pid()", "LISTEN x"] {
        ann.run(text);
    }
    let verdicts = world.howdah.rows("SHOW SESSION_REPORT", &[], "verdict");
    assert_eq!(verdicts, ["breaks", "tracked", "tracked", "nothing"], "listen_hub is 1 by itself");
}

/// What Django says in session mode: its SETs at the start, its transactions, a lock for its migrations.
#[test]
fn a_conversation_in_simple_queries() {
    howdah_only!("a report of its own");
    let world = watching(2, "");
    for number in 0..3 {
        let login = world.login().parameter("application_name", &format!("shop-{number}"));
        let mut ann = login.enter();
        ann.run("SELECT set_config('TimeZone', 'UTC', false)");
        ann.run("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED");
        for id in 0..10 {
            ann.run("BEGIN");
            ann.run(&format!("SELECT pg_advisory_xact_lock({id})"));
            ann.run(&format!("SELECT {id}, 'a name' /* request {id} */"));
            ann.run("COMMIT");
            ann.run(&format!("SELECT pg_try_advisory_lock({id}), 'try {id}'"));
        }
    }
    let howdah = &world.howdah;
    assert_eq!(of(howdah, "advisory lock", "statement"), ["SELECT pg_try_advisory_lock(?), ?"]);
    assert_eq!(of(howdah, "advisory lock", "count"), ["30"]);
    assert_eq!(of(howdah, "advisory lock", "clients"), ["3"]);
    assert_eq!(of(howdah, "advisory lock", "application_name"), ["shop-2"]);
    assert_eq!(number(howdah, "setting", "count"), 6);
    assert_eq!(of(howdah, "nothing", "count"), ["120"]);
    assert_eq!(of(howdah, "nothing", "clients"), ["3"]);
}

/// A pipeline is so many requests, and what came before it or behind it is another matter.
#[test]
fn requests_sent_at_once_count_each() {
    howdah_only!("a report of its own");
    let world = watching(1, "");
    let mut ann = world.client();
    let one = |text: &str| [parse("", text), bind("", "", &[]), execute("", 0)].concat();
    let asked =
        [one("SELECT 1"), one("LISTEN x"), one("SELECT 2"), one("LISTEN y"), one("SELECT 3")];
    ann.ask(&[asked.concat(), sync()].concat());
    ann.send(&[query("SELECT 4"), query("LISTEN x"), query("SELECT 5")].concat());
    for _ in 0..3 {
        ann.until_ready();
    }
    assert_eq!(of(&world.howdah, "nothing", "count"), ["5"]);
    assert_eq!(
        of(&world.howdah, "listen", "statement"),
        ["LISTEN x"],
        "channels are not told apart"
    );
    assert_eq!(of(&world.howdah, "listen", "count"), ["3"]);
}

/// What asyncpg says: named statements that are run again and again, and its reset.
#[test]
fn a_conversation_in_prepared_statements() {
    howdah_only!("a report of its own");
    let world = watching(1, "");
    let mut ann = world.client();
    ann.ask(&[parse("__asyncpg_stmt_1__", "SELECT pg_advisory_lock($1::int)"), sync()].concat());
    runs(&mut ann, "__asyncpg_stmt_1__", &["7"], 5);
    ann.ask(&[parse("__asyncpg_stmt_2__", "SELECT $1::text"), sync()].concat());
    runs(&mut ann, "__asyncpg_stmt_2__", &["x"], 7);
    runs(&mut ann, "__asyncpg_stmt_1__", &["8"], 1);
    ann.ask(&[close_statement("__asyncpg_stmt_1__"), sync()].concat());
    ann.ask(&[parse("__asyncpg_stmt_1__", "SELECT 1 + $1::int"), sync()].concat());
    runs(&mut ann, "__asyncpg_stmt_1__", &["7"], 1);
    ann.ask(&[parse("", "LISTEN x"), bind("", "", &[]), execute("", 0), sync()].concat());
    ann.run("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;");
    let howdah = &world.howdah;
    assert_eq!(of(howdah, "advisory lock", "count"), ["6"], "each run, and not the Parse");
    assert_eq!(of(howdah, "nothing", "count"), ["8"]);
    assert_eq!(of(howdah, "listen", "count"), ["1"]);
    assert_eq!(of(howdah, "reset", "statement"), ["CLOSE ALL", "RESET ALL", "UNLISTEN *"]);
    // What an error makes the server skip was not done.
    ann.send(&[parse("", "no such thing"), flush()].concat());
    ann.until(b'E');
    ann.ask(&[parse("l", "LISTEN y"), bind("", "l", &[]), sync()].concat());
    assert_eq!(of(howdah, "listen", "count"), ["1"]);
    ann.ask(&call(2026, &[]));
    assert_eq!(of(howdah, "unknown function", "verdict"), ["asked"]);
}

/// However the bytes come.
#[test]
fn texts_that_come_in_pieces_are_read() {
    howdah_only!("a report of its own");
    let world = watching(1, "");
    let mut ann = world.client();
    let text = format!("LISTEN x /* {} */", "long ".repeat(100));
    ann.send_bytewise(&query(&text));
    ann.until_ready();
    let asked = [parse("s", &text), bind("", "s", &[]), execute("", 0), sync()].concat();
    ann.send_bytewise(&asked);
    ann.until_ready();
    assert_eq!(of(&world.howdah, "listen", "count"), ["2"]);
    let long = format!("LISTEN x /* {} */", "x".repeat(100_000));
    ann.run(&long);
    let asked = [parse("s2", &long), bind("", "s2", &[]), execute("", 0), sync()].concat();
    assert_eq!(ann.ask(&asked).code(), "");
    assert_eq!(of(&world.howdah, "unread", "count"), ["2"]);
    assert_eq!(of(&world.howdah, "nothing", "count"), Vec::<String>::new());
}

/// Two workers have clients of the pool each.
#[test]
fn what_all_workers_saw_adds_up() {
    howdah_only!("a report of its own");
    let world = World::with(8, |setup| {
        setup.own("workers", 2).database_also("shop", "pool_mode=session session_report=1")
    });
    let mut clients: Vec<Raw> = (0..8).map(|_| world.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.run(&format!("SELECT pg_advisory_lock({n})"));
        client.run("SELECT pg_advisory_lock_shared(100)");
    }
    let counts = of(&world.howdah, "advisory lock", "count");
    assert_eq!(counts, ["8", "8"]);
    assert_eq!(of(&world.howdah, "advisory lock", "clients"), ["8", "8"]);
    world.howdah.order("RESET SESSION_REPORT");
    assert_eq!(world.howdah.rows("SHOW SESSION_REPORT", &[], "kind"), Vec::<String>::new());
    clients[0].run("SELECT pg_advisory_lock(0)");
    assert_eq!(of(&world.howdah, "advisory lock", "count"), ["1"]);
    assert_eq!(of(&world.howdah, "advisory lock", "clients"), ["1"], "counted anew");
}

/// Ten thousand different statements make no more rows than there is room for, and each is counted.
#[test]
fn memory_is_bounded() {
    howdah_only!("a report of its own");
    let world = World::with(1, |setup| {
        setup.own("workers", 1).database_also("shop", "pool_mode=session session_report=1")
    });
    let mut ann = world.client();
    let texts = |from: usize| (from..from + 100).map(|n| format!("SET a.name{n} = 1"));
    for from in (0..3_000).step_by(100) {
        ann.run(&texts(from).collect::<Vec<_>>().join(";"));
    }
    let statements = of(&world.howdah, "setting", "statement");
    assert_eq!(statements.len(), 501);
    let which = [("statement", "(other statements)")];
    assert_eq!(world.howdah.cell("SHOW SESSION_REPORT", &which, "count"), "2500");
    assert_eq!(number(&world.howdah, "setting", "count"), 3_000);
    ann.run("LISTEN x");
    assert_eq!(of(&world.howdah, "listen", "statement"), ["(other statements)"], "of each kind");
}

/// In transaction mode it tells what no text shows, too.
#[test]
fn what_a_function_leaves_is_told_in_transaction_mode() {
    howdah_only!("a report of its own");
    let world = World::with(2, |setup| setup.set("session_report", 1));
    world.direct().run(
        "CREATE FUNCTION keep(i int) RETURNS void LANGUAGE plpgsql AS \
         'BEGIN CREATE TEMP TABLE kept (i int); END'",
    );
    let mut ann = world.client();
    ann.run("SELECT keep(17)");
    let howdah = &world.howdah;
    eventually("it is pinned", || !of(howdah, "temporary table", "statement").is_empty());
    assert_eq!(of(howdah, "temporary table", "statement"), ["SELECT keep(?)"]);
    assert_eq!(of(howdah, "temporary table", "verdict"), ["pinned"]);
    assert_eq!(of(howdah, "unknown function", "statement"), ["SELECT keep(?)"]);
    ann.run("CREATE TEMP TABLE t (i int)");
    ann.ask(&[parse("s", "SELECT pg_advisory_lock(7)"), sync()].concat());
    runs(&mut ann, "s", &[], 3);
    assert_eq!(number(howdah, "temporary table", "count"), 2, "once as seen, once as said");
    assert_eq!(of(howdah, "advisory lock", "count"), ["3"]);
}

/// What is allowed is taken into account, also where it changes.
#[test]
fn the_verdict_is_by_the_rules_in_force() {
    howdah_only!("a report of its own");
    let mut world = watching(1, "session_state='advisory_lock:error'");
    let mut ann = world.client();
    ann.run("SELECT pg_advisory_lock(1)");
    ann.run("SET work_mem = 64");
    ann.ask(&[parse("s", "SELECT 1"), bind("", "s", &[]), sync()].concat());
    let howdah = &mut world.howdah;
    assert_eq!(of(howdah, "advisory lock", "verdict"), ["breaks"]);
    assert!(
        of(howdah, "advisory lock", "advice")[0].contains("session_state has advisory_lock:error")
    );
    howdah.reload(|setup| {
        setup.set("track_session_state", 0).set("max_prepared_statements", 0).set("listen_hub", 0)
    });
    assert_eq!(of(howdah, "setting", "verdict"), ["breaks"]);
    ann.run("LISTEN x");
    ann.ask(&[parse("t", "SELECT 2"), bind("", "t", &[]), execute("", 0), sync()].concat());
    assert_eq!(of(howdah, "protocol statement", "statement"), ["SELECT ?"]);
    assert_eq!(of(howdah, "protocol statement", "verdict"), ["breaks"]);
    howdah.reload(|setup| setup.set("track_session_state", 1).set("listen_hub", 0));
    assert_eq!(of(howdah, "listen", "verdict"), ["pinned"]);
}

/// A user's word goes before the database's; who is not watched is not read, and costs nothing.
#[test]
fn it_is_off_where_it_is_not_asked_for() {
    howdah_only!("a report of its own");
    let world = World::with(2, |setup| {
        setup
            .database_also("shop", "pool_mode=session session_report=1")
            .user("app", "session_report=0")
    });
    let mut ann = world.client();
    ann.run("LISTEN x");
    let mut bob = world.howdah.login("app2", PASSWORD, "shop").enter();
    bob.run("LISTEN y");
    assert_eq!(world.howdah.rows("SHOW SESSION_REPORT", &[], "user"), ["app2"]);
    let plain = World::with(1, |setup| setup.set("pool_mode", "session"));
    plain.client().run("LISTEN x");
    assert_eq!(plain.howdah.rows("SHOW SESSION_REPORT", &[], "user"), Vec::<String>::new());
}
