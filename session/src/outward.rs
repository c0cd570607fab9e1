//! From the client to the server.

use std::ops::Range;
use std::sync::Arc;

use wire::tag::client as tag;
use wire::{BindNames, Named, Namespace, Parse, Piece, write};

use crate::ages::Change;
use crate::cache::Standing;
use crate::client::ClientSide;
use crate::dress::Dressed;
use crate::fit::Fits;
use crate::flow::{Aside, Flow};
use crate::ledger::{Undo, What, Whose, Wipe};
use crate::lend::Looks;
use crate::made::ground;
use crate::names::{Meaning, Name};
use crate::pids::{self, Meant};
use crate::reading::{Marks, Reading};
use crate::refusal;
use crate::relay::Said;
use crate::rules::{Fault, Rules};
use crate::sequences::{Pending, SOON};
use crate::server::{Copying, Phase, ServerSide, Unnamed};
use crate::state::Tie;
use crate::statements::{Ground, NOBODY, PREFIX, SCRATCH, Statement, Statements, TAKEN};
use crate::text::{HEAD_MAX, READ_MAX};
use crate::trail::Ran;

/// Names longer than this are not looked for: no statement was ever given one.
const NAMES_MAX: usize = 1 << 20;

const DISCARD: &[u8] = b"DISCARD SEQUENCES";

/// One client's bytes on their way out.
pub(crate) struct Outward<'a> {
    pub(crate) client: &'a mut ClientSide,
    pub(crate) server: &'a mut ServerSide,
    pub(crate) statements: &'a mut Statements,
    pub(crate) rules: &'a Rules,
    pub(crate) flow: &'a mut Flow,
    pub(crate) input: &'a [u8],
    /// Whether `input` is what the caller knows as the input, so that ranges of it can be passed.
    pub(crate) passes: bool,
}

/// What is in hand of a message that is looked into: always its beginning.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    tag: u8,
    /// Bytes in the whole body.
    len: u32,
    pub(crate) header: [u8; 5],
    /// The body as far as it is here.
    pub(crate) body: &'a [u8],
    place: Place,
}

impl<'a> Message<'a> {
    /// The body, if all of it is here.
    pub(crate) fn whole(&self) -> Option<&'a [u8]> {
        (self.len as usize == self.body.len()).then_some(self.body)
    }

    /// The same with another body, if there is one.
    fn with(&self, body: Option<&'a [u8]>) -> Self {
        let Some(body) = body else { return *self };
        let (Place::Input { end, .. } | Place::Kept { end }) = self.place;
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let mut header = self.header;
        header[1..].copy_from_slice(&len.saturating_add(4).to_be_bytes());
        Self { len, header, body, place: Place::Kept { end }, ..*self }
    }
}

/// Where a message in hand lies.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In the input, ending here.
    Input { end: usize, with_header: bool },
    /// Elsewhere: it was collected.
    Kept { end: usize },
}

/// Whether the next message can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    On,
    /// This message depends on an answer still to come.
    Hold,
    Terminate,
}

/// How much of a Query's body has to be here before any of it is passed on: all of it, if it is to be read.
fn begins(len: u32) -> usize {
    let len = len as usize;
    if len > READ_MAX { HEAD_MAX } else { len }
}

