//! One test for each timer: it fires when it should (±10 %, and 150 ms for a busy machine), and only then. Bug class E11.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{
    FakeServer, Heard, Measured, Raw, Setup, Subject, World, eventually, fake, seconds, subject,
    timed,
};

/// The timer was set to `due`, and something happened after what was measured.
fn on_time(due: f64, measured: &Measured) {
    let slack = (due * 0.1 + 0.15) * if is_busy() { 2.0 } else { 1.0 };
    // The yardstick looks at most timers only three times a second.
    let coarse = if subject() == Subject::PgBouncer { 0.5 } else { 0.0 };
    let (time, hiccup) = (measured.time.as_secs_f64(), measured.hiccup.as_secs_f64());
    assert!(
        time > due - slack && time < due + slack + coarse + 2.0 * hiccup,
        "due after {due} s, came after {time:.3} s (the machine was late by up to {hiccup:.3} s)"
    );
}

/// Whether more wants to run than can.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    load > 1.5 * cores
}

fn world(setting: &str) -> World {
    World::with(2, |setup| setup.set(setting, 1))
}

#[test]
fn e11_query_timeout() {
    let world = world("query_timeout");
    let mut client = world.client();
    let (time, error) = timed(|| {
        client.send(&query("SELECT pg_sleep(20)"));
        client.fatal()
    });
    on_time(1.0, &time);
    assert_eq!((error.severity(), error.code(), error.text()), ("FATAL", "08P01", "query timeout"));
}

#[test]
fn e11_query_timeout_counts_the_whole_exchange() {
    let world = world("query_timeout");
    let mut client = world.client();
    let noisy = "DO $$ BEGIN FOR i IN 1..30 LOOP RAISE NOTICE 'alive'; PERFORM pg_sleep(0.2); END LOOP; END $$";
    let (time, reply) = timed(|| {
        client.send(&query(noisy));
        client.until_closed()
    });
    on_time(1.0, &time);
    assert!(reply.count(b'N') > 2);
    assert_eq!(
        reply.error().map(|error| error.text().to_owned()).as_deref(),
        Some("query timeout")
    );
}

#[test]
fn e11_query_timeout_does_not_fire_with_nothing_running() {
    let world = world("query_timeout");
    let mut client = world.client();
    let (time, ()) = timed(|| {
        for _ in 0..5 {
            assert_eq!(client.run("SELECT pg_sleep(0.3)").tags(), "TDCZ");
        }
        client.run("BEGIN; SELECT 1");
        if subject() == Subject::Howdah {
            assert!(client.hear(seconds(1.3)).is_quiet(), "a client at rest in a transaction");
        }
        client.run("COMMIT");
    });
    assert!(time.time > seconds(1.4));
    assert_eq!(client.run("SELECT 1").tags(), "TDCZ");
}

#[test]
fn e11_query_wait_timeout() {
    let world = World::pool(1);
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    world.howdah.order("SET query_wait_timeout = 1");
    let (time, error) = timed(|| {
        waiting.send(&query("SELECT 1"));
        waiting.fatal()
    });
    on_time(1.0, &time);
    assert_eq!(
        (error.severity(), error.code(), error.text()),
        ("FATAL", "08P01", "query_wait_timeout")
    );
    assert_eq!(holder.run("COMMIT").tags(), "CZ");
}

#[test]
fn e11_query_wait_notify() {
    howdah_only!("of 1.25");
    let world = World::with(1, |setup| setup.set("query_wait_notify", 1));
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    let (time, notice) = timed(|| {
        waiting.send(&query("SELECT 'served'"));
        waiting.message()
    });
    on_time(1.0, &time);
    assert_eq!(notice.tag, b'N');
    let text = "No server connection available in postgres backend, client being queued";
    assert_eq!((notice.fields().severity(), notice.fields().text()), ("NOTICE", text));
    assert!(matches!(waiting.hear(seconds(1.3)), Heard::Quiet), "once for each wait");
    holder.run("COMMIT");
    assert_eq!(waiting.until_ready().column(), ["served"]);
}

