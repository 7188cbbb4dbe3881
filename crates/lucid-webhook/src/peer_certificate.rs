//! Client identity from TLS certificates.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// Verified client certificate, an extension of the client's requests; cheap to clone.
///
/// ```
/// use lucid_webhook::PeerCertificate;
///
/// fn is_authenticated<B>(request: &http::Request<B>) -> bool {
///     request.extensions().get::<PeerCertificate>().is_some()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct PeerCertificate(Arc<CertificateDer<'static>>);

impl PeerCertificate {
    /// Wraps the certificate that a client presented.
    #[must_use]
    pub fn new(der: CertificateDer<'static>) -> Self {
        Self(Arc::new(der))
    }

    /// The certificate, for any parser of X.509.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.0
    }
}
