//! The endpoints, over HTTP/1.1, with TLS and a token where these are wanted.
//!
//! | request | answer |
//! |---|---|
//! | `GET /registry/check?digest=sha256:…` | 200 `{"digest":"sha256:…","notarized":true}` |
//! | the same with `digest` missing, repeated or malformed | 400 `{"error":"…"}` |
//! | the same without the token, where there is one | 401 `{"error":"…"}` |
//! | `GET /healthz` | 200 `ok` |
//! | another method | 405 `{"error":"…"}` |
//! | another path | 404 `{"error":"…"}` |
//!
//! `HEAD` is answered like `GET`, without the body (RFC 9110, section 9.1).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use lucid_notary::Digest;
use lucid_process::TokenFile;
use rustls::ServerConfig;
use serde_json::{Value, json};
use snafu::{ResultExt, Snafu};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use url::form_urlencoded;

use crate::registry::Registry;
use crate::reload::CurrentRegistry;

/// A connection on which no request begins, or none gets through its headers, is closed after this. It is above the
/// idle limits of common clients, so that they close first and no request meets a closing connection.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// How many connections there may be at a time; who comes later waits for one to end. Operators and validators keep some few.
const MOST_CONNECTIONS: usize = 512;

/// How long a TLS handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long requests in progress may go on after the shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// The address cannot be listened on.
#[derive(Debug, Snafu)]
#[snafu(display("failed to listen on {address}"))]
#[non_exhaustive]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

/// Listens on `address`; with port 0 the system picks a free port.
///
/// # Errors
///
/// When the address is in use, not of this machine, or not permitted.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.context(BindSnafu { address })
}

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct Service {
    /// Which digests are notarized.
    pub registry: CurrentRegistry,
    /// Who asks has to show it; without it everybody may ask.
    pub token: Option<TokenFile>,
    /// Without it, plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Service {
    /// Serves on `listener` until `shutdown` completes, then lets the requests in progress end.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let connections = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let accept = async || {
            // It is never closed.
            let place = room.clone().acquire_owned().await.ok();
            listener.accept().await.map(|(stream, _)| (stream, place))
        };
        tokio::pin!(shutdown);
        loop {
            let (stream, place) = tokio::select! {
                () = &mut shutdown => break,
                accepted = accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection");
                        // Out of file descriptors, the next attempt would fail at once.
                        sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            let (service, watcher) = (self.clone(), connections.watcher());
            tokio::spawn(async move {
                let _place = place;
                let Some(tls) = service.tls.clone() else { return service.connection(stream, watcher).await };
                match timeout(HANDSHAKE_LIMIT, TlsAcceptor::from(tls).accept(stream)).await {
                    Ok(Ok(stream)) => service.connection(stream, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(_elapsed) => tracing::debug!("a TLS handshake took too long"),
                }
            });
        }
        drop(listener);
        if timeout(DRAIN_LIMIT, connections.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in time");
        }
    }

    async fn connection(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        watcher: Watcher,
    ) {
        let service = service_fn(move |request: Request<Incoming>| {
            let service = self.clone();
            async move { Ok::<_, Infallible>(service.respond(&request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_LIMIT)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    /// The answer to a request; its body does not matter.
    async fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/registry/check" | "/healthz") {
            return error(StatusCode::NOT_FOUND, "no such path; accepted are /registry/check and /healthz");
        }
        // For HEAD, hyper sends the headers alone.
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; accepted are GET and HEAD");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if path == "/healthz" {
            return text("ok");
        }
        if let Some(token) = &self.token
            && !token.authorizes(request.headers()).await
        {
            let message = "accepted is the header `Authorization: Bearer TOKEN` with this registry's token";
            let mut response = error(StatusCode::UNAUTHORIZED, message);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        check(request.uri().query().unwrap_or_default(), &self.registry.load())
    }
}

fn check(query: &str, registry: &Registry) -> Response<Full<Bytes>> {
    let digest = match digest_of(query) {
        Ok(digest) => digest,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let entry = registry.entry(&digest);
    match entry {
        Some(entry) => tracing::debug!(%digest, image = ?entry.image, note = ?entry.note, "notarized"),
        None => tracing::debug!(%digest, "not notarized"),
    }
    json(StatusCode::OK, &json!({ "digest": digest, "notarized": entry.is_some() }))
}

/// The digest in a query, percent-decoded.
fn digest_of(query: &str) -> Result<Digest, String> {
    let mut digests = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "digest");
    let Some((_, digest)) = digests.next() else {
        return Err(
            "the parameter digest is missing; accepted is digest=sha256:HEX or digest=sha512:HEX".to_owned()
        );
    };
    if digests.next().is_some() {
        return Err("the parameter digest is repeated; accepted is one".to_owned());
    }
    digest.parse().map_err(|error| format!("parameter digest: {error}"))
}

fn text(body: &'static str) -> Response<Full<Bytes>> {
    response(StatusCode::OK, "text/plain; charset=utf-8", body.into())
}

fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &json!({ "error": message }))
}

fn json(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    response(status, "application/json", body.to_string().into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
