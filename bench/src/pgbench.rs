//! pgbench, run and read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;

use crate::address::Address;
use crate::tidy::{Child, Folder};

/// Where it is, and whom it dials as whom.
#[derive(Clone, Debug)]
pub struct Pgbench {
    pub program: PathBuf,
    pub address: Address,
    pub user: String,
    pub password: String,
    pub database: String,
    pub tls: bool,
}

/// What it said.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub transactions: u64,
    pub tps: f64,
    /// Until all were connected; with `-C`, what one connection took.
    pub connecting_ms: f64,
    /// From its log of single transactions, as are those below.
    pub mean_ms: f64,
    pub deviation_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    /// What went wrong, once each; empty when nothing did.
    pub errors: Vec<String>,
}

impl Pgbench {
    /// Makes pgbench's tables.
    pub fn initialize(&self, scale: u32) -> anyhow::Result<()> {
        let outcome = self.run(&["-i", "-q", "-s", &scale.to_string()])?;
        if let Some(error) = outcome.errors.first() {
            bail!("pgbench -i: {error}");
        }
        Ok(())
    }

    /// Runs it with `arguments`. A run that pgbench breaks off is an outcome with errors.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Outcome> {
        let folder = Folder::new("howdah-pgbench-")?;
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let mut command = Command::new(&self.program);
        command
            .args(["-h", &self.address.host(), "-p", &self.address.port().to_string()])
            .args(["-U", &self.user])
            .args(arguments)
            .arg(&self.database)
            .env("PGPASSWORD", &self.password)
            .env("PGSSLMODE", if self.tls { "require" } else { "disable" })
            .env("LC_ALL", "C")
            .env_remove("PGOPTIONS")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let status = Child::start(command, Signal::SIGTERM)?.wait()?;
        let mut outcome = read_report(&fs::read_to_string(&out)?);
        outcome.errors = errors(&fs::read_to_string(&err)?);
        if !status.success() && outcome.errors.is_empty() {
            outcome.errors.push(format!("pgbench ended with {status}"));
        }
        read_log(folder.path(), &mut outcome)?;
        Ok(outcome)
    }
}

fn read_report(report: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in report.lines() {
        if let Some(rest) = line.strip_prefix("number of transactions actually processed: ") {
            let count = rest.split('/').next().unwrap_or_default();
            outcome.transactions = count.parse().unwrap_or_default();
        }
        let connecting = ["initial connection time = ", "average connection time = "];
        if let Some(rest) = connecting.iter().find_map(|label| line.strip_prefix(label)) {
            let ms = rest.split(' ').next().and_then(|ms| ms.parse().ok());
            outcome.connecting_ms = ms.unwrap_or_default();
        }
        // With -C there is another figure, connections included; the first one counts.
        if let Some(rest) = line.strip_prefix("tps = ")
            && outcome.tps == 0.0
        {
            outcome.tps = rest.split(' ').next().and_then(|tps| tps.parse().ok()).unwrap_or(0.0);
        }
    }
    outcome
}

fn errors(said: &str) -> Vec<String> {
    let mut errors: Vec<String> = Vec::new();
    for line in said.lines().filter(|line| line.contains("error:") || line.contains("FATAL")) {
        let text = line.rsplit_once("FATAL:").map_or(line, |(_, text)| text).trim().to_owned();
        if !errors.contains(&text) {
            errors.push(text);
        }
    }
    errors
}

/// `client transaction latency_µs script seconds µs`, one file per thread.
fn read_log(folder: &Path, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut latencies_us = Vec::<u64>::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("pgbench_log") {
            let log = fs::read_to_string(entry.path()).context("pgbench's log")?;
            let third = |line: &str| line.split(' ').nth(2).and_then(|us| us.parse::<u64>().ok());
            latencies_us.extend(log.lines().filter_map(third));
        }
    }
    latencies_us.sort_unstable();
    let at = |percent: usize| {
        let index = (latencies_us.len() * percent / 100).min(latencies_us.len().saturating_sub(1));
        latencies_us.get(index).map_or(0.0, |us| *us as f64 / 1_000.0)
    };
    (outcome.p50_ms, outcome.p95_ms, outcome.p99_ms) = (at(50), at(95), at(99));
    let ms = || latencies_us.iter().map(|us| *us as f64 / 1_000.0);
    let count = latencies_us.len().max(1) as f64;
    outcome.mean_ms = ms().sum::<f64>() / count;
    let square = ms().map(|ms| (ms - outcome.mean_ms).powi(2)).sum::<f64>();
    outcome.deviation_ms = (square / count).sqrt();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let report = "number of transactions actually processed: 1200/1200\n\
                      initial connection time = 3.2 ms\n\
                      tps = 512.25 (without initial connection time)\n";
        let outcome = read_report(report);
        assert_eq!(outcome.transactions, 1_200);
        assert!((outcome.tps - 512.25).abs() < 1e-9);
        assert!((outcome.connecting_ms - 3.2).abs() < 1e-9);
    }

    #[test]
    fn the_same_error_counts_once() {
        let said = "pgbench: error: connection to server failed: FATAL:  sorry, too many clients already\n\
                    pgbench: error: connection to server failed: FATAL:  sorry, too many clients already\n";
        assert_eq!(errors(said), ["sorry, too many clients already"]);
    }
}
