//! A query's way: bytes of a client on to its server, and back.

use std::mem;

use io::{Buf, Conn, Driver};
use pool::{ClientId, Instant, ServerId};
use session::{Counted, Fault, Heard, Mode, Own, Owned, Pieces, Said, Tie, Unlinked};

use crate::client::{Client, State, WaitingFor};
use crate::end::Why;
use crate::inquiry;
use crate::order::Shutdown;
use crate::server;
use crate::state::Behind;
use crate::worker::Worker;
use crate::world::World;

/// A client in line may say this much more, in bytes, before we stop reading from it.
const HELD_MAX: usize = 64 * 1024;

/// What waited and is no longer than this is copied on its way, and leaves its memory to others; so many at most.
const SPARE_MAX: usize = 1024;
const SPARES_MAX: usize = 64;

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn client_said(&mut self, slot: u32, bytes: Buf) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let servers = &self.servers;
        let is_ours = |entry: u32| servers.get(entry as usize).is_some_and(server::Server::is_ours);
        match client.state {
            State::Linked(server)
                if client.held.is_empty() && !client.side.is_held() && !is_ours(server.0)
                    || planted::is("held-is-overtaken") =>
            {
                self.forward(slot, server.0, bytes);
            }
            State::Linked(_) | State::Waiting(_) => {
                self.hold(slot, &bytes);
                self.regulate(slot);
            }
            State::Idle => self.client_wants(slot, bytes),
            State::Login(_) => self.client_logs_in(slot, bytes),
            State::Console(_) => self.admin_said(slot, &bytes),
            State::Canceling | State::Closing => {}
        }
        self.carry_out();
    }

    /// An idle client said something: as a rule, it wants a server.
    fn client_wants(&mut self, slot: u32, bytes: Buf) {
        let now = self.now;
        let client = &mut self.clients[slot as usize];
        client.since = now;
        match session::unlinked(&mut client.side, &bytes) {
            Ok(Unlinked::Nothing) => {}
            Ok(Unlinked::Terminate) => self.client_leaves(slot, Why::CloseRequest),
            Ok(Unlinked::Server { .. })
                if self.standing.shutdown == Some(Shutdown::WaitForServers) =>
            {
                self.client_leaves(slot, Why::text("server shutting down"));
            }
            Ok(Unlinked::Server { from }) => {
                client.state = State::Waiting(WaitingFor::Query);
                client.began = now;
                // If a server is free, the buffer itself goes on to it; else a copy waits, for
                // buffers are few and clients in line may be many.
                if from == 0 && !self.carrying {
                    self.fresh = Some((slot, bytes));
                    self.stand_in_line(slot);
                    self.carry_out();
                    self.hold_fresh();
                } else {
                    self.hold(slot, bytes.get(from..).unwrap_or_default());
                    self.stand_in_line(slot);
                }
            }
            Err(fault) => self.client_broke(slot, &fault),
        }
    }

    /// `slot` wants a server: one that is set to what it is, if there is such a one.
    pub(crate) fn stand_in_line(&mut self, slot: u32) {
        let (client, now) = (&self.clients[slot as usize], self.now);
        let flavour = client.side.flavour();
        let home = self.home_of(slot);
        self.with_pool(client.pool, |pool, out| match home {
            Some(home) => pool.acquire_home(ClientId(slot), home, flavour, now, out),
            None => pool.acquire_like(ClientId(slot), flavour, now, out),
        });
    }

    /// The pool gave `slot` a server. Either may have gone since it did.
    pub(crate) fn link(&mut self, slot: u32, entry: u32) {
        if let Some(inquiry) = inquiry::index(slot) {
            return self.link_inquiry(inquiry, entry);
        }
        let now = self.now;
        if self.is_dying(entry) {
            self.server_dies(entry, "server conn crashed?");
        }
        let waits = |client: &Client| matches!(client.state, State::Waiting(_));
        let waiting = self.clients.get(slot as usize).filter(|client| waits(client));
        match (waiting.map(|_| ()), self.is_ready(entry)) {
            (Some(()), true) => {}
            (Some(()), false) => {
                // It had its turn, and stands in line anew.
                self.clients[slot as usize].since = now;
                return self.stand_in_line(slot);
            }
            (None, true) => return self.release(entry),
            (None, false) => return,
        }
        let client = &mut self.clients[slot as usize];
        let server = &mut self.servers[entry as usize];
        let waited = now.since(client.since);
        let waiting_for = mem::replace(&mut client.state, State::Linked(ServerId(entry)));
        server.client = Some(ClientId(slot));
        self.links.set(slot, server.pid);
        server.touched = true;
        server.since = now;
        client.began = now;
        if let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) {
            room.counters.server_assignment_count += 1;
            room.counters.wait_time_us += u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        }
        if matches!(waiting_for, State::Waiting(WaitingFor::Welcome)) {
            return self.welcomed(slot, entry);
        }
        // The hub speaks to it, too.
        self.servers[entry as usize].side.collects = self.clients[slot as usize].ear.is_some();
        if self.adapt(slot, entry, Behind::Request) {
            // What the client said waits until the server has its settings: were they refused, its
            // query would run with somebody else's.
            return self.hold_fresh();
        }
        if self.clients[slot as usize].ear.is_some() && self.ear_returns(slot, entry) {
            return self.hold_fresh();
        }
        self.send_held(slot, entry);
    }

    /// What came just now, and was to go on at once, waits.
    fn hold_fresh(&mut self) {
        if let Some((slot, bytes)) = self.fresh.take() {
            self.hold(slot, &bytes);
        }
    }

    /// What `slot` said waits, where there was any in memory that has been used for this before.
    fn hold(&mut self, slot: u32, bytes: &[u8]) {
        let held = &mut self.clients[slot as usize].held;
        if held.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *held = spare;
        }
        held.extend_from_slice(bytes);
    }

    /// What had waited is on its way: its memory is for whoever waits next.
    fn keep_spare(&mut self, bytes: Buf) {
        if let Some(memory) = bytes.into_heap() {
            self.keep_memory(memory);
        }
    }

    pub(crate) fn keep_memory(&mut self, mut memory: Vec<u8>) {
        if self.spare.len() < SPARES_MAX && (1..=SPARE_MAX).contains(&memory.capacity()) {
            memory.clear();
            self.spare.push(memory);
        }
    }

    /// `slot` has `entry` no more, as far as the two know of each other.
    pub(crate) fn uncouple(&mut self, slot: u32, entry: u32) {
        self.servers[entry as usize].client = None;
        self.let_go_of(slot, entry);
    }

    /// Requests of others that are about `slot` are no more about `entry`. To one that is on its way nobody else is exposed.
    fn let_go_of(&mut self, slot: u32, entry: u32) {
        if self.links.clear(slot)
            && let Some(server) = self.servers.get_mut(entry as usize)
        {
            server.side.spoil();
        }
    }

    /// What waited for a server goes on to it.
    pub(crate) fn send_held(&mut self, slot: u32, entry: u32) {
        if self.fresh.as_ref().is_some_and(|(fresh, _)| *fresh == slot)
            && let Some((_, bytes)) = self.fresh.take()
        {
            return self.forward(slot, entry, bytes);
        }
        let client = &mut self.clients[slot as usize];
        if client.held.is_empty() {
            // A cancel took it out of the line meanwhile; or it had no wish but to keep its server.
            self.settle_server(slot, entry);
            return self.regulate(slot);
        }
        let held = mem::take(&mut client.held);
        self.forward(slot, entry, held.into());
        self.regulate(slot);
    }

    /// The first server of a pool is there: its first client is let in, and wants nothing yet.
    fn welcomed(&mut self, slot: u32, entry: u32) {
        let asked = self.clients[slot as usize].side.asked.clone();
        if let Some(asked) = asked.filter(|asked| self.proven(slot, asked).is_none()) {
            return self.prove(slot, entry, &asked);
        }
        self.uncouple(slot, entry);
        self.release(entry);
        self.let_in(slot);
    }

    /// A client's bytes, on to its server.
    pub(crate) fn forward(&mut self, slot: u32, entry: u32, bytes: Buf) {
        let now = self.now;
        let client = &mut self.clients[slot as usize];
        let server = &mut self.servers[entry as usize];
        if server.replica.is_some() {
            if let Some(conn) = server.conn {
                self.driver.send(conn, bytes);
            }
            return self.regulate(slot);
        }
        let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) else { return };
        room.counters.bytes_received += bytes.len() as u64;
        if server.side.trail.ties.has(Tie::Unknown) {
            server.side.trail.doubt();
        }
        if !server.side.owes() {
            server.since = now;
            server.requests += 1;
            if !server.side.in_transaction() {
                client.began = now;
            }
        } else if server.side.awaits_client() {
            // The rest of a COPY or of a pipeline: each byte of it ends the client's idling.
            server.since = now;
        }
        let said = session::from_client(
            &mut client.side,
            &mut server.side,
            &mut self.statements,
            &room.rules,
            &bytes,
            &mut self.flow,
        );
        let (to_client, to_server) = (client.conn, server.conn);
        self.pass_on(to_client, to_server, bytes, Towards::Server);
        self.report(Some(slot));
        if !self.flow.asides.is_empty() {
            self.attend_asides(self.clients[slot as usize].pool);
        }
        match said {
            Ok(Said::More | Said::Held) => self.settle_server(slot, entry),
            Ok(Said::Terminate) if planted::is("goodbye-overtakes") => {
                return self.client_leaves(slot, Why::CloseRequest);
            }
            Ok(Said::Terminate) => {
                self.clients[slot as usize].leaving = true;
                self.settle_server(slot, entry);
            }
            Err(fault) => self.client_broke(slot, &fault),
        }
        self.regulate(slot);
    }

    pub(crate) fn server_said(&mut self, entry: u32, bytes: Buf) {
        let Some(server) = self.servers.get_mut(entry as usize) else { return };
        match server.state {
            server::State::Ready | server::State::Leaving(_) => self.backward(entry, bytes),
            server::State::Login(_) => self.server_logs_in(entry, &bytes),
            server::State::Asking => self.server_answered(entry, &bytes),
            server::State::Securing => self.server_was_early(entry),
            server::State::Resolving
            | server::State::Connecting
            | server::State::Moving(_)
            | server::State::Closing => {}
        }
        self.carry_out();
    }

    /// A server's bytes, back to its client.
    fn backward(&mut self, entry: u32, bytes: Buf) {
        let server = &mut self.servers[entry as usize];
        let Some(Some(room)) = self.rooms.get_mut(server.pool.0 as usize) else { return };
        let slot = server.client.map(|client| client.0);
        let client = slot.and_then(|slot| self.clients.get_mut(slot as usize));
        // One that is not let in yet hears nothing.
        let client = client.filter(|client| !client.proving);
        let conn = client.as_ref().map(|client| client.conn);
        if server.replica.is_some() {
            if let Some(conn) = conn {
                self.driver.send(conn, bytes);
            }
            return slot.into_iter().for_each(|slot| self.regulate(slot));
        }
        room.counters.bytes_sent += bytes.len() as u64;
        let heard = session::from_server(
            &mut server.side,
            client.map(|client| &mut client.side),
            &mut self.statements,
            &room.rules,
            &bytes,
            &mut self.flow,
        );
        let notices = mem::take(&mut self.flow.notices);
        let to_server = server.conn;
        match conn {
            Some(conn) => self.pass_on(conn, to_server, bytes, Towards::Client),
            None => self.flow.clear(),
        }
        let heard = match heard {
            Ok(heard) => heard,
            Err(fault) => return self.server_broke(entry, &fault),
        };
        if !notices.is_empty() {
            self.noticed(entry, notices);
        }
        self.count(entry, slot);
        self.count_refusals(slot);
        self.report(slot);
        if !self.flow.asides.is_empty() {
            self.attend_asides(self.servers[entry as usize].pool);
        }
        match self.servers[entry as usize].own {
            Some(Own::Set) if heard.fatal => {
                self.flow.owned.clear();
                if self.serve_elsewhere(entry) {
                    return;
                }
            }
            Some(Own::Probe) if heard.fatal => {
                self.flow.owned.clear();
                self.servers[entry as usize].said_why = heard.told;
                return self.server_dies(entry, "server conn crashed?");
            }
            _ => {}
        }
        if !self.flow.owned.is_empty() {
            for Owned { kind, error, found, rows } in mem::take(&mut self.flow.owned) {
                match found {
                    Some(found) => self.looked_up(entry, error.as_deref(), &found),
                    None if kind == Own::Probe => self.probed(entry, error.as_deref(), &rows),
                    None => self.own_done(entry, kind, error.as_deref()),
                }
            }
        }
        self.heard(entry, slot, heard);
    }

    fn heard(&mut self, entry: u32, slot: Option<u32>, heard: Heard) {
        if heard.left_open {
            return self
                .server_dies(entry, "transaction blocks not allowed in statement pooling mode");
        }
        if heard.late {
            return self.try_another(entry);
        }
        if heard.fatal && !planted::is("fatal-ignored") {
            if self.servers[entry as usize].side.is_ahead() && self.serve_elsewhere(entry) {
                return;
            }
            self.servers[entry as usize].said_why = heard.told;
            return self.server_dies(entry, "server conn crashed?");
        }
        let Some(slot) = slot else {
            let server = self.servers.get_mut(entry as usize);
            if server.is_some_and(|server| server.side.is_spoilt()) {
                self.server_dies(entry, "server conn crashed?");
            }
            return;
        };
        if heard.terminate
            && let Some(client) = self.clients.get_mut(slot as usize)
        {
            client.leaving = true;
        }
        // It may be gone, or linked anew, by what our own queries brought about.
        let linked =
            |client: &Client| matches!(client.state, State::Linked(server) if server.0 == entry);
        if self.clients.get(slot as usize).is_some_and(linked) {
            self.settle_server(slot, entry);
            self.go_on_with_held(slot, entry);
            self.regulate(slot);
        }
    }

    /// What a client said while the relay waited for an answer goes on now.
    fn go_on_with_held(&mut self, slot: u32, entry: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let linked = matches!(client.state, State::Linked(server) if server.0 == entry);
        let setting = self.servers.get(entry as usize).is_none_or(server::Server::is_ours);
        if linked && !setting && !client.held.is_empty() && !client.side.is_held() {
            let held = mem::take(&mut client.held);
            self.forward(slot, entry, held.into());
        }
    }

    /// Add what the relay counted to the statistics.
    fn count(&mut self, entry: u32, slot: Option<u32>) {
        let counted = mem::take(&mut self.flow.counted);
        if counted == Counted::default() {
            return;
        }
        let now = self.now;
        let server = &mut self.servers[entry as usize];
        let Some(Some(room)) = self.rooms.get_mut(server.pool.0 as usize) else { return };
        let counters = &mut room.counters;
        counters.query_count += counted.queries;
        counters.xact_count += counted.transactions;
        counters.client_parse_count += counted.client_parses;
        counters.server_parse_count += counted.server_parses;
        counters.bind_count += counted.binds;
        if counted.queries > 0 {
            counters.query_time_us += micros(now, server.since);
            // The idle time of a transaction begins with its answer.
            server.since = now;
        }
        if counted.transactions > 0
            && let Some(client) = slot.and_then(|slot| self.clients.get_mut(slot as usize))
        {
            counters.xact_time_us += micros(now, client.began);
            client.began = now;
        }
    }

    /// After every exchange of a linked pair: has the server done its part, and does it go back?
    fn settle_server(&mut self, slot: u32, entry: u32) {
        let client = &self.clients[slot as usize];
        let server = &self.servers[entry as usize];
        if server.own.is_some() || !client.held.is_empty() {
            return;
        }
        let done = server.side.is_done(&client.side);
        if client.leaving && (done || server.side.awaits_client()) {
            return self.client_leaves(slot, Why::CloseRequest);
        }
        let shares = self.room(client.pool).is_some_and(|room| room.mode() != Mode::Session);
        if done && shares {
            self.part(slot, entry);
        }
    }

    pub(crate) fn unlink(&mut self, slot: u32, entry: u32) {
        self.keep_ear(slot);
        self.keep_home(slot, entry);
        self.servers[entry as usize].stays = false;
        self.unpin(entry);
        self.let_go_of(slot, entry);
        let client = &mut self.clients[slot as usize];
        client.state = State::Idle;
        client.since = self.now;
        let server = &mut self.servers[entry as usize];
        server.client = None;
        if !server.reading
            && !self.standing.suspended
            && !planted::is("paused-for-ever")
            && let Some(conn) = server.conn
        {
            // It was held up by a client that is slow; its bytes are in that client's queue now.
            server.reading = true;
            self.driver.resume(conn);
        }
    }

    /// A server has done all it was asked to: clean it where that is wanted, and release it.
    pub(crate) fn give_back(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        server.side.trail.let_go();
        if server.side.is_spoilt() {
            return self.server_dies(entry, "unclean server");
        }
        if self.cannot_be_cleaned(entry) {
            return self.server_dies(entry, "unclean server");
        }
        match self.reset_of(entry) {
            Some(query) => {
                self.free_server(entry);
                self.run_own(entry, Own::Reset, query.as_bytes());
            }
            None => self.release(entry),
        }
    }

    /// A client goes that had `entry`. If the server is clean it is kept; a transaction, a query
    /// or half a message that is left behind dies with it.
    pub(crate) fn server_left(&mut self, entry: u32, slot: u32, why: &Why) {
        self.unpin(entry);
        if !self.servers.contains(entry as usize) {
            return;
        }
        self.uncouple(slot, entry);
        if self.servers[entry as usize].replica.is_some() {
            return self.server_dies(entry, "client disconnect");
        }
        self.ear_cut(entry);
        let server = &mut self.servers[entry as usize];
        let resumed = !mem::replace(&mut server.reading, true);
        if resumed && let Some(conn) = server.conn {
            self.driver.resume(conn);
        }
        let client = &self.clients[slot as usize];
        if self.servers[entry as usize].side.is_free(&client.side)
            || planted::is("transaction-left-behind")
        {
            return self.give_back(entry);
        }
        let server = &self.servers[entry as usize];
        if server.own == Some(Own::Probe)
            && client.side.is_between()
            && !server.side.is_torn()
            && !server.side.is_spoilt()
        {
            // It goes on by itself once it has answered.
            return self.free_server(entry);
        }
        let reason = match why {
            Why::Text(text) => text.clone(),
            _ => "unclean server".into(),
        };
        self.server_dies(entry, &reason);
    }

    /// The server of `slot` is gone; so its session is.
    pub(crate) fn client_lost_server(&mut self, slot: u32, reason: &str, said: bool) {
        if let Some(inquiry) = inquiry::index(slot) {
            return self.inquiry_lost_server(inquiry);
        }
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if matches!(client.state, State::Closing) {
            return;
        }
        // The server has been told to the pool already.
        client.state = State::Idle;
        if client.leaving {
            return self.client_leaves(slot, Why::CloseRequest);
        }
        // Where the server has said itself why it goes, a second error would only confuse.
        let reason = reason.to_owned().into();
        let why = if said { Why::Told(reason) } else { Why::Text(reason) };
        self.client_leaves(slot, why);
    }

    /// The server has the client's settings: what it said may follow.
    pub(crate) fn vars_set(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let Some(client) = server.client else { return };
        let Some(known) = self.clients.get(client.0 as usize) else { return };
        server.side.trail.took(&known.side);
        if known.proving {
            return self.settings_taken(client.0, entry);
        }
        if self.ear_returns(client.0, entry) {
            return;
        }
        self.send_held(client.0, entry);
    }

    fn client_broke(&mut self, slot: u32, fault: &Fault) {
        self.client_leaves(slot, Why::Text(fault.to_string().into()));
    }

    fn server_broke(&mut self, entry: u32, fault: &Fault) {
        let text = fault.to_string();
        if fault.is_servers() {
            return self.server_dies(entry, &text);
        }
        // Bytes that the client had sent earlier turned out bad only now.
        match self.servers.get(entry as usize).and_then(|server| server.client) {
            Some(client) => self.client_broke(client.0, fault),
            None => self.server_dies(entry, &text),
        }
    }

    /// Carry out what the relay said to send. The buffer itself goes on where all of it is passed.
    fn pass_on(&mut self, client: Conn, server: Option<Conn>, bytes: Buf, towards: Towards) {
        let Self { flow, driver, .. } = self;
        let (main, main_conn, other, other_conn) = match (towards, server) {
            (Towards::Server, Some(server)) => (&flow.to_server, server, &flow.to_client, client),
            (Towards::Client, Some(server)) => (&flow.to_client, client, &flow.to_server, server),
            (_, None) => return,
        };
        write_all(driver, other_conn, other, &bytes);
        if main.is_whole(bytes.len()) && (bytes.len() > SPARE_MAX || bytes.is_received()) {
            driver.send(main_conn, bytes);
        } else {
            write_all(driver, main_conn, main, &bytes);
            self.keep_spare(bytes);
        }
    }

    /// Read from whom we can pass on; let the others wait. Memory stays bounded in both directions,
    /// and neither direction waits for the other.
    pub(crate) fn regulate(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        if matches!(client.state, State::Closing) {
            return;
        }
        let high = self.high_water;
        let entry = match client.state {
            State::Linked(server) => Some(server.0),
            _ => None,
        };
        let client_full = self.driver.unsent(client.conn) > high;
        let server = entry.and_then(|entry| self.servers.get_mut(entry as usize));
        let server_full = server
            .as_ref()
            .and_then(|server| server.conn)
            .is_some_and(|conn| self.driver.unsent(conn) > high);
        let suspended = self.standing.suspended && !client.state.has_to_do_with_the_console();
        let full_desk = matches!(&client.state, State::Console(desk) if desk.is_full());
        let held = client.held.len() > HELD_MAX || client.side.is_held() || full_desk;
        // A client that does not take its answers is not read either: it could go on asking for
        // ever. While its server still owes it something it is, or both could wait for each other.
        let slow = client_full
            && server.as_ref().is_none_or(|server| server.replica.is_none() && !server.side.owes());
        let read = !(server_full || held || slow || client.leaving || suspended)
            || planted::is("clients-never-paused");
        set_reading(&mut self.driver, Some(client.conn), &mut client.reading, read);
        if let Some(server) = server {
            let read =
                !(client_full || self.standing.suspended) || planted::is("servers-never-paused");
            set_reading(&mut self.driver, server.conn, &mut server.reading, read);
        }
    }

    pub(crate) fn regulate_all(&mut self) {
        let slots: Vec<u32> = self.clients.iter().map(|(slot, _)| crate::slot(slot)).collect();
        for slot in slots {
            self.regulate(slot);
        }
        let suspended = self.standing.suspended;
        for (_, server) in &mut self.servers {
            let unused = server.client.is_none_or(|client| client == crate::ears::HUB);
            if unused && matches!(server.state, server::State::Ready) {
                set_reading(&mut self.driver, server.conn, &mut server.reading, !suspended);
            }
        }
    }

    pub(crate) fn client_drained(&mut self, slot: u32) {
        match self.clients.get(slot as usize).map(|client| &client.state) {
            Some(State::Console(_)) => self.admin_drained(slot),
            _ => self.regulate(slot),
        }
    }

    pub(crate) fn server_drained(&mut self, entry: u32) {
        if let Some(client) = self.servers.get(entry as usize).and_then(|server| server.client) {
            self.regulate(client.0);
        }
    }

    pub(crate) fn send_to_client(&mut self, slot: u32, bytes: &[u8]) {
        if let Some(client) = self.clients.get(slot as usize)
            && !bytes.is_empty()
        {
            self.driver.write(client.conn, bytes);
        }
    }

    pub(crate) fn send_to_server(&mut self, entry: u32, bytes: &[u8]) {
        if let Some(conn) = self.servers.get(entry as usize).and_then(|server| server.conn)
            && !bytes.is_empty()
        {
            self.driver.write(conn, bytes);
        }
    }
}

/// Which way the input of the relay was going.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Towards {
    Server,
    Client,
}

fn write_all<D: Driver>(driver: &mut D, conn: Conn, pieces: &Pieces, input: &[u8]) {
    for run in pieces.iter(input) {
        driver.write(conn, run);
    }
}

fn set_reading<D: Driver>(driver: &mut D, conn: Option<Conn>, reading: &mut bool, read: bool) {
    let Some(conn) = conn else { return };
    if *reading != read {
        *reading = read;
        if read {
            driver.resume(conn);
        } else {
            driver.pause(conn);
        }
    }
}

fn micros(now: Instant, since: Instant) -> u64 {
    u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX)
}
