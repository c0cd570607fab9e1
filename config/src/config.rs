//! The whole configuration, read and checked.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::ini::{self, Line, Section};
use crate::problem::Findings;
use crate::settings::Set;
use crate::{
    AuthType, Database, Effect, Files, Peer, Place, Problem, Problems, Reloadable, Row, Settings,
    SslMode, TABLE, UserRow,
};

/// Everything the file says, checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub settings: Settings,
    /// By the name clients ask for; the template `*` is in `autodb`.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// The template for databases that are not listed.
    pub autodb: Option<Arc<Database>>,
    pub users: BTreeMap<String, Arc<UserRow>>,
    pub peers: BTreeMap<u32, Arc<Peer>>,
    /// What was accepted but is probably not meant.
    pub warnings: Vec<Problem>,
    /// What was set and has no effect (yet).
    pub not_yet: Vec<Problem>,
    /// Where each setting that the file has was last set.
    pub places: BTreeMap<&'static str, Place>,
}

impl Config {
    /// The database that a client asks for by `name`: listed, or made from the template. Making
    /// one allocates: keep it.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<Arc<Database>> {
        let made = || self.autodb.as_ref().map(|auto| Arc::new(auto.named(name)));
        self.databases.get(name).cloned().or_else(made)
    }

    /// The line of `[users]` for `name`.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<UserRow>> {
        self.users.get(name)
    }
}

/// Reads `path` and what it includes. All that is wrong is said, not only the first.
pub fn load(path: &str, files: &dyn Files) -> Result<Config, Problems> {
    examine(path, files).map_err(|found| Problems(found.errors))
}

/// As [`load`], of a text that includes nothing.
pub fn parse(text: &str) -> Result<Config, Problems> {
    let mut found = Findings::default();
    let lines = ini::read_text("(text)", text, &NoFiles, &mut found);
    build("(text)", &lines, found).map_err(|found| Problems(found.errors))
}

/// As [`load`]; beside the errors it gives the warnings, and at least one of the former.
pub(crate) fn examine(path: &str, files: &dyn Files) -> Result<Config, Findings> {
    let mut found = Findings::default();
    let lines = ini::read(path, files, &mut found);
    build(path, &lines, found)
}

/// SET: changes one setting of a running configuration. A setting that only a restart can change
/// is left alone, and that is a success, as in PgBouncer.
pub fn set_runtime(config: &mut Config, name: &str, text: &str) -> Result<(), Problem> {
    let row = Settings::row(name).ok_or_else(|| unknown(name))?;
    if row.reloadable == Reloadable::No {
        return Ok(());
    }
    let mut settings = config.settings.clone();
    if !row.set(&mut settings, text) {
        return Err(invalid(row, text));
    }
    if let Some(why) = refused(&settings, name) {
        return Err(Problem::invalid(text, name).hint(why));
    }
    config.settings = settings;
    Ok(())
}

/// The text of [`parse`] stands alone.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_dir(&self, _: &str) -> bool {
        false
    }
}

fn build(path: &str, lines: &[Line], found: Findings) -> Result<Config, Findings> {
    let mut draft = Draft::new(path, found);
    for line in lines {
        if draft.found.full() {
            break;
        }
        draft.line(line);
    }
    draft.finish()
}

/// A configuration while it is read.
struct Draft {
    config: Config,
    found: Findings,
    /// Where each name was last given, for telling of the ones given twice.
    seen: BTreeMap<(Section, String), Place>,
}

impl Draft {
    fn new(path: &str, found: Findings) -> Self {
        let settings = Settings { conffile: Some(path.to_owned()), ..Settings::default() };
        let config = Config {
            settings,
            databases: BTreeMap::new(),
            autodb: None,
            users: BTreeMap::new(),
            peers: BTreeMap::new(),
            warnings: Vec::new(),
            not_yet: Vec::new(),
            places: BTreeMap::new(),
        };
        Self { config, found, seen: BTreeMap::new() }
    }

    fn line(&mut self, line: &Line) {
        let Line { section, key, value, place } = line;
        self.tell_twice(line);
        let (config, found) = (&mut self.config, &mut self.found);
        match section {
            Section::Pgbouncer => self.setting(key, value, place),
            Section::Databases => match Database::read(key, value, place, found) {
                Some(db) if key == "*" => config.autodb = Some(Arc::new(db)),
                Some(db) => _ = config.databases.insert(key.clone(), Arc::new(db)),
                None => {}
            },
            Section::Users => {
                if let Some(user) = UserRow::read(key, value, place, found) {
                    config.users.insert(key.clone(), Arc::new(user));
                }
            }
            Section::Peers => {
                if let Some(peer) = Peer::read(key, value, place, found) {
                    config.peers.insert(peer.id, Arc::new(peer));
                }
            }
        }
    }

