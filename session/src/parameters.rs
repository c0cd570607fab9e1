//! The parameters of a Bind: one may be the name of a setting that its statement brings into being, and that no text
//! tells of. And how much of a message has to be seen before it goes on.

use wire::tag::client as tag;
use wire::{BindNames, DataRow};

use crate::outward::Outward;
use crate::pids::numbers;
use crate::reading::Marks;
use crate::server::Unnamed;
use crate::statements::Statement;
use crate::text::dotted_names;

/// So much of a message is waited for.
const LOOKED_AT_MAX: usize = 64 * 1024;

impl Outward<'_> {
    /// A statement is bound; `None`: one that nobody has seen.
    pub(crate) fn watch_parameters(&mut self, statement: Option<&Statement>, bind: &[u8]) {
        if self.rules.watches()
            && statement.is_none_or(|statement| {
                let readable = self.client.vars.can_read(&statement.query);
                !readable || self.statements.reading_of(statement).marks.has(Marks::SETTINGS)
            })
        {
            for name in names(bind) {
                self.server.trail.hear(&name);
            }
        }
    }

    /// A text is parsed, and nobody keeps in mind by which name.
    pub(crate) fn watch_parsed(&mut self, parse: &[u8]) {
        if self.rules.watches() {
            for name in &dotted_names(parse) {
                self.server.trail.hear(name);
            }
        }
    }

    /// Whether more of a message of a client whose statements nobody keeps apart is to be seen: it may name a setting or
    /// another client, or be of what resets something.
    pub(crate) fn wants_more(&self, tag: u8, body: &[u8]) -> bool {
        let is_telling = match tag {
            tag::PARSE => true,
            tag::BIND => self.client.asks_pids || self.rules.watches(),
            _ => false,
        };
        is_telling && body.len() <= LOOKED_AT_MAX
    }

    /// Whether more of a Bind, of which the names are here, is to be seen: it may name a setting or another client, or what is
    /// wrong with it is to be said in front of something else.
    pub(crate) fn wants_parameters(&self, names: &BindNames<'_>, bind: &[u8]) -> bool {
        if bind.len() > LOOKED_AT_MAX {
            return false;
        }
        let statement = match &self.client.unnamed {
            Unnamed::Is(statement) if names.statement.is_empty() => Some(&**statement),
            _ => self.client.statement(names.statement),
        };
        let reading = statement.and_then(|statement| statement.reading.get());
        let may_name = reading.is_none_or(|reading| reading.marks.has(Marks::SETTINGS));
        self.rules.watches() && may_name
            || statement.is_some_and(|of| of.takes_pids || self.may_not_take(of))
    }
}

/// What could be names of custom settings, so far as the message is here.
fn names(bind: &[u8]) -> Vec<Box<[u8]>> {
    let whole = |value: &[u8]| match &*dotted_names(value) {
        [name] if name.len() == value.len() => Some(name.clone()),
        _ => None,
    };
    values(bind).into_iter().flatten().filter_map(whole).collect()
}

fn values(bind: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let mut rest = bind.get(BindNames::find(bind)?.rest..)?;
    numbers(&mut rest)?;
    // Parameters stand there as the values of a row do.
    let values = DataRow::read(rest).ok()?;
    Some(values.map_while(Result::ok).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_name_or_it_is_not() {
        let mut bind = b"portal\0statement\0\0\x01\0\0\0\x04".to_vec();
        for value in [&b"App.X"[..], b"a.b@c.d", b"plain", b"last.one"] {
            bind.extend_from_slice(&u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
            bind.extend_from_slice(value);
        }
        assert_eq!(names(&bind), [b"app.x".to_vec().into(), Box::from(&b"last.one"[..])]);
        for end in 0..bind.len() {
            assert!(names(&bind[..end]).len() < 2, "what is not here is not taken for half");
        }
    }
}
