//! Protocols of model servers. Each is one value in a separate file, and nothing else in the crate names its members.
//!
//! A wrongly recognized protocol does not hide text: strings that no rule names are judged as well. What is true of a member
//! of one protocol, such as that it holds an image, counts in all of them, because callers choose path and body.

mod anthropic;
mod assistants;
mod chat;
mod embeddings;
mod gemini;
mod kserve;
mod mcp;
mod media;
mod ollama;
mod responses;
mod rule;
mod tgi;
mod ui_messages;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt,
    ops::Range,
    sync::LazyLock,
};

use hyper::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::json::{Document, Kind, MAX_NAME, Step};

pub(crate) use self::{
    chat::DONE,
    mcp::request_id,
    media::{unjudged_answer, unjudged_request},
    rule::{ANY, Rule},
};

/// All protocols, those first whose paths end, or whose answers begin, like those of others.
static PROTOCOLS: [&Protocol; 16] = [
    &chat::CHAT,
    &chat::COMPLETIONS,
    &responses::RESPONSES,
    &embeddings::EMBEDDINGS,
    &assistants::THREADS,
    &ui_messages::PARTS,
    &anthropic::MESSAGES,
    &ollama::CHAT,
    &ollama::GENERATE,
    &ollama::EMBED,
    &gemini::GENERATE,
    &kserve::V1,
    &kserve::V2,
    &mcp::RPC,
    &tgi::GENERATE,
    &GENERIC,
];

/// JSON of unknown structure, and plain text.
pub(crate) static GENERIC: Protocol = Protocol::UNKNOWN;

