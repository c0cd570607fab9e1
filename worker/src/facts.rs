//! What a worker knows, as the console shows it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use admin::{
    Cache, ChannelName, ClientState, ConfigRow, DatabaseFacts, DnsHostFacts, DnsZoneFacts, Facts,
    FdFacts, ListFacts, ListenerFacts, MemoryFacts, Need, PeerFacts, PoolFacts, PoolName,
    Positions, ServerState, SocketFacts, StatsFacts, UserFacts, View, Zone,
};
use config::{LoadBalance, PoolMode};
use io::{Address, Driver};
use metrics::Averages;
use pool::{Instant, Place, ServerId};
use session::{Mode, Tie};

use crate::client::{Card, Client, State};
use crate::log::Level;
use crate::server::{self, Server};
use crate::slot;
use crate::worker::Worker;
use crate::world::{Errand, World};

impl<D: Driver, W: World> Worker<D, W> {
    /// This worker's part of what `view` shows.
    pub(crate) fn facts(&mut self, view: View) -> Facts {
        let mut facts = Facts { zone: self.zone(), ..Facts::default() };
        for need in view.needs() {
            match need {
                Need::Clients => facts.clients = self.client_facts(),
                Need::Servers => facts.servers = self.server_facts(),
                Need::Pools => facts.pools = self.pool_facts(),
                Need::Stats => facts.stats = self.stats_facts(),
                Need::Databases => facts.databases = self.database_facts(),
                Need::Users => facts.users = self.user_facts(),
                Need::Peers => facts.peers = self.peer_facts(),
                Need::Config => facts.config = self.config_facts(),
                Need::Lists => facts.lists = self.list_facts(),
                Need::Memory => facts.memory = self.memory_facts(),
                Need::Dns => self.dns_facts(&mut facts),
                Need::State => facts.state = self.standing.state(),
                Need::Fds => facts.fds = self.fd_facts(),
                Need::Pins => {
                    facts.zone = self.zone();
                    facts.pins = self.pin_facts();
                }
                Need::Listeners => facts.listeners = self.listener_facts(),
                Need::SessionReport => {
                    facts.session_report = self.report_facts();
                }
                Need::PinTotals => facts.pin_totals = self.pin_totals(),
                Need::PeerPools => facts.peer_pools = self.peer_pool_facts(),
            }
        }
        facts
    }

    fn zone(&mut self) -> Zone {
        let (offset_s, name) = self.world.zone();
        Zone { offset_s, name }
    }

    fn client_facts(&mut self) -> Vec<admin::ClientFacts> {
        let wall = self.world.wall_us() / 1_000_000;
        self.clients.iter().filter_map(|(_, client)| self.client_row(client, wall)).collect()
    }

    fn client_row(&self, client: &Client, wall: i64) -> Option<admin::ClientFacts> {
        let (state, link) = match &client.state {
            State::Login(_) => (ClientState::Login, None),
            State::Idle => (ClientState::Idle, None),
            State::Waiting(_) => (ClientState::Waiting, None),
            State::Linked(server) => {
                (ClientState::Active, self.servers.get(server.0 as usize).map(|s| s.id))
            }
            State::Console(_) => (ClientState::Active, None),
            State::Canceling => (ClientState::ActiveCancel, None),
            State::Closing => return None,
        };
        let card = &client.card;
        let ends = card.ends.open();
        let waiting = matches!(client.state, State::Waiting(_));
        let application_name = text(client.side.vars.value(b"application_name"));
        Some(SocketFacts {
            state,
            user: card.user().map(str::to_owned),
            database: card.database().map(str::to_owned),
            replication: replication(card.replication),
            addr: address(&ends.peer, &ends.local),
            local: address(&ends.local, &ends.peer),
            connect_time: card.connected_wall.into(),
            request_time: wall - seconds(self.now.since(client.since)),
            wait_us: if waiting { micros(self.now, client.since) } else { 0 },
            close_needed: false,
            ptr: crate::log::pointer(card.id),
            link: link.map(crate::log::pointer),
            remote_pid: ends.pid.unwrap_or(0),
            tls: card.suite().unwrap_or_default().to_owned(),
            application_name,
            prepared_statements: client.side.prepared(),
            id: card.id,
            pin: match client.state {
                State::Linked(server) => self.servers.get(server.0 as usize).and_then(kept),
                _ => None,
            },
            positions: Positions {
                pkt_avail: client.held.len(),
                send_avail: self.driver.unsent(client.conn),
                ..Positions::default()
            },
        })
    }

