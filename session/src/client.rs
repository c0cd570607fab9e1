//! What is remembered of a client. An idle one holds little, and there are many of them.

use crate::Vars;

/// The client's side of a relay.
#[derive(Debug)]
pub struct ClientSide {
    pub vars: Vars,
}

impl ClientSide {
    /// A client that has just logged in with these values.
    #[must_use]
    pub fn new(vars: Vars) -> Self {
        Self { vars }
    }

    /// Whether it waits for an answer with bytes in hand, so that no more should be read from it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        todo!()
    }

    /// How many prepared statements it has.
    #[must_use]
    pub fn prepared(&self) -> usize {
        todo!()
    }
}
