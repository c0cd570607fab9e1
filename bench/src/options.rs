//! The command line of `bench`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use lexopt::prelude::*;
use rig::canned::Sockets;
use rig::compare::Rounds;
use rig::pooler::{Auth, Kind, Pooler};
use rig::real::Script;
use rig::script::Workload;
use rig::syscalls::Counter;
use rig::visits::Manner;

/// What was asked for; what was not is as the project's published figures have it.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) run: String,
    /// Whatever stands behind the run's name.
    pub(crate) rest: Vec<String>,
    /// Empty: as the run has it.
    pub(crate) workloads: Vec<Workload>,
    pub(crate) clients: Option<usize>,
    pub(crate) pool: usize,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) retakes: usize,
    pub(crate) loads: usize,
    pub(crate) quota: Option<f64>,
    pub(crate) sockets: Sockets,
    pub(crate) auth: Auth,
    pub(crate) only: Vec<String>,
    pub(crate) baseline: String,
    pub(crate) howdah: Option<PathBuf>,
    pub(crate) workers: Vec<usize>,
    pub(crate) io_driver: Option<String>,
    /// Poolers given by command line, in order.
    pub(crate) more: Vec<Pooler>,
    pub(crate) script: Script,
    /// Of a visit; empty: all but those with RSA keys.
    pub(crate) manners: Vec<(&'static str, Manner)>,
    pub(crate) tls: bool,
    pub(crate) counter: Counter,
    pub(crate) minutes: f64,
}

/// Behind the table of runs.
pub(crate) const OPTIONS: &str = "\
options
  --workload NAME   simple, extended, named, transaction, connect; may be repeated
  --script NAME     real: select, tpcb, connect
  --manner NAME     visits: plain, tls, resumed, tls-rsa, resumed-rsa; may be repeated
  --tls             bulk, memory: with TLS
  --counter NAME    syscalls: perf, or strace
  --minutes N       soak: 10
  --clients N       50        --pool N      20
  --seconds N       4         --rounds N    5       --retakes N  2 (of a noisy sample)
  --unix            unix sockets on both sides
  --auth NAME       trust, md5, scram-sha-256 (pgbench only)
  --loads N         threads of load, 1
  --quota PERCENT   of a core for each worker thread of howdah (root, cgroup v1); workers: 20
  --workers N[,N]   howdah's workers, 1; several make several rows
  --io-driver NAME  howdah's io_driver
  --howdah PATH     else beside this program, else on the PATH
  --only NAME,...   rows to run: direct, floor, pgbouncer, howdah, and those of --pooler
  --baseline NAME   the row that ratios refer to, pgbouncer
  --pooler NAME=COMMAND          another one that takes PgBouncer's ini, as {ini}
  --template NAME=FILE=COMMAND   another one with a file of its own, made from FILE, as {file}
";

impl Options {
    pub(crate) fn parse() -> anyhow::Result<Self> {
        let mut options = Self::default();
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Value(word) if options.run.is_empty() => options.run = word.string()?,
                Value(word) => options.rest.push(word.string()?),
                Short('h') | Long("help") => options.run = "help".into(),
                Long(name) => {
                    let name = name.to_owned();
                    options.set(&name, &mut parser)?;
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }

    /// With `clients`, unless a number was asked for.
    pub(crate) fn or_clients(&self, clients: usize) -> Self {
        Self { clients: self.clients.or(Some(clients)), ..self.clone() }
    }

    pub(crate) fn rounds(&self) -> Rounds {
        Rounds { count: self.rounds, retakes: self.retakes }
    }

    fn set(&mut self, name: &str, parser: &mut lexopt::Parser) -> anyhow::Result<()> {
        match name {
            "unix" => {
                self.sockets = Sockets::Unix;
                return Ok(());
            }
            "tls" => {
                self.tls = true;
                return Ok(());
            }
            _ => {}
        }
        let value = parser.value()?.string()?;
        let number = || value.parse::<usize>().with_context(|| format!("--{name} takes a number"));
        let unknown = || format!("--{name} does not know {value:?}");
        match name {
            "workload" => {
                self.workloads.push(Workload::by_name(&value).with_context(unknown)?);
            }
            "script" => self.script = script(&value).with_context(unknown)?,
            "manner" => {
                let known = Manner::ALL.into_iter().find(|(known, _)| *known == value);
                self.manners.push(known.with_context(unknown)?);
            }
            "counter" => self.counter = Counter::by_name(&value).with_context(unknown)?,
            "minutes" => self.minutes = value.parse().with_context(unknown)?,
            "clients" => self.clients = Some(number()?),
            "pool" => self.pool = number()?,
            "seconds" => self.seconds = value.parse().with_context(unknown)?,
            "rounds" => self.rounds = number()?,
            "retakes" => self.retakes = number()?,
            "loads" => self.loads = number()?.max(1),
            "quota" => self.quota = Some(value.parse().with_context(unknown)?),
            "auth" => self.auth = Auth::by_name(&value).with_context(unknown)?,
            "only" => self.only = value.split(',').map(str::to_owned).collect(),
            "baseline" => self.baseline = value,
            "howdah" => self.howdah = Some(value.into()),
            "workers" => {
                let counts: Result<_, _> = value.split(',').map(str::parse).collect();
                self.workers = counts.with_context(unknown)?;
            }
            "io-driver" => self.io_driver = Some(value),
            "pooler" => {
                let (name, command) = value.split_once('=').with_context(unknown)?;
                self.more(name, Kind::Ini { command: command.into() });
            }
            "template" => {
                let (name, rest) = value.split_once('=').with_context(unknown)?;
                let (file, command) = rest.split_once('=').with_context(unknown)?;
                let template = std::path::absolute(file)?;
                self.more(name, Kind::Template { command: command.into(), template });
            }
            _ => bail!("there is no option --{name}"),
        }
        Ok(())
    }

    fn more(&mut self, name: &str, kind: Kind) {
        self.more.push(Pooler { name: name.into(), kind, extra: String::new() });
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            run: String::new(),
            rest: Vec::new(),
            workloads: Vec::new(),
            clients: None,
            pool: 20,
            seconds: 4.0,
            rounds: 5,
            retakes: 2,
            loads: 1,
            quota: None,
            sockets: Sockets::Tcp,
            auth: Auth::Trust,
            only: Vec::new(),
            baseline: "pgbouncer".into(),
            howdah: None,
            workers: vec![1],
            io_driver: None,
            more: Vec::new(),
            script: Script::Select,
            manners: Vec::new(),
            tls: false,
            counter: Counter::Perf,
            minutes: 10.0,
        }
    }
}

/// pgbench's script by its name here.
fn script(name: &str) -> Option<Script> {
    match name {
        "select" => Some(Script::Select),
        "tpcb" => Some(Script::TpcB),
        "connect" => Some(Script::Connect),
        _ => None,
    }
}
