//! Clients who share servers hear what they would hear from a server of their own.

mod model;
mod script;
mod world;

use model::Dice;
use script::Script;
use session::Rules;
use wire::{Namespace, tag};
use world::{Plan, Segment, World};

const TEXTS: [&str; 10] = [
    "select one",
    "select two",
    "insert",
    "begin",
    "commit",
    "rollback",
    "rows r",
    "fail now",
    "notice n",
    "select one",
];

/// What goes into a random stream.
impl Script {
    /// One thing a client might say, sensible or not.
    fn anything(self, dice: &mut Dice) -> Self {
        let name = dice.pick(&["", "", "a", "b", "c", "PGBOUNCER_1"]);
        let named = dice.pick(&["a", "b", "c"]);
        let portal = dice.pick(&["", "", "p"]);
        let text = dice.pick(&TEXTS);
        match dice.under(25) {
            0..4 => self.parse(named, text),
            4 => self.parse(name, "bad text"),
            5 | 6 => self.parse("", text),
            7..10 => self.bind(portal, name).execute(portal, 0),
            10 => self.bind(portal, name),
            11 => self.execute(portal, dice.pick(&[0, 2, 3])),
            12 => self.describe(Namespace::Statement, name),
            13 => self.describe(Namespace::Portal, portal),
            14 | 15 => self.close(Namespace::Statement, name),
            16 => self.close(Namespace::Portal, portal),
            17 => self.flush(),
            18 => self.query(
                dice.pick(&["begin", "rollback", "commit", "", "select x", "fail q", "bad"]),
            ),
            19 => self.query(dice.pick(&[
                "select 1;fail;select 2",
                "begin;insert",
                "notify ch",
                "copyout",
            ])),
            20 => self.message(tag::client::FUNCTION_CALL, b"\0\0\0\x01"),
            21 => self.copy(dice),
            22 => {
                let mut script = self.sync();
                wire::write::message(&mut script.0, tag::client::PARSE, |out| {
                    out.extend_from_slice(named.as_bytes());
                    out.extend_from_slice(b"\0insert\0\0\x01\0\0\0");
                    out.push(if dice.one_in(2) { 23 } else { 25 });
                });
                script.bind("", named)
            }
            23 => self.forget_all(dice),
            _ => self.sync(),
        }
    }

    /// All names go in the midst of a batch, which goes on with names that were there before. Under a
    /// portal of its own, which nothing else runs again.
    fn forget_all(self, dice: &mut Dice) -> Self {
        let text = dice.pick(&["deallocate all", "deallocate all", "discard all"]);
        let script = self.parse("z", text).bind("d", "z").execute("d", 0);
        script.close(Namespace::Portal, "d").close(Namespace::Statement, "z")
    }

    /// A COPY in one of the ways clients do it, well or badly. It ends with a Sync.
    fn copy(self, dice: &mut Dice) -> Self {
        let simple = dice.one_in(2);
        // What came before must not have failed: an unasked-for CopyData is ignored, but a Sync is
        // not, and what the copy eats depends on it.
        let script = self.sync();
        let script = match (simple, dice.one_in(2)) {
            (true, true) => script.query("copyin"),
            (true, false) => script.query("select 1;copyin;select 2"),
            (false, eaten) => {
                let script = script.parse("", "copyin").run("");
                if eaten { script.sync() } else { script }
            }
        };
        let script = script.data("row").flush();
        let script = if dice.one_in(3) { script.data("bad row!") } else { script };
        let script = script.data("another row");
        let script = match dice.under(3) {
            0 => script.message(tag::client::COPY_FAIL, b"enough\0"),
            _ => script.copy_done(),
        };
        if simple {
            return script;
        }
        // So that no COPY begins again where nobody expects it.
        script.sync().close(Namespace::Portal, "").close(Namespace::Statement, "").sync()
    }

    /// What leaves nothing behind.
    fn tidy(self) -> Self {
        self.sync().query("rollback").sync()
    }
}

fn plan(dice: &mut Dice) -> Plan {
    let time_zone = dice.pick(&["UTC", "UTC", "CET"]);
    let mut segments = Vec::new();
    for _ in 0..=dice.under(6) {
        let mut script = Script::default();
        for _ in 0..=dice.under(9) {
            script = script.anything(dice);
        }
        // Only what was synced or flushed is answered in time.
        script = if dice.one_in(4) { script.flush() } else { script.sync() };
        segments.push(Segment(script.0));
        if dice.one_in(6) {
            let all = dice.pick(&["deallocate all", "set TimeZone='Asia/Tokyo'", "show TimeZone"]);
            segments.push(Segment(Script::default().query(all).0));
        }
        if dice.one_in(8) {
            // Under a portal of its own, which nothing else runs again.
            let script = Script::default().parse("z", "discard all").bind("d", "z");
            let script = script.execute("d", 0).close(Namespace::Portal, "d");
            segments.push(Segment(script.sync().0));
        }
    }
    segments.push(Segment(Script::default().tidy().0));
    Plan { time_zone, segments }
}

fn rules(prepared_max: u32) -> Rules {
    Rules { prepared_max, ..Rules::default() }
}

/// One random world, from its seed.
fn world(seed: u64) -> World {
    let mut dice = Dice(seed);
    let plans: Vec<_> = (0..=dice.under(3)).map(|_| plan(&mut dice)).collect();
    let mut rules = rules(dice.pick(&[1, 1, 2, 3, 200]));
    if dice.one_in(4) {
        rules.prepared_bytes = 20;
    }
    let servers = 1 + dice.under(3);
    World::new(rules, &plans, servers, dice.roll())
}

/// Whatever several clients say over several servers, cut anywhere and in any order of events,
/// each hears what it would hear from a server of its own, byte for byte.
#[test]
fn clients_hear_what_they_would_hear_alone() {
    let worlds = std::env::var("WORLDS").ok().and_then(|n| n.parse().ok()).unwrap_or(6000);
    let first = std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut seen = Seen::default();
    for seed in first..first + worlds {
        let mut world = world(seed);
        world.play();
        seen.add(&world);
        if let Err(wrong) = world.verdict() {
            panic!("seed {seed}, {:?}:\n{wrong}", world.rules);
        }
    }
    assert!(worlds < 1000 || seen.everything(), "the dice never rolled something: {seen:?}");
}

/// How often the rarer things happened: a test that never meets them proves nothing about them.
#[derive(Debug, Default)]
struct Seen {
    held: usize,
    closed: usize,
    set: usize,
    faked: u64,
    binds: u64,
}

impl Seen {
    fn add(&mut self, world: &World) {
        let counted = world.flow.counted;
        self.held += world.held;
        self.closed += world.closed;
        self.set += world.set;
        self.faked += counted.client_parses.saturating_sub(counted.server_parses);
        self.binds += counted.binds;
    }

    fn everything(&self) -> bool {
        let Self { held, closed, set, faked, binds } = *self;
        [held, closed, set].iter().all(|n| *n > 50) && faked > 10 && binds > 1000
    }
}
