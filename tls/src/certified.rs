//! Our own certificate, with its key.

use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::parse;
use crate::{pem, provider};

/// One certificate for whoever asks. It is put together by hand, since rustls' own way in refuses
/// what the world is full of, certificates of version 1 above all.
pub(crate) struct Certified(pub(crate) Arc<CertifiedKey>);

impl Certified {
    /// From the text of both files. The error says which of them is to blame.
    pub(crate) fn read(certificate: &[u8], key: &[u8]) -> Result<Self, Blame> {
        let chain = pem::certificates(certificate).map_err(Blame::Certificate)?;
        let Some(leaf) = chain.first().and_then(|leaf| parse(leaf)) else {
            return Err(Blame::Certificate("its first certificate is broken".to_owned()));
        };
        let key = pem::key(key).map_err(Blame::Key)?;
        let key = provider::provider()
            .key_provider
            .load_private_key(key)
            .map_err(|error| Blame::Key(format!("the key cannot be used: {error}")))?;
        if let Some(public) = key.public_key()
            && public.as_ref() != leaf.tbs_certificate.subject_pki.raw
        {
            return Err(Blame::Key("it is not the key of the certificate".to_owned()));
        }
        Ok(Self(Arc::new(CertifiedKey::new(chain, key))))
    }

    /// The certificate itself.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.0.cert.first()
    }
}

/// Which file is wrong, and what about it.
pub(crate) enum Blame {
    Certificate(String),
    Key(String),
}

impl ResolvesServerCert for Certified {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

impl ResolvesClientCert for Certified {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certified(..)")
    }
}
