//! What clients and operators see of the pool, one story each.

use std::sync::Arc;

use pool::{
    Action, Answer, Bank, BankLimits, Board, Call, Calling, ClientId, CloseReason, Counts,
    Duration, Failure, Instant, Limits, Place, Pool, PoolId, RefuseReason, ServerId, WorkerId,
};

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);
const CAT: ClientId = ClientId(3);
const START: Instant = Instant(1_000_000_000_000);
const FIRST: WorkerId = WorkerId(0);
const SECOND: WorkerId = WorkerId(1);

const LIMITS: Limits = Limits {
    wait: None,
    notify: None,
    idle: None,
    lifetime: Duration::from_secs(3600),
    check_delay: None,
    round_robin: false,
    size: 20,
    opening_max: 8,
};

const BANK_LIMITS: BankLimits = BankLimits {
    size: Some(2),
    reserve: 0,
    reserve_after: None,
    min: 0,
    db_max: None,
    user_max: None,
    login_retry: Duration::from_secs(15),
};

fn at(seconds: f64) -> Instant {
    START.after(Duration::from_secs_f64(seconds))
}

/// A pool, and what it asked for since we last looked.
struct Play {
    pool: Pool,
    out: Vec<Action>,
}

impl Play {
    fn new(limits: Limits) -> Self {
        Self::on(&Arc::new(Board::new(1)), FIRST, limits)
    }

    fn on(board: &Arc<Board>, me: WorkerId, limits: Limits) -> Self {
        Self { pool: Pool::new(PoolId(0), me, limits, Arc::clone(board)), out: Vec::new() }
    }

    /// Opens a server that nobody waits for.
    fn open(&mut self, server: u32, now: Instant) {
        self.pool.connecting(ServerId(server), now);
        self.pool.opened(ServerId(server), now, &mut self.out);
        assert_eq!(self.said(), []);
    }

    fn said(&mut self) -> Vec<Action> {
        self.pool.invariants();
        std::mem::take(&mut self.out)
    }

    fn acquire(&mut self, client: ClientId, now: Instant) -> Vec<Action> {
        self.pool.acquire(client, now, &mut self.out);
        self.said()
    }

    fn release(&mut self, server: u32, now: Instant) -> Vec<Action> {
        self.pool.release(ServerId(server), now, &mut self.out);
        self.said()
    }

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        self.pool.tick(now, &mut self.out);
        self.said()
    }
}

fn link(client: ClientId, server: u32) -> Action {
    Action::Link { client, server: ServerId(server) }
}

fn close(server: u32, reason: CloseReason) -> Action {
    Action::Close { server: ServerId(server), reason }
}

// ---- Lines and links.

/// Ann opens a server, Bob waits behind her and is served in turn.
#[test]
fn first_come_first_served() {
    let mut play = Play::new(LIMITS);
    assert_eq!(play.acquire(ANN, at(0.0)), [Action::Want { count: 1 }]);
    play.pool.connecting(ServerId(0), at(0.0));
    assert_eq!(play.acquire(BOB, at(0.1)), [Action::Want { count: 1 }]);
    play.pool.denied();
    assert_eq!(play.acquire(CAT, at(0.2)), []);
    play.pool.opened(ServerId(0), at(0.3), &mut play.out);
    assert_eq!(play.said(), [link(ANN, 0)]);
    assert_eq!(play.release(0, at(0.4)), [link(BOB, 0)]);
    assert_eq!(play.release(0, at(0.5)), [link(CAT, 0)]);
    assert_eq!(play.release(0, at(0.6)), []);
    assert_eq!(play.pool.counts(), Counts { idle: 1, ..Counts::default() });
}

/// Bob leaves the line: Cat is next. Ann, who was linked, is not in it.
#[test]
fn who_leaves_the_line_is_passed_over() {
    let mut play = Play::new(LIMITS);
    play.open(0, at(0.0));
    assert_eq!(play.acquire(ANN, at(0.0)), [link(ANN, 0)]);
    play.acquire(BOB, at(0.1));
    play.acquire(CAT, at(0.2));
    play.pool.forget(BOB, &mut play.out);
    play.pool.forget(ANN, &mut play.out);
    assert_eq!(play.pool.oldest_wait(at(1.2)), Duration::from_secs(1));
    assert_eq!(play.release(0, at(0.3)), [link(CAT, 0)]);
}

/// The server used last is used next, unless `server_round_robin` is set.
#[test]
fn the_last_or_the_first_idle() {
    for (round_robin, expected) in [(false, 1), (true, 0)] {
        let mut play = Play::new(Limits { round_robin, ..LIMITS });
        play.open(0, at(0.0));
        play.open(1, at(1.0));
        assert_eq!(play.acquire(ANN, at(2.0)), [link(ANN, expected)]);
    }
}

/// Only so many logins at once; the rest is asked for as they succeed, or fail.
#[test]
fn logins_are_capped() {
    let mut play = Play::new(Limits { opening_max: 1, ..LIMITS });
    assert_eq!(play.acquire(ANN, at(0.0)), [Action::Want { count: 1 }]);
    play.pool.connecting(ServerId(0), at(0.0));
    assert_eq!(play.acquire(BOB, at(0.0)), []);
    play.pool.opened(ServerId(0), at(0.1), &mut play.out);
    assert_eq!(play.said(), [link(ANN, 0), Action::Want { count: 1 }]);
    play.pool.connecting(ServerId(1), at(0.1));
    play.pool.lost(ServerId(1), at(0.2), &mut play.out);
    assert_eq!(play.said(), [Action::Want { count: 1 }]);
}

