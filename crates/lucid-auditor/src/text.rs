//! The texts of a JSON document, and replacements in them.

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use crate::{
    Direction, Passage, Span,
    json::{Document, Kind, Offsets, decode, encode, shortened},
    protocol::{self, Protocol, Rule},
    values::Values,
};

/// Maximum number of texts of a document. The strings beyond it are one text.
const MAX_TEXTS: usize = 1024;

/// Message of the strings beyond them.
const REST: usize = usize::MAX;

/// A text of a document, which consists of one string or several.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) passage: Passage<'static>,
    pieces: Vec<Piece>,
    message: Option<usize>,
}

#[derive(Debug)]
struct Piece {
    range: Range<usize>,
    source: Source,
}

#[derive(Debug, Clone)]
pub(crate) struct Source {
    range: Range<usize>,
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    Plain,
    Scalar,
    /// A string, with the escapes that it has. Most have none, and a body may have many strings.
    String(Option<Arc<Escapes>>),
}

#[derive(Debug)]
struct Escapes {
    /// Decoded escapes, the outermost first.
    levels: Vec<Offsets>,
    /// Strings and scalars of the innermost JSON.
    values: Option<Values>,
}

impl Source {
    pub(crate) fn plain(text: &str) -> Self {
        Self { range: 0..text.len(), form: Form::Plain }
    }

    pub(crate) fn of<'a>(document: &Document<'a>, node: usize, is_nested: bool) -> (Self, Cow<'a, str>) {
        let range = document.nodes[node].range.clone();
        if document.nodes[node].kind == Kind::Scalar {
            return (Self { range, form: Form::Scalar }, document.raw(node).into());
        }
        Self::decode(document.text, range, is_nested)
    }

    /// Decodes the string at `range` of a document.
    fn decode<'a>(text: &'a str, range: Range<usize>, is_nested: bool) -> (Self, Cow<'a, str>) {
        let decoded = decode(&text[range.clone()]);
        let (mut text, mut escapes) = (decoded.text, None);
        let is_json = text.trim_start().starts_with(['{', '[']);
        if is_nested && (is_json || text.contains('\\')) {
            // Results of tools may begin like JSON.
            let values = (is_json && Document::scan(&text).is_json).then(|| Values::of(&text));
            let inner = decode(&text);
            escapes = Some(Escapes { levels: vec![decoded.offsets, inner.offsets], values });
            // An incomplete escape at the end is judged as it is.
            let rest = &text[inner.complete..];
            text = Cow::Owned(format!("{}{rest}", inner.text));
        } else if decoded.offsets != Offsets::default() {
            escapes = Some(Escapes { levels: vec![decoded.offsets], values: None });
        }
        (Self { range, form: Form::String(escapes.map(Arc::new)) }, text)
    }

    /// Returns the replacement of a part of the string, as edits of the document.
    pub(crate) fn edits(&self, part: Range<usize>, replacement: &str) -> Vec<Edit> {
        let parts = match &self.form {
            Form::Plain => vec![(part, replacement.to_owned())],
            Form::Scalar => vec![(0..self.range.len(), format!("\"{}\"", encode(replacement)))],
            Form::String(None) => vec![(part, encode(replacement))],
            Form::String(Some(escapes)) => escapes.replace(part, replacement),
        };
        let place = |offset: usize| (self.range.start + offset).min(self.range.end);
        let edits = parts.into_iter();
        edits
            .map(|(part, replacement)| Edit { range: place(part.start)..place(part.end), replacement })
            .collect()
    }
}

impl Escapes {
    /// Returns the parts of the escaped string to replace at `part`, with their encoded replacements.
    fn replace(&self, part: Range<usize>, replacement: &str) -> Vec<(Range<usize>, String)> {
        let escaped =
            |part: Range<usize>, level: &Offsets| level.escaped(part.start)..level.escaped(part.end);
        let mut levels = self.levels.iter().rev();
        let part = levels.next().map_or(part.clone(), |innermost| escaped(part, innermost));
        let parts = match &self.values {
            Some(values) => values.replace(part, replacement),
            None => vec![(part, encode(replacement))],
        };
        let outer = |(part, replacement): (_, String)| {
            levels.clone().fold((part, replacement), |(part, replacement), level| {
                (escaped(part, level), encode(&replacement))
            })
        };
        parts.into_iter().map(outer).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) replacement: String,
}

impl Edit {
    pub(crate) fn moved(self, by: usize) -> Self {
        Self { range: self.range.start + by..self.range.end + by, ..self }
    }
}

