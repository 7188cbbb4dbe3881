//! Observers change and delay nothing.

use super::answers::same;
use super::checks;
use super::forwarding::pass;
use super::protocols::CHAT;
use super::streams::step;
use crate::auditor::bench::{Bench, CHUNKED, JSON, Outcome, PLAIN, answer, chunk, ensure, request};

checks! {
    "observe-request", "Requests with the refused text pass unchanged" => pass(false, &[
        ("POST /v1/chat/completions", JSON, "{ \"messages\":[{\"content\" : \"$TEXT\"}] }\n", &[]),
        ("POST /v1/chat/completions", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", r#"{"prompt":"$MANY"}"#, &["Content-Encoding: gzip"]),
        ("POST /v1/chat/completions", "Content-Type: application/octet-stream\r\n", "\u{0}\u{1}", &[])]);
    "observe-upload", "Each piece of a request reaches the model before the next is sent" => upload();
    "observe-answer", "Answers with the refused text pass unchanged" => same(&[
        ("/v1/chat/completions", "{ \"choices\":[{\"message\" : {\"content\":\"$TEXT\"}}] }\n")]);
    "observe-stream", "Each piece of an answer reaches the caller before the next is sent" => step(&[
        (&CHAT, &[("You should ", "should"), ("$FIRST", "$FIRST"), ("$SECOND", "$SECOND"), ("$TEXT.", "$TEXT")])]);
}

async fn upload(bench: &mut Bench) -> Outcome {
    bench.say(answer(PLAIN, "fine")).await?;
    let mut caller = bench.connect().await?;
    let upload = request("POST /v1/chat", CHUNKED, "one");
    caller.send(&upload[..upload.len() - 5]).await;
    for text in [&bench.refused, "three"] {
        caller.send(chunk(text)).await;
        let has_arrived = bench.model.until(bench.patience, |all| {
            all.iter().flat_map(|it| it.requests()).any(|request| request.has(text))
        });
        ensure(has_arrived.await, format!("the piece {text:?} at the model"))?;
    }
    caller.send(chunk("")).await;
    let answer = caller.answer().await;
    ensure(answer.is_some_and(|it| it.status() == 200 && it.body == b"fine"), "the answer \"fine\"")
}
