//! Reading and printing one value, kind by kind.

use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use crate::words::Word;

/// The largest number PgBouncer holds, and so the end of most ranges.
pub(crate) const MOST: u32 = i32::MAX as u32;

/// How one kind of value is read, checked and printed.
pub(crate) trait Kind {
    type Value;

    /// The value that `text` says; `None` if it says none.
    fn read(&self, text: &str) -> Option<Self::Value>;

    /// As SHOW CONFIG prints it; `None` is NULL.
    fn show(&self, value: &Self::Value) -> Option<String>;

    /// What would have been right, after "expected ".
    fn expects(&self) -> String;

    /// What to do with what looks like a comment behind the value.
    fn comments(&self) -> Comments {
        Comments::Strip
    }
}

/// What to do with ` # …` or ` ; …` behind a value. PgBouncer takes it for a part of the value,
/// which for a number stops the boot and for a text is hardly ever meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Comments {
    /// Such a value has no use for a `#` or `;` behind a blank.
    Strip,
    /// SQL: ` ;` is part of the language, ` # ` outside of quotes all but never.
    StripHash,
    /// Prose: anything may be meant.
    Keep,
}

/// 0 or 1, read as a number: `yes` and `true` are refused, as PgBouncer does.
pub(crate) struct Flag;

/// A whole number between the two ends, both included.
pub(crate) struct Int(pub(crate) u32, pub(crate) u32);

/// A TCP port.
pub(crate) struct Port;

/// Seconds, possibly with a fraction.
pub(crate) struct Seconds;

pub(crate) struct Text;

/// A text where NULL means something of its own; the empty text is NULL.
pub(crate) struct MaybeText;

/// Queries.
pub(crate) struct Sql;

/// Words for people.
pub(crate) struct Prose;

/// The name of a database other than the console's.
pub(crate) struct AuthDb;

/// Words separated by commas.
pub(crate) struct Items;

/// One of a few words.
pub(crate) struct OneOf<T>(pub(crate) PhantomData<T>);

/// Words separated by commas, and the text they came from.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List {
    text: String,
    items: Vec<String>,
}

impl List {
    /// Splits at commas, trims, and drops what is empty.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Self { text: text.to_owned(), items: items.map(str::to_owned).collect() }
    }

    /// The list as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `name` is one of the items, to the letter.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.items.iter().any(|item| item == name)
    }
}

impl Deref for List {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.items
    }
}

impl Kind for Flag {
    type Value = bool;

    fn read(&self, text: &str) -> Option<bool> {
        match int(text)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn show(&self, value: &bool) -> Option<String> {
        Some(u8::from(*value).to_string())
    }

    fn expects(&self) -> String {
        "0 or 1".to_owned()
    }
}

impl Kind for Int {
    type Value = u32;

    fn read(&self, text: &str) -> Option<u32> {
        let value = u32::try_from(int(text)?).ok()?;
        (self.0..=self.1).contains(&value).then_some(value)
    }

    fn show(&self, value: &u32) -> Option<String> {
        Some(value.to_string())
    }

    fn expects(&self) -> String {
        format!("a whole number from {} to {}", self.0, self.1)
    }
}

impl Kind for Port {
    type Value = u16;

    fn read(&self, text: &str) -> Option<u16> {
        u16::try_from(int(text)?).ok().filter(|port| *port > 0)
    }

    fn show(&self, value: &u16) -> Option<String> {
        Some(value.to_string())
    }

    fn expects(&self) -> String {
        "a port from 1 to 65535".to_owned()
    }
}

impl Kind for Seconds {
    type Value = Duration;

    fn read(&self, text: &str) -> Option<Duration> {
        seconds(text)
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some(shown_seconds(*value))
    }

    fn expects(&self) -> String {
        format!("seconds without a unit, such as 30 or 1.5, at most {MOST}")
    }
}

/// The kinds whose value is the text itself.
macro_rules! plain_text {
    ($kind:ident, $comments:ident) => {
        impl Kind for $kind {
            type Value = String;

            fn read(&self, text: &str) -> Option<String> {
                Some(text.to_owned())
            }

            fn show(&self, value: &String) -> Option<String> {
                Some(value.clone())
            }

            fn expects(&self) -> String {
                "a text".to_owned()
            }

            fn comments(&self) -> Comments {
                Comments::$comments
            }
        }
    };
}

plain_text!(Text, Strip);
plain_text!(Sql, StripHash);
plain_text!(Prose, Keep);

impl Kind for MaybeText {
    type Value = Option<String>;

    fn read(&self, text: &str) -> Option<Option<String>> {
        Some(if text.is_empty() { None } else { Some(text.to_owned()) })
    }

    fn show(&self, value: &Option<String>) -> Option<String> {
        value.clone()
    }

    fn expects(&self) -> String {
        "a text".to_owned()
    }
}

impl Kind for AuthDb {
    type Value = Option<String>;

    fn read(&self, text: &str) -> Option<Option<String>> {
        if text == crate::database::CONSOLE { None } else { MaybeText.read(text) }
    }

    fn show(&self, value: &Option<String>) -> Option<String> {
        value.clone()
    }

    fn expects(&self) -> String {
        "a database other than the reserved \"pgbouncer\"".to_owned()
    }
}

impl Kind for Items {
    type Value = List;

    fn read(&self, text: &str) -> Option<List> {
        Some(List::new(text))
    }

