//! What a statement does that concerns its session: what a report on an application is made of.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use sql::{Act, Digest, Discarded, States, Touch};

use crate::rules::Rules;
use crate::shape;
use crate::state::{Tie, Ties};
use crate::text::{READ_MAX, is_reported, show};

/// One thing that a statement does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sight {
    pub kind: Kind,
    /// Tells the statement from others that differ by more than their constants.
    pub number: u64,
    /// Without its constants, and cut where it is long.
    pub statement: Arc<str>,
}

/// What is done. In the order of `KINDS`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Nothing that concerns the session.
    Nothing,
    /// A parameter that servers report by themselves.
    Parameter,
    Setting,
    Role,
    Reset,
    Prepare,
    /// A statement of the protocol, where these are not shared between clients.
    Named,
    Listen,
    TemporaryTable,
    AdvisoryLock,
    HoldableCursor,
    Load,
    Seed,
    Sequence,
    /// A temporary replication slot, a backup, a replication origin.
    Backend,
    Pid,
    /// It calls what nobody here knows.
    Unknown,
    Unread,
}

/// What becomes of it in transaction mode. The worst is the last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fate {
    Nothing,
    /// It follows its client.
    Tracked,
    /// It may be anything: the server is asked when the transaction is over.
    Asked,
    /// The client keeps its server.
    Pinned,
    Breaks,
}

/// A row of [`KINDS`].
struct Row {
    kind: Kind,
    words: &'static str,
    fate: Fate,
    /// What pins, and what `session_state` refuses.
    tie: Option<Tie>,
    advice: &'static str,
}

const fn row(
    kind: Kind,
    words: &'static str,
    fate: Fate,
    tie: Option<Tie>,
    advice: &'static str,
) -> Row {
    Row { kind, words, fate, tie, advice }
}

use Fate::{Asked, Breaks, Nothing, Pinned, Tracked};

static KINDS: [Row; 18] = [
    row(Kind::Nothing, "nothing", Nothing, None, "It is as with a connection of its own."),
    row(
        Kind::Parameter,
        "parameter",
        Tracked,
        None,
        "Servers report it by themselves: it follows the client at next to no cost.",
    ),
    row(
        Kind::Setting,
        "setting",
        Tracked,
        Some(Tie::Settings),
        "It follows the client. SET LOCAL, set_config with true as its last argument, or ALTER ROLE … SET spare \
         the question that is asked of the server each time.",
    ),
    row(
        Kind::Role,
        "role",
        Tracked,
        Some(Tie::Settings),
        "It follows the client. SET LOCAL ROLE in each transaction spares the question that is asked of the \
         server each time.",
    ),
    row(
        Kind::Reset,
        "reset",
        Tracked,
        None,
        "It does to this client's session what it says, and to nobody else's. A driver's or pool's reset on giving \
         a connection back can be turned off: Howdah cleans servers where they need it.",
    ),
    row(
        Kind::Prepare,
        "prepared statement",
        Tracked,
        Some(Tie::PreparedStatement),
        "It follows the client, and pins it while settings are not as they were when it was prepared. Statements \
         prepared by the driver's protocol cost less.",
    ),
    row(
        Kind::Named,
        "protocol statement",
        Tracked,
        None,
        "max_prepared_statements is 0: another server does not know the statement. Set it to 200, or have the \
         driver prepare nothing.",
    ),
    row(
        Kind::Listen,
        "listen",
        Pinned,
        Some(Tie::Listen),
        "The client keeps its server until UNLISTEN. With listen_hub = 1 one server listens for all; or let one \
         connection listen for the application, by a database in session mode.",
    ),
    row(
        Kind::TemporaryTable,
        "temporary table",
        Pinned,
        Some(Tie::TemporaryTable),
        "The client keeps its server until the last one is dropped. CREATE TEMPORARY TABLE … ON COMMIT DROP in a \
         transaction, or a WITH query, needs no session.",
    ),
    row(
        Kind::AdvisoryLock,
        "advisory lock",
        Pinned,
        Some(Tie::AdvisoryLock),
        "The client keeps its server until the last one is released. pg_advisory_xact_lock ends with its \
         transaction and needs no session.",
    ),
    row(
        Kind::HoldableCursor,
        "holdable cursor",
        Pinned,
        Some(Tie::HoldableCursor),
        "The client keeps its server until it is closed. A cursor without WITH HOLD, read within a transaction, \
         needs no session.",
    ),
    row(
        Kind::Load,
        "load",
        Pinned,
        Some(Tie::Load),
        "The client keeps its server until it leaves, and the server is closed then. session_preload_libraries \
         loads it for every session.",
    ),
    row(
        Kind::Seed,
        "seed",
        Pinned,
        Some(Tie::Seed),
        "The client keeps its server until it leaves, and the server is closed then. setseed and random in one \
         statement or transaction need no session.",
    ),
    row(
        Kind::Sequence,
        "sequence",
        Pinned,
        Some(Tie::Sequence),
        "Where it is read in a later transaction than that of its nextval, clients that sequences gave something keep \
         their servers. INSERT … RETURNING, or currval in the transaction of its nextval, needs no session.",
    ),
    row(
        Kind::Backend,
        "backend",
        Pinned,
        Some(Tie::Load),
        "It belongs to one server process: the client keeps its server until it leaves. Give it a database in \
         session mode.",
    ),
    row(
        Kind::Pid,
        "backend pid",
        Breaks,
        None,
        "It is the pid of the server that is at work in this transaction, and may be another in the next. Use it \
         within one transaction only, or the pid that the client was given at login.",
    ),
    row(
        Kind::Unknown,
        "unknown function",
        Asked,
        Some(Tie::Unknown),
        "What it does to the session stands in no text: the server is asked after each transaction with it, and \
         what it left is tracked or pins. Run it in transaction mode with session_report = 1 to see which.",
    ),
    row(
        Kind::Unread,
        "unread",
        Asked,
        Some(Tie::Unknown),
        "It could not be read (a syntax error, more than 16 kB, nested too deep, or an encoding in which ASCII \
         is not ASCII): the server is asked after each transaction with it.",
    ),
];

