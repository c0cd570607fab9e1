//! What a server's session is set to, and what may have been done to it since that was known.

use std::sync::Arc;

use sql::{Overloadable, Unseen};

use crate::ages::{Ages, mentions};
use crate::beliefs::{Locally, Scene, Trace};
use crate::catalogs;
use crate::hidden::{Errand, Quest};
use crate::made::{Deed, Made, Workshop, ground};
use crate::overloads::{self, Found, List, When};
use crate::reading::{Marks, Reading, Tells};
use crate::recent::spread;
use crate::sequences::Sequences;
use crate::state::{CUSTOM_MAX, Probed, State, Tie, Ties};
use crate::statements::Statements;
use crate::{ClientSide, Habit, Tracked, Vars};

/// Statements of one transaction that are learnt from at once; the others are the next time.
const LEARNERS_MAX: usize = 16;

/// Texts of one transaction whose names are followed.
const OTHERS_MAX: usize = 256;

/// Texts and Binds of one transaction of which it is followed what they tell.
const ERRANDS_MAX: usize = 1024;

/// Bytes of names that these tell.
const ERRANDS_BYTES: usize = 1 << 15;

/// So many texts are asked which names they say.
const TOLD_MAX: usize = 16;

/// So many parsed texts are remembered of a server, where nobody keeps statements apart.
const PARSED_MAX: usize = 512;

/// So many of them without a name: the last, and those that failed behind it, or were skipped.
const UNNAMED_MAX: usize = 16;

/// Names of statements are told apart by so many bytes.
const NAME_MAX: usize = 63;

/// Bytes of names that are followed, of all texts of a transaction, or of all that were parsed.
const NAMES_BYTES: usize = 1 << 19;

/// A probe lists no more of them.
const CHANNELS_MAX: usize = 1024;

/// So often at most a question is asked again that was cut off.
const HURRIES_MAX: u8 = 5;

/// The session state of one server.
#[derive(Debug, Default)]
pub struct Trail {
    /// As far as it is known; `None`: as a new session.
    pub state: Option<Arc<State>>,
    pub ties: Ties,
    marks: Marks,
    /// What ran last that may have changed something.
    culprit: Option<Arc<Reading>>,
    /// State that what ran lately says it makes.
    shown: Ties,
    /// How often in a row a time limit cut the question off.
    hurries: u8,
    /// Channels it listens to, as far as it is known.
    channels: Vec<Box<[u8]>>,
    /// What ran since the last probe and can be learnt from.
    learners: Vec<Learner>,
    /// What else did, and may have run what stands in no text.
    others: Vec<Arc<Reading>>,
    /// What functions may have been told to run, and by which text; `None`: by any.
    errands: Vec<(Option<Arc<Reading>>, Errand)>,
    /// So many of these have been looked at for what they read.
    old_errands: usize,
    /// There was more of that.
    more_errands: bool,
    /// What stands behind their names.
    quest: Quest,
    /// It is asked whether the catalogs have changed.
    looks: bool,
    /// What ran names this, which could be somebody's own.
    overloadable: Overloadable,
    /// It is asked which of these there are that touch the session.
    lists: bool,
    /// When that was.
    listed_at: When,
    /// What it answered.
    list: Option<List>,
    /// What came of that.
    overloads: Option<Found>,
    /// Names with a dot in them that what ran has said.
    heard: Vec<Box<[u8]>>,
    /// What ran lately that may have been told what to set.
    told: Vec<Arc<Reading>>,
    /// What ran may have set something whose name it has not said.
    hides_names: bool,
    /// A function of whose number nothing is known was called.
    calls: bool,
    /// It did, and whoever does not know that name cannot undo it.
    hides: bool,
    /// Something of that failed, or changed no row.
    vain: bool,
    /// How much of it was done: what is bound need not be executed, nor to its end.
    done: usize,
    /// Something was believed in the transaction under way, when so much had changed anywhere.
    believed: Option<u32>,
    /// What that transaction has set for itself.
    pub(crate) locally: Locally,
    /// Settings with a dot in their name that were ever set on it: they are never gone again.
    custom: Vec<Box<[u8]>>,
    pub(crate) workshop: Workshop,
    pub(crate) sequences: Sequences,
    /// A text was run that only ends state, where none was but tracked parameters: as these were then.
    released: Option<Vars>,
    /// What its client ran since it was in no transaction.
    pub(crate) ran: Ran,
    /// What was parsed on it by which name, where nobody keeps statements apart.
    parsed: Vec<Parsed>,
    /// There was more of that.
    lost: bool,
    /// How the clients of its pool use these.
    pub habit: Arc<Habit>,
}

