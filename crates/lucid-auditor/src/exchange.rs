//! An auditor to start from.
//!
//! Lucid chains auditors between the callers of a model and the model. An auditor has to:
//!
//! - answer `GET /health` with `{"status":"ok"}` and `POST /audit` with its verdict on a text: [`Auditor`];
//! - forward every other request to `LUCID_CHAIN_NEXT`, the next auditor or the model, and stream the response back:
//!   `forward.rs`, `watch.rs`;
//! - block what it finds in the mode `enforce`, and only log it in `observe`: [`Mode`];
//! - keep serving for a while after SIGTERM, as its neighbors do: [`stages`];
//! - run as any user, with a read-only file system.
//!
//! This auditor searches for phrases: [`Phrases`]. **To write your own auditor, replace that type.** It receives requests
//! as a whole, and responses piece by piece.

mod forward;
mod json;
mod phrases;
mod serve;
mod settings;
mod watch;

use std::convert::Infallible;
use std::error::Error as _;
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Json};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, EXPECT, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode, Version};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;
use tracing::Instrument as _;

use forward::Next;
pub use phrases::Phrases;
pub use serve::{Stage, serve, stages};
pub use settings::{Mode, SettingError, Settings};
use watch::Watched;

/// Timeout for receiving a buffered request body.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// Number of bodies of maximum size that fit in memory at the same time.
const MAX_BODIES: usize = 32;

/// Limits for draining an unwanted body: bytes and time.
const DISCARDED: usize = 64 << 20;
const DISCARD_LIMIT: Duration = Duration::from_secs(2);

/// The auditor, for [`serve`](serve()).
#[derive(Debug)]
pub struct Auditor {
    settings: Settings,
    next: Next,
    /// Memory for all buffered bodies, in bytes.
    room: Arc<Semaphore>,
}

