//! A listener's certificate with its key, checked to belong together.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub struct KeyPair(Arc<CertifiedKey>);

impl KeyPair {
    /// From a PEM chain, the listener's own certificate first, and a PEM key.
    pub(super) fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| format!("`cert` is no PEM chain: {error}"))?;
        if chain.is_empty() {
            return Err("`cert` must hold a certificate".into());
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| format!("`key` must hold a private key: {error}"))?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|error| format!("`cert` and `key` cannot be used together: {error}"))?;
        Ok(Self(Arc::new(pair)))
    }

    /// As the TLS library wants it.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0)
    }
}

/// The same certificate, and so the same key.
impl PartialEq for KeyPair {
    fn eq(&self, other: &Self) -> bool {
        self.0.cert == other.0.cert
    }
}

impl Eq for KeyPair {}

/// Nothing of the key.
impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}
