//! What is remembered of a client. An idle one holds little, and there are many of them.

use std::sync::Arc;

use wire::Scanner;

use crate::ledger::Ledger;
use crate::names::{Meaning, Names};
use crate::notes::Notebook;
use crate::passing::Passing;
use crate::server::Unnamed;
use crate::statements::{Ground, Statement};
use crate::trail::Asked;
use crate::{State, Vars};

/// The client's side of a relay.
#[derive(Debug)]
pub struct ClientSide {
    /// The tracked parameters as the client has been told they are.
    pub vars: Vars,
    /// What else its session is set to; `None`: as a new one.
    pub state: Option<Arc<State>>,
    /// What it asked for at login: to this a RESET leads back.
    pub asked: Option<Arc<Asked>>,
    /// The pid it was given.
    pub pid: u32,
    /// Whether sequences may have given it something that it can ask for again.
    pub remembers: bool,
    pub(crate) scanner: Scanner,
    /// Whether a parameter of what it prepared could be a pid, where nobody keeps its statements apart.
    pub(crate) asks_pids: bool,
    /// Its named statements.
    names: Option<Box<Names>>,
    pub(crate) unnamed: Unnamed,
    /// What a report has to know of it.
    pub(crate) notebook: Option<Box<Notebook>>,
    /// Bytes that cannot be sent on yet.
    stalled: Option<Box<Stalled>>,
}

/// Why bytes were kept.
#[derive(Debug)]
enum Stalled {
    /// The beginning of a body that has to be seen to its end, or to the end of its names.
    Partial(Vec<u8>),
    /// Whole messages and more, which wait for an answer.
    Held(Vec<u8>),
    /// None were: a message passes by.
    Passing(Passing),
}

impl ClientSide {
    /// A client that has just logged in with these values.
    #[must_use]
    pub fn new(vars: Vars) -> Self {
        let scanner = Scanner::default();
        let (state, asked) = (None, None);
        Self {
            vars,
            state,
            asked,
            pid: 0,
            remembers: false,
            scanner,
            asks_pids: false,
            names: None,
            unnamed: Unnamed::Nothing,
            notebook: None,
            stalled: None,
        }
    }

    /// A number for what its session is set to: on a server of the same, nothing has to be changed.
    #[must_use]
    pub fn flavour(&self) -> u32 {
        self.vars.flavour() ^ State::flavour(self.state.as_ref())
    }

