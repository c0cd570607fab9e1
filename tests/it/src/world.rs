//! What most tests begin with: a fresh database, a pooler in front of it, clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::howdah::{Howdah, Setup};
use crate::login::Login;
use crate::postgres::{PASSWORD, Postgres};
use crate::raw::{PATIENCE, Raw};

/// A fresh database `db` on the shared cluster, known to the pooler as `shop`.
pub struct World {
    pub postgres: &'static Postgres,
    pub db: String,
    pub howdah: Howdah,
}

impl World {
    /// Transaction mode with that many servers.
    #[must_use]
    pub fn pool(size: u32) -> Self {
        Self::with(size, |setup| setup)
    }

    /// As [`Self::pool`], with changes.
    #[must_use]
    pub fn with(size: u32, change: impl FnOnce(Setup) -> Setup) -> Self {
        let postgres = Postgres::shared();
        let db = postgres.database();
        let setup =
            Setup::new().set("default_pool_size", size).database("shop", &postgres.target(&db));
        let howdah = change(setup).start();
        Self { postgres, db, howdah }
    }

    /// A way in through the pooler, for `app`.
    #[must_use]
    pub fn login(&self) -> Login {
        self.howdah.login("app", PASSWORD, "shop")
    }

    /// A client of the pooler.
    #[must_use]
    pub fn client(&self) -> Raw {
        self.login().enter()
    }

    /// A superuser straight at the database.
    #[must_use]
    pub fn direct(&self) -> Raw {
        self.postgres.superuser(&self.db)
    }

    /// The same user, straight at the database.
    #[must_use]
    pub fn direct_app(&self) -> Raw {
        Login::new(self.postgres.address(), "app", PASSWORD, &self.db).enter()
    }

    /// How many server connections the database has, as PostgreSQL sees it.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.postgres.backends(&self.db)
    }

    /// How many sessions are in `pg_sleep` this moment.
    #[must_use]
    pub fn asleep(&self) -> usize {
        self.postgres.asleep(&self.db)
    }

    /// The statements that reached this database, in order, less what is asked once a second, whoever is there: whether
    /// the catalogs have changed.
    #[must_use]
    pub fn statements(&self) -> Vec<String> {
        let all = self.postgres.statements(&self.db).into_iter();
        all.filter(|sql| !sql.contains("pg_stat_get_tuples")).collect()
    }

    /// A cell of the row of SHOW POOLS for shop/app.
    #[must_use]
    pub fn pools(&self, column: &str) -> String {
        self.howdah.cell("SHOW POOLS", &[("database", "shop"), ("user", "app")], column)
    }
}

/// Polls until it is true.
///
/// # Panics
/// When it does not become true.
pub fn eventually(what: &str, check: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, check);
}

/// # Panics
/// When it does not become true in time.
pub fn eventually_within(patience: Duration, what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !check() {
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How long it took, with what it gave.
pub fn took<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

#[must_use]
pub fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Sets a flag when it goes out of scope, also by a panic: threads that wait for the flag would otherwise never end.
pub struct Raise<'a>(pub &'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Dice whose seed is printed, so that a failure can be played again with `HOWDAH_TEST_SEED`.
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new() -> Self {
        let given = std::env::var("HOWDAH_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock =
            || std::time::UNIX_EPOCH.elapsed().map_or(1, |elapsed| elapsed.subsec_nanos().into());
        let seed = given.unwrap_or_else(clock);
        println!("HOWDAH_TEST_SEED={seed}");
        Self(seed | 1)
    }

    /// xorshift64*.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// `0..limit`
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() >> 33).expect("31 bits") % limit.max(1)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

impl From<u64> for Dice {
    /// Of this seed, which is not printed.
    fn from(seed: u64) -> Self {
        // Seeds that are close to each other begin differently.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
}

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}
