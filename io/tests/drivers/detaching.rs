//! A connection moves from one driver to another while its bytes keep coming.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use io::{Conn, Driver, Kind, Socket, Waker};

use crate::world::{Dice, PATIENCE, World, over_each, stream, tcp_pair};

const MOVES: usize = 1000;

/// The socket, with all that was read from it and how much was written to it so far.
struct Parcel {
    socket: Socket,
    read: Vec<u8>,
    written: usize,
    moves: usize,
}

/// Where one carrier gets the parcel, and where it goes next.
struct Post {
    mail: Receiver<Parcel>,
    next: Sender<Parcel>,
    wake: Waker,
}

/// Take the parcel whenever it comes, read and write a little, and pass it on. Whoever has it
/// when it has moved often enough reads and writes the rest.
fn carry(world: &mut World, post: &Post, seed: u64) -> Option<Parcel> {
    let mut dice = Dice(seed);
    loop {
        match post.mail.try_recv() {
            Ok(parcel) if parcel.moves == MOVES => return Some(finish(world, parcel)),
            Ok(parcel) => {
                let parcel = hold(world, parcel, &mut dice);
                let last = parcel.moves == MOVES;
                post.next.send(parcel).unwrap();
                post.wake.wake();
                if last {
                    return None;
                }
            }
            Err(_) => world.turn(PATIENCE),
        }
    }
}

fn hold(world: &mut World, mut parcel: Parcel, dice: &mut Dice) -> Parcel {
    let conn = world.adopt(parcel.socket);
    for _ in 0..dice.below(4) {
        world.turn(Duration::from_micros(dice.below(200) as u64));
        stir(world, conn, dice);
        let more = stream(2, parcel.written, dice.below(2000));
        parcel.written += more.len();
        world.driver.write(conn, &more);
    }
    world.driver.detach(conn);
    stir(world, conn, dice);
    world.until("detached", |world| !world.detached.is_empty());
    let (moved, socket) = world.detached.remove(0);
    assert_eq!(moved, conn);
    parcel.read.append(&mut world.conns.remove(&conn).unwrap().bytes);
    Parcel { socket, moves: parcel.moves + 1, ..parcel }
}

/// Close our side, and read to the end of theirs.
fn finish(world: &mut World, mut parcel: Parcel) -> Parcel {
    let watch = socket2::SockRef::from(&parcel.socket).try_clone().unwrap();
    watch.shutdown(Shutdown::Write).unwrap();
    let conn = world.adopt(parcel.socket);
    world.until("the end", |world| world.said(conn).ended == Some(None));
    parcel.read.append(&mut world.conns.remove(&conn).unwrap().bytes);
    Parcel { socket: watch.into(), ..parcel }
}

fn stir(world: &mut World, conn: Conn, dice: &mut Dice) {
    match dice.below(4) {
        0 => world.driver.pause(conn),
        1 => world.driver.resume(conn),
        _ => {}
    }
}

/// Writes until the other side closes; says how much.
fn write_on(mut far: TcpStream, closed: Receiver<()>) -> usize {
    let (mut dice, mut written) = (Dice(77), 0);
    while closed.try_recv().is_err() {
        written += far.write(&stream(1, written, dice.below(5000) + 1)).unwrap();
        if dice.one_in(3) {
            thread::sleep(Duration::from_micros(dice.below(500) as u64));
        }
    }
    far.shutdown(Shutdown::Write).unwrap();
    written
}

#[test]
fn nothing_is_lost_on_the_way() {
    for kinds in [
        [Kind::IoUring, Kind::IoUring],
        [Kind::IoUring, Kind::Readiness],
        [Kind::Readiness, Kind::Readiness],
    ] {
        let (near, far) = tcp_pair();
        let mut reader = far.try_clone().unwrap();
        let (say_closed, closed) = channel();
        let far_writes = thread::spawn(move || write_on(far, closed));
        let far_reads = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            say_closed.send(()).unwrap();
            all
        });

        let ((to_a, mail_a), (to_b, mail_b)) = (channel(), channel());
        let ((say_a, waker_a), (say_b, waker_b)) = (channel(), channel());
        let parcel = Parcel { socket: near.into(), read: Vec::new(), written: 0, moves: 0 };
        to_a.send(parcel).unwrap();
        let carriers = [
            (kinds[0], mail_a, to_b, say_a, waker_b, 11),
            (kinds[1], mail_b, to_a, say_b, waker_a, 22),
        ]
        .map(|(kind, mail, next, say, partner, seed)| {
            thread::spawn(move || {
                let mut world = World::new(kind);
                say.send(world.driver.waker()).unwrap();
                let wake = partner.recv_timeout(PATIENCE).unwrap();
                carry(&mut world, &Post { mail, next, wake }, seed)
            })
        });
        let parcel = carriers.into_iter().find_map(|thread| thread.join().unwrap()).unwrap();
        let (sent, heard) = (far_writes.join().unwrap(), far_reads.join().unwrap());
        assert_eq!((parcel.read.len(), heard.len()), (sent, parcel.written));
        assert!(parcel.read == stream(1, 0, sent));
        assert!(heard == stream(2, 0, parcel.written));
    }
}

/// The peer hangs up while we wait to detach: that is said, and the socket stays here.
#[test]
fn an_end_calls_the_detach_off() {
    over_each(|world| {
        for _ in 0..50 {
            let (near, mut far) = tcp_pair();
            let conn = world.adopt(near);
            world.turn(Duration::ZERO);
            far.write_all(b"bye").unwrap();
            drop(far);
            world.driver.detach(conn);
            world.until("either", |world| {
                world.said(conn).ended.is_some() || !world.detached.is_empty()
            });
            if let Some((_, socket)) = world.detached.pop() {
                assert_eq!(world.said(conn).ended, None);
                let before = world.said(conn).count;
                let conn = world.adopt(socket);
                world.until("the end", |world| world.said(conn).ended == Some(None));
                assert_eq!(before + world.said(conn).count, 3);
                world.driver.abort(conn);
            } else {
                assert_eq!(world.said(conn).bytes, b"bye");
                world.driver.abort(conn);
                world.until("closed", |world| world.said(conn).closed);
            }
            world.until_quiet();
        }
    });
}

/// A detach may be overtaken by something stronger.
#[test]
fn a_detach_can_become_an_abort() {
    for kind in [Kind::IoUring, Kind::Readiness] {
        let mut world = World::new(kind);
        let (near, _far) = tcp_pair();
        let conn = world.adopt(near);
        world.until_quiet();
        world.driver.detach(conn);
        world.driver.abort(conn);
        world.until("closed", |world| world.said(conn).closed);
        assert!(world.detached.is_empty());
    }
}
