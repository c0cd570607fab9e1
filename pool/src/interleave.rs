//! Every order in which workers can meet on a board.
//!
//! The workers of a play are threads, of which one runs at a time. Before each touch of the board
//! ([`step`]) it is decided who goes on: by a path that is followed exhaustively, or by dice. So the
//! real code is run through the interleavings that sequential consistency allows, not a model of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::vec::Vec;
use std::{thread, thread_local};

use crate::{
    Action, Board, ClientId, Duration, Instant, Limits, Pool, PoolId, RefuseReason, ServerId,
    WorkerId,
};

thread_local! {
    static ROLE: RefCell<Option<Role>> = const { RefCell::new(None) };
}

/// Another worker may come between here, if this thread is in a play.
pub(crate) fn step() {
    ROLE.with_borrow(|role| {
        if let Some(role) = role {
            role.stage.step(role.index);
        }
    });
}

struct Role {
    stage: Arc<Stage>,
    index: usize,
}

struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
}

struct Scene {
    on: usize,
    finished: Vec<bool>,
    chooser: Chooser,
}

enum Chooser {
    /// Depth first: what was chosen of how many, and how often one may still be interrupted.
    Path {
        taken: Vec<(usize, usize)>,
        at: usize,
        interruptions: usize,
    },
    Dice(u64),
}

impl Stage {
    fn step(&self, me: usize) {
        let mut scene = self.scene.lock().expect("no player panicked");
        scene.choose(Some(me));
        if scene.on != me {
            self.changed.notify_all();
            self.await_turn(scene, me);
        }
    }

    fn finish(&self, me: usize) {
        let mut scene = self.scene.lock().expect("no player panicked");
        scene.finished[me] = true;
        scene.choose(None);
        self.changed.notify_all();
    }

    fn await_turn(&self, scene: std::sync::MutexGuard<'_, Scene>, me: usize) {
        drop(self.changed.wait_while(scene, |scene| scene.on != me).expect("no player panicked"));
    }
}

impl Scene {
    /// Who goes on. `me` can; with `None` another must.
    fn choose(&mut self, me: Option<usize>) {
        let others = (0..self.finished.len())
            .filter(|player| !self.finished[*player] && me != Some(*player));
        let able: Vec<usize> = me.into_iter().chain(others).collect();
        if able.is_empty() {
            return;
        }
        let index = match &mut self.chooser {
            Chooser::Dice(dice) => roll(dice, able.len()),
            Chooser::Path { taken, at, interruptions } => {
                let options = if me.is_some() && *interruptions == 0 { 1 } else { able.len() };
                if *at == taken.len() {
                    taken.push((0, options));
                }
                let index = taken[*at].0;
                *at += 1;
                *interruptions -= usize::from(me.is_some() && index > 0);
                index
            }
        };
        self.on = able[index];
    }
}

fn roll(dice: &mut u64, sides: usize) -> usize {
    *dice = dice.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *dice;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) as usize % sides
}

/// What a worker does in a play.
#[derive(Clone, Copy, Debug)]
enum Line {
    Acquire,
    /// Releases the server it has held longest, if it holds one.
    Release,
    /// The client at its own choice leaves the line.
    Forget,
    /// Opens its letters, one by one.
    Read,
}

#[derive(Clone, Copy, Debug)]
enum Mail {
    Server { server: ServerId, opened_at: Instant, epoch: u32 },
    Nudge { from: WorkerId },
    NoIdle { from: WorkerId },
}

type Post = Arc<Vec<Mutex<VecDeque<Mail>>>>;

/// A worker whose bank never has a slot: there are only the servers that were there at first.
struct Player {
    me: WorkerId,
    pool: Pool,
    held: VecDeque<ServerId>,
    waiting: Vec<ClientId>,
    next_client: u32,
    post: Post,
}

const LIMITS: Limits = Limits {
    wait: None,
    notify: None,
    idle: None,
    lifetime: Duration::from_secs(3600),
    check_delay: None,
    round_robin: false,
    size: 0,
    opening_max: 1,
};
const NOW: Instant = Instant(1_000_000_000);

