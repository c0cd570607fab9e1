//! Clients that come in during a SUSPEND. Who wants the console is let in, for somebody has to end it; everybody
//! else has said what he wants, and hears nothing before it is over.

use io::Driver;

use crate::client::State;
use crate::enter::{Entering, Outcome};
use crate::worker::Worker;
use crate::world::World;

impl State {
    /// Whether a SUSPEND is no matter to it: it is the console, or may turn out to want it.
    pub(crate) fn has_to_do_with_the_console(&self) -> bool {
        match self {
            Self::Console(_) => true,
            Self::Login(entering) => entering.is_for_console().unwrap_or(true),
            _ => false,
        }
    }
}

impl Entering {
    /// `None` while that is not known.
    fn is_for_console(&self) -> Option<bool> {
        let wish = self.wish.as_ref()?;
        Some(matches!(wish.outcome, Outcome::Console(_)))
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// `slot` has said what it wants. Whether it has to wait with that.
    pub(crate) fn park(&mut self, slot: u32) -> bool {
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return false };
        if !self.standing.suspended || entering.is_for_console() != Some(false) {
            return false;
        }
        entering.parked = true;
        self.regulate(slot);
        true
    }

    /// The SUSPEND is over.
    pub(crate) fn unpark(&mut self) {
        let now = self.now;
        let mut parked = Vec::new();
        for (slot, client) in &mut self.clients {
            if let State::Login(entering) = &mut client.state
                && std::mem::take(&mut entering.parked)
            {
                client.since = now;
                parked.push(crate::slot(slot));
            }
        }
        for slot in parked {
            if let Some(way) = self.choose_way(slot) {
                self.way_chosen(slot, way);
            }
        }
    }
}