/// A buffered body.
struct Buffered {
    text: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Memory reserved for the text.
    room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Buffered {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Buffered {
    /// Converts it to a body, which holds its memory until it is sent.
    fn into_body(mut self) -> Body {
        let trailers = self.trailers.take();
        let data = Bytes::from_owner(self);
        let Some(trailers) = trailers else { return Body::from(data) };
        let frames = [Frame::data(data), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        Body::new(StreamBody::new(stream::iter(frames)))
    }
}

impl Auditor {
    /// Creates an auditor.
    pub fn new(settings: Settings) -> Self {
        let room = settings.max_bytes.saturating_mul(MAX_BODIES).min(Semaphore::MAX_PERMITS);
        let (next, room) = (Next::new(&settings.next, &settings.id), Arc::new(Semaphore::new(room)));
        Self { settings, next, room }
    }

    /// Returns the response to a request of `peer`.
    ///
    /// Not implemented as an axum router, which adds `Allow` and `Content-Length` to forwarded responses.
    pub(crate) async fn respond(&self, peer: IpAddr, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        // Log lines of a request identify it.
        let span = tracing::info_span!("request", method = %parts.method, path = parts.uri.path());
        self.dispatch(peer, parts, Body::new(body)).instrument(span).await.unwrap_or_else(|refusal| refusal)
    }

    /// Returns the response, or as an error the one that refuses the request.
    async fn dispatch(&self, peer: IpAddr, parts: Parts, body: Body) -> Result<Response, Response> {
        let opaque = if parts.method == Method::CONNECT {
            let message = "found CONNECT, which requests a tunnel that cannot be audited";
            Some((StatusCode::METHOD_NOT_ALLOWED, message.to_owned()))
        } else {
            let refuse =
                |coding| format!("found a body that is transferred as {coding}, accepted chunked alone");
            forward::transfer_coding(&parts.headers).map(|it| (StatusCode::NOT_IMPLEMENTED, refuse(it)))
        };
        if let Some((status, message)) = opaque {
            skip(&parts.headers, body).await;
            return Err(self.refusal(status, "unreadable", &message));
        }
        match (&parts.method, parts.uri.path()) {
            // The pod's network rules redirect the kubelet's probe of the model here as well. `Host` has the port that it
            // was sent to.
            (&Method::GET | &Method::HEAD, "/health")
                if !self.settings.is_probe_of_the_model(&parts.method, &parts.uri, &parts.headers) =>
            {
                Ok(Json(json!({"status": "ok"})).into_response())
            }
            (&Method::POST, "/audit") => {
                let text = self.read(&parts.headers, body).await?.text;
                Ok(Json(match self.settings.phrases.found_in(&text) {
                    Some(phrase) => json!({"allowed": false, "phrase": phrase}),
                    None => json!({"allowed": true}),
                })
                .into_response())
            }
            // Other methods on these paths belong to the model.
            _ => self.forward(peer, parts, body).await,
        }
    }

    /// Forwards a request and returns the response.
    async fn forward(&self, peer: IpAddr, mut parts: Parts, body: Body) -> Result<Response, Response> {
        let body = match self.settings.mode {
            Mode::Observe => self.watched("request", body),
            // Buffered, because the model must not see any part of a denied request.
            Mode::Enforce => {
                let buffered = self.read(&parts.headers, body).await?;
                if let Some(phrase) = self.settings.phrases.found_in(&buffered.text) {
                    let message = format!("the request contains \"{phrase}\"");
                    return Err(self.refusal(StatusCode::FORBIDDEN, "blocked", &message));
                }
                buffered.into_body()
            }
        };
        // Compressed responses cannot be searched.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let version = parts.version;
        let response = self.next.send(peer, parts, body).await.map_err(|error| {
            // hyper's own message omits the causes.
            let causes = iter::successors(error.source(), |&cause| cause.source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            let message = format!("no answer from {}: {error}{causes}", self.settings.next);
            self.refusal(StatusCode::BAD_GATEWAY, "next_unreachable", &message)
        })?;
        Ok(self.hand_back(version, response).await)
    }

    /// Buffers a body if it is readable, within the limits of length and time, and there is memory for it.
    async fn read(&self, headers: &HeaderMap, mut body: Body) -> Result<Buffered, Response> {
        let too_large = || {
            let message = format!("accepted a body of at most {} bytes", self.settings.max_bytes);
            self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
        };
        let refusal = if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            Some(self.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message))
        } else {
            (body.size_hint().lower() > self.settings.max_bytes as u64).then(too_large)
        };
        if let Some(refusal) = refusal {
            skip(headers, body).await;
            return Err(refusal);
        }
        let refusal = match timeout(BODY_LIMIT, self.collect(&mut body)).await {
            Ok(Ok(buffered)) => return Ok(buffered),
            Ok(Err(error)) if error.is::<LengthLimitError>() => too_large(),
            Ok(Err(error)) if error.is::<TryAcquireError>() => {
                let message = "no room for one more body";
                self.refusal(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
            }
            Ok(Err(error)) => self.refusal(StatusCode::BAD_REQUEST, "cut_off", &error.to_string()),
            Err(_elapsed) => {
                let message = format!("accepted a body that arrives within {} s", BODY_LIMIT.as_secs());
                self.refusal(StatusCode::REQUEST_TIMEOUT, "too_slow", &message)
            }
        };
        discard(body).await;
        Err(refusal)
    }

    async fn collect(&self, body: &mut Body) -> Result<Buffered, BoxError> {
        let take = |bytes| Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let mut body = Limited::new(body, self.settings.max_bytes);
        let mut buffered = Buffered { text: Vec::new(), trailers: None, room: take(0)? };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    buffered.room.merge(take(data.len().try_into()?)?);
                    buffered.text.extend_from_slice(&data);
                }
                Err(frame) => buffered.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(buffered)
    }

    /// Streams the model's response to a request of `version`, searching its body.
    async fn hand_back(&self, version: Version, response: hyper::Response<Incoming>) -> Response {
        let (mut parts, body) = response.into_parts();
        let refuse = |kind: &str, message: &str| self.refusal(StatusCode::BAD_GATEWAY, kind, message);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return refuse(
                "unreadable",
                "the answer changes to another protocol, which nobody has asked for",
            );
        }
        // Without a body, as after HEAD, the headers describe the one that GET would return.
        let has_body = !body.is_end_stream();
        if let Some(coding) = forward::transfer_coding(&parts.headers).filter(|_| has_body) {
            return refuse(
                "unreadable",
                &format!("the answer is transferred as {coding} and cannot be read"),
            );
        }
        forward::remove_hop_by_hop(&mut parts.headers);
        // The model's HTTP version does not affect the caller's connection.
        parts.version = Version::HTTP_11;
        if let Some(encoding) = encoding(&parts.headers).filter(|_| has_body) {
            let message = format!("the answer is encoded as {encoding} and cannot be read");
            match self.settings.mode {
                Mode::Observe => tracing::warn!("{message}"),
                Mode::Enforce => return refuse("unreadable", &message),
            }
        }
        let mut body = self.watched("response", Body::new(body));
        // In HTTP/1.0, a response without a length ends with the connection: an incomplete one would look complete.
        let is_open_ended = version == Version::HTTP_10 && body.size_hint().exact().is_none();
        if is_open_ended && self.settings.mode == Mode::Enforce {
            body = match self.collect(&mut body).await {
                // HTTP/1.0 has no trailers.
                Ok(buffered) => Buffered { trailers: None, ..buffered }.into_body(),
                Err(error) => return refuse("cut_off", &format!("no whole answer for HTTP/1.0: {error}")),
            };
        }
        Response::from_parts(parts, body)
    }

    fn watched(&self, message: &'static str, body: Body) -> Body {
        Body::new(Watched::new(body, message, self.settings.phrases.watch(), self.settings.mode))
    }

    fn refusal(&self, status: StatusCode, kind: &str, message: &str) -> Response {
        tracing::warn!(status = status.as_u16(), kind, "{message}");
        let error = json!({"type": kind, "auditor": self.settings.id, "message": message});
        (status, Json(json!({"error": error}))).into_response()
    }
}

/// Returns the content encoding, if any. An auditor that can decompress would do so here; this one reports an unsupported
/// encoding.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(CONTENT_ENCODING).into_iter();
    let encodings = encodings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut encodings = encodings.filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
    encodings.next()
}

/// Discards the body of a request that is refused unread. Clients that wait for `100 Continue` have sent none.
async fn skip(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        discard(body).await;
    }
}

/// Reads and discards the rest of a body. Otherwise a client that is still sending sees a connection reset instead of the
/// response.
async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARDED);
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(DISCARD_LIMIT, end).await;
}
