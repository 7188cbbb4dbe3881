//! Reading `auditors.yaml`.
//!
//! serde_yaml tells a position only for an error that is raised while the value is being read.
//! So every check is made there, by seeds that see the text of one scalar or key.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use snafu::Snafu;

use super::{
    Auditor, Catalogue, Defaults,
    defaults::ReadDefaults,
    entry::{Before, ReadEntry},
    fields::{Budget, Keys, Map, ReadMap},
};

/// The longest file, in bytes. A ConfigMap may hold eight times as much.
const FILE_BYTES: usize = 128 * 1024;

/// A catalogue is refused; the message tells its origin, the line and the key.
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
        // The position stands at the end, but in the middle of a message about broken syntax.
        let position = format!(" at line {line} column {column}");
        let problem =
            text.strip_suffix(&position).map_or_else(|| text.replacen(&position, "", 1), str::to_owned);
        Self { origin: origin.to_owned(), line, column, problem }
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, with the key, and without origin and line: for an entry that its user has not written as text.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// The most brackets and braces that open, wherever they stand. libyaml looks at every collection that is still open
/// for each token it reads, so 65,000 of them take it seconds.
const OPENINGS: usize = 4096;

/// Reads an `auditors.yaml`. Its entries inherit the keys that they omit from those of `base` with the same meaning.
pub(super) fn read(origin: &str, yaml: &str, base: Option<&Catalogue>) -> Result<File, CatalogueError> {
    read_document(origin, yaml, |document| match document {
        Some(document) => Map(ReadFile { base }).deserialize(document),
        None => Err(missing_chain()),
    })
}

/// Reads one entry that stands alone.
pub(super) fn read_entry(origin: &str, yaml: &str) -> Result<Auditor, CatalogueError> {
    read_document(origin, yaml, |document| match document {
        Some(document) => Map(ReadEntry { before: &mut Before::default(), base: None }).deserialize(document),
        None => Err(de::Error::custom("found nothing, accepted one auditor")),
    })
}

/// Reads the only document of a text.
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
    // A byte order mark is no part of the text.
    let yaml = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
    check_syntax(yaml)
        .and_then(|()| read(serde_yaml::Deserializer::from_str(yaml).next()))
        .map_err(|error| CatalogueError::new(origin, &error))
}

/// What reading the text costs.
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

/// Broken syntax ends the events early, so it would show as a missing key if it were not looked
/// for first.
fn check_syntax(yaml: &str) -> Result<(), serde_yaml::Error> {
    let mut documents = serde_yaml::Deserializer::from_str(yaml);
    if let Some(first) = documents.next() {
        IgnoredAny::deserialize(first)?;
    }
    documents.try_for_each(|next| next.deserialize_any(NothingMore))
}

/// What may follow the first document: empty ones, such as the end of a text that ends in `---`.
struct NothingMore;

impl Visitor<'_> for NothingMore {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single YAML document")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

/// What a file says.
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
        let budget = &Budget::of_an_entry();
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
        let mut before = Before::default();
        let mut auditors = Vec::new();
        let base = self.base;
        while let Some(auditor) = list.next_element_seed(Map(ReadEntry { before: &mut before, base }))? {
            auditors.push(auditor);
        }
        if auditors.is_empty() {
            return Err(A::Error::custom("found an empty list, accepted at least one auditor"));
        }
        Ok(auditors)
    }
}
