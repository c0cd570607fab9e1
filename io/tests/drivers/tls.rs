//! TLS over every driver, against a session of rustls' own at the far end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use io::{Conn, Driver, Session};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use crate::world::{OnBytes, World, over_each, stream, tcp_pair};

/// A certificate for `localhost`, and who believes it.
pub(crate) static CONFIGS: LazyLock<(Arc<ServerConfig>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    server.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
});

pub(crate) fn as_server() -> Session {
    Session::Server(CONFIGS.0.clone())
}

pub(crate) fn as_client() -> Session {
    Session::Client(CONFIGS.1.clone(), localhost())
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

/// The far end, once it is shaking hands.
fn far_end(far: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    StreamOwned::new(ClientConnection::new(CONFIGS.1.clone(), localhost()).unwrap(), far)
}

/// A secured connection, and its far end.
fn secured(world: &mut World) -> (Conn, StreamOwned<ClientConnection, TcpStream>) {
    let (near, far) = tcp_pair();
    let conn = world.adopt(near);
    world.driver.secure(conn, as_server());
    let far = thread::spawn(move || {
        let mut far = far_end(far);
        far.flush().unwrap();
        far
    });
    world.until("the handshake", |world| world.said(conn).sealed.is_some() && far.is_finished());
    (conn, far.join().unwrap())
}

#[test]
fn a_handshake_says_what_it_came_to() {
    over_each(|world| {
        let (conn, _far) = secured(world);
        let sealed = world.said(conn).sealed.clone().unwrap();
        assert_eq!(sealed.suite, "TLSv1.3/TLS_AES_256_GCM_SHA384");
        assert_eq!((sealed.alpn, sealed.peer, sealed.resumed), (None, None, false));
    });
}

#[test]
fn megabytes_come_back_encrypted() {
    const LENGTH: usize = 3_000_000;
    over_each(|world| {
        world.on_bytes = OnBytes::Echo;
        let (_, mut far) = secured(world);
        let client = thread::spawn(move || {
            let mut back = vec![0; 100_000];
            for at in (0..LENGTH).step_by(back.len()) {
                far.write_all(&stream(7, at, back.len())).unwrap();
                far.read_exact(&mut back).unwrap();
                assert!(back == stream(7, at, back.len()));
            }
        });
        world.until("all back", |_| client.is_finished());
        client.join().unwrap();
    });
}

/// What the far end receives, as records: their lengths.
fn records(far: &mut TcpStream, bytes: usize) -> Vec<usize> {
    let (mut lengths, mut sum) = (Vec::new(), 0);
    while sum < bytes {
        let mut header = [0; 5];
        far.read_exact(&mut header).unwrap();
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        far.read_exact(&mut vec![0; length]).unwrap();
        lengths.push(length);
        sum += length;
    }
    lengths
}

/// One record for the small writes of a turn, and records as large as may be for a large result.
#[test]
fn records_fit_what_is_said() {
    over_each(|world| {
        let (conn, mut far) = secured(world);
        world.until_quiet();
        for _ in 0..100 {
            world.driver.write(conn, b"DataRow...");
        }
        assert_eq!(world.driver.unsent(conn), 1000);
        let reader = thread::spawn(move || {
            let small = records(&mut far.sock, 1000);
            (small, far)
        });
        world.until("it was read", |_| reader.is_finished());
        let (small, mut far) = reader.join().unwrap();
        // The ticket that follows the handshake may still be on its way.
        assert!(small.len() <= 2 && small.contains(&1017), "{small:?}");

        world.driver.write(conn, &stream(1, 0, 100_000));
        let reader = thread::spawn(move || records(&mut far.sock, 100_000));
        world.until("it was read", |_| reader.is_finished());
        let large = reader.join().unwrap();
        assert!(large.len() <= 8, "{large:?}");
        world.until("nothing unsent", |world| world.driver.unsent(conn) == 0);
    });
}

/// Records that come byte by byte, and a handshake that was begun before anybody thought of TLS.
#[test]
fn bytes_trickle_in() {
    over_each(|world| {
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        let slow = thread::spawn(move || {
            struct Slow(TcpStream);
            impl Read for Slow {
                fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
                    self.0.read(bytes)
                }
            }
            impl Write for Slow {
                fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                    self.0.write(&bytes[..bytes.len().min(1)])
                }
                fn flush(&mut self) -> std::io::Result<()> {
                    self.0.flush()
                }
            }
            let session = ClientConnection::new(CONFIGS.1.clone(), localhost()).unwrap();
            let mut far = StreamOwned::new(session, Slow(far));
            far.write_all(&stream(3, 0, 1000)).unwrap();
            far.flush().unwrap();
            far
        });
        world.until("a first byte", |world| world.said(conn).count > 0);
        let early = std::mem::take(&mut world.conns.get_mut(&conn).unwrap().bytes);
        world.conns.get_mut(&conn).unwrap().count = 0;
        world.driver.secure(conn, as_server());
        world.driver.unread(conn, early.into());
        world.until("all there", |world| world.said(conn).count == 1000);
        assert!(world.said(conn).bytes == stream(3, 0, 1000));
        drop(slow.join().unwrap());
    });
}

