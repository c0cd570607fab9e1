//! Where a text that begins by ending a transaction goes on: what is to be done between the two is put there.
//!
//! In a failed transaction PostgreSQL runs nothing but its end, so nothing can be done in front of such a text.

use sql::{Act, Transaction};
use wire::{ErrorFields, Piece};

use crate::inward::Inward;
use crate::ledger::What;
use crate::outward::Outward;
use crate::sequences::{Pending, SOON, Sequences};

const DISCARD: &[u8] = b";DISCARD SEQUENCES";

/// Longer texts are not looked into.
const TEXT_MAX: usize = 256 * 1024;

/// In one text, which is underway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seam {
    /// The ledger's number of its entry.
    entry: u64,
    /// Bytes of the text in front of it.
    at: usize,
    /// Characters in front of it.
    characters: usize,
    /// Nobody is to hear that what stands there is done: it is not yet.
    hushed: bool,
}

impl Seam {
    /// `None`: `text` does not begin so, or does not go on.
    fn of(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let reading = sql::Reading::of(text, true);
        let [first, _, ..] = &reading.statements[..] else { return None };
        let ends = |act: &Act| {
            use Transaction::{Commit, Prepare, Rollback, RollbackTo};
            let Act::Transaction(act) = act else { return false };
            matches!(act, Commit { .. } | Rollback { .. } | RollbackTo(_) | Prepare(_))
        };
        let (at, ends) = (first.range.end, first.acts.iter().any(ends));
        if !ends || text.get(at) != Some(&b';') {
            return None;
        }
        let characters = str::from_utf8(text.get(..at)?).ok()?.chars().count();
        Some(Self { entry: SOON, at, characters, hushed: true })
    }
}

impl Sequences {
    /// A text is about to be run. Where it begins with the end of a transaction, a DISCARD has its place behind that.
    pub(crate) fn find_seam(&mut self, text: &[u8], client: u32) {
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        let may_end = first.is_some_and(|byte| b";-/acepr".contains(&byte.to_ascii_lowercase()));
        let may = may_end && text.contains(&b';') && self.may_be_of_others(client);
        self.seam = if may { Seam::of(text) } else { None };
    }

    /// The text is the ledger's entry `at`. If nothing was to be discarded, all of it is the client's.
    pub(crate) fn close_seam(&mut self, at: u64) {
        let seam = self.seam.take().filter(|_| self.discards_soon());
        if let Some(seam) = seam {
            self.seam = Some(Seam { entry: at, ..seam });
            self.discards(Pending { at, in_batch: false });
        }
    }
}

impl Outward<'_> {
    /// The message that was entered last, as far as it differs from what the client said: the body of a Query.
    pub(crate) fn with_seam(&self, piece: &Piece<'_>) -> Option<Vec<u8>> {
        let seam = self.server.trail.sequences.seam?;
        if seam.entry.checked_add(1) != Some(self.server.ledger.next()) {
            return None;
        }
        let (before, behind) = piece.body.split_at_checked(seam.at)?;
        Some([before, DISCARD, behind].concat())
    }
}

impl Inward<'_> {
    fn seam(&mut self) -> Option<&mut Seam> {
        let (head, at) = (self.server.ledger.head()?, self.server.ledger.first());
        let seam = self.server.trail.sequences.seam.as_mut()?;
        (head.what == What::Query && seam.entry == at).then_some(seam)
    }

    /// Something is discarded. Whether it was not the client that said so.
    pub(crate) fn is_of_seam(&mut self) -> bool {
        self.seam().is_some_and(|seam| std::mem::take(&mut seam.hushed))
    }

    /// An error, with its place in the text as the client knows it.
    pub(crate) fn replaced(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        self.client.as_ref()?;
        let before = self.seam()?.characters;
        let place = ErrorFields::new(body).field(b'P')?;
        let place: usize = str::from_utf8(place).ok()?.parse().ok()?;
        let place = place.checked_sub(DISCARD.len()).filter(|place| *place > before)?;
        let mut new = Vec::new();
        for (kind, value) in ErrorFields::new(body) {
            let own = (kind == b'P').then(|| place.to_string());
            new.push(kind);
            new.extend_from_slice(own.as_ref().map_or(value, |own| own.as_bytes()));
            new.push(0);
        }
        new.push(0);
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seam_is_behind_the_end_of_a_transaction() {
        let before = |text: &str| {
            let seam = Seam::of(text.as_bytes());
            seam.map(|seam| text[..seam.at].to_owned())
        };
        for text in ["ROLLBACK", " ;commit -- ;\n", "rollback to \"ä;\"", "prepare transaction ';'"]
        {
            assert_eq!(before(&format!("{text}; SELECT 1; SELECT 2")).as_deref(), Some(text));
            assert_eq!(before(&format!("{text};")), None);
        }
        for text in ["SELECT 1; ROLLBACK", "begin; select 1", "rollback; )", "release a; select 1"]
        {
            assert_eq!(before(text), None, "{text}");
        }
    }
}