impl Outward<'_> {
    pub(crate) fn run(&mut self) -> Result<Said, Fault> {
        if self.waits_for_dress() {
            return Ok(Said::Held);
        }
        let mut rest = self.input;
        while let Some(piece) = self.client.scanner.next(&mut rest).map_err(Fault::Client)? {
            let end = self.input.len() - rest.len();
            match self.piece(&piece, end)? {
                Next::On if self.rules.reports => self.note(&piece),
                Next::On => {}
                Next::Hold => return Ok(Said::Held),
                Next::Terminate => return Ok(Said::Terminate),
            }
            self.server.dressed_ahead = 0;
        }
        Ok(Said::More)
    }

    /// One piece of a message, which ends at `end` of the input.
    ///
    /// What a message owes is entered when its first piece goes out: no answer comes before its
    /// last, and an error meanwhile drops the entry just as the server will drop the message.
    fn piece(&mut self, piece: &Piece<'_>, end: usize) -> Result<Next, Fault> {
        if piece.first && piece.len.saturating_add(5) > self.rules.packet_max {
            return Err(Fault::TooLong { tag: piece.tag });
        }
        if self.server.wager.is_some() {
            self.keep(piece);
        }
        match piece.tag {
            tag::PARSE | tag::BIND | tag::DESCRIBE | tag::CLOSE => self.extended(piece, end),
            tag::TERMINATE => Ok(if piece.ends { Next::Terminate } else { Next::On }),
            tag::QUERY if self.is_cut(piece) => self.gather(piece, end),
            _ => self.plain(piece, end, false),
        }
    }

    /// A piece of a Query that is to be told by more than has come: kept until that has.
    #[cold]
    fn gather(&mut self, piece: &Piece<'_>, end: usize) -> Result<Next, Fault> {
        self.client.keep_partial(piece.body);
        let kept = self.client.partial().map_or(0, <[u8]>::len);
        if !piece.ends && kept < begins(piece.len) {
            return Ok(Next::On);
        }
        let body = self.client.take_partial();
        self.plain(&Piece { first: true, head: 5, body: &body, ..*piece }, end, true)
    }

    /// Whether too little of a Query has come to tell what it calls by name.
    fn is_cut(&self, piece: &Piece<'_>) -> bool {
        if piece.is_whole() {
            return false;
        }
        if self.client.partial().is_some() {
            return true;
        }
        let begins = piece.head == 5 && piece.body.len() >= begins(piece.len);
        let reads = self.rules.watches() && self.rules.rewrites();
        piece.first && !begins && reads && self.server.phase != Phase::Skipping
    }

    /// A piece of a message that is rewritten at most as a whole; `kept`: it does not lie in the input.
    fn plain(&mut self, piece: &Piece<'_>, end: usize, kept: bool) -> Result<Next, Fault> {
        match piece.tag {
            tag::QUERY | tag::FUNCTION_CALL if piece.first && self.awaits_discard() => {
                return Ok(self.hold(piece.header(), piece.body, end));
            }
            tag::QUERY if piece.is_whole() && self.waits_to_lend(piece.body) => {
                return Ok(self.hold(piece.header(), piece.body, end));
            }
            tag::QUERY if piece.is_whole() && self.refuses_query(piece.body) => {
                return Ok(Next::On);
            }
            _ if piece.first => self.enter(piece)?,
            _ => {}
        }
        if piece.tag == tag::QUERY
            && piece.is_whole()
            && let Some(body) = self.as_sent(piece)
        {
            self.say(|out| write::message(out, tag::QUERY, |out| out.extend_from_slice(&body)));
        } else if kept {
            self.say(|out| {
                out.extend_from_slice(&piece.header());
                out.extend_from_slice(piece.body);
            });
        } else {
            self.pass_piece(piece, end);
        }
        let may_take = piece.ends && self.server.phase == Phase::Synced;
        if may_take && self.server.regains.is_some() {
            self.regain();
        }
        if may_take && !self.server.lent.is_empty() && !self.server.ledger.may_skip() {
            self.take_back();
        }
        Ok(Next::On)
    }

    /// The body of a Query, where it differs from what the client said.
    fn as_sent(&mut self, piece: &Piece<'_>) -> Option<Vec<u8>> {
        let body = self.with_seam(piece);
        let said = body.as_deref().unwrap_or(piece.body);
        let translated = pids::may_hold(said).then(|| self.translated_text(said));
        translated.flatten().or(body)
    }

    /// Enter a message that is never rewritten, or only in its text.
    fn enter(&mut self, piece: &Piece<'_>) -> Result<(), Fault> {
        match piece.tag {
            tag::QUERY if !self.rules.pqexec => return Err(Fault::PqexecDisallowed),
            tag::QUERY | tag::FUNCTION_CALL | tag::EXECUTE | tag::SYNC => {}
            tag::COPY_DATA | tag::FLUSH => return Ok(()),
            tag::COPY_DONE | tag::COPY_FAIL => {
                self.copy_end();
                return Ok(());
            }
            tag => return Err(Fault::UnknownMessage { tag }),
        }
        if piece.tag == tag::SYNC {
            self.sync();
        } else if self.server.phase != Phase::Skipping || planted::is("skipped-query-is-owed") {
            match piece.tag {
                tag::QUERY => self.query(piece),
                tag::EXECUTE => {
                    if !self.server.portals.is_empty() {
                        self.use_portal(piece.body, true);
                    }
                    self.owe(What::Execute, None);
                }
                _ => {
                    self.watch_statement(None);
                    self.simple(What::FunctionCall);
                }
            }
        }
        Ok(())
    }

    fn query(&mut self, piece: &Piece<'_>) {
        if piece.is_whole() && piece.body.last() != Some(&0) {
            // The server refuses it before it comes to dropping the unnamed statement.
            self.server.spoilt = true;
        }
        if !self.client.unnamed.is_nothing() || self.server.may_have_unnamed() {
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
        }
        let mut may_wipe = wipes(piece.body);
        if self.rules.watches() {
            match piece.body.split_last() {
                Some((0, text)) if piece.is_whole() && self.client.vars.can_read(text) => {
                    let reading = self.statements.reading(text);
                    self.server.trail.sequences.find_seam(text, self.client.pid);
                    self.watch(&reading, text);
                    may_wipe |= reading.marks.has(Marks::WIPES);
                    if self.rules.rewrites() {
                        self.lend_for_query(&reading);
                    }
                }
                text => {
                    let text = text.filter(|_| piece.is_whole()).map(|(_, text)| text);
                    self.mark_unknown(text);
                    if !piece.is_whole() {
                        self.lend_for_beginning(piece.body);
                    }
                }
            }
        } else if let (Some((0, text)), true) = (piece.body.split_last(), piece.is_whole()) {
            self.look_for_resets(text);
        }
        self.server.trail.sequences.close_seam(self.server.ledger.next());
        if may_wipe {
            self.server.ledger.wipe(Wipe::Next);
        }
        self.simple(What::Query);
    }

    /// Whether a text says that it makes state that is refused.
    fn refusal(&mut self, text: &[u8]) -> Option<Tie> {
        let refused = self.rules.refused;
        if refused.is_none() || !self.rules.watches() || !self.client.vars.can_read(text) {
            return None;
        }
        refusal::first(self.statements.reading(text).shows, refused)
    }

    /// Whether the query has another sent in its place, that fails.
    fn refuses_query(&mut self, body: &[u8]) -> bool {
        let Some((0, text)) = body.split_last() else { return false };
        if !self.rules.pqexec || self.server.phase == Phase::Skipping {
            return false;
        }
        let Some(tie) = self.refusal(text) else { return false };
        // It drops the unnamed statement before it is parsed.
        if !self.client.unnamed.is_nothing() || self.server.may_have_unnamed() {
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
        }
        self.simple(What::Query);
        self.say(|out| write::client::query(out, &refusal::text(tie)));
        true
    }

    /// The same, for a Parse.
    fn refuses_parse(&mut self, body: &[u8]) -> bool {
        let Ok(parse) = Parse::read(body) else { return false };
        let Some(tie) = self.refusal(parse.query) else { return false };
        // A name is looked at only when the text is understood; the unnamed one goes before that.
        let name = if parse.name.is_empty() { b"" } else { NOBODY };
        if parse.name.is_empty() {
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
        }
        self.owe(What::Parse, None);
        self.say(|out| write::client::parse(out, name, &refusal::text(tie), b""));
        true
    }

    /// A text is about to be run.
    fn watch(&mut self, reading: &Arc<Reading>, text: &[u8]) {
        if self.gives_up_own(reading) {
            return;
        }
        if !reading.deeds.is_empty() {
            self.watch_deeds(reading, text);
        }
        if reading.changes != Change::Nothing {
            self.watch_change(reading);
        }
        self.watch_sequences(reading);
        if reading.resets.is_some() {
            self.expect_regain(reading);
        }
        if !reading.signals.is_empty() {
            self.server.signals.get_or_insert_default().expect(&reading.signals);
        }
        if !reading.vacates.is_empty() {
            self.flow.asides.push(Aside::Vacate(Arc::clone(reading)));
        }
        if reading.marks.has(Marks::RELEASES) {
            self.server.trail.release(reading, &self.client.vars);
        } else {
            self.server.trail.ran = Ran::Other;
            self.server.trail.mark(reading);
        }
        self.lend_voice(reading);
    }

    /// A statement is about to be run; `None`: one that nobody has seen.
    fn watch_statement(&mut self, statement: Option<&Statement>) {
        if !self.rules.watches() {
            return;
        }
        match statement {
            Some(statement) if self.client.vars.can_read(&statement.query) => {
                let reading = Arc::clone(self.statements.reading_of(statement));
                self.watch(&reading, &statement.query);
            }
            statement => self.mark_unknown(statement.map(|statement| &*statement.query)),
        }
    }

    /// What sequences gave others is discarded before this client could find it.
    pub(crate) fn watch_sequences(&mut self, reading: &Arc<Reading>) {
        if !reading.marks.has(Marks::OF_SEQUENCES) {
            return;
        }
        let has_seam = self.server.trail.sequences.seam.is_some();
        if self.server.is_aborted() && !has_seam {
            // It is not run.
            return;
        }
        let (trail, client) = (&mut self.server.trail, &mut *self.client);
        let (has, ledger) = (&mut client.remembers, &self.server.ledger);
        if !trail.sequences.run(reading, client.pid, has, &trail.habit, ledger) {
            return;
        }
        if has_seam {
            // Its entry has no number yet.
            return trail.sequences.discards(Pending { at: SOON, in_batch: false });
        }
        if self.server.phase == Phase::Synced && !ledger.may_skip() {
            let at = ledger.next();
            trail.sequences.discards(Pending { at, in_batch: false });
            self.lend(|out| passing(DISCARD).iter().for_each(|(_, message)| out.extend(message)));
        } else {
            for (what, message) in passing(DISCARD) {
                if what == What::Execute {
                    let at = self.server.ledger.next();
                    self.server.trail.sequences.discards(Pending { at, in_batch: true });
                }
                self.inject(what, |out| out.extend_from_slice(&message));
            }
        }
    }

    /// Whether what is run next could find what sequences gave others, or be taken for what finds it: that depends on an
    /// answer still to come.
    fn awaits_discard(&self) -> bool {
        self.server.trail.sequences.are_open(&self.server.ledger)
    }

    /// A text is about to be run that nobody reads; `None`: it is not here.
    fn mark_unknown(&mut self, text: Option<&[u8]>) {
        self.mark_unread();
        let unread = Reading::new(crate::sequences::unread(text), Box::default());
        self.watch_sequences(&Arc::new(unread));
    }

    fn mark_unread(&mut self) {
        self.server.trail.mark_unread();
        self.lend_voice(&Reading::unknown());
    }

    /// Whether there is no statement that PostgreSQL could find by this name, of which we have none: it says so
    /// itself, and nothing of ours is to fail in front of that.
    fn is_absent(&self, name: &[u8]) -> bool {
        match name {
            b"" => matches!(self.client.unnamed, Unnamed::Nothing),
            name => !self.is_made(name),
        }
    }

    /// What the server notifies others of from now on, it does for this client.
    fn lend_voice(&self, reading: &Reading) {
        if let (false, Some(voice)) = (reading.marks.is_none(), &self.server.voice) {
            voice.lend(self.client.pid);
        }
    }

    /// A message that brings a `ReadyForQuery` of its own, and so ends what a batch has begun.
    fn simple(&mut self, what: What) {
        if matches!(self.server.copy, Copying::In { .. }) {
            self.server.spoilt = true;
        }
        self.server.phase = Phase::Synced;
        self.server.ledger.push(what, Whose::Clients, None);
    }

    fn sync(&mut self) {
        if let Copying::In { eaten } = &mut self.server.copy
            && !planted::is("sync-in-copy-is-owed")
        {
            // The copying server reads and ignores it; its batch goes on.
            *eaten = eaten.saturating_add(1);
            return;
        }
        self.server.phase = Phase::Synced;
        self.server.ledger.push(What::Sync, Whose::Clients, None);
    }

    fn copy_end(&mut self) {
        let server = &mut *self.server;
        match server.copy {
            Copying::In { eaten } => server.copy = Copying::InEnded { eaten },
            // The COPY it ends may not have begun yet. With nothing owed there is none to come.
            Copying::No | Copying::InEnded { .. } if !server.ledger.is_empty() => {
                server.ledger.push(What::CopyEnd, Whose::Clients, None);
            }
            _ => {}
        }
    }

    /// Enter an extended message of the client's.
    fn owe(&mut self, what: What, name: Option<Arc<[u8]>>) {
        if matches!(self.server.copy, Copying::In { .. }) {
            self.server.spoilt = true;
        }
        self.server.phase = Phase::Unsynced;
        self.server.ledger.push(what, Whose::Clients, name);
    }

    /// A piece of a message that may have to be rewritten.
    fn extended(&mut self, piece: &Piece<'_>, end: usize) -> Result<Next, Fault> {
        let header = piece.header();
        let (tag, len) = (piece.tag, piece.len);
        if piece.first {
            let place = Place::Input { end, with_header: piece.head == 5 };
            let message = Message { tag, len, header, body: piece.body, place };
            if piece.ends || self.is_enough(tag, piece.body) {
                return self.message(&message);
            }
            self.client.keep_partial(piece.body);
            return Ok(Next::On);
        }
        if self.client.partial().is_none() {
            self.pass_piece(piece, end);
            return Ok(Next::On);
        }
        self.client.keep_partial(piece.body);
        if piece.ends || self.client.partial().is_some_and(|body| self.is_enough(tag, body)) {
            let kept = self.client.take_partial();
            let message = Message { tag, len, header, body: &kept, place: Place::Kept { end } };
            return self.message(&message);
        }
        Ok(Next::On)
    }

    /// Whether this beginning of a body is all that has to be seen of it.
    fn is_enough(&self, tag: u8, body: &[u8]) -> bool {
        self.server.phase == Phase::Skipping
            || !self.rules.rewrites() && !self.wants_names(body)
            || (tag != tag::PARSE && body.len() > NAMES_MAX)
            || (tag == tag::BIND
                && BindNames::find(body).is_some_and(|names| !self.wants_parameters(&names, body)))
    }

    fn message(&mut self, message: &Message<'_>) -> Result<Next, Fault> {
        if self.server.phase == Phase::Skipping {
            self.pass(message);
            return Ok(Next::On);
        }
        let what = match message.tag {
            tag::PARSE => What::Parse,
            tag::BIND => What::Bind,
            tag::DESCRIBE => What::Describe,
            _ => What::Close,
        };
        if what == What::Parse
            && message.len as usize == message.body.len()
            && self.refuses_parse(message.body)
        {
            return Ok(Next::On);
        }
        if what == What::Bind && self.awaits_discard() {
            return Ok(self.hold_message(message));
        }
        if !self.rules.rewrites() {
            if matches!(what, What::Parse | What::Close) {
                self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Unknown);
            }
            match what {
                What::Parse => {
                    self.watch_parsed(message.body);
                    if let Ok(parse) = Parse::read(message.body) {
                        self.look_for_resetters(parse.name, parse.query);
                    }
                }
                What::Bind => {
                    if let Some(names) = BindNames::find(message.body) {
                        self.look_for_resetter(names.statement);
                    }
                    self.watch_statement(None);
                    self.watch_parameters(None, message.body);
                }
                _ => {}
            }
            let body = self.translated(message, what);
            self.pass_as(&message.with(body.as_deref()), what);
            return Ok(Next::On);
        }
        let next = match what {
            What::Parse => self.parse(message),
            What::Bind => self.bind(message)?,
            _ => self.named(message, what),
        };
        Ok(if next == Next::Hold { self.hold_message(message) } else { next })
    }

    fn hold_message(&mut self, message: &Message<'_>) -> Next {
        let (Place::Input { end, .. } | Place::Kept { end }) = message.place;
        self.hold(message.header, message.body, end)
    }

    /// A message that ends at `end` of the input waits, and all behind it. It comes by again.
    fn hold(&mut self, header: [u8; 5], body: &[u8], end: usize) -> Next {
        self.server.wager = None;
        let rest = self.input.get(end..).unwrap_or_default();
        self.client.hold([&header, body, rest]);
        if self.server.ledger.wants_flush() {
            self.say(|out| write::message(out, tag::FLUSH, |_| {}));
        }
        Next::Hold
    }

    /// What decides what a text means that the client sends now.
    pub(crate) fn ground(&self) -> Ground {
        if !self.rules.watches() {
            return Ground::Known(0);
        }
        let changes = self.server.underway.is_some();
        if changes || !self.server.trail.workshop.is_settled() {
            return Ground::Unknown;
        }
        Ground::Known(ground(self.client.state.as_deref(), &self.client.vars))
    }

    fn parse(&mut self, message: &Message<'_>) -> Next {
        let Ok(parse) = Parse::read(message.body) else {
            // The server finds it broken too, and says so.
            self.pass_as(message, What::Parse);
            return Next::On;
        };
        let ground = self.ground();
        let statement = self.statements.intern(parse.query, parse.types.as_bytes(), ground);
        self.dress(&statement);
        if wipes(parse.query) {
            self.server.ledger.wipe(Wipe::Execute);
        }
        if parse.name.is_empty() {
            if self.hide_ours(&statement) == Looks::Later {
                return Next::Hold;
            }
            if self.executes(&statement) {
                // It does away with the last one even if what it executes cannot be lent.
                self.close_unnamed();
                self.lend_for_statement(&statement);
            }
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Is(statement));
            self.pass_as(message, What::Parse);
            return Next::On;
        }
        match self.client.meaning(parse.name, &self.server.ledger) {
            Meaning::Open => Next::Hold,
            Meaning::Nothing if self.is_made(parse.name) => {
                self.parse_beside(parse.name, &statement, message);
                Next::On
            }
            Meaning::Nothing if self.looks(&statement) => {
                match self.parse_looking(parse.name, &statement, message) {
                    true => Next::On,
                    false => Next::Hold,
                }
            }
            Meaning::Nothing => self.parse_new(&parse, &statement),
            Meaning::Statement(_, name, _) => {
                self.parse_again(&parse, name);
                Next::On
            }
        }
    }

    /// A Parse under a name that is free.
    fn parse_new(&mut self, parse: &Parse<'_>, statement: &Arc<Statement>) -> Next {
        let standing = self.server.known.standing(statement.id, &self.server.ledger);
        // A Parse is only certain to succeed if the same text did, and if nothing stands between
        // that could have failed the transaction or dropped the statement.
        let certain = self.server.ledger.is_quiet() && self.server.status != wire::Status::Failed
            || planted::is("parse-believed-too-early");
        let name: Arc<[u8]> = parse.name.into();
        let alike = !self.executes(statement);
        match standing {
            Standing::Open => return Next::Hold,
            Standing::Prepared if certain && alike && !self.server.ledger.is_long() => {
                self.flow.counted.client_parses += 1;
                self.fake(What::ParseFaked, &name, Some(statement));
                return Next::On;
            }
            Standing::Prepared => self.inject_close(statement),
            Standing::Absent => self.make_room(statement),
        }
        self.lend_for_shape(statement);
        self.flow.counted.client_parses += 1;
        self.flow.counted.server_parses += 1;
        self.give_name(&name, Some(statement), false);
        self.learn(statement);
        self.owe(What::Parse, Some(name));
        let types = parse.types.as_bytes();
        self.say(|out| write::client::parse(out, &statement.name, parse.query, types));
        Next::On
    }

    /// A Parse under a name that is taken. PostgreSQL is to say so itself: whatever else is wrong
    /// with the statement it says first, and the error does to the transaction what errors do.
    fn parse_again(&mut self, parse: &Parse<'_>, name: Arc<[u8]>) {
        self.flow.counted.client_parses += 1;
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, TAKEN));
        // The one kind of statement that can be prepared in a failed transaction as well.
        self.inject(What::Parse, |out| write::client::parse(out, TAKEN, b"ROLLBACK", b""));
        self.owe(What::Parse, Some(name));
        let types = parse.types.as_bytes();
        self.say(|out| write::client::parse(out, TAKEN, parse.query, types));
    }

    fn bind(&mut self, message: &Message<'_>) -> Result<Next, Fault> {
        let Some(names) = BindNames::find(message.body) else {
            self.watch_statement(None);
            self.pass_as(message, What::Bind);
            return Ok(Next::On);
        };
        let (statement, name, unproven) = match self.look_up(names.statement, Some(message)) {
            Found::Hold => return Ok(Next::Hold),
            Found::AsItIs => {
                let unnamed = match &self.client.unnamed {
                    Unnamed::Is(statement) if names.statement.is_empty() => {
                        Some(Arc::clone(statement))
                    }
                    _ => None,
                };
                if unnamed.as_ref().is_some_and(|statement| wipes(&statement.query)) {
                    self.server.ledger.wipe(Wipe::Execute);
                }
                if unnamed.is_none() && self.rules.watches() && self.is_absent(names.statement) {
                    self.mark_unread();
                } else {
                    self.watch_statement(unnamed.as_deref());
                }
                self.watch_parameters(unnamed.as_deref(), message.body);
                let deeds = unnamed.as_ref().and_then(|unnamed| self.lend_for_statement(unnamed));
                self.bind_portal(names.portal, deeds);
                let told = unnamed.as_ref().is_none_or(|statement| !statement.told.is_silent());
                self.server.is_untold = !told && names.portal.is_empty();
                let taking = unnamed.filter(|statement| statement.takes_pids);
                let body = taking.and_then(|of| self.translated_bind(message, Some(&of.query)));
                self.pass_as(&message.with(body.as_deref()), What::Bind);
                return Ok(Next::On);
            }
            Found::Nobody(name) => (None, name, false),
            Found::Statement { statement, name, unproven } => (Some(statement), name, unproven),
        };
        // Prepared long ago, perhaps, but it is now that it may be run.
        self.watch_statement(statement.as_deref());
        self.watch_parameters(statement.as_deref(), message.body);
        let deeds = statement.as_ref().and_then(|statement| self.lend_for_statement(statement));
        self.bind_portal(names.portal, deeds);
        if statement.as_ref().is_some_and(|statement| wipes(&statement.query)) {
            self.server.ledger.wipe(Wipe::Execute);
        }
        if let Some(statement) = statement.as_ref().filter(|_| unproven) {
            self.wager(statement, &name, message);
        }
        let server_name = statement.as_ref().map_or(NOBODY, |found| self.name_of(found, &name));
        let taking = statement.as_ref().filter(|statement| statement.takes_pids);
        let body = taking.and_then(|of| self.translated_bind(message, Some(&of.query)));
        let message = &message.with(body.as_deref());
        let len = renamed(message, names.statement, server_name)?;
        self.flow.counted.binds += 1;
        if let Some(statement) = &statement {
            self.touch(statement);
            self.server.is_untold = statement.told.is_silent() && names.portal.is_empty();
        }
        self.owe(What::Bind, Some(Arc::clone(&name)));
        self.say(|out| {
            out.push(tag::BIND);
            out.extend_from_slice(&len);
            for name in [names.portal, server_name] {
                out.extend_from_slice(name);
                out.push(0);
            }
        });
        self.pass_body(message, names.rest);
        Ok(Next::On)
    }

    /// Describe or Close.
    fn named(&mut self, message: &Message<'_>, what: What) -> Next {
        let Ok(Named { kind: Namespace::Statement, name }) = Named::read(message.tag, message.body)
        else {
            if what == What::Describe && !self.server.portals.is_empty() {
                self.use_portal(message.body.get(1..).unwrap_or_default(), false);
            }
            if what == What::Describe && self.server.is_untold {
                self.watch_portal(message.body);
            }
            self.pass_as(message, what);
            return Next::On;
        };
        if what == What::Close {
            return self.close(message, name);
        }
        if self.describe_instead(name) {
            return Next::On;
        }
        match self.look_up(name, None) {
            Found::Hold => return Next::Hold,
            Found::AsItIs => {
                if let (b"", Unnamed::Is(statement)) = (name, &self.client.unnamed) {
                    let statement = Arc::clone(statement);
                    self.watch_description(&statement);
                }
                self.pass_as(message, what);
            }
            Found::Nobody(name) => self.describe(NOBODY, name),
            Found::Statement { statement, name, unproven } => {
                if unproven {
                    self.wager(&statement, &name, message);
                }
                self.touch(&statement);
                self.watch_description(&statement);
                let server_name: Box<[u8]> = self.name_of(&statement, &name).into();
                self.describe(&server_name, name);
            }
        }
        Next::On
    }

    pub(crate) fn describe(&mut self, server_name: &[u8], name: Arc<[u8]>) {
        self.owe(What::Describe, Some(name));
        self.say(|out| write::client::describe(out, Namespace::Statement, server_name));
    }

    fn close(&mut self, message: &Message<'_>, name: &[u8]) -> Next {
        if name.is_empty() {
            self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
            self.pass_as(message, What::Close);
            return Next::On;
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Open => return Next::Hold,
            Meaning::Statement(_, name, _) if self.server.ledger.is_long() => {
                self.give_name(&name, None, false);
                self.owe(What::Close, None);
                self.say(|out| write::client::close(out, Namespace::Statement, NOBODY));
            }
            // The statement stays on the server, for others and for next time.
            Meaning::Statement(_, name, _) => self.fake(What::CloseFaked, &name, None),
            // One of ours, which is not this client's to close.
            Meaning::Nothing if name.starts_with(PREFIX) => {
                self.owe(What::Close, None);
                self.say(|out| write::client::close(out, Namespace::Statement, NOBODY));
            }
            // Perhaps it was made by an SQL PREPARE.
            Meaning::Nothing => {
                if self.is_made(name) {
                    self.server.trail.mark_unknown();
                }
                self.pass_as(message, What::Close);
            }
        }
        Next::On
    }

    /// Which statement a Describe or this Bind is about. The server has it by then.
    fn look_up(&mut self, name: &[u8], bind: Option<&Message<'_>>) -> Found {
        if name.is_empty() {
            if let Unnamed::Is(statement) = &self.client.unnamed
                && self.server.trusts_unnamed()
            {
                let statement = Arc::clone(statement);
                if self.hide_ours(&statement) == Looks::Later {
                    return Found::Hold;
                }
                self.lend_for_shape(&statement);
            }
            return if self.have_unnamed(bind) { Found::AsItIs } else { Found::Hold };
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Open => Found::Hold,
            Meaning::Statement(statement, name, _) if self.looks(&statement) => {
                if self.hide_ours(&statement) == Looks::Later {
                    return Found::Hold;
                }
                self.bind_instead(&statement, Some(&name), bind);
                self.lend_for_statement(&statement);
                Found::Statement { statement, name, unproven: false }
            }
            Meaning::Statement(statement, name, unproven) => {
                let statement = if unproven { self.renewed(statement, &name) } else { statement };
                let mut grounded = None;
                if self.lacks(&statement) {
                    match self.suits(&statement, Some(&name), bind) {
                        Fits::Yes => grounded = self.grounded(&statement),
                        Fits::Later => return Found::Hold,
                        Fits::No => return Found::Nobody(name),
                    }
                }
                let statement = grounded.clone().unwrap_or(statement);
                let statement = self.present(&statement).unwrap_or(statement);
                let absent = self.lacks(&statement);
                if absent && unproven {
                    self.client.names(|names| names.prove(&name));
                } else if absent && statement.has_changed() {
                    self.provoke(None);
                    return Found::Nobody(name);
                }
                if !self.have(&statement, grounded.map(|anew| (&name, anew))) {
                    return Found::Hold;
                }
                Found::Statement { statement, name, unproven: unproven && !absent }
            }
            // PostgreSQL says itself that there is no such statement, but for one of ours there is.
            Meaning::Nothing if name.starts_with(PREFIX) => Found::Nobody(name.into()),
            Meaning::Nothing => Found::AsItIs,
        }
    }

    /// Whether the server, which lacks `statement`, can be given it now: by our name for it, or as the unnamed one if the
    /// client has no name for it. If not, the client is to hear why.
    fn suits(
        &mut self,
        statement: &Arc<Statement>,
        name: Option<&Arc<[u8]>>,
        bind: Option<&Message<'_>>,
    ) -> Fits {
        match self.parse_dressed(statement, name.is_none()) {
            Dressed::Later => return Fits::Later,
            Dressed::Struck(error) => {
                self.provoke(Some(error));
                return Fits::No;
            }
            Dressed::No => {}
        }
        self.bind_instead(statement, name, bind);
        let fits = self.fits(statement);
        if fits == Fits::No {
            self.provoke(None);
        }
        fits
    }

    pub(crate) fn lacks(&self, statement: &Statement) -> bool {
        self.server.known.standing(statement.id, &self.server.ledger) == Standing::Absent
    }

    /// What the client has never used, and is not any more what it was for others: it is as it is now.
    fn renewed(&mut self, statement: Arc<Statement>, name: &Arc<[u8]>) -> Arc<Statement> {
        if !statement.has_changed() {
            return statement;
        }
        let Statement { query, types, ground, .. } = &*statement;
        let anew = self.statements.intern(query, types, *ground);
        self.client.names(|names| names.turn_into(name, &anew));
        anew
    }

    /// What the client parsed with other settings than it has now, and this server has not, as it is parsed with these: it is
    /// another statement from then on, for nobody else must come to share it. `None`: it is the same.
    fn grounded(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        let present = self.ground();
        if statement.ground == present || statement.ground == Ground::Unknown {
            return None;
        }
        let anew = self.statements.intern(&statement.query, statement.told_types(), present);
        anew.told.adopt(&statement.told);
        self.dress(&anew);
        Some(anew)
    }

    /// A statement whose text holds the pids of clients, with those of their present servers instead. It is
    /// another one each time they have others.
    fn present(&mut self, statement: &Statement) -> Option<Arc<Statement>> {
        let text = statement.holds_pids.then(|| self.translated_text(&statement.query))??;
        Some(self.statements.intern(&text, &statement.types, statement.ground))
    }

    fn translated_text(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let mut meant = Meant::by(Some(text));
        let translated = self.statements.pids.translated(text, &mut meant);
        self.aim_at(meant);
        translated
    }

    /// The body of a Bind, if a pid is among its parameters. `text`: what it binds, where that is known.
    fn translated_bind(&mut self, message: &Message<'_>, text: Option<&[u8]>) -> Option<Vec<u8>> {
        if message.len as usize != message.body.len() {
            return None;
        }
        let mut meant = Meant::by(text);
        let translated = self.statements.pids.translated_bind(message.body, &mut meant);
        self.aim_at(meant);
        translated
    }

    fn aim_at(&mut self, meant: Meant<'_>) {
        if !meant.servers.is_empty() {
            self.server.signals.get_or_insert_default().means(meant);
        }
    }

    /// The same of a message of a client whose statements nobody keeps apart.
    fn translated(&mut self, message: &Message<'_>, what: What) -> Option<Vec<u8>> {
        if what == What::Bind {
            let asks = self.client.asks_pids;
            return asks.then(|| self.translated_bind(message, None)).flatten();
        }
        if what != What::Parse || message.len as usize != message.body.len() {
            return None;
        }
        let parse = Parse::read(message.body).ok()?;
        self.client.asks_pids |= pids::takes_some(parse.query);
        let text = pids::may_hold(parse.query).then_some(parse.query)?;
        let text = self.translated_text(text)?;
        let mut whole = Vec::new();
        write::client::parse(&mut whole, parse.name, &text, parse.types.as_bytes());
        Some(whole.split_off(5))
    }

    /// See to it that the server has this statement, and that this name of the client's means this other one then. `false`:
    /// not to be said yet.
    fn have(
        &mut self,
        statement: &Arc<Statement>,
        renamed: Option<(&Arc<[u8]>, Arc<Statement>)>,
    ) -> bool {
        match self.server.known.standing(statement.id, &self.server.ledger) {
            // What it executes may have been another's.
            Standing::Prepared if self.executes(statement) => self.inject_close(statement),
            Standing::Prepared => {
                if let Some((name, anew)) = renamed {
                    self.client.names(|names| names.turn_into(name, &anew));
                }
                return true;
            }
            Standing::Open => return false,
            Standing::Absent => self.make_room(statement),
        }
        self.lend_for_shape(statement);
        if let Some((name, anew)) = renamed {
            // Should it fail, all is as it was: where it can be parsed as it was meant, it is.
            self.give_name(name, Some(&anew), false);
        }
        self.learn(statement);
        let types = self.types(statement);
        self.inject(What::Parse, |out| {
            write::client::parse(out, &statement.name, &statement.query, types);
        });
        true
    }

    /// See to it that the server's unnamed statement is the client's. `false`: not to be said yet.
    fn have_unnamed(&mut self, bind: Option<&Message<'_>>) -> bool {
        if !self.server.trusts_unnamed() {
            return false;
        }
        let present = match &self.client.unnamed {
            Unnamed::Is(statement) if statement.holds_pids => {
                let statement = Arc::clone(statement);
                self.present(&statement)
            }
            _ => None,
        };
        let is_present = present.is_some();
        let wanted = present.map_or_else(|| self.client.unnamed.clone(), Unnamed::Is);
        if wanted.is_same(&self.server.unnamed) || planted::is("unnamed-of-others") {
            return true;
        }
        match &wanted {
            Unnamed::Unknown => {}
            Unnamed::Is(statement) => match self.suits(statement, None, bind) {
                Fits::Yes => self.parse_unnamed(statement, is_present),
                Fits::Later => return false,
                Fits::No => {}
            },
            Unnamed::Nothing => {
                self.server.set_unnamed(None, &wanted);
                self.inject(What::Close, |out| {
                    write::client::close(out, Namespace::Statement, b"");
                });
            }
        }
        true
    }

    /// The client's unnamed statement goes, in front of another that is to come.
    fn close_unnamed(&mut self) {
        self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Nothing);
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, b""));
    }

    /// The server is given the client's unnamed statement: as it is now, or with others' pids in it as they are now.
    fn parse_unnamed(&mut self, statement: &Arc<Statement>, is_present: bool) {
        let anew = self.grounded(statement).unwrap_or_else(|| Arc::clone(statement));
        self.server.set_unnamed(None, &Unnamed::Is(Arc::clone(&anew)));
        if !is_present {
            let before =
                std::mem::replace(&mut self.client.unnamed, Unnamed::Is(Arc::clone(&anew)));
            self.server.ledger.note(Undo::Turned(before));
        }
        let types = self.types(&anew);
        self.inject(What::Parse, |out| write::client::parse(out, b"", &anew.query, types));
    }

    /// Close what was not used for longest, until there is room for one more.
    pub(crate) fn make_room(&mut self, statement: &Statement) {
        let weight = statement.weight();
        while let Some(old) = self.server.known.in_the_way(weight, self.rules, &self.server.ledger)
        {
            self.inject_close(&old);
        }
    }

    pub(crate) fn inject_close(&mut self, statement: &Statement) {
        let (at, id) = (self.server.ledger.next(), statement.id);
        let before = self.server.known.close(id, at);
        self.server.ledger.note(Undo::Known { id, before });
        self.inject(What::Close, |out| {
            write::client::close(out, Namespace::Statement, &statement.name);
        });
    }

    /// Put in a message of our own.
    pub(crate) fn inject(&mut self, what: What, fill: impl FnOnce(&mut Vec<u8>)) {
        if what == What::Parse {
            self.flow.counted.server_parses += 1;
        }
        self.server.phase = Phase::Unsynced;
        self.server.ledger.push(what, Whose::Ours, None);
        self.say(fill);
    }

    /// The next entry makes the server prepare this.
    fn learn(&mut self, statement: &Arc<Statement>) {
        let at = self.server.ledger.next();
        let before = self.server.known.prepare(statement, at);
        self.server.ledger.note(Undo::Known { id: statement.id, before });
    }

    /// The next entry needs this.
    fn touch(&mut self, statement: &Statement) {
        self.server.known.touch(statement.id, self.server.ledger.next());
    }

    /// The next entry gives this meaning to a name of the client's.
    pub(crate) fn give_name(
        &mut self,
        name: &Arc<[u8]>,
        statement: Option<&Arc<Statement>>,
        unproven: bool,
    ) {
        let since = self.server.ledger.next();
        let meaning = Name { statement: statement.cloned(), since, unproven };
        let before = self.client.names(|names| names.put(name, Some(meaning)));
        self.server.ledger.note(Undo::Name { name: Arc::clone(name), before });
    }

    /// Answer a Parse or Close ourselves, now or when its turn comes.
    fn fake(&mut self, what: What, name: &Arc<[u8]>, statement: Option<&Arc<Statement>>) {
        self.server.phase = Phase::Unsynced;
        if let Some(statement) = statement {
            self.touch(statement);
        }
        // Half a notice may have gone to the client, and nothing must come between its halves.
        let wait = !self.server.ledger.is_empty() || self.server.is_torn();
        if wait && !planted::is("own-answers-out-of-turn") {
            self.give_name(name, statement, true);
            self.owe(what, None);
            return;
        }
        let meaning = statement.map(|statement| Name {
            statement: Some(Arc::clone(statement)),
            since: 0,
            unproven: true,
        });
        self.client.names(|names| names.put(name, meaning));
        self.flow.to_client.say(|out| answer(what, out));
    }

    pub(crate) fn pass_as(&mut self, message: &Message<'_>, what: What) {
        self.owe(what, None);
        self.pass(message);
    }

    /// Pass on what is in hand of a message, header and all.
    fn pass(&mut self, message: &Message<'_>) {
        match message.place {
            Place::Input { end, with_header: true } => {
                self.pass_range(end - message.body.len() - 5..end);
            }
            _ => {
                self.say(|out| out.extend_from_slice(&message.header));
                self.pass_body(message, 0);
            }
        }
    }

    /// Pass on what is in hand of a body, from here.
    fn pass_body(&mut self, message: &Message<'_>, from: usize) {
        match message.place {
            Place::Input { end, .. } => self.pass_range(end - message.body.len() + from..end),
            Place::Kept { .. } => {
                let rest = message.body.get(from..).unwrap_or_default();
                self.say(|out| out.extend_from_slice(rest));
            }
        }
    }

    #[inline]
    fn pass_piece(&mut self, piece: &Piece<'_>, end: usize) {
        let body = end - piece.body.len()..end;
        if !piece.first {
            self.pass_range(body);
        } else if piece.head == 5 {
            self.pass_range(body.start - 5..end);
        } else {
            self.say(|out| out.extend_from_slice(&piece.header()));
            self.pass_range(body);
        }
    }

    #[inline]
    fn pass_range(&mut self, range: Range<usize>) {
        if self.passes {
            self.flow.to_server.pass(range);
        } else {
            let bytes = self.input.get(range).unwrap_or_default();
            self.flow.to_server.say(|out| out.extend_from_slice(bytes));
        }
    }

    pub(crate) fn say(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.flow.to_server.say(fill);
    }
}

