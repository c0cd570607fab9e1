//! A soak: many clients who check their own answers, and much that goes wrong on purpose.
//!
//! Each client is a thread with a visitor. Beside them somebody reloads the configuration, ends
//! servers, and weighs the pooler.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::address::{self, Address};
use crate::client;
use crate::frames::put;
use crate::pooler::{Auth, Pooler, Running, Setup};
use crate::postgres::{self, DATABASE, Postgres};
use crate::visitor::{Errand, Reply, Visitor};

#[derive(Clone, Debug)]
pub struct Conditions {
    pub clients: usize,
    pub pool: usize,
    pub minutes: f64,
    pub seed: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub answers: u64,
    pub logins: u64,
    pub cancelled: u64,
    /// Connections that went down with a server that was ended.
    pub lost: u64,
    pub servers_ended: u64,
    pub reloads: u64,
    /// What was wrong, in words; the first few.
    pub wrong: Vec<String>,
    /// Resident bytes every few seconds, from the end of the warm-up on.
    pub resident: Vec<u64>,
    /// What SHOW POOLS and SHOW SERVERS held once everybody had left, and should not.
    pub leaked: Vec<String>,
}

impl Seen {
    /// By how much the last third of the readings is above the first, as a part of the first.
    #[must_use]
    pub fn growth(&self) -> f64 {
        let third = self.resident.len() / 3;
        if third == 0 {
            return f64::NAN;
        }
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64;
        let (first, last) =
            (&self.resident[..third], &self.resident[self.resident.len() - third..]);
        mean(last) / mean(first) - 1.0
    }
}

/// What all threads see of each other.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    answers: AtomicU64,
    logins: AtomicU64,
    cancelled: AtomicU64,
    lost: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

const WRONG_MAX: usize = 20;
/// Between two readings of the pooler's memory.
const READING: Duration = Duration::from_secs(5);
/// Between two RELOADs, and between two servers ended.
const RELOAD: Duration = Duration::from_secs(3);
const ENDING: Duration = Duration::from_secs(2);
/// The part of the time that counts as warm-up.
const WARM_UP: f64 = 0.2;
const CANCELED: &str = "57014";

