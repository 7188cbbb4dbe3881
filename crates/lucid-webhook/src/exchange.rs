//! One HTTP exchange: from the request to a response, in all cases.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, EXPECT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use lucid_text::Line;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt};

use crate::body::{self, BodyError, Received};
use crate::budget::LARGE;
use crate::conversion::Converter;
use crate::deadline::deadline;
use crate::metrics::{CONVERT, Outcome, WebhookMetrics};
use crate::offload;
use crate::peer_certificate::PeerCertificate;
use crate::reply;
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, ReviewError};
use crate::route::{Bodies, OtherService, Route, Target};
use crate::trace_parent::TraceParent;
use crate::webhook::Webhook;

/// Handles one request. Never fails: errors become responses. `is_unauthenticated` is `true` for clients without a
/// required certificate, which may not call admission webhooks.
pub(crate) async fn respond<B>(
    route: Option<&Route>,
    bodies: &Bodies,
    request: Request<B>,
    is_unauthenticated: bool,
) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let arrival = Instant::now();
    let Some(route) = route else {
        let message = format!("no webhook at {}", request.uri().path());
        return reject(bodies, request, StatusCode::NOT_FOUND, &message).await.response;
    };
    let handled = match &route.target {
        Target::Admission(_) if is_unauthenticated => {
            let message = "only clients with a certificate may call webhooks";
            Err(reject(bodies, request, StatusCode::FORBIDDEN, message).await)
        }
        Target::Other(service) => other(service.clone(), &bodies.other, request).await,
        Target::Admission(webhook) => admit(webhook, route, arrival, bodies, request).await,
        Target::Conversion(converter) => convert(converter, route, arrival, bodies, request).await,
        Target::Conflict => {
            let message = format!("several webhooks are registered at {}", route.path);
            return reject(bodies, request, StatusCode::INTERNAL_SERVER_ERROR, &message).await.response;
        }
    };
    match handled {
        Ok(response) => response,
        Err(Refusal { response, outcome }) => {
            if let Some(metrics) = &route.metrics {
                metrics.observe("", outcome, arrival.elapsed());
            }
            response
        }
    }
}

async fn reject<B>(bodies: &Bodies, request: Request<B>, status: StatusCode, message: &str) -> Refusal
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = split_request(request);
    bodies.admission.discard(&head.headers, body).await;
    Refusal::bad(status, message)
}

pub(crate) fn panicked() -> Response<Full<Bytes>> {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal error: a panic outside the handler")
}

struct Refusal {
    response: Response<Full<Bytes>>,
    outcome: Outcome,
}

impl Refusal {
    fn shed() -> Self {
        Self::busy("too many concurrent requests for this webhook")
    }

    fn busy(message: &str) -> Self {
        Self { response: reply::retry(StatusCode::TOO_MANY_REQUESTS, message), outcome: Outcome::Shed }
    }

    /// Turns the refusal into a review that denies the object regardless of the `failurePolicy`. `beginning` is the
    /// start of the body. Without a uid in it, the refusal is unchanged.
    fn into_denial(mut self, beginning: &[u8]) -> Self {
        let status = self.response.status();
        let deny = |message: String| AdmissionResponse::deny(status.as_u16(), reply::reason(status), message);
        let denial = match self.outcome {
            Outcome::Shed => {
                deny("too many concurrent large requests for this webhook".to_owned()).with_retry_after(1)
            }
            _ => deny(format!("the request is too large for this webhook: {status}")),
        };
        if let Some(review) = uid(beginning).and_then(|uid| reply::write(uid, &denial).ok()) {
            self.response = reply::json(StatusCode::OK, review);
        }
        self
    }

    fn bad(status: StatusCode, message: &str) -> Self {
        Self { response: refuse(status, message), outcome: Outcome::BadRequest }
    }
}

/// Number of bytes at the start of a body searched for the uid. API servers write it first.
const UID_SEARCH_LENGTH: usize = 1024;

fn uid(beginning: &[u8]) -> Option<&str> {
    const KEY: &[u8] = br#""uid":""#;
    let beginning = &beginning[..beginning.len().min(UID_SEARCH_LENGTH)];
    let at = beginning.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let uid = beginning.get(at..)?.split(|byte| *byte == b'"').next()?;
    str::from_utf8(uid).ok().filter(|uid| !uid.contains('\\'))
}

async fn admit<B>(
    webhook: &Arc<Webhook>,
    route: &Route,
    arrival: Instant,
    bodies: &Bodies,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = split_request(request);
    let is_large = body.size_hint().lower() > LARGE as u64;
    let mut beginning = Vec::new();
    let body = body.inspect_frame(|frame| {
        if let Some(data) = frame.data_ref().filter(|_| is_large && beginning.len() < UID_SEARCH_LENGTH) {
            beginning.extend_from_slice(&data[..data.len().min(UID_SEARCH_LENGTH)]);
        }
    });
    let body = match read(&head, &bodies.admission, body).await {
        Err(refusal) if is_large && webhook.denies_overload => return Err(refusal.into_denial(&beginning)),
        body => body?,
    };
    // After the body is read: a slow sender must not hold a permit.
    let permit = webhook.max_in_flight.as_ref().map(|permits| permits.try_acquire());
    let _permit = permit.transpose().map_err(|_none_left| Refusal::shed())?;
    let deadline = deadline(arrival, head.uri.query());
    let slot = bodies.offload.enter(body.bytes.len(), is_authenticated(&head), deadline).await;
    let slot = slot.map_err(|_elapsed| match webhook.denies_overload {
        true => Refusal::shed().into_denial(&body.bytes),
        false => Refusal::shed(),
    })?;
    let text = body.bytes.clone();
    let request = async move { AdmissionRequest::from_json(&text, deadline) };
    let mut request = match offload::run(slot.clone(), request).await {
        Ok(request) => request,
        Err(error) => return Err(refusal(&error, body)),
    };
    request.arrival = arrival;
    request.trace_parent = TraceParent::of(&head.headers);
    request.extensions = head.extensions;
    let uid = request.uid.clone();
    let response = webhook.respond(request, slot.clone(), route.metrics.as_ref()).await;
    Ok(offload::run(slot, async move { review(&uid, &response, body) }).await)
}

