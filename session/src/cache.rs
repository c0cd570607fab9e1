//! The prepared statements on one server, the least recently used first to go.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::{Ledger, Trust};
use crate::rules::Rules;
use crate::statements::Statement;

/// The statements as they will be if all that was sent goes well.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    by_id: BTreeMap<u64, Known>,
    /// Ids of the prepared ones by when they were last used.
    order: BTreeMap<u64, u64>,
    /// Counts uses.
    clock: u64,
    /// Text of the prepared ones, in bytes.
    weight: usize,
}

/// What is known of a statement on the server.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    statement: Arc<Statement>,
    state: State,
    /// The ledger's number of the entry that made it so.
    since: u64,
    /// The ledger's number of the last entry that needs it.
    used: u64,
    /// Its place in `order`.
    turn: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Prepared,
    /// A Close is on its way.
    Closed,
}

/// Whether the server has a statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    Absent,
    Prepared,
    /// That depends on an answer still to come.
    Open,
}

impl Cache {
    pub(crate) fn standing(&self, id: u64, ledger: &Ledger) -> Standing {
        match self.by_id.get(&id) {
            None => Standing::Absent,
            Some(known) if ledger.may_wipe() || ledger.trust(known.since) == Trust::Open => {
                Standing::Open
            }
            Some(Known { state: State::Closed, .. }) => Standing::Absent,
            Some(_) => Standing::Prepared,
        }
    }

    /// Entry `at` needs this statement.
    pub(crate) fn touch(&mut self, id: u64, at: u64) {
        let Some(known) = self.by_id.get_mut(&id) else { return };
        self.clock += 1;
        self.order.remove(&known.turn);
        self.order.insert(self.clock, id);
        (known.turn, known.used) = (self.clock, at);
    }

    /// Entry `at` prepares this statement. What was known of it is returned.
    pub(crate) fn prepare(&mut self, statement: &Arc<Statement>, at: u64) -> Option<Known> {
        let before = self.take(statement.id);
        self.clock += 1;
        let (statement, turn) = (Arc::clone(statement), self.clock);
        self.put(Known { statement, state: State::Prepared, since: at, used: at, turn });
        before
    }

    /// Entry `at` closes this statement. What was known of it is returned.
    pub(crate) fn close(&mut self, id: u64, at: u64) -> Option<Known> {
        let before = self.take(id);
        if let Some(known) = before.clone() {
            self.put(Known { state: State::Closed, since: at, ..known });
        }
        before
    }

    /// Put back what was known before it was skipped. All below `failed` is answered.
    pub(crate) fn restore(&mut self, id: u64, before: Option<Known>, failed: u64) {
        self.take(id);
        if let Some(known) = before
            && (known.state == State::Prepared || known.since >= failed)
        {
            self.put(known);
        }
    }

    /// Entry `at`, which did something to this statement, was answered.
    pub(crate) fn settle(&mut self, id: u64, at: u64) {
        if self.by_id.get(&id).is_some_and(|k| k.state == State::Closed && k.since == at) {
            self.by_id.remove(&id);
        }
    }

    /// The server does not have it after all.
    pub(crate) fn remove(&mut self, id: u64) {
        self.take(id);
    }

    /// All statements are gone that were prepared before entry `at`.
    pub(crate) fn clear(&mut self, at: u64) {
        let gone = self.by_id.iter().filter(|(_, known)| known.is_before(at));
        for id in gone.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take(id);
        }
    }

    /// Which statement has to go to make room for one more with this much text. None of those that
    /// an unanswered message needs: they cannot be spared however many they are.
    pub(crate) fn in_the_way(
        &self,
        weight: usize,
        rules: &Rules,
        ledger: &Ledger,
    ) -> Option<Arc<Statement>> {
        let (_, id) = self.order.first_key_value()?;
        let oldest = self.by_id.get(id)?;
        let fits = (self.order.len() as u64) < u64::from(rules.prepared_max)
            && self.weight.saturating_add(weight) <= rules.prepared_bytes;
        // The rest were used later still.
        let needed = oldest.used >= ledger.first() && oldest.used < ledger.next();
        if fits || needed { None } else { Some(Arc::clone(&oldest.statement)) }
    }

    /// All that are prepared, if all goes well.
    pub(crate) fn all(&self) -> Vec<Arc<Statement>> {
        let known = self.order.values().filter_map(|id| self.by_id.get(id));
        known.map(|known| Arc::clone(&known.statement)).collect()
    }

    /// All are closed by what is sent now. Their names are returned.
    pub(crate) fn forget_all(&mut self) -> Vec<Box<[u8]>> {
        let all = std::mem::take(self).by_id.into_values();
        all.map(|known| known.statement.name.clone()).collect()
    }

    /// How many are prepared.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    fn take(&mut self, id: u64) -> Option<Known> {
        let known = self.by_id.remove(&id)?;
        if known.state == State::Prepared {
            self.order.remove(&known.turn);
            self.weight -= known.statement.weight();
        }
        Some(known)
    }

    fn put(&mut self, known: Known) {
        if known.state == State::Prepared {
            self.order.insert(known.turn, known.statement.id);
            self.weight += known.statement.weight();
        }
        self.by_id.insert(known.statement.id, known);
    }
}

impl Known {
    /// Whether this was so before entry `at`.
    pub(crate) fn is_before(&self, at: u64) -> bool {
        self.since < at
    }
}
