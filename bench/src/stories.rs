//! The stories: published uses of a pooler, scaled to this machine and played again, direct and through each pooler,
//! in one run. Each says what must come of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::address::{self, Address};
use crate::certificate::{self, Key};
use crate::client::{DATABASE, PASSWORD, USER};
use crate::pgbench::{self, Pgbench};
use crate::pooler::{Auth, Kind, Pooler, Setup};
use crate::postgres::{self, Postgres};
use crate::process;
use crate::sysbench::{self, Sysbench};
use crate::tidy::Folder;

/// Who plays, and for how long.
pub struct Stage {
    /// Direct among them.
    pub poolers: Vec<Pooler>,
    pub seconds: f64,
}

/// What was promised, and whether it was kept.
#[derive(Debug)]
pub struct Promise {
    pub kept: bool,
    pub says: String,
}

/// One pooler's part in one story.
struct Act<T> {
    pooler: String,
    outcome: anyhow::Result<T>,
}

/// What a story needs of its poolers.
#[derive(Clone, Copy)]
struct Part {
    clients: usize,
    pool: usize,
    auth: Auth,
}

impl Stage {
    /// A small machine, and a load of many tables: sysbench, 64 threads.
    pub fn sysbench(&self) -> anyhow::Result<Vec<Promise>> {
        let program = process::find_program("sysbench").context("no sysbench found")?;
        let mut promises = Vec::new();
        for connections in [200, 50] {
            let server = start(&[format!("max_connections={connections}")])?;
            let load = |address: Address, database: &str| Sysbench {
                program: program.clone(),
                address,
                user: USER.into(),
                password: PASSWORD.into(),
                database: database.into(),
                threads: 64,
            };
            load(server.address.clone(), postgres::DATABASE).prepare()?;
            let part = Part { clients: 64, pool: 20, auth: Auth::Md5 };
            let play =
                |address: Address, database: &str| load(address, database).play(self.seconds);
            let acts = self.play(&server, part, "", play);
            println!(
                "\nsysbench oltp_read_write, 64 threads, pool {}, max_connections {connections}",
                part.pool
            );
            table(&acts, &["tx/s", "p95 ms", "longest ms", "σ/mean", "errors"], |outcome| {
                let sysbench::Outcome { tps, p95_ms, longest_ms, unevenness, errors } = outcome;
                vec![*tps, *p95_ms, *longest_ms, *unevenness, *errors as f64]
            });
            promises.extend(of_sysbench(&acts, connections < 64));
        }
        Ok(promises)
    }

    /// `pgbench -S` with as many clients as servers, and with ten times as many.
    pub fn crowd(&self) -> anyhow::Result<Vec<Promise>> {
        let server = start(&["max_connections=600".into()])?;
        let bench = Bench::find()?;
        bench.at(&server.address, postgres::DATABASE).initialize(10)?;
        let mut promises = Vec::new();
        for clients in [50, 500] {
            let part = Part { clients, pool: 50, auth: Auth::Trust };
            let (count, seconds) = (clients.to_string(), format!("{:.0}", self.seconds));
            let arguments = ["-n", "-S", "-l", "-j", "1", "-c", &count, "-T", &seconds];
            let acts = self.play(&server, part, "", |address, database| {
                bench.at(&address, database).clean(&arguments)
            });
            println!("\npgbench -c {clients} -j 1 -S, pool {}", part.pool);
            show(&acts);
            promises.extend(of_crowd(&acts, clients));
        }
        Ok(promises)
    }

