//! A secret: what is stored of a user's password.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// What is stored of a user's password. The text alone says which form it has, as in PostgreSQL's
/// `pg_authid`.
#[derive(Clone, Debug)]
pub enum Secret {
    Plain(Password),
    /// `md5(password + user)`, stored as `md5` and 32 hex digits.
    Md5(Digest),
    Scram(Verifier),
}

impl Secret {
    /// Reads the stored text. What looks like neither digest nor verifier is a plain password, and
    /// so is a verifier with a mistake in it.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        if let Some(digest) = Digest::parse(text) {
            Self::Md5(digest)
        } else if let Some(verifier) = Verifier::parse(text) {
            Self::Scram(verifier)
        } else {
            Self::Plain(Password::new(text))
        }
    }

    #[must_use]
    pub const fn form(&self) -> Form {
        match self {
            Self::Plain(_) => Form::Plain,
            Self::Md5(_) => Form::Md5,
            Self::Scram(_) => Form::Scram,
        }
    }
}

/// The form of a [`Secret`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    Plain,
    Md5,
    Scram,
}

/// A password in the clear. It is wiped when the last copy is dropped, and never printed.
#[derive(Clone)]
pub struct Password(Arc<Zeroizing<Vec<u8>>>);

impl Password {
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(Zeroizing::new(bytes.to_vec())))
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// An MD5 secret. Whoever has it can log in, so it is guarded like a password.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Digest(pub(crate) [u8; 16]);

impl Digest {
    fn parse(text: &[u8]) -> Option<Self> {
        let hex = text.strip_prefix(b"md5")?;
        if hex.len() != 32 {
            return None;
        }
        let mut digest = Self([0; 16]);
        for (byte, [high, low]) in digest.0.iter_mut().zip(hex.as_chunks::<2>().0) {
            let (high, low) = (char::from(*high).to_digit(16)?, char::from(*low).to_digit(16)?);
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        Some(digest)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// What a server keeps to check a SCRAM-SHA-256 login (RFC 5803, in PostgreSQL's spelling):
/// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Verifier {
    /// At least 1.
    pub iterations: u32,
    /// Never empty.
    pub salt: Vec<u8>,
    pub stored_key: [u8; 32],
    pub server_key: [u8; 32],
}

impl Verifier {
    /// `None` for anything that PostgreSQL would not have written.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let rest = core::str::from_utf8(text).ok()?.strip_prefix("SCRAM-SHA-256$")?;
        let (cost, keys) = rest.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let verifier = Self {
            iterations: crate::scram::number(iterations)?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        };
        (!verifier.salt.is_empty()).then_some(verifier)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier {{ iterations: {}, .. }}", self.iterations)
    }
}

fn key(base64: &str) -> Option<[u8; 32]> {
    STANDARD.decode(base64).ok()?.try_into().ok()
}
