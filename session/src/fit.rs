//! What of a statement was settled when it was prepared: what it returns, and of which types its parameters are.
//!
//! PostgreSQL analyses a statement anew when what it stands on has changed. The types of its parameters stay, and where
//! it would return something else than before it says that a cached plan must not change result type. A server that
//! is given the statement only then cannot know what it was. So what clients were told of it is remembered; and before
//! such a server has it, that describes it to us, and the two are compared.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use wire::tag::client as from_client;
use wire::tag::server as tag;
use wire::{Namespace, ParameterDescription, RowDescription, write};

use crate::inward::Inward;
use crate::ledger::What;
use crate::outward::{Outward, behind_comments};
use crate::server::Copying;
use crate::statements::{Ground, SCRATCH, Statement};

/// What clients were told of a statement.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The OIDs of its parameters' types, in network order.
    types: OnceLock<Box<[u8]>>,
    /// A number for the names and types of its columns.
    columns: OnceLock<u64>,
}

impl Told {
    fn is_whole(&self) -> bool {
        self.types.get().is_some() && self.columns.get().is_some()
    }

    /// It is in the place of another, of which this was told.
    pub(crate) fn adopt(&self, other: &Self) {
        if let Some(types) = other.types.get() {
            self.types.get_or_init(|| types.clone());
        }
        if let Some(columns) = other.columns.get() {
            self.columns.get_or_init(|| *columns);
        }
    }

    pub(crate) fn is_told_types(&self) -> bool {
        self.types.get().is_some()
    }

    /// Whether clients were told that it returns nothing; `None`: they were told of neither.
    pub(crate) fn is_of_nothing(&self) -> Option<bool> {
        self.columns.get().map(|columns| Some(*columns) == number(tag::NO_DATA, &[]))
    }

    /// Whether nobody has heard what it returns.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.columns.get().is_none()
    }
}

/// The answer to a Describe, which is looked into on its way.
#[derive(Debug)]
pub(crate) struct Described {
    /// The ledger's number of the Describe.
    at: u64,
    statement: Arc<Statement>,
    /// The types of parameters, once they were said.
    types: Option<Box<[u8]>>,
    /// Whether we asked, and not the client.
    ours: bool,
}

/// A statement that a server is about to be given.
#[derive(Debug)]
pub(crate) struct Fitting {
    statement: Arc<Statement>,
    /// The ledger's number of what is answered last.
    at: u64,
    fits: Option<bool>,
}

impl Fitting {
    fn is_of(&self, statement: &Arc<Statement>) -> bool {
        Arc::ptr_eq(&self.statement, statement)
    }
}

/// Whether a server can be given a statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fits {
    Yes,
    /// It would return something else than clients were told.
    No,
    /// An answer has to come first.
    Later,
}

/// Answers under way that are looked into at once; others tell nobody anything.
const DESCRIBED_MAX: usize = 64;

/// How the texts begin that return something else when what they stand on has changed.
const PLANNED: [&[u8]; 8] =
    [b"select", b"with", b"insert", b"update", b"delete", b"merge", b"values", b"table"];

