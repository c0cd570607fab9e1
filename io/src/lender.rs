//! The memory that received bytes land in, and the count of who still reads it.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::Buffers;

/// The length of one buffer.
pub(crate) const BUFFER: usize = 16 * 1024;
/// Where the next one begins: a cache line further, so that their beginnings, which is all that short messages
/// touch, are not all rivals for the same few places in the cache.
const STRIDE: usize = BUFFER + 64;
/// Buffers in use from the beginning, and by how many more there are each time that they get few. Must divide
/// [`BUFFERS_MAX`]. The kernel uses one after the other, all around: fewer stay in the cache.
const BUFFERS_STEP: u16 = 64;
/// The most there ever are: 16 MiB. What is held beyond that is copied (see [`Lender::is_low`]).
/// A power of two, as the kernel's ring has to be.
pub(crate) const BUFFERS_MAX: u16 = 1024;

/// A fixed set of equal buffers. A buffer is in exactly one place:
///
/// - at home: the kernel (or the readiness driver) may take it for the next bytes that come in;
/// - lent: `shares[id] > 0`, and that many [`Loan`]s are reading it;
/// - not yet in use: `id >= in_use`. Its pages were never touched and cost nothing.
///
/// The memory lives until the driver and the last `Loan` are gone, whichever is later.
pub(crate) struct Lender {
    memory: Block,
    home: Home,
    shares: Box<[Cell<u32>]>,
    in_use: Cell<u16>,
    at_home: Cell<u16>,
}

/// Where buffers wait to be lent.
enum Home {
    /// The ring that is shared with the kernel: we append at the tail, it takes from the head.
    Ring { entries: Block, tail: Cell<u16> },
    /// Most recently used last, and first to be taken: it may still be in the cache.
    Stack(RefCell<Vec<u16>>),
}

impl Lender {
    /// Buffers that the kernel picks itself. Nothing is shared with it before [`Lender::ring`] is
    /// registered.
    pub(crate) fn with_ring() -> Rc<Self> {
        let entries = Block::new(usize::from(BUFFERS_MAX) * size_of::<BufRingEntry>());
        Self::new(Home::Ring { entries, tail: Cell::new(0) })
    }

    /// Buffers that are picked with [`Lender::take`].
    pub(crate) fn with_stack() -> Rc<Self> {
        Self::new(Home::Stack(RefCell::new(Vec::with_capacity(BUFFERS_MAX.into()))))
    }

    fn new(home: Home) -> Rc<Self> {
        let lender = Self {
            memory: Block::new(usize::from(BUFFERS_MAX) * STRIDE),
            home,
            shares: (0..BUFFERS_MAX).map(|_| Cell::new(0)).collect(),
            in_use: Cell::new(0),
            at_home: Cell::new(0),
        };
        lender.grow();
        Rc::new(lender)
    }

    /// The address of the ring, for the kernel.
    pub(crate) fn ring(&self) -> Option<u64> {
        match &self.home {
            Home::Ring { entries, .. } => Some(entries.start.as_ptr() as u64),
            Home::Stack(_) => None,
        }
    }

    /// So few buffers are left that bytes should be copied out and the buffer given back at once.
    /// A quarter stays free for everyone, however much a slow peer makes us hold.
    pub(crate) fn is_low(&self) -> bool {
        self.at_home.get() < self.in_use.get() / 4
    }

    /// Whether any buffer is at home.
    pub(crate) fn has_any(&self) -> bool {
        self.at_home.get() > 0
    }

    /// Buffers in use: holding bytes, and free for some.
    pub(crate) fn counts(&self) -> Buffers {
        let free = usize::from(self.at_home.get());
        let used = usize::from(self.in_use.get()).saturating_sub(free);
        Buffers { size: BUFFER, used, free }
    }

    #[cfg(test)]
    pub(crate) fn lent(&self) -> u16 {
        self.in_use.get() - self.at_home.get()
    }

    /// Put more buffers to use, if there may be more.
    pub(crate) fn grow(&self) {
        let from = self.in_use.get();
        let to = from.saturating_add(BUFFERS_STEP).min(BUFFERS_MAX);
        self.in_use.set(to);
        for id in from..to {
            self.give_back(id);
        }
    }

    /// The kernel took buffer `id` and put `length` bytes in it. `None` if it never had that buffer.
    pub(crate) fn lend(self: &Rc<Self>, id: u16, length: usize) -> Option<Loan> {
        let shares = self.shares.get(usize::from(id))?;
        if id >= self.in_use.get() || shares.get() != 0 || length > BUFFER {
            return None;
        }
        shares.set(1);
        self.at_home.set(self.at_home.get().saturating_sub(1));
        Some(Loan { lender: Rc::clone(self), id, start: 0, end: length as u32 })
    }

    /// A buffer to read into, from a stack. `None` if all are lent.
    pub(crate) fn take(&self) -> Option<u16> {
        match &self.home {
            Home::Stack(stack) => stack.borrow_mut().pop(),
            Home::Ring { .. } => None,
        }
    }

    /// Put back a buffer that was taken and not lent.
    pub(crate) fn untake(&self, id: u16) {
        if let Home::Stack(stack) = &self.home {
            stack.borrow_mut().push(id);
        }
    }

    /// Where buffer `id` begins.
    pub(crate) fn buffer(&self, id: u16) -> NonNull<u8> {
        debug_assert!(id < BUFFERS_MAX);
        // SAFETY: `memory` is BUFFERS_MAX strides long, and ids are below that.
        unsafe { self.memory.start.add(usize::from(id) * STRIDE) }
    }