/// A text that the server is asked about because of what is attached to its tables.
#[derive(Debug)]
struct Learner {
    reading: Arc<Reading>,
    scene: Scene,
    /// What it leads to may leave something behind, whether it was seen to or not.
    touches: bool,
}

/// What was parsed by a name.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    name: Box<[u8]>,
    pub(crate) reading: Arc<Reading>,
    /// As far as it is needed.
    pub(crate) text: Box<[u8]>,
}

/// Whether a text may run functions of others where nobody sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heed {
    Nothing,
    /// It may: nobody knows yet which there are.
    Unknown,
    /// It may, and they touch the session.
    Touched,
}

/// What was run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Ran {
    #[default]
    Nothing,
    /// Texts that only end state.
    Ends,
    Other,
}

/// What a client asked for at login.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Asked {
    /// Tracked parameters.
    pub vars: Vec<(String, Vec<u8>)>,
    /// All others.
    pub state: State,
}

impl Trail {
    /// Whether parameters may go back to what the client asked for at login.
    #[must_use]
    pub fn may_return(&self) -> bool {
        self.released.is_some() || self.marks.has(Marks::RESETS)
    }

    /// A text is run that only ends state, for a client of these parameters. Where there is none, it leaves none.
    pub(crate) fn release(&mut self, reading: &Arc<Reading>, vars: &Vars) {
        if self.ran == Ran::Nothing {
            self.ran = Ran::Ends;
        }
        let is_new = self.state.is_none() && self.ties.is_none() && self.workshop.is_idle();
        if !is_new || self.is_doubtful() {
            return self.mark(reading, Scene::default());
        }
        self.released.get_or_insert_with(|| vars.clone());
    }

    /// A text is run that does more than end state.
    #[inline]
    pub(crate) fn pass(&mut self) {
        self.ran = Ran::Other;
        self.reports_more();
    }

    /// What is reported then may be this text's doing as well.
    #[inline]
    fn reports_more(&mut self) {
        if self.released.take().is_some() {
            self.marks = self.marks.and(Marks::ASK).and(Marks::RESETS);
        }
    }

    /// A text is about to be run in which functions of others may run that nobody sees there.
    #[inline]
    pub(crate) fn heed(&mut self, reading: &Arc<Reading>, ages: &Ages) -> Heed {
        if reading.overloadable.is_none() {
            return Heed::Nothing;
        }
        let names = self.habit.overloads.known(When::of(ages));
        let meets = names.is_none_or(|names| names.meets(reading.overloadable));
        let is_due = self.habit.catalogs.are_due(ages.second());
        if meets || is_due { self.heed_more(reading, is_due, ages) } else { Heed::Nothing }
    }

    #[cold]
    fn heed_more(&mut self, reading: &Arc<Reading>, is_due: bool, ages: &Ages) -> Heed {
        if self.marks.is_none() {
            self.shown = Ties::default();
        }
        self.marks = self.marks.and(Marks::LEARN);
        self.workshop.unsettle();
        self.overloadable |= reading.overloadable;
        self.looks |= is_due;
        let overloads = &self.habit.overloads;
        let names = overloads.known(When::of(ages));
        self.lists |= names.is_none() || overloads.are_due(ages.second());
        let Some(names) = names else { return Heed::Unknown };
        if !names.meets(reading.overloadable) {
            return Heed::Nothing;
        }
        self.marks = self.marks.and(Marks::ASK).and(Marks::RESETS);
        self.workshop.stirred = true;
        if self.told.len() < TOLD_MAX {
            self.told.push(Arc::clone(reading));
        }
        if self.ties.is_none() {
            self.culprit = Some(Arc::clone(reading));
        }
        Heed::Touched
    }

    /// What functions of others do that may have run, and run where nobody sees it.
    fn find_overloads(&mut self, statements: &Statements, named: Overloadable) -> Option<Found> {
        if named.is_none() || self.lists || self.list.is_some() {
            return None;
        }
        let now = When::of(statements.ages());
        let found = self.overloads.clone().or_else(|| self.habit.overloads.find(now));
        self.lists = found.is_none();
        found.filter(|found| found.names.meets(named))
    }

