//! A client that waits for its answers: for what is too slow or too involved for the ring.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

use crate::client::{PASSWORD, USER};
use crate::frames::{Frame, Frames, Lost, put};

/// One connection, logged in.
pub struct Visitor {
    stream: Stream,
    frames: Frames,
    /// From BackendKeyData.
    key: Vec<u8>,
}

/// Where it goes, and how.
#[derive(Clone)]
pub struct Errand {
    pub port: u16,
    pub user: String,
    pub database: String,
    /// With TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// What one question was answered with.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Reply {
    /// Of the last description of rows.
    pub columns: Vec<String>,
    /// Every value of every row.
    pub values: Vec<Vec<u8>>,
    /// The SQLSTATE of the first error.
    pub code: Option<String>,
    /// Of all messages.
    pub bytes: usize,
}

enum Stream {
    Plain(TcpStream),
    Sealed(Box<StreamOwned<ClientConnection, TcpStream>>),
}

const PATIENCE: Duration = Duration::from_secs(60);
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const CANCEL_REQUEST: [u8; 4] = [4, 210, 22, 46];

impl Errand {
    #[must_use]
    pub fn to(port: u16, database: &str) -> Self {
        Self { port, user: USER.into(), database: database.into(), tls: None }
    }
}

impl Visitor {
    /// Dials and logs in.
    pub fn call(errand: &Errand) -> anyhow::Result<Self> {
        let stream = dial(errand)?;
        let mut visitor = Self { stream, frames: Frames::default(), key: Vec::new() };
        let body = format!("\0\x03\0\0user\0{}\0database\0{}\0\0", errand.user, errand.database);
        let length = u32::try_from(body.len() + 4)?;
        visitor.say(&[&length.to_be_bytes(), body.as_bytes()].concat())?;
        visitor.log_in(&errand.user)?;
        Ok(visitor)
    }

    /// Whether the handshake went on with an earlier session's keys.
    #[must_use]
    pub fn has_resumed(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Sealed(stream) => stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    pub fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Asks by the simple protocol.
    pub fn ask(&mut self, query: &str) -> io::Result<Reply> {
        let mut out = Vec::new();
        put(&mut out, b'Q', format!("{query}\0").as_bytes());
        self.say(&out)?;
        self.hear(|_| ())
    }

    /// Reads up to ReadyForQuery; `pause` is called after each piece, with its length.
    pub fn hear(&mut self, mut pause: impl FnMut(usize)) -> io::Result<Reply> {
        let mut reply = Reply::default();
        let mut over = false;
        let mut piece = vec![0; 16 * 1024];
        while !over {
            let length = self.stream.read(&mut piece)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let cut = self.frames.cut(&piece[..length], |frame| {
                over |= frame.tag == b'Z';
                reply.take(frame);
                Ok::<(), Lost>(())
            });
            cut.map_err(|_| io::Error::other("an impossible length"))?;
            pause(length);
        }
        Ok(reply)
    }

    /// Says goodbye, and waits until the other end has hung up.
    pub fn leave(mut self) -> io::Result<()> {
        self.say(b"X\0\0\0\x04")?;
        let mut rest = [0; 64];
        match self.stream.read(&mut rest) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
            // A TLS peer that hangs up without a word is as gone.
            _ => Ok(()),
        }
    }

    /// What cancels this one's question, on a connection of its own.
    pub fn cancel(errand: &Errand, key: &[u8]) -> io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", errand.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = u32::try_from(8 + key.len()).unwrap_or(16);
        stream.write_all(&[&length.to_be_bytes(), &CANCEL_REQUEST[..], key].concat())?;
        stream.read(&mut [0]).map(drop)
    }

    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    fn log_in(&mut self, user: &str) -> anyhow::Result<()> {
        let mut scram = None;
        loop {
            let (tag, body) = self.message()?;
            match tag {
                b'R' => {
                    let mut out = Vec::new();
                    prove(user, &body, &mut scram, &mut out)?;
                    self.say(&out)?;
                }
                b'E' => bail!("{}", String::from_utf8_lossy(&body).replace('\0', " ")),
                b'K' => self.key = body,
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    /// The next message, read byte by byte where nothing may be read ahead.
    fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4).min(1 << 20)];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }
}

impl Reply {
    fn take(&mut self, frame: Frame<'_>) {
        self.bytes += 5 + frame.body.len();
        match frame.tag {
            b'D' => self.take_row(frame.body),
            b'T' => self.take_columns(frame.body),
            b'E' if self.code.is_none() => {
                let mut fields = frame.body.split(|byte| *byte == 0);
                let code = fields.find_map(|field| field.strip_prefix(b"C"));
                self.code = code.map(|code| String::from_utf8_lossy(code).into_owned());
            }
            _ => {}
        }
    }

    /// Each is a name, a zero, and 18 bytes.
    fn take_columns(&mut self, body: &[u8]) {
        self.columns.clear();
        let mut rest = body.get(2..).unwrap_or_default();
        while let Some(end) = rest.iter().position(|byte| *byte == 0) {
            self.columns.push(String::from_utf8_lossy(&rest[..end]).into_owned());
            rest = rest.get(end + 19..).unwrap_or_default();
        }
    }

    /// The rows, each as its values in text.
    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        self.values.chunks(self.columns.len().max(1)).map(move |row| row.iter().map(text).collect())
    }

    fn take_row(&mut self, body: &[u8]) {
        let mut rest = body.get(2..).unwrap_or_default();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
            let (value, next) = after.split_at(length.min(after.len()));
            self.values.push(value.to_vec());
            rest = next;
        }
    }
}

fn dial(errand: &Errand) -> anyhow::Result<Stream> {
    let mut socket = TcpStream::connect(("127.0.0.1", errand.port))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let Some(config) = &errand.tls else { return Ok(Stream::Plain(socket)) };
    socket.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    if answer != *b"S" {
        bail!("no TLS to be had");
    }
    let name = ServerName::try_from("pooler.test")?;
    let session = ClientConnection::new(Arc::clone(config), name)?;
    Ok(Stream::Sealed(Box::new(StreamOwned::new(session, socket))))
}

/// Answers a request for authentication.
fn prove(
    user: &str,
    body: &[u8],
    scram: &mut Option<ScramSha256>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let (code, rest) = body.split_first_chunk::<4>().context("half a request")?;
    match u32::from_be_bytes(*code) {
        0 => {}
        3 => put(out, b'p', format!("{PASSWORD}\0").as_bytes()),
        5 => {
            let salt = *rest.first_chunk::<4>().context("no salt")?;
            let hash = md5_hash(user.as_bytes(), PASSWORD.as_bytes(), salt);
            put(out, b'p', format!("{hash}\0").as_bytes());
        }
        10 => {
            let fresh = ScramSha256::new(PASSWORD.as_bytes(), ChannelBinding::unsupported());
            let first = scram.insert(fresh).message();
            let length = u32::try_from(first.len())?.to_be_bytes();
            put(out, b'p', &[b"SCRAM-SHA-256\0".as_slice(), &length, first].concat());
        }
        11 => {
            let scram = scram.as_mut().context("out of order")?;
            scram.update(rest)?;
            put(out, b'p', scram.message());
        }
        12 => scram.as_mut().context("out of order")?.finish(rest)?,
        other => bail!("authentication {other} is not known here"),
    }
    Ok(())
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Sealed(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Sealed(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Sealed(stream) => stream.flush(),
        }
    }
}
