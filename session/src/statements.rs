//! Prepared statements that clients share: one for each distinct text and parameter types.

use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use hashbrown::HashTable;

use crate::ages::{Ages, Words};
use crate::dress::Dress;
use crate::fit::Told;
use crate::hidden::{Hidden, Place};
use crate::pids::{self, Pids};
use crate::recent::{PLACES, index, print, spread};
use crate::sight::Sights;
use crate::{Read, Reading, Readings};

/// What every name on a server begins with.
pub(crate) const PREFIX: &[u8] = b"PGBOUNCER_";
/// A name that no statement ever has.
pub(crate) const NOBODY: &[u8] = b"PGBOUNCER_0";
/// The name of a statement that is there only so that no other can be given the name.
pub(crate) const TAKEN: &[u8] = b"PGBOUNCER_00";
/// The name of a statement and a portal that are there for one message.
pub(crate) const SCRATCH: &[u8] = b"PGBOUNCER_000";

/// A statement as it is known on servers.
#[derive(Debug)]
pub struct Statement {
    pub id: u64,
    /// `PGBOUNCER_<id>`.
    pub name: Box<[u8]>,
    pub query: Box<[u8]>,
    /// OIDs of the parameters' types in network order, as the client sent them.
    pub types: Box<[u8]>,
    /// With which settings it was parsed first: with others the text may mean something else.
    pub(crate) ground: Ground,
    /// These settings.
    pub(crate) dress: OnceLock<Dress>,
    /// What it stands on, and how often that had been changed when it was first parsed.
    words: Words,
    age: u32,
    /// What clients were told of it.
    pub(crate) told: Told,
    /// Whether what it returns has changed since it was prepared.
    changed: AtomicBool,
    /// What running it may do to a session, once somebody wanted to know.
    pub(crate) reading: OnceLock<Arc<Reading>>,
    /// Whether its text may hold the pid of a client.
    pub(crate) holds_pids: bool,
    /// Whether one of its parameters could be one.
    pub(crate) takes_pids: bool,
}

/// What decides, besides its text, what a statement means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ground {
    /// A number for the settings.
    Known(u64),
    /// Nobody knows the settings: it is for one client only.
    Unknown,
}

impl Statement {
    fn new(id: u64, query: &[u8], types: &[u8], ground: Ground, ages: &Ages) -> Arc<Self> {
        let name = format!("PGBOUNCER_{id}").into_bytes().into();
        let (holds_pids, takes_pids) = (pids::may_hold(query), pids::takes_some(query));
        // Only what is shared is compared.
        let words = if ground == Ground::Unknown { Words::TooMany } else { Words::of(query) };
        let (query, types, reading) = (query.into(), types.into(), OnceLock::new());
        let changed = AtomicBool::new(false);
        let age = ages.of(&words);
        Arc::new(Self {
            id,
            name,
            query,
            types,
            ground,
            dress: OnceLock::new(),
            words,
            age,
            told: Told::default(),
            changed,
            reading,
            holds_pids,
            takes_pids,
        })
    }

    /// A number for its ground. Where nobody knows that, nobody else has it.
    pub(crate) fn ground_number(&self) -> u64 {
        match self.ground {
            Ground::Known(number) => number,
            Ground::Unknown => !self.id,
        }
    }

    /// Whether it is what a Parse of this is to be given.
    fn is(&self, query: &[u8], types: &[u8], ground: Ground, ages: &Ages) -> bool {
        self.ground == ground
            && *self.query == *query
            && *self.types == *types
            && self.is_of_now(ages)
    }

    /// Whether a Parse of its text is to be given it: nothing has changed since.
    pub(crate) fn is_of_now(&self, ages: &Ages) -> bool {
        self.age == ages.of(&self.words) && !self.has_changed()
    }

    /// What it returns is not what it was: nobody who comes now is to have it.
    pub(crate) fn changes(&self) {
        self.changed.store(true, Relaxed);
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    /// What it costs to keep, in bytes of text.
    pub(crate) fn weight(&self) -> usize {
        self.query.len() + self.types.len()
    }
}

/// A worker's statements. It holds none of them itself: one dies when the last client and the last
/// server have forgotten it.
///
/// What this worker has not met it looks up in the process's [`Registry`], so that a text has one
/// name on every server, whichever worker that is with. What it has met costs no lock.
#[derive(Debug)]
pub struct Statements {
    met: Table,
    /// What came a moment ago: comparing a text with itself costs less than its hash.
    near: [Weak<Statement>; PLACES],
    registry: Arc<Registry>,
    readings: Readings,
    /// What reports tell of texts.
    pub(crate) sights: Sights,
    pub(crate) pids: Arc<Pids>,
}

/// The statements of all workers.
#[derive(Debug)]
pub struct Registry {
    all: Mutex<All>,
    ages: Arc<Ages>,
    /// What stands behind names.
    hidden: Hidden,
}

#[derive(Debug)]
struct All {
    table: Table,
    /// The number of the last statement made; never set back, so that a name means one text for as
    /// long as the process runs.
    last: u64,
}

impl Registry {
    /// `seed` is random: clients choose the texts, and must not choose the hashes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let all = Mutex::new(All { table: Table::new(seed), last: 0 });
        Self { all, ages: Arc::default(), hidden: Hidden::default() }
    }

