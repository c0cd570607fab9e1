//! Why a command is not carried out, and what is said about it.

use std::fmt;

/// The text is [`fmt::Display`], the SQLSTATE is [`Refusal::code`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// Not a command. Holds what was said.
    InvalidCommand(String),
    /// A word is longer than any that means something.
    BadArguments,
    AdminNeeded,
    SetFailed,
    DatabaseNotPaused(String),
    NotPaused,
    AlreadyPaused,
    NoSuchDatabase(String),
    DatabaseRequired,
    ClientNotFound,
    InvalidClient,
    /// Holds the verb: the console cannot be paused, killed, disabled…
    AdminDatabase(&'static str),
    ShuttingDown,
    SuspendWithPaused,
    ReloadFailed,
    /// A cancel request came for a command that waits.
    Canceled,
    /// Of the extended protocol.
    Protocol(Protocol),
}

/// What PostgreSQL says to a driver that loses count.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Protocol {
    Malformed(u8),
    UnknownMessage(u8),
    NoParameters,
    ParameterCount(u16),
    FormatCount { formats: usize, columns: usize },
    FormatCode(u16),
    StatementExists(String),
    NoStatement(String),
    PortalExists(String),
    NoPortal(String),
    PortalDone(String),
    TooMany(&'static str),
    NameTooLong,
}

impl Refusal {
    /// SQLSTATE. What PgBouncer says too has its code; what only the extended protocol can bring
    /// about has PostgreSQL's.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ReloadFailed => "F0000",
            Self::Canceled => "57014",
            Self::Protocol(protocol) => protocol.code(),
            _ => "08P01",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCommand(said) => {
                write!(f, "invalid command '{}', use SHOW HELP;", shown(said))
            }
            Self::BadArguments => f.write_str("bad arguments"),
            Self::AdminNeeded => f.write_str("admin access needed"),
            Self::SetFailed => f.write_str("SET failed"),
            Self::DatabaseNotPaused(name) => write!(f, "database {name} is not paused"),
            Self::NotPaused => f.write_str("pooler is not paused/suspended"),
            Self::AlreadyPaused => f.write_str("already suspended/paused"),
            Self::NoSuchDatabase(name) => write!(f, "no such database: {name}"),
            Self::DatabaseRequired => f.write_str("a database is required"),
            Self::ClientNotFound => f.write_str("client not found"),
            Self::InvalidClient => f.write_str("invalid client pointer supplied"),
            Self::AdminDatabase(verb) => write!(f, "cannot {verb} admin db: {}", crate::CONSOLE),
            Self::ShuttingDown => f.write_str("pooler is shutting down"),
            Self::SuspendWithPaused => f.write_str("cannot suspend with paused databases"),
            Self::ReloadFailed => f.write_str("RELOAD failed, see logs for additional details"),
            Self::Canceled => f.write_str("canceling statement due to user request"),
            Self::Protocol(protocol) => protocol.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Protocol> for Refusal {
    fn from(protocol: Protocol) -> Self {
        Self::Protocol(protocol)
    }
}

impl Protocol {
    fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_)
            | Self::UnknownMessage(_)
            | Self::ParameterCount(_)
            | Self::FormatCount { .. } => "08P01",
            Self::NoParameters => "0A000",
            Self::FormatCode(_) => "22023",
            Self::StatementExists(_) => "42P05",
            Self::NoStatement(_) => "26000",
            Self::PortalExists(_) => "42P03",
            Self::NoPortal(_) => "34000",
            Self::PortalDone(_) => "55000",
            Self::TooMany(_) | Self::NameTooLong => "54000",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(tag) => write!(f, "invalid message '{}'", tag.escape_ascii()),
            Self::UnknownMessage(tag) => {
                write!(f, "unsupported packet type for admin console: {tag}")
            }
            Self::NoParameters => f.write_str("the admin console takes no parameters"),
            Self::ParameterCount(count) => {
                write!(
                    f,
                    "bind message supplies {count} parameters, but prepared statement requires 0"
                )
            }
            Self::FormatCount { formats, columns } => write!(
                f,
                "bind message has {formats} result formats but query has {columns} columns"
            ),
            Self::FormatCode(code) => write!(f, "unsupported format code: {code}"),
            Self::StatementExists(name) => {
                write!(f, "prepared statement \"{name}\" already exists")
            }
            Self::NoStatement(name) => write!(f, "prepared statement \"{name}\" does not exist"),
            Self::PortalExists(name) => write!(f, "cursor \"{name}\" already exists"),
            Self::NoPortal(name) => write!(f, "portal \"{name}\" does not exist"),
            Self::PortalDone(name) => write!(f, "portal \"{name}\" cannot be run"),
            Self::TooMany(what) => write!(f, "too many {what}"),
            Self::NameTooLong => f.write_str("name too long"),
        }
    }
}

/// As much of a rejected command as is worth repeating.
const SHOWN_BYTES_MAX: usize = 512;

fn shown(said: &str) -> &str {
    let end = said.floor_char_boundary(SHOWN_BYTES_MAX);
    said.get(..end).unwrap_or_default()
}
