//! Whom we believe: the certificates of a CA file, and the way up to one of them.
//!
//! Nearly everything is webpki's to judge. What it refuses and OpenSSL does not is judged here, for
//! the certificates of the real world: those of X.509 version 1, as PostgreSQL's own manual makes
//! them, self-signed ones that are their own authority, and those of an authority that serve as a
//! server's. What is judged here is judged no more leniently than OpenSSL would.

use rustls::CertificateError;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::prelude::{ParsedExtension, X509Certificate};
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Version;

use crate::certificate::parse;
use crate::provider;

/// Authorities between a certificate and the one we know.
const INTERMEDIATES_MAX: usize = 6;
/// Signatures that one certificate can make us check on the way up.
const SIGNATURES_MAX: usize = 64;

/// What a certificate is shown for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Server,
    Client,
}

/// The certificates of a CA file.
#[derive(Debug)]
pub(crate) struct Trust {
    /// All of them.
    known: Vec<CertificateDer<'static>>,
    /// Those that may vouch for others.
    authorities: Vec<Authority>,
    /// The same, for webpki.
    anchors: Vec<TrustAnchor<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Authority {
    der: CertificateDer<'static>,
    subject: Vec<u8>,
}

impl Trust {
    /// `known`, as they stand in the file. The error says which of them is none.
    pub(crate) fn new(known: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut authorities = Vec::new();
        let mut anchors = Vec::new();
        for (index, der) in known.iter().enumerate() {
            let number = index + 1;
            let parsed = parse(der).ok_or_else(|| format!("certificate {number} is broken"))?;
            if !may_vouch(&parsed) {
                continue;
            }
            let anchor = webpki::anchor_from_trusted_cert(der)
                .map_err(|error| format!("certificate {number} cannot be used: {error}"))?;
            anchors.push(anchor.to_owned());
            let subject = parsed.subject().as_raw().to_vec();
            authorities.push(Authority { der: der.clone(), subject });
        }
        Ok(Self { known, authorities, anchors, algorithms: provider::algorithms() })
    }

    /// The system's own list. Certificates of it that cannot be used are left out.
    pub(crate) fn of_system() -> Result<Self, String> {
        let found = rustls_native_certs::load_native_certs();
        let usable = |der: &CertificateDer<'static>| {
            parse(der).is_some() && webpki::anchor_from_trusted_cert(der).is_ok()
        };
        let known: Vec<_> = found.certs.into_iter().filter(usable).collect();
        if known.is_empty() {
            return Err("the system has no list of certificate authorities".to_owned());
        }
        Self::new(known)
    }

