//! What is lent in place of a statement that perhaps cannot be prepared any more: one that fails when it is run.
//!
//! A text that executes what has lost its table hears of the table, and before that, of what is wrong with its own
//! parameters; and what stands in front of the EXECUTE is run. So under its name the server has a statement that takes the
//! same parameters; and when that fails, its error is said in the words of the Parse that failed.
//!
//! What SQL had prepared, and a server could not prepare for its client, it does not know; that is said so, too.

use wire::{ErrorFields, write};

use crate::inward::Inward;
use crate::outward::Outward;
use crate::statements::Statement;

/// What it cannot take for a number. A number follows: that of the Parse.
const MARK: &str = "howdah_cannot_prepare_";

/// A statement that was to be lent.
#[derive(Debug)]
pub(crate) struct Failing {
    /// The ledger's number of its Parse.
    at: u64,
    /// The body of the error to that.
    error: Option<Box<[u8]>>,
}

impl Outward<'_> {
    /// Should the Parse of `statement` fail that is numbered `at`, another has the name. Should it not, the name is taken.
    pub(crate) fn lend_failing(&mut self, name: &[u8], statement: &Statement, at: u64) {
        let Some(types) = self.types_as_text(statement) else { return };
        // No search_path has a say in this, and no plan is made of it without trying.
        let query =
            format!("SELECT CAST(CAST('{MARK}{at}' AS pg_catalog.text) AS pg_catalog.int4)");
        self.lend(|out| write::client::parse(out, name, query.as_bytes(), &types));
        self.server.failing.push(Failing { at, error: None });
    }
}

impl Inward<'_> {
    /// The head lent something, or was to.
    pub(crate) fn could_not_lend(&mut self, error: Box<[u8]>) {
        let at = self.server.ledger.first();
        if let Some(failing) = self.server.failing.iter_mut().find(|failing| failing.at == at) {
            failing.error = Some(error);
        }
    }

    /// The body of the error that is to be heard in place of this.
    pub(crate) fn failed_instead(&self, error: &ErrorFields<'_>) -> Option<Vec<u8>> {
        if error.code() == b"26000" {
            let at = self.server.ledger.first();
            if self.server.deallocates.iter().any(|(by, _)| *by == at) {
                return None;
            }
            let workshop = &self.server.trail.workshop;
            return workshop.reason(error.message()).map(<[u8]>::to_vec);
        }
        let at = number(error)?;
        let failing = self.server.failing.iter().find(|failing| failing.at == at)?;
        Some(failing.error.as_ref()?.to_vec())
    }
}

/// Which one has failed.
fn number(error: &ErrorFields<'_>) -> Option<u64> {
    if error.code() != b"22P02" {
        return None;
    }
    let (_, rest) = str::from_utf8(error.message()).ok()?.split_once(MARK)?;
    rest.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}
