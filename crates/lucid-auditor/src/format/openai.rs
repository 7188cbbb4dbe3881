//! OpenAI: chat completions, completions, responses, embeddings.
//!
//! Source: <https://platform.openai.com/docs/api-reference>. `reasoning` and `reasoning_content` are additions of vLLM,
//! SGLang and others.

use std::borrow::Cow;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::auditor::BLOCKED;

use super::{Event, Format, Refusal, call, completion, prompt, result};

pub(crate) static CHAT: Format = Format {
    request: &[
        prompt("messages/*/content", 2),
        prompt("messages/*/content/*/text", 2),
        prompt("messages/*/reasoning_content", 3),
        call("messages/*/tool_calls/*/function/arguments", 4),
        call("messages/*/tool_calls/*/custom/input", 4),
        call("messages/*/function_call/arguments", 3),
    ],
    answer: &[
        completion("choices/*/message/content", 3),
        completion("choices/*/message/content/*/text", 3),
        completion("choices/*/message/reasoning", 4),
        completion("choices/*/message/reasoning_content", 4),
        completion("choices/*/message/refusal", 4),
        call("choices/*/message/tool_calls/*/function/name", 5),
        call("choices/*/message/tool_calls/*/function/arguments", 5),
        call("choices/*/message/tool_calls/*/custom/input", 5),
        call("choices/*/message/function_call/arguments", 4),
    ],
    events: &[
        completion("choices/*/delta/content", 3),
        completion("choices/*/delta/reasoning", 3),
        completion("choices/*/delta/reasoning_content", 3),
        completion("choices/*/delta/refusal", 3),
        call("choices/*/delta/tool_calls/*/function/name", 6),
        call("choices/*/delta/tool_calls/*/function/arguments", 6),
        call("choices/*/delta/tool_calls/*/custom/input", 6),
        call("choices/*/delta/function_call/arguments", 4),
    ],
    refusal,
    end: |refused| end(refused, "chat.completion.chunk"),
};

pub(crate) static COMPLETIONS: Format = Format {
    request: &[prompt("prompt", 1), prompt("prompt/*", 2), prompt("suffix", 1)],
    answer: &[completion("choices/*/text", 2)],
    events: &[completion("choices/*/text", 2)],
    refusal,
    end: |refused| end(refused, "text_completion"),
};

pub(crate) static RESPONSES: Format = Format {
    request: &[
        prompt("instructions", 1),
        prompt("input", 1),
        prompt("input/*/content", 2),
        prompt("input/*/content/*/text", 2),
        call("input/*/arguments", 2),
        call("input/*/input", 2),
        result("input/*/output", 2),
        result("input/*/output/*/text", 2),
    ],
    answer: &[
        completion("output/*/content/*/text", 2),
        completion("output/*/summary/*/text", 2),
        call("output/*/arguments", 2),
        call("output/*/input", 2),
        // Events that repeat what was streamed.
        completion("text", 1),
        completion("part/text", 2),
        completion("item/content/*/text", 2),
        completion("item/summary/*/text", 2),
        completion("response/output/*/content/*/text", 3),
        completion("response/output/*/summary/*/text", 3),
        call("arguments", 1),
        call("input", 1),
        call("item/arguments", 2),
        call("item/input", 2),
        call("response/output/*/arguments", 3),
        call("response/output/*/input", 3),
    ],
    events: &[call("delta", 1).only("arguments"), call("delta", 1).only("call"), completion("delta", 1)],
    refusal,
    end: |refused| {
        let reason = json!({"reason": "content_filter"});
        let response = json!({
            "id": "resp_refused",
            "object": "response",
            "status": "incomplete",
            "incomplete_details": reason,
            "output": [],
        });
        let last = refused.member("sequence_number").and_then(|number| number.as_u64());
        let number = last.map_or(0, |number| number.saturating_add(1));
        let data = json!({"type": "response.incomplete", "sequence_number": number, "response": response});
        let data = data.to_string();
        vec![Event { name: Some("response.incomplete"), data: data.into() }]
    },
};

pub(crate) static EMBEDDINGS: Format = Format {
    request: &[prompt("input", 1), prompt("input/*", 2)],
    answer: &[],
    events: &[],
    refusal,
    end: |_| Vec::new(),
};

/// The error body of the API, which its clients decode.
pub(super) fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let code = match refused.kind {
        BLOCKED => "content_filter",
        other => other,
    };
    let error = json!({
        "message": refused.message,
        "type": refused.kind,
        "param": null,
        "code": code,
        "auditor": refused.auditor,
    });
    (refused.status, json!({"error": error}))
}

fn end(refused: &Refusal<'_>, object: &str) -> Vec<Event> {
    let choice = |index: u32| json!({"index": index, "delta": {}, "text": "", "logprobs": null, "finish_reason": "content_filter"});
    let mut choices: Vec<Value> = refused.choices.iter().copied().map(choice).collect();
    if choices.is_empty() {
        choices.push(choice(0));
    }
    for choice in choices.iter_mut().filter_map(Value::as_object_mut) {
        choice.remove(if object == "text_completion" { "delta" } else { "text" });
    }
    let chunk = json!({
        "id": refused.member("id").unwrap_or_else(|| "chatcmpl-refused".into()),
        "object": object,
        "created": refused.member("created").unwrap_or_else(|| 0.into()),
        "model": refused.member("model").unwrap_or_else(|| "".into()),
        "choices": choices,
    });
    vec![Event::json(&chunk), Event { name: None, data: Cow::Borrowed("[DONE]") }]
}
