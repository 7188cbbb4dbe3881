//! Text Generation Inference of Hugging Face, the generate extension of Triton, and the native API of SGLang.
//!
//! Sources: <https://huggingface.github.io/text-generation-inference/>, <https://docs.sglang.ai/basic_usage/native_api.html>.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{
    Effect, End, Event, Protocol, Refusal,
    rule::{completion, prompt},
};

pub(super) static GENERATE: Protocol = Protocol {
    paths: &["/generate", "/generate_stream"],
    is_request: |document| document.member(0, "inputs").is_some(),
    is_answer: |document| {
        ["token", "text_output", "meta_info"].iter().any(|name| document.member(0, name).is_some())
    },
    request: &[
        prompt("inputs", 1).role("user"),
        prompt("inputs/*", 2).role("user"),
        prompt("prompt", 1).role("user"),
        prompt("text_input", 1).role("user"),
    ],
    answer: &[completion("generated_text", 1), completion("*/generated_text", 2), completion("*/text", 2)],
    events: &[
        completion("token/text", 2),
        completion("text_output", 1),
        completion("text", 1),
        completion("token/**", 1),
    ],
    effect: |document| {
        let info = document.member(0, "meta_info");
        let reason = info.and_then(|info| document.member(info, "finish_reason"));
        let ends = [document.member(0, "generated_text"), reason].into_iter().flatten();
        match ends.map(|node| document.raw(node)).any(|value| !matches!(value, "" | "null")) {
            true => Effect::EndsAll,
            false => Effect::None,
        }
    },
    echoes: &[
        "token/id",
        "top_tokens",
        "tokens",
        "prefill",
        "output_ids",
        "output_token_logprobs",
        "output_top_logprobs",
        "output_token_ids_logprobs",
    ],
    names: "details logprob max_new_tokens special text_input",
    refusal,
    sent: || Box::new(End(|refused| vec![Event::json(&refusal(refused).1)])),
    ..Protocol::UNKNOWN
};

fn refusal(refused: &Refusal<'_>) -> (StatusCode, Value) {
    let kind = super::chat::code(refused);
    let body = json!({"error": refused.message, "error_type": kind, "auditor": refused.auditor});
    (refused.status, body)
}
