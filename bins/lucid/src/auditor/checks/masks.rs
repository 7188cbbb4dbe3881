//! Texts that the auditor masks.

use futures::FutureExt;
use serde_json::{Value, json};

use super::Check;
use super::streams::{CHAT, pieces};
use crate::auditor::bench::{Bench, Outcome, Problem, ensure, post};
use crate::auditor::message::End;
use crate::auditor::model::Script;

pub(super) const CHECKS: &[Check] = &[
    Check::new("mask-request", "Masked requests reach the model as valid JSON, without the text", |bench| {
        request(bench).boxed()
    }),
    Check::new("mask-stream", "Masked streams reach the caller whole, without the text", |bench| {
        stream(bench).boxed()
    }),
];

fn masked(bench: &Bench) -> Outcome<String> {
    bench.masked.clone().ok_or(Problem::Skipped("only with --masked TEXT"))
}

async fn request(bench: &mut Bench) -> Outcome {
    let text = masked(bench)?;
    let content = format!("Say \"{text}\"\n");
    let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string();
    let (received, _) = bench.pass(post("/v1/chat/completions", body)).await?;
    let document = serde_json::from_slice::<Value>(&received.body).ok();
    let content = document.as_ref().and_then(|it| it.pointer("/messages/0/content")?.as_str());
    let is_masked = content.is_some_and(|content| content.starts_with("Say ") && !content.contains(&text));
    ensure(is_masked, "the message at the model, with a mask")
}

async fn stream(bench: &mut Bench) -> Outcome {
    let text = masked(bench)?;
    let frames = pieces(&format!("It is {text}, as you know.")).into_iter().map(|piece| CHAT.piece(&piece));
    bench.play(Script::Say(CHAT.said(frames))).await?;
    let answer = bench.exchange(CHAT.request()).await?;
    let joined = CHAT.joined(&answer);
    let is_masked =
        joined.starts_with("It is ") && joined.ends_with(", as you know.") && !joined.contains(&text);
    ensure(is_masked && answer.end == End::Whole, format!("a complete text with a mask, found {joined:?}"))?;
    CHAT.ensure_end(&answer)
}
