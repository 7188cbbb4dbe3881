//! Content that must not change, and refusals that clients understand.

use axum::{Router, body::Bytes, http::HeaderMap};
use serde_json::{Value, json};

use crate::protocols::{CARD, both, echoed, events, streamed, streaming};
use crate::{auditor_with, client, serve, within};

/// Base64 with the number of a card.
const ENCODED: &str = "EqQBCkYIBRgC+4111111111111111/Zm9v==";

fn sse(event: &Value) -> String {
    format!("data: {event}\n\n")
}

/// Returns the body that reaches the model, with `[card]` for the number of a card.
async fn received(path: &str, body: &Value) -> String {
    let model = Router::new().fallback(|body: String| async move { body.replace(CARD, "[card]") });
    let address = auditor_with(serve(model).await, &[], both).await;
    let request = client().post(format!("http://{address}{path}")).json(body);
    within(within(request.send()).await.unwrap().text()).await.unwrap()
}

#[tokio::test]
async fn opaque_members_pass_byte_for_byte() {
    let text = format!("the card {CARD}");
    let block = |block: Value| json!({"messages": [{"role": "assistant", "content": [block]}]});
    for (path, body) in [
        ("/v1/messages", block(json!({"type": "thinking", "thinking": "", "signature": ENCODED}))),
        ("/v1/messages", block(json!({"type": "redacted_thinking", "data": ENCODED}))),
        ("/v1/messages", block(json!({"type": "web_search_result", "encrypted_content": ENCODED}))),
        (
            "/v1/responses",
            json!({"input": [{"type": "reasoning", "summary": [], "encrypted_content": ENCODED}]}),
        ),
        ("/v1/responses", json!({"previous_response_id": "resp_4111111111111111", "input": "hello"})),
        (
            "/v1beta/models/g:generateContent",
            json!({"contents": [{"parts": [{"thoughtSignature": ENCODED}]}]}),
        ),
        ("/v1/chat/completions", block(json!({"extra_content": {"google": {"thought_signature": ENCODED}}}))),
        ("/v1/chat/completions", block(json!({"type": "reasoning.encrypted", "data": ENCODED}))),
        ("/mcp", json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": ENCODED}})),
    ] {
        assert_eq!(received(path, &body).await, body.to_string().replace(CARD, "[card]"), "{path}");
    }
    // Text in their place is judged as text.
    let passed = received("/v1/messages", &block(json!({"type": "thinking", "signature": text}))).await;
    assert!(passed.contains("the card <CARD>"), "{passed}");
    // Data of another kind of block is text, too.
    let passed = received("/v1/messages", &block(json!({"type": "text", "data": ENCODED}))).await;
    assert!(passed.contains("<CARD>"), "{passed}");
    let delta = json!({"type": "signature_delta", "signature": ENCODED});
    let event = sse(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    assert_eq!(streamed("/v1/messages", "text/event-stream", vec![event.clone()]).await, (event, true));
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ENCODED});
    let event = sse(&json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    assert_eq!(streamed("/v1/responses", "text/event-stream", vec![event.clone()]).await, (event, true));
}

async fn answered(
    variables: &[(&str, &str)],
    path: &str,
    content_type: &'static str,
    pieces: Vec<String>,
) -> (u16, String) {
    let address = auditor_with(serve(streaming(content_type, pieces)).await, variables, both).await;
    let answer =
        within(client().post(format!("http://{address}{path}")).json(&json!({})).send()).await.unwrap();
    (answer.status().as_u16(), within(answer.text()).await.unwrap_or_default())
}

#[tokio::test]
async fn vectors_of_any_length_pass() {
    let numbers: Vec<f64> = (0..500).map(|n| f64::from(n) / 7.0).collect();
    let encoded = ENCODED.repeat(100);
    let vector = |index: usize, embedding: &Value| json!({"object": "embedding", "index": index, "embedding": embedding});
    for (path, name, element) in [
        ("/v1/embeddings", "data", vector(0, &json!(numbers))),
        ("/v1/embeddings", "data", vector(1, &json!(encoded))),
        ("/api/embed", "embeddings", json!(numbers)),
    ] {
        let mut pieces = vec![format!("{{\"object\":\"list\",\"{name}\":[{element}")];
        pieces.extend((1..20).map(|_| format!(", {element}")));
        pieces.push("],\"model\":\"m\",\"usage\":{\"prompt_tokens\":8}}".to_owned());
        let sent = pieces.concat();
        let limit = [("MAX_BODY_BYTES", "20000")];
        assert_eq!(answered(&limit, path, "application/json", pieces).await, (200, sent), "{path}");
    }
    // One is longer than the limit.
    let element = vector(0, &json!(vec![1.5; 50_000]));
    let sent = format!("{{\"data\":[{element}],\"model\":\"m\"}}");
    let limit = [("MAX_BODY_BYTES", "100000")];
    assert_eq!(answered(&limit, "/v1/embeddings", "application/json", vec![sent.clone()]).await, (200, sent));
    // Text between the vectors is judged.
    let piece = format!("{{\"data\":[{}],\"warning\":\"{CARD}\"}}", vector(0, &json!([1.5])));
    let (_, passed) = answered(&[], "/v1/embeddings", "application/json", vec![piece]).await;
    assert!(!passed.contains(CARD), "{passed}");
}

#[tokio::test]
async fn elements_of_an_array_are_masked_and_refused() {
    let text = |text: &str| json!({"candidates": [{"index": 0, "content": {"parts": [{"text": text}]}}]});
    let path = "/v1beta/models/g:streamGenerateContent";
    let pieces = |texts: [&str; 3]| {
        let [a, b, c] = texts.map(text);
        vec![format!("[{a}"), format!(",\r\n{b}"), format!(",\r\n{c}"), "\n]".to_owned()]
    };
    let (_, passed) =
        answered(&[], path, "application/json", pieces(["card 41111111", "11111111", " ok"])).await;
    let passed: Value = serde_json::from_str(&passed).unwrap();
    let texts: String = passed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event.pointer("/candidates/0/content/parts/0/text")?.as_str())
        .collect();
    assert_eq!(texts, "card <CARD> ok");
    let (status, passed) = answered(&[], path, "application/json", pieces(["the ", "secret ", "word"])).await;
    let ended: Value = serde_json::from_str(&passed).unwrap_or_else(|error| panic!("{error}: {passed}"));
    assert_eq!((status, &ended[2]["candidates"][0]["finishReason"]), (200, &json!("SAFETY")), "{passed}");
}

