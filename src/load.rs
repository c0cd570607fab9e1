//! Reading the configuration and the files it names.

use std::sync::Arc;

use auth::ldap::Directory;
use auth::{Decoy, Userlist};
use config::{AuthType, Config, Diff, Disk, Settings};
use session::Tracked;
use worker::{Level, Site, Tls};

use crate::law::Law;
use crate::sink::Pen;

/// What is wrong with `auth_ldap_options`.
pub(crate) fn ldap_flaw(settings: &Settings) -> Option<String> {
    match settings.auth_ldap_options.as_deref().map(Directory::parse) {
        Some(Err(error)) => Some(format!("invalid auth_ldap_options: {error}")),
        None if settings.auth_type == AuthType::Ldap => {
            Some("auth_type = ldap needs auth_ldap_options".to_owned())
        }
        _ => None,
    }
}

/// For `howdah check`: what an auth_file says.
pub(crate) fn users(text: &[u8]) -> config::Userlist {
    let (list, flaws) = Userlist::parse(text);
    let name = |(name, _): (&[u8], &_)| String::from_utf8_lossy(name).into_owned();
    let flaws = flaws.iter().map(ToString::to_string).collect();
    config::Userlist { names: list.users().map(name).collect(), flaws }
}

/// How many users auth_file knows.
pub(crate) fn count_users(settings: &Settings) -> usize {
    let text = settings.auth_file.as_deref().and_then(|path| std::fs::read(path).ok());
    text.map_or(0, |text| Userlist::parse(&text).0.len())
}

/// Read the configuration at `path`. All that is wrong is said to the log.
pub(crate) fn config(path: &str, pen: &mut Pen) -> Option<Config> {
    match config::load(path, &Disk) {
        Ok(config) => {
            for warning in config.warnings.iter().chain(&config.not_yet) {
                pen.say(Level::Warning, format_args!("{warning}"));
            }
            match ldap_flaw(&config.settings) {
                Some(flaw) => {
                    pen.say(Level::Error, format_args!("{flaw}"));
                    None
                }
                None => Some(config),
            }
        }
        Err(problems) => {
            for problem in &problems.0 {
                pen.say(Level::Error, format_args!("{problem}"));
            }
            None
        }
    }
}

/// Keys and certificates. All that is wrong is said to the log; `false` if something is, and stays as
/// it was in `old`.
pub(crate) fn tls(config: &Config, old: &Tls, pen: &mut Pen) -> (Tls, bool) {
    let mut warnings = Vec::new();
    let (tls, errors) = crate::tls::set_up(config, old, &mut warnings);
    for warning in warnings {
        pen.say(Level::Warning, format_args!("{warning}"));
    }
    for error in &errors {
        pen.say(Level::Error, format_args!("{error}"));
    }
    (tls, errors.is_empty())
}

/// Furnish a site: the configuration, and what its files say. `old` is the one in force, whose
/// userlist stays where the new one cannot be read.
pub(crate) fn site(
    config: Config,
    law: Law,
    diff: Diff,
    old: Option<&Site>,
    tls: Tls,
    secret: [u8; 32],
    pen: &mut Pen,
) -> Site {
    // Servers whose certificates were looked at by other standards, or that know us by another.
    let server_tls = old.is_some_and(|old| !old.tls.outward.is_same(&tls.outward));
    let diff = Diff { server_tls, ..diff };
    let userlist = match &config.settings.auth_file {
        None => Userlist::default(),
        Some(path) => match std::fs::read(path) {
            Ok(text) => {
                let (list, flaws) = Userlist::parse(&text);
                for flaw in flaws {
                    pen.say(Level::Error, format_args!("{path}: {flaw}"));
                }
                list
            }
            Err(error) => {
                pen.say(Level::Error, format_args!("could not open auth_file {path}: {error}"));
                old.map(|site| site.userlist.clone()).unwrap_or_default()
            }
        },
    };
    let extra = config.settings.track_extra_parameters.iter().map(String::as_str);
    let tracked = match old {
        // Connections are numbered by it: only a restart changes it.
        Some(site) => site.tracked.clone(),
        None => Arc::new(Tracked::new(extra)),
    };
    let decoy = Decoy::new(secret, config.settings.scram_iterations, userlist.prevailing_form());
    let options = config.settings.auth_ldap_options.as_deref();
    let directory = match options.map(Directory::parse) {
        None => None,
        Some(Ok(directory)) => Some(Arc::new(directory)),
        Some(Err(error)) => {
            pen.say(Level::Error, format_args!("invalid auth_ldap_options: {error}"));
            None
        }
    };
    let uid = rustix::process::getuid().as_raw();
    let Law { rules, maps } = law;
    let generation = old.map_or(0, |site| site.generation) + 1;
    let decoy = Arc::new(decoy);
    Site { config, userlist, rules, maps, directory, tracked, decoy, tls, diff, generation, uid }
}
