//! From the server to the client.

use std::mem;

use wire::tag::server as tag;
use wire::{
    CommandTag, ErrorFields, Malformed, Notification, ParameterStatus, Piece, Status, write,
};

use crate::beliefs::is_in_vain;
use crate::client::ClientSide;
use crate::flow::{Aside, Flow, Owned};
use crate::ledger::{Entry, Undo, What, Whose};
use crate::outward::answer;
use crate::pids::{self, Pids};
use crate::refusal;
use crate::relay::Heard;
use crate::rules::{Fault, Mode, Rules};
use crate::server::{Copying, Own, Phase, ServerSide, Unnamed};
use crate::signals;
use crate::statements::PREFIX;
use crate::trail::Ran;
use crate::wager;

/// Messages that are looked into are collected, and no server has this much to say in one.
const LOOKED_INTO_MAX: u32 = 16 << 20;

/// A probe finds no more than there are settings and reasons.
const ROWS_MAX: usize = 4096;

/// One server's bytes on their way in.
pub(crate) struct Inward<'a> {
    pub(crate) server: &'a mut ServerSide,
    pub(crate) client: Option<&'a mut ClientSide>,
    pub(crate) pids: &'a Pids,
    pub(crate) rules: &'a Rules,
    pub(crate) flow: &'a mut Flow,
    pub(crate) heard: Heard,
}

/// A message that is here from its tag to its end.
#[derive(Clone, Copy)]
struct Message<'a> {
    tag: u8,
    header: [u8; 5],
    body: &'a [u8],
    /// Where in the input it lies; `None` if it was collected.
    at: Option<(usize, usize)>,
}

