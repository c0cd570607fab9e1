//! Becoming a process among others: the background, the pid file, the user, the limits, the end.

use std::process::{Command, Stdio};

use harness::postgres::PASSWORD;
use harness::say::query;
use harness::{Raw, Setup, Subject, World, eventually, eventually_within, place, seconds, subject};
use rustix::process::Signal;

/// Runs the binary with an ini of `settings` and these arguments until it ends.
fn run(arguments: &[&str], settings: &str) -> (Option<i32>, String) {
    let folder = place::folder("run");
    let ini = folder.join("pooler.ini");
    place::write(&ini, &format!("[databases]\n[pgbouncer]\nunix_socket_dir =\n{settings}"));
    let output = place::command(harness::howdah::binary())
        .args(arguments)
        .arg(&ini)
        .output()
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

fn listening() -> String {
    format!("listen_addr = 127.0.0.1\nlisten_port = {}\n", place::port())
}

#[test]
fn a_daemon_needs_a_pidfile_and_a_log() {
    let (code, said) = run(&["-d"], &listening());
    assert_eq!(code, Some(1));
    assert!(said.contains("daemon needs pidfile configured"), "{said}");
    let folder = place::folder("pid");
    let pidfile = folder.join("pid");
    let (code, said) = run(&["-d"], &format!("{}pidfile = {}\n", listening(), pidfile.display()));
    assert_eq!(code, Some(1));
    if subject() == Subject::Howdah {
        assert!(said.contains("daemon needs logfile configured"), "{said}");
    }
    assert!(!pidfile.exists());
}

/// What would stop the start, or keep somebody out, is found before.
#[test]
fn the_check_says_what_the_start_would() {
    howdah_only!("PgBouncer has none");
    let folder = place::folder("check");
    let users = folder.join("users.txt");
    place::write(&users, "\"ann\" \"x\"\nbob y\n\"carl\" \"z\"\n");
    let (code, said) =
        run(&["check"], &format!("{}auth_file = {}\n", listening(), users.display()));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("line 2: user name is not quoted") && said.contains("2 users"), "{said}");
    for (settings, told, ends) in [
        ("user = nobody_there", "could not find user 'nobody_there' to switch to", Some(1)),
        ("listen_addr = nobody.invalid", "listen_addr nobody.invalid: ", Some(0)),
        ("syslog = 1\nsyslog_facility = x", "syslog_facility x is none of", Some(0)),
    ] {
        let (code, said) = run(&["check"], settings);
        assert!(code == ends && said.contains(told), "{settings}: {said}");
    }
    let ldap = "auth_type = ldap\nauth_ldap_options = ldapserver=a ldapprefix=b";
    let (_, said) = run(&["check"], &format!("{}{ldap}", listening()));
    assert!(!said.contains("nobody can log in"), "{said}");
}

/// Descriptors are there for a pool of each user.
#[test]
fn descriptors_are_counted_for_every_user() {
    let users = |count: usize| {
        let mut setup = Setup::new().database("shop", "host=127.0.0.1 port=1 pool_size=7");
        for user in 0..count {
            setup = setup.secret(&format!("user{user}"), "x");
        }
        let howdah = setup.start();
        let log = howdah.log();
        let line = log.lines().find(|line| line.contains("max expected fd use: ")).expect("a line");
        let (_, number) = line.rsplit_once(' ').expect("a number");
        number.parse::<u32>().expect("a number")
    };
    let few = users(0);
    assert_eq!(users(10), few + 10 * 7);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    howdah_only!("PgBouncer says it in its log only");
    let world = World::pool(1);
    let folder = place::folder("pid");
    let settings = format!(
        "listen_addr = 127.0.0.1\nlisten_port = {}\npidfile = {}\nlogfile = {}\n",
        world.howdah.port(),
        folder.join("pid").display(),
        folder.join("log").display(),
    );
    let (code, said) = run(&["-d"], &settings);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot listen on 127.0.0.1"), "{said}");
    assert!(!folder.join("pid").exists());
}

#[test]
fn a_daemon_has_a_session_of_its_own() {
    let pidfile = place::folder("daemon").join("pid");
    let mut howdah = Setup::new().set("pidfile", pidfile.display()).argument("-d").start();
    assert_eq!(howdah.ended().code(), Some(0));
    let pid = howdah.daemon(&pidfile);
    assert_eq!(rustix::process::getsid(Some(pid)).expect("it lives"), pid);
    let stderr = format!("/proc/{}/fd/2", pid.as_raw_nonzero());
    let stderr = std::fs::read_link(stderr).expect("it has one");
    assert_eq!(stderr.to_str(), Some("/dev/null"));
    rustix::process::kill_process(pid, Signal::QUIT).expect("it lives");
}

