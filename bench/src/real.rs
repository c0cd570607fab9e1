//! A sample with real PostgreSQL: pgbench through the pooler, nothing pinned.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::address::{self, Address};
use crate::noise::{Machine, Noise};
use crate::pgbench::{Outcome, Pgbench};
use crate::pooler::{Auth, Kind, Pooler, Setup};
use crate::postgres::{self, DATABASE, Postgres};
use crate::sample::Sample;
use crate::{client, tidy};

/// What pgbench plays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Script {
    Select,
    TpcB,
    /// Connect, `SELECT 1`, disconnect.
    Connect,
}

/// One server for all samples of a comparison, with pgbench's tables in it.
pub struct Bed {
    server: Postgres,
    program: PathBuf,
    folder: tidy::Folder,
}

#[derive(Clone, Debug)]
pub struct Conditions {
    pub script: Script,
    /// As pgbench's `-M`.
    pub protocol: &'static str,
    pub clients: usize,
    pub pool: usize,
    pub seconds: f64,
    pub auth: Auth,
}

impl Bed {
    pub fn make(scale: u32) -> anyhow::Result<Self> {
        let bin = postgres::find().with_context(|| {
            format!("no PostgreSQL server found; {} names its folder", postgres::BIN_VARIABLE)
        })?;
        let program = postgres::find_client(&bin, "pgbench").context("no pgbench found")?;
        let settings = ["max_connections=600", "shared_buffers=512MB", "fsync=off"];
        let server = Postgres::start(&bin, &settings)?;
        let folder = tidy::Folder::new("howdah-script-")?;
        std::fs::write(folder.path().join("one.sql"), "SELECT 1;\n")?;
        let bed = Self { server, program, folder };
        bed.pgbench(bed.server.address.clone(), DATABASE).initialize(scale)?;
        Ok(bed)
    }

    /// One fresh process, one measurement.
    pub fn sample(&self, pooler: &Pooler, conditions: &Conditions) -> anyhow::Result<Sample> {
        let setup = Setup {
            listen: Address::Tcp { port: address::free_port()? },
            server: self.server.address.clone(),
            database: DATABASE,
            clients: conditions.clients,
            pool: conditions.pool,
            auth: conditions.auth,
            more_databases: 0,
            lines: String::new(),
            cores: Vec::new(),
        };
        let running = pooler.start(&setup)?;
        let pgbench = match pooler.kind {
            Kind::Direct => self.pgbench(setup.server, DATABASE),
            // It understands nothing, so it cannot give the database another name either.
            Kind::Floor => self.pgbench(setup.listen, DATABASE),
            _ => self.pgbench(setup.listen, client::DATABASE),
        };
        self.play(&pgbench, conditions, 0.7)?;
        let (before, machine) = (running.cpu()?, Machine::now()?);
        let outcome = self.play(&pgbench, conditions, conditions.seconds)?;
        let (after, then) = (running.cpu()?, Machine::now()?);
        let seconds = (then.at - machine.at).as_secs_f64();
        let steal = (then.steal - machine.steal).as_secs_f64() / seconds;
        Ok(Sample {
            cpu_us: (after - before).as_secs_f64() * 1e6 / outcome.transactions as f64,
            tps: outcome.tps,
            p50_us: outcome.p50_ms * 1e3,
            p99_us: outcome.p99_ms * 1e3,
            unevenness: f64::NAN,
            longest_over_p50: f64::NAN,
            // Who is foreign cannot be told here: the server's processes come and go.
            noise: Noise { steal, foreign: 0.0, slowdown: 0.0 },
        })
    }

    fn play(
        &self,
        pgbench: &Pgbench,
        conditions: &Conditions,
        seconds: f64,
    ) -> anyhow::Result<Outcome> {
        let script = self.folder.path().join("one.sql").display().to_string();
        let clients = conditions.clients.to_string();
        let seconds = format!("{}", seconds.ceil());
        let mut arguments = vec!["-n", "-c", &clients, "-j", "2", "-T", &seconds, "-l"];
        arguments.extend(["--sampling-rate=0.1", "-M", conditions.protocol]);
        match conditions.script {
            Script::Select => arguments.push("-S"),
            Script::TpcB => {}
            Script::Connect => arguments.extend(["-C", "-f", &script]),
        }
        let outcome = pgbench.run(&arguments)?;
        if let Some(error) = outcome.errors.first() {
            bail!("pgbench: {error}");
        }
        Ok(outcome)
    }

    fn pgbench(&self, address: Address, database: &str) -> Pgbench {
        Pgbench {
            program: self.program.clone(),
            address,
            user: client::USER.into(),
            password: client::PASSWORD.into(),
            database: database.into(),
            tls: false,
        }
    }
}
