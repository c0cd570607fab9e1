//! SHOW USERS.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const USERS: Sheet = Sheet {
    view: View::Users,
    word: "USERS",
    who: Role::Stats,
    needs: &[Need::Users],
    columns: &[
        text("name"),
        text("pool_size"),
        text("reserve_pool_size"),
        text("pool_mode"),
        int4("max_user_connections"),
        int4("current_connections"),
        int4("max_user_client_connections"),
        int4("current_client_connections"),
    ],
    rows: |facts, rows| {
        for (name, user) in &facts.users {
            rows.push(&[
                name.into(),
                padded(user.pool_size).into(),
                padded(user.reserve_pool_size).into(),
                user.pool_mode.into(),
                user.max_user_connections.into(),
                user.current_connections.into(),
                user.max_user_client_connections.into(),
                user.current_client_connections.into(),
            ]);
        }
    },
    about: "The users that are known, and the limits that hold for them. \
            A size that is not set for the user is empty.",
};

fn padded(size: Option<u32>) -> String {
    size.map_or_else(String::new, |size| format!("{size:9}"))
}
