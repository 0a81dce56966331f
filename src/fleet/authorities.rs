//! An https worker's own certificate authorities, for requests and probes.

use pingora::utils::tls::{WrappedX509, parse_x509};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;
use tidegate_policy::fleet::WorkerId;

/// What a peer takes as its authorities.
pub type CaType = [WrappedX509];

/// The certificates of a PEM file. With an unreadable file or an empty one no connection can be
/// made: trusting the system's authorities instead would be worse.
pub(super) fn load(worker: &WorkerId, file: &Path) -> Arc<CaType> {
    let certificates: Vec<CertificateDer<'static>> = match CertificateDer::pem_file_iter(file) {
        Ok(found) => found.filter_map(Result::ok).filter(is_authority).collect(),
        Err(error) => {
            log::error!("worker {worker}: {}: {error}", file.display());
            Vec::new()
        }
    };
    if certificates.is_empty() {
        log::error!("worker {worker}: {}: no usable certificate", file.display());
    }
    let wrap = |der: CertificateDer<'_>| WrappedX509::new(der.to_vec(), parse_x509);
    certificates.into_iter().map(wrap).collect()
}

/// Pingora's parser panics on what is no certificate, so this one goes first.
fn is_authority(der: &CertificateDer<'static>) -> bool {
    RootCertStore::empty().add(der.clone()).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn garbage_and_missing_files_give_nobody_to_trust() {
        let worker = WorkerId::from("w0");
        assert!(load(&worker, Path::new("/nonexistent/ca.pem")).is_empty());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        assert!(load(&worker, file.path()).is_empty());
    }
}
