//! What a session is set to: what a client made of it, and what a server is found to be.
//!
//! The tracked parameters ([`crate::Vars`]) are left out: those the server reports by itself. For all
//! else there is no report, so the server is asked, by one query that reads the same whatever the
//! client's search_path, role, encoding or string syntax are: every name in it is qualified, and what
//! it answers is in hexadecimal digits.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::Tracked;
use crate::made::{Made, has_say};

/// The settings of a session that differ from those of a new one, its role and its user.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// By name, each once, in the encoding of the database.
    settings: Box<[Setting]>,
    /// `SET ROLE`
    role: Option<Box<[u8]>>,
    /// `SET SESSION AUTHORIZATION`, where that made another of it than the user who logged in.
    user: Option<Box<[u8]>>,
    /// What `PREPARE` made in it, by name.
    made: Box<[Made]>,
    /// A number for all of it, once it is shared.
    flavour: u32,
    /// A number for what says what a text means, once it is shared.
    ground: Option<u64>,
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
            && self.role == other.role
            && self.user == other.user
            && self.made == other.made
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.settings, &self.role, &self.user, &self.made).hash(hasher);
    }
}

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Setting {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

impl State {
    /// As startup parameters ask for. Of several values for a name, the last counts.
    #[must_use]
    pub fn asked<'a>(parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut state = Self::default();
        for (name, value) in parameters {
            state.ask(name, value);
        }
        state
    }

    /// A startup parameter.
    pub(crate) fn ask(&mut self, name: &[u8], value: &[u8]) {
        match name.to_ascii_lowercase().as_slice() {
            b"role" => self.role = (value != b"none").then(|| value.into()),
            b"session_authorization" => self.user = Some(value.into()),
            name => self.put(name, value),
        }
    }

    #[must_use]
    pub fn is_default(&self) -> bool {
        self.settings.is_empty()
            && self.role.is_none()
            && self.user.is_none()
            && self.made.is_empty()
    }

    /// The same, but for the time limit, which is 0.
    pub(crate) fn without_limit(&self) -> Self {
        let mut state = self.clone();
        state.put(LIMIT, b"0");
        state
    }

    /// Whether there is a time limit that strikes statements.
    pub(crate) fn is_limited(&self) -> bool {
        self.value(LIMIT).is_some_and(|limit| limit != b"0")
    }

    /// To be shared by all who are in it.
    #[must_use]
    pub fn shared(mut self) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        self.flavour = hasher.finish() as u32;
        self.ground = Some(self.say());
        Arc::new(self)
    }

    /// A number for what of it says what a text means which is prepared now.
    pub(crate) fn ground(&self) -> u64 {
        self.ground.unwrap_or_else(|| self.say())
    }

    fn say(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let identity = self.identity();
        let mut any = identity != (None, None);
        for (name, value) in self.settings().filter(|(name, _)| has_say(name)) {
            (name, value).hash(&mut hasher);
            any = true;
        }
        identity.hash(&mut hasher);
        // Where nothing has a say, it is as in a new session.
        if any { hasher.finish() } else { 0 }
    }

    /// A number for it: equal states have equal ones, and 0 is that of a new session.
    #[must_use]
    pub fn flavour(state: Option<&Arc<Self>>) -> u32 {
        state.map_or(0, |state| state.flavour)
    }

    /// The value of a setting, if it is not that of a new session.
    #[must_use]
    pub fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.settings.binary_search_by(|setting| (*setting.name).cmp(name)).ok()?;
        self.settings.get(at).map(|setting| &*setting.value)
    }

    /// Names and values.
    pub fn settings(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.settings.iter().map(|setting| (&*setting.name, &*setting.value))
    }

    /// Its role and its user, where they are not those who logged in.
    pub(crate) fn identity(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.role.as_deref(), self.user.as_deref())
    }

    /// What `PREPARE` made in it.
    pub(crate) fn made(&self) -> &[Made] {
        &self.made
    }

    /// The same, with these statements.
    pub(crate) fn with_made(&self, mut made: Vec<Made>) -> Self {
        made.sort_unstable();
        Self { made: made.into(), ..self.clone() }
    }

    fn put(&mut self, name: &[u8], value: &[u8]) {
        self.ground = None;
        let mut settings = std::mem::take(&mut self.settings).into_vec();
        match settings.binary_search_by(|setting| (*setting.name).cmp(name)) {
            Ok(at) => settings[at].value = value.into(),
            Err(at) => settings.insert(at, Setting { name: name.into(), value: value.into() }),
        }
        self.settings = settings.into();
    }

    /// What `asked` has and this has not: a RESET of it leads back to what was asked for at login.
    pub fn fall_back_on(&mut self, asked: &Self) {
        for setting in &asked.settings {
            if self.value(&setting.name).is_none() {
                self.put(&setting.name, &setting.value);
            }
        }
    }
}

