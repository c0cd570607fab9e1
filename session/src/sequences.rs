//! What sequences gave a session: `currval()` and `lastval()`, which nobody can list, and nobody can put into another session.
//!
//! So a client that relies on them has to come back to the server that has them, and others must find them gone. A pool whose clients
//! never read them pays nothing for that; what it costs begins with the first who does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use crate::beliefs::Scene;
use crate::catalogs::Catalogs;
use crate::ledger::{Ledger, Trust};
use crate::overloads::Overloads;
use crate::reading::{Marks, Reading};
use crate::seam::Seam;
use crate::text::find;

/// How the clients of one pool were seen to use them, on all workers.
#[derive(Debug)]
pub struct Habit {
    seen: AtomicU8,
    /// What is known of its catalogs.
    pub(crate) catalogs: Catalogs,
    /// Of functions there whose names are no news.
    pub(crate) overloads: Overloads,
    /// Something that reads them stands behind a table.
    reads_behind: AtomicBool,
    /// No other pool has it, nor ever had.
    number: u64,
}

impl Default for Habit {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed);
        let seen = AtomicU8::default();
        Self {
            seen,
            catalogs: Catalogs::default(),
            overloads: Overloads::default(),
            reads_behind: AtomicBool::default(),
            number,
        }
    }
}

/// The ways, each of which comprises those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
enum Use {
    /// They are read, in the transaction in which they came to be.
    Within = 1,
    /// They are read in a later one.
    Across = 2,
}

impl Habit {
    /// As if a client had been seen to read in a later transaction.
    pub fn expect(&self) {
        self.raise(Use::Across);
    }

    fn raise(&self, seen: Use) {
        self.seen.fetch_max(seen as u8, Relaxed);
    }

    fn has(&self, seen: Use) -> bool {
        self.seen.load(Relaxed) >= seen as u8
    }

    /// What a text leads to reads them.
    pub(crate) fn expect_behind(&self) {
        self.reads_behind.store(true, Relaxed);
    }

    /// Whether what is marked so may have to do with sequences, here.
    pub(crate) fn concerns(&self, marks: Marks) -> bool {
        marks.has(Marks::OF_SEQUENCES) || self.may_lead_to_reads(marks)
    }

    /// Whether what stands in no text that is marked so may read them, here.
    pub(crate) fn may_read_behind(&self, marks: Marks) -> bool {
        marks.has(Marks::ASK) || self.may_lead_to_reads(marks)
    }

    fn may_lead_to_reads(&self, marks: Marks) -> bool {
        marks.has(Marks::LEARN) && self.reads_behind.load(Relaxed)
    }

    /// The pool's.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// What one server has of them.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    owner: Option<Owner>,
    /// Somebody else's are there as well.
    others: bool,
    /// A DISCARD of ours was sent and is not done yet.
    pending: Option<Pending>,
    /// Where in a text it stands.
    pub(crate) seam: Option<Seam>,
    /// The client's own DISCARD was sent and is not done yet.
    forgets: Option<Forgets>,
    /// What ran in this transaction and may have brought some.
    suspects: Vec<(Arc<Reading>, Scene)>,
    /// The probe under way said that there are some.
    pub(crate) seen: bool,
    /// The one that gave last may have been dropped in this transaction: then PostgreSQL says that there are none, though
    /// it knows what others gave.
    dropped: bool,
}

/// A DISCARD that is on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pending {
    /// The ledger's number of its entry; [`SOON`]: of the next.
    pub(crate) at: u64,
    /// Whether all behind it in its batch is skipped if it fails.
    pub(crate) in_batch: bool,
}

/// It is part of what is entered next.
pub(crate) const SOON: u64 = u64::MAX;

/// Whose they are.
#[derive(Debug)]
struct Owner {
    /// Its pid, which no other client of the process has.
    client: u32,
    certainty: Certainty,
    /// Something that may have brought some has run in the transaction under way.
    fresh: bool,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Certainty {
    /// Perhaps there are none.
    Suspected,
    Certain,
}

/// What a DISCARD under way does away with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Forgets {
    All,
    /// All but what was given behind it.
    Earlier,
}

/// So many are learnt from at once.
const SUSPECTS_MAX: usize = 16;

/// Append what tells, by an INFO of this text, whether `lastval()` is defined. An error that is caught leaves nothing in the server's log.
pub(crate) fn ask(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"DO $$BEGIN PERFORM pg_catalog.lastval(); RAISE INFO 'howdah_sequences'; EXCEPTION \
          WHEN object_not_in_prerequisite_state THEN NULL; \
          WHEN OTHERS THEN RAISE INFO 'howdah_sequences'; END$$ LANGUAGE plpgsql;",
    );
}

