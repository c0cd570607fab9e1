//! The driver over readiness (epoll), for where io_uring is missing or forbidden.
//!
//! Completions are imitated: what is wanted is tried, and if the kernel says `EAGAIN`, it is tried
//! again when the kernel says that it is worth while. Readiness is edge-triggered: `readable` and
//! `writable` stay set until a try fails, so no wakeup is lost while a connection is paused.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;

use crate::bell::Bell;
use crate::lender::{BUFFER, Lender};
use crate::outbox::{Flight, Outbox, Outboxes, Place};
use crate::pace::Pace;
use crate::slots::Slots;
use crate::{Address, Buf, Buffers, Conn, Done, Driver, Listener, Socket, Tuning, Waker, socket};
use accept::Ear;

mod accept;

/// Buffers filled from one connection before the others have their turn.
const READS_MAX: usize = 4;
/// Flights sent on one connection before the others have their turn.
const FLIGHTS_MAX: usize = 4;
const EVENTS_MAX: usize = 1024;

/// A driver over readiness. It stays on the thread that opened it.
pub struct Readiness {
    poll: Poll,
    events: Events,
    lender: Rc<Lender>,
    links: Slots<Link>,
    outboxes: Outboxes,
    ears: Vec<Ear>,
    bell: Arc<Bell>,
    tuning: Tuning,
    pace: Pace,
    /// Those for whom something may be possible now.
    unsettled: Vec<Conn>,
    ears_unsettled: bool,
    settling: Vec<Conn>,
}

/// What this driver knows of one connection.
#[derive(Debug)]
struct Link {
    /// `None` only where even opening a socket failed, or in a free slot.
    fd: Option<OwnedFd>,
    /// Tells events of this connection from late ones of its predecessors in the slot.
    generation: u32,
    outbox: Place,
    /// The error number that ended it in both directions, or 0.
    fault: i32,
    stage: Stage,
    dialling: bool,
    readable: bool,
    writable: bool,
    /// The peer has sent its last byte, so a short read is no sign that all was read.
    last_byte_sent: bool,
    paused: bool,
    /// `Ended` was said.
    ended: bool,
    /// Its break was said too.
    broken: bool,
    /// Went above high water, and has not come down to low water since.
    crowded: bool,
    unsettled: bool,
}

const _: () = assert!(size_of::<Link>() <= 64, "ten thousand idle clients must cost nothing");

/// What the worker wants of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Free,
    Open,
    Detaching,
    Finishing,
    Aborting,
}

/// What an event is about, packed into its token: `[generation: 24][kind: 8][number: 32]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum About {
    Link { generation: u32, conn: Conn },
    Ear(Listener),
    Bell,
}

const GENERATIONS: u32 = 1 << 24;

impl About {
    fn pack(self) -> Token {
        Token(match self {
            Self::Link { generation, conn } => (generation as usize) << 40 | conn.0 as usize,
            Self::Ear(listener) => 1 << 32 | listener.0 as usize,
            Self::Bell => 2 << 32,
        })
    }

    fn unpack(token: Token) -> Self {
        let number = token.0 as u32;
        match token.0 >> 32 & 0xff {
            0 => Self::Link { generation: (token.0 >> 40) as u32, conn: Conn(number) },
            1 => Self::Ear(Listener(number)),
            _ => Self::Bell,
        }
    }
}

impl Link {
    fn new(fd: Option<OwnedFd>, generation: u32) -> Self {
        Self {
            fd,
            generation,
            outbox: Place::NONE,
            fault: 0,
            stage: Stage::Open,
            dialling: false,
            readable: false,
            writable: true,
            last_byte_sent: false,
            paused: false,
            ended: false,
            broken: false,
            crowded: false,
            unsettled: false,
        }
    }

    /// The worker still listens to what it says.
    fn is_heard(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Detaching) && !self.ended
    }

    /// The worker may still queue something.
    fn takes_bytes(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Detaching) && self.fault == 0
    }

    fn wants_bytes(&self) -> bool {
        self.stage == Stage::Open
            && !self.dialling
            && !self.paused
            && !self.ended
            && self.fault == 0
    }

    fn fail(&mut self, error: &io::Error) {
        if self.fault == 0 {
            self.fault = error.raw_os_error().unwrap_or(libc::EINVAL);
        }
    }
}

