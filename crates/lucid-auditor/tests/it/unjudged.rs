//! Content that cannot be judged.

use axum::Router;
use serde_json::{Value, json};

use crate::protocols::{both, echoed, streaming};
use crate::{auditor_with, client, serve, within};

#[tokio::test]
async fn json_in_other_encodings_is_not_judged_as_text() {
    let (model, count) = crate::counting_model().await;
    let address = auditor_with(model, &[], both).await;
    let body: Vec<u8> = r#"{"prompt":"the secret word"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for body in [body, vec![0xff, 0xfe, 0xfd]] {
        let answer = client().post(format!("http://{address}/")).body(body).send().await.unwrap();
        assert_eq!(answer.status(), 415);
    }
    let query = client().get(format!("http://{address}/?q=the+%73ecret+word")).send().await.unwrap();
    assert_eq!(query.status(), 403);
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn text_is_judged_with_any_headers() {
    let (model, count) = crate::counting_model().await;
    let address = auditor_with(model, &[("LUCID_UNJUDGED", "pass")], both).await;
    let text = r#"{"prompt":"the secret word"}"#;
    let utf_16: Vec<u8> = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (name, value, body, status) in [
        ("content-encoding", "compress", text.as_bytes(), 403),
        ("content-type", "application/json; charset=utf-16", text.as_bytes(), 403),
        // Parsers replace the byte, or detect the encoding.
        ("x", "", &[text.as_bytes(), b"\xff"].concat(), 415),
        ("x", "", &utf_16, 415),
    ] {
        let request = client().post(format!("http://{address}/")).header(name, value).body(body.to_vec());
        assert_eq!(request.send().await.unwrap().status(), status, "{name}: {value}");
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn token_ids_cannot_be_judged() {
    for body in [
        r#"{"prompt":[464,3200]}"#,
        r#"{"input":[["a"],[ 1,2]]}"#,
        r#"{"model":"m","prompt_token_ids":[1]}"#,
        r#"{"prompt":"","Context":[1]}"#,
    ] {
        let (status, told) = echoed(&[], "/v1/completions", "application/json", body).await;
        assert!(status == 415 && told.contains("token ids in /"), "{body}: {told}");
        let passed = echoed(&[("LUCID_UNJUDGED", "pass")], "/v1/completions", "application/json", body).await;
        assert_eq!(passed, (200, body.to_owned()));
    }
    let ids = r#"{"inputs":[{"name":"input_ids","datatype":"INT64","shape":[2],"data":[464,3200]}]}"#;
    let (status, told) = echoed(&[], "/v2/models/m/infer", "application/json", ids).await;
    assert!(status == 415 && told.contains("token ids in /inputs/0/data"), "{told}");
    let tensor = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1.5,2.5]}]}"#;
    assert_eq!(echoed(&[], "/v2/models/m/infer", "application/json", tensor).await.0, 200);
}