/// What keeps a session on its server: it exists there only, and cannot be taken elsewhere.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ties(u16);

/// One reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Tie {
    TemporaryTable = 1,
    AdvisoryLock = 1 << 1,
    HoldableCursor = 1 << 2,
    PreparedStatement = 1 << 3,
    Listen = 1 << 4,
    /// Code that was loaded into the server's process.
    Load = 1 << 5,
    /// `setseed`
    Seed = 1 << 6,
    /// `currval` and `lastval`
    Sequence = 1 << 7,
    /// Nobody could say what there is: the probe failed, or it saw what it cannot repeat.
    Unknown = 1 << 8,
    /// Settings, role and user. They follow their client and tie it to nothing; here they stand as one of
    /// the kinds that may be refused.
    Settings = 1 << 9,
}

impl Tie {
    pub const ALL: [Self; 10] = [
        Self::TemporaryTable,
        Self::AdvisoryLock,
        Self::HoldableCursor,
        Self::PreparedStatement,
        Self::Listen,
        Self::Load,
        Self::Seed,
        Self::Sequence,
        Self::Unknown,
        Self::Settings,
    ];

    /// As SHOW PINS says it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::TemporaryTable => "temporary table",
            Self::AdvisoryLock => "advisory lock",
            Self::HoldableCursor => "holdable cursor",
            Self::PreparedStatement => "prepared statement",
            Self::Listen => "listen",
            Self::Load => "load",
            Self::Seed => "seed",
            Self::Sequence => "sequence",
            Self::Unknown => "unknown",
            Self::Settings => "settings",
        }
    }

    /// As `session_state` says it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::TemporaryTable => "temporary_table",
            Self::AdvisoryLock => "advisory_lock",
            Self::HoldableCursor => "holdable_cursor",
            Self::PreparedStatement => "prepared_statement",
            _ => self.words(),
        }
    }

    /// What an application can do instead, in a sentence.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::TemporaryTable => {
                "CREATE TEMPORARY TABLE … ON COMMIT DROP, or a WITH query, needs no session."
            }
            Self::AdvisoryLock => {
                "pg_advisory_xact_lock ends with its transaction and needs no session."
            }
            Self::HoldableCursor => {
                "A cursor without WITH HOLD, in a transaction, needs no session."
            }
            Self::PreparedStatement => {
                "Statements prepared by the driver's protocol need no session."
            }
            Self::Listen => {
                "One connection that listens for all, in a pool in session mode, is enough."
            }
            Self::Load => "session_preload_libraries loads it for every session.",
            Self::Seed => "setseed and random in one statement or transaction need no session.",
            Self::Sequence => {
                "RETURNING, or currval in the transaction of nextval, needs no session."
            }
            Self::Unknown => "The server could not be asked what its session holds.",
            Self::Settings => "SET LOCAL, or ALTER ROLE … SET, needs no session.",
        }
    }

    /// Whether the end of it can be seen by a probe. The others last as long as the session.
    #[must_use]
    pub fn is_seen(self) -> bool {
        self as u16 & Ties::UNSEEN == 0
    }
}

