//! An https worker's own certificate authorities as Pingora takes them, for requests and probes.

use crate::config::Authorities;
use pingora::utils::tls::{WrappedX509, parse_x509};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// What a peer takes as its authorities.
pub type CaType = [WrappedX509];

/// Pingora's parser panics on what is no certificate; these were checked with the configuration.
pub(super) fn for_peers(authorities: &Authorities) -> Arc<CaType> {
    let certificates = authorities.certificates().iter();
    certificates.map(|der| WrappedX509::new(der.to_vec(), parse_x509)).collect()
}

/// Tells sets of authorities apart: a connection that one of them vouched for is none that another
/// one did, and Pingora does not ask when it takes one from a pool. Zero stands for the system's.
pub(super) fn fingerprint(authorities: Option<&Authorities>) -> u64 {
    let Some(authorities) = authorities else { return 0 };
    let mut hash = Xxh3::new();
    for certificate in authorities.certificates() {
        hash.update(certificate);
    }
    hash.digest()
}
