//! The one interface to the kernel: io_uring, a readiness driver, or the simulator stand behind it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::{Address, Buf, Ends, Sealed, Session};

/// A connection, by its slot in the driver. A slot is used again only after its
/// [`Done::Closed`] or [`Done::Detached`] was collected, so a `Conn` is never ambiguous.
/// Slots are dense: the worker indexes tables by them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Conn(pub u32);

/// A listening socket, by the order in which it was given to [`Driver::listen`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Listener(pub u32);

/// Something the kernel finished. Of one connection, events come in the order in which they happened.
#[derive(Debug)]
pub enum Done<S> {
    /// A client dialled in. The driver does not read from `socket` until it is adopted, here or on
    /// another worker.
    Accepted { listener: Listener, socket: S, ends: Box<Ends> },
    /// `accept` failed (`EMFILE`, `ENFILE`, …). The listener rests until [`Driver::listen_again`].
    AcceptFailed { listener: Listener, error: io::Error },
    /// A connection asked for is up, and reading has begun.
    Connected { conn: Conn, ends: Box<Ends> },
    /// The handshake that [`Driver::secure`] began is over: what is received from now on came
    /// encrypted. A failed one is an `Ended` with the error.
    Secured { conn: Conn, sealed: Box<Sealed> },
    /// Bytes came in. Never empty.
    Received { conn: Conn, bytes: Buf },
    /// What was queued on `conn` fell to [`Tuning::low_water`] or below, after
    /// [`Driver::unsent`] had been above [`Tuning::high_water`].
    Drained { conn: Conn },
    /// The peer will send nothing more (`error: None`: it closed; else the reset, the timeout, or
    /// the failed connect), and what was queued for it may be lost. Said once; a plain end may be
    /// followed by one with an error, when sending to such a peer fails. The worker
    /// answers with [`Driver::finish`] or [`Driver::abort`] when it has not already done so.
    Ended { conn: Conn, error: Option<io::Error> },
    /// The slot is free and the socket closed. The last word about `conn`, after `finish`, `abort`
    /// or nothing else.
    Closed { conn: Conn },
    /// [`Driver::detach`] is done: nothing is in flight, and `socket` can be adopted on another
    /// worker. The last word about `conn` here.
    Detached { conn: Conn, socket: S },
    /// Somebody used a [`Waker`] of this driver.
    Woken,
}

/// What the worker can ask of the kernel. Nothing here blocks but [`Driver::turn`], and nothing
/// fails at once: a failure comes as [`Done::Ended`].
pub trait Driver {
    /// An open socket on its way between two drivers.
    type Socket: Send + 'static;

    /// Take `socket` and begin reading from it.
    fn adopt(&mut self, socket: Self::Socket) -> Conn;

    /// Dial `to`. Comes back as `Connected`, or as `Ended` with the error.
    fn connect(&mut self, to: &Address) -> Conn;

    /// Queue `bytes` without copying them.
    fn send(&mut self, conn: Conn, bytes: Buf);

    /// Queue a copy of `bytes`. Small writes of one turn leave in one system call.
    fn write(&mut self, conn: Conn, bytes: &[u8]);

    /// Speak TLS on `conn` from here on; what was queued before leaves as it is. Comes back as
    /// `Secured`, or as `Ended` with the error, after which [`Driver::finish`] lets the peer hear
    /// why. What is queued meanwhile leaves once the handshake is over, and is dropped where it is
    /// `finish`ed before. A driver that knows no TLS hangs up.
    fn secure(&mut self, conn: Conn, session: Session) {
        drop(session);
        self.abort(conn);
    }

    /// Give back what was `Received` before [`Driver::secure`] took effect, and is the beginning of the
    /// peer's handshake.
    fn unread(&mut self, conn: Conn, bytes: Buf) {
        let _ = (conn, bytes);
    }

    /// Bytes queued and not yet taken by the kernel.
    fn unsent(&self, conn: Conn) -> usize;