impl Kind {
    fn row(self) -> &'static Row {
        &KINDS[self as usize]
    }

    #[must_use]
    pub fn words(self) -> &'static str {
        self.row().words
    }

    /// What state of this kind is called where it pins.
    #[must_use]
    pub fn of(tie: Tie) -> Self {
        let of = |row: &&Row| row.tie == Some(tie);
        KINDS.iter().find(of).map_or(Self::Unknown, |row| row.kind)
    }

    /// What becomes of it in transaction mode under these rules.
    #[must_use]
    pub fn fate(self, rules: &Rules, hub: bool) -> Fate {
        let row = self.row();
        match self {
            _ if self.is_refused(rules) => Breaks,
            Self::Nothing | Self::Parameter | Self::Pid => row.fate,
            Self::Named if rules.prepared_max == 0 => Breaks,
            Self::Reset if !rules.follows => Nothing,
            Self::Named => row.fate,
            _ if !rules.follows => Breaks,
            Self::Listen if hub => Tracked,
            _ => row.fate,
        }
    }

    /// What to do about it, in a sentence or two.
    #[must_use]
    pub fn advice(self, rules: &Rules, hub: bool) -> String {
        let row = self.row();
        match row.tie {
            Some(tie) if self.is_refused(rules) => crate::refusal::hint(tie),
            _ if self.fate(rules, hub) == Breaks && row.fate != Breaks && self != Self::Named => {
                "With track_session_state = 0 it stays on the server: the client misses it, and another finds it. \
                 Set that to 1."
                    .to_owned()
            }
            _ if self == Self::Listen && hub => {
                "One server of the pool listens for all of its clients (listen_hub = 1).".to_owned()
            }
            _ => row.advice.to_owned(),
        }
    }

    /// No text shows what is of the last two kinds: it is found out later, and what it is then refused.
    fn is_refused(self, rules: &Rules) -> bool {
        rules.follows
            && self < Self::Unknown
            && self.row().tie.is_some_and(|tie| rules.refused.has(tie))
    }
}

impl Fate {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Nothing => "nothing",
            Tracked => "tracked",
            Asked => "asked",
            Pinned => "pinned",
            Breaks => "breaks",
        }
    }
}

/// What was seen in texts, for as long as there is room.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    known: BTreeMap<Box<[u8]>, Arc<[Sight]>>,
    bytes: usize,
    shape: Vec<u8>,
}

/// Bytes of text that are remembered. What is beyond that begins anew.
const KNOWN_BYTES: usize = 1 << 20;
/// What an entry takes besides its text.
const ENTRY_BYTES: usize = 512;
/// So much of a statement is shown, in bytes.
const STATEMENT_MAX: usize = 500;

impl Sights {
    /// What is to be seen in `text`, or in one that differs from it by its literals only.
    pub(crate) fn of(&mut self, text: &[u8]) -> Arc<[Sight]> {
        if text.len() > READ_MAX {
            return unread("(a text of more than 16 kB)");
        }
        let mut shape = std::mem::take(&mut self.shape);
        let key = if shape::of(text, &mut shape) { &shape[..] } else { text };
        let sights = match self.known.get(key) {
            Some(known) => Arc::clone(known),
            None => self.learn(key, text),
        };
        self.shape = shape;
        sights
    }

