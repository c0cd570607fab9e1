//! LISTEN and NOTIFY in transaction mode: as many listeners as one likes over a handful of servers, and nothing
//! lost, doubled or out of order; and the pids that clients were given, wherever they are used.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::reply::Cursor;
use harness::say::{bind, describe_portal, execute, parse, query, sync};
use harness::{Dice, Raise, Raw, World, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// Pid, channel and payload of a notification.
fn said(message: &harness::Message) -> (i32, String, String) {
    let mut body = Cursor(&message.body);
    (body.int32(), body.text(), body.text())
}

/// What came up to the next `ReadyForQuery`.
fn heard(reply: &harness::Reply) -> Vec<String> {
    reply.of(b'A').map(|message| said(message).2).collect()
}

/// The payload of the next notification.
fn next(client: &mut Raw) -> String {
    said(client.until(b'A').0.last().expect("one")).2
}

fn pid(client: &Raw) -> i32 {
    Cursor(client.key.as_ref().expect("a key")).int32()
}

/// How many clients the hub listens for.
fn away(world: &World) -> usize {
    let rows = world.howdah.rows("SHOW LISTENERS", &[("database", "shop")], "clients");
    rows.iter().map(|count| count.parse::<usize>().expect("a number")).sum()
}

fn all_away(world: &World, count: usize) {
    eventually("the hub listens for them", || away(world) == count);
}

#[test]
fn many_listen_over_two_servers() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let mut clients: Vec<Raw> = (0..30).map(|_| world.client()).collect();
    for client in &mut clients {
        client.run("LISTEN news");
    }
    let mut other = world.client();
    for number in 0..50 {
        other.run(&format!("NOTIFY news, '{number}'"));
    }
    for client in &mut clients {
        let all: Vec<_> = (0..50).map(|_| next(client)).collect();
        assert_eq!(all, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    }
    assert!(world.servers() <= 2);
    all_away(&world, 30);
    assert_eq!(world.howdah.console("SHOW PINS").rows().len(), 0);
    // They say something, and listen still.
    for client in &mut clients {
        assert_eq!(client.value("SELECT pg_listening_channels()"), "news");
    }
    other.run("NOTIFY news, 'again'");
    for client in &mut clients {
        assert_eq!(next(client), "again");
    }
}

#[test]
fn what_was_notified_before_a_query_is_there_with_its_answer() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(3);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("LISTEN a");
    all_away(&world, 1);
    for number in 0..20 {
        bob.run(&format!("NOTIFY a, '{number}'"));
        assert_eq!(heard(&ann.run("SELECT 1")), [number.to_string()]);
        if number % 3 == 0 {
            all_away(&world, 1);
        }
    }
    // Its own come before its answer, with its own pid.
    let reply = ann.run("NOTIFY a, 'mine'");
    assert_eq!(reply.tags(), "CAZ");
    let (from, ..) = said(reply.of(b'A').next().expect("one"));
    assert_eq!(from, pid(&ann));
    all_away(&world, 1);
    bob.run("NOTIFY a, 'his'");
    let reply = ann.until(b'A');
    assert_eq!(said(reply.of(b'A').next().expect("one")).0, pid(&bob));
}

#[test]
fn unlisten_and_rollback_are_postgresqls_own() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("LISTEN a; LISTEN b");
    all_away(&world, 2);
    for sql in ["BEGIN", "UNLISTEN a", "LISTEN c", "ROLLBACK"] {
        ann.run(sql);
    }
    all_away(&world, 2);
    bob.run("NOTIFY c, 'no'; NOTIFY a, 'yes'");
    assert_eq!(next(&mut ann), "yes");
    for sql in ["BEGIN", "UNLISTEN a", "LISTEN c", "COMMIT"] {
        ann.run(sql);
    }
    bob.run("NOTIFY a, 'no'; NOTIFY c, 'yes'");
    assert_eq!(heard(&ann.run("SELECT 1")), ["yes"]);
    let channels = ann.run("SELECT * FROM pg_listening_channels() ORDER BY 1").column();
    assert_eq!(channels, ["b", "c"]);
    all_away(&world, 2);
    ann.run("UNLISTEN *");
    all_away(&world, 0);
    bob.run("NOTIFY c, 'no'");
    assert_eq!(heard(&ann.run("SELECT 1")), [""; 0]);
    // Nobody else listens because of it.
    assert_eq!(bob.run("SELECT * FROM pg_listening_channels()").rows().len(), 0);
    let mut servers = (0..2).map(|_| world.client()).collect::<Vec<_>>();
    for client in &mut servers {
        client.run("BEGIN");
        assert_eq!(client.run("SELECT * FROM pg_listening_channels()").rows().len(), 0);
    }
}

