//! From the first server to the last reload: bug classes E1 to E20, but for the timers, failover and what needs a name server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{
    FakeServer, Guest, Heard, Login, Postgres, Raise, Setup, World, eventually, fake, seconds,
    timed,
};

/// The first three logins to a server go wrong, and then it works: the one slot of the pool must still be there.
fn recovers(go_wrong: fn(&mut Guest)) {
    let server = FakeServer::start(move |mut guest| {
        if guest.number < 3 {
            return go_wrong(&mut guest);
        }
        if guest.admit().is_some() {
            guest.serve();
        }
    });
    let setup = Setup::new()
        .set("default_pool_size", 1)
        .set("server_login_retry", "0.2")
        .set("query_wait_timeout", 3);
    let mut howdah =
        setup.set("server_connect_timeout", 1).database("fake", &server.target()).start();
    let login = howdah.login("app", PASSWORD, "fake");
    eventually("a client is served", || {
        let Ok(mut client) = login.attempt() else { return false };
        client.send(&query("SELECT 1"));
        client.until_quiet(seconds(1.0)).count(b'Z') == 1
    });
    let open: u32 = ["sv_active", "sv_idle", "sv_used", "sv_tested", "sv_login"]
        .map(|state| {
            howdah
                .cell("SHOW POOLS", &[("database", "fake")], state)
                .parse::<u32>()
                .expect("a count")
        })
        .iter()
        .sum();
    assert!(open <= 1, "{open} servers in a pool of one");
    howdah.must_live();
}

#[test]
fn e01_a_server_closes_at_once() {
    recovers(|_| ());
}

#[test]
fn e01_a_server_closes_after_the_startup() {
    recovers(|guest| drop(guest.opening()));
}

#[test]
fn e01_a_server_refuses() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&fake::error("FATAL", "53300", "sorry, too many clients already"));
    });
}

#[test]
fn e01_a_server_refuses_without_an_sqlstate() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'E', &fake::fields(&[(b'S', "FATAL"), (b'M', "no code")])));
    });
}

#[test]
fn e01_a_server_refuses_without_any_field() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'E', if guest.number == 0 { b"" } else { b"\0" }));
    });
}

#[test]
fn e01_a_server_refuses_without_ending_its_text() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'E', b"SFATAL\0C53300\0Mno end"));
    });
}

#[test]
fn e01_a_server_asks_for_what_we_cannot() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'R', &[0, 0, 0, 7]));
        let _never = guest.read();
    });
}

#[test]
fn e01_a_server_offers_an_unknown_sasl_mechanism() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'R', b"\0\0\0\x0aOAUTHBEARER\0\0"));
        let _never = guest.read();
    });
}

#[test]
fn e01_a_server_sends_a_huge_nonce() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"));
        let Some(first) = guest.read_until(b'p') else { return };
        let ours = String::from_utf8_lossy(&first).into_owned();
        let nonce = ours.split("r=").nth(1).unwrap_or_default().to_owned();
        let reply = format!("r={nonce}{},s=c2FsdA==,i=4096", "n".repeat(1_000_000));
        guest.send(&say::message(b'R', &[b"\0\0\0\x0b", reply.as_bytes()].concat()));
        let _either = guest.read();
    });
}

#[test]
fn e01_a_server_does_not_know_the_secret_itself() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&say::message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"));
        let Some(first) = guest.read_until(b'p') else { return };
        let ours = String::from_utf8_lossy(&first).into_owned();
        let nonce = ours.split("r=").nth(1).unwrap_or_default().to_owned();
        let reply = format!("r={nonce}abc,s=c2FsdA==,i=4096");
        guest.send(&say::message(b'R', &[b"\0\0\0\x0b", reply.as_bytes()].concat()));
        let _proof = guest.read();
        let wrong = b"\0\0\0\x0cv=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        guest.send(&[say::message(b'R', wrong), fake::welcome()].concat());
        let _either = guest.read();
    });
}

