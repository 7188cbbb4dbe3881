//! A model that echoes its requests, for trying auditors.
//!
//! ```text
//! POST /v1/anything {"prompt":"Hello there"}                 200, the request as JSON
//! POST /v1/anything {"prompt":"Hello there","stream":true}   200, the words of the prompt as server-sent events
//! GET  /health                                               200 {"status":"ok"}
//! ```

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Uri};
use serde_json::{Map, Value, json};

/// Pause between the words of a streamed response.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the model as a service, which needs the addresses of its callers
/// (`into_make_service_with_connect_info::<SocketAddr>`).
pub fn router() -> Router {
    Router::new().route("/health", get(|| async { Json(json!({"status": "ok"})) })).fallback(answer)
}

async fn answer(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    if json["stream"] == true {
        return words(json["prompt"].as_str().unwrap_or_default());
    }
    let asked = json!({
        "method": method.as_str(),
        "uri": uri.to_string(),
        "headers": all(&headers),
        "peer": peer.ip().to_canonical().to_string(),
        "body": String::from_utf8_lossy(&body),
    });
    Json(asked).into_response()
}

/// Returns each header with all of its values.
fn all(headers: &HeaderMap) -> Map<String, Value> {
    let values = |name| {
        let values = headers.get_all(name).into_iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>()
    };
    headers.keys().map(|name| (name.to_string(), values(name).into())).collect()
}

fn words(prompt: &str) -> Response {
    // As in models, words include the preceding space.
    let words = prompt.split_whitespace().enumerate().map(|(place, word)| match place {
        0 => word.to_owned(),
        _ => format!(" {word}"),
    });
    let words = words.map(|word| format!("data: {}\n\n", json!({"word": word})));
    let events: Vec<_> = words.chain(["data: [DONE]\n\n".to_owned()]).enumerate().collect();
    let events = stream::iter(events).then(|(place, event)| async move {
        if place > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Infallible>(event)
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}
