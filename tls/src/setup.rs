//! The TLS settings of one side, read with their files and made into what handshakes need.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use sha2::{Digest, Sha256};

use crate::certified::{Blame, Certified};
use crate::suites::{self, Versions};
use crate::trust::Trust;
use crate::verifier::{ClientVerifier, OfServer, ServerVerifier};
use crate::{ALPN, pem, provider};

/// How much TLS is wanted: `sslmode`.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Mode {
    #[default]
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The settings of one side, as they stand in the ini.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// How their names begin: `client_tls` or `server_tls`.
    pub prefix: &'a str,
    pub mode: Mode,
    pub key_file: &'a str,
    pub cert_file: &'a str,
    pub ca_file: &'a str,
    pub protocols: &'a str,
    pub ciphers: &'a str,
    pub tls13_ciphers: &'a str,
    /// `auto` where there is no such setting.
    pub ecdhcurve: &'a str,
    /// `auto` where there is no such setting.
    pub dheparams: &'a str,
}

/// Reads a whole file.
pub type Read<'a> = &'a dyn Fn(&str) -> io::Result<Vec<u8>>;

/// TLS towards those who dial us.
#[derive(Clone, Debug, Default)]
pub struct Inward {
    pub mode: Mode,
    /// `None` where the mode is `disable`.
    pub config: Option<Arc<ServerConfig>>,
    /// `tls-server-end-point` of our certificate, for SCRAM-SHA-256-PLUS.
    pub end_point: Option<Box<[u8]>>,
    print: Print,
}

/// TLS towards those whom we dial.
#[derive(Clone, Debug, Default)]
pub struct Outward {
    pub mode: Mode,
    /// `None` where the mode is `disable`.
    pub config: Option<Arc<ClientConfig>>,
    print: Print,
}

/// Of all that a set-up was made from: two with the same one are the same.
type Print = [u8; 32];

/// Why there is no set-up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS setup failed: {}", self.0)
    }
}

impl std::error::Error for Error {}

impl Inward {
    /// Warnings are added to `warnings`: what was asked for and cannot be had. `end_point` is what logins
    /// are bound to, of a certificate.
    ///
    /// # Errors
    /// Says which file or setting is wrong.
    pub fn set_up(
        wish: &Wish<'_>,
        read: Read<'_>,
        end_point: fn(&[u8]) -> Option<Box<[u8]>>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let mut print = Sha256::new();
        let mut loader = Loader { wish, read, print: &mut print };
        if wish.mode == Mode::Disable {
            return Ok(Self::default());
        }
        let prefix = wish.prefix;
        if wish.key_file.is_empty() || wish.cert_file.is_empty() {
            return Err(Error(format!("{prefix}_key_file and {prefix}_cert_file must be set")));
        }
        let certified = loader.certified()?;
        let must = wish.mode >= Mode::VerifyCa;
        if must && wish.ca_file.is_empty() {
            return Err(Error(format!(
                "{prefix}_ca_file must be set to verify client certificates"
            )));
        }
        let trust = loader.trust()?;
        let terms = Terms::read(wish, warnings)?;
        let versions = terms.versions.list();
        let builder = ServerConfig::builder_with_provider(terms.provider.into())
            .with_protocol_versions(&versions)
            .map_err(|error| Error(error.to_string()))?;
        let builder = match &trust {
            Some(trust) => builder
                .with_client_cert_verifier(Arc::new(ClientVerifier::new(trust.clone(), must))),
            None => builder.with_no_client_auth(),
        };
        let end_point = certified.leaf().and_then(|leaf| end_point(leaf));
        let mut config = builder.with_cert_resolver(Arc::new(certified));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ignore_client_order = terms.ordered;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if trust.is_none() {
            config.ticketer = provider::ticketer().map_err(|error| Error(error.to_string()))?;
            config.send_tls13_tickets = 1;
        } else {
            // A certificate is looked at whenever somebody comes with it: it may have expired.
            config.send_tls13_tickets = 0;
        }
        let print = print.finalize().into();
        Ok(Self { mode: wish.mode, config: Some(Arc::new(config)), end_point, print })
    }

    /// Whether both were made from the same settings and files. Then the older one is kept: its
    /// sessions can be resumed.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.mode == other.mode && self.print == other.print
    }
}

impl Outward {
    /// As [`Inward::set_up`].
    ///
    /// # Errors
    /// Says which file or setting is wrong.
    pub fn set_up(
        wish: &Wish<'_>,
        read: Read<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let mut print = Sha256::new();
        let mut loader = Loader { wish, read, print: &mut print };
        if wish.mode == Mode::Disable {
            return Ok(Self::default());
        }
        let prefix = wish.prefix;
        if wish.key_file.is_empty() != wish.cert_file.is_empty() {
            let what = format!("{prefix}_key_file and {prefix}_cert_file must be set together");
            return Err(Error(what));
        }
        let certified = if wish.cert_file.is_empty() { None } else { Some(loader.certified()?) };
        let trust = loader.trust()?;
        let terms = Terms::read(wish, warnings)?;
        let versions = terms.versions.list();
        let of = match wish.mode {
            Mode::VerifyCa => OfServer::Authority(or_system(trust)?),
            Mode::VerifyFull => OfServer::AuthorityAndName(or_system(trust)?),
            _ => OfServer::Nothing,
        };
        let algorithms = provider::algorithms();
        let builder = ClientConfig::builder_with_provider(terms.provider.into())
            .with_protocol_versions(&versions)
            .map_err(|error| Error(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier { of, algorithms }));
        let mut config = match certified {
            Some(certified) => builder.with_client_cert_resolver(Arc::new(certified)),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        // PostgreSQL gives no tickets, and a memory of them would be one lock for all workers.
        config.resumption = rustls::client::Resumption::disabled();
        let print = print.finalize().into();
        Ok(Self { mode: wish.mode, config: Some(Arc::new(config)), print })
    }

    /// Whether both were made from the same settings and files. Servers of the one will do for the
    /// other.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.mode == other.mode && self.print == other.print
    }
}

