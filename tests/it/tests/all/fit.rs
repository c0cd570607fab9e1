//! Statements whose servers are given them only after something has changed: what was settled when their client
//! prepared them stays as it is on a connection of its own.

use harness::say::{
    bind, close_statement, describe_portal, describe_statement, execute, extended, parse, query,
    sync,
};
use harness::{Raw, Reply, World, eventually};

pub(crate) fn world() -> World {
    let world = World::pool(1);
    world.direct().run(
        "GRANT ALL ON SCHEMA public TO app; CREATE SCHEMA one; CREATE SCHEMA two; \
         GRANT ALL ON SCHEMA one, two TO app; CREATE TABLE one.p AS SELECT 5 AS a; \
         CREATE TABLE two.p AS SELECT 'five' AS a, 'b' AS b; GRANT ALL ON one.p, two.p TO app",
    );
    world
}

/// And a table, of whose column the tests change the type.
pub(crate) fn world_with_t() -> World {
    let world = world();
    change(&world, "CREATE TABLE t AS SELECT 1 AS a");
    world
}

/// One who is served by the pooler, and one who lives the same on a connection of its own.
pub(crate) struct Twins<'a> {
    world: &'a World,
    pooled: Raw,
    direct: Raw,
}

impl<'a> Twins<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        Self { world, pooled: world.client(), direct: world.direct_app() }
    }

    /// Both hear the same.
    pub(crate) fn ask(&mut self, messages: &[Vec<u8>]) -> Reply {
        same(self.both(messages))
    }

    /// The same, where the pooler does not get more than so many bytes at first.
    pub(crate) fn ask_cut(&mut self, messages: &[Vec<u8>], at: usize) -> Reply {
        same(self.both_by(messages, |raw, bytes| raw.send_cut(bytes, at)))
    }

    /// What either hears.
    pub(crate) fn both(&mut self, messages: &[Vec<u8>]) -> (Reply, Reply) {
        self.both_by(messages, Raw::send)
    }

    fn both_by(
        &mut self,
        messages: &[Vec<u8>],
        send: impl FnOnce(&mut Raw, &[u8]),
    ) -> (Reply, Reply) {
        let bytes = messages.concat();
        let readies = messages.iter().filter(|m| matches!(m[0], b'S' | b'Q')).count();
        let hear = |raw: &mut Raw| without_lines(harness::oracle::mask(raw.until_readies(readies)));
        send(&mut self.pooled, &bytes);
        let pooled = hear(&mut self.pooled);
        self.direct.send(&bytes);
        (pooled, hear(&mut self.direct))
    }

    /// The next server has nothing of what the last one was given.
    pub(crate) fn moves(&self) {
        self.world.howdah.order("RECONNECT");
    }
}

fn same((pooled, direct): (Reply, Reply)) -> Reply {
    assert_eq!(pooled, direct, "pooled {}, direct {}", pooled.tags(), direct.tags());
    pooled
}

/// Where in PostgreSQL's source an error was said is nobody's business.
fn without_lines(mut reply: Reply) -> Reply {
    for error in reply.0.iter_mut().filter(|message| message.tag == b'E') {
        let fields = error.body.split(|byte| *byte == 0);
        let rest: Vec<&[u8]> = fields.filter(|field| field.first() != Some(&b'L')).collect();
        error.body = rest.join(&0);
    }
    reply
}

pub(crate) fn prepare(name: &str, sql: &str) -> Vec<Vec<u8>> {
    vec![parse(name, sql), describe_statement(name), sync()]
}

/// As drivers use what they had described.
pub(crate) fn use_it(name: &str, values: &[&str]) -> Vec<Vec<u8>> {
    vec![bind("", name, values), execute("", 0), sync()]
}

/// A change through the pooler.
pub(crate) fn change(world: &World, sql: &str) {
    world.client().run(sql);
}

