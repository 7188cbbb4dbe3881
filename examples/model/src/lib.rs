//! A model that echoes its requests, for trying auditors. Asked about a card, it tells the number of one.
//!
//! ```text
//! POST /v1/anything {"prompt":"Hello there"}                 200, the request as JSON
//! POST /v1/anything {"prompt":"Hello there","stream":true}   200, the words of the prompt as server-sent events
//! POST /v1/chat/completions                                  OpenAI's protocol, also with "stream": true
//! GET  /health                                               200 {"status":"ok"}
//! ```

use std::convert::Infallible;
use std::iter;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
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
    Router::new()
        .route("/health", get(|| async { Json(json!({"status": "ok"})) }))
        .route("/v1/chat/completions", post(complete_chat))
        .fallback(answer)
}

const MODEL: &str = "echo";

/// Answers a chat with its last message.
async fn complete_chat(Json(request): Json<Value>) -> Response {
    let messages = request["messages"].as_array();
    let last = messages.and_then(|messages| messages.last()?["content"].as_str()).unwrap_or_default();
    let text = match last.to_lowercase().contains("card") {
        true => "Your card number is 4111 1111 1111 1111, valid until May.",
        false => last,
    };
    let completion = |object: &str, choice: Value| json!({"id": "chatcmpl-1", "object": object, "created": 0, "model": MODEL, "choices": [choice]});
    if request["stream"] != true {
        let message = json!({"role": "assistant", "content": text});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let mut completion = completion("chat.completion", choice);
        completion["usage"] = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
        return Json(completion).into_response();
    }
    let chunk = |delta: Value, finish_reason: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
        completion("chat.completion.chunk", choice)
    };
    let begin = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
    let words = words_of(text).map(|word| chunk(json!({"content": word}), Value::Null));
    let end = chunk(json!({}), "stop".into());
    send_events(iter::once(begin).chain(words).chain([end]))
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
        let words = words_of(json["prompt"].as_str().unwrap_or_default());
        return send_events(words.map(|word| json!({"word": word})));
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

/// Returns words, which include the preceding space, as in models.
fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().enumerate().map(|(place, word)| match place {
        0 => word.to_owned(),
        _ => format!(" {word}"),
    })
}

/// Sends server-sent events with pauses.
fn send_events(events: impl Iterator<Item = Value>) -> Response {
    let events = events.map(|event| format!("data: {event}\n\n"));
    let events: Vec<_> = events.chain(["data: [DONE]\n\n".to_owned()]).enumerate().collect();
    let events = stream::iter(events).then(|(place, event)| async move {
        if place > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Infallible>(event)
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}
