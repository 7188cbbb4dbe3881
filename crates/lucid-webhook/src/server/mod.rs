//! Serves HTTP/1.1 and HTTP/2 over TLS, and plain HTTP/1.1 under the same limits.
//!
//! `accept` accepts connections, `connection` serves them, and `activity` tracks their state and timeouts.

mod accept;
mod activity;
mod connection;
#[cfg(test)]
mod tests;
mod tls;
mod watched;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
pub use hyper::body::Incoming as RequestBody;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tower::{BoxError, Service, ServiceExt};

use self::accept::{Acceptor, Connections};
use self::activity::Periods;
use self::connection::{Settings, Stage};
pub use self::tls::Tls;
use crate::readiness::Readiness;
use crate::reply;

/// Default maximum number of connections: an API server keeps 25 idle ones per webhook, and there are few API servers.
const CONNECTIONS: usize = 4096;
/// Age up to which a new connection is expected to send a request, at shutdown.
const FRESH: Duration = Duration::from_secs(1);
/// Time for callers to find another replica when this one has lost its readiness.
const HANDOVER: Duration = Duration::from_secs(3);
const DRAIN_STEP: Duration = Duration::from_millis(20);

/// A webhook server bound to an address.
///
/// [`bind`](Self::bind) reports an unavailable port before anything else starts, and resolves port 0.
///
/// # Connections
///
/// - Idle connections are kept for 120 s. The API server closes its side after 90 s, so no request is lost on a
///   connection that is closing.
/// - TLS handshakes, request headers and stalled writes of responses time out after 10 s. Headers above 16 KiB get 431.
/// - At the [connection limit](Self::with_connection_limit), a new connection replaces the one that has been idle
///   longest.
///
/// HTTP/2 is used if the TLS configuration offers `h2` by ALPN and the client accepts it, HTTP/1.1 otherwise.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    connections: usize,
    readiness: Readiness,
    lame_duck: Duration,
    drain: Duration,
    periods: Periods,
}

impl Server {
    /// Binds to `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is in use or not available on this host.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let bound =
            TcpListener::bind(address).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|error| {
            io::Error::new(error.kind(), format!("failed to listen on {address}: {error}"))
        })?;
        Ok(Self {
            listener,
            address,
            connections: CONNECTIONS,
            readiness: Readiness::default(),
            lame_duck: Duration::from_secs(5),
            drain: Duration::from_secs(20),
            periods: Periods::default(),
        })
    }

    /// The address in use; its port is never 0.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Sets the maximum number of connections, 4,096 by default.
    ///
    /// At the limit, a new connection replaces the one that has been without a complete request longest. While all have
    /// a request in flight, the new connection waits.
    #[must_use]
    pub const fn with_connection_limit(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Closes connections while a condition of `readiness` is missing, so that clients connect to another replica. By
    /// default there is no condition.
    ///
    /// The readiness probe keeps new connections away, but clients keep existing ones. When a condition becomes false,
    /// idle HTTP/1.1 connections are closed and HTTP/2 connections get GOAWAY. For three seconds new requests are
    /// answered with 503 and `Retry-After`, which makes the API server repeat them. After that, until the condition
    /// holds again, they are served: there may be no other replica. HTTP/1.1 responses carry `Connection: close`, and a
    /// new HTTP/2 connection gets GOAWAY with its first request. At shutdown, complete the future passed to
    /// [`serve`](Self::serve) before a condition becomes false: the lame-duck period leaves idle connections open.
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Sets how long the server keeps accepting requests after shutdown begins (default 5 s).
    ///
    /// Endpoints take a moment to propagate and the API server does not retry a POST. During this period responses
    /// carry `Connection: close`.
    #[must_use]
    pub const fn with_lame_duck(mut self, period: Duration) -> Self {
        self.lame_duck = period;
        self
    }

    /// Sets how long the server waits for requests in flight after that (default 20 s).
    #[must_use]
    pub const fn with_drain(mut self, period: Duration) -> Self {
        self.drain = period;
        self
    }

    #[cfg(test)]
    const fn with_periods(mut self, periods: Periods) -> Self {
        self.periods = periods;
        self
    }

    /// Serves until `shutdown` completes, then for the lame-duck period, then until requests in flight are completed.
    ///
    /// `tls` is an `Arc<rustls::ServerConfig>`, or a `watch::Receiver` of one, whose value is read for each connection;
    /// [`Tls::plain`] serves HTTP/1.1 without TLS. `service` is a [`Router`](crate::Router), possibly wrapped in
    /// layers; each request is handled by a clone. A response is sent once its body is complete; if the body fails, 500
    /// is sent instead. Requests of clients with a verified certificate carry a
    /// [`PeerCertificate`](crate::PeerCertificate) among their extensions.
    ///
    /// Dropping the future closes all connections immediately.
    pub async fn serve<S, B>(self, tls: impl Into<Tls>, service: S, shutdown: impl Future<Output = ()>)
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.and_then(complete);
        let tls = tls.into();
        let (stage, stages) = watch::channel(Stage::Serving);
        let settings = Settings { service, periods: self.periods, stage: stages };
        let connections = Connections::default();
        let mut acceptor = Acceptor::new(self.listener, self.connections, connections.clone());
        let mut tasks = JoinSet::new();
        let readiness = self.readiness;
        let mut leaving = pin!(async {
            tokio::select! {
                // In this order: at shutdown the process also loses its readiness.
                biased;
                () = shutdown => {}
                () = follow(&readiness, &stage) => {}
            }
            stage.send_replace(Stage::LameDuck);
            tokio::time::sleep(self.lame_duck).await;
        });
        loop {
            tokio::select! {
                (stream, peer, slot) = acceptor.next() => {
                    tasks.spawn(connection::serve(settings.clone(), tls.clone(), stream, peer, slot));
                }
                Some(ended) = tasks.join_next() => report(ended),
                () = &mut leaving => break,
            }
        }
        // Serve queued connections: closing them would lose their requests.
        while let Some((stream, peer, slot)) = acceptor.next().now_or_never() {
            tasks.spawn(connection::serve(settings.clone(), tls.clone(), stream, peer, slot));
        }
        drop(acceptor);
        stage.send_replace(Stage::Draining);
        let drained = tokio::time::timeout(self.drain, async {
            while connections.any_awaited(FRESH) {
                tokio::time::sleep(DRAIN_STEP).await;
            }
            stage.send_replace(Stage::Closing);
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
        });
        if drained.await.is_err() {
            tracing::warn!(seconds = self.drain.as_secs(), "gave up waiting for requests in flight");
        }
    }
}

/// Updates `stage` with `readiness`; never completes.
async fn follow(readiness: &Readiness, stage: &watch::Sender<Stage>) {
    // A replica that was not ready before has no callers to hand over.
    if !readiness.missing().is_empty() {
        stage.send_replace(Stage::Unready);
    }
    loop {
        readiness.wait_until(true).await;
        stage.send_replace(Stage::Serving);
        readiness.wait_until(false).await;
        stage.send_replace(Stage::HandingOver);
        if tokio::time::timeout(HANDOVER, readiness.wait_until(true)).await.is_err() {
            stage.send_replace(Stage::Unready);
        }
    }
}

/// Collects the body of a response: tracking requests in flight needs a body of known length.
async fn complete<B>(response: Response<B>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    Ok(match reply::whole(response).await {
        Ok(response) => response.map(Full::new),
        Err(error) => {
            tracing::error!(%error, "the body of an answer failed");
            reply::refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                &format!("the body of the answer failed: {error}"),
            )
        }
    })
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended: its service panicked");
    }
}