#[test]
fn e11_idle_transaction_timeout() {
    let world = world("idle_transaction_timeout");
    let mut client = world.client();
    client.run("CREATE TABLE t (n int)");
    for busy in 0..5 {
        client.run(if busy == 0 { "BEGIN" } else { "INSERT INTO t SELECT 1 FROM pg_sleep(0.3)" });
    }
    let (time, error) = timed(|| client.fatal());
    on_time(1.0, &time);
    assert_eq!(
        (error.severity(), error.code(), error.text()),
        ("FATAL", "08P01", "idle transaction timeout")
    );
    assert_eq!(world.client().value("SELECT count(*) FROM t"), "0");
}

#[test]
fn e11_idle_transaction_timeout_leaves_long_queries_alone() {
    let world = world("idle_transaction_timeout");
    let mut client = world.client();
    assert_eq!(client.run("BEGIN; SELECT pg_sleep(1.6)").tags(), "CTDCZ");
    assert_eq!(client.run("COMMIT").tags(), "CZ");
    assert!(matches!(client.hear(seconds(1.3)), Heard::Quiet), "outside a transaction");
}

#[test]
fn e11_transaction_timeout() {
    howdah_only!("of 1.25");
    let world = world("transaction_timeout");
    let mut client = world.client();
    let (time, error) = timed(|| {
        client.run("BEGIN");
        loop {
            client.send(&query("SELECT pg_sleep(0.1)"));
            match client.message() {
                message if message.tag == b'E' => break message.fields(),
                _ => drop(client.until_ready()),
            }
        }
    });
    on_time(1.0, &time);
    assert_eq!(
        (error.severity(), error.code(), error.text()),
        ("FATAL", "08P01", "transaction timeout")
    );
}

#[test]
fn e11_client_idle_timeout() {
    let world = world("client_idle_timeout");
    let mut client = world.client();
    // The yardstick counts from the beginning of the last query.
    client.run(if subject() == Subject::Howdah { "SELECT pg_sleep(1.3)" } else { "SELECT 1" });
    let (time, error) = timed(|| client.fatal());
    on_time(1.0, &time);
    assert_eq!(
        (error.severity(), error.code(), error.text()),
        ("FATAL", "08P01", "client_idle_timeout")
    );
}

#[test]
fn e11_client_login_timeout() {
    let world =
        World::with(1, |setup| setup.set("client_login_timeout", 1).set("tcp_defer_accept", 0));
    let startup = world.login().startup();
    let stalls: [&[u8]; 4] = [&startup, &startup[..20], &startup[..3], b""];
    // The yardstick does not wait for the rest of a startup packet.
    let stalls = if subject() == Subject::Howdah { &stalls[..] } else { &stalls[..1] };
    for stall in stalls {
        let mut client = Raw::open(&world.howdah.address()).expect("it listens");
        let (time, reply) = timed(|| {
            client.send(stall);
            client.until_closed()
        });
        on_time(1.0, &time);
        let texts: Vec<_> =
            reply.of(b'E').map(|message| message.fields().text().to_owned()).collect();
        assert!(texts.iter().all(|text| text == "client_login_timeout"), "{texts:?}");
    }
}

#[test]
fn e11_server_idle_timeout() {
    let world = world("server_idle_timeout");
    let mut client = world.client();
    client.run("SELECT pg_sleep(1.3)");
    let (time, ()) = timed(|| eventually("it is closed", || world.servers() == 0));
    on_time(1.0, &time);
    assert!(world.howdah.log().contains("closing because: server idle timeout"));
    assert_eq!(client.run("SELECT 1").tags(), "TDCZ");
}

#[test]
fn e11_server_lifetime() {
    let world = World::with(1, |setup| setup.set("server_lifetime", 1));
    let (time, mut client) = timed(|| {
        let mut client = world.client();
        client.run("SELECT 1");
        eventually("it is closed", || world.servers() == 0);
        client
    });
    // Closings are paced by lifetime over pool size: up to as long again.
    assert!(time.time > seconds(0.85) && time.within(2.5), "{time:?}");
    assert!(world.howdah.log().contains("closing because: server lifetime over"));
    let (pid, _) =
        (client.value("BEGIN; SELECT pg_backend_pid()"), client.run("SELECT pg_sleep(1.4)"));
    assert_eq!(client.value("SELECT pg_backend_pid()"), pid, "not in the middle of a transaction");
    client.run("COMMIT");
    eventually("it is closed when free", || client.value("SELECT pg_backend_pid()") != pid);
}