    fn server_facts(&mut self) -> Vec<admin::ServerFacts> {
        let wall = self.world.wall_us() / 1_000_000;
        self.servers
            .iter()
            .filter_map(|(entry, server)| self.server_row(slot(entry), server, wall))
            .collect()
    }

    fn server_row(&self, entry: u32, server: &Server, wall: i64) -> Option<admin::ServerFacts> {
        let room = self.room(server.pool)?;
        let id = ServerId(entry);
        let state = match (&server.state, room.pool.place(id)) {
            (server::State::Closing, _) => return None,
            (_, _) if server.replica.is_some() => ServerState::Active,
            (_, Some(Place::Linked)) => ServerState::Active,
            (_, Some(Place::Idle | Place::Leaving)) => ServerState::Idle,
            (_, Some(Place::Used)) => ServerState::Used,
            (_, Some(Place::Testing)) => ServerState::Tested,
            (_, Some(Place::Canceled)) => ServerState::BeingCanceled,
            (_, Some(Place::Connecting) | None) => ServerState::New,
        };
        let link = server.client.and_then(|client| self.clients.get(client.0 as usize));
        let ends = server.ends.as_deref();
        Some(SocketFacts {
            state,
            user: Some(room.user.to_string()),
            database: Some(room.name.to_string()),
            replication: server
                .replica
                .as_deref()
                .map_or(admin::Replication::None, |r| replication(r.kind)),
            addr: ends.map_or_else(Default::default, |ends| address(&ends.peer, &ends.local)),
            local: ends.map_or_else(Default::default, |ends| address(&ends.local, &ends.peer)),
            connect_time: server.connected_wall,
            request_time: wall - seconds(self.now.since(server.since)),
            wait_us: 0,
            close_needed: room.pool.is_obsolete(id),
            ptr: crate::log::pointer(server.id),
            link: link.map(|client| crate::log::pointer(client.card.id)),
            remote_pid: server.pid,
            tls: server.suite.unwrap_or_default().to_owned(),
            application_name: text(server.side.vars.value(b"application_name")),
            prepared_statements: server.side.prepared(),
            id: server.id,
            pin: kept(server),
            positions: Positions {
                send_avail: server.conn.map_or(0, |conn| self.driver.unsent(conn)),
                ..Positions::default()
            },
        })
    }

    fn pin_facts(&self) -> Vec<admin::PinFacts> {
        let row = |server: &Server| {
            let (pinned, client) = (server.pinned.as_ref()?, server.client?);
            let (client, room) = (self.clients.get(client.0 as usize)?, self.room(server.pool)?);
            let user = client.card.user().unwrap_or_default();
            Some(admin::PinFacts {
                database: room.name.to_string(),
                user: user.to_owned(),
                application_name: text(client.side.vars.value(b"application_name")),
                client_id: client.card.id,
                server_id: server.id,
                server_pid: server.pid,
                reasons: server.side.trail.ties.to_string(),
                statement: text(Some(server.side.trail.culprit())),
                since: pinned.wall,
            })
        };
        self.servers.iter().filter_map(|(_, server)| row(server)).collect()
    }

    fn listener_facts(&self) -> BTreeMap<ChannelName, ListenerFacts> {
        let mut listeners = BTreeMap::new();
        for room in self.rooms.iter().flatten() {
            for (channel, clients, delivered) in room.ears.counts() {
                let (database, user) = (room.name.to_string(), room.user.to_string());
                let name = ChannelName { database, user, channel: text(Some(channel)) };
                listeners.insert(name, ListenerFacts { clients, delivered });
            }
        }
        listeners
    }

