//! An auditor: its judges, and the path of a request.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, StatusCode, Version,
    body::{Body as _, Incoming},
    header::{
        ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE,
    },
    http::{request::Parts, uri::Authority},
    upgrade::OnUpgrade,
};
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};
use tracing::Instrument as _;

use crate::{
    Direction, Judge, Judges, Mode, Policy, SettingError, Settings, Unjudged,
    answer::Answered,
    body::{Body, Buffered, Room, Unbuffered, copied, discard, full, skip},
    forward::{self, Forwarder},
    json::Document,
    protocol::{self, BLOCKED, Protocol, Refusal},
    telemetry::{Metrics, Telemetry},
    verdict::{Denial, Panel},
    whole,
};

pub(crate) type Response = hyper::Response<Body>;

/// Time for receiving a buffered request body.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// Number of requests, and of answers, of maximum size that fit in memory at the same time.
const MAX_BODIES: usize = 32;

const NOT_UTF_8: &str = "found a body that is not UTF-8 text, which cannot be judged";

/// An auditor, for [`serve`](crate::serve()).
#[derive(Debug)]
pub struct Auditor {
    pub(crate) settings: Settings,
    judges: Source,
    forwarder: Forwarder,
    /// Separate, so that callers who read slowly do not keep requests out.
    requests: Room,
    answers: Room,
    pub(crate) telemetry: Arc<Telemetry>,
}

#[derive(Debug)]
enum Source {
    Fixed(Judges),
    Reloaded(watch::Receiver<Judges>),
}

/// Properties of a forwarded request that its answer is judged by.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) protocol: &'static Protocol,
    /// Id of a JSON-RPC request.
    pub(crate) id: Option<Value>,
}

