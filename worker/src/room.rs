//! One worker's part of a pool, with what it takes to serve it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use admin::StatsFacts;
use config::{Config, Database, KINDS, PoolMode, StateKind, UserRow, Verdict};
use io::Driver;
use metrics::{Counters, History};
use pool::{BankLimits, Duration, Instant, Limits, Pool, PoolId};
use session::{Mode, Rules, Tie, Ties};

use crate::ears::Ears;
use crate::pins::Tallies;
use crate::report::Report;
use crate::welcome::Welcome;
use crate::worker::Worker;
use crate::world::World;

/// Most logins of one pool under way at once on one worker: a cold pool fills fast, and a server
/// that comes back is not stormed.
const OPENING_MAX: u32 = 8;

/// Text of prepared statements that one server may hold, in bytes.
const PREPARED_BYTES: usize = 4 << 20;

/// Settings that a server took, as it spells them.
#[derive(Clone)]
pub(crate) struct Proof {
    /// Tracked parameters, without `application_name`.
    pub(crate) vars: Vec<(String, Vec<u8>)>,
    /// All others.
    pub(crate) state: Option<Arc<session::State>>,
}

/// A pool, as its worker holds it.
pub(crate) struct Room {
    pub(crate) pool: Pool,
    pub(crate) database: Arc<Database>,
    /// The database's name as clients give it.
    pub(crate) name: Arc<str>,
    /// Who logs in to the servers.
    pub(crate) user: Arc<str>,
    pub(crate) rules: Rules,
    pub(crate) terms: Terms,
    /// Most servers whose clients may keep them; 0 is no limit.
    pub(crate) max_pinned: u32,
    /// State of which the log warns.
    pub(crate) warned: Ties,
    pub(crate) pins: Tallies,
    /// What its clients did, where that is reported.
    pub(crate) report: Option<Box<Report>>,
    /// `server_reset_query`, where it is to be run at every release.
    pub(crate) reset: Option<Box<str>>,
    /// Settings asked for at login that its servers are known to take, and as what.
    pub(crate) proven: HashMap<session::Asked, Proof>,
    /// What its servers said of themselves at login; nobody gets in before somebody knows.
    pub(crate) welcome: Option<Arc<Welcome>>,
    pub(crate) counters: Counters,
    pub(crate) history: History,
    /// Why obsolete servers are obsolete, for the log.
    pub(crate) obsolete_because: &'static str,
    /// The last login failed just now: who waits hears the error itself, not that it is an old one.
    pub(crate) error_is_news: bool,
    /// Clients here, in line or not.
    pub(crate) clients: u32,
    pub(crate) empty_since: Instant,
    /// Clients that listen without a server.
    pub(crate) ears: Ears,
    /// Whether it stands among those that a tick looks at.
    pub(crate) awake: bool,
}

/// How long things may take here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) wait: Option<Duration>,
    pub(crate) query: Option<Duration>,
    pub(crate) idle_transaction: Option<Duration>,
    pub(crate) transaction: Option<Duration>,
    pub(crate) client_idle: Option<Duration>,
    pub(crate) pin: Option<Duration>,
    pub(crate) pin_idle: Option<Duration>,
}

impl Room {
    pub(crate) fn mode(&self) -> Mode {
        self.rules.mode
    }
}

/// The limits of the pool of `database` and `user`, as one worker keeps them.
pub(crate) fn limits(config: &Config, database: &Database, user: &str) -> Limits {
    let row = config.user(user).map(AsRef::as_ref);
    let settings = &config.settings;
    let some = |time: Duration| (!time.is_zero()).then_some(time);
    Limits {
        wait: config.query_wait_timeout(database, row),
        notify: some(Duration::from_secs(u64::from(settings.query_wait_notify))),
        idle: some(settings.server_idle_timeout),
        lifetime: config.server_lifetime(database, row),
        check_delay: settings.check_query().map(|_| settings.server_check_delay),
        round_robin: settings.server_round_robin,
        size: config.pool_size(database, row).map_or(0, NonZeroU32::get),
        opening_max: OPENING_MAX,
    }
}

/// The limits that the bank keeps over all workers.
pub(crate) fn bank_limits(config: &Config, database: &Database, user: &str) -> BankLimits {
    let row = config.user(user).map(AsRef::as_ref);
    let settings = &config.settings;
    BankLimits {
        size: config.pool_size(database, row).map(NonZeroU32::get),
        reserve: config.reserve_pool_size(database, row),
        reserve_after: Some(settings.reserve_pool_timeout).filter(|after| !after.is_zero()),
        min: config.min_pool_size(database, row),
        db_max: config.max_db_connections(database, row).map(NonZeroU32::get),
        user_max: config.max_user_connections(database, row).map(NonZeroU32::get),
        login_retry: settings.server_login_retry,
    }
}

