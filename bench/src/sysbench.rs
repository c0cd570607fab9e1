//! sysbench, run and read.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::bail;
use nix::sys::signal::Signal;

use crate::address::Address;
use crate::tidy::{Child, Folder};

/// Where it is, and whom it dials as whom.
#[derive(Clone, Debug)]
pub struct Sysbench {
    pub program: PathBuf,
    pub address: Address,
    pub user: String,
    pub password: String,
    pub database: String,
    pub threads: usize,
}

/// What it said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub tps: f64,
    pub p95_ms: f64,
    pub longest_ms: f64,
    /// Standard deviation over mean of transactions per thread.
    pub unevenness: f64,
    pub errors: u64,
}

impl Sysbench {
    pub fn prepare(&self) -> anyhow::Result<()> {
        self.run("prepare", 1).map(drop)
    }

    /// `oltp_read_write` for as long. Statements go by the simple protocol: a pooler that knows
    /// no prepared statements is to have its chance.
    pub fn play(&self, seconds: f64) -> anyhow::Result<Outcome> {
        let report = self.run(&format!("--time={seconds:.0} run"), self.threads)?;
        Ok(read_report(&report))
    }

    fn run(&self, orders: &str, threads: usize) -> anyhow::Result<String> {
        let folder = Folder::new("howdah-sysbench-")?;
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        let mut command = Command::new(&self.program);
        command
            .args(["oltp_read_write", "--db-driver=pgsql", "--db-ps-mode=disable"])
            .args(["--tables=24", "--table-size=10000"])
            .arg(format!("--threads={threads}"))
            .arg(format!("--pgsql-host={}", self.address.host()))
            .arg(format!("--pgsql-port={}", self.address.port()))
            .arg(format!("--pgsql-user={}", self.user))
            .arg(format!("--pgsql-password={}", self.password))
            .arg(format!("--pgsql-db={}", self.database))
            .args(orders.split(' '))
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?);
        let status = Child::start(command, Signal::SIGTERM)?.wait()?;
        let said = fs::read_to_string(&out)? + &fs::read_to_string(&err)?;
        if !status.success() || said.contains("FATAL") {
            let why = said.lines().find(|line| line.contains("FATAL")).unwrap_or("no word of why");
            bail!("sysbench: {}", why.rsplit("FATAL:").next().unwrap_or(why).trim());
        }
        Ok(said)
    }
}

fn read_report(report: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in report.lines() {
        let Some((label, rest)) = line.trim().split_once(':') else { continue };
        let rest = rest.trim();
        let first = || rest.split([' ', '/']).next().and_then(|word| word.parse::<f64>().ok());
        match label {
            // `3021   (50.2 per sec.)`
            "transactions" => {
                let rate = rest.split_once('(').and_then(|(_, rate)| rate.split(' ').next());
                outcome.tps = rate.and_then(|rate| rate.parse().ok()).unwrap_or_default();
            }
            "ignored errors" => outcome.errors = first().unwrap_or_default() as u64,
            "95th percentile" => outcome.p95_ms = first().unwrap_or_default(),
            "max" => outcome.longest_ms = first().unwrap_or_default(),
            // `211.7/312.5`
            "events (avg/stddev)" => {
                let deviation = rest.split_once('/').and_then(|(_, rest)| rest.parse::<f64>().ok());
                outcome.unevenness = deviation.unwrap_or(f64::NAN) / first().unwrap_or(f64::NAN);
            }
            _ => {}
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let report = "SQL statistics:\n    transactions:                        3021   (50.25 per sec.)\n    \
                      ignored errors:                      2      (0.03 per sec.)\n\nLatency (ms):\n         \
                      max:                                  812.50\n         95th percentile:        161.51\n\n\
                      Threads fairness:\n    events (avg/stddev):           200.0000/50.00\n";
        let wanted =
            Outcome { tps: 50.25, p95_ms: 161.51, longest_ms: 812.5, unevenness: 0.25, errors: 2 };
        assert_eq!(read_report(report), wanted);
    }
}
