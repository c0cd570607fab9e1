//! A world of one to four workers, a few pools and one bank, where everything happens at random and mail is
//! late, and what must hold is asked after every step. A failing seed is a regression test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pool::{
    Action, Answer, Bank, BankLimits, Call, Calling, ClientId, CloseReason, Counts, Duration,
    Failure, Instant, Limits, Place, Pool, PoolId, RefuseReason, ServerId, WorkerId,
};

const DBS: [&str; 2] = ["shop", "blog"];
const USERS: [&str; 2] = ["ann", "bob"];
const LOGIN_RETRY: Duration = Duration::from_secs(2);
const CHECK_DELAY: Duration = Duration::from_secs(3);

/// splitmix64
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as usize % sides.max(1)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.roll(from.len())])
    }
}

/// Which kinds of event this world knows: each seed leaves some out.
struct Weather {
    deaths: bool,
    failures: bool,
    cancels: bool,
    pauses: bool,
    reconnects: bool,
    limits: bool,
    dedicated: bool,
    leavers: bool,
}

/// A connection to a server, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Socket {
    Dialling,
    Free {
        since: Instant,
    },
    Linked(ClientId),
    Testing {
        is_check: bool,
    },
    /// Detached and mailed.
    Mailed,
    Closing {
        has_logged_in: bool,
    },
    Dedicated {
        has_logged_in: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Server {
    socket: Socket,
    pool: usize,
    cancels: u32,
    epoch: u32,
}

#[derive(Clone, Copy, Debug)]
enum Mail {
    Server { server: Server, opened_at: Instant, epoch: u32, pool: usize },
    Nudge { from: WorkerId, pool: usize },
    NoIdle { from: WorkerId, pool: usize },
    Call(Call),
}

#[derive(Default)]
struct Worker {
    pools: Vec<Pool>,
    servers: BTreeMap<u32, Server>,
    /// Who waits, per pool, in order.
    lines: Vec<VecDeque<ClientId>>,
    /// How many replication clients wait, per pool.
    dedicated: Vec<u32>,
    inbox: VecDeque<Mail>,
}

struct World {
    dice: Dice,
    weather: Weather,
    now: Instant,
    bank: Bank,
    workers: Vec<Worker>,
    ids: Vec<PoolId>,
    bank_limits: Vec<BankLimits>,
    limits: Limits,
    epochs: Vec<u32>,
    next_client: u32,
    served: u64,
    moved: u64,
    evicted: u64,
    trace: bool,
}

fn error() -> Arc<[u8]> {
    Arc::from(&b"SFATAL\0"[..])
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let count = 1 + dice.roll(4);
        let mut bank = Bank::new(count as u16);
        let mut coin = || dice.roll(2) == 0;
        let weather = Weather {
            deaths: coin(),
            failures: coin(),
            cancels: coin(),
            pauses: coin(),
            reconnects: coin(),
            limits: coin(),
            dedicated: coin(),
            leavers: coin(),
        };
        let limits = random_limits(&mut dice);
        let shared = [dice.roll(3), dice.roll(3)];
        let bank_limits: Vec<BankLimits> =
            (0..DBS.len() * USERS.len()).map(|_| random_bank_limits(&mut dice, shared)).collect();
        let mut ids = Vec::new();
        let mut workers: Vec<Worker> = (0..count).map(|_| Worker::default()).collect();
        for (index, bank_limits) in bank_limits.iter().enumerate() {
            let (db, user) = name(index);
            let (id, board) = bank.open_pool(db, user, *bank_limits);
            ids.push(id);
            for (me, worker) in workers.iter_mut().enumerate() {
                worker.pools.push(Pool::new(id, WorkerId(me as u16), limits, Arc::clone(&board)));
                worker.lines.push(VecDeque::new());
                worker.dedicated.push(0);
            }
        }
        let epochs = vec![1; ids.len()];
        let now = Instant(1_000_000_000_000);
        let trace = std::env::var_os("POOL_TRACE").is_some();
        let (next_client, served, moved, evicted) = (0, 0, 0, 0);
        Self {
            dice,
            weather,
            now,
            bank,
            workers,
            ids,
            bank_limits,
            limits,
            epochs,
            next_client,
            served,
            moved,
            evicted,
            trace,
        }
    }

    // ---- What happens.

    fn step(&mut self) {
        let me = self.dice.roll(self.workers.len());
        let pool = self.dice.roll(self.ids.len());
        match self.dice.roll(24) {
            0..=5 => self.client_comes(me, pool),
            6 if self.weather.leavers => self.client_leaves(me, pool),
            7..=12 => self.something_ends(me),
            13..=16 => self.deliver(me),
            17 => self.time_passes(),
            18 if self.weather.cancels => self.cancel(me),
            19 if self.weather.deaths => self.server_dies(me),
            20 if self.weather.pauses && self.dice.roll(4) == 0 => self.pause(pool),
            21 if self.weather.reconnects && self.dice.roll(4) == 0 => self.reconnect(pool),
            22 if self.weather.limits && self.dice.roll(4) == 0 => self.change_limits(),
            23 if self.weather.dedicated && self.dice.roll(4) == 0 => {
                self.workers[me].dedicated[pool] += 1;
                self.ask_dedicated(me, pool, Duration::ZERO);
            }
            _ => self.keep_min(me, pool),
        }
    }

    fn client_comes(&mut self, me: usize, pool: usize) {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        self.workers[me].lines[pool].push_back(client);
        self.with(me, pool, |pool, now, out| pool.acquire(client, now, out));
    }

    fn client_leaves(&mut self, me: usize, pool: usize) {
        let line: Vec<ClientId> = self.workers[me].lines[pool].iter().copied().collect();
        if let Some(client) = self.dice.pick(&line) {
            self.workers[me].lines[pool].retain(|other| *other != client);
            self.with(me, pool, |pool, _, out| pool.forget(client, out));
        }
    }

    fn something_ends(&mut self, me: usize) {
        let moving = |server: &Server| !matches!(server.socket, Socket::Free { .. });
        let servers = &self.workers[me].servers;
        let ids: Vec<u32> =
            servers.iter().filter(|(_, server)| moving(server)).map(|(id, _)| *id).collect();
        let Some(id) = self.dice.pick(&ids) else { return };
        let (server, id) = (self.workers[me].servers[&id], ServerId(id));
        match server.socket {
            Socket::Dialling => self.dial_ends(me, id, server.pool),
            Socket::Linked(_) if self.dice.roll(4) == 0 => {
                self.set(me, id, Socket::Testing { is_check: false });
                self.workers[me].pools[server.pool].test(id);
            }
            Socket::Linked(_) | Socket::Testing { .. } => self.release(me, id, server.pool),
            Socket::Closing { has_logged_in } => {
                self.close_ends(me, id, server.pool, has_logged_in)
            }
            Socket::Dedicated { has_logged_in: false } => {
                self.set(me, id, Socket::Dedicated { has_logged_in: true });
                self.call(me, |bank, _, calls| bank.logged_in(PoolId(server.pool as u32), calls));
            }
            Socket::Dedicated { has_logged_in: true } => self.close_ends(me, id, server.pool, true),
            Socket::Free { .. } | Socket::Mailed => unreachable!("not moving"),
        }
    }

    fn dial_ends(&mut self, me: usize, id: ServerId, pool: usize) {
        if self.weather.failures && self.dice.roll(3) == 0 {
            let failure = match self.dice.roll(3) {
                0 => Failure::Connect,
                1 => Failure::Login { transient: true },
                _ => Failure::Login { transient: false },
            };
            let bank_pool = self.ids[pool];
            self.call(me, |bank, now, calls| bank.failed(bank_pool, failure, error(), now, calls));
            // What was called for may have ended the attempt already.
            if self.workers[me].servers.contains_key(&id.0) {
                self.set(me, id, Socket::Closing { has_logged_in: false });
                self.with(me, pool, |pool, now, out| pool.lost(id, now, out));
            }
            return;
        }
        self.set(me, id, Socket::Free { since: self.now });
        let bank_pool = self.ids[pool];
        self.call(me, |bank, _, calls| bank.logged_in(bank_pool, calls));
        self.with(me, pool, |pool, now, out| pool.opened(id, now, out));
    }

    fn release(&mut self, me: usize, id: ServerId, pool: usize) {
        let is_check = self.workers[me].servers[&id.0].socket == Socket::Testing { is_check: true };
        if is_check && self.weather.deaths && self.dice.roll(3) == 0 {
            self.die(me, id, pool);
            return;
        }
        self.set(me, id, Socket::Free { since: self.now });
        self.with(me, pool, |pool, now, out| pool.release(id, now, out));
    }

    fn close_ends(&mut self, me: usize, id: ServerId, pool: usize, has_logged_in: bool) {
        self.workers[me].servers.remove(&id.0);
        let (pool, me_id) = (self.ids[pool], WorkerId(me as u16));
        self.call(me, |bank, now, calls| {
            if has_logged_in {
                bank.closed(pool, me_id, now, calls);
            } else {
                bank.abandoned(pool, me_id, calls);
            }
        });
    }

    fn deliver(&mut self, me: usize) {
        let Some(mail) = self.workers[me].inbox.pop_front() else { return };
        if self.trace {
            println!("{me} reads {mail:?}");
        }
        match mail {
            Mail::Server { server, opened_at, epoch, pool } => {
                let id = self.new_slot(me);
                let socket = Socket::Free { since: self.now };
                self.workers[me].servers.insert(id.0, Server { socket, ..server });
                self.moved += 1;
                self.with(me, pool, |pool, now, out| pool.arrived(id, opened_at, epoch, now, out));
            }
            Mail::Nudge { from, pool } => {
                self.with(me, pool, |pool, now, out| pool.nudged(from, now, out));
            }
            Mail::NoIdle { from, pool } => {
                self.with(me, pool, |pool, now, out| pool.no_idle(from, now, out));
            }
            Mail::Call(call) => self.called(me, call),
        }
    }

    fn called(&mut self, me: usize, call: Call) {
        let pool = call.pool.0 as usize;
        match call.calling {
            Calling::Retry if self.workers[me].dedicated[pool] > 0 => {
                self.ask_dedicated(me, pool, Duration::ZERO)
            }
            Calling::Retry => self.with(me, pool, Pool::retry),
            Calling::Evict => self.with(me, pool, Pool::evict),
            Calling::Refuse if self.bank.cached_error(call.pool).is_some() => {
                self.with(me, pool, |pool, _, out| pool.refuse_all(RefuseReason::LoginFailed, out));
            }
            Calling::Refuse => {}
        }
    }

    fn time_passes(&mut self) {
        let wait = [1, 50, 400, 3_100][self.dice.roll(4)];
        self.now = self.now.after(Duration::from_millis(wait));
        self.tick();
    }

    /// Ticks the pools that are due; the others would have had nothing to do.
    fn tick(&mut self) {
        for me in 0..self.workers.len() {
            for pool in 0..self.ids.len() {
                let is_due =
                    self.workers[me].pools[pool].deadline().is_some_and(|at| at <= self.now);
                let before = self.workers[me].pools[pool].counts();
                let mut out = Vec::new();
                self.workers[me].pools[pool].tick(self.now, &mut out);
                let after = self.workers[me].pools[pool].counts();
                // A nudge on its way may be answered before it is read.
                let drained = self.workers.iter().all(|worker| worker.inbox.is_empty());
                let idles = out.is_empty() && before == after;
                assert!(is_due || idles || !drained, "not due, but {me} {pool} {out:?} {before:?}");
                self.carry_out(me, pool, out);
                let again = self.workers[me].pools[pool].deadline();
                assert!(
                    again.is_none_or(|at| at > self.now),
                    "{again:?} is due for ever at {:?}",
                    self.now
                );
            }
        }
    }

    fn cancel(&mut self, me: usize) {
        let servers: Vec<(u32, Server)> =
            self.workers[me].servers.iter().map(|(id, server)| (*id, *server)).collect();
        let Some((id, server)) = self.dice.pick(&servers) else { return };
        let is_here = self.workers[me].pools[server.pool].place(ServerId(id)).is_some();
        if server.cancels > 0 && self.dice.roll(2) == 0 {
            self.end_cancel(me, id);
        } else if is_here && matches!(server.socket, Socket::Linked(_)) {
            self.workers[me].servers.get_mut(&id).expect("just picked").cancels += 1;
            self.workers[me].pools[server.pool].cancel_began(ServerId(id));
        }
    }

    fn end_cancel(&mut self, me: usize, id: u32) {
        let server = self.workers[me].servers.get_mut(&id).expect("just picked");
        server.cancels -= 1;
        if self.limits.check_delay.is_none() && matches!(server.socket, Socket::Free { .. }) {
            // Where nothing is checked it counts as fresh.
            server.socket = Socket::Free { since: self.now };
        }
        if !matches!(server.socket, Socket::Closing { .. }) {
            let pool = server.pool;
            self.with(me, pool, |pool, now, out| pool.cancel_ended(ServerId(id), now, out));
        }
    }

    fn server_dies(&mut self, me: usize) {
        let alive = |server: &Server| {
            matches!(
                server.socket,
                Socket::Free { .. } | Socket::Linked(_) | Socket::Testing { .. }
            )
        };
        let servers: Vec<(u32, usize)> = self.workers[me]
            .servers
            .iter()
            .filter(|(_, server)| alive(server))
            .map(|(id, server)| (*id, server.pool))
            .collect();
        if let Some((id, pool)) = self.dice.pick(&servers) {
            self.die(me, ServerId(id), pool);
        }
    }

    fn die(&mut self, me: usize, id: ServerId, pool: usize) {
        self.set(me, id, Socket::Closing { has_logged_in: true });
        self.with(me, pool, |pool, now, out| pool.lost(id, now, out));
    }

    fn pause(&mut self, pool: usize) {
        let pauses = !self.workers[0].pools[pool].is_paused();
        for me in 0..self.workers.len() {
            if pauses {
                self.with(me, pool, Pool::pause);
                self.abandon_dials(me, pool);
            } else {
                self.with(me, pool, Pool::resume);
            }
        }
        if !pauses {
            let id = self.ids[pool];
            self.call(0, |bank, _, calls| bank.forgive(id, calls));
        }
    }

    /// KILL would not wait for those that are just logging in.
    fn abandon_dials(&mut self, me: usize, pool: usize) {
        let servers = self.workers[me].servers.iter();
        let dials: Vec<ServerId> = servers
            .filter(|(_, server)| server.pool == pool && server.socket == Socket::Dialling)
            .map(|(id, _)| ServerId(*id))
            .collect();
        for id in dials {
            if self.dice.roll(2) == 0 {
                self.set(me, id, Socket::Closing { has_logged_in: false });
                self.with(me, pool, |pool, now, out| pool.lost(id, now, out));
            }
        }
    }

    fn reconnect(&mut self, pool: usize) {
        self.epochs[pool] += 1;
        let epoch = self.epochs[pool];
        for me in 0..self.workers.len() {
            self.with(me, pool, |pool, now, out| pool.reconnect(epoch, now, out));
        }
        let id = self.ids[pool];
        self.call(0, |bank, _, calls| bank.forgive(id, calls));
    }

    fn change_limits(&mut self) {
        let shared = [self.dice.roll(3), self.dice.roll(3)];
        self.limits = random_limits(&mut self.dice);
        for pool in 0..self.ids.len() {
            let limits = random_bank_limits(&mut self.dice, shared);
            self.set_limits(pool, limits);
        }
    }

    fn set_limits(&mut self, pool: usize, bank_limits: BankLimits) {
        self.bank_limits[pool] = bank_limits;
        let (id, limits) = (self.ids[pool], self.limits);
        self.call(0, |bank, _, calls| bank.set_limits(id, bank_limits, calls));
        for me in 0..self.workers.len() {
            self.with(me, pool, |pool, now, out| pool.set_limits(limits, now, out));
        }
    }

    fn keep_min(&mut self, me: usize, pool: usize) {
        let me_id = WorkerId(me as u16);
        if self.workers[me].pools[pool].is_below_min()
            && self.bank.ask_min(self.ids[pool], me_id, self.now)
        {
            assert!(self.bank.open(self.ids[pool]) <= self.bank_limits[pool].min);
            self.granted(pool, false);
            self.dial(me, pool);
        }
    }

    fn ask_dedicated(&mut self, me: usize, pool: usize, wait: Duration) {
        let (id, me_id) = (self.ids[pool], WorkerId(me as u16));
        let answer =
            self.call(me, |bank, now, calls| bank.ask_dedicated(id, me_id, wait, now, calls));
        if let Answer::Open { reserve } = answer {
            self.granted(pool, reserve);
            let id = self.new_slot(me);
            let socket = Socket::Dedicated { has_logged_in: false };
            let server = Server { socket, pool, cancels: 0, epoch: 0 };
            self.workers[me].servers.insert(id.0, server);
            self.workers[me].dedicated[pool] -= 1;
        }
    }

    // ---- Orders.

    fn with(
        &mut self,
        me: usize,
        pool: usize,
        input: impl FnOnce(&mut Pool, Instant, &mut Vec<Action>),
    ) {
        let mut out = Vec::new();
        input(&mut self.workers[me].pools[pool], self.now, &mut out);
        self.carry_out(me, pool, out);
    }

    fn call<T>(
        &mut self,
        me: usize,
        input: impl FnOnce(&mut Bank, Instant, &mut Vec<Call>) -> T,
    ) -> T {
        let mut calls = Vec::new();
        let answer = input(&mut self.bank, self.now, &mut calls);
        for call in calls {
            let inbox = &mut self.workers[usize::from(call.worker.0)].inbox;
            if usize::from(call.worker.0) == me && self.dice.roll(2) == 0 {
                // At once, but not before the orders that are being carried out.
                inbox.push_front(Mail::Call(call));
            } else {
                inbox.push_back(Mail::Call(call));
            }
        }
        answer
    }

    fn carry_out(&mut self, me: usize, pool: usize, out: Vec<Action>) {
        for action in out {
            if self.trace {
                println!("{me} pool {pool}: {action:?}");
            }
            self.carry_out_one(me, pool, action);
        }
    }

    fn carry_out_one(&mut self, me: usize, pool: usize, action: Action) {
        let from = WorkerId(me as u16);
        match action {
            Action::Link { client, server } => self.link(me, pool, client, server),
            Action::Want { count } => self.want(me, pool, count),
            Action::Decline => {
                self.call(me, |bank, _, calls| bank.declined(PoolId(pool as u32), from, calls))
            }
            Action::Check { server } => {
                assert!(matches!(self.workers[me].servers[&server.0].socket, Socket::Free { .. }));
                self.set(me, server, Socket::Testing { is_check: true });
            }
            Action::Close { server, reason } => {
                assert_eq!(
                    self.workers[me].pools[pool].place(server),
                    None,
                    "closed, but still here"
                );
                self.evicted += u64::from(reason == CloseReason::Evicted);
                self.set(me, server, Socket::Closing { has_logged_in: true });
            }
            Action::Give { server, to } => self.give(me, pool, server, to),
            Action::Nudge { to } => self.mail(to, Mail::Nudge { from, pool }),
            Action::NoIdle { to } => self.mail(to, Mail::NoIdle { from, pool }),
            Action::Refuse { client, .. } => {
                let head = self.workers[me].lines[pool].pop_front();
                assert_eq!(head, Some(client), "refused out of turn");
            }
            Action::Notify { client } => assert!(self.workers[me].lines[pool].contains(&client)),
        }
    }

    fn link(&mut self, me: usize, pool: usize, client: ClientId, id: ServerId) {
        let head = self.workers[me].lines[pool].pop_front();
        assert_eq!(head, Some(client), "the line is not first come, first served");
        let server = self.workers[me].servers[&id.0];
        let Socket::Free { since } = server.socket else {
            panic!("linked to a {:?}", server.socket)
        };
        assert_eq!(server.cancels, 0, "linked while a cancel is on its way");
        assert_eq!(server.pool, pool);
        assert_eq!(server.epoch, self.epochs[pool], "linked to an obsolete server");
        assert!(!self.workers[me].pools[pool].is_paused(), "linked while paused");
        let is_stale = self.limits.check_delay.is_some_and(|delay| since.after(delay) <= self.now);
        assert!(!is_stale, "linked unchecked: {since:?} {:?} {server:?}", self.now);
        self.set(me, id, Socket::Linked(client));
        self.served += 1;
    }

    fn want(&mut self, me: usize, pool: usize, count: u32) {
        for _ in 0..count {
            let (id, me_id) = (self.ids[pool], WorkerId(me as u16));
            let wait = self.workers[me].pools[pool].oldest_wait(self.now);
            // A call may come back to us before we have dialled: that is the worker's affair, too.
            match self.call(me, |bank, now, calls| bank.ask(id, me_id, wait, now, calls)) {
                Answer::Open { reserve } => {
                    self.granted(pool, reserve);
                    self.dial(me, pool);
                }
                Answer::Failing => {
                    self.workers[me].pools[pool].denied();
                    self.with(me, pool, |pool, _, out| {
                        pool.refuse_all(RefuseReason::LoginFailed, out)
                    });
                    return;
                }
                Answer::Wait | Answer::Later => {
                    self.workers[me].pools[pool].denied();
                    return;
                }
            }
        }
    }

    fn dial(&mut self, me: usize, pool: usize) {
        let id = self.new_slot(me);
        let server =
            Server { socket: Socket::Dialling, pool, cancels: 0, epoch: self.epochs[pool] };
        self.workers[me].servers.insert(id.0, server);
        self.workers[me].pools[pool].connecting(id, self.now);
    }

    fn give(&mut self, me: usize, pool: usize, id: ServerId, to: WorkerId) {
        if self.weather.deaths && self.dice.roll(8) == 0 {
            self.die(me, id, pool);
            return;
        }
        let giver = &mut self.workers[me].pools[pool];
        let (opened_at, epoch) = (giver.opened_at(id), giver.epoch_of(id));
        giver.left(id);
        let mut server = self.workers[me].servers.remove(&id.0).expect("we had it");
        assert!(matches!(server.socket, Socket::Free { .. }) && server.cancels == 0);
        assert_eq!(server.epoch, epoch);
        server.socket = Socket::Mailed;
        self.bank.moved(self.ids[pool], WorkerId(me as u16), to);
        self.mail(to, Mail::Server { server, opened_at, epoch, pool });
    }

    fn mail(&mut self, to: WorkerId, mail: Mail) {
        self.workers[usize::from(to.0)].inbox.push_back(mail);
    }

    fn set(&mut self, me: usize, id: ServerId, socket: Socket) {
        self.workers[me].servers.get_mut(&id.0).expect("a server of ours").socket = socket;
    }

    fn new_slot(&self, me: usize) -> ServerId {
        (0..)
            .map(ServerId)
            .find(|id| !self.workers[me].servers.contains_key(&id.0))
            .expect("a number")
    }

    // ---- What must hold.

    fn granted(&self, pool: usize, reserve: bool) {
        let (limits, (db, user)) = (self.bank_limits[pool], name(pool));
        let size = limits.size.map(|size| if reserve { size + limits.reserve } else { size });
        let within = |open: u32, max: Option<u32>| max.is_none_or(|max| open <= max);
        assert!(within(self.bank.open(self.ids[pool]), size), "pool_size exceeded");
        assert!(within(self.bank.db_open(db), limits.db_max), "max_db_connections exceeded");
        assert!(
            within(self.bank.user_open(user), limits.user_max),
            "max_user_connections exceeded"
        );
    }

    fn check(&self) {
        self.bank.invariants();
        let mut open = vec![0_u32; self.ids.len()];
        for worker in &self.workers {
            let mut here = vec![0_u32; self.ids.len()];
            for (id, server) in &worker.servers {
                open[server.pool] += 1;
                let place = worker.pools[server.pool].place(ServerId(*id));
                here[server.pool] += u32::from(place.is_some());
                match (server.socket, place) {
                    (Socket::Dialling, Some(Place::Connecting))
                    | (Socket::Linked(_), Some(Place::Linked))
                    | (Socket::Testing { .. }, Some(Place::Testing))
                    | (Socket::Free { .. }, Some(Place::Idle | Place::Used | Place::Canceled))
                    | (Socket::Closing { .. } | Socket::Dedicated { .. }, None) => {}
                    other => panic!("{other:?}"),
                }
            }
            for (index, pool) in worker.pools.iter().enumerate() {
                pool.invariants();
                assert_eq!(
                    pool.servers(),
                    here[index],
                    "the pool knows servers that are not there"
                );
                assert_eq!(pool.counts().waiting as usize, worker.lines[index].len());
            }
            for mail in &worker.inbox {
                if let Mail::Server { pool, .. } = mail {
                    open[*pool] += 1;
                }
            }
        }
        for (pool, open) in open.into_iter().enumerate() {
            assert_eq!(self.bank.open(self.ids[pool]), open, "slots are lost or made up");
        }
    }

    /// With all mail read, nobody waits while a server of its pool is idle anywhere.
    fn check_drained(&mut self) {
        while let Some(me) = self.workers.iter().position(|worker| !worker.inbox.is_empty()) {
            self.deliver(me);
            self.check();
        }
        for pool in 0..self.ids.len() {
            let counts: Vec<Counts> =
                self.workers.iter().map(|worker| worker.pools[pool].counts()).collect();
            let waiting: u32 = counts.iter().map(|counts| counts.waiting).sum();
            let idle: u32 = counts.iter().map(|counts| counts.idle).sum();
            let used: u32 = counts.iter().map(|counts| counts.used).sum();
            let sockets = |worker: &Worker, testing: &dyn Fn(bool) -> bool| {
                let is_meant = |server: &&Server| match server.socket {
                    Socket::Testing { is_check } => server.pool == pool && testing(is_check),
                    _ => false,
                };
                worker.servers.values().filter(is_meant).count() as u32
            };
            let checks: u32 =
                self.workers.iter().map(|worker| sockets(worker, &|is_check| is_check)).sum();
            let tests: u32 = self.workers.iter().map(|worker| sockets(worker, &|_| true)).sum();
            // Who was promised a server under check does not get another.
            assert!(
                waiting <= checks || idle == 0,
                "{waiting} wait in pool {pool}, {idle} are idle"
            );
            assert!(
                waiting <= tests || used == 0,
                "{waiting} wait in pool {pool}, {used} are unchecked"
            );
        }
    }

    /// The sun shines: whoever still waits is served.
    fn finish(&mut self) {
        self.weather = Weather {
            deaths: false,
            failures: false,
            cancels: false,
            pauses: false,
            reconnects: false,
            limits: false,
            dedicated: false,
            leavers: false,
        };
        self.limits.wait = None;
        for pool in 0..self.ids.len() {
            let limits = BankLimits {
                size: self.bank_limits[pool].size.map(|size| size.max(1)),
                ..self.bank_limits[pool]
            };
            self.set_limits(pool, limits);
            if self.workers[0].pools[pool].is_paused() {
                self.pause(pool);
            }
        }
        for _ in 0..400 {
            self.sunny_round();
            self.check();
            let waits = |worker: &Worker| worker.lines.iter().any(|line| !line.is_empty());
            let busy = |worker: &Worker| worker.dedicated.iter().any(|count| *count > 0);
            if !self
                .workers
                .iter()
                .any(|worker| waits(worker) || busy(worker) || !worker.inbox.is_empty())
            {
                return;
            }
        }
        for worker in &self.workers {
            println!(
                "{:?} {:?} {:?} {:?}",
                worker.lines, worker.dedicated, worker.servers, worker.inbox
            );
        }
        panic!("somebody waits for ever: {:?} {:?}", self.bank_limits, self.bank);
    }

    fn sunny_round(&mut self) {
        for me in 0..self.workers.len() {
            let ids: BTreeSet<u32> = self.workers[me].servers.keys().copied().collect();
            for id in ids {
                let Some(server) = self.workers[me].servers.get(&id).copied() else { continue };
                (0..server.cancels).for_each(|_| self.end_cancel(me, id));
                match self.workers[me].servers.get(&id).map(|server| server.socket) {
                    None | Some(Socket::Free { .. } | Socket::Mailed) => {}
                    Some(Socket::Dialling) => self.dial_ends(me, ServerId(id), server.pool),
                    Some(Socket::Linked(_) | Socket::Testing { .. }) => {
                        self.release(me, ServerId(id), server.pool)
                    }
                    Some(Socket::Closing { has_logged_in }) => {
                        self.close_ends(me, ServerId(id), server.pool, has_logged_in);
                    }
                    Some(Socket::Dedicated { has_logged_in }) => {
                        self.close_ends(me, ServerId(id), server.pool, has_logged_in);
                    }
                }
            }
            (0..10).for_each(|_| self.deliver(me));
            for pool in 0..self.ids.len() {
                let patience = Duration::from_secs(1);
                (0..self.workers[me].dedicated[pool])
                    .for_each(|_| self.ask_dedicated(me, pool, patience));
            }
        }
        self.now = self.now.after(Duration::from_millis(100));
        self.tick();
    }
}

