//! `sim` plays fresh seeds; `sim 42` replays one. `RUNS=n`, `STEPS=n` of each run before it is
//! wound up, `MINUTES=m`. `TRACE=1` with a seed prints the log of the workers.

use std::panic;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let steps = number("STEPS").unwrap_or(2000);
    if let Some(seed) = std::env::args().nth(1) {
        let Ok(seed) = seed.parse() else {
            eprintln!("usage: sim [seed]");
            return ExitCode::FAILURE;
        };
        println!("{:?}", sim::play(seed, steps));
        return ExitCode::SUCCESS;
    }
    let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let minutes = number("MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let runs = number("RUNS").unwrap_or(if minutes.is_some() { u64::MAX } else { 1000 });
    let began = Instant::now();
    let (mut done, mut played, mut answers) = (0, 0, 0);
    for seed in (start..).take(usize::try_from(runs).unwrap_or(usize::MAX)) {
        if minutes.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        match panic::catch_unwind(|| sim::play(seed, steps)) {
            Ok(outcome) => {
                done += 1;
                played += outcome.steps;
                answers += outcome.answers;
            }
            Err(_) => {
                println!("failed; replay with: STEPS={steps} sim {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    let s = began.elapsed().as_secs_f64();
    println!(
        "{done} seeds from {start}, {played} steps, {answers} answers checked: no failure \
         ({s:.0} s, {:.0} steps/s)",
        played as f64 / s
    );
    ExitCode::SUCCESS
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
