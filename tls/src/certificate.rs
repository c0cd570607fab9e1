//! What a certificate says: the names it was made out to.

use std::net::IpAddr;

use rustls::pki_types::ServerName;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use x509_parser::x509::X509Name;

/// `host` as a handshake names it. A name that no certificate could have is an address that none has.
#[must_use]
pub fn server_name(host: &str) -> ServerName<'static> {
    let bare = host.strip_suffix('.').unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .unwrap_or_else(|_| ServerName::from(IpAddr::from([0, 0, 0, 0])))
}

pub(crate) fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Some(certificate),
        _ => None,
    }
}

/// Whether `certificate` was made out to `name`: as libpq sees it, by its alternative names, and
/// where it has none of the right kind, by its common name.
pub(crate) fn is_for(certificate: &X509Certificate<'_>, name: &ServerName<'_>) -> bool {
    let Ok(extension) = certificate.subject_alternative_name() else { return false };
    let names = extension.map(|extension| extension.value.general_names.as_slice());
    let names = names.unwrap_or_default();
    let text = match name {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        ServerName::IpAddress(ip) => IpAddr::from(*ip).to_string(),
        _ => return false,
    };
    let ip = match name {
        ServerName::IpAddress(ip) => Some(IpAddr::from(*ip)),
        _ => None,
    };
    let matches = |known: &GeneralName<'_>| match known {
        GeneralName::DNSName(pattern) => pattern_matches(pattern, &text),
        GeneralName::IPAddress(bytes) => ip.is_some_and(|ip| same_address(bytes, ip)),
        _ => false,
    };
    if names.iter().any(matches) {
        return true;
    }
    let same_kind = |known: &GeneralName<'_>| match known {
        GeneralName::DNSName(_) => ip.is_none(),
        GeneralName::IPAddress(_) => ip.is_some(),
        _ => false,
    };
    !names.iter().any(same_kind)
        && common_name(certificate.subject()).is_some_and(|cn| pattern_matches(&cn, &text))
}

fn same_address(bytes: &[u8], ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => bytes == ip.octets(),
        IpAddr::V6(ip) => bytes == ip.octets(),
    }
}

/// `*.` at the beginning stands for exactly one label.
fn pattern_matches(pattern: &str, name: &str) -> bool {
    if pattern.eq_ignore_ascii_case(name) {
        return !pattern.is_empty();
    }
    let Some(domain) = pattern.strip_prefix("*.") else { return false };
    // Nobody may own a whole top level, nor all addresses that end in `.1`.
    if !domain.contains('.') || name.parse::<IpAddr>().is_ok() {
        return false;
    }
    name.split_once('.')
        .is_some_and(|(first, rest)| !first.is_empty() && rest.eq_ignore_ascii_case(domain))
}

fn common_name(subject: &X509Name<'_>) -> Option<String> {
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    (!name.is_empty() && !name.contains('\0')).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_one_label() {
        for (pattern, name, want) in [
            ("db.example.com", "DB.example.com", true),
            ("*.example.com", "db.example.com", true),
            ("*.example.com", "a.db.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", ".example.com", false),
            ("*.com", "example.com", false),
            ("*", "example", false),
            ("d*.example.com", "db.example.com", false),
            ("*.0.0.1", "127.0.0.1", false),
            ("", "", false),
        ] {
            assert_eq!(pattern_matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn a_name_that_cannot_be_is_nobodys() {
        assert_eq!(server_name("bad name"), ServerName::from(IpAddr::from([0, 0, 0, 0])));
        assert_eq!(server_name("db."), server_name("db"));
        assert!(matches!(server_name("my_db"), ServerName::DnsName(_)));
        assert!(matches!(server_name("::1"), ServerName::IpAddress(_)));
    }
}
