//! What the console, a signal or a reload asks of every worker, and each doing its part.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use admin::{PauseState, Refusal, View};
use config::Changed;
use io::Driver;
use pool::{Instant, PoolId};

use crate::client::State;
use crate::end::Why;
use crate::log::Level;
use crate::mail::{Answer, Ask};
use crate::room::Room;
use crate::site::Site;
use crate::worker::Worker;
use crate::world::{Errand, World};

/// One order. Each worker carries it out for its own part, and answers when it is done.
#[derive(Clone)]
pub enum Order {
    /// Send what this view needs.
    Facts(View),
    /// Stop giving servers; done when none is in use. `None`: all databases.
    Pause(Scope),
    Resume(Scope),
    /// Stop all reading; done when everything queued is out.
    Suspend,
    Disable(Arc<str>),
    Enable(Arc<str>),
    /// Servers of an older epoch are replaced as they come free.
    Reconnect(Scope, u32),
    /// Drop clients and servers, and leave the database paused.
    Kill(Scope),
    KillClient(u64),
    /// Begin SHOW SESSION_REPORT anew.
    ForgetReport,
    /// Done when every obsolete server is gone.
    WaitClose(Scope),
    /// A new configuration; servers of what changed are obsolete.
    Site(Arc<Site>),
    /// Go, but not yet.
    Shutdown(Shutdown),
    /// Say that you are awake, and what you have.
    RollCall,
}

/// A database, or all of them.
pub type Scope = Option<Arc<str>>;

/// How to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shutdown {
    /// Now.
    Immediate,
    /// When every client has left.
    WaitForClients,
    /// When every server is free.
    WaitForServers,
}

/// What was ordered and holds until another order ends it.
#[derive(Default)]
pub(crate) struct Standing {
    pub(crate) all_paused: bool,
    pub(crate) suspended: bool,
    /// SUSPEND is under way since then; what is not flushed in time is closed.
    flushing_since: Option<Instant>,
    pub(crate) databases: BTreeMap<Arc<str>, Marks>,
    pub(crate) shutdown: Option<Shutdown>,
    /// This worker has nothing more to wait for.
    pub(crate) finished: bool,
    /// Orders that are not done yet, and who waits.
    waiting: Vec<(Until, Option<Ask>)>,
}

/// What was said of one database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    pub(crate) paused: bool,
    pub(crate) disabled: bool,
}

/// What an order waits for.
enum Until {
    Quiet(Scope),
    Flushed,
    Closed(Scope),
}

impl Standing {
    pub(crate) fn marks(&self, database: &str) -> Marks {
        self.databases.get(database).copied().unwrap_or_default()
    }

    pub(crate) fn pauses(&self, database: &str) -> bool {
        self.all_paused || self.marks(database).paused
    }

    pub(crate) fn any_paused(&self) -> bool {
        self.all_paused || self.databases.values().any(|marks| marks.paused)
    }

