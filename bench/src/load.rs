//! The load: clients and canned backends together in one thread, around one ring.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use hdrhistogram::Histogram;
use socket2::Socket;

use crate::address::{self, Address};
use crate::backend::Backend;
use crate::client::{Client, Heard};
use crate::ring::{Done, Lease, Payload, Ring};
use crate::script::{Life, Script};

/// What one thread is to do.
pub struct Plan {
    pub clients: usize,
    /// How many may dial the backend, at most.
    pub servers: usize,
    pub script: Script,
    /// Whom the clients dial: the pooler, or the backend itself.
    pub target: Address,
    pub backend: Address,
    /// How many transactions may be under way together.
    pub at_once: usize,
}

/// What main and the load's threads tell each other.
#[derive(Default)]
pub struct Stage {
    /// Main: the pooler is there, dial.
    pub open: AtomicBool,
    /// Load: so many clients are logged in.
    pub ready: AtomicUsize,
    /// Main: transactions that each client may begin. Raised from 0 once all are ready.
    pub allowed: AtomicU64,
    /// Main: what ends in here counts.
    pub window: OnceLock<(Instant, Instant)>,
    /// Load: transactions since the start, in the window or not.
    pub transactions: AtomicU64,
    /// Main: that was all.
    pub over: AtomicBool,
}

/// What was seen in the window.
pub struct Tally {
    pub latency_ns: Histogram<u64>,
    pub per_client: Vec<Turnout>,
}

#[derive(Clone, Copy, Default)]
pub struct Turnout {
    pub transactions: u64,
    pub longest: Duration,
}

/// Runs `plan` until `stage` says it is over.
pub fn run(plan: Plan, listener: &Socket, stage: &Stage) -> anyhow::Result<Tally> {
    let lines = u32::try_from(plan.clients + plan.servers + 64).context("too many clients")?;
    let mut ring = Ring::new(lines, 4_096).context("io_uring is needed for the load")?;
    ring.set_target(plan.target.resolve()?);
    ring.accept(listener);
    let mut load = Load {
        ring,
        stage,
        script: plan.script,
        target: plan.target,
        backend: plan.backend,
        ends: (0..lines).map(|_| None).collect(),
        begun: vec![0; plan.clients],
        dialled: 0,
        logging_in: 0,
        allowed: 0,
        at_once: plan.at_once,
        under_way: 0,
        behind: false,
        now: Instant::now(),
        tally: Tally {
            latency_ns: Histogram::new(3)?,
            per_client: vec![Turnout::default(); plan.clients],
        },
    };
    let mut done = Vec::new();
    while !stage.over.load(Ordering::Relaxed) {
        load.ring.turn(Duration::from_millis(20), &mut done)?;
        load.now = Instant::now();
        for event in done.drain(..) {
            load.handle(event)?;
        }
        load.follow_stage()?;
    }
    Ok(load.tally)
}

/// A storm of dials would only measure the listen backlog.
const LOGGING_IN_MAX: usize = 64;

struct Load<'a> {
    ring: Ring,
    stage: &'a Stage,
    script: Script,
    target: Address,
    backend: Address,
    /// By line.
    ends: Vec<Option<End>>,
    /// Transactions begun, by client.
    begun: Vec<u64>,
    /// Clients that have dialled for the first time.
    dialled: usize,
    logging_in: usize,
    /// The stage's, as last seen.
    allowed: u64,
    at_once: usize,
    under_way: usize,
    /// Some client may begin, and was not told so yet.
    behind: bool,
    now: Instant,
    tally: Tally,
}

/// One connection of ours.
struct End {
    role: Role,
    /// Said, and not yet handed to the ring because it is still sending.
    out: Vec<u8>,
}

enum Role {
    Client { index: usize, client: Client },
    Backend(Backend),
}

