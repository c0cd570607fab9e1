//! Howdah from outside: what the tests start, say and hear.
//!
//! Nothing here knows a crate of Howdah. A test starts a real PostgreSQL (or a fake server that does what a real one
//! cannot be made to do), a pooler in front of it, and speaks the protocol over sockets. `HOWDAH_TEST_BINARY` names the
//! pooler under test; PgBouncer will do wherever it has the feature.

pub mod certificates;
pub mod clock;
pub mod dns;
pub mod fake;
pub mod howdah;
pub mod login;
pub mod oracle;
pub mod place;
pub mod postgres;
pub mod raw;
pub mod reaper;
pub mod reply;
pub mod say;
pub mod sealed;
pub mod slapd;
pub mod twins;
pub mod world;

pub use clock::{Measured, timed};
pub use dns::{Mood, NameServer};
pub use fake::{FakeServer, Guest};
pub use howdah::{Howdah, Setup, Subject, subject};
pub use login::{Login, Refused};
pub use oracle::{Oracle, Until};
pub use place::Address;
pub use postgres::Postgres;
pub use raw::{Heard, Raw};
pub use reply::{Fields, Message, Reply};
pub use world::{Dice, Raise, World, eventually, eventually_within, seconds, took};
