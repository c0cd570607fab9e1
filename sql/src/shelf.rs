//! Readings kept by text, the least used going first, within a budget of bytes.

use std::hash::BuildHasher;
use std::sync::Arc;

use lru::LruCache;

use crate::reading::Reading;

/// What an entry takes besides its text and its reading: key, links, counts.
const ENTRY_BYTES: usize = 128;

/// One text may not take more than this part of the whole.
const SHARE: usize = 8;

/// A cache of readings. Texts are compared in full, so two never share a reading, whatever their hashes do.
pub struct Shelf<S> {
    /// By `standard_conforming_strings`: off, on.
    readings: [LruCache<Box<[u8]>, Arc<Reading>, S>; 2],
    bytes: usize,
    bytes_max: usize,
}

impl<S: BuildHasher + Clone> Shelf<S> {
    /// The hasher should have a secret of its own: texts come from strangers.
    #[must_use]
    pub fn new(bytes_max: usize, hasher: S) -> Self {
        let cache = || LruCache::unbounded_with_hasher(hasher.clone());
        Self { readings: [cache(), cache()], bytes: 0, bytes_max }
    }

    /// [`Reading::of`] a text, from the shelf where it is there.
    pub fn read(&mut self, text: &[u8], standard_conforming_strings: bool) -> Arc<Reading> {
        let which = usize::from(standard_conforming_strings);
        if let Some(known) = self.readings[which].get(text) {
            return Arc::clone(known);
        }
        let reading = Arc::new(Reading::of(text, standard_conforming_strings));
        let bytes = weight(text, &reading);
        if bytes > self.bytes_max / SHARE {
            return reading;
        }
        while self.bytes + bytes > self.bytes_max && self.evict(which) {}
        self.readings[which].put(text.into(), Arc::clone(&reading));
        self.bytes += bytes;
        reading
    }

    /// Makes room, in the half that wants it first. Says whether anything was there to go.
    fn evict(&mut self, which: usize) -> bool {
        let gone = self.readings[which].pop_lru().or_else(|| self.readings[1 - which].pop_lru());
        let Some((text, reading)) = gone else { return false };
        self.bytes -= weight(&text, &reading);
        true
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.readings.iter().map(LruCache::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// 0 <= bytes <= `bytes_max`.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn weight(text: &[u8], reading: &Reading) -> usize {
    // The names in a reading are parts of the text, so they are counted by counting it twice.
    ENTRY_BYTES + 2 * text.len() + reading.bytes()
}
