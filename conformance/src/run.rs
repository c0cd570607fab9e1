//! What is played, as the command line says it.

use std::fmt;
use std::path::PathBuf;

use lexopt::prelude::*;

pub const USAGE: &str = "\
conformance/run [--suite regress|isolation] [--through direct|howdah|pgbouncer] [--mode transaction|session]
                [--neighbours N] [--pool N] [--at-once N] [--schedule FILE] [--minutes N] [--patience N]
                [--set NAME=VALUE]… [TEST…]

  --suite       PostgreSQL's regression suite (default) or its isolation suite
  --through     what stands between the suite and the server; default howdah
  --mode        the pooler's pool_mode; default transaction
  --neighbours  other clients on the same database and user, who look whether their session is clean; default 0
  --pool        default_pool_size; default 20
  --at-once     how many tests run at the same time; default: what the schedule says
  --schedule    a schedule of one's own instead of the suite's
  --minutes     when the suite is ended; default 30
  --patience    after how many seconds without a result the tests under way are ended; default 90
  --set         a line of the pooler's ini, such as a setting to try
  TEST…         these tests only, instead of a schedule";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Suite {
    Regress,
    Isolation,
}

impl Suite {
    /// The suite's own name for it, which some of its tests say.
    #[must_use]
    pub fn database(self) -> &'static str {
        match self {
            Self::Regress => "regression",
            Self::Isolation => "isolation_regression",
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Through {
    Direct,
    Howdah,
    PgBouncer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    Transaction,
    Session,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub suite: Suite,
    pub through: Through,
    pub mode: Mode,
    pub neighbours: u32,
    pub pool: u32,
    pub at_once: Option<u32>,
    pub schedule: Option<PathBuf>,
    pub minutes: u32,
    pub patience: u32,
    pub settings: Vec<(String, String)>,
    pub tests: Vec<String>,
}

impl Run {
    /// `None` when all that was asked for was how to ask.
    pub fn from_arguments(mut arguments: lexopt::Parser) -> Result<Option<Self>, lexopt::Error> {
        let mut run = Self {
            suite: Suite::Regress,
            through: Through::Howdah,
            mode: Mode::Transaction,
            neighbours: 0,
            pool: 20,
            at_once: None,
            schedule: None,
            minutes: 30,
            patience: 90,
            settings: Vec::new(),
            tests: Vec::new(),
        };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("help") | Short('h') => {
                    println!("{USAGE}");
                    return Ok(None);
                }
                Long("suite") => run.suite = word(&arguments.value()?, Suite::ALL)?,
                Long("through") => run.through = word(&arguments.value()?, Through::ALL)?,
                Long("mode") => run.mode = word(&arguments.value()?, Mode::ALL)?,
                Long("neighbours") => run.neighbours = arguments.value()?.parse()?,
                Long("pool") => run.pool = arguments.value()?.parse()?,
                Long("at-once") => run.at_once = Some(arguments.value()?.parse()?),
                Long("schedule") => run.schedule = Some(arguments.value()?.into()),
                Long("minutes") => run.minutes = arguments.value()?.parse()?,
                Long("patience") => run.patience = arguments.value()?.parse()?,
                Long("set") => {
                    let pair = arguments.value()?.string()?;
                    let (name, value) = pair.split_once('=').ok_or("--set NAME=VALUE")?;
                    run.settings.push((name.into(), value.into()));
                }
                Value(test) => run.tests.push(test.string()?),
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(run))
    }

    /// Without a pooler there is no mode.
    #[must_use]
    pub fn mode_word(&self) -> &'static str {
        if self.through == Through::Direct { "any" } else { self.mode.into_word() }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suite = self.suite.into_word();
        let through = self.through.into_word();
        match self.through {
            Through::Direct => write!(f, "{suite}, {through}")?,
            _ => write!(f, "{suite}, {through}, {} mode, pool of {}", self.mode_word(), self.pool)?,
        }
        write!(f, ", {} neighbours", self.neighbours)
    }
}

/// What the command line calls by a word.
pub trait Word: Copy + 'static {
    const ALL: &'static [(&'static str, Self)];

    fn into_word(self) -> &'static str;
}

macro_rules! words {
    ($kind:ty, $($word:literal => $value:ident),+) => {
        impl Word for $kind {
            const ALL: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];

            fn into_word(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }
        }
    };
}

words!(Suite, "regress" => Regress, "isolation" => Isolation);
words!(Through, "direct" => Direct, "howdah" => Howdah, "pgbouncer" => PgBouncer);
words!(Mode, "transaction" => Transaction, "session" => Session);

fn word<T: Copy>(given: &std::ffi::OsStr, all: &[(&str, T)]) -> Result<T, lexopt::Error> {
    let found = all.iter().find(|(word, _)| given == *word);
    let words = || all.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    found.map(|(_, value)| *value).ok_or_else(|| {
        lexopt::Error::from(format!("{}: it is {}", given.to_string_lossy(), words()))
    })
}
