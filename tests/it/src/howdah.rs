//! The pooler under test: its ini, its process, its console, its log.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::login::Login;
use crate::place::{self, Address};
use crate::postgres::PASSWORD;
use crate::raw::{PATIENCE, Raw};
use crate::reaper;
use crate::reply::Reply;
use crate::world::eventually_within;

/// What is being tested.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject {
    Howdah,
    /// The yardstick, which lacks what came after 1.18, and in which some bug classes live.
    PgBouncer,
}

/// Told by what the binary says of its version: PgBouncer goes on with a line about libevent.
#[must_use]
pub fn subject() -> Subject {
    static SUBJECT: LazyLock<Subject> = LazyLock::new(|| {
        let version = place::command(&*BINARY).arg("--version").output().expect("the binary runs");
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if version.contains("libevent") { Subject::PgBouncer } else { Subject::Howdah }
    });
    *SUBJECT
}

/// The program under test.
#[must_use]
pub fn binary() -> &'static Path {
    &BINARY
}

static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(given) = std::env::var_os("HOWDAH_TEST_BINARY") {
        return given.into();
    }
    // …/target/debug/deps/all-0123 → …/target/debug/howdah, built first: cargo builds only what belongs to a package.
    let own = std::env::current_exe().expect("our own path");
    let profile =
        own.ancestors().find(|path| !path.ends_with("deps") && path.is_dir() && *path != own);
    let profile = profile.expect("a folder of cargo's").to_owned();
    if let Some(cargo) = std::env::var_os("CARGO") {
        let target = profile.parent().expect("a folder above the profile's");
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--package", "howdah", "--bin", "howdah", "--target-dir"])
            .arg(target);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        // What cargo says of the package of the tests, build scripts would take for news, and all would be built anew.
        let of_ours = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| of_ours(name)) {
            build.env_remove(name);
        }
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        assert!(build.status().is_ok_and(|status| status.success()), "cargo build of howdah");
    }
    profile.join("howdah")
});

/// An ini in the making.
#[derive(Clone, Debug)]
pub struct Setup {
    settings: BTreeMap<String, String>,
    databases: Vec<(String, String)>,
    users: Vec<(String, String)>,
    secrets: Vec<(String, String)>,
    /// Text after everything else.
    tail: String,
    started_as: Option<String>,
    arguments: Vec<String>,
    /// What a shell does before it becomes the pooler.
    before: Vec<String>,
    /// Its standard input and output, instead of nothing and `said`.
    given: Vec<Arc<OwnedFd>>,
    port: Option<u16>,
}

impl Setup {
    /// Transaction mode, SCRAM, a console for `boss`, two workers on io_uring; no databases yet.
    #[must_use]
    pub fn new() -> Self {
        let mut setup = Self {
            settings: BTreeMap::new(),
            databases: Vec::new(),
            users: Vec::new(),
            secrets: Vec::new(),
            tail: String::new(),
            started_as: None,
            arguments: Vec::new(),
            before: Vec::new(),
            given: Vec::new(),
            port: None,
        };
        for user in ["app", "app2", "app3", "repl", "boss", "watcher"] {
            setup = setup.secret(user, PASSWORD);
        }
        setup = setup
            .set("listen_addr", "127.0.0.1")
            .set("pool_mode", "transaction")
            .set("auth_type", "scram-sha-256")
            .set("admin_users", "boss")
            .set("stats_users", "watcher")
            .set("server_tls_sslmode", "disable");
        if subject() == Subject::Howdah {
            let from =
                |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
            setup = setup.set("workers", from("HOWDAH_TEST_WORKERS", "2"));
            setup = setup.set("io_driver", from("HOWDAH_TEST_IO_DRIVER", "io_uring"));
        }
        setup
    }

    /// A setting that only Howdah knows.
    #[must_use]
    pub fn own(self, name: &str, value: impl Display) -> Self {
        if subject() == Subject::PgBouncer { self } else { self.set(name, value) }
    }

