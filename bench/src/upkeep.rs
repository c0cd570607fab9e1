//! What an idle pooler with very many pools costs: its housekeeping.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::canned::{Conditions, Scene, Special};
use crate::pooler::Pooler;
use crate::visitor::{Errand, Visitor};

/// An idle second.
#[derive(Clone, Copy, Debug)]
pub struct Upkeep {
    /// CPU time per second of idling.
    pub ms_per_second: f64,
    /// Of the whole process.
    pub resident_bytes: u64,
}

/// `databases` in the ini, each of them a pool once somebody comes; `used` of them have a client and
/// a server. Both are idle while it is measured.
pub fn weigh(
    pooler: &Pooler,
    conditions: &Conditions,
    databases: usize,
    used: usize,
) -> anyhow::Result<Upkeep> {
    let special = Special { more_databases: databases, ..Special::default() };
    let scene = Scene::with(pooler, conditions, 0, &special)?;
    let mut visitors = Vec::new();
    for index in 0..used {
        let database = format!("p{}", index * (databases / used.max(1)));
        let mut visitor = Visitor::call(&Errand::to(scene.listen.port(), &database))?;
        visitor.ask("SELECT 1;")?;
        visitors.push(visitor);
    }
    thread::sleep(Duration::from_secs(2));
    let before = scene.pooler.cpu()?;
    thread::sleep(Duration::from_secs_f64(conditions.seconds));
    let spent = scene.pooler.cpu()? - before;
    let resident_bytes = scene.pooler.resident_bytes()?;
    scene.stage.over.store(true, Ordering::Relaxed);
    drop(visitors);
    Ok(Upkeep { ms_per_second: spent.as_secs_f64() * 1e3 / conditions.seconds, resident_bytes })
}
