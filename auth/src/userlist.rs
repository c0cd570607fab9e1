//! The userlist: the file of users and their secrets (`auth_file`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use crate::{Form, Secret};

/// Longest user name, in bytes.
pub const USER_LEN_MAX: usize = 127;

/// Longest secret, in bytes.
pub const SECRET_LEN_MAX: usize = 65_531;

/// Users and their secrets. Of two lines for one user, the later counts.
#[derive(Clone, Debug, Default)]
pub struct Userlist {
    users: BTreeMap<Box<[u8]>, Secret>,
}

impl Userlist {
    /// Reads lines of `"user" "secret"`. What follows on a line is ignored, and so are lines that
    /// begin with `;`. A line that cannot be read is left out and reported: the others still count.
    #[must_use]
    pub fn parse(text: &[u8]) -> (Self, Vec<Flaw>) {
        let (mut list, mut flaws) = (Self::default(), Vec::new());
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            match user_and_secret(line) {
                Ok(None) => {}
                Ok(Some((user, secret))) => {
                    list.users.insert(user.as_slice().into(), Secret::parse(&secret));
                }
                Err(ill) => flaws.push(Flaw { line: index + 1, ill }),
            }
        }
        (list, flaws)
    }

    #[must_use]
    pub fn secret(&self, user: &[u8]) -> Option<&Secret> {
        self.users.get(user)
    }

    /// Every user, by name.
    pub fn users(&self) -> impl Iterator<Item = (&[u8], &Secret)> {
        self.users.iter().map(|(user, secret)| (&**user, secret))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.users.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The form most secrets have, SCRAM for want of any.
    #[must_use]
    pub fn prevailing_form(&self) -> Form {
        let count = |form| self.users.values().filter(|secret| secret.form() == form).count();
        let forms = [Form::Plain, Form::Md5, Form::Scram];
        // The last of equals wins, and that is SCRAM.
        forms.into_iter().max_by_key(|form| count(*form)).unwrap_or(Form::Scram)
    }
}

/// A line of the userlist that cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Flaw {
    /// Counted from 1.
    pub line: usize,
    pub ill: Ill,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ill {
    UserNotQuoted,
    SecretNotQuoted,
    QuoteNotClosed,
    UserEmpty,
    UserTooLong,
    SecretTooLong,
    Nul,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.ill {
            Ill::UserNotQuoted => "user name is not quoted",
            Ill::SecretNotQuoted => "password is missing or not quoted",
            Ill::QuoteNotClosed => "quote is not closed",
            Ill::UserEmpty => "user name is empty",
            Ill::UserTooLong => "username too long",
            Ill::SecretTooLong => "password too long",
            Ill::Nul => "zero byte",
        };
        write!(f, "line {}: {what}", self.line)
    }
}

type Text = Zeroizing<Vec<u8>>;

fn user_and_secret(line: &[u8]) -> Result<Option<(Text, Text)>, Ill> {
    let line = line.trim_ascii_start();
    if line.is_empty() || line.starts_with(b";") {
        return Ok(None);
    }
    let (user, rest) = quoted(line, Ill::UserNotQuoted)?;
    let (secret, _) = quoted(rest.trim_ascii_start(), Ill::SecretNotQuoted)?;
    if user.is_empty() {
        return Err(Ill::UserEmpty);
    }
    if user.len() > USER_LEN_MAX {
        return Err(Ill::UserTooLong);
    }
    if secret.len() > SECRET_LEN_MAX {
        return Err(Ill::SecretTooLong);
    }
    if user.contains(&0) || secret.contains(&0) {
        return Err(Ill::Nul);
    }
    Ok(Some((user, secret)))
}

