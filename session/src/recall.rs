//! Taking back what a client asked for, while it waits for a server.

use wire::tag::client as tag;

use crate::ClientSide;
use crate::server::Unnamed;

/// What was first in a client's held bytes, and is out of them now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Recalled {
    /// Something to run.
    Request,
    /// A Sync by itself: PostgreSQL answers it, whatever is cancelled.
    Sync,
}

/// Take the first request out of `held`, the bytes of a client without a server: a simple query or
/// function call, or all messages up to a Sync. `None`: it is not all there, or part of it is gone.
pub fn recall(client: &mut ClientSide, held: &mut Vec<u8>) -> Option<Recalled> {
    if !client.is_between() {
        return None;
    }
    if planted::is("header-in-two-parts") {
        client.scanner = Default::default();
    }
    // The first bytes of a header may be here already, and not in `held`.
    let (mut scanner, mut rest) = (client.scanner.clone(), held.as_slice());
    let mut recalled = Recalled::Sync;
    while let Ok(Some(piece)) = scanner.next(&mut rest) {
        if !piece.ends {
            continue;
        }
        match piece.tag {
            // What a COPY that failed has left behind asks for nothing.
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH => continue,
            tag::SYNC => {}
            // In a batch that fails, these are skipped too.
            tag::QUERY | tag::FUNCTION_CALL if recalled == Recalled::Sync => {
                recalled = Recalled::Request;
                if piece.tag == tag::QUERY {
                    // A server drops it before anything can be cancelled.
                    client.unnamed = Unnamed::Nothing;
                }
            }
            _ => {
                recalled = Recalled::Request;
                continue;
            }
        }
        let len = held.len() - rest.len();
        held.drain(..len);
        client.scanner = scanner;
        return Some(recalled);
    }
    None
}

#[cfg(test)]
mod tests {
    use wire::write::client as say;

    use super::*;
    use crate::{Tracked, Unlinked, Vars, unlinked};

    fn client() -> ClientSide {
        ClientSide::new(Vars::new(&Tracked::default()))
    }

    #[test]
    fn requests_come_out_one_by_one() {
        let mut held = Vec::new();
        say::sync(&mut held);
        say::query(&mut held, b"one");
        say::parse(&mut held, b"", b"two", b"");
        say::query(&mut held, b"skipped with it");
        say::sync(&mut held);
        say::parse(&mut held, b"", b"half a batch", b"");
        let (mut client, mut recalled) = (client(), Vec::new());
        while let Some(one) = recall(&mut client, &mut held) {
            recalled.push(one);
        }
        assert_eq!(recalled, [Recalled::Sync, Recalled::Request, Recalled::Request]);
        assert!(held.ends_with(b"half a batch\0\0\0"));
    }

    /// The relay has the first bytes of the header, and `held` begins in the midst of it.
    #[test]
    fn a_header_in_two_parts_is_one() {
        let mut bytes = Vec::new();
        say::query(&mut bytes, b"one");
        let mut client = client();
        assert_eq!(unlinked(&mut client, &bytes[..3]), Ok(Unlinked::Nothing));
        assert_eq!(unlinked(&mut client, &bytes[3..]), Ok(Unlinked::Server { from: 0 }));
        let mut held = bytes[3..].to_vec();
        assert_eq!(recall(&mut client, &mut held), Some(Recalled::Request));
        assert!(held.is_empty());
        assert_eq!(unlinked(&mut client, &bytes[..1]), Ok(Unlinked::Nothing), "a new one begins");
    }
}
