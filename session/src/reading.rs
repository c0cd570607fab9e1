//! What the text of a request may do to a session, read once and remembered.

use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::mem;
use std::sync::Arc;

use sql::{Overloadable, Signal, Unseen};

use crate::ages::{Change, Words};
use crate::beliefs::{Beliefs, Scene, Shelf, Turn};
use crate::halves::Halves;
use crate::hidden::Names;
use crate::made::Deed;
use crate::recent::Recent;
use crate::regain::Resets;
use crate::state::{Tie, Ties};

/// What a text may tell the functions that it calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Tells {
    #[default]
    Nothing,
    /// What stands in its strings.
    Strings,
    /// Nobody has looked.
    Unseen,
}

/// What a text may do, as far as it shows.
#[derive(Debug, Default)]
pub struct Reading {
    pub marks: Marks,
    /// Settings with a dot in their name that it may bring into being.
    pub custom: Box<[Box<[u8]>]>,
    /// State that it makes, as far as it says so.
    pub shows: Ties,
    /// How the text begins, for people.
    pub beginning: Box<[u8]>,
    /// What it does to prepared statements.
    pub deeds: Box<[Deed]>,
    /// Databases that nobody else may be in for what it does.
    pub vacates: Box<[Box<str>]>,
    /// Columns of its result, counted from 0, that say whether a process was sent a signal.
    pub signals: Box<[(u16, Signal)]>,
    /// What it changes that other texts stand on.
    pub changes: Change,
    /// What it leads back to what it was at login.
    pub resets: Option<Box<Resets>>,
    /// What it does to the transaction that it stands in.
    pub turn: Turn,
    /// What it may run that does not stand in it.
    pub(crate) names: Names,
    /// What it may tell whom it calls.
    pub(crate) tells: Tells,
    /// What it names that could be somebody's own though PostgreSQL has it, too.
    pub(crate) overloadable: Overloadable,
    /// The same text, where what it calls does nothing to the session.
    pub(crate) tame: Option<Arc<Self>>,
    /// What it stands on, where what it was seen to do is believed.
    pub(crate) words: Words,
    /// What it was seen to do.
    pub(crate) seen: Beliefs,
    /// Nothing of all this is to be watched.
    pub(crate) is_idle: bool,
}

impl Reading {
    #[must_use]
    pub fn new(marks: Marks, custom: Box<[Box<[u8]>]>) -> Self {
        Self { marks, custom, ..Self::default() }
    }

    #[must_use]
    pub(crate) fn showing(self, shows: Ties) -> Self {
        Self { shows, ..self }
    }

    #[must_use]
    pub(crate) fn changing(self, changes: Change) -> Self {
        Self { changes, ..self }
    }

    fn leaves_all_alone(&self) -> bool {
        let lists = [
            self.custom.is_empty(),
            self.deeds.is_empty(),
            self.vacates.is_empty(),
            self.signals.is_empty(),
        ];
        lists.iter().all(|is_empty| *is_empty)
            && self.marks.is_none()
            && self.changes == Change::Nothing
            && self.resets.is_none()
            && self.turn == Turn::None
            && self.tame.is_none()
    }

    /// A text that cannot be read.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(Marks::ASK.and(Marks::SETTINGS).and(Marks::MAY_GIVE), Box::default())
    }

    /// Whether what its tables bring along is not known yet where it is run.
    pub(crate) fn asks_of_tables(&self, scene: Scene) -> bool {
        self.marks.has(Marks::LEARN) && !self.seen.at(scene).is_clean()
    }

    /// Whether a sequence may give something where it is run, as far as was seen. What can do anything may always.
    pub(crate) fn may_give(&self, scene: Scene) -> bool {
        self.marks.has(Marks::ASK) || !self.seen.at(scene).is_given_none()
    }
}

/// What may have been done to a session since it was last asked about. Several texts add up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Marks(u16);

