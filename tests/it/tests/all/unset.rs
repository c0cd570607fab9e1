//! Servers that cannot be set to what their client is set to: nothing of the client's runs there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use harness::fake::{self, FakeServer, Guest};
use harness::postgres::PASSWORD;
use harness::{Raw, Setup, World, say};

/// What becomes of the setting of Ann's session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// Struck before its transaction has begun: all is skipped up to a Sync.
    StruckAtBegin,
    Struck,
    Fatal,
    HangsUp,
    Refused,
}

/// A server that has this fate for so many flights of Ann's, and what it ran for her.
struct Fated {
    server: FakeServer,
    left: Arc<AtomicUsize>,
    ran: Arc<Mutex<Vec<String>>>,
}

impl Fated {
    fn start(fate: Fate) -> Self {
        let left = Arc::new(AtomicUsize::new(0));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let (count, noted) = (left.clone(), ran.clone());
        let server = FakeServer::start(move |mut guest| {
            if guest.admit().is_some() {
                play(&mut guest, fate, &count, &noted);
            }
        });
        Self { server, left, ran }
    }

    fn login(&self, howdah: &harness::Howdah, name: &str) -> Raw {
        let _one_guest_at_least = self.server.guests();
        howdah.login("app", PASSWORD, "fake").parameter("application_name", name).enter()
    }

    /// It is over with this client, for this reason, and nothing of it was run.
    fn ends(&self, client: &mut Raw, code: &str) {
        client.send(&say::query("SELECT 'a'"));
        assert_eq!(client.until_closed().code(), code);
        assert!(self.ran.lock().expect("nobody panics").is_empty());
    }
}

fn play(guest: &mut Guest, fate: Fate, left: &AtomicUsize, ran: &Mutex<Vec<String>>) {
    let (mut begins, mut aborted) = (false, false);
    while let Some((tag, body)) = guest.read() {
        let is_fated = || {
            let less = |left: usize| left.checked_sub(1);
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
        };
        if tag == b'P' && fate == Fate::StruckAtBegin && is_fated() {
            guest.send(&fake::error("ERROR", "57014", "struck"));
            if guest.read_until(b'S').is_none() {
                return;
            }
            guest.send(&fake::ready());
            continue;
        }
        begins |= tag == b'P' && body.starts_with(b"\0BEGIN\0");
        match tag {
            b'Q' => begins = false,
            b'S' if aborted => return guest.send(&say::message(b'Z', b"E")),
            b'S' => guest.send(&fake::ready()),
            _ if begins || aborted => {}
            b'P' => guest.send(&say::message(b'1', b"")),
            b'B' => guest.send(&say::message(b'2', b"")),
            b'D' => {
                guest.send(&[say::message(b't', &[0, 0]), say::message(b'n', b"")].concat());
            }
            b'E' => guest.send(&say::message(b'C', b"SELECT 1\0")),
            _ => {}
        }
        if tag != b'Q' {
            continue;
        }
        let sql = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        let sets = sql.starts_with("SET application_name='ann'");
        if sets && fate != Fate::StruckAtBegin && is_fated() {
            guest.send(&fake::began());
            match fate {
                Fate::HangsUp => return guest.hang_up(),
                Fate::Fatal => {
                    guest.send(&fake::error("FATAL", "57P01", "it ends"));
                    return guest.hang_up();
                }
                Fate::Refused => guest.send(&fake::error("ERROR", "22023", "no such name")),
                _ => guest.send(&fake::error("ERROR", "57014", "struck")),
            }
            guest.send(&say::message(b'Z', b"E"));
            aborted = true;
        } else if aborted {
            guest.send(&fake::error("ERROR", "25P02", "aborted"));
            guest.send(&say::message(b'Z', b"E"));
        } else if sets {
            guest.send(&fake::began());
            guest.send(&fake::parameter("application_name", "ann"));
            guest.send(&[say::message(b'C', b"SET\0"), say::message(b'C', b"COMMIT\0")].concat());
            guest.send(&fake::ready());
        } else {
            if sql.starts_with("SELECT 'a") {
                ran.lock().expect("nobody panics").push(sql.clone());
            }
            guest.send(&fake::answer(&sql));
        }
    }
}

fn pooler(fated: &Fated) -> harness::Howdah {
    Setup::new().set("default_pool_size", 1).database("fake", &fated.server.target()).start()
}