/// Whether PostgreSQL keeps a plan for a text, and watches what that returns.
pub(crate) fn is_planned(text: &[u8]) -> bool {
    let mut text = behind_comments(text);
    while let [b'(', rest @ ..] = text {
        text = behind_comments(rest);
    }
    let first = first_word(text);
    PLANNED.iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// Whether a text returns what it executes, if anything. `EXPLAIN EXECUTE` does not.
pub(crate) fn is_execute(text: &[u8]) -> bool {
    first_word(behind_comments(text)).eq_ignore_ascii_case(b"execute")
}

fn first_word(text: &[u8]) -> &[u8] {
    let len = text.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    &text[..len]
}

/// What makes a server describe what a text would be there, by a name that is nobody's, message by message.
pub(crate) fn describing(query: &[u8], types: &[u8]) -> [(What, Vec<u8>); 4] {
    use What::{Close, Describe, Parse};
    let mut messages = [Close, Parse, Describe, Close].map(|what| (what, Vec::new()));
    let [(_, first), (_, parse), (_, describe), (_, close)] = &mut messages;
    // The last time may have been cut short by an error, and have left it behind.
    write::client::close(first, Namespace::Statement, SCRATCH);
    write::client::parse(parse, SCRATCH, query, types);
    write::client::describe(describe, Namespace::Statement, SCRATCH);
    write::client::close(close, Namespace::Statement, SCRATCH);
    messages
}

/// A number for what a result consists of; no result at all is one, too.
fn number(tag: u8, body: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    if tag == tag::ROW_DESCRIPTION {
        for column in RowDescription::read(body).ok()? {
            column.ok()?.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

impl Outward<'_> {
    /// The next entry describes `statement`, to the client. Nobody may have been told of it before.
    #[inline]
    pub(crate) fn watch_description(&mut self, statement: &Arc<Statement>) {
        if !statement.told.is_whole() {
            self.look_into(statement, false);
        }
    }

    /// The next entry describes `statement` to us.
    pub(crate) fn have_described(&mut self, statement: &Arc<Statement>) {
        self.look_into(statement, true);
    }

    /// What the server has been given just now, and nobody ever asked about, it describes at once: it is settled now, and who
    /// asks later may be told by another.
    pub(crate) fn have_told(&mut self, statement: &Arc<Statement>) {
        self.look_into(statement, false);
        self.inject(What::Describe, |out| {
            write::client::describe(out, Namespace::Statement, &statement.name);
        });
    }

    #[cold]
    fn look_into(&mut self, statement: &Arc<Statement>, ours: bool) {
        if self.server.described.len() < DESCRIBED_MAX || ours {
            let (at, statement) = (self.server.ledger.next(), Arc::clone(statement));
            self.server.described.push_back(Described { at, statement, types: None, ours });
        }
    }

    /// The next entry describes a portal, by this body: the unnamed one, if that has just been bound.
    #[cold]
    pub(crate) fn watch_portal(&mut self, body: &[u8]) {
        let bound = self.server.ledger.last().filter(|last| last.what == What::Bind);
        let Some(bound) = bound.filter(|_| body == b"P\0") else { return };
        let name = bound.name.as_deref().unwrap_or_default();
        if let Some(statement) = self.client.settled(name, &self.server.ledger) {
            self.look_into(&statement, false);
        }
    }

    /// Whether something may have changed on which `statement` stands since it was prepared.
    pub(crate) fn may_differ(&self, statement: &Statement) -> bool {
        statement.ground == Ground::Unknown
            || statement.ground != self.ground()
            || !statement.is_of_now(self.statements.ages())
    }

    /// Whether it is known, or asked for, what `statement` would be.
    pub(crate) fn is_fitted(&self, statement: &Arc<Statement>) -> bool {
        let fitting = self.server.fitting.as_ref().filter(|fitting| fitting.is_of(statement));
        fitting.is_some_and(|fitting| {
            fitting.fits.is_some() || !self.server.ledger.is_answered(fitting.at)
        })
    }

    /// Whether the server, which lacks `statement`, may be given it.
    pub(crate) fn fits(&mut self, statement: &Arc<Statement>) -> Fits {
        let fitting = self.server.fitting.take();
        if let Some(fitting) = fitting.filter(|known| known.is_of(statement)) {
            match fitting.fits {
                Some(true) => return Fits::Yes,
                Some(false) => return Fits::No,
                None if !self.server.ledger.is_answered(fitting.at) => {
                    self.server.fitting = Some(fitting);
                    return Fits::Later;
                }
                // It was skipped.
                None => {}
            }
        }
        if statement.told.is_silent()
            || self.server.copy != Copying::No
            || statement.has_changed()
            || !self.may_differ(statement)
            || !is_planned(&statement.query)
        {
            return Fits::Yes;
        }
        self.have_it_described(statement);
        Fits::Later
    }

    /// Ask the server what `statement` would be there.
    fn have_it_described(&mut self, statement: &Arc<Statement>) {
        let mut at = 0;
        for (what, message) in describing(&statement.query, statement.told_types()) {
            if what == What::Describe {
                self.look_into(statement, true);
            }
            at = self.server.ledger.next();
            self.inject(what, |out| out.extend_from_slice(&message));
        }
        let statement = Arc::clone(statement);
        self.server.fitting = Some(Fitting { statement, at, fits: None });
        self.say(|out| write::message(out, from_client::FLUSH, |_| {}));
    }

    /// The types of parameters with which `statement` is parsed: those that it was given, or if it may have become
    /// another, those that it had.
    pub(crate) fn types<'a>(&self, statement: &'a Statement) -> &'a [u8] {
        if self.may_differ(statement) { statement.told_types() } else { &statement.types }
    }
}

impl Statement {
    /// The types of its parameters as far as they are known.
    pub(crate) fn told_types(&self) -> &[u8] {
        self.told.types.get().unwrap_or(&self.types)
    }
}

impl Inward<'_> {
    /// Part of the answer to a Describe has come.
    pub(crate) fn described(&mut self, tag: u8, body: &[u8]) {
        let at = self.server.ledger.first();
        while self.server.described.front().is_some_and(|described| described.at < at) {
            self.server.described.pop_front();
        }
        let Some(described) = self.server.described.front_mut().filter(|front| front.at == at)
        else {
            return;
        };
        if tag == tag::PARAMETER_DESCRIPTION {
            described.types =
                ParameterDescription::read(body).ok().map(|read| read.types.as_bytes().into());
            return;
        }
        let Some(described) = self.server.described.pop_front() else { return };
        let Some(columns) = number(tag, body) else { return };
        let told = &described.statement.told;
        if described.ours {
            let fits = told.columns.get().is_none_or(|told| *told == columns);
            match (&mut self.server.dressing, &mut self.server.fitting) {
                (Some(dressing), _) if dressing.is_described_by(at) => dressing.fits = Some(fits),
                (_, Some(fitting)) => fitting.fits = Some(fits),
                _ => {}
            }
            return;
        }
        if let Some(types) = described.types {
            // Whoever is told it later is told the same, or has PostgreSQL's error.
            let _first = told.types.set(types);
        }
        let _first = told.columns.set(columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_planned_changes() {
        for text in ["SELECT 1", " -- a\n((select 1))", "with a as (select 1) table a", "TABLE t"] {
            assert!(is_planned(text.as_bytes()), "{text}");
        }
        for text in ["FETCH c", "EXECUTE a", "selected", "", "SHOW x", "-- select"] {
            assert!(!is_planned(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn columns_are_told_by_name_and_type() {
        let column = |name: &[u8], type_oid: u8, format: u8| {
            let head = [&[0, 1], name, &[0, 0, 0, 0, 9, 0, 1, 0, 0, 0, type_oid, 0, 4]].concat();
            [&head[..], &[255, 255, 255, 255, 0, format]].concat()
        };
        let of = |body: &[u8]| number(tag::ROW_DESCRIPTION, body);
        let plain = of(&column(b"a", 23, 0));
        assert!(plain.is_some());
        assert_eq!(plain, of(&column(b"a", 23, 1)), "how it is sent is no matter");
        for other in [column(b"b", 23, 0), column(b"a", 25, 0), vec![0, 0]] {
            assert_ne!(plain, of(&other));
        }
        assert_ne!(of(&[0, 0]), number(tag::NO_DATA, &[]));
        assert_eq!(of(&[0, 1, 0]), None);
    }
}
