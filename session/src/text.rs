//! What a text says of what it may do to a session.

use std::cell::LazyCell;
use std::sync::Arc;

use sql::{Act, Code, Discarded, Overloadable, Skim, Skimmed, States, Strings, Touch, Transaction};

use crate::ages::{Change, is_found, mentions, speaks};
use crate::beliefs::Turn;
use crate::hidden::Names;
use crate::made::{Deed, has_say};
use crate::reading::{Marks, Reading, Tells};
use crate::regain::Resets;
use crate::sequences::named;
use crate::state::{CUSTOM_MAX, Tie, Ties, is_plain_name};
use crate::vars::is_always_tracked;

/// Kinds of state that a probe finds.
const FOUND: States = States::SETTINGS
    .union(States::ROLE)
    .union(States::STATEMENTS)
    .union(States::CURSORS)
    .union(States::CHANNELS)
    .union(States::TEMPORARY)
    .union(States::LOCKS);

/// Longest name of a setting that is looked for. PostgreSQL cuts identifiers, but not what set_config() is given.
pub(crate) const NAME_MAX: usize = 255;

/// So many names with a dot that stand in no string are looked for.
const OTHERS_MAX: usize = 64;

/// Longer texts are not read: a worker has no time for them, and asking the server afterwards costs
/// less.
pub(crate) const READ_MAX: usize = 16 * 1024;

/// So much of such a text is looked at for what it executes.
pub(crate) const HEAD_MAX: usize = 1024;

/// Read `text`, as PostgreSQL would.
#[must_use]
pub fn read(text: &[u8]) -> Reading {
    if text.len() > READ_MAX {
        let mut known = skimmed(&Skim::of(text, Strings::default()));
        known.deeds = executed(text);
        return known;
    }
    let reading = sql::Reading::of(text, true);
    let mut marks = Marks::default();
    let mut names_custom = false;
    let mut shows = Ties::default();
    if reading.unread.is_some() {
        marks = Marks::ASK.and(Marks::RESETS).and(Marks::SETTINGS).and(Marks::MAY_GIVE);
        names_custom = true;
    }
    for statement in &reading.statements {
        show(statement, &mut shows);
        marks = marks.and(marks_of(statement, statement.touch));
        names_custom |= names_settings(statement);
    }
    marks = marks.and(of_all(&reading, text, marks));
    let set: Vec<&str> = reading.acts().filter_map(custom_name).collect();
    let code = LazyCell::new(|| str::from_utf8(text).ok().and_then(Code::of));
    let custom = if names_custom { said(text, code.as_ref(), &set) } else { Box::default() };
    let mut known = Reading::new(marks, custom).showing(shows);
    let calls: Vec<&str> =
        reading.statements.iter().flat_map(|one| &one.calls).map(String::as_str).collect();
    let may_run = reading.unread.is_some() || reading.statements.iter().any(may_run_more);
    known.names = if may_run {
        Names::in_text(text, code.as_ref()).calling(&calls)
    } else if reading.acts().any(|act| *act == Act::Function("set_config")) {
        Names::in_text(text, code.as_ref()).without_names()
    } else {
        Names::default()
    };
    let tells = |one: &sql::Statement| one.touch >= Touch::Calls || one.acts.iter().any(executes);
    if reading.unread.is_some() || reading.statements.iter().any(tells) {
        known.tells = Tells::Strings;
    }
    // There may be more, or what nobody looks for.
    let may_hide =
        known.custom.len() == CUSTOM_MAX || set.iter().any(|name| !is_plain_name(name.as_bytes()));
    if may_hide {
        known.names = known.names.hiding();
    }
    known.overloadable = reading.overloadable();
    known.deeds = deeds(&reading);
    known.vacates = vacates(&reading);
    known.changes = changes(&reading, text);
    known.turn = turn(&reading);
    known.resets = Resets::of(&reading);
    known.signals = reading.statements.iter().flat_map(|one| one.signals.clone()).collect();
    if !calls.is_empty() {
        known.tame = tame(&reading, &known, text).map(Arc::new);
    }
    known
}

/// All that could be names of custom settings in a text that sets these: what stands in its strings, and in its blocks.
fn said(text: &[u8], code: Option<&Code>, set: &[&str]) -> Box<[Box<[u8]>]> {
    let said = code.map_or(text, |code| code.said.as_bytes());
    let mut names = dotted_names(&[said, set.join("\n").as_bytes()].join(&b'\n')).into_vec();
    // Elsewhere it is columns, but a comment may say what is put together.
    let mut others = dotted_names(text).into_vec();
    if others.len() <= OTHERS_MAX {
        others.retain(|name| !names.contains(name));
        names.extend(others);
        names.truncate(CUSTOM_MAX);
    }
    names.into()
}

