//! What runs and stands in no text that a client sends: the bodies of functions, and what is attached to tables.
//!
//! A setting with a dot in its name is listed nowhere. Who asks for it has to know its name, and often enough only the
//! body of a function says it. And a trigger that does something now and then was perhaps not seen to do it. So the
//! server is asked what stands behind the names in a text, and behind the names in that, until all is known; then it is
//! remembered for a minute, or until something changes.
//!
//! All of it errs on one side. A name is looked for in all schemas, and as whatever it could be; code is read word by
//! word, and what cannot be read may do anything.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sql::{Overloadable, Touch, Unseen};

use crate::ages::{Ages, hashes};
use crate::halves::Halves;
use crate::overloads;
use crate::reading::Tells;
use crate::state::{CUSTOM_MAX, columns, hex, unhex};
use crate::text::dotted_names;

/// As what a name is looked for.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(crate) enum Kind {
    Relation = b'r',
    Function = b'f',
    /// A function, or an operator: it is known to be called, and not just a word before a bracket.
    Called = b'c',
}

impl Kind {
    /// As what the server is asked for it.
    fn asked(self) -> Self {
        if self == Self::Called { Self::Function } else { self }
    }
}

/// Names, and as what they are to be looked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Names {
    /// One after the other: the kind, the name, a zero.
    packed: Box<[u8]>,
    /// There were more.
    more: bool,
    /// What names them may set something whose name stands nowhere.
    hides: bool,
    /// What else it names that could be somebody's own.
    overloadable: Overloadable,
    /// What names them runs commands that it is told.
    executes: bool,
}

/// What may be run by functions that run what they are told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Errand {
    names: Names,
    unseen: Unseen,
    sets_locally: bool,
    /// Something of it begins as a command does.
    pub(crate) commands: bool,
}

impl Errand {
    pub(crate) fn of(told: &sql::Told) -> Self {
        let names = Names::of_words(&told.words, &told.words);
        let names = Names { hides: told.hides, more: names.more || told.more, ..names };
        let (unseen, sets_locally) = (told.unseen, told.sets_locally);
        Self { names, unseen, sets_locally, commands: told.commands }
    }

    /// That of the strings in a text.
    pub(crate) fn of_text(tells: Tells, text: &[u8]) -> Self {
        match tells {
            Tells::Nothing => Self::default(),
            Tells::Strings => Self::of(&sql::Told::by_text(text)),
            Tells::Unseen => Self::unseen(),
        }
    }

    /// That of what nobody has looked at.
    pub(crate) fn unseen() -> Self {
        let names = Names::default().hiding();
        Self { names, unseen: Unseen::READS, commands: true, ..Self::default() }
    }

    /// That of what is not here yet: it may be told to read what sequences gave.
    pub(crate) fn to_come() -> Self {
        Self { unseen: Unseen::READS, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether what sequences gave may be read by it, as far as that is known. Of words that are no command it is thought
    /// when it is known.
    pub(crate) fn may_read(&self, place: Place<'_>) -> bool {
        let mut quest = Quest::default();
        let depths = quest.follow_errand(place, self);
        self.commands && quest.asks() || depths.unseen.contains(Unseen::READS)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.names.bytes()
    }
}

/// Names of one text or body that are followed.
const NAMES_MAX: usize = 4096;

impl Names {
    /// Each as it is, and once.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = (Kind, &'a [u8])>) -> Self {
        let (mut packed, mut more) = (Vec::new(), false);
        for (count, (kind, name)) in names.into_iter().enumerate() {
            if count == NAMES_MAX {
                more = true;
                break;
            }
            packed.push(kind as u8);
            packed.extend_from_slice(name);
            packed.push(0);
        }
        Self { packed: packed.into(), more, ..Self::default() }
    }

    /// Those of a text that nobody has parsed.
    pub(crate) fn of_skimmed(found: &sql::Skimmed) -> Self {
        let names = Self::of_words(&found.calls, &found.names);
        Self { hides: found.hides, overloadable: Overloadable::ALL, ..names }
    }

    /// What is called, and what may be tables.
    fn of_words<T: AsRef<[u8]>>(calls: &BTreeSet<T>, tables: &BTreeSet<T>) -> Self {
        let functions = calls.iter().map(|name| (Kind::Function, name.as_ref()));
        let relations = tables.iter().map(|name| (Kind::Relation, name.as_ref()));
        Self::of(functions.chain(relations))
    }

    fn of_code(code: &sql::Code) -> Self {
        let names = Self::of_words(&code.calls, &code.names);
        let (hides, executes) = (code.hides, code.executes);
        Self { hides, executes, overloadable: code.overloadable, ..names }
    }

    /// Those of a text that a client sends. `code`: what PostgreSQL's scanner found in it, if it could read it.
    pub(crate) fn in_text(text: &[u8], code: Option<&sql::Code>) -> Self {
        let skimmed = || Self::of_skimmed(&sql::Skim::of(text, sql::Strings::default()));
        code.map_or_else(skimmed, Self::of_code)
    }

    /// These are among them, and certainly called.
    pub(crate) fn calling(self, calls: &[&str]) -> Self {
        let is_called = |name: &[u8]| calls.iter().any(|call| call.as_bytes() == name);
        let others = self.iter().filter(|(kind, name)| *kind != Kind::Function || !is_called(name));
        let called = calls.iter().map(|call| (Kind::Called, call.as_bytes()));
        let all = Self::of(called.chain(others));
        Self { packed: all.packed, more: self.more || all.more, ..self }
    }

    /// And something is set whose name nobody asks for.
    pub(crate) fn hiding(self) -> Self {
        Self { hides: true, ..self }
    }

    /// Only whether something is set whose name stands nowhere.
    pub(crate) fn without_names(self) -> Self {
        Self { packed: Box::default(), ..self }
    }

    /// Whether nothing is known of it, nor to be looked up.
    pub(crate) fn is_empty(&self) -> bool {
        self.packed.is_empty() && !self.hides && !self.executes
    }

    /// How much there is of them.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len()
    }

    fn iter(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        self.packed.split(|byte| *byte == 0).filter_map(|one| match one.split_first()? {
            (b'f', name) => Some((Kind::Function, name)),
            (b'c', name) => Some((Kind::Called, name)),
            (_, name) => Some((Kind::Relation, name)),
        })
    }
}

