//! What a server owes: one entry for each message sent to it that is answered, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::Known;
use crate::names::Name;
use crate::server::{Own, Unnamed};

/// The queue of what is owed. Entries are numbered, so that what was done at one of them can be
/// told from what was done before and after it.
///
/// A batch is what lies between two Syncs. An error in one of its messages skips the rest of it, so
/// whatever is sent later in the same batch may count on everything before it having gone well. What
/// is sent in a later batch may not.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: VecDeque<Entry>,
    /// The number of the first entry: everything below is answered.
    first: u64,
    /// The number that the current batch begins at: that after the last Sync.
    batch: u64,
    /// How many entries can fail, end a transaction or drop statements by what they run.
    runs: usize,
    /// Up to this entry, answers may do away with all statements: see [`Ledger::wipe`].
    wiped: u64,
    /// Whether there may be a portal that does so when it is run.
    wipes: bool,
    /// Up to this entry, answers come without a Sync.
    flushed: u64,
    /// How to take back what was noted ahead of its answer, by the number of the entry.
    undo: VecDeque<(u64, Undo)>,
}

/// Entries enough for any pipeline whose end is in sight.
const LONG: usize = 1024;

/// What one message owes.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) what: What,
    pub(crate) whose: Whose,
    /// The client's name for the statement that the server knows by ours.
    pub(crate) name: Option<Arc<[u8]>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    Query,
    FunctionCall,
    Parse,
    Bind,
    Describe,
    Close,
    Execute,
    Sync,
    /// `CopyDone` or `CopyFail`: owes nothing, but ends the COPY that an entry before it may begin.
    CopyEnd,
    /// Owes nothing any more.
    Gone,
    /// Not sent: we answer `ParseComplete` ourselves when its turn comes.
    ParseFaked,
    /// Not sent: we answer `CloseComplete` ourselves when its turn comes.
    CloseFaked,
    /// A query of our own.
    Own(Own),
}

/// Who hears the answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Whose {
    Clients,
    /// We put the message in: its answer is swallowed, unless it is an error.
    Ours,
    /// So is this, but for what it says of parameters: that is heard now, and not when the client's own Describe is answered.
    OursToParameters,
}

impl What {
    /// Whether an error in it makes the server skip to the next Sync.
    pub(crate) fn is_extended(self) -> bool {
        matches!(
            self,
            Self::Parse
                | Self::Bind
                | Self::Describe
                | Self::Close
                | Self::Execute
                | Self::ParseFaked
                | Self::CloseFaked
        )
    }

    /// Whether it is answered by us, or not at all.
    fn is_unsent(self) -> bool {
        matches!(self, Self::CopyEnd | Self::Gone | Self::ParseFaked | Self::CloseFaked)
    }

    fn runs(self) -> bool {
        match self {
            Self::Query | Self::FunctionCall | Self::Execute | Self::Sync => true,
            Self::Own(own) => !matches!(
                own,
                Own::Set | Own::Ahead | Own::Lift | Own::Regain | Own::Probe | Own::Prepare
            ),
            _ => false,
        }
    }
}

/// How sure a note is that was made at some entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trust {
    /// It holds for whatever is sent next.
    Sure,
    /// Its batch is over but not answered.
    Open,
}

/// When all named statements may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wipe {
    /// With the next entry.
    Next,
    /// With any Execute from now on, while the transaction and its portals last.
    Execute,
}

/// What to put back if the server skips an entry.
#[derive(Debug)]
pub(crate) enum Undo {
    /// A name of the client's.
    Name { name: Arc<[u8]>, before: Option<Name> },
    /// A statement of the server's.
    Known { id: u64, before: Option<Known> },
    /// The unnamed statement: the client's, if it changed there too, and the server's.
    Unnamed { client: Option<Unnamed>, server: Unnamed },
    /// The client's unnamed statement, which became what it is with other settings.
    Turned(Unnamed),
}

impl Default for Ledger {
    fn default() -> Self {
        // From 1, so that 0 is a number that was always answered.
        let (entries, undo) = (VecDeque::new(), VecDeque::new());
        Self { entries, first: 1, batch: 1, runs: 0, wiped: 0, wipes: false, flushed: 0, undo }
    }
}

