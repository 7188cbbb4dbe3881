//! AI SDK: UI message streams.
//!
//! Source: <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>.

use std::borrow::Cow;

use serde_json::json;

use super::{
    Effect, End, Event, Protocol, Refusal, chat,
    rule::{call, completion, result},
};
use crate::json::Document;

pub(super) static PARTS: Protocol = Protocol {
    is_answer: is_part,
    answer: &[call("input/**", 1), result("output/**", 1)],
    events: &[
        completion("delta", 1).only("type", "reasoning"),
        completion("delta", 1),
        call("inputTextDelta", 1),
    ],
    indices: &["id", "toolCallId"],
    effect: |document| match document.member_value(0, "type").as_deref() {
        Some("tool-input-start" | "tool-input-available" | "finish-step" | "finish" | "abort" | "error") => {
            Effect::EndsAll
        }
        Some(kind) if kind.ends_with("-end") => Effect::EndsAll,
        _ => Effect::None,
    },
    names: "dynamic errorText messageMetadata providerExecuted providerMetadata title transient url",
    identifiers: "mediaType messageId sourceId toolCallId",
    sent: || Box::new(End(end)),
    ..Protocol::UNKNOWN
};

/// Kinds of parts that are recognized by their name alone.
const KINDS: [&str; 19] = [
    "start",
    "start-step",
    "finish-step",
    "finish",
    "abort",
    "message-metadata",
    "text-start",
    "text-end",
    "reasoning-start",
    "reasoning-end",
    "tool-input-start",
    "tool-input-available",
    "tool-input-error",
    "tool-output-available",
    "tool-output-error",
    "tool-output-denied",
    "tool-approval-request",
    "source-url",
    "source-document",
];

fn is_part(document: &Document<'_>) -> bool {
    match document.member_value(0, "type").as_deref() {
        Some("error") => document.member(0, "errorText").is_some(),
        // Other protocols have deltas of these kinds with other members.
        Some("text-delta" | "reasoning-delta") => document.member(0, "delta").is_some(),
        Some("tool-input-delta") => document.member(0, "inputTextDelta").is_some(),
        Some(kind) if kind.starts_with("data-") => document.member(0, "data").is_some(),
        Some(kind) => KINDS.contains(&kind),
        None => false,
    }
}

fn end(refused: &Refusal<'_>) -> Vec<Event> {
    let error = json!({"type": "error", "errorText": refused.message});
    vec![Event::json(&error), Event { name: None, data: Cow::Borrowed(chat::DONE) }]
}
