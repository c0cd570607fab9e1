//! The service manager: what it is told, and the sockets that it opens.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};

use harness::{Setup, World, eventually, place, seconds};
use rustix::process::Signal;

/// Hears what a service tells its manager.
struct Manager {
    socket: UnixDatagram,
    path: String,
}

impl Manager {
    fn new() -> Self {
        let path = place::folder("notify").join("socket");
        let socket = UnixDatagram::bind(&path).expect("our own folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("ours");
        socket.set_read_timeout(Some(seconds(30.0))).expect("an open socket");
        Self { socket, path: path.display().to_string() }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("something is told in time");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// Waits for a message that begins so; what else is told may stand between.
    fn hears(&self, start: &str) -> String {
        loop {
            let message = self.next();
            if message.starts_with(start) {
                return message;
            }
            assert!(message.starts_with("STATUS="), "{message} instead of {start}");
        }
    }
}

#[test]
fn the_manager_is_told() {
    let manager = Manager::new();
    let mut world =
        World::with(1, |setup| setup.set("stats_period", 1).env("NOTIFY_SOCKET", &manager.path));
    manager.hears("READY=1\n");
    assert!(manager.hears("STATUS=").contains(" xacts/s, "));

    world.howdah.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1\n");
    let since = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(since.is_some_and(|usec| usec.parse::<u64>().is_ok()), "{reloading}");
    manager.hears("READY=1\n");
    world.howdah.order("RELOAD");
    manager.hears("RELOADING=1\n");
    manager.hears("READY=1\n");
    // A reload that fails is over as well.
    world.howdah.rewrite(|setup| setup.tail("nonsense\n"));
    world.howdah.signal(Signal::HUP);
    manager.hears("RELOADING=1\n");
    manager.hears("READY=1\n");

    let client = world.client();
    world.howdah.signal(Signal::TERM);
    manager.hears("STOPPING=1\n");
    while !manager.hears("STATUS=").starts_with("STATUS=shutting down, 1 clients") {}
    client.leave();
    assert_eq!(world.howdah.ended().code(), Some(0));
}

#[test]
fn the_watchdog_is_fed() {
    let manager = Manager::new();
    let mut howdah = Setup::new()
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", 400_000)
        .before("export WATCHDOG_PID=$$")
        .start();
    manager.hears("READY=1\n");
    for _ in 0..3 {
        manager.hears("WATCHDOG=1\n");
    }
    howdah.signal(Signal::QUIT);
    howdah.ended();
}

#[test]
fn nobody_elses_watchdog_is_fed() {
    let manager = Manager::new();
    let mut howdah = Setup::new()
        .set("stats_period", 1)
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", 100_000)
        .env("WATCHDOG_PID", 1)
        .start();
    manager.hears("READY=1\n");
    assert!(manager.next().starts_with("STATUS="));
    howdah.signal(Signal::QUIT);
    manager.hears("STOPPING=1\n");
    howdah.ended();
}

/// Two sockets, of which the ini knows nothing.
const TWO: &str = "exec 3<&0 4<&1 </dev/null >/dev/null; export LISTEN_FDS=2 LISTEN_PID=$$";

#[test]
fn sockets_that_the_manager_opened() {
    let folder = place::folder("activate");
    let port = place::port();
    let tcp = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let path = folder.join(format!(".s.PGSQL.{port}"));
    let unix = UnixListener::bind(&path).expect("our own folder");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("ours");
    let elsewhere = place::port();
    let mut world = World::with(1, |setup| {
        setup.port(port).set("unix_socket_dir", folder.display()).given(tcp).given(unix).before(TWO)
    });
    // The sockets take connections from the first moment on.
    for told in [
        "listen_addr is ignored".to_owned(),
        "unix_socket_dir is ignored".to_owned(),
        format!("listening on 127.0.0.1:{port}"),
        format!("listening on unix:{}", path.display()),
    ] {
        eventually(&told, || world.howdah.log().contains(&told));
    }
    let mut login = world.login();
    login.address = place::Address::local(port);
    assert_eq!(login.enter().value("SELECT 1"), "1");
    login.address = place::Address::Unix(folder, port);
    assert_eq!(login.enter().value("SELECT 1"), "1");
    login.address = place::Address::local(elsewhere);
    assert!(login.attempt().is_err());
    world.howdah.signal(Signal::QUIT);
    world.howdah.ended();
    assert!(path.exists(), "it is the manager's");
}

#[test]
fn a_socket_of_ip6() {
    let port = place::port();
    let Ok(tcp) = TcpListener::bind(("::1", port)) else { return println!("no IPv6 here") };
    let world = World::with(1, |setup| {
        setup
            .set("listen_addr", "::1")
            .port(port)
            .set("unix_socket_dir", "")
            .given(tcp)
            .before("exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$")
    });
    let mut login = world.login();
    login.address = place::Address::Tcp("::1".into(), port);
    assert_eq!(login.enter().value("SELECT 1"), "1");
    let told = format!("listening on [::1]:{port}");
    eventually(&told, || world.howdah.log().contains(&told));
}

/// The old process drains while its successor serves from the same socket: nobody is refused.
#[test]
fn a_socket_goes_from_one_process_to_the_next() {
    let port = place::port();
    let tcp = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let copy = tcp.try_clone().expect("a descriptor");
    let with = |setup: Setup, tcp: TcpListener| {
        setup
            .port(port)
            .set("unix_socket_dir", "")
            .given(tcp)
            .before("exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$")
    };
    let mut old = World::with(1, |setup| with(setup, tcp));
    let mut staying = old.client();
    staying.run("BEGIN");
    old.howdah.signal(Signal::TERM);
    eventually("it listens no more", || old.howdah.log().contains("stopped listening"));
    let new = World::with(1, |setup| with(setup, copy));
    for _ in 0..20 {
        assert_eq!(new.client().value("SELECT 1"), "1");
    }
    assert_eq!(staying.run("COMMIT").tags(), "CZ");
    staying.leave();
    assert_eq!(old.howdah.ended().code(), Some(0));
}

#[test]
fn descriptors_that_are_not_for_us_are_left_alone() {
    let world = World::with(1, |setup| setup.env("LISTEN_FDS", 2).env("LISTEN_PID", 1));
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert!(!world.howdah.log().contains("is ignored"));
}

#[test]
fn a_descriptor_that_is_no_listener_stops_the_start() {
    let pair = std::os::unix::net::UnixStream::pair().expect("descriptors");
    let (status, said) = Setup::new()
        .unset("logfile")
        .given(pair.0)
        .before("exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$")
        .try_start()
        .err()
        .expect("it must not start");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("descriptor 3 of the service manager cannot be listened on"), "{said}");
}
