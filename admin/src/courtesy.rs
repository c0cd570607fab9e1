//! What drivers say out of habit, and what they are told so that they go on.
//!
//! None of it does anything to the pooler. PgBouncer knows the first six settings only.

use crate::cell::{Column, text};

/// A setting that drivers set and show, whatever server they think they talk to.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Faked {
    pub(crate) value: &'static str,
    /// As SHOW answers: its one column has the setting's name.
    pub(crate) columns: [Column; 1],
}

pub(crate) static FAKED: [Faked; 10] = [
    faked("client_encoding", "UTF-8"),
    faked("default_transaction_isolation", "read committed"),
    faked("standard_conforming_strings", "on"),
    faked("datestyle", "ISO"),
    faked("timezone", "GMT"),
    faked("extra_float_digits", "2"),
    faked("application_name", ""),
    faked("default_transaction_read_only", "off"),
    faked("transaction_isolation", "read committed"),
    // What a driver asks that was told to find a server which can be written to.
    faked("transaction_read_only", "off"),
];

const fn faked(name: &'static str, value: &'static str) -> Faked {
    Faked { value, columns: [text(name)] }
}

impl Faked {
    pub(crate) fn named(word: &str) -> Option<&'static Self> {
        FAKED.iter().find(|faked| faked.name().eq_ignore_ascii_case(word))
    }

    pub(crate) fn name(&self) -> &'static str {
        let [column] = &self.columns;
        column.name
    }
}

/// A statement that drivers send about themselves.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Habit {
    /// Its words.
    pub(crate) phrase: &'static str,
    /// What may stand behind them.
    pub(crate) tail: Tail,
    pub(crate) effect: Effect,
    /// What it is answered with.
    pub(crate) tag: &'static str,
}

/// What may stand behind a phrase.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tail {
    Nothing,
    /// Modes of a transaction, which are not looked at.
    Modes,
    /// The name of a prepared statement.
    Name,
}

/// What a habit changes in the conversation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    Nothing,
    /// `ReadyForQuery` says that a transaction is open, which some drivers check.
    Begin,
    End,
    /// Prepared statements are dropped: all, or the one that is named.
    Deallocate,
    DeallocateAll,
    CloseAll,
}

pub(crate) static HABITS: [Habit; 17] = [
    habit("BEGIN", Tail::Modes, Effect::Begin, "BEGIN"),
    habit("START TRANSACTION", Tail::Modes, Effect::Begin, "START TRANSACTION"),
    habit("COMMIT", Tail::Nothing, Effect::End, "COMMIT"),
    habit("COMMIT WORK", Tail::Nothing, Effect::End, "COMMIT"),
    habit("COMMIT TRANSACTION", Tail::Nothing, Effect::End, "COMMIT"),
    habit("END", Tail::Nothing, Effect::End, "COMMIT"),
    habit("ROLLBACK", Tail::Nothing, Effect::End, "ROLLBACK"),
    habit("ROLLBACK WORK", Tail::Nothing, Effect::End, "ROLLBACK"),
    habit("ROLLBACK TRANSACTION", Tail::Nothing, Effect::End, "ROLLBACK"),
    habit("ABORT", Tail::Nothing, Effect::End, "ROLLBACK"),
    habit("DISCARD ALL", Tail::Nothing, Effect::DeallocateAll, "DISCARD ALL"),
    habit("RESET ALL", Tail::Nothing, Effect::Nothing, "RESET"),
    habit("CLOSE ALL", Tail::Nothing, Effect::CloseAll, "CLOSE CURSOR ALL"),
    habit("UNLISTEN *", Tail::Nothing, Effect::Nothing, "UNLISTEN"),
    habit("DEALLOCATE ALL", Tail::Nothing, Effect::DeallocateAll, "DEALLOCATE ALL"),
    habit("DEALLOCATE PREPARE", Tail::Name, Effect::Deallocate, "DEALLOCATE"),
    habit("DEALLOCATE", Tail::Name, Effect::Deallocate, "DEALLOCATE"),
];

const fn habit(phrase: &'static str, tail: Tail, effect: Effect, tag: &'static str) -> Habit {
    Habit { phrase, tail, effect, tag }
}
