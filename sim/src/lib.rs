//! The whole world, played from a seed: the real worker, session, pool, auth and console, several
//! workers in one thread, between simulated applications, a simulated kernel and model servers.
//!
//! It finds only what its world contains. `sim 42` replays what `sim` printed.

mod admin;
mod application;
mod bytes;
mod checks;
mod dice;
mod engine;
mod excuses;
mod login;
mod net;
mod news;
pub mod plants;
mod play;
mod postgres;
mod regressions;
mod requests;
mod script;
mod secrets;
mod trace;
mod weather;

pub use play::{Outcome, play};
