//! Rules that say how each client must prove itself (`auth_hba_file`).
//!
//! The grammar is that of PostgreSQL's `pg_hba.conf`; PgBouncer's is a part of it. The first rule that
//! fits decides. A line that cannot be read becomes a rule that rejects whatever the line could
//! have been about: were it left out, clients that it was to keep out would be let in by a later one.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use crate::ldap::Directory;
use crate::lines::{self, Field, Files, Line, Place, Word};
use crate::names::{Names, PATTERNS_MAX};
use crate::roles::{Roles, Spoken};

/// All rules, in their order.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Arc<Rule>>,
    /// The roles whose members they are about.
    pub roles: Spoken,
}

impl Rules {
    /// Reads `path`. Fails only where that file itself cannot be read. `interfaces` are this machine's, for
    /// `samehost` and `samenet`.
    pub fn read(
        path: &str,
        files: &dyn Files,
        interfaces: &[Interface],
    ) -> Result<(Self, Vec<BadLine>), String> {
        let mut reader = Reader { interfaces, patterns_left: PATTERNS_MAX, bad: Vec::new() };
        let lines = lines::read(path, files)?;
        let mut read = Self::default();
        for line in lines {
            let rule = reader.rule(line);
            read.roles.add(rule.users.roles(), rule.databases.has_same_role());
            read.rules.push(Arc::new(rule));
        }
        Ok((read, reader.bad))
    }

    /// The first rule that fits.
    #[must_use]
    pub fn find(&self, caller: &Caller<'_>) -> Found<'_> {
        for rule in &self.rules {
            match rule.fits(caller) {
                Fit::Yes => return Found::Rule(rule),
                Fit::No => {}
                Fit::HostNameNeeded => return Found::HostNameNeeded,
                Fit::RolesNeeded => return Found::RolesNeeded,
                Fit::Unknowable => return Found::Doubtful(rule),
            }
        }
        Found::Nothing
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|rule| &**rule)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// A client, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub door: Door,
    pub database: &'a [u8],
    pub user: &'a [u8],
    /// It wants to replicate physically: only `replication` means it, and `all` does not.
    pub replicates: bool,
    pub host: HostName<'a>,
    pub roles: Roles<'a>,
}

/// How a client came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Door {
    Unix,
    Tcp { from: IpAddr, tls: bool },
}

/// What is known of the name of a client's host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostName<'a> {
    NotAskedFor,
    /// It has none, or one whose addresses do not have the client's among them.
    None,
    Is(&'a str),
}

/// What the rules have to say of a client.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Rule(&'a Arc<Rule>),
    Nothing,
    /// It depends on the name of the client's host: find that out, and ask again.
    HostNameNeeded,
    /// It depends on which roles the user belongs to: find that out, and ask again.
    RolesNeeded,
    /// This rule fits if the user belongs to a role, which nobody can be asked.
    Doubtful(&'a Arc<Rule>),
}

/// One line of the file.
#[derive(Clone, Debug)]
pub struct Rule {
    pub place: Place,
    kind: Kind,
    databases: Databases,
    users: Users,
    addresses: Addresses,
    pub verdict: Verdict,
    pub options: Options,
}

/// What becomes of a client that a rule fits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    Trust,
    Reject,
    Md5,
    Password,
    Scram,
    Peer,
    Cert,
    Ldap,
    Pam,
    /// The line cannot be read; nobody whom it may be about gets in.
    Unreadable,
}

/// `name=value` behind the method.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// `map`: by which ident map the system's or the certificate's name becomes a user.
    pub map: Option<Box<[u8]>>,
    /// `clientcert`: what certificate is asked for, beyond what the method asks.
    pub client_cert: Option<ClientCert>,
    /// `clientname`: which name of the certificate counts.
    pub client_name: ClientName,
    /// Those of `ldap`, until all are read: there is a password among them.
    ldap: Vec<(Box<str>, Box<str>)>,
    /// What those of `ldap` come to.
    pub directory: Option<Arc<Directory>>,
    /// `pamservice`
    pub pam_service: Option<Box<str>>,
}

/// `clientcert`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientCert {
    /// One that is signed by whom we trust.
    VerifyCa,
    /// And made out to the user.
    VerifyFull,
}

/// `clientname`
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientName {
    #[default]
    CommonName,
    DistinguishedName,
}

/// An address of this machine, and the mask of its network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Interface {
    pub address: IpAddr,
    pub mask: IpAddr,
}

/// A line that cannot be read, or not as it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadLine {
    pub place: Place,
    pub what: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Whether a rule is about a client: where several things have to hold, the first that does not; or else what is last
/// here, which is what is found out first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fit {
    No,
    Yes,
    /// It is, if the user is in a role; and nobody can be asked.
    Unknowable,
    /// It is, if the user is in a role.
    RolesNeeded,
    /// It is, if the client's host has the right name.
    HostNameNeeded,
}

