//! What has a deadline. Twenty times a second everything that may be late is looked at.

use std::ops::Range;

use io::Driver;
use pool::{Duration, Instant, PoolId};

use crate::client::State;
use crate::end::{LINGER, Why};
use crate::server;
use crate::worker::Worker;
use crate::world::World;

/// How often a pool below its min_pool_size is topped up, and stats and orders are looked at.
const MAINTENANCE: Duration = Duration::from_millis(300);

/// So many pools in use are looked at each time.
const AWAKE_AT_ONCE: usize = 256;

/// With more, each has its turn within so many times, which is not later than PgBouncer comes by.
const TURNS_MAX: usize = 6;

/// How many pools are looked at in one go for that. With more, it takes its turns.
const ROOMS_AT_ONCE: usize = 1024;

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn tick(&mut self) {
        self.tick_rooms();
        self.tick_clients();
        self.tick_servers();
        self.tick_ears();
        self.tick_sequences();
        self.tick_inquiries();
        self.tick_cancellers();
        self.tick_peers();
        self.tick_doors();
        self.tick_suspend();
        if self.now >= self.next_maintenance {
            self.next_maintenance = self.now.after(MAINTENANCE);
            self.tell_second();
            let some = self.some_rooms();
            self.top_up(some.clone());
            self.tick_replicas();
            self.tick_hubs();
            self.fast_close();
            self.sweep_rooms(some);
            self.tick_zones();
        }
        self.tick_stats();
        self.carry_out();
        self.look_at_orders();
    }

    /// What was seen of statements is looked at anew from time to time.
    fn tell_second(&self) {
        self.statements.tell_second(self.now.since(Instant::default()).as_secs() as u32);
    }

    fn tick_rooms(&mut self) {
        let now = self.now;
        // A pool without servers and without a line has nothing to be late with: of many thousands,
        // only those in use are looked at, and of many of those some in turn.
        for _turn in 0..self.awake.len().min(AWAKE_AT_ONCE.max(self.awake.len() / TURNS_MAX)) {
            let index = if self.next_awake < self.awake.len() { self.next_awake } else { 0 };
            let Some(id) = self.awake.get(index).copied() else { return };
            self.next_awake = index;
            let Some(Some(room)) = self.rooms.get_mut(id.0 as usize) else {
                self.awake.swap_remove(index);
                continue;
            };
            if room.pool.deadline().is_some_and(|deadline| deadline <= now) {
                self.with_pool(id, |pool, out| pool.tick(now, out));
                self.carry_out();
            } else if room.pool.is_empty() {
                room.awake = false;
                room.empty_since = now;
                self.awake.swap_remove(index);
                continue;
            }
            self.next_awake += 1;
        }
    }

    /// The next rooms in turn to be looked at for what is not urgent: all of them, as a rule.
    fn some_rooms(&mut self) -> Range<usize> {
        let from = if self.next_room < self.rooms.len() { self.next_room } else { 0 };
        self.next_room = self.rooms.len().min(from + ROOMS_AT_ONCE);
        from..self.next_room
    }

    fn tick_clients(&mut self) {
        let login = nonzero(self.site.config.settings.client_login_timeout);
        let cancel = nonzero(self.site.config.settings.cancel_wait_timeout);
        let mut late: Vec<(u32, Late)> = Vec::new();
        for (slot, client) in &self.clients {
            let passed = |limit: Option<Duration>| past(limit, client.since, self.now);
            let terms = || self.room(client.pool).map(|room| &room.terms);
            let what = match &client.state {
                State::Login(entering) if !entering.parked && passed(login) => Some(Late::Login),
                State::Canceling if passed(cancel) => Some(Late::Cancel),
                State::Waiting(crate::client::WaitingFor::Welcome) if passed(login) => {
                    Some(Late::Welcome)
                }
                State::Idle if terms().is_some_and(|terms| passed(terms.client_idle)) => {
                    Some(Late::Idle)
                }
                State::Waiting(crate::client::WaitingFor::Replica)
                    if terms().is_some_and(|terms| passed(terms.wait)) =>
                {
                    Some(Late::Line)
                }
                State::Closing if passed(Some(LINGER)) => Some(Late::Closing),
                State::Linked(server) => self.linked_late(client, server.0),
                _ => None,
            };
            late.extend(what.map(|what| (crate::slot(slot), what)));
        }
        for (slot, what) in late {
            self.too_late(slot, what);
        }
        self.carry_out();
    }

    /// Which of the times of a query and a transaction is over.
    fn linked_late(&self, client: &crate::client::Client, server: u32) -> Option<Late> {
        let room = self.room(client.pool)?;
        let server = self.servers.get(server as usize)?;
        let terms = &room.terms;
        if server.replica.is_some() {
            return None;
        }
        let passed = |limit, since| past(limit, since, self.now);
        // A pipeline without its Sync, or a COPY that the client does not go on with, is the
        // client's idling and not the server's work.
        let busy = !server.side.awaits_client();
        let open = server.side.in_transaction() || server.side.owes();
        if busy && passed(terms.query, server.since) {
            Some(Late::Query)
        } else if open && !busy && passed(terms.idle_transaction, server.since) {
            Some(Late::IdleTransaction)
        } else if (open || busy) && passed(terms.transaction, client.began) {
            Some(Late::Transaction)
        } else if let (false, false, Some(pin)) = (busy, open, &server.pinned)
            && client.held.is_empty()
            && passed(terms.pin, pin.since)
        {
            Some(Late::Pin)
        } else if !busy
            && !open
            && server.pinned.is_some()
            && passed(terms.pin_idle, client.since.max(server.since))
        {
            Some(Late::PinIdle)
        } else if !busy && !open && passed(terms.client_idle, client.since.max(server.since)) {
            Some(Late::Idle)
        } else {
            None
        }
    }

    fn too_late(&mut self, slot: u32, late: Late) {
        let reason = match late {
            Late::Login => "client_login_timeout",
            Late::Welcome => "client_login_timeout (server down)",
            Late::Line => "query_wait_timeout",
            Late::Cancel => "cancel_wait_timeout",
            Late::Idle => "client_idle_timeout",
            Late::Query => "query timeout",
            Late::IdleTransaction => "idle transaction timeout",
            Late::Transaction => "transaction timeout",
            Late::Pin | Late::PinIdle => {
                return self.pin_is_over(slot, late == Late::PinIdle);
            }
            Late::Closing => {
                let conn = self.clients[slot as usize].conn;
                self.clients[slot as usize].since = self.now;
                return self.driver.abort(conn);
            }
        };
        // The server's fate follows from how it was left; query and transaction may not go on.
        if let (State::Linked(server), true) =
            (&self.clients[slot as usize].state, late.is_servers())
        {
            let server = server.0;
            return self.server_dies(server, reason);
        }
        self.client_leaves(slot, Why::text(reason));
    }

    fn tick_servers(&mut self) {
        let connect = nonzero(self.site.config.settings.server_connect_timeout);
        let check = nonzero(self.site.config.settings.server_connect_timeout);
        let mut late = Vec::new();
        for (entry, server) in &self.servers {
            let over = |limit| past(limit, server.since, self.now);
            match server.state {
                server::State::Resolving | server::State::Connecting if over(connect) => {
                    late.push((crate::slot(entry), Overdue::Connecting));
                }
                server::State::Asking | server::State::Securing | server::State::Login(_)
                    if over(connect) =>
                {
                    late.push((crate::slot(entry), Overdue::Login));
                }
                // A server that does not answer our own question would not answer a client's.
                server::State::Ready if server.own.is_some_and(is_brief) && over(check) => {
                    late.push((crate::slot(entry), Overdue::Own));
                }
                server::State::Leaving(_) if over(Some(LINGER)) => {
                    late.push((crate::slot(entry), Overdue::Leaving));
                }
                server::State::Closing if over(Some(LINGER)) => {
                    late.push((crate::slot(entry), Overdue::Closing));
                }
                _ => {}
            }
        }
        for (entry, overdue) in late {
            match overdue {
                Overdue::Connecting => self.place_fails(entry, "connect timeout"),
                Overdue::Login => self.login_fails(entry, "connect timeout", None),
                Overdue::Own => self.server_dies(entry, "test query timeout"),
                Overdue::Leaving => self.server_dies(entry, "it could not be handed over"),
                Overdue::Closing => {
                    let server = &mut self.servers[entry as usize];
                    server.since = self.now;
                    if let Some(conn) = server.conn {
                        self.driver.abort(conn);
                    }
                }
            }
        }
        self.carry_out();
    }

    /// Pools below their min_pool_size get another server.
    fn top_up(&mut self, some: Range<usize>) {
        for index in some {
            let Some(Some(room)) = self.rooms.get(index) else { continue };
            if !room.pool.is_below_min() || room.pool.is_paused() || !self.is_kept_warm(room) {
                continue;
            }
            let id: PoolId = room.pool.id();
            while self.commons.bank().ask_min(id, self.me, self.now) {
                self.dial(id, None);
            }
        }
    }

    /// `server_fast_close`: a session whose server is obsolete ends with its transaction, not when its
    /// client leaves.
    fn fast_close(&mut self) {
        if !self.site.config.settings.server_fast_close {
            return;
        }
        let mut closing = Vec::new();
        for (entry, server) in &self.servers {
            let id = pool::ServerId(crate::slot(entry));
            let Some(room) = self.room(server.pool) else { continue };
            let resting = !server.side.owes() && !server.side.in_transaction();
            if server.client.is_some()
                && server.replica.is_none()
                && room.mode() == session::Mode::Session
                && resting
                && room.pool.is_obsolete(id)
            {
                closing.push((id.0, room.obsolete_because));
            }
        }
        for (entry, reason) in closing {
            self.server_dies(entry, reason);
        }
    }

    /// min_pool_size acts where the database has a forced user, or a client is there.
    fn is_kept_warm(&self, room: &crate::room::Room) -> bool {
        room.database.user.is_some() || self.commons.census().of_database(&room.name) > 0
    }
}

/// What a client is late with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Late {
    Login,
    Welcome,
    Line,
    Cancel,
    Idle,
    Query,
    IdleTransaction,
    Transaction,
    /// It keeps its server.
    Pin,
    PinIdle,
    Closing,
}

impl Late {
    /// Whether the server goes too, with the same words.
    fn is_servers(self) -> bool {
        matches!(self, Self::Query | Self::IdleTransaction | Self::Transaction)
    }
}

/// What a server is late with.
enum Overdue {
    Connecting,
    Login,
    Own,
    Leaving,
    Closing,
}

/// Whether a query of ours is answered at once by a server that is well. How long an `auth_query`
/// takes is its author's affair.
fn is_brief(own: session::Own) -> bool {
    own != session::Own::Lookup
}

fn nonzero(limit: Duration) -> Option<Duration> {
    (!limit.is_zero()).then_some(limit)
}

fn past(limit: Option<Duration>, since: Instant, now: Instant) -> bool {
    limit.is_some_and(|limit| since.after(limit) <= now)
}
