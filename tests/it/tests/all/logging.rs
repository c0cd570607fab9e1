//! Where the log goes, and that nobody has to wait for it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::{Raise, World, eventually, place, seconds};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

/// A pipe with a name, for whoever starts the pooler.
fn pipe() -> PathBuf {
    let path = place::folder("pipe").join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o777),
        0,
    )
    .expect("our own folder");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("ours");
    path
}

/// What is in the pipe, without waiting for more.
fn drain(path: &Path) -> impl FnMut() -> String {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let fd = rustix::fs::open(path, flags, Mode::empty()).expect("a pipe");
    let mut file = File::from(fd);
    let mut text = Vec::new();
    move || {
        // Empty for the moment is an error here.
        let _ = file.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[test]
fn a_stalled_standard_error_stalls_nobody() {
    howdah_only!("PgBouncer waits");
    let pipe = pipe();
    let mut world = World::with(1, |setup| setup.before(&format!("exec 2<>'{}'", pipe.display())));
    // Each leaves two lines: more than a pipe and the queue before it hold.
    let mut rounds = 0;
    while std::fs::metadata(world.howdah.folder().join("log")).expect("a log").len() < 1_300_000 {
        assert!(world.howdah.login("app", "", "nowhere").attempt().is_err());
        rounds += 1;
        assert!(rounds < 20_000, "it is logged");
    }
    assert_eq!(world.client().value("SELECT 1"), "1", "nobody reads, and all are served");
    let mut read = drain(&pipe);
    eventually("it is said how many were lost", || {
        read().contains("log lines were lost: standard error did not take them")
    });
    assert_eq!(world.client().value("SELECT 1"), "1");
    let count = world.howdah.log().matches("login attempt: db=shop").count();
    eventually("and it goes on", || read().matches("login attempt: db=shop").count() >= count - 1);
    // A reader that is stalled at the end does not keep the process.
    world.howdah.signal(Signal::QUIT);
    assert_eq!(world.howdah.ended().code(), Some(0));
}

#[test]
fn a_log_file_that_is_a_pipe_stalls_nobody() {
    howdah_only!("PgBouncer waits");
    let pipe = pipe();
    // Both ends are open in the pooler, so that opening it does not wait for a reader.
    let mut world = World::with(1, |setup| {
        setup.before(&format!("exec 9<>'{}'", pipe.display())).set("logfile", pipe.display())
    });
    for _ in 0..500 {
        assert!(world.howdah.login("app", "", "nowhere").attempt().is_err());
    }
    assert_eq!(world.client().value("SELECT 1"), "1");
    let mut read = drain(&pipe);
    eventually("all of it comes", || read().contains("login attempt: db=shop"));
    world.howdah.must_live();
}

#[test]
fn the_journal_gets_priorities_and_no_second_time() {
    let pipe = pipe();
    let place = pipe.display();
    let world = World::with(1, |setup| {
        setup
            .before(&format!("exec 2<>'{place}'"))
            .before(&format!("export JOURNAL_STREAM=$(stat -Lc %d:%i '{place}')"))
    });
    let mut read = drain(&pipe);
    assert!(world.howdah.login("app", "wrong", "shop").attempt().is_err());
    eventually("it is told", || read().contains("pooler error: "));
    let said = read();
    assert!(said.lines().any(|line| line.starts_with("<6>LOG process up: ")), "{said}");
    let warning = said.lines().find(|line| line.contains("pooler error: ")).expect("just seen");
    assert!(warning.starts_with("<4>WARNING C-0x"), "{warning}");
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");
    // The file is no journal.
    assert!(world.howdah.log().lines().all(|line| line.starts_with("20")));
}

#[test]
fn a_stream_that_is_not_the_journal_gets_whole_lines() {
    let world = World::with(1, |setup| setup.env("JOURNAL_STREAM", "8:12345"));
    eventually("it is told", || world.howdah.said().contains("process up"));
    assert!(world.howdah.said().lines().all(|line| line.starts_with("20")));
}

/// `ulimit -f` is a disk that is full soon; what comes after the file was made shorter finds room.
#[test]
fn a_full_disk_is_told_when_it_is_over() {
    howdah_only!("PgBouncer loses lines in silence");
    let mut world = World::with(1, |setup| setup.before("trap '' XFSZ; ulimit -f 16"));
    let log = world.howdah.folder().join("log");
    let length = || std::fs::metadata(&log).expect("a log").len();
    let full = 16 * 512;
    let mut rounds = 0;
    while length() < full {
        assert_eq!(world.client().value("SELECT 1"), "1");
        rounds += 1;
        assert!(rounds < 1000, "it fills");
    }
    for _ in 0..10 {
        assert_eq!(world.client().value("SELECT 1"), "1", "clients are served all the while");
    }
    assert_eq!(length(), full);
    File::options().write(true).open(&log).and_then(|file| file.set_len(100)).expect("a log");
    assert_eq!(world.client().value("SELECT 1"), "1");
    let text = world.howdah.log();
    let note = text.lines().find(|line| line.contains(" log lines were lost: ")).expect("told");
    assert!(note.starts_with("20") && note.contains("] WARNING "), "on a line of its own: {note}");
    assert!(text.contains("login attempt"));
    world.howdah.must_live();
}

#[test]
fn rotating_loses_no_line() {
    let world = World::with(2, |setup| setup.set("log_disconnections", 0));
    let folder = world.howdah.folder().to_owned();
    let log = folder.join("log");
    let stop = AtomicBool::new(false);
    let (logins, rotations) = std::thread::scope(|scope| {
        let _stop = Raise(&stop);
        let at_it = || {
            let mut logins = 0;
            while !stop.load(Ordering::SeqCst) {
                assert_eq!(world.client().value("SELECT 1"), "1");
                logins += 1;
            }
            logins
        };
        let clients = [scope.spawn(at_it), scope.spawn(at_it)];
        let mut rotations = 0;
        // Each has seen a login.
        while rotations < 11 {
            std::fs::rename(&log, folder.join(format!("log.{rotations}"))).expect("a log");
            world.howdah.signal(Signal::HUP);
            eventually("it is opened anew, and written to", || {
                std::fs::read_to_string(&log).is_ok_and(|text| text.contains("login attempt"))
            });
            rotations += 1;
        }
        stop.store(true, Ordering::SeqCst);
        let logins: usize = clients.map(|client| client.join().expect("no panic")).iter().sum();
        (logins, rotations)
    });
    let read = |name: String| std::fs::read_to_string(folder.join(name)).expect("a log");
    let all: String =
        (0..rotations).map(|n| read(format!("log.{n}"))).chain([world.howdah.log()]).collect();
    assert!(logins > 10);
    assert_eq!(all.matches("login attempt: db=shop user=app").count(), logins);
}

/// The place of the system's logger, where there is none. There is one place only, so all of its story is one test.
struct Logger(UnixDatagram);

const DEV_LOG: &str = "/dev/log";

impl Logger {
    fn open() -> Option<Self> {
        if Path::new(DEV_LOG).exists() {
            // Left behind by a test that was killed: a socket that nobody listens at.
            let is_socket = std::fs::symlink_metadata(DEV_LOG).ok()?.file_type().is_socket();
            let probe = UnixDatagram::unbound().ok()?;
            if !is_socket || probe.connect(DEV_LOG).is_ok() {
                return None;
            }
            std::fs::remove_file(DEV_LOG).ok()?;
        }
        let socket = UnixDatagram::bind(DEV_LOG).ok()?;
        std::fs::set_permissions(DEV_LOG, std::fs::Permissions::from_mode(0o666)).ok()?;
        socket.set_read_timeout(Some(seconds(30.0))).ok()?;
        Some(Self(socket))
    }

    /// Waits for a line with this in it.
    fn hears(&self, part: &str) -> String {
        let mut bytes = [0; 16_384];
        loop {
            let length = self.0.recv(&mut bytes).expect("it is told in time");
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.contains(part) {
                return text;
            }
        }
    }
}

impl Drop for Logger {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(DEV_LOG);
    }
}

#[test]
fn syslog() {
    let Some(logger) = Logger::open() else { return println!("/dev/log is not ours to be") };
    let mut world = World::with(1, |setup| {
        setup.set("syslog", 1).set("syslog_ident", "the_pooler").set("syslog_facility", "local3")
    });
    let pid = world.howdah.pid();
    // local3 is 19, and what is merely told is 6.
    let line = logger.hears("process up: ");
    assert!(line.starts_with(&format!("<{}>", 19 * 8 + 6)), "{line}");
    assert!(line.contains(&format!(" the_pooler[{pid}]: process up: PgBouncer ")), "{line}");
    let stamp = line.split_once('>').expect("a priority").1;
    assert_eq!(stamp.as_bytes()[15], b' ', "Nov 20 22:13:52 in front: {line}");

    assert!(world.howdah.login("app", "wrong", "shop").attempt().is_err());
    let line = logger.hears("pooler error: ");
    assert!(line.starts_with(&format!("<{}>", 19 * 8 + 4)), "{line}");

    // The logger is restarted. What is said while it is away is lost, and told.
    drop(logger);
    assert_eq!(world.client().value("SELECT 1"), "1");
    eventually("it was said", || {
        let log = world.howdah.log();
        log.lines().any(|line| line.contains("shop/app") && line.contains("unexpected eof"))
    });
    let logger = Logger::open().expect("it was ours a moment ago");
    assert_eq!(world.client().value("SELECT 1"), "1");
    let line = logger.hears("log lines were lost: syslog did not take them");
    assert!(line.starts_with(&format!("<{}>", 19 * 8 + 4)), "{line}");
    logger.hears("login attempt: db=shop user=app");

    world.howdah.reload(|setup| setup.set("syslog_ident", "other").set("syslog_facility", "x"));
    let line = logger.hears("syslog_facility x is none of user, daemon, ");
    assert!(line.starts_with(&format!("<{}>", 3 * 8 + 4)) && line.contains(" other["), "{line}");
    world.howdah.reload(|setup| setup.set("syslog", 0));
    logger.0.set_nonblocking(true).expect("an open socket");
    let mut bytes = [0; 16_384];
    while logger.0.recv(&mut bytes).is_ok() {}
    assert_eq!(world.client().value("SELECT 1"), "1");
    assert!(logger.0.recv(&mut bytes).is_err(), "it was switched off");
    assert!(world.howdah.log().contains("process up"), "the file has it all the same");
}

/// A server that refuses the login says so in the log, in the words that log parsers look for; and each client that
/// waits for it hears what the server said.
#[test]
fn a_server_that_refuses_the_login_is_told_of() {
    let world = World::with(1, |setup| {
        let nobody = "host=127.0.0.1 port=PORT dbname=no_such_database";
        let port = harness::Postgres::shared().port();
        let wrong = "host=127.0.0.1 port=PORT dbname=postgres user=app password=wrong";
        let at = |target: &str| target.replace("PORT", &port.to_string());
        setup.database("ghost", &at(nobody)).database("stranger", &at(wrong))
    });
    for (database, code, said) in [
        ("ghost", "3D000", "database \"no_such_database\" does not exist"),
        ("stranger", "28P01", "password authentication failed for user \"app\""),
    ] {
        let refused = world.login().database(database).attempt().err().expect("nobody is let in");
        let error = refused.error();
        assert_eq!(error.severity(), "FATAL", "{database}");
        assert_eq!(error.text(), said, "{database}");
        if harness::subject() == harness::Subject::Howdah {
            assert_eq!(error.code(), code, "{database}");
        }
        let log = world.howdah.log();
        for line in [
            format!("ERROR S: login failed: FATAL: {said}"),
            format!("WARNING server login failed: FATAL {said}"),
        ] {
            assert!(log.contains(&line), "{line}\n{log}");
        }
        let server = log.lines().find(|line| {
            line.contains(" S-0x")
                && line.contains(&format!("{database}/app@"))
                && line.contains("closing because: login failed (age=")
        });
        assert!(server.is_some(), "{log}");
        let client = format!("closing because: {said} (age=");
        assert!(log.contains(&client), "{log}");
    }
}
