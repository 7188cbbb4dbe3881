//! Reading `auditors.yaml`.
//!
//! serde_yaml tells a position only for an error that is raised while the value is being read.
//! So every check is made there, by seeds that see the text of one scalar or key.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use snafu::Snafu;

use super::{
    Auditor, DEFAULT_PORT, Resources,
    fields::{self, Keys, MapSeed, Scalar},
};
use crate::quantity::Quantity;

const ENTRY_KEYS: &[&str] = &["name", "description", "image", "port", "env", "labels", "resources"];

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
        let problem = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        Self { origin: origin.to_owned(), line, column, problem: problem.to_owned() }
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column, counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }
}

/// Reads the entries of a catalogue.
pub(super) fn read(origin: &str, yaml: &str) -> Result<Vec<Auditor>, CatalogueError> {
    check_syntax(yaml)
        .and_then(|()| serde_yaml::Deserializer::from_str(yaml).deserialize_map(FileVisitor))
        .map_err(|error| CatalogueError::new(origin, &error))
}

/// Broken syntax ends the events early, so it would show as a missing key if it were not looked
/// for first.
fn check_syntax(yaml: &str) -> Result<(), serde_yaml::Error> {
    let mut documents = serde_yaml::Deserializer::from_str(yaml);
    if let Some(first) = documents.next() {
        IgnoredAny::deserialize(first)?;
    }
    documents.try_for_each(|next| next.deserialize_any(OneDocument))
}

struct OneDocument;

impl Visitor<'_> for OneDocument {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single YAML document")
    }
}

struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = Vec<Auditor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with the key `chain`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::new(&["chain"]);
        let mut chain = None;
        while keys.next(&mut map)?.is_some() {
            chain = Some(map.next_value_seed(ChainSeed)?);
        }
        chain.ok_or_else(|| A::Error::custom("`chain` is missing, accepted a list of auditors"))
    }
}

struct ChainSeed;

impl<'de> DeserializeSeed<'de> for ChainSeed {
    type Value = Vec<Auditor>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ChainSeed {
    type Value = Vec<Auditor>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of auditors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut auditors: Vec<Auditor> = Vec::new();
        while let Some(auditor) = list.next_element_seed(EntrySeed { before: &auditors })? {
            auditors.push(auditor);
        }
        if auditors.is_empty() {
            return Err(A::Error::custom("found an empty list, accepted at least one auditor"));
        }
        Ok(auditors)
    }
}

struct EntrySeed<'a> {
    before: &'a [Auditor],
}

impl<'de> DeserializeSeed<'de> for EntrySeed<'_> {
    type Value = Auditor;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed<'_> {
    type Value = Auditor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map with the keys {}", ENTRY_KEYS.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::new(ENTRY_KEYS);
        let (mut name, mut image) = (None, None);
        let mut description = String::new();
        let mut port = DEFAULT_PORT;
        let (mut env, mut labels) = (BTreeMap::new(), BTreeMap::new());
        let mut resources = Resources::default();
        while let Some(key) = keys.next(&mut map)? {
            match key {
                "name" => {
                    name = Some(map.next_value_seed(Scalar(|text: &str| fields::name(text, self.before)))?);
                }
                "description" => description = map.next_value_seed(Scalar(fields::text))?,
                "image" => image = Some(map.next_value_seed(Scalar(fields::image))?),
                "port" => port = map.next_value_seed(Scalar(fields::port))?,
                "env" => env = map.next_value_seed(MapSeed { key: fields::env_name, value: fields::text })?,
                "labels" => {
                    labels = map.next_value_seed(MapSeed { key: fields::text, value: fields::text })?
                }
                _ => resources = map.next_value_seed(ResourcesSeed)?,
            }
        }
        let missing = |key, accepted| A::Error::custom(format!("`{key}` is missing, accepted {accepted}"));
        Ok(Auditor {
            name: name.ok_or_else(|| missing("name", fields::NAME_ACCEPTED))?,
            description,
            image: image.ok_or_else(|| missing("image", fields::IMAGE_ACCEPTED))?,
            port,
            env,
            labels,
            resources,
        })
    }
}

struct ResourcesSeed;

impl<'de> DeserializeSeed<'de> for ResourcesSeed {
    type Value = Resources;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ResourcesSeed {
    type Value = Resources;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map with the keys requests and limits")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut keys = Keys::new(&["requests", "limits"]);
        let mut resources = Resources { requests: BTreeMap::new(), limits: BTreeMap::new() };
        while let Some(key) = keys.next(&mut map)? {
            let quantities =
                map.next_value_seed(MapSeed { key: fields::resource_name, value: fields::quantity })?;
            match key {
                "requests" => resources.requests = quantities,
                _ => resources.limits = quantities,
            }
        }
        for (name, request) in &resources.requests {
            if let Some(limit) = resources.limits.get(name)
                && Quantity::parse(request) > Quantity::parse(limit)
            {
                return Err(A::Error::custom(format!(
                    "`requests.{name}` is {request}, accepted at most `limits.{name}` {limit}"
                )));
            }
        }
        Ok(resources)
    }
}
