//! Observers change and delay nothing.

use super::answers::same;
use super::checks;
use super::forwarding::pass;
use super::protocols::{CHAT, pieces};
use crate::auditor::bench::{
    Bench, CHUNKED, JSON, Outcome, PLAIN, answer, chunk, ensure, request, stream_head,
};
use crate::auditor::message::End;
use crate::auditor::model::Script;

checks! {
    "observe-request", "Requests with the refused text pass unchanged" => pass(false, &[
        ("POST /v1/chat/completions", JSON, "{ \"messages\":[{\"content\" : \"$TEXT\"}] }\n", &[]),
        ("POST /v1/chat/completions", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", r#"{"prompt":"$MANY"}"#, &["Content-Encoding: gzip"]),
        ("POST /v1/chat/completions", "Content-Type: application/octet-stream\r\n", "\u{0}\u{1}", &[])]);
    "observe-upload", "Each piece of a request reaches the model before the next is sent" => upload();
    "observe-answer", "Answers with the refused text pass unchanged" => answers();
    "observe-stream", "Each piece of an answer reaches the caller before the next is sent" => stream();
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

async fn answers(bench: &mut Bench) -> Outcome {
    same(bench, &[(CHAT.path, "{ \"choices\":[{\"message\" : {\"content\":\"$TEXT\"}}] }\n")]).await?;
    let text = bench.fill("You should $TEXT.");
    bench.say(CHAT.said(pieces(&text).iter().map(|piece| CHAT.piece(piece)))).await?;
    let received = bench.exchange(CHAT.request()).await?;
    let joined = CHAT.joined(&received);
    ensure(received.end == End::Whole && joined.contains(&bench.refused), "the same stream at the caller")
}

async fn stream(bench: &mut Bench) -> Outcome {
    let (sender, script) = Script::pieces();
    bench.play(script).await?;
    let mut caller = bench.connect().await?;
    caller.send(CHAT.request()).await;
    let _ = sender.send(stream_head("text/event-stream"));
    for piece in pieces(&bench.refused) {
        let frame = CHAT.piece(&piece);
        let _ = sender.send(chunk(&frame));
        let answer = caller.until(|answer| answer.body.ends_with(frame.as_bytes())).await;
        let has_arrived = answer.is_some_and(|answer| answer.body.ends_with(frame.as_bytes()));
        ensure(has_arrived, format!("the piece {piece:?} at the caller"))?;
    }
    Ok(())
}
