//! TLS, as a driver around another driver.
//!
//! What the inner driver received is decrypted on its way up, and what is queued here is gathered
//! until the turn begins, so that the small writes of one turn are one record. A connection without
//! TLS costs an empty place in a table. One that is idle holds its keys, and no buffer.
//!
//! Nothing that came in is ever left inside a session: all records that are whole are decrypted and
//! delivered in the turn that brought their last byte, whether the peer is being sent to or not.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};

use crate::{Address, Buf, Buffers, Conn, Done, Driver, Listener, Socket, Tuning, Waker};

mod words;

/// The most that one record carries.
const RECORD: usize = 16 * 1024;
/// What a record's header, padding and tag add, at the very most.
const RECORD_EXTRA: usize = 5 + 256 + 64;
const HEADER: usize = 5;
/// A peer that cuts one message of a handshake into many records may make us hold this much. The
/// longest honest one is a chain of certificates.
const PARTIAL_MAX: usize = 128 * 1024;
/// Buffers for writes that are kept for the next turn.
const SPARES_MAX: usize = 64;

/// How a connection is to be secured.
#[derive(Clone, Debug)]
pub enum Session {
    /// The peer dialled us, and speaks first.
    Server(Arc<ServerConfig>),
    /// We dialled `ServerName`.
    Client(Arc<ClientConfig>, ServerName<'static>),
}

/// What a handshake came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sealed {
    /// Version and cipher suite, as OpenSSL calls them: `TLSv1.3/TLS_AES_256_GCM_SHA384`.
    pub suite: &'static str,
    /// The protocol agreed on by ALPN.
    pub alpn: Option<Box<[u8]>>,
    /// The peer's own certificate, verified as the session's configuration has it: DER.
    pub peer: Option<Box<[u8]>>,
    /// The keys come from an earlier session.
    pub resumed: bool,
}

/// A driver that can also speak TLS.
pub struct Tls<D> {
    inner: D,
    /// By the connection's slot.
    seals: Vec<Option<Box<Seal>>>,
    /// How many of them there are.
    sealed: usize,
    /// Those with something to encrypt.
    dirty: Vec<Conn>,
    /// What is to be said in the next turn.
    ready: Vec<Done<Socket>>,
    raw: Vec<Done<Socket>>,
    /// What is being decrypted, and what was encrypted: all connections use the same memory.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    spares: Vec<Vec<u8>>,
}

/// One TLS session.
pub(crate) struct Seal {
    side: Side,
    /// The beginning of a record, or records with the beginning of a message.
    partial: Vec<u8>,
    /// Whole records at its front, in bytes. 0 <= whole <= partial.len()
    whole: usize,
    /// Queued, and not yet encrypted.
    plain: Vec<u8>,
    phase: Phase,
    dirty: bool,
    /// It is leaving this driver.
    detaching: bool,
    /// How it ended while it was leaving; the next driver says it.
    owed: Option<Option<String>>,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Handshake,
    Traffic,
    /// The peer will send nothing more, and it was said.
    Heard,
    /// It failed, and it was said.
    Failed,
}

/// What a look at the session came to.
enum Next {
    /// There may be more.
    Again,
    /// More bytes are needed.
    Rest,
    PeerClosed,
}

/// What came out of some bytes.
#[derive(Default)]
struct Heard {
    plain: Vec<Vec<u8>>,
    closed: bool,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Seal({:?}, {} partial, {} plain)",
            self.phase,
            self.partial.len(),
            self.plain.len()
        )
    }
}

impl Seal {
    fn new(session: Session) -> Result<Self, rustls::Error> {
        let side = match session {
            Session::Server(config) => {
                Side::Server(Box::new(UnbufferedServerConnection::new(config)?))
            }
            Session::Client(config, name) => {
                Side::Client(Box::new(UnbufferedClientConnection::new(config, name)?))
            }
        };
        Ok(Self {
            side,
            partial: Vec::new(),
            whole: 0,
            plain: Vec::new(),
            phase: Phase::Handshake,
            dirty: false,
            detaching: false,
            owed: None,
        })
    }

