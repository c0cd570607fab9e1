//! One line of `[databases]`.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::pairs::{Field, Key, fill};
use crate::problem::Findings;
use crate::session_state::StatePolicy;
use crate::{Place, PoolMode, Problem};

/// The console's own database; no line may claim it.
pub(crate) const CONSOLE: &str = "pgbouncer";

/// A database that clients may ask for. `None` means that the setting decides.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Database {
    /// What clients ask for; `*` for the template of databases that are not listed.
    pub name: String,
    /// What it is called on the server; unset, as clients call it.
    pub dbname: Option<String>,
    /// Empty is the Unix socket in `unix_socket_dir`.
    pub hosts: Vec<Host>,
    /// The hosts as they were written.
    pub host: Option<String>,
    pub port: u16,
    /// Every server is logged in to as this user, whoever the client is.
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub auth_user: Option<String>,
    pub auth_query: Option<String>,
    pub auth_dbname: Option<String>,
    pub pool_size: Option<u32>,
    pub min_pool_size: Option<u32>,
    pub reserve_pool_size: Option<u32>,
    /// Run on every server after its login.
    pub connect_query: Option<String>,
    pub pool_mode: Option<PoolMode>,
    pub query_wait_timeout: Option<Duration>,
    pub server_lifetime: Option<Duration>,
    pub load_balance_hosts: LoadBalance,
    pub sslnegotiation: SslNegotiation,
    pub max_pinned_servers: Option<u32>,
    pub pin_timeout: Option<Duration>,
    pub pin_idle_timeout: Option<Duration>,
    pub session_report: Option<bool>,
    pub session_state: Option<StatePolicy>,
    pub max_db_connections: Option<u32>,
    pub max_db_client_connections: Option<u32>,
    pub client_encoding: Option<String>,
    pub datestyle: Option<String>,
    pub timezone: Option<String>,
    pub application_name: Option<String>,
}

/// Where a server is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Host {
    Name(String),
    Ip(IpAddr),
    /// The directory of a Unix socket.
    UnixDir(String),
    /// A directory in the abstract namespace, with its `@`.
    Abstract(String),
}

/// Which of several hosts the next server is opened on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LoadBalance {
    /// Each the next one.
    RoundRobin,
    /// The first, and the next only when it fails.
    Disable,
}

/// How TLS with a server begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SslNegotiation {
    /// It is asked whether it speaks TLS.
    Postgres,
    /// With its first byte, which PostgreSQL understands since version 17. It saves a round trip.
    Direct,
}

/// A text that does not show in debug output.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Host {
    /// One host as it is written in the file.
    pub(crate) fn read(text: &str) -> Self {
        match text.as_bytes().first() {
            Some(b'/') => Self::UnixDir(text.to_owned()),
            Some(b'@') => Self::Abstract(text.to_owned()),
            _ => text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Ip),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) | Self::UnixDir(text) | Self::Abstract(text) => f.write_str(text),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