    /// Stop delivering `Received` of `conn` (what the kernel already handed over still comes).
    fn pause(&mut self, conn: Conn);

    /// Go on after [`Driver::pause`].
    fn resume(&mut self, conn: Conn);

    /// Read nothing more, send what is queued, then close. Ends in `Closed`. The worker sets the
    /// deadline: a peer that does not take its bytes is `abort`ed later.
    fn finish(&mut self, conn: Conn);

    /// Close now, dropping what is queued. Ends in `Closed`.
    fn abort(&mut self, conn: Conn);

    /// Stop reading, and give the socket up once nothing is in flight. Until `Detached` comes,
    /// `Received` may still come for bytes already taken from the socket; on `Ended` the detach is
    /// off, and `Closed` follows after `abort`. Nothing may be unsent when it is called.
    fn detach(&mut self, conn: Conn);

    /// Listen on `socket` (bound, listening, non-blocking).
    fn listen(&mut self, socket: Self::Socket) -> Listener;

    /// Accept again after `AcceptFailed`.
    fn listen_again(&mut self, listener: Listener);

    /// Close a listening socket. Those whom the kernel has connected by it are accepted first.
    fn unlisten(&mut self, listener: Listener);

    /// Hand everything queued to the kernel at once, then collect what is done: wait for the first
    /// event for up to `wait` (`None`: as long as it takes; zero: just look).
    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Self::Socket>>);

    /// Something other threads can wake this driver's `turn` with.
    fn waker(&self) -> Waker;

    /// The file descriptor of `conn`, where it has one: for SHOW FDS.
    fn fd(&self, conn: Conn) -> Option<i32> {
        let _ = conn;
        None
    }

    /// What is held of buffers: for SHOW MEM.
    fn buffers(&self) -> Buffers {
        Buffers::default()
    }

    /// New socket options, for sockets adopted or dialled from now on, and for those that listen.
    fn tune(&mut self, tuning: &Tuning);
}

/// Wakes a driver from another thread. Cheap to clone; several wakes before the next turn are one.
#[derive(Clone)]
pub struct Waker(pub Arc<dyn Wake>);

/// The driver's half of a [`Waker`].
pub trait Wake: Send + Sync {
    fn wake(&self);
}

impl Waker {
    pub fn wake(&self) {
        self.0.wake();
    }
}

/// A driver's buffers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Buffers {
    /// Of one, in bytes.
    pub size: usize,
    /// Holding bytes.
    pub used: usize,
    /// Waiting for some.
    pub free: usize,
}

/// Socket options and water marks, from the ini.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tuning {
    /// `tcp_keepalive`, and the three that go with it; 0 leaves the system's own.
    pub keepalive: bool,
    pub keepidle_s: u32,
    pub keepintvl_s: u32,
    pub keepcnt: u32,
    /// `tcp_user_timeout`; 0 leaves the system's own.
    pub user_timeout_ms: u32,
    /// `tcp_socket_buffer`, in bytes; 0 leaves the system's own.
    pub socket_buffer: u32,
    /// `tcp_defer_accept`: clients are accepted once they have said something.
    pub defer_accept: bool,
    /// Where other processes listen on the same port, whoever dials is left to them. Those who are
    /// connecting already still come in.
    pub turn_away: bool,
    /// How long to look for the next event before sleeping, where one client and one server talk in
    /// turn and nobody else does. Zero is not at all.
    pub busy_poll: Duration,
    /// More than this unsent, in bytes, and the worker stops reading from the other side.
    pub high_water: usize,
    /// At this or below, in bytes, it goes on: [`Done::Drained`].
    pub low_water: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            keepalive: true,
            keepidle_s: 0,
            keepintvl_s: 0,
            keepcnt: 0,
            user_timeout_ms: 0,
            socket_buffer: 0,
            defer_accept: false,
            turn_away: false,
            busy_poll: Duration::ZERO,
            high_water: 128 * 1024,
            low_water: 32 * 1024,
        }
    }
}
