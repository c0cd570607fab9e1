//! Functions of others that run where nobody says their names: those that have a name of PostgreSQL's own, those behind an
//! operator that has one, casts, the checks of domains.
//!
//! In nearly all databases none of them touches the session, and no text is asked about for calling what PostgreSQL has
//! built in. Which of them there are is asked for once a minute, and behind all that may have made one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use sql::Overloadable;

use crate::ages::Ages;
use crate::hidden::{Depths, Kind, Names, Place, Quest};
use crate::state::{columns, unhex};

/// What is known of those in one pool's database that touch the session.
#[derive(Debug, Default)]
pub(crate) struct Overloads {
    /// When, and which names they have. In one, so that both are always of one time.
    known: AtomicU64,
    /// What they do.
    does: Mutex<Option<Arc<Depths>>>,
    /// The minute in which somebody was last sent to look.
    minute: AtomicU32,
}

/// How much had been changed when something became known, in two bits less than there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct When {
    /// What could have made one.
    callables: u32,
    /// What they could lead to.
    all: u32,
}

impl When {
    pub(crate) fn of(ages: &Ages) -> Self {
        Self { callables: ages.of_callables(), all: ages.all() }
    }

    /// A number of its own, never 0 nor `NEVER`. Where there are none, it makes no difference what they lead to.
    fn number(self, there_are: bool) -> u32 {
        if there_are {
            SOME | self.callables.wrapping_add(self.all) & LOW
        } else {
            NONE | self.callables & LOW
        }
    }
}

const SOME: u32 = 1 << 31;
const NONE: u32 = 1 << 30;
const LOW: u32 = NONE - 1;
/// When nobody looks.
const NEVER: u32 = u32::MAX;

impl Overloads {
    /// Which names they have; `None`: nobody knows.
    #[inline]
    pub(crate) fn known(&self, now: When) -> Option<Overloadable> {
        let known = self.known.load(Relaxed);
        let at = (known >> 32) as u32;
        let is_now = at == NEVER || at == now.number(at & SOME != 0);
        is_now.then(|| Overloadable::from_bits(known as u32))
    }

    pub(crate) fn find(&self, now: When) -> Option<Found> {
        let names = self.known(now)?;
        let does = self.does.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Some(Found { names, does: does.unwrap_or_default(), there_are: true })
    }

    pub(crate) fn keep(&self, at: When, found: &Found) {
        *self.does.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found.does));
        let at = u64::from(at.number(found.there_are));
        self.known.store(at << 32 | u64::from(found.names.bits()), Relaxed);
    }

    /// They cannot be asked for.
    pub(crate) fn give_up(&self) {
        self.known.store(u64::from(NEVER) << 32, Relaxed);
    }

    /// Whether it is for whoever asks to look, in this minute.
    pub(crate) fn are_due(&self, second: u32) -> bool {
        let minute = second / 60;
        let looks = (self.known.load(Relaxed) >> 32) as u32 != NEVER;
        self.minute.swap(minute, Relaxed) != minute && looks
    }
}

/// Those that touch the session.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) names: Overloadable,
    pub(crate) does: Arc<Depths>,
    /// There are some, be it that they leave the session alone.
    there_are: bool,
}

impl Found {
    /// Any name could be that of one, and what it does be anything.
    fn anything() -> Self {
        Self { names: Overloadable::ALL, does: Arc::new(Depths::of_anything()), there_are: true }
    }

    /// Nobody could look this time.
    pub(crate) fn unseen() -> Self {
        Self { names: Overloadable::ALL, does: Arc::new(Depths::of_the_unseen()), there_are: true }
    }
}

/// Those that are there, as the server lists them.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Functions, and what runs them: their names, or anything.
    functions: Vec<(Overloadable, Box<[u8]>)>,
    /// What those do that PostgreSQL has built in.
    builtin: Depths,
    /// There are more.
    is_short: bool,
}

/// Rows of the answer.
const ROWS_MAX: usize = 1000;

