//! A hub: the one server of a pool that listens for all idle clients, and what is done for it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use io::Driver;
use pool::{ClientId, Duration, Instant, PoolId, ServerId, WorkerId};
use session::Own;
use wire::Notification;

use super::marker::Marker;
use super::{Channels, Listener, Step, Word};
use crate::log::Level;
use crate::mail::Mail;
use crate::room::{Room, bank_limits};
use crate::worker::Worker;
use crate::world::World;

/// A hub that nobody needs goes back to its pool after so long.
const HUB_RESTS: Duration = Duration::from_secs(5);

/// Whose a hub is, in its pool: nobody's. No client has this number.
pub(crate) const HUB: ClientId = ClientId(u32::MAX);

/// What all workers know of a pool's hub.
#[derive(Debug)]
pub struct HubCard {
    pub(super) id: u64,
    pub(super) worker: WorkerId,
    /// The channel of our markers. Nobody can guess it.
    pub(super) marker: Box<str>,
    /// The client_encoding in which it hears: only clients of the same are served by it.
    pub(super) encoding: Box<[u8]>,
    /// Where its server is: another one has notifications of its own.
    pub(super) place: String,
    /// Its pool.
    database: Arc<str>,
    user: Arc<str>,
}

/// The hub itself, on the worker that has its server.
pub(super) struct Hub {
    card: Arc<HubCard>,
    entry: u32,
    /// It listens to markers. One that is sent earlier it does not hear, and whoever sent it would never
    /// hear anything of the hub's.
    hears_markers: bool,
    channels: BTreeMap<Box<[u8]>, Heard>,
    /// Channels that may have to be listened to, or no longer.
    changed: Vec<Box<[u8]>>,
    /// What is being changed, and whether to be listened to.
    changing: Vec<(Box<[u8]>, bool)>,
    asked: Vec<(WorkerId, Listener, Channels)>,
    /// Since when nobody needs it.
    idle_since: Option<Instant>,
}

/// A channel of a hub.
#[derive(Default)]
struct Heard {
    workers: BTreeSet<WorkerId>,
    listens: bool,
}

impl<D: Driver, W: World> Worker<D, W> {
    /// Where a server was dialled.
    pub(super) fn place_of(&self, entry: u32) -> String {
        let server = &self.servers[entry as usize];
        server.address.as_ref().map_or_else(String::new, crate::log::address)
    }

    /// The hub of `pool`; if there is none, one on this worker is announced. `None`: it is not to have any.
    pub(super) fn hub_of(
        &mut self,
        pool: PoolId,
        encoding: &[u8],
        place: &str,
    ) -> Option<(Arc<HubCard>, bool)> {
        let mut dice = [0; 16];
        self.world.dice(&mut dice);
        let marker = format!("howdah_{:032x}", u128::from_be_bytes(dice));
        let room = self.room(pool)?;
        let mut hubs = self.commons.hubs();
        if let Some(card) = hubs.get(&pool) {
            return Some((card.clone(), false));
        }
        if !self.has_room_for_hub(room, &hubs) {
            return None;
        }
        let (worker, id) = (self.me, self.commons.socket_id());
        let (marker, encoding, place) = (marker.into(), encoding.into(), place.to_owned());
        let (database, user) = (room.name.clone(), room.user.clone());
        let card = Arc::new(HubCard { id, worker, marker, encoding, place, database, user });
        hubs.insert(pool, card.clone());
        Some((card, true))
    }

    /// A hub serves nobody, and those it listens for need servers as others do: with it, the limits must
    /// leave one for them.
    fn has_room_for_hub(&self, room: &Room, hubs: &BTreeMap<PoolId, Arc<HubCard>>) -> bool {
        let limits = bank_limits(&self.site.config, &room.database, &room.user);
        let pool = room.pool.id();
        let others = || hubs.iter().filter(|(id, _)| **id != pool).map(|(_, card)| card);
        let in_db = others().filter(|card| card.database == room.name).count();
        let of_user = others().filter(|card| card.user == room.user).count();
        let leaves_one =
            |max: Option<u32>, others: usize| max.is_none_or(|max| max as usize >= others + 2);
        leaves_one(limits.size, 0)
            && leaves_one(limits.db_max, in_db)
            && leaves_one(limits.user_max, of_user)
    }

