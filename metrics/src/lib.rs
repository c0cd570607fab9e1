//! What a worker counts, and adding workers up.
//!
//! This crate reads no clock: time comes as an argument, in microseconds since any fixed point.

mod averages;
mod counters;

pub use averages::{Averages, History};
pub use counters::Counters;
