//! What a certificate says that concerns a login: whom it is made out to, and its own fingerprint.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{AnyRef, ContextSpecific, ObjectIdentifier};
use x509_cert::der::{Decode as _, Encode as _, Reader as _, SliceReader, TagNumber};
use x509_cert::spki::AlgorithmIdentifierRef;

/// What TLS says of a client.
#[derive(Clone, Debug, Default)]
pub struct TlsFacts {
    /// Its certificate, if it showed one and somebody we trust has signed it.
    pub certificate: Option<Certificate>,
    /// `tls-server-end-point` of the certificate that we showed it ([`end_point`]).
    pub end_point: Option<Box<[u8]>>,
}

/// Whom a certificate is made out to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// `CN`, the first there is. `None` as well for one with a zero byte in it, which could pass for
    /// another name.
    pub common_name: Option<Box<str>>,
    /// The whole subject, in the form of RFC 4514.
    pub distinguished_name: String,
}

impl Certificate {
    /// Reads DER; `None` for what cannot be read. That it is genuine, and in force, is for TLS to say.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let subject = certificate.tbs_certificate().subject();
        let name = subject.iter().find(|part| part.oid == COMMON_NAME);
        let name = name.and_then(|part| text(part.value.value()));
        let distinguished_name = subject.to_string();
        Some(Self { common_name: name.map(Into::into), distinguished_name })
    }
}

/// `tls-server-end-point` (RFC 5929): the hash of a certificate, by the hash function of its own
/// signature, but SHA-256 for MD5 and SHA-1. `None` where the signature has no hash function, or one
/// we do not know: then nothing can be bound to it.
#[must_use]
pub fn end_point(der: &[u8]) -> Option<Box<[u8]>> {
    let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
    let signature = certificate.signature_algorithm();
    let parameters = signature.parameters.as_ref().and_then(|any| any.to_der().ok());
    let function = match function(&SIGNATURES, signature.oid) {
        None if signature.oid == RSA_PSS => pss_function(parameters.as_deref()?)?,
        function => function?,
    };
    Some(match function {
        Function::Sha224 => Sha224::digest(der).as_slice().into(),
        Function::Sha256 => Sha256::digest(der).as_slice().into(),
        Function::Sha384 => Sha384::digest(der).as_slice().into(),
        Function::Sha512 => Sha512::digest(der).as_slice().into(),
    })
}

/// Which hash a channel is bound by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Function {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

const COMMON_NAME: ObjectIdentifier = oid("2.5.4.3");
const RSA_PSS: ObjectIdentifier = oid("1.2.840.113549.1.1.10");

/// Signature algorithms of RFC 8017 and RFC 5758.
const SIGNATURES: [(ObjectIdentifier, Function); 11] = [
    (oid("1.2.840.113549.1.1.4"), Function::Sha256),
    (oid("1.2.840.113549.1.1.5"), Function::Sha256),
    (oid("1.2.840.113549.1.1.11"), Function::Sha256),
    (oid("1.2.840.113549.1.1.12"), Function::Sha384),
    (oid("1.2.840.113549.1.1.13"), Function::Sha512),
    (oid("1.2.840.113549.1.1.14"), Function::Sha224),
    (oid("1.2.840.10045.4.1"), Function::Sha256),
    (oid("1.2.840.10045.4.3.1"), Function::Sha224),
    (oid("1.2.840.10045.4.3.2"), Function::Sha256),
    (oid("1.2.840.10045.4.3.3"), Function::Sha384),
    (oid("1.2.840.10045.4.3.4"), Function::Sha512),
];

/// Hash functions by themselves, which RSA-PSS names beside it.
const HASHES: [(ObjectIdentifier, Function); 5] = [
    (oid("1.3.14.3.2.26"), Function::Sha256),
    (oid("2.16.840.1.101.3.4.2.1"), Function::Sha256),
    (oid("2.16.840.1.101.3.4.2.2"), Function::Sha384),
    (oid("2.16.840.1.101.3.4.2.3"), Function::Sha512),
    (oid("2.16.840.1.101.3.4.2.4"), Function::Sha224),
];

fn function(table: &[(ObjectIdentifier, Function)], oid: ObjectIdentifier) -> Option<Function> {
    table.iter().find(|(known, _)| *known == oid).map(|(_, function)| *function)
}

/// `RSASSA-PSS-params`: `[0]` is the hash function, SHA-1 where it is left out.
fn pss_function(parameters: &[u8]) -> Option<Function> {
    let mut reader = SliceReader::new(parameters).ok()?;
    let first = reader.sequence(|inner| {
        let found =
            ContextSpecific::<AlgorithmIdentifierRef<'_>>::decode_explicit(inner, TagNumber(0))?;
        let oid = found.map(|found| found.value.oid);
        // What else there is does not matter.
        while !inner.is_finished() {
            AnyRef::decode(inner)?;
        }
        Ok::<_, x509_cert::der::Error>(oid)
    });
    match first.ok()? {
        Some(oid) => function(&HASHES, oid),
        None => Some(Function::Sha256),
    }
}

/// The text of a name, whichever of the string types it has.
fn text(value: &[u8]) -> Option<String> {
    let text = String::from_utf8(Vec::from(value)).ok()?;
    (!text.is_empty() && !text.contains('\0')).then_some(text)
}
