//! The configuration in force: what was read from files, as one unchangeable whole. A RELOAD or a
//! SET makes a new one, and every worker moves over.

use std::sync::Arc;

use admin::{CameBy, Role};
use auth::hba::Rules;
use auth::ldap::Directory;
use auth::{Decoy, IdentMaps, Userlist};
use config::{AuthType, Config, Diff};
use session::Tracked;

/// One configuration, with the files it names.
pub struct Site {
    pub config: Config,
    pub userlist: Userlist,
    /// What `auth_ldap_options` says, if it says something.
    pub directory: Option<Arc<Directory>>,
    /// `auth_hba_file`; empty where `auth_type` is not hba.
    pub rules: Arc<Rules>,
    /// `auth_ident_file`
    pub maps: Arc<IdentMaps>,
    /// The parameters that are kept per client.
    pub tracked: Arc<Tracked>,
    /// Stands in for the secrets of users that do not exist.
    pub decoy: Arc<Decoy>,
    /// Keys, certificates and whom to trust.
    pub tls: Tls,
    /// What is new since the one before; empty in the first.
    pub diff: Diff,
    /// Counts the sites, from 1.
    pub generation: u64,
    /// The user the process runs as: it is admin over the unix socket.
    pub uid: u32,
}

/// TLS, on both sides.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub inward: Arc<tls::Inward>,
    pub outward: Arc<tls::Outward>,
}

impl Site {
    /// What `user` is on the console. `own_uid`: the peer is a process of ours, over the unix socket.
    #[must_use]
    pub fn role(&self, user: &str, own_uid: bool) -> Role {
        let settings = &self.config.settings;
        let came_by = if own_uid {
            CameBy::OwnUid
        } else if settings.auth_type == AuthType::Any {
            CameBy::AnyLogin
        } else {
            CameBy::Login
        };
        let (admins, stats) = (settings.admin_users.iter(), settings.stats_users.iter());
        Role::of(user, came_by, admins.map(String::as_str), stats.map(String::as_str))
    }
}
