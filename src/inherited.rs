//! Sockets that were opened for us: systemd's socket activation.

use std::os::fd::AsFd;

use config::Settings;
use io::Socket;
use listenfd::ListenFd;

use crate::doors::Door;

/// The sockets that the environment names. None where it names none; then the settings say where to listen.
pub(crate) fn doors(settings: &Settings, told: &mut Vec<String>) -> Result<Vec<Door>, String> {
    // An orphaned LISTEN_FDS, without the word that it is meant for us, is meant for somebody else.
    if std::env::var_os("LISTEN_PID").is_none() {
        return Ok(Vec::new());
    }
    let mut given = ListenFd::from_env();
    let mut doors = Vec::new();
    for index in 0..given.len() {
        doors.push(door(&mut given, index)?);
    }
    if doors.is_empty() {
        return Ok(doors);
    }
    for (name, is_set) in [
        ("listen_addr", settings.listen_addr.iter().next().is_some()),
        ("unix_socket_dir", !settings.unix_socket_dir.is_empty()),
    ] {
        if is_set {
            told.push(format!("{name} is ignored: the service manager opened the sockets"));
        }
    }
    Ok(doors)
}

fn door(given: &mut ListenFd, index: usize) -> Result<Door, String> {
    let number = index + 3;
    let of_no_use = |error: std::io::Error| {
        format!("descriptor {number} of the service manager cannot be listened on: {error}")
    };
    if let Ok(Some(tcp)) = given.take_tcp_listener(index) {
        let name = tcp.local_addr().map_err(of_no_use)?.to_string();
        return door_of(tcp.into(), name, false).map_err(of_no_use);
    }
    let unix = given.take_unix_listener(index).map_err(of_no_use)?;
    let Some(unix) = unix else { return Err(of_no_use(std::io::ErrorKind::NotFound.into())) };
    let address = unix.local_addr().map_err(of_no_use)?;
    let name = address
        .as_pathname()
        .map_or_else(|| "unix:@".to_owned(), |path| format!("unix:{}", path.display()));
    door_of(unix.into(), name, true).map_err(of_no_use)
}

/// The socket's file is the service manager's: it stays when we go.
fn door_of(socket: Socket, name: String, is_unix: bool) -> Result<Door, std::io::Error> {
    // Accept=yes hands over connections, of which each would be a process.
    if !rustix::net::sockopt::socket_acceptconn(socket.as_fd())? {
        return Err(std::io::Error::other("it is a connection (is Accept= set to yes?)"));
    }
    Ok(Door { socket, name, path: None, is_unix })
}
