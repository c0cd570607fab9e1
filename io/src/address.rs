//! Who is at the two ends of a connection.

use std::net::SocketAddr;
use std::path::PathBuf;

/// One end of a socket.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Address {
    Inet(SocketAddr),
    /// A unix socket; a path that starts with `@` is in Linux's abstract namespace. The path of
    /// a unix client is usually empty: it has no name.
    Unix(PathBuf),
}

impl Address {
    #[must_use]
    pub fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Whether it is TCP within this machine.
    #[must_use]
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self, Self::Inet(address) if address.ip().is_loopback())
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
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
