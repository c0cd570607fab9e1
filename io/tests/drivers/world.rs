//! A driver with a memory: what it said, by connection.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use io::{AnyDriver, Buf, Conn, Done, Driver, Ends, Kind, Listener, Sealed, Socket};

/// Nothing in these stories takes this long, unless it takes for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Tell a story over both drivers.
pub(crate) fn over_each(story: impl Fn(&mut World)) {
    for kind in [Kind::IoUring, Kind::Readiness] {
        let mut world = World::new(kind);
        println!("over {}", world.name);
        story(&mut world);
    }
}

pub(crate) struct World {
    pub(crate) driver: AnyDriver,
    pub(crate) name: &'static str,
    pub(crate) done: Vec<Done<Socket>>,
    pub(crate) conns: HashMap<Conn, Said>,
    pub(crate) accepted: Vec<(Listener, Socket, Ends)>,
    pub(crate) refused: Vec<(Listener, std::io::Error)>,
    pub(crate) detached: Vec<(Conn, Socket)>,
    pub(crate) woken: usize,
    /// What becomes of received bytes.
    pub(crate) on_bytes: OnBytes,
    pub(crate) held: Vec<Buf>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OnBytes {
    /// Note and drop them.
    Note,
    /// Note them, and send them back.
    Echo,
    /// Count them, and keep their memory.
    Hold,
}

/// What was said of one connection since it was last opened.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
    pub(crate) connected: Option<Ends>,
    pub(crate) sealed: Option<Sealed>,
    pub(crate) ended: Option<Option<ErrorKind>>,
    pub(crate) drained: usize,
    pub(crate) closed: bool,
}

impl World {
    pub(crate) fn new(kind: Kind) -> Self {
        let (driver, name) = io::open(kind).unwrap();
        Self {
            driver,
            name,
            done: Vec::new(),
            conns: HashMap::new(),
            accepted: Vec::new(),
            refused: Vec::new(),
            detached: Vec::new(),
            woken: 0,
            on_bytes: OnBytes::Note,
            held: Vec::new(),
        }
    }

    /// One turn, remembered.
    pub(crate) fn turn(&mut self, wait: Duration) {
        let mut done = std::mem::take(&mut self.done);
        self.driver.turn(Some(wait), &mut done);
        for done in done.drain(..) {
            self.note(done);
        }
        self.done = done;
    }

    /// Turn until `happened`.
    pub(crate) fn until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !happened(self) {
            assert!(begun.elapsed() < PATIENCE, "{}: never saw {what}", self.name);
            self.turn(Duration::from_millis(10));
        }
    }

    /// Turn until nothing happens any more.
    pub(crate) fn until_quiet(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            self.driver.turn(Some(Duration::from_millis(20)), &mut self.done);
            quiet = if self.done.is_empty() { quiet + 1 } else { 0 };
            for done in std::mem::take(&mut self.done) {
                self.note(done);
            }
        }
    }

    pub(crate) fn said(&self, conn: Conn) -> &Said {
        &self.conns[&conn]
    }

    pub(crate) fn adopt(&mut self, socket: impl Into<Socket>) -> Conn {
        let conn = self.driver.adopt(socket.into());
        self.conns.insert(conn, Said::default());
        conn
    }

    pub(crate) fn connect(&mut self, to: &io::Address) -> Conn {
        let conn = self.driver.connect(to);
        self.conns.insert(conn, Said::default());
        conn
    }

    fn note(&mut self, done: Done<Socket>) {
        match done {
            Done::Accepted { listener, socket, ends } => {
                self.accepted.push((listener, socket, *ends));
            }
            Done::AcceptFailed { listener, error } => self.refused.push((listener, error)),
            Done::Connected { conn, ends } => {
                let said = self.alive(conn);
                assert!(said.connected.replace(*ends).is_none(), "connected twice");
            }
            Done::Secured { conn, sealed } => {
                let said = self.alive(conn);
                assert!(
                    said.bytes.is_empty() && said.ended.is_none(),
                    "bytes before the handshake"
                );
                assert!(said.sealed.replace(*sealed).is_none(), "secured twice");
            }
            Done::Received { conn, bytes } => self.note_bytes(conn, bytes),
            Done::Drained { conn } => self.alive(conn).drained += 1,
            Done::Ended { conn, error } => {
                let said = self.alive(conn);
                let broken = error.is_some();
                let before = said.ended.replace(error.map(|error| error.kind()));
                assert!(before.is_none() || before == Some(None) && broken, "ended twice");
            }
            Done::Closed { conn } => self.alive(conn).closed = true,
            Done::Detached { conn, socket } => {
                self.alive(conn).closed = true;
                self.detached.push((conn, socket));
            }
            Done::Woken => self.woken += 1,
        }
    }

    fn note_bytes(&mut self, conn: Conn, bytes: Buf) {
        let on_bytes = self.on_bytes;
        let said = self.alive(conn);
        assert!(!bytes.is_empty() && said.ended.is_none());
        said.count += bytes.len();
        match on_bytes {
            OnBytes::Note => said.bytes.extend_from_slice(&bytes),
            OnBytes::Echo => {
                said.bytes.extend_from_slice(&bytes);
                self.driver.send(conn, bytes);
            }
            OnBytes::Hold => self.held.push(bytes),
        }
    }

    fn alive(&mut self, conn: Conn) -> &mut Said {
        let said = self.conns.get_mut(&conn).expect("never heard of it");
        assert!(!said.closed, "spoke after its last word");
        said
    }
}

/// Two ends of a TCP connection; the second blocks, for a thread of its own.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    far.set_nodelay(true).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far.set_write_timeout(Some(PATIENCE)).unwrap();
    (near, far)
}

/// Somewhere to listen on this machine.
pub(crate) fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// The bytes of a stream, from `from` on: no two places look alike.
pub(crate) fn stream(seed: u64, from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|at| byte(seed, at)).collect()
}

fn byte(seed: u64, at: usize) -> u8 {
    let word = (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
    let mixed = (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> (at % 8 * 8)) as u8
}

/// Numbers that look random, from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
