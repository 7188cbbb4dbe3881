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
    common_name: Option<String>,
    dns_names: Vec<String>,
}

impl PeerCertificate {
    /// Parses the names in a certificate. If it is malformed, there are none.
    #[must_use]
    pub fn new(der: &CertificateDer<'_>) -> Self {
        let (common_name, dns_names) = names(der).unwrap_or_default();
        Self(Arc::new(Peer { der: der.clone().into_owned(), common_name, dns_names }))
    }

    /// Common name of the subject, which Kubernetes uses as the user name.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.0.common_name.as_deref()
    }

    /// DNS names among the subject alternative names.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.0.dns_names.iter().map(String::as_str)
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.0.der
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate")
            .field("common_name", &self.0.common_name)
            .field("dns_names", &self.0.dns_names)
            .finish_non_exhaustive()
    }
}

/// Common name and DNS names in a certificate; `None` if it is malformed.
fn names(der: &[u8]) -> Option<(Option<String>, Vec<String>)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let common_name = certificate.subject().iter_common_name().next();
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
    let dns_names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let common_name = common_name.and_then(|name| name.as_str().ok()).map(str::to_owned);
    Some((common_name, dns_names.collect()))
}
