//! Who gets which server, when.
//!
//! This crate only decides. It holds no sockets, reads no clock and draws no random numbers, so a
//! run is a function of its inputs and any failure can be replayed from a seed. The worker turns
//! each [`Action`] into I/O and reports back what came of it.
//!
//! Three things live here:
//!
//! - [`Pool`]: one worker's part of one pool: its servers, each in exactly one place, and its line.
//! - [`Board`]: what the workers tell each other about one pool without asking: how long the head
//!   of each line has waited, how many servers lie idle. Atomics, one cache line per worker.
//! - [`Bank`]: who owns how many server slots. The one place where the limits that PgBouncer
//!   promises per process are kept for all workers. The worker holds it under a mutex, and touches
//!   it only when a server is opened, closed or moved: never on a query's way.
//!
//! ```text
//!                 acquire                          release
//!   client ────────────────▶ waiting ───▶ linked ──────────▶ gone from here
//!   server   connecting ──▶ idle ───────▶ linked ──▶ testing ──▶ idle | canceled | closed
//!                           idle ⇄ used   idle ──▶ leaving (to another worker)
//! ```

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod action;
mod bank;
mod board;
#[cfg(test)]
mod interleave;
mod line;
mod pool;
mod register;
mod server;
mod time;

pub use action::{Action, CloseReason, RefuseReason};
pub use bank::{Answer, Bank, BankLimits, Call, Calling, Failure};
pub use board::Board;
pub use pool::{Limits, Pool};
pub use server::{Counts, Place};
pub use time::{Duration, Instant};

/// A pool, by the number the [`Bank`] gave it; the same on every worker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PoolId(pub u32);

/// A worker, counted from 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WorkerId(pub u16);

/// A client, by its slot in its worker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClientId(pub u32);

/// A server, by its slot in its worker.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerId(pub u32);
