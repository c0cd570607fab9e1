//! What a text was seen to do, and where.
//!
//! What is attached to tables shows in no text: triggers, rules, views, policies. So the first two times the server is
//! asked what a text left behind, and then it is believed. But the same words are another statement in another
//! database, with another search_path or role, behind a change of what they name, or in a transaction that has set
//! something for itself. So what was seen counts for the [`Scene`] where it was seen. And who failed, or changed no row,
//! has not come so far as to show anything.

use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::halves::Halves;
use crate::outward::Outward;
use crate::reading::{Marks, Reading};
use crate::recent::spread;
use crate::statements::Statement;

/// Where a text is run: a number for the pool, for all that decides what names mean and who asks, and for how often
/// what it names was changed. By itself: nobody knows where; nothing is believed there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Scene {
    number: u64,
    /// How often anything may have changed in any database.
    pub(crate) changes: u32,
    /// When that was.
    pub(crate) second: u32,
}

/// The bits of a scene's number that are used for what was seen there.
const SEEN: u64 = 0b1111;

impl Scene {
    fn of(parts: [u64; 4], changes: u32, second: u32) -> Self {
        let mix = |mixed: u64, part| {
            let mixed = spread(mixed ^ part);
            mixed ^ mixed >> 32
        };
        let number = parts.into_iter().fold(0x517c_c1b7_2722_0a95, mix) & !SEEN;
        // Zero is nowhere.
        Self { number: number.max(SEEN + 1), changes, second }
    }

    pub(crate) fn is_known(self) -> bool {
        self.number != 0
    }
}

/// How often a text was seen to leave no trace, and to be given nothing by a sequence.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen(u8);

/// So often a statement on tables has to be seen to leave nothing behind before it is believed.
const ENOUGH: u8 = 2;
/// It was seen to do something: it will do so again.
const NEVER: u8 = 3;

impl Seen {
    /// Whether it leaves nothing behind.
    pub(crate) fn is_clean(self) -> bool {
        self.0 & 3 == ENOUGH
    }

    /// Whether no sequence gives it anything.
    pub(crate) fn is_given_none(self) -> bool {
        self.0 >> 2 == ENOUGH
    }

    /// Whether one does.
    pub(crate) fn is_given(self) -> bool {
        self.0 >> 2 == NEVER
    }

    fn with_trace(self, trace: Trace) -> Self {
        let clean = match (trace, self.0 & 3) {
            (Trace::Its, _) | (_, NEVER) => NEVER,
            (Trace::None, seen) => ENOUGH.min(seen + 1),
            (Trace::Somebodys, _) => 0,
        };
        Self(self.0 & !3 | clean)
    }

    fn with_given(self, given: bool) -> Self {
        let seen = match (given, self.0 >> 2) {
            (true, _) | (_, NEVER) => NEVER,
            (false, seen) => ENOUGH.min(seen + 1),
        };
        Self(self.0 & 3 | seen << 2)
    }
}

/// What was left behind by what ran.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trace {
    None,
    Its,
    /// By this text or by another.
    Somebodys,
}

/// What was seen of one text.
#[derive(Debug, Default)]
pub(crate) struct Beliefs {
    /// It was run in these scenes lately.
    near: [AtomicU64; 2],
    /// Of all others; `None`: there is room for no others.
    shelf: Option<(u64, Arc<Shelf>)>,
}

impl Beliefs {
    /// Of a text with this number, which no other has that shares the shelf.
    pub(crate) fn on(shelf: &Arc<Shelf>, text: u64) -> Self {
        Self { near: Default::default(), shelf: Some((text, Arc::clone(shelf))) }
    }

    pub(crate) fn at(&self, scene: Scene) -> Seen {
        if !scene.is_known() {
            return Seen::default();
        }
        for near in &self.near {
            let known = near.load(Relaxed);
            if known & !SEEN == scene.number {
                return Seen((known & SEEN) as u8);
            }
        }
        let Some((text, shelf)) = &self.shelf else { return Seen::default() };
        let seen = shelf.find(key(*text, scene));
        if seen != Seen::default() {
            self.come_near(scene, seen);
        }
        seen
    }

    /// It was run there, and this was left behind.
    pub(crate) fn left(&self, scene: Scene, trace: Trace) {
        self.note(scene, |seen| seen.with_trace(trace));
    }

    /// It was run there, and a sequence gave something, or none did.
    pub(crate) fn was_given(&self, scene: Scene, given: bool) {
        self.note(scene, |seen| seen.with_given(given));
    }

    fn note(&self, scene: Scene, change: impl Fn(Seen) -> Seen) {
        if !scene.is_known() {
            return;
        }
        let seen = change(self.at(scene));
        if let Some((text, shelf)) = &self.shelf {
            shelf.put(key(*text, scene), seen);
        }
        // It may be there twice, where two workers have read it at once.
        let mut is_near = false;
        for near in &self.near {
            if near.load(Relaxed) & !SEEN == scene.number {
                near.store(scene.number | u64::from(seen.0), Relaxed);
                is_near = true;
            }
        }
        if !is_near {
            self.come_near(scene, seen);
        }
    }

