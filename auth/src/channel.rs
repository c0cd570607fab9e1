//! What lies between the two ends of a login.

use alloc::boxed::Box;

use crate::scram::Gs2;

/// The connection that a login goes over.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Channel {
    /// Whoever is in between can read and change what is said.
    #[default]
    Open,
    /// TLS. `end_point` is the hash of the server's certificate ([`end_point`](crate::end_point)), where
    /// there is one: a login can be bound to that, and is then worth nothing on another connection.
    Tls { end_point: Option<Box<[u8]>> },
}

impl Channel {
    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        match self {
            Self::Open | Self::Tls { end_point: None } => None,
            Self::Tls { end_point } => end_point.as_deref(),
        }
    }

    /// What a client that opened with `header` has to repeat under its proof; `None` for one that cannot
    /// be bound here.
    pub(crate) fn binding(&self, header: Gs2) -> Option<alloc::vec::Vec<u8>> {
        let data = match header {
            Gs2::Bound => self.end_point()?,
            Gs2::No | Gs2::Unoffered => &[],
        };
        Some([header.text().as_bytes(), data].concat())
    }
}