    fn show(&self, value: &List) -> Option<String> {
        Some(value.text.clone())
    }

    fn expects(&self) -> String {
        "a list separated by commas".to_owned()
    }
}

impl<T: Word> Kind for OneOf<T> {
    type Value = T;

    fn read(&self, text: &str) -> Option<T> {
        T::read(text)
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(value.word().to_owned())
    }

    fn expects(&self) -> String {
        T::expects()
    }
}

/// Numbers as C's `strtol` with base 0 reads them, and nothing behind: `0x10`, `0777`, `-1`.
pub(crate) fn int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (&digits[1..], 8),
        None => (digits, 10),
    };
    // from_str_radix takes a sign of its own.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let value = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// Decimal seconds to microseconds, at most [`MOST`] seconds.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    // What Rust reads and C does not mean as a number of seconds: inf, nan, infinity.
    if !text.chars().all(decimal) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if !(0.0..=f64::from(MOST)).contains(&value) {
        return None;
    }
    let micros = (value * 1e6).round() as u64;
    // 0 means "never" to most settings, which nobody who wrote a positive number meant.
    let least = u64::from(value > 0.0);
    Some(Duration::from_micros(micros.max(least)))
}

/// Seconds as the shortest decimal: 30, 1.5, 0.000001.
pub(crate) fn shown_seconds(value: Duration) -> String {
    match value.subsec_micros() {
        0 => value.as_secs().to_string(),
        micros => {
            let fraction = format!("{micros:06}");
            format!("{}.{}", value.as_secs(), fraction.trim_end_matches('0'))
        }
    }
}

/// What stands before the comment behind a value, if there seems to be one: a `#` or `;` at the
/// beginning or behind a blank.
pub(crate) fn before_comment(text: &str, comments: Comments) -> Option<&str> {
    let (mut after_blank, mut quote) = (true, None);
    for (at, c) in text.char_indices() {
        let starts = match comments {
            Comments::Strip => c == '#' || c == ';',
            Comments::StripHash => {
                c == '#' && quote.is_none() && !text[at + 1..].starts_with(|c| !blank(c))
            }
            Comments::Keep => false,
        };
        if starts && after_blank {
            return Some(text[..at].trim_end());
        }
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            _ => {}
        }
        after_blank = blank(c);
    }
    None
}

/// Blanks as C's `isspace` sees them.
pub(crate) fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_strtol_reads_them() {
        let good = [
            ("0", 0),
            ("7", 7),
            ("+7", 7),
            ("-7", -7),
            ("0x10", 16),
            ("0XfF", 255),
            ("0777", 511),
            ("00", 0),
            ("-0x10", -16),
        ];
        for (text, value) in good {
            assert_eq!(int(text), Some(value), "{text}");
        }
        let bad = ["", "-", "+", "0x", "08", "1k", "1 ", "1.5", "0x+1", "--1", "0-1", "ä", "-ä"];
        for text in bad {
            assert_eq!(int(text), None, "{text}");
        }
        assert_eq!(int("99999999999999999999"), None);
    }

    #[test]
    fn seconds_to_the_microsecond_and_back() {
        let good = [
            ("0", 0, "0"),
            ("30", 30_000_000, "30"),
            ("1.5", 1_500_000, "1.5"),
            (".25", 250_000, "0.25"),
            ("5.", 5_000_000, "5"),
            ("1.000001", 1_000_001, "1.000001"),
            ("1e2", 100_000_000, "100"),
            ("2147483647", 2_147_483_647_000_000, "2147483647"),
            // Zero is "never", which this is not.
            ("0.0000001", 1, "0.000001"),
        ];
        for (text, micros, shown) in good {
            let value = seconds(text);
            assert_eq!(value, Some(Duration::from_micros(micros)), "{text}");
            assert_eq!(shown_seconds(Duration::from_micros(micros)), shown, "{text}");
        }
        for text in ["", "1h", "-1", "inf", "nan", "1,5", "0x10", "2147483648", "1e99", "."] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_comment_begins_at_a_hash_or_semicolon_behind_a_blank() {
        use Comments::{Keep, Strip, StripHash};
        let cases = [
            (Strip, "1 # one", Some("1")),
            (Strip, "1 ;", Some("1")),
            (Strip, "1\t#one", Some("1")),
            (Strip, "# none", Some("")),
            (Strip, "a#b;c", None),
            (Strip, "", None),
            (StripHash, "DISCARD ALL # clean", Some("DISCARD ALL")),
            (StripHash, "DISCARD ALL #", Some("DISCARD ALL")),
            (StripHash, "select 1 ; select 2", None),
            (StripHash, "select 5 #3", None),
            (StripHash, "select ' # ' # c", Some("select ' # '")),
            (StripHash, "select \" # \"", None),
            (StripHash, "select ' it''s # '", None),
            (Keep, "you are # 1", None),
        ];
        for (comments, text, want) in cases {
            assert_eq!(before_comment(text, comments), want, "{text}");
        }
    }

    #[test]
    fn a_list_knows_its_items_and_its_text() {
        let list = List::new(" a, b c ,,d");
        assert_eq!(*list, ["a", "b c", "d"]);
        assert_eq!(list.text(), " a, b c ,,d");
        assert!(list.has("b c") && !list.has("b"));
        assert!(List::new("").is_empty());
    }
}
