//! What a client and a server say to each other, and what we make of it. Bytes in, bytes and
//! verdicts out: no socket, clock or dice.

mod ahead;
mod cache;
mod client;
mod flow;
mod inward;
mod ledger;
mod lend;
pub mod login;
mod made;
mod names;
mod notes;
mod outward;
mod pids;
mod reading;
mod recall;
pub mod refusal;
mod relay;
mod rules;
mod sequences;
mod server;
mod shape;
mod sight;
mod signals;
mod state;
mod statements;
mod text;
mod trail;
mod vars;
mod wager;

pub use client::ClientSide;
pub use flow::{Aside, Counted, Flow, Owned, Pieces};
pub use made::{Deed, Made};
pub use pids::{FIRST as FIRST_PID, Links, Pids, Voice};
pub use reading::{Marks, Read, Reading, Readings};
pub use recall::{Recalled, recall};
pub use relay::{Heard, Said, Unlinked, ends_in_goodbye, from_client, from_server, unlinked};
pub use rules::{Fault, Mode, Rules};
pub use sequences::Habit;
pub use server::{Found, Own, ServerSide};
pub use sight::{Fate, Kind, Sight, of_kind};
pub use state::{State, Tie, Ties};
pub use statements::{Registry, Statement, Statements};
pub use text::read;
pub use trail::{Asked, Trail, adapt, is_shared};
pub use vars::{Tracked, Vars, differing};
