//! A client proves who it is.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::channel::Channel;
use crate::job::Origin;
use crate::scram::{
    self, Broken, ClientFinal, ClientFirst, Gs2, Nonce, SCRAM_SHA_256, SCRAM_SHA_256_PLUS,
};
use crate::{ClientKeys, Decoy, Derived, Form, Job, Password, Secret, Verifier, md5};

/// One client's login, from the first question to the verdict.
///
/// A user who does not exist, or whose secret cannot serve, is asked the same questions in the
/// same order against a decoy's secret, and is refused where a wrong password would be.
pub struct ClientAuth {
    user: Vec<u8>,
    /// What the answers are measured against: the user's secret, or a decoy's.
    secret: Secret,
    standing: Standing,
    /// Used for a plain secret only; a verifier brings its own.
    salt: Vec<u8>,
    iterations: u32,
    dice: Dice,
    channel: Channel,
    state: State,
}

/// Whether the login can succeed at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Standing {
    Real,
    Doomed,
}

/// What the client's next message must be, or what we wait for instead.
enum State {
    Cleartext,
    Md5,
    SaslInitial,
    SaslResponse(Exchange),
    /// A password in the clear, which somebody else will look at.
    Referred(Judge),
    /// And does.
    Judging {
        judge: Judge,
        password: Password,
    },
    /// A cleartext password is being put through a verifier's derivation.
    DerivingCleartext,
    /// Keys are being derived from a plain secret, to hold a proof against.
    DerivingProof {
        auth_message: String,
        proof: [u8; 32],
    },
    Over,
}

/// A SCRAM exchange between its two questions.
struct Exchange {
    header: Gs2,
    /// The client's nonce, then ours.
    nonce: String,
    /// Both first messages, each with a comma after it; the proof covers them.
    said: String,
}

impl ClientAuth {
    /// Opens the exchange.
    #[must_use]
    pub fn start(claim: Claim<'_>, decoy: &Decoy, dice: Dice) -> (Self, Step) {
        let Claim { method, user, account, channel } = claim;
        let exists = !matches!(account, Account::Unknown);
        let (secret, standing) = match account {
            Account::Secret(secret) if can_serve(&secret, method) => (secret, Standing::Real),
            _ => (decoy.secret(user, decoy_form(method, decoy)), Standing::Doomed),
        };
        let mut auth = Self {
            user: user.to_vec(),
            secret,
            standing,
            salt: decoy.salt(user),
            iterations: decoy.iterations(),
            dice,
            channel,
            state: State::Over,
        };
        let step = match method {
            Method::Any => Step::Accept(Accepted::default()),
            Method::Trust if exists => Step::Accept(Accepted::default()),
            Method::Trust => Step::Refuse(Why::Trust),
            Method::Vouched(_) if exists => Step::Accept(Accepted::default()),
            Method::Vouched(voucher) => Step::Refuse(voucher.denial()),
            Method::Never(why) => Step::Refuse(why),
            Method::Referred(judge) => auth.ask(State::Referred(judge), Ask::Cleartext),
            Method::Plain => auth.ask(State::Cleartext, Ask::Cleartext),
            Method::Md5 if auth.secret.form() != Form::Scram => {
                let salt = auth.dice.md5_salt;
                auth.ask(State::Md5, Ask::Md5 { salt })
            }
            Method::Md5 | Method::Scram => {
                let mechanisms = auth.mechanisms();
                auth.ask(State::SaslInitial, Ask::Sasl { mechanisms })
            }
        };
        (auth, step)
    }