/// The bank said no: we ask again when it calls, or a third of a second later.
#[test]
fn who_is_denied_asks_again() {
    let mut play = Play::new(LIMITS);
    play.acquire(ANN, at(0.0));
    play.pool.denied();
    assert_eq!(play.acquire(BOB, at(0.1)), []);
    assert_eq!(play.tick(at(0.3)), []);
    assert_eq!(play.pool.deadline(), Some(at(0.333)));
    assert_eq!(play.tick(at(0.333)), [Action::Want { count: 2 }]);
    play.pool.denied();
    play.pool.retry(at(0.4), &mut play.out);
    assert_eq!(play.said(), [Action::Want { count: 2 }]);
    play.pool.denied();
    play.pool.forget(ANN, &mut play.out);
    play.pool.forget(BOB, &mut play.out);
    play.pool.retry(at(0.5), &mut play.out);
    assert_eq!(play.said(), [Action::Decline]);
    assert_eq!(play.pool.deadline(), None);
}

/// `query_wait_notify` once, then `query_wait_timeout`.
#[test]
fn a_long_wait_is_told_then_ended() {
    let wait = Some(Duration::from_secs(10));
    let mut play = Play::new(Limits { wait, notify: Some(Duration::from_secs(5)), ..LIMITS });
    play.acquire(ANN, at(0.0));
    play.pool.denied();
    play.acquire(BOB, at(6.0));
    assert_eq!(play.tick(at(5.0))[0], Action::Notify { client: ANN });
    assert!(!play.tick(at(9.0)).contains(&Action::Notify { client: ANN }));
    let refused = Action::Refuse { client: ANN, reason: RefuseReason::WaitedTooLong };
    assert_eq!(play.tick(at(10.0))[0], refused);
    assert_eq!(play.tick(at(11.0))[0], Action::Notify { client: BOB });
    assert_eq!(play.pool.counts().waiting, 1);
}

/// The last login failed: everybody in line hears of it.
#[test]
fn all_are_refused_in_order() {
    let mut play = Play::new(LIMITS);
    play.acquire(ANN, at(0.0));
    play.acquire(BOB, at(0.0));
    let reason = RefuseReason::LoginFailed;
    play.said();
    play.pool.refuse_all(reason, &mut play.out);
    assert_eq!(play.said(), [ANN, BOB].map(|client| Action::Refuse { client, reason }));
    assert!(play.pool.is_empty());
    play.pool.denied();
    play.pool.refuse_all(reason, &mut play.out);
    assert_eq!(
        play.acquire(CAT, at(0.1)),
        [Action::Want { count: 1 }],
        "Cat hears of it as quickly"
    );
}

// ---- The life of a server.

/// A server idle for too long counts as used, and is checked before Ann gets it.
#[test]
fn a_stale_server_is_checked_first() {
    let mut play = Play::new(Limits { check_delay: Some(Duration::from_secs(30)), ..LIMITS });
    play.open(0, at(0.0));
    assert_eq!(play.pool.deadline(), Some(at(30.0)));
    play.tick(at(30.0));
    assert_eq!(play.pool.counts(), Counts { used: 1, ..Counts::default() });
    assert_eq!(play.acquire(ANN, at(31.0)), [Action::Check { server: ServerId(0) }]);
    assert_eq!(play.pool.place(ServerId(0)), Some(Place::Testing));
    assert_eq!(play.release(0, at(31.1)), [link(ANN, 0)]);
    // No tick in between: the age is seen all the same.
    assert_eq!(play.release(0, at(32.0)), []);
    assert_eq!(play.acquire(BOB, at(62.0)), [Action::Check { server: ServerId(0) }]);
    play.pool.lost(ServerId(0), at(62.1), &mut play.out);
    assert_eq!(play.said(), [Action::Want { count: 1 }]);
}

/// While one is checked for Ann, Bob has another checked, and nothing is opened.
#[test]
fn a_server_under_check_is_spoken_for() {
    let mut play = Play::new(Limits { check_delay: Some(Duration::from_secs(1)), ..LIMITS });
    play.open(0, at(0.0));
    play.open(1, at(0.0));
    assert_eq!(play.acquire(ANN, at(2.0)), [Action::Check { server: ServerId(1) }]);
    assert_eq!(play.acquire(BOB, at(2.0)), [Action::Check { server: ServerId(0) }]);
    assert_eq!(play.acquire(CAT, at(2.0)), [Action::Want { count: 1 }]);
}

/// `server_lifetime = 0`: used once, but not before it was used.
#[test]
fn use_once() {
    let mut play = Play::new(Limits { lifetime: Duration::ZERO, ..LIMITS });
    play.open(0, at(0.0));
    assert_eq!(play.tick(at(100.0)), []);
    assert_eq!(play.acquire(ANN, at(100.0)), [link(ANN, 0)]);
    assert_eq!(play.release(0, at(100.1)), [close(0, CloseReason::Lifetime)]);
}

