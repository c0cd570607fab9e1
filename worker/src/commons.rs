//! What all workers share. Nothing here is on a query's way: it is touched when a client logs in
//! or leaves, and when a server is opened, closed or moved.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use auth::{Derived, Form, JobKey, KeyRing, Secret};
use pool::{Bank, BankLimits, Board, Call, PoolId, WorkerId};
use session::{Pids, Read, Registry};

use crate::ears::HubCard;
use crate::inquiry::Answers;
use crate::mail::{Ask, LetterBox, Mail};
use crate::names::Names;
use crate::order::Order;
use crate::order::Scope;
use crate::welcome::Welcome;

/// The workers' common goods. `S` is the driver's socket.
pub struct Commons<S> {
    bank: Mutex<Bank>,
    boxes: Vec<LetterBox<S>>,
    census: Mutex<Census>,
    memory: Mutex<Memory>,
    names: Mutex<Names>,
    hubs: Mutex<BTreeMap<PoolId, Arc<HubCard>>>,
    /// Clients per worker, for dealing out new ones evenly.
    loads: Vec<AtomicU32>,
    /// On the way out: nobody comes in any more.
    doors_shut: AtomicBool,
    socket_ids: AtomicU64,
    epochs: Mutex<Epochs>,
    /// Held while an order is put into all boxes.
    ordering: Mutex<()>,
    /// Prepared statements, for one name per text on every server.
    pub(crate) statements: Arc<Registry>,
    /// The pids that clients were given.
    pub(crate) pids: Arc<Pids>,
    /// How the text of a request is read.
    pub(crate) read: Read,
}

impl<S> Commons<S> {
    /// `seed` is random.
    #[must_use]
    pub fn new(boxes: Vec<LetterBox<S>>, seed: u64, read: Read) -> Self {
        let workers = u16::try_from(boxes.len()).unwrap_or(u16::MAX);
        Self {
            bank: Mutex::new(Bank::new(workers)),
            loads: boxes.iter().map(|_| AtomicU32::new(0)).collect(),
            boxes,
            census: Mutex::default(),
            memory: Mutex::default(),
            names: Mutex::default(),
            hubs: Mutex::default(),
            doors_shut: AtomicBool::new(false),
            socket_ids: AtomicU64::new(1),
            epochs: Mutex::default(),
            ordering: Mutex::default(),
            statements: Arc::new(Registry::new(seed)),
            pids: Arc::new(Pids::new(workers)),
            read,
        }
    }

