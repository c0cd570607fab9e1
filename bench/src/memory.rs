//! Resident memory per idle client.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::canned::{Conditions, Scene, Special};
use crate::certificate::Key;
use crate::pooler::{Kind, Pooler};
use crate::process;
use crate::tidy::Folder;
use crate::visitor::Visitor;
use crate::visits::Manner;

/// Bytes per client, over what the pooler holds with none.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// All logged in, none has asked anything.
    pub logged_in: f64,
    /// Each has had one transaction, and is idle again.
    pub served: f64,
    /// The whole process with no client, for scale.
    pub empty_bytes: u64,
}

/// Long enough for a pooler's own housekeeping to give back what it will.
const SETTLE: Duration = Duration::from_secs(2);

pub fn weigh(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<Weight> {
    // One after the other, or the peak of a stampede would be weighed, not idleness.
    let conditions = &Conditions { at_once: conditions.pool, ..conditions.clone() };
    let few = Conditions { clients: 20, ..conditions.clone() };
    let clients = conditions.clients;
    if clients <= 2 * few.clients {
        bail!("too few clients to tell their memory from the rest");
    }
    // What the first clients bring about is not theirs alone: so the base has a few of them.
    let base = readings(pooler, &few)?;
    let full = readings(pooler, conditions)?;
    let per_client =
        |from: u64, to: u64| (to as f64 - from as f64) / (clients - few.clients) as f64;
    Ok(Weight {
        logged_in: per_client(base.0, full.0),
        served: per_client(base.1, full.1),
        empty_bytes: base.0,
    })
}

/// Resident bytes per client with TLS, once each of them has asked something.
pub fn weigh_sealed(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<f64> {
    let few = 20;
    let base = sealed(pooler, conditions, few)?;
    let full = sealed(pooler, conditions, conditions.clients)?;
    Ok((full as f64 - base as f64) / (conditions.clients - few) as f64)
}

/// Resident bytes with so many clients, one after the other, all of which stay.
fn sealed(pooler: &Pooler, conditions: &Conditions, clients: usize) -> anyhow::Result<u64> {
    if !matches!(pooler.kind, Kind::Ini { .. }) {
        bail!("knows no TLS");
    }
    let manner = Manner::Tls(Key::P256);
    let folder = Folder::new("howdah-memory-")?;
    process::give_to_servant(folder.path())?;
    let special = Special { lines: manner.lines(&folder)?, ..Special::default() };
    let scene = Scene::with(pooler, conditions, 0, &special)?;
    let errand = manner.errand(scene.listen.port())?;
    let mut visitors = Vec::new();
    for _ in 0..clients {
        let mut visitor = Visitor::call(&errand)?;
        visitor.ask("SELECT 1;")?;
        visitors.push(visitor);
    }
    thread::sleep(SETTLE);
    let resident = scene.pooler.resident_bytes()?;
    scene.strike()?;
    Ok(resident)
}

/// Resident bytes with all clients logged in, and after a transaction of each.
fn readings(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<(u64, u64)> {
    let scene = Scene::set(pooler, conditions)?;
    thread::sleep(SETTLE);
    let logged_in = scene.pooler.resident_bytes()?;
    scene.stage.allowed.store(1, Ordering::Relaxed);
    let since = Instant::now();
    while scene.stage.transactions.load(Ordering::Relaxed) < conditions.clients as u64 {
        if since.elapsed() > Duration::from_secs(30) {
            bail!("not every client was served");
        }
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(SETTLE);
    let served = scene.pooler.resident_bytes()?;
    scene.strike()?;
    Ok((logged_in, served))
}