/// Nobody is given rows of other types than they were told.
#[test]
fn rows_are_of_the_types_that_were_told() {
    howdah_only!("they come as they are");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("s", "SELECT * FROM t"));
    ann.ask(&prepare("a", "SELECT a::text FROM t"));
    assert_eq!(ann.ask(&use_it("s", &[])).value(), "1");
    change(&world, "ALTER TABLE t ALTER a TYPE text");
    for _ in 0..2 {
        ann.moves();
        let reply = ann.ask(&use_it("s", &[]));
        assert_eq!((reply.tags().as_str(), reply.code().as_str()), ("EZ", "0A000"));
        let error = &reply.0[0].body;
        assert!(error.windows(22).any(|part| part == b"RRevalidateCachedQuery"), "drivers look");
        let described = ann.pooled.ask(&[describe_statement("s"), sync()].concat());
        assert_eq!(described.code(), "0A000");
        ann.ask(&use_it("s", &[]));
    }
    // What returns the same goes on.
    ann.moves();
    assert_eq!(ann.ask(&use_it("a", &[])).value(), "1");
    // An error like any other.
    ann.moves();
    ann.ask(&[query("BEGIN")]);
    ann.ask(&use_it("s", &[]));
    assert_eq!(ann.ask(&[query("SELECT 1")]).code(), "25P02");
    ann.ask(&[query("ROLLBACK")]);
    ann.moves();
    ann.ask(&[vec![extended("CREATE TABLE never ()", &[])], use_it("s", &[])].concat());
    assert_eq!(ann.ask(&[query("TABLE never")]).code(), "42P01");
    ann.moves();
    // Said at once with what comes behind it.
    ann.ask(&[use_it("s", &[]), use_it("a", &[]), vec![query("SELECT 7")]].concat());
    // It is as it was again.
    change(&world, "ALTER TABLE t ALTER a TYPE int USING a::int");
    ann.moves();
    assert_eq!(ann.ask(&use_it("s", &[])).value(), "1");
    // Who prepares it anew has it as it is.
    change(&world, "ALTER TABLE t ADD b text DEFAULT 'b'");
    ann.moves();
    assert_eq!(ann.ask(&use_it("s", &[])).code(), "0A000");
    ann.ask(&[vec![close_statement("s")], prepare("s", "SELECT * FROM t")].concat());
    assert_eq!(ann.ask(&use_it("s", &[])).rows()[0].len(), 2);
}

/// And of those that would have been told, had anybody asked.
#[test]
fn rows_are_of_the_types_that_nobody_asked_for() {
    howdah_only!("they come as they are");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    let untold = [parse("s", "SELECT * FROM t"), parse("put", "INSERT INTO t VALUES ($1)"), sync()];
    ann.ask(&untold);
    change(&world, "ALTER TABLE t ALTER a TYPE text");
    ann.moves();
    assert_eq!(ann.ask(&use_it("s", &[])).code(), "0A000");
    ann.ask(&use_it("put", &["one"]));
    ann.moves();
    ann.ask(&[describe_statement("put"), sync()]);
    ann.ask(&use_it("put", &["2"]));
}

/// However it was told.
#[test]
fn a_portal_tells_as_well() {
    howdah_only!("they come as they are");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&[
        parse("s", "SELECT * FROM t"),
        bind("", "s", &[]),
        describe_portal(""),
        execute("", 0),
        sync(),
    ]);
    ann.ask(&[parse("", "TABLE t"), bind("", "", &[]), describe_portal(""), sync()]);
    change(&world, "ALTER TABLE t ALTER a TYPE text");
    ann.moves();
    assert_eq!(ann.ask(&use_it("s", &[])).code(), "0A000");
    assert_eq!(ann.ask(&use_it("", &[])).code(), "0A000");
    change(&world, "DROP TABLE t");
    ann.moves();
    assert_eq!(ann.ask(&use_it("s", &[])).code(), "42P01");
    assert_eq!(ann.ask(&use_it("", &[])).code(), "42P01");
}

