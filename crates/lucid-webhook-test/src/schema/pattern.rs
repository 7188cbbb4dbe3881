//! Generates texts that match a pattern.

use proptest::prelude::*;
use proptest::string::string_regex_parsed;
use regex::Regex;
use regex_syntax::hir::{Capture, Hir, HirKind, Repetition};

use super::{SchemaError, invalid};

pub(super) fn texts(path: &str, pattern: &str) -> Result<BoxedStrategy<String>, SchemaError> {
    let failed = |reason: String| {
        invalid(path, format!("failed to make texts for the pattern {pattern:?}: {reason}")).build()
    };
    let rust = in_ascii(pattern);
    let parsed = regex_syntax::parse(&rust).map_err(|error| failed(error.to_string()))?;
    let regex = Regex::new(&rust).map_err(|error| failed(error.to_string()))?;
    let texts = string_regex_parsed(&without_anchors(parsed)).map_err(|error| failed(error.to_string()))?;
    Ok(texts.prop_filter(format!("{path}: {pattern}"), move |text| regex.is_match(text)).boxed())
}

/// Returns `true` if the pattern matches. Unsupported patterns match everything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(&in_ascii(pattern)).map_or(true, |regex| regex.is_match(text))
}

/// Translates `\d`, `\w` and `\s`, which are ASCII in Go's patterns and Unicode in Rust's.
fn in_ascii(pattern: &str) -> String {
    let mut rust = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            rust.push(character);
            continue;
        }
        match characters.next() {
            Some('d') => rust.push_str("[0-9]"),
            Some('D') => rust.push_str("[^0-9]"),
            Some('w') => rust.push_str("[0-9A-Za-z_]"),
            Some('W') => rust.push_str("[^0-9A-Za-z_]"),
            Some('s') => rust.push_str(r"[\t\n\x0c\r ]"),
            Some('S') => rust.push_str(r"[^\t\n\x0c\r ]"),
            other => {
                rust.push('\\');
                rust.extend(other);
            }
        }
    }
    rust
}

/// Removes anchors, which do not generate text. The complete pattern is matched afterwards.
fn without_anchors(expression: Hir) -> Hir {
    match expression.into_kind() {
        HirKind::Look(_) | HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(class) => Hir::class(class),
        HirKind::Repetition(repeated) => {
            let sub = Box::new(without_anchors(*repeated.sub));
            Hir::repetition(Repetition { sub, ..repeated })
        }
        HirKind::Capture(capture) => {
            let sub = Box::new(without_anchors(*capture.sub));
            Hir::capture(Capture { sub, ..capture })
        }
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(without_anchors).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.into_iter().map(without_anchors).collect()),
    }
}