#[tokio::test]
async fn rows_are_judged_one_by_one_and_named() {
    let row = |text: &str| {
        json!({"custom_id": "a", "body": {"messages": [{"role": "user", "content": text}]}}).to_string()
    };
    let form = |rows: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{rows}\r\n--b--\r\n")
    };
    for content_type in ["application/jsonl", "multipart/form-data; boundary=b"] {
        let body = |rows: &[&str]| {
            let rows = rows.iter().map(|text| row(text)).collect::<Vec<_>>().join("\n");
            if content_type == "application/jsonl" { rows } else { form(&rows) }
        };
        let (status, masked) = echoed(&[], "/v1/files", content_type, &body(&["hello", CARD, "bye"])).await;
        assert_eq!((status, masked), (200, body(&["hello", "<card>", "bye"])));
        let (status, told) =
            echoed(&[], "/v1/files", content_type, &body(&["a", "b", "the secret word"])).await;
        assert!(status == 403 && told.contains("row 3: Phrase: "), "{told}");
        let escaped = body(&["a", "the secret"]).replace("secret", "s\\u0065cret word");
        assert_eq!(echoed(&[], "/v1/files", content_type, &escaped).await.0, 403);
    }
    // Outside of the rows, text cannot be replaced.
    let (status, _) =
        echoed(&[], "/v1/files", "multipart/form-data", &format!("{CARD}\n{}", form(&row("hello")))).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn text_that_is_encoded_twice_is_judged() {
    for target in [
        "/a?q=the%20secret%20word",
        "/a?q=the%2520secret%2520word",
        "/the%20secret%20word",
        "/the%2520secret%2520word",
    ] {
        assert_eq!(echoed(&[], target, "text/plain", "").await.0, 403, "{target}");
    }
    let form = "application/x-www-form-urlencoded";
    assert_eq!(echoed(&[], "/a", form, "q=the%2520s%2565cret%2520word").await.0, 403);
    assert_eq!(echoed(&[], "/v1/models/a%20b", "text/plain", "").await.0, 200);
}

