//! Received bytes, owned by whoever holds them.

use crate::lender::Loan;

/// A run of received bytes.
///
/// It may lie in memory that the driver lends to the kernel (io_uring's provided buffers): dropping
/// it gives that memory back. Pass it on whole with [`crate::Driver::send`], and nothing is copied.
/// It stays on the thread of its driver; to mail it to another, copy it.
#[derive(Debug)]
pub struct Buf {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    /// `start <= bytes.len()`; what lies before it was already used up.
    Heap {
        bytes: Vec<u8>,
        start: usize,
    },
    Lent(Loan),
}

impl Buf {
    pub(crate) fn lent(loan: Loan) -> Self {
        Self { inner: Inner::Lent(loan) }
    }

    /// Forget the first `count` bytes, or all if there are fewer.
    pub fn advance(&mut self, count: usize) {
        match &mut self.inner {
            Inner::Heap { bytes, start } => *start += count.min(bytes.len() - *start),
            Inner::Lent(loan) => loan.advance(count),
        }
    }

    /// Cut off the first `count` bytes, or all if there are fewer; `self` keeps the rest. Received
    /// bytes are not copied.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        match &mut self.inner {
            Inner::Heap { bytes, start } => {
                let count = count.min(bytes.len() - *start);
                let head = bytes[*start..*start + count].to_vec();
                *start += count;
                Self::from(head)
            }
            Inner::Lent(loan) => Self::lent(loan.split_to(count)),
        }
    }

    /// Whether it lies where it was received.
    #[must_use]
    pub fn is_received(&self) -> bool {
        matches!(self.inner, Inner::Lent(_))
    }

    /// The memory, if it is our own, so that it can be used again.
    #[must_use]
    pub fn into_heap(self) -> Option<Vec<u8>> {
        match self.inner {
            Inner::Heap { bytes, .. } => Some(bytes),
            Inner::Lent(_) => None,
        }
    }
}

impl From<Vec<u8>> for Buf {
    fn from(bytes: Vec<u8>) -> Self {
        Self { inner: Inner::Heap { bytes, start: 0 } }
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.inner {
            Inner::Heap { bytes, start } => &bytes[*start..],
            Inner::Lent(loan) => loan.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_used_up_from_the_front() {
        let mut buf = Buf::from(b"abcdef".to_vec());

        assert_eq!(*buf.split_to(2), *b"ab");
        buf.advance(1);
        assert_eq!(*buf, *b"def");
        buf.advance(100);
        assert!(buf.is_empty() && buf.split_to(1).is_empty());
    }
}