impl Ledger {
    /// Whether nothing is owed but what the head is about.
    pub(crate) fn is_last(&self) -> bool {
        self.entries.len() <= 1
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a `ReadyForQuery` is owed.
    pub(crate) fn owes_ready(&self) -> bool {
        let ready =
            |what| matches!(what, What::Query | What::FunctionCall | What::Sync | What::Own(_));
        self.entries.iter().any(|entry| ready(entry.what))
    }

    /// Whether what the head resets is given back right behind it.
    pub(crate) fn is_regained(&self) -> bool {
        self.entries.get(1).is_some_and(|next| next.what == What::Own(Own::Regain))
    }

    /// Whether the client has said something whose answer is to tell whether a transaction is open.
    pub(crate) fn may_go_on(&self) -> bool {
        let tells = |what| matches!(what, What::Query | What::FunctionCall | What::Sync);
        self.entries.iter().any(|entry| tells(entry.what))
    }

    /// Whose turn it is to be answered.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// What was entered last, if it is not answered.
    pub(crate) fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// Whether the answer to a probe is awaited.
    #[inline]
    pub(crate) fn is_probed(&self) -> bool {
        self.head().is_some_and(|head| head.what == What::Own(Own::Probe))
    }

    /// The number of the head.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The number that the next entry will have.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    #[inline]
    pub(crate) fn push(&mut self, what: What, whose: Whose, name: Option<Arc<[u8]>>) {
        self.runs += usize::from(what.runs());
        if what == What::Execute && self.wipes {
            self.wiped = self.next();
        }
        self.entries.push_back(Entry { what, whose, name });
        if what == What::Sync {
            self.batch = self.next();
        }
    }

    /// Note how to take back what is done at the entry pushed next.
    pub(crate) fn note(&mut self, undo: Undo) {
        self.undo.push_back((self.next(), undo));
    }

    /// The head was answered.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        self.runs -= usize::from(entry.what.runs());
        Some(entry)
    }

    /// Pop the head if it owes nothing that the server says.
    #[inline]
    pub(crate) fn pop_unsent(&mut self) -> Option<Entry> {
        if self.head()?.what.is_unsent() { self.pop() } else { None }
    }

    /// A note whose entry has been answered, with that entry's number.
    #[inline]
    pub(crate) fn settled(&mut self) -> Option<(u64, Undo)> {
        if self.undo.front()?.0 < self.first { self.undo.pop_front() } else { None }
    }

    #[inline]
    pub(crate) fn has_settled(&self) -> bool {
        self.undo.front().is_some_and(|(at, _)| *at < self.first)
    }

    /// The head failed, and the server skips to the next Sync: drop all entries before that. What
    /// was noted at them is returned, the last first, to be taken back.
    pub(crate) fn skip(&mut self) -> Skipped {
        let sync = self.entries.iter().position(|entry| entry.what == What::Sync);
        let dropped = sync.unwrap_or(self.entries.len());
        let is_request = |entry: &Entry| matches!(entry.what, What::Query | What::FunctionCall);
        let is_clients = |entry: &&Entry| entry.whose == Whose::Clients;
        let is_in_front_of_query = self.entries.iter().find(is_clients).is_some_and(is_request);
        let (failed, mut queries) = (self.first, 0);
        for entry in self.entries.drain(..dropped) {
            self.runs -= usize::from(entry.what.runs());
            queries += usize::from(is_in_front_of_query && is_request(&entry));
        }
        self.first += dropped as u64;
        let notes = self.undo.partition_point(|(at, _)| *at < self.first);
        let notes = self.undo.drain(..notes).rev().collect();
        Skipped { failed, notes, queries, to_sync: sync.is_some() }
    }

