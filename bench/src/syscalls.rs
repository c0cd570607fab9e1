//! System calls per transaction: which, and how many.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::canned::{Conditions, Scene};
use crate::pooler::Pooler;
use crate::process;
use crate::tidy::{Child, Folder};

/// Calls per transaction, by name.
pub type Calls = BTreeMap<String, f64>;

/// Who counts. strace stops the process twice in each call, so that more happens between two of
/// them than would otherwise; perf leaves it alone, but not every machine lets it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counter {
    Perf,
    Strace,
}

impl Counter {
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "perf" => Some(Self::Perf),
            "strace" => Some(Self::Strace),
            _ => None,
        }
    }
}

const WARM_UP: Duration = Duration::from_millis(700);

/// One fresh process, one measurement. `None` where nothing is between.
pub fn count(
    pooler: &Pooler,
    conditions: &Conditions,
    counter: Counter,
) -> anyhow::Result<Option<Calls>> {
    let scene = Scene::set(pooler, conditions)?;
    let Some(pid) = scene.pooler.pid() else { return Ok(None) };
    scene.stage.allowed.store(u64::MAX, Ordering::Relaxed);
    thread::sleep(WARM_UP);
    let folder = Folder::new("howdah-syscalls-")?;
    let report = folder.path().join("report");
    let pids: Vec<String> = process::tree(pid).iter().map(Pid::to_string).collect();
    let mut command = match counter {
        Counter::Perf => {
            let mut command = Command::new("perf");
            command.args(["stat", "-x", ",", "-e", "syscalls:sys_enter_*", "-p"]);
            command.arg(pids.join(",")).arg("-o").arg(&report);
            command
        }
        Counter::Strace => {
            let mut command = Command::new("strace");
            command.args(["-f", "-c", "-U", "calls,name", "-o"]).arg(&report);
            for pid in &pids {
                command.args(["-p", pid]);
            }
            command
        }
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Child::start(command, Signal::SIGINT)?;
    // Attaching takes a moment; its ends are unsharp, so the time is long beside it.
    thread::sleep(Duration::from_millis(500));
    let before = scene.stage.transactions.load(Ordering::Relaxed);
    thread::sleep(Duration::from_secs_f64(conditions.seconds));
    let after = scene.stage.transactions.load(Ordering::Relaxed);
    signal::kill(child.pid(), Signal::SIGINT)?;
    child.wait()?;
    let text = fs::read_to_string(&report).context("nothing was counted")?;
    let window = conditions.seconds / (conditions.seconds + 0.5);
    let calls = match counter {
        Counter::Perf => read_perf(&text),
        Counter::Strace => read_strace(&text),
    };
    if calls.is_empty() {
        bail!("nothing was counted");
    }
    let transactions = (after - before) as f64 / window;
    scene.strike()?;
    Ok(Some(calls.into_iter().map(|(name, calls)| (name, calls as f64 / transactions)).collect()))
}

/// `count,,syscalls:sys_enter_NAME,…`
fn read_perf(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let mut fields = line.split(',');
        let calls = fields.next()?.parse::<u64>().ok().filter(|calls| *calls > 0)?;
        let name = fields.nth(1)?.strip_prefix("syscalls:sys_enter_")?;
        Some((name.to_owned(), calls))
    };
    text.lines().filter_map(line).collect()
}

/// `calls name`, between two lines of dashes.
fn read_strace(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (calls, name) = line.trim().split_once(char::is_whitespace)?;
        Some((name.trim().to_owned(), calls.parse::<u64>().ok()?))
    };
    text.lines().filter_map(line).filter(|(name, _)| name != "total").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_reports_are_read() {
        let perf = "# started on\n\n0,,syscalls:sys_enter_read,1,100.00,,\n\
                    12,,syscalls:sys_enter_io_uring_enter,1,100.00,,\n";
        let strace = "    calls syscall\n--------- ----------------\n       12 io_uring_enter\n\
                      --------- ----------------\n       12 total\n";
        let expected = BTreeMap::from([("io_uring_enter".to_owned(), 12)]);
        assert_eq!(read_perf(perf), expected);
        assert_eq!(read_strace(strace), expected);
    }
}