impl Ties {
    /// What no probe shows.
    const UNSEEN: u16 = Tie::Load as u16 | Tie::Seed as u16 | Tie::Sequence as u16;

    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether this is the only one.
    #[must_use]
    pub fn is_only(self, tie: Tie) -> bool {
        self.0 == tie as u16
    }

    pub(crate) fn remove(&mut self, tie: Tie) {
        self.0 &= !(tie as u16);
    }

    #[must_use]
    pub fn has(self, tie: Tie) -> bool {
        self.0 & tie as u16 != 0
    }

    pub fn add(&mut self, tie: Tie) {
        self.0 |= tie as u16;
    }

    /// What was found takes the place of all that can be found.
    pub(crate) fn renew(&mut self, found: Self) {
        self.0 = self.0 & Self::UNSEEN | found.0;
    }

    /// More of what no probe shows.
    pub(crate) fn renew_unseen(&mut self, more: Self) {
        self.0 |= more.0;
    }

    pub fn iter(self) -> impl Iterator<Item = Tie> {
        Tie::ALL.into_iter().filter(move |tie| self.has(*tie))
    }
}

impl fmt::Display for Ties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, tie) in self.iter().enumerate() {
            let comma = if count > 0 { ", " } else { "" };
            write!(f, "{comma}{}", tie.words())?;
        }
        Ok(())
    }
}

/// What a probe found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Probed {
    pub(crate) state: State,
    pub(crate) ties: Ties,
    /// Which of the tracked parameters were set in this session: by their place in the list.
    pub(crate) tracked: Vec<usize>,
    /// Channels it listens to.
    pub(crate) channels: Vec<Box<[u8]>>,
    /// Custom settings that it was asked for and does not know.
    pub(crate) unknown: Vec<Vec<u8>>,
    /// What `PREPARE` made: names and texts, these as far as they are not too long.
    pub(crate) made: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// The time limit that can strike a probe.
const LIMIT: &[u8] = b"statement_timeout";

/// Append what lifts the session's own time limit before a probe, and tells what it was.
pub(crate) fn suspend_limit(out: &mut Vec<u8>) {
    out.extend_from_slice(b"SELECT 'w','',");
    encoded(out, |out| {
        out.extend_from_slice(b"pg_catalog.current_setting('statement_timeout')");
    });
    out.extend_from_slice(b";SET statement_timeout=0;");
}

/// PostgreSQL cuts identifiers behind so many bytes.
const NAME_MAX: usize = 63;

/// Longest list of custom settings that a probe asks for.
pub(crate) const CUSTOM_MAX: usize = 256;

/// Append the query that tells what there is of a session. `custom`: settings with a dot in their
/// name, which the server lists nowhere as long as no module has defined them.
pub(crate) fn probe<'a>(custom: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    // `current_setting` of a name that does not exist is NULL, and its row says so.
    for name in custom.into_iter().take(CUSTOM_MAX) {
        out.extend_from_slice(b"SELECT 's'::pg_catalog.text,'");
        hex(name, out);
        out.extend_from_slice(b"'::pg_catalog.text,");
        encoded(out, |out| {
            out.extend_from_slice(b"pg_catalog.current_setting(");
            literal(name, out);
            out.extend_from_slice(b",true)");
        });
        out.extend_from_slice(b" UNION ALL ");
    }
    out.extend_from_slice(PROBE.as_bytes());
}

