//! A client's way in: startup packet, authentication, welcome.

use std::fmt;
use std::time::Duration;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use crate::place::Address;
use crate::raw::{Heard, Raw};
use crate::reply::{Fields, Message, Reply};
use crate::say;

/// Who wants in, and how.
#[derive(Clone, Debug)]
pub struct Login {
    pub address: Address,
    pub user: String,
    pub password: String,
    pub database: String,
    pub minor: u16,
    pub parameters: Vec<(String, String)>,
    /// Whether to ask for TLS.
    pub encrypted: bool,
}

/// The door stayed shut.
#[derive(Clone)]
pub struct Refused(pub Reply);

impl Refused {
    /// # Panics
    /// When the connection was closed without an error.
    #[must_use]
    pub fn error(&self) -> Fields {
        self.0.error().unwrap_or_else(|| panic!("closed without an error: {:?}", self.0))
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "login refused: {:?}", self.0.0)
    }
}

impl Login {
    #[must_use]
    pub fn new(address: Address, user: &str, password: &str, database: &str) -> Self {
        let (user, password, database) = (user.into(), password.into(), database.into());
        Self {
            address,
            user,
            password,
            database,
            minor: 0,
            parameters: Vec::new(),
            encrypted: false,
        }
    }

    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn encrypted(mut self) -> Self {
        self.encrypted = true;
        self
    }

    #[must_use]
    pub fn minor(mut self, minor: u16) -> Self {
        self.minor = minor;
        self
    }

    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = password.into();
        self
    }

    #[must_use]
    pub fn database(mut self, database: &str) -> Self {
        self.database = database.into();
        self
    }

    #[must_use]
    pub fn startup(&self) -> Vec<u8> {
        let mut parameters = vec![("user", self.user.as_str())];
        if !self.database.is_empty() {
            parameters.push(("database", &self.database));
        }
        parameters
            .extend(self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        say::startup(self.minor, &parameters)
    }

    /// Logs in, or panics with what was said instead.
    #[must_use]
    pub fn enter(&self) -> Raw {
        self.attempt()
            .unwrap_or_else(|refused| panic!("{}@{}: {refused:?}", self.user, self.database))
    }

    /// # Errors
    /// Everything the server said before it closed the connection.
    pub fn attempt(&self) -> Result<Raw, Refused> {
        let mut raw = match Raw::open(&self.address) {
            Ok(raw) => raw,
            Err(error) => {
                let body = [b"M", say::text(&error.to_string()).as_slice(), b"\0"].concat();
                return Err(Refused(Reply(vec![Message { tag: b'E', body }])));
            }
        };
        if self.encrypted {
            raw = raw.encrypted();
        }
        raw.send(&self.startup());
        self.answer(&mut raw)?;
        Ok(raw)
    }

    /// # Errors
    /// What was refused.
    ///
    /// # Panics
    /// When the welcome does not come within half a minute: longer than any timeout a test sets.
    pub fn answer(&self, raw: &mut Raw) -> Result<(), Refused> {
        let mut heard = Vec::new();
        let mut scram = None;
        loop {
            let message = match raw.hear(Duration::from_secs(30)) {
                Heard::Message(message) => message,
                Heard::Closed => return Err(Refused(Reply(heard))),
                Heard::Quiet => panic!("no answer to a login: {heard:?}"),
            };
            heard.push(message.clone());
            match message.tag {
                b'R' => {
                    if let Some(answer) = self.challenge(&message.body, &mut scram) {
                        raw.send(&answer);
                    }
                }
                b'K' => raw.key = Some(message.body),
                b'Z' => {
                    raw.welcome = Reply(heard);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// The answer to an Authentication request.
    fn challenge(&self, body: &[u8], scram: &mut Option<ScramSha256>) -> Option<Vec<u8>> {
        let kind = i32::from_be_bytes(body[..4].try_into().expect("four bytes"));
        let data = &body[4..];
        match kind {
            3 => Some(say::message(b'p', &say::text(&self.password))),
            5 => {
                let salt = data.try_into().expect("a salt of four bytes");
                let hash = md5_hash(self.user.as_bytes(), self.password.as_bytes(), salt);
                Some(say::message(b'p', &say::text(&hash)))
            }
            10 => {
                let scram = scram.insert(ScramSha256::new(
                    self.password.as_bytes(),
                    ChannelBinding::unsupported(),
                ));
                let first = scram.message();
                let mut answer = say::text("SCRAM-SHA-256");
                answer.extend(i32::try_from(first.len()).expect("short").to_be_bytes());
                answer.extend(first);
                Some(say::message(b'p', &answer))
            }
            11 => {
                let scram = scram.as_mut().expect("SASL began");
                scram.update(data).expect("a sound server-first message");
                Some(say::message(b'p', scram.message()))
            }
            12 => {
                scram
                    .as_mut()
                    .expect("SASL began")
                    .finish(data)
                    .expect("the server knows the secret too");
                None
            }
            _ => None,
        }
    }
}