/// What a text that nobody reads has to do with them. `None`: it is not here, or not as a whole.
pub(crate) fn unread(text: Option<&[u8]>) -> Marks {
    let marks = Marks::MAY_GIVE.and(Marks::ASK);
    marks.and(text.map_or(Marks::MAY_READ, named))
}

/// Whether a text names `currval` or `lastval` somewhere: in the code of a block, or where it cannot be read.
pub(crate) fn named(text: &[u8]) -> Marks {
    let names = |word: &[u8]| find(text, word).is_some();
    if names(b"currval") || names(b"lastval") { Marks::SEQUENCE } else { Marks::default() }
}

/// The INFO.
pub(crate) const SEEN: &[u8] = b"howdah_sequences";

impl Sequences {
    /// A request comes to a server at rest.
    pub(crate) fn begin(&mut self) {
        if let Some(owner) = &mut self.owner {
            owner.fresh = false;
        }
        self.forgets = None;
        self.dropped = false;
        if self.pending.is_some() {
            self.remain();
        }
    }

    /// Something is made, changed or dropped, or is not any more if this is rolled back.
    pub(crate) fn drops(&mut self) {
        self.dropped = true;
    }

    /// The DISCARD was skipped, or was said in a failed transaction.
    fn remain(&mut self) {
        *self = Self { others: true, seam: self.seam.take(), ..Self::default() };
    }

    /// `reading` is about to be run for `client`, which has been given some before, if `has`. Whether what is here has to be discarded
    /// first.
    pub(crate) fn run(
        &mut self,
        (reading, scene, marks): (&Arc<Reading>, Scene, Marks),
        client: u32,
        has: &mut bool,
        habit: &Habit,
        ledger: &Ledger,
    ) -> bool {
        if marks.has(Marks::FORGETS) {
            // In a failed transaction, it is not done.
            self.forgets = Some(Forgets::All);
            return false;
        }
        let gives = marks.has(Marks::GIVES);
        let may_give = gives || marks.has(Marks::MAY_GIVE) && reading.may_give(scene);
        let reads = marks.has(Marks::SEQUENCE);
        let finds = reads || marks.has(Marks::MAY_READ);
        if !may_give && !finds {
            return false;
        }
        if self.pending.is_some_and(|pending| ledger.is_answered(pending.at)) {
            self.remain();
        }
        let mine = self.owner.as_ref().is_some_and(|owner| owner.client == client);
        let fresh = mine && self.owner.as_ref().is_some_and(|owner| owner.fresh);
        if reads {
            let later = *has && !fresh && !may_give;
            habit.raise(if later { Use::Across } else { Use::Within });
        }
        let discard = !mine && self.is_used() && (finds || habit.has(Use::Within));
        if !mine {
            self.others = !discard && self.is_used();
            self.suspects.clear();
            let certainty = Certainty::Suspected;
            self.owner = may_give.then_some(Owner { client, certainty, fresh: false });
        }
        if may_give && let Some(owner) = &mut self.owner {
            if self.forgets.is_some() {
                self.forgets = Some(Forgets::Earlier);
            }
            *has = true;
            owner.fresh = true;
            if gives || reading.seen.at(scene).is_given() {
                owner.certainty = Certainty::Certain;
            } else if owner.certainty == Certainty::Suspected && habit.has(Use::Across) {
                self.suspect(reading, scene);
            }
        }
        discard
    }

    /// One may have given something to nobody knows whom.
    pub(crate) fn give_unseen(&mut self) {
        self.others = true;
    }

    /// The DISCARD is on its way.
    pub(crate) fn discards(&mut self, pending: Pending) {
        self.pending = Some(pending);
    }

    pub(crate) fn discards_soon(&self) -> bool {
        self.pending.is_some_and(|pending| pending.at == SOON)
    }

    /// Whether nobody knows yet whether a DISCARD is done in front of what comes next.
    pub(crate) fn are_open(&self, ledger: &Ledger) -> bool {
        self.pending.is_some_and(|Pending { at, in_batch }| match in_batch {
            true => ledger.trust(at) == Trust::Open,
            false => !ledger.is_answered(at),
        })
    }

    fn suspect(&mut self, reading: &Arc<Reading>, scene: Scene) {
        let is_it =
            |(suspect, at): &(Arc<Reading>, Scene)| Arc::ptr_eq(suspect, reading) && *at == scene;
        if !self.suspects.iter().any(is_it) && self.suspects.len() < SUSPECTS_MAX {
            self.suspects.push((Arc::clone(reading), scene));
        }
    }

    /// `DISCARD SEQUENCES` is done.
    pub(crate) fn discarded(&mut self) {
        if self.forgets.take() == Some(Forgets::All) {
            *self = Self::default();
        } else if self.pending.take().is_some() || self.owner.is_none() {
            self.others = false;
        }
    }