/// Twenty servers opened together are not closed together: lifetime / size apart, whether idle or
/// just released.
#[test]
fn lifetimes_end_one_by_one() {
    let mut play = Play::new(Limits { lifetime: Duration::from_secs(100), ..LIMITS });
    for server in 0..3 {
        play.open(server, at(0.0));
    }
    assert_eq!(play.acquire(ANN, at(1.0)), [link(ANN, 2)]);
    assert_eq!(play.pool.deadline(), Some(at(100.0)));
    assert_eq!(play.tick(at(100.0)), [close(0, CloseReason::Lifetime)]);
    assert_eq!(play.pool.deadline(), Some(at(105.0)));
    assert_eq!(play.release(2, at(104.0)), []);
    assert_eq!(play.acquire(ANN, at(104.5)), [link(ANN, 2)]);
    assert_eq!(play.release(2, at(105.0)), [close(2, CloseReason::Lifetime)]);
    assert_eq!(play.tick(at(109.9)), []);
    assert_eq!(play.tick(at(110.0)), [close(1, CloseReason::Lifetime)]);
}

/// The longest idle go first, and none below `min_pool_size`, counted over all workers.
#[test]
fn the_idle_timeout_stops_at_min() {
    let (mut bank, mut calls) = (Bank::new(1), vec![]);
    let limits = BankLimits { min: 1, size: Some(3), ..BANK_LIMITS };
    let (id, board) = bank.open_pool("shop", "ann", limits);
    let mut play =
        Play::on(&board, FIRST, Limits { idle: Some(Duration::from_secs(10)), ..LIMITS });
    assert!(play.pool.is_below_min());
    for server in 0..3 {
        bank.ask(id, FIRST, Duration::ZERO, at(0.0), &mut calls);
        bank.logged_in(id, &mut calls);
        play.open(server, at(f64::from(server)));
    }
    assert!(!play.pool.is_below_min());
    assert_eq!(play.tick(at(10.0)), [close(0, CloseReason::Idle)]);
    // That it is about to be closed counts, although the bank does not know yet.
    assert_eq!(play.tick(at(20.0)), [close(1, CloseReason::Idle)]);
    bank.closed(id, FIRST, at(20.0), &mut calls);
    bank.closed(id, FIRST, at(20.0), &mut calls);
    assert_eq!(play.tick(at(30.0)), []);
    assert!(play.pool.deadline() > Some(at(30.0)), "no rest for the worker");
    assert_eq!(play.pool.counts().idle, 1);
}

/// PAUSE closes what is idle, waits for what is not, and keeps the line. RESUME serves it.
#[test]
fn pause_and_resume() {
    let mut play = Play::new(LIMITS);
    play.open(0, at(0.0));
    play.open(1, at(0.0));
    play.acquire(ANN, at(0.0));
    play.pool.connecting(ServerId(2), at(0.0));
    play.pool.pause(at(1.0), &mut play.out);
    assert_eq!(play.said(), [close(0, CloseReason::Paused)]);
    assert_eq!(play.acquire(BOB, at(1.0)), []);
    play.pool.opened(ServerId(2), at(1.1), &mut play.out);
    assert_eq!(play.said(), [close(2, CloseReason::Paused)]);
    assert!(!play.pool.is_quiet());
    assert_eq!(play.release(1, at(2.0)), [close(1, CloseReason::Paused)]);
    assert!(play.pool.is_quiet() && play.pool.is_paused());
    play.pool.resume(at(3.0), &mut play.out);
    assert_eq!(play.said(), [Action::Want { count: 1 }]);
}

/// RECONNECT replaces every server: idle ones now, others when they come free, logins when they succeed.
#[test]
fn reconnect_replaces_all() {
    let mut play = Play::new(LIMITS);
    play.open(0, at(0.0));
    play.open(1, at(0.0));
    play.acquire(ANN, at(0.0));
    play.pool.connecting(ServerId(2), at(0.0));
    play.pool.reconnect(2, at(1.0), &mut play.out);
    assert_eq!(play.said(), [close(0, CloseReason::Obsolete)]);
    assert!(play.pool.is_obsolete(ServerId(1)));
    play.pool.connecting(ServerId(3), at(1.0));
    play.pool.opened(ServerId(2), at(1.1), &mut play.out);
    assert_eq!(play.said(), [close(2, CloseReason::Obsolete)]);
    assert_eq!(play.release(1, at(2.0)), [close(1, CloseReason::Obsolete)]);
    play.pool.opened(ServerId(3), at(2.1), &mut play.out);
    assert_eq!(play.acquire(BOB, at(2.2)), [link(BOB, 3)]);
}

/// Ann cancels and is done before the cancel is: Bob, who waits, does not get her server until it is.
#[test]
fn a_cancel_never_hits_the_next() {
    let mut play = Play::new(LIMITS);
    play.open(0, at(0.0));
    play.acquire(ANN, at(0.0));
    play.acquire(BOB, at(0.0));
    play.pool.denied();
    play.pool.cancel_began(ServerId(0));
    play.pool.cancel_began(ServerId(0));
    assert_eq!(play.release(0, at(1.0)), []);
    assert_eq!(play.pool.counts().canceled, 1);
    assert!(!play.pool.is_quiet());
    play.pool.cancel_ended(ServerId(0), at(1.1), &mut play.out);
    assert_eq!(play.said(), []);
    play.pool.cancel_ended(ServerId(0), at(1.2), &mut play.out);
    assert_eq!(play.said(), [link(BOB, 0)]);
}