    /// A text is run.
    pub(crate) fn mark(&mut self, reading: &Arc<Reading>, scene: Scene) {
        self.reports_more();
        if reading.marks.is_none() {
            return;
        }
        if self.marks.is_none() {
            self.shown = Ties::default();
        }
        for tie in reading.shows.iter() {
            self.shown.add(tie);
        }
        self.marks = self.marks.and(reading.marks.without(Marks::PASSING));
        let may_be_believed = reading.marks.has(Marks::LEARN) && scene.is_known();
        if may_be_believed && self.habit.catalogs.are_due(scene.second) {
            self.looks = true;
        }
        let asks_of_tables = reading.asks_of_tables(scene) || may_be_believed && self.looks;
        if reading.marks.has(Marks::SETTINGS) || asks_of_tables {
            self.workshop.unsettle();
            self.workshop.stirred |= reading.marks.has(Marks::SETTINGS);
        }
        for name in &reading.custom {
            self.hear(name);
        }
        if reading.marks.has(Marks::ASK) {
            self.follow_also(reading);
            if self.told.len() < TOLD_MAX {
                self.told.push(Arc::clone(reading));
            }
        }
        if reading.marks.has(Marks::ASK) && self.ties.is_none() {
            self.culprit = Some(Arc::clone(reading));
        }
        if asks_of_tables {
            self.marks = self.marks.and(Marks::LEARN);
            if self.learners.len() < LEARNERS_MAX {
                let reading = Arc::clone(reading);
                self.learners.push(Learner { reading, scene, touches: false });
            } else {
                self.follow_also(reading);
            }
        } else if reading.marks.has(Marks::LEARN) {
            self.believed.get_or_insert(scene.changes);
        }
    }

    /// What `text`, which is read as this, is about to do to prepared statements.
    pub(crate) fn mark_deeds(&mut self, reading: &Reading, text: &[u8], vars: &Vars) {
        for deed in &reading.deeds {
            match deed {
                Deed::Prepare { name, .. } => {
                    let ground = ground(self.state.as_deref(), vars);
                    self.workshop.prepare(name, text, ground);
                }
                Deed::Deallocate(name) => self.workshop.deallocate(name),
                Deed::Execute(_) => {}
            }
        }
    }

    /// A request comes. If it is the first since all was known, what it prepares is known, too.
    pub(crate) fn begin(&mut self) {
        (self.believed, self.locally) = (None, Locally::default());
        if !self.is_doubtful() {
            self.workshop.settle();
            (self.vain, self.done) = (false, 0);
            self.heard.clear();
            self.forget_errands();
        }
        self.sequences.begin();
    }

    /// What was prepared here by SQL since it was last known what there is.
    pub(crate) fn prepared(&self, name: &[u8]) -> Option<&Made> {
        self.workshop.fresh(name)
    }

    /// Whether SQL may have given this name here.
    pub(crate) fn may_have_made(&self, name: &[u8]) -> bool {
        self.workshop.has_name(name)
    }

    /// What the client has prepared by SQL and this server, which it gets now, has not.
    pub fn missing(&mut self, client: &ClientSide) -> Vec<Made> {
        let [here, there] = [&self.state, &client.state].map(Option::as_deref);
        let here = here.map_or(&[][..], State::made);
        self.workshop.missing(there.map_or(&[][..], State::made), here)
    }

    /// Look whether the client's statements can still follow it: `SET TimeZone` and the like are seen
    /// without being asked for. Ask where that has changed. `changes`: how often anything was changed anywhere.
    pub fn review(&mut self, client: &mut ClientSide, changes: u32) {
        // What was believed when it was sent may have been run behind a change that came meanwhile.
        if self.believed.take().is_some_and(|then| then != changes) {
            self.mark_unknown();
        }
        if self.released.as_ref().is_some_and(|before| restored(client, before)) {
            self.released = None;
        }
        if self.released.take().is_some() {
            self.marks = self.marks.and(Marks::ASK).and(Marks::RESETS);
        }
        if self.sequences.asks(client.pid, &self.habit) {
            self.marks = self.marks.and(Marks::MAY_GIVE);
        }
        if self.sequences.tie(client.pid, &self.habit) {
            self.ties.add(Tie::Sequence);
        } else {
            self.ties.remove(Tie::Sequence);
        }
        let Some(state) = client.state.as_deref().filter(|state| !state.made().is_empty()) else {
            return;
        };
        let strays = strays(state, &client.vars) || self.workshop.bound;
        if strays != self.ties.has(Tie::PreparedStatement) {
            self.mark_unknown();
        }
    }

    /// Something was run to its end.
    pub(crate) fn was_done(&mut self) {
        self.done += 1;
    }

    /// Something that was run failed, or changed no row: what is attached to it may not have been reached.
    pub(crate) fn was_in_vain(&mut self) {
        self.vain = true;
    }

    /// Whether nothing ties its client but what sequences gave it.
    #[must_use]
    pub fn only_remembers(&self) -> bool {
        self.ties.is_only(Tie::Sequence) && !self.is_doubtful()
    }

