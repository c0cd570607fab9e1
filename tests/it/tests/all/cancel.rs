//! A cancel request reaches the right query, or nothing: bug classes D1 to D8.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{Address, FakeServer, Heard, Raw, Setup, World, eventually, fake, seconds, timed};

/// Sends a query that sleeps, and returns when the server is at it.
fn sleep(world: &World, client: &mut Raw, length: f64, mark: &str) {
    client.send(&query(&format!("SELECT pg_sleep({length}) /* {mark} */")));
    eventually("the server sleeps", || !sleepers(world, mark).is_empty());
}

/// The servers that sleep with this mark.
fn sleepers(world: &World, mark: &str) -> Vec<String> {
    let sql = format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'PgSleep' AND query LIKE '%/* {mark} */'",
        world.db
    );
    world.postgres.superuser("postgres").run(&sql).column()
}

#[test]
fn d01_the_right_query_is_cancelled() {
    let world = World::pool(2);
    let (mut one, mut other) = (world.client(), world.client());
    sleep(&world, &mut one, 30.0, "one");
    sleep(&world, &mut other, 1.0, "other");
    let (time, reply) = timed(|| {
        one.cancel();
        one.until_ready()
    });
    assert_eq!(reply.code(), "57014");
    assert!(time.within(1.0), "{time:?}");
    assert_eq!(other.until_ready().tags(), "TDCZ");
    assert_eq!(one.value("SELECT 'lives'"), "lives");
}

#[test]
fn d01_a_late_cancel_never_hits_the_next_client() {
    let world = World::pool(1);
    let (mut hunted, mut bystander) = (world.client(), world.client());
    let over = Arc::new(AtomicBool::new(false));
    let hunters: Vec<_> = (0..2)
        .map(|_| {
            let (over, mut messengers) = (over.clone(), Vec::new());
            let (key, address) = (hunted.key.clone().expect("a key"), world.howdah.address());
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut messenger) = Raw::open(&address) {
                        messenger.send(&say::cancel(&key));
                        messengers.push(messenger);
                    }
                    // A few stay under way, so that they arrive when the query they meant is over.
                    if messengers.len() > 3 {
                        messengers.remove(0).until_closed();
                    }
                }
            })
        })
        .collect();
    let end = Instant::now() + seconds(4.0);
    let (mut rounds, mut hits) = (0, 0);
    while Instant::now() < end {
        hunted.send(&query("SELECT pg_sleep(0.001)"));
        bystander.send(&query("SELECT pg_sleep(0.002)"));
        hits += u32::from(hunted.until_ready().code() == "57014");
        let reply = bystander.until_ready();
        assert_eq!(reply.tags(), "TDCZ", "in round {rounds}: {reply:?}");
        rounds += 1;
    }
    over.store(true, Ordering::Relaxed);
    for hunter in hunters {
        hunter.join().expect("cancel requests are always answered by a close");
    }
    println!("{rounds} rounds, {hits} hits");
    assert!(rounds > 20, "only {rounds} rounds: cancelling stands in the way");
}

#[test]
fn d02_a_waiting_client_is_taken_out_of_the_line() {
    howdah_only!("the yardstick does otherwise");
    let world = World::pool(1);
    let (mut holder, mut waiting) = (world.client(), world.client());
    holder.run("BEGIN");
    waiting.send(&query("SELECT 'not run'"));
    eventually("it waits", || world.pools("cl_waiting") == "1");
    waiting.cancel();
    let reply = waiting.until_ready();
    assert_eq!((reply.tags().as_str(), reply.code().as_str()), ("EZ", "57014"));
    assert_eq!(holder.run("SELECT 1").status(), Some('T'));
    holder.run("COMMIT");
    assert_eq!(waiting.value("SELECT 'lives'"), "lives");
    assert!(!world.statements().iter().any(|sql| sql.contains("not run")));
}

#[test]
fn d02_a_cancel_of_an_idle_client_does_nothing() {
    let world = World::pool(1);
    let (mut idle, mut other) = (world.client(), world.client());
    idle.run("SELECT 1");
    sleep(&world, &mut other, 0.5, "other");
    for _ in 0..5 {
        idle.cancel();
    }
    assert_eq!(other.until_ready().tags(), "TDCZ");
    assert_eq!(idle.run("SELECT 1").tags(), "TDCZ");
    idle.run("BEGIN");
    idle.cancel();
    assert_eq!(
        idle.run("SELECT pg_sleep(0.2)").tags(),
        "TDCZ",
        "a cancel between two queries of a transaction is late"
    );
}

