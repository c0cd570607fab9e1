//! What holds for one client or pool: user before database before setting.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Config, Database, Host, PoolMode, UserRow};

type Db<'a> = &'a Database;
type User<'a> = Option<&'a UserRow>;

/// Limits and times as they hold for a pool. `None` is "no limit" or "never".
///
/// A user's own `0` takes a limit away, and makes `query_wait_timeout` endless; the user's other
/// times are only looked at when they are positive. That is PgBouncer's rule, and files rely on it.
impl Config {
    #[must_use]
    pub fn pool_mode(&self, db: Db<'_>, user: User<'_>) -> PoolMode {
        user.and_then(|user| user.pool_mode).or(db.pool_mode).unwrap_or(self.settings.pool_mode)
    }

    /// Servers of a pool.
    #[must_use]
    pub fn pool_size(&self, db: Db<'_>, user: User<'_>) -> Option<NonZeroU32> {
        let own = user.and_then(|user| user.pool_size).or(db.pool_size);
        NonZeroU32::new(own.unwrap_or(self.settings.default_pool_size))
    }

    /// Servers that a pool keeps open.
    #[must_use]
    pub fn min_pool_size(&self, db: Db<'_>, _: User<'_>) -> u32 {
        db.min_pool_size.unwrap_or(self.settings.min_pool_size)
    }

    /// Servers beyond the size of a pool.
    #[must_use]
    pub fn reserve_pool_size(&self, db: Db<'_>, user: User<'_>) -> u32 {
        let own = user.and_then(|user| user.reserve_pool_size).or(db.reserve_pool_size);
        own.unwrap_or(self.settings.reserve_pool_size)
    }

    #[must_use]
    pub fn query_wait_timeout(&self, db: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.query_wait_timeout).or(db.query_wait_timeout);
        some(own.unwrap_or(self.settings.query_wait_timeout))
    }

    /// Zero is a value here: a server is used once.
    #[must_use]
    pub fn server_lifetime(&self, db: Db<'_>, _: User<'_>) -> Duration {
        db.server_lifetime.unwrap_or(self.settings.server_lifetime)
    }

    #[must_use]
    pub fn max_db_connections(&self, db: Db<'_>, _: User<'_>) -> Option<NonZeroU32> {
        NonZeroU32::new(db.max_db_connections.unwrap_or(self.settings.max_db_connections))
    }

    #[must_use]
    pub fn max_db_client_connections(&self, db: Db<'_>, _: User<'_>) -> Option<NonZeroU32> {
        let own = db.max_db_client_connections;
        NonZeroU32::new(own.unwrap_or(self.settings.max_db_client_connections))
    }

    #[must_use]
    pub fn max_user_connections(&self, _: Db<'_>, user: User<'_>) -> Option<NonZeroU32> {
        let own = user.and_then(|user| user.max_user_connections);
        NonZeroU32::new(own.unwrap_or(self.settings.max_user_connections))
    }

    #[must_use]
    pub fn max_user_client_connections(&self, _: Db<'_>, user: User<'_>) -> Option<NonZeroU32> {
        let own = user.and_then(|user| user.max_user_client_connections);
        NonZeroU32::new(own.unwrap_or(self.settings.max_user_client_connections))
    }

    #[must_use]
    pub fn query_timeout(&self, _: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.query_timeout);
        own.and_then(some).or_else(|| some(self.settings.query_timeout))
    }

    #[must_use]
    pub fn idle_transaction_timeout(&self, _: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.idle_transaction_timeout);
        own.and_then(some).or_else(|| some(self.settings.idle_transaction_timeout))
    }

    #[must_use]
    pub fn transaction_timeout(&self, _: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.transaction_timeout);
        own.and_then(some).or_else(|| some(self.settings.transaction_timeout))
    }

    #[must_use]
    pub fn client_idle_timeout(&self, _: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.client_idle_timeout);
        own.and_then(some).or_else(|| some(self.settings.client_idle_timeout))
    }

    /// Where the servers of `db` are; never empty.
    #[must_use]
    pub fn hosts(&self, db: Db<'_>) -> Vec<Host> {
        if db.hosts.is_empty() {
            vec![Host::read(&self.settings.unix_socket_dir)]
        } else {
            db.hosts.clone()
        }
    }
}

/// Zero is "never".
fn some(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}
