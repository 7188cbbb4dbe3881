//! Judges answers.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    HeaderMap, StatusCode, Version,
    body::{Body as _, Frame, Incoming},
    header::{CONTENT_LENGTH, RETRY_AFTER},
    http::response::Parts,
};
use tokio::task::yield_now;
use tower::BoxError;
use tracing::{Instrument as _, Span};

use crate::{
    AuditMode, Direction, Settings, Unjudged,
    body::{
        Body, Buffered, Response, Room, Unbuffered, as_text, beginning, content_type, copied, full,
        is_like_ascii,
    },
    coding::{Coding, DecodeError, codings, decoded, remove_headers},
    forward,
    framing::Framing,
    json::Document,
    protocol::{self, BLOCKED, Protocol, Refusal, UNREADABLE},
    refusal::Asked,
    stream::Stream,
    telemetry::Open,
    verdict::{Denial, Panel},
    whole::{self, Origin},
};

/// Maximum length of the part of an answer that shows its structure.
const BEGINNING: usize = 64;

pub(crate) struct Answered<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) room: &'a Room,
    pub(crate) panel: Panel,
    pub(crate) asked: Asked,
    pub(crate) version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Whole,
    Stream(Framing),
    /// Images, sound and other content that is not text.
    Unjudged,
}

impl Kind {
    fn of(content_type: &str, beginning: &[u8], protocol: &Protocol) -> Self {
        let essence = essence(content_type);
        let beginning = beginning[..beginning.len().min(BEGINNING)].trim_ascii_start();
        match essence {
            _ if !is_like_ascii(content_type) => Self::Unjudged,
            "text/event-stream" => Self::Stream(Framing::Events),
            "application/json-seq" | "application/stream+json" => Self::Stream(Framing::Lines),
            _ if ["ndjson", "jsonl", "json-lines"].iter().any(|name| essence.contains(name)) => {
                Self::Stream(Framing::Lines)
            }
            _ if essence.ends_with("json") => match beginning.first() {
                Some(first) if protocol.elements == Some(*first) => Self::Stream(Framing::Elements),
                _ => Self::Whole,
            },
            _ if is_vague(content_type) => {
                let begins = |prefix: &&str| beginning.starts_with(prefix.as_bytes());
                Self::Stream(match () {
                    () if ["{", "["].iter().any(begins) => Framing::Lines,
                    () if ["data:", "event:", "id:", "retry:", ":"].iter().any(begins) => Framing::Events,
                    () => Framing::Text,
                })
            }
            _ if essence.ends_with("xml") || essence.ends_with("javascript") || essence.ends_with("yaml") => {
                Self::Stream(Framing::Text)
            }
            _ => Self::Unjudged,
        }
    }
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Returns `true` for a type that does not show the structure of the text.
fn is_vague(content_type: &str) -> bool {
    let essence = essence(content_type);
    essence.is_empty() || essence.starts_with("text/") && essence != "text/event-stream"
}

impl Answered<'_> {
    /// Judges the model's response. Refusals are errors.
    pub(crate) async fn hand_back(self, response: hyper::Response<Incoming>) -> Result<Response, Response> {
        let (mut parts, body) = response.into_parts();
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            let message = "the answer changes to another protocol, which was not requested";
            return Err(self.refuse(StatusCode::BAD_GATEWAY, UNREADABLE, message));
        }
        // Without a body, as after HEAD, the headers describe the one that GET would return.
        let has_body = !body.is_end_stream();
        if let Some(coding) = forward::transfer_coding(&parts.headers).filter(|_| has_body) {
            let message = format!("the answer is transferred as {coding} and cannot be read");
            return Err(self.refuse(StatusCode::BAD_GATEWAY, UNREADABLE, &message));
        }
        let is_http2 = parts.version == Version::HTTP_2;
        lucid_proxy::remove_hop_by_hop(&mut parts.headers);
        // The model's HTTP version does not affect the caller's connection.
        parts.version = if is_http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let body = body.map_err(Into::into).boxed_unsync();
        if self.panel.judges.is_empty() || !has_body {
            return Ok(Response::from_parts(parts, body));
        }
        // The request to the model excludes encoded answers.
        let codings = match codings(&parts.headers) {
            Ok(codings) => codings,
            Err(found) => {
                let message = format!("the answer is {found} and cannot be judged");
                if self.settings.refuses_unjudged() {
                    return Err(self.unjudged(&parts, &message));
                }
                return Ok(Response::from_parts(parts, body));
            }
        };
        match self.panel.mode {
            AuditMode::Observe => {
                let body = self.observe(body, content_type(&parts.headers), codings);
                Ok(Response::from_parts(parts, body))
            }
            AuditMode::Enforce => {
                if !codings.is_empty() {
                    remove_headers(&mut parts.headers);
                }
                self.judge(parts, decoded(body, codings)).await
            }
        }
    }

    async fn judge(self, parts: Parts, mut body: Body) -> Result<Response, Response> {
        let content_type = content_type(&parts.headers);
        let length = body.size_hint().exact();
        // The first piece shows the structure.
        let first = match is_vague(&content_type) || self.asked.protocol.elements.is_some() {
            true => body.frame().await.transpose().map_err(|error| self.failed(&parts, &error))?,
            false => None,
        };
        let beginning = first.as_ref().and_then(Frame::data_ref).cloned().unwrap_or_default();
        let kind = Kind::of(&content_type, &beginning, self.asked.protocol);
        let body = with_first(first, body);
        match kind {
            Kind::Unjudged if self.settings.refuses_unjudged() => {
                let message = format!("the answer has the type {content_type:?}, which cannot be judged");
                Err(self.unjudged(&parts, &message))
            }
            Kind::Unjudged => Ok(Response::from_parts(parts, body)),
            // Answers of a known length are not streamed.
            Kind::Stream(Framing::Text | Framing::Elements)
                if length.is_some_and(|length| length <= self.settings.max_bytes as u64) =>
            {
                self.whole(parts, body, &content_type).await
            }
            Kind::Whole => self.whole(parts, body, &content_type).await,
            Kind::Stream(framing) => self.stream(parts, body, framing).await,
        }
    }

    async fn stream(&self, mut parts: Parts, body: Body, framing: Framing) -> Result<Response, Response> {
        parts.headers.remove(CONTENT_LENGTH);
        let mut body = Streamed::new(self, framing, body).into_body();
        // In HTTP/1.0, a response without a length ends with the connection: an incomplete one would look complete.
        if self.version == Version::HTTP_10 {
            // HTTP/1.0 has no trailers.
            let buffered = self.collect(&parts, &mut body).await?.without_trailers();
            return Ok(Response::from_parts(parts, buffered.into_body()));
        }
        if framing == Framing::Text {
            // Text has no way to end a refused stream, so the status waits for the first verdict.
            let first = body.frame().await.transpose().map_err(|error| self.failed(&parts, &error))?;
            body = with_first(first, body);
        }
        Ok(Response::from_parts(parts, body))
    }

    async fn whole(
        &self,
        mut parts: Parts,
        mut body: Body,
        content_type: &str,
    ) -> Result<Response, Response> {
        let buffered = self.collect(&parts, &mut body).await?;
        self.panel.telemetry.count_bytes("answer", buffered.data.len());
        let Some(text) = as_text(&buffered.data) else {
            if self.settings.refuses_unjudged() {
                return Err(self.unjudged(&parts, "the answer is not UTF-8 text, which cannot be judged"));
            }
            return Ok(Response::from_parts(parts, buffered.into_body()));
        };
        let document = Document::scan(text);
        if self.settings.unjudged == Unjudged::Refuse
            && let Some(message) = protocol::unjudged_answer(&document)
        {
            return Err(self.unjudged(&parts, &message));
        }
        match self.judging(self.settings.unjudged).whole(content_type, &document).await {
            Ok(None) => Ok(Response::from_parts(parts, buffered.into_body())),
            Ok(Some(masked)) => {
                parts.headers.remove(CONTENT_LENGTH);
                Ok(Response::from_parts(parts, full(masked)))
            }
            Err(denial) => Err(self.denied(&denial)),
        }
    }

    fn observe(self, body: Body, content_type: String, codings: Vec<Coding>) -> Body {
        let (body, copy) = copied(body);
        let judging = self.judging(Unjudged::Pass);
        let observed = async move {
            let telemetry = &judging.panel.telemetry;
            let _open = Open::new(telemetry);
            let mut copy = decoded(copy, codings);
            let Some(Ok(first)) = copy.frame().await else { return };
            let shown = first.data_ref().cloned().unwrap_or_default();
            let mut copy = with_first(Some(first), copy);
            match Kind::of(&content_type, &shown, judging.protocol) {
                Kind::Stream(framing) => {
                    let mut stream = judging.stream(framing);
                    while let Some(Ok(Ok(data))) = copy.frame().await.map(|frame| frame.map(Frame::into_data))
                    {
                        telemetry.count_bytes("answer", data.len());
                        if stream.push(&data).await.1.is_err() {
                            return;
                        }
                    }
                    let _ = stream.finish().await;
                }
                Kind::Whole => {
                    let data = beginning(copy, judging.max_bytes).await;
                    telemetry.count_bytes("answer", data.len());
                    let Some(text) = as_text(&data) else { return };
                    let _ = judging.whole(&content_type, &Document::scan(text)).await;
                }
                Kind::Unjudged => {}
            }
        };
        tokio::spawn(observed.in_current_span());
        body
    }

    fn judging(&self, unjudged: Unjudged) -> Judging {
        let (panel, max_bytes) = (self.panel.clone(), self.settings.max_bytes);
        Judging { panel, protocol: self.asked.protocol, unjudged, max_bytes }
    }

    async fn collect(&self, parts: &Parts, body: &mut Body) -> Result<Buffered, Response> {
        self.room.collect(body).await.map_err(|error| match error {
            Unbuffered::TooLarge => {
                let max_bytes = self.settings.max_bytes;
                self.unjudged(
                    parts,
                    &format!("the answer is longer than {max_bytes} bytes and cannot be judged"),
                )
            }
            Unbuffered::Busy => {
                self.refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", "no memory for one more body")
            }
            Unbuffered::Failed(error) => self.failed(parts, &error),
        })
    }

    fn failed(&self, parts: &Parts, error: &BoxError) -> Response {
        match error.downcast_ref::<Denial>() {
            Some(denial) if denial.kind == UNREADABLE => self.unjudged(parts, &denial.message),
            Some(denial) => self.denied(denial),
            None if error.is::<DecodeError>() => self.unjudged(parts, &error.to_string()),
            None => self.refuse(StatusCode::BAD_GATEWAY, "cut_off", &format!("incomplete answer: {error}")),
        }
    }

    fn denied(&self, denial: &Denial) -> Response {
        self.asked.deny(&self.settings.id, denial, Direction::Completion)
    }

    /// Refuses an answer that cannot be judged. Clients retry most statuses from 500 on, which would have the model answer
    /// again. An error of the model stays one.
    fn unjudged(&self, parts: &Parts, message: &str) -> Response {
        let is_error = parts.status.is_client_error() || parts.status.is_server_error();
        let status = if is_error { parts.status } else { StatusCode::UNPROCESSABLE_ENTITY };
        let mut response = self.refuse(status, UNREADABLE, message);
        if let Some(after) = parts.headers.get(RETRY_AFTER).filter(|_| is_error) {
            response.headers_mut().insert(RETRY_AFTER, after.clone());
        }
        response
    }

    fn refuse(&self, status: StatusCode, kind: &'static str, message: &str) -> Response {
        self.asked.refuse(&self.settings.id, status, kind, message)
    }
}

