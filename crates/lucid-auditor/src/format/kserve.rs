//! KServe inference protocols, V1 and V2 (Open Inference Protocol).
//!
//! Source: <https://kserve.github.io/website/docs/concepts/architecture/data-plane>.

use serde_json::{Value, json};

use super::{Format, Refusal, completion, prompt};

pub(crate) static V1: Format = Format {
    request: &[prompt("instances/**", 2), prompt("inputs/**", 2)],
    answer: &[completion("predictions/**", 2), completion("outputs/**", 2)],
    events: &[],
    refusal,
    end: |_| Vec::new(),
};

pub(crate) static V2: Format = Format {
    request: &[prompt("inputs/*/data/**", 4), prompt("parameters/**", 2)],
    answer: &[completion("outputs/*/data/**", 4)],
    events: &[completion("text_output", 1)],
    refusal,
    end: |_| Vec::new(),
};

fn refusal(refused: &Refusal<'_>) -> (hyper::StatusCode, Value) {
    (refused.status, json!({"error": refused.message, "auditor": refused.auditor}))
}