impl Auditor {
    /// Creates an auditor from the environment of its container: see [`Settings`].
    ///
    /// # Errors
    ///
    /// Returns [`SettingError`] if a variable is missing or invalid.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Creates an auditor from `variable`, which returns the value of an environment variable.
    ///
    /// # Errors
    ///
    /// Returns [`SettingError`] if a variable is missing or invalid.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingError> {
        let settings = Settings::from(&variable)?;
        let key = variable("LUCID_HASH_KEY").filter(|key| !key.is_empty());
        let telemetry = Telemetry::new(key.as_deref()).map_err(|_| SettingError::hash_key())?;
        let telemetry = Arc::new(telemetry);
        let forwarder = Forwarder::new(&settings.id);
        let room = || Room::new(settings.max_bytes, MAX_BODIES);
        let (requests, answers) = (room(), room());
        Ok(Self { settings, judges: Source::Fixed(Judges::new()), forwarder, requests, answers, telemetry })
    }

    /// Adds a judge with the default policy.
    #[must_use]
    pub fn judge(self, judge: impl Judge) -> Self {
        self.judge_with(judge, Policy::default())
    }

    /// Adds a judge. Replaces the source of [`Auditor::with_judges`].
    #[must_use]
    pub fn judge_with(mut self, judge: impl Judge, policy: Policy) -> Self {
        let judges = match self.judges {
            Source::Fixed(judges) => judges,
            Source::Reloaded(_) => Judges::new(),
        };
        self.judges = Source::Fixed(judges.with_policy(judge, policy));
        self
    }

    /// Sets the source of the judges. Exchanges in progress keep the judges with which they began.
    #[must_use]
    pub fn with_judges(mut self, judges: watch::Receiver<Judges>) -> Self {
        self.judges = Source::Reloaded(judges);
        self
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the metrics of the auditor, for programs that serve them themselves.
    pub fn metrics(&self) -> Metrics {
        Metrics(Arc::clone(&self.telemetry))
    }

    fn panel(&self, mode: Mode) -> Panel {
        let judges = match &self.judges {
            Source::Fixed(judges) => judges.clone(),
            Source::Reloaded(judges) => judges.borrow().clone(),
        };
        Panel { judges, telemetry: Arc::clone(&self.telemetry), mode }
    }

    /// Returns the response to a request of `peer`, which is forwarded to `next`.
    pub(crate) async fn respond(
        &self,
        peer: IpAddr,
        next: &Authority,
        request: Request<Incoming>,
    ) -> Response {
        let trace_parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
        // Log lines of a request identify it.
        let span = tracing::info_span!(
            "request",
            method = %request.method(),
            path = request.uri().path(),
            traceparent = trace_parent,
        );
        #[cfg(feature = "opentelemetry")]
        continue_trace(&span, request.headers());
        let response =
            self.dispatch(peer, next, request).instrument(span).await.unwrap_or_else(|refused| refused);
        self.telemetry.count_request(response.status());
        response
    }

    /// Returns the response, or as an error the one that refuses the request.
    async fn dispatch(
        &self,
        peer: IpAddr,
        next: &Authority,
        mut request: Request<Incoming>,
    ) -> Result<Response, Response> {
        let upgrade =
            lucid_proxy::upgrade(request.headers()).is_some().then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let body = body.map_err(Into::into).boxed_unsync();
        if let Some((status, message)) = self.unreadable(&parts) {
            skip(&parts.headers, body).await;
            let asked = Asked::of(parts.uri.path(), "");
            return Err(self.refuse(&asked, status, "unreadable", &message));
        }
        match (&parts.method, parts.uri.path()) {
            // The pod's network rules redirect the kubelet's probe of the model here as well. `Host` has the port that it
            // was sent to.
            (&Method::GET | &Method::HEAD, "/health")
                if !self.settings.is_probe_of_the_model(&parts.method, &parts.uri, &parts.headers) =>
            {
                Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
            }
            (&Method::POST, "/audit") => self.audit(&parts.headers, body).await,
            // Other methods on these paths belong to the model.
            _ => self.exchange(peer, next, parts, body, upgrade).await,
        }
    }

    /// Returns the reason why the content of a request cannot be judged, if it must be.
    fn unreadable(&self, parts: &Parts) -> Option<(StatusCode, String)> {
        if parts.method == Method::CONNECT {
            let message = "found CONNECT, which requests a tunnel that cannot be audited";
            return Some((StatusCode::METHOD_NOT_ALLOWED, message.to_owned()));
        }
        if let Some(coding) = forward::transfer_coding(&parts.headers) {
            let message = format!("found a body that is transferred as {coding}, accepted chunked alone");
            return Some((StatusCode::NOT_IMPLEMENTED, message));
        }
        if self.settings.mode == Mode::Enforce && has_types(&parts.headers) {
            let message = "found several values of Content-Type, expected one";
            return Some((StatusCode::BAD_REQUEST, message.to_owned()));
        }
        if !self.refuses_unjudged() {
            return None;
        }
        if let Some(protocol) = lucid_proxy::upgrade(&parts.headers) {
            let message = format!("found an upgrade to {protocol}, which cannot be judged");
            return Some((StatusCode::NOT_IMPLEMENTED, message));
        }
        forward::is_grpc(parts).then(|| {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "found gRPC, whose messages cannot be judged".to_owned())
        })
    }

    fn refuses_unjudged(&self) -> bool {
        self.settings.mode == Mode::Enforce && self.settings.unjudged == Unjudged::Refuse
    }

    /// Judges the text of `POST /audit`.
    async fn audit(&self, headers: &HeaderMap, body: Body) -> Result<Response, Response> {
        let asked = Asked::unknown();
        let buffered = self.read(&asked, headers, body).await?;
        let content_type = content_type(headers);
        let Some(text) = as_text(&buffered.data).filter(|_| is_like_ascii(&content_type)) else {
            return Err(self.unjudged_request(&asked, NOT_UTF_8));
        };
        let document = Document::scan(text);
        let protocol = Protocol::of_request("", &document);
        let panel = self.panel(Mode::Enforce);
        let judged = whole::judge(&panel, protocol, Direction::Prompt, &content_type, &document).await;
        let verdict = match judged {
            Ok(None) => json!({"allowed": true}),
            Ok(Some(masked)) => json!({"allowed": true, "text": masked}),
            Err(denial) => json!({"allowed": false, "rule": denial.rule, "message": denial.message}),
        };
        Ok(json_response(StatusCode::OK, &verdict))
    }

    /// Judges and forwards a request, and returns the judged response.
    async fn exchange(
        &self,
        peer: IpAddr,
        next: &Authority,
        mut parts: Parts,
        body: Body,
        upgrade: Option<OnUpgrade>,
    ) -> Result<Response, Response> {
        let mut panel = self.panel(self.settings.mode);
        if forward::is_grpc(&parts) {
            panel.judges = Judges::new();
        }
        let (asked, body) = match self.settings.mode {
            _ if panel.judges.is_empty() => (Asked::unknown(), body),
            Mode::Observe => self.observe_request(&panel, &parts, body),
            Mode::Enforce => self.judge_request(&panel, &mut parts, body).await?,
        };
        // Compressed responses and parts of them cannot be judged.
        if !panel.judges.is_empty() {
            parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            parts.headers.remove(RANGE);
        }
        let version = parts.version;
        let is_upgrade = upgrade.is_some();
        let response = match upgrade {
            Some(upgrade) => self.forwarder.tunnel(next, peer, parts, body, upgrade).await,
            None => self.forwarder.send(next, peer, parts, body).await,
        };
        let response = response.map_err(|error| self.unreachable(next, &asked, &error))?;
        if is_upgrade && response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        Ok(self.hand_back(panel, asked, version, response).await)
    }

    /// Buffers and judges a request: the model must not see any part of a denied one.
    async fn judge_request(
        &self,
        panel: &Panel,
        parts: &mut Parts,
        body: Body,
    ) -> Result<(Asked, Body), Response> {
        let path = parts.uri.path().to_owned();
        let unknown = Asked::of(&path, "");
        let denied = |asked: &Asked, denial: &Denial| {
            let (status, kind) = match denial.is_failure {
                true => (StatusCode::SERVICE_UNAVAILABLE, "judge_failed"),
                false => (StatusCode::FORBIDDEN, BLOCKED),
            };
            self.refuse(asked, status, kind, &denial.message)
        };
        let judged = whole::judge_uri(panel, &path, parts.uri.query()).await;
        judged.map_err(|denial| denied(&unknown, &denial))?;
        let passes = self.settings.unjudged == Unjudged::Pass;
        if body.is_end_stream() || passes && encoding(&parts.headers).is_some() {
            return Ok((unknown, body));
        }
        let buffered = self.read(&unknown, &parts.headers, body).await?;
        self.telemetry.count_bytes("request", buffered.data.len());
        let content_type = content_type(&parts.headers);
        let Some(text) = as_text(&buffered.data).filter(|_| is_like_ascii(&content_type)) else {
            return match passes {
                true => Ok((unknown, buffered.into_body())),
                false => Err(self.unjudged_request(&unknown, NOT_UTF_8)),
            };
        };
        let document = Document::scan(text);
        let asked = Asked::in_document(&path, &document);
        if !passes && let Some(found) = protocol::unjudged_request(&document) {
            let message = format!("found {found}, which cannot be judged; accepted text");
            return Err(self.unjudged_request(&asked, &message));
        }
        let judged =
            whole::judge(panel, asked.protocol, Direction::Prompt, &content_type, &document).await;
        match judged {
            Ok(None) => Ok((asked, buffered.into_body())),
            Ok(Some(masked)) => {
                parts.headers.remove(CONTENT_LENGTH);
                Ok((asked, full(masked)))
            }
            Err(denial) => Err(denied(&asked, &denial)),
        }
    }

    /// Judges a copy of the request.
    fn observe_request(&self, panel: &Panel, parts: &Parts, body: Body) -> (Asked, Body) {
        let asked = Asked::of(parts.uri.path(), "");
        if body.is_end_stream() {
            return (asked, body);
        }
        let (body, mut pieces) = copied(body);
        let (panel, path, content_type) =
            (panel.clone(), parts.uri.path().to_owned(), content_type(&parts.headers));
        let max_bytes = self.settings.max_bytes;
        let observed = async move {
            let mut data = Vec::new();
            while let Some(piece) = pieces.recv().await {
                panel.telemetry.count_bytes("request", piece.len());
                if data.len() < max_bytes {
                    data.extend_from_slice(&piece);
                }
            }
            let Some(text) = as_text(&data) else { return };
            let document = Document::scan(text);
            let protocol = Protocol::of_request(&path, &document);
            let _ = whole::judge(&panel, protocol, Direction::Prompt, &content_type, &document).await;
        };
        tokio::spawn(observed.in_current_span());
        (asked, body)
    }

    /// Buffers a body if it is readable, within the limits of length and time, and there is memory for it.
    async fn read(&self, asked: &Asked, headers: &HeaderMap, mut body: Body) -> Result<Buffered, Response> {
        let refuse = |status, kind, message: &str| self.refuse(asked, status, kind, message);
        let max_bytes = self.settings.max_bytes;
        let too_large = || {
            let message = format!("accepted a body of at most {max_bytes} bytes");
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
        };
        if let Some(encoding) = encoding(headers) {
            let message =
                format!("found a body that is encoded as {encoding}, accepted one that is not encoded");
            skip(headers, body).await;
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", &message));
        }
        if body.size_hint().lower() > max_bytes as u64 {
            skip(headers, body).await;
            return Err(too_large());
        }
        let refusal = match timeout(BODY_LIMIT, self.requests.collect(&mut body)).await {
            Ok(Ok(buffered)) => return Ok(buffered),
            Ok(Err(Unbuffered::TooLarge)) => too_large(),
            Ok(Err(Unbuffered::Busy)) => {
                refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", "no memory for one more body")
            }
            Ok(Err(Unbuffered::Failed(error))) => {
                refuse(StatusCode::BAD_REQUEST, "cut_off", &error.to_string())
            }
            Err(_elapsed) => {
                let message = format!("accepted a body that arrives within {} s", BODY_LIMIT.as_secs());
                refuse(StatusCode::REQUEST_TIMEOUT, "too_slow", &message)
            }
        };
        discard(body).await;
        Err(refusal)
    }

    /// Returns the model's response to a request of `version`, judged.
    async fn hand_back(
        &self,
        panel: Panel,
        asked: Asked,
        version: Version,
        response: hyper::Response<Incoming>,
    ) -> Response {
        let (mut parts, body) = response.into_parts();
        let refuse = |kind, message: &str| self.refuse(&asked, StatusCode::BAD_GATEWAY, kind, message);
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            return refuse(
                "unreadable",
                "the answer changes to another protocol, which nobody has asked for",
            );
        }
        // Without a body, as after HEAD, the headers describe the one that GET would return.
        let has_body = !body.is_end_stream();
        if let Some(coding) = forward::transfer_coding(&parts.headers).filter(|_| has_body) {
            return refuse(
                "unreadable",
                &format!("the answer is transferred as {coding} and cannot be read"),
            );
        }
        let is_http2 = parts.version == Version::HTTP_2;
        lucid_proxy::remove_hop_by_hop(&mut parts.headers);
        // The model's HTTP version does not affect the caller's connection.
        parts.version = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let body = body.map_err(Into::into).boxed_unsync();
        if panel.judges.is_empty() || !has_body {
            return Response::from_parts(parts, body);
        }
        if let Some(encoding) = encoding(&parts.headers) {
            let message = format!("the answer is encoded as {encoding} and cannot be read");
            match self.refuses_unjudged() {
                false => {
                    tracing::warn!("{message}");
                    return Response::from_parts(parts, body);
                }
                true => return refuse("unreadable", &message),
            }
        }
        let answered = Answered { auditor: self, panel, asked, version };
        answered.judge(parts, body).await
    }

    fn unreachable(
        &self,
        next: &Authority,
        asked: &Asked,
        error: &hyper_util::client::legacy::Error,
    ) -> Response {
        let message = format!("no answer from {next}: {}", lucid_proxy::with_causes(error));
        self.refuse(asked, StatusCode::BAD_GATEWAY, "next_unreachable", &message)
    }

    fn unjudged_request(&self, asked: &Asked, message: &str) -> Response {
        self.refuse(asked, StatusCode::UNSUPPORTED_MEDIA_TYPE, "unreadable", message)
    }

    /// Returns the memory for answers.
    pub(crate) fn answers(&self) -> &Room {
        &self.answers
    }

    /// Returns a refusal in the protocol of the request.
    pub(crate) fn refuse(
        &self,
        asked: &Asked,
        status: StatusCode,
        kind: &'static str,
        message: &str,
    ) -> Response {
        // The verdict is logged already.
        if kind != BLOCKED {
            tracing::warn!(status = status.as_u16(), kind, "{message}");
        }
        let (auditor, rule, id) = (&self.settings.id, "", asked.id.as_ref());
        let refusal = Refusal { auditor, kind, rule, status, message, id, choices: &BTreeSet::new() };
        let (status, body) = (asked.protocol.refusal)(&refusal);
        json_response(status, &body)
    }
}