struct Judging {
    panel: Panel,
    protocol: &'static Protocol,
    unjudged: Unjudged,
    max_bytes: usize,
}

impl Judging {
    fn stream(&self, framing: Framing) -> Stream {
        Stream::new(self.panel.clone(), self.protocol, framing, self.unjudged, self.max_bytes)
    }

    /// Judges a complete answer. Returns the body to send instead, if it is masked.
    async fn whole(&self, content_type: &str, document: &Document<'_>) -> Result<Option<String>, Denial> {
        let text = document.text;
        let first_line = text.split_inclusive('\n').next().filter(|line| line.len() < text.trim_end().len());
        if document.is_json || !first_line.is_some_and(|line| Document::scan(line).is_json) {
            let protocol = Protocol::of_answer(document).unwrap_or(self.protocol);
            return whole::judge(&self.panel, Origin::Answer(protocol), content_type, document).await;
        }
        // The lines of a stream.
        let mut stream = self.stream(Framing::Lines);
        let (sent, outcome) = stream.push(text.as_bytes()).await;
        outcome?;
        let (rest, outcome) = stream.finish().await;
        outcome?;
        let sent = String::from_utf8_lossy(&[sent, rest].concat()).into_owned();
        Ok((sent != text).then_some(sent))
    }
}

/// Returns a body whose first frame was read.
fn with_first(first: Option<Frame<Bytes>>, body: Body) -> Body {
    let first = stream::iter(first.map(Ok));
    let rest = http_body_util::BodyStream::new(body);
    StreamBody::new(futures::StreamExt::chain(first, rest)).boxed_unsync()
}

