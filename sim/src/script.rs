//! What simulated applications ask for: SQL that says who asks, and what is to come of it.
//!
//! `r2;b;SET TimeZone='UTC'/*17.3*/` is request 3 of client 17. A statement that clients share ends
//! in `/*-*/`, and who asks is the parameter that is bound to it.

use std::borrow::Cow;

use session::{Marks, Reading};

/// Who asks, and which request of his it is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Ident {
    pub(crate) client: u32,
    pub(crate) request: u32,
}

impl std::fmt::Display for Ident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.client, self.request)
    }
}

impl Ident {
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (client, request) = std::str::from_utf8(text).ok()?.split_once('.')?;
        Some(Self { client: client.parse().ok()?, request: request.parse().ok()? })
    }
}

/// A query's text, taken apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Text<'a> {
    Empty,
    /// Of an application. `None`: whoever binds it.
    Script {
        who: Option<Ident>,
        ops: &'a [u8],
    },
    /// The pooler's own.
    Own(&'a [u8]),
    /// A script that is not whole: somebody else's bytes are in it.
    Garbled,
}

pub(crate) fn text(query: &[u8]) -> Text<'_> {
    if query.is_empty() {
        return Text::Empty;
    }
    let begins = |rest: &[u8]| rest.windows(2).rposition(|two| two == b"/*");
    let Some(rest) = query.strip_suffix(b"*/") else {
        return if begins(query).is_some() { Text::Garbled } else { Text::Own(query) };
    };
    let Some(at) = begins(rest) else { return Text::Garbled };
    let ops = &rest[..at];
    if begins(ops).is_some() {
        return Text::Garbled;
    }
    match &rest[at + 2..] {
        b"-" => Text::Script { who: None, ops },
        who => match Ident::read(who) {
            Some(who) => Text::Script { who: Some(who), ops },
            None => Text::Garbled,
        },
    }
}

/// What a text may do to the session, as the pooler's workers read it.
pub(crate) fn read(query: &[u8]) -> Reading {
    let (Text::Script { ops, .. } | Text::Own(ops)) = text(query) else {
        return Reading::unknown();
    };
    let mut marks = Marks::default();
    let mut rest = ops;
    while !rest.is_empty() {
        let one;
        (one, rest) = split(rest);
        marks = marks.and(match op(one) {
            Op::Junk(_) | Op::Table(_) | Op::Crash => Marks::ASK,
            Op::Set { name: b"statement_timeout", .. } => Marks::ASK,
            Op::DiscardAll | Op::ResetAll => Marks::ASK.and(Marks::RESETS),
            // As if there might be a trigger.
            Op::CopyOut { .. } | Op::CopyIn { .. } => Marks::LEARN,
            Op::Listen(_) | Op::Unlisten(_) => Marks::ASK,
            Op::Notify { .. } => Marks::NOTIFIES,
            _ => Marks::default(),
        });
    }
    Reading::new(marks, Box::default())
}

/// One statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Op<'a> {
    /// `r3` or `r3,500`: rows, each padded.
    Rows {
        count: u32,
        pad: usize,
    },
    Begin,
    Commit,
    Rollback,
    /// Of the pooler's own.
    Savepoint,
    RollbackTo,
    Release,
    Fail,
    Notice,
    /// `z20`: a row, after so many milliseconds.
    Slow {
        ms: u32,
    },
    Set {
        name: &'a [u8],
        value: Cow<'a, [u8]>,
    },
    /// `j5`: something in the session that no parameter tells.
    Junk(u32),
    /// `t1` makes the temporary table, `t0` drops it.
    Table(bool),
    /// The pooler asks what the session is like.
    Probe,
    /// It asks what the time limit is, which it is about to lift.
    Limit,
    /// It asks whether anything was changed elsewhere.
    Look,
    List,
    /// `RESET "junk"`
    Reset {
        name: &'a [u8],
    },
    /// `i0`: COPY FROM STDIN, or `i3`: which fails at the third CopyData.
    CopyIn {
        fails_at: u32,
    },
    /// `o3,500`: COPY TO STDOUT; `O3,500`: which fails at its end.
    CopyOut {
        chunks: u32,
        pad: usize,
        fails: bool,
    },
    /// `LISTEN "c1"`
    Listen(&'a [u8]),
    /// `UNLISTEN "c1"`, or `*`
    Unlisten(Option<&'a [u8]>),
    /// `NOTIFY "c1"`; the pooler's own say something.
    Notify {
        channel: &'a [u8],
        payload: &'a [u8],
    },
    /// `RESET SESSION AUTHORIZATION`, which nobody has set.
    ResetUser,
    DeallocateAll,
    DiscardAll,
    /// Which it has none of.
    DiscardSequences,
    ResetAll,
    /// The server dies of it.
    Crash,
    /// It cannot be parsed.
    Nonsense,
}

impl Op<'_> {
    /// Whether it ends a transaction, and so is welcome in a failed one.
    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo)
    }

    /// The tag of those whose answer is no more than that.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Listen(_) => "LISTEN",
            Self::Unlisten(_) => "UNLISTEN",
            Self::Notify { .. } => "NOTIFY",
            Self::ResetUser => "RESET",
            _ => "DO",
        }
    }

    /// Whether it has columns.
    pub(crate) fn returns_rows(&self) -> bool {
        matches!(self, Self::Rows { .. } | Self::Slow { .. })
    }
}

