//! What must hold at every moment: one check per invariant, and the slots counted.
//!
//! What needs to know who said what is checked where it is heard: I1 and I6 by the servers
//! (`postgres.rs`), I2 to I4 by the applications (`application.rs`).

use std::collections::BTreeMap;

use pool::{Instant, Place, PoolId};
use worker::{Audit, Commons, ServerAudit};

use crate::net::{Net, Socket};
use crate::postgres::Cluster;
use crate::weather::Weather;

/// What was seen when last looked.
#[derive(Default)]
pub(crate) struct Checks {
    /// Who waited: worker, pool, client's id, since when.
    waited: Vec<(usize, PoolId, u64, Instant)>,
    /// How many who came later were served before them, by id.
    overtaken: BTreeMap<u64, usize>,
    audits: Vec<Audit>,
}

/// Beyond this much of one client's words held back, in bytes, nothing more is read (64 KiB in the
/// worker); and what was read before that was noticed.
const HELD_MOST: usize = 3 * 65_536;

/// As the pool has it.
const OVERTAKEN_MAX: usize = 32;

impl Checks {
    /// Look at everything.
    pub(crate) fn look(
        &mut self,
        audits: Vec<Audit>,
        net: &mut Net,
        cluster: &Cluster,
        commons: &Commons<Socket>,
        weather: &Weather,
    ) {
        net.sweep();
        slots(&audits, net, commons, weather);
        free_servers_are_clean(&audits, net, cluster);
        memory(&audits, net);
        self.first_come_first_served(&audits);
        self.audits = audits;
    }

    /// Within a worker, the line is a line: those whom a server suits may go before others, but not for ever.
    fn first_come_first_served(&mut self, audits: &[Audit]) {
        let mut waits = Vec::new();
        let mut overtaken = BTreeMap::new();
        for (worker, audit) in audits.iter().enumerate() {
            let mut served = Vec::new();
            let here = waits.len();
            for client in &audit.clients {
                let before = |w: &&(usize, PoolId, u64, Instant)| w.0 == worker && w.2 == client.id;
                if client.linked.is_some()
                    && let Some((_, pool, _, since)) = self.waited.iter().find(before)
                {
                    served.push((*pool, *since));
                }
                if let Some(since) = client.waiting {
                    waits.push((worker, client.pool, client.id, since));
                }
            }
            for wait in &waits[here..] {
                let (_, of, id, since) = *wait;
                let later = served.iter().filter(|(pool, served)| *pool == of && *served > since);
                let later = if self.waited.contains(wait) { later.count() } else { 0 };
                let times = later + self.overtaken.get(&id).copied().unwrap_or_default();
                assert!(
                    times <= OVERTAKEN_MAX,
                    "client {id} waits since {since:?}; {times} who came later were served"
                );
                if times > 0 {
                    overtaken.insert(id, times);
                }
            }
        }
        (self.waited, self.overtaken) = (waits, overtaken);
    }
}

/// Every slot is somebody's, and the limits hold at every instant.
fn slots(audits: &[Audit], net: &Net, commons: &Commons<Socket>, weather: &Weather) {
    let bank = commons.bank();
    bank.invariants();
    let mut pools: Vec<PoolId> = audits.iter().flat_map(|a| &a.pools).map(|pool| pool.id).collect();
    // A pool may be swept away while a connection of it is still being closed.
    pools.extend(audits.iter().flat_map(|a| &a.servers).map(|server| server.pool));
    pools.sort();
    pools.dedup();
    let mut booked = 0;
    for pool in &pools {
        let open = bank.open(*pool);
        assert!(open <= weather.pool_most(), "{open} servers in a pool of {}", weather.pool_most());
        booked += open as usize;
    }
    let servers = || audits.iter().flat_map(|audit| &audit.servers);
    let counted = servers().count() + net.servers_travelling();
    assert_eq!(booked, counted, "slots booked, and servers that have one");
    let cancellers: usize = audits.iter().map(|audit| audit.cancellers).sum();
    let held = net.servers_held();
    assert!(
        held <= counted + cancellers,
        "{held} sockets for {counted} slots and {cancellers} cancels"
    );
    // One whose host's name is being looked up has no socket yet.
    let living = servers().filter(|server| !server.closing && server.conn.is_some()).count();
    assert!(living <= held, "{living} servers on {held} sockets: {audits:?}\n{}", net.describe());
    if weather.db_max > 0 {
        for at in 0..weather.databases {
            let open = bank.db_open(&format!("db{at}"));
            assert!(open <= weather.db_max, "max_db_connections is {}, not {open}", weather.db_max);
        }
    }
}

/// I1: a server that is free owes nothing, is owed nothing, and is in nobody's transaction.
fn free_servers_are_clean(audits: &[Audit], net: &Net, cluster: &Cluster) {
    for (worker, audit) in audits.iter().enumerate() {
        for server in &audit.servers {
            let free = matches!(server.place, Some(Place::Idle | Place::Used));
            let Some(link) =
                server.conn.filter(|_| free).and_then(|conn| net.link_of(worker, conn))
            else {
                continue;
            };
            // What is still on its way comes before whatever is sent later.
            if let Some(backend) = cluster.at(link).filter(|_| net.is_read_up(link)) {
                assert!(backend.is_clean(), "I1: a free server is in the midst of something");
            }
        }
    }
}

/// I8: what is held for one client, and what is queued for one socket, has a limit.
fn memory(audits: &[Audit], net: &Net) {
    let held = audits.iter().flat_map(|audit| &audit.clients).map(|client| client.held);
    let held = held.max().unwrap_or(0);
    assert!(held <= HELD_MOST, "I8: {held} bytes are held back for one client");
    let (unsent, most) = (net.most_unsent(), net.unsent_limit());
    assert!(unsent <= most, "I8: {unsent} bytes are queued on one socket");
}

/// With all mail read and nothing under way: nobody waits by an idle server, on whatever worker,
/// unless another one is being made ready for him.
pub(crate) fn nobody_waits_by_an_idle_server(audits: &[Audit]) {
    let pools = || audits.iter().flat_map(|audit| &audit.pools);
    for pool in pools().filter(|pool| pool.counts.waiting > 0 && !pool.is_paused) {
        let there = || pools().filter(|other| other.id == pool.id).map(|other| other.counts);
        let idle: u32 = there().map(|counts| counts.idle + counts.used).sum();
        let waiting: u32 = there().map(|counts| counts.waiting).sum();
        let coming: u32 = there().map(|counts| counts.testing + counts.leaving).sum();
        assert!(
            idle == 0 || waiting <= coming,
            "{waiting} wait in {:?} while {idle} servers are idle, and {coming} are coming",
            pool.id
        );
    }
}

/// When everybody has left: all servers are free, and nothing else is there.
pub(crate) fn is_given_back(audits: &[Audit]) -> bool {
    let at_rest = |server: &ServerAudit| matches!(server.place, Some(Place::Idle | Place::Used));
    audits.iter().all(|audit| {
        audit.clients.is_empty() && audit.cancellers == 0 && audit.servers.iter().all(at_rest)
    })
}