#[test]
fn d02_a_wrong_key_does_nothing() {
    let world = World::pool(1);
    let mut client = world.client();
    let key = client.key.clone().expect("a key");
    sleep(&world, &mut client, 0.7, "it");
    for at in 0..key.len() {
        for bit in [1, 0x80] {
            let mut wrong = key.clone();
            wrong[at] ^= bit;
            let mut messenger = Raw::open(&world.howdah.address()).expect("it listens");
            messenger.send(&say::cancel(&wrong));
            messenger.until_closed();
        }
    }
    for odd in [&key[..4], &key[..7], &[key.as_slice(), &[0]].concat(), &[]] {
        let mut messenger = Raw::open(&world.howdah.address()).expect("it listens");
        messenger.send(&say::cancel(odd));
        messenger.until_closed();
    }
    assert_eq!(client.until_ready().tags(), "TDCZ");
}

#[test]
fn d02_keys_do_not_repeat_and_do_not_count() {
    let world = World::pool(1);
    let keys: Vec<_> = (0..50).map(|_| world.client().key.clone().expect("a key")).collect();
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    // Secret halves that all share a byte, or go up one by one, are not from the system's random source.
    for at in 4..8 {
        let values: std::collections::BTreeSet<_> = keys.iter().map(|key| key[at]).collect();
        assert!(values.len() > 10, "byte {at} of a key takes {} values in 50", values.len());
    }
}

#[test]
fn d03_a_storm_of_cancels_leaves_the_others_served() {
    let mut world = World::with(2, |setup| setup.set("max_client_conn", 5000));
    let address = world.howdah.address();
    let mut client = world.client();
    let over = Arc::new(AtomicBool::new(false));
    let storms: Vec<_> = (0..4_u8)
        .map(|storm| {
            let (over, address) = (over.clone(), address.clone());
            std::thread::spawn(move || {
                let mut sent = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut messenger) = Raw::open(&address) {
                        messenger.send(&say::cancel(&[
                            storm,
                            0,
                            0,
                            0,
                            sent.to_be_bytes()[3],
                            1,
                            2,
                            3,
                        ]));
                        sent += 1;
                    }
                }
                sent
            })
        })
        .collect();
    let end = Instant::now() + seconds(2.0);
    let mut served = 0;
    while Instant::now() < end {
        assert_eq!(client.query("SELECT 1").tags(), "TDCZ");
        served += 1;
    }
    over.store(true, Ordering::Relaxed);
    let sent: u32 = storms.into_iter().map(|storm| storm.join().expect("no panic")).sum();
    println!("{sent} cancels, {served} queries");
    assert!(served > 20);
    world.howdah.must_live();
    eventually("no cancel request is left", || {
        world.pools("cl_waiting_cancel_req") == "0"
            || world.pools("cl_waiting_cancel_req").is_empty()
    });
    assert_eq!(world.client().value("SELECT 'calm'"), "calm");
}

#[test]
fn d04_client_and_server_die_in_every_phase_of_a_cancel() {
    howdah_only!("the yardstick ends: bad client state");
    let mut world = World::pool(2);
    for round in 0..30 {
        let mut client = world.client();
        let mark = format!("round {round}");
        sleep(&world, &mut client, 3.0, &mark);
        let messenger = client.cancel_begin();
        match round % 5 {
            0 => client.reset(),
            1 => messenger.reset(),
            2 => {
                for pid in sleepers(&world, &mark) {
                    world.direct().run(&format!("SELECT pg_terminate_backend({pid}, 5000)"));
                }
            }
            3 => client.leave(),
            _ => drop((client, messenger)),
        }
    }
    world.howdah.must_live();
    eventually("the pool is whole again", || {
        let (mut one, mut two) = (world.client(), world.client());
        one.run("BEGIN").tags() == "CZ" && two.run("BEGIN").tags() == "CZ"
    });
    eventually("and no larger than it was", || world.servers() <= 2);
}

