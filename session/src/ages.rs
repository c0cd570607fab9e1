//! How often that was changed which texts stand on: tables, types, functions.
//!
//! PostgreSQL analyses a text each time it is parsed. A text that was parsed before a change and one that is parsed
//! behind it are two statements, so that nobody is given what another had analysed before. What a text stands on is
//! told by its words; of a change of which more than names is known too little, all texts are struck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::outward::Outward;
use crate::reading::Reading;

/// What a text changes that others may stand on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Change {
    #[default]
    Nothing,
    /// What bears one of these names.
    Named(Box<[Box<[u8]>]>),
    /// Anything may stand on what the text names.
    Written,
    Anything,
}

/// Counts of changes, shared by all workers.
#[derive(Debug)]
pub(crate) struct Ages {
    /// How often there was one at all.
    any: AtomicU32,
    /// How often anything may have changed.
    all: AtomicU32,
    /// How often something changed in whose name there is a word of this hash.
    words: [AtomicU32; BUCKETS],
    /// The same of what is attached to things and of what functions are made of: a text that defines something changes
    /// these of what it names, and of nothing else.
    hidden: [AtomicU32; BUCKETS],
    all_hidden: AtomicU32,
    /// How often something may have been made or changed that is run by names which others know, or by none.
    callables: AtomicU32,
    /// The second it is.
    second: AtomicU32,
    /// How often something was found that was changed elsewhere.
    elsewhere: AtomicU32,
}

const BUCKETS: usize = 4096;

/// Texts of more words stand on everything.
const WORDS_MAX: usize = 256;

/// Changes of one transaction that are kept apart.
const UNDERWAY_MAX: usize = 64;

impl Default for Ages {
    fn default() -> Self {
        let zero = || AtomicU32::new(0);
        let [words, hidden] = [(); 2].map(|()| std::array::from_fn(|_| zero()));
        Self {
            any: zero(),
            all: zero(),
            words,
            hidden,
            all_hidden: zero(),
            callables: zero(),
            second: zero(),
            elsewhere: zero(),
        }
    }
}

impl Ages {
    /// How often that was changed on which a text of these words stands. It never comes back to what it was.
    pub(crate) fn of(&self, words: &Words) -> u32 {
        let any = self.any.load(Relaxed);
        match words {
            _ if any == 0 => 0,
            Words::TooMany => any,
            Words::Hashes(hashes) => {
                let count = |hash: &u16| self.words[usize::from(*hash) % BUCKETS].load(Relaxed);
                hashes.iter().map(count).fold(self.all.load(Relaxed), u32::wrapping_add)
            }
        }
    }

    /// As [`Self::of`], for what stands behind this name.
    pub(crate) fn of_hidden(&self, name: &[u8]) -> u32 {
        if self.any.load(Relaxed) == 0 {
            return 0;
        }
        self.of_all_hidden(hashes(name))
    }

    /// As [`Self::of_hidden`], for all names of these words.
    pub(crate) fn of_all_hidden(&self, words: impl IntoIterator<Item = u16>) -> u32 {
        let count = |word| self.hidden[usize::from(word) % BUCKETS].load(Relaxed);
        words.into_iter().map(count).fold(self.all_hidden.load(Relaxed), u32::wrapping_add)
    }

    /// How often there was a change at all.
    pub(crate) fn any(&self) -> u32 {
        self.any.load(Relaxed)
    }

    /// How often anything may have changed.
    pub(crate) fn all(&self) -> u32 {
        self.all.load(Relaxed)
    }

    /// For so long what was known is believed, at most: what is changed elsewhere tells nobody here. It never comes back
    /// to what it was.
    pub(crate) fn epoch(&self) -> u32 {
        (self.second() / 60).wrapping_add(self.elsewhere.load(Relaxed))
    }

    pub(crate) fn second(&self) -> u32 {
        self.second.load(Relaxed)
    }

    pub(crate) fn is(&self, second: u32) {
        // Workers do not say it at one time.
        self.second.fetch_max(second, Relaxed);
    }

    /// How often something may have been made or changed that is run by names which others know, or by none, as far as it
    /// is known.
    pub(crate) fn of_callables(&self) -> u32 {
        self.callables.load(Relaxed).wrapping_add(self.elsewhere.load(Relaxed))
    }

