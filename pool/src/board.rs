//! What the workers show each other about one pool.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::{CloseReason, Duration, Instant, WorkerId};

/// One pool's notices: one post per worker, written by that worker alone (but for `coming`), and
/// a shelf on which the bank lays what all workers need to know.
///
/// # No lost wakeup
///
/// A worker whose line grows first shows it (`waiting` and `lines`), then looks at `idle` of the others.
/// A worker whose idle servers grow in number first shows it (`idle`), then looks at `lines`, and at
/// `waiting` of the others. All four are sequentially consistent, so at least one of the two sees
/// the other, and sends mail. What shrinks may be shown late: to believe it costs one useless mail.
///
/// Who gives a server counts it in `coming` of the receiver, by compare-and-swap, never beyond
/// `waiting`; so two givers do not serve the same client. The receiver takes it out when the server
/// arrives. If it is lost before that, the giver takes it out, *and mails*, for the receiver may have
/// been content because of it.
///
/// With one worker there is nobody to show anything to, except the bank, which reads `idle_since`:
/// everything is a plain load or store then.
#[derive(Debug)]
pub struct Board {
    shelf: Shelf,
    /// How many workers show a line.
    lines: Lines,
    posts: Box<[Post]>,
}

/// Written when a server is opened or closed, read at each release.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shelf {
    /// Slots in use, by the bank's book.
    open: AtomicU32,
    /// Servers that a worker decided to close, on its own, to get nearer to `cap` or `min`, and
    /// that the bank does not know of yet. Never more than there are, maybe less.
    closing: AtomicU32,
    /// The most there should be; more are closed as they come free.
    cap: AtomicU32,
    /// The fewest there should be; the idle timeout goes no lower.
    min: AtomicU32,
    /// Until then one server is owed to a starving sibling: the next that comes free is closed.
    owed_until: AtomicU64,
    /// When a server was last closed for its lifetime.
    last_worn: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lines(AtomicU32);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Post {
    /// Since when the head of the line waits. Means nothing when nobody waits.
    oldest: AtomicU64,
    waiting: AtomicU32,
    /// How long those who were served last had waited, smoothed, in nanoseconds.
    served_after: AtomicU64,
    /// Servers on their way here from other workers, and promised ones.
    coming: AtomicU32,
    /// Servers at rest, checked or not.
    idle: AtomicU32,
    /// Since when the longest idle one rests. Means nothing when none does.
    idle_since: AtomicU64,
}

/// Over about so many who were served.
const SMOOTHING: u64 = 16;

