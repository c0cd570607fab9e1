//! Servers: dialled, logged in to, moved, closed.

use std::sync::Arc;

use io::Driver;
use pool::{ClientId, Failure, PoolId, ServerId, WorkerId};
use session::{ServerSide, Vars};

use crate::ears::Step;
use crate::mail::Mail;
use crate::server::{Replica, Server, Slot, State};
use crate::slot;
use crate::worker::{Role, Worker};
use crate::world::World;

/// A server on its way from one worker to another, with all that is known of it.
pub struct Traveller<S> {
    pub(crate) socket: S,
    pub(crate) server: Server,
    pub(crate) opened_at: pool::Instant,
    pub(crate) epoch: u32,
    pub(crate) name: Arc<str>,
    pub(crate) user: Arc<str>,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// The bank gave a slot in `pool`: open a server for it.
    pub(crate) fn dial(&mut self, pool: PoolId, replica: Option<(ClientId, Box<Replica>)>) {
        let Some(port) = self.room(pool).map(|room| room.database.port) else { return };
        let Some(route) = self.route(pool) else { return };
        let dedicated = replica.is_some();
        let (client, replica) = replica.unzip();
        let server = Server {
            conn: None,
            reading: true,
            pool,
            state: State::Resolving,
            side: ServerSide::new(Vars::new(&self.site.tracked)),
            cancel_behind: false,
            flight: Vec::new(),
            own: None,
            touched: false,
            client,
            since: self.now,
            requests: 0,
            id: self.commons.socket_id(),
            ends: None,
            connected: self.now,
            connected_wall: self.world.wall_us() / 1_000_000,
            pid: 0,
            key: Box::default(),
            address: None,
            slot: Slot::Asked,
            said_why: false,
            pinned: None,
            step: Step::Usual,
            stays: false,
            new: false,
            port,
            route,
            suite: None,
            end_point: None,
            replica,
        };
        let entry = slot(self.servers.insert(server));
        let now = self.now;
        if !dedicated {
            self.with_pool(pool, |pool, _| pool.connecting(ServerId(entry), now));
        }
        self.try_next(entry, "connect failed");
    }

    /// `entry` is of no more use and is cut off; its client, if it has one, hears why.
    pub(crate) fn server_dies(&mut self, entry: u32, reason: &str) {
        let Some(client) = self.forget_server(entry) else { return };
        let server = &self.servers[entry as usize];
        let said = server.said_why || server.is_torn();
        // Its client has had its answer, left nothing that a text would show, and was told nothing.
        let asked = server.own == Some(session::Own::Probe) && server.side.trail.only_learns();
        let spared = asked && !said;
        self.hang_up_on_server(entry, reason, false);
        if let Some(client) = client.filter(|_| spared) {
            self.spare(client.0);
        } else if let Some(client) = client {
            self.client_lost_server(client.0, reason, said);
        }
    }

    /// The pool let go of `entry`: say goodbye and close.
    pub(crate) fn close_server(&mut self, entry: u32, reason: &str) {
        if !self.is_ready(entry) {
            return;
        }
        self.hang_up_on_server(entry, reason, true);
    }

    /// Take `entry` out of its pool and from its client, who is returned. `None`: it is already
    /// going.
    pub(crate) fn forget_server(&mut self, entry: u32) -> Option<Option<ClientId>> {
        self.unpin(entry);
        let server = self.servers.get_mut(entry as usize)?;
        if matches!(server.state, State::Closing) {
            return None;
        }
        let client = server.client.take().filter(|client| *client != crate::ears::HUB);
        let (pool, now) = (server.pool, self.now);
        if server.replica.is_none() {
            self.with_pool(pool, |pool, out| pool.lost(ServerId(entry), now, out));
        }
        if self.servers[entry as usize].step == Step::Hub {
            self.hub_died(entry);
        }
        Some(client)
    }

    fn hang_up_on_server(&mut self, entry: u32, reason: &str, politely: bool) {
        self.log_server_end(entry, reason);
        let server = &mut self.servers[entry as usize];
        let logged_in = matches!(server.state, State::Ready | State::Leaving(_));
        let shaking_hands = matches!(server.state, State::Securing);
        server.state = State::Closing;
        server.since = self.now;
        let Some(conn) = server.conn else {
            return self.server_gone(entry);
        };
        if politely && logged_in {
            let mut goodbye = Vec::with_capacity(5);
            wire::write::client::terminate(&mut goodbye);
            self.driver.write(conn, &goodbye);
            self.driver.finish(conn);
        } else if shaking_hands {
            // The alert says what we did not like.
            self.driver.finish(conn);
        } else {
            self.driver.abort(conn);
        }
    }

