//! An inbox: bytes that have come and are not yet understood.

use auth::Zeroizing;
use wire::Malformed;

/// Gathers a message that comes in pieces. It may hold a password, so it is wiped when dropped.
#[derive(Default)]
pub(super) struct Inbox {
    bytes: Zeroizing<Vec<u8>>,
    /// How far it has been understood. 0 <= taken <= bytes.len()
    taken: usize,
}

impl Inbox {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What is not yet understood.
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// What is not yet understood, for someone else to understand.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.rest().to_vec();
        self.taken = self.bytes.len();
        rest
    }

    /// The next `len` bytes, or none of them.
    pub(super) fn take(&mut self, len: usize) -> Option<&[u8]> {
        let end = self.taken.checked_add(len)?;
        let taken = self.bytes.get(self.taken..end)?;
        self.taken = end;
        Some(taken)
    }

    /// The tag and the body's length of the next message, once they are there.
    pub(super) fn header(&self) -> Result<Option<(u8, usize)>, Malformed> {
        let Some([tag, len @ ..]) = self.rest().first_chunk::<5>() else { return Ok(None) };
        let (tag, len) = (*tag, u32::from_be_bytes(*len));
        let body = i32::try_from(len).ok().and_then(|len| usize::try_from(len).ok());
        match body.and_then(|len| len.checked_sub(4)) {
            Some(body) => Ok(Some((tag, body))),
            None => Err(Malformed::Length { tag, len }),
        }
    }

    /// The body of the next message, whose header said that it is `len` long.
    pub(super) fn body(&mut self, len: usize) -> Option<&[u8]> {
        let message = self.take(len.checked_add(5)?)?;
        message.get(5..)
    }
}
