//! Whose cryptography it is. To change it, change this file and two features in `Cargo.toml`.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::server::ProducesTickets;

pub(crate) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// What signatures are checked with.
pub(crate) fn algorithms() -> WebPkiSupportedAlgorithms {
    provider().signature_verification_algorithms
}

/// Tickets with which clients resume. Their key changes by itself every few hours.
pub(crate) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    rustls::crypto::ring::Ticketer::new()
}
