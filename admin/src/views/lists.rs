//! SHOW LISTS.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const LISTS: Sheet = Sheet {
    view: View::Lists,
    word: "LISTS",
    who: Role::Stats,
    needs: &[
        Need::Databases,
        Need::Users,
        Need::Peers,
        Need::Pools,
        Need::PeerPools,
        Need::Lists,
        Need::Dns,
    ],
    columns: &[text("list"), int4("items")],
    rows: |facts, rows| {
        for (list, items) in [
            ("databases", facts.databases.len()),
            ("users", facts.users.len()),
            ("peers", facts.peers.len()),
            ("pools", facts.pools.len()),
            ("peer_pools", facts.peer_pools.len()),
            ("free_clients", facts.lists.free_clients),
            ("used_clients", facts.lists.used_clients),
            ("login_clients", facts.lists.login_clients),
            ("free_servers", facts.lists.free_servers),
            ("used_servers", facts.lists.used_servers),
            ("dns_names", facts.dns_hosts.len()),
            ("dns_zones", facts.dns_zones.len()),
            ("dns_queries", facts.lists.dns_queries),
            ("dns_pending", facts.lists.dns_pending),
        ] {
            rows.push(&[list.into(), items.into()]);
        }
    },
    about: "How many there are of what.",
};
