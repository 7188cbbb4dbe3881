//! Kubernetes manifests: files in YAML or JSON with any number of documents, read as kubectl reads them.
//!
//! An unchanged [`Document`] keeps its text. A changed one is written anew, without comments and with sorted keys, as
//! `linkerd inject` and `kubectl -o yaml` write it.

mod json;
mod object;
mod scalar;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use snafu::Snafu;

use crate::error::{Result, ResultExt};

pub(crate) use object::{Object, Part};

/// Maximum depth of nested values.
const DEPTH: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("line {line}, column {column}: {problem}"))]
pub(crate) struct SyntaxError {
    /// Counted from 1, as the column.
    line: usize,
    column: usize,
    problem: String,
}

/// Reads the text of a file in UTF-8, or in UTF-16 with a byte order mark. `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<String> {
    let read = || {
        let mut bytes = Vec::new();
        match path == Path::new("-") {
            true => io::stdin().lock().read_to_end(&mut bytes)?,
            false => fs::File::open(path)?.read_to_end(&mut bytes)?,
        };
        const EXPECTED: &str = "expected UTF-8, or UTF-16 with a byte order mark";
        decode(bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, EXPECTED))
    };
    read().failed_to(format_args!("read {}", path.display())).usage()
}

fn decode(bytes: Vec<u8>) -> Option<String> {
    let from_bytes = match bytes.get(..2) {
        Some([0xff, 0xfe]) => u16::from_le_bytes,
        Some([0xfe, 0xff]) => u16::from_be_bytes,
        _ => return String::from_utf8(bytes).ok(),
    };
    let (units, []) = bytes[2..].as_chunks() else { return None };
    char::decode_utf16(units.iter().copied().map(from_bytes)).collect::<Result<_, _>>().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Json,
}

/// Value of a document. Objects are kept as JSON, in a tenth of the memory of a [`Value`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    /// The list without its items, if the document is a list.
    list: Option<Map<String, Value>>,
    /// The items of the list, or else the value itself. Empty for comments only.
    objects: Vec<String>,
}

impl Content {
    /// Takes a value, in which the elements of a list `items` are [`packed`].
    fn new(mut root: Value) -> Self {
        let is_list = root["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        let texts: Vec<String> = match root.get_mut("items") {
            Some(Value::Array(items)) => {
                items.drain(..).filter_map(|item| item.as_str().map(str::to_owned)).collect()
            }
            _ => return Self { list: None, objects: vec![root.to_string()] },
        };
        match root {
            Value::Object(list) if is_list => Self { list: Some(list), objects: texts },
            mut root => {
                root["items"] = texts.iter().map(|text| json::parse(text)).collect();
                Self { list: None, objects: vec![root.to_string()] }
            }
        }
    }
}

/// Returns the JSON of `value` as a string.
fn packed(value: &Value) -> Value {
    Value::String(value.to_string())
}

