//! How a client has to prove itself: as `auth_type` says, or the rule that fits it.

use auth::{Judge, Method, Why};
use config::AuthType;
use io::Driver;

use crate::client::State;
use crate::worker::Worker;
use crate::world::World;

/// The way a client has to prove itself.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To us.
    Here(Method),
    /// To a directory, by its password.
    Ldap,
    /// To the system, by its password.
    Pam,
}

impl Way {
    /// How it is asked.
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Here(method) => *method,
            Self::Ldap => Method::Referred(Judge::Directory),
            Self::Pam => Method::Referred(Judge::System),
        }
    }
}

impl<D: Driver, W: World> Worker<D, W> {
    /// How a client that has said what it wants must prove itself. `None`: that has to be found out,
    /// and [`Worker::way_chosen`] follows.
    pub(crate) fn choose_way(&mut self, slot: u32) -> Option<Way> {
        let State::Login(entering) = &self.clients[slot as usize].state else { return None };
        let wish = entering.wish.as_ref()?;
        Some(match self.site.config.settings.auth_type {
            _ if wish.owner => Way::Here(Method::Any),
            AuthType::Any => Way::Here(Method::Any),
            AuthType::Trust => Way::Here(Method::Trust),
            AuthType::Plain => Way::Here(Method::Plain),
            AuthType::Md5 => Way::Here(Method::Md5),
            AuthType::ScramSha256 => Way::Here(Method::Scram),
            AuthType::Ldap => Way::Ldap,
            AuthType::Pam => Way::Pam,
            AuthType::Cert | AuthType::Hba => Way::Here(Method::Never(Why::NoMethod)),
        })
    }
}
