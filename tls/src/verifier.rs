//! What a handshake asks about the peer's certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved,
    SignatureScheme,
};

use crate::certificate::{is_for, parse};
use crate::provider;
use crate::trust::{Purpose, Trust, key_parts};

/// What is looked at in a server's certificate.
#[derive(Clone, Debug)]
pub(crate) enum OfServer {
    /// Nothing: whoever answers will do. That it has the key to its certificate is still proved,
    /// since a login may be bound to that.
    Nothing,
    /// An authority that we know made it.
    Authority(Arc<Trust>),
    /// And it was made out to the host that we dialled.
    AuthorityAndName(Arc<Trust>),
}

/// Judges servers.
pub(crate) struct ServerVerifier {
    pub(crate) of: OfServer,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (trust, named) = match &self.of {
            OfServer::Nothing => return Ok(ServerCertVerified::assertion()),
            OfServer::Authority(trust) => (trust, false),
            OfServer::AuthorityAndName(trust) => (trust, true),
        };
        trust.check(leaf, between, now, Purpose::Server)?;
        if named && !parse(leaf).is_some_and(|parsed| is_for(&parsed, name)) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.algorithms, message, leaf, signed, usize::MAX)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.algorithms, message, leaf, signed, 1)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerVerifier({:?})", self.of)
    }
}

/// Judges clients.
pub(crate) struct ClientVerifier {
    trust: Arc<Trust>,
    /// Whether a client without a certificate is turned away.
    mandatory: bool,
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientVerifier {
    pub(crate) fn new(trust: Arc<Trust>, mandatory: bool) -> Self {
        let hints = trust.subjects().map(|name| DistinguishedName::from(name.to_vec())).collect();
        Self { trust, mandatory, hints, algorithms: provider::algorithms() }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.trust.check(leaf, between, now, Purpose::Client)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.algorithms, message, leaf, signed, usize::MAX)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(&self.algorithms, message, leaf, signed, 1)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientVerifier(mandatory: {})", self.mandatory)
    }
}

/// Whether whoever showed `leaf` has its key. webpki does the same, but not with a certificate of
/// version 1. A scheme of TLS 1.2 may stand for several algorithms; of TLS 1.3, for the first of
/// them: `algorithms_max`.
fn verify(
    algorithms: &WebPkiSupportedAlgorithms,
    message: &[u8],
    leaf: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms_max: usize,
) -> Result<HandshakeSignatureValid, Error> {
    // What TLS 1.3 did away with must not come back in it.
    if algorithms_max == 1 && is_outdated(signed.scheme) {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    }
    let bad = || Error::from(CertificateError::BadEncoding);
    let parsed = parse(leaf).ok_or_else(bad)?;
    let (key_algorithm, key) = key_parts(parsed.tbs_certificate.subject_pki.raw).ok_or_else(bad)?;
    let found = algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
    let Some((_, candidates)) = found else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    let valid = candidates.iter().take(algorithms_max).any(|candidate| {
        candidate.public_key_alg_id().as_ref() == key_algorithm
            && candidate.verify_signature(key, message, signed.signature()).is_ok()
    });
    if valid {
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

fn is_outdated(scheme: SignatureScheme) -> bool {
    matches!(
        scheme,
        SignatureScheme::RSA_PKCS1_SHA1
            | SignatureScheme::ECDSA_SHA1_Legacy
            | SignatureScheme::RSA_PKCS1_SHA256
            | SignatureScheme::RSA_PKCS1_SHA384
            | SignatureScheme::RSA_PKCS1_SHA512
    )
}