/// A cancel that is over before Ann is keeps nobody.
#[test]
fn a_cancel_that_is_over_keeps_nobody() {
    let mut play = Play::new(LIMITS);
    play.open(0, at(0.0));
    play.acquire(ANN, at(0.0));
    play.pool.cancel_began(ServerId(0));
    play.pool.cancel_ended(ServerId(0), at(0.1), &mut play.out);
    play.pool.test(ServerId(0));
    assert_eq!(play.pool.counts().testing, 1);
    assert_eq!(play.release(0, at(0.2)), []);
    assert_eq!(play.pool.counts().idle, 1);
}

// ---- Several workers.

fn two_workers() -> (Play, Play) {
    let board = Arc::new(Board::new(2));
    (Play::on(&board, FIRST, LIMITS), Play::on(&board, SECOND, LIMITS))
}

fn hand_over(from: &mut Play, to: &mut Play, server: u32, now: Instant) -> Vec<Action> {
    let (opened_at, epoch) =
        (from.pool.opened_at(ServerId(server)), from.pool.epoch_of(ServerId(server)));
    from.pool.left(ServerId(server));
    to.pool.arrived(ServerId(server), opened_at, epoch, now, &mut to.out);
    to.said()
}

/// Ann waits here, and a server is idle there: we ask for it, and it comes.
#[test]
fn an_idle_server_elsewhere_is_fetched() {
    let (mut here, mut there) = two_workers();
    there.open(0, at(0.0));
    assert_eq!(here.acquire(ANN, at(1.0)), [Action::Nudge { to: SECOND }]);
    there.pool.nudged(FIRST, at(1.0), &mut there.out);
    assert_eq!(there.said(), [Action::Give { server: ServerId(0), to: FIRST }]);
    assert_eq!(there.pool.counts().leaving, 1);
    assert_eq!(hand_over(&mut there, &mut here, 0, at(1.0)), [link(ANN, 0)]);
    assert!(there.pool.is_empty());
    assert_eq!(here.pool.opened_at(ServerId(0)), at(0.0));
}

/// It was taken meanwhile: we hear so, and open one.
#[test]
fn when_it_is_gone_we_open_one() {
    let (mut here, mut there) = two_workers();
    there.open(0, at(0.0));
    here.acquire(ANN, at(1.0));
    there.acquire(BOB, at(1.0));
    there.pool.nudged(FIRST, at(1.0), &mut there.out);
    assert_eq!(there.said(), [Action::NoIdle { to: FIRST }]);
    here.pool.no_idle(SECOND, at(1.0), &mut here.out);
    assert_eq!(here.said(), [Action::Want { count: 1 }]);
}

/// A server comes free there, with nobody in line: it is ours. It dies on the way, and we are told.
#[test]
fn a_gift_that_dies_is_told() {
    let (mut here, mut there) = two_workers();
    there.open(0, at(0.0));
    there.acquire(BOB, at(0.0));
    here.acquire(ANN, at(1.0));
    here.pool.denied();
    assert_eq!(there.release(0, at(2.0)), [Action::Give { server: ServerId(0), to: FIRST }]);
    assert!(!here.pool.is_quiet(), "something is on its way");
    there.pool.lost(ServerId(0), at(2.0), &mut there.out);
    assert_eq!(there.said(), [Action::NoIdle { to: FIRST }]);
    assert!(here.pool.is_quiet());
}

/// A stale server is checked where it is, then given; if the check fails, that is told.
#[test]
fn a_stale_server_is_checked_before_it_is_given() {
    for succeeds in [true, false] {
        let board = Arc::new(Board::new(2));
        let limits = Limits { check_delay: Some(Duration::from_secs(1)), ..LIMITS };
        let (mut here, mut there) =
            (Play::on(&board, FIRST, limits), Play::on(&board, SECOND, limits));
        there.open(0, at(0.0));
        assert_eq!(here.acquire(ANN, at(5.0)), [Action::Nudge { to: SECOND }]);
        there.pool.nudged(FIRST, at(5.0), &mut there.out);
        assert_eq!(there.said(), [Action::Check { server: ServerId(0) }]);
        if succeeds {
            assert_eq!(
                there.release(0, at(5.1)),
                [Action::Give { server: ServerId(0), to: FIRST }]
            );
        } else {
            there.pool.lost(ServerId(0), at(5.1), &mut there.out);
            assert_eq!(there.said(), [Action::NoIdle { to: FIRST }]);
        }
    }
}

