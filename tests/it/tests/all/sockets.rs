//! Where it listens and whom it calls: TCP, IPv6, unix sockets on either side.

use harness::postgres::{PASSWORD, tool};
use harness::{Address, Login, Postgres, Raw, Setup, World};

#[test]
fn a_unix_socket_for_clients() {
    let world = World::pool(1);
    let mut login = world.login();
    login.address = world.howdah.socket();
    let mut client = login.enter();
    assert_eq!(client.value("SELECT 1"), "1");
    client.run("BEGIN");
    assert_eq!(world.howdah.cell("SHOW CLIENTS", &[("database", "shop")], "addr"), "unix");
    assert!(login.password("wrong").attempt().is_err(), "a password is asked for here as well");
}

#[test]
fn only_a_unix_socket() {
    let world = World::with(1, |setup| setup.set("listen_addr", ""));
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert!(Raw::open(&Address::local(world.howdah.port())).is_err());
}

#[test]
fn no_unix_socket() {
    let world = World::with(1, |setup| setup.set("unix_socket_dir", ""));
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert!(Raw::open(&world.howdah.socket()).is_err());
}

#[test]
fn an_abstract_unix_socket() {
    let name = format!("@howdah-test-{}", std::process::id());
    let world = World::with(1, |setup| setup.set("unix_socket_dir", &name));
    let reply = tool("psql")
        .args([
            "-h",
            &name,
            "-p",
            &world.howdah.port().to_string(),
            "-U",
            "app",
            "-d",
            "shop",
            "-Atc",
            "SELECT 1",
        ])
        .output()
        .expect("psql");
    assert_eq!(
        String::from_utf8_lossy(&reply.stdout).trim(),
        "1",
        "{}",
        String::from_utf8_lossy(&reply.stderr)
    );
}

#[test]
fn the_mode_of_a_unix_socket() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::with(1, |setup| setup.set("unix_socket_mode", "0700"));
    let path = world.howdah.folder().join(format!(".s.PGSQL.{}", world.howdah.port()));
    let mode = std::fs::metadata(path).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_stale_unix_socket_is_in_nobodys_way() {
    let mut world = World::pool(1);
    world.howdah.signal(rustix::process::Signal::KILL);
    world.howdah.ended();
    let path = world.howdah.folder().join(format!(".s.PGSQL.{}", world.howdah.port()));
    assert!(path.exists(), "killed, it could not tidy up");
    world.howdah.restart();
    let login = Login::new(world.howdah.socket(), "boss", PASSWORD, "pgbouncer");
    assert_eq!(login.enter().run("SHOW VERSION").count(b'D'), 1);
}

#[test]
fn the_user_pgbouncer_needs_no_password_when_it_is_ourselves() {
    for auth_type in ["scram-sha-256", "md5"] {
        let world = World::with(1, |setup| setup.set("auth_type", auth_type));
        let (folder, port) =
            (world.howdah.folder().display().to_string(), world.howdah.port().to_string());
        let psql = |command: &str| {
            let output = tool("psql")
                .env_remove("PGPASSWORD")
                .args([
                    "-w",
                    "-h",
                    &folder,
                    "-p",
                    &port,
                    "-U",
                    "pgbouncer",
                    "-d",
                    "pgbouncer",
                    "-Atc",
                    command,
                ])
                .output()
                .expect("psql");
            (
                output.status.success(),
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            )
        };
        let (fine, said) = psql("SHOW VERSION");
        assert!(fine && said.contains("PgBouncer"), "{said}");
        assert!(psql("RELOAD").0, "with all rights");
        // From another user, or by TCP, it is a user like any other: unknown.
        if harness::place::SERVANT.is_some() {
            let login = Login::new(world.howdah.socket(), "pgbouncer", "", "pgbouncer");
            assert!(login.attempt().is_err());
        }
        assert!(world.howdah.login("pgbouncer", "", "pgbouncer").attempt().is_err());
    }
}

#[test]
fn ipv6_and_several_addresses() {
    let world = World::with(1, |setup| setup.set("listen_addr", "127.0.0.1, ::1"));
    for host in ["127.0.0.1", "::1"] {
        let mut login = world.login();
        login.address = Address::Tcp(host.into(), world.howdah.port());
        let mut client = login.enter();
        client.run("BEGIN");
        assert_eq!(world.howdah.cell("SHOW CLIENTS", &[("database", "shop")], "addr"), host);
    }
}

#[test]
fn every_address() {
    let world = World::with(1, |setup| setup.set("listen_addr", "*"));
    for host in ["127.0.0.1", "::1"] {
        let mut login = world.login();
        login.address = Address::Tcp(host.into(), world.howdah.port());
        assert_eq!(login.enter().value("SELECT 1"), "1", "{host}");
    }
}

#[test]
fn a_server_on_ipv6() {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let howdah = Setup::new()
        .database("shop", &format!("host=::1 port={} dbname={db}", postgres.port()))
        .start();
    let mut client = howdah.login("app", PASSWORD, "shop").enter();
    assert_eq!(client.value("SELECT host(inet_server_addr())"), "::1");
    assert!(howdah.log().contains("@[::1]:"), "{}", howdah.log());
}

#[test]
fn a_server_on_a_unix_socket() {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let target =
        format!("host={} port={} dbname={db}", postgres.folder().display(), postgres.port());
    let howdah = Setup::new().database("shop", &target).start();
    let mut client = howdah.login("app", PASSWORD, "shop").enter();
    assert_eq!(client.run("SELECT inet_server_addr()").rows(), [[None]]);
    client.send(&harness::say::query("SELECT pg_sleep(20)"));
    harness::eventually("it sleeps", || postgres.asleep(&db) == 1);
    client.cancel();
    assert_eq!(client.until_ready().code(), "57014", "a cancel goes the same way");
}

#[test]
fn a_connection_that_says_nothing_is_in_nobodys_way() {
    let world =
        World::with(1, |setup| setup.set("tcp_defer_accept", 0).set("max_client_conn", 500));
    let silent: Vec<_> =
        (0..100).map(|_| Raw::open(&world.howdah.address()).expect("it listens")).collect();
    assert_eq!(world.client().value("SELECT 1"), "1");
    drop(silent);
}