/// What stands behind a name.
#[derive(Debug, Default)]
struct Fact {
    /// Settings with a dot in their name that it may bring into being.
    custom: Box<[Box<[u8]>]>,
    /// It may change something that outlives the transaction.
    touches: bool,
    /// It sets something for its transaction.
    sets_locally: bool,
    unseen: Unseen,
    overloadable: Overloadable,
    leads_to: Names,
    /// What stands in its strings, if something runs that.
    errand: Option<Errand>,
}

/// What is known of names, on all workers.
#[derive(Debug)]
pub(crate) struct Hidden(Mutex<Known>);

type Remembered<T> = Halves<u64, Arc<T>, BuildHasherDefault<DefaultHasher>>;

#[derive(Debug)]
struct Known {
    facts: Remembered<Fact>,
    /// Of words that were told, of which most are no names.
    told: Remembered<Fact>,
    /// What whole texts may do, for as long as nothing changes.
    depths: Remembered<Depths>,
}

/// Names that each half of the memory holds.
const FACTS_HALF: usize = 1 << 14;
/// Words that were told.
const TOLD_HALF: usize = 1 << 13;
/// Texts.
const DEPTHS_HALF: usize = 1 << 12;

impl Default for Hidden {
    fn default() -> Self {
        let hasher = BuildHasherDefault::default();
        let facts = Halves::new(&hasher, FACTS_HALF, |_| 1);
        let told = Halves::new(&hasher, TOLD_HALF, |_| 1);
        let depths = Halves::new(&hasher, DEPTHS_HALF, |_| 1);
        Self(Mutex::new(Known { facts, told, depths }))
    }
}

impl Hidden {
    fn known(&self) -> MutexGuard<'_, Known> {
        // Whoever panicked in here left it whole: it is changed by single calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: u64) -> Option<Arc<Fact>> {
        let mut known = self.known();
        known.facts.find(&key).or_else(|| known.told.find(&key))
    }

    fn put(&self, wanted: &Wanted, fact: &Arc<Fact>) {
        let mut known = self.known();
        let memory = if wanted.is_told { &mut known.told } else { &mut known.facts };
        memory.keep(wanted.key, Arc::clone(fact));
    }
}

/// Where names are looked up.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) hidden: &'a Hidden,
    pub(crate) ages: &'a Ages,
    /// The pool's number: its database.
    pub(crate) pool: u64,
}

impl Place<'_> {
    /// A number for a name, and for how often that was changed which bears it.
    fn key(self, kind: Kind, name: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.pool);
        hasher.write_u32(self.ages.epoch());
        hasher.write_u32(self.ages.of_hidden(name));
        hasher.write_u8(kind as u8);
        hasher.write(name);
        hasher.finish()
    }

    /// A number for all of these.
    fn key_of_all(self, names: &Names) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.pool);
        hasher.write_u32(self.ages.epoch());
        hasher.write_u8(u8::from(names.hides));
        hasher.write_u8(u8::from(names.more));
        hasher.write_u8(u8::from(names.executes));
        hasher.write_u32(names.overloadable.bits());
        hasher.write(&names.packed);
        hasher.finish()
    }
}

/// A name that the server is asked for.
#[derive(Debug)]
struct Wanted {
    kind: Kind,
    name: Box<[u8]>,
    key: u64,
    /// Something stands behind it, and is asked for next.
    is_there: bool,
    /// It is a word that was told.
    is_told: bool,
}

/// What is being found out of a server's database.
#[derive(Debug, Default)]
pub(crate) struct Quest {
    wanted: Vec<Wanted>,
    /// How often it was asked.
    rounds: u8,
    /// How often that was too much at once.
    cuts: u8,
    /// What was told is being followed.
    is_told: bool,
    /// What was found out of words that were told, of which there may be more than are remembered.
    told: BTreeMap<u64, Arc<Fact>>,
}

/// Parts names where they are listed.
const SEPARATOR: u8 = b'\n';
/// Names that are asked for at once, as long as there is not too much to be said of them.
const WANTED_MAX: usize = 512;
/// So often in a row; what is hidden deeper may do anything.
const ROUNDS_MAX: u8 = 48;
/// So many names are followed from one text.
const VISITED_MAX: usize = 8192;
/// Bytes of a name.
const NAME_MAX: usize = 63;
/// Rows that answer at once.
const ROWS_MAX: usize = 1000;

/// What a text may do by what it leads to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Depths {
    pub(crate) touches: bool,
    sets_locally: bool,
    /// It may set something whose name stands nowhere.
    pub(crate) hides: bool,
    /// What it may do that nobody can ask for afterwards.
    pub(crate) unseen: Unseen,
    /// What is named in all that, and could be another's.
    pub(crate) overloadable: Overloadable,
    pub(crate) custom: Vec<Box<[u8]>>,
    /// It runs what it is told.
    pub(crate) executes: bool,
    /// The words of all names in it, and how often what bears them was changed by then.
    words: Box<[u16]>,
    age: u32,
}

/// Names that were followed.
#[derive(Default)]
struct Visited {
    /// And whether they may be told something: by a text, not by what is attached to a table.
    keys: HashSet<(u64, bool)>,
    words: BTreeSet<u16>,
}

impl Depths {
    /// Of what may do anything.
    pub(crate) fn of_anything() -> Self {
        Self { hides: true, ..Self::of_the_unseen() }
    }

    /// Of what could not be looked at.
    pub(crate) fn of_the_unseen() -> Self {
        Self { touches: true, ..Self::default() }
    }

    /// Of what is kept as a tree in which set_config stands.
    pub(crate) fn of_tree(tree: &[u8]) -> Self {
        let custom = dotted_names(&constants(tree)).into();
        Self { touches: true, hides: sets_unnamed(tree), custom, ..Self::default() }
    }

    pub(crate) fn of_builtin(known: sql::Builtin) -> Self {
        Self { touches: known.leaves_something(), unseen: known.unseen(), ..Self::default() }
    }

    /// And what these may do.
    pub(crate) fn add(&mut self, more: &Self) {
        self.touches |= more.touches;
        self.sets_locally |= more.sets_locally;
        self.hides |= more.hides;
        self.unseen |= more.unseen;
        self.overloadable |= more.overloadable;
        self.executes |= more.executes;
        self.custom.extend(more.custom.iter().cloned());
    }

    /// Whether nothing of it has changed.
    fn are_as_they_were(&self, ages: &Ages) -> bool {
        self.age == ages.of_all_hidden(self.words.iter().copied())
    }

