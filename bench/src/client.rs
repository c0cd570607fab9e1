//! One client of the load: logs in, says its script, and knows a wrong answer from a right one.

use std::time::Instant;

use md5::{Digest, Md5};

use crate::frames::{Frame, Frames, Lost, put};
use crate::script::{Script, Step};

/// Bytes in, bytes out; no socket, no clock.
pub struct Client {
    frames: Frames,
    phase: Phase,
    heard_bytes: usize,
    /// When the transaction, or the dial before it, began.
    pub since: Instant,
}

/// Where a client stands after what it heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Heard {
    More,
    /// Logged in and done with the prologue.
    Ready,
    /// A transaction is over.
    Done,
}

/// Not the answer that PostgreSQL would have given.
#[derive(Debug, Eq, PartialEq)]
pub struct Wrong(pub String);

impl From<Lost> for Wrong {
    fn from(_: Lost) -> Self {
        Self("a message with an impossible length".into())
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    Login,
    Prologue,
    Idle,
    Step(usize),
}

pub const USER: &str = "bench";
pub const PASSWORD: &str = "bench";
pub const DATABASE: &str = "bench";

impl Client {
    /// A client that has just been told to dial.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { frames: Frames::default(), phase: Phase::Login, heard_bytes: 0, since: now }
    }

    /// The connection is up.
    pub fn greet(out: &mut Vec<u8>) {
        let body = format!("\0\x03\0\0user\0{USER}\0database\0{DATABASE}\0\0");
        let length = u32::try_from(body.len() + 4).expect("two short names");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(body.as_bytes());
    }

    /// Starts the next transaction.
    pub fn begin(&mut self, script: &Script, now: Instant, out: &mut Vec<u8>) {
        self.since = now;
        self.enter(Phase::Step(0), script, out);
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    pub fn hear(
        &mut self,
        bytes: &[u8],
        script: &Script,
        out: &mut Vec<u8>,
    ) -> Result<Heard, Wrong> {
        let mut frames = std::mem::take(&mut self.frames);
        let mut last = Heard::More;
        let cut = frames.cut(bytes, |frame| {
            last = self.message(frame, script, out)?;
            Ok::<(), Wrong>(())
        });
        self.frames = frames;
        cut.map(|()| last)
    }

    fn message(
        &mut self,
        frame: Frame<'_>,
        script: &Script,
        out: &mut Vec<u8>,
    ) -> Result<Heard, Wrong> {
        match (frame.tag, self.phase) {
            (b'E', _) => return Err(Wrong(String::from_utf8_lossy(frame.body).replace('\0', " "))),
            (b'N' | b'S', _) => return Ok(Heard::More),
            (b'R', Phase::Login) => {
                return prove(frame.body, out).map(|()| Heard::More);
            }
            (b'K', Phase::Login) => return Ok(Heard::More),
            (b'Z', Phase::Login) => {}
            (tag, Phase::Login | Phase::Idle) => {
                return Err(Wrong(format!("a {:?} that nobody asked for", char::from(tag))));
            }
            _ => self.heard_bytes += 5 + frame.body.len(),
        }
        if frame.tag == b'Z' { self.ready(script, out) } else { Ok(Heard::More) }
    }

    fn ready(&mut self, script: &Script, out: &mut Vec<u8>) -> Result<Heard, Wrong> {
        match self.phase {
            Phase::Login if script.prologue.is_some() => {
                self.enter(Phase::Prologue, script, out);
                Ok(Heard::More)
            }
            Phase::Login | Phase::Idle => {
                self.phase = Phase::Idle;
                Ok(Heard::Ready)
            }
            Phase::Prologue => {
                let step = script.prologue.as_ref();
                self.compare(step.expect("the prologue was said"))?;
                self.phase = Phase::Idle;
                Ok(Heard::Ready)
            }
            Phase::Step(index) => {
                self.compare(&script.steps[index])?;
                if index + 1 < script.steps.len() {
                    self.enter(Phase::Step(index + 1), script, out);
                    return Ok(Heard::More);
                }
                self.phase = Phase::Idle;
                Ok(Heard::Done)
            }
        }
    }

    fn enter(&mut self, phase: Phase, script: &Script, out: &mut Vec<u8>) {
        self.phase = phase;
        self.heard_bytes = 0;
        match phase {
            Phase::Prologue => {
                out.extend_from_slice(script.prologue.as_ref().map_or(&[], |step| &step.request));
            }
            Phase::Step(index) => out.extend_from_slice(&script.steps[index].request),
            Phase::Login | Phase::Idle => {}
        }
    }

    fn compare(&self, step: &Step) -> Result<(), Wrong> {
        if self.heard_bytes == step.reply_bytes {
            return Ok(());
        }
        let (heard, right) = (self.heard_bytes, step.reply_bytes);
        Err(Wrong(format!("an answer of {heard} bytes where {right} are right")))
    }
}

/// Answers an authentication request.
fn prove(body: &[u8], out: &mut Vec<u8>) -> Result<(), Wrong> {
    let (code, rest) = body.split_first_chunk::<4>().ok_or(Lost)?;
    match u32::from_be_bytes(*code) {
        0 => Ok(()),
        3 => {
            put(out, b'p', format!("{PASSWORD}\0").as_bytes());
            Ok(())
        }
        5 => {
            let salted = [hex(&[PASSWORD, USER].concat().into_bytes()).as_bytes(), rest].concat();
            put(out, b'p', format!("md5{}\0", hex(&salted)).as_bytes());
            Ok(())
        }
        other => Err(Wrong(format!("authentication {other}, which the load does not know"))),
    }
}

fn hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::script::Workload;

    /// Client and backend on a wire of one byte at a time, until the client says what it is.
    fn converse(
        client: &mut Client,
        backend: &mut Backend,
        script: &Script,
        said: Vec<u8>,
    ) -> Heard {
        let mut to_backend = said;
        loop {
            let mut to_client = Vec::new();
            for byte in to_backend.drain(..) {
                backend.hear(&[byte], &mut to_client).expect("nobody hangs up");
            }
            let mut last = Heard::More;
            for byte in to_client {
                last = client.hear(&[byte], script, &mut to_backend).expect("right answers");
            }
            if last != Heard::More {
                return last;
            }
        }
    }

    #[test]
    fn every_script_runs_twice_against_the_backend() {
        for (name, workload) in Workload::ALL {
            let script = workload.script();
            let now = Instant::now();
            let (mut client, mut backend) = (Client::new(now), Backend::default());
            let mut out = Vec::new();
            Client::greet(&mut out);
            assert_eq!(converse(&mut client, &mut backend, &script, out), Heard::Ready, "{name}");
            for _ in 0..2 {
                let mut out = Vec::new();
                client.begin(&script, now, &mut out);
                assert_eq!(
                    converse(&mut client, &mut backend, &script, out),
                    Heard::Done,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn somebody_elses_answer_is_noticed() {
        let script = Workload::Simple.script();
        let mut client = Client::new(Instant::now());
        client.hear(b"Z\0\0\0\x05I", &script, &mut Vec::new()).expect("logged in");
        client.begin(&script, Instant::now(), &mut Vec::new());
        let wrong = client.hear(b"I\0\0\0\x04Z\0\0\0\x05I", &script, &mut Vec::new());
        assert!(wrong.is_err());
    }
}
