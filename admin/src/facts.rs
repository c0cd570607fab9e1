//! What the views show: plain data, filled in by the workers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::AddAssign;

use metrics::{Counters, History};

use crate::CONSOLE;

/// One worker's part of the truth, or, after [`Facts::merge`], all of it.
///
/// A worker fills in what [`crate::View::needs`] names and leaves the rest empty. Counts add up
/// when facts are merged, so everybody fills in what is theirs alone; what is the same for all
/// (limits, settings, names) may come from one worker or from each.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub zone: Zone,
    pub clients: Vec<ClientFacts>,
    pub servers: Vec<ServerFacts>,
    /// The console's own ([`PoolFacts::console`]) belongs to them.
    pub pools: BTreeMap<PoolName, PoolFacts>,
    /// By peer id.
    pub peer_pools: BTreeMap<u32, PeerPoolFacts>,
    /// By database.
    pub stats: BTreeMap<String, StatsFacts>,
    /// By name. The console's own ([`DatabaseFacts::console`]) belongs to them.
    pub databases: BTreeMap<String, DatabaseFacts>,
    /// By name. The console's own ([`UserFacts::default`]) belongs to them.
    pub users: BTreeMap<String, UserFacts>,
    /// By peer id.
    pub peers: BTreeMap<u32, PeerFacts>,
    /// In the order of the table of settings.
    pub config: Vec<ConfigRow>,
    pub lists: ListFacts,
    pub memory: BTreeMap<Cache, MemoryFacts>,
    /// By host name.
    pub dns_hosts: BTreeMap<String, DnsHostFacts>,
    /// By name of the zone.
    pub dns_zones: BTreeMap<String, DnsZoneFacts>,
    pub state: PauseState,
    pub fds: Vec<FdFacts>,
    pub pins: Vec<PinFacts>,
    pub listeners: BTreeMap<ChannelName, ListenerFacts>,
    /// By database, user and reason.
    pub pin_totals: BTreeMap<(String, String, &'static str), PinTotals>,
    pub session_report: BTreeMap<ReportRow, ReportFacts>,
}

impl Facts {
    /// Adds another worker's part.
    pub fn merge(&mut self, other: Self) {
        if self.zone == Zone::default() {
            self.zone = other.zone;
        }
        self.clients.extend(other.clients);
        self.servers.extend(other.servers);
        self.fds.extend(other.fds);
        self.pins.extend(other.pins);
        if self.config.is_empty() {
            self.config = other.config;
        }
        join(&mut self.pin_totals, other.pin_totals);
        join(&mut self.session_report, other.session_report);
        join(&mut self.pools, other.pools);
        join(&mut self.listeners, other.listeners);
        join(&mut self.peer_pools, other.peer_pools);
        join(&mut self.stats, other.stats);
        join(&mut self.databases, other.databases);
        join(&mut self.users, other.users);
        join(&mut self.memory, other.memory);
        self.peers.extend(other.peers);
        self.dns_hosts.extend(other.dns_hosts);
        self.dns_zones.extend(other.dns_zones);
        self.lists += other.lists;
        self.state = self.state.max(other.state);
    }
}

fn join<K: Ord, V: AddAssign>(ours: &mut BTreeMap<K, V>, theirs: BTreeMap<K, V>) {
    for (name, more) in theirs {
        match ours.entry(name) {
            std::collections::btree_map::Entry::Occupied(mut found) => *found.get_mut() += more,
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(more);
            }
        }
    }
}

/// Local time, as it stands now.
///
/// A connection opened before the clocks were changed is shown in today's zone: another reading of
/// the same instant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Zone {
    /// Seconds east of Greenwich.
    pub offset_s: i32,
    /// `CET`.
    pub name: String,
}

impl Default for Zone {
    fn default() -> Self {
        Self { offset_s: 0, name: "UTC".to_owned() }
    }
}

/// Which pool: SHOW POOLS is sorted by it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PoolName {
    pub database: String,
    pub user: String,
}

/// A row of SHOW CLIENTS.
pub type ClientFacts = SocketFacts<ClientState>;

/// A row of SHOW SERVERS.
pub type ServerFacts = SocketFacts<ServerState>;

