//! What is done about each kind of session state: `advisory_lock:error, temporary_table:pin`.

use crate::value::Kind;
use crate::words::Word;

/// A kind of state that a session can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StateKind {
    Settings,
    PreparedStatement,
    Listen,
    TemporaryTable,
    AdvisoryLock,
    HoldableCursor,
    Load,
    Seed,
    Sequence,
    Unknown,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Verdict {
    /// It follows its client.
    Track,
    /// Its client keeps its server for as long as it is there.
    Pin,
    /// The same, and the log has a warning.
    Warn,
    /// It is refused.
    Error,
}

/// A row of [`KINDS`].
#[derive(Debug)]
pub struct KindRow {
    pub kind: StateKind,
    pub word: &'static str,
    /// What may be done about it; the first is what is done.
    pub verdicts: &'static [Verdict],
}

const TIES: &[Verdict] = &[Verdict::Pin, Verdict::Warn, Verdict::Error];

const fn ties(kind: StateKind, word: &'static str) -> KindRow {
    KindRow { kind, word, verdicts: TIES }
}

/// What follows its client as a rule, and ties it where it cannot.
const fn follows(kind: StateKind, word: &'static str) -> KindRow {
    KindRow { kind, word, verdicts: &[Verdict::Track, Verdict::Warn, Verdict::Error] }
}

/// Every kind, in the order of [`StateKind`].
pub static KINDS: [KindRow; 10] = [
    KindRow {
        kind: StateKind::Settings,
        word: "settings",
        verdicts: &[Verdict::Track, Verdict::Error],
    },
    follows(StateKind::PreparedStatement, "prepared_statement"),
    follows(StateKind::Listen, "listen"),
    ties(StateKind::TemporaryTable, "temporary_table"),
    ties(StateKind::AdvisoryLock, "advisory_lock"),
    ties(StateKind::HoldableCursor, "holdable_cursor"),
    ties(StateKind::Load, "load"),
    ties(StateKind::Seed, "seed"),
    ties(StateKind::Sequence, "sequence"),
    ties(StateKind::Unknown, "unknown"),
];

impl Word for Verdict {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Track, "track"), (Self::Pin, "pin"), (Self::Warn, "warn"), (Self::Error, "error")];
}

/// What a line says about some of the kinds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StatePolicy([Option<Verdict>; KINDS.len()]);

impl StatePolicy {
    /// Reads `kind:verdict`, several with blanks or commas between. Of several for one kind the last
    /// counts. The error is what would have been right.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut policy = Self::default();
        let items = text.split([' ', '\t', ',']).filter(|item| !item.is_empty());
        for item in items {
            let (word, verdict) = item.split_once(':').ok_or_else(expects)?;
            let same = |row: &&KindRow| row.word.eq_ignore_ascii_case(word);
            let row = KINDS.iter().find(same).ok_or_else(|| {
                let words: Vec<&str> = KINDS.iter().map(|row| row.word).collect();
                format!("{word}: expected one of {}", words.join(", "))
            })?;
            let verdict = Verdict::read(verdict).filter(|verdict| row.verdicts.contains(verdict));
            policy.0[row.kind as usize] = Some(verdict.ok_or_else(|| {
                let words: Vec<&str> = row.verdicts.iter().map(|verdict| verdict.word()).collect();
                format!("{word}: expected one of {}", words.join(", "))
            })?);
        }
        Ok(policy)
    }

    /// What it says of a kind.
    #[must_use]
    pub fn of(&self, kind: StateKind) -> Option<Verdict> {
        self.0[kind as usize]
    }

    /// As it would be written.
    #[must_use]
    pub fn text(&self) -> String {
        let said = KINDS
            .iter()
            .filter_map(|row| Some(format!("{}:{}", row.word, self.of(row.kind)?.word())));
        said.collect::<Vec<_>>().join(", ")
    }
}

impl StateKind {
    /// What is done where nothing is said.
    #[must_use]
    pub fn usual(self) -> Verdict {
        KINDS[self as usize].verdicts.first().copied().unwrap_or(Verdict::Pin)
    }
}

fn expects() -> String {
    "expected kind:verdict, several with blanks or commas between".to_owned()
}

/// The setting `session_state`.
pub(crate) struct States;

impl Kind for States {
    type Value = StatePolicy;

    fn read(&self, text: &str) -> Option<StatePolicy> {
        StatePolicy::read(text).ok()
    }

    fn show(&self, value: &StatePolicy) -> Option<String> {
        Some(value.text())
    }

    fn expects(&self) -> String {
        let words: Vec<&str> = KINDS.iter().map(|row| row.word).collect();
        format!(
            "kind:verdict with commas between; kinds are {}; verdicts track (settings, prepared_statement, listen), pin (the others), warn (not settings), error",
            words.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_and_said_again() {
        let policy = StatePolicy::read("advisory_lock:error  Temporary_Table:WARN,settings:track");
        let policy = policy.expect("a policy");
        assert_eq!(policy.of(StateKind::AdvisoryLock), Some(Verdict::Error));
        assert_eq!(policy.of(StateKind::Listen), None);
        assert_eq!(policy.text(), "settings:track, temporary_table:warn, advisory_lock:error");
        assert_eq!(StatePolicy::read(&policy.text()), Ok(policy));
        for wrong in ["settings", "settings:pin", "lock:error", "listen:maybe", "load:track"] {
            assert!(StatePolicy::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_kind_stands_in_its_row() {
        for (at, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, at, "{}", row.word);
            assert_eq!(row.kind.usual(), row.verdicts[0]);
        }
    }
}
