//! The protocols of models: texts are found, refused and masked.

use std::convert::Infallible;

use axum::{Router, body::Body, http::HeaderMap};
use futures::stream;
use lucid_auditor::{
    AuditMode, Auditor, Direction, Judge, JudgeError, JudgePolicy, OnFailure, Passage, Span, Verdict,
};
use serde_json::{Value, json};

use crate::{Phrase, auditor_with, client, serve, within};

/// Replaces each word of 16 digits. Words that are still incomplete are withheld.
struct Cards;

impl Judge for Cards {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        let mut spans = Vec::new();
        let mut at = 0;
        for word in passage.text.split_inclusive(|c: char| !c.is_ascii_digit()) {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            if digits.len() == 16 {
                spans.push(Span::new(at..at + 16, "card", "<CARD>"));
            }
            at += word.len();
        }
        Ok(Verdict::Mask(spans))
    }

    fn undecided(&self, text: &str) -> usize {
        text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len()
    }
}

struct Recorder(std::sync::Arc<std::sync::Mutex<Vec<Passage<'static>>>>);

impl Judge for Recorder {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        self.0.lock().unwrap().push(passage.clone().into_owned());
        Ok(Verdict::Allow)
    }
}

pub(crate) fn both(auditor: Auditor) -> Auditor {
    auditor.judge(Phrase("secret word")).judge(Cards)
}

pub(crate) const CARD: &str = "4111111111111111";

/// A model that sends the pieces in response to any request.
pub(crate) fn streaming(content_type: &'static str, pieces: Vec<String>) -> Router {
    Router::new().fallback(move || {
        let pieces = pieces.clone();
        async move {
            let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
            ([("content-type", content_type)], Body::from_stream(pieces))
        }
    })
}

/// Returns the content of the answer to `POST path`, and whether it is whole.
pub(crate) async fn streamed(path: &str, content_type: &'static str, pieces: Vec<String>) -> (String, bool) {
    let address = auditor_with(serve(streaming(content_type, pieces)).await, &[], both).await;
    let request = client().post(format!("http://{address}{path}")).json(&json!({"stream": true}));
    let mut answer = within(request.send()).await.unwrap();
    let mut content = Vec::new();
    loop {
        match within(answer.chunk()).await {
            Ok(Some(piece)) => content.extend(piece),
            end => return (String::from_utf8(content).unwrap(), end.is_ok()),
        }
    }
}

/// The text of a stream: one event of each protocol with a piece of text.
type Event = fn(&str) -> Value;

/// Path, content type, event, and what a refused stream ends with.
const STREAMS: [(&str, &str, Event, &[&str]); 12] = [
    (
        "/v1/chat/completions",
        "text/event-stream",
        |text| json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}),
        &["\"finish_reason\":\"content_filter\"", "data: [DONE]"],
    ),
    (
        "/v1/chat/completions",
        "text/event-stream",
        |text| {
            let function = json!({"arguments": text});
            json!({"choices": [{"index": 1, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]})
        },
        &["\"index\":1", "\"finish_reason\":\"content_filter\"", "data: [DONE]"],
    ),
    (
        "/v1/chat/completions",
        "text/event-stream",
        |text| json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]}),
        &["\"finish_reason\":\"content_filter\"", "data: [DONE]"],
    ),
    (
        "/v1/completions",
        "text/event-stream",
        |text| json!({"choices": [{"index": 0, "text": text}]}),
        &["\"text_completion\"", "\"finish_reason\":\"content_filter\"", "data: [DONE]"],
    ),
    (
        "/v1/responses",
        "text/event-stream",
        |text| {
            let kind = "response.output_text.delta";
            json!({"type": kind, "sequence_number": 7, "item_id": "i", "output_index": 0, "delta": text})
        },
        &["event: response.incomplete", "\"reason\":\"content_filter\"", "\"sequence_number\":8"],
    ),
    (
        "/v1/messages",
        "text/event-stream",
        |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        &["event: content_block_stop", "\"stop_reason\":\"refusal\"", "event: message_stop"],
    ),
    (
        "/api/chat",
        "application/x-ndjson",
        |text| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
        &["\"done\":true", "\"done_reason\":\"content_filter\"", "\"message\":{\"content\":\"\""],
    ),
    (
        "/api/generate",
        "application/x-ndjson",
        |text| json!({"model": "m", "response": text, "done": false}),
        &["\"done_reason\":\"content_filter\"", "\"response\":\"\""],
    ),
    (
        "/generate_stream",
        "text/event-stream",
        |text| json!({"token": {"id": 1, "text": text}}),
        &["\"error_type\":\"content_filter\""],
    ),
    (
        "/v1/chat/completions",
        "text/event-stream",
        |text| {
            let detail = json!({"type": "reasoning.text", "text": text, "index": 0});
            json!({"choices": [{"index": 0, "delta": {"reasoning_details": [detail]}}]})
        },
        &["\"finish_reason\":\"content_filter\"", "data: [DONE]"],
    ),
    (
        "/v1/threads/t/runs",
        "text/event-stream",
        |text| {
            let delta = json!({"content": [{"index": 0, "type": "text", "text": {"value": text}}]});
            json!({"id": "m", "object": "thread.message.delta", "delta": delta})
        },
        &["event: error", "\"code\":\"content_filter\"", "event: done", "data: [DONE]"],
    ),
    (
        "/api/answer",
        "text/event-stream",
        |text| json!({"type": "text-delta", "id": "0", "delta": text}),
        &["\"type\":\"error\"", "data: [DONE]"],
    ),
];

