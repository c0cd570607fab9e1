//! A real PostgreSQL: one cluster for the whole test process, private ones for tests that break theirs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock};

use rustix::process::{Pid, Signal, kill_process};

use crate::login::Login;
use crate::place::{self, Address};
use crate::raw::Raw;
use crate::reaper;
use crate::world::eventually;

/// The password of every role.
pub const PASSWORD: &str = "sesame";

/// Roles every cluster has. What a role's name begins with is how the server asks for its password.
const ROLES: &str = "\
CREATE ROLE by_trust;
CREATE ROLE by_password;
CREATE ROLE by_md5;
SET password_encryption = 'scram-sha-256';
CREATE ROLE app LOGIN PASSWORD 'sesame';
CREATE ROLE app2 LOGIN PASSWORD 'sesame';
CREATE ROLE app3 LOGIN PASSWORD 'sesame';
CREATE ROLE repl LOGIN REPLICATION PASSWORD 'sesame';
CREATE ROLE trust_plain LOGIN PASSWORD 'sesame' IN ROLE by_trust;
CREATE ROLE trust_md5 LOGIN PASSWORD 'sesame' IN ROLE by_trust;
CREATE ROLE trust_scram LOGIN PASSWORD 'sesame' IN ROLE by_trust;
CREATE ROLE password_plain LOGIN PASSWORD 'sesame' IN ROLE by_password;
CREATE ROLE password_md5 LOGIN PASSWORD 'sesame' IN ROLE by_password;
CREATE ROLE password_scram LOGIN PASSWORD 'sesame' IN ROLE by_password;
CREATE ROLE scram_plain LOGIN PASSWORD 'sesame';
CREATE ROLE scram_md5 LOGIN PASSWORD 'sesame';
CREATE ROLE scram_scram LOGIN PASSWORD 'sesame';
SET password_encryption = 'md5';
CREATE ROLE md5_plain LOGIN PASSWORD 'sesame' IN ROLE by_md5;
CREATE ROLE md5_md5 LOGIN PASSWORD 'sesame' IN ROLE by_md5;
CREATE ROLE md5_scram LOGIN PASSWORD 'sesame' IN ROLE by_md5;
RESET password_encryption;
";

const HBA: &str = "\
local   all          postgres        trust
local   all          all             scram-sha-256
host    all          +by_trust     all  trust
host    all          +by_password  all  password
host    all          +by_md5       all  md5
host    all          all           all  scram-sha-256
host    replication  all           all  scram-sha-256
";

/// What makes a test fast, and its log readable: process, database, user and application stand before each line.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4,::1'
max_connections = 400
shared_buffers = 32MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
log_statement = all
log_line_prefix = '%p|%d|%u|%a|'
log_timezone = 'UTC'
timezone = 'UTC'
max_wal_senders = 10
max_prepared_transactions = 10
";

pub struct Postgres {
    folder: PathBuf,
    port: u16,
    child: Mutex<Child>,
    /// Where each database's part of the log begins.
    began: Mutex<HashMap<String, u64>>,
}

/// How a cluster is stopped.
#[derive(Clone, Copy)]
pub enum Stop {
    /// Sessions are ended with 57P01.
    Fast,
    /// As in a crash.
    Immediate,
}

