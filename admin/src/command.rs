//! What can be ordered, and by whom: one table.

use crate::{CONSOLE, Refusal, Role, View};

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
    /// Begin SHOW SESSION_REPORT anew.
    ResetReport,
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

impl Command {
    /// What the log says when it is carried out; `None` for what is not worth a line.
    #[must_use]
    pub fn issued(&self) -> Option<String> {
        let (words, database) = match self {
            Self::Show(_) | Self::Set { .. } | Self::KillClient(_) => return None,
            Self::Pause(database) => ("PAUSE", database.as_ref()),
            Self::Resume(database) => ("RESUME", database.as_ref()),
            Self::Reconnect(database) => ("RECONNECT", database.as_ref()),
            Self::Kill(database) => ("KILL", database.as_ref()),
            Self::WaitClose(database) => ("WAIT_CLOSE", database.as_ref()),
            Self::Disable(database) => ("DISABLE", Some(database)),
            Self::Enable(database) => ("ENABLE", Some(database)),
            Self::Suspend => ("SUSPEND", None),
            Self::Reload => ("RELOAD", None),
            Self::ResetReport => ("RESET SESSION_REPORT", None),
            Self::Shutdown(Shutdown::Immediate) => ("SHUTDOWN", None),
            Self::Shutdown(Shutdown::Servers) => ("SHUTDOWN WAIT_FOR_SERVERS", None),
            Self::Shutdown(Shutdown::Clients) => ("SHUTDOWN WAIT_FOR_CLIENTS", None),
        };
        Some(match database {
            Some(database) => format!("{words} '{database}' command issued"),
            None => format!("{words} command issued"),
        })
    }

    /// What it is answered with when it is done.
    pub(crate) fn tag(&self) -> String {
        match self {
            Self::Show(_) => "SHOW",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Suspend => "SUSPEND",
            Self::Disable(_) => "DISABLE",
            Self::Enable(_) => "ENABLE",
            Self::Reconnect(_) => "RECONNECT",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::Reload => "RELOAD",
            Self::ResetReport => "RESET",
            Self::Shutdown(_) => "SHUTDOWN",
            Self::WaitClose(_) => "WAIT_CLOSE",
            Self::Set { key, value } => return format!("SET {key}={value}"),
        }
        .to_owned()
    }
}

/// A row of the table of commands.
#[derive(Debug)]
pub(crate) struct Verb {
    /// What it begins with.
    pub(crate) word: &'static str,
    /// The least role that may say it. What may be shown to whom is a column of the views' table.
    pub(crate) who: Role,
    pub(crate) takes: Takes,
    /// What documentation says about it.
    pub(crate) about: &'static str,
}

/// What stands behind the first word, and what comes of it.
#[derive(Debug)]
pub(crate) enum Takes {
    View,
    Nothing(Command),
    /// The one thing that can be reset.
    Report,
    MaybeDatabase {
        order: fn(Option<String>) -> Command,
        on_console: fn() -> Refusal,
    },
    Database {
        order: fn(String) -> Command,
        on_console: fn() -> Refusal,
    },
    Client,
    Shutdown,
    /// A key, `=` or `TO`, and a value.
    Setting,
}

