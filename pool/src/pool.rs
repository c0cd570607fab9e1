//! One worker's part of one pool.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Action, Board, ClientId, Duration, Instant, PoolId, RefuseReason, ServerId, WorkerId};

/// How this pool behaves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `query_wait_timeout`.
    pub wait: Option<Duration>,
    /// `query_wait_notify`.
    pub notify: Option<Duration>,
    /// `server_idle_timeout`.
    pub idle: Option<Duration>,
    /// `server_lifetime`; zero = use once.
    pub lifetime: Duration,
    /// `server_check_delay`; `None` when `server_check_query` is off.
    pub check_delay: Option<Duration>,
    /// `server_round_robin`.
    pub round_robin: bool,
    /// `pool_size` over all workers, zero = unlimited. Paces closes for `lifetime`.
    pub size: u32,
    /// Most logins at once on this worker.
    pub opening_max: u32,
}

/// Where a server can be: the columns of SHOW POOLS.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    Connecting,
    Idle,
    Used,
    Testing,
    Linked,
    Canceled,
    Leaving,
}

/// How many are where.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    pub waiting: u32,
    pub connecting: u32,
    pub idle: u32,
    pub used: u32,
    pub testing: u32,
    pub linked: u32,
    pub canceled: u32,
    pub leaving: u32,
}

/// The servers of one (database, user) on one worker, and the line of clients waiting for them.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    me: WorkerId,
    limits: Limits,
    board: Arc<Board>,
}

impl Pool {
    #[must_use]
    pub fn new(id: PoolId, me: WorkerId, limits: Limits, board: Arc<Board>) -> Self {
        Self { id, me, limits, board }
    }
    #[must_use]
    pub fn id(&self) -> PoolId {
        let _ = (self.me, &self.board, &self.limits);
        self.id
    }
    pub fn set_limits(&mut self, limits: Limits, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// `client` has something to say: it is linked at once, or joins the line.
    pub fn acquire(&mut self, client: ClientId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// `client` left the line.
    pub fn forget(&mut self, client: ClientId, out: &mut Vec<Action>) {
        todo!()
    }
    /// The bank said `Open`, and the worker dials.
    pub fn connecting(&mut self, server: ServerId, now: Instant) {
        todo!()
    }
    /// The bank said no: ask no more until `retry` or a `tick` a while later.
    pub fn denied(&mut self) {
        todo!()
    }
    /// The bank called.
    pub fn retry(&mut self, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// Logged in and ready.
    pub fn opened(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// linked -> testing: the reset query begins.
    pub fn test(&mut self, server: ServerId) {
        todo!()
    }
    /// linked | testing, clean -> idle, canceled, leaving or closed.
    pub fn release(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// Gone, whatever place it was in.
    pub fn lost(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// Another worker gave it to us.
    pub fn arrived(
        &mut self,
        server: ServerId,
        opened_at: Instant,
        epoch: u32,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        todo!()
    }
    /// leaving -> gone from here, mailed.
    pub fn left(&mut self, server: ServerId) {
        todo!()
    }
    #[must_use]
    pub fn opened_at(&self, server: ServerId) -> Instant {
        todo!()
    }
    #[must_use]
    pub fn epoch_of(&self, server: ServerId) -> u32 {
        todo!()
    }
    /// A cancel request for what runs on `server` is on its way.
    pub fn cancel_began(&mut self, server: ServerId) {
        todo!()
    }
    /// Its connection is closed.
    pub fn cancel_ended(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    pub fn nudged(&mut self, from: WorkerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    pub fn no_idle(&mut self, from: WorkerId, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// Closes the server that has been idle longest.
    pub fn evict(&mut self, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// Everybody in line is refused.
    pub fn refuse_all(&mut self, reason: RefuseReason, out: &mut Vec<Action>) {
        todo!()
    }
    pub fn pause(&mut self, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    pub fn resume(&mut self, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    #[must_use]
    pub fn is_paused(&self) -> bool {
        todo!()
    }
    /// Nothing is at work here: PAUSE is done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        todo!()
    }
    /// Servers of an older epoch are obsolete.
    pub fn reconnect(&mut self, epoch: u32, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    #[must_use]
    pub fn is_obsolete(&self, server: ServerId) -> bool {
        todo!()
    }
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        todo!()
    }
    /// When `tick` next has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        todo!()
    }
    #[must_use]
    pub fn place(&self, server: ServerId) -> Option<Place> {
        todo!()
    }
    #[must_use]
    pub fn counts(&self) -> Counts {
        todo!()
    }
    #[must_use]
    pub fn oldest_wait(&self, now: Instant) -> Duration {
        todo!()
    }
    #[must_use]
    pub fn servers(&self) -> u32 {
        todo!()
    }
    /// No server, nobody in line, nothing on its way here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    /// Fewer servers are open, over all workers, than `min_pool_size`: worth a [`crate::Bank::ask_min`].
    #[must_use]
    pub fn is_below_min(&self) -> bool {
        todo!()
    }
    pub fn invariants(&self) {
        todo!()
    }
}
