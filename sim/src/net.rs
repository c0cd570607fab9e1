//! A kernel in memory: sockets whose bytes arrive late, in pieces, or not at all.
//!
//! Every connection has the pooler at one end, the near one, and an application or a server at the
//! far one. What the pooler asks of its [`Driver`] happens here; what the far ends do comes in by
//! the methods of [`Net`]. Nothing moves by itself: a worker's `turn` moves what is its own.

use std::cell::RefCell;
use std::io::{Error, ErrorKind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use io::{Address, Buf, Conn, Done, Driver, Ends, Listener, Tuning, Wake, Waker};

use crate::bytes::Bytes;
use crate::dice::Dice;
use crate::weather::Wire;

/// A connection, by its place in the kernel's table.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LinkId(pub(crate) usize);

/// All connections, and what the workers' drivers know of theirs.
pub(crate) struct Net {
    pub(crate) dice: Dice,
    pub(crate) wire: Wire,
    links: Vec<Link>,
    free: Vec<usize>,
    desks: Vec<Desk>,
    /// Clients that dialled, and that nobody accepted yet.
    backlog: Vec<LinkId>,
    /// Servers that were dialled, and did not answer yet.
    pub(crate) dialled: Vec<LinkId>,
    /// Sockets that were dropped on their way.
    dropped: Arc<Mutex<Vec<usize>>>,
    accept_fails: u32,
    resting: bool,
    is_listening: bool,
    next_port: u16,
    tuning: Tuning,
}

/// One worker's side.
struct Desk {
    conns: Vec<Option<LinkId>>,
    free: Vec<u32>,
    resting: Vec<u32>,
    rung: Arc<Bell>,
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How one direction ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Eof,
    Reset,
}

/// One connection.
#[derive(Debug, Default)]
struct Link {
    /// Written by the far end, and not yet received here.
    up: Bytes,
    up_end: Option<End>,
    /// Queued by the driver.
    queue: Bytes,
    /// Taken by the kernel, and not yet read by the far end.
    down: Bytes,
    down_end: Option<End>,
    stage: Stage,
    holder: Option<(usize, Conn)>,
    paused: bool,
    /// `Ended` was said.
    ended: bool,
    /// And with an error, which may follow a plain end.
    broken: bool,
    crowded: bool,
    /// It was dialled by us: there is a server at the far end.
    is_server: bool,
    /// The far end reads no more; what is sent comes back as a reset.
    deaf: bool,
    port: u16,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Stage {
    #[default]
    Free,
    /// Dialled by us.
    Dialling,
    /// The far end said yes.
    Dialled,
    Refused,
    /// In nobody's driver.
    Travelling,
    Open,
    Detaching,
    Finishing,
    Aborting,
    /// The near end is gone; the far one may not know yet.
    Closed,
}

/// A socket on its way between drivers. To drop it is to close it.
pub(crate) struct Socket {
    link: usize,
    dropped: Arc<Mutex<Vec<usize>>>,
    is_door: bool,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_door && self.link != usize::MAX {
            let mut dropped = self.dropped.lock().expect("one thread");
            dropped.push(self.link);
        }
    }
}

impl Net {
    pub(crate) fn new(workers: usize, wire: Wire, dice: Dice) -> Self {
        let desk = || Desk {
            conns: Vec::new(),
            free: Vec::new(),
            resting: Vec::new(),
            rung: Arc::default(),
        };
        Self {
            dice,
            wire,
            links: Vec::new(),
            free: Vec::new(),
            desks: (0..workers).map(|_| desk()).collect(),
            backlog: Vec::new(),
            dialled: Vec::new(),
            dropped: Arc::default(),
            accept_fails: 0,
            resting: false,
            is_listening: false,
            next_port: 1024,
            tuning: Tuning::default(),
        }
    }

    // ---- What far ends do.

    /// A client dials in. `None`: nobody listens.
    pub(crate) fn dial(&mut self) -> Option<LinkId> {
        if !self.is_listening {
            return None;
        }
        let id = self.place(Stage::Travelling);
        self.backlog.push(id);
        Some(id)
    }

    /// A server answers, or does not.
    pub(crate) fn answer(&mut self, id: LinkId, accepts: bool) {
        self.dialled.retain(|other| *other != id);
        let link = &mut self.links[id.0];
        if link.stage == Stage::Dialling {
            link.stage = if accepts { Stage::Dialled } else { Stage::Refused };
        }
    }

    /// How many bytes the far end may write now.
    pub(crate) fn room(&self, id: LinkId) -> usize {
        self.wire.buffer.saturating_sub(self.links[id.0].up.len())
    }

    /// The far end writes. Returns how much was taken; what the near end hung up on goes nowhere.
    pub(crate) fn write(&mut self, id: LinkId, bytes: &[u8]) -> usize {
        let room = self.room(id);
        let link = &mut self.links[id.0];
        if link.stage == Stage::Closed || link.up_end.is_some() {
            return bytes.len();
        }
        let count = bytes.len().min(room);
        link.up.push(&bytes[..count]);
        count
    }

    /// The far end reads, up to `count` bytes.
    pub(crate) fn read(&mut self, id: LinkId, count: usize, into: &mut Bytes) -> Option<End> {
        let link = &mut self.links[id.0];
        link.down.pour(count, into);
        if link.down.is_empty() { link.down_end } else { None }
    }

    /// The far end will write no more, but still reads.
    pub(crate) fn half_close(&mut self, id: LinkId) {
        self.links[id.0].up_end.get_or_insert(End::Eof);
    }

    /// The far end is gone. The link must not be used again.
    pub(crate) fn leave(&mut self, id: LinkId, how: End) {
        let resets = how == End::Reset || !self.links[id.0].down.is_empty();
        let link = &mut self.links[id.0];
        if link.up_end.is_none() {
            link.up_end = Some(if resets { End::Reset } else { End::Eof });
        } else if resets {
            link.up_end = Some(End::Reset);
        }
        link.deaf = true;
        link.down.clear();
        if link.stage == Stage::Closed {
            self.release(id);
        }
    }

    /// Whether the near end holds no more of it.
    pub(crate) fn is_closed(&self, id: LinkId) -> bool {
        self.links[id.0].stage == Stage::Closed
    }

    // ---- What checks look at.

    /// Connections to servers that the pooler holds, or dials.
    pub(crate) fn servers_held(&self) -> usize {
        let held = |link: &&Link| {
            link.is_server && !matches!(link.stage, Stage::Free | Stage::Aborting | Stage::Closed)
        };
        self.links.iter().filter(held).count()
    }

    /// Of these, those between two workers.
    pub(crate) fn servers_travelling(&self) -> usize {
        let on_the_way = |link: &&Link| link.is_server && link.stage == Stage::Travelling;
        self.links.iter().filter(on_the_way).count()
    }

    /// The most that any connection's driver has not sent, in bytes.
    pub(crate) fn most_unsent(&self) -> usize {
        self.links.iter().map(|link| link.queue.len()).max().unwrap_or(0)
    }

    /// More than this, and a queue has no limit.
    pub(crate) fn unsent_limit(&self) -> usize {
        self.tuning.high_water / self.wire.scale + 4 * 65_536
    }

    pub(crate) fn link_of(&self, worker: usize, conn: Conn) -> Option<LinkId> {
        self.desks[worker].conns.get(conn.0 as usize).copied().flatten()
    }

    /// Whether the far end has all that was sent to it.
    pub(crate) fn is_read_up(&self, id: LinkId) -> bool {
        let link = &self.links[id.0];
        !link.deaf && link.queue.is_empty() && link.down.is_empty()
    }

    /// What is open, for a person.
    pub(crate) fn describe(&self) -> String {
        let show = |(at, link): (usize, &Link)| {
            let Link { up, up_end, queue, down, down_end, stage, holder, .. } = link;
            let (up, queue, down) = (up.len(), queue.len(), down.len());
            let side = if link.is_server { "server" } else { "client" };
            format!(
                "{side} link {at}: {stage:?} of {holder:?}, up {up} {up_end:?}, queued {queue}, \
                 down {down} {down_end:?}, paused {}, ended {}, deaf {}",
                link.paused, link.ended, link.deaf
            )
        };
        let open = self.links.iter().enumerate().filter(|(_, link)| link.stage != Stage::Free);
        open.map(show).collect::<Vec<_>>().join("\n")
    }

    /// Whether a worker has mail it was not told of.
    pub(crate) fn has_mail(&self) -> bool {
        self.desks.iter().any(|desk| desk.rung.0.load(Ordering::Relaxed))
    }

    pub(crate) fn waker(&self, worker: usize) -> Waker {
        Waker(self.desks[worker].rung.clone())
    }

    /// The next so many accepts fail.
    pub(crate) fn run_out_of_files(&mut self, times: u32) {
        self.accept_fails = times;
    }

    /// Whether anything is to be done for a worker but to tick.
    pub(crate) fn is_idle(&self) -> bool {
        let at_rest = |link: &Link| match link.stage {
            Stage::Free | Stage::Closed | Stage::Dialling => true,
            Stage::Open => {
                link.queue.is_empty()
                    && (link.paused || link.ended || link.up.is_empty() && link.up_end.is_none())
            }
            _ => false,
        };
        !self.has_mail() && self.backlog.is_empty() && self.links.iter().all(at_rest)
    }

    // ---- The table.

    fn place(&mut self, stage: Stage) -> LinkId {
        self.next_port = self.next_port.checked_add(1).unwrap_or(1024);
        let link = Link { stage, port: self.next_port, ..Link::default() };
        let at = self.free.pop().unwrap_or_else(|| {
            self.links.push(Link::default());
            self.links.len() - 1
        });
        self.links[at] = link;
        LinkId(at)
    }

    /// Both ends are done with it.
    fn release(&mut self, id: LinkId) {
        self.links[id.0].stage = Stage::Free;
        self.free.push(id.0);
    }

    /// The near end is done with it.
    fn close(&mut self, id: LinkId, politely: bool) {
        let resets = !politely && self.dice.one_in(3);
        let link = &mut self.links[id.0];
        link.holder = None;
        link.queue.clear();
        if resets {
            link.down.clear();
        }
        link.down_end = Some(if resets { End::Reset } else { End::Eof });
        link.stage = Stage::Closed;
        link.up.clear();
        if link.deaf {
            self.release(id);
        }
        self.dialled.retain(|other| *other != id);
    }

    pub(crate) fn sweep(&mut self) {
        let dropped = std::mem::take(&mut *self.dropped.lock().expect("one thread"));
        for link in dropped {
            self.close(LinkId(link), false);
        }
    }

    fn hold(&mut self, worker: usize, id: LinkId) -> Conn {
        let desk = &mut self.desks[worker];
        let slot = desk.free.pop().unwrap_or_else(|| {
            desk.conns.push(None);
            (desk.conns.len() - 1) as u32
        });
        desk.conns[slot as usize] = Some(id);
        let link = &mut self.links[id.0];
        link.holder = Some((worker, Conn(slot)));
        (link.paused, link.ended, link.broken, link.crowded) = (false, false, false, false);
        Conn(slot)
    }

    fn let_go(&mut self, worker: usize, conn: Conn) {
        let desk = &mut self.desks[worker];
        desk.conns[conn.0 as usize] = None;
        desk.resting.push(conn.0);
    }

    fn link(&mut self, worker: usize, conn: Conn) -> Option<&mut Link> {
        let id = self.desks[worker].conns.get(conn.0 as usize).copied().flatten()?;
        self.links.get_mut(id.0)
    }

    fn ends(&self, id: LinkId) -> Ends {
        let link = &self.links[id.0];
        let at = |port| Address::Inet(([127, 0, 0, 1], port).into());
        let (peer, local) = if link.is_server { (5432, link.port) } else { (link.port, 6432) };
        Ends { peer: at(peer), local: at(local), uid: None, pid: None }
    }

    // ---- A worker's turn.

    fn turn(&mut self, worker: usize, done: &mut Vec<Done<Socket>>) {
        self.sweep();
        let desk = &mut self.desks[worker];
        desk.free.append(&mut desk.resting);
        let late = self.wire.mail_late;
        if self.desks[worker].rung.0.load(Ordering::Relaxed) && !self.dice.one_in(late) {
            self.desks[worker].rung.0.store(false, Ordering::Relaxed);
            done.push(Done::Woken);
        }
        if worker == 0 {
            self.accept(done);
        }
        let count = self.desks[worker].conns.len();
        let first = self.dice.under(count.max(1));
        for at in 0..count {
            let slot = (first + at) % count;
            if let Some(id) = self.desks[worker].conns[slot]
                && !self.dice.one_in(self.wire.lazy)
            {
                self.stir(worker, Conn(slot as u32), id, done);
            }
        }
    }

    fn accept(&mut self, done: &mut Vec<Done<Socket>>) {
        if self.resting || !self.is_listening {
            return;
        }
        while let Some(id) = self.backlog.first().copied() {
            if self.accept_fails > 0 {
                self.accept_fails -= 1;
                self.resting = true;
                let error = Error::from_raw_os_error(24);
                done.push(Done::AcceptFailed { listener: Listener(0), error });
                return;
            }
            self.backlog.remove(0);
            let socket = self.socket(id);
            done.push(Done::Accepted {
                listener: Listener(0),
                socket,
                ends: Box::new(self.ends(id)),
            });
        }
    }

    fn socket(&self, id: LinkId) -> Socket {
        Socket { link: id.0, dropped: self.dropped.clone(), is_door: false }
    }

    /// Let happen what can happen to one connection.
    fn stir(&mut self, worker: usize, conn: Conn, id: LinkId, done: &mut Vec<Done<Socket>>) {
        match self.links[id.0].stage {
            Stage::Dialled => {
                self.links[id.0].stage = Stage::Open;
                done.push(Done::Connected { conn, ends: Box::new(self.ends(id)) });
                self.transmit(conn, id, done);
            }
            Stage::Refused => {
                let link = &mut self.links[id.0];
                if !std::mem::replace(&mut link.ended, true) {
                    let error = Some(ErrorKind::ConnectionRefused.into());
                    done.push(Done::Ended { conn, error });
                }
            }
            Stage::Open => {
                self.transmit(conn, id, done);
                self.receive(conn, id, done);
            }
            Stage::Detaching => {
                if self.dice.one_in(4) {
                    self.receive(conn, id, done);
                }
                self.transmit(conn, id, done);
                let link = &self.links[id.0];
                let still = link.stage == Stage::Detaching && link.queue.is_empty();
                if still && !self.dice.one_in(3) {
                    let link = &mut self.links[id.0];
                    (link.stage, link.holder) = (Stage::Travelling, None);
                    self.let_go(worker, conn);
                    done.push(Done::Detached { conn, socket: self.socket(id) });
                }
            }
            Stage::Finishing => {
                self.transmit(conn, id, done);
                if self.links[id.0].queue.is_empty() {
                    self.close(id, true);
                    self.let_go(worker, conn);
                    done.push(Done::Closed { conn });
                }
            }
            Stage::Aborting => {
                self.close(id, false);
                self.let_go(worker, conn);
                done.push(Done::Closed { conn });
            }
            Stage::Dialling | Stage::Free | Stage::Travelling | Stage::Closed => {}
        }
    }

    fn transmit(&mut self, conn: Conn, id: LinkId, done: &mut Vec<Done<Socket>>) {
        let low = self.tuning.low_water;
        let scale = self.wire.scale;
        let link = &mut self.links[id.0];
        if link.queue.is_empty() {
            return;
        }
        if link.deaf {
            link.queue.clear();
            link.up_end = Some(End::Reset);
            return;
        }
        let room = self.wire.buffer.saturating_sub(link.down.len());
        let count = self.wire.piece(&mut self.dice, link.queue.len().min(room));
        link.queue.pour(count, &mut link.down);
        if link.crowded && link.queue.len() * scale <= low {
            link.crowded = false;
            if matches!(link.stage, Stage::Open | Stage::Detaching) {
                done.push(Done::Drained { conn });
            }
        }
    }

    fn receive(&mut self, conn: Conn, id: LinkId, done: &mut Vec<Done<Socket>>) {
        let link = &mut self.links[id.0];
        let broken = link.up_end == Some(End::Reset);
        if link.ended {
            if broken && !std::mem::replace(&mut link.broken, true) {
                let error = Some(ErrorKind::ConnectionReset.into());
                done.push(Done::Ended { conn, error });
            }
            return;
        }
        if link.paused && !(broken && self.dice.one_in(4)) {
            return;
        }
        if broken && self.dice.one_in(2) {
            // A reset overtakes what was sent before it.
            link.up.clear();
        }
        if !link.up.is_empty() {
            // What was handed over before the worker says pause still comes.
            for _ in 0..self.dice.between(1, 3) {
                let count = self.wire.piece(&mut self.dice, link.up.len());
                if count > 0 {
                    let bytes = Buf::from(link.up.take(count));
                    done.push(Done::Received { conn, bytes });
                }
            }
            return;
        }
        if let Some(end) = link.up_end {
            (link.ended, link.broken) = (true, end == End::Reset);
            if link.stage == Stage::Detaching {
                link.stage = Stage::Open;
            }
            let error = (end == End::Reset).then(|| ErrorKind::ConnectionReset.into());
            done.push(Done::Ended { conn, error });
        }
    }
}

/// One worker's driver.
pub(crate) struct Kernel {
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) worker: usize,
}

