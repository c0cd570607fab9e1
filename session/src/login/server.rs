//! Our login to a server: from the startup packet to its first `ReadyForQuery`.

use std::borrow::Cow;
use std::fmt;

use auth::{Answer, Channel, Credentials, Derived, Fault, Job, Nonce, ServerAuth};
use wire::{BackendKey, ErrorFields, Negotiate, ParameterStatus, Report, Status, tag, write};

use super::Replication;
use super::client::{PROTOCOL_VIOLATION, fatal};
use super::inbox::Inbox;

/// Longest message a server may send before it is ready. The longest honest one is an error.
const MESSAGE_MAX: usize = 65_535;

/// Most a server may say before it is ready, notices and all.
const LOGIN_MAX: usize = 1 << 20;

/// One server connection that is logging in.
///
/// Bytes go into [`hear`](Self::hear); what must be sent is appended to `out` by every call.
pub struct ServerLogin {
    inbox: Inbox,
    auth: Box<ServerAuth>,
    phase: Phase,
    /// Bytes heard so far. heard <= LOGIN_MAX
    heard: usize,
    /// As asked for, then as agreed.
    minor: u16,
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
    key: Option<(u32, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// It may still say which protocol it speaks.
    Opening,
    Authenticating,
    /// Somebody works on a [`Job`].
    Deriving,
    /// It tells its settings.
    Settling,
    Over,
}

impl ServerLogin {
    /// Writes the startup packet.
    #[must_use]
    pub fn start(opening: Opening<'_>, nonce: &Nonce, out: &mut Vec<u8>) -> Self {
        let Opening { user, database, replication, minor, parameters, credentials, channel } =
            opening;
        let replication: Option<&[u8]> = match replication {
            Replication::None => None,
            Replication::Physical => Some(b"true"),
            Replication::Logical => Some(b"database"),
        };
        let first = [(&b"user"[..], Some(user)), (b"database", Some(database))];
        let named = first.into_iter().chain([(&b"replication"[..], replication)]);
        let named = named.filter_map(|(name, value)| Some((name, value?)));
        write::client::startup(out, minor, named.chain(parameters.iter().copied()));
        Self {
            inbox: Inbox::default(),
            auth: Box::new(ServerAuth::new(user, credentials, channel, nonce)),
            phase: Phase::Opening,
            heard: 0,
            minor,
            parameters: Vec::new(),
            key: None,
        }
    }

    /// Bytes from the server.
    pub fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> ServerStep {
        if bytes.len() > LOGIN_MAX - self.heard {
            return self.fail("too many bytes from the server before its login is done");
        }
        self.heard += bytes.len();
        self.inbox.push(bytes);
        self.go_on(out)
    }

    /// What the job of [`ServerStep::Derive`] came to, or what was remembered of an equal one.
    pub fn derived(&mut self, derived: &Derived, out: &mut Vec<u8>) -> ServerStep {
        if self.phase != Phase::Deriving {
            return self.fail("keys out of turn");
        }
        self.phase = Phase::Authenticating;
        let answer = self.auth.derived(derived);
        match self.carry_out(answer, out) {
            ServerStep::More => self.go_on(out),
            step => step,
        }
    }

    fn go_on(&mut self, out: &mut Vec<u8>) -> ServerStep {
        while !matches!(self.phase, Phase::Deriving | Phase::Over) {
            let (tag, len) = match self.inbox.header() {
                Ok(None) => return ServerStep::More,
                Ok(Some((tag, len))) if len > MESSAGE_MAX => {
                    let tag = tag.escape_ascii();
                    return self.fail(format!("message '{tag}' of {len} bytes during login"));
                }
                Ok(Some(header)) => header,
                Err(malformed) => return self.fail(malformed.to_string()),
            };
            let Some(body) = self.inbox.body(len).map(<[u8]>::to_vec) else {
                return ServerStep::More;
            };
            match self.message(tag, &body, out) {
                ServerStep::More => {}
                step => return step,
            }
        }
        ServerStep::More
    }

    fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> ServerStep {
        match (tag, self.phase) {
            (tag::server::ERROR, _) => {
                self.phase = Phase::Over;
                ServerStep::Failed(Failure::Server { body: body.to_vec() })
            }
            // Nobody is there yet whom they could be meant for.
            (tag::server::NOTICE, _) | (tag::server::NOTIFICATION, Phase::Settling) => {
                ServerStep::More
            }
            (tag::server::NEGOTIATE, Phase::Opening) => self.negotiate(body),
            (tag::server::AUTHENTICATION, Phase::Opening | Phase::Authenticating) => {
                self.phase = Phase::Authenticating;
                let answer = self.auth.asked(body);
                self.carry_out(answer, out)
            }
            (tag::server::PARAMETER_STATUS, Phase::Settling) => self.parameter(body),
            (tag::server::BACKEND_KEY_DATA, Phase::Settling) => match BackendKey::read(body) {
                Ok(BackendKey { pid, key }) => {
                    self.key = Some((pid, key.to_vec()));
                    ServerStep::More
                }
                Err(malformed) => self.fail(malformed.to_string()),
            },
            (tag::server::READY_FOR_QUERY, Phase::Settling) => match Status::read(body) {
                Ok(Status::Idle) => self.ready(),
                Ok(_) => self.fail("the server is in a transaction after login"),
                Err(malformed) => self.fail(malformed.to_string()),
            },
            (tag, _) => {
                self.fail(format!("unexpected message '{}' during login", tag.escape_ascii()))
            }
        }
    }

    fn carry_out(&mut self, answer: Answer, out: &mut Vec<u8>) -> ServerStep {
        match answer {
            Answer::Send(body) => {
                write::message(out, tag::client::PASSWORD, |out| out.extend_from_slice(&body));
                ServerStep::More
            }
            Answer::Wait => ServerStep::More,
            Answer::Derive(job) => {
                self.phase = Phase::Deriving;
                ServerStep::Derive(job)
            }
            Answer::Done => {
                self.phase = Phase::Settling;
                ServerStep::More
            }
            Answer::Failed(fault) => {
                self.phase = Phase::Over;
                ServerStep::Failed(Failure::Auth(fault))
            }
        }
    }

    fn negotiate(&mut self, body: &[u8]) -> ServerStep {
        // Once is enough, and only for less than was asked.
        self.phase = Phase::Authenticating;
        match Negotiate::read(body) {
            Ok(Negotiate { version, .. })
                if version >= 3 << 16 && version < 3 << 16 | u32::from(self.minor) =>
            {
                self.minor = 0;
                ServerStep::More
            }
            Ok(Negotiate { version, .. }) => {
                let (major, minor) = (version >> 16, version & 0xffff);
                self.fail(format!("the server wants protocol {major}.{minor}"))
            }
            Err(malformed) => self.fail(malformed.to_string()),
        }
    }

    fn parameter(&mut self, body: &[u8]) -> ServerStep {
        match ParameterStatus::read(body) {
            Ok(ParameterStatus { name, value }) => {
                match self.parameters.iter_mut().find(|(other, _)| other == name) {
                    Some((_, old)) => *old = value.to_vec(),
                    None => self.parameters.push((name.to_vec(), value.to_vec())),
                }
                ServerStep::More
            }
            Err(malformed) => self.fail(malformed.to_string()),
        }
    }

    fn ready(&mut self) -> ServerStep {
        self.phase = Phase::Over;
        ServerStep::Ready(Greeting {
            parameters: std::mem::take(&mut self.parameters),
            key: self.key.take(),
            minor: self.minor,
            leftover: self.inbox.take_rest(),
        })
    }

    fn fail(&mut self, text: impl Into<Cow<'static, str>>) -> ServerStep {
        self.phase = Phase::Over;
        ServerStep::Failed(Failure::Protocol(text.into()))
    }
}

impl fmt::Debug for ServerLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerLogin {{ phase: {:?}, .. }}", self.phase)
    }
}

