//! `sim` plays fresh seeds; `sim 42` replays one; `sim plants [name]` shows that planted faults are
//! found. `RUNS=n`, `STEPS=n` of each run before it is wound up, `MINUTES=m`, `FROM=seed`. `TRACE=1`
//! with a seed prints what everybody says and hears. With `ALL=1` it goes on after a failure, and
//! tells each kind once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    static LAST_WORDS: RefCell<String> = const { RefCell::new(String::new()) };
}

fn main() -> ExitCode {
    let steps = number("STEPS").unwrap_or(2000);
    if std::env::args().nth(1).as_deref() == Some("plants") {
        return plants(steps);
    }
    if let Some(seed) = std::env::args().nth(1) {
        let Ok(seed) = seed.parse() else {
            eprintln!("usage: sim [seed]");
            return ExitCode::FAILURE;
        };
        println!("{:?}", sim::play(seed, steps));
        return ExitCode::SUCCESS;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let start = number("FROM").unwrap_or(now);
    let minutes = number("MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let runs = number("RUNS").unwrap_or_else(|| if minutes.is_some() { u64::MAX } else { 1000 });
    let goes_on = number("ALL").is_some();
    panic::set_hook(Box::new(|info| LAST_WORDS.set(info.to_string())));
    let began = Instant::now();
    let (mut done, mut played, mut answers) = (0, 0, 0);
    let mut failures: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for seed in (start..).take(usize::try_from(runs).unwrap_or(usize::MAX)) {
        if minutes.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        done += 1;
        match panic::catch_unwind(|| sim::play(seed, steps)) {
            Ok(outcome) => {
                played += outcome.steps;
                answers += outcome.answers;
            }
            Err(_) => {
                let words = LAST_WORDS.take();
                if !goes_on {
                    println!("{words}\nfailed; replay with: STEPS={steps} sim {seed}");
                    return ExitCode::FAILURE;
                }
                failures.entry(kind(&words)).or_insert((0, seed)).0 += 1;
            }
        }
    }
    for (kind, (times, seed)) in &failures {
        println!("{times} times, first with seed {seed}: {kind}");
    }
    let s = began.elapsed().as_secs_f64();
    let failed = if failures.is_empty() { "no failure" } else { "FAILED" };
    println!(
        "{done} seeds from {start}, {played} steps, {answers} answers checked: {failed} \
         ({s:.0} s, {:.0} steps/s)",
        played as f64 / s
    );
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plant each fault in turn, and see after how many seeds it is found.
fn plants(steps: u64) -> ExitCode {
    if !cfg!(feature = "plant") {
        println!("faults can be planted with --features plant only");
        return ExitCode::FAILURE;
    }
    let runs = number("RUNS").unwrap_or(20_000);
    let start = number("FROM").unwrap_or(0);
    panic::set_hook(Box::new(|info| LAST_WORDS.set(info.to_string())));
    let mut unfound = 0;
    let only = std::env::args().nth(2);
    for (name, what) in sim::plants::PLANTS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        planted::plant(Some(name));
        let fails = |seed: &u64| {
            panic::catch_unwind(|| sim::play(*seed, steps)).is_err() && {
                let words = LAST_WORDS.take();
                planted::plant(None);
                let sound = panic::catch_unwind(|| sim::play(*seed, steps)).is_ok();
                planted::plant(Some(name));
                LAST_WORDS.set(words);
                sound
            }
        };
        match (start..start + runs).find(fails) {
            Some(seed) => {
                let words = LAST_WORDS.take().replace('\n', " ");
                let words: String =
                    words.split_once(": ").map_or("", |words| words.1).chars().take(90).collect();
                println!("{name:<26} found by seed {seed:>5}: {what} | {words}");
            }
            None => {
                unfound += 1;
                println!("{name:<26} NOT FOUND in {runs} seeds: {what}");
            }
        }
    }
    planted::plant(None);
    println!("{} planted, {unfound} not found", sim::plants::PLANTS.len());
    if unfound == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Failures with the same words but for numbers are of one kind.
fn kind(words: &str) -> String {
    let plain: String = words.chars().filter(|char| !char.is_ascii_digit()).take(250).collect();
    plain.replace('\n', " ")
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