/// Which doors a rule is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Local,
    Host,
    HostSsl,
    HostNoSsl,
    /// Never: we have no GSS encryption.
    HostGssEnc,
    /// Could not be read: all of them.
    Any,
}

/// What a column could not say stands for everything.
#[derive(Clone, Debug)]
enum Databases {
    Everything,
    List { all: bool, same: Same, replication: bool, names: Names },
}

/// Databases that have the name ...
#[derive(Clone, Copy, Debug, Default)]
struct Same {
    /// ... of the user,
    user: bool,
    /// or of a role it belongs to.
    role: bool,
}

#[derive(Clone, Debug)]
enum Users {
    Everybody,
    Named(Names),
    /// Or in one of these roles.
    NamedOrIn(Names, BTreeSet<Box<str>>),
}

#[derive(Clone, Debug)]
enum Addresses {
    Everywhere,
    Net(Interface),
    Nets(Vec<Interface>),
    /// A host's name, or the end of it if it begins with a dot.
    Host(String),
}

impl Rule {
    /// Whether it is about encrypted connections only.
    #[must_use]
    pub fn is_for_tls(&self) -> bool {
        self.kind == Kind::HostSsl
    }

    fn fits(&self, caller: &Caller<'_>) -> Fit {
        if !self.kind.fits(caller.door) {
            return Fit::No;
        }
        let addresses = match caller.door {
            Door::Unix => Fit::Yes,
            Door::Tcp { from, .. } => self.addresses.fit(from.to_canonical(), caller.host),
        };
        let fits = [addresses, self.databases.fit(caller), self.users.fit(caller)];
        if fits.contains(&Fit::No) {
            return Fit::No;
        }
        fits.into_iter().max().unwrap_or(Fit::No)
    }
}

/// What it comes to, in words.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let door = match self.kind {
            Kind::Local => "unix socket",
            Kind::Host => "TCP",
            Kind::HostSsl => "TCP with TLS",
            Kind::HostNoSsl => "TCP without TLS",
            Kind::HostGssEnc => "TCP with GSS encryption, which there is not",
            Kind::Any => "any connection",
        };
        write!(f, "{}: {door}, ", self.place)?;
        match &self.databases {
            Databases::Everything => f.write_str("any database, ")?,
            Databases::List { all: true, .. } => f.write_str("all databases, ")?,
            Databases::List { same, replication, names, .. } => {
                let names = format!("{names}");
                let parts = [
                    (!names.is_empty(), format!("database {names}")),
                    (same.user, "the database of the user's name".into()),
                    (same.role, "the databases of the names of the user's roles".into()),
                    (*replication, "replication".into()),
                ];
                let parts = parts.into_iter().filter(|(is_there, _)| *is_there);
                let parts: Vec<String> = parts.map(|(_, part)| part).collect();
                write!(f, "{}, ", parts.join(" and "))?;
            }
        }
        match &self.users {
            Users::Everybody => f.write_str("any user")?,
            Users::Named(names) => write!(f, "user {names}")?,
            Users::NamedOrIn(names, roles) => {
                write!(f, "user {names}")?;
                for role in roles {
                    write!(f, " +{role}")?;
                }
            }
        }
        match &self.addresses {
            Addresses::Everywhere => {}
            Addresses::Net(net) => write!(f, ", from {}/{}", net.address, net.mask)?,
            Addresses::Nets(nets) => write!(f, ", from {} own addresses or nets", nets.len())?,
            Addresses::Host(name) => write!(f, ", from {name}")?,
        }
        f.write_str(": ")?;
        match self.verdict {
            Verdict::Unreadable => return f.write_str("rejected, for the line cannot be read"),
            Verdict::Reject => return f.write_str("rejected"),
            verdict => {
                let found = METHODS.iter().find(|(_, known)| *known == verdict);
                f.write_str(found.map_or("", |(name, _)| name))?;
            }
        }
        match self.options.client_cert {
            Some(ClientCert::VerifyCa) => f.write_str(", with any certificate"),
            Some(ClientCert::VerifyFull) => f.write_str(", with a certificate of the user's"),
            None => Ok(()),
        }
    }
}

impl Kind {
    fn fits(self, door: Door) -> bool {
        match (self, door) {
            (Self::Any, _) => true,
            (Self::Local, door) => door == Door::Unix,
            (Self::Host, Door::Tcp { .. }) => true,
            (Self::HostSsl, Door::Tcp { tls, .. }) => tls,
            (Self::HostNoSsl, Door::Tcp { tls, .. }) => !tls,
            _ => false,
        }
    }
}

