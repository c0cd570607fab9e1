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
