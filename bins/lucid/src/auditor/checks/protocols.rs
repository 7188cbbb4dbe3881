//! Streaming protocols.

use serde_json::{Deserializer, Value};

use crate::auditor::bench::{JSON, Outcome, chunks, ensure, post, stream_head};
use crate::auditor::message::{End, Message};

/// Number of characters of each piece of a text.
const PIECE: usize = 5;

/// A streaming protocol. `$PIECE` stands for a piece of text.
pub(super) struct Protocol {
    pub(super) path: &'static str,
    request: &'static str,
    pub(super) content_type: &'static str,
    pub(super) open: &'static [&'static str],
    event: &'static str,
    /// JSON pointer to the text in an event.
    pub(super) text: &'static str,
    /// Events of the end of an answer that is not refused.
    pub(super) end: &'static [&'static str],
    is_end: fn(&Value) -> bool,
    /// Returns `true` if these events after [`open`](Self::open) and some of the text end an answer well.
    closes: fn(&[Value]) -> bool,
}

const MESSAGE: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}"#;
const SSE: &str = "text/event-stream";

pub(super) const CHAT: Protocol = Protocol {
    path: "/v1/chat/completions",
    request: MESSAGE,
    content_type: SSE,
    open: &[
        r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
    ],
    event: r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"$PIECE"},"finish_reason":null}]}"#,
    text: "/choices/0/delta/content",
    end: &[
        r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ],
    is_end: |event| event == "[DONE]",
    closes: |events| {
        let chunks = || events.iter().filter(|event| event.is_object() && event["error"].is_null());
        let is_same = chunks().all(|it| it["id"] == "c1" && it["model"] == "m" && it["created"] == 1);
        is_same && chunks().next_back().is_some_and(|it| it["choices"][0]["finish_reason"].is_string())
    },
};

pub(super) const TOOL_CALL: Protocol = Protocol {
    event: r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"$PIECE"}}]},"finish_reason":null}]}"#,
    text: "/choices/0/delta/tool_calls/0/function/arguments",
    ..CHAT
};

pub(super) const RESPONSES: Protocol = Protocol {
    path: "/v1/responses",
    request: r#"{"model":"m","stream":true,"input":"Hello"}"#,
    content_type: SSE,
    open: &[
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","created_at":1,"status":"in_progress","model":"m","output":[],"instructions":"Be brief.","truncation":"disabled","parallel_tool_calls":true,"tools":[],"tool_choice":"auto"}}"#,
        r#"{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"i","type":"message","role":"assistant","status":"in_progress","content":[]}}"#,
        r#"{"type":"response.content_part.added","sequence_number":2,"item_id":"i","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#,
    ],
    event: r#"{"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"$PIECE"}"#,
    text: "/delta",
    end: &[
        r#"{"type":"response.output_text.done","item_id":"i","output_index":0,"content_index":0,"text":"It is fine."}"#,
        r#"{"type":"response.completed","response":{"id":"r1","status":"completed"}}"#,
    ],
    is_end: |event| {
        let kind = event["type"].as_str().unwrap_or_default();
        ["response.completed", "response.incomplete", "response.failed", "error"].contains(&kind)
    },
    closes: |events| {
        let find = |kind: &str| events.iter().find(|event| event["type"] == kind);
        let (Some(begin), Some(end)) =
            (find("response.created"), events.iter().find(|it| (RESPONSES.is_end)(it)))
        else {
            return false;
        };
        let numbers: Vec<_> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
        let goes_on = numbers.is_sorted_by(|number, next| number < next);
        let parts = [("output_item", "added"), ("content_part", "added"), ("output_text", "delta")];
        let is_closed = parts.iter().all(|(part, begin)| {
            find(&format!("response.{part}.{begin}")).is_none()
                || find(&format!("response.{part}.done")).is_some()
        });
        let required = ["created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools"];
        let has_all = required.iter().all(|member| !end["response"][member].is_null());
        let is_same = end["response"]["id"] == begin["response"]["id"];
        goes_on
            && Some(begin) == events.first()
            && (end["type"] == "error" || is_closed && has_all && is_same)
    },
};

pub(super) const MESSAGES: Protocol = Protocol {
    path: "/v1/messages",
    request: MESSAGE,
    content_type: SSE,
    open: &[
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":3,"output_tokens":1,"inference_geo":"not_available"}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    ],
    event: r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"$PIECE"}}"#,
    text: "/delta/text",
    end: &[
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ],
    is_end: |event| event["type"] == "message_stop" || event["type"] == "error",
    closes: |events| {
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let is_closed = count("content_block_start") == count("content_block_stop");
        let has_reason = events.iter().any(|event| event["delta"]["stop_reason"].is_string());
        count("error") > 0 || is_closed && has_reason && count("message_start") == 1
    },
};