#[test]
fn a_pidfile_of_the_dead_is_replaced_and_one_of_the_living_respected() {
    let folder = place::folder("pid");
    let pidfile = folder.join("pid");
    let mut dead = Command::new("true").stdin(Stdio::null()).spawn().expect("it runs");
    dead.wait().expect("it ends");
    place::write(&pidfile, &format!("{}\n", dead.id()));
    let mut first = Setup::new().set("pidfile", pidfile.display()).start();
    let read = || std::fs::read_to_string(&pidfile).expect("it is there");
    assert_eq!(read(), format!("{}\n", first.pid()));

    let second = Setup::new().set("pidfile", pidfile.display()).unset("logfile").try_start();
    let (status, said) = second.err().expect("it must not start");
    assert_eq!(status.code(), Some(1));
    if subject() == Subject::Howdah {
        assert!(said.contains("pidfile exists, another instance running?"), "{said}");
    }
    assert_eq!(read(), format!("{}\n", first.pid()), "who is refused leaves it alone");
    first.signal(Signal::QUIT);
    first.ended();
    assert!(!pidfile.exists());
}

#[test]
fn a_pidfile_that_became_somebody_elses_stays() {
    howdah_only!("a nicety");
    let pidfile = place::folder("pid").join("pid");
    let mut howdah = Setup::new().set("pidfile", pidfile.display()).start();
    place::write(&pidfile, "1\n");
    howdah.signal(Signal::QUIT);
    howdah.ended();
    assert!(pidfile.exists());
}

#[test]
fn takeover_is_refused_with_the_better_way() {
    howdah_only!("PgBouncer takes over");
    let (code, said) = run(&["-R"], &listening());
    assert_eq!(code, Some(1));
    assert!(said.contains("so_reuseport") && said.contains("SIGTERM"), "{said}");
}

#[test]
fn quiet_is_quiet() {
    let howdah = Setup::new().argument("-q").start();
    assert!(howdah.log().contains("process up"), "the log file is none of -q's business");
    assert_eq!(howdah.said(), "");
}

#[test]
fn verbose_is_verbose() {
    let loud = Setup::new().argument("-vv").start();
    assert_eq!(loud.order("SHOW VERSION").count(b'D'), 1);
    let quiet = Setup::new().start();
    assert_eq!(quiet.order("SHOW VERSION").count(b'D'), 1);
    assert!(!quiet.log().contains(" DEBUG "));
}

/// As root, with a user to become.
#[test]
fn root_becomes_somebody_else() {
    let Some(servant) = *place::SERVANT else { return println!("not root") };
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
    let of = |line: &&str| line.split(':').nth(2) == Some(&servant.uid.to_string());
    let name = passwd.lines().find(of).and_then(|line| line.split(':').next()).expect("a name");
    for by_flag in [true, false] {
        let folder = place::folder("user");
        let ini = folder.join("pooler.ini");
        let user = if by_flag { String::new() } else { format!("user = {name}\n") };
        let log = folder.join("log");
        place::write(
            &ini,
            &format!(
                "[databases]\n[pgbouncer]\nunix_socket_dir =\n{}logfile = {}\n{user}",
                listening(),
                log.display()
            ),
        );
        let mut command = Command::new(harness::howdah::binary());
        if by_flag {
            command.args(["-u", name]);
        }
        let mut child = command
            .arg(&ini)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        harness::reaper::watch(child.id(), &folder);
        eventually("it is up", || {
            std::fs::read_to_string(&log).is_ok_and(|log| log.contains("process up"))
        });
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it lives");
        let uids = status.lines().find(|line| line.starts_with("Uid:")).expect("a line");
        let uid = servant.uid.to_string();
        assert!(uids.split_whitespace().skip(1).all(|id| id == uid), "{uids}");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::QUIT).expect("it lives");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
        harness::reaper::unwatch(child.id(), &folder);
    }
}

