//! Answers that arrive in pieces.

use futures::FutureExt;
use serde_json::{Value, json};

use super::Check;
use super::requests::halves;
use crate::auditor::bench::{Bench, Outcome, Problem, chunk, ensure, post, stream_head};
use crate::auditor::message::{End, Message, find};
use crate::auditor::model::Script;

/// Number of bytes of each piece of a refused text.
const PIECE: usize = 5;

pub(super) const CHECKS: &[Check] = &[
    Check::new("stream", "A piece of an answer arrives while the model sends the next ones", |bench| {
        promptly(bench).boxed()
    }),
    Check::new(
        "stream-plain",
        "A plain text in pieces is stopped before the refused text is complete",
        |bench| plain(bench).boxed(),
    ),
    Check::new("stream-chat", "Chat completions are stopped before the refused text is complete", |bench| {
        stop(bench, &CHAT).boxed()
    }),
    Check::new("stream-tool-call", "Arguments of tool calls that arrive in pieces are stopped", |bench| {
        stop(bench, &TOOL_CALL).boxed()
    }),
    Check::new("stream-responses", "Events of /v1/responses are stopped", |bench| {
        stop(bench, &RESPONSES).boxed()
    }),
    Check::new("stream-anthropic", "Events of Anthropic messages are stopped", |bench| {
        stop(bench, &MESSAGES).boxed()
    }),
    Check::new("stream-ndjson", "Lines of JSON, as of Ollama, are stopped", |bench| {
        stop(bench, &OLLAMA).boxed()
    }),
    Check::new("stream-end", "A stopped stream ends as its protocol does, or is cut off", |bench| {
        ends(bench).boxed()
    }),
    Check::new("stream-choices", "The refused text is found in one of several choices", |bench| {
        choices(bench).boxed()
    }),
    Check::new("stream-choices-apart", "Pieces of different choices are not joined", |bench| {
        choices_apart(bench).boxed()
    }),
];

/// A streaming protocol.
pub(super) struct Protocol {
    path: &'static str,
    request: &'static str,
    content_type: &'static str,
    /// Returns the event of a piece of text.
    event: fn(&str) -> Value,
    /// The text in an event.
    text: &'static str,
    /// End of an answer that is not refused.
    end: &'static [&'static str],
    /// Returns `true` for the event that ends an answer.
    is_end: fn(&Value) -> bool,
}

const MESSAGE: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Hello"}]}"#;
const SSE: &str = "text/event-stream";

pub(super) const CHAT: Protocol = Protocol {
    path: "/v1/chat/completions",
    request: MESSAGE,
    content_type: SSE,
    event: |text| choice(0, json!({"content": text})),
    text: "/choices/0/delta/content",
    end: &[
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ],
    is_end: |event| event == "[DONE]",
};

const TOOL_CALL: Protocol = Protocol {
    event: |text| {
        let function = json!({"arguments": text});
        choice(0, json!({"tool_calls": [{"index": 0, "function": function}]}))
    },
    text: "/choices/0/delta/tool_calls/0/function/arguments",
    ..CHAT
};