    /// The head began a COPY from the client. Syncs sent before its end are read and ignored by the
    /// copying server.
    pub(crate) fn copy_in(&mut self) -> CopyIn {
        let mut seen = CopyIn { eaten: 0, ended: false, illegal: false, synced: false };
        if self.wiped == self.first {
            // Whoever waited to know need wait no longer, and must not: the COPY waits for data.
            self.wiped = 0;
        }
        let mut entries = self.entries.iter_mut().skip(1);
        for entry in entries.by_ref() {
            match entry.what {
                What::Gone => {}
                What::Sync => {
                    self.runs -= 1;
                    seen.eaten += 1;
                    entry.what = What::Gone;
                }
                What::CopyEnd => {
                    seen.ended = true;
                    entry.what = What::Gone;
                    break;
                }
                _ => {
                    seen.illegal = true;
                    break;
                }
            }
        }
        seen.synced = entries.any(|entry| entry.what == What::Sync);
        seen
    }

    /// Whether so much is owed already that nothing more should be answered by us: only what is
    /// really sent is slowed down by a server that is slow to take it.
    pub(crate) fn is_long(&self) -> bool {
        self.entries.len() >= LONG
    }

    /// Whether nothing unanswered can change what the server has or what state it is in, other than
    /// by failing and so skipping whatever comes next.
    pub(crate) fn is_quiet(&self) -> bool {
        self.runs == 0
    }

    /// Whether the server may come to skip what is sent now, and a Sync would be the end of that: a Query took the
    /// place of the Sync of a batch, which may fail yet.
    pub(crate) fn may_skip(&self) -> bool {
        let last = self.entries.iter().rev().take_while(|entry| entry.what != What::Sync);
        last.skip_while(|entry| !matches!(entry.what, What::Query | What::FunctionCall))
            .any(|entry| entry.what.is_extended())
    }

    /// Whether something is not over, of which the end will be told whatever is sent.
    pub(crate) fn ends_later(&self) -> bool {
        let ends = |what| matches!(what, What::Query | What::FunctionCall | What::Sync);
        self.entries.iter().any(|entry| ends(entry.what))
    }

    /// Whether nothing is owed but what prepares or closes statements, or describes them.
    pub(crate) fn only_prepares(&self) -> bool {
        use What::{Close, CloseFaked, Describe, Gone, Parse, ParseFaked};
        let prepares = |what| match what {
            Parse | Close | Describe | ParseFaked | CloseFaked | Gone => true,
            // What is behind it is not run if it fails.
            What::Own(own) => matches!(own, Own::Set | Own::Ahead | Own::Lift),
            _ => false,
        };
        self.entries.iter().all(|entry| prepares(entry.what))
    }

    /// Whether nothing is owed but to us: what sets the session in front of a request, and the like.
    pub(crate) fn owes_only_us(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.what, What::Own(_)))
    }

    /// Nothing that is owed will be answered. What was noted is returned, the last first, to be taken back.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Undo> {
        self.first = self.next();
        self.entries.clear();
        self.runs = 0;
        std::mem::take(&mut self.undo).into_iter().rev().map(|(_, undo)| undo)
    }

    /// Nobody is to hear the answer to the head.
    pub(crate) fn hush(&mut self) {
        if let Some(head) = self.entries.front_mut() {
            head.whose = Whose::Ours;
        }
    }

    /// Something may do away with all named statements.
    pub(crate) fn wipe(&mut self, when: Wipe) {
        match when {
            Wipe::Next => self.wiped = self.next(),
            Wipe::Execute => self.wipes = true,
        }
    }

    /// All is answered, and no transaction is open: no portal is left.
    pub(crate) fn ended(&mut self) {
        self.wipes = false;
    }

    /// Whether a Flush is wanted, because somebody waits for what only a Sync would bring. Says so once.
    pub(crate) fn wants_flush(&mut self) -> bool {
        let wants = self.wiped >= self.first.max(self.batch) && self.flushed < self.wiped;
        if wants {
            self.flushed = self.wiped;
        }
        wants
    }

    /// Whether an answer still to come may do away with all named statements.
    pub(crate) fn may_wipe(&self) -> bool {
        self.wiped >= self.first
    }

    /// How far something done at entry `at` can be counted on now.
    pub(crate) fn trust(&self, at: u64) -> Trust {
        if at < self.first || at >= self.batch { Trust::Sure } else { Trust::Open }
    }

    /// Whether the entry `at` has its answer, or was skipped.
    pub(crate) fn is_answered(&self, at: u64) -> bool {
        at < self.first
    }

    /// The notes, to be brought up to date when what they would put back is gone.
    pub(crate) fn notes(&mut self) -> impl Iterator<Item = &mut Undo> {
        self.undo.iter_mut().map(|(_, undo)| undo)
    }
}