#[tokio::test]
async fn consecutive_messages_of_one_role_are_joined() {
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let many = |count, last: [&str; 2]| -> Value {
        let messages = std::iter::repeat_n("so ", count).chain(last);
        messages.map(|content| message("user", content)).collect()
    };
    for (messages, status) in [
        (json!([message("user", "the secret "), message("user", "word")]), 403),
        (json!([message("user", "the sec"), message("user", "ret word")]), 403),
        (json!([message("user", "the secret "), message("assistant", "no"), message("user", "word")]), 200),
        (json!([message("user", "the secret "), message("system", "word")]), 200),
        (json!([message("user", "the secret "), message("tool", ""), message("user", "word")]), 403),
        (json!([{"role": "user", "content": "the secret ", "zz": "k"}, message("user", "word")]), 403),
        (json!([message("tool", "the sec"), message("tool", "ret word")]), 403),
        (json!([message("tool", "the sec"), message("user", "hello"), message("tool", "ret word")]), 200),
        (many(1100, ["the sec", "ret word"]), 403),
        // The second one is beyond the maximum number of texts.
        (many(1023, ["the sec", "ret word"]), 403),
    ] {
        let body = json!({"messages": messages}).to_string();
        let (found, told) = echoed(&[], "/v1/chat/completions", "application/json", &body).await;
        assert_eq!(found, status, "{}: {told:.200}", &body[body.len().saturating_sub(200)..]);
    }
}

#[tokio::test]
async fn an_early_end_continues_the_stream() {
    let chat = |text: &str| {
        let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": null});
        sse(
            &json!({"id": "c9", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}),
        )
    };
    let (content, _) =
        streamed("/v1/chat/completions", "text/event-stream", ["the ", "secret word"].map(chat).to_vec())
            .await;
    let last = events(&content).pop().unwrap();
    assert_eq!((&last["id"], &last["created"], &last["model"]), (&json!("c9"), &json!(7), &json!("m")));
    assert_eq!((&last["rule"], &last["auditor"]), (&json!("phrase"), &json!("lucid-auditor")));
    assert_eq!(last["message"], "Phrase: the text is refused");

    let block = |text: &str| {
        let delta = json!({"type": "text_delta", "text": text});
        sse(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    };
    let usage = json!({"input_tokens": 5, "output_tokens": 3});
    let start =
        sse(&json!({"type": "message_start", "message": {"id": "m1", "type": "message", "usage": usage}}));
    let open =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let open = sse(&open);
    let (content, _) =
        streamed("/v1/messages", "text/event-stream", vec![start, open, block("the "), block("secret word")])
            .await;
    let kinds: Vec<_> =
        events(&content).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds[3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(events(&content)[4]["usage"]["output_tokens"], 3);
    // Nothing was sent.
    let (content, _) = streamed("/v1/messages", "text/event-stream", vec![block("the secret word")]).await;
    assert_eq!(events(&content)[0]["type"], "message_start", "{content}");

    let (content, _) = streamed("/api/chat", "application/x-ndjson", vec![
        format!("{}\n", json!({"model": "m", "message": {"role": "assistant", "content": "the secret word"}, "done": false})),
    ]).await;
    assert_eq!(events(&content)[0]["error"], "Phrase: the text is refused", "{content}");
}

#[tokio::test]
async fn an_early_end_of_responses_closes_open_items() {
    let event = |number: u64, kind: &str, name: &str, value: Value| {
        let mut event = json!({"type": kind, "sequence_number": number, "output_index": 0, "content_index": 0, "item_id": "i"});
        event[name] = value;
        sse(&event)
    };
    // Strict clients require all of these at the end as well.
    let response = json!({"id": "r1", "object": "response", "created_at": 7, "model": "m", "metadata": {"a": "b"},
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "instructions": null});
    let pieces = vec![
        event(0, "response.created", "response", response.clone()),
        event(1, "response.output_item.added", "item", json!({"id": "i", "type": "message", "content": []})),
        event(
            2,
            "response.content_part.added",
            "part",
            json!({"type": "output_text", "text": "", "annotations": []}),
        ),
        event(3, "response.output_text.delta", "delta", json!("the ")),
        event(4, "response.output_text.delta", "delta", json!(format!("{CARD} "))),
        event(5, "response.output_text.delta", "delta", json!("secret word")),
    ];
    let (content, _) = streamed("/v1/responses", "text/event-stream", pieces).await;
    let all = events(&content);
    let kinds: Vec<_> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[5..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    let numbers: Vec<_> = all.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..9).collect::<Vec<_>>());
    let text = json!("the <CARD> ");
    assert_eq!(
        (&all[5]["text"], &all[6]["part"]["text"], &all[7]["item"]["content"][0]["text"]),
        (&text, &text, &text)
    );
    assert_eq!(all[7]["item"]["status"], "incomplete");
    let last = &all[8]["response"];
    for (name, value) in response.as_object().unwrap() {
        assert!(name == "metadata" || last[name] == *value, "{name}: {last}");
    }
    assert_eq!((&last["status"], &last["metadata"]["rule"]), (&json!("incomplete"), &json!("phrase")));
    assert_eq!(last["incomplete_details"], json!({"reason": "content_filter"}));
    assert_eq!((&last["output"][0]["content"][0]["text"], &last["metadata"]["a"]), (&text, &json!("b")));
    let (content, _) = streamed(
        "/v1/responses",
        "text/event-stream",
        vec![event(0, "response.output_text.delta", "delta", json!("the secret word"))],
    )
    .await;
    let kinds: Vec<_> =
        events(&content).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["response.created", "response.incomplete"]);
}

