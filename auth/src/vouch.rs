//! What somebody else is asked: whether a password is a user's.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use crate::Password;
use crate::ldap::Directory;

/// One password, and who is to look at it.
#[derive(Debug)]
pub struct Case {
    pub judge: Judge,
    pub user: String,
    pub password: Password,
    /// Then nobody wants to know any more.
    pub within: Duration,
}

/// Who is asked.
#[derive(Clone, Debug)]
pub enum Judge {
    Directory(Arc<Directory>),
    /// PAM: the service, and whence the user comes.
    System {
        service: String,
        from: String,
    },
}
