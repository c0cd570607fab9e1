//! A sample with the canned backend: load and server on one core, the pooler on another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use nix::sys::resource::{UsageWho, getrusage};

use crate::address::{self, Address};
use crate::load::{self, Plan, Stage, Tally};
use crate::noise::{Machine, Noise};
use crate::pooler::{Auth, Kind, Pooler, Running, Setup};
use crate::process;
use crate::quota::Quota;
use crate::sample::Sample;
use crate::script::Workload;
use crate::tidy::Folder;

/// What all poolers of a comparison go through.
#[derive(Clone, Debug)]
pub struct Conditions {
    pub workload: Workload,
    pub clients: usize,
    pub pool: usize,
    pub seconds: f64,
    pub sockets: Sockets,
    pub auth: Auth,
    /// Threads of load, each with a core of its own where there are enough.
    pub loads: usize,
    /// How many transactions each load has under way together, at most.
    pub at_once: usize,
    /// Cores for the pooler.
    pub pooler_cores: usize,
    /// What each of the pooler's worker threads may have of a core, in percent, if not all.
    pub quota: Option<f64>,
}

/// What only some kinds of run have in their ini.
#[derive(Clone, Debug, Default)]
pub struct Special {
    pub more_databases: usize,
    pub lines: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sockets {
    Tcp,
    Unix,
}

/// A pooler, its clients and its servers, all up and logged in.
pub struct Scene {
    pub pooler: Running,
    pub listen: Address,
    pub stage: Arc<Stage>,
    loads: Vec<JoinHandle<anyhow::Result<Tally>>>,
    quota: Option<Quota>,
    _folder: Folder,
}

/// What the names of howdah's worker threads begin with.
const WORKERS: &str = "worker-";

const WARM_UP: Duration = Duration::from_millis(700);
const LOGIN_PATIENCE: Duration = Duration::from_secs(60);

impl Scene {
    /// Starts everything; clients are logged in and silent.
    pub fn set(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<Self> {
        Self::with(pooler, conditions, conditions.clients, &Special::default())
    }

    /// The same with only `dialling` of the clients; others may come by themselves.
    pub fn with(
        pooler: &Pooler,
        conditions: &Conditions,
        dialling: usize,
        special: &Special,
    ) -> anyhow::Result<Self> {
        let folder = Folder::new("howdah-canned-")?;
        process::give_to_servant(folder.path())?;
        let (listen, server) = addresses(conditions.sockets, &folder)?;
        let (load_cores, pooler_cores) = deal_cores(conditions)?;
        let stage = Arc::new(Stage::default());
        let direct = matches!(pooler.kind, Kind::Direct);
        // One that pools needs no more than that; of the others each client may need one.
        let servers = match pooler.kind {
            Kind::Ini { .. } => conditions.pool.max(conditions.clients - dialling),
            _ => conditions.clients,
        };
        let mut loads = Vec::new();
        for index in 0..conditions.loads {
            let share =
                dialling / conditions.loads + usize::from(index < dialling % conditions.loads);
            let plan = Plan {
                clients: share,
                servers,
                script: conditions.workload.script(),
                target: if direct { server.clone() } else { listen.clone() },
                backend: server.clone(),
                at_once: conditions.at_once,
            };
            let listener = address::listen(&server).context("the canned backend cannot listen")?;
            let (stage, cores) = (Arc::clone(&stage), load_cores.clone());
            loads.push(thread::spawn(move || {
                process::pin(&cores[index % cores.len()..][..1])?;
                load::run(plan, &listener, &stage)
            }));
        }
        let setup = Setup {
            listen: listen.clone(),
            server,
            database: "bench",
            clients: conditions.clients,
            pool: conditions.pool,
            auth: conditions.auth,
            more_databases: special.more_databases,
            lines: special.lines.clone(),
            cores: pooler_cores,
        };
        let pooler = pooler.start(&setup)?;
        let mut scene = Self { pooler, listen, stage, loads, quota: None, _folder: folder };
        scene.stage.open.store(true, Ordering::Relaxed);
        scene.await_logins(dialling)?;
        if let (Some(percent), Some(pid)) = (conditions.quota, scene.pooler.pid()) {
            scene.quota = Some(Quota::hold(pid, WORKERS, percent)?);
        }
        Ok(scene)
    }

    /// Ends the load and hands out what it saw.
    pub fn strike(mut self) -> anyhow::Result<Vec<Tally>> {
        self.stage.over.store(true, Ordering::Relaxed);
        drop(self.quota.take());
        self.loads.drain(..).map(join).collect()
    }

    fn await_logins(&mut self, clients: usize) -> anyhow::Result<()> {
        let since = Instant::now();
        while self.stage.ready.load(Ordering::Relaxed) < clients {
            if let Some(index) = self.loads.iter().position(JoinHandle::is_finished) {
                join(self.loads.swap_remove(index))?;
                bail!("the load ended by itself");
            }
            if since.elapsed() > LOGIN_PATIENCE {
                let ready = self.stage.ready.load(Ordering::Relaxed);
                bail!("only {ready} of {clients} clients logged in");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stage.over.store(true, Ordering::Relaxed);
    }
}

/// One fresh process, one measurement.
pub fn sample(pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<Sample> {
    let scene = Scene::set(pooler, conditions)?;
    scene.stage.allowed.store(u64::MAX, Ordering::Relaxed);
    thread::sleep(WARM_UP);
    let from = Instant::now() + Duration::from_millis(5);
    let length = Duration::from_secs_f64(conditions.seconds);
    let _ = scene.stage.window.set((from, from + length));
    thread::sleep(from.saturating_duration_since(Instant::now()));
    let before = Reading::take(&scene)?;
    thread::sleep(length);
    let after = Reading::take(&scene)?;
    let tallies = scene.strike()?;
    Ok(before.until(&after, &tallies, length))
}

/// All clocks at one moment.
pub(crate) struct Reading {
    machine: Machine,
    pooler: Duration,
    rig: Duration,
}

impl Reading {
    pub(crate) fn take(scene: &Scene) -> anyhow::Result<Self> {
        let pooler = scene.pooler.cpu()?;
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let part = |time: nix::sys::time::TimeVal| {
            Duration::new(time.tv_sec().unsigned_abs(), time.tv_usec() as u32 * 1_000)
        };
        let rig = part(usage.user_time()) + part(usage.system_time());
        Ok(Self { machine: Machine::now()?, pooler, rig })
    }

    pub(crate) fn until(&self, after: &Self, tallies: &[Tally], window: Duration) -> Sample {
        let seconds = (after.machine.at - self.machine.at).as_secs_f64();
        // Rates, because the clocks are not read at the very edges of the window.
        let per_second = |from: Duration, to: Duration| (to - from).as_secs_f64() / seconds;
        let pooler = per_second(self.pooler, after.pooler);
        let rig = per_second(self.rig, after.rig);
        let busy = per_second(self.machine.busy, after.machine.busy);
        let noise = Noise {
            steal: per_second(self.machine.steal, after.machine.steal),
            foreign: (busy - pooler - rig).max(0.0),
            slowdown: 0.0,
        };
        Sample::from_tallies(tallies, window, pooler, noise)
    }
}

fn addresses(sockets: Sockets, folder: &Folder) -> anyhow::Result<(Address, Address)> {
    let (listen, server) = (address::free_port()?, address::free_port()?);
    let at = |port| match sockets {
        Sockets::Tcp => Address::Tcp { port },
        Sockets::Unix => Address::Unix { folder: folder.path().into(), port },
    };
    Ok((at(listen), at(server)))
}

/// The load's cores first, the pooler's last; they overlap only where there are too few.
fn deal_cores(conditions: &Conditions) -> anyhow::Result<(Vec<usize>, Vec<usize>)> {
    let cores = process::cores()?;
    let pooler_from = cores.len().saturating_sub(conditions.pooler_cores);
    let load_to = conditions.loads.min(cores.len());
    Ok((cores[..load_to].to_vec(), cores[pooler_from..].to_vec()))
}

fn join(load: JoinHandle<anyhow::Result<Tally>>) -> anyhow::Result<Tally> {
    load.join().map_err(|_| anyhow!("the load panicked"))?
}
