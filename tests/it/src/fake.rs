//! Servers that do what a real PostgreSQL cannot be made to do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::say;

/// A listener with a thread for each who comes.
pub struct FakeServer {
    port: u16,
    ending: Arc<AtomicBool>,
    guests: Arc<AtomicUsize>,
}

/// One connection to a fake server.
pub struct Guest {
    stream: TcpStream,
    /// The how manieth this is, from 0. Cancel requests count too.
    pub number: usize,
}

/// What a guest began with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Opening {
    Login { minor: u16, parameters: Vec<(String, String)> },
    Cancel { key: Vec<u8> },
}

impl FakeServer {
    /// # Panics
    /// When there is no port.
    #[must_use]
    pub fn start(play: impl Fn(Guest) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let ending = Arc::new(AtomicBool::new(false));
        let guests = Arc::new(AtomicUsize::new(0));
        let play = Arc::new(play);
        let (end, count) = (ending.clone(), guests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let number = count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
                let play = play.clone();
                std::thread::spawn(move || play(Guest { stream, number }));
            }
        });
        Self { port, ending, guests }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The right side of a line in `[databases]`.
    #[must_use]
    pub fn target(&self) -> String {
        format!("host=127.0.0.1 port={} dbname=fake", self.port)
    }

    /// How many have come so far.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.guests.load(Ordering::SeqCst)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let _wakes_the_listener = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Guest {
    /// Reads how it begins; encryption is declined. `None` when it left.
    #[must_use]
    pub fn opening(&mut self) -> Option<Opening> {
        loop {
            let length = u32::from_be_bytes(self.exactly(4)?.try_into().ok()?);
            let rest = self.exactly(usize::try_from(length).ok()?.checked_sub(4)?)?;
            let (code, body) = rest.split_at_checked(4)?;
            match i32::from_be_bytes(code.try_into().ok()?) {
                80_877_103 | 80_877_104 => self.send(b"N"),
                80_877_102 => return Some(Opening::Cancel { key: body.to_vec() }),
                version => {
                    let texts: Vec<_> =
                        body.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
                    let pair = |pair: &[std::borrow::Cow<'_, str>]| {
                        (pair[0].to_string(), pair[1].to_string())
                    };
                    let parameters = texts
                        .chunks_exact(2)
                        .map(pair)
                        .filter(|(name, _)| !name.is_empty())
                        .collect();
                    return Some(Opening::Login {
                        minor: u16::try_from(version & 0xffff).ok()?,
                        parameters,
                    });
                }
            }
        }
    }

    /// Reads the opening and lets the guest in without a password. `None` when it left or came to cancel.
    #[must_use]
    pub fn admit(&mut self) -> Option<Vec<(String, String)>> {
        match self.opening()? {
            Opening::Cancel { .. } => None,
            Opening::Login { parameters, .. } => {
                self.send(&welcome());
                Some(parameters)
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let _gone = self.stream.write_all(bytes);
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The next message: tag and body.
    #[must_use]
    pub fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let tag = self.exactly(1)?[0];
        let length = u32::from_be_bytes(self.exactly(4)?.try_into().ok()?);
        Some((tag, self.exactly(usize::try_from(length).ok()?.checked_sub(4)?)?))
    }

    /// Reads to the next message of this tag and returns its body.
    #[must_use]
    pub fn read_until(&mut self, tag: u8) -> Option<Vec<u8>> {
        loop {
            let (read, body) = self.read()?;
            if read == tag {
                return Some(body);
            }
        }
    }

    /// Says that there is nothing more to come, as a process does that ends when it has read all there was.
    pub fn hang_up(&mut self) {
        let _gone = self.stream.shutdown(std::net::Shutdown::Write);
        while self.read().is_some() {}
    }

    /// Does nothing until the guest leaves.
    pub fn stall(mut self) {
        while self.read().is_some() {}
    }

    /// Answers every simple query with one row that holds its text, until the guest leaves.
    pub fn serve(mut self) {
        while let Some((tag, body)) = self.read() {
            match tag {
                b'Q' => {
                    let sql = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
                    self.send(&answer(&sql));
                }
                b'S' => self.send(&ready()),
                b'X' => return,
                _ => {}
            }
        }
    }
}

/// AuthenticationOk, the parameters a pooler looks at, a key, ReadyForQuery.
#[must_use]
pub fn welcome() -> Vec<u8> {
    [authenticated(), parameters(), key(&[0, 0, 16, 1, 1, 2, 3, 4]), ready()].concat()
}

#[must_use]
pub fn authenticated() -> Vec<u8> {
    say::message(b'R', &[0, 0, 0, 0])
}

#[must_use]
pub fn parameters() -> Vec<u8> {
    let known = [
        ("server_version", "15.0"),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("TimeZone", "UTC"),
        ("IntervalStyle", "postgres"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("application_name", ""),
    ];
    known.iter().flat_map(|(name, value)| parameter(name, value)).collect()
}

#[must_use]
pub fn parameter(name: &str, value: &str) -> Vec<u8> {
    say::message(b'S', &[say::text(name), say::text(value)].concat())
}

/// Process number and secret.
#[must_use]
pub fn key(key: &[u8]) -> Vec<u8> {
    say::message(b'K', key)
}

#[must_use]
pub fn ready() -> Vec<u8> {
    say::message(b'Z', b"I")
}

/// To a Parse, Bind and Execute of BEGIN.
#[must_use]
pub fn began() -> Vec<u8> {
    [say::message(b'1', b""), say::message(b'2', b""), say::message(b'C', b"BEGIN\0")].concat()
}

#[must_use]
pub fn notice(text: &str) -> Vec<u8> {
    say::message(b'N', &fields(&[(b'S', "NOTICE"), (b'C', "00000"), (b'M', text)]))
}

#[must_use]
pub fn error(severity: &str, code: &str, text: &str) -> Vec<u8> {
    say::message(b'E', &fields(&[(b'S', severity), (b'V', severity), (b'C', code), (b'M', text)]))
}

#[must_use]
pub fn fields(fields: &[(u8, &str)]) -> Vec<u8> {
    let mut body: Vec<u8> =
        fields.iter().flat_map(|(code, value)| [vec![*code], say::text(value)].concat()).collect();
    body.push(0);
    body
}

/// RowDescription, one row of one text column, CommandComplete, ReadyForQuery.
#[must_use]
pub fn answer(cell: &str) -> Vec<u8> {
    let mut column = 1_u16.to_be_bytes().to_vec();
    column.extend(say::text("said"));
    column.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    let mut row = 1_u16.to_be_bytes().to_vec();
    row.extend(u32::try_from(cell.len()).expect("short").to_be_bytes());
    row.extend(cell.as_bytes());
    [
        say::message(b'T', &column),
        say::message(b'D', &row),
        say::message(b'C', &say::text("SELECT 1")),
        ready(),
    ]
    .concat()
}
