//! The end of the auditor.

use std::time::Instant;

use tokio::time::{Duration, sleep};

use super::checks;
use crate::auditor::bench::{Bench, Outcome, chunks, ensure, get, stream_head};
use crate::auditor::caller::Caller;
use crate::auditor::message::End;
use crate::auditor::model::Script;

/// Time for learning that a pod ends, after which callers may still connect.
const NOTICE: Duration = Duration::from_secs(1);
/// Grace period of pods.
const GRACE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

checks! {
    "sigterm", "After SIGTERM the auditor serves with Connection: close, finishes open requests, and exits with 0 within 30 s"
        => sigterm();
}

async fn sigterm(bench: &mut Bench) -> Outcome {
    bench.process()?;
    let (sender, script) = Script::pieces();
    bench.play(script).await?;
    let mut open = bench.connect().await?;
    open.send(get("/v1/models", "")).await;
    bench.asked().await?;

    let begin = Instant::now();
    bench.process()?.terminate()?;
    sleep(NOTICE).await;
    let answer = bench.exchange(get("/health", "").replace("Connection: close\r\n", "")).await?;
    let is_last = answer.headers("connection").join(",").to_lowercase().contains("close");
    let is_served = answer.status() == 200 && (is_last || answer.start.starts_with("HTTP/1.0"));
    ensure(is_served, "the status 200 of /health with Connection: close, 1 s after SIGTERM")?;
    while Caller::connect(bench.auditor, bench.transcript.clone(), POLL).await.is_ok() {
        ensure(begin.elapsed() < GRACE, "no more connections before 30 s")?;
        sleep(POLL).await;
    }

    let _ = sender.send([stream_head("text/plain"), chunks(["fine"])].concat());
    drop(sender);
    let answer = open.answer().await;
    let is_whole = answer.is_some_and(|answer| answer.body == b"fine" && answer.end == End::Whole);
    ensure(is_whole, "the answer to the open request")?;
    let left = GRACE.saturating_sub(begin.elapsed());
    let ended = bench.process()?.end(left).await?;
    ensure(ended.is_some_and(|status| status.success()), "the exit code 0 within 30 s")
}