struct Streamed {
    stream: Stream,
    /// `None` once the answer has ended.
    body: Option<Body>,
    trailers: Option<HeaderMap>,
    /// Reason to cut the connection after what is sent already.
    cut: Option<Denial>,
    asked: Asked,
    auditor_id: String,
    span: Span,
    _open: Open,
}

impl Streamed {
    fn new(answered: &Answered<'_>, framing: Framing, body: Body) -> Self {
        let Answered { settings, panel, asked, .. } = answered;
        Self {
            _open: Open::new(&panel.telemetry),
            stream: answered.judging(settings.unjudged).stream(framing),
            body: Some(body),
            trailers: None,
            cut: None,
            asked: asked.clone(),
            auditor_id: settings.id.clone(),
            span: Span::current(),
        }
    }

    fn into_body(self) -> Body {
        let frames = stream::try_unfold(self, |mut this| {
            let span = this.span.clone();
            async move {
                let next = this.next().await;
                if next.is_err() {
                    // hyper sends the pieces before it when the body is pending, and drops them after an error.
                    yield_now().await;
                }
                Ok::<_, BoxError>(next?.map(|frame| (frame, this)))
            }
            .instrument(span)
        });
        StreamBody::new(frames.into_stream()).boxed_unsync()
    }

    async fn next(&mut self) -> Result<Option<Frame<Bytes>>, BoxError> {
        while let Some(body) = &mut self.body {
            let (mut released, outcome) = match body.frame().await {
                Some(frame) => match frame?.into_data() {
                    Ok(data) => {
                        self.stream.count_bytes(data.len());
                        self.stream.push(&data).await
                    }
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
                None => {
                    self.body = None;
                    self.stream.finish().await
                }
            };
            if let Err(denial) = outcome {
                if denial.kind != BLOCKED {
                    tracing::warn!(kind = denial.kind, "{}", denial.message);
                }
                // The rest of the answer is not received.
                (self.body, self.trailers) = (None, None);
                let end = self.end(&denial);
                if end.is_empty() && released.is_empty() {
                    return Err(denial.into());
                }
                if end.is_empty() {
                    // The text before the refusal is sent first.
                    self.cut = Some(denial);
                } else {
                    released = [&released[..], end.as_bytes()].concat().into();
                }
            }
            if !released.is_empty() {
                return Ok(Some(Frame::data(released)));
            }
        }
        match self.cut.take() {
            Some(denial) => Err(denial.into()),
            None => Ok(self.trailers.take().map(Frame::trailers)),
        }
    }

    /// Returns the end of the protocol for an answer that is refused. Without one, the connection is cut: the status is
    /// already sent, and only an incomplete message shows the caller that something is wrong.
    fn end(&self, denial: &Denial) -> String {
        self.stream.end(&Refusal {
            auditor: &self.auditor_id,
            kind: denial.kind,
            rule: &denial.rule,
            status: denial.status(Direction::Completion),
            message: &denial.message,
            id: self.asked.id.as_ref(),
            choices: &BTreeSet::new(),
        })
    }
}
