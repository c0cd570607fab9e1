//! Cancelling: the right query, or nothing.
//!
//! A cancel is bound to a client, the server it is linked to, and the request under way there. The
//! server is told over a connection of its own, and goes to nobody else before that connection has
//! ended: until then a late signal may still reach whatever it runs.

use std::sync::Arc;

use io::{Conn, Driver};
use pool::{ClientId, Duration, Instant, PoolId, ServerId};
use session::{Own, Recalled};

use crate::client::State;
use crate::keys::Addressee;
use crate::log::Level;
use crate::mail::{Asker, Mail};
use crate::secure::Approach;
use crate::worker::{Role, Worker};
use crate::world::World;

/// A connection on which we cancel.
pub(crate) struct Canceller {
    pub(crate) conn: Conn,
    pub(crate) pool: PoolId,
    /// Whose query. The server may be gone before we are done; its slot is then somebody else's,
    /// and its id tells.
    pub(crate) server: u32,
    pub(crate) server_id: u64,
    /// Which of its requests: a second cancel of the same one adds nothing.
    pub(crate) request: u64,
    pub(crate) askers: Vec<Asker>,
    pub(crate) since: Instant,
    pub(crate) state: Going,
    /// As the server's own connection, and to the same host.
    pub(crate) approach: Approach,
    pub(crate) host: Arc<str>,
}

/// How far a cancel is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Going {
    Connecting,
    /// The server was asked whether it speaks TLS.
    Asking,
    /// In the handshake.
    Securing,
    /// The server has the request; it hangs up once it has passed it on.
    Sent,
    Closing,
}

/// A cancel that takes longer leaves it unknown whether it will still strike.
const CANCEL_TAKES_AT_MOST: Duration = Duration::from_secs(15);

impl<D: Driver, W: World> Worker<D, W> {
    /// A CancelRequest came in on client connection `slot`.
    pub(crate) fn cancel_requested(&mut self, slot: u32, pid: u32, key: &[u8]) {
        let client = &mut self.clients[slot as usize];
        client.state = State::Canceling;
        client.since = self.now;
        let asker = Asker { worker: self.me, slot, id: client.card.id };
        match Addressee::of(&self.site.config, pid, key) {
            Addressee::Here => {}
            Addressee::Peer { id, secret } => return self.send_on(id, pid, secret, asker),
            Addressee::Nobody => {
                let text = format_args!("cancel request was sent on too often: see [peers]");
                self.log(Level::Warning, text);
                return self.cancelled(asker);
            }
        }
        let worker = self.worker_of(pid, key);
        if worker == self.me {
            self.cancel(pid, key, asker);
        } else {
            self.commons.mail(worker, Mail::Cancel { pid, key: key.into(), asker });
        }
    }

    /// Cancel what the client with this key runs.
    pub(crate) fn cancel(&mut self, pid: u32, key: &[u8], asker: Asker) {
        let Some(slot) = self.holder(pid, key) else { return self.cancelled(asker) };
        let client = &self.clients[slot as usize];
        match client.state {
            State::Linked(server) if self.runs_clients_request(server.0) => {
                self.cancel_on(server.0, Some(asker));
            }
            State::Linked(server) if self.servers[server.0 as usize].side.is_behind_ours() => {
                // What is ours is not to be struck. As soon as that is done, the request is.
                self.servers[server.0 as usize].cancel_behind = true;
                self.cancelled(asker);
            }
            State::Waiting(_) | State::Linked(_)
                if !client.held.is_empty()
                    && (!self.is_torn(slot) || planted::is("cancel-within-a-message")) =>
            {
                self.cancel_in_line(slot);
                self.cancelled(asker);
            }
            State::Console(_) => {
                self.cancel_console(slot);
                self.cancelled(asker);
            }
            _ => self.cancelled(asker),
        }
    }

    /// Whether `slot` has been given half a message, into which nothing must be put.
    fn is_torn(&self, slot: u32) -> bool {
        match self.clients[slot as usize].state {
            State::Linked(server) => self.servers[server.0 as usize].side.is_torn(),
            _ => false,
        }
    }

    fn runs_clients_request(&self, server: u32) -> bool {
        let server = &self.servers[server as usize];
        server.may_be_struck() && (server.side.owes() || server.replica.is_some())
    }

    pub(crate) fn cancel_on(&mut self, slot: u32, asker: Option<Asker>) {
        let server = &self.servers[slot as usize];
        let (id, request, pool) = (server.id, server.requests, server.pool);
        let same = |c: &&mut Canceller| {
            c.server_id == id && c.request == request && c.state != Going::Closing
        };
        if let Some(under_way) = self.cancellers.iter_mut().map(|(_, c)| c).find(|c| same(c)) {
            under_way.askers.extend(asker);
            return;
        }
        // A server without a key cannot be asked to stop.
        let (Some(address), false) = (server.address.clone(), server.key.is_empty()) else {
            return asker.into_iter().for_each(|asker| self.cancelled(asker));
        };
        let (approach, host) = (self.approach_of_cancel(server), server.route.host().into());
        let conn = self.driver.connect(&address);
        let entry = self.cancellers.insert(Canceller {
            conn,
            pool,
            server: slot,
            server_id: id,
            request,
            askers: asker.into_iter().collect(),
            since: self.now,
            state: Going::Connecting,
            approach,
            host,
        });
        self.set_role(conn, Role::Canceller(crate::slot(entry)));
        if !planted::is("cancel-unawaited") {
            self.with_pool(pool, |pool, _| pool.cancel_began(ServerId(slot)));
        }
    }

    pub(crate) fn canceller_connected(&mut self, slot: u32) {
        if self.approach_to_cancel(slot) {
            self.send_cancel(slot);
        }
    }

