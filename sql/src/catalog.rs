//! What PostgreSQL has built in, and what of it concerns the session.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::reading::Touch;
use crate::states::States;

/// Functions of pg_catalog. Those of a later version than the list's are unknown, which errs on the right side.
static FUNCTIONS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| names(include_str!("catalog/functions.txt")));
static OPERATORS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| names(include_str!("catalog/operators.txt")));
static RELATIONS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| names(include_str!("catalog/relations.txt")));

fn names(list: &'static str) -> HashSet<&'static str> {
    list.lines().filter(|line| !line.starts_with("-- ")).collect()
}

/// What calling a built-in function does to the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Builtin {
    /// "" where the function is one of the many that do nothing of the kind.
    pub name: &'static str,
    pub makes: States,
    pub ends: States,
    pub reads: States,
    pub touch: Touch,
}

const NONE: States = States::empty();
const SETTINGS: States = States::SETTINGS;
const STATEMENTS: States = States::STATEMENTS;
const CURSORS: States = States::CURSORS;
const CHANNELS: States = States::CHANNELS;
const TEMPORARY: States = States::TEMPORARY;
const LOCKS: States = States::LOCKS;
const SEQUENCES: States = States::SEQUENCES;
const SEED: States = States::SEED;
const BACKEND: States = States::BACKEND;

const fn row(name: &'static str, makes: States, ends: States, reads: States) -> Builtin {
    Builtin { name, makes, ends, reads, touch: Touch::Inert }
}

/// It runs a query that comes as an argument, or a function or table named there.
const fn runs(name: &'static str) -> Builtin {
    Builtin { touch: Touch::Unknown, ..row(name, NONE, NONE, NONE) }
}

/// Those that concern the session: made, ended, read. All others are harmless to it.
const REMARKABLE: &[Builtin] = &[
    row("set_config", SETTINGS.union(States::ROLE), SETTINGS, NONE),
    row("nextval", SEQUENCES, NONE, NONE),
    row("setval", SEQUENCES, NONE, NONE),
    row("currval", NONE, NONE, SEQUENCES),
    row("lastval", NONE, NONE, SEQUENCES),
    row("setseed", SEED, NONE, NONE),
    row("random", NONE, NONE, SEED),
    row("pg_advisory_lock", LOCKS, NONE, LOCKS),
    row("pg_advisory_lock_shared", LOCKS, NONE, LOCKS),
    row("pg_try_advisory_lock", LOCKS, NONE, LOCKS),
    row("pg_try_advisory_lock_shared", LOCKS, NONE, LOCKS),
    row("pg_advisory_unlock", NONE, LOCKS, LOCKS),
    row("pg_advisory_unlock_shared", NONE, LOCKS, LOCKS),
    row("pg_advisory_unlock_all", NONE, LOCKS, LOCKS),
    // Transaction-level ones are granted at once to a session that has the same lock.
    row("pg_advisory_xact_lock", NONE, NONE, LOCKS),
    row("pg_advisory_xact_lock_shared", NONE, NONE, LOCKS),
    row("pg_try_advisory_xact_lock", NONE, NONE, LOCKS),
    row("pg_try_advisory_xact_lock_shared", NONE, NONE, LOCKS),
    row("pg_notify", NONE, NONE, NONE),
    row("pg_listening_channels", NONE, NONE, CHANNELS),
    row("pg_prepared_statement", NONE, NONE, STATEMENTS),
    row("pg_cursor", NONE, NONE, CURSORS),
    row("pg_my_temp_schema", NONE, NONE, TEMPORARY),
    row("pg_is_other_temp_schema", NONE, NONE, TEMPORARY),
    row("current_schemas", NONE, NONE, TEMPORARY),
    row("pg_backend_pid", NONE, NONE, BACKEND),
    row("pg_lock_status", NONE, NONE, BACKEND.union(LOCKS)),
    row("pg_stat_get_activity", NONE, NONE, BACKEND),
    row("pg_stat_get_backend_idset", NONE, NONE, BACKEND),
    row("pg_get_backend_memory_contexts", NONE, NONE, BACKEND),
    row("pg_stat_force_next_flush", BACKEND, NONE, NONE),
    row("pg_stat_clear_snapshot", NONE, NONE, BACKEND),
    row("pg_backup_start", BACKEND, NONE, NONE),
    row("pg_backup_stop", NONE, BACKEND, BACKEND),
    row("pg_create_logical_replication_slot", BACKEND, NONE, NONE),
    row("pg_create_physical_replication_slot", BACKEND, NONE, NONE),
    row("pg_copy_logical_replication_slot", BACKEND, NONE, NONE),
    row("pg_copy_physical_replication_slot", BACKEND, NONE, NONE),
    row("pg_drop_replication_slot", NONE, BACKEND, BACKEND),
    row("pg_replication_origin_session_setup", BACKEND, NONE, NONE),
    row("pg_replication_origin_session_reset", NONE, BACKEND, BACKEND),
    row("pg_replication_origin_session_is_setup", NONE, NONE, BACKEND),
    row("pg_replication_origin_session_progress", NONE, NONE, BACKEND),
    row("pg_replication_origin_xact_setup", NONE, NONE, BACKEND),
    row("pg_replication_origin_xact_reset", NONE, NONE, BACKEND),
    runs("query_to_xml"),
    runs("query_to_xmlschema"),
    runs("query_to_xml_and_xmlschema"),
    runs("cursor_to_xml"),
    runs("cursor_to_xmlschema"),
    runs("table_to_xml"),
    runs("table_to_xml_and_xmlschema"),
    runs("schema_to_xml"),
    runs("schema_to_xml_and_xmlschema"),
    runs("database_to_xml"),
    runs("database_to_xml_and_xmlschema"),
    runs("ts_stat"),
    runs("ts_rewrite"),
    runs("pg_stop_making_pinned_objects"),
    // Output plugins and validators are libraries, loaded by name.
    runs("pg_logical_slot_get_changes"),
    runs("pg_logical_slot_get_binary_changes"),
    runs("pg_logical_slot_peek_changes"),
    runs("pg_logical_slot_peek_binary_changes"),
    runs("pg_replication_slot_advance"),
    runs("fmgr_c_validator"),
    runs("plpgsql_validator"),
    runs("plpgsql_call_handler"),
    runs("plpgsql_inline_handler"),
];

