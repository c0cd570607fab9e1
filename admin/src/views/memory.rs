//! SHOW MEM.

use super::{Need, Sheet, View};
use crate::cell::{int4, text};
use crate::{Cache, Role};

pub(super) const MEM: Sheet = Sheet {
    view: View::Mem,
    word: "MEM",
    who: Role::Stats,
    needs: &[Need::Memory],
    columns: &[text("name"), int4("size"), int4("used"), int4("free"), int4("memtotal")],
    rows: |facts, rows| {
        for (cache, name) in CACHES {
            let memory = facts.memory.get(&cache).copied().unwrap_or_default();
            let total = memory.used.saturating_add(memory.free).saturating_mul(memory.size);
            rows.push(&[
                name.into(),
                memory.size.into(),
                memory.used.into(),
                memory.free.into(),
                total.into(),
            ]);
        }
    },
    about: "What objects are kept of: bytes of one, how many are in use and free, bytes of all. \
            Rows of what is not kept here have 0 in use, and 0 or 1 for the bytes of one. \
            The memtotal of iobuf_cache is addresses set aside, not memory in use.",
};

const CACHES: [(Cache, &str); 12] = [
    (Cache::User, "user_cache"),
    (Cache::Credentials, "credentials_cache"),
    (Cache::Db, "db_cache"),
    (Cache::Peer, "peer_cache"),
    (Cache::PeerPool, "peer_pool_cache"),
    (Cache::Pool, "pool_cache"),
    (Cache::OutstandingRequest, "outstanding_request_cache"),
    (Cache::Server, "server_cache"),
    (Cache::Client, "client_cache"),
    (Cache::Iobuf, "iobuf_cache"),
    (Cache::VarList, "var_list_cache"),
    (Cache::ServerPreparedStatement, "server_prepared_statement_cache"),
];
