//! Anthropic messages.
//!
//! Source: <https://docs.anthropic.com/en/api/messages> and `messages-streaming`.

use serde_json::{Value, json};

use super::{Event, Format, call, completion, prompt, result};

pub(crate) static MESSAGES: Format = Format {
    request: &[
        prompt("system", 1),
        prompt("system/*/text", 1),
        prompt("prompt", 1),
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
        completion("completion", 1),
        call("content/*/input/**", 2),
        // Of the event `content_block_start`.
        call("content_block/input/**", 1),
    ],
    events: &[
        completion("delta/text", 1),
        completion("delta/thinking", 1),
        call("delta/partial_json", 1),
        completion("completion", 1),
    ],
    refusal: |refused| {
        let error =
            json!({"type": "permission_error", "message": refused.message, "auditor": refused.auditor});
        (refused.status, json!({"type": "error", "error": error}))
    },
    end: |refused| {
        let event = |name, value: &Value| Event { name: Some(name), data: value.to_string().into() };
        let mut events = Vec::new();
        // A block that is open must be closed.
        if let Some(index) = refused.member("index")
            && refused.member("type").is_some_and(|kind| kind != "content_block_stop")
        {
            let stop = json!({"type": "content_block_stop", "index": index});
            events.push(event("content_block_stop", &stop));
        }
        let delta = json!({"stop_reason": "refusal", "stop_sequence": null});
        let usage = json!({"output_tokens": 0});
        let delta = json!({"type": "message_delta", "delta": delta, "usage": usage});
        events.push(event("message_delta", &delta));
        events.push(event("message_stop", &json!({"type": "message_stop"})));
        events
    },
};
