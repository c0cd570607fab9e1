//! In a container: configured by the environment alone, under the name of `pgbouncer`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use harness::postgres::PASSWORD;
use harness::{Address, Login, Postgres, eventually, place};
use rustix::process::{Pid, Signal};

/// What a container has: a program, a folder for its files, an environment.
struct Container {
    root: PathBuf,
    port: u16,
    db: String,
    child: Option<Child>,
}

impl Container {
    fn new() -> Self {
        let root = place::folder("container");
        std::os::unix::fs::symlink(harness::howdah::binary(), root.join("pgbouncer"))
            .expect("our own folder");
        Self { root, port: place::port(), db: Postgres::shared().database(), child: None }
    }

    fn ini(&self) -> PathBuf {
        self.root.join("pgbouncer.ini")
    }

    fn userlist(&self) -> PathBuf {
        self.root.join("userlist.txt")
    }

    /// Starts it with what every container of a demo has, and more.
    fn start(&mut self, more: &[(&str, &str)]) {
        let said = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.root.join("said"))
            .expect("our own folder");
        let postgres = Postgres::shared();
        let mut command = place::command(harness::howdah::binary());
        command
            .env_clear()
            .arg("entrypoint")
            .args([self.root.join("pgbouncer"), self.ini()])
            .env("DB_HOST", "127.0.0.1")
            .env("DB_PORT", postgres.port().to_string())
            .env("DB_USER", "app")
            .env("DB_PASSWORD", PASSWORD)
            .env("DB_NAME", &self.db)
            .env("POOL_MODE", "transaction")
            .env("MAX_CLIENT_CONN", "300")
            .env("DEFAULT_POOL_SIZE", "25")
            .env("LISTEN_PORT", self.port.to_string())
            .env("AUTH_DBNAME", &self.db)
            .env("STATS_USERS", "app")
            .env("ADMIN_USERS", "app")
            .env("SERVER_TLS_SSLMODE", "disable")
            .env("USER", "root")
            .envs(more.iter().copied());
        let child = command
            .stdin(Stdio::null())
            .stdout(said.try_clone().expect("a descriptor"))
            .stderr(said)
            .spawn()
            .expect("it starts");
        harness::reaper::watch(child.id(), &self.root);
        self.child = Some(child);
        eventually("it listens", || harness::Raw::open(&Address::local(self.port)).is_ok());
    }

    fn stop(&mut self) {
        let mut child = self.child.take().expect("it was started");
        rustix::process::kill_process(Pid::from_child(&child), Signal::QUIT).expect("it lives");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        harness::reaper::unwatch(child.id(), &self.root);
    }

    fn login(&self, database: &str) -> Login {
        Login::new(Address::local(self.port), "app", PASSWORD, database)
    }

    fn said(&self) -> String {
        read(&self.root.join("said"))
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn configured_by_the_environment() {
    howdah_only!("an entry point of ours");
    let mut container = Container::new();
    container.start(&[("AUTH_TYPE", "plain"), ("CLIENT_IDLE_TIMEOUT", "77")]);
    assert_eq!(container.login(&container.db).enter().value("SELECT 40 + 2"), "42");
    let mut console = container.login("pgbouncer").enter();
    let settings = console.run("SHOW CONFIG").table();
    let cell = |name: &str| {
        let is = |row: &&Vec<(String, String)>| row.contains(&("key".into(), name.into()));
        let row = settings.iter().find(is).expect("the setting");
        row.iter().find(|(key, _)| key == "value").expect("a value").1.clone()
    };
    for (name, value) in [
        ("pool_mode", "transaction"),
        ("max_client_conn", "300"),
        ("default_pool_size", "25"),
        ("auth_type", "plain"),
        ("client_idle_timeout", "77"),
    ] {
        assert_eq!(cell(name), value, "{name}");
    }
    // What healthchecks of such containers look for.
    let pid = container.child.as_ref().expect("it runs").id();
    let status = read(Path::new(&format!("/proc/{pid}/status")));
    assert!(status.lines().next().expect("a name").contains("pgbouncer"), "{status}");
    assert!(!container.said().contains(PASSWORD), "{}", container.said());
    let ping = || {
        let mut ping = place::command(harness::howdah::binary());
        ping.arg("ping").arg(container.ini()).output().expect("it runs").status.code()
    };
    assert_eq!(ping(), Some(0));
    for path in [container.ini(), container.userlist()] {
        let mode = std::fs::metadata(&path).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    container.stop();
    let mut ping = place::command(harness::howdah::binary());
    let ping = ping.arg("ping").arg(container.ini()).output().expect("it runs");
    assert_eq!(ping.status.code(), Some(1));

    // A second start finds an ini, and leaves everything as it is.
    place::write(&container.ini(), &format!("; mine\n{}", read(&container.ini())));
    let userlist = read(&container.userlist());
    container.start(&[("AUTH_TYPE", "any"), ("DB_USER", "somebody")]);
    assert!(read(&container.ini()).starts_with("; mine"));
    assert_eq!(read(&container.userlist()), userlist);
    container.stop();
}

#[test]
fn every_kind_of_login_in_a_container() {
    howdah_only!("an entry point of ours");
    for (auth_type, secret) in
        [("scram-sha-256", PASSWORD), ("", PASSWORD), ("md5", "md5"), ("trust", PASSWORD)]
    {
        let mut container = Container::new();
        container.start(&[("AUTH_TYPE", auth_type)]);
        let userlist = read(&container.userlist());
        assert!(userlist.starts_with(&format!("\"app\" \"{secret}")), "{auth_type}");
        // What MD5 stores opens no server that wants SCRAM; the console is open to it.
        let database = if auth_type == "md5" { "pgbouncer" } else { &container.db };
        let mut client = container.login(database).enter();
        let sql = if auth_type == "md5" { "SHOW VERSION" } else { "SELECT 1" };
        assert_eq!(client.run(sql).count(b'D'), 1);
        if auth_type != "trust" {
            assert!(container.login(database).password("wrong").attempt().is_err());
        }
        container.stop();
    }
}

#[test]
fn an_address_as_a_whole() {
    howdah_only!("an entry point of ours");
    let mut container = Container::new();
    let url = format!(
        "postgres://app:{PASSWORD}@127.0.0.1:{}/{}?sslmode=disable",
        Postgres::shared().port(),
        container.db
    );
    let empty = ["DB_HOST", "DB_PORT", "DB_USER", "DB_PASSWORD", "DB_NAME", "SERVER_TLS_SSLMODE"];
    let mut vars: Vec<_> = empty.iter().map(|name| (*name, "")).collect();
    vars.push(("DATABASE_URL", &url));
    container.start(&vars);
    assert_eq!(container.login(&container.db).enter().value("SELECT 1"), "1");
    assert!(!container.said().contains(PASSWORD));
    container.stop();
}

#[test]
fn a_container_without_a_server_says_what_is_missing() {
    howdah_only!("an entry point of ours");
    let folder = place::folder("container");
    let output = place::command(harness::howdah::binary())
        .env_clear()
        .args(["entrypoint", "pgbouncer"])
        .arg(folder.join("pgbouncer.ini"))
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("DB_HOST") && said.contains("DATABASE_URL"), "{said}");
    assert!(!folder.join("pgbouncer.ini").exists());
}
