//! From a file to its documents.

use crate::{
    document::{Document, Format},
    json,
};

/// The documents of a file, in order: YAML separated by lines that begin with `---`, JSON one value after the other, or
/// both, as kubectl reads them. Their texts together are the file.
#[must_use]
pub fn documents(text: &str) -> Vec<Document> {
    let (mark, rest) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let mut documents = Vec::new();
    let mut lines = 0;
    for (index, chunk) in chunks(rest).into_iter().enumerate() {
        let mark = if index == 0 { mark } else { "" };
        read(mark, chunk, lines, &mut documents);
        lines += chunk.matches('\n').count();
    }
    documents
}

/// The text cut before every line that begins a document.
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

/// Whether there are directives and nothing else: they belong to the document that follows.
fn is_directives(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).peekable();
    lines.peek().is_some() && lines.all(|line| line.starts_with('%'))
}

fn read(mark: &str, chunk: &str, lines: usize, documents: &mut Vec<Document>) {
    let start = match chunk.strip_prefix("---") {
        Some(rest) => chunk.len() - rest.trim_start().len(),
        None => chunk.len() - chunk.trim_start().len(),
    };
    let candidate = &chunk[start..];
    if !candidate.starts_with(['{', '[']) {
        documents.push(Document::new(mark, chunk, "", Format::Yaml, lines));
        return;
    }
    match json::values(candidate) {
        Ok(values) => {
            let mut at = 0;
            for (index, value) in values.iter().enumerate() {
                let begin = start + json::offset(candidate, value);
                let end = begin + value.len();
                let last = index + 1 == values.len();
                let lead = [if index == 0 { mark } else { "" }, &chunk[at..begin]].concat();
                let lines = lines + chunk[..begin].matches('\n').count();
                documents.push(Document::new(
                    &lead,
                    value,
                    if last { &chunk[end..] } else { "" },
                    Format::Json,
                    lines,
                ));
                at = end;
            }
        }
        Err(error) => {
            let document = Document::new(mark, chunk, "", Format::Yaml, lines);
            // What looks like JSON is told in JSON's terms what is wrong with it.
            let inside = candidate[1..].trim_start();
            let is_json = document.value().is_err() && inside.starts_with(['"', '{', '}', ']']);
            let lines_before = lines + chunk[..start].matches('\n').count();
            documents.push(if is_json { Document::broken(chunk, error, lines_before) } else { document });
        }
    }
}
