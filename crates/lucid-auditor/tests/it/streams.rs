//! Streams stay streams: each event arrives before the next one is sent, unless it ends in an undecided word.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Body};
use futures::{StreamExt as _, channel::mpsc};
use lucid_auditor::{Judge, JudgeError, Passage, Verdict};
use serde_json::{Value, json};

use crate::{auditor_with, client, serve, within};

/// Withholds the last word, which may go on.
struct LastWord;

impl Judge for LastWord {
    async fn judge(&self, _: &Passage<'_>) -> Result<Verdict, JudgeError> {
        Ok(Verdict::Allow)
    }

    fn undecided(&self, text: &str) -> usize {
        text.len() - text.rfind(' ').map_or(0, |space| space + 1)
    }
}

/// Sends events one by one. After each, those must have arrived that are not withheld.
async fn lock_step(name: &str, path: &str, content_type: &'static str, events: &[(String, &[usize])]) {
    let (send, receive) = mpsc::unbounded::<String>();
    let receive = Arc::new(Mutex::new(Some(receive)));
    let model = Router::new().fallback(move || {
        let pieces = receive.lock().unwrap().take().unwrap().map(Ok::<_, Infallible>);
        async move { ([("content-type", content_type)], Body::from_stream(pieces)) }
    });
    let address = auditor_with(serve(model).await, &[], |auditor| auditor.judge(LastWord)).await;
    let request = client().post(format!("http://{address}{path}")).json(&json!({"stream": true}));
    let mut answer = None;
    let mut arrived = String::new();
    let mut waiting: Vec<usize> = Vec::new();
    for (index, (event, withheld)) in events.iter().enumerate() {
        send.unbounded_send(event.clone()).unwrap();
        if answer.is_none() {
            answer = Some(within(request.try_clone().unwrap().send()).await.unwrap());
        }
        waiting.push(index);
        let (late, due): (Vec<_>, Vec<_>) = waiting.iter().partition(|index| withheld.contains(index));
        let read = async {
            while !due.iter().all(|&index: &usize| arrived.contains(events[index].0.trim())) {
                let piece = answer.as_mut().unwrap().chunk().await.unwrap().unwrap();
                arrived.push_str(str::from_utf8(&piece).unwrap());
            }
        };
        let limit = std::time::Duration::from_secs(20);
        let is_read = tokio::time::timeout(limit, read).await.is_ok();
        assert!(is_read, "{name}: after event {index}, {due:?} are due: {arrived}");
        for index in &late {
            assert!(!arrived.contains(events[*index].0.trim()), "{name}: {index} is withheld: {arrived}");
        }
        waiting = late;
    }
    drop(send);
    while let Some(piece) = within(answer.as_mut().unwrap().chunk()).await.unwrap() {
        arrived.push_str(str::from_utf8(&piece).unwrap());
    }
    for (event, _) in events {
        assert!(arrived.contains(event.trim()), "{name}: {event} is missing: {arrived}");
    }
}

fn sse(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn line(event: &Value) -> String {
    format!("{event}\n")
}

fn chunk(choices: &Value) -> String {
    sse(
        &json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}),
    )
}

fn delta(delta: &Value) -> String {
    chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]))
}

