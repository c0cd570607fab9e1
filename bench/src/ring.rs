//! A ring: io_uring as the floor and the load use it. The one file of this crate with `unsafe`.
//!
//! Receives are multishot into provided buffers, sends own what they send until the kernel is done
//! with it, sockets sit in the ring's file table, and a turn is one system call.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use socket2::{SockAddr, Socket};

/// Sockets, buffers and the kernel's two queues. One thread's own.
///
/// Fields drop in order: the queues before the memory that the kernel may still write to.
pub struct Ring {
    uring: IoUring,
    shelf: Shelf,
    lines: Vec<Line>,
    free: Vec<u32>,
    /// Free from the next turn on: what this turn said of them may not have been read yet.
    vacated: Vec<u32>,
    target: Option<Box<SockAddr>>,
    /// Kept for its allocation.
    batch: Vec<cqueue::Entry>,
}

/// Something the kernel finished. `line` is the number that [`Ring::adopt`] gave.
pub enum Done {
    /// Somebody dialled in.
    Accepted { socket: Socket },
    /// The connection asked for by [`Ring::dial`] is up.
    Connected { line: u32 },
    /// Bytes came in; they lie on the shelf until given back.
    Received { line: u32, lease: Lease },
    /// All of it is with the kernel.
    Sent { line: u32, payload: Payload },
    /// No more will come: the other end is gone, or never answered. Close the line.
    Ended { line: u32 },
}

/// Received bytes on the shelf. Whoever drops it loses that piece of shelf for good.
pub struct Lease {
    buffer: u16,
    length: u32,
}

/// What a send holds until it is done.
pub enum Payload {
    Owned(Vec<u8>),
    Leased(Lease),
}

