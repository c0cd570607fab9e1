//! Statements of one text that mean different things, by the settings they were prepared with: none is given to
//! a client of another meaning.

use harness::say::{bind, describe_statement, execute, parse, sync};
use harness::{Raw, Reply, World};

fn world() -> World {
    let world = World::pool(1);
    world.direct().run(
        "CREATE SCHEMA one; CREATE SCHEMA two; GRANT ALL ON SCHEMA one, two TO app; \
         CREATE TABLE one.t AS SELECT 5 AS a; CREATE TABLE two.t AS SELECT 'five' AS a, 'b' AS b; \
         GRANT ALL ON one.t, two.t TO app",
    );
    world
}

fn with(world: &World, setting: &str) -> Raw {
    let mut client = world.client();
    client.run(setting);
    client
}

fn prepare(client: &mut Raw, sql: &str) -> Reply {
    client.ask(&[parse("s", sql), describe_statement("s"), sync()].concat())
}

fn use_it(client: &mut Raw, parameters: &[&str]) -> Reply {
    client.ask(&[bind("", "s", parameters), execute("", 0), sync()].concat())
}

/// The type of its parameter and the number of its columns.
fn shape(reply: &Reply) -> (u8, u8) {
    (reply.0[1].body[5], reply.0[2].body[1])
}

#[test]
fn of_two_search_paths_each_has_its_own() {
    howdah_only!("it shares them");
    let world = world();
    let mut one = with(&world, "SET search_path = one");
    let mut two = with(&world, "SET search_path = two");
    let mut none = world.client();
    let sql = "SELECT * FROM t WHERE a = $1";
    assert_eq!(shape(&prepare(&mut one, sql)), (23, 1));
    assert_eq!(shape(&prepare(&mut two, sql)), (25, 2));
    assert_eq!(prepare(&mut none, sql).code(), "42P01");
    for _ in 0..2 {
        assert_eq!(use_it(&mut one, &["5"]).value(), "5");
        assert_eq!(use_it(&mut two, &["five"]).value(), "five");
    }
    // The unnamed one is nobody else's either.
    one.ask(&[parse("", sql), sync()].concat());
    two.ask(&[parse("", sql), sync()].concat());
    let run = |client: &mut Raw, value| {
        client.ask(&[bind("", "", &[value]), execute("", 0), sync()].concat()).value()
    };
    for _ in 0..2 {
        assert_eq!(run(&mut one, "5"), "5");
        assert_eq!(run(&mut two, "five"), "five");
    }
}

/// A constant is read when its statement is.
#[test]
fn of_two_time_zones_each_has_its_own() {
    howdah_only!("it shares them");
    let world = world();
    let sql = "SELECT extract(epoch FROM '2021-02-03 00:00'::timestamptz)::int";
    let mut tokyo = with(&world, "SET TimeZone = 'Asia/Tokyo'");
    let mut utc = with(&world, "SET TimeZone = 'UTC'");
    prepare(&mut tokyo, sql);
    prepare(&mut utc, sql);
    for _ in 0..2 {
        assert_eq!(use_it(&mut tokyo, &[]).value(), "1612278000");
        assert_eq!(use_it(&mut utc, &[]).value(), "1612310400");
    }
}

/// What was prepared while something was set that nobody has asked about yet is its client's alone.
#[test]
fn what_was_prepared_after_a_set_is_not_shared() {
    howdah_only!("it shares them");
    let world = world();
    let mut one = with(&world, "SET search_path = one");
    let mut also_one = with(&world, "SET search_path = one");
    let sql = "SELECT * FROM t WHERE a = $1";
    one.run("BEGIN");
    one.run("SET LOCAL search_path = two");
    assert_eq!(shape(&prepare(&mut one, sql)), (25, 2));
    assert_eq!(use_it(&mut one, &["five"]).value(), "five");
    one.run("COMMIT");
    assert_eq!(shape(&prepare(&mut also_one, sql)), (23, 1));
    assert_eq!(use_it(&mut also_one, &["5"]).value(), "5");
    let mut two = world.client();
    two.send(&[harness::say::query("SET search_path = two"), parse("s", sql), sync()].concat());
    two.until_readies(2);
    assert_eq!(use_it(&mut two, &["five"]).value(), "five");
    assert_eq!(use_it(&mut also_one, &["5"]).value(), "5");
}

/// What a client prepared with other settings than it has now is prepared anew for it where it is missing, and
/// does not become anybody else's.
#[test]
fn what_moves_with_its_client_to_other_settings_is_not_shared() {
    howdah_only!("it shares them");
    let world = world();
    let sql = "SELECT extract(epoch FROM '2021-02-03 00:00'::timestamptz)::int";
    let mut ann = with(&world, "SET TimeZone = 'Asia/Tokyo'");
    prepare(&mut ann, sql);
    ann.run("SET TimeZone = 'UTC'");
    world.howdah.order("RECONNECT");
    assert_eq!(use_it(&mut ann, &[]).value(), "1612278000", "as it was read then");
    assert_eq!(ann.value("SHOW TimeZone"), "UTC");
    let mut bob = with(&world, "SET TimeZone = 'Asia/Tokyo'");
    prepare(&mut bob, sql);
    assert_eq!(use_it(&mut bob, &[]).value(), "1612278000");
}

/// What has no say in what a text means keeps nobody from sharing.
#[test]
fn limits_make_no_difference() {
    howdah_only!("it loses them");
    let world = world();
    let mut clients = [
        with(&world, "SET statement_timeout = '1h'"),
        with(&world, "SET work_mem = '9MB'"),
        world.client(),
    ];
    for client in &mut clients {
        client.run("BEGIN");
        client.run("SET LOCAL lock_timeout = '1h'");
        assert_eq!(prepare(client, "SELECT 'for all'").code(), "");
        client.run("COMMIT");
    }
    let parses =
        world.howdah.cell("SHOW STATS", &[("database", "shop")], "total_server_parse_count");
    assert_eq!(parses, "1");
}
