//! One worker's part of one pool.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::line::Line;
use crate::register::At;
use crate::server::{Counts, Place, Server, Servers};
use crate::{
    Action, Board, ClientId, CloseReason, Duration, Instant, PoolId, RefuseReason, ServerId,
    WorkerId,
};

/// The servers of one (database, user) on one worker, and the line of clients waiting for them.
///
/// A client that finds a server idle here, and a server that finds a client in line here, are linked
/// at once. Every other input ends in `settle`, so the pool never rests with something to do.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    me: WorkerId,
    limits: Limits,
    board: Arc<Board>,
    servers: Servers,
    line: Line,
    /// How many of `testing` go to another worker once their check succeeds.
    promised: u32,
    /// Mails sent to workers that showed idle servers, and not answered yet. Each answer, and each
    /// server that arrives for whatever reason, takes one off: the number may be too low for a while
    /// (a useless mail more), but never too high for ever (a client forgotten).
    nudges: u32,
    want: Want,
    /// When we last asked for a slot.
    asked_at: Instant,
    epoch: u32,
    is_paused: bool,
    /// Not later than the dialling of any server at rest, so that a tick knows without looking that none
    /// is too old.
    oldest_opened: Instant,
    /// Before this, `min_pool_size` forbids to close what is idle too long.
    idle_again: Instant,
    lag: Lag,
}

/// How much longer the lines of the other workers have been waiting than ours, added up release by
/// release. One look may deceive; a small difference that stays does not, and is found here.
#[derive(Debug, Default)]
struct Lag {
    /// By worker, in parts of [`LAG_ONE`]. Empty until there was something to compare.
    sums: Vec<i32>,
    /// With whom we compare next: one at a release, however many there are.
    next: u16,
}

/// How this pool behaves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `query_wait_timeout`.
    pub wait: Option<Duration>,
    /// `query_wait_notify`.
    pub notify: Option<Duration>,
    /// `server_idle_timeout`. It never goes below `min_pool_size`, which the bank shows on the board.
    pub idle: Option<Duration>,
    /// `server_lifetime`; zero = use once.
    pub lifetime: Duration,
    /// `server_check_delay`; `None` when `server_check_query` is off.
    pub check_delay: Option<Duration>,
    /// `server_round_robin`.
    pub round_robin: bool,
    /// `pool_size` over all workers, zero = unlimited. Paces the closes for `lifetime`.
    pub size: u32,
    /// Most logins at once on this worker.
    pub opening_max: u32,
}

/// How we stand with the bank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Want {
    Nothing,
    /// So many were asked for, and neither is there an answer.
    Asked(u32),
    /// It said no, and will call; to be safe we ask again after [`ASK_AGAIN`].
    Denied,
}

/// The bank calls when a slot is free, but not when time makes it so: the reserve pool, and the
/// retry after a failed login, are found by asking. PgBouncer looks as often.
const ASK_AGAIN: Duration = Duration::from_millis(333);

/// So many idle servers are looked at for one of the right flavour.
const LOOK_AT: usize = 16;

/// Where two workers have a line, a server goes over at once if the other head has waited `FAIR_TIMES` as
/// long as ours and `FAIR_SLACK` more, which is about what the move itself costs. Where the difference is
/// less, how long heads have waited is chance, and a move at each would be one for every few queries; what
/// is not chance [`Lag`] finds.
const FAIR_TIMES: u32 = 2;
const FAIR_SLACK: Duration = Duration::from_micros(200);

/// A difference in waiting that is as large as the longer of the two waits.
const LAG_ONE: i32 = 1024;

/// Who is behind by so much is given a server. Lower, and chance would move servers about (at 32, once
/// in about a thousand releases); higher, and it would take longer to find the right split.
const LAG_MAX: i32 = 32 * LAG_ONE;

/// How long `min_pool_size` silences the idle timeout before we look again.
const IDLE_AGAIN: Duration = Duration::from_secs(1);

