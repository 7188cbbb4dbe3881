//! Judges requests.

use std::time::Duration;

use http_body_util::Limited;
use hyper::{
    HeaderMap, StatusCode,
    body::Body as _,
    header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue},
    http::request::Parts,
};
use serde_json::json;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::{
    Direction, Settings, Unjudged,
    body::{
        Body, Buffered, Response, Room, Unbuffered, as_text, beginning, begins_like_json, content_type,
        copied, discard, full, is_like_ascii, json_response, skip,
    },
    coding::{DecodeError, MAX_CODINGS, SUPPORTED, codings, decode, decoded, remove_headers},
    json::Document,
    protocol::{self, UNREADABLE},
    refusal::Asked,
    verdict::{Denial, Panel},
    whole::{self, Origin},
};

const BODY_LIMIT: Duration = Duration::from_secs(60);

const NOT_UTF_8: &str = "found a body that is not UTF-8 text, which cannot be judged";

/// Judges of one request. A refusal is an error.
pub(crate) struct Examiner<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) room: &'a Room,
    pub(crate) panel: Panel,
}

impl Examiner<'_> {
    pub(crate) async fn audit(&self, mut headers: HeaderMap, body: Body) -> Result<Response, Response> {
        let asked = Asked::at("");
        let buffered = self.read(&asked, &mut headers, body).await?;
        let content_type = content_type(&headers);
        let Some(text) = as_text(&buffered.data).filter(|_| is_like_ascii(&content_type)) else {
            return Err(self.unjudged(&asked, NOT_UTF_8));
        };
        let document = Document::scan(text);
        let judged = whole::judge(&self.panel, Origin::Request(""), &content_type, &document).await;
        let verdict = match judged {
            Ok(None) => json!({"allowed": true}),
            Ok(Some(masked)) => json!({"allowed": true, "text": masked}),
            Err(denial) => json!({"allowed": false, "rule": denial.rule, "message": denial.message}),
        };
        Ok(json_response(StatusCode::OK, &verdict))
    }

    /// Buffers and judges a request: the model must not see any part of a denied one. Returns the body to forward.
    pub(crate) async fn judge(&self, parts: &mut Parts, body: Body) -> Result<(Asked, Body), Response> {
        let path = parts.uri.path().to_owned();
        let unknown = Asked::at(&path);
        let judged = whole::judge_uri(&self.panel, &path, parts.uri.query()).await;
        judged.map_err(|denial| self.denied(&unknown, &denial))?;
        let passes = self.settings.unjudged == Unjudged::Pass;
        if body.is_end_stream() {
            return Ok((unknown, body));
        }
        let buffered = self.read(&unknown, &mut parts.headers, body).await?;
        self.panel.telemetry.count_bytes("request", buffered.data.len());
        let content_type = content_type(&parts.headers);
        // Callers choose the headers, which most servers of JSON ignore: a false one does not let text pass.
        let Some(text) = as_text(&buffered.data).filter(|_| passes || is_like_ascii(&content_type)) else {
            return match passes && !begins_like_json(&buffered.data) {
                true => Ok((unknown, buffered.into_body())),
                false => Err(self.unjudged(&unknown, NOT_UTF_8)),
            };
        };
        let document = Document::scan(text);
        let asked = Asked::of(&path, &document);
        if !passes && let Some(found) = protocol::unjudged_request(&document) {
            let message = format!("expected text, found {found}, which cannot be judged");
            return Err(self.unjudged(&asked, &message));
        }
        let judged = whole::judge(&self.panel, Origin::Request(&path), &content_type, &document).await;
        match judged {
            Ok(None) => Ok((asked, buffered.into_body())),
            Ok(Some(masked)) => {
                parts.headers.remove(CONTENT_LENGTH);
                Ok((asked, full(masked)))
            }
            Err(denial) => Err(self.denied(&asked, &denial)),
        }
    }

    pub(crate) fn observe(self, parts: &Parts, body: Body) -> (Asked, Body) {
        let path = parts.uri.path().to_owned();
        let asked = Asked::at(&path);
        let codings = match codings(&parts.headers) {
            Ok(codings) if !body.is_end_stream() => codings,
            _ => return (asked, body),
        };
        let (body, copy) = copied(body);
        let content_type = content_type(&parts.headers);
        let (panel, max_bytes) = (self.panel, self.settings.max_bytes);
        let observed = async move {
            let data = beginning(decoded(copy, codings), max_bytes).await;
            panel.telemetry.count_bytes("request", data.len());
            let Some(text) = as_text(&data) else { return };
            let document = Document::scan(text);
            let _ = whole::judge(&panel, Origin::Request(&path), &content_type, &document).await;
        };
        tokio::spawn(observed.in_current_span());
        (asked, body)
    }

    /// Buffers a body, decoded, if it is readable, within the limits of length and time, and there is memory for it.
    async fn read(
        &self,
        asked: &Asked,
        headers: &mut HeaderMap,
        mut body: Body,
    ) -> Result<Buffered, Response> {
        let refuse = |status, kind, message: &str| self.refuse(asked, status, kind, message);
        let max_bytes = self.settings.max_bytes;
        let too_large = || {
            let message = format!("expected a body of at most {max_bytes} bytes");
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
        };
        let codings = match codings(headers) {
            Ok(codings) => codings,
            Err(_) if self.settings.unjudged == Unjudged::Pass => Vec::new(),
            Err(found) => {
                skip(headers, body).await;
                let message =
                    format!("expected a body with up to {MAX_CODINGS} of {SUPPORTED}; found it {found}");
                let mut refusal = self.unjudged(asked, &message);
                refusal.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(SUPPORTED));
                return Err(refusal);
            }
        };
        if body.size_hint().lower() > max_bytes as u64 {
            skip(headers, body).await;
            return Err(too_large());
        }
        let collected = async {
            if codings.is_empty() {
                return self.room.collect(&mut body).await;
            }
            remove_headers(headers);
            self.room.collect(decode(Limited::new(&mut body, max_bytes), codings)).await
        };
        let refusal = match timeout(BODY_LIMIT, collected).await {
            Ok(Ok(buffered)) => return Ok(buffered),
            Ok(Err(Unbuffered::TooLarge)) => too_large(),
            Ok(Err(Unbuffered::Busy)) => {
                refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", "no memory for one more body")
            }
            Ok(Err(Unbuffered::Failed(error))) => {
                let kind = if error.is::<DecodeError>() { UNREADABLE } else { "cut_off" };
                refuse(StatusCode::BAD_REQUEST, kind, &error.to_string())
            }
            Err(_elapsed) => {
                let message = format!("expected a body that arrives within {} s", BODY_LIMIT.as_secs());
                refuse(StatusCode::REQUEST_TIMEOUT, "too_slow", &message)
            }
        };
        discard(body).await;
        Err(refusal)
    }

    fn denied(&self, asked: &Asked, denial: &Denial) -> Response {
        asked.deny(&self.settings.id, denial, Direction::Prompt)
    }

    fn unjudged(&self, asked: &Asked, message: &str) -> Response {
        self.refuse(asked, StatusCode::UNSUPPORTED_MEDIA_TYPE, UNREADABLE, message)
    }

    fn refuse(&self, asked: &Asked, status: StatusCode, kind: &'static str, message: &str) -> Response {
        asked.refuse(&self.settings.id, status, kind, message)
    }
}
