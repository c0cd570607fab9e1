//! What happened per second, and how long one of each took, over the last full period.

use core::fmt;
use core::ops::AddAssign;

use crate::Counters;

/// The two snapshots between which averages are taken.
///
/// They are taken at each end of `stats_period`, so an average stands still for a period and then
/// jumps, and until the first period is over there is none: all are zero. Histories of several
/// workers, or of several databases, add up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct History {
    older: Counters,
    newer: Counters,
    newer_at_us: u64,
    /// Between the two; zero while there is only one.
    span_us: u64,
}

impl History {
    /// Starts counting at `now_us`.
    #[must_use]
    pub fn new(now_us: u64) -> Self {
        Self { newer_at_us: now_us, ..Self::default() }
    }

    /// The period is over: `counters` is what stands now.
    pub fn turn(&mut self, counters: &Counters, now_us: u64) {
        self.older = self.newer;
        self.newer = *counters;
        self.span_us = now_us.saturating_sub(self.newer_at_us);
        self.newer_at_us = now_us;
    }

    /// The averages of the last full period.
    #[must_use]
    pub fn averages(&self) -> Averages {
        Averages::over(&self.newer.since(&self.older), self.span_us)
    }
}

impl AddAssign for History {
    /// Workers turn their histories by the same clock, so their periods are one period; the longer
    /// span is right if one of them started in the middle of it.
    fn add_assign(&mut self, other: Self) {
        self.older += other.older;
        self.newer += other.newer;
        self.span_us = self.span_us.max(other.span_us);
        self.newer_at_us = self.newer_at_us.max(other.newer_at_us);
    }
}

/// Counts per second, and microseconds per transaction, query or assignment.
///
/// Its `Display` is the line of the log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Averages {
    pub server_assignment_count: u64,
    pub xact_count: u64,
    pub query_count: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    /// Per transaction.
    pub xact_time_us: u64,
    /// Per query.
    pub query_time_us: u64,
    /// Per assignment of a server.
    pub wait_time_us: u64,
    pub client_parse_count: u64,
    pub server_parse_count: u64,
    pub bind_count: u64,
    pub client_login_count: u64,
}

impl Averages {
    /// `counted` happened within `span_us`.
    #[must_use]
    pub fn over(counted: &Counters, span_us: u64) -> Self {
        if span_us == 0 {
            return Self::default();
        }
        let per_second = |count| share(u128::from(count) * MICROSECONDS_PER_SECOND, span_us);
        let each = |time_us, count| share(u128::from(time_us), count);
        Self {
            server_assignment_count: per_second(counted.server_assignment_count),
            xact_count: per_second(counted.xact_count),
            query_count: per_second(counted.query_count),
            bytes_received: per_second(counted.bytes_received),
            bytes_sent: per_second(counted.bytes_sent),
            xact_time_us: each(counted.xact_time_us, counted.xact_count),
            query_time_us: each(counted.query_time_us, counted.query_count),
            wait_time_us: each(counted.wait_time_us, counted.server_assignment_count),
            client_parse_count: per_second(counted.client_parse_count),
            server_parse_count: per_second(counted.server_parse_count),
            bind_count: per_second(counted.bind_count),
            client_login_count: per_second(counted.client_login_count),
        }
    }

    /// In the order of SHOW STATS.
    #[must_use]
    pub fn values(&self) -> [u64; Counters::LEN] {
        [
            self.server_assignment_count,
            self.xact_count,
            self.query_count,
            self.bytes_received,
            self.bytes_sent,
            self.xact_time_us,
            self.query_time_us,
            self.wait_time_us,
            self.client_parse_count,
            self.server_parse_count,
            self.bind_count,
            self.client_login_count,
        ]
    }
}

impl fmt::Display for Averages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stats: {} xacts/s, {} queries/s, {} client parses/s, {} server parses/s, {} binds/s, \
             {} client logins/s, in {} B/s, out {} B/s, xact {} us, query {} us, wait {} us",
            self.xact_count,
            self.query_count,
            self.client_parse_count,
            self.server_parse_count,
            self.bind_count,
            self.client_login_count,
            self.bytes_received,
            self.bytes_sent,
            self.xact_time_us,
            self.query_time_us,
            self.wait_time_us,
        )
    }
}

const MICROSECONDS_PER_SECOND: u128 = 1_000_000;

/// `total / parts`, or zero where there are no parts.
fn share(total: u128, parts: u64) -> u64 {
    let share = total.checked_div(u128::from(parts)).unwrap_or(0);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn busy() -> Counters {
        Counters {
            server_assignment_count: 120,
            xact_count: 60,
            query_count: 180,
            bytes_received: 6_000,
            bytes_sent: 60_000,
            xact_time_us: 600_000,
            query_time_us: 900_000,
            wait_time_us: 2_400,
            client_parse_count: 240,
            server_parse_count: 300,
            bind_count: 360,
            client_login_count: 420,
        }
    }

    #[test]
    fn before_the_first_period_is_over_there_are_no_averages() {
        assert_eq!(History::new(5 * SECOND).averages(), Averages::default());
    }

    /// Counts are per second of the period; times are per thing that took them.
    #[test]
    fn a_period_is_divided_by_its_length_and_its_times_by_their_counts() {
        let mut history = History::new(0);
        history.turn(&busy(), 60 * SECOND);
        assert_eq!(
            history.averages().values(),
            [2, 1, 3, 100, 1000, 10_000, 5_000, 20, 4, 5, 6, 7]
        );
    }

    #[test]
    fn an_idle_period_forgets_the_busy_one() {
        let mut history = History::new(0);
        history.turn(&busy(), 60 * SECOND);
        history.turn(&busy(), 120 * SECOND);
        assert_eq!(history.averages(), Averages::default());
    }

    #[test]
    fn two_workers_are_twice_as_fast_and_each_query_takes_as_long() {
        let mut history = History::new(0);
        history.turn(&busy(), 60 * SECOND);
        let mut both = history;
        both += history;
        assert_eq!(both.averages().query_count, 2 * history.averages().query_count);
        assert_eq!(both.averages().query_time_us, history.averages().query_time_us);
    }

    #[test]
    fn a_clock_that_stood_still_divides_nothing_by_zero() {
        let mut history = History::new(SECOND);
        history.turn(&busy(), SECOND);
        assert_eq!(history.averages(), Averages::default());
    }

    #[test]
    fn huge_counts_do_not_overflow_on_their_way() {
        let counted = Counters { bytes_sent: u64::MAX, ..Counters::default() };
        assert_eq!(Averages::over(&counted, 2 * SECOND).bytes_sent, u64::MAX / 2);
        assert_eq!(Averages::over(&counted, 1).bytes_sent, u64::MAX);
    }

    #[test]
    fn the_line_of_the_log() {
        let averages = Averages::over(&busy(), 60 * SECOND);
        assert_eq!(
            averages.to_string(),
            "stats: 1 xacts/s, 3 queries/s, 4 client parses/s, 5 server parses/s, 6 binds/s, \
             7 client logins/s, in 100 B/s, out 1000 B/s, xact 10000 us, query 5000 us, wait 20 us"
        );
    }
}
