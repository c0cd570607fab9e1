//! What is queued on a connection, on its way to the kernel.

use std::collections::VecDeque;
use std::ptr;

use crate::Buf;

/// Most segments handed to the kernel at once.
const SEGMENTS_MAX: usize = 64;
/// Most bytes handed to the kernel at once: it reports progress only for the whole.
const FLIGHT_MAX: usize = 256 * 1024;
/// Written bytes are gathered up to here before a new segment begins.
const CHUNK: usize = 64 * 1024;
/// Copying this much costs less than a segment of its own does.
const SMALL: usize = 1024;
/// An outbox at rest keeps no more memory than this for its next writes.
const SPARE_MAX: usize = 4096;

/// The queue of one connection that has something to send.
///
/// Bytes leave in order: `queue` from its front, then `tail`. Of the queue, what the flight covers
/// is being read by the kernel: it stays where it is until [`Outbox::land`].
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: VecDeque<Buf>,
    /// Gathers small writes, and becomes a segment of the queue when it is their turn.
    tail: Vec<u8>,
    spare: Vec<u8>,
    /// The sum of all the lengths, in flight or not.
    unsent: usize,
    flight: usize,
    segments: Vec<libc::iovec>,
    header: libc::msghdr,
}

/// What the kernel shall read. The pointers hold until the flight lands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flight {
    One { start: *const u8, length: usize },
    Many { header: *const libc::msghdr },
}

impl Outbox {
    fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            tail: Vec::new(),
            spare: Vec::new(),
            unsent: 0,
            flight: 0,
            segments: Vec::new(),
            // SAFETY: all zeroes is a msghdr: no name, no segments, no control data.
            header: unsafe { std::mem::zeroed() },
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Bytes the kernel is reading.
    pub(crate) fn flight(&self) -> usize {
        self.flight
    }

    pub(crate) fn send(&mut self, bytes: Buf) {
        if self.unsent > 0 && bytes.len() <= SMALL {
            return self.write(&bytes);
        }
        self.unsent += bytes.len();
        self.cut();
        self.queue.push_back(bytes);
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.unsent += bytes.len();
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= CHUNK {
            self.cut();
        }
    }

    /// What was written so far becomes a segment.
    fn cut(&mut self) {
        if !self.tail.is_empty() {
            let fresh = std::mem::take(&mut self.spare);
            self.queue.push_back(Buf::from(std::mem::replace(&mut self.tail, fresh)));
        }
    }

    /// The front of the queue takes off. Nothing may be in flight, and something queued.
    pub(crate) fn launch(&mut self) -> Flight {
        debug_assert!(self.flight == 0 && self.unsent > 0);
        self.cut();
        if let (Some(only), 1) = (self.queue.front(), self.queue.len()) {
            let length = only.len().min(FLIGHT_MAX);
            self.flight = length;
            return Flight::One { start: only.as_ptr(), length };
        }
        self.segments.clear();
        for bytes in self.queue.iter().take(SEGMENTS_MAX) {
            let length = bytes.len().min(FLIGHT_MAX - self.flight);
            let start = bytes.as_ptr().cast_mut().cast();
            self.segments.push(libc::iovec { iov_base: start, iov_len: length });
            self.flight += length;
            if self.flight == FLIGHT_MAX {
                break;
            }
        }
        self.header.msg_iov = self.segments.as_mut_ptr();
        self.header.msg_iovlen = self.segments.len() as _;
        Flight::Many { header: ptr::from_ref(&self.header) }
    }

    /// The flight is over, and the kernel took the first `count` bytes of it.
    pub(crate) fn land(&mut self, count: usize) {
        let mut left = count.min(self.flight);
        self.flight = 0;
        self.unsent -= left;
        while let Some(front) = self.queue.front_mut()
            && left >= front.len()
        {
            left -= front.len();
            if let Some(used) = self.queue.pop_front() {
                self.keep(used);
            }
        }
        if let Some(front) = self.queue.front_mut() {
            front.advance(left);
        }
    }

    /// Keep the memory of a small segment for the next writes.
    fn keep(&mut self, used: Buf) {
        if self.spare.capacity() == 0
            && let Some(mut memory) = used.into_heap()
            && memory.capacity() <= SPARE_MAX
        {
            memory.clear();
            if self.tail.capacity() == 0 {
                self.tail = memory;
            } else {
                self.spare = memory;
            }
        }
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.queue.shrink_to(SEGMENTS_MAX);
        self.tail.clear();
        if self.tail.capacity() > SPARE_MAX {
            self.tail = Vec::new();
        }
        self.unsent = 0;
        self.flight = 0;
    }
}

