//! A PostgreSQL backend as far as the protocol goes, in miniature and exact: skipping to the Sync,
//! a COPY that eats Syncs, statement names, implicit transactions, output that waits for a flush.

#![allow(dead_code, reason = "each test crate uses its own part")]

use std::collections::{BTreeMap, VecDeque};

use wire::write::server as say;
use wire::{Named, Namespace, Parse, Report, Scanner, Status, tag};

/// One backend. Feed it bytes; take what it has flushed.
#[derive(Debug, Default)]
pub(crate) struct Backend {
    scanner: Scanner,
    body: Vec<u8>,
    statements: BTreeMap<Vec<u8>, Prepared>,
    unnamed: Option<Prepared>,
    portals: BTreeMap<Vec<u8>, Portal>,
    pub(crate) status: Status,
    skipping: bool,
    copying: Option<Copying>,
    /// Settings, and what of them was last reported.
    vars: BTreeMap<String, String>,
    reported: BTreeMap<String, String>,
    /// Those that the relay's own transaction or savepoint is to bring back.
    saved: BTreeMap<String, String>,
    notifies: Vec<String>,
    /// Said, but not flushed.
    held: Vec<u8>,
    /// Flushed, and not yet taken.
    pub(crate) out: Vec<u8>,
    pub(crate) dead: bool,
    /// Every message it took, by tag.
    pub(crate) log: Vec<u8>,
    /// Texts that were parsed.
    pub(crate) parsed: usize,
}

#[derive(Clone, Debug)]
struct Prepared {
    text: String,
    types: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Portal {
    text: String,
    shown: usize,
}

#[derive(Debug)]
struct Copying {
    rows: usize,
    /// The commands after it in a simple query; `None` in an Execute.
    rest: Option<VecDeque<String>>,
}

/// How a command failed.
struct Failed {
    code: &'static str,
    message: String,
}

type Outcome = Result<(), Failed>;

fn failed(code: &'static str, message: impl Into<String>) -> Failed {
    Failed { code, message: message.into() }
}

fn aborted() -> Failed {
    failed(
        "25P02",
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ends_transaction(command: &str) -> bool {
    matches!(command, "commit" | "rollback" | "ROLLBACK") || command.starts_with("ROLLBACK TO")
}

fn has_rows(command: &str) -> bool {
    ["select", "show", "rows"].iter().any(|verb| command.starts_with(verb))
}

fn cut(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|b| *b == 0).expect("a terminator");
    (&bytes[..end], &bytes[end + 1..])
}

impl Backend {
    pub(crate) fn new(vars: &[(&str, &str)]) -> Self {
        let vars: BTreeMap<_, _> =
            vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { reported: vars.clone(), vars, ..Self::default() }
    }

    /// Everything it says to all of this, flushed or not.
    pub(crate) fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.feed(bytes);
        self.flush();
        std::mem::take(&mut self.out)
    }

    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(piece) = self.scanner.next(&mut bytes).expect("well formed") {
            self.body.extend_from_slice(piece.body);
            if piece.ends {
                let body = std::mem::take(&mut self.body);
                if !self.dead {
                    self.log.push(piece.tag);
                    self.message(piece.tag, &body);
                }
            }
        }
    }

