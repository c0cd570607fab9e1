//! Who owns how many server slots, over all workers.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Board, Duration, Instant, PoolId, WorkerId};

/// The slots of every pool, database and user.
///
/// A slot is taken before a server is dialled, and given back when its connection is gone, so the
/// limits hold at every instant. Who is refused a slot is remembered, and called, the longest
/// hungry first, when there may be one. A call reserves nothing: whoever asks first has the slot, and
/// who comes too late keeps its turn. A worker that was called asks, or says [`Bank::declined`]: so
/// while a slot is free and somebody is hungry for it, a call is on its way.
#[derive(Debug)]
pub struct Bank {
    workers: u16,
    accounts: Vec<Account>,
    /// Accounts that nobody uses any more: their numbers are given again.
    free: Vec<PoolId>,
    /// The accounts by database, then user.
    names: BTreeMap<Box<str>, BTreeMap<Box<str>, PoolId>>,
    shares: Vec<Share>,
    free_shares: Vec<ShareId>,
    dbs: BTreeMap<Box<str>, ShareId>,
    users: BTreeMap<Box<str>, ShareId>,
    next_turn: Turn,
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
    /// The slot is the asker's. It ends in [`Bank::abandoned`] if the login does not succeed, else in
    /// [`Bank::logged_in`] and later [`Bank::closed`]. `reserve`: it is one beyond `pool_size`.
    Open { reserve: bool },
    /// A limit is reached. The bank calls when that may have changed.
    Wait,
    /// The last login failed, nothing is open, and `login_retry` is not over: say
    /// [`crate::Pool::denied`], then [`crate::Pool::refuse_all`] with [`Bank::cached_error`].
    Failing,
    /// The last connect or login failed, and it is too early to try again, or somebody is trying.
    /// The bank calls when a login succeeds; until then the pool asks again now and then.
    Later,
}

/// Something the bank wants a worker to do: mailed, or when it is the caller itself, done as soon as the
/// orders at hand are carried out, not in between.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    pub worker: WorkerId,
    pub pool: PoolId,
    pub calling: Calling,
}

/// See [`Call`]. A worker that does not have the pool answers `Retry` by [`Bank::declined`], and
/// passes over the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calling {
    /// A slot may be free: [`Bank::ask_dedicated`] if a replication client waits, else [`crate::Pool::retry`].
    Retry,
    /// [`crate::Pool::evict`].
    Evict,
    /// [`crate::Pool::refuse_all`] with `LoginFailed` and [`Bank::cached_error`]. If there is none any more,
    /// somebody has logged in since, and the line need not be refused.
    Refuse,
}

/// Why a server that was to be opened was not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// No connection, or no TLS: clients keep waiting.
    Connect,
    /// The server refused the login. `transient`: it is starting up (SQLSTATE 57P03), clients keep waiting.
    Login { transient: bool },
}

/// One pool's slots.
#[derive(Debug)]
struct Account {
    /// Database and user.
    name: (Box<str>, Box<str>),
    /// How many workers have their part of it.
    rooms: u16,
    /// Nobody has asked yet whether it is new.
    is_new: bool,
    limits: BankLimits,
    board: Arc<Board>,
    db: ShareId,
    user: ShareId,
    open: u32,
    /// Of these, not logged in yet.
    opening: u32,
    /// How many of `open` each worker has. Below zero for a moment, when one that moved is closed
    /// before the move is told.
    held: Vec<i32>,
    hungry: Vec<Hungry>,
    trouble: Option<Trouble>,
}

/// The last connect or login failed, and none has succeeded since.
#[derive(Debug)]
struct Trouble {
    at: Instant,
    /// A login was refused, and not because the server is starting up.
    is_refusal: bool,
    error: Arc<[u8]>,
    /// Who is trying, since when. One at a time until one succeeds.
    trying: Option<(WorkerId, Instant)>,
}

/// A worker that was refused a slot.
#[derive(Clone, Copy, Debug)]
struct Hungry {
    worker: WorkerId,
    turn: Turn,
    was_called: bool,
}

/// What all pools of one database, or of one user, share.
#[derive(Debug, Default)]
struct Share {
    /// How many accounts it is part of.
    accounts: u32,
    open: u32,
    /// The pools that have slots.
    holders: BTreeSet<PoolId>,
    /// Those whom this share's limit may have kept waiting.
    hungry: BTreeSet<(Turn, PoolId, WorkerId)>,
}