/// The outboxes of those connections that have something to send; the others have none.
///
/// They are boxed because the kernel reads their headers while the table grows.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    boxes: Vec<Option<Box<Outbox>>>,
    /// Places without a box.
    empty: Vec<u32>,
    /// Boxes at rest, for reuse with all the memory they keep.
    // As boxes they go in and out without being moved.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Outbox>>,
}

/// Most outboxes kept at rest.
const OUTBOXES_SPARE_MAX: usize = 256;

/// A place in [`Outboxes`], or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place(u32);

impl Place {
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl Outboxes {
    pub(crate) fn at(&self, place: Place) -> Option<&Outbox> {
        self.boxes.get(place.0 as usize)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, place: Place) -> Option<&mut Outbox> {
        self.boxes.get_mut(place.0 as usize)?.as_deref_mut()
    }

    /// The outbox at `place`. If that is no place yet, it becomes one.
    pub(crate) fn open(&mut self, place: &mut Place) -> &mut Outbox {
        if place.is_none() {
            *place = Place(self.empty.pop().unwrap_or_else(|| {
                self.boxes.push(None);
                (self.boxes.len() - 1) as u32
            }));
        }
        let spare = &mut self.spare;
        self.boxes[place.0 as usize]
            .get_or_insert_with(|| spare.pop().unwrap_or_else(|| Box::new(Outbox::new())))
    }

    /// Drop what is queued at `place`. Nothing of it may be in flight.
    pub(crate) fn close(&mut self, place: &mut Place) {
        let at = std::mem::replace(place, Place::NONE);
        if let Some(mut outbox) = self.boxes.get_mut(at.0 as usize).and_then(Option::take) {
            self.empty.push(at.0);
            outbox.clear();
            if self.spare.len() < OUTBOXES_SPARE_MAX {
                self.spare.push(outbox);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would read now.
    fn look(flight: Flight) -> Vec<u8> {
        // SAFETY: the outbox is alive and not touched while this reads.
        unsafe {
            match flight {
                Flight::One { start, length } => std::slice::from_raw_parts(start, length).to_vec(),
                Flight::Many { header } => {
                    let header = &*header;
                    std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen)
                        .iter()
                        .flat_map(|s| {
                            std::slice::from_raw_parts(s.iov_base.cast::<u8>(), s.iov_len)
                        })
                        .copied()
                        .collect()
                }
            }
        }
    }

    /// The kernel takes a little at a time, while more is queued behind it.
    #[test]
    fn nothing_is_lost_in_partial_flights() {
        let mut outbox = Outbox::new();
        let (mut queued, mut taken) = (Vec::new(), Vec::new());
        for round in 0..400_usize {
            let bytes: Vec<u8> = (0..round * 7 % 1500 + 1).map(|i| (i + round) as u8).collect();
            queued.extend_from_slice(&bytes);
            match round % 3 {
                0 => outbox.send(Buf::from(bytes)),
                _ => outbox.write(&bytes),
            }
            if round % 2 == 0 {
                let flight = look(outbox.launch());
                let count = flight.len() * (round % 5) / 4;
                let count = count.min(flight.len());
                outbox.write(b"!");
                queued.push(b'!');
                taken.extend_from_slice(&flight[..count]);
                outbox.land(count);
            }
            assert_eq!(outbox.unsent(), queued.len() - taken.len());
        }
        while outbox.unsent() > 0 {
            let flight = look(outbox.launch());
            taken.extend_from_slice(&flight);
            outbox.land(flight.len());
        }
        assert!(taken == queued);
    }

    /// A turn's small writes are one segment; a large one is not copied.
    #[test]
    fn small_writes_are_gathered() {
        let mut outbox = Outbox::new();
        let large = Buf::from(vec![7; 5000]);
        let at = large.as_ptr();
        outbox.write(b"a");
        outbox.send(Buf::from(b"b".to_vec()));
        assert!(matches!(outbox.launch(), Flight::One { length: 2, .. }));
        outbox.land(2);

        outbox.send(large);
        assert!(matches!(outbox.launch(), Flight::One { start, length: 5000 } if start == at));
    }

    /// One place is used over and over.
    #[test]
    fn places_are_reused() {
        let mut outboxes = Outboxes::default();
        for _ in 0..100 {
            let mut place = Place::NONE;
            outboxes.open(&mut place).write(b"x");
            outboxes.close(&mut place);
            assert!(place.is_none());
        }
        assert_eq!((outboxes.boxes.len(), outboxes.spare.len()), (1, 1));
    }
}