    /// Whether it has what sequences gave this client.
    #[must_use]
    pub fn remembers(&self, client: &ClientSide) -> bool {
        self.sequences.are_of(client.pid)
    }

    /// Its client goes, and what sequences gave it stays for as long as nobody needs the place.
    pub fn let_go(&mut self) {
        self.ties.remove(Tie::Sequence);
    }

    /// Whether it is asked for what sequences gave, which may have been too much to ask.
    #[must_use]
    pub fn asks_of_sequences(&self) -> bool {
        self.marks.has(Marks::MAY_GIVE)
    }

    /// It is not asked for that any more.
    pub fn assume(&mut self) {
        self.sequences.assume();
        self.marks = self.marks.without(Marks::MAY_GIVE).and(Marks::ASK);
    }

    /// Whether a text that was run since it was known before says that it makes such state.
    #[must_use]
    pub fn is_shown(&self, tie: Tie) -> bool {
        self.shown.has(tie)
    }

    /// How the text begins that brought about what ties it, as far as that is known.
    #[must_use]
    pub fn culprit(&self) -> &[u8] {
        self.culprit.as_ref().map_or(b"", |reading| &reading.beginning)
    }

    /// Something was run that nobody has read.
    pub(crate) fn mark_unknown(&mut self) {
        self.ran = Ran::Other;
        self.marks = self.marks.and(Marks::ASK);
    }

    /// As [`Self::mark_unknown`]; and what runs next may run with other settings.
    pub(crate) fn mark_unread(&mut self) {
        self.mark_unknown();
        self.workshop.unsettle();
        self.workshop.stirred = true;
    }

    /// A text is parsed, where nobody keeps statements apart. Where nothing is `pending`, a name means nothing else from now
    /// on if that is the unnamed one; others mean what they meant where this fails.
    pub(crate) fn parsed(
        &mut self,
        name: &[u8],
        reading: Arc<Reading>,
        text: &[u8],
        pending: bool,
    ) {
        let name = name.get(..NAME_MAX).unwrap_or(name);
        let is_it = |known: &Parsed| {
            let is_same = *known.name == *name;
            is_same && (name.is_empty() && !pending || Arc::ptr_eq(&known.reading, &reading))
        };
        self.parsed.retain(|parsed| !is_it(parsed));
        let mut unnamed = self.parsed.iter().enumerate().filter(|(_, known)| known.name.is_empty());
        if let (Some((oldest, _)), true) = (unnamed.next(), unnamed.count() + 1 >= UNNAMED_MAX) {
            self.parsed.remove(oldest);
        }
        let bytes =
            |all: usize, known: &Parsed| all + known.reading.names.bytes() + known.text.len();
        let is_full = self.parsed.len() >= PARSED_MAX;
        if is_full || self.parsed.iter().fold(0, bytes) > NAMES_BYTES {
            self.parsed.clear();
            self.lost = true;
        }
        let is_needed = reading.tells == Tells::Strings || !reading.deeds.is_empty();
        let text = if is_needed { text.into() } else { Box::default() };
        self.parsed.push(Parsed { name: name.into(), reading, text });
    }

    /// What may have been parsed by this name, and is bound; `None`: by any.
    pub(crate) fn bound(&mut self, name: Option<&[u8]>) -> Vec<Parsed> {
        let name = name.map(|name| name.get(..NAME_MAX).unwrap_or(name));
        let is_it = |known: &&Parsed| name.is_none_or(|name| *name == *known.name);
        self.hides_names |= self.lost;
        self.parsed.iter().filter(is_it).cloned().collect()
    }

    /// Something is parsed of which nothing is kept.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// What runs says the name of a setting.
    pub(crate) fn hear(&mut self, name: &[u8]) {
        if self.heard.len() < CUSTOM_MAX && !self.heard.iter().any(|heard| **heard == *name) {
            self.heard.push(name.into());
        }
        self.know(name);
    }

    /// What runs may set something whose name is not looked for.
    pub(crate) fn may_hide(&mut self) {
        self.hides_names = true;
    }

    /// A function is called by its number, and may do so.
    pub(crate) fn calls(&mut self) {
        self.calls = true;
    }

    /// One that was called by its number has returned.
    pub(crate) fn returned(&mut self) {
        self.hides_names |= self.calls;
    }

    fn know(&mut self, name: &[u8]) {
        if self.custom.iter().any(|known| **known == *name) {
            return;
        }
        if self.custom.len() < CUSTOM_MAX {
            self.custom.push(name.into());
        } else {
            self.hides = true;
        }
    }

