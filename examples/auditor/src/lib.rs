//! An auditor to start from.
//!
//! Lucid puts auditors between the callers of a model and the model, one after the other. What it asks of each is little:
//!
//! - `GET /health` answers `{"status":"ok"}`: [`Auditor`];
//! - `POST /audit` judges the text that it gets and passes nothing on: [`Auditor`];
//! - every other request goes on to `LUCID_CHAIN_NEXT`, the next auditor or the model, and its answer comes back as it
//!   arrives: `forward.rs`;
//! - `LUCID_AUDIT_MODE` says whether what is found is held back, `enforce`, or only told, `observe`: [`Mode`];
//! - at SIGTERM it goes on for some time, since its neighbours do: [`stages`];
//! - it runs as whatever user it is given, with a file system that cannot be written.
//!
//! This auditor searches for a list of phrases: [`Phrases`]. **To write your own auditor, replace that type.** It receives
//! the text of requests whole, and the text of answers piece by piece.

mod end;
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

pub use end::{Stage, stages};
use forward::Next;
pub use phrases::Phrases;
pub use serve::serve;
pub use settings::{Mode, SettingError, Settings};
use watch::{Watched, Which};

/// Timeout for receiving a request body that is read whole.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// Number of bodies of maximum size that fit in memory at the same time.
const MOST_BODIES: usize = 32;

/// Limits for draining an unwanted body: bytes and time.
const DISCARDED: usize = 64 << 20;
const DISCARD_LIMIT: Duration = Duration::from_secs(2);

/// The auditor, for [`serve`](serve()).
#[derive(Debug)]
pub struct Auditor {
    settings: Settings,
    next: Next,
    /// In bytes, for all bodies that are read whole.
    room: Arc<Semaphore>,
}

