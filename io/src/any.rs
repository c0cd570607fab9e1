//! Whichever driver this kernel allows.

use std::io;
use std::time::Duration;

use crate::{
    Address, Buf, Buffers, Conn, Done, Driver, Listener, Readiness, Session, Socket, Tls, Tuning,
    Uring, Waker,
};

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Kind {
    /// io_uring where the kernel has what we need of it, readiness elsewhere.
    #[default]
    Auto,
    IoUring,
    Readiness,
}

/// One of the two drivers that talk to a real kernel.
// One lives per thread, for as long as the thread: its size does not matter.
#[allow(clippy::large_enum_variant)]
pub enum AnyDriver {
    Uring(Tls<Uring>),
    Readiness(Tls<Readiness>),
}

/// Open a driver, and say which it became. It belongs to the thread that opens it.
pub fn open(kind: Kind) -> io::Result<(AnyDriver, &'static str)> {
    let readiness = || Ok((AnyDriver::Readiness(Tls::over(Readiness::open()?)), "epoll"));
    let uring = || Ok((AnyDriver::Uring(Tls::over(Uring::open()?)), "io_uring"));
    match kind {
        Kind::IoUring => uring(),
        Kind::Readiness => readiness(),
        Kind::Auto => uring().or_else(|_: io::Error| readiness()),
    }
}

/// Calls the same method of whichever driver is there.
macro_rules! either {
    ($any:expr, $driver:ident => $call:expr) => {
        match $any {
            AnyDriver::Uring($driver) => $call,
            AnyDriver::Readiness($driver) => $call,
        }
    };
}

impl Driver for AnyDriver {
    type Socket = Socket;

    fn adopt(&mut self, socket: Socket) -> Conn {
        either!(self, driver => driver.adopt(socket))
    }

    fn connect(&mut self, to: &Address) -> Conn {
        either!(self, driver => driver.connect(to))
    }

    fn send(&mut self, conn: Conn, bytes: Buf) {
        either!(self, driver => driver.send(conn, bytes));
    }

    fn write(&mut self, conn: Conn, bytes: &[u8]) {
        either!(self, driver => driver.write(conn, bytes));
    }

    fn secure(&mut self, conn: Conn, session: Session) {
        either!(self, driver => driver.secure(conn, session));
    }

    fn unread(&mut self, conn: Conn, bytes: Buf) {
        either!(self, driver => driver.unread(conn, bytes));
    }

    fn unsent(&self, conn: Conn) -> usize {
        either!(self, driver => driver.unsent(conn))
    }

    fn pause(&mut self, conn: Conn) {
        either!(self, driver => driver.pause(conn));
    }

    fn resume(&mut self, conn: Conn) {
        either!(self, driver => driver.resume(conn));
    }

    fn finish(&mut self, conn: Conn) {
        either!(self, driver => driver.finish(conn));
    }

    fn abort(&mut self, conn: Conn) {
        either!(self, driver => driver.abort(conn));
    }

    fn detach(&mut self, conn: Conn) {
        either!(self, driver => driver.detach(conn));
    }

    fn listen(&mut self, socket: Socket) -> Listener {
        either!(self, driver => driver.listen(socket))
    }

    fn listen_again(&mut self, listener: Listener) {
        either!(self, driver => driver.listen_again(listener));
    }

    fn unlisten(&mut self, listener: Listener) {
        either!(self, driver => driver.unlisten(listener));
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        either!(self, driver => driver.turn(wait, done));
    }

    fn waker(&self) -> Waker {
        either!(self, driver => driver.waker())
    }

    fn fd(&self, conn: Conn) -> Option<i32> {
        either!(self, driver => Driver::fd(driver, conn))
    }

    fn buffers(&self) -> Buffers {
        either!(self, driver => driver.buffers())
    }

    fn tune(&mut self, tuning: &Tuning) {
        either!(self, driver => driver.tune(tuning));
    }
}
