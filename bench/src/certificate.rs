//! A certificate of the pooler's own, as an administrator makes one, and clients that take any.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// What the certificate's key is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Key {
    Rsa2048,
    P256,
}

/// Makes a key and a certificate in `folder`, and says with which lines an ini has them used.
pub fn lines(folder: &Path, key: Key) -> anyhow::Result<String> {
    let (private, certificate) = (folder.join("server.key"), folder.join("server.crt"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]);
    match key {
        Key::Rsa2048 => command.args(["-newkey", "rsa:2048"]),
        Key::P256 => command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]),
    };
    command.arg("-keyout").arg(&private).arg("-out").arg(&certificate);
    let made = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !made.context("openssl is needed to make a certificate")?.success() {
        bail!("openssl made no certificate");
    }
    crate::process::give_to_servant(&private)?;
    Ok(format!(
        "client_tls_sslmode = require\nclient_tls_key_file = {}\nclient_tls_cert_file = {}\n",
        private.display(),
        certificate.display()
    ))
}

/// What a client of ours comes with. With `memory` it resumes its sessions.
pub fn client(memory: bool) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let anybody = Arc::new(Anybody(Arc::clone(&provider)));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(anybody)
        .with_no_client_auth();
    if !memory {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Believes whoever answers: it is on this machine.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