impl Database {
    /// What the database is called on the server.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.dbname.as_deref().unwrap_or(&self.name)
    }

    /// The database that the template makes when a client asks for `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// Whether servers opened for `self` will do for `other`. Limits and pool mode may differ, and
    /// so may the password: it was right when they logged in.
    #[must_use]
    pub fn same_servers(&self, other: &Self) -> bool {
        self.server_name() == other.server_name()
            && self.hosts == other.hosts
            && self.port == other.port
            && self.user == other.user
            && self.connect_query == other.connect_query
            && self.auth_dbname == other.auth_dbname
            && self.auth_query == other.auth_query
            && self.load_balance_hosts == other.load_balance_hosts
            && self.sslnegotiation == other.sslnegotiation
    }

    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            dbname: None,
            hosts: Vec::new(),
            host: None,
            port: 5432,
            user: None,
            password: None,
            auth_user: None,
            auth_query: None,
            auth_dbname: None,
            pool_size: None,
            min_pool_size: None,
            reserve_pool_size: None,
            connect_query: None,
            pool_mode: None,
            query_wait_timeout: None,
            server_lifetime: None,
            load_balance_hosts: LoadBalance::RoundRobin,
            sslnegotiation: SslNegotiation::Postgres,
            max_pinned_servers: None,
            pin_timeout: None,
            pin_idle_timeout: None,
            session_report: None,
            session_state: None,
            max_db_connections: None,
            max_db_client_connections: None,
            client_encoding: None,
            datestyle: None,
            timezone: None,
            application_name: None,
        }
    }

    /// The database `name` as the connection string `text` describes it.
    pub(crate) fn read(
        name: &str,
        text: &str,
        place: &Place,
        found: &mut Findings,
    ) -> Option<Self> {
        if name == CONSOLE {
            let what = format!("database name \"{CONSOLE}\" is reserved");
            found.error(Problem::new(what).at(place));
            return None;
        }
        if name.len() > NAME_BYTES_MAX {
            let what = format!("database name \"{name}\" is too long");
            let hint = format!("at most {NAME_BYTES_MAX} bytes");
            found.error(Problem::new(what).at(place).hint(hint));
            return None;
        }
        let mut database = Self::new(name);
        fill(&mut database, KEYS, "connection", name, text, place, found);
        if database.password.is_some() && database.user.is_none() {
            let what = format!("the password of database {name} is not used without a user");
            found.warn(Problem::new(what).at(place));
        }
        Some(database)
    }
}

/// What PostgreSQL's `NAMEDATALEN` leaves for a name.
pub(crate) const NAME_BYTES_MAX: usize = 63;

const fn key(
    name: &'static str,
    field: Field<Database>,
    default: &'static str,
    doc: &'static str,
) -> Key<Database> {
    Key { name, field, default, doc }
}