const PROBE: &str = concat!(
    "SELECT 's'::pg_catalog.text,",
    "pg_catalog.encode(pg_catalog.convert_to(name,pg_catalog.getdatabaseencoding()),'hex'),",
    "pg_catalog.encode(pg_catalog.convert_to(setting,pg_catalog.getdatabaseencoding()),'hex') ",
    "FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session' ",
    // These last for a transaction, or stand for one; and each new one brings its own.
    "AND name OPERATOR(pg_catalog.!~~) 'transaction\\_%' ",
    "UNION ALL SELECT 'r','',pg_catalog.encode(pg_catalog.convert_to(",
    "pg_catalog.current_setting('role'),pg_catalog.getdatabaseencoding()),'hex') ",
    "UNION ALL SELECT 'u','',pg_catalog.encode(pg_catalog.convert_to(",
    "session_user::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex') ",
    "UNION ALL (SELECT 'p',pg_catalog.encode(pg_catalog.convert_to(name,",
    "pg_catalog.getdatabaseencoding()),'hex'),CASE WHEN pg_catalog.length(statement) ",
    "OPERATOR(pg_catalog.<=) 8192 THEN pg_catalog.encode(pg_catalog.convert_to(statement,",
    "pg_catalog.getdatabaseencoding()),'hex') END ",
    "FROM pg_catalog.pg_prepared_statements WHERE from_sql LIMIT 65) ",
    "UNION ALL (SELECT 'c','','' FROM pg_catalog.pg_cursors WHERE is_holdable LIMIT 1) ",
    "UNION ALL (SELECT 'l',pg_catalog.encode(pg_catalog.convert_to(",
    "channel,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_listening_channels() AS channel LIMIT 1025) ",
    "UNION ALL (SELECT 'a','','' FROM pg_catalog.pg_locks ",
    "WHERE locktype OPERATOR(pg_catalog.=) 'advisory' ",
    "AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() LIMIT 1) ",
    "UNION ALL (SELECT 't','','' FROM pg_catalog.pg_depend WHERE refclassid ",
    "OPERATOR(pg_catalog.=) 'pg_catalog.pg_namespace'::pg_catalog.regclass ",
    "AND refobjid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() LIMIT 1)",
);

impl Probed {
    /// Read the rows of a probe: the bodies of its `DataRow`s. `login`: who logged in to the server.
    /// `None`: these are no such rows.
    #[must_use]
    pub(crate) fn read<'a>(
        rows: impl IntoIterator<Item = &'a [u8]>,
        tracked: &Tracked,
        login: &[u8],
    ) -> Option<Self> {
        let mut found = Self::default();
        let (mut role, mut user, mut limit) = (None, None, None);
        for row in rows {
            let [kind, name, value] = columns(row)?;
            if crate::hidden::is_of(kind) {
                continue;
            }
            let (name, value) = (unhex(name?)?, value.map(unhex));
            match (kind?, value) {
                (b"s", None) => found.unknown.push(name),
                (b"s", Some(value)) => match tracked.position(&name) {
                    Some(at) => found.tracked.push(at),
                    None if !is_plain_name(&name) => found.ties.add(Tie::Unknown),
                    None => found.state.put(&name, &value?),
                },
                (b"w", Some(value)) => limit = value,
                (b"r", Some(value)) => role = value,
                (b"u", Some(value)) => user = value,
                (b"l", _) => {
                    found.ties.add(Tie::Listen);
                    found.channels.push(name.into());
                }
                (b"p", None) => found.made.push((name, None)),
                (b"p", Some(value)) => found.made.push((name, Some(value?))),
                (kind, _) => found.ties.add(match kind {
                    b"c" => Tie::HoldableCursor,
                    b"a" => Tie::AdvisoryLock,
                    b"t" => Tie::TemporaryTable,
                    _ => return None,
                }),
            }
        }
        // Both are always there: without them the answer is not whole.
        let (role, user) = (role?, user?);
        if let Some(limit) = limit {
            found.state.put(LIMIT, &limit);
        }
        found.state.role = (role != b"none").then(|| role.into());
        found.state.user = (user != login).then(|| user.into());
        Some(found)
    }
}