    /// Whether there may be some of somebody else's than `client`.
    pub(crate) fn may_be_of_others(&self, client: u32) -> bool {
        self.pending.is_some() || self.is_used() && !self.are_of(client)
    }

    fn is_used(&self) -> bool {
        self.owner.is_some() || self.others
    }

    /// Whether what this client was given is here.
    pub(crate) fn are_of(&self, client: u32) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.client == client)
    }

    /// Whether the client has to keep its server for them.
    pub(crate) fn tie(&self, client: u32, habit: &Habit) -> bool {
        habit.has(Use::Across) && self.are_of(client)
    }

    /// Whether it has to be asked whether there are any.
    pub(crate) fn asks(&self, client: u32, habit: &Habit) -> bool {
        let suspected =
            |owner: &Owner| owner.certainty == Certainty::Suspected && owner.client == client;
        habit.has(Use::Across) && !self.others && self.owner.as_ref().is_some_and(suspected)
    }

    /// It was asked. `vain`: what ran may not have come so far as to be given any.
    pub(crate) fn learn(&mut self, vain: bool) {
        let seen = std::mem::take(&mut self.seen);
        let dropped = std::mem::take(&mut self.dropped);
        let suspects = std::mem::take(&mut self.suspects);
        let tells = if seen { suspects.len() == 1 } else { !vain && !dropped };
        for (suspect, scene) in suspects.into_iter().filter(|_| tells) {
            suspect.seen.was_given(scene, seen);
        }
        if !seen && !dropped {
            self.owner = None;
        } else if let Some(owner) = &mut self.owner {
            owner.certainty = Certainty::Certain;
        }
    }

    /// It cannot be asked.
    pub(crate) fn assume(&mut self) {
        self.suspects.clear();
        if let Some(owner) = &mut self.owner {
            owner.certainty = Certainty::Certain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u32 = 1;
    const BOB: u32 = 2;

    struct Server {
        sequences: Sequences,
        habit: Habit,
        /// Of Ann and Bob.
        have: [bool; 3],
    }

    impl Server {
        fn new() -> Self {
            Self { sequences: Sequences::default(), habit: Habit::default(), have: [false; 3] }
        }

        /// A transaction. Which of its statements have a DISCARD in front.
        fn runs(&mut self, client: u32, marks: &[Marks]) -> Vec<bool> {
            self.sequences.begin();
            let mut run = |marks: &Marks| {
                let reading = Arc::new(Reading::new(*marks, Box::default()));
                let has = &mut self.have[client as usize];
                let discards = self.sequences.run(
                    (&reading, Scene::default(), reading.marks),
                    client,
                    has,
                    &self.habit,
                    &Ledger::default(),
                );
                if discards {
                    self.sequences.discards(Pending { at: 0, in_batch: false });
                    self.sequences.discarded();
                }
                discards
            };
            marks.iter().map(&mut run).collect()
        }

        fn ties(&self, client: u32) -> bool {
            self.sequences.tie(client, &self.habit)
        }
    }

    #[test]
    fn a_pool_that_reads_none_pays_nothing() {
        let mut server = Server::new();
        for client in [ANN, BOB, ANN] {
            assert_eq!(server.runs(client, &[Marks::GIVES, Marks::MAY_GIVE]), [false; 2]);
            assert!(!server.ties(client));
        }
    }

    #[test]
    fn who_reads_within_the_transaction_is_tied_to_nothing() {
        let mut server = Server::new();
        assert_eq!(server.runs(ANN, &[Marks::GIVES, Marks::SEQUENCE]), [false; 2]);
        assert_eq!(server.runs(BOB, &[Marks::GIVES, Marks::SEQUENCE]), [true, false]);
        assert!(!server.ties(BOB));
    }

    #[test]
    fn who_reads_later_is_tied_from_then_on_and_so_are_others() {
        let mut server = Server::new();
        server.runs(ANN, &[Marks::GIVES]);
        assert_eq!(server.runs(ANN, &[Marks::SEQUENCE]), [false]);
        assert!(server.ties(ANN));
        assert_eq!(server.runs(BOB, &[Marks::GIVES]), [true]);
        assert!(server.ties(BOB));
        assert_eq!(server.runs(BOB, &[Marks::FORGETS]), [false]);
        assert!(server.ties(BOB), "it may have failed");
        server.sequences.discarded();
        assert!(!server.ties(BOB));
    }

    #[test]
    fn nobody_finds_anothers() {
        let mut server = Server::new();
        server.runs(ANN, &[Marks::GIVES]);
        assert_eq!(server.runs(BOB, &[Marks::SEQUENCE, Marks::SEQUENCE]), [true, false]);
        assert!(!server.sequences.are_of(ANN) && !server.sequences.are_of(BOB));
    }
}
