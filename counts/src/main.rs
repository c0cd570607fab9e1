//! `counts CASE N`: does one thing N times, for callgrind to count; `ci/counts` compares.
//!
//! What it costs to do it once is the difference between two runs, over the difference of their
//! numbers: so nothing of how a process begins or ends is in it.

use std::process::ExitCode;

mod far;
mod rooms;
mod whole;

use rig::script::Workload;

/// What can be counted: a name, and how it is done so many times.
struct Case {
    name: &'static str,
    run: fn(usize),
}

#[rustfmt::skip]
const CASES: [Case; 12] = [
    // A room by itself.
    Case { name: "wire.scan", run: rooms::scan },
    Case { name: "pool.idle", run: rooms::idle },
    Case { name: "pool.line", run: rooms::line },
    Case { name: "session.simple", run: |n| rooms::relay(Workload::Simple, n) },
    Case { name: "session.extended", run: |n| rooms::relay(Workload::Extended, n) },
    Case { name: "session.named", run: |n| rooms::relay(Workload::Named, n) },
    Case { name: "session.transaction", run: |n| rooms::relay(Workload::Transaction, n) },
    // A worker with all its rooms, between clients and servers in memory.
    Case { name: "worker.simple", run: |n| whole::run(Workload::Simple, n) },
    Case { name: "worker.extended", run: |n| whole::run(Workload::Extended, n) },
    Case { name: "worker.named", run: |n| whole::run(Workload::Named, n) },
    Case { name: "worker.transaction", run: |n| whole::run(Workload::Transaction, n) },
    Case { name: "worker.connect", run: |n| whole::run(Workload::Connect, n) },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next().and_then(|count| count.parse().ok())) {
        (Some(name), Some(count)) => {
            let Some(case) = CASES.iter().find(|case| case.name == name) else {
                eprintln!("no case is called {name}");
                return ExitCode::FAILURE;
            };
            (case.run)(count);
        }
        _ => CASES.iter().for_each(|case| println!("{}", case.name)),
    }
    ExitCode::SUCCESS
}