/// Plays it and says what was seen.
pub fn run(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<Seen> {
    let bin = postgres::find().with_context(|| {
        format!("no PostgreSQL server found; {} names its folder", postgres::BIN_VARIABLE)
    })?;
    let server = Postgres::start(&bin, &["max_connections=200", "fsync=off"])?;
    let setup = Setup {
        listen: Address::Tcp { port: address::free_port()? },
        server: server.address.clone(),
        database: DATABASE,
        clients: conditions.clients + 100,
        pool: conditions.pool,
        auth: Auth::Trust,
        more_databases: 0,
        lines: String::new(),
        cores: Vec::new(),
    };
    let running = pooler.start(&setup)?;
    let shared = Shared::default();
    let mut seen = Seen::default();
    thread::scope(|scope| {
        for index in 0..conditions.clients {
            let (shared, port) = (&shared, setup.listen.port());
            let dice =
                Dice(conditions.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let build = thread::Builder::new().stack_size(256 * 1024);
            if build.spawn_scoped(scope, move || live(index, port, dice, shared)).is_err() {
                shared.accuse("no thread for a client".into());
            }
        }
        let disturbed = disturb(&setup, conditions, &running, &shared, &mut seen);
        shared.over.store(true, Ordering::Relaxed);
        disturbed
    })?;
    seen.leaked = leaked(setup.listen.port(), conditions.pool)?;
    seen.answers = shared.answers.load(Ordering::Relaxed);
    seen.logins = shared.logins.load(Ordering::Relaxed);
    seen.cancelled = shared.cancelled.load(Ordering::Relaxed);
    seen.lost = shared.lost.load(Ordering::Relaxed);
    seen.wrong = shared.wrong.into_inner().unwrap_or_default();
    Ok(seen)
}

impl Shared {
    fn accuse(&self, what: String) {
        eprintln!("  wrong: {what}");
        if let Ok(mut wrong) = self.wrong.lock()
            && wrong.len() < WRONG_MAX
        {
            wrong.push(what);
        }
    }
}

/// RELOADs, ends servers, and weighs the pooler, until the time is over.
fn disturb(
    setup: &Setup,
    conditions: &Conditions,
    running: &Running,
    shared: &Shared,
    seen: &mut Seen,
) -> anyhow::Result<()> {
    let from = Instant::now();
    let length = Duration::from_secs_f64(conditions.minutes * 60.0);
    let mut console = Visitor::call(&Errand::to(setup.listen.port(), "pgbouncer"))?;
    let mut keeper = Visitor::call(&Errand::to(setup.server.port(), DATABASE))?;
    let mut next = [from + READING, from + RELOAD, from + ENDING];
    while from.elapsed() < length {
        thread::sleep(Duration::from_millis(100));
        let now = Instant::now();
        if now >= next[0] {
            next[0] = now + READING;
            let resident = running.resident_bytes()?;
            if from.elapsed() >= length.mul_f64(WARM_UP) {
                seen.resident.push(resident);
            }
            let answers = shared.answers.load(Ordering::Relaxed);
            let seconds = from.elapsed().as_secs();
            eprintln!("  {seconds:>5} s {:>8} KB {answers:>10} answers", resident / 1024);
        }
        if now >= next[1] {
            next[1] = now + RELOAD;
            seen.reloads += 1;
            if let Some(code) = console.ask("RELOAD")?.code {
                shared.accuse(format!("RELOAD was refused: {code}"));
            }
        }
        if now >= next[2] {
            next[2] = now + ENDING;
            let reply = keeper.ask(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() \
                 ORDER BY random() LIMIT 1",
            )?;
            seen.servers_ended += reply.values.len() as u64;
        }
    }
    Ok(())
}

/// Once everybody has left, nothing of them may be there.
fn leaked(port: u16, pool: usize) -> anyhow::Result<Vec<String>> {
    let since = Instant::now();
    let mut console = Visitor::call(&Errand::to(port, "pgbouncer"))?;
    loop {
        let mut leaked = Vec::new();
        let pools = console.ask("SHOW POOLS")?;
        for row in pools.rows() {
            let field = |name: &str| {
                let at = pools.columns.iter().position(|column| column == name);
                at.and_then(|at| row.get(at)).map_or("", String::as_str)
            };
            let busy = ["cl_active", "cl_waiting", "sv_active"].map(field);
            if field("database") == client::DATABASE && busy.iter().any(|count| *count != "0") {
                leaked.push(format!("SHOW POOLS says {row:?}"));
            }
        }
        let open = console.ask("SHOW SERVERS")?.rows().count();
        if open > pool {
            leaked.push(format!("{open} servers in a pool of {pool}"));
        }
        // Whoever has just hung up may not have been noticed yet.
        if leaked.is_empty() || since.elapsed() > Duration::from_secs(20) {
            return Ok(leaked);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// One client's life: visit after visit, each with some questions.
fn live(index: usize, port: u16, mut dice: Dice, shared: &Shared) {
    let errand = Errand::to(port, client::DATABASE);
    let mut count = 0_u64;
    while !shared.over.load(Ordering::Relaxed) {
        let mut visitor = match Visitor::call(&errand) {
            Ok(visitor) => visitor,
            Err(error) => {
                // A login may be cut short by the end of the server that it waits for.
                shared.lost.fetch_add(1, Ordering::Relaxed);
                if !format!("{error:#}").contains("server") {
                    shared.accuse(format!("client {index} cannot log in: {error:#}"));
                }
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        shared.logins.fetch_add(1, Ordering::Relaxed);
        for _ in 0..dice.below(200) + 1 {
            if shared.over.load(Ordering::Relaxed) {
                break;
            }
            count += 1;
            let mark = format!("{index}-{count}");
            match ask(&mut visitor, &errand, &mark, &mut dice) {
                Ok(Outcome::Right) => drop(shared.answers.fetch_add(1, Ordering::Relaxed)),
                Ok(Outcome::Cancelled) => drop(shared.cancelled.fetch_add(1, Ordering::Relaxed)),
                Ok(Outcome::Wrong(what)) => {
                    shared.accuse(format!("client {index}: {what}"));
                    break;
                }
                // Its server was ended.
                Ok(Outcome::Lost) | Err(_) => {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
            thread::sleep(Duration::from_millis(dice.below(150)));
        }
        // Some hang up without a word, some in the middle of a question.
        match dice.below(4) {
            0 => {}
            1 => drop(visitor.say(&query("SELECT repeat('x', 100000)"))),
            _ => drop(visitor.leave()),
        }
    }
}

enum Outcome {
    Right,
    Cancelled,
    /// The server went.
    Lost,
    Wrong(String),
}

/// One question, and whether its answer is the right one.
fn ask(visitor: &mut Visitor, errand: &Errand, mark: &str, dice: &mut Dice) -> io::Result<Outcome> {
    match dice.below(40) {
        0 => long(visitor, dice),
        1 => cancelled(visitor, errand),
        2..4 => transaction(visitor, mark),
        4..6 => setting(visitor, mark),
        6..16 => prepared(visitor, mark),
        16 => failing(visitor),
        _ => {
            let reply = visitor.ask(&format!("SELECT '{mark}'"))?;
            Ok(judge(&reply, mark))
        }
    }
}

/// A long answer, read slowly.
fn long(visitor: &mut Visitor, dice: &mut Dice) -> io::Result<Outcome> {
    let rows = 500 + dice.below(2_000);
    visitor.say(&query(&format!("SELECT repeat('x', 1000) FROM generate_series(1, {rows})")))?;
    let nap = Duration::from_micros(dice.below(3_000));
    let reply = visitor.hear(|_| thread::sleep(nap))?;
    if is_lost(&reply) {
        return Ok(Outcome::Lost);
    }
    let whole =
        reply.values.iter().all(|value| value.len() == 1_000 && value.iter().all(|b| *b == b'x'));
    if whole && reply.values.len() as u64 == rows {
        Ok(Outcome::Right)
    } else {
        Ok(Outcome::Wrong(format!("{} rows of {rows}, {:?}", reply.values.len(), reply.code)))
    }
}

/// A question that takes too long, and is called off.
fn cancelled(visitor: &mut Visitor, errand: &Errand) -> io::Result<Outcome> {
    visitor.say(&query("SELECT pg_sleep(20)"))?;
    thread::sleep(Duration::from_millis(20));
    Visitor::cancel(errand, visitor.key())?;
    let reply = visitor.hear(|_| ())?;
    match reply.code.as_deref() {
        Some(CANCELED) => Ok(Outcome::Cancelled),
        _ if is_lost(&reply) => Ok(Outcome::Lost),
        // A cancel that comes before the question is at a server has nothing to cancel.
        None => Ok(Outcome::Right),
        Some(code) => Ok(Outcome::Wrong(format!("{code} instead of a cancelled query"))),
    }
}

fn transaction(visitor: &mut Visitor, mark: &str) -> io::Result<Outcome> {
    let texts = [
        "BEGIN".to_owned(),
        format!("SELECT set_config('howdah.mark', '{mark}', true)"),
        "SELECT current_setting('howdah.mark')".to_owned(),
        "COMMIT".to_owned(),
    ];
    let mut replies = Vec::new();
    for text in &texts {
        let reply = visitor.ask(text)?;
        if is_lost(&reply) {
            return Ok(Outcome::Lost);
        }
        replies.push(reply);
    }
    Ok(judge(&replies[2], mark))
}

/// What a client sets is the client's, in transaction mode too.
fn setting(visitor: &mut Visitor, mark: &str) -> io::Result<Outcome> {
    let set = visitor.ask(&format!("SET application_name = '{mark}'"))?;
    if is_lost(&set) {
        return Ok(Outcome::Lost);
    }
    let reply = visitor.ask("SHOW application_name")?;
    Ok(judge(&reply, mark))
}

fn prepared(visitor: &mut Visitor, mark: &str) -> io::Result<Outcome> {
    let mut out = Vec::new();
    let name = "s";
    put(&mut out, b'C', format!("S{name}\0").as_bytes());
    put(&mut out, b'P', format!("{name}\0SELECT $1::text\0\0\0").as_bytes());
    let mut bind = format!("\0{name}\0").into_bytes();
    bind.extend_from_slice(&[0, 0, 0, 1]);
    bind.extend_from_slice(&u32::try_from(mark.len()).unwrap_or(0).to_be_bytes());
    bind.extend_from_slice(mark.as_bytes());
    bind.extend_from_slice(&[0, 0]);
    put(&mut out, b'B', &bind);
    put(&mut out, b'E', b"\0\0\0\0\0");
    put(&mut out, b'S', b"");
    visitor.say(&out)?;
    let reply = visitor.hear(|_| ())?;
    Ok(judge(&reply, mark))
}

fn failing(visitor: &mut Visitor) -> io::Result<Outcome> {
    let reply = visitor.ask("SELECT 1/0")?;
    match reply.code.as_deref() {
        Some("22012") => Ok(Outcome::Right),
        _ if is_lost(&reply) => Ok(Outcome::Lost),
        code => Ok(Outcome::Wrong(format!("{code:?} instead of a division by zero"))),
    }
}

fn judge(reply: &Reply, mark: &str) -> Outcome {
    if is_lost(reply) {
        Outcome::Lost
    } else if reply.code.is_none() && reply.values == [mark.as_bytes()] {
        Outcome::Right
    } else {
        let got: Vec<_> = reply.values.iter().map(|value| String::from_utf8_lossy(value)).collect();
        Outcome::Wrong(format!("asked for {mark:?} and got {got:?}, {:?}", reply.code))
    }
}

/// Class 57P and 08: the server was ended, or the pooler says so.
fn is_lost(reply: &Reply) -> bool {
    reply.code.as_ref().is_some_and(|code| code.starts_with("57P") || code.starts_with("08"))
}

fn query(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, b'Q', format!("{text}\0").as_bytes());
    out
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}
