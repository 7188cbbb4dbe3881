//! OpenAI: responses.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde_json::{Map, Value, json};

use super::{
    Effect, Event, Protocol, Refusal, Sent,
    chat::code,
    media::Media,
    rule::{TOOLS, call, completion, prompt, result},
};
use crate::json::Document;

pub(super) static RESPONSES: Protocol = Protocol {
    paths: &["/responses", "/responses/compact", "/responses/input_tokens"],
    is_answer: |document| {
        document.member_value(0, "type").is_some_and(|it| it.starts_with("response.") || it == "keepalive")
            || document.member_value(0, "object").as_deref() == Some("response")
    },
    request: &[
        prompt("instructions", 1).role("system"),
        TOOLS,
        prompt("input", 1).role("user"),
        prompt("input/*/content", 2),
        prompt("input/*/content/*/text", 2),
        prompt("input/*/content/*/refusal", 2),
        prompt("input/*/summary/*/text", 2),
        call("input/*/arguments", 2).role("assistant"),
        call("input/*/input", 2).role("assistant"),
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
    events: &[
        call("delta", 1).only("type", "arguments"),
        call("delta", 1).only("type", "call"),
        completion("delta", 1),
        completion("delta/**", 1),
    ],
    messages: "input",
    indices: &["output_index", "content_index", "summary_index"],
    effect: |document| match document.member_value(0, "type") {
        Some(kind) if kind == "keepalive" => Effect::Ping,
        // Annotations belong to a text that goes on.
        Some(kind) if kind.contains("annotation") => Effect::None,
        Some(kind) => match kind.rsplit('.').next() {
            Some("done" | "added" | "completed" | "incomplete" | "failed") => Effect::EndsAll,
            _ => Effect::None,
        },
        None => Effect::EndsAll,
    },
    echoes: &["logprobs"],
    names: "
        annotations background content_index error incomplete_details max_output_tokens max_tool_calls
        moderation output_index output_tokens_details input_tokens_details previous_response_id
        prompt_cache_key reasoning safety_identifier sequence_number store strict summary_index top_logprobs
        user verbosity",
    identifiers: "
        approval_request_id call_id completed_at container_id conversation custom_id effort event_id file_id item_id
        previous_response_id prompt_cache_retention response_id status truncation",
    opaque: &[("encrypted_content", "")],
    media: Media {
        parts: &[
            "content/*",
            "content",
            "input/*",
            "input",
            "output/*",
            "output",
            "^/item",
            "^/part",
            "variables/*",
        ],
        kinds: &["computer_screenshot", "image_generation_call", "input_file", "input_image", "input_video"],
        members: &["^/partial_image_b64"],
        free: &["arguments", "input/*/input", "output/*/input", "item/input"],
        tokens: &["input"],
    },
    sent: || Box::new(Response::default()),
    keeps_texts: true,
    ..Protocol::UNKNOWN
};

#[derive(Debug, Default)]
struct Response {
    /// Id in the event `response.created`.
    response: Option<Value>,
    next_number: u64,
    /// Items that have ended.
    output: Vec<Value>,
    /// The open item, with its event.
    item: Option<Value>,
    /// Parts of it that have ended, and the event of the open one.
    parts: Vec<Value>,
    part: Option<Value>,
    /// The last event of the open text, with the whole text as `delta`.
    text: Option<Value>,
}

impl Sent for Response {
    fn note(&mut self, event: &Document<'_>) {
        if let Some(number) = event.member_json(0, "sequence_number").and_then(|number| number.as_u64()) {
            self.next_number = number.saturating_add(1);
        }
        let Some(kind) = event.member_value(0, "type") else { return };
        let whole = || event.json(0);
        match &*kind {
            "response.created" => self.response = event.member_json(0, "response"),
            "response.output_item.added" => {
                (self.item, self.parts, self.part) = (Some(whole()), Vec::new(), None)
            }
            "response.output_item.done" => {
                self.output.extend(event.member_json(0, "item"));
                (self.item, self.part, self.text) = (None, None, None);
            }
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                self.part = Some(whole())
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                self.parts.extend(event.member_json(0, "part"));
                (self.part, self.text) = (None, None);
            }
            kind if kind.ends_with(".delta") => {
                let Some(delta) = event.member(0, "delta").map(|node| event.value(node)) else { return };
                match &mut self.text {
                    Some(Value::Object(text)) if text.get("type").is_some_and(|known| known == kind) => {
                        if let Some(Value::String(whole)) = text.get_mut("delta") {
                            whole.push_str(&delta);
                        }
                    }
                    text => *text = Some(whole()),
                }
            }
            kind if kind.ends_with(".done") => self.text = None,
            _ => {}
        }
    }

    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut number = self.next_number;
        let mut send = |mut event: Value| {
            event["sequence_number"] = number.into();
            number += 1;
            events.push(Event::named(&event));
        };
        let mut response = self.response.clone().unwrap_or_else(unknown);
        if self.response.is_none() {
            send(json!({"type": "response.created", "response": response}));
        }
        let text = self.text.as_ref().and_then(|event| {
            let kind = event["type"].as_str()?.strip_suffix(".delta")?;
            let member = match kind.rsplit('.').next()? {
                name if name.ends_with("arguments") => "arguments",
                name if name.ends_with("input") => "input",
                "refusal" => "refusal",
                _ => "text",
            };
            Some((kind, member, event))
        });
        if let Some((kind, member, event)) = text {
            let mut done = with(event, &format!("{kind}.done"), member, event["delta"].clone());
            if member == "text" && kind.ends_with("output_text") {
                done["logprobs"] = json!([]);
            }
            send(done);
        }
        let mut parts = self.parts.clone();
        if let Some(event) = &self.part {
            let mut part = event["part"].clone();
            if let Some((_, member, event)) = text {
                part[member] = event["delta"].clone();
            }
            parts.push(part.clone());
            let kind = event["type"].as_str().unwrap_or_default().replace("added", "done");
            send(with(event, &kind, "part", part));
        }
        let mut output = self.output.clone();
        if let Some(event) = &self.item {
            let mut item = event["item"].clone();
            item["status"] = "incomplete".into();
            match item["type"].as_str() {
                Some("message") => item["content"] = parts.into(),
                Some("reasoning") => {
                    let member =
                        if text.is_some_and(|it| it.0.contains("summary")) { "summary" } else { "content" };
                    item[member] = parts.into();
                }
                _ => {
                    if let Some((_, member, event)) = text {
                        item[member] = event["delta"].clone();
                    }
                }
            }
            output.push(item.clone());
            send(with(event, "response.output_item.done", "item", item));
        }
        response["output"] = output.into();
        let mut metadata = response["metadata"].as_object().cloned().unwrap_or_default();
        metadata.insert("auditor".to_owned(), refused.auditor.into());
        metadata.insert("rule".to_owned(), refused.rule.into());
        metadata.insert("message".to_owned(), refused.message.chars().take(512).collect::<String>().into());
        response["metadata"] = metadata.into();
        let kind = match refused.is_verdict() {
            true => {
                response["status"] = "incomplete".into();
                response["incomplete_details"] = json!({"reason": "content_filter"});
                "response.incomplete"
            }
            false => {
                response["status"] = "failed".into();
                let message = format!("{}: {}", code(refused), refused.message);
                response["error"] = json!({"code": "server_error", "message": message});
                "response.failed"
            }
        };
        send(json!({"type": kind, "response": response}));
        events
    }
}

/// Returns an event of another type that names the same text, part or item, with another member.
fn with(event: &Value, kind: &str, name: &str, value: Value) -> Value {
    let mut other = Map::new();
    for same in ["item_id", "output_index", "content_index", "summary_index"] {
        other.extend(event.get(same).map(|value| (same.to_owned(), value.clone())));
    }
    other.insert("type".to_owned(), kind.into());
    other.insert(name.to_owned(), value);
    other.into()
}

/// Returns a response about which nothing is known, with the members that clients require.
fn unknown() -> Value {
    json!({
        "id": "resp_refused",
        "object": "response",
        "created_at": 0,
        "model": "",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "temperature": null,
        "top_p": null,
    })
}