/// A statement of ours that is run by names that are nobody's, message by message.
pub(crate) fn passing(sql: &[u8]) -> [(What, Vec<u8>); 6] {
    use What::{Bind, Close, Execute, Parse};
    let mut messages = [Close, Parse, Bind, Execute, Close, Close].map(|what| (what, Vec::new()));
    let [(_, first), (_, parse), (_, bind), (_, execute), (_, close), (_, forget)] = &mut messages;
    // The last time may have been cut short by an error, and have left it behind.
    write::client::close(first, Namespace::Statement, SCRATCH);
    write::client::parse(parse, SCRATCH, sql, b"");
    write::message(bind, tag::BIND, |out| {
        out.extend_from_slice(&[SCRATCH, SCRATCH].join(&0));
        out.extend_from_slice(&[0; 7]);
    });
    write::message(execute, tag::EXECUTE, |out| {
        out.extend_from_slice(SCRATCH);
        out.extend_from_slice(&[0; 5]);
    });
    write::client::close(close, Namespace::Portal, SCRATCH);
    write::client::close(forget, Namespace::Statement, SCRATCH);
    messages
}

/// What a name in a Bind or Describe comes to.
enum Found {
    /// Ours, and this is the client's name for it.
    Statement {
        statement: Arc<Statement>,
        name: Arc<[u8]>,
        /// Others prepared it, and the client uses it for the first time.
        unproven: bool,
    },
    /// To be looked for under a name that nobody has.
    Nobody(Arc<[u8]>),
    /// The name is left as it is.
    AsItIs,
    Hold,
}