    /// The last one wins, which inside one file is seldom meant. An included file may well want
    /// to overrule.
    fn tell_twice(&mut self, line: &Line) {
        let before = self.seen.insert((line.section, line.key.clone()), line.place.clone());
        if let Some(before) = before.filter(|before| before.file == line.place.file) {
            let what = format!("{} is given twice", line.key);
            let hint = format!("line {} no longer counts", before.line);
            self.found.warn(Problem::new(what).at(&line.place).hint(hint));
        }
    }

    fn setting(&mut self, name: &str, text: &str, place: &Place) {
        let Some(row) = Settings::row(name) else {
            return self.found.error(unknown(name).at(place));
        };
        self.config.places.insert(row.name, place.clone());
        match row.set_line(&mut self.config.settings, text) {
            Some(Set::Done) => {}
            Some(Set::WithoutComment) => {
                let what = format!("the comment behind the value of {name} is ignored");
                let hint = "PgBouncer takes it for a part of the value: give it a line of its own";
                self.found.warn(Problem::new(what).at(place).hint(hint));
            }
            Some(Set::WithComment) => {
                let what = format!("what looks like a comment is part of the value of {name}");
                let hint = "a comment needs a line of its own";
                self.found.warn(Problem::new(what).at(place).hint(hint));
            }
            None => self.found.error(invalid(row, text).at(place)),
        }
    }

    fn finish(mut self) -> Result<Config, Findings> {
        for row in TABLE {
            let place = self.config.places.get(row.name);
            if let Some(why) = refused(&self.config.settings, row.name) {
                let value = row.show(&self.config.settings).unwrap_or_default();
                let mut problem = Problem::invalid(&value, row.name).hint(why);
                problem.place = place.cloned();
                self.found.error(problem);
            } else if let Some(place) = place {
                let told = without_effect(row, &self.config.settings);
                self.config.not_yet.extend(told.map(|problem| problem.at(place)));
            }
        }
        if !self.found.errors.is_empty() {
            return Err(self.found);
        }
        self.config.warnings = self.found.warnings;
        Ok(self.config)
    }
}

fn unknown(name: &str) -> Problem {
    // PgBouncer's spelling: section, slash, key.
    let problem = Problem::new(format!("unknown parameter: pgbouncer/{name}"));
    problem.nearest(name, TABLE.iter().map(|row| row.name))
}

fn invalid(row: &Row, text: &str) -> Problem {
    Problem::invalid(text, row.name).hint(format!("expected {}", row.expects()))
}

/// Why a value that reads well cannot be served: what it asks for protects somebody, and must not
/// be left out in silence.
fn refused(settings: &Settings, name: &str) -> Option<&'static str> {
    match name {
        "auth_type" => match settings.auth_type {
            AuthType::Any
            | AuthType::Trust
            | AuthType::Plain
            | AuthType::Md5
            | AuthType::ScramSha256
            | AuthType::Pam
            | AuthType::Ldap
            | AuthType::Hba => None,
            AuthType::Cert if settings.client_tls_sslmode != SslMode::VerifyFull => {
                Some("auth_type=cert requires client_tls_sslmode=verify-full")
            }
            AuthType::Cert if settings.client_tls_ca_file.is_empty() => {
                Some("auth_type=cert requires client_tls_ca_file")
            }
            AuthType::Cert => None,
        },
        _ => None,
    }
}

