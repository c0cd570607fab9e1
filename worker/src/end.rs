//! How clients go, and what they and the log are told.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use io::Driver;
use pool::{ClientId, Duration};
use wire::{ErrorFields, Report};

use crate::client::{Client, State, WaitingFor};
use crate::log::{Level, Side, Subject};
use crate::worker::Worker;
use crate::world::World;

/// A peer that was told why it is hung up on may take this long to read it.
pub(crate) const LINGER: Duration = Duration::from_secs(30);

/// Why a client goes.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// It said so.
    CloseRequest,
    /// It just went.
    UnexpectedEof,
    /// What a server said when it refused a login: the body of its ErrorResponse.
    Server(Arc<[u8]>),
    /// A reason of ours: FATAL with this text, and the same in the log. SQLSTATE 08P01.
    Text(Cow<'static, str>),
    /// The same, with more to say.
    Said(Box<Last>),
    /// The same, but the client has already been told.
    Told(Cow<'static, str>),
}

/// Last words to a client: FATAL.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    code: &'static str,
    message: String,
    hint: String,
}

impl Why {
    pub(crate) fn said(code: &'static str, message: String, hint: String) -> Self {
        Self::Said(Box::new(Last { code, message, hint }))
    }

    pub(crate) const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// `closing because: …`
    fn words(&self) -> Cow<'_, str> {
        match self {
            Self::CloseRequest => "client close request".into(),
            Self::UnexpectedEof => "client unexpected eof".into(),
            Self::Server(body) => String::from_utf8_lossy(ErrorFields::new(body).message()),
            Self::Text(text) | Self::Told(text) => text.as_ref().into(),
            Self::Said(last) => last.message.as_str().into(),
        }
    }

    /// Whether it is the pooler that ends it: those are the `pooler error` lines.
    fn is_ours(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Told(_) | Self::Said(_) | Self::Server(_))
    }
}

/// A FATAL of ours. PgBouncer sends these three fields and no others.
pub(crate) fn fatal(text: &[u8]) -> Report<'_> {
    Report { severity: b"FATAL", code: b"08P01", message: text, ..Report::default() }
}

