//! The ways in which a connection ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use io::{Address, Conn, Done, Driver};

use crate::world::{PATIENCE, World, over_each, stream, tcp_pair};

/// The client says its last word and goes on listening.
#[test]
fn a_half_closed_client_gets_its_answer() {
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        far.write_all(b"last words").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        world.until("the end", |world| world.said(conn).ended == Some(None));
        assert_eq!(world.said(conn).bytes, b"last words");

        world.driver.write(conn, b"answer");
        world.driver.finish(conn);
        world.until("closed", |world| world.said(conn).closed);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"answer");
    });
}

#[test]
fn a_reset_is_said_once() {
    over_each(|world| {
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        world.until_quiet();
        socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
        world.until("the end", |world| world.said(conn).ended.is_some());
        assert_eq!(world.said(conn).ended, Some(Some(ErrorKind::ConnectionReset)));
        world.driver.write(conn, b"to nobody");
        world.until_quiet();
        world.driver.abort(conn);
        world.until("closed", |world| world.said(conn).closed);
    });
}

/// A server says why it hangs up, and hangs up without reading. We write to it, and hear that it is
/// gone; but what it said comes first, even if we had paused it.
#[test]
fn last_words_come_before_the_end() {
    for paused in [false, true] {
        over_each(|world| {
            let (near, mut far) = tcp_pair();
            let conn = world.adopt(near);
            world.until_quiet();
            if paused {
                world.driver.pause(conn);
                world.until_quiet();
            }
            world.driver.write(conn, b"unread");
            world.until("sent", |world| world.driver.unsent(conn) == 0);
            far.write_all(b"FATAL").unwrap();
            while far.peek(&mut [0]).unwrap() == 0 {}
            drop(far); // with something unread: a reset
            thread::sleep(Duration::from_millis(5));
            world.driver.write(conn, b"too late");
            world.until("the end", |world| world.said(conn).ended.is_some());
            assert_eq!(world.said(conn).bytes, b"FATAL");
            assert!(matches!(world.said(conn).ended, Some(Some(_))));
            assert_eq!(world.driver.unsent(conn), 0);
        });
    }
}

/// Five megabytes are queued for a slow reader, which has also sent something nobody read.
#[test]
fn finish_sends_everything() {
    const LENGTH: usize = 5_000_000;
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        far.write_all(b"before").unwrap();
        world.until("bytes", |world| world.said(conn).count == 6);
        world.driver.send(conn, stream(3, 0, LENGTH - 1).into());
        world.driver.write(conn, &stream(3, LENGTH - 1, 1));
        world.driver.finish(conn);
        world.driver.write(conn, b"this is not sent any more");
        far.write_all(b"never read").unwrap();
        world.until_quiet();
        assert!(!world.said(conn).closed && world.driver.unsent(conn) > 0);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            let mut piece = vec![0; 300_000];
            loop {
                let length = far.read(&mut piece).unwrap();
                all.extend_from_slice(&piece[..length]);
                if length == 0 {
                    return all;
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        world.until("closed", |world| world.said(conn).closed);
        assert!(reader.join().unwrap() == stream(3, 0, LENGTH));
        assert_eq!((world.said(conn).count, world.said(conn).ended), (6, None));
    });
}

/// A reader that takes nothing holds up nothing.
#[test]
fn abort_does_not_wait() {
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.send(conn, vec![1; 20_000_000].into());
        world.until_quiet();
        let begun = Instant::now();
        world.driver.finish(conn);
        world.driver.abort(conn);
        world.until("closed", |world| world.said(conn).closed);
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!(far.read_to_end(&mut Vec::new()).unwrap_or(0) < 20_000_000);
    });
}

/// What a connection is, here or with the kernel, after many answers: each way to end it reaches the peer at once.
#[test]
fn whoever_has_said_much_is_let_go_as_easily() {
    let chat = |world: &mut World, conn, far: &mut TcpStream| {
        for round in 0..40 {
            world.driver.write(conn, &[round; 3]);
            world.until("sent", |world| world.driver.unsent(conn) == 0);
            let mut heard = [0; 3];
            far.read_exact(&mut heard).unwrap();
            assert_eq!(heard, [round; 3]);
        }
    };
    over_each(|world| {
        for way in 0..9 {
            let (near, mut far) = tcp_pair();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut conn = world.adopt(near);
            chat(world, conn, &mut far);
            if way >= 6 {
                // Once around: what it was in the kernel's eyes must not stay behind.
                world.driver.detach(conn);
                world.until("detached", |world| !world.detached.is_empty());
                let (_, socket) = world.detached.pop().unwrap();
                conn = world.adopt(socket);
                chat(world, conn, &mut far);
            }
            match way % 3 {
                0 => world.driver.finish(conn),
                1 => world.driver.abort(conn),
                _ => {
                    world.driver.detach(conn);
                    world.until("detached", |world| !world.detached.is_empty());
                    world.detached.clear();
                }
            }
            if way % 3 != 2 {
                world.until("closed", |world| world.said(conn).closed);
            }
            assert_eq!(far.read(&mut [0; 3]).unwrap(), 0, "way {way}");
        }
    });
}

