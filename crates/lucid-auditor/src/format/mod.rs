//! Protocols of model servers: where their texts are, and how they report a refusal.
//!
//! A protocol that is recognised wrongly hides no text: strings that no rule names are judged as well.

mod anthropic;
mod generic;
mod kserve;
mod mcp;
mod ollama;
mod openai;
mod tgi;

use std::{borrow::Cow, collections::BTreeSet};

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::{
    Direction,
    json::{Document, Kind, Node, SEPARATORS, Step, is_json},
};

/// Maximum length of a `type` or `method` of a protocol.
const MAX_KIND: usize = 256;

/// A protocol.
#[derive(Debug)]
pub(crate) struct Format {
    /// Texts of a request.
    pub(crate) request: &'static [Rule],
    /// Texts of a whole answer.
    pub(crate) answer: &'static [Rule],
    /// Texts of an event of a streamed answer that continue those of earlier events. Other texts of an event are whole.
    pub(crate) events: &'static [Rule],
    /// Returns status and body of a refusal.
    pub(crate) refusal: fn(&Refusal<'_>) -> (StatusCode, Value),
    /// Returns the events that end a refused stream. Without any, the connection is cut.
    pub(crate) end: fn(&Refusal<'_>) -> Vec<Event>,
}

/// Strings of a JSON document that are texts of one kind.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Names of members, `*` for any element of an array, and `**` at the end for everything below.
    path: &'static str,
    /// Number of leading steps of the path that lead to the message. Strings of one message are one text.
    message: usize,
    pub(crate) direction: Direction,
    /// Part of the document's member `type`, or of `method`.
    only: &'static str,
}

impl Rule {
    const fn new(direction: Direction, path: &'static str, message: usize) -> Self {
        Self { path, message, direction, only: "" }
    }

    const fn only(mut self, part: &'static str) -> Self {
        self.only = part;
        self
    }
}

/// All strings.
pub(crate) static ANY: Rule = completion("**", 1);

const fn prompt(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::Prompt, path, message)
}

const fn completion(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::Completion, path, message)
}

const fn call(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::ToolCall, path, message)
}

const fn result(path: &'static str, message: usize) -> Rule {
    Rule::new(Direction::ToolResult, path, message)
}

impl Rule {
    /// Returns the message that the string at `path` belongs to, if the rule covers it.
    pub(crate) fn message(&self, document: &Document<'_>, path: &[usize]) -> Option<usize> {
        if !self.only.is_empty() {
            let kind = document.member(0, "type").or_else(|| document.member(0, "method"))?;
            let is_short = document.nodes[kind].range.len() <= MAX_KIND;
            (is_short && document.value(kind).contains(self.only)).then_some(())?;
        }
        // Most rules end in another name.
        if let Step::Name(name) = &document.nodes[*path.last()?].step
            && !self.is_structure()
            && !self.path.ends_with(&**name)
        {
            return None;
        }
        let mut pattern = self.path.split('/');
        for &node in path {
            match (pattern.next()?, &document.nodes[node].step) {
                ("**", _) => return path.get(self.message.checked_sub(1)?).or(path.last()).copied(),
                ("*", Step::Index(_)) => {}
                (name, Step::Name(found)) if name == found => {}
                _ => return None,
            }
        }
        match pattern.next() {
            None | Some("**") => self.message.checked_sub(1).map_or(Some(0), |last| path.get(last).copied()),
            Some(_) => None,
        }
    }

    /// Returns `true` if the member `index` of the event tells which text it continues (Anthropic).
    pub(crate) fn is_indexed(&self) -> bool {
        self.path.starts_with("delta/")
    }

    /// Returns `true` if the strings of a message are separate texts, which are joined by line breaks.
    pub(crate) fn is_structure(&self) -> bool {
        self.path.ends_with("**")
    }

    /// Returns `true` if the strings are JSON themselves, whose escapes are decoded too.
    pub(crate) fn is_nested(&self) -> bool {
        matches!(self.direction, Direction::ToolCall | Direction::ToolResult)
    }
}

