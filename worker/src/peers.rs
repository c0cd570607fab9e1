//! Cancel requests for clients of other processes: carried on to them, over a connection for each.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use admin::PeerPoolFacts;
use config::Host;
use io::{Address, Conn, Driver};
use pool::{Duration, Instant, WorkerId};
use slab::Slab;

use crate::log::Level;
use crate::mail::{Asker, Mail};
use crate::names::{Found, Sought};
use crate::worker::{Role, Worker};
use crate::world::World;

/// The peers that this worker carries requests to. Each has one worker, which so knows how many
/// are under way to it.
#[derive(Default)]
pub(crate) struct Peers {
    lines: BTreeMap<u32, VecDeque<Parcel>>,
    messengers: Slab<Messenger>,
}

/// A cancel request for somebody else's client.
#[derive(Debug)]
pub struct Parcel {
    pub(crate) peer: u32,
    pub(crate) pid: u32,
    pub(crate) secret: Box<[u8]>,
    pub(crate) asker: Asker,
    /// Since when it waits, or is under way.
    pub(crate) since: Instant,
}

/// One of them under way.
struct Messenger {
    parcel: Parcel,
    id: u64,
    conn: Option<Conn>,
    port: u16,
    /// Where the peer's host may be too.
    addresses: VecDeque<IpAddr>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Its host's name is being looked up, or it has been dialled.
    Connecting,
    /// The peer has the request, and hangs up once it has passed it on.
    Sent,
    Closing,
}

/// Most that wait for one peer: more are not sent on.
const LINE_MAX: usize = 4096;

/// A peer that has the request should hang up long before.
const TAKES_AT_MOST: Duration = Duration::from_secs(15);

impl<D: Driver, W: World> Worker<D, W> {
    /// Send a request on, over the worker that carries to that peer.
    pub(crate) fn send_on(&mut self, peer: u32, pid: u32, secret: Box<[u8]>, asker: Asker) {
        let parcel = Parcel { peer, pid, secret, asker, since: self.now };
        let carrier = u16::try_from(peer).unwrap_or(0) % self.commons.workers();
        if carrier == self.me.0 {
            self.carry(parcel);
        } else {
            self.commons.mail(WorkerId(carrier), Mail::Parcel(parcel));
        }
    }

    pub(crate) fn carry(&mut self, parcel: Parcel) {
        let peer = parcel.peer;
        let line = self.peers.lines.entry(peer).or_default();
        if line.len() >= LINE_MAX {
            return self.cancelled(parcel.asker);
        }
        line.push_back(parcel);
        self.carry_next(peer);
    }

    /// As many as the peer's pool_size are under way at once.
    fn carry_next(&mut self, peer: u32) {
        let config = &self.site.config;
        let size = config.peers.get(&peer).map_or(0, |row| {
            let size = row.pool_size.unwrap_or(config.settings.default_pool_size);
            if size == 0 { usize::MAX } else { size as usize }
        });
        while self.peers.under_way(peer) < size {
            let line = self.peers.lines.get_mut(&peer);
            let Some(parcel) = line.and_then(VecDeque::pop_front) else { break };
            self.dispatch(parcel);
        }
        if size == 0 {
            // A RELOAD has struck the peer out.
            for parcel in self.peers.lines.remove(&peer).unwrap_or_default() {
                self.cancelled(parcel.asker);
            }
        }
    }

    fn dispatch(&mut self, mut parcel: Parcel) {
        let Some(peer) = self.site.config.peers.get(&parcel.peer).cloned() else {
            return self.cancelled(parcel.asker);
        };
        parcel.since = self.now;
        let (id, port) = (self.commons.socket_id(), peer.port);
        let slot = crate::slot(self.peers.messengers.insert(Messenger {
            parcel,
            id,
            conn: None,
            port,
            addresses: VecDeque::new(),
            stage: Stage::Connecting,
        }));
        match &peer.host {
            Host::Ip(ip) => self.dial_peer(slot, &Address::Inet(SocketAddr::new(*ip, port))),
            Host::UnixDir(dir) | Host::Abstract(dir) => {
                let path = PathBuf::from(format!("{dir}/.s.PGSQL.{port}"));
                self.dial_peer(slot, &Address::Unix(path));
            }
            Host::Name(name) => {
                let found = self.find_host(&name.as_str().into(), Sought::Peer { slot, id });
                match found {
                    Found::At(addresses) => self.peer_found(slot, id, addresses),
                    Found::Nowhere => self.peer_found(slot, id, Vec::new()),
                    Found::Wait { .. } => {}
                }
            }
        }
    }

    fn dial_peer(&mut self, slot: u32, address: &Address) {
        let conn = self.driver.connect(address);
        self.set_role(conn, Role::Messenger(slot));
        self.peers.messengers[slot as usize].conn = Some(conn);
    }

    /// The addresses of a peer's host. None is nowhere.
    pub(crate) fn peer_found(&mut self, slot: u32, id: u64, addresses: Vec<IpAddr>) {
        let messenger = self.peers.messengers.get_mut(slot as usize);
        let waits = |one: &&mut Messenger| one.id == id && one.stage == Stage::Connecting;
        let Some(messenger) = messenger.filter(waits) else { return };
        messenger.addresses = addresses.into();
        self.dial_next_address(slot, "its host is not known");
    }