/// What a failed batch leaves.
#[derive(Debug)]
pub(crate) struct Skipped {
    /// The number of the entry that failed; the others were skipped.
    pub(crate) failed: u64,
    /// The last first.
    pub(crate) notes: Vec<(u64, Undo)>,
    /// Where something of ours failed that was in front of a request: how many requests among them would have had a
    /// `ReadyForQuery` of their own. What is in front of a message of a batch fails for that, as it would.
    pub(crate) queries: usize,
    /// Whether the Sync that ends the skipping has been sent.
    pub(crate) to_sync: bool,
}

/// What had been sent when the server began to copy.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct CopyIn {
    /// Syncs that owe nothing now.
    pub(crate) eaten: u32,
    /// Whether the end of the COPY is on its way already.
    pub(crate) ended: bool,
    /// Whether something was sent that a copying server does not take.
    pub(crate) illegal: bool,
    /// Whether a Sync was sent after the end of the COPY.
    pub(crate) synced: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(entries: &[What]) -> Ledger {
        let mut ledger = Ledger::default();
        for what in entries {
            ledger.push(*what, Whose::Clients, None);
        }
        ledger
    }

    /// After an error everything is skipped, a simple Query too, up to the Sync and not beyond.
    #[test]
    fn an_error_skips_to_the_sync() {
        use What::{Bind, Execute, Parse, Query, Sync};
        let mut ledger = ledger(&[Parse, Bind, Execute, Query, Sync, Query]);
        let skipped = ledger.skip();
        assert!(skipped.to_sync);
        assert_eq!(ledger.pop().map(|e| e.what), Some(Sync));
        assert_eq!(ledger.pop().map(|e| e.what), Some(Query));
        assert!(ledger.is_empty() && ledger.is_quiet());
    }

    /// A Query ends a batch, and is skipped with it: no Sync of ours must come between it and the next.
    #[test]
    fn behind_a_query_in_a_batch_all_may_be_skipped() {
        use What::{Bind, Execute, FunctionCall, Query, Sync};
        assert!(ledger(&[Bind, Execute, Query]).may_skip());
        assert!(ledger(&[Sync, Bind, FunctionCall, Query]).may_skip());
        assert!(!ledger(&[Bind, Execute, Query, Sync]).may_skip());
        assert!(!ledger(&[Query, Query]).may_skip());
        assert!(!ledger(&[Query, Bind, Execute]).may_skip(), "it goes on, and has no Query yet");
        assert!(!ledger(&[]).may_skip());
    }

    #[test]
    fn a_copying_server_eats_syncs_until_the_copy_ends() {
        use What::{CopyEnd, Execute, Parse, Sync};
        let copied = CopyIn { eaten: 1, ended: false, illegal: false, synced: false };
        assert_eq!(ledger(&[Execute, Sync]).copy_in(), copied);
        let copied = CopyIn { eaten: 1, ended: true, illegal: false, synced: true };
        assert_eq!(ledger(&[Execute, Sync, CopyEnd, Sync]).copy_in(), copied);
        let copied = CopyIn { eaten: 1, ended: false, illegal: true, synced: true };
        assert_eq!(ledger(&[Execute, Sync, Parse, Sync]).copy_in(), copied);
    }

    /// What was done in an earlier batch may be skipped still, and then this one is not.
    #[test]
    fn only_the_same_batch_can_be_counted_on() {
        let mut ledger = ledger(&[What::Parse, What::Sync, What::Parse]);
        assert_eq!([0, 1, 2, 3].map(|at| ledger.trust(at)), {
            use Trust::{Open, Sure};
            [Sure, Open, Open, Sure]
        });
        ledger.pop();
        assert_eq!(ledger.trust(1), Trust::Sure);
    }
}
