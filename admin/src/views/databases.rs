//! SHOW DATABASES.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const DATABASES: Sheet = Sheet {
    view: View::Databases,
    word: "DATABASES",
    who: Role::Stats,
    needs: &[Need::Databases],
    columns: &[
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
    ],
    rows: |facts, rows| {
        for (name, database) in &facts.databases {
            rows.push(&[
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
            ]);
        }
    },
    about: "The databases that clients can name, where they lead, and the limits that hold for them.",
};
