//! Questions to all workers, and what comes of them.

use std::collections::BTreeMap;

use admin::{Facts, Refusal};
use io::Driver;

use crate::mail::{Answer, Ask, Mail};
use crate::order::Order;
use crate::worker::Worker;
use crate::world::World;

/// The questions of this worker that are not answered yet.
#[derive(Default)]
pub(crate) struct Asks {
    next: u64,
    open: BTreeMap<u64, Asked>,
}

/// One question, and the answers so far.
pub(crate) struct Asked {
    pub(crate) whose: Whose,
    left: u16,
    facts: Facts,
    found: bool,
    failed: Option<Refusal>,
}

/// On whose behalf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Whose {
    /// An admin's, by slot and id.
    Admin { slot: u32, id: u64 },
    /// The stats line of the log.
    Log,
}

/// All answers together.
pub(crate) struct Outcome {
    pub(crate) facts: Facts,
    pub(crate) found: bool,
    pub(crate) failed: Option<Refusal>,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// Ask all workers, this one too. Returns the question's number.
    pub(crate) fn ask_all(&mut self, order: &Order, whose: Whose) -> u64 {
        let workers = self.commons.workers();
        let ask = self.open_ask(whose, workers);
        self.commons.order(order, Some(ask));
        ask.number
    }

    /// The number of the next question.
    pub(crate) fn upcoming_ask(&self) -> u64 {
        self.asks.next
    }

    /// A question of which `answers` will come.
    pub(crate) fn open_ask(&mut self, whose: Whose, answers: u16) -> Ask {
        let number = self.asks.next;
        self.asks.next += 1;
        let facts = Facts::default();
        let asked = Asked { whose, left: answers, facts, found: false, failed: None };
        self.asks.open.insert(number, asked);
        Ask { from: self.me, number }
    }

    /// Answer a question, here or elsewhere. An order that nobody waits for has no question.
    pub(crate) fn answer(&mut self, ask: Option<Ask>, answer: Answer) {
        let Some(ask) = ask else { return };
        if ask.from == self.me {
            self.answered(ask.number, answer);
        } else {
            self.commons.mail(ask.from, Mail::Answer { ask, answer });
        }
    }

    pub(crate) fn answered(&mut self, number: u64, answer: Answer) {
        // Whoever asked may have left, and the question with him.
        let Some(asked) = self.asks.open.get_mut(&number) else { return };
        match answer {
            Answer::Done => {}
            Answer::Facts(facts) => asked.facts.merge(*facts),
            Answer::Failed(refusal) => asked.failed = Some(refusal),
            Answer::Found(found) => asked.found |= found,
        }
        asked.left -= 1;
        if asked.left > 0 {
            return;
        }
        let Some(asked) = self.asks.open.remove(&number) else { return };
        let Asked { whose, facts, found, failed, .. } = asked;
        let outcome = Outcome { facts, found, failed };
        match whose {
            Whose::Admin { slot, id } => self.admin_answered(slot, id, outcome),
            Whose::Log => self.tell_stats(&outcome.facts),
        }
    }

    /// Order something that nobody waits for.
    pub(crate) fn tell_all(&self, order: &Order) {
        self.commons.order(order, None);
    }

    /// Nobody waits for this any more.
    pub(crate) fn forget_ask(&mut self, number: u64) {
        self.asks.open.remove(&number);
    }
}