impl Kernel {
    fn want(&mut self, conn: Conn, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.net.borrow_mut().link(self.worker, conn) {
            change(link);
        }
    }

    pub(crate) fn door(&self) -> Socket {
        let dropped = self.net.borrow().dropped.clone();
        Socket { link: usize::MAX, dropped, is_door: true }
    }
}

impl Link {
    fn can_end(&self) -> bool {
        !matches!(self.stage, Stage::Free | Stage::Closed | Stage::Travelling | Stage::Aborting)
    }
}

impl Driver for Kernel {
    type Socket = Socket;

    fn adopt(&mut self, mut socket: Socket) -> Conn {
        let mut net = self.net.borrow_mut();
        let id = LinkId(std::mem::replace(&mut socket.link, usize::MAX));
        assert_eq!(net.links[id.0].stage, Stage::Travelling, "a socket was adopted twice");
        net.links[id.0].stage = Stage::Open;
        net.hold(self.worker, id)
    }

    fn connect(&mut self, _to: &Address) -> Conn {
        let mut net = self.net.borrow_mut();
        let id = net.place(Stage::Dialling);
        net.links[id.0].is_server = true;
        net.dialled.push(id);
        net.hold(self.worker, id)
    }

    fn send(&mut self, conn: Conn, bytes: Buf) {
        self.write(conn, &bytes);
    }