/// Append what makes a session that is as `from` into one that is as `to`. `false`, and nothing is
/// appended, if it is so already.
pub(crate) fn restore(from: &State, to: &State, out: &mut Vec<u8>) -> bool {
    if from == to || planted::is("state-of-others") {
        return false;
    }
    let before = out.len();
    // What the login's role may set, another may not; and the user comes before the role.
    let unmask = from.role.is_some() || from.user.is_some();
    if unmask {
        out.extend_from_slice(b"RESET SESSION AUTHORIZATION;RESET ROLE;");
    }
    for made in from.made.iter().filter(|made| !to.made.contains(made)) {
        out.extend_from_slice(b"DEALLOCATE \"");
        // No name with a quote in it ever gets here.
        out.extend_from_slice(&made.name);
        out.extend_from_slice(b"\";");
    }
    // Time limits go first and come last: none is to strike what sets the rest.
    for early in [true, false] {
        for (name, _) in from.settings() {
            if to.value(name).is_none() && is_limit(name) == early && name != LIMIT {
                reset(name, out);
            }
        }
    }
    for late in [false, true] {
        for (name, value) in to.settings() {
            if from.value(name) != Some(value) && is_limit(name) == late && name != LIMIT {
                assign(name, value, out);
            }
        }
    }
    for (name, value) in [("session_authorization", &to.user), ("role", &to.role)] {
        if let Some(value) = value {
            assign(name.as_bytes(), value, out);
        }
    }
    out.len() > before || from.value(LIMIT) != to.value(LIMIT)
}

/// Append, behind all else, what gives the limit of `to` to a session that was as `from`, and whose limit may have been lifted.
pub(crate) fn limit(from: &State, to: &State, out: &mut Vec<u8>) {
    let known = from.value(LIMIT);
    match to.value(LIMIT) {
        None if known.is_some() => reset(LIMIT, out),
        Some(limit) if from.is_limited() || known != Some(limit) => assign(LIMIT, limit, out),
        _ => {}
    }
}

fn is_limit(name: &[u8]) -> bool {
    name.ends_with(b"_timeout")
}

fn reset(name: &[u8], out: &mut Vec<u8>) {
    if name.split(|byte| *byte == b'.').any(|part| part.len() > NAME_MAX) {
        // RESET would be of what is left of it.
        out.extend_from_slice(b"SELECT pg_catalog.set_config(");
        literal(name, out);
        return out.extend_from_slice(b",NULL,false);");
    }
    out.extend_from_slice(b"RESET ");
    quoted_name(name, out);
    out.push(b';');
}

/// Append what gives a session as it was at login these settings, so far as they have a say in what a text means.
pub(crate) fn put_on(state: Option<&State>, vars: &crate::Vars, out: &mut Vec<Vec<u8>>) {
    let mut put = |name: &[u8], value: &[u8]| {
        let mut one = Vec::new();
        assign(name, value, &mut one);
        out.push(one);
    };
    vars.iter().for_each(|(name, value)| put(name.as_bytes(), value));
    let Some(state) = state else { return };
    for (name, value) in state.settings().filter(|(name, _)| has_say(name)) {
        put(name, value);
    }
    for (name, value) in [("session_authorization", &state.user), ("role", &state.role)] {
        if let Some(value) = value {
            put(name.as_bytes(), value);
        }
    }
}

/// `set_config` takes any value that ever was one, a list of names too.
fn assign(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"SELECT pg_catalog.set_config(");
    literal(name, out);
    out.push(b',');
    literal(value, out);
    // What it returns need not exist in the client's encoding.
    let ends: &[u8] = if value.is_ascii() { b",false);" } else { b",false)IS NULL;" };
    out.extend_from_slice(ends);
}

