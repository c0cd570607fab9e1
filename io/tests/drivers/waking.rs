//! Other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use io::{Done, Driver, Kind};

use crate::world::{PATIENCE, World, over_each, tcp_pair};

#[test]
fn a_sleeper_is_woken() {
    over_each(|world| {
        for _ in 0..20 {
            let waker = world.driver.waker();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                waker.wake();
            });
            let mut done = Vec::new();
            world.driver.turn(None, &mut done);
            assert!(matches!(done[..], [Done::Woken]), "{done:?}");
            other.join().unwrap();
        }
    });
}

/// Wakes before a turn are one, and are not forgotten.
#[test]
fn many_wakes_are_one() {
    over_each(|world| {
        let waker = world.driver.waker();
        for _ in 0..100 {
            waker.wake();
        }
        let mut done = Vec::new();
        world.driver.turn(None, &mut done);
        assert!(matches!(done[..], [Done::Woken]), "{done:?}");
        done.clear();
        world.driver.turn(Some(Duration::from_millis(20)), &mut done);
        assert!(done.is_empty(), "{done:?}");
    });
}

/// Two drivers on two threads hand a number back and forth. One lost wakeup and they sleep for ever.
#[test]
fn no_wakeup_is_lost() {
    const ROUNDS: usize = 20_000;
    for (one, other) in [
        (Kind::IoUring, Kind::IoUring),
        (Kind::Readiness, Kind::Readiness),
        (Kind::IoUring, Kind::Readiness),
    ] {
        let ball = Arc::new(AtomicUsize::new(0));
        let (to_one, at_one) = channel();
        let (to_other, at_other) = channel();
        let players = [(one, 0, to_other, at_one), (other, 1, to_one, at_other)];
        let threads = players.map(|(kind, mine, to_partner, from_partner)| {
            let ball = Arc::clone(&ball);
            thread::spawn(move || {
                let mut world = World::new(kind);
                to_partner.send(world.driver.waker()).unwrap();
                let partner = from_partner.recv_timeout(PATIENCE).unwrap();
                while ball.load(Ordering::SeqCst) < ROUNDS {
                    if ball.load(Ordering::SeqCst) % 2 == mine {
                        ball.fetch_add(1, Ordering::SeqCst);
                        partner.wake();
                        continue;
                    }
                    let begun = Instant::now();
                    world.turn(PATIENCE);
                    assert!(begun.elapsed() < PATIENCE, "a wakeup was lost");
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn waiting_ends_in_time() {
    over_each(|world| {
        let (near, _far) = tcp_pair();
        world.adopt(near);
        world.until_quiet();
        let begun = Instant::now();
        let mut done = Vec::new();
        world.driver.turn(Some(Duration::from_millis(50)), &mut done);
        assert!(done.is_empty());
        assert!((49..500).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    });
}
