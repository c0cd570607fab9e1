//! We prove to a server who we are.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::channel::Channel;
use crate::job::Origin;
use crate::scram::{
    self, Broken, Gs2, ITERATIONS_MAX, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ServerFinal,
    ServerFirst,
};
use crate::{Derived, Job, KeyRing, Password, Secret, md5};

/// One login to a server: its `Authentication…` messages in, our answers out.
pub struct ServerAuth {
    user: Vec<u8>,
    credentials: Credentials,
    nonce: String,
    channel: Channel,
    state: State,
}

/// What the server may say next.
enum State {
    /// Anything.
    Start,
    /// The verdict on a password it has been sent.
    Answered,
    SaslContinue(Gs2),
    Deriving(Exchange),
    SaslFinal {
        signature: [u8; 32],
    },
    /// The server has proved itself too; only the verdict is missing.
    SaslDone,
    Over,
}

/// A SCRAM exchange whose question has come.
struct Exchange {
    header: Gs2,
    server_first: String,
    /// The client's nonce, then the server's.
    nonce: String,
}

impl ServerAuth {
    #[must_use]
    pub fn new(user: &[u8], credentials: Credentials, channel: Channel, nonce: &Nonce) -> Self {
        let (user, nonce) = (user.to_vec(), scram::base64(nonce));
        Self { user, credentials, nonce, channel, state: State::Start }
    }

    /// The body of an `Authentication…` message (`R`).
    pub fn asked(&mut self, body: &[u8]) -> Answer {
        let Some((code, data)) = body.split_first_chunk::<4>() else {
            return self.fail(Fault::Malformed("authentication request without a code"));
        };
        let state = core::mem::replace(&mut self.state, State::Over);
        match (i32::from_be_bytes(*code), state) {
            // A server that breaks off a SASL exchange has not proved that it knows the verifier.
            (code::OK, State::Start | State::Answered | State::SaslDone) if data.is_empty() => {
                Answer::Done
            }
            (code::CLEARTEXT, State::Start) => self.cleartext(),
            (code::MD5, State::Start) => self.md5(data),
            (code::SASL, State::Start) => self.sasl(data),
            (code::SASL_CONTINUE, State::SaslContinue(header)) => self.sasl_continue(header, data),
            (code::SASL_FINAL, State::SaslFinal { signature }) => self.sasl_final(signature, data),
            (code @ (code::OK..=code::SASL_FINAL), _) if !code::UNSUPPORTED.contains(&code) => {
                self.fail(Fault::OutOfOrder { code })
            }
            (code, _) => self.fail(Fault::Unsupported { code }),
        }
    }

