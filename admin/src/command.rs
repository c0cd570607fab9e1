//! What can be ordered, and by whom.

use crate::{Refusal, Role, View};

/// An order to the pooler. What is only said back (HELP, VERSION, faked settings) never gets here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Command {
    /// Collect the facts that the view needs, from every worker.
    Show(View),
    /// Answer when no server is left at work. `None`: all databases.
    Pause(Option<String>),
    Resume(Option<String>),
    /// Answer when all buffers are flushed.
    Suspend,
    Disable(String),
    Enable(String),
    Reconnect(Option<String>),
    Kill(Option<String>),
    /// By the id of SHOW CLIENTS.
    KillClient(u64),
    Reload,
    Shutdown(Shutdown),
    /// Answer when the servers that were marked for closing are gone.
    WaitClose(Option<String>),
    Set {
        key: String,
        value: String,
    },
}

/// What to wait for before the process ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shutdown {
    /// Nothing. There is no answer: the connection ends with the process.
    Immediate,
    Servers,
    Clients,
}
