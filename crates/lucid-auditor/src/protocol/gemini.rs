//! Gemini: `generateContent` and `streamGenerateContent`, whose answer is an array of events without `alt=sse`.
//!
//! Source: <https://ai.google.dev/api/generate-content>.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{
    Event, Protocol, Refusal, Sent,
    media::Media,
    rule::{TOOLS, call, completion, prompt, result},
};
use crate::json::Document;

pub(super) static GENERATE: Protocol = Protocol {
    paths: &[":generateContent", ":streamGenerateContent", ":countTokens"],
    is_request: |document| document.member(0, "contents").is_some(),
    is_answer: |document| {
        ["candidates", "promptFeedback"].iter().any(|name| document.member(0, name).is_some())
    },
    request: &[
        prompt("systemInstruction/parts/*/text", 1).role("system"),
        prompt("system_instruction/parts/*/text", 1).role("system"),
        TOOLS,
        prompt("contents/*/parts/*/text", 2),
        call("contents/*/parts/*/functionCall/args/**", 4),
        result("contents/*/parts/*/functionResponse/response/**", 4),
    ],
    answer: &[call("candidates/*/content/parts/*/functionCall/args/**", 5)],
    events: &[completion("candidates/*/content/parts/*/text", 3)],
    messages: "contents",
    choices: "candidates",
    element: ("index", "", ""),
    // Some models state the finish reason STOP in each event: texts end with the stream.
    elements: Some(b'['),
    joins_elements: true,
    echoes: &["logprobsResult"],
    names: "generationConfig safetyRatings safetySettings usageMetadata",
    identifiers: "finishReason modelVersion responseId",
    // The second one also in answers like those of OpenAI.
    opaque: &[("thoughtSignature", ""), ("thought_signature", "")],
    media: Media {
        members: &["parts/*/inlineData", "parts/*/inline_data", "parts/*/fileData", "parts/*/file_data"],
        free: &["args", "functionResponse/response"],
        ..Media::NONE
    },
    refusal,
    sent: || Box::new(Candidates::default()),
    ..Protocol::UNKNOWN
};

/// The error body of Google's APIs (`google.rpc.Status`).
fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let status = match refused.status {
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        status if status.is_server_error() => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    let error = json!({
        "code": refused.status.as_u16(),
        "message": refused.message,
        "status": status,
        "auditor": refused.auditor,
    });
    (refused.status, json!({"error": error}))
}

#[derive(Debug, Default)]
struct Candidates {
    usage: Option<Value>,
    version: Option<Value>,
    id: Option<Value>,
}

impl Sent for Candidates {
    fn note(&mut self, event: &Document<'_>) {
        self.usage = event.member_json(0, "usageMetadata");
        self.version = event.member_json(0, "modelVersion");
        self.id = event.member_json(0, "responseId");
    }

    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        if !refused.is_verdict() {
            return vec![Event::json(&refusal(refused).1)];
        }
        let content = json!({"role": "model", "parts": []});
        let candidate = json!({
            "index": 0,
            "content": content,
            "finishReason": "SAFETY",
            "finishMessage": refused.message,
        });
        let mut event = json!({"candidates": [candidate]});
        let known =
            [("usageMetadata", &self.usage), ("modelVersion", &self.version), ("responseId", &self.id)];
        for (name, value) in known {
            if let Some(value) = value {
                event[name] = value.clone();
            }
        }
        vec![Event::json(&event)]
    }
}
