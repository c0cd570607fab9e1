//! The kernel, as the worker sees it: orders out, completions in.
//!
//! Everything here is shaped as a completion, because io_uring works that way and readiness can
//! be made to (try, and on `EAGAIN` wait until ready and try again). The reverse is not true.
//! This room knows no PostgreSQL, and with `pam`, it is the only one with `unsafe`.

mod address;
mod any;
mod bell;
mod buf;
mod driver;
mod lender;
mod outbox;
mod pace;
mod readiness;
mod slots;
mod socket;
mod tls;
mod uring;

pub use address::{Address, Ends};
pub use any::{AnyDriver, Kind, open};
pub use buf::Buf;
pub use driver::{Buffers, Conn, Done, Driver, Listener, Tuning, Wake, Waker};
pub use readiness::Readiness;
pub use socket::{Socket, listen_tcp, listen_unix};
pub use tls::{Sealed, Session, Tls};
pub use uring::Uring;
