//! What a flight will need that can only be had in front of it: statements that are parsed with other settings than are
//! in force (see [`crate::dress`]). Within a batch no settings can be put on and taken off again.

use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Named, Namespace, Parse, Piece, Status};

use crate::ages::mentions;
use crate::dress::{By, Dressed};
use crate::fit::is_planned;
use crate::outward::Outward;
use crate::reading::Reading;
use crate::server::Phase;
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
    /// Whether `input`, what the client says at the beginning of a batch, has to wait until a statement that it will use is
    /// parsed.
    #[inline]
    pub(crate) fn waits_for_dress(&mut self, input: &[u8]) -> bool {
        let strays = self.server.phase == Phase::Synced && self.client.may_stray(|| self.ground());
        strays && self.foresees(input)
    }

    #[cold]
    fn foresees(&mut self, input: &[u8]) -> bool {
        if self.is_dressing() {
            self.client.hold([input, &[], &[]]);
            return true;
        }
        if self.server.dressed_ahead >= AHEAD_MAX {
            // A server with no room for all of them loses one to the next. A message has to go on first.
            return false;
        }
        let looks = input.len() <= FLIGHT_MAX && self.client.scanner.is_between();
        let (mut scanner, mut rest) = (wire::Scanner::default(), if looks { input } else { &[] });
        let mut renamed: Vec<&[u8]> = Vec::new();
        let mut in_batch = true;
        // In a transaction of the client's, what we have parsed in front of all it says may be the first that looks at
        // anything: then SET TRANSACTION comes too late, and LOCK has nothing fresh to look at. While something is
        // not answered, it may be a transaction of ours, and all waits.
        let server = &*self.server;
        let mut is_first = server.status == Status::Transaction && server.ledger.is_empty();
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            let used = use_of(&piece);
            if let Some((statement, by)) = self.needed(&used, &renamed, in_batch) {
                if self.has_dressed(&statement) {
                    // What came of that is for its use to say.
                    if matches!(by, By::Clients(_)) {
                        self.server.dressing = None;
                    }
                    break;
                }
                if self.dresses_ahead(&statement, by) {
                    self.client.hold([input, &[], &[]]);
                    return true;
                }
            }
            if is_first && let Some(look) = self.look_of(&used) {
                if look == Look::WantsToBeFirst {
                    break;
                }
                is_first = look == Look::None;
            }
            let anew = match used {
                Use::Renames(name) | Use::Parses { name, .. } => Some(name),
                Use::Runs(_) => Some(&b""[..]),
                _ => None,
            };
            if renamed.len() >= RENAMED_MAX {
                break;
            }
            renamed.extend(anew);
            in_batch &= !matches!(piece.tag, tag::SYNC | tag::QUERY);
        }
        false
    }

    /// What is needed for this that is to be parsed with other settings. What is lent is given back with the end of the
    /// batch: to each its own.
    fn needed(
        &mut self,
        used: &Use<'_>,
        renamed: &[&[u8]],
        in_batch: bool,
    ) -> Option<(Arc<Statement>, By)> {
        let reading = match *used {
            Use::Nothing | Use::Renames(_) => None,
            Use::Of(name) if renamed.contains(&name) => None,
            Use::Of(name) => match self.missed(name) {
                Some(missed) => {
                    return Some((missed, if name.is_empty() { By::None } else { By::Ours }));
                }
                None if in_batch => self.reading_of(name),
                None => None,
            },
            Use::Runs(text) | Use::Parses { text, .. } => {
                let may = in_batch && self.rules.watches() && self.client.vars.can_read(text);
                may.then(|| self.statements.reading(text))
            }
            Use::OfPortal(name) => {
                let portals = &self.server.portals;
                let found = portals.iter().find(|(portal, _)| in_batch && **portal == *name);
                found.map(|(_, statement)| Arc::clone(self.statements.reading_of(statement)))
            }
        };
        let (statement, name) = self.stray_loan(&*reading?)?;
        (!renamed.contains(&&*name)).then_some((statement, By::Clients(name)))
    }

    /// Of what this parses, or may run, if it does.
    fn look_of(&self, used: &Use<'_>) -> Option<Look> {
        match *used {
            Use::Nothing | Use::Renames(_) | Use::OfPortal(_) => None,
            Use::Parses { text, .. } | Use::Runs(text) => Some(Look::of(text)),
            Use::Of(name) => {
                let statement = self.client.settled(name, &self.server.ledger)?;
                Some(Look::of(&statement.query))
            }
        }
    }

    /// What the statement of this name may do.
    fn reading_of(&mut self, name: &[u8]) -> Option<Arc<Reading>> {
        let statement = self.client.settled(name, &self.server.ledger)?;
        let may = self.rules.watches() && self.client.vars.can_read(&statement.query);
        may.then(|| Arc::clone(self.statements.reading_of(&statement)))
    }

    /// The statement of this name, if the server lacks it and it was parsed with other settings.
    fn missed(&self, name: &[u8]) -> Option<Arc<Statement>> {
        let statement = self.client.settled(name, &self.server.ledger)?;
        let is_missed = match name {
            b"" => {
                self.server.trusts_unnamed() && !self.client.unnamed.is_same(&self.server.unnamed)
            }
            _ => self.lacks(&statement),
        };
        (is_missed && self.wants_dress(&statement)).then_some(statement)
    }

    /// Whether it is being parsed.
    fn dresses_ahead(&mut self, statement: &Arc<Statement>, by: By) -> bool {
        let next = self.server.ledger.next();
        let later = matches!(self.parse_dressed(statement, by), Dressed::Later);
        self.server.dressed_ahead += u8::from(self.server.ledger.next() > next);
        later
    }
}