/// The types of parameters do not follow what they stand for.
#[test]
fn parameters_are_of_the_types_that_were_told() {
    howdah_only!("they are as they would be now");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("put", "INSERT INTO t VALUES ($1)"));
    ann.ask(&prepare("is", "SELECT true FROM t WHERE a = $1"));
    change(&world, "ALTER TABLE t ALTER a TYPE text");
    for _ in 0..2 {
        ann.moves();
        assert_eq!(ann.ask(&use_it("put", &["7"])).code(), "");
        assert_eq!(ann.ask(&use_it("put", &["seven"])).code(), "22P02");
        assert_eq!(ann.ask(&use_it("is", &["7"])).code(), "42883");
    }
}

/// Another search_path is a change, too.
#[test]
fn what_a_search_path_changes_is_an_error_on_every_server() {
    howdah_only!("it shares them");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET search_path = one")]);
    ann.ask(&prepare("s", "SELECT * FROM p"));
    assert_eq!(ann.ask(&use_it("s", &[])).value(), "5");
    ann.ask(&[query("SET search_path = two")]);
    for _ in 0..2 {
        assert_eq!(ann.ask(&use_it("s", &[])).code(), "0A000");
        ann.moves();
        assert_eq!(ann.ask(&use_it("s", &[])).code(), "0A000");
        ann.moves();
        ann.ask(&[query("BEGIN")]);
        ann.ask(&[query("SET LOCAL search_path = one")]);
        assert_eq!(ann.ask(&use_it("s", &[])).value(), "5");
        assert_eq!(ann.ask(&[query("SHOW search_path")]).value(), "one");
        ann.ask(&[query("COMMIT")]);
        assert_eq!(ann.ask(&[query("SHOW search_path")]).value(), "two");
    }
    ann.moves();
    let mut bob = world.client();
    bob.run("SET search_path = two");
    bob.ask(&prepare("s", "SELECT * FROM p").concat());
    assert_eq!(bob.ask(&use_it("s", &[]).concat()).rows()[0].len(), 2, "nobody else is the worse");
    ann.ask(&[query("SET search_path = one")]);
    assert_eq!(ann.ask(&use_it("s", &[])).value(), "5");
}

/// Constants are read with the settings with which their statement was prepared.
#[test]
fn constants_are_read_once() {
    howdah_only!("they are read as they would be now");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET TimeZone = 'Asia/Tokyo'; SET standard_conforming_strings = off")]);
    let epoch = "SELECT extract(epoch FROM '2021-02-03 00:00'::timestamptz)::int";
    ann.ask(&prepare("epoch", epoch));
    ann.ask(&prepare("slash", r"SELECT 'a\\b', $1"));
    let away = [query("SET TimeZone = 'UTC'"), query("SET standard_conforming_strings = on")];
    ann.ask(&away);
    ann.moves();
    assert_eq!(ann.ask(&use_it("epoch", &[])).value(), "1612278000");
    assert_eq!(ann.ask(&use_it("slash", &["x"])).rows()[0][0].as_deref(), Some(r"a\b"));
    assert_eq!(ann.ask(&[query("SHOW TimeZone")]).value(), "UTC");
    // In a transaction, nothing of which is lost.
    ann.moves();
    change(&world, "CREATE TABLE seen (a int)");
    ann.ask(&[query("BEGIN"), query("INSERT INTO seen VALUES (1)")]);
    ann.ask(&[query("SET LOCAL TimeZone = 'Europe/Zurich'"), query("SAVEPOINT a")]);
    assert_eq!(ann.ask(&use_it("epoch", &[])).value(), "1612278000");
    ann.ask(&[query("SHOW TimeZone"), query("ROLLBACK TO a"), query("SHOW TimeZone")]);
    ann.ask(&use_it("slash", &["x"]));
    ann.ask(&[query("COMMIT"), query("SHOW TimeZone"), query("SELECT max(a) FROM seen")]);
    // Said at once.
    ann.moves();
    ann.ask(&[vec![query("BEGIN")], use_it("epoch", &[]), vec![query("COMMIT")]].concat());
    ann.moves();
    ann.ask(&[vec![query("SELECT 1/0")], use_it("epoch", &[]), use_it("slash", &["y"])].concat());
    ann.moves();
    // In a transaction that has failed nothing can be done.
    ann.ask(&[query("BEGIN"), query("SELECT 1/0")]);
    assert_eq!(ann.ask(&use_it("epoch", &[])).code(), "25P02");
    ann.ask(&[query("ROLLBACK")]);
    assert_eq!(ann.ask(&use_it("epoch", &[])).value(), "1612278000");
    // Nobody else has what it was given.
    let mut bob = world.client();
    bob.run("SET TimeZone = 'UTC'");
    bob.ask(&prepare("epoch", epoch).concat());
    assert_eq!(bob.ask(&use_it("epoch", &[]).concat()).value(), "1612310400");
}

