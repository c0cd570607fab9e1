//! The console: what an administrator may say to the pooler, and what is answered.
//!
//! This crate only reads and writes. It holds no sockets and reads no clock: a worker feeds whole
//! messages of the client to a [`Console`], carries out the [`Command`] that comes back, and
//! answers with what came of it. What the views show comes as [`Facts`], which every worker fills
//! in for its own part and which add up.

mod bind;
mod cell;
mod command;
mod console;
mod courtesy;
mod docs;
mod facts;
mod grammar;
mod portal;
mod refusal;
mod reply;
mod role;
mod views;

pub use command::{Command, Shutdown};
pub use console::{Answer, Columns, Console, Next};
pub use docs::manual;
pub use facts::{
    Address, Cache, ChannelName, ClientFacts, ClientState, ConfigRow, DatabaseFacts, DnsHostFacts,
    DnsZoneFacts, Facts, FdFacts, Kept, ListFacts, ListenerFacts, MemoryFacts, PauseState,
    PeerFacts, PeerPoolFacts, PinFacts, PinTotals, PoolFacts, PoolName, Positions, Replication,
    ReportFacts, ReportRow, ServerFacts, ServerState, SocketFacts, StatsFacts, UserFacts, Zone,
};
pub use refusal::Refusal;
pub use reply::welcome;
pub use role::{CameBy, Role};
pub use views::{Need, View};

/// The database that is this console, and the user who owns it.
pub const CONSOLE: &str = "pgbouncer";

/// What SHOW VERSION answers and `-V` prints first. Tools compare it, so it names the PgBouncer
/// that we stand in for; our own version stands in the later lines of `-V`.
pub const VERSION_COMPAT: &str = "PgBouncer 1.25.2";

/// `server_version` on the console.
pub const SERVER_VERSION: &str = "1.25.2/bouncer";
