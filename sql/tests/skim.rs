//! What is skimmed finds at least what PostgreSQL's own scanner finds, of whatever that can read.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sql::{Code, Skim, Strings, Unseen};

/// Pieces of texts, well-formed and not.
const PIECES: &[&str] = &[
    "enter",
    "(",
    ")",
    "f",
    "\"F \"\"x\"",
    "'",
    "''",
    "\"",
    "$$",
    "$a$",
    "$a",
    "$1",
    "E'",
    "e'\\'",
    "U&'x'",
    "--",
    "\n",
    "/*",
    "*/",
    "/",
    "*",
    "-",
    "+",
    "<=>",
    "###",
    "&",
    "|",
    " ",
    "  ",
    ",",
    " . ",
    "::",
    "1",
    "1.5e7",
    "1e",
    "0x1f",
    "a$b",
    "_x",
    "DO",
    "do language plpgsql",
    "set",
    "SET LOCAL",
    "session",
    "app.tenant",
    "\"app\" . x",
    "set_config",
    "set_config(",
    "'app.x'",
    "setseed",
    "lastval",
    "nextval(",
    "LOAD",
    "'x'",
    "create",
    "drop ",
    "table",
    "values",
    "select ",
    "execute",
    "execute 'SET a' || 'b'",
    "execute x",
    "execute x.y",
    "for x",
    "dblink_connect(",
    "=",
    "to",
];

fn lossy(all: &BTreeSet<Box<[u8]>>) -> BTreeSet<String> {
    all.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// As PostgreSQL cuts names.
fn clipped(name: &str) -> &str {
    let end = (0..=63).rev().find(|at| name.is_char_boundary(*at));
    name.get(..end.unwrap_or_default()).unwrap_or(name)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_missed(
        pieces in prop::collection::vec((prop::sample::select(PIECES), prop::bool::weighted(0.6)), 0..16),
        cuts in prop::collection::vec(1_usize..9, 1..9),
    ) {
        let space = |(piece, spaced): &(&str, bool)| format!("{piece}{}", if *spaced { " " } else { "" });
        let text: String = pieces.iter().map(space).collect();
        let whole = Skim::of(text.as_bytes(), Strings::default());
        let (mut cut, mut rest) = (Skim::new(Strings::default()), text.as_bytes());
        for len in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at((*len).min(rest.len()));
            cut.take(piece);
            rest = behind;
        }
        prop_assert_eq!(&cut.end(), &whole);
        let Some(code) = Code::of(&text) else { return Ok(()) };
        let (names, calls) = (lossy(&whole.names), lossy(&whole.calls));
        // Of a block, all between quotes counts, but no quote.
        let is_odd = |name: &str| name.contains('"');
        for name in &code.names {
            // That of a string is a word to the scanner.
            prop_assert!(is_odd(name) || name == "n" || names.contains(clipped(name)), "{name} in {text}");
        }
        for name in &code.calls {
            // A table, or a word of the grammar's.
            let is_none = is_odd(name) || ["values", "update"].contains(&&name[..]) ;
            prop_assert!(is_none || calls.contains(clipped(name)), "{name}( in {text}");
        }
        prop_assert!(whole.hides || !code.hides, "{text} hides");
        // Behind LOAD there has to be a string.
        let unseen = code.unseen - Unseen::KEEPS;
        prop_assert!(whole.unseen.contains(unseen), "{text}: {:?}, {:?}", whole.unseen, unseen);
    }
}
