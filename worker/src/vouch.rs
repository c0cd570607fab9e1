//! Clients whose password somebody else looks at: a directory, or the system.

use std::time::Duration;

use auth::Password;
use auth::vouch::{Case, Judge};
use io::{Address, Driver};

use crate::client::State;
use crate::log::Level;
use crate::mail::Party;
use crate::method::Way;
use crate::worker::Worker;
use crate::world::{Errand, World};

/// The file of `/etc/pam.d` that says how.
const SERVICE: &str = "pgbouncer";

/// Where `client_login_timeout` is off, somebody else's word must still come some time.
const WITHIN: Duration = Duration::from_secs(60);

impl<D: Driver, W: World> Worker<D, W> {
    /// `slot` gave its password, which is not ours to judge.
    pub(crate) fn refer(&mut self, slot: u32, password: Password) {
        let client = &self.clients[slot as usize];
        let State::Login(entering) = &client.state else { return };
        let (Some(wish), Some(way)) = (&entering.wish, &entering.way) else { return };
        let judge = match way {
            Way::Ldap(None) => self.site.directory.clone().map(Judge::Directory),
            Way::Ldap(Some(rule)) => rule.options.directory.clone().map(Judge::Directory),
            Way::Pam(rule) => {
                let service = rule.as_ref().and_then(|rule| rule.options.pam_service.as_deref());
                let service = service.unwrap_or(SERVICE).to_owned();
                let from = match &client.card.ends.open().peer {
                    Address::Inet(at) => at.ip().to_string(),
                    Address::Unix(_) => String::new(),
                };
                Some(Judge::System { service, from })
            }
            Way::Here(_) => None,
        };
        let party = Party::Client { slot, id: client.card.id };
        let limit = self.site.config.settings.client_login_timeout;
        let within = if limit.is_zero() { WITHIN } else { limit };
        // Whoever has a name that is no text is in no directory.
        let user = String::from_utf8(wish.facts.user.clone()).ok();
        match (judge, user) {
            (Some(judge), Some(user)) => {
                let case = Case { judge, user, password, within };
                self.world.errand(Errand::Vouch { worker: self.me, party, case });
            }
            (None, _) => self.vouched(slot, Err("there is nobody to ask".to_owned())),
            (_, None) => self.vouched(slot, Err("the name is no text".to_owned())),
        }
    }

    /// Somebody else said what there is to say about the password of `slot`.
    pub(crate) fn vouched(&mut self, slot: u32, verdict: Result<(), String>) {
        let State::Login(entering) = &self.clients[slot as usize].state else { return };
        let who = match &entering.way {
            Some(Way::Ldap(_)) => "LDAP",
            Some(Way::Pam(_)) => "PAM",
            _ => return,
        };
        if let Err(why) = &verdict {
            self.log_client(slot, Level::Warning, format_args!("{who}: {why}"));
        }
        let State::Login(entering) = &mut self.clients[slot as usize].state else { return };
        let mut out = Vec::new();
        let step = entering.login.judged(verdict.is_ok(), &mut out);
        self.login_goes_on(slot, step, out);
    }
}
