//! How evenly clients of several workers are served, in a world where every step takes a known time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use pool::{Action, Board, ClientId, Duration, Instant, Limits, Pool, PoolId, ServerId, WorkerId};

const LIMITS: Limits = Limits {
    wait: None,
    notify: None,
    idle: None,
    lifetime: Duration::from_secs(3600),
    check_delay: None,
    round_robin: false,
    size: 20,
    opening_max: 8,
};

/// How a world begins, and how long things take in it.
#[derive(Clone, Copy, Debug)]
struct Scene {
    /// Clients and servers of each worker.
    clients: &'static [u32],
    servers: &'static [u32],
    query_us: u64,
    /// From one worker to another.
    mail_us: u64,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    Asks { me: u16, client: u32 },
    Answered { me: u16, client: u32, server: u32 },
    Arrives { me: u16, server: u32 },
    Nudged { me: u16, from: u16 },
    NoIdle { me: u16, from: u16 },
}

struct World {
    scene: Scene,
    now: u64,
    order: u64,
    dice: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pools: Vec<Pool>,
    asked_at: BTreeMap<(u16, u32), u64>,
    /// In nanoseconds, by client.
    took: BTreeMap<(u16, u32), Vec<u64>>,
    moves: u64,
}

impl World {
    fn new(scene: Scene) -> Self {
        let board = Arc::new(Board::new(scene.clients.len()));
        let pool = |me| Pool::new(PoolId(0), WorkerId(me), LIMITS, Arc::clone(&board));
        let pools = (0..scene.clients.len() as u16).map(pool).collect();
        let mut world = Self {
            scene,
            now: 1_000_000_000,
            order: 0,
            dice: 1,
            agenda: BinaryHeap::new(),
            pools,
            asked_at: BTreeMap::new(),
            took: BTreeMap::new(),
            moves: 0,
        };
        let mut next = 0;
        for (me, count) in scene.servers.iter().enumerate() {
            for server in next..next + count {
                let now = Instant(world.now);
                world.pools[me].connecting(ServerId(server), now);
                world.with(me as u16, |pool, out| pool.opened(ServerId(server), now, out));
            }
            next += count;
        }
        for (me, count) in scene.clients.iter().enumerate() {
            for client in 0..*count {
                world.plan(1, Event::Asks { me: me as u16, client });
            }
        }
        world
    }

    /// About so many microseconds from now: half as many to half as many more.
    fn plan(&mut self, us: u64, event: Event) {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let part = (self.dice >> 33) % 1_000;
        let at = self.now + us * (500 + part);
        self.order += 1;
        self.agenda.push(Reverse((at, self.order, event)));
    }

    fn with(&mut self, me: u16, tell: impl FnOnce(&mut Pool, &mut Vec<Action>)) {
        let mut out = Vec::new();
        tell(&mut self.pools[usize::from(me)], &mut out);
        let Scene { query_us, mail_us, .. } = self.scene;
        for action in out {
            match action {
                Action::Link { client: ClientId(client), server: ServerId(server) } => {
                    self.plan(query_us, Event::Answered { me, client, server });
                }
                Action::Give { server, to } => {
                    self.pools[usize::from(me)].left(server);
                    self.moves += 1;
                    self.plan(mail_us, Event::Arrives { me: to.0, server: server.0 });
                }
                Action::Nudge { to } => self.plan(mail_us, Event::Nudged { me: to.0, from: me }),
                Action::NoIdle { to } => self.plan(mail_us, Event::NoIdle { me: to.0, from: me }),
                Action::Want { .. } => self.pools[usize::from(me)].denied(),
                Action::Decline => {}
                other => panic!("{other:?} is not expected here"),
            }
        }
    }

    fn run(&mut self, length: Duration) {
        let end = Instant(self.now).after(length).0;
        while let Some(Reverse((at, _, event))) = self.agenda.pop()
            && at < end
        {
            self.now = at;
            self.happens(event);
        }
    }

    fn happens(&mut self, event: Event) {
        let now = Instant(self.now);
        match event {
            Event::Asks { me, client } => {
                self.asked_at.insert((me, client), self.now);
                self.with(me, |pool, out| pool.acquire(ClientId(client), now, out));
            }
            Event::Answered { me, client, server } => {
                let took = self.now - self.asked_at[&(me, client)];
                self.took.entry((me, client)).or_default().push(took);
                self.with(me, |pool, out| pool.release(ServerId(server), now, out));
                self.plan(self.scene.query_us / 4 + 1, Event::Asks { me, client });
            }
            Event::Arrives { me, server } => {
                let opened = Instant(0);
                self.with(me, |pool, out| pool.arrived(ServerId(server), opened, 1, now, out));
            }
            Event::Nudged { me, from } => {
                self.with(me, |pool, out| pool.nudged(WorkerId(from), now, out));
            }
            Event::NoIdle { me, from } => {
                self.with(me, |pool, out| pool.no_idle(WorkerId(from), now, out));
            }
        }
    }

    /// Standard deviation over mean of transactions per client, and longest over median of all.
    fn verdict(&self) -> (f64, f64) {
        let counts: Vec<f64> = self.took.values().map(|took| took.len() as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance =
            counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        let mut all: Vec<u64> = self.took.values().flatten().copied().collect();
        all.sort_unstable();
        let (longest, median) = (all[all.len() - 1], all[all.len() / 2]);
        (variance.sqrt() / mean, longest as f64 / median as f64)
    }
}

/// However the servers were split at first, and however fast they are: clients of all workers get the
/// same, and servers do not run to and fro for it.
#[test]
fn clients_of_all_workers_are_served_alike() {
    let scenes: [(&[u32], &[u32]); 6] = [
        (&[25, 25], &[10, 10]),
        (&[25, 25], &[6, 14]),
        (&[25, 25], &[20, 0]),
        (&[40, 10], &[10, 10]),
        (&[250, 250], &[15, 5]),
        (&[15, 15, 15, 15], &[20, 0, 0, 0]),
    ];
    for (clients, servers) in scenes {
        for query_us in [20, 100, 2_000] {
            let scene = Scene { clients, servers, query_us, mail_us: 30 };
            let mut world = World::new(scene);
            world.run(Duration::from_micros(query_us * 500));
            world.took.clear();
            world.moves = 0;
            world.run(Duration::from_micros(query_us * 6_000));
            let (spread, longest) = world.verdict();
            let served: usize = world.took.values().map(Vec::len).sum();
            let seen = format!("{scene:?}: σ/mean {spread:.3}, longest/median {longest:.1}");
            eprintln!("{seen}, {} moves in {served}", world.moves);
            assert!(spread < 0.05, "{seen}");
            assert!(longest < 3.0, "{seen}");
            assert!(world.moves * 100 < served as u64, "{seen}, {} moves", world.moves);
        }
    }
}