pub(super) const OLLAMA: Protocol = Protocol {
    path: "/api/chat",
    request: MESSAGE,
    content_type: "application/x-ndjson",
    open: &[],
    event: r#"{"model":"m","message":{"role":"assistant","content":"$PIECE"},"done":false}"#,
    text: "/message/content",
    end: &[r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}"#],
    is_end: |event| event["done"] == true || event["error"].is_string(),
    closes: |events| events.last().is_some_and(|it| it["error"].is_string() || it["model"] == "m"),
};

pub(super) const GEMINI: Protocol = Protocol {
    path: "/v1beta/models/m:streamGenerateContent",
    request: r#"{"contents":[{"role":"user","parts":[{"text":"Hello"}]}]}"#,
    content_type: "application/json",
    open: &[],
    event: r#"{"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"$PIECE"}]}}]}"#,
    text: "/candidates/0/content/parts/0/text",
    end: &["]"],
    is_end: |_| true,
    closes: |_| true,
};

impl Protocol {
    pub(super) fn request(&self) -> Vec<u8> {
        post(self.path, JSON, self.request)
    }

    /// Returns an event as sent, or a comment.
    pub(super) fn frame(&self, event: &str) -> String {
        let kind = serde_json::from_str::<Value>(event).ok();
        match (self.content_type, kind.as_ref().and_then(|event| event["type"].as_str())) {
            (SSE, _) if event.starts_with(':') => format!("{event}\n\n"),
            (SSE, Some(kind)) => format!("event: {kind}\ndata: {event}\n\n"),
            (SSE, None) => format!("data: {event}\n\n"),
            ("application/json", _) if event != "]" => format!(",\n{event}"),
            _ => format!("{event}\n"),
        }
    }

    /// Returns the first frame of a stream.
    pub(super) fn first(&self, frame: String) -> String {
        if self.content_type == "application/json" { frame.replacen(',', "[", 1) } else { frame }
    }

    pub(super) fn piece(&self, text: &str) -> String {
        self.frame(&self.event.replace("$PIECE", text))
    }

    pub(super) fn said(&self, frames: impl IntoIterator<Item = String>) -> Vec<u8> {
        let frames = frames.into_iter().chain(self.end.iter().map(|event| self.frame(event)));
        let frames = frames.enumerate().map(|(number, it)| if number == 0 { self.first(it) } else { it });
        [stream_head(self.content_type), chunks(frames)].concat()
    }

    /// Returns the events of an answer; those that are not JSON as strings.
    pub(super) fn events(&self, answer: &Message) -> Vec<Value> {
        let text = answer.text();
        if self.content_type == SSE {
            let lines = text.lines().filter_map(|line| line.strip_prefix("data:").map(str::trim));
            return lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| line.into())).collect();
        }
        let (mut events, mut rest) = (Vec::new(), &*text);
        loop {
            rest = rest.trim_start_matches(|it: char| it.is_whitespace() || "[,]".contains(it));
            let mut values = Deserializer::from_str(rest).into_iter();
            match values.next() {
                Some(Ok(value)) => events.push(value),
                Some(Err(_)) => return [events, vec![rest.into()]].concat(),
                None => return events,
            }
            rest = &rest[values.byte_offset()..];
        }
    }

    pub(super) fn joined(&self, answer: &Message) -> String {
        let events = self.events(answer);
        events.iter().filter_map(|event| event.pointer(self.text)?.as_str()).collect()
    }

    /// Fails unless the answer ends well, or is cut off.
    pub(super) fn ensure_end(&self, answer: &Message, is_strict: bool) -> Outcome {
        if answer.end == End::Cut || answer.status() >= 400 {
            return Ok(());
        }
        ensure(answer.end == End::Whole, "the end of the answer")?;
        let events = self.events(answer);
        let malformed = events.iter().find(|event| event.is_string() && *event != "[DONE]");
        ensure(malformed.is_none(), format!("events of JSON, found {}", malformed.unwrap_or(&Value::Null)))?;
        let has_end = events.iter().any(|event| (self.is_end)(event));
        ensure(has_end, format!("the end of a stream of {}", self.path))?;
        let expected =
            format!("an end of {} with the stream's identifiers, that closes what is open", self.path);
        ensure(!is_strict || (self.closes)(&events), expected)
    }
}

pub(super) fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}