/// What a message does with names.
#[derive(Clone, Copy)]
enum Use<'a> {
    Nothing,
    /// It is another's from then on, or nobody's.
    Renames(&'a [u8]),
    /// It is this text's from then on, which may use others.
    Parses {
        name: &'a [u8],
        text: &'a [u8],
    },
    /// A text is run that may use some; it does away with the unnamed one.
    Runs(&'a [u8]),
    Of(&'a [u8]),
    OfPortal(&'a [u8]),
}

fn use_of<'a>(piece: &Piece<'a>) -> Use<'a> {
    if !piece.is_whole() {
        return Use::Nothing;
    }
    let found = match piece.tag {
        tag::PARSE => Parse::read(piece.body)
            .ok()
            .map(|parse| Use::Parses { name: parse.name, text: parse.query }),
        tag::QUERY => piece.body.split_last().map(|(_, text)| Use::Runs(text)),
        tag::BIND => BindNames::find(piece.body).map(|of| Use::Of(of.statement)),
        tag::EXECUTE => {
            let end = piece.body.iter().position(|byte| *byte == 0);
            end.and_then(|end| piece.body.get(..end)).map(Use::OfPortal)
        }
        tag::DESCRIBE | tag::CLOSE => {
            Named::read(piece.tag, piece.body).ok().and_then(|named| match named.kind {
                Namespace::Statement if piece.tag == tag::CLOSE => Some(Use::Renames(named.name)),
                Namespace::Statement => Some(Use::Of(named.name)),
                Namespace::Portal if piece.tag == tag::DESCRIBE => Some(Use::OfPortal(named.name)),
                Namespace::Portal => None,
            })
        }
        _ => None,
    };
    found.unwrap_or(Use::Nothing)
}

/// What a text has to do with the first look at anything in a transaction, which settles what that will see.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Look {
    None,
    Takes,
    /// It is about what will be seen, or waits before it looks.
    WantsToBeFirst,
}

impl Look {
    fn of(text: &[u8]) -> Self {
        const WORDS: [&[u8]; 5] = [b"set", b"lock", b"isolation", b"read", b"deferrable"];
        if is_planned(text) {
            Self::Takes
        } else if WORDS.iter().any(|word| mentions(text, word)) {
            Self::WantsToBeFirst
        } else {
            Self::None
        }
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
