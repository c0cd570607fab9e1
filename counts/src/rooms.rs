//! The rooms by themselves: nothing around them but their inputs.

use std::hint::black_box;
use std::sync::Arc;

use pool::{Action, Board, ClientId, Duration, Instant, Limits, Pool, PoolId, ServerId, WorkerId};
use rig::backend::Backend;
use rig::script::Workload;
use session::{
    ClientSide, Flow, Mode, Reading, Registry, Rules, ServerSide, Statements, Tracked, Vars,
};
use wire::Scanner;

/// A second of the pool's clock, so that nothing happens before the beginning of time.
const START: Instant = Instant(1_000_000_000);

/// A batch of extended messages, cut into its five pieces.
pub(crate) fn scan(count: usize) {
    let script = Workload::Extended.script();
    let request = script.steps[0].request.as_slice();
    let mut scanner = Scanner::default();
    for _ in 0..count {
        let mut rest = black_box(request);
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            black_box(piece);
        }
    }
}

fn pool_of(servers: u32) -> Pool {
    let limits = Limits {
        wait: Some(Duration::from_secs(120)),
        notify: None,
        idle: Some(Duration::from_secs(600)),
        lifetime: Duration::from_secs(3600),
        check_delay: None,
        round_robin: false,
        size: servers,
        opening_max: 8,
    };
    let mut pool = Pool::new(PoolId(0), WorkerId(0), limits, Arc::new(Board::new(1)));
    let mut out = Vec::new();
    for server in (0..servers).map(ServerId) {
        pool.connecting(server, START);
        pool.opened(server, START, &mut out);
    }
    pool
}

/// A client takes an idle server and gives it back.
pub(crate) fn idle(count: usize) {
    let mut pool = pool_of(20);
    let mut out = Vec::new();
    for turn in 0..count {
        let now = START.after(Duration::from_micros(turn as u64));
        pool.acquire(ClientId(turn as u32 % 50), now, &mut out);
        release_all(&mut pool, &mut out, now);
    }
}

/// The same where all servers are busy: a server given back goes to the next in line, who gets in
/// line again behind the others.
pub(crate) fn line(count: usize) {
    let mut pool = pool_of(20);
    let (mut out, mut held) = (Vec::new(), std::collections::VecDeque::new());
    for client in 0..500 {
        pool.acquire(ClientId(client), START, &mut out);
    }
    for turn in 0..count {
        let now = START.after(Duration::from_micros(turn as u64));
        for action in out.drain(..) {
            if let Action::Link { client, server } = action {
                held.push_back((client, server));
            }
        }
        let Some((client, server)) = held.pop_front() else { return };
        pool.release(server, now, &mut out);
        pool.acquire(client, now, &mut out);
    }
}

fn release_all(pool: &mut Pool, out: &mut Vec<Action>, now: Instant) {
    while let Some(action) = out.pop() {
        if let Action::Link { server, .. } = action {
            pool.release(server, now, out);
        }
    }
}

/// A script through the relay, its answers known beforehand.
pub(crate) fn relay(workload: Workload, count: usize) {
    let script = workload.script();
    let rules = Rules { mode: Mode::Transaction, ..Rules::default() };
    let vars = || Vars::new(&Tracked::default());
    let (mut client, mut server) = (ClientSide::new(vars()), ServerSide::new(vars()));
    // Texts as steady traffic has them: seen to leave nothing behind, and so nothing is asked.
    let mut statements = Statements::new(Arc::new(Registry::new(1)), |_| Reading::default());
    let mut backend = Backend::default();
    backend.hear(b"\0\0\0\x08\0\x03\0\0", &mut Vec::new()).expect("a startup packet");
    let (mut flow, mut sent, mut answer) = (Flow::default(), Vec::new(), Vec::new());
    let prologue = script.prologue.iter();
    let mut step = |request: &[u8]| {
        let client = &mut client;
        session::from_client(client, &mut server, &mut statements, &rules, request, &mut flow)
            .expect("scripts are well formed");
        sent.clear();
        flow.to_server.copy_to(request, &mut sent);
        answer.clear();
        backend.hear(&sent, &mut answer).expect("the relay sends what is well formed");
        let heard = Some(&mut *client);
        session::from_server(&mut server, heard, &mut statements, &rules, &answer, &mut flow)
            .expect("the backend keeps to the protocol");
        black_box(server.is_done(client));
    };
    prologue.for_each(|prologue| step(&prologue.request));
    for _ in 0..count {
        for one in &script.steps {
            step(black_box(&one.request));
        }
    }
}