/// Both have a line. The server goes over only to one who has waited markedly longer, and only
/// one at a time.
#[test]
fn between_lines_the_longer_wait_wins() {
    for (here_since, goes_over) in [(0.0, true), (0.95, false)] {
        let (mut here, mut there) = two_workers();
        there.open(0, at(0.0));
        there.open(1, at(0.0));
        there.acquire(ClientId(8), at(0.0));
        there.acquire(ClientId(9), at(0.0));
        here.acquire(ANN, at(here_since));
        there.acquire(BOB, at(1.2));
        there.acquire(CAT, at(1.2));
        let expected =
            if goes_over { Action::Give { server: ServerId(0), to: FIRST } } else { link(BOB, 0) };
        assert_eq!(there.release(0, at(2.0))[0], expected);
        assert_eq!(there.release(1, at(2.0))[0], link(if goes_over { BOB } else { CAT }, 1));
    }
}

// ---- The bank.

/// A bank with one or two workers, and the calls it made since we last looked.
struct Desk {
    bank: Bank,
    calls: Vec<Call>,
    now: Instant,
}

impl Desk {
    fn new(workers: u16) -> Self {
        Self { bank: Bank::new(workers), calls: Vec::new(), now: at(0.0) }
    }

    fn pool(&mut self, db: &str, user: &str, limits: BankLimits) -> (PoolId, Arc<Board>) {
        self.bank.open_pool(db, user, limits)
    }

    fn ask(&mut self, pool: PoolId, me: WorkerId, wait: f64) -> Answer {
        let wait = Duration::from_secs_f64(wait);
        self.bank.ask(pool, me, wait, self.now, &mut self.calls)
    }

    /// A slot for a server that logs in.
    fn open(&mut self, pool: PoolId, me: WorkerId) {
        assert!(matches!(self.ask(pool, me, 0.0), Answer::Open { .. }));
        self.bank.logged_in(pool, &mut self.calls);
    }

    fn close(&mut self, pool: PoolId, me: WorkerId) -> Vec<Call> {
        self.bank.closed(pool, me, self.now, &mut self.calls);
        self.said()
    }

    fn fail(&mut self, pool: PoolId, me: WorkerId, failure: Failure) -> Vec<Call> {
        self.bank.failed(pool, failure, Arc::from(&b"Mno"[..]), self.now, &mut self.calls);
        self.abandon(pool, me)
    }

    fn abandon(&mut self, pool: PoolId, me: WorkerId) -> Vec<Call> {
        self.bank.abandoned(pool, me, &mut self.calls);
        self.said()
    }

    fn said(&mut self) -> Vec<Call> {
        self.bank.invariants();
        std::mem::take(&mut self.calls)
    }
}

const OPEN: Answer = Answer::Open { reserve: false };
const REFUSED: Failure = Failure::Login { transient: false };

fn call(worker: WorkerId, pool: PoolId, calling: Calling) -> Call {
    Call { worker, pool, calling }
}

/// `pool_size` holds over both workers. Who came too late is called when a slot is free: one for one
/// slot, the hungriest first, and who comes too late then keeps its turn.
#[test]
fn the_hungry_are_called_in_turn() {
    let mut desk = Desk::new(3);
    let (pool, _) = desk.pool("shop", "ann", BankLimits { size: Some(1), ..BANK_LIMITS });
    desk.open(pool, FIRST);
    assert_eq!(desk.ask(pool, SECOND, 0.0), Answer::Wait);
    assert_eq!(desk.ask(pool, WorkerId(2), 0.0), Answer::Wait);
    assert_eq!(desk.close(pool, FIRST), [call(SECOND, pool, Calling::Retry)]);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    assert_eq!(desk.ask(pool, SECOND, 0.0), Answer::Wait);
    assert_eq!(desk.close(pool, FIRST), [call(SECOND, pool, Calling::Retry)]);
    desk.bank.declined(pool, SECOND, &mut desk.calls);
    assert_eq!(desk.said(), [call(WorkerId(2), pool, Calling::Retry)]);
    assert_eq!(desk.bank.open(pool), 0);
}

/// The reserve opens for who has waited long enough.
#[test]
fn the_reserve_is_for_those_who_waited() {
    let mut desk = Desk::new(1);
    let reserve_after = Some(Duration::from_secs(5));
    let limits = BankLimits { size: Some(1), reserve: 1, reserve_after, ..BANK_LIMITS };
    let (pool, _) = desk.pool("shop", "ann", limits);
    desk.open(pool, FIRST);
    assert_eq!(desk.ask(pool, FIRST, 4.9), Answer::Wait);
    assert_eq!(desk.ask(pool, FIRST, 5.0), Answer::Open { reserve: true });
    assert_eq!(desk.ask(pool, FIRST, 9.0), Answer::Wait);
}

/// `max_db_connections` and `max_user_connections` count over pools, and a free slot is offered to the
/// hungry of whichever pool may use it.
#[test]
fn db_and_user_limits_span_pools() {
    let mut desk = Desk::new(1);
    let limits = BankLimits { db_max: Some(2), user_max: Some(2), ..BANK_LIMITS };
    let (shop_ann, _) = desk.pool("shop", "ann", limits);
    let (shop_bob, _) = desk.pool("shop", "bob", limits);
    let (blog_ann, _) = desk.pool("blog", "ann", limits);
    desk.open(shop_ann, FIRST);
    desk.open(shop_bob, FIRST);
    desk.open(blog_ann, FIRST);
    assert_eq!((desk.bank.db_open("shop"), desk.bank.user_open("ann")), (2, 2));
    assert_eq!(desk.ask(shop_bob, FIRST, 0.0), Answer::Wait);
    assert_eq!(desk.ask(blog_ann, FIRST, 0.0), Answer::Wait);
    let both = [shop_bob, blog_ann].map(|pool| call(FIRST, pool, Calling::Retry));
    assert_eq!(desk.close(shop_ann, FIRST), both);
}

