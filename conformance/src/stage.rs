//! A cluster of PostgreSQL's as the suites expect it, and the pooler in front of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use harness::{Address, Howdah, Login, Postgres, Setup, eventually, place};

use crate::run::{Mode, Run, Suite, Through, Word};

/// What the harness' cluster has otherwise, and the suites notice.
const SETTINGS: &str = "\
log_statement = none
autovacuum = on
shared_buffers = 128MB
max_prepared_transactions = 20
";

const HBA: &str = "local all all trust\nhost all all all trust\n";

pub struct Stage {
    pub postgres: Postgres,
    pub pooler: Option<Howdah>,
    /// Where the suites' sources are.
    pub suites: PathBuf,
}

impl Stage {
    /// # Panics
    /// When something does not start.
    #[must_use]
    pub fn set(run: &Run) -> Self {
        let suites = std::env::var_os("CONFORMANCE_SUITES").expect("conformance/run sets it");
        let suites = PathBuf::from(suites).join("src/test");
        let postgres = Postgres::start(SETTINGS);
        open_doors(&postgres);
        let mut superuser = postgres.superuser("postgres");
        // As pg_regress would, which is told to use what is there: a pooler is no place to drop databases through.
        let db = run.suite.database();
        superuser.run(&format!("CREATE DATABASE {db} TEMPLATE template0"));
        let settings = [
            ("lc_messages", "C"),
            ("lc_monetary", "C"),
            ("lc_numeric", "C"),
            ("lc_time", "C"),
            ("bytea_output", "hex"),
            ("timezone_abbreviations", "Default"),
        ];
        for (name, value) in settings {
            superuser.run(&format!("ALTER DATABASE {db} SET {name} TO '{value}'"));
        }
        let pooler = match run.through {
            Through::Direct => None,
            Through::Howdah | Through::PgBouncer => Some(pooler(run, &postgres, &suites).start()),
        };
        Self { postgres, pooler, suites }
    }

    /// Where the suite and the neighbours knock.
    #[must_use]
    pub fn address(&self) -> Address {
        self.pooler.as_ref().map_or_else(|| self.postgres.address(), Howdah::address)
    }
}

/// The suites' roles have no passwords.
fn open_doors(postgres: &Postgres) {
    place::write(&postgres.folder().join("data/pg_hba.conf"), HBA);
    postgres.superuser("postgres").run("SELECT pg_reload_conf()");
    let login = Login::new(postgres.address(), "postgres", "", "postgres");
    eventually("anyone may enter", || login.attempt().is_ok());
}

fn pooler(run: &Run, postgres: &Postgres, suites: &Path) -> Setup {
    let mut setup = Setup::new()
        .set("auth_type", "trust")
        .set("pool_mode", run.mode.into_word())
        .set("default_pool_size", run.pool)
        .set("max_client_conn", 500)
        .set("ignore_startup_parameters", "extra_float_digits,options,intervalstyle")
        .database("*", &format!("host=127.0.0.1 port={}", postgres.port()))
        .secret("postgres", "");
    if run.mode == Mode::Session {
        setup = setup.set("server_reset_query", "DISCARD ALL");
    }
    for role in roles(run, suites) {
        setup = setup.secret(&role, "");
    }
    run.settings.iter().fold(setup, |setup, (name, value)| setup.set(name, value))
}

/// Whoever the suite's files create: a pooler with a userlist has to know them beforehand.
fn roles(run: &Run, suites: &Path) -> BTreeSet<String> {
    let folder = match run.suite {
        Suite::Regress => suites.join("regress/sql"),
        Suite::Isolation => suites.join("isolation/specs"),
    };
    let mut roles = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the suite's files") {
        let text = std::fs::read(entry.expect("a file").path()).expect("the suite's file");
        let text = String::from_utf8_lossy(&text).into_owned();
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        for triple in words.windows(3) {
            let is =
                |word: &str, all: &[&str]| all.iter().any(|one| word.eq_ignore_ascii_case(one));
            if is(triple[0], &["create"]) && is(triple[1], &["role", "user", "group"]) {
                let name = triple[2].trim_end_matches([';', ',']);
                let quoted = name.strip_prefix('"').and_then(|name| name.split('"').next());
                roles.insert(quoted.map_or_else(|| name.to_lowercase(), str::to_owned));
            }
        }
    }
    roles.retain(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c))
    });
    roles
}