    pub(crate) fn state(&self) -> PauseState {
        if self.suspended {
            PauseState::Suspended
        } else if self.all_paused {
            PauseState::Paused
        } else {
            PauseState::Active
        }
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    pub(crate) fn ordered(&mut self, order: Order, ask: Option<Ask>) {
        match order {
            Order::Facts(view) => {
                let facts = Box::new(self.facts(view));
                return self.answer(ask, Answer::Facts(facts));
            }
            Order::Pause(scope) => {
                self.pause(&scope);
                return self.wait_until(Until::Quiet(scope), ask);
            }
            Order::Resume(scope) => self.resume(&scope),
            Order::Suspend => {
                self.standing.suspended = true;
                self.standing.flushing_since = Some(self.now);
                self.regulate_all();
                return self.wait_until(Until::Flushed, ask);
            }
            Order::Disable(name) => self.marks_mut(&name).disabled = true,
            Order::Enable(name) => self.marks_mut(&name).disabled = false,
            Order::Reconnect(scope, epoch) => self.reconnect(&scope, epoch, "obsolete connection"),
            Order::Kill(scope) => self.kill(&scope),
            Order::KillClient(id) => {
                let found = self.kill_client(id, ask);
                return self.answer(ask, Answer::Found(found));
            }
            Order::ForgetReport => self.forget_report(),
            Order::WaitClose(scope) => return self.wait_until(Until::Closed(scope), ask),
            Order::Site(site) => self.move_over(site),
            Order::Shutdown(how) => self.shut_down(how),
            Order::RollCall => return self.be_present(),
        }
        self.answer(ask, Answer::Done);
    }

    fn wait_until(&mut self, until: Until, ask: Option<Ask>) {
        self.standing.waiting.push((until, ask));
        self.look_at_orders();
    }

    /// Answer the orders that are done by now, and finish if nothing is left to wait for.
    pub(crate) fn look_at_orders(&mut self) {
        if !self.standing.waiting.is_empty() {
            for (until, ask) in mem::take(&mut self.standing.waiting) {
                if self.is_done(&until) {
                    self.answer(ask, Answer::Done);
                } else {
                    self.standing.waiting.push((until, ask));
                }
            }
        }
        if let Some(how) = self.standing.shutdown
            && !self.standing.finished
            && self.may_go(how)
        {
            self.standing.finished = true;
            self.world.errand(Errand::Finished { worker: self.me });
        }
    }

    /// `suspend_timeout`: whoever does not take its bytes by then is closed.
    pub(crate) fn tick_suspend(&mut self) {
        let limit = self.site.config.settings.suspend_timeout;
        let late = |since: Instant| !limit.is_zero() && since.after(limit) <= self.now;
        if !self.standing.flushing_since.is_some_and(late) {
            return;
        }
        self.standing.flushing_since = None;
        let unsent = |conn| self.driver.unsent(conn) > 0;
        let clients = self.clients.iter().filter(|(_, client)| unsent(client.conn));
        let clients: Vec<u32> = clients.map(|(slot, _)| crate::slot(slot)).collect();
        let servers = self.servers.iter().filter(|(_, s)| s.conn.is_some_and(unsent));
        let servers: Vec<u32> = servers.map(|(entry, _)| crate::slot(entry)).collect();
        for slot in clients {
            let conn = self.clients[slot as usize].conn;
            self.client_leaves(slot, Why::text("suspend_timeout"));
            self.driver.abort(conn);
        }
        for entry in servers {
            self.server_dies(entry, "suspend_timeout");
        }
    }

    fn is_done(&self, until: &Until) -> bool {
        match until {
            Until::Quiet(scope) => self
                .rooms_in(scope)
                .iter()
                .all(|id| self.room(*id).is_none_or(|r| r.pool.is_quiet())),
            Until::Flushed => {
                let unsent = |conn| self.driver.unsent(conn) > 0;
                !self.clients.iter().any(|(_, client)| unsent(client.conn))
                    && !self.servers.iter().any(|(_, server)| server.conn.is_some_and(unsent))
            }
            Until::Closed(scope) => !self.servers.iter().any(|(slot, server)| {
                let room = self.room(server.pool);
                let id = pool::ServerId(crate::slot(slot));
                room.is_some_and(|room| {
                    scope.as_ref().is_none_or(|name| *name == room.name)
                        && room.pool.is_obsolete(id)
                })
            }),
        }
    }

    fn may_go(&self, how: Shutdown) -> bool {
        // Others may still be coming in: through the door, or by mail.
        if how != Shutdown::Immediate
            && !(self.commons.doors_are_shut() && self.commons.load(self.me) == self.clients.len())
        {
            return false;
        }
        match how {
            Shutdown::Immediate => true,
            Shutdown::WaitForClients => {
                !self.clients.iter().any(|(_, client)| !matches!(client.state, State::Console(_)))
            }
            Shutdown::WaitForServers => {
                self.rooms.iter().flatten().all(|room| room.pool.is_quiet())
            }
        }
    }

    fn be_present(&mut self) {
        let is_guest = |client: &crate::client::Client| !matches!(client.state, State::Console(_));
        let clients = self.clients.iter().filter(|(_, client)| is_guest(client)).count();
        let rooms = self.rooms.iter().flatten();
        let servers = rooms.map(|room| room.pool.at_work()).sum();
        let clients = u32::try_from(clients).unwrap_or(u32::MAX);
        self.world.errand(Errand::Present { worker: self.me, clients, servers });
    }

    fn marks_mut(&mut self, name: &Arc<str>) -> &mut Marks {
        self.standing.databases.entry(name.clone()).or_default()
    }

    /// This worker's pools of a database, or all of them.
    pub(crate) fn rooms_in(&self, scope: &Scope) -> Vec<PoolId> {
        let within = |name: &Arc<str>| scope.as_ref().is_none_or(|wanted| wanted == name);
        self.rooms
            .iter()
            .flatten()
            .filter(|room| within(&room.name))
            .map(|room| room.pool.id())
            .collect()
    }

    fn pause(&mut self, scope: &Scope) {
        match scope {
            None => self.standing.all_paused = true,
            Some(name) => self.marks_mut(name).paused = true,
        }
        let now = self.now;
        let rooms = self.rooms_in(scope);
        self.end_hubs(&rooms, "pause mode");
        for id in rooms {
            self.with_pool(id, |pool, out| pool.pause(now, out));
        }
        self.carry_out();
    }

    fn resume(&mut self, scope: &Scope) {
        // The way out leads through a PAUSE of everything, and nobody turns back.
        if self.standing.shutdown == Some(Shutdown::WaitForServers) {
            return;
        }
        match scope {
            // What was paused by its name is resumed by its name.
            None => self.standing.all_paused = false,
            Some(name) => self.marks_mut(name).paused = false,
        }
        self.end_pauses(scope);
        self.standing.flushing_since = None;
        if mem::replace(&mut self.standing.suspended, false) {
            self.regulate_all();
            self.unpark();
        }
        let now = self.now;
        for id in self.rooms_in(scope) {
            if self.room(id).is_none_or(|room| !self.standing.pauses(&room.name)) {
                self.forgive(id);
                self.with_pool(id, |pool, out| pool.resume(now, out));
            }
        }
        self.carry_out();
    }

    /// Whoever still waits for a PAUSE that is over now is told so.
    fn end_pauses(&mut self, resumed: &Scope) {
        for (until, ask) in mem::take(&mut self.standing.waiting) {
            match &until {
                Until::Quiet(scope) if scope == resumed => {
                    self.answer(ask, Answer::Failed(Refusal::Canceled));
                }
                _ => self.standing.waiting.push((until, ask)),
            }
        }
    }

    fn reconnect(&mut self, scope: &Scope, epoch: u32, reason: &'static str) {
        let now = self.now;
        for id in self.rooms_in(scope) {
            if let Some(room) = self.room_mut(id) {
                room.obsolete_because = reason;
            }
            self.forgive(id);
            self.with_pool(id, |pool, out| pool.reconnect(epoch, now, out));
        }
        let rooms = self.rooms_in(scope);
        self.end_obsolete_hubs(&rooms, reason);
        self.carry_out();
    }

    fn forgive(&mut self, id: PoolId) {
        let mut calls = Vec::new();
        self.commons.bank().forgive(id, &mut calls);
        self.deliver(calls);
    }

    fn kill(&mut self, scope: &Scope) {
        self.pause(scope);
        let rooms = self.rooms_in(scope);
        let clients = self.clients.iter().filter(|(_, client)| rooms.contains(&client.pool));
        let clients: Vec<u32> = clients.map(|(slot, _)| crate::slot(slot)).collect();
        for slot in clients {
            self.client_leaves(slot, Why::text("admin forced disconnect"));
        }
        let servers = self.servers.iter().filter(|(_, server)| rooms.contains(&server.pool));
        let servers: Vec<u32> = servers.map(|(slot, _)| crate::slot(slot)).collect();
        for slot in servers {
            self.server_dies(slot, "admin forced disconnect");
        }
        self.carry_out();
    }

    fn kill_client(&mut self, id: u64, ask: Option<Ask>) -> bool {
        let found = self.clients.iter().find(|(_, client)| client.card.id == id);
        let Some(slot) = found.map(|(slot, _)| crate::slot(slot)) else { return false };
        // Killing oneself must still be answered: the desk says so first and goes then.
        match &mut self.clients[slot as usize].state {
            State::Console(desk) if ask.is_some_and(|ask| desk.asks(ask, self.me)) => {
                desk.killed = true;
            }
            _ => {
                self.client_leaves(slot, Why::text("admin forced disconnect"));
                self.carry_out();
            }
        }
        true
    }

    fn shut_down(&mut self, how: Shutdown) {
        self.standing.shutdown = Some(how);
        if how != Shutdown::Immediate {
            self.tune();
            self.close_doors();
        }
        if how == Shutdown::WaitForServers {
            self.pause(&None);
            self.turn_away_the_line();
        }
        self.look_at_orders();
    }

    /// WAIT_FOR_SERVERS: whoever is in line, or comes to it, gets no server any more.
    fn turn_away_the_line(&mut self) {
        let waiting =
            self.clients.iter().filter(|(_, client)| matches!(client.state, State::Waiting(_)));
        let waiting: Vec<u32> = waiting.map(|(slot, _)| crate::slot(slot)).collect();
        for slot in waiting {
            self.client_leaves(slot, Why::text("server shutting down"));
        }
        self.carry_out();
    }

    /// A RELOAD or a SET: live by the new configuration.
    fn move_over(&mut self, site: Arc<Site>) {
        self.site = site.clone();
        self.make_room();
        self.tune();
        self.close_removed_databases(&site);
        let obsolete: Vec<Arc<str>> = self.obsolete_databases(&site);
        // Whoever asks for one of them next gets it made anew.
        self.autodbs.clear();
        let now = self.now;
        let ids: Vec<PoolId> = self.rooms_in(&None);
        for id in ids {
            self.furnish(id);
            let Some(room) = self.room(id) else { continue };
            let limits = crate::room::limits(&self.site.config, &room.database, &room.user);
            let bank = crate::room::bank_limits(&self.site.config, &room.database, &room.user);
            let mut calls = Vec::new();
            self.commons.bank().set_limits(id, bank, &mut calls);
            self.deliver(calls);
            self.with_pool(id, |pool, out| pool.set_limits(limits, now, out));
        }
        for name in obsolete {
            let epoch = self.commons.obsolete(&name, site.generation);
            self.reconnect(&Some(name), epoch, "database configuration changed");
        }
        self.open_forced_rooms();
        self.forget_names();
        self.carry_out();
    }

    /// Databases that are no more: their clients go.
    fn close_removed_databases(&mut self, site: &Site) {
        let gone = |name: &str| {
            site.diff.databases_removed.iter().any(|removed| removed == name)
                && site.config.database(name).is_none()
                || (!site.config.databases.contains_key(name) && site.config.autodb.is_none())
        };
        let rooms: Vec<PoolId> =
            self.rooms.iter().flatten().filter(|r| gone(&r.name)).map(|r| r.pool.id()).collect();
        for id in rooms {
            let clients = self.clients.iter().filter(|(_, client)| client.pool == id);
            let clients: Vec<u32> = clients.map(|(slot, _)| crate::slot(slot)).collect();
            for slot in clients {
                self.client_leaves(slot, Why::text("database removed"));
            }
            let servers = self.servers.iter().filter(|(_, server)| server.pool == id);
            let servers: Vec<u32> = servers.map(|(slot, _)| crate::slot(slot)).collect();
            for slot in servers {
                self.server_dies(slot, "database removed");
            }
        }
        self.carry_out();
    }

    /// Databases whose servers lead to the wrong place now: listed, no longer listed, or changed.
    fn obsolete_databases(&self, site: &Site) -> Vec<Arc<str>> {
        let changed = |room: &Room| {
            let new = site.config.database(&room.name);
            site.diff.server_tls
                || Changed::of(Some(&room.database), new.as_deref()) == Changed::Obsolete
        };
        let rooms = self.rooms.iter().flatten().filter(|room| changed(room));
        let mut names: Vec<Arc<str>> = rooms.map(|room| room.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    pub(crate) fn log(&mut self, level: Level, text: std::fmt::Arguments<'_>) {
        self.world.log().line(level, text);
    }
}
