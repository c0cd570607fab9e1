//! SHOW DATABASES.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{Cell, Column, int4, text};
use crate::facts::DatabaseFacts;

pub(super) const DATABASES: Sheet = Sheet {
    view: View::Databases,
    word: "DATABASES",
    who: Role::Stats,
    needs: &[Need::Databases],
    columns: COLUMNS.first_chunk::<TODAY>().expect("less than all"),
    rows: |facts, rows| {
        for (name, database) in &facts.databases {
            rows.push(&row(name, database)[..TODAY]);
        }
    },
    about: "The databases that clients can name, where they lead, and the limits that hold for them.",
};

pub(super) const OLD_DATABASES: Sheet = Sheet {
    view: View::OldDatabases,
    columns: &COLUMNS,
    rows: |facts, rows| {
        for (name, database) in &facts.databases {
            rows.push(&row(name, database));
        }
    },
    ..DATABASES
};

/// How many of the columns are there without being asked for.
const TODAY: usize = COLUMNS.len() - 1;

const COLUMNS: [Column; 18] = [
    text("name"),
    text("host"),
    int4("port"),
    text("database"),
    text("force_user"),
    int4("pool_size"),
    int4("min_pool_size"),
    int4("reserve_pool_size"),
    int4("server_lifetime"),
    text("pool_mode"),
    text("load_balance_hosts"),
    int4("max_connections"),
    int4("current_connections"),
    int4("max_client_connections"),
    int4("current_client_connections"),
    int4("paused"),
    int4("disabled"),
    // What reserve_pool_size was called up to PgBouncer 1.23.
    int4("reserve_pool"),
];

fn row<'a>(name: &'a str, database: &'a DatabaseFacts) -> [Cell<'a>; COLUMNS.len()] {
    [
        name.into(),
        database.host.as_ref().into(),
        database.port.into(),
        (&database.database).into(),
        database.force_user.as_ref().into(),
        database.pool_size.into(),
        database.min_pool_size.into(),
        database.reserve_pool_size.into(),
        database.server_lifetime_s.into(),
        database.pool_mode.into(),
        database.load_balance_hosts.into(),
        database.max_connections.into(),
        database.current_connections.into(),
        database.max_client_connections.into(),
        database.current_client_connections.into(),
        database.paused.into(),
        database.disabled.into(),
        database.reserve_pool_size.into(),
    ]
}