    /// Say something at a moment of its own.
    pub(crate) fn interject(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.held);
        self.flush();
    }

    /// The process is ended from outside.
    pub(crate) fn terminate(&mut self) {
        self.error(
            "FATAL",
            &failed("57P01", "terminating connection due to administrator command"),
        );
        self.flush();
        self.dead = true;
    }

    pub(crate) fn flush(&mut self) {
        self.out.append(&mut self.held);
    }

    fn message(&mut self, tag: u8, body: &[u8]) {
        use tag::client::{
            CLOSE, COPY_DATA, COPY_DONE, COPY_FAIL, DESCRIBE, FLUSH, SYNC, TERMINATE,
        };
        if self.copying.is_some() {
            return self.while_copying(tag, body);
        }
        if self.skipping && tag != SYNC && tag != TERMINATE {
            return;
        }
        let outcome = match tag {
            tag::client::QUERY => return self.query(&text(cut(body).0)),
            tag::client::FUNCTION_CALL => return self.function(),
            SYNC => return self.sync(),
            FLUSH => return self.flush(),
            COPY_DATA | COPY_DONE | COPY_FAIL => return,
            TERMINATE => {
                self.dead = true;
                return;
            }
            tag::client::PARSE => self.parse(body),
            tag::client::BIND => self.bind(body),
            DESCRIBE => self.describe(Named::read(DESCRIBE, body).expect("well formed")),
            CLOSE => {
                self.close(Named::read(CLOSE, body).expect("well formed"));
                Ok(())
            }
            tag::client::EXECUTE => self.execute(body),
            other => panic!("no message {}", other.escape_ascii()),
        };
        if let Err(error) = outcome {
            self.fail(&error);
            self.skipping = true;
        }
    }

    fn fail(&mut self, error: &Failed) {
        self.error("ERROR", error);
        self.portals.clear();
        if self.status == Status::Transaction {
            self.status = Status::Failed;
        }
    }

    fn error(&mut self, severity: &str, error: &Failed) {
        let report = Report {
            severity: severity.as_bytes(),
            with_v: true,
            code: error.code.as_bytes(),
            message: error.message.as_bytes(),
            ..Report::default()
        };
        say::error_response(&mut self.held, &report);
        // PostgreSQL does not let an error wait.
        self.flush();
    }

    fn ready(&mut self) {
        for channel in std::mem::take(&mut self.notifies) {
            wire::write::message(&mut self.held, tag::server::NOTIFICATION, |out| {
                out.extend_from_slice(&[0, 0, 0, 9]);
                out.extend_from_slice(channel.as_bytes());
                out.extend_from_slice(&[0, 0]);
            });
        }
        for (name, value) in &self.vars {
            if self.reported.get(name) != Some(value) {
                say::parameter_status(&mut self.held, name.as_bytes(), value.as_bytes());
                self.reported.insert(name.clone(), value.clone());
            }
        }
        if self.status == Status::Idle {
            self.portals.clear();
        }
        say::ready_for_query(&mut self.held, self.status);
        self.flush();
    }

    fn sync(&mut self) {
        self.skipping = false;
        self.ready();
    }

    fn function(&mut self) {
        if self.status == Status::Failed {
            self.fail(&aborted());
        } else {
            wire::write::message(&mut self.held, tag::server::FUNCTION_RESULT, |out| {
                out.extend_from_slice(b"\0\0\0\x02ok");
            });
        }
        self.ready();
    }

    fn query(&mut self, text: &str) {
        self.unnamed = None;
        if text.contains("bad") {
            self.fail(&failed("42601", format!("syntax error in {text}")));
            return self.ready();
        }
        if text.trim().is_empty() {
            say::empty_query_response(&mut self.held);
            return self.ready();
        }
        let commands = text.split(';').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        self.run_all(commands);
    }

    fn run_all(&mut self, mut commands: VecDeque<String>) {
        while let Some(command) = commands.pop_front() {
            if has_rows(&command) && self.status != Status::Failed {
                self.row_description();
            }
            match self.run(&command, &mut 0, usize::MAX) {
                Ok(true) => {}
                Ok(false) => {
                    self.copying = Some(Copying { rows: 0, rest: Some(commands) });
                    return;
                }
                Err(error) => {
                    self.fail(&error);
                    break;
                }
            }
        }
        self.ready();
    }

    fn row_description(&mut self) {
        let column = say::Column { name: b"column", type_oid: 25, type_len: -1 };
        say::row_description(&mut self.held, &[column]);
    }

    fn row(&mut self, value: &str) {
        say::data_row(&mut self.held, &[Some(value.as_bytes())]);
    }

    fn complete(&mut self, tag: &str) {
        say::command_complete(&mut self.held, tag.as_bytes());
    }

    /// Run one command, from the row where it stopped. `Ok(false)`: it copies from the client now.
    fn run(&mut self, command: &str, shown: &mut usize, max: usize) -> Result<bool, Failed> {
        if self.status == Status::Failed && !ends_transaction(command) {
            return Err(aborted());
        }
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match verb {
            "begin" => {
                self.status = Status::Transaction;
                self.complete("BEGIN");
            }
            "commit" | "rollback" => {
                let failed = self.status == Status::Failed;
                self.status = Status::Idle;
                self.portals.clear();
                self.complete(if failed || verb == "rollback" { "ROLLBACK" } else { "COMMIT" });
            }
            "BEGIN" | "SAVEPOINT" | "ROLLBACK" | "SELECT" => self.run_ours(verb, rest),
            "fail" => return Err(failed("22012", format!("failed at {rest}"))),
            "copyin" => {
                wire::write::message(&mut self.held, tag::server::COPY_IN, |out| {
                    out.extend_from_slice(&[0, 0, 0]);
                });
                self.flush();
                return Ok(false);
            }
            "copyout" => self.copy_out(),
            "deallocate" | "discard" => self.deallocate(verb, rest)?,
            "prepare" => {
                let prepared = Prepared { text: format!("select {rest}"), types: vec![] };
                self.statements.insert(rest.into(), prepared);
                self.complete("PREPARE");
            }
            "set" | "SET" => self.set(rest),
            "notify" => {
                self.notifies.push(rest.to_owned());
                self.complete("NOTIFY");
            }
            "notice" => {
                let report =
                    Report { severity: b"NOTICE", message: rest.as_bytes(), ..Report::default() };
                say::notice_response(&mut self.held, &report);
                self.complete("DO");
            }
            "rows" => self.rows(rest, shown, max),
            "show" => {
                let value = self.vars.get(rest).cloned().unwrap_or_default();
                self.row(&value);
                self.complete("SHOW");
            }
            "select" => {
                self.row(rest);
                self.complete("SELECT 1");
            }
            "" => say::empty_query_response(&mut self.held),
            _ => self.complete("INSERT 0 1"),
        }
        Ok(true)
    }

    /// In capitals the relay's own words are, with which it puts settings on and takes them off.
    fn run_ours(&mut self, verb: &str, rest: &str) {
        match verb {
            "SELECT" => {
                let mut quoted = rest.split('\'').skip(1).step_by(2).map(str::to_owned);
                let (name, value) = (quoted.next(), quoted.next());
                self.vars.extend(name.zip(value));
                self.row("set");
                return self.complete("SELECT 1");
            }
            "ROLLBACK" => {
                self.vars = std::mem::take(&mut self.saved);
                let is_whole = rest.is_empty();
                self.status = if is_whole { Status::Idle } else { Status::Transaction };
            }
            _ => {
                self.saved = self.vars.clone();
                self.status = Status::Transaction;
            }
        }
        self.complete(verb);
    }

    fn deallocate(&mut self, verb: &str, name: &str) -> Outcome {
        if name == "all" {
            self.statements.clear();
            self.complete(if verb == "discard" { "DISCARD ALL" } else { "DEALLOCATE ALL" });
        } else if self.statements.remove(name.as_bytes()).is_none() {
            return Err(no_statement(name.as_bytes()));
        } else {
            self.complete("DEALLOCATE");
        }
        Ok(())
    }

    /// Three rows, as many at a time as are asked for.
    fn rows(&mut self, rest: &str, shown: &mut usize, max: usize) {
        let end = shown.saturating_add(max).min(3);
        while *shown < end {
            self.row(&format!("{rest}{shown}"));
            *shown += 1;
        }
        if *shown < 3 || max == 3 {
            wire::write::message(&mut self.held, tag::server::PORTAL_SUSPENDED, |_| {});
        } else {
            self.complete("SELECT 3");
        }
    }

    fn set(&mut self, rest: &str) {
        let (name, value) = rest.split_once('=').expect("a SET of the test's own");
        self.vars.insert(name.to_owned(), value.trim_matches('\'').to_owned());
        self.complete("SET");
    }

    fn copy_out(&mut self) {
        for (tag, body) in [
            (tag::server::COPY_OUT, &[0, 0, 0][..]),
            (tag::server::COPY_DATA, b"row\n"),
            (tag::server::COPY_DATA, b"another row\n"),
            (tag::server::COPY_DONE, b""),
        ] {
            wire::write::message(&mut self.held, tag, |out| out.extend_from_slice(body));
        }
        self.complete("COPY 2");
    }

    fn while_copying(&mut self, tag: u8, body: &[u8]) {
        let Some(copying) = &mut self.copying else { return };
        let error = match tag {
            tag::client::SYNC | tag::client::FLUSH => return,
            tag::client::COPY_DATA if body.contains(&b'!') => failed("22P04", "bad row"),
            tag::client::COPY_DATA => {
                copying.rows += 1;
                return;
            }
            tag::client::COPY_DONE => return self.copied(),
            tag::client::COPY_FAIL => failed("57014", "COPY from stdin failed"),
            tag => {
                let message = format!("unexpected message type {tag:#x} during COPY from stdin");
                self.error("ERROR", &failed("08P01", message));
                let lost = "terminating connection because protocol synchronization was lost";
                self.error("FATAL", &failed("08P01", lost));
                self.flush();
                self.dead = true;
                return;
            }
        };
        let simple = copying.rest.is_some();
        self.copying = None;
        self.fail(&error);
        if simple { self.ready() } else { self.skipping = true }
    }

    fn copied(&mut self) {
        let Some(copying) = self.copying.take() else { return };
        self.complete(&format!("COPY {}", copying.rows));
        if let Some(rest) = copying.rest {
            self.run_all(rest);
        }
    }

    fn parse(&mut self, body: &[u8]) -> Outcome {
        let parse = Parse::read(body).expect("well formed");
        self.parsed += 1;
        if parse.name.is_empty() {
            self.unnamed = None;
        }
        let command = text(parse.query);
        if command.contains("bad") || command.trim_end_matches(';').contains(';') {
            return Err(failed("42601", format!("syntax error in {command}")));
        }
        if self.status == Status::Failed && !ends_transaction(&command) && !command.is_empty() {
            return Err(aborted());
        }
        let prepared = Prepared { text: command, types: parse.types.collect() };
        if parse.name.is_empty() {
            self.unnamed = Some(prepared);
        } else if self.statements.contains_key(parse.name) {
            let name = text(parse.name);
            return Err(failed("42P05", format!("prepared statement \"{name}\" already exists")));
        } else {
            self.statements.insert(parse.name.to_vec(), prepared);
        }
        say::parse_complete(&mut self.held);
        Ok(())
    }

    fn prepared(&self, name: &[u8]) -> Result<Prepared, Failed> {
        let found = if name.is_empty() { self.unnamed.as_ref() } else { self.statements.get(name) };
        found.cloned().ok_or_else(|| no_statement(name))
    }

    fn bind(&mut self, body: &[u8]) -> Outcome {
        let (portal, rest) = cut(body);
        let (statement, rest) = cut(rest);
        let prepared = self.prepared(statement)?;
        let given = u16::from_be_bytes([rest[2], rest[3]]);
        // PostgreSQL counts the parameters first. Here a failed transaction comes first: the relay cannot read these texts,
        // and one that it has to prepare there anew fails so before its parameters are seen.
        let ends = ends_transaction(&prepared.text) && given == 0 && prepared.types.is_empty();
        if self.status == Status::Failed && !ends {
            return Err(aborted());
        }
        if usize::from(given) != prepared.types.len() {
            let name = text(statement);
            return Err(failed("08P01", format!("bind message for prepared statement \"{name}\"")));
        }
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err(failed("42P03", format!("cursor \"{}\" already exists", text(portal))));
        }
        self.portals.insert(portal.to_vec(), Portal { text: prepared.text, shown: 0 });
        say::bind_complete(&mut self.held);
        Ok(())
    }

    fn describe(&mut self, named: Named<'_>) -> Outcome {
        let command = match named.kind {
            Namespace::Statement => {
                let prepared = self.prepared(named.name)?;
                if self.status == Status::Failed {
                    return Err(aborted());
                }
                say::parameter_description(&mut self.held, &prepared.types);
                prepared.text
            }
            Namespace::Portal => self.portal(named.name)?.text.clone(),
        };
        if has_rows(&command) {
            self.row_description();
        } else {
            say::no_data(&mut self.held);
        }
        Ok(())
    }

    fn portal(&mut self, name: &[u8]) -> Result<&mut Portal, Failed> {
        let missing = || failed("34000", format!("portal \"{}\" does not exist", text(name)));
        self.portals.get_mut(name).ok_or_else(missing)
    }

    fn execute(&mut self, body: &[u8]) -> Outcome {
        let (name, rest) = cut(body);
        let max = u32::from_be_bytes(rest.try_into().expect("a row count")) as usize;
        let max = if max == 0 { usize::MAX } else { max };
        let Portal { text, mut shown } = self.portal(name)?.clone();
        if !self.run(&text, &mut shown, max)? {
            self.copying = Some(Copying { rows: 0, rest: None });
        }
        if let Some(portal) = self.portals.get_mut(name) {
            portal.shown = shown;
        }
        Ok(())
    }

    fn close(&mut self, named: Named<'_>) {
        match named.kind {
            Namespace::Statement if named.name.is_empty() => self.unnamed = None,
            Namespace::Statement => {
                self.statements.remove(named.name);
            }
            Namespace::Portal => {
                self.portals.remove(named.name);
            }
        }
        say::close_complete(&mut self.held);
    }
}

fn no_statement(name: &[u8]) -> Failed {
    if name.is_empty() {
        return failed("26000", "unnamed prepared statement does not exist");
    }
    failed("26000", format!("prepared statement \"{}\" does not exist", text(name)))
}

/// `SplitMix64`: the same rolls on every machine.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn under(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("less than a usize")
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.under(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.under(from.len())]
    }
}

/// A stream of messages as people read it: `Q` and its tag, and as much of its body as is text.
pub(crate) fn spell(mut bytes: &[u8]) -> String {
    let (mut scanner, mut out) = (Scanner::default(), String::new());
    while let Ok(Some(piece)) = scanner.next(&mut bytes) {
        let body = text(piece.body).replace('\0', ".");
        out.push_str(&format!("{}[{}] ", char::from(piece.tag), body.escape_debug()));
    }
    out
}