/// The database is full, and a sibling has idle servers: the longest idle goes, but not one that
/// `min_pool_size` protects, and nothing at all for a pool that is full itself.
#[test]
fn a_sibling_makes_room() {
    let mut desk = Desk::new(2);
    let limits = BankLimits { db_max: Some(3), ..BANK_LIMITS };
    let (ann, ann_board) = desk.pool("shop", "ann", BankLimits { min: 1, ..limits });
    let (bob, bob_board) = desk.pool("shop", "bob", BankLimits { size: Some(1), ..limits });
    let (cat, _) = desk.pool("shop", "cat", limits);
    let (mut anns, mut bobs) =
        (Play::on(&ann_board, FIRST, LIMITS), Play::on(&bob_board, SECOND, LIMITS));
    for (pool, me, play) in [(ann, FIRST, &mut anns), (bob, SECOND, &mut bobs)] {
        desk.open(pool, me);
        play.open(0, if pool == ann { at(0.0) } else { at(1.0) });
    }
    desk.open(cat, FIRST);
    desk.now = at(2.0);
    assert_eq!(desk.ask(bob, FIRST, 0.0), Answer::Wait);
    assert_eq!(desk.said(), [], "bob's pool is full: evicting would not help");
    assert_eq!(desk.ask(cat, FIRST, 0.0), Answer::Wait);
    assert_eq!(desk.said(), [call(SECOND, bob, Calling::Evict)]);
    bobs.pool.evict(at(2.0), &mut bobs.out);
    assert_eq!(bobs.said(), [close(0, CloseReason::Evicted)]);
    // Somebody is quicker, and now only the protected one is idle: it goes to who starves.
    assert_eq!(desk.close(bob, SECOND)[..1], [call(FIRST, bob, Calling::Retry)]);
    desk.open(bob, SECOND);
    assert_eq!(desk.ask(cat, FIRST, 0.1), Answer::Wait);
    assert_eq!(desk.said(), []);
    assert_eq!(desk.ask(cat, FIRST, 0.3), Answer::Wait);
    assert_eq!(desk.said(), [call(FIRST, ann, Calling::Evict)]);
}

/// The database is full, and the only idle server is our own, on another worker: it is fetched, not evicted.
#[test]
fn nobody_evicts_himself() {
    let mut desk = Desk::new(2);
    let (pool, board) = desk.pool("shop", "ann", BankLimits { db_max: Some(1), ..BANK_LIMITS });
    let mut play = Play::on(&board, SECOND, LIMITS);
    desk.open(pool, SECOND);
    play.open(0, at(0.0));
    assert_eq!(desk.ask(pool, FIRST, 9.0), Answer::Wait);
    assert_eq!(desk.said(), []);
}

/// A wrong password: everybody is refused after one attempt, and nothing is tried for a while; then by one
/// alone. When it succeeds all is forgotten.
#[test]
fn a_refused_login_is_not_hammered() {
    let mut desk = Desk::new(2);
    let (pool, _) = desk.pool("shop", "ann", BANK_LIMITS);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    let refuse = [FIRST, SECOND].map(|worker| call(worker, pool, Calling::Refuse));
    assert_eq!(desk.fail(pool, FIRST, REFUSED), refuse);
    assert_eq!(desk.bank.cached_error(pool).as_deref(), Some(&b"Mno"[..]));
    desk.now = at(14.9);
    assert_eq!(desk.ask(pool, FIRST, 0.0), Answer::Failing);
    assert!(!desk.bank.ask_min(pool, FIRST, desk.now));
    desk.now = at(15.0);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    assert_eq!(desk.ask(pool, SECOND, 0.0), Answer::Later);
    desk.bank.logged_in(pool, &mut desk.calls);
    assert_eq!(desk.said(), [call(SECOND, pool, Calling::Retry)]);
    assert_eq!(desk.ask(pool, SECOND, 0.0), OPEN);
    assert_eq!(desk.bank.cached_error(pool), None);
}

/// The server is starting up, or cannot be reached: clients wait, and one at a time tries.
#[test]
fn a_passing_failure_refuses_nobody() {
    for failure in [Failure::Login { transient: true }, Failure::Connect] {
        let mut desk = Desk::new(1);
        let (pool, _) = desk.pool("shop", "ann", BANK_LIMITS);
        desk.ask(pool, FIRST, 0.0);
        assert_eq!(desk.fail(pool, FIRST, failure), []);
        assert_eq!(desk.ask(pool, FIRST, 0.0), Answer::Later);
        desk.now = at(15.0);
        assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    }
}