impl Fit {
    const fn of(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

impl Databases {
    fn fit(&self, caller: &Caller<'_>) -> Fit {
        match self {
            Self::Everything => Fit::Yes,
            Self::List { replication, .. } if caller.replicates => Fit::of(*replication),
            Self::List { all, same, names, .. } => {
                let fits = *all
                    || same.user && caller.user == caller.database
                    || names.have(caller.database);
                match core::str::from_utf8(caller.database) {
                    Ok(database) if !fits && same.role => caller.roles.have(&[database]),
                    _ => Fit::of(fits),
                }
            }
        }
    }

    fn has_same_role(&self) -> bool {
        matches!(self, Self::List { same: Same { role: true, .. }, .. })
    }
}

impl Users {
    fn fit(&self, caller: &Caller<'_>) -> Fit {
        match self {
            Self::Everybody => Fit::Yes,
            Self::Named(names) => Fit::of(names.have(caller.user)),
            Self::NamedOrIn(names, _) if names.have(caller.user) => Fit::Yes,
            Self::NamedOrIn(_, roles) => caller.roles.have(roles),
        }
    }

    fn roles(&self) -> &BTreeSet<Box<str>> {
        const NONE: &BTreeSet<Box<str>> = &BTreeSet::new();
        if let Self::NamedOrIn(_, roles) = self { roles } else { NONE }
    }
}

impl Roles<'_> {
    /// Whether one of these is among them.
    fn have<'r>(self, roles: impl IntoIterator<Item = &'r (impl AsRef<str> + 'r)>) -> Fit {
        let membership = match self {
            Self::NotAskedFor => return Fit::RolesNeeded,
            Self::Unknowable => return Fit::Unknowable,
            Self::Known(membership) => membership,
        };
        let mut fit = Fit::No;
        for role in roles {
            match membership.of(role.as_ref()) {
                Some(true) => return Fit::Yes,
                Some(false) => {}
                // The rules are newer than the question.
                None => fit = Fit::RolesNeeded,
            }
        }
        fit
    }
}

impl Addresses {
    fn fit(&self, from: IpAddr, host: HostName<'_>) -> Fit {
        let fits = match self {
            Self::Everywhere => true,
            Self::Net(net) => net.has(from),
            Self::Nets(nets) => nets.iter().any(|net| net.has(from)),
            Self::Host(name) => match host {
                HostName::NotAskedFor => return Fit::HostNameNeeded,
                HostName::None => false,
                HostName::Is(host) => is_named(host, name),
            },
        };
        Fit::of(fits)
    }
}

impl Interface {
    fn has(&self, from: IpAddr) -> bool {
        match (from, self.address, self.mask) {
            (IpAddr::V4(from), IpAddr::V4(net), IpAddr::V4(mask)) => {
                (from.to_bits() ^ net.to_bits()) & mask.to_bits() == 0
            }
            (IpAddr::V6(from), IpAddr::V6(net), IpAddr::V6(mask)) => {
                (from.to_bits() ^ net.to_bits()) & mask.to_bits() == 0
            }
            _ => false,
        }
    }

    /// The net of `bits` leading bits; `None` if the address has not so many.
    fn cidr(address: IpAddr, bits: u32) -> Option<Self> {
        let mask = match address {
            IpAddr::V4(_) if bits <= 32 => {
                IpAddr::V4(u32::MAX.checked_shl(32 - bits).unwrap_or(0).into())
            }
            IpAddr::V6(_) if bits <= 128 => {
                IpAddr::V6(u128::MAX.checked_shl(128 - bits).unwrap_or(0).into())
            }
            _ => return None,
        };
        Some(Self { address, mask })
    }

    fn host(address: IpAddr) -> Option<Self> {
        Self::cidr(address, if address.is_ipv4() { 32 } else { 128 })
    }
}

/// Whether `host` is `name`, or ends in it where `name` begins with a dot. Case does not matter.
fn is_named(host: &str, name: &str) -> bool {
    let (host, name) = (host.as_bytes(), name.as_bytes());
    match host.len().checked_sub(name.len()) {
        Some(0) => host.eq_ignore_ascii_case(name),
        Some(start) if name.first() == Some(&b'.') => host[start..].eq_ignore_ascii_case(name),
        _ => false,
    }
}

/// What is needed to make rules of lines.
struct Reader<'a> {
    interfaces: &'a [Interface],
    patterns_left: usize,
    bad: Vec<BadLine>,
}

