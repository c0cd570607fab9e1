//! One session of a model PostgreSQL, sans-IO: whole messages in, messages out.
//!
//! The model servers are made of it, and so is what each application expects: a session of its own,
//! which it has to itself. What the two answer must be the same.

use std::collections::BTreeMap;
use std::rc::Rc;

use wire::tag::client as tag;
use wire::write::server as say;
use wire::{Report, Status, write};

use crate::news::Desk;
use crate::script::{self, Ident, Op, Text};

/// Parameters that clients may set, and servers report.
pub(crate) const SETTABLE: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "standard_conforming_strings",
    "application_name",
    "IntervalStyle",
];
/// What they are where nobody has set them.
const DEFAULTS: [&[u8]; 6] = [b"UTF8", b"ISO, MDY", b"UTC", b"on", b"", b"postgres"];

/// SQLSTATE of a query that was cancelled.
pub(crate) const CANCELED: &[u8] = b"57014";

pub(crate) type Value = Rc<[u8]>;

/// A session.
#[derive(Debug)]
pub(crate) struct Engine {
    state: State,
    /// How often it was asked whether the catalogs have changed; None: it knows no such question.
    looks: Option<u32>,
    /// What a rollback goes back to; there is one while a transaction is open.
    saved: Option<State>,
    /// What a rollback to the savepoint goes back to.
    savepoint: Option<Savepoint>,
    block: Block,
    /// Extended messages came after the last Sync.
    in_batch: bool,
    /// One of them failed: all is discarded until a Sync.
    skipping: bool,
    copy: Option<Copying>,
    running: Option<Running>,
    statements: BTreeMap<Box<[u8]>, Prepared>,
    portals: BTreeMap<Box<[u8]>, Portal>,
    /// How many portals there have been.
    bound: u64,
    reported: [Value; 6],
    /// As servers before PostgreSQL 14: a new value is told at once, not before the next `Z`.
    reports_at_once: bool,
    described: Option<Value>,
    /// Who logged in.
    user: Box<str>,
    /// What it listens to, and notifies. What an application expects has none: what it has to hear is known
    /// otherwise.
    desk: Option<Desk>,
    pub(crate) out: Vec<u8>,
    /// Something in `out` is sent at once: an error or a notice.
    pub(crate) is_urgent: bool,
}

/// What a transaction can change, and a rollback undo.
#[derive(Clone, Debug, Eq, PartialEq)]
struct State {
    vars: [Value; 6],
    /// Settings that are not reported, where they are not what they are in a new session.
    settings: BTreeMap<&'static str, Value>,
    /// There is a temporary table.
    table: bool,
}

/// All settings that are not reported.
const UNREPORTED: [&str; 2] = ["junk", "statement_timeout"];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Block {
    None,
    Open,
    Failed,
}

/// A COPY from the client.
#[derive(Debug)]
struct Copying {
    extended: bool,
    /// The CopyData it fails at; 0: none.
    fails_at: u32,
    messages: u32,
    bytes: u64,
    sum: u64,
}

/// A query that is not done.
#[derive(Debug)]
struct Running {
    whole: Rc<[u8]>,
    /// What is left of it begins here.
    at: usize,
    who: Option<Ident>,
    extended: bool,
    /// It is the only one in its message.
    alone: bool,
    own: bool,
}

#[derive(Clone, Debug)]
struct Prepared {
    query: Rc<[u8]>,
    types: Rc<[u32]>,
}

/// What outlives the failure of what comes behind it.
#[derive(Clone, Debug)]
struct Savepoint {
    state: State,
    /// Portals up to this number.
    bound: u64,
}

#[derive(Debug)]
struct Portal {
    number: u64,
    query: Rc<[u8]>,
    who: Option<Ident>,
    rows_sent: u32,
    is_done: bool,
}

/// How far a message got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stop {
    /// It is done.
    Ready,
    /// It takes so long; then [`Engine::wake`], or [`Engine::cancel`].
    Slow { ms: u32 },
    /// The server is no more.
    Dead,
}