/// What a text is that nobody has parsed, by what stands in it.
pub(crate) fn skimmed(found: &Skimmed) -> Reading {
    let marks = Marks::ASK.and(Marks::RESETS).and(Marks::SETTINGS).and(Marks::WIPES);
    let marks = marks.and(Marks::MAY_GIVE).and(Marks::of_unseen(found.unseen));
    let mut known = Reading::new(marks, dotted_names(&found.said));
    known.names = Names::of_skimmed(found);
    if known.custom.len() == CUSTOM_MAX {
        known.names = known.names.hiding();
    }
    known.tells = if found.tells { Tells::Unseen } else { Tells::Nothing };
    known.overloadable = Overloadable::ALL;
    known.changing(if found.changes { Change::Anything } else { Change::Nothing })
}

/// The name of a setting that has a dot in it.
fn custom_name(act: &Act) -> Option<&str> {
    match act {
        Act::Set(setting) if setting.is_custom() => Some(&setting.name),
        _ => None,
    }
}

/// What a text is that calls what nobody here knows, where that does nothing to the session.
fn tame(reading: &sql::Reading, known: &Reading, text: &[u8]) -> Option<Reading> {
    let may = |one: &sql::Statement| match one.touch {
        Touch::Inert | Touch::Ordinary => true,
        Touch::Calls => one.acts.is_empty(),
        Touch::Unknown => false,
    };
    let plain = known.deeds.is_empty() && known.vacates.is_empty() && known.resets.is_none();
    if !plain || reading.unread.is_some() || !reading.statements.iter().all(may) {
        return None;
    }
    let of = |one: &sql::Statement| marks_of(one, one.touch.min(Touch::Ordinary));
    let marks = reading.statements.iter().map(of).fold(Marks::default(), Marks::and);
    let marks = marks.and(of_all(reading, text, marks));
    (!marks.has(Marks::ASK)).then(|| Reading {
        changes: known.changes.clone(),
        turn: known.turn,
        signals: known.signals.clone(),
        names: known.names.clone(),
        ..Reading::new(marks, Box::default())
    })
}

/// What only all statements of a text together say, where one by one they say `marks`.
fn of_all(reading: &sql::Reading, text: &[u8], mut marks: Marks) -> Marks {
    if marks.has(Marks::MAY_GIVE) {
        marks = marks.and(named(text));
    }
    if let [statement] = &reading.statements[..]
        && let [Act::Discard(Discarded::All | Discarded::Sequences)] = &statement.acts[..]
    {
        marks = marks.and(Marks::FORGETS);
    }
    let is_whole = reading.unread.is_none();
    if let ([statement], true) = (&reading.statements[..], is_whole)
        && let [Act::Deallocate(_)] = &statement.acts[..]
    {
        marks = marks.and(Marks::GIVES_UP);
    }
    let read = is_whole && marks.has(Marks::ASK);
    if read && reading.statements.iter().all(releases) {
        marks = marks.and(Marks::RELEASES);
    }
    marks
}

/// What one statement may do, where it reaches so far.
fn marks_of(statement: &sql::Statement, touch: Touch) -> Marks {
    let (acts, makes) = (&statement.acts, statement.makes);
    let changes = makes | statement.ends;
    let is_idle = !acts.is_empty() && acts.iter().all(is_without_say);
    let has_say = acts.iter().any(sets) || changes.intersects(States::SETTINGS | States::ROLE);
    let looks = statement.reads.contains(States::STATEMENTS) && !acts.iter().any(executes);
    let is_unknown = touch >= Touch::Calls;
    let may = [
        (is_unknown, Marks::ASK.and(Marks::RESETS).and(Marks::SETTINGS)),
        (touch == Touch::Ordinary, Marks::LEARN),
        (changes.intersects(FOUND) && !are_reported(acts), Marks::ASK),
        (makes.intersects(States::LIBRARIES | States::BACKEND), Marks::LOAD),
        (makes.contains(States::SEED), Marks::SEED),
        (looks, Marks::LOOKS),
        (acts.iter().any(notifies), Marks::NOTIFIES),
        (has_say && !is_idle, Marks::SETTINGS),
        (acts.iter().any(wipes), Marks::WIPES),
        (acts.iter().any(resets), Marks::ASK.and(Marks::RESETS)),
    ];
    let marks = may.into_iter().filter_map(|(does, marks)| does.then_some(marks));
    marks.fold(sequences(statement, touch), Marks::and)
}