struct Line {
    /// `None`: the number is free.
    socket: Option<Socket>,
    /// For a dial or for bytes: the kernel still owes us a word.
    waiting: bool,
    sending: Option<Payload>,
    state: LineState,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum LineState {
    Dialling,
    Open,
    /// Given up; the number is free when the kernel is done with it.
    Closing,
}

#[derive(Clone, Copy)]
enum Op {
    Accept,
    Dial,
    Receive,
    Send,
}

impl Ring {
    /// A ring for at most `lines` sockets, with `buffers` (a power of two) pieces of shelf.
    pub fn new(lines: u32, buffers: u16) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(16_384)
            .build(4_096)?;
        uring.submitter().register_files_sparse(lines)?;
        let shelf = Shelf::new(buffers);
        // SAFETY: the shelf's entries live as long as the queues, which drop first.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                shelf.entries as u64,
                buffers,
                SHELF_GROUP,
                0,
            )?;
        }
        let free = (0..lines).rev().collect();
        let lines = (0..lines).map(|_| Line::vacant()).collect();
        Ok(Self { uring, shelf, lines, free, vacated: Vec::new(), target: None, batch: Vec::new() })
    }

    /// Sets whom [`Ring::dial`] dials. Once.
    pub fn set_target(&mut self, target: SockAddr) {
        assert!(self.target.is_none(), "the kernel may still be reading the first one");
        self.target = Some(Box::new(target));
    }

    /// Takes connections from `listener`, which must outlive the ring's turns.
    pub fn accept(&mut self, listener: &Socket) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build();
        self.push(entry, Op::Accept, 0);
    }

    /// Reads from `socket` from now on.
    pub fn adopt(&mut self, socket: Socket) -> io::Result<u32> {
        let line = self.seat(socket, LineState::Open)?;
        self.receive(line);
        Ok(line)
    }

    /// Connects `socket` to the target; `Connected` or `Ended` follows.
    pub fn dial(&mut self, socket: Socket) -> io::Result<u32> {
        let line = self.seat(socket, LineState::Dialling)?;
        let target = self.target.as_ref().expect("a target is set before dialling");
        let entry = opcode::Connect::new(Fixed(line), target.as_ptr().cast(), target.len());
        let entry = entry.build();
        self.push(entry, Op::Dial, line);
        Ok(line)
    }

    /// Sends `payload`; one at a time per line.
    pub fn send(&mut self, line: u32, payload: Payload) {
        let bytes = match &payload {
            Payload::Owned(bytes) => bytes.as_slice(),
            Payload::Leased(lease) => self.shelf.bytes(lease),
        };
        let length = u32::try_from(bytes.len()).expect("a send is far below 4 GB");
        let entry =
            opcode::Send::new(Fixed(line), bytes.as_ptr(), length).flags(SEND_FLAGS).build();
        let slot = &mut self.lines[line as usize];
        assert!(slot.sending.is_none(), "one send at a time per line");
        slot.sending = Some(payload);
        self.push(entry, Op::Send, line);
    }

    #[must_use]
    pub fn is_sending(&self, line: u32) -> bool {
        self.lines[line as usize].sending.is_some()
    }

    /// Hangs up. Nothing more is heard of the line, and its number is used again later.
    pub fn close(&mut self, line: u32) {
        let slot = &mut self.lines[line as usize];
        if let Some(socket) = &slot.socket {
            // It may be closed by the other end already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        slot.state = LineState::Closing;
        self.vacate_if_quiet(line);
    }

    #[must_use]
    pub fn bytes(&self, lease: &Lease) -> &[u8] {
        self.shelf.bytes(lease)
    }

    pub fn give_back(&mut self, lease: Lease) {
        self.shelf.offer(lease.buffer);
    }

    /// Hands everything queued to the kernel, waits for something to be done or for `patience`,
    /// and appends what is done to `done`, which must have been read to its end before.
    pub fn turn(&mut self, patience: Duration, done: &mut Vec<Done>) -> io::Result<()> {
        self.free.append(&mut self.vacated);
        let until = Timespec::from(patience);
        let args = SubmitArgs::new().timespec(&until);
        match self.uring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(ETIME) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // Settling one may push new entries, which borrows the queues: so they are copied out first.
        let mut batch = std::mem::take(&mut self.batch);
        batch.extend(self.uring.completion());
        let settled = batch.iter().try_for_each(|entry| self.settle(entry, done));
        batch.clear();
        self.batch = batch;
        settled
    }

    fn settle(&mut self, entry: &cqueue::Entry, done: &mut Vec<Done>) -> io::Result<()> {
        let (op, line) = unpack(entry.user_data());
        match op {
            Op::Accept => {
                let fd = check(entry.result())?;
                // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
                done.push(Done::Accepted { socket: unsafe { Socket::from_raw_fd(fd) } });
                if !cqueue::more(entry.flags()) {
                    return Err(io::Error::other("the kernel stopped accepting"));
                }
            }
            Op::Dial => self.dialled(line, entry.result(), done),
            Op::Receive => self.received(line, entry, done),
            Op::Send => self.sent(line, entry.result(), done),
        }
        Ok(())
    }

    fn dialled(&mut self, line: u32, result: i32, done: &mut Vec<Done>) {
        let slot = &mut self.lines[line as usize];
        slot.waiting = false;
        if slot.state == LineState::Closing {
            self.vacate_if_quiet(line);
        } else if result < 0 {
            done.push(Done::Ended { line });
        } else {
            slot.state = LineState::Open;
            self.receive(line);
            done.push(Done::Connected { line });
        }
    }

    fn received(&mut self, line: u32, entry: &cqueue::Entry, done: &mut Vec<Done>) {
        let more = cqueue::more(entry.flags());
        let slot = &mut self.lines[line as usize];
        slot.waiting = more;
        let closing = slot.state == LineState::Closing;
        match (entry.result(), cqueue::buffer_select(entry.flags())) {
            (length @ 1.., Some(buffer)) => {
                let lease = self.shelf.lend(buffer, length.unsigned_abs());
                if closing {
                    self.give_back(lease);
                } else {
                    done.push(Done::Received { line, lease });
                }
                if !more && !closing {
                    self.receive(line);
                }
            }
            // The shelf was bare for a moment; by the next turn it is not.
            (result, _) if result == -ENOBUFS && !closing => self.receive(line),
            _ if !closing => done.push(Done::Ended { line }),
            _ => {}
        }
        self.vacate_if_quiet(line);
    }

    fn sent(&mut self, line: u32, result: i32, done: &mut Vec<Done>) {
        let slot = &mut self.lines[line as usize];
        let payload = slot.sending.take().expect("what was sent was held");
        if slot.state == LineState::Closing {
            if let Payload::Leased(lease) = payload {
                self.give_back(lease);
            }
        } else if result < 0 {
            // The receive on the same socket ends too, and tells the owner.
            if let Payload::Leased(lease) = payload {
                self.give_back(lease);
            }
        } else {
            done.push(Done::Sent { line, payload });
        }
        self.vacate_if_quiet(line);
    }

    fn seat(&mut self, socket: Socket, state: LineState) -> io::Result<u32> {
        let line = self.free.pop().ok_or_else(|| io::Error::other("the ring is full"))?;
        self.uring.submitter().register_files_update(line, &[socket.as_raw_fd()])?;
        let waiting = state == LineState::Dialling;
        self.lines[line as usize] = Line { socket: Some(socket), waiting, sending: None, state };
        Ok(line)
    }

    fn vacate_if_quiet(&mut self, line: u32) {
        let slot = &mut self.lines[line as usize];
        let quiet = !slot.waiting && slot.sending.is_none();
        if slot.state == LineState::Closing && quiet && slot.socket.take().is_some() {
            let vacated = self.uring.submitter().register_files_update(line, &[-1]);
            vacated.expect("emptying a place of the file table cannot fail");
            self.vacated.push(line);
        }
    }

    fn receive(&mut self, line: u32) {
        self.lines[line as usize].waiting = true;
        let entry = opcode::RecvMulti::new(Fixed(line), SHELF_GROUP).build();
        self.push(entry, Op::Receive, line);
    }

    fn push(&mut self, entry: squeue::Entry, op: Op, line: u32) {
        let entry = entry.user_data((op as u64) << 32 | u64::from(line));
        // SAFETY: what an entry points to outlives it: sends are held in their line, the target is
        // boxed and never replaced, and receives go to the shelf.
        while unsafe { self.uring.submission().push(&entry) }.is_err() {
            self.uring.submit().expect("a full queue can be handed in");
        }
    }
}