impl Player {
    fn play(&mut self, line: Line) {
        let mut out = Vec::new();
        match line {
            Line::Acquire => {
                let client = ClientId(self.next_client);
                self.next_client += 1;
                self.waiting.push(client);
                self.pool.acquire(client, NOW, &mut out);
            }
            Line::Release => {
                if let Some(server) = self.held.pop_front() {
                    self.pool.release(server, NOW, &mut out);
                }
            }
            Line::Forget => {
                if let Some(client) = self.waiting.pop() {
                    self.pool.forget(client, &mut out);
                }
            }
            Line::Read => {
                while let Some(mail) = self.next_letter() {
                    self.read(mail, &mut out);
                    self.carry_out(&mut out);
                }
            }
        }
        self.carry_out(&mut out);
        self.pool.invariants();
    }

    fn next_letter(&self) -> Option<Mail> {
        step();
        self.post[usize::from(self.me.0)].lock().expect("no player panicked").pop_front()
    }

    fn read(&mut self, mail: Mail, out: &mut Vec<Action>) {
        match mail {
            Mail::Server { server, opened_at, epoch } => {
                self.pool.arrived(server, opened_at, epoch, NOW, out);
            }
            Mail::Nudge { from } => self.pool.nudged(from, NOW, out),
            Mail::NoIdle { from } => self.pool.no_idle(from, NOW, out),
        }
    }

