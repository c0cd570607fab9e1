//! The shape of a text: what is left of it without its literals.

/// Put the shape of `text` into `out`: each number and plain string a `?`. `false`: it has something
/// that is not looked into, and stands for itself alone.
///
/// For a session in which a backslash in a plain string is just that, and an encoding in which ASCII
/// bytes are ASCII characters.
pub(crate) fn of(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let (mut at, mut before) = (0, b' ');
    while let Some(&byte) = text.get(at) {
        let next = text.get(at + 1).copied().unwrap_or(0);
        let end = match byte {
            // E'…', B'…', U&'…' have rules of their own.
            b'\'' if is_word(before) || before == b'&' => return false,
            b'\'' => quoted(text, at, b'\''),
            b'"' => quoted(text, at, b'"'),
            b'-' if next == b'-' => return false,
            b'/' if next == b'*' => return false,
            // A parameter; else perhaps the beginning of a string.
            b'$' if next.is_ascii_digit() || is_word(before) => Some(at + 1),
            b'$' => return false,
            b'0'..=b'9' if !is_word(before) => number(text, at),
            _ => Some(at + 1),
        };
        let Some(end) = end else { return false };
        match byte {
            b'\'' => out.push(b'?'),
            b'0'..=b'9' if !is_word(before) => out.push(b'?'),
            _ => out.extend_from_slice(text.get(at..end).unwrap_or_default()),
        }
        before = text.get(end - 1).copied().unwrap_or(byte);
        at = end;
    }
    true
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
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 128..)
}

#[cfg(test)]
mod tests {
    fn shape(text: &str) -> Option<String> {
        let mut out = Vec::new();
        super::of(text.as_bytes(), &mut out).then(|| String::from_utf8(out).expect("text"))
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
}