    fn common(&self) -> &rustls::CommonState {
        match &self.side {
            Side::Server(connection) => connection,
            Side::Client(connection) => connection,
        }
    }

    /// Let the session work on `incoming`, all of which it may overwrite. What it wants sent is
    /// appended to `outgoing`. Returns how many bytes it is done with.
    fn work(
        &mut self,
        incoming: &mut [u8],
        heard: &mut Heard,
        outgoing: &mut Vec<u8>,
    ) -> Result<usize, rustls::Error> {
        let mut used = 0;
        loop {
            let rest = incoming.get_mut(used..).unwrap_or_default();
            let (discard, next) = match &mut self.side {
                Side::Server(connection) => {
                    digest(connection.process_tls_records(rest), heard, outgoing)
                }
                Side::Client(connection) => {
                    digest(connection.process_tls_records(rest), heard, outgoing)
                }
            };
            used += discard;
            match next? {
                Next::Again => {}
                Next::PeerClosed => heard.closed = true,
                Next::Rest => return Ok(used),
            }
        }
    }

    /// Take in `bytes`. `scratch` is memory to work in.
    fn hear(
        &mut self,
        mut bytes: &[u8],
        scratch: &mut Vec<u8>,
        heard: &mut Heard,
        outgoing: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        while !self.partial.is_empty() && !bytes.is_empty() {
            bytes = self.complete_record(bytes);
            if self.whole == self.partial.len() {
                let mut partial = mem::take(&mut self.partial);
                let used = self.work(&mut partial, heard, outgoing)?;
                partial.drain(..used.min(partial.len()));
                self.whole = partial.len();
                if !partial.is_empty() {
                    self.partial = partial;
                }
                if self.partial.len() > PARTIAL_MAX {
                    return Err(rustls::Error::General("handshake message too long".to_owned()));
                }
            }
        }
        if bytes.is_empty() {
            return Ok(());
        }
        scratch.clear();
        scratch.extend_from_slice(bytes);
        let used = self.work(scratch, heard, outgoing)?;
        let left = scratch.get(used..).unwrap_or_default();
        if !left.is_empty() {
            self.partial = left.to_vec();
            self.whole = whole_records(left);
        }
        Ok(())
    }

