//! The command line, the signals and the exit codes.

use harness::say::query;
use harness::{Raw, Setup, Subject, World, eventually, place, seconds, subject};
use rustix::process::Signal;

#[test]
fn hup_reloads() {
    let mut world = World::pool(1);
    world.howdah.rewrite(|setup| setup.set("query_wait_timeout", 44).secret("newcomer", "x"));
    world.howdah.signal(Signal::HUP);
    eventually("the ini is read", || {
        world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value") == "44"
    });
    assert!(world.howdah.log().contains("got SIGHUP, re-reading config"));
}

#[test]
fn hup_with_a_bad_file_changes_nothing() {
    let mut world = World::pool(1);
    world.howdah.rewrite(|setup| setup.set("query_wait_timeout", 44).tail("nonsense\n"));
    world.howdah.signal(Signal::HUP);
    eventually("it was tried", || world.howdah.log().contains("got SIGHUP"));
    if subject() == Subject::Howdah {
        assert_eq!(
            world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value"),
            "120"
        );
    }
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn hup_opens_the_log_anew() {
    let world = World::pool(1);
    let (log, moved) = (world.howdah.folder().join("log"), world.howdah.folder().join("log.1"));
    world.client().run("SELECT 1");
    std::fs::rename(&log, &moved).expect("a log");
    world.howdah.signal(Signal::HUP);
    eventually("a new log is written to", || {
        world.client().run("SELECT 1");
        world.howdah.log().contains("login attempt")
    });
    assert!(moved.exists());
}

#[test]
fn e14_term_waits_for_clients() {
    howdah_only!("since 1.23");
    let mut world = World::pool(2);
    let mut client = world.client();
    world.howdah.signal(Signal::TERM);
    eventually("nobody is let in", || Raw::open(&world.howdah.address()).is_err());
    assert!(
        world
            .howdah
            .log()
            .contains("got SIGTERM, shutting down, waiting for all clients disconnect")
    );
    assert_eq!(client.run("SELECT 1").tags(), "TDCZ");
    world.howdah.must_live();
    client.leave();
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
    assert!(world.howdah.log().contains("client connections dropped, exiting"));
    assert_eq!(world.servers(), 0);
}

#[test]
fn e14_a_second_term_ends_it() {
    howdah_only!("since 1.23");
    let mut world = World::pool(2);
    let mut client = world.client();
    client.run("BEGIN");
    world.howdah.signal(Signal::TERM);
    eventually("nobody is let in", || Raw::open(&world.howdah.address()).is_err());
    world.howdah.signal(Signal::TERM);
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
    client.until_closed();
}

#[test]
fn e14_int_waits_for_servers() {
    let mut world = World::pool(2);
    let mut client = world.client();
    client.run("BEGIN");
    world.howdah.signal(Signal::INT);
    eventually("it was heard", || world.howdah.log().contains("got SIGINT"));
    world.howdah.must_live();
    assert_eq!(client.run("COMMIT").tags(), "CZ");
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
    if subject() == Subject::Howdah {
        assert!(world.howdah.log().contains("server connections dropped, exiting"));
    }
}

#[test]
fn e14_a_second_int_ends_it() {
    howdah_only!("not yet in 1.18");
    let mut world = World::pool(2);
    let mut client = world.client();
    client.run("BEGIN");
    world.howdah.signal(Signal::INT);
    eventually("it was heard", || world.howdah.log().contains("got SIGINT"));
    world.howdah.signal(Signal::INT);
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
}

#[test]
fn quit_ends_it_at_once() {
    let mut world = World::pool(2);
    let mut client = world.client();
    client.run("BEGIN");
    world.howdah.signal(Signal::QUIT);
    let code = world.howdah.ended_within(seconds(5.0)).code();
    if subject() == Subject::Howdah {
        assert_eq!(code, Some(0));
    }
    client.until_closed();
    let socket = world.howdah.folder().join(format!(".s.PGSQL.{}", world.howdah.port()));
    eventually("no server is left", || world.servers() == 0);
    if subject() == Subject::Howdah {
        assert!(!socket.exists(), "it takes its socket away");
    }
}

#[test]
fn usr1_pauses_and_usr2_resumes() {
    let world = World::pool(1);
    let mut client = world.client();
    world.howdah.signal(Signal::USR1);
    let held = |client: &mut Raw| {
        client.send(&query("SELECT 1"));
        let quiet = client.hear(seconds(0.3)).is_quiet();
        if !quiet {
            client.until_ready();
        }
        quiet
    };
    eventually("it is paused", || held(&mut client));
    world.howdah.signal(Signal::USR2);
    assert_eq!(client.until_ready().tags(), "TDCZ");
}

#[test]
fn a_broken_pipe_is_no_reason_to_end() {
    let mut world = World::pool(1);
    world.howdah.signal(Signal::PIPE);
    assert_eq!(world.client().value("SELECT 1"), "1");
    world.howdah.must_live();
}

/// What the binary says and how it ends, when given these arguments.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output =
        place::command(harness::howdah::binary()).args(arguments).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_command_line() {
    let (code, version) = run(&["--version"]);
    assert_eq!(code, Some(0));
    assert!(version.starts_with("PgBouncer "), "{version}");
    assert_eq!(run(&["-V"]), (Some(0), version));
    for help in ["-h", "--help"] {
        let (code, text) = run(&[help]);
        assert_eq!(code, Some(0));
        assert!(text.contains("--reboot") || text.contains("--quiet"), "{text}");
    }
    assert_eq!(run(&[]).0, Some(1));
    assert_eq!(run(&["--frobnicate"]).0, Some(1));
    assert_eq!(run(&["/no/such/file.ini"]).0, Some(1));
    assert_eq!(run(&["one.ini", "two.ini"]).0, Some(1));
}

#[test]
fn the_version_line_is_show_version() {
    let world = World::pool(1);
    let first = run(&["--version"]).1.lines().next().expect("a line").to_owned();
    assert!(
        world
            .howdah
            .order("SHOW VERSION")
            .value()
            .starts_with(first.split(' ').next().expect("a word"))
    );
    if subject() == Subject::Howdah {
        assert_eq!(world.howdah.order("SHOW VERSION").value(), first);
    }
}

#[test]
fn a_bad_ini_stops_the_start_and_says_where() {
    for (line, hint) in [
        ("default_pool_size = many", "default_pool_size"),
        ("defualt_pool_size = 5", "defualt_pool_size"),
        ("[databases]\nshop = host", "pooler.ini:"),
        ("[nowhere]\nx = 1", "nowhere"),
    ] {
        let (status, said) = Setup::new()
            .unset("logfile")
            .tail(&format!("{line}\n"))
            .try_start()
            .err()
            .expect("it must not start");
        assert_eq!(status.code(), Some(1), "{line}");
        assert!(said.contains("pooler.ini:") || subject() == Subject::PgBouncer, "{said}");
        assert!(said.contains(hint), "{said}");
        if subject() == Subject::Howdah && line.starts_with("defualt") {
            assert!(said.contains("default_pool_size"), "the nearest name is offered: {said}");
        }
    }
}

#[test]
fn a_port_in_use_stops_the_start() {
    let world = World::pool(1);
    let (status, said) = Setup::new()
        .set("listen_port", world.howdah.port())
        .set("unix_socket_dir", "")
        .try_start()
        .err()
        .expect("it must not start");
    assert_eq!(status.code(), Some(1), "{said}");
}

#[test]
fn root_is_refused() {
    if place::SERVANT.is_none() {
        return println!("not root, so there is nothing to refuse");
    }
    let folder = place::folder("root");
    let ini = folder.join("pooler.ini");
    place::write(&ini, "[databases]\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 1\n");
    let status = std::process::Command::new(harness::howdah::binary())
        .arg(&ini)
        .output()
        .expect("it runs")
        .status;
    assert_eq!(status.code(), Some(1));
}

#[test]
fn started_through_a_symlink() {
    let setup = Setup::new().started_as("pgbouncer");
    let howdah = setup.start();
    let name = std::fs::read_to_string(format!("/proc/{}/comm", howdah.pid())).expect("it lives");
    assert_eq!(name.trim(), "pgbouncer");
    assert_eq!(howdah.order("SHOW VERSION").count(b'D'), 1);
}

#[test]
fn trailing_comments_are_accepted_with_a_warning() {
    howdah_only!("PgBouncer refuses to start");
    let world = World::with(3, |setup| {
        setup
            .set("server_lifetime", "3600  # an hour")
            .set("max_client_conn", "1000 ; many")
            .set("pool_mode", "transaction # yes")
    });
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert_eq!(world.howdah.cell("SHOW CONFIG", &[("key", "server_lifetime")], "value"), "3600");
    assert!(world.howdah.log().contains("WARNING") || world.howdah.said().contains("WARNING"));
}

#[test]
fn a_pidfile_and_a_daemon() {
    let folder = place::folder("daemon");
    let pidfile = folder.join("pid");
    let setup = Setup::new().set("pidfile", pidfile.display()).argument("-d");
    let mut howdah = setup.start();
    assert_eq!(
        howdah.ended().code(),
        Some(0),
        "the process that was started ends; the one that goes on listens"
    );
    let pid = howdah.daemon(&pidfile);
    assert_eq!(howdah.order("SHOW VERSION").count(b'D'), 1);
    rustix::process::kill_process(pid, Signal::QUIT).expect("it lives");
    eventually("it is gone", || rustix::process::test_kill_process(pid).is_err());
    if subject() == Subject::Howdah {
        assert!(!pidfile.exists(), "it takes its pidfile away");
    }
}

#[test]
fn the_log_can_be_on_a_full_disk() {
    let world = World::with(1, |setup| setup.set("logfile", "/dev/full"));
    let mut clients: Vec<_> = (0..20).map(|_| world.client()).collect();
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    drop(clients);
    world.howdah.signal(Signal::HUP);
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn lines_of_the_log() {
    let world = World::pool(1);
    let mut client = world.client();
    client.run("SELECT 1");
    client.leave();
    assert!(world.howdah.login("app", "wrong", "shop").attempt().is_err());
    let port = world.howdah.port();
    let expected = [
        "LOG process up: PgBouncer ".to_owned(),
        format!("LOG listening on 127.0.0.1:{port}"),
        "LOG listening on unix:".to_owned(),
        "login attempt: db=shop user=app tls=no".to_owned(),
        "new connection to server (from 127.0.0.1:".to_owned(),
        "closing because: client close request (age=".to_owned(),
        "pooler error: ".to_owned(),
    ];
    for part in &expected {
        eventually(part, || world.howdah.log().contains(part));
    }
    // 2026-11-20 19:42:11.082 UTC [21261] LOG C-0x55c7ddca4b70: shop/app@127.0.0.1:55878 login attempt: …
    let log = world.howdah.log();
    let line = log.lines().find(|line| line.contains("login attempt: db=shop")).expect("just seen");
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!((words[0].len(), words[1].len()), (10, 12), "{line}");
    assert_eq!(words[3], format!("[{}]", world.howdah.pid()));
    assert_eq!(words[4], "LOG");
    assert!(words[5].starts_with("C-0x") && words[5].ends_with(':'), "{line}");
    assert!(words[6].contains("/app@127.0.0.1:") || words[6].contains("@127.0.0.1:"), "{line}");
}