/// All the ways to end it at once, before it ever turned.
#[test]
fn the_strongest_wish_wins() {
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.write(conn, b"dropped");
        world.driver.detach(conn);
        world.driver.finish(conn);
        world.driver.abort(conn);
        world.driver.finish(conn);
        world.driver.resume(conn);
        world.until("closed", |world| world.said(conn).closed);
        let mut heard = Vec::new();
        let _ = far.read_to_end(&mut heard);
        assert!(heard.is_empty() && world.detached.is_empty());
    });
}

#[test]
fn a_refused_connection_ends_with_the_error() {
    over_each(|world| {
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let missing = Address::Unix("/tmp/no/such/socket".into());
        let too_long = Address::Unix("/".repeat(300).into());
        for (to, kind) in [
            (Address::Inet(nobody), ErrorKind::ConnectionRefused),
            (missing, ErrorKind::NotFound),
            (too_long, ErrorKind::InvalidInput),
        ] {
            let conn = world.connect(&to);
            world.driver.write(conn, b"anyone there?");
            world.until("the end", |world| world.said(conn).ended.is_some());
            assert_eq!(world.said(conn).ended, Some(Some(kind)));
            assert!(world.said(conn).connected.is_none());
            world.driver.finish(conn);
            world.until("closed", |world| world.said(conn).closed);
        }
    });
}

/// Nobody answers: the backlog is full. Giving up works.
#[test]
fn dialling_can_be_given_up() {
    over_each(|world| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = socket.unwrap();
        listener.bind(&crate::world::anywhere().into()).unwrap();
        listener.listen(0).unwrap();
        let to = listener.local_addr().unwrap().as_socket().unwrap();
        let dialled: Vec<_> = (0..4).map(|_| world.connect(&to.into())).collect();
        world.until_quiet();
        let waiting = |world: &World, conn: &Conn| {
            world.said(*conn).connected.is_none() && world.said(*conn).ended.is_none()
        };
        assert!(dialled.iter().any(|conn| waiting(world, conn)));
        dialled.iter().for_each(|conn| world.driver.abort(*conn));
        world.until("closed", |world| dialled.iter().all(|conn| world.said(*conn).closed));
    });
}

/// The same at a unix socket, where the kernel waits in another way.
#[test]
fn dialling_a_busy_unix_socket_can_be_given_up() {
    over_each(|world| {
        let name = format!("@busy-{}-{}", std::process::id(), world.name);
        let to = Address::Unix(name.into());
        let Address::Unix(path) = &to else { unreachable!() };
        let _listener = io::listen_unix(path, 0, None, None).unwrap();
        let dialled: Vec<_> = (0..4).map(|_| world.connect(&to)).collect();
        world.until_quiet();
        assert!(dialled.iter().any(|conn| world.said(*conn).connected.is_none()));
        dialled.iter().for_each(|conn| world.driver.abort(*conn));
        world.until("closed", |world| dialled.iter().all(|conn| world.said(*conn).closed));
    });
}

/// A cancel request: dial, write, hang up, all before the connection is up.
#[test]
fn finish_while_dialling_still_sends() {
    over_each(|world| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let conn = world.connect(&listener.local_addr().unwrap().into());
        world.driver.write(conn, b"cancel");
        world.driver.finish(conn);
        world.until("closed", |world| world.said(conn).closed);
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"cancel");
    });
}

/// While the worker has not yet read that a slot was closed, nobody else gets it.
#[test]
fn a_slot_rests_until_its_last_word_is_heard() {
    over_each(|world| {
        let old = world.adopt(tcp_pair().0);
        world.driver.abort(old);
        let mut done = Vec::new();
        world.driver.turn(Some(Duration::ZERO), &mut done);
        assert!(done.iter().any(|d| matches!(d, Done::Closed { conn } if *conn == old)));
        let new = world.driver.adopt(tcp_pair().0.into());
        assert_ne!(old, new, "its Closed may not have been read yet");
        world.driver.turn(Some(Duration::ZERO), &mut done);
        let (near, mut far) = tcp_pair();
        assert_eq!(world.adopt(near), old, "but now it may be used");
        far.write_all(b"x").unwrap();
        world.until("bytes", |world| world.said(old).count == 1);
    });
}

/// Dropping a driver closes everything, whatever is in flight.
#[test]
fn dropping_the_driver_closes_its_sockets() {
    for kind in [io::Kind::IoUring, io::Kind::Readiness] {
        let mut world = World::new(kind);
        world.driver.listen(io::listen_tcp(crate::world::anywhere(), 10, false).unwrap());
        let mut far: Vec<_> = (0..50)
            .map(|i| {
                let (near, far) = tcp_pair();
                let conn = world.adopt(near);
                world.driver.send(conn, vec![1; i * 500_000].into());
                far
            })
            .collect();
        world.until_quiet();
        let (near, mut last) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.write(conn, b"never handed over");
        drop(world);
        for far in far.iter_mut().chain([&mut last]) {
            let _ = far.read_to_end(&mut Vec::new()); // ends, by FIN or by reset
        }
    }
}

/// What was received outlives the driver that received it.
#[test]
fn bytes_outlive_the_driver() {
    for kind in [io::Kind::IoUring, io::Kind::Readiness] {
        let mut world = World::new(kind);
        world.on_bytes = crate::world::OnBytes::Hold;
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        far.write_all(b"still here").unwrap();
        world.until("bytes", |world| world.said(conn).count == 10);
        let held = std::mem::take(&mut world.held);
        drop(world);
        assert_eq!(held.iter().flat_map(|bytes| bytes.to_vec()).collect::<Vec<_>>(), b"still here");
    }
}
