//! Host names of servers and peers, and what they were last found to mean. The process has one
//! such book: every worker looks into it before it dials.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pool::{Duration, Instant, PoolId, WorkerId};

/// What the name servers said.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resolution {
    /// At least one.
    Addresses(Vec<IpAddr>),
    /// There is no such host.
    NoSuchHost,
    /// Nobody answered, or nobody could be asked; why.
    Unanswered(String),
}

/// Who waits for a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seeker {
    pub worker: WorkerId,
    pub sought: Sought,
}

/// For which of its connections a worker wants to know. Slots are used again, ids never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sought {
    Server {
        slot: u32,
        id: u64,
    },
    /// One that carries a cancel request to a peer.
    Peer {
        slot: u32,
        id: u64,
    },
}

/// The names that have been looked up, and whose turn it is among several hosts.
#[derive(Default)]
pub struct Names {
    known: BTreeMap<Arc<str>, Name>,
    zones: BTreeMap<String, Zone>,
    turns: BTreeMap<PoolId, usize>,
}

/// One host name.
#[derive(Default)]
struct Name {
    addresses: Vec<IpAddr>,
    until: Instant,
    under_way: bool,
    waiting: Vec<Seeker>,
    /// Which address the next server begins with.
    next: usize,
}

/// A zone that some of the names are in.
#[derive(Default)]
struct Zone {
    serial: Option<u32>,
    under_way: bool,
}

/// What is known of a name.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Found {
    /// The addresses, in the order in which they are to be tried.
    At(Vec<IpAddr>),
    /// It is being looked up; whether that has to be started.
    Wait { ask: bool },
    /// There is no such host, as far as anybody knew lately.
    Nowhere,
}

/// What a lookup brought.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct News {
    /// Those who waited, and what each is to try: nothing, if the host is nowhere.
    pub(crate) waited: Vec<(Seeker, Vec<IpAddr>)>,
    /// Addresses that are the host's no longer.
    pub(crate) gone: Vec<IpAddr>,
}

/// How long what is found out counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ttls {
    pub(crate) found: Duration,
    pub(crate) missing: Duration,
}

impl Name {
    /// All addresses, beginning with the one whose turn it is.
    fn rotated(&mut self) -> Vec<IpAddr> {
        let mut addresses = self.addresses.clone();
        let first = self.next % addresses.len().max(1);
        addresses.rotate_left(first);
        self.next = first + 1;
        addresses
    }
}

impl Names {
    /// The addresses of `name`, or a place in the line of those who wait for them.
    pub(crate) fn find(&mut self, name: &Arc<str>, seeker: Seeker, now: Instant) -> Found {
        let entry = self.known.entry(name.clone()).or_default();
        if now < entry.until {
            let addresses = entry.rotated();
            return if addresses.is_empty() { Found::Nowhere } else { Found::At(addresses) };
        }
        entry.waiting.push(seeker);
        Found::Wait { ask: !std::mem::replace(&mut entry.under_way, true) }
    }

    /// An answer came in.
    pub(crate) fn found(
        &mut self,
        name: &Arc<str>,
        resolution: &Resolution,
        ttls: Ttls,
        now: Instant,
    ) -> News {
        let entry = self.known.entry(name.clone()).or_default();
        entry.under_way = false;
        let mut news = News::default();
        match resolution {
            Resolution::Addresses(addresses) => {
                entry.until = now.after(ttls.found);
                let before = std::mem::replace(&mut entry.addresses, addresses.clone());
                let gone = before.into_iter().filter(|address| !addresses.contains(address));
                news.gone = gone.collect();
            }
            // Nothing more is dialled there. The servers that are open stay, and serve: a name is
            // sooner deleted by mistake than a database moved without a new one.
            Resolution::NoSuchHost => {
                entry.until = now.after(ttls.missing);
                entry.addresses.clear();
            }
            // A name server that is ill does not make the host so.
            Resolution::Unanswered(_) => entry.until = now.after(ttls.missing),
        }
        for seeker in std::mem::take(&mut entry.waiting) {
            let addresses = entry.rotated();
            news.waited.push((seeker, addresses));
        }
        news
    }

    /// Whether `ip` is one of the addresses of `name`, as far as these are known.
    pub(crate) fn may_be(&self, name: &str, ip: IpAddr) -> bool {
        let known = self.known.get(name).filter(|entry| !entry.addresses.is_empty());
        known.is_none_or(|entry| entry.addresses.contains(&ip))
    }