#[test]
fn what_is_no_tls_ends_with_an_error() {
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.secure(conn, as_server());
        far.write_all(b"Q\0\0\0\x0dSELECT 1\0").unwrap();
        world.until("the end", |world| world.said(conn).ended.is_some());
        assert_eq!(world.said(conn).ended, Some(Some(ErrorKind::Other)));
        assert_eq!(world.said(conn).count, 0);
        // The alert goes out before the socket is closed.
        world.driver.finish(conn);
        world.until("closed", |world| world.said(conn).closed);
        let mut alert = Vec::new();
        far.read_to_end(&mut alert).unwrap();
        assert_eq!(alert.first(), Some(&21), "{alert:?}");
    });
}

/// A client that does not believe us says so, and we say what it said.
#[test]
fn a_refused_certificate_is_an_error_on_both_sides() {
    over_each(|world| {
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.secure(conn, as_server());
        let other = ServerName::try_from("elsewhere").unwrap();
        let client = thread::spawn(move || {
            let session = ClientConnection::new(CONFIGS.1.clone(), other).unwrap();
            let mut far = StreamOwned::new(session, far);
            far.flush().unwrap_err()
        });
        world.until("the end", |world| world.said(conn).ended.is_some() && client.is_finished());
        assert_eq!(world.said(conn).ended, Some(Some(ErrorKind::Other)));
        client.join().unwrap();
    });
}

/// With a goodbye or without: an end is an end, and is said once.
#[test]
fn ends_are_said_once() {
    over_each(|world| {
        for polite in [true, false] {
            let (conn, mut far) = secured(world);
            far.write_all(b"last words").unwrap();
            if polite {
                far.conn.send_close_notify();
            }
            far.flush().unwrap();
            far.sock.shutdown(Shutdown::Write).unwrap();
            world.until("the end", |world| world.said(conn).ended.is_some());
            assert_eq!(world.said(conn).ended, Some(None));
            assert_eq!(world.said(conn).bytes, b"last words");
            world.until_quiet();
            world.driver.abort(conn);
            world.until("closed", |world| world.said(conn).closed);
        }
    });
}

#[test]
fn we_say_goodbye_too() {
    over_each(|world| {
        let (conn, mut far) = secured(world);
        world.driver.write(conn, b"bye");
        world.driver.finish(conn);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            // Without a close_notify this is an error.
            far.read_to_end(&mut all).map(|_| all)
        });
        world.until("read to the end", |_| reader.is_finished());
        assert_eq!(reader.join().unwrap().unwrap(), b"bye");
        world.until("closed", |world| world.said(conn).closed);
    });
}

/// Both talk, neither listens for long: nobody waits for the other.
#[test]
fn both_directions_at_once() {
    const LENGTH: usize = 4_000_000;
    over_each(|world| {
        let (conn, far) = secured(world);
        let StreamOwned { conn: mut session, sock } = far;
        let client = thread::spawn(move || {
            let mut sock = sock;
            sock.set_nonblocking(true).unwrap();
            let (mut said, mut heard) = (0, 0);
            while said < LENGTH || heard < LENGTH || session.wants_write() {
                if said < LENGTH {
                    let piece = stream(5, said, 10_000.min(LENGTH - said));
                    said += session.writer().write(&piece).unwrap();
                }
                while session.wants_write() && session.write_tls(&mut sock).is_ok() {}
                if session.read_tls(&mut sock).is_ok() {
                    session.process_new_packets().unwrap();
                }
                let mut some = [0; 50_000];
                while let Ok(count @ 1..) = session.reader().read(&mut some) {
                    assert!(some[..count] == stream(6, heard, count));
                    heard += count;
                }
                thread::yield_now();
            }
        });
        let mut queued = 0;
        world.until("both done", |world| {
            if queued < LENGTH && world.driver.unsent(conn) < 200_000 {
                let piece = stream(6, queued, 40_000.min(LENGTH - queued));
                world.driver.send(conn, piece.into());
                queued += 40_000.min(LENGTH - queued);
            }
            world.said(conn).count == LENGTH && client.is_finished()
        });
        client.join().unwrap();
        assert!(world.said(conn).bytes == stream(5, 0, LENGTH));
    });
}

/// The figure for the books: what an idle client with TLS costs here. Run it alone, in release.
#[test]
#[ignore = "a measurement"]
fn what_an_idle_one_costs() {
    const MANY: usize = 1000;
    over_each(|world| {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let (first, _far) = secured(world);
        world.driver.write(first, b"x");
        world.turn(Duration::ZERO);
        let (near, far): (Vec<_>, Vec<_>) = (0..MANY).map(|_| tcp_pair()).unzip();
        let before = resident();
        let conns: Vec<_> = near.into_iter().map(|near| world.adopt(near)).collect();
        world.turn(Duration::ZERO);
        let plain = resident();
        for conn in &conns {
            world.driver.secure(*conn, as_server());
        }
        // The far ends are shaken hands with one by one, and forgotten.
        let far = thread::spawn(move || {
            far.into_iter()
                .map(|far| {
                    let mut far = far_end(far);
                    far.flush().unwrap();
                    let StreamOwned { sock, .. } = far;
                    sock
                })
                .collect::<Vec<_>>()
        });
        world.until("all handshakes", |world| {
            conns.iter().all(|conn| world.said(*conn).sealed.is_some())
        });
        let (far, sealed) = (far.join().unwrap(), resident());
        println!(
            "{}: {} bytes for a plain one, {} for TLS on top",
            world.name,
            plain.saturating_sub(before) / MANY,
            sealed.saturating_sub(plain) / MANY
        );
        drop(far);
    });
}
