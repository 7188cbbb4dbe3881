//! YAML 1.1, as libyaml and kubectl's port of it parse it.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Write};

use libyaml_safer::{
    Emitter, Encoding, Event, EventData, MappingStyle, Mark, Parser, ScalarStyle, SequenceStyle,
};
use serde_json::{Map, Value};

use super::scalar::{self, Meaning};
use super::{Content, DEPTH, SyntaxError, json, packed, packed_elements};

/// Maximum memory that aliases may take, in bytes: `a: [*b, *b]` doubles it with every line.
const ALIASES: usize = 64 << 20;

/// Reads one document, whose text is preceded by `lines` lines. Returns the line of its value, and the value, which
/// is empty if there are only comments.
pub(super) fn read(text: &str, lines: usize) -> Result<(usize, Content), SyntaxError> {
    // As kubectl does, and as libyaml-safer 0.1.1 needs: it doubles CRLF, and panics where a block scalar ends without a
    // line break.
    let text = text.replace("\r\n", "\n") + "\n";
    // A document may begin with a byte order mark, but libyaml accepts one only at the start of its input.
    let text = match text.split_once("\n\u{feff}") {
        Some((separator, rest)) if separator.starts_with("---") && !separator.contains('\n') => {
            format!("{separator}\n{rest}")
        }
        _ => text,
    };
    // The parser buffers what one read returns, in four times the size.
    let mut input = BufReader::new(text.as_bytes());
    let mut parser = Parser::new();
    parser.set_input(&mut input);
    let mut reader = Reader { parser, lines, anchors: HashMap::new(), aliases: ALIASES };
    let mut document = None;
    loop {
        let event = reader.next()?;
        match event.data {
            EventData::StreamEnd => return Ok(document.unwrap_or((lines + 1, Content::default()))),
            EventData::DocumentStart { .. } if document.is_some() => {
                let problem =
                    "found another document after `...`, which kubectl does not read: begin it with `---`";
                return Err(reader.error(event.start_mark, problem));
            }
            EventData::DocumentStart { .. } => {
                let root = reader.next()?;
                let line = lines + line(root.start_mark);
                let is_empty = matches!(
                    &root.data,
                    EventData::Scalar { value, tag: None, anchor: None, style: ScalarStyle::Plain, .. } if value.is_empty()
                );
                let content =
                    if is_empty { Content::default() } else { Content::new(reader.value(root, 0)?) };
                document = Some((line, content));
            }
            _ => {}
        }
    }
}

/// Writes a document without a separator.
pub(super) fn write(content: &Content, out: &mut dyn Write) -> io::Result<()> {
    let mut emitter = Emitter::new();
    emitter.set_output(out);
    emitter.set_width(-1);
    emitter.set_unicode(true);
    emit_document(&mut emitter, content).map_err(io::Error::other)
}

fn emit_document(emitter: &mut Emitter<'_>, content: &Content) -> Result<(), libyaml_safer::Error> {
    emitter.emit(Event::stream_start(Encoding::Utf8))?;
    emitter.emit(Event::document_start(None, &[], true))?;
    match &content.list {
        Some(list) => emit_map(emitter, list, |emitter, key, value| match key {
            "items" => emit_list(emitter, content.objects.iter().map(|text| json::parse(text))),
            _ => emit(emitter, value),
        })?,
        None => content.objects.iter().try_for_each(|text| emit(emitter, &json::parse(text)))?,
    }
    emitter.emit(Event::document_end(true))?;
    emitter.emit(Event::stream_end())
}

fn emit(emitter: &mut Emitter<'_>, value: &Value) -> Result<(), libyaml_safer::Error> {
    match value {
        Value::Array(items) => emit_list(emitter, items.iter()),
        Value::Object(members) => emit_map(emitter, members, |emitter, _, value| emit(emitter, value)),
        Value::String(text) => emitter.emit(string(text, false)),
        other => emitter.emit(Event::scalar(None, None, &other.to_string(), true, true, ScalarStyle::Plain)),
    }
}