/// A quoted text, in which `""` stands for a quote, and what follows it.
fn quoted(text: &[u8], missing: Ill) -> Result<(Text, &[u8]), Ill> {
    let mut rest = text.strip_prefix(b"\"").ok_or(missing)?;
    // It cannot grow past this, so that no copy of a secret is left behind on the heap.
    let mut unquoted = Zeroizing::new(Vec::with_capacity(rest.len()));
    loop {
        let quote = rest.iter().position(|byte| *byte == b'"').ok_or(Ill::QuoteNotClosed)?;
        unquoted.extend_from_slice(&rest[..quote]);
        rest = &rest[quote + 1..];
        let Some(after) = rest.strip_prefix(b"\"") else { return Ok((unquoted, rest)) };
        unquoted.push(b'"');
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString as _;

    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    fn plain<'a>(list: &'a Userlist, user: &str) -> &'a [u8] {
        match list.secret(user.as_bytes()) {
            Some(Secret::Plain(password)) => password.bytes(),
            other => panic!("{user}: {other:?}"),
        }
    }

    /// An administrator's file as they are: comments, blanks, quotes, Windows line ends.
    #[test]
    fn a_userlist_is_read() {
        let text = format!(
            "; people\r\n\r\n\"ann\" \"secret\" \"more\" words\r\n  \"b\"\"ob\"\t\"q\"\"uo\"\"te\"\n\
             \"empty\" \"\"\n;\"gone\" \"x\"\n\"dave\"\"\" \"semi;colon\" ; no comment\n\
             \"tight\"\"\"\"x\" \"y\"\n\"md\" \"md5{}\"\n\"scram\" \"{VERIFIER}\"\n\"ann\" \"second\"",
            "0123456789abcDEF".repeat(2)
        );
        let (list, flaws) = Userlist::parse(text.as_bytes());
        assert_eq!(flaws, []);
        assert_eq!(list.len(), 7);
        assert_eq!(plain(&list, "ann"), b"second", "the last line counts");
        assert_eq!(plain(&list, "b\"ob"), b"q\"uo\"te");
        assert_eq!(plain(&list, "empty"), b"");
        assert_eq!(plain(&list, "dave\""), b"semi;colon");
        assert_eq!(plain(&list, "tight\"\"x"), b"y");
        assert!(matches!(list.secret(b"md"), Some(Secret::Md5(_))));
        let Some(Secret::Scram(verifier)) = list.secret(b"scram") else { panic!("not SCRAM") };
        assert_eq!((verifier.iterations, verifier.salt.len()), (4096, 16));
        assert_eq!(list.prevailing_form(), Form::Plain);
        assert_eq!(Userlist::default().prevailing_form(), Form::Scram);
    }

    #[test]
    fn each_bad_line_is_named_and_the_rest_counts() {
        let long = "x".repeat(USER_LEN_MAX + 1);
        for (line, ill) in [
            ("ann \"x\"", Ill::UserNotQuoted),
            ("\"ann\"", Ill::SecretNotQuoted),
            ("\"ann\" x", Ill::SecretNotQuoted),
            ("\"ann\" \"x", Ill::QuoteNotClosed),
            ("\"ann", Ill::QuoteNotClosed),
            ("\"ann\" \"x\"\"", Ill::QuoteNotClosed),
            ("\"\" \"x\"", Ill::UserEmpty),
            (&format!("\"{long}\" \"x\""), Ill::UserTooLong),
            (&format!("\"ann\" \"{}\"", "x".repeat(SECRET_LEN_MAX + 1)), Ill::SecretTooLong),
            ("\"an\0n\" \"x\"", Ill::Nul),
        ] {
            let text = format!("; first\n{line}\n\"bob\" \"kept\"\n");
            let (list, flaws) = Userlist::parse(text.as_bytes());
            assert_eq!(flaws, [Flaw { line: 2, ill }], "{line}");
            assert_eq!(plain(&list, "bob"), b"kept");
            assert_eq!(list.len(), 1);
        }
        assert_eq!(
            Flaw { line: 2, ill: Ill::UserTooLong }.to_string(),
            "line 2: username too long"
        );
    }

    #[test]
    fn the_longest_names_and_secrets_fit() {
        let (user, secret) = ("u".repeat(USER_LEN_MAX), "s".repeat(SECRET_LEN_MAX));
        let (list, flaws) = Userlist::parse(format!("\"{user}\" \"{secret}\"").as_bytes());
        assert_eq!(flaws, []);
        assert_eq!(plain(&list, &user), secret.as_bytes());
    }

    /// One character off, and it is somebody's odd password.
    #[test]
    fn a_verifier_with_a_mistake_is_a_plain_password() {
        assert_eq!(Secret::parse(VERIFIER.as_bytes()).form(), Form::Scram);
        for (from, to) in [
            ("SCRAM-SHA-256", "SCRAM-SHA-1"),
            ("SCRAM-SHA-256", "scram-sha-256"),
            ("4096", "0"),
            ("4096", "-1"),
            ("4096", "99999999999"),
            ("4096", ""),
            ("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
            ("W22ZaJ0SNY7soEsUEjb6gQ==", "!"),
            ("2dU=", "2dU"),
            ("2dU=", "2dU=x"),
            ("4qY=", ""),
            (":wf", "wf"),
            ("$WG", ":WG"),
        ] {
            let text = VERIFIER.replacen(from, to, 1);
            assert_eq!(Secret::parse(text.as_bytes()).form(), Form::Plain, "{text}");
        }
        for text in ["md5", &"md5".repeat(12), &format!("md5{}", "a".repeat(33)), "MD5"] {
            assert_eq!(Secret::parse(text.as_bytes()).form(), Form::Plain, "{text}");
        }
    }

    #[test]
    fn nothing_secret_is_printed() {
        let (list, _) = Userlist::parse(format!("\"a\" \"hush\"\n\"b\" \"{VERIFIER}\"").as_bytes());
        let printed = format!("{list:?}");
        for secret in ["hush", "104, 117", "WG5d", "88, 110", "wfPL"] {
            assert!(!printed.contains(secret), "{secret} in {printed}");
        }
    }
}
