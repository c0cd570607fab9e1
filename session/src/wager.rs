//! The first use of a statement that its client had from others: they prepared it, and what it stands on may
//! have changed before this client asked for it.
//!
//! A Parse of what a server has is answered by us. On a connection of its own the client would have had it parsed
//! then; so when PostgreSQL says at the first use that it no longer fits, or is gone, it is parsed anew and used
//! again, and the client hears nothing of that. What the client says from that use on is kept until it is known
//! to be good. From then on the statement is as if the client had prepared it: an error is the client's.

use std::sync::Arc;

use wire::tag::client as from_client;
use wire::tag::server as tag;
use wire::{ErrorFields, Piece, Status, write};

use crate::inward::Inward;
use crate::ledger::{What, Whose};
use crate::outward::{Message, Outward};
use crate::server::Phase;
use crate::statements::{Ground, NOBODY, Statement};

/// Longer requests are not said again.
const SAID_MAX: usize = 64 * 1024;

/// What is sent in place of a use that is to fail, since the statement as it was is nowhere any more.
const CHANGED: &[u8] = b"howdah_finds_another_result";

#[derive(Debug)]
pub(crate) struct Wager {
    /// The ledger's number of the entry that tells.
    at: u64,
    name: Arc<[u8]>,
    statement: Arc<Statement>,
    /// All from that message on.
    said: Vec<u8>,
    /// Whether the batch has been said to its Sync.
    synced: bool,
}

/// Whether PostgreSQL says that a statement's result is not what it was when it was prepared. By the code
/// alone that could be anything that is not supported.
fn has_changed(error: &ErrorFields<'_>) -> bool {
    error.code() == b"0A000"
        && error.clone().any(|(kind, value)| kind == b'R' && value == b"RevalidateCachedQuery")
}

/// Whether this is the answer to [`CHANGED`].
pub(crate) fn is_provoked(error: &ErrorFields<'_>) -> bool {
    error.code() == b"42601"
        && error.message().windows(CHANGED.len()).any(|window| window == CHANGED)
}

/// An error with this body; by itself, that a result has changed, as PostgreSQL says it: drivers look at the routine,
/// and prepare again.
pub(crate) fn say(body: Option<&[u8]>, out: &mut Vec<u8>) {
    const FIELDS: &[u8] = b"SERROR\0VERROR\0C0A000\0Mcached plan must not change result type\0\
        Fplancache.c\0RRevalidateCachedQuery\0\0";
    write::message(out, tag::ERROR, |out| out.extend_from_slice(body.unwrap_or(FIELDS)));
}

impl Outward<'_> {
    /// The next entry is the first use of `statement` under this name. It can be said again if nothing that was
    /// said before it in its batch is undone with it.
    pub(crate) fn wager(
        &mut self,
        statement: &Arc<Statement>,
        name: &Arc<[u8]>,
        message: &Message<'_>,
    ) {
        if self.server.status != Status::Idle || !self.server.ledger.only_prepares() {
            return;
        }
        self.server.wager = Some(Box::new(Wager {
            at: self.server.ledger.next(),
            name: Arc::clone(name),
            statement: Arc::clone(statement),
            said: [&message.header[..], message.body].concat(),
            synced: false,
        }));
    }

    /// More is said behind it.
    pub(crate) fn keep(&mut self, piece: &Piece<'_>) {
        let Some(wager) = &mut self.server.wager else { return };
        let simple = matches!(piece.tag, from_client::QUERY | from_client::FUNCTION_CALL);
        if wager.synced || simple || wager.said.len() + piece.body.len() > SAID_MAX {
            self.server.wager = None;
            return;
        }
        if piece.first {
            wager.said.extend_from_slice(&piece.header());
        }
        wager.said.extend_from_slice(piece.body);
        wager.synced = piece.ends && piece.tag == from_client::SYNC;
    }

    /// The client is to hear this error, or that the result has changed: the server says so for us.
    pub(crate) fn provoke(&mut self, error: Option<Box<[u8]>>) {
        self.server.provoked = error;
        self.inject(What::Parse, |out| write::client::parse(out, NOBODY, CHANGED, b""));
    }
}

impl Inward<'_> {
    /// Whether the client's settings are those that `statement` was parsed with, so that it was not a change of
    /// these that changed its result.
    fn is_of_now(&self, statement: &Statement) -> bool {
        let Some(client) = &self.client else { return false };
        let trail = &self.server.trail;
        !self.rules.watches()
            || !trail.workshop.stirred
                && statement.ground
                    == Ground::Known(trail.ground(client.state.as_deref(), &client.vars))
    }

    /// Entries were answered.
    pub(crate) fn settle_wager(&mut self) {
        let answered = |wager: &Wager| wager.at < self.server.ledger.first();
        if !self.server.wager.as_deref().is_some_and(answered) {
            return;
        }
        if let (Some(wager), Some(client)) = (self.server.wager.take(), &mut self.client) {
            client.names(|names| names.prove(&wager.name));
        }
    }

    /// The head failed. Whether it is said again.
    pub(crate) fn loses_wager(&mut self, fields: &ErrorFields<'_>, what: What) -> bool {
        let wager = self.server.wager.take();
        let head = self.server.ledger.head().and_then(|head| head.name.as_ref());
        let clients = self.client.as_ref().zip(head);
        let statement = clients.and_then(|(client, name)| client.statement(name));
        let of_now = statement.filter(|statement| has_changed(fields) && self.is_of_now(statement));
        if let Some(statement) = of_now {
            // From now on the text is another statement.
            statement.changes();
        }
        let changed = of_now.is_some();
        let Some(wager) = wager.filter(|wager| wager.at == self.server.ledger.first()) else {
            return false;
        };
        let gone = fields.code() == b"26000";
        let may = self.client.as_ref().is_some_and(|client| client.is_between());
        if !(changed || gone) || !may || self.heard.fatal {
            return false;
        }
        if gone {
            self.server.known.remove(wager.statement.id);
        }
        self.skip(what);
        if self.server.phase == Phase::Skipping {
            self.server.phase = Phase::Synced;
            self.server.ledger.push(What::Sync, Whose::Ours, None);
            self.flow.to_server.say(write::client::sync);
        } else {
            self.server.ledger.hush();
        }
        self.server.has_parameters = what == What::Describe && changed;
        if let Some(client) = &mut self.client {
            client.hold([&wager.said, &[], &[]]);
        }
        true
    }
}
