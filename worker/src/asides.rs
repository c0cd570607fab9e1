//! What a client's request means to others than its server.

use std::sync::Arc;

use config::Database;
use io::Driver;
use pool::{PoolId, WorkerId};
use session::Aside;

use crate::end::Why;
use crate::mail::Mail;
use crate::order::Order;
use crate::worker::Worker;
use crate::world::World;

impl<D: Driver, W: World> Worker<D, W> {
    /// What the relay left for others to do, on behalf of a client of `pool`.
    pub(crate) fn attend_asides(&mut self, pool: PoolId) {
        for aside in std::mem::take(&mut self.flow.asides) {
            match aside {
                Aside::Vacate(reading) => {
                    for name in &reading.vacates {
                        self.vacate(pool, name);
                    }
                }
                Aside::End(pid) => self.send_end(pool, pid),
            }
        }
    }

    /// A client of `pool` ended the one that was given `pid`, which had no server then.
    fn send_end(&self, pool: PoolId, pid: u32) {
        let database = self.room(pool).map(|room| Arc::clone(&room.database));
        if let (Some((worker, slot)), Some(by)) = (self.commons.pids.place_of(pid), database) {
            self.commons.mail(WorkerId(worker), Mail::End { slot, pid, by });
        }
    }

    /// As PostgreSQL ends a session for another; `by` is the database of that one, which has to be at the same place.
    pub(crate) fn end_client(&mut self, slot: u32, pid: u32, by: &Database) {
        let client = self.clients.get(slot as usize).filter(|client| client.side.pid == pid);
        let Some(database) = client.and_then(|client| self.room(client.pool)) else { return };
        let database = &database.database;
        if (&database.hosts, database.port) == (&by.hosts, by.port) {
            let message = "terminating connection due to administrator command".to_owned();
            self.client_leaves(slot, Why::said("57P01", message, String::new()));
            self.carry_out();
        }
    }

    /// Somebody drops a database, renames it or copies it, for which PostgreSQL lets nobody else be in there. Servers that
    /// lie idle there are nobody, and are closed: it waits some seconds for such. And if it is made,
    /// that it was not there is forgotten.
    fn vacate(&mut self, pool: PoolId, dbname: &str) {
        let Some(own) = self.room(pool).map(|room| Arc::clone(&room.database)) else { return };
        for name in self.names_of(dbname, &own) {
            if self.commons.bank().has_db(&name) {
                let scope = Some(name);
                let epoch = self.commons.next_epoch(&scope);
                self.tell_all(&Order::Reconnect(scope, epoch));
            }
        }
    }

    /// By what names clients ask for the database that is called `dbname` where `own` is.
    fn names_of(&self, dbname: &str, own: &Database) -> Vec<Arc<str>> {
        let config = &self.site.config;
        let is_meant = |line: &Database, name: &str| {
            line.dbname.as_deref().unwrap_or(name) == dbname
                && (&line.hosts, line.port) == (&own.hosts, own.port)
        };
        let listed = config.databases.iter().filter(|(name, line)| is_meant(line, name));
        let mut names: Vec<Arc<str>> = listed.map(|(name, _)| name.as_str().into()).collect();
        if !config.databases.contains_key(dbname)
            && config.autodb.as_ref().is_some_and(|line| is_meant(line, dbname))
        {
            names.push(dbname.into());
        }
        names
    }
}
