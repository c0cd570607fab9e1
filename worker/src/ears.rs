//! Clients that listen, and how one server listens for many of them.
//!
//! A client that has LISTENed and then says nothing would keep a server for that alone. So each pool has
//! a *hub*: one of its servers, linked to nobody, that listens to all channels which idle clients of the
//! pool, on whatever worker, listen to. What it hears goes to these by mail. A client that says something is given a
//! server that listens for it alone, and so finds everything as PostgreSQL has it: what it listens
//! to, its own notifications before its answer, UNLISTEN within a transaction.
//!
//! Both ways lead over a *marker*: a notification of ours, on a channel of ours, sent by the client's own
//! server. Since PostgreSQL puts the notifications of a database into one order, the same for all who
//! listen, the marker parts them alike for the hub and for the server: what came before is said by the one,
//! what came after it by the other, and nothing by both or by neither.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use io::Driver;
use pool::{ClientId, Duration, Instant, PoolId, ServerId, WorkerId};
use session::Own;
use wire::{Notification, Report};

use crate::client::{Client, State};
use crate::end::Why;
use crate::log::Level;
use crate::mail::Mail;
use crate::room::{Room, bank_limits};
use crate::worker::Worker;
use crate::world::World;

/// Channels, as PostgreSQL spells them.
type Channels = Arc<[Box<[u8]>]>;

/// A client that listens and does nothing else keeps its server so long, if nobody waits for one.
const KEEPS: Duration = Duration::from_millis(250);

/// A hub that nobody needs goes back to its pool after so long.
const HUB_RESTS: Duration = Duration::from_secs(5);

/// A client may be so many bytes behind with its notifications; then it is hung up on, for none
/// may be lost in silence.
const BEHIND_MAX: usize = 1 << 20;

/// Whose a hub is, in its pool: nobody's. No client has this number.
pub(crate) const HUB: ClientId = ClientId(u32::MAX);

/// What all workers know of a pool's hub.
#[derive(Debug)]
pub struct HubCard {
    id: u64,
    worker: WorkerId,
    /// The channel of our markers. Nobody can guess it.
    marker: Box<str>,
    /// The client_encoding in which it hears: only clients of the same are served by it.
    encoding: Box<[u8]>,
    /// Where its server is: another one has notifications of its own.
    place: String,
    /// Its pool.
    database: Arc<str>,
    user: Arc<str>,
}

/// What workers tell each other about listening.
pub enum Word {
    /// `party` on `from` is about to listen to these, by the hub.
    Want { hub: u64, from: WorkerId, party: Listener, channels: Channels },
    /// Nobody on `from` listens to these any more.
    Unwant { hub: u64, from: WorkerId, channels: Vec<Box<[u8]>> },
    /// The hub listens to what `party` wanted.
    Granted { party: Listener },
    /// There is no such hub any more.
    Denied { party: Listener },
    /// The hub heard this: a whole message.
    Heard { hub: u64, message: Arc<[u8]> },
    /// The hub is gone.
    Lost { hub: u64 },
}

/// A client, and which of its wishes. Slots are used again, ids never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listener {
    slot: u32,
    id: u64,
    /// What it wanted before, perhaps of other channels, may be answered only now.
    wish: u64,
}

/// A client that listens, as far as the hub has to do with it.
pub(crate) struct Ear {
    channels: Channels,
    hub: Arc<HubCard>,
    at: At,
    wish: u64,
    /// What is in the marker that is under way.
    nonce: u64,
    /// The hub's notifications are for it: between the two markers.
    subscribed: bool,
    /// Notifications that come after some that are still to come.
    later: Vec<u8>,
}

/// Where an ear is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    /// Its server listens. The hub was asked to, too.
    Asked,
    /// The hub does, too.
    Granted,
    /// Its server has been sent the marker, and not said it.
    Joining,
    /// The hub listens for it.
    Away,
    /// A server has been sent the marker. `left`: the hub has said it.
    Returning { left: bool },
}