fn or_system(trust: Option<Arc<Trust>>) -> Result<Arc<Trust>, Error> {
    match trust {
        Some(trust) => Ok(trust),
        None => Trust::of_system().map(Arc::new).map_err(Error),
    }
}

/// Reads files, and takes their prints.
struct Loader<'a, 'b> {
    wish: &'a Wish<'a>,
    read: Read<'a>,
    print: &'b mut Sha256,
}

impl Loader<'_, '_> {
    fn file(&mut self, what: &str, path: &str) -> Result<Vec<u8>, Error> {
        let text = (self.read)(path)
            .map_err(|error| Error(format!("failed to load {what} file \"{path}\": {error}")))?;
        self.print.update(what);
        self.print.update(text.len().to_be_bytes());
        self.print.update(&text);
        Ok(text)
    }

    fn certified(&mut self) -> Result<Certified, Error> {
        let Wish { cert_file, key_file, .. } = *self.wish;
        let certificate = self.file("certificate", cert_file)?;
        let key = self.file("private key", key_file)?;
        Certified::read(&certificate, &key).map_err(|blame| match blame {
            Blame::Certificate(why) => {
                Error(format!("failed to load certificate file \"{cert_file}\": {why}"))
            }
            Blame::Key(why) => {
                Error(format!("failed to load private key file \"{key_file}\": {why}"))
            }
        })
    }

    /// The CA file, where there is one. All settings are in the print by then.
    fn trust(&mut self) -> Result<Option<Arc<Trust>>, Error> {
        let wish = self.wish;
        let texts =
            [wish.protocols, wish.ciphers, wish.tls13_ciphers, wish.ecdhcurve, wish.dheparams];
        for text in texts {
            self.print.update(text.len().to_be_bytes());
            self.print.update(text);
        }
        let path = wish.ca_file;
        if path.is_empty() {
            return Ok(None);
        }
        let text = self.file("CA", path)?;
        pem::certificates(&text)
            .and_then(Trust::new)
            .map(|trust| Some(Arc::new(trust)))
            .map_err(|why| Error(format!("failed to load CA file \"{path}\": {why}")))
    }
}

/// Versions, ciphers and curves.
struct Terms {
    versions: Versions,
    provider: rustls::crypto::CryptoProvider,
    /// Somebody gave an order of ciphers.
    ordered: bool,
}

impl Terms {
    fn read(wish: &Wish<'_>, warnings: &mut Vec<String>) -> Result<Self, Error> {
        let prefix = wish.prefix;
        let invalid = |name: &str, word: &str| {
            Error(format!("invalid value \"{word}\" for parameter {prefix}_{name}"))
        };
        let mut said = |name: &str, lacking: Vec<String>| {
            if !lacking.is_empty() {
                let lacking = lacking.join(", ");
                warnings.push(format!("{prefix}_{name}: there is no {lacking} here"));
            }
        };
        let mut lacking = Vec::new();
        let mut versions = Versions::read(wish.protocols, &mut lacking)
            .map_err(|word| invalid("protocols", &word))?;
        if versions.list().is_empty() {
            return Err(Error(format!(
                "{prefix}_protocols = {}: of these versions there is none here; write tlsv1.2, tlsv1.3 or secure",
                wish.protocols
            )));
        }
        said("protocols", std::mem::take(&mut lacking));
        let old = suites::old_suites(wish.ciphers, &mut lacking);
        said("ciphers", std::mem::take(&mut lacking));
        let old = match old {
            Ok(old) => old,
            Err(_) if versions.tls13 => {
                said("ciphers", vec!["such cipher, and so no TLS 1.2,".to_owned()]);
                versions.tls12 = false;
                Vec::new()
            }
            Err(why) => {
                return Err(Error(format!("failed to set ciphers \"{}\": {why}", wish.ciphers)));
            }
        };
        let new = suites::new_suites(wish.tls13_ciphers, &mut lacking)
            .map_err(|()| Error("failed to set the TLSv1.3 cipher suites".to_owned()))?;
        said("tls13_ciphers", std::mem::take(&mut lacking));
        let curves = suites::curves(wish.ecdhcurve, &mut lacking)
            .map_err(|word| invalid("ecdhcurve", &word))?;
        said("ecdhcurve", lacking);
        match wish.dheparams.to_ascii_lowercase().as_str() {
            "" | "auto" | "none" => {}
            "legacy" => said("dheparams", vec!["key exchange by DHE".to_owned()]),
            _ => return Err(invalid("dheparams", wish.dheparams)),
        }
        let ordered = !wish.tls13_ciphers.is_empty() || wish.ciphers.contains(':');
        let all: Vec<_> = new.into_iter().chain(old).collect();
        let provider = suites::provider_with(&all, curves.as_deref());
        Ok(Self { versions, provider, ordered })
    }
}
