//! Files of certificates and keys.

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// All certificates in `text`; at least one.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err("no certificate in it (PEM is expected)".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(words(&error)),
    }
}

/// The first private key in `text`: PKCS#8, PKCS#1 or SEC1.
pub(crate) fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let says = |line: &[u8]| text.windows(line.len()).any(|window| window == line);
    if says(b"BEGIN ENCRYPTED PRIVATE KEY") || says(b"Proc-Type: 4,ENCRYPTED") {
        return Err("the key is encrypted, and there is no way to give its passphrase".to_owned());
    }
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(PemError::NoItemsFound) => Err("no private key in it (PEM is expected)".to_owned()),
        Err(error) => Err(words(&error)),
    }
}

fn words(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "a section has no END line".to_owned(),
        PemError::IllegalSectionStart { .. } => "a section begins with a broken line".to_owned(),
        PemError::Base64Decode(why) => format!("broken base64: {why}"),
        other => other.to_string(),
    }
}
