//! SET in every spelling there is, made up at random: none is missed.

use proptest::prelude::*;
use sql::{Act, Item, Reading, States, Value};

/// A keyword, in any case.
fn keyword(word: &'static str) -> impl Strategy<Value = String> {
    prop::collection::vec(any::<bool>(), word.len()).prop_map(move |upper| {
        let letters = word.chars().zip(upper);
        letters
            .map(|(c, upper)| if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
            .collect()
    })
}

/// What may stand between two words.
fn space() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec![
            " ",
            "\n",
            "\t",
            "\r\n",
            "/**/",
            "/* SELECT 1; */",
            "/* /* ' */ $$ */",
            "-- ;'\n",
            "\u{b}",
        ]),
        1..4,
    )
    .prop_map(|parts| parts.concat())
}

/// A name, and one of the ways to write it.
fn name() -> impl Strategy<Value = (String, String)> {
    let plain = prop::sample::select(vec![
        "work_mem",
        "search_path",
        "app.tenant",
        "a.b.c",
        "statement_timeout",
        "datestyle",
        "xmloption2",
    ]);
    (plain, any::<[bool; 24]>(), 0..3_usize).prop_map(|(name, upper, how)| {
        let cased: String = name
            .chars()
            .zip(upper.iter().cycle())
            .map(|(c, upper)| if *upper { c.to_ascii_uppercase() } else { c })
            .collect();
        let parts = cased.split('.');
        let written: Vec<_> = match how {
            0 => parts.map(str::to_owned).collect(),
            1 => parts.map(|part| format!("\"{part}\"")).collect(),
            _ => parts.map(|part| format!("U&\"{}\"", part.replace('_', "\\005f"))).collect(),
        };
        (name.to_owned(), written.join("."))
    })
}

/// A text, and one of the ways to write it. `false`: what it comes to depends on `standard_conforming_strings`.
fn literal() -> impl Strategy<Value = (String, String)> {
    ("[ -~]{0,12}", 0..4_usize).prop_map(|(text, how)| {
        let quoted = text.replace('\'', "''");
        let written = match how {
            0 if !text.contains('\\') => format!("'{quoted}'"),
            1 if !text.contains("$q$") && !text.ends_with("$q") && !text.ends_with('$') => {
                format!("$q${text}$q$")
            }
            2 => format!("U&'{}'", quoted.replace('\\', "\\\\")),
            _ => format!("E'{}'", quoted.replace('\\', "\\\\")),
        };
        (text, written)
    })
}

fn set() -> impl Strategy<Value = (String, String, String, bool)> {
    let scope = prop_oneof![
        Just((String::new(), false)),
        keyword("session").prop_map(|word| (word, false)),
        keyword("local").prop_map(|word| (word, true)),
    ];
    let equals = prop_oneof![Just("=".to_owned()), keyword("to")];
    (keyword("set"), scope, name(), equals, literal(), prop::collection::vec(space(), 5)).prop_map(
        |(set, (scope, local), (name, written), equals, (text, literal), spaces)| {
            let [a, b, c, d, e] = &spaces[..] else { unreachable!("five were asked for") };
            let scope = if scope.is_empty() { scope } else { format!("{scope}{b}") };
            // U&"…" and U&'…' take no space before them to stay apart from a word.
            (name, text, format!("{e}{set}{a}{scope}{written}{c}{equals}{d}{literal}"), local)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_spelling_of_set_is_found((name, text, sql, local) in set(), before in any::<bool>(), after in any::<bool>()) {
        let before = if before { "SELECT ';SET';" } else { "" };
        let after = if after { "; COMMIT" } else { "" };
        let sql = format!("{before}{sql}{after}");
        let reading = Reading::of(sql.as_bytes(), true);
        prop_assert_eq!(reading.unread, None, "{}", sql);
        let found = reading.acts().find_map(|act| match act {
            Act::Set(setting) => Some(setting.clone()),
            _ => None,
        });
        let found = found.expect(&sql);
        prop_assert_eq!(&found.name, &name, "{}", sql);
        prop_assert_eq!(found.local, local);
        prop_assert_eq!(found.value, Value::Items(vec![Item::Text(text)]), "{}", sql);
        prop_assert_eq!(reading.makes(), if local { States::empty() } else { States::SETTINGS });
    }

    /// set_config called in any disguise is found.
    #[test]
    fn every_call_is_found(
        function in prop::sample::select(vec!["set_config", "SET_CONFIG", "pg_catalog.set_config", "\"set_config\"",
            "PG_Catalog /**/ . -- x\n set_config", "U&\"set!005fconfig\" UESCAPE '!'"]),
        gap in space(),
        around in prop::sample::select(vec!["SELECT {}", "SELECT * FROM {} x", "SELECT 1 WHERE {} = ''",
            "VALUES (({})::text)", "SELECT (SELECT {})", "SELECT ARRAY[{}]", "WITH a AS (SELECT {}) TABLE a",
            "INSERT INTO t SELECT {}", "UPDATE t SET a = {}", "DELETE FROM t WHERE {} IS NULL", "COPY (SELECT {}) TO STDOUT",
            "EXPLAIN ANALYZE SELECT {}", "SELECT max(a) OVER (ORDER BY {}) FROM t", "SELECT {} LIMIT 1",
            "SELECT a FROM t GROUP BY a HAVING {} > ''", "SELECT CASE WHEN a THEN {} END FROM t",
            "SELECT * FROM t JOIN u ON {} = a", "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = {}",
            "INSERT INTO t VALUES (1) RETURNING {}", "SELECT a IN (1, {}) FROM t", "SELECT {} || 'x' || 'y'",
            "DECLARE c CURSOR FOR SELECT {}", "CREATE TABLE x AS SELECT {}", "SELECT f FROM t FOR UPDATE OF t LIMIT {}::int"]),
    ) {
        let call = format!("{function}{gap}('a.b',{gap}$1, false)");
        let sql = around.replace("{}", &call);
        let reading = Reading::of(sql.as_bytes(), true);
        prop_assert_eq!(reading.unread, None, "{}", sql);
        prop_assert!(reading.makes().contains(States::SETTINGS), "{}", sql);
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), conforming in any::<bool>()) {
        let _reading = Reading::of(&bytes, conforming);
    }

    #[test]
    fn any_words_are_survived(words in prop::collection::vec(prop::sample::select(vec![
        "SET", "LOCAL", "RESET", "ALL", "PREPARE", "AS", "SELECT", "(", ")", ";", "'", "\"", "$$", "/*", "*/", "--", "\n",
        "a", "1", ",", "=", "TO", "BEGIN", "ROLE", "TIME", "ZONE", "TEMP", "TABLE", "CREATE", "DECLARE", "CURSOR", "FOR",
        "EXPLAIN", "ANALYZE", "EXECUTE", "INTO", "FROM", "UNION", ".", "U&'", "E'", "\\", "é", "DROP", "DISCARD", "WITH",
    ]), 0..24), conforming in any::<bool>()) {
        let sql = words.join(" ");
        let reading = Reading::of(sql.as_bytes(), conforming);
        for statement in &reading.statements {
            prop_assert!(sql.get(statement.range.clone()).is_some());
        }
    }
}
