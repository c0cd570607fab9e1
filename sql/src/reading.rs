//! A text as a list of statements.

use std::ops::Range;

use pg_query::protobuf::{RawStmt, ScanToken};
use pg_query::{Error, ParserOptions};

use crate::act::Act;
use crate::overloadable::Overloadable;
use crate::states::States;
use crate::utility;

/// Longer texts are not read: what PostgreSQL's parser makes of them takes many times their size, and the time of
/// whoever waits.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;

/// What a reading may need of the stack, in a debug build: the parser takes what it finds, and the tree a hundred levels
/// of large frames. Where less is left it is run on a stack of its own, which costs a mapping; so threads that read a lot
/// are better given 4 MB.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// What a text may do.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// In order; empty for an empty query, and where the text could not be read.
    pub statements: Vec<Statement>,
    pub unread: Option<Unread>,
}

/// Why a text could not be read. It may do anything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unread {
    TooLong,
    /// Nested beyond what the parser or its tree can hold: some forty levels of expressions.
    TooDeep,
    /// Not UTF-8, or with a zero byte.
    NotText,
    /// The grammar refuses it. So will the server, unless it is of another version.
    Syntax,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Where it is in the text, less the semicolon.
    pub range: Range<usize>,
    /// In order. Empty for a plain SELECT, INSERT, UPDATE, DELETE or MERGE that calls nothing remarkable.
    pub acts: Vec<Act>,
    /// Kinds of state that it may make or change.
    pub makes: States,
    /// Kinds of state that it may end.
    pub ends: States,
    /// Kinds of state that its outcome depends on, besides settings, which all depend on.
    pub reads: States,
    pub touch: Touch,
    /// It changes rows: INSERT, UPDATE, DELETE, MERGE, COPY FROM, also within WITH.
    pub writes: bool,
    /// Columns of its result, counted from 0, that say whether a process was sent a signal.
    pub signals: Vec<(u16, Signal)>,
    /// What could be somebody's own though it has a name of PostgreSQL's.
    pub overloadable: Overloadable,
    /// Functions and operators that nobody here knows, by their names without schemas.
    pub calls: Vec<String>,
}

/// What a backend is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// By pg_cancel_backend.
    Cancel,
    /// By pg_terminate_backend.
    Terminate,
}

/// What a statement may do to the session beyond what [`Statement::makes`] and [`Statement::ends`] say.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Touch {
    /// Nothing: constants, built-in functions, the catalog, transaction control.
    #[default]
    Inert,
    /// Only what somebody has attached to the things it uses: triggers, rules, views, policies, defaults, casts.
    Ordinary,
    /// Whatever the functions and operators do that it [calls](Statement::calls), and nothing else.
    Calls,
    /// Anything: it is not understood, or runs what stands elsewhere.
    Unknown,
}

impl Reading {
    /// Reads a text. `standard_conforming_strings` is the session's setting of that name: whether a backslash in a
    /// plain string is just that.
    ///
    /// For a client whose client_encoding is not [plain](crate::encoding_is_plain) only ASCII may come here.
    #[must_use]
    pub fn of(text: &[u8], standard_conforming_strings: bool) -> Self {
        let read = || parse(text, standard_conforming_strings);
        match stacker::maybe_grow(STACK_BYTES, 2 * STACK_BYTES, read) {
            Ok(statements) => Self { statements, unread: None },
            Err(unread) => Self { statements: Vec::new(), unread: Some(unread) },
        }
    }

    /// The worst of its statements.
    #[must_use]
    pub fn touch(&self) -> Touch {
        let worst = self.statements.iter().map(|statement| statement.touch).max();
        if self.unread.is_some() { Touch::Unknown } else { worst.unwrap_or_default() }
    }

    #[must_use]
    pub fn makes(&self) -> States {
        self.statements.iter().fold(States::empty(), |all, statement| all | statement.makes)
    }

