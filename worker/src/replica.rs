//! Replication clients: each has a server to itself, and every byte passes as it is.

use io::Driver;
use pool::{Answer, ClientId, PoolId, ServerId};
use session::login::Facts;

use crate::client::{Client, State, WaitingFor};
use crate::end::Why;
use crate::server::{Replica, Server};
use crate::slot;
use crate::welcome::Welcome;
use crate::worker::Worker;
use crate::world::World;

impl<D: Driver, W: World> Worker<D, W> {
    /// `slot` wants to replicate: dial a server for it alone, as soon as a slot is free.
    pub(crate) fn replicate(&mut self, slot: u32, facts: &Facts) {
        let client = &mut self.clients[slot as usize];
        let waiting = State::Waiting(WaitingFor::Replica);
        if let State::Login(mut entering) = std::mem::replace(&mut client.state, waiting) {
            client.held = entering.leftover();
        }
        client.card.rare().replica = Some(Box::new(Replica {
            kind: facts.replication,
            parameters: facts.parameters.clone(),
        }));
        self.ask_for_replica(slot);
    }

    /// The bank called: the first in `pool` who waits for a server of its own asks again. Whether
    /// somebody did.
    pub(crate) fn serve_replica_of(&mut self, pool: PoolId) -> bool {
        let waits = |client: &Client| client.pool == pool && waits_for_replica(client);
        let waiting = self.clients.iter().filter(|(_, client)| waits(client));
        let first = waiting.min_by_key(|(_, client)| client.since).map(|(index, _)| slot(index));
        first.is_some_and(|first| self.ask_for_replica(first))
    }

    /// Whether it was given a slot.
    fn ask_for_replica(&mut self, slot: u32) -> bool {
        let client = &self.clients[slot as usize];
        let (pool, waited) = (client.pool, self.now.since(client.since));
        if self.room(pool).is_none_or(|room| room.pool.is_paused()) {
            return false;
        }
        let mut calls = Vec::new();
        let answer = self.commons.bank().ask_dedicated(pool, self.me, waited, self.now, &mut calls);
        self.deliver(calls);
        if let Answer::Open { .. } = answer
            && let Some(rare) = &mut self.clients[slot as usize].card.rare
            && let Some(replica) = rare.replica.take()
        {
            let client = ClientId(slot);
            self.dial(pool, Some((client, replica)));
            return true;
        }
        false
    }

    /// Those who wait for a server of their own ask again.
    pub(crate) fn tick_replicas(&mut self) {
        let waiting = self.clients.iter().filter(|(_, client)| waits_for_replica(client));
        let waiting: Vec<u32> = waiting.map(|(index, _)| slot(index)).collect();
        for index in waiting {
            self.ask_for_replica(index);
        }
    }

    /// A replication client left before its server was there: nobody else is to have that.
    pub(crate) fn replica_unwanted(&mut self, slot: u32) {
        let its =
            |server: &Server| server.client == Some(ClientId(slot)) && server.replica.is_some();
        let found = self.servers.iter().find(|(_, server)| its(server));
        if let Some((entry, _)) = found {
            let entry = crate::slot(entry);
            self.servers[entry as usize].client = None;
            self.server_dies(entry, "client disconnect");
        }
    }

    /// A replication client's server is logged in: from here on, bytes just pass.
    pub(crate) fn replica_ready(&mut self, entry: u32, welcome: &Welcome, leftover: &[u8]) {
        let Some(client) = self.servers[entry as usize].client else {
            return self.server_dies(entry, "client disconnect");
        };
        let mut out = Vec::new();
        wire::write::server::authentication_ok(&mut out);
        welcome.write_all(&mut out);
        let card = &mut self.clients[client.0 as usize].card;
        wire::write::server::backend_key_data(&mut out, card.key.pid, card.key.secret());
        wire::write::server::ready_for_query(&mut out, wire::Status::Idle);
        out.extend_from_slice(leftover);
        self.send_to_client(client.0, &out);
        let client = &mut self.clients[client.0 as usize];
        client.state = State::Linked(ServerId(entry));
        client.since = self.now;
        let held = std::mem::take(&mut client.held);
        self.send_to_server(entry, &held);
    }

    /// A replication client's server could not be had.
    pub(crate) fn replica_lost(&mut self, client: ClientId, error: Option<std::sync::Arc<[u8]>>) {
        let why = error.map_or(Why::text("login failed"), Why::Server);
        self.client_leaves(client.0, why);
    }
}

/// Whether it has not even been dialled for yet.
fn waits_for_replica(client: &Client) -> bool {
    let rare = client.card.rare.as_ref();
    matches!(client.state, State::Waiting(WaitingFor::Replica))
        && rare.is_some_and(|rare| rare.replica.is_some())
}