    /// The body of the client's password message (`p`), after an [`Ask`].
    pub fn answer(&mut self, body: &[u8]) -> Step {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Cleartext => self.cleartext(body),
            State::Referred(judge) => self.referred(judge, body),
            State::Md5 => self.md5(body),
            State::SaslInitial => self.sasl_initial(body),
            State::SaslResponse(exchange) => self.sasl_response(exchange, body),
            State::Judging { .. }
            | State::DerivingCleartext
            | State::DerivingProof { .. }
            | State::Over => Step::Refuse(Why::Unasked),
        }
    }

    /// What the [`Job`] of [`Step::Derive`] came to, or what was remembered of an equal one.
    pub fn derived(&mut self, derived: &Derived) -> Step {
        match core::mem::replace(&mut self.state, State::Over) {
            State::DerivingCleartext => {
                let Secret::Scram(verifier) = &self.secret else {
                    return Step::Refuse(Why::Unasked);
                };
                let right = derived.stored_key().ct_eq(&verifier.stored_key);
                // Who knows the password can do what a SCRAM login of its would have left us to do.
                let keys = ClientKeys {
                    client_key: derived.client_key,
                    server_key: derived.server_key,
                    salt: verifier.salt.clone(),
                    iterations: verifier.iterations,
                };
                match self.verdict_on_password(right) {
                    Step::Accept(accepted) => {
                        Step::Accept(Accepted { keys: Some(keys), ..accepted })
                    }
                    step => step,
                }
            }
            State::DerivingProof { auth_message, proof } => {
                let verifier = Verifier {
                    iterations: self.iterations,
                    salt: core::mem::take(&mut self.salt),
                    stored_key: derived.stored_key(),
                    server_key: derived.server_key,
                };
                self.prove(&verifier, &auth_message, proof)
            }
            _ => Step::Refuse(Why::Unasked),
        }
    }

    /// What somebody else made of the password of [`Step::Refer`].
    pub fn judged(&mut self, is_right: bool) -> Step {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Judging { password, .. } if is_right => {
                Step::Accept(Accepted { password: Some(password), ..Accepted::default() })
            }
            State::Judging { judge, .. } => Step::Refuse(judge.denial()),
            _ => Step::Refuse(Why::Unasked),
        }
    }

    fn ask(&mut self, state: State, ask: Ask) -> Step {
        self.state = state;
        Step::Ask(ask)
    }

    fn cleartext(&mut self, body: &[u8]) -> Step {
        let Some(password) = c_string(body) else { return Step::Refuse(Why::Malformed) };
        let right = match &self.secret {
            // Hashes, so that the time tells nothing of the length in common.
            Secret::Plain(stored) => scram::sha256(password).ct_eq(&scram::sha256(stored.bytes())),
            Secret::Md5(stored) => md5::digest(password, &self.user).ct_eq(&stored.0),
            Secret::Scram(verifier) => {
                let job = Job::new(
                    &self.user,
                    Password::new(password),
                    &verifier.salt,
                    verifier.iterations,
                    Origin::Claimed,
                );
                self.state = State::DerivingCleartext;
                return Step::Derive(job);
            }
        };
        self.verdict_on_password(right)
    }

    fn referred(&mut self, judge: Judge, body: &[u8]) -> Step {
        let Some(password) = c_string(body) else { return Step::Refuse(Why::Malformed) };
        // A directory takes an empty one for a wish to stay unknown, and grants it.
        if password.is_empty() {
            return Step::Refuse(judge.denial());
        }
        let password = Password::new(password);
        self.state = State::Judging { judge, password: password.clone() };
        Step::Refer(password)
    }

    fn md5(&self, body: &[u8]) -> Step {
        let Some(answer) = c_string(body) else { return Step::Refuse(Why::Malformed) };
        let digest = match &self.secret {
            Secret::Plain(stored) => md5::digest(stored.bytes(), &self.user),
            Secret::Md5(stored) => stored.0,
            Secret::Scram(_) => return Step::Refuse(Why::Unasked),
        };
        let right = md5::answer(digest, self.dice.md5_salt).ct_eq(answer);
        self.verdict_on_password(right)
    }

    fn verdict_on_password(&self, right: Choice) -> Step {
        if bool::from(right) && self.standing == Standing::Real {
            Step::Accept(Accepted::default())
        } else {
            Step::Refuse(Why::Password)
        }
    }

    /// What is offered, the best first.
    fn mechanisms(&self) -> &'static [&'static str] {
        match self.channel.end_point() {
            Some(_) => &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256],
            None => &[SCRAM_SHA_256],
        }
    }

    fn sasl_initial(&mut self, body: &[u8]) -> Step {
        let offered = self.mechanisms();
        let opened = sasl_initial_response(body, offered)
            .and_then(|(mechanism, data)| Ok((mechanism, ClientFirst::parse(data)?)));
        let (mechanism, first) = match opened {
            Ok(opened) => opened,
            Err(broken) => return Step::Refuse(Why::Sasl(broken.into())),
        };
        match (mechanism == SCRAM_SHA_256_PLUS, first.header) {
            (true, Gs2::Bound) | (false, Gs2::No) => {}
            (false, Gs2::Unoffered) if offered.contains(&SCRAM_SHA_256_PLUS) => {
                return Step::Refuse(Why::Sasl(Unproved::Downgrade));
            }
            (false, Gs2::Unoffered) => {}
            (true, Gs2::No | Gs2::Unoffered) => {
                let what = "the client selected channel binding and sent none";
                return Step::Refuse(Why::Sasl(Broken(what).into()));
            }
            (false, Gs2::Bound) => {
                let what = "the client selected no channel binding and sent one";
                return Step::Refuse(Why::Sasl(Broken(what).into()));
            }
        }
        let (salt, iterations) = match &self.secret {
            Secret::Scram(verifier) => (&verifier.salt, verifier.iterations),
            Secret::Plain(_) | Secret::Md5(_) => (&self.salt, self.iterations),
        };
        let nonce = [first.nonce, &scram::base64(&self.dice.nonce)].concat();
        let question = alloc::format!("r={nonce},s={},i={iterations}", scram::base64(salt));
        let said = alloc::format!("{},{question},", first.bare);
        let exchange = Exchange { header: first.header, nonce, said };
        self.ask(State::SaslResponse(exchange), Ask::SaslContinue(question.into_bytes()))
    }

    fn sasl_response(&mut self, exchange: Exchange, body: &[u8]) -> Step {
        let last = match ClientFinal::parse(body) {
            Ok(last) => last,
            Err(broken) => return Step::Refuse(Why::Sasl(broken.into())),
        };
        let binding = self.channel.binding(exchange.header);
        if binding.is_none_or(|binding| last.binding != scram::base64(&binding)) {
            return Step::Refuse(Why::Sasl(Broken("channel binding differs").into()));
        }
        if last.nonce != exchange.nonce {
            return Step::Refuse(Why::Sasl(Broken("nonce differs").into()));
        }
        let auth_message = exchange.said + last.without_proof;
        match self.secret.clone() {
            Secret::Scram(verifier) => self.prove(&verifier, &auth_message, last.proof),
            Secret::Plain(password) => {
                self.state = State::DerivingProof { auth_message, proof: last.proof };
                let (salt, iterations) = (&self.salt, self.iterations);
                Step::Derive(Job::new(&self.user, password, salt, iterations, Origin::Stored))
            }
            Secret::Md5(_) => Step::Refuse(Why::Unasked),
        }
    }

    /// Holds the proof against the verifier. A good one gives away the client's key.
    fn prove(&self, verifier: &Verifier, auth_message: &str, proof: [u8; 32]) -> Step {
        let client_key = Zeroizing::new(scram::proof(&proof, &verifier.stored_key, auth_message));
        let right = scram::sha256(&*client_key).ct_eq(&verifier.stored_key);
        if !bool::from(right) || self.standing == Standing::Doomed {
            return Step::Refuse(Why::Sasl(Unproved::Proof));
        }
        let signature = scram::server_signature(&verifier.server_key, auth_message);
        Step::Accept(Accepted {
            sasl_final: Some(alloc::format!("v={}", scram::base64(&signature)).into_bytes()),
            keys: Some(ClientKeys {
                client_key: *client_key,
                server_key: verifier.server_key,
                salt: verifier.salt.clone(),
                iterations: verifier.iterations,
            }),
            password: None,
        })
    }
}