/// The kinds of session state about which `verdict` is done.
fn kinds(config: &Config, database: &Database, user: Option<&UserRow>, verdict: Verdict) -> Ties {
    let mut ties = Ties::default();
    for row in &KINDS {
        if config.verdict(database, user, row.kind) == verdict {
            ties.add(tie(row.kind));
        }
    }
    ties
}

fn tie(kind: StateKind) -> Tie {
    match kind {
        StateKind::Settings => Tie::Settings,
        StateKind::PreparedStatement => Tie::PreparedStatement,
        StateKind::Listen => Tie::Listen,
        StateKind::TemporaryTable => Tie::TemporaryTable,
        StateKind::AdvisoryLock => Tie::AdvisoryLock,
        StateKind::HoldableCursor => Tie::HoldableCursor,
        StateKind::Load => Tie::Load,
        StateKind::Seed => Tie::Seed,
        StateKind::Sequence => Tie::Sequence,
        StateKind::Unknown => Tie::Unknown,
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn room(&self, id: PoolId) -> Option<&Room> {
        self.rooms.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn room_mut(&mut self, id: PoolId) -> Option<&mut Room> {
        self.rooms.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// The database that clients call `name`: listed, or made from `*` when first asked for.
    pub(crate) fn database_of(&mut self, name: &Arc<str>) -> Option<Arc<Database>> {
        let config = &self.site.config;
        if let Some(listed) = config.databases.get(&**name) {
            return Some(listed.clone());
        }
        if let Some(made) = self.autodbs.get(name) {
            return Some(made.clone());
        }
        let made = config.database(name)?;
        self.autodbs.insert(name.clone(), made.clone());
        Some(made)
    }

    /// The pool of `name` and `user`, which is opened if nobody used it here before.
    pub(crate) fn room_for(
        &mut self,
        name: &Arc<str>,
        user: &Arc<str>,
        database: &Arc<Database>,
    ) -> PoolId {
        let key = (name.clone(), user.clone());
        if let Some(id) = self.room_ids.get(&key) {
            return *id;
        }
        let bank = bank_limits(&self.site.config, database, user);
        let (id, board, epoch) = self.commons.open_pool(name, user, bank, self.site.generation);
        let limits = limits(&self.site.config, database, user);
        let mut pool = Pool::new(id, self.me, limits, board);
        let mut none = Vec::new();
        pool.reconnect(epoch, self.now, &mut none);
        if self.standing.pauses(name) {
            pool.pause(self.now, &mut none);
        }
        debug_assert!(none.is_empty(), "an empty pool orders nothing");
        let room = Room {
            pool,
            database: database.clone(),
            name: name.clone(),
            user: user.clone(),
            rules: Rules::default(),
            terms: Terms::default(),
            max_pinned: 0,
            warned: Ties::default(),
            pins: Tallies::default(),
            report: None,
            reset: None,
            proven: HashMap::new(),
            welcome: self.commons.memory().welcomes.get(&id).cloned(),
            counters: Counters::default(),
            history: History::new(self.now.0 / 1000),
            obsolete_because: "obsolete connection",
            error_is_news: false,
            clients: 0,
            empty_since: self.now,
            ears: Ears::default(),
            awake: false,
        };
        let index = id.0 as usize;
        if self.rooms.len() <= index {
            self.rooms.resize_with(index + 1, || None);
        }
        self.rooms[index] = Some(Box::new(room));
        self.room_ids.insert(key, id);
        self.furnish(id);
        id
    }

    /// Set a room's rules by the configuration in force.
    pub(crate) fn furnish(&mut self, id: PoolId) {
        let site = self.site.clone();
        let config = &site.config;
        let settings = &config.settings;
        let Some(Some(room)) = self.rooms.get_mut(id.0 as usize) else { return };
        if let Some(listed) = config.databases.get(&*room.name) {
            room.database = listed.clone();
        } else if let Some(made) = config.database(&room.name) {
            room.database = made.clone();
            self.autodbs.insert(room.name.clone(), made);
        }
        let database = &room.database;
        let row = config.user(&room.user).map(AsRef::as_ref);
        let mode = match config.pool_mode(database, row) {
            PoolMode::Session => Mode::Session,
            PoolMode::Transaction => Mode::Transaction,
            PoolMode::Statement => Mode::Statement,
        };
        room.rules = Rules {
            mode,
            prepared_max: settings.max_prepared_statements,
            prepared_bytes: PREPARED_BYTES,
            packet_max: settings.max_packet_size,
            pqexec: !settings.disable_pqexec,
            follows: settings.track_session_state,
            doubts: settings.session_state_check_always,
            refused: kinds(config, database, row, Verdict::Error),
            reports: config.session_report(database, row),
        };
        room.warned = kinds(config, database, row, Verdict::Warn);
        room.max_pinned = config.max_pinned_servers(database, row).map_or(0, NonZeroU32::get);
        room.terms = Terms {
            wait: config.query_wait_timeout(database, row),
            query: config.query_timeout(database, row),
            idle_transaction: config.idle_transaction_timeout(database, row),
            transaction: config.transaction_timeout(database, row),
            client_idle: config.client_idle_timeout(database, row),
            pin: config.pin_timeout(database, row),
            pin_idle: config.pin_idle_timeout(database, row),
        };
        let wanted = mode == Mode::Session || settings.server_reset_query_always;
        let query = settings.server_reset_query.trim();
        room.reset = (wanted && !query.is_empty()).then(|| query.into());
    }

    /// Databases with a forced user have their pool from the start, so that min_pool_size can act.
    pub(crate) fn open_forced_rooms(&mut self) {
        // One worker is enough: servers move to where they are wanted.
        if self.me.0 != 0 {
            return;
        }
        let site = self.site.clone();
        for (name, database) in &site.config.databases {
            let row = database.user.as_deref().and_then(|user| site.config.user(user));
            let min = site.config.min_pool_size(database, row.map(AsRef::as_ref));
            if let Some(user) = &database.user
                && min > 0
            {
                self.room_for(&name.as_str().into(), &user.as_str().into(), database);
            }
        }
    }

    /// Pools that nobody has used for long go, so that thousands of databases made from `*` do not
    /// add up.
    pub(crate) fn sweep_rooms(&mut self, some: Range<usize>) {
        let settings = &self.site.config.settings;
        let idle = |limit: Duration| (!limit.is_zero()).then_some(limit);
        let (auto, any) = (idle(settings.autodb_idle_timeout), idle(settings.pool_idle_timeout));
        let mut going = Vec::new();
        for room in self.rooms.get_mut(some).into_iter().flatten().flatten() {
            if room.clients > 0 || !room.pool.is_empty() {
                room.empty_since = self.now;
                continue;
            }
            let listed = self.site.config.databases.contains_key(&*room.name);
            let limit = if listed { any } else { any.into_iter().chain(auto).min() };
            let kept = self.site.config.min_pool_size(&room.database, None) > 0;
            let unused = self.now.since(room.empty_since);
            if limit.is_some_and(|limit| unused >= limit) && !(kept && listed) {
                going.push((room.pool.id(), room.name.clone(), room.user.clone(), listed, unused));
            }
        }
        for (id, name, user, listed, unused) in going {
            if let Some(room) = self.rooms[id.0 as usize].take()
                && listed
            {
                // A pool made from `*` takes its statistics with it; a listed database keeps them.
                let counted = StatsFacts { total: room.counters, history: room.history };
                *self.former.entry(name.to_string()).or_default() += counted;
            }
            self.room_ids.remove(&(name.clone(), user.clone()));
            let mut calls = Vec::new();
            self.commons.leave_pool(id, self.me, &name, &mut calls);
            self.deliver(calls);
            if listed {
                let age = unused.as_secs();
                self.log(
                    crate::log::Level::Log,
                    format_args!(
                        "cleaning up idle pool for user {user} on db {name} because: \
                         pool idle timeout (age= {age}s)"
                    ),
                );
            } else if !self.has_room_of(&name) {
                self.autodbs.remove(&name);
            }
        }
    }

    fn has_room_of(&self, name: &Arc<str>) -> bool {
        let first = (name.clone(), Arc::from(""));
        self.room_ids.range(first..).next().is_some_and(|((database, _), _)| database == name)
    }

    /// A server came for a pool that this worker has not used yet.
    pub(crate) fn open_room_of(&mut self, id: PoolId, name: &Arc<str>, user: &Arc<str>) {
        if self.room(id).is_none()
            && let Some(database) = self.database_of(name)
        {
            self.room_for(name, user, &database);
        }
    }
}