#[test]
fn e01_a_server_closes_after_authentication() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(&[fake::authenticated(), fake::parameters()].concat());
    });
}

#[test]
fn e01_a_server_fails_after_authentication() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(
            &[fake::authenticated(), fake::error("FATAL", "3D000", "no such database")].concat(),
        );
    });
}

#[test]
fn e01_a_server_talks_nonsense() {
    recovers(|guest| {
        let _opening = guest.opening();
        guest.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _either = guest.read();
    });
}

#[test]
fn e01_a_server_lies_about_a_length() {
    recovers(|guest| {
        let _opening = guest.opening();
        let lengths: [i32; 3] = [-1, 2, i32::MAX];
        guest.send(
            &[b"R".as_slice(), &lengths[guest.number % 3].to_be_bytes(), &[0, 0, 0, 0]].concat(),
        );
        let _either = guest.read();
    });
}

#[test]
fn e01_a_server_dies_at_its_first_query() {
    recovers(|guest| {
        if guest.admit().is_some() {
            let _query = guest.read();
        }
    });
}

#[test]
fn e01_nobody_listens() {
    let world = World::with(1, |setup| {
        setup
            .database("gone", &format!("host=127.0.0.1 port={} dbname=x", harness::place::port()))
            .set("query_wait_timeout", 1)
    });
    let (time, refused) = timed(|| world.howdah.login("app", PASSWORD, "gone").attempt());
    assert!(refused.is_err() && time.within(5.0));
    assert_eq!(world.client().value("SELECT 'others are served'"), "others are served");
}

#[test]
fn e01_a_failing_connect_query_closes_its_server() {
    howdah_only!("the yardstick passes over errors of the connect query");
    let world = World::with(1, |setup| {
        setup
            .database_also("shop", "connect_query='SELECT * FROM not_yet'")
            .set("server_login_retry", "0.2")
            .set("query_wait_timeout", 1)
    });
    assert!(world.login().attempt().is_err());
    world.direct().run("CREATE TABLE not_yet (n int); GRANT ALL ON not_yet TO app");
    eventually("a client is served", || {
        world.login().attempt().is_ok_and(|mut client| client.query("SELECT 1").count(b'D') == 1)
    });
    assert!(world.servers() <= 1);
}

#[test]
fn e02_a_client_that_went_silent_in_a_result_gives_its_server_back() {
    let world = World::with(1, |setup| setup.set("query_timeout", 1));
    let mut zombie = world.client();
    zombie.send(&query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"));
    zombie.swallow(1000, seconds(5.0));
    // The timeout counts for those who wait, too: who comes early may be turned away.
    let served = || {
        let mut other = world.client();
        other.send(&query("SELECT 'served'"));
        matches!(other.message().tag, b'T')
    };
    let (time, ()) = timed(|| eventually("the next is served", served));
    assert!(time.within(3.0), "{time:?}");
}

#[test]
fn e03_dead_servers_are_not_given_out() {
    let world = World::pool(5);
    let mut clients: Vec<_> = (0..5).map(|_| world.client()).collect();
    for _ in 0..5 {
        for client in &mut clients {
            client.run("BEGIN");
        }
        for client in &mut clients {
            client.run("COMMIT");
        }
        let others = "datname = current_database() AND pid <> pg_backend_pid()";
        world
            .direct()
            .run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"));
        eventually("they are gone", || world.servers() == 0);
        for client in &mut clients {
            assert_eq!(client.query("SELECT 1").tags(), "TDCZ");
        }
    }
}

#[test]
fn e03_a_restart_of_the_server_is_survived_by_idle_clients() {
    let postgres = Postgres::start("");
    let db = postgres.database();
    let setup =
        Setup::new().set("server_login_retry", "0.2").database("shop", &postgres.target(&db));
    let howdah = setup.start();
    let mut client = howdah.login("app", PASSWORD, "shop").enter();
    client.run("SELECT 1");
    for how in [harness::postgres::Stop::Fast, harness::postgres::Stop::Immediate] {
        postgres.stop(how);
        postgres.restart();
        assert_eq!(client.query("SELECT 1").tags(), "TDCZ");
    }
    postgres.stop(harness::postgres::Stop::Fast);
    client.send(&query("SELECT 'patience'"));
    assert!(
        matches!(client.hear(seconds(0.7)), Heard::Quiet),
        "a failed connect leaves the client waiting"
    );
    postgres.restart();
    assert_eq!(client.until_ready().column(), ["patience"]);
}

/// Clients that come, ask and leave, over and over, while `meanwhile` runs; not one may be turned away.
fn connect_storm(logins: &[Login], meanwhile: impl FnOnce()) -> usize {
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for login in logins {
            let (over, served) = (&over, &served);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut client = login.enter();
                    for _ in 0..3 {
                        assert_eq!(client.query("SELECT 1").tags(), "TDCZ");
                    }
                    client.leave();
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _ending = Raise(&over);
        meanwhile();
    });
    served.into_inner()
}

