//! Serves one connection, from the handshake to its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tower::{Service, ServiceExt};

use super::accept::ConnectionSlot;
use super::activity::{Activity, InFlight, Overdue, Periods, Protocol};
use super::tls::Tls;
use super::watched::Watched;
use crate::peer_certificate::PeerCertificate;
use crate::reply;

/// Maximum size of headers and trailers; Go's clients send less than 1 KiB.
const HEAD_LIMIT: u32 = 16 * 1024;
/// Concurrent requests on one HTTP/2 connection, as in Go's server.
const STREAMS: u32 = 250;
/// Interval and timeout of HTTP/2 keepalive pings.
const PING: Duration = Duration::from_secs(20);
const PONG: Duration = Duration::from_secs(10);

/// Time for an evicted connection to close gracefully.
const EVICTION: Duration = Duration::from_millis(500);

/// Readiness of the server, then the progress of its shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Serving,
    /// Like `Unready`, and requests are answered with 503 and `Retry-After`: the API server repeats them, on another
    /// connection and so perhaps at another replica.
    HandingOver,
    /// Like `LameDuck`, and idle connections close at once: a request lost with one costs no more than the response of
    /// an unready replica. Returns to `Serving`.
    Unready,
    /// Responses ask their clients to disconnect.
    LameDuck,
    /// No new connections are accepted; requests in flight are completed.
    Draining,
    /// Idle connections are closed.
    Closing,
}

impl Stage {
    fn is_unready(self) -> bool {
        matches!(self, Self::HandingOver | Self::Unready)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Settings<S> {
    pub(super) service: S,
    pub(super) periods: Periods,
    pub(super) stage: watch::Receiver<Stage>,
}

pub(super) async fn serve<S>(
    settings: Settings<S>,
    mut tls: Tls,
    stream: TcpStream,
    address: SocketAddr,
    slot: Arc<ConnectionSlot>,
) where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let Some(config) = tls.config() else {
        return serve_http(settings, Protocol::Http1, None, tls, stream, address, &slot).await;
    };
    let handshake = TlsAcceptor::from(config).accept(stream);
    let handshake = tokio::time::timeout(settings.periods.handshake, handshake);
    let stream = tokio::select! {
        handshake = handshake => match handshake {
            Ok(Ok(stream)) => stream,
            // Health probes connect and disconnect.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
            Ok(Err(error)) => return tracing::warn!(%address, %error, "TLS handshake failed"),
            Err(_elapsed) => return tracing::warn!(%address, "TLS handshake timed out"),
        },
        () = slot.evicted() => return tracing::debug!(%address, "too many connections: closed one during its handshake"),
    };
    let session = stream.get_ref().1;
    let peer = session.peer_certificates().and_then(|chain| chain.first());
    let peer = peer.map(|der| PeerCertificate::new(der.clone().into_owned()));
    let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
    serve_http(settings, protocol, peer, tls, stream, address, &slot).await;
}

async fn serve_http<S>(
    settings: Settings<S>,
    protocol: Protocol,
    peer: Option<PeerCertificate>,
    tls: Tls,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    address: SocketAddr,
    slot: &ConnectionSlot,
) where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let activity = slot.activity.clone();
    activity.established(protocol);
    let Settings { service, periods, mut stage } = settings;
    // A connection opened in the lame-duck stage is served: only later changes matter.
    stage.mark_unchanged();
    let (stages, configs) = (stage.clone(), tls.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut in_flight = activity.request();
        let (service, stage, tls) = (service.clone(), stages.clone(), configs.clone());
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        let is_head = *request.method() == Method::HEAD;
        async move {
            let is_handing_over = *stage.borrow() == Stage::HandingOver;
            let mut response = if is_handing_over {
                // Closing a connection with unread data would discard the response.
                while let Some(Ok(_)) = request.body_mut().frame().await {}
                reply::retry(StatusCode::SERVICE_UNAVAILABLE, "this replica is not ready")
            } else {
                service.oneshot(request).await?
            };
            if is_head {
                response = without_body(response);
            }
            in_flight.responding();
            if protocol == Protocol::Http2 {
                return Ok::<_, Infallible>(response.map(|body| tracked(body, in_flight)));
            }
            if *stage.borrow() > Stage::Serving || tls.is_replaced() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        }
    });
    let io = TokioIo::new(Watched::new(stream, slot.activity.clone()));
    let ended = match protocol {
        Protocol::Http1 => {
            let mut builder = http1::Builder::new();
            // hyper's header timeout is disabled: see `activity`.
            builder.header_read_timeout(None).max_header_size(HEAD_LIMIT as usize);
            run(pin!(builder.serve_connection(io, service)), slot, periods, stage, None).await
        }
        Protocol::Http2 => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PONG);
            builder.max_concurrent_streams(STREAMS).max_header_list_size(HEAD_LIMIT);
            run(pin!(builder.serve_connection(io, service)), slot, periods, stage, Some(tls)).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, error, "connection ended");
    }
}