impl Reader<'_> {
    /// The rule a line stands for. What can be read of a bad one limits whom it rejects.
    fn rule(&mut self, line: Line) -> Rule {
        let mut rule = Rule {
            place: line.place,
            kind: Kind::Any,
            databases: Databases::Everything,
            users: Users::Everybody,
            addresses: Addresses::Everywhere,
            verdict: Verdict::Unreadable,
            options: Options::default(),
        };
        let outcome = line.fields.and_then(|fields| self.fill(&mut rule, fields));
        if let Err(what) = outcome {
            rule.verdict = Verdict::Unreadable;
            rule.options = Options::default();
            self.bad.push(BadLine { place: rule.place.clone(), what });
        }
        rule
    }

    fn fill(&mut self, rule: &mut Rule, fields: Vec<Field>) -> Result<(), String> {
        let mut fields = fields.into_iter();
        rule.kind = kind(&one(fields.next(), "connection type")?)?;
        let mut first_wrong = None;
        let mut keep = |outcome: Result<(), String>| {
            if let Err(what) = outcome {
                first_wrong.get_or_insert(what);
            }
        };
        // A column that cannot be read stands for everything; those beside it still count.
        keep(several(fields.next(), "database").and_then(|words| {
            rule.databases = self.databases(&words)?;
            Ok(())
        }));
        keep(several(fields.next(), "user").and_then(|words| {
            rule.users = self.users(&words)?;
            Ok(())
        }));
        let mut rest = fields.collect::<Vec<_>>().into_iter();
        if rule.kind != Kind::Local {
            keep(self.addresses(&mut rest).map(|addresses| rule.addresses = addresses));
        }
        if let Some(what) = first_wrong {
            return Err(what);
        }
        rule.verdict = verdict(&one(rest.next(), "authentication method")?, rule.kind)?;
        for option in rest {
            let option = one(Some(option), "option")?;
            set_option(rule, &option.show())?;
        }
        if rule.verdict == Verdict::Ldap {
            let options = rule.options.ldap.iter().map(|(name, value)| (&**name, &**value));
            rule.options.directory = Some(Arc::new(Directory::read(options)?));
            rule.options.ldap.clear();
        }
        if rule.verdict == Verdict::Cert {
            if rule.options.client_cert == Some(ClientCert::VerifyCa) {
                let what = "clientcert only accepts \"verify-full\" with the method cert";
                return Err(what.to_owned());
            }
            rule.options.client_cert = Some(ClientCert::VerifyFull);
        }
        Ok(())
    }

    fn databases(&mut self, words: &[Word]) -> Result<Databases, String> {
        let (mut all, mut same, mut replication) = (false, Same::default(), false);
        let mut names = Names::default();
        for word in words {
            match () {
                () if word.is("all") => all = true,
                () if word.is("sameuser") => same.user = true,
                () if word.is("samerole") || word.is("samegroup") => same.role = true,
                () if word.is("replication") => replication = true,
                () => names.add(word, &mut self.patterns_left)?,
            }
        }
        Ok(Databases::List { all, same, replication, names })
    }

    fn users(&mut self, words: &[Word]) -> Result<Users, String> {
        let mut names = Names::default();
        let (mut everybody, mut roles) = (false, BTreeSet::new());
        for word in words {
            match word.after(b'+') {
                _ if word.is("all") => everybody = true,
                Some(role) => {
                    let role = core::str::from_utf8(role).ok();
                    let bad = || format!("\"{}\" names no role", word.show());
                    roles.insert(role.ok_or_else(bad)?.into());
                }
                None => names.add(word, &mut self.patterns_left)?,
            }
        }
        Ok(match () {
            () if everybody => Users::Everybody,
            () if roles.is_empty() => Users::Named(names),
            () => Users::NamedOrIn(names, roles),
        })
    }

    fn addresses(&mut self, fields: &mut impl Iterator<Item = Field>) -> Result<Addresses, String> {
        let word = one(fields.next(), "address")?;
        if word.is("all") {
            return Ok(Addresses::Everywhere);
        }
        if word.is("samehost") {
            let own = self.interfaces.iter();
            return Ok(Addresses::Nets(own.filter_map(|at| Interface::host(at.address)).collect()));
        }
        if word.is("samenet") {
            return Ok(Addresses::Nets(self.interfaces.to_vec()));
        }
        let text = word.show();
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.as_str(), None),
        };
        // The zone of a link-local address says nothing of where a client comes from.
        let address = address.split('%').next().unwrap_or_default();
        let Ok(address) = address.parse::<IpAddr>() else {
            return host_name(&text, bits.is_some());
        };
        if let Some(bits) = bits {
            let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let net = bits.parse().ok().filter(|_| digits);
            let net = net.and_then(|bits| Interface::cidr(address, bits));
            return net
                .map(Addresses::Net)
                .ok_or_else(|| format!("invalid CIDR mask in address \"{text}\""));
        }
        let mask = one(fields.next(), "mask of the address (or write it as address/bits)")?;
        match mask.show().parse::<IpAddr>() {
            Ok(mask) if mask.is_ipv4() == address.is_ipv4() => {
                Ok(Addresses::Net(Interface { address, mask }))
            }
            Ok(_) => Err("IP address and mask are not of one family".to_owned()),
            Err(_) => Err(format!(
                "invalid IP mask \"{}\": write {address}/{} for one address",
                mask.show(),
                if address.is_ipv4() { 32 } else { 128 }
            )),
        }
    }
}

fn kind(word: &Word) -> Result<Kind, String> {
    let kinds = [
        ("local", Kind::Local),
        ("host", Kind::Host),
        ("hostssl", Kind::HostSsl),
        ("hostnossl", Kind::HostNoSsl),
        ("hostgssenc", Kind::HostGssEnc),
        // Nothing is GSS-encrypted here, so it is about all.
        ("hostnogssenc", Kind::Host),
    ];
    let found = kinds.iter().find(|(name, _)| *word.text == *name.as_bytes());
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        format!(
            "invalid connection type \"{}\": expected local, host, hostssl, hostnossl, hostgssenc \
             or hostnogssenc",
            word.show()
        )
    })
}

