//! What sets a server's session, in the same flight as the first request that needs it so.
//!
//! It is a transaction of its own. Should it fail, that transaction is left open and aborted, and PostgreSQL runs nothing of what comes
//! behind it but what ends transactions: so requests in which such a thing may stand wait for the answer. Its BEGIN can fail as well, struck
//! by a time limit or a signal, and then no transaction is open. So that is a message of the extended protocol, of which no Sync follows:
//! PostgreSQL skips all behind it up to the client's own Sync, which has to be its last message.

use wire::tag::client as tag;
use wire::{BindNames, Parse, Scanner, write};

use crate::client::ClientSide;
use crate::ledger::{Undo, What, Whose};
use crate::names::Meaning;
use crate::reading::{Marks, Reading};
use crate::server::{Own, ServerSide, Unnamed};
use crate::{Statements, trail};

/// Words of which one stands in any text that ends a transaction.
const ENDS: [&[u8]; 5] = [b"commit", b"rollback", b"abort", b"end", b"prepare"];

/// Longer flights wait.
const FLIGHT_MAX: usize = 16 * 1024;

impl ServerSide {
    /// Whether `bytes`, the client's next, may be sent right behind what sets its session: they are whole messages, none of them
    /// ends a transaction, and a Sync stands only at their end.
    #[must_use]
    pub fn may_go_ahead(
        &self,
        client: &ClientSide,
        statements: &mut Statements,
        bytes: &[u8],
    ) -> bool {
        let plain = client.vars.is_plain() && self.vars.is_plain();
        if !plain
            || !client.is_between()
            || !client.scanner.is_between()
            || !self.lent.is_empty()
            || bytes.len() > FLIGHT_MAX
        {
            return false;
        }
        let (mut scanner, mut rest, mut synced) = (Scanner::default(), bytes, false);
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            let harmless = match piece.tag {
                _ if synced || !piece.is_whole() => false,
                tag::QUERY => match piece.body.split_last() {
                    Some((0, text)) => self.is_harmless(client, &statements.reading(text), text),
                    _ => false,
                },
                tag::PARSE => Parse::read(piece.body).is_ok_and(|parse| {
                    self.is_harmless(client, &statements.reading(parse.query), parse.query)
                }),
                tag::BIND => self.binds_harmless(client, statements, piece.body),
                tag::SYNC | tag::DESCRIBE | tag::EXECUTE | tag::FLUSH => true,
                _ => false,
            };
            if !harmless {
                return false;
            }
            synced = piece.tag == tag::SYNC;
        }
        scanner.is_between()
    }

    /// Whether a text ends no transaction, and nothing of ours, with a Sync of its own, has to go in front of it.
    fn is_harmless(&self, client: &ClientSide, reading: &Reading, text: &[u8]) -> bool {
        let discards = self.trail.habit.concerns(reading.marks)
            && self.trail.sequences.may_be_of_others(client.pid);
        let lends = !reading.deeds.is_empty() || reading.marks.has(Marks::LOOKS);
        !discards && !lends && !may_end(text)
    }

    /// Whether what a Bind binds is known, and harmless. What was prepared in the same flight has been looked at.
    fn binds_harmless(
        &self,
        client: &ClientSide,
        statements: &mut Statements,
        body: &[u8],
    ) -> bool {
        let Some(names) = BindNames::find(body) else { return false };
        let statement = match client.meaning(names.statement, &self.ledger) {
            Meaning::Statement(statement, ..) => statement,
            Meaning::Open => return false,
            Meaning::Nothing => match &client.unnamed {
                Unnamed::Is(statement) if names.statement.is_empty() => statement.clone(),
                Unnamed::Unknown if names.statement.is_empty() => return false,
                // SQL may have made it.
                _ => return client.state.as_ref().is_none_or(|state| state.made().is_empty()),
            },
        };
        self.is_harmless(client, statements.reading_of(&statement), &statement.query)
    }

    /// Before the session is set, lift the time limit that another left there, so that it does not strike what sets it. Should it strike
    /// this, nothing is lost. `false`: there is none.
    pub fn lift(&mut self, out: &mut Vec<u8>) -> bool {
        let is_limited = trail::is_limited(&self.trail);
        if is_limited {
            self.own(Own::Lift, b"SET statement_timeout=0", out);
        }
        is_limited
    }

    /// Set the session by `sql`. The client's request may follow at once, as far as `may_go_ahead` says so.
    pub fn go_ahead(&mut self, client: &ClientSide, sql: &[u8], out: &mut Vec<u8>) {
        self.trail.begin();
        self.lift(out);
        self.ledger.push(What::Own(Own::Ahead), Whose::Ours, None);
        self.drop_unnamed();
        write::client::parse(out, b"", b"BEGIN", b"");
        write::client::bind_unnamed(out, &[]);
        write::client::execute(out, b"");
        write::client::query(out, &[sql, b"COMMIT"].concat());
        // If it is not so, all is over with this server.
        self.trail.took(client);
        for (name, value) in client.vars.iter() {
            if self.vars.value(name.as_bytes()).is_some() {
                self.vars.set(name.as_bytes(), value);
            }
        }
    }

    /// Whether what sets its session is not answered yet.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        let sets = |what| matches!(what, What::Own(Own::Ahead | Own::Lift));
        self.ledger.head().is_some_and(|head| sets(head.what))
    }

    /// What was to set the session has failed, and nothing of its client's behind that was run: that is as if it had not been
    /// said. It is to be said to another server; this one is of no more use.
    pub fn take_back_flight(&mut self, client: &mut ClientSide) {
        for undo in self.ledger.abandon() {
            match undo {
                Undo::Name { name, before } => {
                    client.names(|names| names.restore(&name, before, u64::MAX));
                }
                Undo::Unnamed { client: Some(before), .. } | Undo::Turned(before) => {
                    client.unnamed = before;
                }
                Undo::Unnamed { client: None, .. } | Undo::Known { .. } => {}
            }
        }
        // It is part of the same.
        let _held = client.take_held();
        self.spoilt = true;
    }

    /// Whether something of ours is not answered yet that was said in front of the client's request.
    #[must_use]
    pub fn is_behind_ours(&self) -> bool {
        let ours =
            |own| matches!(own, Own::Ahead | Own::Lift | Own::Regain | Own::Lend | Own::Dress);
        self.ledger.head().is_some_and(|head| matches!(head.what, What::Own(own) if ours(own)))
    }
}

