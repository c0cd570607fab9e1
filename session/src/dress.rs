//! A statement that its client had parsed with other settings than are in force now, and that the server lacks: it is
//! parsed with those of then, so that its constants, and what becomes of it when settings change, are as on a
//! connection of its client's own.
//!
//! The settings are put on in a transaction or savepoint of ours, and taken off by its rollback, which prepared
//! statements outlive. The client's message waits until all of that is answered: nothing of it can strike the batch. All
//! is said by messages under names that are nobody's: a Query would do away with what the client has without a name.

use std::sync::Arc;

use wire::{Status, write};

use crate::fit::{describing, is_planned};
use crate::inward::Inward;
use crate::ledger::{What, Whose};
use crate::lend::Lent;
use crate::outward::{Outward, passing};
use crate::server::{Copying, Own, Phase, Unnamed};
use crate::statements::{Ground, Statement};
use crate::{State, Vars, state};

/// The settings that a statement was parsed with first; or those known last, where something had run that may have
/// changed them.
#[derive(Clone, Debug)]
pub(crate) struct Dress {
    state: Option<Arc<State>>,
    vars: Vars,
}

/// A statement that is being parsed so.
#[derive(Debug)]
pub(crate) struct Dressing {
    statement: Arc<Statement>,
    by: By,
    /// The ledger's number of the Parse, and of what is answered last.
    parse: u64,
    last: u64,
    /// In a transaction of ours; else in a savepoint in its client's.
    alone: bool,
    /// That transaction is still open: what was to end it was struck.
    is_left: bool,
    /// The body of the first error.
    error: Option<Box<[u8]>>,
    /// Of one that was only described: whether it is what clients were told.
    pub(crate) fits: Option<bool>,
}

impl Dressing {
    /// Whether the answer numbered `at` describes it.
    pub(crate) fn is_described_by(&self, at: u64) -> bool {
        self.parse == at && matches!(self.by, By::Nobody)
    }
}

/// By which name the server has it then.
#[derive(Debug)]
pub(crate) enum By {
    /// Ours.
    Ours,
    /// None: it is the unnamed statement.
    None,
    /// Its client's, for a text that executes it by that.
    Clients(Arc<[u8]>),
    /// Nobody's: it is described to us, and gone again.
    Nobody,
}

/// What comes of it.
#[derive(Debug)]
pub(crate) enum Dressed {
    /// It has to wait for an answer.
    Later,
    /// It cannot be: not here, or not any more.
    No,
    /// It could not be, and its transaction has failed by this error.
    Struck(Box<[u8]>),
}