    /// What the [`Job`] of [`Answer::Derive`] came to, or what was remembered of an equal one.
    pub fn derived(&mut self, derived: &Derived) -> Answer {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Deriving(exchange) => {
                self.prove(&exchange, &derived.client_key, &derived.server_key)
            }
            _ => self.fail(Fault::Malformed("keys nobody asked for")),
        }
    }

    fn fail(&mut self, fault: Fault) -> Answer {
        self.state = State::Over;
        Answer::Failed(fault)
    }

    fn cleartext(&mut self) -> Answer {
        let Credentials::Plain(password) = &self.credentials else {
            return self.fail(self.lacking("a cleartext password"));
        };
        self.state = State::Answered;
        Answer::Send(Zeroizing::new([password.bytes(), b"\0"].concat()))
    }

    fn md5(&mut self, data: &[u8]) -> Answer {
        let Ok(salt) = <[u8; 4]>::try_from(data) else {
            return self.fail(Fault::Malformed("MD5 salt of the wrong length"));
        };
        let digest = match &self.credentials {
            Credentials::Plain(password) => md5::digest(password.bytes(), &self.user),
            Credentials::Md5(digest) | Credentials::Keys { digest: Some(digest), .. } => digest.0,
            _ => return self.fail(self.lacking("an MD5 password")),
        };
        self.state = State::Answered;
        Answer::Send(Zeroizing::new([&md5::answer(digest, salt)[..], b"\0"].concat()))
    }

    fn sasl(&mut self, data: &[u8]) -> Answer {
        let (mechanism, header) = match self.choose(data) {
            Ok(chosen) => chosen,
            Err(fault) => return self.fail(fault),
        };
        if !matches!(self.credentials, Credentials::Plain(_) | Credentials::Keys { .. }) {
            return self.fail(self.lacking("SCRAM"));
        }
        let first = alloc::format!("{}{}", header.text(), self.first_bare());
        let Ok(len) = i32::try_from(first.len()) else {
            return self.fail(Fault::Malformed("nonce too long"));
        };
        self.state = State::SaslContinue(header);
        let body = [mechanism.as_bytes(), b"\0", &len.to_be_bytes(), first.as_bytes()].concat();
        Answer::Send(Zeroizing::new(body))
    }

    /// Which of the mechanisms offered we take, and what we say of binding to the channel.
    fn choose(&self, offered: &[u8]) -> Result<(&'static str, Gs2), Fault> {
        let offered = offered.split(|byte| *byte == 0).take_while(|name| !name.is_empty());
        let offers = |wanted: &str| offered.clone().any(|name| name == wanted.as_bytes());
        let (plus, plain) = (offers(SCRAM_SHA_256_PLUS), offers(SCRAM_SHA_256));
        let bindable = self.channel.end_point().is_some();
        match plus {
            true if bindable => return Ok((SCRAM_SHA_256_PLUS, Gs2::Bound)),
            _ if !plain => return Err(Fault::NoMechanism),
            // Were the offer taken away in between, the server would know by this.
            false if bindable => return Ok((SCRAM_SHA_256, Gs2::Unoffered)),
            // It offers what we cannot do: somebody between us and it ends its TLS, and is meant to.
            _ => {}
        }
        Ok((SCRAM_SHA_256, Gs2::No))
    }

    fn sasl_continue(&mut self, header: Gs2, data: &[u8]) -> Answer {
        let first = match ServerFirst::parse(data) {
            Ok(first) => first,
            Err(Broken(what)) => return self.fail(Fault::Malformed(what)),
        };
        // Longer than ours: the server must have added something of its own.
        if !first.nonce.starts_with(&self.nonce) || first.nonce.len() == self.nonce.len() {
            return self.fail(Fault::Malformed("the server's nonce does not continue ours"));
        }
        if first.iterations > ITERATIONS_MAX {
            return self.fail(Fault::Iterations(first.iterations));
        }
        let exchange = Exchange {
            header,
            server_first: String::from_utf8_lossy(data).into_owned(),
            nonce: first.nonce.into(),
        };
        match &self.credentials {
            Credentials::Plain(password) => {
                let (salt, iterations) = (&first.salt, first.iterations);
                let password = password.clone();
                let job = Job::new(&self.user, password, salt, iterations, Origin::Stored);
                self.state = State::Deriving(exchange);
                Answer::Derive(job)
            }
            Credentials::Keys { ring, .. } => match ring.find(&first.salt, first.iterations) {
                Some(keys) => {
                    let keys = keys.clone();
                    self.prove(&exchange, &keys.client_key, &keys.server_key)
                }
                None => self.fail(Fault::OtherVerifier),
            },
            _ => self.fail(self.lacking("SCRAM")),
        }
    }

    fn prove(&mut self, exchange: &Exchange, client: &[u8; 32], server: &[u8; 32]) -> Answer {
        let Some(binding) = self.channel.binding(exchange.header) else {
            return self.fail(Fault::Malformed("nothing to bind to"));
        };
        let binding = scram::base64(&binding);
        let without_proof = alloc::format!("c={binding},r={}", exchange.nonce);
        let auth_message =
            [&self.first_bare(), ",", &exchange.server_first, ",", &without_proof].concat();
        let proof = scram::base64(&scram::proof(client, &scram::sha256(client), &auth_message));
        self.state = State::SaslFinal { signature: scram::server_signature(server, &auth_message) };
        Answer::Send(Zeroizing::new([without_proof.as_bytes(), b",p=", proof.as_bytes()].concat()))
    }

    fn sasl_final(&mut self, expected: [u8; 32], data: &[u8]) -> Answer {
        match ServerFinal::parse(data) {
            Ok(ServerFinal::Signature(signature)) if bool::from(signature.ct_eq(&expected)) => {
                self.state = State::SaslDone;
                Answer::Wait
            }
            Ok(ServerFinal::Signature(_)) => self.fail(Fault::Impostor),
            Ok(ServerFinal::Error) => self.fail(Fault::Malformed("the server reports an error")),
            Err(Broken(what)) => self.fail(Fault::Malformed(what)),
        }
    }

    /// PostgreSQL takes the user from the startup packet, and wants none here.
    fn first_bare(&self) -> String {
        ["n=,r=", &self.nonce].concat()
    }

    fn lacking(&self, asked: &'static str) -> Fault {
        Fault::Lacking { asked, have: self.credentials.name() }
    }
}

impl fmt::Debug for ServerAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerAuth(..)")
    }
}

/// The codes of `Authentication…` messages (`AUTH_REQ_*` in PostgreSQL's `protocol.h`).
mod code {
    pub(super) const OK: i32 = 0;
    pub(super) const CLEARTEXT: i32 = 3;
    pub(super) const MD5: i32 = 5;
    pub(super) const SASL: i32 = 10;
    pub(super) const SASL_CONTINUE: i32 = 11;
    pub(super) const SASL_FINAL: i32 = 12;

