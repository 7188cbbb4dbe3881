//! Answers that are streamed: server-sent events, lines of JSON, plain text.
//!
//! Events are held until the judges have decided on their texts, and are released in order. Strings that continue over
//! several events, such as the words of an answer, are one [`Track`].

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    mem,
    ops::Range,
};

use memchr::{memchr, memchr2};

use crate::{
    Direction, Passage, Unjudged,
    auditor::as_text,
    format::{self, Event, Format, Rule},
    json::{Document, Kind, Node, SEPARATORS, Step, is_json},
    text::{self, Edit, Source, Text, apply, texts_of},
    track::Track,
    verdict::{Denial, Outcome, Panel},
};

/// Maximum length of an event, and of the events that are held.
const MAX_HELD: usize = 1 << 20;

/// Maximum number of texts in one stream.
const MAX_TRACKS: usize = 1024;

/// An event in which nothing can be replaced.
const MALFORMED: &str = "an event that is not well-formed";

/// Division of a stream into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events (WHATWG HTML, section 9.2).
    Events,
    /// Lines, mostly of JSON.
    Lines,
    /// Text without structure.
    Text,
}

/// The stream of one answer.
#[derive(Debug)]
pub(crate) struct Stream {
    panel: Panel,
    format: &'static Format,
    framing: Framing,
    /// Treatment of events that are no text.
    unjudged: Unjudged,
    /// Beginning of the next event.
    buffer: Vec<u8>,
    /// Length of the part of the buffer that contains no end of an event.
    searched: usize,
    held: VecDeque<Held>,
    held_bytes: usize,
    tracks: Vec<Track>,
    by_key: HashMap<String, usize>,
    /// Choices that have begun and whose end is not released.
    pub(crate) choices: BTreeSet<u32>,
    /// Content of the last event that is released.
    pub(crate) last: String,
}

/// An event that waits for its verdicts.
#[derive(Debug)]
struct Held {
    /// The event as it was received.
    raw: Vec<u8>,
    content: String,
    pieces: Vec<Piece>,
    /// Edits of whole texts.
    edits: Vec<Edit>,
}

/// A string that continues a track.
#[derive(Debug)]
struct Piece {
    track: usize,
    range: Range<usize>,
    source: Source,
}

impl Stream {
    pub(crate) fn new(panel: Panel, format: &'static Format, framing: Framing, unjudged: Unjudged) -> Self {
        Self {
            panel,
            format,
            framing,
            unjudged,
            buffer: Vec::new(),
            searched: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            tracks: Vec::new(),
            by_key: HashMap::new(),
            choices: BTreeSet::new(),
            last: String::new(),
        }
    }

    pub(crate) fn count_bytes(&self, bytes: usize) {
        self.panel.telemetry.count_bytes("answer", bytes);
    }

    /// Receives a part of the answer. Returns the part that may be sent, after which the stream may have been refused.
    pub(crate) async fn push(&mut self, data: &[u8]) -> (Vec<u8>, Result<(), Denial>) {
        self.buffer.extend_from_slice(data);
        let mut outcome = Ok(());
        let mut at = 0;
        while let Some(length) = self.framing.next(&self.buffer[at..], mem::take(&mut self.searched)) {
            let raw = self.buffer[at..at + length].to_vec();
            at += length;
            outcome = self.event(raw).await;
            if outcome.is_err() {
                break;
            }
        }
        self.buffer.drain(..at);
        self.searched = self.buffer.len();
        if outcome.is_ok() && self.buffer.len() > MAX_HELD {
            outcome = Err(unreadable(format!("an event of the answer is longer than {MAX_HELD} bytes")));
        }
        if outcome.is_ok() && self.held_bytes > MAX_HELD {
            outcome = self.decide().await;
        }
        (self.release(), outcome)
    }

    /// Ends the answer.
    pub(crate) async fn finish(&mut self) -> (Vec<u8>, Result<(), Denial>) {
        let rest = mem::take(&mut self.buffer);
        let mut outcome = if rest.is_empty() { Ok(()) } else { self.event(rest).await };
        if outcome.is_ok() {
            outcome = self.decide().await;
        }
        (self.release(), outcome)
    }

    /// Returns an event in the framing of this stream.
    pub(crate) fn frame(&self, event: &Event) -> String {
        match (self.framing, event.name) {
            (Framing::Events, Some(name)) => format!("event: {name}\ndata: {}\n\n", event.data),
            (Framing::Events, None) => format!("data: {}\n\n", event.data),
            // Only server-sent events have this end.
            (Framing::Lines, _) if event.data == "[DONE]" => String::new(),
            (Framing::Lines, _) => format!("{}\n", event.data),
            (Framing::Text, _) => String::new(),
        }
    }

