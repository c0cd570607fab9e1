//! From the client to the server.

use std::ops::Range;
use std::sync::Arc;

use sql::Unseen;
use wire::tag::client as tag;
use wire::{BindNames, Namespace, Parse, Piece, write};

use crate::ages::Change;
use crate::beliefs::{Origin, Scene};
use crate::client::ClientSide;
use crate::flow::{Aside, Flow};
use crate::hidden::{Errand, Quest};
use crate::ledger::{What, Whose, Wipe};
use crate::overloads::When;
use crate::pids::{self, Meant};
use crate::reading::{Marks, Reading, Tells};
use crate::refusal;
use crate::relay::Said;
use crate::rules::{Fault, Rules};
use crate::sequences::{Pending, SOON};
use crate::server::{Copying, Phase, ServerSide, Unnamed};
use crate::state::Tie;
use crate::statements::{Ground, NOBODY, SCRATCH, Statement, Statements};
use crate::text::{HEAD_MAX, READ_MAX};
use crate::trail::Heed;

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
    pub(crate) tag: u8,
    /// Bytes in the whole body.
    pub(crate) len: u32,
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
    pub(crate) fn with(&self, body: Option<&'a [u8]>) -> Self {
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
pub(crate) enum Next {
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
        if self.waits_for_dress(self.input) {
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
            if !rest.is_empty()
                && matches!(piece.tag, tag::SYNC | tag::QUERY)
                && self.waits_for_dress(rest)
            {
                return Ok(Said::Held);
            }
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
        if piece.first && self.server.regains.is_some() {
            self.regain_before_more();
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
        piece.first && !begins && self.server.phase != Phase::Skipping
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
        if piece.tag == tag::QUERY {
            self.skim(piece.body, piece.ends);
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
                    self.watch_call(piece.body);
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
                    self.watch(&reading, text, Origin::Query);
                    may_wipe |= reading.marks.has(Marks::WIPES);
                    if self.rules.rewrites() {
                        self.lend_for_query(&reading);
                    }
                }
                text => {
                    let text = text.filter(|_| piece.is_whole()).map(|(_, text)| text);
                    // What is put in front of it may set things, too.
                    let strings = self.strings();
                    self.mark_unknown(text);
                    if !piece.is_whole() {
                        self.begin_to_skim(None, strings);
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
    fn watch(&mut self, reading: &Arc<Reading>, text: &[u8], origin: Origin<'_>) {
        self.doubt_strings(text);
        let heed = self.server.trail.heed(reading, self.statements.ages());
        if reading.is_idle && heed == Heed::Nothing {
            self.server.trail.pass();
            return;
        }
        if self.gives_up_own(reading) {
            return;
        }
        if !reading.deeds.is_empty() {
            self.watch_deeds(reading, text);
        }
        if reading.changes != Change::Nothing {
            self.watch_change(reading);
        }
        let reading = self.tamed(reading);
        self.tell_strings(reading, text);
        let scene = self.scene(reading, text, origin);
        self.watch_sequences(reading, scene, heed);
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
            self.server.trail.pass();
            self.server.trail.mark(reading, scene);
        }
        self.lend_voice(reading);
    }

    /// What stands in the strings of a text may be run by what it calls.
    #[inline]
    pub(crate) fn tell_strings(&mut self, reading: &Arc<Reading>, text: &[u8]) {
        if reading.tells != Tells::Nothing && self.may_tell(reading) {
            self.server.trail.tell(Some(reading), Errand::of_text(reading.tells, text));
        }
    }

    /// Whether what a text calls may run what it is told, as far as that is known.
    #[cold]
    pub(crate) fn may_tell(&self, reading: &Reading) -> bool {
        let place = self.statements.place(self.server.trail.habit.number());
        let depths = Quest::recall(place, &reading.names);
        depths.map_or(!reading.names.is_empty(), |depths| depths.executes)
    }

    /// What a text is here, where something is known of what it calls.
    #[inline]
    pub(crate) fn tamed<'a>(&self, reading: &'a Arc<Reading>) -> &'a Arc<Reading> {
        reading.tame.as_ref().filter(|_| self.is_tame(reading)).unwrap_or(reading)
    }

    #[cold]
    fn is_tame(&self, reading: &Reading) -> bool {
        let habit = &self.server.trail.habit;
        let place = self.statements.place(habit.number());
        let depths = if self.rules.doubts { None } else { Quest::recall(place, &reading.names) };
        let names = habit.overloads.known(When::of(place.ages));
        depths
            .zip(names)
            .is_some_and(|(depths, names)| depths.are_idle() && !names.meets(depths.overloadable))
    }

    /// A statement is about to be run; `None`: one that nobody has seen.
    pub(crate) fn watch_statement(&mut self, statement: Option<&Statement>) {
        if !self.rules.watches() {
            return;
        }
        match statement {
            Some(statement) if self.client.vars.can_read(&statement.query) => {
                let reading = Arc::clone(self.statements.reading_of(statement));
                self.watch(&reading, &statement.query, Origin::Statement(statement));
            }
            statement => self.mark_unknown(statement.map(|statement| &*statement.query)),
        }
    }

    /// What sequences gave others is discarded before this client could find it.
    pub(crate) fn watch_sequences(&mut self, reading: &Arc<Reading>, scene: Scene, heed: Heed) {
        if heed != Heed::Touched && !self.server.trail.habit.concerns(reading.marks) {
            return;
        }
        let has_seam = self.server.trail.sequences.seam.is_some();
        if self.server.is_aborted() && !has_seam {
            // It is not run.
            return;
        }
        let mut marks = self.with_hidden(reading);
        self.server.trail.know_errands();
        if heed == Heed::Touched {
            marks = self.with_overloads(marks);
        }
        let (trail, client) = (&mut self.server.trail, &mut *self.client);
        let (has, ledger) = (&mut client.remembers, &self.server.ledger);
        if !trail.sequences.run((reading, scene, marks), client.pid, has, &trail.habit, ledger) {
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

    /// What a text has to do with sequences, where it calls functions that may read what these gave, or where something
    /// behind its tables may.
    fn with_hidden(&self, reading: &Reading) -> Marks {
        let (marks, habit) = (reading.marks, &self.server.trail.habit);
        if !habit.may_read_behind(marks) || marks.has(Marks::SEQUENCE) || reading.names.is_empty() {
            return marks;
        }
        let place = self.statements.place(habit.number());
        match Quest::recall(place, &reading.names) {
            None => marks.and(Marks::MAY_READ),
            Some(depths) => {
                // A function may be told to read them.
                let mut told = self.server.trail.new_errands();
                let is_told = depths.executes && told.any(|errand| errand.may_read(place));
                let marks = if is_told { marks.and(Marks::MAY_READ) } else { marks };
                if !depths.unseen.contains(Unseen::READS) {
                    marks
                } else if depths.unseen.contains(Unseen::GIVES) {
                    marks.and(Marks::SEQUENCE)
                } else {
                    marks.without(Marks::MAY_GIVE).and(Marks::SEQUENCE)
                }
            }
        }
    }

    /// The same, where functions of others may run that nobody sees.
    fn with_overloads(&self, marks: Marks) -> Marks {
        let ages = self.statements.ages();
        let found = self.server.trail.habit.overloads.find(When::of(ages));
        let unseen = found.map_or(Unseen::empty(), |found| found.does.unseen);
        marks.and(Marks::of_unseen(unseen & (Unseen::GIVES | Unseen::READS)))
    }

    /// Whether what is run next could find what sequences gave others, or be taken for what finds it: that depends on an
    /// answer still to come.
    fn awaits_discard(&self) -> bool {
        self.server.trail.sequences.are_open(&self.server.ledger)
    }

    /// Whether a DISCARD may have its place in front of what is run next, of which nobody knows the text, and would be
    /// refused there if a transaction failed, of which the answer is still to come.
    fn awaits_status(&self) -> bool {
        !self.rules.rewrites()
            && self.server.trail.sequences.may_be_of_others(self.client.pid)
            && self.server.ledger.ends_later()
    }

    pub(crate) fn mark_unread(&mut self) {
        self.server.trail.mark_unread();
        self.lend_voice(&Reading::unknown());
    }

    /// Whether there is no statement that PostgreSQL could find by this name, of which we have none: it says so
    /// itself, and nothing of ours is to fail in front of that.
    pub(crate) fn is_absent(&self, name: &[u8]) -> bool {
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
    pub(crate) fn owe(&mut self, what: What, name: Option<Arc<[u8]>>) {
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
            self.skim(piece.body, piece.ends);
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
        if self.server.phase == Phase::Skipping {
            return true;
        }
        if !self.rules.rewrites() {
            return !self.wants_more(tag, body);
        }
        (tag != tag::PARSE && body.len() > NAMES_MAX)
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
        if what == What::Parse && message.whole().is_some_and(|body| self.refuses_parse(body)) {
            return Ok(Next::On);
        }
        if what == What::Bind && (self.awaits_discard() || self.awaits_status()) {
            return Ok(self.hold_message(message));
        }
        if !self.rules.rewrites() {
            if matches!(what, What::Parse | What::Close) {
                self.server.set_unnamed(Some(&mut *self.client), &Unnamed::Unknown);
            }
            match what {
                What::Parse => {
                    self.watch_parsed(message);
                    if let Ok(parse) = Parse::read(message.body) {
                        self.look_for_resetters(parse.name, parse.query);
                    }
                }
                What::Bind => {
                    if let Some(names) = BindNames::find(message.body) {
                        self.look_for_resetter(names.statement);
                    }
                    self.watch_statement(None);
                    self.watch_bound(message.body);
                    self.watch_parameters(None, message);
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
            return Ground::Known(self.server.trail.habit.number());
        }
        let changes = self.server.underway.is_some();
        if changes || !self.server.trail.workshop.is_settled() {
            return Ground::Unknown;
        }
        Ground::Known(self.server.trail.ground(self.client.state.as_deref(), &self.client.vars))
    }

    pub(crate) fn translated_text(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let mut meant = Meant::by(Some(text));
        let translated = self.statements.pids.translated(text, &mut meant);
        self.aim_at(meant);
        translated
    }

    /// The body of a Bind, if a pid is among its parameters. `text`: what it binds, where that is known.
    pub(crate) fn translated_bind(
        &mut self,
        message: &Message<'_>,
        text: Option<&[u8]>,
    ) -> Option<Vec<u8>> {
        let mut meant = Meant::by(text);
        let translated = self.statements.pids.translated_bind(message.whole()?, &mut meant);
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
        let parse = Parse::read(message.whole().filter(|_| what == What::Parse)?).ok()?;
        self.client.asks_pids |= pids::takes_some(parse.query);
        let text = pids::may_hold(parse.query).then_some(parse.query)?;
        let text = self.translated_text(text)?;
        let mut whole = Vec::new();
        write::client::parse(&mut whole, parse.name, &text, parse.types.as_bytes());
        Some(whole.split_off(5))
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

    pub(crate) fn pass_as(&mut self, message: &Message<'_>, what: What) {
        self.owe(what, None);
        self.pass(message);
    }

    /// Pass on what is in hand of a message, header and all.
    pub(crate) fn pass(&mut self, message: &Message<'_>) {
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
    pub(crate) fn pass_body(&mut self, message: &Message<'_>, from: usize) {
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
    write::client::bind(bind, SCRATCH, SCRATCH);
    write::client::execute(execute, SCRATCH);
    write::client::close(close, Namespace::Portal, SCRATCH);
    write::client::close(forget, Namespace::Statement, SCRATCH);
    messages
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
pub(crate) fn wipes(text: &[u8]) -> bool {
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