/// A connection, to a client or to a server.
#[derive(Clone, Debug)]
pub struct SocketFacts<State> {
    pub state: State,
    /// `None` until it is known.
    pub user: Option<String>,
    /// As clients know it; `None` until it is known, and for peers.
    pub database: Option<String>,
    pub replication: Replication,
    pub addr: Address,
    pub local: Address,
    /// Unix time, seconds.
    pub connect_time: i64,
    /// When the last request began: unix time, seconds.
    pub request_time: i64,
    /// How long the request that is being waited for, waits; zero when none does.
    pub wait_us: u64,
    pub close_needed: bool,
    /// Any number that tells this connection from all others, and is never zero.
    pub ptr: u64,
    /// The `ptr` of the other side.
    pub link: Option<u64>,
    /// Of a client on a unix socket, or of the server's backend; else zero.
    pub remote_pid: u32,
    /// `TLSv1.3/TLS_AES_256_GCM_SHA384`, or empty.
    pub tls: String,
    pub application_name: String,
    pub prepared_statements: usize,
    /// From the one counter of all connections; what KILL_CLIENT asks for. Below 2³¹.
    pub id: u64,
    pub positions: Positions,
    /// Why client and server are kept together between transactions.
    pub pin: Option<Kept>,
}

/// Why and since when client and server are kept together.
#[derive(Clone, Debug)]
pub struct Kept {
    /// With commas between.
    pub reasons: String,
    /// Unix time, seconds.
    pub since: i64,
}

/// Whether a connection replicates, and how.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Replication {
    #[default]
    None,
    Logical,
    Physical,
}

/// Where a client is. In the order of SHOW CLIENTS.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ClientState {
    /// Linked to a server.
    Active,
    /// Logged in, and wanting nothing.
    Idle,
    Waiting,
    /// A cancel request that has its server.
    ActiveCancel,
    /// A cancel request in line.
    WaitingCancel,
    /// Not let in yet: shown by SHOW SOCKETS only.
    Login,
}

/// Where a server is. In the order of SHOW SERVERS.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ServerState {
    Active,
    Idle,
    /// Idle for so long that it is checked before its next use.
    Used,
    Tested,
    /// Connecting, or logging in.
    New,
    /// Carries a cancel request.
    ActiveCancel,
    /// Waits until the cancel request for it is through.
    BeingCanceled,
}

/// Where a connection comes from or leads to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Address {
    /// `None`: a unix socket.
    pub ip: Option<IpAddr>,
    pub port: u16,
}

/// What lies in a connection's buffers, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Positions {
    /// End of what has been received.
    pub recv_pos: usize,
    /// End of what has been understood.
    pub pkt_pos: usize,
    /// Of the message at hand, still to come.
    pub pkt_remain: usize,
    /// End of what has been sent.
    pub send_pos: usize,
    /// Of the message at hand, still to be sent.
    pub send_remain: usize,
    /// Received, not understood yet.
    pub pkt_avail: usize,
    /// Understood, not sent yet.
    pub send_avail: usize,
}

/// A row of SHOW PINS.
#[derive(Clone, Debug, Default)]
pub struct PinFacts {
    pub database: String,
    pub user: String,
    pub application_name: String,
    pub client_id: u64,
    pub server_id: u64,
    /// Of the backend.
    pub server_pid: u32,
    /// With commas between.
    pub reasons: String,
    /// The beginning of the statement that brought it about, as far as that is known.
    pub statement: String,
    /// Unix time, seconds.
    pub since: i64,
}

/// Which channel: SHOW LISTENERS is sorted by it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ChannelName {
    pub database: String,
    pub user: String,
    pub channel: String,
}

/// A row of SHOW LISTENERS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ListenerFacts {
    /// Those that have no server.
    pub clients: u64,
    /// Notifications they were given.
    pub delivered: u64,
}

impl AddAssign for ListenerFacts {
    fn add_assign(&mut self, other: Self) {
        self.clients += other.clients;
        self.delivered += other.delivered;
    }
}

/// A row of SHOW PIN_TOTALS.
#[derive(Clone, Copy, Debug, Default)]
pub struct PinTotals {
    /// Now.
    pub pinned: u64,
    /// Ever.
    pub pins: u64,
    pub time_us: u64,
    pub longest_us: u64,
    pub warnings: u64,
    pub refused: u64,
    /// Servers closed since they could not be set.
    pub unset: u64,
}

impl AddAssign for PinTotals {
    fn add_assign(&mut self, other: Self) {
        self.pinned += other.pinned;
        self.pins += other.pins;
        self.time_us = self.time_us.saturating_add(other.time_us);
        self.longest_us = self.longest_us.max(other.longest_us);
        self.warnings += other.warnings;
        self.refused += other.refused;
        self.unset += other.unset;
    }
}

