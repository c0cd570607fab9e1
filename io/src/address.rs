//! Who is at the two ends of a connection.

use std::net::SocketAddr;
use std::path::PathBuf;

/// One end of a socket.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    Inet(SocketAddr),
    /// A unix socket; a path that starts with `@` is in Linux's abstract namespace.
    Unix(PathBuf),
}

/// Both ends, as the kernel told them when the connection came up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ends {
    pub peer: Address,
    pub local: Address,
    /// `SO_PEERCRED` of a unix peer.
    pub uid: Option<u32>,
    pub pid: Option<u32>,
}