/// An error, or the end.
enum Failure {
    Error { code: &'static str, message: String },
    Fatal,
}

type Done = Result<Stop, Failure>;

fn error<T>(code: &'static str, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Error { code, message: message.into() })
}

impl Engine {
    /// A session in which these values were asked for at startup.
    pub(crate) fn new(user: &str, asked: &[(usize, Value)], reports_at_once: bool) -> Self {
        let mut state = State::default();
        for (at, value) in asked {
            state.vars[*at] = value.clone();
        }
        Self {
            reported: state.vars.clone(),
            state,
            looks: None,
            saved: None,
            savepoint: None,
            block: Block::None,
            in_batch: false,
            skipping: false,
            copy: None,
            running: None,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            bound: 0,
            reports_at_once,
            described: None,
            user: user.into(),
            desk: None,
            out: Vec::new(),
            is_urgent: false,
        }
    }

    /// One that may be asked how much was changed elsewhere.
    pub(crate) fn with_counts(self, counts: bool) -> Self {
        Self { looks: counts.then_some(0), ..self }
    }

    /// The same, of those that notify each other.
    pub(crate) fn with_desk(self, desk: Desk) -> Self {
        Self { desk: Some(desk), ..self }
    }

    /// Whether something was notified that it has not said, and may say now.
    pub(crate) fn has_news(&self) -> bool {
        self.is_clean() && self.desk.as_ref().is_some_and(Desk::is_behind)
    }

    /// It says what was notified.
    pub(crate) fn tell_news(&mut self) {
        if let Some(desk) = &mut self.desk {
            desk.read(&mut self.out);
        }
    }

    /// What it tells at login.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        SETTABLE.into_iter().zip(self.state.vars.iter().map(|value| &**value))
    }

    pub(crate) fn status(&self) -> Status {
        match self.block {
            Block::None => Status::Idle,
            Block::Open => Status::Transaction,
            Block::Failed => Status::Failed,
        }
    }

    /// Nobody would notice if somebody else spoke now.
    pub(crate) fn is_clean(&self) -> bool {
        self.block == Block::None
            && !self.in_batch
            && !self.skipping
            && self.copy.is_none()
            && self.running.is_none()
    }