    /// Move bytes to `partial` until its last record is whole, or none are left.
    fn complete_record<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let begun = self.partial.len() - self.whole;
        let wanted = if begun < HEADER {
            HEADER - begun
        } else {
            record_length(&self.partial[self.whole..]).saturating_sub(begun)
        };
        let (more, rest) = bytes.split_at(wanted.min(bytes.len()));
        self.partial.extend_from_slice(more);
        let begun = &self.partial[self.whole..];
        if begun.len() >= HEADER && begun.len() >= record_length(begun) {
            self.whole = self.partial.len();
        }
        rest
    }

    /// Append `speech`, encrypted, to `outgoing`. Only after the handshake.
    fn speak(&mut self, speech: Speech<'_>, outgoing: &mut Vec<u8>) -> Result<(), rustls::Error> {
        // The session wants to see what it is not done with, whatever it is called for.
        let mut partial = mem::take(&mut self.partial);
        let done = loop {
            let (discard, spoken) = match &mut self.side {
                Side::Server(connection) => {
                    utter(connection.process_tls_records(&mut partial), speech, outgoing)
                }
                Side::Client(connection) => {
                    utter(connection.process_tls_records(&mut partial), speech, outgoing)
                }
            };
            partial.drain(..discard.min(partial.len()));
            self.whole = self.whole.saturating_sub(discard);
            match spoken {
                Ok(Next::Again | Next::PeerClosed) => {}
                Ok(Next::Rest) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.partial = partial;
        done
    }

    /// What the session has to say about its own failure: an alert.
    fn last_words(&mut self, outgoing: &mut Vec<u8>) {
        let mut nothing = Heard::default();
        // It is not asked for more than it has to say: what it broke on must not be touched again.
        while self.common().wants_write() {
            let _ = match &mut self.side {
                Side::Server(connection) => {
                    digest(connection.process_tls_records(&mut []), &mut nothing, outgoing)
                }
                Side::Client(connection) => {
                    digest(connection.process_tls_records(&mut []), &mut nothing, outgoing)
                }
            };
        }
    }

    fn facts(&self) -> Sealed {
        let common = self.common();
        let peer = common.peer_certificates().and_then(<[_]>::first);
        Sealed {
            suite: words::suite(common.protocol_version(), common.negotiated_cipher_suite()),
            alpn: common.alpn_protocol().map(Box::from),
            peer: peer.map(|certificate| Box::from(certificate.as_ref())),
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    fn may_speak(&self) -> bool {
        matches!(self.phase, Phase::Traffic | Phase::Heard)
    }
}

/// Something to be encrypted.
#[derive(Clone, Copy)]
enum Speech<'a> {
    Bytes(&'a [u8]),
    CloseNotify,
}

/// The length of the record that `bytes` begin with, of which at least the header is there.
fn record_length(bytes: &[u8]) -> usize {
    let length = [bytes.get(3), bytes.get(4)].map(|byte| usize::from(byte.copied().unwrap_or(0)));
    HEADER + (length[0] << 8 | length[1])
}

/// How long the whole records are that `bytes` begin with.
fn whole_records(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Some(rest) = bytes.get(whole..).filter(|rest| rest.len() >= HEADER)
        && rest.len() >= record_length(rest)
    {
        whole += record_length(rest);
    }
    whole
}

/// Does what the state of a session asks for: how many bytes it is done with, and what is next.
fn digest<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    heard: &mut Heard,
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Next, rustls::Error>) {
    let mut discard = status.discard;
    let next = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Next::Again),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    if !record.payload.is_empty() {
                        heard.plain.push(record.payload.to_vec());
                    }
                }
            }
        },
        Ok(ConnectionState::PeerClosed) => Ok(Next::PeerClosed),
        Ok(ConnectionState::EncodeTlsData(chunk)) => {
            encode(chunk, outgoing);
            Ok(Next::Again)
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            transmit.done();
            Ok(Next::Again)
        }
        // Early data is never offered nor accepted.
        Ok(_) => Ok(Next::Rest),
    };
    (discard, next)
}

/// The same, in order to say something.
fn utter<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    speech: Speech<'_>,
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Next, rustls::Error>) {
    let discard = status.discard;
    let mut traffic = match status.state {
        Ok(ConnectionState::WriteTraffic(traffic)) => traffic,
        // Something of its own comes first.
        state => {
            let status = UnbufferedStatus { discard, state };
            return digest(status, &mut Heard::default(), outgoing);
        }
    };
    let (start, length) = (
        outgoing.len(),
        match speech {
            Speech::Bytes(bytes) => bytes.len(),
            Speech::CloseNotify => 0,
        },
    );
    let mut room = length + (length / RECORD + 1) * RECORD_EXTRA;
    loop {
        outgoing.resize(start + room, 0);
        let written = match speech {
            Speech::Bytes(bytes) => traffic.encrypt(bytes, &mut outgoing[start..]),
            Speech::CloseNotify => traffic.queue_close_notify(&mut outgoing[start..]),
        };
        match written {
            Ok(written) => {
                outgoing.truncate(start + written);
                return (discard, Ok(Next::Rest));
            }
            Err(EncryptError::InsufficientSize(needed)) if needed.required_size > room => {
                room = needed.required_size;
            }
            Err(_) => {
                outgoing.truncate(start);
                return (discard, Err(rustls::Error::EncryptError));
            }
        }
    }
}

/// Whether an event that was put off is about `conn`.
fn concerns(done: &Done<Socket>, conn: Conn) -> bool {
    match done {
        Done::Received { conn: other, .. }
        | Done::Secured { conn: other, .. }
        | Done::Ended { conn: other, .. } => *other == conn,
        _ => false,
    }
}