/// The first statement of `text`, and what comes behind it.
pub(crate) fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b';' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, &[])
}

pub(crate) fn op(statement: &[u8]) -> Op<'_> {
    // What it does is the same; but PostgreSQL plans it.
    let statement = statement.strip_prefix(b"table ").unwrap_or(statement);
    let (Some(first), rest) = (statement.first(), statement.get(1..).unwrap_or_default()) else {
        return Op::Nonsense;
    };
    if let Some(op) = whole(statement) {
        return op;
    }
    if statement.starts_with(b"SELECT 's'::pg_catalog.text,") {
        return Op::Probe;
    }
    if statement.starts_with(b"SELECT '20'::pg_catalog.text,") {
        return Op::Look;
    }
    if statement.starts_with(b"SELECT '21'::pg_catalog.text,") {
        return Op::List;
    }
    if statement.starts_with(b"SELECT 'w','',") {
        return Op::Limit;
    }
    if let Some(name) = statement.strip_prefix(b"RESET \"") {
        return name.strip_suffix(b"\"").map_or(Op::Nonsense, |name| Op::Reset { name });
    }
    if let Some(name) = statement.strip_prefix(b"LISTEN ") {
        return quoted(name).map_or(Op::Nonsense, Op::Listen);
    }
    if let Some(name) = statement.strip_prefix(b"UNLISTEN ") {
        return quoted(name).map_or(Op::Nonsense, |name| Op::Unlisten(Some(name)));
    }
    if let Some(rest) = statement.strip_prefix(b"NOTIFY ") {
        let comma = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
        let (name, said) = rest.split_at(comma);
        let payload = said.strip_prefix(b",'").and_then(|said| said.strip_suffix(b"'"));
        let payload = payload.unwrap_or_default();
        return quoted(name).map_or(Op::Nonsense, |channel| Op::Notify { channel, payload });
    }
    if let Some(value) = statement.strip_prefix(b"SET client_encoding TO ") {
        let value = literal(value);
        return value.map_or(Op::Nonsense, |value| Op::Set { name: b"client_encoding", value });
    }
    if let Some(set) = statement.strip_prefix(b"SET ") {
        return assignment(set, b'=').unwrap_or(Op::Nonsense);
    }
    if let Some(set) = statement.strip_prefix(b"SELECT pg_catalog.set_config('") {
        // As it is prepared, and not run with others.
        let set = set.strip_suffix(b";").unwrap_or(set);
        let set = set.strip_suffix(b"IS NULL").unwrap_or(set);
        let set = set.strip_suffix(b",false)").unwrap_or_default();
        let Some(end) = set.iter().position(|byte| *byte == b'\'') else { return Op::Nonsense };
        let value = set[end..].strip_prefix(b"',").and_then(literal);
        return value.map_or(Op::Nonsense, |value| Op::Set { name: &set[..end], value });
    }
    let Some((one, two)) = numbers(rest) else { return Op::Nonsense };
    match first {
        b'r' => Op::Rows { count: one, pad: two },
        b'z' => Op::Slow { ms: one },
        b'j' => Op::Junk(one),
        // It strikes what the pooler sets, now and then, and nothing else.
        b'l' => {
            let value = Cow::Owned(one.to_string().into_bytes());
            Op::Set { name: b"statement_timeout", value }
        }
        b'i' => Op::CopyIn { fails_at: one },
        b'o' => Op::CopyOut { chunks: one, pad: two, fails: false },
        b'O' => Op::CopyOut { chunks: one, pad: two, fails: true },
        _ => Op::Nonsense,
    }
}