    fn intern(&self, hash: u64, query: &[u8], types: &[u8], ground: Ground) -> Arc<Statement> {
        let mut all = self.all();
        if let Some(known) = all.table.find(hash, query, types, ground, &self.ages) {
            return known;
        }
        all.last += 1;
        let statement = Statement::new(all.last, query, types, ground, &self.ages);
        all.table.insert(hash, &statement);
        statement
    }

    fn next(&self) -> u64 {
        let mut all = self.all();
        all.last += 1;
        all.last
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Whoever panicked in here left the table whole: it is changed by single calls.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seed(&self) -> u64 {
        self.all().table.seed
    }
}

impl Statements {
    #[must_use]
    pub fn new(registry: Arc<Registry>, read: Read) -> Self {
        let readings = Readings::new(read, registry.seed());
        let pids = Arc::default();
        let sights = Sights::default();
        let (met, near) = (Table::new(registry.seed()), std::array::from_fn(|_| Weak::new()));
        Self { met, near, registry, readings, sights, pids }
    }

    /// As [`Self::new`], for a process whose clients have pids.
    #[must_use]
    pub fn with_pids(self, pids: Arc<Pids>) -> Self {
        Self { pids, ..self }
    }

    /// What a simple query's text may do to a session.
    pub(crate) fn reading(&mut self, text: &[u8]) -> Arc<Reading> {
        self.readings.of(text)
    }

    /// What running `statement` may do.
    pub(crate) fn reading_of<'a>(&mut self, statement: &'a Statement) -> &'a Arc<Reading> {
        statement.reading.get_or_init(|| self.readings.of(&statement.query))
    }

    /// The one statement with this text and these types, parsed with these settings. Allocates only if it is new
    /// here.
    pub(crate) fn intern(&mut self, query: &[u8], types: &[u8], ground: Ground) -> Arc<Statement> {
        if ground == Ground::Unknown {
            return Statement::new(self.registry.next(), query, types, ground, self.ages());
        }
        let place = place(query, types, ground);
        if let Some(known) = self.near.get(place).and_then(Weak::upgrade)
            && known.is(query, types, ground, self.ages())
        {
            return known;
        }
        let statement = self.intern_by_hash(query, types, ground);
        if let Some(near) = self.near.get_mut(place) {
            *near = Arc::downgrade(&statement);
        }
        statement
    }

    fn intern_by_hash(&mut self, query: &[u8], types: &[u8], ground: Ground) -> Arc<Statement> {
        let hash = hash(self.met.seed, query, types, ground);
        if let Some(known) = self.met.find(hash, query, types, ground, self.ages()) {
            return known;
        }
        let statement = self.registry.intern(hash, query, types, ground);
        self.met.insert(hash, &statement);
        statement
    }

    /// How often anything may have been changed that statements stand on.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.ages().all()
    }

    /// So many seconds have gone by.
    pub fn tell_second(&self, second: u32) {
        self.ages().is(second);
    }

    /// Where names are looked up for a pool of this number.
    pub(crate) fn place(&self, pool: u64) -> Place<'_> {
        Place { hidden: &self.registry.hidden, ages: self.ages(), pool }
    }

    pub(crate) fn ages(&self) -> &Arc<Ages> {
        &self.registry.ages
    }

    /// How many are in the table, living or not yet cleared out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.met.statements.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.met.statements.is_empty()
    }
}

/// Statements by text and types; it keeps none of them alive.
#[derive(Debug)]
struct Table {
    statements: HashTable<Weak<Statement>>,
    seed: u64,
    /// At this size the dead are cleared out.
    sweep_at: usize,
}

/// Fewer entries than this are never swept.
const SWEEP_MIN: usize = 64;

impl Table {
    fn new(seed: u64) -> Self {
        Self { statements: HashTable::new(), seed, sweep_at: SWEEP_MIN }
    }

    fn find(
        &self,
        hash: u64,
        query: &[u8],
        types: &[u8],
        ground: Ground,
        ages: &Ages,
    ) -> Option<Arc<Statement>> {
        let mut found = None;
        let same = |known: &Weak<Statement>| match known.upgrade() {
            Some(known) if known.is(query, types, ground, ages) => {
                found = Some(known);
                true
            }
            _ => false,
        };
        self.statements.find(hash, same);
        found
    }

