//! One HTTP exchange: from a request to the answer, whatever happens on the way.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::answer;
use crate::body::{self, BodyError};
use crate::metrics::{Metrics, Outcome};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, ReviewError};
use crate::router::{BoxError, Route};

/// What the API server waits for unless it says otherwise (`timeoutSeconds` of a webhook).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The API server rounds `?timeout=` up to a second and counts dialling and the way back as well.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(1200);

/// Answers one request. It never fails: what goes wrong becomes an answer.
pub(crate) async fn answer<B>(
    route: Option<Route>,
    metrics: Option<&Metrics>,
    bodies: &body::Reader,
    request: Request<B>,
) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let arrival = Instant::now();
    let Some(route) = route else {
        return refuse(StatusCode::NOT_FOUND, &format!("no webhook at {}", request.uri().path()));
    };
    let _in_flight = metrics.map(|metrics| metrics.in_flight(&route.webhook));
    let (response, outcome, operation) = exchange(&route, arrival, bodies, request).await;
    if let Some(metrics) = metrics {
        metrics.observe(&route.webhook, operation, outcome, arrival.elapsed());
    }
    response
}

/// The answer, and what the metrics say of it.
type Exchange = (Response<Full<Bytes>>, Outcome, &'static str);

async fn exchange<B>(route: &Route, arrival: Instant, bodies: &body::Reader, request: Request<B>) -> Exchange
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let bad = |status, message: &str| (refuse(status, message), Outcome::BadRequest, "");
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        let mut response = bad(StatusCode::METHOD_NOT_ALLOWED, "an AdmissionReview is sent by POST");
        response.0.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let body = match bodies.read(&head.headers, body).await {
        Ok(body) if body.bytes.is_empty() => return bad(StatusCode::BAD_REQUEST, "the body is empty"),
        Ok(body) => body,
        Err(BodyError::TooLarge) => {
            let message = format!("the body is larger than {} bytes", bodies.limit());
            return bad(StatusCode::PAYLOAD_TOO_LARGE, &message);
        }
        Err(BodyError::TooSlow) => {
            let message =
                format!("the body did not arrive within {} s, or stood still", body::TIMEOUT.as_secs());
            return bad(StatusCode::REQUEST_TIMEOUT, &message);
        }
        Err(BodyError::Busy) => {
            let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, "too much in bodies at once");
            // The API server comes again, within the time that its webhook has.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return (response, Outcome::Shed, "");
        }
        Err(BodyError::Broken(error)) => {
            return bad(StatusCode::BAD_REQUEST, &format!("failed to read the body: {error}"));
        }
    };
    if !is_json(&head.headers) {
        return bad(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the Content-Type is not application/json");
    }
    match AdmissionRequest::from_json(&body.bytes, arrival + budget(head.uri.query())) {
        Ok(request) => {
            let (uid, operation) = (request.uid.clone(), request.operation.as_str());
            let (response, outcome) = handle(route, request).await;
            (review(&uid, &response), outcome, operation)
        }
        Err(error) => match &error {
            ReviewError::Request { uid, .. } => {
                tracing::warn!(uid, "refused a request that makes no sense: {error}");
                let response = AdmissionResponse::deny(400, "BadRequest", error.to_string());
                (review(uid, &response), Outcome::BadRequest, "")
            }
            _ => bad(StatusCode::BAD_REQUEST, &error.to_string()),
        },
    }
}

/// Calls the handler. A panic, an error and a missed deadline are answers too: the API server, and so the user, is
/// told which it was.
async fn handle(route: &Route, request: AdmissionRequest) -> (AdmissionResponse, Outcome) {
    let failed = |reason: &str, message: String, outcome| {
        tracing::error!(
            webhook = &*route.webhook,
            uid = request.uid,
            namespace = request.namespace,
            name = request.name,
            "{message}"
        );
        let code = if outcome == Outcome::TimedOut { 504 } else { 500 };
        (AdmissionResponse::deny(code, reason, message), outcome)
    };
    let call = AssertUnwindSafe(route.handler.clone().oneshot(request.clone())).catch_unwind();
    let response = match tokio::time::timeout_at(request.deadline, call).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Ok(Err(error))) => {
            return failed("InternalError", format!("the webhook failed: {error}"), Outcome::Errored);
        }
        Ok(Err(_panic)) => {
            return failed("InternalError", "the webhook panicked".to_owned(), Outcome::Panicked);
        }
        Err(_elapsed) => {
            return failed("Timeout", "the webhook did not answer in time".to_owned(), Outcome::TimedOut);
        }
    };
    match answer::check(route.kind, &request, response) {
        Ok(response) if response.patch.is_some() => (response, Outcome::Patched),
        Ok(response) if response.is_allowed() => (response, Outcome::Allowed),
        Ok(response) => (response, Outcome::Denied),
        Err(error) => {
            failed("InternalError", format!("the webhook gave a wrong answer: {error}"), Outcome::Errored)
        }
    }
}

/// How long the handler may take.
fn budget(query: Option<&str>) -> Duration {
    let timeout = query
        .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("timeout=")))
        .and_then(|text| text.strip_suffix('s'))
        .and_then(|seconds| seconds.parse::<u16>().ok())
        .map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
    timeout.saturating_sub(TIMEOUT_MARGIN).max(timeout / 2)
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case("application/json"))
}

fn review(uid: &str, response: &AdmissionResponse) -> Response<Full<Bytes>> {
    match answer::write(uid, response) {
        Ok(body) => respond(StatusCode::OK, "application/json", body),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed to write the answer: {error}"))
        }
    }
}

/// Tells whoever sent this what is wrong. The API server hardly shows it to its user, so it is logged as well.
fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    tracing::warn!(status = status.as_u16(), "refused a request: {message}");
    respond(status, "text/plain; charset=utf-8", Bytes::from(format!("{message}\n")))
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_ends_before_the_api_server_stops_waiting() {
        let millis = |query| budget(query).as_millis();
        assert_eq!(millis(None), 8_800);
        assert_eq!(millis(Some("timeout=30s")), 28_800);
        assert_eq!(millis(Some("a=b&timeout=2s")), 1_000);
        assert_eq!(millis(Some("timeout=1s")), 500);
        assert_eq!(millis(Some("timeout=soon")), 8_800);
    }
}
