//! The floor: a forwarder that understands nothing.
//!
//! One client to one server, bytes as they come, by io_uring. No pooler can cost less on this kernel,
//! because a pooler must do the same four things: receive, send, receive, send.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use socket2::SockAddr;

use crate::address::{self, Address};
use crate::ring::{Done, Lease, Payload, Ring};

/// Forwards everything that dials `listen` to `backend`, until it is killed.
///
/// The ring's table may not be larger than `descriptors`, the process's limit.
pub fn run(listen: &Address, backend: &Address, descriptors: u64) -> io::Result<()> {
    let lines = u32::try_from(descriptors).unwrap_or(LINES_MAX).min(LINES_MAX);
    let listener = address::listen(listen)?;
    let target: SockAddr = backend.resolve()?;
    let mut ring = Ring::new(lines, BUFFERS)?;
    ring.set_target(target);
    ring.accept(&listener);
    let mut floor = Floor { ring, backend: backend.clone(), ends: Vec::new() };
    floor.ends.resize_with(lines as usize, || None);
    let mut done = Vec::new();
    loop {
        floor.ring.turn(Duration::from_secs(1), &mut done)?;
        for event in done.drain(..) {
            floor.handle(event)?;
        }
    }
}

const LINES_MAX: u32 = 32_768;
const BUFFERS: u16 = 4_096;

struct Floor {
    ring: Ring,
    backend: Address,
    /// By line.
    ends: Vec<Option<End>>,
}

/// One side of a pair.
struct End {
    other: u32,
    /// What came from the other side and is not yet sent to this one, oldest first.
    due: VecDeque<Lease>,
    /// A server is not to be sent to before it is there.
    ready: bool,
}

impl Floor {
    fn handle(&mut self, event: Done) -> io::Result<()> {
        match event {
            Done::Accepted { socket } => {
                self.backend.quicken(&socket)?;
                let server = self.ring.dial(address::socket_for(&self.backend)?)?;
                let client = self.ring.adopt(socket)?;
                self.seat(client, server, true);
                self.seat(server, client, false);
            }
            Done::Connected { line } => {
                if let Some(end) = &mut self.ends[line as usize] {
                    end.ready = true;
                }
                self.flush(line);
            }
            Done::Received { line, lease } => self.forward(line, lease),
            Done::Sent { line, payload } => {
                if let Payload::Leased(lease) = payload {
                    self.ring.give_back(lease);
                }
                self.flush(line);
            }
            Done::Ended { line } => self.part(line),
        }
        Ok(())
    }

    fn seat(&mut self, line: u32, other: u32, ready: bool) {
        self.ends[line as usize] = Some(End { other, due: VecDeque::new(), ready });
    }

    fn forward(&mut self, from: u32, lease: Lease) {
        let to = self.ends[from as usize].as_ref().map(|end| end.other);
        let Some((to, end)) = to.and_then(|to| Some((to, self.ends[to as usize].as_mut()?))) else {
            return self.ring.give_back(lease);
        };
        if end.ready && end.due.is_empty() && !self.ring.is_sending(to) {
            self.ring.send(to, Payload::Leased(lease));
        } else {
            end.due.push_back(lease);
        }
    }

    fn flush(&mut self, line: u32) {
        if let Some(end) = &mut self.ends[line as usize]
            && end.ready
            && !self.ring.is_sending(line)
            && let Some(lease) = end.due.pop_front()
        {
            self.ring.send(line, Payload::Leased(lease));
        }
    }

    /// Both sides go when one does.
    fn part(&mut self, line: u32) {
        let Some(end) = self.ends[line as usize].take() else { return };
        let other = self.ends[end.other as usize].take();
        for lease in end.due.into_iter().chain(other.into_iter().flat_map(|other| other.due)) {
            self.ring.give_back(lease);
        }
        self.ring.close(line);
        self.ring.close(end.other);
    }
}