/// Statements that are known by all of their text.
fn whole(statement: &[u8]) -> Option<Op<'_>> {
    Some(match statement {
        b"b" | b"BEGIN" | b"BEGIN ISOLATION LEVEL READ COMMITTED" => Op::Begin,
        b"SAVEPOINT \"PGBOUNCER_0\"" => Op::Savepoint,
        b"ROLLBACK TO \"PGBOUNCER_0\"" => Op::RollbackTo,
        b"RELEASE \"PGBOUNCER_0\"" => Op::Release,
        b"c" | b"COMMIT" => Op::Commit,
        b"k" | b"ROLLBACK" => Op::Rollback,
        // It stands in for what a server perhaps cannot be given, and is only described.
        b"SELECT 1" => Op::Rows { count: 1, pad: 0 },
        b"f" => Op::Fail,
        b"n" => Op::Notice,
        b"x" => Op::Crash,
        b"DEALLOCATE ALL" => Op::DeallocateAll,
        b"DISCARD ALL" => Op::DiscardAll,
        b"DISCARD SEQUENCES" => Op::DiscardSequences,
        b"ra" | b"RESET ALL" => Op::ResetAll,
        b"RESET SESSION AUTHORIZATION" | b"RESET ROLE" => Op::ResetUser,
        b"UNLISTEN *" => Op::Unlisten(None),
        b"t0" => Op::Table(false),
        b"t1" => Op::Table(true),
        b"SET statement_timeout=0" => {
            Op::Set { name: b"statement_timeout", value: Cow::Borrowed(b"0") }
        }
        b"select 1" => Op::Rows { count: 1, pad: 0 },
        _ => return None,
    })
}

fn numbers(text: &[u8]) -> Option<(u32, usize)> {
    let text = std::str::from_utf8(text).ok()?;
    match text.split_once(',') {
        Some((one, two)) => Some((one.parse().ok()?, two.parse().ok()?)),
        None => Some((text.parse().ok()?, 0)),
    }
}

fn quoted(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn assignment(text: &[u8], between: u8) -> Option<Op<'_>> {
    let at = text.iter().position(|byte| *byte == between)?;
    Some(Op::Set { name: &text[..at], value: literal(&text[at + 1..])? })
}

/// `'it''s'`, or `E'\x5c'` in which bytes are told by their codes.
fn literal(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (escaped, quoted) = match text.strip_prefix(b"E") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut inside = quoted.strip_prefix(b"'")?.strip_suffix(b"'")?;
    if !inside.contains(&b'\'') && !inside.contains(&b'\\') {
        return Some(Cow::Borrowed(inside));
    }
    let mut value = Vec::with_capacity(inside.len());
    while let Some((byte, rest)) = inside.split_first() {
        inside = rest;
        match byte {
            b'\'' => inside = inside.strip_prefix(b"'")?,
            b'\\' if escaped => {
                let code = std::str::from_utf8(inside.strip_prefix(b"x")?.get(..2)?).ok()?;
                value.push(u8::from_str_radix(code, 16).ok()?);
                inside = &inside[3..];
                continue;
            }
            _ => {}
        }
        value.push(*byte);
    }
    Some(Cow::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_taken_apart() {
        let who = Some(Ident { client: 17, request: 3 });
        assert_eq!(text(b"r2/*17.3*/"), Text::Script { who, ops: b"r2" });
        assert_eq!(text(b"r2/*17.3*"), Text::Garbled);
        assert_eq!(text(b"r2/*17.3*/r2/*17.3*/"), Text::Garbled);
        assert_eq!(text(b"SET a='b'"), Text::Own(b"SET a='b'"));
        let (first, rest) = split(b"SET TimeZone='a;b';r1");
        assert_eq!((first, rest), (&b"SET TimeZone='a;b'"[..], &b"r1"[..]));
        let value = Cow::Borrowed(&b"a;b"[..]);
        assert_eq!(op(first), Op::Set { name: b"TimeZone", value });
        assert_eq!(op(b"o3,50"), Op::CopyOut { chunks: 3, pad: 50, fails: false });
    }

    #[test]
    fn quotes_are_undone() {
        assert_eq!(literal(b"'it''s'").as_deref(), Some(&b"it's"[..]));
        assert_eq!(literal(br"E'\x5c\x27;'").as_deref(), Some(&br"\';"[..]));
        assert_eq!(literal(b"'it's'"), None);
    }
}