    fn pin_totals(&self) -> BTreeMap<(String, String, &'static str), admin::PinTotals> {
        let mut all: BTreeMap<_, admin::PinTotals> = BTreeMap::new();
        let key = |room: &crate::room::Room, tie: Tie| {
            (room.name.to_string(), room.user.to_string(), tie.words())
        };
        for room in self.rooms.iter().flatten() {
            for (tie, tally) in Tie::ALL.into_iter().zip(room.pins) {
                if tally.ever + tally.refused + tally.unset > 0 {
                    let totals = admin::PinTotals {
                        pinned: tally.pinned,
                        pins: tally.ever,
                        time_us: tally.time_us,
                        longest_us: tally.longest_us,
                        warnings: tally.warned,
                        refused: tally.refused,
                        unset: tally.unset,
                    };
                    all.insert(key(room, tie), totals);
                }
            }
        }
        for (_, server) in &self.servers {
            let (Some(pin), Some(room)) = (&server.pinned, self.room(server.pool)) else {
                continue;
            };
            for (at, tie) in Tie::ALL.into_iter().enumerate() {
                if let (Some(since), Some(totals)) =
                    (pin.since_of(at), all.get_mut(&key(room, tie)))
                {
                    let time_us = micros(self.now, since);
                    totals.time_us = totals.time_us.saturating_add(time_us);
                    totals.longest_us = totals.longest_us.max(time_us);
                }
            }
        }
        all
    }

    fn pool_facts(&self) -> BTreeMap<PoolName, PoolFacts> {
        let mut pools: BTreeMap<PoolName, PoolFacts> = BTreeMap::new();
        for room in self.rooms.iter().flatten() {
            let name = PoolName { database: room.name.to_string(), user: room.user.to_string() };
            let counts = room.pool.counts();
            let facts = PoolFacts {
                cl_active: (room.clients as usize).saturating_sub(counts.waiting as usize),
                cl_waiting: counts.waiting as usize,
                cl_active_cancel_req: 0,
                cl_waiting_cancel_req: 0,
                sv_active: counts.linked as usize,
                sv_active_cancel: 0,
                sv_being_canceled: counts.canceled as usize,
                sv_idle: (counts.idle + counts.leaving) as usize,
                sv_used: counts.used as usize,
                sv_tested: counts.testing as usize,
                sv_login: counts.connecting as usize,
                maxwait_us: u64::try_from(room.pool.oldest_wait(self.now).as_micros())
                    .unwrap_or(u64::MAX),
                pool_mode: mode_word(room.mode()),
                load_balance_hosts: balance(&room.database),
            };
            pools.insert(name, facts);
        }
        for (_, canceller) in &self.cancellers {
            if let Some(room) = self.room(canceller.pool) {
                let name =
                    PoolName { database: room.name.to_string(), user: room.user.to_string() };
                let facts = pools.entry(name).or_default();
                facts.cl_active_cancel_req += canceller.askers.len();
                facts.sv_active_cancel += 1;
            }
        }
        let admins = self.clients.iter().filter(|(_, c)| matches!(c.state, State::Console(_)));
        let console =
            PoolName { database: admin::CONSOLE.to_owned(), user: admin::CONSOLE.to_owned() };
        pools.insert(console, PoolFacts::console(admins.count()));
        pools
    }

    fn stats_facts(&self) -> BTreeMap<String, StatsFacts> {
        let mut stats: BTreeMap<String, StatsFacts> = self.former.clone();
        for room in self.rooms.iter().flatten() {
            let facts = StatsFacts { total: room.counters, history: room.history };
            *stats.entry(room.name.to_string()).or_default() += facts;
        }
        *stats.entry(admin::CONSOLE.to_owned()).or_default() += self.console_stats;
        stats
    }

