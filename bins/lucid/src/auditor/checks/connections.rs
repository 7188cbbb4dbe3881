//! Connections that are idle, slow or closed, and large bodies.

use futures::FutureExt;
use tokio::time::{Duration, sleep};

use super::Check;
use crate::auditor::bench::{Bench, Outcome, answer, chunk, ensure, get, post, stream_head};
use crate::auditor::message::{End, find};
use crate::auditor::model::{Connection, Script};

/// Idle time after which model servers close connections, at the earliest (gunicorn).
const IDLE: Duration = Duration::from_secs(2);
/// Longer than the bodies that most auditors accept.
const LARGE: usize = 8 << 20;

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        "idle-connection",
        "A request after 2 s does not fail because the model closes idle connections",
        |bench| idle_connection(bench).boxed(),
    ),
    Check::new(
        "caller-leaves",
        "The model's connection is closed when the caller leaves during an answer",
        |bench| caller_leaves(bench, true).boxed(),
    ),
    Check::new(
        "caller-gives-up",
        "The model's connection is closed when the caller leaves before an answer",
        |bench| caller_leaves(bench, false).boxed(),
    ),
    Check::new(
        "large-body",
        "A body that is too large is refused with a readable 413; others pass whole",
        |bench| large_body(bench).boxed(),
    ),
];

async fn idle_connection(bench: &mut Bench) -> Outcome {
    let said = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
    bench.play(Script::Once(said.into(), answer("text/plain", "ok"))).await?;
    for idle in [Duration::ZERO, IDLE] {
        sleep(idle).await;
        let answer = bench.exchange(post("/v1/chat", "{}")).await?;
        ensure(answer.status() == 200 && answer.body == b"ok", "two answers with the status 200")?;
    }
    Ok(())
}

async fn caller_leaves(bench: &mut Bench, is_answered: bool) -> Outcome {
    let (pieces, script) = Script::pieces();
    bench.play(script).await?;
    let mut caller = bench.connect().await?;
    caller.send(get("/v1/models", "")).await;
    let patience = bench.patience;
    let is_asked = bench.model.until(patience, |all| all.iter().any(|it| !it.requests().is_empty())).await;
    ensure(is_asked, "the request at the model")?;
    if is_answered {
        let _ = pieces.send(stream_head("text/plain"));
        for _ in 0..2 {
            let text = "word ".repeat(1000);
            let _ = pieces.send(chunk(&text));
        }
        let answer = caller.until(|answer| find(&answer.body, b"word").is_some()).await;
        ensure(answer.is_some_and(|it| !it.body.is_empty()), "the beginning of the answer at the caller")?;
    }
    drop(caller);
    let is_asked = |connection: &&Connection| !connection.requests().is_empty();
    let is_closed =
        bench.model.until(patience, |all| all.iter().filter(is_asked).all(|it| it.is_closed)).await;
    ensure(is_closed, "the end of the model's connection")
}

async fn large_body(bench: &mut Bench) -> Outcome {
    bench.play(Script::Say(answer("text/plain", "fine"))).await?;
    let answer =
        bench.exchange(post("/v1/chat", format!("{{\"prompt\":\"{}\"}}", "x".repeat(LARGE)))).await?;
    if answer.status() == 200 {
        let is_whole = bench.model.requests().iter().any(|it| it.end == End::Whole && it.body.len() > LARGE);
        return ensure(is_whole, "the whole body at the model, or the status 413");
    }
    ensure(answer.status() == 413 && answer.end == End::Whole, "the status 413, or the answer of the model")?;
    ensure(bench.model.requests().is_empty(), "no request at the model")
}
