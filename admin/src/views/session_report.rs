//! SHOW SESSION_REPORT: what an application's statements come to in transaction mode.

use std::cmp::Reverse;

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int8, text};

pub(super) const SESSION_REPORT: Sheet = Sheet {
    view: View::SessionReport,
    word: "SESSION_REPORT",
    who: Role::Stats,
    needs: &[Need::SessionReport],
    columns: &[
        text("database"),
        text("user"),
        text("verdict"),
        text("kind"),
        text("statement"),
        int8("count"),
        int8("clients"),
        text("first_seen"),
        text("last_seen"),
        text("application_name"),
        text("advice"),
    ],
    rows: |facts, rows| {
        let mut report: Vec<_> = facts.session_report.iter().collect();
        report.sort_by_key(|(row, seen)| {
            let (gravity, count) = (Reverse(seen.gravity), Reverse(seen.count));
            (&row.database, &row.user, gravity, row.kind, count, &seen.statement)
        });
        for (row, seen) in report {
            rows.push(&[
                (&row.database).into(),
                (&row.user).into(),
                seen.verdict.into(),
                row.kind.into(),
                (&seen.statement).into(),
                seen.count.into(),
                seen.clients.into(),
                facts.zone.time(seen.first_seen).into(),
                facts.zone.time(seen.last_seen).into(),
                (&seen.application_name).into(),
                (&seen.advice).into(),
            ]);
        }
    },
    about: "Where `session_report` is on: what clients did that concerns their sessions, and what comes of it in transaction \
            mode: `breaks`, `pinned`, `asked` (the server is asked what it did), `tracked`, and `nothing` for all else in one \
            row. Statements are shown without their constants; `count` is how often they were asked for, by how many \
            `clients`; `application_name` is that of the last one. See transaction-mode.md.",
};
