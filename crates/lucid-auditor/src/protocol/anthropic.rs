//! Anthropic messages.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>, `messages-streaming` and `errors`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{
    Effect, Event, Protocol, Refusal, Sent,
    media::Media,
    rule::{TOOLS, call, completion, prompt, result},
};
use crate::json::Document;

pub(super) static MESSAGES: Protocol = Protocol {
    paths: &["/v1/messages", "/v1/messages/count_tokens", "/v1/complete"],
    is_answer: |document| {
        let kind = document.member_value(0, "type");
        kind.is_some_and(|kind| {
            ["message", "content_block", "ping"].iter().any(|begin| kind.starts_with(begin))
                || kind == "error"
        })
    },
    request: &[
        prompt("system", 1).role("system"),
        prompt("system/*/text", 1).role("system"),
        TOOLS,
        prompt("prompt", 1).role("user"),
        prompt("messages/*/content", 2),
        prompt("messages/*/content/*/text", 2),
        prompt("messages/*/content/*/thinking", 4),
        call("messages/*/content/*/input/**", 4),
        result("messages/*/content/*/content", 4),
        result("messages/*/content/*/content/*/text", 4),
    ],
    answer: &[
        completion("content/*/text", 1),
        completion("content/*/thinking", 2),
        call("content/*/input/**", 2),
        // Members of the event `content_block_start`.
        completion("content_block/text", 1),
        completion("content_block/thinking", 1),
        call("content_block/input/**", 1),
    ],
    events: &[
        completion("delta/text", 1),
        completion("delta/thinking", 1),
        call("delta/partial_json", 1),
        completion("completion", 1),
        completion("delta/signature", 1).whole(),
        completion("delta/citation/**", 1).whole(),
        completion("delta/**", 1),
    ],
    messages: "messages",
    indices: &["index"],
    effect: |document| match document.member_value(0, "type").as_deref() {
        Some("ping") => Effect::Ping,
        Some(
            "message_start"
            | "content_block_start"
            | "content_block_stop"
            | "message_delta"
            | "message_stop"
            | "error",
        ) => Effect::EndsAll,
        _ => Effect::None,
    },
    names: "
        anthropic_version cache_control cache_creation cache_creation_input_tokens cache_read_input_tokens
        citation citations inference_geo input_schema input_tokens message output_tokens server_tool_use
        signature stop_sequence stop_sequences top_k",
    identifiers: "stop_reason tool_use_id",
    opaque: &[
        ("signature", ""),
        ("data", "redacted_thinking"),
        ("encrypted_content", ""),
        ("encrypted_index", ""),
        ("encrypted_stdout", ""),
    ],
    media: Media {
        parts: &["content", "content/*"],
        kinds: &["container_upload", "image"],
        members: &[
            "content/*/source/type=base64",
            "content/*/source/type=file",
            "content/*/source/type=url",
            "content/source/type=base64",
            "content/source/type=file",
            "content/source/type=url",
        ],
        free: &["content/*/input", "content_block/input"],
        ..Media::NONE
    },
    refusal,
    sent: || Box::new(Message::default()),
    ..Protocol::UNKNOWN
};

fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let kind = match refused.status {
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    };
    let error = json!({"type": kind, "message": refused.message, "auditor": refused.auditor});
    (refused.status, json!({"type": "error", "error": error}))
}

#[derive(Debug, Default)]
struct Message {
    has_started: bool,
    /// Index of the block that is open.
    open: Option<Value>,
    output_tokens: Option<Value>,
}

impl Message {
    fn note_usage(&mut self, event: &Document<'_>, container: usize) {
        let usage = event.member(container, "usage");
        let tokens = usage.and_then(|usage| event.member_json(usage, "output_tokens"));
        self.output_tokens = tokens.or(self.output_tokens.take());
    }
}

impl Sent for Message {
    fn note(&mut self, event: &Document<'_>) {
        match event.member_value(0, "type").as_deref() {
            Some("message_start") => {
                self.has_started = true;
                if let Some(message) = event.member(0, "message") {
                    self.note_usage(event, message);
                }
            }
            Some("content_block_start" | "content_block_delta") => self.open = event.member_json(0, "index"),
            Some("content_block_stop") => self.open = None,
            Some("message_delta") => self.note_usage(event, 0),
            _ => {}
        }
        self.has_started |= self.open.is_some();
    }

    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        if !refused.is_verdict() {
            return vec![Event::named(&refusal(refused).1)];
        }
        let tokens = self.output_tokens.clone().unwrap_or_else(|| 0.into());
        let mut events = Vec::new();
        if !self.has_started {
            let message = json!({
                "id": "msg_refused",
                "type": "message",
                "role": "assistant",
                "model": "",
                "content": [],
                "stop_reason": null,
                "stop_sequence": null,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            });
            events.push(Event::named(&json!({"type": "message_start", "message": message})));
        }
        if let Some(index) = &self.open {
            let stop = json!({"type": "content_block_stop", "index": index});
            events.push(Event::named(&stop));
        }
        let details = json!({"type": "refusal", "category": null, "explanation": refused.message});
        let delta = json!({"stop_reason": "refusal", "stop_sequence": null, "stop_details": details});
        let usage = json!({"output_tokens": tokens});
        let lucid = json!({"auditor": refused.auditor, "rule": refused.rule});
        let delta = json!({"type": "message_delta", "delta": delta, "usage": usage, "lucid": lucid});
        events.push(Event::named(&delta));
        events.push(Event::named(&json!({"type": "message_stop"})));
        events
    }
}
