//! Prepared statements that clients share, and that change under them: each client hears what it would hear on a
//! connection of its own.

use harness::postgres::PASSWORD;
use harness::say::{
    bind, close_statement, describe_portal, describe_statement, execute, parse, sync,
};
use harness::{Raw, Reply, World, eventually};

const SQL: &str = "SELECT * FROM t";

fn world() -> World {
    let world = World::pool(1);
    world.direct().run("CREATE TABLE t AS SELECT 1 AS a; GRANT ALL ON t TO app");
    world
}

/// A client that has used a statement.
fn first(world: &World) -> Raw {
    let mut client = world.client();
    let reply = client.ask(&[parse("mine", SQL), sync()].concat());
    assert_eq!(reply.code(), "");
    assert_eq!(use_it(&mut client, "mine").code(), "");
    client
}

fn use_it(client: &mut Raw, name: &str) -> Reply {
    client.ask(&[bind("", name, &[]), describe_portal(""), execute("", 0), sync()].concat())
}

fn assert_changed(reply: &Reply) {
    assert_eq!((reply.tags().as_str(), reply.code().as_str()), ("EZ", "0A000"));
    let error = &reply.0[0].body;
    assert!(error.windows(22).any(|part| part == b"RRevalidateCachedQuery"), "drivers look at it");
}

/// Who prepared it after the change has what it prepared, whatever the server had from others.
#[test]
fn what_changed_before_a_client_prepared_it_is_prepared_anew() {
    howdah_only!("clients get the error");
    let world = world();
    let mut ann = first(&world);
    let before = [parse("s", SQL), sync()].concat();
    let ways: [Vec<Vec<u8>>; 4] = [
        vec![before.clone(), [bind("", "s", &[]), execute("", 0), sync()].concat()],
        vec![before, [describe_statement("s"), sync()].concat()],
        vec![[parse("s", SQL), bind("", "s", &[]), execute("", 0), sync()].concat()],
        vec![[parse("s", SQL), describe_statement("s"), sync()].concat()],
    ];
    for (number, way) in ways.iter().enumerate() {
        world.direct().run(&format!("ALTER TABLE t ADD COLUMN c{number} int DEFAULT {number}"));
        let mut bob = world.client();
        let replies: Vec<Reply> = way.iter().map(|bytes| bob.ask(bytes)).collect();
        let tags: Vec<String> = replies.iter().map(Reply::tags).collect();
        let expected: &[&str] =
            [&["1Z", "2DCZ"][..], &["1Z", "tTZ"], &["12DCZ"], &["1tTZ"]][number];
        assert_eq!(tags, expected, "way {number}");
        let shown = replies
            .last()
            .and_then(|reply| reply.0.iter().find(|m| "DT".contains(char::from(m.tag))));
        assert_eq!(shown.map(|message| usize::from(message.body[1])), Some(number + 2));
        let wide = use_it(&mut bob, "s");
        assert_eq!(wide.rows()[0].len(), number + 2);
        bob.run("SELECT 1");
        assert_changed(&use_it(&mut ann, "mine"));
    }
}

/// Who used it before the change gets PostgreSQL's error each time, on a server that never had it, too; until it
/// prepares anew.
#[test]
fn what_changed_after_a_client_used_it_is_an_error() {
    howdah_only!("clients get the error or not");
    let world = world();
    let mut ann = first(&world);
    let mut bob = first(&world);
    world.direct().run("ALTER TABLE t ADD COLUMN b int DEFAULT 2");
    assert_changed(&use_it(&mut ann, "mine"));
    assert_changed(&use_it(&mut ann, "mine"));
    world.howdah.order("RECONNECT");
    eventually("the old server is gone", || world.servers() == 0);
    assert_changed(&use_it(&mut ann, "mine"));
    let described = [describe_statement("mine"), sync()].concat();
    assert_eq!(ann.ask(&described).code(), "0A000");
    ann.run("BEGIN");
    assert_changed(&use_it(&mut ann, "mine"));
    ann.run("ROLLBACK");
    ann.ask(&[close_statement("mine"), parse("mine", SQL), sync()].concat());
    assert_eq!(use_it(&mut ann, "mine").rows()[0].len(), 2);
    assert_changed(&use_it(&mut bob, "mine"));
}

/// Within a transaction nothing can be done again. The next time it is right.
#[test]
fn in_a_transaction_the_next_use_is_right() {
    howdah_only!("clients get the error");
    let world = world();
    let _ann = first(&world);
    world.direct().run("ALTER TABLE t ADD COLUMN b int DEFAULT 2");
    let mut bob = world.client();
    bob.run("BEGIN");
    bob.ask(&[parse("s", SQL), sync()].concat());
    assert_changed(&use_it(&mut bob, "s"));
    bob.run("ROLLBACK");
    assert_eq!(use_it(&mut bob, "s").rows()[0].len(), 2);
}

