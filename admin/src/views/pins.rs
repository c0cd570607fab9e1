//! SHOW PINS: clients that keep their server between transactions.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const PINS: Sheet = Sheet {
    view: View::Pins,
    word: "PINS",
    who: Role::Stats,
    needs: &[Need::Pins],
    columns: &[
        text("database"),
        text("user"),
        text("application_name"),
        int4("client_id"),
        int4("server_id"),
        int4("server_pid"),
        text("reasons"),
        text("statement"),
        text("since"),
    ],
    rows: |facts, rows| {
        let mut pins: Vec<_> = facts.pins.iter().collect();
        pins.sort_by_key(|pin| (pin.since, pin.client_id));
        for pin in pins {
            rows.push(&[
                (&pin.database).into(),
                (&pin.user).into(),
                (&pin.application_name).into(),
                pin.client_id.into(),
                pin.server_id.into(),
                pin.server_pid.into(),
                (&pin.reasons).into(),
                (&pin.statement).into(),
                facts.zone.time(pin.since).into(),
            ]);
        }
    },
    about: "Clients that keep their server between transactions, because something of theirs exists on that \
            server only: what it is, which statement brought it about, and since when.",
};
