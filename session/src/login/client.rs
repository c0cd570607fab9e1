//! The login of a client: from its first byte until it is let in.

use std::borrow::Cow;

use auth::{
    Account, Ask, Channel, Claim, ClientAuth, ClientKeys, Decoy, Derived, Dice, Job, Method,
    Password,
};
use wire::{Malformed, Report, Startup, TLS_HANDSHAKE, tag, write};

use super::inbox::Inbox;

/// Longest body of a password message (`PG_MAX_AUTH_TOKEN_LENGTH`).
pub const MESSAGE_MAX: usize = 65_535;

/// Newest minor version of protocol 3 that we speak.
pub const MINOR_MAX: u16 = 2;

/// Most that may lie unread while the login waits for us: a password message, and a first query
/// sent along with it.
const UNREAD_MAX: usize = 4 * MESSAGE_MAX;

/// Longest database name (`MAX_DBNAME`); PostgreSQL's own names are no longer.
const DATABASE_LEN_MAX: usize = 63;

/// One client that is logging in. Drop it once it is let in.
///
/// Bytes go into [`hear`](Self::hear); what must be sent is appended to `out` by every call, also
/// when it refuses. Where a step asks the worker for something, bytes may still be heard: they are
/// kept until it has answered.
pub struct ClientLogin {
    inbox: Inbox,
    state: State,
    encryption: Encryption,
}

/// What a client gets that asks for TLS.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encryption {
    /// It does not get it.
    #[default]
    Denied,
    Offered,
    /// And one that does not ask is turned away.
    Required,
    /// It has it already.
    Done,
}

enum State {
    /// The first packet is awaited, or the next after a refused encryption.
    Opening(Asked),
    /// The worker has a TLS handshake made.
    Securing(Asked),
    /// The worker looks up who this is.
    Admission { user: Vec<u8> },
    /// A password message is awaited.
    Answer(Box<ClientAuth>),
    /// Somebody works on a [`Job`], or looks at the password.
    Deriving(Box<ClientAuth>),
    /// Let in, refused, or gone to cancel.
    Over,
}

/// Encryption that was asked for; each may be asked for once.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    tls: bool,
    gss: bool,
}

impl ClientLogin {
    #[must_use]
    pub fn new(encryption: Encryption) -> Self {
        let state = State::Opening(Asked::default());
        Self { inbox: Inbox::default(), state, encryption }
    }

    /// The handshake of [`Step::Secure`] is over: what is heard from now on came encrypted.
    pub fn secured(&mut self) {
        if let State::Securing(asked) = self.state {
            self.encryption = Encryption::Done;
            self.state = State::Opening(Asked { tls: true, ..asked });
        }
    }

    /// Bytes from the client.
    pub fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Step {
        if self.inbox.rest().len().saturating_add(bytes.len()) > UNREAD_MAX {
            return self.refuse(Refusal::new("too many bytes before the login is done"), out);
        }
        self.inbox.push(bytes);
        self.go_on(out)
    }

    /// The worker knows the user, or knows that there is none: how it must prove itself.
    pub fn admit(&mut self, plan: AuthPlan, decoy: &Decoy, out: &mut Vec<u8>) -> Step {
        let State::Admission { user } = std::mem::replace(&mut self.state, State::Over) else {
            return self.refuse(Refusal::new("admitted out of turn"), out);
        };
        let AuthPlan { method, account, channel, dice } = plan;
        let claim = Claim { method, user: &user, account, channel };
        let (auth, step) = ClientAuth::start(claim, decoy, dice);
        self.carry_out(Box::new(auth), step, out)
    }

    /// What the job of [`Step::Derive`] came to, or what was remembered of an equal one.
    pub fn derived(&mut self, derived: &Derived, out: &mut Vec<u8>) -> Step {
        let State::Deriving(mut auth) = std::mem::replace(&mut self.state, State::Over) else {
            return self.refuse(Refusal::new("keys out of turn"), out);
        };
        let step = auth.derived(derived);
        self.carry_out(auth, step, out)
    }

    /// What somebody else made of the password of [`Step::Refer`].
    pub fn judged(&mut self, is_right: bool, out: &mut Vec<u8>) -> Step {
        let State::Deriving(mut auth) = std::mem::replace(&mut self.state, State::Over) else {
            return self.refuse(Refusal::new("a verdict out of turn"), out);
        };
        let step = auth.judged(is_right);
        self.carry_out(auth, step, out)
    }

    /// What came after the last message of the login: the first of the session.
    #[must_use]
    pub fn leftover(&mut self) -> Vec<u8> {
        self.inbox.take_rest()
    }

