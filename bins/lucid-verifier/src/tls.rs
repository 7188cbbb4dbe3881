//! The serving certificate, in step with its files.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lucid_certs::{PairError, ServerTls, ServingCertificate, ServingCertificateResolver, TlsError};
use rustls::ServerConfig;
use snafu::{ResultExt, Snafu};

use crate::changes::Changes;

/// Why a certificate cannot be served.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[snafu(display("failed to read {}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The files hold no certificate with its key.
    #[snafu(display("failed to use the certificate {} with the key {}", certificate.display(), key.display()))]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        #[snafu(source(from(PairError, Box::new)))]
        source: Box<PairError>,
    },
    /// No TLS.
    #[snafu(display("failed to set up TLS"))]
    Tls {
        /// What is wrong.
        source: TlsError,
    },
}

/// A certificate with its chain, and its key, in two PEM files.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// What was last complained of.
    complaint: Option<String>,
    resolver: Arc<ServingCertificateResolver>,
}

impl CertificateFiles {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or do not belong together.
    pub async fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, CertificateError> {
        let resolver = Arc::new(ServingCertificateResolver::empty());
        let files = Self { certificate, key, complaint: None, resolver };
        files.resolver.swap(&files.load().await?);
        Ok(files)
    }

    /// TLS 1.2 and 1.3 with the certificate in force, now and after each reload.
    ///
    /// # Errors
    ///
    /// When there is no TLS to be had.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let tls = ServerTls::new(Arc::clone(&self.resolver) as _).with_alpn(["http/1.1"]);
        tls.build().map(Arc::new).context(TlsSnafu)
    }

    /// Follows the files until the future is dropped. While they do not match, which they do not for a moment when they are
    /// written one after the other, or cannot be read, the last good certificate stays in force.
    pub async fn follow(mut self, poll: Duration) {
        let mut changes = Changes::of(&[&self.certificate, &self.key], poll);
        loop {
            changes.next().await;
            match self.load().await {
                // It is swapped in again although it is the same: that costs nothing.
                Ok(certificate) => {
                    self.resolver.swap(&certificate);
                    self.complaint = None;
                }
                Err(error) => {
                    let complaint = lucid_process::with_causes(&error);
                    if self.complaint.as_ref() != Some(&complaint) {
                        tracing::error!(error = complaint, "the last good certificate stays in force");
                    }
                    self.complaint = Some(complaint);
                }
            }
        }
    }

    async fn load(&self) -> Result<ServingCertificate, CertificateError> {
        let Self { certificate, key, .. } = self;
        let chain = tokio::fs::read(certificate).await.context(ReadSnafu { path: certificate })?;
        let private = tokio::fs::read(key).await.context(ReadSnafu { path: key })?;
        ServingCertificate::from_pem(&chain, &private).context(PairSnafu { certificate, key })
    }
}
