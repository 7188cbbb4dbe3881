//! `/audit`: the decisions in memory, for browsers and programs with the token.
//!
//! | request | response |
//! |---|---|
//! | `GET /audit` | decisions, filtered and in pages; see `query` |
//! | `GET /audit/vkey` | key that verifies the log, without a token; 404 without a log |
//! | `GET /audit/status` | state of the log and of the memory, and the reported drift |
//! | `GET /audit/pods` | states of running pods; 404 from a program that does not watch them |
//! | `POST /audit/alerts` | 204; reports drifts as `{"drifts": [...]}`, see `alerts` |
//! | `POST /audit/cosignatures` | 200; stores a checkpoint of the log with cosignatures of its witnesses |
//! | `GET /audit/ui` | web page that asks for the token and shows the rest |
//!
//! All paths except the page, which contains no data, and the key, which is public, require `Authorization: Bearer
//! TOKEN` and otherwise respond with 401. Alerts require a separate token, so readers of decisions cannot report drift.
//! A path whose token is not configured responds with 403.

mod alerts;
mod page;
mod query;
mod ui;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK, WWW_AUTHENTICATE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use lucid_audit::{Log, Recorder};
use lucid_webhook::{Router, TokenFile};
use serde::Serialize;
use serde_json::{Value, json};

use self::alerts::{Alert, Alerts, Report};
use self::page::Page;
use self::query::{Format, Query};
pub use self::ui::STYLE;

const DECISIONS: &str = "/audit";
const STATUS: &str = "/audit/status";
const PODS: &str = "/audit/pods";
/// Path of the log's verifier key, which does not need a token.
pub const VKEY: &str = "/audit/vkey";
const ALERTS: &str = "/audit/alerts";
const COSIGNATURES: &str = "/audit/cosignatures";
const UI: &str = "/audit/ui";

/// Service of `/audit`.
pub struct Audit {
    recorder: Arc<Recorder>,
    token: Option<TokenFile>,
    alert_token: Option<TokenFile>,
    replica: String,
    alerts: Alerts,
    pods: Option<Box<dyn Fn() -> Value + Send + Sync>>,
    /// Unique identifier of this process, so that cursors of other processes are rejected.
    run: String,
    page: ui::Ui,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("replica", &self.replica).finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct LogState {
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vkey: Option<String>,
    /// Number of records that were pruned.
    first: u64,
    size: u64,
    /// Number of records covered by the latest checkpoint, and by the latest cosigned one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cosigned: Option<u64>,
    /// Reason why the latest decision is not logged, or the log is not sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    replica: &'a str,
    version: &'static str,
    /// Number of decisions since the start, and how many of them are in memory.
    decided: u64,
    in_memory: usize,
    /// `None` if decisions are in memory only.
    log: Option<LogState>,
    alerts: Vec<Alert>,
}

impl Audit {
    /// Creates a service that shows the decisions of `recorder` to callers with `token`. Without a token it rejects all
    /// requests.
    #[must_use]
    pub fn new(recorder: Arc<Recorder>, token: Option<TokenFile>) -> Self {
        Self {
            recorder,
            token,
            alert_token: None,
            replica: String::new(),
            alerts: Alerts::default(),
            pods: None,
            run: query::new_run(),
            page: ui::Ui::new(),
        }
    }

    /// Accepts drift reports from callers with `token`. By default all reports are rejected.
    #[must_use]
    pub fn with_alert_token(self, token: TokenFile) -> Self {
        Self { alert_token: Some(token), ..self }
    }

    /// Names this process in responses, for clients that query several replicas.
    #[must_use]
    pub fn with_replica(self, replica: String) -> Self {
        Self { replica, ..self }
    }

    /// Shows running pods: `pods` returns an object with `watches`, `counts` by state, `pods` and `more`, the number of
    /// pods that `pods` omits. By default none are shown.
    #[must_use]
    pub fn with_running_pods(self, pods: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        Self { pods: Some(Box::new(pods)), ..self }
    }