/// Which row of SHOW SESSION_REPORT.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ReportRow {
    pub database: String,
    pub user: String,
    pub kind: &'static str,
    /// Of the statement.
    pub number: u64,
}

/// What it says.
#[derive(Clone, Debug, Default)]
pub struct ReportFacts {
    /// Of the verdict: the worst are shown first.
    pub gravity: u8,
    pub verdict: &'static str,
    /// Without its constants.
    pub statement: String,
    /// Adds up, as `clients` does.
    pub count: u64,
    pub clients: u64,
    /// Unix time, seconds.
    pub first_seen: i64,
    pub last_seen: i64,
    /// Of the client that did it last.
    pub application_name: String,
    pub advice: String,
}

impl AddAssign for ReportFacts {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.clients += other.clients;
        self.first_seen = self.first_seen.min(other.first_seen);
        if other.last_seen > self.last_seen {
            (self.last_seen, self.application_name) = (other.last_seen, other.application_name);
        }
    }
}

/// A row of SHOW POOLS.
#[derive(Clone, Debug, Default)]
pub struct PoolFacts {
    /// Linked, and idle too.
    pub cl_active: usize,
    pub cl_waiting: usize,
    pub cl_active_cancel_req: usize,
    pub cl_waiting_cancel_req: usize,
    pub sv_active: usize,
    pub sv_active_cancel: usize,
    pub sv_being_canceled: usize,
    pub sv_idle: usize,
    pub sv_used: usize,
    pub sv_tested: usize,
    pub sv_login: usize,
    /// How long the first in line waits.
    pub maxwait_us: u64,
    pub pool_mode: &'static str,
    /// `None` unless the database has several hosts.
    pub load_balance_hosts: Option<&'static str>,
}

impl PoolFacts {
    /// The console's own row, with the administrators who are there.
    #[must_use]
    pub fn console(cl_active: usize) -> Self {
        Self { cl_active, pool_mode: "statement", ..Self::default() }
    }
}

impl AddAssign for PoolFacts {
    fn add_assign(&mut self, other: Self) {
        self.cl_active += other.cl_active;
        self.cl_waiting += other.cl_waiting;
        self.cl_active_cancel_req += other.cl_active_cancel_req;
        self.cl_waiting_cancel_req += other.cl_waiting_cancel_req;
        self.sv_active += other.sv_active;
        self.sv_active_cancel += other.sv_active_cancel;
        self.sv_being_canceled += other.sv_being_canceled;
        self.sv_idle += other.sv_idle;
        self.sv_used += other.sv_used;
        self.sv_tested += other.sv_tested;
        self.sv_login += other.sv_login;
        self.maxwait_us = self.maxwait_us.max(other.maxwait_us);
    }
}

/// A row of SHOW PEER_POOLS.
#[derive(Clone, Debug, Default)]
pub struct PeerPoolFacts {
    pub cl_active_cancel_req: usize,
    pub cl_waiting_cancel_req: usize,
    pub sv_active_cancel: usize,
    pub sv_login: usize,
}

impl AddAssign for PeerPoolFacts {
    fn add_assign(&mut self, other: Self) {
        self.cl_active_cancel_req += other.cl_active_cancel_req;
        self.cl_waiting_cancel_req += other.cl_waiting_cancel_req;
        self.sv_active_cancel += other.sv_active_cancel;
        self.sv_login += other.sv_login;
    }
}

/// What was counted for one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatsFacts {
    pub total: Counters,
    pub history: History,
}

impl AddAssign for StatsFacts {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.history += other.history;
    }
}

/// A row of SHOW DATABASES. Limits are those that hold, wherever they are set.
#[derive(Clone, Debug, Default)]
pub struct DatabaseFacts {
    /// `None`: the unix socket.
    pub host: Option<String>,
    pub port: u16,
    /// Its name on the server.
    pub database: String,
    pub force_user: Option<String>,
    pub pool_size: u32,
    pub min_pool_size: u32,
    pub reserve_pool_size: u32,
    pub server_lifetime_s: u64,
    /// `None` unless it is set for this database.
    pub pool_mode: Option<&'static str>,
    /// `None` unless the database has several hosts.
    pub load_balance_hosts: Option<&'static str>,
    pub max_connections: u32,
    /// Servers open; adds up.
    pub current_connections: usize,
    pub max_client_connections: u32,
    /// Adds up.
    pub current_client_connections: usize,
    pub paused: bool,
    pub disabled: bool,
}