/// How many servers had to be closed for that.
fn unset(howdah: &harness::Howdah) -> String {
    howdah.cell("SHOW PIN_TOTALS", &[("database", "fake"), ("reason", "settings")], "unset")
}

/// Where a server could not be set by bad luck, another serves, and the client notices nothing.
#[test]
fn who_had_bad_luck_is_served_by_another() {
    howdah_only!("it knows no settings but six");
    for fate in [Fate::StruckAtBegin, Fate::Struck, Fate::Fatal, Fate::HangsUp] {
        let fated = Fated::start(fate);
        let howdah = pooler(&fated);
        let mut ann = fated.login(&howdah, "ann");
        for strikes in [1, 2, 0, 1] {
            let mut bob = fated.login(&howdah, "bob");
            bob.run("SELECT 'b'");
            fated.left.store(strikes, Ordering::SeqCst);
            assert_eq!(ann.value("SELECT 'a'"), "SELECT 'a'", "{fate:?}");
            assert_eq!(fated.left.load(Ordering::SeqCst), 0);
        }
        assert_eq!(fated.ran.lock().expect("nobody panics").len(), 4, "{fate:?}");
        assert_eq!(unset(&howdah), "4", "{fate:?}");
    }
}

/// What a Parse named in the flight that was lost is named in the one that was not.
#[test]
fn what_was_prepared_in_vain_is_prepared_again() {
    howdah_only!("it knows no settings but six");
    for fate in [Fate::StruckAtBegin, Fate::Struck, Fate::Fatal, Fate::HangsUp] {
        let fated = Fated::start(fate);
        let howdah = pooler(&fated);
        let mut ann = fated.login(&howdah, "ann");
        for (round, name) in ["x", "y", "x"].into_iter().enumerate() {
            fated.login(&howdah, "bob").run("SELECT 'b'");
            fated.left.store(1, Ordering::SeqCst);
            let uses = [say::bind("", name, &[]), say::execute("", 0), say::sync()].concat();
            let flight = [say::parse(name, "SELECT 'a'"), uses.clone()].concat();
            if round < 2 {
                assert_eq!(ann.ask(&flight).tags(), "12CZ", "{fate:?}");
            }
            assert_eq!(ann.ask(&uses).tags(), "2CZ", "{fate:?}");
            assert_eq!(fated.left.load(Ordering::SeqCst), 0);
        }
    }
}

/// There is an end to that.
#[test]
fn bad_luck_for_ever_is_told() {
    howdah_only!("it knows no settings but six");
    let fated = Fated::start(Fate::Struck);
    let howdah = pooler(&fated);
    let mut ann = fated.login(&howdah, "ann");
    fated.left.store(1000, Ordering::SeqCst);
    fated.ends(&mut ann, "57014");
    assert!((2..20).contains(&fated.server.guests()), "{}", fated.server.guests());
}

/// What any server would refuse is the client's to know, in the server's words.
#[test]
fn a_value_that_is_refused_is_the_clients_to_know() {
    howdah_only!("it knows no settings but six");
    let fated = Fated::start(Fate::Refused);
    let howdah = pooler(&fated);
    let mut ann = fated.login(&howdah, "ann");
    fated.left.store(1, Ordering::SeqCst);
    fated.ends(&mut ann, "22023");
    assert_eq!(unset(&howdah), "1");
}

/// The parser alone needs longer for what Bob is set to than the limit that Ann has left there.
#[test]
fn a_limit_left_behind_does_not_strike_what_sets_the_next() {
    howdah_only!("it leaks");
    let world = World::pool(1);
    let (mut ann, mut bob) = (world.client(), world.client());
    world.direct().run("CREATE TABLE t (size int); GRANT ALL ON t TO app");
    bob.run("SELECT set_config('app.blob', repeat('x', 1500000), false)");
    for round in 1..4 {
        ann.query("SET statement_timeout = 1");
        bob.run("INSERT INTO t SELECT length(current_setting('app.blob'))");
        assert_eq!(bob.value("SHOW statement_timeout"), "0");
        let sizes = world.direct().value("SELECT string_agg(size::text, ' ') FROM t");
        assert_eq!(sizes, vec!["1500000"; round].join(" "));
        // Her own statements it may strike.
        while ann.query("SET statement_timeout = 0").error().is_some() {}
    }
    assert_eq!(world.servers(), 1, "none had to be closed");
}
