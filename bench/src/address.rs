//! Where somebody listens: TCP on loopback, or a unix socket as PostgreSQL names it.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use socket2::{Domain, SockAddr, Socket, Type};

/// Always on this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    Tcp {
        port: u16,
    },
    /// `.s.PGSQL.<port>` in a folder.
    Unix {
        folder: PathBuf,
        port: u16,
    },
}

impl Address {
    /// As `5432` or `/folder:5432`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.rsplit_once(':') {
            Some((folder, port)) if folder.starts_with('/') => {
                Some(Self::Unix { folder: folder.into(), port: port.parse().ok()? })
            }
            _ => Some(Self::Tcp { port: text.parse().ok()? }),
        }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp { port } | Self::Unix { port, .. } => *port,
        }
    }

    /// What libpq, and an ini, call the host.
    #[must_use]
    pub fn host(&self) -> String {
        match self {
            Self::Tcp { .. } => "127.0.0.1".into(),
            Self::Unix { folder, .. } => folder.display().to_string(),
        }
    }

    pub fn resolve(&self) -> io::Result<SockAddr> {
        match self {
            Self::Tcp { port } => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)).into()),
            Self::Unix { folder, port } => SockAddr::unix(folder.join(format!(".s.PGSQL.{port}"))),
        }
    }

    /// Every pooler sends small packets at once, so the rig does too.
    pub fn quicken(&self, socket: &Socket) -> io::Result<()> {
        match self {
            Self::Tcp { .. } => socket.set_tcp_nodelay(true),
            Self::Unix { .. } => Ok(()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { port } => write!(f, "{port}"),
            Self::Unix { folder, port } => write!(f, "{}:{port}", folder.display()),
        }
    }
}

/// A socket that can dial `address`.
pub fn socket_for(address: &Address) -> io::Result<Socket> {
    let domain = match address {
        Address::Tcp { .. } => Domain::IPV4,
        Address::Unix { .. } => Domain::UNIX,
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    address.quicken(&socket)?;
    Ok(socket)
}

/// Listens at `address`; several may share one TCP port, and the kernel deals among them.
pub fn listen(address: &Address) -> io::Result<Socket> {
    let socket = socket_for(address)?;
    if let Address::Tcp { .. } = address {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.resolve()?)?;
    if let Address::Unix { folder, port } = address {
        // A pooler may run as somebody else.
        let everybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.join(format!(".s.PGSQL.{port}")), everybody)?;
    }
    socket.listen(4_096)?;
    Ok(socket)
}

/// A TCP port that nobody uses at the moment.
pub fn free_port() -> io::Result<u16> {
    let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(probe.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_was_written() {
        for text in ["5432", "/tmp/x:6432"] {
            assert_eq!(Address::parse(text).expect("well formed").to_string(), text);
        }
        assert_eq!(Address::parse("relative:5432"), None);
    }
}
