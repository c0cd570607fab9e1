//! A statement that its client had parsed with other settings than are in force now, and that the server lacks: it is
//! parsed with those of then, so that its constants, and what becomes of it when settings change, are as on a
//! connection of its client's own.
//!
//! The settings are put on in a transaction or savepoint of ours, and taken off by its rollback, which prepared
//! statements outlive. The client's message waits until all of that is answered: nothing of it can strike the batch.

use std::sync::Arc;

use wire::{Status, write};

use crate::fit::is_planned;
use crate::inward::Inward;
use crate::ledger::{What, Whose};
use crate::made::ground;
use crate::outward::Outward;
use crate::server::{Copying, Own, Phase};
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
    /// The ledger's number of the Parse, and of what is answered last.
    parse: u64,
    last: u64,
    /// The body of the first error.
    error: Option<Box<[u8]>>,
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
        self.ground() != Ground::Known(ground(dress.state.as_deref(), &dress.vars))
            && !statement.holds_pids
            && is_planned(&statement.query)
    }

    /// Have the server parse `statement`, which it lacks, with the settings that it was parsed with first. Once it is
    /// answered the server has it, if it could be done.
    pub(crate) fn parse_dressed(&mut self, statement: &Arc<Statement>) -> Dressed {
        let known = self.server.dressing.take();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.statement, statement)) {
            if !self.server.ledger.is_answered(known.last) {
                self.server.dressing = Some(known);
                return Dressed::Later;
            }
            let struck = known.error.filter(|_| self.server.status == Status::Failed);
            return struck.map_or(Dressed::No, Dressed::Struck);
        }
        let server = &*self.server;
        if server.phase != Phase::Synced
            || server.copy != Copying::No
            || server.status == Status::Failed
            || statement.has_changed()
            || !self.wants_dress(statement)
        {
            return Dressed::No;
        }
        // What is not answered yet says whether a transaction is open.
        if !self.server.ledger.is_empty() || self.dress_up(statement) {
            Dressed::Later
        } else {
            Dressed::No
        }
    }

    fn dress_up(&mut self, statement: &Arc<Statement>) -> bool {
        let off: &[u8] = match self.server.status {
            Status::Idle => b"ROLLBACK",
            _ => b"ROLLBACK TO \"PGBOUNCER_0\";RELEASE \"PGBOUNCER_0\"",
        };
        let Some(on) = self.put_on(statement) else { return false };
        self.query_ours(Own::Dress, &on);
        self.make_room(statement);
        let parse = self.server.ledger.next();
        self.server.ledger.push(What::Own(Own::Dress), Whose::Ours, None);
        self.flow.counted.server_parses += 1;
        let types = self.types(statement);
        self.say(|out| write::client::parse(out, &statement.name, &statement.query, types));
        self.say(write::client::sync);
        let (last, statement) = (self.server.ledger.next(), Arc::clone(statement));
        self.query_ours(Own::Dress, off);
        self.server.dressing = Some(Box::new(Dressing { statement, parse, last, error: None }));
        true
    }

    /// What puts on the settings of `statement`, to be rolled back.
    pub(crate) fn put_on(&self, statement: &Statement) -> Option<Vec<u8>> {
        let dress = statement.dress.get()?;
        let on: &[u8] = match self.server.status {
            Status::Idle => b"BEGIN ISOLATION LEVEL READ COMMITTED;",
            _ => b"SAVEPOINT \"PGBOUNCER_0\";",
        };
        let mut sql = [on, b"RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;"].concat();
        state::put_on(dress.state.as_deref(), &dress.vars, &mut sql);
        Some(sql)
    }

    pub(crate) fn query_ours(&mut self, own: Own, sql: &[u8]) {
        let server = &mut *self.server;
        server.phase = Phase::Synced;
        self.flow.to_server.say(|out| server.own(own, sql, out));
    }
}

impl Inward<'_> {
    /// The head is part of dressing a statement, and was answered.
    pub(crate) fn dressed(&mut self, error: Option<Box<[u8]>>) {
        let at = self.server.ledger.first();
        let Some(dressing) = &mut self.server.dressing else { return };
        if at == dressing.parse && error.is_none() {
            self.server.known.prepare(&dressing.statement, at);
        }
        dressing.error = dressing.error.take().or(error);
        if at == dressing.last && (dressing.error.is_none() || self.client.is_none()) {
            self.server.dressing = None;
        }
    }
}
