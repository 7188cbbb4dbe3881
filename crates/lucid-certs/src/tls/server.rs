//! TLS configuration of servers.

use std::{fmt, str::FromStr, sync::Arc};

use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    server::ResolvesServerCert,
    version::{TLS12, TLS13},
};

use super::clients::ClientCertificates;
use crate::error::Error;

/// A TLS version, displayed as `1.2` or `1.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        })
    }
}

impl FromStr for TlsVersion {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            _ => Err(Error::new(format!("failed to parse {name:?} as a TLS version: expected 1.2 or 1.3"))),
        }
    }
}

/// Builder of a [`ServerConfig`] for tokio-rustls, lucid-webhook or any other server on rustls.
///
/// Defaults: TLS 1.2 and 1.3 with aws-lc-rs (no process-wide provider is used or installed), HTTP/2 and
/// HTTP/1.1 by ALPN, no client certificates. In TLS 1.3, the server uses the first key exchange group of the
/// client that it supports. With kube-apiserver built with Go 1.24 or later this is the hybrid
/// X25519MLKEM768.
///
/// ```
/// # use std::{sync::Arc, time::SystemTime};
/// # use lucid_certs::{CertificateAuthority, ServerTls, ServingCertificateResolver, ServingNames, TlsVersion};
/// let resolver = Arc::new(ServingCertificateResolver::default());
/// let config = ServerTls::new(Arc::clone(&resolver) as _)
///     .with_min_version(TlsVersion::Tls13)
///     .with_alpn(["http/1.1"])
///     .build()?;
///
/// // Once there is a certificate:
/// # let names = ServingNames::for_services("my-system", &["my-webhook"])?;
/// # let now = SystemTime::now();
/// # let leaf = CertificateAuthority::generate(&names, now)?.issue(&names, now)?;
/// resolver.swap(&leaf);
/// # assert_eq!(config.alpn_protocols, [b"http/1.1"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServerTls {
    certificate: Arc<dyn ResolvesServerCert>,
    min_version: TlsVersion,
    alpn: Vec<Vec<u8>>,
    clients: Option<ClientCertificates>,
}

impl ServerTls {
    /// Creates a builder that serves the certificates of `certificate`, usually a
    /// [`ServingCertificateResolver`](crate::ServingCertificateResolver).
    pub fn new(certificate: Arc<dyn ResolvesServerCert>) -> Self {
        Self {
            certificate,
            min_version: TlsVersion::default(),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            clients: None,
        }
    }

    /// Sets the minimum TLS version (default 1.2).
    pub fn with_min_version(self, min_version: TlsVersion) -> Self {
        Self { min_version, ..self }
    }

    /// Sets the ALPN protocols (RFC 7301) in order of preference (default `h2`, `http/1.1`).
    pub fn with_alpn<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        Self { alpn: protocols.into_iter().map(Into::into).collect(), ..self }
    }

    /// Requests client certificates. Disables session resumption: a resumed session does not present its
    /// certificate again and would outlive its CA.
    pub fn with_clients(self, clients: &ClientCertificates) -> Self {
        Self { clients: Some(clients.clone()), ..self }
    }

    /// Builds the configuration. Changes of the resolver and of the client CAs take effect without a new
    /// configuration.
    ///
    /// # Errors
    ///
    /// Returns an error if the crypto provider does not support one of the TLS versions.
    pub fn build(self) -> Result<ServerConfig, rustls::Error> {
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            TlsVersion::Tls12 => &[&TLS13, &TLS12],
            TlsVersion::Tls13 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)?;
        let mut config = match self.clients {
            Some(clients) => {
                let builder = builder.with_client_cert_verifier(clients.verifier());
                without_resumption(builder.with_cert_resolver(self.certificate))
            }
            None => builder.with_no_client_auth().with_cert_resolver(self.certificate),
        };
        config.alpn_protocols = self.alpn;
        Ok(config)
    }

    /// Builds the configuration and sends it again each time the client CAs are replaced. Servers can then
    /// close connections that were accepted under the previous CAs; lucid-webhook accepts this receiver.
    ///
    /// # Errors
    ///
    /// See [`build`](Self::build).
    pub fn watch(self) -> Result<tokio::sync::watch::Receiver<Arc<ServerConfig>>, rustls::Error> {
        let clients = self.clients.clone();
        let (sender, receiver) = tokio::sync::watch::channel(Arc::new(self.build()?));
        if let Some(clients) = clients {
            clients.resend_when_replaced(sender);
        }
        Ok(receiver)
    }
}

fn without_resumption(mut config: ServerConfig) -> ServerConfig {
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}