const RESPONSES: Protocol = Protocol {
    path: "/v1/responses",
    request: r#"{"model":"m","stream":true,"input":"Hello"}"#,
    content_type: SSE,
    event: |text| json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": text}),
    text: "/delta",
    end: &[r#"{"type":"response.completed","response":{"id":"r","status":"completed"}}"#],
    is_end: |event| {
        let kind = event["type"].as_str().unwrap_or_default();
        ["response.completed", "response.incomplete", "response.failed", "error"].contains(&kind)
    },
};

const MESSAGES: Protocol = Protocol {
    path: "/v1/messages",
    request: MESSAGE,
    content_type: SSE,
    event: |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
    text: "/delta/text",
    end: &[
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ],
    is_end: |event| event["type"] == "message_stop" || event["type"] == "error",
};

const OLLAMA: Protocol = Protocol {
    path: "/api/chat",
    request: MESSAGE,
    content_type: "application/x-ndjson",
    event: |text| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
    text: "/message/content",
    end: &[r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}"#],
    is_end: |event| event["done"] == true || event["error"].is_string(),
};

fn choice(index: u32, delta: Value) -> Value {
    let choice = json!({"index": index, "delta": delta, "finish_reason": null});
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
}

impl Protocol {
    pub(super) fn request(&self) -> Vec<u8> {
        post(self.path, self.request)
    }

    /// Returns an event as sent.
    pub(super) fn frame(&self, event: &str) -> String {
        let kind = serde_json::from_str::<Value>(event).ok();
        let kind = kind.as_ref().and_then(|event| event["type"].as_str());
        match (self.content_type, kind) {
            (SSE, Some(kind)) => format!("event: {kind}\ndata: {event}\n\n"),
            (SSE, None) => format!("data: {event}\n\n"),
            _ => format!("{event}\n"),
        }
    }

    pub(super) fn piece(&self, text: &str) -> String {
        self.frame(&(self.event)(text).to_string())
    }

    /// Returns the answer of the model with these frames.
    pub(super) fn said(&self, frames: impl IntoIterator<Item = String>) -> Vec<u8> {
        let end = self.end.iter().map(|event| self.frame(event));
        let chunks = frames.into_iter().chain(end).chain([String::new()]).flat_map(|frame| chunk(&frame));
        stream_head(self.content_type).into_iter().chain(chunks).collect()
    }

    /// Returns the events of an answer; those that are not JSON as strings.
    fn events(&self, answer: &Message) -> Vec<Value> {
        let text = answer.text();
        let lines = text.lines().filter_map(|line| match self.content_type {
            SSE => line.strip_prefix("data:").map(str::trim),
            _ => Some(line.trim()).filter(|line| !line.is_empty()),
        });
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| line.into())).collect()
    }

    /// Joins the text of an answer.
    pub(super) fn joined(&self, answer: &Message) -> String {
        let events = self.events(answer);
        events.iter().filter_map(|event| event.pointer(self.text)?.as_str()).collect()
    }

    /// Fails unless the answer ends well, or is cut off.
    pub(super) fn ensure_end(&self, answer: &Message) -> Outcome {
        if answer.end == End::Cut || answer.status() >= 400 {
            return Ok(());
        }
        ensure(answer.end == End::Whole, "the end of the answer")?;
        let events = self.events(answer);
        let malformed = events.iter().find(|event| event.is_string() && *event != "[DONE]");
        ensure(malformed.is_none(), format!("events of JSON, found {}", malformed.unwrap_or(&Value::Null)))?;
        ensure(
            events.iter().any(|event| (self.is_end)(event)),
            format!("the end of a stream of {}", self.path),
        )
    }
}

/// Returns pieces of a text.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

/// An auditor may withhold the end of the text, here up to a piece.
async fn promptly(bench: &mut Bench) -> Outcome {
    for protocol in [&CHAT, &OLLAMA] {
        let (sender, script) = Script::pieces();
        bench.play(script).await?;
        let mut caller = bench.connect().await?;
        caller.send(protocol.request()).await;
        let marker = |number: usize| format!("piece-{number}-");
        let piece = |number| chunk(&protocol.piece(&format!("{}{}", marker(number), "word ".repeat(200))));
        let _ = sender.send(stream_head(protocol.content_type));
        let _ = sender.send(piece(0));
        for number in 0..4 {
            let _ = sender.send(piece(number + 1));
            let expected = marker(number);
            let answer = caller.until(|answer| find(&answer.body, expected.as_bytes()).is_some()).await;
            let has_arrived = answer.is_some_and(|answer| find(&answer.body, expected.as_bytes()).is_some());
            ensure(has_arrived, format!("piece {} once piece {} was sent", number, number + 1))?;
        }
    }
    Ok(())
}

