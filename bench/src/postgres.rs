//! A PostgreSQL of our own: found, started in a temporary folder, and gone afterwards.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::address::{self, Address};
use crate::process;
use crate::tidy::{Child, Folder};

/// A running server. Stopped, and its folder removed, when dropped.
pub struct Postgres {
    server: Child,
    pub address: Address,
    _folder: Folder,
}

/// The superuser; it needs no password.
pub const USER: &str = "bench";
pub const DATABASE: &str = "postgres";
/// Says where the server's programs are, when they are nowhere usual.
pub const BIN_VARIABLE: &str = "HOWDAH_PG_BIN";

/// The folder with `initdb` and `postgres`: from the environment, the PATH, or where Debian and
/// others put it, the newest first.
#[must_use]
pub fn find() -> Option<PathBuf> {
    let told = std::env::var_os(BIN_VARIABLE).map(PathBuf::from);
    let program = process::find_program("initdb").or_else(|| process::find_program("postgres"));
    // The PATH may hold but a link to one program of several.
    let linked =
        program.and_then(|path| Some(fs::canonicalize(path).ok()?.parent()?.to_path_buf()));
    let mut usual: Vec<PathBuf> = ["/usr/lib/postgresql", "/usr/pgsql", "/opt/postgresql"]
        .iter()
        .flat_map(fs::read_dir)
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    usual.sort_by_key(|path| std::cmp::Reverse(version_of(path)));
    told.into_iter().chain(linked).chain(usual).find(|bin| is_complete(bin))
}

/// A program that is a client and may be missing where the server is not, such as pgbench.
#[must_use]
pub fn find_client(bin: &Path, name: &str) -> Option<PathBuf> {
    let beside = bin.join(name);
    if beside.is_file() { Some(beside) } else { process::find_program(name) }
}

impl Postgres {
    /// Makes a cluster and starts a server with `settings`, each as `name=value`.
    pub fn start(bin: &Path, settings: &[&str]) -> anyhow::Result<Self> {
        let folder = Folder::new("howdah-postgres-")?;
        process::give_to_servant(folder.path())?;
        let data = folder.path().join("data");
        let log = folder.path().join("log");
        let mut initdb = program(bin, "initdb", &log)?;
        initdb.arg("-D").arg(&data).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]);
        let status = Child::start(initdb, Signal::SIGTERM)?.wait()?;
        if !status.success() {
            bail!("initdb failed:\n{}", last_lines(&log));
        }
        let address = Address::Tcp { port: address::free_port()? };
        let mut postgres = program(bin, "postgres", &log)?;
        postgres.arg("-D").arg(&data).arg("-k").arg(folder.path());
        postgres.args(["-h", "127.0.0.1", "-p", &address.port().to_string()]);
        for setting in settings {
            postgres.args(["-c", setting]);
        }
        // Fast shutdown: sessions are cut off, and shared memory is given back.
        let server = Child::start(postgres, Signal::SIGINT)?;
        let mut started = Self { server, address, _folder: folder };
        started.await_answer(&log)?;
        Ok(started)
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        self.server.pid()
    }

    fn await_answer(&mut self, log: &Path) -> anyhow::Result<()> {
        let since = Instant::now();
        while !answers(self.address.port()) {
            if self.server.ended()?.is_some() || since.elapsed() > Duration::from_secs(60) {
                bail!("PostgreSQL does not start:\n{}", last_lines(log));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// A server's program, as the servant where we are root.
fn program(bin: &Path, name: &str, log: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(bin.join(name));
    let out = File::options().create(true).append(true).open(log)?;
    command.env("LC_ALL", "C").env_remove("PGOPTIONS").stdin(Stdio::null());
    command.stdout(out.try_clone()?).stderr(out).current_dir("/");
    if let Some(user) = process::servant()? {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    Ok(command)
}

/// Whether a login gets as far as authentication.
fn answers(port: u16) -> bool {
    let try_login = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let body = format!("\0\x03\0\0user\0{USER}\0database\0{DATABASE}\0\0");
        let length = u32::try_from(body.len() + 4).unwrap_or_default();
        socket.write_all(&[&length.to_be_bytes(), body.as_bytes()].concat())?;
        let mut tag = [0];
        socket.read_exact(&mut tag)?;
        Ok(tag == *b"R")
    };
    try_login().unwrap_or(false)
}

fn is_complete(bin: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| bin.join(name).is_file())
}

/// `17` of `/usr/lib/postgresql/17/bin`.
fn version_of(bin: &Path) -> Option<u32> {
    bin.parent()?.file_name()?.to_str()?.parse().ok()
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).context("no log").unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