impl fmt::Debug for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientAuth(..)")
    }
}

/// How a client is asked (`auth_type`, or a rule of `auth_hba_file`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Not at all, and whoever it says it is.
    Any,
    /// Not at all, but the user must exist.
    Trust,
    /// For the password in the clear.
    Plain,
    /// By MD5; by SCRAM where a verifier is stored.
    Md5,
    /// By SCRAM-SHA-256.
    Scram,
    /// For the password in the clear, which somebody else looks at. Nobody else need know the user.
    Referred(Judge),
    /// Not at all: somebody we trust has said who it is. The user must exist.
    Vouched(Voucher),
    /// Not at all: nothing that it could answer would let it in.
    Never(Why),
}

impl Method {
    /// Whether it depends on what is known of the user.
    #[must_use]
    pub const fn needs_account(self) -> bool {
        !matches!(self, Self::Any | Self::Referred(_) | Self::Never(_))
    }
}

/// Who looks at a password in our place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judge {
    /// LDAP.
    Directory,
    /// PAM.
    System,
}

impl Judge {
    /// What a client is refused for whose password is wrong.
    #[must_use]
    pub const fn denial(self) -> Why {
        match self {
            Self::Directory => Why::Ldap,
            Self::System => Why::Pam,
        }
    }
}

