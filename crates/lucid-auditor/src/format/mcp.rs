//! Model Context Protocol: JSON-RPC over streamable HTTP.
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-06-18/basic/transports>.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::{Event, Format, Refusal, call, prompt, result};

pub(crate) static RPC: Format = Format {
    request: &[
        call("params/arguments/**", 1).only("tools/call"),
        prompt("params/**", 1),
        result("result/**", 1),
    ],
    answer: &[result("result/content/*/text", 2), result("result/**", 2), result("params/**", 1)],
    // Each event is a whole message.
    events: &[],
    refusal: |refused| match error(refused) {
        // Clients read errors only from successful responses.
        Some(error) => (StatusCode::OK, error),
        None => (refused.status, json!({"error": refused.message, "auditor": refused.auditor})),
    },
    end: |refused| error(refused).iter().map(Event::json).collect(),
};

/// Returns the error response to the request, if it has an id, or the responses to a batch.
fn error(refused: &Refusal<'_>) -> Option<Value> {
    let data = json!({"auditor": refused.auditor, "type": refused.kind});
    let error = json!({"code": -32000, "message": refused.message, "data": data});
    let response = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "error": error});
    refused.id.map(|id| id.as_array().map_or_else(|| response(id), |ids| ids.iter().map(response).collect()))
}