    fn come_near(&self, scene: Scene, seen: Seen) {
        let [first, second] = &self.near;
        second.store(first.load(Relaxed), Relaxed);
        first.store(scene.number | u64::from(seen.0), Relaxed);
    }
}

fn key(text: u64, scene: Scene) -> u64 {
    scene.number ^ spread(text)
}

/// What was seen of the texts of one worker.
#[derive(Debug)]
pub(crate) struct Shelf(Mutex<Halves<u64, Seen, BuildHasherDefault<DefaultHasher>>>);

/// Entries of each half, of some ten bytes each.
const HALF: usize = 1 << 16;

impl Default for Shelf {
    fn default() -> Self {
        Self(Mutex::new(Halves::new(&BuildHasherDefault::default(), HALF, |_| 1)))
    }
}

impl Shelf {
    fn find(&self, key: u64) -> Seen {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).find(&key).unwrap_or_default()
    }

    fn put(&self, key: u64, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(key, seen);
    }
}

/// What texts have set for the transaction under way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Stir {
    #[default]
    Nothing,
    /// A number for these texts, in their order.
    By(u64),
    /// A part of it may have been undone.
    Lost,
}

/// What a text does to the transaction it stands in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Turn {
    #[default]
    None,
    /// It begins one, and leaves it open.
    Begins,
    /// It ends one, or goes back to a savepoint.
    Ends,
}

/// How a text came.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// As it is.
    Query,
    /// Parsed earlier.
    Statement(&'a Statement),
    /// Executed by a text, and prepared where this was the ground.
    Made(u64),
}

impl Origin<'_> {
    /// A number for what decided what its names mean.
    fn ground(self, present: u64) -> u64 {
        match self {
            Self::Query => present,
            Self::Made(ground) => ground,
            Self::Statement(statement) => statement.ground_number(),
        }
    }
}

/// What the transaction under way has set, and whether it is known to be one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Locally {
    stir: Stir,
    /// It was begun by a text of its own.
    block: bool,
}

impl Locally {
    /// A text is about to be run.
    fn run(&mut self, reading: &Reading, text: &[u8], origin: Origin<'_>) {
        // Whatever else is set is asked for when all is over.
        let sets = reading.marks.has(Marks::SETTINGS) && !reading.marks.has(Marks::ASK);
        self.stir = match self.stir {
            Stir::By(_) if reading.turn == Turn::Ends => Stir::Lost,
            // It ends with its batch, and nobody here follows where that ends.
            _ if sets && !self.block && matches!(origin, Origin::Statement(_)) => Stir::Lost,
            // Its text is not at hand.
            _ if sets && matches!(origin, Origin::Made(_)) => Stir::Lost,
            Stir::Nothing if sets => Stir::By(self.number(0, text)),
            Stir::By(before) if sets => Stir::By(self.number(before, text)),
            stir => stir,
        };
        match reading.turn {
            Turn::None => {}
            Turn::Begins => self.block = true,
            Turn::Ends => self.block = false,
        }
    }

    fn number(self, before: u64, text: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(before);
        hasher.write_u8(u8::from(self.block));
        hasher.write(text);
        hasher.finish()
    }
}

/// Whether a CommandComplete says that no row was changed: what is attached to rows was not reached. What reads
/// finds nothing often, and hardly anything is attached to that.
pub(crate) fn is_in_vain(tag: &[u8]) -> bool {
    tag.ends_with(b" 0") && !tag.starts_with(b"SELECT") && !tag.starts_with(b"FETCH")
}