#[tokio::test]
async fn exceeded_limits_are_not_reported_as_verdicts() {
    let long = "x ".repeat(2000);
    let limit = [("MAX_BODY_BYTES", "1000")];
    for (path, event, end) in [
        (
            "/v1/chat/completions",
            json!({"choices": [{"index": 0, "delta": {"content": long}}]}),
            "\"code\":\"too_large\"",
        ),
        (
            "/v1/responses",
            json!({"type": "response.output_text.delta", "delta": long}),
            "event: response.failed",
        ),
        (
            "/v1/messages",
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": long}}),
            "event: error",
        ),
    ] {
        let (_, content) = answered(&limit, path, "text/event-stream", vec![sse(&event)]).await;
        assert!(content.contains(end) && content.contains("longer than 1000 bytes"), "{path}: {content}");
        let verdicts = ["content_filter", "refusal", "permission"];
        assert!(verdicts.iter().all(|verdict| !content.contains(verdict)), "{path}: {content}");
    }
}

#[tokio::test]
async fn errors_have_the_types_of_their_protocol() {
    let model = Router::new().fallback(|_: HeaderMap, _: Bytes| async { "answered" });
    let model = serve(model).await;
    let address = auditor_with(model, &[("MAX_BODY_BYTES", "200")], both).await;
    let large = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(300)}]});
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]}]});
    for (path, body, status, pointer, kind) in [
        ("/v1/messages", &large, 413, "/error/type", "request_too_large"),
        ("/v1/messages", &image, 415, "/error/type", "invalid_request_error"),
        ("/v1/chat/completions", &large, 413, "/error/type", "invalid_request_error"),
        ("/v1/chat/completions", &large, 413, "/error/code", "too_large"),
        ("/v1beta/models/g:generateContent", &large, 413, "/error/status", "INVALID_ARGUMENT"),
    ] {
        let answer =
            within(client().post(format!("http://{address}{path}")).json(body).send()).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let error: Value = within(answer.json()).await.unwrap();
        assert_eq!(error.pointer(pointer), Some(&json!(kind)), "{path}: {error}");
    }
}

