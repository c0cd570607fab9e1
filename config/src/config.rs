//! The whole configuration, read and checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Database, Files, Peer, Problem, Problems, Settings, UserRow};

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
}

impl Config {
    /// The database that a client asks for by `name`: listed, or made from the template.
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
    let _ = (path, files);
    todo!()
}

/// As [`load`], of a text that includes nothing.
pub fn parse(text: &str) -> Result<Config, Problems> {
    let _ = text;
    todo!()
}

/// SET: changes one setting of a running configuration. A setting that only a restart can change
/// is left alone, and that is a success, as in PgBouncer.
pub fn set_runtime(config: &mut Config, name: &str, text: &str) -> Result<(), Problem> {
    let _ = (config, name, text);
    todo!()
}