    /// The server of `slot`, which listens for it, listens for others too from now on.
    pub(super) fn become_hub(&mut self, slot: u32, entry: u32, card: Arc<HubCard>) {
        let pool = self.servers[entry as usize].pool;
        let Some(ear) = &self.clients[slot as usize].ear else { return };
        let own = || Heard { workers: BTreeSet::from([card.worker]), listens: true };
        let channels = ear.channels.iter().map(|channel| (channel.clone(), own())).collect();
        let hub = Hub {
            card: card.clone(),
            entry,
            hears_markers: false,
            channels,
            changed: Vec::new(),
            changing: Vec::new(),
            asked: Vec::new(),
            idle_since: None,
        };
        if let Some(room) = self.room_mut(pool) {
            room.ears.hub = Some(hub);
        }
        self.subscribe(slot);
        self.unlink(slot, entry);
        let server = &mut self.servers[entry as usize];
        server.client = Some(HUB);
        server.pinned = None;
        server.step = Step::Hub;
        server.side.collects = true;
        self.with_pool(pool, |pool, _| pool.lend(ServerId(entry), HUB));
        self.log_server(entry, Level::Log, format_args!("listens for idle clients from now on"));
        // None of its last client's settings is to have a say in it, a time limit least of all.
        let mut query = b"RESET SESSION AUTHORIZATION;RESET ALL;".to_vec();
        query.extend_from_slice(b"SET client_encoding TO '");
        query.extend(
            card.encoding.iter().filter(|byte| byte.is_ascii_alphanumeric() || **byte == b'_'),
        );
        query.extend_from_slice(format!("';LISTEN \"{}\"", card.marker).as_bytes());
        self.run_own(entry, Own::Ear, &query);
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    pub(super) fn tell(&mut self, to: WorkerId, pool: PoolId, word: Word) {
        if to == self.me {
            self.told(pool, word);
        } else {
            self.commons.mail(to, Mail::Ear { pool, word });
        }
    }

    pub(crate) fn told(&mut self, pool: PoolId, word: Word) {
        match word {
            Word::Want { hub, from, party, channels } => {
                self.hub_wanted(pool, hub, (from, party, channels));
            }
            Word::Unwant { hub, from, channels } => self.hub_unwanted(pool, hub, from, channels),
            Word::Granted { party } => self.granted(party),
            Word::Denied { party } => {
                if let Some(slot) = self.whose_wish(party) {
                    self.forget_ear(slot);
                }
            }
            Word::Heard { hub, message } => self.heard_by_hub(pool, hub, &message),
            Word::Lost { hub } => self.hub_lost(hub),
        }
    }

    /// The hub of this number, if it is here.
    fn hub_mut(&mut self, pool: PoolId, id: u64) -> Option<&mut Hub> {
        self.room_mut(pool)?.ears.hub.as_mut().filter(|hub| hub.card.id == id)
    }

    fn hub_wanted(&mut self, pool: PoolId, id: u64, want: (WorkerId, Listener, Channels)) {
        let (from, party, ref channels) = want;
        let Some(hub) = self.hub_mut(pool, id) else {
            return self.tell(from, pool, Word::Denied { party });
        };
        hub.idle_since = None;
        for channel in channels.iter() {
            let heard = hub.channels.entry(channel.clone()).or_default();
            heard.workers.insert(from);
            if !heard.listens {
                hub.changed.push(channel.clone());
            }
        }
        hub.asked.push(want);
        self.grant(pool, id);
        self.change_hub(pool, id);
    }

    fn hub_unwanted(&mut self, pool: PoolId, id: u64, from: WorkerId, channels: Vec<Box<[u8]>>) {
        let Some(hub) = self.hub_mut(pool, id) else { return };
        for channel in channels {
            if let Some(heard) = hub.channels.get_mut(&channel) {
                heard.workers.remove(&from);
                if heard.workers.is_empty() {
                    // Not at once: who has just said something listens again soon.
                    hub.changed.push(channel);
                }
            }
        }
    }

    /// Whoever waits for channels that are listened to now.
    fn grant(&mut self, pool: PoolId, id: u64) {
        let Some(hub) = self.hub_mut(pool, id) else { return };
        if !hub.hears_markers && !planted::is("granted-by-a-deaf-hub") {
            return;
        }
        let channels = &hub.channels;
        let listens = |channel: &[u8]| channels.get(channel).is_some_and(|heard| heard.listens);
        let (ready, waiting) = mem::take(&mut hub.asked)
            .into_iter()
            .partition(|(_, _, channels)| channels.iter().all(|channel| listens(channel)));
        hub.asked = waiting;
        let ready: Vec<(WorkerId, Listener, Channels)> = ready;
        for (from, party, _) in ready {
            self.tell(from, pool, Word::Granted { party });
        }
    }

    /// Listen to what is wanted, and no longer to what is not.
    fn change_hub(&mut self, pool: PoolId, id: u64) {
        let Some(hub) = self.hub_mut(pool, id) else { return };
        let (entry, nothing) = (hub.entry, hub.changed.is_empty());
        // What it runs now is answered first; then this comes to be looked at again.
        if nothing || self.servers[entry as usize].own.is_some() {
            return;
        }
        let Some(hub) = self.hub_mut(pool, id) else { return };
        let mut query = String::new();
        for channel in mem::take(&mut hub.changed) {
            let Some(heard) = hub.channels.get_mut(&channel) else { continue };
            let wanted = !heard.workers.is_empty();
            if hub.changing.iter().any(|(other, _)| *other == channel) {
                continue;
            }
            if wanted == heard.listens {
                if !wanted {
                    hub.channels.remove(&channel);
                }
                continue;
            }
            query.push_str(if wanted { "LISTEN \"" } else { "UNLISTEN \"" });
            query.push_str(&String::from_utf8_lossy(&channel).replace('"', "\"\""));
            query.push_str("\";");
            // Not counted on from now on, and not yet before it is done.
            heard.listens = false;
            hub.changing.push((channel, wanted));
        }
        if !query.is_empty() {
            self.run_own(entry, Own::Ear, query.as_bytes());
        }
    }

    pub(super) fn hub_answered(&mut self, entry: u32) {
        let pool = self.servers[entry as usize].pool;
        let Some(hub) = self.room_mut(pool).and_then(|room| room.ears.hub.as_mut()) else { return };
        let id = hub.card.id;
        // Its first query made it so.
        let is_new = !mem::replace(&mut hub.hears_markers, true);
        for (channel, listens) in mem::take(&mut hub.changing) {
            let Some(heard) = hub.channels.get_mut(&channel) else { continue };
            heard.listens = listens;
            match (listens, heard.workers.is_empty()) {
                (false, true) => {
                    hub.channels.remove(&channel);
                }
                // It was wanted again meanwhile, or no longer.
                (false, false) | (true, true) => hub.changed.push(channel),
                (true, false) => {}
            }
        }
        if is_new {
            self.hub_hears(id);
        }
        self.grant(pool, id);
        let waits = self.hub_mut(pool, id).is_some_and(|hub| !hub.asked.is_empty());
        if waits {
            self.change_hub(pool, id);
        }
    }

    pub(super) fn hub_heard(&mut self, entry: u32, message: &[u8]) {
        let pool = self.servers[entry as usize].pool;
        let Ok(said) = Notification::read(message.get(5..).unwrap_or_default()) else { return };
        let Some(hub) = self.room(pool).and_then(|room| room.ears.hub.as_ref()) else { return };
        let id = hub.card.id;
        let workers: Vec<WorkerId> = if said.channel == hub.card.marker.as_bytes() {
            Marker::of(&said).map(|marker| marker.worker).into_iter().collect()
        } else {
            let heard = hub.channels.get(said.channel);
            heard.map_or_else(Vec::new, |heard| heard.workers.iter().copied().collect())
        };
        let mut shared: Option<Arc<[u8]>> = None;
        for worker in workers {
            if worker == self.me {
                self.heard_by_hub(pool, id, message);
            } else {
                let message = shared.get_or_insert_with(|| message.into()).clone();
                self.commons
                    .mail(worker, Mail::Ear { pool, word: Word::Heard { hub: id, message } });
            }
        }
    }

    /// The server `entry` was a hub, and is gone.
    pub(crate) fn hub_died(&mut self, entry: u32) {
        let pool = self.servers[entry as usize].pool;
        self.servers[entry as usize].step = Step::Usual;
        let Some(hub) = self.room_mut(pool).and_then(|room| room.ears.hub.take()) else { return };
        self.retract(pool, hub.card.id);
        for worker in (0..self.commons.workers()).map(WorkerId) {
            self.tell(worker, pool, Word::Lost { hub: hub.card.id });
        }
    }

    fn retract(&self, pool: PoolId, id: u64) {
        let mut hubs = self.commons.hubs();
        if hubs.get(&pool).is_some_and(|card| card.id == id) {
            hubs.remove(&pool);
        }
    }

    /// The hubs of these pools are not to be there any more.
    pub(crate) fn end_hubs(&mut self, pools: &[PoolId], reason: &str) {
        for pool in pools {
            let hub = self.room(*pool).and_then(|room| room.ears.hub.as_ref());
            if let Some(entry) = hub.map(|hub| hub.entry) {
                self.server_dies(entry, reason);
            }
        }
    }

    /// The hubs whose servers have become obsolete: what they hear may be another database's.
    pub(crate) fn end_obsolete_hubs(&mut self, pools: &[PoolId], reason: &str) {
        let obsolete = |pool: &&PoolId| {
            self.room(**pool).is_some_and(|room| {
                let hub = room.ears.hub.as_ref();
                hub.is_some_and(|hub| room.pool.is_obsolete(ServerId(hub.entry)))
            })
        };
        let pools: Vec<PoolId> = pools.iter().filter(obsolete).copied().collect();
        self.end_hubs(&pools, reason);
    }

    /// Twenty times a second: clients that do nothing but listen, and hubs that nobody needs.
    pub(crate) fn tick_ears(&mut self) {
        let mut quiet = Vec::new();
        for (entry, server) in &self.servers {
            if let Some(client) = server.client
                && server.side.trail.only_listens()
                && server.step == Step::Usual
                && self.clients.contains(client.0 as usize)
            {
                quiet.push((client.0, crate::slot(entry)));
            }
        }
        for (slot, entry) in quiet {
            let shares = |room: &Room| room.mode() != session::Mode::Session;
            let shares = self.room(self.clients[slot as usize].pool).is_some_and(shares);
            if shares && self.only_listens(slot, entry) {
                self.may_go_quiet(slot, entry);
            }
        }
        self.carry_out();
    }

    /// Now and then: what hubs need not listen to.
    pub(crate) fn tick_hubs(&mut self) {
        let rooms = self.rooms.iter().flatten();
        let hubs: Vec<(PoolId, u64)> = rooms
            .filter_map(|room| Some((room.pool.id(), room.ears.hub.as_ref()?.card.id)))
            .collect();
        for (pool, id) in hubs {
            if !self.may_keep_hub(pool) {
                self.end_hubs(&[pool], "no room for a server that listens");
                continue;
            }
            self.change_hub(pool, id);
            let now = self.now;
            let Some(hub) = self.hub_mut(pool, id) else { continue };
            let entry = hub.entry;
            if !hub.channels.is_empty() {
                continue;
            }
            // Whoever asked has left before it was granted anything.
            hub.asked.clear();
            let since = *hub.idle_since.get_or_insert(now);
            if since.after(HUB_RESTS) <= now && self.servers[entry as usize].own.is_none() {
                self.end_hub(pool, id, entry);
            }
        }
        self.carry_out();
    }

    /// The hub is here, and listens to no markers yet. Elsewhere nobody knows of a hub before it does; whose
    /// server it was may come back at once.
    pub(super) fn is_deaf(&self, pool: PoolId, id: u64) -> bool {
        let hub = self.room(pool).and_then(|room| room.ears.hub.as_ref());
        hub.is_some_and(|hub| hub.card.id == id && !hub.hears_markers)
    }

    /// The limits may have become tighter.
    fn may_keep_hub(&self, pool: PoolId) -> bool {
        let hubs = self.commons.hubs();
        self.room(pool).is_some_and(|room| self.has_room_for_hub(room, &hubs))
    }

    /// Nobody listens any more: the server is as others again.
    fn end_hub(&mut self, pool: PoolId, id: u64, entry: u32) {
        self.retract(pool, id);
        if let Some(room) = self.room_mut(pool) {
            room.ears.hub = None;
        }
        let server = &mut self.servers[entry as usize];
        server.client = None;
        server.step = Step::Usual;
        server.side.collects = false;
        self.give_back(entry);
    }
}
