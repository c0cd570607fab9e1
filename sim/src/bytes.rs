//! Bytes in a queue: put in at the end, taken from the front.

/// A queue of bytes that keeps its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    all: Vec<u8>,
    /// `start <= all.len()`
    start: usize,
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.all[self.start..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.all.extend_from_slice(bytes);
    }

    pub(crate) fn skip(&mut self, count: usize) {
        self.start += count.min(self.len());
        if self.start == self.all.len() {
            self.clear();
        } else if self.start > 4096 && self.start > self.all.len() / 2 {
            self.all.drain(..self.start);
            self.start = 0;
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.as_slice()[..count.min(self.len())].to_vec();
        self.skip(taken.len());
        taken
    }

    /// Move up to `count` bytes to the end of `to`.
    pub(crate) fn pour(&mut self, count: usize, to: &mut Self) {
        let count = count.min(self.len());
        to.push(&self.as_slice()[..count]);
        self.skip(count);
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.start = 0;
    }

    /// What is put in by something that appends to a vector.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.all
    }

    /// The length of the first message if all of it is here: tag, length, body.
    pub(crate) fn whole(&self) -> Option<usize> {
        let header = self.as_slice().get(1..5)?;
        let len = u32::from_be_bytes(header.try_into().ok()?) as usize + 1;
        (self.len() >= len).then_some(len)
    }
}