#[test]
fn e11_server_lifetime_zero_means_once() {
    let world = World::with(1, |setup| setup.set("server_lifetime", 0));
    let mut client = world.client();
    let mut pids: Vec<_> = (0..5).map(|_| client.value("SELECT pg_backend_pid()")).collect();
    pids.dedup();
    assert_eq!(pids.len(), 5, "{pids:?}");
}

#[test]
fn e11_server_connect_timeout() {
    let visits = Arc::new(Mutex::new(Vec::new()));
    let book = visits.clone();
    let server = FakeServer::start(move |guest| {
        let (visit, ()) = timed(|| guest.stall());
        book.lock().expect("no panic").push(visit);
    });
    let setup = Setup::new().set("server_connect_timeout", 1).set("query_wait_timeout", 10);
    let howdah = setup.database("fake", &server.target()).start();
    let mut client = Raw::open(&howdah.address()).expect("it listens");
    client.send(&howdah.login("app", PASSWORD, "fake").startup());
    let login = howdah.login("app", PASSWORD, "fake");
    std::thread::spawn(move || drop(login.answer(&mut client)));
    eventually("the pooler gives up", || !visits.lock().expect("no panic").is_empty());
    let visit = visits.lock().expect("no panic")[0];
    assert!(visit.time > seconds(0.85) && visit.within(1.5), "{visit:?}");
    assert!(howdah.log().contains("closing because: connect timeout"));
}

#[test]
fn e11_server_login_retry() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let book = attempts.clone();
    let server = FakeServer::start(move |mut guest| {
        if guest.opening().is_some() {
            book.lock().expect("no panic").push(Instant::now());
            guest.send(&fake::error("FATAL", "28P01", "go away"));
        }
    });
    let howdah =
        Setup::new().set("server_login_retry", 1).database("fake", &server.target()).start();
    let login = howdah.login("app", PASSWORD, "fake");
    let first = login.attempt().err().expect("refused").error();
    let code = if subject() == Subject::Howdah { "28P01" } else { "08P01" };
    assert_eq!((first.severity(), first.code(), first.text()), ("FATAL", code, "go away"));
    if subject() == Subject::Howdah {
        let cached = login.attempt().err().expect("refused").error();
        let text = "server login has been failing, cached error: go away (server_login_retry)";
        assert_eq!((cached.code(), cached.text()), ("28P01", text));
    }
    let (all, ()) = timed(|| {
        eventually("it tries again", || {
            assert!(login.attempt().is_err());
            attempts.lock().expect("no panic").len() == 3
        });
    });
    let times = attempts.lock().expect("no panic").clone();
    for pair in times.windows(2) {
        let between = Measured { time: pair[1] - pair[0], ..all };
        assert!(between.time > seconds(0.85) && between.within(1.6), "{between:?}");
    }
}

#[test]
fn e11_server_check_delay() {
    let world = World::with(1, |setup| {
        setup.set("server_check_delay", 1).set("server_check_query", "SELECT 'well?'")
    });
    let mut client = world.client();
    let checks = || world.statements().iter().filter(|sql| sql.contains("well?")).count();
    client.run("SELECT 1");
    client.run("SELECT 2");
    let (time, ()) = timed(|| {
        eventually("it is no longer trusted", || world.pools("sv_used") == "1");
    });
    on_time(1.0, &time);
    assert_eq!(checks(), 0, "it is asked only when it is wanted");
    assert_eq!(client.run("SELECT 3").tags(), "TDCZ");
    assert_eq!(checks(), 1);
    client.run("SELECT 4");
    assert_eq!(checks(), 1);
}

#[test]
fn e11_a_server_that_fails_its_check_is_replaced() {
    howdah_only!("the yardstick goes on with the server");
    let check = "DO $$ BEGIN IF EXISTS (SELECT FROM sick WHERE pid = pg_backend_pid()) THEN RAISE 'sick'; END IF; END $$";
    let world =
        World::with(1, |setup| setup.set("server_check_delay", 0).set("server_check_query", check));
    let mut client = world.client();
    world.direct().run("CREATE TABLE sick (pid int); GRANT ALL ON sick TO app");
    let pid = client.value("SELECT pg_backend_pid()");
    client.run("INSERT INTO sick VALUES (pg_backend_pid())");
    let next = client.value("SELECT pg_backend_pid()");
    assert_ne!(next, pid);
}