impl Marks {
    /// Its settings, or what ties it to its server, may have changed: ask.
    pub const ASK: Self = Self(1);
    /// As `ASK`, by what the text itself does not show: a trigger, a rule, a view. What it was seen
    /// to do it will do again.
    pub const LEARN: Self = Self(1 << 1);
    /// Settings may have gone back to what they were at login.
    pub const RESETS: Self = Self(1 << 2);
    pub const LOAD: Self = Self(1 << 3);
    pub const SEED: Self = Self(1 << 4);
    /// It reads what a sequence last gave this session.
    pub const SEQUENCE: Self = Self(1 << 5);
    /// It may change settings, if only for its transaction.
    pub const SETTINGS: Self = Self(1 << 7);
    /// It may do away with all prepared statements.
    pub const WIPES: Self = Self(1 << 8);
    /// It looks into the list of prepared statements.
    pub const LOOKS: Self = Self(1 << 9);

    /// It makes a sequence give something.
    pub const GIVES: Self = Self(1 << 10);
    /// It may do so, by what it calls or by what is attached to its tables.
    pub const MAY_GIVE: Self = Self(1 << 11);
    /// It may ask for what a sequence gave: nobody has seen it.
    pub const MAY_READ: Self = Self(1 << 13);
    /// It does nothing but end state, where there is some.
    pub const RELEASES: Self = Self(1 << 14);
    /// It gives up a prepared statement by its name, and does nothing else.
    pub const GIVES_UP: Self = Self(1 << 15);
    /// It does away with all that sequences gave.
    pub const FORGETS: Self = Self(1 << 12);

    /// Whatever has to do with sequences.
    pub(crate) const OF_SEQUENCES: Self =
        Self::SEQUENCE.and(Self::GIVES).and(Self::MAY_GIVE).and(Self::MAY_READ).and(Self::FORGETS);

    /// Of interest while the text is run, and not later.
    pub(crate) const PASSING: Self = Self::LEARN
        .and(Self::NOTIFIES)
        .and(Self::SETTINGS)
        .and(Self::WIPES)
        .and(Self::LOOKS)
        .and(Self::RELEASES)
        .and(Self::GIVES_UP)
        .and(Self::SEQUENCE)
        .and(Self::GIVES)
        .and(Self::MAY_GIVE)
        .and(Self::FORGETS);

    /// It notifies others, and leaves nothing behind by that.
    pub const NOTIFIES: Self = Self(1 << 6);

    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What code does that nobody can ask for afterwards.
    pub(crate) fn of_unseen(unseen: Unseen) -> Self {
        let all = [
            (Unseen::GIVES, Self::MAY_GIVE),
            (Unseen::READS, Self::SEQUENCE),
            (Unseen::SEEDS, Self::SEED),
            (Unseen::KEEPS, Self::LOAD),
        ];
        let its = all.into_iter().filter(|(what, _)| unseen.contains(*what));
        its.fold(Self::default(), |marks, (_, mark)| marks.and(mark))
    }

    /// The ties that no probe shows.
    pub(crate) fn ties(self) -> Ties {
        let mut ties = Ties::default();
        for (mark, tie) in [(Self::LOAD, Tie::Load), (Self::SEED, Tie::Seed)] {
            if self.has(mark) {
                ties.add(tie);
            }
        }
        ties
    }
}

/// What makes the hashes nobody's to choose: texts come from strangers.
#[derive(Clone, Copy, Debug)]
struct Seed(u64);

impl BuildHasher for Seed {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// Reads texts, and remembers what it read for as long as there is room.
pub struct Readings {
    read: Read,
    known: Halves<Box<[u8]>, Arc<Reading>, Seed>,
    /// The text at hand, less its literals.
    shape: Vec<u8>,
    recent: Recent,
    /// What was seen of them, by their numbers.
    shelf: Arc<Shelf>,
    seed: Seed,
    last: u64,
}

/// How a text is read.
pub type Read = fn(&[u8]) -> Reading;

/// Bytes of text that each half of the memory holds.
const HALF_BYTES: usize = 1 << 20;
/// What an entry takes besides its text.
const ENTRY_BYTES: usize = 256;
/// So much of a text is kept for people to recognise it by.
const BEGINNING_MAX: usize = 100;
/// Numbers that stand for all texts of one shape, and not for one of them.
const OF_SHAPE: u64 = 1 << 63;
/// Longer texts are read, but not remembered.
const TEXT_MAX: usize = 64 * 1024;

impl Readings {
    #[must_use]
    pub fn new(read: Read, seed: u64) -> Self {
        Self {
            read,
            seed: Seed(seed),
            known: Halves::new(&Seed(seed), HALF_BYTES, |text| text.len() + ENTRY_BYTES),
            shape: Vec::new(),
            recent: Recent::default(),
            shelf: Arc::default(),
            last: 0,
        }
    }