impl Readiness {
    pub fn open() -> io::Result<Self> {
        let poll = Poll::new()?;
        let bell = Bell::new()?;
        let fd = bell.as_fd().as_raw_fd();
        poll.registry().register(&mut SourceFd(&fd), About::Bell.pack(), Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            lender: Lender::with_stack(),
            links: Slots::new(),
            outboxes: Outboxes::default(),
            ears: Vec::new(),
            bell: Arc::new(bell),
            tuning: Tuning::default(),
            pace: Pace::new(),
            unsettled: Vec::new(),
            ears_unsettled: false,
            settling: Vec::new(),
        })
    }

    fn place(&mut self, fd: Option<OwnedFd>) -> Conn {
        let conn = self.links.take(|old| {
            let generation = old.map_or(0, |old| (old.generation + 1) % GENERATIONS);
            Link::new(fd, generation)
        });
        self.unsettle(conn);
        conn
    }

    /// Have the kernel tell of what happens on `conn`. It begins with what is so already.
    fn watch(&mut self, conn: Conn) {
        let Some(link) = self.links.at_mut(conn) else { return };
        let Some(fd) = &link.fd else { return };
        let token = About::Link { generation: link.generation, conn }.pack();
        let both = Interest::READABLE | Interest::WRITABLE;
        let watched = self.poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), token, both);
        if let Err(error) = watched {
            link.fail(&error);
        }
    }

    fn unsettle(&mut self, conn: Conn) {
        if let Some(link) = self.links.at_mut(conn)
            && !link.unsettled
        {
            link.unsettled = true;
            self.unsettled.push(conn);
        }
    }

    /// Change what is wanted of `conn`, unless it is on its way out.
    fn want(&mut self, conn: Conn, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.at_mut(conn)
            && matches!(link.stage, Stage::Open | Stage::Detaching | Stage::Finishing)
        {
            change(link);
            self.unsettle(conn);
        }
    }

    fn queue(&mut self, conn: Conn, put: impl FnOnce(&mut Outbox)) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if !link.takes_bytes() {
            return;
        }
        let outbox = self.outboxes.open(&mut link.outbox);
        put(outbox);
        link.crowded |= outbox.unsent() > self.tuning.high_water;
        if link.writable {
            self.unsettle(conn);
        }
    }

    /// Do what can be done now.
    fn settle_all(&mut self, done: &mut Vec<Done<Socket>>) {
        if self.lender.is_low() {
            self.lender.grow();
        }
        if self.ears_unsettled {
            self.settle_ears(done);
        }
        let mut settling = std::mem::take(&mut self.settling);
        std::mem::swap(&mut settling, &mut self.unsettled);
        for conn in settling.drain(..) {
            self.settle(conn, done);
        }
        self.settling = settling;
    }

    fn settle(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        link.unsettled = false;
        let stage = link.stage;
        if stage == Stage::Aborting {
            return self.close(conn, done);
        }
        if stage == Stage::Free {
            return;
        }
        self.settle_dial(conn, done);
        self.settle_sending(conn, done);
        match stage {
            Stage::Open => self.settle_receiving(conn, done),
            Stage::Detaching => self.detach_if_sent(conn, done),
            Stage::Finishing => self.close_if_sent(conn, done),
            Stage::Free | Stage::Aborting => {}
        }
        self.settle_fault(conn, done);
    }

    /// It failed. What came in before is delivered first, and only then is it said.
    fn settle_fault(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.fault == 0 || link.stage == Stage::Free {
            return;
        }
        self.outboxes.close(&mut link.outbox);
        if link.broken {
            return;
        }
        let error = io::Error::from_raw_os_error(link.fault);
        if let (true, Some(fd)) = (link.is_heard(), &link.fd) {
            let bytes = socket::remains(fd.as_fd());
            done.extend(bytes.map(|bytes| Done::Received { conn, bytes: Buf::from(bytes) }));
        }
        self.end(conn, Some(error), done);
    }

    fn settle_dial(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        let (true, Some(fd)) = (link.dialling, &link.fd) else { return };
        let failed = SockRef::from(fd).take_error().unwrap_or_else(Some);
        match (failed, socket::ends(fd.as_fd())) {
            (None, Ok(ends)) => {
                link.dialling = false;
                if link.is_heard() {
                    done.push(Done::Connected { conn, ends: Box::new(ends) });
                }
            }
            (None, Err(error)) if error.raw_os_error() == Some(libc::ENOTCONN) => {}
            (Some(error), _) | (None, Err(error)) => link.fail(&error),
        }
    }

    fn settle_receiving(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        for _ in 0..READS_MAX {
            let Some(link) = self.links.at_mut(conn) else { return };
            let (true, Some(fd)) = (link.readable && link.wants_bytes(), &link.fd) else { return };
            match receive(fd.as_fd(), &self.lender) {
                Ok(bytes) if bytes.is_empty() => return self.end(conn, None, done),
                Ok(bytes) => {
                    link.readable = bytes.len() == BUFFER || link.last_byte_sent;
                    done.push(Done::Received { conn, bytes });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => link.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return link.fail(&error),
            }
        }
        if let Some(link) = self.links.at(conn)
            && link.readable
        {
            self.unsettle(conn); // the others first
        }
    }

    fn settle_sending(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        for _ in 0..FLIGHTS_MAX {
            let Some(link) = self.links.at_mut(conn) else { return };
            let (true, Some(fd)) = (link.writable && !link.dialling && link.fault == 0, &link.fd)
            else {
                return;
            };
            let Some(outbox) = self.outboxes.at_mut(link.outbox) else { return };
            match send(fd.as_fd(), outbox.launch()) {
                Ok(count) => {
                    // A short one says that there is no room for more.
                    link.writable = count == outbox.flight();
                    outbox.land(count);
                    self.sent(conn, done);
                }
                Err(error) => {
                    outbox.land(0);
                    match error.kind() {
                        io::ErrorKind::WouldBlock => link.writable = false,
                        io::ErrorKind::Interrupted => {}
                        _ => link.fail(&error),
                    }
                }
            }
        }
        if let Some(link) = self.links.at(conn)
            && link.writable
            && !link.outbox.is_none()
        {
            self.unsettle(conn); // the others first
        }
    }

    /// The kernel took something.
    fn sent(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        let Some(outbox) = self.outboxes.at(link.outbox) else { return };
        let left = outbox.unsent();
        if link.crowded && left <= self.tuning.low_water {
            link.crowded = false;
            if matches!(link.stage, Stage::Open | Stage::Detaching) {
                done.push(Done::Drained { conn });
            }
        }
        if left == 0 {
            self.outboxes.close(&mut link.outbox);
        }
    }

    fn detach_if_sent(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.dialling || link.fault != 0 || !link.outbox.is_none() {
            return;
        }
        let Some(fd) = link.fd.take() else { return };
        // It cannot fail on what is watched; and if it was not, so much the better.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd.as_raw_fd()));
        done.push(Done::Detached { conn, socket: Socket::detached(fd) });
        self.free(conn);
    }

    fn close_if_sent(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        let sent = link.outbox.is_none() && !link.dialling;
        if sent || link.fault != 0 || link.fd.is_none() {
            if let Some(fd) = &link.fd {
                socket::say_goodbye(fd);
            }
            self.close(conn, done);
        }
    }

    fn close(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        if let Some(link) = self.links.at_mut(conn) {
            self.outboxes.close(&mut link.outbox);
            link.fd = None; // which also ends the watch
            done.push(Done::Closed { conn });
            self.free(conn);
        }
    }

    fn free(&mut self, conn: Conn) {
        if let Some(link) = self.links.at_mut(conn) {
            link.stage = Stage::Free;
            self.links.free(conn);
        }
    }

    /// Say `Ended`, if it was not said. A plain end may be followed by a break: whoever still sends
    /// to a peer that is done talking must hear that nobody listens any more.
    fn end(&mut self, conn: Conn, error: Option<io::Error>, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        let open = matches!(link.stage, Stage::Open | Stage::Detaching);
        let news = if error.is_some() { !link.broken } else { !link.ended };
        if open && news {
            link.ended = true;
            link.broken = error.is_some();
            link.stage = Stage::Open; // a detach is off
            done.push(Done::Ended { conn, error });
        }
    }

    /// Wait, and note what has become possible.
    fn wait(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        let wait = match wait {
            Some(Duration::ZERO) => wait,
            _ if !self.unsettled.is_empty() || self.ears_unsettled => Some(Duration::ZERO),
            _ if !self.bell.lie_down() => Some(Duration::ZERO),
            _ => wait,
        };
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        if let Err(error) = self.look_or_sleep(&mut events, wait)
            && error.kind() != io::ErrorKind::Interrupted
        {
            // It is out of memory. Give it a moment.
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.bell.answer() {
            done.push(Done::Woken);
        }
        for event in &events {
            match About::unpack(event.token()) {
                About::Link { generation, conn } => self.stirred(conn, generation, event),
                About::Ear(listener) => self.rang(listener),
                About::Bell => {}
            }
        }
        self.events = events;
    }

    fn look_or_sleep(&mut self, events: &mut Events, wait: Option<Duration>) -> io::Result<()> {
        let look = self.pace.look();
        if wait != Some(Duration::ZERO) && !look.is_zero() {
            let since = Instant::now();
            while since.elapsed() < look {
                self.poll.poll(events, Some(Duration::ZERO))?;
                if !events.is_empty() {
                    return Ok(());
                }
            }
        }
        self.poll.poll(events, wait)
    }

    fn stirred(&mut self, conn: Conn, generation: u32, event: &mio::event::Event) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.generation != generation {
            return;
        }
        let over = event.is_error() || event.is_read_closed();
        link.readable |= event.is_readable() || over;
        link.last_byte_sent |= over;
        link.writable |= event.is_writable() || event.is_error() || event.is_write_closed();
        let can_send = link.writable && !link.outbox.is_none();
        if link.dialling || can_send || (link.readable && link.wants_bytes()) {
            self.unsettle(conn);
        }
    }
}

