//! Prepared statements that clients share: one for each distinct text and parameter types.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;

/// What every name on a server begins with.
pub(crate) const PREFIX: &[u8] = b"PGBOUNCER_";
/// A name that no statement ever has.
pub(crate) const NOBODY: &[u8] = b"PGBOUNCER_0";
/// The name of a statement that is there only so that no other can be given the name.
pub(crate) const TAKEN: &[u8] = b"PGBOUNCER_00";

/// A statement as it is known on servers.
#[derive(Debug)]
pub struct Statement {
    pub id: u64,
    /// `PGBOUNCER_<id>`.
    pub name: Box<[u8]>,
    pub query: Box<[u8]>,
    /// OIDs of the parameters' types in network order, as the client sent them.
    pub types: Box<[u8]>,
}

impl Statement {
    /// What it costs to keep, in bytes of text.
    pub(crate) fn weight(&self) -> usize {
        self.query.len() + self.types.len()
    }
}

/// A worker's statements. It holds none of them itself: one dies when the last client and the last
/// server have forgotten it.
#[derive(Debug)]
pub struct Statements {
    table: HashTable<Weak<Statement>>,
    /// The number of the last statement made. Shared by all workers and never set back, so that a
    /// name means one text for as long as the process runs.
    ids: Arc<AtomicU64>,
    /// Mixed into every hash: clients choose the texts, and must not choose the hashes.
    seed: u64,
    /// At this size the dead are cleared out.
    sweep_at: usize,
}

/// Fewer entries than this are never swept.
const SWEEP_MIN: usize = 64;

impl Statements {
    /// `ids` is the process's counter, starting at 0; `seed` is random.
    #[must_use]
    pub fn new(ids: Arc<AtomicU64>, seed: u64) -> Self {
        Self { table: HashTable::new(), ids, seed, sweep_at: SWEEP_MIN }
    }

    /// The one statement with this text and these types. Allocates only if it is new.
    pub fn intern(&mut self, query: &[u8], types: &[u8]) -> Arc<Statement> {
        let hash = hash(self.seed, query, types);
        let mut found = None;
        let same = |known: &Weak<Statement>| match known.upgrade() {
            Some(known) if *known.query == *query && *known.types == *types => {
                found = Some(known);
                true
            }
            _ => false,
        };
        self.table.find(hash, same);
        found.unwrap_or_else(|| self.insert(hash, query, types))
    }

    fn insert(&mut self, hash_new: u64, query: &[u8], types: &[u8]) -> Arc<Statement> {
        if self.table.len() >= self.sweep_at {
            self.table.retain(|known| known.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(self.table.len() * 2);
        }
        let id = self.ids.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("PGBOUNCER_{id}").into_bytes().into();
        let statement = Arc::new(Statement { id, name, query: query.into(), types: types.into() });
        let seed = self.seed;
        self.table.insert_unique(hash_new, Arc::downgrade(&statement), |known| {
            // One that died meanwhile may land anywhere: it is never looked for again.
            known.upgrade().map_or(0, |known| hash(seed, &known.query, &known.types))
        });
        statement
    }

    /// How many are in the table, living or not yet cleared out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

fn hash(seed: u64, query: &[u8], types: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write_u64(seed);
    // The length keeps a text that ends in bytes like types apart from one with types.
    hasher.write_usize(query.len());
    hasher.write(query);
    hasher.write(types);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements() -> Statements {
        Statements::new(Arc::default(), 7)
    }

    #[test]
    fn the_same_text_and_types_are_one_statement() {
        let mut statements = statements();
        let first = statements.intern(b"select $1", &[0, 0, 0, 23]);
        assert!(Arc::ptr_eq(&first, &statements.intern(b"select $1", &[0, 0, 0, 23])));
        let other = statements.intern(b"select $1", &[0, 0, 0, 25]);
        assert_eq!((&*first.name, &*other.name), (&b"PGBOUNCER_1"[..], &b"PGBOUNCER_2"[..]));
    }

    /// A million texts that nobody keeps leave nothing behind, and no name comes back.
    #[test]
    fn the_forgotten_are_cleared_out() {
        let mut statements = statements();
        let kept = statements.intern(b"kept", b"");
        for i in 0..10_000 {
            statements.intern(format!("select {i}").as_bytes(), b"");
        }
        assert!(statements.len() <= SWEEP_MIN * 2);
        assert!(Arc::ptr_eq(&kept, &statements.intern(b"kept", b"")));
        assert_eq!(statements.intern(b"select 1", b"").id, 10_002);
    }
}
