//! What a client does, noted for the report: in any mode, and only where a report is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Named, Namespace, Parse, Piece};

use crate::outward::Outward;
use crate::server::Phase;
use crate::sight::{Kind, Sight, of_kind, unread};
use crate::text::READ_MAX;

/// What is remembered of a client that is reported on.
#[derive(Debug, Default)]
pub(crate) struct Notebook {
    /// What it prepared by the protocol, as far as there is something to say of it.
    prepared: BTreeMap<Box<[u8]>, Arc<[Sight]>>,
    /// A message that comes in pieces, as far as it is of interest.
    partial: Vec<u8>,
    /// What it was counted for already, in the report of this number.
    seen: BTreeSet<(Kind, u64)>,
    report: u64,
}

/// More statements of one client are not followed: those that are prepared under one name after another
/// and never closed.
const PREPARED_MAX: usize = 1_000;

/// Rows of the report that a client is known to be in already; beyond that, it may be counted twice.
const SEEN_MAX: usize = 2_000;

/// What is kept of a message: a text of the greatest length, with its name and parameter types.
const KEPT_MAX: usize = READ_MAX + 2 * 1024;

impl Notebook {
    /// Whether the client has not done this yet, as far as the report of this number goes.
    fn is_first(&mut self, report: u64, kind: Kind, number: u64) -> bool {
        if self.report != report {
            self.seen.clear();
            self.report = report;
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        self.seen.insert((kind, number))
    }
}

impl crate::ClientSide {
    /// Whether it has not done this yet, as far as the report of this number goes.
    pub fn is_first(&mut self, report: u64, kind: Kind, number: u64) -> bool {
        self.notebook.get_or_insert_default().is_first(report, kind, number)
    }
}

impl Outward<'_> {
    /// A piece of a message is on its way.
    pub(crate) fn note(&mut self, piece: &Piece<'_>) {
        if self.server.phase == Phase::Skipping {
            return;
        }
        match piece.tag {
            tag::QUERY | tag::PARSE | tag::BIND | tag::CLOSE => {}
            tag::FUNCTION_CALL if piece.ends => {
                let sight = of_kind(Kind::Unknown, b"(a call of a function by its number)");
                return self.flow.sights.push([sight].into());
            }
            _ => return,
        }
        if piece.is_whole() {
            return self.note_message(piece.tag, piece.body, true);
        }
        let notebook = self.client.notebook.get_or_insert_default();
        if piece.first {
            notebook.partial.clear();
        }
        let room = KEPT_MAX.saturating_sub(notebook.partial.len());
        notebook.partial.extend_from_slice(piece.body.get(..room).unwrap_or(piece.body));
        if piece.ends {
            let body = std::mem::take(&mut notebook.partial);
            self.note_message(piece.tag, &body, body.len() == piece.len as usize);
        }
    }

    fn note_message(&mut self, tag: u8, body: &[u8], whole: bool) {
        match tag {
            tag::QUERY => {
                let text = body.strip_suffix(b"\0").filter(|_| whole);
                let sights = self.sights(text);
                self.ran(Some(sights));
            }
            tag::PARSE => self.note_parse(body, whole),
            tag::BIND => {
                let Some(names) = BindNames::find(body) else { return };
                let prepared = self.client.notebook.as_ref().map(|notebook| &notebook.prepared);
                let sights = prepared.and_then(|prepared| prepared.get(names.statement)).cloned();
                self.ran(sights);
            }
            _ => {
                if let Ok(Named { kind: Namespace::Statement, name }) = Named::read(tag, body)
                    && let Some(notebook) = &mut self.client.notebook
                {
                    notebook.prepared.remove(name);
                }
            }
        }
    }

    /// What is prepared counts when it is run.
    fn note_parse(&mut self, body: &[u8], whole: bool) {
        let parse = if whole { Parse::read(body).ok() } else { None };
        let (name, text) = match &parse {
            Some(parse) => (parse.name, Some(parse.query)),
            None => (body.split(|byte| *byte == 0).next().unwrap_or_default(), None),
        };
        let mut sights = self.sights(text);
        if self.rules.prepared_max == 0 && !name.is_empty() {
            let named = of_kind(Kind::Named, text.unwrap_or_default());
            sights = sights.iter().cloned().chain([named]).collect();
        }
        let notebook = self.client.notebook.get_or_insert_default();
        if sights.is_empty() {
            notebook.prepared.remove(name);
        } else if notebook.prepared.len() < PREPARED_MAX || notebook.prepared.contains_key(name) {
            notebook.prepared.insert(name.into(), sights);
        }
    }

    /// What is to be seen in a text; `None`: it is longer than what is read.
    fn sights(&mut self, text: Option<&[u8]>) -> Arc<[Sight]> {
        match text {
            Some(text) if self.client.vars.can_read(text) => self.statements.sights.of(text),
            Some(_) => unread("(a text in an encoding that is not read)"),
            None => unread("(a text of more than 16 kB)"),
        }
    }

    fn ran(&mut self, sights: Option<Arc<[Sight]>>) {
        match sights {
            Some(sights) if !sights.is_empty() => self.flow.sights.push(sights),
            _ => self.flow.harmless += 1,
        }
    }
}
