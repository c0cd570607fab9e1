//! What is changed elsewhere: by whoever goes past us to the database.
//!
//! PostgreSQL counts how many rows of a catalog were changed. So about once a second, when something is believed anyhow, one
//! server of each pool is asked for these counts; where they have moved, nothing is believed any more. They move a moment behind
//! the change: who makes it reports that when it is done, and not more often than once a second.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::state::columns;

/// What is known of the catalogs of one pool's database.
#[derive(Debug, Default)]
pub(crate) struct Catalogs {
    /// When somebody was last sent to look.
    looked: AtomicU32,
    /// How many rows were changed by then; 0: nobody knows.
    changes: AtomicU64,
}

impl Catalogs {
    /// Whether it is for whoever asks to look, in this second.
    pub(crate) fn are_due(&self, second: u32) -> bool {
        let looked = self.looked.load(Relaxed);
        looked != second
            && looked != NEVER
            && self.looked.compare_exchange(looked, second, Relaxed, Relaxed).is_ok()
    }

    /// They cannot be asked for.
    pub(crate) fn give_up(&self) {
        self.looked.store(NEVER, Relaxed);
    }

    /// What an answer says of them. Whether they have changed since somebody looked.
    pub(crate) fn learn(&self, rows: &[Box<[u8]>]) -> bool {
        let Some(now) = rows.iter().find_map(|row| count(row)) else { return false };
        let before = self.changes.swap(now, Relaxed);
        before != 0 && before != now
    }
}

/// The count, where a row is that of the answer.
fn count(row: &[u8]) -> Option<u64> {
    let [kind, _, value] = columns(row)?;
    let count = str::from_utf8(value.filter(|_| kind == Some(KIND))?).ok()?;
    count.parse().ok()
}

/// When nobody looks.
const NEVER: u32 = u32::MAX;

const KIND: &[u8] = b"20";

/// Asks for how many rows of pg_proc, pg_trigger, pg_rewrite, pg_policy, pg_operator, pg_aggregate and pg_cast were changed. Not of
/// those that every temporary table changes; and not before version 15, where reading statistics means reading a file.
pub(crate) const ASK: &str = concat!(
    ";SELECT '20'::pg_catalog.text,''::pg_catalog.text,CASE WHEN pg_catalog.current_setting('server_version_num')::pg_catalog.int4 ",
    "OPERATOR(pg_catalog.>=) 150000 THEN (SELECT pg_catalog.sum(pg_catalog.pg_stat_get_tuples_inserted(c) OPERATOR(pg_catalog.+) ",
    "pg_catalog.pg_stat_get_tuples_updated(c) OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_tuples_deleted(c)) ",
    "FROM pg_catalog.unnest('{1255,2620,2618,3256,2617,2600,2605}'::pg_catalog.oid[]) AS c)::pg_catalog.text END"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, value: &str) -> Box<[u8]> {
        let mut row = vec![0, 3];
        for column in [kind, "", value] {
            row.extend((column.len() as u32).to_be_bytes());
            row.extend(column.as_bytes());
        }
        row.into()
    }

    #[test]
    fn one_looks_each_second_and_sees_what_has_changed() {
        let catalogs = Catalogs::default();
        assert!(catalogs.are_due(7) && !catalogs.are_due(7) && catalogs.are_due(8));
        for (value, changed) in
            [("", false), ("5", false), ("5", false), ("x", false), ("6", true), ("6", false)]
        {
            let rows = [row("s", "9"), row("20", value)];
            assert_eq!(catalogs.learn(&rows), changed, "{value}");
        }
        assert!(!catalogs.learn(&[row("2", "9"), Box::default()]));
        catalogs.give_up();
        assert!(!catalogs.are_due(9));
    }
}
