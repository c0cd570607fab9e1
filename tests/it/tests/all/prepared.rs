//! Prepared statements in transaction and statement mode, as if every client had its own server.

use harness::say::{bind, close_statement, describe_statement, execute, parse, parse_typed, sync};
use harness::{Oracle, Raw, Reply, World, eventually};

fn prepare(client: &mut Raw, name: &str, sql: &str) -> Reply {
    client.ask(&[parse(name, sql), sync()].concat())
}

fn use_it(client: &mut Raw, name: &str, parameters: &[&str]) -> Reply {
    client.ask(&[bind("", name, parameters), execute("", 0), sync()].concat())
}

/// The texts that the one server of a pool has prepared. To one who looks for them plainly, only the client's
/// own would be shown.
fn on_server(client: &mut Raw) -> Vec<String> {
    let list = "SELECT statement FROM pg_prepared_statements ORDER BY prepare_time, statement";
    let hidden = format!(
        "SELECT unnest(xpath('//statement/text()', query_to_xml('{list}', false, false, '')))::text"
    );
    client.run(&hidden).column()
}

#[test]
fn names_are_each_clients_own() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    assert_eq!(prepare(&mut first, "s", "SELECT 'first'").tags(), "1Z");
    assert_eq!(prepare(&mut second, "s", "SELECT 'second'").tags(), "1Z");
    assert_eq!(use_it(&mut first, "s", &[]).column(), ["first"]);
    assert_eq!(use_it(&mut second, "s", &[]).column(), ["second"]);
    second.ask(&[close_statement("s"), sync()].concat());
    assert_eq!(use_it(&mut second, "s", &[]).code(), "26000");
    assert_eq!(use_it(&mut first, "s", &[]).column(), ["first"]);
}

#[test]
fn one_text_is_prepared_once_for_all_clients() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(1);
    let mut clients: Vec<_> = (0..20).map(|_| world.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(prepare(client, &format!("name{n}"), "SELECT $1::int * 2").tags(), "1Z");
        assert_eq!(
            use_it(client, &format!("name{n}"), &[&n.to_string()]).value(),
            (n * 2).to_string()
        );
    }
    assert_eq!(on_server(&mut clients[0]), ["SELECT $1::int * 2"]);
}

#[test]
fn parameter_types_tell_statements_apart() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    for (client, oid) in [(&mut first, 23), (&mut second, 20)] {
        client.ask(&[parse_typed("s", "SELECT $1", &[oid]), sync()].concat());
    }
    for (client, oid) in [(&mut first, 23_i32), (&mut second, 20)] {
        let reply = client.ask(&[describe_statement("s"), sync()].concat());
        assert_eq!(reply.0[0].body, [&[0, 1][..], &oid.to_be_bytes()].concat());
    }
}

#[test]
fn the_least_recently_used_is_closed_on_the_server() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::with(1, |setup| setup.set("max_prepared_statements", 3));
    let mut client = world.client();
    for n in 1..=3 {
        prepare(&mut client, &format!("s{n}"), &format!("SELECT {n}"));
    }
    use_it(&mut client, "s1", &[]);
    prepare(&mut client, "s4", "SELECT 4");
    let mut known = on_server(&mut client);
    known.sort();
    assert_eq!(known, ["SELECT 1", "SELECT 3", "SELECT 4"]);
    assert_eq!(use_it(&mut client, "s2", &[]).column(), ["2"]);
    assert_eq!(on_server(&mut client).len(), 3);
    for n in [1, 2, 3, 4, 1, 2, 3, 4] {
        assert_eq!(use_it(&mut client, &format!("s{n}"), &[]).column(), [n.to_string()]);
    }
    assert_eq!(on_server(&mut client).len(), 3);
}

#[test]
fn a_batch_may_use_more_statements_than_a_server_may_keep() {
    howdah_only!("prepared statements are of 1.21");
    let mut oracle = Oracle::with(|setup| setup.set("max_prepared_statements", 1));
    let all = (1..=4).map(|n| parse(&format!("s{n}"), &format!("SELECT {n}"))).collect::<Vec<_>>();
    oracle.synced("four at once", &all);
    for _ in 0..5 {
        let uses: Vec<_> =
            (1..=4).map(|n| [bind("", &format!("s{n}"), &[]), execute("", 0)].concat()).collect();
        oracle.synced("all four in one batch", &uses);
    }
    oracle.end();
}

#[test]
fn an_unknown_name_is_an_error_and_no_more() {
    howdah_only!("PgBouncer closes the client");
    let mut oracle = Oracle::new();
    oracle.synced("Bind", &[bind("", "nobody", &[]), execute("", 0)]);
    oracle.synced("Describe", &[describe_statement("nobody")]);
    oracle.query("BEGIN");
    oracle.synced("in a transaction", &[bind("", "nobody", &[]), execute("", 0)]);
    oracle.query("ROLLBACK");
    oracle.end();
}

