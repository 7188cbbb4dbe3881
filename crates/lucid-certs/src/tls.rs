//! Serving over TLS with a certificate that can be swapped

use std::{fmt, sync::Arc};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use snafu::{ResultExt, Snafu};

use crate::serving::ServingCertificate;

/// Why a server cannot be configured
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum TlsError {
    /// The crypto provider lacks what TLS 1.2 and 1.3 need
    #[snafu(display("failed to configure TLS 1.2 and 1.3"))]
    Versions {
        /// What the library says
        source: rustls::Error,
    },
}

/// Shows every client the certificate that was put in last, whatever server name it asks for.
///
/// A swap is atomic and takes effect from the next handshake on; connections that stand are not
/// touched.
pub struct ServingCertificateResolver {
    certified: ArcSwap<CertifiedKey>,
}

impl ServingCertificateResolver {
    /// A resolver that shows `certificate`
    #[must_use]
    pub fn new(certificate: &ServingCertificate) -> Self {
        Self { certified: ArcSwap::new(Arc::clone(&certificate.certified)) }
    }

    /// Shows `certificate` from now on
    pub fn swap(&self, certificate: &ServingCertificate) {
        self.certified.store(Arc::clone(&certificate.certified));
    }
}

impl ResolvesServerCert for ServingCertificateResolver {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.certified.load_full())
    }
}

impl fmt::Debug for ServingCertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificateResolver").finish_non_exhaustive()
    }
}

/// A server for webhook calls: TLS 1.2 and 1.3 by aws-lc-rs (no provider of the process is used or
/// installed), HTTP/2 and HTTP/1.1 by ALPN, no client certificates.
///
/// # Errors
///
/// When the crypto provider was built without one of the TLS versions.
pub fn server_config(resolver: Arc<ServingCertificateResolver>) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .context(VersionsSnafu)?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