/// "Too many connections" once, while others are open: their clients have something to wait for.
#[test]
fn a_refusal_beside_open_servers_refuses_nobody() {
    let mut desk = Desk::new(1);
    let (pool, _) = desk.pool("shop", "ann", BANK_LIMITS);
    desk.open(pool, FIRST);
    desk.ask(pool, FIRST, 0.0);
    assert_eq!(desk.fail(pool, FIRST, REFUSED), []);
    assert_eq!(desk.ask(pool, FIRST, 0.0), Answer::Later);
    assert_eq!(desk.close(pool, FIRST), []);
    assert_eq!(desk.ask(pool, FIRST, 0.0), Answer::Failing);
}

/// PAUSE or RECONNECT in the middle of a login poisons nothing, and forgives what was.
#[test]
fn an_abandoned_login_is_no_failure() {
    let mut desk = Desk::new(1);
    let (pool, _) = desk.pool("shop", "ann", BANK_LIMITS);
    desk.ask(pool, FIRST, 0.0);
    assert_eq!(desk.abandon(pool, FIRST), []);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    desk.fail(pool, FIRST, REFUSED);
    desk.bank.forgive(pool, &mut desk.calls);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    // Given up while it was the one who tries: another may.
    desk.fail(pool, FIRST, REFUSED);
    desk.now = at(15.0);
    desk.ask(pool, FIRST, 0.0);
    desk.abandon(pool, FIRST);
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
}

/// The login failed and is told of, but its connection is not gone yet: its slot is not free.
#[test]
fn a_failed_login_keeps_its_slot_until_its_connection_is_gone() {
    let mut desk = Desk::new(1);
    let (pool, _) = desk.pool("shop", "ann", BankLimits { size: Some(1), ..BANK_LIMITS });
    assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
    desk.bank.failed(pool, Failure::Connect, Arc::from(&b"Mno"[..]), desk.now, &mut desk.calls);
    desk.now = at(15.0);
    assert_eq!((desk.bank.open(pool), desk.ask(pool, FIRST, 0.0)), (1, Answer::Wait));
    desk.abandon(pool, FIRST);
    assert_eq!((desk.bank.open(pool), desk.ask(pool, FIRST, 0.0)), (0, OPEN));
}

/// Databases made from `*` come and go: what is kept of them is what is kept of those in use.
#[test]
fn a_pool_that_nobody_uses_is_forgotten() {
    let mut desk = Desk::new(2);
    let (kept, _) = desk.pool("shop", "ann", BANK_LIMITS);
    for n in 0..10_000 {
        let (pool, board) = desk.pool(&format!("made{n}"), "ann", BANK_LIMITS);
        assert!(desk.bank.take_new(pool) && !desk.bank.take_new(pool));
        assert_eq!((board.open(), board.waiting()), (0, 0), "another's board");
        assert_eq!(desk.pool(&format!("made{n}"), "ann", BANK_LIMITS).0, pool);
        assert_eq!(desk.ask(pool, FIRST, 0.0), OPEN);
        desk.bank.leave_pool(pool, SECOND, &mut desk.calls);
        desk.bank.leave_pool(pool, FIRST, &mut desk.calls);
        assert_eq!(desk.bank.pools(), 2, "its connection is not gone yet");
        desk.abandon(pool, FIRST);
        assert_eq!(desk.bank.pools(), 1);
        assert!(!desk.bank.has_db(&format!("made{n}")));
        assert!(pool.0 <= 1, "numbers are given again");
    }
    assert_eq!(desk.pool("shop", "ann", BANK_LIMITS).0, kept);
    assert_eq!((desk.bank.user_open("ann"), desk.bank.db_open("made7")), (0, 0));
}

/// A limit is lowered: the idle go at once, the linked when they come free, and no more than need be.
/// It is raised: the hungry are called.
#[test]
fn limits_change_under_way() {
    let mut desk = Desk::new(1);
    let (pool, board) = desk.pool("shop", "ann", BankLimits { size: Some(4), ..BANK_LIMITS });
    let mut play = Play::on(&board, FIRST, LIMITS);
    for server in 0..4 {
        desk.open(pool, FIRST);
        play.open(server, at(0.0));
    }
    for client in [ANN, BOB, CAT] {
        play.acquire(client, at(0.0));
    }
    desk.bank.set_limits(pool, BankLimits { size: Some(2), ..BANK_LIMITS }, &mut desk.calls);
    assert_eq!(play.pool.deadline(), Some(Instant(0)), "as soon as may be");
    play.pool.set_limits(LIMITS, at(1.0), &mut play.out);
    assert_eq!(play.said(), [close(0, CloseReason::Surplus)]);
    assert_eq!(play.release(1, at(1.0)), [close(1, CloseReason::Surplus)]);
    assert_eq!(play.release(2, at(1.0)), []);
    desk.close(pool, FIRST);
    desk.close(pool, FIRST);
    assert_eq!(play.release(3, at(1.0)), []);
    assert_eq!(desk.ask(pool, FIRST, 0.0), Answer::Wait);
    desk.bank.set_limits(pool, BankLimits { size: Some(3), ..BANK_LIMITS }, &mut desk.calls);
    assert_eq!(desk.said(), [call(FIRST, pool, Calling::Retry)]);
}

