//! What a worker holds, for those who check it from outside.

use io::{Conn, Driver};
use pool::{Counts, Instant, Place, PoolId, ServerId};

use crate::client::State;
use crate::server;
use crate::worker::Worker;
use crate::world::World;

/// A worker's belongings at one moment.
#[derive(Debug, Default)]
pub struct Audit {
    pub pools: Vec<PoolAudit>,
    pub clients: Vec<ClientAudit>,
    pub servers: Vec<ServerAudit>,
    /// Connections on which something is cancelled.
    pub cancellers: usize,
    pub suspended: bool,
}

/// One worker's part of a pool.
#[derive(Debug)]
pub struct PoolAudit {
    pub id: PoolId,
    pub counts: Counts,
    pub is_paused: bool,
}

#[derive(Debug)]
pub struct ClientAudit {
    pub conn: Conn,
    pub id: u64,
    pub pool: PoolId,
    /// Bytes held back for it.
    pub held: usize,
    /// Since when it is in line, if it is.
    pub waiting: Option<Instant>,
    pub linked: Option<ServerId>,
    pub state: &'static str,
    pub reading: bool,
}

#[derive(Debug)]
pub struct ServerAudit {
    pub slot: ServerId,
    pub conn: Option<Conn>,
    pub pool: PoolId,
    /// The socket is being closed.
    pub closing: bool,
    pub place: Option<Place>,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// What it holds. Panics where a pool is at odds with itself.
    #[must_use]
    pub fn audit(&self) -> Audit {
        let rooms = self.rooms.iter().flatten();
        let pools = rooms.map(|room| {
            room.pool.invariants();
            let (id, is_paused) = (room.pool.id(), room.pool.is_paused());
            PoolAudit { id, counts: room.pool.counts(), is_paused }
        });
        let clients = self.clients.iter().map(|(_, client)| ClientAudit {
            conn: client.conn,
            id: client.card.id,
            pool: client.pool,
            held: client.held.len(),
            waiting: matches!(client.state, State::Waiting(_)).then_some(client.since),
            linked: match client.state {
                State::Linked(server) => Some(server),
                _ => None,
            },
            state: state_name(&client.state),
            reading: client.reading,
        });
        let servers = self.servers.iter().map(|(entry, server)| {
            let slot = ServerId(crate::slot(entry));
            ServerAudit {
                slot,
                // What is being cut off already is of no server.
                conn: server.conn.filter(|_| !matches!(server.state, server::State::Moving(_))),
                pool: server.pool,
                closing: matches!(server.state, server::State::Closing),
                place: self.room(server.pool).and_then(|room| room.pool.place(slot)),
            }
        });
        Audit {
            pools: pools.collect(),
            clients: clients.collect(),
            servers: servers.collect(),
            cancellers: self.cancellers.len(),
            suspended: self.standing.suspended,
        }
    }
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::Login(_) => "login",
        State::Idle => "idle",
        State::Waiting(_) => "waiting",
        State::Linked(_) => "linked",
        State::Console(_) => "console",
        State::Canceling => "canceling",
        State::Closing => "closing",
    }
}
