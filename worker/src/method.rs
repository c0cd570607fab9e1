//! How a client has to prove itself: as `auth_type` says, or the rule of `auth_hba_file` that fits it.

use std::sync::Arc;

use auth::hba::{Caller, ClientCert, ClientName, Door, Found, HostName, Options, Rule, Verdict};
use auth::{Certificate, Channel, Judge, Method, TlsFacts, Voucher, Why};
use config::AuthType;
use io::{Address, Driver};
use session::login::Replication;

use crate::client::State;
use crate::enter::Wish;
use crate::log::Level;
use crate::mail::Party;
use crate::membership::Standing;
use crate::site::Site;
use crate::worker::Worker;
use crate::world::{About, Errand, World};

/// The way a client has to prove itself.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To us.
    Here(Method),
    /// To a directory, by its password; with the options of this rule, or of `auth_ldap_options`.
    Ldap(Option<Arc<Rule>>),
    /// To the system, by its password; with the options of this rule, or none.
    Pam(Option<Arc<Rule>>),
}

impl Way {
    /// How it is asked.
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Here(method) => *method,
            Self::Ldap(_) => Method::Referred(Judge::Directory),
            Self::Pam(_) => Method::Referred(Judge::System),
        }
    }
}

/// What was found out about a client for the rules, each asked for at most once. An inner `None`: there
/// is no such name.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    host: Option<Option<Box<str>>>,
    account: Option<Option<Box<str>>>,
    pub(crate) roles: Option<Standing>,
}

/// Either the way, or what has to be found out first.
enum Choice {
    Way(Way),
    Learn(About),
    LearnRoles,
}

impl Choice {
    const fn never(why: Why) -> Self {
        Self::Way(Way::Here(Method::Never(why)))
    }

    const fn here(method: Method) -> Self {
        Self::Way(Way::Here(method))
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// How a client that has said what it wants must prove itself. `None`: that has to be found out,
    /// and [`Worker::way_chosen`] follows.
    pub(crate) fn choose_way(&mut self, slot: u32) -> Option<Way> {
        let client = &self.clients[slot as usize];
        let State::Login(entering) = &client.state else { return None };
        let wish = entering.wish.as_ref()?;
        let card = &client.card;
        let (tls, ends) = (card.tls(), &card.ends.open());
        let asker = Asker { site: &self.site, wish, tls, ends };
        let choice = asker.choose();
        if let Choice::Way(way) = &choice {
            self.tell_rule(slot, way);
        }
        match choice {
            Choice::Way(way) => Some(way),
            // Rules that changed meanwhile may ask for others.
            Choice::LearnRoles if self.learn_roles(slot) => self.choose_way(slot),
            Choice::LearnRoles => None,
            Choice::Learn(about) => {
                let party = Party::Client { slot, id: self.clients[slot as usize].card.id };
                self.world.errand(Errand::Learn { worker: self.me, party, about });
                None
            }
        }
    }

    /// Something was found out about a client that is logging in.
    pub(crate) fn learnt(&mut self, party: Party, about: About, name: Option<Box<str>>) {
        let Party::Client { slot, id } = party else { return };
        let client = self.clients.get_mut(slot as usize).filter(|client| client.card.id == id);
        let Some(State::Login(entering)) = client.map(|client| &mut client.state) else { return };
        let Some(wish) = &mut entering.wish else { return };
        match about {
            About::Host(_) => wish.learnt.host = Some(name),
            About::Account(_) => wish.learnt.account = Some(name),
        }
        if let Some(way) = self.choose_way(slot) {
            self.way_chosen(slot, way);
        }
    }

    /// What a client's login goes over.
    pub(crate) fn channel(&self, slot: u32) -> Channel {
        match self.clients[slot as usize].card.tls() {
            Some(tls) => Channel::Tls { end_point: tls.end_point.clone() },
            None => Channel::Open,
        }
    }

    /// Why somebody is not even asked is for the log: the client hears the same of every rule.
    fn tell_rule(&mut self, slot: u32, way: &Way) {
        if !matches!(way, Way::Here(Method::Never(Why::Rejected))) {
            return;
        }
        let client = &self.clients[slot as usize];
        let State::Login(entering) = &client.state else { return };
        let Some(wish) = &entering.wish else { return };
        let card = &client.card;
        let (tls, ends) = (card.tls(), &card.ends.open());
        let asker = Asker { site: &self.site, wish, tls, ends };
        let found = self.site.rules.find(&asker.caller());
        let doubtful = matches!(found, Found::Doubtful(_));
        let (Found::Rule(rule) | Found::Doubtful(rule)) = found else { return };
        let (place, unreadable) = (rule.place.clone(), rule.verdict == Verdict::Unreadable);
        if doubtful {
            let text = format_args!(
                "rejected by a line about members of a role, which nobody can be asked about: {place} \
                 (set auth_user)"
            );
            self.log_client(slot, Level::Warning, text);
        } else if unreadable {
            let text = format_args!("rejected by a line that cannot be read: {place}");
            self.log_client(slot, Level::Warning, text);
        } else {
            self.log_client(slot, Level::Debug, format_args!("rejected by {place}"));
        }
    }
}

/// A client that is about to be asked.
struct Asker<'a> {
    site: &'a Site,
    wish: &'a Wish,
    tls: Option<&'a TlsFacts>,
    ends: &'a io::Ends,
}

