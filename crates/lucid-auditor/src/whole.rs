//! Judges bodies that are there as a whole.

use futures::{StreamExt as _, stream};
use percent_encoding::percent_decode_str;

use crate::{
    Direction,
    format::Rule,
    json::{Document, decode, is_json},
    stream::without_logprobs,
    text::{Text, apply, texts},
    verdict::{Denial, Outcome, Panel},
};

/// Number of texts of a body that are judged at a time.
const PARALLEL: usize = 8;

/// Judges the texts of a body. Returns the body to send instead, if parts of it are replaced.
pub(crate) async fn judge(
    panel: &Panel,
    rules: &[Rule],
    direction: Direction,
    content_type: &str,
    document: &Document<'_>,
) -> Result<Option<String>, Denial> {
    let body = document.text;
    let mut texts = match is_like_json(content_type, body) {
        true => texts(document, rules, direction),
        false => Vec::new(),
    };
    // Receivers may read what is no JSON in other ways: the body is judged as it is, and with escapes decoded.
    let is_form = content_type.starts_with("application/x-www-form-urlencoded");
    let is_ambiguous = is_form || !is_json(body);
    let mut decoded = Vec::new();
    if is_ambiguous {
        texts.push(Text::plain(direction, body));
        decoded.extend(unescaped(body));
        if is_form {
            decoded.extend(decoded_form(body));
        }
    }
    let whole = texts.len();
    texts.extend(decoded.iter().map(|text| Text::plain(direction, text)));
    let verdicts: Vec<_> = texts.iter().map(|text| panel.judge(&text.passage)).collect();
    let outcomes: Vec<_> = stream::iter(verdicts).buffered(PARALLEL).collect().await;
    let mut edits = Vec::new();
    for (index, (text, outcome)) in texts.iter().zip(outcomes).enumerate() {
        match outcome {
            Outcome::Allow => {}
            Outcome::Deny(denial) => return Err(denial),
            Outcome::Mask(spans) if index < whole && (whole == 1 || !is_ambiguous) => {
                edits.extend(spans.iter().flat_map(|span| text.edits(span)));
            }
            Outcome::Mask(spans) => {
                let rule = spans.first().map(|span| &*span.rule).unwrap_or_default();
                return Err(Denial::irreplaceable(rule, "a body that is not well-formed"));
            }
        }
    }
    Ok((!edits.is_empty()).then(|| apply(body, without_logprobs(body, edits))))
}

/// Returns `true` for JSON, well-formed or not.
pub(crate) fn is_like_json(content_type: &str, body: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let start = body.trim_start_matches('\u{feff}').trim_start();
    essence.ends_with("json") || start.starts_with(['{', '[', '"'])
}

/// Judges the decoded query of a URI.
pub(crate) async fn judge_query(panel: &Panel, query: &str) -> Result<(), Denial> {
    for text in decoded_form(query) {
        match panel.judge(&crate::Passage::new(Direction::Prompt, text)).await {
            Outcome::Allow => {}
            Outcome::Deny(denial) => return Err(denial),
            Outcome::Mask(spans) => {
                let rule = spans.first().map(|span| &*span.rule).unwrap_or_default();
                return Err(Denial::irreplaceable(rule, "the query"));
            }
        }
    }
    Ok(())
}

/// Returns a form or query decoded, and also without escapes of JSON.
fn decoded_form(form: &str) -> Vec<String> {
    let decoded = percent_decode_str(&form.replace('+', " ")).decode_utf8_lossy().into_owned();
    let inner = unescaped(&decoded);
    [decoded].into_iter().chain(inner).collect()
}

/// Returns a text without escapes of JSON, if it has any.
fn unescaped(text: &str) -> Option<String> {
    text.contains('\\').then(|| decode(text).text.into_owned())
}
