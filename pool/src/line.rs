//! The line of clients waiting for a server.

use crate::register::{At, List, Register};
use crate::{ClientId, Instant};

/// First come, first served. Leaving from the middle of ten thousand is as cheap as from the front.
#[derive(Debug)]
pub(crate) struct Line {
    seats: Register<Seat>,
    order: List,
    /// The first who was not told yet that it is in line. All behind it were not told either.
    untold: Option<At>,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    since: Instant,
    flavour: u32,
    /// How many who came later were served before it.
    overtaken: u8,
}

/// Nobody is overtaken more often than this: so many servers more have to come free, at the most, before it has its turn.
const OVERTAKEN_MAX: u8 = 32;

/// So many are looked at for one whom a server suits.
const LOOK_AT: usize = 64;

impl Line {
    pub(crate) const fn new() -> Self {
        Self { seats: Register::new(), order: List::new(), untold: None }
    }

    pub(crate) fn len(&self) -> u32 {
        self.order.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.seats.find(client.0).is_some()
    }

    /// `client`, who is not in line, joins at the end.
    pub(crate) fn join(&mut self, client: ClientId, flavour: u32, now: Instant) {
        let seat = Seat { since: now, flavour, overtaken: 0 };
        let at = self.seats.insert(client.0, seat, &mut self.order);
        self.untold = self.untold.or(Some(at));
    }

    /// `client` goes; false if it was not here.
    pub(crate) fn leave(&mut self, client: ClientId) -> bool {
        let found = self.seats.find(client.0);
        if let Some(at) = found {
            self.remove(at);
        }
        found.is_some()
    }

    /// The head of the line goes.
    pub(crate) fn pop(&mut self) -> Option<ClientId> {
        let last = planted::is("last-come-first-served");
        let at = if last { self.order.last()? } else { self.order.first()? };
        let client = ClientId(self.seats.number(at));
        self.remove(at);
        Some(client)
    }

    /// Somebody near the head of the line goes, whom a server of this flavour suits; else the head.
    pub(crate) fn pop_like(&mut self, flavour: u32) -> Option<ClientId> {
        let mut passed = 0;
        let mut suited = None;
        for at in self.seats.iter(&self.order).take(LOOK_AT) {
            let seat = &self.seats[at];
            if seat.flavour == flavour {
                suited = Some(at);
                break;
            }
            if seat.overtaken >= OVERTAKEN_MAX {
                break;
            }
            passed += 1;
        }
        let Some(suited) = suited.filter(|_| !planted::is("last-come-first-served")) else {
            return self.pop();
        };
        let mut at = self.order.first();
        for _ in 0..passed {
            let Some(overtaken) = at else { break };
            self.seats[overtaken].overtaken += 1;
            at = self.seats.next(overtaken);
        }
        let client = ClientId(self.seats.number(suited));
        self.remove(suited);
        Some(client)
    }

    /// The flavour that the head of the line wants.
    pub(crate) fn flavour(&self) -> Option<u32> {
        self.order.first().map(|at| self.seats[at].flavour)
    }

    /// Since when the head of the line waits.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.order.first().map(|at| self.seats[at].since)
    }

    /// Since when the first who was not told waits.
    pub(crate) fn untold_since(&self) -> Option<Instant> {
        self.untold.map(|at| self.seats[at].since)
    }

    /// The first who was not told counts as told.
    pub(crate) fn tell(&mut self) -> Option<ClientId> {
        let at = self.untold?;
        self.untold = self.seats.next(at);
        Some(ClientId(self.seats.number(at)))
    }

    pub(crate) fn invariants(&self) {
        assert_eq!(self.seats.len(), self.order.len(), "a waiter hangs nowhere");
        let since = self.seats.iter(&self.order).map(|at| self.seats[at].since);
        assert!(since.is_sorted(), "the line is out of order");
        let untold =
            self.untold.is_none_or(|untold| self.seats.iter(&self.order).any(|at| at == untold));
        assert!(untold, "the next to be told has left");
    }

    fn remove(&mut self, at: At) {
        if self.untold == Some(at) {
            self.untold = self.seats.next(at);
        }
        self.seats.remove(at, &mut self.order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_server_suits_goes_first_but_nobody_waits_for_ever() {
        let mut line = Line::new();
        line.join(ClientId(0), 7, Instant(0));
        for client in 1..=40 {
            line.join(ClientId(client), 1, Instant(u64::from(client)));
        }
        let mut before = 0;
        while line.pop_like(1) != Some(ClientId(0)) {
            before += 1;
            line.invariants();
        }
        assert_eq!(before, u32::from(OVERTAKEN_MAX));
        assert_eq!(line.pop_like(9), Some(ClientId(before + 1)), "whom nothing suits goes in turn");
    }
}
