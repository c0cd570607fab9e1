//! A million prepared statements through one pool: by hand, since it takes minutes.

use std::time::Instant;

use harness::say::{bind, close_statement, execute, parse, sync};
use harness::{Raw, World};

/// Clients, each on a thread of its own; statements that each keeps; and in a batch.
const CLIENTS: usize = 8;
const KEPT: usize = 500;
const BATCH: usize = 50;

/// Statements `from` and those behind it, each in the place of the one that is `KEPT` older, and a use of one of them that is kept.
fn batch(client: &mut Raw, of: usize, from: usize) {
    let name = |n: usize| format!("s{}", n % KEPT);
    let mut messages = Vec::new();
    for n in from..from + BATCH {
        let text = format!("SELECT {n} * 1000 + {of} + $1::int");
        messages.extend([close_statement(&name(n)), parse(&name(n), &text)]);
        messages.extend([bind("", &name(n), &["7"]), execute("", 0)]);
    }
    // One that some server of the pool has lost by now, as a rule.
    let old = from.saturating_sub(KEPT / 2);
    messages.extend([bind("", &name(old), &["8"]), execute("", 0), sync()]);
    let rows = client.ask(&messages.concat()).column();
    let right = |n: usize, more: usize| (n * 1000 + of + more).to_string();
    let mut expected: Vec<String> = (from..from + BATCH).map(|n| right(n, 7)).collect();
    expected.push(right(old, 8));
    assert_eq!(rows, expected);
}

#[test]
#[ignore = "takes minutes"]
fn a_million_statements_through_one_pool() {
    howdah_only!("prepared statements are of 1.21");
    let number = |name: &str, usual: usize| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
    };
    let each = number("STATEMENTS", 1_000_000) / CLIENTS;
    let world = World::pool(4);
    let mut clients: Vec<Raw> = (0..CLIENTS).map(|_| world.client()).collect();
    for (of, client) in clients.iter_mut().enumerate() {
        (0..KEPT).step_by(BATCH).for_each(|from| batch(client, of, from));
    }
    let (before, began) = (world.howdah.resident_kb(), Instant::now());
    std::thread::scope(|scope| {
        for (of, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                (KEPT..each).step_by(BATCH).for_each(|from| batch(client, of, from));
            });
        }
    });
    let (after, took) = (world.howdah.resident_kb(), began.elapsed().as_secs());
    println!("{} statements in {took} s; resident {before} kB, then {after} kB", each * CLIENTS);
    assert!(after < before + 64 * 1024, "{before} kB, then {after} kB");
}
