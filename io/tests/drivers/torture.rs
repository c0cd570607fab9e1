//! Everything at once, from a seed.
//!
//! Two worlds, pairs of connected sockets with their ends in either, and orders by chance. Each end
//! sends a stream of which every byte is known, so whatever arrives can be checked; and if neither
//! end was aborted, all of it must have arrived.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use io::{Conn, Driver, Kind, Socket, Tuning};

use crate::tls::{as_client, as_server};
use crate::world::{Dice, PATIENCE, World, stream, tcp_pair};

const PAIRS: usize = 40;

struct Game {
    worlds: [World; 2],
    /// Where hands are shaken, if the streams are encrypted.
    forge: Option<[World; 2]>,
    dice: Dice,
    ends: Vec<End>,
    seed: u64,
    next_stream: u64,
}

/// One end of a pair; the other is its neighbour (index ^ 1).
struct End {
    at: Where,
    /// Names the stream it sends.
    stream: u64,
    queued: usize,
    /// Received in all the places it has been.
    received: usize,
    finished: bool,
    aborted: bool,
    hung_up_on: bool,
    /// By a reset, which may take bytes with it: we sent something to one who had closed.
    rudely: bool,
}

enum Where {
    Here { world: usize, conn: Conn },
    Gone,
}

impl Game {
    fn new(seed: u64, kinds: [Kind; 2], encrypted: bool) -> Self {
        let mut worlds = kinds.map(World::new);
        for world in &mut worlds {
            let tuning = Tuning { high_water: 60_000, low_water: 5_000, ..Tuning::default() };
            world.driver.tune(&tuning);
        }
        let mut game = Self {
            worlds,
            forge: encrypted.then(|| kinds.map(World::new)),
            dice: Dice(seed),
            ends: Vec::new(),
            seed,
            next_stream: seed << 20,
        };
        for _ in 0..PAIRS {
            let [one, other] = game.pair();
            game.ends.extend([one, other]);
        }
        game
    }

    fn pair(&mut self) -> [End; 2] {
        let sockets: [Socket; 2] = if self.dice.one_in(3) {
            let (one, other) = UnixStream::pair().unwrap();
            [one.into(), other.into()]
        } else {
            let (one, other) = tcp_pair();
            [one.into(), other.into()]
        };
        let sockets = match &mut self.forge {
            Some(forge) => shake_hands(forge, sockets),
            None => sockets,
        };
        sockets.map(|socket| {
            self.next_stream += 1;
            End {
                at: self.adopt(socket),
                stream: self.next_stream,
                queued: 0,
                received: 0,
                finished: false,
                aborted: false,
                hung_up_on: false,
                rudely: false,
            }
        })
    }

    fn adopt(&mut self, socket: Socket) -> Where {
        let world = self.dice.below(2);
        Where::Here { world, conn: self.worlds[world].adopt(socket) }
    }

    fn step(&mut self) {
        let index = self.dice.below(self.ends.len());
        let End { at: Where::Here { world, conn }, finished, aborted, hung_up_on, .. } =
            self.ends[index]
        else {
            return;
        };
        let driver = &mut self.worlds[world].driver;
        match self.dice.below(100) {
            0..45 if !finished && !aborted && !hung_up_on && driver.unsent(conn) < 200_000 => {
                let most = if self.dice.one_in(10) { 100_000 } else { 3000 };
                let length = self.dice.below(most) + 1;
                let end = &mut self.ends[index];
                let bytes = stream(end.stream, end.queued, length);
                end.queued += length;
                if self.dice.one_in(2) {
                    driver.write(conn, &bytes);
                } else {
                    driver.send(conn, bytes.into());
                }
            }
            45..60 => driver.pause(conn),
            60..80 => driver.resume(conn),
            80..92 if !finished && !aborted && driver.unsent(conn) == 0 => driver.detach(conn),
            92..94 => {
                driver.finish(conn);
                self.ends[index].finished = true;
            }
            94 => {
                driver.abort(conn);
                self.ends[index].aborted = true;
            }
            _ => {
                let wait = Duration::from_micros(self.dice.below(50) as u64);
                let world = self.dice.below(2);
                self.turn(world, wait);
            }
        }
    }

    fn turn(&mut self, world: usize, wait: Duration) {
        self.worlds[world].turn(wait);
        for index in 0..self.ends.len() {
            self.look_at(index, world);
        }
        assert!(self.worlds[world].detached.is_empty(), "seed {}", self.seed);
        for index in (0..self.ends.len()).step_by(2) {
            let gone = |end: &End| matches!(end.at, Where::Gone);
            if gone(&self.ends[index]) && gone(&self.ends[index + 1]) {
                self.settle_accounts(index);
                let [one, other] = self.pair();
                self.ends[index] = one;
                self.ends[index + 1] = other;
            }
        }
    }