/// Builds the refusal of a malformed review. Echoes the uid if there is one.
fn refusal(error: &ReviewError, body: Received) -> Refusal {
    let Some(uid) = &error.uid else {
        return Refusal::bad(StatusCode::BAD_REQUEST, &error.to_string());
    };
    tracing::warn!(uid = %Line(uid), "refused a malformed request: {error}");
    let response = AdmissionResponse::deny(400, "BadRequest", error.to_string());
    Refusal { response: review(uid, &response, body), outcome: Outcome::BadRequest }
}

async fn convert<B>(
    converter: &Converter,
    route: &Route,
    arrival: Instant,
    bodies: &Bodies,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = split_request(request);
    let body = read(&head, &bodies.conversion, body).await?;
    let metrics = route.metrics.as_ref();
    let _in_flight = metrics.map(WebhookMetrics::in_flight);
    let deadline = deadline(arrival, head.uri.query());
    let slot = bodies.offload.enter(body.bytes.len(), is_authenticated(&head), deadline).await;
    let slot = slot.map_err(|_elapsed| Refusal::shed())?;
    let (converter, text) = (converter.clone(), body.bytes.clone());
    let converted = offload::run(slot, async move { converter.convert(&text, deadline).await });
    let converted =
        converted.await.map_err(|error| Refusal::bad(StatusCode::BAD_REQUEST, &error.to_string()))?;
    let response = reply::json(StatusCode::OK, body.attach(converted.body));
    match converted.outcome {
        Outcome::BadRequest => Err(Refusal { response, outcome: Outcome::BadRequest }),
        outcome => {
            if let Some(metrics) = metrics {
                metrics.observe(CONVERT, outcome, arrival.elapsed());
            }
            Ok(response)
        }
    }
}

async fn other<B>(
    service: OtherService,
    bodies: &body::Reader,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = request.into_parts();
    let body = receive(&head, bodies, body).await?;
    let Ok(response) = service.oneshot(Request::from_parts(head, body.bytes.clone())).await;
    Ok(response)
}

/// Splits off the body and keeps only the headers read here. The body may arrive slowly, and headers may be numerous.
fn split_request<B>(request: Request<B>) -> (Parts, B) {
    let (mut head, body) = request.into_parts();
    let fields = std::mem::take(&mut head.headers);
    for name in [CONTENT_TYPE, EXPECT, HeaderName::from_static("traceparent")] {
        // A copy: the value may share the memory of all headers.
        let value = fields.get(&name).and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
        head.headers.extend(value.map(|value| (name, value)));
    }
    (head, body)
}

async fn read<B>(head: &Parts, bodies: &body::Reader, body: B) -> Result<Received, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if head.method != Method::POST {
        let mut refusal = Refusal::bad(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; expected POST");
        refusal.response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        bodies.discard(&head.headers, body).await;
        return Err(refusal);
    }
    let body = receive(head, bodies, body).await?;
    if body.bytes.is_empty() {
        return Err(Refusal::bad(StatusCode::BAD_REQUEST, "the body is empty"));
    }
    if !is_json(&head.headers) {
        return Err(Refusal::bad(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the Content-Type is not application/json",
        ));
    }
    Ok(body)
}

async fn receive<B>(head: &Parts, bodies: &body::Reader, body: B) -> Result<Received, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    bodies.read(&head.headers, is_authenticated(head), body).await.map_err(|error| match error {
        BodyError::TooLarge => {
            let message = format!("the body is larger than {} bytes", bodies.limit());
            Refusal::bad(StatusCode::PAYLOAD_TOO_LARGE, &message)
        }
        BodyError::TooSlow => {
            let message = format!(
                "timed out reading the body: it stalled, or took longer than {} s",
                bodies.timeout().as_secs()
            );
            Refusal::bad(StatusCode::REQUEST_TIMEOUT, &message)
        }
        BodyError::Busy => Refusal::busy("request bodies exceed the memory limit"),
        BodyError::Broken(error) => {
            Refusal::bad(StatusCode::BAD_REQUEST, &format!("failed to read the body: {error}"))
        }
    })
}

fn is_authenticated(head: &Parts) -> bool {
    head.extensions.get::<PeerCertificate>().is_some()
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case(reply::JSON))
}

/// Builds the response to a review, which takes over the share of `request`.
fn review(uid: &str, response: &AdmissionResponse, request: Received) -> Response<Full<Bytes>> {
    match reply::write(uid, response) {
        Ok(review) => reply::json(StatusCode::OK, request.attach(review)),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("failed to serialize the response: {error}"))
        }
    }
}

/// Builds an error response. It is logged as well: under `failurePolicy: Ignore` no user sees it.
fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    tracing::warn!(status = status.as_u16(), "refused a request: {}", Line(message));
    reply::refusal(status, message)
}