/// Behind other messages of a batch, too.
#[test]
fn constants_are_read_once_behind_a_begin() {
    howdah_only!("they are read as they would be now");
    let world = world_with_t();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET TimeZone = 'Asia/Tokyo'")]);
    let epoch = "SELECT extract(epoch FROM '2021-02-03 00:00'::timestamptz)::int";
    let year = "SELECT '2021-01-01 00:00'::timestamptz, a FROM t WHERE a > $1";
    ann.ask(&[prepare("epoch", epoch), prepare("year", year), prepare("begin", "BEGIN")].concat());
    let away = vec![parse("s", "SET TimeZone = 'UTC'"), bind("", "s", &[]), execute("", 0), sync()];
    ann.ask(&[prepare("", epoch), away, vec![close_statement("s"), sync()]].concat());
    let begin = || [bind("p", "begin", &[]), execute("p", 0)].concat();
    let behind = |messages: &[Vec<u8>]| vec![begin(), messages.concat(), sync(), query("COMMIT")];
    ann.moves();
    let unnamed = [bind("", "", &[]), execute("", 0)];
    assert_eq!(ann.ask(&behind(&unnamed)).column(), ["1612278000"]);
    ann.ask(&prepare("", "SELECT 1"));
    for _ in 0..2 {
        ann.moves();
        let both =
            [bind("", "year", &["0"]), execute("", 0), bind("", "epoch", &[]), execute("", 0)];
        assert_eq!(ann.ask(&behind(&both)).column().last().map(String::as_str), Some("1612278000"));
    }
    // What is given the name in the same flight is what is meant.
    ann.moves();
    let anew = [close_statement("epoch"), parse("epoch", epoch), bind("", "epoch", &[])];
    let reply = ann.ask(&behind(&[anew.concat(), execute("", 0)]));
    assert_eq!(reply.column(), ["1612310400"]);
    // What cannot be parsed in front is found out in its turn, once.
    change(&world, "DROP TABLE t");
    ann.ask(&[query("SET TimeZone = 'Asia/Tokyo'")]);
    ann.ask(&prepare("more", "SELECT 1 WHERE $1 > 0"));
    ann.ask(&[query("SET TimeZone = 'UTC'")]);
    ann.moves();
    ann.ask(&behind(&[bind("", "more", &["1"]), bind("", "year", &["0"]), execute("", 0)]));
    ann.moves();
    ann.ask(&behind(&[bind("", "year", &["0"]), bind("", "more", &["1"]), execute("", 0)]));
}

/// What cannot be prepared with present settings is in the list all the same.
#[test]
fn the_list_has_what_could_not_be_prepared_now() {
    howdah_only!("it lists the server's");
    let world = world();
    let mut ann = Twins::new(&world);
    ann.ask(&[query("SET search_path = one")]);
    ann.ask(&[parse("s", "SELECT * FROM p"), parse("t", "SELECT 1"), sync()]);
    ann.ask(&[query("SET search_path = ''")]);
    ann.moves();
    let list = "SELECT name, from_sql FROM pg_prepared_statements ORDER BY 1";
    let whole = "SELECT name, statement FROM pg_prepared_statements ORDER BY 1";
    assert_eq!(ann.ask(&[query(whole)]).rows().len(), 2);
    ann.ask(&[extended(list, &[]), sync()]);
    ann.moves();
    ann.ask(&[close_statement(""), parse("", list), bind("", "", &[]), execute("", 0), sync()]);
    ann.moves();
    ann.ask(&[query("BEGIN"), query(list), query("COMMIT")]);
    world.direct().run("DROP TABLE one.p");
    ann.moves();
    ann.ask(&[query(list)]);
}