    /// Clients who each make a temporary table, drop it, and then only stay.
    pub fn temporary(&self) -> anyhow::Result<Vec<Promise>> {
        const CLIENTS: usize = 200;
        let server = start(&["max_connections=300".into()])?;
        let bench = Bench::find()?;
        let script = bench.folder.path().join("temporary.sql");
        std::fs::write(
            &script,
            "CREATE TEMPORARY TABLE t AS SELECT generate_series(1, 20000) n;\n\
             SELECT count(*) FROM t;\nDROP TABLE t;\n\\sleep 12 s\n",
        )?;
        let script = script.display().to_string();
        let count = CLIENTS.to_string();
        let arguments = ["-n", "-l", "-j", "2", "-t", "1", "-c", &count, "-f", &script];
        let part = Part { clients: CLIENTS, pool: 20, auth: Auth::Scram };
        let acts = self.play(&server, part, "", |address, database| {
            let bench = bench.at(&address, database);
            std::thread::scope(|scope| {
                let playing = scope.spawn(|| bench.clean(&arguments));
                let mut most = (0, 0);
                while !playing.is_finished() {
                    let pid = server.pid();
                    let now = (process::proportional_bytes(pid), process::tree(pid).len());
                    // Towards the end all of them are idle: the last looks are the ones that count.
                    most = if now.1 >= most.1 { now } else { most };
                    std::thread::sleep(Duration::from_millis(500));
                }
                playing.join().map_err(|_| anyhow::anyhow!("pgbench's thread panicked"))??;
                Ok((most.0 as f64 / 1e6, most.1 as f64))
            })
        });
        println!(
            "\n{CLIENTS} clients, each with a temporary table for a moment, pool {}",
            part.pool
        );
        table(&acts, &["server MB", "processes"], |(megabytes, processes)| {
            vec![*megabytes, *processes]
        });
        let (Some(direct), Some(ours)) = (kept(&acts, "direct"), kept(&acts, "howdah")) else {
            return Ok(failed(&acts, "temporary tables"));
        };
        Ok(vec![Promise {
            kept: ours.0 < direct.0 * 0.5,
            says: format!(
                "temporary tables: the server needs {:.0} MB, direct {:.0}",
                ours.0, direct.0
            ),
        }])
    }

    /// The demo stack: 80 clients direct, 200 through a pool of 25.
    pub fn stack(&self) -> anyhow::Result<Vec<Promise>> {
        let server = start(&["max_connections=100".into()])?;
        let bench = Bench::find()?;
        bench.at(&server.address, postgres::DATABASE).initialize(50)?;
        let seconds = format!("{:.0}", self.seconds);
        let part = Part { clients: 200, pool: 25, auth: Auth::Trust };
        let acts = self.play(&server, part, "", |address, database| {
            let clients = if address == server.address { "80" } else { "200" };
            let arguments = ["-n", "-l", "-M", "simple", "-j", "8", "-c", clients, "-T", &seconds];
            bench.at(&address, database).clean(&arguments)
        });
        println!("\npgbench (TPC-B), scale 50: 80 clients direct, 200 on {} servers", part.pool);
        show(&acts);
        let crowd = bench
            .at(&server.address, postgres::DATABASE)
            .run(&["-n", "-M", "simple", "-j", "8", "-c", "200", "-T", "2"])?;
        let refused = crowd.errors.first().cloned().unwrap_or_default();
        let mut promises = vec![Promise {
            kept: refused.contains("too many clients"),
            says: format!("200 clients direct are refused: {refused}"),
        }];
        let (Some(direct), Some(ours)) = (kept(&acts, "direct"), kept(&acts, "howdah")) else {
            promises.extend(failed(&acts, "the stack"));
            return Ok(promises);
        };
        promises.push(Promise {
            kept: ours.tps >= direct.tps,
            says: format!("200 pooled clients {:.0} tx/s, 80 direct {:.0}", ours.tps, direct.tps),
        });
        Ok(promises)
    }

    /// A new connection for each transaction, with TLS and SCRAM.
    pub fn reconnect(&self) -> anyhow::Result<Vec<Promise>> {
        let folder = Folder::new("howdah-story-")?;
        process::give_to_servant(folder.path())?;
        let lines = certificate::lines(folder.path(), Key::P256)?;
        let server = start_sealed(folder.path())?;
        let bench = Bench::find()?;
        let script = bench.folder.path().join("test.sql");
        std::fs::write(&script, "SELECT 1;\n")?;
        let script = script.display().to_string();
        let arguments = ["-n", "-l", "-C", "-c", "20", "-t", "100", "-f", &script];
        let part = Part { clients: 20, pool: 20, auth: Auth::Scram };
        let acts = self.play(&server, part, &lines, |address, database| {
            Pgbench { tls: true, ..bench.at(&address, database) }.clean(&arguments)
        });
        println!("\npgbench -C -c 20 -t 100, SELECT 1, TLS and SCRAM");
        show(&acts);
        let (Some(direct), Some(ours)) = (kept(&acts, "direct"), kept(&acts, "howdah")) else {
            return Ok(failed(&acts, "reconnecting"));
        };
        let theirs = kept(&acts, "pgbouncer").map_or(f64::NAN, |theirs| theirs.tps / direct.tps);
        let ratio = ours.tps / direct.tps;
        Ok(vec![Promise {
            kept: ratio > theirs.max(1.0),
            says: format!("reconnecting: {ratio:.2} × direct's tx/s, PgBouncer {theirs:.2}"),
        }])
    }

