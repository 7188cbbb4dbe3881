//! Refusals of cross-origin requests.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method},
};
use serde_json::json;

use crate::{Phrase, auditor, auditor_with, client, serve, within};

const APP: &str = "https://app.test";
const OTHER: &str = "https://other.test";

/// A model with these headers of CORS, in which `ORIGIN` is the origin of the request. It answers with what it gets.
async fn model(cors: &'static [(&'static str, &'static str)]) -> SocketAddr {
    let model = Router::new().fallback(move |request: Request| async move {
        let origin = request.headers().get("origin").cloned();
        let mut headers = HeaderMap::new();
        for (name, value) in cors {
            let value = match (*value, &origin) {
                ("ORIGIN", None) => continue,
                ("ORIGIN", Some(origin)) => origin.clone(),
                (value, _) => HeaderValue::from_static(value),
            };
            headers.append(HeaderName::from_static(name), value);
        }
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        (headers, request.into_body())
    });
    serve(model).await
}

/// Returns status, and the headers of CORS, of the response to a request with this text.
async fn exchange(
    address: SocketAddr,
    method: Method,
    origin: Option<&str>,
    text: &str,
) -> (u16, Vec<String>) {
    let mut request = client().request(method.clone(), format!("http://{address}/v1/chat/completions"));
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    if method == Method::POST {
        request = request.json(&json!({"messages": [{"role": "user", "content": text}]}));
    }
    let answer = within(request.send()).await.unwrap();
    let headers = answer.headers().iter();
    let headers = headers.filter(|(name, _)| name.as_str().starts_with("access-control-") || *name == "vary");
    let mut headers: Vec<_> =
        headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    (answer.status().as_u16(), headers)
}

#[tokio::test]
async fn refusals_have_the_headers_that_the_model_sends() {
    let echo: &[_] = &[
        ("access-control-allow-origin", "ORIGIN"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "x-request-id"),
        ("vary", "Accept-Encoding, origin"),
    ];
    let echoed = |origin: &str| {
        let lines = ["credentials: true", &format!("origin: {origin}")];
        let mut lines: Vec<_> = lines.iter().map(|line| format!("access-control-allow-{line}")).collect();
        lines.extend(["access-control-expose-headers: x-request-id".to_owned(), "vary: Origin".to_owned()]);
        lines
    };
    let fixed = || vec![format!("access-control-allow-origin: {APP}")];
    let any = || vec!["access-control-allow-origin: *".to_owned()];
    for (cors, app, other) in [
        (echo, echoed(APP), echoed(OTHER)),
        (&[("access-control-allow-origin", "https://app.test")], fixed(), fixed()),
        (&[("access-control-allow-origin", "*")], any(), any()),
        (&[("vary", "Origin")], Vec::new(), Vec::new()),
        (&[("access-control-allow-headers", "authorization"), ("vary", "*")], Vec::new(), Vec::new()),
        (&[], Vec::new(), Vec::new()),
    ] {
        for first in [Method::OPTIONS, Method::POST] {
            let address = auditor(model(cors).await, &[]).await;
            // The model has sent nothing yet.
            let refused = exchange(address, Method::POST, Some(APP), "the secret word").await;
            assert_eq!(refused, (403, Vec::new()), "{cors:?}");
            assert_eq!(exchange(address, first.clone(), Some(APP), "hello").await.0, 200, "{cors:?}");
            for (origin, expected) in [(Some(APP), &app), (Some(OTHER), &other), (None, &Vec::new())] {
                let refused = exchange(address, Method::POST, origin, "the secret word").await;
                assert_eq!(refused, (403, expected.clone()), "{cors:?} {first} {origin:?}");
            }
        }
    }
}

#[tokio::test]
async fn cors_headers_are_on_refusals_of_answers_and_later_auditors() {
    let cors: &[_] = &[("access-control-allow-origin", "ORIGIN"), ("vary", "Origin")];
    let expected =
        |origin: &str| vec![format!("access-control-allow-origin: {origin}"), "vary: Origin".to_owned()];
    let next = model(cors).await;
    let second = auditor(next, &[]).await;
    let first = auditor_with(second, &[], |auditor| auditor.judge(Phrase("another one"))).await;
    assert_eq!(exchange(first, Method::OPTIONS, Some(APP), "").await.0, 200);
    for text in ["the secret word", "another one"] {
        let refused = exchange(first, Method::POST, Some(APP), text).await;
        assert_eq!(refused, (403, expected(APP)), "{text}");
    }
    // Headers of an answer, without an earlier one.
    let model = Router::new().fallback(|| async {
        let headers =
            [("access-control-allow-origin", APP), ("vary", "Origin"), ("content-type", "image/png")];
        (headers, "hello")
    });
    let address = auditor(serve(model).await, &[]).await;
    let refused = exchange(address, Method::POST, Some(APP), "hello").await;
    assert_eq!(refused, (422, expected(APP)));
}

#[tokio::test]
async fn remembered_headers_are_limited() {
    let long: &'static str = "x, ".repeat(2000).leak();
    let cors: &'static [_] =
        vec![("access-control-allow-origin", "*"), ("access-control-allow-headers", long)].leak();
    let address = auditor(model(cors).await, &[]).await;
    assert_eq!(exchange(address, Method::OPTIONS, Some(APP), "").await.0, 200);
    let refused = exchange(address, Method::POST, Some(APP), "the secret word").await;
    assert_eq!(refused, (403, Vec::new()));
}
