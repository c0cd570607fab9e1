//! What is to be sent on: mostly the very bytes that came, now and then some of our own.

use std::ops::Range;
use std::sync::Arc;

use crate::reading::Reading;
use crate::{Own, Sight, Tie};

/// The outcome of one call of the relay. Kept by the worker and reused, so that nothing is allocated
/// once its vectors have grown to the size of the traffic.
///
/// Either direction's call can have something for either side: a reply that needs no server goes
/// straight back to the client, and a message held back goes to the server once that has answered.
#[derive(Debug, Default)]
pub struct Flow {
    pub to_server: Pieces,
    pub to_client: Pieces,
    /// Our own queries that were answered, in order. The worker drains it.
    pub owned: Vec<Owned>,
    /// Notifications that a server was told to collect: whole messages. The worker drains it.
    pub notices: Vec<Box<[u8]>>,
    /// Requests that were refused for the state they would have made. The worker drains it.
    pub refused: Vec<Tie>,
    /// What requests do that a report is to tell of, each as often as it was asked for. The worker drains it.
    pub sights: Vec<Arc<[Sight]>>,
    /// Requests of which there is nothing to tell. The worker takes it.
    pub harmless: u64,
    /// What a request means to others than its client and server. The worker drains it.
    pub asides: Vec<Aside>,
    /// Adds up until the worker takes it.
    pub counted: Counted,
}

impl Flow {
    /// Forget the last call's bytes. The relay does it at the start of every call.
    pub fn clear(&mut self) {
        self.to_server.clear();
        self.to_client.clear();
    }
}

/// What the worker is to do beside relaying a request.
#[derive(Clone, Debug)]
pub enum Aside {
    /// No server that nobody is using may stay in the databases that this reading names.
    Vacate(Arc<Reading>),
    /// The client with this pid was ended, as `pg_terminate_backend` ends sessions.
    End(u32),
}

/// One of our own queries was answered, to its `ReadyForQuery`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Owned {
    pub kind: Own,
    /// The body of the first `ErrorResponse` to it.
    pub error: Option<Box<[u8]>>,
    /// What a lookup found.
    pub found: Option<Box<crate::Found>>,
    /// The bodies of the `DataRow`s, of a probe only.
    pub rows: Vec<Box<[u8]>>,
}

/// What a worker's statistics want to know.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// `ReadyForQuery` heard by clients: simple queries, function calls and Syncs.
    pub queries: u64,
    /// Those of them that left no transaction open.
    pub transactions: u64,
    /// Named statements that clients prepared.
    pub client_parses: u64,
    /// Named statements that servers were made to prepare.
    pub server_parses: u64,
    /// Binds of named statements.
    pub binds: u64,
}

/// Bytes for one peer: runs of the input passed through, and runs of our own between them.
#[derive(Debug, Default)]
pub struct Pieces {
    runs: Vec<Run>,
    own: Vec<u8>,
}

/// One run of bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Run {
    /// Of the call's input.
    Passed(Range<usize>),
    /// Of `Pieces::own`.
    Own(Range<usize>),
}

impl Pieces {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.own.clear();
    }

    /// Pass on this range of the input. A range right behind the last one becomes one with it.
    #[inline]
    pub(crate) fn pass(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(Run::Passed(last)) if last.end == range.start => last.end = range.end,
            _ => self.runs.push(Run::Passed(range)),
        }
    }

    /// Say something of our own here.
    pub(crate) fn say(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.own.len();
        fill(&mut self.own);
        let end = self.own.len();
        if start == end {
            return;
        }
        match self.runs.last_mut() {
            Some(Run::Own(last)) => last.end = end,
            _ => self.runs.push(Run::Own(start..end)),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether this is exactly the whole input of `len` bytes, so that its buffer itself can be
    /// sent on.
    #[must_use]
    pub fn is_whole(&self, len: usize) -> bool {
        matches!(self.runs.as_slice(), [Run::Passed(range)] if *range == (0..len))
    }

    /// How many bytes in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(Run::Passed(range) | Run::Own(range))| range.len()).sum()
    }

    /// The runs in order. `input` is what the relay was called with.
    pub fn iter<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.runs.iter().map(move |run| match run {
            Run::Passed(range) => input.get(range.clone()).unwrap_or_default(),
            Run::Own(range) => self.own.get(range.clone()).unwrap_or_default(),
        })
    }

    /// Append all of it to `out`.
    pub fn copy_to(&self, input: &[u8], out: &mut Vec<u8>) {
        for run in self.iter(input) {
            out.extend_from_slice(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one_run() {
        let mut pieces = Pieces::default();
        pieces.pass(0..3);
        pieces.pass(3..6);
        assert!(pieces.is_whole(6) && !pieces.is_whole(7));

        pieces.say(|out| out.extend_from_slice(b"own"));
        pieces.say(|_| {});
        pieces.say(|out| out.extend_from_slice(b"ed"));
        pieces.pass(6..7);
        assert!(!pieces.is_whole(7));
        assert_eq!(pieces.runs.len(), 3);
        assert_eq!(pieces.len(), 12);
        let mut all = Vec::new();
        pieces.copy_to(b"abcdefg", &mut all);
        assert_eq!(all, b"abcdefownedg");
    }
}
