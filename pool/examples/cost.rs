//! What an acquire and a release cost. `cargo run --release -p howdah-pool --example cost`

use std::hint::black_box;
use std::sync::Arc;

use pool::{Action, Board, ClientId, Duration, Instant, Limits, Pool, PoolId, ServerId, WorkerId};

const LIMITS: Limits = Limits {
    wait: Some(Duration::from_secs(120)),
    notify: Some(Duration::from_secs(5)),
    idle: Some(Duration::from_secs(600)),
    lifetime: Duration::from_secs(3600),
    check_delay: Some(Duration::from_secs(30)),
    round_robin: false,
    size: 20,
    opening_max: 8,
};
const TIMES: u64 = 10_001;
const ROUNDS: u64 = 500;
const NOW: Instant = Instant(1_000_000_000_000);

fn main() {
    for workers in [1, 4, 16] {
        let board = Arc::new(Board::new(workers));
        let mut pool = filled(&board, 20);
        // The clock stands still for the pool: what is measured is the pool.
        let pair = |pool: &mut Pool, out: &mut Vec<Action>, turn: u64| {
            let client = ClientId((turn % 1000) as u32);
            pool.acquire(client, NOW, out);
            if let Some(Action::Link { server, .. }) = out.pop() {
                pool.release(server, NOW, out);
            }
            out.clear();
        };
        measure(&format!("acquire + release, {workers} workers"), &mut pool, pair);
    }
    for workers in [1, 4] {
        let board = Arc::new(Board::new(workers));
        let mut pool = filled(&board, 1);
        let mut out = Vec::new();
        for client in 0..=10_000 {
            pool.acquire(ClientId(client), NOW, &mut out);
            pool.denied();
        }
        let pair = |pool: &mut Pool, out: &mut Vec<Action>, turn: u64| {
            pool.release(ServerId(0), NOW, out);
            pool.acquire(ClientId((turn % 10_001) as u32), NOW, out);
            out.clear();
        };
        measure(&format!("release + acquire, 10,000 in line, {workers} workers"), &mut pool, pair);
        let leave = |pool: &mut Pool, out: &mut Vec<Action>, turn: u64| {
            let client = ClientId(2_000_000 + (turn % 7) as u32);
            pool.acquire(client, NOW, out);
            pool.forget(client, out);
            out.clear();
        };
        measure(&format!("join + leave, 10,000 in line, {workers} workers"), &mut pool, leave);
    }
    let board = Arc::new(Board::new(4));
    let mut pool = filled(&board, 20);
    measure("tick with nothing due", &mut pool, |pool, out, _| pool.tick(NOW, out));
    measure("deadline", &mut pool, |pool, _, _| {
        black_box(pool.deadline());
    });
}

fn filled(board: &Arc<Board>, servers: u32) -> Pool {
    let mut pool = Pool::new(PoolId(0), WorkerId(0), LIMITS, Arc::clone(board));
    for server in (0..servers).map(ServerId) {
        pool.connecting(server, NOW);
        pool.opened(server, NOW, &mut Vec::new());
    }
    pool
}

/// The best of many rounds: the others had company on their core.
fn measure(what: &str, pool: &mut Pool, mut act: impl FnMut(&mut Pool, &mut Vec<Action>, u64)) {
    let mut out = Vec::new();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        #[expect(clippy::disallowed_types, reason = "a measurement needs a clock")]
        let start = std::time::Instant::now();
        (0..TIMES).for_each(|turn| act(pool, &mut out, turn));
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / TIMES as f64);
    }
    println!("{what}: {best:.1} ns");
}