impl Asked {
    /// Returns the protocol of a request that is unknown.
    fn unknown() -> Self {
        Self::of("", "")
    }

    fn of(path: &str, text: &str) -> Self {
        Self::in_document(path, &Document::scan(text))
    }

    fn in_document(path: &str, document: &Document<'_>) -> Self {
        Self { protocol: Protocol::of_request(path, document), id: protocol::request_id(document) }
    }
}

pub(crate) fn json_response(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(full(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a body as text, if it is UTF-8. JSON in UTF-16 contains NUL.
pub(crate) fn as_text(data: &[u8]) -> Option<&str> {
    str::from_utf8(data).ok().filter(|text| !text.contains('\0'))
}

/// Returns `true` unless `content_type` states an encoding in which ASCII has another meaning.
pub(crate) fn is_like_ascii(content_type: &str) -> bool {
    let known = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin1", "windows-1252"];
    let parameters = content_type.split(';').map(|parameter| parameter.trim());
    let mut charsets = parameters.filter_map(|parameter| parameter.strip_prefix("charset="));
    charsets.all(|charset| known.contains(&charset.trim_matches(['"', '\'']).trim()))
}

pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Returns `true` for several values of `Content-Type`, of which each receiver chooses another one.
fn has_types(headers: &HeaderMap) -> bool {
    let values = || headers.get_all(CONTENT_TYPE).into_iter();
    values().count() > 1 || values().any(|value| value.as_bytes().contains(&b','))
}

/// Returns the content encoding, if any. An auditor that can decompress would do so here; this one reports an unsupported
/// encoding.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encodings = headers.get_all(CONTENT_ENCODING).into_iter();
    let encodings = encodings.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut encodings = encodings.filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
    encodings.next()
}

#[cfg(feature = "opentelemetry")]
fn continue_trace(span: &tracing::Span, headers: &HeaderMap) {
    use opentelemetry_http::HeaderExtractor;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let parent = opentelemetry::global::get_text_map_propagator(|it| it.extract(&HeaderExtractor(headers)));
    // Fails without a layer of OpenTelemetry, which is not an error.
    let _ = span.set_parent(parent);
}