#[test]
fn a_name_in_use_is_an_error_and_no_more() {
    howdah_only!("PgBouncer closes the client");
    let mut oracle = Oracle::new();
    oracle.synced("first", &[parse("s", "SELECT 1")]);
    oracle.synced("same text", &[parse("s", "SELECT 1")]);
    oracle.synced("other text", &[parse("s", "SELECT 2")]);
    oracle.synced("twice in a batch", &[parse("t", "SELECT 3"), parse("t", "SELECT 3")]);
    oracle.synced("the first holds", &[bind("", "s", &[]), execute("", 0)]);
    oracle.synced(
        "closed and anew",
        &[close_statement("s"), parse("s", "SELECT 4"), bind("", "s", &[]), execute("", 0)],
    );
    oracle.end();
}

#[test]
fn deallocate_all_and_discard_all_forget_the_clients_names() {
    howdah_only!("understood since 1.22");
    let world = World::pool(1);
    let mut other = world.client();
    prepare(&mut other, "s", "SELECT 'other'");
    for forget in
        ["DEALLOCATE ALL", "DISCARD ALL", "deallocate prepare all", "SELECT 1; DEALLOCATE ALL"]
    {
        let mut client = world.client();
        prepare(&mut client, "s", "SELECT 'mine'");
        assert_eq!(use_it(&mut client, "s", &[]).column(), ["mine"]);
        client.run(forget);
        assert_eq!(use_it(&mut client, "s", &[]).code(), "26000", "{forget}");
        assert_eq!(prepare(&mut client, "s", "SELECT 'again'").tags(), "1Z");
        assert_eq!(use_it(&mut client, "s", &[]).column(), ["again"]);
        client.ask(&[harness::say::extended("DEALLOCATE ALL", &[]), sync()].concat());
        assert_eq!(use_it(&mut client, "s", &[]).code(), "26000", "{forget}, extended");
        assert_eq!(use_it(&mut other, "s", &[]).column(), ["other"], "another client's name");
    }
}

#[test]
fn statements_follow_their_client_from_server_to_server() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(3);
    let mut client = world.client();
    prepare(&mut client, "s", "SELECT pg_backend_pid()");
    let mut pids = std::collections::BTreeSet::new();
    let mut holders: Vec<_> = (0..2).map(|_| world.client()).collect();
    pids.insert(use_it(&mut client, "s", &[]).value());
    for holder in &mut holders {
        holder.run("BEGIN");
        // What was last used is now held, if it was idle; the client gets another.
        pids.insert(use_it(&mut client, "s", &[]).value());
    }
    assert!(pids.len() > 1, "it never changed servers: {pids:?}");
}

#[test]
fn with_the_limit_at_zero_names_pass_through() {
    let mut oracle = Oracle::with(|setup| {
        if harness::subject() == harness::Subject::Howdah {
            setup.set("max_prepared_statements", 0)
        } else {
            setup
        }
    });
    oracle.synced("Parse", &[parse("own_name", "SELECT 1")]);
    let names = oracle.query("SELECT name FROM pg_prepared_statements").column();
    assert_eq!(names, ["own_name"]);
    oracle.synced("Bind", &[bind("", "own_name", &[]), execute("", 0)]);
    oracle.synced("Close", &[close_statement("own_name")]);
    oracle.query("SELECT name FROM pg_prepared_statements");
    oracle.end();
}

#[test]
fn in_session_mode_names_pass_through() {
    let world = World::with(1, |setup| setup.set("pool_mode", "session"));
    let mut client = world.client();
    prepare(&mut client, "own_name", "SELECT 7");
    assert_eq!(client.run("SELECT name FROM pg_prepared_statements").column(), ["own_name"]);
    assert_eq!(use_it(&mut client, "own_name", &[]).column(), ["7"]);
    client.leave();
    let mut next = world.client();
    assert_eq!(next.value("SELECT count(*) FROM pg_prepared_statements"), "0");
}

#[test]
fn in_statement_mode_they_work_as_in_transaction_mode() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::with(1, |setup| setup.set("pool_mode", "statement"));
    let (mut first, mut second) = (world.client(), world.client());
    prepare(&mut first, "s", "SELECT 'first'");
    prepare(&mut second, "s", "SELECT 'second'");
    assert_eq!(use_it(&mut first, "s", &[]).column(), ["first"]);
    assert_eq!(use_it(&mut second, "s", &[]).column(), ["second"]);
}

