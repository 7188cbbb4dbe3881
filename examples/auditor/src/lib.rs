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

mod forward;
mod phrases;
mod settings;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use hyper::{StatusCode, http::request::Parts};
use serde_json::json;

use forward::Next;
pub use phrases::Phrases;
pub use settings::{Mode, SettingError, Settings};
use watch::{Watched, Which};

/// The auditor as a service. It has to be served with the addresses of its callers
/// (`into_make_service_with_connect_info::<SocketAddr>`).
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
    let text = match auditor.read(&parts.headers, body).await {
        Ok(text) => text,
        Err(refusal) => return refusal,
    };
    match auditor.settings.phrases.found_in(&text) {
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
            let message = format!("no answer from {}: {error}", auditor.settings.next);
            auditor.refusal(StatusCode::BAD_GATEWAY, "next_unreachable", &message)
        }
    }
}

impl Auditor {
    /// The body of a request that may pass.
    async fn judged(&self, parts: &Parts, body: Body) -> Result<Body, Response> {
        let text = self.read(&parts.headers, body).await?;
        let Some(phrase) = self.settings.phrases.found_in(&text) else { return Ok(Body::from(text)) };
        tracing::warn!(method = %parts.method, path = parts.uri.path(), phrase, "refused a request");
        let message = format!("the request contains \"{phrase}\"");
        Err(self.refusal(StatusCode::FORBIDDEN, "blocked", &message))
    }

    /// The whole of a body, if it can be read and is not too long.
    async fn read(&self, headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
        if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            return Err(self.refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message));
        }
        let most = self.settings.most_bytes;
        match Limited::new(body, most).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                let message = format!("accepted a body of at most {most} bytes");
                Err(self.refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message))
            }
            Err(error) => Err(self.refusal(StatusCode::BAD_REQUEST, "cut_off", &error.to_string())),
        }
    }

    /// The model's answer, looked at while it passes: each piece goes on as soon as it is there.
    fn answer(&self, answer: hyper::Response<hyper::body::Incoming>) -> Response {
        let (mut parts, body) = answer.into_parts();
        forward::remove_hop_by_hop(&mut parts.headers);
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
