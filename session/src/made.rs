//! Statements prepared by `PREPARE`: they follow their client, as its settings do.
//!
//! What a text means is settled when it is prepared, by the settings then in force. So a statement can be
//! prepared again elsewhere only as long as its client's session is set as it was: the `ground` it
//! was made on is a number for that.

use std::collections::VecDeque;

use crate::{State, Vars};

/// One, as PostgreSQL lists it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Made {
    pub(crate) name: Box<[u8]>,
    /// The whole `PREPARE …`, in the encoding of its client.
    pub(crate) text: Box<[u8]>,
    pub(crate) ground: u64,
}

/// Statements of one session that follow it. With more, or with a text of more than 8192 characters, the
/// client keeps its server.
pub(crate) const MADE_MAX: usize = 64;

/// Names that are remembered to have been given by SQL.
const NAMES_MAX: usize = 256;

/// What a text does to prepared statements, by their names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Deed {
    /// It is nothing but this PREPARE. What is prepared begins here in it.
    Prepare {
        name: Box<[u8]>,
        body: usize,
    },
    Execute(Box<[u8]>),
    Deallocate(Box<[u8]>),
}

/// Settings that have no say in what a text means: they bound, cost, log or plan.
const WITHOUT_SAY: [&str; 14] = [
    "_timeout",
    "enable_",
    "_cost",
    "log_",
    "_mem",
    "jit",
    "geqo",
    "parallel",
    "commit",
    "_limit",
    "client_min_messages",
    "transaction_",
    "temp_buffers",
    "track_",
];

/// Whether a setting of this name may decide what a text means.
pub(crate) fn has_say(name: &[u8]) -> bool {
    let has = |part: &&str| name.windows(part.len()).any(|found| found == part.as_bytes());
    // What a module has defined says nothing to the parser.
    !name.contains(&b'.') && !WITHOUT_SAY.iter().any(has)
}

/// A number for all that decides what a text means which is prepared now.
pub(crate) fn ground(state: Option<&State>, vars: &Vars) -> u64 {
    vars.ground() ^ state.map_or(0, State::ground)
}

/// Whether this can be prepared again some time later and be the same.
pub(crate) fn can_be_repeated(name: &[u8], text: &[u8]) -> bool {
    // Literals that are the time at which they are read.
    const CLOCKS: [&[u8]; 5] = [b"'now", b"'today", b"'tomorrow", b"'yesterday", b"$"];
    let has = |word: &[u8]| {
        let mut at = text.windows(word.len()).enumerate();
        // A parameter is a dollar too, and a string between dollars is not looked into.
        let is_parameter = |at: usize| text.get(at + 1).is_some_and(u8::is_ascii_digit);
        at.any(|(at, found)| {
            found.eq_ignore_ascii_case(word) && !(word == b"$" && is_parameter(at))
        })
    };
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    !name.is_empty() && name.iter().all(is_plain) && !CLOCKS.iter().any(|word| has(word))
}

/// One that could not be prepared.
#[derive(Debug)]
struct Lacking {
    made: Made,
    /// The body of the error.
    error: Box<[u8]>,
}

/// What is known of the statements on one server besides their list.
#[derive(Debug, Default)]
pub(crate) struct Workshop {
    /// Something ran that may have changed settings, for now or for good, since they were last known.
    unsettled: bool,
    /// And its text said so, or could not be read.
    pub(crate) stirred: bool,
    /// What was prepared since, and on which ground.
    fresh: Vec<Made>,
    /// What its client has and could not be prepared here: its table is gone, perhaps for a while.
    lacking: Vec<Lacking>,
    /// What it is being made to prepare, in order.
    pub(crate) underway: VecDeque<Made>,
    /// One of the statements cannot be made elsewhere.
    pub(crate) bound: bool,
    /// Names that SQL has given, or may have.
    names: Vec<Box<[u8]>>,
}

impl Workshop {
    /// A new transaction begins, and all settings are known.
    pub(crate) fn settle(&mut self) {
        (self.unsettled, self.stirred) = (false, false);
    }

    pub(crate) fn unsettle(&mut self) {
        self.unsettled = true;
    }

    /// Whether the settings in force are those last known.
    pub(crate) fn is_settled(&self) -> bool {
        !self.unsettled
    }

    /// A PREPARE is about to be run.
    pub(crate) fn prepare(&mut self, name: &[u8], text: &[u8], ground: u64) {
        self.fresh.retain(|made| *made.name != *name);
        if !self.has_name(name) && self.names.len() < NAMES_MAX {
            self.names.push(name.into());
        }
        if !self.unsettled && self.fresh.len() < MADE_MAX {
            self.fresh.push(Made { name: name.into(), text: text.into(), ground });
        }
    }

    pub(crate) fn fresh(&self, name: &[u8]) -> Option<&Made> {
        self.fresh.iter().find(|made| *made.name == *name)
    }

