//! Who may do what: every command and every view, for everybody.

use admin::{Role, View};

use crate::talk::Talk;

/// What those in `stats_users` may. PgBouncer let them kill clients once (CVE-2026-6667).
const STATS_MAY: &[&str] = &[
    "SHOW ACTIVE_SOCKETS",
    "SHOW CLIENTS",
    "SHOW CONFIG",
    "SHOW DATABASES",
    "SHOW DNS_HOSTS",
    "SHOW DNS_ZONES",
    "SHOW HELP",
    "SHOW LISTENERS",
    "SHOW LISTS",
    "SHOW MEM",
    "SHOW PEER_POOLS",
    "SHOW PEERS",
    "SHOW PIN_TOTALS",
    "SHOW PINS",
    "SHOW POOLS",
    "SHOW SERVERS",
    "SHOW SESSION_REPORT",
    "SHOW SOCKETS",
    "SHOW STATE",
    "SHOW STATS",
    "SHOW STATS_AVERAGES",
    "SHOW STATS_TOTALS",
    "SHOW TOTALS",
    "SHOW USERS",
    "SHOW VERSION",
    "SHOW client_encoding",
    "SELECT POOLS",
    "SET client_encoding = 'UTF8'",
    "BEGIN",
    "COMMIT",
    "DISCARD ALL",
];

const ADMIN_ONLY: &[&str] = &[
    "SHOW FDS",
    "SELECT FDS",
    "DISABLE shop",
    "DISABLE",
    "ENABLE shop",
    "ENABLE pgbouncer",
    "KILL",
    "KILL shop",
    "KILL_CLIENT 7",
    "KILL_CLIENT x",
    "PAUSE",
    "PAUSE shop",
    "RECONNECT",
    "RECONNECT shop",
    "RELOAD",
    "RESET SESSION_REPORT",
    "RESUME",
    "RESUME shop",
    "SET max_client_conn = 10",
    "SET max_client_conn TO '10'",
    "SHUTDOWN",
    "SHUTDOWN WAIT_FOR_CLIENTS",
    "SHUTDOWN WAIT_FOR_SERVERS",
    "SUSPEND",
    "WAIT_CLOSE",
    "WAIT_CLOSE shop",
];

const NEEDED: &str = "E SERROR C08P01 Madmin access needed";

/// Both ways to say it, for each of which the answer must be the same.
fn refused(role: Role, text: &str) -> bool {
    let mut simple = Talk::new(role);
    let heard = simple.query(text);
    let mut extended = Talk::new(role);
    let prepared = extended.parse("", text).bind("", "", &[]).execute("", 0).sync();
    let [one, other] = [&heard, &prepared].map(|heard| heard[0] == NEEDED);
    assert_eq!(one, other, "{text}: {heard:?} {prepared:?}");
    assert!(!one || (simple.ran.is_empty() && extended.ran.is_empty()), "{text} was carried out");
    one
}

#[test]
fn stats_users_may_look_and_nothing_else() {
    for text in STATS_MAY {
        assert!(!refused(Role::Stats, text), "{text}");
    }
    for text in ADMIN_ONLY {
        assert!(refused(Role::Stats, text), "{text}");
    }
}

#[test]
fn admins_may_everything() {
    for text in STATS_MAY.iter().chain(ADMIN_ONLY) {
        assert!(!refused(Role::Admin, text), "{text}");
    }
}

/// They are not let in; but should they be, they may nothing.
#[test]
fn nobody_may_nothing() {
    for text in STATS_MAY.iter().chain(ADMIN_ONLY) {
        assert!(refused(Role::Nobody, text), "{text}");
    }
    assert!(refused(Role::Nobody, ""));
    assert!(refused(Role::Nobody, "nonsense"));
}

/// A command or view that is added to the tables must be added here.
#[test]
fn nothing_is_left_out_of_the_lists_above() {
    let listed: Vec<_> = STATS_MAY.iter().chain(ADMIN_ONLY).collect();
    for view in View::all() {
        let text = format!("SHOW {}", view.word());
        assert!(listed.iter().any(|listed| **listed == text), "{text}");
    }
    let manual = admin::manual();
    let (_, commands) = manual.split_once("## Commands").expect("a chapter");
    let (commands, _) = commands.split_once("\n## ").expect("and another");
    let rows = commands.lines().filter_map(|line| line.strip_prefix("| `"));
    let verbs: Vec<_> = rows.filter_map(|row| row.split([' ', '`']).next()).collect();
    assert!(verbs.len() >= 14, "{verbs:?}");
    for verb in verbs {
        let said = |listed: &&str| listed.split(' ').next() == Some(verb);
        assert!(listed.iter().any(|listed| said(listed)), "{verb}");
    }
}
