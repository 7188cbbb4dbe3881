//! Judges complete bodies.

use std::ops::Range;

use futures::future::join_all;
use percent_encoding::percent_decode_str;

use crate::{
    Direction, Passage,
    json::{Document, decode},
    protocol::Protocol,
    text::{Edit, Text, apply, texts_of_answer, texts_of_request, without},
    verdict::{Denial, Outcome, Panel},
};

const PARALLEL: usize = 8;

/// Number of times that a text is percent-decoded: proxies on the way decode, too.
const MAX_DECODED: usize = 3;

/// Maximum number of rows that are judged one by one.
const MAX_ROWS: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    Request(&'a str),
    Answer(&'static Protocol),
}

impl Origin<'_> {
    const fn direction(self) -> Direction {
        match self {
            Self::Request(_) => Direction::Prompt,
            Self::Answer(_) => Direction::Completion,
        }
    }

    fn of_row(self, row: &Document<'_>) -> Self {
        match self {
            Self::Request(_) => Self::Request(""),
            Self::Answer(protocol) => Self::Answer(Protocol::of_answer(row).unwrap_or(protocol)),
        }
    }

    fn texts(self, document: &Document<'_>) -> Vec<Text> {
        match self {
            Self::Request(path) => texts_of_request(document, path),
            Self::Answer(protocol) => texts_of_answer(document, document.strings(), protocol),
        }
    }

    fn echoes(self, document: &Document<'_>) -> Vec<Range<usize>> {
        match self {
            Self::Request(path) => Protocol::of_request(path, document).echoes(document),
            Self::Answer(protocol) => protocol.echoes(document),
        }
    }
}

struct Part {
    text: Text,
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// From this offset on. The second number is that of a row, from 1.
    At(usize, Option<usize>),
    /// Nothing in it can be replaced.
    Ambiguous,
}

/// Judges the texts of a body. Returns the body to send instead, if parts of it are replaced.
pub(crate) async fn judge(
    panel: &Panel,
    origin: Origin<'_>,
    content_type: &str,
    document: &Document<'_>,
) -> Result<Option<String>, Denial> {
    let direction = origin.direction();
    let body = document.text;
    // `curl` calls any body a form. One without encoded characters is the same text to servers of forms and of JSON.
    let is_json = document.is_json && !body.contains(['%', '+']);
    let is_form = content_type.starts_with("application/x-www-form-urlencoded") && !is_json;
    let mut echoes = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |texts: Vec<Text>, place: Place| {
        parts.extend(texts.into_iter().map(|text| Part { text, place }));
    };
    if document.is_json && !is_form {
        add(origin.texts(document), Place::At(0, None));
        echoes = origin.echoes(document);
    } else {
        let rest = match is_form {
            true => body.to_owned(),
            false => rows(body, |offset, number, row| {
                add(origin.of_row(row).texts(row), Place::At(offset, Some(number)));
            }),
        };
        // Receivers may read what is not JSON in other ways: it is judged as it is, and with escapes decoded.
        let is_like_json = is_like_json(content_type, &rest);
        if is_like_json {
            add(origin.texts(&Document::scan(&rest)), Place::Ambiguous);
        }
        let is_plain = !is_like_json && rest.len() == body.len();
        let place = if is_plain && !is_form { Place::At(0, None) } else { Place::Ambiguous };
        let decoded =
            if is_form { decodings(&rest.replace('+', " ")) } else { unescaped(&rest).into_iter().collect() };
        if !rest.trim().is_empty() {
            add(vec![Text::plain(direction, &rest)], place);
        }
        add(decoded.iter().map(|text| Text::plain(direction, text)).collect(), Place::Ambiguous);
    }
    let mut outcomes = Vec::with_capacity(parts.len());
    for some in parts.chunks(PARALLEL) {
        outcomes.extend(join_all(some.iter().map(|part| panel.judge(&part.text.passage))).await);
    }
    let mut edits: Vec<Edit> = Vec::new();
    for (Part { text, place }, outcome) in parts.iter().zip(outcomes) {
        match (outcome, place) {
            (Outcome::Allow, _) => {}
            (Outcome::Deny(denial), Place::At(_, Some(row))) => {
                return Err(Denial { message: format!("row {row}: {}", denial.message), ..denial });
            }
            (Outcome::Deny(denial), _) => return Err(denial),
            (Outcome::Mask(spans), Place::At(offset, _)) => {
                edits.extend(spans.iter().flat_map(|span| text.edits(span)).map(|edit| edit.moved(*offset)));
            }
            (Outcome::Mask(spans), Place::Ambiguous) => {
                return Err(Denial::irreplaceable(&spans, "a body that is not well-formed"));
            }
        }
    }
    Ok((!edits.is_empty()).then(|| apply(body, without(body, echoes, edits))))
}

/// Finds the lines that are JSON objects, such as the rows of a file in a form. Returns the rest.
fn rows(body: &str, mut found: impl FnMut(usize, usize, &Document<'_>)) -> String {
    let (mut rest, mut at, mut number, mut count) = (String::new(), 0, 0, 0);
    for line in body.split_inclusive('\n') {
        let is_row = count < MAX_ROWS && line.trim_start().starts_with('{');
        let document = is_row.then(|| Document::scan(line));
        match document.filter(|document| document.is_json) {
            Some(document) => {
                (number, count) = (number + 1, count + 1);
                found(at, number, &document);
            }
            None => {
                // The rows of a file are together.
                number = if line.trim().is_empty() { number } else { 0 };
                rest.push_str(line);
            }
        }
        at += line.len();
    }
    rest
}

/// Returns `true` for JSON, well-formed or not.
pub(crate) fn is_like_json(content_type: &str, body: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.ends_with("json") || Document::is_like(body)
}

/// Judges the decoded path and query of a URI.
pub(crate) async fn judge_uri(panel: &Panel, path: &str, query: Option<&str>) -> Result<(), Denial> {
    let mut texts = if path.contains('%') { decodings(path) } else { Vec::new() };
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        texts.extend(decodings(&query.replace('+', " ")));
    }
    for text in texts {
        match panel.judge(&Passage::new(Direction::Prompt, text)).await {
            Outcome::Allow => {}
            Outcome::Deny(denial) => return Err(denial),
            Outcome::Mask(spans) => return Err(Denial::irreplaceable(&spans, "path and query")),
        }
    }
    Ok(())
}

/// Returns a percent-encoded text decoded, once and more often, and also without escapes of JSON.
fn decodings(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut text = text.to_owned();
    for _ in 0..MAX_DECODED {
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if !all.is_empty() && decoded == text {
            break;
        }
        all.extend(unescaped(&decoded));
        all.push(decoded.clone());
        text = decoded;
    }
    all
}

/// Returns a text without escapes of JSON, if it has any.
fn unescaped(text: &str) -> Option<String> {
    text.contains('\\').then(|| decode(text).text.into_owned())
}
