//! One client's use of one server: what each says is read, entered in the ledger and sent on.

use wire::Scanner;
use wire::tag::client as tag;

use crate::inward::Inward;
use crate::outward::Outward;
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
    /// The client was told of it.
    pub told: bool,
    /// It came after the client had had its last answer: it is none of the client's business.
    pub late: bool,
    /// What was to set the session failed, and what came after that was not passed on: the server is of no use.
    pub refused: bool,
    /// The goodbye was among the client's bytes that had been held back.
    pub terminate: bool,
}

/// `bytes` of a linked client. Ask `ServerSide::is_free` after this as well as after `from_server`:
/// a message may need no answer at all.
///
/// After a fault nothing more can be made of this client's bytes, and its server is not free.
pub fn from_client(
    client: &mut ClientSide,
    server: &mut ServerSide,
    statements: &mut Statements,
    rules: &Rules,
    bytes: &[u8],
    flow: &mut Flow,
) -> Result<Said, Fault> {
    flow.clear();
    if server.is_at_rest() {
        server.trail.begin();
    }
    if client.is_held() {
        client.hold_more(bytes);
        return resume(client, server, statements, rules, flow);
    }
    Outward { client, server, statements, rules, flow, input: bytes, passes: true }.run()
}

/// `bytes` of a server, and the client it is linked to, if any.
pub fn from_server(
    server: &mut ServerSide,
    mut client: Option<&mut ClientSide>,
    statements: &mut Statements,
    rules: &Rules,
    bytes: &[u8],
    flow: &mut Flow,
) -> Result<Heard, Fault> {
    flow.clear();
    let heard = Heard::default();
    let pids = &*statements.pids;
    let mut inward = Inward { server, client: client.as_deref_mut(), pids, rules, flow, heard };
    inward.run(bytes)?;
    let mut heard = inward.heard;
    if let Some(client) = client
        && client.is_held()
        && !heard.left_open
        && !heard.refused
        && !heard.fatal
    {
        heard.terminate = resume(client, server, statements, rules, flow)? == Said::Terminate;
    }
    Ok(heard)
}

/// Go on with what the client said before it had to wait, as far as it goes.
fn resume(
    client: &mut ClientSide,
    server: &mut ServerSide,
    statements: &mut Statements,
    rules: &Rules,
    flow: &mut Flow,
) -> Result<Said, Fault> {
    let Some(held) = client.take_held() else { return Ok(Said::More) };
    Outward { client, server, statements, rules, flow, input: &held, passes: false }.run()
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
pub fn unlinked(client: &mut ClientSide, bytes: &[u8]) -> Result<Unlinked, Fault> {
    let mut rest = bytes;
    loop {
        let from = bytes.len() - rest.len();
        let Some(header_tag) = client.scanner.pending().or_else(|| rest.first().copied()) else {
            return Ok(Unlinked::Nothing);
        };
        match header_tag {
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH => {}
            // A message that was begun already, or begins here for good.
            _ if !client.is_between() || client.scanner.has_header(rest) => {
                if header_tag == tag::TERMINATE {
                    return Ok(Unlinked::Terminate);
                }
                return Ok(Unlinked::Server { from });
            }
            // The scanner keeps the first bytes of a header.
            _ => {}
        }
        if client.scanner.next(&mut rest).map_err(Fault::Client)?.is_none() {
            return Ok(Unlinked::Nothing);
        }
    }
}

/// Whether what is held of a client, by the relay or as `held` behind that, ends in its goodbye: then it said
/// all it had to say, and is still to be answered.
#[must_use]
pub fn ends_in_goodbye(client: &ClientSide, held: &[u8]) -> bool {
    let (mut scanner, kept) = match client.held() {
        Some(kept) => (Scanner::default(), kept),
        None => (client.scanner.clone(), &[][..]),
    };
    for mut rest in [kept, held] {
        while let Ok(Some(piece)) = scanner.next(&mut rest) {
            if piece.tag == tag::TERMINATE && piece.ends {
                return true;
            }
        }
    }
    false
}