    /// Kerberos 4 and 5, crypt, SCM, GSS, GSS continuation, SSPI.
    pub(super) const UNSUPPORTED: [i32; 7] = [1, 2, 4, 6, 7, 8, 9];
}

/// What we have to log in with.
#[derive(Clone, Debug)]
pub enum Credentials {
    Nothing,
    /// Answers every method.
    Plain(Password),
    /// Answers MD5 only.
    Md5(crate::secret::Digest),
    /// Answers SCRAM, where the server stores a verifier that a client logged in against; and MD5,
    /// where that is stored as well.
    Keys {
        ring: KeyRing,
        digest: Option<crate::secret::Digest>,
    },
    /// Answers nothing: a verifier checks proofs and cannot make one.
    Verifier,
}

impl Credentials {
    /// The best of what is stored and of what a client's own login left behind.
    #[must_use]
    pub fn new(secret: Option<&Secret>, keys: Option<&KeyRing>) -> Self {
        match (secret, keys) {
            (Some(Secret::Plain(password)), _) if !password.bytes().is_empty() => {
                Self::Plain(password.clone())
            }
            (Some(Secret::Md5(digest)), Some(ring)) => {
                Self::Keys { ring: ring.clone(), digest: Some(digest.clone()) }
            }
            (_, Some(ring)) => Self::Keys { ring: ring.clone(), digest: None },
            (Some(Secret::Md5(digest)), None) => Self::Md5(digest.clone()),
            (Some(Secret::Scram(_)), None) => Self::Verifier,
            (Some(Secret::Plain(_)) | None, None) => Self::Nothing,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "no password",
            Self::Plain(_) => "a plain password",
            Self::Md5(_) => "an MD5 secret",
            Self::Keys { .. } => "the SCRAM keys of a client",
            Self::Verifier => "a SCRAM verifier, and no client has logged in with SCRAM against it",
        }
    }
}

/// What to do about a server's message.
#[derive(Debug)]
pub enum Answer {
    /// Send this as the body of a password message (`p`).
    Send(Zeroizing<Vec<u8>>),
    /// Nothing; the server goes on.
    Wait,
    /// Have this done elsewhere; the outcome goes to [`ServerAuth::derived`].
    Derive(Job),
    /// The server has let us in.
    Done,
    /// It cannot work, or the server broke the rules. The exchange is over.
    Failed(Fault),
}

/// Why a login to a server failed on our side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// What we have does not answer what is asked.
    Lacking { asked: &'static str, have: &'static str },
    /// The keys that a client left are of another verifier than the server's.
    OtherVerifier,
    /// The server offers SASL, but not SCRAM-SHA-256.
    NoMechanism,
    /// More iterations than [`ITERATIONS_MAX`].
    Iterations(u32),
    /// The server's signature is wrong: it does not know the password.
    Impostor,
    /// A method we do not speak.
    Unsupported { code: i32 },
    /// A method's message where it has no place.
    OutOfOrder { code: i32 },
    /// A message that cannot be read.
    Malformed(&'static str),
}

impl Fault {
    /// What waiting clients are told; [`Display`](fmt::Display) says more, for the log.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        match self {
            Self::Lacking { .. } | Self::OtherVerifier => "wrong password type",
            Self::NoMechanism | Self::Unsupported { .. } => "unsupported authentication method",
            Self::Iterations(_) | Self::Impostor | Self::OutOfOrder { .. } | Self::Malformed(_) => {
                "server authentication failed"
            }
        }
    }
}

impl Fault {
    /// What [`Display`](fmt::Display) says beyond [`Fault::text`].
    #[must_use]
    pub fn detail(&self) -> String {
        let all = alloc::format!("{self}");
        all.get(self.text().len() + 2..).unwrap_or_default().into()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.text())?;
        match self {
            Self::Lacking { asked, have } => {
                write!(f, "the server asks for {asked}, and we have {have}")
            }
            Self::OtherVerifier => f.write_str(
                "the server's SCRAM verifier has another salt or iteration count than the one the \
                 client logged in against; they must be identical, or a plain password be stored",
            ),
            Self::NoMechanism => f.write_str("the server does not offer SCRAM-SHA-256"),
            Self::Iterations(count) => {
                write!(
                    f,
                    "the server asks for {count} SCRAM iterations; the most is {ITERATIONS_MAX}"
                )
            }
            Self::Impostor => f.write_str("the server does not know the password"),
            Self::Unsupported { code } => {
                let name = match code {
                    1 | 2 => "Kerberos",
                    6 => "SCM credentials",
                    7 | 8 => "GSSAPI",
                    9 => "SSPI",
                    _ => "unknown",
                };
                write!(f, "method {code} ({name})")
            }
            Self::OutOfOrder { code } => write!(f, "message {code} out of order"),
            Self::Malformed(what) => f.write_str(what),
        }
    }
}
