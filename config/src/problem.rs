//! Something wrong in the configuration, and where.

use std::error::Error;
use std::fmt;

/// One thing wrong, said in one line: `WHAT in configuration (FILE:LINE): HINT`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// What is wrong, without a full stop.
    pub what: String,
    /// `None` where no single line is to blame.
    pub place: Option<Place>,
    /// How to mend it: the range, the words allowed, the nearest known name.
    pub hint: Option<String>,
}

/// A line of a file. Lines count from one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    pub file: std::sync::Arc<str>,
    pub line: u32,
}

/// Why a configuration was refused; never empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problems(pub Vec<Problem>);

impl Problem {
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: None, hint: None }
    }

    /// In PgBouncer's words.
    pub(crate) fn invalid(value: &str, name: &str) -> Self {
        // A value may be a megabyte.
        let shown: String = value.chars().take(200).collect();
        Self::new(format!("invalid value \"{shown}\" for parameter {name}"))
    }

    pub(crate) fn at(mut self, place: &Place) -> Self {
        self.place = Some(place.clone());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds `did you mean "…"?` if one of `known` is near enough to `name`.
    pub(crate) fn nearest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(name, known) {
            Some(near) => self.hint(format!("did you mean \"{near}\"?")),
            None => self,
        }
    }
}

/// What reading has met with so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

/// Nobody reads further, and a file of nonsense would make one for every line.
const ERRORS_MAX: usize = 100;

impl Findings {
    pub(crate) fn error(&mut self, problem: Problem) {
        self.errors.push(problem);
    }

    pub(crate) fn warn(&mut self, problem: Problem) {
        self.warnings.push(problem);
    }

    /// Whether there is no point in going on.
    pub(crate) fn full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }
}

/// The known name that `name` was most likely meant to be.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Distances cost length times length, and no known name is this long.
    if name.len() > 64 {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let scored = known.into_iter().map(|known| (strsim::jaro_winkler(&name, known), known));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > 0.85).map(|(_, known)| known)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(place) = &self.place {
            write!(f, " in configuration ({place})")?;
        }
        match &self.hint {
            Some(hint) => write!(f, ": {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            let gap = if n == 0 { "" } else { "\n" };
            write!(f, "{gap}{problem}")?;
        }
        Ok(())
    }
}

impl Error for Problem {}
impl Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_slip_finds_its_name_and_nonsense_finds_none() {
        let known = ["max_client_conn", "max_db_connections", "pool_mode", "auth_type"];
        assert_eq!(nearest("max_clinet_conn", known), Some("max_client_conn"));
        assert_eq!(nearest("POOL_MODE", known), Some("pool_mode"));
        assert_eq!(nearest("poolmode", known), Some("pool_mode"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest(&"a".repeat(100_000), known), None);
    }

    #[test]
    fn a_problem_reads_as_one_line() {
        let place = Place { file: "a.ini".into(), line: 7 };
        let problem = Problem::new("unknown section [x]").at(&place).nearest("user", ["users"]);
        assert_eq!(
            problem.to_string(),
            "unknown section [x] in configuration (a.ini:7): did you mean \"users\"?"
        );
    }
}
