//! State that a client may not make: how its request is made to fail.
//!
//! What the server is sent in its place is a word that no grammar knows, so that the request fails where
//! and as any other would: the transaction and the batch it stands in are the server's to judge, and it
//! alone says when it is ready. Its syntax error is then said in words of ours.

use wire::{ErrorFields, Report, write};

use crate::state::{Tie, Ties};

/// What the word begins with; the kind of state follows.
const MARK: &[u8] = b"howdah_refuses_";

/// `feature_not_supported`
pub const CODE: &str = "0A000";

/// What is sent in place of a text that shows it makes such state.
pub(crate) fn text(tie: Tie) -> Vec<u8> {
    [MARK, tie.word().as_bytes()].concat()
}

/// Which of `refused` a text makes, as far as it shows.
pub(crate) fn first(shows: Ties, refused: Ties) -> Option<Tie> {
    shows.iter().find(|tie| refused.has(*tie))
}

/// Which state a server's error is about: the body of its `ErrorResponse`.
pub(crate) fn read(error: &ErrorFields<'_>) -> Option<Tie> {
    if error.code() != b"42601" {
        return None;
    }
    let message = error.message();
    let at = message.windows(MARK.len()).position(|window| window == MARK)?;
    let word = message.get(at + MARK.len()..)?;
    let len = word.iter().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'_').count();
    let word = word.get(..len)?;
    Tie::ALL.into_iter().find(|tie| tie.word().as_bytes() == word)
}

/// What the client is told.
#[must_use]
pub fn message(tie: Tie) -> String {
    format!("{} is refused by the connection pooler", tie.words())
}

/// And why.
#[must_use]
pub fn hint(tie: Tie) -> String {
    format!("session_state has {}:error for this database or user. {}", tie.word(), tie.advice())
}

/// As the server would have said it.
pub(crate) fn error(tie: Tie, out: &mut Vec<u8>) {
    let (message, hint) = (message(tie), hint(tie));
    let report = Report {
        severity: b"ERROR",
        with_v: true,
        code: CODE.as_bytes(),
        message: message.as_bytes(),
        detail: None,
        hint: Some(hint.as_bytes()),
    };
    write::server::error_response(out, &report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_answer_is_known_again() {
        for tie in Tie::ALL {
            let word = String::from_utf8(text(tie)).expect("text");
            let body = format!("SERROR\0C42601\0Msyntax error at or near \"{word}\"\0\0");
            assert_eq!(read(&ErrorFields::new(body.as_bytes())), Some(tie));
            let body = body.replace("42601", "42501");
            assert_eq!(read(&ErrorFields::new(body.as_bytes())), None);
        }
        let body = b"SERROR\0C42601\0Msyntax error at or near \"howdah_refuses_x\"\0\0";
        assert_eq!(read(&ErrorFields::new(body)), None);
    }
}
