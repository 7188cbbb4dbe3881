//! Denied messages.

use std::sync::atomic::Ordering;

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::{Value, json};

use crate::{auditor, client, counting_model, get, post, serve};

#[tokio::test]
async fn a_request_with_a_phrase_does_not_reach_the_model() {
    let (model, count) = counting_model().await;
    let first = auditor(model, &[("LUCID_AUDITOR_ID", "lucid-pii-auditor")]).await;
    let nested = format!("{}\"s\\u0065cret word\"{}", "[".repeat(130), "]".repeat(130));
    for (body, row, place) in [
        ("The Secret Word, please", "", ""),
        (r#"{"prompt":"the s\u0065cret word"}"#, "", " (prompt)"),
        // Accepted by most servers outside Rust.
        (r#"{"prompt":"the s\u0065cret word","other":"\ud800"}"#, "", " (prompt)"),
        (&nested, "", ""),
        (r#"{"prompt":"the s\u0065cret word","prompt":"hello"}"#, "", " (prompt)"),
        ("{\"prompt\":\"hello\"}\n{\"prompt\":\"the s\\u0065cret word\"}", "row 2: ", " (prompt)"),
    ] {
        let answer = post(first, body.to_owned()).await;
        assert_eq!(answer.status(), 403, "{body}");
        let error = json!({
            "type": "blocked",
            "auditor": "lucid-pii-auditor",
            "message": format!("{row}Phrase: the text is refused{place}"),
            "param": null,
            "code": "content_filter",
        });
        assert_eq!(answer.json::<Value>().await.unwrap(), json!({"error": error}));
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let answer = post(first, "hello").await;
    assert_eq!((answer.status().as_u16(), count.load(Ordering::SeqCst)), (200, 1));
}

#[tokio::test]
async fn everything_passes_in_mode_observe() {
    let (model, count) = counting_model().await;
    let variables = [("LUCID_AUDIT_MODE", "observe"), ("MAX_BODY_BYTES", "4")];
    let first = auditor(model, &variables).await;
    let url = format!("http://{first}/");
    let requests = [
        client().post(&url).body("the secret word"),
        client().post(&url).header("content-encoding", "gzip").body("not even gzip"),
    ];
    for (place, request) in requests.into_iter().enumerate() {
        assert_eq!(request.send().await.unwrap().text().await.unwrap(), "answered");
        assert_eq!(count.load(Ordering::SeqCst), place + 1);
    }
}

#[tokio::test]
async fn unreadable_bodies_are_refused() {
    let (model, count) = counting_model().await;
    let first = auditor(model, &[("MAX_BODY_BYTES", "16")]).await;
    let url = format!("http://{first}/");
    let encoded = client().post(&url).header("content-encoding", "compress").body("x");
    let large = client().post(&url).body("x".repeat(17));
    for (request, status, told) in [(encoded, 415, "encoded as compress"), (large, 413, "at most 16 bytes")] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status);
        let message = answer.json::<Value>().await.unwrap()["error"]["message"].to_string();
        assert!(message.contains(told), "{message}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);

    let compressed = Router::new().fallback(|| async { ([("content-encoding", "compress")], "x") });
    let compressed = serve(compressed).await;
    for (mode, status) in [("enforce", 422), ("observe", 200)] {
        let first = auditor(compressed, &[("LUCID_AUDIT_MODE", mode)]).await;
        let answer = get(first).await;
        assert_eq!(answer.status(), status, "{mode}");
    }
}

#[tokio::test]
async fn compressed_answers_are_inspected() {
    let model = Router::new().fallback(|headers: HeaderMap| async move {
        let asked = headers.get("accept-encoding").and_then(|value| value.to_str().ok());
        match asked.is_some_and(|asked| asked.contains("gzip")) {
            true => ([("content-encoding", "gzip")], "not to be read"),
            false => ([("content-encoding", "identity")], "to be read"),
        }
    });
    let model = serve(model).await;
    for mode in ["enforce", "observe"] {
        let first = auditor(model, &[("LUCID_AUDIT_MODE", mode)]).await;
        let request = client().get(format!("http://{first}/")).header("accept-encoding", "gzip, br");
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{mode}");
        assert_eq!(answer.text().await.unwrap(), "to be read", "{mode}");
    }
}

#[tokio::test]
async fn encodings_of_empty_bodies_are_ignored() {
    let model = Router::new().fallback(|uri: Uri| async move {
        let status: u16 = uri.path()[1..].parse().unwrap();
        (StatusCode::from_u16(status).unwrap(), [("content-encoding", "gzip")])
    });
    let first = auditor(serve(model).await, &[]).await;
    for (method, status) in [(Method::HEAD, 200), (Method::GET, 204), (Method::GET, 304)] {
        let answer = client().request(method, format!("http://{first}/{status}")).send().await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["content-encoding"]),
            (status, &"gzip".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn a_text_is_judged_without_the_model() {
    let (model, count) = counting_model().await;
    let first = auditor(model, &[]).await;
    let url = format!("http://{first}/audit");
    for (text, verdict) in [
        ("hello", json!({"allowed": true})),
        (
            "the secret word",
            json!({"allowed": false, "rule": "phrase", "message": "Phrase: the text is refused"}),
        ),
    ] {
        let answer = client().post(&url).body(text).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.json::<Value>().await.unwrap(), verdict);
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    // Another method on this path is the model's.
    assert_eq!(client().get(&url).send().await.unwrap().text().await.unwrap(), "answered");
}
