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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const SERVER: (u32, u64) = (3, 7);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// `dns_max_ttl`: an answer is good for so long, its addresses take turns, and then it is asked
    /// for once, however many wait.
    #[test]
    fn an_answer_is_kept_for_its_time_and_no_longer() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        assert!(matches!(names.find(&db, SERVER, at(0)), Found::Wait { ask: true }));
        assert!(matches!(names.find(&db, (4, 8), at(0)), Found::Wait { ask: false }));
        let ttl = Duration::from_secs(15);
        let waited = names.found(&db, vec![address(1), address(2)], ttl, at(1));
        assert_eq!(waited, [SERVER, (4, 8)]);
        for expected in [1, 2, 1] {
            let found = names.find(&db, SERVER, at(15));
            assert!(matches!(found, Found::At(ip) if ip == address(expected)));
        }
        assert!(matches!(names.find(&db, SERVER, at(16)), Found::Wait { ask: true }));
    }

    /// `dns_nxdomain_ttl`: so long nobody asks again for a name that was not found. One that was
    /// found before keeps its addresses meanwhile.
    #[test]
    fn a_name_that_is_not_found_is_asked_for_again_later() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        names.find(&db, SERVER, at(0));
        names.found(&db, Vec::new(), Duration::from_secs(5), at(0));
        assert!(matches!(names.find(&db, SERVER, at(4)), Found::Nowhere));
        assert!(matches!(names.find(&db, SERVER, at(5)), Found::Wait { ask: true }));
        names.found(&db, vec![address(1)], Duration::from_secs(1), at(5));
        names.found(&db, Vec::new(), Duration::from_secs(5), at(6));
        assert!(matches!(names.find(&db, SERVER, at(7)), Found::At(ip) if ip == address(1)));
    }
}
