//! Host names of servers, and what they were last found to mean.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pool::{Duration, Instant};

/// The names this worker has looked up.
#[derive(Default)]
pub(crate) struct Names {
    known: BTreeMap<Arc<str>, Name>,
}

/// One host name.
#[derive(Default)]
pub(crate) struct Name {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) until: Instant,
    pub(crate) under_way: bool,
    /// Server slots, with their ids, that wait for it.
    pub(crate) waiting: Vec<(u32, u64)>,
    /// Which address the next server takes.
    next: usize,
}

/// What is known of a name.
pub(crate) enum Found {
    At(IpAddr),
    /// It is being looked up; whether that has to be started.
    Wait {
        ask: bool,
    },
    /// There is no such host, as far as anybody knew lately.
    Nowhere,
}

impl Names {
    /// An address of `name`, or a place in the line of those who wait for one.
    pub(crate) fn find(&mut self, name: &Arc<str>, server: (u32, u64), now: Instant) -> Found {
        let entry = self.known.entry(name.clone()).or_default();
        if now < entry.until {
            let Some(address) = entry.addresses.get(entry.next % entry.addresses.len().max(1))
            else {
                return Found::Nowhere;
            };
            entry.next = entry.next.wrapping_add(1);
            return Found::At(*address);
        }
        entry.waiting.push(server);
        Found::Wait { ask: !std::mem::replace(&mut entry.under_way, true) }
    }

    /// An answer came in; those who waited for it are returned.
    pub(crate) fn found(
        &mut self,
        name: &Arc<str>,
        addresses: Vec<IpAddr>,
        ttl: Duration,
        now: Instant,
    ) -> Vec<(u32, u64)> {
        let entry = self.known.entry(name.clone()).or_default();
        entry.under_way = false;
        // Whoever waited is served from what came, were its life as short as can be.
        entry.until = now.after(ttl.max(Duration::from_millis(1)));
        if !addresses.is_empty() || entry.addresses.is_empty() {
            entry.addresses = addresses;
        }
        std::mem::take(&mut entry.waiting)
    }

    /// Names that are being looked up.
    pub(crate) fn pending(&self) -> usize {
        self.known.values().filter(|entry| entry.under_way).count()
    }

    /// SHOW DNS_HOSTS: name, seconds left, addresses.
    pub(crate) fn rows(&self, now: Instant) -> impl Iterator<Item = (&str, u64, &[IpAddr])> {
        self.known.iter().map(move |(name, entry)| {
            let ttl_s = entry.until.since(now).as_secs();
            (name.as_ref(), ttl_s, entry.addresses.as_slice())
        })
    }
}
