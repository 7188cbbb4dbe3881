//! HTTP responses: a review, or a `Status` with an error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use serde::Serialize;
use serde::ser::Error as _;
use serde_json::json;
use tower::BoxError;

use crate::patch::JsonPatch;
use crate::response::AdmissionResponse;

pub(crate) const JSON: &str = "application/json";

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// Builds a `metav1.Status`. The API server shows its message to the user, unlike most other bodies.
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

/// Builds a refusal of a request that may be sent again. The API server honors `Retry-After` within the timeout of the
/// webhook.
pub(crate) fn retry(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    let mut response = refusal(status, message);
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

pub(crate) async fn whole<B>(response: Response<B>) -> Result<Response<Bytes>, BoxError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// Writes the AdmissionReview with an acceptable response. The patch is encoded straight into it (base64, as the API
/// encodes `[]byte`), because it is most of the text.
pub(crate) fn write(uid: &str, response: &AdmissionResponse) -> Result<Vec<u8>, serde_json::Error> {
    let patch = response.patch.as_ref().map(JsonPatch::text).transpose()?.unwrap_or_default();
    let mut text = Vec::with_capacity(512 + patch.len() / 3 * 4);
    text.extend_from_slice(
        br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"#,
    );
    serde_json::to_writer(&mut text, uid)?;
    write_member(&mut text, "allowed", &response.is_allowed())?;
    if let Some(status) = &response.denial {
        write_member(&mut text, "status", status)?;
    }
    if !patch.is_empty() {
        text.extend_from_slice(br#","patchType":"JSONPatch","patch":""#);
        let start = text.len();
        text.resize(start + patch.len().div_ceil(3) * 4, 0);
        let encoded = STANDARD.encode_slice(&patch, &mut text[start..]).map_err(serde_json::Error::custom)?;
        text.truncate(start + encoded);
        text.push(b'"');
    }
    if !response.warnings.is_empty() {
        write_member(&mut text, "warnings", &response.warnings)?;
    }
    if !response.audit_annotations.is_empty() {
        write_member(&mut text, "auditAnnotations", &response.audit_annotations)?;
    }
    text.extend_from_slice(b"}}");
    Ok(text)
}

fn write_member(text: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
    text.extend_from_slice(b",\"");
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b"\":");
    serde_json::to_writer(text, value)
}