/// Who says that a client is the user it claims to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Voucher {
    /// The kernel, of the process at the other end of a unix socket.
    Peer,
    /// Whoever signed its certificate.
    Certificate,
}

impl Voucher {
    /// What a client is refused for that is vouched for as somebody else, or as nobody.
    #[must_use]
    pub const fn denial(self) -> Why {
        match self {
            Self::Peer => Why::Peer,
            Self::Certificate => Why::Certificate,
        }
    }
}

/// Who the client says it is, and what we know of that user.
#[derive(Debug)]
pub struct Claim<'a> {
    pub method: Method,
    pub user: &'a [u8],
    pub account: Account,
    /// Over which it comes.
    pub channel: Channel,
}

/// What is known of a user.
#[derive(Clone, Debug)]
pub enum Account {
    Unknown,
    /// It exists, but no password is right: none is stored, or it has expired.
    WithoutSecret,
    Secret(Secret),
}

/// Fresh random bytes, for one login.
#[derive(Clone, Copy, Debug)]
pub struct Dice {
    pub nonce: Nonce,
    pub md5_salt: [u8; 4],
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Ask the client; its password message goes to [`ClientAuth::answer`].
    Ask(Ask),
    /// Have this done elsewhere; the outcome goes to [`ClientAuth::derived`].
    Derive(Job),
    /// Have somebody else look at this password; the verdict goes to [`ClientAuth::judged`].
    Refer(Password),
    /// The client is who it says it is.
    Accept(Accepted),
    /// It is not, or did not say so properly. The exchange is over.
    Refuse(Why),
}

/// A question: an `Authentication…` message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ask {
    Cleartext,
    Md5 {
        salt: [u8; 4],
    },
    /// Offer these, in this order: [`SCRAM_SHA_256`], and before it [`SCRAM_SHA_256_PLUS`] where
    /// there is something to bind to.
    Sasl {
        mechanisms: &'static [&'static str],
    },
    /// The data of `AuthenticationSASLContinue`.
    SaslContinue(Vec<u8>),
}

/// How a client was let in.
#[derive(Debug, Default)]
pub struct Accepted {
    /// To be sent as `AuthenticationSASLFinal`, before `AuthenticationOk`.
    pub sasl_final: Option<Vec<u8>>,
    /// After SCRAM: what can log in to the server in the client's name.
    pub keys: Option<ClientKeys>,
    /// Where somebody else looked at it: what the server may ask for, too.
    pub password: Option<Password>,
}

