//! The HTTP/1.1 endpoints, with optional TLS and bearer token.
//!
//! | request | response |
//! |---|---|
//! | `GET /registry/check?digest=sha256:…` | 200 `{"digest":"sha256:…","notarized":true}` |
//! | the same and `&proof=true` | the same with `"proof"`, the C2SP tlog-proof of its record in the log, if there is one |
//! | the same, notarized but not in the log | 409 `{"error":"…"}` |
//! | the same with `digest` missing, repeated or malformed, or with `proof=true` but no log | 400 `{"error":"…"}` |
//! | the same without the required token | 401 `{"error":"…"}` |
//! | `GET /healthz` | 200 `ok` |
//! | another method | 405 `{"error":"…"}` |
//! | another path | 404 `{"error":"…"}` |
//!
//! `HEAD` gets the response of `GET` without the body (RFC 9110, section 9.1).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use lucid_notary::Digest;
use lucid_webhook::TokenFile;
use lucid_webhook::{RequestBody, Server, Tls};
use serde_json::{Value, json};
use tower::service_fn;
use url::form_urlencoded;

use crate::log::RegistryLog;
use crate::registry::Registry;
use crate::reload::CurrentRegistry;

/// Maximum duration of draining requests after shutdown begins.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn bind(address: SocketAddr) -> io::Result<Server> {
    let server = Server::bind(address).await?;
    Ok(server.with_lame_duck(Duration::ZERO).with_drain(DRAIN_LIMIT))
}

#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) registry: CurrentRegistry,
    /// Token required from clients; `None` disables authentication.
    pub(crate) token: Option<TokenFile>,
    pub(crate) log: Option<Arc<RegistryLog>>,
}

impl Service {
    /// Serves until `shutdown` completes, then drains requests in progress.
    pub(crate) async fn serve(self, server: Server, tls: Tls, shutdown: impl Future<Output = ()>) {
        let service = service_fn(move |request: Request<RequestBody>| {
            let service = self.clone();
            async move { Ok(service.respond(&request).await) }
        });
        server.serve(tls, service, shutdown).await;
    }

    async fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !matches!(path, "/registry/check" | "/healthz") {
            return error(StatusCode::NOT_FOUND, "no such path, expected /registry/check or /healthz");
        }
        // The server omits the body for HEAD.
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response =
                error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed, expected GET or HEAD");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if path == "/healthz" {
            return text("ok");
        }
        if let Some(token) = &self.token
            && !token.authorizes(request.headers()).await
        {
            let message = "expected the header `Authorization: Bearer TOKEN` with this registry's token";
            let mut response = error(StatusCode::UNAUTHORIZED, message);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        self.check(request.uri().query().unwrap_or_default()).await
    }

    async fn check(&self, query: &str) -> Response<Full<Bytes>> {
        let digest = match digest_of(query) {
            Ok(digest) => digest,
            Err(message) => return error(StatusCode::BAD_REQUEST, &message),
        };
        let is_notarized = look_up(&digest, &self.registry.load());
        let mut answer = json!({ "digest": digest, "notarized": is_notarized });
        if form_urlencoded::parse(query.as_bytes())
            .any(|parameter| parameter == ("proof".into(), "true".into()))
        {
            let Some(log) = self.log.clone() else {
                return error(StatusCode::BAD_REQUEST, "parameter proof: this registry has no log");
            };
            // Reads files.
            let proof = tokio::task::spawn_blocking(move || log.proof(&digest, is_notarized));
            match proof.await.ok().flatten() {
                Some(proof) => answer["proof"] = proof.to_string().into(),
                None if is_notarized => {
                    return error(StatusCode::CONFLICT, "the digest is notarized, but not in the log yet");
                }
                None => {}
            }
        }
        json(StatusCode::OK, &answer)
    }
}

fn look_up(digest: &Digest, registry: &Registry) -> bool {
    let entry = registry.entry(digest);
    match entry {
        Some(entry) => tracing::debug!(%digest, image = ?entry.image, note = ?entry.note, "notarized"),
        None => tracing::debug!(%digest, "not notarized"),
    }
    entry.is_some()
}

fn digest_of(query: &str) -> Result<Digest, String> {
    let mut digests = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "digest");
    let Some((_, digest)) = digests.next() else {
        return Err(
            "the parameter digest is missing, expected digest=sha256:HEX or digest=sha512:HEX".to_owned()
        );
    };
    if digests.next().is_some() {
        return Err("the parameter digest is repeated, expected one".to_owned());
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
