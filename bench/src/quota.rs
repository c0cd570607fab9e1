//! A small part of a core for each worker thread, so that the pooler is the bottleneck whatever the load
//! needs, and several workers have no core to fight for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::unistd::Pid;

/// Where the kernel keeps the groups of its cpu controller, version 1: the one that takes single threads.
const ROOT: &str = "/sys/fs/cgroup/cpu";

/// Short, so that what a thread has waited for at a limit is little against what clients wait anyway.
const PERIOD_US: u32 = 10_000;

/// Threads held to a part of a core each, until this is dropped.
pub struct Quota {
    groups: Vec<PathBuf>,
}

impl Quota {
    /// Holds each thread of `process` whose name begins with `name` to `percent` of a core.
    pub fn hold(process: Pid, name: &str, percent: f64) -> anyhow::Result<Self> {
        if !Path::new(ROOT).join("cpu.cfs_quota_us").exists() {
            bail!("no cgroup cpu controller (version 1) at {ROOT}");
        }
        let mut quota = Self { groups: Vec::new() };
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            let task = task?;
            let called = fs::read_to_string(task.path().join("comm"))?;
            if called.starts_with(name) {
                quota.hold_thread(&task.file_name().to_string_lossy(), percent)?;
            }
        }
        if quota.groups.is_empty() {
            bail!("process {process} has no thread called {name}");
        }
        Ok(quota)
    }

    fn hold_thread(&mut self, thread: &str, percent: f64) -> anyhow::Result<()> {
        let group = Path::new(ROOT).join(format!("howdah-bench-{thread}"));
        fs::create_dir(&group).context("only root may hold threads to a part of a core")?;
        self.groups.push(group.clone());
        let part_us = f64::from(PERIOD_US) * percent / 100.0;
        // Up to its limit it gets what it wants, whatever else is going on.
        fs::write(group.join("cpu.shares"), "65536")?;
        fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        fs::write(group.join("cpu.cfs_quota_us"), format!("{part_us:.0}"))?;
        fs::write(group.join("tasks"), thread).context("cannot move a thread")
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for group in &self.groups {
            // Whoever is still there goes back to all the others; the group goes when nobody is.
            let threads = fs::read_to_string(group.join("tasks")).unwrap_or_default();
            for thread in threads.lines() {
                let _gone = fs::write(Path::new(ROOT).join("tasks"), thread);
            }
            let _stays = fs::remove_dir(group);
        }
    }
}