#[derive(Debug)]
pub(crate) struct Protocol {
    /// Ends of the paths of its requests.
    paths: &'static [&'static str],
    /// Recognizes a request whose path says nothing.
    is_request: fn(&Document<'_>) -> bool,
    /// Recognizes an answer, or an event of one.
    is_answer: fn(&Document<'_>) -> bool,
    pub(crate) request: &'static [Rule],
    /// Other texts of a whole answer, and whole texts of an event.
    pub(crate) answer: &'static [Rule],
    /// Texts of an answer or event: those that continue over the events of a stream, and names that do not.
    pub(crate) events: &'static [Rule],
    /// The array of messages of a request, the oldest first.
    pub(crate) messages: &'static str,
    /// The array of answers, if the caller may ask for several.
    pub(crate) choices: &'static str,
    /// Members of an event that tell which text it continues.
    pub(crate) indices: &'static [&'static str],
    /// Members of an element of an array in an event that tell which one it is: its index, its id, and the name by which a new
    /// one begins.
    pub(crate) element: (&'static str, &'static str, &'static str),
    /// Parts of an answer continue each other, wherever they are in their array.
    pub(crate) joins_elements: bool,
    pub(crate) effect: fn(&Document<'_>) -> Effect,
    /// First byte of a JSON answer that is a stream: the elements of its first array are events.
    pub(crate) elements: Option<u8>,
    /// Members that repeat the text, also as token ids, and are removed if it is masked: containers, and numbers at the end of
    /// a path.
    echoes: &'static [&'static str],
    /// Names of members that no rule names, with spaces between them.
    names: &'static str,
    /// Members whose values are identifiers, in the same form.
    identifiers: &'static str,
    /// Models define the members of documents: none is an identifier.
    is_open: bool,
    /// Members whose values only the server itself reads, and the `type` of the container, if it matters.
    opaque: &'static [(&'static str, &'static str)],
    media: media::Media,
    pub(crate) refusal: fn(&Refusal<'_>) -> (StatusCode, Value),
    /// Returns the state of a stream before anything is sent.
    pub(crate) sent: fn() -> Box<dyn Sent>,
    /// The state depends on the texts.
    pub(crate) keeps_texts: bool,
}

impl Protocol {
    const UNKNOWN: Self = Self {
        paths: &[],
        is_request: |_| false,
        is_answer: |_| false,
        request: &[],
        answer: &[],
        events: &[],
        messages: "",
        choices: "",
        indices: &[],
        element: ("", "", ""),
        joins_elements: false,
        effect: |_| Effect::None,
        elements: None,
        echoes: &[],
        names: "",
        identifiers: "",
        is_open: false,
        opaque: &[],
        media: media::Media::NONE,
        refusal: chat::refusal,
        sent: || Box::new(End(|_| Vec::new())),
        keeps_texts: false,
    };

    pub(crate) fn of_request(path: &str, document: &Document<'_>) -> &'static Self {
        let named = PROTOCOLS.iter().find(|it| it.is_at(path));
        named.or_else(|| PROTOCOLS.iter().find(|it| (it.is_request)(document))).unwrap_or(&&GENERIC)
    }

    pub(crate) fn is_at(&self, path: &str) -> bool {
        let path = percent_decode_str(path).decode_utf8_lossy();
        let path = path.trim_end_matches('/');
        self.paths.iter().any(|end| path.ends_with(end))
    }

    /// Returns the protocol of an answer or an event, by its content: path and body of the request do not decide what the model
    /// sends.
    pub(crate) fn of_answer(document: &Document<'_>) -> Option<&'static Self> {
        PROTOCOLS.iter().find(|it| (it.is_answer)(document)).copied()
    }

    pub(crate) fn is_known(&self) -> bool {
        !(self.request.is_empty() && self.events.is_empty() || self.is_open)
    }

    /// Returns the index of the answer that a node belongs to.
    pub(crate) fn choice(&self, document: &Document<'_>, node: usize) -> Option<u32> {
        let array = Some(document.ancestor(node, 1)).filter(|_| !self.choices.is_empty())?;
        (document.nodes[array].step.name() == Some(self.choices)).then_some(())?;
        let element = document.ancestor(node, 2);
        let stated = document.member_value(element, self.element.0).and_then(|index| index.parse().ok());
        stated.or(match document.nodes[element].step {
            Step::Index(index) => Some(index),
            Step::Name(_) => None,
        })
    }

    pub(crate) fn message_of(&self, document: &Document<'_>, node: usize) -> Option<usize> {
        let array = document.ancestor(node, 1);
        let is_message =
            !self.messages.is_empty() && document.nodes[array].step.name() == Some(self.messages);
        (is_message && document.nodes[node].depth >= 2).then(|| document.ancestor(node, 2))
    }

    pub(crate) fn last_answer(&self, document: &Document<'_>) -> Option<usize> {
        let is_answer = |&node: &usize| {
            let is = |name: &str, test: fn(&str) -> bool| {
                document.member_value(node, name).is_some_and(|it| test(&it))
            };
            document.nodes[node].depth == 2
                && self.message_of(document, node).is_some()
                && (is("role", |role| matches!(role, "assistant" | "model"))
                    // Items of OpenAI's responses.
                    || is("type", |kind| kind.ends_with("_call") || kind == "reasoning"))
        };
        (1..document.nodes.len()).rev().find(is_answer)
    }

    pub(crate) fn echoes(&self, document: &Document<'_>) -> Vec<Range<usize>> {
        let is_echo = |node: usize| {
            let is_container = document.nodes[node].kind == Kind::Container;
            let is_echo =
                |echo: &&str| (is_container || echo.contains('/')) && media::ends(document, node, echo);
            self.echoes.iter().any(is_echo) && !media::is_free(document, node)
        };
        document.outermost(is_echo)
    }

    pub(crate) fn choices(&self, document: &Document<'_>) -> BTreeSet<u32> {
        let elements = (0..document.nodes.len()).filter(|&node| document.nodes[node].depth == 2);
        elements.filter_map(|node| self.choice(document, node)).collect()
    }
}

/// Returns the role of a string's message, if one is stated.
pub(crate) fn role<'a>(document: &Document<'a>, message: usize, node: usize) -> Option<Cow<'a, str>> {
    let role = |node| document.member_value(node, "role");
    // Parts of a message have its role.
    let role = role(message).or_else(|| document.ancestors(node).find_map(role))?;
    (role.len() <= MAX_NAME).then_some(role)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Ping,
    /// The texts of some answers end.
    Ends(Vec<u32>),
    /// All texts end.
    EndsAll,
}

/// Part of a stream that was sent, as far as its early end depends on it.
pub(crate) trait Sent: fmt::Debug + Send {
    fn note(&mut self, _event: &Document<'_>) {}

    /// Returns the events of an early end. Without any, the connection is cut.
    fn end(&self, refusal: &Refusal<'_>) -> Vec<Event>;
}

/// Early end that does not depend on what was sent; none if there are no events.
#[derive(Debug)]
struct End(fn(&Refusal<'_>) -> Vec<Event>);

impl Sent for End {
    fn end(&self, refused: &Refusal<'_>) -> Vec<Event> {
        (self.0)(refused)
    }
}

/// Kinds of refusals: by a judge, by its failure, and of what cannot be judged.
pub(crate) const BLOCKED: &str = "blocked";
pub(crate) const JUDGE_FAILED: &str = "judge_failed";
pub(crate) const UNREADABLE: &str = "unreadable";

#[derive(Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) auditor: &'a str,
    pub(crate) kind: &'static str,
    /// Rule of a judge, or empty.
    pub(crate) rule: &'a str,
    pub(crate) status: StatusCode,
    pub(crate) message: &'a str,
    /// Id of the request (JSON-RPC), or an array of those of a batch.
    pub(crate) id: Option<&'a Value>,
    /// Answers that the stream has begun and not ended.
    pub(crate) choices: &'a BTreeSet<u32>,
}

impl Refusal<'_> {
    fn is_verdict(&self) -> bool {
        self.kind == BLOCKED
    }
}

/// Returns the refusal of protocols without types of errors.
fn plain(refused: &Refusal<'_>) -> (StatusCode, Value) {
    (refused.status, json!({"error": refused.message, "auditor": refused.auditor}))
}

#[derive(Debug)]
pub(crate) struct Event {
    /// Name of a server-sent event, for protocols that have them.
    pub(crate) name: Option<String>,
    pub(crate) data: Cow<'static, str>,
}

impl Event {
    fn json(value: &Value) -> Self {
        Self { name: None, data: value.to_string().into() }
    }

    /// Returns an event that has its member `type` as name.
    fn named(value: &Value) -> Self {
        Self { name: value["type"].as_str().map(str::to_owned), data: value.to_string().into() }
    }
}

#[derive(Debug, Default)]
struct Member {
    is_identifier: bool,
    /// Values are opaque in containers of these types, or with an empty one in all.
    opaque: Vec<&'static str>,
}

static MEMBERS: LazyLock<HashMap<&'static str, Member>> = LazyLock::new(|| {
    let mut members: HashMap<&'static str, Member> = HashMap::new();
    for it in PROTOCOLS {
        let rules = [it.request, it.answer, it.events].into_iter().flatten();
        for name in rules.flat_map(|rule| rule.path.split('/')).chain(it.names.split_whitespace()) {
            members.entry(name).or_default();
        }
        for name in it.identifiers.split_whitespace() {
            members.entry(name).or_default().is_identifier = true;
        }
        for (name, kind) in it.opaque {
            members.entry(name).or_default().opaque.push(kind);
        }
    }
    members
});

/// Returns `true` for the name of a member of a protocol, which is not text.
pub(crate) fn is_name(name: &str) -> bool {
    MEMBERS.contains_key(name)
}

/// Returns `true` for a string that is not text: an identifier, such as the name of the model, or opaque.
pub(crate) fn is_structure(document: &Document<'_>, node: usize, text: &str) -> bool {
    let Some(member) = document.nodes[node].step.name().and_then(|name| MEMBERS.get(name)) else {
        return false;
    };
    let kind = || document.member_value(document.nodes[node].parent, "type").unwrap_or_default();
    let is_structure = member.is_identifier && is_identifier(text)
        || is_encoded(text) && member.opaque.iter().any(|of| of.is_empty() || kind() == *of);
    is_structure && !media::is_free(document, node)
}

/// Maximum length of an identifier.
const MAX_IDENTIFIER: usize = 128;

pub(crate) fn is_identifier(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/+-".contains(&byte);
    text.len() <= MAX_IDENTIFIER && text.bytes().all(is_part)
}

/// Returns `true` for base64, in any alphabet, and the like.
fn is_encoded(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:/+-=~|".contains(&byte))
}