    fn database_facts(&self) -> BTreeMap<String, DatabaseFacts> {
        let config = &self.site.config;
        let settings = &config.settings;
        let mut databases = BTreeMap::new();
        let listed = config.databases.iter().map(|(name, database)| (name.as_str(), database));
        let made = self.autodbs.iter().map(|(name, database)| (&**name, database));
        // Counts that are kept for the process are one worker's to tell.
        let first = self.me.0 == 0;
        for (name, database) in listed.chain(made) {
            let marks = self.standing.marks(name);
            let bank = self.commons.bank();
            databases.insert(
                name.to_owned(),
                DatabaseFacts {
                    host: database.host.clone(),
                    port: database.port,
                    database: database.server_name().to_owned(),
                    force_user: database.user.clone(),
                    pool_size: database.pool_size.unwrap_or(settings.default_pool_size),
                    min_pool_size: config.min_pool_size(database, None),
                    reserve_pool_size: database
                        .reserve_pool_size
                        .unwrap_or(settings.reserve_pool_size),
                    server_lifetime_s: config.server_lifetime(database, None).as_secs(),
                    pool_mode: database.pool_mode.map(config_mode_word),
                    load_balance_hosts: balance(database),
                    max_connections: config
                        .max_db_connections(database, None)
                        .map_or(0, NonZeroU32::get),
                    current_connections: if first { bank.db_open(name) as usize } else { 0 },
                    max_client_connections: config
                        .max_db_client_connections(database, None)
                        .map_or(0, NonZeroU32::get),
                    current_client_connections: if first {
                        self.commons.census().of_database(name) as usize
                    } else {
                        0
                    },
                    paused: marks.paused,
                    disabled: marks.disabled,
                },
            );
        }
        let lifetime = settings.server_lifetime.as_secs();
        let port = settings.listen_port;
        databases.insert(admin::CONSOLE.to_owned(), DatabaseFacts::console(port, lifetime));
        databases
    }

    fn user_facts(&self) -> BTreeMap<String, UserFacts> {
        let config = &self.site.config;
        let first = self.me.0 == 0;
        let known =
            self.site.userlist.users().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        let listed = config.users.keys().cloned();
        let forced = config.databases.values().filter_map(|database| database.user.clone());
        let mut users: BTreeMap<String, UserFacts> = BTreeMap::new();
        for name in known.chain(listed).chain(forced) {
            let row = config.user(&name);
            let settings = &config.settings;
            let limit = |own: Option<u32>, global: u32| own.unwrap_or(global);
            let facts = UserFacts {
                pool_size: row.and_then(|row| row.pool_size),
                reserve_pool_size: row.and_then(|row| row.reserve_pool_size),
                pool_mode: row.and_then(|row| row.pool_mode).map(config_mode_word),
                max_user_connections: limit(
                    row.and_then(|row| row.max_user_connections),
                    settings.max_user_connections,
                ),
                current_connections: if first {
                    self.commons.bank().user_open(&name) as usize
                } else {
                    0
                },
                max_user_client_connections: limit(
                    row.and_then(|row| row.max_user_client_connections),
                    settings.max_user_client_connections,
                ),
                current_client_connections: if first {
                    self.commons.census().of_user(&name) as usize
                } else {
                    0
                },
            };
            users.insert(name, facts);
        }
        users.insert(admin::CONSOLE.to_owned(), UserFacts::default());
        users
    }

    fn peer_facts(&self) -> BTreeMap<u32, PeerFacts> {
        let size = self.site.config.settings.default_pool_size;
        let peers = self.site.config.peers.iter();
        let facts = |peer: &config::Peer| PeerFacts {
            host: Some(peer.host.to_string()),
            port: peer.port,
            pool_size: peer.pool_size.unwrap_or(size),
        };
        peers.map(|(id, peer)| (*id, facts(peer))).collect()
    }

    fn config_facts(&self) -> Vec<ConfigRow> {
        let row = |shown: config::Shown| ConfigRow {
            key: shown.key,
            value: shown.value,
            default: shown.default.map(str::to_owned),
            changeable: shown.changeable,
        };
        self.site.config.settings.shown().map(row).collect()
    }