impl Inward<'_> {
    /// All of `input`, unless the heard forbids to go on.
    pub(crate) fn run(&mut self, input: &[u8]) -> Result<(), Fault> {
        let mut rest = input;
        let mut begins = self.server.scanner.is_between();
        while let Some(piece) = self.server.scanner.next(&mut rest).map_err(Fault::Server)? {
            let end = input.len() - rest.len();
            begins |= piece.ends;
            if piece.first {
                // For good: what asks for it may begin when the client has a part of the message already.
                self.server.in_whole = self.is_looked_into(&piece);
            }
            if self.server.in_whole {
                self.looked_into(&piece, end)?;
            } else {
                self.streamed(&piece, end)?;
            }
            if piece.ends {
                self.answer_unsent();
            }
            if self.heard.left_open || self.heard.refused {
                break;
            }
        }
        if begins {
            self.server.orphan = self.client.is_none();
        }
        Ok(())
    }

    /// Whether the message that begins has to be seen whole.
    #[inline]
    fn is_looked_into(&self, piece: &Piece<'_>) -> bool {
        let server = &self.server;
        match piece.tag {
            tag::READY_FOR_QUERY
            | tag::ERROR
            | tag::COMMAND_COMPLETE
            | tag::PARAMETER_STATUS
            | tag::NOTIFICATION => true,
            tag::DATA_ROW | tag::ROW_DESCRIPTION if server.found.is_some() => true,
            tag::DATA_ROW | tag::NOTICE => {
                server.ledger.is_probed()
                    || server.signals.is_some() && piece.len <= signals::LEN_MAX
            }
            tag::PARAMETER_DESCRIPTION | tag::ROW_DESCRIPTION | tag::NO_DATA => {
                !server.described.is_empty()
            }
            _ => false,
        }
    }

    /// A piece of a message of which only the tag matters.
    #[inline]
    fn streamed(&mut self, piece: &Piece<'_>, end: usize) -> Result<(), Fault> {
        if piece.first {
            // A client linked after the first byte of the header was not the one spoken to.
            let orphan = mem::take(&mut self.server.orphan) && piece.head < 5;
            self.server.hushed = !self.is_for_client(piece.tag)? || orphan;
        }
        if !self.server.hushed {
            self.pass_piece(piece, end);
        }
        if piece.ends {
            self.answered(piece.tag);
        }
        Ok(())
    }

    /// Whether the client hears this message, which the server now begins to say.
    #[inline]
    fn is_for_client(&mut self, tag: u8) -> Result<bool, Fault> {
        let linked = self.client.is_some();
        let Some(head) = self.server.ledger.head() else {
            return match tag {
                // Not where others speak to the client as well: it comes in pieces, and they between them.
                tag::NOTICE => Ok(linked && (!self.server.collects || planted::is("notice-torn"))),
                tag => Err(Fault::Unexpected { tag }),
            };
        };
        let ours = match head.whose {
            Whose::Clients => {
                tag == tag::PARAMETER_DESCRIPTION && mem::take(&mut self.server.has_parameters)
            }
            Whose::Ours => !planted::is("own-answers-heard"),
            Whose::OursToParameters => {
                let heard = tag == tag::PARAMETER_DESCRIPTION;
                self.server.has_parameters |= heard;
                !heard
            }
        };
        // What a statement of our own gives notice of is nothing to the client.
        if tag == tag::NOTICE {
            return Ok(linked && !ours);
        }
        if !is_answer(tag, head.what) {
            return Err(Fault::Unexpected { tag });
        }
        if !linked && !ours {
            // Its client is gone, and so should it be.
            self.server.spoilt = true;
        }
        Ok(linked && !ours)
    }

    /// A message has ended. Pop what it was the last answer to.
    #[inline]
    fn answered(&mut self, tag: u8) {
        let Some(what) = self.server.ledger.head().map(|head| head.what) else { return };
        match (tag, what) {
            // Only a ReadyForQuery ends what we asked ourselves.
            (_, What::Own(_)) => {}
            (tag::PARSE_COMPLETE | tag::BIND_COMPLETE | tag::CLOSE_COMPLETE, _)
            | (tag::ROW_DESCRIPTION | tag::NO_DATA, What::Describe)
            | (tag::PORTAL_SUSPENDED | tag::EMPTY_QUERY, What::Execute) => self.pop(),
            (tag::FUNCTION_RESULT, _) => self.server.trail.returned(),
            (tag::COPY_IN, _) => self.copy_in(what),
            (tag::COPY_BOTH, _) => {
                self.server.copy = Copying::Both;
                self.server.spoilt = true;
            }
            _ => {}
        }
    }

    /// A piece of a message that must be seen whole.
    fn looked_into(&mut self, piece: &Piece<'_>, end: usize) -> Result<(), Fault> {
        let (tag, header, body) = (piece.tag, piece.header(), piece.body);
        if piece.is_whole() {
            let at = Some((end - body.len() - 5, end));
            return self.message(&Message { tag, header, body, at });
        }
        if piece.len > LOOKED_INTO_MAX {
            return Err(Fault::Server(Malformed::Length { tag, len: piece.len }));
        }
        self.server.partial.extend_from_slice(body);
        if !piece.ends {
            return Ok(());
        }
        let body = mem::take(&mut self.server.partial);
        self.message(&Message { tag, header, body: &body, at: None })
    }

    fn message(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        match message.tag {
            tag::READY_FOR_QUERY => self.ready(message),
            tag::ERROR => {
                self.error(message);
                Ok(())
            }
            tag::COMMAND_COMPLETE => self.complete(message),
            tag::DATA_ROW if self.server.ledger.is_probed() => {
                if self.server.rows.len() < ROWS_MAX {
                    self.server.rows.push(message.body.into());
                }
                Ok(())
            }
            tag::NOTICE if self.server.ledger.is_probed() => {
                let text = ErrorFields::new(message.body).message();
                self.server.trail.sequences.seen |= text == crate::sequences::SEEN;
                Ok(())
            }
            tag::NOTICE => self.signal_missed(message),
            tag::DATA_ROW if self.server.signals.is_some() => self.signalled(message),
            tag::DATA_ROW => self.found(message),
            tag::ROW_DESCRIPTION if self.server.found.is_some() => self.found(message),
            tag::PARAMETER_DESCRIPTION | tag::ROW_DESCRIPTION | tag::NO_DATA => {
                self.described(message.tag, message.body);
                if self.is_for_client(message.tag)? {
                    self.pass(message);
                }
                self.answered(message.tag);
                Ok(())
            }
            tag::NOTIFICATION => self.notification(message),
            _ => self.parameter(message),
        }
    }

    fn ready(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let status = Status::read(message.body).map_err(Fault::Server)?;
        let what = self.server.ledger.head().map(|head| head.what);
        let own = match what {
            Some(What::Own(own)) => Some(own),
            Some(What::Query | What::FunctionCall | What::Sync) => None,
            _ if self.server.doubtful > 0 => {
                // The Sync we thought the COPY had eaten.
                self.server.doubtful -= 1;
                self.server.status = status;
                self.pass(message);
                return Ok(());
            }
            _ => return Err(Fault::Unexpected { tag: tag::READY_FOR_QUERY }),
        };
        self.server.status = status;
        if self.server.copy != Copying::Both {
            self.server.copy = Copying::No;
        }
        let hushed = self.server.ledger.head().is_some_and(|head| head.whose == Whose::Ours);
        if let Some(own) = own {
            self.owned(own);
        } else if !hushed {
            self.flow.counted.queries += 1;
            self.flow.counted.transactions += u64::from(status == Status::Idle);
            if self.rules.mode == Mode::Statement && status != Status::Idle {
                self.heard.left_open = true;
                return Ok(());
            }
            self.foretell();
            self.report(status);
            self.pass(message);
        }
        self.pop();
        if status == Status::Idle && self.server.ledger.is_empty() {
            self.server.trail.ran = Ran::Nothing;
            self.server.reports.clear();
            self.server.ledger.ended();
            self.server.portals.clear();
            self.server.underway = None;
            let server = &*self.server;
            if server.regains.is_some() || server.has_parameters || !server.failing.is_empty() {
                self.rests();
            }
        }
        if self.server.signals.is_some() && self.server.ledger.is_empty() {
            self.server.signals = None;
        }
        if !self.server.lent.is_empty() {
            self.take_back();
        }
        Ok(())
    }

    /// All is answered, and no transaction is open: whoever comes next is not to find what was noted for this client.
    #[cold]
    fn rests(&mut self) {
        self.server.failing.clear();
        if let Some(regains) = &mut self.server.regains {
            regains.forget();
        }
        // What is held may be described again.
        self.server.has_parameters &= self.client.as_ref().is_some_and(|client| client.is_held());
    }

    fn owned(&mut self, kind: Own) {
        let mut error = self.server.own_error.take();
        let mut kind = kind;
        match kind {
            // Whether it was done is for what is behind it to show.
            Own::Lift => return,
            Own::Lend => {
                if let Some(error) = error.take() {
                    self.could_not_lend(error);
                }
            }
            Own::Dress => self.dressed(error.take()),
            Own::Regain => {
                self.regained();
                // What is not done in a failed transaction was not reset in it, either.
                error = error.filter(|body| ErrorFields::new(body).code() != b"25P02");
            }
            // A set is done with the last statement that it comprises; what cannot be prepared does no harm to it.
            Own::Set if !self.server.trail.workshop.underway.is_empty() && !self.heard.fatal => {
                self.server.set_error = error;
                return;
            }
            Own::Prepare => {
                let workshop = &mut self.server.trail.workshop;
                workshop.answered(error.take());
                if !workshop.underway.is_empty() && !self.heard.fatal {
                    return;
                }
                workshop.underway.clear();
                (kind, error) = (Own::Set, self.server.set_error.take());
            }
            _ => {}
        }
        self.heard.refused |= kind == Own::Ahead && error.is_some();
        if matches!(kind, Own::Set | Own::Ahead)
            && error.is_none()
            && let Some(client) = &mut self.client
        {
            client.vars.adopt(&self.server.vars);
        }
        let found = if kind == Own::Lookup { self.server.found.take() } else { None };
        let rows = mem::take(&mut self.server.rows);
        self.flow.owned.push(Owned { kind, error, found, rows });
    }

    /// A part of the answer to a lookup of ours.
    fn found(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        if self.is_for_client(message.tag)? {
            self.pass(message);
            return Ok(());
        }
        let Some(found) = &mut self.server.found else { return Ok(()) };
        if message.tag == tag::DATA_ROW {
            found.row = Some(message.body.into());
        } else {
            let count = message.body.first_chunk().map(|count| u16::from_be_bytes(*count));
            found.columns = count;
        }
        Ok(())
    }

    fn complete(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let text = CommandTag::read(message.body).map_or(&b""[..], |tag| tag.text);
        let discards = text == b"DISCARD SEQUENCES";
        let seen = self.is_for_client(message.tag)? && !(discards && self.is_of_seam());
        if seen {
            self.pass(message);
        }
        let Some(what) = self.server.ledger.head().map(|head| head.what) else { return Ok(()) };
        if !matches!(what, What::Own(_)) {
            self.note_done();
            self.server.trail.was_done();
            if is_in_vain(text) {
                self.server.trail.was_in_vain();
            }
        }
        match text {
            b"DEALLOCATE ALL" | b"DISCARD ALL" => {
                self.deallocate_all(seen);
                if text == b"DISCARD ALL" {
                    self.server.trail.sequences.discarded();
                }
            }
            b"DISCARD SEQUENCES" => self.server.trail.sequences.discarded(),
            b"DEALLOCATE" => self.deallocate(),
            _ => {}
        }
        if self.server.copy != Copying::Both {
            self.server.copy = Copying::No;
        }
        if what == What::Execute {
            self.pop();
        }
        Ok(())
    }

    /// The head did away with one named statement. If the client had it by the protocol, it has it no more.
    fn deallocate(&mut self) {
        let at = self.server.ledger.first();
        while let Some((by, name)) = self.server.deallocates.pop_front() {
            if by == at {
                if let Some(client) = &mut self.client {
                    client.names(|names| names.put(&name.into(), None));
                }
                return;
            }
            if by > at {
                return self.server.deallocates.push_front((by, name));
            }
        }
    }

    /// The head did away with all named statements. What was sent after it makes new ones.
    fn deallocate_all(&mut self, by_client: bool) {
        if planted::is("deallocate-all-unheard") {
            return;
        }
        let at = self.server.ledger.first();
        self.server.known.clear(at);
        self.server.trail.workshop.deallocate_all();
        if by_client && let Some(client) = &mut self.client {
            client.names(|names| names.clear(at));
        }
        for undo in self.server.ledger.notes() {
            match undo {
                Undo::Name { before, .. }
                    if by_client && before.as_ref().is_some_and(|name| name.since < at) =>
                {
                    *before = None;
                }
                Undo::Known { before, .. }
                    if before.as_ref().is_some_and(|known| known.is_before(at)) =>
                {
                    *before = None;
                }
                _ => {}
            }
        }
    }

    /// Somebody notified. The client knows others, and itself, by the pids they were given.
    fn notification(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let said = Notification::read(message.body).map_err(Fault::Server)?;
        let own = self.client.as_ref().map(|client| client.pid);
        let pid = match &self.server.voice {
            Some(voice) if voice.pid == said.pid => own.unwrap_or(said.pid),
            Some(voice) => self.pids.notifier(said.pid, voice),
            None => said.pid,
        };
        if self.server.collects {
            let rest = message.body.get(4..).unwrap_or_default();
            let whole = [&message.header[..], &pid.to_be_bytes(), rest].concat();
            self.flow.notices.push(whole.into());
            return Ok(());
        }
        if self.client.is_none() {
            return Ok(());
        }
        if pid == said.pid {
            self.pass(message);
            return Ok(());
        }
        self.flow.to_client.say(|out| {
            out.extend_from_slice(&message.header);
            out.extend_from_slice(&pid.to_be_bytes());
            out.extend_from_slice(message.body.get(4..).unwrap_or_default());
        });
        Ok(())
    }

    /// Notice is given while a request sends signals: perhaps that one found nobody, where it was to find a client that
    /// has no server at the moment. It finds it after all.
    fn signal_missed(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let fields = ErrorFields::new(message.body);
        let signals = self.server.signals.as_deref().filter(|_| fields.code() == signals::MISSED);
        let pid = signals.and_then(|signals| {
            pids::sole(fields.message()).or_else(|| signals.had(fields.message()))
        });
        let own = self.client.as_ref().map(|client| client.pid);
        if let (Some(pid), Some(own), Some(signals)) = (pid, own, &mut self.server.signals)
            && self.pids.may_end(own, pid, self.server.superuser)
        {
            signals.missed(pid);
            return Ok(());
        }
        if self.is_for_client(message.tag)? {
            self.pass(message);
        }
        Ok(())
    }

    /// A row of such a request.
    fn signalled(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        if !self.is_for_client(message.tag)? {
            return Ok(());
        }
        let Some(signals) = &mut self.server.signals else { return Ok(()) };
        let Some((body, ended)) = signals.sent(message.body) else {
            let struck = signals.struck(message.body);
            self.flow.asides.extend(struck.map(Aside::End));
            self.pass(message);
            return Ok(());
        };
        self.flow.to_client.say(|out| {
            out.extend_from_slice(&message.header);
            out.extend_from_slice(&body);
        });
        self.flow.asides.extend(ended.into_iter().map(Aside::End));
        Ok(())
    }

    /// A setting changed, perhaps long after and perhaps by nobody's query.
    fn parameter(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let status = ParameterStatus::read(message.body).map_err(Fault::Server)?;
        self.server.vars.set(status.name, status.value);
        if status.name == b"is_superuser" {
            self.server.superuser = status.value == b"on";
        }
        if let Some(Entry { whose: Whose::Ours, what: What::Own(own), .. }) =
            self.server.ledger.head()
        {
            if *own == Own::Regain
                && let Some(client) = &mut self.client
                && client.vars.value(status.name) != Some(status.value)
            {
                client.vars.set(status.name, status.value);
                self.pass(message);
            }
            return Ok(());
        }
        if self.may_return(status.name) {
            self.server.reports.push((status.name.into(), status.value.into()));
            return Ok(());
        }
        if let Some(client) = &mut self.client
            && !planted::is("settings-not-noted")
        {
            client.vars.set(status.name, status.value);
        }
        self.pass(message);
        Ok(())
    }

    /// Whether the client has had all its answers, and nothing of its is left on the server.
    fn would_part(&self) -> bool {
        let server = &self.server;
        self.rules.mode != Mode::Session
            && self.flow.owned.is_empty()
            && server.status == Status::Idle
            && server.phase == Phase::Synced
            && server.copy == Copying::No
            && server.trail.ties.is_none()
            && !server.trail.is_doubtful()
            && self.client.as_ref().is_some_and(|client| client.is_between() && !client.is_held())
    }

    fn error(&mut self, message: &Message<'_>) {
        let fields = ErrorFields::new(message.body);
        if matches!(fields.severity(), b"FATAL" | b"PANIC") {
            self.heard.fatal = true;
        }
        let Some(head) = self.server.ledger.head() else {
            // A server without a request to refuse says this only when it is about to go.
            self.heard.fatal = true;
            self.server.spoilt = true;
            if self.would_part() {
                self.heard.late = true;
                return;
            }
            // Behind the answer to a question of ours it is ours to deal with: the client has asked
            // for nothing here yet, or no longer.
            if self.flow.owned.is_empty() {
                self.heard.told = self.client.is_some();
                self.pass(message);
            }
            return;
        };
        let what = head.what;
        if let What::Own(kind) = what {
            self.server.own_error.get_or_insert_with(|| message.body.into());
            // All behind it is skipped, or fails: there is no need to wait until it has been.
            if self.heard.fatal || kind == Own::Ahead {
                self.owned(kind);
            }
            return;
        }
        self.server.trail.was_in_vain();
        self.server.has_parameters = false;
        if what.is_extended() && self.loses_wager(&fields, what) {
            return;
        }
        let Some(head) = self.server.ledger.head() else { return };
        let name = head.name.clone();
        self.copy_failed();
        if what.is_extended() {
            let queries = self.skip(what);
            if self.server.phase == Phase::Skipping {
                self.make_up_for(queries);
            }
        }
        let code = fields.code();
        self.heard.told = self.client.is_some();
        if wager::is_provoked(&fields) {
            let body = self.server.provoked.take();
            if self.client.is_some() {
                self.flow.to_client.say(|out| wager::say(body.as_deref(), out));
            }
            return;
        }
        if let Some(tie) = refusal::read(&fields) {
            if self.client.is_some() {
                self.flow.refused.push(tie);
                self.flow.to_client.say(|out| refusal::error(tie, out));
            }
            return;
        }
        let instead = self.failed_instead(&fields);
        match name {
            Some(name) => self.name_error(message.body, &name, code),
            None => match instead.or_else(|| self.replaced(message.body)) {
                Some(body) => self.flow.to_client.say(|out| {
                    write::message(out, tag::ERROR, |out| out.extend_from_slice(&body));
                }),
                None => self.pass(message),
            },
        }
    }

    /// The head is an extended message and failed: the server skips to the next Sync. How many queries it skips.
    pub(crate) fn skip(&mut self, what: What) -> usize {
        let skipped = self.server.ledger.skip();
        for (at, undo) in skipped.notes {
            match undo {
                Undo::Name { name, before } => {
                    if let Some(client) = &mut self.client
                        && !planted::is("failed-parse-keeps-name")
                    {
                        client.names(|names| names.restore(&name, before, skipped.failed));
                    }
                }
                Undo::Known { .. } if planted::is("failed-parse-is-known") => {}
                Undo::Known { id, before } => {
                    self.server.known.restore(id, before, skipped.failed);
                }
                // A Parse drops the old unnamed statement before it can fail at the new one.
                Undo::Unnamed { client, .. } if at == skipped.failed && what == What::Parse => {
                    let client = client.map(|_| Unnamed::Nothing);
                    self.restore_unnamed(client, Some(Unnamed::Nothing));
                }
                Undo::Unnamed { client, server } => self.restore_unnamed(client, Some(server)),
                Undo::Turned(client) => self.restore_unnamed(Some(client), None),
            }
        }
        if !skipped.to_sync {
            self.server.phase = Phase::Skipping;
        }
        skipped.queries
    }

    /// Put back unnamed statements: as they are now, or as they were before a later batch, not yet
    /// answered, changed them again.
    fn restore_unnamed(&mut self, mut client: Option<Unnamed>, mut server: Option<Unnamed>) {
        for undo in self.server.ledger.notes() {
            let clients = match undo {
                Undo::Unnamed { client: clients, server: servers } => {
                    if let Some(value) = server.take() {
                        *servers = value;
                    }
                    clients.as_mut()
                }
                Undo::Turned(clients) => Some(clients),
                Undo::Name { .. } | Undo::Known { .. } => None,
            };
            if let (Some(place), true) = (clients, client.is_some()) {
                *place = client.take().unwrap_or_default();
            }
        }
        if let Some(value) = server {
            (self.server.unnamed, self.server.unnamed_since) = (value, 0);
        }
        if let (Some(value), Some(client)) = (client, &mut self.client) {
            client.unnamed = value;
        }
    }

    /// An error that may be about a statement's name. The client is told the name it gave, not ours.
    fn name_error(&mut self, body: &[u8], name: &[u8], code: &[u8]) {
        let mut id = None;
        let mut renamed = Vec::new();
        write::message(&mut renamed, tag::ERROR, |out| {
            for (kind, value) in ErrorFields::new(body) {
                out.push(kind);
                match split_name(value) {
                    Some((before, ours, after))
                        if kind == b'M' && !planted::is("names-of-ours-told") =>
                    {
                        id = Some(ours);
                        out.extend([before, name, after].into_iter().flatten());
                    }
                    _ => out.extend_from_slice(value),
                }
                out.push(0);
            }
            out.push(0);
        });
        if self.client.is_some() {
            self.flow.to_client.say(|out| out.append(&mut renamed));
        }
        match (code, id.filter(|id| *id > 0)) {
            // It has a statement that we do not know of.
            (b"42P05", Some(_)) => self.server.spoilt = true,
            // It lost one: some SQL deallocated it.
            (b"26000", Some(id)) => self.server.known.remove(id),
            _ => {}
        }
    }

    fn copy_in(&mut self, what: What) {
        let seen = self.server.ledger.copy_in();
        let eaten = seen.eaten;
        self.server.spoilt |= seen.illegal;
        self.server.copy =
            if seen.ended { Copying::InEnded { eaten } } else { Copying::In { eaten } };
        if eaten > 0 && !seen.synced && what == What::Execute {
            self.server.phase = Phase::Unsynced;
        }
    }

    /// An error ends a COPY. Whether the Syncs that came before it were read by the COPY or will
    /// be read after it, nobody can tell.
    fn copy_failed(&mut self) {
        match self.server.copy {
            Copying::In { eaten } | Copying::InEnded { eaten } => {
                self.server.copy = Copying::No;
                self.server.doubtful = self.server.doubtful.saturating_add(eaten);
                self.server.spoilt |= eaten > 0;
            }
            Copying::No | Copying::Both => {}
        }
    }

    /// The head is answered. So are those right behind it that only waited for their turn.
    #[inline]
    fn pop(&mut self) {
        self.server.ledger.pop();
        if self.server.wager.is_some() {
            self.settle_wager();
        }
        self.answer_unsent();
    }

    /// What waited for its turn has it now, or waited for the end of a message that nobody asked for.
    #[inline]
    fn answer_unsent(&mut self) {
        while let Some(entry) = self.server.ledger.pop_unsent() {
            if self.client.is_some() {
                self.flow.to_client.say(|out| answer(entry.what, out));
            }
        }
        if self.server.ledger.has_settled() {
            self.settle();
        }
    }

    /// What was noted ahead has come true.
    #[cold]
    fn settle(&mut self) {
        while let Some((at, undo)) = self.server.ledger.settled() {
            match undo {
                Undo::Name { name, .. } => {
                    if let Some(client) = &mut self.client {
                        client.names(|names| names.settle(&name, at));
                    }
                }
                Undo::Known { id, .. } => self.server.known.settle(id, at),
                Undo::Unnamed { .. } | Undo::Turned(_) => {}
            }
        }
    }

    fn pass(&mut self, message: &Message<'_>) {
        if self.client.is_none() {
            return;
        }
        match message.at {
            Some((start, end)) => self.flow.to_client.pass(start..end),
            None => self.flow.to_client.say(|out| {
                out.extend_from_slice(&message.header);
                out.extend_from_slice(message.body);
            }),
        }
    }

    #[inline]
    fn pass_piece(&mut self, piece: &Piece<'_>, end: usize) {
        let body = end - piece.body.len()..end;
        if !piece.first {
            self.flow.to_client.pass(body);
        } else if piece.head == 5 {
            self.flow.to_client.pass(body.start - 5..end);
        } else {
            self.flow.to_client.say(|out| out.extend_from_slice(&piece.header()));
            self.flow.to_client.pass(body);
        }
    }
}

