//! An auditor to start from.
//!
//! Lucid puts auditors between the callers of a model and the model, one after the other. What it asks of each is little:
//!
//! - `GET /health` answers `{"status":"ok"}`: [`router`];
//! - `POST /audit` judges the text that it gets and passes nothing on: [`router`];
//! - every other request goes on to `LUCID_CHAIN_NEXT`, the next auditor or the model, and its answer comes back as it
//!   arrives: `forward.rs`;
//! - `LUCID_AUDIT_MODE` says whether what is found is held back, `enforce`, or only told, `observe`: [`Mode`];
//! - at SIGTERM it goes on for some time, since its neighbours do: [`stages`];
//! - it runs as whatever user it is given, with a file system that cannot be written.
//!
//! What this one looks for is a list of phrases: [`Phrases`]. **To write an auditor of your own, replace that**: the text of
//! requests comes to it whole, that of answers piece by piece.

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
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{BoxError, Json, Router};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};
use tokio::time::timeout;
use tracing::Instrument as _;

pub use end::{Stage, stages};
use forward::Next;
pub use phrases::Phrases;
pub use serve::serve;
pub use settings::{Mode, SettingError, Settings};
use watch::{Watched, Which};

/// How long a request that has to be read whole may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// How many bodies there is room for at once, if all are as long as they may be.
const MOST_BODIES: usize = 32;

/// The auditor as a service, for [`serve`](serve()).
pub fn router(settings: Settings) -> Router {
    let room = settings.most_bytes.saturating_mul(MOST_BODIES).min(Semaphore::MAX_PERMITS);
    let (next, room) = (Next::new(&settings.next, &settings.id), Semaphore::new(room));
    let auditor = Arc::new(Auditor { settings, next, room });
    // Other methods on these paths are the model's.
    Router::new()
        .route("/health", get(health).fallback(pass))
        .route("/audit", post(audit).fallback(pass))
        .fallback(pass)
        .layer(from_fn(in_span))
        .with_state(auditor)
}

struct Auditor {
    settings: Settings,
    next: Next,
    /// In bytes, for all bodies that are read whole.
    room: Semaphore,
}

/// A body that has been read to its end.
struct Whole<'a> {
    text: Vec<u8>,
    trailers: Option<HeaderMap>,
    room: SemaphorePermit<'a>,
}

impl<'a> Whole<'a> {
    /// The body, and the room that it takes until it has gone on.
    fn into_body(self) -> (Body, Option<SemaphorePermit<'a>>) {
        let Self { text, trailers, room } = self;
        let Some(trailers) = trailers else { return (Body::from(text), Some(room)) };
        let frames = [Frame::data(Bytes::from(text)), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
        (Body::new(StreamBody::new(stream::iter(frames))), Some(room))
    }
}

/// What is logged of a request tells which one it is.
async fn in_span(request: Request, next: middleware::Next) -> Response {
    let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path());
    next.run(request).instrument(span).await
}

/// Answers for the auditor, unless the kubelet asks how the model is. The rules in the pod lead its probe of the model's
/// port here as well; the port that it meant is in `Host`.
async fn health(
    State(auditor): State<Arc<Auditor>>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    if auditor.settings.is_probe_of_the_model(request.uri().path(), request.headers()) {
        return pass(State(auditor), peer, request).await;
    }
    Json(json!({"status": "ok"})).into_response()
}

/// Judges a text: `{"allowed":true}`, or `{"allowed":false,"phrase":"…"}`.
async fn audit(State(auditor): State<Arc<Auditor>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let whole = match auditor.read(&parts.headers, body).await {
        Ok(whole) => whole,
        Err(refusal) => return refusal,
    };
    match auditor.settings.phrases.found_in(&whole.text) {
        Some(phrase) => Json(json!({"allowed": false, "phrase": phrase})).into_response(),
        None => Json(json!({"allowed": true})).into_response(),
    }
}