#[test]
fn the_limit_can_be_changed_while_statements_live() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(1);
    let mut client = world.client();
    for n in 0..10 {
        prepare(&mut client, &format!("s{n}"), &format!("SELECT {n}"));
    }
    world.howdah.order("SET max_prepared_statements = 2");
    prepare(&mut client, "more", "SELECT 'more'");
    assert!(on_server(&mut client).len() <= 2, "{:?}", on_server(&mut client));
    for n in 0..10 {
        assert_eq!(use_it(&mut client, &format!("s{n}"), &[]).column(), [n.to_string()]);
    }
    world.howdah.order("SET max_prepared_statements = 100");
    for n in 0..10 {
        assert_eq!(use_it(&mut client, &format!("s{n}"), &[]).column(), [n.to_string()]);
    }
}

#[test]
fn they_outlive_a_rollback() {
    let mut oracle = Oracle::new();
    oracle.query("BEGIN");
    oracle.synced("Parse", &[parse("s", "SELECT 'kept'")]);
    oracle.query("SELECT 1/0");
    oracle.synced("not now", &[bind("", "s", &[]), execute("", 0)]);
    oracle.query("ROLLBACK");
    oracle.synced("but now", &[bind("", "s", &[]), execute("", 0)]);
    oracle.end();
}

#[test]
fn long_names_and_long_texts() {
    let mut oracle = Oracle::new().torn();
    for size in [63, 64, 200, 4096, 9000] {
        let (name, text) = ("n".repeat(size), format!("SELECT '{}'", "t".repeat(size * 3)));
        oracle.synced("Parse", &[parse(&name, &text), describe_statement(&name)]);
        oracle.synced("Bind", &[bind("", &name, &[]), execute("", 0)]);
        oracle.synced("Close", &[close_statement(&name), bind("", &name, &[])]);
    }
    oracle.end();
}

#[test]
fn many_parameters_and_null_and_binary() {
    let mut oracle = Oracle::new();
    let count = 2000;
    let list: Vec<_> = (1..=count).map(|n| format!("${n}::int")).collect();
    let values: Vec<_> = (1..=count).map(|n| n.to_string()).collect();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    oracle.synced("Parse", &[parse("s", &format!("SELECT {}", list.join(" + ")))]);
    oracle.synced("2000 of them", &[bind("", "s", &values), execute("", 0)]);
    oracle.synced("too few", &[bind("", "s", &values[1..]), execute("", 0)]);
    // One parameter in binary, which is NULL; one result in binary.
    let null = [&b"\0t\0\0\x01\0\x01\0\x01\xff\xff\xff\xff\0\x01\0\x01"[..]].concat();
    oracle.synced(
        "NULL",
        &[parse("t", "SELECT $1::int4, 5"), harness::say::message(b'B', &null), execute("", 0)],
    );
    oracle.end();
}

#[test]
fn statements_by_the_thousand_do_not_make_memory_grow() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::with(1, |setup| setup.set("max_prepared_statements", 100));
    let mut client = world.client();
    let batch = |client: &mut Raw, round: usize| {
        let one = |n: usize| {
            let (name, text) =
                (format!("s{n}"), format!("SELECT {round} * 100 + {n} /* {} */", "x".repeat(500)));
            [parse(&name, &text), bind("", &name, &[]), execute("", 0), close_statement(&name)]
                .concat()
        };
        client.ask(&[(0..100).flat_map(one).collect(), sync()].concat())
    };
    batch(&mut client, 0);
    let before = world.howdah.resident_kb();
    for round in 1..100 {
        assert_eq!(batch(&mut client, round).count(b'D'), 100);
    }
    let after = world.howdah.resident_kb();
    assert!(after < before + 6000, "10,000 statements took {} kB", after - before);
}

#[test]
fn a_server_that_forgets_everything_is_noticed() {
    howdah_only!("understood since 1.22");
    // Another client's DISCARD ALL empties the server they share.
    let world = World::pool(1);
    let (mut first, mut second) = (world.client(), world.client());
    for n in 0..5 {
        prepare(&mut first, &format!("s{n}"), &format!("SELECT {n}"));
        second.run(if n % 2 == 0 { "DISCARD ALL" } else { "DEALLOCATE ALL" });
        assert_eq!(use_it(&mut first, &format!("s{n}"), &[]).column(), [n.to_string()]);
    }
}

#[test]
fn statements_survive_the_loss_of_every_server() {
    howdah_only!("prepared statements are of 1.21");
    let world = World::pool(2);
    let mut client = world.client();
    prepare(&mut client, "s", "SELECT 'still here'");
    world.howdah.order("RECONNECT");
    eventually("the old server is gone", || world.servers() == 0);
    assert_eq!(use_it(&mut client, "s", &[]).column(), ["still here"]);
}
