//! Arguments and TLS, the same for every measured server, and quantiles, the same for every program that measures.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A constant response.
pub const ANSWER: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"00000000-0000-4000-8000-000000000000","allowed":true}}"#;

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
    /// Delay of each request in the handler, such as 3s.
    #[arg(long, value_parser = seconds, default_value = "0s")]
    pub hold: Duration,
}

fn seconds(text: &str) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    Ok(Duration::from_secs(text.trim_end_matches('s').parse()?))
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

/// Reports the address to the parent process.
pub fn announce(address: SocketAddr) {
    println!("listening on {address}");
}

/// Time of the system clock in microseconds, for two processes on one machine.
pub fn now_us() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time.as_micros().try_into().unwrap_or_default()
}

/// Quantiles of durations, in microseconds.
#[derive(Debug, serde::Serialize)]
pub struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    /// All are 0 if there are no durations.
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let last = durations.len().saturating_sub(1);
        let at = |percent: usize| {
            durations.get(last * percent / 100).map_or(0.0, |duration| duration.as_secs_f64() * 1e6)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}