/// What to say about a setting that asks for something and gets nothing.
fn without_effect(row: &Row, settings: &Settings) -> Option<Problem> {
    let (when, why) = match row.effect {
        Effect::Now => return None,
        Effect::NotYet(why) => ("has no effect yet", why),
        Effect::Never(why) => ("has no meaning here", why),
    };
    let value = row.show(settings);
    // Off is what we do.
    let off = matches!(value.as_deref(), None | Some("" | "0" | "disable"));
    let asks = !off && value.as_deref() != row.default;
    asks.then(|| Problem::new(format!("{} {when}", row.name)).hint(why))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shelf::Shelf;
    use crate::{Host, LoadBalance, PoolMode, Userlist, check, reload};

    fn config(text: &str) -> Config {
        match parse(text) {
            Ok(config) => config,
            Err(problems) => panic!("{problems}"),
        }
    }

    fn error(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    /// The file of a published deployment, whose comments behind values stop PgBouncer.
    const CARDS: &str = "\
[databases]
card_transactions_db = host=postgres port=5432 dbname=card_transactions_db  # the only one

[pgbouncer]
listen_addr = *                      # all interfaces
listen_port = 6432
auth_type = scram-sha-256            # as PostgreSQL
auth_file = /etc/pgbouncer/userlist.txt   # made at deployment
pool_mode = transaction              # shares servers
max_client_conn = 1000               # 8 services of 20
default_pool_size = 20
min_pool_size = 5                    # warm
reserve_pool_size = 5
max_db_connections = 40              # PostgreSQL's limit is 100
server_lifetime = 3600               # an hour
server_idle_timeout = 600
server_connect_timeout = 15
server_login_retry = 15
client_login_timeout = 60
server_reset_query = DISCARD ALL     # a clean start
ignore_startup_parameters = extra_float_digits  # JDBC
log_connections = 1
log_disconnections = 1
log_pooler_errors = 1
stats_period = 60                    ; a minute
";

    #[test]
    fn a_published_file_with_comments_behind_values_loads() {
        let config = config(CARDS);
        let settings = &config.settings;
        assert_eq!(*settings.listen_addr, ["*"]);
        assert_eq!(settings.auth_type, AuthType::ScramSha256);
        assert_eq!(settings.auth_file.as_deref(), Some("/etc/pgbouncer/userlist.txt"));
        assert_eq!(settings.pool_mode, PoolMode::Transaction);
        assert_eq!(settings.max_client_conn, 1000);
        assert_eq!(settings.min_pool_size, 5);
        assert_eq!(settings.max_db_connections, 40);
        assert_eq!(settings.server_lifetime, Duration::from_secs(3600));
        assert_eq!(settings.server_reset_query, "DISCARD ALL");
        assert!(settings.ignore_startup_parameters.has("extra_float_digits"));
        let db = &config.databases["card_transactions_db"];
        assert_eq!(db.hosts, [Host::Name("postgres".to_owned())]);
        assert_eq!(config.not_yet, []);
        let commented = CARDS.lines().filter(|line| line.contains(['#', ';'])).count();
        assert_eq!(config.warnings.len(), commented, "{:#?}", config.warnings);
        assert_eq!(
            config.warnings[1].to_string(),
            "the comment behind the value of listen_addr is ignored in configuration ((text):5): \
             PgBouncer takes it for a part of the value: give it a line of its own"
        );
    }

    #[test]
    fn the_smallest_file_is_all_defaults() {
        let config = config("[pgbouncer]");
        let defaults = Settings { conffile: Some("(text)".to_owned()), ..Settings::default() };
        assert_eq!(config.settings, defaults);
        assert!(config.warnings.is_empty() && config.not_yet.is_empty());
        assert!(config.database("any").is_none());
    }

    #[test]
    fn the_last_one_wins_and_we_say_so() {
        let twice = "[pgbouncer]\nverbose = 1\n[databases]\na = port=1\n[pgbouncer]\n\
            verbose = 2\n[databases]\na = port=2";
        let config = config(twice);
        assert_eq!((config.settings.verbose, config.databases["a"].port), (2, 2));
        let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "verbose is given twice in configuration ((text):6): line 2 no longer counts",
                "a is given twice in configuration ((text):8): line 4 no longer counts",
            ]
        );
    }

    #[test]
    fn an_included_file_may_overrule_in_silence() {
        let files = Shelf::of([
            ("a", "[pgbouncer]\nverbose = 1\nconffile = c\n%include b"),
            ("b", "verbose = 2"),
        ]);
        let config = load("a", &files).expect("a good configuration");
        assert_eq!((config.settings.verbose, config.warnings.len()), (2, 0));
        assert_eq!(config.settings.conffile.as_deref(), Some("c"));
        assert_eq!(config.places["verbose"].to_string(), "b:1");
        assert!(load("none", &files).is_err());
    }

    /// One file, and everything that is wrong with it.
    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let text = "[pgbouncer]\nmax_clients = 1\npool_mode = transactoin\n[databases]\n\
            a = hots=x\nb = pool_mode=tx\n[users]\nu = query_timout=1\n[peers]\n0 = host=x\n\
            1 = port=1\n[user]\nx = y";
        let want = [
            "unknown parameter: pgbouncer/max_clients in configuration ((text):2): did you mean \"max_client_conn\"?",
            "invalid value \"transactoin\" for parameter pool_mode in configuration ((text):3): expected one of session, transaction, statement",
            "unrecognized connection parameter: hots in configuration ((text):5): did you mean \"host\"?",
            "invalid value \"tx\" for parameter pool_mode in configuration ((text):6): expected one of session, transaction, statement",
            "unrecognized user parameter: query_timout in configuration ((text):8): did you mean \"query_timeout\"?",
            "invalid peer id \"0\" in configuration ((text):10): expected a whole number from 1 to 65535",
            "host was not provided for peer 1 in configuration ((text):11)",
            "unknown section: user in configuration ((text):12): did you mean \"users\"?",
        ];
        let Problems(mut problems) = parse(text).expect_err("wrong");
        // The grammar is read before the values.
        problems.sort_by_key(|problem| problem.place.as_ref().map(|place| place.line));
        let got: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn settings_without_effect_are_named_when_they_ask_for_something() {
        let quiet = "[pgbouncer]\nserver_tls_sslmode = prefer\nclient_tls_sslmode = disable\n\
            so_reuseport = 0\npeer_id = 0\ntcp_defer_accept = 0\npkt_buf = 4096";
        assert_eq!(config(quiet).not_yet, []);
        let loud = "[pgbouncer]\nso_reuseport = 0\npkt_buf = 8192\n\
            [databases]\na =\n[peers]\n1 = host=x";
        let got: Vec<_> = config(loud).not_yet.iter().map(ToString::to_string).collect();
        let want = [
            "pkt_buf has no meaning here in configuration ((text):3): buffers come from a budget of their own",
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn a_database_says_all_it_can() {
        let text = "[pgbouncer]\n[databases]\n'my db' = dbname=d host=10.0.0.1,::1,db.example,/run \
            port=1 user=u password='it''s' pool_size=2 min_pool_size=3 reserve_pool_size=4 \
            connect_query='set x = 1' pool_mode=STATEMENT query_wait_timeout=5 server_lifetime=6 \
            load_balance_hosts=disable max_db_connections=7 max_db_client_connections=8 \
            client_encoding=UTF8 datestyle=ISO timezone=UTC application_name=a\n\
            [users]\nu = pool_size=1";
        let config = config(text);
        let db = config.database("my db").expect("listed");
        assert_eq!((db.server_name(), db.hosts.len(), db.port), ("d", 4, 1));
        assert_eq!(db.user.as_deref(), Some("u"));
        assert_eq!(db.password.as_ref().map(|secret| secret.0.as_str()), Some("it's"));
        let sizes = [db.pool_size, db.min_pool_size, db.reserve_pool_size];
        assert_eq!(sizes, [2, 3, 4].map(Some));
        assert_eq!(db.connect_query.as_deref(), Some("set x = 1"));
        assert_eq!(db.pool_mode, Some(PoolMode::Statement));
        let times = [db.query_wait_timeout, db.server_lifetime];
        assert_eq!(times, [5, 6].map(|n| Some(Duration::from_secs(n))));
        assert_eq!(db.load_balance_hosts, LoadBalance::Disable);
        assert_eq!([db.max_db_connections, db.max_db_client_connections], [7, 8].map(Some));
        let texts = [&db.client_encoding, &db.datestyle, &db.timezone, &db.application_name];
        assert_eq!(texts.map(|text| text.as_deref()), ["UTF8", "ISO", "UTC", "a"].map(Some));
        assert!(config.warnings.is_empty());
        assert!(!format!("{config:?}").contains("it's"), "the password shows");
    }

    #[test]
    fn the_star_makes_databases() {
        let config = config("[pgbouncer]\n[databases]\na =\n* = host=x port=7");
        assert_eq!(config.database("a").map(|db| db.port), Some(5432));
        let made = config.database("b").expect("made");
        assert_eq!((made.name.as_str(), made.server_name(), made.port), ("b", "b", 7));
    }

    #[test]
    fn databases_that_cannot_be() {
        let cases = [
            ("pgbouncer = host=x", "database name \"pgbouncer\" is reserved"),
            (&format!("{} =", "n".repeat(64)), "database name"),
            ("a = host", "syntax error in connection string"),
            ("a = host=''", "syntax error in connection string"),
            ("a = host=x,,y", "invalid value \"x,,y\" for parameter host"),
            ("a = port=0", "invalid value \"0\" for parameter port"),
            ("a = port=65536", "invalid value \"65536\" for parameter port"),
            ("a = pool_size=x", "invalid value \"x\" for parameter pool_size"),
            ("a = pool_size=-1", "invalid value \"-1\" for parameter pool_size"),
            ("a = pool_size=2147483648", "invalid value \"2147483648\" for parameter pool_size"),
            ("a = auth_dbname=pgbouncer", "invalid value \"pgbouncer\" for parameter auth_dbname"),
            ("a = load_balance_hosts=x", "invalid value \"x\" for parameter load_balance_hosts"),
        ];
        for (line, want) in cases {
            let got = error(&format!("[pgbouncer]\n[databases]\n{line}"));
            assert!(got.starts_with(want), "{line}: {got}");
            assert!(got.contains("((text):3)"), "{line}: {got}");
        }
        config(&format!("[pgbouncer]\n[databases]\n{} =", "n".repeat(63)));
        config("[pgbouncer]\n[databases]\na = port=65535 pool_size=2147483647");
    }

    #[test]
    fn a_password_is_never_repeated() {
        let long = "secret".repeat(11_000);
        let got = error(&format!("[pgbouncer]\n[databases]\na = user=u password={long}"));
        assert!(got.starts_with("password too long") && !got.contains("secretsecret"), "{got}");
    }

    #[test]
    fn numbers_in_rows_are_read_as_far_as_they_go() {
        let config =
            config("[pgbouncer]\n[databases]\na = pool_size=5x\n[users]\nu = query_timeout=1.5");
        assert_eq!(config.databases["a"].pool_size, Some(5));
        assert_eq!(config.users["u"].query_timeout, Some(Duration::from_secs(1)));
        let warnings: Vec<_> =
            config.warnings.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(
            warnings,
            [
                "\"5x\" for parameter pool_size is read as 5",
                "\"1.5\" for parameter query_timeout is read as 1",
            ]
        );
    }

    #[test]
    fn a_hundred_errors_are_enough() {
        let text = format!("[pgbouncer]\n{}", "nonsense\n".repeat(100_000));
        assert_eq!(parse(&text).expect_err("nonsense").0.len(), 100);
        let text = format!("[pgbouncer]\n{}", "nonsense = 1\n".repeat(100_000));
        assert!(parse(&text).expect_err("nonsense").0.len() <= 101);
    }

    /// A xorshift generator: the same bytes in every run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % sides as u64) as usize
        }
    }

    /// Bytes from nowhere, and a good file with some bytes knocked about: nothing panics, and what
    /// loads can be reloaded, shown and checked.
    #[test]
    fn no_bytes_make_it_fall_over() {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let good =
            format!("{CARDS}[users]\n'u' = pool_size=1 query_timeout=2\n[peers]\n1 = host=x\n");
        let pieces = b"=#;'\"[]%*\n \0,\xff\xc3\xa4-+.xe09";
        let before = config(&good);
        let mut loaded = 0;
        for _ in 0..3000 {
            let mut bytes = good.clone().into_bytes();
            if dice.roll(4) == 0 {
                bytes = (0..dice.roll(200)).map(|_| dice.roll(256) as u8).collect();
            }
            for _ in 0..dice.roll(6) {
                let at = dice.roll(bytes.len().max(1)).min(bytes.len());
                match dice.roll(3) {
                    0 => _ = bytes.drain(at..(at + dice.roll(3)).min(bytes.len())),
                    1 => bytes.insert(at, pieces[dice.roll(pieces.len())]),
                    _ => bytes.extend_from_within(at..(at + dice.roll(30)).min(bytes.len())),
                }
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Ok(fresh) = parse(&text) {
                loaded += 1;
                let (after, _) = reload(&before, fresh);
                assert!(after.settings.shown().count() > 100);
            }
            let files = Shelf([("a".to_owned(), bytes)].into());
            assert!(!check("a", &files, None, |_| Userlist::default()).to_string().is_empty());
        }
        assert!((300..2700).contains(&loaded), "{loaded} of 3000 loaded: too few of a kind");
    }
}
