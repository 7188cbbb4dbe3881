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
///
/// Connections that stand are then asked to end: HTTP/2 at once, by GOAWAY, and HTTP/1.1 with the next answer. Both
/// finish what is in flight.
#[derive(Clone, Debug)]
pub struct Tls(Source);

#[derive(Clone, Debug)]
enum Source {
    Plain,
    Fixed(Arc<ServerConfig>),
    Latest(watch::Receiver<Arc<ServerConfig>>),
}

/// Tells a connection that it was made with what holds no longer.
#[derive(Clone, Debug)]
pub(super) enum Renewal {
    Never,
    Config(watch::Receiver<Arc<ServerConfig>>),
}

impl Tls {
    /// No TLS: plain HTTP/1.1.
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

    /// Completes when it is due, which it stays for its clones only.
    pub(super) async fn due(&mut self) {
        let changed = match self {
            Self::Never => std::future::pending().await,
            Self::Config(configs) => configs.changed().await,
        };
        if changed.is_err() {
            // Whoever could have changed it is gone: the last one stays.
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
