//! Parts of texts.

use std::cmp::Reverse;

use lucid_auditor::Span;

/// Merges spans that overlap. The one with the highest rank, then the longest, names the rule.
pub(crate) fn merge<R: Ord>(mut spans: Vec<(R, Span)>) -> Vec<Span> {
    spans.sort_by_key(|(_, span)| (span.range.start, Reverse(span.range.end)));
    let mut merged: Vec<(R, Span)> = Vec::with_capacity(spans.len());
    for next in spans {
        match merged.last_mut() {
            Some(last) if next.1.range.start < last.1.range.end => {
                let union = last.1.range.start..last.1.range.end.max(next.1.range.end);
                if (&next.0, next.1.range.len()) > (&last.0, last.1.range.len()) {
                    *last = next;
                }
                last.1.range = union;
            }
            _ => merged.push(next),
        }
    }
    merged.into_iter().map(|(_, span)| span).collect()
}

/// Returns at most `len` bytes at the end of `text`.
pub(crate) fn tail(text: &str, len: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(len))..]
}
