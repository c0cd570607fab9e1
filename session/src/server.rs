//! What is remembered of a server. It goes where the server goes, also to another thread.

use wire::Status;

use crate::{ClientSide, Vars};

/// The server's side of a relay.
#[derive(Debug)]
pub struct ServerSide {
    pub vars: Vars,
}

/// Whose answer it is when we ask something ourselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    /// The client's tracked parameters. When it is answered the client adopts the server's spelling.
    Set,
    /// `server_check_query`, or an empty query to see whether the server is alive.
    Check,
    /// `server_reset_query`.
    Reset,
    /// `connect_query`.
    Connect,
}

impl ServerSide {
    /// A server that has just logged us in and reported these values.
    #[must_use]
    pub fn new(vars: Vars) -> Self {
        Self { vars }
    }

    /// Ask something ourselves: the query is appended to `out`, its answer is kept from clients and
    /// reported in `Flow::owned`. Only for a server that is free.
    pub fn own(&mut self, _kind: Own, _sql: &[u8], _out: &mut Vec<u8>) {
        todo!()
    }

    /// Whether it can serve somebody else than `client`, to whom it is linked.
    #[must_use]
    pub fn is_free(&self, client: &ClientSide) -> bool {
        self.is_done(client) && !self.is_spoilt()
    }

    /// As `is_free`, but for a spoilt server as well: that is to be closed now, and the client can
    /// go on with another.
    #[must_use]
    pub fn is_done(&self, _client: &ClientSide) -> bool {
        todo!()
    }

    /// Whether it is free as far as itself goes, linked to nobody.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        todo!()
    }

    /// Whether something surprising happened, so that it must not be given to anybody else.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        todo!()
    }

    /// Never give it to anybody else.
    pub fn spoil(&mut self) {
        todo!()
    }

    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.status() != Status::Idle
    }

    /// As the last `ReadyForQuery` said.
    #[must_use]
    pub fn status(&self) -> Status {
        todo!()
    }

    /// Whether it owes an answer.
    #[must_use]
    pub fn owes(&self) -> bool {
        todo!()
    }

    /// How many prepared statements it has.
    #[must_use]
    pub fn prepared(&self) -> usize {
        todo!()
    }
}
