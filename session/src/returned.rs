//! Parameters that are back at what a client asked for at login.
//!
//! A RESET leads a server back to its own default, and its client to what that asked for. The server
//! says its own, behind the answer and in front of the `ReadyForQuery`. Where nothing but texts that end state has run, and no
//! transaction is open, what the client has from its next request on is known by then, and is said in its place. Else the
//! client hears what the server says, for so it is until the transaction is over, and of its own as soon as it is known.

use std::mem;

use wire::Status;

use crate::inward::Inward;
use crate::rules::Mode;
use crate::trail::Ran;
use crate::{ClientSide, Vars};

impl Inward<'_> {
    /// Whether what the server says of this parameter may be none of its client's concern.
    pub(crate) fn may_return(&self, name: &[u8]) -> bool {
        let ends = self.server.trail.ran == Ran::Ends && self.rules.mode != Mode::Session;
        (ends || self.regains(name))
            && self.client.as_ref().is_some_and(|client| asked(client, name).is_some())
    }

    /// In front of a `ReadyForQuery`: what was kept back.
    pub(crate) fn report(&mut self, status: Status) {
        if self.server.reports.is_empty() {
            return;
        }
        let ended = status == Status::Idle
            && self.server.trail.ran == Ran::Ends
            && self.server.ledger.is_last();
        for (name, said) in mem::take(&mut self.server.reports) {
            let returns = ended || self.regains(&name);
            let Some(client) = &mut self.client else { return };
            let own = asked(client, &name).filter(|_| returns);
            let value = own.map_or(&said, |(_, asked)| asked).clone();
            if returns && client.vars.value(&name) == Some(&value) {
                continue;
            }
            self.flow
                .to_client
                .say(|out| wire::write::server::parameter_status(out, &name, &value));
            client.vars.set(&name, &value);
        }
    }
}

/// What the client asked for at login, of a tracked parameter.
fn asked<'a>(client: &'a ClientSide, name: &[u8]) -> Option<&'a (String, Vec<u8>)> {
    let vars = &client.asked.as_deref()?.vars;
    vars.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Append to `out` what a client whose parameters were as `before` has to be told, since they have gone back.
pub fn tell(client: &ClientSide, before: &Vars, out: &mut Vec<u8>) {
    for (name, _) in client.asked.iter().flat_map(|asked| &asked.vars) {
        let now = client.vars.value(name.as_bytes());
        if let Some(now) = now.filter(|now| before.value(name.as_bytes()) != Some(now)) {
            wire::write::server::parameter_status(out, name.as_bytes(), now);
        }
    }
}