/// Append a record that the session made to `outgoing`.
fn encode<Data>(mut chunk: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) {
    let start = outgoing.len();
    if let Err(EncodeError::InsufficientSize(needed)) = chunk.encode(&mut []) {
        outgoing.resize(start + needed.required_size, 0);
        if chunk.encode(&mut outgoing[start..]).is_err() {
            outgoing.truncate(start);
        }
    }
}

impl<D: Driver<Socket = Socket>> Tls<D> {
    pub fn over(inner: D) -> Self {
        Self {
            inner,
            seals: Vec::new(),
            sealed: 0,
            dirty: Vec::new(),
            ready: Vec::new(),
            raw: Vec::new(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            spares: Vec::new(),
        }
    }

    fn seal(&self, conn: Conn) -> Option<&Seal> {
        self.seals.get(conn.0 as usize)?.as_deref()
    }

    fn place(&mut self, conn: Conn, seal: Box<Seal>) {
        let slot = conn.0 as usize;
        if self.seals.len() <= slot {
            self.seals.resize_with(slot + 1, || None);
        }
        self.seals[slot] = Some(seal);
        self.sealed += 1;
    }

    fn take(&mut self, conn: Conn) -> Option<Box<Seal>> {
        let seal = self.seals.get_mut(conn.0 as usize)?.take();
        self.sealed -= usize::from(seal.is_some());
        seal
    }

    /// Whoever dialled speaks first.
    fn begin(&mut self, conn: Conn) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        self.outgoing.clear();
        let begun = seal.work(&mut [], &mut Heard::default(), &mut self.outgoing);
        self.inner.write(conn, &self.outgoing);
        if let Err(error) = begun {
            let mut ready = mem::take(&mut self.ready);
            self.failed(conn, &error, &mut ready);
            self.ready = ready;
        }
    }