    /// Has all texts so far judged as if they ended here.
    async fn decide(&mut self) -> Result<(), Denial> {
        for track in &mut self.tracks {
            track.judge(&self.panel, true).await?;
        }
        Ok(())
    }

    /// Judges an event and holds it.
    async fn event(&mut self, raw: Vec<u8>) -> Result<(), Denial> {
        let text = match as_text(&raw) {
            Some(text) => text,
            None if self.unjudged == Unjudged::Pass => "",
            None => return Err(unreadable("the answer is not UTF-8 text".to_owned())),
        };
        if self.framing == Framing::Events {
            self.fields(text).await?;
        }
        let content = self.framing.content(text).into_owned();
        let mut held = Held { raw, content, pieces: Vec::new(), edits: Vec::new() };
        let mut touched = BTreeSet::new();
        let start = held.content.trim_start_matches(SEPARATORS).trim_start();
        if start.is_empty() || start.trim_end() == "[DONE]" {
            // No text.
        } else if self.framing == Framing::Text || !start.starts_with(['{', '[', '"']) {
            let passage = || Passage::new(Direction::Completion, "");
            let track = self.track(Cow::Borrowed(""), passage, false)?;
            let range = self.tracks[track].push(&held.content);
            held.pieces.push(Piece { track, range, source: Source::plain(&held.content) });
            touched.insert(track);
        } else {
            self.json(&mut held, &mut touched).await?;
        }
        self.held_bytes += held.raw.len();
        self.held.push_back(held);
        for track in touched {
            self.tracks[track].judge(&self.panel, false).await?;
        }
        Ok(())
    }

