//! The endpoints, over HTTP/1.1, with TLS and a token where these are wanted.
//!
//! | request | answer |
//! |---|---|
//! | `GET /registry/check?digest=sha256:…` | 200 `{"digest":"sha256:…","notarized":true}` |
//! | the same with `digest` missing, repeated or malformed | 400 `{"error":"…"}` |
//! | the same without the token, where there is one | 401 `{"error":"…"}` |
//! | `GET /healthz` | 200 `ok` |
//! | another method | 405 `{"error":"…"}` |
//! | another path | 404 `{"error":"…"}` |
//!
//! `HEAD` is answered like `GET`, without the body (RFC 9110, section 9.1).

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use lucid_notary::Digest;
use lucid_process::TokenFile;
use lucid_webhook::{BindError, RequestBody, Server, Tls};
use serde_json::{Value, json};
use tower::service_fn;
use url::form_urlencoded;

use crate::registry::Registry;
use crate::reload::CurrentRegistry;

/// How long requests in progress may go on after the shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Binds to `address`; with port 0 the system picks a free port.
///
/// # Errors
///
/// When the address is in use, not of this machine, or not permitted.
pub async fn bind(address: SocketAddr) -> Result<Server, BindError> {
    let server = Server::bind(address).await?;
    Ok(server.with_lame_duck(Duration::ZERO).with_drain(DRAIN_LIMIT))
}

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct Service {
    /// Which digests are notarized.
    pub registry: CurrentRegistry,
    /// Who asks has to show it; without it everybody may ask.
    pub token: Option<TokenFile>,
}

impl Service {
    /// Serves until `shutdown` completes, then lets the requests in progress end.
    pub async fn serve(self, server: Server, tls: Tls, shutdown: impl Future<Output = ()>) {
        let service = service_fn(move |request: Request<RequestBody>| {
            let service = self.clone();
            async move { Ok(service.respond(&request).await) }
        });
        server.serve(tls, service, shutdown).await;
    }

    /// The answer to a request; its body does not matter.
    async fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/registry/check" | "/healthz") {
            return error(StatusCode::NOT_FOUND, "no such path; accepted are /registry/check and /healthz");
        }
        // For HEAD, the server sends the headers alone.
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed; accepted are GET and HEAD");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if path == "/healthz" {
            return text("ok");
        }
        if let Some(token) = &self.token
            && !token.authorizes(request.headers()).await
        {
            let message = "accepted is the header `Authorization: Bearer TOKEN` with this registry's token";
            let mut response = error(StatusCode::UNAUTHORIZED, message);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        check(request.uri().query().unwrap_or_default(), &self.registry.load())
    }
}

fn check(query: &str, registry: &Registry) -> Response<Full<Bytes>> {
    let digest = match digest_of(query) {
        Ok(digest) => digest,
        Err(message) => return error(StatusCode::BAD_REQUEST, &message),
    };
    let entry = registry.entry(&digest);
    match entry {
        Some(entry) => tracing::debug!(%digest, image = ?entry.image, note = ?entry.note, "notarized"),
        None => tracing::debug!(%digest, "not notarized"),
    }
    json(StatusCode::OK, &json!({ "digest": digest, "notarized": entry.is_some() }))
}

/// The digest in a query, percent-decoded.
fn digest_of(query: &str) -> Result<Digest, String> {
    let mut digests = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "digest");
    let Some((_, digest)) = digests.next() else {
        return Err(
            "the parameter digest is missing; accepted is digest=sha256:HEX or digest=sha512:HEX".to_owned()
        );
    };
    if digests.next().is_some() {
        return Err("the parameter digest is repeated; accepted is one".to_owned());
    }
    digest.parse().map_err(|error| format!("parameter digest: {error}"))
}

fn text(body: &'static str) -> Response<Full<Bytes>> {
    response(StatusCode::OK, "text/plain; charset=utf-8", body.into())
}

fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &json!({ "error": message }))
}

fn json(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    response(status, "application/json", body.to_string().into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
