//! Where connections live: a dense table whose places are used again, but not too soon.

use crate::Conn;

/// A table of `T` indexed by [`Conn`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    all: Vec<T>,
    free: Vec<u32>,
    /// Freed in this turn. The worker may not have heard of it yet, so they rest until the next.
    resting: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), free: Vec::new(), resting: Vec::new() }
    }

    /// Put `new(old)` in a free place, where `old` is what lay there before.
    pub(crate) fn take(&mut self, new: impl FnOnce(Option<&T>) -> T) -> Conn {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.all[slot as usize];
            *place = new(Some(place));
            return Conn(slot);
        }
        self.all.push(new(None));
        Conn((self.all.len() - 1) as u32)
    }

    pub(crate) fn free(&mut self, conn: Conn) {
        self.resting.push(conn.0);
    }

    /// A turn begins: what was freed in the last one is known to be.
    pub(crate) fn wake(&mut self) {
        self.free.append(&mut self.resting);
    }

    pub(crate) fn at(&self, conn: Conn) -> Option<&T> {
        self.all.get(conn.0 as usize)
    }

    pub(crate) fn at_mut(&mut self, conn: Conn) -> Option<&mut T> {
        self.all.get_mut(conn.0 as usize)
    }
}
