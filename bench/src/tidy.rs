//! What must not be left behind: children running and folders lying about.
//!
//! Whoever owns one drops it on the way out, also while panicking. On SIGINT, SIGTERM and SIGHUP
//! nobody drops anything, so a list is kept of what there is, and a thread that clears it away.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A running child, stopped when dropped.
pub struct Child {
    process: std::process::Child,
    stop: Signal,
}

/// A folder that goes with all it holds when dropped.
pub struct Folder {
    path: PathBuf,
}

enum Left {
    Process { pid: Pid, stop: Signal },
    Folder(PathBuf),
}

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());
const PATIENCE: Duration = Duration::from_secs(8);

/// Clears away on a signal, then exits as a shell would expect. Call it first of all.
pub fn on_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // The list stays locked, so nothing new is started meanwhile.
            let mut left = left();
            eprintln!("\nstopping");
            while let Some(last) = left.pop() {
                match last {
                    Left::Process { pid, stop } => end(pid, stop),
                    Left::Folder(path) => drop(fs::remove_dir_all(path)),
                }
            }
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

impl Child {
    /// Starts `command` in a process group of its own, so that Ctrl-C reaches us alone and things
    /// stop in the right order. `stop` is the signal that it ends cleanly on.
    pub fn start(mut command: Command, stop: Signal) -> anyhow::Result<Self> {
        let mut left = left();
        let process = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let child = Self { process, stop };
        left.push(Left::Process { pid: child.pid(), stop });
        Ok(child)
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// `Some` when it has ended by itself.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        // Not a plain wait: the number must not be free for another process while it is listed.
        loop {
            let mut left = left();
            if let Some(status) = self.process.try_wait()? {
                let pid = self.pid();
                left.retain(|one| !matches!(one, Left::Process { pid: p, .. } if *p == pid));
                return Ok(status);
            }
            drop(left);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut left = left();
        let pid = self.pid();
        if matches!(self.process.try_wait(), Ok(None)) {
            end(pid, self.stop);
            let _ = self.process.wait();
        }
        left.retain(|one| !matches!(one, Left::Process { pid: p, .. } if *p == pid));
    }
}

impl Folder {
    /// A new folder under the system's temporary one that others may enter.
    pub fn new(prefix: &str) -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let mut left = left();
        let path = tempfile::Builder::new()
            .prefix(prefix)
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .context("cannot make a temporary folder")?
            .keep();
        left.push(Left::Folder(path.clone()));
        Ok(Self { path })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut left = left();
        let _ = fs::remove_dir_all(&self.path);
        left.retain(|one| !matches!(one, Left::Folder(path) if *path == self.path));
    }
}

fn left() -> MutexGuard<'static, Vec<Left>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks, waits, and in the end insists. The process stays to be reaped by its owner.
fn end(pid: Pid, stop: Signal) {
    let _ = signal::kill(pid, stop);
    let since = Instant::now();
    while !has_ended(pid) {
        if since.elapsed() > PATIENCE {
            let _ = signal::killpg(pid, Signal::SIGKILL);
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Gone, or waiting to be reaped.
fn has_ended(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The state stands after the name, which may hold anything but ends at the last parenthesis.
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_and_folder_are_gone() {
        let folder = Folder::new("howdah-tidy-").expect("a folder");
        let path = folder.path().to_path_buf();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        let child = Child::start(sleep, Signal::SIGTERM).expect("sleep starts");
        let pid = child.pid();
        drop((child, folder));
        assert!(has_ended(pid));
        assert!(!path.exists());
    }
}
