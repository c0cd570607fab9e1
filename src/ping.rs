//! `howdah ping FILE`: whether the pooler of this configuration takes connections.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use config::{Disk, Settings};

const PATIENCE: Duration = Duration::from_secs(3);

/// The first packet of many clients: is there TLS? It needs no user, and is answered by one byte.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// What to say of it, either way.
pub(crate) fn ping(file: &str) -> Result<String, String> {
    let config = config::load(file, &Disk).map_err(|_| format!("{file} cannot be read"))?;
    let settings = &config.settings;
    let (place, answer) = match settings.listen_addr.iter().next() {
        Some(host) => tcp(host, settings),
        None => unix(settings),
    };
    match answer {
        Ok(b'S' | b'N') => Ok(format!("{place} takes connections")),
        // Too many clients, as a rule: it says so before it knows who asks.
        Ok(_) => Err(format!("{place} takes no connections")),
        Err(error) => Err(format!("{place}: {error}")),
    }
}

fn tcp(host: &str, settings: &Settings) -> (String, io::Result<u8>) {
    // Not `localhost`: a bare container knows no names.
    let host = match host {
        "*" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let place = format!("{host}:{}", settings.listen_port);
    let dial = || {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (host, settings.listen_port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return ask(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    (place, dial())
}

fn unix(settings: &Settings) -> (String, io::Result<u8>) {
    let path = format!("{}/.s.PGSQL.{}", settings.unix_socket_dir, settings.listen_port);
    let dial = || {
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&path)?,
        };
        let stream = UnixStream::connect_addr(&address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        ask(stream)
    };
    let answer = dial();
    (format!("unix:{path}"), answer)
}

fn ask(mut stream: impl Read + Write) -> io::Result<u8> {
    stream.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}