/// What a server's notifications are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Step {
    /// Its client's.
    #[default]
    Usual,
    /// Its client's, up to the marker.
    Joining,
    /// The hub's to tell: the marker was said.
    Joined,
    /// The hub's to tell, up to the marker.
    Returning,
    /// Its client's, once the hub has said the marker. `quiet`: it was told to listen to no more of them.
    Returned { quiet: bool },
    /// It waits for the hub to say the marker.
    Awaiting,
    /// Those of all idle clients.
    Hub,
}

/// One worker's part of a pool's listening.
#[derive(Default)]
pub(crate) struct Ears {
    /// Who hears what the hub says.
    subscribers: HashMap<Box<[u8]>, BTreeSet<u32>>,
    /// For how many clients here the hub listens, or is about to.
    wanted: HashMap<Box<[u8]>, u32>,
    /// Notifications given to clients here, by channel.
    delivered: HashMap<Box<[u8]>, u64>,
    /// Wishes so far.
    wishes: u64,
    hub: Option<Hub>,
}

impl Ears {
    /// Channels, their listeners, and what these were given.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&[u8], u64, u64)> {
        self.wanted.keys().map(|channel| {
            let clients = self.subscribers.get(channel).map_or(0, BTreeSet::len);
            (&**channel, clients as u64, self.delivered.get(channel).copied().unwrap_or(0))
        })
    }
}

/// The hub itself.
struct Hub {
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

// ---- A client's server listens for it; perhaps the hub can.

impl<D: Driver, W: World> Worker<D, W> {
    /// The server of `slot` is done, and all that ties it is that it listens.
    pub(crate) fn may_go_quiet(&mut self, slot: u32, entry: u32) {
        let server = &self.servers[entry as usize];
        if !self.site.config.settings.listen_hub {
            if !server.stays {
                self.stay(slot, entry);
            }
            return;
        }
        let Some(room) = self.room(server.pool) else { return };
        if room.pool.is_paused() {
            // A PAUSE waits for what is at work, and this would be for ever.
            return self.client_leaves(slot, Why::Server(terminated().into()));
        }
        let somebody_waits = room.pool.somebody_waits();
        let rested = server.since.after(KEEPS) <= self.now;
        if somebody_waits || rested {
            self.go_quiet(slot, entry);
        }
    }

    /// The hub is to listen for `slot`.
    fn go_quiet(&mut self, slot: u32, entry: u32) {
        let (server, client) = (&self.servers[entry as usize], &self.clients[slot as usize]);
        let busy = server.own.is_some() || server.step != Step::Usual || server.stays;
        if busy || client.leaving || self.is_being_canceled(entry) {
            return;
        }
        let channels = server.side.trail.channels();
        let encoding: Box<[u8]> =
            server.side.vars.value(b"client_encoding").unwrap_or_default().into();
        match &client.ear {
            Some(ear) if *ear.channels == *channels => {
                if ear.at == At::Granted {
                    self.join(slot, entry);
                }
                return;
            }
            Some(_) => self.forget_ear(slot),
            None => {}
        }
        let server = &self.servers[entry as usize];
        let (pool, channels) = (server.pool, Channels::from(server.side.trail.channels()));
        if channels.is_empty() || !channels.iter().all(|channel| is_plain(channel)) {
            return self.stay(slot, entry);
        }
        let place = self.place_of(entry);
        let Some((card, is_new)) = self.hub_of(pool, &encoding, &place) else {
            return self.stay(slot, entry);
        };
        if card.encoding != encoding || card.place != place {
            return self.stay(slot, entry);
        }
        let at = if is_new { At::Away } else { At::Asked };
        let wish = self.room_mut(pool).map_or(0, |room| {
            room.ears.wishes += 1;
            room.ears.wishes
        });
        let ear = Ear {
            channels: channels.clone(),
            hub: card.clone(),
            at,
            wish,
            nonce: 0,
            subscribed: false,
            later: Vec::new(),
        };
        self.clients[slot as usize].ear = Some(Box::new(ear));
        if let Some(room) = self.room_mut(pool) {
            for channel in channels.iter() {
                *room.ears.wanted.entry(channel.clone()).or_insert(0) += 1;
            }
        }
        if is_new {
            return self.become_hub(slot, entry, card);
        }
        let party = Listener { slot, id: self.clients[slot as usize].card.id, wish };
        let want = Word::Want { hub: card.id, from: self.me, party, channels };
        self.tell(card.worker, pool, want);
    }