/// `min_pool_size` is filled up to, over all workers, but never beyond another limit.
#[test]
fn min_never_exceeds_a_limit() {
    let mut desk = Desk::new(2);
    let limits = BankLimits { min: 3, size: Some(9), db_max: Some(4), ..BANK_LIMITS };
    let (ann, _) = desk.pool("shop", "ann", limits);
    let (bob, _) = desk.pool("shop", "bob", limits);
    for worker in [FIRST, SECOND, FIRST] {
        assert!(desk.bank.ask_min(ann, worker, desk.now));
    }
    assert!(!desk.bank.ask_min(ann, FIRST, desk.now));
    assert!(desk.bank.ask_min(bob, FIRST, desk.now));
    assert!(!desk.bank.ask_min(bob, FIRST, desk.now), "max_db_connections");
    assert_eq!(desk.said(), [], "and nobody is evicted for it");
}

/// A replication client counts like a server of the pool, and an idle one makes room for it.
#[test]
fn a_replication_client_makes_room() {
    let mut desk = Desk::new(2);
    let (pool, board) = desk.pool("shop", "ann", BankLimits { size: Some(1), ..BANK_LIMITS });
    let mut play = Play::on(&board, SECOND, LIMITS);
    desk.open(pool, SECOND);
    play.open(0, at(0.0));
    let ask = |desk: &mut Desk| {
        desk.bank.ask_dedicated(pool, FIRST, Duration::ZERO, desk.now, &mut desk.calls)
    };
    assert_eq!(ask(&mut desk), Answer::Wait);
    assert_eq!(desk.said(), [call(SECOND, pool, Calling::Evict)]);
    play.pool.evict(at(0.0), &mut play.out);
    assert_eq!(play.said(), [close(0, CloseReason::Evicted)]);
    assert_eq!(desk.close(pool, SECOND), [call(FIRST, pool, Calling::Retry)]);
    assert_eq!(ask(&mut desk), OPEN);
    assert_eq!(desk.ask(pool, SECOND, 0.0), Answer::Wait);
}

/// Three pools that are always busy share one server connection. Without a rule the first would keep it for
/// ever; so each is served a third of the time.
#[test]
fn busy_siblings_take_turns() {
    const LOGIN_MS: u64 = 5;
    let mut bank = Bank::new(1);
    let limits = BankLimits { db_max: Some(1), ..BANK_LIMITS };
    let mut plays = ["ann", "bob", "cat"].map(|user| {
        let (id, board) = bank.open_pool("shop", user, limits);
        Pool::new(id, FIRST, LIMITS, board)
    });
    let mut served = [0_u32; 3];
    // Each has five clients that ask again as soon as they were served; a query takes a millisecond.
    let mut out: Vec<(usize, Vec<Action>)> = Vec::new();
    for (pool, play) in plays.iter_mut().enumerate() {
        (0..5).for_each(|client| {
            out.push((pool, orders(|out| play.acquire(ClientId(client), START, out))))
        });
    }
    let mut linked: Option<(usize, ClientId)> = None;
    let mut dialling: Option<(usize, u64)> = None;
    for ms in 0..60_000 {
        let now = START.after(Duration::from_millis(ms));
        let mut calls = vec![];
        if let Some((pool, client)) = linked.take() {
            out.push((pool, orders(|out| plays[pool].release(ServerId(0), now, out))));
            out.push((pool, orders(|out| plays[pool].acquire(client, now, out))));
        }
        if let Some((pool, _)) = dialling.take_if(|(_, due)| *due <= ms) {
            bank.logged_in(PoolId(pool as u32), &mut calls);
            out.push((pool, orders(|out| plays[pool].opened(ServerId(0), now, out))));
        }
        for (pool, play) in plays.iter_mut().enumerate() {
            out.push((pool, orders(|out| play.tick(now, out))));
        }
        while let Some((pool, todo)) = out.pop() {
            for order in todo {
                match order {
                    Action::Link { client, .. } => {
                        served[pool] += 1;
                        linked = Some((pool, client));
                    }
                    Action::Want { .. } => {
                        let wait = plays[pool].oldest_wait(now);
                        if bank.ask(PoolId(pool as u32), FIRST, wait, now, &mut calls) == OPEN {
                            plays[pool].connecting(ServerId(0), now);
                            dialling = Some((pool, ms + LOGIN_MS));
                        }
                        plays[pool].denied();
                    }
                    Action::Close { .. } => {
                        bank.closed(PoolId(pool as u32), FIRST, now, &mut calls)
                    }
                    Action::Decline => bank.declined(PoolId(pool as u32), FIRST, &mut calls),
                    other => panic!("{other:?}"),
                }
            }
            for call in calls.drain(..) {
                let play = &mut plays[call.pool.0 as usize];
                let orders = orders(|out| match call.calling {
                    Calling::Retry => play.retry(now, out),
                    Calling::Evict => play.evict(now, out),
                    Calling::Refuse => {}
                });
                out.push((call.pool.0 as usize, orders));
            }
        }
    }
    let (least, most) = (served.iter().min().unwrap_or(&0), served.iter().max().unwrap_or(&0));
    assert!(most - least < most / 20, "unequal shares: {served:?}");
    assert!(served.iter().sum::<u32>() > 55_000, "too much time lost in logins: {served:?}");
}

fn orders(input: impl FnOnce(&mut Vec<Action>)) -> Vec<Action> {
    let mut orders = vec![];
    input(&mut orders);
    orders
}
