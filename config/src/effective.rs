//! What holds for one client or pool: user before database before setting.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::session_state::{StateKind, StatePolicy, Verdict};
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

    /// Servers of a pool whose clients may keep them between transactions.
    #[must_use]
    pub fn max_pinned_servers(&self, db: Db<'_>, user: User<'_>) -> Option<NonZeroU32> {
        let own = user.and_then(|user| user.max_pinned_servers).or(db.max_pinned_servers);
        NonZeroU32::new(own.unwrap_or(self.settings.max_pinned_servers))
    }

    #[must_use]
    pub fn pin_timeout(&self, db: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.pin_timeout).or(db.pin_timeout);
        some(own.unwrap_or(self.settings.pin_timeout))
    }

    #[must_use]
    pub fn pin_idle_timeout(&self, db: Db<'_>, user: User<'_>) -> Option<Duration> {
        let own = user.and_then(|user| user.pin_idle_timeout).or(db.pin_idle_timeout);
        some(own.unwrap_or(self.settings.pin_idle_timeout))
    }

    /// What is done about a kind of session state.
    #[must_use]
    pub fn verdict(&self, db: Db<'_>, user: User<'_>, kind: StateKind) -> Verdict {
        let of = |policy: Option<StatePolicy>| policy.and_then(|policy| policy.of(kind));
        of(user.and_then(|user| user.session_state))
            .or_else(|| of(db.session_state))
            .or_else(|| self.settings.session_state.of(kind))
            .unwrap_or_else(|| kind.usual())
    }

    /// Whether what clients do is noted for SHOW SESSION_REPORT.
    #[must_use]
    pub fn session_report(&self, db: Db<'_>, user: User<'_>) -> bool {
        let own = user.and_then(|user| user.session_report).or(db.session_report);
        own.unwrap_or(self.settings.session_report)
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

    /// Files this process may come to have open, reckoned as PgBouncer does for its line in the
    /// log: clients, the servers of every pool that `users` users can make, two for the console,
    /// and ten to spare. A pool without a limit counts for nothing.
    #[must_use]
    pub fn fds_expected(&self, users: usize) -> u64 {
        let pools = self.databases.values().map(|db| {
            // Where auth_file knows nobody, somebody may come all the same.
            let users = if db.user.is_some() { 1 } else { users.max(1) as u64 };
            let size = self.pool_size(db, None).map_or(0, |size| u64::from(size.get()));
            users.saturating_mul(size)
        });
        let clients = u64::from(self.settings.max_client_conn);
        pools.fold(clients + 2 + 10, u64::saturating_add)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn secs(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    /// Every limit is set in all the places it can be, with a value that tells which.
    #[test]
    fn the_user_goes_before_the_database_and_that_before_the_setting() {
        let text = "[pgbouncer]
            default_pool_size = 1\n min_pool_size = 2\n reserve_pool_size = 3
            query_wait_timeout = 4\n server_lifetime = 5\n max_db_connections = 6
            max_db_client_connections = 7\n max_user_connections = 8
            max_user_client_connections = 9\n query_timeout = 10\n transaction_timeout = 11
            idle_transaction_timeout = 12\n client_idle_timeout = 13
            [databases]
            plain =
            own = pool_size=21 min_pool_size=22 reserve_pool=23 query_wait_timeout=24 \
                server_lifetime=25 max_db_connections=26 max_db_client_connections=27 \
                pool_mode=transaction
            [users]
            own = pool_size=31 reserve_pool_size=33 query_wait_timeout=34 \
                max_user_connections=38 max_user_client_connections=39 query_timeout=40 \
                transaction_timeout=41 idle_transaction_timeout=42 client_idle_timeout=43 \
                pool_mode=statement";
        let config = parse(&text.replace("\\\n", "")).expect("a good configuration");
        let n = |n: Option<NonZeroU32>| n.map_or(0, NonZeroU32::get);
        let all = |db: &str, user: Option<&str>| {
            let db = &config.databases[db];
            let user = user.map(|name| &*config.users[name]);
            let counts = [
                n(config.pool_size(db, user)),
                config.min_pool_size(db, user),
                config.reserve_pool_size(db, user),
                n(config.max_db_connections(db, user)),
                n(config.max_db_client_connections(db, user)),
                n(config.max_user_connections(db, user)),
                n(config.max_user_client_connections(db, user)),
            ];
            let times = [
                config.query_wait_timeout(db, user),
                Some(config.server_lifetime(db, user)),
                config.query_timeout(db, user),
                config.transaction_timeout(db, user),
                config.idle_transaction_timeout(db, user),
                config.client_idle_timeout(db, user),
            ];
            (config.pool_mode(db, user), counts, times)
        };
        let global = ([1, 2, 3, 6, 7, 8, 9], [4, 5, 10, 11, 12, 13].map(secs));
        assert_eq!(all("plain", None), (PoolMode::Session, global.0, global.1));
        let database = ([21, 22, 23, 26, 27, 8, 9], [24, 25, 10, 11, 12, 13].map(secs));
        assert_eq!(all("own", None), (PoolMode::Transaction, database.0, database.1));
        let user = ([31, 22, 33, 26, 27, 38, 39], [34, 25, 40, 41, 42, 43].map(secs));
        assert_eq!(all("own", Some("own")), (PoolMode::Statement, user.0, user.1));
    }

    #[test]
    fn a_users_zero_ends_a_limit_but_not_a_time() {
        let text = "[pgbouncer]\nmax_user_connections = 5\nquery_timeout = 5\n[databases]\nd =\n
            [users]\nu = max_user_connections=0 query_timeout=0 query_wait_timeout=0 pool_size=0";
        let config = parse(text).expect("a good configuration");
        let (db, user) = (&config.databases["d"], Some(&*config.users["u"]));
        assert_eq!(config.max_user_connections(db, user), None);
        assert_eq!(config.pool_size(db, user), None);
        assert_eq!(config.query_timeout(db, user), secs(5));
        assert_eq!(config.query_wait_timeout(db, user), None);
    }

    #[test]
    fn a_database_without_a_host_is_at_the_unix_socket() {
        let text = "[pgbouncer]\nunix_socket_dir = /run\n[databases]\na =\nb = host=::1,x,@y,/z";
        let config = parse(text).expect("a good configuration");
        let hosts = |name: &str| config.hosts(&config.databases[name]);
        assert_eq!(hosts("a"), [Host::UnixDir("/run".to_owned())]);
        let want = [
            Host::Ip("::1".parse().expect("an address")),
            Host::Name("x".to_owned()),
            Host::Abstract("@y".to_owned()),
            Host::UnixDir("/z".to_owned()),
        ];
        assert_eq!(hosts("b"), want);
    }

    #[test]
    fn files_are_reckoned_per_user_where_none_is_forced() {
        let text = "[pgbouncer]\n[databases]\na = pool_size=5\nb = user=u\nc = pool_size=0\n* =";
        let config = parse(text).expect("a good configuration");
        assert_eq!(config.fds_expected(3), 100 + 2 + 10 + 3 * 5 + 20);
    }
}
