//! Two workers, one pool: what PgBouncer promises for a process holds over all workers.

use std::time::Instant;

use harness::postgres::PASSWORD;
use harness::say::query;
use harness::{Login, World, eventually, seconds, timed};

fn two_workers(size: u32) -> World {
    World::with(size, |setup| {
        if harness::subject() == harness::Subject::Howdah { setup.set("workers", 2) } else { setup }
    })
}

/// What each client got done, when all want as much as they can get.
fn shares(logins: &[Login], length: f64) -> Vec<u32> {
    let clients: Vec<_> = logins.iter().map(Login::enter).collect();
    let end = Instant::now() + seconds(length);
    std::thread::scope(|scope| {
        let work = |mut client: harness::Raw| {
            move || {
                let mut done = 0;
                while Instant::now() < end {
                    let (time, reply) = timed(|| client.query("SELECT pg_sleep(0.003)"));
                    assert_eq!(reply.tags(), "TDCZ");
                    assert!(time.within(1.0), "somebody waited {time:?}");
                    done += 1;
                }
                done
            }
        };
        let threads: Vec<_> = clients.into_iter().map(|client| scope.spawn(work(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no error")).collect()
    })
}

#[test]
fn all_clients_of_a_pool_get_about_as_much() {
    let world = two_workers(4);
    let shares = shares(&vec![world.login(); 16], 3.0);
    let (least, most) = (shares.iter().min().expect("16"), shares.iter().max().expect("16"));
    assert!(f64::from(*least) > 0.6 * f64::from(*most), "{shares:?}");
    assert!(world.servers() <= 4);
}

#[test]
fn fewer_servers_than_workers() {
    let world = two_workers(1);
    let shares = shares(&vec![world.login(); 6], 2.0);
    let (least, most) = (shares.iter().min().expect("6"), shares.iter().max().expect("6"));
    assert!(f64::from(*least) > 0.5 * f64::from(*most), "{shares:?}");
    assert_eq!(world.servers(), 1);
}

#[test]
fn nobody_waits_while_a_server_lies_idle_on_any_worker() {
    let world = two_workers(1);
    let mut clients: Vec<_> = (0..6).map(|_| world.client()).collect();
    for round in 0..200 {
        let who = (round * 7 + round / 3) % clients.len();
        let (time, reply) = timed(|| clients[who].query("SELECT 1"));
        assert_eq!(reply.tags(), "TDCZ");
        assert!(time.within(0.5), "in round {round}: {time:?}");
    }
    assert_eq!(world.servers(), 1);
}

#[test]
fn a_server_freed_on_one_worker_reaches_the_line_of_the_other() {
    let world = two_workers(1);
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for round in 0..40 {
        let holder = round % 4;
        clients[holder].run("BEGIN");
        let others: Vec<_> = (0..4).filter(|who| *who != holder).collect();
        for &who in &others {
            clients[who].send(&query("SELECT 'served'"));
        }
        clients[holder].run("COMMIT");
        for who in others {
            let (time, reply) = timed(|| clients[who].until_ready());
            assert_eq!(reply.column(), ["served"]);
            assert!(time.within(0.5), "in round {round}: {time:?}");
        }
    }
}

#[test]
fn statements_and_settings_move_with_their_client_and_not_with_the_server() {
    howdah_only!("prepared statements");
    let world = two_workers(1);
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    let zones = ["UTC", "Asia/Tokyo", "Europe/Berlin", "America/Lima"];
    for (client, zone) in clients.iter_mut().zip(zones) {
        client.run(&format!("SET TimeZone = '{zone}'"));
        let sql = format!("SELECT '{zone}', current_setting('TimeZone')");
        client.ask(&[harness::say::parse("s", &sql), harness::say::sync()].concat());
    }
    for _ in 0..20 {
        for (client, zone) in clients.iter_mut().zip(zones) {
            use harness::say::{bind, execute, sync};
            let reply = client.ask(&[bind("", "s", &[]), execute("", 0), sync()].concat());
            assert_eq!(reply.rows(), [[Some(zone.to_owned()), Some(zone.to_owned())]]);
        }
    }
}

#[test]
fn one_console_sees_all_clients_and_servers() {
    let world = two_workers(3);
    let mut clients: Vec<_> = (0..9).map(|_| world.client()).collect();
    for client in &mut clients[..3] {
        client.run("BEGIN");
    }
    assert_eq!(world.howdah.rows("SHOW CLIENTS", &[("database", "shop")], "user").len(), 9);
    assert_eq!(world.howdah.rows("SHOW SERVERS", &[("database", "shop")], "user").len(), 3);
    assert_eq!(world.pools("sv_active"), "3");
    for client in &mut clients[3..] {
        client.send(&query("SELECT 1"));
    }
    eventually("six wait", || world.pools("cl_waiting") == "6");
    for client in &mut clients[..3] {
        client.run("COMMIT");
    }
    for client in &mut clients[3..] {
        client.until_ready();
    }
    let transactions =
        || world.howdah.cell("SHOW STATS", &[("database", "shop")], "total_xact_count");
    eventually("all are counted", || transactions() == "9");
}

#[test]
fn a_cancel_finds_its_client_on_every_worker() {
    let world = two_workers(4);
    let mut clients: Vec<_> = (0..4).map(|_| world.client()).collect();
    for client in &mut clients {
        client.send(&query("SELECT pg_sleep(20)"));
    }
    eventually("all sleep", || world.asleep() == 4);
    for client in &mut clients {
        client.cancel();
        assert_eq!(client.until_ready().code(), "57014");
    }
}

#[test]
fn several_pools_at_once_stay_within_their_sizes() {
    let world = two_workers(2);
    let users = ["app", "app2", "app3"].map(|user| world.howdah.login(user, PASSWORD, "shop"));
    let logins: Vec<_> = users.iter().cycle().take(12).cloned().collect();
    let shares = shares(&logins, 2.0);
    assert!(shares.iter().all(|&share| share > 0));
    for user in ["app", "app2", "app3"] {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND usename = '{user}'",
            world.db
        );
        assert_eq!(world.postgres.superuser("postgres").value(&sql), "2");
    }
}
