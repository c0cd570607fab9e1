//! The parameters of a Bind: one may be the name of a setting that its statement brings into being, and that no text
//! tells of. And how much of a message has to be seen before it goes on.

use std::sync::Arc;

use sql::Skim;
use wire::tag::client as tag;
use wire::{BindNames, Parse};

use crate::ages::mentions;
use crate::hidden::Errand;
use crate::outward::{Message, Outward};
use crate::passing::{Passing, Values};
use crate::reading::Marks;
use crate::server::Unnamed;
use crate::statements::Statement;
use crate::text::{NAME_MAX, dotted_names, find, skimmed};

/// Its number in PostgreSQL's catalog.
const SET_CONFIG: u32 = 2078;

/// So much of a message is waited for.
const LOOKED_AT_MAX: usize = 64 * 1024;

impl Outward<'_> {
    /// A statement is bound; `None`: one that nobody has seen.
    pub(crate) fn watch_parameters(
        &mut self,
        statement: Option<&Statement>,
        message: &Message<'_>,
    ) {
        if !self.rules.watches() {
            return;
        }
        if let Some(statement) = statement.filter(|of| self.client.vars.can_read(&of.query)) {
            let reading = self.statements.reading_of(statement);
            if !self.tamed(reading).marks.has(Marks::SETTINGS) {
                return;
            }
        }
        let Some(names) = BindNames::find(message.body) else {
            return self.server.trail.may_hide();
        };
        let is_set = |text: &[u8]| find(text, b"set_config").is_some();
        let (sets, tells) = match statement {
            Some(statement) => {
                let reading = Arc::clone(self.statements.reading_of(statement));
                (is_set(&statement.query), self.may_tell(&reading).then_some(Some(reading)))
            }
            None => {
                let bound = self.server.trail.bound(Some(names.statement));
                let mut bound: Vec<_> = bound.into_iter().map(|known| known.reading).collect();
                bound.extend(self.prepared_as(names.statement).map(|(reading, _)| reading));
                let sets = bound.iter().any(|reading| is_set(&reading.beginning));
                (sets, bound.iter().any(|reading| self.may_tell(reading)).then_some(None))
            }
        };
        let mut values = Values::new(sets, tells);
        values.take(message.body.get(names.rest..).unwrap_or_default());
        if message.whole().is_some() {
            self.heard(values);
        } else {
            if values.tell() {
                self.server.trail.tell(None, Errand::to_come());
            }
            self.client.begin_to_pass(Passing::Values(values));
        }
    }

    /// A function is called by its number.
    pub(crate) fn watch_call(&mut self, call: &[u8]) {
        let number = call.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        // PostgreSQL's own have lower ones.
        if self.rules.watches() && (number >= 16_384 || matches!(number, 0 | SET_CONFIG)) {
            self.server.trail.calls();
        }
    }

    /// A text is parsed of a client whose statements nobody keeps apart.
    pub(crate) fn watch_parsed(&mut self, message: &Message<'_>) {
        if !self.rules.watches() {
            return;
        }
        if let Some(parse) = message.whole().and_then(|body| Parse::read(body).ok()) {
            let reading = if self.client.vars.can_read(parse.query) {
                self.statements.reading(parse.query)
            } else {
                Arc::new(skimmed(&Skim::of(parse.query, self.strings())))
            };
            self.keep_parsed(parse.name, reading, parse.query);
        } else if let Some(at) = message.body.iter().position(|byte| *byte == 0) {
            let (name, text) = message.body.split_at(at);
            self.begin_to_skim(Some(name), self.strings());
            self.skim(text.get(1..).unwrap_or_default(), message.whole().is_some());
        } else {
            self.server.trail.lose();
        }
    }

    /// A statement is bound of a client whose statements nobody keeps apart: it may be any that was parsed by that name.
    pub(crate) fn watch_bound(&mut self, bind: &[u8]) {
        if !self.rules.watches() {
            return;
        }
        let names = BindNames::find(bind);
        for parsed in self.server.trail.bound(names.map(|names| names.statement)) {
            if !parsed.reading.deeds.is_empty() {
                self.watch_deeds(&parsed.reading, &parsed.text);
            }
            self.tell_strings(&parsed.reading, &parsed.text);
            self.mark_skimmed(&parsed.reading);
        }
        if let Some(names) = names {
            // What SQL has prepared, the protocol may run.
            self.watch_prepared(names.statement, 0);
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

/// What a value may be that is one of a statement's parameters.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// Names of custom settings: it is one, or it says them where it may set them.
    Names(Box<[Box<[u8]>]>),
    /// A name in characters in which nobody looks for it, or too long.
    OddName,
}

/// `cut`: it goes on.
pub(crate) fn said(value: &[u8], cut: bool) -> Said {
    if !value.contains(&b'.') {
        return Said::Names(Box::default());
    }
    let is_part =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$".contains(byte) || *byte >= 0x80;
    let is_one = value.iter().all(is_part);
    let names = dotted_names(value);
    match &*names {
        [name] if name.len() == value.len() && !cut => Said::Names(names),
        _ if is_one && (cut || !value.is_ascii() || value.len() > NAME_MAX) => Said::OddName,
        _ if mentions(value, b"set") || mentions(value, b"set_config") => Said::Names(names),
        _ => Said::Names(Box::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_name_or_it_is_not() {
        let names =
            |all: &[&str]| Said::Names(all.iter().map(|name| name.as_bytes().into()).collect());
        for (value, name) in [("App.X", "app.x"), ("last.one", "last.one")] {
            assert_eq!(said(value.as_bytes(), false), names(&[name]));
        }
        for value in ["a.b@c.d", "plain", "", "größe", "Käse. Brot", "a.b c.d"] {
            assert_eq!(said(value.as_bytes(), false), names(&[]), "{value}");
        }
        for value in ["SET app.x = 1", "select set_config('app.x', '', false)"] {
            assert_eq!(said(value.as_bytes(), false), names(&["app.x"]));
        }
        assert_eq!(said("app.größe".as_bytes(), false), Said::OddName);
        assert_eq!(said(format!("app.{}", "x".repeat(300)).as_bytes(), false), Said::OddName);
        assert_eq!(said(b"app.x", true), Said::OddName);
    }
}