/// Hands a request on, and the answer back.
async fn pass(
    State(auditor): State<Arc<Auditor>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::CONNECT {
        let message = "found CONNECT, which asks for a tunnel that nobody could look into";
        return auditor.refusal(StatusCode::METHOD_NOT_ALLOWED, "unreadable", message);
    }
    let (body, _room) = match auditor.settings.mode {
        // Nothing waits for the verdict: the body is looked at while it passes.
        Mode::Observe => (auditor.watched(Which::Request, body), None),
        // The model must see nothing of a request that is refused, so that it is read to its end first.
        Mode::Enforce => match auditor.judged(&parts, body).await {
            Ok(whole) => whole.into_body(),
            Err(refusal) => return refusal,
        },
    };
    match auditor.next.send(peer.ip(), parts, body).await {
        Ok(answer) => auditor.answer(answer),
        Err(error) => {
            // hyper's own message says little: the cause is in what it was made of.
            let causes = iter::successors(error.source(), |&cause| cause.source());
            let causes: String = causes.map(|cause| format!(": {cause}")).collect();
            let message = format!("no answer from {}: {error}{causes}", auditor.settings.next);
            auditor.refusal(StatusCode::BAD_GATEWAY, "next_unreachable", &message)
        }
    }
}

impl Auditor {
    /// A request that may pass, read to its end.
    async fn judged(&self, parts: &Parts, body: Body) -> Result<Whole<'_>, Response> {
        let whole = self.read(&parts.headers, body).await?;
        match self.settings.phrases.found_in(&whole.text) {
            None => Ok(whole),
            Some(phrase) => {
                let message = format!("the request contains \"{phrase}\"");
                Err(self.refusal(StatusCode::FORBIDDEN, "blocked", &message))
            }
        }
    }

    /// The whole of a body, if it can be read, is not too long, does not take too long, and there is room for it.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Whole<'_>, Response> {
        if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            return Err(self.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message));
        }
        let most = self.settings.most_bytes;
        match timeout(BODY_LIMIT, self.collect(Limited::new(body, most))).await {
            Ok(Ok(whole)) => Ok(whole),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let message = format!("accepted a body of at most {most} bytes");
                Err(self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message))
            }
            Ok(Err(error)) if error.is::<TryAcquireError>() => {
                let message = "no room for one more body";
                Err(self.refusal(StatusCode::SERVICE_UNAVAILABLE, "busy", message))
            }
            Ok(Err(error)) => Err(self.refusal(StatusCode::BAD_REQUEST, "cut_off", &error.to_string())),
            Err(_elapsed) => {
                let message = format!("accepted a body that arrives within {} s", BODY_LIMIT.as_secs());
                Err(self.refusal(StatusCode::REQUEST_TIMEOUT, "too_slow", &message))
            }
        }
    }

    async fn collect(&self, mut body: Limited<Body>) -> Result<Whole<'_>, BoxError> {
        let mut whole = Whole { text: Vec::new(), trailers: None, room: self.room.try_acquire_many(0)? };
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(data) => {
                    whole.room.merge(self.room.try_acquire_many(data.len().try_into()?)?);
                    whole.text.extend_from_slice(&data);
                }
                Err(frame) => whole.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(whole)
    }

    /// The model's answer, looked at while it passes: each piece goes on as soon as it is there.
    fn answer(&self, answer: hyper::Response<hyper::body::Incoming>) -> Response {
        let (mut parts, body) = answer.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let message = "the answer changes to another protocol, which nobody has asked for";
            return self.refusal(StatusCode::BAD_GATEWAY, "unreadable", message);
        }
        forward::remove_hop_by_hop(&mut parts.headers);
        // How the model speaks does not bind the caller's connection.
        parts.version = Version::HTTP_11;
        if let Some(encoding) = encoding(&parts.headers) {
            let message = format!("the answer is encoded as {encoding} and cannot be read");
            match self.settings.mode {
                Mode::Observe => tracing::warn!("{message}"),
                Mode::Enforce => return self.refusal(StatusCode::BAD_GATEWAY, "unreadable", &message),
            }
        }
        Response::from_parts(parts, self.watched(Which::Answer, Body::new(body)))
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

/// How a body is encoded, if it is not text as it stands. An auditor that can decompress would do it here; this one tells
/// that it cannot.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(CONTENT_ENCODING).into_iter();
    let encodings = encodings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut encodings = encodings.filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
    encodings.next()
}