    /// One after the other, each in a fresh process.
    fn play<T>(
        &self,
        server: &Postgres,
        part: Part,
        lines: &str,
        play: impl Fn(Address, &str) -> anyhow::Result<T>,
    ) -> Vec<Act<T>> {
        let one = |pooler: &Pooler| {
            if matches!(pooler.kind, Kind::Direct) {
                return play(server.address.clone(), postgres::DATABASE);
            }
            let setup = Setup {
                listen: Address::Tcp { port: address::free_port()? },
                server: server.address.clone(),
                database: postgres::DATABASE,
                clients: part.clients,
                pool: part.pool,
                auth: part.auth,
                more_databases: 0,
                lines: lines.to_owned(),
                cores: Vec::new(),
            };
            let _running = pooler.start(&setup)?;
            play(setup.listen, DATABASE)
        };
        let takes_part = |pooler: &&Pooler| matches!(pooler.kind, Kind::Direct | Kind::Ini { .. });
        let act = |pooler: &Pooler| Act { pooler: pooler.name.clone(), outcome: one(pooler) };
        self.poolers.iter().filter(takes_part).map(act).collect()
    }
}

/// pgbench, and a folder for its scripts.
struct Bench {
    program: PathBuf,
    folder: Folder,
}

impl Bench {
    fn find() -> anyhow::Result<Self> {
        let program = postgres::find_client(&programs()?, "pgbench").context("no pgbench found")?;
        Ok(Self { program, folder: Folder::new("howdah-script-")? })
    }

    fn at(&self, address: &Address, database: &str) -> Pgbench {
        Pgbench {
            program: self.program.clone(),
            address: address.clone(),
            user: USER.into(),
            password: PASSWORD.into(),
            database: database.into(),
            tls: false,
        }
    }
}

impl Pgbench {
    /// A run in which nothing may go wrong.
    fn clean(&self, arguments: &[&str]) -> anyhow::Result<pgbench::Outcome> {
        let outcome = self.run(arguments)?;
        if let Some(error) = outcome.errors.first() {
            bail!("{error}");
        }
        if outcome.transactions == 0 {
            bail!("no transaction in the time there was");
        }
        Ok(outcome)
    }
}

fn programs() -> anyhow::Result<PathBuf> {
    postgres::find().with_context(|| {
        format!("no PostgreSQL server found; {} names its folder", postgres::BIN_VARIABLE)
    })
}

fn start(settings: &[String]) -> anyhow::Result<Postgres> {
    let usual = ["superuser_reserved_connections=0", "shared_buffers=256MB", "fsync=off"];
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(usual).collect();
    Postgres::start(&programs()?, &settings)
}

/// A server that wants a password, with the certificate in `folder`.
fn start_sealed(folder: &Path) -> anyhow::Result<Postgres> {
    let hba = folder.join("hba.conf");
    std::fs::write(&hba, "host all all 127.0.0.1/32 trust\n")?;
    process::give_to_servant(&hba)?;
    let named = |name: &str, file: &str| format!("{name}={}", folder.join(file).display());
    let server = start(&[
        "ssl=on".into(),
        named("ssl_key_file", "server.key"),
        named("ssl_cert_file", "server.crt"),
        named("hba_file", "hba.conf"),
    ])?;
    let psql = postgres::find_client(&programs()?, "psql").context("no psql found")?;
    let say = |text: &str| -> anyhow::Result<()> {
        let mut command = Command::new(&psql);
        command.args(["-X", "-q", "-h", &server.address.host(), "-U", USER, "-c", text]);
        command.args(["-p", &server.address.port().to_string(), "-d", postgres::DATABASE]);
        if !command.status()?.success() {
            bail!("psql could not say: {text}");
        }
        Ok(())
    };
    say(&format!("ALTER ROLE {USER} PASSWORD '{PASSWORD}'"))?;
    std::fs::write(&hba, "host all all 127.0.0.1/32 scram-sha-256\n")?;
    say("DO 'BEGIN PERFORM pg_reload_conf(); END'")?;
    Ok(server)
}