/// Append one statement that assigns these. `only_reset`: those only that nobody has set in the session.
pub(crate) fn assign_all(
    settings: &[(&[u8], &[u8])],
    local: bool,
    only_reset: bool,
    out: &mut Vec<u8>,
) {
    let local: &[u8] = if local { b"true" } else { b"false" };
    out.extend_from_slice(b"SELECT ");
    if only_reset {
        out.extend_from_slice(b"pg_catalog.set_config(w.name,w.value,");
        out.extend_from_slice(local);
        out.extend_from_slice(b")IS NULL FROM (VALUES");
    }
    for (index, (name, value)) in settings.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        out.extend_from_slice(if only_reset { b"(" } else { b"pg_catalog.set_config(" });
        literal(name, out);
        out.push(b',');
        literal(value, out);
        if !only_reset {
            out.push(b',');
            out.extend_from_slice(local);
        }
        out.extend_from_slice(if only_reset { b")" } else { b")IS NULL" });
    }
    if only_reset {
        out.extend_from_slice(
            b") AS w(name,value) JOIN pg_catalog.pg_settings AS s ON pg_catalog.lower(s.name) \
              OPERATOR(pg_catalog.=) pg_catalog.lower(w.name) \
              WHERE s.source OPERATOR(pg_catalog.<>) 'session'",
        );
    }
}

/// A literal that means the same whatever the client's encoding and string syntax are.
fn literal(text: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\');
    if text.iter().all(plain) {
        out.push(b'\'');
        out.extend_from_slice(text);
        out.push(b'\'');
        return;
    }
    out.extend_from_slice(b"pg_catalog.convert_from(pg_catalog.decode('");
    hex(text, out);
    out.extend_from_slice(b"','hex'),pg_catalog.getdatabaseencoding())");
}

/// Hexadecimal digits of a text, in the encoding of the database.
fn encoded(out: &mut Vec<u8>, text: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"pg_catalog.encode(pg_catalog.convert_to(");
    text(out);
    out.extend_from_slice(b",pg_catalog.getdatabaseencoding()),'hex')");
}

/// A setting's name, as RESET takes it. A dot parts two names.
fn quoted_name(name: &[u8], out: &mut Vec<u8>) {
    for (index, part) in name.split(|byte| *byte == b'.').enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        out.push(b'"');
        out.extend_from_slice(part);
        out.push(b'"');
    }
}

/// Whether a name can stand in a query of ours, in any encoding.
#[must_use]
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'$'))
}

