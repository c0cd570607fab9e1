//! Keys, certificates and what is trusted, made ready for handshakes.
//!
//! Sans-IO but for the files that settings name, and those are read by whoever asks for a set-up.
//! Handshakes themselves are the io room's.

mod certificate;
mod certified;
mod pem;
mod provider;
mod setup;
mod suites;
mod trust;
mod verifier;

pub use certificate::server_name;
pub use setup::{Error, Inward, Mode, Outward, Read, Wish};

/// What both sides of the PostgreSQL protocol call it in ALPN.
pub const ALPN: &[u8] = b"postgresql";
