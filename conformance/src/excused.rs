//! Tests that may fail, each with its reason: the lines of excused.txt.

use crate::run::{Run, Word};

const LIST: &str = include_str!("../excused.txt");

pub struct Excused(Vec<(&'static str, &'static str)>);

impl Excused {
    /// Those that concern this run.
    ///
    /// # Panics
    /// When a line of the list has too few words.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let read = lines.map(|line| line.splitn(5, ' ').collect::<Vec<_>>());
        let concerns = |word: &str, ours: &str| word == "any" || word == ours;
        let ours = read.filter_map(|words| {
            let [suite, through, mode, test, reason] = words[..] else {
                panic!("excused.txt: SUITE THROUGH MODE TEST REASON, not {words:?}");
            };
            let hit = concerns(suite, run.suite.into_word())
                && concerns(through, run.through.into_word())
                && concerns(mode, run.mode_word());
            hit.then_some((test, reason))
        });
        Self(ours.collect())
    }

    #[must_use]
    pub fn reason(&self, test: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == test).map(|(_, reason)| *reason)
    }
}
