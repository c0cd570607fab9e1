//! Pausing, water marks, and memory that runs short.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use io::{Driver, Tuning};

use crate::world::{Dice, OnBytes, over_each, stream, tcp_pair};

/// Writes the stream until told to stop; says how much it wrote.
fn flood(mut far: TcpStream, stop: Arc<AtomicBool>) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut written = 0;
        while !stop.load(Ordering::Relaxed) {
            let piece = stream(5, written, 50_000);
            match far.write(&piece) {
                Ok(length) => written += length,
                Err(error) => panic!("{error}"),
            }
        }
        written
    })
}

/// The peer sends as fast as it can; we stop listening, and nothing piles up in us.
#[test]
fn a_paused_flood_stays_outside() {
    over_each(|world| {
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = flood(far, Arc::clone(&stop));
        world.until("a flood", |world| world.said(conn).count > 1_000_000);

        for _ in 0..20 {
            world.driver.pause(conn);
            world.until_quiet();
            let before = world.said(conn).count;
            for _ in 0..50 {
                world.turn(Duration::from_micros(100));
            }
            assert_eq!(world.said(conn).count, before, "it was paused");
            world.driver.resume(conn);
            world.until("more", |world| world.said(conn).count > before + 100_000);
        }
        stop.store(true, Ordering::Relaxed);
        world.until("the writer done", |_| writer.is_finished());
        let written = writer.join().unwrap();
        world.until("all", |world| world.said(conn).count == written);
        assert!(world.said(conn).bytes == stream(5, 0, written));
    });
}

/// Whatever the order of pauses and resumes, the last one counts and nothing is lost.
#[test]
fn pausing_and_resuming_in_any_order() {
    over_each(|world| {
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        let stop = Arc::new(AtomicBool::new(false));
        let writer = flood(far, Arc::clone(&stop));
        let mut dice = Dice(99);
        for _ in 0..3000 {
            for _ in 0..dice.below(4) {
                match dice.below(2) {
                    0 => world.driver.pause(conn),
                    _ => world.driver.resume(conn),
                }
            }
            world.turn(Duration::from_micros(dice.below(100) as u64));
        }
        world.driver.pause(conn);
        world.driver.resume(conn);
        stop.store(true, Ordering::Relaxed);
        world.until("the writer done", |_| writer.is_finished());
        let written = writer.join().unwrap();
        world.until("all", |world| world.said(conn).count == written);
        assert!(world.said(conn).bytes == stream(5, 0, written));
    });
}

/// What the kernel takes at once is known at once: the driver does not sleep over it.
#[test]
fn drained_and_closed_are_not_slept_over() {
    const LONG: Duration = Duration::from_secs(20);
    over_each(|world| {
        let tuning = Tuning { high_water: 1_000, low_water: 100, ..Tuning::default() };
        world.driver.tune(&tuning);
        let (near, _far) = tcp_pair();
        let conn = world.adopt(near);
        world.until_quiet();
        let since = Instant::now();
        world.driver.write(conn, &[0; 5_000]);
        world.turn(LONG);
        assert_eq!((world.said(conn).drained, world.driver.unsent(conn)), (1, 0));

        world.driver.write(conn, &[0; 5_000]);
        world.driver.finish(conn);
        world.turn(LONG);
        assert!(world.said(conn).closed);
        assert!(since.elapsed() < LONG, "it slept for {:?}", since.elapsed());
    });
}

/// A reader stops taking: nothing is said. It takes again: `Drained`, once each time.
#[test]
fn drained_is_said_when_the_water_has_fallen() {
    const LENGTH: usize = 20_000_000;
    over_each(|world| {
        let tuning = Tuning { high_water: 100_000, low_water: 10_000, ..Tuning::default() };
        world.driver.tune(&tuning);
        let (near, far) = tcp_pair();
        let conn = world.adopt(near);
        world.driver.write(conn, &[0; 100_000]);
        world.until("all sent", |world| world.driver.unsent(conn) == 0);
        assert_eq!(world.said(conn).drained, 0, "it never was above high water");

        for round in 1..=3 {
            world.driver.send(conn, vec![0; LENGTH].into());
            world.until_quiet();
            assert!(world.driver.unsent(conn) > 100_000);
            assert_eq!(world.said(conn).drained, round - 1);
            let mut far = far.try_clone().unwrap();
            let before = if round == 1 { 100_000 } else { 0 };
            let reader = thread::spawn(move || {
                far.read_exact(&mut vec![0; LENGTH + before]).unwrap();
            });
            world.until("drained", |world| world.said(conn).drained == round);
            assert!(world.driver.unsent(conn) <= 10_000);
            world.until("the reader done", |_| reader.is_finished());
            reader.join().unwrap();
        }
        world.until_quiet();
        assert_eq!(world.said(conn).drained, 3);
    });
}

/// Thousands of messages are held by someone; those who come later are heard all the same.
#[test]
fn hoarded_buffers_starve_nobody() {
    over_each(|world| {
        world.on_bytes = OnBytes::Hold;
        let mut hoard = Vec::new();
        for _ in 0..500 {
            let (near, far) = tcp_pair();
            hoard.push((world.adopt(near), far));
        }
        for round in 1..=10 {
            for (_, far) in &mut hoard {
                far.write_all(&[7; 100]).unwrap();
            }
            world.until("all", |world| {
                hoard.iter().all(|(conn, _)| world.said(*conn).count == round * 100)
            });
        }
        assert!(world.held.len() >= 2000);

        world.on_bytes = OnBytes::Echo;
        let (near, mut far) = tcp_pair();
        world.adopt(near);
        let client = thread::spawn(move || {
            let mut back = vec![0; 3_000_000];
            let mut reader = far.try_clone().unwrap();
            let writer = thread::spawn(move || far.write_all(&stream(9, 0, 3_000_000)).unwrap());
            reader.read_exact(&mut back).unwrap();
            writer.join().unwrap();
            back
        });
        world.until("an echo", |_| client.is_finished());
        assert!(client.join().unwrap() == stream(9, 0, 3_000_000));
        assert!(world.held.iter().all(|bytes| bytes.iter().all(|byte| *byte == 7)));
    });
}

/// A burst larger than all buffers together, from many at once, and all of it held.
#[test]
fn a_burst_beyond_all_buffers_arrives() {
    const EACH: usize = 200_000;
    over_each(|world| {
        world.on_bytes = OnBytes::Hold;
        let (conns, writers): (Vec<_>, Vec<_>) = (0..200)
            .map(|_| {
                let (near, mut far) = tcp_pair();
                let writer = thread::spawn(move || {
                    far.write_all(&[3; EACH]).unwrap();
                    far
                });
                (world.adopt(near), writer)
            })
            .unzip();
        world.until("all", |world| conns.iter().all(|conn| world.said(*conn).count == EACH));
        writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
        world.held.clear();
        world.until("all ended", |world| {
            conns.iter().all(|conn| world.said(*conn).ended == Some(None))
        });
    });
}