    /// The kernel is done with a server's socket: its slot in the bank is free.
    pub(crate) fn server_gone(&mut self, entry: u32) {
        if let Some(server) = self.servers.get_mut(entry as usize)
            && let State::Moving(reason) = server.state
        {
            server.conn = None;
            return self.try_next(entry, reason);
        }
        let Some(server) = self.servers.try_remove(entry as usize) else { return };
        let mut calls = Vec::new();
        match server.slot {
            _ if planted::is("slot-leaks") => return,
            Slot::Open => self.commons.bank().closed(server.pool, self.me, self.now, &mut calls),
            Slot::Asked => self.commons.bank().abandoned(server.pool, self.me, &mut calls),
        }
        self.deliver(calls);
    }

    /// The login of `entry` came to nothing. `error`: the server's own ErrorResponse, if it sent
    /// one; then all who wait in the pool hear it.
    pub(crate) fn login_fails(&mut self, entry: u32, reason: &str, error: Option<Arc<[u8]>>) {
        let server = &mut self.servers[entry as usize];
        let pool = server.pool;
        if server.replica.is_some() {
            let client = server.client.take();
            self.server_dies(entry, reason);
            return client.into_iter().for_each(|client| self.replica_lost(client, error.clone()));
        }
        let failure = match &error {
            Some(body) => {
                let transient = wire::ErrorFields::new(body).code() == b"57P03";
                Failure::Login { transient }
            }
            None => Failure::Connect,
        };
        let text: Arc<[u8]> = error.unwrap_or_else(|| own_error(reason));
        let mut calls = Vec::new();
        self.commons.bank().failed(pool, failure, text, self.now, &mut calls);
        if let Some(Some(room)) = self.rooms.get_mut(pool.0 as usize) {
            room.error_is_news = true;
        }
        self.pass_over(entry);
        // Those in line hear the error before the pool asks for another server and is told that
        // it is an old one.
        self.deliver(calls);
        if self.forget_server(entry).is_some() {
            self.hang_up_on_server(entry, reason, false);
        }
    }

    /// Whether `entry` is logged in, and here to stay. It may have died since the pool ordered
    /// something to be done with it.
    pub(crate) fn is_ready(&self, entry: u32) -> bool {
        let server = self.servers.get(entry as usize);
        server.is_some_and(|server| {
            matches!(server.state, State::Ready) || planted::is("dead-given-out")
        })
    }

    /// Hand `entry` over to worker `to`.
    pub(crate) fn give_server(&mut self, entry: u32, to: WorkerId) {
        if !self.is_ready(entry) {
            return;
        }
        let server = &mut self.servers[entry as usize];
        let Some(conn) = server.conn else { return };
        server.state = State::Leaving(to);
        server.since = self.now;
        self.driver.detach(conn);
    }

    /// The driver let go of a server that is on its way to another worker.
    pub(crate) fn detached(&mut self, conn: io::Conn, socket: D::Socket) {
        let role = self.role(conn);
        self.set_role(conn, Role::Nobody);
        let Role::Server(entry) = role else { return };
        let Some(server) = self.servers.get(entry as usize) else { return };
        let State::Leaving(to) = server.state else {
            // It was given up meanwhile; dropping the socket closes it.
            return self.server_gone(entry);
        };
        let id = server.pool;
        let Some(Some(room)) = self.rooms.get_mut(id.0 as usize) else { return };
        let opened_at = room.pool.opened_at(ServerId(entry));
        let epoch = room.pool.epoch_of(ServerId(entry));
        room.pool.left(ServerId(entry));
        let (name, user) = (room.name.clone(), room.user.clone());
        let server = self.servers.remove(entry as usize);
        self.commons.bank().moved(id, self.me, to);
        let traveller = Box::new(Traveller { socket, server, opened_at, epoch, name, user });
        self.commons.mail(to, Mail::Server(traveller));
    }

    /// A server came from another worker.
    pub(crate) fn server_arrived(&mut self, traveller: Traveller<D::Socket>) {
        let Traveller { socket, mut server, opened_at, epoch, name, user } = traveller;
        let conn = self.driver.adopt(socket);
        server.conn = Some(conn);
        server.state = State::Ready;
        server.reading = true;
        let (pool, flavour) = (server.pool, server.side.flavour());
        let entry = slot(self.servers.insert(server));
        self.set_role(conn, Role::Server(entry));
        self.open_room_of(pool, &name, &user);
        if self.room(pool).is_none() {
            // Its database was removed while it travelled.
            self.hang_up_on_server(entry, "database removed", true);
            return;
        }
        let now = self.now;
        self.with_pool(pool, |pool, out| {
            pool.arrived(ServerId(entry), opened_at, epoch, now, out);
            pool.flavour(ServerId(entry), flavour);
        });
        self.retire_if_astray(entry);
    }
}

/// The body of a FATAL of ours, as the waiting clients get it.
fn own_error(text: &str) -> Arc<[u8]> {
    let mut body = Vec::new();
    wire::write::server::error_response(&mut body, &crate::end::fatal(text.as_bytes()));
    body.get(5..).unwrap_or_default().into()
}
