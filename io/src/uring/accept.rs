//! Listening sockets of the io_uring driver.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};

use super::ring::Completion;
use super::token::{Order, Token};
use super::{Flying, Uring};
use crate::{Done, Listener, Socket, Tuning};

/// One listening socket.
#[derive(Debug)]
pub(super) struct Ear {
    /// `None` once it is closed.
    fd: Option<OwnedFd>,
    shares_port: bool,
    accepting: Flying,
    /// `AcceptFailed` was said, and `listen_again` not yet.
    pub(super) resting: bool,
    pub(super) closing: bool,
}

impl Ear {
    pub(super) fn new(socket: Socket, tuning: &Tuning) -> Self {
        let shares_port = socket.shares_port;
        let fd = Some(socket.into());
        let ear = Self { fd, shares_port, accepting: Flying::No, resting: false, closing: false };
        ear.tune(tuning);
        ear
    }

    pub(super) fn tune(&self, tuning: &Tuning) {
        if let Some(fd) = &self.fd {
            crate::socket::tune_listener(fd.as_fd(), self.shares_port, tuning);
        }
    }
}

impl Uring {
    /// Accept where that is wanted, and stop and close where it is not.
    pub(super) fn settle_ears(&mut self, done: &mut Vec<Done<Socket>>) {
        self.ears_unsettled = false;
        for index in 0..self.ears.len() {
            let settled = self.settle_ear(index, done);
            self.ears_unsettled |= !settled;
        }
        self.hurry |= self.ears_unsettled;
    }

    /// False if the ring had no room for it.
    fn settle_ear(&mut self, index: usize, done: &mut Vec<Done<Socket>>) -> bool {
        let ear = &mut self.ears[index];
        let Some(fd) = &ear.fd else { return true };
        let token = Token { of: Order::Accept, generation: 0, slot: index as u32 }.pack();
        match ear.accepting {
            Flying::No if ear.closing => {
                let listener = Listener(index as u32);
                for (socket, ends) in crate::socket::backlog(fd.as_fd()) {
                    done.push(Done::Accepted { listener, socket, ends: Box::new(ends) });
                }
                ear.fd = None;
                true
            }
            Flying::No if !ear.resting => {
                let order = opcode::AcceptMulti::new(Fd(fd.as_raw_fd()))
                    .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
                    .build()
                    .user_data(token);
                // SAFETY: it points to nothing.
                let ordered = unsafe { self.ring.push(&order) };
                if ordered {
                    self.ears[index].accepting = Flying::Yes;
                    self.in_flight += 1;
                }
                ordered
            }
            Flying::Yes if ear.closing => {
                let called_off = self.cancel(token);
                if called_off {
                    self.ears[index].accepting = Flying::CalledOff;
                }
                called_off
            }
            Flying::No | Flying::Yes | Flying::CalledOff => true,
        }
    }

    pub(super) fn accepted(
        &mut self,
        listener: Listener,
        completion: Completion,
        done: &mut Vec<Done<Socket>>,
    ) {
        // SAFETY: the kernel just opened it for us, and told nobody else.
        let fd =
            (completion.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(completion.result) });
        let Some(ear) = self.ears.get_mut(listener.0 as usize) else { return };
        if !cqueue::more(completion.flags) {
            ear.accepting = Flying::No;
            self.ears_unsettled = true;
        }
        if let Some(fd) = fd {
            if let Some((socket, ends)) = Socket::accepted(fd) {
                done.push(Done::Accepted { listener, socket, ends: Box::new(ends) });
            }
            return;
        }
        let error = std::io::Error::from_raw_os_error(-completion.result);
        if !ear.closing && !crate::socket::is_passing(&error) {
            ear.resting = true;
            done.push(Done::AcceptFailed { listener, error });
        }
    }
}