impl Pool {
    /// An empty pool. It wants its first server when the first client asks.
    #[must_use]
    pub fn new(id: PoolId, me: WorkerId, limits: Limits, board: Arc<Board>) -> Self {
        Self {
            id,
            me,
            limits,
            board,
            servers: Servers::new(),
            line: Line::new(),
            promised: 0,
            nudges: 0,
            want: Want::Nothing,
            asked_at: Instant(0),
            epoch: 1,
            is_paused: false,
            oldest_opened: Instant(u64::MAX),
            idle_again: Instant(0),
            lag: Lag::default(),
        }
    }

    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    pub fn set_limits(&mut self, limits: Limits, now: Instant, out: &mut Vec<Action>) {
        self.limits = limits;
        self.shed_surplus(now, out);
        self.settle(now, out);
    }

    // ---- Clients.

    /// `client` has something to say: it is linked at once, or joins the line.
    pub fn acquire(&mut self, client: ClientId, now: Instant, out: &mut Vec<Action>) {
        self.acquire_like(client, 0, now, out);
    }

    /// As `acquire`; servers of this flavour suit the client best. Any will do.
    pub fn acquire_like(
        &mut self,
        client: ClientId,
        flavour: u32,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if self.line.has(client) {
            debug_assert!(false, "{client:?} asked twice");
            return;
        }
        if self.line.is_empty()
            && !self.is_paused
            && let Some(at) = self.fresh_like(flavour, now)
        {
            self.link(at, client, out);
            self.show_idle();
            return;
        }
        self.line.join(client, flavour, now);
        self.settle(now, out);
    }

    /// As `acquire_like`; but if `home` is idle, it is that.
    pub fn acquire_home(
        &mut self,
        client: ClientId,
        home: ServerId,
        flavour: u32,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if self.line.is_empty()
            && !self.is_paused
            && !self.line.has(client)
            && let Some(at) = self.servers.find(home)
            && self.servers[at].place == Place::Idle
            && !self.is_stale(at, now)
        {
            self.link(at, client, out);
            self.show_idle();
            return;
        }
        self.acquire_like(client, flavour, now, out);
    }

    /// `client` left the line. (If it was linked, its server comes back by `release` or `lost`.)
    pub fn forget(&mut self, client: ClientId, _out: &mut Vec<Action>) {
        if self.line.leave(client) {
            self.show_line();
        }
    }

    /// Everybody in line is refused. Who comes next makes us ask the bank at once, and is refused as
    /// quickly if nothing has changed.
    pub fn refuse_all(&mut self, reason: RefuseReason, out: &mut Vec<Action>) {
        self.want = Want::Nothing;
        while let Some(client) = self.line.pop() {
            out.push(Action::Refuse { client, reason });
        }
        self.show_line();
    }

    /// How long the head of the line has waited.
    #[must_use]
    pub fn oldest_wait(&self, now: Instant) -> Duration {
        self.line.since().map_or(Duration::ZERO, |since| now.since(since))
    }

    // ---- Slots.

    /// The bank said `Open`, and the worker dials.
    pub fn connecting(&mut self, server: ServerId, now: Instant) {
        self.want = match self.want {
            Want::Asked(count) if count > 1 => Want::Asked(count - 1),
            Want::Asked(_) => Want::Nothing,
            other => other,
        };
        self.add(server, Place::Connecting, now, self.epoch, now);
    }

    /// The bank said no: ask no more until `retry`, or a `tick` a while later.
    pub fn denied(&mut self) {
        self.want = Want::Denied;
    }

    /// The bank called: ask again, or decline.
    pub fn retry(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Want::Asked(_) = self.want {
            // The answer to the call is under way.
            return;
        }
        self.want = Want::Nothing;
        self.settle(now, out);
        if self.want == Want::Nothing {
            out.push(Action::Decline);
        }
    }

    /// Fewer servers are open, over all workers, than `min_pool_size`: worth a [`crate::Bank::ask_min`].
    #[must_use]
    pub fn is_below_min(&self) -> bool {
        self.board.is_below_min()
    }

    // ---- Servers.

    /// `server` is logged in and ready.
    pub fn opened(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        if let Some(at) = self.find(server, &[Place::Connecting]) {
            self.free(at, now, out);
            // There may have been no more logins allowed at once.
            self.settle(now, out);
        }
    }

