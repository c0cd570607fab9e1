//! Listening sockets, as the configuration wants them.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use config::Settings;
use io::Socket;

/// A socket to listen on, and how the log calls it.
pub(crate) struct Door {
    pub(crate) socket: Socket,
    pub(crate) name: String,
    /// Of a unix socket: the file that is to be removed at the end, if there is one.
    pub(crate) path: Option<PathBuf>,
    pub(crate) is_unix: bool,
}

/// Open all of them. The errors of single addresses are told; nothing at all is an error of its own.
pub(crate) fn open(settings: &Settings, told: &mut Vec<String>) -> Result<Vec<Door>, String> {
    let mut doors = crate::inherited::doors(settings, told)?;
    if !doors.is_empty() {
        return Ok(doors);
    }
    let backlog = settings.listen_backlog;
    let mut known = std::collections::BTreeSet::new();
    for host in settings.listen_addr.iter() {
        for address in addresses(host, settings.listen_port, told) {
            // Two names may well mean the same address.
            if !known.insert(address) {
                continue;
            }
            match io::listen_tcp(address, backlog, settings.so_reuseport) {
                Ok(socket) => doors.push(Door {
                    socket,
                    name: address.to_string(),
                    path: None,
                    is_unix: false,
                }),
                // A machine without IPv6 still serves `*` by IPv4.
                Err(error) if host == "*" && address.is_ipv6() => {
                    told.push(format!("cannot listen on {address}: {error}"));
                }
                Err(error) => return Err(format!("cannot listen on {address}: {error}")),
            }
        }
    }
    if !settings.unix_socket_dir.is_empty() {
        doors.push(unix(settings)?);
    }
    if doors.is_empty() { Err("nowhere to listen on".to_owned()) } else { Ok(doors) }
}

/// For `howdah check`: names of which nobody knows the address.
pub(crate) fn unknown(settings: &Settings) -> Vec<String> {
    let mut told = Vec::new();
    for host in settings.listen_addr.iter() {
        addresses(host, settings.listen_port, &mut told);
    }
    told
}

fn unix(settings: &Settings) -> Result<Door, String> {
    let dir = &settings.unix_socket_dir;
    let path = PathBuf::from(format!("{dir}/.s.PGSQL.{}", settings.listen_port));
    let abstracted = dir.starts_with('@');
    let group = match settings.unix_socket_group.as_str() {
        "" => None,
        name => Some(crate::identity::group(name)?),
    };
    let mode = Some(settings.unix_socket_mode);
    let socket = io::listen_unix(&path, settings.listen_backlog, mode, group).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            format!("unix socket is in use, cannot continue ({})", path.display())
        } else {
            format!("cannot listen on unix:{}: {error}", path.display())
        }
    })?;
    let name = format!("unix:{}", path.display());
    Ok(Door { socket, name, path: (!abstracted).then_some(path), is_unix: true })
}

fn addresses(host: &str, port: u16, told: &mut Vec<String>) -> Vec<SocketAddr> {
    if host == "*" {
        return vec![([0, 0, 0, 0], port).into(), ([0_u16; 8], port).into()];
    }
    match (host, port).to_socket_addrs() {
        Ok(found) => {
            let mut found: Vec<SocketAddr> = found.collect();
            found.sort();
            found.dedup();
            found
        }
        Err(error) => {
            told.push(format!("listen_addr {host}: {error}"));
            Vec::new()
        }
    }
}