type ShareId = usize;
type Turn = u64;

/// Who is kept out by `max_db_connections` or `max_user_connections` may take a server from a sibling that
/// is always busy if it has waited more than `STARVED_TIMES` as long as anybody there, and by
/// `STARVED_SLACK`. Otherwise a busy pool would keep its siblings out for ever. The slack makes the cost
/// of a login small against the turn that it buys.
const STARVED_TIMES: u32 = 2;
const STARVED_SLACK: Duration = Duration::from_millis(250);

/// Who tries to log in after a failure, and is not heard of for so long, does not keep the others from
/// trying. `server_connect_timeout` should have ended the attempt long before.
const TRYING_MAX: Duration = Duration::from_secs(60);

/// How long a busy sibling owes a server. A pool that still starves asks again well before.
const OWED_FOR: Duration = Duration::from_secs(1);

impl Bank {
    /// A bank for `workers` workers, without pools.
    #[must_use]
    pub fn new(workers: u16) -> Self {
        Self {
            workers,
            accounts: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            shares: Vec::new(),
            free_shares: Vec::new(),
            dbs: BTreeMap::new(),
            users: BTreeMap::new(),
            next_turn: 0,
        }
    }

    /// The pool of `db` and `user`, new or known, for one worker more. A known one keeps its limits.
    pub fn open_pool(&mut self, db: &str, user: &str, limits: BankLimits) -> (PoolId, Arc<Board>) {
        if let Some(pool) = self.find(db, user) {
            let account = self.account_mut(pool);
            account.rooms += 1;
            return (pool, Arc::clone(&account.board));
        }
        let board = Arc::new(Board::new(usize::from(self.workers)));
        let (shares, free) = (&mut self.shares, &mut self.free_shares);
        let account = Account {
            name: (db.into(), user.into()),
            rooms: 1,
            is_new: true,
            limits,
            board: Arc::clone(&board),
            db: share(shares, free, &mut self.dbs, db),
            user: share(shares, free, &mut self.users, user),
            open: 0,
            opening: 0,
            held: alloc::vec![0; usize::from(self.workers)],
            hungry: Vec::new(),
            trouble: None,
        };
        account.show_limits();
        let pool = self.free.pop().unwrap_or(PoolId(self.accounts.len() as u32));
        match self.accounts.get_mut(pool.0 as usize) {
            Some(place) => *place = account,
            None => self.accounts.push(account),
        }
        self.names.entry(db.into()).or_default().insert(user.into(), pool);
        (pool, board)
    }

    /// Whether nobody has asked this of the pool before: whatever is remembered under its number is about
    /// another that had it once.
    pub fn take_new(&mut self, pool: PoolId) -> bool {
        core::mem::take(&mut self.account_mut(pool).is_new)
    }

    /// `me` has its part of the pool no more. When no worker has, and no connection is left, the pool is
    /// forgotten and its number free. A letter about it that is still on its way then meets another pool, or
    /// none, and does no harm: servers are what must not be mistaken, and none is left.
    pub fn leave_pool(&mut self, pool: PoolId, me: WorkerId, calls: &mut Vec<Call>) {
        self.declined(pool, me, calls);
        let account = self.account_mut(pool);
        account.rooms = account.rooms.saturating_sub(1);
        self.reap(pool);
    }

    /// Whether there is a pool of this database.
    #[must_use]
    pub fn has_db(&self, db: &str) -> bool {
        self.names.contains_key(db)
    }

    /// How many pools there are.
    #[must_use]
    pub fn pools(&self) -> usize {
        self.accounts.len() - self.free.len()
    }

    fn find(&self, db: &str, user: &str) -> Option<PoolId> {
        self.names.get(db)?.get(user).copied()
    }

