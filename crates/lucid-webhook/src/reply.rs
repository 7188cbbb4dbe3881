//! HTTP responses: a review, or a `Status` with an error.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use serde_json::json;
use tower::BoxError;

pub(crate) const JSON: &str = "application/json";

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// Builds a `metav1.Status`. The API server shows its message to the user; of most other bodies it shows nothing.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason(status),
        "code": status.as_u16(),
    });
    json(status, body.to_string())
}

/// Builds a 429. The API server honors `Retry-After` within the timeout of the webhook.
pub(crate) fn too_many_requests(message: &str) -> Response<Full<Bytes>> {
    let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, message);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Builds a 503 for requests that another replica can answer. The API server honors `Retry-After` within the timeout of
/// the webhook.
pub(crate) fn unready() -> Response<Full<Bytes>> {
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, "this replica is not ready");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The `metav1.StatusReason` of a status used here.
pub(crate) fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    }
}

/// Collects the body of a response.
pub(crate) async fn whole<B>(response: Response<B>) -> Result<Response<Bytes>, BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(head, body))
}