#[test]
fn e11_cancel_wait_timeout() {
    howdah_only!("of 1.19");
    let server = FakeServer::start(|mut guest| match guest.opening() {
        Some(fake::Opening::Login { .. }) => {
            guest.send(&fake::welcome());
            guest.stall();
        }
        _ => guest.stall(),
    });
    let setup = Setup::new().set("default_pool_size", 1).set("cancel_wait_timeout", 1);
    let howdah = setup.database("fake", &server.target()).start();
    let mut client = howdah.login("app", PASSWORD, "fake").enter();
    client.send(&query("SELECT 1"));
    eventually("it runs", || {
        howdah.cell("SHOW POOLS", &[("database", "fake")], "sv_active") == "1"
    });
    // Twice the pool's size may be open, cancels included: the second cancel has to wait.
    let first = client.cancel_begin();
    eventually("the first is under way", || server.guests() == 2);
    let (time, _) = timed(|| client.cancel_begin().until_closed());
    on_time(1.0, &time);
    drop(first);
}

#[test]
fn e11_suspend_timeout() {
    let world = World::with(1, |setup| setup.set("suspend_timeout", 1));
    let (mut slow, mut admin) = (world.client(), world.howdah.admin());
    slow.send(&query("SELECT repeat('x', 1000) FROM generate_series(1, 50000)"));
    slow.swallow(10_000, seconds(5.0));
    let stuck = format!(
        "SELECT wait_event FROM pg_stat_activity WHERE datname = '{}' AND state = 'active'",
        world.db
    );
    let mut witness = world.postgres.superuser("postgres");
    let mut still = 0;
    eventually("nothing moves", || {
        still = if witness.run(&stuck).column() == ["ClientWrite"] { still + 1 } else { 0 };
        still == 60
    });
    let (time, reply) = timed(|| admin.query("SUSPEND"));
    on_time(1.0, &time);
    assert_eq!(reply.tags(), "CZ");
    admin.run("RESUME");
    assert!(world.howdah.log().contains("suspend_timeout"));
    assert_eq!(world.client().value("SELECT 'resumed'"), "resumed");
}

#[test]
fn e11_autodb_idle_timeout() {
    let postgres = harness::Postgres::shared();
    let db = postgres.database();
    let target = format!("host=127.0.0.1 port={}", postgres.port());
    let setup = Setup::new()
        .set("autodb_idle_timeout", 1)
        .set("server_idle_timeout", 1)
        .database("*", &target);
    let howdah = setup.start();
    let mut client = howdah.login("app", PASSWORD, &db).enter();
    client.run("SELECT pg_sleep(3)");
    let listed = || !howdah.rows("SHOW DATABASES", &[("name", &db)], "name").is_empty();
    assert!(listed(), "e18: not while it is used");
    client.leave();
    let (time, ()) = timed(|| eventually("it is forgotten", || !listed()));
    assert!(time.time > seconds(0.8) && time.within(4.0), "{time:?}");
    assert_eq!(howdah.login("app", PASSWORD, &db).enter().value("SELECT 'again'"), "again");
}

#[test]
fn e11_pool_idle_timeout() {
    howdah_only!("newer than 1.25");
    let world =
        World::with(1, |setup| setup.set("pool_idle_timeout", 1).set("server_idle_timeout", 1));
    let mut client = world.client();
    client.run("SELECT 1");
    client.leave();
    eventually("its server is closed", || world.servers() == 0);
    let (time, ()) = timed(|| {
        eventually("the pool is forgotten", || {
            !world.howdah.has_row("SHOW POOLS", &[("user", "app")])
        })
    });
    // Pools that nobody uses are looked at every 0.3 s.
    on_time(1.15, &time);
    assert!(world.howdah.log().contains("because: pool idle timeout"));
}

