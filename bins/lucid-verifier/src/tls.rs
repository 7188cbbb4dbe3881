//! Reloads the serving certificate when its files change.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lucid_certs::{PairError, ServerTls, ServingCertificate, ServingCertificateResolver};
use rustls::ServerConfig;
use snafu::{ResultExt, Snafu};

use crate::changes::Changes;

/// The serving certificate cannot be used.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[snafu(display("failed to read {}", path.display()))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The files do not contain a certificate and its key.
    #[snafu(display("failed to use the certificate {} with the key {}", certificate.display(), key.display()))]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Cause.
        #[snafu(source(from(PairError, Box::new)))]
        source: Box<PairError>,
    },
    /// TLS cannot be configured.
    #[snafu(display("failed to set up TLS"))]
    Tls {
        /// Cause.
        source: rustls::Error,
    },
}

/// PEM files of a certificate chain and its private key.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    resolver: Arc<ServingCertificateResolver>,
}

impl CertificateFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Returns [`CertificateError`] if a file cannot be read, or certificate and key do not match.
    pub async fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, CertificateError> {
        let resolver = Arc::new(ServingCertificateResolver::empty());
        let files = Self { certificate, key, resolver };
        files.resolver.swap(&files.load().await?);
        Ok(files)
    }

    /// Returns a configuration for TLS 1.2 and 1.3 that always uses the certificate in force.
    ///
    /// # Errors
    ///
    /// Returns [`CertificateError`] if TLS cannot be configured.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let tls = ServerTls::new(Arc::clone(&self.resolver) as _).with_alpn(["http/1.1"]);
        tls.build().map(Arc::new).context(TlsSnafu)
    }

    /// Reloads the files until the future is dropped. While they cannot be read or do not match, as between the
    /// writes of an update, the last valid certificate stays in force.
    pub async fn follow(self, poll: Duration) {
        let mut changes = Changes::of(&[&self.certificate, &self.key], poll);
        loop {
            changes.next().await;
            // Swapping in an unchanged certificate costs nothing.
            let reloaded = self.load().await.map(|certificate| self.resolver.swap(&certificate));
            changes.report("certificate", reloaded);
        }
    }

    async fn load(&self) -> Result<ServingCertificate, CertificateError> {
        let Self { certificate, key, .. } = self;
        let chain = tokio::fs::read(certificate).await.context(ReadSnafu { path: certificate })?;
        let private = tokio::fs::read(key).await.context(ReadSnafu { path: key })?;
        ServingCertificate::from_pem(&chain, &private).context(PairSnafu { certificate, key })
    }
}
