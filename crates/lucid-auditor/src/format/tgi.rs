//! Text Generation Inference of Hugging Face.
//!
//! Source: <https://huggingface.github.io/text-generation-inference/>.

use serde_json::json;

use super::{Event, Format, completion, prompt};

pub(crate) static GENERATE: Format = Format {
    request: &[prompt("inputs", 1), prompt("inputs/*", 2), prompt("prompt", 1), prompt("text_input", 1)],
    answer: &[
        completion("generated_text", 1),
        completion("*/generated_text", 2),
        completion("text_output", 1),
    ],
    events: &[completion("token/text", 2), completion("text_output", 1)],
    refusal: |refused| {
        let body = json!({"error": refused.message, "error_type": refused.kind, "auditor": refused.auditor});
        (refused.status, body)
    },
    end: |refused| vec![Event::json(&json!({"error": refused.message, "error_type": "content_filter"}))],
};