#[test]
fn d05_what_the_pooler_asks_for_itself_is_not_cancelled() {
    let world = World::with(1, |setup| {
        setup.database_also("shop", "connect_query='SELECT pg_sleep(0.4) /* its own */'")
    });
    let mut client = world.client();
    world.howdah.order("RECONNECT");
    eventually("the first server is gone", || world.servers() == 0);
    client.send(&query("SELECT 1"));
    eventually("it connects", || world.servers() == 1);
    for _ in 0..5 {
        drop(client.cancel_begin());
    }
    // The client may have been taken out of the line; the pooler's own query runs to its end.
    client.until_ready();
    assert_eq!(world.client().value("SELECT 'next'"), "next");
    let cancelled =
        world.postgres.lines(&world.db).iter().any(|line| line.contains("canceling statement"));
    assert!(!cancelled);
}

#[test]
fn d06_a_server_is_not_reused_before_the_cancel_connection_has_ended() {
    let (told, hear) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let server = FakeServer::start(move |mut guest| {
        let told = told.lock().expect("no panic").clone();
        match guest.opening() {
            Some(fake::Opening::Login { .. }) => {
                guest.send(&fake::welcome());
                while let Some(body) = guest.read_until(b'Q') {
                    let sql = String::from_utf8_lossy(&body).into_owned();
                    let _ = told.send(sql.clone());
                    if sql.contains("slow") {
                        // The cancel, whose connection is number 1, ends this query at once.
                        std::thread::sleep(Duration::from_millis(300));
                        guest.send(
                            &[fake::error("ERROR", "57014", "canceled"), fake::ready()].concat(),
                        );
                    } else {
                        guest.send(&fake::answer("fast"));
                    }
                }
            }
            Some(fake::Opening::Cancel { .. }) => {
                let _ = told.send("cancel".into());
                std::thread::sleep(Duration::from_millis(900));
                let _ = told.send("cancel ends".into());
            }
            None => {}
        }
    });
    let howdah = Setup::new()
        .set("default_pool_size", 1)
        .own("track_session_state", 0)
        .database("fake", &server.target())
        .start();
    let login = howdah.login("app", PASSWORD, "fake");
    let (mut cancelled, mut next) = (login.enter(), login.enter());
    cancelled.send(&query("slow"));
    assert_eq!(hear.recv_timeout(seconds(5.0)).as_deref(), Ok("slow\0"));
    let messenger = cancelled.cancel_begin();
    assert_eq!(hear.recv_timeout(seconds(5.0)).as_deref(), Ok("cancel"));
    assert_eq!(cancelled.until_ready().code(), "57014");
    next.send(&query("next"));
    assert_eq!(
        hear.recv_timeout(seconds(5.0)).as_deref(),
        Ok("cancel ends"),
        "the server was reused too early"
    );
    assert_eq!(next.until_ready().column(), ["fast"]);
    drop(messenger);
}

#[test]
fn d07_a_cancel_that_the_server_never_takes_leaves_the_others_served() {
    howdah_only!("cancel_wait_timeout");
    let server = FakeServer::start(|mut guest| match guest.opening() {
        Some(fake::Opening::Login { .. }) => {
            guest.send(&fake::welcome());
            while let Some(body) = guest.read_until(b'Q') {
                if body.starts_with(b"slow") {
                    std::thread::sleep(Duration::from_millis(700));
                }
                guest.send(&fake::answer("done"));
            }
        }
        _ => guest.stall(),
    });
    let setup = Setup::new().set("default_pool_size", 2).set("cancel_wait_timeout", 1);
    let setup = setup.own("track_session_state", 0);
    let mut howdah = setup.database("fake", &server.target()).start();
    let login = howdah.login("app", PASSWORD, "fake");
    let (mut slow, mut other) = (login.enter(), login.enter());
    slow.send(&query("slow"));
    let _messengers: Vec<_> = (0..3).map(|_| slow.cancel_begin()).collect();
    assert_eq!(slow.until_ready().column(), ["done"]);
    for _ in 0..3 {
        assert_eq!(other.run("fast").column(), ["done"]);
        assert_eq!(slow.run("fast").column(), ["done"]);
    }
    howdah.must_live();
}

