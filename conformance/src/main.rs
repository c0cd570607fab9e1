//! PostgreSQL's own test suites, played through a pooler (or none) while other clients look whether they find a clean session.

mod excused;
mod neighbours;
mod run;
mod stage;
mod suite;

use std::process::ExitCode;

use crate::excused::Excused;
use crate::neighbours::Neighbours;
use crate::run::{Run, Through};
use crate::stage::Stage;

fn main() -> ExitCode {
    let run = match Run::from_arguments(lexopt::Parser::from_env()) {
        Ok(Some(run)) => run,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}\n\n{}", run::USAGE);
            return ExitCode::from(2);
        }
    };
    // The harness asks this variable which program to start; it must be known before anything of it is touched.
    if run.through == Through::PgBouncer && std::env::var_os("HOWDAH_TEST_BINARY").is_none() {
        eprintln!("HOWDAH_TEST_BINARY must name PgBouncer's program: conformance/run sees to it");
        return ExitCode::from(2);
    }
    play(&run)
}

fn play(run: &Run) -> ExitCode {
    let stage = Stage::set(run);
    let neighbours = Neighbours::move_in(run, &stage);
    let mut outcome = suite::play(run, &stage);
    let findings = neighbours.move_out();
    let excused = Excused::of(run);
    println!("{run}");
    println!("{} of {} passed", outcome.passed.len(), outcome.total());
    outcome.failed.sort_unstable();
    for test in &outcome.failed {
        match excused.reason(test) {
            Some(reason) => println!("  failed, excused: {test}: {reason}"),
            None => println!("  failed: {test}"),
        }
    }
    for test in outcome.passed.iter().filter(|test| excused.reason(test).is_some()) {
        println!("  passed, and yet excused: {test}");
    }
    if let Some(why) = &outcome.cut_short {
        println!("  cut short: {why}");
    }
    if run.neighbours > 0 {
        print!("{findings}");
    }
    println!("kept in {}", outcome.kept.display());
    let unexcused = outcome.failed.iter().any(|test| excused.reason(test).is_none());
    if unexcused || outcome.cut_short.is_some() || findings.is_dirty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
