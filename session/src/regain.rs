//! What a client asked for at login, given back at once where a RESET has led its server to that one's own default.
//!
//! On a connection of its own a RESET leads back to what the startup packet asked for. A server was set to that by SET, so a RESET
//! leads past it. Where the client goes on there, in session mode or in its transaction, what was reset is set anew in the flight
//! of the text that resets it, as part of its transaction. It happens behind the whole of the text, or of the batch.
//! Where it may part from its server instead, that is done only if it says more before it has its answer.

use std::collections::VecDeque;
use std::sync::Arc;

use sql::{Act, Discarded};
use wire::Status;

use crate::inward::Inward;
use crate::outward::Outward;
use crate::reading::Reading;
use crate::rules::Mode;
use crate::server::{Own, Phase};
use crate::state;
use crate::text::find;
use crate::trail::Asked;

/// What a text resets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Resets {
    names: Box<[Box<str>]>,
    /// RESET ALL, which leaves roles as they are.
    all: bool,
    /// DISCARD ALL, which does not.
    discards: bool,
    /// By SET LOCAL.
    local: bool,
    /// It does nothing else, so that what fails has reset nothing and no transaction goes on.
    alone: bool,
}

/// Texts prepared by a client whose statements nobody keeps apart, which reset something: more than anybody has.
const RESETTERS_MAX: usize = 64;

/// One of these is in any text that resets something: SET TIME ZONE LOCAL is one.
const WORDS: [&[u8]; 4] = [b"reset", b"default", b"discard", b"local"];

impl Resets {
    /// `None`: nothing.
    pub(crate) fn of(reading: &sql::Reading) -> Option<Box<Self>> {
        let mut resets = Self { alone: reading.statements.len() == 1, ..Self::default() };
        let mut names = Vec::new();
        for act in reading.statements.iter().flat_map(|statement| &statement.acts) {
            match act {
                Act::Reset(name) => names.push(name.as_str().into()),
                Act::ResetAll => resets.all = true,
                Act::Discard(Discarded::All) => (resets.all, resets.discards) = (true, true),
                Act::Set(set) if matches!(set.value, sql::Value::Default) => {
                    resets.local |= set.local;
                    names.push(set.name.as_str().into());
                }
                _ => {}
            }
        }
        resets.names = names.into();
        (resets.all || !resets.names.is_empty()).then(|| Box::new(resets))
    }

