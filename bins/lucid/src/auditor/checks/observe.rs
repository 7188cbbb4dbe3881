//! Observers change and delay nothing.

use super::checks;
use super::protocols::{CHAT, pieces};
use crate::auditor::bench::{Bench, JSON, Outcome, PLAIN, answer, chunk, ensure, post, stream_head};
use crate::auditor::codings::encode;
use crate::auditor::message::End;
use crate::auditor::model::Script;

checks! {
    "observe-request", "Requests with the refused text pass unchanged" => request();
    "observe-upload", "Each piece of a request reaches the model before the next is sent" => upload();
    "observe-answer", "Answers with the refused text pass unchanged" => answers();
    "observe-stream", "Each piece of an answer reaches the caller before the next is sent" => stream();
}

async fn request(bench: &mut Bench) -> Outcome {
    let json = bench.fill("{ \"messages\":[{\"content\" : \"$TEXT\"}] }\n").into_bytes();
    for (headers, body) in [
        (JSON, &json[..]),
        ("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", &json),
        ("Content-Type: application/octet-stream\r\n", &[0xff, 0, 0xfe]),
    ] {
        let (received, _) = bench.pass(post("/v1/chat/completions", headers, body)).await?;
        let coding = if headers.contains("gzip") { "gzip" } else { "" };
        ensure(received.body == encode(coding, body), "the same body at the model")?;
    }
    Ok(())
}

async fn upload(bench: &mut Bench) -> Outcome {
    bench.say(answer(PLAIN, "fine")).await?;
    let mut caller = bench.connect().await?;
    let head = "POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    caller.send(head).await;
    for text in ["one", &bench.refused, "three"] {
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
    let body = bench.fill("{ \"choices\":[{\"message\" : {\"content\":\"$TEXT\"}}] }\n");
    bench.say(answer(JSON, &body)).await?;
    let received = bench.exchange(post("/v1/chat/completions", "", "{}")).await?;
    ensure(received.status() == 200 && received.body == body.as_bytes(), "the same body at the caller")?;
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