    fn reap(&mut self, pool: PoolId) {
        let Account { rooms, open, ref hungry, ref name, db, user, .. } = *self.account(pool);
        let (db_name, user_name) = name.clone();
        let is_in_use = rooms > 0 || open > 0 || !hungry.is_empty();
        if is_in_use || self.find(&db_name, &user_name) != Some(pool) {
            return;
        }
        if let Some(users) = self.names.get_mut(&db_name) {
            users.remove(&user_name);
            if users.is_empty() {
                self.names.remove(&db_name);
            }
        }
        let names = [(db, &mut self.dbs, db_name), (user, &mut self.users, user_name)];
        for (share, names, name) in names {
            self.shares[share].accounts -= 1;
            if self.shares[share].accounts == 0 {
                names.remove(&name);
                self.free_shares.push(share);
            }
        }
        self.account_mut(pool).trouble = None;
        self.free.push(pool);
    }

    /// New limits. Where there is more than they allow, the pools close what is too much, the idle at their
    /// next [`crate::Pool::set_limits`] or `tick`, the others as they come free.
    pub fn set_limits(&mut self, pool: PoolId, limits: BankLimits, calls: &mut Vec<Call>) {
        let account = self.account_mut(pool);
        account.limits = limits;
        account.show_limits();
        // A limit may be new, and then so is its queue.
        for hungry in self.account(pool).hungry.clone() {
            self.leave_queues(pool, hungry);
            self.join_queues(pool, hungry);
        }
        self.call_hungry(pool, calls);
    }

    // ---- Taking slots.

    /// May `me` open a server? `oldest_wait` is that of its line's head.
    pub fn ask(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        oldest_wait: Duration,
        now: Instant,
        calls: &mut Vec<Call>,
    ) -> Answer {
        self.decide(pool, me, Purpose::Line(oldest_wait), now, calls)
    }

    /// May `me` open a server toward `min_pool_size`? Never above a limit, and nobody is evicted for it.
    pub fn ask_min(&mut self, pool: PoolId, me: WorkerId, now: Instant) -> bool {
        let account = self.account(pool);
        let is_wanted = account.open < account.limits.min && account.holdup(now).is_none();
        if !is_wanted
            || self.limited(pool) != Limited::default()
            || (self.is_awaited(pool) && !planted::is("minimum-comes-first"))
        {
            return false;
        }
        self.take(pool, me, now);
        true
    }

    /// Whether a sibling waits for a slot that would be `pool`'s too. One whose last login failed asks
    /// only now and then, and must find the slot that was freed for it.
    fn is_awaited(&self, pool: PoolId) -> bool {
        let Account { db, user, .. } = *self.account(pool);
        let queues = [db, user].map(|share| &self.shares[share].hungry);
        queues.into_iter().flatten().any(|(_, other, _)| *other != pool)
    }

    /// May `me` open a connection of its own for a replication client? It counts like any other,
    /// is never pooled, and an idle pooled server makes room for it.
    pub fn ask_dedicated(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        oldest_wait: Duration,
        now: Instant,
        calls: &mut Vec<Call>,
    ) -> Answer {
        self.decide(pool, me, Purpose::Dedicated(oldest_wait), now, calls)
    }

    /// `me` was called and wants nothing ([`crate::Action::Decline`]).
    pub fn declined(&mut self, pool: PoolId, me: WorkerId, calls: &mut Vec<Call>) {
        self.sate(pool, me);
        self.call_hungry(pool, calls);
    }

    // ---- What becomes of a slot.

    /// A server of this pool logged in: whatever failed before is over.
    pub fn logged_in(&mut self, pool: PoolId, calls: &mut Vec<Call>) {
        let account = self.account_mut(pool);
        account.opening = account.opening.saturating_sub(1);
        self.forgive(pool, calls);
    }

    /// A connect or a login failed. After a refused login, when no other server is logged in, everybody in line
    /// is refused with `error`, the body of the `ErrorResponse`. The slot stays taken until the connection is
    /// gone: [`Bank::abandoned`].
    pub fn failed(
        &mut self,
        pool: PoolId,
        failure: Failure,
        error: Arc<[u8]>,
        now: Instant,
        calls: &mut Vec<Call>,
    ) {
        let account = self.account_mut(pool);
        let is_refusal = failure == Failure::Login { transient: false };
        // What a server said is on its way to those who wait, and to be found here when it
        // arrives: a connection that broke meanwhile says less.
        let said = account.trouble.as_ref().filter(|trouble| trouble.is_refusal);
        let error = match said {
            Some(trouble) if !is_refusal => Arc::clone(&trouble.error),
            _ => error,
        };
        account.trouble = Some(Trouble { at: now, is_refusal, error, trying: None });
        if is_refusal && account.logged_in() == 0 {
            let refuse = |worker| Call { worker: WorkerId(worker), pool, calling: Calling::Refuse };
            calls.extend((0..self.workers).map(refuse));
        }
        // A slot that this pool was called for is of no use to it now.
        self.call_hungry(pool, calls);
    }