fn frame(content_type: &str, event: &Value) -> String {
    match content_type {
        "text/event-stream" => format!("data: {event}\n\n"),
        _ => format!("{event}\n"),
    }
}

pub(crate) fn events(content: &str) -> Vec<Value> {
    let lines = content.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub(crate) fn joined(content: &str, sample: &Value) -> String {
    fn pointer_to(value: &Value, text: &str) -> Option<String> {
        match value {
            Value::String(found) => (found == text).then(String::new),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(index, item)| Some(format!("/{index}{}", pointer_to(item, text)?))),
            Value::Object(members) => {
                members.iter().find_map(|(name, item)| Some(format!("/{name}{}", pointer_to(item, text)?)))
            }
            _ => None,
        }
    }
    let pointer = pointer_to(sample, "SAMPLE").unwrap();
    events(content).iter().filter_map(|event| event.pointer(&pointer)?.as_str().map(str::to_owned)).collect()
}

/// Streams without a description: their texts are joined by the name of the member.
const UNKNOWN_STREAMS: [(&str, &str, Event, &[&str]); 3] = [
    // Cohere v2.
    (
        "/v2/chat",
        "text/event-stream",
        |text| {
            let calls = json!({"function": {"arguments": text}});
            json!({"type": "tool-call-delta", "index": 0, "delta": {"message": {"tool_calls": calls}}})
        },
        &[],
    ),
    // AI SDK 4, and the full stream of 5.
    ("/answer", "text/event-stream", |text| json!({"type": "text-delta", "textDelta": text}), &[]),
    ("/answer", "text/event-stream", |text| json!({"type": "text-delta", "id": "0", "text": text}), &[]),
];

#[tokio::test]
async fn streamed_texts_are_masked_wherever_they_are_cut() {
    for (path, content_type, event, _) in STREAMS.into_iter().chain(UNKNOWN_STREAMS) {
        for size in [1, 5, 16, 100] {
            let text = format!("your card {CARD} and 12345, thanks");
            let pieces = text.as_bytes().chunks(size).map(|piece| str::from_utf8(piece).unwrap());
            let pieces: Vec<_> = pieces.map(|piece| frame(content_type, &event(piece))).collect();
            let count = pieces.len();
            let (content, is_whole) = streamed(path, content_type, pieces).await;
            assert!(is_whole, "{path}: {content}");
            assert_eq!(
                joined(&content, &event("SAMPLE")),
                "your card <CARD> and 12345, thanks",
                "{path} {size}"
            );
            assert_eq!(events(&content).len(), count, "every event stays: {content}");
        }
    }
}

#[tokio::test]
async fn refused_streams_end_as_their_protocol_does() {
    for (path, content_type, event, end) in STREAMS {
        let pieces = ["the ", "secr", "et word", " is fish"].map(|piece| frame(content_type, &event(piece)));
        let (content, is_whole) = streamed(path, content_type, pieces.to_vec()).await;
        assert!(is_whole, "{path}: {content}");
        assert_eq!(joined(&content, &event("SAMPLE")), "the secr", "{path}: {content}");
        for part in end {
            assert!(content.contains(part), "{path}: {part} is missing: {content}");
        }
    }
}

