//! Bytes there and back.

use std::io::{Read, Write};
use std::thread;

use io::{Address, Driver};

use crate::world::{OnBytes, anywhere, over_each, stream, tcp_pair};

#[test]
fn one_byte_comes_back() {
    over_each(|world| {
        world.on_bytes = OnBytes::Echo;
        let (near, mut far) = tcp_pair();
        world.adopt(near);
        let client = thread::spawn(move || {
            for byte in 0..100_u8 {
                let mut back = [0];
                far.write_all(&[byte]).unwrap();
                far.read_exact(&mut back).unwrap();
                assert_eq!(back, [byte]);
            }
        });
        world.until("the client done", |_| client.is_finished());
        client.join().unwrap();
    });
}

#[test]
fn ten_megabytes_come_back() {
    const LENGTH: usize = 10_000_000;
    over_each(|world| {
        world.on_bytes = OnBytes::Echo;
        let (near, mut far) = tcp_pair();
        world.adopt(near);
        let mut reader = far.try_clone().unwrap();
        let writer = thread::spawn(move || far.write_all(&stream(7, 0, LENGTH)).unwrap());
        let reader = thread::spawn(move || {
            let mut back = vec![0; LENGTH];
            reader.read_exact(&mut back).unwrap();
            back
        });
        world.until("all back", |_| reader.is_finished());
        writer.join().unwrap();
        assert!(reader.join().unwrap() == stream(7, 0, LENGTH));
    });
}

/// Bufs and writes of many sizes, queued at once, arrive in order.
#[test]
fn what_is_queued_stays_in_order() {
    over_each(|world| {
        let (near, mut far) = tcp_pair();
        let conn = world.adopt(near);
        let mut queued = 0;
        for round in 0..2000 {
            let bytes = stream(1, queued, round * 37 % 3000 + 1);
            queued += bytes.len();
            match round % 3 {
                0 => world.driver.send(conn, bytes.into()),
                1 => world.driver.write(conn, &bytes),
                _ => {
                    let mut rest = io::Buf::from(bytes);
                    let head = rest.split_to(100);
                    world.driver.send(conn, head);
                    world.driver.send(conn, rest);
                }
            }
        }
        assert_eq!(world.driver.unsent(conn), queued);
        let reader = thread::spawn(move || {
            let mut all = vec![0; queued];
            far.read_exact(&mut all).unwrap();
            all
        });
        world.until("all read", |_| reader.is_finished());
        assert!(reader.join().unwrap() == stream(1, 0, queued));
        world.until("nothing unsent", |world| world.driver.unsent(conn) == 0);
    });
}

/// Both ends in one driver: dialled, accepted, talked to in rounds, closed, and all over again.
#[test]
fn thousands_of_connections() {
    const MANY: usize = 2000;
    over_each(|world| {
        let socket = io::listen_tcp(anywhere(), 4096, false).unwrap();
        let to = socket.ends_of_listener();
        world.driver.listen(socket);
        for round in 0..2_u8 {
            let dialled: Vec<_> = (0..MANY).map(|_| world.connect(&to)).collect();
            world.until("all accepted", |world| world.accepted.len() == MANY);
            let sockets: Vec<_> = world.accepted.drain(..).collect();
            let taken: Vec<_> = sockets.into_iter().map(|(_, s, _)| world.adopt(s)).collect();
            world.until("all up", |world| {
                dialled.iter().all(|conn| world.said(*conn).connected.is_some())
            });
            for rally in 1..=3 {
                dialled.iter().for_each(|conn| world.driver.write(*conn, &[round; 100]));
                world.until("all there", |world| {
                    taken.iter().all(|conn| world.said(*conn).count == rally * 100)
                });
                taken.iter().for_each(|conn| world.driver.write(*conn, &[round; 10]));
                world.until("all back", |world| {
                    dialled.iter().all(|conn| world.said(*conn).count == rally * 10)
                });
            }
            dialled.iter().for_each(|conn| world.driver.finish(*conn));
            world.until("all ended", |world| {
                taken.iter().all(|conn| world.said(*conn).ended == Some(None))
            });
            taken.iter().for_each(|conn| world.driver.abort(*conn));
            world.until("all closed", |world| {
                dialled.iter().chain(&taken).all(|conn| world.said(*conn).closed)
            });
        }
        let slots = world.conns.keys().map(|conn| conn.0).max();
        assert!(slots.unwrap() < 2 * MANY as u32, "slots are dense, and used again");
    });
}

/// What a listener listens at.
trait Local {
    fn ends_of_listener(&self) -> Address;
}

impl Local for io::Socket {
    fn ends_of_listener(&self) -> Address {
        let address = socket2::SockRef::from(self).local_addr().unwrap();
        Address::Inet(address.as_socket().unwrap())
    }
}
