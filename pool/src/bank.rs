//! Who owns how many server slots, over all workers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Board, Duration, Instant, PoolId, WorkerId};

/// The slots of every pool, database and user.
#[derive(Debug)]
pub struct Bank {
    workers: u16,
}

/// The limits of one pool, as the bank keeps them. `None` means that there is no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BankLimits {
    /// `pool_size`.
    pub size: Option<u32>,
    /// `reserve_pool_size`.
    pub reserve: u32,
    /// `reserve_pool_timeout`; `None` switches the reserve off.
    pub reserve_after: Option<Duration>,
    /// `min_pool_size`.
    pub min: u32,
    /// `max_db_connections`.
    pub db_max: Option<u32>,
    /// `max_user_connections`.
    pub user_max: Option<u32>,
    /// `server_login_retry`.
    pub login_retry: Duration,
}

/// What the bank says to a worker that wants a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The slot is the asker's. It ends in [`Bank::failed`] if the login does not succeed, else in
    /// [`Bank::logged_in`] and later [`Bank::closed`].
    Open { reserve: bool },
    /// A limit is reached. The bank calls when that may have changed.
    Wait,
    /// The last login failed, nothing is open, and `login_retry` is not over: refuse the line with
    /// [`Bank::cached_error`].
    Failing,
    /// The last connect or login failed: too early to try again, or somebody is trying.
    Later,
}

/// Something the bank wants a worker to do: mailed, or done at once by the caller itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    pub worker: WorkerId,
    pub pool: PoolId,
    pub calling: Calling,
}

/// See [`Call`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calling {
    /// A slot may be free: [`crate::Pool::retry`].
    Retry,
    /// [`crate::Pool::evict`].
    Evict,
    /// [`crate::Pool::refuse_all`] with `LoginFailed`.
    Refuse,
}

/// Why a server that was to be opened was not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// No connection, or no TLS: clients keep waiting.
    Connect,
    /// The server refused the login. `transient`: it is starting up (SQLSTATE 57P03).
    Login { transient: bool },
    /// We gave the attempt up ourselves (PAUSE, KILL, RECONNECT): this says nothing about the server.
    Abandoned,
}

impl Bank {
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Self { workers }
    }
    /// The pool of `db` and `user`, new or known.
    pub fn open_pool(&mut self, db: &str, user: &str, limits: BankLimits) -> (PoolId, Arc<Board>) {
        let _ = (db, user, limits, self.workers);
        todo!()
    }
    pub fn set_limits(&mut self, pool: PoolId, limits: BankLimits, calls: &mut Vec<Call>) {
        todo!()
    }
    /// May `me` open a server?
    pub fn ask(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        oldest_wait: Duration,
        now: Instant,
        calls: &mut Vec<Call>,
    ) -> Answer {
        todo!()
    }
    /// May `me` open a server toward `min_pool_size`?
    pub fn ask_min(&mut self, pool: PoolId, me: WorkerId, now: Instant) -> bool {
        todo!()
    }
    /// May `me` open a connection of its own for a replication client?
    pub fn ask_dedicated(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        oldest_wait: Duration,
        now: Instant,
        calls: &mut Vec<Call>,
    ) -> Answer {
        todo!()
    }
    /// `me` was called and wants nothing ([`crate::Action::Decline`]).
    pub fn declined(&mut self, pool: PoolId, me: WorkerId, calls: &mut Vec<Call>) {
        todo!()
    }
    /// A server of this pool logged in: whatever failed before is over.
    pub fn logged_in(&mut self, pool: PoolId, calls: &mut Vec<Call>) {
        todo!()
    }
    /// A server did not get as far as `logged_in`: its slot is free again.
    pub fn failed(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        failure: Failure,
        error: Arc<[u8]>,
        now: Instant,
        calls: &mut Vec<Call>,
    ) {
        todo!()
    }
    /// RECONNECT, RESUME or RELOAD: try again at once, whatever failed before.
    pub fn forgive(&mut self, pool: PoolId, calls: &mut Vec<Call>) {
        todo!()
    }
    /// A logged-in server of `me` is closed: its slot is free again.
    pub fn closed(&mut self, pool: PoolId, me: WorkerId, now: Instant, calls: &mut Vec<Call>) {
        todo!()
    }
    /// A server went from one worker to another.
    pub fn moved(&mut self, pool: PoolId, from: WorkerId, to: WorkerId) {
        todo!()
    }
    /// The `ErrorResponse` body that refused clients get.
    #[must_use]
    pub fn cached_error(&self, pool: PoolId) -> Option<Arc<[u8]>> {
        todo!()
    }
    #[must_use]
    pub fn open(&self, pool: PoolId) -> u32 {
        todo!()
    }
    #[must_use]
    pub fn db_open(&self, db: &str) -> u32 {
        todo!()
    }
    #[must_use]
    pub fn user_open(&self, user: &str) -> u32 {
        todo!()
    }
    pub fn invariants(&self) {
        todo!()
    }
}