    /// Whether nothing of it concerns the session.
    pub(crate) fn are_idle(&self) -> bool {
        !(self.touches || self.sets_locally || self.hides) && self.unseen.is_empty()
    }
}

impl Quest {
    /// Follow the names of a text as far as they are known. What is not is asked for next.
    pub(crate) fn follow(&mut self, place: Place<'_>, names: &Names) -> Arc<Depths> {
        let key = place.key_of_all(names);
        Self::recall(place, names).unwrap_or_else(|| {
            let before = place.ages.any();
            let depths = Arc::new(self.descend(place, names));
            // What is not known yet may be among what others want as well.
            let is_whole = self.wanted.is_empty() && self.rounds < ROUNDS_MAX;
            if is_whole && place.ages.any() == before {
                place.hidden.known().depths.keep(key, Arc::clone(&depths));
            }
            depths
        })
    }

    /// What is known of a text's names by now; `None`: not all.
    pub(crate) fn recall(place: Place<'_>, names: &Names) -> Option<Arc<Depths>> {
        let known = place.hidden.known().depths.find(&place.key_of_all(names));
        known.filter(|depths| depths.are_as_they_were(place.ages))
    }

    /// What comes of what functions are told: of one text, or of one value, so that it is not remembered.
    pub(crate) fn follow_errand(&mut self, place: Place<'_>, errand: &Errand) -> Arc<Depths> {
        self.is_told = true;
        let mut depths = self.descend(place, &errand.names);
        self.is_told = false;
        depths.unseen |= errand.unseen;
        depths.sets_locally |= errand.sets_locally;
        Arc::new(depths)
    }

    fn descend(&mut self, place: Place<'_>, names: &Names) -> Depths {
        let Names { more, hides, overloadable, executes, .. } = *names;
        let hides = hides || more;
        let mut depths =
            Depths { touches: more, hides, overloadable, executes, ..Depths::default() };
        let mut visited = Visited::default();
        let (mut facts, mut errands, mut runs) = (Vec::new(), Vec::new(), executes);
        self.visit(place, (names, true), &mut visited, &mut facts, &mut depths);
        while let Some((fact, is_told)) = facts.pop() {
            let leads_to = &fact.leads_to;
            depths.touches |= fact.touches || leads_to.more;
            depths.sets_locally |= fact.sets_locally;
            depths.hides |= leads_to.hides || leads_to.more;
            depths.unseen |= fact.unseen;
            depths.overloadable |= fact.overloadable;
            depths.executes |= is_told && leads_to.executes;
            depths.custom.extend(fact.custom.iter().cloned());
            self.visit(place, (leads_to, is_told), &mut visited, &mut facts, &mut depths);
            runs |= leads_to.executes;
            if fact.errand.is_some() {
                errands.push(fact);
            }
            // What any of these is told is in the strings of any other.
            if facts.is_empty() && runs {
                for errand in errands.drain(..).filter_map(|fact| fact.errand.clone()) {
                    depths.unseen |= errand.unseen;
                    depths.sets_locally |= errand.sets_locally;
                    // What it sets without a name was seen where it stands.
                    depths.hides |= errand.names.more;
                    let names = (&errand.names, true);
                    self.visit(place, names, &mut visited, &mut facts, &mut depths);
                }
            }
        }
        depths.words = visited.words.into_iter().collect();
        depths.age = place.ages.of_all_hidden(depths.words.iter().copied());
        depths.custom.sort_unstable();
        depths.custom.dedup();
        if depths.custom.len() > CUSTOM_MAX {
            depths.custom.truncate(CUSTOM_MAX);
            depths.hides = true;
        }
        depths
    }

    /// `names`: and whether what bears them may be told something.
    fn visit(
        &mut self,
        place: Place<'_>,
        (names, is_told): (&Names, bool),
        visited: &mut Visited,
        facts: &mut Vec<(Arc<Fact>, bool)>,
        depths: &mut Depths,
    ) {
        for (kind, name) in names.iter() {
            let key = place.key(kind, name);
            let is_told = is_told && kind != Kind::Relation;
            if visited.keys.contains(&(key, true)) || visited.keys.contains(&(key, is_told)) {
                continue;
            }
            if visited.keys.len() == VISITED_MAX {
                (depths.touches, depths.hides) = (true, true);
                return;
            }
            visited.keys.insert((key, is_told));
            visited.words.extend(hashes(name));
            let own = self.told.get(&key).cloned();
            match own.or_else(|| place.hidden.find(key)) {
                Some(fact) => facts.push((fact, is_told)),
                None if self.rounds >= ROUNDS_MAX || name.contains(&SEPARATOR) => {
                    (depths.touches, depths.hides) = (true, true);
                }
                None if self.wanted.len() < self.most() => self.want(kind, name, key),
                // It is, when these are known.
                None => {}
            }
        }
    }

    /// So many names are asked for at once.
    fn most(&self) -> usize {
        (WANTED_MAX >> (3 * self.cuts.min(4))).max(1)
    }

    fn want(&mut self, kind: Kind, name: &[u8], key: u64) {
        if self.wanted.iter().all(|wanted| wanted.key != key) {
            let is_told = self.is_told;
            self.wanted.push(Wanted { kind, name: name.into(), key, is_there: false, is_told });
        }
    }

    /// Begin to follow anew.
    pub(crate) fn clear(&mut self) {
        self.wanted.retain(|wanted| wanted.is_there);
    }

    /// All that can be known is.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn asks(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Append, behind another query, what asks for what is wanted. It has to be the last: it may set something for its
    /// transaction.
    pub(crate) fn ask(&self, out: &mut Vec<u8>) {
        for (query, are_there) in [(FIRST, false), (SECOND, true)] {
            if self.wanted.iter().any(|wanted| wanted.is_there == are_there) {
                for part in query.split('$') {
                    match part {
                        "relations" => self.list(Kind::Relation, are_there, out),
                        "functions" => self.list(Kind::Function, are_there, out),
                        part => out.extend_from_slice(part.as_bytes()),
                    }
                }
            }
        }
    }

    /// One constant, however many there are: whoever counts statements counts one.
    fn list(&self, kind: Kind, are_there: bool, out: &mut Vec<u8>) {
        let of = |wanted: &&Wanted| wanted.kind.asked() == kind && wanted.is_there == are_there;
        let names: Vec<&[u8]> = self.wanted.iter().filter(of).map(|wanted| &*wanted.name).collect();
        out.extend_from_slice(
            b"pg_catalog.string_to_array(pg_catalog.convert_from(pg_catalog.decode('",
        );
        hex(&names.join(&SEPARATOR), out);
        out.extend_from_slice(
            b"','hex'),pg_catalog.getdatabaseencoding()),pg_catalog.chr(10))::pg_catalog.name[]",
        );
    }

