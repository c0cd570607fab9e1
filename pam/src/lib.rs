//! The system's word on a password: PAM.
//!
//! Its modules are other people's C, which may wait for ever, or crash, and is seldom made for many
//! threads. So a password is looked at in a process of its own, which is this program once more
//! ([`child`]); whoever asked can end it at any time. The library is looked for only then: neither
//! the build nor the pooler needs it.

mod library;

use std::ffi::CString;
use std::io::{Read as _, Write as _};

use zeroize::Zeroizing;

/// With this as its only argument, the program is a [`child`].
pub const ARGUMENT: &str = "--pam-child";

/// What a child says by how it ends.
pub mod exit {
    /// The password is right, and the account may be used.
    pub const YES: u8 = 0;
    /// It is not; why, for the log, was printed.
    pub const NO: u8 = 1;
    /// That could not be found out.
    pub const TROUBLE: u8 = 2;
}

/// The question, on its way to a child.
#[derive(Debug)]
pub struct Question<'a> {
    /// Which file of `/etc/pam.d` says how.
    pub service: &'a str,
    pub user: &'a str,
    /// Whence the user comes (`PAM_RHOST`); empty if there is nothing to say.
    pub from: &'a str,
    pub password: &'a [u8],
}

/// Longest question, in bytes.
const QUESTION_MAX: u64 = 256 * 1024;

impl Question<'_> {
    /// As a child reads it.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let parts =
            [self.service.as_bytes(), self.user.as_bytes(), self.from.as_bytes(), self.password];
        Zeroizing::new(parts.join(&0))
    }
}

/// A child's life: the question comes in by standard input, and its exit code is the answer.
#[must_use]
pub fn child() -> u8 {
    let mut question = Zeroizing::new(Vec::new());
    let read = std::io::stdin().take(QUESTION_MAX).read_to_end(&mut question);
    let (code, text) = match read.map_err(|error| error.to_string()).and_then(|_| answer(&question))
    {
        Ok(None) => return exit::YES,
        Ok(Some(why)) => (exit::NO, why),
        Err(trouble) => (exit::TROUBLE, trouble),
    };
    // Whoever asked may have gone.
    let _ = std::io::stdout().write_all(text.as_bytes());
    code
}

/// Why not; `None`: why, yes.
fn answer(question: &[u8]) -> Result<Option<String>, String> {
    let mut parts = question.splitn(4, |byte| *byte == 0).map(CString::new);
    let mut next = || parts.next().and_then(Result::ok).ok_or_else(|| "broken question".to_owned());
    let (service, user, from, password) = (next()?, next()?, next()?, next()?);
    let password = Zeroizing::new(password.into_bytes_with_nul());
    library::ask(&service, &user, &from, &password)
}