    pub fn bank(&self) -> MutexGuard<'_, Bank> {
        open(&self.bank)
    }

    pub fn census(&self) -> MutexGuard<'_, Census> {
        open(&self.census)
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        open(&self.memory)
    }

    pub fn names(&self) -> MutexGuard<'_, Names> {
        open(&self.names)
    }

    /// The server that listens for the idle clients of a pool, where there is one.
    pub(crate) fn hubs(&self) -> MutexGuard<'_, BTreeMap<PoolId, Arc<HubCard>>> {
        open(&self.hubs)
    }

    #[must_use]
    pub fn workers(&self) -> u16 {
        u16::try_from(self.boxes.len()).unwrap_or(u16::MAX)
    }

    /// The pool of `database` and `user`, for one worker more, and the epoch its servers belong to there.
    pub(crate) fn open_pool(
        &self,
        database: &str,
        user: &str,
        limits: BankLimits,
        generation: u64,
    ) -> (PoolId, Arc<Board>, u32) {
        let mut bank = self.bank();
        let (id, board) = bank.open_pool(database, user, limits);
        if bank.take_new(id) {
            self.memory().welcomes.remove(&id);
            self.memory().baselines.remove(&id);
            self.memory().habits.remove(&id);
        }
        // While the bank is held: of one database, all parts of its pools live in the same epochs.
        let epoch = self.epoch_of(database, generation);
        (id, board, epoch)
    }

    /// `me` has its part of a pool of `database` no more. With the last of them goes what was kept of it.
    pub(crate) fn leave_pool(
        &self,
        pool: PoolId,
        me: WorkerId,
        database: &str,
        calls: &mut Vec<Call>,
    ) {
        let mut bank = self.bank();
        bank.leave_pool(pool, me, calls);
        if !bank.has_db(database) {
            open(&self.epochs).databases.remove(database);
        }
    }

    /// Put `mail` in the box of `to`.
    pub fn mail(&self, to: WorkerId, mail: Mail<S>) {
        if let Some(letter_box) = self.boxes.get(usize::from(to.0)) {
            letter_box.put(mail);
        }
    }

    /// Order something of all workers, whoever orders it included. Each of them gets all orders in
    /// the same sequence: of a RESUME and a KILL at once, the same one is the last everywhere.
    pub fn order(&self, order: &Order, ask: Option<Ask>) {
        let _one_at_a_time = open(&self.ordering);
        let first = if planted::is("order-misses-one") { 1 } else { 0 };
        for worker in (first..self.workers()).map(WorkerId) {
            self.mail(worker, Mail::Order { order: order.clone(), ask });
        }
    }

    /// The number of a new client or server socket: `id` in SHOW CLIENTS and SHOW SERVERS.
    #[must_use]
    pub fn socket_id(&self) -> u64 {
        self.socket_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The epoch that servers of `database` opened now belong to, for a worker that lives by the
    /// site of `generation`: one that has not heard of the newest yet still opens obsolete ones.
    #[must_use]
    pub(crate) fn epoch_of(&self, database: &str, generation: u64) -> u32 {
        let epochs = open(&self.epochs);
        let late = |mark: &Mark| mark.epoch - u32::from(mark.generation > generation);
        epochs.databases.get(database).map_or(0, late).max(epochs.all)
    }

    /// The servers of `database` were made obsolete by the site of this `generation`: the epoch that
    /// follows theirs. Every worker finds out for itself, and all get the same.
    #[must_use]
    pub(crate) fn obsolete(&self, database: &Arc<str>, generation: u64) -> u32 {
        let mut epochs = open(&self.epochs);
        let next = epochs.last + 1;
        let mark = epochs.databases.entry(database.clone()).or_default();
        if mark.generation < generation {
            *mark = Mark { epoch: next, generation };
            epochs.last = next;
            return next;
        }
        mark.epoch
    }

    /// The servers of `scope` open so far are obsolete: the epoch that follows theirs.
    #[must_use]
    pub fn next_epoch(&self, scope: &Scope) -> u32 {
        let mut epochs = open(&self.epochs);
        epochs.last += 1;
        let last = epochs.last;
        match scope {
            None => epochs.all = last,
            Some(database) => epochs.databases.entry(database.clone()).or_default().epoch = last,
        }
        last
    }

    /// The worker with the fewest clients; it counts one more from now on.
    #[must_use]
    pub fn deal(&self) -> WorkerId {
        let least =
            self.loads.iter().enumerate().min_by_key(|(_, load)| load.load(Ordering::Relaxed));
        let worker = least.map_or(0, |(worker, _)| worker);
        self.loads[worker].fetch_add(1, Ordering::Relaxed);
        WorkerId(u16::try_from(worker).unwrap_or(0))
    }

    /// Clients that were dealt to `worker`, and are not gone.
    #[must_use]
    pub(crate) fn load(&self, worker: WorkerId) -> usize {
        self.loads[usize::from(worker.0)].load(Ordering::SeqCst) as usize
    }

    /// All who came in have been dealt out.
    pub(crate) fn shut_doors(&self) {
        self.doors_shut.store(true, Ordering::SeqCst);
    }

    #[must_use]
    pub(crate) fn doors_are_shut(&self) -> bool {
        self.doors_shut.load(Ordering::SeqCst)
    }

    /// A client of `worker` is gone.
    pub fn undeal(&self, worker: WorkerId) {
        self.loads[usize::from(worker.0)].fetch_sub(1, Ordering::Relaxed);
    }
}

/// A worker that panicked while it held a lock has already taken the process down; what it guarded
/// is plain data.
fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often servers were made obsolete, by RECONNECT and RELOAD. Every worker opens its part of a
/// pool when it first needs it, and has to know in which epoch the others' servers are.
///
/// They count from 1: a server of epoch 0 is obsolete in any case.
#[derive(Debug)]
struct Epochs {
    last: u32,
    all: u32,
    databases: BTreeMap<Arc<str>, Mark>,
}

