//! What a run needs: load, a server, a floor, poolers to start, and clocks to hold to them.

pub mod address;
pub mod backend;
pub mod canned;
pub mod client;
pub mod compare;
pub mod floor;
pub mod frames;
pub mod load;
pub mod memory;
pub mod noise;
pub mod pgbench;
pub mod pooler;
pub mod postgres;
pub mod process;
pub mod quota;
pub mod real;
pub mod ring;
pub mod sample;
pub mod script;
pub mod tidy;