    fn insert(&mut self, hash_new: u64, statement: &Arc<Statement>) {
        if self.statements.len() >= self.sweep_at {
            self.statements.retain(|known| known.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(self.statements.len() * 2);
        }
        let seed = self.seed;
        self.statements.insert_unique(hash_new, Arc::downgrade(statement), |known| {
            // One that died meanwhile may land anywhere: it is never looked for again.
            known.upgrade().map_or(0, |known| hash(seed, &known.query, &known.types, known.ground))
        });
    }
}

/// Where it is looked for before it is looked for in earnest.
fn place(query: &[u8], types: &[u8], ground: Ground) -> usize {
    let of_types = if types.is_empty() { 0 } else { print(types) };
    let of_ground = if let Ground::Known(number) = ground { spread(number) } else { 0 };
    index(print(query) ^ of_types.rotate_left(1) ^ of_ground)
}

fn hash(seed: u64, query: &[u8], types: &[u8], ground: Ground) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(seed);
    if let Ground::Known(number) = ground {
        hasher.write_u64(number);
    }
    // The length keeps a text that ends in bytes like types apart from one with types.
    hasher.write_usize(query.len());
    hasher.write(query);
    hasher.write(types);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Ground = Ground::Known(0);

    fn statements() -> Statements {
        Statements::new(Arc::new(Registry::new(7)), |_| Reading::unknown())
    }

    #[test]
    fn the_same_text_and_types_are_one_statement() {
        let mut statements = statements();
        let first = statements.intern(b"select $1", &[0, 0, 0, 23], PLAIN);
        assert!(Arc::ptr_eq(&first, &statements.intern(b"select $1", &[0, 0, 0, 23], PLAIN)));
        let other = statements.intern(b"select $1", &[0, 0, 0, 25], PLAIN);
        assert_eq!((&*first.name, &*other.name), (&b"PGBOUNCER_1"[..], &b"PGBOUNCER_2"[..]));
    }

    #[test]
    fn the_same_text_on_other_grounds_is_another() {
        let mut statements = statements();
        let first = statements.intern(b"select a from t", b"", PLAIN);
        let other = statements.intern(b"select a from t", b"", Ground::Known(5));
        let own = statements.intern(b"select a from t", b"", Ground::Unknown);
        let again = statements.intern(b"select a from t", b"", Ground::Unknown);
        assert_eq!([first.id, other.id, own.id, again.id], [1, 2, 3, 4]);
    }

    /// Of many more than there are places for what came a moment ago, none is taken for another, nor for what it was.
    #[test]
    fn what_is_near_is_what_was_asked_for() {
        let mut statements = statements();
        for round in 0..3 {
            for number in 0..300_u64 {
                let query = format!("select {}", number % 10).into_bytes();
                let types = [[0, 0, 0, 23], [0, 0, 0, 25], [0; 4]][number as usize / 10 % 3];
                let types = types.strip_suffix(&[0]).unwrap_or(&types[..]);
                let ground = Ground::Known(number / 30);
                let found = statements.intern(&query, types, ground);
                assert_eq!(
                    (&*found.query, &*found.types, found.ground),
                    (&query[..], types, ground)
                );
                assert!(!found.has_changed());
                assert!(Arc::ptr_eq(&found, &statements.intern(&query, types, ground)));
                if round == 1 {
                    found.changes();
                    assert!(!Arc::ptr_eq(&found, &statements.intern(&query, types, ground)));
                }
            }
        }
    }

    /// A server that goes from one worker to another finds its statements known there.
    #[test]
    fn workers_agree_on_names() {
        let registry = Arc::new(Registry::new(7));
        let (mut here, mut there) = (
            Statements::new(registry.clone(), |_| Reading::unknown()),
            Statements::new(registry.clone(), |_| Reading::unknown()),
        );
        let first = here.intern(b"select 1", b"", PLAIN);
        there.intern(b"select 2", b"", PLAIN);
        assert!(Arc::ptr_eq(&first, &there.intern(b"select 1", b"", PLAIN)));
    }

    /// A million texts that nobody keeps leave nothing behind, and no name comes back.
    #[test]
    fn the_forgotten_are_cleared_out() {
        let mut statements = statements();
        let kept = statements.intern(b"kept", b"", PLAIN);
        for i in 0..10_000 {
            statements.intern(format!("select {i}").as_bytes(), b"", PLAIN);
        }
        assert!(statements.len() <= SWEEP_MIN * 2);
        assert!(Arc::ptr_eq(&kept, &statements.intern(b"kept", b"", PLAIN)));
        assert_eq!(statements.intern(b"select 1", b"", PLAIN).id, 10_002);
    }
}