    /// Say what is to be cancelled.
    pub(crate) fn send_cancel(&mut self, slot: u32) {
        let Some(canceller) = self.cancellers.get_mut(slot as usize) else { return };
        canceller.state = Going::Sent;
        let conn = canceller.conn;
        let server = self.servers.get(canceller.server as usize);
        match server.filter(|server| server.id == canceller.server_id) {
            // Between asking and now the request may have been answered. Its successor is not to
            // be hit.
            Some(server)
                if server.requests == canceller.request
                    && (server.side.owes() || server.replica.is_some())
                    && server.may_be_struck() =>
            {
                let mut packet = Vec::with_capacity(16 + server.key.len());
                wire::write::client::cancel_request(&mut packet, server.pid, &server.key);
                self.driver.write(conn, &packet);
            }
            _ => self.canceller_done(slot),
        }
    }

    /// The server hung up on the cancel: it has passed it on.
    pub(crate) fn canceller_ended(&mut self, slot: u32) {
        self.canceller_done(slot);
    }

    pub(crate) fn canceller_done(&mut self, slot: u32) {
        let Some(canceller) = self.cancellers.get_mut(slot as usize) else { return };
        if canceller.state != Going::Closing {
            canceller.state = Going::Closing;
            self.driver.abort(canceller.conn);
        }
    }

    pub(crate) fn canceller_gone(&mut self, slot: u32) {
        let Some(canceller) = self.cancellers.try_remove(slot as usize) else { return };
        let now = self.now;
        let server = self.servers.get(canceller.server as usize);
        if server.is_some_and(|server| server.id == canceller.server_id) {
            let server = ServerId(canceller.server);
            self.with_pool(canceller.pool, |pool, out| pool.cancel_ended(server, now, out));
            self.run_postponed(server.0);
        }
        for asker in canceller.askers {
            self.cancelled(asker);
        }
    }

    /// Whether a cancel is on its way to `entry`, or may be.
    pub(crate) fn is_being_canceled(&self, entry: u32) -> bool {
        let Some(server) = self.servers.get(entry as usize) else { return false };
        !planted::is("reset-is-cancelled")
            && self.cancellers.iter().any(|(_, canceller)| canceller.server_id == server.id)
    }

    /// A query of our own may have waited for the last cancel to end: a probe or a reset, for nothing
    /// else is run on a server that has just worked.
    fn run_postponed(&mut self, entry: u32) {
        let server = &self.servers[entry as usize];
        if server.own.is_none() || server.side.owes() || self.is_being_canceled(entry) {
            return;
        }
        match self.postponed(entry) {
            Some((own, query)) => self.run_own(entry, own, &query),
            // It was switched off meanwhile.
            None if server.own == Some(Own::Reset) => self.own_done(entry, Own::Reset, None),
            None => {}
        }
    }

    /// Tell the asker's worker that its cancel is over, whatever became of it.
    pub(crate) fn cancelled(&mut self, asker: Asker) {
        if asker.worker == self.me {
            self.asker_may_go(asker);
        } else {
            self.commons.mail(asker.worker, Mail::Cancelled { asker });
        }
    }

    /// Hang up on who asked for a cancel; libpq waits for just that.
    pub(crate) fn asker_may_go(&mut self, asker: Asker) {
        let client = self.clients.get_mut(asker.slot as usize);
        let Some(client) = client.filter(|client| client.card.id == asker.id) else { return };
        if matches!(client.state, State::Canceling) {
            client.state = State::Closing;
            client.since = self.now;
            let conn = client.conn;
            self.uncount(asker.slot);
            self.driver.finish(conn);
        }
    }

    /// Give up on cancels that take too long. Nobody knows whether such a one will still strike,
    /// so its server is closed.
    pub(crate) fn tick_cancellers(&mut self) {
        let now = self.now;
        let late =
            |c: &Canceller| c.state != Going::Closing && c.since.after(CANCEL_TAKES_AT_MOST) <= now;
        let late: Vec<(u32, u32, u64)> = self
            .cancellers
            .iter()
            .filter(|(_, c)| late(c))
            .map(|(slot, c)| (crate::slot(slot), c.server, c.server_id))
            .collect();
        for (slot, server, id) in late {
            if self.servers.get(server as usize).is_some_and(|server| server.id == id) {
                self.server_dies(server, "cancel took too long");
            }
            self.canceller_done(slot);
        }
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// A cancel for a client whose request has not gone to a server yet: the request is taken out
    /// of the line and answered as PostgreSQL would have, had the cancel come a moment later.
    pub(crate) fn cancel_in_line(&mut self, slot: u32) {
        let report = wire::Report {
            severity: b"ERROR",
            with_v: true,
            code: b"57014",
            message: b"canceling statement due to user request",
            ..wire::Report::default()
        };
        let client = &mut self.clients[slot as usize];
        let mut out = Vec::new();
        // Half a request cannot be answered; nor can it be taken back.
        while let Some(recalled) = session::recall(&mut client.side, &mut client.held) {
            if recalled == Recalled::Request {
                wire::write::server::error_response(&mut out, &report);
            }
            wire::write::server::ready_for_query(&mut out, wire::Status::Idle);
            if recalled == Recalled::Request {
                break;
            }
        }
        self.send_to_client(slot, &out);
        let client = &mut self.clients[slot as usize];
        if client.held.is_empty() && matches!(client.state, State::Waiting(_)) {
            client.state = State::Idle;
            client.since = self.now;
            let pool = client.pool;
            self.with_pool(pool, |pool, out| pool.forget(ClientId(slot), out));
        }
        // There is room again for what it says next.
        if !planted::is("cancelled-and-unread") {
            self.regulate(slot);
        }
    }
}
