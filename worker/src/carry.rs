//! Carrying out what the pools order, and what the bank calls for.

use io::Driver;
use pool::{Action, Answer, Call, Calling, CloseReason, Pool, PoolId, RefuseReason};

use crate::client::{Client, State};
use crate::end::Why;
use crate::inquiry;
use crate::log::Level;
use crate::mail::Mail;
use crate::worker::Worker;
use crate::world::World;

impl<D: Driver, W: World> Worker<D, W> {
    /// Tell a pool something; what it orders is queued. Nothing happens when the pool is gone.
    pub(crate) fn with_pool(&mut self, id: PoolId, tell: impl FnOnce(&mut Pool, &mut Vec<Action>)) {
        let Some(Some(room)) = self.rooms.get_mut(id.0 as usize) else { return };
        tell(&mut room.pool, &mut self.out);
        if !std::mem::replace(&mut room.awake, true) {
            self.awake.push(id);
        }
        self.orders.extend(self.out.drain(..).map(|action| (id, action)));
    }

    /// Do what was ordered, in the order it was ordered. What this brings about is done too.
    pub(crate) fn carry_out(&mut self) {
        if self.carrying {
            return;
        }
        self.carrying = true;
        while let Some((pool, action)) = self.orders.pop_front() {
            self.obey(pool, action);
        }
        self.carrying = false;
    }

    fn obey(&mut self, pool: PoolId, action: Action) {
        match action {
            Action::Link { client, server } => self.link(client.0, server.0),
            Action::Want { count } => self.open_servers(pool, count),
            Action::Decline => self.decline(pool),
            Action::Check { server } => self.check_server(server.0),
            Action::Close { server, reason } => {
                let obsolete =
                    self.room(pool).map_or("obsolete connection", |r| r.obsolete_because);
                self.close_server(server.0, closing_words(reason, obsolete));
            }
            Action::Give { server, to } => self.give_server(server.0, to),
            Action::Nudge { to } => self.commons.mail(to, Mail::Nudge { pool, from: self.me }),
            Action::NoIdle { to } => self.commons.mail(to, Mail::NoIdle { pool, from: self.me }),
            Action::Refuse { client, reason } => self.refuse(client.0, pool, reason),
            Action::Notify { client } => self.tell_in_line(client.0),
        }
    }

    /// Ask the bank for slots, and dial a server for each.
    fn open_servers(&mut self, pool: PoolId, count: u32) {
        for _ in 0..count {
            let Some(Some(room)) = self.rooms.get(pool.0 as usize) else { return };
            let waited = room.pool.oldest_wait(self.now);
            let mut calls = Vec::new();
            let answer = self.commons.bank().ask(pool, self.me, waited, self.now, &mut calls);
            self.deliver(calls);
            match answer {
                Answer::Open { reserve } => {
                    if reserve {
                        self.log_reserve(pool);
                    }
                    self.dial(pool, None);
                }
                Answer::Wait | Answer::Later => {
                    self.with_pool(pool, |pool, _| pool.denied());
                    return;
                }
                Answer::Failing => {
                    if let Some(room) = self.room_mut(pool) {
                        room.error_is_news = false;
                    }
                    self.with_pool(pool, |pool, out| {
                        pool.denied();
                        pool.refuse_all(RefuseReason::LoginFailed, out);
                    });
                    return;
                }
            }
        }
    }

    /// Pass on what the bank wants of workers; what it wants of this one is done at once.
    pub(crate) fn deliver(&mut self, calls: Vec<Call>) {
        for Call { worker, pool, calling } in calls {
            if worker == self.me {
                self.called(pool, calling);
            } else {
                self.commons.mail(worker, Mail::Call { pool, calling });
            }
        }
    }

    pub(crate) fn called(&mut self, pool: PoolId, calling: Calling) {
        let now = self.now;
        if self.room(pool).is_none() {
            // Nobody uses it here any more; the bank may call somebody else.
            return self.decline(pool);
        }
        match calling {
            // Those who wait for a server of their own are in no line, and come first.
            Calling::Retry if self.serve_replica_of(pool) => {}
            Calling::Retry => self.with_pool(pool, |pool, out| pool.retry(now, out)),
            Calling::Evict => self.with_pool(pool, |pool, out| pool.evict(now, out)),
            Calling::Refuse => {
                // Somebody may have logged in since.
                if self.commons.bank().cached_error(pool).is_some() {
                    if let Some(room) = self.room_mut(pool) {
                        room.error_is_news = true;
                    }
                    let reason = RefuseReason::LoginFailed;
                    self.with_pool(pool, |pool, out| pool.refuse_all(reason, out));
                }
            }
        }
    }

    fn decline(&mut self, pool: PoolId) {
        let mut calls = Vec::new();
        self.commons.bank().declined(pool, self.me, &mut calls);
        self.deliver(calls);
    }

    fn refuse(&mut self, client: u32, pool: PoolId, reason: RefuseReason) {
        let why = self.why_refused(pool, reason);
        match inquiry::index(client) {
            Some(inquiry) => self.inquiry_refused(inquiry, why),
            None => self.client_leaves(client, why),
        }
    }

    fn why_refused(&self, pool: PoolId, reason: RefuseReason) -> Why {
        match reason {
            RefuseReason::WaitedTooLong => Why::text("query_wait_timeout"),
            RefuseReason::LoginFailed => {
                let error = self.commons.bank().cached_error(pool).unwrap_or_default();
                if self.room(pool).is_some_and(|room| room.error_is_news) {
                    Why::Server(error)
                } else {
                    let fields = wire::ErrorFields::new(&error);
                    let message = String::from_utf8_lossy(fields.message());
                    let text = format!(
                        "server login has been failing, cached error: {message} (server_login_retry)"
                    );
                    // Who wants to know why looks at the SQLSTATE: that the database is not there, say.
                    Why::Server(last_words(fields.code(), &text).into())
                }
            }
        }
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    fn log_reserve(&mut self, pool: PoolId) {
        let waits = |c: &Client| c.pool == pool && matches!(c.state, State::Waiting(_));
        let line = self.clients.iter().filter(|(_, client)| waits(client));
        if let Some((client, _)) = line.min_by_key(|(_, client)| client.since) {
            self.log_client(
                crate::slot(client),
                Level::Warning,
                format_args!("taking connection from reserve_pool"),
            );
        }
    }
}

/// The body of an ErrorResponse of ours.
fn last_words(code: &[u8], text: &str) -> Vec<u8> {
    let mut whole = Vec::new();
    let code = if code.is_empty() { b"08P01" } else { code };
    let report = wire::Report { code, ..crate::end::fatal(text.as_bytes()) };
    wire::write::server::error_response(&mut whole, &report);
    whole.split_off(5)
}

/// `closing because: …` of a server.
fn closing_words(reason: CloseReason, obsolete: &'static str) -> &'static str {
    match reason {
        CloseReason::Idle => "server idle timeout",
        CloseReason::Lifetime => "server lifetime over",
        CloseReason::Obsolete => obsolete,
        CloseReason::Evicted => "evicted",
        CloseReason::Paused => "pause mode",
        CloseReason::Surplus => "too many servers in the pool",
    }
}
