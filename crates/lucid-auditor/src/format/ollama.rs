//! Ollama: generate, chat, embed.
//!
//! Source: <https://github.com/ollama/ollama/blob/main/docs/api.md>. Streams are lines of JSON.

use serde_json::{Value, json};

use super::{Event, Format, call, completion, prompt};

pub(crate) static CHAT: Format = Format {
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
    end: |refused| {
        let mut last = json!({
            "model": refused.member("model").unwrap_or_else(|| "".into()),
            "done": true,
            "done_reason": "content_filter",
        });
        // Clients expect the member of their method.
        let is_chat = refused.document.is_some_and(|document| document.text.contains("\"message\""));
        let (name, empty) = match is_chat {
            true => ("message", json!({"role": "assistant", "content": ""})),
            false => ("response", Value::from("")),
        };
        last[name] = empty;
        vec![Event::json(&last)]
    },
};
