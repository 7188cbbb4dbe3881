//! Judges answers.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    HeaderMap, StatusCode, Version,
    body::{Body as _, Frame},
    header::CONTENT_LENGTH,
    http::response::Parts,
};
use tower::BoxError;
use tracing::{Instrument as _, Span};

use crate::{
    Direction, Mode, Unjudged,
    auditor::{Asked, Auditor, Response, as_text, content_type, is_like_ascii},
    body::{Body, Unbuffered, copied, full},
    framing::Framing,
    json::Document,
    protocol::{self, BLOCKED, Protocol, Refusal},
    stream::Stream,
    telemetry::Open,
    verdict::{Denial, Panel},
    whole,
};

/// Maximum length of the part of an answer that shows its structure.
const BEGINNING: usize = 64;

/// An answer that is to be judged.
pub(crate) struct Answered<'a> {
    pub(crate) auditor: &'a Auditor,
    pub(crate) panel: Panel,
    pub(crate) asked: Asked,
    /// HTTP version of the request.
    pub(crate) version: Version,
}

/// Treatment of an answer.
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
        let beginning = beginning.trim_ascii_start();
        match essence {
            _ if !is_like_ascii(content_type) => Self::Unjudged,
            "text/event-stream" => Self::Stream(Framing::Events),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "application/json-seq"
            | "application/stream+json" => Self::Stream(Framing::Lines),
            _ if essence.ends_with("json") => match beginning.first() {
                Some(first) if protocol.elements == Some(*first) => Self::Stream(Framing::Elements),
                _ => Self::Whole,
            },
            _ if is_vague(content_type) => {
                let begins = |prefix: &&str| beginning.starts_with(prefix.as_bytes());
                Self::Stream(match () {
                    () if ["{", "["].iter().any(begins) => Framing::Lines,
                    () if ["data:", "event:", "id:", ":"].iter().any(begins) => Framing::Events,
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
    pub(crate) async fn judge(self, mut parts: Parts, mut body: Body) -> Response {
        let content_type = content_type(&parts.headers);
        if self.panel.mode == Mode::Observe {
            return Response::from_parts(parts, self.observed(content_type, body));
        }
        let (length, max_bytes) = (body.size_hint().exact(), self.auditor.settings.max_bytes);
        // The first piece shows the structure.
        let first = match is_vague(&content_type) || self.asked.protocol.elements.is_some() {
            true => body.frame().await.transpose(),
            false => Ok(None),
        };
        let first = match first {
            Ok(first) => first,
            Err(error) => return self.failed("cut_off", &format!("no whole answer: {error}")),
        };
        let beginning = first.as_ref().and_then(Frame::data_ref).cloned().unwrap_or_default();
        let beginning = &beginning[..beginning.len().min(BEGINNING)];
        let kind = match Kind::of(&content_type, beginning, self.asked.protocol) {
            // What has a known length is not streamed.
            Kind::Stream(Framing::Text | Framing::Elements) if length.is_some_and(|length| length <= max_bytes as u64) => {
                Kind::Whole
            }
            kind => kind,
        };
        let body = with_first(first, body);
        match kind {
            Kind::Unjudged if self.auditor.settings.unjudged == Unjudged::Pass => {
                Response::from_parts(parts, body)
            }
            Kind::Unjudged => {
                let message = format!("the answer has the type {content_type:?}, which cannot be judged");
                self.failed("unreadable", &message)
            }
            Kind::Whole => self.whole(parts, body, &content_type).await,
            Kind::Stream(framing) => {
                parts.headers.remove(CONTENT_LENGTH);
                // In HTTP/1.0, a response without a length ends with the connection: an incomplete one would look complete.
                let is_open_ended = self.version == Version::HTTP_10;
                let mut body = Streamed::new(&self, framing, body).into_body();
                match framing {
                    _ if is_open_ended => match self.auditor.answers().collect(&mut body).await {
                        // HTTP/1.0 has no trailers.
                        Ok(buffered) => Response::from_parts(parts, buffered.without_trailers().into_body()),
                        Err(error) => {
                            let message = format!("no whole answer for HTTP/1.0: {}", reason(&error));
                            self.failed("cut_off", &message)
                        }
                    },
                    Framing::Events | Framing::Lines | Framing::Elements => Response::from_parts(parts, body),
                    // Text has no way to end a refused stream, so the status waits for the first verdict.
                    Framing::Text => match body.frame().await.transpose() {
                        Ok(first) => Response::from_parts(parts, with_first(first, body)),
                        Err(error) => match error.downcast_ref() {
                            Some(denial) => self.denied(denial),
                            None => self.failed("cut_off", &format!("no whole answer: {error}")),
                        },
                    },
                }
            }
        }
    }

    async fn whole(&self, mut parts: Parts, mut body: Body, content_type: &str) -> Response {
        let buffered = match self.auditor.answers().collect(&mut body).await {
            Ok(buffered) => buffered,
            Err(error) => return self.failed("cut_off", &format!("no whole answer: {}", reason(&error))),
        };
        self.panel.telemetry.count_bytes("answer", buffered.data.len());
        let Some(text) = as_text(&buffered.data) else {
            return match self.auditor.settings.unjudged {
                Unjudged::Pass => Response::from_parts(parts, buffered.into_body()),
                Unjudged::Refuse => {
                    self.failed("unreadable", "the answer is not UTF-8 text, which cannot be judged")
                }
            };
        };
        let document = Document::scan(text);
        if self.auditor.settings.unjudged == Unjudged::Refuse
            && let Some(message) = protocol::unjudged_answer(&document)
        {
            return self.failed("unreadable", &message);
        }
        let protocol = Protocol::of_answer(&document).unwrap_or(self.asked.protocol);
        match whole::judge(&self.panel, protocol, Direction::Completion, content_type, &document).await {
            Ok(None) => Response::from_parts(parts, buffered.into_body()),
            Ok(Some(masked)) => {
                parts.headers.remove(CONTENT_LENGTH);
                Response::from_parts(parts, full(masked))
            }
            Err(denial) => self.denied(&denial),
        }
    }

    /// Judges a copy of the answer.
    fn observed(self, content_type: String, body: Body) -> Body {
        let (body, mut pieces) = copied(body);
        let max_bytes = self.auditor.settings.max_bytes;
        let (panel, protocol) = (self.panel, self.asked.protocol);
        let observed = async move {
            let _open = Open::new(&panel.telemetry);
            let Some(first) = pieces.recv().await else { return };
            let kind = Kind::of(&content_type, &first[..first.len().min(BEGINNING)], protocol);
            let mut stream = match kind {
                Kind::Stream(framing) => Some(Stream::new(panel.clone(), protocol, framing, Unjudged::Pass, max_bytes)),
                Kind::Whole | Kind::Unjudged => None,
            };
            let mut whole = Vec::new();
            let mut piece = Some(first);
            while let Some(data) = piece {
                panel.telemetry.count_bytes("answer", data.len());
                if let Some(stream) = &mut stream {
                    let (_, outcome) = stream.push(&data).await;
                    if outcome.is_err() {
                        return;
                    }
                } else if whole.len() < max_bytes {
                    whole.extend_from_slice(&data);
                }
                piece = pieces.recv().await;
            }
            if let Some(stream) = &mut stream {
                let _ = stream.finish().await;
            } else if kind == Kind::Whole
                && let Some(text) = as_text(&whole)
            {
                let document = Document::scan(text);
                let protocol = Protocol::of_answer(&document).unwrap_or(protocol);
                let judged = whole::judge(&panel, protocol, Direction::Completion, &content_type, &document);
                let _ = judged.await;
            }
        };
        tokio::spawn(observed.in_current_span());
        body
    }

    fn denied(&self, denial: &Denial) -> Response {
        let (status, kind) = match denial.is_failure {
            true => (StatusCode::BAD_GATEWAY, "judge_failed"),
            false => (StatusCode::FORBIDDEN, BLOCKED),
        };
        self.auditor.refuse(&self.asked, status, kind, &denial.message)
    }

    fn failed(&self, kind: &'static str, message: &str) -> Response {
        self.auditor.refuse(&self.asked, StatusCode::BAD_GATEWAY, kind, message)
    }
}

fn reason(error: &Unbuffered) -> String {
    match error {
        Unbuffered::TooLarge => "it is too long".to_owned(),
        Unbuffered::Busy => "no memory for one more body".to_owned(),
        Unbuffered::Failed(error) => error.to_string(),
    }
}

/// Returns a body whose first frame was read.
fn with_first(first: Option<Frame<Bytes>>, body: Body) -> Body {
    let first = stream::iter(first.map(Ok));
    let rest = http_body_util::BodyStream::new(body);
    StreamBody::new(futures::StreamExt::chain(first, rest)).boxed_unsync()
}

/// An answer that is judged while it is sent.
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
        let panel = answered.panel.clone();
        Self {
            _open: Open::new(&panel.telemetry),
            stream: Stream::new(
                panel,
                answered.asked.protocol,
                framing,
                answered.auditor.settings.unjudged,
                answered.auditor.settings.max_bytes,
            ),
            body: Some(body),
            trailers: None,
            cut: None,
            asked: answered.asked.clone(),
            auditor_id: answered.auditor.settings.id.clone(),
            span: Span::current(),
        }
    }

    fn into_body(self) -> Body {
        let frames = stream::try_unfold(self, |mut this| {
            let span = this.span.clone();
            async move { Ok::<_, BoxError>(this.next().await?.map(|frame| (frame, this))) }.instrument(span)
        });
        StreamBody::new(frames.into_stream()).boxed_unsync()
    }

    /// Returns the next frame to send.
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
                if denial.is_failure {
                    tracing::warn!(kind = denial.kind(), "{}", denial.message);
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
            kind: denial.kind(),
            rule: &denial.rule,
            status: StatusCode::FORBIDDEN,
            message: &denial.message,
            id: self.asked.id.as_ref(),
            choices: &BTreeSet::new(),
        })
    }
}