    /// A number for all that decides what a text means: the same words are another statement in another database,
    /// and for another user.
    pub(crate) fn ground(&self, state: Option<&State>, vars: &Vars) -> u64 {
        ground(state, vars) ^ spread(self.habit.number())
    }

    /// Ask again, whatever was run.
    pub fn doubt(&mut self) {
        self.mark_unknown();
    }

    /// It could not be asked: whoever it serves keeps it until it can be.
    pub fn give_up(&mut self) {
        self.marks = Marks::default();
        self.hurries = 0;
        self.sequences.assume();
        self.forget_run();
        self.ties.add(Tie::Unknown);
    }

    /// What it may lead to is to be looked at.
    fn follow_also(&mut self, reading: &Arc<Reading>) {
        // Texts that differ by what they give to a function lead to the same.
        let is_there = |other: &Arc<Reading>| other.names == reading.names;
        if reading.names.is_empty() || self.others.iter().any(is_there) {
            return;
        }
        let bytes = |all: usize, other: &Arc<Reading>| all + other.names.bytes();
        if self.others.len() < OTHERS_MAX && self.others.iter().fold(0, bytes) < NAMES_BYTES {
            self.others.push(Arc::clone(reading));
        } else {
            self.hides = true;
        }
    }

    /// Functions that run what they are told may be told this, by this text; `None`: by whatever runs.
    pub(crate) fn tell(&mut self, by: Option<&Arc<Reading>>, errand: Errand) {
        let address = |by: Option<&Arc<Reading>>| by.map(Arc::as_ptr);
        let is_it = |(other, known): &(Option<Arc<Reading>>, Errand)| {
            address(other.as_ref()) == address(by) && *known == errand
        };
        if errand.is_empty() || self.errands.iter().any(is_it) {
            return;
        }
        let bytes = |all: usize, (_, known): &(_, Errand)| all + known.bytes();
        let all = self.errands.iter().fold(0, bytes);
        if self.errands.len() < ERRANDS_MAX && all < ERRANDS_BYTES {
            self.errands.push((by.cloned(), errand));
        } else {
            // Of values that are loaded one by one there may be any number.
            self.more_errands |= errand.commands;
        }
    }

    /// What they were told since it was last looked at for what it reads.
    pub(crate) fn new_errands(&self) -> impl Iterator<Item = &Errand> {
        self.errands.iter().skip(self.old_errands).map(|(_, errand)| errand)
    }

    /// It was.
    pub(crate) fn know_errands(&mut self) {
        self.old_errands = self.errands.len();
    }

    fn forget_errands(&mut self) {
        self.errands.clear();
        (self.old_errands, self.more_errands) = (0, false);
    }

    fn forget_run(&mut self) {
        (self.heard, self.hides_names, self.calls) = (Vec::new(), false, false);
        self.told.clear();
        self.looks = false;
        self.overloadable = Overloadable::default();
        (self.lists, self.list, self.overloads) = (false, None, None);
        self.learners.clear();
        self.others.clear();
        self.forget_errands();
        self.quest.end();
    }

    /// Before it is asked: what stands behind the names in what ran, as far as that is known. What is not is asked for,
    /// too.
    pub fn explore(&mut self, statements: &Statements) {
        self.quest.clear();
        let place = statements.place(self.habit.number());
        if let Some(found) = self.list.as_ref().and_then(|list| list.weigh(&mut self.quest, place))
        {
            self.habit.overloads.keep(self.listed_at, &found);
            (self.list, self.overloads) = (None, Some(found));
        }
        let mut all = Vec::new();
        for learner in &mut self.learners {
            let depths = self.quest.follow(place, &learner.reading.names);
            learner.touches = depths.touches;
            all.push(depths);
        }
        for reading in &self.others {
            all.push(self.quest.follow(place, &reading.names));
        }
        let runs = all.iter().any(|depths| depths.executes);
        self.hides_names |= runs && self.more_errands;
        for (by, errand) in &self.errands {
            let is_told = match by {
                Some(by) => self.quest.follow(place, &by.names).executes,
                None => runs,
            };
            if is_told {
                all.push(self.quest.follow_errand(place, errand));
            }
        }
        let named = all.iter().fold(self.overloadable, |named, depths| named | depths.overloadable);
        if let Some(found) = self.find_overloads(statements, named) {
            self.marks = self.marks.and(Marks::ASK);
            if found.does.unseen.contains(Unseen::GIVES) {
                self.sequences.give_unseen();
            }
            // What they are told is not looked at.
            self.hides_names |= found.does.executes;
            all.push(found.does);
        }
        if self.lists {
            self.listed_at = When::of(statements.ages());
        }
        for depths in all {
            self.hides_names |= depths.hides;
            if depths.unseen.contains(Unseen::READS) {
                self.habit.expect_behind();
            }
            // What sequences give is another matter.
            let stays = depths.unseen & (Unseen::SEEDS | Unseen::KEEPS);
            self.marks = self.marks.and(Marks::of_unseen(stays));
            depths.custom.iter().for_each(|name| self.hear(name));
        }
    }

