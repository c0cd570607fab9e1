//! Names that the protocol and SQL share: what the one prepared, the other may use and give up.
//!
//! On servers a client's statements have names of ours. A text that calls one by the client's name gets it
//! under that name for just as long: prepared in front of it, closed behind it.

use std::sync::Arc;

use wire::{Namespace, Status, write};

use crate::beliefs::{Origin, Scene};
use crate::fit::is_execute;
use crate::hidden::Errand;
use crate::inward::Inward;
use crate::ledger::{What, Whose};
use crate::made::{Deed, Made};
use crate::names::Meaning;
use crate::outward::{Message, Outward};
use crate::reading::{Marks, Reading, Tells};
use crate::server::{Own, Phase, ServerSide};
use crate::statements::{SCRATCH, Statement, TAKEN};
use crate::text::{dotted_names, executed};
use crate::trail::Heed;
use crate::{ClientSide, Trail};

/// A name of the client's, and what it means, or nothing but that it is taken: what is given up by its name need
/// not be prepared any more, and perhaps it cannot be.
type Loan = (Arc<[u8]>, Option<Arc<Statement>>, Use);

/// A name of the client's that the server has for a moment.
#[derive(Debug)]
pub(crate) struct Lent {
    name: Arc<[u8]>,
    stands: Stands,
    /// What was to be lent, where another may have the name that fails when it is run.
    doubted: Option<Arc<Statement>>,
}

/// What a lent name stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stands {
    ForStatement,
    /// It is taken, and stands for nothing that could be executed.
    ForNothing,
    /// It was called in. A batch that failed has perhaps not heard of it.
    Revoked,
}

/// What a loan is for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Use {
    /// It is given up, or its name is to be found taken.
    Name,
    /// It is to be found in the list of statements.
    List,
    Execution,
}

/// Names of ours that stand for nothing, and may have been left behind.
const PASSING: [&[u8]; 2] = [TAKEN, SCRATCH];

/// Whether a statement looks at the list of statements, which then is to be in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Looks {
    No,
    Yes,
    /// It does, and an answer has to come first.
    Later,
}

/// Statements that execute each other, further than anybody goes.
const DEPTH_MAX: usize = 8;
/// Portals of one transaction that execute or deallocate by name, more than anybody has.
const PORTALS_MAX: usize = 256;

/// What SQL has prepared by this name, as far as is known.
fn made_as<'a>(name: &[u8], trail: &'a Trail, client: &'a ClientSide) -> Option<&'a Made> {
    let made = client.state.as_deref().map_or(&[][..], crate::State::made);
    trail.prepared(name).or_else(|| made.iter().find(|made| *made.name == *name))
}