/// A refused request or answer.
#[derive(Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) auditor: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) message: &'a str,
    /// Last event of the stream.
    pub(crate) document: Option<&'a Document<'a>>,
    /// Id of the request (JSON-RPC), or an array of those of a batch.
    pub(crate) id: Option<&'a Value>,
    /// Choices that the stream has begun and not ended.
    pub(crate) choices: &'a BTreeSet<u32>,
}

impl Refusal<'_> {
    fn member(&self, name: &'static str) -> Option<Value> {
        let document = self.document?;
        document.member(0, name).map(|node| document.json_value(node))
    }
}

/// An event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    /// Name of a server-sent event, for protocols that have them.
    pub(crate) name: Option<&'static str>,
    pub(crate) data: Cow<'static, str>,
}

impl Event {
    fn json(value: &Value) -> Self {
        Self { name: None, data: value.to_string().into() }
    }
}

/// Returns the protocol of a request.
pub(crate) fn of(path: &str, document: &Document<'_>) -> &'static Format {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let path = path.trim_end_matches('/');
    let by_path: [(&str, &'static Format); 14] = [
        ("/chat/completions", &openai::CHAT),
        ("/completions", &openai::COMPLETIONS),
        ("/responses", &openai::RESPONSES),
        ("/embeddings", &openai::EMBEDDINGS),
        ("/v1/messages", &anthropic::MESSAGES),
        ("/v1/complete", &anthropic::MESSAGES),
        ("/api/chat", &ollama::CHAT),
        ("/api/generate", &ollama::GENERATE),
        ("/api/embed", &ollama::CHAT),
        (":predict", &kserve::V1),
        (":explain", &kserve::V1),
        ("/infer", &kserve::V2),
        ("/generate", &tgi::GENERATE),
        ("/generate_stream", &tgi::GENERATE),
    ];
    let named = by_path.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, format)| *format);
    let has = |name| document.member(0, name).is_some();
    named.unwrap_or_else(|| match () {
        () if is_rpc(document) => &mcp::RPC,
        () if has("messages") => &openai::CHAT,
        () if has("inputs") => &tgi::GENERATE,
        () => &generic::JSON,
    })
}

/// Returns kind and place of content of a request that cannot be judged.
pub(crate) fn unjudged(document: &Document<'_>) -> Option<String> {
    let ids = token_ids(document).map(|place| format!("token ids in {place}"));
    ids.or_else(|| media(document))
}

/// Returns why an answer cannot be judged. Prose may contain JSON as an example, so only whole documents count.
pub(crate) fn unjudged_answer(document: &Document<'_>) -> Option<String> {
    let found = media(document).filter(|_| is_json(document.text.trim_start_matches(SEPARATORS)))?;
    Some(format!("the answer has {found}, which cannot be judged"))
}

/// Returns kind and place of an image, sound, video or file in messages.
fn media(document: &Document<'_>) -> Option<String> {
    // Values of `type`. Servers also accept parts without it, by the name of their member.
    const MEDIA: [&str; 17] = [
        "audio",
        "audio_embeds",
        "audio_url",
        "computer_screenshot",
        "container_upload",
        "file",
        "image",
        "image_embeds",
        "image_generation_call",
        "image_url",
        "input_audio",
        "input_file",
        "input_image",
        "input_video",
        "prompt_embeds",
        "video",
        "video_url",
    ];
    let named = |node: usize, names: &[&str]| match &document.nodes[node].step {
        // Servers in Go ignore the case of names.
        Step::Name(name) => names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        Step::Index(_) => false,
    };
    let parent = |node: usize| document.nodes[node].parent;
    let is_part = |node: usize| match document.nodes[node].step {
        Step::Index(_) => named(parent(node), &["content", "input", "output"]),
        Step::Name(_) => {
            named(node, &["content", "output"])
                || named(parent(node), &["variables"])
                // Events of OpenAI.
                || parent(node) == 0 && named(node, &["item", "part"])
        }
    };
    let is_message =
        |node: usize| node == 0 || named(parent(node), &["messages"]) || named(node, &["delta", "message"]);
    let is_object = |node: usize| document.text[document.nodes[node].range.clone()].starts_with('{');
    let is_media = |node: usize| {
        let Node { kind, range, .. } = &document.nodes[node];
        let is_type = *kind == Kind::String && range.len() <= MAX_KIND && named(node, &["type"]);
        let is = |values: &[&str]| is_type && values.contains(&&*document.value(node));
        let holder = parent(node);
        is_part(holder) && (named(node, &MEDIA) || is(&MEDIA))
            // Anthropic.
            || named(holder, &["source"]) && is_part(parent(holder)) && is(&["base64", "file", "url"])
            // MCP.
            || named(node, &["blob"]) && (named(holder, &["resource"]) || named(parent(holder), &["contents"]))
            // Ollama, then llama.cpp and SGLang.
            || named(node, &["images"]) && is_message(holder)
            || named(node, &["image_data", "multimodal_data"]) && !is_object(node)
            // Answers of OpenAI.
            || named(node, &["audio"]) && named(holder, &["delta", "message"])
            || named(node, &["b64_json", "partial_image_b64"]) && !is_object(node)
    };
    let is_empty = |node: usize| {
        let value = &document.text[document.nodes[node].range.clone()];
        matches!(value.trim_matches(|c: char| "[]{}".contains(c) || c.is_whitespace()), "" | "null")
    };
    // Arguments and results of tools have any names.
    let is_argument = |node: usize| {
        let arguments = |&node: &usize| {
            named(node, &["arguments", "structuredContent"]) || named(node, &["input"]) && is_object(node)
        };
        document.path(node).iter().any(arguments)
    };
    let nodes = 1..document.nodes.len();
    let found = nodes.into_iter().find(|&node| is_media(node) && !is_empty(node) && !is_argument(node));
    found.map(|node| format!("an image, sound or file in {}", document.pointer(node)))
}