    /// It has answered. Whether it has to be asked again, since more was found to ask for.
    pub fn explored(&mut self, statements: &Statements, rows: &[Box<[u8]>]) -> bool {
        let changed = std::mem::take(&mut self.looks) && self.habit.catalogs.learn(rows);
        if changed {
            statements.ages().changed_elsewhere();
        }
        let listed = std::mem::take(&mut self.lists);
        if listed {
            self.list = Some(List::read(rows));
        }
        if !self.quest.asks() && !changed && !listed {
            return false;
        }
        self.quest.learn(statements.place(self.habit.number()).hidden, rows);
        let known = self.custom.len();
        self.explore(statements);
        self.quest.asks() || self.lists || self.custom.len() > known
    }

    /// It has answered with an error: it `cannot` be asked, or could not this time. Whether it is to be asked for less.
    pub fn stop_exploring(&mut self, statements: &Statements, cannot: bool) -> bool {
        let asks = self.quest.asks() || self.looks || self.lists;
        let lists = std::mem::take(&mut self.lists);
        if lists && cannot {
            self.habit.overloads.give_up();
        } else if lists || self.list.take().is_some() {
            self.overloads = Some(Found::unseen());
        }
        if std::mem::take(&mut self.looks) && cannot {
            self.habit.catalogs.give_up();
        }
        self.quest.give_up(statements.place(self.habit.number()).hidden);
        asks
    }