    /// Subjects of the authorities, each a DER name: a hint for clients that have several
    /// certificates.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.authorities.iter().map(|authority| authority.subject.as_slice())
    }

    /// Whether `leaf` is to be believed now.
    pub(crate) fn check(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
        purpose: Purpose,
    ) -> Result<(), CertificateError> {
        let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
        if parsed.subject().as_raw() == parsed.issuer().as_raw()
            && self.known.iter().any(|known| known == leaf)
        {
            // Whoever put it into the file said so.
            in_time(&parsed, now)?;
            return fits(&parsed, purpose);
        }
        if parsed.version() == X509Version::V1 || is_authority(&parsed) {
            fits(&parsed, purpose)?;
            let mut left = SIGNATURES_MAX;
            return self.climb(&parsed, leaf, between, 0, now, purpose, &mut left);
        }
        let usage = match purpose {
            Purpose::Server => KeyUsage::server_auth(),
            Purpose::Client => KeyUsage::client_auth(),
        };
        let leaf = EndEntityCert::try_from(leaf).map_err(words)?;
        let path = leaf
            .verify_for_usage(self.algorithms.all, &self.anchors, between, now, usage, None, None)
            .map_err(words)?;
        // webpki does not ask how old an authority is.
        let found = self.anchors.iter().position(|anchor| anchor == path.anchor());
        let authority = found.and_then(|index| self.authorities.get(index));
        let authority = authority.and_then(|authority| parse(&authority.der));
        in_time(&authority.ok_or(CertificateError::UnknownIssuer)?, now)
    }

    /// From `child`, which is good itself, up to an authority that we know. `below`: authorities
    /// passed on the way.
    #[allow(clippy::too_many_arguments)]
    fn climb(
        &self,
        child: &X509Certificate<'_>,
        der: &[u8],
        between: &[CertificateDer<'_>],
        below: usize,
        now: UnixTime,
        purpose: Purpose,
        left: &mut usize,
    ) -> Result<(), CertificateError> {
        in_time(child, now)?;
        let mut why = CertificateError::UnknownIssuer;
        let issuer = child.issuer().as_raw();
        for authority in self.authorities.iter().filter(|known| known.subject == issuer) {
            let Some(parsed) = parse(&authority.der) else { continue };
            match self.vouches(&parsed, der, below, now, purpose, left) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        if below == INTERMEDIATES_MAX {
            return Err(why);
        }
        for der_above in between {
            let Some(parsed) = parse(der_above) else { continue };
            if parsed.subject().as_raw() != issuer || **der_above == *der {
                continue;
            }
            // Of those in our file we know that they are authorities; of others it has to be said.
            let climbed = if is_authority(&parsed) {
                self.vouches(&parsed, der, below, now, purpose, left).and_then(|()| {
                    self.climb(&parsed, der_above, between, below + 1, now, purpose, left)
                })
            } else {
                Err(other("invalid CA certificate"))
            };
            match climbed {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Whether `above` signed what is in `der`, and was allowed to.
    fn vouches(
        &self,
        above: &X509Certificate<'_>,
        der: &[u8],
        below: usize,
        now: UnixTime,
        purpose: Purpose,
        left: &mut usize,
    ) -> Result<(), CertificateError> {
        in_time(above, now)?;
        fits(above, purpose)?;
        // Whom it may vouch for is webpki's to work out; it cannot here.
        if above.name_constraints().map_or(true, |found| found.is_some()) {
            return Err(CertificateError::UnknownIssuer);
        }
        let constraints = above.basic_constraints().map_err(|_| CertificateError::BadEncoding)?;
        let most = constraints.and_then(|found| found.value.path_len_constraint);
        if most.is_some_and(|most| below > most as usize) {
            return Err(other("path length constraint exceeded"));
        }
        let usage = above.key_usage().map_err(|_| CertificateError::BadEncoding)?;
        if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
            return Err(other("key usage does not include certificate signing"));
        }
        *left = left.checked_sub(1).ok_or(CertificateError::UnknownIssuer)?;
        self.signed(der, above.tbs_certificate.subject_pki.raw)
    }

    /// Whether the certificate in `der` carries a signature by the key `spki`.
    fn signed(&self, der: &[u8], spki: &[u8]) -> Result<(), CertificateError> {
        let (signed, algorithm, signature) = parts(der).ok_or(CertificateError::BadEncoding)?;
        let (key_algorithm, key) = key_parts(spki).ok_or(CertificateError::BadEncoding)?;
        let fitting = self.algorithms.all.iter().filter(|known| {
            known.signature_alg_id().as_ref() == algorithm
                && known.public_key_alg_id().as_ref() == key_algorithm
        });
        let mut why = other("signature algorithm is not supported");
        for known in fitting {
            match known.verify_signature(key, signed, signature) {
                Ok(()) => return Ok(()),
                Err(_) => why = CertificateError::BadSignature,
            }
        }
        Err(why)
    }
}

fn other(why: &'static str) -> CertificateError {
    CertificateError::Other(rustls::OtherError(std::sync::Arc::from(Box::<
        dyn std::error::Error + Send + Sync,
    >::from(why))))
}

fn in_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let Ok(now) = ASN1Time::from_timestamp(seconds) else {
        return Err(CertificateError::BadEncoding);
    };
    let validity = certificate.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet);
    }
    if now > validity.not_after {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// Whether it says nothing against being used for `purpose`, and nothing that we cannot read and
/// must.
fn fits(certificate: &X509Certificate<'_>, purpose: Purpose) -> Result<(), CertificateError> {
    let usage = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    let fits = usage.is_none_or(|usage| {
        let usage = &usage.value;
        usage.any
            || match purpose {
                Purpose::Server => usage.server_auth,
                Purpose::Client => usage.client_auth,
            }
    });
    if !fits {
        return Err(CertificateError::InvalidPurpose);
    }
    let unread = certificate.extensions().iter().any(|extension| {
        extension.critical
            && !matches!(
                extension.parsed_extension(),
                ParsedExtension::BasicConstraints(_)
                    | ParsedExtension::KeyUsage(_)
                    | ParsedExtension::ExtendedKeyUsage(_)
                    | ParsedExtension::SubjectAlternativeName(_)
                    | ParsedExtension::SubjectKeyIdentifier(_)
                    | ParsedExtension::AuthorityKeyIdentifier(_)
            )
    });
    if unread { Err(CertificateError::UnhandledCriticalExtension) } else { Ok(()) }
}

/// Whether it says that it is an authority.
fn is_authority(certificate: &X509Certificate<'_>) -> bool {
    certificate.version() == X509Version::V3
        && matches!(certificate.basic_constraints(), Ok(Some(found)) if found.value.ca)
}

/// Whether a certificate of our own CA file may vouch for others: it says so, or it is of a time
/// when there was no way to say it, or it says what amounts to it.
fn may_vouch(certificate: &X509Certificate<'_>) -> bool {
    if certificate.version() == X509Version::V1 {
        return certificate.subject().as_raw() == certificate.issuer().as_raw();
    }
    match certificate.basic_constraints() {
        Ok(Some(found)) => found.value.ca,
        Ok(None) => {
            matches!(certificate.key_usage(), Ok(Some(usage)) if usage.value.key_cert_sign())
        }
        Err(_) => false,
    }
}

/// In OpenSSL's terms, which are rustls' too.
fn words(error: webpki::Error) -> CertificateError {
    use webpki::Error as E;
    match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => CertificateError::BadEncoding,
        E::CertNotValidYet { .. } | E::InvalidCertValidity => CertificateError::NotValidYet,
        E::CertExpired { .. } => CertificateError::Expired,
        E::UnknownIssuer => CertificateError::UnknownIssuer,
        E::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        E::UnsupportedCriticalExtension => CertificateError::UnhandledCriticalExtension,
        E::EndEntityUsedAsCa => other("invalid CA certificate"),
        error => CertificateError::Other(rustls::OtherError(std::sync::Arc::new(error))),
    }
}

/// The three parts of a certificate: what is signed, the algorithm (without its envelope), the
/// signature.
fn parts(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (certificate, _, []) = value(der, 0x30)? else { return None };
    let (_, signed, rest) = value(certificate, 0x30)?;
    let (algorithm, _, rest) = value(rest, 0x30)?;
    let (signature, _, []) = value(rest, 0x03)? else { return None };
    Some((signed, algorithm, signature.strip_prefix(&[0])?))
}

/// The two parts of a public key: the algorithm (without its envelope), and the key.
pub(crate) fn key_parts(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let (info, _, []) = value(spki, 0x30)? else { return None };
    let (algorithm, _, rest) = value(info, 0x30)?;
    let (key, _, []) = value(rest, 0x03)? else { return None };
    Some((algorithm, key.strip_prefix(&[0])?))
}

/// A DER value with this tag at the front: its content, it with its header, and what follows.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let (length, content) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = content.split_at_checked(length)?;
    let whole = bytes.get(..bytes.len() - rest.len())?;
    Some((content, whole, rest))
}

#[cfg(test)]
mod tests;
