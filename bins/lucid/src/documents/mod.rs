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

use std::borrow::Cow;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use json_patch::{PatchError, PatchOperation};
use serde::Serialize;
use serde_json::Value;
use snafu::{ResultExt, Snafu};

pub(crate) use object::{Object, objects};

/// Maximum depth of nested values.
const DEPTH: usize = 255;

/// A file cannot be read.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read {}: {source}", path.display()))]
pub(crate) struct ReadError {
    /// Path of the file; `-` is standard input.
    path: PathBuf,
    source: io::Error,
}

/// The text of a document is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("line {line}, column {column}: {problem}"))]
pub(crate) struct SyntaxError {
    /// Counted from 1, as the column.
    line: usize,
    column: usize,
    problem: String,
}

/// Reads the text of a file in UTF-8, or in UTF-16 with a byte order mark. `-` is standard input.
///
/// # Errors
///
/// Returns an error if the file cannot be read or decoded.
pub(crate) fn read(path: &Path) -> Result<String, ReadError> {
    let read = || {
        let mut bytes = Vec::new();
        match path == Path::new("-") {
            true => io::stdin().lock().read_to_end(&mut bytes)?,
            false => fs::File::open(path)?.read_to_end(&mut bytes)?,
        };
        const ACCEPTED: &str = "accepted is UTF-8, and UTF-16 with a byte order mark";
        decode(bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, ACCEPTED))
    };
    read().context(ReadSnafu { path })
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

/// Format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Json,
}

/// One document of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    format: Format,
    /// Text, from the separator before it to the next one.
    text: String,
    /// Position of the value in the text.
    start: usize,
    /// Line of the value, counted from 1.
    line: usize,
    /// `None` for comments only.
    value: Result<Option<Value>, SyntaxError>,
    is_changed: bool,
}

impl Document {
    fn yaml(text: &str, lines: usize) -> Self {
        let read = yaml::read(text, lines);
        let (line, value) =
            read.map_or_else(|error| (lines + 1, Err(error)), |(line, value)| (line, Ok(value)));
        Self { format: Format::Yaml, text: text.to_owned(), start: 0, line, value, is_changed: false }
    }

    /// Returns the value as kubectl would send it, or `None` if there are only comments.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is invalid.
    pub(crate) fn value(&self) -> Result<Option<&Value>, &SyntaxError> {
        self.value.as_ref().map(Option::as_ref)
    }

    /// Returns the format of the text.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// Returns the text, with the separator before it. A changed value is written anew.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        let Ok(Some(value)) = &self.value else { return Cow::Borrowed(&self.text) };
        if !self.is_changed {
            return Cow::Borrowed(&self.text);
        }
        let (lead, body) = self.text.split_at(self.start);
        match self.format {
            Format::Json => {
                let written = if body.trim_end().contains('\n') { pretty(value) } else { value.to_string() };
                Cow::Owned([lead, &written, &body[body.trim_end().len()..]].concat())
            }
            Format::Yaml if self.text.trim_start_matches('\u{feff}').starts_with("---") => {
                Cow::Owned("---\n".to_owned() + &yaml::write(value))
            }
            Format::Yaml => Cow::Owned(yaml::write(value)),
        }
    }

    /// Returns the line of the file in which the value begins, counted from 1.
    pub(crate) const fn line(&self) -> usize {
        self.line
    }

    /// Returns the document as YAML without a separator, or its text if it is YAML already.
    pub(crate) fn to_yaml(&self) -> Cow<'_, str> {
        match (&self.value, self.format) {
            (Ok(Some(value)), Format::Json) => Cow::Owned(yaml::write(value)),
            _ => self.text(),
        }
    }

    /// Returns the document as JSON without a separator, or its text if it is JSON already.
    pub(crate) fn to_json(&self) -> String {
        match (&self.value, self.format) {
            (Ok(Some(value)), Format::Yaml) => pretty(value) + "\n",
            (_, Format::Yaml) => String::new(),
            _ => format!("{}\n", self.text()[self.start..].trim_end()),
        }
    }

    /// Applies `operations` to the value. On an error the value is incomplete.
    ///
    /// # Errors
    ///
    /// Returns an error if an operation does not apply.
    pub(crate) fn patch(&mut self, operations: &[PatchOperation]) -> Result<(), PatchError> {
        let Ok(Some(value)) = &mut self.value else { return Ok(()) };
        self.is_changed |= !operations.is_empty();
        json_patch::patch_unsafe(value, operations)
    }
}

/// Formats JSON with kubectl's indentation.
fn pretty(value: &Value) -> String {
    let mut json = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    // Writing a `Value` to memory cannot fail.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter));
    String::from_utf8(json).unwrap_or_default()
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
            for (index, json::Json { range, value }) in values.into_iter().enumerate() {
                let at = start + range.start;
                let end = if index + 1 == count { chunk.len() } else { start + range.end };
                let line = line_of(at);
                let value = value.map(Some).map_err(|error| error.after(line - 1));
                let text = chunk[begin..end].to_owned();
                documents.push(Document {
                    format: Format::Json,
                    text,
                    start: at - begin,
                    line,
                    value,
                    is_changed: false,
                });
                begin = end;
            }
        }
        Err(error) => {
            // YAML in flow style also begins with a brace.
            let mut document = Document::yaml(chunk, lines);
            let inside = body[1..].trim_start();
            if document.value.is_err() && inside.starts_with(['"', '{', '}', ']']) {
                document.value = Err(error.after(line_of(start) - 1));
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

/// A document with its location.
#[derive(Debug)]
pub(crate) struct Input<'f> {
    path: &'f Path,
    number: usize,
    /// `true` for the first document of its file.
    pub(crate) begins: bool,
    pub(crate) document: Document,
}

/// Returns all documents of all files, in order.
///
/// # Errors
///
/// Returns an error if a file cannot be read. Invalid documents are not an error; see [`Document::value`].
pub(crate) fn inputs(files: &[PathBuf]) -> Result<Vec<Input<'_>>, ReadError> {
    let mut inputs = Vec::new();
    for path in files {
        let mut number = 0;
        for (place, document) in parse(&read(path)?).into_iter().enumerate() {
            number += usize::from(!matches!(document.value(), Ok(None)));
            inputs.push(Input { path, number, begins: place == 0, document });
        }
    }
    Ok(inputs)
}

impl Input<'_> {
    /// Returns the path of the file.
    pub(crate) fn file(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the number of the document in its file, counted from 1 without empty ones.
    pub(crate) const fn number(&self) -> usize {
        self.number
    }

    /// Returns `true` if the document contains only comments.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.document.value, Ok(None))
    }
}

/// Formats the location, for messages.
impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {} at line {}", self.path.display(), self.number, self.document.line())
    }
}
