//! Where connections live: a dense table whose places are used again, but not too soon.

use rustix::process::{Resource, getrlimit};

use crate::Conn;

/// Room is made for no more than this beforehand.
const ROOM_MAX: usize = 1 << 17;

/// A table of `T` indexed by [`Conn`].
#[derive(Debug)]
pub(crate) struct Slots<T> {
    all: Vec<T>,
    free: Vec<u32>,
    /// Freed in this turn. The worker may not have heard of it yet, so they rest until the next.
    resting: Vec<u32>,
}

impl<T> Slots<T> {
    /// With addresses for as many connections as this process may have, which take no memory before there are so many.
    /// A table that grows moves, and leaves behind a hole as large as itself.
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let room = usize::try_from(limit).unwrap_or(ROOM_MAX).min(ROOM_MAX);
        Self { all: Vec::with_capacity(room), free: Vec::new(), resting: Vec::new() }
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