    /// Adds the paths of the service to `router`.
    #[must_use]
    pub fn mount(self, router: Router) -> Router {
        let service = Arc::new(self);
        [DECISIONS, STATUS, PODS, VKEY, ALERTS, COSIGNATURES, UI].into_iter().fold(router, |router, path| {
            let service = Arc::clone(&service);
            let respond = move |request| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.respond(request).await) }
            };
            router.service(path, tower::service_fn(respond))
        })
    }

    async fn respond(&self, request: Request<Bytes>) -> Response<Full<Bytes>> {
        let mut response = self.route(&request).await;
        let headers = response.headers_mut();
        for (name, value) in [
            (CACHE_CONTROL, "no-store"),
            (HeaderName::from_static("x-content-type-options"), "nosniff"),
            (HeaderName::from_static("referrer-policy"), "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn route(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let (path, method) = (request.uri().path(), request.method());
        if path == VKEY && is_reading(method) {
            return match self.recorder.log().and_then(Log::vkey) {
                Some(vkey) => response(StatusCode::OK, "text/plain", format!("{vkey}\n").into_bytes()),
                None => error(StatusCode::NOT_FOUND, "decisions are not sealed: no log is open"),
            };
        }
        let (purpose, token) = if path == ALERTS {
            ("drift reports", self.alert_token.as_ref())
        } else {
            ("decisions", self.token.as_ref())
        };
        let Some(token) = token else {
            return error(StatusCode::FORBIDDEN, &format!("no token for {purpose} is configured"));
        };
        if path == UI && is_reading(method) {
            return self.page.response();
        }
        if path != UI && !token.authorizes(request.headers()).await {
            let message =
                format!("expected the header `Authorization: Bearer TOKEN` with the token for {purpose}");
            let mut response = error(StatusCode::UNAUTHORIZED, &message);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        }
        match path {
            DECISIONS if is_reading(method) => self.decisions(request),
            STATUS if is_reading(method) => json(StatusCode::OK, &self.status()),
            PODS if is_reading(method) => match &self.pods {
                Some(pods) => json(StatusCode::OK, &pods()),
                None => error(StatusCode::NOT_FOUND, "this program does not watch running pods"),
            },
            ALERTS if method == Method::POST => self.alert(request.body()),
            COSIGNATURES if method == Method::POST => self.cosign(request.body().clone()).await,
            ALERTS | COSIGNATURES => not_allowed("POST"),
            _ => not_allowed("GET, HEAD"),
        }
    }

    fn decisions(&self, request: &Request<Bytes>) -> Response<Full<Bytes>> {
        let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let query = request.uri().query().unwrap_or_default();
        let query = match Query::parse(query, accepts, &self.run) {
            Ok(query) => query,
            Err(wrong) => return error(wrong.status, &wrong.to_string()),
        };
        let written = Page::of(&self.recorder.latest(), &query).and_then(|page| {
            let next = page.next.map(|number| query.cursor(&self.run, number));
            let latest = query.cursor(&self.run, page.latest);
            let body = match query.format {
                Format::Json => page.json(&self.replica, next.as_deref(), &latest)?,
                Format::JsonLines => page.json_lines(),
            };
            Ok((body, next))
        });
        let (body, next) = match written {
            Ok(written) => written,
            Err(wrong) => {
                let message = format!("failed to write the decisions: {wrong}");
                return error(StatusCode::INTERNAL_SERVER_ERROR, &message);
            }
        };
        let mut response = response(StatusCode::OK, query.format.media_type(), body);
        let link = next.and_then(|next| {
            HeaderValue::from_str(&format!("<{DECISIONS}?{}>; rel=\"next\"", query.with_cursor(&next))).ok()
        });
        if let Some(link) = link {
            response.headers_mut().insert(LINK, link);
        }
        response
    }

    fn status(&self) -> Status<'_> {
        let Self { recorder, alerts, .. } = self;
        let latest = recorder.latest();
        Status {
            replica: &self.replica,
            version: env!("CARGO_PKG_VERSION"),
            decided: latest.last().map_or(0, |entry| entry.number),
            in_memory: latest.len(),
            log: log_state(recorder),
            alerts: alerts.latest(),
        }
    }

    async fn cosign(&self, note: Bytes) -> Response<Full<Bytes>> {
        let recorder = Arc::clone(&self.recorder);
        // Checking the cosignatures reads the tree and blocks on the disk.
        let cosigned = tokio::task::spawn_blocking(move || cosign(&recorder, &note)).await;
        cosigned.unwrap_or_else(|_| {
            error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "failed to accept the cosignatures: the task was cancelled",
            )
        })
    }

    fn alert(&self, body: &[u8]) -> Response<Full<Bytes>> {
        match serde_json::from_slice::<Report>(body) {
            Ok(report) => {
                report.drifts.into_iter().for_each(|alert| self.alerts.raise(alert));
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(wrong) => error(StatusCode::BAD_REQUEST, &format!("failed to read the drifts: {wrong}")),
        }
    }
}

fn cosign(recorder: &Recorder, note: &[u8]) -> Response<Full<Bytes>> {
    let Some(log) = recorder.log() else {
        return error(StatusCode::CONFLICT, "there is no log whose checkpoints could be cosigned");
    };
    let note = match str::from_utf8(note) {
        Ok(note) => note,
        Err(wrong) => return error(StatusCode::BAD_REQUEST, &format!("failed to read the note: {wrong}")),
    };
    match log.cosign(note) {
        Ok(cosigned) => {
            tracing::info!("{cosigned}");
            json(StatusCode::OK, &cosigned)
        }
        Err(wrong) => {
            let status =
                if wrong.is_file() { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST };
            tracing::warn!("cosignatures are not accepted: {wrong}");
            error(status, &format!("failed to accept the cosignatures: {wrong}"))
        }
    }
}

fn log_state(recorder: &Recorder) -> Option<LogState> {
    match recorder.log_status() {
        Ok(None) => None,
        Ok(Some(status)) => {
            let vkey = recorder.log().and_then(Log::vkey);
            Some(LogState {
                origin: vkey.map(|key| key.name().to_owned()),
                vkey: vkey.map(ToString::to_string),
                first: status.first,
                size: status.size,
                sealed: vkey.map(|_| status.sealed_size),
                cosigned: Some(status.cosigned_size).filter(|size| *size > 0),
                failing: status.failure().map(str::to_owned),
            })
        }
        Err(reason) => Some(LogState { failing: Some(reason), ..LogState::default() }),
    }
}

/// Returns `true` for GET and HEAD. The server omits the body for HEAD.
fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn not_allowed(allowed: &'static str) -> Response<Full<Bytes>> {
    let mut response =
        error(StatusCode::METHOD_NOT_ALLOWED, &format!("method not allowed; expected {allowed}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn error(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, &json!({ "error": message }))
}

fn json(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(body) {
        Ok(body) => response(status, "application/json", body),
        Err(_) => response(StatusCode::INTERNAL_SERVER_ERROR, "application/json", Vec::new()),
    }
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
