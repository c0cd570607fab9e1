//! SHOW STATS, STATS_TOTALS, STATS_AVERAGES and TOTALS: what was counted.
//!
//! The same twelve counters under the names that grew in each view. [`metrics::Counters::values`]
//! has them in this order.

use metrics::Counters;

use super::{Need, Sheet, View};
use crate::Role;
use crate::cell::{Cell, Column, Rows, numeric, text};
use crate::facts::{Facts, StatsFacts};

pub(super) const STATS: Sheet = Sheet {
    view: View::Stats,
    word: "STATS",
    who: Role::Stats,
    needs: &[Need::Stats],
    columns: COLUMNS.first_chunk::<TODAY>().expect("less than all"),
    rows: |facts, rows| {
        by_database(facts, rows, |stats| [totals(stats), averages(stats)].concat());
    },
    about: "What was counted for each database since the start, and its averages over the last \
            `stats_period`. Times are microseconds; `avg_*_count`, `avg_recv` and `avg_sent` are per \
            second, `avg_*_time` per transaction, query or assignment.",
};

pub(super) const OLD_STATS: Sheet = Sheet {
    view: View::OldStats,
    columns: &COLUMNS,
    rows: |facts, rows| {
        by_database(facts, rows, |stats| {
            [&totals(stats)[..], &averages(stats), &[stats.total.query_count]].concat()
        });
    },
    ..STATS
};

/// How many of the columns of SHOW STATS are there without being asked for.
const TODAY: usize = COLUMNS.len() - 1;

const COLUMNS: [Column; 26] = [
    text("database"),
    numeric("total_server_assignment_count"),
    numeric("total_xact_count"),
    numeric("total_query_count"),
    numeric("total_received"),
    numeric("total_sent"),
    numeric("total_xact_time"),
    numeric("total_query_time"),
    numeric("total_wait_time"),
    numeric("total_client_parse_count"),
    numeric("total_server_parse_count"),
    numeric("total_bind_count"),
    numeric("total_client_login_count"),
    numeric("avg_server_assignment_count"),
    numeric("avg_xact_count"),
    numeric("avg_query_count"),
    numeric("avg_recv"),
    numeric("avg_sent"),
    numeric("avg_xact_time"),
    numeric("avg_query_time"),
    numeric("avg_wait_time"),
    numeric("avg_client_parse_count"),
    numeric("avg_server_parse_count"),
    numeric("avg_bind_count"),
    numeric("avg_client_login_count"),
    // What total_query_count was called up to PgBouncer 1.7.
    numeric("total_requests"),
];

pub(super) const STATS_TOTALS: Sheet = Sheet {
    view: View::StatsTotals,
    word: "STATS_TOTALS",
    who: Role::Stats,
    needs: &[Need::Stats],
    columns: &[
        text("database"),
        numeric("server_assignment_count"),
        numeric("xact_count"),
        numeric("query_count"),
        numeric("bytes_received"),
        numeric("bytes_sent"),
        numeric("xact_time"),
        numeric("query_time"),
        numeric("wait_time"),
        numeric("client_parse_count"),
        numeric("server_parse_count"),
        numeric("bind_count"),
        numeric("client_login_count"),
    ],
    rows: |facts, rows| by_database(facts, rows, |stats| totals(stats).to_vec()),
    about: "The totals of SHOW STATS.",
};

pub(super) const STATS_AVERAGES: Sheet = Sheet {
    view: View::StatsAverages,
    word: "STATS_AVERAGES",
    who: Role::Stats,
    needs: &[Need::Stats],
    columns: &[
        text("database"),
        numeric("server_assignment_count"),
        numeric("xact_count"),
        numeric("query_count"),
        numeric("bytes_received"),
        numeric("bytes_sent"),
        numeric("xact_time"),
        numeric("query_time"),
        numeric("wait_time"),
        numeric("avg_client_parse_count"),
        numeric("avg_server_parse_count"),
        numeric("avg_bind_count"),
        numeric("avg_client_login_count"),
    ],
    rows: |facts, rows| by_database(facts, rows, |stats| averages(stats).to_vec()),
    about: "The averages of SHOW STATS.",
};

pub(super) const TOTALS: Sheet = Sheet {
    view: View::Totals,
    word: "TOTALS",
    who: Role::Stats,
    needs: &[Need::Stats],
    columns: &[text("name"), numeric("value")],
    rows: |facts, rows| {
        let mut all = StatsFacts::default();
        facts.stats.values().for_each(|stats| all += *stats);
        for (prefix, values) in [("total", totals(&all)), ("avg", averages(&all))] {
            for (name, value) in TOTALS_NAMES.into_iter().zip(values) {
                rows.push(&[format!("{prefix}_{name}").into(), value.into()]);
            }
        }
    },
    about: "SHOW STATS of all databases together, one number a row.",
};

pub(super) const TOTALS_NAMES: [&str; Counters::LEN] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "client_bytes",
    "server_bytes",
    "xact_time",
    "query_time",
    "wait_time",
    "ps_client_parse_count",
    "ps_server_parse_count",
    "ps_bind_count",
    "client_login_count",
];

/// `database` and these names: a row for each database.
fn by_database(facts: &Facts, rows: &mut Rows<'_>, values: fn(&StatsFacts) -> Vec<u64>) {
    for (database, stats) in &facts.stats {
        let numbers = values(stats).into_iter().map(Cell::from);
        rows.push(&[Cell::from(database)].into_iter().chain(numbers).collect::<Vec<_>>());
    }
}

fn totals(stats: &StatsFacts) -> [u64; Counters::LEN] {
    stats.total.values()
}

fn averages(stats: &StatsFacts) -> [u64; Counters::LEN] {
    stats.history.averages().values()
}
