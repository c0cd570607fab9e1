//! A decoy: what stands in for the secret of a user who has none.

use alloc::vec::Vec;

use crate::job::Origin;
use crate::scram::hmac;
use crate::secret::Digest;
use crate::{Form, Job, Password, Secret, Verifier};

/// Invents a secret for each user name that has none, always the same one, so that a stranger
/// cannot tell by the questions or by the time whether a user exists.
///
/// It also salts the verifiers that are made from plain passwords: the salt of a user is then
/// stable, which lets a derivation be remembered, and looks like a decoy's.
pub struct Decoy {
    key: [u8; 32],
    iterations: u32,
    form: Form,
}

impl Decoy {
    /// `key` is random, and the same for all logins of the process. `iterations` is
    /// `scram_iterations`. `form` is the form most users' secrets have
    /// ([`Userlist::prevailing_form`](crate::Userlist::prevailing_form)): it decides what an
    /// unknown user is asked where the question depends on the stored secret.
    #[must_use]
    pub fn new(key: [u8; 32], iterations: u32, form: Form) -> Self {
        Self { key, iterations: iterations.max(1), form }
    }

    /// What the first login of `user` would have to wait for, to be done ahead: else a wrong password
    /// for a user who never logged in would be refused later than one for a user who does not
    /// exist. `None` where a login derives nothing that can be remembered.
    #[must_use]
    pub fn ahead(&self, user: &[u8], secret: &Secret) -> Option<Job> {
        let Secret::Plain(password) = secret else { return None };
        let salt = self.salt(user);
        Some(Job::new(user, password.clone(), &salt, self.iterations, Origin::Stored))
    }

    /// The same, for users of whom most have secrets of another `form`.
    #[must_use]
    pub const fn with_form(&self, form: Form) -> Self {
        Self { key: self.key, iterations: self.iterations, form }
    }

    pub(crate) const fn form(&self) -> Form {
        self.form
    }

    pub(crate) const fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Sixteen bytes, as PostgreSQL salts.
    pub(crate) fn salt(&self, user: &[u8]) -> Vec<u8> {
        self.invent(b"salt", user)[..16].to_vec()
    }

    pub(crate) fn secret(&self, user: &[u8], form: Form) -> Secret {
        let secret = self.invent(b"secret", user);
        match form {
            Form::Plain => Secret::Plain(Password::new(&secret[..12])),
            Form::Md5 => {
                let mut digest = [0; 16];
                digest.copy_from_slice(&secret[..16]);
                Secret::Md5(Digest(digest))
            }
            Form::Scram => Secret::Scram(Verifier {
                iterations: self.iterations,
                salt: self.salt(user),
                stored_key: secret,
                server_key: self.invent(b"server", user),
            }),
        }
    }

    fn invent(&self, what: &[u8], user: &[u8]) -> [u8; 32] {
        // The names of things hold no NUL, so no two (what, user) run into the same text.
        hmac(&self.key, &[what, b"\0", user])
    }
}