    fn carry_out(&mut self, out: &mut Vec<Action>) {
        for action in out.drain(..) {
            match action {
                Action::Link { client, server } => {
                    self.held.push_back(server);
                    self.waiting.retain(|waiting| *waiting != client);
                }
                Action::Want { .. } => self.pool.denied(),
                Action::Give { server, to } => {
                    let opened_at = self.pool.opened_at(server);
                    let epoch = self.pool.epoch_of(server);
                    self.pool.left(server);
                    send(&self.post, to, Mail::Server { server, opened_at, epoch });
                }
                Action::Nudge { to } => send(&self.post, to, Mail::Nudge { from: self.me }),
                Action::NoIdle { to } => send(&self.post, to, Mail::NoIdle { from: self.me }),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

fn send(post: &Post, to: WorkerId, mail: Mail) {
    post[usize::from(to.0)].lock().expect("no player panicked").push_back(mail);
}

/// Players with so many servers each, all linked.
fn cast(servers: &[u32]) -> Vec<Player> {
    let board = Arc::new(Board::new(servers.len()));
    let post: Post = Arc::new(servers.iter().map(|_| Mutex::default()).collect());
    let mut next_server = 0;
    let player = |(index, servers): (usize, &u32)| {
        let me = WorkerId(index as u16);
        let pool = Pool::new(PoolId(0), me, LIMITS, Arc::clone(&board));
        let (held, waiting) = (VecDeque::new(), Vec::new());
        let mut player =
            Player { me, pool, held, waiting, next_client: 0, post: Arc::clone(&post) };
        for _ in 0..*servers {
            player.play(Line::Acquire);
            player.pool.connecting(ServerId(next_server), NOW);
            let mut out = Vec::new();
            player.pool.opened(ServerId(next_server), NOW, &mut out);
            player.carry_out(&mut out);
            next_server += 1;
        }
        player
    };
    servers.iter().enumerate().map(player).collect()
}

/// Plays the scripts at once, then delivers the mail, then asks whether anybody was forgotten.
fn perform(servers: &[u32], scripts: &[Vec<Line>], chooser: Chooser) -> Chooser {
    let scene = Scene { on: usize::MAX, finished: std::vec![false; servers.len()], chooser };
    let stage = Arc::new(Stage { scene: Mutex::new(scene), changed: Condvar::new() });
    let cast = cast(servers);
    stage.scene.lock().expect("nobody plays yet").choose(None);
    let play = |(mut player, script): (Player, Vec<Line>)| {
        let stage = Arc::clone(&stage);
        thread::spawn(move || {
            let index = usize::from(player.me.0);
            ROLE.set(Some(Role { stage: Arc::clone(&stage), index }));
            stage.await_turn(stage.scene.lock().expect("nobody panicked"), index);
            script.into_iter().for_each(|line| player.play(line));
            ROLE.set(None);
            stage.finish(index);
            player
        })
    };
    let threads: Vec<_> = cast.into_iter().zip(scripts.iter().cloned()).map(play).collect();
    let cast: Vec<Player> =
        threads.into_iter().map(|thread| thread.join().expect("played")).collect();
    epilogue(cast, servers.iter().sum());
    let stage = Arc::into_inner(stage).expect("all have left the stage");
    stage.scene.into_inner().expect("nobody panicked").chooser
}

/// Once the mail is read nobody waits by an idle server; and if all servers are released again and again,
/// everybody is served.
fn epilogue(mut cast: Vec<Player>, servers: u32) {
    loop {
        while cast
            .iter()
            .any(|player| !player.post[usize::from(player.me.0)].lock().expect("ok").is_empty())
        {
            cast.iter_mut().for_each(|player| player.play(Line::Read));
        }
        let waiting: u32 = cast.iter().map(|player| player.pool.counts().waiting).sum();
        let idle: u32 = cast.iter().map(|player| player.pool.counts().idle).sum();
        assert!(waiting == 0 || idle == 0, "{waiting} wait while {idle} servers are idle");
        assert_eq!(cast.iter().map(|player| player.pool.servers()).sum::<u32>(), servers);
        let mut held = cast.iter_mut().filter(|player| !player.held.is_empty());
        let Some(player) = held.next() else {
            assert_eq!(waiting, 0, "somebody is forgotten");
            break;
        };
        player.play(Line::Release);
    }
    for player in &mut cast {
        // With no mail under way nothing is expected: only then can the next client be served.
        assert!(player.pool.is_quiet());
        let mut out = Vec::new();
        player.pool.refuse_all(RefuseReason::WaitedTooLong, &mut out);
        assert_eq!(out, []);
    }
}

/// All interleavings with at most `interruptions` switches away from one that could go on.
fn perform_all(servers: &[u32], scripts: &[Vec<Line>], interruptions: usize) -> usize {
    let mut path: Vec<(usize, usize)> = Vec::new();
    for performances in 1.. {
        let chooser = Chooser::Path { taken: path, at: 0, interruptions };
        let Chooser::Path { taken, .. } = perform(servers, scripts, chooser) else {
            unreachable!()
        };
        path = taken;
        while path.pop_if(|(chosen, options)| *chosen + 1 == *options).is_some() {}
        let Some(last) = path.last_mut() else { return performances };
        last.0 += 1;
    }
    unreachable!()
}

/// One releases while one acquires, in every order there is.
#[test]
fn a_release_and_an_acquire_see_each_other() {
    let scripts = [std::vec![Line::Release], std::vec![Line::Acquire]];
    let performances = perform_all(&[1, 0], &scripts, usize::MAX);
    assert!(performances > 100, "only {performances} orders");
}

/// One client for two servers, and two clients for one server.
#[test]
fn three_workers_see_each_other() {
    let [release, acquire] =
        [std::vec![Line::Release, Line::Read], std::vec![Line::Acquire, Line::Read]];
    perform_all(&[1, 1, 0], &[release.clone(), release.clone(), acquire.clone()], 2);
    perform_all(&[1, 0, 0], &[release, acquire.clone(), acquire], 2);
}

/// A client leaves the line just when a server is given for it.
#[test]
fn a_gift_for_one_who_left_is_passed_on() {
    let leave = std::vec![Line::Acquire, Line::Forget, Line::Read];
    perform_all(&[1, 0], &[std::vec![Line::Release, Line::Acquire, Line::Read], leave], 3);
}

/// Two or three workers do this and that.
#[test]
fn nobody_is_forgotten() {
    for seed in 0..1500 {
        let mut dice = seed;
        let servers: Vec<u32> =
            (0..2 + roll(&mut dice, 2)).map(|_| roll(&mut dice, 3) as u32).collect();
        let servers = if servers.iter().sum::<u32>() == 0 { std::vec![1, 0] } else { servers };
        let lines =
            [Line::Acquire, Line::Acquire, Line::Release, Line::Release, Line::Read, Line::Forget];
        let script = |_| (0..6).map(|_| lines[roll(&mut dice, lines.len())]).collect();
        let scripts: Vec<Vec<Line>> = servers.iter().map(script).collect();
        perform(&servers, &scripts, Chooser::Dice(seed ^ 0xDEAD));
    }
}