fn kept<'a, T>(acts: &'a [Act<T>], name: &str) -> Option<&'a T> {
    let act = acts.iter().find(|act| act.pooler == name)?;
    act.outcome.as_ref().ok()
}

/// What there is to say where one of those who matter did not get through.
fn failed<T>(acts: &[Act<T>], story: &str) -> Vec<Promise> {
    let failed = acts.iter().filter_map(|act| Some((&act.pooler, act.outcome.as_ref().err()?)));
    let of = |(pooler, error): (&String, &anyhow::Error)| Promise {
        kept: false,
        says: format!("{story}: {pooler} failed: {error:#}"),
    };
    failed.map(of).collect()
}

fn of_sysbench(acts: &[Act<sysbench::Outcome>], too_many: bool) -> Vec<Promise> {
    let Some(ours) = kept(acts, "howdah") else { return failed(acts, "sysbench") };
    let says = |text: String| {
        format!("sysbench{}: {text}", if too_many { ", few connections" } else { "" })
    };
    let mut promises = vec![
        Promise {
            kept: ours.unevenness < 0.1,
            says: says(format!("σ/mean of events per thread {:.3}, below 0.1", ours.unevenness)),
        },
        Promise {
            kept: ours.longest_ms < 1_000.0,
            says: says(format!("the longest event {:.0} ms, below 1,000", ours.longest_ms)),
        },
    ];
    if too_many {
        promises.push(Promise {
            kept: kept(acts, "direct").is_none(),
            says: says("64 threads direct are refused, pooled run without an error".into()),
        });
    } else if let (Some(direct), Some(theirs)) = (kept(acts, "direct"), kept(acts, "pgbouncer")) {
        let (ratio, wanted) = (ours.tps / direct.tps, theirs.tps / direct.tps);
        promises.push(Promise {
            kept: ratio >= wanted,
            says: says(format!("{ratio:.2} × direct's tx/s, PgBouncer {wanted:.2}")),
        });
    }
    promises
}

fn of_crowd(acts: &[Act<pgbench::Outcome>], clients: usize) -> Vec<Promise> {
    let (Some(direct), Some(ours)) = (kept(acts, "direct"), kept(acts, "howdah")) else {
        return failed(acts, "the crowd");
    };
    let says = |text: String| format!("{clients} clients: {text}");
    vec![
        Promise {
            kept: ours.tps >= direct.tps,
            says: says(format!("{:.0} tx/s, direct {:.0}", ours.tps, direct.tps)),
        },
        Promise {
            kept: ours.deviation_ms <= direct.deviation_ms,
            says: says(format!("σ {:.2} ms, direct {:.2}", ours.deviation_ms, direct.deviation_ms)),
        },
        Promise {
            kept: ours.connecting_ms < direct.connecting_ms * 0.5,
            says: says(format!(
                "connecting {:.0} ms, direct {:.0}",
                ours.connecting_ms, direct.connecting_ms
            )),
        },
    ]
}

fn show(acts: &[Act<pgbench::Outcome>]) {
    table(acts, &["tx/s", "mean ms", "σ ms", "p99 ms", "connecting ms"], |outcome| {
        let pgbench::Outcome { tps, mean_ms, deviation_ms, p99_ms, connecting_ms, .. } = outcome;
        vec![*tps, *mean_ms, *deviation_ms, *p99_ms, *connecting_ms]
    });
}

fn table<T>(acts: &[Act<T>], columns: &[&str], figures: impl Fn(&T) -> Vec<f64>) {
    let heads: String = columns.iter().map(|column| format!("{column:>15}")).collect();
    println!("{:<14}{heads}", "");
    for act in acts {
        match &act.outcome {
            Ok(outcome) => {
                let row: String =
                    figures(outcome).iter().map(|one| format!("{one:>15.2}")).collect();
                println!("{:<14}{row}", act.pooler);
            }
            Err(error) => println!("{:<14}  {error:#}", act.pooler),
        }
    }
}
