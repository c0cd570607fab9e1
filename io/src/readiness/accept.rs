//! Listening sockets of the readiness driver.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SocketFlags, accept_with};

use super::Readiness;
use crate::{Done, Listener, Socket, Tuning, socket};

/// Clients let in at one listener before the others have their turn.
const ACCEPTS_MAX: usize = 64;

/// One listening socket.
#[derive(Debug)]
pub(super) struct Ear {
    /// `None` once it is closed.
    fd: Option<OwnedFd>,
    shares_port: bool,
    /// It could not be watched.
    fault: Option<io::Error>,
    ready: bool,
    /// `AcceptFailed` was said, and `listen_again` not yet.
    pub(super) resting: bool,
    pub(super) closing: bool,
}

impl Ear {
    pub(super) fn new(fd: OwnedFd, shares_port: bool, fault: Option<io::Error>) -> Self {
        // Somebody may have dialled before we listened.
        Self { fd: Some(fd), shares_port, fault, ready: true, resting: false, closing: false }
    }

    pub(super) fn tune(&self, tuning: &Tuning) {
        if let Some(fd) = &self.fd {
            socket::tune_listener(fd.as_fd(), self.shares_port, tuning);
        }
    }

    /// Accept those who wait, and close.
    fn close(&mut self, listener: Listener, done: &mut Vec<Done<Socket>>) {
        let Some(fd) = self.fd.take() else { return };
        for (socket, ends) in socket::backlog(fd.as_fd()) {
            done.push(Done::Accepted { listener, socket, ends: Box::new(ends) });
        }
    }
}

impl Readiness {
    pub(super) fn rang(&mut self, listener: Listener) {
        if let Some(ear) = self.ears.get_mut(listener.0 as usize) {
            ear.ready = true;
            self.ears_unsettled = true;
        }
    }

    /// Let in those who wait.
    pub(super) fn settle_ears(&mut self, done: &mut Vec<Done<Socket>>) {
        self.ears_unsettled = false;
        for (index, ear) in self.ears.iter_mut().enumerate() {
            let listener = Listener(index as u32);
            if ear.closing {
                ear.close(listener, done);
                continue;
            }
            accept(ear, listener, done);
            self.ears_unsettled |= ear.ready && !ear.resting && ear.fd.is_some();
        }
    }
}

fn accept(ear: &mut Ear, listener: Listener, done: &mut Vec<Done<Socket>>) {
    let Some(fd) = &ear.fd else { return };
    if let Some(error) = ear.fault.take() {
        ear.resting = true;
        done.push(Done::AcceptFailed { listener, error });
    }
    for _ in 0..ACCEPTS_MAX {
        if !ear.ready || ear.resting {
            return;
        }
        match accept_with(fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => {
                if let Some((socket, ends)) = Socket::accepted(fd) {
                    done.push(Done::Accepted { listener, socket, ends: Box::new(ends) });
                }
            }
            Err(error) => {
                let error = io::Error::from(error);
                if error.kind() == io::ErrorKind::WouldBlock {
                    ear.ready = false;
                } else if !socket::is_passing(&error) {
                    ear.resting = true;
                    done.push(Done::AcceptFailed { listener, error });
                }
            }
        }
    }
}
