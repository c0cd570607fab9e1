//! The demo: many clients on few servers, beside the same clients without a pooler.
//!
//! It brings its own PostgreSQL, in a temporary folder, and leaves nothing behind.

mod embedded;
mod load;
mod watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use load::{Load, Target};
use rig::address::{self, Address};
use rig::pgbench::Outcome;
use rig::pooler::{Auth, Kind, Pooler, Setup};
use rig::postgres::{self, Postgres};
use rig::tidy::{self, Folder};
use rig::{client, process};
use watch::{Peak, Watch};

const MAX_CONNECTIONS: usize = 100;
const DIRECT_CLIENTS: usize = 80;
const POOLED_CLIENTS: usize = 200;
const POOL: usize = 25;
/// Long enough to be past the start, short enough to be watched.
const LENGTH: Duration = Duration::from_secs(15);

fn main() -> anyhow::Result<()> {
    tidy::on_signals()?;
    process::raise_descriptors()?;
    let since = Instant::now();
    let folder = Folder::new("howdah-demo-")?;
    let howdah = find_howdah()?;

    let bin = match postgres::find() {
        Some(bin) => bin,
        None => embedded::fetch(folder.path())?,
    };
    println!("1. PostgreSQL from {}, max_connections {MAX_CONNECTIONS}", bin.display());
    let server = start_server(&bin)?;
    let direct = Target { address: server.address.clone(), database: postgres::DATABASE };
    let watch = Watch::start(&direct)?;

    let load = postgres::find_client(&bin, "pgbench").map_or(Load::Own, Load::Pgbench);
    println!("2. tables for pgbench, with {}", load.name());
    load.initialize(&direct)?;

    let seconds = LENGTH.as_secs();
    println!("3. {DIRECT_CLIENTS} clients, direct, {seconds} s");
    let one = Act::play("direct", DIRECT_CLIENTS, &load, &direct, &watch)?;

    println!("4. {POOLED_CLIENTS} clients through Howdah on {POOL} servers, {seconds} s");
    let setup = setup(&server)?;
    let command = format!("{} {{ini}}", howdah.display());
    let pooler =
        Pooler { name: "howdah".into(), kind: Kind::Ini { command }, extra: String::new() };
    let running = pooler.start(&setup)?;
    let pooled = Target { address: setup.listen.clone(), database: client::DATABASE };
    let two = Act::play("Howdah", POOLED_CLIENTS, &load, &pooled, &watch)?;
    drop(running);

    println!("5. {POOLED_CLIENTS} clients, direct");
    let three = Act::play("direct", POOLED_CLIENTS, &load, &direct, &watch)?;
    drop((watch, server));

    print_table(&[&one, &two, &three]);
    println!(
        "\n{:.0} s in all; nothing is left running, and nothing behind.",
        since.elapsed().as_secs_f64()
    );
    verdict(&one, &two)
}

fn start_server(bin: &std::path::Path) -> anyhow::Result<Postgres> {
    let connections = format!("max_connections={MAX_CONNECTIONS}");
    Postgres::start(
        bin,
        &[
            &connections,
            // So that the last connections are not refused with another text than the story's.
            "superuser_reserved_connections=0",
            "shared_buffers=256MB",
            // The folder is thrown away; the disk's speed is not the story.
            "fsync=off",
        ],
    )
}

fn setup(server: &Postgres) -> anyhow::Result<Setup> {
    Ok(Setup {
        listen: Address::Tcp { port: address::free_port()? },
        server: server.address.clone(),
        database: postgres::DATABASE,
        clients: POOLED_CLIENTS,
        pool: POOL,
        auth: Auth::Scram,
        more_databases: 0,
        lines: String::new(),
        cores: Vec::new(),
    })
}

/// One run of the story, and what came of it.
struct Act {
    way: &'static str,
    clients: usize,
    outcome: Outcome,
    peak: Peak,
}

impl Act {
    fn play(
        way: &'static str,
        clients: usize,
        load: &Load,
        target: &Target,
        watch: &Watch,
    ) -> anyhow::Result<Self> {
        // The connections of what came before have a moment to go.
        std::thread::sleep(Duration::from_millis(300));
        watch.take();
        let outcome = load.play(target, clients, LENGTH)?;
        let peak = watch.take();
        match outcome.errors.first() {
            None => println!("   {:.0} transactions per second", outcome.tps),
            Some(error) => println!("   failed: {error}"),
        }
        Ok(Self { way, clients, outcome, peak })
    }
}

fn print_table(acts: &[&Act]) {
    println!(
        "\n{:<8}{:>8}{:>10}{:>9}{:>9}{:>9}{:>13}{:>12}   errors",
        "", "clients", "tx/s", "p50 ms", "p95 ms", "p99 ms", "connections", "active peak"
    );
    for Act { way, clients, outcome, peak } in acts.iter().copied() {
        let Outcome { tps, p50_ms, p95_ms, p99_ms, errors, .. } = outcome;
        let of_all = format!("{}/{MAX_CONNECTIONS}", peak.connections);
        let said = errors.first().map_or("none", String::as_str);
        println!(
            "{way:<8}{clients:>8}{tps:>10.0}{p50_ms:>9.1}{p95_ms:>9.1}{p99_ms:>9.1}{of_all:>13}{:>12}   {said}",
            peak.active
        );
    }
}

/// The demo fails when what it is to show did not happen.
fn verdict(direct: &Act, pooled: &Act) -> anyhow::Result<()> {
    if let Some(error) = direct.outcome.errors.first() {
        bail!("the direct run failed: {error}");
    }
    if let Some(error) = pooled.outcome.errors.first() {
        bail!("the pooled run failed: {error}");
    }
    println!(
        "Through Howdah: {:.2} × the throughput, with {} server connections in place of {}.",
        pooled.outcome.tps / direct.outcome.tps,
        pooled.peak.connections,
        direct.peak.connections,
    );
    Ok(())
}

/// Named on the command line, or built beside us.
fn find_howdah() -> anyhow::Result<PathBuf> {
    let told = std::env::args_os().nth(1).map(PathBuf::from);
    let beside = std::env::current_exe()?.with_file_name("howdah");
    let path = told.unwrap_or(beside);
    if !path.is_file() {
        bail!("{} is missing: build it first, or name it", path.display());
    }
    std::path::absolute(&path).context("where is it")
}
