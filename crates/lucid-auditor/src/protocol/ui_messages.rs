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

fn is_part(document: &Document<'_>) -> bool {
    match document.member_value(0, "type").as_deref() {
        Some("start" | "start-step" | "finish-step" | "finish" | "abort" | "message-metadata") => true,
        Some("error") => document.member(0, "errorText").is_some(),
        Some(kind) => {
            let kinds = ["text-", "reasoning-", "tool-", "source-", "data-"];
            kinds.iter().any(|known| kind.starts_with(known))
        }
        None => false,
    }
}

fn end(refused: &Refusal<'_>) -> Vec<Event> {
    let error = json!({"type": "error", "errorText": refused.message});
    vec![Event::json(&error), Event { name: None, data: Cow::Borrowed(chat::DONE) }]
}