    /// Queue `bytes` of a connection with TLS. Whole records are encrypted at once, so that a large
    /// result is held in one form only.
    fn queue(&mut self, conn: Conn, mut bytes: &[u8]) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        if seal.phase == Phase::Failed {
            return;
        }
        if seal.may_speak() && seal.plain.len() + bytes.len() >= RECORD {
            let whole = (seal.plain.len() + bytes.len()) / RECORD * RECORD;
            let (now, later) = bytes.split_at(whole - seal.plain.len());
            bytes = later;
            if seal.plain.is_empty() {
                self.utter(conn, Speech::Bytes(now));
            } else {
                seal.plain.extend_from_slice(now);
                let plain = mem::take(&mut seal.plain);
                self.utter(conn, Speech::Bytes(&plain));
                self.keep(plain);
            }
        }
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        if bytes.is_empty() {
            return;
        }
        if seal.plain.capacity() == 0 {
            seal.plain = self.spares.pop().unwrap_or_default();
        }
        seal.plain.extend_from_slice(bytes);
        if !mem::replace(&mut seal.dirty, true) {
            self.dirty.push(conn);
        }
    }

    /// Encrypt and hand down.
    fn utter(&mut self, conn: Conn, speech: Speech<'_>) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        self.outgoing.clear();
        let spoken = seal.speak(speech, &mut self.outgoing);
        self.inner.write(conn, &self.outgoing);
        if let Err(error) = spoken {
            let mut ready = mem::take(&mut self.ready);
            self.failed(conn, &error, &mut ready);
            self.ready = ready;
        }
    }

    /// Encrypt what this turn queued on `conn`.
    fn flush(&mut self, conn: Conn) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        seal.dirty = false;
        if !seal.may_speak() || seal.plain.is_empty() {
            return;
        }
        let plain = mem::take(&mut seal.plain);
        self.utter(conn, Speech::Bytes(&plain));
        self.keep(plain);
    }

    fn flush_all(&mut self) {
        let mut dirty = mem::take(&mut self.dirty);
        for conn in dirty.drain(..) {
            self.flush(conn);
        }
        self.dirty = dirty;
    }

    /// Keep the memory of what was written for the next who writes.
    fn keep(&mut self, mut used: Vec<u8>) {
        if self.spares.len() < SPARES_MAX && used.capacity() <= 2 * RECORD {
            used.clear();
            self.spares.push(used);
        }
    }

    /// What was still to be said of a connection that is being closed is not said any more.
    fn forget(&mut self, conn: Conn) {
        self.ready.retain(|done| !concerns(done, conn));
    }

    /// Bytes of a connection with TLS came in.
    fn received(&mut self, conn: Conn, bytes: &[u8], done: &mut Vec<Done<Socket>>) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        if matches!(seal.phase, Phase::Heard | Phase::Failed) {
            return;
        }
        let mut heard = Heard::default();
        self.outgoing.clear();
        let result = seal.hear(bytes, &mut self.incoming, &mut heard, &mut self.outgoing);
        if seal.phase == Phase::Handshake && !seal.common().is_handshaking() {
            seal.phase = Phase::Traffic;
            done.push(Done::Secured { conn, sealed: Box::new(seal.facts()) });
            if !seal.plain.is_empty() && !mem::replace(&mut seal.dirty, true) {
                self.dirty.push(conn);
            }
        }
        for plain in heard.plain {
            done.push(Done::Received { conn, bytes: Buf::from(plain) });
        }
        self.inner.write(conn, &self.outgoing);
        match result {
            Ok(()) if heard.closed => {
                seal.phase = Phase::Heard;
                self.end(conn, None, done);
            }
            Ok(()) => {}
            Err(error) => self.failed(conn, &error, done),
        }
    }

    /// The session broke. The peer gets to know why, if it still listens.
    fn failed(&mut self, conn: Conn, error: &rustls::Error, done: &mut Vec<Done<Socket>>) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        let words = words::of(error, seal.phase == Phase::Handshake);
        seal.phase = Phase::Failed;
        seal.plain = Vec::new();
        seal.partial = Vec::new();
        self.outgoing.clear();
        seal.last_words(&mut self.outgoing);
        self.inner.write(conn, &self.outgoing);
        self.end(conn, Some(words), done);
    }

    /// The session is at its end. One that is on its way out of this driver says so in the next.
    fn end(&mut self, conn: Conn, words: Option<String>, done: &mut Vec<Done<Socket>>) {
        let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) else { return };
        if seal.detaching {
            seal.owed = Some(words);
        } else {
            done.push(Done::Ended { conn, error: words.map(io::Error::other) });
        }
    }

    /// The inner driver says that the connection is at its end.
    fn ended(&mut self, conn: Conn, error: Option<io::Error>, done: &mut Vec<Done<Socket>>) {
        if let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) {
            seal.detaching = false;
            let owed = seal.owed.take();
            let said = owed.is_none() && matches!(seal.phase, Phase::Heard | Phase::Failed);
            // An end without a word is one too. What it may have cut off, the peer's protocol tells.
            if said && (error.is_none() || seal.phase == Phase::Failed) {
                return;
            }
            if seal.phase != Phase::Failed {
                seal.phase = Phase::Heard;
            }
            let error = owed.flatten().map(io::Error::other).or(error);
            return done.push(Done::Ended { conn, error });
        }
        done.push(Done::Ended { conn, error });
    }

    /// What the inner driver did, as seen from outside.
    fn translate(&mut self, event: Done<Socket>, done: &mut Vec<Done<Socket>>) {
        match event {
            Done::Received { conn, bytes } if self.seal(conn).is_some() => {
                self.received(conn, &bytes, done);
            }
            Done::Ended { conn, error } => self.ended(conn, error, done),
            Done::Closed { conn } => {
                self.take(conn);
                done.push(Done::Closed { conn });
            }
            Done::Detached { conn, socket } => {
                let seal = self.take(conn).map(|mut seal| {
                    seal.detaching = false;
                    seal.dirty = false;
                    seal
                });
                done.push(Done::Detached { conn, socket: socket.sealed(seal) });
            }
            other => done.push(other),
        }
    }
}

impl<D: Driver<Socket = Socket>> Driver for Tls<D> {
    type Socket = Socket;

