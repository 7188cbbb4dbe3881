//! KServe inference protocols, V1 and V2 (Open Inference Protocol).
//!
//! Source: <https://kserve.github.io/website/docs/concepts/architecture/data-plane>.

use super::{
    Protocol,
    media::Media,
    plain,
    rule::{completion, prompt},
};

pub(super) static V1: Protocol = Protocol {
    paths: &[":predict", ":explain"],
    is_answer: |document| document.member(0, "predictions").is_some(),
    request: &[prompt("instances/**", 2), prompt("inputs/**", 2)],
    answer: &[completion("predictions/**", 2), completion("outputs/**", 2)],
    is_open: true,
    refusal: plain,
    ..Protocol::UNKNOWN
};

pub(super) static V2: Protocol = Protocol {
    paths: &["/infer", "/infer_stream"],
    is_answer: |document| {
        document.member(0, "outputs").is_some() && document.member(0, "model_name").is_some()
    },
    request: &[prompt("inputs/*/data/**", 4), prompt("parameters/**", 2)],
    answer: &[completion("outputs/*/data/**", 4)],
    names: "contents model_name model_version shape",
    identifiers: "datatype",
    // Names of tensors.
    media: Media { free: &["^/parameters"], tokens: &["input_ids"], ..Media::NONE },
    refusal: plain,
    ..Protocol::UNKNOWN
};