#[tokio::test]
async fn long_names_do_not_slow_down_their_descendants() {
    let ids = vec![r#""id":"a""#; 50_000].join(",");
    let body = format!(r#"{{"messages":[],"{}":{{{ids}}}}}"#, "A".repeat(400_000));
    assert_eq!(echoed(&[], "/v1/chat/completions", "application/json", &body).await.0, 200);
}

#[tokio::test]
async fn other_charsets_cannot_be_judged() {
    for (charset, status) in [("utf-16", 415), ("UTF-7", 415), ("\"utf-8\"", 200), ("ISO-8859-1", 200)] {
        let content_type = format!("application/json; charset={charset}");
        assert_eq!(echoed(&[], "/", &content_type, "{}").await.0, status, "{charset}");
    }
    let model = serve(streaming("text/event-stream; charset=utf-16", vec!["data: x\n\n".to_owned()])).await;
    let address = auditor_with(model, &[], both).await;
    assert_eq!(client().get(format!("http://{address}/")).send().await.unwrap().status(), 422);
}

#[tokio::test]
async fn unjudged_answers_are_refused_with_a_final_status() {
    let audio =
        json!({"choices": [{"index": 0, "message": {"audio": {"id": "a", "data": "aGk="}}}]}).to_string();
    let large = json!({"choices": [{"index": 0, "message": {"content": "x".repeat(400)}}]}).to_string();
    for (content_type, body) in [
        ("application/json", audio.into_bytes()),
        ("application/json", large.into_bytes()),
        ("application/json", b"{\"a\":\"\xff\"}".to_vec()),
        ("text/plain", b"\xff".to_vec()),
        ("application/octet-stream", b"hello".to_vec()),
        ("application/json; charset=utf-16", b"{}".to_vec()),
    ] {
        // Errors of the model stay what they are.
        for (status, expected) in [(200, 422), (404, 404), (429, 429), (529, 529)] {
            let response = (
                axum::http::StatusCode::from_u16(status).unwrap(),
                [("content-type", content_type), ("retry-after", "7")],
                body.clone(),
            );
            let model = serve(Router::new().fallback(move || async { response })).await;
            let address = auditor_with(model, &[("MAX_BODY_BYTES", "300")], both).await;
            let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
            let answer = within(request.send()).await.unwrap();
            assert_eq!(answer.status(), expected, "{content_type} {body:?}");
            let after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap());
            assert_eq!(after, (status >= 400).then_some("7"), "{content_type} {body:?}");
            let told: Value = answer.json().await.unwrap();
            let message = told["error"]["message"].as_str().unwrap();
            assert!(message.contains("cannot be judged") || message.contains("not UTF-8"), "{message}");
        }
    }
}

#[tokio::test]
async fn events_that_are_not_text_pass_only_if_allowed() {
    let event =
        |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    let pieces =
        [event("the ").into_bytes(), b"data: \xff\n\n".to_vec(), event("secret word").into_bytes()].concat();
    let model = Router::new().fallback(move || {
        let pieces = pieces.clone();
        async move { ([("content-type", "text/event-stream")], pieces) }
    });
    let model = serve(model).await;
    for (unjudged, passes) in [("pass", true), ("refuse", false)] {
        let address = auditor_with(model, &[("LUCID_UNJUDGED", unjudged)], both).await;
        let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
        let content = within(within(request.send()).await.unwrap().bytes()).await.unwrap_or_default();
        assert_eq!(content.windows(7).any(|bytes| bytes == b"data: \xff"), passes, "{unjudged}: {content:?}");
        assert!(!content.windows(4).any(|bytes| bytes == b"word"), "{unjudged}: {content:?}");
    }
}

#[tokio::test]
async fn images_sounds_and_files_of_a_request_cannot_be_judged() {
    let message = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let text = || json!({"type": "text", "text": "hello"});
    for (path, request, place) in [
        (
            "/v1/chat/completions",
            message(json!([text(), {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}])),
            "/messages/0/content/1/image_url",
        ),
        // vLLM.
        (
            "/v1/chat/completions",
            message(json!([{"image_url": {"url": "data:image/png;base64,aGk="}}])),
            "/messages/0/content/0/image_url",
        ),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            "/input/0/content/0/type",
        ),
        (
            "/v1/responses",
            json!({"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]}),
            "/input/0/output/type",
        ),
        (
            "/v1/messages",
            message(json!([{"type": "document", "source": {"type": "base64", "data": "aGk="}}])),
            "/messages/0/content/0/source/type",
        ),
        (
            "/v1/messages",
            message(json!([{"type": "tool_result", "content": [{"type": "image", "source": {}}]}])),
            "/messages/0/content/0/content/0/type",
        ),
        (
            "/v1/services/generation",
            json!({"input": message(json!([{"type": "image_url", "image_url": {"url": "https://a.test/b.png"}}]))}),
            "/input/messages/0/content/0/image_url",
        ),
        ("/api/generate", json!({"prompt": "hello", "Images": [null, "aGk="]}), "/Images"),
        ("/api/chat", json!({"messages": [{"content": "hello", "images": ["aGk="]}]}), "/messages/0/images"),
        // Go takes this for `images`.
        (
            "/api/chat",
            json!({"messages": [{"content": "hello", "IMAGE\u{17f}": ["aGk="]}]}),
            "/messages/0/IMAGE\u{17f}",
        ),
        ("/generate", json!({"text": "hello", "image_data": "aGk="}), "/image_data"),
        (
            "/mcp",
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": {"type": "image", "data": "aGk="}}}),
            "/result/content/type",
        ),
    ] {
        let body = request.to_string();
        let (status, told) = echoed(&[], path, "application/json", &body).await;
        let found = format!("an image, sound or file in {place}, which");
        let refused = if path == "/mcp" { 200 } else { 415 };
        assert!(status == refused && told.contains(&found), "{body}: {told}");
        let passed = echoed(&[("LUCID_UNJUDGED", "pass")], path, "application/json", &body).await;
        assert_eq!(passed, (200, body));
    }
    for request in [
        message(json!([text(), {"type": "document", "source": {"type": "text", "data": "hello"}}])),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {"type": "file"}}}),
        message(json!([{"type": "text", "text": "hello", "image_url": null}])),
        message(json!([{"type": "tool_use", "input": {"images": ["a"], "content": [{"type": "file"}]}}])),
        message(json!([{"type": "text", "text": "hello", "image_url": ""}])),
        json!({"jsonrpc": "2.0", "id": 1, "params": {"arguments": {"images": ["nginx:1"]}}}),
        json!({"input": ["file", "image"], "images": []}),
        json!({"source": {"type": "url"}, "items": [{"type": "image"}]}),
    ] {
        let body = request.to_string();
        assert_eq!(echoed(&[], "/", "application/json", &body).await, (200, body));
    }
}

