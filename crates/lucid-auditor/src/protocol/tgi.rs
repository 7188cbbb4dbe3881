//! Text Generation Inference of Hugging Face, and the generate extension of Triton.
//!
//! Source: <https://huggingface.github.io/text-generation-inference/>.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{
    Effect, Event, Protocol, Refusal, Sent,
    rule::{completion, prompt},
};

pub(super) static GENERATE: Protocol = Protocol {
    paths: &["/generate", "/generate_stream"],
    is_request: |document| document.member(0, "inputs").is_some(),
    is_answer: |document| ["token", "text_output"].iter().any(|name| document.member(0, name).is_some()),
    request: &[
        prompt("inputs", 1).role("user"),
        prompt("inputs/*", 2).role("user"),
        prompt("prompt", 1).role("user"),
        prompt("text_input", 1).role("user"),
    ],
    answer: &[
        completion("generated_text", 1),
        completion("*/generated_text", 2),
        completion("text_output", 1),
    ],
    events: &[completion("token/text", 2), completion("text_output", 1), completion("token/**", 1)],
    effect: |document| match document.member(0, "generated_text").map(|node| document.raw(node)) {
        None | Some("" | "null") => Effect::None,
        Some(_) => Effect::EndsAll,
    },
    names: "details logprob max_new_tokens special text_input",
    refusal,
    sent: || Box::new(Tokens),
    ..Protocol::UNKNOWN
};

fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let kind = super::chat::code(refused);
    let body = json!({"error": refused.message, "error_type": kind, "auditor": refused.auditor});
    (refused.status, body)
}

#[derive(Debug)]
struct Tokens;

impl Sent for Tokens {
    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        vec![Event::json(&refusal(refused).1)]
    }
}
