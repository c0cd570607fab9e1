//! SHOW FDS.

use super::sockets::ip;
use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{Cell, bytea, int4, int8, text};

pub(super) const FDS: Sheet = Sheet {
    view: View::Fds,
    word: "FDS",
    who: Role::Admin,
    needs: &[Need::Fds],
    columns: &[
        int4("fd"),
        text("task"),
        text("user"),
        text("database"),
        text("addr"),
        int4("port"),
        int8("cancel"),
        int4("link"),
        text("client_encoding"),
        text("std_strings"),
        text("datestyle"),
        text("timezone"),
        text("password"),
        bytea("scram_client_key"),
        bytea("scram_server_key"),
    ],
    rows: |facts, rows| {
        for fd in &facts.fds {
            rows.push(&[
                fd.fd.into(),
                fd.task.into(),
                fd.user.as_ref().into(),
                fd.database.as_ref().into(),
                ip(&fd.addr).into(),
                fd.addr.port.into(),
                // Whoever sees a cancel key or a password can use it, so there is none.
                0u32.into(),
                fd.link.into(),
                fd.client_encoding.as_ref().into(),
                fd.std_strings.as_ref().into(),
                fd.datestyle.as_ref().into(),
                fd.timezone.as_ref().into(),
                Cell::Null,
                Cell::Null,
                Cell::Null,
            ]);
        }
    },
    about: "The open sockets. Cancel keys, passwords and SCRAM keys are not shown. The descriptors \
        themselves are not handed over: PgBouncer does that for its -R, and a connection that two \
        processes read is of use to neither.",
};