    /// The connection of a server of `me` that did not get as far as [`Bank::logged_in`] is gone, because the
    /// attempt failed or because we gave it up (PAUSE, KILL, RECONNECT): the slot is free again.
    pub fn abandoned(&mut self, pool: PoolId, me: WorkerId, calls: &mut Vec<Call>) {
        let account = self.account_mut(pool);
        account.opening = account.opening.saturating_sub(1);
        if let Some(trouble) = &mut account.trouble
            && trouble.trying.is_some_and(|(who, _)| who == me)
        {
            trouble.trying = None;
        }
        self.give_back(pool, me);
        self.call_hungry(pool, calls);
        self.reap(pool);
    }

    /// RECONNECT, RESUME or RELOAD: try again at once, whatever failed before.
    pub fn forgive(&mut self, pool: PoolId, calls: &mut Vec<Call>) {
        if self.account_mut(pool).trouble.take().is_some() {
            self.call_hungry(pool, calls);
        }
    }

    /// The connection of a server of `me` that had logged in is gone: the slot is free again.
    pub fn closed(&mut self, pool: PoolId, me: WorkerId, _now: Instant, calls: &mut Vec<Call>) {
        self.give_back(pool, me);
        let account = self.account_mut(pool);
        account.opening = account.opening.min(account.open);
        account.board.closed();
        self.call_hungry(pool, calls);
        self.reap(pool);
    }

    /// A server went from one worker to another, and its slot with it.
    pub fn moved(&mut self, pool: PoolId, from: WorkerId, to: WorkerId) {
        let account = self.account_mut(pool);
        account.held[usize::from(from.0)] -= 1;
        account.held[usize::from(to.0)] += 1;
    }

    // ---- What is asked for SHOW.

    /// The `ErrorResponse` body that refused clients get.
    #[must_use]
    pub fn cached_error(&self, pool: PoolId) -> Option<Arc<[u8]>> {
        self.account(pool).trouble.as_ref().map(|trouble| Arc::clone(&trouble.error))
    }

    /// Open or opening, over all workers.
    #[must_use]
    pub fn open(&self, pool: PoolId) -> u32 {
        self.account(pool).open
    }

    #[must_use]
    pub fn db_open(&self, db: &str) -> u32 {
        self.dbs.get(db).map_or(0, |share| self.shares[*share].open)
    }

    #[must_use]
    pub fn user_open(&self, user: &str) -> u32 {
        self.users.get(user).map_or(0, |share| self.shares[*share].open)
    }

    // ---- Deciding.

    fn decide(
        &mut self,
        pool: PoolId,
        me: WorkerId,
        purpose: Purpose,
        now: Instant,
        calls: &mut Vec<Call>,
    ) -> Answer {
        if let Some(answer) = self.account(pool).holdup(now) {
            match answer {
                Answer::Failing => self.sate(pool, me),
                _ => self.hunger(pool, me, calls),
            }
            return answer;
        }
        let mut limited = self.limited(pool);
        let reserve = limited.by_size && self.account(pool).may_take_reserve(purpose.wait());
        limited.by_size &= !reserve;
        if limited == Limited::default() {
            self.take(pool, me, now);
            return Answer::Open { reserve };
        }
        self.hunger(pool, me, calls);
        match purpose {
            Purpose::Dedicated(_) if self.evict_own(pool, calls) => {}
            _ if limited.by_size => {}
            _ => self.evict_siblings(pool, limited, purpose.wait(), now, calls),
        }
        Answer::Wait
    }

    /// What keeps `pool` from one more server, leaving the reserve aside.
    fn limited(&self, pool: PoolId) -> Limited {
        let account = self.account(pool);
        let one_more = u32::from(planted::is("one-server-too-many"));
        let is_full = |open: u32, max: Option<u32>| max.is_some_and(|max| open >= max + one_more);
        Limited {
            by_size: is_full(account.open, account.limits.size),
            by_db: is_full(self.shares[account.db].open, account.limits.db_max),
            by_user: is_full(self.shares[account.user].open, account.limits.user_max),
        }
    }

