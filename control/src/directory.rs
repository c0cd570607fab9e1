//! A conversation with a directory, by LDAP.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use std::{env, fs};

use auth::ldap::{Directory, Inquiry, Scope, Servers};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, SearchEntry, SearchOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{mpsc, oneshot};

use crate::names::{Question, Service};
use crate::vouch::Verdict;

/// How long one server of several may take to answer the call.
const CONNECT: Duration = Duration::from_secs(5);

/// `invalidCredentials`
const WRONG: u32 = 49;

/// Whether `password` is that of `user`. The servers are tried in order until one answers.
pub(crate) async fn ask(
    directory: &Directory,
    names: &mpsc::Sender<Question>,
    user: &str,
    password: &[u8],
) -> Verdict {
    // LDAP's passwords are text; and an empty one is no password, but an anonymous bind.
    let Some(password) = str::from_utf8(password).ok().filter(|text| !text.is_empty()) else {
        return Err("the password is empty, or no text".to_owned());
    };
    let servers = match &directory.servers {
        Servers::Named(servers) => servers.clone(),
        Servers::Of { domain, scheme } => found(names, domain, scheme).await?,
    };
    let mut trouble = String::new();
    for server in &servers {
        match connect(directory, server).await {
            Ok(mut ldap) => {
                let verdict = talk(&mut ldap, directory.inquiry(user), password).await;
                let _ = ldap.unbind().await;
                return verdict;
            }
            Err(error) => trouble = format!("{server}: {error}"),
        }
    }
    Err(trouble)
}

/// The servers that the domain itself names.
async fn found(
    names: &mpsc::Sender<Question>,
    domain: &str,
    scheme: &str,
) -> Result<Vec<String>, String> {
    let name = format!("_ldap._tcp.{domain}");
    let (answer, answered) = oneshot::channel();
    let reply = Box::new(move |found| _ = answer.send(found));
    let asked = names.send(Question::Services { name: name.clone(), reply }).await;
    asked.map_err(|_| "nobody looks up names any more".to_owned())?;
    let found = answered.await.map_err(|error| error.to_string())?;
    let found: Vec<Service> =
        found.map_err(|error| format!("could not look up \"{name}\": {error}"))?;
    if found.is_empty() {
        return Err(format!("ldapserver is missing, and there is no SRV record of \"{name}\""));
    }
    Ok(found.iter().map(|Service { host, port }| format!("{scheme}://{host}:{port}")).collect())
}

async fn connect(directory: &Directory, server: &str) -> Result<Ldap, String> {
    let mut settings = LdapConnSettings::new().set_conn_timeout(CONNECT);
    if directory.start_tls || server.starts_with("ldaps:") {
        settings = settings.set_starttls(directory.start_tls);
        settings = match &*TRUST {
            Trust::All => settings.set_no_tls_verify(true),
            Trust::Roots(config) => settings.set_config(config.clone()),
            Trust::Broken(error) => return Err(error.clone()),
        };
    }
    let opened = LdapConnAsync::with_settings(settings, server).await;
    let (conn, ldap) = opened.map_err(|error| error.to_string())?;
    tokio::spawn(conn.drive());
    Ok(ldap)
}

async fn talk(ldap: &mut Ldap, inquiry: Inquiry, password: &str) -> Verdict {
    let dn = match inquiry {
        Inquiry::Bind { dn } => dn,
        Inquiry::Search { bind_dn, bind_password, base, scope, filter } => {
            bind(ldap, &bind_dn, &bind_password)
                .await
                .map_err(|error| format!("could not bind as \"{bind_dn}\" to search: {error}"))?;
            find(ldap, &base, scope, &filter).await?
        }
    };
    bind(ldap, &dn, password).await.map_err(|error| format!("bind as \"{dn}\": {error}"))
}

async fn bind(ldap: &mut Ldap, dn: &str, password: &str) -> Verdict {
    let result = ldap.simple_bind(dn, password).await.map_err(|error| error.to_string())?;
    match result.rc {
        0 => Ok(()),
        WRONG => Err("invalid credentials".to_owned()),
        _ => Err(result.to_string()),
    }
}

/// The one entry there is.
async fn find(ldap: &mut Ldap, base: &str, scope: Scope, filter: &str) -> Result<String, String> {
    let scope = match scope {
        Scope::Base => ldap3::Scope::Base,
        Scope::One => ldap3::Scope::OneLevel,
        Scope::Subtree => ldap3::Scope::Subtree,
    };
    // Two are as bad as many. No attributes: the name is all we want.
    let found = ldap
        .with_search_options(SearchOptions::new().sizelimit(2))
        .search(base, scope, filter, ["1.1"])
        .await;
    let found = found.map_err(|error| format!("could not search for \"{filter}\": {error}"))?;
    let entries = found.0.into_iter().filter(|entry| !entry.is_ref() && !entry.is_intermediate());
    let mut names = entries.map(|entry| SearchEntry::construct(entry).dn);
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        (Some(_), Some(_)) => Err(format!("\"{filter}\" is not unique")),
        (None, _) if matches!(found.1.rc, 0 | 32) => Err(format!("\"{filter}\" finds nobody")),
        (None, _) => Err(format!("could not search for \"{filter}\": {}", found.1)),
    }
}

