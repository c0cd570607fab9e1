//! What a statement does, by name, as far as it concerns the session.

use std::ops::Range;

use crate::reading::Statement;

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Transaction(Transaction),
    Set(Setting),
    /// RESET x, RESET ROLE, RESET SESSION AUTHORIZATION, by the setting's name; RESET ALL is [`Act::ResetAll`].
    Reset(String),
    ResetAll,
    /// SET TRANSACTION: of this transaction alone.
    SetTransaction(Vec<Mode>),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION: these are default_transaction_isolation and the like.
    SetCharacteristics(Vec<Mode>),
    /// SET TRANSACTION SNAPSHOT.
    SetSnapshot,
    SetConstraints,
    Show(String),
    Discard(Discarded),
    Prepare {
        name: String,
        /// Where in the text the statement itself is, when that could be told.
        body: Option<Range<usize>>,
        inner: Box<Statement>,
    },
    /// Also within EXPLAIN and CREATE TABLE AS. What it does is what was prepared under that name: nothing of
    /// that is in [`Statement::touch`](crate::Statement::touch).
    Execute(String),
    Deallocate(String),
    DeallocateAll,
    Declare {
        name: String,
        hold: bool,
    },
    /// FETCH or MOVE. What the cursor's query does has been said where it was declared.
    Fetch(String),
    Close(String),
    CloseAll,
    Listen(String),
    Unlisten(String),
    UnlistenAll,
    Notify {
        channel: String,
        payload: String,
    },
    Load(String),
    Lock,
    CreateTemporary(Temporary),
    /// DROP of anything: the last temporary object might be among it.
    Drop(Vec<Object>),
    Do,
    Call(Object),
    Copy(CopyWay),
    /// EXPLAIN without ANALYZE. With it, a statement is as what it explains.
    Explain,
    /// Of a function that the text names, and that this crate knows to concern the session.
    Function(&'static str),
    /// ALTER ROLE, DATABASE or SYSTEM … SET: what sessions begin with.
    AlterDefaults,
    /// CREATE, DROP and ALTER DATABASE, as far as nobody else may be in these databases for it, or they come into
    /// being: by name.
    Databases(Vec<String>),
    /// Of any other statement that changes what the database has.
    Define,
    /// Of one that changes nothing of what names and columns there are: TRUNCATE, VACUUM, GRANT and the like.
    Maintain,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Transaction {
    /// BEGIN or START TRANSACTION.
    Begin(Vec<Mode>),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Prepare(String),
    CommitPrepared(String),
    RollbackPrepared(String),
}

/// ISOLATION LEVEL, READ ONLY, DEFERRABLE, as the settings that they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mode {
    /// transaction_isolation, transaction_read_only or transaction_deferrable.
    pub name: String,
    pub value: String,
}

/// SET, also as SET TIME ZONE, NAMES, SCHEMA, ROLE, SESSION AUTHORIZATION, XML OPTION, SEED.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// In lower case, since PostgreSQL compares them so: `timezone`, `client_encoding`, `role`.
    pub name: String,
    pub value: Value,
    /// SET LOCAL.
    pub local: bool,
}

impl Setting {
    /// A name with a dot may be a placeholder, which no view shows.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.name.contains('.')
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// TO DEFAULT. For a role: RESET.
    Default,
    /// FROM CURRENT.
    Current,
    /// More than one only where the setting is a list.
    Items(Vec<Item>),
    /// An interval as a time zone: known by the server only.
    Interval,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// A string or a word. Words that were not quoted have been folded to lower case.
    Text(String),
    /// As it was written, with its sign.
    Number(String),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Discarded {
    All,
    Plans,
    Sequences,
    Temp,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CopyWay {
    /// COPY … FROM STDIN: the client sends.
    FromClient,
    /// COPY … TO STDOUT: the client receives.
    ToClient,
    /// Files and programs of the server.
    Server,
}

/// A name as it was written: schema, if any, and the last part.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Object {
    pub schema: Option<String>,
    pub name: String,
}

impl Object {
    /// In the temporary schema by its name. An unqualified name may be there too.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.schema.as_deref().is_some_and(is_temporary_schema)
    }

    pub(crate) fn of(parts: &[String]) -> Self {
        let mut parts = parts.iter().rev().cloned();
        let name = parts.next().unwrap_or_default();
        Self { schema: parts.next(), name }
    }
}

pub(crate) fn is_temporary_schema(name: &str) -> bool {
    name == "pg_temp" || name.starts_with("pg_temp_")
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Temporary {
    pub object: Object,
    /// ON COMMIT DROP: it ends with its transaction.
    pub on_commit_drop: bool,
}
