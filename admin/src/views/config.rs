//! SHOW CONFIG.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::text;

pub(super) const CONFIG: Sheet = Sheet {
    view: View::Config,
    word: "CONFIG",
    who: Role::Stats,
    needs: &[Need::Config],
    columns: &[text("key"), text("value"), text("default"), text("changeable")],
    rows: |facts, rows| {
        for row in &facts.config {
            rows.push(&[
                row.key.into(),
                row.value.as_ref().into(),
                row.default.as_ref().into(),
                if row.changeable { "yes" } else { "no" }.into(),
            ]);
        }
    },
    about: "The settings, and whether SET and RELOAD change them.",
};
