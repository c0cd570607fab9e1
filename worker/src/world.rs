//! The world around a worker: time, dice, the log and the slow side. The process has a real one,
//! the simulator its own.

use std::net::IpAddr;
use std::sync::Arc;

use auth::Job;
use pool::{Instant, WorkerId};

use crate::log::Log;
use crate::mail::{Ask, Party};
use crate::order::Shutdown;

/// What a worker cannot know or do by itself.
pub trait World {
    /// Time since the process started.
    fn now(&mut self) -> Instant;
    /// Unix time, in microseconds.
    fn wall_us(&mut self) -> i64;
    /// Fill `bytes` from the system's random source.
    fn dice(&mut self, bytes: &mut [u8]);
    /// The local time zone now: seconds east of Greenwich, and its name.
    fn zone(&mut self) -> (i32, String);
    fn log(&mut self) -> &mut dyn Log;
    /// Have something slow done elsewhere; what comes of it arrives by mail.
    fn errand(&mut self, errand: Errand);
}

/// Something slow, or something for the whole process.
pub enum Errand {
    /// Put a password through PBKDF2. Comes back as `Mail::Derived`.
    Derive { worker: WorkerId, party: Party, job: Job },
    /// Have somebody else look at a password. Comes back as `Mail::Vouched`.
    Vouch { worker: WorkerId, party: Party, case: auth::vouch::Case },
    /// Look up a host name. Comes back as `Mail::Resolved`.
    Resolve { worker: WorkerId, name: Arc<str> },
    /// Ask for the serial number of a zone. Comes back as `Mail::Serial`.
    Serial { worker: WorkerId, zone: String },
    /// Find out something about a client that is logging in. Comes back as `Mail::Learnt`.
    Learn { worker: WorkerId, party: Party, about: About },
    /// Read the configuration again. Comes back as `Mail::Answer`.
    Reload { ask: Ask },
    /// Change a setting. Comes back as `Mail::Answer`.
    Set { ask: Ask, key: String, value: String },
    /// Go.
    Shutdown { how: Shutdown },
    /// This worker has nothing more to wait for, and may be stopped.
    Finished { worker: WorkerId },
    /// This worker is awake, and has so many clients (the console's not among them) and so many servers
    /// at work.
    Present { worker: WorkerId, clients: u32, servers: u32 },
    /// The averages of the last period, as the log has them.
    Stats { line: String },
}

/// What is to be found out about a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum About {
    /// The name of the host at this address, if the name has the address.
    Host(IpAddr),
    /// The name of the account with this number.
    Account(u32),
}