#[test]
fn a_notification_waits_for_the_end_of_a_transaction() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("LISTEN a");
    all_away(&world, 1);
    ann.run("BEGIN");
    bob.run("NOTIFY a, 'x'");
    assert_eq!(heard(&ann.run("SELECT 1")), [""; 0]);
    assert_eq!(heard(&ann.run("COMMIT")), ["x"]);
}

#[test]
fn the_same_channel_in_two_databases_is_two_channels() {
    howdah_only!("LISTEN is lost there");
    let postgres = harness::Postgres::shared();
    let store = postgres.database();
    let world = World::with(2, |setup| setup.database("store", &postgres.target(&store)));
    let enter = |db: &str| world.login().database(db).enter();
    let (mut shop, mut stock) = (enter("shop"), enter("store"));
    shop.run("LISTEN a");
    stock.run("LISTEN a");
    all_away(&world, 1);
    enter("shop").run("NOTIFY a, 'shop'");
    enter("store").run("NOTIFY a, 'store'");
    assert_eq!(next(&mut shop), "shop");
    assert_eq!(next(&mut stock), "store");
    assert_eq!(heard(&shop.run("SELECT 1")), [""; 0]);
}

/// Two notify as fast as they can while listeners come and go between hub and servers: everybody hears
/// everything once, and in the order in which it was committed.
#[test]
fn in_a_storm_everything_comes_once_and_in_order() {
    howdah_only!("LISTEN is lost there");
    let world = World::with(4, |setup| setup.set("workers", 2));
    world.direct().run(
        "CREATE TABLE counts (n int); INSERT INTO counts VALUES (0); GRANT ALL ON counts TO app",
    );
    let over = AtomicBool::new(false);
    let mut listeners: Vec<Raw> = (0..12).map(|_| world.client()).collect();
    for client in &mut listeners {
        client.run("LISTEN storm");
    }
    let total = 400;
    std::thread::scope(|scope| {
        let _end = Raise(&over);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = world.direct_app();
                for _ in 0..total / 2 {
                    // The lock makes one order of them.
                    client.run(
                        "BEGIN; UPDATE counts SET n = n + 1; \
                         SELECT pg_notify('storm', n::text) FROM counts; COMMIT",
                    );
                }
            });
        }
        let hear = |(index, mut client): (usize, Raw)| {
            let mut dice = Dice::from(index as u64 + 7);
            let mut all = Vec::new();
            while all.len() < total {
                if dice.below(3) == 0 {
                    all.extend(heard(&client.run("SELECT 1")));
                } else if dice.below(20) == 0 {
                    // Long enough for the hub to take over.
                    all.extend(heard(&client.until_quiet(Duration::from_millis(300))));
                } else {
                    all.push(next(&mut client));
                }
            }
            assert_eq!(heard(&client.run("SELECT 1")), [""; 0], "one too many");
            all
        };
        let threads: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|listener| scope.spawn(move || hear(listener)))
            .collect();
        let wanted: Vec<String> = (1..=total).map(|number| number.to_string()).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), wanted);
        }
    });
}

/// A process that stands still, for as long as this lives.
struct Halt(Pid);

impl Halt {
    fn new(pid: &str) -> Self {
        let pid = Pid::from_raw(pid.parse().expect("a number")).expect("a process");
        kill_process(pid, Signal::STOP).expect("it is there");
        Self(pid)
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        let _gone = kill_process(self.0, Signal::CONT);
    }
}

/// A world whose hub has been told to listen and does not come to it; and its first client.
fn slow_hub() -> (World, Raw, Halt) {
    for _ in 0..20 {
        let world = World::pool(2);
        let mut ann = world.client();
        ann.run("BEGIN; LISTEN a");
        let pid = ann.value("SELECT pg_backend_pid()");
        ann.run("COMMIT");
        // Behind the question that follows a LISTEN.
        ann.run("SELECT 1");
        let halt = Halt::new(&pid);
        eventually("there is a hub", || world.howdah.log().contains("listens for idle clients"));
        let sql = format!("SELECT query LIKE '%howdah_%' FROM pg_stat_activity WHERE pid = {pid}");
        if world.direct().value(&sql) == "f" {
            return (world, ann, halt);
        }
        // It was quicker.
    }
    panic!("the hub is always quicker");
}