/// Whose certificate is good enough.
enum Trust {
    /// `TLS_REQCERT never` or `allow`.
    All,
    Roots(Arc<ClientConfig>),
    /// Nobody's: that could not be read.
    Broken(String),
}

/// As the configuration of the LDAP client library says. It, too, reads that once.
static TRUST: LazyLock<Trust> = LazyLock::new(|| {
    // There may be no other voice on it in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let said = said(&|name| env::var(name).ok(), &|path| fs::read_to_string(path).ok());
    match trust(&said) {
        Ok(trust) => trust,
        Err(error) => Trust::Broken(error),
    }
});

/// The options of ldap.conf(5) that bear on certificates, the last word on each.
fn said(
    env: &dyn Fn(&str) -> Option<String>,
    read: &dyn Fn(&Path) -> Option<String>,
) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    if env("LDAPNOINIT").is_some() {
        return said;
    }
    let home = env("HOME").map(PathBuf::from);
    let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let files = [
        Some("/etc/openldap/ldap.conf".into()),
        Some("/etc/ldap/ldap.conf".into()),
        in_home("ldaprc"),
        in_home(".ldaprc"),
        Some("ldaprc".into()),
        env("LDAPCONF").map(PathBuf::from),
    ];
    for text in files.into_iter().flatten().filter_map(|path| read(&path)) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some(name), Some(value)) = (words.next(), words.next())
                && !name.starts_with('#')
            {
                said.insert(name.to_ascii_uppercase(), value.to_owned());
            }
        }
    }
    for name in ["TLS_REQCERT", "TLS_CACERT", "TLS_CACERTDIR"] {
        if let Some(value) = env(&format!("LDAP{name}")) {
            said.insert(name.to_owned(), value);
        }
    }
    said
}

fn trust(said: &BTreeMap<String, String>) -> Result<Trust, String> {
    let wanted = said.get("TLS_REQCERT").map(|word| word.to_ascii_lowercase());
    if matches!(wanted.as_deref(), Some("never" | "allow")) {
        return Ok(Trust::All);
    }
    let mut roots = RootCertStore::empty();
    let (file, dir) = (said.get("TLS_CACERT"), said.get("TLS_CACERTDIR"));
    if let Some(path) = file {
        add(&mut roots, Path::new(path))?;
    }
    if let Some(dir) = dir {
        let entries = fs::read_dir(dir).map_err(|error| format!("{dir}: {error}"))?;
        for entry in entries.filter_map(Result::ok) {
            // Whatever else lies there is none of our business.
            let _ = add(&mut roots, &entry.path());
        }
    }
    if file.is_none() && dir.is_none() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Trust::Roots(Arc::new(config)))
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(env: &[(&str, &str)], files: &[(&str, &str)]) -> BTreeMap<String, String> {
        let find = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        said(&|name| find(env, name), &|path| find(files, &path.to_string_lossy()))
    }

    #[test]
    fn the_last_word_counts() {
        let system = ("/etc/ldap/ldap.conf", "# TLS_REQCERT no\ntls_reqcert hard\nTLS_CACERT /a");
        let own = ("/o", "TLS_REQCERT\tnever # later\n");
        assert_eq!(of(&[], &[system])["TLS_REQCERT"], "hard");
        let said = of(&[("LDAPCONF", "/o")], &[system, own]);
        assert_eq!((&*said["TLS_REQCERT"], &*said["TLS_CACERT"]), ("never", "/a"));
        let env = [("LDAPCONF", "/o"), ("LDAPTLS_REQCERT", "demand")];
        assert_eq!(of(&env, &[system, own])["TLS_REQCERT"], "demand");
        let home = [("HOME", "/h")];
        assert_eq!(of(&home, &[("/h/.ldaprc", "TLS_CACERTDIR /d")])["TLS_CACERTDIR"], "/d");
        assert!(of(&[("LDAPNOINIT", "1")], &[system]).is_empty());
    }

    #[test]
    fn never_and_allow_trust_everybody() {
        for (word, all) in [("never", true), ("ALLOW", true), ("try", false), ("demand", false)] {
            let said = BTreeMap::from([("TLS_REQCERT".to_owned(), word.to_owned())]);
            assert_eq!(matches!(trust(&said), Ok(Trust::All)), all, "{word}");
        }
        let said = BTreeMap::from([("TLS_CACERT".to_owned(), "/nowhere".to_owned())]);
        assert!(trust(&said).is_err(), "a file that is not there trusts nobody");
    }
}