    fn go_on(&mut self, out: &mut Vec<u8>) -> Step {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Opening(asked) => self.opening(asked, out),
            State::Answer(auth) => self.answer(auth, out),
            // Nobody speaks before he has shaken hands.
            State::Securing(_) => {
                Step::Refuse(Refusal::new("unencrypted bytes after a request for encryption"))
            }
            waiting @ (State::Admission { .. } | State::Deriving(_) | State::Over) => {
                self.state = waiting;
                Step::More
            }
        }
    }

    fn opening(&mut self, asked: Asked, out: &mut Vec<u8>) -> Step {
        let rest = self.inbox.rest();
        if rest.first() == Some(&TLS_HANDSHAKE) {
            if self.encryption.is_given() && !asked.tls && !asked.gss {
                self.state = State::Securing(asked);
                return Step::Secure { beginning: Some(self.inbox.take_rest()) };
            }
            // Not a word of ours would be understood.
            return Step::Refuse(Refusal::new("TLS handshake, but TLS is not enabled"));
        }
        let packet = match wire::first_packet(rest) {
            Ok(Some(len)) => self.inbox.take(len),
            Ok(None) => None,
            // A driver told to leave before it had begun says nothing but goodbye, and does not expect an error.
            Err(_) if rest.starts_with(&[tag::client::TERMINATE, 0, 0, 0]) => {
                return Step::Refuse(Refusal::new("client close request"));
            }
            Err(_) => {
                let refusal = bad_header(rest);
                return self.refuse(refusal, out);
            }
        };
        let Some(packet) = packet else {
            self.state = State::Opening(asked);
            return Step::More;
        };
        match Startup::read(packet) {
            Ok(Startup::SslRequest) if !asked.tls => {
                self.answer_request(Asked { tls: true, ..asked }, self.encryption.is_given(), out)
            }
            Ok(Startup::GssEncRequest) if !asked.gss => {
                self.answer_request(Asked { gss: true, ..asked }, false, out)
            }
            Ok(Startup::SslRequest | Startup::GssEncRequest) => {
                self.refuse(Refusal::new("encryption was asked for twice"), out)
            }
            Ok(Startup::CancelRequest { pid, key }) => Step::Cancel { pid, key: key.to_vec() },
            Ok(Startup::V3 { .. }) if self.encryption == Encryption::Required => {
                self.refuse(Refusal::new("SSL required"), out)
            }
            Ok(Startup::V3 { minor, parameters }) => match Facts::read(minor, parameters, out) {
                Ok(facts) => {
                    self.state = State::Admission { user: facts.user.clone() };
                    Step::Startup(Box::new(facts))
                }
                Err(refusal) => self.refuse(refusal, out),
            },
            Ok(Startup::Unknown { major: 2, .. }) => {
                self.refuse(Refusal::new("old V2 protocol not supported"), out)
            }
            Ok(Startup::Unknown { major, minor }) => {
                let text = format!("unsupported frontend protocol {major}.{minor}");
                self.refuse(Refusal::new(text), out)
            }
            Err(_) => self.refuse(Refusal::new("invalid startup packet layout"), out),
        }
    }

    /// Says yes or no to TLS or GSS. Whatever already lies behind the request was sent by somebody
    /// who did not wait for the answer, perhaps to have it taken for something that came encrypted.
    fn answer_request(&mut self, asked: Asked, yes: bool, out: &mut Vec<u8>) -> Step {
        if !self.inbox.rest().is_empty() {
            let refusal = Refusal::new("unencrypted bytes after a request for encryption");
            return self.refuse(refusal, out);
        }
        if yes {
            out.push(b'S');
            self.state = State::Securing(asked);
            return Step::Secure { beginning: None };
        }
        out.push(b'N');
        self.state = State::Opening(asked);
        Step::More
    }

    fn answer(&mut self, mut auth: Box<ClientAuth>, out: &mut Vec<u8>) -> Step {
        let refusal = match self.inbox.header() {
            Ok(None) => None,
            Ok(Some((tag::client::PASSWORD, len))) if len > MESSAGE_MAX => {
                Some(Refusal::new("password too long"))
            }
            Ok(Some((tag::client::PASSWORD, len))) => {
                if let Some(body) = self.inbox.body(len) {
                    let step = auth.answer(body);
                    return self.carry_out(auth, step, out);
                }
                None
            }
            Ok(Some((tag::client::TERMINATE, _))) => {
                return Step::Refuse(Refusal::new("client close request"));
            }
            Ok(Some((tag, _))) => {
                let tag = tag.escape_ascii();
                Some(Refusal::new(format!("expected a password, got message '{tag}'")))
            }
            Err(Malformed::Length { .. }) | Err(_) => Some(bad_header(self.inbox.rest())),
        };
        if let Some(refusal) = refusal {
            return self.refuse(refusal, out);
        }
        self.state = State::Answer(auth);
        Step::More
    }

    fn carry_out(&mut self, auth: Box<ClientAuth>, step: auth::Step, out: &mut Vec<u8>) -> Step {
        use write::server as say;
        match step {
            auth::Step::Ask(ask) => {
                match ask {
                    Ask::Cleartext => say::authentication_cleartext(out),
                    Ask::Md5 { salt } => say::authentication_md5(out, salt),
                    Ask::Sasl { mechanisms } => {
                        let names: Vec<&[u8]> =
                            mechanisms.iter().map(|name| name.as_bytes()).collect();
                        say::authentication_sasl(out, &names);
                    }
                    Ask::SaslContinue(data) => say::authentication_sasl_continue(out, &data),
                }
                self.state = State::Answer(auth);
                // The answer may have come before the question.
                self.go_on(out)
            }
            auth::Step::Derive(job) => {
                self.state = State::Deriving(auth);
                Step::Derive(job)
            }
            auth::Step::Refer(password) => {
                self.state = State::Deriving(auth);
                Step::Refer(password)
            }
            auth::Step::Accept(accepted) => {
                if let Some(data) = accepted.sasl_final {
                    say::authentication_sasl_final(out, &data);
                }
                Step::Accept(Proof { keys: accepted.keys, password: accepted.password })
            }
            auth::Step::Refuse(why) => {
                let refusal = Refusal { text: why.text().into(), log: why.to_string() };
                self.refuse(refusal, out)
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, out: &mut Vec<u8>) -> Step {
        self.state = State::Over;
        fatal(out, refusal.text.as_bytes(), PROTOCOL_VIOLATION);
        Step::Refuse(refusal)
    }
}

impl Encryption {
    fn is_given(self) -> bool {
        matches!(self, Self::Offered | Self::Required)
    }
}

impl std::fmt::Debug for ClientLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientLogin(..)")
    }
}

