//! The shape of a text: what is left of it without its literals.

/// Put the shape of `text` into `out`: each number and plain string a `?`. `false`: it has something
/// that is not looked into, and stands for itself alone.
///
/// For a session in which a backslash in a plain string is just that, and an encoding in which ASCII
/// bytes are ASCII characters.
pub(crate) fn of(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    // Everything is copied in runs: up to `copied` it is there already.
    let (mut at, mut copied) = (0, 0);
    loop {
        at += run(text, at, |kind| kind == Kind::Plain);
        let Some(&byte) = text.get(at) else { break };
        let before = if at == 0 { b' ' } else { text[at - 1] };
        let next = text.get(at + 1).copied().unwrap_or(0);
        let end = match (kind(byte), byte) {
            (Kind::Plain, _) => at + 1,
            // A digit in a name is a letter like others, and so is a `$`.
            (Kind::Letter, _) => at + run(text, at, |kind| kind <= Kind::Digit),
            (Kind::Digit, b'$') if next.is_ascii_digit() => {
                at + run(text, at, |kind| kind <= Kind::Digit)
            }
            // Perhaps the beginning of a string.
            (Kind::Digit, b'$') => return false,
            (Kind::Digit, _) => match number(text, at) {
                Some(end) => replaced(text, &mut copied, at, end, out),
                None => return false,
            },
            // E'…', B'…', U&'…' have rules of their own.
            (_, b'\'') if is_word(before) || before == b'&' => return false,
            (_, b'\'') => match quoted(text, at, b'\'') {
                Some(end) => replaced(text, &mut copied, at, end, out),
                None => return false,
            },
            (_, b'"') => match quoted(text, at, b'"') {
                Some(end) => end,
                None => return false,
            },
            (_, b'-') if next == b'-' => return false,
            (_, b'/') if next == b'*' => return false,
            _ => at + 1,
        };
        at = end;
    }
    out.extend_from_slice(text.get(copied..).unwrap_or_default());
    true
}

/// Put a `?` in place of what lies from `start` to `end`. Returns `end`.
fn replaced(text: &[u8], copied: &mut usize, start: usize, end: usize, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(text.get(*copied..start).unwrap_or_default());
    out.push(b'?');
    *copied = end;
    end
}

/// What a byte may be a part of.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    /// A name.
    Letter,
    /// A name or a number; `$` too.
    Digit,
    /// A string, a comment, or nothing special.
    Sign,
    /// Nothing special.
    Plain,
}

const KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Plain; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'0'..=b'9' | b'$' => Kind::Digit,
            b'\'' | b'"' | b'-' | b'/' => Kind::Sign,
            other if is_word(other) => Kind::Letter,
            _ => Kind::Plain,
        };
        byte += 1;
    }
    kinds
};

fn kind(byte: u8) -> Kind {
    KINDS[usize::from(byte)]
}

/// How many bytes from `start` on are of such kinds.
fn run(text: &[u8], start: usize, belongs: impl Fn(Kind) -> bool) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    rest.iter().position(|byte| !belongs(kind(*byte))).unwrap_or(rest.len())
}

/// Where the string that begins at `start` is over. `None`: nowhere.
fn quoted(text: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += text.get(at..)?.iter().position(|byte| *byte == quote)? + 1;
        if text.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// Where the number that begins at `start` is over. `None`: a letter stands right behind it.
fn number(text: &[u8], start: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let end = start + len;
    (!text.get(end).copied().is_some_and(is_word)).then_some(end)
}

/// Whether a byte can be a part of a name.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 128..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Option<String> {
        let mut out = Vec::new();
        of(text.as_bytes(), &mut out).then(|| String::from_utf8(out).expect("text"))
    }

    #[test]
    fn literals_go_and_all_else_stays() {
        let same = |text: &str| assert_eq!(shape(text).as_deref(), Some(text));
        assert_eq!(
            shape("select a1 from t where b=17 and c = 'it''s'").as_deref(),
            Some("select a1 from t where b=? and c = ?")
        );
        assert_eq!(shape("select -1.5, 'a' 'b'").as_deref(), Some("select -?, ? ?"));
        same("select $1, \"1 'x'\", a$1");
        same("");
    }

    /// What has rules of its own is not looked into.
    #[test]
    fn what_is_not_plain_has_no_shape() {
        for text in [
            "select E'\\'; set x = 1; --'",
            "select U&'x'",
            "select 1 -- '",
            "select /* ' */ 1",
            "select $$'$$",
            "select $a$ 1 $a$",
            "select 'open",
            "select \"open",
            "select 1e5",
            "select 0x1F",
            "select n'x'",
        ] {
            assert_eq!(shape(text), None, "{text}");
        }
    }

    /// The same byte by byte, as it is most easily believed.
    fn slowly(text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut at, mut before) = (0, b' ');
        while let Some(&byte) = text.get(at) {
            let next = text.get(at + 1).copied().unwrap_or(0);
            let end = match byte {
                b'\'' if is_word(before) || before == b'&' => return None,
                b'\'' => quoted(text, at, b'\'')?,
                b'"' => quoted(text, at, b'"')?,
                b'-' if next == b'-' => return None,
                b'/' if next == b'*' => return None,
                b'$' if next.is_ascii_digit() || is_word(before) => at + 1,
                b'$' => return None,
                b'0'..=b'9' if !is_word(before) => number(text, at)?,
                _ => at + 1,
            };
            match byte {
                b'\'' => out.push(b'?'),
                b'0'..=b'9' if !is_word(before) => out.push(b'?'),
                _ => out.extend_from_slice(&text[at..end]),
            }
            before = text[end - 1];
            at = end;
        }
        Some(out)
    }

    /// All texts of up to six bytes, of bytes that could make a difference.
    #[test]
    fn in_runs_it_is_the_same_as_byte_by_byte() {
        const BYTES: &[u8] = b"a1$'\".-/*& \xc3";
        let mut out = Vec::new();
        for length in 0..=6_u32 {
            for number in 0..BYTES.len().pow(length) {
                let digit = |place| BYTES[number / BYTES.len().pow(place) % BYTES.len()];
                let text: Vec<u8> = (0..length).map(digit).collect();
                let shape = of(&text, &mut out).then(|| out.clone());
                assert_eq!(shape, slowly(&text), "{:?}", text.escape_ascii().to_string());
            }
        }
    }
}
