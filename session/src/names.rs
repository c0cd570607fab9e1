//! A client's names for its prepared statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::foresight::Grounds;
use crate::ledger::{Ledger, Trust};
use crate::statements::Statement;

/// The names as they will be if all that was sent goes well.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_name: BTreeMap<Arc<[u8]>, Name>,
    /// On which grounds they were parsed that ever were among them.
    pub(crate) grounds: Grounds,
}

/// What a name means.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    /// `None`: it is being closed.
    pub(crate) statement: Option<Arc<Statement>>,
    /// The ledger's number of the entry that made it so; 0 once that is answered, for numbers mean
    /// nothing on the client's next server.
    pub(crate) since: u64,
    /// Whether others prepared it, and it has not been of use to this client yet.
    pub(crate) unproven: bool,
}

/// What a name stands for now.
#[derive(Debug)]
pub(crate) enum Meaning {
    Nothing,
    /// The statement, the name as the map holds it, and whether it is yet to be proven.
    Statement(Arc<Statement>, Arc<[u8]>, bool),
    /// That depends on an answer still to come.
    Open,
}

impl Names {
    pub(crate) fn meaning(&self, name: &[u8], ledger: &Ledger) -> Meaning {
        let Some((key, found)) = self.by_name.get_key_value(name) else { return Meaning::Nothing };
        match &found.statement {
            _ if ledger.may_wipe() || ledger.trust(found.since) == Trust::Open => Meaning::Open,
            Some(statement) => {
                Meaning::Statement(Arc::clone(statement), Arc::clone(key), found.unproven)
            }
            None => Meaning::Nothing,
        }
    }

    /// Give a name this meaning. What it meant before is returned.
    pub(crate) fn put(&mut self, name: &Arc<[u8]>, meaning: Option<Name>) -> Option<Name> {
        if let Some(statement) = meaning.as_ref().and_then(|meaning| meaning.statement.as_ref()) {
            self.grounds.add(statement.ground);
        }
        match meaning {
            Some(meaning) => self.by_name.insert(Arc::clone(name), meaning),
            None => self.by_name.remove(name),
        }
    }

    pub(crate) fn statement(&self, name: &[u8]) -> Option<&Statement> {
        self.by_name.get(name)?.statement.as_deref()
    }

    /// What the name means was of use to the client, or is prepared for it.
    pub(crate) fn prove(&mut self, name: &[u8]) {
        if let Some(found) = self.by_name.get_mut(name) {
            found.unproven = false;
        }
    }

    /// A name means this statement now, which has the text of the one it meant.
    pub(crate) fn turn_into(&mut self, name: &[u8], statement: &Arc<Statement>) {
        self.grounds.add(statement.ground);
        if let Some(found) = self.by_name.get_mut(name) {
            found.statement = Some(Arc::clone(statement));
        }
    }

    /// Put back what a name meant before it was skipped. All below `failed` is answered.
    pub(crate) fn restore(&mut self, name: &Arc<[u8]>, before: Option<Name>, failed: u64) {
        let before = before.map(|name| match name.since {
            since if since < failed => Name { since: 0, ..name },
            _ => name,
        });
        self.put(name, before.filter(|name| name.statement.is_some() || name.since > 0));
    }

    /// The entry that gave `name` its meaning was answered.
    pub(crate) fn settle(&mut self, name: &Arc<[u8]>, at: u64) {
        let Some(found) = self.by_name.get_mut(name).filter(|found| found.since == at) else {
            return;
        };
        found.since = 0;
        if found.statement.is_none() {
            self.by_name.remove(name);
        }
    }

    /// All names are gone that were given before entry `at`.
    pub(crate) fn clear(&mut self, at: u64) {
        self.by_name.retain(|_, name| name.since > at);
    }

    pub(crate) fn all(&self) -> Vec<Arc<[u8]>> {
        self.by_name.keys().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.values().filter(|name| name.statement.is_some()).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}
