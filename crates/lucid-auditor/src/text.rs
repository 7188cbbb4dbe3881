//! The texts of a JSON document, and replacements in them.

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use crate::{
    Direction, Passage, Span,
    format::Rule,
    json::{self, Document, Kind, Offsets, Step, decode, encode},
    values::Values,
};

/// Maximum number of texts of a document. The strings beyond it are one text.
const MAX_TEXTS: usize = 256;

/// Number of characters by which names of members are compared, and of a role.
pub(crate) const MAX_NAME: usize = 64;

/// A text of a document, which consists of one string or several.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) passage: Passage<'static>,
    pieces: Vec<Piece>,
}

/// A string of a text.
#[derive(Debug)]
struct Piece {
    /// Place in the text.
    range: Range<usize>,
    source: Source,
}

/// A string of a document.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    range: Range<usize>,
    /// Decoded escapes, the outermost first.
    levels: Vec<Offsets>,
    /// Strings and scalars of the innermost JSON.
    values: Option<Arc<Values>>,
    /// The source is a number of the document, which is replaced by a string as a whole.
    is_scalar: bool,
}

impl Source {
    /// Returns a text that is no JSON.
    pub(crate) fn plain(text: &str) -> Self {
        Self { range: 0..text.len(), levels: Vec::new(), values: None, is_scalar: false }
    }

    /// Decodes a string or number of a document.
    pub(crate) fn of<'a>(document: &Document<'a>, node: usize, is_nested: bool) -> (Self, Cow<'a, str>) {
        let range = document.nodes[node].range.clone();
        if document.nodes[node].kind == Kind::Scalar {
            let text = &document.text[range.clone()];
            return (Self { range, is_scalar: true, ..Self::plain("") }, text.into());
        }
        Self::decode(document.text, range, is_nested)
    }

    /// Decodes the string at `range` of a document.
    fn decode<'a>(text: &'a str, range: Range<usize>, is_nested: bool) -> (Self, Cow<'a, str>) {
        let decoded = decode(&text[range.clone()]);
        let (mut text, mut levels, mut values) = (decoded.text, vec![decoded.offsets], None);
        let is_json = text.trim_start().starts_with(['{', '[']);
        if is_nested && (is_json || text.contains('\\')) {
            // Results of tools may begin like JSON.
            if is_json && json::is_json(&text) {
                values = Some(Arc::new(Values::of(&text)));
            }
            let inner = decode(&text);
            levels.push(inner.offsets);
            // An incomplete escape at the end is judged as it is.
            let rest = &text[inner.complete..];
            text = Cow::Owned(format!("{}{rest}", inner.text));
        }
        (Self { range, levels, values, is_scalar: false }, text)
    }

    /// Returns the replacement of a part of the string, as edits of the document.
    pub(crate) fn edits(&self, part: Range<usize>, replacement: &str) -> Vec<Edit> {
        let parts = match self.levels.last() {
            Some(level) => {
                let part = level.escaped(part.start)..level.escaped(part.end);
                match &self.values {
                    Some(values) => values.replace(part, replacement),
                    None => vec![(part, encode(replacement))],
                }
            }
            None if self.is_scalar => vec![(0..self.range.len(), format!("\"{}\"", encode(replacement)))],
            None => vec![(part, replacement.to_owned())],
        };
        let outer = || self.levels.iter().rev().skip(1);
        let place = |offset: usize| (self.range.start + offset).min(self.range.end);
        let edits = parts.into_iter().map(|part| {
            let (range, replacement) = outer().fold(part, |(range, replacement), level| {
                (level.escaped(range.start)..level.escaped(range.end), encode(&replacement))
            });
            Edit { range: place(range.start)..place(range.end), replacement }
        });
        edits.collect()
    }
}

/// A replacement in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) replacement: String,
}

/// Returns the document with the edits. Of edits that overlap, the first counts, extended to the end of the last.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for Edit { range, replacement } in edits {
        if range.start >= at {
            edited.push_str(&text[at..range.start]);
            edited.push_str(&replacement);
        }
        at = at.max(range.end);
    }
    edited.push_str(&text[at..]);
    edited
}

impl Text {
    /// Returns a text that is no JSON.
    pub(crate) fn plain(direction: Direction, text: &str) -> Self {
        let pieces = vec![Piece { range: 0..text.len(), source: Source::plain(text) }];
        Self { passage: Passage::new(direction, text.to_owned()), pieces }
    }