/// Whatever else its client has set since, what it was told holds, or PostgreSQL's error.
#[test]
fn what_was_told_holds_under_other_settings_too() {
    howdah_only!("it has no such statements");
    for (set, in_transaction) in
        [("DateStyle = German", false), ("search_path = one, public", true)]
    {
        let world = world_with_t();
        let mut twins = Twins::new(&world);
        let mut both = |sql: &str| twins.ask(&[query(sql)]);
        both("SELECT 1");
        twins.ask(&prepare("s", "SELECT * FROM t"));
        twins.ask(&prepare("r", "SELECT a + 1 AS b FROM t"));
        let mut both = |sql: &str| twins.ask(&[query(sql)]);
        both(&format!("SET {set}"));
        change(&world, "ALTER TABLE t ALTER COLUMN a TYPE text");
        twins.moves();
        if in_transaction {
            twins.ask(&[query("BEGIN")]);
        }
        assert_eq!(twins.ask(&use_it("s", &[])).code(), "0A000", "{set}");
        if in_transaction {
            twins.ask(&[query("ROLLBACK")]);
        }
        change(&world, "ALTER TABLE t ALTER COLUMN a TYPE int USING 7");
        twins.moves();
        assert_eq!(twins.ask(&use_it("r", &[])).value(), "8", "{set}");
        assert_eq!(twins.ask(&use_it("s", &[])).value(), "7", "{set}");
    }
}

/// What a statement has become since a change is what it is by the settings in force, or cannot be by these.
#[test]
fn what_has_changed_is_what_it_is_by_present_settings() {
    howdah_only!("it has no such statements");
    let world = world_with_t();
    world.direct_app().run("CREATE TABLE two.t AS SELECT 9 AS a");
    let mut ann = Twins::new(&world);
    ann.ask(&prepare("s", "SELECT * FROM t"));
    change(&world, "ALTER TABLE t ALTER COLUMN a TYPE text");
    for (path, code, value) in
        [("one", "42P01", ""), ("public", "0A000", ""), ("two", "", "9"), ("one", "42P01", "")]
    {
        ann.ask(&[query(&format!("SET search_path = {path}"))]);
        ann.moves();
        let reply = ann.ask(&use_it("s", &[]));
        assert_eq!((reply.code().as_str(), reply.column().concat().as_str()), (code, value));
        ann.moves();
        let reply = ann.ask(&[vec![query("BEGIN")], use_it("s", &[]), vec![query("END")]].concat());
        assert_eq!(reply.code(), code, "in a transaction: {path}");
    }
}

/// What a server is given in front of what its client says is not the first thing that the transaction looks at.
#[test]
fn what_is_parsed_ahead_settles_nothing_in_its_transaction() {
    howdah_only!("it has no such statements");
    let world = world_with_t();
    let mut twins = Twins::new(&world);
    twins.ask(&prepare("s", "SELECT count(*), date '2021-02-03' FROM t"));
    twins.ask(&[query("SET DateStyle = German")]);
    twins.moves();
    twins.ask(&[query("BEGIN")]);
    let set = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    let reply = twins.ask(&[vec![query(set)], use_it("s", &[]), vec![query("COMMIT")]].concat());
    assert_eq!(reply.tags(), "CZ2DCZCZ");
    twins.moves();
    let (mut ann, mut bob) = (twins.pooled, world.direct());
    bob.run("BEGIN; INSERT INTO t VALUES (2)");
    ann.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    ann.send(&[vec![query("LOCK TABLE t IN SHARE MODE")], use_it("s", &[])].concat().concat());
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass";
    eventually("she waits for him", || world.direct().value(waits) == "1");
    bob.run("COMMIT");
    let reply = ann.until_readies(2);
    let row: Vec<String> = reply.rows().concat().into_iter().flatten().collect();
    assert_eq!(row, ["2", "03.02.2021"], "{reply:?}");
}