fn name(pool: usize) -> (&'static str, &'static str) {
    (DBS[pool / USERS.len()], USERS[pool % USERS.len()])
}

fn random_limits(dice: &mut Dice) -> Limits {
    let seconds = |count| Some(Duration::from_secs(count));
    Limits {
        wait: [None, seconds(5)][dice.roll(2)],
        notify: [None, seconds(1)][dice.roll(2)],
        idle: [None, seconds(4)][dice.roll(2)],
        lifetime: Duration::from_secs([0, 10, 3600][dice.roll(3)]),
        check_delay: [None, Some(CHECK_DELAY)][dice.roll(2)],
        round_robin: dice.roll(2) == 0,
        size: dice.roll(4) as u32,
        opening_max: 1 + dice.roll(3) as u32,
    }
}

fn random_bank_limits(dice: &mut Dice, shared: [usize; 2]) -> BankLimits {
    let limit = |choice: usize| [None, Some(2), Some(4)][choice];
    BankLimits {
        size: [None, Some(1), Some(2), Some(4)][dice.roll(4)],
        reserve: dice.roll(2) as u32,
        reserve_after: [None, Some(Duration::from_millis(500))][dice.roll(2)],
        min: [0, 0, 1, 2][dice.roll(4)],
        db_max: limit(shared[0]),
        user_max: limit(shared[1]),
        login_retry: LOGIN_RETRY,
    }
}

fn run(seed: u64, steps: usize) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    for step in 0..steps {
        world.step();
        world.check();
        if step % 64 == 63 {
            world.check_drained();
        }
    }
    world.finish();
    (world.served, world.moved, world.evicted)
}

/// Hundreds of small worlds. `POOL_SEED=7 POOL_TRACE=1` plays one again, and tells what happens.
#[test]
fn whatever_happens_the_rules_hold() {
    let only = std::env::var("POOL_SEED").ok().and_then(|seed| seed.parse().ok());
    let count =
        std::env::var("POOL_WORLDS").ok().and_then(|count| count.parse().ok()).unwrap_or(150);
    let seeds = only.map_or(0..count, |seed: u64| seed..seed + 1);
    let mut totals = [0_u64; 3];
    for seed in seeds {
        let (served, moved, evicted) = std::panic::catch_unwind(|| run(seed, 1000))
            .unwrap_or_else(|_| panic!("POOL_SEED={seed}"));
        totals = [totals[0] + served, totals[1] + moved, totals[2] + evicted];
    }
    assert!(only.is_some() || totals.iter().all(|total| *total > 100), "a dull world: {totals:?}");
}
