//! What OpenSSL would call it: log readers know its words.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerMisbehaved};
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite};

/// Every version with every suite that rustls has for it.
const SUITES: &[(CipherSuite, &str)] = &[
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLSv1.3/TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLSv1.3/TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLSv1.3/TLS_CHACHA20_POLY1305_SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "TLSv1.2/ECDHE-ECDSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "TLSv1.2/ECDHE-ECDSA-AES128-GCM-SHA256"),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLSv1.2/ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "TLSv1.2/ECDHE-RSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "TLSv1.2/ECDHE-RSA-AES128-GCM-SHA256"),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLSv1.2/ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

pub(super) fn suite(
    version: Option<ProtocolVersion>,
    suite: Option<SupportedCipherSuite>,
) -> &'static str {
    let suite = suite.map(|suite| suite.suite());
    let known = SUITES.iter().find(|(known, _)| Some(*known) == suite);
    match (known, version) {
        (Some((_, name)), _) => name,
        (None, Some(ProtocolVersion::TLSv1_2)) => "TLSv1.2/unknown",
        (None, _) => "TLSv1.3/unknown",
    }
}

/// Why a session failed.
pub(super) fn of(error: &Error, in_handshake: bool) -> String {
    let what = if in_handshake { "handshake failed" } else { "connection failed" };
    format!("{what}: {}", why(error))
}

fn why(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => {
            format!("certificate verify failed: {}", flaw(why))
        }
        Error::NoCertificatesPresented => "peer did not return a certificate".to_owned(),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "wrong version number: these are no TLS records".to_owned()
        }
        Error::AlertReceived(alert) => format!("peer says: alert {}", alert_name(*alert)),
        Error::PeerIncompatible(why) => format!("no common ground: {why:?}"),
        Error::PeerMisbehaved(PeerMisbehaved::TooMuchEarlyDataReceived) => {
            "early data was sent, and not asked for".to_owned()
        }
        Error::NoApplicationProtocol => {
            "no application protocol: ALPN is not postgresql".to_owned()
        }
        Error::DecryptError => "decryption failed or bad record mac".to_owned(),
        other => other.to_string(),
    }
}

fn flaw(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "unable to get local issuer certificate".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid".to_owned()
        }
        CertificateError::BadSignature => "certificate signature failure".to_owned(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "name mismatch".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "unsuitable certificate purpose".to_owned()
        }
        CertificateError::Other(why) => why.0.to_string(),
        other => other.to_string(),
    }
}

/// `unknown_ca`, as OpenSSL and PostgreSQL write it: `unknown ca`.
fn alert_name(alert: AlertDescription) -> String {
    let camel = format!("{alert:?}");
    let mut words = String::new();
    let mut before = ' ';
    for letter in camel.chars() {
        if letter.is_uppercase() && before.is_lowercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
        before = letter;
    }
    words
}