/// A body that has been read to its end.
struct Whole {
    text: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// Memory reserved for the text.
    room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl Whole {
    /// The body, which keeps its room until it has gone on.
    fn into_body(mut self) -> Body {
        let trailers = self.trailers.take();
        let data = Bytes::from_owner(self);
        let Some(trailers) = trailers else { return Body::from(data) };
        let frames = [Frame::data(data), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        Body::new(StreamBody::new(stream::iter(frames)))
    }
}

impl Auditor {
    /// An auditor that runs as `settings` say.
    pub fn new(settings: Settings) -> Self {
        let room = settings.most_bytes.saturating_mul(MOST_BODIES).min(Semaphore::MAX_PERMITS);
        let (next, room) = (Next::new(&settings.next, &settings.id), Arc::new(Semaphore::new(room)));
        Self { settings, next, room }
    }

    /// Answers a request of `peer`.
    ///
    /// No router does it: axum's adds `Allow` and `Content-Length` to answers that are not its own.
    pub(crate) async fn answer(&self, peer: IpAddr, request: Request<Incoming>) -> Response {
        let (parts, body) = request.into_parts();
        // Log lines of a request identify it.
        let span = tracing::info_span!("request", method = %parts.method, path = parts.uri.path());
        self.dispatch(peer, parts, Body::new(body)).instrument(span).await
    }

    async fn dispatch(&self, peer: IpAddr, parts: Parts, body: Body) -> Response {
        if let Some(refusal) = self.opaque(&parts) {
            skip(&parts.headers, body).await;
            return refusal;
        }
        match (&parts.method, parts.uri.path()) {
            // The rules in the pod lead the kubelet's probe of the model's port here as well; the port that it meant is in
            // `Host`.
            (&Method::GET | &Method::HEAD, "/health")
                if !self.settings.is_probe_of_the_model(&parts.method, &parts.uri, &parts.headers) =>
            {
                Json(json!({"status": "ok"})).into_response()
            }
            (&Method::POST, "/audit") => self.audit(&parts.headers, body).await,
            // Other methods on these paths are the model's.
            _ => self.pass(peer, parts, body).await,
        }
    }

    /// Refuses what nobody could look into.
    fn opaque(&self, parts: &Parts) -> Option<Response> {
        if parts.method == Method::CONNECT {
            let message = "found CONNECT, which asks for a tunnel that nobody could look into";
            return Some(self.refusal(StatusCode::METHOD_NOT_ALLOWED, "unreadable", message));
        }
        let coding = forward::transfer_coding(&parts.headers)?;
        let message = format!("found a body that is transferred as {coding}, accepted chunked alone");
        Some(self.refusal(StatusCode::NOT_IMPLEMENTED, "unreadable", &message))
    }

    /// Judges a text: `{"allowed":true}`, or `{"allowed":false,"phrase":"…"}`.
    async fn audit(&self, headers: &HeaderMap, body: Body) -> Response {
        let whole = match self.read(headers, body).await {
            Ok(whole) => whole,
            Err(refusal) => return refusal,
        };
        match self.settings.phrases.found_in(&whole.text) {
            Some(phrase) => Json(json!({"allowed": false, "phrase": phrase})).into_response(),
            None => Json(json!({"allowed": true})).into_response(),
        }
    }

    /// Hands a request on, and the answer back.
    async fn pass(&self, peer: IpAddr, mut parts: Parts, body: Body) -> Response {
        let body = match self.settings.mode {
            // Nothing waits for the verdict: the body is looked at while it passes.
            Mode::Observe => self.watched(Which::Request, body),
            // The model must see nothing of a request that is refused, so that it is read to its end first.
            Mode::Enforce => match self.judged(&parts.headers, body).await {
                Ok(whole) => whole.into_body(),
                Err(refusal) => return refusal,
            },
        };
        // The answer is looked at as well, and compressed it says nothing.
        parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let version = parts.version;
        match self.next.send(peer, parts, body).await {
            Ok(answer) => self.hand_back(version, answer).await,
            Err(error) => {
                // hyper's own message says little: the cause is in what it was made of.
                let causes = iter::successors(error.source(), |&cause| cause.source());
                let causes: String = causes.map(|cause| format!(": {cause}")).collect();
                let message = format!("no answer from {}: {error}{causes}", self.settings.next);
                self.refusal(StatusCode::BAD_GATEWAY, "next_unreachable", &message)
            }
        }
    }

    /// A request that may pass, read to its end.
    async fn judged(&self, headers: &HeaderMap, body: Body) -> Result<Whole, Response> {
        let whole = self.read(headers, body).await?;
        match self.settings.phrases.found_in(&whole.text) {
            None => Ok(whole),
            Some(phrase) => {
                let message = format!("the request contains \"{phrase}\"");
                Err(self.refusal(StatusCode::FORBIDDEN, "blocked", &message))
            }
        }
    }

    /// The whole of a body, if it can be read, is not too long, does not take too long, and there is room for it.
    async fn read(&self, headers: &HeaderMap, mut body: Body) -> Result<Whole, Response> {
        if let Some(refusal) = self.unacceptable(headers, &body) {
            skip(headers, body).await;
            return Err(refusal);
        }
        let refusal = match timeout(BODY_LIMIT, self.collect(&mut body)).await {
            Ok(Ok(whole)) => return Ok(whole),
            Ok(Err(error)) if error.is::<LengthLimitError>() => self.too_large(),
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

    /// Refuses a body that need not be read for that.
    fn unacceptable(&self, headers: &HeaderMap, body: &Body) -> Option<Response> {
        if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            return Some(self.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message));
        }
        (body.size_hint().lower() > self.settings.most_bytes as u64).then(|| self.too_large())
    }

    fn too_large(&self) -> Response {
        let message = format!("accepted a body of at most {} bytes", self.settings.most_bytes);
        self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
    }

    async fn collect(&self, body: &mut Body) -> Result<Whole, BoxError> {
        let take = |bytes| Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let mut body = Limited::new(body, self.settings.most_bytes);
        let mut whole = Whole { text: Vec::new(), trailers: None, room: take(0)? };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    whole.room.merge(take(data.len().try_into()?)?);
                    whole.text.extend_from_slice(&data);
                }
                Err(frame) => whole.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(whole)
    }

    /// The model's answer to a request of `version`, looked at while it passes: each piece goes on as soon as it is there.
    async fn hand_back(&self, version: Version, answer: hyper::Response<Incoming>) -> Response {
        let (mut parts, body) = answer.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let message = "the answer changes to another protocol, which nobody has asked for";
            return self.refusal(StatusCode::BAD_GATEWAY, "unreadable", message);
        }
        // Without a body, as after HEAD, the headers describe the one that GET would return.
        let has_body = !body.is_end_stream();
        if let Some(coding) = forward::transfer_coding(&parts.headers).filter(|_| has_body) {
            let message = format!("the answer is transferred as {coding} and cannot be read");
            return self.refusal(StatusCode::BAD_GATEWAY, "unreadable", &message);
        }
        forward::remove_hop_by_hop(&mut parts.headers);
        // The model's HTTP version does not affect the caller's connection.
        parts.version = Version::HTTP_11;
        if let Some(encoding) = encoding(&parts.headers).filter(|_| has_body) {
            let message = format!("the answer is encoded as {encoding} and cannot be read");
            match self.settings.mode {
                Mode::Observe => tracing::warn!("{message}"),
                Mode::Enforce => return self.refusal(StatusCode::BAD_GATEWAY, "unreadable", &message),
            }
        }
        let mut body = self.watched(Which::Answer, Body::new(body));
        // Without a length, the end of the connection is the end of an answer in HTTP/1.0: a part of it would look whole.
        let is_open_ended = version == Version::HTTP_10 && body.size_hint().exact().is_none();
        if is_open_ended && self.settings.mode == Mode::Enforce {
            body = match self.collect(&mut body).await {
                // No trailers: they are of HTTP/1.1.
                Ok(whole) => Whole { trailers: None, ..whole }.into_body(),
                Err(error) => {
                    let message = format!("no whole answer for HTTP/1.0: {error}");
                    return self.refusal(StatusCode::BAD_GATEWAY, "cut_off", &message);
                }
            };
        }
        Response::from_parts(parts, body)
    }

    fn watched(&self, which: Which, body: Body) -> Body {
        Body::new(Watched::new(body, which, self.settings.phrases.watch(), self.settings.mode))
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

/// Skips the body of a request that is refused unread. Who waits for `100 Continue` has sent none.
async fn skip(headers: &HeaderMap, body: Body) {
    if !headers.contains_key(EXPECT) {
        discard(body).await;
    }
}

/// Reads what is left of a body that nobody wants: who is still sending gets to read the answer then, and not that the
/// connection is reset.
async fn discard(body: Body) {
    let mut body = Limited::new(body, DISCARDED);
    let end = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = timeout(DISCARD_LIMIT, end).await;
}
