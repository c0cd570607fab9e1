//! Where it listens and whom it calls: TCP, IPv6, unix sockets on either side.

use harness::postgres::{PASSWORD, tool};
use harness::{Address, Login, Postgres, Raw, Setup, World, eventually};

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
    eventually("it sleeps", || postgres.asleep(&db) == 1);
    client.cancel();
    assert_eq!(client.until_ready().code(), "57014", "a cancel goes the same way");
}

#[test]
fn a_server_on_an_abstract_unix_socket() {
    let postgres = Postgres::shared();
    let name = postgres.abstract_folder();
    let db = postgres.database();
    let target = format!("host={name} port={} dbname={db}", postgres.port());
    let howdah = Setup::new().database("shop", &target).start();
    let mut client = howdah.login("app", PASSWORD, "shop").enter();
    assert_eq!(client.run("SELECT inet_server_addr()").rows(), [[None]]);
}

#[test]
fn several_host_names_to_listen_on() {
    howdah_only!("PgBouncer does not start where two names mean one address");
    let list = "localhost, 127.0.0.2, 127.0.0.1, ::1";
    let world = World::with(1, |setup| setup.set("listen_addr", list));
    for host in ["127.0.0.1", "127.0.0.2", "::1"] {
        let mut login = world.login();
        login.address = Address::Tcp(host.into(), world.howdah.port());
        assert_eq!(login.enter().value("SELECT 1"), "1", "{host}");
    }
}

/// The user that it becomes is in that group beside its own.
#[test]
fn the_group_of_a_unix_socket() {
    use std::os::unix::fs::MetadataExt;
    let gid = |name: &str| {
        let groups = std::fs::read_to_string("/etc/group").expect("/etc/group");
        let line = groups.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        let gid: u32 = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == "postgres").then_some(gid)
    };
    let (Some(_root), Some(gid)) = (*harness::place::SERVANT, gid("ssl-cert")) else {
        return println!("not root, or no group to choose");
    };
    let folder = harness::place::folder("group");
    let ini = folder.join("pooler.ini");
    let port = harness::place::port();
    let place = folder.display();
    harness::place::write(
        &ini,
        &format!(
            "[pgbouncer]\nlisten_port = {port}\nunix_socket_dir = {place}\n\
             unix_socket_group = ssl-cert\nunix_socket_mode = 0750\nlogfile = {place}/log\n"
        ),
    );
    let mut child = std::process::Command::new(harness::howdah::binary())
        .args(["-u", "postgres"])
        .arg(&ini)
        .spawn()
        .expect("it starts");
    let socket = folder.join(format!(".s.PGSQL.{port}"));
    eventually("it listens", || Raw::open(&Address::Unix(folder.clone(), port)).is_ok());
    let file = std::fs::metadata(&socket).expect("a socket");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert_eq!((file.gid(), file.mode() & 0o777), (gid, 0o750));
}

#[test]
fn a_group_that_does_not_exist() {
    let refused = Setup::new().set("unix_socket_group", "no-such-group").try_start();
    let (status, said) = refused.err().expect("it must not start");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("no-such-group"), "{said}");
}

#[test]
fn show_fds_has_all_sockets() {
    howdah_only!("PgBouncer hands them over, too, which needs a client that takes them");
    let world = World::pool(1);
    let mut client = world.client();
    client.run("BEGIN");
    let fds = |task| {
        let which = [("task", task)];
        let column = |column| world.howdah.rows("SHOW FDS", &which, column);
        (column("fd"), column("addr"), column("port"), column("link"), column("database"))
    };
    let port = world.howdah.port().to_string();
    let (numbers, addrs, ports, links, _) = fds("pooler");
    assert_eq!((addrs, ports), (vec!["127.0.0.1".into(), "unix".into()], vec![port.clone(), port]));
    assert_eq!(links, ["0", "0"]);
    for number in numbers {
        let place = format!("/proc/{}/fd/{number}", world.howdah.pid());
        let target = std::fs::read_link(place).expect("it is open");
        assert!(target.display().to_string().starts_with("socket:"), "{target:?}");
    }
    let (client_fd, _, _, client_link, database) = fds("client");
    let (server_fd, _, ports, server_link, _) = fds("server");
    assert_eq!((client_link, server_link), (server_fd, client_fd));
    assert_eq!((database, ports), (vec!["shop".into()], vec![world.postgres.port().to_string()]));
}

#[test]
fn the_backlog_and_the_socket_options() {
    howdah_only!("SO_KEEPALIVE of PgBouncer is the same, its backlog too; ss is asked once");
    let world = World::with(1, |setup| {
        setup
            .set("listen_backlog", 77)
            .set("tcp_keepidle", 1234)
            .set("tcp_socket_buffer", 70_000)
            .set("tcp_user_timeout", 5000)
    });
    let mut client = world.client();
    client.run("BEGIN");
    let ss = |more: &[&str]| {
        let output = std::process::Command::new("ss").args(["-Htnmo"]).args(more).output();
        String::from_utf8_lossy(&output.expect("ss of iproute2").stdout).into_owned()
    };
    let own = format!("sport = :{}", world.howdah.port());
    let listening = ss(&["-l", &own]);
    assert!(listening.split_whitespace().nth(2) == Some("77"), "{listening}");
    let theirs = format!("dport = :{}", world.postgres.port());
    for which in [vec![own.as_str()], vec![&theirs, "src", "127.0.0.1"]] {
        // Twice what is set, as the kernel counts; another timer runs while something is unacknowledged.
        eventually("the options are set", || {
            let sockets = ss(&which);
            sockets.contains("timer:(keepalive,20min") && sockets.contains("rb140000")
        });
    }
}

#[test]
fn a_connection_that_says_nothing_is_not_accepted() {
    let world = World::with(1, |setup| setup.set("tcp_defer_accept", 1));
    let silent = || Raw::open(&world.howdah.address()).expect("it listens");
    let logins = || world.howdah.cell("SHOW LISTS", &[("list", "login_clients")], "items");
    // From here on it surely serves, and not only listens.
    assert_eq!(world.client().value("SELECT 1"), "1");
    let _first: Vec<_> = (0..5).map(|_| silent()).collect();
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert_eq!(logins(), "0");
    world.howdah.order("SET tcp_defer_accept = 0");
    let _second: Vec<_> = (0..5).map(|_| silent()).collect();
    eventually("they come in at once now", || logins().parse::<u32>().expect("a number") >= 5);
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