/// Whether a statement may run what stands in no text. What defines something calls what it names, or nothing.
fn may_run_more(statement: &sql::Statement) -> bool {
    let defines = |act: &Act| matches!(act, Act::Define | Act::Drop(_) | Act::CreateTemporary(_));
    match statement.touch {
        Touch::Inert => false,
        Touch::Ordinary => !statement.acts.iter().any(defines),
        Touch::Calls | Touch::Unknown => true,
    }
}

/// Whether a statement may bring settings into being that have a dot in their names.
fn names_settings(statement: &sql::Statement) -> bool {
    let changes = statement.makes | statement.ends;
    let is_unknown = statement.touch >= Touch::Calls;
    is_unknown || changes.contains(States::SETTINGS) && !are_reported(&statement.acts)
}

/// Whether a statement makes no state, but perhaps ends some.
fn releases(statement: &sql::Statement) -> bool {
    let ends = |act: &Act| match act {
        Act::Reset(_) | Act::ResetAll | Act::Discard(_) | Act::DeallocateAll => true,
        Act::CloseAll | Act::Close(_) | Act::UnlistenAll | Act::Unlisten(_) => true,
        Act::Set(setting) => matches!(setting.value, sql::Value::Default),
        // Of blocks, only one is known to be harmless.
        Act::Transaction(_) | Act::Show(_) | Act::Do => true,
        Act::Function(_) => statement.makes.is_empty(),
        _ => false,
    };
    statement.touch == Touch::Inert && statement.acts.iter().all(ends)
}

/// What a statement has to do with what sequences give.
fn sequences(statement: &sql::Statement, touch: Touch) -> Marks {
    let mut marks = Marks::default();
    if statement.reads.contains(States::SEQUENCES) {
        marks = marks.and(Marks::SEQUENCE);
    }
    if statement.makes.contains(States::SEQUENCES) {
        marks = marks.and(Marks::GIVES);
    }
    // DDL may fill columns, and what was deferred may be a trigger.
    let may = |act: &Act| matches!(act, Act::Define | Act::Maintain | Act::SetConstraints);
    let may = statement.acts.iter().any(may);
    if statement.writes || touch >= Touch::Calls || may {
        marks = marks.and(Marks::MAY_GIVE);
    }
    marks
}

/// What a text does to prepared statements by name.
fn deeds(reading: &sql::Reading) -> Box<[Deed]> {
    let sole = reading.statements.len() == 1;
    let deed = |act: &Act| match act {
        // Of several statements in one text PostgreSQL keeps the whole, which nobody can repeat.
        Act::Prepare { name, body: Some(body), .. } if sole => {
            Some(Deed::Prepare { name: name.as_bytes().into(), body: body.start })
        }
        Act::Execute(name) => Some(Deed::Execute(name.as_bytes().into())),
        Act::Deallocate(name) => Some(Deed::Deallocate(name.as_bytes().into())),
        _ => None,
    };
    reading.acts().filter_map(deed).collect()
}

/// What a text that is too long to be read executes by name: what makes it long is what is given to that, and the name
/// stands before it.
pub(crate) fn executed(text: &[u8]) -> Box<[Deed]> {
    let beginning = text.get(..HEAD_MAX).unwrap_or(text);
    let Some(at) = find(beginning, b"execute") else { return Box::default() };
    let Some(len) = beginning[at..].iter().position(|byte| *byte == b'(') else {
        return Box::default();
    };
    let reading = sql::Reading::of(&beginning[..at + len], true);
    if reading.acts().any(executes) { deeds(&reading) } else { Box::default() }
}

/// What a text changes that others may stand on.
fn changes(reading: &sql::Reading, text: &[u8]) -> Change {
    let unknown = reading.statements.iter().any(|statement| statement.touch >= Touch::Calls);
    if (unknown || reading.unread.is_some()) && speaks(text) {
        return Change::Anything;
    }
    let mut names: Vec<Box<[u8]>> = Vec::new();
    // A domain changes tables that nobody names, and a name can be spelled so that no word of it is there.
    let is_plain = !mentions(text, b"domain") && find(text, b"u&\"").is_none();
    let anything = if is_plain { Change::Written } else { Change::Anything };
    for act in reading.acts() {
        let changed = match act {
            Act::Transaction(Transaction::CommitPrepared(_)) => return Change::Anything,
            Act::Define => &[],
            Act::CreateTemporary(made) => std::slice::from_ref(&made.object),
            // What is dropped along with it has other names.
            Act::Drop(objects) if !mentions(text, b"cascade") => &objects[..],
            Act::Drop(_) => &[],
            _ => continue,
        };
        if changed.is_empty() || !changed.iter().all(|object| is_found(&object.name)) {
            return anything;
        }
        names.extend(changed.iter().map(|object| object.name.as_bytes().into()));
    }
    if names.is_empty() { Change::Nothing } else { Change::Named(names.into()) }
}

