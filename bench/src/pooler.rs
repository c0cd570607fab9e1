//! A pooler under test: how it is started, from which ini, and what it uses.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::address::{self, Address};
use crate::client::{DATABASE, PASSWORD, USER};
use crate::process;
use crate::tidy::{Child, Folder};

/// What is written on the row, and how to start it.
#[derive(Clone, Debug)]
pub struct Pooler {
    pub name: String,
    pub kind: Kind,
    /// Lines for its ini alone.
    pub extra: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Nothing between: clients dial the server.
    Direct,
    Floor,
    /// Takes PgBouncer's ini. The command has `{ini}` in it.
    Ini {
        command: String,
    },
    /// Takes a file of its own, made from a template with the same placeholders as the command.
    Template {
        command: String,
        template: PathBuf,
    },
}

/// What every pooler of a comparison is given alike.
#[derive(Clone, Debug)]
pub struct Setup {
    pub listen: Address,
    pub server: Address,
    /// The database's name on the server.
    pub database: &'static str,
    pub clients: usize,
    pub pool: usize,
    pub auth: Auth,
    /// Databases beside the one, all of them the same on the server: `p0` and so on.
    pub more_databases: usize,
    /// Lines for every ini.
    pub lines: String,
    /// Where it may run. Empty: anywhere.
    pub cores: Vec<usize>,
}

/// How clients prove themselves to the pooler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Auth {
    Trust,
    Md5,
    Scram,
}

impl Auth {
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "trust" => Some(Self::Trust),
            "md5" => Some(Self::Md5),
            "scram-sha-256" => Some(Self::Scram),
            _ => None,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Md5 => "md5",
            Self::Scram => "scram-sha-256",
        }
    }
}

/// A pooler that is up. Stopped when dropped.
pub struct Running {
    /// `None` where there is nothing between.
    child: Option<Child>,
    _folder: Folder,
}

impl Pooler {
    /// Starts it afresh and waits until it listens.
    pub fn start(&self, setup: &Setup) -> anyhow::Result<Running> {
        let folder = Folder::new("howdah-pooler-")?;
        process::give_to_servant(folder.path())?;
        let Some(mut command) = self.command(setup, folder.path())? else {
            return Ok(Running { child: None, _folder: folder });
        };
        let log = folder.path().join("log");
        let out = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = start_on(&setup.cores, command, self.stop())?;
        let mut running = Running { child: Some(child), _folder: folder };
        if let Err(error) = running.await_listening(&setup.listen) {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(10).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!("{}: {error}; it said:\n{}", self.name, last.join("\n"));
        }
        Ok(running)
    }

    /// The signal on which it ends without waiting for its clients.
    fn stop(&self) -> Signal {
        match self.kind {
            Kind::Ini { .. } => Signal::SIGQUIT,
            _ => Signal::SIGTERM,
        }
    }

    fn command(&self, setup: &Setup, folder: &Path) -> anyhow::Result<Option<Command>> {
        let another_port = address::free_port()?;
        let fill = |text: &str, file: &Path| {
            text.replace("{ini}", &file.display().to_string())
                .replace("{file}", &file.display().to_string())
                .replace("{dir}", &folder.display().to_string())
                .replace("{listen_port}", &setup.listen.port().to_string())
                .replace("{server_port}", &setup.server.port().to_string())
                .replace("{another_port}", &another_port.to_string())
                .replace("{pool}", &setup.pool.to_string())
                .replace("{clients}", &(setup.clients + 100).to_string())
        };
        let ini = folder.join("pooler.ini");
        let line = match &self.kind {
            Kind::Direct => return Ok(None),
            Kind::Floor => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["floor", &setup.listen.to_string(), &setup.server.to_string()]);
                return Ok(Some(command));
            }
            Kind::Ini { command } => {
                let users = folder.join("userlist.txt");
                fs::write(&users, format!("\"{USER}\" \"{PASSWORD}\"\n"))?;
                fs::write(&ini, setup.ini(&users, &self.extra)?)?;
                fill(command, &ini)
            }
            Kind::Template { command, template } => {
                let text = fs::read_to_string(template)
                    .with_context(|| format!("cannot read {}", template.display()))?;
                fs::write(&ini, fill(&text, &ini))?;
                fill(command, &ini)
            }
        };
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().context("an empty command line")?);
        command.args(words).current_dir(folder);
        Ok(Some(command))
    }
}

impl Setup {
    /// An ini that every drop-in for PgBouncer understands.
    pub fn ini(&self, users: &Path, extra: &str) -> anyhow::Result<String> {
        let Self { listen, server, database, clients, pool, auth, lines, .. } = self;
        let (host, port) = (server.host(), server.port());
        let more: String = (0..self.more_databases)
            .map(|index| format!("p{index} = host={host} port={port} dbname={database}\n"))
            .collect();
        let listen_lines = match listen {
            Address::Tcp { .. } => "listen_addr = 127.0.0.1\nunix_socket_dir =".to_owned(),
            Address::Unix { folder, .. } => format!("unix_socket_dir = {}", folder.display()),
        };
        // Started as root, a pooler of this kind wants to be told whom to become.
        let user =
            process::servant()?.map_or_else(String::new, |user| format!("user = {}\n", user.name));
        Ok(format!(
            "[databases]\n\
             {DATABASE} = host={host} port={port} dbname={database}\n{more}\n\
             [pgbouncer]\n\
             {listen_lines}\n\
             listen_port = {}\n\
             auth_type = {}\n\
             auth_file = {}\n\
             admin_users = {USER}\n\
             pool_mode = transaction\n\
             default_pool_size = {pool}\n\
             max_client_conn = {}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             {user}{lines}{extra}\n",
            listen.port(),
            auth.name(),
            users.display(),
            clients + 100,
        ))
    }
}

impl Running {
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        self.child.as_ref().map(Child::pid)
    }

    /// User and system time so far, of all its threads and processes.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        self.pid().map_or(Ok(Duration::ZERO), process::cpu)
    }

    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.pid().map_or(Ok(0), process::resident_bytes)
    }

    fn await_listening(&mut self, listen: &Address) -> anyhow::Result<()> {
        let since = Instant::now();
        while !is_listening(listen) {
            if let Some(child) = &mut self.child
                && let Some(status) = child.ended()?
            {
                bail!("ended at once ({status})");
            }
            if since.elapsed() > Duration::from_secs(10) {
                bail!("does not listen after 10 s");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn start_on(cores: &[usize], command: Command, stop: Signal) -> anyhow::Result<Child> {
    if cores.is_empty() {
        return Child::start(command, stop);
    }
    // A child inherits where it may run, and its threads from it: nothing to race with.
    let ours = process::cores()?;
    process::pin(cores)?;
    let child = Child::start(command, stop);
    process::pin(&ours)?;
    child
}

fn is_listening(address: &Address) -> bool {
    match address {
        Address::Tcp { port } => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        Address::Unix { folder, port } => {
            UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).is_ok()
        }
    }
}