impl Load<'_> {
    fn handle(&mut self, event: Done) -> anyhow::Result<()> {
        match event {
            Done::Accepted { socket } => {
                self.backend.quicken(&socket)?;
                let line = self.ring.adopt(socket)?;
                self.seat(line, Role::Backend(Backend::default()));
            }
            Done::Connected { line } => {
                if let Some(end) = &mut self.ends[line as usize] {
                    Client::greet(&mut end.out);
                }
                self.flush(line);
            }
            Done::Received { line, lease } => self.received(line, lease)?,
            Done::Sent { line, payload } => self.sent(line, payload),
            Done::Ended { line } => self.ended(line)?,
        }
        Ok(())
    }

    fn seat(&mut self, line: u32, role: Role) {
        self.ends[line as usize] = Some(End { role, out: Vec::new() });
    }

    fn received(&mut self, line: u32, lease: Lease) -> anyhow::Result<()> {
        let bytes = self.ring.bytes(&lease);
        let mut heard = Heard::More;
        let mut gone = false;
        if let Some(End { role, out }) = &mut self.ends[line as usize] {
            match role {
                Role::Backend(backend) => gone = backend.hear(bytes, out).is_err(),
                Role::Client { client, .. } => {
                    let wrong = |wrong: crate::client::Wrong| anyhow!("a client got {}", wrong.0);
                    heard = client.hear(bytes, &self.script, out).map_err(wrong)?;
                }
            }
        }
        self.ring.give_back(lease);
        match heard {
            Heard::More => {}
            Heard::Ready => {
                self.logging_in -= 1;
                self.stage.ready.fetch_add(1, Ordering::Relaxed);
                self.proceed(line);
            }
            Heard::Done => {
                self.under_way -= 1;
                self.count(line)?;
                self.part_or_proceed(line);
            }
        }
        if gone {
            self.ends[line as usize] = None;
            self.ring.close(line);
        } else {
            self.flush(line);
        }
        Ok(())
    }

    fn sent(&mut self, line: u32, payload: Payload) {
        // The allocation goes round: what was sent is what is written to next.
        if let (Payload::Owned(mut spare), Some(end)) = (payload, &mut self.ends[line as usize]) {
            spare.clear();
            if end.out.is_empty() {
                end.out = spare;
            } else {
                let full = std::mem::replace(&mut end.out, spare);
                self.ring.send(line, Payload::Owned(full));
            }
        }
    }

    fn flush(&mut self, line: u32) {
        if let Some(end) = &mut self.ends[line as usize]
            && !end.out.is_empty()
            && !self.ring.is_sending(line)
        {
            self.ring.send(line, Payload::Owned(std::mem::take(&mut end.out)));
        }
    }

    fn ended(&mut self, line: u32) -> anyhow::Result<()> {
        let end = self.ends[line as usize].take();
        self.ring.close(line);
        match end {
            Some(End { role: Role::Client { index, client }, .. }) => {
                if self.script.life == Life::Stays || !client.is_idle() {
                    bail!("a client was hung up on");
                }
                self.dial(index)
            }
            _ => Ok(()),
        }
    }

    /// `line`'s client finished a transaction.
    fn count(&mut self, line: u32) -> anyhow::Result<()> {
        let Some(End { role: Role::Client { index, client }, .. }) = &self.ends[line as usize]
        else {
            return Ok(());
        };
        self.stage.transactions.fetch_add(1, Ordering::Relaxed);
        let counts = |(from, to): &(Instant, Instant)| *from <= self.now && self.now < *to;
        if self.stage.window.get().is_some_and(counts) {
            let took = self.now.saturating_duration_since(client.since);
            let turnout = &mut self.tally.per_client[*index];
            turnout.transactions += 1;
            turnout.longest = turnout.longest.max(took);
            let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.tally.latency_ns.record(took_ns)?;
        }
        Ok(())
    }

    fn part_or_proceed(&mut self, line: u32) {
        match self.script.life {
            Life::Stays => self.proceed(line),
            // Terminate; the pooler hangs up, and then the client dials again.
            Life::OneTransaction => {
                if let Some(end) = &mut self.ends[line as usize] {
                    end.out.extend_from_slice(b"X\0\0\0\x04");
                }
            }
        }
    }

    fn proceed(&mut self, line: u32) {
        if let Some(End { role: Role::Client { index, client }, out }) =
            &mut self.ends[line as usize]
            && self.begun[*index] < self.allowed
        {
            if self.under_way == self.at_once {
                self.behind = true;
                return;
            }
            self.under_way += 1;
            let first = self.script.life == Life::Stays || self.begun[*index] == 0;
            // A client that dials anew has waited since it dialled.
            let since = if first { self.now } else { client.since };
            self.begun[*index] += 1;
            client.begin(&self.script, since, out);
        }
    }

    fn dial(&mut self, index: usize) -> anyhow::Result<()> {
        let line = self.ring.dial(address::socket_for(&self.target)?)?;
        self.seat(line, Role::Client { index, client: Client::new(self.now) });
        self.logging_in += 1;
        Ok(())
    }

    fn follow_stage(&mut self) -> anyhow::Result<()> {
        if self.stage.open.load(Ordering::Relaxed) {
            while self.dialled < self.begun.len() && self.logging_in < LOGGING_IN_MAX {
                self.dial(self.dialled)?;
                self.dialled += 1;
            }
        }
        let allowed = self.stage.allowed.load(Ordering::Relaxed);
        self.behind |= allowed != self.allowed;
        self.allowed = allowed;
        if std::mem::take(&mut self.behind) {
            for line in 0..self.ends.len() as u32 {
                let idle = matches!(&self.ends[line as usize],
                    Some(End { role: Role::Client { client, .. }, .. }) if client.is_idle());
                if idle {
                    self.proceed(line);
                    self.flush(line);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::floor;
    use crate::script::Workload;

    const CLIENTS: usize = 10;
    const EACH: u64 = 3;

    /// Whether every client got what it asked for, `EACH` times.
    fn play(workload: Workload, target: Address, backend: Address) -> u64 {
        let stage = Arc::new(Stage::default());
        let listener = address::listen(&backend).expect("a free port");
        let script = workload.script();
        let plan = Plan {
            clients: CLIENTS,
            servers: CLIENTS,
            script,
            target,
            backend,
            at_once: usize::MAX,
        };
        let theirs = Arc::clone(&stage);
        let load = thread::spawn(move || run(plan, &listener, &theirs));
        stage.allowed.store(EACH, Ordering::Relaxed);
        stage.open.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let transactions = || stage.transactions.load(Ordering::Relaxed);
        while transactions() < EACH * CLIENTS as u64 && !load.is_finished() {
            assert!(since.elapsed() < Duration::from_secs(60), "the load stands still");
            thread::yield_now();
        }
        stage.over.store(true, Ordering::Relaxed);
        load.join().expect("no panic").expect("right answers only");
        transactions()
    }

    fn tcp() -> Address {
        Address::Tcp { port: address::free_port().expect("a free port") }
    }

    /// Where it is forbidden, nothing of the rig can run.
    fn has_io_uring() -> bool {
        let has = Ring::new(8, 8).is_ok();
        if !has {
            eprintln!("io_uring is not to be had here: not tested");
        }
        has
    }

    #[test]
    fn clients_and_canned_backend_understand_each_other() {
        for (name, workload) in Workload::ALL {
            if has_io_uring() {
                let server = tcp();
                assert_eq!(play(workload, server.clone(), server), EACH * CLIENTS as u64, "{name}");
            }
        }
    }

    #[test]
    fn the_floor_forwards_whatever_is_said() {
        for (name, workload) in Workload::ALL {
            if has_io_uring() {
                let (listen, server) = (tcp(), tcp());
                let (here, there) = (listen.clone(), server.clone());
                // It has no end; the test process takes it along.
                thread::spawn(move || floor::run(&here, &there, 64));
                while std::net::TcpStream::connect(("127.0.0.1", listen.port())).is_err() {
                    thread::yield_now();
                }
                assert_eq!(play(workload, listen, server), EACH * CLIENTS as u64, "{name}");
            }
        }
    }
}