    fn evict_own(&self, pool: PoolId, calls: &mut Vec<Call>) -> bool {
        let idle = self.account(pool).board.longest_idle();
        let evict = |(_, worker)| Call { worker, pool, calling: Calling::Evict };
        calls.extend(idle.map(evict));
        idle.is_some()
    }

    /// One server each of the same database, and of the same user, as far as these are full: an
    /// idle one now, or else one of a sibling that starves us when it comes free. Nothing is evicted
    /// if that would not be enough.
    fn evict_siblings(
        &self,
        pool: PoolId,
        limited: Limited,
        wait: Duration,
        now: Instant,
        calls: &mut Vec<Call>,
    ) {
        let account = self.account(pool);
        let victim = |is_full: bool, share: ShareId| {
            if is_full { self.victim(pool, share, wait, now).map(Some) } else { Some(None) }
        };
        let by_db = victim(limited.by_db, account.db);
        let by_user = victim(limited.by_user, account.user);
        if let (Some(by_db), Some(by_user)) = (by_db, by_user) {
            for victim in [by_db, by_user].into_iter().flatten() {
                match victim {
                    Victim::Idle(worker, pool) => {
                        calls.push(Call { worker, pool, calling: Calling::Evict });
                    }
                    Victim::Busy(pool) => self.account(pool).board.owe(now.after(OWED_FOR)),
                }
            }
        }
    }

    /// Whose server `pool` may have, never its own: the one that has been idle longest, where no
    /// `min_pool_size` protects it. That protects against being quicker, not against starving: a client that
    /// has waited a while may have any idle server, and a busy pool's next free one if it has waited far longer
    /// than anybody there.
    fn victim(&self, pool: PoolId, share: ShareId, wait: Duration, now: Instant) -> Option<Victim> {
        let siblings = || {
            let holders = self.shares[share].holders.iter().filter(|other| **other != pool);
            holders.map(|other| (*other, self.account(*other)))
        };
        let is_starving = wait >= STARVED_SLACK;
        let idle = siblings().filter_map(|(other, account)| {
            let is_protected = account.board.staying() <= account.limits.min;
            let (since, worker) = account.board.longest_idle()?;
            (is_starving || !is_protected).then_some((is_protected, since, other, worker))
        });
        if let Some((_, _, other, worker)) = idle.min() {
            return Some(Victim::Idle(worker, other));
        }
        let line = |(other, account): (PoolId, &Account)| {
            let since = account.board.oldest_wait();
            (since.map_or(Duration::ZERO, |since| now.since(since)), other)
        };
        let (least, other) = siblings().map(line).min()?;
        (wait > least * STARVED_TIMES + STARVED_SLACK).then_some(Victim::Busy(other))
    }

    // ---- Booking.

    fn take(&mut self, pool: PoolId, me: WorkerId, now: Instant) {
        self.sate(pool, me);
        let account = self.account_mut(pool);
        account.opening += 1;
        account.held[usize::from(me.0)] += 1;
        if let Some(trouble) = &mut account.trouble {
            trouble.trying = Some((me, now));
        }
        self.count(pool, 1);
    }

    fn give_back(&mut self, pool: PoolId, me: WorkerId) {
        let account = self.account_mut(pool);
        if account.open == 0 {
            debug_assert!(false, "{pool:?} gives back a slot that it does not have");
            return;
        }
        account.held[usize::from(me.0)] -= 1;
        self.count(pool, -1);
    }

    /// The three counts of one slot, which go up and down together.
    fn count(&mut self, pool: PoolId, change: i32) {
        let account = self.account_mut(pool);
        account.open = account.open.saturating_add_signed(change);
        account.board.set_open(account.open);
        let (open, shares) = (account.open, [account.db, account.user]);
        for share in shares {
            let share = &mut self.shares[share];
            share.open = share.open.saturating_add_signed(change);
            if open > 0 {
                share.holders.insert(pool);
            } else {
                share.holders.remove(&pool);
            }
        }
    }

    // ---- The hungry.

