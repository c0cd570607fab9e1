//! Where things are: temporary folders, free ports, addresses, and the user that servers run as.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::reaper;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    Tcp(String, u16),
    Unix(PathBuf, u16),
}

impl Address {
    #[must_use]
    pub fn local(port: u16) -> Self {
        Self::Tcp("127.0.0.1".into(), port)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(_, port) | Self::Unix(_, port) => *port,
        }
    }
}

/// The user that servers run as: neither PostgreSQL nor a pooler runs as root.
#[derive(Clone, Copy)]
pub struct Servant {
    pub uid: u32,
    pub gid: u32,
}

/// `None` when this process is not root and servers simply run as it does.
pub static SERVANT: LazyLock<Option<Servant>> = LazyLock::new(|| {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some(Servant { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a user to run servers as"))
});

/// A command that runs as the servant, in a process group of its own.
#[must_use]
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some(servant) = *SERVANT {
        command.uid(servant.uid).gid(servant.gid);
    }
    command
        .env("LC_ALL", "C")
        .env_remove("PGPORT")
        .env_remove("PGHOST")
        .current_dir("/tmp")
        .process_group(0);
    command
}

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    // Short, since a unix socket's path may not exceed 107 bytes.
    let root = PathBuf::from(format!("/tmp/hit{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a folder under /tmp");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755))
        .expect("our own folder");
    reaper::watch(0, &root);
    root
});

/// A new folder that belongs to the servant. It goes with the process.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let path = ROOT.join(format!("{name}{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&path).expect("a new folder");
    hand_over(&path);
    path
}

/// Writes a file that the servant owns.
pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    hand_over(path);
}

fn hand_over(path: &Path) {
    if let Some(servant) = *SERVANT {
        std::os::unix::fs::chown(path, Some(servant.uid), Some(servant.gid))
            .expect("root may chown");
    }
}

/// A port nobody listens on. Below the ephemeral range, so that no outgoing connection takes it meanwhile, and never
/// the same one twice in this process.
#[must_use]
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..20_000 {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let start = std::process::id().wrapping_mul(7919);
        let port =
            12_000 + u16::try_from(start.wrapping_add(step) % 20_000).expect("it is below 20,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("::", port)).is_ok()
        {
            return port;
        }
    }
    panic!("no free port");
}
