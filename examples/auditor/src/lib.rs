//! An auditor to start from.
//!
//! Lucid puts auditors between the callers of a model and the model, one after the other. What it asks of each is little:
//!
//! - `GET /health` answers `{"status":"ok"}`: [`router`];
//! - `POST /audit` judges the text that it gets and passes nothing on: [`router`];
//! - every other request goes on to `LUCID_CHAIN_NEXT`, the next auditor or the model, and its answer comes back as it
//!   arrives: `forward.rs`;
//! - `LUCID_AUDIT_MODE` says whether what is found is held back, `enforce`, or only told, `observe`: [`Mode`];
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

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, Collected, LengthLimitError, Limited, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};
use serde_json::json;
use tokio::time::timeout;

pub use end::{Stage, stages};
use forward::Next;
pub use phrases::Phrases;
pub use serve::serve;
pub use settings::{Mode, SettingError, Settings};
use watch::{Watched, Which};

/// How long a request that has to be read whole may take to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// The auditor as a service, for [`serve`](serve()).
pub fn router(settings: Settings) -> Router {
    let auditor = Arc::new(Auditor { next: Next::new(&settings.next, &settings.id), settings });
    // Other methods on these paths are the model's.
    Router::new()
        .route("/health", get(health).fallback(pass))
        .route("/audit", post(audit).fallback(pass))
        .fallback(pass)
        .with_state(auditor)
}

struct Auditor {
    settings: Settings,
    next: Next,
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
    let collected = match auditor.read(&parts.headers, body).await {
        Ok(collected) => collected,
        Err(refusal) => return refusal,
    };
    match auditor.settings.phrases.found_in(&collected.to_bytes()) {
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
    let body = match auditor.settings.mode {
        // Nothing waits for the verdict: the body is looked at while it passes.
        Mode::Observe => auditor.watched(Which::Request, body),
        // The model must see nothing of a request that is refused, so that it is read to its end first.
        Mode::Enforce => match auditor.judged(&parts, body).await {
            Ok(body) => body,
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
    /// The body of a request that may pass.
    async fn judged(&self, parts: &Parts, body: Body) -> Result<Body, Response> {
        let collected = self.read(&parts.headers, body).await?;
        let trailers = collected.trailers().cloned();
        let text = collected.to_bytes();
        let Some(phrase) = self.settings.phrases.found_in(&text) else {
            let Some(trailers) = trailers else { return Ok(Body::from(text)) };
            let frames = [Frame::data(text), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
            return Ok(Body::new(StreamBody::new(stream::iter(frames))));
        };
        tracing::warn!(method = %parts.method, path = parts.uri.path(), phrase, "refused a request");
        let message = format!("the request contains \"{phrase}\"");
        Err(self.refusal(StatusCode::FORBIDDEN, "blocked", &message))
    }

    /// The whole of a body, if it can be read, is not too long and does not take too long.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Collected<Bytes>, Response> {
        if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            return Err(self.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message));
        }
        let most = self.settings.most_bytes;
        match timeout(BODY_LIMIT, Limited::new(body, most).collect()).await {
            Ok(Ok(collected)) => Ok(collected),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                let message = format!("accepted a body of at most {most} bytes");
                Err(self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message))
            }
            Ok(Err(error)) => Err(self.refusal(StatusCode::BAD_REQUEST, "cut_off", &error.to_string())),
            Err(_elapsed) => {
                let message = format!("accepted a body that arrives within {} s", BODY_LIMIT.as_secs());
                Err(self.refusal(StatusCode::REQUEST_TIMEOUT, "too_slow", &message))
            }
        }
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