/// What is to be done next, after `out` has been sent.
#[derive(Debug)]
pub enum Step {
    /// Wait for more bytes.
    More,
    /// Have a TLS handshake made, once `out` has been sent, then say [`ClientLogin::secured`].
    /// `beginning`: the client began it without asking, and these are its first bytes; then it has
    /// to name the protocol by ALPN.
    Secure { beginning: Option<Vec<u8>> },
    /// This connection only wants to cancel what another does. It gets no answer.
    Cancel { pid: u32, key: Vec<u8> },
    /// Look up who this is, then [`ClientLogin::admit`] it, or say [`fatal`] and close.
    Startup(Box<Facts>),
    /// Have this done elsewhere; the outcome goes to [`ClientLogin::derived`].
    Derive(Job),
    /// Have somebody else look at this password; the verdict goes to [`ClientLogin::judged`].
    Refer(Password),
    /// Let in. [`welcome`] it, and take [`ClientLogin::leftover`].
    Accept(Proof),
    /// Close, once `out` has been sent. The error is in it, where the client would understand.
    Refuse(Refusal),
}

/// What a client's proof leaves behind, to log in to servers with.
#[derive(Debug, Default)]
pub struct Proof {
    /// After SCRAM.
    pub keys: Option<ClientKeys>,
    /// Where somebody else looked at it.
    pub password: Option<Password>,
}

/// How a client must prove itself.
#[derive(Debug)]
pub struct AuthPlan {
    pub method: Method,
    pub account: Account,
    /// Over which it has come.
    pub channel: Channel,
    pub dice: Dice,
}

/// Why a client is turned away.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// What the client is told, and what the log says as `closing because`.
    pub text: Cow<'static, str>,
    /// The same with what the client must not know.
    pub log: String,
}

impl Refusal {
    fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self { log: text.to_string(), text }
    }
}

/// What a startup packet says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    /// 1 to 127 bytes.
    pub user: Vec<u8>,
    /// 1 to 63 bytes; the user's name if none was given.
    pub database: Vec<u8>,
    pub replication: Replication,
    /// Of protocol 3, as agreed: 0 or 2.
    pub minor: u16,
    /// All else, in the client's order, `options` included. A replication client may say anything
    /// here; what others may say is the [`Policy`](super::Policy)'s to decide.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Whether a client wants to replicate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Replication {
    None,
    /// `replication=true`
    Physical,
    /// `replication=database`
    Logical,
}