impl List {
    pub(crate) fn read(rows: &[Box<[u8]>]) -> Self {
        let mut list = Self::default();
        for row in rows {
            let Some([Some(kind), Some(name), _]) = columns(row) else { continue };
            let Some(name) = Some(name).filter(|_| is_of(kind)).and_then(unhex) else { continue };
            if kind == TREE {
                list.builtin.add(&Depths::of_tree(&name));
                continue;
            }
            let anywhere = kind == ANYWHERE;
            // PostgreSQL's own names are ASCII.
            let text = String::from_utf8_lossy(&name);
            let run_by = if anywhere { Overloadable::ALL } else { Overloadable::of(&text) };
            // In the check of a domain its own functions may stand.
            let builtin = sql::builtin(&text).filter(|_| anywhere);
            if let Some(builtin) = builtin {
                list.builtin.add(&Depths::of_builtin(builtin));
            }
            list.functions.push((run_by, name.into()));
        }
        list.is_short |= list.functions.len() >= ROWS_MAX;
        list
    }

    /// Which of them touch the session. `None`: more is to be asked for first.
    pub(crate) fn weigh(&self, quest: &mut Quest, place: Place<'_>) -> Option<Found> {
        let mut all = vec![(Overloadable::ALL, Arc::new(self.builtin.clone()))];
        for (run_by, name) in &self.functions {
            let names = Names::of([(Kind::Function, &**name)]);
            all.push((*run_by, quest.follow(place, &names)));
        }
        if quest.asks() {
            return None;
        }
        if self.is_short {
            return Some(Found::anything());
        }
        let (mut names, mut does) = (Overloadable::default(), Depths::default());
        // Those that touch it by themselves, then those that call one of these, and so on.
        loop {
            let (touching, others): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|(_, does)| !does.are_idle() || does.overloadable.meets(names));
            if touching.is_empty() {
                let there_are = !self.functions.is_empty() || !self.builtin.are_idle();
                return Some(Found { names, does: Arc::new(does), there_are });
            }
            for (run_by, more) in &touching {
                names |= *run_by;
                does.add(more);
            }
            all = others;
        }
    }
}

/// Whether a row of an answer is of this list.
pub(crate) fn is_of(kind: &[u8]) -> bool {
    matches!(kind, NAMED | ANYWHERE | TREE)
}

const NAMED: &[u8] = b"21";
const ANYWHERE: &[u8] = b"22";
const TREE: &[u8] = b"23";

