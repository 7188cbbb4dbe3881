//! Connections that are idle or closed.

use tokio::time::{Duration, sleep};

use super::checks;
use crate::auditor::bench::{Bench, JSON, Outcome, PLAIN, answer, chunk, ensure, get, post, stream_head};
use crate::auditor::model::{Connection, Script};

/// Idle time after which model servers close connections, at the earliest (gunicorn).
const IDLE: Duration = Duration::from_secs(2);

checks! {
    "idle-connection", "A request after 2 s does not fail because the model closes idle connections" => idle_connection();
    "caller-leaves", "The model's connection is closed when the caller leaves during an answer" => caller_leaves(true);
    "caller-gives-up", "The model's connection is closed when the caller leaves before an answer" => caller_leaves(false);
}

async fn idle_connection(bench: &mut Bench) -> Outcome {
    let said = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
    bench.play(Script::Once(said.into(), answer(PLAIN, "ok"))).await?;
    for idle in [Duration::ZERO, IDLE] {
        sleep(idle).await;
        let answer = bench.exchange(post("/v1/chat", JSON, "{}")).await?;
        ensure(answer.status() == 200 && answer.body == b"ok", "two answers with the status 200")?;
    }
    Ok(())
}

async fn caller_leaves(bench: &mut Bench, is_answered: bool) -> Outcome {
    let (pieces, script) = Script::pieces();
    bench.play(script).await?;
    let mut caller = bench.connect().await?;
    caller.send(get("/v1/models", "")).await;
    bench.asked().await?;
    if is_answered {
        let text = chunk("word ".repeat(1000));
        let _ = pieces.send([&stream_head("text/plain"), &text[..], &text].concat());
        let has_begun = caller.until(|answer| answer.has("word")).await.is_some_and(|it| it.has("word"));
        ensure(has_begun, "the beginning of the answer at the caller")?;
    }
    drop(caller);
    let is_closed = |it: &Connection| it.is_closed || it.requests().is_empty();
    let are_closed = bench.model.until(bench.patience, |all| all.iter().all(is_closed)).await;
    ensure(are_closed, "the end of the model's connection")
}