/// Returns the document with the edits. Overlapping edits are merged; the first one's replacement is used, up to the end of the last.
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

/// Adds edits that empty the containers and numbers at `removed`, which are in order.
pub(crate) fn without(text: &str, removed: Vec<Range<usize>>, mut edits: Vec<Edit>) -> Vec<Edit> {
    edits.retain(|edit| {
        let before = removed.partition_point(|range| range.start <= edit.range.start);
        before.checked_sub(1).is_none_or(|last| removed[last].end < edit.range.end)
    });
    edits.extend(removed.into_iter().map(|range| {
        let empty = match text.as_bytes()[range.start] {
            b'[' => "[]",
            b'0'..=b'9' => "0",
            _ => "null",
        };
        Edit { range, replacement: empty.to_owned() }
    }));
    edits
}

impl Text {
    pub(crate) fn plain(direction: Direction, text: &str) -> Self {
        let pieces = vec![Piece { range: 0..text.len(), source: Source::plain(text) }];
        Self { passage: Passage::new(direction, text.to_owned()), pieces, message: None }
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

    /// Returns the same strings with other joints, if there are several: a model may read them on lines of their own, and the
    /// end of one may hide the beginning of the next. Where words meet at several joints, there are also texts with every other
    /// one of these as a line break: a phrase may begin at one, and be cut at the next.
    fn rejoined(&self) -> Vec<Self> {
        let string = |piece: &Piece| &self.passage.text[piece.range.clone()];
        let is_in_word = |pair: &[Piece]| {
            string(&pair[0]).ends_with(char::is_alphanumeric)
                && string(&pair[1]).starts_with(char::is_alphanumeric)
        };
        let in_words: Vec<_> = self.pieces.windows(2).map(is_in_word).collect();
        if in_words.is_empty() {
            return Vec::new();
        }
        let mut all = vec![self.joined(in_words.iter().map(|_| true))];
        if in_words.iter().filter(|is_in_word| **is_in_word).count() > 1 {
            for mut is_line in [false, true] {
                all.push(self.joined(in_words.iter().map(|&is_in_word| {
                    is_line ^= is_in_word;
                    is_line && is_in_word
                })));
            }
        }
        all
    }

    fn joined(&self, lines: impl Iterator<Item = bool>) -> Self {
        let passage = Passage { text: Cow::Borrowed(""), ..self.passage.clone() };
        let mut joined = Self { passage, pieces: Vec::new(), message: self.message };
        for (piece, is_line) in self.pieces.iter().zip([false].into_iter().chain(lines)) {
            let text = &self.passage.text[piece.range.clone()];
            joined.add(text, piece.source.clone(), if is_line { "\n" } else { "" });
        }
        joined
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
    Names,
    /// All strings beyond the maximum number of texts.
    Rest(Direction),
}

pub(crate) fn texts_of_request(document: &Document<'_>, path: &str) -> Vec<Text> {
    let protocol = Protocol::of_request(path, document);
    // A server at another path may read any member of the root as text, whatever else the body has.
    let structure = if protocol.is_at(path) { 1 } else { 2 };
    let rules = &[protocol.request];
    let mut texts = texts(document, document.strings(), protocol, rules, structure, Direction::Prompt);
    let last_answer = protocol.last_answer(document);
    for text in &mut texts {
        text.passage.is_message = text.message.is_some();
        text.passage.is_history = text.message.is_some_and(|message| Some(message) < last_answer);
    }
    texts.extend(runs(&texts));
    with_joints(texts)
}

/// Returns the texts of an answer, or of an event, that consist of these strings and of the names of members.
pub(crate) fn texts_of_answer(
    document: &Document<'_>,
    strings: impl Iterator<Item = usize>,
    protocol: &Protocol,
) -> Vec<Text> {
    let rules = [protocol.events, protocol.answer];
    with_joints(texts(document, strings, protocol, &rules, 1, Direction::Completion))
}

fn with_joints(mut texts: Vec<Text>) -> Vec<Text> {
    let others: Vec<_> = texts.iter().filter(|text| !text.is_in_lines()).flat_map(Text::rejoined).collect();
    texts.extend(others);
    texts
}

/// Returns the texts of consecutive messages of one role, joined: a model reads them as one. Prompts and results of tools are
/// apart. Messages without text are skipped, and those beyond the maximum number of texts match any role.
fn runs(texts: &[Text]) -> Vec<Text> {
    let parts: Vec<_> = texts.iter().filter(|text| text.message.is_some()).collect();
    let runs = parts.chunk_by(|a, b| a.passage.role == b.passage.role || b.message == Some(REST));
    let runs = runs.flat_map(|run| {
        let of = |direction| run.iter().copied().filter(move |text| text.passage.direction == direction);
        [Direction::Prompt, Direction::ToolResult].map(|direction| of(direction).collect::<Vec<_>>())
    });
    let runs = runs.filter(|run| run.first().map(|text| text.message) != run.last().map(|text| text.message));
    let joined = runs.filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        let described = if last.message == Some(REST) { last } else { first };
        let mut passage = Passage { text: Cow::Borrowed(""), ..described.passage.clone() };
        passage.is_history = run.iter().all(|text| text.passage.is_history);
        let mut joined = Text { passage, pieces: Vec::new(), message: None };
        for text in run {
            for piece in &text.pieces {
                joined.add(&text.passage.text[piece.range.clone()], piece.source.clone(), "");
            }
        }
        Some(joined)
    });
    joined.collect()
}

