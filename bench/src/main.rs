//! `bench`: what a pooler costs, beside its peers, beside nothing, and beside the floor.

mod options;

use anyhow::{Context as _, bail};
use options::{Options, USAGE};
use rig::address::Address;
use rig::canned::{self, Conditions};
use rig::compare::{self, Rounds};
use rig::pooler::{Kind, Pooler};
use rig::script::Workload;
use rig::{floor, process, tidy};

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
        "canned" => run_canned(&options, 50, options.pool),
        "fairness" => {
            let simple = Options { workloads: vec![Workload::Simple], ..options.clone() };
            run_canned(&simple, 500, 20)
        }
        "help" => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}

/// One table per workload.
fn run_canned(options: &Options, clients: usize, pool: usize) -> anyhow::Result<()> {
    let clients = options.clients.unwrap_or(clients);
    let poolers = poolers(options);
    for workload in &options.workloads {
        let conditions = Conditions {
            workload: *workload,
            clients,
            pool,
            seconds: options.seconds,
            sockets: options.sockets,
            auth: options.auth,
            loads: options.loads,
            pooler_cores: options.workers.iter().copied().max().unwrap_or(1),
        };
        let title = format!(
            "canned backend, {}, {clients} clients, pool {pool}, {:?}, {} cores",
            workload.name(),
            options.sockets,
            process::cores()?.len(),
        );
        eprintln!("{title}");
        let rounds = Rounds { count: options.rounds, retakes: options.retakes };
        let rows = compare::run(&poolers, rounds, |pooler| canned::sample(pooler, &conditions));
        compare::print(&title, &rows, &options.baseline);
    }
    Ok(())
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