/// Whether a message can be part of the answer to this.
#[inline]
fn is_answer(tag: u8, to: What) -> bool {
    match to {
        What::Query => {
            matches!(
                tag,
                tag::DATA_ROW
                    | tag::ROW_DESCRIPTION
                    | tag::COMMAND_COMPLETE
                    | tag::EMPTY_QUERY
                    | tag::COPY_DATA
                    | tag::COPY_DONE
                    | tag::COPY_IN
                    | tag::COPY_OUT
                    | tag::COPY_BOTH
            )
        }
        What::Own(Own::Dress) if tag == tag::PARAMETER_DESCRIPTION => true,
        What::Own(
            Own::Lookup | Own::Prepare | Own::Lend | Own::Dress | Own::Ahead | Own::Regain,
        ) if matches!(
            tag,
            tag::PARSE_COMPLETE | tag::BIND_COMPLETE | tag::CLOSE_COMPLETE | tag::NO_DATA
        ) =>
        {
            true
        }
        What::Own(_) => {
            is_answer(tag, What::Query) && !matches!(tag, tag::COPY_IN | tag::COPY_BOTH)
        }
        What::Execute => {
            tag == tag::PORTAL_SUSPENDED
                || (is_answer(tag, What::Query) && tag != tag::ROW_DESCRIPTION)
        }
        What::Describe => {
            matches!(tag, tag::PARAMETER_DESCRIPTION | tag::ROW_DESCRIPTION | tag::NO_DATA)
        }
        What::Parse => tag == tag::PARSE_COMPLETE,
        What::Bind => tag == tag::BIND_COMPLETE,
        What::Close => tag == tag::CLOSE_COMPLETE,
        What::FunctionCall => tag == tag::FUNCTION_RESULT,
        What::Sync | What::CopyEnd | What::Gone | What::ParseFaked | What::CloseFaked => false,
    }
}

/// Find one of our names in a text: what is before it, its number, what is after it.
fn split_name(text: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let start = text.windows(PREFIX.len()).position(|window| window == PREFIX)?;
    let (before, rest) = text.split_at_checked(start)?;
    let rest = rest.get(PREFIX.len()..)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = rest.split_at_checked(digits)?;
    Some((before, str::from_utf8(number).ok()?.parse().ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_name_is_found_in_a_message() {
        let text = "l'instruction « PGBOUNCER_17 » n'existe pas".as_bytes();
        let (before, id, after) = split_name(text).expect("it is there");
        assert_eq!(
            (before, id, after),
            ("l'instruction « ".as_bytes(), 17, " » n'existe pas".as_bytes())
        );
        assert_eq!(split_name(b"no PGBOUNCER_ here"), None);
    }
}