impl Outward<'_> {
    /// Whether a text does nothing but give up a statement that only the protocol has made: nothing of that shows on a server.
    pub(crate) fn gives_up_own(&self, reading: &Reading) -> bool {
        reading.marks.has(Marks::GIVES_UP)
            && reading.deeds.iter().all(|deed| match deed {
                Deed::Deallocate(name) if !self.is_made(name) => {
                    let meaning = self.client.meaning(name, &self.server.ledger);
                    matches!(meaning, Meaning::Statement(..))
                }
                _ => false,
            })
    }

    /// A text is about to be run that prepares, executes or deallocates by name.
    pub(crate) fn watch_deeds(&mut self, reading: &Reading, text: &[u8]) {
        if reading.deeds.iter().any(|deed| matches!(deed, Deed::Execute(_))) {
            // What is executed may be given the name of a setting.
            for name in &dotted_names(text) {
                self.server.trail.hear(name);
            }
            // And by whom, nobody asks.
            self.server.trail.tell(None, Errand::of_text(reading.tells, text));
        }
        self.watch_executed(reading, 0);
        self.server.trail.mark_deeds(reading, text, &self.server.vars);
    }

    /// What it executes may execute something in its turn.
    fn watch_executed(&mut self, reading: &Reading, depth: usize) {
        for deed in &reading.deeds {
            let Deed::Execute(name) = deed else { continue };
            if !self.watch_prepared(name, depth) {
                self.server.trail.mark_unread();
                let unread = Reading::new(crate::sequences::unread(None), Box::default());
                self.watch_sequences(&Arc::new(unread), Scene::default(), Heed::Nothing);
            }
        }
    }

    /// A statement is about to be run that was prepared by this name. `false`: nobody knows what that is.
    pub(crate) fn watch_prepared(&mut self, name: &[u8], depth: usize) -> bool {
        let Some((reading, ground)) = self.prepared_as(name).filter(|_| depth < DEPTH_MAX) else {
            return false;
        };
        let heed = self.server.trail.heed(&reading, self.statements.ages());
        if reading.tells != Tells::Nothing && self.may_tell(&reading) {
            let errand = self.told_by(name, &reading);
            self.server.trail.tell(Some(&reading), errand);
        }
        let reading = Arc::clone(self.tamed(&reading));
        let scene = self.scene(&reading, b"", Origin::Made(ground));
        self.watch_sequences(&reading, scene, heed);
        self.server.trail.mark(&reading, scene);
        self.watch_executed(&reading, depth + 1);
        true
    }

    /// What executing the statement of this name may do, and a number for the ground on which it was prepared.
    pub(crate) fn prepared_as(&mut self, name: &[u8]) -> Option<(Arc<Reading>, u64)> {
        if let Some(Made { text, ground, .. }) = made_as(name, &self.server.trail, self.client) {
            let whole = self.statements.reading(text);
            let [Deed::Prepare { body, .. }] = &*whole.deeds else { return None };
            return Some((self.statements.reading(text.get(*body..)?), *ground));
        }
        match self.client.meaning(name, &self.server.ledger) {
            Meaning::Statement(statement, ..) => {
                let reading = Arc::clone(self.statements.reading_of(&statement));
                Some((reading, statement.ground_number()))
            }
            _ => None,
        }
    }

    /// What it may tell whom it calls.
    fn told_by(&self, name: &[u8], reading: &Reading) -> Errand {
        match (
            made_as(name, &self.server.trail, self.client),
            self.client.meaning(name, &self.server.ledger),
        ) {
            (Some(made), _) => Errand::of_text(reading.tells, &made.text),
            (None, Meaning::Statement(statement, ..)) => {
                Errand::of_text(reading.tells, &statement.query)
            }
            (None, _) => Errand::default(),
        }
    }

    /// Whether SQL has made a statement of this name, so far as is known.
    pub(crate) fn is_made(&self, name: &[u8]) -> bool {
        let made = self.client.state.as_deref().map_or(&[][..], crate::State::made);
        self.server.trail.may_have_made(name) || made.iter().any(|made| *made.name == *name)
    }

    /// A Parse under a name that SQL may have given already: PostgreSQL says whether it has.
    pub(crate) fn parse_beside(
        &mut self,
        name: &[u8],
        statement: &Arc<Statement>,
        message: &Message<'_>,
    ) {
        self.flow.counted.client_parses += 1;
        let name: Arc<[u8]> = name.into();
        self.give_name(&name, Some(statement), false);
        self.pass_as(message, What::Parse);
        self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, &name));
    }

    /// What a simple query calls by the client's names it gets under these; and if it looks at the list, it
    /// finds the client's and not ours.
    pub(crate) fn lend_for_query(&mut self, reading: &Reading) {
        if reading.deeds.is_empty() && !reading.marks.has(Marks::LOOKS) {
            return;
        }
        if self.server.phase != Phase::Synced {
            // It is the end of a batch, and no Sync of ours is to be.
            if !reading.deeds.is_empty() && !self.server.is_aborted() {
                self.lend_in_batch(reading);
            }
            return self.expect_deallocates(reading, self.server.ledger.next());
        }
        let loans = self.loans(reading);
        let looks = self.shows_list(reading) && self.server.ledger.owes_only_us();
        let ours = if looks { self.forget_ours() } else { Vec::new() };
        if !loans.is_empty() || !ours.is_empty() {
            self.lend_before(&ours, loans);
        }
        self.expect_deallocates(reading, self.server.ledger.next());
    }

    /// As `lend_for_query`, where no more than the beginning of a long text is here.
    pub(crate) fn lend_for_beginning(&mut self, text: &[u8]) {
        let may = self.rules.rewrites() && !self.server.ledger.may_skip();
        if may && self.client.vars.can_read(text) {
            let mut reading = Reading::unknown();
            reading.deeds = executed(text);
            self.lend_for_query(&reading);
        }
    }

    /// Whether a query calls names that cannot be lent yet: a batch that may have failed has no Sync of its own, and one of
    /// ours would be the end of what is skipped; or what they mean depends on an answer still to come.
    pub(crate) fn waits_to_lend(&mut self, body: &[u8]) -> bool {
        let server = &*self.server;
        if server.ledger.is_empty() || !self.client.has_names() || !self.rules.watches() {
            return false;
        }
        let may_skip = server.phase == Phase::Synced && server.ledger.may_skip();
        let text = body.split_last().map_or(body, |(_, text)| text);
        let reads = self.rules.rewrites() && self.client.vars.can_read(text);
        reads && {
            let reading = self.statements.reading(text);
            self.calls_open(&reading, 0) || may_skip && !self.loans(&reading).is_empty()
        }
    }

    /// Whether `statement` calls a name of which an answer still to come tells what it means.
    #[inline]
    pub(crate) fn waits_for_names(&mut self, statement: &Statement) -> bool {
        let may = !self.server.ledger.is_empty() && self.client.has_names() && self.rules.watches();
        may && self.calls_unsettled(statement)
    }

    #[cold]
    fn calls_unsettled(&mut self, statement: &Statement) -> bool {
        if !self.client.vars.can_read(&statement.query) {
            return false;
        }
        let reading = self.statements.reading_of(statement);
        !reading.deeds.is_empty() && {
            let reading = Arc::clone(reading);
            self.calls_open(&reading, 0)
        }
    }

    fn calls_open(&mut self, reading: &Reading, depth: usize) -> bool {
        reading.deeds.iter().any(|deed| {
            let (Deed::Execute(name) | Deed::Deallocate(name) | Deed::Prepare { name, .. }) = deed;
            match self.client.meaning(name, &self.server.ledger) {
                Meaning::Open => true,
                Meaning::Statement(statement, ..) if depth < DEPTH_MAX => {
                    let executed = Arc::clone(self.statements.reading_of(&statement));
                    matches!(deed, Deed::Execute(_)) && self.calls_open(&executed, depth + 1)
                }
                _ => false,
            }
        })
    }

    fn lend_before(&mut self, ours: &[Box<[u8]>], loans: Vec<Loan>) {
        for name in ours {
            self.say(|out| write::client::close(out, Namespace::Statement, name));
        }
        for loan in loans {
            self.lend_apart(loan);
        }
        self.lend(|_| {});
    }

    /// In batches of its own: one that cannot be prepared now is to stand in no other's way.
    fn lend_apart(&mut self, loan: Loan) {
        let (name, statement, purpose) = &loan;
        let quiet = self.is_quiet();
        let may_try = quiet || *purpose == Use::Execution && self.can_undo();
        let differs = statement.clone().filter(|statement| may_try && self.may_differ(statement));
        let on = differs.as_ref().and_then(|statement| self.put_on(statement));
        let (off, is_inside) = (self.take_off(), on.is_some() && !quiet);
        self.unlend(name);
        if let Some(on) = &on {
            self.run_ours(Own::Lend, on.iter().map(Vec::as_slice));
            self.lend(|out| parse(&loan, out));
            self.run_ours(Own::Lend, off.iter().copied().take(1));
        }
        // What is there already, another does not replace.
        match differs.filter(|_| quiet || on.is_some()) {
            _ if *purpose == Use::List && quiet => {
                self.lend(|out| parse(&loan, out));
                self.lend(|out| parse(&(Arc::clone(name), None, Use::Name), out));
                return self.server.lent.push((loan.0, None, Use::Name).into());
            }
            Some(statement) => {
                // What has become another is that by the settings in force, as PostgreSQL has it.
                let at = self.server.ledger.next();
                self.lend(|out| parse(&loan, out));
                if is_inside {
                    self.run_ours(Own::Lend, off.iter().copied().take(1));
                }
                self.lend_failing(name, &statement, at);
                if is_inside {
                    self.run_ours(Own::Lend, off.iter().copied());
                }
                let doubted = Some(statement);
                return self.server.lent.push(Lent { doubted, ..loan.into() });
            }
            None => self.lend(|out| parse(&loan, out)),
        }
        self.server.lent.push(loan.into());
    }

    /// Whether nothing of the client's is under way, in no transaction.
    fn is_quiet(&self) -> bool {
        self.server.status == Status::Idle && self.can_undo()
    }

    /// Whether what is done now for ourselves can be undone.
    fn can_undo(&self) -> bool {
        let server = &self.server;
        server.phase == Phase::Synced
            && server.status != Status::Failed
            && server.ledger.owes_only_us()
    }

    /// A batch of ours, of which nobody hears.
    pub(crate) fn lend(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        self.say(fill);
        self.say(write::client::sync);
        self.server.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
    }

    /// The names of all that is ours on the server, or may be: it is closed now.
    fn forget_ours(&mut self) -> Vec<Box<[u8]>> {
        let mut ours = self.server.known.forget_all();
        ours.extend(PASSING.map(Box::from));
        ours
    }

    /// Whether `statement` looks at the list of statements: then it is to find the client's, and none of ours.
    pub(crate) fn looks(&mut self, statement: &Statement) -> bool {
        self.rules.watches()
            && self.client.vars.can_read(&statement.query)
            && self.statements.reading_of(statement).marks.has(Marks::LOOKS)
    }

    /// Whether what is run by a text looks at the list: itself, or what it executes.
    fn shows_list(&mut self, reading: &Reading) -> bool {
        let mut executes = |deed: &Deed| match deed {
            Deed::Execute(name) => {
                self.prepared_as(name).is_some_and(|(reading, _)| reading.marks.has(Marks::LOOKS))
            }
            _ => false,
        };
        reading.marks.has(Marks::LOOKS) || reading.deeds.iter().any(&mut executes)
    }

    /// A statement is about to be used that may look at the list. Ours go, as far as that can be done now.
    pub(crate) fn hide_ours(&mut self, statement: &Statement) -> Looks {
        if !self.rules.watches() || !self.client.vars.can_read(&statement.query) {
            return Looks::No;
        }
        let reading = self.statements.reading_of(statement);
        if !reading.marks.has(Marks::LOOKS) && reading.deeds.is_empty() {
            return Looks::No;
        }
        let reading = Arc::clone(reading);
        if !self.shows_list(&reading) {
            return Looks::No;
        }
        if self.server.phase != Phase::Synced {
            for ours in self.server.known.all() {
                self.inject_close(&ours);
            }
            for name in PASSING {
                self.inject(What::Close, |out| {
                    write::client::close(out, Namespace::Statement, name)
                });
            }
            return Looks::Yes;
        }
        let hidden = Some((self.client.pid, self.server.ledger.next()));
        if self.server.hidden == hidden {
            // Nothing was said since.
            return Looks::Yes;
        }
        if !self.server.ledger.owes_only_us() {
            return Looks::Later;
        }
        let ours = self.forget_ours();
        // What cannot be prepared now would end a transaction.
        let loans =
            if self.server.status == Status::Idle { self.loans(&reading) } else { Vec::new() };
        if !loans.is_empty() || !ours.is_empty() {
            self.lend_before(&ours, loans);
        }
        self.server.hidden = Some((self.client.pid, self.server.ledger.next()));
        Looks::Yes
    }

    /// A Parse of a statement that looks at the list, under a name that is free. It is to find itself there by
    /// this name. `false`: not to be said yet.
    pub(crate) fn parse_looking(
        &mut self,
        name: &[u8],
        statement: &Arc<Statement>,
        message: &Message<'_>,
    ) -> bool {
        if self.hide_ours(statement) == Looks::Later {
            return false;
        }
        let name: Arc<[u8]> = name.into();
        self.unlend_in_batch(&name);
        self.server.lent.push(Lent::of(&name));
        self.flow.counted.client_parses += 1;
        self.give_name(&name, Some(statement), false);
        self.pass_as(message, What::Parse);
        true
    }

    /// As `lend_for_query`, for a statement that is bound. Whether it has deeds.
    pub(crate) fn lend_for_statement(&mut self, statement: &Statement) -> bool {
        if !self.rules.watches() || !self.client.vars.can_read(&statement.query) {
            return false;
        }
        let reading = self.statements.reading_of(statement);
        let has_deeds = !reading.deeds.is_empty();
        if has_deeds || reading.marks.has(Marks::LOOKS) {
            let reading = Arc::clone(reading);
            self.lend_in_batch(&reading);
        }
        has_deeds
    }

    /// What the server calls a statement that the client calls `name`: the same, where it is lent by that name so
    /// that it can find itself.
    pub(crate) fn name_of<'a>(&self, statement: &'a Statement, name: &'a [u8]) -> &'a [u8] {
        let looks = statement.reading.get().is_some_and(|known| known.marks.has(Marks::LOOKS));
        let is_lent = looks && self.server.lent.iter().any(|lent| *lent.name == *name);
        if is_lent { name } else { &statement.name }
    }

    /// As `lend_for_statement`, where `statement` is about to begin a batch. What it executes may be gone by now: that is
    /// for its own Execute to say, and for nothing in front of it.
    pub(crate) fn lend_ahead(&mut self, statement: &Statement) {
        // Who has given no names has nothing to be lent.
        if self.client.has_names() && self.can_undo() && self.executes(statement) {
            let reading = Arc::clone(self.statements.reading_of(statement));
            let loans = self.loans(&reading);
            let may_fail = |loan: &Loan| match loan {
                (_, Some(statement), Use::Execution) => self.may_differ(statement),
                _ => false,
            };
            if loans.iter().any(may_fail) {
                self.lend_before(&[], loans);
            }
        }
    }

    fn lend_in_batch(&mut self, reading: &Reading) {
        for loan in self.loans(reading) {
            self.unlend_in_batch(&loan.0);
            self.inject(What::Parse, |out| parse(&loan, out));
            self.server.lent.push(loan.into());
        }
    }

    /// It is about to be lent anew, in a batch of the client's.
    fn unlend_in_batch(&mut self, name: &[u8]) {
        self.revoke(name);
        self.server.forget_lent(name);
    }

    /// As `lend_for_statement`, where `statement` is about to be parsed or described: what it returns is what
    /// the one returns that it executes.
    pub(crate) fn lend_for_shape(&mut self, statement: &Statement) {
        if self.executes(statement) {
            self.lend_for_statement(statement);
        }
    }

    /// Whether what `statement` is depends on what a name of the client's means.
    pub(crate) fn executes(&mut self, statement: &Statement) -> bool {
        let is_execute = |deed: &Deed| matches!(deed, Deed::Execute(_));
        self.rules.watches()
            && self.client.vars.can_read(&statement.query)
            && self.statements.reading_of(statement).deeds.iter().any(is_execute)
    }

    /// `statement` is about to be described, which is to describe what it executes. If that is gone by now, this is where
    /// to say so.
    pub(crate) fn describe_lent(&mut self, statement: &Arc<Statement>) {
        if !self.server.lent.is_empty()
            && let Some(doubted) = self.doubted(statement)
        {
            self.tell_parameters_first(statement);
            self.try_parse(&doubted);
        }
    }

    /// What an EXECUTE executes, where it is not certain that it is there.
    fn doubted(&mut self, statement: &Arc<Statement>) -> Option<Arc<Statement>> {
        let mut statement = Arc::clone(statement);
        for _ in 0..DEPTH_MAX {
            if !is_execute(&statement.query) {
                return None;
            }
            let reading = self.executes(&statement).then(|| self.statements.reading_of(&statement));
            let [Deed::Execute(name)] = &*reading?.deeds else { return None };
            let lent = self.server.lent.iter().find(|lent| *lent.name == **name)?;
            if lent.doubted.is_some() {
                return lent.doubted.clone();
            }
            let meaning = self.client.meaning(name, &self.server.ledger);
            let Meaning::Statement(executed, ..) = meaning else { return None };
            statement = executed;
        }
        None
    }

    /// A portal is about to be made of a statement, to which what it needs is lent. Of what has no deeds nothing is kept.
    pub(crate) fn bind_portal(&mut self, portal: &[u8], statement: Option<&Arc<Statement>>) {
        let has_deeds = statement.is_some_and(|statement| self.lend_for_statement(statement));
        let portals = &mut self.server.portals;
        portals.retain(|(name, _)| **name != *portal);
        if let Some(statement) = statement.filter(|_| has_deeds) {
            if portals.len() >= PORTALS_MAX {
                self.server.spoilt = true;
                portals.remove(0);
            }
            portals.push((portal.into(), Arc::clone(statement)));
        }
    }

    /// A portal is about to be run or described. The name may be here in part only.
    pub(crate) fn use_portal(&mut self, name: &[u8], runs: bool) {
        let same = |portal: &[u8]| match name.iter().position(|byte| *byte == 0) {
            Some(len) => *portal == name[..len],
            None => portal.starts_with(name),
        };
        let found = self.server.portals.iter().find(|(portal, _)| same(portal));
        let Some(statement) = found.map(|(_, statement)| Arc::clone(statement)) else { return };
        let reading = Arc::clone(self.statements.reading_of(&statement));
        self.lend_in_batch(&reading);
        if runs {
            self.expect_deallocates(&reading, self.server.ledger.next());
        } else if let Some(doubted) = self.doubted(&statement) {
            self.try_parse(&doubted);
        }
    }

    fn expect_deallocates(&mut self, reading: &Reading, at: u64) {
        let (first, expected) = (self.server.ledger.first(), &mut self.server.deallocates);
        while expected.front().is_some_and(|(by, _)| *by < first) {
            expected.pop_front();
        }
        for deed in &reading.deeds {
            if let Deed::Deallocate(name) = deed {
                expected.push_back((at, name.clone()));
            }
        }
    }

    /// A statement that is executed by its client's name, and that the server is to be given with other settings.
    pub(crate) fn stray_loan(&mut self, reading: &Reading) -> Option<(Arc<Statement>, Arc<[u8]>)> {
        if !reading.deeds.iter().any(|deed| matches!(deed, Deed::Execute(_))) {
            return None;
        }
        self.loans(reading).into_iter().find_map(|(name, statement, purpose)| {
            let statement = statement.filter(|_| purpose == Use::Execution)?;
            self.wants_dress(&statement).then_some((statement, name))
        })
    }

    fn loans(&mut self, reading: &Reading) -> Vec<Loan> {
        let mut names: Vec<(Arc<[u8]>, Use)> = Vec::new();
        for deed in &reading.deeds {
            let (Deed::Execute(name) | Deed::Deallocate(name) | Deed::Prepare { name, .. }) = deed;
            let executes = matches!(deed, Deed::Execute(_));
            names.push((Arc::from(&**name), if executes { Use::Execution } else { Use::Name }));
        }
        if self.shows_list(reading) {
            names.extend(self.client.all_names().into_iter().map(|name| (name, Use::List)));
        }
        // What is executed first: who gives it up afterwards needs no more.
        names.sort_by_key(|(_, purpose)| *purpose);
        let quiet = self.is_quiet();
        let mut loans: Vec<Loan> = Vec::new();
        while let Some((name, purpose)) = names.pop() {
            let lent = self.server.lent.iter().find(|lent| lent.name == name);
            let does = lent.is_some_and(|lent| match lent.stands {
                Stands::ForStatement => true,
                Stands::ForNothing => purpose != Use::Execution,
                Stands::Revoked => false,
            });
            if does || loans.iter().any(|loan| loan.0 == name) {
                continue;
            }
            let Meaning::Statement(statement, name, _) =
                self.client.meaning(&name, &self.server.ledger)
            else {
                continue;
            };
            // What cannot be prepared any more would fail what it is lent to.
            let name_only = match purpose {
                Use::Name => true,
                // It may find itself there.
                Use::List if self.looks(&statement) => false,
                Use::List => !quiet && self.may_differ(&statement),
                Use::Execution => false,
            };
            if name_only {
                loans.push((name, None, purpose));
                continue;
            }
            for deed in &self.statements.reading_of(&statement).deeds {
                if let Deed::Execute(name) = deed {
                    names.push((Arc::from(&**name), Use::Execution));
                }
            }
            loans.push((name, Some(statement), purpose));
        }
        // What is executed is there before what executes it: that is read with it.
        loans.reverse();
        loans
    }

    /// This name of the client's is about to mean something else: if it was lent, it is called in.
    #[inline]
    pub(crate) fn revoke(&mut self, name: &[u8]) {
        if !self.server.lent.is_empty() {
            self.call_in(name);
        }
    }

    #[cold]
    fn call_in(&mut self, name: &[u8]) {
        let lent = self.server.lent.iter_mut().find(|lent| *lent.name == *name);
        if let Some(lent) = lent {
            lent.stands = Stands::Revoked;
            self.inject(What::Close, |out| write::client::close(out, Namespace::Statement, name));
        }
    }

    /// It is about to be lent anew, in a batch of ours.
    pub(crate) fn unlend(&mut self, name: &[u8]) {
        if self.server.forget_lent(name) {
            self.say(|out| write::client::close(out, Namespace::Statement, name));
        }
    }

    /// The text will have run: its loans are given back.
    pub(crate) fn take_back(&mut self) {
        let server = &mut *self.server;
        self.flow.to_server.say(|out| server.take_back(out));
    }
}

