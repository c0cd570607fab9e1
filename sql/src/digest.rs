//! A statement without its constants: what tells it from others, and how it is shown.

use std::ops::Range;

use pg_query::protobuf::{ScanToken, Token};
use pg_query::{FingerprintOptions, ParserOptions};

use crate::reading::{STACK_BYTES, may_be_read, tokens};

/// What is left of a statement when its constants are taken out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Digest {
    /// The same for statements that differ by their constants, comments and white space only, as a rule.
    pub number: u64,
    /// The statement with a `?` where each constant stood, and without comments.
    pub text: String,
}

impl Digest {
    /// `None` of what the grammar refuses.
    #[must_use]
    pub fn of(statement: &str) -> Option<Self> {
        if !may_be_read(statement) {
            return None;
        }
        let digest = || {
            let (parser, options) = (ParserOptions::DEFAULT, FingerprintOptions::DEFAULT);
            let number = pg_query::fingerprint(statement, parser, options).ok()?.value;
            Some(Self { number, text: bare(statement)? })
        };
        stacker::maybe_grow(STACK_BYTES, 2 * STACK_BYTES, digest)
    }
}

/// Without constants and comments. The scanner sees them in every kind of statement.
fn bare(statement: &str) -> Option<String> {
    let mut text = String::new();
    let mut rest = 0;
    for token in tokens(statement)? {
        let Some(instead) = instead(&token) else { continue };
        let Range { start, end } = range(&token)?;
        text.push_str(statement.get(rest..start)?);
        text.push_str(instead);
        rest = end;
    }
    text.push_str(statement.get(rest..)?);
    Some(text.trim().to_owned())
}

/// What stands in place of a token that is not shown.
fn instead(token: &ScanToken) -> Option<&'static str> {
    match Token::try_from(token.token).ok()? {
        Token::Iconst
        | Token::Fconst
        | Token::Sconst
        | Token::Usconst
        | Token::Bconst
        | Token::Xconst => Some("?"),
        Token::SqlComment | Token::CComment => Some(""),
        _ => None,
    }
}

pub(crate) fn range(token: &ScanToken) -> Option<Range<usize>> {
    Some(usize::try_from(token.start).ok()?..usize::try_from(token.end).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(statement: &str) -> Digest {
        Digest::of(statement).expect("a statement")
    }

    #[test]
    fn constants_make_no_difference() {
        let one = digest("SELECT pg_advisory_lock(17), 'a' FROM t WHERE i IN (1, 2)");
        let other =
            digest("select pg_advisory_lock( 4711 ), 'b' /* c */ from t where i in (1,2,3)");
        assert_eq!(one.number, other.number);
        assert_eq!(one.text, "SELECT pg_advisory_lock(?), ? FROM t WHERE i IN (?, ?)");
        assert_ne!(one.number, digest("SELECT pg_advisory_unlock(17)").number);
        assert_ne!(digest("SET a.b = 1").number, digest("SET a.c = 1").number);
    }

    #[test]
    fn nothing_is_left_of_nothing() {
        for nothing in ["", " ", "\t\n\x0b\x0c\r ", "-- hush", "/* hush */", ";"] {
            assert!(Digest::of(nothing).is_none_or(|digest| digest.text.len() <= 1), "{nothing:?}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        for statement in [
            "SET app.token = 'hush'",
            "SELECT set_config('app.token', 'hush', false)",
            "CREATE ROLE r PASSWORD 'hush'",
            "DO $$ BEGIN PERFORM 'hush'; END $$",
            "PREPARE p AS SELECT 'hush'",
            "SET SESSION AUTHORIZATION 'hush'",
            "SELECT E'hush', U&'hush', $a$hush$a$ /* hush */ -- hush",
        ] {
            let text = digest(statement).text;
            assert!(!text.contains("hush"), "{text}");
        }
    }

    /// Parameters are no constants, and names keep their digits.
    #[test]
    fn what_is_no_constant_stays() {
        let text = "SELECT $1, \"17\", t17.a FROM t17 WHERE true";
        assert_eq!(digest(text).text, text);
    }

    #[test]
    fn what_is_no_statement_has_none() {
        assert_eq!(Digest::of("no such thing"), None);
        assert_eq!(Digest::of("select '\0'"), None);
        assert_eq!(
            Digest::of(&format!("select {}1{}", "(".repeat(20_000), ")".repeat(20_000))),
            None
        );
    }
}
