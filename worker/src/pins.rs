//! Servers that their clients keep between transactions: why, since when, and how far that goes.

use io::Driver;
use pool::Instant;
use session::{Tie, Ties, refusal};

use crate::end::Why;
use crate::log::Level;
use crate::worker::Worker;
use crate::world::World;

/// `configuration_limit_exceeded`
const TOO_MANY: &str = "53400";
/// `idle_session_timeout`
const IDLE: &str = "57P05";
/// `admin_shutdown`: to be tried again on a new connection.
const OVER: &str = "57P01";

/// Why and since when a client keeps its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin {
    pub(crate) since: Instant,
    /// Unix time, in seconds.
    pub(crate) wall: i64,
    /// All reasons there were.
    ties: Ties,
    /// Since when each is there.
    each: [Option<Instant>; Tie::ALL.len()],
}

/// What was counted of one reason in one pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// There are now.
    pub(crate) pinned: u64,
    pub(crate) ever: u64,
    /// Of those that are over.
    pub(crate) time_us: u64,
    pub(crate) longest_us: u64,
    pub(crate) warned: u64,
    pub(crate) refused: u64,
    /// Servers that could not be set to what their client was set to.
    pub(crate) unset: u64,
}

/// By reason, in the order of [`Tie::ALL`].
pub(crate) type Tallies = [Tally; Tie::ALL.len()];

impl<D: Driver, W: World> Worker<D, W> {
    /// It is known anew what ties `slot` to `entry`. `false`: that may not be, and the client is gone.
    pub(crate) fn pin(&mut self, slot: u32, entry: u32) -> bool {
        let server = &self.servers[entry as usize];
        let (ties, pool, first) = (server.side.trail.ties, server.pool, server.pinned.is_none());
        let Some(room) = self.room(pool) else { return true };
        let refused = room.rules.refused;
        if let Some(tie) = ties.iter().find(|tie| refused.has(*tie)) {
            self.refuse_state(slot, tie);
            return false;
        }
        if server.side.trail.only_listens() && !server.stays {
            // That ties it for a moment only.
            self.unpin(entry);
            return true;
        }
        let max = room.max_pinned;
        if first && !self.commons.memory().pin(pool, max) {
            self.too_many_pinned(slot, ties, max);
            return false;
        }
        let now = self.now;
        let wall = self.world.wall_us() / 1_000_000;
        let new = Pin { since: now, wall, ties: Ties::default(), each: Default::default() };
        let pin = &mut **self.servers[entry as usize].pinned.get_or_insert_with(|| Box::new(new));
        let mut warned = Ties::default();
        let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize) else { return true };
        for (at, tie) in Tie::ALL.into_iter().enumerate() {
            let tally = &mut room.pins[at];
            match (ties.has(tie), pin.each[at]) {
                (true, None) => {
                    pin.each[at] = Some(now);
                    pin.ties.add(tie);
                    tally.pinned += 1;
                    tally.ever += 1;
                    if room.warned.has(tie) {
                        tally.warned += 1;
                        warned.add(tie);
                    }
                }
                (false, Some(since)) => {
                    pin.each[at] = None;
                    tally.end(now, since);
                }
                _ => {}
            }
        }
        if first {
            for tie in ties.iter() {
                self.report_tie(slot, entry, tie);
            }
            self.log_client(slot, Level::Log, format_args!("pinned to its server: {ties}"));
        }
        if !warned.is_none() {
            let statement = self.servers[entry as usize].side.trail.culprit();
            let statement = String::from_utf8_lossy(statement).into_owned();
            let text = format_args!("session state: {warned}, by: {statement}");
            self.log_client(slot, Level::Warning, text);
        }
        true
    }

    /// `entry` is its client's no longer, or nothing ties them any more.
    pub(crate) fn unpin(&mut self, entry: u32) {
        let Some(server) = self.servers.get_mut(entry as usize) else { return };
        let Some(pin) = server.pinned.take() else { return };
        let (pool, client, now) = (server.pool, server.client, self.now);
        self.commons.memory().unpin(pool);
        if let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize) {
            for (tally, since) in room.pins.iter_mut().zip(pin.each) {
                if let Some(since) = since {
                    tally.end(now, since);
                }
            }
        }
        if let Some(client) = client {
            let seconds = now.since(pin.since).as_secs_f64();
            let text = format_args!("unpinned from its server after {seconds:.3}s: {}", pin.ties);
            self.log_client(client.0, Level::Log, text);
        }
    }

    /// `slot` made state that is refused, and nobody could tell before: its transaction is over.
    pub(crate) fn refuse_state(&mut self, slot: u32, tie: Tie) {
        self.count_refusal(slot, tie);
        let (message, hint) = (refusal::message(tie), refusal::hint(tie));
        self.client_leaves(slot, Why::said(refusal::CODE, message, hint));
    }

    /// Requests of `slot` were refused, and it was told so.
    pub(crate) fn count_refusals(&mut self, slot: Option<u32>) {
        for tie in std::mem::take(&mut self.flow.refused) {
            let Some(slot) = slot else { continue };
            self.count_refusal(slot, tie);
            if self.site.config.settings.log_pooler_errors {
                let text = refusal::message(tie);
                self.log_client(slot, Level::Warning, format_args!("pooler error: {text}"));
            }
        }
    }

    fn count_refusal(&mut self, slot: u32, tie: Tie) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        let at = Tie::ALL.iter().position(|other| *other == tie);
        let room = self.rooms.get_mut(client.pool.0 as usize).and_then(Option::as_mut);
        if let (Some(at), Some(room)) = (at, room) {
            room.pins[at].refused += 1;
        }
    }

    fn too_many_pinned(&mut self, slot: u32, ties: Ties, max: u32) {
        let message = "too many servers of this pool are pinned to their clients".to_owned();
        let hint = format!(
            "max_pinned_servers is {max}, and this session would be one more: {ties}. What it did is \
             committed; what it held is given up."
        );
        self.client_leaves(slot, Why::said(TOO_MANY, message, hint));
    }

    /// `slot` has kept its server for too long, or idles with it.
    pub(crate) fn pin_is_over(&mut self, slot: u32, idle: bool) {
        let crate::client::State::Linked(server) = self.clients[slot as usize].state else {
            return;
        };
        let ties = self.servers[server.0 as usize].side.trail.ties;
        let (code, what) = if idle { (IDLE, "pin_idle_timeout") } else { (OVER, "pin_timeout") };
        let message = format!("terminating connection due to {what}");
        let hint = format!("It kept a server between transactions: {ties}.");
        self.client_leaves(slot, Why::said(code, message, hint));
    }
}

impl Tally {
    fn end(&mut self, now: Instant, since: Instant) {
        let time_us = u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX);
        self.pinned = self.pinned.saturating_sub(1);
        self.time_us = self.time_us.saturating_add(time_us);
        self.longest_us = self.longest_us.max(time_us);
    }
}

impl Pin {
    /// Since when there is the reason at this place in [`Tie::ALL`].
    pub(crate) fn since_of(&self, at: usize) -> Option<Instant> {
        self.each.get(at).copied().flatten()
    }
}