/// The methods by name; what is printed of two names for one is the first.
const METHODS: [(&str, Verdict); 10] = [
    ("trust", Verdict::Trust),
    ("reject", Verdict::Reject),
    ("md5", Verdict::Md5),
    ("password", Verdict::Password),
    ("scram-sha-256", Verdict::Scram),
    ("peer", Verdict::Peer),
    // PostgreSQL takes it for peer there.
    ("ident", Verdict::Peer),
    ("cert", Verdict::Cert),
    ("ldap", Verdict::Ldap),
    ("pam", Verdict::Pam),
];

fn verdict(word: &Word, kind: Kind) -> Result<Verdict, String> {
    let text = word.show();
    let found = METHODS.iter().find(|(name, _)| *name == text);
    match found.map(|(_, verdict)| *verdict) {
        Some(Verdict::Peer) if kind != Kind::Local => {
            Err(format!("{text} authentication is only supported on local sockets"))
        }
        Some(Verdict::Cert) if kind == Kind::Local => {
            Err("cert authentication is not supported on local sockets".to_owned())
        }
        Some(verdict) => Ok(verdict),
        None if ["gss", "sspi", "radius", "bsd", "oauth"].contains(&&*text) => {
            Err(format!("authentication method \"{text}\" is not supported"))
        }
        None => Err(format!("invalid authentication method \"{text}\"")),
    }
}

fn host_name(text: &str, with_mask: bool) -> Result<Addresses, String> {
    if with_mask {
        return Err(format!("specifying both host name and CIDR mask is invalid: \"{text}\""));
    }
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    // All digits and dots is an address with a mistake in it, and no name.
    let named = text.bytes().any(|byte| byte.is_ascii_alphabetic());
    if text.bytes().all(good) && named {
        Ok(Addresses::Host(text.to_owned()))
    } else {
        Err(format!("invalid IP address or host name \"{text}\""))
    }
}

fn set_option(rule: &mut Rule, text: &str) -> Result<(), String> {
    let (name, value) = text
        .split_once('=')
        // It is not shown: it may be a password, behind a blank too many.
        .ok_or("an authentication option is not of the form name=value")?;
    let only =
        |methods: &str| Err(format!("authentication option \"{name}\" is only for {methods}"));
    let bad = || Err(format!("invalid value for {name}: \"{value}\""));
    let (kind, verdict, options) = (rule.kind, rule.verdict, &mut rule.options);
    match name {
        "map" if matches!(verdict, Verdict::Peer | Verdict::Cert) => {
            options.map = Some(value.as_bytes().into());
        }
        "map" => return only("the methods peer and cert"),
        // A rule of type host may be about a client with TLS, too; without, the certificate is missing.
        "clientcert" | "clientname" if kind == Kind::Local => {
            return only("rules of type hostssl and host");
        }
        "clientcert" => match value {
            "verify-ca" => options.client_cert = Some(ClientCert::VerifyCa),
            "verify-full" => options.client_cert = Some(ClientCert::VerifyFull),
            _ => return bad(),
        },
        "clientname" => match value {
            "CN" => options.client_name = ClientName::CommonName,
            "DN" => options.client_name = ClientName::DistinguishedName,
            _ => return bad(),
        },
        _ if name.starts_with("ldap") && verdict != Verdict::Ldap => {
            return only("the method ldap");
        }
        _ if name.starts_with("pam") && verdict != Verdict::Pam => return only("the method pam"),
        "pamservice" => options.pam_service = Some(value.into()),
        _ if LDAP_OPTIONS.contains(&name) => options.ldap.push((name.into(), value.into())),
        _ => return Err(format!("unrecognized authentication option name: \"{name}\"")),
    }
    Ok(())
}

const LDAP_OPTIONS: [&str; 12] = [
    "ldapserver",
    "ldapport",
    "ldapscheme",
    "ldaptls",
    "ldapprefix",
    "ldapsuffix",
    "ldapbasedn",
    "ldapbinddn",
    "ldapbindpasswd",
    "ldapsearchattribute",
    "ldapsearchfilter",
    "ldapurl",
];

/// A column that has one word.
fn one(field: Option<Field>, column: &str) -> Result<Word, String> {
    let words = several(field, column)?;
    match <[Word; 1]>::try_from(words) {
        Ok([word]) => Ok(word),
        Err(_) => Err(format!("more than one value for the {column}")),
    }
}

