//! Names in rules and maps: spelled out, or by a regular expression.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

use regex::bytes::{Regex, RegexBuilder};

use crate::lines::Word;

/// Longest regular expression, in bytes.
const PATTERN_LEN_MAX: usize = 1024;

/// Most memory that one may take, in bytes: what it is made of, and what it remembers while it runs.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Most of them that a file may have.
pub(crate) const PATTERNS_MAX: usize = 1000;

/// A regular expression of a file. It takes time in proportion to what it is held against, whatever
/// it says.
#[derive(Clone)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Of a word that begins with a slash; `None` for all others.
    pub(crate) fn of(word: &Word, left: &mut usize) -> Option<Result<Self, String>> {
        let text = word.text.strip_prefix(b"/")?;
        Some(Self::new(text, left))
    }

    fn new(text: &[u8], left: &mut usize) -> Result<Self, String> {
        let shown = String::from_utf8_lossy(text);
        if text.len() > PATTERN_LEN_MAX {
            return Err(format!("a regular expression is longer than {PATTERN_LEN_MAX} bytes"));
        }
        *left = left.checked_sub(1).ok_or_else(|| {
            format!("more than {PATTERNS_MAX} regular expressions in one set of rules")
        })?;
        let text = core::str::from_utf8(text)
            .map_err(|_| format!("regular expression \"{shown}\" is not UTF-8"))?;
        let mut builder = RegexBuilder::new(text);
        builder.size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX);
        builder.build().map(Self).map_err(|error| {
            // The library draws the place below the text, over several lines; the last one says what.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("regular expression \"{shown}\" cannot be used: {why}")
        })
    }

    pub(crate) fn fits(&self, name: &[u8]) -> bool {
        self.0.is_match(name)
    }

    /// How many parts in brackets it has.
    pub(crate) fn groups(&self) -> usize {
        self.0.captures_len() - 1
    }

    /// Where it fits, what the first brackets took.
    pub(crate) fn first_group<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let captures = self.0.captures(name)?;
        Some(captures.get(1).map_or(&[][..], |group| group.as_bytes()))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.as_str())
    }
}

/// A set of names: some spelled out, some described.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    spelled: BTreeSet<Box<[u8]>>,
    patterns: Vec<Pattern>,
}

impl Names {
    pub(crate) fn add(&mut self, word: &Word, left: &mut usize) -> Result<(), String> {
        match Pattern::of(word, left) {
            Some(pattern) => self.patterns.push(pattern?),
            None => drop(self.spelled.insert(word.text.clone())),
        }
        Ok(())
    }

    pub(crate) fn have(&self, name: &[u8]) -> bool {
        self.spelled.contains(name) || self.patterns.iter().any(|pattern| pattern.fits(name))
    }
}

/// With commas between them, for those who read what rules came to.
impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for name in &self.spelled {
            write!(f, "{comma}{}", String::from_utf8_lossy(name))?;
            comma = ",";
        }
        for pattern in &self.patterns {
            write!(f, "{comma}{pattern:?}")?;
            comma = ",";
        }
        Ok(())
    }
}
