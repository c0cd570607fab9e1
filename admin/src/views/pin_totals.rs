//! SHOW PIN_TOTALS: what keeps servers with their clients, counted.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int8, text};

pub(super) const PIN_TOTALS: Sheet = Sheet {
    view: View::PinTotals,
    word: "PIN_TOTALS",
    who: Role::Stats,
    needs: &[Need::PinTotals],
    columns: &[
        text("database"),
        text("user"),
        text("reason"),
        int8("pinned"),
        int8("total_pins"),
        int8("total_pin_time"),
        int8("longest_pin"),
        int8("warnings"),
        int8("refused"),
        int8("unset"),
    ],
    rows: |facts, rows| {
        for ((database, user, reason), totals) in &facts.pin_totals {
            rows.push(&[
                database.into(),
                user.into(),
                (*reason).into(),
                totals.pinned.into(),
                totals.pins.into(),
                totals.time_us.into(),
                totals.longest_us.into(),
                totals.warnings.into(),
                totals.refused.into(),
                totals.unset.into(),
            ]);
        }
    },
    about: "Per pool and reason: how many clients keep their server now, how many ever did, for how long in all and at \
            most (microseconds, those of now included), how often there was a warning, and how often the state was \
            refused (`session_state`); and how many servers were closed because they could not be set to what their \
            client was set to (in the row of `settings`).",
};
