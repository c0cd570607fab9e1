//! What `howdah check FILE` says.

use std::collections::BTreeSet;
use std::fmt;

use crate::config::examine;
use crate::{
    AuthType, Config, Database, Files, Host, PoolMode, Problem, Settings, UserRow, workers,
};

/// Everything there is to say about a file. Its `Display` is what is printed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub file: String,
    /// Each of these stops the boot.
    pub errors: Vec<Problem>,
    pub warnings: Vec<Problem>,
    /// What was set and has no effect (yet).
    pub not_yet: Vec<Problem>,
    /// What the file comes to; empty if there are errors.
    pub summary: Vec<String>,
    /// What to think about, and how to mend it.
    pub advice: Vec<String>,
}

/// How many files this process may have open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FdLimit {
    pub soft: u64,
    pub hard: u64,
}

impl FdLimit {
    /// This process's, from `/proc/self/limits`; `None` where there is no such file.
    #[must_use]
    pub fn read(files: &dyn Files) -> Option<Self> {
        let text = String::from_utf8(files.read("/proc/self/limits").ok()?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        let mut words = line.split_whitespace().map(|word| match word {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        });
        Some(Self { soft: words.next()??, hard: words.next()?? })
    }
}

/// What an auth_file says, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub struct Userlist {
    pub names: BTreeSet<String>,
    /// Lines that cannot be read, and why.
    pub flaws: Vec<String>,
}

/// Checks `path`. `limit` is what the process will run under, if known; `read_users` reads an auth_file.
#[must_use]
pub fn check(
    path: &str,
    files: &dyn Files,
    limit: Option<FdLimit>,
    read_users: impl Fn(&[u8]) -> Userlist,
) -> Report {
    let mut report = Report { file: path.to_owned(), ..Report::default() };
    let mut config = match examine(path, files) {
        Ok(config) => config,
        Err(found) => {
            report.errors = found.errors;
            report.warnings = found.warnings;
            return report;
        }
    };
    report.warnings = std::mem::take(&mut config.warnings);
    report.not_yet = std::mem::take(&mut config.not_yet);
    let users = config.settings.auth_file.as_deref().and_then(|path| match files.read(path) {
        Ok(bytes) => {
            let users = read_users(&bytes);
            let told = users.flaws.iter().map(|flaw| Problem::new(format!("{path}: {flaw}")));
            report.warnings.extend(told.map(|flaw| flaw.hint("nobody is known by this line")));
            Some(users.names)
        }
        Err(why) => {
            let what = format!("could not open auth_file {path}: {why}");
            report.warnings.push(Problem::new(what));
            None
        }
    });
    let survey = Survey { config: &config, settings: &config.settings, files, users, limit };
    survey.summarize(&mut report.summary);
    survey.who_can_come(&mut report);
    survey.who_is_let_in(&mut report);
    survey.who_is_named(&mut report);
    survey.are_the_directories_there(&mut report);
    survey.is_it_known_where_to(&mut report);
    survey.are_there_files_enough(&mut report);
    survey.do_the_pools_fit(&mut report);
    survey.does_the_mode_fit(&mut report);
    report
}

/// What the questions below are asked of; each is about one thing.
struct Survey<'a> {
    config: &'a Config,
    settings: &'a Settings,
    files: &'a dyn Files,
    /// The names in auth_file, if it could be read.
    users: Option<BTreeSet<String>>,
    limit: Option<FdLimit>,
}

/// Of databases, users and the like, no more are listed.
const LISTED_MAX: usize = 50;

