//! What the configuration says about a relay, and what goes wrong with one.

use wire::Malformed;

use crate::state::Ties;

/// The settings a relay works by. Cheap to make anew for each call, so a reload takes effect at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    pub mode: Mode,
    /// Most statements kept on a server (`max_prepared_statements`). 0: names are left as they are.
    pub prepared_max: u32,
    /// Most bytes of statement text kept on a server.
    pub prepared_bytes: usize,
    /// Longest message of a client in bytes (`max_packet_size`).
    pub packet_max: u32,
    /// Whether a simple Query may be sent (`disable_pqexec = 0`).
    pub pqexec: bool,
    /// Whether session state follows its client from server to server.
    pub follows: bool,
    /// Whether nothing is believed of what statements leave alone (`session_state_check_always`).
    pub doubts: bool,
    /// State that is refused.
    pub refused: Ties,
    /// Whether what clients do is noted for the report (`session_report`).
    pub reports: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::Transaction,
            prepared_max: 200,
            prepared_bytes: 16 << 20,
            packet_max: i32::MAX as u32,
            pqexec: true,
            follows: true,
            doubts: false,
            refused: Ties::default(),
            reports: false,
        }
    }
}

impl Rules {
    /// Whether requests are read for what they may do to the session.
    #[must_use]
    pub fn watches(&self) -> bool {
        self.follows && self.mode != Mode::Session
    }

    /// Whether statements are shared between clients, so that names must be rewritten.
    #[must_use]
    pub fn rewrites(&self) -> bool {
        self.mode != Mode::Session && self.prepared_max != 0
    }
}

/// When a server goes back to its pool (`pool_mode`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    #[default]
    Session,
    Transaction,
    /// As `Transaction`, and no transaction may span two queries.
    Statement,
}

/// A peer did what ends its connection. Nothing more can be made of its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The client's bytes are no messages.
    Client(Malformed),
    /// The client sent a message that no client sends after login.
    UnknownMessage { tag: u8 },
    /// The client's message is longer than `packet_max`.
    TooLong { tag: u8 },
    /// The client sent a simple Query, and these are not allowed.
    PqexecDisallowed,
    /// The server's bytes are no messages.
    Server(Malformed),
    /// The server said something that nobody asked for.
    Unexpected { tag: u8 },
}

impl Fault {
    /// Whether it is the server who is to blame.
    #[must_use]
    pub fn is_servers(&self) -> bool {
        matches!(self, Self::Server(_) | Self::Unexpected { .. })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(malformed) | Self::Server(malformed) => malformed.fmt(f),
            Self::UnknownMessage { .. } => f.write_str("unknown pkt"),
            Self::TooLong { .. } => f.write_str("packet too large"),
            Self::PqexecDisallowed => f.write_str("PQexec disallowed"),
            Self::Unexpected { tag } => {
                write!(f, "unexpected message '{}' from server", tag.escape_ascii())
            }
        }
    }
}

impl std::error::Error for Fault {}