    /// linked | testing -> testing: the client is done with `server`, and a query of ours begins there, or
    /// one more.
    pub fn test(&mut self, server: ServerId) {
        if let Some(at) = self.find(server, &[Place::Linked, Place::Testing])
            && self.servers[at].place == Place::Linked
        {
            self.servers[at].client = None;
            self.servers.shift(at, Place::Testing);
        }
    }

    /// linked -> linked: `server` is `client`'s now.
    pub fn lend(&mut self, server: ServerId, client: ClientId) {
        if let Some(at) = self.find(server, &[Place::Linked]) {
            self.servers[at].client = Some(client);
        }
    }

    /// Whether anybody is in line, here or on another worker.
    #[must_use]
    pub fn somebody_waits(&self) -> bool {
        !self.line.is_empty() || self.board.waiting() > 0
    }

    /// linked | testing -> idle, canceled, leaving, closed, or linked to the next: `server` is clean.
    pub fn release(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        let Some(at) = self.find(server, &[Place::Linked, Place::Testing]) else { return };
        let was_tested = self.servers[at].place == Place::Testing;
        self.servers[at].client = None;
        let stays = self.free(at, now, out);
        // One less for a line that counted on it. (A linked server is not counted on.)
        if was_tested || !stays {
            self.settle(now, out);
        }
    }

    /// `server` is of this flavour from now on.
    pub fn flavour(&mut self, server: ServerId, flavour: u32) {
        if let Some(at) = self.servers.find(server) {
            self.servers[at].flavour = flavour;
        }
    }

    /// `server` is gone, whatever place it was in. Its client, if any, is the worker's to tell.
    pub fn lost(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        if let Some(at) = self.servers.find(server) {
            self.remove(at, out);
            self.settle(now, out);
        }
    }

    /// A cancel request for what runs on `server` is on its way. Count it once per cancel connection,
    /// and only for the very connection the request was meant for, not for one that got its number later.
    pub fn cancel_began(&mut self, server: ServerId) {
        let Some(at) = self.servers.find(server) else { return };
        self.servers[at].cancels += 1;
        if matches!(self.servers[at].place, Place::Idle | Place::Used) {
            self.servers.shift(at, Place::Canceled);
            self.show_idle();
        }
    }

    /// That cancel connection is closed, so the request has had its effect, or has none.
    pub fn cancel_ended(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        let Some(at) = self.servers.find(server) else { return };
        let cancels = &mut self.servers[at].cancels;
        *cancels = cancels.saturating_sub(1);
        if *cancels == 0 && self.servers[at].place == Place::Canceled {
            self.free(at, now, out);
            self.settle(now, out);
        }
    }

    // ---- Servers that move between workers.

    /// Another worker gave us `server`. A worker that cannot take it over calls this, then `lost`.
    pub fn arrived(
        &mut self,
        server: ServerId,
        opened_at: Instant,
        epoch: u32,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if !planted::is("promise-not-ended") {
            self.board.end_promise(self.me);
        }
        self.nudges = self.nudges.saturating_sub(1);
        if let Some(at) = self.add(server, Place::Idle, opened_at, epoch, now) {
            self.servers[at].has_served = true;
            self.free(at, now, out);
        }
        self.settle(now, out);
    }

    /// leaving -> gone from here: it was mailed.
    pub fn left(&mut self, server: ServerId) {
        if let Some(at) = self.find(server, &[Place::Leaving]) {
            self.servers.remove(at);
        }
    }

    /// When `server` was dialled; travels with it. The end of time if it is not here.
    #[must_use]
    pub fn opened_at(&self, server: ServerId) -> Instant {
        self.servers.find(server).map_or(Instant(u64::MAX), |at| self.servers[at].opened_at)
    }

    /// The epoch `server` was dialled in; travels with it.
    #[must_use]
    pub fn epoch_of(&self, server: ServerId) -> u32 {
        self.servers.find(server).map_or(self.epoch, |at| self.servers[at].epoch)
    }

    /// Worker `from` waits, and saw idle servers here. It gets one answer: a server, or `NoIdle`.
    pub fn nudged(&mut self, from: WorkerId, now: Instant, out: &mut Vec<Action>) {
        if !self.hand_over(from, now, out) && !planted::is("nudge-unanswered") {
            out.push(Action::NoIdle { to: from });
        }
    }

