//! Ollama: generate, chat, embed.
//!
//! Source: <https://github.com/ollama/ollama/blob/main/docs/api.md>. Streams are lines of JSON.

use serde_json::{Value, json};

use super::{
    Effect, Event, Protocol, Refusal, Sent,
    media::Media,
    plain,
    rule::{TOOLS, call, completion, prompt},
};
use crate::json::Document;

pub(super) static CHAT: Protocol = Protocol {
    paths: &["/api/chat"],
    is_answer: |document| is_line(document, "message"),
    sent: || Box::new(Line { is_chat: true, ..Line::default() }),
    ..COMMON
};

pub(super) static GENERATE: Protocol = Protocol {
    paths: &["/api/generate"],
    is_answer: |document| is_line(document, "response"),
    sent: || Box::new(Line::default()),
    ..COMMON
};

pub(super) static EMBED: Protocol = Protocol {
    paths: &["/api/embed", "/api/embeddings"],
    is_answer: |document| document.member(0, "embeddings").is_some(),
    elements: Some(b'{'),
    ..COMMON
};

fn is_line(document: &Document<'_>, name: &str) -> bool {
    document.member(0, "done").is_some() && document.member(0, name).is_some()
}

const COMMON: Protocol = Protocol {
    request: &[
        prompt("prompt", 1).role("user"),
        prompt("system", 1).role("system"),
        TOOLS,
        prompt("suffix", 1).role("user"),
        prompt("input", 1).role("user"),
        prompt("input/*", 2).role("user"),
        prompt("messages/*/content", 2),
        prompt("messages/*/thinking", 3),
        call("messages/*/tool_calls/*/function/arguments/**", 4),
    ],
    events: &[
        completion("response", 1),
        completion("thinking", 1),
        completion("message/content", 2),
        completion("message/thinking", 2),
        call("message/tool_calls/**", 4).whole(),
        completion("message/**", 1),
    ],
    messages: "messages",
    effect: |document| match document.member_value(0, "done").as_deref() {
        Some("true") => Effect::EndsAll,
        _ => Effect::None,
    },
    // Token ids of all texts, which the next request may repeat.
    echoes: &["context"],
    names: "
        context done embedding embeddings eval_count eval_duration keep_alive load_duration options
        prompt_eval_count prompt_eval_duration think tool_name total_duration",
    identifiers: "created_at done_reason",
    media: Media {
        members: &["^/images", "message/images", "messages/*/images"],
        free: &["arguments"],
        tokens: &["context"],
        ..Media::NONE
    },
    refusal: plain,
    ..Protocol::UNKNOWN
};

#[derive(Debug, Default)]
struct Line {
    is_chat: bool,
    model: Option<Value>,
    created_at: Option<Value>,
}

impl Sent for Line {
    fn note(&mut self, event: &Document<'_>) {
        self.model = event.member_json(0, "model");
        self.created_at = event.member_json(0, "created_at");
    }

    /// Clients raise the error of the last line. Without a look at it, they expect the member of their method.
    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        let mut line = json!({
            "error": refused.message,
            "auditor": refused.auditor,
            "rule": refused.rule,
            "model": self.model.clone().unwrap_or_else(|| "".into()),
            "created_at": self.created_at.clone().unwrap_or_else(|| "".into()),
            "done": true,
            "done_reason": super::chat::code(refused),
        });
        match self.is_chat {
            true => line["message"] = json!({"role": "assistant", "content": ""}),
            false => line["response"] = "".into(),
        }
        vec![Event::json(&line)]
    }
}
