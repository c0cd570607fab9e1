//! The way to a server: over the hosts of its database, and over the addresses of each.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use config::{Host, LoadBalance};
use io::{Address, Driver};
use pool::{PoolId, ServerId};

use crate::log::Level;
use crate::mail::Mail;
use crate::names::{Found, Resolution, Seeker, Sought, Ttls};
use crate::server::State;
use crate::worker::{Role, Worker};
use crate::world::{Errand, World};

/// Where a server is, or is being looked for.
pub(crate) struct Route {
    hosts: Vec<Host>,
    /// Which of them it is at.
    at: usize,
    /// Those that have not been tried, in their order.
    left: VecDeque<usize>,
    /// Addresses of the present host that have not been tried.
    addresses: VecDeque<IpAddr>,
}

impl Route {
    /// To the `first` of `hosts`, or else to one of the others.
    fn new(hosts: Vec<Host>, first: usize) -> Self {
        let mut left: VecDeque<usize> = (0..hosts.len()).collect();
        left.rotate_left(first);
        Self { at: first, hosts, left, addresses: VecDeque::new() }
    }

    /// The host name by which it was found.
    pub(crate) fn name(&self) -> Option<&str> {
        match self.hosts.get(self.at)? {
            Host::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The host that it is at, as the ini has it: a certificate may have to name it.
    pub(crate) fn host(&self) -> String {
        self.hosts.get(self.at).map_or_else(String::new, Host::to_string)
    }

    fn arrived(&mut self) {
        self.left.clear();
        self.addresses.clear();
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// The way that the next server of `pool` takes.
    pub(crate) fn route(&self, pool: PoolId) -> Option<Box<Route>> {
        let room = self.room(pool)?;
        let hosts = self.site.config.hosts(&room.database);
        let mut names = self.commons.names();
        let first = match room.database.load_balance_hosts {
            LoadBalance::RoundRobin => names.next_host(pool, hosts.len()),
            LoadBalance::Disable => names.first_host(pool, hosts.len()),
        };
        Some(Box::new(Route::new(hosts, first)))
    }

    /// Dial `entry` where it has not been tried yet. `reason` is why it failed at the last place.
    pub(crate) fn try_next(&mut self, entry: u32, reason: &str) {
        let server = &mut self.servers[entry as usize];
        let (id, port) = (server.id, server.port);
        if let Some(ip) = server.route.addresses.pop_front() {
            return self.connect(entry, Address::Inet(SocketAddr::new(ip, port)));
        }
        let Some(host) = server.route.left.pop_front() else {
            return self.login_fails(entry, reason, None);
        };
        server.route.at = host;
        server.state = State::Resolving;
        server.since = self.now;
        match server.route.hosts[host].clone() {
            Host::Ip(ip) => self.connect(entry, Address::Inet(SocketAddr::new(ip, port))),
            Host::UnixDir(dir) | Host::Abstract(dir) => {
                let path = PathBuf::from(format!("{dir}/.s.PGSQL.{port}"));
                self.connect(entry, Address::Unix(path));
            }
            Host::Name(name) => {
                let found =
                    self.find_host(&name.as_str().into(), Sought::Server { slot: entry, id });
                match found {
                    Found::At(addresses) => self.server_found(entry, id, &name, addresses),
                    Found::Nowhere => self.server_found(entry, id, &name, Vec::new()),
                    Found::Wait { .. } => {}
                }
            }
        }
    }

    /// Where `entry` was dialled, nobody answers: it is dialled at the next place.
    pub(crate) fn place_fails(&mut self, entry: u32, reason: &'static str) {
        self.pass_over(entry);
        let server = &mut self.servers[entry as usize];
        match server.conn {
            // A slot is never on two sockets: limits hold at every instant.
            Some(conn) => {
                server.state = State::Moving(reason);
                self.driver.abort(conn);
            }
            None => self.try_next(entry, reason),
        }
    }

    /// The host that `entry` is at is not the one to begin with any longer, where one is.
    pub(crate) fn pass_over(&mut self, entry: u32) {
        let server = &self.servers[entry as usize];
        let Some(room) = self.room(server.pool) else { return };
        let is_last = server.route.addresses.is_empty();
        if is_last && room.database.load_balance_hosts == LoadBalance::Disable {
            let (at, hosts) = (server.route.at, server.route.hosts.len());
            self.commons.names().pass_over(server.pool, at, hosts);
        }
    }

    fn connect(&mut self, entry: u32, address: Address) {
        let conn = self.driver.connect(&address);
        self.set_role(conn, Role::Server(entry));
        let server = &mut self.servers[entry as usize];
        server.conn = Some(conn);
        server.address = Some(address);
        server.state = State::Connecting;
        server.since = self.now;
    }

    /// The kernel connected `entry`.
    pub(crate) fn server_is_there(&mut self, entry: u32) {
        self.servers[entry as usize].route.arrived();
    }

    /// What is known of a host name. The lookup is begun where that is needed; whoever has to wait
    /// for it gets [`Mail::Found`].
    pub(crate) fn find_host(&mut self, name: &Arc<str>, sought: Sought) -> Found {
        let seeker = Seeker { worker: self.me, sought };
        let found = self.commons.names().find(name, seeker, self.now);
        if found == (Found::Wait { ask: true }) {
            self.world.errand(Errand::Resolve { worker: self.me, name: name.clone() });
        }
        found
    }

    /// A host name was looked up: for whoever waits, on whatever worker.
    pub(crate) fn resolved(&mut self, name: &Arc<str>, resolution: &Resolution) {
        let settings = &self.site.config.settings;
        let ttls = Ttls { found: settings.dns_max_ttl, missing: settings.dns_nxdomain_ttl };
        match resolution {
            Resolution::Addresses(_) => {}
            Resolution::NoSuchHost => {
                self.log(Level::Warning, format_args!("DNS lookup failed: {name}: no such host"));
            }
            Resolution::Unanswered(error) => {
                self.log(Level::Warning, format_args!("DNS lookup failed: {name}: {error}"));
            }
        }
        let news = self.commons.names().found(name, resolution, ttls, self.now);
        for (seeker, addresses) in news.waited {
            if seeker.worker == self.me {
                self.host_found(seeker.sought, name, addresses);
            } else {
                let sought = seeker.sought;
                let (name, worker) = (name.clone(), seeker.worker);
                self.commons.mail(worker, Mail::Found { sought, name, addresses });
            }
        }
        if !news.gone.is_empty() {
            let gone = list(&news.gone);
            self.log(Level::Log, format_args!("DNS: {name} is no longer at {gone}"));
            for worker in (0..self.commons.workers()).map(pool::WorkerId) {
                self.commons.mail(worker, Mail::Moved { name: name.clone() });
            }
        }
    }

    /// What was looked up for one of our connections. None is nowhere.
    pub(crate) fn host_found(&mut self, sought: Sought, name: &str, addresses: Vec<IpAddr>) {
        match sought {
            Sought::Server { slot, id } => self.server_found(slot, id, name, addresses),
            Sought::Peer { slot, id } => self.peer_found(slot, id, addresses),
        }
    }

    fn server_found(&mut self, entry: u32, id: u64, name: &str, addresses: Vec<IpAddr>) {
        let server = self.servers.get_mut(entry as usize);
        // A late answer may find it at another host already.
        let waits = |server: &&mut crate::server::Server| {
            server.id == id
                && matches!(server.state, State::Resolving)
                && server.route.name() == Some(name)
        };
        let Some(server) = server.filter(waits) else { return };
        server.route.addresses = addresses.into();
        if server.route.addresses.is_empty() {
            self.pass_over(entry);
        }
        self.try_next(entry, "server DNS lookup failed");
    }

    /// A host's addresses have changed: servers at one that it has no longer are replaced as they
    /// come free.
    pub(crate) fn host_moved(&mut self, name: &str) {
        let astray: Vec<u32> = {
            let names = self.commons.names();
            let servers = self.servers.iter().filter(|(_, server)| {
                server.route.name() == Some(name) && is_astray(server, &names)
            });
            servers.map(|(entry, _)| crate::slot(entry)).collect()
        };
        for entry in astray {
            self.retire(entry);
        }
        self.carry_out();
    }

    /// A server that came from elsewhere may have left before its host's addresses were known to
    /// have changed.
    pub(crate) fn retire_if_astray(&mut self, entry: u32) {
        let server = &self.servers[entry as usize];
        if server.route.name().is_some() && is_astray(server, &self.commons.names()) {
            self.retire(entry);
        }
    }

    fn retire(&mut self, entry: u32) {
        let (pool, now) = (self.servers[entry as usize].pool, self.now);
        self.with_pool(pool, |pool, out| pool.retire(ServerId(entry), now, out));
    }

    /// The serial number of a zone came in, or did not.
    pub(crate) fn serial_came(&mut self, zone: &str, serial: Option<u32>) {
        let again = self.commons.names().serial(zone, serial);
        if !again.is_empty() {
            let (serial, count) = (serial.unwrap_or(0), again.len());
            let text = format_args!("DNS zone {zone} changed (serial {serial}): {count} names");
            self.log(Level::Log, text);
        }
        for name in again {
            self.world.errand(Errand::Resolve { worker: self.me, name });
        }
    }

    /// `dns_zone_check_period`
    pub(crate) fn tick_zones(&mut self) {
        // One worker is enough.
        if self.me.0 != 0 || self.now < self.next_zone_check {
            return;
        }
        let period = self.site.config.settings.dns_zone_check_period;
        if period.is_zero() {
            self.commons.names().forget_zones();
            return;
        }
        self.next_zone_check = self.now.after(period);
        let zones = self.commons.names().zones_to_ask();
        for zone in zones {
            self.world.errand(Errand::Serial { worker: self.me, zone });
        }
    }

    /// Names that the configuration has no longer are forgotten.
    pub(crate) fn forget_names(&mut self) {
        if self.me.0 != 0 {
            return;
        }
        let config = &self.site.config;
        let databases = config.databases.values().chain(&config.autodb);
        let hosts = databases.flat_map(|database| &database.hosts);
        let hosts = hosts.chain(config.peers.values().map(|peer| &peer.host));
        let wanted: std::collections::BTreeSet<&str> = hosts
            .filter_map(|host| match host {
                Host::Name(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        self.commons.names().keep(|name| wanted.contains(name));
    }
}

/// Whether `server` is at an address that its host's name does not mean any longer.
fn is_astray(server: &crate::server::Server, names: &crate::names::Names) -> bool {
    match (&server.address, server.route.name()) {
        (Some(Address::Inet(at)), Some(name)) => !names.may_be(name, at.ip()),
        _ => false,
    }
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