    /// There is a time limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.state.settings.get("statement_timeout").is_some_and(|limit| **limit != *b"0")
    }

    /// There is something in it that goes nowhere else.
    pub(crate) fn is_tied(&self) -> bool {
        self.state.table || self.channels().next().is_some()
    }

    fn channels(&self) -> impl Iterator<Item = &[u8]> {
        self.desk.iter().flat_map(Desk::channels)
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    pub(crate) fn is_copying(&self) -> bool {
        self.copy.is_some()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether what runs is the pooler's own query.
    pub(crate) fn runs_own(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.own)
    }

    pub(crate) fn runs_for(&self) -> Option<Ident> {
        self.running.as_ref().and_then(|running| running.who)
    }

    /// One message. `Terminate` is not for us.
    pub(crate) fn message(&mut self, tag: u8, body: &[u8]) -> Stop {
        if let Some(copy) = &self.copy {
            let extended = copy.extended;
            let done = self.copied(tag, body);
            return self.conclude(done, extended);
        }
        match tag {
            tag::SYNC => {
                self.sync();
                Stop::Ready
            }
            _ if self.skipping => Stop::Ready,
            tag::QUERY => self.query(body),
            tag::FUNCTION_CALL => {
                let done = self.function(body);
                if done.is_ok() {
                    self.ready();
                }
                self.conclude(done, false)
            }
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE | tag::EXECUTE => {
                self.begin();
                self.in_batch = true;
                let done = match tag {
                    tag::PARSE => self.parse(body),
                    tag::BIND => self.bind(body),
                    tag::DESCRIBE => self.describe(body),
                    tag::CLOSE => self.close(body),
                    _ => self.execute(body),
                };
                self.conclude(done, true)
            }
            // A COPY failed before the client heard of it.
            tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL | tag::FLUSH => Stop::Ready,
            other => panic!("a server was sent a message {:?}", char::from(other)),
        }
    }

    /// What was slow is over.
    pub(crate) fn wake(&mut self) -> Stop {
        let Some(running) = &self.running else { return Stop::Ready };
        let (extended, who) = (running.extended, running.who);
        self.row(who, b"slow", 0);
        say::command_complete(&mut self.out, b"SELECT 1");
        if extended {
            self.running = None;
            return Stop::Ready;
        }
        self.go_on()
    }

    /// What runs is cancelled.
    pub(crate) fn cancel(&mut self) -> Stop {
        let running = self.running.take().is_some_and(|running| running.extended);
        let copy = self.copy.take().map(|copy| copy.extended);
        self.canceled(copy.unwrap_or(running))
    }

    /// A message is cancelled before it does anything.
    pub(crate) fn cancel_message(&mut self, tag: u8) -> Stop {
        if tag == tag::QUERY {
            self.drop_unnamed();
        }
        self.canceled(!matches!(tag, tag::QUERY | tag::FUNCTION_CALL))
    }

    fn canceled(&mut self, extended: bool) -> Stop {
        self.begin();
        self.conclude(error("57014", "canceling statement due to user request"), extended)
    }

    fn drop_unnamed(&mut self) {
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
    }

    /// A Describe failed that should not have.
    pub(crate) fn refuse_describe(&mut self) {
        let done = self.refuse_if_failed().map(|()| Stop::Ready);
        let _ = self.conclude(done, true);
    }

    // ---- Simple queries.

    fn query(&mut self, body: &[u8]) -> Stop {
        self.drop_unnamed();
        let Some(text) = body.strip_suffix(b"\0") else { panic!("a query without its end") };
        let (who, ops, own) = match script::text(text) {
            Text::Empty => {
                say::empty_query_response(&mut self.out);
                self.end_implicit();
                self.ready();
                return Stop::Ready;
            }
            Text::Script { who, ops } => (who, ops, false),
            Text::Own(ops) => (None, ops, true),
            Text::Garbled => panic!("a garbled query: {:?}", String::from_utf8_lossy(text)),
        };
        let ops = ops.strip_suffix(b";").unwrap_or(ops);
        let mut rest = ops;
        while !rest.is_empty() {
            let (one, more) = script::split(rest);
            if script::op(one) == Op::Nonsense {
                self.begin();
                return self.conclude(error("42601", "syntax error"), false);
            }
            rest = more;
        }
        let alone = script::split(ops).1.is_empty();
        let whole = Rc::from(ops);
        self.running = Some(Running { whole, at: 0, who, extended: false, alone, own });
        self.go_on()
    }

    /// Run a simple query as far as it goes.
    fn go_on(&mut self) -> Stop {
        while let Some(running) = &mut self.running {
            let whole = running.whole.clone();
            let rest = &whole[running.at..];
            if rest.is_empty() {
                self.running = None;
                self.end_implicit();
                self.ready();
                break;
            }
            let (one, more) = script::split(rest);
            running.at = whole.len() - more.len();
            let (who, alone) = (running.who, running.alone);
            self.begin();
            let done = self.run(&script::op(one), who, alone, None);
            match done {
                Ok(Stop::Ready) if self.copy.is_none() => {}
                done => return self.conclude(done, false),
            }
        }
        Stop::Ready
    }

    fn function(&mut self, body: &[u8]) -> Done {
        self.begin();
        self.refuse_if_failed()?;
        write::message(&mut self.out, wire::tag::server::FUNCTION_RESULT, |out| {
            out.extend_from_slice(&(body.len() as u32).to_be_bytes());
            out.extend_from_slice(body);
        });
        self.end_implicit();
        Ok(Stop::Ready)
    }

    // ---- Extended queries.

    fn parse(&mut self, body: &[u8]) -> Done {
        let parse = wire::Parse::read(body).expect("clients send whole messages");
        if parse.name.is_empty() {
            self.statements.remove(&b""[..]);
        }
        let op = first_op(parse.query);
        if op == Some(Op::Nonsense) {
            return error("42601", format!("syntax error in {}", lossy(parse.query)));
        }
        if self.block == Block::Failed && op.is_some_and(|op| !op.ends_transaction()) {
            self.refuse_if_failed()?;
        }
        if !parse.name.is_empty() && self.statements.contains_key(parse.name) {
            let name = lossy(parse.name);
            return error("42P05", format!("prepared statement \"{name}\" already exists"));
        }
        let mut types: Vec<u32> = parse.types.collect();
        if types.is_empty() {
            types.push(25);
        }
        let prepared = Prepared { query: parse.query.into(), types: types.into() };
        self.statements.insert(parse.name.into(), prepared);
        say::parse_complete(&mut self.out);
        Ok(Stop::Ready)
    }

    fn bind(&mut self, body: &[u8]) -> Done {
        let names = wire::BindNames::find(body).expect("clients send whole messages");
        let query = self.statement(names.statement)?.query;
        if first_op(&query).is_some_and(|op| !op.ends_transaction()) {
            self.refuse_if_failed()?;
        }
        if !names.portal.is_empty() && self.portals.contains_key(names.portal) {
            let name = lossy(names.portal);
            return error("42P03", format!("cursor \"{name}\" already exists"));
        }
        let who = bound(body);
        self.bound += 1;
        let portal = Portal { number: self.bound, query, who, rows_sent: 0, is_done: false };
        self.portals.insert(names.portal.into(), portal);
        say::bind_complete(&mut self.out);
        Ok(Stop::Ready)
    }

    fn describe(&mut self, body: &[u8]) -> Done {
        let named = wire::Named::read(tag::DESCRIBE, body).expect("clients send whole messages");
        let query = match named.kind {
            wire::Namespace::Statement => {
                let prepared = self.statement(named.name)?;
                self.refuse_rows_if_failed(&prepared.query)?;
                say::parameter_description(&mut self.out, &prepared.types);
                prepared.query
            }
            wire::Namespace::Portal => {
                let query = self.portal(named.name)?.query.clone();
                self.refuse_rows_if_failed(&query)?;
                query
            }
        };
        match first_op(&query) {
            Some(op) if op.returns_rows() => self.columns(&query),
            _ => say::no_data(&mut self.out),
        }
        Ok(Stop::Ready)
    }

    fn close(&mut self, body: &[u8]) -> Done {
        let named = wire::Named::read(tag::CLOSE, body).expect("clients send whole messages");
        match named.kind {
            wire::Namespace::Statement => drop(self.statements.remove(named.name)),
            wire::Namespace::Portal => drop(self.portals.remove(named.name)),
        }
        say::close_complete(&mut self.out);
        Ok(Stop::Ready)
    }

    fn execute(&mut self, body: &[u8]) -> Done {
        let end = body.iter().position(|byte| *byte == 0).expect("a name has an end");
        let (name, rest) = (&body[..end], &body[end + 1..]);
        let max = u32::from_be_bytes(rest.try_into().expect("a number of rows"));
        let portal = self.portal(name)?;
        let (query, who) = (portal.query.clone(), portal.who);
        let Some(op) = first_op(&query) else {
            say::empty_query_response(&mut self.out);
            return Ok(Stop::Ready);
        };
        if !op.ends_transaction() {
            self.refuse_if_failed()?;
        }
        let portal = self.portal(name)?;
        if portal.is_done && !matches!(op, Op::Rows { .. }) {
            return error("55000", format!("portal \"{}\" cannot be run", lossy(name)));
        }
        portal.is_done = true;
        if let Op::Rows { count, pad } = op {
            return self.some_rows(name, count, pad, max);
        }
        let ops = script_ops(&query);
        let whole = Rc::from(ops);
        self.running =
            Some(Running { at: ops.len(), whole, who, extended: true, alone: true, own: false });
        let done = self.run(&op, who, true, Some(()));
        if !matches!(done, Ok(Stop::Slow { .. })) {
            self.running = None;
        }
        done
    }

    /// Rows of a portal, up to `max` of them.
    fn some_rows(&mut self, name: &[u8], count: u32, pad: usize, max: u32) -> Done {
        let portal = self.portal(name)?;
        let (from, who) = (portal.rows_sent, portal.who);
        let left = count - from;
        let now = if max == 0 { left } else { left.min(max) };
        portal.rows_sent += now;
        for at in from..from + now {
            self.row(who, format!("row {at}").as_bytes(), pad);
        }
        // PostgreSQL does not look whether there is one more.
        if max != 0 && now == max {
            write::message(&mut self.out, wire::tag::server::PORTAL_SUSPENDED, |_| {});
        } else {
            say::command_complete(&mut self.out, format!("SELECT {now}").as_bytes());
        }
        Ok(Stop::Ready)
    }

    fn sync(&mut self) {
        (self.in_batch, self.skipping) = (false, false);
        self.end_implicit();
        self.ready();
    }

    fn statement(&self, name: &[u8]) -> Result<Prepared, Failure> {
        match self.statements.get(name) {
            Some(prepared) => Ok(prepared.clone()),
            None if name.is_empty() => error("26000", "unnamed prepared statement does not exist"),
            None => {
                let name = lossy(name);
                error("26000", format!("prepared statement \"{name}\" does not exist"))
            }
        }
    }

    fn portal(&mut self, name: &[u8]) -> Result<&mut Portal, Failure> {
        match self.portals.get_mut(name) {
            Some(portal) => Ok(portal),
            None => error("34000", format!("portal \"{}\" does not exist", lossy(name))),
        }
    }

    // ---- Statements.

    fn run(&mut self, op: &Op<'_>, who: Option<Ident>, alone: bool, extended: Option<()>) -> Done {
        if !op.ends_transaction() {
            self.refuse_if_failed()?;
        }
        let tag = match op {
            Op::Rows { count, pad } => {
                self.columns(b"rows");
                for at in 0..*count {
                    self.row(who, format!("row {at}").as_bytes(), *pad);
                }
                &format!("SELECT {count}")
            }
            Op::Slow { ms } => {
                if extended.is_none() {
                    self.columns(b"slow");
                }
                return Ok(Stop::Slow { ms: *ms });
            }
            Op::Begin => self.run_begin(),
            Op::Commit | Op::Rollback => self.run_end(*op == Op::Commit),
            Op::Savepoint | Op::RollbackTo | Op::Release => self.run_savepoint(op)?,
            Op::Fail => return error("22012", format!("division by zero for {}", name(who))),
            Op::Notice => {
                self.notice(b"00000", format!("a notice for {}", name(who)).as_bytes());
                "DO"
            }
            Op::Set { name, value } => self.run_set(name, value)?,
            Op::Junk(_) | Op::Table(_) | Op::Reset { .. } => self.run_unreported(op),
            Op::Probe => &format!("SELECT {}", self.run_probe()),
            Op::Limit => self.run_limit(),
            Op::Look => self.run_look()?,
            Op::List => self.run_list()?,
            Op::CopyIn { fails_at } => {
                self.run_copy_in(*fails_at, extended.is_some());
                return Ok(Stop::Ready);
            }
            Op::CopyOut { chunks, pad, fails } => {
                self.run_copy_out(who, *chunks, *pad);
                if *fails {
                    return error("22P04", format!("bad COPY for {}", name(who)));
                }
                write::message(&mut self.out, wire::tag::server::COPY_DONE, |_| {});
                &format!("COPY {chunks}")
            }
            Op::Listen(_) | Op::Unlisten(_) | Op::Notify { .. } | Op::ResetUser => op.word(),
            Op::DeallocateAll => {
                self.forget_statements();
                "DEALLOCATE ALL"
            }
            Op::ResetAll => self.run_reset_all(),
            Op::DiscardAll => {
                if self.block != Block::None || !alone {
                    return error("25001", "DISCARD ALL cannot run inside a transaction block");
                }
                self.forget_statements();
                self.portals.clear();
                self.state = State::default();
                self.changed();
                "DISCARD ALL"
            }
            Op::DiscardSequences => "DISCARD SEQUENCES",
            Op::Crash => return Err(Failure::Fatal),
            Op::Nonsense => return error("42601", "syntax error"),
        };
        if let Some(desk) = &mut self.desk {
            desk.run(op, who);
        }
        say::command_complete(&mut self.out, tag.as_bytes());
        Ok(Stop::Ready)
    }

    /// All that have a name.
    fn forget_statements(&mut self) {
        self.statements.retain(|name, _| name.is_empty());
    }

    fn run_begin(&mut self) -> &'static str {
        if self.block != Block::None {
            self.notice(b"25001", b"there is already a transaction in progress");
        }
        self.block = Block::Open;
        "BEGIN"
    }

    fn run_end(&mut self, commits: bool) -> &'static str {
        if self.block == Block::None {
            self.notice(b"25P01", b"there is no transaction in progress");
        }
        let commits = commits && self.block != Block::Failed;
        self.end(commits);
        if commits { "COMMIT" } else { "ROLLBACK" }
    }

    fn run_savepoint(&mut self, op: &Op<'_>) -> Result<&'static str, Failure> {
        if self.block == Block::None {
            return error("25P01", "savepoints can only be used in transaction blocks");
        }
        if *op == Op::Savepoint {
            self.savepoint = Some(Savepoint { state: self.state.clone(), bound: self.bound });
            return Ok("SAVEPOINT");
        }
        let Some(savepoint) = self.savepoint.take() else {
            return error("3B001", "savepoint does not exist");
        };
        if *op == Op::Release {
            return Ok("RELEASE");
        }
        self.block = Block::Open;
        self.keep_portals(savepoint.bound);
        self.savepoint = Some(savepoint.clone());
        if savepoint.state != self.state {
            self.state = savepoint.state;
            self.changed();
        }
        Ok("ROLLBACK")
    }

    /// Those of later numbers are gone.
    fn keep_portals(&mut self, bound: u64) {
        self.portals.retain(|_, portal| portal.number <= bound);
    }

    fn run_set(&mut self, name: &[u8], value: &[u8]) -> Result<&'static str, Failure> {
        if let Some(own) = UNREPORTED.into_iter().find(|own| own.as_bytes() == name) {
            self.state.settings.insert(own, value.into());
            self.described = None;
            return Ok("SET");
        }
        let same = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
        let Some(at) = SETTABLE.iter().position(same) else {
            return error("42704", format!("unrecognized parameter \"{}\"", lossy(name)));
        };
        if value == b"refused" {
            return error("22023", format!("invalid value for \"{}\"", SETTABLE[at]));
        }
        // As PostgreSQL spells it.
        let full = SETTABLE[at] == "DateStyle" && !value.contains(&b',');
        let value = if full { [value, b", MDY"].concat() } else { value.to_vec() };
        self.state.vars[at] = value.into();
        self.changed();
        Ok("SET")
    }

    /// What changes the session, and is not reported.
    fn run_unreported(&mut self, op: &Op<'_>) -> &'static str {
        self.described = None;
        let settings = &mut self.state.settings;
        match op {
            Op::Junk(junk) => {
                settings.insert("junk", junk.to_string().into_bytes().into());
                "SET"
            }
            Op::Reset { name } => {
                let known = UNREPORTED.iter().any(|known| known.as_bytes() == *name);
                assert!(known, "a RESET of {}", lossy(name));
                settings.retain(|known, _| known.as_bytes() != *name);
                "RESET"
            }
            _ => {
                self.state.table = *op == Op::Table(true);
                if self.state.table { "CREATE TABLE" } else { "DROP TABLE" }
            }
        }
    }

    fn run_reset_all(&mut self) -> &'static str {
        self.state = State { table: self.state.table, ..State::default() };
        self.changed();
        "RESET"
    }

    /// What the time limit is.
    fn run_limit(&mut self) -> &'static str {
        let limit = self.state.settings.get("statement_timeout");
        let limit = limit.map_or_else(|| b"0".to_vec(), |limit| limit.to_vec());
        self.fact("w", "", &limit);
        "SELECT 1"
    }

    /// How much was changed elsewhere: something, now and then.
    fn run_look(&mut self) -> Result<&'static str, Failure> {
        let Some(looks) = &mut self.looks else {
            return error("42883", "function pg_stat_get_tuples_inserted(oid) does not exist");
        };
        *looks += 1;
        let changes = (1 + *looks / 4).to_string();
        self.columns(b"name");
        let row = ["20", "", &changes].map(|text| Some(text.as_bytes()));
        say::data_row(&mut self.out, &row);
        Ok("SELECT 1")
    }

    /// Which functions have a name that PostgreSQL has, too: none.
    fn run_list(&mut self) -> Result<&'static str, Failure> {
        if self.looks.is_none() {
            return error("42883", "operator does not exist: pg_catalog.>=");
        }
        self.columns(b"name");
        Ok("SELECT 0")
    }

    /// What the session is set to, and what ties it. How many rows that took.
    fn run_probe(&mut self) -> usize {
        self.columns(b"name");
        let settings = self.state.settings.clone();
        for (name, value) in &settings {
            self.fact("s", name, value);
        }
        self.fact("r", "", b"none");
        let user = self.user.clone();
        self.fact("u", "", user.as_bytes());
        if self.state.table {
            self.fact("t", "", b"");
        }
        let channels: Vec<String> = self.channels().map(lossy).collect();
        for channel in &channels {
            self.fact("l", channel, b"");
        }
        settings.len() + 2 + usize::from(self.state.table) + channels.len()
    }

    fn fact(&mut self, kind: &str, name: &str, value: &[u8]) {
        let hex = |text: &[u8]| text.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (name, value) = (hex(name.as_bytes()), hex(value));
        let values = [kind, &name, &value].map(|text| Some(text.as_bytes()));
        say::data_row(&mut self.out, &values);
    }

    fn run_copy_in(&mut self, fails_at: u32, extended: bool) {
        write::message(&mut self.out, wire::tag::server::COPY_IN, |out| {
            out.extend_from_slice(&[0, 0, 1, 0, 0]);
        });
        self.copy = Some(Copying { extended, fails_at, messages: 0, bytes: 0, sum: 0 });
    }

    fn run_copy_out(&mut self, who: Option<Ident>, chunks: u32, pad: usize) {
        write::message(&mut self.out, wire::tag::server::COPY_OUT, |out| {
            out.extend_from_slice(&[0, 0, 1, 0, 0]);
        });
        for at in 0..chunks {
            write::message(&mut self.out, wire::tag::server::COPY_DATA, |out| {
                out.extend_from_slice(format!("{} {at} ", name(who)).as_bytes());
                out.resize(out.len() + pad, b'.');
            });
        }
    }

    /// A message in the midst of a COPY from the client.
    fn copied(&mut self, tag: u8, body: &[u8]) -> Done {
        let Some(copy) = &mut self.copy else { return Ok(Stop::Ready) };
        match tag {
            tag::COPY_DATA => {
                copy.messages += 1;
                copy.bytes += body.len() as u64;
                copy.sum =
                    body.iter().fold(copy.sum, |sum, byte| (sum * 31 + u64::from(*byte)) & 0xffff);
                if copy.messages == copy.fails_at {
                    self.copy = None;
                    self.running = None;
                    return error("22P04", "extra data after last expected column");
                }
                Ok(Stop::Ready)
            }
            // Read and ignored.
            tag::FLUSH | tag::SYNC => Ok(Stop::Ready),
            tag::COPY_DONE => {
                let tag = format!("COPY {}", copy.bytes << 16 | copy.sum);
                let extended = copy.extended;
                self.copy = None;
                say::command_complete(&mut self.out, tag.as_bytes());
                if extended {
                    return Ok(Stop::Ready);
                }
                Ok(self.go_on())
            }
            tag::COPY_FAIL => {
                self.copy = None;
                self.running = None;
                error("57014", format!("COPY from stdin failed: {}", lossy(body)))
            }
            other => panic!("a message {:?} in the midst of a COPY", char::from(other)),
        }
    }

    // ---- Transactions.

    /// A statement is about to run: there is something to roll back to.
    fn begin(&mut self) {
        if self.saved.is_none() {
            self.saved = Some(self.state.clone());
        }
    }

    /// A transaction that no BEGIN began ends by itself.
    fn end_implicit(&mut self) {
        if self.block == Block::None {
            self.end(true);
        }
    }

    fn end(&mut self, commits: bool) {
        self.block = Block::None;
        self.savepoint = None;
        self.portals.clear();
        match &mut self.desk {
            Some(desk) if commits => desk.committed(),
            Some(desk) => desk.rolled_back(),
            None => {}
        }
        if let Some(saved) = self.saved.take()
            && !commits
            && saved != self.state
        {
            self.state = saved;
            self.changed();
        }
    }

    fn refuse_if_failed(&self) -> Result<(), Failure> {
        if self.block != Block::Failed {
            return Ok(());
        }
        let text =
            "current transaction is aborted, commands ignored until end of transaction block";
        error("25P02", text)
    }

    fn refuse_rows_if_failed(&self, query: &[u8]) -> Result<(), Failure> {
        match first_op(query) {
            Some(op) if op.returns_rows() => self.refuse_if_failed(),
            _ => Ok(()),
        }
    }

    /// What comes of how a message ended.
    fn conclude(&mut self, done: Done, extended: bool) -> Stop {
        let failure = match done {
            Ok(stop) => return stop,
            Err(failure) => failure,
        };
        self.running = None;
        self.is_urgent = true;
        let Failure::Error { code, message } = failure else {
            let text = b"terminating connection due to administrator command";
            let report = Report {
                severity: b"FATAL",
                with_v: true,
                code: b"57P01",
                message: text,
                ..Report::default()
            };
            say::error_response(&mut self.out, &report);
            return Stop::Dead;
        };
        let report = Report {
            severity: b"ERROR",
            with_v: true,
            code: code.as_bytes(),
            message: message.as_bytes(),
            ..Report::default()
        };
        say::error_response(&mut self.out, &report);
        match self.block {
            Block::None => self.end(false),
            Block::Open => {
                // A failed block keeps nothing of what it did since its savepoint.
                let bound = self.savepoint.as_ref().map_or(0, |savepoint| savepoint.bound);
                self.keep_portals(bound);
                if let Some(desk) = &mut self.desk {
                    desk.rolled_back();
                }
                if let Some(saved) = self.saved.clone()
                    && saved != self.state
                {
                    self.state = saved;
                    self.changed();
                }
                self.block = Block::Failed;
            }
            Block::Failed => {}
        }
        if extended {
            self.skipping = true;
        } else {
            self.ready();
        }
        Stop::Ready
    }

    // ---- What is said.

    fn ready(&mut self) {
        self.in_batch = false;
        if self.block == Block::None {
            self.tell_news();
        }
        self.report();
        let status = self.status();
        say::ready_for_query(&mut self.out, status);
    }

    fn changed(&mut self) {
        self.described = None;
        if self.reports_at_once {
            self.report();
        }
    }

    fn report(&mut self) {
        for (at, name) in SETTABLE.iter().enumerate() {
            if self.state.vars[at] != self.reported[at] {
                self.reported[at] = self.state.vars[at].clone();
                say::parameter_status(&mut self.out, name.as_bytes(), &self.reported[at]);
            }
        }
    }

    fn notice(&mut self, code: &[u8], message: &[u8]) {
        self.is_urgent = true;
        let report =
            Report { severity: b"NOTICE", with_v: true, code, message, ..Report::default() };
        say::notice_response(&mut self.out, &report);
    }

    fn columns(&mut self, what: &[u8]) {
        let column = |name| say::Column { name, type_oid: 25, type_len: -1 };
        say::row_description(&mut self.out, &[column(b"who"), column(what), column(b"state")]);
    }

    /// Who asked, what it is, and the session it ran in.
    fn row(&mut self, who: Option<Ident>, what: &[u8], pad: usize) {
        let state = self.described.get_or_insert_with(|| self.state.describe()).clone();
        let who = name(who);
        let padding;
        let mut values = vec![Some(who.as_bytes()), Some(what), Some(&*state)];
        if pad > 0 {
            padding = vec![b'.'; pad];
            values[1] = Some(&padding);
        }
        say::data_row(&mut self.out, &values);
    }
}

