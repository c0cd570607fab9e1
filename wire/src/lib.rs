//! PostgreSQL's wire protocol, version 3: where messages begin and end, and what the few we read
//! say. Bytes in, facts out; nothing here waits or remembers a connection. Reading never allocates;
//! writing appends to the caller's own vector.

#![no_std]

extern crate alloc;

mod error;
mod read;
mod scan;
mod startup;
pub mod tag;
mod text;
pub mod write;

pub use error::{ErrorFields, Report};
pub use read::{
    Authentication, BackendKey, BindNames, Column, CommandTag, DataRow, Named, Namespace,
    Negotiate, Notification, ParameterDescription, ParameterStatus, Parse, Password, Query,
    RowDescription, SaslInitial, Status, Types,
};
pub use scan::{Piece, Scanner};
pub use startup::{
    CANCEL_CODE, GSS_CODE, PACKET_MAX, PACKET_MIN, Parameters, SSL_CODE, Startup, TLS_HANDSHAKE,
    first_packet, key_fits,
};
pub use text::Strings;

/// The peer broke the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// A length that no honest peer sends. There is no way to find the next message after this.
    Length { tag: u8, len: u32 },
    /// A body that is not of its tag's form.
    Body { tag: u8 },
    /// A status byte in `ReadyForQuery` that is none of `I`, `T`, `E`.
    TransactionStatus(u8),
    /// The first packet is shorter or longer than PostgreSQL takes, or not of its form.
    Startup,
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Length { tag, len } => {
                write!(f, "invalid length {len} of message '{}'", tag.escape_ascii())
            }
            Self::Body { tag } => write!(f, "invalid message '{}'", tag.escape_ascii()),
            Self::TransactionStatus(status) => {
                write!(f, "invalid transaction status '{}'", status.escape_ascii())
            }
            Self::Startup => f.write_str("invalid startup packet"),
        }
    }
}

impl core::error::Error for Malformed {}