    #[must_use]
    pub fn ends(&self) -> States {
        self.statements.iter().fold(States::empty(), |all, statement| all | statement.ends)
    }

    #[must_use]
    pub fn reads(&self) -> States {
        self.statements.iter().fold(States::empty(), |all, statement| all | statement.reads)
    }

    #[must_use]
    pub fn overloadable(&self) -> Overloadable {
        let all = self.statements.iter().map(|statement| statement.overloadable);
        let all = all.fold(Overloadable::default(), |all, one| all | one);
        if self.unread.is_some() { Overloadable::ALL } else { all }
    }

    /// Of all statements, those within PREPARE not counted.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.statements.iter().flat_map(|statement| &statement.acts)
    }
}

/// Whether the library takes `text`: it is not too long, and has no end of a string within.
pub(crate) fn may_be_read(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && !text.contains('\0')
}

/// The words of a text, as the scanner parts them; `None` of what it refuses.
pub(crate) fn tokens(text: &str) -> Option<Vec<ScanToken>> {
    // Where there is no token, the library takes a null pointer for the place of none.
    if text.bytes().all(|byte| byte == b'\x0b' || byte.is_ascii_whitespace()) {
        return Some(Vec::new());
    }
    if may_be_read(text) { pg_query::scan_tokens(text).ok() } else { None }
}

fn parse(text: &[u8], conforming: bool) -> Result<Vec<Statement>, Unread> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Unread::TooLong);
    }
    if text.contains(&0) {
        return Err(Unread::NotText);
    }
    let text = std::str::from_utf8(text).map_err(|_| Unread::NotText)?;
    let options = if conforming {
        ParserOptions::DEFAULT
    } else {
        ParserOptions::DISABLE_STANDARD_CONFORMING_STRINGS
    };
    match pg_query::parse(text, options) {
        Ok(parsed) => Ok(parsed.protobuf.stmts.iter().map(|raw| statement(text, raw)).collect()),
        // The tree comes as a message of messages, which its decoder follows a hundred deep.
        Err(Error::Decode(_)) => Err(Unread::TooDeep),
        Err(Error::Parse(why)) if why.contains("depth") || why.contains("memory exhausted") => {
            Err(Unread::TooDeep)
        }
        Err(_) => Err(Unread::Syntax),
    }
}

fn statement(text: &str, raw: &RawStmt) -> Statement {
    let start = usize::try_from(raw.stmt_location).unwrap_or_default().min(text.len());
    let end = match usize::try_from(raw.stmt_len) {
        // Zero stands for the rest.
        Ok(0) | Err(_) => text.len(),
        Ok(length) => start.saturating_add(length).min(text.len()),
    };
    let node = raw.stmt.as_ref().and_then(|node| node.node.as_ref());
    let mut statement = utility::read(node, text, start..end);
    statement.range = start..end;
    statement
}

impl Statement {
    /// One that does nothing yet.
    pub(crate) fn blank() -> Self {
        Self {
            range: 0..0,
            acts: Vec::new(),
            makes: States::empty(),
            ends: States::empty(),
            reads: States::empty(),
            touch: Touch::Inert,
            writes: false,
            signals: Vec::new(),
            overloadable: Overloadable::default(),
            calls: Vec::new(),
        }
    }

    pub(crate) fn unknown() -> Self {
        Self { touch: Touch::Unknown, ..Self::blank() }
    }

    /// Takes over what a part of it does.
    pub(crate) fn absorb(&mut self, part: Self) {
        self.acts.extend(part.acts);
        self.makes |= part.makes;
        self.ends |= part.ends;
        self.reads |= part.reads;
        self.touch = self.touch.max(part.touch);
        self.writes |= part.writes;
        self.overloadable |= part.overloadable;
        self.calls.extend(part.calls);
    }

    pub(crate) fn at_least(mut self, touch: Touch) -> Self {
        self.touch = self.touch.max(touch);
        self
    }
}
