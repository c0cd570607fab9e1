//! The everyday road, on every number of workers and every driver.

use harness::say::{bind, copy_data, copy_done, execute, extended, parse, query, sync};
use harness::{Subject, World, subject};

/// A bit of everything.
fn the_everyday_road(workers: u32, io_driver: &str) {
    let world = World::with(3, |setup| match subject() {
        Subject::Howdah => setup.set("workers", workers).set("io_driver", io_driver),
        Subject::PgBouncer => setup,
    });
    let mut clients: Vec<_> = (0..9).map(|_| world.client()).collect();
    clients[0].run("CREATE TABLE t (n int, words text)");
    std::thread::scope(|scope| {
        for (who, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for round in 0..20 {
                    client.run("BEGIN");
                    client.ask(
                        &[
                            extended("INSERT INTO t VALUES ($1, 'words')", &[&who.to_string()]),
                            sync(),
                        ]
                        .concat(),
                    );
                    client.run(if round % 4 == 3 { "ROLLBACK" } else { "COMMIT" });
                    assert_eq!(client.query("SELECT 1/0").code(), "22012");
                    let three = [query("SELECT 1"), query("SELECT 2"), query("SELECT 3")].concat();
                    client.send(&three);
                    assert_eq!(client.until_readies(3).column(), ["1", "2", "3"]);
                    if subject() == Subject::Howdah {
                        let name = format!("s{round}");
                        client.ask(&[parse(&name, "SELECT $1::int + 1"), sync()].concat());
                        let reply = client
                            .ask(&[bind("", &name, &["41"]), execute("", 0), sync()].concat());
                        assert_eq!(reply.column(), ["42"]);
                    }
                    client.send(&query("COPY t FROM STDIN"));
                    client.until(b'G');
                    client.send(&[copy_data(b"100\tcopied\n"), copy_done()].concat());
                    assert_eq!(client.until_ready().command(), "COPY 1");
                }
                assert_eq!(client.value("SELECT length(repeat('x', 5000000))"), "5000000");
                assert_eq!(client.value("SELECT repeat('x', 2000000)").len(), 2_000_000);
            });
        }
    });
    assert_eq!(clients[0].value("SELECT count(*) FROM t WHERE n = 100"), "180");
    assert_eq!(clients[0].value("SELECT count(*) FROM t WHERE n < 100"), "135");
    assert!(world.servers() <= 3);
    clients[0].send(&query("SELECT pg_sleep(20)"));
    harness::eventually("it sleeps", || world.asleep() == 1);
    clients[0].cancel();
    assert_eq!(clients[0].until_ready().code(), "57014");
    world.howdah.order("RECONNECT");
    world.howdah.order("PAUSE");
    world.howdah.order("RESUME");
    world.howdah.order("RELOAD");
    for client in &mut clients {
        assert_eq!(client.value("SELECT 1"), "1");
    }
    let login = world.login();
    drop(clients);
    assert!(login.password("wrong").attempt().is_err());
}

#[test]
fn smoke_one_worker_on_io_uring() {
    the_everyday_road(1, "io_uring");
}

#[test]
fn smoke_two_workers_on_io_uring() {
    the_everyday_road(2, "io_uring");
}

#[test]
fn smoke_one_worker_on_readiness() {
    the_everyday_road(1, "readiness");
}

#[test]
fn smoke_two_workers_on_readiness() {
    the_everyday_road(2, "readiness");
}

#[test]
fn smoke_pgbench() {
    let world = World::with(4, |setup| setup.set("query_wait_timeout", 20));
    let bench = |arguments: &[&str]| {
        let output = harness::postgres::tool("pgbench")
            .args(["-h", "127.0.0.1", "-p", &world.howdah.port().to_string(), "-U", "app"])
            .args(arguments)
            .arg("shop")
            .output()
            .expect("pgbench");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && !said.contains("aborted"), "{said}");
    };
    bench(&["-i", "-s", "1", "-q"]);
    let modes: &[&str] = if subject() == Subject::Howdah {
        &["simple", "extended", "prepared"]
    } else {
        &["simple", "extended"]
    };
    for mode in modes {
        // A thread for each client: pgbench prepares in a call that blocks its thread, and would wait for a server that another
        // client of the same thread holds.
        bench(&["-c", "8", "-j", "8", "-t", "40", "-n", "-M", mode]);
        bench(&["-c", "8", "-j", "8", "-t", "20", "-n", "-S", "-C", "-M", mode]);
    }
    assert!(world.servers() <= 4);
}