#[tokio::test]
async fn images_sounds_and_files_of_an_answer_cannot_be_judged() {
    let choice = |part: &str, message: Value| json!({"choices": [{"index": 0, part: message}]});
    for (answer, is_media) in [
        (choice("message", json!({"content": null, "audio": {"id": "a", "data": "aGk="}})), true),
        (choice("delta", json!({"audio": {"id": "a", "data": "aGk="}})), true),
        (json!({"output": [{"type": "image_generation_call", "result": "aGk="}]}), true),
        (json!({"type": "x", "item": {"type": "image_generation_call", "result": "aGk="}}), true),
        (json!({"data": [{"b64_json": "aGk="}]}), true),
        (choice("message", json!({"images": [{"image_url": {"url": "data:image/png;base64,aGk="}}]})), true),
        (json!({"jsonrpc": "2.0", "result": {"contents": [{"uri": "a", "blob": "aGk="}]}}), true),
        (
            json!({"jsonrpc": "2.0", "result": {"tools": [{"inputSchema": {"properties": {
            "image_data": {"type": "string"}, "b64_json": {"type": "string"}}}}]}}),
            false,
        ),
        (json!({"jsonrpc": "2.0", "result": {"structuredContent": {"content": [{"type": "file"}]}}}), false),
        (json!({"predictions": [{"item": {"id": 7, "type": "video"}}]}), false),
        (json!({"jsonrpc": "2.0", "result": {"content": [{"type": "image", "data": "aGk="}]}}), true),
        (choice("message", json!({"content": "hi", "audio": null})), false),
        (json!({"model": "m", "response": "", "done": true, "context": [1, 2, 3]}), false),
    ] {
        for (content_type, body) in
            [("application/json", answer.to_string()), ("text/event-stream", format!("data: {answer}\n\n"))]
        {
            let model = serve(streaming(content_type, vec![body.clone()])).await;
            for (unjudged, refuses) in [("pass", false), ("refuse", is_media)] {
                let address = auditor_with(model, &[("LUCID_UNJUDGED", unjudged)], both).await;
                let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
                let told = within(within(request.send()).await.unwrap().text()).await.unwrap_or_default();
                assert_eq!(told != body, refuses, "{unjudged}: {body}: {told}");
                assert!(!refuses || !told.contains("aGk="), "{told}");
            }
        }
    }
}
