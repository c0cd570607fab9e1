//! What has been said so far on one administrator's connection.

use crate::{Command, Facts, Refusal, Role};

/// One administrator's connection, once logged in.
#[derive(Debug)]
pub struct Console {
    role: Role,
}

/// What the worker does next with this connection, after sending what was appended.
#[derive(Debug, Eq, PartialEq)]
pub enum Next {
    /// Feed the next message.
    More,
    /// Carry this out and say [`Console::answer`]. Until then feed no further message.
    Run(Command),
    /// Send what there is and hang up.
    Close,
}

/// What came of a command.
#[derive(Debug)]
pub enum Answer<'a> {
    /// It is done.
    Done,
    /// It is done, but there is something to be said about it: a NOTICE.
    DoneBut(&'a str),
    /// The facts asked for, of all workers together.
    Facts(&'a Facts),
    Refused(Refusal),
}

impl Console {
    /// Starts after the login, for somebody with these rights.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role }
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// One whole message of the client: its tag, and its body without tag and length.
    pub fn message(&mut self, _tag: u8, _body: &[u8], _out: &mut Vec<u8>) -> Next {
        todo!()
    }

    /// What came of the command that [`Next::Run`] ordered.
    pub fn answer(&mut self, _answer: &Answer<'_>, _out: &mut Vec<u8>) {
        todo!()
    }

    /// Whether a command runs whose answer is awaited.
    #[must_use]
    pub fn awaits(&self) -> bool {
        todo!()
    }
}