/// Whoever joins a hub sends a marker. Before the hub listens for that, it would hear nothing of the hub's ever.
#[test]
fn nobody_joins_a_hub_that_does_not_listen_yet() {
    howdah_only!("LISTEN is lost there");
    let (world, mut ann, halt) = slow_hub();
    let (mut bob, mut eve) = (world.client(), world.client());
    bob.run("LISTEN a");
    // She waits for the server that listens for Bob: it would be his no longer if he could join.
    eve.send(&query("SELECT 'eve'"));
    let early = eve.until_quiet(Duration::from_secs(1));
    assert_eq!(early.tags(), "", "Bob has joined a hub that is deaf");
    drop(halt);
    assert_eq!(eve.until_ready().value(), "eve");
    all_away(&world, 2);
    eve.run("NOTIFY a, 'x'");
    assert_eq!((next(&mut ann), next(&mut bob)), ("x".into(), "x".into()));
}

/// Nor does anybody leave it: the client whose server it was may have something to say at once.
#[test]
fn nobody_leaves_a_hub_that_does_not_listen_yet() {
    howdah_only!("LISTEN is lost there");
    let (world, mut ann, halt) = slow_hub();
    ann.send(&query("SELECT 'ann'"));
    let early = ann.until_quiet(Duration::from_secs(1));
    assert_eq!(early.tags(), "", "nobody can know what she has missed");
    drop(halt);
    assert_eq!(ann.until_ready().value(), "ann");
    world.client().run("NOTIFY a, 'x'");
    assert_eq!(next(&mut ann), "x");
    all_away(&world, 1);
    world.client().run("NOTIFY a, 'y'");
    assert_eq!(next(&mut ann), "y");
}

#[test]
fn whoever_the_hub_listened_for_is_told_when_it_is_lost() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(3);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("LISTEN a");
    all_away(&world, 1);
    bob.run("SELECT 1");
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE query ~ 'howdah_' AND datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(world.direct().run(sql).rows().len(), 1);
    let fields = ann.fatal();
    assert_eq!(fields.code(), "57P01");
    assert!(ann.is_closed());
    // Others go on, and the next to listen does so.
    let mut eve = world.client();
    eve.run("LISTEN a");
    all_away(&world, 1);
    bob.run("NOTIFY a, 'x'");
    assert_eq!(next(&mut eve), "x");
}

/// RECONNECT makes a hub obsolete: whoever it listened for is told, and whoever has a server of its own is not.
#[test]
fn reconnect_ends_those_whom_the_hub_listens_for() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(4);
    let (mut ann, mut eve) = (world.client(), world.client());
    for client in [&mut ann, &mut eve] {
        client.run("LISTEN a");
    }
    all_away(&world, 2);
    // She has come back from the hub.
    eve.run("BEGIN");
    all_away(&world, 1);
    world.howdah.order("RECONNECT");
    assert_eq!(ann.fatal().code(), "57P01");
    assert!(ann.is_closed());
    world.direct().run("NOTIFY a, 'x'");
    assert_eq!(heard(&eve.run("COMMIT")), ["x"]);
    all_away(&world, 1);
    world.direct().run("NOTIFY a, 'y'");
    assert_eq!(next(&mut eve), "y");
}

#[test]
fn pause_is_not_held_up_by_listeners() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let mut ann = world.client();
    ann.run("LISTEN a");
    all_away(&world, 1);
    world.howdah.order("PAUSE");
    assert_eq!(ann.fatal().code(), "57P01");
    world.howdah.order("RESUME");
    // Nor by one that has only just said so.
    let mut bob = world.client();
    bob.run("LISTEN a");
    world.howdah.order("PAUSE");
    assert_eq!(bob.fatal().code(), "57P01");
    world.howdah.order("RESUME");
    assert_eq!(world.client().value("SELECT 1"), "1");
}

/// What has other bytes in another encoding is left to a server of one's own, and that is shown.
#[test]
fn a_channel_beyond_ascii_pins() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("LISTEN \"größe\"");
    eventually("it is pinned", || {
        world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons") == ["listen"]
    });
    bob.run("NOTIFY \"größe\", 'x'");
    assert_eq!(next(&mut ann), "x");
    ann.run("UNLISTEN *");
    eventually("it is free again", || {
        world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons").is_empty()
    });
}

/// A hub serves nobody: where it would be the only server, who listens keeps it, and can go on talking.
#[test]
fn a_pool_of_one_has_no_hub() {
    howdah_only!("LISTEN is lost there");
    for limit in ["default_pool_size", "max_db_connections", "max_user_connections"] {
        let world = World::with(2, |setup| setup.set(limit, 1));
        let mut ann = world.client();
        ann.run("LISTEN a");
        eventually("she is pinned", || {
            world.howdah.rows("SHOW PINS", &[("database", "shop")], "reasons") == ["listen"]
        });
        assert_eq!(ann.value("SELECT 1"), "1");
        world.direct().run("NOTIFY a, 'x'");
        assert_eq!(next(&mut ann), "x");
    }
}

