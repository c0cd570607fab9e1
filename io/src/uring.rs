//! The driver over io_uring.
//!
//! How one turn costs one system call:
//!
//! - Orders are queued in the ring, and handed over by the same call that waits.
//! - A receive is ordered once and delivers many times ("multishot"), into buffers that the kernel
//!   picks from a shared ring ([`crate::lender`]). An idle connection holds no buffer.
//! - A send is first tried at once, and its success is silent: when the call comes back, what was not
//!   reported has been sent. So a completion means that somebody *else* did something, and waiting
//!   for one is never cut short by our own sends. Where the socket's buffer is full, the rest is
//!   sent again in a way that the kernel waits for room, and reports.
//!
//! Every method but `turn` only notes what is wanted, and puts the connection on the list of
//! those to settle. [`Uring::settle`] compares what is wanted with what is in flight, and orders or
//! calls off what differs. So pausing and resuming between two turns costs nothing, and no
//! order of calls is special.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{cqueue, opcode, squeue};
use socket2::SockAddr;

use crate::bell::Bell;
use crate::lender::{BUFFERS_MAX, Lender};
use crate::outbox::{Flight, Outbox, Outboxes};
use crate::pace::Pace;
use crate::slots::Slots;
use crate::{Address, Buf, Buffers, Conn, Done, Driver, Listener, Socket, Tuning, Waker, socket};
use accept::Ear;
use files::{Filed, Files};
use link::{Flying, Link, Sending, Stage};
use ring::{Completion, Ring};
use token::{Order, Token};

mod accept;
mod files;
mod link;
mod probe;
mod ring;
mod token;

/// The name of our only group of buffers.
const GROUP: u16 = 0;

/// `IORING_RECVSEND_POLL_FIRST`: we know that there is no room, so wait before trying.
const POLL_FIRST: u16 = 1;

const SEND: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// A driver over io_uring. It belongs to the thread that opened it.
pub struct Uring {
    ring: Ring,
    files: Files,
    lender: Rc<Lender>,
    links: Slots<Link>,
    outboxes: Outboxes,
    ears: Vec<Ear>,
    /// Where to, of those being dialled: the kernel reads it.
    dials: HashMap<Conn, Box<SockAddr>>,
    bell: Arc<Bell>,
    bell_hung: bool,
    tuning: Tuning,
    pace: Pace,
    /// Those for whom what is wanted and what is in flight may differ.
    unsettled: Vec<Conn>,
    ears_unsettled: bool,
    /// Those who would receive if there were a buffer.
    starved: Vec<Conn>,
    /// Those with a send whose success will be silent.
    silent: Vec<Conn>,
    /// More can be done at once: this is no time to wait.
    hurry: bool,
    /// Orders whose last completion has not come.
    in_flight: usize,
    completions: Vec<Completion>,
    settling: Vec<Conn>,
}

impl Uring {
    /// Open a ring, and make sure that this kernel does all we need of it. The error says what it
    /// does not.
    pub fn open() -> io::Result<Self> {
        probe::probe()?;
        let ring = Ring::open()?;
        let lender = Lender::with_ring();
        register(&ring, &lender)?;
        Ok(Self {
            files: Files::open(&ring),
            ring,
            lender,
            links: Slots::new(),
            outboxes: Outboxes::default(),
            ears: Vec::new(),
            dials: HashMap::new(),
            bell: Arc::new(Bell::new()?),
            bell_hung: false,
            tuning: Tuning::default(),
            pace: Pace::new(),
            unsettled: Vec::new(),
            ears_unsettled: false,
            starved: Vec::new(),
            silent: Vec::new(),
            hurry: false,
            in_flight: 0,
            completions: Vec::new(),
            settling: Vec::new(),
        })
    }

    fn place(&mut self, fd: Option<OwnedFd>) -> Conn {
        let conn = self.links.take(|old| {
            let generation = old.map_or(0, |old| (old.generation + 1) % token::GENERATIONS);
            Link::new(fd, generation)
        });
        self.unsettle(conn);
        conn
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
        if link.sending == Sending::No {
            self.unsettle(conn);
        }
    }