/// Whether a text may end a transaction.
fn may_end(text: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut words = text.split(|byte| !is_word(byte));
    words.any(|word| ENDS.iter().any(|end| word.eq_ignore_ascii_case(end)))
}

#[cfg(test)]
mod tests {
    use wire::write::client as say;

    use super::*;
    use crate::{Registry, Tracked, Vars};

    #[test]
    fn only_what_ends_no_transaction_goes_ahead() {
        let vars = || Vars::new(&Tracked::default());
        let (client, server) = (ClientSide::new(vars()), ServerSide::new(vars()));
        let registry = std::sync::Arc::new(Registry::new(7));
        let mut statements = Statements::new(registry, crate::read);
        let mut goes = |text: &str| {
            let mut goes = |flight: &[u8]| server.may_go_ahead(&client, &mut statements, flight);
            let mut flight = Vec::new();
            say::query(&mut flight, text.as_bytes());
            let [mut half, mut whole] = [flight.clone(), Vec::new()];
            half.pop();
            assert!(!goes(&half), "half of {text}");
            say::parse(&mut whole, b"", text.as_bytes(), b"");
            say::bind_unnamed(&mut whole, &[]);
            say::execute(&mut whole, b"");
            say::sync(&mut whole);
            let twice = [&whole[..], &flight].concat();
            assert!(!goes(&twice), "behind a Sync: {text}");
            [&flight, &whole].map(|flight| goes(flight))
        };
        for text in ["select 1", "begin", "update t set ended = sender"] {
            assert_eq!(goes(text), [true; 2], "{text}");
        }
        for text in ["execute a", "table pg_prepared_statements"] {
            assert_eq!(goes(text), [false; 2], "{text}");
        }
        for text in ["select 1; Commit", "/* x */rollback", "END", "prepare transaction 'x'"] {
            assert_eq!(goes(text), [false; 2], "{text}");
        }
    }
}