/// Why a client is refused. The peer is told [`Why::text`] only; the rest is for the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Wrong password, or no such user, or no password that could be right.
    Password,
    /// The SASL exchange failed.
    Sasl(Unproved),
    /// No such user, where existing is enough.
    Trust,
    /// The system user at the other end of the unix socket may not be this user.
    Peer,
    /// The certificate does not stand for this user, or there is none.
    Certificate,
    /// A rule says no.
    Rejected,
    /// No rule fits.
    NoMethod,
    /// The directory does not know this user with this password.
    Ldap,
    /// Nor does the system.
    Pam,
    /// The password message cannot be read.
    Malformed,
    /// It spoke out of turn.
    Unasked,
}

impl Why {
    /// What the client is told: the same for a wrong password as for a user that does not exist.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Password | Self::Malformed | Self::Unasked => "password authentication failed",
            // PostgreSQL's words: an honest user must know that somebody is in between.
            Self::Sasl(Unproved::Downgrade) => "SCRAM channel binding negotiation error",
            Self::Sasl(_) => "SASL authentication failed",
            Self::Trust => "\"trust\" authentication failed",
            Self::Ldap => "LDAP authentication failed",
            Self::Pam => "PAM authentication failed",
            Self::Peer => "unix socket login rejected",
            Self::Certificate => "certificate authentication failed",
            Self::Rejected => "login rejected",
            Self::NoMethod => "no authentication method is found",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        match self {
            Self::Sasl(Unproved::Broken(what)) => write!(f, ": {what}"),
            Self::Malformed => f.write_str(": malformed password message"),
            Self::Unasked => f.write_str(": unexpected password message"),
            _ => Ok(()),
        }
    }
}

/// What was wrong with a SASL exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unproved {
    /// A message broke the rules; the text says which.
    Broken(&'static str),
    /// The proof does not fit.
    Proof,
    /// It could be bound to the channel and believes that we cannot, though we said so: somebody in
    /// between has taken our offer away.
    Downgrade,
}

impl From<Broken> for Unproved {
    fn from(Broken(what): Broken) -> Self {
        Self::Broken(what)
    }
}

/// Whether a password can be checked against `secret` by `method` at all.
fn can_serve(secret: &Secret, method: Method) -> bool {
    match secret {
        // PostgreSQL, too, never lets an empty password match.
        Secret::Plain(password) => !password.bytes().is_empty(),
        // The digest is of another kind than the one SCRAM needs.
        Secret::Md5(_) => method != Method::Scram,
        Secret::Scram(_) => true,
    }
}

/// Where the question depends on what is stored, a decoy is asked as most users are. Under SCRAM
/// it always has a verifier: derivations from plain secrets are remembered, so that a user with a
/// plain secret usually answers without one as well.
const fn decoy_form(method: Method, decoy: &Decoy) -> Form {
    match method {
        Method::Scram => Form::Scram,
        _ => decoy.form(),
    }
}

/// A body that is one string: no NUL but the last byte.
fn c_string(body: &[u8]) -> Option<&[u8]> {
    match body.split_last() {
        Some((0, text)) if !text.contains(&0) => Some(text),
        _ => None,
    }
}

/// `SASLInitialResponse`: the name of one of the mechanisms offered, a length, and that many bytes.
fn sasl_initial_response<'b>(
    body: &'b [u8],
    offered: &[&'static str],
) -> Result<(&'static str, &'b [u8]), Broken> {
    let end = body.iter().position(|byte| *byte == 0).ok_or(Broken("unterminated mechanism"))?;
    let (mechanism, rest) = body.split_at(end);
    let Some(chosen) = offered.iter().find(|name| name.as_bytes() == mechanism) else {
        return Err(Broken("the client chose a mechanism that was not offered"));
    };
    let (len, data) = rest[1..].split_first_chunk::<4>().ok_or(Broken("length missing"))?;
    // -1 stands for no data; SCRAM has the client speak first.
    match usize::try_from(i32::from_be_bytes(*len)) {
        Ok(len) if len == data.len() => Ok((chosen, data)),
        _ => Err(Broken("wrong length of the initial response")),
    }
}
