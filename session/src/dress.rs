//! A statement that its client parsed with other settings than are in force now, and that the server lacks: it is
//! parsed with those of then, so that what it means, and what it is when settings change, is as on a connection
//! of its client's own.
//!
//! The settings are put on for the Parse and taken off with a rollback, which prepared statements outlive.

use std::sync::Arc;

use wire::{Status, write};

use crate::ledger::{What, Whose};
use crate::outward::Outward;
use crate::server::{Copying, Own, Phase, Unnamed};
use crate::statements::{Ground, Statement};
use crate::{State, Vars, state};

/// The settings that a statement was parsed with first.
#[derive(Clone, Debug)]
pub(crate) struct Dress {
    pub(crate) state: Option<Arc<State>>,
    pub(crate) vars: Vars,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Dressed {
    /// The server has the statement.
    Yes,
    /// Not now: an answer has to come first.
    Later,
    /// Not here: something of its batch has been said already.
    No,
}

impl Outward<'_> {
    /// Have the server parse `statement`, which it lacks, with the settings that it was parsed with first.
    pub(crate) fn parse_dressed(&mut self, statement: &Arc<Statement>) -> Dressed {
        let server = &*self.server;
        let Some(dress) = statement.dress.get().filter(|_| self.rules.watches()) else {
            return Dressed::No;
        };
        if server.phase != Phase::Synced || server.copy != Copying::No {
            return Dressed::No;
        }
        if !server.ledger.is_empty() {
            // What they come to says whether a transaction is open.
            return Dressed::Later;
        }
        let (on, off): (&[u8], &[u8]) = match server.status {
            Status::Idle => (b"BEGIN;", b"ROLLBACK"),
            Status::Transaction => (
                b"SAVEPOINT \"PGBOUNCER_0\";",
                b"ROLLBACK TO \"PGBOUNCER_0\";RELEASE \"PGBOUNCER_0\"",
            ),
            Status::Failed => return Dressed::No,
        };
        let mut sql = [on, b"RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL;"].concat();
        state::put_on(dress.state.as_deref(), &dress.vars, &mut sql);
        self.make_room(statement);
        self.query_ours(&sql);
        self.learn(statement);
        self.server.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
        self.flow.counted.server_parses += 1;
        let Statement { name, query, types, .. } = &**statement;
        self.say(|out| write::client::parse(out, name, query, types));
        self.say(write::client::sync);
        self.query_ours(off);
        Dressed::Yes
    }

    /// The settings in force are those of `statement`, which is new.
    pub(crate) fn dress(&self, statement: &Statement) {
        if matches!(statement.ground, Ground::Known(_)) && statement.dress.get().is_none() {
            let (state, vars) = (self.client.state.clone(), self.client.vars.clone());
            // If somebody was faster, it is the same.
            let _same = statement.dress.set(Dress { state, vars });
        }
    }

    fn query_ours(&mut self, sql: &[u8]) {
        self.server.phase = Phase::Synced;
        self.server.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
        (self.server.unnamed, self.server.unnamed_since) = (Unnamed::Nothing, 0);
        self.say(|out| write::client::query(out, sql));
    }
}
