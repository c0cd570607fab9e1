//! What sets a server's session, in the same flight as the first request that needs it so.
//!
//! It is a transaction of its own. Should it fail, that transaction is left open and aborted, and PostgreSQL runs nothing of what comes
//! behind it but what ends transactions: so requests in which such a thing may stand wait for the answer.

use wire::tag::client as tag;
use wire::{BindNames, Parse, Scanner};

use crate::client::ClientSide;
use crate::ledger::What;
use crate::names::Meaning;
use crate::server::{Own, ServerSide, Unnamed};

/// Words of which one stands in any text that ends a transaction.
const ENDS: [&[u8]; 5] = [b"commit", b"rollback", b"abort", b"end", b"prepare"];

/// Longer flights wait.
const FLIGHT_MAX: usize = 16 * 1024;

impl ServerSide {
    /// Whether `bytes`, the client's next, may be sent right behind what sets its session: they are whole messages, and none of them
    /// ends a transaction.
    #[must_use]
    pub fn may_go_ahead(&self, client: &ClientSide, bytes: &[u8]) -> bool {
        let plain = client.vars.is_plain() && self.vars.is_plain();
        if !plain
            || !client.is_between()
            || !client.scanner.is_between()
            || bytes.len() > FLIGHT_MAX
        {
            return false;
        }
        let (mut scanner, mut rest) = (Scanner::default(), bytes);
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            let harmless = match piece.tag {
                _ if !piece.is_whole() => false,
                tag::QUERY => !may_end(piece.body),
                tag::PARSE => Parse::read(piece.body).is_ok_and(|parse| !may_end(parse.query)),
                tag::BIND => self.binds_harmless(client, piece.body),
                tag::SYNC | tag::DESCRIBE | tag::EXECUTE | tag::FLUSH => true,
                _ => false,
            };
            if !harmless {
                return false;
            }
        }
        scanner.is_between()
    }

    /// Whether what a Bind binds is known, and ends no transaction. What was prepared in the same flight has been looked at.
    fn binds_harmless(&self, client: &ClientSide, body: &[u8]) -> bool {
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
        !may_end(&statement.query)
    }

    /// Set the session by `sql`. The client's request may follow at once, as far as `may_go_ahead` says so.
    pub fn go_ahead(&mut self, client: &ClientSide, sql: &[u8], out: &mut Vec<u8>) {
        self.trail.begin();
        self.own(Own::Ahead, &[b"BEGIN;", sql, b"COMMIT"].concat(), out);
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
        self.ledger.head().is_some_and(|head| head.what == What::Own(Own::Ahead))
    }

    /// Whether something of ours is not answered yet that was said in front of the client's request.
    #[must_use]
    pub fn is_behind_ours(&self) -> bool {
        let ours = |what| matches!(what, What::Own(Own::Ahead | Own::Lend | Own::Dress));
        self.ledger.head().is_some_and(|head| ours(head.what))
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
    use crate::{Tracked, Vars};

    #[test]
    fn only_what_ends_no_transaction_goes_ahead() {
        let vars = || Vars::new(&Tracked::default());
        let (client, server) = (ClientSide::new(vars()), ServerSide::new(vars()));
        let goes = |text: &str| {
            let mut flight = Vec::new();
            say::query(&mut flight, text.as_bytes());
            let [mut half, mut whole] = [flight.clone(), Vec::new()];
            half.pop();
            assert!(!server.may_go_ahead(&client, &half), "half of {text}");
            say::parse(&mut whole, b"", text.as_bytes(), b"");
            say::bind_unnamed(&mut whole, &[]);
            say::execute_unnamed(&mut whole);
            say::sync(&mut whole);
            [&flight, &whole].map(|flight| server.may_go_ahead(&client, flight))
        };
        for text in ["select 1", "begin", "update t set ended = sender"] {
            assert_eq!(goes(text), [true; 2], "{text}");
        }
        for text in ["select 1; Commit", "/* x */rollback", "END", "prepare transaction 'x'"] {
            assert_eq!(goes(text), [false; 2], "{text}");
        }
    }
}