/// What we answer to a message that we did not send.
pub(crate) fn answer(what: What, out: &mut Vec<u8>) {
    match what {
        What::ParseFaked => write::server::parse_complete(out),
        What::CloseFaked => write::server::close_complete(out),
        _ => {}
    }
}

/// Whether this may be a `DEALLOCATE ALL` or `DISCARD ALL`. What it really was its command tag says;
/// until then, nothing is said that depends on it.
fn wipes(text: &[u8]) -> bool {
    let text = behind_comments(text);
    // It may be here in part only.
    let starts = |word: &[u8]| {
        let len = word.len().min(text.len());
        text[..len].eq_ignore_ascii_case(&word[..len])
    };
    match text.first() {
        Some(b'd' | b'D') => starts(b"deallocate") || starts(b"discard"),
        None => true,
        _ => false,
    }
}

/// What follows the space and comments that a text begins with. Block comments may stand in each other.
pub(crate) fn behind_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        text = match text {
            [b'-', b'-', rest @ ..] => {
                let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                end.and_then(|end| rest.get(end..)).unwrap_or_default()
            }
            [b'/', b'*', ..] => {
                let (mut rest, mut depth) = (text, 0_usize);
                loop {
                    match rest {
                        [b'/', b'*', after @ ..] => (rest, depth) = (after, depth + 1),
                        [b'*', b'/', after @ ..] => (rest, depth) = (after, depth - 1),
                        [_, after @ ..] => rest = after,
                        [] => break,
                    }
                    if depth == 0 {
                        break;
                    }
                }
                rest
            }
            _ => return text,
        }
    }
}

/// The length field of a message in which a name is replaced.
fn renamed(message: &Message<'_>, old: &[u8], new: &[u8]) -> Result<[u8; 4], Fault> {
    let len = (message.len as usize + 4).saturating_sub(old.len()).saturating_add(new.len());
    match i32::try_from(len) {
        Ok(len) => Ok(len.to_be_bytes()),
        Err(_) => Err(Fault::TooLong { tag: message.tag }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_do_away_with_all_statements_is_known_by_its_first_word() {
        for text in
            ["DEALLOCATE ALL", " discard all", "/* a /* b */ */ -- c\n Deallocate", "dea", "", "--"]
        {
            assert!(wipes(text.as_bytes()), "{text}");
        }
        for text in ["select 1", "/* deallocate */ select 1", "do $$x$$", "- -", "/ *", "-"] {
            assert!(!wipes(text.as_bytes()), "{text}");
        }
    }
}