#[test]
fn d08_a_server_without_a_key() {
    let server = FakeServer::start(|mut guest| {
        if let Some(fake::Opening::Login { .. }) = guest.opening() {
            guest.send(&[fake::authenticated(), fake::parameters(), fake::ready()].concat());
            guest.serve();
        }
    });
    let mut howdah = Setup::new().database("fake", &server.target()).start();
    let mut client = howdah.login("app", PASSWORD, "fake").enter();
    assert_eq!(client.run("SELECT 1").column(), ["SELECT 1"]);
    if client.key.is_some() {
        client.cancel();
    }
    assert_eq!(client.run("SELECT 2").column(), ["SELECT 2"]);
    howdah.must_live();
}

/// A server that hands out the key, answers nothing until a cancel comes, and tells which key it came with.
fn key_keeper(key: Vec<u8>) -> (FakeServer, mpsc::Receiver<Vec<u8>>) {
    let (told, hear) = mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let canceled = OnceLock::new();
    let server = FakeServer::start(move |mut guest| match guest.opening() {
        Some(fake::Opening::Login { minor, .. }) => {
            // Longer keys belong to 3.2; a client of 3.0 gets the first eight bytes.
            let key = if minor >= 2 { &key } else { &key[..8] };
            guest.send(
                &[fake::authenticated(), fake::parameters(), fake::key(key), fake::ready()]
                    .concat(),
            );
            while guest.read_until(b'Q').is_some() {
                canceled.wait();
                guest.send(&[fake::error("ERROR", "57014", "canceled"), fake::ready()].concat());
            }
        }
        Some(fake::Opening::Cancel { key }) => {
            let _ = told.lock().expect("no panic").send(key);
            let _ = canceled.set(());
        }
        None => {}
    });
    (server, hear)
}

#[test]
fn d08_keys_of_3_2_on_the_servers_side() {
    let key: Vec<u8> = (0..=255).cycle().take(260).collect();
    let (server, hear) = key_keeper(key.clone());
    let howdah = Setup::new().database("fake", &server.target()).start();
    let mut client = howdah.login("app", PASSWORD, "fake").enter();
    client.send(&query("slow"));
    eventually("it runs", || {
        howdah.cell("SHOW POOLS", &[("database", "fake")], "sv_active") == "1"
    });
    client.cancel();
    let used = hear.recv_timeout(seconds(60.0)).expect("a cancel");
    assert!(used == key || used == key[..8], "{used:?}");
    assert_eq!(client.until_ready().code(), "57014");
}

#[test]
fn d08_keys_of_3_2_on_the_clients_side() {
    howdah_only!("3.2");
    let world = World::pool(1);
    let mut client = world.login().minor(2).enter();
    let key = client.key.clone().expect("a key");
    assert!(key.len() > 8 && key.len() <= 260, "a key of {} bytes", key.len());
    sleep(&world, &mut client, 20.0, "long key");
    let mut messenger = Raw::open(&world.howdah.address()).expect("it listens");
    messenger.send(&say::cancel(&key[..8]));
    messenger.until_closed();
    assert!(
        matches!(client.hear(Duration::from_millis(200)), Heard::Quiet),
        "the beginning of a key is not the key"
    );
    client.cancel();
    assert_eq!(client.until_ready().code(), "57014");
}

#[test]
fn a_cancel_may_come_by_another_road_than_its_client() {
    let world = World::pool(1);
    let mut client = world.client();
    sleep(&world, &mut client, 20.0, "it");
    let Address::Unix(..) = world.howdah.socket() else { unreachable!() };
    let mut messenger = Raw::open(&world.howdah.socket()).expect("it listens");
    messenger.send(&say::cancel(client.key.as_ref().expect("a key")));
    messenger.until_closed();
    assert_eq!(client.until_ready().code(), "57014");
}

#[test]
fn the_pool_is_full_and_a_cancel_gets_through() {
    let world = World::pool(2);
    let mut clients: Vec<_> = (0..2).map(|_| world.client()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        sleep(&world, client, 20.0, &format!("client {n}"));
    }
    for client in &mut clients {
        client.cancel();
        assert_eq!(client.until_ready().code(), "57014");
    }
}