    /// Judges lines of a server-sent event that its receivers ignore: others may read them.
    async fn fields(&mut self, raw: &str) -> Result<(), Denial> {
        let others: Vec<_> = lines(raw).filter(|line| is_other_field(line)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let track = self.track("fields".into(), || Passage::new(Direction::Completion, ""), false)?;
        let track = &mut self.tracks[track];
        track.push(&others.concat());
        track.judge(&self.panel, false).await?;
        match track.rule_of_mask() {
            Some(rule) => Err(Denial::irreplaceable(rule, MALFORMED)),
            None => Ok(()),
        }
    }

    /// Judges the whole texts of an event, and adds its other strings to their tracks.
    async fn json(&mut self, held: &mut Held, touched: &mut BTreeSet<usize>) -> Result<(), Denial> {
        let document = Document::scan(&held.content);
        if self.unjudged == Unjudged::Refuse
            && let Some(message) = format::unjudged_answer(&document)
        {
            return Err(unreadable(message));
        }
        let is_rpc = format::is_rpc(&document);
        let mut whole = HashSet::new();
        let mut texts = Vec::new();
        for node in (0..document.nodes.len()).filter(|&node| document.is_text(node)) {
            let path = document.path(node);
            let is_here = |(_, rule): &(usize, &Rule)| rule.message(&document, &path).is_some();
            let Format { events, answer, .. } = self.format;
            let (index, rule) = match events.iter().enumerate().find(is_here).filter(|_| !is_rpc) {
                Some(found) => found,
                None => {
                    whole.insert(node);
                    // Messages of JSON-RPC are whole, and numbers. Other strings may continue, too: the caller's path and body
                    // do not decide what the model sends.
                    if is_rpc || document.nodes[node].kind == Kind::Scalar {
                        continue;
                    }
                    let rest = (events.len()..).zip(*answer).find(is_here);
                    rest.unwrap_or((usize::MAX, &format::ANY))
                }
            };
            let (source, text) = Source::of(&document, node, false);
            let is_known = !self.format.request.is_empty();
            if text.is_empty() || is_known && text::is_structure(&document, node, &text) {
                continue;
            }
            let choice = text::choice(&document, &path);
            self.choices.extend(choice);
            let key = key(&document, index, rule, &path);
            let passage = || Passage {
                choice,
                location: document.pointer(node).into(),
                ..Passage::new(rule.direction, "")
            };
            let track = self.track(key.into(), passage, rule.is_nested())?;
            let range = self.tracks[track].push(&text);
            held.pieces.push(Piece { track, range, source });
            touched.insert(track);
        }
        let whole = (0..document.nodes.len()).filter(|node| whole.contains(node));
        texts.extend(texts_of(&document, whole, self.format.answer, Direction::Completion));
        let is_json = is_json(held.content.trim_start_matches(SEPARATORS));
        if !is_json {
            texts.push(Text::plain(Direction::Completion, &held.content));
        }
        for text in &texts {
            match self.panel.judge(&text.passage).await {
                Outcome::Allow => {}
                Outcome::Deny(denial) => return Err(denial),
                Outcome::Mask(spans) if is_json => {
                    held.edits.extend(spans.iter().flat_map(|span| text.edits(span)));
                }
                Outcome::Mask(spans) => return Err(Denial::irreplaceable(&spans[0].rule, MALFORMED)),
            }
        }
        Ok(())
    }

    /// Returns the track with this key.
    fn track(
        &mut self,
        key: Cow<'static, str>,
        passage: impl FnOnce() -> Passage<'static>,
        is_nested: bool,
    ) -> Result<usize, Denial> {
        if let Some(track) = self.by_key.get(&*key) {
            return Ok(*track);
        }
        if self.tracks.len() >= MAX_TRACKS {
            return Err(unreadable(format!("the answer has more than {MAX_TRACKS} texts")));
        }
        self.tracks.push(Track::new(passage(), is_nested, &self.panel));
        self.by_key.insert(key.into_owned(), self.tracks.len() - 1);
        Ok(self.tracks.len() - 1)
    }

    /// Returns the events on whose texts the judges have decided.
    fn release(&mut self) -> Vec<u8> {
        let mut released = Vec::new();
        let settled: Vec<usize> = self.tracks.iter().map(|track| track.settled(&self.panel)).collect();
        while let Some(held) = self
            .held
            .pop_front_if(|held| held.pieces.iter().all(|piece| piece.range.end <= settled[piece.track]))
        {
            self.held_bytes -= held.raw.len();
            let pieces = held.pieces.iter();
            let edits = pieces.flat_map(|piece| self.tracks[piece.track].edits(&piece.range, &piece.source));
            let edits: Vec<_> = edits.chain(held.edits).collect();
            match edits.is_empty() {
                true => released.extend_from_slice(&held.raw),
                false => {
                    let raw = str::from_utf8(&held.raw).unwrap_or_default();
                    let content = apply(&held.content, without_logprobs(&held.content, edits));
                    released.extend_from_slice(self.framing.replace(raw, &content).as_bytes());
                }
            }
            for piece in &held.pieces {
                self.tracks[piece.track].release(piece.range.end);
            }
            for choice in finished(&held.content) {
                self.choices.remove(&choice);
            }
            // A JSON text, unlike the end of the stream.
            if held.content.trim_start().starts_with('{') && !format::is_ping(&held.content) {
                self.last = held.content;
            }
        }
        released
    }
}

/// Returns the name of the text that a string continues: its path, with the indices that the protocol states.
fn key(document: &Document<'_>, rule_index: usize, rule: &Rule, path: &[usize]) -> String {
    const INDICES: [&str; 4] = ["index", "output_index", "content_index", "summary_index"];
    let mut key = rule_index.to_string();
    for node in [0].iter().chain(path) {
        match &document.nodes[*node].step {
            // Strings of a protocol that is unknown are joined by the name of their member.
            Step::Name(name) if !rule.is_structure() || path.last() == Some(node) => {
                key.push('/');
                key.extend(name.chars().take(text::MAX_NAME));
            }
            Step::Name(_) => {}
            Step::Index(index) => {
                let is_stated = document.member(*node, "index").is_some();
                if *node > 0 && !is_stated && !rule.is_structure() {
                    key.push_str(&format!("/{index}"));
                }
            }
        }
        for name in INDICES {
            // A root member `index` counts events, but in Anthropic's protocol.
            if *node == 0 && name == "index" && !rule.is_indexed() {
                continue;
            }
            if let Some(value) = document.member_value(*node, name) {
                key.push_str(&format!("/{name}={value}"));
            }
        }
    }
    key
}

/// Returns the choices that an event ends.
fn finished(content: &str) -> Vec<u32> {
    const REASON: &str = "finish_reason";
    // Other events state that it is null.
    let mut stated = content.split(REASON).skip(1).map(|rest| rest.trim_start_matches(['"', ':', ' ']));
    if !stated.any(|value| !value.starts_with("null")) {
        return Vec::new();
    }
    let document = Document::scan(content);
    let is_end = |node: &usize| {
        let Node { step, kind, .. } = &document.nodes[*node];
        *kind == Kind::String && matches!(step, Step::Name(name) if name == REASON)
    };
    let ends = (0..document.nodes.len()).filter(is_end);
    ends.filter_map(|node| text::choice(&document, &document.path(node))).collect()
}

/// Adds edits that remove the tokens of the text (`logprobs`), which repeat what is replaced.
pub(crate) fn without_logprobs(content: &str, mut edits: Vec<Edit>) -> Vec<Edit> {
    if content.contains("logprobs") {
        let document = Document::scan(content);
        let logprobs = document.nodes.iter().filter(|node| {
            node.kind == Kind::Container && matches!(&node.step, Step::Name(name) if name == "logprobs")
        });
        // The outermost ones, in order.
        let mut removed: Vec<Range<usize>> = Vec::new();
        for node in logprobs {
            if removed.last().is_none_or(|last| last.end <= node.range.start) {
                removed.push(node.range.clone());
            }
        }
        edits.retain(|edit| {
            let before = removed.partition_point(|range| range.start <= edit.range.start);
            before.checked_sub(1).is_none_or(|last| removed[last].end < edit.range.end)
        });
        edits.extend(removed.into_iter().map(|range| Edit { range, replacement: "null".to_owned() }));
    }
    edits
}

fn unreadable(message: String) -> Denial {
    Denial { is_failure: true, rule: Cow::Borrowed("unreadable"), message }
}

impl Framing {
    /// Returns the length of the first event, if it is complete. It does not end within the first `searched` bytes.
    fn next(self, bytes: &[u8], searched: usize) -> Option<usize> {
        match self {
            Self::Events => end_of_event(bytes, searched),
            Self::Lines => memchr(b'\n', &bytes[searched..]).map(|end| searched + end + 1),
            // An incomplete character at the end waits for its rest.
            Self::Text => {
                let length = match str::from_utf8(bytes) {
                    Err(error) if error.error_len().is_none() => error.valid_up_to(),
                    _ => bytes.len(),
                };
                (length > 0).then_some(length)
            }
        }
    }

