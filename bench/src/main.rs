//! `bench`: what a pooler costs, beside its peers, beside nothing, and beside the floor.

mod options;

use anyhow::{Context as _, bail};
use options::{OPTIONS, Options};
use rig::address::Address;
use rig::canned::{self, Conditions, Sockets};
use rig::memory::{self, Weight};
use rig::pooler::{Auth, Kind, Pooler};
use rig::real::{self, Bed, Script};
use rig::script::Workload;
use rig::stories::{Promise, Stage};
use rig::visits::{self, Manner};
use rig::{bulk, compare, floor, process, soak, syscalls, tidy, upkeep};

/// Something that can be measured.
struct Run {
    name: &'static str,
    says: &'static str,
    run: fn(&Options) -> anyhow::Result<()>,
}

#[rustfmt::skip]
const RUNS: [Run; 13] = [
    Run { name: "canned", says: "load and server in one process on one core, the pooler on another", run: run_default },
    Run { name: "real", says: "pgbench against a PostgreSQL of its own", run: run_real },
    Run { name: "visits", says: "dial, SCRAM, SELECT 1, leave: plain, with TLS 1.3, with a session resumed (20 clients)", run: run_visits },
    Run { name: "bulk", says: "a gigabyte of COPY TO STDOUT from a PostgreSQL of its own to psql", run: run_bulk },
    Run { name: "memory", says: "resident bytes per idle, authenticated client (5,000 unless --clients)", run: run_memory },
    Run { name: "upkeep", says: "CPU of an idle pooler with 50,000 databases, 1,000 of them with a client and a server", run: run_upkeep },
    Run { name: "syscalls", says: "system calls per transaction, canned", run: run_syscalls },
    Run { name: "fairness", says: "500 clients on 20 servers, canned", run: run_fairness },
    Run { name: "workers", says: "one worker against two, canned: on all cores, then with a part of a core for each worker", run: run_workers },
    Run { name: "soak", says: "500 clients who check their answers, with churn, cancels, RELOADs, ended servers, slow readers", run: run_soak },
    Run { name: "stories", says: "published uses played again: sysbench, a crowd, temporary tables, the demo stack, reconnecting", run: run_stories },
    Run { name: "all", says: "most figures of docs/benchmarks.md, in order", run: run_all },
    Run { name: "help", says: "this", run: help },
];

fn usage() -> String {
    let runs: String =
        RUNS.iter().map(|run| format!("  {:<10} {}\n", run.name, run.says)).collect();
    format!(
        "usage: bench RUN [OPTION]...\n\nruns\n{runs}  floor LISTEN SERVER   only forward (ports, or \
         /folder:port)\n\n{OPTIONS}"
    )
}

fn help(_: &Options) -> anyhow::Result<()> {
    print!("{}", usage());
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse()?;
    let descriptors = process::raise_descriptors()?;
    if options.run == "floor" {
        let place = |index: usize| {
            options.rest.get(index).and_then(|text| Address::parse(text)).with_context(usage)
        };
        return Ok(floor::run(&place(0)?, &place(1)?, descriptors)?);
    }
    tidy::on_signals()?;
    let run = RUNS.iter().find(|run| run.name == options.run);
    (run.with_context(usage)?.run)(&options)
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
    for workload in [Workload::Simple, Workload::Extended] {
        run_syscalls(&Options { workloads: vec![workload], ..options.clone() })?;
    }
    run_workers(options)?;
    run_memory(options)?;
    run_memory(&Options { tls: true, ..options.clone() })?;
    run_upkeep(options)?;
    run_visits(options)?;
    for tls in [false, true] {
        run_bulk(&Options { tls, ..options.clone() })?;
    }
    for pool in [50, 20] {
        run_real(&Options { pool, ..options.clone() })?;
    }
    let tpcb = Options { script: Script::TpcB, pool: 25, ..options.clone() };
    run_real(&tpcb.or_clients(200))?;
    let crowd = Options { pool: 50, ..options.clone() };
    run_real(&crowd.or_clients(500))
}

fn run_default(options: &Options) -> anyhow::Result<()> {
    run_canned(options, &Workload::DEFAULT)
}

