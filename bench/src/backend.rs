//! The canned backend: one server connection's side of PostgreSQL, with every answer prepared.
//!
//! It keeps as much of the rules as a pooler can notice: transaction status, statement names, and
//! skipping to the next Sync after an error.

use std::collections::HashMap;

use crate::frames::{Frame, Frames, Lost, put};

/// One connection. Bytes in, answer out; no socket.
#[derive(Default)]
pub struct Backend {
    frames: Frames,
    phase: Phase,
    in_transaction: bool,
    /// By name; what is run decides the transaction status.
    statements: HashMap<Vec<u8>, Kind>,
    bound: Kind,
}

/// The other end has left, or is not to be understood. Hang up.
#[derive(Debug, Eq, PartialEq)]
pub struct Gone;

impl From<Lost> for Gone {
    fn from(_: Lost) -> Self {
        Self
    }
}

#[derive(Clone, Copy, Default, Eq, PartialEq)]
enum Phase {
    #[default]
    Startup,
    Ready,
    /// An error was said; everything up to Sync is skipped.
    Skipping,
}

#[derive(Clone, Copy, Default)]
enum Kind {
    #[default]
    Select,
    Begin,
    End,
    Other(&'static str),
    /// How the session is set, as a pooler that follows sessions asks.
    Session,
    /// What Pgpool-II wants to know first.
    Version,
    Empty,
}

/// What the rig's clients ask: `pgbench -S`, in effect.
pub const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;";
const PROTOCOL_3: u32 = 3 << 16;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const PARAMETERS: [(&str, &str); 9] = [
    ("server_version", "15.0"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("application_name", ""),
    ("is_superuser", "off"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("standard_conforming_strings", "on"),
];
/// One column of type int4: name, table, column, type, size, modifier, format.
const ROW_DESCRIPTION: &[u8] =
    b"T\0\0\0\x21\0\x01abalance\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
/// That nothing is set and no role taken, by the user we all are: the rows of a fresh PostgreSQL.
const SESSION: [[&[u8]; 2]; 2] =
    [[b"\0\0\0\x01r", b"\0\0\0\x086e6f6e65"], [b"\0\0\0\x01u", b"\0\0\0\x0a62656e6368"]];
/// How a question after the session begins.
const SESSION_QUERY: &[u8] = b"SELECT 's'::pg_catalog.text,";
const DATA_ROW: &[u8] = b"D\0\0\0\x0f\0\x01\0\0\0\x0512345";

impl Backend {
    /// Appends to `out` what PostgreSQL would say to `bytes`.
    pub fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Gone> {
        if self.phase == Phase::Startup {
            return self.startup(bytes, out);
        }
        let mut frames = std::mem::take(&mut self.frames);
        let heard = frames.cut(bytes, |frame| self.message(frame, out));
        self.frames = frames;
        heard
    }

    fn startup(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Gone> {
        let Some(packet) = self.frames.startup(bytes)? else { return Ok(()) };
        let code = packet.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
        match code {
            SSL_REQUEST | GSS_REQUEST => out.push(b'N'),
            _ if code & 0xffff_0000 == PROTOCOL_3 => self.welcome(out),
            _ => return Err(Gone),
        }
        Ok(())
    }

    fn welcome(&mut self, out: &mut Vec<u8>) {
        self.phase = Phase::Ready;
        put(out, b'R', &0_u32.to_be_bytes());
        for (name, value) in PARAMETERS {
            put(out, b'S', format!("{name}\0{value}\0").as_bytes());
        }
        put(out, b'K', &[0, 0, 0, 1, 0, 0, 0, 2]);
        self.ready(out);
    }

    fn message(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<(), Gone> {
        if self.phase == Phase::Skipping && !matches!(frame.tag, b'S' | b'X') {
            return Ok(());
        }
        match frame.tag {
            b'Q' => self.query(frame.body, out),
            b'P' => self.parse(frame.body, out),
            b'B' => self.bind(frame.body, out),
            b'D' => describe(frame.body, out),
            b'E' => self.run(self.bound, Rows::Bare, out),
            b'C' => {
                if let Some((b'S', name)) = frame.body.split_first() {
                    self.statements.remove(text(name));
                }
                out.extend_from_slice(b"3\0\0\0\x04");
            }
            b'S' => {
                self.phase = Phase::Ready;
                self.ready(out);
            }
            b'H' => {}
            _ => return Err(Gone),
        }
        Ok(())
    }

    fn query(&mut self, body: &[u8], out: &mut Vec<u8>) {
        self.run(kind(text(body)), Rows::Described, out);
        self.ready(out);
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) {
        let name = text(body);
        if !name.is_empty() && self.statements.contains_key(name) {
            return self.refuse("42P05", "prepared statement already exists", out);
        }
        let query = text(&body[(name.len() + 1).min(body.len())..]);
        self.statements.insert(name.to_vec(), kind(query));
        out.extend_from_slice(b"1\0\0\0\x04");
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) {
        let portal = text(body);
        let name = text(&body[(portal.len() + 1).min(body.len())..]);
        match self.statements.get(name) {
            Some(kind) => {
                self.bound = *kind;
                out.extend_from_slice(b"2\0\0\0\x04");
            }
            None => self.refuse("26000", "prepared statement does not exist", out),
        }
    }

    fn run(&mut self, kind: Kind, rows: Rows, out: &mut Vec<u8>) {
        let tag = match kind {
            Kind::Select => {
                if rows == Rows::Described {
                    out.extend_from_slice(ROW_DESCRIPTION);
                }
                out.extend_from_slice(DATA_ROW);
                "SELECT 1\0"
            }
            Kind::Begin => {
                self.in_transaction = true;
                "BEGIN\0"
            }
            Kind::End => {
                self.in_transaction = false;
                "COMMIT\0"
            }
            Kind::Other(tag) => {
                if tag == "DISCARD ALL\0" {
                    self.statements.clear();
                }
                tag
            }
            Kind::Session => {
                for [what, value] in SESSION {
                    put(out, b'D', &[b"\0\x03", what, b"\0\0\0\0", value].concat());
                }
                "SELECT 2\0"
            }
            Kind::Version => {
                out.extend_from_slice(ROW_DESCRIPTION);
                put(out, b'D', b"\0\x01\0\0\0\x1fPostgreSQL 15.0 on this machine");
                "SELECT 1\0"
            }
            Kind::Empty => return out.extend_from_slice(b"I\0\0\0\x04"),
        };
        put(out, b'C', tag.as_bytes());
    }

    fn refuse(&mut self, code: &str, message: &str, out: &mut Vec<u8>) {
        self.phase = Phase::Skipping;
        put(out, b'E', format!("SERROR\0VERROR\0C{code}\0M{message}\0\0").as_bytes());
    }

    fn ready(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Z\0\0\0\x05");
        out.push(if self.in_transaction { b'T' } else { b'I' });
    }
}

/// A simple query's rows come with their description.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Rows {
    Described,
    Bare,
}

fn describe(body: &[u8], out: &mut Vec<u8>) {
    if body.first() == Some(&b'S') {
        put(out, b't', &[0, 0]);
    }
    out.extend_from_slice(ROW_DESCRIPTION);
}

fn kind(query: &[u8]) -> Kind {
    const TABLE: [(&[u8], Kind); 10] = [
        (b"SELECT version()", Kind::Version),
        (SESSION_QUERY, Kind::Session),
        (b"SELECT", Kind::Select),
        (b"BEGIN", Kind::Begin),
        (b"COMMIT", Kind::End),
        (b"END", Kind::End),
        (b"ROLLBACK", Kind::End),
        (b"SET", Kind::Other("SET\0")),
        (b"DISCARD", Kind::Other("DISCARD ALL\0")),
        (b"DEALLOCATE", Kind::Other("DEALLOCATE\0")),
    ];
    let query = query.trim_ascii();
    let starts =
        |word: &[u8]| query.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if query.is_empty() || query == b";" {
        return Kind::Empty;
    }
    TABLE.iter().find(|(word, _)| starts(word)).map_or(Kind::Select, |(_, kind)| *kind)
}

/// Up to the terminating zero.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged_in() -> Backend {
        let mut backend = Backend::default();
        let mut out = Vec::new();
        backend.hear(b"\0\0\0\x08\0\x03\0\0", &mut out).expect("a startup packet");
        assert_eq!(out.last_chunk(), Some(b"Z\0\0\0\x05I"));
        backend
    }

    fn tags(bytes: &[u8]) -> String {
        let mut tags = String::new();
        let cut = Frames::default().cut(bytes, |frame| {
            tags.push(char::from(frame.tag));
            if frame.tag == b'Z' {
                tags.push(char::from(frame.body[0]));
            }
            Ok::<(), Lost>(())
        });
        cut.expect("what we say is well formed");
        tags
    }

    fn say(backend: &mut Backend, messages: &[(u8, &[u8])]) -> String {
        let mut bytes = Vec::new();
        for (tag, body) in messages {
            put(&mut bytes, *tag, body);
        }
        let mut out = Vec::new();
        backend.hear(&bytes, &mut out).expect("nobody left");
        tags(&out)
    }

    #[test]
    fn a_transaction_is_told_from_its_end() {
        let mut backend = logged_in();
        assert_eq!(say(&mut backend, &[(b'Q', b"BEGIN\0")]), "CZT");
        assert_eq!(say(&mut backend, &[(b'Q', b"SELECT 1\0")]), "TDCZT");
        assert_eq!(say(&mut backend, &[(b'Q', b"commit\0")]), "CZI");
        assert_eq!(say(&mut backend, &[(b'Q', b"\0")]), "IZI");
    }

    #[test]
    fn a_wrong_name_is_refused_and_the_rest_skipped_until_sync() {
        let mut backend = logged_in();
        let bind: &[u8] = b"\0nobody\0\0\0\0\0\0\0";
        let wrong = [(b'B', bind), (b'E', b"\0\0\0\0\0".as_slice()), (b'S', b"")];
        assert_eq!(say(&mut backend, &wrong), "EZI");
        let right = [(b'P', b"nobody\0SELECT 1\0\0\0".as_slice()), wrong[0], wrong[1], wrong[2]];
        assert_eq!(say(&mut backend, &right), "12DCZI");
        assert_eq!(say(&mut backend, &right), "EZI", "the name is taken");
    }
}