    /// Something was changed that nobody here has said.
    pub(crate) fn changed_elsewhere(&self) {
        self.elsewhere.fetch_add(1, Relaxed);
    }

    fn note(&self, reading: &Reading) {
        let bump = |counts: &[AtomicU32; BUCKETS], hashes: &[u16]| {
            for hash in hashes {
                counts[usize::from(*hash) % BUCKETS].fetch_add(1, Relaxed);
            }
        };
        match &reading.changes {
            Change::Nothing => return,
            Change::Anything | Change::Written => {
                self.all.fetch_add(1, Relaxed);
            }
            Change::Named(names) => {
                for name in names {
                    let Words::Hashes(hashes) = Words::of(name) else { continue };
                    bump(&self.words, &hashes);
                }
            }
        }
        match (&reading.changes, &reading.words) {
            (Change::Named(_) | Change::Written, Words::Hashes(hashes)) if !hashes.is_empty() => {
                bump(&self.hidden, hashes);
            }
            _ => {
                self.all_hidden.fetch_add(1, Relaxed);
            }
        }
        let may_make_callables = match reading.changes {
            Change::Anything => true,
            Change::Written => reading.words.may_say(&CALLABLES),
            // It is dropped, or in pg_temp, where nothing is called without saying so.
            Change::Named(_) | Change::Nothing => false,
        };
        if may_make_callables {
            self.callables.fetch_add(1, Relaxed);
        }
        self.any.fetch_add(1, Relaxed);
    }
}

/// The words of a text, whatever their case, each once.
#[derive(Debug)]
pub(crate) enum Words {
    Hashes(Box<[u16]>),
    TooMany,
}

impl Default for Words {
    fn default() -> Self {
        Self::Hashes(Box::default())
    }
}

impl Words {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut hashes: Vec<u16> = words(text).map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.len() > WORDS_MAX { Self::TooMany } else { Self::Hashes(hashes.into()) }
    }
}

impl Words {
    /// Whether one of these may be among them. Of what has none, nobody knows.
    fn may_say(&self, wanted: &[&[u8]]) -> bool {
        match self {
            Self::TooMany => true,
            Self::Hashes(hashes) => {
                hashes.is_empty() || wanted.iter().any(|word| hashes.contains(&hash(word)))
            }
        }
    }
}

/// What has to be said to make or change something that is called, or to bring it along.
const CALLABLES: [&[u8]; 8] = [
    b"function",
    b"procedure",
    b"routine",
    b"aggregate",
    b"operator",
    b"cast",
    b"domain",
    b"extension",
];

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !is_part(byte)).filter(|word| !word.is_empty())
}

/// Words that stand in what changes something, whatever its name is.
const GENERAL: [&[u8]; 6] = [b"operator", b"function", b"procedure", b"table", b"view", b"index"];

/// Numbers for the words of a name. An operator has none.
pub(crate) fn hashes(name: &[u8]) -> impl Iterator<Item = u16> {
    let general = if words(name).next().is_none() { &GENERAL[..] } else { &[] };
    words(name).chain(general.iter().copied()).map(hash)
}

fn is_part(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80
}

fn hash(word: &[u8]) -> u16 {
    // FNV, folded. Whoever makes words fall together makes his statements be parsed once more.
    let hash = word.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    });
    (hash ^ hash >> 16) as u16
}

/// Whether a text that nobody reads speaks of a change: of what is created, altered or dropped, and not just that word.
pub(crate) fn speaks(text: &[u8]) -> bool {
    let mut rest = text;
    // Word by word.
    while let Some(start) = rest.iter().position(is_part) {
        let word = &rest[start..];
        let len = word.iter().position(|byte| !is_part(byte)).unwrap_or(word.len());
        let (word, behind) = word.split_at(len);
        if VERBS.iter().any(|verb| word.eq_ignore_ascii_case(verb)) && goes_on(behind) {
            return true;
        }
        rest = behind;
    }
    false
}

const VERBS: [&[u8]; 3] = [b"create", b"alter", b"drop"];

/// Whether what follows a verb belongs to it: another word, or what the string is joined with that ends here.
fn goes_on(rest: &[u8]) -> bool {
    match rest.trim_ascii_start() {
        [b'\'', rest @ ..] => rest.trim_ascii_start().starts_with(b"||"),
        [next, ..] => is_part(next) || matches!(next, b'/' | b'-' | b'%'),
        [] => false,
    }
}

