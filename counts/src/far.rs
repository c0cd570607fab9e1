//! A driver whose connections end in this very process: clients who play a script, and canned servers.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::{Address, Buf, Conn, Done, Driver, Ends, Listener, Tuning, Wake, Waker};
use rig::backend::Backend;
use rig::client::{Client, Heard};
use rig::script::{Life, Script};

/// The far ends, and what is on its way between them and the worker.
pub(crate) struct Far {
    script: Script,
    lines: Vec<Line>,
    free: Vec<u32>,
    /// Lines with something to send, in the order in which it was queued.
    dirty: VecDeque<u32>,
    ready: Vec<Done<Socket>>,
    /// Transactions that clients may still begin.
    pub(crate) allowed: usize,
    pub(crate) finished: usize,
    since: Instant,
}

/// A client on its way in.
pub(crate) struct Socket;

struct Line {
    far: End,
    /// Queued by the worker.
    out: Vec<u8>,
    dirty: bool,
}

enum End {
    Nobody,
    Client(Box<Client>),
    Server(Box<Backend>),
}

struct Bell;

impl Wake for Bell {
    fn wake(&self) {}
}

impl Far {
    /// `clients` dial in the first turn.
    pub(crate) fn new(script: Script, clients: usize) -> Self {
        let mut far = Self {
            script,
            lines: Vec::new(),
            free: Vec::new(),
            dirty: VecDeque::new(),
            ready: Vec::new(),
            allowed: 0,
            finished: 0,
            since: Instant::now(),
        };
        (0..clients).for_each(|_| far.dial_in());
        far
    }

    /// Those who are idle begin, as far as they may.
    pub(crate) fn begin(&mut self) {
        for at in 0..self.lines.len() as u32 {
            let mut said = Vec::new();
            if let End::Client(client) = &mut self.lines[at as usize].far
                && client.is_idle()
                && self.allowed > 0
            {
                self.allowed -= 1;
                client.begin(&self.script, self.since, &mut said);
            }
            self.say(at, said);
        }
    }

    fn dial_in(&mut self) {
        let listener = Listener(0);
        self.ready.push(Done::Accepted { listener, socket: Socket, ends: Box::new(ends()) });
    }

    fn place(&mut self, far: End) -> Conn {
        let line = Line { far, out: Vec::new(), dirty: false };
        match self.free.pop() {
            Some(at) => {
                self.lines[at as usize] = line;
                Conn(at)
            }
            None => {
                self.lines.push(line);
                Conn(self.lines.len() as u32 - 1)
            }
        }
    }

    /// The far end of line `at` says `bytes`.
    fn say(&mut self, at: u32, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.ready.push(Done::Received { conn: Conn(at), bytes: Buf::from(bytes) });
        }
    }

    /// The far end hears what the worker queued, and answers.
    fn hear(&mut self, at: u32) {
        let line = &mut self.lines[at as usize];
        line.dirty = false;
        let heard = std::mem::take(&mut line.out);
        let mut said = Vec::new();
        match &mut line.far {
            End::Nobody => {}
            End::Server(backend) => backend.hear(&heard, &mut said).expect("a worker speaks well"),
            End::Client(client) => {
                let heard = client.hear(&heard, &self.script, &mut said).expect("right answers");
                if heard == Heard::Done {
                    self.finished += 1;
                    if self.script.life == Life::OneTransaction {
                        said.extend_from_slice(b"X\0\0\0\x04");
                    }
                }
                let stays = self.script.life == Life::Stays || heard == Heard::Ready;
                if heard != Heard::More && stays && self.allowed > 0 {
                    self.allowed -= 1;
                    client.begin(&self.script, self.since, &mut said);
                }
            }
        }
        self.say(at, said);
    }

    fn dirty(&mut self, conn: Conn) {
        if let Some(line) = self.lines.get_mut(conn.0 as usize)
            && !std::mem::replace(&mut line.dirty, true)
        {
            self.dirty.push_back(conn.0);
        }
    }

    fn close(&mut self, conn: Conn) {
        let Some(line) = self.lines.get_mut(conn.0 as usize) else { return };
        let comes_again = matches!(line.far, End::Client(_));
        line.far = End::Nobody;
        line.out.clear();
        self.ready.push(Done::Closed { conn });
        self.free.push(conn.0);
        if comes_again {
            self.dial_in();
        }
    }
}

fn ends() -> Ends {
    let at = |port| Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    Ends { peer: at(40_000), local: at(6432), uid: None, pid: None }
}

impl Driver for Far {
    type Socket = Socket;

    fn adopt(&mut self, _: Socket) -> Conn {
        let conn = self.place(End::Client(Box::new(Client::new(self.since))));
        let mut hello = Vec::new();
        Client::greet(&mut hello);
        self.say(conn.0, hello);
        conn
    }

    fn connect(&mut self, _: &Address) -> Conn {
        let conn = self.place(End::Server(Box::default()));
        self.ready.push(Done::Connected { conn, ends: Box::new(ends()) });
        conn
    }

    fn send(&mut self, conn: Conn, bytes: Buf) {
        self.write(conn, &bytes);
    }

    fn write(&mut self, conn: Conn, bytes: &[u8]) {
        if let Some(line) = self.lines.get_mut(conn.0 as usize) {
            line.out.extend_from_slice(bytes);
        }
        self.dirty(conn);
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.lines.get(conn.0 as usize).map_or(0, |line| line.out.len())
    }

    fn pause(&mut self, _: Conn) {}

    fn resume(&mut self, _: Conn) {}

    fn finish(&mut self, conn: Conn) {
        self.close(conn);
    }

    fn abort(&mut self, conn: Conn) {
        self.close(conn);
    }

    fn detach(&mut self, _: Conn) {}

    fn listen(&mut self, _: Socket) -> Listener {
        Listener(0)
    }

    fn listen_again(&mut self, _: Listener) {}

    fn unlisten(&mut self, _: Listener) {}

    fn turn(&mut self, _: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        while let Some(at) = self.dirty.pop_front() {
            self.hear(at);
        }
        done.append(&mut self.ready);
    }

    fn waker(&self) -> Waker {
        Waker(Arc::new(Bell))
    }

    fn tune(&mut self, _: &Tuning) {}
}