/// What a text does to the transaction that it stands in: its last word on that.
fn turn(reading: &sql::Reading) -> Turn {
    let turns = reading.acts().filter_map(|act| match act {
        Act::Transaction(Transaction::Begin(_)) => Some(Turn::Begins),
        Act::Transaction(Transaction::Savepoint(_) | Transaction::Release(_)) => None,
        Act::Transaction(_) => Some(Turn::Ends),
        _ => None,
    });
    turns.last().unwrap_or_default()
}

/// The databases that nobody else may be in for what a text does.
fn vacates(reading: &sql::Reading) -> Box<[Box<str>]> {
    let databases = reading.acts().filter_map(|act| match act {
        Act::Databases(names) => Some(names),
        _ => None,
    });
    databases.flatten().map(|name| name.as_str().into()).collect()
}

fn executes(act: &Act) -> bool {
    matches!(act, Act::Execute(_))
}

/// Whether an act may change a setting, be it for its transaction only.
fn sets(act: &Act) -> bool {
    match act {
        Act::Set(setting) => !setting.name.eq_ignore_ascii_case("application_name"),
        Act::Function("set_config") => true,
        act => resets(act),
    }
}

/// Whether all that an act does is to set what has no say in what a text means.
fn is_without_say(act: &Act) -> bool {
    let name = |setting: &sql::Setting| setting.name.to_ascii_lowercase();
    matches!(act, Act::Set(setting) if !has_say(name(setting).as_bytes()))
}

/// Whether an act does away with all prepared statements.
fn wipes(act: &Act) -> bool {
    matches!(act, Act::DeallocateAll | Act::Discard(Discarded::All))
}

/// Kinds of state, and what they are called here.
const SHOWN: [(States, Tie); 8] = [
    (States::STATEMENTS, Tie::PreparedStatement),
    (States::CURSORS, Tie::HoldableCursor),
    (States::CHANNELS, Tie::Listen),
    (States::TEMPORARY, Tie::TemporaryTable),
    (States::LOCKS, Tie::AdvisoryLock),
    (States::LIBRARIES, Tie::Load),
    (States::BACKEND, Tie::Load),
    (States::SEED, Tie::Seed),
];

/// What a statement says of the state that it makes and that outlives its transaction.
pub(crate) fn show(statement: &sql::Statement, shows: &mut Ties) {
    let brief = |act: &Act| matches!(act, Act::CreateTemporary(made) if made.on_commit_drop);
    for (states, tie) in SHOWN {
        let brief = tie == Tie::TemporaryTable && statement.acts.iter().any(brief);
        if statement.makes.intersects(states) && !brief {
            shows.add(tie);
        }
    }
    if statement.reads.contains(States::SEQUENCES) {
        shows.add(Tie::Sequence);
    }
    let sets = |act: &Act| match act {
        Act::Set(setting) => {
            !(setting.local || matches!(setting.value, sql::Value::Default) || is_reported(act))
        }
        Act::SetCharacteristics(_) => true,
        _ => false,
    };
    if statement.acts.iter().any(sets) {
        shows.add(Tie::Settings);
    }
}

/// Whether acts are all there is, and set nothing but what the server reports by itself.
fn are_reported(acts: &[Act]) -> bool {
    !acts.is_empty() && acts.iter().all(is_reported)
}

/// Whether all that an act does is to set what the server reports by itself.
pub(crate) fn is_reported(act: &Act) -> bool {
    matches!(act, Act::Set(setting) if is_always_tracked(setting.name.as_bytes()))
}

fn notifies(act: &Act) -> bool {
    matches!(act, Act::Notify { .. } | Act::Function("pg_notify"))
}

/// Whether an act may lead a setting back to what it was at login.
fn resets(act: &Act) -> bool {
    match act {
        Act::Reset(_) | Act::ResetAll | Act::Discard(Discarded::All) | Act::Do | Act::Call(_) => {
            true
        }
        Act::Set(setting) => matches!(setting.value, sql::Value::Default),
        _ => false,
    }
}