    fn dial_next_address(&mut self, slot: u32, why: &str) {
        let messenger = &mut self.peers.messengers[slot as usize];
        if let Some(ip) = messenger.addresses.pop_front() {
            let address = Address::Inet(SocketAddr::new(ip, messenger.port));
            return self.dial_peer(slot, &address);
        }
        let peer = messenger.parcel.peer;
        let text = format_args!("cancel request could not be sent on to peer {peer}: {why}");
        self.log(Level::Warning, text);
        self.call_back(slot);
    }

    pub(crate) fn messenger_connected(&mut self, slot: u32) {
        let Some(messenger) = self.peers.messengers.get_mut(slot as usize) else { return };
        let (Some(conn), Stage::Connecting) = (messenger.conn, messenger.stage) else { return };
        messenger.stage = Stage::Sent;
        messenger.parcel.since = self.now;
        let parcel = &messenger.parcel;
        let mut packet = Vec::with_capacity(16 + parcel.secret.len());
        wire::write::client::cancel_request(&mut packet, parcel.pid, &parcel.secret);
        self.driver.write(conn, &packet);
    }

    /// The peer hung up, as it does when it has passed the request on; or it was not there.
    pub(crate) fn messenger_ended(&mut self, slot: u32, error: Option<&std::io::Error>) {
        let Some(messenger) = self.peers.messengers.get_mut(slot as usize) else { return };
        match (messenger.stage, error) {
            (Stage::Connecting, error) => {
                if let Some(conn) = messenger.conn.take() {
                    self.set_role(conn, Role::Nobody);
                    self.driver.abort(conn);
                }
                let why = error.map_or_else(|| "it hung up".to_owned(), ToString::to_string);
                self.dial_next_address(slot, &why);
            }
            _ => self.call_back(slot),
        }
    }

    /// Nothing more is to come of it, good or bad.
    fn call_back(&mut self, slot: u32) {
        let Some(messenger) = self.peers.messengers.get_mut(slot as usize) else { return };
        if messenger.stage == Stage::Closing {
            return;
        }
        messenger.stage = Stage::Closing;
        match messenger.conn {
            Some(conn) => self.driver.abort(conn),
            None => self.messenger_gone(slot),
        }
    }

    pub(crate) fn messenger_gone(&mut self, slot: u32) {
        let Some(messenger) = self.peers.messengers.try_remove(slot as usize) else { return };
        self.cancelled(messenger.parcel.asker);
        self.carry_next(messenger.parcel.peer);
    }

    /// A peer that is dead, or does not hang up, holds nobody up for ever.
    pub(crate) fn tick_peers(&mut self) {
        let settings = &self.site.config.settings;
        let (now, wait) = (self.now, settings.cancel_wait_timeout);
        let connect = settings.server_connect_timeout;
        let over = |since: Instant, limit: Duration| !limit.is_zero() && since.after(limit) <= now;
        let mut dropped = Vec::new();
        for line in self.peers.lines.values_mut() {
            // The same for all, so the first in line are the first to go.
            while line.front().is_some_and(|parcel| over(parcel.since, wait)) {
                dropped.extend(line.pop_front());
            }
        }
        for parcel in dropped {
            self.cancelled(parcel.asker);
        }
        let late = self.peers.messengers.iter().filter(|(_, one)| match one.stage {
            Stage::Connecting => over(one.parcel.since, connect),
            Stage::Sent => over(one.parcel.since, TAKES_AT_MOST),
            Stage::Closing => false,
        });
        let late: Vec<(u32, u32)> =
            late.map(|(slot, one)| (crate::slot(slot), one.parcel.peer)).collect();
        for (slot, peer) in late {
            let text = format_args!("cancel request to peer {peer} took too long");
            self.log(Level::Warning, text);
            self.call_back(slot);
        }
    }

    /// SHOW PEER_POOLS: what this worker has of it.
    pub(crate) fn peer_pool_facts(&self) -> BTreeMap<u32, PeerPoolFacts> {
        let config = &self.site.config;
        let others = config.peers.keys().filter(|id| **id != config.settings.peer_id);
        let mut pools: BTreeMap<u32, PeerPoolFacts> =
            others.map(|id| (*id, PeerPoolFacts::default())).collect();
        for (id, line) in &self.peers.lines {
            if let Some(pool) = pools.get_mut(id) {
                pool.cl_waiting_cancel_req += line.len();
            }
        }
        for (_, messenger) in &self.peers.messengers {
            let Some(pool) = pools.get_mut(&messenger.parcel.peer) else { continue };
            match messenger.stage {
                Stage::Connecting => pool.sv_login += 1,
                Stage::Sent | Stage::Closing => pool.sv_active_cancel += 1,
            }
            pool.cl_active_cancel_req += 1;
        }
        pools
    }
}

impl Peers {
    fn under_way(&self, peer: u32) -> usize {
        self.messengers.iter().filter(|(_, one)| one.parcel.peer == peer).count()
    }
}