impl Survey<'_> {
    fn summarize(&self, out: &mut Vec<String>) {
        let settings = self.settings;
        let mut places = settings.listen_addr.to_vec();
        for place in &mut places {
            *place = format!("{place} port {}", settings.listen_port);
        }
        if !settings.unix_socket_dir.is_empty() {
            let socket = format!(".s.PGSQL.{}", settings.listen_port);
            places.push(format!("unix:{}/{socket}", settings.unix_socket_dir));
        }
        out.push(format!("listens on: {}", places.join(", ")));
        out.push(format!("workers: {}", workers(settings)));
        let known = self.users.as_ref().map_or(0, BTreeSet::len);
        out.push(format!("authentication: {}, {known} users in auth_file", settings.auth_type));
        out.push(format!("clients: {} at most", settings.max_client_conn));
        let listed = self.config.databases.values().chain(&self.config.autodb);
        for db in listed.take(LISTED_MAX) {
            out.push(self.pool(db));
        }
        if self.config.databases.len() > LISTED_MAX {
            out.push(format!("and more databases: {} in all", self.config.databases.len()));
        }
        if let Some(FdLimit { soft, hard }) = self.limit {
            // PgBouncer's line in the log, to the letter.
            out.push(format!(
                "kernel file descriptor limit: {soft} (hard: {hard}); max_client_conn: {}, max expected fd use: {}",
                settings.max_client_conn,
                self.config.fds_expected(known)
            ));
        }
    }

    fn pool(&self, db: &Database) -> String {
        let config = self.config;
        let hosts: Vec<String> = config.hosts(db).iter().map(Host::to_string).collect();
        let mut text = format!("database {}: ", db.name);
        if let Some(dbname) = &db.dbname {
            text += &format!("{dbname} on ");
        }
        text +=
            &format!("{} port {}, {} mode, ", hosts.join(","), db.port, config.pool_mode(db, None));
        text += &match config.pool_size(db, None) {
            Some(size) => format!("{size} servers"),
            None => "servers without limit".to_owned(),
        };
        text += if db.user.is_some() { "" } else { " per user" };
        match config.reserve_pool_size(db, None) {
            0 => {}
            reserve => text += &format!(" and {reserve} in reserve"),
        }
        match config.min_pool_size(db, None) {
            0 => {}
            least => text += &format!(", {least} kept open"),
        }
        if let Some(most) = config.max_db_connections(db, None) {
            text += &format!(", at most {most} over all users");
        }
        text
    }

    fn who_can_come(&self, report: &mut Report) {
        let settings = self.settings;
        if settings.listen_addr.is_empty() && settings.unix_socket_dir.is_empty() {
            let problem = Problem::new("nowhere to listen on");
            report.warnings.push(problem.hint("set listen_addr, or hand over sockets by systemd"));
        }
        if self.config.databases.is_empty() && self.config.autodb.is_none() {
            let problem = Problem::new("no database is listed");
            report.warnings.push(problem.hint("add one to [databases], or `*` for all"));
        }
    }

    fn who_is_let_in(&self, report: &mut Report) {
        let settings = self.settings;
        let auth = settings.auth_type;
        let forced = |db: &&std::sync::Arc<Database>| db.user.is_some();
        if auth == AuthType::Any {
            let all = self.config.databases.values().chain(&self.config.autodb);
            for db in all.filter(|db| !forced(db)).take(LISTED_MAX) {
                let what = format!("auth_type = any, and database {} has no user", db.name);
                report.warnings.push(Problem::new(what).hint("every login will be refused"));
            }
        } else if settings.auth_file.is_none() && !self.asks_others() {
            let problem = Problem::new("auth_file is not set");
            report.warnings.push(problem.hint("no user is known, so nobody can log in"));
        }
        let open = !settings.listen_addr.is_empty();
        if open && matches!(auth, AuthType::Any | AuthType::Trust) {
            report.advice.push(format!(
                "auth_type = {auth} lets in whoever reaches the port: use scram-sha-256, or an empty listen_addr."
            ));
        }
        if open && auth == AuthType::Plain {
            let advice = "auth_type = plain sends passwords readably: use scram-sha-256.";
            report.advice.push(advice.to_owned());
        }
        if open && matches!(auth, AuthType::Ldap | AuthType::Pam) {
            report.advice.push(format!(
                "auth_type = {auth} has passwords sent readably: let clients use TLS (client_tls_sslmode = require)."
            ));
        }
        for name in self.askers().filter(|name| !self.has_secret(name)) {
            let problem = Problem::new(format!("auth_user {name} is not in auth_file"));
            report
                .warnings
                .push(problem.hint("it can ask only servers that want no password of it"));
        }
    }

    /// Whether users may be known that stand in no file: a server knows them, a directory or the system; or rules say who does.
    fn asks_others(&self) -> bool {
        let asks =
            matches!(self.settings.auth_type, AuthType::Ldap | AuthType::Pam | AuthType::Hba);
        asks || self.askers().next().is_some()
    }

    /// Who asks servers for users.
    fn askers(&self) -> impl Iterator<Item = &str> {
        let all = self.config.databases.values().chain(&self.config.autodb);
        let named = all.filter_map(|db| db.auth_user.as_deref());
        let askers: BTreeSet<&str> = named.chain(self.settings.auth_user.as_deref()).collect();
        askers.into_iter()
    }

    fn has_secret(&self, user: &str) -> bool {
        self.users.as_ref().is_some_and(|users| users.contains(user))
    }

    fn who_is_named(&self, report: &mut Report) {
        let Some(users) = self.users.as_ref().filter(|_| !self.asks_others()) else { return };
        let all = self.config.databases.values().chain(&self.config.autodb);
        let forced: BTreeSet<&str> = all.filter_map(|db| db.user.as_deref()).collect();
        let known = |name: &str| users.contains(name) || forced.contains(name);
        let rows = self.config.users.keys().filter(|name| !known(name));
        for name in rows.take(LISTED_MAX) {
            let problem = Problem::new(format!("user {name} of [users] is not in auth_file"));
            report.warnings.push(problem.nearest(name, users.iter().map(String::as_str)));
        }
        let settings = self.settings;
        for (list, names) in
            [("admin_users", &settings.admin_users), ("stats_users", &settings.stats_users)]
        {
            // Of the owner's account, it gets in by the unix socket.
            let known = |name: &str| users.contains(name) || name == "pgbouncer";
            for name in names.iter().filter(|name| !known(name)).take(LISTED_MAX) {
                let problem = Problem::new(format!("{name} of {list} is not in auth_file"));
                let problem = problem.nearest(name, users.iter().map(String::as_str));
                report.warnings.push(problem);
            }
        }
    }

    fn are_the_directories_there(&self, report: &mut Report) {
        let settings = self.settings;
        let socket_dir = Some(settings.unix_socket_dir.as_str());
        let parent = |path: &'_ str| path.rsplit_once('/').map(|(dir, _)| dir.to_owned());
        let dirs = [
            ("unix_socket_dir", socket_dir.map(str::to_owned)),
            ("logfile", parent(&settings.logfile)),
            ("pidfile", parent(&settings.pidfile)),
        ];
        for (name, dir) in dirs {
            // No slash is the working directory, nothing before it the root.
            let dir = dir.filter(|dir| !dir.is_empty() && !dir.starts_with('@'));
            if let Some(dir) = dir.filter(|dir| !self.files.is_dir(dir)) {
                let problem = Problem::new(format!("the directory {dir} of {name} does not exist"));
                report.warnings.push(problem.hint("it has to by the start, which fails else"));
            }
        }
    }

    fn is_it_known_where_to(&self, report: &mut Report) {
        let all = self.config.databases.values().chain(&self.config.autodb);
        let nowhere = |db: &&std::sync::Arc<Database>| {
            self.config.hosts(db).iter().any(|host| host.to_string().is_empty())
        };
        for db in all.filter(nowhere).take(LISTED_MAX) {
            let what = format!("database {} has no host, and unix_socket_dir is empty", db.name);
            report.warnings.push(Problem::new(what).hint("say host=, nobody is served by it else"));
        }
    }

    fn are_there_files_enough(&self, report: &mut Report) {
        let Some(limit) = self.limit else { return };
        let expected = self.config.fds_expected(self.users.as_ref().map_or(0, BTreeSet::len));
        if expected > limit.soft {
            report.advice.push(format!(
                "{expected} files may come to be open, and the limit is {}: raise it (LimitNOFILE={expected} for systemd, ulimit -n elsewhere), or lower max_client_conn.",
                limit.soft
            ));
        }
    }

    fn do_the_pools_fit(&self, report: &mut Report) {
        let config = self.config;
        for db in config.databases.values().chain(&config.autodb).take(LISTED_MAX) {
            let Some(size) = config.pool_size(db, None).map(std::num::NonZeroU32::get) else {
                report.advice.push(format!(
                    "database {} has pools without a limit: PostgreSQL's max_connections is the only end.",
                    db.name
                ));
                continue;
            };
            let least = config.min_pool_size(db, None);
            if least > size {
                report.advice.push(format!(
                    "database {}: min_pool_size {least} is more than pool_size {size}, which is where it ends.",
                    db.name
                ));
            }
            let reserve = config.reserve_pool_size(db, None);
            let whole = size.saturating_add(reserve);
            match config.max_db_connections(db, None).map(std::num::NonZeroU32::get) {
                Some(most) if most < size => report.advice.push(format!(
                    "database {}: max_db_connections {most} is less than pool_size {size}: no pool ever gets that many.",
                    db.name
                )),
                Some(most) if db.user.is_none() && most / whole.max(1) < 2 => {
                    report.advice.push(format!(
                        "database {}: {size} servers per user and {reserve} in reserve, {most} over all: two busy users do not both get their share.",
                        db.name
                    ));
                }
                _ => {}
            }
            if size > self.settings.max_client_conn {
                report.advice.push(format!(
                    "database {}: pool_size {size} is more than max_client_conn {}: there are never clients for so many servers.",
                    db.name, self.settings.max_client_conn
                ));
            }
        }
    }

    fn does_the_mode_fit(&self, report: &mut Report) {
        let settings = self.settings;
        let session = |db: &Database, user: Option<&UserRow>| {
            self.config.pool_mode(db, user) == PoolMode::Session
        };
        let all = self.config.databases.values().chain(&self.config.autodb);
        let in_session: Vec<&str> = all
            .filter(|db| session(db, None))
            .map(|db| db.name.as_str())
            .take(LISTED_MAX)
            .collect();
        if !in_session.is_empty() {
            report.advice.push(format!(
                "session mode ({}): a server belongs to its client until the client leaves, so a client beyond the pool's size waits for another to leave. pool_mode = transaction shares servers.",
                in_session.join(", ")
            ));
        }
        let set = |name| self.config.places.contains_key(name);
        if set("server_reset_query")
            && settings.pool_mode != PoolMode::Session
            && !settings.server_reset_query_always
        {
            report.advice.push(format!(
                "server_reset_query is for session mode and does not run in {} mode.",
                settings.pool_mode
            ));
        }
        let refuses = !settings.track_session_state;
        if refuses && !settings.ignore_startup_parameters.has("extra_float_digits") {
            report.advice.push(
                "ignore_startup_parameters does not have extra_float_digits, which older JDBC and Go drivers send: with track_session_state = 0 they are refused."
                    .to_owned(),
            );
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match (self.errors.len(), self.warnings.len() + self.not_yet.len()) {
            (0, 0) => "good".to_owned(),
            (0, 1) => "good, with one warning".to_owned(),
            (0, warnings) => format!("good, with {warnings} warnings"),
            (errors, _) => format!("refused, for {errors} errors"),
        };
        writeln!(f, "{}: {verdict}", self.file)?;
        let problems = [
            ("errors", &self.errors),
            ("warnings", &self.warnings),
            ("without effect", &self.not_yet),
        ];
        for (title, problems) in problems {
            paragraph(f, title, problems)?;
        }
        paragraph(f, "what it comes to", &self.summary)?;
        paragraph(f, "advice", &self.advice)
    }
}