    fn list_facts(&self) -> ListFacts {
        let login = self.clients.iter().filter(|(_, c)| matches!(c.state, State::Login(_))).count();
        // The names are the process's: one worker tells of them.
        let (dns_queries, dns_pending) =
            if self.me.0 == 0 { self.commons.names().pending() } else { (0, 0) };
        ListFacts {
            free_clients: self.clients_max - self.clients.len(),
            used_clients: self.clients.len() - login,
            login_clients: login,
            free_servers: self.servers.capacity() - self.servers.len(),
            used_servers: self.servers.len(),
            dns_queries,
            dns_pending,
        }
    }

    fn dns_facts(&self, facts: &mut Facts) {
        let names = self.commons.names();
        for (name, ttl_s, addrs) in names.rows(self.now) {
            let host = DnsHostFacts { ttl_s, addrs: addrs.to_vec() };
            facts.dns_hosts.insert(name.to_owned(), host);
        }
        for (name, serial, count) in names.zones() {
            facts.dns_zones.insert(name.to_owned(), DnsZoneFacts { serial, count });
        }
    }

    fn memory_facts(&self) -> BTreeMap<Cache, MemoryFacts> {
        let facts = |size, used, capacity: usize| MemoryFacts {
            size,
            used,
            free: capacity.saturating_sub(used),
        };
        let buffers = self.driver.buffers();
        let rooms = self.rooms.iter().flatten().count();
        let (clients, servers) = (&self.clients, &self.servers);
        let client = size_of::<Client>() + size_of::<Card>();
        let users = if self.me.0 == 0 { self.site.userlist.len() } else { 0 };
        let databases = if self.me.0 == 0 { self.site.config.databases.len() } else { 0 };
        BTreeMap::from([
            (Cache::User, facts(size_of::<config::UserRow>(), users, users)),
            (Cache::Credentials, facts(size_of::<auth::Secret>(), users, users)),
            (Cache::Db, facts(size_of::<config::Database>(), databases, databases)),
            (Cache::Peer, facts(size_of::<config::Peer>(), 0, 0)),
            (Cache::PeerPool, facts(0, 0, 0)),
            (Cache::Pool, facts(size_of::<crate::room::Room>(), rooms, self.rooms.len())),
            (Cache::OutstandingRequest, facts(size_of::<session::Own>(), 0, 0)),
            (Cache::Server, facts(size_of::<Server>(), servers.len(), servers.capacity())),
            (Cache::Client, facts(client, clients.len(), self.clients_max)),
            (Cache::Iobuf, facts(buffers.size, buffers.used, buffers.used + buffers.free)),
            (Cache::VarList, facts(size_of::<session::Vars>(), 0, 0)),
            (
                Cache::ServerPreparedStatement,
                facts(size_of::<session::Statement>(), self.statements.len(), 0),
            ),
        ])
    }

    fn fd_facts(&self) -> Vec<FdFacts> {
        let fd = |conn| self.driver.fd(conn).unwrap_or(-1);
        let doors = self.doors.iter().map(|(_, door)| FdFacts {
            fd: door.fd,
            task: "pooler",
            addr: match door.name.parse::<std::net::SocketAddr>() {
                Ok(at) => admin::Address { ip: Some(at.ip()), port: at.port() },
                Err(_) => admin::Address { ip: None, port: self.site.config.settings.listen_port },
            },
            ..FdFacts::default()
        });
        let var = |vars: &session::Vars, name: &[u8]| vars.value(name).map(|v| text(Some(v)));
        let clients = self.clients.iter().filter_map(|(_, client)| {
            let (card, ends) = (&client.card, client.card.ends.open());
            let (State::Idle | State::Waiting(_) | State::Linked(_)) = client.state else {
                return None;
            };
            let link = match client.state {
                State::Linked(server) => self.servers.get(server.0 as usize).and_then(|s| s.conn),
                _ => None,
            };
            Some(FdFacts {
                fd: fd(client.conn),
                task: "client",
                user: card.user().map(str::to_owned),
                database: card.database().map(str::to_owned),
                addr: address(&ends.peer, &ends.local),
                link: link.map_or(0, fd),
                client_encoding: var(&client.side.vars, b"client_encoding"),
                std_strings: var(&client.side.vars, b"standard_conforming_strings"),
                datestyle: var(&client.side.vars, b"DateStyle"),
                timezone: var(&client.side.vars, b"TimeZone"),
            })
        });
        let servers = self.servers.iter().filter_map(|(_, server)| {
            let (conn, ends) = (server.conn?, server.ends.as_deref()?);
            let room = self.room(server.pool)?;
            let link = server.client.and_then(|client| self.clients.get(client.0 as usize));
            Some(FdFacts {
                fd: fd(conn),
                task: "server",
                user: Some(room.user.to_string()),
                database: Some(room.name.to_string()),
                addr: address(&ends.peer, &ends.local),
                link: link.map_or(0, |client| fd(client.conn)),
                client_encoding: var(&server.side.vars, b"client_encoding"),
                std_strings: var(&server.side.vars, b"standard_conforming_strings"),
                datestyle: var(&server.side.vars, b"DateStyle"),
                timezone: var(&server.side.vars, b"TimeZone"),
            })
        });
        doors.chain(clients).chain(servers).collect()
    }