impl Outward<'_> {
    /// The settings in force are those of `statement`, if it is new.
    #[inline]
    pub(crate) fn dress(&self, statement: &Statement) {
        if statement.dress.get().is_none() {
            let (state, vars) = (self.client.state.clone(), self.client.vars.clone());
            // If somebody was faster, it is the same.
            let _same = statement.dress.set(Dress { state, vars });
        }
    }

    /// Whether `statement` was parsed with other settings, and may mean something else with those in force.
    pub(crate) fn wants_dress(&self, statement: &Statement) -> bool {
        let Some(dress) = statement.dress.get().filter(|_| self.rules.watches()) else {
            return false;
        };
        self.ground()
            != Ground::Known(self.server.trail.ground(dress.state.as_deref(), &dress.vars))
            && !statement.holds_pids
            && is_planned(&statement.query)
    }

    /// Have the server parse `statement`, which it lacks, with the settings that it was parsed with first. Once it is
    /// answered the server has it, if it could be done.
    pub(crate) fn parse_dressed(&mut self, statement: &Arc<Statement>, by: By) -> Dressed {
        // Of whichever statement it is: it is not to be forgotten.
        if self.is_dressing() {
            return Dressed::Later;
        }
        let known = self.server.dressing.take();
        let mut has_been_described = false;
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.statement, statement)) {
            match (known.error, known.fits) {
                (Some(error), _) if self.server.status == Status::Failed => {
                    return Dressed::Struck(error);
                }
                (None, Some(true)) => has_been_described = true,
                // What has become another is another by the settings in force, as PostgreSQL has it.
                _ => return Dressed::No,
            }
        }
        let server = &*self.server;
        if server.phase != Phase::Synced
            || server.copy != Copying::No
            || statement.has_changed()
            || !self.wants_dress(statement)
        {
            return Dressed::No;
        }
        // What is not answered yet says whether a transaction is open, and whether it has failed.
        if !server.ledger.is_empty() {
            return Dressed::Later;
        }
        // What EXECUTE returns is told with it.
        let is_told = !statement.told.is_silent() && !matches!(by, By::Clients(_));
        let may_be_another = is_told && !statement.is_of_now(self.statements.ages());
        let by = if may_be_another && !has_been_described { By::Nobody } else { by };
        let can = server.status != Status::Failed && self.dress_up(statement, by);
        if can { Dressed::Later } else { Dressed::No }
    }

    /// Whether it was tried just now to parse `statement` so, and could not be done.
    pub(crate) fn has_dressed(&self, statement: &Arc<Statement>) -> bool {
        let of_it = |dressing: &&Dressing| Arc::ptr_eq(&dressing.statement, statement);
        let dressing = self.server.dressing.as_deref().filter(of_it);
        dressing.is_some_and(|dressing| {
            let can_be = dressing.error.is_none() && dressing.fits == Some(true);
            self.server.ledger.is_answered(dressing.last) && !can_be
        })
    }

    /// Whether a statement is still being parsed so. Where what was to end our transaction was struck, by a cancel that
    /// came late, it is ended once more.
    pub(crate) fn is_dressing(&mut self) -> bool {
        let next = self.server.ledger.next();
        let Some(dressing) = self.server.dressing.as_deref_mut() else { return false };
        if !self.server.ledger.is_answered(dressing.last) {
            return true;
        }
        let is_left = std::mem::take(&mut dressing.is_left);
        if is_left {
            dressing.last = next;
            self.run_ours(Own::Dress, [&b"ROLLBACK"[..]].into_iter());
        }
        is_left
    }

    fn dress_up(&mut self, statement: &Arc<Statement>, by: By) -> bool {
        let Some(on) = self.put_on(statement) else { return false };
        self.run_ours(Own::Dress, on.iter().map(Vec::as_slice));
        if matches!(by, By::Ours) {
            self.make_room(statement);
        }
        let parse = self.server.ledger.next();
        if matches!(by, By::Nobody) {
            self.have_described(statement);
        }
        self.server.ledger.push(What::Own(Own::Dress), Whose::Ours, None);
        self.flow.counted.server_parses += 1;
        match &by {
            By::Nobody => self.say_all(&describing(&statement.query, statement.told_types())),
            By::Ours => self.parse_as(&statement.name, statement),
            By::None => {
                self.server.drop_unnamed();
                self.parse_as(b"", statement);
            }
            By::Clients(name) => {
                self.unlend(name);
                self.parse_as(name, statement);
            }
        }
        self.say(write::client::sync);
        let last = self.server.ledger.next();
        let alone = self.server.status == Status::Idle;
        self.run_ours(Own::Dress, self.take_off().iter().copied());
        let statement = Arc::clone(statement);
        let (is_left, error, fits) = (false, None, None);
        let dressing = Dressing { statement, by, parse, last, alone, is_left, error, fits };
        self.server.dressing = Some(Box::new(dressing));
        true
    }

    fn parse_as(&mut self, name: &[u8], statement: &Statement) {
        let types = self.types(statement);
        self.say(|out| write::client::parse(out, name, &statement.query, types));
    }

    /// What puts on the settings of `statement`, to be rolled back.
    pub(crate) fn put_on(&self, statement: &Statement) -> Option<Vec<Vec<u8>>> {
        let dress = statement.dress.get()?;
        let begin: &[u8] = match self.server.status {
            Status::Idle => b"BEGIN ISOLATION LEVEL READ COMMITTED",
            _ => b"SAVEPOINT \"PGBOUNCER_0\"",
        };
        let off: [&[u8]; 4] = [begin, b"RESET SESSION AUTHORIZATION", b"RESET ROLE", b"RESET ALL"];
        let mut on: Vec<Vec<u8>> = off.map(<[u8]>::to_vec).into();
        state::put_on(dress.state.as_deref(), &dress.vars, &mut on);
        Some(on)
    }

    /// What takes them off again; the first of it by itself undoes what has failed.
    pub(crate) fn take_off(&self) -> &'static [&'static [u8]] {
        match self.server.status {
            Status::Idle => &[b"ROLLBACK"],
            _ => &[b"ROLLBACK TO \"PGBOUNCER_0\"", b"RELEASE \"PGBOUNCER_0\""],
        }
    }

    /// Have the server run these, in one batch.
    pub(crate) fn run_ours<'a>(&mut self, own: Own, statements: impl Iterator<Item = &'a [u8]>) {
        self.server.phase = Phase::Synced;
        self.server.ledger.push(What::Own(own), Whose::Ours, None);
        for sql in statements {
            self.say_all(&passing(sql));
        }
        self.say(write::client::sync);
    }

    fn say_all(&mut self, messages: &[(What, Vec<u8>)]) {
        self.say(|out| messages.iter().for_each(|(_, message)| out.extend_from_slice(message)));
    }
}

impl Inward<'_> {
    /// The head is part of dressing a statement, and was answered.
    pub(crate) fn dressed(&mut self, error: Option<Box<[u8]>>) {
        let at = self.server.ledger.first();
        let Some(dressing) = &mut self.server.dressing else { return };
        if at == dressing.parse && error.is_none() {
            let statement = &dressing.statement;
            match &dressing.by {
                By::Ours => _ = self.server.known.prepare(statement, at),
                By::None => self.server.unnamed = Unnamed::Is(Arc::clone(statement)),
                By::Clients(name) => self.server.lent.push(Lent::of(name)),
                By::Nobody => {}
            }
        }
        let ends = at == dressing.last;
        dressing.is_left = ends && dressing.alone && self.server.status != Status::Idle;
        if !dressing.is_left {
            dressing.error = dressing.error.take().or(error);
        }
        let is_over = dressing.error.is_none() && dressing.fits.is_none() && !dressing.is_left;
        if ends && (is_over || self.client.is_none()) {
            self.server.dressing = None;
        }
    }
}