/// Returns the place of token ids in a request. Without the model's tokenizer they are no text.
fn token_ids(document: &Document<'_>) -> Option<String> {
    const NAMES: [&str; 5] = ["context", "input", "input_ids", "prompt", "prompt_token_ids"];
    let is_number = |start: char| start == '-' || start.is_ascii_digit();
    let is_name = |step: &Step<'_>| matches!(step, Step::Name(name) if NAMES.contains(&&**name));
    let mut nodes = 0..document.nodes.len();
    let found = nodes.find(|&node| {
        let Node { parent, step, kind, range } = &document.nodes[node];
        let array = document.text[range.clone()].strip_prefix('[').filter(|_| *kind == Kind::Container);
        if !array.is_some_and(|content| content.trim_start().starts_with(is_number)) {
            return false;
        }
        // A tensor of KServe has its name beside its data.
        let tensor = || document.member_value(*parent, "name").is_some_and(|name| NAMES.contains(&&*name));
        let is_tensor = matches!(step, Step::Name(name) if name == "data") && tensor();
        is_tensor || document.path(node).first().is_some_and(|&member| is_name(&document.nodes[member].step))
    });
    found.map(|node| document.pointer(node))
}

/// Returns the id of a request of JSON-RPC, or those of a batch as an array. Without an answer for each request of a larger
/// batch, it is `null`.
pub(crate) fn rpc_id(document: &Document<'_>) -> Option<Value> {
    const MAX_BATCH: usize = 100;
    let id = |message| {
        document.member(message, "jsonrpc")?;
        let id = document.member(message, "id").map(|id| document.json_value(id))?;
        (!id.is_array() && !id.is_object()).then_some(id)
    };
    if !document.text.trim_start().starts_with('[') {
        return id(0);
    }
    let messages = (1..document.nodes.len()).filter(|&node| document.nodes[node].parent == 0);
    let ids: Vec<_> = messages.filter_map(id).take(MAX_BATCH + 1).collect();
    match ids.len() {
        0 => None,
        1..=MAX_BATCH => Some(ids.into()),
        _ => Some(Value::Null),
    }
}

/// Returns `true` for the event `ping` (Anthropic), which says nothing about its stream.
pub(crate) fn is_ping(content: &str) -> bool {
    // Other events are longer.
    content.len() <= 64 && Document::scan(content).member_value(0, "type").as_deref() == Some("ping")
}

/// Returns `true` for messages of JSON-RPC.
pub(crate) fn is_rpc(document: &Document<'_>) -> bool {
    // In a batch, the first element.
    [0, 1].into_iter().any(|node| document.member(node, "jsonrpc").is_some())
}
