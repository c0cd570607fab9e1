//! What the two drivers share: how a step is told, and what they ask.

use std::fmt::Display;

use md5::{Digest as _, Md5};

pub const WRONG: &str = "SELECT * FROM nowhere";
pub const KILL: &str = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop'";
pub const SLEEPERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND datname = 'shop' AND state = 'active' AND query LIKE 'SELECT pg_sleep(30)%'";
pub const BIG: &str =
    "SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i ORDER BY i";
/// What PostgreSQL says the checksum of [`BIG`] is.
pub const BIG_SUM: &str = "SELECT md5(string_agg(i || text, '' ORDER BY i)) FROM (SELECT i, repeat(md5(i::text), 33) AS text FROM generate_series(1, 50000) i) big";

pub fn pooled() -> bool {
    variable("THROUGH") == "howdah"
}

pub fn with_tls() -> bool {
    variable("PGSSLMODE") == "require"
}

pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("run-all sets {name}"))
}

pub fn ok(what: &str) {
    println!("ok {}: {what}", driver());
}

fn driver() -> String {
    let path = std::env::args().next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

pub fn fail(what: &str, wanted: impl Display, seen: impl Display) -> ! {
    eprintln!("FAILED {}: {what}\n  expected: {wanted}\n  seen:     {seen}", driver());
    std::process::exit(1)
}

pub fn expect<T: Display + PartialEq>(what: &str, wanted: T, seen: T) {
    if wanted != seen {
        fail(what, wanted, seen);
    }
}

pub fn several_servers(mut pids: Vec<i32>) {
    pids.sort_unstable();
    pids.dedup();
    if pooled() && pids.len() < 2 {
        fail("servers that served three clients", "two or three", pids.len());
    }
}

/// As [`BIG_SUM`] makes it.
#[derive(Default)]
pub struct Checksum(Md5);

impl Checksum {
    pub fn add(&mut self, number: i32, text: &str) {
        self.0.update(format!("{number}{text}"));
    }

    pub fn hex(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A client's side of TLS that believes any certificate, as `sslmode=require` does.
pub fn credulous() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let verifier = std::sync::Arc::new(Credulous(provider.clone()));
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth()
}

#[derive(Debug)]
struct Credulous(std::sync::Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &rustls::pki_types::CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
