//! What a flight will need that can only be had in front of it: statements that are parsed with other settings than are
//! in force (see [`crate::dress`]). Within a batch no settings can be put on and taken off again.

use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Named, Namespace, Parse, Piece};

use crate::dress::Dressed;
use crate::names::Meaning;
use crate::outward::Outward;
use crate::server::{Phase, Unnamed};
use crate::statements::{Ground, Statement};

/// On which grounds a client's statements were parsed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Grounds {
    #[default]
    None,
    One(Ground),
    Several,
}

impl Grounds {
    pub(crate) fn add(&mut self, ground: Ground) {
        match *self {
            Self::None => *self = Self::One(ground),
            Self::One(known) if known == ground => {}
            Self::One(_) | Self::Several => *self = Self::Several,
        }
    }

    /// Whether there may be one among them that is not `present`.
    pub(crate) fn stray_from(self, present: Ground) -> bool {
        match self {
            Self::None => false,
            Self::One(known) => known != present,
            Self::Several => true,
        }
    }
}

/// Longer flights are looked through as they go.
const FLIGHT_MAX: usize = 64 * 1024;
/// So many statements at most are parsed in front of one.
const AHEAD_MAX: u8 = 8;
/// So many names at most are given anew in one that is looked through.
const RENAMED_MAX: usize = 64;

impl Outward<'_> {
    /// Whether what the client says has to wait until a statement that it will use is parsed.
    #[inline]
    pub(crate) fn waits_for_dress(&mut self) -> bool {
        let strays = self.server.phase == Phase::Synced && self.client.may_stray(|| self.ground());
        strays && self.foresees()
    }

    #[cold]
    fn foresees(&mut self) -> bool {
        if self.server.dressed_ahead >= AHEAD_MAX {
            // A server with no room for all of them loses one to the next. A message has to go on first.
            return false;
        }
        let looks = self.input.len() <= FLIGHT_MAX && self.client.scanner.is_between();
        let input = if looks { self.input } else { &[] };
        let (mut scanner, mut rest) = (wire::Scanner::default(), input);
        let mut renamed: Vec<&[u8]> = Vec::new();
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            match use_of(&piece) {
                Use::Nothing => {}
                Use::Renames(_) if renamed.len() >= RENAMED_MAX => break,
                Use::Renames(name) => renamed.push(name),
                Use::Of(name) if renamed.contains(&name) => {}
                Use::Of(name) => match self.missed(name) {
                    // What came of that is for its use to say.
                    Some(statement) if self.has_dressed(&statement) => break,
                    Some(statement) if self.dresses_ahead(&statement, name.is_empty()) => {
                        self.client.hold([input, &[], &[]]);
                        return true;
                    }
                    _ => {}
                },
            }
        }
        false
    }

    /// The statement of this name, if the server lacks it and it was parsed with other settings.
    fn missed(&self, name: &[u8]) -> Option<Arc<Statement>> {
        let statement = match (self.client.meaning(name, &self.server.ledger), &self.client.unnamed)
        {
            (Meaning::Statement(statement, ..), _) => {
                Some(statement).filter(|statement| self.lacks(statement))
            }
            (_, unnamed @ Unnamed::Is(statement)) if name.is_empty() => {
                let is_there = unnamed.is_same(&self.server.unnamed);
                Some(statement).filter(|_| self.server.trusts_unnamed() && !is_there).cloned()
            }
            _ => None,
        };
        statement.filter(|statement| self.wants_dress(statement))
    }

    /// Whether it is being parsed.
    fn dresses_ahead(&mut self, statement: &Arc<Statement>, unnamed: bool) -> bool {
        let next = self.server.ledger.next();
        let later = matches!(self.parse_dressed(statement, unnamed), Dressed::Later);
        self.server.dressed_ahead += u8::from(self.server.ledger.next() > next);
        later
    }
}

/// What a message does with a statement's name.
enum Use<'a> {
    Nothing,
    /// It is another's from then on, or nobody's.
    Renames(&'a [u8]),
    Of(&'a [u8]),
}

fn use_of<'a>(piece: &Piece<'a>) -> Use<'a> {
    let named = || Named::read(piece.tag, piece.body).ok();
    match piece.tag {
        _ if !piece.is_whole() => Use::Nothing,
        tag::PARSE => {
            Parse::read(piece.body).map_or(Use::Nothing, |parse| Use::Renames(parse.name))
        }
        // It does away with the unnamed one.
        tag::QUERY => Use::Renames(b""),
        tag::BIND => BindNames::find(piece.body).map_or(Use::Nothing, |of| Use::Of(of.statement)),
        tag::DESCRIBE | tag::CLOSE => match named() {
            Some(Named { kind: Namespace::Statement, name }) if piece.tag == tag::CLOSE => {
                Use::Renames(name)
            }
            Some(Named { kind: Namespace::Statement, name }) => Use::Of(name),
            _ => Use::Nothing,
        },
        _ => Use::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_always_parsed_on_one_ground_strays_from_others() {
        let [one, other] = [Ground::Known(1), Ground::Known(2)];
        let mut grounds = Grounds::default();
        assert!(!grounds.stray_from(one));
        grounds.add(one);
        grounds.add(one);
        assert!(!grounds.stray_from(one) && grounds.stray_from(other));
        assert!(grounds.stray_from(Ground::Unknown));
        grounds.add(other);
        assert!(grounds.stray_from(one) && grounds.stray_from(other));
    }
}
