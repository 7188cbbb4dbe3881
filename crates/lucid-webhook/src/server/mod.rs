//! Serving HTTP/1.1 and HTTP/2 over TLS, and plain HTTP/1.1 with the same care.
//!
//! `door` lets a connection in, `connection` serves it, `activity` knows what it is busy with and for how long it may
//! be.

mod activity;
mod connection;
mod door;
mod peer;
mod request_body;
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
use snafu::{ResultExt, Snafu};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tower::{Service, ServiceExt};

use self::activity::Periods;
use self::connection::{Settings, Stage};
use self::door::{Connections, Door};
pub use self::peer::PeerCertificate;
pub use self::request_body::RequestBody;
pub use self::tls::Tls;
use crate::admin::Readiness;
use crate::reply;
use crate::router::BoxError;

/// Connections at once: an API server keeps 25 idle ones for each webhook, and there are few API servers.
const CONNECTIONS: usize = 4096;
/// How long a new connection counts as one that is about to ask, when the server leaves.
const FRESH: Duration = Duration::from_secs(1);
const DRAIN_STEP: Duration = Duration::from_millis(20);

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
///
/// # Connections
///
/// An idle connection is kept for 120 s, longer than the 90 s of the API server: it closes first, so no request is
/// lost to a connection that ends under it. A handshake and a request's head have 10 s each, and a client that stops
/// to read its answer has 10 s as well; heads above 16 KiB are answered with 431. A
/// [limit](Self::with_connection_limit) holds for all connections; who idles makes room for who comes.
///
/// HTTP/2 is spoken where the TLS configuration offers `h2` by ALPN and the client takes it, HTTP/1.1 otherwise.
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
    /// Takes the address.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).await.context(ListenSnafu { address })?;
        let address = listener.local_addr().context(ListenSnafu { address })?;
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

    /// How many connections may stand at once, 4,096 by default.
    ///
    /// One more makes another leave: one that has not asked anything in half a second,
    /// or whose request's body stands still; otherwise the one that has idled longest, or takes too long to read its
    /// answer. While all are busy, the new one waits.
    #[must_use]
    pub const fn with_connection_limit(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Closes connections while a condition of `readiness` is missing, so that clients connect to another replica. By
    /// default there is no condition.
    ///
    /// The readiness probe keeps new connections away, but clients keep the connections that they have. When a condition
    /// is lost, idle HTTP/1.1 connections close and HTTP/2 connections get GOAWAY. Until it holds again, requests are
    /// answered, HTTP/1.1 answers carry `Connection: close`, and a new HTTP/2 connection gets GOAWAY with its first
    /// request. At shutdown complete the future that is passed to [`serve`](Self::serve) before a condition is lost:
    /// the lame-duck period leaves idle connections open.
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
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

    #[cfg(test)]
    const fn with_periods(mut self, periods: Periods) -> Self {
        self.periods = periods;
        self
    }

    /// Serves until `shutdown` completes, then as a lame duck, then until the requests in flight are answered.
    ///
    /// `tls` is an `Arc<rustls::ServerConfig>`, or a `watch::Receiver` of such, whose value is taken anew for each
    /// connection; [`Tls::plain`] serves HTTP/1.1 without TLS. `service` is a [`Router`](crate::Router), or anything around it, such as a layer that compresses answers;
    /// each request goes to a clone. An answer is sent when its body is complete; when the body fails, 500 is sent
    /// instead. Where a client showed a certificate, requests have a [`PeerCertificate`] among their extensions.
    ///
    /// Dropping this future ends all connections at once.
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
        let mut door = Door::new(self.listener, self.connections, connections.clone());
        let mut tasks = JoinSet::new();
        let readiness = self.readiness;
        let mut leaving = pin!(async {
            tokio::select! {
                // In this order: at shutdown the process loses its readiness as well.
                biased;
                () = shutdown => {}
                () = follow(&readiness, &stage) => {}
            }
            stage.send_replace(Stage::LameDuck);
            tokio::time::sleep(self.lame_duck).await;
        });
        loop {
            tokio::select! {
                (stream, peer, place) = door.next() => {
                    tasks.spawn(connection::serve(settings.clone(), tls.current(), stream, peer, place));
                }
                Some(ended) = tasks.join_next() => report(ended),
                () = &mut leaving => break,
            }
        }
        // Who stands at the door is let in: a closed one would cost them their call.
        while let Some((stream, peer, place)) = door.next().now_or_never() {
            tasks.spawn(connection::serve(settings.clone(), tls.current(), stream, peer, place));
        }
        drop(door);
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

/// Keeps `stage` as `readiness` says; never completes.
async fn follow(readiness: &Readiness, stage: &watch::Sender<Stage>) {
    loop {
        readiness.reaches(false).await;
        stage.send_replace(Stage::Unready);
        readiness.reaches(true).await;
        stage.send_replace(Stage::Serving);
    }
}

/// An answer with all of its body: what is in flight can only be told of a body whose end is known.
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