/// Response to HEAD: the response to GET without its content (RFC 9110, section 9.3.2). HTTP/1.1 would omit the content
/// itself; in HTTP/2 it is a protocol error.
fn without_body(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    response.map(|_| Full::default())
}

/// HTTP/2 response body that is in flight until the peer accepts its last byte: a closed flow-control window does not
/// block the underlying stream, unlike in HTTP/1.1.
fn tracked(mut body: Full<Bytes>, in_flight: InFlight) -> Full<Bytes> {
    match body.frame().now_or_never() {
        Some(Some(Ok(frame))) => {
            let bytes = frame.into_data().unwrap_or_default();
            Full::new(Bytes::from_owner(Tracked { bytes, _in_flight: in_flight }))
        }
        _ => Full::default(),
    }
}

struct Tracked {
    bytes: Bytes,
    _in_flight: InFlight,
}

impl AsRef<[u8]> for Tracked {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Drives a connection. Ends it when a timeout elapses, it is evicted, or the server shuts down. `http2` is the TLS
/// configuration of an HTTP/2 connection, which gets GOAWAY when it is replaced.
async fn run<C>(
    mut connection: Pin<&mut C>,
    slot: &ConnectionSlot,
    mut periods: Periods,
    mut stage: watch::Receiver<Stage>,
    mut http2: Option<Tls>,
) -> Result<(), String>
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let activity = &slot.activity;
    let mut alarm = Alarm::new(periods.idle);
    let mut is_closing = false;
    let (stages, is_http2) = (stage.clone(), http2.is_some());
    loop {
        let turn = poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Err(ended));
            }
            activity.settle();
            // Only after the first request: a client that reads GOAWAY before it sends one would reconnect endlessly.
            if is_http2 && !is_closing && activity.has_served() && stages.borrow().is_unready() {
                return Poll::Ready(Ok(Overdue::Close));
            }
            alarm.poll(cx, activity, &periods).map(Ok)
        });
        let close = tokio::select! {
            biased;
            turn = turn => match turn {
                Err(ended) => return ended.map_err(|error| error.to_string()),
                Ok(Overdue::Drop(reason)) => return Err(reason.to_owned()),
                Ok(Overdue::Close) => true,
            },
            () = slot.evicted() => {
                if !activity.has_served() {
                    return Err("too many connections".to_owned());
                }
                periods.closing = EVICTION;
                true
            }
            () = replaced(http2.as_mut()), if !is_closing => true,
            changed = stage.changed(), if !is_closing => {
                let now = *stage.borrow_and_update();
                // In HTTP/1.1 the next response announces it; hyper would abort a partial request here. HTTP/2 gets
                // GOAWAY at once, and completes requests in flight.
                let close = match now {
                    Stage::Serving => false,
                    Stage::HandingOver | Stage::Unready => is_http2 || activity.is_idle_after_request(),
                    Stage::LameDuck | Stage::Draining => is_http2,
                    Stage::Closing => true,
                };
                close || changed.is_err()
            }
        };
        if close {
            is_closing = true;
            activity.close();
            connection.as_mut().graceful_shutdown();
        }
    }
}

async fn replaced(tls: Option<&mut Tls>) {
    match tls {
        Some(tls) => tls.replaced().await,
        None => std::future::pending().await,
    }
}

/// One timer for all timeouts of a connection. It is reset only to an earlier time and re-evaluated when it fires: most
/// requests do not touch it.
struct Alarm(Pin<Box<Sleep>>, Duration);

impl Alarm {
    fn new(at_least: Duration) -> Self {
        Self(Box::pin(tokio::time::sleep(at_least)), at_least)
    }

    fn poll(
        &mut self,
        cx: &mut std::task::Context<'_>,
        activity: &Activity,
        periods: &Periods,
    ) -> Poll<Overdue> {
        loop {
            let timeout = activity.timeout(periods);
            if let Some((at, _)) = timeout
                && at < self.0.deadline()
            {
                self.0.as_mut().reset(at);
            }
            if self.0.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            match timeout {
                Some((at, effect)) if at <= now => return Poll::Ready(effect),
                Some((at, _)) => self.0.as_mut().reset(at),
                None => self.0.as_mut().reset(now + self.1),
            }
        }
    }
}