fn run_fairness(options: &Options) -> anyhow::Result<()> {
    run_canned(&options.or_clients(500), &[Workload::Simple])
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

fn run_visits(options: &Options) -> anyhow::Result<()> {
    let three = &Manner::ALL[..3];
    let manners = if options.manners.is_empty() { three } else { &options.manners };
    let conditions = canned_conditions(options, Workload::Simple, 20);
    // Whoever is not asked for a password only shows what dialling costs.
    let auth = if options.auth == Auth::Trust { Auth::Scram } else { options.auth };
    let conditions = Conditions { auth, ..conditions };
    for (name, manner) in manners {
        let title = format!(
            "visits, {name}: {} clients dial, log in ({}), ask once and leave",
            conditions.clients,
            auth.name()
        );
        eprintln!("{title}");
        let rows = compare::run(&poolers(options), options.rounds(), |pooler| {
            visits::sample(pooler, &conditions, *manner)
        });
        compare::print(&title, &rows, &options.baseline);
    }
    Ok(())
}

fn run_bulk(options: &Options) -> anyhow::Result<()> {
    let bed = bulk::Bed::make()?;
    let how = if options.tls { ", TLS" } else { "" };
    let title = format!("COPY TO STDOUT{how}, per gigabyte (\"tx\")");
    eprintln!("{title}");
    let rows =
        compare::run(&poolers(options), options.rounds(), |pooler| bed.sample(pooler, options.tls));
    compare::print(&title, &rows, &options.baseline);
    Ok(())
}

fn run_upkeep(options: &Options) -> anyhow::Result<()> {
    let (databases, used) = (50_000, options.clients.unwrap_or(1_000));
    let conditions = canned_conditions(options, Workload::Simple, used);
    println!("\nidle, with {databases} databases of which {used} are in use");
    println!("{:<14}{:>18}{:>14}", "", "CPU ms per second", "MB");
    for pooler in poolers(options) {
        match upkeep::weigh(&pooler, &conditions, databases, used) {
            _ if !matches!(pooler.kind, Kind::Ini { .. }) => {}
            Ok(upkeep) => {
                let megabytes = upkeep.resident_bytes as f64 / 1e6;
                println!("{:<14}{:>18.2}{megabytes:>14.1}", pooler.name, upkeep.ms_per_second);
            }
            Err(error) => println!("{:<14}  {error:#}", pooler.name),
        }
    }
    Ok(())
}

/// A table of calls: a line for each that is made once in a hundred transactions, or more often.
fn run_syscalls(options: &Options) -> anyhow::Result<()> {
    let asked: &[Workload] =
        if options.workloads.is_empty() { &Workload::DEFAULT } else { &options.workloads };
    for workload in asked {
        let conditions = canned_conditions(options, *workload, 50);
        let Conditions { clients, pool, .. } = conditions;
        let name = workload.name();
        println!("\nsystem calls per transaction, {name}, {clients} clients, pool {pool}");
        for pooler in poolers(options) {
            match syscalls::count(&pooler, &conditions, options.counter) {
                Ok(None) => {}
                Ok(Some(calls)) => {
                    let all: f64 = calls.values().sum();
                    let often = calls.iter().filter(|(_, count)| **count >= 0.01);
                    let list: Vec<_> =
                        often.map(|(name, count)| format!("{name} {count:.2}")).collect();
                    println!("{:<14}{all:>8.2}   {}", pooler.name, list.join(", "));
                }
                Err(error) => println!("{:<14}  {error:#}", pooler.name),
            }
        }
    }
    Ok(())
}

fn run_soak(options: &Options) -> anyhow::Result<()> {
    let conditions = soak::Conditions {
        clients: options.clients.unwrap_or(500),
        pool: options.pool,
        minutes: options.minutes,
        seed: 1,
    };
    for pooler in poolers(options).iter().filter(|pooler| matches!(pooler.kind, Kind::Ini { .. })) {
        let soak::Conditions { clients, minutes, .. } = conditions;
        eprintln!("soak: {}, {clients} clients, {minutes} minutes", pooler.name);
        let seen = soak::run(pooler, &conditions)?;
        println!("\nsoak of {}, {clients} clients, {minutes} minutes", pooler.name);
        println!(
            "  {} right answers, {} logins, {} queries cancelled, {} servers ended, {} connections \
             lost with them, {} RELOADs",
            seen.answers, seen.logins, seen.cancelled, seen.servers_ended, seen.lost, seen.reloads
        );
        let of = |figure: Option<&u64>| figure.map_or(0, |bytes| bytes / 1024);
        println!(
            "  resident KB after warm-up: least {}, most {}, growth {:.2} %",
            of(seen.resident.iter().min()),
            of(seen.resident.iter().max()),
            seen.growth() * 100.0
        );
        println!("  wrong: {}, leaked: {}", seen.wrong.len(), seen.leaked.len());
        seen.wrong.iter().chain(&seen.leaked).for_each(|what| println!("    {what}"));
        if !seen.wrong.is_empty() || !seen.leaked.is_empty() {
            bail!("the soak of {} found something", pooler.name);
        }
    }
    Ok(())
}

/// Those named behind `stories`, or all.
fn run_stories(options: &Options) -> anyhow::Result<()> {
    type Play = fn(&Stage) -> anyhow::Result<Vec<Promise>>;
    let stories: [(&str, Play); 5] = [
        ("sysbench", Stage::sysbench),
        ("crowd", Stage::crowd),
        ("temporary", Stage::temporary),
        ("stack", Stage::stack),
        ("reconnect", Stage::reconnect),
    ];
    let stage = Stage { poolers: poolers(options), seconds: options.seconds };
    let mut promises = Vec::new();
    for (name, play) in stories {
        if options.rest.is_empty() || options.rest.iter().any(|asked| asked == name) {
            promises.extend(play(&stage).with_context(|| format!("story {name}"))?);
        }
    }
    println!();
    for Promise { kept, says } in &promises {
        println!("{} {says}", if *kept { "kept    " } else { "NOT KEPT" });
    }
    Ok(())
}

fn run_memory(options: &Options) -> anyhow::Result<()> {
    if options.tls {
        return run_memory_sealed(options);
    }
    let conditions = canned_conditions(options, Workload::Simple, 5_000);
    println!("\nresident bytes per idle client, {} clients", conditions.clients);
    println!("{:<14}{:>14}{:>14}{:>16}", "", "logged in", "served once", "MB with 20");
    for pooler in poolers(options).iter().filter(|pooler| pooler.kind != Kind::Direct) {
        match memory::weigh(pooler, &conditions) {
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

fn run_memory_sealed(options: &Options) -> anyhow::Result<()> {
    let conditions = canned_conditions(options, Workload::Simple, 5_000);
    println!("\nresident bytes per idle client with TLS, {} clients", conditions.clients);
    for pooler in poolers(options).iter().filter(|pooler| matches!(pooler.kind, Kind::Ini { .. })) {
        match memory::weigh_sealed(pooler, &conditions) {
            Ok(bytes) => println!("{:<14}{bytes:>14.0}", pooler.name),
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