    /// Whether its state has to be asked for before anybody else is served.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !self.marks.is_none()
    }

    /// The question was cut off by a time limit of the session's own: it is asked again, without one. That limit may strike
    /// even what lifts it. `false`: there is an end to it.
    pub fn hurry(&mut self) -> bool {
        self.hurries += 1;
        self.hurries <= HURRIES_MAX
    }

    /// The channels it is known to listen to.
    #[must_use]
    pub fn channels(&self) -> &[Box<[u8]>] {
        &self.channels
    }

    /// It was made to listen to these, and to no others.
    pub fn listens_to(&mut self, channels: &[Box<[u8]>]) {
        self.channels = channels.to_vec();
        if channels.is_empty() {
            self.ties.remove(Tie::Listen);
        } else {
            self.ties.add(Tie::Listen);
        }
    }

    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.ties.has(Tie::Listen)
    }

    /// Whether its client is tied to it by channels, of which not too many to be listed, and by nothing else.
    #[must_use]
    pub fn only_listens(&self) -> bool {
        self.ties.is_only(Tie::Listen)
            && !self.is_doubtful()
            && (1..=CHANNELS_MAX).contains(&self.channels.len())
    }

    /// Whether a client left something behind, or may have.
    #[must_use]
    pub fn is_unclean(&self) -> bool {
        self.is_doubtful() || !self.ties.is_none()
    }

    /// Whether it is asked only because of what might be attached to tables, and nothing ties it.
    #[must_use]
    pub fn only_learns(&self) -> bool {
        self.marks == Marks::LEARN && self.ties.is_none()
    }

    /// Append the query that asks.
    pub fn ask(&self, out: &mut Vec<u8>) {
        if self.hurries > 0 {
            crate::state::suspend_limit(out);
        }
        if self.asks_of_sequences() {
            crate::sequences::ask(out);
        }
        let known = |name: &&[u8]| self.custom.iter().any(|custom| **custom == **name);
        let state = self.state.iter().flat_map(|state| state.settings().map(|(name, _)| name));
        let set = state.filter(|name| name.contains(&b'.') && !known(name));
        crate::state::probe(self.custom.iter().map(|name| &**name).chain(set), out);
        if self.looks {
            out.extend_from_slice(catalogs::ASK.as_bytes());
        }
        if self.lists {
            out.extend_from_slice(overloads::ASK.as_bytes());
        }
        if self.quest.asks() {
            self.quest.ask(out);
        }
    }

    /// The answer to a probe: what the server, and the `client` it serves, are known to be like now.
    /// `false`: it is no answer.
    pub(crate) fn learn(
        &mut self,
        client: Option<&mut ClientSide>,
        rows: &[Box<[u8]>],
        tracked: &Tracked,
        login: &[u8],
        vars: &Vars,
    ) -> bool {
        let Some(mut found) = Probed::read(rows.iter().map(|row| &**row), tracked, login) else {
            return false;
        };
        let known = self.state.as_deref().map_or(&[][..], State::made);
        let made = self.workshop.trace(&found.made, known);
        if self.workshop.bound && client.is_some() {
            found.ties.add(Tie::PreparedStatement);
        }
        found.state = found.state.with_made(made);
        let changed = self.state.as_deref()
            != Some(&found.state).filter(|state| !state.is_default())
            || !found.ties.is_none();
        self.weigh_learners(changed);
        let explained = changed || self.has_heard_of(&found) || self.was_told(&found, tracked);
        self.hides |= self.hides_names && !explained;
        self.forget_run();
        // What is no setting was taken for one. Whoever makes it one says its name again.
        self.custom.retain(|name| !found.unknown.iter().any(|unknown| **unknown == **name));
        for name in found.state.settings().map(|(name, _)| name) {
            if name.contains(&b'.') {
                self.know(name);
            }
        }
        let vain = std::mem::take(&mut self.vain);
        if self.asks_of_sequences() {
            self.sequences.learn(vain);
        }
        let seen_elsewhere = self.marks.ties();
        let resets = self.marks.has(Marks::RESETS) || self.released.take().is_some();
        self.marks = Marks::default();
        self.ties.renew(found.ties);
        self.ties.renew_unseen(seen_elsewhere);
        if self.hides {
            self.ties.add(Tie::Unknown);
        }
        let remembers = client.as_ref().is_some_and(|c| self.sequences.tie(c.pid, &self.habit));
        if !remembers {
            self.ties.remove(Tie::Sequence);
        }
        self.channels.clone_from(&found.channels);
        let state = share(&self.state, &found.state);
        if let Some(client) = client {
            client.state = follow(client, &found, state.as_ref(), resets.then_some(tracked));
            if let Some(all) = self.workshop.with_lacking(found.state.made()) {
                let whole = client.state.as_deref().cloned().unwrap_or_default();
                client.state = Some(whole.with_made(all).shared());
            }
            if client.state.as_deref().is_some_and(|state| strays(state, vars)) {
                self.ties.add(Tie::PreparedStatement);
            }
        }
        self.state = state;
        if std::mem::take(&mut self.hurries) > 0 {
            // The limit was lifted to ask, and is not in force there now.
            self.state = Some(found.state.without_limit().shared());
        }
        true
    }

    /// Take note of what was seen of what ran: whether what it left `changed` anything.
    fn weigh_learners(&mut self, changed: bool) {
        // Where something else ran that may have done anything, or made tables of its own, a scene is not what it was taken for.
        let tells = !self.marks.has(Marks::ASK)
            && (self.ties.is_none() || self.ties.is_only(Tie::Sequence));
        let sole = self.learners.len() == 1;
        let done = std::mem::take(&mut self.done);
        self.vain |= done < self.learners.len();
        for Learner { reading, scene, touches } in self.learners.drain(..) {
            let trace = match (changed, sole) {
                _ if touches => Trace::Its,
                _ if !tells => continue,
                (false, _) if self.vain => continue,
                (false, _) => Trace::None,
                (true, true) => Trace::Its,
                (true, false) => Trace::Somebodys,
            };
            reading.seen.left(scene, trace);
        }
    }

    /// Whether one of the names that what ran has said is that of a setting.
    fn has_heard_of(&self, found: &Probed) -> bool {
        let is_none = |name: &[u8]| found.unknown.iter().any(|none| **none == *name);
        self.heard.iter().any(|name| !is_none(name))
    }

    /// Whether what ran says, at its beginning, the name of something that is set now.
    fn was_told(&self, found: &Probed, tracked: &Tracked) -> bool {
        let reported = found.tracked.iter().filter_map(|at| tracked.names().nth(*at));
        let set = found.state.settings().map(|(name, _)| name).filter(|name| !name.contains(&b'.'));
        set.chain(reported.map(str::as_bytes))
            .any(|name| self.told.iter().any(|reading| mentions(&reading.beginning, name)))
    }

    /// It was given the settings of `client`.
    pub fn took(&mut self, client: &ClientSide) {
        for name in client.state.iter().flat_map(|state| state.settings().map(|(name, _)| name)) {
            if name.contains(&b'.') {
                self.know(name);
            }
        }
        self.state.clone_from(&client.state);
        if let Some(state) = self.state.as_deref().filter(|_| self.workshop.lacks()) {
            let is_lacking = |made: &&Made| self.workshop.lacking().any(|lacking| lacking == *made);
            let made = state.made().iter().filter(|made| !is_lacking(made)).cloned();
            let state = state.with_made(made.collect());
            self.state = (!state.is_default()).then(|| state.shared());
        }
    }

    /// `DISCARD ALL` was run on it: it is as a new session, as far as that goes.
    pub fn discarded(&mut self) {
        self.state = None;
        self.marks = Marks::default();
        self.channels.clear();
        self.ties.renew(Ties::default());
        self.hides = false;
        self.parsed.retain(|known| known.name.is_empty());
        self.lost = false;
        self.forget_run();
        self.workshop.discarded();
        self.ties.remove(Tie::Sequence);
        self.sequences = Sequences::default();
        self.released = None;
    }

    /// Whether it can never be anybody else's.
    #[must_use]
    pub fn is_for_life(&self) -> bool {
        self.ties.has(Tie::Load)
            || self.ties.has(Tie::Seed)
            || self.marks.ties().has(Tie::Load)
            || self.marks.ties().has(Tie::Seed)
    }
}

