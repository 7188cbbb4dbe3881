//! Answers that arrive in pieces.

use super::checks;
use super::protocols::{CHAT, GEMINI, MESSAGES, OLLAMA, Protocol, RESPONSES, TOOL_CALL, pieces};
use crate::auditor::bench::{Bench, JSON, Outcome, chunk, chunks, ensure, halves, post, stream_head};
use crate::auditor::message::{End, Message};
use crate::auditor::model::Script;

/// Events, or texts of the protocol's events, each with a text that arrives before the next one is sent.
type Steps = &'static [(&'static str, &'static str)];

/// An auditor may withhold the end of the text, here up to a piece.
const PIECES: Steps = &[("m0 $WORDS", ""), ("m1 $WORDS", "m0 "), ("m2 $WORDS", "m1 "), ("m3 $WORDS", "m2 ")];

checks! {
    "stream", "A piece of an answer arrives while the model sends the next ones" => step(&[(&CHAT, PIECES), (&OLLAMA, PIECES)]);
    "stream-plain", "A plain text in pieces is stopped before the refused text is complete" => plain();
    "stream-chat", "Chat completions are stopped before the refused text is complete" => stop(&CHAT);
    "stream-tool-call", "Arguments of tool calls that arrive in pieces are stopped" => stop(&TOOL_CALL);
    "stream-responses", "Events of /v1/responses are stopped" => stop(&RESPONSES);
    "stream-anthropic", "Events of Anthropic messages are stopped" => stop(&MESSAGES);
    "stream-ndjson", "Lines of JSON, as of Ollama, are stopped" => stop(&OLLAMA);
    "stream-array", "Elements of a JSON array, as of Gemini, are stopped" => stop(&GEMINI);
    "stream-array-pieces", "Elements of a JSON array arrive while the model sends the next ones" => step(&[(&GEMINI, PIECES)]);
    "stream-end", "A stopped stream ends as its protocol does, or is cut off" => ends(false);
    "stream-end-events", "Early ends close what is open, with the identifiers and the sequence of their stream" => ends(true);
    "stream-choices", "The refused text is found in one of several choices" => choices();
    "stream-choices-apart", "Pieces of different choices are not joined" => choices_apart();
    "stream-comments", "Comments and pings arrive while a word is withheld" => step(&[
        (&CHAT, &[("I will $HELD", ""), (": keep-alive", ": keep-alive")]),
        (&MESSAGES, &[("I will $HELD", ""), (r#"{"type":"ping"}"#, "event: ping")]),
        (&RESPONSES, &[("I will $HELD", ""), (": keep-alive", ": keep-alive")])]);
    "stream-other-text", "Events of another text arrive while a word is withheld" => step(&[
        (&CHAT, &[
            ("I will $HELD", ""),
            (r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":1,"delta":{"content":"m0 $WORDS"}}]}"#, ""),
            (r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":1,"delta":{"content":"m1 $WORDS"}}]}"#, "m0 ")]),
        (&MESSAGES, &[
            ("I will $HELD", ""),
            (r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"m0 $WORDS"}}"#, ""),
            (r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"m1 $WORDS"}}"#, "m0 ")]),
        (&RESPONSES, &[
            ("I will $HELD", ""),
            (r#"{"type":"response.output_text.delta","item_id":"j","output_index":1,"content_index":0,"delta":"m0 $WORDS"}"#, ""),
            (r#"{"type":"response.output_text.delta","item_id":"j","output_index":1,"content_index":0,"delta":"m1 $WORDS"}"#, "m0 "),
        ])]);
    "stream-text-end", "A withheld word arrives once its text ends as the protocol says" => step(&[
        (&CHAT, &[("I will $HELD", ""), (CHAT.end[0], "$TAIL"), (": end", "\"stop\"")]),
        (&CHAT, &[
            (r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"reasoning_content":"I will $HELD"}}]}"#, ""),
            ("m0 $WORDS", "$TAIL")]),
        (&MESSAGES, &[("I will $HELD", ""), (MESSAGES.end[0], "$TAIL"), (": end", "content_block_stop")]),
        (&RESPONSES, &[("I will $HELD", ""), (RESPONSES.end[0], "$TAIL"), (": end", "response.output_text.done")]),
        (&OLLAMA, &[
            (r#"{"model":"m","message":{"role":"assistant","content":"","thinking":"I will $HELD"},"done":false}"#, ""),
            ("m0 $WORDS", "$TAIL")]),
        (&OLLAMA, &[("I will $HELD", ""), (OLLAMA.end[0], "done_reason")])]);
    "stream-names", "First events, names and identifiers arrive at once" => step(&[
        (&RESPONSES, &[(RESPONSES.open[0], "tool_choice")]),
        (&MESSAGES, &[(MESSAGES.open[0], "inference_geo"), (r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"search","input":{}}}"#, "search")]),
        (&TOOL_CALL, &[
            (r#"{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"search","arguments":""}}]}}]}"#, "search"),
            ("m0 $WORDS", ""), ("m1 $WORDS", "m0 ")]),
        (&OLLAMA, &[(r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"search","arguments":{"q":"x"}}}]},"done":false}"#, ""), ("m0 $WORDS", "search")])]);
    "stream-no-choices", "Chunks without choices, as of Azure, arrive at once" => step(&[
        (&CHAT, &[(r#"{"id":"","object":"","created":0,"model":"","prompt_filter_results":[{"prompt_index":0}],"choices":[]}"#, "prompt_filter_results")])]);
    "stream-opaque", "Signatures and encrypted contents in streams arrive at once, unchanged" => step(&[
        (&MESSAGES, &[(r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB/$CODE/W7=="}}"#, "EqQB/$CODE/W7==")]),
        (&RESPONSES, &[(r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"gAAA/$CODE/W7=="}}"#, "gAAA/$CODE/W7==")])]);
    "mask-stream", "Masked streams reach the caller whole, without the text" => mask();
}

pub(super) async fn step(bench: &mut Bench, streams: &[(&Protocol, Steps)]) -> Outcome {
    for (protocol, steps) in streams {
        let (sender, script) = Script::pieces();
        bench.play(script).await?;
        let mut caller = bench.connect().await?;
        caller.send(protocol.request()).await;
        let _ = sender.send(stream_head(protocol.content_type));
        for (number, (event, awaited)) in steps.iter().enumerate() {
            let (event, awaited) = (bench.fill(event), bench.fill(awaited));
            let frame = match event.starts_with(['{', ':']) {
                true => protocol.frame(&event),
                false => protocol.piece(&event),
            };
            let frame = if number == 0 { protocol.first(frame) } else { frame };
            let _ = sender.send(chunk(frame));
            if !awaited.is_empty() {
                let answer = caller.until(|answer| answer.has(&awaited)).await;
                let has_arrived = answer.is_some_and(|answer| answer.has(&awaited));
                ensure(
                    has_arrived,
                    format!("{awaited:?} once piece {number} of {} was sent", protocol.path),
                )?;
            }
        }
    }
    Ok(())
}

async fn streamed(bench: &mut Bench, protocol: &Protocol, frames: Vec<String>) -> Outcome<Message> {
    bench.say(protocol.said(frames)).await?;
    let answer = bench.exchange(protocol.request()).await?;
    ensure(!bench.model.requests().is_empty(), "the request at the model")?;
    Ok(answer)
}

async fn stop(bench: &mut Bench, protocol: &Protocol) -> Outcome {
    stopped(bench, protocol, &[]).await.map(drop)
}

/// Returns the answer to a streaming request, which is to end before the refused text.
async fn stopped(bench: &mut Bench, protocol: &Protocol, open: &[&str]) -> Outcome<Message> {
    let text = bench.fill(REFUSED);
    let open = open.iter().map(|event| protocol.frame(event));
    let frames = open.chain(pieces(&text).iter().map(|piece| protocol.piece(piece))).collect();
    let answer = streamed(bench, protocol, frames).await?;
    let joined = protocol.joined(&answer);
    let is_stopped = !joined.contains(&bench.refused) && !joined.contains("the file");
    ensure(is_stopped, format!("an answer that ends before {:?}, found {joined:?}", bench.refused))?;
    Ok(answer)
}

const REFUSED: &str = "Sure. You should $TEXT, and then send the file.";

async fn ends(bench: &mut Bench, is_strict: bool) -> Outcome {
    for protocol in [&CHAT, &TOOL_CALL, &MESSAGES, &OLLAMA, &RESPONSES] {
        let open = if is_strict { protocol.open } else { &[] };
        let answer = stopped(bench, protocol, open).await?;
        protocol.ensure_end(&answer, is_strict)?;
    }
    if is_strict {
        // The first event is refused.
        let frames = vec![RESPONSES.piece(&bench.fill(REFUSED))];
        let answer = streamed(bench, &RESPONSES, frames).await?;
        RESPONSES.ensure_end(&answer, is_strict)?;
    }
    Ok(())
}

async fn plain(bench: &mut Bench) -> Outcome {
    let text = bench.fill(REFUSED);
    bench.say([stream_head("text/plain"), chunks(pieces(&text))].concat()).await?;
    let answer = bench.exchange(post("/v1/chat", JSON, "{}")).await?;
    let expected = format!("an answer that ends before {:?}", bench.refused);
    ensure(!answer.has(&bench.refused), expected)?;
    let looks_whole = answer.status() == 200 && answer.end != End::Cut;
    ensure(!looks_whole, "a connection that is closed before the end of the body")
}

fn choice(index: usize, text: &str) -> String {
    CHAT.piece(text).replace("\"index\":0", &format!("\"index\":{index}"))
}

async fn choices(bench: &mut Bench) -> Outcome {
    let text = bench.fill(REFUSED);
    let (refused, fine) = (pieces(&text), pieces(&"all is well ".repeat(text.len())));
    let frames = refused.iter().zip(&fine).flat_map(|(refused, fine)| [choice(1, refused), choice(0, fine)]);
    let answer = streamed(bench, &CHAT, frames.collect()).await?;
    let mut events = CHAT.events(&answer);
    events.retain(|event| event.pointer("/choices/0/index").is_some_and(|index| *index == 1));
    let joined: String = events.iter().filter_map(|event| event.pointer(CHAT.text)?.as_str()).collect();
    let is_stopped = !joined.contains(&bench.refused);
    ensure(is_stopped, format!("a choice 1 that ends before {:?}, found {joined:?}", bench.refused))
}

async fn choices_apart(bench: &mut Bench) -> Outcome {
    let refused = bench.refused.clone();
    let (first, second) = halves(&refused);
    let answer = streamed(bench, &CHAT, vec![choice(0, first), choice(1, second)]).await?;
    ensure(answer.end == End::Whole, "an answer that is not cut off")?;
    ensure(CHAT.joined(&answer) == refused, format!("the choices {first:?} and {second:?}"))
}

async fn mask(bench: &mut Bench) -> Outcome {
    let text = bench.masked()?;
    let frames = pieces(&format!("It is {text}, as you know.")).into_iter().map(|piece| CHAT.piece(&piece));
    let answer = streamed(bench, &CHAT, frames.collect()).await?;
    let joined = CHAT.joined(&answer);
    let is_masked =
        joined.starts_with("It is ") && joined.ends_with(", as you know.") && !joined.contains(&text);
    ensure(is_masked && answer.end == End::Whole, format!("a complete text with a mask, found {joined:?}"))?;
    CHAT.ensure_end(&answer, false)
}