    /// Order or call off whatever differs from what is wanted.
    fn settle_all(&mut self, done: &mut Vec<Done<Socket>>) {
        self.hurry = false;
        if !self.bell_hung {
            self.hang_bell();
        }
        if self.ears_unsettled {
            self.settle_ears(done);
        }
        if self.lender.is_low() {
            self.lender.grow();
        }
        if !self.starved.is_empty() && self.lender.has_any() {
            for conn in std::mem::take(&mut self.starved) {
                self.unsettle(conn);
            }
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
        match link.stage {
            Stage::Free => {}
            Stage::Open | Stage::Detaching if link.fault != 0 => self.settle_broken(conn, done),
            Stage::Open => {
                self.dial(conn);
                self.settle_receiving(conn);
                self.start_sending(conn);
            }
            Stage::Detaching => {
                self.dial(conn);
                self.settle_receiving(conn);
                self.start_sending(conn);
                self.detach_if_at_rest(conn, done);
            }
            Stage::Finishing => {
                self.dial(conn);
                self.settle_receiving(conn);
                self.start_sending(conn);
                self.close_if_sent(conn, done);
            }
            Stage::Aborting => {
                self.settle_receiving(conn);
                self.call_off_rest(conn);
                self.close_if_at_rest(conn, done);
            }
        }
    }

    /// Sending failed. What came in before is delivered first, and only then is it said.
    fn settle_broken(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        self.settle_receiving(conn);
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.sending == Sending::No {
            self.outboxes.close(&mut link.outbox);
        }
        if link.broken || link.receiving != Flying::No {
            return;
        }
        if let (false, Some(fd)) = (link.ended, &link.fd) {
            let bytes = socket::remains(fd.as_fd());
            done.extend(bytes.map(|bytes| Done::Received { conn, bytes: Buf::from(bytes) }));
        }
        let error = io::Error::from_raw_os_error(link.fault);
        self.end(conn, Some(error), done);
    }

    fn settle_receiving(&mut self, conn: Conn) {
        let Some(link) = self.links.at_mut(conn) else { return };
        match (link.wants_bytes(), link.receiving) {
            (true, Flying::No) => self.start_receiving(conn),
            (false, Flying::Yes) => {
                if self.call_off(conn, Order::Receive)
                    && let Some(link) = self.links.at_mut(conn)
                {
                    link.receiving = Flying::CalledOff;
                }
            }
            // If it was called off too early, it is ordered again when it is back.
            (true, Flying::Yes | Flying::CalledOff) | (false, Flying::No | Flying::CalledOff) => {}
        }
    }

    fn start_receiving(&mut self, conn: Conn) {
        if !self.lender.has_any() {
            self.starved.push(conn);
            return;
        }
        let Some(fd) = self.fd(conn) else { return };
        let order = opcode::RecvMulti::new(fd, GROUP).build();
        if self.order(conn, Order::Receive, order)
            && let Some(link) = self.links.at_mut(conn)
        {
            link.receiving = Flying::Yes;
        }
    }

    fn start_sending(&mut self, conn: Conn) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.sending != Sending::No || !link.is_up() || link.fault != 0 {
            return;
        }
        let (slow, Some(fd)) = (link.slow, &link.fd) else { return };
        let fd = fd.as_raw_fd();
        if let Filed::No(sends) = &mut link.filed {
            *sends = sends.saturating_add(1);
            if *sends == files::SENDS_MIN && self.files.put(&self.ring, conn, fd) {
                link.filed = Filed::Yes;
            }
        }
        let filed = link.filed == Filed::Yes;
        let Some(outbox) = self.outboxes.at_mut(link.outbox) else { return };
        let flight = outbox.launch();
        let more = outbox.unsent() > outbox.flight();
        let (of, order, sending) = if slow {
            (Order::SendSlowly, send(Fd(fd), flight, SEND, POLL_FIRST), Sending::Slowly)
        } else {
            // Nobody reports its success, and there is something to do after it: so it is not waited for.
            self.hurry |= more || link.crowded || link.stage != Stage::Open;
            let flags = SEND | libc::MSG_DONTWAIT;
            let order = if filed {
                send(Fd(conn.0 as i32), flight, flags, 0).flags(squeue::Flags::FIXED_FILE)
            } else {
                send(Fd(fd), flight, flags, 0)
            };
            (Order::SendAtOnce, order.flags(squeue::Flags::SKIP_SUCCESS), Sending::AtOnce)
        };
        let ordered = self.order(conn, of, order);
        let Some(link) = self.links.at_mut(conn) else { return };
        if !ordered {
            if let Some(outbox) = self.outboxes.at_mut(link.outbox) {
                outbox.land(0);
            }
            return;
        }
        link.sending = sending;
        if !slow {
            self.silent.push(conn);
        }
    }

    fn dial(&mut self, conn: Conn) {
        let Some(link) = self.links.at(conn) else { return };
        if !link.to_dial {
            return;
        }
        let (Some(to), Some(fd)) = (self.dials.get(&conn), self.fd(conn)) else { return };
        let order = opcode::Connect::new(fd, to.as_ptr().cast(), to.len()).build();
        if self.order(conn, Order::Dial, order)
            && let Some(link) = self.links.at_mut(conn)
        {
            link.to_dial = false;
            link.dialling = Flying::Yes;
        }
    }

