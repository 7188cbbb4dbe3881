//! Model Context Protocol: JSON-RPC over streamable HTTP.
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-06-18/basic/transports>.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{
    Effect, End, Event, Protocol, Refusal,
    media::Media,
    plain,
    rule::{call, prompt, result},
};
use crate::json::Document;

pub(super) static RPC: Protocol = Protocol {
    is_request: is_rpc,
    is_answer: is_rpc,
    request: &[
        call("params/arguments/**", 1).only("method", "tools/call"),
        prompt("params/**", 1),
        result("result/**", 1),
    ],
    answer: &[result("result/content/*/text", 2), result("result/**", 2), result("params/**", 1)],
    // Each event is a whole message.
    effect: |_| Effect::EndsAll,
    names: "code content cursor error method nextCursor progressToken resource",
    identifiers: "jsonrpc method",
    opaque: &[("cursor", ""), ("nextCursor", "")],
    media: Media {
        parts: &["content", "content/*"],
        kinds: &["audio", "image"],
        members: &["resource/blob", "contents/*/blob"],
        free: &["arguments", "structuredContent", "inputSchema", "outputSchema"],
        ..Media::NONE
    },
    refusal: |refused| match error(refused) {
        // Clients read errors only from successful responses.
        Some(error) => (StatusCode::OK, error),
        None => plain(refused),
    },
    sent: || Box::new(End(|refused| error(refused).iter().map(Event::json).collect())),
    ..Protocol::UNKNOWN
};

fn is_rpc(document: &Document<'_>) -> bool {
    // In a batch, the first element.
    [0, 1].into_iter().any(|node| document.member(node, "jsonrpc").is_some())
}

/// Returns the error response to the request, if it has an id, or the responses to a batch.
fn error(refused: &Refusal<'_>) -> Option<Value> {
    let data = json!({"auditor": refused.auditor, "type": refused.kind, "rule": refused.rule});
    let error = json!({"code": -32000, "message": refused.message, "data": data});
    let response = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "error": error});
    refused.id.map(|id| id.as_array().map_or_else(|| response(id), |ids| ids.iter().map(response).collect()))
}

/// Returns the id of a request, or those of a batch as an array. Without an answer for each request of a larger batch, it is
/// `null`.
pub(crate) fn request_id(document: &Document<'_>) -> Option<Value> {
    const MAX_BATCH: usize = 100;
    let id = |message| {
        document.member(message, "jsonrpc")?;
        let id = document.member_json(message, "id")?;
        (!id.is_array() && !id.is_object()).then_some(id)
    };
    if !document.text.trim_start().starts_with('[') {
        return id(0);
    }
    let messages = (1..document.nodes.len()).filter(|&node| document.nodes[node].depth == 1);
    let ids: Vec<_> = messages.filter_map(id).take(MAX_BATCH + 1).collect();
    match ids.len() {
        0 => None,
        1..=MAX_BATCH => Some(ids.into()),
        _ => Some(Value::Null),
    }
}
