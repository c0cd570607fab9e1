//! SHOW POOLS.

use super::{Need, Sheet, View, seconds};
use crate::Role;
use crate::cell::{int4, text};

pub(super) const POOLS: Sheet = Sheet {
    view: View::Pools,
    word: "POOLS",
    who: Role::Stats,
    needs: &[Need::Pools],
    columns: &[
        text("database"),
        text("user"),
        int4("cl_active"),
        int4("cl_waiting"),
        int4("cl_active_cancel_req"),
        int4("cl_waiting_cancel_req"),
        int4("sv_active"),
        int4("sv_active_cancel"),
        int4("sv_being_canceled"),
        int4("sv_idle"),
        int4("sv_used"),
        int4("sv_tested"),
        int4("sv_login"),
        int4("maxwait"),
        int4("maxwait_us"),
        text("pool_mode"),
        text("load_balance_hosts"),
    ],
    rows: |facts, rows| {
        for (name, pool) in &facts.pools {
            let [maxwait, maxwait_us] = seconds(pool.maxwait_us);
            rows.push(&[
                (&name.database).into(),
                (&name.user).into(),
                pool.cl_active.into(),
                pool.cl_waiting.into(),
                pool.cl_active_cancel_req.into(),
                pool.cl_waiting_cancel_req.into(),
                pool.sv_active.into(),
                pool.sv_active_cancel.into(),
                pool.sv_being_canceled.into(),
                pool.sv_idle.into(),
                pool.sv_used.into(),
                pool.sv_tested.into(),
                pool.sv_login.into(),
                maxwait.into(),
                maxwait_us.into(),
                pool.pool_mode.into(),
                pool.load_balance_hosts.into(),
            ]);
        }
    },
    about: "The pools, one for each database and user: where clients and servers are.",
};