#[tokio::test]
async fn texts_continue_until_an_event_ends_them() {
    let chat = |index: Option<u32>, text: &str| {
        let mut choice = json!({"delta": {"content": text}, "finish_reason": ""});
        if let Some(index) = index {
            choice["index"] = index.into();
        }
        sse(&json!({"choices": [choice]}))
    };
    let gemini =
        |parts: Value| sse(&json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}));
    // The index tells which call a piece belongs to.
    let call = |id: &str, function: Value| {
        let delta = json!({"tool_calls": [{"index": 0, "id": id, "function": function}]});
        sse(&json!({"choices": [{"index": 0, "delta": delta}]}))
    };
    let block = |event: Value| sse(&event);
    let delta = |text: &str| {
        let delta = json!({"type": "text_delta", "text": text});
        sse(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    };
    let response =
        |text: &str| sse(&json!({"type": "response.output_text.delta", "output_index": 0, "delta": text}));
    for (path, pieces) in [
        ("/v1/chat/completions", vec![chat(Some(0), "41111111"), chat(None, "11111111")]),
        (
            "/v1/chat/completions",
            vec![
                call("a", json!({"name": "f", "arguments": "{\"n\":\"41111111"})),
                call("b", json!({"arguments": "11111111\"}"})),
            ],
        ),
        (
            "/v1beta/models/g:streamGenerateContent",
            vec![
                gemini(json!([{"text": "Hm ", "thought": true}, {"text": "41111111"}])),
                gemini(json!([{"text": "11111111"}])),
            ],
        ),
        ("/v1/messages", vec![delta("41111111"), block(json!({"type": "other"})), delta("11111111")]),
        (
            "/v1/responses",
            vec![
                response("41111111"),
                block(json!({"type": "response.output_text.annotation.added", "annotation": {}})),
                response("11111111"),
            ],
        ),
    ] {
        let (content, is_whole) = streamed(path, "text/event-stream", pieces).await;
        assert!(is_whole && content.contains("<CARD>") && !content.contains("41111111"), "{path}: {content}");
    }
    // Lines of a stream that is sent as one document.
    let line = |text: &str| format!("{}\n", json!({"message": {"content": text}, "done": false}));
    let (status, content) =
        answered(&[], "/api/chat", "application/json", vec![line("41111111"), line("11111111")]).await;
    assert!(status == 200 && content.contains("<CARD>") && !content.contains("41111111"), "{content}");
}

#[tokio::test]
async fn arguments_of_tools_have_no_identifiers() {
    let input = json!({"id": CARD, "status": CARD, "cursor": CARD});
    let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": input});
    let passed =
        received("/v1/messages", &json!({"messages": [{"role": "assistant", "content": [block]}]})).await;
    assert!(!passed.contains("[card]"), "{passed}");
    let params = json!({"name": "f", "arguments": input});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let passed = received("/mcp", &call).await;
    assert!(!passed.contains("[card]"), "{passed}");
}

#[tokio::test]
async fn words_between_elements_are_judged() {
    for (path, body) in [
        ("/v1/embeddings", format!("{{ my card is {CARD} ok")),
        ("/v1beta/models/g:streamGenerateContent", format!("[ my card is {CARD} ok")),
    ] {
        let (_, passed) = answered(&[], path, "application/json", vec![body]).await;
        assert!(!passed.contains(CARD), "{path}: {passed}");
    }
    let text = json!({"candidates": [{"content": {"parts": [{"text": "the secret word"}]}}]});
    let pieces = vec![format!("[{text}"), "]".to_owned()];
    let path = "/v1beta/models/g:streamGenerateContent";
    let (_, passed) = answered(&[], path, "application/json", pieces).await;
    assert!(serde_json::from_str::<Value>(&passed).is_ok(), "{passed}");
}

#[tokio::test]
async fn long_roles_and_types_are_not_read_for_each_text() {
    let long = "\n".repeat(128 << 10);
    let messages = vec![json!({"content": "a"}); 10_000];
    let data = "\"data\":\"a\",".repeat(10_000);
    let escaped = json!(long).to_string();
    for body in [
        json!({"role": long, "messages": messages}).to_string(),
        format!("{{\"messages\":[],\"x\":{{{data}\"type\":{escaped}}}}}"),
        format!("{{\"messages\":[],\"x\":{{{}\"name\":{escaped}}}}}", "\"data\":[1],".repeat(10_000)),
    ] {
        let (status, _) = within(echoed(&[], "/v1/chat/completions", "application/json", &body)).await;
        assert_eq!(status, 200);
    }
}
