//! Answers that arrive whole.

use futures::FutureExt;
use serde_json::{Value, json};

use super::Check;
use super::requests::{REPEATED, gzip};
use crate::auditor::bench::{Bench, Outcome, answer, answer_with, ensure, get, post, post_with, stream_head};
use crate::auditor::message::{End, Message, find};
use crate::auditor::model::Script;

pub(super) const CHECKS: &[Check] = &[
    Check::new("answer-refused", "The text of an answer does not reach the caller", |bench| {
        withhold(bench, |text| json!({"role": "assistant", "content": text})).boxed()
    }),
    Check::new("answer-tool-call", "Tool calls of an answer do not reach the caller", |bench| {
        withhold(bench, |text| {
            let arguments = json!({"query": text}).to_string();
            let call = json!({"id": "1", "type": "function", "function": {"name": "search", "arguments": arguments}});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        })
        .boxed()
    }),
    Check::new("answer-compressed", "A compressed answer does not pass unread", |bench| {
        compressed(bench).boxed()
    }),
    Check::new("answer-cut", "An answer that the model cuts off does not look whole", |bench| {
        cut(bench, "HTTP/1.1").boxed()
    }),
    Check::new("answer-cut-http-1.0", "It does not look whole to HTTP/1.0 either", |bench| {
        cut(bench, "HTTP/1.0").boxed()
    }),
];

async fn withhold(bench: &mut Bench, message: impl Fn(&str) -> Value) -> Outcome {
    let message = message(&format!("Sure: {}.", bench.refused));
    let said = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{
        "index": 0, "message": message, "finish_reason": "stop",
    }]});
    bench.play(Script::Say(answer("application/json", said.to_string()))).await?;
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "Hello"}]});
    let request = post("/v1/chat/completions", request.to_string());
    let answer = bench.exchange(request).await?;
    ensure(!bench.model.requests().is_empty(), "the request at the model")?;
    ensure(!answer.text().contains(&bench.refused), "an answer without the refused text")
}

async fn compressed(bench: &mut Bench) -> Outcome {
    let said = gzip(&format!("{} ", bench.refused).repeat(REPEATED));
    bench
        .play(Script::Say(answer_with("Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", &said)))
        .await?;
    let headers = "Content-Type: text/plain\r\nAccept-Encoding: gzip\r\n";
    let answer = bench.exchange(post_with("/v1/chat", headers, "Hello")).await?;
    let passed = find(&answer.body, &said).is_some() || answer.text().contains(&bench.refused);
    ensure(!passed, "an answer without the compressed text")
}

async fn cut(bench: &mut Bench, version: &str) -> Outcome {
    let chunked = [stream_head("text/plain"), b"4\r\nhalf\r\n".to_vec()].concat();
    for said in [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec(), chunked] {
        bench.play(Script::Say(said)).await?;
        let mut caller = bench.connect().await?;
        caller.send(get("/", "").replace("HTTP/1.1", version)).await;
        let answer: Option<Message> = caller.answer().await;
        let looks_whole = answer.is_some_and(|it| it.status() == 200 && it.end != End::Cut);
        ensure(
            !looks_whole,
            "another status than 200, or a connection that is closed before the end of the body",
        )?;
    }
    // A whole one still passes.
    let said = [stream_head("text/plain"), b"5\r\nwhole\r\n0\r\n\r\n".to_vec()].concat();
    bench.play(Script::Say(said)).await?;
    let answer = bench.exchange(get("/", "").replace("HTTP/1.1", version)).await?;
    ensure(answer.body == b"whole" && answer.end == End::Whole, "the answer \"whole\"")
}