    /// `stats_period` is over: the averages are taken, and the log gets its line.
    pub(crate) fn tick_stats(&mut self) {
        let period = u64::from(self.site.config.settings.stats_period.max(1)) * 1_000_000_000;
        // All workers turn at the same instants, so that what is added up belongs together.
        let number = self.now.0 / period;
        if number == self.stats_turned {
            return;
        }
        self.stats_turned = number;
        let now_us = self.now.0 / 1000;
        for room in self.rooms.iter_mut().flatten() {
            room.history.turn(&room.counters, now_us);
        }
        let total = self.console_stats.total;
        self.console_stats.history.turn(&total, now_us);
        if self.me.0 == 0 {
            self.ask_all(&crate::order::Order::Facts(View::Stats), crate::ask::Whose::Log);
        }
    }

    /// The stats line, for the log and the service manager.
    pub(crate) fn tell_stats(&mut self, facts: &Facts) {
        let mut all = StatsFacts::default();
        for (name, stats) in &facts.stats {
            if name != admin::CONSOLE {
                all += *stats;
            }
        }
        let averages: Averages = all.history.averages();
        if self.site.config.settings.log_stats {
            self.log(Level::Log, format_args!("{averages}"));
        }
        self.world.errand(Errand::Stats { line: averages.to_string() });
    }
}

fn kept(server: &Server) -> Option<admin::Kept> {
    let (pin, _) = (server.pinned.as_ref()?, server.client?);
    Some(admin::Kept { reasons: server.side.trail.ties.to_string(), since: pin.wall })
}

fn replication(kind: session::login::Replication) -> admin::Replication {
    match kind {
        session::login::Replication::None => admin::Replication::None,
        session::login::Replication::Physical => admin::Replication::Physical,
        session::login::Replication::Logical => admin::Replication::Logical,
    }
}

/// A unix socket has a port as well: that of its name, which only one end may know.
fn address(end: &Address, other: &Address) -> admin::Address {
    match end {
        Address::Inet(at) => admin::Address { ip: Some(at.ip()), port: at.port() },
        Address::Unix(path) => {
            let port = crate::log::unix_port(path).or_else(|| match other {
                Address::Unix(path) => crate::log::unix_port(path),
                Address::Inet(_) => None,
            });
            admin::Address { ip: None, port: port.unwrap_or(0) }
        }
    }
}

fn balance(database: &config::Database) -> Option<&'static str> {
    if database.hosts.len() < 2 {
        return None;
    }
    Some(match database.load_balance_hosts {
        LoadBalance::RoundRobin => "round-robin",
        LoadBalance::Disable => "disable",
    })
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Session => "session",
        Mode::Transaction => "transaction",
        Mode::Statement => "statement",
    }
}

fn config_mode_word(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
        PoolMode::Statement => "statement",
    }
}

fn micros(now: Instant, since: Instant) -> u64 {
    u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX)
}

fn seconds(age: pool::Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}

fn text(value: Option<&[u8]>) -> String {
    value.map_or_else(String::new, |value| String::from_utf8_lossy(value).into_owned())
}
