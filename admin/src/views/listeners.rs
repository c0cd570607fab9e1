//! SHOW LISTENERS: channels on which clients listen without a server of their own.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int8, text};

pub(super) const LISTENERS: Sheet = Sheet {
    view: View::Listeners,
    word: "LISTENERS",
    who: Role::Stats,
    needs: &[Need::Listeners],
    columns: &[text("database"), text("user"), text("channel"), int8("clients"), int8("delivered")],
    rows: |facts, rows| {
        for (name, counts) in &facts.listeners {
            rows.push(&[
                (&name.database).into(),
                (&name.user).into(),
                (&name.channel).into(),
                counts.clients.into(),
                counts.delivered.into(),
            ]);
        }
    },
    about: "Channels on which idle clients listen in transaction mode: one server of the pool listens for all of them. \
            How many clients these are, and how many notifications they were given in that way. A client that \
            has just said something listens by a server of its own, and is not counted here.",
};