#[test]
fn a_hub_that_nobody_needs_is_a_server_as_others() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let mut ann = world.client();
    ann.run("SET work_mem = '7MB'; LISTEN a");
    all_away(&world, 1);
    assert_eq!(world.pools("sv_active"), "1");
    ann.leave();
    eventually("the hub is given back", || world.pools("sv_active") == "0");
    let mut bob = world.client();
    assert_eq!(bob.run("SELECT * FROM pg_listening_channels()").rows().len(), 0);
    assert_eq!(bob.value("SHOW work_mem"), "4MB");
}

#[test]
fn a_clients_pid_is_its_servers_wherever_it_is_said() {
    howdah_only!("a pid means nothing there");
    let world = World::pool(2);
    let (mut ann, mut bob) = (world.client(), world.client());
    ann.run("BEGIN");
    let real = ann.value("SELECT pg_backend_pid()");
    let anns = pid(&ann);
    assert_ne!(real, anns.to_string());
    let sql = format!("SELECT state FROM pg_stat_activity WHERE pid = {anns}");
    assert_eq!(bob.value(&sql), "idle in transaction");
    let ask = |bob: &mut Raw, sql: &str, name: &str, parameters: &[&str]| {
        let mut bytes = parse(name, sql);
        bytes.extend(bind("", name, parameters));
        bytes.extend(describe_portal(""));
        bytes.extend(execute("", 0));
        bytes.extend(sync());
        let reply = bob.ask(&bytes);
        assert!(reply.error().is_none(), "{:?}", reply.error());
        reply.value()
    };
    let text =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ('{{{anns}}}'::int[])");
    for name in ["", "by name"] {
        assert_eq!(ask(&mut bob, &text, name, &[]), "1");
    }
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::int";
    for name in ["", "with a parameter"] {
        assert_eq!(ask(&mut bob, sql, name, &[&anns.to_string()]), "1");
    }
    // A statement that was prepared looks again each time.
    ann.run("COMMIT");
    let mut again = bind("", "by name", &[]);
    again.extend(execute("", 0));
    again.extend(sync());
    eventually("it has no server", || bob.ask(&again).value() == "0");
    ann.run("BEGIN");
    assert_eq!(bob.ask(&again).value(), "1");
    // Whoever is to be ended is.
    assert_eq!(bob.value(&format!("SELECT pg_terminate_backend({anns})")), "t");
    assert_eq!(ann.fatal().code(), "57P01");
    // What is no client's pid is left alone.
    assert_eq!(bob.value("SELECT 1999999999 + 1"), "2000000000");
}

#[test]
fn a_notifier_is_known_by_the_pid_it_was_given() {
    howdah_only!("LISTEN is lost there");
    let world = World::pool(2);
    let mut listener = world.client();
    listener.run("LISTEN a");
    all_away(&world, 1);
    let mut notifiers: BTreeMap<i32, Raw> = (0..3)
        .map(|_| {
            let client = world.client();
            (pid(&client), client)
        })
        .collect();
    for (pid, client) in &mut notifiers {
        client.send(&query("NOTIFY a"));
        client.until_ready();
        let reply = listener.until(b'A');
        assert_eq!(said(reply.of(b'A').next().expect("one")).0, *pid);
    }
    let mut other = world.direct();
    let real: i32 = other.value("SELECT pg_backend_pid()").parse().expect("a number");
    other.run("NOTIFY a");
    let reply = listener.until(b'A');
    assert_eq!(said(reply.of(b'A').next().expect("one")).0, real);
}

/// More texts with pids in them than a server keeps statements, and each another one as servers change.
#[test]
fn statements_that_hold_pids_make_room_for_each_other() {
    howdah_only!("a pid means nothing there");
    let world = World::with(8, |setup| setup.set("max_prepared_statements", 3));
    let mut others: Vec<Raw> = (0..6).map(|_| world.client()).collect();
    let mut bob = world.client();
    let name = |number: usize| format!("s{number}");
    for (number, other) in others.iter().enumerate() {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1 || '{{{}}}'::int[])",
            pid(other)
        );
        let mut bytes = parse(&name(number), &sql);
        bytes.extend(sync());
        assert_eq!(bob.ask(&bytes).tags(), "1Z");
    }
    let mut dice = Dice::new();
    for round in 0..60 {
        let number = dice.below(others.len());
        let has_server = dice.below(2) == 0;
        if has_server {
            others[number].run("BEGIN");
        }
        let mut bytes = bind("", &name(number), &["{1}"]);
        bytes.extend(describe_portal(""));
        bytes.extend(execute("", 0));
        bytes.extend(sync());
        let count = if has_server { "1" } else { "0" };
        assert_eq!(bob.ask(&bytes).value(), count, "round {round}");
        if has_server {
            others[number].run("COMMIT");
        }
    }
}

