//! Reloads the serving certificate when its files change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use lucid_certs::{ServerTls, ServingCertificate, ServingCertificateResolver};
use rustls::ServerConfig;
use snafu::{ResultExt, Snafu};

#[derive(Debug, Snafu)]
pub(crate) enum CertificateError {
    #[snafu(display("failed to read {}", path.display()))]
    Read { path: PathBuf, source: io::Error },
    #[snafu(display("failed to use the certificate {} with the key {}", certificate.display(), key.display()))]
    Pair { certificate: PathBuf, key: PathBuf, source: lucid_certs::Error },
    #[snafu(display("failed to set up TLS"))]
    Tls { source: rustls::Error },
}

#[derive(Debug)]
pub(crate) struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    resolver: Arc<ServingCertificateResolver>,
}

impl CertificateFiles {
    pub(crate) fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, CertificateError> {
        let resolver = Arc::new(ServingCertificateResolver::default());
        let files = Self { certificate, key, resolver };
        files.load()?;
        Ok(files)
    }

    /// Returns a configuration for TLS 1.2 and 1.3 that always uses the certificate in force.
    pub(crate) fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let tls = ServerTls::new(Arc::clone(&self.resolver) as _).with_alpn(["http/1.1"]);
        tls.build().map(Arc::new).context(TlsSnafu)
    }

    /// Reloads the files until the future is dropped. While they cannot be read or do not match, as between the
    /// writes of an update, the last valid certificate stays in force.
    pub(crate) async fn follow(self, poll: Duration) {
        let files = [self.certificate.clone(), self.key.clone()];
        lucid_shared::follow(&files, poll, "certificate", move || self.load()).await;
    }

    fn load(&self) -> Result<(), CertificateError> {
        let Self { certificate, key, resolver } = self;
        let chain = fs::read(certificate).context(ReadSnafu { path: certificate })?;
        let private = fs::read(key).context(ReadSnafu { path: key })?;
        let pair = ServingCertificate::from_pem(&chain, &private).context(PairSnafu { certificate, key })?;
        // Swapping in an unchanged certificate costs nothing.
        resolver.swap(&pair);
        Ok(())
    }
}
