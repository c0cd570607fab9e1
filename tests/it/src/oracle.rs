//! The differential oracle: one conversation, directly and through the pooler, compared byte for byte.
//!
//! The pooler has one server, and between any two steps a stranger on the same pool uses it, in ways chosen to disturb:
//! unnamed statements, errors, transactions, parameters. What must differ is masked: process numbers in notifications, the
//! table numbers in row descriptions (the two conversations have a database each), and the place in PostgreSQL's source where
//! a failed transaction refuses a statement.

use std::time::Duration;

use crate::howdah::Setup;
use crate::raw::{Heard, PATIENCE, Raw};
use crate::reply::{Message, Reply};
use crate::say;
use crate::world::{Dice, World};

/// Where the reply to a step ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Ready(usize),
    /// The first message of this tag.
    Tag(u8),
    /// Nothing comes: the step ends in a Flush, or in nothing.
    Quiet,
}

pub struct Oracle {
    pub world: World,
    direct: Raw,
    pooled: Raw,
    stranger: Stranger,
    dice: Dice,
    story: Vec<String>,
    torn: bool,
}

impl Oracle {
    #[must_use]
    pub fn new() -> Self {
        Self::with(|setup| setup)
    }

    /// With other settings; the pool stays one server in size.
    #[must_use]
    pub fn with(change: impl FnOnce(Setup) -> Setup) -> Self {
        let world = World::with(1, change);
        let direct_db = world.postgres.database();
        let direct = crate::Login::new(
            world.postgres.address(),
            "app",
            crate::postgres::PASSWORD,
            &direct_db,
        )
        .enter();
        let pooled = world.client();
        let stranger = Stranger { raw: world.client(), owed: None };
        Self { world, direct, pooled, stranger, dice: Dice::new(), story: Vec::new(), torn: false }
    }

    /// What is sent through the pooler goes in pieces of random sizes from here on.
    #[must_use]
    pub fn torn(mut self) -> Self {
        self.torn = true;
        self
    }

    /// Says `bytes` to both, and compares what comes back.
    ///
    /// # Panics
    /// When it differs, with the story so far.
    pub fn step(&mut self, what: &str, bytes: &[u8], until: Until) -> Reply {
        self.story.push(what.to_owned());
        self.stranger.disturb(&mut self.dice);
        self.direct.send(bytes);
        let expected = match until {
            Until::Ready(count) => self.direct.until_readies(count),
            Until::Tag(tag) => self.direct.until(tag),
            Until::Quiet => self.direct.until_quiet(Duration::from_millis(60)),
        };
        if self.torn {
            self.pooled.send_torn(bytes, &mut self.dice);
        } else {
            self.pooled.send(bytes);
        }
        let heard = self.hear(expected.0.len());
        let (heard, masked) = (mask(heard), mask(expected.clone()));
        assert!(
            heard == masked,
            "after {:#?} in step {}\nPostgreSQL said {}: {masked:#?}\nthe pooler said {}: {heard:#?}",
            &self.story[self.story.len().saturating_sub(4)..],
            self.story.len(),
            masked.tags(),
            heard.tags()
        );
        expected
    }

    /// As many messages as PostgreSQL sent; what is too much shows in the next step.
    fn hear(&mut self, count: usize) -> Reply {
        let mut reply = Reply::default();
        while reply.0.len() < count {
            match self.pooled.hear(PATIENCE) {
                Heard::Message(message) => reply.0.push(message),
                Heard::Quiet | Heard::Closed => break,
            }
        }
        reply
    }

    /// A simple query as a step.
    pub fn query(&mut self, sql: &str) -> Reply {
        self.step(sql, &say::query(sql), Until::Ready(1))
    }

    /// Messages with one Sync at their end, as a step.
    pub fn synced(&mut self, what: &str, messages: &[Vec<u8>]) -> Reply {
        self.step(what, &[messages.concat(), say::sync()].concat(), Until::Ready(1))
    }