/// Functions of well-known extensions that leave something in the server process which nobody can ask for: a connection, a
/// hypothetical index, a variable, a line of output.
const KEEPERS: &[&str] = &[
    "dblink_connect",
    "dblink_connect_u",
    "hypopg_create_index",
    "hypopg_hide_index",
    "pgv_insert",
    "pgv_set",
];

/// Whether a function of that name, wherever it is, leaves something in the server process.
pub(crate) fn keeps(name: &str) -> bool {
    KEEPERS.contains(&name)
}

/// What is known of a function of pg_catalog; `None` of one that PostgreSQL 15 has not.
#[must_use]
pub fn builtin(name: &str) -> Option<Builtin> {
    if let Some(known) = REMARKABLE.iter().find(|known| known.name == name) {
        return Some(*known);
    }
    if name.starts_with("binary_upgrade_") {
        return Some(runs("binary_upgrade_"));
    }
    FUNCTIONS.contains(name).then_some(row("", NONE, NONE, NONE))
}

pub(crate) fn is_operator(name: &str) -> bool {
    // The grammar's own ways to write one.
    const WORDS: [&str; 4] =
        ["BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC", "NOT BETWEEN SYMMETRIC"];
    OPERATORS.contains(name) || WORDS.contains(&name)
}

/// Whether a relation of that name is the catalog's, and what looking into it depends on.
pub(crate) fn relation(schema: Option<&str>, name: &str) -> Option<States> {
    match schema {
        Some("information_schema") => return Some(NONE),
        None | Some("pg_catalog") if RELATIONS.contains(name) => {}
        _ => return None,
    }
    Some(match name {
        "pg_prepared_statements" => STATEMENTS,
        "pg_cursors" => CURSORS,
        "pg_locks" => BACKEND.union(LOCKS),
        "pg_stat_activity" | "pg_stat_ssl" | "pg_stat_gssapi" | "pg_backend_memory_contexts" => {
            BACKEND
        }
        // The older ones of these are views with rules or functions behind them; none makes anything where it is read.
        _ => NONE,
    })
}

/// Whether names that PostgreSQL has built in are found before others of the same name and kinds of arguments: the
/// value of search_path does not name pg_catalog, or names it first.
#[must_use]
pub fn catalog_comes_first(search_path: &str) -> bool {
    let mut names = search_path.split(',').map(|name| name.trim().trim_matches('"'));
    let first = names.next() == Some("pg_catalog");
    first || !search_path.to_ascii_lowercase().contains("pg_catalog")
}

/// Whether texts in this client_encoding can be read as they are: bytes below 128 never stand inside a character.
#[must_use]
pub fn encoding_is_plain(client_encoding: &str) -> bool {
    // Spelled as PostgreSQL compares them: letters and digits only. From its list of encodings for clients only.
    const TANGLED: [&str; 12] = [
        "big5",
        "win950",
        "windows950",
        "gbk",
        "win936",
        "windows936",
        "gb18030",
        "johab",
        "sjis",
        "shiftjis",
        "shiftjis2004",
        "uhc",
    ];
    const TANGLED_TOO: [&str; 5] = ["mskanji", "win932", "windows932", "win949", "windows949"];
    let name: String =
        client_encoding.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let name = name.to_ascii_lowercase();
    !TANGLED.contains(&name.as_str()) && !TANGLED_TOO.contains(&name.as_str())
}
