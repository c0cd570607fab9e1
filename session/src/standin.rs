//! What stands in for a statement that a server lacks, and perhaps cannot be given any more: a ROLLBACK with parameters
//! of the same types, which nobody runs.
//!
//! PostgreSQL looks at what is bound before it looks at what the statement has become, and describes what returns
//! nothing in a failed transaction, too. With a statement of which it is told only then it would find out first that it
//! cannot be parsed. A ROLLBACK always can be.

use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Namespace, Status, write};

use crate::fit::is_planned;
use crate::ledger::{What, Whose};
use crate::names::Meaning;
use crate::outward::{Message, Outward};
use crate::pids::numbers;
use crate::server::{Copying, Unnamed};
use crate::statements::{SCRATCH, Statement};

/// Types that take anything, sent as text and as bytes.
const TEXT: [u8; 4] = 25_u32.to_be_bytes();
const BYTES: [u8; 4] = 17_u32.to_be_bytes();
/// What PostgreSQL takes for no type.
const UNKNOWN: [u8; 4] = 705_u32.to_be_bytes();

/// What is bound twice is not to be long.
const BIND_MAX: usize = 64 * 1024;

impl Outward<'_> {
    /// The server is about to be given `statement`, to bind it so, and that may fail. What is wrong with the parameters is
    /// said first.
    pub(crate) fn bind_instead(
        &mut self,
        statement: &Arc<Statement>,
        name: Option<&Arc<[u8]>>,
        bind: Option<&Message<'_>>,
    ) {
        let Some(body) = bind.and_then(Message::whole).filter(|body| body.len() <= BIND_MAX) else {
            return;
        };
        if self.is_fitted(statement)
            || !self.may_not_take(statement)
            || self.server.copy != Copying::No
        {
            return;
        }
        let Some(names) = BindNames::find(body) else { return };
        let rest = body.get(names.rest..).unwrap_or_default();
        let Some(mut types) = self.types_known(statement) else { return };
        if fill(&mut types, rest).is_none() {
            return;
        }
        // Without parameters it could be run in a failed transaction, where PostgreSQL does not come to the portal.
        let has_portal = !self.may_be_failed() || !types.is_empty();
        let portal = if has_portal { names.portal } else { SCRATCH };
        self.stand_in(b"ROLLBACK", &types);
        let name = name.map_or_else(|| Arc::from(&b""[..]), Arc::clone);
        self.server.ledger.push(What::Bind, Whose::Ours, Some(name));
        self.say(|out| {
            write::message(out, tag::BIND, |out| {
                out.extend_from_slice(&[portal, b"\0", SCRATCH, b"\0", rest].concat());
            });
        });
        self.inject(What::Close, |out| write::client::close(out, Namespace::Portal, portal));
        self.close_scratch();
    }

    /// Whether the server, should it lack `statement`, may refuse to parse it, or take it for something else.
    pub(crate) fn may_not_take(&self, statement: &Statement) -> bool {
        self.may_be_failed() || self.may_differ(statement)
    }

    /// The server is about to be given `statement`, to describe it so, and that may fail. Of which types its parameters are
    /// is said first, but in a failed transaction: as here, where the stand-in can be parsed.
    pub(crate) fn tell_parameters(&mut self, statement: &Arc<Statement>) {
        if !self.is_fitted(statement) && self.may_not_take(statement) {
            self.tell_parameters_first(statement);
        }
    }

    /// It is described, and that may fail behind its parameters.
    pub(crate) fn tell_parameters_first(&mut self, statement: &Statement) {
        // They may have been said by a server that then found the statement changed.
        if self.server.has_parameters || self.server.copy != Copying::No {
            return;
        }
        let Some(types) = self.types_for_certain(statement) else { return };
        self.stand_in(b"SELECT 1", &types);
        self.server.ledger.push(What::Describe, Whose::OursToParameters, None);
        self.say(|out| write::client::describe(out, Namespace::Statement, SCRATCH));
        self.close_scratch();
    }

    /// Whether a statement is described that the server lacks and perhaps cannot be given, and is so nevertheless: it returns
    /// nothing.
    pub(crate) fn describe_instead(&mut self, name: &[u8]) -> bool {
        if self.server.copy != Copying::No {
            return false;
        }
        let (statement, name) = match &self.client.unnamed {
            Unnamed::Is(_) if name.is_empty() && !self.server.trusts_unnamed() => return false,
            unnamed if name.is_empty() && unnamed.is_same(&self.server.unnamed) => return false,
            Unnamed::Is(statement) if name.is_empty() => (Arc::clone(statement), Arc::from(name)),
            _ => match self.client.meaning(name, &self.server.ledger) {
                Meaning::Statement(statement, name, _) if self.lacks(&statement) => {
                    (statement, name)
                }
                _ => return false,
            },
        };
        let nothing = || self.text_of(&statement).is_some_and(sql::returns_nothing);
        if !self.may_not_take(&statement) || !statement.told.is_of_nothing().unwrap_or_else(nothing)
        {
            return false;
        }
        let Some(types) = self.types_for_certain(&statement) else { return false };
        self.stand_in(b"ROLLBACK", &types);
        self.describe(SCRATCH, name);
        self.close_scratch();
        true
    }

    /// Whether the server is in a failed transaction, or may be when it comes to what is said now.
    fn may_be_failed(&self) -> bool {
        self.server.status == Status::Failed || self.server.ledger.may_go_on()
    }

    /// The types of all parameters, zero where they are not known; `None`: nobody knows how many there are.
    fn types_known(&self, statement: &Statement) -> Option<Vec<u8>> {
        let mut types = statement.told_types().to_vec();
        if !statement.told.is_told_types() {
            let count = sql::parameters(self.text_of(statement)?)?;
            if count > 0 && !is_planned(&statement.query) {
                // Those of what a PREPARE prepares are not its own.
                return None;
            }
            types.resize(types.len().max(4 * usize::from(count)), 0);
        }
        Some(types)
    }

    /// The same, if all are known.
    fn types_for_certain(&self, statement: &Statement) -> Option<Vec<u8>> {
        self.types_known(statement).filter(|types| !types.chunks(4).any(is_unknown))
    }

    /// The same, where those not known take what is given as text.
    pub(crate) fn types_as_text(&self, statement: &Statement) -> Option<Vec<u8>> {
        let mut types = self.types_known(statement)?;
        fill(&mut types, &[0, 0])?;
        Some(types)
    }

    fn text_of<'s>(&self, statement: &'s Statement) -> Option<&'s str> {
        let can = self.rules.watches() && self.client.vars.can_read(&statement.query);
        str::from_utf8(&statement.query).ok().filter(|_| can)
    }

    /// If this cannot be parsed any more, the server is to say so here.
    pub(crate) fn try_parse(&mut self, statement: &Statement) {
        let types = self.types(statement);
        self.stand_in(&statement.query, types);
        self.close_scratch();
    }

    fn close_scratch(&mut self) {
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, SCRATCH));
    }

    fn stand_in(&mut self, query: &[u8], types: &[u8]) {
        // The last time may have been cut short by an error, and have left it behind.
        self.close_scratch();
        self.inject(What::Parse, |out| write::client::parse(out, SCRATCH, query, types));
    }
}

fn is_unknown(of: &[u8]) -> bool {
    of == [0; 4] || of == UNKNOWN
}

/// What is not known of `types` is to take anything that is sent by the formats with which `bound` begins.
fn fill(types: &mut [u8], mut bound: &[u8]) -> Option<()> {
    let formats = numbers(&mut bound)?;
    for (index, of) in types.chunks_exact_mut(4).enumerate().filter(|(_, of)| is_unknown(of)) {
        let own = if formats.len() == 2 { Some(formats) } else { formats.get(2 * index..) };
        let is_binary = own.is_some_and(|own| own.starts_with(&[0, 1]));
        of.copy_from_slice(if is_binary { &BYTES } else { &TEXT });
    }
    Some(())
}