#[tokio::test]
async fn texts_of_a_chat_end_with_the_next_kind_and_with_their_reason() {
    let call = |id: &str, arguments: &str| {
        delta(
            &json!({"tool_calls": [{"index": 0, "id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]}),
        )
    };
    let argument =
        |arguments: &str| delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
    let events = [
        (sse(&json!({"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]})), &[][..]),
        (delta(&json!({"role": "assistant", "content": ""})), &[]),
        (delta(&json!({"reasoning_content": "Hm"})), &[2]),
        (": ping\n\n".to_owned(), &[2]),
        (delta(&json!({"content": "Let me"})), &[4]),
        (delta(&json!({"content": " see"})), &[5]),
        (call("a", ""), &[]),
        (argument("{\"city\":\"Pa"), &[7]),
        (argument("ris\"}"), &[7, 8]),
        (call("b", ""), &[]),
        (argument("{}"), &[10]),
        (chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])), &[]),
        (sse(&json!({"id": "c", "choices": [], "usage": {"total_tokens": 3}})), &[]),
        ("data: [DONE]\n\n".to_owned(), &[]),
    ];
    lock_step("chat", "/v1/chat/completions", "text/event-stream", &events).await;
}

#[tokio::test]
async fn choices_do_not_wait_for_each_other() {
    let choice = |index: u32, text: &str, reason: Value| {
        chunk(&json!([{"index": index, "delta": {"content": text}, "finish_reason": reason}]))
    };
    let events = [
        (choice(0, "One", Value::Null), &[0][..]),
        (choice(1, "Two ", Value::Null), &[0]),
        (choice(1, "", json!("stop")), &[0]),
        (choice(0, " more", Value::Null), &[3]),
        (choice(0, "", json!("stop")), &[]),
    ];
    lock_step("n = 2", "/v1/chat/completions", "text/event-stream", &events).await;
}

#[tokio::test]
async fn texts_of_responses_end_with_their_done_event() {
    let response = json!({"id": "r", "object": "response", "instructions": "Be kind", "tool_choice": "auto", "truncation": "disabled"});
    let event = |kind: &str, member: &str, value: Value| {
        let mut event = json!({"type": kind, "sequence_number": 1, "output_index": 0, "item_id": "i"});
        event[member] = value;
        sse(&event)
    };
    let part = json!({"type": "output_text", "text": "", "annotations": []});
    let call = json!({"type": "function_call", "name": "get_weather", "arguments": "", "call_id": "c"});
    let events = [
        (event("response.created", "response", response.clone()), &[][..]),
        (event("response.in_progress", "response", response), &[]),
        (event("response.output_item.added", "item", json!({"type": "message", "content": []})), &[]),
        (event("response.content_part.added", "part", part), &[]),
        (event("response.output_text.delta", "delta", json!("Hello")), &[4]),
        (event("keepalive", "x", json!(1)), &[4]),
        (event("response.output_text.delta", "delta", json!(" you")), &[6]),
        (event("response.output_text.done", "text", json!("Hello you")), &[]),
        (event("response.output_item.added", "item", call), &[]),
        (event("response.function_call_arguments.delta", "delta", json!("{\"a\"")), &[9]),
        (event("response.function_call_arguments.done", "arguments", json!("{\"a\"")), &[]),
    ];
    lock_step("responses", "/v1/responses", "text/event-stream", &events).await;
}

#[tokio::test]
async fn blocks_of_anthropic_end_with_their_stop() {
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "inference_geo": "not_available"});
    let message = json!({"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage});
    let start = |index: u32, block: Value| {
        sse(&json!({"type": "content_block_start", "index": index, "content_block": block}))
    };
    let delta = |index: u32, delta: Value| {
        sse(&json!({"type": "content_block_delta", "index": index, "delta": delta}))
    };
    let stop = |index: u32| sse(&json!({"type": "content_block_stop", "index": index}));
    let events = [
        (sse(&json!({"type": "message_start", "message": message})), &[][..]),
        (start(0, json!({"type": "thinking", "thinking": "", "signature": ""})), &[]),
        (delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})), &[2]),
        (sse(&json!({"type": "ping"})), &[2]),
        (delta(0, json!({"type": "signature_delta", "signature": "4111111111111111AA=="})), &[]),
        (stop(0), &[]),
        (start(1, json!({"type": "text", "text": ""})), &[]),
        (delta(1, json!({"type": "text_delta", "text": "Hello"})), &[7]),
        (stop(1), &[]),
        (start(2, json!({"type": "tool_use", "id": "t", "name": "get_weather", "input": {}})), &[]),
        (delta(2, json!({"type": "input_json_delta", "partial_json": "{\"city\":"})), &[10]),
        (stop(2), &[]),
        (sse(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}})), &[]),
        (sse(&json!({"type": "message_stop"})), &[]),
    ];
    lock_step("anthropic", "/v1/messages", "text/event-stream", &events).await;
}

