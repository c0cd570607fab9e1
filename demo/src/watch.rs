//! A watch on the server: how many connections it has, and how many of them work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::load::{self, Target};

/// Holds one connection of the server's for as long as it lives, and looks ten times a second.
pub(crate) struct Watch {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

/// The most seen together since last taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Peak {
    pub(crate) connections: usize,
    pub(crate) active: usize,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    active: AtomicUsize,
    over: AtomicBool,
}

const LOOK: &str = "SELECT count(*), count(*) FILTER (WHERE state = 'active') FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

impl Watch {
    pub(crate) fn start(target: &Target) -> anyhow::Result<Self> {
        let seen = Arc::new(Seen::default());
        let (ours, target) = (Arc::clone(&seen), target.clone());
        let (up, is_up) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let watched = look_on(&ours, &target, &up);
            // Before it was up, whoever waits is told; after, the run itself shows what is wrong.
            let _ = up.send(watched);
        });
        is_up.recv().map_err(|_| anyhow!("the watch died"))??;
        Ok(Self { seen, thread: Some(thread) })
    }

    /// The peak so far; counting starts anew.
    pub(crate) fn take(&self) -> Peak {
        Peak {
            connections: self.seen.connections.swap(0, Ordering::Relaxed),
            active: self.seen.active.swap(0, Ordering::Relaxed),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look_on(
    seen: &Seen,
    target: &Target,
    up: &std::sync::mpsc::Sender<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = load::connect(target).await.context("the watch cannot connect")?;
        let _ = up.send(Ok(()));
        while !seen.over.load(Ordering::Relaxed) {
            let row = client.query_one(LOOK, &[]).await?;
            let count = |column: usize| usize::try_from(row.get::<_, i64>(column)).unwrap_or(0);
            seen.connections.fetch_max(count(0), Ordering::Relaxed);
            seen.active.fetch_max(count(1), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    })
}