#[test]
fn e11_reserve_pool_timeout() {
    let world =
        World::with(1, |setup| setup.set("reserve_pool_size", 1).set("reserve_pool_timeout", 1));
    let (mut holder, mut waiting, mut third) = (world.client(), world.client(), world.client());
    holder.run("BEGIN");
    let (time, reply) = timed(|| waiting.run("BEGIN"));
    on_time(1.0, &time);
    assert_eq!(reply.tags(), "CZ");
    assert!(world.howdah.log().contains("taking connection from reserve_pool"));
    third.send(&query("SELECT 1"));
    assert!(matches!(third.hear(seconds(1.5)), Heard::Quiet), "the reserve is used up");
    holder.run("COMMIT");
    assert_eq!(third.until_ready().tags(), "TDCZ");
}

#[test]
fn e11_stats_period() {
    let world = World::with(1, |setup| setup.set("stats_period", 1));
    let lines = || world.howdah.log().matches(" stats: ").count();
    eventually("a first line", || lines() == 1);
    let (time, ()) = timed(|| eventually("three more", || lines() == 4));
    on_time(3.0, &time);
    let log = world.howdah.log();
    let line = log.lines().find(|line| line.contains(" stats: ")).expect("there are four");
    assert!(
        line.contains("xacts/s") && line.contains("queries/s") && line.contains("wait "),
        "{line}"
    );
}

#[test]
fn e11_a_timer_may_have_fractions_of_a_second() {
    let world = World::pool(1);
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    world.howdah.order("SET query_wait_timeout = '0.5'");
    let (time, error) = timed(|| {
        waiting.send(&query("SELECT 1"));
        waiting.fatal()
    });
    on_time(0.5, &time);
    assert_eq!(error.text(), "query_wait_timeout");
}

#[test]
fn e11_timeouts_of_a_user_come_first() {
    let user = |settings: &'static str| {
        World::with(1, move |setup| setup.set("query_timeout", 30).user("app", settings))
    };
    howdah_only!("timeouts of users are of 1.24");
    let world = user("query_timeout=1");
    let mut client = world.client();
    let (time, error) = timed(|| {
        client.send(&query("SELECT pg_sleep(20)"));
        client.fatal()
    });
    on_time(1.0, &time);
    assert_eq!(error.text(), "query timeout");
}

#[test]
fn e12_a_server_stalls_at_every_message_of_its_login() {
    let parts = [
        fake::authenticated(),
        fake::parameters(),
        fake::key(&[0, 0, 0, 9, 1, 2, 3, 4]),
        say::message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]),
        say::message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"),
    ];
    let stages: [&[usize]; 6] = [&[], &[0], &[0, 1], &[0, 1, 2], &[3], &[4]];
    let postgres = harness::Postgres::shared();
    let db = postgres.database();
    let mut setup = Setup::new().set("server_connect_timeout", 1).set("query_wait_timeout", 2);
    setup = setup.set("server_login_retry", "0.3").database("shop", &postgres.target(&db));
    let mut servers = Vec::new();
    for (n, stage) in stages.iter().enumerate() {
        let said: Vec<u8> = stage.iter().flat_map(|&part| parts[part].clone()).collect();
        // Not even a whole message, for half of them.
        let cut = if n % 2 == 0 { said.len() } else { said.len() - 3 };
        servers.push(FakeServer::start(move |mut guest| {
            let _opening = guest.opening();
            guest.send(&said[..cut]);
            guest.stall();
        }));
        setup = setup.database(&format!("fake{n}"), &servers[n].target());
    }
    let howdah = setup.start();
    let logins: Vec<_> =
        (0..stages.len()).map(|n| howdah.login("app", PASSWORD, &format!("fake{n}"))).collect();
    std::thread::scope(|scope| {
        for login in &logins {
            scope.spawn(move || {
                let (time, refused) = timed(|| login.attempt());
                assert!(refused.is_err());
                assert!(time.within(8.0), "{time:?}");
            });
        }
        let mut client = howdah.login("app", PASSWORD, "shop").enter();
        for _ in 0..20 {
            let (time, _) = timed(|| client.run("SELECT pg_sleep(0.05)"));
            assert!(time.within(1.0), "the others are held up: {time:?}");
        }
    });
}
