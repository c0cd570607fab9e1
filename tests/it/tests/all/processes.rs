//! Several processes on one port: bug class E15.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use harness::postgres::PASSWORD;
use harness::{Address, Howdah, Login, Postgres, Setup, eventually};
use rustix::process::Signal;

/// One of several on `port`, with a console of its own on its unix socket.
fn one_of_several(port: u16, db: &str) -> Howdah {
    Setup::new()
        .port(port)
        .set("so_reuseport", 1)
        .database("shop", &Postgres::shared().target(db))
        .start()
}

fn clients_of(howdah: &Howdah) -> usize {
    let mut console = Login::new(howdah.socket(), "boss", PASSWORD, "pgbouncer").enter();
    let table = console.run("SHOW CLIENTS").table();
    table.iter().filter(|row| row.iter().any(|cell| cell.1 == "shop")).count()
}

#[test]
fn two_processes_share_a_port() {
    let db = Postgres::shared().database();
    let port = harness::place::port();
    let (first, second) = (one_of_several(port, &db), one_of_several(port, &db));
    let login = Login::new(Address::local(port), "app", PASSWORD, "shop");
    let clients: Vec<_> = (0..40).map(|_| login.enter()).collect();
    let (one, other) = (clients_of(&first), clients_of(&second));
    assert_eq!(one + other, clients.len());
    assert!(one > 0 && other > 0, "{one} and {other}");
}

#[test]
fn without_so_reuseport_a_port_is_taken() {
    let db = Postgres::shared().database();
    let port = harness::place::port();
    let _first = one_of_several(port, &db);
    let second = Setup::new().port(port).try_start();
    let (status, said) = second.err().expect("it must not start");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
}

/// Clients come all the time, each for one query, while one after the other is replaced. The kernel shares them
/// out before we see them; nobody must be reset for having been given to the one that goes.
#[test]
fn e15_a_rolling_restart_resets_nobody() {
    howdah_only!(
        "PgBouncer resets those whom the kernel has connected to it, and it has not accepted"
    );
    let db = Postgres::shared().database();
    let port = harness::place::port();
    let mut poolers = [one_of_several(port, &db), one_of_several(port, &db)];
    let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
    let login = Login::new(Address::local(port), "app", PASSWORD, "shop");
    std::thread::scope(|scope| {
        let _raise = harness::Raise(&over);
        let work = || {
            while !over.load(Ordering::SeqCst) {
                let mut client = match login.attempt() {
                    Ok(client) => client,
                    Err(refused) => panic!("{refused:?}"),
                };
                assert_eq!(client.value("SELECT 1"), "1");
                served.fetch_add(1, Ordering::SeqCst);
            }
        };
        let workers: Vec<_> = (0..6).map(|_| scope.spawn(work)).collect();
        for round in 0..4 {
            let pooler = &mut poolers[round % 2];
            let before = served.load(Ordering::SeqCst);
            eventually("clients come", || served.load(Ordering::SeqCst) > before + 20);
            pooler.signal(Signal::TERM);
            assert!(pooler.ended().success());
            pooler.restart();
        }
        over.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().expect("nobody was reset, and nobody refused");
        }
    });
    println!("{} clients", served.load(Ordering::SeqCst));
}
