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

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use io::Driver;
use pool::{Duration, PoolId, ServerId, WorkerId};
use session::Own;
use wire::{Notification, Report};

use crate::client::{Client, State};
use crate::end::Why;
use crate::worker::Worker;
use crate::world::World;
use hub::Hub;
use marker::Marker;

mod hub;
mod marker;

pub(crate) use hub::HUB;
pub use hub::HubCard;

/// Channels, as PostgreSQL spells them.
type Channels = Arc<[Box<[u8]>]>;

/// A client that listens and does nothing else keeps its server so long, if nobody waits for one.
const KEEPS: Duration = Duration::from_millis(250);

/// A client may be so many bytes behind with its notifications; then it is hung up on, for none
/// may be lost in silence.
const BEHIND_MAX: usize = 1 << 20;

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
