//! YAML documents of catalogues.

use std::fmt;

use serde::{
    Deserialize, Deserializer as _,
    de::{self, DeserializeOwned, DeserializeSeed, IgnoredAny, Visitor},
};

use super::{
    Catalogue,
    schema::{Context, Seed, Shape},
};
use crate::error::Error;

/// Maximum size of a file, in bytes; an eighth of that of a ConfigMap.
const FILE_BYTES: usize = 128 * 1024;

pub(super) struct Problem {
    position: (usize, usize),
    pub(super) text: String,
}

impl Problem {
    pub(super) fn new(text: String) -> Self {
        Self { position: (1, 1), text }
    }

    fn from_yaml(error: &serde_yaml::Error) -> Self {
        let (line, column) = error.location().map_or((1, 1), |location| (location.line(), location.column()));
        let text = error.to_string();
        // The position is usually a suffix, but syntax errors have it in the middle.
        let position = format!(" at line {line} column {column}");
        let text =
            text.strip_suffix(&position).map_or_else(|| text.replacen(&position, "", 1), str::to_owned);
        Self { position: (line, column), text }
    }

    pub(super) fn in_file(self, origin: &str) -> Error {
        let (line, column) = self.position;
        Error::new(format!("{origin}: line {line}, column {column}: {}", self.text))
    }
}

/// Maximum number of opening brackets and braces, in any position. For each token, libyaml scans all open
/// collections, so 65,000 of them take seconds.
const OPENINGS: usize = 4096;

/// Parses a text that consists of one document with a value of `shape`. Without a document, the error is `missing`.
/// Entries may omit keys that they inherit from `base`.
pub(super) fn read<T: DeserializeOwned>(
    yaml: &str,
    shape: &'static Shape,
    missing: &str,
    base: &Catalogue,
) -> Result<T, Problem> {
    check_size(yaml).map_err(Problem::new)?;
    // Skip a byte order mark.
    let yaml = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
    let document = check_syntax(yaml).and_then(|()| {
        let parse = |context: &Context<'_>| {
            let document = serde_yaml::Deserializer::from_str(yaml).next();
            let document = document.ok_or_else(|| <serde_yaml::Error as de::Error>::custom(missing))?;
            Seed { shape, context }.deserialize(document)
        };
        if !yaml.contains("valueFrom") {
            return parse(&Context::new(base));
        }
        let first = Context::finding_maps(base);
        parse(&first).ok();
        parse(&Context::new(base).with_maps_of(first))
    });
    let document = document.map_err(|error| Problem::from_yaml(&error))?;
    T::deserialize(document).map_err(|error| Problem::new(error.to_string()))
}

fn check_size(yaml: &str) -> Result<(), String> {
    if yaml.len() > FILE_BYTES {
        return Err(format!("expected at most {FILE_BYTES} bytes, found {}", yaml.len()));
    }
    let openings = yaml.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if openings > OPENINGS {
        return Err(format!("expected '[' or '{{' at most {OPENINGS} times, found {openings}"));
    }
    Ok(())
}

/// Checks the syntax first. The parser stops at a syntax error, which would otherwise be reported as a missing key.
fn check_syntax(yaml: &str) -> Result<(), serde_yaml::Error> {
    let mut documents = serde_yaml::Deserializer::from_str(yaml);
    if let Some(first) = documents.next() {
        IgnoredAny::deserialize(first)?;
    }
    documents.try_for_each(|next| next.deserialize_any(EmptyDocument))
}

/// Accepts only empty documents after the first one, such as the one after a trailing `---`.
struct EmptyDocument;

impl Visitor<'_> for EmptyDocument {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single YAML document")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}
