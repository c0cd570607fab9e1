//! SHOW STATE.

use super::{Need, Sheet, View};
use crate::cell::text;
use crate::{PauseState, Role};

pub(super) const STATE: Sheet = Sheet {
    view: View::State,
    word: "STATE",
    who: Role::Stats,
    needs: &[Need::State],
    columns: &[text("key"), text("value")],
    rows: |facts, rows| {
        for (key, state) in [
            ("active", PauseState::Active),
            ("paused", PauseState::Paused),
            ("suspended", PauseState::Suspended),
        ] {
            let value = if facts.state == state { "yes" } else { "no" };
            rows.push(&[key.into(), value.into()]);
        }
    },
    about: "Whether the whole pooler is active, paused or suspended.",
};