#[test]
fn e05_pause_and_reconnect_in_a_storm_turn_nobody_away() {
    let world = World::pool(3);
    let served = connect_storm(&vec![world.login(); 5], || {
        let mut admin = world.howdah.admin();
        let end = Instant::now() + seconds(2.5);
        while Instant::now() < end {
            for command in
                ["RECONNECT", "PAUSE", "RESUME", "RECONNECT shop", "PAUSE shop", "RESUME shop"]
            {
                admin.run(command);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    assert!(served > 3, "{served}");
}

#[test]
fn e06_one_refusal_is_not_forever() {
    let server = FakeServer::start(|mut guest| {
        if guest.number == 0 {
            let _opening = guest.opening();
            guest.send(&fake::error("FATAL", "53300", "sorry, too many clients already"));
        } else if guest.admit().is_some() {
            guest.serve();
        }
    });
    let setup = Setup::new().set("server_login_retry", "0.3").database("fake", &server.target());
    let howdah = setup.start();
    let login = howdah.login("app", PASSWORD, "fake");
    let error = login.attempt().err().expect("refused").error();
    assert_eq!(error.text(), "sorry, too many clients already");
    let (time, ()) = timed(|| eventually("it is tried again", || login.attempt().is_ok()));
    assert!(time.within(1.5), "{time:?}");
}

#[test]
fn e06_a_refusal_does_not_hurt_a_pool_that_has_servers() {
    let server = FakeServer::start(|mut guest| {
        if guest.number == 0 {
            if guest.admit().is_some() {
                while let Some(body) = guest.read_until(b'Q') {
                    if body.starts_with(b"slow") {
                        std::thread::sleep(Duration::from_millis(500));
                    }
                    guest.send(&fake::answer("served"));
                }
            }
        } else {
            let _opening = guest.opening();
            guest.send(&fake::error("FATAL", "53300", "sorry, too many clients already"));
        }
    });
    let howdah = Setup::new()
        .own("track_session_state", 0)
        .set("server_login_retry", "0.3")
        .database("fake", &server.target())
        .start();
    let login = howdah.login("app", PASSWORD, "fake");
    let (mut slow, mut waiting) = (login.enter(), login.enter());
    slow.send(&query("slow"));
    waiting.send(&query("SELECT 1"));
    assert_eq!(slow.until_ready().column(), ["served"]);
    assert_eq!(waiting.until_ready().column(), ["served"]);
}

#[test]
fn e06_a_server_that_is_starting_up_is_waited_for() {
    howdah_only!("not yet in 1.18");
    let server = FakeServer::start(|mut guest| {
        if guest.number < 3 {
            let _opening = guest.opening();
            guest.send(&fake::error("FATAL", "57P03", "the database system is starting up"));
        } else if guest.admit().is_some() {
            guest.serve();
        }
    });
    let howdah =
        Setup::new().set("server_login_retry", "0.2").database("fake", &server.target()).start();
    let mut client = howdah.login("app", PASSWORD, "fake").enter();
    assert_eq!(client.run("SELECT 1").column(), ["SELECT 1"]);
}

#[test]
fn e07_reloads_under_load_touch_nothing_that_did_not_change() {
    let mut world = World::pool(2);
    let (login, spare) = (world.login(), world.postgres.target(&world.db));
    let mut client = world.client();
    let pid = client.value("SELECT pg_backend_pid()");
    drop(client);
    let served = connect_storm(&vec![login; 3], || {
        for round in 0..60 {
            world.howdah.reload(|setup| {
                let setup = setup.set("query_wait_timeout", 100 + round).set("verbose", 0);
                if round % 2 == 0 {
                    setup.database("other", &spare).secret("newcomer", "x")
                } else {
                    setup.without_database("other")
                }
            });
        }
    });
    assert!(served > 5, "{served}");
    assert!(
        world.direct().run("SELECT pid FROM pg_stat_activity").column().contains(&pid),
        "the server is still there"
    );
    assert!(!world.howdah.log().contains("database configuration changed"));
}

#[test]
fn e07_a_reload_of_a_bad_file_changes_nothing() {
    howdah_only!("the yardstick says RELOAD all the same");
    let mut world = World::pool(2);
    let mut client = world.client();
    let pid = client.value("SELECT pg_backend_pid()");
    let config = |name: &str| world.howdah.cell("SHOW CONFIG", &[("key", name)], "value");
    assert_eq!(config("default_pool_size"), "2");
    let mistakes = [
        "default_pool_size = many\n",
        "no_such_setting = 1\n",
        "[nonsense]\n",
        "not a line\n",
        "pool_mode = carousel\n",
    ];
    for mistake in mistakes {
        world.howdah.rewrite(|setup| {
            setup.set("query_wait_timeout", 77).without_database("shop").tail(mistake)
        });
        let reply = world.howdah.console("RELOAD");
        let error = reply.error().unwrap_or_else(|| panic!("{mistake:?} was accepted"));
        assert_eq!(
            (error.code(), error.text()),
            ("F0000", "RELOAD failed, see logs for additional details")
        );
        assert_eq!(
            world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value"),
            "120"
        );
        assert_eq!(client.value("SELECT pg_backend_pid()"), pid);
        world.howdah.rewrite(|_| {
            Setup::new()
                .set("default_pool_size", 2)
                .database("shop", &world.postgres.target(&world.db))
        });
    }
    world.howdah.order("RELOAD");
    assert_eq!(world.client().value("SELECT 1"), "1");
}

#[test]
fn e07_a_removed_database_closes_its_clients() {
    let mut world = World::pool(2);
    let spare = world.postgres.target(&world.db);
    world.howdah.reload(|setup| setup.database("spare", &spare));
    let mut idle = world.howdah.login("app", PASSWORD, "spare").enter();
    let mut other = world.client();
    world.howdah.reload(|setup| setup.without_database("spare"));
    assert_eq!(idle.fatal().text(), "database removed");
    assert_eq!(other.value("SELECT 1"), "1");
    let error =
        world.howdah.login("app", PASSWORD, "spare").attempt().err().expect("refused").error();
    assert!(error.text().starts_with("no such database: spare"), "{error:?}");
}

#[test]
fn e07_a_changed_target_takes_new_servers_and_lets_the_old_finish() {
    let mut world = World::pool(2);
    let other = world.postgres.database();
    let (mut busy, mut idle) = (world.client(), world.client());
    idle.run("SELECT 1");
    assert_eq!(busy.value("BEGIN; SELECT current_database()"), world.db);
    let target = world.postgres.target(&other);
    world.howdah.reload(|setup| setup.database("shop", &target));
    assert_eq!(idle.value("SELECT current_database()"), other);
    assert_eq!(
        busy.value("SELECT current_database()"),
        world.db,
        "a transaction ends where it began"
    );
    busy.run("COMMIT");
    assert_eq!(busy.value("SELECT current_database()"), other);
    eventually("the old servers are closed", || world.servers() == 0);
}

#[test]
fn e07_the_wildcard_outlives_a_reload() {
    let postgres = Postgres::shared();
    let (one, two) = (postgres.database(), postgres.database());
    let target = format!("host=127.0.0.1 port={}", postgres.port());
    let mut howdah = Setup::new().database("*", &target).start();
    let mut before = howdah.login("app", PASSWORD, &one).enter();
    before.run("SELECT 1");
    for _ in 0..3 {
        howdah.reload(|setup| setup.set("verbose", 0));
        assert_eq!(before.value("SELECT current_database()"), one);
        assert_eq!(
            howdah.login("app", PASSWORD, &two).enter().value("SELECT current_database()"),
            two
        );
    }
}

#[test]
fn e07_a_forced_user_taken_away_by_a_reload() {
    howdah_only!("the yardstick keeps it");
    let mut world = World::with(1, |setup| {
        setup.database_also("shop", &format!("user=app2 password={PASSWORD}"))
    });
    assert_eq!(world.client().value("SELECT current_user"), "app2");
    let target = world.postgres.target(&world.db);
    world.howdah.reload(|setup| setup.database("shop", &target));
    assert_eq!(world.client().value("SELECT current_user"), "app");
}

#[test]
fn e07_a_line_taken_out_goes_back_to_its_default() {
    let mut world = World::with(1, |setup| setup.set("query_wait_timeout", 7));
    assert_eq!(world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value"), "7");
    world.howdah.reload(|setup| setup.unset("query_wait_timeout"));
    assert_eq!(world.howdah.cell("SHOW CONFIG", &[("key", "query_wait_timeout")], "value"), "120");
}

#[test]
fn e08_a_line_is_served_in_its_order() {
    let world = World::with(1, |setup| {
        if harness::subject() == harness::Subject::Howdah { setup.set("workers", 1) } else { setup }
    });
    let mut holder = world.client();
    holder.run("CREATE TABLE t (place serial, who int)");
    for _ in 0..3 {
        holder.run("TRUNCATE t RESTART IDENTITY");
        holder.run("BEGIN");
        let mut line: Vec<_> = (0..20).map(|_| world.client()).collect();
        for (who, client) in line.iter_mut().enumerate() {
            client.send(&query(&format!("INSERT INTO t (who) VALUES ({who})")));
            eventually("it stands in line", || world.pools("cl_waiting") == (who + 1).to_string());
        }
        holder.run("COMMIT");
        for client in &mut line {
            assert_eq!(client.until_ready().tags(), "CZ");
        }
        let order: Vec<_> = (0..20).map(|who| who.to_string()).collect();
        assert_eq!(holder.run("SELECT who FROM t ORDER BY place").column(), order);
    }
}

#[test]
fn e08_a_client_that_left_the_line_is_not_served() {
    howdah_only!("the yardstick does not look at who waits");
    let world = World::pool(1);
    let mut holder = world.client();
    holder.run("CREATE TABLE t (n int)");
    holder.run("BEGIN");
    let mut gone = world.client();
    gone.send(&query("INSERT INTO t VALUES (1)"));
    eventually("it stands in line", || world.pools("cl_waiting") == "1");
    let mut patient = world.client();
    patient.send(&query("INSERT INTO t VALUES (2)"));
    gone.reset();
    eventually("it has left", || world.pools("cl_waiting") == "1");
    holder.run("COMMIT");
    assert_eq!(patient.until_ready().tags(), "CZ");
    assert_eq!(holder.run("SELECT n FROM t").column(), ["2"]);
}

#[test]
fn e13_an_unknown_host_keeps_nobody_else_waiting() {
    let world = World::with(1, |setup| {
        setup.database("nowhere", "host=no-such-host.invalid dbname=x").set("query_wait_timeout", 2)
    });
    let login = world.howdah.login("app", PASSWORD, "nowhere");
    let seeker = std::thread::spawn(move || timed(|| login.attempt().is_err()));
    for _ in 0..10 {
        let (time, reply) = timed(|| world.client().run("SELECT 1"));
        assert_eq!(reply.tags(), "TDCZ");
        assert!(time.within(1.0), "{time:?}");
    }
    let (time, refused) = seeker.join().expect("no panic");
    assert!(refused && time.within(20.0), "{time:?}");
}

#[test]
fn e13_a_host_name_is_looked_up() {
    let world = World::with(1, |setup| setup);
    let target = format!("host=localhost port={} dbname={}", world.postgres.port(), world.db);
    let howdah = Setup::new().database("shop", &target).start();
    assert_eq!(howdah.login("app", PASSWORD, "shop").enter().value("SELECT 1"), "1");
}

#[test]
fn e13_a_list_of_hosts_is_used_in_turn() {
    howdah_only!("load_balance_hosts is of 1.24");
    let postgres = Postgres::shared();
    let db = postgres.database();
    let target = format!("host=127.0.0.1,::1 port={} dbname={db}", postgres.port());
    let howdah = Setup::new().database("shop", &target).start();
    let mut clients: Vec<_> =
        (0..4).map(|_| howdah.login("app", PASSWORD, "shop").enter()).collect();
    let mut hosts: Vec<_> = clients
        .iter_mut()
        .map(|client| client.value("BEGIN; SELECT host(inet_server_addr())"))
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["127.0.0.1", "127.0.0.1", "::1", "::1"]);
}

#[test]
fn e18_an_automatic_database_is_made_and_named_in_the_log() {
    let postgres = Postgres::shared();
    let db = postgres.database();
    let howdah =
        Setup::new().database("*", &format!("host=127.0.0.1 port={}", postgres.port())).start();
    assert_eq!(howdah.login("app", PASSWORD, &db).enter().value("SELECT current_database()"), db);
    assert!(howdah.log().contains("registered new auto-database: "));
}

#[test]
fn e19_lifetimes_do_not_end_together() {
    let world = World::with(4, |setup| setup.set("server_lifetime", 2));
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for client in &mut clients {
        client.run("BEGIN");
    }
    for client in &mut clients {
        client.run("COMMIT");
    }
    let mut seen = std::collections::BTreeSet::from([world.servers()]);
    eventually("all are gone", || {
        seen.insert(world.servers());
        seen.contains(&0)
    });
    assert!(seen.len() >= 4, "several were closed at once: {seen:?}");
}

#[test]
fn e20_a_changed_password_throws_nobody_out() {
    howdah_only!("the yardstick ends: found existing elem");
    let mut world = World::pool(2);
    let mut client = world.client();
    let pid = client.value("SELECT pg_backend_pid()");
    // The client's password changes, while the server's stays: it is in the database's line.
    let target = world.postgres.target(&world.db);
    world.howdah.reload(|setup| {
        setup
            .secret("app", "open")
            .database("shop", &format!("{target} user=app password={PASSWORD}"))
    });
    assert!(world.login().attempt().is_err());
    assert_eq!(world.login().password("open").enter().value("SELECT 1"), "1");
    world.howdah.reload(|setup| setup.secret("app", "other"));
    let pooled = client.value("SELECT pg_backend_pid()");
    assert_eq!(client.value("SELECT pg_backend_pid()"), pooled);
    assert_ne!(pid, "");
    assert!(world.login().password("open").attempt().is_err());
    assert_eq!(world.login().password("other").enter().value("SELECT 1"), "1");
}

#[test]
fn e20_a_database_dropped_and_made_anew() {
    let world = World::pool(1);
    let mut client = world.client();
    client.run("CREATE TABLE old (n int)");
    let mut boss = world.postgres.superuser("postgres");
    boss.run(&format!("DROP DATABASE {} WITH (FORCE)", world.db));
    boss.run(&format!("CREATE DATABASE {} OWNER app", world.db));
    eventually("it works again without a restart", || {
        let Ok(mut client) = world.login().attempt() else { return false };
        client.query("SELECT * FROM old").code() == "42P01"
    });
}