fn emit_list<V: Borrow<Value>>(
    emitter: &mut Emitter<'_>,
    mut items: impl ExactSizeIterator<Item = V>,
) -> Result<(), libyaml_safer::Error> {
    let style = if items.len() == 0 { SequenceStyle::Flow } else { SequenceStyle::Block };
    emitter.emit(Event::sequence_start(None, None, true, style))?;
    items.try_for_each(|item| emit(emitter, item.borrow()))?;
    emitter.emit(Event::sequence_end())
}

fn emit_map<'w>(
    emitter: &mut Emitter<'w>,
    members: &Map<String, Value>,
    emit_value: impl Fn(&mut Emitter<'w>, &str, &Value) -> Result<(), libyaml_safer::Error>,
) -> Result<(), libyaml_safer::Error> {
    let style = if members.is_empty() { MappingStyle::Flow } else { MappingStyle::Block };
    emitter.emit(Event::mapping_start(None, None, true, style))?;
    for (key, value) in members {
        emitter.emit(string(key, true))?;
        emit_value(emitter, key, value)?;
    }
    emitter.emit(Event::mapping_end())
}

/// Quotes strings that kubectl, or a reader of YAML 1.2, would take for something else.
fn string(text: &str, is_key: bool) -> Event {
    let is_ambiguous = scalar::plain(text) != Meaning::String
        || matches!(text, "<<" | "=")
        || text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    let style = match text {
        // Line breaks in YAML 1.1 only.
        _ if text.contains(['\u{85}', '\u{2028}', '\u{2029}']) => ScalarStyle::DoubleQuoted,
        _ if is_ambiguous => ScalarStyle::SingleQuoted,
        _ if text.contains('\n') && !is_key => ScalarStyle::Literal,
        _ => ScalarStyle::Any,
    };
    Event::scalar(None, None, text, true, true, style)
}

struct Reader<'t> {
    parser: Parser<'t>,
    lines: usize,
    anchors: HashMap<String, Value>,
    /// Number of bytes left for anchors and aliases.
    aliases: usize,
}

fn line(mark: Mark) -> usize {
    usize::try_from(mark.line).unwrap_or(usize::MAX).saturating_add(1)
}