    fn learn(&mut self, key: &[u8], text: &[u8]) -> Arc<[Sight]> {
        let sights: Arc<[Sight]> = sights(text);
        if self.bytes + key.len() + ENTRY_BYTES > KNOWN_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += key.len() + ENTRY_BYTES;
        self.known.insert(key.into(), Arc::clone(&sights));
        sights
    }
}

/// What there is to say of a text that cannot be read, and how it is shown.
pub(crate) fn unread(statement: &str) -> Arc<[Sight]> {
    [sight(Kind::Unread, None, statement)].into()
}

/// The same of a statement of this kind, by what is known of its text.
#[must_use]
pub fn of_kind(kind: Kind, text: &[u8]) -> Sight {
    let text = String::from_utf8_lossy(text);
    match Digest::of(&text) {
        Some(digest) => sight(kind, Some(digest.number), &digest.text),
        None => sight(kind, None, &without_literals(text.as_bytes())),
    }
}

fn sights(text: &[u8]) -> Arc<[Sight]> {
    let reading = sql::Reading::of(text, true);
    if reading.unread.is_some() {
        return unread(&without_literals(text));
    }
    let mut sights = Vec::new();
    for statement in &reading.statements {
        let kinds = kinds(statement);
        if kinds.is_empty() {
            continue;
        }
        let part = text.get(statement.range.clone()).unwrap_or_default();
        let Sight { number, statement, .. } = of_kind(Kind::Nothing, part);
        let seen = |kind| Sight { kind, number, statement: Arc::clone(&statement) };
        sights.extend(kinds.into_iter().map(seen));
    }
    sights.into()
}