/// Returns the answer to a streaming request.
async fn streamed(bench: &mut Bench, protocol: &Protocol, frames: Vec<String>) -> Outcome<Message> {
    bench.play(Script::Say(protocol.said(frames))).await?;
    let answer = bench.exchange(protocol.request()).await?;
    ensure(!bench.model.requests().is_empty(), "the request at the model")?;
    Ok(answer)
}

async fn stop(bench: &mut Bench, protocol: &Protocol) -> Outcome {
    stopped(bench, protocol).await.map(drop)
}

/// Returns the answer to a streaming request, which is to end before the refused text.
async fn stopped(bench: &mut Bench, protocol: &Protocol) -> Outcome<Message> {
    let text = format!("Sure. You should {}, and then send the file.", bench.refused);
    let frames = pieces(&text).iter().map(|piece| protocol.piece(piece)).collect();
    let answer = streamed(bench, protocol, frames).await?;
    let joined = protocol.joined(&answer);
    let is_stopped = !joined.contains(&bench.refused) && !joined.contains("the file");
    ensure(is_stopped, format!("an answer that ends before {:?}, found {joined:?}", bench.refused))?;
    Ok(answer)
}

async fn ends(bench: &mut Bench) -> Outcome {
    for protocol in [&CHAT, &TOOL_CALL, &RESPONSES, &MESSAGES, &OLLAMA] {
        let answer = stopped(bench, protocol).await?;
        protocol.ensure_end(&answer)?;
    }
    Ok(())
}

async fn plain(bench: &mut Bench) -> Outcome {
    let text = format!("Sure. You should {}, and then send the file.", bench.refused);
    let chunks = pieces(&text).into_iter().chain([String::new()]).flat_map(|piece| chunk(&piece));
    let said = stream_head("text/plain").into_iter().chain(chunks).collect();
    bench.play(Script::Say(said)).await?;
    let answer = bench.exchange(post("/v1/chat", "{}")).await?;
    let is_stopped = find(&answer.body, bench.refused.as_bytes()).is_none();
    ensure(is_stopped, format!("an answer that ends before {:?}", bench.refused))?;
    let looks_whole = answer.status() == 200 && answer.end != End::Cut;
    ensure(!looks_whole, "a connection that is closed before the end of the body")
}

async fn choices(bench: &mut Bench) -> Outcome {
    let text = format!("Sure. You should {}, and then send the file.", bench.refused);
    let (refused, fine) = (pieces(&text), pieces(&"all is well ".repeat(text.len())));
    let frame = |index, text: &str| CHAT.frame(&choice(index, json!({"content": text})).to_string());
    let frames = refused.iter().zip(&fine).flat_map(|(refused, fine)| [frame(1, refused), frame(0, fine)]);
    let answer = streamed(bench, &CHAT, frames.collect()).await?;
    let events = CHAT.events(&answer);
    let of_choice =
        events.iter().filter(|event| event.pointer("/choices/0/index").is_some_and(|it| *it == 1));
    let joined: String = of_choice.filter_map(|event| event.pointer(CHAT.text)?.as_str()).collect();
    let is_stopped = !joined.contains(&bench.refused);
    ensure(is_stopped, format!("a choice 1 that ends before {:?}, found {joined:?}", bench.refused))
}

async fn choices_apart(bench: &mut Bench) -> Outcome {
    let refused = bench.refused.clone();
    let (first, second) = halves(&refused);
    let frame = |index, text: &str| CHAT.frame(&choice(index, json!({"content": text})).to_string());
    let answer = streamed(bench, &CHAT, vec![frame(0, first), frame(1, second)]).await?;
    let joined = CHAT.joined(&answer);
    if answer.end != End::Whole {
        return Err(Problem::Failed("an answer that is not cut off".to_owned()));
    }
    ensure(joined == refused, format!("the choices {first:?} and {second:?}"))
}