impl Board {
    /// A board for `workers` workers, without limits.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let shelf = Shelf { cap: AtomicU32::new(u32::MAX), ..Shelf::default() };
        let posts = (0..workers).map(|_| Post::default()).collect();
        Self { shelf, lines: Lines::default(), posts }
    }

    /// How many servers of this pool are open or opening, over all workers, by the bank's book.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.shelf.open.load(Relaxed)
    }

    /// How many clients wait on all workers together.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.posts.iter().map(|post| post.waiting.load(Relaxed)).sum()
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.posts.len()
    }

    /// Whether there are other workers.
    pub(crate) fn is_shared(&self) -> bool {
        self.posts.len() > 1
    }

    // ---- What a worker shows.

    /// `waiting` clients are in line, the first since `oldest`.
    pub(crate) fn show_line(&self, me: WorkerId, waiting: u32, oldest: Instant) {
        let post = self.post(me);
        let before = post.waiting.load(Relaxed);
        post.oldest.store(oldest.0, Relaxed);
        if before == waiting {
            return;
        }
        if !self.is_shared() {
            post.waiting.store(waiting, Relaxed);
            return;
        }
        step();
        post.waiting.store(waiting, SeqCst);
        step();
        match (before, waiting) {
            (0, _) => drop(self.lines.0.fetch_add(1, SeqCst)),
            (_, 0) => drop(self.lines.0.fetch_sub(1, SeqCst)),
            _ => {}
        }
    }

    /// `idle` servers rest, the first since `since`.
    pub(crate) fn show_idle(&self, me: WorkerId, idle: u32, since: Instant) {
        let post = self.post(me);
        if post.idle_since.load(Relaxed) != since.0 {
            post.idle_since.store(since.0, Relaxed);
        }
        let before = post.idle.load(Relaxed);
        let order = if self.is_shared() && idle > before { SeqCst } else { Relaxed };
        if before != idle {
            step();
            post.idle.store(idle, order);
        }
    }

    // ---- What a worker looks at.

    /// Whether anybody waits on another worker.
    pub(crate) fn others_wait(&self, me: WorkerId) -> bool {
        step();
        let mine = u32::from(self.post(me).waiting.load(Relaxed) > 0);
        self.lines.0.load(SeqCst) > mine
    }

    /// Another worker that waits for more than is coming: the one whose head waits longest.
    pub(crate) fn neediest(&self, me: WorkerId) -> Option<WorkerId> {
        let needy = |post: &Post| {
            step();
            post.waiting.load(SeqCst) > post.coming.load(SeqCst)
        };
        self.eldest(me, needy)
    }

    /// Another worker to which nothing is coming, and whose head has waited since before `bar`.
    pub(crate) fn elder(&self, me: WorkerId, bar: Instant) -> Option<WorkerId> {
        let elder = |post: &Post| {
            step();
            post.waiting.load(SeqCst) > 0
                && post.coming.load(SeqCst) == 0
                && post.oldest.load(Relaxed) < bar.0
        };
        self.eldest(me, elder)
    }

    /// How long those wait that are served on `other`, or its head has waited already if that is longer;
    /// zero if nobody waits there.
    pub(crate) fn wait_of(&self, other: WorkerId, now: Instant) -> Duration {
        let post = self.post(other);
        if post.waiting.load(Relaxed) == 0 {
            return Duration::ZERO;
        }
        let so_far = now.since(Instant(post.oldest.load(Relaxed)));
        so_far.max(Duration::from_nanos(post.served_after.load(Relaxed)))
    }

    /// Somebody is served here who has waited so long. Returns what that comes to, smoothed.
    pub(crate) fn show_served(&self, me: WorkerId, wait: Duration) -> Duration {
        let post = self.post(me);
        let before = post.served_after.load(Relaxed);
        let wait = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let smoothed = before - before / SMOOTHING + wait / SMOOTHING;
        post.served_after.store(smoothed, Relaxed);
        Duration::from_nanos(smoothed)
    }

    /// How many servers rest with `other`.
    pub(crate) fn idle(&self, other: WorkerId) -> u32 {
        step();
        self.post(other).idle.load(SeqCst)
    }

    /// The other workers.
    pub(crate) fn others(&self, me: WorkerId) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.posts.len() as u16).map(WorkerId).filter(move |worker| *worker != me)
    }

    /// The worker with the server that has been idle longest, and since when.
    pub(crate) fn longest_idle(&self) -> Option<(Instant, WorkerId)> {
        let idle = |(worker, post): (usize, &Post)| {
            let since = Instant(post.idle_since.load(Relaxed));
            (post.idle.load(Relaxed) > 0).then_some((since, WorkerId(worker as u16)))
        };
        self.posts.iter().enumerate().filter_map(idle).min()
    }

    /// Since when the head waits that waits longest.
    pub(crate) fn oldest_wait(&self) -> Option<Instant> {
        let waits = |post: &&Post| post.waiting.load(Relaxed) > 0;
        self.posts.iter().filter(waits).map(|post| Instant(post.oldest.load(Relaxed))).min()
    }

    // ---- Servers on their way.

    /// Takes on to bring `to` a server; false if as many are coming already as clients wait.
    pub(crate) fn promise(&self, to: WorkerId) -> bool {
        let post = self.post(to);
        step();
        let mut coming = post.coming.load(SeqCst);
        loop {
            step();
            if post.waiting.load(SeqCst) <= coming {
                return false;
            }
            step();
            match post.coming.compare_exchange(coming, coming + 1, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => coming = now,
            }
        }
    }

    /// The server arrived, or never will.
    pub(crate) fn end_promise(&self, to: WorkerId) {
        step();
        let less = |coming: u32| coming.checked_sub(1);
        let ended = self.post(to).coming.fetch_update(SeqCst, SeqCst, less);
        debug_assert!(ended.is_ok(), "a server came that was not coming");
    }

    /// How many servers are on their way to `me`.
    pub(crate) fn coming(&self, me: WorkerId) -> u32 {
        step();
        self.post(me).coming.load(SeqCst)
    }

    // ---- The shelf. Hints, brought up to date by the bank: nothing here needs an order.

    pub(crate) fn set_open(&self, open: u32) {
        self.shelf.open.store(open, Relaxed);
    }

    pub(crate) fn set_limits(&self, cap: u32, min: u32) {
        self.shelf.cap.store(cap, Relaxed);
        self.shelf.min.store(min, Relaxed);
    }

    /// The next server that comes free is a sibling's, if that is before `until`: the sibling may have
    /// been served otherwise, and then nobody renews the debt.
    pub(crate) fn owe(&self, until: Instant) {
        self.shelf.owed_until.store(until.0, Relaxed);
    }

    /// A server is closed, for whatever reason.
    pub(crate) fn closed(&self) {
        let less = |closing: u32| closing.checked_sub(1);
        // Nothing to take off is the rule: most servers are not closed to get nearer to a limit.
        let _ = self.shelf.closing.fetch_update(Relaxed, Relaxed, less);
    }

    /// How many servers there are that nobody is about to close.
    pub(crate) fn staying(&self) -> u32 {
        self.open().saturating_sub(self.shelf.closing.load(Relaxed))
    }

    pub(crate) fn is_below_min(&self) -> bool {
        self.open() < self.shelf.min.load(Relaxed)
    }

    /// Whether there are more servers than there should be.
    pub(crate) fn is_over(&self) -> bool {
        self.staying() > self.shelf.cap.load(Relaxed)
    }

    /// The caller has a free server: must it go? If so it is the caller's to close.
    pub(crate) fn claim(&self, now: Instant) -> Option<CloseReason> {
        if self.is_over() && self.claim_down_to(self.shelf.cap.load(Relaxed)) {
            return Some(CloseReason::Surplus);
        }
        let owed_until = self.shelf.owed_until.load(Relaxed);
        let is_mine = now.0 < owed_until
            && self.shelf.owed_until.compare_exchange(owed_until, 0, Relaxed, Relaxed).is_ok();
        is_mine.then_some(CloseReason::Evicted)
    }

    /// The caller has a server that is idle too long: may it go? If so it is the caller's to close.
    pub(crate) fn claim_idle(&self) -> bool {
        let min = self.shelf.min.load(Relaxed);
        min == 0 || self.claim_down_to(min)
    }

    /// Lets one server be closed for its age every `gap`, over all workers: otherwise servers opened
    /// together would be closed, and opened, together for ever.
    pub(crate) fn claim_worn(&self, now: Instant, gap: Duration) -> bool {
        let last = self.shelf.last_worn.load(Relaxed);
        let is_due = last == 0 || Instant(last).after(gap) <= now;
        is_due && self.shelf.last_worn.compare_exchange(last, now.0, Relaxed, Relaxed).is_ok()
    }

    /// When [`Board::claim_worn`] may next agree.
    pub(crate) fn next_worn(&self, gap: Duration) -> Instant {
        match self.shelf.last_worn.load(Relaxed) {
            0 => Instant(0),
            last => Instant(last).after(gap),
        }
    }

    fn claim_down_to(&self, floor: u32) -> bool {
        let more =
            |closing: u32| (self.open().saturating_sub(closing) > floor).then(|| closing + 1);
        self.shelf.closing.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    fn eldest(&self, me: WorkerId, is_meant: impl Fn(&Post) -> bool) -> Option<WorkerId> {
        self.others(me)
            .filter(|other| is_meant(self.post(*other)))
            .min_by_key(|other| self.post(*other).oldest.load(Relaxed))
    }

    fn post(&self, worker: WorkerId) -> &Post {
        &self.posts[usize::from(worker.0)]
    }
}

/// A place where another worker may come between. The tests make it happen.
#[inline]
fn step() {
    #[cfg(test)]
    crate::interleave::step();
}
