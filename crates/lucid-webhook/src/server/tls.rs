//! Where the TLS configuration comes from.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::sync::watch;

/// The TLS configuration of a server: one that stays, or the latest of several.
///
/// A certificate that changes needs no other configuration where a [`rustls::server::ResolvesServerCert`] hands it
/// out. For everything else send a new one:
///
/// ```
/// # use std::sync::Arc;
/// # use lucid_webhook::{Router, Server};
/// # async fn run(server: Server, first: Arc<rustls::ServerConfig>, second: Arc<rustls::ServerConfig>) {
/// let (sender, receiver) = tokio::sync::watch::channel(first);
/// tokio::spawn(server.serve(receiver, Router::new(), std::future::pending()));
/// sender.send_replace(second); // for connections from now on
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Tls(Source);

#[derive(Clone, Debug)]
enum Source {
    Fixed(Arc<ServerConfig>),
    Latest(watch::Receiver<Arc<ServerConfig>>),
}

impl Tls {
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        match &self.0 {
            Source::Fixed(config) => Arc::clone(config),
            Source::Latest(configs) => Arc::clone(&configs.borrow()),
        }
    }
}

impl From<ServerConfig> for Tls {
    fn from(config: ServerConfig) -> Self {
        Self::from(Arc::new(config))
    }
}

impl From<Arc<ServerConfig>> for Tls {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self(Source::Fixed(config))
    }
}

impl From<watch::Receiver<Arc<ServerConfig>>> for Tls {
    fn from(configs: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self(Source::Latest(configs))
    }
}
