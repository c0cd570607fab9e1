//! A client that says exactly what a test wants said, and hears every message.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use crate::place::Address;
use crate::reply::{Fields, Message, Reply};
use crate::say;
use crate::sealed::{self, Sealed};
use crate::world::Dice;

/// The longest a test waits for something that should come at once. Generous: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Sealed>),
}

/// One connection.
pub struct Raw {
    stream: Stream,
    address: Address,
    inbox: Vec<u8>,
    /// `inbox[..read]` has been heard.
    read: usize,
    /// The body of BackendKeyData: process and key.
    pub key: Option<Vec<u8>>,
    /// All that came from login to the first ReadyForQuery.
    pub welcome: Reply,
}

/// What came next.
#[derive(Debug)]
pub enum Heard {
    Message(Message),
    /// Nothing within the time given.
    Quiet,
    /// The peer closed, in whatever way.
    Closed,
}

impl Heard {
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::Quiet)
    }
}

impl Raw {
    /// # Errors
    /// When nobody listens.
    pub fn open(address: &Address) -> std::io::Result<Self> {
        let stream = match address {
            Address::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Stream::Tcp(stream)
            }
            Address::Unix(folder, port) => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}")))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Stream::Unix(stream)
            }
        };
        let (address, welcome) = (address.clone(), Reply::default());
        Ok(Self { stream, address, inbox: Vec::new(), read: 0, key: None, welcome })
    }

    /// Asks for TLS, and goes on in it.
    ///
    /// # Panics
    /// When it does not get it.
    #[must_use]
    pub fn encrypted(mut self) -> Self {
        self.send(&[8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat());
        let answer = self.swallow(1, PATIENCE);
        assert_eq!(answer, b"S", "no TLS");
        let Stream::Tcp(stream) = self.stream else { panic!("TLS is for TCP") };
        Self { stream: Stream::Tls(Box::new(sealed::over(stream))), ..self }
    }

    /// Another connection, on which nothing was said, with this one's key: for a cancel from another thread.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn canceller(&self) -> Self {
        let mut other = Self::open(&self.address).expect("the server listens");
        if matches!(self.stream, Stream::Tls(_)) {
            other = other.encrypted();
        }
        other.key.clone_from(&self.key);
        other
    }

    /// Sends and hears at the same time, and waits for neither, up to so many ReadyForQuery. Over TLS only.
    ///
    /// # Panics
    /// As [`Self::until_readies`].
    pub fn ask_at_once(&mut self, mut bytes: &[u8], readies: usize) -> Reply {
        let deadline = Instant::now() + 6 * PATIENCE;
        while !bytes.is_empty() {
            let Stream::Tls(stream) = &mut self.stream else { panic!("over TLS only") };
            stream.sock.set_nonblocking(true).expect("a socket");
            assert!(Instant::now() < deadline, "{} bytes are not taken", bytes.len());
            let piece = bytes.len().min(16_384);
            if !stream.conn.wants_write() {
                let taken = stream.conn.writer().write(&bytes[..piece]).expect("a buffer");
                bytes = &bytes[taken..];
            }
            let _full = stream.conn.write_tls(&mut stream.sock);
            if stream.conn.read_tls(&mut stream.sock).is_ok() {
                stream.conn.process_new_packets().expect("sound records");
            }
            let mut some = [0; 65_536];
            while let Ok(count @ 1..) = stream.conn.reader().read(&mut some) {
                self.inbox.extend_from_slice(&some[..count]);
            }
        }
        if let Stream::Tls(stream) = &mut self.stream {
            stream.sock.set_nonblocking(false).expect("a socket");
            stream.flush().expect("the peer listens");
        }
        self.until_readies(readies)
    }

    /// Sends all of it. That the peer has gone is not the test's failure here: it is heard as `Closed`.
    pub fn send(&mut self, bytes: &[u8]) {
        let _gone = self.try_send(bytes);
    }

    /// # Errors
    /// When the peer is gone or reads nothing for [`PATIENCE`].
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// One write for each byte.
    pub fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(&[*byte]);
        }
    }

    /// Two writes, of which the second comes when the first has surely been read.
    pub fn send_cut(&mut self, bytes: &[u8], at: usize) {
        let (first, second) = bytes.split_at(at);
        self.send(first);
        std::thread::sleep(Duration::from_millis(50));
        self.send(second);
    }

    /// Writes of random sizes.
    pub fn send_torn(&mut self, mut bytes: &[u8], dice: &mut Dice) {
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(1 + dice.below(bytes.len().min(40)));
            self.send(piece);
            bytes = rest;
        }
    }

    /// The next message.
    pub fn hear(&mut self, patience: Duration) -> Heard {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(message) = self.buffered() {
                return Heard::Message(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Heard::Quiet;
            }
            match self.read_some(left) {
                Ok(0) => return Heard::Closed,
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::Closed,
            }
        }
    }

    fn read_some(&mut self, patience: Duration) -> std::io::Result<usize> {
        let mut buffer = [0; 65_536];
        let patience = Some(patience.max(Duration::from_millis(1)));
        let count = match &mut self.stream {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(patience)?;
                stream.read(&mut buffer)?
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(patience)?;
                stream.read(&mut buffer)?
            }
            Stream::Tls(stream) => {
                stream.sock.set_read_timeout(patience)?;
                stream.read(&mut buffer)?
            }
        };
        self.inbox.drain(..self.read);
        self.read = 0;
        self.inbox.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// Reads up to `count` bytes and forgets them: a client that reads slowly, or a peer that does not speak messages yet.
    pub fn swallow(&mut self, count: usize, patience: Duration) -> Vec<u8> {
        let deadline = Instant::now() + patience;
        while self.inbox.len() - self.read < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || matches!(self.read_some(left), Ok(0)) {
                break;
            }
        }
        let end = (self.read + count).min(self.inbox.len());
        let bytes = self.inbox[self.read..end].to_vec();
        self.read = end;
        bytes
    }

    fn buffered(&mut self) -> Option<Message> {
        let unread = &self.inbox[self.read..];
        let (&tag, rest) = unread.split_first()?;
        let length = i32::from_be_bytes(rest.get(..4)?.try_into().expect("four bytes"));
        let length =
            usize::try_from(length).unwrap_or_else(|_| panic!("a message of length {length}"));
        let body = rest.get(4..length)?.to_vec();
        self.read += 1 + length;
        Some(Message { tag, body })
    }

    /// # Panics
    /// When none comes.
    pub fn message(&mut self) -> Message {
        match self.hear(PATIENCE) {
            Heard::Message(message) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    /// Everything to the next ReadyForQuery.
    pub fn until_ready(&mut self) -> Reply {
        self.until_readies(1)
    }

    /// Everything to the `count`th ReadyForQuery.
    ///
    /// # Panics
    /// When the connection falls quiet or ends before.
    pub fn until_readies(&mut self, count: usize) -> Reply {
        let mut reply = Reply::default();
        let mut left = count;
        while left > 0 {
            match self.hear(PATIENCE) {
                Heard::Message(message) => {
                    left -= usize::from(message.tag == b'Z');
                    reply.0.push(message);
                }
                other => panic!("{other:?} with {left} ReadyForQuery to come, after {reply:?}"),
            }
        }
        reply
    }

    /// Everything up to and with the first message of this tag.
    ///
    /// # Panics
    /// As [`Self::until_readies`].
    pub fn until(&mut self, tag: u8) -> Reply {
        let mut reply = Reply::default();
        while reply.0.last().is_none_or(|message| message.tag != tag) {
            match self.hear(PATIENCE) {
                Heard::Message(message) => reply.0.push(message),
                other => panic!("{other:?} instead of {:?}, after {reply:?}", char::from(tag)),
            }
        }
        reply
    }

    /// What comes until nothing has come for `quiet`, or the end.
    pub fn until_quiet(&mut self, quiet: Duration) -> Reply {
        let mut reply = Reply::default();
        while let Heard::Message(message) = self.hear(quiet) {
            reply.0.push(message);
        }
        reply
    }

    /// Sends, and hears up to the next ReadyForQuery.
    pub fn ask(&mut self, bytes: &[u8]) -> Reply {
        self.send(bytes);
        self.until_ready()
    }

    /// A simple query.
    pub fn query(&mut self, sql: &str) -> Reply {
        self.ask(&say::query(sql))
    }

    /// A simple query that must not fail.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&mut self, sql: &str) -> Reply {
        let reply = self.query(sql);
        assert!(reply.error().is_none(), "{sql}: {reply:?}");
        reply
    }

    /// The first cell of a simple query.
    pub fn value(&mut self, sql: &str) -> String {
        self.run(sql).value()
    }

    /// Everything to the end of the connection.
    ///
    /// # Panics
    /// When it does not end.
    pub fn until_closed(&mut self) -> Reply {
        self.until_closed_within(PATIENCE)
    }

    /// # Panics
    /// When it does not end in time.
    pub fn until_closed_within(&mut self, patience: Duration) -> Reply {
        let mut reply = Reply::default();
        let deadline = Instant::now() + patience;
        loop {
            match self.hear(deadline.saturating_duration_since(Instant::now())) {
                Heard::Message(message) => reply.0.push(message),
                Heard::Closed => return reply,
                Heard::Quiet => panic!("still open after {patience:?}; heard {reply:?}"),
            }
        }
    }

    /// The one error that the connection ended with.
    ///
    /// # Panics
    /// When it ends with none, with several, or not at all.
    pub fn fatal(&mut self) -> Fields {
        let reply = self.until_closed();
        assert_eq!(reply.count(b'E'), 1, "{reply:?}");
        reply.error().expect("one was counted")
    }

    /// Whether the peer has closed, without waiting for it.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.hear(Duration::from_millis(1)), Heard::Closed)
    }

    /// Sends a cancel request for this connection and waits until its own connection is closed by the peer.
    ///
    /// # Panics
    /// When there is no key, or the peer does not close.
    pub fn cancel(&self) {
        let mut messenger = self.cancel_begin();
        messenger.until_closed();
    }

    /// Sends a cancel request and does not wait.
    ///
    /// # Panics
    /// When there is no key or nobody listens.
    #[must_use]
    pub fn cancel_begin(&self) -> Self {
        let key = self.key.as_ref().expect("a BackendKeyData");
        let mut messenger = Self::open(&self.address).expect("the server listens");
        if matches!(self.stream, Stream::Tls(_)) {
            messenger = messenger.encrypted();
        }
        messenger.send(&say::cancel(key));
        messenger
    }

    /// A polite end.
    pub fn leave(mut self) {
        self.send(&say::terminate());
    }

    /// No more is sent; what comes can still be heard.
    pub fn half_close(&self) {
        let _gone = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => stream.sock.shutdown(Shutdown::Write),
        };
    }

    /// The same connection once more, so that one thread can listen while another speaks.
    ///
    /// # Panics
    /// When descriptors run out.
    #[must_use]
    pub fn listener(&self) -> Self {
        let stream = match &self.stream {
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone().expect("a descriptor")),
            Stream::Unix(stream) => Stream::Unix(stream.try_clone().expect("a descriptor")),
            Stream::Tls(_) => panic!("a TLS session has one owner"),
        };
        let (address, welcome) = (self.address.clone(), Reply::default());
        Self { stream, address, inbox: Vec::new(), read: 0, key: None, welcome }
    }

    /// Ends with a TCP reset, as a crashed or firewalled client does.
    pub fn reset(self) {
        if let Stream::Tcp(stream) = &self.stream {
            let _gone = set_socket_linger(stream, Some(Duration::ZERO));
        }
    }
}