/// The figures of docs/benchmarks.md: `cargo test -p howdah-tests ten_thousand -- --ignored --nocapture`, with
/// descriptors enough for both programs. With `HOWDAH_TEST_BINARY` PgBouncer's, in session mode: the same with a
/// server for each.
#[test]
#[ignore = "a measurement"]
fn ten_thousand_listeners() {
    let count: usize =
        std::env::var("LISTENERS").map_or(10_000, |count| count.parse().expect("a number"));
    let shares = harness::subject() == harness::Subject::Howdah;
    let world = World::with(5, |setup| {
        let setup = setup.set("auth_type", "trust").set("max_client_conn", count + 100);
        if shares {
            setup.set("workers", 2)
        } else {
            setup.set("pool_mode", "session").set("default_pool_size", count + 30)
        }
    });
    let first: Vec<Raw> = (0..20).map(|_| world.client()).collect();
    let before = world.howdah.resident_kb();
    let (time, mut clients) =
        harness::took(|| (0..count).map(|_| world.client()).collect::<Vec<_>>());
    let idle = world.howdah.resident_kb();
    println!("{count} clients in {time:?}, {} bytes each", (idle - before) * 1024 / count as u64);
    let all_away = |count: usize| {
        harness::eventually_within(Duration::from_secs(120), "all away", || {
            !shares || away(&world) >= count
        });
    };
    let (time, ()) = harness::took(|| {
        at_once(&mut clients, |_| "LISTEN news".into());
        all_away(count);
    });
    let bytes = world.howdah.resident_kb().saturating_sub(idle) * 1024 / count as u64;
    println!("they LISTEN in {time:?}, {bytes} bytes more each, {} servers", world.servers());
    let rounds = 50;
    let (time, ()) = harness::took(|| to_all(&mut world.direct_app(), &mut clients, rounds));
    let all = count * rounds;
    println!("{all} delivered in {time:?}: {:.0} per second", all as f64 / time.as_secs_f64());
    let (time, ()) = harness::took(|| {
        at_once(&mut clients, |number| format!("LISTEN c{number}"));
        all_away(2 * count);
    });
    println!("each LISTENs to one of its own in {time:?}");
    to_one(&world, &mut clients, "one of them");
    let mut alone = [world.direct_app()];
    alone[0].run("LISTEN c0");
    to_one(&world, &mut alone, "a listener straight at the database");
    drop(first);
}

/// Each client runs what `sql` says of its number, eight at any time.
fn at_once(clients: &mut [Raw], sql: impl Fn(usize) -> String + Sync) {
    let share = clients.len().div_ceil(8);
    std::thread::scope(|scope| {
        for (part, clients) in clients.chunks_mut(share).enumerate() {
            let sql = &sql;
            scope.spawn(move || {
                for (index, client) in clients.iter_mut().enumerate() {
                    client.run(&sql(part * share + index));
                }
            });
        }
    });
}

fn to_all(notifier: &mut Raw, clients: &mut [Raw], rounds: usize) {
    for round in 0..rounds {
        notifier.run(&format!("NOTIFY news, '{round}'"));
    }
    for client in clients {
        for round in 0..rounds {
            assert_eq!(next(client), round.to_string());
        }
    }
}

/// From when a NOTIFY was sent to when the one client that it is for has it.
fn to_one(world: &World, clients: &mut [Raw], whom: &str) {
    let (mut notifier, mut dice) = (world.direct_app(), Dice::new());
    let mut times: Vec<Duration> = (0..2000)
        .map(|round| {
            let number = dice.below(clients.len());
            let (time, heard) = harness::took(|| {
                notifier.send(&query(&format!("NOTIFY c{number}, '{round}'")));
                next(&mut clients[number])
            });
            assert_eq!(heard, round.to_string());
            notifier.until_ready();
            time
        })
        .collect();
    times.sort();
    let at = |percent: usize| times[times.len() * percent / 100];
    println!("to {whom}: p50 {:?}, p99 {:?}", at(50), at(99));
}