    /// Take in what its driver said of an end.
    fn look_at(&mut self, index: usize, turned: usize) {
        let Where::Here { world, conn } = self.ends[index].at else { return };
        if world != turned {
            return;
        }
        let said = self.worlds[world].conns.get_mut(&conn).unwrap();
        let bytes = std::mem::take(&mut said.bytes);
        let (ended, closed) = (said.ended, said.closed);
        let source = self.ends[index ^ 1].stream;
        let end = &mut self.ends[index];
        assert!(
            bytes == stream(source, end.received, bytes.len()),
            "seed {}: wrong bytes",
            self.seed
        );
        end.received += bytes.len();
        if let Some(error) = ended
            && !end.hung_up_on
        {
            end.hung_up_on = true;
            end.rudely = error.is_some();
            if self.dice.one_in(2) {
                end.finished = true;
                self.worlds[world].driver.finish(conn);
            } else {
                end.aborted = true;
                self.worlds[world].driver.abort(conn);
            }
        }
        if closed {
            end.at = Where::Gone;
            let mine = self.worlds[world].detached.iter().position(|(moved, _)| *moved == conn);
            if let Some(mine) = mine {
                let (_, socket) = self.worlds[world].detached.remove(mine);
                self.worlds[world].conns.remove(&conn);
                self.ends[index].at = self.adopt(socket);
            }
        }
    }

    /// Both are closed. Nobody got more than was sent; and who was left alone got it all.
    fn settle_accounts(&self, index: usize) {
        for (end, other) in [(index, index + 1), (index + 1, index)] {
            let (end, other) = (&self.ends[end], &self.ends[other]);
            assert!(end.received <= other.queued, "seed {}", self.seed);
            // It heard the end of a stream that was finished, not aborted, before it closed itself.
            let heard_all = end.hung_up_on && !end.rudely;
            let undisturbed = heard_all && !other.aborted && !other.hung_up_on;
            if undisturbed {
                assert_eq!(end.received, other.queued, "seed {}: bytes lost", self.seed);
            }
        }
    }

    /// Let everyone finish, so that what has not arrived can be missed.
    fn end(mut self) {
        let begun = Instant::now();
        for index in 0..self.ends.len() {
            if let Where::Here { world, conn } = self.ends[index].at {
                self.worlds[world].driver.resume(conn);
                if index % 2 == 0 {
                    self.worlds[world].driver.finish(conn);
                    self.ends[index].finished = true;
                }
            }
        }
        let streams: Vec<_> = self.ends.iter().map(|end| end.stream).collect();
        while self.ends.iter().zip(&streams).any(|(end, stream)| end.stream == *stream) {
            assert!(begun.elapsed() < PATIENCE, "seed {}: somebody never closed", self.seed);
            self.turn(0, Duration::from_millis(1));
            self.turn(1, Duration::from_millis(1));
            for (index, stream) in streams.iter().enumerate() {
                // It may have been paused, or detached, when the others resumed.
                if let Where::Here { world, conn } = self.ends[index].at {
                    self.worlds[world].driver.resume(conn);
                    if index % 2 == 0 && self.ends[index].stream == *stream {
                        self.worlds[world].driver.finish(conn);
                        self.ends[index].finished = true;
                    }
                }
            }
        }
    }
}

/// Have both ends speak TLS, and take them out again: their sessions move with them.
fn shake_hands(forge: &mut [World; 2], sockets: [Socket; 2]) -> [Socket; 2] {
    let [one, other] = sockets;
    let conns = [forge[0].adopt(one), forge[1].adopt(other)];
    forge[0].driver.secure(conns[0], as_server());
    forge[1].driver.secure(conns[1], as_client());
    let begun = Instant::now();
    while forge.iter().zip(conns).any(|(world, conn)| world.said(conn).sealed.is_none()) {
        assert!(begun.elapsed() < PATIENCE, "no handshake");
        forge.iter_mut().for_each(|world| world.turn(Duration::from_micros(100)));
    }
    for (world, conn) in forge.iter_mut().zip(conns) {
        world.driver.detach(conn);
        world.until("detached", |world| !world.detached.is_empty());
        world.conns.remove(&conn);
    }
    [0, 1].map(|at| forge[at].detached.remove(0).1)
}

#[test]
fn many_orders_in_any_order_encrypted() {
    play_all(true, 2500);
}

#[test]
fn many_orders_in_any_order() {
    play_all(false, 5000);
}

fn play_all(encrypted: bool, steps: usize) {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(1..=6, |seed| seed..=seed);
    for seed in seeds {
        for kinds in [
            [Kind::IoUring, Kind::IoUring],
            [Kind::Readiness, Kind::Readiness],
            [Kind::IoUring, Kind::Readiness],
        ] {
            println!("seed {seed}, {kinds:?}");
            let mut game = Game::new(seed, kinds, encrypted);
            for _ in 0..steps {
                game.step();
            }
            game.end();
        }
    }
}
