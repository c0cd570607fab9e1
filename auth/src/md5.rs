//! PostgreSQL's MD5 login.

use ::md5::{Digest as _, Md5};

/// What is stored of a password: `md5(password + user)`.
pub(crate) fn digest(password: &[u8], user: &[u8]) -> [u8; 16] {
    Md5::new().chain_update(password).chain_update(user).finalize().into()
}

/// The secret as a userlist or pg_authid holds it: `md5` and the hex of the digest.
#[must_use]
pub fn md5_secret(password: &str, user: &str) -> [u8; 35] {
    let mut secret = *b"md5................................";
    secret[3..].copy_from_slice(&hex(digest(password.as_bytes(), user.as_bytes())));
    secret
}

/// The answer to a challenge: `md5` and the hex of `md5(hex(digest) + salt)`.
pub(crate) fn answer(digest: [u8; 16], salt: [u8; 4]) -> [u8; 35] {
    let inner: [u8; 16] = Md5::new().chain_update(hex(digest)).chain_update(salt).finalize().into();
    let mut answer = *b"md5................................";
    answer[3..].copy_from_slice(&hex(inner));
    answer
}

fn hex(digest: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = [0; 32];
    for (pair, byte) in hex.as_chunks_mut::<2>().0.iter_mut().zip(digest) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL has it: `select 'md5' || md5('secret' || 'ann')`, then once more with the salt.
    #[test]
    fn the_answer_is_postgres_own() {
        let digest = digest(b"secret", b"ann");
        assert_eq!(&md5_secret("secret", "ann"), b"md59d792a3a8853c2411afb9163d088c036");
        assert_eq!(&hex(digest), b"9d792a3a8853c2411afb9163d088c036");
        assert_eq!(&answer(digest, *b"\x01\x02\x03\x04"), b"md59009ce60b9ca97f1e752376843d1309e");
    }
}
