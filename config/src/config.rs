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
    let mut found = Findings::default();
    let lines = ini::read(path, files, &mut found);
    build(path, &lines, found)
}

/// As [`load`], of a text that includes nothing.
pub fn parse(text: &str) -> Result<Config, Problems> {
    let mut found = Findings::default();
    let lines = ini::read_text("(text)", text, &NoFiles, &mut found);
    build("(text)", &lines, found)
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

fn build(path: &str, lines: &[Line], found: Findings) -> Result<Config, Problems> {
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

    fn finish(mut self) -> Result<Config, Problems> {
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
        self.tell_rows_not_yet();
        if !self.found.errors.is_empty() {
            return Err(Problems(self.found.errors));
        }
        self.config.warnings = self.found.warnings;
        Ok(self.config)
    }

    /// What the rows of the other sections ask for in vain.
    fn tell_rows_not_yet(&mut self) {
        let config = &mut self.config;
        for db in config.databases.values().chain(&config.autodb) {
            let keys = [
                ("auth_user", db.auth_user.is_some()),
                ("auth_query", db.auth_query.is_some()),
                ("auth_dbname", db.auth_dbname.is_some()),
            ];
            for (key, _) in keys.iter().filter(|(_, set)| *set) {
                let what = format!("{key} of database {} has no effect", db.name);
                let mut problem = Problem::new(what);
                problem.place = self.seen.get(&(Section::Databases, db.name.clone())).cloned();
                config.not_yet.push(problem.hint("auth_query is not supported yet"));
            }
        }
        if !config.peers.is_empty() {
            let problem = Problem::new("section [peers] has no effect");
            config.not_yet.push(problem.hint("peers are not supported yet"));
        }
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
    use SslMode::{Allow, Disable, Prefer};
    match name {
        "auth_type" => match settings.auth_type {
            AuthType::Any
            | AuthType::Trust
            | AuthType::Plain
            | AuthType::Md5
            | AuthType::ScramSha256 => None,
            AuthType::Cert | AuthType::Hba | AuthType::Pam | AuthType::Ldap => {
                Some("not supported yet")
            }
        },
        "client_tls_sslmode" => match settings.client_tls_sslmode {
            Disable | Allow | Prefer => None,
            _ => Some("TLS is not supported yet, and clients must not be left without it"),
        },
        "server_tls_sslmode" => match settings.server_tls_sslmode {
            Disable | Allow | Prefer => None,
            _ => Some("TLS is not supported yet, and servers must not be spoken to without it"),
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
