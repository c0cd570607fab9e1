//! What one sample says, and what several say together.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::{Tally, Turnout};
use crate::noise::Noise;

/// One pooler, one fresh process, one measurement.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The pooler's user and system time. 0 where nothing is between.
    pub cpu_us: f64,
    /// Transactions per second.
    pub tps: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Standard deviation over mean of transactions per client.
    pub unevenness: f64,
    /// The longest transaction, waiting included, over the median.
    pub longest_over_p50: f64,
    pub noise: Noise,
}

impl Sample {
    /// `pooler` is in seconds of CPU per second.
    #[must_use]
    pub fn from_tallies(tallies: &[Tally], window: Duration, pooler: f64, noise: Noise) -> Self {
        let mut latency = Histogram::<u64>::new(3).expect("3 digits are allowed");
        let mut clients = Vec::new();
        for tally in tallies {
            latency.add(&tally.latency_ns).expect("both grow by themselves");
            clients.extend_from_slice(&tally.per_client);
        }
        let tps = latency.len() as f64 / window.as_secs_f64();
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1_000.0;
        let longest = clients.iter().map(|client| client.longest).max().unwrap_or_default();
        Self {
            cpu_us: pooler / tps * 1e6,
            tps,
            p50_us: at(0.5),
            p99_us: at(0.99),
            unevenness: unevenness(&clients),
            longest_over_p50: longest.as_secs_f64() * 1e6 / at(0.5),
            noise,
        }
    }
}

fn unevenness(clients: &[Turnout]) -> f64 {
    let count = clients.len() as f64;
    let mean = clients.iter().map(|client| client.transactions as f64).sum::<f64>() / count;
    let square = |client: &Turnout| (client.transactions as f64 - mean).powi(2);
    (clients.iter().map(square).sum::<f64>() / count).sqrt() / mean
}

/// The middle of several figures, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// Of nothing, it is not a number.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let Some((least, most)) = sorted.first().zip(sorted.last()) else {
            return Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };
        };
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Self { median: f64::midpoint(lower, upper), least: *least, most: *most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle_and_the_spread_around_it() {
        let odd = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(odd, Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).median.to_bits(), 2.5_f64.to_bits());
        assert!(Spread::of([]).median.is_nan());
    }

    #[test]
    fn clients_served_alike_are_even() {
        let served = |transactions| Turnout { transactions, ..Turnout::default() };
        assert!(unevenness(&[served(7), served(7)]) < 1e-9);
        assert!((unevenness(&[served(5), served(15)]) - 0.5).abs() < 1e-9);
    }
}
