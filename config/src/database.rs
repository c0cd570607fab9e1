//! One line of `[databases]`.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::PoolMode;

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

    /// Whether servers opened for `self` will do for `other`.
    #[must_use]
    pub fn same_servers(&self, other: &Self) -> bool {
        self.server_name() == other.server_name()
    }
}
