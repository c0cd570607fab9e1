//! Names that the protocol and SQL share: what the one prepared, the other may use and give up.
//!
//! On servers a client's statements have names of ours. A text that calls one by the client's name gets it
//! under that name for just as long: prepared in front of it, closed behind it.

use std::sync::Arc;

use wire::{Namespace, write};

use crate::ledger::{What, Whose};
use crate::made::Deed;
use crate::names::Meaning;
use crate::outward::{Message, Outward};
use crate::reading::{Marks, Reading};
use crate::server::Own;
use crate::statements::Statement;

/// A name of the client's, and what it means.
type Loan = (Arc<[u8]>, Arc<Statement>);

impl Outward<'_> {
    /// A text is about to be run that prepares, executes or deallocates by name.
    pub(crate) fn watch_deeds(&mut self, reading: &Reading, text: &[u8]) {
        for deed in &reading.deeds {
            let Deed::Execute(name) = deed else { continue };
            match self.prepared_as(name) {
                Some(reading) => self.server.trail.mark(&reading),
                None => self.server.trail.mark_unknown(),
            }
        }
        self.server.trail.mark_deeds(reading, text, &self.server.vars);
    }

    /// What executing the statement of this name may do.
    fn prepared_as(&mut self, name: &[u8]) -> Option<Arc<Reading>> {
        let made = self.client.state.as_deref().map_or(&[][..], crate::State::made);
        let known = || made.iter().find(|made| *made.name == *name).map(|made| &*made.text);
        if let Some(text) = self.server.trail.prepared(name).or_else(known) {
            let whole = self.statements.reading(text);
            let [Deed::Prepare { body, .. }] = &*whole.deeds else { return None };
            return Some(self.statements.reading(text.get(*body..)?));
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Statement(statement, _) => {
                Some(Arc::clone(self.statements.reading_of(&statement)))
            }
            _ => None,
        }
    }

    /// Whether SQL has made a statement of this name, so far as is known.
    pub(crate) fn is_made(&self, name: &[u8]) -> bool {
        let made = self.client.state.as_deref().map_or(&[][..], crate::State::made);
        self.server.trail.prepared(name).is_some() || made.iter().any(|made| *made.name == *name)
    }

    /// A Parse under a name that SQL may have given already: PostgreSQL says whether it has.
    pub(crate) fn parse_beside(
        &mut self,
        name: &[u8],
        statement: &Arc<Statement>,
        message: &Message<'_>,
    ) {
        self.flow.counted.client_parses += 1;
        let name: Arc<[u8]> = name.into();
        self.give_name(&name, Some(statement));
        self.pass_as(message, What::Parse);
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, &name));
    }

    /// What a simple query calls by the client's names it gets under these; and if it looks at the list, it
    /// finds the client's and not ours.
    pub(crate) fn lend_for_query(&mut self, reading: &Reading) {
        let loans = self.loans(reading);
        let looks = reading.marks.has(Marks::LOOKS) && self.server.ledger.is_empty();
        let ours = if looks { self.server.known.forget_all() } else { Vec::new() };
        if !loans.is_empty() || !ours.is_empty() {
            self.server.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
            for name in ours {
                self.say(|out| write::client::close(out, Namespace::Statement, &name));
            }
            for (name, statement) in loans {
                let Statement { query, types, .. } = &*statement;
                self.say(|out| write::client::parse(out, &name, query, types));
                self.server.lent.push(name);
            }
            self.say(write::client::sync);
        }
        self.expect_deallocates(reading, self.server.ledger.next());
    }

    /// As `lend_for_query`, for a statement that is bound.
    pub(crate) fn lend_for_statement(&mut self, statement: Option<&Statement>) {
        let Some(statement) = statement else { return };
        if !self.rules.watches() || !self.client.vars.is_plain() {
            return;
        }
        let reading = Arc::clone(self.statements.reading_of(statement));
        for (name, statement) in self.loans(&reading) {
            let Statement { query, types, .. } = &*statement;
            self.inject(What::Parse, |out| write::client::parse(out, &name, query, types));
            self.server.lent.push(name);
        }
        self.expect_deallocates(&reading, 0);
    }

    fn expect_deallocates(&mut self, reading: &Reading, at: u64) {
        for deed in &reading.deeds {
            if let Deed::Deallocate(name) = deed {
                self.server.deallocates.push_back((at, name.clone()));
            }
        }
    }

    fn loans(&self, reading: &Reading) -> Vec<Loan> {
        let mut names: Vec<Arc<[u8]>> = Vec::new();
        for deed in &reading.deeds {
            let (Deed::Execute(name) | Deed::Deallocate(name) | Deed::Prepare { name, .. }) = deed;
            names.push(Arc::from(&**name));
        }
        if reading.marks.has(Marks::LOOKS) {
            names.extend(self.client.all_names());
        }
        let mut loans: Vec<Loan> = Vec::new();
        for name in names {
            let is_lent = self.server.lent.contains(&name) || loans.iter().any(|l| l.0 == name);
            if !is_lent
                && let Meaning::Statement(statement, name) =
                    self.client.meaning(&name, &self.server.ledger)
            {
                loans.push((name, statement));
            }
        }
        loans
    }

    /// The text will have run: its loans are given back.
    pub(crate) fn take_back(&mut self) {
        self.server.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
        for name in std::mem::take(&mut self.server.lent) {
            self.say(|out| write::client::close(out, Namespace::Statement, &name));
        }
        self.say(write::client::sync);
    }
}