    /// What is known of `text`, or of one that differs from it by its literals only, where nothing can
    /// depend on these.
    pub fn of(&mut self, text: &[u8]) -> Arc<Reading> {
        if let Some(known) = self.recent.find(text) {
            return Arc::clone(known);
        }
        let mut shape = mem::take(&mut self.shape);
        let has_shape = text.len() <= TEXT_MAX && crate::shape::of(text, &mut shape);
        let reading =
            if has_shape { self.of_shape(text, &shape) } else { self.exactly(text, None) };
        self.shape = shape;
        self.recent.came(text, &reading);
        reading
    }

    fn of_shape(&mut self, text: &[u8], shape: &[u8]) -> Arc<Reading> {
        if let Some(known) = self.known.find(shape) {
            return known;
        }
        let reading = self.exactly(text, Some(shape));
        // What is asked for may stand in a literal: the name of a setting, or of a database.
        if !reading.marks.has(Marks::ASK) && reading.vacates.is_empty() {
            self.known.keep(shape.into(), Arc::clone(&reading));
        }
        reading
    }

    fn exactly(&mut self, text: &[u8], shape: Option<&[u8]>) -> Arc<Reading> {
        if let Some(known) = self.known.find(text) {
            return known;
        }
        let mut reading = (self.read)(text);
        if reading.marks.has(Marks::LEARN) {
            reading.overloadable |= Overloadable::ANYWHERE;
        }
        if !reading.marks.is_none() || !reading.overloadable.is_none() {
            reading.beginning = text.get(..BEGINNING_MAX).unwrap_or(text).into();
        }
        self.last += 1;
        if reading.marks.has(Marks::LEARN.and(Marks::MAY_GIVE)) {
            reading.words = Words::of(text);
            reading.seen = Beliefs::on(&self.shelf, self.last);
        }
        if let Some(tame) = reading.tame.as_mut().and_then(Arc::get_mut) {
            tame.beginning = reading.beginning.clone();
            tame.words = Words::of(text);
            tame.overloadable = reading.overloadable;
            // It is given names of settings by nobody, so that its literals make no difference.
            let number = shape.map_or(self.last, |shape| self.seed.hash_one(shape) | OF_SHAPE);
            tame.seen = Beliefs::on(&self.shelf, number);
        }
        reading.is_idle = reading.leaves_all_alone();
        let reading = Arc::new(reading);
        if reading.marks.has(Marks::ASK) && text.len() <= TEXT_MAX {
            self.known.keep(text.into(), Arc::clone(&reading));
        }
        reading
    }
}

impl std::fmt::Debug for Readings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readings").field("texts", &self.known.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut readings = Readings::new(|_| Reading::unknown(), 7);
        let kept = readings.of(b"kept");
        for index in 0..100 {
            readings.of(&[b'A'; TEXT_MAX].map(|x| x + index % 26 + 32 * (index / 26 % 2)));
            assert!(Arc::ptr_eq(&kept, &readings.of(b"kept")));
        }
        assert!(readings.known.len() <= 2 * HALF_BYTES / TEXT_MAX + 2);
    }

    /// Millions of texts that differ in their numbers only are read once.
    #[test]
    fn literals_make_no_difference_where_they_cannot() {
        let mut readings = Readings::new(|_| Reading::new(Marks::LEARN, Box::default()), 7);
        let one = readings.of(b"select a from t where b = 17");
        assert!(Arc::ptr_eq(&one, &readings.of(b"select a from t where b = 4711")));
        assert!(!Arc::ptr_eq(&one, &readings.of(b"select a from u where b = 17")));
        let mut readings = Readings::new(|_| Reading::unknown(), 7);
        let one = readings.of(b"select f('a.b')");
        assert!(!Arc::ptr_eq(&one, &readings.of(b"select f('a.c')")));
        assert!(Arc::ptr_eq(&one, &readings.of(b"select f('a.b')")));
    }
}
