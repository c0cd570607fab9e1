//! Text → checked [`Config`].
//!
//! [`load`] reads the ini (through [`Files`], so that it needs no disk), checks every line and
//! says all that is wrong with it, not only the first. [`check`] explains the outcome to a person.
//! After a RELOAD, [`reload`] says what changed; SET is [`set_runtime`].

mod check;
mod config;
mod database;
mod docs;
mod effective;
mod files;
mod ini;
mod pairs;
mod peer;
mod problem;
mod reload;
mod session_state;
mod settings;
#[cfg(test)]
mod shelf;
mod user;
mod value;
mod words;
mod workers;

pub use check::{FdLimit, Report, Userlist, check};
pub use config::{Config, load, parse, set_runtime};
pub use database::{Database, Host, LoadBalance, Secret, SslNegotiation};
pub use docs::{settings_manual, settings_page};
pub use files::{Disk, Files};
pub use peer::Peer;
pub use problem::{Place, Problem, Problems};
pub use reload::{Changed, Diff, reload};
pub use session_state::{KINDS, KindRow, StateKind, StatePolicy, Verdict};
pub use settings::{Effect, Reloadable, Row, Settings, Shown, TABLE};
pub use user::UserRow;
pub use value::List;
pub use words::{AuthType, IoDriver, PoolMode, SslMode};
pub use workers::workers;