/// Each once.
fn kinds(statement: &sql::Statement) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = statement.acts.iter().filter_map(of_act).collect();
    let mut shows = Ties::default();
    show(statement, &mut shows);
    for tie in shows.iter() {
        match tie {
            // Said more exactly by the acts.
            Tie::Settings | Tie::PreparedStatement => {}
            Tie::Load if statement.makes.contains(States::BACKEND) => kinds.push(Kind::Backend),
            tie => kinds.push(Kind::of(tie)),
        }
    }
    if statement.touch >= Touch::Calls && !statement.makes.contains(States::LIBRARIES) {
        kinds.push(Kind::Unknown);
    }
    // What it prepares is run, some day.
    for act in &statement.acts {
        if let Act::Prepare { inner, .. } = act {
            kinds.extend(self::kinds(inner));
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn of_act(act: &Act) -> Option<Kind> {
    Some(match act {
        Act::Set(setting) if setting.local => return None,
        Act::Set(setting) if matches!(setting.value, sql::Value::Default) => Kind::Reset,
        Act::Set(setting) => match setting.name.as_str() {
            "role" | "session_authorization" => Kind::Role,
            _ if is_reported(act) => Kind::Parameter,
            _ => Kind::Setting,
        },
        Act::SetCharacteristics(_) | Act::Function("set_config") => Kind::Setting,
        Act::Reset(_) | Act::ResetAll | Act::DeallocateAll | Act::UnlistenAll | Act::CloseAll => {
            Kind::Reset
        }
        Act::Discard(what) if *what != Discarded::Plans => Kind::Reset,
        Act::Prepare { .. } => Kind::Prepare,
        Act::Function("pg_backend_pid") => Kind::Pid,
        _ => return None,
    })
}

fn sight(kind: Kind, number: Option<u64>, statement: &str) -> Sight {
    let number = number.unwrap_or_else(|| {
        // Of its text: whoever makes two alike is reported in one row.
        let mut hasher = DefaultHasher::new();
        hasher.write(statement.as_bytes());
        hasher.finish()
    });
    let statement = match statement.char_indices().find(|(at, _)| *at >= STATEMENT_MAX) {
        Some((end, _)) => format!("{}…", statement.get(..end).unwrap_or_default()).into(),
        None => statement.into(),
    };
    Sight { kind, number, statement }
}

/// A text as people may see it, who are not to see what stands in its strings.
fn without_literals(text: &[u8]) -> String {
    let mut shape = Vec::new();
    if !shape::of(text, &mut shape) {
        let word = text.trim_ascii_start().split(|byte| !byte.is_ascii_alphabetic()).next();
        shape = [word.unwrap_or_default(), b" \xe2\x80\xa6"].concat();
    }
    String::from_utf8_lossy(&shape).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<Kind> {
        Sights::default().of(text.as_bytes()).iter().map(|sight| sight.kind).collect()
    }

    #[test]
    fn each_kind_stands_in_its_row() {
        for (at, row) in KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, at, "{}", row.words);
            assert!(row.advice.ends_with('.'), "{}", row.words);
        }
    }

    #[test]
    fn what_concerns_the_session_is_seen() {
        for (text, kind) in [
            ("SET work_mem = '1MB'", Kind::Setting),
            ("SELECT set_config('a.b', 'c', false)", Kind::Setting),
            ("SET TIME ZONE 'UTC'", Kind::Parameter),
            ("SET ROLE bob", Kind::Role),
            ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", Kind::Setting),
            ("DISCARD ALL", Kind::Reset),
            ("SET work_mem TO DEFAULT", Kind::Reset),
            ("UNLISTEN *", Kind::Reset),
            ("PREPARE p AS SELECT 1", Kind::Prepare),
            ("LISTEN x", Kind::Listen),
            ("CREATE TEMP TABLE t (i int)", Kind::TemporaryTable),
            ("SELECT 1 AS i INTO TEMP t", Kind::TemporaryTable),
            ("SELECT pg_try_advisory_lock($1)", Kind::AdvisoryLock),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Kind::HoldableCursor),
            ("LOAD 'auto_explain'", Kind::Load),
            ("SELECT setseed(0.5)", Kind::Seed),
            ("SELECT currval('s')", Kind::Sequence),
            ("SELECT pg_replication_origin_session_setup('x')", Kind::Backend),
            ("SELECT pg_backend_pid()", Kind::Pid),
            ("SELECT my_function(1)", Kind::Unknown),
            ("CALL p()", Kind::Unknown),
            ("DO $$ BEGIN END $$", Kind::Unknown),
            ("no such thing", Kind::Unread),
        ] {
            assert_eq!(seen(text), [kind], "{text}");
        }
        assert_eq!(
            seen("SELECT 1; LISTEN x; SET ROLE bob"),
            [Kind::Listen, Kind::Role],
            "in the order of the text"
        );
        let both = [Kind::Prepare, Kind::AdvisoryLock];
        assert_eq!(seen("PREPARE p AS SELECT pg_advisory_lock($1)"), both);
    }

    #[test]
    fn what_does_not_is_not() {
        for text in [
            "",
            "SELECT 1",
            "INSERT INTO t VALUES (1) RETURNING i",
            "BEGIN",
            "COMMIT",
            "SET LOCAL work_mem = '1MB'",
            "SET TRANSACTION READ ONLY",
            "SELECT pg_advisory_xact_lock(1)",
            "CREATE TEMP TABLE t (i int) ON COMMIT DROP",
            "DECLARE c CURSOR FOR SELECT 1",
            "SELECT nextval('s')",
            "NOTIFY x, 'y'",
            "SELECT random()",
            "DISCARD PLANS",
        ] {
            assert_eq!(seen(text), [], "{text}");
        }
    }

    #[test]
    fn literals_neither_multiply_nor_show() {
        let mut sights = Sights::default();
        let one = sights.of(b"SET app.tenant = '17'");
        assert!(Arc::ptr_eq(&one, &sights.of(b"SET app.tenant = '4711'")));
        assert_eq!(&*one[0].statement, "SET app.tenant = ?");
        for text in ["SELEC 'hush'", "SELEC E'hush'", "SELEC 'hush"] {
            let sights = sights.of(text.as_bytes());
            assert!(!sights[0].statement.contains("hush"), "{}", sights[0].statement);
        }
        for index in 0..10_000 {
            sights.of(format!("SET a.b{index} = 1").as_bytes());
        }
        assert!(sights.bytes <= KNOWN_BYTES && sights.known.len() < 4_000);
    }

    /// What becomes of it depends on what is allowed and followed.
    #[test]
    fn the_rules_decide() {
        let rules = Rules::default();
        assert_eq!(Kind::Listen.fate(&rules, false), Pinned);
        assert_eq!(Kind::Listen.fate(&rules, true), Tracked);
        let mut refused = Ties::default();
        refused.add(Tie::AdvisoryLock);
        let strict = Rules { refused, ..rules };
        assert_eq!(Kind::AdvisoryLock.fate(&strict, false), Breaks);
        assert!(Kind::AdvisoryLock.advice(&strict, false).contains("advisory_lock:error"));
        assert_eq!(Kind::Setting.fate(&strict, false), Tracked);
        let loose = Rules { follows: false, ..rules };
        assert_eq!(Kind::Setting.fate(&loose, false), Breaks);
        assert!(Kind::Setting.advice(&loose, false).contains("track_session_state"));
        assert_eq!(Kind::Parameter.fate(&loose, false), Tracked);
        let bare = Rules { prepared_max: 0, ..rules };
        assert_eq!(Kind::Named.fate(&bare, false), Breaks);
        assert!(Kind::Named.advice(&bare, false).contains("max_prepared_statements"));
    }
}
