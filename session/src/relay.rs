//! One client's use of one server: what each says is read, entered in the ledger and sent on.

use crate::{ClientSide, Fault, Flow, Rules, ServerSide, Statements};

/// What came of a client's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Said {
    /// All is on its way, or waits for the rest of a message.
    More,
    /// It depends on an answer still to come. The client keeps the rest itself; it goes on from
    /// `from_server`. Read no more from this client until `ClientSide::is_held` is false.
    Held,
    /// The client says goodbye. What came before it is on its way; the goodbye itself is not.
    Terminate,
}

/// What came of a server's bytes, beyond the bytes to be sent on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Heard {
    /// In statement mode, a query left a transaction open. Its `ReadyForQuery` and what came after
    /// it were not passed on: both connections are to be closed.
    pub left_open: bool,
    /// A FATAL error: the server is about to hang up.
    pub fatal: bool,
    /// The goodbye was among the client's bytes that had been held back.
    pub terminate: bool,
}

/// `bytes` of a linked client. Ask `ServerSide::is_free` after this as well as after `from_server`:
/// a message may need no answer at all.
pub fn from_client(
    _client: &mut ClientSide,
    _server: &mut ServerSide,
    _statements: &mut Statements,
    _rules: &Rules,
    _bytes: &[u8],
    _flow: &mut Flow,
) -> Result<Said, Fault> {
    todo!()
}

/// `bytes` of a server, and the client it is linked to, if any.
pub fn from_server(
    _server: &mut ServerSide,
    _client: Option<&mut ClientSide>,
    _statements: &mut Statements,
    _rules: &Rules,
    _bytes: &[u8],
    _flow: &mut Flow,
) -> Result<Heard, Fault> {
    todo!()
}

/// What the bytes of a client without a server ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unlinked {
    /// Nothing: they are used up.
    Nothing,
    /// A server. The bytes from here on are to be given to `from_client` once it has one.
    Server { from: usize },
    /// The client says goodbye.
    Terminate,
}

/// `bytes` of a client that has no server. What a server would only skip (the rest of a COPY that
/// failed meanwhile, a Flush with nothing to flush) is dropped here.
pub fn unlinked(_client: &mut ClientSide, _bytes: &[u8]) -> Result<Unlinked, Fault> {
    todo!()
}