    fn call_off_rest(&mut self, conn: Conn) {
        let Some(link) = self.links.at(conn) else { return };
        let (sending, dialling) = (link.sending, link.dialling);
        if sending == Sending::Slowly
            && self.call_off(conn, Order::SendSlowly)
            && let Some(link) = self.links.at_mut(conn)
        {
            link.sending = Sending::CalledOff;
        }
        if dialling == Flying::Yes
            && self.call_off(conn, Order::Dial)
            && let Some(link) = self.links.at_mut(conn)
        {
            link.dialling = Flying::CalledOff;
        }
    }

    /// Take the socket of `conn` back from the kernel, which holds nothing else of it.
    fn take_fd(&mut self, conn: Conn) -> Option<OwnedFd> {
        let link = self.links.at_mut(conn)?;
        let filed = std::mem::replace(&mut link.filed, Filed::No(0));
        let fd = link.fd.take();
        if filed == Filed::Yes && !self.files.take(&self.ring, conn) {
            // It stays open in there: at least the peer hears that we are done.
            fd.iter().for_each(socket::say_goodbye);
        }
        fd
    }

    fn detach_if_at_rest(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.at_rest()
            && link.is_up()
            && link.outbox.is_none()
            && let Some(fd) = self.take_fd(conn)
        {
            done.push(Done::Detached { conn, socket: Socket::detached(fd) });
            self.free(conn);
        }
    }

    fn close_if_sent(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if !link.at_rest() || (link.to_dial && link.fault == 0) {
            return;
        }
        if link.fault != 0 || link.fd.is_none() {
            self.outboxes.close(&mut link.outbox);
        }
        if link.outbox.is_none() {
            if let Some(fd) = self.take_fd(conn) {
                socket::say_goodbye(&fd);
            }
            done.push(Done::Closed { conn });
            self.free(conn);
        }
    }

    fn close_if_at_rest(&mut self, conn: Conn, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.at_rest() {
            self.outboxes.close(&mut link.outbox);
            drop(self.take_fd(conn));
            done.push(Done::Closed { conn });
            self.free(conn);
        }
    }

    fn free(&mut self, conn: Conn) {
        self.dials.remove(&conn);
        if let Some(link) = self.links.at_mut(conn) {
            link.stage = Stage::Free;
            self.links.free(conn);
        }
    }

    fn fd(&self, conn: Conn) -> Option<Fd> {
        Some(Fd(self.links.at(conn)?.fd.as_ref()?.as_raw_fd()))
    }

    fn token(&self, conn: Conn, of: Order) -> u64 {
        let generation = self.links.at(conn).map_or(0, |link| link.generation);
        Token { of, generation, slot: conn.0 }.pack()
    }

    /// Queue an order of `conn`. False if there is no room: then it is unsettled still.
    fn order(&mut self, conn: Conn, of: Order, order: squeue::Entry) -> bool {
        let order = order.user_data(self.token(conn, of));
        // SAFETY: buffers of receives belong to the lender, and of sends to an outbox with a
        // flight; addresses are in `dials`. All stay until the link is at rest, and those of
        // silent sends until `sent_silently`, which waits until nothing is queued. If this driver
        // is dropped before, it sees to it that none of them are freed.
        let ordered = unsafe { self.ring.push(&order) };
        if !ordered {
            self.hurry = true;
            self.unsettle(conn);
        } else if of != Order::SendAtOnce {
            self.in_flight += 1;
        }
        ordered
    }

    /// Have an order of `conn` come back early. Whether that worked is seen by its own completion.
    fn call_off(&mut self, conn: Conn, of: Order) -> bool {
        let called_off = self.cancel(self.token(conn, of));
        if !called_off {
            self.hurry = true;
            self.unsettle(conn);
        }
        called_off
    }

    fn cancel(&mut self, token: u64) -> bool {
        let own = Token { of: Order::CallOff, generation: 0, slot: 0 };
        let order = opcode::AsyncCancel::new(token)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(own.pack());
        // SAFETY: it points to nothing.
        unsafe { self.ring.push(&order) }
    }

    fn hang_bell(&mut self) {
        let fd = Fd(self.bell.as_fd().as_raw_fd());
        let token = Token { of: Order::Bell, generation: 0, slot: 0 };
        let order = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(token.pack());
        // SAFETY: it points to nothing.
        self.bell_hung = unsafe { self.ring.push(&order) };
        if self.bell_hung {
            self.in_flight += 1;
        } else {
            self.hurry = true;
        }
    }

