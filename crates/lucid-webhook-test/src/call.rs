//! A webhook call as made by the API server's REST client (`client-go/rest`).

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use tower::{BoxError, ServiceExt};

use crate::https::{Https, Transport};

const USER_AGENT_OF_API_SERVER: &str = "kube-apiserver-admission";
/// Maximum number of retries because of `Retry-After`.
const MAX_RETRIES: u32 = 10;
/// Maximum number of bytes of a response in an error.
const SHOWN_OF_ERRORS: usize = 2048;

#[derive(Clone, Debug)]
pub(super) enum Target {
    InProcess(Transport),
    Https(Https),
}

#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    transport: Transport,
    origin: String,
    path: String,
}

#[derive(Debug)]
pub(super) struct Called {
    pub(super) response: Result<Value, String>,
    pub(super) attempts: u32,
}

impl Target {
    pub(super) fn endpoint(&self, path: &str) -> Endpoint {
        let (transport, origin) = match self {
            Self::InProcess(service) => (service.clone(), "https://webhook.in-process.svc:443"),
            Self::Https(https) => (https.client(), https.origin()),
        };
        Endpoint { transport, origin: origin.to_owned(), path: path.to_owned() }
    }
}

impl Endpoint {
    /// Posts `body`. `timeout` covers all attempts, including connecting.
    pub(super) async fn call(&self, timeout: Duration, body: Bytes) -> Called {
        let deadline = Instant::now() + timeout;
        // Rounded up to whole seconds.
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let url = format!("{}{}?timeout={seconds}s", self.origin, self.path);
        let mut attempts = 0;
        let response = timeout_at(deadline, async {
            loop {
                attempts += 1;
                // A request that may have been sent is not retried.
                let response =
                    self.attempt(&url, body.clone()).await.map_err(|error| lucid_text::with_causes(&*error));
                let response = response.map_err(|error| format!("Post {url:?}: {error}"))?;
                match retry_after(&response) {
                    Some(pause) if attempts <= MAX_RETRIES => sleep(pause).await,
                    _ => return read(&response),
                }
            }
        });
        let response = response.await;
        let response =
            response.unwrap_or_else(|_elapsed| Err(format!("Post {url:?}: context deadline exceeded")));
        Called { response, attempts }
    }

    async fn attempt(&self, url: &str, body: Bytes) -> Result<Response<Bytes>, BoxError> {
        let mut request = Request::post(url)
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, USER_AGENT_OF_API_SERVER)
            .body(Full::new(body))?;
        // Keep the port, even the default one.
        let host = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        if let Some(host) = host.transpose()? {
            request.headers_mut().insert(HOST, host);
        }
        self.transport.clone().oneshot(request).await
    }
}

/// Delay requested by the webhook; only whole seconds are supported.
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && status.as_u16() < 500 {
        return None;
    }
    let seconds: i64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds.try_into().unwrap_or(0)))
}

fn read(response: &Response<Bytes>) -> Result<Value, String> {
    let (headers, body) = (response.headers(), response.body());
    let media_type = media_type(headers)?;
    if !(200..=206).contains(&response.status().as_u16()) {
        return Err(unexpected(response.status(), media_type.as_deref(), body));
    }
    if body.is_empty() {
        return Err(format!(
            "0-length response with status code: {} and content type: {}",
            response.status().as_u16(),
            media_type.as_deref().unwrap_or("application/json"),
        ));
    }
    // Go replaces invalid UTF-8 with U+FFFD.
    let value: Value = serde_json::from_str(&String::from_utf8_lossy(body))
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("couldn't get version/kind; json parse error: the answer is not an object".to_owned())
    }
}

/// Media type without parameters. Any valid one is accepted.
fn media_type(headers: &HeaderMap) -> Result<Option<String>, String> {
    let Some(value) = headers.get(CONTENT_TYPE).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let (media_type, parameters) = text.split_once(';').unwrap_or((&text, ""));
    let token = |text: &str| {
        let marks = b"!#$%&'*+-.^_`|~";
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || marks.contains(&byte))
    };
    let (kind, sub_kind) = media_type.trim().split_once('/').unwrap_or((media_type.trim(), "any"));
    let parameters_fit = parameters.split(';').map(str::trim).all(|pair| {
        pair.is_empty() || pair.split_once('=').is_some_and(|(name, value)| token(name) && !value.is_empty())
    });
    if token(kind) && token(sub_kind) && parameters_fit {
        Ok(Some(media_type.trim().to_ascii_lowercase()))
    } else {
        Err(format!("Internal error occurred: mime: {text:?} is not a media type"))
    }
}

fn unexpected(status: StatusCode, media_type: Option<&str>, body: &Bytes) -> String {
    if let Some(message) = status_message(body) {
        return message;
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(SHOWN_OF_ERRORS)]);
    let is_text = media_type.is_none_or(|media_type| media_type.starts_with("text/"));
    let shown = if is_text { shown.trim() } else { "unknown" };
    let code = status.as_u16();
    match code {
        409 => "the server reported a conflict".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => shown.to_owned(),
        406 if shown.is_empty() || shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => shown.to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        500.. => format!("an error on the server ({shown:?}) has prevented the request from succeeding"),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

/// Message of a body that is a `metav1.Status` of a failure.
fn status_message(body: &Bytes) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let text = |field| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let is_failure =
        text("kind") == "Status" && matches!(text("apiVersion"), "" | "v1") && text("status") == "Failure";
    is_failure.then(|| text("message").to_owned())
}