    /// A line of `[pgbouncer]`.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Display) -> Self {
        self.settings.insert(name.into(), value.to_string());
        self
    }

    #[must_use]
    pub fn unset(mut self, name: &str) -> Self {
        self.settings.remove(name);
        self
    }

    /// A line of `[databases]`; a later one of the same name takes its place.
    #[must_use]
    pub fn database(mut self, name: &str, target: &str) -> Self {
        self.databases.retain(|(known, _)| known != name);
        self.databases.push((name.into(), target.into()));
        self
    }

    #[must_use]
    pub fn without_database(mut self, name: &str) -> Self {
        self.databases.retain(|(known, _)| known != name);
        self
    }

    /// Adds to the line of a database.
    #[must_use]
    pub fn database_also(mut self, name: &str, more: &str) -> Self {
        for (_, target) in self.databases.iter_mut().filter(|(known, _)| known == name) {
            target.push(' ');
            target.push_str(more);
        }
        self
    }

    /// A line of `[users]`.
    #[must_use]
    pub fn user(mut self, name: &str, settings: &str) -> Self {
        self.users.push((name.into(), settings.into()));
        self
    }

    /// A line of the userlist; a later one of the same name takes its place.
    #[must_use]
    pub fn secret(mut self, user: &str, secret: &str) -> Self {
        self.secrets.retain(|(known, _)| known != user);
        self.secrets.push((user.into(), secret.into()));
        self
    }

    #[must_use]
    pub fn tail(mut self, text: &str) -> Self {
        self.tail.push_str(text);
        self
    }

    /// Through a symlink of that name.
    #[must_use]
    pub fn started_as(mut self, name: &str) -> Self {
        self.started_as = Some(name.into());
        self
    }

    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// RLIMIT_NOFILE, soft and hard.
    #[must_use]
    pub fn descriptors(self, most: u32) -> Self {
        self.before(&format!("ulimit -n {most}"))
    }

    /// A command of the shell that becomes the pooler.
    #[must_use]
    pub fn before(mut self, command: &str) -> Self {
        self.before.push(command.into());
        self
    }

    /// A variable of its environment.
    #[must_use]
    pub fn env(self, name: &str, value: impl Display) -> Self {
        self.before(&format!("export {name}='{value}'"))
    }

    /// A descriptor that it starts with: the first is 0, the second 1. [`Self::before`] may move them.
    #[must_use]
    pub fn given(mut self, descriptor: impl Into<OwnedFd>) -> Self {
        self.given.push(Arc::new(descriptor.into()));
        self
    }

    /// This port, and not a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    fn write(&self, folder: &Path, port: u16) {
        let mut settings = self.settings.clone();
        let place = |name: &str| folder.join(name).display().to_string();
        let defaults = [
            ("listen_port", port.to_string()),
            ("unix_socket_dir", folder.display().to_string()),
            ("auth_file", place("userlist.txt")),
            ("logfile", place("log")),
        ];
        for (name, value) in defaults {
            settings.entry(name.into()).or_insert(value);
        }
        let line = |(name, value): (&String, &String)| format!("{name} = {value}\n");
        let pair = |(name, value): &(String, String)| line((name, value));
        let ini = format!(
            "[databases]\n{}\n[users]\n{}\n[pgbouncer]\n{}\n{}",
            self.databases.iter().map(pair).collect::<String>(),
            self.users.iter().map(pair).collect::<String>(),
            settings.iter().map(line).collect::<String>(),
            self.tail,
        );
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let userlist = self
            .secrets
            .iter()
            .map(|(user, secret)| format!("{} {}\n", quoted(user), quoted(secret)));
        place::write(&folder.join("userlist.txt"), &userlist.collect::<String>());
        place::write(&folder.join("pooler.ini"), &ini);
    }

    /// # Panics
    /// When it does not come up, with what it said.
    #[must_use]
    pub fn start(self) -> Howdah {
        self.try_start().unwrap_or_else(|(status, said)| panic!("{status}: {said}"))
    }

    /// # Errors
    /// How the process ended instead of listening, and what it said.
    ///
    /// # Panics
    /// When it neither listens nor ends.
    pub fn try_start(self) -> Result<Howdah, (ExitStatus, String)> {
        let folder = place::folder("howdah");
        let port = self.port.unwrap_or_else(place::port);
        self.write(&folder, port);
        let mut howdah = Howdah { child: self.launch(&folder), folder, port, setup: self };
        match howdah.await_start() {
            None => Ok(howdah),
            Some(status) => Err((status, howdah.said())),
        }
    }

    fn launch(&self, folder: &Path) -> Child {
        let program = match &self.started_as {
            None => BINARY.clone(),
            Some(name) => {
                let link = folder.join(name);
                if !link.exists() {
                    std::os::unix::fs::symlink(&*BINARY, &link).expect("our own folder");
                }
                link
            }
        };
        let mut command = if self.before.is_empty() {
            place::command(program)
        } else {
            let mut shell = place::command("sh");
            shell.arg("-c").arg(format!("{}\nexec \"$0\" \"$@\"", self.before.join("\n")));
            shell.arg(program);
            shell
        };
        let said =
            File::options().create(true).append(true).open(folder.join("said")).expect("a file");
        let given =
            |place: usize| self.given.get(place).map(|fd| fd.try_clone().expect("a descriptor"));
        let child = command
            .args(&self.arguments)
            .arg(folder.join("pooler.ini"))
            .stdin(given(0).map_or_else(Stdio::null, Stdio::from))
            .stdout(
                given(1)
                    .map_or_else(|| said.try_clone().expect("a descriptor").into(), Stdio::from),
            )
            .stderr(said)
            .spawn()
            .expect("the pooler starts");
        reaper::watch(child.id(), folder);
        child
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

/// A running pooler.
pub struct Howdah {
    child: Child,
    folder: PathBuf,
    port: u16,
    setup: Setup,
}

impl Howdah {
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// TCP, or the unix socket where there is no TCP.
    #[must_use]
    pub fn address(&self) -> Address {
        match self.setup.settings.get("listen_addr").map(String::as_str) {
            None | Some("") => self.socket(),
            Some("*") => Address::local(self.port),
            Some(list) => {
                Address::Tcp(list.split(',').next().unwrap_or(list).trim().into(), self.port)
            }
        }
    }

    #[must_use]
    pub fn socket(&self) -> Address {
        Address::Unix(self.folder.clone(), self.port)
    }

    #[must_use]
    pub fn login(&self, user: &str, password: &str, database: &str) -> Login {
        Login::new(self.address(), user, password, database)
    }

    /// A session on the console, with all rights.
    #[must_use]
    pub fn admin(&self) -> Raw {
        // Who demands TLS does so over TCP only.
        let mode = self.setup.settings.get("client_tls_sslmode").map(String::as_str);
        let address = match mode {
            Some("require" | "verify-ca" | "verify-full") => self.socket(),
            _ => self.address(),
        };
        Login::new(address, "boss", PASSWORD, "pgbouncer").enter()
    }

    /// One command on the console.
    #[must_use]
    pub fn console(&self, command: &str) -> Reply {
        self.admin().query(command)
    }

    /// One command on the console that must not fail.
    ///
    /// # Panics
    /// When it fails.
    pub fn order(&self, command: &str) -> Reply {
        self.admin().run(command)
    }

    /// A cell of a view: the column of the row where the others have these values.
    #[must_use]
    pub fn cell(&self, view: &str, which: &[(&str, &str)], column: &str) -> String {
        let row = self.rows(view, which, column).into_iter().next();
        row.unwrap_or_else(|| panic!("{view} has no row with {which:?}"))
    }

    /// Whether a view has a row with these values.
    #[must_use]
    pub fn has_row(&self, view: &str, which: &[(&str, &str)]) -> bool {
        which.first().is_some_and(|(column, _)| !self.rows(view, which, column).is_empty())
    }

    /// A column of the rows of a view where the others have these values.
    #[must_use]
    pub fn rows(&self, view: &str, which: &[(&str, &str)], column: &str) -> Vec<String> {
        let table = self.order(view).table();
        let find = |row: &Vec<(String, String)>, name: &str| {
            let found = row.iter().find(|(known, _)| known == name);
            found.map_or_else(
                || panic!("{view} has no column {name}: {row:?}"),
                |(_, value)| value.clone(),
            )
        };
        let matching =
            table.iter().filter(|row| which.iter().all(|(name, value)| find(row, name) == *value));
        matching.map(|row| find(row, column)).collect()
    }

    /// Waits until it listens wherever it should, or has ended.
    fn await_start(&mut self) -> Option<ExitStatus> {
        let mut doors = vec![self.address()];
        if !self.setup.settings.contains_key("unix_socket_dir") {
            doors.push(self.socket());
        }
        // The process that starts a daemon ends at once, which says nothing.
        let daemon = self.setup.arguments.iter().any(|argument| argument == "-d");
        let mut ended = None;
        eventually_within(PATIENCE, "the pooler listens or ends", || {
            ended = if daemon { None } else { self.child.try_wait().expect("our child") };
            ended.is_some() || doors.iter().all(|door| Raw::open(door).is_ok())
        });
        ended
    }

    /// Starts it again, after its end, in the same place.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        reaper::unwatch(self.child.id(), &self.folder);
        self.child = self.setup.launch(&self.folder);
        let ended = self.await_start();
        assert!(ended.is_none(), "{ended:?}: {}", self.said());
    }

    /// Writes a changed ini and userlist; nothing rereads them yet.
    pub fn rewrite(&mut self, change: impl FnOnce(Setup) -> Setup) {
        self.setup = change(self.setup.clone());
        self.setup.write(&self.folder, self.port);
    }

    /// Writes a changed ini and has it reread.
    ///
    /// # Panics
    /// When RELOAD fails.
    pub fn reload(&mut self, change: impl FnOnce(Setup) -> Setup) {
        self.rewrite(change);
        self.order("RELOAD");
    }

    pub fn signal(&self, signal: Signal) {
        let _gone = kill_process(Pid::from_child(&self.child), signal);
    }

    /// The process that goes on, when it was started as a daemon. From here on it ends with us.
    ///
    /// # Panics
    /// When there is no pidfile.
    #[must_use]
    pub fn daemon(&self, pidfile: &Path) -> Pid {
        let pid =
            std::fs::read_to_string(pidfile).expect("a pidfile").trim().parse().expect("a number");
        let pid = Pid::from_raw(pid).expect("not zero");
        reaper::watch(pid.as_raw_nonzero().get().unsigned_abs(), &self.folder);
        pid
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn ended(&mut self) -> ExitStatus {
        self.ended_within(PATIENCE)
    }

    /// # Panics
    /// When it does not end in time.
    pub fn ended_within(&mut self, patience: Duration) -> ExitStatus {
        let mut status = None;
        eventually_within(patience, "the pooler ends", || {
            status = self.child.try_wait().expect("our child");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// # Panics
    /// When it is not.
    pub fn must_live(&mut self) {
        let status = self.child.try_wait().expect("our child");
        assert!(status.is_none(), "the pooler ended: {status:?}");
    }

    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap_or_default())
            .into_owned()
    }

    /// What it wrote to stdout and stderr.
    #[must_use]
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("said")).unwrap_or_default())
            .into_owned()
    }

    /// Resident memory.
    ///
    /// # Panics
    /// When the process is gone.
    #[must_use]
    pub fn resident_kb(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).expect("a number").parse().expect("kB")
    }

    /// How often its threads went to sleep of their own will, to wait for something.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it lives");
        let of = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line?.trim().parse().ok()
        };
        tasks.filter_map(of).sum()
    }

    /// Open descriptors.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }
}

impl Drop for Howdah {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = if self.log().is_empty() { self.said() } else { self.log() };
            let lines: Vec<_> = log.lines().collect();
            eprintln!(
                "--- the pooler's last lines\n{}\n---",
                lines[lines.len().saturating_sub(25)..].join("\n")
            );
        }
        let pid = Pid::from_child(&self.child);
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone = kill_process_group(pid, Signal::KILL);
            let _status = self.child.wait();
        }
        reaper::unwatch(self.child.id(), &self.folder);
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}
