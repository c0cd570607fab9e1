//! The `options` startup parameter: command-line switches for the server process.

/// The settings in `options`, in order: `-c k=v`, `-ck=v` and `--k=v`, parted by blanks, where a
/// backslash takes the next byte as it is. PostgreSQL knows more switches; a pooler cannot.
pub fn options(text: &[u8]) -> Result<Vec<Setting>, BadOptions> {
    let mut words = words(text).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let setting = if word == b"-c" {
            words.next().ok_or(BadOptions)?
        } else if let Some(setting) = word.strip_prefix(b"--").or_else(|| word.strip_prefix(b"-c"))
        {
            setting.to_vec()
        } else {
            return Err(BadOptions);
        };
        let equals = setting.iter().position(|byte| *byte == b'=').ok_or(BadOptions)?;
        let (name, value) = setting.split_at(equals);
        if name.is_empty() {
            return Err(BadOptions);
        }
        // As PostgreSQL does, so that `--search-path=x` works.
        let name = name.iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect();
        settings.push((name, value.get(1..).unwrap_or_default().to_vec()));
    }
    Ok(settings)
}

/// A name and its value.
pub type Setting = (Vec<u8>, Vec<u8>);

/// Something else stands in `options` than settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BadOptions;

/// Split at blanks, as PostgreSQL's `pg_split_opts` does.
fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, mut word) = (Vec::new(), None::<Vec<u8>>);
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if is_space(byte) {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\\' => word.extend(bytes.next()),
            byte => word.push(byte),
        }
    }
    words.extend(word);
    words
}

/// C's `isspace`, which knows the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, BadOptions> {
        let text_of = |bytes| String::from_utf8(bytes).expect("text went in");
        let settings = options(text.as_bytes())?.into_iter();
        Ok(settings.map(|(name, value)| (text_of(name), text_of(value))).collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.into(), value.into())
    }

    #[test]
    fn settings_come_in_three_spellings() {
        let want = Ok(vec![pair("a", "1"), pair("b", "2"), pair("c", "3"), pair("d_e", "4")]);
        assert_eq!(read("-c a=1 -cb=2  --c=3\t--d-e=4 "), want);
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("-c a="), Ok(vec![pair("a", "")]));
        assert_eq!(read("-c a=b=c"), Ok(vec![pair("a", "b=c")]));
    }

    #[test]
    fn a_backslash_takes_the_next_byte_as_it_is() {
        assert_eq!(read(r"-c a=x\ y\\z"), Ok(vec![pair("a", r"x y\z")]));
        assert_eq!(read(r"-c a=x\"), Ok(vec![pair("a", "x")]), "nothing to take");
        assert_eq!(read(r"-c a=\ "), Ok(vec![pair("a", " ")]));
    }

    #[test]
    fn other_switches_are_refused() {
        for text in ["-c", "-c a", "-d 3", "--", "--a", "a=b", "-", "-c =1", "--=1", "-c a=1 x"] {
            assert_eq!(read(text), Err(BadOptions), "{text:?}");
        }
    }
}