    /// `me` was refused a slot. It keeps its turn if it has one.
    fn hunger(&mut self, pool: PoolId, me: WorkerId, calls: &mut Vec<Call>) {
        let turn = self.next_turn;
        let account = self.account_mut(pool);
        let Some(known) = account.hungry.iter_mut().find(|hungry| hungry.worker == me) else {
            let hungry = Hungry { worker: me, turn, was_called: false };
            account.hungry.push(hungry);
            self.next_turn += 1;
            self.join_queues(pool, hungry);
            return;
        };
        if core::mem::take(&mut known.was_called) {
            // It was called for one limit's sake, and refused by another: the first is for the next.
            self.call_hungry(pool, calls);
        }
    }

    /// `me` is hungry no more.
    fn sate(&mut self, pool: PoolId, me: WorkerId) {
        let hungry = &mut self.account_mut(pool).hungry;
        if let Some(index) = hungry.iter().position(|hungry| hungry.worker == me) {
            // Not `swap_remove`: they stand in the order of their turns.
            let hungry = hungry.remove(index);
            self.leave_queues(pool, hungry);
        }
    }

    fn join_queues(&mut self, pool: PoolId, hungry: Hungry) {
        let entry = (hungry.turn, pool, hungry.worker);
        let Account { db, user, limits, .. } = *self.account(pool);
        if limits.db_max.is_some() {
            self.shares[db].hungry.insert(entry);
        }
        if limits.user_max.is_some() {
            self.shares[user].hungry.insert(entry);
        }
    }

    fn leave_queues(&mut self, pool: PoolId, hungry: Hungry) {
        let entry = (hungry.turn, pool, hungry.worker);
        let Account { db, user, .. } = *self.account(pool);
        self.shares[db].hungry.remove(&entry);
        self.shares[user].hungry.remove(&entry);
    }

    /// Something changed for `pool`, or for those that share limits with it: calls the hungry in
    /// turn, one for each slot that is free, those on whom a call is waiting already included.
    fn call_hungry(&mut self, pool: PoolId, calls: &mut Vec<Call>) {
        let mut after = 0;
        // Booked while we count, so that a limit is not spent twice; given back at the end.
        let mut offered = Vec::new();
        let mut is_open = [true, true];
        while let Some((turn, other, worker)) = self.next_hungry(pool, after, is_open) {
            after = turn + 1;
            if self.may_open(other) {
                self.count(other, 1);
                offered.push(other);
                let mut hungry = self.account_mut(other).hungry.iter_mut();
                if let Some(hungry) =
                    hungry.find(|hungry| hungry.turn == turn && !hungry.was_called)
                {
                    hungry.was_called = true;
                    calls.push(Call { worker, pool: other, calling: Calling::Retry });
                }
            } else {
                let limited = self.limited(other);
                // Where the share itself is full, nobody in its queue can be helped.
                let (mine, theirs) = (self.account(pool), self.account(other));
                is_open[0] &= !(limited.by_db && mine.db == theirs.db);
                is_open[1] &= !(limited.by_user && mine.user == theirs.user);
            }
        }
        for other in offered {
            self.count(other, -1);
        }
    }

    /// The first whose turn is not before `after`: of this pool, of its database, of its user.
    fn next_hungry(
        &self,
        pool: PoolId,
        after: Turn,
        is_open: [bool; 2],
    ) -> Option<(Turn, PoolId, WorkerId)> {
        let account = self.account(pool);
        let own = account.hungry.iter().find(|hungry| hungry.turn >= after);
        let own = own.map(|hungry| (hungry.turn, pool, hungry.worker));
        let first = |is_open: bool, share: ShareId| {
            let from = (after, PoolId(0), WorkerId(0));
            self.shares[share].hungry.range(from..).next().copied().filter(|_| is_open)
        };
        [own, first(is_open[0], account.db), first(is_open[1], account.user)]
            .into_iter()
            .flatten()
            .min()
    }

    fn may_open(&self, pool: PoolId) -> bool {
        self.account(pool).trouble.is_none() && self.limited(pool) == Limited::default()
    }

    fn account(&self, pool: PoolId) -> &Account {
        &self.accounts[pool.0 as usize]
    }