impl Postgres {
    /// The cluster that tests share. Each takes a [`Self::database`] of its own there.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(""))
    }

    /// A cluster of its own, with lines added to postgresql.conf.
    ///
    /// # Panics
    /// When PostgreSQL is not found or does not start.
    #[must_use]
    pub fn start(settings: &str) -> Self {
        let folder = place::folder("pg");
        let data = folder.join("data");
        let copied = place::command("cp").arg("-a").args([&*TEMPLATE, &data]).status();
        assert!(copied.is_ok_and(|status| status.success()), "cp of the template cluster");
        let port = place::port();
        let own = format!(
            "{SETTINGS}port = {port}\nunix_socket_directories = '{},{}'\n{settings}",
            folder.display(),
            unnamed(port)
        );
        place::write(&data.join("postgresql.conf"), &own);
        place::write(&data.join("pg_hba.conf"), HBA);
        let child = launch(&folder);
        let postgres = Self { folder, port, child: Mutex::new(child), began: Mutex::default() };
        postgres.await_ready();
        postgres
    }

    fn await_ready(&self) {
        eventually("PostgreSQL accepts connections", || {
            let exited = self.child.lock().expect("no panic").try_wait().expect("our child");
            assert!(exited.is_none(), "PostgreSQL ended: {}", self.log());
            Login::new(self.socket(), "postgres", "", "postgres").attempt().is_ok()
        });
    }

    /// Ends the cluster and waits until it is gone.
    pub fn stop(&self, how: Stop) {
        let mut child = self.child.lock().expect("no panic");
        let signal = match how {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        };
        let _gone = kill_process(Pid::from_child(&child), signal);
        let _status = child.wait();
        reaper::unwatch(child.id(), &self.folder);
    }

    /// Starts it again after [`Self::stop`].
    pub fn restart(&self) {
        *self.child.lock().expect("no panic") = launch(&self.folder);
        self.await_ready();
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    #[must_use]
    pub fn address(&self) -> Address {
        Address::local(self.port)
    }

    #[must_use]
    pub fn socket(&self) -> Address {
        Address::Unix(self.folder.clone(), self.port)
    }

    /// Its other unix socket's directory, which is in no file system.
    #[must_use]
    pub fn abstract_folder(&self) -> String {
        unnamed(self.port)
    }

    /// The right side of a line in `[databases]`.
    #[must_use]
    pub fn target(&self, db: &str) -> String {
        format!("host=127.0.0.1 port={} dbname={db}", self.port)
    }

    #[must_use]
    pub fn superuser(&self, db: &str) -> Raw {
        Login::new(self.socket(), "postgres", "", db)
            .parameter("application_name", "harness")
            .enter()
    }

    /// Creates a database that nobody else uses, and returns its name.
    #[must_use]
    pub fn database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let db = format!("shop_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let began = std::fs::metadata(self.log_path()).map_or(0, |log| log.len());
        self.began.lock().expect("no panic").insert(db.clone(), began);
        self.superuser("postgres").run(&format!("CREATE DATABASE {db} OWNER app"));
        db
    }

    /// 15, 16 and so on.
    #[must_use]
    pub fn version(&self) -> u32 {
        let number: u32 =
            self.superuser("postgres").value("SHOW server_version_num").parse().expect("a number");
        number / 10_000
    }

    /// How many connections a database has, the harness' own not counted.
    #[must_use]
    pub fn backends(&self, db: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{db}' AND application_name <> 'harness'"
        );
        self.superuser("postgres").value(&sql).parse().expect("a count")
    }

    /// How many sessions of a database are in `pg_sleep` this moment. A cancel that comes before that finds nothing to cancel.
    #[must_use]
    pub fn asleep(&self, db: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{db}' AND wait_event = 'PgSleep'"
        );
        self.superuser("postgres").value(&sql).parse().expect("a count")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The lines of the log that belong to a database, less the harness' own.
    #[must_use]
    pub fn lines(&self, db: &str) -> Vec<String> {
        let began = self.began.lock().expect("no panic").get(db).copied().unwrap_or_default();
        let mut log = File::open(self.log_path()).expect("the log");
        log.seek(SeekFrom::Start(began)).expect("a file seeks");
        let mut text = Vec::new();
        log.read_to_end(&mut text).expect("the log");
        let text = String::from_utf8_lossy(&text);
        let ours = |line: &&str| {
            let mut parts = line.splitn(5, '|').skip(1);
            parts.next() == Some(db) && parts.nth(1) != Some("harness")
        };
        text.lines().filter(ours).map(str::to_owned).collect()
    }

    /// The statements that a database executed, in order: the first line of each.
    #[must_use]
    pub fn statements(&self, db: &str) -> Vec<String> {
        self.lines(db)
            .iter()
            .filter_map(|line| {
                let said = line.splitn(5, '|').nth(4)?.strip_prefix("LOG:  ")?;
                if let Some(simple) = said.strip_prefix("statement: ") {
                    return Some(simple.to_owned());
                }
                Some(said.strip_prefix("execute ")?.split_once(": ")?.1.to_owned())
            })
            .collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

fn launch(folder: &Path) -> Child {
    let log =
        File::options().create(true).append(true).open(folder.join("log")).expect("a log file");
    let child = place::command(bin("postgres"))
        .arg("-D")
        .arg(folder.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres starts");
    reaper::watch(child.id(), folder);
    child
}

fn unnamed(port: u16) -> String {
    format!("@howdah-pg-{}-{port}", std::process::id())
}

/// A cluster as initdb leaves it, with the roles; copied, since a copy takes a tenth of the time.
static TEMPLATE: LazyLock<PathBuf> = LazyLock::new(|| {
    let data = place::folder("template").join("data");
    let made = place::command(bin("initdb"))
        .args([
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
        ])
        .arg(&data)
        .output()
        .expect("initdb starts");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    single_user(&data, "postgres", ROLES);
    single_user(&data, "template1", "GRANT ALL ON SCHEMA public TO PUBLIC;\n");
    data
});

fn single_user(data: &Path, db: &str, sql: &str) {
    let mut child = place::command(bin("postgres"))
        .args(["--single", "-c", "fsync=off", "-D"])
        .arg(data)
        .arg(db)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("postgres starts");
    child.stdin.take().expect("it was piped").write_all(sql.as_bytes()).expect("it reads");
    assert!(child.wait().is_ok_and(|status| status.success()), "postgres --single in {db}");
}

/// A program of PostgreSQL: where `HOWDAH_PG_BIN` says, else the newest under /usr/lib/postgresql, else on the PATH. A
/// server without client programs is served by the client programs of another version.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn bin(program: &str) -> PathBuf {
    static GIVEN: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| std::env::var_os("HOWDAH_PG_BIN").map(PathBuf::from));
    static INSTALLED: LazyLock<Option<PathBuf>> = LazyLock::new(installed);
    let there = |bin: &PathBuf| bin.join(program).exists();
    let found = GIVEN.iter().find(|bin| there(bin)).or(INSTALLED.as_ref());
    found.expect("a PostgreSQL server: set HOWDAH_PG_BIN, or install one").join(program)
}

fn installed() -> Option<PathBuf> {
    let version = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse::<u32>().ok();
    let packaged = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let packaged =
        packaged.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    packaged.max_by_key(version).or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
    })
}

/// A program of PostgreSQL's, as the servant, with the password of the roles.
#[must_use]
pub fn tool(program: &str) -> Command {
    let mut command = place::command(bin(program));
    command.env("PGPASSWORD", PASSWORD).env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
    command.stdin(Stdio::null());
    command
}