    /// The answer. What was asked for is known; or that something stands behind it.
    pub(crate) fn learn(&mut self, hidden: &Hidden, rows: &[Box<[u8]>]) {
        self.rounds += 1;
        let rows: Vec<Row> = rows.iter().filter_map(|row| Row::read(row)).collect();
        let whole = rows.len() < ROWS_MAX;
        let is_its = |wanted: &Wanted, row: &Row| {
            // PostgreSQL cuts names there.
            let name = wanted.name.get(..NAME_MAX).unwrap_or(&wanted.name);
            row.of == wanted.kind.asked() && row.name == name
        };
        if whole {
            self.cuts = self.cuts.saturating_sub(1);
        } else if self.wanted.len() > 1 {
            // There is more to be said of them than is said at once: of one, or of all.
            let rows_of = |wanted: &Wanted| rows.iter().filter(|row| is_its(wanted, row)).count();
            let Some(at) = self.wanted.iter().position(|one| rows_of(one) > ROWS_MAX / 2) else {
                self.cuts += 1;
                return self.wanted.truncate(self.most());
            };
            self.wanted.swap(0, at);
            self.wanted.truncate(1);
        }
        let told = &mut self.told;
        self.wanted.retain_mut(|wanted| {
            let is_its = |row: &&Row| is_its(wanted, row);
            let mut its = rows.iter().filter(is_its);
            if !wanted.is_there && its.any(|row| matches!(row.says, Says::More)) {
                wanted.is_there = true;
                return true;
            }
            let its = its.filter(|row| !matches!(row.says, Says::More));
            let mut fact = fact(its);
            // Nobody has made what is called, by now: it is built in, in a version that nobody here knows.
            // Tables have as many parts as that, which are as they are themselves.
            fact.leads_to.hides |= !whole && wanted.kind != Kind::Relation;
            fact.touches |= !whole || wanted.kind == Kind::Called && !wanted.is_there;
            let fact = Arc::new(fact);
            hidden.put(wanted, &fact);
            if wanted.is_told {
                told.insert(wanted.key, fact);
            }
            false
        });
    }

    /// There is no answer: what was wanted may do anything. Where names could be the reason, these are left out first.
    pub(crate) fn give_up(&mut self, hidden: &Hidden) {
        let odd = self.wanted.iter().any(|wanted| !wanted.name.is_ascii());
        self.wanted.retain(|wanted| {
            let is_left = odd && wanted.name.is_ascii();
            if !is_left {
                let leads_to = Names { hides: odd, executes: true, ..Names::default() };
                let fact = Fact { touches: true, leads_to, ..Fact::default() };
                hidden.put(wanted, &Arc::new(fact));
            }
            is_left
        });
    }
}

/// What an answer says of one name.
struct Row {
    of: Kind,
    name: Vec<u8>,
    says: Says,
}

enum Says {
    /// There is more to be asked.
    More,
    /// It leads to this.
    To(Kind, Vec<u8>),
    /// It calls this, which PostgreSQL has built in.
    Builtin(Vec<u8>),
    /// Its language and its body; `None`: that is too long.
    Body(Option<Vec<u8>>),
    /// A tree in which something is set.
    Tree(Vec<u8>),
}

/// Whether a row of an answer is of this one.
pub(crate) fn is_of(kind: Option<&[u8]>) -> bool {
    kind.is_some_and(|kind| kind.first().is_some_and(u8::is_ascii_digit))
}

impl Row {
    fn read(row: &[u8]) -> Option<Self> {
        let [kind, name, value] = columns(row)?;
        let kind = kind.filter(|kind| is_of(Some(kind)) && !overloads::is_of(kind))?;
        let (name, value) = (unhex(name?)?, value.map(unhex));
        let of = match kind {
            b"1" | b"2" | b"3" | b"7" | b"9" => Kind::Relation,
            _ => Kind::Function,
        };
        let says = match (kind, value) {
            (b"1" | b"4", Some(value)) => Says::To(Kind::Function, value?),
            (b"2" | b"5", Some(value)) => Says::Builtin(value?),
            (b"3" | b"13", Some(value)) => Says::To(Kind::Relation, value?),
            (b"7" | b"8", _) => Says::More,
            (b"9" | b"19", Some(value)) => Says::Tree(value?),
            (_, value) => Says::Body(value.flatten()),
        };
        Some(Self { of, name, says })
    }
}

fn fact<'a>(rows: impl Iterator<Item = &'a Row>) -> Fact {
    let (mut custom, mut leads) = (Vec::new(), BTreeSet::new());
    let (mut touches, mut hides, mut unseen) = (false, false, Unseen::empty());
    let (mut sets_locally, mut sets, mut has_tree, mut executes) = (false, false, false, false);
    let mut overloadable = Overloadable::default();
    let mut told = sql::Told::default();
    for row in rows {
        overloadable |= Overloadable::ANYWHERE;
        match &row.says {
            Says::More => {}
            Says::To(kind, name) => {
                leads.insert((*kind, name.clone()));
            }
            Says::Builtin(name) => {
                let known = str::from_utf8(name).ok().and_then(sql::builtin);
                touches |= known.is_none_or(|known| known.leaves_something());
                executes |= known.is_some_and(|known| known.touch == Touch::Unknown);
                sets |= name == b"set_config";
                unseen |= known.map_or(Unseen::empty(), |known| known.unseen());
            }
            Says::Tree(tree) => {
                custom.extend(dotted_names(&constants(tree)));
                // What that view lets be set is listed there.
                hides |= row.name != b"pg_settings" && sets_unnamed(tree);
                has_tree = true;
            }
            Says::Body(body) => {
                let Some(code) = body.as_deref().and_then(code) else {
                    let text = body.as_deref().map(String::from_utf8_lossy);
                    (touches, executes) = (true, true);
                    hides |= text.is_none_or(|text| sql::may_set(&text));
                    custom.extend(dotted_names(body.as_deref().unwrap_or_default()));
                    told.tell(body.as_deref().unwrap_or_default());
                    continue;
                };
                (touches, hides) = (touches | code.touches, hides | code.hides);
                (unseen, sets_locally) = (unseen | code.unseen, sets_locally | code.sets_locally);
                executes |= code.executes;
                code.strings.iter().for_each(|string| told.tell(string.as_bytes()));
                overloadable |= code.overloadable;
                custom.extend(dotted_names(code.said.as_bytes()));
                let calls = code.calls.into_iter().map(|name| (Kind::Function, name.into_bytes()));
                leads.extend(calls);
                let names = code.names.into_iter().map(|name| (Kind::Relation, name.into_bytes()));
                leads.extend(names);
            }
        }
    }
    // It was too large.
    hides |= sets && !has_tree;
    let names = Names::of(leads.iter().map(|(kind, name)| (*kind, &name[..])));
    let leads_to = Names { hides, executes, ..names };
    let errand = Some(Errand::of(&told)).filter(|errand| !errand.is_empty());
    Fact { custom: custom.into(), touches, sets_locally, unseen, overloadable, leads_to, errand }
}

