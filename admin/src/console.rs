//! What has been said so far on one administrator's connection.
//!
//! ```text
//!   Query ─────────────────────────────┐
//!   Parse ─▶ statement ─▶ Bind ─▶ portal ─▶ Execute ─▶ request ─▶ Next::Run ─▶ answer ─▶ rows
//!                                                         └── needs nobody else ─────────▶ ┘
//! ```
//!
//! PgBouncer's console knows the simple protocol only. Here the extended one works as well, so that
//! drivers which know no other can use it. After an error in it, everything is skipped until Sync.

use std::collections::BTreeMap;

use wire::tag::client as tag;
use wire::write::server as write;
use wire::{Named, Namespace, Query, Status};

use crate::bind::{Bind, Execute};
use crate::cell::{Column, Formats, Rows, row_description};
use crate::courtesy::Effect;
use crate::grammar::{Request, understand};
use crate::portal::{Portal, Progress};
use crate::refusal::Protocol;
use crate::{Command, Facts, Refusal, Role, View, reply};

/// One administrator's connection, once logged in.
#[derive(Debug)]
pub struct Console {
    role: Role,
    columns: Columns,
    statements: BTreeMap<Vec<u8>, Request>,
    portals: BTreeMap<Vec<u8>, Portal>,
    status: Status,
    reading: Reading,
    running: Option<Running>,
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

/// Which columns the views have for this connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Columns {
    #[default]
    Todays,
    /// At their end, those that monitoring of PgBouncer's early years asks for as well.
    AndOld,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reading {
    Everything,
    /// There was an error in the extended protocol.
    OnlySync,
}

/// What the worker is at.
#[derive(Debug)]
struct Running {
    request: Request,
    asked: Asked,
}

/// How a request came, and so how it is answered.
#[derive(Debug)]
enum Asked {
    Query,
    Execute(Execute),
}

impl Console {
    /// Starts after the login, for somebody with these rights.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self {
            role,
            columns: Columns::default(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            status: Status::Idle,
            reading: Reading::Everything,
            running: None,
        }
    }