impl Line {
    fn vacant() -> Self {
        Self { socket: None, waiting: false, sending: None, state: LineState::Closing }
    }
}

/// The provided buffers, and the ring of entries by which the kernel is told of them.
struct Shelf {
    entries: *mut BufRingEntry,
    entries_layout: Layout,
    bytes: *mut u8,
    bytes_layout: Layout,
    /// Which buffers are on our side. A lease of another ring's shelf is refused by this.
    lent: Vec<bool>,
    tail: u16,
}

const SHELF_GROUP: u16 = 0;
const BUFFER_BYTES: usize = 8_192;
const PAGE: usize = 4_096;
const ETIME: i32 = 62;
const ENOBUFS: i32 = 105;
/// `MSG_NOSIGNAL`, and `MSG_WAITALL`: the kernel goes on after a short send.
const SEND_FLAGS: i32 = 0x4000 | 0x100;

impl Shelf {
    fn new(buffers: u16) -> Self {
        assert!(buffers.is_power_of_two(), "the kernel masks the tail");
        let count = usize::from(buffers);
        let entries_layout = Layout::array::<BufRingEntry>(count)
            .and_then(|layout| layout.align_to(PAGE))
            .expect("a few pages");
        let bytes_layout =
            Layout::from_size_align(count * BUFFER_BYTES, PAGE).expect("below the address space");
        // SAFETY: neither size is zero.
        let (entries, bytes) =
            unsafe { (alloc_zeroed(entries_layout), alloc_zeroed(bytes_layout)) };
        if entries.is_null() || bytes.is_null() {
            handle_alloc_error(bytes_layout);
        }
        let lent = vec![true; count];
        let mut shelf =
            Self { entries: entries.cast(), entries_layout, bytes, bytes_layout, lent, tail: 0 };
        for buffer in 0..buffers {
            shelf.offer(buffer);
        }
        shelf
    }

    /// The kernel may fill `buffer` again.
    fn offer(&mut self, buffer: u16) {
        let at = usize::from(buffer);
        assert!(std::mem::replace(&mut self.lent[at], false), "a buffer is given back once");
        let slot = usize::from(self.tail) & (self.lent.len() - 1);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `slot` and `at` are below the count both were allocated for; the kernel reads an
        // entry only once the tail has passed it, which the release store publishes.
        unsafe {
            let entry = &mut *self.entries.add(slot);
            entry.set_addr(self.bytes.add(at * BUFFER_BYTES) as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
            let tail = BufRingEntry::tail(self.entries).cast_mut().cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    fn lend(&mut self, buffer: u16, length: u32) -> Lease {
        self.lent[usize::from(buffer)] = true;
        assert!(length as usize <= BUFFER_BYTES, "the kernel keeps to the length offered");
        Lease { buffer, length }
    }

    fn bytes(&self, lease: &Lease) -> &[u8] {
        let at = usize::from(lease.buffer);
        assert!(self.lent[at], "only what was lent can be read");
        // SAFETY: inside the allocation, written by the kernel up to `length`, and not the
        // kernel's again before the lease is given back.
        unsafe {
            std::slice::from_raw_parts(self.bytes.add(at * BUFFER_BYTES), lease.length as usize)
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts, and the queues that used them are gone.
        unsafe {
            dealloc(self.entries.cast(), self.entries_layout);
            dealloc(self.bytes, self.bytes_layout);
        }
    }
}

fn unpack(user_data: u64) -> (Op, u32) {
    let op = match user_data >> 32 {
        0 => Op::Accept,
        1 => Op::Dial,
        2 => Op::Receive,
        _ => Op::Send,
    };
    (op, user_data as u32)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}
