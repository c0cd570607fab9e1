//! Several processes that pass cancel requests on to each other: bug class D7.

use harness::postgres::PASSWORD;
use harness::say::{self, query};
use harness::{Address, FakeServer, Howdah, Postgres, Raw, Setup, eventually, timed};

/// A pooler for one database, with these lines of `[peers]`.
fn pooler(db: &str, id: u32, peers: &str) -> Howdah {
    let setup = Setup::new().database("shop", &Postgres::shared().target(db));
    setup.set("peer_id", id).tail(&format!("\n[peers]\n{peers}\n")).start()
}

fn reread(howdah: &mut Howdah, peers: &str) {
    howdah.reload(|setup| setup.tail(&format!("\n[peers]\n{peers}\n")));
}

fn by_tcp(id: u32, howdah: &Howdah) -> String {
    format!("{id} = host=127.0.0.1 port={}", howdah.port())
}

fn by_unix(id: u32, howdah: &Howdah) -> String {
    format!("{id} = host={} port={}", howdah.folder().display(), howdah.port())
}

/// A client of `at` whose query is under way, and who is not to be told to others.
fn sleeper(at: &Howdah, db: &str, minor: u16) -> Raw {
    let mut client = at.login("app", PASSWORD, "shop").minor(minor).enter();
    client.send(&query("SELECT pg_sleep(60)"));
    eventually("it sleeps", || Postgres::shared().asleep(db) == 1);
    client
}

/// Says `key` to `to` and waits for the end, as libpq does.
fn cancel(to: &Address, key: &[u8]) {
    let mut messenger = Raw::open(to).expect("it listens");
    messenger.send(&say::cancel(key));
    messenger.until_closed();
}

#[test]
fn d07_a_cancel_that_reaches_the_wrong_process_is_sent_on() {
    howdah_only!("Debian's 1.18 has no peers");
    let db = Postgres::shared().database();
    let mut first = pooler(&db, 1, "");
    let second = pooler(&db, 0x0203, &by_unix(1, &first));
    reread(&mut first, &by_tcp(0x0203, &second));
    for minor in [0, 2] {
        for (at, other, id) in [(&first, &second, [1, 0]), (&second, &first, [3, 2])] {
            let mut client = sleeper(at, &db, minor);
            let key = client.key.clone().expect("a key");
            assert_eq!(key.len(), if minor == 2 { 36 } else { 8 });
            assert_eq!((key[0] & 0x80, &key[1..3], key[7] & 3), (0, &id[..], 3));
            for to in [other.address(), other.socket()] {
                cancel(&to, &key);
                assert_eq!(client.until_ready().code(), "57014");
                client.send(&query("SELECT pg_sleep(60)"));
                eventually("it sleeps again", || Postgres::shared().asleep(&db) == 1);
            }
            // Its own still does, and a wrong one does not.
            let mut wrong = key.clone();
            wrong[5] ^= 1;
            cancel(&other.address(), &wrong);
            assert_eq!(Postgres::shared().asleep(&db), 1);
            cancel(&at.address(), &key);
            assert_eq!(client.until_ready().code(), "57014");
        }
    }
}

/// Each takes the other for the process of a third: a request goes to and fro until it has been sent on three times.
#[test]
fn d07_a_circle_of_peers_has_an_end() {
    howdah_only!("Debian's 1.18 has no peers");
    let db = Postgres::shared().database();
    let mut first = pooler(&db, 1, "");
    let second = pooler(&db, 2, &by_tcp(3, &first));
    reread(&mut first, &by_tcp(3, &second));
    let third = pooler(&db, 3, "");
    let mut client = sleeper(&third, &db, 0);
    cancel(&first.address(), client.key.as_ref().expect("a key"));
    let said = "cancel request was sent on too often";
    assert_eq!(first.log().matches(said).count() + second.log().matches(said).count(), 1);
    assert_eq!(Postgres::shared().asleep(&db), 1);
    client.cancel();
    assert_eq!(client.until_ready().code(), "57014");
}

#[test]
fn d07_a_dead_peer_hangs_nobody_up() {
    howdah_only!("Debian's 1.18 has no peers");
    let db = Postgres::shared().database();
    let port = harness::place::port();
    let mute = FakeServer::start(harness::Guest::stall);
    let gone = pooler(&db, 2, "");
    let mute_one = pooler(&db, 4, "");
    let peers = format!(
        "2 = host=127.0.0.1 port={port}\n3 = host=nowhere.invalid\n4 = host=127.0.0.1 port={} pool_size=1",
        mute.port()
    );
    let mut howdah = pooler(&db, 1, &peers);
    howdah.reload(|setup| setup.set("cancel_wait_timeout", 2));
    let client = |of: &Howdah| of.login("app", PASSWORD, "shop").enter();
    let (of_gone, of_mute) = (client(&gone), client(&mute_one));
    let (time, ()) = timed(|| cancel(&howdah.address(), of_gone.key.as_ref().expect("a key")));
    assert!(time.within(2.0), "nobody listens there: {time:?}");
    let said = "cancel request could not be sent on to peer 2: ";
    assert!(howdah.log().contains(said), "{}", howdah.log());

    let mut messengers: Vec<_> = (0..3)
        .map(|_| {
            let mut messenger = Raw::open(&howdah.address()).expect("it listens");
            messenger.send(&say::cancel(of_mute.key.as_ref().expect("a key")));
            messenger
        })
        .collect();
    let pool = |column| howdah.cell("SHOW PEER_POOLS", &[("peer_id", "4")], column);
    eventually("one is under way, two wait", || {
        pool("sv_active_cancel") == "1" && pool("cl_waiting_cancel_req") == "2"
    });
    assert_eq!((pool("cl_active_cancel_req"), pool("sv_login")), ("1".into(), "0".into()));
    assert_eq!(mute.guests(), 1, "pool_size is 1");
    let (time, ()) = timed(|| messengers.iter_mut().for_each(|one| _ = one.until_closed()));
    assert!(time.within(10.0), "{time:?}");
    eventually("nobody waits any more", || pool("cl_waiting_cancel_req") == "0");
    assert!(howdah.log().contains("closing because: cancel_wait_timeout"));
    // Others are served meanwhile.
    assert_eq!(client(&howdah).value("SELECT 1"), "1");
}

#[test]
fn peers_on_the_console() {
    howdah_only!("Debian's 1.18 has no peers");
    let db = Postgres::shared().database();
    let peers = "1 = host=/tmp port=7001\n9 = host=10.0.0.9\n2 = host=db.example pool_size=3";
    let mut howdah = pooler(&db, 1, peers);
    let rows = |howdah: &Howdah, view: &str| -> Vec<String> {
        let rows = howdah.order(view).rows().into_iter();
        rows.map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" ")).collect()
    };
    let all = ["1 /tmp 7001 20", "2 db.example 6432 3", "9 10.0.0.9 6432 20"];
    assert_eq!(rows(&howdah, "SHOW PEERS"), all);
    assert_eq!(rows(&howdah, "SHOW PEER_POOLS"), ["2 0 0 0 0", "9 0 0 0 0"]);
    let lists = |howdah: &Howdah, list| howdah.cell("SHOW LISTS", &[("list", list)], "items");
    assert_eq!((lists(&howdah, "peers"), lists(&howdah, "peer_pools")), ("3".into(), "2".into()));
    reread(&mut howdah, "2 = host=10.0.0.2");
    assert_eq!(rows(&howdah, "SHOW PEERS")[1], "2 10.0.0.2 6432 20");
}