    fn has(&self, name: &[u8]) -> bool {
        let is_identity = [&b"role"[..], b"session_authorization"].contains(&name);
        self.all && (self.discards || !is_identity)
            || self.names.iter().any(|reset| reset.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Append the one statement that gives back what of it was `asked` for. `false`: nothing of it was.
    fn give_back(&self, asked: &Asked, out: &mut Vec<u8>) -> bool {
        let vars = asked.vars.iter().map(|(name, value)| (name.as_bytes(), &**value));
        let (role, user) = asked.state.identity();
        let user = user.map(|user| (&b"session_authorization"[..], user));
        let role = role.map(|role| (&b"role"[..], role));
        let settings = vars.chain(asked.state.settings()).chain(user).chain(role);
        let settings: Vec<_> = settings.filter(|(name, _)| self.has(name)).collect();
        state::assign_all(&settings, self.local, !self.alone, out);
        !settings.is_empty()
    }
}

/// Texts of one client, and one server, that reset something.
#[derive(Debug, Default)]
pub(crate) struct Regains {
    /// Those that were run since the last Sync.
    run: Vec<Arc<Reading>>,
    /// Those that were run where the client may part from its server, unless it says more before they are answered.
    perhaps: Vec<Arc<Reading>>,
    /// Those that what of ours gives back which is under way.
    given: VecDeque<Arc<Reading>>,
    /// Something was done since the last `ReadyForQuery`.
    is_done: bool,
    /// Those prepared, by name, where nobody keeps statements apart.
    prepared: Vec<(Box<[u8]>, Arc<Reading>)>,
}

impl Regains {
    /// All is answered: whoever comes next is given its own.
    pub(crate) fn forget(&mut self) {
        self.perhaps.clear();
    }
}

impl Outward<'_> {
    /// A text is about to be run that nobody else reads.
    pub(crate) fn look_for_resets(&mut self, text: &[u8]) {
        if let Some(reading) = self.read_for_resets(text) {
            self.expect_regain(&reading);
        }
    }

    /// The same, of one that is prepared: it is looked for when it is bound.
    pub(crate) fn look_for_resetters(&mut self, name: &[u8], text: &[u8]) {
        let reading = self.read_for_resets(text);
        if reading.is_none() && self.server.regains.is_none() {
            return;
        }
        let prepared = &mut self.server.regains.get_or_insert_default().prepared;
        prepared.retain(|(known, _)| **known != *name);
        if let Some(reading) = reading.filter(|_| prepared.len() < RESETTERS_MAX) {
            prepared.push((name.into(), reading));
        }
    }

    pub(crate) fn look_for_resetter(&mut self, name: &[u8]) {
        let Some(regains) = &self.server.regains else { return };
        let known = regains.prepared.iter().find(|(known, _)| **known == *name);
        if let Some((_, reading)) = known {
            let reading = Arc::clone(reading);
            self.expect_regain(&reading);
        }
    }

    fn read_for_resets(&mut self, text: &[u8]) -> Option<Arc<Reading>> {
        let may = self.rules.mode == Mode::Session
            && self.rules.follows
            && self.client.asked.is_some()
            && may_reset(text)
            && self.client.vars.can_read(text);
        let reading = may.then(|| self.statements.reading(text))?;
        reading.resets.is_some().then_some(reading)
    }

    /// A text is about to be run that resets something.
    pub(crate) fn expect_regain(&mut self, reading: &Arc<Reading>) {
        let server = &*self.server;
        // What the client does next, it does on this server.
        let stays = self.rules.mode == Mode::Session
            || server.status != Status::Idle
            || server.ledger.may_go_on();
        if self.client.asked.is_some() && !server.is_aborted() {
            let regains = self.server.regains.get_or_insert_default();
            let run = if stays { &mut regains.run } else { &mut regains.perhaps };
            run.push(Arc::clone(reading));
        }
    }

    /// The client says more, and this server hears it: if all had been answered, nothing would be left here.
    #[cold]
    pub(crate) fn regain_before_more(&mut self) {
        let Some(regains) = &mut self.server.regains else { return };
        if self.server.phase == Phase::Synced && !regains.perhaps.is_empty() {
            regains.run.append(&mut regains.perhaps);
            self.regain();
        }
    }

    /// All that was run is on its way. What it resets is given back behind it.
    #[cold]
    pub(crate) fn regain(&mut self) {
        let Some(regains) = &mut self.server.regains else { return };
        let run = std::mem::take(&mut regains.run);
        let (Some(asked), Phase::Synced) = (self.client.asked.clone(), self.server.phase) else {
            return;
        };
        if self.server.ledger.may_skip() {
            // A Sync of ours would end what is skipped.
            return;
        }
        for reading in run {
            let mut sql = Vec::new();
            let gives = reading.resets.as_ref().is_some_and(|r| r.give_back(&asked, &mut sql));
            if !gives {
                continue;
            }
            self.run_ours(Own::Regain, [&sql[..]].into_iter());
            self.server.regains.get_or_insert_default().given.push_back(reading);
        }
    }
}

impl Inward<'_> {
    /// Whether what the head resets is given back behind it, this parameter among it.
    pub(crate) fn regains(&self, name: &[u8]) -> bool {
        let given = self.server.regains.as_ref().and_then(|regains| regains.given.front());
        let resets = given.and_then(|reading| reading.resets.as_ref());
        resets.is_some_and(|resets| resets.has(name)) && self.server.ledger.is_regained()
    }

    /// Something that the client asked for is done.
    #[inline]
    pub(crate) fn note_done(&mut self) {
        if let Some(regains) = &mut self.server.regains {
            regains.is_done = true;
        }
    }

    /// In front of a `ReadyForQuery`: what is given back behind it is as good as done, also where the server
    /// has nothing to tell of it yet.
    pub(crate) fn foretell(&mut self) {
        let Some(regains) = &mut self.server.regains else { return };
        let is_done = std::mem::take(&mut regains.is_done);
        let resets = regains.given.front().and_then(|reading| reading.resets.as_ref());
        let resets = resets.filter(|resets| is_done && resets.alone);
        let asked = self.client.as_ref().and_then(|client| client.asked.as_ref());
        let (Some(resets), Some(asked), true) = (resets, asked, self.server.ledger.is_regained())
        else {
            return;
        };
        for (name, value) in asked.vars.iter().filter(|(name, _)| resets.has(name.as_bytes())) {
            let is_here =
                |report: &(Vec<u8>, Vec<u8>)| report.0.eq_ignore_ascii_case(name.as_bytes());
            if !self.server.reports.iter().any(is_here) {
                self.server.reports.push((name.clone().into(), value.clone()));
            }
        }
    }

    /// It was given back, or not.
    pub(crate) fn regained(&mut self) {
        if let Some(regains) = &mut self.server.regains {
            regains.given.pop_front();
        }
    }
}

fn may_reset(text: &[u8]) -> bool {
    let begins = text.iter().position(|byte| !byte.is_ascii_whitespace());
    let text = text.get(begins.unwrap_or_default()..).unwrap_or_default();
    let first = text.first().is_some_and(|byte| b"rRsSdD-/;".contains(byte));
    (first || text.contains(&b';')) && WORDS.iter().any(|word| find(text, word).is_some())
}