impl Asker<'_> {
    fn choose(&self) -> Choice {
        Choice::here(match self.site.config.settings.auth_type {
            _ if self.wish.owner => Method::Any,
            AuthType::Any => Method::Any,
            AuthType::Trust => Method::Trust,
            AuthType::Plain => Method::Plain,
            AuthType::Md5 => Method::Md5,
            AuthType::ScramSha256 => Method::Scram,
            AuthType::Cert => self.by_certificate(&Options::default()),
            AuthType::Ldap => return Choice::Way(Way::Ldap(None)),
            AuthType::Pam => return Choice::Way(Way::Pam(None)),
            AuthType::Hba => return self.by_rules(),
        })
    }

    fn by_rules(&self) -> Choice {
        let caller = self.caller();
        match (self.site.rules.find(&caller), caller.door) {
            (Found::Rule(rule), _) => self.by_rule(rule),
            (Found::HostNameNeeded, Door::Tcp { from, .. }) => Choice::Learn(About::Host(from)),
            (Found::RolesNeeded, _) => Choice::LearnRoles,
            (Found::Doubtful(_), _) => Choice::never(Why::Rejected),
            (Found::Nothing | Found::HostNameNeeded, _) => Choice::never(Why::NoMethod),
        }
    }

    fn by_rule(&self, rule: &Arc<Rule>) -> Choice {
        let options = &rule.options;
        let certificate = self.tls.and_then(|tls| tls.certificate.as_ref());
        let good = match (options.client_cert, certificate) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ClientCert::VerifyCa), Some(_)) => true,
            (Some(ClientCert::VerifyFull), Some(_)) => {
                matches!(self.by_certificate(options), Method::Vouched(_))
            }
        };
        if !good {
            return Choice::never(Why::Certificate);
        }
        Choice::here(match rule.verdict {
            Verdict::Trust => Method::Trust,
            Verdict::Reject | Verdict::Unreadable => Method::Never(Why::Rejected),
            Verdict::Md5 => Method::Md5,
            Verdict::Password => Method::Plain,
            Verdict::Scram => Method::Scram,
            Verdict::Cert => self.by_certificate(options),
            Verdict::Peer => return self.by_peer(options),
            Verdict::Ldap => return Choice::Way(Way::Ldap(Some(rule.clone()))),
            Verdict::Pam => return Choice::Way(Way::Pam(Some(rule.clone()))),
        })
    }

    /// The account of the process at the other end of the unix socket must be the user's, or be
    /// mapped to it.
    fn by_peer(&self, options: &Options) -> Choice {
        let (Address::Unix(_), Some(uid)) = (&self.ends.peer, self.ends.uid) else {
            return Choice::never(Why::Peer);
        };
        match &self.wish.learnt.account {
            None => Choice::Learn(About::Account(uid)),
            Some(Some(account)) if self.admit(options, account.as_bytes()) => {
                Choice::here(Method::Vouched(Voucher::Peer))
            }
            Some(_) => Choice::never(Why::Peer),
        }
    }

    /// A name in the certificate must be the user's, or be mapped to it.
    fn by_certificate(&self, options: &Options) -> Method {
        let name = |certificate: &Certificate| match options.client_name {
            ClientName::CommonName => certificate.common_name.as_deref().map(str::to_owned),
            ClientName::DistinguishedName => Some(certificate.distinguished_name.clone()),
        };
        let certificate = self.tls.and_then(|tls| tls.certificate.as_ref());
        match certificate.and_then(name) {
            Some(name) if self.admit(options, name.as_bytes()) => {
                Method::Vouched(Voucher::Certificate)
            }
            _ => Method::Never(Why::Certificate),
        }
    }

    fn admit(&self, options: &Options, name: &[u8]) -> bool {
        self.site.maps.admit(options.map.as_deref(), name, &self.wish.facts.user)
    }

    fn caller(&self) -> Caller<'_> {
        let facts = &self.wish.facts;
        Caller {
            door: match &self.ends.peer {
                Address::Unix(_) => Door::Unix,
                Address::Inet(from) => Door::Tcp { from: from.ip(), tls: self.tls.is_some() },
            },
            database: &facts.database,
            user: &facts.user,
            replicates: facts.replication == Replication::Physical,
            host: match &self.wish.learnt.host {
                None => HostName::NotAskedFor,
                Some(None) => HostName::None,
                Some(Some(name)) => HostName::Is(name),
            },
            roles: Standing::seen(self.wish.learnt.roles.as_ref()),
        }
    }
}
