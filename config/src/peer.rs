//! One line of `[peers]`.

use crate::Host;

/// Another process, to which cancel requests that are its own are sent on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    pub id: u32,
    pub host: Host,
    pub port: u16,
    /// `None` is `default_pool_size`.
    pub pool_size: Option<u32>,
}
