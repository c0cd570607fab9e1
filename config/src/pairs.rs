//! The `key=value` pairs behind a name, as libpq writes them.
//!
//! Pairs are separated by blanks. A value in `'…'` may hold blanks, and `''` is a quote in it. An
//! empty value is not allowed. Numbers are read as C's `atoi` does: the digits at the beginning
//! count and the rest is dropped, of which we warn; no digits at all is an error here.

use std::time::Duration;

use crate::problem::Findings;
use crate::value::{Flag, Kind, MOST, blank};
use crate::words::Word;
use crate::{Place, PoolMode, Problem, Secret};

/// A key that the lines of one section may have.
pub(crate) struct Key<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) field: Field<T>,
    /// What holds when it is not there, for the documentation.
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

/// Where the value of a key goes, and so what it may be.
pub(crate) enum Field<T> {
    Text(fn(&mut T) -> &mut Option<String>),
    Number(fn(&mut T) -> &mut Option<u32>),
    /// Whole seconds.
    Seconds(fn(&mut T) -> &mut Option<Duration>),
    Mode(fn(&mut T) -> &mut Option<PoolMode>),
    /// 0 or 1, or another word for one of these.
    Flag(fn(&mut T) -> &mut Option<bool>),
    Port(fn(&mut T) -> &mut u16),
    Secret(fn(&mut T) -> &mut Option<Secret>),
    /// Anything else; the error is what would have been right.
    Other(fn(&mut T, &str) -> Result<(), String>),
}

/// The longest password that PgBouncer takes.
const SECRET_BYTES_MAX: usize = 65_531;

/// Reads `text`, the value of `name`, into `row`. `kind` is what the keys are called in messages.
pub(crate) fn fill<T>(
    row: &mut T,
    keys: &[Key<T>],
    kind: &str,
    name: &str,
    text: &str,
    place: &Place,
    found: &mut Findings,
) {
    let (whose, mut rest) = (name, text.trim_matches(blank));
    while !rest.is_empty() {
        if rest.starts_with(['#', ';']) {
            // Its text is not repeated: there may be a password in it.
            return found.warn(Problem::new("the comment behind the value is ignored").at(place));
        }
        let (name, value) = match pair(rest) {
            Ok((name, value, after)) => {
                rest = after.trim_start_matches(blank);
                (name, value)
            }
            Err(hint) => {
                let problem = Problem::new(format!("syntax error in {kind} string"));
                return found.error(problem.at(place).hint(format!("{whose}: {hint}")));
            }
        };
        match keys.iter().find(|key| key.name == name) {
            Some(key) => set(row, key, &value, place, found),
            None => {
                let what = format!("unrecognized {kind} parameter: {name}");
                let problem = Problem::new(what).at(place);
                found.error(problem.nearest(name, keys.iter().map(|key| key.name)));
            }
        }
    }
}

fn set<T>(row: &mut T, key: &Key<T>, value: &str, place: &Place, found: &mut Findings) {
    let most = match key.field {
        Field::Port(_) => u32::from(u16::MAX),
        _ => MOST,
    };
    let number = || match atoi(value) {
        Some((number, _)) if number <= u64::from(most) => Ok(number as u32),
        _ => Err(format!("expected a whole number from 0 to {most}")),
    };
    let done = match key.field {
        Field::Text(field) => {
            *field(row) = Some(value.to_owned());
            Ok(())
        }
        Field::Number(field) => number().map(|number| *field(row) = Some(number)),
        Field::Seconds(field) => {
            number().map(|number| *field(row) = Some(Duration::from_secs(number.into())))
        }
        Field::Mode(field) => match PoolMode::read(value) {
            Some(mode) => {
                *field(row) = Some(mode);
                Ok(())
            }
            None => Err(format!("expected {}", PoolMode::expects())),
        },
        Field::Flag(field) => match Flag.read(value) {
            Some(flag) => {
                *field(row) = Some(flag);
                Ok(())
            }
            None => Err(format!("expected {}", Flag.expects())),
        },
        Field::Port(field) => match number() {
            Ok(0) | Err(_) => Err("expected a port from 1 to 65535".to_owned()),
            Ok(port) => {
                *field(row) = port as u16;
                Ok(())
            }
        },
        // Never named in a message.
        Field::Secret(_) if value.len() > SECRET_BYTES_MAX => {
            let problem = Problem::new("password too long").at(place);
            return found.error(problem.hint(format!("at most {SECRET_BYTES_MAX} bytes")));
        }
        Field::Secret(field) => {
            *field(row) = Some(Secret(value.to_owned()));
            Ok(())
        }
        Field::Other(set) => set(row, value),
    };
    let numeric = matches!(key.field, Field::Number(_) | Field::Seconds(_) | Field::Port(_));
    match done {
        Err(hint) => found.error(Problem::invalid(value, key.name).at(place).hint(hint)),
        Ok(()) if numeric => {
            if let Some((number, false)) = atoi(value) {
                let what = format!("\"{value}\" for parameter {} is read as {number}", key.name);
                found.warn(Problem::new(what).at(place));
            }
        }
        Ok(()) => {}
    }
}

/// The first pair of `text`: key, value, and what follows.
fn pair(text: &str) -> Result<(&str, String, &str), &'static str> {
    let end = text.find(|c| c == '=' || blank(c)).ok_or("expected key=value")?;
    let (name, rest) = text.split_at(end);
    let value = rest.trim_start_matches(blank).strip_prefix('=').ok_or("expected key=value")?;
    if name.is_empty() {
        return Err("expected a key before =");
    }
    let value = value.trim_start_matches(blank);
    let (value, rest) = match value.strip_prefix('\'') {
        Some(quoted) => unquote(quoted).ok_or("the quote around a value does not end")?,
        None => {
            let (value, rest) = value.split_at(value.find(blank).unwrap_or(value.len()));
            (value.to_owned(), rest)
        }
    };
    if !rest.is_empty() && !rest.starts_with(blank) {
        return Err("expected a blank behind the quoted value");
    }
    if value.is_empty() {
        return Err("an empty value is not allowed");
    }
    Ok((name, value, rest))
}

/// What stands before the closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (piece, after) = rest.split_once('\'')?;
        value.push_str(piece);
        match after.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value, after)),
        }
    }
}

/// The number that `text` begins with, and whether that is all of it. Negative ones and those
/// that end no `u64` are none.
fn atoi(text: &str) -> Option<(u64, bool)> {
    let text = text.trim_start_matches(blank);
    let digits = text.strip_prefix('+').unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse().ok()?;
    Some((number, end == digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_cut_where_libpq_cuts_them() {
        let good = [
            ("a=b", ("a", "b", "")),
            ("a = b c=d", ("a", "b", " c=d")),
            ("a='b c' d", ("a", "b c", " d")),
            ("a='it''s'", ("a", "it's", "")),
            ("a=b'c d", ("a", "b'c", " d")),
            ("a==", ("a", "=", "")),
        ];
        for (text, (name, value, rest)) in good {
            assert_eq!(pair(text), Ok((name, value.to_owned(), rest)), "{text}");
        }
        for text in ["a", "a b=c", "=b", "a=", "a= ", "a=''", "a='b", "a='b'c"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_end_where_their_digits_end() {
        let good = [("5", 5, true), ("+5", 5, true), ("007", 7, true), ("5x", 5, false)];
        for (text, number, whole) in good {
            assert_eq!(atoi(text), Some((number, whole)), "{text}");
        }
        for text in ["", "x", "-1", "+-1", "99999999999999999999"] {
            assert_eq!(atoi(text), None, "{text}");
        }
    }
}
