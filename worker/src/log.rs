//! Log lines, in the form that people's parsers match.
//!
//! `YYYY-MM-DD HH:MM:SS.mmm TZ [pid] LEVEL C-0x…: db/user@host:port text`. The time, the process
//! and the file are the sink's; what stands after the level is made here.

use std::fmt;

use io::{Address, Ends};

/// How loud a line is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    Fatal,
    Error,
    Warning,
    Log,
    Debug,
    Noise,
}

impl Level {
    /// The word in the line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Log => "LOG",
            Self::Debug => "DEBUG",
            Self::Noise => "NOISE",
        }
    }
}

/// Where lines go: a file, standard error, or the simulator's memory. A sink that cannot write
/// (a full disk) drops the line and counts it; the worker never hears of it.
pub trait Log {
    /// Whether lines of `level` are wanted at all.
    fn wants(&self, level: Level) -> bool;
    /// Take one line. It may be kept until [`Log::flush`].
    fn line(&mut self, level: Level, text: fmt::Arguments<'_>);
    /// The turn is over: write out what was kept.
    fn flush(&mut self);
}

/// Who a line is about: the `C-0x…: db/user@host:port ` in front of it.
pub(crate) struct Subject<'a> {
    pub side: Side,
    pub id: u64,
    pub database: Option<&'a str>,
    pub user: Option<&'a str>,
    pub ends: Option<&'a Ends>,
}

/// Which side of the pooler a socket is on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.side == Side::Client { 'C' } else { 'S' };
        let database = self.database.unwrap_or("(nodb)");
        let user = self.user.unwrap_or("(nouser)");
        write!(f, "{letter}-{:#x}: {database}/{user}@", pointer(self.id))?;
        match self.ends {
            None => f.write_str("(bad-af):0"),
            Some(ends) => write!(f, "{}", Place(ends)),
        }
    }
}

/// The `ptr` of a socket. People join log lines and SHOW by it; it is made of the id, for an
/// address of ours would tell an attacker where our memory lies.
pub(crate) fn pointer(id: u64) -> u64 {
    0x5500_0000_0000 + id * 0x100
}

/// The peer of a connection, as the log writes it.
pub(crate) fn place(ends: &Ends) -> String {
    Place(ends).to_string()
}

/// An address, as the log writes it.
pub(crate) fn address(address: &Address) -> String {
    match address {
        Address::Inet(at) => at.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// `host:port` of a peer: IPv6 in brackets, unix peers as `unix(pid):port`.
struct Place<'a>(&'a Ends);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.peer {
            Address::Inet(at) => write!(f, "{at}"),
            Address::Unix(path) => {
                let port = unix_port(path).or_else(|| match &self.0.local {
                    Address::Unix(local) => unix_port(local),
                    Address::Inet(_) => None,
                });
                write!(f, "unix({}):{}", self.0.pid.unwrap_or(0), port.unwrap_or(0))
            }
        }
    }
}

/// The port in the name of a PostgreSQL socket file (`.s.PGSQL.5432`).
pub(crate) fn unix_port(path: &std::path::Path) -> Option<u16> {
    path.to_str()?.rsplit_once('.')?.1.parse().ok()
}