impl State {
    fn describe(&self) -> Value {
        let mut text = self.vars.join(&b'|');
        for (name, value) in &self.settings {
            text.extend_from_slice(format!("|{name}=").as_bytes());
            text.extend_from_slice(value);
        }
        text.extend_from_slice(if self.table { b"|with a table" } else { b"" });
        text.into()
    }
}

impl Default for State {
    fn default() -> Self {
        Self { vars: DEFAULTS.map(Rc::from), settings: BTreeMap::new(), table: false }
    }
}

/// Who asks, as the one parameter of a Bind says.
pub(crate) fn bound(body: &[u8]) -> Option<Ident> {
    let names = wire::BindNames::find(body)?;
    // No formats, one parameter, its length, and itself; then no result formats.
    let rest = body[names.rest..].strip_prefix(&[0, 0, 0, 1])?;
    let len = u32::from_be_bytes(*rest.first_chunk::<4>()?) as usize;
    Ident::read(rest.get(4..4 + len)?)
}

fn script_ops(query: &[u8]) -> &[u8] {
    match script::text(query) {
        Text::Empty => b"",
        Text::Script { ops, .. } => ops,
        // The pooler may prepare something of its own.
        Text::Own(ops) => ops,
        Text::Garbled => panic!("a garbled statement: {:?}", lossy(query)),
    }
}

/// What a prepared statement does; `None`: nothing.
fn first_op(query: &[u8]) -> Option<Op<'_>> {
    let ops = script_ops(query);
    (!ops.is_empty()).then(|| script::op(ops))
}

fn name(who: Option<Ident>) -> String {
    who.map_or_else(String::new, |who| who.to_string())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
