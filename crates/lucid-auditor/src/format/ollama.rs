//! Ollama: generate, chat, embed.
//!
//! Source: <https://github.com/ollama/ollama/blob/main/docs/api.md>. Streams are lines of JSON.

use serde_json::{Value, json};

use super::{Event, Format, Refusal, call, completion, prompt};

pub(crate) static CHAT: Format = Format {
    end: |refused| end(refused, "message", json!({"role": "assistant", "content": ""})),
    ..GENERATE_FORMAT
};

pub(crate) static GENERATE: Format = GENERATE_FORMAT;

const GENERATE_FORMAT: Format = Format {
    request: &[
        prompt("prompt", 1),
        prompt("system", 1),
        prompt("suffix", 1),
        prompt("input", 1),
        prompt("input/*", 2),
        prompt("messages/*/content", 2),
        call("messages/*/tool_calls/*/function/arguments/**", 4),
    ],
    answer: &[
        completion("response", 1),
        completion("thinking", 1),
        completion("message/content", 2),
        completion("message/thinking", 2),
        call("message/tool_calls/*/function/arguments/**", 3),
    ],
    events: &[
        completion("response", 1),
        completion("thinking", 1),
        completion("message/content", 2),
        completion("message/thinking", 2),
    ],
    refusal: |refused| (refused.status, json!({"error": refused.message, "auditor": refused.auditor})),
    end: |refused| end(refused, "response", Value::from("")),
};

/// Returns the last line. Clients expect the member of their method.
fn end(refused: &Refusal<'_>, name: &str, empty: Value) -> Vec<Event> {
    vec![Event::json(&json!({
        "model": refused.member("model").unwrap_or_else(|| "".into()),
        "created_at": refused.member("created_at").unwrap_or_else(|| "".into()),
        name: empty,
        "done": true,
        "done_reason": "content_filter",
    }))]
}