impl Lent {
    /// A name that can be executed.
    pub(crate) fn of(name: &Arc<[u8]>) -> Self {
        Self { name: Arc::clone(name), stands: Stands::ForStatement, doubted: None }
    }
}

impl From<Loan> for Lent {
    fn from((name, statement, _): Loan) -> Self {
        let stands = match statement {
            Some(_) => Stands::ForStatement,
            None => Stands::ForNothing,
        };
        Self { name, stands, doubted: None }
    }
}

impl ServerSide {
    /// A name that was lent, if it was, is about to be closed.
    fn forget_lent(&mut self, name: &[u8]) -> bool {
        let found = self.lent.iter().position(|lent| *lent.name == *name);
        found.map(|at| self.lent.swap_remove(at)).is_some()
    }

    fn take_back(&mut self, out: &mut Vec<u8>) {
        self.ledger.push(What::Own(Own::Lend), Whose::Ours, None);
        for lent in std::mem::take(&mut self.lent) {
            write::client::close(out, Namespace::Statement, &lent.name);
        }
        write::client::sync(out);
    }
}

impl Inward<'_> {
    /// As [`Outward::take_back`], of what could not be given back when the text was sent.
    pub(crate) fn take_back(&mut self) {
        let server = &mut *self.server;
        // Nobody else is to find it.
        server.spoilt |= self.client.is_none();
        // What is held may be about to use it.
        let rests = self.client.as_ref().is_some_and(|client| !client.is_held());
        if !rests || !server.ledger.is_empty() || server.phase != Phase::Synced {
            return;
        }
        self.flow.to_server.say(|out| server.take_back(out));
    }

    /// What was put in front of queries at a batch's end failed, so that the server skips these. Each is over with that, as it
    /// would be if it had failed itself.
    pub(crate) fn make_up_for(&mut self, queries: usize) {
        for _ in 0..queries {
            self.server.phase = Phase::Synced;
            self.server.ledger.push(What::Sync, Whose::Clients, None);
            self.flow.to_server.say(write::client::sync);
        }
    }
}

fn parse((name, statement, _): &Loan, out: &mut Vec<u8>) {
    let (query, types) = statement
        .as_ref()
        .map_or_else(Default::default, |statement| (&*statement.query, &*statement.types));
    write::client::parse(out, name, query, types);
}
