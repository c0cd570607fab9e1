//! Logging in: a client to us, and us to a server.

mod client;
mod inbox;
mod options;
mod policy;
mod server;
#[cfg(test)]
mod tests;

pub use client::{
    AuthPlan, ClientLogin, Encryption, Facts, MESSAGE_MAX, MINOR_MAX, Proof, Refusal, Replication,
    Step, fatal, key_len, welcome,
};
pub use options::{BadOptions, Setting, options};
pub use policy::{Policy, TRACKED, Unsupported};
pub use server::{Failure, Greeting, Opening, ServerLogin, ServerStep};
