//! SHOW PEERS and SHOW PEER_POOLS.

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const PEERS: Sheet = Sheet {
    view: View::Peers,
    word: "PEERS",
    who: Role::Stats,
    needs: &[Need::Peers],
    columns: &[int4("peer_id"), text("host"), int4("port"), int4("pool_size")],
    rows: |facts, rows| {
        for (id, peer) in &facts.peers {
            rows.push(&[
                (*id).into(),
                peer.host.as_ref().into(),
                peer.port.into(),
                peer.pool_size.into(),
            ]);
        }
    },
    about: "The other poolers that cancel requests are sent on to.",
};

pub(super) const PEER_POOLS: Sheet = Sheet {
    view: View::PeerPools,
    word: "PEER_POOLS",
    who: Role::Stats,
    needs: &[Need::PeerPools],
    columns: &[
        int4("peer_id"),
        int4("cl_active_cancel_req"),
        int4("cl_waiting_cancel_req"),
        int4("sv_active_cancel"),
        int4("sv_login"),
    ],
    rows: |facts, rows| {
        for (id, pool) in &facts.peer_pools {
            rows.push(&[
                (*id).into(),
                pool.cl_active_cancel_req.into(),
                pool.cl_waiting_cancel_req.into(),
                pool.sv_active_cancel.into(),
                pool.sv_login.into(),
            ]);
        }
    },
    about: "Cancel requests on their way to other poolers.",
};