/// Who logs in, to what.
#[derive(Debug)]
pub struct Opening<'a> {
    pub user: &'a [u8],
    pub database: &'a [u8],
    pub replication: Replication,
    /// Of protocol 3, to be asked for: 0 or 2. Servers since 9.3 answer 2 with what they can;
    /// older ones fail the login.
    pub minor: u16,
    /// Settings the session begins with, `application_name` and `client_encoding` among them.
    pub parameters: &'a [(&'a [u8], &'a [u8])],
    pub credentials: Credentials,
    /// Over which we have come.
    pub channel: Channel,
}

/// What is to be done next, after `out` has been sent.
#[derive(Debug)]
pub enum ServerStep {
    /// Wait for more bytes.
    More,
    /// Have this done elsewhere; the outcome goes to [`ServerLogin::derived`].
    Derive(Job),
    /// Logged in, and idle.
    Ready(Greeting),
    /// Close.
    Failed(Failure),
}

/// What a server said of itself at login.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Greeting {
    /// In the server's order, each once, with the last value it had.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Process id and cancel key (4 to 256 bytes). Some servers cannot cancel and send none.
    pub key: Option<(u32, Vec<u8>)>,
    /// Of protocol 3, as agreed: 0 or 2.
    pub minor: u16,
    /// What came after the `ReadyForQuery`, if anything.
    pub leftover: Vec<u8>,
}

/// Why a login to a server failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The server said so: the body of its `ErrorResponse`, whatever is in it or missing.
    Server { body: Vec<u8> },
    /// It could not be authenticated, on our side.
    Auth(Fault),
    /// The server broke the protocol.
    Protocol(Cow<'static, str>),
}

impl Failure {
    /// What waiting clients are told. Never empty.
    #[must_use]
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Server { body } => match ErrorFields::new(body).message() {
                b"" => Cow::Borrowed(b"server login failed"),
                message => Cow::Borrowed(message),
            },
            Self::Auth(fault) => Cow::Borrowed(fault.text().as_bytes()),
            Self::Protocol(_) => Cow::Borrowed(b"server login failed"),
        }
    }

    /// SQLSTATE, five bytes: the server's if it sent a proper one.
    #[must_use]
    pub fn sqlstate(&self) -> &[u8] {
        match self {
            Self::Server { body } => match ErrorFields::new(body).code() {
                code if code.len() == 5 && code.iter().all(u8::is_ascii_alphanumeric) => code,
                _ => PROTOCOL_VIOLATION,
            },
            Self::Auth(_) | Self::Protocol(_) => PROTOCOL_VIOLATION,
        }
    }

    /// Tells a waiting client, in well-formed words even if the server's were not.
    pub fn tell(&self, out: &mut Vec<u8>) {
        match self {
            // Why it cannot work is the admin's to mend, and often the client's to find out.
            Self::Auth(fault) => {
                let detail = fault.detail();
                let report = Report {
                    severity: b"FATAL",
                    code: self.sqlstate(),
                    message: fault.text().as_bytes(),
                    detail: Some(detail.as_bytes()),
                    ..Report::default()
                };
                write::server::error_response(out, &report);
            }
            Self::Server { .. } | Self::Protocol(_) => fatal(out, &self.text(), self.sqlstate()),
        }
    }
}

/// For the log, with all that we know.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { body } => {
                let severity = match ErrorFields::new(body).severity() {
                    b"" => b"FATAL",
                    severity => severity,
                };
                let (severity, text) =
                    (String::from_utf8_lossy(severity), self.text().into_owned());
                write!(f, "{severity}: {}", String::from_utf8_lossy(&text))
            }
            Self::Auth(fault) => fault.fmt(f),
            Self::Protocol(text) => f.write_str(text),
        }
    }
}
