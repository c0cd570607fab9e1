//! A sample of one long answer: COPY TO STDOUT through the pooler, from PostgreSQL to psql.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;

use crate::address::{self, Address};
use crate::certificate::{self, Key};
use crate::client;
use crate::noise::{Machine, Noise};
use crate::pooler::{Auth, Kind, Pooler, Setup};
use crate::postgres::{self, DATABASE, Postgres};
use crate::process;
use crate::sample::Sample;
use crate::tidy::{Child, Folder};

/// One server for all samples of a comparison.
pub struct Bed {
    server: Postgres,
    psql: PathBuf,
}

/// In megabytes of answer.
const SIZE: u32 = 1_000;

impl Bed {
    pub fn make() -> anyhow::Result<Self> {
        let bin = postgres::find().with_context(|| {
            format!("no PostgreSQL server found; {} names its folder", postgres::BIN_VARIABLE)
        })?;
        let psql = postgres::find_client(&bin, "psql").context("no psql found")?;
        Ok(Self { server: Postgres::start(&bin, &[])?, psql })
    }

    /// One fresh process, one gigabyte. Its "transactions" are gigabytes.
    pub fn sample(&self, pooler: &Pooler, tls: bool) -> anyhow::Result<Sample> {
        if tls && !matches!(pooler.kind, Kind::Ini { .. }) {
            bail!("knows no TLS");
        }
        let folder = Folder::new("howdah-bulk-")?;
        process::give_to_servant(folder.path())?;
        let lines = if tls { certificate::lines(folder.path(), Key::P256)? } else { String::new() };
        let setup = Setup {
            listen: Address::Tcp { port: address::free_port()? },
            server: self.server.address.clone(),
            database: DATABASE,
            clients: 5,
            pool: 5,
            auth: Auth::Trust,
            more_databases: 0,
            lines,
            cores: Vec::new(),
        };
        let running = pooler.start(&setup)?;
        let (to, database) = match pooler.kind {
            Kind::Direct => (&setup.server, DATABASE),
            Kind::Floor => (&setup.listen, DATABASE),
            _ => (&setup.listen, client::DATABASE),
        };
        self.copy(to, database, tls, 20)?;
        let (before, machine, since) = (running.cpu()?, Machine::now()?, Instant::now());
        self.copy(to, database, tls, SIZE)?;
        let took = since.elapsed().as_secs_f64();
        let (after, then) = (running.cpu()?, Machine::now()?);
        let gigabytes = f64::from(SIZE) / 1_000.0;
        Ok(Sample {
            cpu_us: (after - before).as_secs_f64() * 1e6 / gigabytes,
            tps: gigabytes / took,
            p50_us: took * 1e6,
            p99_us: f64::NAN,
            unevenness: f64::NAN,
            longest_over_p50: f64::NAN,
            // Who is foreign cannot be told here: psql and the server's processes come and go.
            noise: Noise {
                steal: (then.steal - machine.steal).as_secs_f64() / took,
                foreign: 0.0,
                slowdown: 0.0,
            },
        })
    }

    /// Rows of a thousand bytes, and nobody who reads them.
    fn copy(&self, to: &Address, database: &str, tls: bool, megabytes: u32) -> anyhow::Result<()> {
        let rows = megabytes * 1_000;
        let query =
            format!("COPY (SELECT repeat('x', 999) FROM generate_series(1, {rows})) TO STDOUT");
        let mut command = Command::new(&self.psql);
        command
            .args(["-X", "-q", "-h", &to.host(), "-p", &to.port().to_string()])
            .args(["-U", client::USER, "-d", database, "-c", &query])
            .env("PGPASSWORD", client::PASSWORD)
            .env("PGSSLMODE", if tls { "require" } else { "disable" })
            .stdin(Stdio::null())
            .stdout(File::create("/dev/null")?);
        let status = Child::start(command, Signal::SIGTERM)?.wait()?;
        if !status.success() {
            bail!("psql ended with {status}");
        }
        Ok(())
    }
}
