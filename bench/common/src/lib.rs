//! Arguments and TLS, the same for every server that is measured.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Options common to all servers.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address to serve at; port 0 takes any.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Certificate, PEM.
    #[arg(long)]
    pub cert: PathBuf,
    /// Key, PEM.
    #[arg(long)]
    pub key: PathBuf,
    /// Delay of each request in the handler, such as 500ms or 3s.
    #[arg(long, value_parser = duration, default_value = "0s")]
    pub hold: Duration,
}

fn duration(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    match text.strip_suffix("ms") {
        Some(millis) => Ok(Duration::from_millis(millis.parse()?)),
        None => Ok(Duration::from_secs(text.trim_end_matches('s').parse()?)),
    }
}

impl Arguments {
    /// TLS 1.3 with rustls's defaults and aws-lc-rs.
    pub fn tls(&self) -> Result<Arc<rustls::ServerConfig>, Box<dyn Error>> {
        let certificates = CertificateDer::pem_file_iter(&self.cert)?.collect::<Result<Vec<_>, _>>()?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, PrivateKeyDer::from_pem_file(&self.key)?)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(tls))
    }
}

/// Tells whoever started this where it listens.
pub fn announce(address: SocketAddr) {
    println!("listening on {address}");
}
