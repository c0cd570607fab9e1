//! What `howdah check FILE` says.

use std::fmt;

use crate::{Files, Problem};

/// Everything there is to say about a file. Its `Display` is what is printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub file: String,
    /// Each of these stops the boot.
    pub errors: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// What was set and has no effect (yet).
    pub not_yet: Vec<Problem>,
    /// What the file comes to.
    pub summary: Vec<String>,
    /// What to think about.
    pub advice: Vec<String>,
}

/// How many files this process may have open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FdLimit {
    pub soft: u64,
    pub hard: u64,
}

/// Checks `path`. `limit` is what the process will run under, if known.
#[must_use]
pub fn check(path: &str, files: &dyn Files, limit: Option<FdLimit>) -> Report {
    let _ = (path, files, limit);
    todo!()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = f;
        todo!()
    }
}
