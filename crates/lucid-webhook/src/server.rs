//! Serving a [`Router`] over TLS.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use snafu::{ResultExt, Snafu};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::router::Router;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept that failed, as when file descriptors ran out.
pub(crate) const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);

/// Why a server could not be made.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum BindError {
    /// The address is taken or not ours.
    #[snafu(display("failed to listen on {address}: {source}"))]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A server that has its address and does not serve yet.
///
/// Binding comes first, so that a taken port is an error at start and port 0 tells its address before anything
/// depends on it.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    lame_duck: Duration,
    drain: Duration,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).await.context(ListenSnafu { address })?;
        let address = listener.local_addr().context(ListenSnafu { address })?;
        Ok(Self { listener, address, lame_duck: Duration::from_secs(5), drain: Duration::from_secs(20) })
    }

    /// The address in use; its port is never 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// How long to go on serving after shutdown began, 5 s by default.
    ///
    /// In this time the API server learns that this endpoint goes away; each answer asks it to close its connection.
    /// Closing at once would lose calls: the API server does not repeat a POST.
    #[must_use]
    pub const fn with_lame_duck(mut self, period: Duration) -> Self {
        self.lame_duck = period;
        self
    }

    /// How long to wait, after that, for requests in flight, 20 s by default.
    #[must_use]
    pub const fn with_drain(mut self, period: Duration) -> Self {
        self.drain = period;
        self
    }

    /// Serves until `shutdown` completes, then as a lame duck, then until the requests in flight are answered.
    pub async fn serve(
        self,
        tls: Arc<rustls::ServerConfig>,
        router: Router,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self { listener, lame_duck, drain, .. } = self;
        let leaving = Arc::new(AtomicBool::new(false));
        let connections = GracefulShutdown::new();
        let connection = Connection { tls: TlsAcceptor::from(tls), router, leaving: Arc::clone(&leaving) };
        let accepting = async {
            loop {
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        tokio::spawn(connection.clone().serve(stream, peer, connections.watcher()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        tokio::time::sleep(ACCEPT_BACK_OFF).await;
                    }
                }
            }
        };
        tokio::select! {
            never = accepting => match never {},
            () = async {
                shutdown.await;
                leaving.store(true, Ordering::Relaxed);
                tokio::time::sleep(lame_duck).await;
            } => {}
        }
        drop((listener, connection));
        if tokio::time::timeout(drain, connections.shutdown()).await.is_err() {
            tracing::warn!(seconds = drain.as_secs(), "gave up waiting for requests in flight");
        }
    }
}

#[derive(Clone)]
struct Connection {
    tls: TlsAcceptor,
    router: Router,
    leaving: Arc<AtomicBool>,
}

impl Connection {
    async fn serve(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        let Self { tls, router, leaving } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "failed to set TCP_NODELAY");
        }
        let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            // Health probes connect and leave; that is nothing to report.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Ok(Err(error)) => return tracing::warn!(%peer, %error, "TLS handshake failed"),
            Err(_elapsed) => return tracing::warn!(%peer, "TLS handshake took too long"),
        };
        let service = service_fn(move |request: Request<Incoming>| {
            let (mut router, leaving) = (router.clone(), Arc::clone(&leaving));
            async move {
                let http1 = request.version() < Version::HTTP_2;
                let mut response: Response<Full<Bytes>> = router.call(request).await?;
                if http1 && leaving.load(Ordering::Relaxed) {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        // No header timeout: hyper counts it while a connection idles, and the API server keeps idle ones for 90 s.
        let builder = auto::Builder::new(TokioExecutor::new());
        let serving = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(serving.into_owned()).await {
            tracing::debug!(%peer, %error, "connection ended");
        }
    }
}