fn packed_elements(value: Value) -> Value {
    match value {
        Value::Array(elements) => elements.iter().map(packed).collect(),
        other => other,
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let objects = || self.objects.iter().map(|text| json::parse(text));
        let Some(list) = &self.list else { return objects().next().serialize(serializer) };
        let mut map = serializer.serialize_map(Some(list.len()))?;
        for (key, value) in list {
            match key.as_str() {
                "items" => map.serialize_entry(key, &Items(self))?,
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

struct Items<'a>(&'a Content);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.objects.iter().map(|text| json::parse(text)))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Document {
    format: Format,
    /// Text, from the separator before it to the next one.
    text: String,
    /// Position of the value in the text.
    start: usize,
    line: usize,
    content: Result<Content, SyntaxError>,
    is_changed: bool,
}

impl Document {
    fn yaml(text: &str, lines: usize) -> Self {
        let read = yaml::read(text, lines);
        let (line, content) =
            read.map_or_else(|error| (lines + 1, Err(error)), |(line, content)| (line, Ok(content)));
        Self { format: Format::Yaml, text: text.to_owned(), start: 0, line, content, is_changed: false }
    }

    /// Returns the number of parts: the items of a list, or the value of the document, if it has one.
    pub(crate) fn len(&self) -> Result<usize, &SyntaxError> {
        self.content.as_ref().map(|content| content.objects.len())
    }

    pub(crate) fn is_list(&self) -> bool {
        self.content.as_ref().is_ok_and(|content| content.list.is_some())
    }

    /// Iterates over the parts, in order. An invalid document has none.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        (0..self.len().unwrap_or_default()).filter_map(|place| self.part(place))
    }

    /// Returns a part, as kubectl would send it.
    pub(crate) fn part(&self, place: usize) -> Option<Part> {
        let Content { list, objects } = self.content.as_ref().ok()?;
        let value = json::parse(objects.get(place)?);
        Some(Part::new(value, list.as_ref().map(|list| (list, place))))
    }

    /// Replaces a part, or removes it from the list with `None`.
    pub(crate) fn set_part(&mut self, place: usize, value: Option<&Value>) {
        let Ok(content) = &mut self.content else { return };
        self.is_changed = true;
        match (value, content.objects.get_mut(place)) {
            (Some(value), Some(object)) => *object = value.to_string(),
            (None, Some(_)) => drop(content.objects.remove(place)),
            (_, None) => {}
        }
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn has_separator(&self) -> bool {
        self.text.trim_start_matches('\u{feff}').starts_with("---")
    }

    /// Returns the line of the file in which the value begins, counted from 1.
    pub(crate) const fn line(&self) -> usize {
        self.line
    }

    /// Writes the document in `format`. By default it keeps its format and the separator before it, and its text if
    /// nothing was changed.
    pub(crate) fn write(&self, format: Option<Format>, out: &mut dyn Write) -> io::Result<()> {
        let Ok(content) = &self.content else { return out.write_all(self.text.as_bytes()) };
        match (self.format, format.unwrap_or(self.format)) {
            (Format::Yaml, Format::Yaml) if !self.is_changed => out.write_all(self.text.as_bytes()),
            (Format::Yaml, Format::Yaml) => {
                out.write_all(if self.has_separator() { b"---\n" } else { b"" })?;
                yaml::write(content, out)
            }
            (Format::Json, Format::Yaml) => yaml::write(content, out),
            (Format::Yaml, Format::Json) if self.is_empty() => Ok(()),
            (Format::Yaml, Format::Json) => {
                pretty(content, out)?;
                out.write_all(b"\n")
            }
            (Format::Json, Format::Json) => {
                let (lead, body) = self.text.split_at(self.start);
                let value = body.trim_end();
                out.write_all(if format.is_none() { lead.as_bytes() } else { b"" })?;
                match (self.is_changed, value.contains('\n')) {
                    (false, _) => out.write_all(value.as_bytes())?,
                    (true, true) => pretty(content, out)?,
                    (true, false) => serde_json::to_writer(&mut *out, content)?,
                }
                out.write_all(if format.is_none() { &body.as_bytes()[value.len()..] } else { b"\n" })
            }
        }
    }

    /// Returns `true` if the document contains only comments.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == Ok(0) && !self.is_list()
    }
}

/// Writes JSON with kubectl's indentation.
fn pretty(content: &Content, out: &mut dyn Write) -> io::Result<()> {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    Ok(content.serialize(&mut serde_json::Serializer::with_formatter(out, formatter))?)
}

/// Returns the documents of a file, in order: YAML separated by lines that begin with `---`, JSON values one after the
/// other, or both. Their texts together are the file.
pub(crate) fn parse(text: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut lines = 0;
    for chunk in chunks(text) {
        read_chunk(chunk, lines, &mut documents);
        lines += chunk.matches('\n').count();
    }
    documents
}

/// Splits the text before every line that begins a document.
fn chunks(text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_separator = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_separator && at > start && !is_directives(&text[start..at]) {
            chunks.push(&text[start..at]);
            start = at;
        }
        at += line.len();
    }
    if at > start {
        chunks.push(&text[start..]);
    }
    chunks
}

/// Returns `true` for directives, which belong to the document that follows.
fn is_directives(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).peekable();
    lines.peek().is_some() && lines.all(|line| line.starts_with('%'))
}

fn read_chunk(chunk: &str, lines: usize, documents: &mut Vec<Document>) {
    let body = chunk.trim_start_matches('\u{feff}');
    let body = body.strip_prefix("---").unwrap_or(body).trim_start();
    let start = chunk.len() - body.len();
    if !body.starts_with(['{', '[']) {
        documents.push(Document::yaml(chunk, lines));
        return;
    }
    let (mut counted, mut line) = (0, lines + 1);
    let mut line_of = |at: usize| {
        line += chunk[counted..at].matches('\n').count();
        counted = at;
        line
    };
    match json::values(body) {
        Ok(values) => {
            let mut begin = 0;
            let count = values.len();
            for (index, json::Json { range, content }) in values.into_iter().enumerate() {
                let at = start + range.start;
                let end = if index + 1 == count { chunk.len() } else { start + range.end };
                let line = line_of(at);
                documents.push(Document {
                    format: Format::Json,
                    text: chunk[begin..end].to_owned(),
                    start: at - begin,
                    line,
                    content: content.map_err(|error| error.after(line - 1)),
                    is_changed: false,
                });
                begin = end;
            }
        }
        Err(error) => {
            // YAML in flow style also begins with a brace.
            let mut document = Document::yaml(chunk, lines);
            let inside = body[1..].trim_start();
            if document.content.is_err() && inside.starts_with(['"', '{', '}', ']']) {
                document.content = Err(error.after(line_of(start) - 1));
            }
            documents.push(document);
        }
    }
}

impl SyntaxError {
    /// Returns the error for a text that begins `lines` lines earlier.
    fn after(self, lines: usize) -> Self {
        Self { line: self.line + lines, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct Input<'f> {
    path: &'f Path,
    number: usize,
    /// `true` for the first document of its file.
    pub(crate) begins: bool,
    pub(crate) document: Document,
}

/// Returns all documents of all files, in order.
pub(crate) fn inputs(files: &[PathBuf]) -> Result<Vec<Input<'_>>> {
    let mut inputs = Vec::new();
    for path in files {
        let mut number = 0;
        for (place, document) in parse(&read(path)?).into_iter().enumerate() {
            number += usize::from(!document.is_empty());
            inputs.push(Input { path, number, begins: place == 0, document });
        }
    }
    Ok(inputs)
}

impl Input<'_> {
    pub(crate) fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the number of the document in its file, counted from 1 without empty ones.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }
}

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} at line {}", self.path.display(), self.number, self.document.line())
    }
}