/// What ran before it in its batch must not run twice.
#[test]
fn nothing_is_run_twice() {
    howdah_only!("clients get the error");
    let world = world();
    world.direct().run("CREATE TABLE seen (i int); GRANT ALL ON seen TO app");
    let _ann = first(&world);
    world.direct().run("ALTER TABLE t ADD COLUMN b int DEFAULT 2");
    let mut bob = world.client();
    bob.ask(&[parse("s", SQL), sync()].concat());
    let batch = [
        harness::say::extended("INSERT INTO seen VALUES (1)", &[]),
        bind("", "s", &[]),
        execute("", 0),
        sync(),
    ];
    assert_eq!(bob.ask(&batch.concat()).code(), "0A000");
    assert_eq!(bob.value("SELECT count(*) FROM seen"), "0");
    assert_eq!(use_it(&mut bob, "s").rows()[0].len(), 2);
    // What is said without waiting comes behind it.
    let mut joe = first(&world);
    world.direct().run("ALTER TABLE t ADD COLUMN c int DEFAULT 3");
    assert_changed(&use_it(&mut joe, "mine"));
    let mut eve = world.client();
    eve.send(
        &[
            parse("s", SQL),
            bind("", "s", &[]),
            execute("", 0),
            sync(),
            harness::say::query("SELECT 7"),
        ]
        .concat(),
    );
    let reply = eve.until_readies(2);
    assert_eq!(reply.tags(), "12DCZTDCZ");
}

/// What a client prepares after a table is another one, it prepares as it is now: whoever prepared it before, and as
/// much of it as there is to be told.
#[test]
fn what_is_prepared_is_what_it_is_by_then() {
    howdah_only!("it is what it was");
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    world.direct().run("GRANT ALL ON SCHEMA public TO app");
    ann.run("CREATE TABLE w (a int)");
    let shape = |client: &mut Raw, sql: &str| {
        let reply = client.ask(&[parse("s", sql), describe_statement("s"), sync()].concat());
        let used = use_all(client, sql);
        client.ask(&[close_statement("s"), sync()].concat());
        assert_eq!((reply.code(), used.code()), (String::new(), String::new()), "{sql}");
        let type_of = |message: &harness::Message| message.body.clone();
        let of = |tag| reply.of(tag).map(type_of).collect::<Vec<_>>().concat();
        (of(b't'), of(b'T'))
    };
    for sql in ["SELECT * FROM w", "UPDATE w SET a = $1", "SELECT $1 = a FROM w"] {
        let mut seen = Vec::new();
        for change in [
            "DROP TABLE w; CREATE TABLE w (a int)",
            "DROP TABLE w; CREATE TABLE w (a text)",
            "ALTER TABLE w ALTER COLUMN a TYPE bigint USING 1",
            "ALTER TABLE w ALTER COLUMN a TYPE text",
            "DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('1'); DROP TABLE w; CREATE TABLE w (a mood)",
            "DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('1'); DROP TABLE w; CREATE TABLE w (a mood)",
        ] {
            bob.run(change);
            let direct = shape(&mut world.direct_app(), sql);
            assert_eq!(shape(&mut ann, sql), direct, "{sql} after {change}");
            assert_eq!(shape(&mut bob, sql), direct, "{sql} after {change}, and who made it");
            seen.push(direct);
        }
        assert_ne!(seen[0], seen[1]);
    }
}

fn use_all(client: &mut Raw, sql: &str) -> Reply {
    let values: &[&str] = if sql.contains('$') { &["1"] } else { &[] };
    client.ask(&[bind("", "s", values), describe_portal(""), execute("", 0), sync()].concat())
}

/// The same words are another statement in another database, and for another user, whose schema comes first.
#[test]
fn what_clients_were_told_counts_for_their_own_tables() {
    howdah_only!("prepared statements");
    let shared = harness::Postgres::shared();
    let other = shared.database();
    let world = World::with(1, |setup| setup.database("mall", &shared.target(&other)));
    let mine = "CREATE TABLE t (i int, s text); INSERT INTO t VALUES (1, 'shop'); ALTER TABLE t OWNER TO app; \
                CREATE SCHEMA app2 AUTHORIZATION app2; CREATE TABLE app2.t (i bool); INSERT INTO app2.t VALUES (true); \
                ALTER TABLE app2.t OWNER TO app2; GRANT ALL ON SCHEMA public TO app";
    world.direct().run(mine);
    let theirs = "CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (i mood); INSERT INTO t VALUES ('ok'); GRANT ALL ON t TO app";
    shared.superuser(&other).run(theirs);
    let mut clients = [("app", "shop", "1"), ("app", "mall", "ok"), ("app2", "shop", "t")]
        .map(|(user, db, value)| (world.howdah.login(user, PASSWORD, db).enter(), value));
    let text = "SELECT i FROM t WHERE i = $1";
    for (client, _) in &mut clients {
        client.ask(&[parse("s", text), describe_statement("s"), sync()].concat());
    }
    for round in 0..3 {
        for (client, value) in &mut clients {
            let reply = client.ask(&[bind("", "s", &[value]), execute("", 0), sync()].concat());
            assert_eq!(reply.code(), "", "round {round}: {value}: {reply:?}");
            assert_eq!(reply.column(), [*value], "round {round}");
        }
        // What others may stand on changes; and servers that lack it have to be given it.
        clients[0].0.run(&format!("ALTER TABLE t ADD COLUMN more{round} int"));
        world.howdah.order("RECONNECT");
    }
}