    /// The last steps: nothing is left over, and the stranger got what it asked for.
    pub fn end(mut self) {
        self.query("ROLLBACK");
        self.query("SELECT 'the end'");
        assert!(
            matches!(self.pooled.hear(Duration::from_millis(20)), Heard::Quiet),
            "more than PostgreSQL said"
        );
        self.stranger.settle(PATIENCE);
        assert!(self.stranger.owed.is_none(), "the stranger was not served");
        self.world.howdah.must_live();
    }
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

/// The second client. It may have to wait while the other is in a transaction.
struct Stranger {
    raw: Raw,
    owed: Option<&'static Habit>,
}

/// Something a stranger does, and the tags that must answer it.
struct Habit {
    say: fn() -> Vec<u8>,
    tags: &'static str,
}

const HABITS: &[Habit] = &[
    Habit { say: || say::query("SELECT 'stranger'"), tags: "TDCZ" },
    Habit { say: || say::query("SELECT 1/0"), tags: "EZ" },
    Habit { say: || say::query("BEGIN; SELECT 'stranger'; ROLLBACK"), tags: "CTDCCZ" },
    Habit { say: || say::query(""), tags: "IZ" },
    Habit {
        say: || [say::extended("SELECT 'stranger' || $1", &["!"]), say::sync()].concat(),
        tags: "12TDCZ",
    },
    Habit {
        say: || [say::parse("", "SELECT nonsense"), say::bind("", "", &[]), say::sync()].concat(),
        tags: "EZ",
    },
];

impl Stranger {
    /// Collects what is due and, when nothing is owed any more, asks for something else.
    fn disturb(&mut self, dice: &mut Dice) {
        self.settle(Duration::from_millis(1));
        if self.owed.is_none() {
            let habit = dice.pick(HABITS);
            self.raw.send(&(habit.say)());
            self.owed = Some(habit);
            // Half of the time it is served before the next step, half of the time in the middle of it.
            if dice.below(2) == 0 {
                self.settle(Duration::from_millis(15));
            }
        }
    }

    fn settle(&mut self, patience: Duration) {
        let Some(habit) = self.owed else { return };
        let first = match self.raw.hear(patience) {
            Heard::Message(message) => message,
            Heard::Quiet => return,
            Heard::Closed => panic!("the stranger was thrown out"),
        };
        let mut reply = Reply(vec![first]);
        if reply.0[0].tag != b'Z' {
            reply.0.extend(self.raw.until_ready().0);
        }
        assert_eq!(reply.tags(), habit.tags, "the stranger heard something else: {reply:?}");
        let own = |message: &Message| {
            message.cells()[0].as_deref().is_some_and(|cell| cell.starts_with("stranger"))
        };
        assert!(reply.of(b'D').all(own), "the stranger got another's row: {reply:?}");
        self.owed = None;
    }
}

/// Takes out what must differ between two sessions.
#[must_use]
pub fn mask(mut reply: Reply) -> Reply {
    for message in &mut reply.0 {
        match message.tag {
            // Where in PostgreSQL a failed transaction stopped a statement: at its Bind, or at the Parse that the pooler had
            // to put before it on this server.
            b'E' if message.fields().code() == "25P02" => {
                let told =
                    message.fields().0.into_iter().filter(|(field, _)| !b"FLR".contains(field));
                let told: Vec<_> = told.collect();
                let told: Vec<_> =
                    told.iter().map(|(field, text)| (*field, text.as_str())).collect();
                message.body = crate::fake::fields(&told);
            }
            b'A' => message.body[..4].fill(0),
            b'T' => {
                let mut at = 2;
                while let Some(end) = message.body[at..].iter().position(|&byte| byte == 0) {
                    let table = at + end + 1;
                    message.body[table..table + 4].fill(0);
                    at = table + 18;
                    if at >= message.body.len() {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    reply
}
