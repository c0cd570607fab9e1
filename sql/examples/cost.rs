//! What reading costs: `cargo run --release --example cost`, nanoseconds per text.

use std::hint::black_box;
use std::time::Instant;

use sql::Reading;

fn main() {
    let values = vec!["(1, 'abcdefgh', now())"; 8_000].join(", ");
    let long = format!("INSERT INTO t VALUES {values}");
    let texts = [
        "SELECT 1",
        "BEGIN",
        "SET search_path TO app, public",
        "SELECT abalance FROM pgbench_accounts WHERE aid = 12345",
        "SELECT t.a, u.b, count(*) FROM t JOIN u ON u.id = t.u_id AND u.c IN ($1, $2, $3) WHERE t.d > now() - interval '1 day' \
         AND lower(t.e) LIKE $4 GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
        &long,
    ];
    println!("{:>10} {:>10}", "bytes", "read");
    for text in texts {
        let text = text.as_bytes();
        let rounds = (20_000_000 / (5_000 + 1_000 * text.len())).max(5);
        let read = clock(rounds, || {
            black_box(Reading::of(black_box(text), true));
        });
        println!("{:>10} {read:>10}", text.len());
    }
}

fn clock(rounds: usize, mut play: impl FnMut()) -> u128 {
    play();
    let began = Instant::now();
    for _ in 0..rounds {
        play();
    }
    began.elapsed().as_nanos() / rounds as u128
}
