//! How many: pool sizes, database and user limits, the reserve, and who has to make room for whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::postgres::PASSWORD;
use harness::say::query;
use harness::{Heard, Login, Postgres, Raise, Setup, World, eventually, seconds, timed};

/// The most servers a database had for longer than a moment while `work` was done. A backend that was told to go is still
/// listed for a blink, so one sample alone proves nothing: three in a row do.
fn most_servers(world: &World, work: impl FnOnce() + Send) -> usize {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let sql = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND application_name <> 'harness'",
                world.db
            );
            let mut witness = world.postgres.superuser("postgres");
            let (mut most, mut last) = (0, [0_usize; 3]);
            while !over.load(Ordering::Relaxed) {
                last.rotate_left(1);
                last[2] = witness.value(&sql).parse().expect("a count");
                most = most.max(last.into_iter().min().unwrap_or_default());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let ending = Raise(&over);
        work();
        drop(ending);
        sampler.join().expect("it samples")
    })
}

/// Clients that work without a pause for a while; how many transactions each got.
fn hammer(logins: &[Login], length: f64) -> Vec<usize> {
    let clients: Vec<_> = logins.iter().map(Login::enter).collect();
    let end = Instant::now() + seconds(length);
    std::thread::scope(|scope| {
        let work = |mut client: harness::Raw| {
            move || {
                let mut done = 0;
                while Instant::now() < end {
                    assert_eq!(client.query("SELECT pg_sleep(0.002)").tags(), "TDCZ");
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
fn e04_a_pool_has_its_size() {
    let world = World::pool(3);
    let most = most_servers(&world, || drop(hammer(&vec![world.login(); 12], 1.5)));
    assert_eq!(most, 3);
}

#[test]
fn e04_a_database_has_its_limit_over_all_users() {
    let world = World::with(3, |setup| setup.set("max_db_connections", 4));
    let users = ["app", "app2", "app3"].map(|user| world.howdah.login(user, PASSWORD, "shop"));
    let logins: Vec<_> = users.iter().cycle().take(12).cloned().collect();
    let mut done = Vec::new();
    let most = most_servers(&world, || done = hammer(&logins, 2.5));
    assert!((3..=4).contains(&most), "{most}");
    assert!(done.iter().all(|&count| count > 0), "somebody was never served: {done:?}");
}

#[test]
fn max_db_connections_of_a_database_comes_before_the_global_one() {
    let world = World::with(5, |setup| {
        setup.set("max_db_connections", 9).database_also("shop", "max_db_connections=2")
    });
    let most = most_servers(&world, || drop(hammer(&vec![world.login(); 6], 1.0)));
    assert_eq!(most, 2);
}

#[test]
fn max_user_connections_counts_over_databases() {
    let postgres = Postgres::shared();
    let (one, two) = (postgres.database(), postgres.database());
    let setup = Setup::new().set("default_pool_size", 5).set("max_user_connections", 3);
    let setup =
        setup.database("one", &postgres.target(&one)).database("two", &postgres.target(&two));
    let howdah = setup.start();
    let mut holders: Vec<_> =
        ["one", "two", "one"].map(|db| howdah.login("app", PASSWORD, db).enter()).into();
    for holder in &mut holders {
        holder.run("BEGIN");
    }
    let mut fourth = howdah.login("app", PASSWORD, "two").enter();
    fourth.send(&query("SELECT 'served'"));
    assert!(matches!(fourth.hear(seconds(0.7)), Heard::Quiet), "three is the most");
    let mut other = howdah.login("app2", PASSWORD, "two").enter();
    assert_eq!(other.run("SELECT 1").tags(), "TDCZ", "another user is free");
    // The server that gets free belongs to the other database: it has to be closed for ours.
    holders[0].run("COMMIT");
    assert_eq!(fourth.until_ready().column(), ["served"]);
}

#[test]
fn max_user_connections_of_a_user_comes_first() {
    let world = World::with(5, |setup| setup.user("app", "max_user_connections=2"));
    let most = most_servers(&world, || drop(hammer(&vec![world.login(); 6], 1.0)));
    assert_eq!(most, 2);
}

#[test]
fn an_idle_server_of_a_sibling_pool_is_evicted() {
    let world = World::with(5, |setup| setup.set("max_db_connections", 1));
    let (mut first, mut second) =
        (world.client(), world.howdah.login("app2", PASSWORD, "shop").enter());
    for _ in 0..5 {
        assert_eq!(first.value("SELECT current_user"), "app");
        assert_eq!(second.value("SELECT current_user"), "app2");
    }
    assert!(world.howdah.log().contains("closing because: evicted"));
    first.run("BEGIN");
    second.send(&query("SELECT 'served'"));
    assert!(matches!(second.hear(seconds(0.5)), Heard::Quiet), "a server in use is not evicted");
    first.run("COMMIT");
    assert_eq!(second.until_ready().column(), ["served"]);
}

#[test]
fn the_longest_idle_is_evicted() {
    let world = World::with(2, |setup| setup.set("max_db_connections", 2));
    let users = ["app", "app2", "app3"];
    let mut clients = users.map(|user| world.howdah.login(user, PASSWORD, "shop").enter());
    let [first, second, third] = &mut clients;
    first.run("SELECT 1");
    second.run("SELECT 1");
    let kept = second.value("SELECT pg_backend_pid()");
    third.run("SELECT 1");
    assert_eq!(
        second.value("SELECT pg_backend_pid()"),
        kept,
        "the first one's was idle for longer"
    );
}

#[test]
fn pool_size_of_a_database_comes_before_the_default() {
    let world = World::with(9, |setup| setup.database_also("shop", "pool_size=2"));
    let most = most_servers(&world, || drop(hammer(&vec![world.login(); 8], 1.0)));
    assert_eq!(most, 2);
}

#[test]
fn pool_size_of_a_user_comes_before_the_databases() {
    howdah_only!("of 1.23");
    let world = World::with(9, |setup| {
        setup.database_also("shop", "pool_size=5").user("app", "pool_size=2")
    });
    let most = most_servers(&world, || drop(hammer(&vec![world.login(); 8], 1.0)));
    assert_eq!(most, 2);
}

#[test]
fn a_pool_size_of_zero_is_no_limit() {
    howdah_only!("not yet in 1.18");
    let world = World::pool(0);
    let mut clients: Vec<_> = (0..25).map(|_| world.client()).collect();
    for client in &mut clients {
        client.run("BEGIN");
    }
    assert_eq!(world.servers(), 25);
}

#[test]
fn a_forced_user_is_one_pool_for_all() {
    let world = World::with(1, |setup| {
        setup.database_also("shop", &format!("user=app password={PASSWORD}"))
    });
    for user in ["app", "app2", "app3"] {
        let mut client = world.howdah.login(user, PASSWORD, "shop").enter();
        assert_eq!(client.value("SELECT current_user"), "app");
    }
    assert_eq!(world.servers(), 1);
}

#[test]
fn min_pool_size_waits_for_the_first_client() {
    let world = World::with(5, |setup| setup.set("min_pool_size", 3));
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(world.servers(), 0, "without a forced user nobody is known yet");
    let mut client = world.client();
    client.run("SELECT 1");
    eventually("three servers", || world.servers() == 3);
    world.direct().run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND pid <> pg_backend_pid() AND datname = current_database()");
    eventually("three again", || world.servers() == 3);
}

#[test]
fn min_pool_size_with_a_forced_user_opens_at_once() {
    howdah_only!("not yet in 1.18");
    let world = World::with(5, |setup| {
        setup.database_also("shop", &format!("user=app password={PASSWORD} min_pool_size=2"))
    });
    eventually("two servers", || world.servers() == 2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(world.servers(), 2);
}

#[test]
fn max_client_conn() {
    let world = World::with(1, |setup| setup.set("max_client_conn", 3));
    let mut clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    let refused = world.login().attempt().err().expect("no room").error();
    assert_eq!((refused.severity(), refused.code()), ("FATAL", "08P01"));
    assert_eq!(refused.text(), "no more connections allowed (max_client_conn)");
    assert_eq!(
        world.howdah.order("SHOW VERSION").count(b'D'),
        1,
        "an administrator always gets in"
    );
    clients.pop();
    eventually("there is room again", || world.login().attempt().is_ok());
}

#[test]
fn a_failed_login_gives_its_place_back() {
    let world = World::with(1, |setup| setup.set("max_client_conn", 3));
    for _ in 0..10 {
        assert!(world.login().password("wrong").attempt().is_err());
        assert!(world.login().database("nowhere").attempt().is_err());
        drop(harness::Raw::open(&world.howdah.address()));
    }
    eventually("all three places are free", || {
        let clients: Vec<_> = (0..3).map_while(|_| world.login().attempt().ok()).collect();
        clients.len() == 3
    });
}

/// The third client of a kind is refused with this text; when one leaves there is room.
fn third_is_refused(world: &World, text: &str) {
    let mut clients = vec![world.client(), world.client()];
    let refused = world.login().attempt().err().expect("no room").error();
    assert_eq!((refused.severity(), refused.code(), refused.text()), ("FATAL", "08P01", text));
    assert_eq!(world.howdah.order("SHOW VERSION").count(b'D'), 1);
    for _ in 0..3 {
        assert!(world.login().password("wrong").attempt().is_err());
    }
    clients.pop();
    eventually("there is room again", || world.login().attempt().is_ok());
}

#[test]
fn max_db_client_connections() {
    howdah_only!("of 1.24");
    let world = World::with(1, |setup| setup.database_also("shop", "max_db_client_connections=2"));
    third_is_refused(&world, "client connections exceeded (max_db_client_connections)");
    let world = World::with(1, |setup| setup.set("max_db_client_connections", 2));
    third_is_refused(&world, "client connections exceeded (max_db_client_connections)");
}

#[test]
fn max_user_client_connections() {
    howdah_only!("of 1.24");
    let world = World::with(1, |setup| setup.user("app", "max_user_client_connections=2"));
    third_is_refused(&world, "client connections exceeded (max_user_client_connections)");
    let mut other = world.howdah.login("app2", PASSWORD, "shop").enter();
    assert_eq!(other.run("SELECT 1").tags(), "TDCZ");
    let world = World::with(1, |setup| setup.set("max_user_client_connections", 2));
    third_is_refused(&world, "client connections exceeded (max_user_client_connections)");
}

#[test]
fn a_cold_pool_fills_in_parallel() {
    let world = World::with(10, |setup| {
        setup.database_also("shop", "connect_query='SELECT pg_sleep(0.3)'")
    });
    howdah_only!("the yardstick opens one server at a time");
    let mut clients: Vec<_> = (0..10).map(|_| world.client()).collect();
    world.howdah.order("RECONNECT");
    let (time, ()) = timed(|| {
        for client in &mut clients {
            client.send(&query("SELECT pg_sleep(0.5)"));
        }
        for client in &mut clients {
            assert_eq!(client.until_ready().tags(), "TDCZ");
        }
    });
    assert!(time.within(2.5), "ten servers one after the other: {time:?}");
}
