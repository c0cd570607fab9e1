//! Servers that could not be set to what their client is set to.
//!
//! Where that was bad luck (a time limit that another had left there, a signal, the server's end), nothing of the client's has been run, and
//! another server runs it. Where the server refused a value, any other would: the client hears what it said.

use std::mem;

use io::Driver;
use session::{Own, Tie};
use wire::ErrorFields;

use crate::client::State;
use crate::end::Why;
use crate::log::Level;
use crate::state::{Behind, fatal_of};
use crate::worker::Worker;
use crate::world::World;

/// So many servers in a row that cannot be set are enough.
const UNSET_MAX: u8 = 5;

/// What says nothing of the values: too little memory or the like, a lock not had in time, a signal or a time limit, a server that ends.
const LUCK: [&[u8]; 3] = [b"53", b"55P03", b"57"];

impl<D: Driver, W: World> Worker<D, W> {
    /// A client's settings were refused: its queries would run with others.
    pub(crate) fn vars_refused(&mut self, entry: u32, error: &[u8]) {
        let fields = ErrorFields::new(error);
        let is_luck = matches!(fields.severity(), b"FATAL" | b"PANIC")
            || LUCK.iter().any(|class| fields.code().starts_with(class));
        if is_luck && self.serve_elsewhere(entry) {
            return;
        }
        let message = String::from_utf8_lossy(fields.message());
        let text = format!("the server refused settings: {message}");
        self.log_server(entry, Level::Warning, format_args!("{text}"));
        let slot = self.servers[entry as usize].client.map(|client| client.0);
        let proving = |slot: &u32| self.clients.get(*slot as usize).is_some_and(|c| c.proving);
        match slot.filter(proving) {
            Some(slot) => self.not_proven(slot, entry, error),
            None => self.settings_lost(entry, error),
        }
    }

    /// Its client would go on with settings that are not its own: it hears of the error by which that is so.
    pub(crate) fn settings_lost(&mut self, entry: u32, error: &[u8]) {
        self.count_unset(entry);
        let Some(slot) = self.servers[entry as usize].client.map(|client| client.0) else {
            return self.server_dies(entry, "client settings were refused by the server");
        };
        self.servers[entry as usize].client = None;
        self.server_dies(entry, "client settings were refused by the server");
        if let Some(client) = self.clients.get_mut(slot as usize) {
            let _gone = self.links.clear(slot);
            client.state = State::Idle;
            self.client_leaves(slot, Why::Server(fatal_of(error).into()));
        }
    }

    /// `entry` could not be set, by bad luck: its client goes on elsewhere, or where it is tied to it, once more here. `false`: it
    /// has had too much of that.
    pub(crate) fn serve_elsewhere(&mut self, entry: u32) -> bool {
        let server = &mut self.servers[entry as usize];
        let Some(slot) = server.client.map(|client| client.0) else { return false };
        let Some(client) = self.clients.get_mut(slot as usize) else { return false };
        let tries = &mut client.card.rare().unset;
        *tries += 1;
        if *tries > UNSET_MAX {
            return false;
        }
        if !server.side.trail.ties.is_none() {
            let repeats = server.own.is_none() && server.side.is_at_rest();
            return repeats && self.adapt(slot, entry, Behind::Nothing);
        }
        let (flight, cancelled) =
            (mem::take(&mut server.flight), mem::take(&mut server.cancel_behind));
        if server.side.is_ahead() {
            server.side.take_back_flight(&mut client.side);
            client.held.splice(..0, flight);
        }
        if cancelled {
            self.cancel_in_line(slot);
        }
        self.count_unset(entry);
        let text = "it could not be set for its client, who is served elsewhere";
        self.log_server(entry, Level::Warning, format_args!("{text}"));
        self.try_another(entry);
        true
    }

    /// `entry` hung up. Whether that was while it was being set, so that its client goes on elsewhere. After a goodbye in due form
    /// nothing that it did is unheard; where the line is `broken`, what was said behind may have been run.
    pub(crate) fn ended_unset(&mut self, entry: u32, broken: bool) -> bool {
        let server = &self.servers[entry as usize];
        let unsaid = server.own == Some(Own::Set);
        (unsaid || !broken && server.side.is_ahead()) && self.serve_elsewhere(entry)
    }

    /// `entry` is what its client is set to.
    pub(crate) fn was_set(&mut self, entry: u32) {
        let server = &mut self.servers[entry as usize];
        let flight = mem::take(&mut server.flight);
        let client = server.client.and_then(|client| self.clients.get_mut(client.0 as usize));
        if let Some(rare) = client.and_then(|client| client.card.rare.as_mut()) {
            rare.unset = 0;
        }
        self.keep_memory(flight);
    }

    fn count_unset(&mut self, entry: u32) {
        let at = Tie::ALL.iter().position(|tie| *tie == Tie::Settings);
        let pool = self.servers[entry as usize].pool;
        if let (Some(at), Some(room)) = (at, self.room_mut(pool)) {
            room.pins[at].unset += 1;
        }
    }
}