/// The values of a tree's constants, which stand there as bytes: `:constvalue 9 [ 36 0 0 0 97 46 98 … ]`.
fn constants(tree: &[u8]) -> Vec<u8> {
    let (mut values, mut within) = (Vec::new(), false);
    for word in tree.split(|byte| *byte == b' ') {
        match word {
            b"[" => within = true,
            // Where one ends, no name goes on.
            _ if !within || word == b"]" => {
                within = false;
                values.push(b' ');
            }
            // Signed, as C takes them.
            number => values.extend(
                str::from_utf8(number).ok().and_then(|n| n.parse::<i16>().ok()).map(|n| n as u8),
            ),
        }
    }
    values
}

/// `None`: it cannot be read.
fn code(body: &[u8]) -> Option<sql::Code> {
    let at = body.iter().position(|byte| *byte == b' ')?;
    let (language, body) = (&body[..at], str::from_utf8(&body[at + 1..]).ok()?);
    match language {
        b"c" => compiled(body),
        b"internal" => internal(body),
        // It is kept as a tree, of which all is listed that it runs.
        b"sql" if body.is_empty() => Some(sql::Code::default()),
        b"sql" | b"plpgsql" => sql::Code::of_body(body),
        _ => None,
    }
}

/// Libraries that PostgreSQL brings along and that leave nothing in a session.
const HARMLESS: [&str; 7] =
    ["insert_username", "lo", "moddatetime", "pgcrypto", "refint", "tcn", "uuid-ossp"];

/// Libraries of functions that run what they are told, and say that they change nothing.
const TOLD: [&str; 2] = ["pgxml", "tablefunc"];

/// Of what is compiled, all that can be known is who wrote it and how volatile he says it is: `v $libdir/refint`.
fn compiled(what: &str) -> Option<sql::Code> {
    let (volatility, library) = what.split_once(' ')?;
    let name = library.rsplit('/').next()?;
    let unseen = if name == "autoinc" { Unseen::GIVES } else { Unseen::empty() };
    let is_harmless =
        volatility != "v" && !TOLD.contains(&name) || name == "autoinc" || HARMLESS.contains(&name);
    is_harmless.then(|| sql::Code { unseen, ..sql::Code::default() })
}

/// Of PostgreSQL's own functions by other names, not even that: `i rtrim1`.
fn internal(what: &str) -> Option<sql::Code> {
    let (volatility, function) = what.split_once(' ')?;
    // What an aggregate does, others do for it.
    let is_harmless = volatility != "v" || function == "aggregate_dummy";
    is_harmless.then(sql::Code::default)
}

/// Whether something is set in a tree whose name is no constant there.
fn sets_unnamed(tree: &[u8]) -> bool {
    let tree = String::from_utf8_lossy(tree);
    tree.split(SET_CONFIG).skip(1).any(|call| {
        let arguments = call.split_once(":args (").map_or("", |(_, arguments)| arguments);
        !arguments.starts_with("{CONST ")
    })
}

/// `set_config()`, in a tree.
const SET_CONFIG: &str = ":funcid 2078 ";

