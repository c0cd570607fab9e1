//! What changes when the configuration is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Config, Database, Reloadable, TABLE};

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

/// What happened to one database, or to the template `*` and so to the databases made from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Changed {
    #[default]
    Same,
    Added,
    Removed,
    /// Its servers are obsolete.
    Obsolete,
    /// Something else about it changed.
    Otherwise,
}

impl Changed {
    /// What became of `old`, which is `new` now. It tells the fate of a database made from `*`
    /// too, given what [`Config::database`] says of its name before and after.
    #[must_use]
    pub fn of(old: Option<&Database>, new: Option<&Database>) -> Self {
        match (old, new) {
            (None, None) => Self::Same,
            (None, Some(_)) => Self::Added,
            (Some(_), None) => Self::Removed,
            (Some(old), Some(new)) if old == new => Self::Same,
            (Some(old), Some(new)) if old.same_servers(new) => Self::Otherwise,
            (Some(_), Some(_)) => Self::Obsolete,
        }
    }
}

/// Takes `fresh`, newly loaded, over `old`: what only a restart can change stays as it was. What
/// SET had changed goes back to what the file says.
#[must_use]
pub fn reload(old: &Config, mut fresh: Config) -> (Config, Diff) {
    let mut diff = Diff {
        autodb: Changed::of(old.autodb.as_deref(), fresh.autodb.as_deref()),
        users: differing(&old.users, &fresh.users),
        peers: differing(&old.peers, &fresh.peers),
        ..Diff::default()
    };
    for row in TABLE {
        if row.show(&old.settings) == row.show(&fresh.settings) {
            continue;
        }
        match row.reloadable {
            Reloadable::Yes => diff.settings.push(row.name),
            Reloadable::No => {
                row.copy(&mut fresh.settings, &old.settings);
                diff.kept.push(row.name);
            }
        }
    }
    diff.server_tls = diff.settings.iter().any(|name| name.starts_with("server_tls"));
    for name in differing(&old.databases, &fresh.databases) {
        let [before, after] = [old, &fresh].map(|config| config.databases.get(&name));
        match Changed::of(before.map(Arc::as_ref), after.map(Arc::as_ref)) {
            Changed::Same => {}
            Changed::Added => diff.databases_added.push(name),
            Changed::Removed => diff.databases_removed.push(name),
            Changed::Obsolete => diff.databases_obsolete.push(name),
            Changed::Otherwise => diff.databases_changed.push(name),
        }
    }
    (fresh, diff)
}

/// The keys whose values are not the same in both.
fn differing<K: Clone + Ord, V: Eq>(a: &BTreeMap<K, V>, b: &BTreeMap<K, V>) -> Vec<K> {
    let keys: BTreeSet<&K> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|key| a.get(*key) != b.get(*key)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, set_runtime};

    fn config(text: &str) -> Config {
        parse(text).expect("a good configuration")
    }

    #[test]
    fn the_same_file_changes_nothing() {
        let text = "[pgbouncer]\nmax_client_conn = 5\n[databases]\na = host=x\n* =\n[users]\nu =";
        let (_, diff) = reload(&config(text), config(text));
        assert_eq!(diff, Diff::default());
    }

    /// A line that is gone is a setting at its default, and one that only a restart changes stays.
    #[test]
    fn settings_go_back_to_their_defaults_or_stay() {
        let old = config("[pgbouncer]\nmax_client_conn = 5\nlisten_port = 7000\nworkers = 3");
        let (new, diff) = reload(&old, config("[pgbouncer]\nlisten_port = 7001\nverbose = 1"));
        assert_eq!(new.settings.max_client_conn, 100);
        assert_eq!(new.settings.listen_port, 7000);
        assert_eq!(new.settings.workers, 3);
        assert_eq!(new.settings.verbose, 1);
        assert_eq!(diff.settings, ["max_client_conn", "verbose"]);
        assert_eq!(diff.kept, ["listen_port", "workers"]);
        assert!(!diff.server_tls);
    }

    #[test]
    fn what_set_changed_is_forgotten() {
        let mut old = config("[pgbouncer]");
        set_runtime(&mut old, "default_pool_size", "7").expect("a good value");
        assert_eq!(old.settings.default_pool_size, 7);
        let (new, diff) = reload(&old, config("[pgbouncer]"));
        assert_eq!(new.settings.default_pool_size, 20);
        assert_eq!(diff.settings, ["default_pool_size"]);
    }

    #[test]
    fn servers_are_obsolete_where_they_would_be_opened_otherwise() {
        let obsolete = [
            "dbname=x",
            "host=h",
            "port=1",
            "user=u",
            "connect_query='select 1'",
            "auth_dbname=x",
            "auth_query=x",
            "load_balance_hosts=disable",
            "sslnegotiation=direct",
        ];
        let otherwise = ["pool_size=1", "pool_mode=statement", "timezone=UTC", "server_lifetime=1"];
        let old = config("[pgbouncer]\n[databases]\na =\n* =");
        for (keys, want) in
            [(&obsolete[..], Changed::Obsolete), (&otherwise[..], Changed::Otherwise)]
        {
            for key in keys {
                let new = config(&format!("[pgbouncer]\n[databases]\na = {key}\n* = {key}"));
                let (_, diff) = reload(&old, new);
                assert_eq!(diff.autodb, want, "{key}");
                assert_eq!(diff.databases_obsolete == ["a"], want == Changed::Obsolete, "{key}");
                assert_eq!(diff.databases_changed == ["a"], want == Changed::Otherwise, "{key}");
            }
        }
    }

    /// The password was right when the servers logged in.
    #[test]
    fn a_new_password_keeps_the_servers() {
        let [old, new] = ["a", "b"]
            .map(|word| config(&format!("[pgbouncer]\n[databases]\na = user=u password={word}")));
        assert_eq!(reload(&old, new).1.databases_changed, ["a"]);
    }

    #[test]
    fn databases_users_and_peers_come_and_go() {
        let old = "[pgbouncer]\n[databases]\na =\nb =\n* =\n[users]\nu =\nv =\n[peers]\n1 = host=x";
        let new = "[pgbouncer]\n[databases]\nb =\nc =\n[users]\nu = pool_size=1\nw =";
        let (_, diff) = reload(&config(old), config(new));
        assert_eq!(diff.databases_removed, ["a"]);
        assert_eq!(diff.databases_added, ["c"]);
        assert_eq!(diff.autodb, Changed::Removed);
        assert_eq!(diff.users, ["u", "v", "w"]);
        assert_eq!(diff.peers, [1]);
    }

    /// Ann's database was made from the template; now the file lists it, elsewhere.
    #[test]
    fn a_made_database_has_a_fate_too() {
        let old = config("[pgbouncer]\n[databases]\n* = host=a");
        for (line, want) in [
            ("ann = host=a", Changed::Same),
            ("ann = host=b", Changed::Obsolete),
            ("bob = host=a", Changed::Removed),
        ] {
            let new = config(&format!("[pgbouncer]\n[databases]\n{line}"));
            let [old, new] = [&old, &new].map(|config| config.database("ann"));
            assert_eq!(Changed::of(old.as_deref(), new.as_deref()), want, "{line}");
        }
    }

    #[test]
    fn a_server_tls_setting_makes_all_servers_obsolete() {
        let new = config("[pgbouncer]\nserver_tls_sslmode = disable");
        assert!(reload(&config("[pgbouncer]"), new).1.server_tls);
    }
}
