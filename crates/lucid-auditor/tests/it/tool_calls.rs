//! Arguments and results of tools: JSON in JSON strings.

use std::convert::Infallible;

use axum::{Router, body::Body};
use futures::{StreamExt as _, stream};
use lucid_auditor::{Auditor, Direction, Judge, JudgeError, JudgePolicy, Passage, Span, Verdict};
use serde_json::{Value, json};

use crate::protocols::{CARD, both, echoed, joined, streamed, streaming};
use crate::{Phrase, auditor_with, client, serve, within};

/// Replaces a text wherever it occurs, each of its parts by its own replacement.
struct Parts(&'static [&'static str]);

impl Judge for Parts {
    async fn judge(&self, passage: &Passage<'_>) -> Result<Verdict, JudgeError> {
        let whole = self.0.concat();
        let spans = passage.text.match_indices(&whole).flat_map(|(mut at, _)| {
            self.0.iter().map(move |part| {
                at += part.len();
                Span::new(at - part.len()..at, "part", "<X>")
            })
        });
        Ok(Verdict::Mask(spans.collect()))
    }

    fn undecided(&self, text: &str) -> usize {
        let whole = self.0.concat();
        let lengths = (1..whole.len()).rev();
        lengths.into_iter().find(|&length| text.ends_with(&whole[..length])).unwrap_or_default()
    }
}

async fn post(judge: impl FnOnce(Auditor) -> Auditor, path: &str, answer: &Value, body: &Value) -> Value {
    let model = serve(streaming("application/json", vec![answer.to_string()])).await;
    let address = auditor_with(model, &[], judge).await;
    let request = client().post(format!("http://{address}{path}")).json(body);
    within(within(request.send()).await.unwrap().json()).await.unwrap()
}

