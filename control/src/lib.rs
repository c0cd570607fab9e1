//! The slow side: what takes milliseconds to seconds and must never be waited for by a worker.
//! Work comes by mail, and the answer is a call of what was sent along with it.

mod callers;
mod control;
mod directory;
mod names;
mod vouch;

pub use callers::Callers;
pub use control::{Control, Limits, Mailbox, Refused};
pub use names::{Nowhere, Sources};
pub use vouch::Verdict;
