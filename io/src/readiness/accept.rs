//! Listening sockets of the readiness driver.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{SocketFlags, accept_with};

use super::Readiness;
use crate::{Done, Listener, Socket, socket};

/// Clients let in at one listener before the others have their turn.
const ACCEPTS_MAX: usize = 64;

/// One listening socket.
#[derive(Debug)]
pub(super) struct Ear {
    /// `None` once it is closed.
    fd: Option<OwnedFd>,
    /// It could not be watched.
    fault: Option<io::Error>,
    ready: bool,
    /// `AcceptFailed` was said, and `listen_again` not yet.
    pub(super) resting: bool,
}

impl Ear {
    pub(super) fn new(fd: OwnedFd, fault: Option<io::Error>) -> Self {
        // Somebody may have dialled before we listened.
        Self { fd: Some(fd), fault, ready: true, resting: false }
    }

    pub(super) fn close(&mut self) {
        self.fd = None;
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
            accept(ear, Listener(index as u32), done);
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
                let socket = Socket::accepted(fd);
                // A client that has gone already is nobody's.
                if let Ok(ends) = socket.ends() {
                    done.push(Done::Accepted { listener, socket, ends });
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
