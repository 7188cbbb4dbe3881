//! OpenAI: chat completions and completions.
//!
//! Source: <https://platform.openai.com/docs/api-reference>. `reasoning` and `reasoning_content` are additions of vLLM,
//! SGLang and others.

use std::borrow::Cow;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    BLOCKED, Effect, Event, Protocol, Refusal, Sent,
    media::Media,
    rule::{TOOLS, call, completion, prompt},
};
use crate::json::{Document, Kind, Node};

/// Data of the server-sent event after the last one, which is not JSON.
pub(crate) const DONE: &str = "[DONE]";

pub(super) static CHAT: Protocol = Protocol {
    paths: &["/chat/completions"],
    is_request: |document| document.member(0, "messages").is_some(),
    is_answer: |document| document.member(0, "choices").is_some() && !is_completion(document),
    ..COMMON
};

pub(super) static COMPLETIONS: Protocol = Protocol {
    paths: &["/completions"],
    is_answer: is_completion,
    sent: || Box::new(Completion { is_chat: false, ..Completion::default() }),
    ..COMMON
};

const COMPLETION: &str = "text_completion";

fn is_completion(document: &Document<'_>) -> bool {
    let is_text = |node: &Node<'_>| node.depth == 3 && node.step.name() == Some("text");
    document.member_value(0, "object").as_deref() == Some(COMPLETION)
        || document.member(0, "choices").is_some() && document.nodes.iter().any(is_text)
}

const COMMON: Protocol = Protocol {
    request: &[
        prompt("messages/*/content", 2),
        prompt("messages/*/content/*/text", 2),
        prompt("messages/*/content/*/refusal", 2),
        prompt("messages/*/reasoning", 3),
        prompt("messages/*/reasoning_content", 3),
        call("messages/*/tool_calls/*/function/arguments", 4),
        call("messages/*/tool_calls/*/custom/input", 4),
        call("messages/*/function_call/arguments", 3),
        TOOLS,
        prompt("prompt", 1).role("user"),
        prompt("prompt/*", 2).role("user"),
        prompt("suffix", 1).role("user"),
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
        completion("choices/*/text", 2),
        completion("choices/*/delta/content", 3),
        completion("choices/*/delta/reasoning", 3),
        completion("choices/*/delta/reasoning_content", 3),
        completion("choices/*/delta/refusal", 3),
        // OpenRouter repeats the reasoning in details.
        completion("choices/*/delta/reasoning_details/*/text", 3),
        completion("choices/*/delta/reasoning_details/*/summary", 3),
        completion("choices/*/delta/reasoning_details/**", 3).whole(),
        call("choices/*/delta/tool_calls/*/function/arguments", 6),
        call("choices/*/delta/tool_calls/*/custom/input", 6),
        call("choices/*/delta/function_call/arguments", 4),
        call("choices/*/delta/tool_calls/*/function/name", 6).whole(),
        call("choices/*/delta/tool_calls/*/custom/name", 6).whole(),
        call("choices/*/delta/function_call/name", 4).whole(),
        completion("choices/*/delta/**", 3),
    ],
    messages: "messages",
    choices: "choices",
    element: ("index", "id", "name"),
    effect: |document| {
        let is_reason = |node: &usize| {
            let node = &document.nodes[*node];
            node.kind == Kind::String
                && node.depth == 3
                && node.step.name() == Some("finish_reason")
                && !node.range.is_empty()
        };
        let ended = (0..document.nodes.len()).filter(is_reason);
        let ended: Vec<_> = ended.filter_map(|node| COMMON.choice(document, node)).collect();
        if ended.is_empty() { Effect::None } else { Effect::Ends(ended) }
    },
    // vLLM sends token ids on demand.
    echoes: &["logprobs", "token_ids"],
    // Rows of batch files have `custom_id`, `url` and `body`.
    names: "
        body custom_id url
        completion_tokens completion_tokens_details description format max_completion_tokens max_tokens
        metadata n name parallel_tool_calls parameters prompt_tokens properties required response_format
        seed stop stream stream_options temperature token tool_choice tools top_p total_tokens usage",
    identifiers: "
        created encoding_format finish_reason id index model object obfuscation role service_tier
        system_fingerprint tool_call_id type",
    // Details of the reasoning are an addition of OpenRouter.
    opaque: &[("obfuscation", ""), ("data", "reasoning.encrypted")],
    media: Media {
        parts: &["content", "content/*"],
        kinds: &["audio", "audio_url", "file", "image_url", "input_audio", "video", "video_url"],
        members: &[
            "delta/audio",
            "message/audio",
            "messages/*/audio",
            "delta/images",
            "message/images",
            "^/b64_json",
            "data/*/b64_json",
            // llama.cpp and SGLang.
            "^/image_data",
            "^/multimodal_data",
            // vLLM.
            "content/*/audio_embeds",
            "content/*/image_embeds",
            "content/*/prompt_embeds",
        ],
        free: &["arguments"],
        tokens: &["prompt", "prompt_token_ids", "input_ids"],
    },
    sent: || Box::new(Completion { is_chat: true, ..Completion::default() }),
    ..Protocol::UNKNOWN
};

/// The error body of the API, which its clients decode.
pub(super) fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let kind = match refused.kind {
        BLOCKED => BLOCKED,
        _ if refused.status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    let error = json!({
        "message": refused.message,
        "type": kind,
        "param": null,
        "code": code(refused),
        "auditor": refused.auditor,
    });
    (refused.status, json!({"error": error}))
}

pub(super) fn code<'a>(refused: &Refusal<'a>) -> &'a str {
    if refused.is_verdict() { "content_filter" } else { refused.kind }
}

#[derive(Debug, Default)]
struct Completion {
    is_chat: bool,
    /// Members that all events share.
    head: Map<String, Value>,
    usage: Option<Value>,
}

impl Sent for Completion {
    fn note(&mut self, event: &Document<'_>) {
        for name in ["id", "created", "model", "system_fingerprint", "service_tier"] {
            if let Some(value) = event.member_json(0, name) {
                self.head.insert(name.to_owned(), value);
            }
        }
        self.usage = event.member_json(0, "usage").filter(|usage| !usage.is_null()).or(self.usage.take());
    }

    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        if !refused.is_verdict() {
            return vec![Event::json(&refusal(refused).1)];
        }
        let choice = |index: u32| {
            let mut choice = json!({"index": index, "logprobs": null, "finish_reason": "content_filter"});
            match self.is_chat {
                true => choice["delta"] = json!({}),
                false => choice["text"] = "".into(),
            }
            choice
        };
        let mut choices: Vec<Value> = refused.choices.iter().copied().map(choice).collect();
        if choices.is_empty() {
            choices.push(choice(0));
        }
        let mut event = json!({
            "id": "chatcmpl-refused",
            "object": if self.is_chat { "chat.completion.chunk" } else { COMPLETION },
            "created": 0,
            "model": "",
            "choices": choices,
            "auditor": refused.auditor,
            "rule": refused.rule,
            "message": refused.message,
        });
        for (name, value) in &self.head {
            event[name] = value.clone();
        }
        if let Some(usage) = &self.usage {
            event["usage"] = usage.clone();
        }
        vec![Event::json(&event), Event { name: None, data: Cow::Borrowed(DONE) }]
    }
}
