//! Sources of the TLS configuration.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::sync::watch;

/// TLS configuration of a server: a fixed one, or the latest from a channel.
///
/// To replace only the certificate, use a [`rustls::server::ResolvesServerCert`]. For other changes, send a new
/// configuration:
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
///
/// Existing connections are then asked to close: HTTP/2 immediately by GOAWAY, HTTP/1.1 with the next response. Both
/// complete requests in flight.
#[derive(Clone, Debug)]
pub struct Tls(Option<watch::Receiver<Arc<ServerConfig>>>);

impl Tls {
    /// Plain HTTP/1.1 without TLS.
    #[must_use]
    pub const fn plain() -> Self {
        Self(None)
    }

    pub(super) fn config(&mut self) -> Option<Arc<ServerConfig>> {
        self.0.as_mut().map(|configs| Arc::clone(&configs.borrow_and_update()))
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.0.as_ref().is_some_and(|configs| configs.has_changed().unwrap_or(false))
    }

    pub(super) async fn replaced(&mut self) {
        if let Some(configs) = &mut self.0
            && configs.changed().await.is_ok()
        {
            return;
        }
        // Plain HTTP, or the sender is gone: the last configuration stays.
        std::future::pending().await
    }
}

impl From<ServerConfig> for Tls {
    fn from(config: ServerConfig) -> Self {
        Self::from(Arc::new(config))
    }
}

impl From<Arc<ServerConfig>> for Tls {
    fn from(config: Arc<ServerConfig>) -> Self {
        Self::from(watch::channel(config).1)
    }
}

impl From<watch::Receiver<Arc<ServerConfig>>> for Tls {
    fn from(configs: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self(Some(configs))
    }
}