/// A column that has a list of words.
fn several(field: Option<Field>, column: &str) -> Result<Vec<Word>, String> {
    let words = field.ok_or_else(|| format!("the line ends before its {column}"))??;
    if words.is_empty() { Err(format!("the list for the {column} is empty")) } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::Membership;
    use crate::lines::tests::Shelf;

    fn rules(text: &str) -> (Rules, Vec<String>) {
        let shelf = Shelf::new(&[("/hba", text), ("/names", "ann, \"all\"\nshop")]);
        let interface = |address: &str, bits| {
            Interface::cidr(address.parse().expect("an address"), bits).expect("a net")
        };
        let interfaces =
            [interface("127.0.0.1", 8), interface("10.1.2.3", 16), interface("fd00::1", 64)];
        let (rules, bad) = Rules::read("/hba", &shelf, &interfaces).expect("a file");
        (rules, bad.iter().map(ToString::to_string).collect())
    }

    /// `door database user`; a door is `unix`, or an address, with `+tls` behind it or without.
    /// `database*` replicates. The line of the rule that fits, 0 for none.
    fn line(rules: &Rules, caller: &str, host: HostName<'_>) -> usize {
        line_for(rules, caller, host, Roles::NotAskedFor)
    }

    fn line_for(rules: &Rules, caller: &str, host: HostName<'_>, roles: Roles<'_>) -> usize {
        let mut words = caller.split(' ').map(str::to_owned);
        let mut next = || words.next().expect("three words");
        let (door, database, user) = (next(), next(), next());
        let from = door.trim_end_matches("+tls");
        let door = match from {
            "unix" => Door::Unix,
            from => {
                Door::Tcp { from: from.parse().expect("an address"), tls: door.ends_with("+tls") }
            }
        };
        let caller = Caller {
            door,
            database: database.trim_end_matches('*').as_bytes(),
            user: user.as_bytes(),
            replicates: database.ends_with('*'),
            host,
            roles,
        };
        match rules.find(&caller) {
            Found::Rule(rule) => rule.place.line,
            Found::Nothing => 0,
            Found::HostNameNeeded => HOST,
            Found::RolesNeeded => ROLES,
            Found::Doubtful(rule) => DOUBTFUL + rule.place.line,
        }
    }

    const HOST: usize = usize::MAX;
    const ROLES: usize = usize::MAX - 1;
    const DOUBTFUL: usize = 1000;

    fn check(text: &str, callers: &[(&str, usize)]) {
        let (rules, bad) = rules(text);
        assert_eq!(bad, [""; 0]);
        for (caller, want) in callers {
            assert_eq!(line(&rules, caller, HostName::NotAskedFor), *want, "{caller} of\n{text}");
        }
    }

    #[test]
    fn doors() {
        check(
            "local all all trust\nhostssl a all all trust\nhostnossl b all all trust\n\
             hostgssenc all all all trust\nhost c all all trust\nhostnogssenc d all all trust",
            &[
                ("unix a x", 1),
                ("1.2.3.4+tls a x", 2),
                ("1.2.3.4 a x", 0),
                ("1.2.3.4+tls b x", 0),
                ("1.2.3.4 b x", 3),
                ("1.2.3.4 c x", 5),
                ("1.2.3.4+tls c x", 5),
                ("1.2.3.4 d x", 6),
            ],
        );
    }

    #[test]
    fn databases_and_users() {
        check(
            "local sameuser all trust\nlocal replication rep trust\nlocal \"all\",two ann,bob trust\n\
             local @names joe trust\nlocal /^db\\d+$ \"/^u,?\" trust\nlocal three \"all\" trust\n\
             local \"replication\" \"+odd\" trust\nlocal all rex trust",
            &[
                ("unix ann ann", 1),
                ("unix x* rep", 2),
                ("unix replication rep", 0),
                ("unix x* rex", 0),
                ("unix all ann", 3),
                ("unix two bob", 3),
                ("unix two Bob", 0),
                ("unix shop joe", 4),
                ("unix all joe", 4),
                ("unix db12 user", 5),
                ("unix db12x user", 0),
                ("unix three all", 6),
                ("unix three ann", 0),
                ("unix replication +odd", 7),
                ("unix anything rex", 8),
            ],
        );
    }

    #[test]
    fn addresses() {
        check(
            "host a all 192.168.1.77/24 trust\nhost a all 10.0.0.1/32 trust\n\
             host a all 172.16.0.0 255.240.0.0 trust\nhost a all fd00:1::/32 trust\n\
             host a all fe80::1 ffff:: trust\nhost b all 0.0.0.0/0 trust\nhost c all ::/0 trust\n\
             host d all samehost trust\nhost e all samenet trust\nhost f all all trust",
            &[
                ("192.168.1.1 a x", 1),
                ("192.168.2.1 a x", 0),
                ("::ffff:192.168.1.1 a x", 1),
                ("10.0.0.1 a x", 2),
                ("10.0.0.2 a x", 0),
                ("172.31.255.255 a x", 3),
                ("172.32.0.0 a x", 0),
                ("fd00:1::9 a x", 4),
                ("fd00:2::9 a x", 0),
                ("fe80:9::9 a x", 5),
                ("9.9.9.9 b x", 6),
                ("::1 b x", 0),
                ("::1 c x", 7),
                ("9.9.9.9 c x", 0),
                ("10.1.2.3 d x", 8),
                ("10.1.2.4 d x", 0),
                ("10.1.9.9 e x", 9),
                ("10.2.0.0 e x", 0),
                ("fd00::99 e x", 9),
                ("127.9.9.9 e x", 9),
                ("::1 f x", 10),
                ("9.9.9.9 f x", 10),
            ],
        );
    }

    #[test]
    fn host_names_are_asked_for_only_where_it_depends_on_them() {
        let (rules, bad) = rules(
            "host a all 1.1.1.1/32 trust\nhost a all db.Example.com trust\nhost a all .corp.net trust\n\
             host b all all trust",
        );
        assert_eq!(bad, [""; 0]);
        let cases = [
            ("1.1.1.1 a x", HostName::NotAskedFor, 1),
            ("2.2.2.2 b x", HostName::NotAskedFor, 4),
            ("2.2.2.2 a x", HostName::NotAskedFor, HOST),
            ("2.2.2.2 a x", HostName::None, 0),
            ("2.2.2.2 a x", HostName::Is("DB.example.COM"), 2),
            ("2.2.2.2 a x", HostName::Is("xdb.example.com"), 0),
            ("2.2.2.2 a x", HostName::Is("a.b.corp.net"), 3),
            ("2.2.2.2 a x", HostName::Is("corp.net"), 0),
            ("2.2.2.2 a x", HostName::Is("evilcorp.net"), 0),
        ];
        for (caller, host, want) in cases {
            assert_eq!(line(&rules, caller, host), want, "{caller} {host:?}");
        }
    }

    #[test]
    fn roles_are_asked_for_only_where_it_depends_on_them() {
        let (rules, bad) = rules(
            "host a ann,+staff 1.1.1.0/24 trust\nhost b +staff,+ops .corp.net trust\n\
             host samerole,c bob all trust\nhost samegroup all all trust\nlocal all \"+staff\" trust\nhost a all all trust",
        );
        assert_eq!(bad, [""; 0]);
        let known = |database: &str, numbers: &str| {
            let asked = rules.roles.at(database.as_bytes());
            Membership::read(asked.clone(), numbers.as_bytes())
                .unwrap_or_else(|| Membership::none(asked))
        };
        let (none, staff, at_b) = (known("a", ""), known("a", "3"), known("b", "1"));
        let cases = [
            ("1.1.1.1 a ann", Roles::NotAskedFor, 1),
            ("1.1.1.1 a bob", Roles::NotAskedFor, ROLES),
            ("1.1.1.1 a bob", Roles::Unknowable, DOUBTFUL + 1),
            ("1.1.1.1 a bob", Roles::Known(&staff), 1),
            ("1.1.1.1 a bob", Roles::Known(&none), 6),
            ("2.1.1.1 a zoe", Roles::NotAskedFor, ROLES),
            ("2.1.1.1 c bob", Roles::NotAskedFor, 3),
            ("1.1.1.1 b bob", Roles::NotAskedFor, HOST),
            ("1.1.1.1 b zoe", Roles::Known(&at_b), 4),
            ("unix a +staff", Roles::NotAskedFor, 5),
            ("unix a bob", Roles::NotAskedFor, 0),
        ];
        for (caller, roles, want) in cases {
            let got = line_for(&rules, caller, HostName::NotAskedFor, roles);
            assert_eq!(got, want, "{caller} {roles:?}");
        }
        let there = HostName::Is("x.corp.net");
        for (caller, roles, want) in [
            ("1.1.1.1 b zoe", Roles::NotAskedFor, ROLES),
            ("1.1.1.1 b zoe", Roles::Known(&none), ROLES),
            ("1.1.1.1 b zoe", Roles::Known(&at_b), 4),
            ("1.1.1.1 b bob", Roles::Known(&at_b), 3),
        ] {
            assert_eq!(line_for(&rules, caller, there, roles), want, "{caller} {roles:?}");
        }
        let shown: Vec<String> = rules.iter().map(ToString::to_string).collect();
        assert!(shown[0].contains("user ann +staff,"), "{shown:?}");
        let roles = "TCP, the databases of the names of the user's roles, any user";
        assert!(shown[3].contains(roles), "{shown:?}");
    }

    #[test]
    fn methods_and_options() {
        let (rules, bad) = rules(
            "local all all peer map=\"two words\"\nhostssl all all all cert map=m clientname=DN\n\
             hostssl all all all scram-sha-256 clientcert=verify-full\nlocal all all ident\n\
             host all all all ldap ldapserver=a ldapprefix=cn= ldapsuffix=\",dc=x y\"\nhost all all all pam pamservice=p\n\
             host all all all password\nhost all all all md5\nhost all all all reject\nhost all all all trust",
        );
        assert_eq!(bad, [""; 0]);
        let rules: Vec<&Rule> = rules.iter().collect();
        let verdicts: Vec<Verdict> = rules.iter().map(|rule| rule.verdict).collect();
        use Verdict::{Cert, Ldap, Md5, Pam, Password, Peer, Reject, Scram, Trust};
        assert_eq!(verdicts, [Peer, Cert, Scram, Peer, Ldap, Pam, Password, Md5, Reject, Trust]);
        assert_eq!(rules[0].options.map.as_deref(), Some(&b"two words"[..]));
        assert_eq!(rules[1].options.client_name, ClientName::DistinguishedName);
        assert_eq!(rules[1].options.client_cert, Some(ClientCert::VerifyFull));
        assert_eq!(rules[2].options.client_cert, Some(ClientCert::VerifyFull));
        assert!(rules[4].options.directory.is_some() && rules[4].options.ldap.is_empty());
        assert_eq!(rules[5].options.pam_service.as_deref(), Some("p"));
    }

    type Bad = (&'static str, &'static str, &'static [(&'static str, usize)]);

    /// The second line, what is said of it, and callers that it stops (2) or not (3).
    const BAD: &[Bad] = &[
        ("lokal a ann trust", "invalid connection type", &[("unix b bob", 2)]),
        (
            "host a ann 1.1.1.1/32 md6",
            "invalid authentication method \"md6\"",
            &[
                ("1.1.1.1 a ann", 2),
                ("1.1.1.2 a ann", 3),
                ("1.1.1.1 b ann", 3),
                ("1.1.1.1 a bob", 3),
                ("unix a ann", 3),
            ],
        ),
        (
            "host a ann 1.1.1.1/33 reject",
            "invalid CIDR mask",
            &[("2.2.2.2 a ann", 2), ("2.2.2.2 b ann", 3)],
        ),
        (
            "host a +admins 1.1.1.1/32 md6",
            "invalid authentication method",
            &[("1.1.1.1 a whoever", ROLES), ("2.2.2.2 a whoever", 3)],
        ),
        ("host @gone ann 1.1.1.1/32 md5", "cannot read /gone", &[("1.1.1.1 z ann", 2)]),
        (
            "host a ann 1.1.1.1 md5",
            "invalid IP mask \"md5\": write 1.1.1.1/32",
            &[("9.9.9.9 a ann", 2)],
        ),
        ("host a ann 1.1.1.1 ffff:: md5", "not of one family", &[("9.9.9.9 a ann", 2)]),
        ("host a ann 1.1.1.300 md5", "invalid IP address or host name", &[]),
        ("host a ann", "the line ends before its address", &[("9.9.9.9 a ann", 2)]),
        ("host a", "the line ends before its user", &[("9.9.9.9 a zoe", 2), ("9.9.9.9 b zoe", 3)]),
        (
            "local a ann",
            "before its authentication method",
            &[("unix a ann", 2), ("unix b ann", 3)],
        ),
        (
            "host,local a ann all md5",
            "more than one value for the connection type",
            &[("unix b b", 2)],
        ),
        ("local a ann \"md5", "a quote is not closed", &[("unix a ann", 2)]),
        ("local a /( md5", "regular expression \"(\" cannot be used", &[("unix a zoe", 2)]),
        ("local a ann md5 map=x", "only for the methods peer and cert", &[("unix a ann", 2)]),
        ("local a ann md5 x", "not of the form name=value", &[("unix a ann", 2)]),
        ("local a ann md5 colour=red", "unrecognized authentication option", &[("unix a ann", 2)]),
        ("local a ann cert", "not supported on local sockets", &[("unix a ann", 2)]),
        ("host a ann all peer", "only supported on local sockets", &[("1.1.1.1 a ann", 2)]),
        ("host a ann all gss", "\"gss\" is not supported", &[("1.1.1.1 a ann", 2)]),
        (
            "hostssl a ann all cert clientcert=verify-ca",
            "only accepts",
            &[("1.1.1.1+tls a ann", 2)],
        ),
        ("hostssl a ann all md5 clientcert=1", "invalid value for clientcert", &[]),
        ("host a ann x.org/8 md5", "both host name and CIDR mask", &[("1.1.1.1 a ann", 2)]),
        ("include gone", "cannot read /gone", &[("1.1.1.1 b bob", 2), ("unix b bob", 2)]),
    ];

    /// What a line could have kept out stays out: as much of it as can be read says who that is.
    #[test]
    fn a_bad_line_rejects_whom_it_may_be_about() {
        for (line_two, what, callers) in BAD {
            let text = format!(
                "local first all trust\n{line_two}\nlocal all all trust\nhost all all all trust"
            );
            let (rules, bad) = rules(&text);
            assert_eq!(bad.len(), 1, "{line_two}: {bad:?}");
            assert!(bad[0].starts_with("/hba:2: ") && bad[0].contains(what), "{line_two}: {bad:?}");
            assert_eq!(
                line(&rules, "unix first x", HostName::None),
                1,
                "what stands above it counts"
            );
            for (caller, want) in *callers {
                let got = line(&rules, caller, HostName::None);
                let got = if got == ROLES { got } else { got.min(3) };
                assert_eq!(got, *want, "{caller} of {line_two}");
            }
        }
    }
}
