//! Processes: what they use, where they run, and as whom.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, User, geteuid};

/// `root` and all that descend from it.
#[must_use]
pub fn tree(root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let lists = tasks.into_iter().flatten().flatten().map(|task| task.path().join("children"));
        let children: String = lists.flat_map(fs::read_to_string).collect();
        found.extend(children.split_whitespace().flat_map(str::parse).map(Pid::from_raw));
        next += 1;
    }
    found
}

/// User and system time of all threads, those that have ended too, of `root` and its descendants.
pub fn cpu(root: Pid) -> anyhow::Result<Duration> {
    let mut sum = Duration::ZERO;
    for pid in tree(root) {
        // By the process's own clock: /proc/PID/stat only counts in hundredths of a second.
        let clock = clock_getcpuclockid(pid).context("the process is gone")?;
        sum += Duration::from(clock.now()?);
    }
    Ok(sum)
}

/// Resident bytes of `root` and its descendants; shared pages are counted in each.
pub fn resident_bytes(root: Pid) -> anyhow::Result<u64> {
    tree(root).into_iter().map(|pid| rolled_up(pid, "Rss:")).sum()
}

/// The same with shared pages divided among those who share them. Who ended meanwhile has none.
#[must_use]
pub fn proportional_bytes(root: Pid) -> u64 {
    tree(root).into_iter().flat_map(|pid| rolled_up(pid, "Pss:")).sum()
}

fn rolled_up(pid: Pid, label: &str) -> anyhow::Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix(label));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("smaps_rollup has no {label}"))? * 1024)
}

/// The cores that this process may use, by number.
pub fn cores() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect())
}

/// Keeps the calling thread, and what it starts from now on, to `cores`.
pub fn pin(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).context("cannot pin to cores")
}

/// As many descriptors as this process may ever have, for itself and what it starts; root may have
/// enough for all runs.
pub fn raise_descriptors() -> anyhow::Result<u64> {
    const ENOUGH: u64 = 100_000;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if hard < ENOUGH && setrlimit(Resource::RLIMIT_NOFILE, ENOUGH, ENOUGH).is_ok() {
        return Ok(ENOUGH);
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Whom servers run as when we are root, because PostgreSQL and poolers refuse to be root.
pub fn servant() -> anyhow::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    anyhow::bail!("running as root, and there is no user postgres or nobody to run servers as")
}

/// Gives `path` to the servant, if there is one.
pub fn give_to_servant(path: &Path) -> anyhow::Result<()> {
    if let Some(user) = servant()? {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// Looks for a program where a shell would, and where Debian puts daemons.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut candidates = std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name));
    candidates.find(|candidate| candidate.is_file())
}
