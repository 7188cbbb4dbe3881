//! Observers change and delay nothing.

use futures::FutureExt;

use super::Check;
use super::requests::gzip;
use super::streams::{CHAT, pieces};
use crate::auditor::bench::{Bench, Outcome, answer, chunk, ensure, post_with, stream_head};
use crate::auditor::message::{End, find};
use crate::auditor::model::Script;

pub(super) const CHECKS: &[Check] = &[
    Check::new("observe-request", "Requests with the refused text pass unchanged", |bench| {
        request(bench).boxed()
    }),
    Check::new(
        "observe-upload",
        "Each piece of a request reaches the model before the next is sent",
        |bench| upload(bench).boxed(),
    ),
    Check::new("observe-answer", "Answers with the refused text pass unchanged", |bench| {
        answers(bench).boxed()
    }),
    Check::new(
        "observe-stream",
        "Each piece of an answer reaches the caller before the next is sent",
        |bench| stream(bench).boxed(),
    ),
];

async fn request(bench: &mut Bench) -> Outcome {
    let json = format!("{{ \"messages\":[{{\"content\" : \"{}\"}}] }}\n", bench.refused);
    let zipped = gzip(&json);
    for (headers, body) in [
        ("Content-Type: application/json\r\n", json.into_bytes()),
        ("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", zipped),
        ("Content-Type: application/octet-stream\r\n", vec![0xff, 0, 0xfe]),
    ] {
        let (received, _) = bench.pass(post_with("/v1/chat/completions", headers, &body)).await?;
        ensure(received.body == body, "the same body at the model")?;
    }
    Ok(())
}

async fn upload(bench: &mut Bench) -> Outcome {
    bench.play(Script::Say(answer("text/plain", "fine"))).await?;
    let mut caller = bench.connect().await?;
    let head = "POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    caller.send(head).await;
    for text in ["one", &bench.refused.clone(), "three"] {
        caller.send(chunk(text)).await;
        let has_arrived = bench.model.until(bench.patience, |all| {
            all.iter().flat_map(|it| it.requests()).any(|it| find(&it.body, text.as_bytes()).is_some())
        });
        ensure(has_arrived.await, format!("the piece {text:?} at the model"))?;
    }
    caller.send(chunk("")).await;
    let answer = caller.answer().await;
    ensure(answer.is_some_and(|it| it.status() == 200 && it.body == b"fine"), "the answer \"fine\"")
}

async fn answers(bench: &mut Bench) -> Outcome {
    let body = format!("{{ \"choices\":[{{\"message\" : {{\"content\":\"{}\"}}}}] }}\n", bench.refused);
    bench.play(Script::Say(answer("application/json", &body))).await?;
    let received = bench.exchange(post_with("/v1/chat/completions", "", "{}")).await?;
    ensure(received.status() == 200 && received.body == body.as_bytes(), "the same body at the caller")?;
    let frames =
        pieces(&format!("You should {}.", bench.refused)).into_iter().map(|piece| CHAT.piece(&piece));
    let said = CHAT.said(frames);
    bench.play(Script::Say(said)).await?;
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