fn paragraph(f: &mut fmt::Formatter<'_>, title: &str, lines: &[impl fmt::Display]) -> fmt::Result {
    if !lines.is_empty() {
        writeln!(f, "\n{title}")?;
    }
    lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shelf::Shelf;

    /// Names in quotes; what has none cannot be read.
    fn users(bytes: &[u8]) -> Userlist {
        let mut users = Userlist::default();
        for line in String::from_utf8_lossy(bytes).lines().filter(|line| !line.starts_with(';')) {
            match line.strip_prefix('"').and_then(|line| line.split_once('"')) {
                Some((name, _)) => _ = users.names.insert(name.to_owned()),
                None => users.flaws.push(format!("{line} is no user")),
            }
        }
        users
    }

    const LIMIT: Option<FdLimit> = Some(FdLimit { soft: 1024, hard: 4096 });

    fn report(text: &str) -> Report {
        let files = Shelf::of([
            ("a.ini", text),
            ("users.txt", "\"ann\" \"x\"\n; none\n\"bob\" \"y\"\n"),
            ("bad.txt", "\"ann\" \"x\"\nbob y\n"),
            (
                "/proc/self/limits",
                "Limit  Soft Hard Units\nMax open files   1024   4096   files \n",
            ),
        ]);
        assert_eq!(FdLimit::read(&files), LIMIT);
        check("a.ini", &files, LIMIT, users)
    }

    #[test]
    fn a_good_file_is_explained() {
        let report = report(
            "[pgbouncer]
            listen_addr = 127.0.0.1
            auth_type = scram-sha-256
            auth_file = users.txt
            admin_users = ann
            pool_mode = transaction
            workers = 2
            [databases]
            shop = host=10.0.0.1,10.0.0.2 dbname=s reserve_pool=5 min_pool_size=1 max_db_connections=50
            * = user=ann pool_size=0",
        );
        assert_eq!(
            report.to_string(),
            "a.ini: good

what it comes to
  listens on: 127.0.0.1 port 6432, unix:/tmp/.s.PGSQL.6432
  workers: 2
  authentication: scram-sha-256, 2 users in auth_file
  clients: 100 at most
  database shop: s on 10.0.0.1,10.0.0.2 port 5432, transaction mode, 20 servers per user and 5 in reserve, 1 kept open, at most 50 over all users
  database *: /tmp port 5432, transaction mode, servers without limit
  kernel file descriptor limit: 1024 (hard: 4096); max_client_conn: 100, max expected fd use: 152

advice
  database * has pools without a limit: PostgreSQL's max_connections is the only end.
"
        );
    }

    #[test]
    fn errors_come_with_the_warnings_and_nothing_else() {
        let report = report("[pgbouncer]\npool_mode = tx\nverbose = 1 # x");
        let want = "a.ini: refused, for 1 errors\n\nerrors\n  invalid value \"tx\" for parameter pool_mode";
        assert!(report.to_string().starts_with(want), "{report}");
        assert_eq!((report.errors.len(), report.warnings.len()), (1, 1));
        assert!(report.summary.is_empty() && report.advice.is_empty());
    }

    /// Each line alone, and what is said about it.
    #[test]
    fn what_is_unwise_is_said() {
        let cases = [
            ("unix_socket_dir =", "nowhere to listen on"),
            ("", "no database is listed"),
            ("auth_type = any\n[databases]\na =", "database a has no user"),
            ("", "auth_file is not set"),
            ("auth_file = none", "could not open auth_file none: entity not found"),
            ("auth_file = bad.txt", "bad.txt: bob y is no user: nobody is known by this line"),
            ("auth_file = users.txt\nauth_user = zed", "auth_user zed is not in auth_file"),
            ("listen_addr = *\nauth_type = ldap", "has passwords sent readably"),
            ("unix_socket_dir =\n[databases]\na =", "database a has no host"),
            ("listen_addr = *\nauth_type = trust", "lets in whoever reaches the port"),
            ("listen_addr = *\nauth_type = plain", "sends passwords readably"),
            (
                "auth_file = users.txt\n[users]\nan =",
                "user an of [users] is not in auth_file: did you mean \"ann\"?",
            ),
            ("auth_file = users.txt\nstats_users = zoe", "zoe of stats_users is not in auth_file"),
            ("unix_socket_dir = /missing", "directory /missing of unix_socket_dir does not exist"),
            ("logfile = /missing/log", "directory /missing of logfile does not exist"),
            ("pidfile = /missing/pid", "directory /missing of pidfile does not exist"),
            ("max_client_conn = 2000", "2012 files may come to be open, and the limit is 1024"),
            ("[databases]\na = pool_size=0", "database a has pools without a limit"),
            ("[databases]\na = min_pool_size=21", "min_pool_size 21 is more than pool_size 20"),
            (
                "[databases]\na = max_db_connections=9",
                "max_db_connections 9 is less than pool_size 20",
            ),
            (
                "[databases]\na = max_db_connections=39",
                "two busy users do not both get their share",
            ),
            (
                "max_client_conn = 5\n[databases]\na =",
                "pool_size 20 is more than max_client_conn 5",
            ),
            ("[databases]\na =", "session mode (a)"),
            ("pool_mode = transaction\nserver_reset_query = X", "does not run in transaction mode"),
            ("track_session_state = 0", "does not have extra_float_digits"),
        ];
        let quiet = "[pgbouncer]\nauth_file = users.txt\npool_mode = transaction\n[databases]\na =";
        let quiet = report(quiet).to_string();
        for (text, want) in cases {
            let got = report(&format!("[pgbouncer]\n{text}")).to_string();
            assert!(got.contains(want), "{text}: {got}");
            assert!(!quiet.contains(want), "{want}: {quiet}");
        }
    }
}