    /// Whether SQL may have given this name here.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.names.iter().any(|known| **known == *name)
    }

    /// The client gives this name up, whether there is such a statement here or not.
    pub(crate) fn deallocate(&mut self, name: &[u8]) {
        self.lacking.retain(|lacking| *lacking.made.name != *name);
    }

    pub(crate) fn deallocate_all(&mut self) {
        self.lacking.clear();
    }

    /// What was found here, so far as it can be made elsewhere.
    pub(crate) fn trace(
        &mut self,
        found: &[(Vec<u8>, Option<Vec<u8>>)],
        known: &[Made],
    ) -> Vec<Made> {
        self.names = found.iter().map(|(name, _)| name.as_slice().into()).collect();
        let fresh = std::mem::take(&mut self.fresh);
        let of = |(name, text): &(Vec<u8>, Option<Vec<u8>>)| {
            let text = text.as_deref()?;
            let same = |made: &&Made| *made.name == **name && *made.text == *text;
            // Prepared anew, it is what it was prepared as last.
            let again = fresh.iter().any(|made| *made.name == **name);
            let known = known.iter().filter(|_| !again);
            let made = fresh.iter().chain(known).find(same)?;
            can_be_repeated(name, text).then(|| made.clone())
        };
        let made: Vec<Made> = found.iter().filter_map(of).take(MADE_MAX).collect();
        self.bound = made.len() < found.len();
        made
    }

    /// All that the client has: what is here, and what could not be made here.
    pub(crate) fn with_lacking(&self, made: &[Made]) -> Option<Vec<Made>> {
        let is_here = |lacking: &&Made| made.iter().any(|made| made.name == lacking.name);
        let lacking: Vec<Made> = self.lacking().filter(|made| !is_here(made)).cloned().collect();
        (!lacking.is_empty()).then(|| [made, &lacking].concat())
    }

    /// What `client` has and `server` has not. It is asked for anew for every client that comes.
    pub(crate) fn missing(&mut self, client: &[Made], server: &[Made]) -> Vec<Made> {
        self.lacking.clear();
        self.fresh.clear();
        client.iter().filter(|made| !server.contains(made)).cloned().collect()
    }

    /// The next of those under way was answered.
    pub(crate) fn answered(&mut self, error: Option<Box<[u8]>>) {
        if let (Some(made), Some(error)) = (self.underway.pop_front(), error) {
            self.lacking.push(Lacking { made, error });
        }
    }

    /// Whether there is nothing here that the list of statements does not tell.
    pub(crate) fn is_idle(&self) -> bool {
        let lists = self.fresh.is_empty() && self.lacking.is_empty();
        lists && self.underway.is_empty() && !self.bound
    }

    pub(crate) fn lacking(&self) -> impl Iterator<Item = &Made> {
        self.lacking.iter().map(|lacking| &lacking.made)
    }

    /// Whether anything of its client's could not be prepared here.
    pub(crate) fn lacks(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// Why that of which a text says that it does not exist could not be prepared. It is in quotes of some language.
    pub(crate) fn reason(&self, text: &[u8]) -> Option<&[u8]> {
        let is_named = |name: &[u8]| {
            text.windows(name.len() + 2).any(|part| {
                let quotes = [part.first(), part.last()];
                part.get(1..=name.len()) == Some(name)
                    && !quotes.into_iter().flatten().any(u8::is_ascii_alphanumeric)
            })
        };
        let lacking = self.lacking.iter().find(|lacking| is_named(&lacking.made.name))?;
        Some(&lacking.error)
    }

    pub(crate) fn discarded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracked;

    #[test]
    fn only_what_says_what_a_text_means_is_its_ground() {
        let vars = Vars::new(&Tracked::default());
        let with = |name: &str, value: &str| {
            let state = State::asked([(name.as_bytes(), value.as_bytes())]);
            ground(Some(&state), &vars)
        };
        let bare = ground(None, &vars);
        assert_eq!(with("statement_timeout", "5"), bare);
        assert_eq!(with("work_mem", "5"), bare);
        assert_eq!(with("app.tenant", "5"), bare);
        assert_ne!(with("search_path", "a"), bare);
        assert_ne!(with("role", "bob"), bare);
        let mut named = vars.clone();
        named.set(b"application_name", b"x");
        assert_eq!(ground(None, &named), bare);
        named.set(b"DateStyle", b"German");
        assert_ne!(ground(None, &named), bare);
    }

    #[test]
    fn why_one_is_lacking_is_known_by_its_name() {
        let mut workshop = Workshop::default();
        let made = Made { name: (*b"s").into(), text: Box::default(), ground: 0 };
        workshop.underway.push_back(made);
        workshop.answered(Some((*b"why").into()));
        for text in ["prepared statement \"s\" does not exist", "\u{ab}s\u{bb}"] {
            assert_eq!(workshop.reason(text.as_bytes()), Some(&b"why"[..]), "{text}");
        }
        for text in ["prepared statement \"st\" does not exist", "\"as\"", "s", ""] {
            assert_eq!(workshop.reason(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_the_clock_decides_is_not_repeated() {
        assert!(can_be_repeated(b"p", b"PREPARE p AS SELECT 1"));
        assert!(!can_be_repeated(b"p", b"PREPARE p AS SELECT 'NOW'::timestamp"));
        assert!(!can_be_repeated("\u{e4}".as_bytes(), b"PREPARE p AS SELECT 1"));
    }
}