impl DatabaseFacts {
    /// The console's own row.
    #[must_use]
    pub fn console(listen_port: u16, server_lifetime_s: u64) -> Self {
        Self {
            port: listen_port,
            database: CONSOLE.to_owned(),
            force_user: Some(CONSOLE.to_owned()),
            pool_size: 2,
            server_lifetime_s,
            pool_mode: Some("statement"),
            ..Self::default()
        }
    }
}

impl AddAssign for DatabaseFacts {
    fn add_assign(&mut self, other: Self) {
        self.current_connections += other.current_connections;
        self.current_client_connections += other.current_client_connections;
        self.paused |= other.paused;
        self.disabled |= other.disabled;
    }
}

/// A row of SHOW USERS.
#[derive(Clone, Debug, Default)]
pub struct UserFacts {
    /// `None` unless it is set for this user, as with the next two.
    pub pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    pub pool_mode: Option<&'static str>,
    /// The limit that holds.
    pub max_user_connections: u32,
    /// Servers open; adds up.
    pub current_connections: usize,
    /// The limit that holds.
    pub max_user_client_connections: u32,
    /// Adds up.
    pub current_client_connections: usize,
}

impl AddAssign for UserFacts {
    fn add_assign(&mut self, other: Self) {
        self.current_connections += other.current_connections;
        self.current_client_connections += other.current_client_connections;
    }
}

/// A row of SHOW PEERS.
#[derive(Clone, Debug, Default)]
pub struct PeerFacts {
    pub host: Option<String>,
    pub port: u16,
    pub pool_size: u32,
}

/// A row of SHOW CONFIG. Passwords and other secrets do not belong here.
#[derive(Clone, Debug)]
pub struct ConfigRow {
    pub key: &'static str,
    pub value: Option<String>,
    pub default: Option<String>,
    pub changeable: bool,
}

/// What SHOW LISTS counts that is shown nowhere else. All of it adds up.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListFacts {
    pub free_clients: usize,
    pub used_clients: usize,
    pub login_clients: usize,
    pub free_servers: usize,
    pub used_servers: usize,
    pub dns_queries: usize,
    pub dns_pending: usize,
}

impl AddAssign for ListFacts {
    fn add_assign(&mut self, other: Self) {
        self.free_clients += other.free_clients;
        self.used_clients += other.used_clients;
        self.login_clients += other.login_clients;
        self.free_servers += other.free_servers;
        self.used_servers += other.used_servers;
        self.dns_queries += other.dns_queries;
        self.dns_pending += other.dns_pending;
    }
}

/// What objects are kept of. In the order of SHOW MEM.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Cache {
    User,
    Credentials,
    Db,
    Peer,
    PeerPool,
    Pool,
    OutstandingRequest,
    Server,
    Client,
    Iobuf,
    VarList,
    ServerPreparedStatement,
}

/// A row of SHOW MEM.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    /// Bytes of one object.
    pub size: usize,
    /// Objects; adds up, as `free` does.
    pub used: usize,
    pub free: usize,
}

impl AddAssign for MemoryFacts {
    fn add_assign(&mut self, other: Self) {
        self.size = self.size.max(other.size);
        self.used += other.used;
        self.free += other.free;
    }
}

/// A row of SHOW DNS_HOSTS.
#[derive(Clone, Debug, Default)]
pub struct DnsHostFacts {
    /// Seconds until it is looked up again.
    pub ttl_s: u64,
    pub addrs: Vec<IpAddr>,
}

/// A row of SHOW DNS_ZONES.
#[derive(Clone, Copy, Debug, Default)]
pub struct DnsZoneFacts {
    pub serial: u32,
    /// Host names in it.
    pub count: usize,
}

/// What the whole pooler is doing. The worse of two workers' states is the pooler's.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum PauseState {
    #[default]
    Active,
    Paused,
    Suspended,
}

/// A row of SHOW FDS. There is no place for secrets: those columns are always NULL.
#[derive(Clone, Debug, Default)]
pub struct FdFacts {
    pub fd: i32,
    /// `pooler` (it listens), `client` or `server`.
    pub task: &'static str,
    pub user: Option<String>,
    pub database: Option<String>,
    pub addr: Address,
    /// The fd of the other side, or zero.
    pub link: i32,
    pub client_encoding: Option<String>,
    pub std_strings: Option<String>,
    pub datestyle: Option<String>,
    pub timezone: Option<String>,
}