    #[must_use]
    pub fn with(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The command whose answer is awaited.
    #[must_use]
    pub fn awaits(&self) -> Option<&Command> {
        match &self.running.as_ref()?.request {
            Request::Order(command) => Some(command),
            _ => None,
        }
    }

    /// One whole message of the client: its tag, and its body without tag and length.
    pub fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Next {
        debug_assert!(self.running.is_none(), "a message before the answer to the last one");
        match tag {
            tag::TERMINATE => return Next::Close,
            tag::SYNC => {
                self.reading = Reading::Everything;
                self.ready(out);
                return Next::More;
            }
            tag::QUERY | tag::PARSE | tag::BIND | tag::DESCRIBE | tag::EXECUTE | tag::CLOSE => {}
            // All has been sent already; and what comes of a COPY that never was is passed over.
            tag::FLUSH | tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => return Next::More,
            _ => {
                reply::error(out, &Protocol::UnknownMessage(tag).into());
                return Next::Close;
            }
        }
        if self.reading == Reading::OnlySync {
            return Next::More;
        }
        if tag == tag::QUERY {
            return self.query(body, out);
        }
        let done = match tag {
            tag::PARSE => self.parse(body, out),
            tag::BIND => self.bind(body, out),
            tag::DESCRIBE => self.describe(body, out),
            tag::EXECUTE => return self.execute(body, out),
            _ => self.close(body, out),
        };
        if let Err(refusal) = done {
            self.fail(&refusal, out);
        }
        Next::More
    }

    /// What came of the command that [`Next::Run`] ordered.
    pub fn answer(&mut self, answer: &Answer<'_>, out: &mut Vec<u8>) {
        debug_assert!(self.running.is_some(), "an answer that nobody asked for");
        if let Some(Running { request, asked }) = self.running.take() {
            self.finish(&request, asked, answer, out);
        }
    }

    fn query(&mut self, body: &[u8], out: &mut Vec<u8>) -> Next {
        // As in PostgreSQL, this is the end of the unnamed ones.
        self.statements.remove(&b""[..]);
        self.portals.remove(&b""[..]);
        let understood = match Query::read(body) {
            Ok(query) => self.understand(query.text),
            Err(_) => Err(Protocol::Malformed(tag::QUERY).into()),
        };
        match understood {
            Ok(request) => self.begin(request, Asked::Query, out),
            Err(refusal) => {
                reply::error(out, &refusal);
                self.ready(out);
                Next::More
            }
        }
    }

    fn parse(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let parse = wire::Parse::read(body).map_err(|_| Protocol::Malformed(tag::PARSE))?;
        let name = name(parse.name)?;
        if !name.is_empty() && self.statements.contains_key(name) {
            return Err(Protocol::StatementExists(shown(name)).into());
        }
        if self.statements.len() >= STATEMENTS_MAX && !self.statements.contains_key(name) {
            return Err(Protocol::TooMany("prepared statements").into());
        }
        let has_parameters = parse.query.contains(&b'$') || parse.types.count() > 0;
        let request = self.understand(parse.query);
        let request = match request {
            Err(Refusal::InvalidCommand(_)) if has_parameters => {
                return Err(Protocol::NoParameters.into());
            }
            request => request?,
        };
        self.statements.insert(name.to_vec(), request);
        write::parse_complete(out);
        Ok(())
    }

    fn bind(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let bind = Bind::read(body).ok_or(Protocol::Malformed(tag::BIND))?;
        let portal = name(bind.portal)?;
        let request = self.statement(bind.statement)?;
        if bind.parameters > 0 {
            return Err(Protocol::ParameterCount(bind.parameters).into());
        }
        let formats = bind.formats(request.columns().len())?;
        if !portal.is_empty() && self.portals.contains_key(portal) {
            return Err(Protocol::PortalExists(shown(portal)).into());
        }
        if self.portals.len() >= PORTALS_MAX && !self.portals.contains_key(portal) {
            return Err(Protocol::TooMany("portals").into());
        }
        let request = request.clone();
        self.portals.insert(portal.to_vec(), Portal::new(request, formats));
        write::bind_complete(out);
        Ok(())
    }

    fn describe(&self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let named = Named::read(tag::DESCRIBE, body);
        let named = named.map_err(|_| Protocol::Malformed(tag::DESCRIBE))?;
        match named.kind {
            Namespace::Statement => {
                let request = self.statement(named.name)?;
                write::parameter_description(out, &[]);
                describe(out, request.columns(), &Formats::default());
            }
            Namespace::Portal => {
                let portal = self.portals.get(named.name).ok_or_else(|| no_portal(named.name))?;
                describe(out, portal.request.columns(), &portal.formats);
            }
        }
        Ok(())
    }

    fn execute(&mut self, body: &[u8], out: &mut Vec<u8>) -> Next {
        let asked = match Execute::read(body).ok_or(Protocol::Malformed(tag::EXECUTE)) {
            Ok(execute) => execute,
            Err(malformed) => {
                self.fail(&malformed.into(), out);
                return Next::More;
            }
        };
        match self.portals.get_mut(&asked.portal) {
            None => self.fail(&no_portal(&asked.portal), out),
            Some(portal) => match &portal.progress {
                Progress::Bound => {
                    let request = portal.request.clone();
                    return self.begin(request, Asked::Execute(asked), out);
                }
                Progress::Rows { .. } => portal.send(asked.rows_max, out),
                Progress::Done => {
                    self.fail(&Protocol::PortalDone(shown(&asked.portal)).into(), out);
                }
            },
        }
        Next::More
    }

    fn close(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let named = Named::read(tag::CLOSE, body).map_err(|_| Protocol::Malformed(tag::CLOSE))?;
        match named.kind {
            Namespace::Statement => drop(self.statements.remove(named.name)),
            Namespace::Portal => drop(self.portals.remove(named.name)),
        }
        write::close_complete(out);
        Ok(())
    }

    /// Orders what needs the worker, and answers the rest.
    fn begin(&mut self, request: Request, asked: Asked, out: &mut Vec<u8>) -> Next {
        match &request {
            Request::Order(Command::Show(view)) if view.needs().is_empty() => {
                self.finish(&request, asked, &Answer::Facts(&Facts::default()), out);
            }
            Request::Order(command) => {
                let command = command.clone();
                self.running = Some(Running { request, asked });
                return Next::Run(command);
            }
            Request::Habit(habit, name) => match self.take_effect(habit.effect, name) {
                Ok(()) => self.finish(&request, asked, &Answer::Done, out),
                Err(refusal) => self.finish(&request, asked, &Answer::Refused(refusal), out),
            },
            Request::Empty | Request::ShowFaked(_) | Request::SetFaked => {
                self.finish(&request, asked, &Answer::Done, out);
            }
        }
        Next::More
    }

    fn take_effect(&mut self, effect: Effect, name: &str) -> Result<(), Refusal> {
        match effect {
            Effect::Nothing => {}
            Effect::Begin => self.status = Status::Transaction,
            Effect::End => self.status = Status::Idle,
            Effect::DeallocateAll => self.statements.clear(),
            Effect::CloseAll => self.portals.clear(),
            Effect::Deallocate => {
                let gone = self.statements.remove(name.as_bytes());
                gone.ok_or_else(|| Protocol::NoStatement(name.to_owned()))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, request: &Request, asked: Asked, answer: &Answer<'_>, out: &mut Vec<u8>) {
        match (asked, answer) {
            (Asked::Query, Answer::Refused(refusal)) => {
                reply::error(out, refusal);
                self.ready(out);
            }
            (Asked::Execute(_), Answer::Refused(refusal)) => self.fail(refusal, out),
            (Asked::Query, _) => {
                let formats = Formats::default();
                request.notices(answer, out);
                if !request.columns().is_empty() {
                    row_description(out, request.columns(), &formats);
                }
                request.rows(answer, &formats, out);
                request.complete(out);
                self.ready(out);
            }
            (Asked::Execute(execute), _) => {
                request.notices(answer, out);
                // CLOSE ALL has taken its own portal away.
                match self.portals.get_mut(&execute.portal) {
                    Some(portal) => {
                        portal.fill(answer);
                        portal.send(execute.rows_max, out);
                    }
                    None => request.complete(out),
                }
            }
        }
    }

    fn statement(&self, name: &[u8]) -> Result<&Request, Refusal> {
        self.statements.get(name).ok_or_else(|| Protocol::NoStatement(shown(name)).into())
    }

    /// An error in the extended protocol: what was sent after it, believing that it went well, is
    /// passed over.
    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        reply::error(out, refusal);
        self.reading = Reading::OnlySync;
    }

    fn understand(&self, said: &[u8]) -> Result<Request, Refusal> {
        let request = understand(&String::from_utf8_lossy(said), self.role)?;
        Ok(match (request, self.columns) {
            (Request::Order(Command::Show(view)), Columns::AndOld) => {
                Request::Order(Command::Show(view.with_old_columns()))
            }
            (request, _) => request,
        })
    }

    /// Portals live as long as the transaction, and without one until here.
    fn ready(&mut self, out: &mut Vec<u8>) {
        if self.status == Status::Idle {
            self.portals.clear();
        }
        write::ready_for_query(out, self.status);
    }
}

/// Of a connection. Drivers keep some hundred prepared statements and one portal.
const STATEMENTS_MAX: usize = 1_000;
const PORTALS_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 255;

impl Request {
    /// The columns of its rows; empty if it has none.
    pub(crate) fn columns(&self) -> &'static [Column] {
        match self {
            Self::Order(Command::Show(view)) => view.sheet().columns,
            Self::ShowFaked(faked) => &faked.columns,
            Self::Empty | Self::Order(_) | Self::SetFaked | Self::Habit(..) => &[],
        }
    }

    pub(crate) fn rows(&self, answer: &Answer<'_>, formats: &Formats, out: &mut Vec<u8>) {
        let mut rows = Rows { columns: self.columns(), formats, out };
        match (self, answer) {
            (Self::Order(Command::Show(view)), Answer::Facts(facts)) => {
                (view.sheet().rows)(facts, &mut rows);
            }
            (Self::ShowFaked(faked), _) => rows.push(&[faked.value.into()]),
            _ => {}
        }
    }

    fn notices(&self, answer: &Answer<'_>, out: &mut Vec<u8>) {
        match (self, answer) {
            (Self::Order(Command::Show(View::Help)), _) => reply::help(out),
            (Self::SetFaked, _) => reply::notice(out, "SET ignored", None),
            (_, Answer::DoneBut(text)) => reply::notice(out, text, None),
            _ => {}
        }
    }

    /// Says that it is done.
    pub(crate) fn complete(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => write::empty_query_response(out),
            Self::Order(command) => write::command_complete(out, command.tag().as_bytes()),
            Self::ShowFaked(_) => write::command_complete(out, b"SHOW"),
            Self::SetFaked => write::command_complete(out, b"SET"),
            Self::Habit(habit, _) => write::command_complete(out, habit.tag.as_bytes()),
        }
    }
}

fn describe(out: &mut Vec<u8>, columns: &[Column], formats: &Formats) {
    if columns.is_empty() {
        write::no_data(out);
    } else {
        row_description(out, columns, formats);
    }
}

fn name(bytes: &[u8]) -> Result<&[u8], Refusal> {
    if bytes.len() > NAME_BYTES_MAX { Err(Protocol::NameTooLong.into()) } else { Ok(bytes) }
}

fn no_portal(name: &[u8]) -> Refusal {
    Protocol::NoPortal(shown(name)).into()
}

/// A name as errors show it.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..NAME_BYTES_MAX).unwrap_or(name)).into_owned()
}