/// The three columns of a row; an absent one is NULL.
pub(crate) fn columns(row: &[u8]) -> Option<[Option<&[u8]>; 3]> {
    let (count, mut rest) = row.split_first_chunk::<2>()?;
    if u16::from_be_bytes(*count) != 3 {
        return None;
    }
    let mut columns = [None; 3];
    for column in &mut columns {
        let (len, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        if let Ok(len) = usize::try_from(i32::from_be_bytes(*len)) {
            let (value, after) = rest.split_at_checked(len)?;
            (*column, rest) = (Some(value), after);
        }
    }
    rest.is_empty().then_some(columns)
}

pub(crate) fn hex(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in text {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

pub(crate) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(settings: &[(&str, &str)]) -> State {
        State::asked(settings.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    fn text(from: &State, to: &State) -> String {
        let mut out = Vec::new();
        assert_eq!(restore(from, to, &mut out), from != to);
        if from != to {
            limit(from, to, &mut out);
        }
        String::from_utf8(out).expect("made of text")
    }

    fn row(kind: &str, name: &str, value: Option<&str>) -> Vec<u8> {
        let (mut name_digits, mut digits) = (Vec::new(), Vec::new());
        hex(name.as_bytes(), &mut name_digits);
        hex(value.unwrap_or_default().as_bytes(), &mut digits);
        let mut row = vec![0, 3];
        for (column, is_null) in
            [(kind.as_bytes(), false), (&name_digits, false), (&digits, value.is_none())]
        {
            let len = if is_null { -1 } else { i32::try_from(column.len()).expect("short") };
            row.extend_from_slice(&len.to_be_bytes());
            if !is_null {
                row.extend_from_slice(column);
            }
        }
        row
    }

    fn read(rows: &[Vec<u8>]) -> Option<Probed> {
        Probed::read(rows.iter().map(Vec::as_slice), &Tracked::default(), b"ann")
    }

    #[test]
    fn equal_states_cost_nothing() {
        assert_eq!(text(&State::default(), &State::default()), "");
        let one = state(&[("work_mem", "7168"), ("search_path", "app")]);
        let other = state(&[("search_path", "app"), ("work_mem", "7168")]);
        assert_eq!(text(&one, &other), "");
    }

    #[test]
    fn only_what_differs_is_changed() {
        let from = state(&[("a", "1"), ("b", "2"), ("app.x", "y")]);
        let to = state(&[("b", "2"), ("c", "3"), ("statement_timeout", "5"), ("zz", "6")]);
        assert_eq!(
            text(&from, &to),
            "RESET \"a\";RESET \"app\".\"x\";SELECT pg_catalog.set_config('c','3',false);\
             SELECT pg_catalog.set_config('zz','6',false);\
             SELECT pg_catalog.set_config('statement_timeout','5',false);"
        );
    }

    #[test]
    fn what_is_too_long_for_an_identifier_is_reset_by_a_function() {
        let long = format!("app.{}", "x".repeat(64));
        let reset = format!("SELECT pg_catalog.set_config('{long}',NULL,false);");
        assert_eq!(text(&state(&[(&long, "1")]), &State::default()), reset);
    }

    /// A role must not be in force while settings are put back: it may not be allowed to.
    #[test]
    fn roles_are_left_first_and_taken_last() {
        let from = state(&[("role", "bob"), ("a", "1")]);
        let to = state(&[("role", "bob"), ("a", "2"), ("session_authorization", "joe")]);
        assert_eq!(
            text(&from, &to),
            "RESET SESSION AUTHORIZATION;RESET ROLE;SELECT pg_catalog.set_config('a','2',false);\
             SELECT pg_catalog.set_config('session_authorization','joe',false);\
             SELECT pg_catalog.set_config('role','bob',false);"
        );
    }

    #[test]
    fn hostile_values_stay_values() {
        let to = state(&[("a", "'; drop table t; --"), ("b", "\\'"), ("c", "ä")]);
        assert_eq!(
            text(&State::default(), &to).matches("convert_from(pg_catalog.decode('").count(),
            3
        );
    }

    #[test]
    fn a_probe_is_read() {
        let rows = [
            row("s", "work_mem", Some("7168")),
            row("s", "app.none", None),
            row("s", "TimeZone", Some("UTC")),
            row("r", "", Some("none")),
            row("u", "", Some("ann")),
            row("t", "", Some("")),
        ];
        let found = read(&rows).expect("a probe");
        assert_eq!(found.state, state(&[("work_mem", "7168")]));
        assert_eq!(found.tracked, [Tracked::default().position(b"timezone").expect("tracked")]);
        assert_eq!(found.ties.to_string(), "temporary table");
    }

    /// Half an answer is none.
    #[test]
    fn what_is_no_probe_is_not_read() {
        assert_eq!(read(&[row("s", "a", Some("b"))]), None);
        assert_eq!(read(&[row("x", "", None)]), None);
        let mut broken = row("s", "a", Some("b"));
        broken.pop();
        assert_eq!(read(&[broken]), None);
        assert_eq!(read(&[vec![0, 1, 0, 0, 0, 0]]), None);
        let whole = [row("r", "", Some("bob")), row("u", "", Some("joe"))];
        let found = read(&whole).expect("a probe");
        assert_eq!(found.state, state(&[("role", "bob"), ("session_authorization", "joe")]));
    }

    #[test]
    fn a_reset_leads_back_to_what_was_asked_for() {
        let mut now = state(&[("a", "1")]);
        now.fall_back_on(&state(&[("a", "0"), ("b", "2")]));
        assert_eq!(now, state(&[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn what_no_probe_shows_stays() {
        let mut ties = Ties::default();
        ties.add(Tie::Load);
        ties.add(Tie::TemporaryTable);
        ties.renew(Ties::default());
        assert_eq!(ties.to_string(), "load");
        assert!(!Tie::Load.is_seen() && Tie::Listen.is_seen());
    }
}