    fn account_mut(&mut self, pool: PoolId) -> &mut Account {
        &mut self.accounts[pool.0 as usize]
    }

    /// What must hold between any two calls.
    pub fn invariants(&self) {
        let mut opens = alloc::vec![0; self.shares.len()];
        let mut queued = 0;
        for (id, account) in (0..).map(PoolId).zip(&self.accounts) {
            assert_eq!(
                account.held.iter().sum::<i32>(),
                account.open as i32,
                "a slot without a worker"
            );
            assert!(account.opening <= account.open, "more are opening than open");
            assert_eq!(account.board.open(), account.open, "the board shows another count");
            assert!(account.hungry.is_sorted_by_key(|hungry| hungry.turn));
            opens[account.db] += account.open;
            opens[account.user] += account.open;
            for share in [account.db, account.user] {
                assert_eq!(self.shares[share].holders.contains(&id), account.open > 0);
            }
            let by_db = account.limits.db_max.is_some();
            let by_user = account.limits.user_max.is_some();
            queued += account.hungry.len() * (usize::from(by_db) + usize::from(by_user));
            let nobody_knows = account.hungry.iter().all(|hungry| !hungry.was_called);
            let uncalled = !account.hungry.is_empty() && nobody_knows && self.may_open(id);
            assert!(
                !uncalled || self.is_offered(account),
                "{id:?} is hungry by a free slot, uncalled"
            );
        }
        let open = self.shares.iter().map(|share| share.open);
        assert!(open.eq(opens), "the shares do not add up");
        assert_eq!(self.shares.iter().map(|share| share.hungry.len()).sum::<usize>(), queued);
    }

    /// Whether somebody with whom `account` shares a limit has been called, and may take the slot.
    fn is_offered(&self, account: &Account) -> bool {
        let queues = [account.db, account.user].map(|share| &self.shares[share].hungry);
        queues.into_iter().flatten().any(|(turn, pool, _)| {
            self.account(*pool)
                .hungry
                .iter()
                .any(|hungry| hungry.turn == *turn && hungry.was_called)
        })
    }
}

/// Whom a slot is for, and how long it has been waited for.
#[derive(Clone, Copy)]
enum Purpose {
    Line(Duration),
    Dedicated(Duration),
}

/// What stands in the way of one more server.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Limited {
    by_size: bool,
    by_db: bool,
    by_user: bool,
}

/// From whom a server is taken.
enum Victim {
    Idle(WorkerId, PoolId),
    Busy(PoolId),
}

impl Account {
    fn logged_in(&self) -> u32 {
        self.open - self.opening.min(self.open)
    }

    /// What a failed connect or login makes us say.
    fn holdup(&self, now: Instant) -> Option<Answer> {
        let trouble = self.trouble.as_ref()?;
        let is_over = trouble.at.after(self.limits.login_retry) <= now;
        let is_tried = trouble.trying.is_some_and(|(_, since)| now < since.after(TRYING_MAX));
        if is_over && !is_tried {
            return None;
        }
        let is_hopeless = trouble.is_refusal && !is_over && self.logged_in() == 0;
        Some(if is_hopeless { Answer::Failing } else { Answer::Later })
    }

    fn may_take_reserve(&self, wait: Duration) -> bool {
        self.open < self.limits.cap()
            && self.limits.reserve_after.is_some_and(|after| wait >= after)
    }

    fn show_limits(&self) {
        self.board.set_limits(self.limits.cap(), self.limits.min);
    }
}

impl BankLimits {
    /// The most there may ever be.
    fn cap(&self) -> u32 {
        self.size.map_or(u32::MAX, |size| size.saturating_add(self.reserve))
    }
}

impl Purpose {
    fn wait(self) -> Duration {
        let (Self::Line(wait) | Self::Dedicated(wait)) = self;
        wait
    }
}

/// The share of this name, for one account more.
fn share(
    shares: &mut Vec<Share>,
    free: &mut Vec<ShareId>,
    names: &mut BTreeMap<Box<str>, ShareId>,
    name: &str,
) -> ShareId {
    let id = names.get(name).copied().or_else(|| free.pop()).unwrap_or_else(|| {
        shares.push(Share::default());
        shares.len() - 1
    });
    names.insert(name.into(), id);
    shares[id].accounts += 1;
    id
}