    fn give_back(&self, id: u16) {
        self.at_home.set(self.at_home.get() + 1);
        match &self.home {
            Home::Stack(stack) => stack.borrow_mut().push(id),
            Home::Ring { entries, tail } => {
                let ring: *mut BufRingEntry = entries.start.as_ptr().cast();
                let at = tail.get();
                // SAFETY: the ring has BUFFERS_MAX entries. The kernel reads only those between
                // its head and the tail, and as there are no more buffers than entries, this one
                // is not among them.
                unsafe {
                    let entry = &mut *ring.add(usize::from(at & (BUFFERS_MAX - 1)));
                    entry.set_addr(self.buffer(id).as_ptr() as u64);
                    entry.set_len(BUFFER as u32);
                    entry.set_bid(id);
                }
                tail.set(at.wrapping_add(1));
                // SAFETY: the tail overlies the first entry's last field, is aligned for u16, and
                // outlives this call. Release: the kernel must see the entry before the tail.
                unsafe {
                    let shared = BufRingEntry::tail(ring).cast_mut();
                    AtomicU16::from_ptr(shared).store(tail.get(), Ordering::Release);
                }
            }
        }
    }
}

impl fmt::Debug for Lender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} buffers at home", self.at_home.get(), self.in_use.get())
    }
}

/// The right to read a part of a buffer. When the last one of a buffer goes, it goes home.
///
/// `0 <= start <= end <= BUFFER`
#[derive(Debug)]
pub(crate) struct Loan {
    lender: Rc<Lender>,
    id: u16,
    start: u32,
    end: u32,
}

impl Loan {
    pub(crate) fn bytes(&self) -> &[u8] {
        let length = (self.end - self.start) as usize;
        // SAFETY: in bounds of one buffer, all of which was initialised (zeroed) at first; and while
        // it is lent nobody writes to it: the kernel has handed it over and gets it back only
        // after the last Loan.
        unsafe {
            let start = self.lender.buffer(self.id).add(self.start as usize);
            std::slice::from_raw_parts(start.as_ptr(), length)
        }
    }

    /// Forget the first `count` bytes, or all if there are fewer.
    pub(crate) fn advance(&mut self, count: usize) {
        let count = count.min((self.end - self.start) as usize);
        self.start += count as u32;
    }

    /// Cut off the first `count` bytes, or all if there are fewer. Nothing is copied.
    pub(crate) fn split_to(&mut self, count: usize) -> Self {
        let count = count.min((self.end - self.start) as usize) as u32;
        let middle = self.start + count;
        let shares = &self.lender.shares[usize::from(self.id)];
        shares.set(shares.get() + 1);
        let lender = Rc::clone(&self.lender);
        let head = Self { lender, id: self.id, start: self.start, end: middle };
        self.start = middle;
        head
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let shares = &self.lender.shares[usize::from(self.id)];
        shares.set(shares.get() - 1);
        if shares.get() == 0 {
            self.lender.give_back(self.id);
        }
    }
}

/// A page-aligned run of zeroed memory, straight from the kernel: of what is never touched there is none. (The
/// allocator's aligned zeroes are written, and so all there.)
struct Block {
    start: NonNull<u8>,
    length: usize,
}

impl Block {
    fn new(length: usize) -> Self {
        let (access, sharing) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: nobody has anything at an address that the kernel chooses.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), length, access, sharing) };
        let start = mapped.ok().and_then(|start| NonNull::new(start.cast()));
        let Some(start) = start else {
            handle_alloc_error(Layout::array::<u8>(length).expect("a few MiB is a size"))
        };
        Self { start, length }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this very length, and whoever used it is gone.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Halves of one buffer keep it out of the house until both are gone.
    #[test]
    fn a_split_buffer_comes_home_once() {
        let lender = Lender::with_stack();
        let id = lender.take().expect("all are at home");
        let mut tail = lender.lend(id, 10).expect("just taken");
        let head = tail.split_to(4);

        assert_eq!((head.bytes().len(), tail.bytes().len()), (4, 6));
        drop(tail);
        assert_eq!(lender.lent(), 1);
        drop(head);
        assert_eq!(lender.lent(), 0);
    }

    /// Somebody holds on to everything: there is more for a while, then it is low.
    #[test]
    fn growth_has_an_end() {
        let lender = Lender::with_stack();
        let mut held = Vec::new();
        while let Some(id) = lender.take() {
            held.extend(lender.lend(id, 1));
            if lender.is_low() {
                lender.grow();
            }
        }

        assert_eq!(held.len(), usize::from(BUFFERS_MAX));
        assert!(lender.is_low() && !lender.has_any());
        held.clear();
        assert!(!lender.is_low());
    }

    /// A buffer that nobody has read into yet is no more than a promise.
    #[test]
    fn what_is_not_used_takes_no_memory() {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("a process has one");
            statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number")
        };
        let before = resident();
        let lenders: Vec<_> = (0..16).map(|_| Lender::with_stack()).collect();
        let pages = resident().saturating_sub(before);
        assert_eq!(lenders.len(), 16);
        assert!(pages < 16 * 1024, "of 256 MiB {pages} pages are there");
    }

    /// A kernel that hands out what it does not have is not believed.
    #[test]
    fn a_buffer_is_not_lent_twice() {
        let lender = Lender::with_ring();
        let loan = lender.lend(3, 5);

        assert!(loan.is_some());
        assert!(lender.lend(3, 5).is_none(), "twice");
        assert!(lender.lend(BUFFERS_STEP, 5).is_none(), "not in use");
        assert!(lender.lend(BUFFERS_MAX, 5).is_none(), "not there at all");
        assert!(lender.lend(4, BUFFER + 1).is_none(), "too long");
    }
}