impl Default for Epochs {
    fn default() -> Self {
        Self { last: 1, all: 1, databases: BTreeMap::new() }
    }
}

/// When the servers of one database were last made obsolete.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    epoch: u32,
    /// The last site that did so.
    generation: u64,
}

/// How many clients there are: in all, per database, per user.
#[derive(Debug, Default)]
pub struct Census {
    /// All sockets, those that are still logging in included; not the console's.
    pub clients: u32,
    pub databases: BTreeMap<Arc<str>, u32>,
    pub users: BTreeMap<Arc<str>, u32>,
}

impl Census {
    /// Clients of `database`.
    #[must_use]
    pub fn of_database(&self, database: &str) -> u32 {
        self.databases.get(database).copied().unwrap_or(0)
    }

    /// Clients of `user`, over all databases.
    #[must_use]
    pub fn of_user(&self, user: &str) -> u32 {
        self.users.get(user).copied().unwrap_or(0)
    }

    /// One more client in `database` as `user`.
    pub fn enter(&mut self, database: &Arc<str>, user: &Arc<str>) {
        *self.databases.entry(database.clone()).or_insert(0) += 1;
        *self.users.entry(user.clone()).or_insert(0) += 1;
    }

    /// One less.
    pub fn leave(&mut self, database: &str, user: &str) {
        less(&mut self.databases, database);
        less(&mut self.users, user);
    }
}

fn less(counts: &mut BTreeMap<Arc<str>, u32>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

/// What logins leave behind for later ones.
#[derive(Default)]
pub struct Memory {
    /// What the servers of a pool said of themselves at login.
    pub welcomes: BTreeMap<PoolId, Arc<Welcome>>,
    /// What their connect_query makes of new servers of a pool.
    pub baselines: BTreeMap<PoolId, Option<Arc<session::State>>>,
    /// How the clients of a pool use what sequences give them.
    pub(crate) habits: BTreeMap<PoolId, Arc<session::Habit>>,
    /// The SCRAM keys with which a user logged in here: they open servers where only a verifier is
    /// stored. By user name.
    pub client_keys: BTreeMap<Arc<str>, KeyRing>,
    /// What else is known of a pool's user than stands in the userlist: the secret that was looked
    /// up when a client of it logged in.
    pub secrets: BTreeMap<PoolId, Secret>,
    /// The form that secrets of the servers have, as far as was seen.
    pub looked_up_form: Option<Form>,
    /// How many servers of a pool their clients keep between transactions, on all workers.
    pinned: BTreeMap<PoolId, u32>,
    /// Secrets that were looked up a moment ago.
    pub(crate) answers: Answers,
    /// Passwords already put through PBKDF2. At most [`DERIVED_MAX`].
    derived: BTreeMap<JobKey, Derived>,
}

/// More would mean that passwords change all the time; then starting anew costs little.
const DERIVED_MAX: usize = 100_000;

impl Memory {
    /// One more server of a pool is kept by its client; `false`: there are `max` already, and not 0.
    pub(crate) fn pin(&mut self, pool: PoolId, max: u32) -> bool {
        let pinned = self.pinned.entry(pool).or_default();
        if max > 0 && *pinned >= max {
            return false;
        }
        *pinned += 1;
        true
    }

    pub(crate) fn unpin(&mut self, pool: PoolId) {
        if let Some(pinned) = self.pinned.get_mut(&pool) {
            *pinned = pinned.saturating_sub(1);
            if *pinned == 0 {
                self.pinned.remove(&pool);
            }
        }
    }

    /// What a job with this key came to, if it was done before.
    #[must_use]
    pub fn derived(&self, key: Option<JobKey>) -> Option<Derived> {
        self.derived.get(&key?).cloned()
    }

    /// Keep what a job came to. A job without a key is nobody's but its login's.
    pub fn keep_derived(&mut self, key: Option<JobKey>, derived: Derived) {
        let Some(key) = key else { return };
        if self.derived.len() >= DERIVED_MAX {
            self.derived.clear();
        }
        self.derived.insert(key, derived);
    }
}
