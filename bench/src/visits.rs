//! A sample of clients that dial, log in, ask one thing and leave: what a visit costs the pooler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use hdrhistogram::Histogram;

use crate::canned::{Conditions, Reading, Scene, Special};
use crate::certificate::{self, Key};
use crate::client::DATABASE;
use crate::load::{Tally, Turnout};
use crate::pooler::{Kind, Pooler};
use crate::process;
use crate::sample::Sample;
use crate::tidy::Folder;
use crate::visitor::{Errand, Visitor};

/// How visitors come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    Plain,
    /// TLS, a new session each time.
    Tls(Key),
    /// TLS, with the session of an earlier visit.
    Resumed(Key),
}

impl Manner {
    pub const ALL: [(&str, Self); 5] = [
        ("plain", Self::Plain),
        ("tls", Self::Tls(Key::P256)),
        ("resumed", Self::Resumed(Key::P256)),
        ("tls-rsa", Self::Tls(Key::Rsa2048)),
        ("resumed-rsa", Self::Resumed(Key::Rsa2048)),
    ];

    /// What an ini says of it. Files go to `folder`.
    pub fn lines(self, folder: &Folder) -> anyhow::Result<String> {
        match self {
            Self::Plain => Ok(String::new()),
            Self::Tls(key) | Self::Resumed(key) => certificate::lines(folder.path(), key),
        }
    }

    pub fn errand(self, port: u16) -> anyhow::Result<Errand> {
        let mut errand = Errand::to(port, DATABASE);
        errand.tls = match self {
            Self::Plain => None,
            Self::Tls(_) => Some(certificate::client(false)?),
            Self::Resumed(_) => Some(certificate::client(true)?),
        };
        Ok(errand)
    }
}

const WARM_UP: Duration = Duration::from_millis(500);

/// One fresh process, one measurement.
pub fn sample(pooler: &Pooler, conditions: &Conditions, manner: Manner) -> anyhow::Result<Sample> {
    if manner != Manner::Plain && !matches!(pooler.kind, Kind::Ini { .. }) {
        bail!("knows no TLS");
    }
    let folder = Folder::new("howdah-visits-")?;
    process::give_to_servant(folder.path())?;
    let special = Special { lines: manner.lines(&folder)?, ..Special::default() };
    let scene = Scene::with(pooler, conditions, 0, &special)?;
    let port = scene.listen.port();
    let over = AtomicBool::new(false);
    let counting = AtomicBool::new(false);
    let length = Duration::from_secs_f64(conditions.seconds);
    thread::scope(|scope| {
        let visit = || come_and_go(port, manner, &over, &counting);
        let threads: Vec<_> = (0..conditions.clients).map(|_| scope.spawn(visit)).collect();
        thread::sleep(WARM_UP);
        counting.store(true, Ordering::Relaxed);
        let before = Reading::take(&scene)?;
        thread::sleep(length);
        let after = Reading::take(&scene)?;
        over.store(true, Ordering::Relaxed);
        let mut tallies = Vec::new();
        for thread in threads {
            tallies.push(thread.join().map_err(|_| anyhow!("a visitor panicked"))??);
        }
        Ok(before.until(&after, &tallies, length))
    })
}

fn come_and_go(
    port: u16,
    manner: Manner,
    over: &AtomicBool,
    counting: &AtomicBool,
) -> anyhow::Result<Tally> {
    process::pin(&process::cores()?[..1])?;
    // Each remembers its own sessions, as programs do.
    let errand = manner.errand(port)?;
    let mut tally = Tally { latency_ns: Histogram::new(3)?, per_client: Vec::new() };
    let mut turnout = Turnout::default();
    let mut visits = 0;
    while !over.load(Ordering::Relaxed) {
        let counts = counting.load(Ordering::Relaxed);
        let since = Instant::now();
        let mut visitor = Visitor::call(&errand)?;
        let resumes = matches!(manner, Manner::Resumed(_));
        if resumes && visits > 0 && !visitor.has_resumed() {
            bail!("its sessions cannot be resumed");
        }
        let reply = visitor.ask("SELECT 1;")?;
        if reply.values != [b"12345"] {
            bail!("a visitor got {reply:?}");
        }
        visitor.leave()?;
        visits += 1;
        let took = since.elapsed();
        if counts && !over.load(Ordering::Relaxed) {
            turnout.transactions += 1;
            turnout.longest = turnout.longest.max(took);
            tally.latency_ns.record(u64::try_from(took.as_nanos())?)?;
        }
    }
    tally.per_client.push(turnout);
    Ok(tally)
}