    fn write(&mut self, conn: Conn, bytes: &[u8]) {
        let mut net = self.net.borrow_mut();
        let (high, scale) = (net.tuning.high_water, net.wire.scale);
        if let Some(link) = net.link(self.worker, conn)
            && matches!(
                link.stage,
                Stage::Open | Stage::Detaching | Stage::Dialling | Stage::Dialled
            )
        {
            assert_ne!(link.stage, Stage::Detaching, "something was queued on a leaving server");
            link.queue.push(bytes);
            link.crowded |= link.queue.len() * scale > high;
        }
    }

    fn unsent(&self, conn: Conn) -> usize {
        let mut net = self.net.borrow_mut();
        let scale = net.wire.scale;
        net.link(self.worker, conn).map_or(0, |link| link.queue.len() * scale)
    }

    fn pause(&mut self, conn: Conn) {
        self.want(conn, |link| link.paused = true);
    }

    fn resume(&mut self, conn: Conn) {
        self.want(conn, |link| link.paused = false);
    }

    fn finish(&mut self, conn: Conn) {
        self.want(conn, |link| {
            if link.can_end() {
                let dialling = matches!(link.stage, Stage::Dialling | Stage::Refused);
                link.stage = if dialling { Stage::Aborting } else { Stage::Finishing };
            }
        });
    }

    fn abort(&mut self, conn: Conn) {
        self.want(conn, |link| {
            if link.can_end() {
                link.stage = Stage::Aborting;
            }
        });
    }

    fn detach(&mut self, conn: Conn) {
        self.want(conn, |link| {
            if link.stage == Stage::Open && !link.ended {
                link.stage = Stage::Detaching;
            }
        });
    }

    fn listen(&mut self, _socket: Socket) -> Listener {
        self.net.borrow_mut().is_listening = true;
        Listener(0)
    }

    fn listen_again(&mut self, _listener: Listener) {
        self.net.borrow_mut().resting = false;
    }

    fn unlisten(&mut self, _listener: Listener) {
        let mut net = self.net.borrow_mut();
        net.is_listening = false;
        for id in std::mem::take(&mut net.backlog) {
            net.close(id, false);
        }
    }

    fn turn(&mut self, _wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        self.net.borrow_mut().turn(self.worker, done);
    }

    fn waker(&self) -> Waker {
        self.net.borrow().waker(self.worker)
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.net.borrow_mut().tuning = tuning.clone();
    }
}