    /// Names outside `wanted` are forgotten; one that is being looked up stays until it is found.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.known.retain(|name, entry| entry.under_way || wanted(name));
    }

    /// The zones whose serial numbers are to be asked for now. A host's zone is what follows its
    /// first dot.
    pub(crate) fn zones_to_ask(&mut self) -> Vec<String> {
        let zones: Vec<&str> = self.known.keys().filter_map(|name| zone_of(name)).collect();
        self.zones.retain(|zone, _| zones.contains(&zone.as_str()));
        for zone in zones {
            self.zones.entry(zone.to_owned()).or_default();
        }
        let idle = self.zones.iter_mut().filter(|(_, zone)| !zone.under_way);
        idle.map(|(name, zone)| {
            zone.under_way = true;
            name.clone()
        })
        .collect()
    }

    /// Zones are watched no longer.
    pub(crate) fn forget_zones(&mut self) {
        self.zones.clear();
    }

    /// The serial number of `zone` came in, or nothing did. The names to be looked up again.
    pub(crate) fn serial(&mut self, zone: &str, serial: Option<u32>) -> Vec<Arc<str>> {
        let Some(entry) = self.zones.get_mut(zone) else { return Vec::new() };
        entry.under_way = false;
        let Some(serial) = serial else { return Vec::new() };
        let before = entry.serial.replace(serial);
        if before.is_none_or(|before| before == serial) {
            return Vec::new();
        }
        let here = self
            .known
            .iter_mut()
            .filter(|(name, entry)| zone_of(name) == Some(zone) && !entry.under_way);
        here.map(|(name, entry)| {
            entry.under_way = true;
            name.clone()
        })
        .collect()
    }

    /// Which of `hosts` hosts the next server of `pool` begins with, where each takes the next one.
    pub(crate) fn next_host(&mut self, pool: PoolId, hosts: usize) -> usize {
        let turn = self.turns.entry(pool).or_default();
        let host = *turn % hosts.max(1);
        *turn = host + 1;
        host
    }

    /// The same, where it is always the first that works.
    pub(crate) fn first_host(&self, pool: PoolId, hosts: usize) -> usize {
        self.turns.get(&pool).copied().unwrap_or(0) % hosts.max(1)
    }

    /// Host number `host` failed: the next one is the first, unless that is settled already.
    pub(crate) fn pass_over(&mut self, pool: PoolId, host: usize, hosts: usize) {
        if self.first_host(pool, hosts) == host {
            self.turns.insert(pool, host + 1);
        }
    }

    /// Lookups under way, and those who wait for them.
    pub(crate) fn pending(&self) -> (usize, usize) {
        let names = self.known.values().filter(|entry| entry.under_way).count();
        let zones = self.zones.values().filter(|zone| zone.under_way).count();
        (names + zones, self.known.values().map(|entry| entry.waiting.len()).sum())
    }

    /// SHOW DNS_HOSTS: name, seconds left, addresses.
    pub(crate) fn rows(&self, now: Instant) -> impl Iterator<Item = (&str, u64, &[IpAddr])> {
        self.known.iter().map(move |(name, entry)| {
            let ttl_s = entry.until.since(now).as_secs();
            (name.as_ref(), ttl_s, entry.addresses.as_slice())
        })
    }

    /// SHOW DNS_ZONES: name, serial number, names in it.
    pub(crate) fn zones(&self) -> impl Iterator<Item = (&str, u32, usize)> {
        self.zones.iter().map(|(name, zone)| {
            let count = self.known.keys().filter(|host| zone_of(host) == Some(name)).count();
            (name.as_str(), zone.serial.unwrap_or(0), count)
        })
    }
}

