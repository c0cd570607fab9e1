//! The load: pgbench where there is one, and its like where there is none.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rig::address::Address;
use rig::client::{PASSWORD, USER};
use rig::pgbench::{Outcome, Pgbench};
use tokio_postgres::{Client, Config, NoTls};

/// Who plays pgbench's TPC-B-like transactions.
pub(crate) enum Load {
    Pgbench(PathBuf),
    Own,
}

/// Whom the clients dial.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) database: &'static str,
}

const SCALE: u32 = 10;
const THREADS: usize = 8;

impl Load {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Pgbench(program) => program.display().to_string(),
            Self::Own => "the demo's own load, as there is no pgbench".into(),
        }
    }

    /// Makes pgbench's tables.
    pub(crate) fn initialize(&self, target: &Target) -> anyhow::Result<()> {
        match self {
            Self::Pgbench(program) => pgbench(program, target).initialize(SCALE),
            Self::Own => runtime()?.block_on(make_tables(target)),
        }
    }

    /// Plays transactions with `clients` for `length`. What goes wrong is in the outcome.
    pub(crate) fn play(
        &self,
        target: &Target,
        clients: usize,
        length: Duration,
    ) -> anyhow::Result<Outcome> {
        match self {
            Self::Pgbench(program) => {
                let (clients, threads) = (clients.to_string(), THREADS.to_string());
                let seconds = length.as_secs().to_string();
                pgbench(program, target).run(&[
                    "-n", "-l", "-M", "simple", "-c", &clients, "-j", &threads, "-T", &seconds,
                ])
            }
            Self::Own => runtime()?.block_on(play(target, clients, length)),
        }
    }
}

fn pgbench(program: &std::path::Path, target: &Target) -> Pgbench {
    Pgbench {
        program: program.to_path_buf(),
        address: target.address.clone(),
        user: USER.into(),
        password: PASSWORD.into(),
        database: target.database.into(),
        tls: false,
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")
}

pub(crate) async fn connect(target: &Target) -> Result<Client, tokio_postgres::Error> {
    let mut config = Config::new();
    config.host(target.address.host()).port(target.address.port());
    config.user(USER).password(PASSWORD).dbname(target.database);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn make_tables(target: &Target) -> anyhow::Result<()> {
    let accounts = 100_000 * SCALE;
    let tellers = 10 * SCALE;
    let script = format!(
        "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
         CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88)) WITH (fillfactor = 100);
         CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84)) WITH (fillfactor = 100);
         CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84)) WITH (fillfactor = 100);
         INSERT INTO pgbench_branches SELECT n, 0, NULL FROM generate_series(1, {SCALE}) n;
         INSERT INTO pgbench_tellers SELECT n, (n - 1) / 10 + 1, 0, NULL FROM generate_series(1, {tellers}) n;
         INSERT INTO pgbench_accounts SELECT n, (n - 1) / 100000 + 1, 0, '' FROM generate_series(1, {accounts}) n;
         ANALYZE;"
    );
    connect(target).await?.batch_execute(&script).await.context("making the tables")
}

/// All clients connect before the clock starts, as pgbench has it.
async fn play(target: &Target, clients: usize, length: Duration) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let dialling: Vec<_> = (0..clients)
        .map(|_| {
            let target = target.clone();
            tokio::spawn(async move { connect(&target).await })
        })
        .collect();
    let mut connected = Vec::new();
    for dialled in dialling {
        match dialled.await? {
            Ok(client) => connected.push(client),
            Err(error) => note(&mut outcome.errors, &error),
        }
    }
    if !outcome.errors.is_empty() {
        return Ok(outcome);
    }
    let until = Instant::now() + length;
    let playing: Vec<_> = connected
        .into_iter()
        .zip(1..)
        .map(|(client, number)| tokio::spawn(play_one(client, number, until)))
        .collect();
    let mut latencies = Vec::new();
    for played in playing {
        let (mut one, error) = played.await?;
        latencies.append(&mut one);
        if let Some(error) = error {
            note(&mut outcome.errors, &error);
        }
    }
    latencies.sort_unstable();
    let at = |percent: usize| {
        let latency = latencies.get(latencies.len() * percent / 100);
        latency.map_or(0.0, |latency: &Duration| latency.as_secs_f64() * 1e3)
    };
    outcome.transactions = latencies.len() as u64;
    outcome.tps = latencies.len() as f64 / length.as_secs_f64();
    (outcome.p50_ms, outcome.p95_ms, outcome.p99_ms) = (at(50), at(95), at(99));
    Ok(outcome)
}

async fn play_one(
    client: Client,
    number: u64,
    until: Instant,
) -> (Vec<Duration>, Option<tokio_postgres::Error>) {
    let mut latencies = Vec::new();
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    loop {
        let since = Instant::now();
        if since >= until {
            return (latencies, None);
        }
        for statement in transaction(&mut dice) {
            if let Err(error) = client.simple_query(&statement).await {
                return (latencies, Some(error));
            }
        }
        latencies.push(since.elapsed());
    }
}

/// pgbench's "TPC-B (sort of)": seven round trips.
fn transaction(dice: &mut Dice) -> [String; 7] {
    let aid = 1 + dice.under(100_000 * SCALE);
    let bid = 1 + dice.under(SCALE);
    let tid = 1 + dice.under(10 * SCALE);
    let delta = i64::from(dice.under(10_001)) - 5_000;
    [
        "BEGIN".into(),
        format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}"),
        format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}"),
        format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}"),
        format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid}"),
        format!(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP)"
        ),
        "END".into(),
    ]
}

/// Each client's own sequence (xorshift), so that no two update the same rows in step.
struct Dice(u64);

impl Dice {
    fn under(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % u64::from(bound)) as u32
    }
}

fn note(errors: &mut Vec<String>, error: &tokio_postgres::Error) {
    let text = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    if !errors.contains(&text) {
        errors.push(text);
    }
}