#[tokio::test]
async fn details_of_the_reasoning_wait_for_their_text_only() {
    let details = |text: &str| {
        let detail =
            json!({"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0});
        delta(&json!({"role": "assistant", "content": "", "reasoning": text, "reasoning_details": [detail]}))
    };
    let signed = json!({"type": "reasoning.text", "signature": "EqQBCkYIBRgC", "format": "anthropic-claude-v1", "index": 0});
    let events = [
        (details("We "), &[][..]),
        (details("need"), &[1]),
        (details(" more "), &[]),
        (delta(&json!({"reasoning_details": [signed]})), &[]),
        (delta(&json!({"content": "Hello"})), &[4]),
        (chunk(&json!([{"index": 0, "delta": {}, "finish_reason": "stop"}])), &[]),
    ];
    lock_step("details", "/v1/chat/completions", "text/event-stream", &events).await;
}

#[tokio::test]
async fn events_of_assistants_end_their_texts() {
    let event = |name: &str, data: Value| format!("event: thread.{name}\ndata: {data}\n\n");
    let run = || json!({"id": "run_1", "object": "thread.run", "status": "queued", "assistant_id": "asst_1", "instructions": "Be kind"});
    let message = |text: &str| {
        let part = json!({"index": 0, "type": "text", "text": {"value": text, "annotations": []}});
        let delta = json!({"content": [part]});
        event("message.delta", json!({"id": "msg_1", "object": "thread.message.delta", "delta": delta}))
    };
    let step = |arguments: &str| {
        let call = json!({"index": 0, "type": "function", "function": {"arguments": arguments}});
        let delta = json!({"step_details": {"type": "tool_calls", "tool_calls": [call]}});
        event("run.step.delta", json!({"id": "step_1", "object": "thread.run.step.delta", "delta": delta}))
    };
    let whole = json!({"id": "msg_1", "object": "thread.message", "content": [{"type": "text", "text": {"value": "Hello you"}}]});
    let events = [
        (event("run.created", run()), &[][..]),
        (message("Hel"), &[1]),
        (message("lo "), &[]),
        (message("you"), &[3]),
        (event("message.completed", whole), &[]),
        (step("{\"city\":\"Pa"), &[5]),
        (event("run.requires_action", run()), &[]),
        ("event: done\ndata: [DONE]\n\n".to_owned(), &[]),
    ];
    lock_step("assistants", "/v1/threads/t/runs", "text/event-stream", &events).await;
}

#[tokio::test]
async fn parts_of_ui_messages_end_their_texts() {
    let part = |kind: &str, more: Value| {
        let mut part = json!({"type": kind});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        sse(&part)
    };
    let events = [
        (part("start", json!({"messageId": "msg_1"})), &[][..]),
        (part("start-step", json!({})), &[]),
        (part("reasoning-start", json!({"id": "r"})), &[]),
        (part("reasoning-delta", json!({"id": "r", "delta": "Hm"})), &[3]),
        (part("reasoning-end", json!({"id": "r"})), &[]),
        (part("text-start", json!({"id": "t"})), &[]),
        (part("text-delta", json!({"id": "t", "delta": "Hel"})), &[6]),
        (part("text-delta", json!({"id": "t", "delta": "lo "})), &[]),
        (part("text-delta", json!({"id": "t", "delta": "you"})), &[8]),
        (part("text-end", json!({"id": "t"})), &[]),
        (part("tool-input-start", json!({"toolCallId": "c", "toolName": "weather"})), &[]),
        (part("tool-input-delta", json!({"toolCallId": "c", "inputTextDelta": "{\"city"})), &[11]),
        (
            part(
                "tool-input-available",
                json!({"toolCallId": "c", "toolName": "weather", "input": {"city": "Paris"}}),
            ),
            &[],
        ),
        (part("tool-output-available", json!({"toolCallId": "c", "output": {"sky": "blue"}})), &[]),
        (part("data-weather", json!({"data": {"city": "Paris"}})), &[]),
        (part("finish-step", json!({})), &[]),
        (part("finish", json!({})), &[]),
        ("data: [DONE]\n\n".to_owned(), &[]),
    ];
    lock_step("ui", "/api/answer", "text/event-stream", &events).await;
}

#[tokio::test]
async fn ollama_lines_do_not_wait_for_other_texts() {
    let message = |message: Value| {
        line(&json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false}))
    };
    let call = json!([{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]);
    let events = [
        (message(json!({"role": "assistant", "content": "", "thinking": "Hm"})), &[0][..]),
        (message(json!({"role": "assistant", "content": "Let"})), &[1]),
        (message(json!({"role": "assistant", "content": "", "tool_calls": call})), &[]),
        (message(json!({"role": "assistant", "content": "It is"})), &[3]),
        (line(&json!({"model": "m", "message": {"content": ""}, "done": true, "done_reason": "stop"})), &[]),
    ];
    lock_step("ollama", "/api/chat", "application/x-ndjson", &events).await;
}

#[tokio::test]
async fn elements_of_an_array_arrive_one_by_one() {
    let text =
        |text: &str| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]});
    let last = json!({"candidates": [{"content": {"parts": [{"text": "!"}]}, "finishReason": "STOP"}], "modelVersion": "g"});
    let events = [
        (format!("[{}", text("Hello ")), &[][..]),
        (format!(",\r\n{}", text("wor")), &[1]),
        (format!(",\n{}", text("ld ")), &[]),
        // Some models state a finish reason in each element.
        (format!(",\n{last}"), &[3]),
        ("]".to_owned(), &[]),
    ];
    lock_step("gemini", "/v1beta/models/g:streamGenerateContent", "application/json", &events).await;
}
