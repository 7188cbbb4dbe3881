//! An auditor: its judges, and the path of a request.

use std::{net::IpAddr, sync::Arc};

use http_body_util::BodyExt as _;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN, RANGE},
    http::{request::Parts, uri::Authority},
    upgrade::OnUpgrade,
};
use serde_json::json;
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::{
    AuditMode, Judge, JudgePolicy, Judges, SettingError, Settings,
    answer::Answered,
    body::{Body, Response, Room, content_type, json_response, skip},
    cors::Cors,
    forward::{self, Forwarder},
    protocol::UNREADABLE,
    refusal::Asked,
    request::Examiner,
    telemetry::{Metrics, Telemetry},
    verdict::Panel,
};

/// Number of requests, and of answers, of maximum size that fit in memory at the same time.
const MAX_BODIES: usize = 32;

/// An auditor, for [`serve`](crate::serve()).
#[derive(Debug)]
pub struct Auditor {
    pub(crate) settings: Settings,
    judges: Source,
    forwarder: Forwarder,
    /// Separate, so that callers who read slowly do not keep requests out.
    requests: Room,
    answers: Room,
    cors: Cors,
    pub(crate) telemetry: Arc<Telemetry>,
}

#[derive(Debug)]
enum Source {
    Fixed(Judges),
    Reloaded(watch::Receiver<Judges>),
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
        let judges = Source::Fixed(Judges::new());
        Ok(Self { settings, judges, forwarder, requests, answers, cors: Cors::default(), telemetry })
    }

    /// Adds a judge with the default policy.
    #[must_use]
    pub fn judge(self, judge: impl Judge) -> Self {
        self.judge_with(judge, JudgePolicy::default())
    }

    /// Adds a judge. Replaces the source of [`Auditor::with_judges`].
    #[must_use]
    pub fn judge_with(mut self, judge: impl Judge, policy: JudgePolicy) -> Self {
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

    fn panel(&self, mode: AuditMode) -> Panel {
        let judges = match &self.judges {
            Source::Fixed(judges) => judges.clone(),
            Source::Reloaded(judges) => judges.borrow().clone(),
        };
        let Settings { on_failure, timeout, .. } = self.settings;
        Panel { judges, telemetry: Arc::clone(&self.telemetry), mode, on_failure, timeout }
    }

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
            method = request.method().as_str(),
            path = request.uri().path(),
            traceparent = trace_parent,
        );
        #[cfg(feature = "opentelemetry")]
        continue_trace(&span, request.headers());
        let origin = request.headers().get(ORIGIN).cloned();
        // Connections keep the memory of this future, and answers may be long: boxed, it ends with the head of the answer.
        let response = Box::pin(self.dispatch(peer, next, request)).instrument(span).await;
        let response = response.unwrap_or_else(|mut refusal| {
            self.cors.add(next, origin.as_ref(), refusal.headers_mut());
            refusal
        });
        self.telemetry.count_request(response.status());
        response
    }

    /// Returns the response, or as an error a refusal.
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
            let asked = Asked::at(parts.uri.path());
            return Err(asked.refuse(&self.settings.id, status, UNREADABLE, &message));
        }
        match (&parts.method, parts.uri.path()) {
            // The pod's network rules redirect the kubelet's probe of the model here as well. `Host` has the port that it
            // was sent to.
            (&Method::GET | &Method::HEAD, "/health")
                if !self.settings.is_probe_of_the_model(&parts.method, &parts.uri, &parts.headers) =>
            {
                Ok(json_response(StatusCode::OK, &json!({"status": "ok"})))
            }
            (&Method::POST, "/audit") => {
                self.examiner(self.panel(AuditMode::Enforce)).audit(parts.headers, body).await
            }
            // Other methods on these paths belong to the model.
            _ => self.exchange(peer, next, parts, body, upgrade).await,
        }
    }

    fn unreadable(&self, parts: &Parts) -> Option<(StatusCode, String)> {
        if parts.method == Method::CONNECT {
            let message = "found CONNECT, which requests a tunnel that cannot be audited";
            return Some((StatusCode::METHOD_NOT_ALLOWED, message.to_owned()));
        }
        if let Some(coding) = forward::transfer_coding(&parts.headers) {
            let message = format!("expected the transfer coding chunked alone, found {coding}");
            return Some((StatusCode::NOT_IMPLEMENTED, message));
        }
        if self.settings.mode == AuditMode::Enforce && has_types(&parts.headers) {
            let message = "expected one value of Content-Type, found several";
            return Some((StatusCode::BAD_REQUEST, message.to_owned()));
        }
        let is_grpc_of_json = forward::is_grpc(parts) && content_type(&parts.headers).contains("json");
        if self.settings.mode == AuditMode::Enforce && is_grpc_of_json {
            let message =
                "expected gRPC with protobuf messages, found JSON, which is text that cannot be judged";
            return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, message.to_owned()));
        }
        if !self.settings.refuses_unjudged() {
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

    fn examiner(&self, panel: Panel) -> Examiner<'_> {
        Examiner { settings: &self.settings, room: &self.requests, panel }
    }

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
            _ if panel.judges.is_empty() => (Asked::at(""), body),
            AuditMode::Observe => self.examiner(panel.clone()).observe(&parts, body),
            AuditMode::Enforce => self.examiner(panel.clone()).judge(&mut parts, body).await?,
        };
        // Compressed responses and parts of them cannot be judged.
        if !panel.judges.is_empty() {
            parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            parts.headers.remove(RANGE);
        }
        let (version, origin) = (parts.version, parts.headers.get(ORIGIN).cloned());
        let is_upgrade = upgrade.is_some();
        let response = match upgrade {
            Some(upgrade) => self.forwarder.tunnel(next, peer, parts, body, upgrade).await,
            None => self.forwarder.send(next, peer, parts, body).await,
        };
        let response = response.map_err(|error| {
            let message = format!("no answer from {next}: {}", lucid_text::with_causes(&error));
            asked.refuse(&self.settings.id, StatusCode::BAD_GATEWAY, "next_unreachable", &message)
        })?;
        self.cors.remember(next, origin.as_ref(), response.headers());
        if is_upgrade && response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        let answered = Answered { settings: &self.settings, room: &self.answers, panel, asked, version };
        answered.hand_back(response).await
    }
}

/// Returns `true` for several values of `Content-Type`, because receivers differ in which one they use.
fn has_types(headers: &HeaderMap) -> bool {
    let values = || headers.get_all(CONTENT_TYPE).into_iter();
    values().count() > 1 || values().any(|value| value.as_bytes().contains(&b','))
}

#[cfg(feature = "opentelemetry")]
fn continue_trace(span: &tracing::Span, headers: &HeaderMap) {
    use opentelemetry_http::HeaderExtractor;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let parent = opentelemetry::global::get_text_map_propagator(|it| it.extract(&HeaderExtractor(headers)));
    // Fails without a layer of OpenTelemetry, which is not an error.
    let _ = span.set_parent(parent);
}
