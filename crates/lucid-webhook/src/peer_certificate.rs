//! Client identity from TLS certificates.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Verified client certificate, an extension of the client's requests.
///
/// ```
/// use lucid_webhook::PeerCertificate;
///
/// fn caller<B>(request: &http::Request<B>) -> Option<&str> {
///     request.extensions().get::<PeerCertificate>()?.common_name()
/// }
/// ```
#[derive(Clone)]
pub struct PeerCertificate(Arc<Peer>);

struct Peer {
    der: CertificateDer<'static>,
    names: Names,
}

/// Names in a certificate.
#[derive(Debug, Default)]
struct Names {
    common_name: Option<String>,
    dns_names: Vec<String>,
}

impl PeerCertificate {
    /// Parses the names in a certificate. If it is malformed, there are none.
    #[must_use]
    pub fn new(der: &CertificateDer<'_>) -> Self {
        Self(Arc::new(Peer { names: Names::read(der), der: der.clone().into_owned() }))
    }

    /// Common name of the subject, which Kubernetes uses as the user name.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.0.names.common_name.as_deref()
    }

    /// DNS names among the subject alternative names.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.0.names.dns_names.iter().map(String::as_str)
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.0.der
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerCertificate").field(&self.0.names).finish()
    }
}

impl Names {
    /// Returns no names for a malformed certificate.
    fn read(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Self::default() };
        let common_name = certificate.subject().iter_common_name().next();
        let alternative = certificate.subject_alternative_name().ok().flatten();
        Self {
            common_name: common_name.and_then(|name| name.as_str().ok()).map(str::to_owned),
            dns_names: alternative
                .iter()
                .flat_map(|extension| &extension.value.general_names)
                .filter_map(|name| match name {
                    GeneralName::DNSName(name) => Some((*name).to_owned()),
                    _ => None,
                })
                .collect(),
        }
    }
}