    /// The hub cannot listen for `slot`, which keeps its server for that.
    fn stay(&mut self, slot: u32, entry: u32) {
        self.servers[entry as usize].stays = true;
        // One too many is gone now, and told so.
        self.pin(slot, entry);
    }

    /// Where a server was dialled.
    fn place_of(&self, entry: u32) -> String {
        let server = &self.servers[entry as usize];
        server.address.as_ref().map_or_else(String::new, crate::log::address)
    }

    /// The hub of `pool`; if there is none, one on this worker is announced. `None`: it is not to have any.
    fn hub_of(
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
    fn become_hub(&mut self, slot: u32, entry: u32, card: Arc<HubCard>) {
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

    /// The hub listens to all that `party` listens to.
    fn granted(&mut self, party: Listener) {
        let Some(slot) = self.whose_wish(party) else { return };
        let client = &mut self.clients[slot as usize];
        let Some(ear) = client.ear.as_mut().filter(|ear| ear.at == At::Asked) else { return };
        ear.at = At::Granted;
        if let State::Linked(server) = client.state {
            self.look_at_ear(slot, server.0);
        }
    }

    /// Whether `slot`, linked to `entry`, does nothing but listen; then its ear goes on its way.
    pub(crate) fn look_at_ear(&mut self, slot: u32, entry: u32) {
        if self.only_listens(slot, entry) {
            self.go_quiet(slot, entry);
        }
    }

    fn only_listens(&self, slot: u32, entry: u32) -> bool {
        let (client, server) = (&self.clients[slot as usize], &self.servers[entry as usize]);
        server.own.is_none()
            && server.replica.is_none()
            && client.held.is_empty()
            && server.side.trail.only_listens()
            && server.side.is_done(&client.side)
            && !server.side.is_spoilt()
    }

    /// The marker, by the client's server: what comes behind it is the hub's to tell.
    fn join(&mut self, slot: u32, entry: u32) {
        let Some(query) = self.mark(slot, "J", "") else { return };
        if let Some(ear) = &mut self.clients[slot as usize].ear {
            ear.at = At::Joining;
        }
        self.listens_for_us(entry, Step::Joining, &query);
    }

    fn listens_for_us(&mut self, entry: u32, step: Step, query: &str) {
        let server = &mut self.servers[entry as usize];
        server.step = step;
        server.side.collects = true;
        self.run_own(entry, Own::Ear, query.as_bytes());
    }

    /// The query that sends a marker for `slot`.
    fn mark(&mut self, slot: u32, way: &str, before: &str) -> Option<String> {
        let mut dice = [0; 8];
        self.world.dice(&mut dice);
        let client = &mut self.clients[slot as usize];
        let ear = client.ear.as_mut()?;
        ear.nonce = u64::from_be_bytes(dice);
        let (marker, nonce, id, worker) = (&ear.hub.marker, ear.nonce, client.card.id, self.me.0);
        Some(format!(
            "{before}LISTEN \"{marker}\";NOTIFY \"{marker}\",'{way} {worker} {slot} {id} {nonce}'"
        ))
    }
}

// ---- A client that the hub listens for says something.

impl<D: Driver, W: World> Worker<D, W> {
    /// `entry` has been given to `slot`, and its settings. If the hub listens for it, `entry` has to first;
    /// then that is under way.
    pub(crate) fn ear_returns(&mut self, slot: u32, entry: u32) -> bool {
        // It may be linked already, and be given settings once more: then its server listens as it is.
        let away = |ear: &&Ear| ear.at == At::Away;
        let Some(ear) = self.clients[slot as usize].ear.as_deref().filter(away) else {
            return false;
        };
        if self.place_of(entry) != ear.hub.place {
            // What is notified there, nobody hears here.
            self.client_leaves(slot, Why::text("its channels are on another server"));
            return true;
        }
        let hub = ear.hub.id;
        if self.is_deaf(self.servers[entry as usize].pool, hub)
            && !planted::is("back-from-a-deaf-hub")
        {
            self.awaits_hub(entry);
            return true;
        }
        let mut before = String::new();
        for channel in ear.channels.iter() {
            before.push_str("LISTEN \"");
            before.push_str(&String::from_utf8_lossy(channel).replace('"', "\"\""));
            before.push_str("\";");
        }
        let channels = ear.channels.clone();
        let Some(query) = self.mark(slot, "L", &before) else { return false };
        if let Some(ear) = &mut self.clients[slot as usize].ear {
            ear.at = At::Returning { left: false };
        }
        self.servers[entry as usize].side.trail.listens_to(&channels);
        self.listens_for_us(entry, Step::Returning, &query);
        true
    }

    /// The hub is here, and listens to no markers yet. Elsewhere nobody knows of a hub before it does; whose
    /// server it was may come back at once.
    fn is_deaf(&self, pool: PoolId, id: u64) -> bool {
        let hub = self.room(pool).and_then(|room| room.ears.hub.as_ref());
        hub.is_some_and(|hub| hub.card.id == id && !hub.hears_markers)
    }

    /// What its client says waits for the hub, as long as this is its own.
    fn awaits_hub(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        server.step = Step::Awaiting;
        server.own = Some(Own::Ear);
    }

    /// The hub listens to markers from now on: who waited for that to come back does so.
    fn hub_hears(&mut self, hub: u64) {
        let waits = |(slot, client): (usize, &Client)| match (&client.ear, &client.state) {
            (Some(ear), State::Linked(server)) if ear.hub.id == hub && ear.at == At::Away => {
                Some((crate::slot(slot), server.0))
            }
            _ => None,
        };
        let waiting: Vec<(u32, u32)> = self.clients.iter().filter_map(waits).collect();
        for (slot, entry) in waiting {
            let server = &mut self.servers[entry as usize];
            if server.step == Step::Awaiting {
                server.own = None;
                self.ear_returns(slot, entry);
            }
        }
    }

    /// Both the hub and the server have said the marker: the client goes on.
    fn returned(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        let State::Linked(ServerId(entry)) = client.state else { return };
        let back = |ear: &&mut Box<Ear>| ear.at == At::Returning { left: true };
        let Some(ear) = client.ear.as_mut().filter(back) else { return };
        let server = &mut self.servers[entry as usize];
        if server.step != Step::Awaiting {
            return;
        }
        let later = mem::take(&mut ear.later);
        server.step = Step::Usual;
        server.side.collects = false;
        server.own = None;
        self.send_to_client(slot, &later);
        self.forget_ear(slot);
        self.send_held(slot, entry);
    }
}

// ---- What servers say.

impl<D: Driver, W: World> Worker<D, W> {
    /// Notifications that are not simply the client's.
    pub(crate) fn noticed(&mut self, entry: u32, notices: Vec<Box<[u8]>>) {
        for message in notices {
            // Whatever the last one brought about.
            let Some(server) = self.servers.get(entry as usize) else { return };
            let slot = server.client.map(|client| client.0);
            match (server.step, slot) {
                (Step::Hub, _) => self.hub_heard(entry, &message),
                (_, Some(slot)) if self.clients.contains(slot as usize) => {
                    self.own_server_heard(slot, entry, &message);
                }
                _ => {}
            }
        }
    }

    fn own_server_heard(&mut self, slot: u32, entry: u32, message: &[u8]) {
        let client = &mut self.clients[slot as usize];
        let server = &mut self.servers[entry as usize];
        let Some(ear) = &mut client.ear else { return self.send_to_client(slot, message) };
        let marker = Marker::read(message, &ear.hub.marker);
        let ours = matches!(marker, Some(Some(marker)) if marker.nonce == ear.nonce);
        match server.step {
            Step::Joining if ours => {
                server.step = Step::Joined;
                ear.at = At::Away;
                // What the hub has said behind the marker already.
                let later = mem::take(&mut ear.later);
                self.send_to_client(slot, &later);
            }
            Step::Returning if ours => server.step = Step::Returned { quiet: false },
            _ if marker.is_some() => {}
            Step::Usual | Step::Joining => self.send_to_client(slot, message),
            Step::Joined if planted::is("heard-twice") => self.send_to_client(slot, message),
            Step::Returned { .. } | Step::Awaiting if planted::is("server-overtakes") => {
                self.send_to_client(slot, message);
            }
            Step::Returned { .. } | Step::Awaiting => self.keep_for_later(slot, message),
            Step::Joined | Step::Returning | Step::Hub => {}
        }
    }

    /// A query of these was answered.
    pub(crate) fn ear_heard(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let slot = server.client.map(|client| client.0);
        match (server.step, slot) {
            (Step::Hub, _) => self.hub_answered(entry),
            (Step::Joined, Some(slot)) if server.side.trail.is_listening() => {
                server.side.trail.listens_to(&[]);
                self.run_own(entry, Own::Ear, b"UNLISTEN *");
                debug_assert!(self.clients.contains(slot as usize));
            }
            (Step::Joined, Some(slot)) => {
                server.step = Step::Usual;
                server.side.collects = false;
                self.parted(slot, entry);
            }
            (Step::Returned { quiet: true }, Some(slot)) => {
                self.awaits_hub(entry);
                self.returned(slot);
            }
            (Step::Returned { quiet: false }, Some(slot)) => {
                server.step = Step::Returned { quiet: true };
                let Some(ear) = &self.clients[slot as usize].ear else { return };
                let query = format!("UNLISTEN \"{}\"", ear.hub.marker);
                self.run_own(entry, Own::Ear, query.as_bytes());
            }
            // It was to say a marker, and did not.
            _ => self.server_dies(entry, "notifications do not come back"),
        }
    }

    /// A query of these failed.
    pub(crate) fn ear_failed(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let slot = server.client.map(|client| client.0);
        match (server.step, slot) {
            // Nothing has come of it: all is as it was.
            (Step::Joining, Some(slot)) => {
                server.step = Step::Usual;
                server.side.collects = false;
                self.forget_ear(slot);
                self.stay(slot, entry);
                let held = mem::take(&mut self.clients[slot as usize].held);
                if !held.is_empty() {
                    self.forward(slot, entry, held.into());
                }
            }
            _ => self.server_dies(entry, "it cannot listen"),
        }
    }

    /// A notification of the hub's, on the worker of those it is for.
    fn heard_by_hub(&mut self, pool: PoolId, hub: u64, message: &[u8]) {
        let Ok(said) = Notification::read(message.get(5..).unwrap_or_default()) else { return };
        if let Some(marker) = Marker::of(&said)
            && let Some(slot) = self.listener(marker.slot, marker.id)
            && let Some(ear) = &mut self.clients[slot as usize].ear
            && ear.hub.id == hub
            && ear.hub.marker.as_bytes() == said.channel
        {
            if marker.joins {
                if !matches!(ear.at, At::Asked | At::Granted) {
                    self.subscribe(slot);
                }
            } else if ear.nonce == marker.nonce {
                ear.at = At::Returning { left: true };
                self.unsubscribe(slot);
                self.returned(slot);
            }
            return;
        }
        let Some(room) = self.room_mut(pool) else { return };
        let Some(clients) = room.ears.subscribers.get(said.channel) else { return };
        let clients: Vec<u32> = clients.iter().copied().collect();
        let delivered = room.ears.delivered.entry(said.channel.into()).or_insert(0);
        *delivered += clients.len() as u64;
        for slot in clients {
            self.say_heard(slot, hub, message);
        }
    }

    fn say_heard(&mut self, slot: u32, hub: u64, message: &[u8]) {
        let Some(client) = self.clients.get(slot as usize) else { return };
        // Whoever belongs to the hub after this one, or before it, hears nothing of this one.
        let Some(ear) = client.ear.as_ref().filter(|ear| ear.hub.id == hub) else { return };
        if ear.at == At::Joining && !planted::is("hub-overtakes") {
            return self.keep_for_later(slot, message);
        }
        let conn = client.conn;
        if self.driver.unsent(conn) > BEHIND_MAX {
            return self.is_behind(slot);
        }
        self.driver.write(conn, message);
    }

    fn keep_for_later(&mut self, slot: u32, message: &[u8]) {
        let Some(ear) = &mut self.clients[slot as usize].ear else { return };
        if ear.later.len() > BEHIND_MAX {
            return self.is_behind(slot);
        }
        ear.later.extend_from_slice(message);
    }

    fn is_behind(&mut self, slot: u32) {
        self.client_leaves(slot, Why::text("client does not take its notifications"));
    }
}

// ---- Who hears the hub.

impl<D: Driver, W: World> Worker<D, W> {
    fn listener(&self, slot: u32, id: u64) -> Option<u32> {
        let client = self.clients.get(slot as usize)?;
        (client.card.id == id).then_some(slot)
    }

    /// The client that has not wanted anything else since.
    fn whose_wish(&self, party: Listener) -> Option<u32> {
        let slot = self.listener(party.slot, party.id)?;
        let ear = self.clients[slot as usize].ear.as_ref();
        let same = ear.is_some_and(|ear| ear.wish == party.wish);
        (same || planted::is("wish-of-before-granted")).then_some(slot)
    }

    fn subscribe(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let Some(ear) = &mut client.ear else { return };
        ear.subscribed = true;
        let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) else { return };
        for channel in ear.channels.iter() {
            room.ears.subscribers.entry(channel.clone()).or_default().insert(slot);
        }
    }

    fn unsubscribe(&mut self, slot: u32) {
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let Some(ear) = &mut client.ear else { return };
        if !mem::take(&mut ear.subscribed) {
            return;
        }
        let Some(Some(room)) = self.rooms.get_mut(client.pool.0 as usize) else { return };
        for channel in ear.channels.iter() {
            if let Some(clients) = room.ears.subscribers.get_mut(channel) {
                clients.remove(&slot);
                if clients.is_empty() {
                    room.ears.subscribers.remove(channel);
                }
            }
        }
    }

    /// `slot` has no server any more: what was to be prepared for that is over.
    pub(crate) fn keep_ear(&mut self, slot: u32) {
        let stays = |ear: &Ear| !matches!(ear.at, At::Asked | At::Granted);
        if !self.clients[slot as usize].ear.as_deref().is_none_or(stays) {
            self.forget_ear(slot);
        }
    }

    /// `entry` serves its client no longer: whatever was between them because of this is over.
    pub(crate) fn ear_cut(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        if server.step == Step::Awaiting {
            server.own = None;
        }
        server.step = Step::Usual;
        server.side.collects = false;
    }

    /// The hub has nothing more to do with `slot`.
    pub(crate) fn forget_ear(&mut self, slot: u32) {
        self.unsubscribe(slot);
        let Some(client) = self.clients.get_mut(slot as usize) else { return };
        let Some(ear) = client.ear.take() else { return };
        let pool = client.pool;
        let Some(room) = self.room_mut(pool) else { return };
        let mut unwanted = Vec::new();
        for channel in ear.channels.iter() {
            if let Some(count) = room.ears.wanted.get_mut(channel) {
                *count -= 1;
                if *count == 0 {
                    room.ears.wanted.remove(channel);
                    room.ears.delivered.remove(channel);
                    unwanted.push(channel.clone());
                }
            }
        }
        if !unwanted.is_empty() {
            let word = Word::Unwant { hub: ear.hub.id, from: self.me, channels: unwanted };
            self.tell(ear.hub.worker, pool, word);
        }
    }

    /// The hub is gone, and what it would have heard from now on is lost to those it listened for.
    fn hub_lost(&mut self, hub: u64) {
        let theirs = |ear: &Ear| ear.hub.id == hub;
        let ears = self.clients.iter().filter(|(_, c)| c.ear.as_deref().is_some_and(theirs));
        let slots: Vec<u32> = ears.map(|(slot, _)| crate::slot(slot)).collect();
        for slot in slots {
            let keeps = |ear: &Ear| matches!(ear.at, At::Asked | At::Granted);
            let keeps = self.clients[slot as usize].ear.as_deref().is_some_and(keeps);
            self.forget_ear(slot);
            if !keeps && !planted::is("hub-lost-in-silence") {
                let why = Why::Server(terminated().into());
                self.client_leaves(slot, why);
            }
        }
    }
}

// ---- The hub.

impl<D: Driver, W: World> Worker<D, W> {
    fn tell(&mut self, to: WorkerId, pool: PoolId, word: Word) {
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

    fn hub_answered(&mut self, entry: u32) {
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

    fn hub_heard(&mut self, entry: u32, message: &[u8]) {
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

/// What a marker says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Marker {
    joins: bool,
    worker: WorkerId,
    slot: u32,
    id: u64,
    nonce: u64,
}

impl Marker {
    /// `None`: the message is on another channel.
    fn read(message: &[u8], channel: &str) -> Option<Option<Self>> {
        let said = Notification::read(message.get(5..)?).ok()?;
        (said.channel == channel.as_bytes()).then(|| Self::of(&said))
    }

    fn of(said: &Notification<'_>) -> Option<Self> {
        let mut words = str::from_utf8(said.payload).ok()?.split(' ');
        let joins = match words.next()? {
            "J" => true,
            "L" => false,
            _ => return None,
        };
        let worker = WorkerId(words.next()?.parse().ok()?);
        let (slot, id) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { joins, worker, slot, id, nonce: words.next()?.parse().ok()? })
    }
}

/// Whether a channel's name is the same bytes in every encoding.
fn is_plain(channel: &[u8]) -> bool {
    channel.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The body of what PostgreSQL says to a client that has to go.
fn terminated() -> Vec<u8> {
    let report = Report {
        severity: b"FATAL",
        with_v: true,
        code: b"57P01",
        message: b"terminating connection: the server that listened for it is gone",
        ..Report::default()
    };
    let mut message = Vec::new();
    wire::write::server::error_response(&mut message, &report);
    message.split_off(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let mut message = b"A\0\0\0\0\0\0\0\x07".to_vec();
        message.extend_from_slice(b"howdah_0\0J 1 17 4711 99\0");
        let marker = Marker { joins: true, worker: WorkerId(1), slot: 17, id: 4711, nonce: 99 };
        assert_eq!(Marker::read(&message, "howdah_0"), Some(Some(marker)));
        assert_eq!(Marker::read(&message, "howdah_1"), None);
        let end = message.len() - 4;
        message.truncate(end);
        message.push(0);
        assert_eq!(Marker::read(&message, "howdah_0"), Some(None), "half a marker is none");
    }
}
