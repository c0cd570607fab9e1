//! Random sessions, which cannot tell the pooler from PostgreSQL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use harness::postgres::PASSWORD;
use harness::twins::{self, Life, Place};
use harness::{Login, Postgres, Setup};

/// Pairs who live at the same time, in two databases of fewer servers than they are there.
const PAIRS: usize = 8;
const SERVERS: usize = 3;
/// A session's length, in statements.
const SESSION: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `TWINS=1000000` says how many statements there are to be in all, `TWINS_SEED` where the dice begin, `TWINS_WITHOUT=channels,custom` what
/// is left out.
#[test]
fn random_sessions_cannot_tell() {
    howdah_only!("it can be told in many ways");
    let postgres = Postgres::start(
        "log_statement = none\nlog_min_messages = fatal\nlog_min_error_statement = fatal\n",
    );
    postgres.superuser("postgres").run(twins::ROLES);
    let databases = ["shop", "mall"].map(|name| (name, [(); 2].map(|()| postgres.database())));
    let furniture = [twins::FURNITURE.to_owned(), twins::other_furniture()];
    for ((_, each), furniture) in databases.iter().zip(&furniture) {
        for db in each {
            let mut superuser = postgres.superuser(db);
            superuser.run(furniture);
            for me in 0..PAIRS {
                superuser.run(&twins::own(me));
            }
        }
    }
    let mut setup = Setup::new()
        .set("default_pool_size", SERVERS)
        .set("query_wait_timeout", 0)
        .set("query_wait_notify", 0);
    for (name, [_, pooled]) in &databases {
        setup = setup.database(name, &postgres.target(pooled));
    }
    let howdah = setup.start();
    // What sequences gave may be lost to others where a client does nothing for a second; a machine that stands still
    // makes it so.
    let usual = if number("TWINS").is_some() { "" } else { "sequences" };
    let without = std::env::var("TWINS_WITHOUT").unwrap_or_else(|_| usual.to_owned());
    let places = databases.map(|(name, [direct, pooled])| {
        // What sequences gave is kept for whoever reads it later, once somebody in the pool has.
        let mut reader = howdah.login("app", PASSWORD, name).enter();
        reader.run("SELECT nextval('seq_0')");
        reader.query("SELECT currval('seq_0')");
        reader.leave();
        postgres.superuser(&pooled).run("SELECT setval('seq_0', 1, false)");
        Place {
            direct: Login::new(postgres.address(), "app", PASSWORD, &direct),
            pooled: howdah.login("app", PASSWORD, name),
            without: without.split(',').map(str::to_owned).collect(),
        }
    });
    let goal = number("TWINS").unwrap_or(6_000);
    let first = number("TWINS_SEED").unwrap_or(1);
    let (lived, lives) = (AtomicU64::new(0), AtomicU64::new(first));
    thread::scope(|scope| {
        for me in 0..PAIRS {
            let (place, lived, lives) = (&places[me % places.len()], &lived, &lives);
            scope.spawn(move || {
                while lived.load(Ordering::Relaxed) < goal && !thread::panicking() {
                    let seed = lives.fetch_add(1, Ordering::Relaxed);
                    let statements = Life::begin(place, me, seed).live(SESSION);
                    lived.fetch_add(statements, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} statements without a difference", lived.into_inner());
}