    /// Worker `from` had nothing to give, or lost what it was giving.
    pub fn no_idle(&mut self, _from: WorkerId, now: Instant, out: &mut Vec<Action>) {
        self.nudges = self.nudges.saturating_sub(1);
        self.settle(now, out);
    }

    /// Closes the server that has been idle longest, for a sibling's sake.
    pub fn evict(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Some(at) = self.servers.longest_idle() {
            let reason = self.board.claim(now).unwrap_or(CloseReason::Evicted);
            self.close(at, reason, out);
            self.settle(now, out);
        }
    }

    // ---- What the console does.

    /// From now on nobody is linked, and what is idle, or comes free, is closed.
    pub fn pause(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.is_paused = true;
        self.want = Want::Nothing;
        while let Some(at) = self.servers.longest_idle() {
            self.close(at, CloseReason::Paused, out);
        }
        self.settle(now, out);
    }

    pub fn resume(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.is_paused = false;
        self.settle(now, out);
    }

    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Nothing is at work here, or on its way here: PAUSE is done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.servers.len() == self.servers.at_rest() && self.board.coming(self.me) == 0
    }

    /// Servers that are neither idle nor on their way out.
    #[must_use]
    pub fn at_work(&self) -> u32 {
        self.servers.len() - self.servers.at_rest()
    }

    /// Servers dialled in an older epoch are obsolete: idle ones are closed now, others as they come free.
    pub fn reconnect(&mut self, epoch: u32, now: Instant, out: &mut Vec<Action>) {
        self.epoch = epoch;
        for place in [Place::Used, Place::Idle] {
            let mut next = self.servers.first(place);
            while let Some(at) = next {
                next = self.servers.next(at);
                if self.servers[at].epoch < epoch {
                    self.close(at, CloseReason::Obsolete, out);
                }
            }
        }
        self.settle(now, out);
    }

    /// `server` is obsolete, whatever the others are: it is closed now if it lies idle, else as it
    /// comes free.
    pub fn retire(&mut self, server: ServerId, now: Instant, out: &mut Vec<Action>) {
        let Some(at) = self.servers.find(server) else { return };
        self.servers[at].epoch = 0;
        if matches!(self.servers[at].place, Place::Idle | Place::Used) {
            self.close(at, CloseReason::Obsolete, out);
        }
        self.settle(now, out);
    }

    #[must_use]
    pub fn is_obsolete(&self, server: ServerId) -> bool {
        self.servers.find(server).is_some_and(|at| self.servers[at].epoch < self.epoch)
    }

    #[must_use]
    pub fn place(&self, server: ServerId) -> Option<Place> {
        self.servers.find(server).map(|at| self.servers[at].place)
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.servers.counts(self.line.len())
    }

    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers.len()
    }

    /// No server, nobody in line, nothing on its way here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.len() == 0 && self.line.is_empty() && self.board.coming(self.me) == 0
    }

    // ---- Time.

    /// Time has passed.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.age(now);
        self.turn_away(now, out);
        self.shed_surplus(now, out);
        self.close_idle(now, out);
        self.close_worn(now, out);
        if self.want != Want::Nothing && self.asked_at.after(ASK_AGAIN) <= now {
            self.want = Want::Nothing;
        }
        self.settle(now, out);
    }

    /// When `tick` next has something to do. Before that it would do nothing.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let due = |since: Option<Instant>, wait: Option<Duration>| Some(since?.after(wait?));
        let since = |at: At| self.servers[at].since;
        let longest = self.servers.longest_idle().map(since);
        let asks = !self.line.is_empty() && !self.is_paused && self.want != Want::Nothing;
        let wears = longest.is_some() && !self.limits.lifetime.is_zero();
        let worn = || {
            self.oldest_opened
                .after(self.limits.lifetime)
                .max(self.board.next_worn(self.wear_gap()))
        };
        [
            due(self.line.since(), self.limits.wait),
            due(self.line.untold_since(), self.limits.notify),
            due(self.servers.first(Place::Idle).map(since), self.limits.check_delay),
            due(longest, self.limits.idle).map(|at| at.max(self.idle_again)),
            asks.then(|| self.asked_at.after(ASK_AGAIN)),
            wears.then(worn),
            (longest.is_some() && self.board.is_over()).then_some(Instant(0)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn turn_away(&mut self, now: Instant, out: &mut Vec<Action>) {
        while let (Some(since), Some(wait)) = (self.line.since(), self.limits.wait)
            && since.after(wait) <= now
            && let Some(client) = self.line.pop()
        {
            out.push(Action::Refuse { client, reason: RefuseReason::WaitedTooLong });
        }
        while let (Some(since), Some(notify)) = (self.line.untold_since(), self.limits.notify)
            && since.after(notify) <= now
            && let Some(client) = self.line.tell()
        {
            out.push(Action::Notify { client });
        }
    }

    fn shed_surplus(&mut self, now: Instant, out: &mut Vec<Action>) {
        while let Some(at) = self.servers.longest_idle()
            && let Some(reason) = self.board.claim(now)
        {
            self.close(at, reason, out);
        }
    }

    fn close_idle(&mut self, now: Instant, out: &mut Vec<Action>) {
        while let (Some(at), Some(idle)) = (self.servers.longest_idle(), self.limits.idle)
            && self.servers[at].since.after(idle) <= now
            && self.idle_again <= now
        {
            if !self.board.claim_idle() {
                self.idle_again = now.after(IDLE_AGAIN);
                return;
            }
            self.close(at, CloseReason::Idle, out);
        }
    }

    /// Use once is settled at release; a server that never served is not worn, however old.
    fn close_worn(&mut self, now: Instant, out: &mut Vec<Action>) {
        let lifetime = self.limits.lifetime;
        if lifetime.is_zero() || self.oldest_opened.after(lifetime) > now {
            return;
        }
        self.oldest_opened = Instant(u64::MAX);
        for place in [Place::Used, Place::Idle] {
            let mut next = self.servers.first(place);
            while let Some(at) = next {
                next = self.servers.next(at);
                if self.claim_worn(at, now) {
                    self.close(at, CloseReason::Lifetime, out);
                } else {
                    self.oldest_opened = self.oldest_opened.min(self.servers[at].opened_at);
                }
            }
        }
    }

    /// Whether `at` is past its lifetime, and it is its turn to be closed for that.
    fn claim_worn(&self, at: At, now: Instant) -> bool {
        let server = &self.servers[at];
        let lifetime = self.limits.lifetime;
        if lifetime.is_zero() {
            return server.has_served;
        }
        server.opened_at.after(lifetime) <= now && self.board.claim_worn(now, self.wear_gap())
    }

    fn wear_gap(&self) -> Duration {
        self.limits.lifetime.checked_div(self.limits.size).unwrap_or(Duration::ZERO)
    }

    // ---- Matching.

    /// Matches the line with what is free, shows the result to the others, then sees to who is left.
    fn settle(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.is_paused {
            self.show_line();
            self.show_idle();
            return;
        }
        while let Some(flavour) = self.line.flavour()
            && let Some(at) = self.fresh_like(flavour, now)
            && let Some(client) = self.line.pop()
        {
            self.link(at, client, out);
        }
        while self.line.len() > self.under_test()
            && let Some(at) = self.stale()
        {
            self.check(at, out);
        }
        self.show_line();
        self.show_idle();
        if self.line.is_empty() {
            self.share(now, out);
        } else {
            self.fetch(now, out);
        }
    }

    /// `at` has come free. Returns whether it is of use here: linked or at rest.
    fn free(&mut self, at: At, now: Instant, out: &mut Vec<Action>) -> bool {
        if let Some(reason) = self.unwanted(at, now) {
            self.close(at, reason, out);
            return false;
        }
        let place = self.servers[at].place;
        let has_worked = matches!(place, Place::Linked | Place::Testing | Place::Canceled);
        if self.servers[at].cancels > 0 {
            self.break_promise(at, out);
            self.servers.shift(at, Place::Canceled);
            return false;
        }
        if place == Place::Canceled && self.limits.check_delay.is_some() {
            // It has rested for as long as the cancel took, and whoever is idle stands in order of rest.
            self.check(at, out);
            return false;
        }
        if let Some(to) = self.servers[at].target {
            self.promised -= 1;
            self.give(at, to, out);
            return false;
        }
        if let Some(since) = self.line.since() {
            if has_worked && let Some(to) = self.elder(since, now) {
                self.give(at, to, out);
                return false;
            }
            let flavour = self.servers[at].flavour;
            if let Some(client) = self.line.pop_like(flavour) {
                self.link(at, client, out);
                self.show_line();
                return true;
            }
        }
        let server = &mut self.servers[at];
        server.since = now;
        self.oldest_opened = self.oldest_opened.min(server.opened_at);
        self.servers.shift(at, Place::Idle);
        self.show_idle();
        if planted::is("idle-not-shared") {
            return true;
        }
        self.share(now, out);
        true
    }

    /// Why a server that has come free must be closed, if it must.
    fn unwanted(&self, at: At, now: Instant) -> Option<CloseReason> {
        let server = &self.servers[at];
        if server.epoch < self.epoch {
            return Some(CloseReason::Obsolete);
        }
        if self.is_paused {
            return Some(CloseReason::Paused);
        }
        if let Some(reason) = self.board.claim(now) {
            return Some(reason);
        }
        // A new one, or one that arrives, is for somebody who waits: it is used at least once.
        let has_worked = matches!(server.place, Place::Linked | Place::Testing | Place::Canceled);
        (has_worked && self.claim_worn(at, now)).then_some(CloseReason::Lifetime)
    }

    /// Sees to it that for each client in line a server is on its way, as far as that is possible. A server
    /// that lies idle elsewhere comes first, even if one that we expect at home would do: nobody waits
    /// while a server of the pool is idle on any core.
    fn fetch(&mut self, now: Instant, out: &mut Vec<Action>) {
        // A server that was promised may be the answer to a nudge: it counts once. Where it is not, one
        // nudge too many is answered by `NoIdle`.
        let coming = self.nudges.max(self.coming());
        let mut wanted = self.line.len().saturating_sub(coming);
        if wanted > 0 && self.board.is_shared() {
            wanted -= self.nudge(wanted, out);
        }
        let asked = if let Want::Asked(count) = self.want { count } else { 0 };
        let opening = self.servers.count(Place::Connecting) + asked;
        wanted = wanted.saturating_sub(opening + self.under_test());
        let count = wanted.min(self.limits.opening_max.saturating_sub(opening));
        if count > 0 && self.want != Want::Denied {
            self.want = Want::Asked(asked + count);
            self.asked_at = now;
            out.push(Action::Want { count });
        }
    }

    /// Mails the workers that show idle servers, for up to `wanted` of them; returns for how many.
    fn nudge(&mut self, wanted: u32, out: &mut Vec<Action>) -> u32 {
        let mut found = 0;
        // Those we have mailed for and not been promised yet may be spoken for.
        let mut spoken_for = self.nudges.saturating_sub(self.coming());
        for to in self.board.others(self.me) {
            let idle = self.board.idle(to);
            let here = idle.saturating_sub(spoken_for);
            spoken_for = spoken_for.saturating_sub(idle);
            for _ in 0..here.min(wanted - found) {
                out.push(Action::Nudge { to });
                found += 1;
            }
        }
        self.nudges += found;
        found
    }

    /// Gives what is left over to workers where somebody waits. Our own line must be empty.
    fn share(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.board.is_shared() {
            return;
        }
        while self.servers.at_rest() > 0
            && self.board.others_wait(self.me)
            && let Some(to) = self.board.neediest(self.me)
        {
            self.hand_over(to, now, out);
        }
    }

    /// Promises `to` one of our servers at rest, if there is one and it is still needed.
    fn hand_over(&mut self, to: WorkerId, now: Instant, out: &mut Vec<Action>) -> bool {
        let fresh = self.fresh(now);
        let Some(at) = fresh.or_else(|| self.stale()) else { return false };
        if !self.board.promise(to) {
            return false;
        }
        if fresh.is_some() {
            self.give(at, to, out);
        } else {
            self.servers[at].target = Some(to);
            self.promised += 1;
            self.check(at, out);
        }
        self.show_idle();
        true
    }

    /// The worker whose head has waited so much longer than ours, or whose line has for so long waited
    /// longer than ours, that fairness is worth a move.
    fn elder(&mut self, since: Instant, now: Instant) -> Option<WorkerId> {
        if !self.board.is_shared() || !self.board.others_wait(self.me) {
            return None;
        }
        let wait = now.since(since);
        let bar = now.before(wait * FAIR_TIMES + FAIR_SLACK);
        let elder = self.board.elder(self.me, bar);
        let to = self.laggard(wait, now).filter(|_| elder.is_none()).or(elder)?;
        self.board.promise(to).then_some(to)
    }

    /// Compares our line with that of another worker, and adds up the differences: a worker that is behind
    /// by much, all in all, and to which nothing is coming. Without it a split of the servers that makes
    /// one line wait a little longer, by less than a move is worth, would stay for ever.
    ///
    /// Compared is how long those had waited that were served last: the head that is seen elsewhere still
    /// waits, and would make us believe that it is better off than it is.
    fn laggard(&mut self, wait: Duration, now: Instant) -> Option<WorkerId> {
        let wait = self.board.show_served(self.me, wait);
        let workers = self.board.workers();
        self.lag.sums.resize(workers, 0);
        let next = (usize::from(self.lag.next) + 1) % workers;
        let other = if next == usize::from(self.me.0) { (next + 1) % workers } else { next };
        let other = WorkerId(other as u16);
        self.lag.next = other.0;
        let theirs = self.board.wait_of(other, now);
        let sum = &mut self.lag.sums[usize::from(other.0)];
        *sum = (*sum + difference(theirs, wait)).max(-LAG_MAX);
        if *sum < LAG_MAX {
            return None;
        }
        *sum = LAG_MAX;
        if self.board.coming(other) > 0 {
            return None;
        }
        *sum = 0;
        Some(other)
    }

    /// An idle server that needs no check.
    fn fresh(&mut self, now: Instant) -> Option<At> {
        self.age(now);
        self.pick(Place::Idle)
    }

    /// The same, of this flavour if there is one among those that would be taken first.
    fn fresh_like(&mut self, flavour: u32, now: Instant) -> Option<At> {
        let at = self.fresh(now)?;
        if self.servers[at].flavour == flavour {
            return Some(at);
        }
        let suits = |at: &At| self.servers[*at].flavour == flavour;
        let found = if self.limits.round_robin {
            self.servers.oldest(Place::Idle).take(LOOK_AT).find(suits)
        } else {
            self.servers.newest(Place::Idle).take(LOOK_AT).find(suits)
        };
        Some(found.unwrap_or(at))
    }

    /// An idle server that needs a check.
    fn stale(&self) -> Option<At> {
        self.pick(Place::Used)
    }

    fn pick(&self, place: Place) -> Option<At> {
        if self.limits.round_robin { self.servers.first(place) } else { self.servers.last(place) }
    }

    /// idle -> used, for those idle longer than `server_check_delay`.
    fn age(&mut self, now: Instant) {
        while let Some(at) = self.servers.first(Place::Idle)
            && self.is_stale(at, now)
        {
            self.servers.shift(at, Place::Used);
        }
    }

    fn is_stale(&self, at: At, now: Instant) -> bool {
        self.limits.check_delay.is_some_and(|delay| self.servers[at].since.after(delay) <= now)
    }

    /// How many servers under test will come back for our line.
    fn under_test(&self) -> u32 {
        self.servers.count(Place::Testing) - self.promised
    }

    fn coming(&self) -> u32 {
        if self.board.is_shared() { self.board.coming(self.me) } else { 0 }
    }

    // ---- Moving one server.

    fn link(&mut self, at: At, client: ClientId, out: &mut Vec<Action>) {
        let server = &mut self.servers[at];
        server.client = Some(client);
        server.has_served = true;
        self.servers.shift(at, Place::Linked);
        out.push(Action::Link { client, server: self.servers.id(at) });
    }

    fn check(&mut self, at: At, out: &mut Vec<Action>) {
        self.servers.shift(at, Place::Testing);
        out.push(Action::Check { server: self.servers.id(at) });
    }

    /// The board counts it as coming to `to` already.
    fn give(&mut self, at: At, to: WorkerId, out: &mut Vec<Action>) {
        self.servers[at].target = Some(to);
        self.servers.shift(at, Place::Leaving);
        out.push(Action::Give { server: self.servers.id(at), to });
    }

    fn close(&mut self, at: At, reason: CloseReason, out: &mut Vec<Action>) {
        let server = self.servers.id(at);
        self.remove(at, out);
        out.push(Action::Close { server, reason });
    }

    fn remove(&mut self, at: At, out: &mut Vec<Action>) {
        self.break_promise(at, out);
        self.servers.remove(at);
    }

    /// Who was to get `at` will not, and must be told, for it counts on it.
    fn break_promise(&mut self, at: At, out: &mut Vec<Action>) {
        if let Some(to) = self.servers[at].target.take() {
            if self.servers[at].place == Place::Testing {
                self.promised -= 1;
            }
            self.board.end_promise(to);
            out.push(Action::NoIdle { to });
        }
    }

    fn add(
        &mut self,
        id: ServerId,
        place: Place,
        opened_at: Instant,
        epoch: u32,
        now: Instant,
    ) -> Option<At> {
        if self.servers.find(id).is_some() {
            debug_assert!(false, "{id:?} is here already");
            return None;
        }
        let server = Server {
            place,
            client: None,
            target: None,
            cancels: 0,
            epoch,
            opened_at,
            since: now,
            has_served: false,
            flavour: 0,
        };
        Some(self.servers.add(id, server))
    }

    fn find(&self, server: ServerId, places: &[Place]) -> Option<At> {
        let found =
            self.servers.find(server).filter(|at| places.contains(&self.servers[*at].place));
        debug_assert!(found.is_some(), "{server:?} is in none of {places:?}");
        found
    }

    /// While paused we can use nothing, so we show no line.
    fn show_line(&self) {
        let waiting = if self.is_paused { 0 } else { self.line.len() };
        self.board.show_line(self.me, waiting, self.line.since().unwrap_or_default());
    }

    fn show_idle(&self) {
        let longest = self.servers.longest_idle();
        let since = longest.map_or(Instant(0), |at| self.servers[at].since);
        self.board.show_idle(self.me, self.servers.at_rest(), since);
    }

    /// What must hold between any two calls.
    pub fn invariants(&self) {
        self.servers.invariants();
        self.line.invariants();
        let promised = self.servers.iter(Place::Testing).filter(|server| server.target.is_some());
        assert_eq!(promised.count() as u32, self.promised);
        let idle = self.servers.count(Place::Idle);
        assert!(self.line.is_empty() || idle == 0, "a client waits by a free server");
        assert!(!self.is_paused || self.servers.at_rest() == 0, "paused, with idle servers");
        for place in [Place::Idle, Place::Used] {
            let current = |server: &Server| server.epoch >= self.epoch;
            assert!(self.servers.iter(place).all(current), "an obsolete server is idle");
            let known = |server: &Server| server.opened_at >= self.oldest_opened;
            assert!(self.servers.iter(place).all(known), "a lifetime is forgotten");
        }
        // Where there are other workers, what we wait for may be a mail that says it does not come.
        let is_alone = !self.board.is_shared();
        if is_alone && !self.line.is_empty() && !self.is_paused && self.want == Want::Nothing {
            let connecting = self.servers.count(Place::Connecting);
            let expected = connecting + self.under_test();
            let is_full = connecting >= self.limits.opening_max;
            assert!(expected >= self.line.len() || is_full, "nobody fetches a server");
        }
    }
}

/// By how much `theirs` is longer than `ours`, as a part of the longer one.
fn difference(theirs: Duration, ours: Duration) -> i32 {
    let (theirs, ours) = (theirs.as_secs_f64(), ours.as_secs_f64());
    let longer = theirs.max(ours).max(f64::MIN_POSITIVE);
    ((theirs - ours) / longer * f64::from(LAG_ONE)) as i32
}