    /// Returns the content of an event: the joined `data` of a server-sent event.
    fn content(self, raw: &str) -> Cow<'_, str> {
        if self != Self::Events {
            return Cow::Borrowed(raw);
        }
        let mut data = lines(raw).filter_map(|line| data_of(line.trim_end_matches(['\r', '\n'])));
        let first = data.next().unwrap_or_default();
        let mut joined = Cow::Borrowed(first);
        for more in data {
            let joined = joined.to_mut();
            joined.push('\n');
            joined.push_str(more);
        }
        joined
    }

    /// Returns the event with other content.
    fn replace<'a>(self, raw: &str, content: &'a str) -> Cow<'a, str> {
        if self != Self::Events {
            return Cow::Borrowed(content);
        }
        let mut replaced = String::with_capacity(raw.len());
        let mut content = Some(content);
        for line in lines(raw) {
            let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
            match data_of(&line[..line.len() - end.len()]) {
                None => replaced.push_str(line),
                Some(_) => {
                    for data in content.take().into_iter().flat_map(|content| content.split('\n')) {
                        replaced.push_str("data: ");
                        replaced.push_str(data);
                        replaced.push_str(end);
                    }
                }
            }
        }
        Cow::Owned(replaced)
    }
}

/// Returns the length up to and including the empty line that ends a server-sent event.
fn end_of_event(bytes: &[u8], searched: usize) -> Option<usize> {
    let end_of_line = |at: usize| match bytes.get(at..)? {
        // The line feed may follow.
        [b'\r'] => None,
        [b'\r', b'\n', ..] => Some(at + 2),
        [b'\r' | b'\n', ..] => Some(at + 1),
        _ => None,
    };
    // The ends of two lines have at most four bytes.
    let mut at = searched.saturating_sub(3);
    if at == 0
        && let Some(end) = end_of_line(0)
    {
        return Some(end);
    }
    loop {
        at += memchr2(b'\r', b'\n', &bytes[at..])?;
        let next = end_of_line(at)?;
        if let Some(end) = end_of_line(next) {
            return Some(end);
        }
        at = next;
    }
}

/// Returns lines with their ends: `\n`, `\r` or `\r\n`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.find(['\r', '\n']);
        let end = end.map_or(rest.len(), |end| end + if rest[end..].starts_with("\r\n") { 2 } else { 1 });
        let (line, following) = rest.split_at(end);
        rest = following;
        (!line.is_empty()).then_some(line)
    })
}

/// Returns `true` for a field whose value is not `data` and may be text, such as a comment.
fn is_other_field(line: &str) -> bool {
    let line = line.trim_end_matches(['\r', '\n']);
    let is_identifier = line.split_once(':').is_some_and(|(name, value)| {
        matches!(name, "event" | "id" | "retry") && text::is_identifier(value.trim_start())
    });
    !line.is_empty() && data_of(line).is_none() && !is_identifier
}

/// Returns the value of a `data` field.
fn data_of(line: &str) -> Option<&str> {
    let line = line.trim_start_matches('\u{feff}');
    match line.strip_prefix("data:") {
        Some(data) => Some(data.strip_prefix(' ').unwrap_or(data)),
        None => (line == "data").then_some(""),
    }
}
