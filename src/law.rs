//! Who may come in, and how: the rules of `auth_hba_file` and the maps of `auth_ident_file`.

use std::sync::Arc;

use auth::hba::{ClientCert, Interface, Rules, Verdict};
use auth::{Files, IdentMaps};
use config::{AuthType, Config, Problem, Report, Settings, SslMode};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use worker::Level;

use crate::sink::Pen;

/// What those files say.
#[derive(Clone, Default)]
pub(crate) struct Law {
    pub(crate) rules: Arc<Rules>,
    pub(crate) maps: Arc<IdentMaps>,
}

/// What was met with while reading them.
#[derive(Default)]
pub(crate) struct Told {
    /// Lines that cannot be read, and what became of them.
    pub(crate) errors: Vec<String>,
    /// Lines that say something else than they seem to.
    pub(crate) warnings: Vec<String>,
}

impl Law {
    /// Reads what `settings` name. Fails where a file cannot be read at all: without rules, nobody knows
    /// whom to let in. A bad line in a file does not: it rejects whomever it may be about.
    pub(crate) fn read(settings: &Settings) -> Result<(Self, Told), String> {
        let mut told = Told::default();
        if settings.auth_type != AuthType::Hba {
            return Ok((Self::default(), told));
        }
        let path = settings.auth_hba_file.as_str();
        if path.is_empty() {
            return Err("auth_type = hba needs auth_hba_file".to_owned());
        }
        let (rules, bad) = Rules::read(path, &Disk, &interfaces())
            .map_err(|why| format!("could not open auth_hba_file: {why}"))?;
        let rejects = "whoever this line may be about is rejected";
        told.errors.extend(bad.iter().map(|line| format!("auth_hba_file {line}; {rejects}")));
        let maps = match settings.auth_ident_file.as_deref() {
            None | Some("") => IdentMaps::default(),
            Some(path) => {
                let (maps, bad) = IdentMaps::read(path, &Disk)
                    .map_err(|why| format!("could not open auth_ident_file: {why}"))?;
                let lines = bad.iter();
                told.errors.extend(
                    lines.map(|line| format!("auth_ident_file {line}; the line is ignored")),
                );
                maps
            }
        };
        told.warnings = doubts(&rules, &maps, settings);
        Ok((Self { rules: Arc::new(rules), maps: Arc::new(maps) }, told))
    }

    /// The same, with everything told to the log.
    pub(crate) fn load(config: &Config, pen: &mut Pen) -> Result<Self, String> {
        let (law, told) = Self::read(&config.settings)?;
        for error in told.errors {
            pen.say(Level::Error, format_args!("{error}"));
        }
        for warning in told.warnings {
            pen.say(Level::Warning, format_args!("{warning}"));
        }
        Ok(law)
    }
}

/// For `howdah check`: what the files come to, and what is wrong with them.
pub(crate) fn check(settings: &Settings, report: &mut Report) {
    let (law, told) = match Law::read(settings) {
        Ok(read) => read,
        Err(why) => return report.errors.push(Problem::new(why)),
    };
    if settings.auth_type == AuthType::Hba {
        let (rules, maps) = (law.rules.len(), law.maps.len());
        report.summary.push(format!("rules: {rules} in auth_hba_file, {maps} in auth_ident_file"));
        report.summary.extend(law.rules.iter().take(LISTED_MAX).map(|rule| format!("  {rule}")));
    }
    report.warnings.extend(told.errors.into_iter().chain(told.warnings).map(Problem::new));
}

/// Of rules, no more are listed.
const LISTED_MAX: usize = 50;

/// Rules that read well, and can never do what they say.
fn doubts(rules: &Rules, maps: &IdentMaps, settings: &Settings) -> Vec<String> {
    let without_tls = settings.client_tls_sslmode == SslMode::Disable;
    let without_ca = settings.client_tls_ca_file.is_empty();
    let mut doubts = Vec::new();
    for rule in rules.iter() {
        let mut doubt = |what: &str| doubts.push(format!("auth_hba_file {}: {what}", rule.place));
        if rule.is_for_tls() && without_tls {
            doubt("it is about TLS connections, and client_tls_sslmode is disable: it never fits");
        }
        let certified = rule.options.client_cert.is_some() || rule.verdict == Verdict::Cert;
        if certified && (without_tls || without_ca) {
            let full = rule.options.client_cert == Some(ClientCert::VerifyFull);
            let what = if full { "a certificate of the user's own" } else { "a certificate" };
            doubt(&format!(
                "it wants {what}, and none can be checked without TLS and client_tls_ca_file: it lets \
                 nobody in"
            ));
        }
        if let Some(map) = rule.options.map.as_deref().filter(|map| !maps.has(map)) {
            let map = String::from_utf8_lossy(map);
            doubt(&format!("there is no map {map} in auth_ident_file: it lets nobody in"));
        }
    }
    doubts
}

/// The addresses and nets of this machine, for `samehost` and `samenet`.
fn interfaces() -> Vec<Interface> {
    let ip = |address: Option<SockaddrStorage>| {
        let address = address?;
        let v4 = address.as_sockaddr_in().map(|at| at.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|at| at.ip().into()))
    };
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let found = |at: nix::ifaddrs::InterfaceAddress| {
        Some(Interface { address: ip(at.address)?, mask: ip(at.netmask)? })
    };
    all.filter_map(found).collect()
}

/// The disk, as the rules see it.
struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }

    fn exists(&self, path: &str) -> bool {
        std::fs::exists(path).unwrap_or(true)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(path).map_err(|error| error.to_string())?;
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let name = entry.map_err(|error| error.to_string())?.file_name();
            Ok(name.to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }
}
