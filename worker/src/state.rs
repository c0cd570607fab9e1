//! Session state on its way: what a transaction left on its server is found out before the two part,
//! and given to the next server before the client's next transaction.

use std::mem;
use std::sync::Arc;

use io::Driver;
use pool::ServerId;
use session::{Asked, Own, State, Tie, Vars};

use crate::client;
use crate::end::Why;
use crate::log::Level;
use crate::room::Proof;
use crate::welcome::Welcome;
use crate::worker::Worker;
use crate::world::World;

/// What makes a server as new, as far as its process can be made so.
pub(crate) const DISCARD: &str = "DISCARD ALL";

/// What a server says that does not know what it is asked: no such table, function or syntax. No client
/// can bring that about.
const UNKNOWN_TO_IT: [&[u8]; 4] = [b"42P01", b"42883", b"42601", b"0A000"];

/// Start-up settings of one pool that are remembered as having been taken.
const PROVEN_MAX: usize = 1024;

/// What is to follow when a server has its client's settings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Behind {
    Nothing,
    /// What the client said.
    Request,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// A server has done its part for `slot`: they part, unless something ties them, or it is not
    /// known yet whether anything does.
    pub(crate) fn part(&mut self, slot: u32, entry: u32) {
        let (server, client) =
            (&mut self.servers[entry as usize], &mut self.clients[slot as usize]);
        let before = server.side.trail.may_return().then(|| client.side.vars.clone());
        server.side.trail.review(&mut client.side, self.statements.changes());
        if let Some(before) = before {
            self.tell_returned(slot, entry, &before);
        }
        let server = &mut self.servers[entry as usize];
        // A spoilt server is asked as well: what its client left there may go on only there.
        if server.side.trail.is_doubtful() && !planted::is("state-unasked") {
            return self.probe(entry);
        }
        if server.side.trail.ties.is_none() {
            self.unlink(slot, entry);
            self.give_back(entry);
        } else if server.side.trail.only_listens() {
            self.may_go_quiet(slot, entry);
        } else if server.side.trail.only_remembers() && self.pin(slot, entry) {
            self.may_let_go(slot, entry);
        }
    }

    fn probe(&mut self, entry: u32) {
        let (trail, mut query) = (&mut self.servers[entry as usize].side.trail, Vec::new());
        trail.explore(&self.statements);
        trail.ask(&mut query);
        self.run_own(entry, Own::Probe, &query);
    }

    /// The query of ours that waits for cancels to be over.
    pub(crate) fn postponed(&self, entry: u32) -> Option<(Own, Vec<u8>)> {
        let server = &self.servers[entry as usize];
        let query = match server.own? {
            Own::Reset => self.reset_of(entry)?.into_bytes(),
            Own::Probe => {
                let mut query = Vec::new();
                server.side.trail.ask(&mut query);
                query
            }
            // Not on a server that has just worked.
            _ => return None,
        };
        server.own.map(|own| (own, query))
    }

    /// What is to be run on `entry` before it serves somebody else.
    pub(crate) fn reset_of(&self, entry: u32) -> Option<String> {
        let server = &self.servers[entry as usize];
        let unclean = server.side.trail.is_unclean();
        let reset = self.room(server.pool).and_then(|room| room.reset.as_deref());
        match reset.filter(|_| !planted::is("no-reset")) {
            Some(query) => Some(query.to_owned()),
            None => (unclean && !planted::is("ties-left-behind")).then(|| DISCARD.to_owned()),
        }
    }

    /// A server was reset.
    pub(crate) fn was_reset(&mut self, entry: u32) {
        let query = self.reset_of(entry);
        let text = query.as_deref().unwrap_or_default().trim().trim_end_matches(';');
        if text.trim_end().eq_ignore_ascii_case(DISCARD) {
            self.servers[entry as usize].side.trail.discarded();
        }
    }

    /// Parameters of `slot` that were as `before` may be back at what it asked for at login: then it hears of it.
    fn tell_returned(&mut self, slot: u32, entry: u32, before: &Vars) {
        let side = &self.clients[slot as usize].side;
        let mut out = Vec::new();
        if self.servers[entry as usize].side.is_done(side) {
            session::tell(side, before, &mut out);
        }
        if !out.is_empty() {
            self.send_to_client(slot, &out);
        }
    }

    /// A probe was answered.
    pub(crate) fn probed(&mut self, entry: u32, error: Option<&[u8]>, rows: &[Box<[u8]>]) {
        let server = &mut self.servers[entry as usize];
        server.own = None;
        let slot = server.client.map(|client| client.0);
        let client = slot.and_then(|slot| self.clients.get_mut(slot as usize));
        let login = self.rooms.get(server.pool.0 as usize).and_then(Option::as_deref);
        let login = login.map(|room| room.user.clone()).unwrap_or_default();
        let tracked = &self.site.tracked;
        let side = client.map(|client| &mut client.side);
        let before = side.as_ref().and_then(|side| side.state.clone());
        let vars = side.as_ref().map(|side| side.vars.clone());
        if error.is_some() && server.side.trail.asks_of_sequences() {
            server.side.trail.assume();
            return self.probe(entry);
        }
        let timed_out = error.is_some_and(|body| wire::ErrorFields::new(body).code() == b"57014");
        if timed_out && server.side.trail.hurry() {
            return self.probe(entry);
        }
        let code = error.map(|body| wire::ErrorFields::new(body).code());
        let cannot = code.is_none_or(|code| UNKNOWN_TO_IT.contains(&code));
        let trail = &mut server.side.trail;
        let again = match error {
            None => trail.explored(&self.statements, rows),
            Some(_) => trail.stop_exploring(&self.statements, cannot),
        };
        if again {
            return self.probe(entry);
        }
        let known = error.is_none() && server.side.learn(side, rows, tracked, login.as_bytes());
        if !known && cannot {
            // No PostgreSQL, or a proxy that thinks for itself: what cannot be asked is not followed.
            self.stop_following(entry);
        } else if !known {
            server.side.trail.give_up();
            let text = error.map_or_else(Default::default, |body| {
                String::from_utf8_lossy(wire::ErrorFields::new(body).message())
            });
            let text = text.into_owned();
            self.log_server(entry, Level::Warning, format_args!("session probe failed: {text}"));
        }
        if mem::take(&mut self.servers[entry as usize].new) {
            return self.baseline_known(entry);
        }
        let Some(slot) = slot else { return self.give_back(entry) };
        if self.clients[slot as usize].proving {
            return self.was_proven(slot, entry);
        }
        if let Some(vars) = vars {
            self.tell_returned(slot, entry, &vars);
        }
        if self.made_settings(slot, before.as_ref()) {
            return self.refuse_state(slot, Tie::Settings);
        }
        if self.servers[entry as usize].side.trail.ties.is_none() {
            self.unpin(entry);
            let server = &self.servers[entry as usize];
            if !server.side.is_done(&self.clients[slot as usize].side) {
                // It is in the midst of something that the client hears, unasked. By the next answer
                // that is over.
                return self.probe(entry);
            }
            return self.parted(slot, entry);
        }
        if !self.pin(slot, entry) {
            return;
        }
        // A RESET may have led back to what the client asked for at login, and not the server's own.
        self.adapt(slot, entry, Behind::Nothing);
    }

    /// Whether `slot`, whose state was `before`, has settings that it did not begin with, where that is
    /// refused.
    fn made_settings(&self, slot: u32, before: Option<&Arc<State>>) -> bool {
        let Some(client) = self.clients.get(slot as usize) else { return false };
        let refuses = |room: &crate::room::Room| room.rules.refused.has(Tie::Settings);
        let state = client.side.state.as_ref();
        if !self.room(client.pool).is_some_and(refuses) || state == before {
            return false;
        }
        let asked = client.side.asked.as_ref().map(|asked| &asked.state);
        state.is_some_and(|state| asked != Some(&**state))
            && state != self.baseline(client.pool).as_ref()
    }

    /// A server died before it was told anything of its client's: the client gets another.
    pub(crate) fn try_another(&mut self, entry: u32) {
        let slot = self.servers[entry as usize].client.take();
        self.server_dies(entry, "server conn crashed?");
        if let Some(slot) = slot {
            self.spare(slot.0);
        }
    }

    /// The server of `slot` is gone, and it is none the worse for it.
    pub(crate) fn spare(&mut self, slot: u32) {
        let now = self.now;
        let _gone = self.links.clear(slot);
        if !self.clients.contains(slot as usize) {
            return;
        }
        self.keep_ear(slot);
        let client = &mut self.clients[slot as usize];
        client.since = now;
        let waiting_for =
            if client.proving { client::WaitingFor::Welcome } else { client::WaitingFor::Query };
        client.proving = false;
        if waiting_for == client::WaitingFor::Query && client.held.is_empty() {
            // It was taken out of the line meanwhile, by a cancel; or it has had its answer.
            client.state = client::State::Idle;
            if client.leaving {
                return self.client_leaves(slot, Why::CloseRequest);
            }
            // It may not have been read from, for that server's sake.
            return self.regulate(slot);
        }
        client.state = client::State::Waiting(waiting_for);
        self.stand_in_line(slot);
        self.regulate(slot);
    }

    /// Whether what clients leave on `entry` is looked at.
    pub(crate) fn follows(&self, entry: u32) -> bool {
        let pool = self.servers[entry as usize].pool;
        self.room(pool).is_some_and(|room| room.rules.watches())
    }

    /// Whether `entry` can never be as new again.
    pub(crate) fn cannot_be_cleaned(&self, entry: u32) -> bool {
        let server = &self.servers[entry as usize];
        let trail = &server.side.trail;
        // Its connect_query would have to be run again.
        let prepared = trail.is_unclean()
            && self.room(server.pool).is_some_and(|room| room.database.connect_query.is_some());
        trail.is_for_life() || prepared
    }

    /// What a `connect_query` made of a new server is what its clients begin with.
    pub(crate) fn ask_baseline(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        server.new = true;
        server.side.trail.doubt();
        self.probe(entry);
    }

    fn baseline_known(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        // What ties every client to its server ties none to this one.
        server.side.trail.ties = session::Ties::default();
        let (pool, state) = (server.pool, server.side.trail.state.clone());
        self.commons.memory().baselines.insert(pool, state);
        self.server_is_ready(entry);
    }

    /// What a client begins with: what its pool's servers are made to be.
    pub(crate) fn baseline(&self, pool: pool::PoolId) -> Option<Arc<State>> {
        self.room(pool)?.database.connect_query.as_ref()?;
        self.commons.memory().baselines.get(&pool).cloned().flatten()
    }

    fn stop_following(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let before = mem::take(&mut server.side.trail);
        server.side.trail.habit = before.habit;
        let pool = server.pool;
        let Some(room) = self.room_mut(pool) else { return };
        if mem::replace(&mut room.rules.follows, false) {
            let name = room.name.clone();
            self.log(
                Level::Warning,
                format_args!(
                    "servers of {name} do not say what their sessions are set to: session state \
                     stays behind there"
                ),
            );
        }
    }

    /// Tell `entry` its client's settings so that what the client said may follow at once. `false`: that has to wait.
    fn goes_ahead(&mut self, slot: u32, entry: u32, query: &[u8]) -> bool {
        let client = &self.clients[slot as usize];
        let fresh = self.fresh.as_ref().filter(|(fresh, _)| *fresh == slot);
        let bytes = fresh.map_or(&client.held[..], |(_, bytes)| bytes);
        let side = &self.servers[entry as usize].side;
        if client.ear.is_some()
            || bytes.is_empty()
            || !side.may_go_ahead(&client.side, &mut self.statements, bytes)
            || self.is_being_canceled(entry)
        {
            return false;
        }
        let mut flight = self.spare.pop().unwrap_or_default();
        flight.extend_from_slice(bytes);
        let (server, mut out) = (&mut self.servers[entry as usize], Vec::new());
        server.flight = flight;
        server.requests += 1;
        server.side.go_ahead(&client.side, query, &mut out);
        self.send_to_server(entry, &out);
        true
    }

    /// Whether the server of `slot` has to be given its settings first; then that is under way.
    pub(crate) fn adapt(&mut self, slot: u32, entry: u32, behind: Behind) -> bool {
        let client = &mut self.clients[slot as usize];
        let server = &mut self.servers[entry as usize];
        let (mut query, mut out) = (Vec::new(), Vec::new());
        let side = &mut server.side;
        client.side.vars.share(&mut side.vars);
        let missing = side.trail.missing(&client.side);
        let differs = session::adapt(&client.side, &side.vars, &side.trail, &mut query);
        let ahead = differs && missing.is_empty() && behind == Behind::Request;
        if ahead && self.goes_ahead(slot, entry, &query) {
            return false;
        }
        if differs {
            self.run_own(entry, Own::Set, &query);
        }
        if !missing.is_empty() && !self.is_being_canceled(entry) {
            let server = &mut self.servers[entry as usize];
            (server.since, server.own) = (self.now, Some(Own::Set));
            server.side.prepare(missing, &mut out);
            self.send_to_server(entry, &out);
            return true;
        }
        if differs {
            return true;
        }
        let client = &mut self.clients[slot as usize];
        let side = &self.servers[entry as usize].side;
        // Equal ones are shared from now on: the next comparison is of two addresses.
        if !session::is_shared(&client.side, &side.trail) {
            client.side.state.clone_from(&side.trail.state);
        }
        false
    }

    /// Nothing ties them any more. What the client said meanwhile stands in line like anybody's.
    pub(crate) fn parted(&mut self, slot: u32, entry: u32) {
        if self.clients[slot as usize].leaving {
            return self.client_leaves(slot, Why::CloseRequest);
        }
        self.unlink(slot, entry);
        let held = mem::take(&mut self.clients[slot as usize].held);
        self.give_back(entry);
        if !held.is_empty() {
            self.client_said(slot, held.into());
        }
        self.regulate(slot);
    }

    /// A client asked for settings at login that nobody has asked for before: see whether its server
    /// takes them.
    pub(crate) fn prove(&mut self, slot: u32, entry: u32, asked: &Arc<Asked>) {
        let pool = self.clients[slot as usize].pool;
        let welcome = self.room(pool).and_then(|room| room.welcome.clone());
        let client = &mut self.clients[slot as usize];
        client.proving = true;
        client.side.vars = self.servers[entry as usize].side.vars.clone();
        for (name, value) in &asked.vars {
            let value =
                welcome.as_ref().map_or_else(|| value.into(), |said| said.in_full(name, value));
            client.side.vars.set(name.as_bytes(), &value);
        }
        client.side.state = Some(asked.state.clone().shared());
        if !self.adapt(slot, entry, Behind::Nothing) {
            self.was_proven(slot, entry);
        }
    }

    /// The server took them. How it spells them only a probe tells.
    pub(crate) fn settings_taken(&mut self, slot: u32, entry: u32) {
        self.servers[entry as usize].side.trail.doubt();
        debug_assert!(self.clients[slot as usize].proving);
        self.probe(entry);
    }

    fn was_proven(&mut self, slot: u32, entry: u32) {
        let client = &mut self.clients[slot as usize];
        client.proving = false;
        let (asked, state) = (client.side.asked.clone(), client.side.state.clone());
        let pool = client.pool;
        let taken = self.servers[entry as usize].side.vars.clone();
        if let (Some(asked), Some(room)) = (asked, self.room_mut(pool)) {
            if room.proven.len() >= PROVEN_MAX {
                room.proven.clear();
            }
            let asked = without_name(&asked);
            let value = |name: &str| taken.value(name.as_bytes()).map(<[u8]>::to_vec);
            let vars = asked.vars.iter();
            let vars = vars.filter_map(|(name, _)| Some((name.clone(), value(name)?))).collect();
            room.proven.insert(asked, Proof { vars, state });
        }
        self.uncouple(slot, entry);
        self.give_back(entry);
        self.let_in(slot);
    }

    /// The server refused what a client asked for at login: the client hears it as PostgreSQL would
    /// have said it. The server is as it was.
    pub(crate) fn not_proven(&mut self, slot: u32, entry: u32, error: &[u8]) {
        self.uncouple(slot, entry);
        self.clients[slot as usize].state = client::State::Idle;
        self.give_back(entry);
        self.client_leaves(slot, Why::Server(fatal_of(error).into()));
    }

    /// What a client asked for at login, as one value for all who ask for the same.
    pub(crate) fn share_asked(&mut self, asked: Asked) -> Option<Arc<Asked>> {
        (asked != Asked::default()).then(|| self.asked.share(Arc::new(asked)))
    }

    /// Whether the settings that a client asks for are known to be good, and what they then are.
    pub(crate) fn proven(&self, slot: u32, asked: &Asked) -> Option<Proof> {
        let room = self.room(self.clients[slot as usize].pool)?;
        let names = without_name(asked);
        let welcome = room.welcome.as_ref();
        let is_known = |(name, value): &(String, Vec<u8>)| {
            let said = |welcome: &Arc<Welcome>| welcome.vars.value(name.as_bytes()) == Some(value);
            !room.rules.follows || welcome.is_some_and(said)
        };
        if asked.state.is_default() && names.vars.iter().all(is_known) {
            return Some(Proof { vars: names.vars, state: None });
        }
        room.proven.get(&names).cloned()
    }

    /// Give `entry` to the pool, linked to nobody.
    pub(crate) fn free_server(&mut self, entry: u32) {
        let id = self.servers[entry as usize].pool;
        self.with_pool(id, |pool, _| pool.test(ServerId(entry)));
    }
}

/// What of `asked` a server could refuse, or spell in another way.
fn without_name(asked: &Asked) -> Asked {
    let mut asked = asked.clone();
    asked.vars.retain(|(name, _)| name != "application_name");
    asked
}

/// The body of an ERROR, as a FATAL.
pub(crate) fn fatal_of(error: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(error.len());
    for (kind, value) in wire::ErrorFields::new(error) {
        body.push(kind);
        let value = if matches!(kind, b'S' | b'V') { b"FATAL" } else { value };
        body.extend_from_slice(value);
        body.push(0);
    }
    body.push(0);
    body
}