    /// Returns the edits that replace a part of the text. The first string gets the replacement.
    pub(crate) fn edits(&self, span: &Span) -> Vec<Edit> {
        let range = &span.range;
        let first = self.pieces.partition_point(|piece| piece.range.end <= range.start);
        let touched = self.pieces[first..].iter().take_while(|piece| piece.range.start < range.end);
        let edits = touched.enumerate().flat_map(|(index, piece)| {
            let start = range.start.max(piece.range.start) - piece.range.start;
            let end = range.end.min(piece.range.end) - piece.range.start;
            piece.source.edits(start..end, if index == 0 { &span.replacement } else { "" })
        });
        edits.collect()
    }

    fn is_in_lines(&self) -> bool {
        // Strings that are joined directly follow each other without a gap.
        self.pieces.windows(2).all(|pair| pair[0].range.end < pair[1].range.start)
    }

    /// Returns the same strings on lines of their own, if there are several: a model may read them so, and the end of one may
    /// hide the beginning of the next.
    fn in_lines(&self) -> Option<Self> {
        (self.pieces.len() > 1).then_some(())?;
        let passage = Passage { text: Cow::Borrowed(""), ..self.passage.clone() };
        let mut lines = Self { passage, pieces: Vec::new() };
        for piece in &self.pieces {
            lines.add(&self.passage.text[piece.range.clone()], piece.source.clone(), "\n");
        }
        Some(lines)
    }

    fn add(&mut self, text: &str, source: Source, separator: &str) {
        let passage = self.passage.text.to_mut();
        if !self.pieces.is_empty() {
            passage.push_str(separator);
        }
        let start = passage.len();
        passage.push_str(text);
        self.pieces.push(Piece { range: start..start + text.len(), source });
    }
}

/// Property that the strings of one text share.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A message, by its node, and a rule.
    Message(usize, usize),
    /// A member that no rule names: its strings are joined by this name.
    Member(String),
    /// Names of members.
    Names,
    /// All strings beyond the maximum number of texts.
    Rest(Direction),
}

/// Returns the texts of a document. `direction` is that of strings that no rule names.
pub(crate) fn texts(document: &Document<'_>, rules: &[Rule], direction: Direction) -> Vec<Text> {
    let strings = (0..document.nodes.len()).filter(|&node| document.is_text(node));
    texts_of(document, strings, rules, direction)
}

/// Returns the texts that consist of some strings of a document, and of its names.
pub(crate) fn texts_of(
    document: &Document<'_>,
    strings: impl Iterator<Item = usize>,
    rules: &[Rule],
    direction: Direction,
) -> Vec<Text> {
    let mut collected = Collected { texts: Vec::new(), by_key: HashMap::new() };
    for node in strings {
        let path = document.path(node);
        let rule = rules
            .iter()
            .enumerate()
            .find_map(|(index, rule)| Some((index, rule, rule.message(document, &path)?)));
        let is_nested = rule.is_some_and(|(_, rule, _)| rule.is_nested());
        let (source, text) = Source::of(document, node, is_nested);
        // Without rules, the structure is unknown.
        if text.is_empty() || rule.is_none() && !rules.is_empty() && is_structure(document, node, &text) {
            continue;
        }
        let (key, separator) = match rule {
            Some((index, rule, message)) => {
                (Key::Message(message, index), if rule.is_structure() { "\n" } else { "" })
            }
            None => {
                (Key::Member(name(document, &path).unwrap_or_default().chars().take(MAX_NAME).collect()), "")
            }
        };
        let described = || match rule {
            Some((_, rule, message)) => describe(document, rule, message, &path),
            None => Passage { location: document.pointer(node).into(), ..Passage::new(direction, "") },
        };
        collected.add(key, described, &text, source, separator);
    }
    for range in &document.names {
        let (source, text) = Source::decode(document.text, range.clone(), false);
        if NAMES.binary_search(&&*text).is_err() {
            collected.add(Key::Names, || Passage::new(direction, ""), &text, source, "\n");
        }
    }
    let mut texts = collected.texts;
    let lines: Vec<_> = texts.iter().filter(|text| !text.is_in_lines()).filter_map(Text::in_lines).collect();
    texts.extend(lines);
    texts
}

struct Collected {
    texts: Vec<Text>,
    by_key: HashMap<Key, usize>,
}

impl Collected {
    fn add(
        &mut self,
        key: Key,
        passage: impl FnOnce() -> Passage<'static>,
        text: &str,
        source: Source,
        separator: &str,
    ) {
        let passage = (!self.by_key.contains_key(&key)).then(passage);
        let (key, separator) = match &passage {
            Some(new) if self.texts.len() >= MAX_TEXTS => (Key::Rest(new.direction), "\n"),
            _ => (key, separator),
        };
        let next = self.texts.len();
        let index = *self.by_key.entry(key).or_insert(next);
        if index == next {
            self.texts.extend(passage.map(|passage| Text { passage, pieces: Vec::new() }));
        }
        self.texts[index].add(text, source, separator);
    }
}

