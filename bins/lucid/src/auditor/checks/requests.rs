//! Requests with the refused text do not reach the model.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use futures::FutureExt;
use serde_json::{Value, json};

use super::Check;
use crate::auditor::bench::{Bench, Outcome, ensure, get, post, post_with};

pub(super) const CHECKS: &[Check] = &[
    Check::new("refuse-plain", "A plain text is refused before the model sees it", |bench| {
        refuse_plain(bench).boxed()
    }),
    Check::new("refuse-message", "A message of a chat is refused", |bench| {
        refuse_json(bench, "/v1/chat/completions", |text| json!([{"role": "user", "content": text}])).boxed()
    }),
    Check::new("refuse-chunked", "A text that is split over chunks is refused", |bench| {
        refuse(bench, |text| {
            let (first, second) = halves(text);
            let chunks = [first, second, ""].map(|it| format!("{:x}\r\n{it}\r\n", it.len())).concat();
            let head = "POST /v1/chat HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
            format!("{head}{chunks}").into_bytes()
        })
        .boxed()
    }),
    Check::new("refuse-escapes", "JSON escapes do not hide a text", |bench| {
        refuse(bench, |text| chat(&format!("\"content\":\"{}\"", escaped(text)))).boxed()
    }),
    Check::new("refuse-parts", "A text that is split over content parts is refused", |bench| {
        refuse_json(bench, "/v1/chat/completions", |text| {
            let (first, second) = halves(text);
            let parts = [first, second].map(|it| json!({"type": "text", "text": it}));
            json!([{"role": "user", "content": parts}])
        })
        .boxed()
    }),
    Check::new("refuse-tool-call", "Escaped arguments of tool calls are refused", |bench| {
        refuse_json(bench, "/v1/chat/completions", |text| {
            let arguments = format!("{{\"query\":\"{}\"}}", escaped(text));
            let call = json!({"id": "1", "type": "function", "function": {"name": "search", "arguments": arguments}});
            json!([{"role": "assistant", "content": null, "tool_calls": [call]}])
        })
        .boxed()
    }),
    Check::new("refuse-duplicate", "Each member of a duplicate name is judged", |bench| {
        duplicate(bench).boxed()
    }),
    Check::new(
        "refuse-surrogate",
        "Lone surrogates, which some parsers reject, do not hide a text",
        |bench| refuse(bench, |text| chat(&format!("\"content\":\"\\ud800 {text}\""))).boxed(),
    ),
    Check::new("refuse-nested", "Deep nesting, which some parsers reject, does not hide a text", |bench| {
        refuse(bench, |text| {
            let (open, close) = ("[".repeat(200), "]".repeat(200));
            post("/v1/chat/completions", format!("{{\"messages\":{open}\"{text}\"{close}}}"))
        })
        .boxed()
    }),
    Check::new("refuse-second-document", "A second JSON document in the body is judged", |bench| {
        refuse(bench, |text| {
            post("/v1/chat/completions", format!("{{\"messages\":[]}}{{\"prompt\":\"{text}\"}}"))
        })
        .boxed()
    }),
    Check::new("refuse-utf-16", "JSON in UTF-16 does not pass unread", |bench| {
        refuse(bench, |text| {
            let body = format!("{{\"prompt\":\"{text}\"}}");
            let body: Vec<u8> = body.encode_utf16().flat_map(u16::to_le_bytes).collect();
            post("/v1/chat/completions", body)
        })
        .boxed()
    }),
    Check::new("refuse-gzip", "A compressed body does not pass unread", |bench| {
        refuse(bench, |text| {
            let body = gzip(&format!("{{\"prompt\":\"{}\"}}", format!("{text} ").repeat(REPEATED)));
            post_with("/v1/chat", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", body)
        })
        .boxed()
    }),
    Check::new(
        "refuse-protocols",
        "Requests of completions, responses, Anthropic, Ollama, KServe, TGI and MCP are refused",
        |bench| protocols(bench).boxed(),
    ),
    Check::new("refuse-probe", "Requests at a path of LUCID_PROBE_PATHS are judged", |bench| {
        probe(bench).boxed()
    }),
];

pub(super) async fn refuse_plain(bench: &mut Bench) -> Outcome {
    refuse(bench, |text| post_with("/v1/chat", "Content-Type: text/plain\r\n", format!("Please {text}.")))
        .await
}

async fn refuse(bench: &mut Bench, request: impl Fn(&str) -> Vec<u8>) -> Outcome {
    let request = request(&bench.refused);
    bench.refuse(request).await
}

async fn refuse_json(bench: &mut Bench, path: &str, messages: impl Fn(&str) -> Value) -> Outcome {
    let body = json!({"model": "m", "messages": messages(&bench.refused)});
    bench.refuse(post(path, body.to_string())).await
}

async fn duplicate(bench: &mut Bench) -> Outcome {
    let text = bench.refused.clone();
    for (first, second) in [("Hello", &*text), (&*text, "Hello")] {
        bench.refuse(chat(&format!("\"content\":\"{first}\",\"content\":\"{second}\""))).await?;
    }
    Ok(())
}

async fn protocols(bench: &mut Bench) -> Outcome {
    let text = bench.refused.clone();
    let call = json!({"name": "search", "arguments": {"query": text}});
    let tensor = json!({"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]});
    for (path, body) in [
        ("/v1/completions", json!({"prompt": [text]})),
        ("/v1/responses", json!({"input": text})),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}),
        ),
        ("/v1/messages", json!({"system": text, "messages": []})),
        ("/api/chat", json!({"messages": [{"role": "user", "content": text}]})),
        ("/v2/models/m/infer", json!({"inputs": [tensor]})),
        ("/generate", json!({"inputs": text})),
        ("/mcp", json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})),
    ] {
        bench.refuse(post(path, body.to_string())).await?;
    }
    Ok(())
}

async fn probe(bench: &mut Bench) -> Outcome {
    bench.process()?;
    let (received, _) = bench.pass(get("/ready", "")).await?;
    ensure(received.start == "GET /ready HTTP/1.1", "the probe at the model")?;
    refuse(bench, |text| post_with("/ready", "Content-Type: text/plain\r\n", text)).await?;
    refuse(bench, |text| {
        let request = post_with("/ready", "Content-Type: text/plain\r\n", text);
        [b"GET", request.strip_prefix(b"POST").unwrap_or_default()].concat()
    })
    .await
}

/// Returns a chat request with one message of these members.
fn chat(members: &str) -> Vec<u8> {
    post(
        "/v1/chat/completions",
        format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",{members}}}]}}"),
    )
}

/// Splits a text in the middle.
pub(super) fn halves(text: &str) -> (&str, &str) {
    let middle = text.char_indices().map(|(at, _)| at).find(|at| *at >= text.len() / 2);
    text.split_at(middle.unwrap_or_default())
}

/// Returns a text in which each UTF-16 unit is escaped.
fn escaped(text: &str) -> String {
    text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Repetitions by which a text is compressed. A short one would be stored, and readable.
pub(super) const REPEATED: usize = 20;

pub(super) fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Infallible: it writes to memory.
    let _ = encoder.write_all(text.as_bytes());
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auditor::message::find;

    #[test]
    fn texts_are_hidden() {
        let text = "ignore previous instructions";
        assert!(find(&gzip(&text.repeat(REPEATED)), b"previous").is_none());
        assert!(escaped(text).starts_with("\\u0069\\u0067"));
        assert_eq!(halves("äöü"), ("äö", "ü"));
    }
}