/// The same state again is the same allocation, so that the next comparison is of two addresses.
fn share(known: &Option<Arc<State>>, found: &State) -> Option<Arc<State>> {
    match known {
        _ if found.is_default() => None,
        Some(known) if **known == *found => Some(Arc::clone(known)),
        _ => Some(found.clone().shared()),
    }
}

/// What the client's session is set to, where the server was found to be set like this. What is as in
/// a new session goes back to what the client asked for at login.
fn follow(
    client: &mut ClientSide,
    found: &Probed,
    state: Option<&Arc<State>>,
    resets: Option<&Tracked>,
) -> Option<Arc<State>> {
    let Some(asked) = client.asked.clone() else { return state.cloned() };
    if let Some(tracked) = resets {
        for (name, value) in &asked.vars {
            let at = tracked.position(name.as_bytes());
            if at.is_some_and(|at| !found.tracked.contains(&at)) {
                client.vars.set(name.as_bytes(), value);
            }
        }
    }
    let mut whole = found.state.clone();
    whole.fall_back_on(&asked.state);
    match state {
        Some(state) if **state == whole => Some(Arc::clone(state)),
        None if whole.is_default() => None,
        _ => Some(whole.shared()),
    }
}

/// Give `client`, whose parameters were as `before` when they may have been reset, back what it asked for. `false`: it does not show whether
/// they were.
fn restored(client: &mut ClientSide, before: &Vars) -> bool {
    let Some(asked) = client.asked.clone() else { return true };
    for (name, value) in &asked.vars {
        let now = client.vars.value(name.as_bytes());
        if now.is_none_or(|now| is_same(name, now, value)) {
            continue;
        }
        if now == before.value(name.as_bytes()) {
            return false;
        }
        client.vars.set(name.as_bytes(), value);
    }
    true
}

/// Whether a parameter that was set to `asked` is reported as `now`.
fn is_same(name: &str, now: &[u8], asked: &[u8]) -> bool {
    let letters = |text: &[u8]| -> Vec<u8> {
        let kept = text.iter().filter(|byte| byte.is_ascii_alphanumeric());
        kept.map(u8::to_ascii_lowercase).collect()
    };
    now == asked || name.eq_ignore_ascii_case("client_encoding") && letters(now) == letters(asked)
}

/// Whether one of a session's statements was prepared with other settings than it has now: elsewhere the
/// same text might come to mean something else.
fn strays(state: &State, vars: &Vars) -> bool {
    let made = state.made();
    !made.is_empty() && {
        let now = ground(Some(state), vars);
        made.iter().any(|made| made.ground != now)
    }
}

/// Whether client and server hold one copy of their state, or none.
#[must_use]
pub fn is_shared(client: &ClientSide, trail: &Trail) -> bool {
    match (&client.state, &trail.state) {
        (Some(client), Some(server)) => Arc::ptr_eq(client, server),
        (client, server) => client.is_none() && server.is_none(),
    }
}

/// Append to `out` one query that makes a session as `server` has it into that of `client`. `false`,
/// and nothing is appended, if it is so already.
pub fn adapt(client: &ClientSide, server: &Vars, trail: &Trail, out: &mut Vec<u8>) -> bool {
    let mut differs = crate::differing(&client.vars, server, out);
    let none = State::default();
    let [from, to] = [&trail.state, &client.state].map(|state| state.as_deref().unwrap_or(&none));
    if !is_shared(client, trail) {
        differs |= crate::state::restore(from, to, out);
    }
    if differs {
        crate::state::limit(from, to, out);
    }
    differs
}

/// Whether its client left a time limit there that could strike what sets the session for another.
pub(crate) fn is_limited(trail: &Trail) -> bool {
    trail.state.as_ref().is_some_and(|state| state.is_limited())
}
