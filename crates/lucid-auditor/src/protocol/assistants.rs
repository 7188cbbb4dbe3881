//! OpenAI: events of assistants.
//!
//! Source: <https://platform.openai.com/docs/api-reference/assistants-streaming/events>.

use std::borrow::Cow;

use super::{
    Effect, End, Event, Protocol, Refusal, chat,
    rule::{call, completion},
};

pub(super) static THREADS: Protocol = Protocol {
    is_answer: |document| document.member_value(0, "object").is_some_and(|it| it.starts_with("thread")),
    answer: &[
        completion("content/*/text/value", 2),
        call("step_details/tool_calls/*/function/arguments", 3),
        call("step_details/tool_calls/*/code_interpreter/input", 3),
    ],
    events: &[
        completion("delta/content/*/text/value", 3),
        call("delta/step_details/tool_calls/*/function/arguments", 4),
        call("delta/step_details/tool_calls/*/code_interpreter/input", 4),
    ],
    indices: &["id"],
    element: ("index", "id", "name"),
    effect: |document| match document.member_value(0, "object") {
        Some(object) if object.ends_with(".delta") => Effect::None,
        _ => Effect::EndsAll,
    },
    names: "annotations attachments code_interpreter delta file_ids incomplete_details last_error step_details tool_resources",
    identifiers: "assistant_id run_id step_id thread_id",
    sent: || Box::new(End(end)),
    ..Protocol::UNKNOWN
};

fn end(refused: &Refusal<'_>) -> Vec<Event> {
    let error = chat::refusal(refused).1.to_string();
    let event = |name: &str, data| Event { name: Some(name.to_owned()), data };
    vec![event("error", error.into()), event("done", Cow::Borrowed(chat::DONE))]
}