#[tokio::test]
async fn choices_are_separate_texts() {
    let event = |index: u32, text: &str| {
        format!("data: {}\n\n", json!({"choices": [{"index": index, "delta": {"content": text}}]}))
    };
    let pieces = vec![
        event(0, "the secret "),
        event(1, "word"),
        event(0, "4111111111"),
        event(1, "1"),
        event(0, "111111!"),
    ];
    let (content, is_whole) = streamed("/v1/chat/completions", "text/event-stream", pieces).await;
    let texts = events(&content).into_iter().map(|event| event["choices"][0]["delta"]["content"].clone());
    assert_eq!(texts.collect::<Vec<_>>(), ["the secret ", "word", "<CARD>", "!", "1"]);
    assert!(is_whole);
}

#[tokio::test]
async fn other_events_pass_unchanged_and_in_order() {
    let sent = "retry: 10\n\n: comment\r\n\r\nevent: ping\ndata: {\"type\":\"ping\"}\n\ndata: one\ndata: two\n\ndata: [DONE]\n\n";
    let (content, is_whole) =
        streamed("/v1/chat/completions", "text/event-stream", vec![sent.to_owned()]).await;
    assert_eq!((content.as_str(), is_whole), (sent, true));
}

/// Requests of each protocol with a text.
const REQUESTS: [(&str, Event); 16] = [
    ("/v1/chat/completions", |text| json!({"model": "m", "messages": [{"role": "user", "content": text}]})),
    (
        "/v1/chat/completions",
        |text| json!({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
    ),
    ("/v1/chat/completions", |text| {
        let call = json!({"id": "1", "function": {"name": "f", "arguments": json!({"q": text}).to_string()}});
        json!({"messages": [{"role": "assistant", "tool_calls": [call]}]})
    }),
    (
        "/v1/chat/completions",
        |text| json!({"messages": [], "tools": [{"function": {"name": "f", "description": text}}]}),
    ),
    ("/v1/completions", |text| json!({"prompt": [text]})),
    ("/v1/responses", |text| json!({"input": text})),
    (
        "/v1/responses",
        |text| json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}),
    ),
    ("/v1/embeddings", |text| json!({"input": ["a", text]})),
    ("/v1/messages", |text| json!({"system": text, "messages": []})),
    ("/v1/messages", |text| {
        let result =
            json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": text}]});
        json!({"messages": [{"role": "user", "content": [result]}]})
    }),
    ("/api/generate", |text| json!({"model": "m", "prompt": text})),
    ("/v1/models/m:predict", |text| json!({"instances": [{"text": text}]})),
    (
        "/v2/models/m/infer",
        |text| json!({"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}]}),
    ),
    ("/generate", |text| json!({"inputs": text, "parameters": {}})),
    ("/mcp", |text| {
        let params = json!({"name": "search", "arguments": {"query": text}});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    }),
    ("/other", |text| json!({"deep": [[{"er": {"still": text}}]]})),
];

#[tokio::test]
async fn requests_are_refused_and_masked_in_every_protocol() {
    // Answers with the request, as text that is not judged again.
    let model = Router::new().fallback(|headers: HeaderMap, body: String| async move {
        assert_eq!(headers["content-length"], body.len().to_string());
        ([("content-type", "text/plain")], body.replace("<CARD>", "<card>"))
    });
    let address = auditor_with(serve(model).await, &[("LUCID_AUDITOR_ID", "guard")], both).await;
    for (path, request) in REQUESTS {
        let post = |text: &str| client().post(format!("http://{address}{path}")).json(&request(text)).send();
        let answer = post("The Secret Word").await.unwrap();
        let (status, error) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        let (expected, message) = match path {
            "/mcp" => (200, &error["error"]["message"]),
            "/v1/chat/completions" | "/v1/completions" | "/v1/responses" | "/v1/embeddings" | "/other" => {
                assert_eq!(error["error"]["code"], "content_filter");
                (403, &error["error"]["message"])
            }
            "/v1/messages" => {
                assert_eq!(error["type"], "error");
                (403, &error["error"]["message"])
            }
            _ => (403, &error["error"]),
        };
        assert_eq!(status, expected, "{path}: {error}");
        let message = message.as_str().unwrap();
        assert!(message.starts_with("Phrase: the text is refused ("), "{path}: {error}");
        if path == "/mcp" {
            assert_eq!((&error["jsonrpc"], &error["id"]), (&json!("2.0"), &json!(7)));
        }
        let answer = post(&format!("card \"{CARD}\"\n")).await.unwrap().json::<Value>().await.unwrap();
        assert_eq!(answer, request("card \"<card>\"\n"), "{path}");
    }
}

#[tokio::test]
async fn whole_answers_are_refused_and_masked() {
    for (path, event) in [
        (
            "/v1/chat/completions",
            (|text| json!({"choices": [{"index": 0, "message": {"content": text}}]})) as Event,
        ),
        ("/v1/chat/completions", |text| {
            let call = json!({"function": {"name": "f", "arguments": json!({"q": text}).to_string()}});
            json!({"choices": [{"index": 0, "message": {"tool_calls": [call]}}]})
        }),
        ("/v1/messages", |text| json!({"content": [{"type": "tool_use", "input": {"q": [text]}}]})),
        ("/api/chat", |text| json!({"message": {"role": "assistant", "content": text}})),
        (
            "/v2/models/m/infer",
            |text| json!({"outputs": [{"name": "o", "datatype": "BYTES", "data": [text]}]}),
        ),
        ("/generate", |text| json!([{"generated_text": text}])),
        (
            "/mcp",
            |text| json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}),
        ),
        ("/other", |text| json!({"anything": text})),
    ] {
        for (text, masked) in [("the secret word", None), (CARD, Some("<CARD>"))] {
            let body = event(text).to_string();
            let model = streaming("application/json", vec![body]);
            let address = auditor_with(serve(model).await, &[], both).await;
            let request = client().post(format!("http://{address}{path}"));
            let answer = request.json(&json!({"jsonrpc": "2.0", "id": 1})).send().await.unwrap();
            match masked {
                Some(masked) => assert_eq!(answer.json::<Value>().await.unwrap(), event(masked), "{path}"),
                None => {
                    let error = answer.text().await.unwrap();
                    assert!(
                        error.contains("Phrase: ") && !error.contains("the secret word\\"),
                        "{path}: {error}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn tokens_of_a_masked_answer_are_removed() {
    let logprobs = json!({"content": [{"token": CARD, "bytes": [52]}], "logprobs": {"token": CARD}});
    let body = json!({"choices": [{"index": 0, "logprobs": logprobs, "token_ids": [1], "message": {"content": CARD}}]});
    let model = streaming("application/json", vec![body.to_string()]);
    let address = auditor_with(serve(model).await, &[], both).await;
    let answer =
        client().post(format!("http://{address}/v1/chat/completions")).json(&json!({})).send().await.unwrap();
    let expected = json!({"choices": [{"index": 0, "message": {"content": "<CARD>"}, "logprobs": null, "token_ids": []}]});
    assert_eq!(answer.json::<Value>().await.unwrap(), expected);

    // Ollama sends the token ids of all texts in the end.
    for (text, context) in [(CARD, json!([])), ("hello", json!([1, 2]))] {
        let lines = [
            json!({"model": "m", "response": format!("{text} "), "done": false}),
            json!({"model": "m", "response": "", "done": true, "context": [1, 2]}),
        ];
        let lines = lines.map(|line| format!("{line}\n")).to_vec();
        let (content, _) = streamed("/api/generate", "application/x-ndjson", lines).await;
        assert_eq!(events(&content).last().unwrap()["context"], context, "{content}");
    }
    let tokens = json!([{"id": 1, "text": CARD, "logprob": -0.5}]);
    let info = json!({"id": "x", "finish_reason": null, "output_token_logprobs": [[-0.5, 1, CARD]]});
    for (path, answer, expected) in [
        (
            "/generate",
            json!({"generated_text": CARD, "details": {"seed": 1, "tokens": tokens, "prefill": []}}),
            json!({"generated_text": "<CARD>", "details": {"seed": 1, "tokens": [], "prefill": []}}),
        ),
        (
            "/generate",
            json!([{"text": CARD, "output_ids": [1, 2], "meta_info": info}]),
            json!([{"text": "<CARD>", "output_ids": [], "meta_info":
                {"id": "x", "finish_reason": null, "output_token_logprobs": []}}]),
        ),
        (
            "/v1/completions",
            json!({"choices": [{"index": 0, "text": CARD}], "logprobs": 5, "token": {"id": 1}}),
            json!({"choices": [{"index": 0, "text": "<CARD>"}], "logprobs": 5, "token": {"id": 1}}),
        ),
    ] {
        let model = serve(streaming("application/json", vec![answer.to_string()])).await;
        let address = auditor_with(model, &[], both).await;
        let request = client().post(format!("http://{address}{path}")).json(&json!({}));
        assert_eq!(within(request.send()).await.unwrap().json::<Value>().await.unwrap(), expected);
    }
    for (event, expected) in [
        (
            json!({"index": 1, "token": {"id": 7, "text": CARD, "special": false}, "top_tokens": tokens}),
            json!({"index": 1, "token": {"id": 0, "text": "<CARD>", "special": false}, "top_tokens": []}),
        ),
        (
            json!({"text": CARD, "output_ids": [1, 2], "meta_info": {"id": "x"}}),
            json!({"text": "<CARD>", "output_ids": [], "meta_info": {"id": "x"}}),
        ),
        (
            json!({"token": {"id": 7, "text": "hello"}, "generated_text": null}),
            json!({"token": {"id": 7, "text": "hello"}, "generated_text": null}),
        ),
    ] {
        let event = format!("data: {event}\n\n");
        let (content, _) = streamed("/generate", "text/event-stream", vec![event]).await;
        assert_eq!(events(&content), [expected], "{content}");
    }
    // The argument of a tool repeats nothing.
    let call = json!({"function": {"name": "f", "arguments": {"context": ["a"]}}});
    let line = json!({"message": {"content": CARD, "tool_calls": [call]}, "done": true});
    let (content, _) = streamed("/api/chat", "application/x-ndjson", vec![format!("{line}\n")]).await;
    let call = &events(&content)[0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"]["context"], json!(["a"]), "{content}");
}

#[tokio::test]
async fn passages_have_a_location() {
    let seen = std::sync::Arc::default();
    let recorder = Recorder(std::sync::Arc::clone(&seen));
    let answer = json!({"choices": [{"index": 2, "message": {"role": "assistant", "content": "fine"}}]});
    let model = serve(streaming("application/json", vec![answer.to_string()])).await;
    let address = auditor_with(model, &[], |auditor| auditor.judge(recorder)).await;
    let request = json!({"model": "m", "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        {"role": "tool", "tool_call_id": "x", "content": "22 degrees"},
    ]});
    client().post(format!("http://{address}/v1/chat/completions")).json(&request).send().await.unwrap();
    let seen = seen.lock().unwrap();
    let told = seen.iter().map(|passage| {
        (&*passage.text, passage.direction, passage.role.as_deref(), passage.choice, &*passage.location)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("be kind", Direction::Prompt, Some("system"), None, "/messages/0"),
            ("one two", Direction::Prompt, Some("user"), None, "/messages/1"),
            ("22 degrees", Direction::ToolResult, Some("tool"), None, "/messages/2"),
            // Parts are also judged on separate lines.
            ("one \ntwo", Direction::Prompt, Some("user"), None, "/messages/1"),
            ("fine", Direction::Completion, Some("assistant"), Some(2), "/choices/0/message"),
        ]
    );
}

#[tokio::test]
async fn judges_follow_directions_and_failure_mode_of_their_policy() {
    struct Broken;
    impl Judge for Broken {
        async fn judge(&self, _: &Passage<'_>) -> Result<Verdict, JudgeError> {
            Err(JudgeError::new("the service is away"))
        }
    }
    let event =
        |text: &str| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
    let model = serve(streaming("text/event-stream", ["fine ", "words"].map(event).to_vec())).await;
    let policy = || JudgePolicy::default().with_name("remote");
    for (policy, status, end) in [
        (policy(), 503, "judge_failed"),
        (policy().with_on_failure(OnFailure::Allow), 200, "words"),
        (policy().with_mode(AuditMode::Observe), 200, "words"),
        (policy().with_directions([Direction::ToolCall]), 200, "words"),
        (policy().with_directions([Direction::Completion]), 200, "judge_failed"),
    ] {
        let address = auditor_with(model, &[], |auditor| auditor.judge_with(Broken, policy.clone())).await;
        let request = client().post(format!("http://{address}/v1/chat/completions"));
        let request = request.json(&json!({"messages": [{"role": "user", "content": "hello"}]}));
        let answer = within(request.send()).await.unwrap();
        assert_eq!(answer.status(), status, "{policy:?}");
        let content = within(answer.text()).await.unwrap();
        assert!(content.contains(end), "{policy:?}: {content}");
    }
}

#[tokio::test]
async fn metrics_count_verdicts_without_text() {
    let event = json!({"choices": [{"index": 0, "message": {"content": CARD}}]});
    let model = serve(streaming("application/json", vec![event.to_string()])).await;
    let (address, metrics) = crate::auditor_with_metrics(model, both).await;
    client().post(format!("http://{address}/v1/chat/completions")).body("hello").send().await.unwrap();
    client().post(format!("http://{address}/")).body("the secret word").send().await.unwrap();
    let text = metrics();
    for line in [
        r#"lucid_auditor_verdicts_total{judge="Cards",direction="completion",action="mask",rule="card",enforced="true"} 1"#,
        r#"lucid_auditor_verdicts_total{judge="Phrase",direction="prompt",action="deny",rule="phrase",enforced="true"} 1"#,
        r#"lucid_auditor_requests_total{code="403"} 1"#,
        r#"lucid_auditor_forwarded_bytes_total{message="request"} 20"#,
    ] {
        assert!(text.contains(line), "{line} is missing: {text}");
    }
    // The whole number: a time, such as 0.000041115, contains its first digits.
    assert!(!text.contains("secret") && !text.contains(CARD), "{text}");
}

/// Returns status and body of the answer to a request, which the model echoes as text that is not JSON.
pub(crate) async fn echoed(
    variables: &[(&str, &str)],
    path: &str,
    content_type: &str,
    body: &str,
) -> (u16, String) {
    let model = Router::new().fallback(|body: String| async move {
        ([("content-type", "text/plain")], body.replace("<CARD>", "<card>"))
    });
    let address = auditor_with(serve(model).await, variables, both).await;
    let request = client().post(format!("http://{address}{path}")).header("content-type", content_type);
    let answer = within(request.body(body.to_owned()).send()).await.unwrap();
    (answer.status().as_u16(), within(answer.text()).await.unwrap())
}

#[tokio::test]
async fn numbers_and_identifiers_defined_by_models_are_texts() {
    for (body, masked) in [
        (r#"{"card":4111111111111111,"n":1}"#, r#"{"card":"<card>","n":1}"#),
        (r#"{"cards":[1,4111111111111111]}"#, r#"{"cards":[1,"<card>"]}"#),
        (r#"{"id":"4111111111111111"}"#, r#"{"id":"<card>"}"#),
    ] {
        for path in ["/other", "/v1/models/m:predict"] {
            assert_eq!(echoed(&[], path, "application/json", body).await, (200, masked.to_owned()), "{path}");
        }
    }
    // A member of another protocol does not make the others identifiers.
    for body in [
        r#"{"messages":[],"id":"4111111111111111","type":"4111111111111111"}"#,
        r#"{"contents":[],"responseId":"4111111111111111"}"#,
        r#"{"jsonrpc":"2.0","id":"4111111111111111"}"#,
        r#"{"inputs":"","model":"4111111111111111"}"#,
    ] {
        let masked = body.replace(CARD, "<card>");
        assert_eq!(echoed(&[], "/other", "application/json", body).await, (200, masked), "{body}");
    }
    let body = r#"{"messages":[{"role":"tool","tool_call_id":"4111111111111111"}],"model":"m"}"#;
    for path in ["/other", "/v1/chat/completions"] {
        // Only the answer, which is plain text, is masked.
        let passed = body.replace(CARD, "<CARD>");
        assert_eq!(echoed(&[], path, "application/json", body).await, (200, passed), "{path}");
    }
    for (path, body, masked) in [
        (
            "/v1/models/m:predict",
            r#"{"instances":[{"type":"4111111111111111"}]}"#,
            r#"{"instances":[{"type":"<card>"}]}"#,
        ),
        (
            "/v2/models/m/infer",
            r#"{"parameters":{"id":"4111111111111111"}}"#,
            r#"{"parameters":{"id":"<card>"}}"#,
        ),
    ] {
        assert_eq!(echoed(&[], path, "application/json", body).await, (200, masked.to_owned()), "{path}");
    }
    let event = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"card": 4_111_111_111_111_111_u64}}]})
    );
    let (content, is_whole) = streamed("/v1/chat/completions", "text/event-stream", vec![event]).await;
    assert_eq!(events(&content)[0]["choices"][0]["delta"]["card"], "<CARD>", "{content}");
    assert!(is_whole);
}

#[tokio::test]
async fn records_of_a_json_text_sequence_are_masked() {
    let record = |text: &str| format!("\u{1e}{}\n", json!({"response": text}));
    let pieces = vec![record(&format!("card {CARD} "))];
    let (content, is_whole) = streamed("/api/generate", "application/json-seq", pieces).await;
    assert!(is_whole && content == record("card <CARD> "), "{content}");
}

#[tokio::test]
async fn an_encoded_path_names_its_protocol() {
    let (status, body) =
        echoed(&[], "/api/%63hat", "application/json", r#"{"messages":["the secret word"]}"#).await;
    let error: Value = serde_json::from_str(&body).unwrap();
    let message = "Phrase: the text is refused (messages[0])";
    assert_eq!((status, &error["error"]), (403, &json!(message)));
}

#[tokio::test]
async fn compressed_requests_pass_if_allowed() {
    let (model, count) = crate::counting_model().await;
    let address = auditor_with(model, &[("LUCID_UNJUDGED", "pass")], both).await;
    let request = client().post(format!("http://{address}/")).header("content-encoding", "compress");
    assert_eq!(request.body(vec![0x1f, 0x8b]).send().await.unwrap().status(), 200);
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn no_part_of_a_stream_escapes_the_judges() {
    let data = "data: {\"choices\":[]}\n";
    for hidden in [
        "data: {\"choices\":[{\"delta\":{\"the secret word\":1}}]}\n\n".to_owned(),
        format!("{data}: the secret word\n\n"),
        format!("{data}x-text: the secret word\n\n"),
        format!("{data}: card {CARD}!\n\n"),
        format!("data: {{\"a\":\"x\" \"{CARD}\"\n\n"),
        "data: {\"a\":\"the se\0cret word\"}\n\n".to_owned(),
    ] {
        let (content, _) = streamed("/v1/chat/completions", "text/event-stream", vec![hidden.clone()]).await;
        let is_refused = ["content_filter", "unreadable"].iter().any(|code| content.contains(code));
        assert!(is_refused, "{hidden}: {content}");
        assert!(!content.contains("word") && !content.contains(CARD), "{hidden}: {content}");
    }
}

#[tokio::test]
async fn the_end_of_a_stream_follows_what_the_caller_has_received() {
    let block = |index: u32, text: &str| {
        let delta = json!({"type": "text_delta", "text": text});
        let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
        let start = json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}});
        let stop = json!({"type": "content_block_stop", "index": index});
        [start, delta, stop].map(|event| format!("data: {event}\n\n"))
    };
    // The number is withheld until its block ends.
    let sent = [block(0, "card 4111"), block(1, "the secret word")].concat();
    let (content, _) = streamed("/v1/messages", "text/event-stream", sent).await;
    let kinds = events(&content).into_iter().map(|event| (event["type"].clone(), event["index"].clone()));
    let expected = [
        (json!("content_block_start"), json!(0)),
        (json!("content_block_delta"), json!(0)),
        (json!("content_block_stop"), json!(0)),
        (json!("content_block_start"), json!(1)),
        (json!("content_block_stop"), json!(1)),
        (json!("message_delta"), Value::Null),
        (json!("message_stop"), Value::Null),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected, "{content}");
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n".to_owned();
    let sent = [&block(0, "the ")[..2], &[ping], &block(0, "secret word")[1..2]].concat();
    let (content, _) = streamed("/v1/messages", "text/event-stream", sent).await;
    let stop = json!({"type": "content_block_stop", "index": 0});
    assert!(events(&content).contains(&stop), "{content}");
    let chunk = |index: u32, text: &str, reason: Value| {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": reason});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let sent = [
        chunk(0, "a ", Value::Null),
        chunk(1, "b ", Value::Null),
        chunk(0, "", json!("stop")),
        chunk(1, "secret word", Value::Null),
    ];
    let (content, _) = streamed("/v1/chat/completions", "text/event-stream", sent.to_vec()).await;
    let last = events(&content).pop().unwrap();
    assert_eq!((&last["choices"][0]["index"], last["choices"].as_array().unwrap().len()), (&json!(1), 1));
    let lines = ["the ", "secret word"]
        .map(|text| format!("{}\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]})));
    for content_type in
        ["application/x-ndjson", "application/x-jsonl", "application/jsonlines; charset=utf-8"]
    {
        let (content, _) = streamed("/v1/chat/completions", content_type, lines.to_vec()).await;
        let is_ended = content.ends_with("}\n") && !content.contains("[DONE]");
        assert!(is_ended && content.contains("content_filter"), "{content_type}: {content}");
    }
}