#[test]
fn an_unknown_user_is_an_error() {
    if place::SERVANT.is_none() {
        return println!("not root");
    }
    let folder = place::folder("user");
    let ini = folder.join("pooler.ini");
    place::write(&ini, &format!("[databases]\n[pgbouncer]\n{}", listening()));
    let output = Command::new(harness::howdah::binary())
        .args(["-u", "nobody_of_that_name"])
        .arg(&ini)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nobody_of_that_name"), "{said}");
}

#[test]
fn the_limit_of_descriptors_is_told_and_raised() {
    let world = World::with(3, |setup| {
        setup.set("max_client_conn", 1500).before("ulimit -Hn 100000; ulimit -Sn 64")
    });
    let log = world.howdah.log();
    let line = log
        .lines()
        .find(|line| line.contains("kernel file descriptor limit: "))
        .expect("it is told at boot");
    assert!(line.contains("max_client_conn: 1500, max expected fd use: 15"), "{line}");
    if subject() == Subject::Howdah {
        let number = |after: &str| {
            let rest = line.split_once(after).expect("the part").1;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().expect("a number")
        };
        assert!(number("descriptor limit: ") > 1500, "{line}");
        assert!(!log.contains("file descriptors are fewer"));
        // A RELOAD that needs more gets more.
        let mut world = world;
        world.howdah.reload(|setup| setup.set("max_client_conn", 9000));
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", world.howdah.pid()))
            .expect("it lives");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
        let soft = files.split_whitespace().nth(3).expect("a number").parse::<u64>();
        assert!(soft.expect("a number") > 9000, "{files}");
    }
}

#[test]
fn too_few_descriptors_are_warned_about() {
    howdah_only!("PgBouncer leaves the arithmetic to the reader");
    let world = World::with(3, |setup| setup.set("max_client_conn", 1500).descriptors(200));
    assert!(world.howdah.log().contains("200 file descriptors are fewer than the 15"));
}

#[test]
fn usr2_ends_a_suspend_as_well() {
    let world = World::pool(1);
    let (mut client, mut admin) = (world.client(), world.howdah.admin());
    client.run("SELECT 1");
    admin.run("SUSPEND");
    client.send(&query("SELECT 'after'"));
    assert!(client.hear(seconds(0.5)).is_quiet());
    world.howdah.signal(Signal::USR2);
    assert_eq!(client.until_ready().column(), ["after"]);
}

#[test]
fn a_waiting_shutdown_says_how_far_it_is() {
    howdah_only!("PgBouncer waits in silence");
    let mut world = World::pool(2);
    let (mut one, two) = (world.client(), world.client());
    one.run("BEGIN");
    world.howdah.signal(Signal::TERM);
    eventually("it is told", || {
        world.howdah.log().contains("shutting down, 2 clients and 1 busy servers left")
    });
    two.leave();
    eventually_within(seconds(30.0), "it is told again", || {
        world.howdah.log().contains("shutting down, 1 clients and 1 busy servers left")
    });
    one.run("COMMIT");
    one.leave();
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
}

/// While clients are waited for, the console is open by the unix socket, for admins.
#[test]
fn e14_admins_get_in_during_a_drain() {
    howdah_only!("since 1.23");
    let mut world = World::pool(2);
    let mut client = world.client();
    client.run("SELECT 1");
    world.howdah.signal(Signal::TERM);
    eventually("nobody is let in", || Raw::open(&world.howdah.address()).is_err());
    let mut back_door = world.howdah.login("boss", PASSWORD, "pgbouncer");
    back_door.address = world.howdah.socket();
    let mut admin = back_door.enter();
    let clients = admin.run("SHOW CLIENTS").table();
    let user = |row: &Vec<(String, String)>| row.iter().any(|(k, v)| k == "user" && v == "app");
    assert_eq!(clients.iter().filter(|row| user(row)).count(), 1);
    let mut front = world.login();
    front.address = world.howdah.socket();
    assert!(front.attempt().is_err(), "who is no admin is not let in");
    world.howdah.signal(Signal::USR1);
    world.howdah.signal(Signal::USR2);
    eventually("it is ignored", || {
        world.howdah.log().contains("got SIGUSR2 while shutting down, ignoring")
    });
    assert_eq!(client.run("SELECT 1").tags(), "TDCZ", "who is in is served");
    // Clients that idle between transactions hold it up as others do; one that goes lets it end.
    admin.send(&query("SHOW POOLS"));
    client.leave();
    assert_eq!(world.howdah.ended_within(seconds(5.0)).code(), Some(0));
    assert_eq!(world.servers(), 0);
}