/// Where `word` first stands in `text`, in whatever case.
pub(crate) fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|part| part.eq_ignore_ascii_case(word))
}

/// All that could be names of custom settings, wherever they stand: in a SET, in a string that
/// `set_config` is given, in the body of a function. One too many costs a look, one too few a leak.
pub(crate) fn dotted_names(text: &[u8]) -> Box<[Box<[u8]>]> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    for word in text.split(|byte| !is_part(byte)) {
        let starts = word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        let dotted = word.contains(&b'.') && !word.ends_with(b".") && word.len() <= NAME_MAX;
        if starts && dotted && is_plain_name(word) {
            let name = word.to_ascii_lowercase().into();
            if !names.contains(&name) && names.len() < CUSTOM_MAX {
                names.push(name);
            }
        }
    }
    names.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(text: &str) -> Marks {
        read(text.as_bytes()).marks
    }

    #[test]
    fn what_cannot_matter_costs_nothing() {
        for text in [
            "select 1",
            "begin",
            "commit",
            "rollback to a",
            "",
            "set application_name = 'x'",
            "SET TIME ZONE 'UTC'",
            "show all",
            "select pg_catalog.now()",
        ] {
            // That settings are not as they were is of interest while it runs, and asks nothing.
            let marks = marks(text).without(Marks::SETTINGS);
            assert!(marks.is_none(), "{text}: {marks:?}");
        }
    }

    #[test]
    fn what_makes_state_asks() {
        for text in [
            "set work_mem = '1MB'",
            "/* x */ SeT search_path to a, b",
            "select set_config('a.b', 'c', false)",
            "select 1; set role bob",
            "create temp table t(i int)",
            "select pg_advisory_lock(1)",
            "listen x",
            "prepare p as select 1",
            "declare c cursor with hold for select 1",
            "do $$ begin perform 1; end $$",
            "select my_function()",
            "discard all",
            "reset all",
            "no such thing",
        ] {
            assert!(marks(text).has(Marks::ASK), "{text}: {:?}", marks(text));
        }
        assert!(marks("discard all").has(Marks::RESETS) && marks("reset x").has(Marks::RESETS));
        assert!(marks("load 'x'").has(Marks::LOAD));
        assert!(marks("select setseed(0.5)").has(Marks::SEED));
        assert!(marks("select lastval()").has(Marks::SEQUENCE));
    }

    #[test]
    fn tables_are_learnt() {
        for text in ["select * from t", "insert into t values ($1)", "update t set a = 1"] {
            let marks = marks(text);
            assert_eq!(marks.without(Marks::MAY_GIVE), Marks::LEARN, "{text}");
            assert_eq!(marks.has(Marks::MAY_GIVE), !text.starts_with("select"), "{text}");
        }
    }

    #[test]
    fn names_of_custom_settings_are_found_wherever_they_stand() {
        let names = |text: &str| {
            let custom = read(text.as_bytes()).custom;
            custom.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("set App.X = 1"), ["app.x"]);
        assert_eq!(names("select set_config('app.y', $1, false)"), ["app.y"]);
        assert_eq!(names("do $$ begin perform set_config('a.b', '', false); end $$"), ["a.b"]);
        assert!(names("select a.b from a").is_empty());
    }

    #[test]
    fn what_others_may_stand_on_is_told() {
        let changes = |text: &str| read(text.as_bytes()).changes;
        for text in [
            "create table t (i int)",
            "alter table t add column j int",
            "drop table t cascade",
            "create type t as enum ('a')",
            "select 1 into t",
            "create function f() returns int language sql as 'select 1'",
        ] {
            assert_eq!(changes(text), Change::Written, "{text}");
        }
        for text in [
            "do $$ begin create table t(); end $$",
            "select f('drop table t')",
            "commit prepared 'x'",
            "create extension x",
            "create domain d as int",
            "alter domain d add check (value > 0)",
            "create trigger a before insert on U&\"d!0061t\" uescape '!' execute function f()",
        ] {
            assert_eq!(changes(text), Change::Anything, "{text}");
        }
        let names = |names: &[&str]| {
            Change::Named(names.iter().map(|name| name.as_bytes().into()).collect())
        };
        assert_eq!(changes("create temp table t (i int)"), names(&["t"]));
        assert_eq!(changes("drop table s.\"T u\", v; select 1"), names(&["T u", "v"]));
        for text in [
            "select * from t",
            "truncate t",
            "vacuum t",
            "select create_order(1)",
            "insert into t values ('drop')",
            "begin",
        ] {
            assert_eq!(changes(text), Change::Nothing, "{text}");
        }
    }
}
