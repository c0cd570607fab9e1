//! What changes when the configuration is read again.

use crate::Config;

/// What a RELOAD changed. Names are sorted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Diff {
    /// Settings whose value in force is another one.
    pub settings: Vec<&'static str>,
    /// Settings of which the file says something new that only a restart will bring about.
    pub kept: Vec<&'static str>,
    pub databases_added: Vec<String>,
    /// Their clients are closed: `database removed`.
    pub databases_removed: Vec<String>,
    /// Their servers are obsolete: `database configuration changed`.
    pub databases_obsolete: Vec<String>,
    /// Something else about them changed, such as a limit; their servers will do.
    pub databases_changed: Vec<String>,
    /// What happened to the template `*`.
    pub autodb: Changed,
    /// Added, removed and changed.
    pub users: Vec<String>,
    /// Added, removed and changed.
    pub peers: Vec<u32>,
    /// A `server_tls_*` setting changed: every server is obsolete.
    pub server_tls: bool,
}

/// What happened to the template `*`, and so to the databases made from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Changed {
    #[default]
    Same,
    Added,
    Removed,
    /// The servers of the databases made from it are obsolete.
    Obsolete,
    /// Something else about it changed.
    Otherwise,
}

/// Takes `fresh`, newly loaded, over `old`: what only a restart can change stays as it was.
#[must_use]
pub fn reload(old: &Config, fresh: Config) -> (Config, Diff) {
    let _ = (old, fresh);
    todo!()
}
