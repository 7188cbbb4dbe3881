//! OpenAI: embeddings.
//!
//! Source: <https://platform.openai.com/docs/api-reference/embeddings>. Vectors are numbers, or their bytes in base64.

use super::{Protocol, media::Media, rule::prompt};

pub(super) static EMBEDDINGS: Protocol = Protocol {
    paths: &["/embeddings"],
    request: &[prompt("input", 1).role("user"), prompt("input/*", 2).role("user")],
    is_answer: |document| {
        let is_vector = |&node: &usize| document.nodes[node].step.name() == Some("embedding");
        (1..document.nodes.len().min(8)).any(|node| is_vector(&node))
    },
    elements: Some(b'{'),
    names: "data dimensions embedding",
    opaque: &[("embedding", "")],
    media: Media { tokens: &["input"], ..Media::NONE },
    ..Protocol::UNKNOWN
};