/// A NOTICE of ours.
pub(crate) fn notice(text: &[u8]) -> Report<'_> {
    Report { severity: b"NOTICE", code: b"00000", message: text, ..Report::default() }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// `slot` goes: it is told why, its server is given back or closed, and its place in line is
    /// free. Does nothing for one that is already going.
    pub(crate) fn client_leaves(&mut self, slot: u32, mut why: Why) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if matches!(client.state, State::Closing) {
            return;
        }
        let state = std::mem::replace(&mut client.state, State::Closing);
        let (pool, conn, age) = (client.pool, client.conn, self.now.since(client.card.connected));
        client.held = Vec::new();
        client.since = self.now;
        self.forget_ear(slot);
        match state {
            State::Waiting(WaitingFor::Replica) => self.replica_unwanted(slot),
            State::Waiting(WaitingFor::Query | WaitingFor::Welcome) => {
                self.with_pool(pool, |pool, out| pool.forget(ClientId(slot), out));
            }
            State::Linked(server) => {
                let torn =
                    self.servers.get(server.0 as usize).is_some_and(crate::server::Server::is_torn);
                self.server_left(server.0, slot, &why);
                if let (true, Why::Text(text)) = (torn, &why) {
                    why = Why::Told(text.clone());
                }
            }
            State::Console(desk) => self.desk_left(*desk),
            State::Login(entering) => {
                if let Some(question) = &entering.question {
                    self.asker_left(slot, question);
                }
            }
            State::Idle | State::Canceling | State::Closing => {}
        }
        self.tell_why(slot, &why);
        self.log_client_end(slot, &why, age);
        self.uncount(slot);
        if matches!(why, Why::UnexpectedEof) {
            self.driver.abort(conn);
        } else {
            self.driver.finish(conn);
        }
    }

    fn tell_why(&mut self, slot: u32, why: &Why) {
        let mut out = Vec::new();
        match why {
            Why::CloseRequest | Why::UnexpectedEof | Why::Told(_) => return,
            Why::Server(body) => wire::write::message(&mut out, wire::tag::server::ERROR, |out| {
                out.extend_from_slice(body);
            }),
            Why::Text(text) => {
                wire::write::server::error_response(&mut out, &fatal(text.as_bytes()));
            }
            Why::Said(last) => {
                let hint = Some(last.hint.as_bytes()).filter(|hint| !hint.is_empty());
                let report = Report {
                    with_v: true,
                    code: last.code.as_bytes(),
                    hint,
                    ..fatal(last.message.as_bytes())
                };
                wire::write::server::error_response(&mut out, &report);
            }
        }
        self.send_to_client(slot, &out);
    }

    fn log_client_end(&mut self, slot: u32, why: &Why, age: Duration) {
        let settings = &self.site.config.settings;
        let (ours, ends) = (settings.log_pooler_errors, settings.log_disconnections);
        let words = why.words();
        if ends {
            let age = age.as_secs();
            self.log_client(
                slot,
                Level::Log,
                format_args!("closing because: {words} (age={age}s)"),
            );
        }
        if ours && why.is_ours() {
            self.log_client(slot, Level::Warning, format_args!("pooler error: {words}"));
        }
    }

    /// It no longer counts toward the limits.
    pub(crate) fn uncount(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        let card = &mut client.card;
        let mut census = self.commons.census();
        if !std::mem::replace(&mut card.exempt, true) {
            census.clients -= 1;
        }
        if std::mem::replace(&mut card.counted, false)
            && let (Some(database), Some(user)) = (card.database(), card.user())
        {
            census.leave(database, user);
            drop(census);
            if let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) {
                room.clients -= 1;
                room.empty_since = self.now;
            }
        }
    }

    /// The client's socket said goodbye. `broken`: nothing that is sent will arrive any more.
    pub(crate) fn client_ended(&mut self, slot: u32, error: Option<&std::io::Error>) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let (conn, broken) = (client.conn, error.is_some());
        if let (State::Login(entering), Some(error)) = (&client.state, error)
            && entering.is_securing()
        {
            return self.client_handshake_failed(slot, error);
        }
        let going = matches!(client.state, State::Closing);
        // One that said goodbye behind its last requests may have closed its side only: it still
        // gets their answers, and if it stands in line for them, its server.
        let stays = match client.state {
            State::Linked(_) | State::Waiting(WaitingFor::Query) => {
                client.leaving || session::ends_in_goodbye(&client.side, &client.held)
            }
            _ => going,
        };
        if !broken && stays {
            return;
        }
        self.client_leaves(slot, Why::UnexpectedEof);
        if going {
            self.driver.abort(conn);
        }
        self.carry_out();
    }

    /// The kernel is done with a client's socket.
    pub(crate) fn client_gone(&mut self, slot: u32) {
        let Some(client) = self.clients.try_remove(slot as usize) else { return };
        if client.side.pid != 0 {
            self.commons.pids.leave(client.side.pid);
            let _gone = self.links.clear(slot);
        }
        self.commons.undeal(self.me);
    }

    /// `No server connection available in postgres backend, client being queued`
    pub(crate) fn tell_in_line(&mut self, slot: u32) {
        // Before it is let in, a client understands nothing but its login.
        let waits = |client: &Client| matches!(client.state, State::Waiting(WaitingFor::Query));
        if !self.clients.get(slot as usize).is_some_and(waits) {
            return;
        }
        let text = b"No server connection available in postgres backend, client being queued";
        let mut out = Vec::new();
        wire::write::server::notice_response(&mut out, &notice(text));
        self.send_to_client(slot, &out);
    }

    pub(crate) fn log_login_attempt(&mut self, slot: u32, database: &str, user: &str) {
        if !self.site.config.settings.log_connections {
            return;
        }
        let replication = match self.clients[slot as usize].card.replication {
            session::login::Replication::None => "no",
            session::login::Replication::Physical => "yes",
            session::login::Replication::Logical => "database",
        };
        let tls = self.clients[slot as usize].card.suite().unwrap_or("no");
        let text = format_args!(
            "login attempt: db={database} user={user} tls={tls} replication={replication}"
        );
        self.log_client(slot, Level::Log, text);
    }

    /// For those who count failed logins in the log, and shut out whoever has too many.
    pub(crate) fn log_login_failure(&mut self, slot: u32) {
        let State::Login(entering) = &self.clients[slot as usize].state else { return };
        let Some(wish) = entering.wish.as_deref() else { return };
        if self.site.config.settings.log_connections {
            let (database, user) = (wish.database.clone(), wish.user.clone());
            let text = format_args!("login failed: db={database} user={user}");
            self.log_client(slot, Level::Log, text);
        }
    }

    pub(crate) fn log_client(&mut self, slot: u32, level: Level, text: fmt::Arguments<'_>) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let card = &client.card;
        let subject = Subject {
            side: Side::Client,
            id: card.id,
            database: card.database(),
            user: card.user(),
            ends: Some(&card.ends.open()),
        };
        self.world.log().line(level, format_args!("{subject} {text}"));
    }

    pub(crate) fn log_server(&mut self, entry: u32, level: Level, text: fmt::Arguments<'_>) {
        let Some(server) = self.servers.get(entry as usize) else { return };
        let room = self.rooms.get(server.pool.0 as usize).and_then(Option::as_deref);
        let subject = Subject {
            side: Side::Server,
            id: server.id,
            database: room.map(|room| &*room.name),
            user: room.map(|room| &*room.user),
            ends: server.ends.as_deref(),
        };
        self.world.log().line(level, format_args!("{subject} {text}"));
    }

    pub(crate) fn log_server_end(&mut self, entry: u32, reason: &str) {
        if !self.site.config.settings.log_disconnections {
            return;
        }
        let age = self.now.since(self.servers[entry as usize].connected).as_secs();
        self.log_server(entry, Level::Log, format_args!("closing because: {reason} (age={age}s)"));
    }
}