impl Outward<'_> {
    /// Where a text is run that is about to be.
    pub(crate) fn scene(&mut self, reading: &Reading, text: &[u8], origin: Origin<'_>) -> Scene {
        let trail = &mut self.server.trail;
        if reading.turn != Turn::None || reading.marks.has(Marks::SETTINGS) {
            trail.locally.run(reading, text, origin);
        }
        if self.rules.doubts || !reading.marks.has(Marks::LEARN.and(Marks::MAY_GIVE)) {
            return Scene::default();
        }
        let stir = match trail.locally.stir {
            Stir::Nothing => 0,
            Stir::By(number) => number,
            Stir::Lost => return Scene::default(),
        };
        let present = trail.ground(self.client.state.as_deref(), &self.client.vars);
        let ages = self.statements.ages();
        let age = u64::from(ages.of(&reading.words)) | u64::from(ages.epoch()) << 32;
        let parts = [present, origin.ground(present), age, stir];
        Scene::of(parts, ages.all(), ages.second())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(number: u64) -> Scene {
        Scene::of([number, 0, 0, 0], 0, 0)
    }

    #[test]
    fn who_was_seen_twice_is_believed_there_and_nowhere_else() {
        let beliefs = Beliefs::on(&Arc::default(), 1);
        for number in 0..100 {
            let scene = scene(number);
            assert!(!beliefs.at(scene).is_clean());
            beliefs.left(scene, Trace::None);
            assert!(!beliefs.at(scene).is_clean());
            beliefs.left(scene, Trace::None);
            assert!(beliefs.at(scene).is_clean());
            assert!(!beliefs.at(scene).is_given_none());
        }
        assert!((0..100).all(|number| beliefs.at(scene(number)).is_clean()));
    }

    #[test]
    fn who_was_seen_to_do_something_is_never_believed_again() {
        let beliefs = Beliefs::on(&Arc::default(), 1);
        let (here, there) = (scene(1), scene(2));
        for scene in [here, there] {
            beliefs.left(scene, Trace::None);
            beliefs.left(scene, Trace::Somebodys);
            beliefs.left(scene, Trace::None);
            assert!(!beliefs.at(scene).is_clean());
        }
        beliefs.left(here, Trace::Its);
        for _ in 0..5 {
            beliefs.left(here, Trace::None);
            beliefs.left(there, Trace::None);
        }
        assert!(!beliefs.at(here).is_clean());
        assert!(beliefs.at(there).is_clean());
    }

    #[test]
    fn what_sequences_give_is_another_thing() {
        let beliefs = Beliefs::on(&Arc::default(), 1);
        let (here, there) = (scene(1), scene(2));
        beliefs.was_given(here, false);
        beliefs.was_given(here, false);
        beliefs.was_given(there, true);
        beliefs.was_given(there, false);
        assert!(beliefs.at(here).is_given_none() && !beliefs.at(here).is_clean());
        assert!(beliefs.at(there).is_given() && !beliefs.at(there).is_given_none());
    }

    #[test]
    fn nobody_is_believed_nowhere() {
        let beliefs = Beliefs::default();
        for _ in 0..5 {
            beliefs.left(Scene::default(), Trace::None);
            beliefs.was_given(Scene::default(), false);
        }
        assert_eq!(beliefs.at(Scene::default()), Seen::default());
    }

    #[test]
    fn texts_share_a_shelf_and_nothing_on_it() {
        let shelf = Arc::default();
        let texts = [1, 2].map(|text| Beliefs::on(&shelf, text));
        for number in 0..10 {
            texts[0].left(scene(number), Trace::None);
            texts[0].left(scene(number), Trace::None);
        }
        assert!((0..10).all(|number| texts[0].at(scene(number)).is_clean()));
        assert!((0..10).all(|number| texts[1].at(scene(number)) == Seen::default()));
    }

    /// What is on no shelf any more has to be seen anew.
    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let shelf: Arc<Shelf> = Arc::default();
        let beliefs = Beliefs::on(&shelf, 1);
        for number in 0..3 * HALF as u64 {
            beliefs.left(scene(number), Trace::None);
        }
        let kept = shelf.0.lock().expect("whole").len();
        assert!((HALF..=2 * HALF).contains(&kept), "{kept}");
        assert_eq!(beliefs.at(scene(0)), Seen::default());
        assert_ne!(beliefs.at(scene(3 * HALF as u64 - 1)), Seen::default());
    }

    #[test]
    fn what_changes_no_row_proves_nothing() {
        for tag in ["INSERT 0 0", "UPDATE 0", "DELETE 0", "MERGE 0", "COPY 0"] {
            assert!(is_in_vain(tag.as_bytes()), "{tag}");
        }
        for tag in ["INSERT 0 1", "UPDATE 10", "SELECT 0", "SELECT 1", "FETCH 0", "COMMIT", ""] {
            assert!(!is_in_vain(tag.as_bytes()), "{tag}");
        }
    }

    fn reading(marks: Marks, turn: Turn) -> Reading {
        Reading { turn, ..Reading::new(marks, Box::default()) }
    }

    /// What the transaction under way has set, behind these texts.
    fn behind(texts: &[&str]) -> Stir {
        let mut locally = Locally::default();
        for text in texts {
            let (marks, turn) = match *text {
                "begin" => (Marks::default(), Turn::Begins),
                "commit" | "rollback to a" => (Marks::default(), Turn::Ends),
                text if text.starts_with("set local") => (Marks::SETTINGS, Turn::None),
                _ => (Marks::LEARN, Turn::None),
            };
            locally.run(&reading(marks, turn), text.as_bytes(), Origin::Query);
        }
        locally.stir
    }

    #[test]
    fn what_is_set_for_a_transaction_tells_it_apart() {
        assert_eq!(behind(&["begin", "select a"]), Stir::Nothing);
        let one = behind(&["begin", "set local a = 1"]);
        assert_eq!(one, behind(&["begin", "select a", "set local a = 1", "select a"]));
        for other in [
            &["begin", "set local a = 2"][..],
            &["set local a = 1"],
            &["begin", "set local a = 1", "set local a = 1"],
            &["begin", "set local a = 1", "rollback to a"],
            &["begin", "set local a = 1", "commit"],
        ] {
            assert_ne!(one, behind(other), "{other:?}");
        }
        assert_eq!(behind(&["begin", "set local a = 1", "rollback to a"]), Stir::Lost);
    }

    /// Outside of a transaction a batch ends what it has set, at its Sync.
    #[test]
    fn what_a_batch_has_set_is_not_followed() {
        let mut locally = Locally::default();
        locally.run(&reading(Marks::SETTINGS, Turn::None), b"set local a = 1", Origin::Made(0));
        assert_eq!(locally.stir, Stir::Lost);
    }
}