    /// Call the kernel, and work out what it did.
    fn call(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        let wait = match wait {
            Some(Duration::ZERO) => wait,
            _ if self.hurry || !self.bell.lie_down() => Some(Duration::ZERO),
            _ => wait,
        };
        if self.look_or_sleep(wait).is_err() {
            // It is out of memory. Whatever is queued stays so; give it a moment.
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.reap(&mut completions);
        for completion in completions.drain(..) {
            self.completed(completion, done);
        }
        self.completions = completions;
        self.sent_silently(done);
        if self.bell.answer() {
            done.push(Done::Woken);
        }
    }

    fn look_or_sleep(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let look = self.pace.look();
        if wait != Some(Duration::ZERO) && !look.is_zero() && self.ring.look(look)? {
            return Ok(());
        }
        self.ring.enter(wait)
    }

    fn completed(&mut self, completion: Completion, done: &mut Vec<Done<Socket>>) {
        let Some(token) = Token::unpack(completion.user_data) else { return };
        let conn = Conn(token.slot);
        let last = !cqueue::more(completion.flags);
        match token.of {
            Order::CallOff => return,
            Order::SendAtOnce => {}
            _ => self.in_flight -= usize::from(last),
        }
        match token.of {
            Order::Accept => return self.accepted(Listener(token.slot), completion, done),
            Order::Bell => {
                self.bell_hung &= !last; // what it means is asked of the bell itself
                return;
            }
            Order::Receive => return self.received(conn, token.generation, completion, done),
            Order::CallOff | Order::SendAtOnce | Order::SendSlowly | Order::Dial => {}
        }
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.generation != token.generation {
            return;
        }
        match token.of {
            Order::SendAtOnce | Order::SendSlowly => {
                link.slow = true;
                match completion.result {
                    taken @ 0.. => self.sent(conn, taken as usize, done),
                    error => self.not_sent(conn, -error, done),
                }
            }
            _ => self.dialled(conn, completion.result, done),
        }
    }

    fn received(
        &mut self,
        conn: Conn,
        generation: u32,
        completion: Completion,
        done: &mut Vec<Done<Socket>>,
    ) {
        let length = usize::try_from(completion.result).unwrap_or(0);
        // Whatever becomes of the bytes, the buffer goes home when this is dropped.
        let loan =
            cqueue::buffer_select(completion.flags).and_then(|id| self.lender.lend(id, length));
        let Some(link) = self.links.at_mut(conn) else { return };
        if link.generation != generation {
            return;
        }
        if !cqueue::more(completion.flags) {
            link.receiving = Flying::No;
            self.unsettle(conn);
        }
        let Some(link) = self.links.at_mut(conn) else { return };
        if !link.is_heard() {
            return;
        }
        match -completion.result {
            // Whoever notices a reset first hears of it, and the other sees a plain end.
            0 if link.fault != 0 => {}
            0 => self.end(conn, None, done),
            // Out of buffers, called off, or nothing in particular: settling sees to it.
            libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
            error if error > 0 => link.fault = if link.fault == 0 { error } else { link.fault },
            _ => {
                let Some(loan) = loan else { return };
                let bytes = if self.lender.is_low() {
                    Buf::from(loan.bytes().to_vec())
                } else {
                    Buf::lent(loan)
                };
                done.push(Done::Received { conn, bytes });
            }
        }
    }

    fn dialled(&mut self, conn: Conn, result: i32, done: &mut Vec<Done<Socket>>) {
        self.dials.remove(&conn);
        let Some(link) = self.links.at_mut(conn) else { return };
        link.dialling = Flying::No;
        if result < 0 {
            link.fault = -result;
        } else if link.is_heard()
            && let Some(fd) = &link.fd
        {
            match socket::ends(fd.as_fd()) {
                Ok(ends) => done.push(Done::Connected { conn, ends: Box::new(ends) }),
                Err(error) => link.fault = error.raw_os_error().unwrap_or(libc::ENOTCONN),
            }
        }
        self.unsettle(conn);
    }

    /// What was to be sent at once and was not reported has been sent.
    fn sent_silently(&mut self, done: &mut Vec<Done<Socket>>) {
        if self.silent.is_empty() || self.ring.queued() > 0 || self.ring.overflows() {
            self.hurry |= !self.silent.is_empty();
            return;
        }
        let mut silent = std::mem::take(&mut self.silent);
        for conn in silent.drain(..) {
            if let Some(link) = self.links.at(conn)
                && link.sending == Sending::AtOnce
                && let Some(outbox) = self.outboxes.at(link.outbox)
            {
                self.sent(conn, outbox.flight(), done);
            }
        }
        self.silent = silent;
    }

    /// The kernel took `count` bytes of what was in flight.
    fn sent(&mut self, conn: Conn, count: usize, done: &mut Vec<Done<Socket>>) {
        let Some(link) = self.links.at_mut(conn) else { return };
        link.sending = Sending::No;
        let Some(outbox) = self.outboxes.at_mut(link.outbox) else { return };
        outbox.land(count);
        let left = outbox.unsent();
        if link.crowded && left <= self.tuning.low_water {
            link.crowded = false;
            if matches!(link.stage, Stage::Open | Stage::Detaching) {
                done.push(Done::Drained { conn });
            }
        }
        if left == 0 {
            link.slow = false;
            self.outboxes.close(&mut link.outbox);
        }
        if left > 0 || link.stage != Stage::Open {
            self.unsettle(conn);
        }
    }

    fn not_sent(&mut self, conn: Conn, error: i32, done: &mut Vec<Done<Socket>>) {
        self.sent(conn, 0, done);
        match error {
            // No room, or no luck: `slow` has it tried again.
            libc::EAGAIN | libc::EINTR | libc::ECANCELED => {}
            _ => {
                let Some(link) = self.links.at_mut(conn) else { return };
                if link.fault == 0 {
                    link.fault = error;
                }
                self.unsettle(conn);
            }
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
}

impl Driver for Uring {
    type Socket = Socket;

    fn adopt(&mut self, socket: Socket) -> Conn {
        let fd = socket.tuned(&self.tuning);
        self.place(Some(fd))
    }

    fn connect(&mut self, to: &Address) -> Conn {
        match socket::for_dialling(to, &self.tuning) {
            Ok((fd, address)) => {
                let conn = self.place(Some(fd));
                self.dials.insert(conn, Box::new(address));
                self.want(conn, |link| link.to_dial = true);
                conn
            }
            Err(error) => {
                let conn = self.place(None);
                let fault = error.raw_os_error().unwrap_or(libc::EINVAL);
                self.want(conn, |link| link.fault = fault);
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
        self.ears.push(Ear::new(socket, &self.tuning));
        self.ears_unsettled = true;
        Listener((self.ears.len() - 1) as u32)
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
            self.call(if found { Some(Duration::ZERO) } else { left }, done);
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

/// An order to send `flight`.
fn send(to: Fd, flight: Flight, flags: i32, first: u16) -> squeue::Entry {
    match flight {
        Flight::One { start, length } => {
            opcode::Send::new(to, start, length as u32).flags(flags).ioprio(first).build()
        }
        Flight::Many { header } => {
            opcode::SendMsg::new(to, header).flags(flags as u32).ioprio(first).build()
        }
    }
}

/// Share the lender's buffers with the kernel.
fn register(ring: &Ring, lender: &Lender) -> io::Result<()> {
    let start = lender.ring().ok_or_else(|| ring::lacks("nothing; these buffers have no ring"))?;
    // SAFETY: the memory is BUFFERS_MAX entries long and lives as long as the lender, which is
    // dropped after the ring, or never (see `Uring::drop`).
    unsafe { ring.submitter().register_buf_ring_with_flags(start, BUFFERS_MAX, GROUP, 0) }
        .map_err(|_| ring::lacks("rings of buffers"))
}

impl Drop for Uring {
    /// No order may outlive the memory it reads or writes. All are called off; should one not come
    /// back in time, all that any might touch is leaked.
    fn drop(&mut self) {
        let mut done = Vec::new();
        let until = Instant::now() + Duration::from_secs(1);
        // Those still queued must be taken before they can be called off.
        let _ = self.ring.enter(Some(Duration::ZERO));
        while self.in_flight > 0 && Instant::now() < until {
            let moment = Timespec::new().nsec(10_000_000);
            let all = CancelBuilder::any();
            let _ = self.ring.submitter().register_sync_cancel(Some(moment), all);
            self.hurry = true;
            self.call(Some(Duration::ZERO), &mut done);
        }
        // The ring lives as long as this thread does, because it is registered with it; its table must not.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buf_ring(GROUP);
        if self.in_flight > 0 || self.ring.queued() > 0 {
            std::mem::forget(std::mem::take(&mut self.outboxes));
            std::mem::forget(std::mem::take(&mut self.dials));
            std::mem::forget(Rc::clone(&self.lender));
        }
    }
}
