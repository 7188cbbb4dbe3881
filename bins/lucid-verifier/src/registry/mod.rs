//! The registry file, which lists the notarized digests.
//!
//! ```yaml
//! notarized:
//!   - sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//!   - digest: sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
//!     image: ghcr.io/lucid/lucid-injection-auditor:1.4.2
//!     note: reviewed by the platform team
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use lucid_notary::{Digest, ImageReference};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snafu::Snafu;

use crate::conformance::Conformance;

#[derive(Debug)]
pub(crate) struct Registry {
    entries: BTreeMap<Digest, Entry>,
}

/// Informational fields of a notarized digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<ImageReference>,
    /// Free text, such as the reason or the reviewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conformance: Option<Conformance>,
}

/// A text is not a valid [`Registry`].
#[derive(Debug, Snafu)]
#[snafu(display(
    "line {line}, column {column}, key `{key}`: {fault} (expected the key `notarized` with a list of digests, or of \
     mappings with the keys digest, image, note and conformance)"
))]
pub(crate) struct ParseError {
    line: usize,
    /// Column in characters.
    column: usize,
    /// Path, such as `notarized[2].image`; `.` is the whole document.
    key: String,
    fault: String,
}

impl Registry {
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        // A byte order mark would count as indentation.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let document: Document =
            serde_path_to_error::deserialize(serde_yaml::Deserializer::from_str(text))
                .map_err(|error| ParseError::new(&error.path().to_string(), error.inner()))?;
        Ok(Self { entries: document.notarized.0 })
    }

    #[must_use]
    pub(crate) fn entry(&self, digest: &Digest) -> Option<&Entry> {
        self.entries.get(digest)
    }

    /// Returns the notarized digests with their entries, in the order of digests.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Digest, &Entry)> {
        self.entries.iter()
    }

    pub(crate) fn insert(&mut self, digest: Digest, entry: Entry) {
        self.entries.insert(digest, entry);
    }

    pub(crate) fn remove(&mut self, digest: &Digest) -> Option<Entry> {
        self.entries.remove(digest)
    }

    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }
}

/// Serializes the registry as a file, in the order of digests.
impl Serialize for Registry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Item<'a> {
            digest: &'a Digest,
            #[serde(flatten)]
            entry: &'a Entry,
        }
        let items: Vec<_> = self.entries().map(|(digest, entry)| Item { digest, entry }).collect();
        BTreeMap::from([("notarized", items)]).serialize(serializer)
    }
}

impl ParseError {
    fn new(key: &str, error: &serde_yaml::Error) -> Self {
        let (line, column) = error.location().map_or((1, 1), |location| (location.line(), location.column()));
        let text = error.to_string();
        // serde_yaml prepends its own path of the key and appends the position.
        let fault = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let fault = match fault.split_once(": ") {
            Some((path, fault)) if key.starts_with(path) => fault,
            _ => fault,
        };
        Self { line, column, key: key.to_owned(), fault: fault.to_owned() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with the key `notarized`")]
struct Document {
    notarized: Entries,
}

struct Entries(BTreeMap<Digest, Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = BTreeMap<Digest, Entry>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((digest, entry)) = list.next_element_seed(NextEntry { listed: &entries })? {
                    entries.insert(digest, entry);
                }
                Ok(entries)
            }
        }

        // `deserialize_seq` would accept a missing value as an empty list.
        deserializer.deserialize_any(List).map(Self)
    }
}

/// Deserializes one entry and rejects duplicates. Checked per entry, because only errors raised within an entry have
/// its position.
struct NextEntry<'a> {
    listed: &'a BTreeMap<Digest, Entry>,
}

impl NextEntry<'_> {
    fn check<E: Error>(&self, digest: Digest, entry: Entry) -> Result<(Digest, Entry), E> {
        if self.listed.contains_key(&digest) {
            return Err(E::custom(format_args!("digest {digest} is listed twice")));
        }
        match entry.image.as_ref().and_then(ImageReference::digest) {
            Some(other) if *other != digest => {
                Err(E::custom(format_args!("image has the digest {other}, but the entry notarizes {digest}")))
            }
            _ => Ok((digest, entry)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for NextEntry<'_> {
    type Value = (Digest, Entry);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NextEntry<'_> {
    type Value = (Digest, Entry);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest or a mapping")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.check(text.parse().map_err(E::custom)?, Entry::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Mapping {
            digest: Digest,
            image: Option<ImageReference>,
            note: Option<String>,
            conformance: Option<Conformance>,
        }

        let Mapping { digest, image, note, conformance } =
            Mapping::deserialize(MapAccessDeserializer::new(map))?;
        self.check(digest, Entry { image, note, conformance })
    }
}
