//! What one worker counts for one database.

use core::ops::{Add, AddAssign};

/// Everything counted since the worker started, for one database.
///
/// Sums saturate: a counter that has run for longer than the number can hold stands still, it never
/// starts again from zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Times a server was given to a client.
    pub server_assignment_count: u64,
    pub xact_count: u64,
    pub query_count: u64,
    /// Bytes that came from clients.
    pub bytes_received: u64,
    /// Bytes that came from servers, and so went to clients.
    pub bytes_sent: u64,
    /// Time clients spent in transactions.
    pub xact_time_us: u64,
    /// Time servers spent on queries.
    pub query_time_us: u64,
    /// Time clients stood in line for a server.
    pub wait_time_us: u64,
    /// Named Parse messages that came from clients.
    pub client_parse_count: u64,
    /// Parse messages sent to servers because the named statement was not there yet.
    pub server_parse_count: u64,
    /// Bind messages of named statements.
    pub bind_count: u64,
    /// Clients let in.
    pub client_login_count: u64,
}

impl Counters {
    /// How many there are.
    pub const LEN: usize = 12;

    /// In the order of SHOW STATS.
    #[must_use]
    pub fn values(&self) -> [u64; Self::LEN] {
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

    /// What was counted after `earlier`. A counter that went back (its database was dropped and
    /// came again) counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let (ours, theirs) = (self.values(), other.values());
        let [
            server_assignment_count,
            xact_count,
            query_count,
            bytes_received,
            bytes_sent,
            xact_time_us,
            query_time_us,
            wait_time_us,
            client_parse_count,
            server_parse_count,
            bind_count,
            client_login_count,
        ] = core::array::from_fn(|at| join(ours[at], theirs[at]));
        Self {
            server_assignment_count,
            xact_count,
            query_count,
            bytes_received,
            bytes_sent,
            xact_time_us,
            query_time_us,
            wait_time_us,
            client_parse_count,
            server_parse_count,
            bind_count,
            client_login_count,
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(&other, u64::saturating_add)
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each counter by its own number, so that two that are mixed up show.
    fn numbered() -> Counters {
        Counters {
            server_assignment_count: 1,
            xact_count: 2,
            query_count: 3,
            bytes_received: 4,
            bytes_sent: 5,
            xact_time_us: 6,
            query_time_us: 7,
            wait_time_us: 8,
            client_parse_count: 9,
            server_parse_count: 10,
            bind_count: 11,
            client_login_count: 12,
        }
    }

    #[test]
    fn the_values_stand_in_the_order_of_show_stats() {
        assert_eq!(numbered().values(), core::array::from_fn(|at| at as u64 + 1));
    }

    #[test]
    fn three_workers_add_up_counter_by_counter() {
        let total: Counters = [numbered(), numbered(), numbered()].into_iter().sum();
        assert_eq!(total.values(), numbered().values().map(|value| value * 3));
    }

    #[test]
    fn a_full_counter_stands_still() {
        let full = Counters { bytes_sent: u64::MAX - 1, ..numbered() };
        let mut total = full;
        total += numbered();
        assert_eq!(total.bytes_sent, u64::MAX);
        assert_eq!(total.bytes_received, 8);
    }

    #[test]
    fn a_counter_that_went_back_counts_from_zero() {
        let earlier = Counters { xact_count: 100, ..Counters::default() };
        let since = numbered().since(&earlier);
        assert_eq!((since.xact_count, since.query_count), (0, 3));
    }
}
