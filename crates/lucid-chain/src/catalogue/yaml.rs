//! Parsing of `auditors.yaml`.
//!
//! serde_yaml reports positions only for errors that occur while a value is deserialized. All checks are therefore
//! part of deserialization seeds.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use snafu::Snafu;

use super::{
    Auditor, Catalogue, Defaults,
    defaults::ReadDefaults,
    entry::{Preceding, ReadEntry},
    fields::{Budget, Keys, Map, ReadMap},
};

/// Maximum size of a file, in bytes; an eighth of that of a ConfigMap.
const FILE_BYTES: usize = 128 * 1024;

/// A catalogue is invalid; the message has the origin, the line and the key.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(display("{origin}: line {line}, column {column}: {problem}"))]
pub struct CatalogueError {
    origin: String,
    line: usize,
    column: usize,
    problem: String,
}

impl CatalogueError {
    fn new(origin: &str, error: &serde_yaml::Error) -> Self {
        let (line, column) = error.location().map_or((1, 1), |location| (location.line(), location.column()));
        let text = error.to_string();
        // The position is usually a suffix, but syntax errors have it in the middle.
        let position = format!(" at line {line} column {column}");
        let problem =
            text.strip_suffix(&position).map_or_else(|| text.replacen(&position, "", 1), str::to_owned);
        Self { origin: origin.to_owned(), line, column, problem }
    }

    /// Returns the line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the column, counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns the problem with its key, without origin and line, for entries that the user did not write as text.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// Maximum number of opening brackets and braces, in any position. For each token, libyaml scans all open
/// collections, so 65,000 of them take seconds.
const OPENINGS: usize = 4096;

/// Parses an `auditors.yaml`. Its entries inherit omitted keys from the entries of `base` with equivalent names.
pub(super) fn read(origin: &str, yaml: &str, base: Option<&Catalogue>) -> Result<File, CatalogueError> {
    read_document(origin, yaml, |document| match document {
        Some(document) => Map(ReadFile { base }).deserialize(document),
        None => Err(missing_chain()),
    })
}

/// Parses a single entry.
pub(super) fn read_entry(origin: &str, yaml: &str) -> Result<Auditor, CatalogueError> {
    read_document(origin, yaml, |document| match document {
        Some(document) => {
            Map(ReadEntry { preceding: &mut Preceding::default(), base: None }).deserialize(document)
        }
        None => Err(de::Error::custom("found nothing, accepted one auditor")),
    })
}

/// Parses a text that consists of one document.
fn read_document<T>(
    origin: &str,
    yaml: &str,
    read: impl FnOnce(Option<serde_yaml::Deserializer<'_>>) -> Result<T, serde_yaml::Error>,
) -> Result<T, CatalogueError> {
    check_size(yaml).map_err(|problem| CatalogueError {
        origin: origin.to_owned(),
        line: 1,
        column: 1,
        problem,
    })?;
    // Skip a byte order mark.
    let yaml = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
    check_syntax(yaml)
        .and_then(|()| read(serde_yaml::Deserializer::from_str(yaml).next()))
        .map_err(|error| CatalogueError::new(origin, &error))
}

/// Bounds the cost of parsing.
fn check_size(yaml: &str) -> Result<(), String> {
    if yaml.len() > FILE_BYTES {
        return Err(format!("found {} bytes, accepted at most {FILE_BYTES}", yaml.len()));
    }
    let openings = yaml.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if openings > OPENINGS {
        return Err(format!("found {openings} times '[' or '{{', accepted at most {OPENINGS}"));
    }
    Ok(())
}

fn missing_chain<E: de::Error>() -> E {
    E::custom("`chain` is missing, accepted a list of auditors")
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

/// Content of a file.
pub(super) struct File {
    pub(super) auditors: Vec<Auditor>,
    pub(super) defaults: Defaults,
}

struct ReadFile<'a> {
    base: Option<&'a Catalogue>,
}

impl ReadMap for ReadFile<'_> {
    type Value = File;

    fn expected(&self) -> String {
        "a map with the keys chain, defaults".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let budget = &Budget::for_entry();
        let mut keys = Keys::new(budget, &["chain", "defaults"]);
        let (mut auditors, mut defaults) = (None, None);
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "chain" => auditors = Some(map.next_value_seed(ChainSeed { base: self.base })?),
                _ => defaults = Some(map.next_value_seed(Map(ReadDefaults { budget }))?),
            }
        }
        match (auditors, defaults) {
            (None, None) => Err(missing_chain()),
            (auditors, defaults) => {
                Ok(File { auditors: auditors.unwrap_or_default(), defaults: defaults.unwrap_or_default() })
            }
        }
    }
}

struct ChainSeed<'a> {
    base: Option<&'a Catalogue>,
}

impl<'de> DeserializeSeed<'de> for ChainSeed<'_> {
    type Value = Vec<Auditor>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChainSeed<'_> {
    type Value = Vec<Auditor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of auditors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut preceding = Preceding::default();
        let mut auditors = Vec::new();
        let base = self.base;
        while let Some(auditor) =
            list.next_element_seed(Map(ReadEntry { preceding: &mut preceding, base }))?
        {
            auditors.push(auditor);
        }
        if auditors.is_empty() {
            return Err(A::Error::custom("found an empty list, accepted at least one auditor"));
        }
        Ok(auditors)
    }
}
