//! `bench`: what a pooler costs, beside its peers, beside nothing, and beside the floor.

mod options;

use anyhow::{Context as _, bail};
use options::{Options, USAGE};
use rig::address::Address;
use rig::canned::{self, Conditions, Sockets};
use rig::memory::{self, Weight};
use rig::pooler::{Auth, Kind, Pooler};
use rig::real::{self, Bed, Script};
use rig::script::Workload;
use rig::{compare, floor, process, tidy};

fn main() -> anyhow::Result<()> {
    let options = Options::parse()?;
    let descriptors = process::raise_descriptors()?;
    if options.run == "floor" {
        let place = |index: usize| {
            options.rest.get(index).and_then(|text| Address::parse(text)).context(USAGE)
        };
        return Ok(floor::run(&place(0)?, &place(1)?, descriptors)?);
    }
    tidy::on_signals()?;
    match options.run.as_str() {
        "canned" => run_canned(&options, &Workload::DEFAULT),
        "real" => run_real(&options),
        "memory" => run_memory(&options),
        "fairness" => run_canned(&options.or_clients(500), &[Workload::Simple]),
        "workers" => run_workers(&options),
        "all" => run_all(&options),
        "help" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}

/// What docs/benchmarks.md shows, in its order.
fn run_all(options: &Options) -> anyhow::Result<()> {
    let every = Workload::ALL.map(|(_, workload)| workload);
    run_canned(options, &every)?;
    run_canned(&options.or_clients(500), &[Workload::Simple])?;
    let unix = Options { sockets: Sockets::Unix, ..options.clone() };
    run_canned(&unix, &Workload::DEFAULT)?;
    let alone = Options { clients: Some(1), ..options.clone() };
    run_canned(&alone, &[Workload::Simple])?;
    run_workers(options)?;
    run_memory(options)?;
    for pool in [50, 20] {
        run_real(&Options { pool, ..options.clone() })?;
    }
    let tpcb = Options { script: Script::TpcB, pool: 25, ..options.clone() };
    run_real(&tpcb.or_clients(200))?;
    let connect = Options { script: Script::Connect, auth: Auth::Scram, ..options.clone() };
    run_real(&connect.or_clients(20))
}

/// One table per workload.
fn run_canned(options: &Options, workloads: &[Workload]) -> anyhow::Result<()> {
    let asked = if options.workloads.is_empty() { workloads } else { &options.workloads };
    for workload in asked {
        let conditions = canned_conditions(options, *workload, 50);
        let title = format!(
            "canned backend, {}, {} clients, pool {}, {:?}, {} cores{}",
            workload.name(),
            conditions.clients,
            conditions.pool,
            options.sockets,
            process::cores()?.len(),
            options.quota.map_or(String::new(), |part| format!(", {part} % of one per worker")),
        );
        eprintln!("{title}");
        let rows = compare::run(&poolers(options), options.rounds(), |pooler| {
            canned::sample(pooler, &conditions)
        });
        compare::print(&title, &rows, &options.baseline);
    }
    Ok(())
}

/// The same pooler with one worker and with two: what sharing costs per transaction, and, with the workers held
/// to a part of a core each, what a second one brings where the load does not take its core.
fn run_workers(options: &Options) -> anyhow::Result<()> {
    let workers = if options.workers.len() > 1 { options.workers.clone() } else { vec![1, 2] };
    let baseline = format!("howdah ×{}", workers[0]);
    let only = vec!["howdah".to_owned()];
    let free = Options { workers, baseline, only, ..options.clone() };
    if options.quota.is_none() {
        run_canned(&free, &[Workload::Simple])?;
    }
    let quota = options.quota.or(Some(20.0));
    run_canned(&Options { quota, ..free }, &[Workload::Simple])
}

fn run_memory(options: &Options) -> anyhow::Result<()> {
    let conditions = canned_conditions(options, Workload::Simple, 5_000);
    println!("\nresident bytes per idle client, {} clients", conditions.clients);
    println!("{:<14}{:>14}{:>14}{:>16}", "", "logged in", "served once", "MB with 20");
    for pooler in poolers(options) {
        match memory::weigh(&pooler, &conditions) {
            _ if matches!(pooler.kind, Kind::Direct) => {}
            Ok(weight) => {
                let megabytes = weight.empty_bytes as f64 / 1e6;
                let Weight { logged_in, served, .. } = weight;
                println!("{:<14}{logged_in:>14.0}{served:>14.0}{megabytes:>16.1}", pooler.name);
            }
            Err(error) => println!("{:<14}  {error:#}", pooler.name),
        }
    }
    Ok(())
}

fn run_real(options: &Options) -> anyhow::Result<()> {
    eprintln!("making a PostgreSQL to measure with");
    let bed = Bed::make(10)?;
    let protocols: &[&'static str] = match options.script {
        Script::Select => &["simple", "extended", "prepared"],
        Script::TpcB | Script::Connect => &["simple"],
    };
    for protocol in protocols {
        let conditions = real::Conditions {
            script: options.script,
            protocol,
            clients: options.clients.unwrap_or(50),
            pool: options.pool,
            seconds: options.seconds,
            auth: options.auth,
        };
        let real::Conditions { script, clients, pool, auth, .. } = &conditions;
        let auth = auth.name();
        let title =
            format!("PostgreSQL, {script:?} {protocol}, {clients} clients, pool {pool}, {auth}");
        eprintln!("{title}");
        let rows = compare::run(&poolers(options), options.rounds(), |pooler| {
            bed.sample(pooler, &conditions)
        });
        compare::print(&title, &rows, &options.baseline);
    }
    Ok(())
}

fn canned_conditions(options: &Options, workload: Workload, clients: usize) -> Conditions {
    Conditions {
        workload,
        clients: options.clients.unwrap_or(clients),
        pool: options.pool,
        seconds: options.seconds,
        sockets: options.sockets,
        auth: options.auth,
        loads: options.loads,
        at_once: usize::MAX,
        pooler_cores: options.workers.iter().copied().max().unwrap_or(1),
        quota: options.quota,
    }
}

/// The rows: built in, and from the command line.
fn poolers(options: &Options) -> Vec<Pooler> {
    let plain = |name: &str, kind| Pooler { name: name.into(), kind, extra: String::new() };
    let mut poolers = vec![plain("direct", Kind::Direct), plain("floor", Kind::Floor)];
    if let Some(path) = process::find_program("pgbouncer") {
        let command = format!("{} {{ini}}", path.display());
        poolers.push(plain("pgbouncer", Kind::Ini { command }));
    }
    if let Some(path) = options.howdah.clone().or_else(find_howdah) {
        let path = std::path::absolute(&path).unwrap_or(path);
        let command = format!("{} {{ini}}", path.display());
        for workers in &options.workers {
            let name = match options.workers.len() {
                1 => "howdah".to_owned(),
                _ => format!("howdah ×{workers}"),
            };
            let driver = options.io_driver.as_ref();
            let driver = driver.map_or_else(String::new, |name| format!("io_driver = {name}\n"));
            let extra = format!("workers = {workers}\n{driver}");
            poolers.push(Pooler { name, kind: Kind::Ini { command: command.clone() }, extra });
        }
    }
    poolers.extend(options.more.iter().cloned());
    let asked = |pooler: &Pooler| {
        let begins =
            |only: &String| pooler.name == *only || pooler.name.starts_with(&format!("{only} ×"));
        options.only.is_empty() || options.only.iter().any(begins)
    };
    poolers.retain(asked);
    poolers
}

/// Built beside us, or installed.
fn find_howdah() -> Option<std::path::PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("howdah");
    if beside.is_file() { Some(beside) } else { process::find_program("howdah") }
}