/// Asks for the names of functions that have one of PostgreSQL's own (21), and of those that run without being named, or behind an
/// operator that has one (22); and for the trees of domains' checks in which set_config stands (23).
pub(crate) const ASK: &str = concat!(
    ";SELECT '21'::pg_catalog.text,pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),''::pg_catalog.text ",
    "FROM pg_catalog.pg_proc AS p WHERE p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid AND EXISTS (SELECT FROM pg_catalog.pg_proc AS b ",
    "WHERE b.proname OPERATOR(pg_catalog.=) p.proname AND b.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid) ",
    "UNION SELECT '22',pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_operator AS o,pg_catalog.pg_proc AS p WHERE o.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "AND p.oid OPERATOR(pg_catalog.=) o.oprcode::pg_catalog.oid AND p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "AND EXISTS (SELECT FROM pg_catalog.pg_operator AS b ",
    "WHERE b.oprname OPERATOR(pg_catalog.=) o.oprname AND b.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid) ",
    "UNION SELECT '22',pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_cast AS c,pg_catalog.pg_proc AS p WHERE c.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "AND p.oid OPERATOR(pg_catalog.=) c.castfunc AND p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "UNION SELECT '22',pg_catalog.encode(pg_catalog.convert_to(p.proname::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_constraint AS k,LATERAL pg_catalog.regexp_matches(k.conbin::pg_catalog.text,':(?:funcid|opfuncid) ([0-9]+)','g') AS m(m),",
    "pg_catalog.pg_proc AS p WHERE k.contypid OPERATOR(pg_catalog.>) 0::pg_catalog.oid AND k.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "AND p.oid OPERATOR(pg_catalog.=) (m.m)[1]::pg_catalog.oid ",
    "UNION SELECT '23',pg_catalog.encode(pg_catalog.convert_to(k.conbin::pg_catalog.text,pg_catalog.getdatabaseencoding()),'hex'),'' ",
    "FROM pg_catalog.pg_constraint AS k WHERE k.contypid OPERATOR(pg_catalog.>) 0::pg_catalog.oid AND k.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid ",
    "AND pg_catalog.strpos(k.conbin::pg_catalog.text,':funcid 2078 ') OPERATOR(pg_catalog.>) 0 LIMIT 1000"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hidden::Hidden;

    fn row(kind: &str, name: &str, value: &str) -> Box<[u8]> {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut row = vec![0, 3];
        for column in [kind, &hex(name), &hex(value)] {
            row.extend((column.len() as u32).to_be_bytes());
            row.extend(column.as_bytes());
        }
        row.into()
    }

    /// Which names touch the session, where these are listed and have these bodies.
    fn weigh(listed: &[(&str, &str)], bodies: &[(&str, &str)]) -> Overloadable {
        let (hidden, ages, mut quest) = (Hidden::default(), Ages::default(), Quest::default());
        let rows: Vec<_> = listed.iter().map(|(kind, name)| row(kind, name, "")).collect();
        let list = List::read(&rows);
        let place = Place { hidden: &hidden, ages: &ages, pool: 1 };
        for kind in ["8", "6", ""] {
            if list.weigh(&mut quest, place).is_none() {
                let answer = |(name, body): &(&str, &str)| row(kind, name, body);
                quest.learn(&hidden, &bodies.iter().map(answer).collect::<Vec<_>>());
            }
        }
        quest.clear();
        list.weigh(&mut quest, place).expect("all is known").names
    }

    #[test]
    fn only_those_that_touch_the_session_count() {
        let none = Overloadable::default();
        assert_eq!(weigh(&[], &[]), none);
        let tame = ("abs", "plpgsql begin return 1; end");
        assert_eq!(weigh(&[("21", "abs")], &[tame]), none);
        let sets = ("abs", "plpgsql begin perform set_config('a.b', 'c', false); end");
        assert_eq!(weigh(&[("21", "abs")], &[sets]), Overloadable::of("abs"));
        assert_eq!(weigh(&[("22", "abs")], &[sets]), Overloadable::ALL);
        let calls = ("round", "plpgsql begin return abs('x'); end");
        assert_eq!(
            weigh(&[("21", "abs"), ("21", "round")], &[sets, calls]),
            Overloadable::of("abs") | Overloadable::of("round")
        );
        assert_eq!(weigh(&[("21", "abs"), ("21", "round")], &[tame, calls]), none);
        assert_eq!(weigh(&[("22", "pg_advisory_lock")], &[]), Overloadable::ALL);
        assert_eq!(
            weigh(&[("23", "{FUNCEXPR :funcid 2078 :args ({CONST }")], &[]),
            Overloadable::ALL
        );
        assert_eq!(weigh(&[("22", "length")], &[]), none);
    }

    #[test]
    fn what_is_known_is_of_one_time() {
        let overloads = Overloads::default();
        let [now, later, much_later] =
            [(0, 0), (0, 1), (1, 1)].map(|(callables, all)| When { callables, all });
        assert!(overloads.known(now).is_none() && overloads.find(now).is_none());
        let names = Overloadable::of("abs");
        for there_are in [false, true] {
            overloads.keep(now, &Found { names, does: Arc::default(), there_are });
            assert_eq!(overloads.known(now), Some(names));
            assert_eq!(overloads.known(later).is_some(), !there_are);
            assert!(overloads.known(much_later).is_none());
        }
        assert!(overloads.are_due(60) && !overloads.are_due(61) && overloads.are_due(120));
        overloads.give_up();
        assert_eq!(overloads.known(later), Some(Overloadable::default()));
        assert!(!overloads.are_due(180));
    }
}