pub(crate) static VERBS: [Verb; 15] = [
    Verb {
        word: "SHOW",
        who: Role::Stats,
        takes: Takes::View,
        about: "Shows a view, as listed below.",
    },
    Verb { word: "SELECT", who: Role::Stats, takes: Takes::View, about: "The same as SHOW." },
    Verb {
        word: "SET",
        who: Role::Admin,
        takes: Takes::Setting,
        about: "Changes a setting until the next RELOAD or restart. \
                A setting that cannot change while running stays as it is.",
    },
    Verb {
        word: "RELOAD",
        who: Role::Admin,
        takes: Takes::Nothing(Command::Reload),
        about: "Reads the configuration, the userlist, rules and maps, and the TLS files again, as SIGHUP does.",
    },
    Verb {
        word: "RESET",
        who: Role::Admin,
        takes: Takes::Report,
        about: "Empties SHOW SESSION_REPORT, which begins anew.",
    },
    Verb {
        word: "PAUSE",
        who: Role::Admin,
        takes: Takes::MaybeDatabase {
            order: Command::Pause,
            on_console: || Refusal::AdminDatabase("pause"),
        },
        about: "Gives out no more servers and closes those that are idle. \
                Answers when the last one at work is done; until then a cancel, or the leaving of whoever gave it, takes it back.",
    },
    Verb {
        word: "RESUME",
        who: Role::Admin,
        takes: Takes::MaybeDatabase {
            order: Command::Resume,
            on_console: || Refusal::DatabaseNotPaused(CONSOLE.to_owned()),
        },
        about: "Ends PAUSE, KILL and SUSPEND. A database that was paused or killed by its name is resumed by its name.",
    },
    Verb {
        word: "DISABLE",
        who: Role::Admin,
        takes: Takes::Database {
            order: Command::Disable,
            on_console: || Refusal::AdminDatabase("disable"),
        },
        about: "Lets in no more clients to a database.",
    },
    Verb {
        word: "ENABLE",
        who: Role::Admin,
        takes: Takes::Database {
            order: Command::Enable,
            on_console: || Refusal::AdminDatabase("enable"),
        },
        about: "Ends DISABLE.",
    },
    Verb {
        word: "RECONNECT",
        who: Role::Admin,
        takes: Takes::MaybeDatabase {
            order: Command::Reconnect,
            on_console: || Refusal::AdminDatabase("reconnect"),
        },
        about: "Closes each server as soon as it is free; new ones take their places.",
    },
    Verb {
        word: "KILL",
        who: Role::Admin,
        takes: Takes::MaybeDatabase {
            order: Command::Kill,
            on_console: || Refusal::AdminDatabase("kill"),
        },
        about: "Drops all clients and servers at once. The database stays paused until RESUME.",
    },
    Verb {
        word: "KILL_CLIENT",
        who: Role::Admin,
        takes: Takes::Client,
        about: "Drops one client, by its id in SHOW CLIENTS.",
    },
    Verb {
        word: "SUSPEND",
        who: Role::Admin,
        takes: Takes::Nothing(Command::Suspend),
        about: "Flushes all buffers and stops all traffic. Answers when that is done. It ends with RESUME, or when whoever gave it leaves.",
    },
    Verb {
        word: "SHUTDOWN",
        who: Role::Admin,
        takes: Takes::Shutdown,
        about: "Ends the process: at once, or when the servers are free, or when the clients are gone.",
    },
    Verb {
        word: "WAIT_CLOSE",
        who: Role::Admin,
        takes: Takes::MaybeDatabase {
            order: Command::WaitClose,
            on_console: || Refusal::AdminDatabase("wait in"),
        },
        about: "Answers when the servers that RECONNECT or RELOAD marked for closing are gone.",
    },
];

impl Verb {
    pub(crate) fn named(word: &str) -> Option<&'static Self> {
        VERBS.iter().find(|verb| verb.word.eq_ignore_ascii_case(word))
    }

    /// Whether a view stands behind it.
    pub(crate) fn shows(&self) -> bool {
        matches!(self.takes, Takes::View)
    }

    /// The order that the verb gives with this argument (empty: none), if `role` may give it.
    /// `said` is the whole of it.
    pub(crate) fn order(&self, argument: &str, role: Role, said: &str) -> Result<Command, Refusal> {
        if role < self.who {
            return Err(Refusal::AdminNeeded);
        }
        let invalid = || Refusal::InvalidCommand(said.to_owned());
        match &self.takes {
            Takes::View => {
                let view = View::named(argument).ok_or_else(invalid)?;
                if role < view.who() { Err(Refusal::AdminNeeded) } else { Ok(Command::Show(view)) }
            }
            Takes::Nothing(command) if argument.is_empty() => Ok(command.clone()),
            Takes::Report if argument.eq_ignore_ascii_case("SESSION_REPORT") => {
                Ok(Command::ResetReport)
            }
            Takes::MaybeDatabase { on_console, .. } | Takes::Database { on_console, .. }
                if argument == CONSOLE =>
            {
                Err(on_console())
            }
            Takes::MaybeDatabase { order, .. } => {
                Ok(order((!argument.is_empty()).then(|| argument.to_owned())))
            }
            Takes::Database { .. } if argument.is_empty() => Err(Refusal::DatabaseRequired),
            Takes::Database { order, .. } => Ok(order(argument.to_owned())),
            Takes::Client => {
                argument.parse().map(Command::KillClient).map_err(|_| Refusal::InvalidClient)
            }
            Takes::Shutdown => shutdown(argument).map(Command::Shutdown).ok_or_else(invalid),
            Takes::Nothing(_) | Takes::Report | Takes::Setting => Err(invalid()),
        }
    }
}

fn shutdown(argument: &str) -> Option<Shutdown> {
    [
        ("", Shutdown::Immediate),
        ("WAIT_FOR_SERVERS", Shutdown::Servers),
        ("WAIT_FOR_CLIENTS", Shutdown::Clients),
    ]
    .into_iter()
    .find_map(|(word, mode)| word.eq_ignore_ascii_case(argument).then_some(mode))
}

impl Takes {
    /// What stands behind the first word, as help and documentation write it.
    pub(crate) fn form(&self) -> &'static str {
        match self {
            Self::View => " view",
            Self::Nothing(_) => "",
            Self::Report => " SESSION_REPORT",
            Self::MaybeDatabase { .. } => " [db]",
            Self::Database { .. } => " db",
            Self::Client => " id",
            Self::Shutdown => " [WAIT_FOR_SERVERS|WAIT_FOR_CLIENTS]",
            Self::Setting => " key = value",
        }
    }
}
