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
pub struct Tls(Source);

#[derive(Clone, Debug)]
enum Source {
    Plain,
    Fixed(Arc<ServerConfig>),
    Latest(watch::Receiver<Arc<ServerConfig>>),
}

/// Notifies a connection that its TLS configuration was replaced.
#[derive(Clone, Debug)]
pub(super) enum Renewal {
    Never,
    Config(watch::Receiver<Arc<ServerConfig>>),
}

impl Tls {
    /// Plain HTTP/1.1 without TLS.
    #[must_use]
    pub const fn plain() -> Self {
        Self(Source::Plain)
    }

    pub(super) fn current(&self) -> (Option<Arc<ServerConfig>>, Renewal) {
        match &self.0 {
            Source::Plain => (None, Renewal::Never),
            Source::Fixed(config) => (Some(Arc::clone(config)), Renewal::Never),
            Source::Latest(configs) => {
                let mut configs = configs.clone();
                let config = Arc::clone(&configs.borrow_and_update());
                (Some(config), Renewal::Config(configs))
            }
        }
    }
}

impl Renewal {
    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Never => false,
            Self::Config(configs) => configs.has_changed().unwrap_or(false),
        }
    }

    /// Completes when the configuration was replaced. Only clones complete again.
    pub(super) async fn due(&mut self) {
        let changed = match self {
            Self::Never => std::future::pending().await,
            Self::Config(configs) => configs.changed().await,
        };
        if changed.is_err() {
            // The sender is gone: the last configuration stays.
            std::future::pending().await
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
