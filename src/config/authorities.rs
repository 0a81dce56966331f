//! Workers' own certificate authorities: read and checked together with the configuration that names
//! their file, and part of it from then on. Whoever connects takes them from there, so that what a
//! file says later is trusted by nobody before it was checked.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module. Never empty; workers that name the same file share them.
#[derive(Clone, PartialEq, Eq)]
pub struct Authorities {
    file: PathBuf,
    certificates: Arc<[CertificateDer<'static>]>,
}

impl Authorities {
    /// Those of a PEM file that can be trusted in; `None`: there is no such one.
    pub(crate) fn from_pem(file: &Path, pem: &[u8]) -> Option<Self> {
        let found = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        let is_authority = |certificate: &CertificateDer<'static>| {
            RootCertStore::empty().add(certificate.clone()).is_ok()
        };
        let certificates: Arc<[_]> = found.filter(is_authority).collect();
        (!certificates.is_empty()).then(|| Self { file: file.to_owned(), certificates })
    }

    /// Where they were read.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Each can be trusted in.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }
}

/// Where they come from and how many there are.
impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.certificates.len(), self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_no_authority() {
        let none = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in [&b""[..], b"nothing", none] {
            assert!(Authorities::from_pem(Path::new("ca.pem"), pem).is_none());
        }
    }

    #[test]
    fn what_can_be_trusted_in_is_kept_in_its_order() {
        let ours = include_str!("../../tests/data/tls/one-ca.pem");
        let other = include_str!("../../tests/data/tls/two-ca.pem");
        let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let read = |pem: &str| Authorities::from_pem(Path::new("ca.pem"), pem.as_bytes());
        let [one, two, both] = [ours, other, &format!("{ours}{none}{other}")]
            .map(|pem| read(pem).map(|of| of.certificates().to_vec()).unwrap_or_default());
        assert_eq!((one.len(), two.len()), (1, 1));
        assert_eq!(both, [one, two].concat());
    }
}
