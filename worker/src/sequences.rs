//! Clients that rely on what sequences gave them, and the servers that have it.

use std::time::Duration;

use io::Driver;
use pool::ServerId;

use crate::worker::Worker;
use crate::world::World;

/// For so long a client that does nothing keeps a server for what sequences gave it, when others wait for one.
const KEEPS: Duration = Duration::from_secs(1);

impl<D: Driver, W: World> Worker<D, W> {
    /// `slot` is about to part from `entry`, and may come back for what sequences gave it there.
    pub(crate) fn keep_home(&mut self, slot: u32, entry: u32) {
        let (client, server) = (&mut self.clients[slot as usize], &self.servers[entry as usize]);
        if server.side.trail.remembers(&client.side) {
            client.card.rare().home = Some((entry, server.id));
        }
    }

    /// The server that still has what sequences gave `slot`, if it is to be found at all.
    pub(crate) fn home_of(&self, slot: u32) -> Option<ServerId> {
        let client = &self.clients[slot as usize];
        if !client.side.remembers {
            return None;
        }
        let (entry, id) = client.card.rare.as_ref()?.home?;
        let server = self.servers.get(entry as usize).filter(|server| server.id == id)?;
        let is_there = server.pool == client.pool && server.side.trail.remembers(&client.side);
        is_there.then_some(ServerId(entry))
    }

    /// Nothing but what sequences gave it ties `slot` to `entry`: it gives its server to those who wait, when it does
    /// nothing with it. What it was given stays there until somebody else is given something.
    pub(crate) fn may_let_go(&mut self, slot: u32, entry: u32) {
        let server = &self.servers[entry as usize];
        let waits = self.room(server.pool).is_some_and(|room| room.pool.somebody_waits());
        let rested = server.since.after(KEEPS) <= self.now;
        if waits && rested && server.own.is_none() && !self.is_being_canceled(entry) {
            self.unlink(slot, entry);
            self.give_back(entry);
        }
    }

    /// Twenty times a second.
    pub(crate) fn tick_sequences(&mut self) {
        let mut resting = Vec::new();
        for (entry, server) in &self.servers {
            if let Some(client) = server.client
                && server.side.trail.only_remembers()
                && let Some(known) = self.clients.get(client.0 as usize)
                && known.held.is_empty()
                && !known.leaving
                && server.side.is_free(&known.side)
            {
                resting.push((client.0, crate::slot(entry)));
            }
        }
        for (slot, entry) in resting {
            self.may_let_go(slot, entry);
        }
        self.carry_out();
    }
}
