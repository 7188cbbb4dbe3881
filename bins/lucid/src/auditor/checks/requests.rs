//! Requests with the refused text do not reach the model.

use serde_json::Value;

use super::checks;
use super::forwarding::pass;
use crate::auditor::bench::{Bench, JSON, Outcome, PLAIN, answer, ensure, post};
use crate::auditor::message::End;

const CHAT: &str = "/v1/chat/completions";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
/// Longer than the bodies that most auditors accept.
const LARGE: usize = 8 << 20;

checks! {
    "refuse-plain", "A plain text is refused before the model sees it" => refuse(&[("/v1/chat", PLAIN, "Please $TEXT.")]);
    "refuse-message", "A message of a chat is refused" => refuse(&[(CHAT, JSON, r#"{"model":"m","messages":[{"role":"user","content":"$TEXT"}]}"#)]);
    "refuse-chunked", "A text that is split over chunks is refused" => refuse(&[("/v1/chat", "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n", "$TEXT")]);
    "refuse-escapes", "JSON escapes do not hide a text" => refuse(&[(CHAT, JSON, r#"{"model":"m","messages":[{"role":"user","content":"$ESCAPED"}]}"#)]);
    "refuse-parts", "A text that is split over content parts is refused" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":[{"type":"text","text":"$FIRST"},{"type":"text","text":"$SECOND"}]}]}"#)]);
    "refuse-messages", "A text that is split over consecutive messages of one role is refused" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"$LEFT"},{"role":"user","content":"$RIGHT"}]}"#),
        ("/v1/messages", JSON, r#"{"messages":[{"role":"user","content":"$LEFT"},{"role":"user","content":"$RIGHT"}]}"#)]);
    "refuse-markdown", "Emphasis and punctuation between words do not hide a text" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"$BOLD"}]}"#),
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"$LISTED"}]}"#)]);
    "refuse-tool-call", "Escaped arguments of tool calls are refused" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"search","arguments":"{\"query\":\"$DOUBLE\"}"}}]}]}"#)]);
    "refuse-duplicate", "Each member of a duplicate name is judged" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"Hello","content":"$TEXT"}]}"#),
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"$TEXT","content":"Hello"}]}"#)]);
    "refuse-surrogate", "Lone surrogates, which some parsers reject, do not hide a text" => refuse(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":"\ud800 $TEXT"}]}"#)]);
    "refuse-nested", "Deep nesting, which some parsers reject, does not hide a text" => refuse(&[(CHAT, JSON, r#"{"messages":$OPEN"$TEXT"$CLOSE}"#)]);
    "refuse-second-document", "A second JSON document in the body is judged" => refuse(&[(CHAT, JSON, r#"{"messages":[]}{"prompt":"$TEXT"}"#)]);
    "refuse-form", "Percent-encoding, once or twice, does not hide a text in a form" => refuse(&[
        ("/v1/chat", FORM, "a=b&prompt=$PERCENT"),
        ("/v1/chat", FORM, "a=b&prompt=$TWICE")]);
    "refuse-query", "Percent-encoding, once or twice, does not hide a text in path and query" => refuse(&[
        ("/v1/chat?prompt=$PERCENT", JSON, "{}"),
        ("/v1/chat?prompt=$TWICE", JSON, "{}"),
        ("/v1/chat/$TWICE", JSON, "{}")]);
    "refuse-rows", "A refusal of JSON lines names the row" => rows();
    "refuse-utf-16", "JSON in UTF-16 does not pass unread" => utf_16();
    "refuse-gzip", "A compressed body does not pass unread" => refuse(&[
        ("/v1/chat", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", r#"{"prompt":"$MANY"}"#)]);
    "refuse-codings", "Bodies in deflate, br and zstd do not pass unread" => refuse(&[
        ("/v1/chat", "Content-Type: application/json\r\nContent-Encoding: deflate\r\n", r#"{"prompt":"$MANY"}"#),
        ("/v1/chat", "Content-Type: application/json\r\nContent-Encoding: br\r\n", r#"{"prompt":"$MANY"}"#),
        ("/v1/chat", "Content-Type: application/json\r\nContent-Encoding: zstd\r\n", r#"{"prompt":"$MANY"}"#)]);
    "refuse-protocols", "Requests of completions, responses, Anthropic, Ollama, KServe, TGI and MCP are refused" => refuse(&[
        ("/v1/completions", JSON, r#"{"prompt":["$TEXT"]}"#),
        ("/v1/responses", JSON, r#"{"input":"$TEXT"}"#),
        ("/v1/responses", JSON, r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"$TEXT"}]}]}"#),
        ("/v1/messages", JSON, r#"{"system":"$TEXT","messages":[]}"#),
        ("/api/chat", JSON, r#"{"messages":[{"role":"user","content":"$TEXT"}]}"#),
        ("/v2/models/m/infer", JSON, r#"{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["$TEXT"]}]}"#),
        ("/generate", JSON, r#"{"inputs":"$TEXT"}"#),
        ("/mcp", JSON, r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":{"query":"$TEXT"}}}"#)]);
    "refuse-probe", "Requests at a path of LUCID_PROBE_PATHS are judged" => probe();
    "large-body", "A body that is too large is refused with a readable 413; others pass whole" => large("/v1/chat");
    "error-form", "Refusals have the form of their protocol's errors" => forms(&[
        (CHAT, r#"{"messages":[{"role":"user","content":"$TEXT"}]}"#, &["/error/message", "/error/type"]),
        ("/v1/responses", r#"{"input":"$TEXT"}"#, &["/error/message", "/error/type"]),
        ("/v1/messages", r#"{"messages":[{"role":"user","content":"$TEXT"}]}"#, &["/type", "/error/type", "/error/message"]),
        ("/api/chat", r#"{"messages":[{"role":"user","content":"$TEXT"}]}"#, &["/error"]),
        ("/mcp", r#"{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"search","arguments":{"query":"$TEXT"}}}"#, &["/error/message", "/id"])]);
    "error-too-large", "To clients of Anthropic, a body that is too large is a request_too_large" => large("/v1/messages");
    "error-unjudged", "What cannot be judged passes, or gets a status that clients do not retry" => unjudged(&[
        (CHAT, JSON, r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]}"#, "Content-Type: image/png\r\n"),
        (CHAT, "Content-Type: application/json\r\nContent-Encoding: x-test\r\n", "test", "Content-Type: image/png\r\n"),
        ("/v1/audio/transcriptions", "Content-Type: audio/mpeg\r\n", "\u{1}\u{2}", "Content-Type: audio/mpeg\r\n"),
        ("/v1/audio/speech", JSON, r#"{"model":"m","input":"Hello","voice":"alloy"}"#, "Content-Type: audio/mpeg\r\n"),
        (CHAT, JSON, r#"{"messages":[]}"#, "Content-Type: application/json\r\nContent-Encoding: x-test\r\n")]);
    "cors", "Refusals carry the Access-Control headers of the model's answers" => cors();
}

pub(super) async fn refuse(bench: &mut Bench, requests: &[(&str, &str, &str)]) -> Outcome {
    for (path, headers, body) in requests {
        bench.refuse(post(&bench.fill(path), headers, bench.fill(body))).await?;
    }
    Ok(())
}

async fn utf_16(bench: &mut Bench) -> Outcome {
    let body = bench.fill(r#"{"prompt":"$TEXT"}"#);
    let body: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
    bench.refuse(post(CHAT, JSON, body)).await.map(drop)
}

async fn rows(bench: &mut Bench) -> Outcome {
    let row = |content| {
        format!(r#"{{"custom_id":"a","body":{{"messages":[{{"role":"user","content":"{content}"}}]}}}}"#)
    };
    let rows = [vec![row("Hello"); 36], vec![row("$ESCAPED")], vec![row("Hello"); 3]].concat();
    let body = bench.fill(&rows.join("\n"));
    let refusal = bench.refuse(post("/v1/files", "Content-Type: application/jsonl\r\n", body)).await?;
    let is_named = refusal.has("37") || refusal.has("36");
    ensure(is_named, "a refusal that names row 37, or 36 if rows begin with 0")
}

async fn probe(bench: &mut Bench) -> Outcome {
    bench.process()?;
    pass(bench, false, &[("GET /ready", "", "", &[])]).await?;
    let post = post("/ready", PLAIN, &bench.refused);
    bench.refuse(&post).await?;
    let get = [b"GET", post.strip_prefix(b"POST").unwrap_or_default()].concat();
    bench.refuse(get).await.map(drop)
}

async fn large(bench: &mut Bench, path: &str) -> Outcome {
    bench.say(answer(PLAIN, "fine")).await?;
    let body = format!("{{\"prompt\":\"{}\"}}", "x".repeat(LARGE));
    let answer = bench.exchange(post(path, JSON, body)).await?;
    if answer.status() == 200 {
        let is_whole = bench.model.requests().iter().any(|it| it.end == End::Whole && it.body.len() > LARGE);
        return ensure(is_whole, "the whole body at the model, or the status 413");
    }
    ensure(answer.status() == 413 && answer.end == End::Whole, "the status 413, or the answer of the model")?;
    ensure(bench.model.requests().is_empty(), "no request at the model")?;
    let error: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_named = path != "/v1/messages" || error["error"]["type"] == "request_too_large";
    ensure(is_named, "an error of the type request_too_large")
}

async fn forms(bench: &mut Bench, requests: &[(&str, &str, &[&str])]) -> Outcome {
    for (path, body, members) in requests {
        let refusal = bench.refuse(post(path, JSON, bench.fill(body))).await?;
        let error: Value = serde_json::from_slice(&refusal.body).unwrap_or_default();
        let is_there = |member: &&str| error.pointer(member).is_some_and(Value::is_string);
        let missing = members.iter().find(|it| !is_there(it)).unwrap_or(&"");
        ensure(missing.is_empty(), format!("a JSON error with the string {missing} at {path}"))?;
    }
    Ok(())
}

async fn unjudged(bench: &mut Bench, exchanges: &[(&str, &str, &str, &str)]) -> Outcome {
    for (path, headers, body, answered) in exchanges {
        bench.say(answer(answered, [0xff, 0xfb, 0x90, 0])).await?;
        let status = bench.exchange(post(path, headers, body)).await?.status();
        let is_final = (200..500).contains(&status) && ![408, 409, 429].contains(&status);
        ensure(is_final, "a status below 500, other than 408, 409 and 429")?;
    }
    Ok(())
}

async fn cors(bench: &mut Bench) -> Outcome {
    let headers = [PLAIN, "Origin: https://app.test\r\n"].concat();
    let allowed = "Access-Control-Allow-Origin: https://app.test\r\nVary: Origin\r\n";
    bench.say(answer(&[JSON, allowed].concat(), "{}")).await?;
    let passed = bench.exchange(post("/v1/chat", &headers, "Hello")).await?;
    let refusal = bench.refuse(post("/v1/chat", &headers, &bench.refused)).await?;
    for (answer, name) in [(passed, "the model's answer"), (refusal, "the refusal")] {
        let is_readable = answer.header("access-control-allow-origin") == Some("https://app.test");
        ensure(is_readable, format!("Access-Control-Allow-Origin: https://app.test in {name}"))?;
    }
    Ok(())
}