#[tokio::test]
async fn masks_keep_arguments_and_results_valid() {
    let answer = |arguments: &str| json!({"choices": [{"index": 0, "message": {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}}]});
    let event = |arguments: &str| {
        let delta = json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
        json!({"choices": [{"index": 0, "delta": delta}]})
    };
    let result = |text: &str| json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}});
    for (arguments, parts, masked) in [
        (r#"{"phone": 4155552671}"#, &["4155552671"][..], r#"{"phone": "<X>"}"#),
        (r#"{"n":[4155552671, 1]}"#, &["4155552671"], r#"{"n":["<X>", 1]}"#),
        (r#"{"n":4111222233334444}"#, &["4111"], r#"{"n":"<X>"}"#),
        (r#"{"n":4111222233334444,"m":1}"#, &["3333", "4444"], r#"{"n":"<X>","m":1}"#),
        (r#"{"card":-4111111111111111}"#, &[CARD], r#"{"card":"<X>"}"#),
        (r#"{"t":"password x","k":1}"#, &["password x\","], r#"{"t":"<X>","k":1}"#),
        (r#"{"a":4155552671,"b":[1, -22 ,true]}"#, &["555"], r#"{"a":"<X>","b":[1, -22 ,true]}"#),
        (r#"{"a":4155552671,"b":[1, -22 ,true]}"#, &["22"], r#"{"a":4155552671,"b":[1, "<X>" ,true]}"#),
        (r#"{"t":"a\"b","k":1}"#, &["\"b\",\"k"], r#"{"t":"a<X>","":1}"#),
        (r#"call 4155552671"#, &["4155552671"], "call <X>"),
    ] {
        let judge = |auditor: Auditor| auditor.judge(Parts(parts));
        let whole = post(judge, "/v1/chat/completions", &answer(arguments), &json!({})).await;
        assert_eq!(whole, answer(masked), "{arguments}");
        let masked_result =
            post(judge, "/mcp", &result(arguments), &json!({"jsonrpc": "2.0", "id": 1})).await;
        assert_eq!(masked_result, result(masked), "{arguments}");
        for size in [1, 3, 200] {
            let pieces = arguments.as_bytes().chunks(size).map(|piece| str::from_utf8(piece).unwrap());
            let pieces = pieces.map(|piece| format!("data: {}\n\n", event(piece))).collect();
            let model = serve(streaming("text/event-stream", pieces)).await;
            let address = auditor_with(model, &[], judge).await;
            let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
            let content = within(within(request.send()).await.unwrap().text()).await.unwrap();
            assert_eq!(joined(&content, &event("SAMPLE")), masked, "{arguments} {size}");
        }
    }
}

#[tokio::test]
async fn long_runs_in_arguments_are_not_withheld_as_numbers() {
    let arguments = format!("[{}", "a".repeat(1000));
    let delta = json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let event = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    let model = Router::new().fallback(move || {
        let open = stream::iter([Ok::<_, Infallible>(event.clone())]).chain(stream::pending());
        async { ([("content-type", "text/event-stream")], Body::from_stream(open)) }
    });
    let address = auditor_with(serve(model).await, &[], |auditor| auditor.judge(Parts(&["secret"]))).await;
    let request = client().post(format!("http://{address}/v1/chat/completions")).json(&json!({}));
    let mut answer = within(request.send()).await.unwrap();
    assert!(within(answer.chunk()).await.unwrap().is_some());
}

#[tokio::test]
async fn results_that_only_begin_like_json_are_text() {
    let result = |text: &str| json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}});
    for (text, part, masked) in [
        ("[2024-05-01] card 4111 1111 charged", "4111 1111", "[2024-05-01] card <X> charged"),
        ("[link](https://x.test/?t=secret) ok", "secret", "[link](https://x.test/?t=<X>) ok"),
    ] {
        let judge = |auditor: Auditor| auditor.judge(Parts(Box::leak(Box::new([part]))));
        let masked_result = post(judge, "/mcp", &result(text), &json!({"jsonrpc": "2.0", "id": 1})).await;
        assert_eq!(masked_result, result(masked));
    }
}

#[tokio::test]
async fn escapes_of_nested_json_are_decoded() {
    // The arguments are JSON in a JSON string: their escapes are escaped again, and cut.
    let event = |text: &str| {
        let delta = json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
    };
    let pieces = vec![event(r#"{"q":"the s\u00"#), event(r"65cret wo"), event(r#"\u0072d"}"#)];
    let (content, _) = streamed("/v1/chat/completions", "text/event-stream", pieces).await;
    assert!(content.contains("content_filter") && !content.contains("0072"), "{content}");
}

#[tokio::test]
async fn final_events_are_judged_as_the_calls_that_they_repeat() {
    let arguments = r#"{"a":"\u0073ecret word"}"#;
    let call = json!({"type": "function_call", "arguments": arguments});
    let custom = json!({"type": "custom_tool_call", "input": arguments});
    for (path, event) in [
        ("/v1/responses", json!({"type": "response.function_call_arguments.done", "arguments": arguments})),
        ("/v1/responses", json!({"type": "response.custom_tool_call_input.done", "input": arguments})),
        ("/v1/responses", json!({"type": "response.output_item.done", "item": call})),
        ("/v1/responses", json!({"type": "response.output_item.done", "item": custom})),
        ("/v1/responses", json!({"type": "response.completed", "response": {"output": [call]}})),
        (
            "/v1/messages",
            json!({"type": "content_block_start", "index": 0, "content_block": {"input": {"a": "secret word"}}}),
        ),
        (
            "/v1/chat/completions",
            json!({"choices": [{"delta": {"tool_calls": [{"custom": {"input": arguments}}]}}]}),
        ),
    ] {
        let model = serve(streaming("text/event-stream", vec![format!("data: {event}\n\n")])).await;
        let policy = JudgePolicy::default().with_directions([Direction::ToolCall]);
        let address = auditor_with(model, &[], |it| it.judge_with(Phrase("secret word"), policy)).await;
        let request = client().post(format!("http://{address}{path}")).json(&json!({})).send();
        let content = within(within(request).await.unwrap().text()).await.unwrap();
        assert!(!content.contains("word") && !content.is_empty(), "{event}: {content}");
    }
    let event =
        json!({"type": "response.function_call_arguments.done", "arguments": format!("{{\"n\":{CARD}}}")});
    let (content, _) =
        streamed("/v1/responses", "text/event-stream", vec![format!("data: {event}\n\n")]).await;
    let sample = json!({"arguments": "SAMPLE"});
    assert_eq!(joined(&content, &sample), r#"{"n":"<CARD>"}"#, "{content}");
}

#[tokio::test]
async fn values_of_forms_and_queries_are_judged_without_escapes() {
    let form = "payload=%7B%22a%22%3A%22%5Cu0073ecret+word%22%7D";
    let (status, _) = echoed(&[], "/other", "application/x-www-form-urlencoded", form).await;
    assert_eq!(status, 403);
    let (status, _) = echoed(&[], &format!("/other?{form}"), "text/plain", "").await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn json_that_is_called_a_form_is_masked_unless_it_is_ambiguous() {
    let form = "application/x-www-form-urlencoded";
    let body = |text: &str| json!({"prompt": text}).to_string();
    let (status, passed) = echoed(&[], "/api/generate", form, &body(CARD)).await;
    assert_eq!((status, passed), (200, body("<card>")));
    for text in [format!("{CARD} + 1"), format!("{CARD} %20"), "the s%65cret word".to_owned()] {
        assert_eq!(echoed(&[], "/api/generate", form, &body(&text)).await.0, 403, "{text}");
    }
}

#[tokio::test]
async fn json_rpc_batches_get_an_error_for_each_request() {
    let call = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"arguments": {"a": "the secret word"}}});
    let refused = post(both, "/mcp", &json!({}), &json!([call(1), call(2)])).await;
    let ids: Vec<_> = refused.as_array().unwrap().iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [1, 2]);
    assert!(refused[1]["error"]["message"].as_str().unwrap().contains("the text is refused"), "{refused}");
}