pub(crate) fn mentions(text: &[u8], wanted: &[u8]) -> bool {
    words(text).any(|word| word.eq_ignore_ascii_case(wanted))
}

/// Whether a name has words by which it can be found.
pub(crate) fn is_found(name: &str) -> bool {
    words(name.as_bytes()).next().is_some()
}

/// Changes that a server is about to make: they count when they begin, and once more when they are over, for nobody
/// knows who was served before and who behind them.
#[derive(Debug)]
pub(crate) struct Underway {
    ages: Arc<Ages>,
    by: Vec<Arc<Reading>>,
}

impl Drop for Underway {
    fn drop(&mut self) {
        for reading in &self.by {
            self.ages.note(reading);
        }
    }
}

impl Outward<'_> {
    /// A text is about to be run that changes something.
    pub(crate) fn watch_change(&mut self, reading: &Arc<Reading>) {
        self.server.trail.sequences.drops();
        let ages = self.statements.ages();
        ages.note(reading);
        let new = || Underway { ages: Arc::clone(ages), by: Vec::new() };
        let by = &mut self.server.underway.get_or_insert_with(new).by;
        if by.len() < UNDERWAY_MAX {
            by.push(Arc::clone(reading));
        } else {
            let all = Reading::default().changing(Change::Anything);
            *by = vec![Arc::new(all)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_on_it_grows_older() {
        let ages = Ages::default();
        let [orders, other] = [&b"SELECT * FROM \"Orders\""[..], b"SELECT 1"].map(Words::of);
        let many = Words::of((0..300).map(|i| format!("a{i} ")).collect::<String>().as_bytes());
        let now = || [&orders, &other, &many].map(|words| ages.of(words));
        assert_eq!(now(), [0, 0, 0]);
        let note = |change| ages.note(&Reading::default().changing(change));
        note(Change::Named([b"orders".to_vec().into()].into()));
        assert_eq!(now(), [1, 0, 1]);
        note(Change::Anything);
        assert_eq!(now(), [2, 1, 2]);
        note(Change::Nothing);
        assert_eq!(now(), [2, 1, 2]);
    }

    #[test]
    fn what_is_hidden_behind_other_names_grows_no_older() {
        let ages = Ages::default();
        let now = || [&b"orders"[..], b"Two Words", b"other"].map(|name| ages.of_hidden(name));
        let note = |changes, text: &[u8]| {
            ages.note(&Reading { changes, words: Words::of(text), ..Reading::default() });
        };
        note(
            Change::Written,
            b"CREATE TRIGGER t BEFORE INSERT ON orders EXECUTE FUNCTION \"two words\"()",
        );
        assert_eq!(now(), [1, 2, 0]);
        note(Change::Named(Box::default()), b"DROP TABLE orders");
        assert_eq!(now(), [2, 2, 0]);
        note(Change::Anything, b"SELECT f('create table x')");
        assert_eq!(now(), [3, 3, 1]);
        note(Change::Nothing, b"SELECT * FROM orders");
        assert_eq!(now(), [3, 3, 1]);
    }

    #[test]
    fn a_word_alone_is_no_change() {
        for text in [
            "DO $$ BEGIN CREATE TABLE t (i int); END $$",
            "SELECT run('drop table t')",
            "SELECT run('DROP' || ' TABLE t')",
            "SELECT run('alter ' || x)",
            "SELECT run('create/**/table t')",
            "SELECT run(format('drop %s t', x))",
            "SELECT run(E'create\ntable t (i int)')",
        ] {
            assert!(speaks(text.as_bytes()), "{text}");
        }
        for text in [
            "SELECT log_event('create', 17)",
            "SELECT f('drop')",
            "SELECT f(\"alter\", created, dropped_at, create_x)",
            "SELECT 'create'",
            "drop",
            "",
        ] {
            assert!(!speaks(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_under_way_counts_twice() {
        let ages = Arc::new(Ages::default());
        let words = Words::of(b"x");
        let reading = Reading::default().changing(Change::Anything);
        drop(Underway { ages: Arc::clone(&ages), by: vec![Arc::new(reading)] });
        assert_eq!(ages.of(&words), 1);
    }
}