/// What a line of `[databases]` may say.
pub(crate) const KEYS: &[Key<Database>] = &[
    key("dbname", Field::Text(|db| &mut db.dbname), "the name", "Name on the server."),
    key(
        "host",
        Field::Other(Database::set_host),
        "unix_socket_dir",
        "Address, host name, directory of a Unix socket (`/…` or `@…`), or several with commas.",
    ),
    key("port", Field::Port(|db| &mut db.port), "5432", "Port, the same for all hosts."),
    key(
        "user",
        Field::Text(|db| &mut db.user),
        "the client's",
        "User all servers log in as, whoever the client is: they share one pool.",
    ),
    key("password", Field::Secret(|db| &mut db.password), "from auth_file", "Password of `user`."),
    key("auth_user", Field::Text(|db| &mut db.auth_user), "the setting", "As the setting."),
    key("auth_query", Field::Text(|db| &mut db.auth_query), "the setting", "As the setting."),
    key("auth_dbname", Field::Other(Database::set_auth_dbname), "the setting", "As the setting."),
    key(
        "pool_size",
        Field::Number(|db| &mut db.pool_size),
        "default_pool_size",
        "Servers per pool.",
    ),
    key(
        "min_pool_size",
        Field::Number(|db| &mut db.min_pool_size),
        "the setting",
        "Servers kept open per pool.",
    ),
    key(
        "reserve_pool_size",
        Field::Number(|db| &mut db.reserve_pool_size),
        "the setting",
        "Servers beyond pool_size when clients wait too long.",
    ),
    key(
        "reserve_pool",
        Field::Number(|db| &mut db.reserve_pool_size),
        "the setting",
        "The former name of reserve_pool_size.",
    ),
    key(
        "connect_query",
        Field::Text(|db| &mut db.connect_query),
        "none",
        "Query run on every server after its login, before its first use.",
    ),
    key("pool_mode", Field::Mode(|db| &mut db.pool_mode), "the setting", "As the setting."),
    key(
        "query_wait_timeout",
        Field::Seconds(|db| &mut db.query_wait_timeout),
        "the setting",
        "As the setting, in whole seconds.",
    ),
    key(
        "server_lifetime",
        Field::Seconds(|db| &mut db.server_lifetime),
        "the setting",
        "As the setting, in whole seconds.",
    ),
    key(
        "load_balance_hosts",
        Field::Other(Database::set_load_balance),
        "round-robin",
        "round-robin opens each server on the next host; disable on the first that works.",
    ),
    key(
        "sslnegotiation",
        Field::Other(Database::set_sslnegotiation),
        "postgres",
        "How TLS with the server begins: postgres asks first whether it may; direct does not (PostgreSQL 17 and later), and goes on without TLS in no mode but disable.",
    ),
    key(
        "max_pinned_servers",
        Field::Number(|db| &mut db.max_pinned_servers),
        "the setting",
        "As the setting.",
    ),
    key(
        "pin_timeout",
        Field::Seconds(|db| &mut db.pin_timeout),
        "the setting",
        "As the setting, in whole seconds.",
    ),
    key(
        "pin_idle_timeout",
        Field::Seconds(|db| &mut db.pin_idle_timeout),
        "the setting",
        "As the setting, in whole seconds.",
    ),
    key(
        "session_report",
        Field::Flag(|db| &mut db.session_report),
        "the setting",
        "As the setting.",
    ),
    key(
        "session_state",
        Field::Other(Database::set_session_state),
        "the setting",
        "As the setting, kind by kind; quoted where blanks stand between.",
    ),
    key(
        "max_db_connections",
        Field::Number(|db| &mut db.max_db_connections),
        "the setting",
        "Servers over all users; 0 is no limit.",
    ),
    key(
        "max_db_client_connections",
        Field::Number(|db| &mut db.max_db_client_connections),
        "the setting",
        "Clients over all users; 0 is no limit.",
    ),
    key(
        "client_encoding",
        Field::Text(|db| &mut db.client_encoding),
        "the client's",
        "Set for clients at login.",
    ),
    key(
        "datestyle",
        Field::Text(|db| &mut db.datestyle),
        "the client's",
        "Set for clients at login.",
    ),
    key(
        "timezone",
        Field::Text(|db| &mut db.timezone),
        "the client's",
        "Set for clients at login.",
    ),
    key(
        "application_name",
        Field::Text(|db| &mut db.application_name),
        "the client's",
        "Set for clients at login.",
    ),
];

impl Database {
    fn set_host(&mut self, text: &str) -> Result<(), String> {
        let hosts = text.split(',').map(str::trim);
        if hosts.clone().any(str::is_empty) {
            return Err("expected hosts separated by single commas".to_owned());
        }
        self.hosts = hosts.map(Host::read).collect();
        self.host = Some(text.to_owned());
        Ok(())
    }

    fn set_auth_dbname(&mut self, text: &str) -> Result<(), String> {
        if text == CONSOLE {
            return Err(format!("expected a database other than the reserved \"{CONSOLE}\""));
        }
        self.auth_dbname = Some(text.to_owned());
        Ok(())
    }

    fn set_session_state(&mut self, text: &str) -> Result<(), String> {
        self.session_state = Some(StatePolicy::read(text)?);
        Ok(())
    }

    fn set_load_balance(&mut self, text: &str) -> Result<(), String> {
        self.load_balance_hosts = match text.to_ascii_lowercase().as_str() {
            "round-robin" => LoadBalance::RoundRobin,
            "disable" => LoadBalance::Disable,
            _ => return Err("expected one of round-robin, disable".to_owned()),
        };
        Ok(())
    }

    fn set_sslnegotiation(&mut self, text: &str) -> Result<(), String> {
        self.sslnegotiation = match text.to_ascii_lowercase().as_str() {
            "postgres" => SslNegotiation::Postgres,
            "direct" => SslNegotiation::Direct,
            _ => return Err("expected one of postgres, direct".to_owned()),
        };
        Ok(())
    }
}