impl Reader<'_> {
    fn error(&self, mark: Mark, problem: impl Into<String>) -> SyntaxError {
        let column = usize::try_from(mark.column).unwrap_or(usize::MAX).saturating_add(1);
        SyntaxError { line: self.lines + line(mark), column, problem: problem.into() }
    }

    fn next(&mut self) -> Result<Event, SyntaxError> {
        self.parser.parse().map_err(|error| {
            let mark = error.problem_mark().unwrap_or_default();
            let text = error.to_string();
            // libyaml adds the position before and after the problem, counted from 0.
            let problem = text.split_once("column ").and_then(|(_, rest)| rest.split_once(": "));
            let problem = problem.map_or(&*text, |(_, problem)| problem);
            self.error(mark, problem.split(" (line ").next().unwrap_or_default())
        })
    }

    fn value(&mut self, event: Event, depth: usize) -> Result<Value, SyntaxError> {
        let mark = event.start_mark;
        if depth > DEPTH {
            return Err(self.error(mark, format!("found values more than {DEPTH} deep in each other")));
        }
        let (anchor, value) = match event.data {
            EventData::Alias { anchor } => {
                let Some(value) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.error(mark, format!("found an alias of the unknown anchor {anchor:?}")));
                };
                self.charge(&value, mark)?;
                return Ok(value);
            }
            EventData::Scalar { anchor, tag, value, style, .. } => {
                (anchor, self.scalar(&value, tag.as_deref(), style, mark)?)
            }
            EventData::SequenceStart { anchor, .. } => (anchor, self.sequence(depth, false)?),
            EventData::MappingStart { anchor, .. } => (anchor, self.mapping(depth)?),
            _ => return Err(self.error(mark, "found no value")),
        };
        if let Some(anchor) = anchor {
            self.charge(&value, mark)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    /// Reads the elements of a list, and packs them for the `items` of the root; see [`Content::new`].
    fn sequence(&mut self, depth: usize, is_items: bool) -> Result<Value, SyntaxError> {
        let mut elements = Vec::new();
        loop {
            let event = self.next()?;
            if event.data == EventData::SequenceEnd {
                return Ok(Value::Array(elements));
            }
            let element = self.value(event, depth + 1)?;
            elements.push(if is_items { packed(&element) } else { element });
        }
    }

    fn scalar(
        &self,
        text: &str,
        tag: Option<&str>,
        style: ScalarStyle,
        mark: Mark,
    ) -> Result<Value, SyntaxError> {
        const CORE: &str = "tag:yaml.org,2002:";
        let meaning = match tag.map(|tag| tag.strip_prefix(CORE)) {
            Some(Some("binary")) => return Err(self.error(mark, "expected text, found the tag !!binary")),
            Some(Some("int" | "float" | "bool" | "null" | "timestamp")) => scalar::plain(text),
            Some(_) => Meaning::String,
            None if style != ScalarStyle::Plain => Meaning::String,
            _ => scalar::plain(text),
        };
        match meaning {
            Meaning::String => Ok(Value::String(text.to_owned())),
            Meaning::Value(value) => Ok(value),
            Meaning::NotFinite => {
                Err(self.error(mark, "found an infinite number or NaN, which JSON does not support"))
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        let mut members = Map::new();
        let mut written = HashSet::new();
        loop {
            let event = self.next()?;
            let mark = event.start_mark;
            let is_merge = match &event.data {
                EventData::MappingEnd => return Ok(Value::Object(members)),
                EventData::Scalar { value, tag, style, .. } => {
                    value == "<<" && tag.is_none() && *style == ScalarStyle::Plain
                }
                _ => false,
            };
            let key = self.value(event, depth + 1)?;
            let event = self.next()?;
            let is_items = depth == 0 && key == "items";
            let value = match event.data {
                EventData::SequenceStart { anchor: None, .. } if is_items => {
                    self.sequence(depth + 1, true)?
                }
                _ if is_items => packed_elements(self.value(event, depth + 1)?),
                _ => self.value(event, depth + 1)?,
            };
            if is_merge {
                self.merge(value, depth, mark, &mut members)?;
                continue;
            }
            let problem = "found a key that is not a string, number or boolean";
            let name = scalar::name(key).ok_or_else(|| self.error(mark, problem))?;
            if !written.insert(name.clone()) {
                return Err(self.error(mark, format!("found the key {name:?} twice in one map")));
            }
            members.insert(name, value);
        }
    }

    /// Merges the maps of `<<`. As in go-yaml, the last member of a name wins, and the first of several maps.
    fn merge(
        &self,
        value: Value,
        depth: usize,
        mark: Mark,
        members: &mut Map<String, Value>,
    ) -> Result<(), SyntaxError> {
        let sources = match value {
            Value::Array(items) => items,
            value => vec![value],
        };
        for source in sources.into_iter().rev() {
            let Value::Object(mut source) = source else {
                return Err(self.error(mark, "found << with a value that is not a map"));
            };
            if let Some(items) = source.get_mut("items").filter(|_| depth == 0) {
                *items = packed_elements(items.take());
            }
            members.extend(source);
        }
        Ok(())
    }

    /// Reserves memory for a copy of `value`.
    fn charge(&mut self, value: &Value, mark: Mark) -> Result<(), SyntaxError> {
        let problem = format!("found aliases of more than {} MiB in total", ALIASES >> 20);
        self.aliases = self.aliases.checked_sub(bytes(value)).ok_or_else(|| self.error(mark, problem))?;
        Ok(())
    }
}

/// Estimates the memory of a value.
fn bytes(value: &Value) -> usize {
    /// A node of a `BTreeMap`.
    const MAP: usize = 700;
    let own = size_of::<Value>();
    own + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(members) => {
            MAP + members.iter().map(|(key, value)| own + key.len() + bytes(value)).sum::<usize>()
        }
        _ => 0,
    }
}