    fn adopt(&mut self, mut socket: Socket) -> Conn {
        let seal = socket.take_seal();
        let conn = self.inner.adopt(socket);
        if let Some(mut seal) = seal {
            if let Some(words) = seal.owed.take() {
                self.ready.push(Done::Ended { conn, error: words.map(io::Error::other) });
            }
            if !seal.plain.is_empty() {
                seal.dirty = true;
                self.dirty.push(conn);
            }
            self.place(conn, seal);
        }
        conn
    }

    fn connect(&mut self, to: &Address) -> Conn {
        self.inner.connect(to)
    }

    fn send(&mut self, conn: Conn, bytes: Buf) {
        if self.seal(conn).is_some() {
            self.queue(conn, &bytes);
        } else {
            self.inner.send(conn, bytes);
        }
    }

    fn write(&mut self, conn: Conn, bytes: &[u8]) {
        if self.seal(conn).is_some() {
            self.queue(conn, bytes);
        } else {
            self.inner.write(conn, bytes);
        }
    }

    fn secure(&mut self, conn: Conn, session: Session) {
        match Seal::new(session) {
            Ok(seal) => {
                self.place(conn, Box::new(seal));
                self.begin(conn);
            }
            Err(error) => {
                let error = Some(io::Error::other(words::of(&error, true)));
                self.ready.push(Done::Ended { conn, error });
            }
        }
    }

    fn unread(&mut self, conn: Conn, bytes: Buf) {
        let mut ready = mem::take(&mut self.ready);
        self.received(conn, &bytes, &mut ready);
        self.ready = ready;
    }

    fn unsent(&self, conn: Conn) -> usize {
        self.inner.unsent(conn) + self.seal(conn).map_or(0, |seal| seal.plain.len())
    }

    fn pause(&mut self, conn: Conn) {
        self.inner.pause(conn);
    }

    fn resume(&mut self, conn: Conn) {
        self.inner.resume(conn);
    }

    fn finish(&mut self, conn: Conn) {
        self.flush(conn);
        if self.seal(conn).is_some_and(Seal::may_speak) {
            self.utter(conn, Speech::CloseNotify);
        }
        self.take(conn);
        self.forget(conn);
        self.inner.finish(conn);
    }

    fn abort(&mut self, conn: Conn) {
        self.take(conn);
        self.forget(conn);
        self.inner.abort(conn);
    }

    fn detach(&mut self, conn: Conn) {
        if let Some(Some(seal)) = self.seals.get_mut(conn.0 as usize) {
            // What is said of one that has ended is ignored below, too.
            if matches!(seal.phase, Phase::Heard | Phase::Failed) {
                return;
            }
            seal.detaching = true;
        }
        self.inner.detach(conn);
    }

    fn listen(&mut self, socket: Socket) -> Listener {
        self.inner.listen(socket)
    }

    fn listen_again(&mut self, listener: Listener) {
        self.inner.listen_again(listener);
    }

    fn unlisten(&mut self, listener: Listener) {
        self.inner.unlisten(listener);
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done<Socket>>) {
        self.flush_all();
        let wait = if self.ready.is_empty() { wait } else { Some(Duration::ZERO) };
        done.append(&mut self.ready);
        if self.sealed == 0 {
            return self.inner.turn(wait, done);
        }
        let before = done.len();
        let since = wait.filter(|wait| !wait.is_zero()).map(|_| Instant::now());
        let mut left = wait;
        loop {
            let mut raw = mem::take(&mut self.raw);
            self.inner.turn(left, &mut raw);
            for event in raw.drain(..) {
                self.translate(event, done);
            }
            self.raw = raw;
            if done.len() > before || left == Some(Duration::ZERO) {
                return;
            }
            // It was part of a handshake, or of a record: nothing that anybody waits for.
            if let (Some(wait), Some(since)) = (wait, since) {
                left = Some(wait.saturating_sub(since.elapsed()));
            }
        }
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn fd(&self, conn: Conn) -> Option<i32> {
        self.inner.fd(conn)
    }

    fn buffers(&self) -> Buffers {
        self.inner.buffers()
    }

    fn tune(&mut self, tuning: &Tuning) {
        self.inner.tune(tuning);
    }
}
