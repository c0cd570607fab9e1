//! A job: the slow part of SCRAM, to be done on a thread that may take its time.

use alloc::vec::Vec;
use core::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::Password;
use crate::scram::{hmac, sha256};

/// Thousands of hashes, one after the other, from a password to its keys. At the usual 4096
/// iterations it takes about a millisecond; never run it where queries pass by.
pub struct Job {
    user: Vec<u8>,
    password: Password,
    salt: Vec<u8>,
    iterations: u32,
    origin: Origin,
}

/// Whose word the password is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// Ours: it stands in the userlist or the configuration.
    Stored,
    /// A client says so, rightly or not.
    Claimed,
}

impl Job {
    pub(crate) fn new(
        user: &[u8],
        password: Password,
        salt: &[u8],
        iterations: u32,
        origin: Origin,
    ) -> Self {
        Self { user: user.to_vec(), password, salt: salt.to_vec(), iterations, origin }
    }

    /// The work itself.
    #[must_use]
    pub fn run(self) -> Derived {
        let password = crate::scram::prepare(self.password.bytes());
        let mut salted = [0; 32];
        pbkdf2::pbkdf2_hmac::<Sha256>(&password, &self.salt, self.iterations, &mut salted);
        let derived = Derived {
            client_key: hmac(&salted, &[b"Client Key"]),
            server_key: hmac(&salted, &[b"Server Key"]),
        };
        salted.zeroize();
        derived
    }

    /// Under which the outcome may be remembered, if it may: what a client claims is not worth a
    /// place, or guessing would push the true ones out.
    #[must_use]
    pub fn key(&self) -> Option<JobKey> {
        if self.origin == Origin::Claimed {
            return None;
        }
        // The password is part of it: a changed one must never meet its predecessor's keys.
        let mut hash = Sha256::new();
        for part in [&self.user, self.password.bytes(), &self.salt] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.update(self.iterations.to_be_bytes());
        Some(JobKey(hash.finalize().into()))
    }

    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    #[must_use]
    pub const fn iterations(&self) -> u32 {
        self.iterations
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job {{ iterations: {}, .. }}", self.iterations)
    }
}

/// Names a [`Job`]'s outcome: one user, password, salt and number of iterations.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct JobKey([u8; 32]);

/// What a [`Job`] comes to. It is as good as the password for logging in, and guarded like one.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Derived {
    pub(crate) client_key: [u8; 32],
    pub(crate) server_key: [u8; 32],
}

impl Derived {
    pub(crate) fn stored_key(&self) -> [u8; 32] {
        sha256(&self.client_key)
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived(..)")
    }
}

/// What a client that logged in by SCRAM has left behind: enough to log in, in its name, to a
/// server that stores the very same verifier.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ClientKeys {
    pub(crate) client_key: [u8; 32],
    pub(crate) server_key: [u8; 32],
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
}

/// The keys a user's logins have left behind, one for each verifier they were made against: the
/// servers of one user need not all store the same.
#[derive(Clone, Debug, Default)]
pub struct KeyRing(Vec<ClientKeys>);

/// More verifiers of one user are not remembered.
const KEYS_MAX: usize = 8;

impl KeyRing {
    /// The newest are kept.
    pub fn add(&mut self, keys: ClientKeys) {
        self.0.retain(|old| !old.fit(&keys.salt, keys.iterations));
        if self.0.len() >= KEYS_MAX {
            self.0.remove(0);
        }
        self.0.push(keys);
    }

    /// Those that were made with this salt.
    pub(crate) fn find(&self, salt: &[u8], iterations: u32) -> Option<&ClientKeys> {
        self.0.iter().find(|keys| keys.fit(salt, iterations))
    }
}

impl From<ClientKeys> for KeyRing {
    fn from(keys: ClientKeys) -> Self {
        Self([keys].into())
    }
}

impl ClientKeys {
    fn fit(&self, salt: &[u8], iterations: u32) -> bool {
        self.salt == salt && self.iterations == iterations
    }
}

impl fmt::Debug for ClientKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientKeys(..)")
    }
}