/// Read once, into the lender's memory if there is enough of it.
fn receive(fd: BorrowedFd<'_>, lender: &Rc<Lender>) -> io::Result<Buf> {
    let Some(id) = lender.take() else {
        let mut bytes = vec![0; BUFFER];
        let (_, count) = rustix::net::recv(fd, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT)?;
        bytes.truncate(count);
        bytes.shrink_to_fit();
        return Ok(Buf::from(bytes));
    };
    // SAFETY: the buffer is BUFFER long, and as it was at home, nobody else reads it.
    let count = unsafe {
        let start = lender.buffer(id).as_ptr().cast();
        libc::recv(fd.as_raw_fd(), start, BUFFER, libc::MSG_DONTWAIT)
    };
    let failed = io::Error::last_os_error();
    match usize::try_from(count).ok().filter(|count| *count > 0).and_then(|n| lender.lend(id, n)) {
        Some(loan) if lender.is_low() => Ok(Buf::from(loan.bytes().to_vec())),
        Some(loan) => Ok(Buf::lent(loan)),
        None => {
            lender.untake(id);
            if count == 0 { Ok(Buf::from(Vec::new())) } else { Err(failed) }
        }
    }
}

/// Send once.
fn send(fd: BorrowedFd<'_>, flight: Flight) -> io::Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the outbox keeps what it launched as it is until it lands, which is after this.
    let count = unsafe {
        match flight {
            Flight::One { start, length } => {
                libc::send(fd.as_raw_fd(), start.cast(), length, flags)
            }
            Flight::Many { header } => libc::sendmsg(fd.as_raw_fd(), header, flags),
        }
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

impl Driver for Readiness {
    type Socket = Socket;

    fn adopt(&mut self, socket: Socket) -> Conn {
        let fd = socket.tuned(&self.tuning);
        let conn = self.place(Some(fd));
        self.watch(conn);
        conn
    }

    fn connect(&mut self, to: &Address) -> Conn {
        let dialled = socket::for_dialling(to, &self.tuning).and_then(|(fd, address)| {
            match SockRef::from(&fd).connect(&address) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
                _ => Ok(fd),
            }
        });
        match dialled {
            Ok(fd) => {
                let conn = self.place(Some(fd));
                self.want(conn, |link| link.dialling = true);
                self.watch(conn);
                conn
            }
            Err(error) => {
                let conn = self.place(None);
                self.want(conn, |link| link.fail(&error));
                conn
            }
        }
    }

    fn send(&mut self, conn: Conn, bytes: Buf) {
        if !bytes.is_empty() {
            self.queue(conn, |outbox| outbox.send(bytes));
        }
    }

    fn write(&mut self, conn: Conn, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.queue(conn, |outbox| outbox.write(bytes));
        }
    }

    fn unsent(&self, conn: Conn) -> usize {
        let outbox = self.links.at(conn).and_then(|link| self.outboxes.at(link.outbox));
        outbox.map_or(0, Outbox::unsent)
    }

    fn pause(&mut self, conn: Conn) {
        self.want(conn, |link| link.paused = true);
    }

    fn resume(&mut self, conn: Conn) {
        self.want(conn, |link| link.paused = false);
    }

    fn finish(&mut self, conn: Conn) {
        self.want(conn, |link| link.stage = Stage::Finishing);
    }

    fn abort(&mut self, conn: Conn) {
        self.want(conn, |link| link.stage = Stage::Aborting);
    }

    fn detach(&mut self, conn: Conn) {
        self.want(conn, |link| {
            if link.is_heard() {
                link.stage = Stage::Detaching;
            }
        });
    }

    fn listen(&mut self, socket: Socket) -> Listener {
        let listener = Listener(self.ears.len() as u32);
        let shares_port = socket.shares_port;
        let fd = OwnedFd::from(socket);
        let token = About::Ear(listener).pack();
        let source = fd.as_raw_fd();
        let watched =
            self.poll.registry().register(&mut SourceFd(&source), token, Interest::READABLE);
        let ear = Ear::new(fd, shares_port, watched.err());
        ear.tune(&self.tuning);
        self.ears.push(ear);
        self.ears_unsettled = true;
        listener
    }

    fn listen_again(&mut self, listener: Listener) {
        if let Some(ear) = self.ears.get_mut(listener.0 as usize) {
            ear.resting = false;
            self.ears_unsettled = true;
        }
    }

    fn unlisten(&mut self, listener: Listener) {
        if let Some(ear) = self.ears.get_mut(listener.0 as usize) {
            ear.closing = true;
            self.ears_unsettled = true;
        }
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        self.links.wake();
        let before = done.len();
        let since = wait.filter(|wait| !wait.is_zero()).map(|_| Instant::now());
        let mut left = wait;
        loop {
            self.settle_all(done);
            let found = done.len() > before;
            self.wait(if found { Some(Duration::ZERO) } else { left }, done);
            self.settle_all(done);
            let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
            if done.len() > before || left == Some(Duration::ZERO) {
                return self.pace.turned(&done[before..], waited);
            }
            left = wait.map(|wait| wait.saturating_sub(waited));
        }
    }

    fn waker(&self) -> Waker {
        Waker(self.bell.clone())
    }

    fn fd(&self, conn: Conn) -> Option<i32> {
        Some(self.links.at(conn)?.fd.as_ref()?.as_raw_fd())
    }

    fn buffers(&self) -> Buffers {
        self.lender.counts()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.tuning = tuning.clone();
        self.pace.tune(tuning.busy_poll);
        self.ears.iter().for_each(|ear| ear.tune(tuning));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let conn = Conn(u32::MAX);
        for about in [
            About::Link { generation: GENERATIONS - 1, conn },
            About::Ear(Listener(u32::MAX)),
            About::Bell,
        ] {
            assert_eq!(About::unpack(about.pack()), about);
        }
    }
}