/// What follows the first dot of `host`.
fn zone_of(host: &str) -> Option<&str> {
    let (_, zone) = host.split_once('.')?;
    (!zone.is_empty()).then_some(zone)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TTLS: Ttls = Ttls { found: Duration::from_secs(15), missing: Duration::from_secs(5) };

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn ip(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn ips(all: &[u8]) -> Vec<IpAddr> {
        all.iter().map(|last| ip(*last)).collect()
    }

    fn addresses(all: &[u8]) -> Resolution {
        Resolution::Addresses(ips(all))
    }

    fn server(slot: u32) -> Seeker {
        Seeker { worker: WorkerId(0), sought: Sought::Server { slot, id: 7 } }
    }

    /// `dns_max_ttl`: an answer is good for so long, its addresses take turns, and then it is asked
    /// for once, however many wait.
    #[test]
    fn an_answer_is_kept_for_its_time_and_no_longer() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        assert_eq!(names.find(&db, server(3), at(0)), Found::Wait { ask: true });
        assert_eq!(names.find(&db, server(4), at(0)), Found::Wait { ask: false });
        assert_eq!(names.pending(), (1, 2));
        let news = names.found(&db, &addresses(&[1, 2]), TTLS, at(1));
        assert_eq!(news.waited, [(server(3), ips(&[1, 2])), (server(4), ips(&[2, 1]))]);
        assert_eq!(names.pending(), (0, 0));
        for expected in [[1, 2], [2, 1], [1, 2]] {
            assert_eq!(names.find(&db, server(3), at(15)), Found::At(ips(&expected)));
        }
        assert_eq!(names.find(&db, server(3), at(16)), Found::Wait { ask: true });
    }

    /// However long the setting says: the end of time is the end.
    #[test]
    fn a_time_to_live_does_not_overflow() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        let ttls = Ttls { found: Duration::MAX, missing: Duration::MAX };
        names.find(&db, server(3), at(0));
        names.found(&db, &addresses(&[1]), ttls, at(1));
        assert_eq!(names.find(&db, server(3), Instant(u64::MAX - 1)), Found::At(ips(&[1])));
        assert_eq!(names.rows(at(1)).next().expect("a row").1, u64::MAX / 1_000_000_000 - 1);
    }

    /// A life of nothing at all still serves those who waited.
    #[test]
    fn nothing_is_kept_where_the_setting_is_zero() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        let ttls = Ttls { found: Duration::ZERO, missing: Duration::ZERO };
        names.find(&db, server(3), at(0));
        let news = names.found(&db, &addresses(&[1]), ttls, at(0));
        assert_eq!(news.waited, [(server(3), ips(&[1]))]);
        assert_eq!(names.find(&db, server(3), at(0)), Found::Wait { ask: true });
    }

    /// `dns_nxdomain_ttl`: so long nobody asks again for a name that was not found. One that nobody
    /// could be asked for keeps its addresses meanwhile.
    #[test]
    fn a_name_that_is_not_found_is_asked_for_again_later() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        names.find(&db, server(3), at(0));
        let news = names.found(&db, &Resolution::NoSuchHost, TTLS, at(0));
        assert_eq!(news.waited, [(server(3), vec![])]);
        assert_eq!(names.find(&db, server(3), at(4)), Found::Nowhere);
        assert_eq!(names.find(&db, server(3), at(5)), Found::Wait { ask: true });
        names.found(&db, &addresses(&[1]), TTLS, at(5));
        let news = names.found(&db, &Resolution::Unanswered("late".to_owned()), TTLS, at(20));
        assert!(news.gone.is_empty());
        assert_eq!(names.find(&db, server(3), at(21)), Found::At(ips(&[1])));
        let news = names.found(&db, &Resolution::NoSuchHost, TTLS, at(25));
        assert!(news.gone.is_empty());
        assert_eq!(names.find(&db, server(3), at(26)), Found::Nowhere);
    }

    #[test]
    fn what_is_gone_is_told() {
        let (mut names, db) = (Names::default(), Arc::from("db"));
        names.found(&db, &addresses(&[1, 2]), TTLS, at(0));
        assert!(names.found(&db, &addresses(&[2, 1]), TTLS, at(20)).gone.is_empty());
        assert_eq!(names.found(&db, &addresses(&[2, 3]), TTLS, at(40)).gone, ips(&[1]));
        assert!(!names.may_be("db", ip(1)));
        assert!(names.may_be("db", ip(3)) && names.may_be("other", ip(1)));
    }

    /// `dns_zone_check_period`: a zone is asked for its number; when that is another one, its names
    /// are looked up again.
    #[test]
    fn a_new_serial_number_is_a_reason_to_look_again() {
        let mut names = Names::default();
        let [a, b, c] = ["a.zone.example", "b.zone.example", "c.other"].map(Arc::from);
        for name in [&a, &b, &c, &Arc::from("bare")] {
            names.found(name, &addresses(&[1]), TTLS, at(0));
        }
        assert_eq!(names.zones_to_ask(), ["other", "zone.example"]);
        assert!(names.zones_to_ask().is_empty(), "they are being asked for");
        assert!(names.serial("zone.example", Some(5)).is_empty(), "the first one is no change");
        assert!(names.serial("other", None).is_empty());
        assert_eq!(names.zones_to_ask(), ["other", "zone.example"]);
        assert!(names.serial("zone.example", Some(5)).is_empty());
        assert_eq!(names.serial("zone.example", Some(6)), [a.clone(), b]);
        let rows: Vec<_> = names.zones().collect();
        assert_eq!(rows, [("other", 0, 1), ("zone.example", 6, 2)]);
        names.found(&a, &addresses(&[1]), TTLS, at(1));
        names.keep(|name| name == "c.other");
        assert_eq!(names.rows(at(0)).count(), 2, "b is still being looked up");
    }

    #[test]
    fn hosts_take_turns_or_stay() {
        let (mut names, pool) = (Names::default(), PoolId(1));
        assert_eq!([0; 4].map(|_| names.next_host(pool, 3)), [0, 1, 2, 0]);
        let pool = PoolId(2);
        assert_eq!([0; 2].map(|_| names.first_host(pool, 2)), [0, 0]);
        names.pass_over(pool, 0, 2);
        names.pass_over(pool, 0, 2);
        assert_eq!(names.first_host(pool, 2), 1, "two who found it out at once are one step");
        names.pass_over(pool, 1, 2);
        assert_eq!(names.first_host(pool, 2), 0);
    }
}