/// Behind which names there is anything at all: of tables (7), of functions (8).
const FIRST: &str = concat!(
    ";SELECT '7'::pg_catalog.text,pg_catalog.encode(pg_catalog.convert_to(c.relname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),''::pg_catalog.text ",
    "FROM pg_catalog.pg_class AS c WHERE c.relname OPERATOR(pg_catalog.=) ANY ($relations$) ",
    "AND (c.relhasrules OR c.relhastriggers OR c.relhassubclass OR c.relispartition OR c.relrowsecurity OR c.relchecks OPERATOR(pg_catalog.>) 0 ",
    "OR EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0 ",
    "AND (a.atthasdef OR a.attinhcount OPERATOR(pg_catalog.>) 0 OR a.atttypid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid)) ",
    "OR EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))) ",
    "UNION SELECT '8',pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_proc AS p WHERE p.proname OPERATOR(pg_catalog.=) ANY ($functions$) AND p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "UNION SELECT '8',pg_catalog.encode(pg_catalog.convert_to(o.oprname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_operator AS o WHERE o.oprname OPERATOR(pg_catalog.=) ANY ($functions$) AND o.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid LIMIT 1000"
);

/// What stands behind names: of tables, the functions (1; built in: 2) of their triggers and of all expressions that are kept
/// as trees, views among them, those trees in which set_config stands (9), and the tables (3) that are looked into or cascaded to; of functions, those that they run
/// by themselves (4; built in: 5), their bodies (6), or what bodies are that are kept as trees (13, 19), and of what is compiled how volatile it is, and its library.
///
/// It takes no lock: what would show an expression as text does. And nothing in it is found by a search_path.
const SECOND: &str = concat!(
    // Its costs are guessed too high where there are many tables, and compiling it would take seconds.
    ";SELECT '0'::pg_catalog.text,''::pg_catalog.text,pg_catalog.set_config(name,'off',true) FROM pg_catalog.pg_settings ",
    "WHERE name OPERATOR(pg_catalog.=) 'jit' AND setting OPERATOR(pg_catalog.=) 'on';",
    "WITH c AS (SELECT c.oid AS o,pg_catalog.encode(pg_catalog.convert_to(c.relname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex') AS n ",
    "FROM pg_catalog.pg_class AS c WHERE c.relname OPERATOR(pg_catalog.=) ANY ($relations$)),",
    "p AS (SELECT p.oid AS o,l.lanname AS l,",
    "CASE WHEN l.lanname OPERATOR(pg_catalog.=) 'c' THEN pg_catalog.concat(p.provolatile,' ',p.probin) ",
    "WHEN l.lanname OPERATOR(pg_catalog.=) 'internal' THEN pg_catalog.concat(p.provolatile,' ',p.prosrc) ELSE p.prosrc END AS s,",
    // Before version 14 there is no such column.
    "pg_catalog.concat(p.proargdefaults,CASE WHEN p.prosrc OPERATOR(pg_catalog.=) '' ",
    "THEN pg_catalog.to_jsonb(p) OPERATOR(pg_catalog.->>) 'prosqlbody' END) AS x,",
    "pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex') AS n ",
    "FROM pg_catalog.pg_proc AS p,pg_catalog.pg_language AS l WHERE p.proname OPERATOR(pg_catalog.=) ANY ($functions$) ",
    "AND l.oid OPERATOR(pg_catalog.=) p.prolang AND p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid),",
    // Trees, and whose they are.
    "t AS (SELECT 1 AS k,c.n,pg_catalog.concat(r.ev_action,r.ev_qual) AS x FROM c,pg_catalog.pg_rewrite AS r WHERE r.ev_class OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 1,c.n,d.adbin::pg_catalog.text FROM c,pg_catalog.pg_attrdef AS d WHERE d.adrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 1,c.n,k.conbin::pg_catalog.text FROM c,pg_catalog.pg_constraint AS k WHERE k.conrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 1,c.n,(SELECT pg_catalog.string_agg(k.conbin::pg_catalog.text,'') FROM pg_catalog.pg_constraint AS k ",
    "WHERE k.contypid OPERATOR(pg_catalog.=) a.atttypid) FROM c,pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) c.o ",
    "AND a.attnum OPERATOR(pg_catalog.>) 0 AND a.atttypid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "UNION ALL SELECT 1,c.n,pg_catalog.concat(i.indexprs,i.indpred) FROM c,pg_catalog.pg_index AS i WHERE i.indrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 1,c.n,pg_catalog.concat(s.polqual,s.polwithcheck) FROM c,pg_catalog.pg_policy AS s WHERE s.polrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 1,c.n,g.tgqual::pg_catalog.text FROM c,pg_catalog.pg_trigger AS g WHERE g.tgrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION ALL SELECT 4,p.n,p.x FROM p),",
    // Functions that are run, and by whom.
    "f AS (SELECT t.k,t.n,(m.m)[1]::pg_catalog.oid AS o FROM t,",
    "LATERAL pg_catalog.regexp_matches(t.x,':(?:funcid|opfuncid|aggfnoid|winfnoid) ([0-9]+)','g') AS m(m) ",
    "UNION SELECT 1,c.n,g.tgfoid FROM c,pg_catalog.pg_trigger AS g WHERE g.tgrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION SELECT 4,pg_catalog.encode(pg_catalog.convert_to(o.oprname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),o.oprcode ",
    "FROM pg_catalog.pg_operator AS o WHERE o.oprname OPERATOR(pg_catalog.=) ANY ($functions$) AND o.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "UNION SELECT 4,p.n,pg_catalog.unnest(ARRAY[a.aggtransfn::pg_catalog.oid,a.aggfinalfn::pg_catalog.oid,a.aggmtransfn::pg_catalog.oid,a.aggmfinalfn::pg_catalog.oid]) ",
    "FROM p,pg_catalog.pg_aggregate AS a WHERE a.aggfnoid::pg_catalog.oid OPERATOR(pg_catalog.=) p.o),",
    // Tables that are reached, and from where.
    "r AS (SELECT t.k,t.n,(m.m)[1]::pg_catalog.oid AS o FROM t,LATERAL pg_catalog.regexp_matches(t.x,':relid ([0-9]+)','g') AS m(m) ",
    "UNION SELECT 1,c.n,g.tgconstrrelid FROM c,pg_catalog.pg_trigger AS g WHERE g.tgrelid OPERATOR(pg_catalog.=) c.o ",
    "UNION SELECT 1,c.n,h.inhrelid FROM c,pg_catalog.pg_inherits AS h WHERE h.inhparent OPERATOR(pg_catalog.=) c.o ",
    // What is done to the parent later is done to the child, which is not named then.
    "UNION SELECT 1,c.n,h.inhparent FROM c,pg_catalog.pg_inherits AS h WHERE h.inhrelid OPERATOR(pg_catalog.=) c.o) ",
    "SELECT DISTINCT (CASE WHEN q.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid THEN f.k ELSE f.k OPERATOR(pg_catalog.+) 1 END)::pg_catalog.text,f.n,",
    "pg_catalog.encode(pg_catalog.convert_to(q.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex') ",
    "FROM f,pg_catalog.pg_proc AS q WHERE q.oid OPERATOR(pg_catalog.=) f.o ",
    "UNION ALL SELECT DISTINCT CASE WHEN r.k OPERATOR(pg_catalog.=) 1 THEN '3' ELSE '13' END,r.n,pg_catalog.encode(pg_catalog.convert_to(q.relname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex') ",
    "FROM r,pg_catalog.pg_class AS q WHERE q.oid OPERATOR(pg_catalog.=) r.o ",
    "UNION ALL SELECT DISTINCT '6',p.n,CASE WHEN pg_catalog.length(p.s) OPERATOR(pg_catalog.<=) 32768 THEN ",
    "pg_catalog.encode(pg_catalog.convert_to(pg_catalog.concat(p.l,' ',p.s),pg_catalog.getdatabaseencoding()),'hex') END FROM p ",
    "UNION ALL SELECT DISTINCT CASE WHEN t.k OPERATOR(pg_catalog.=) 1 THEN '9' ELSE '19' END,t.n,pg_catalog.encode(pg_catalog.convert_to(t.x,pg_catalog.getdatabaseencoding()),'hex') FROM t ",
    "WHERE pg_catalog.strpos(t.x,':funcid 2078 ') OPERATOR(pg_catalog.>) 0 AND pg_catalog.length(t.x) OPERATOR(pg_catalog.<=) 262144 LIMIT 1000"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of an answer.
    fn row(kind: &str, name: &str, value: Option<&str>) -> Box<[u8]> {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut row = vec![0, 3];
        for column in [Some(kind.to_owned()), Some(hex(name)), value.map(hex)] {
            let len = column.as_ref().map_or(-1, |column| column.len() as i32);
            row.extend_from_slice(&len.to_be_bytes());
            row.extend_from_slice(column.unwrap_or_default().as_bytes());
        }
        row.into()
    }

    fn in_text(text: &[u8]) -> Names {
        Names::in_text(text, str::from_utf8(text).ok().and_then(sql::Code::of).as_ref())
    }

    #[derive(Default)]
    struct World {
        hidden: Hidden,
        ages: Ages,
        quest: Quest,
    }

    impl World {
        fn follow(&mut self, text: &str) -> Arc<Depths> {
            let names = in_text(text.as_bytes());
            let place = Place { hidden: &self.hidden, ages: &self.ages, pool: 1 };
            self.quest.clear();
            self.quest.follow(place, &names)
        }

        fn wants(&self, kind: Kind, name: &str) -> bool {
            let is_it = |one: &Wanted| one.kind == kind && *one.name == *name.as_bytes();
            self.quest.wanted.iter().any(is_it)
        }

        /// How often it has to be answered by these rows until nothing more is asked for this text.
        fn answered(&mut self, rows: &[Box<[u8]>], text: &str) -> usize {
            let mut rounds = 0;
            while self.quest.asks() {
                self.quest.learn(&self.hidden, rows);
                self.follow(text);
                rounds += 1;
            }
            rounds
        }

        /// First which of these names are there, then what stands behind them.
        fn learn(&mut self, rows: &[Box<[u8]>]) {
            let more = |wanted: &Wanted| {
                let kind = if wanted.kind == Kind::Relation { "7" } else { "8" };
                row(kind, str::from_utf8(&wanted.name).expect("a name"), Some(""))
            };
            let read: Vec<Row> = rows.iter().filter_map(|row| Row::read(row)).collect();
            let is_there = |wanted: &&Wanted| {
                read.iter().any(|row| row.of == wanted.kind && row.name == *wanted.name)
            };
            let there: Vec<_> = self.quest.wanted.iter().filter(is_there).map(more).collect();
            self.quest.learn(&self.hidden, &there);
            assert_eq!(self.quest.wanted.len(), there.len());
            if self.quest.asks() {
                self.quest.learn(&self.hidden, rows);
            }
        }

        /// What comes of a call of `f`, which has this body.
        fn body(body: Option<&str>) -> Arc<Depths> {
            let mut world = Self::default();
            world.follow("SELECT f()");
            world.learn(&[row("6", "f", body)]);
            world.follow("SELECT f()");
            world.learn(&[]);
            let depths = world.follow("SELECT f()");
            assert!(!world.quest.asks(), "all is known");
            depths
        }
    }

    #[test]
    fn names_are_followed_until_all_is_known() {
        let mut world = World::default();
        world.follow("INSERT INTO t VALUES (1)");
        assert!(world.wants(Kind::Relation, "t") && !world.wants(Kind::Relation, "v"));
        world.learn(&[row("1", "t", Some("fires")), row("3", "t", Some("v"))]);
        assert!(!world.follow("INSERT INTO t VALUES (1)").touches);
        assert!(world.wants(Kind::Function, "fires") && world.wants(Kind::Relation, "v"));
        world.learn(&[row(
            "6",
            "fires",
            Some("plpgsql begin perform set_config('a.b', x, false); end"),
        )]);
        let depths = world.follow("INSERT INTO t VALUES (1)");
        assert!(depths.touches);
        assert_eq!(depths.custom, [b"a.b".to_vec().into()]);
        world.learn(&[]);
        let depths = world.follow("INSERT INTO t VALUES (1)");
        assert!(depths.touches && !world.quest.asks());
        // Others find what is known; and nobody does in another minute, or behind a change.
        world.ages.is(59);
        assert!(world.follow("DELETE FROM t").touches && !world.wants(Kind::Relation, "t"));
        world.ages.changed_elsewhere();
        world.follow("DELETE FROM t");
        assert!(world.wants(Kind::Relation, "t"));
        world.learn(&[]);
        assert!(!world.follow("DELETE FROM t").touches);
        world.ages.is(60);
        world.follow("DELETE FROM t");
        assert!(world.wants(Kind::Relation, "t"));
    }

    #[test]
    fn bodies_say_what_they_may_do() {
        assert!(!World::body(Some("plpgsql begin return new; end")).touches);
        assert!(!World::body(Some("c s $libdir/whatever")).touches);
        assert!(!World::body(Some("c v $libdir/refint")).touches);
        assert_eq!(World::body(Some("c v $libdir/autoinc")).unseen, Unseen::GIVES);
        assert!(!World::body(Some("internal v aggregate_dummy")).touches);
        assert!(!World::body(Some("internal i rtrim1")).touches);
        for body in [
            None,
            Some("internal v set_config_by_name"),
            Some("c v $libdir/whatever"),
            Some("c whatever"),
            Some("plpython3u plpy.execute('x')"),
            Some("sql select 'unclosed"),
            Some("nonsense"),
            Some("sql select set_config('a', 'b', false)"),
        ] {
            assert!(World::body(body).touches, "{body:?}");
        }
        assert!(World::body(Some("sql ")).are_idle(), "it is a tree");
        assert!(!World::body(Some("sql SELECT set_config('a.b', 'c', true)")).are_idle());
        assert!(World::body(None).hides, "nobody has read it");
        assert!(World::body(Some("plpython3u plpy.execute('SET ' + name)")).hides);
        assert!(!World::body(Some("plpython3u plpy.execute('SELECT 1')")).hides);
        let custom = |body| World::body(Some(body)).custom.clone();
        assert_eq!(custom("plpython3u plpy.execute(\"SET app.x = 1\")").len(), 2);
        assert!(custom("plpgsql begin new.i := t.j; end").is_empty());
        assert!(World::body(Some("sql select set_config('a.' || $1, $2, false)")).hides);
    }

    #[test]
    fn who_calls_tells_and_rows_tell_nobody() {
        let run = row("6", "run", Some("plpgsql BEGIN EXECUTE c; END"));
        let relay = row("6", "relay", Some("sql SELECT run(c)"));
        let rows = [run, relay, row("1", "t", Some("run"))];
        for (text, executes) in [
            ("SELECT run(a)", true),
            ("SELECT relay(a)", true),
            ("SELECT * FROM t", false),
            ("SELECT relay(a) FROM t", true),
            ("SELECT query_to_xml($1, true, true, '')", true),
            ("SELECT other(a)", false),
        ] {
            let mut world = World::default();
            world.follow(text);
            while world.quest.asks() {
                world.learn(&rows);
                world.follow(text);
            }
            assert_eq!(world.follow(text).executes, executes, "{text}");
        }
    }

    #[test]
    fn what_is_called_is_there_or_unknown() {
        let call = |rows: &[Box<[u8]>]| {
            let names = in_text(b"SELECT f(1) FROM t (i)").calling(&["f", "<=>"]);
            let World { hidden, ages, mut quest } = World::default();
            let place = Place { hidden: &hidden, ages: &ages, pool: 1 };
            quest.follow(place, &names);
            for wanted in &mut quest.wanted {
                wanted.is_there = rows
                    .iter()
                    .filter_map(|row| Row::read(row))
                    .any(|row| row.name == *wanted.name);
            }
            quest.learn(&hidden, rows);
            quest.follow(place, &names);
            quest.learn(&hidden, &[]);
            quest.follow(place, &names)
        };
        assert!(call(&[]).touches, "nobody has made it");
        let body = || row("6", "f", Some("sql SELECT 1"));
        assert!(call(&[body()]).touches, "nor one of them");
        let operator = || row("4", "<=>", Some("f"));
        assert!(call(&[body(), operator()]).are_idle());
        let other = row("6", "f", Some("sql SET a.b = 1"));
        assert!(call(&[body(), operator(), other]).touches);
    }

    #[test]
    fn functions_that_are_built_in_are_known() {
        for (name, touches) in
            [("upper", false), ("nextval", false), ("set_config", true), ("unheard_of", true)]
        {
            let mut world = World::default();
            world.follow("SELECT * FROM v");
            world.learn(&[row("2", "v", Some(name))]);
            assert_eq!(world.follow("SELECT * FROM v").touches, touches, "{name}");
        }
    }

    #[test]
    fn trees_hold_names() {
        let tree = "{FUNCEXPR :funcid 2078 :args ({CONST :constlen -1 :constvalue 9 [ 36 0 0 0 97 46 98 46 99 ]} \
                    {CONST :constvalue 5 [ 20 0 0 0 -61 ]} {CONST :constvalue 1 [ 46 46 nonsense 999 ] :x y.z})}";
        assert_eq!(dotted_names(&constants(tree.as_bytes())), [b"a.b.c".to_vec().into()].into());
        let mut world = World::default();
        world.follow("SELECT * FROM v");
        world.learn(&[row("2", "v", Some("set_config")), row("9", "v", Some(tree))]);
        let depths = world.follow("SELECT * FROM v");
        assert!(depths.touches && !depths.hides && depths.custom.len() == 1);
        // A body that is a tree, too.
        let mut world = World::default();
        let tree = "{FUNCEXPR :funcid 2078 :args ({PARAM :paramkind 0} {CONST :constvalue 5 [ 20 0 0 0 97 ]})}";
        world.follow("SELECT f()");
        world.learn(&[
            row("6", "f", Some("sql ")),
            row("13", "f", Some("t")),
            row("19", "f", Some(tree)),
        ]);
        assert!(world.follow("SELECT f()").hides && world.wants(Kind::Relation, "t"));
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut world = World::default();
        for round in 0..ROUNDS_MAX / 2 {
            world.follow("SELECT f0()");
            assert!(world.quest.asks());
            let to = format!("f{}", round + 1);
            world.learn(&[row("4", &format!("f{round}"), Some(&to))]);
        }
        let depths = world.follow("SELECT f0()");
        assert!(depths.touches && depths.hides && !world.quest.asks());
        let many = (0..5000).map(|i| format!("f{i}(")).collect::<String>();
        let depths = World::default().follow(&many);
        assert!(depths.touches && depths.hides);
    }

    #[test]
    fn where_there_is_too_much_to_be_said_less_is_asked_for_at_once() {
        let mut world = World::default();
        world.follow("SELECT * FROM t, u");
        let many = ["t", "u"].map(|name| vec![row("2", name, Some("upper")); ROWS_MAX]).concat();
        let rounds = world.answered(&many, "SELECT * FROM t, u");
        assert_eq!(rounds, 2, "of each there is too much, whatever is asked for beside it");
        let depths = world.follow("SELECT * FROM t, u");
        assert!(depths.touches && !depths.hides);
        let mut world = World::default();
        world.follow("SELECT f(), g(), h()");
        let names = ["f", "g", "h"].into_iter().cycle().take(ROWS_MAX);
        let many: Vec<_> = names.map(|name| row("5", name, Some("upper"))).collect();
        let rounds = world.answered(&many, "SELECT f(), g(), h()");
        assert_eq!(rounds, 9, "three for all, one for each as a function and as a table");
        let depths = world.follow("SELECT f(), g(), h()");
        assert!(depths.touches && depths.hides);
    }

    #[test]
    fn who_gets_no_answer_believes_nothing() {
        let mut world = World::default();
        world.follow("SELECT * FROM t");
        world.quest.give_up(&world.hidden);
        assert!(world.follow("SELECT * FROM t").touches && !world.quest.asks());
    }

    #[test]
    fn rows_that_are_none_are_left_alone() {
        let mut world = World::default();
        world.follow("SELECT * FROM t");
        let mut odd = row("1", "t", Some("f")).into_vec();
        odd.truncate(9);
        let rows = [odd.into(), Box::default(), row("s", "t", Some("f")), row("x", "", None)];
        world.learn(&rows);
        assert!(!world.follow("SELECT * FROM t").touches);
        assert!(is_of(Some(b"1")) && !is_of(Some(b"s")) && !is_of(Some(b"")) && !is_of(None));
    }

    #[test]
    fn the_question_holds_names_in_digits_only() {
        let mut world = World::default();
        assert!(world.follow("SELECT \"it's\"(\"Tab\"), \"two\nlines\"").touches);
        let mut query = Vec::new();
        world.quest.ask(&mut query);
        let query = String::from_utf8(query).expect("text");
        assert!(query.contains("546162") && !query.contains("Tab") && !query.contains("it's"));
        assert!(query.starts_with(";SELECT") && !query.contains('$'), "it follows another");
    }

    #[test]
    fn what_cannot_be_parsed_is_skimmed() {
        let names = in_text(b"TABLE \"t\" '\xe9', f(");
        let found: Vec<_> = names.iter().collect();
        assert!(found.contains(&(Kind::Relation, &b"t"[..])));
        assert!(found.contains(&(Kind::Function, &b"f"[..])));
    }
}