/// Returns the passage of a message, still without text.
fn describe(document: &Document<'_>, rule: &Rule, message: usize, path: &[usize]) -> Passage<'static> {
    let role = document.member_value(message, "role").or_else(|| {
        // Parts of a message have its role.
        path.iter().rev().find_map(|&node| document.member_value(node, "role"))
    });
    let role = role.filter(|role| role.len() <= MAX_NAME);
    let direction = match role.as_deref() {
        Some("tool" | "function") if rule.direction == Direction::Prompt => Direction::ToolResult,
        _ => rule.direction,
    };
    let location = document.pointer(if message == 0 { path.last().copied().unwrap_or(0) } else { message });
    Passage {
        role: role.map(|role| role.into_owned().into()),
        choice: choice(document, path),
        location: location.into(),
        ..Passage::new(direction, "")
    }
}

/// Returns the index of the answer that a string of `choices` belongs to.
pub(crate) fn choice(document: &Document<'_>, path: &[usize]) -> Option<u32> {
    let [choices, choice, ..] = path else { return None };
    let Step::Name(name) = &document.nodes[*choices].step else { return None };
    (name == "choices").then_some(())?;
    let stated = document.member_value(*choice, "index").and_then(|index| index.parse().ok());
    stated.or(match document.nodes[*choice].step {
        Step::Index(index) => Some(index),
        Step::Name(_) => None,
    })
}

/// Returns the last name on a path.
pub(crate) fn name<'a>(document: &'a Document<'_>, path: &[usize]) -> Option<&'a str> {
    path.iter().rev().find_map(|&node| match &document.nodes[node].step {
        Step::Name(name) => Some(&**name),
        Step::Index(_) => None,
    })
}

/// Returns `true` for a string that protocols use as an identifier, such as the name of the model.
pub(crate) fn is_structure(document: &Document<'_>, node: usize, text: &str) -> bool {
    const IDENTIFIERS: [&str; 19] = [
        "call_id",
        "created_at",
        "datatype",
        "done_reason",
        "encoding_format",
        "event_id",
        "finish_reason",
        "id",
        "item_id",
        "jsonrpc",
        "method",
        "model",
        "object",
        "role",
        "service_tier",
        "status",
        "stop_reason",
        "system_fingerprint",
        "type",
    ];
    let Step::Name(name) = &document.nodes[node].step else { return false };
    let is_known = IDENTIFIERS.contains(&&**name)
        || matches!(&**name, "tool_call_id" | "tool_use_id" | "response_id" | "obfuscation");
    is_known && is_identifier(text)
}

pub(crate) fn is_identifier(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/+-".contains(&byte);
    text.len() <= 128 && text.bytes().all(is_part)
}

/// Names of members that protocols define, in order.
const NAMES: [&str; 96] = [
    "arguments",
    "audio",
    "choices",
    "completion",
    "completion_tokens",
    "completion_tokens_details",
    "content",
    "content_block",
    "content_index",
    "created",
    "created_at",
    "data",
    "datatype",
    "delta",
    "description",
    "done",
    "done_reason",
    "embedding",
    "error",
    "eval_count",
    "eval_duration",
    "event_id",
    "finish_reason",
    "format",
    "function",
    "function_call",
    "generated_text",
    "id",
    "image_url",
    "index",
    "input",
    "input_tokens",
    "inputs",
    "instances",
    "instructions",
    "item",
    "item_id",
    "jsonrpc",
    "load_duration",
    "logprobs",
    "max_completion_tokens",
    "max_new_tokens",
    "max_output_tokens",
    "max_tokens",
    "message",
    "messages",
    "metadata",
    "method",
    "model",
    "n",
    "name",
    "obfuscation",
    "object",
    "options",
    "output",
    "output_index",
    "output_tokens",
    "outputs",
    "parallel_tool_calls",
    "parameters",
    "params",
    "part",
    "partial_json",
    "predictions",
    "prompt",
    "prompt_eval_count",
    "prompt_tokens",
    "properties",
    "reasoning",
    "reasoning_content",
    "refusal",
    "required",
    "response",
    "response_format",
    "result",
    "role",
    "seed",
    "sequence_number",
    "shape",
    "stop",
    "stop_reason",
    "stop_sequence",
    "stream",
    "stream_options",
    "system",
    "system_fingerprint",
    "temperature",
    "text",
    "token",
    "tool_call_id",
    "tool_calls",
    "tool_choice",
    "tools",
    "top_p",
    "total_tokens",
    "type",
];

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn names_are_found_by_binary_search() {
        assert!(NAMES.is_sorted());
    }
}