    /// Whether it waits for an answer with bytes in hand, so that no more should be read from it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self.stalled.as_deref(), Some(Stalled::Held(_)))
    }

    /// Whether no byte of a message has been taken from it that was not the message's last, a
    /// header apart: that can be sent to one server as well as to another.
    #[must_use]
    pub fn is_between(&self) -> bool {
        !self.scanner.is_inside() && self.stalled.is_none()
    }

    /// How many prepared statements it has.
    #[must_use]
    pub fn prepared(&self) -> usize {
        self.names.as_ref().map_or(0, |names| names.len())
    }

    pub(crate) fn has_names(&self) -> bool {
        self.names.is_some()
    }

    pub(crate) fn all_names(&self) -> Vec<Arc<[u8]>> {
        self.names.as_ref().map_or_else(Vec::new, |names| names.all())
    }

    pub(crate) fn meaning(&self, name: &[u8], ledger: &Ledger) -> Meaning {
        self.names.as_ref().map_or(Meaning::Nothing, |names| names.meaning(name, ledger))
    }

    /// What a name stands for, or having none, where no answer still to come decides that.
    pub(crate) fn settled(&self, name: &[u8], ledger: &Ledger) -> Option<Arc<Statement>> {
        match (self.meaning(name, ledger), &self.unnamed) {
            (Meaning::Statement(statement, ..), _) => Some(statement),
            (_, Unnamed::Is(statement)) if name.is_empty() => Some(Arc::clone(statement)),
            _ => None,
        }
    }

    /// Whether a statement of its may have been parsed on another ground than this.
    #[inline]
    pub(crate) fn may_stray(&self, present: impl FnOnce() -> Ground) -> bool {
        match (&self.names, &self.unnamed) {
            (Some(names), Unnamed::Is(unnamed)) => {
                let present = present();
                names.grounds.stray_from(present) || unnamed.ground != present
            }
            (Some(names), _) => names.grounds.stray_from(present()),
            (None, Unnamed::Is(unnamed)) => unnamed.ground != present(),
            (None, _) => false,
        }
    }

    /// What a name stands for, or will if all goes well.
    pub(crate) fn statement(&self, name: &[u8]) -> Option<&Statement> {
        self.names.as_ref()?.statement(name)
    }

    /// Do something to the names. An empty map is not kept.
    pub(crate) fn names<T>(&mut self, act: impl FnOnce(&mut Names) -> T) -> T {
        let names = self.names.get_or_insert_default();
        let done = act(names);
        if names.is_empty() {
            self.names = None;
        }
        done
    }

    /// Begin to keep, or keep more of, a message's body.
    pub(crate) fn keep_partial(&mut self, body: &[u8]) {
        if let Some(Stalled::Partial(kept)) = self.stalled.as_deref_mut() {
            kept.extend_from_slice(body);
        } else {
            self.stalled = Some(Box::new(Stalled::Partial(body.to_vec())));
        }
    }

    pub(crate) fn partial(&self) -> Option<&[u8]> {
        match self.stalled.as_deref() {
            Some(Stalled::Partial(kept)) => Some(kept),
            _ => None,
        }
    }

    /// The body as far as it was kept.
    pub(crate) fn take_partial(&mut self) -> Vec<u8> {
        let partial = self.take_stalled(|stalled| match stalled {
            Stalled::Partial(kept) => Ok(kept),
            other => Err(other),
        });
        partial.unwrap_or_default()
    }

    /// Why bytes were kept, if it is for this; else they stay.
    fn take_stalled<T>(&mut self, pick: impl FnOnce(Stalled) -> Result<T, Stalled>) -> Option<T> {
        let picked = pick(*self.stalled.take()?);
        picked.map_err(|other| self.stalled = Some(Box::new(other))).ok()
    }

    /// A message begins to pass by.
    pub(crate) fn begin_to_pass(&mut self, passing: Passing) {
        self.stalled = Some(Box::new(Stalled::Passing(passing)));
    }

    pub(crate) fn passing(&mut self) -> Option<&mut Passing> {
        match self.stalled.as_deref_mut() {
            Some(Stalled::Passing(passing)) => Some(passing),
            _ => None,
        }
    }

    /// It has passed by.
    pub(crate) fn end_passing(&mut self) -> Option<Passing> {
        self.take_stalled(|stalled| match stalled {
            Stalled::Passing(passing) => Ok(passing),
            other => Err(other),
        })
    }

    /// Hold whole messages back. They are scanned anew when their time comes.
    pub(crate) fn hold(&mut self, parts: [&[u8]; 3]) {
        self.scanner = Scanner::default();
        self.stalled = Some(Box::new(Stalled::Held(parts.concat())));
    }

    /// Hold more back, behind what is held already.
    pub(crate) fn hold_more(&mut self, bytes: &[u8]) {
        if let Some(Stalled::Held(held)) = self.stalled.as_deref_mut() {
            held.extend_from_slice(bytes);
        }
    }

    pub(crate) fn held(&self) -> Option<&[u8]> {
        match self.stalled.as_deref() {
            Some(Stalled::Held(held)) => Some(held),
            _ => None,
        }
    }

    pub(crate) fn take_held(&mut self) -> Option<Vec<u8>> {
        self.take_stalled(|stalled| match stalled {
            Stalled::Held(held) => Ok(held),
            other => Err(other),
        })
    }
}
