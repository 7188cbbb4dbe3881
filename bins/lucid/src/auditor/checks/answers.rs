//! Answers that arrive whole.

use serde_json::Value;

use super::checks;
use crate::auditor::bench::{
    Bench, JSON, Outcome, answer, answer_of, chunk, chunks, ensure, get, post, stream_head,
};
use crate::auditor::codings::encode;
use crate::auditor::message::{End, find};

const CHAT: &str = "/v1/chat/completions";
const REQUEST: &str = r#"{"model":"m","messages":[{"role":"user","content":"Hello"}]}"#;

checks! {
    "answer-refused", "The text of an answer does not reach the caller" => withhold(&[
        ("", r#"{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Sure: $TEXT."}}]}"#)]);
    "answer-tool-call", "Tool calls of an answer do not reach the caller" => withhold(&[
        ("", r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[
            {"id":"1","type":"function","function":{"name":"search","arguments":"{\"query\":\"Sure: $TEXT.\"}"}}]}}]}"#)]);
    "answer-compressed", "A compressed answer does not pass unread" => withhold(&[
        ("Content-Encoding: gzip\r\n", r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"$MANY"}}]}"#)]);
    "answer-codings", "Answers in deflate, br and zstd do not pass unread" => withhold(&[
        ("Content-Encoding: deflate\r\n", r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"$MANY"}}]}"#),
        ("Content-Encoding: br\r\n", r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"$MANY"}}]}"#),
        ("Content-Encoding: zstd\r\n", r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"$MANY"}}]}"#)]);
    "answer-error", "An error of the model keeps its status and Retry-After, whatever its body" => error(&[
        "Content-Encoding: gzip\r\n", "Content-Encoding: x-test\r\n", "Content-Type: application/octet-stream\r\n"]);
    "answer-opaque", "Signatures, encrypted contents and identifiers reach the caller byte by byte" => same(&[
        ("/v1/messages", r#"{"type":"message","content":[{"type":"thinking","thinking":"Hm.","signature":"EqQB/$CODE/W7=="}]}"#),
        ("/v1/messages", r#"{"type":"message","content":[{"type":"redacted_thinking","data":"EqQB/$CODE/W7=="}]}"#),
        ("/v1/responses", r#"{"id":"resp_$CODE","output":[{"type":"reasoning","summary":[],"encrypted_content":"gAAA/$CODE/W7=="}]}"#)]);
    "embeddings", "Vectors of any size reach the caller byte by byte" => same(&[
        ("/v1/embeddings", r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[$NUMBERS1]}],"model":"m"}"#),
        ("/v1/embeddings", r#"{"object":"list","data":[$VECTORS],"model":"m"}"#)]);
    "mask-request", "Masked requests reach the model as valid JSON, without the text" => mask();
    "answer-cut", "An answer that the model cuts off does not look whole" => cut("HTTP/1.1");
    "answer-cut-http-1.0", "It does not look whole to HTTP/1.0 either" => cut("HTTP/1.0");
}

async fn withhold(bench: &mut Bench, answers: &[(&str, &str)]) -> Outcome {
    for (coding, body) in answers {
        let body = bench.fill(body);
        bench.say(answer(&[JSON, coding].concat(), &body)).await?;
        let answer = bench.exchange(post(CHAT, JSON, REQUEST)).await?;
        ensure(!bench.model.requests().is_empty(), "the request at the model")?;
        let coding = coding.trim().strip_prefix("Content-Encoding: ").unwrap_or_default();
        let passes =
            answer.has(&bench.refused) || find(&answer.body, &encode(coding, body.as_bytes())).is_some();
        ensure(!passes, "an answer without the refused text")?;
    }
    Ok(())
}

async fn error(bench: &mut Bench, headers: &[&str]) -> Outcome {
    for headers in headers {
        let headers = [headers, "Retry-After: 7\r\n"].concat();
        bench.say(answer_of("529 Overloaded", &headers, [0xff, 0xfe, 0xfd])).await?;
        let answer = bench.exchange(post(CHAT, JSON, REQUEST)).await?;
        let is_kept = answer.status() == 529 && answer.header("retry-after") == Some("7");
        ensure(is_kept, "the status 529 and Retry-After: 7")?;
    }
    Ok(())
}

/// Expects the caller to receive these answers.
pub(super) async fn same(bench: &mut Bench, answers: &[(&str, &str)]) -> Outcome {
    for (path, body) in answers {
        let body = bench.fill(body);
        bench.say(answer(JSON, &body)).await?;
        let answer = bench.exchange(post(path, JSON, REQUEST)).await?;
        let is_same = answer.status() == 200 && answer.body == body.as_bytes();
        ensure(is_same, format!("the answer of the model to {path}, byte by byte"))?;
    }
    Ok(())
}

async fn mask(bench: &mut Bench) -> Outcome {
    let text = bench.masked()?;
    bench.say(answer(JSON, "{}")).await?;
    let request = r#"{"messages":[{"role":"user","content":"Say \"$MASKED\"\n"}]}"#;
    bench.exchange(post(CHAT, JSON, bench.fill(request))).await?;
    bench.asked().await?;
    let document: Value = serde_json::from_slice(&bench.model.requests()[0].body).unwrap_or_default();
    let content = document["messages"][0]["content"].as_str().unwrap_or_default();
    let is_masked = content.starts_with("Say ") && !content.contains(&text);
    ensure(is_masked, "the message at the model, with a mask")
}

async fn cut(bench: &mut Bench, version: &str) -> Outcome {
    let chunked = [stream_head("text/plain"), chunk("half")].concat();
    for said in [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_vec(), chunked] {
        bench.say(said).await?;
        let mut caller = bench.connect().await?;
        caller.send(get("/", "").replace("HTTP/1.1", version)).await;
        let looks_whole = caller.answer().await.is_some_and(|it| it.status() == 200 && it.end != End::Cut);
        let expected = "another status than 200, or a connection that is closed before the end of the body";
        ensure(!looks_whole, expected)?;
    }
    // A whole one still passes.
    bench.say([stream_head("text/plain"), chunks(["whole"])].concat()).await?;
    let answer = bench.exchange(get("/", "").replace("HTTP/1.1", version)).await?;
    ensure(answer.body == b"whole" && answer.end == End::Whole, "the answer \"whole\"")
}