/// Returns the texts that consist of these strings. From the depth `structure` on, identifiers are not text.
fn texts(
    document: &Document<'_>,
    strings: impl Iterator<Item = usize>,
    protocol: &Protocol,
    rules: &[&'static [Rule]],
    structure: usize,
    direction: Direction,
) -> Vec<Text> {
    let mut collected = Collected { texts: Vec::new(), by_key: HashMap::new() };
    for node in strings {
        let rules = rules.iter().copied().flatten().enumerate();
        let rule =
            rules.into_iter().find_map(|(index, rule)| Some((index, rule, rule.message(document, node)?)));
        let is_nested = rule.is_some_and(|(_, rule, _)| rule.is_nested());
        let (source, text) = Source::of(document, node, is_nested);
        let may_be_structure = protocol.is_known() && document.nodes[node].depth >= structure;
        if text.is_empty() || may_be_structure && protocol::is_structure(document, node, &text) {
            continue;
        }
        let (key, separator) = match rule {
            Some((index, rule, message)) => {
                (Key::Message(message, index), if rule.is_structure() { "\n" } else { "" })
            }
            None => (Key::Member(shortened(document.name(node)).to_owned()), ""),
        };
        let described = || {
            let passage = match rule {
                Some((_, rule, message)) => describe(document, protocol, rule, message, node),
                None => Passage { location: document.pointer(node).into(), ..Passage::new(direction, "") },
            };
            let message = rule.and_then(|_| protocol.message_of(document, node));
            Text { passage, pieces: Vec::new(), message }
        };
        collected.add(key, described, &text, source, separator);
    }
    for range in &document.names {
        let (source, text) = Source::decode(document.text, range.clone(), false);
        if !protocol::is_name(&text) {
            let names = || Text { passage: Passage::new(direction, ""), pieces: Vec::new(), message: None };
            collected.add(Key::Names, names, &text, source, "\n");
        }
    }
    collected.texts
}

struct Collected {
    texts: Vec<Text>,
    by_key: HashMap<Key, usize>,
}

impl Collected {
    fn add(
        &mut self,
        key: Key,
        described: impl FnOnce() -> Text,
        text: &str,
        source: Source,
        separator: &str,
    ) {
        let new = (!self.by_key.contains_key(&key)).then(described);
        let (key, separator) = match &new {
            Some(new) if self.texts.len() >= MAX_TEXTS => (Key::Rest(new.passage.direction), ""),
            _ => (key, separator),
        };
        let next = self.texts.len();
        let is_rest = matches!(key, Key::Rest(_));
        let index = *self.by_key.entry(key).or_insert(next);
        if index == next {
            // The rest has neither a role nor a turn, so all judges evaluate it.
            self.texts.extend(new.map(|new| match is_rest {
                true => Text { passage: Passage::new(new.passage.direction, ""), message: Some(REST), ..new },
                false => new,
            }));
        }
        self.texts[index].add(text, source, separator);
    }
}

/// Returns the passage of a message, still without text.
fn describe(
    document: &Document<'_>,
    protocol: &Protocol,
    rule: &Rule,
    message: usize,
    node: usize,
) -> Passage<'static> {
    let role = protocol::role(document, message, node).map(Cow::into_owned);
    let role = role.or_else(|| (!rule.role.is_empty()).then(|| rule.role.to_owned()));
    let direction = match role.as_deref() {
        Some("tool" | "function") if rule.direction == Direction::Prompt => Direction::ToolResult,
        _ => rule.direction,
    };
    let location = document.pointer(if message == 0 { node } else { message });
    Passage {
        role: role.map(Cow::Owned),
        choice: protocol.choice(document, node),
        location: location.into(),
        ..Passage::new(direction, "")
    }
}