impl Facts {
    /// Reads the packet. Says to `out` what we cannot do of the protocol asked for, exactly once.
    fn read(
        minor: u16,
        parameters: wire::Parameters<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Self, Refusal> {
        let mut facts = Self {
            user: Vec::new(),
            database: Vec::new(),
            replication: Replication::None,
            minor: spoken(minor),
            parameters: Vec::new(),
        };
        let mut unknown = Vec::new();
        for (name, value) in parameters {
            match name {
                b"user" => facts.user = value.to_vec(),
                b"database" => facts.database = value.to_vec(),
                b"replication" => facts.replication = Replication::read(value)?,
                name if name.starts_with(b"_pq_.") => unknown.push(name),
                name => facts.parameters.push((name.to_vec(), value.to_vec())),
            }
        }
        if facts.minor != minor || !unknown.is_empty() {
            let version = 3 << 16 | u32::from(facts.minor);
            write::server::negotiate(out, version, unknown.iter().copied());
        }
        if facts.user.is_empty() {
            return Err(Refusal::new("no username supplied"));
        }
        if facts.user.len() > auth::USER_LEN_MAX {
            return Err(Refusal::new("username too long"));
        }
        if facts.database.is_empty() {
            facts.database.clone_from(&facts.user);
        }
        if facts.database.len() > DATABASE_LEN_MAX {
            return Err(Refusal::new("database name too long"));
        }
        Ok(facts)
    }

    /// `application_name`, if the client gave one.
    #[must_use]
    pub fn application_name(&self) -> Option<&[u8]> {
        let found = self.parameters.iter().rfind(|(name, _)| name == b"application_name");
        found.map(|(_, value)| value.as_slice())
    }

    /// The values of `options`; PostgreSQL goes by the last.
    pub(super) fn options(&self) -> Option<&[u8]> {
        let found = self.parameters.iter().rfind(|(name, _)| name == b"options");
        found.map(|(_, value)| value.as_slice())
    }

    /// Every parameter but `options`.
    pub(super) fn others(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let others = self.parameters.iter().filter(|(name, _)| name != b"options");
        others.map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

impl Replication {
    /// `database`, or a boolean as PostgreSQL reads one: any beginning that leaves no doubt.
    fn read(value: &[u8]) -> Result<Self, Refusal> {
        let value = value.to_ascii_lowercase();
        let begins =
            |word: &str, least: usize| value.len() >= least && word.as_bytes().starts_with(&value);
        if value == b"database" {
            Ok(Self::Logical)
        } else if begins("true", 1) || begins("yes", 1) || begins("on", 2) || value == b"1" {
            Ok(Self::Physical)
        } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || value == b"0" {
            Ok(Self::None)
        } else {
            let value = String::from_utf8_lossy(&value).into_owned();
            let text = format!("invalid value for parameter \"replication\": \"{value}\"");
            Err(Refusal::new(text))
        }
    }
}

/// SQLSTATE of what a pooler says itself.
pub(super) const PROTOCOL_VIOLATION: &[u8] = b"08P01";

/// The minor version we answer with. There never was a 3.1: whoever asks for it gets 3.0.
const fn spoken(minor: u16) -> u16 {
    match minor {
        0 | 1 => 0,
        _ => MINOR_MAX,
    }
}

/// Bytes in a cancel key of ours, without the process id: it grew with protocol 3.2.
#[must_use]
pub const fn key_len(minor: u16) -> usize {
    if minor >= 2 { 32 } else { 4 }
}

/// The last words to a client. PgBouncer sends these three fields and no others.
pub fn fatal(out: &mut Vec<u8>, text: &[u8], code: &[u8]) {
    let report = Report { severity: b"FATAL", code, message: text, ..Report::default() };
    write::server::error_response(out, &report);
}

/// The first words to a client that has been let in, up to `ReadyForQuery`.
///
/// `key` has [`key_len`] bytes. `notice` is `login_notify_message`.
pub fn welcome<'a>(
    out: &mut Vec<u8>,
    parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    pid: u32,
    key: &[u8],
    notice: Option<&[u8]>,
) {
    write::server::authentication_ok(out);
    for (name, value) in parameters {
        write::server::parameter_status(out, name, value);
    }
    write::server::backend_key_data(out, pid, key);
    if let Some(message) = notice {
        let report = Report { severity: b"NOTICE", code: b"00000", message, ..Report::default() };
        write::server::notice_response(out, &report);
    }
    write::server::ready_for_query(out, wire::Status::Idle);
}

fn bad_header(bytes: &[u8]) -> Refusal {
    let header: Vec<_> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Refusal::new(format!("bad packet header: '{}'", header.concat()))
}
