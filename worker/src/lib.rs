//! One core's loop: the only room where the others meet.

mod asides;
mod ask;
mod audit;
mod cancel;
mod carry;
mod client;
mod commons;
mod desk;
mod dial;
mod ears;
mod end;
mod ends;
mod enter;
mod facts;
mod greet;
mod inquiry;
mod keys;
mod listen;
mod log;
mod mail;
mod membership;
mod method;
mod names;
mod order;
mod parked;
mod peers;
mod pins;
mod replica;
mod report;
mod room;
mod route;
mod secure;
mod sequences;
mod server;
mod shared;
mod site;
mod state;
mod tick;
mod traffic;
mod unset;
mod vouch;
mod welcome;
mod worker;
mod world;

pub use audit::{Audit, ClientAudit, PoolAudit, ServerAudit};
pub use commons::Commons;
pub use dial::Traveller;
pub use ears::{HubCard, Listener, Word};
pub use log::{Level, Log};
pub use mail::{Answer, Ask, LetterBox, Mail, Party};
pub use names::{Names, Resolution, Seeker, Sought};
pub use order::{Order, Scope, Shutdown};
pub use peers::Parcel;
pub use site::{Site, Tls};
pub use worker::Worker;
pub use world::{About, Errand, World};

/// A slab's key as the 32-bit slot it is: there are no more connections than that.
fn slot(key: usize) -> u32 {
    u32::try_from(key).unwrap_or(u32::MAX)
}
