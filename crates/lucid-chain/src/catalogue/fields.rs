//! The scalars, keys and simple maps of an `auditors.yaml`, each checked while it is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroU16,
    str::FromStr,
};

use lucid_notary::ImageReference;
use serde::{
    Deserializer,
    de::{self, DeserializeSeed, MapAccess, Visitor},
};

use super::{Auditor, RESERVED_ENV, stem};
use crate::{quantity::Quantity, text::Excerpt};

pub(super) const NAME_ACCEPTED: &str =
    "a DNS label: at most 63 lower-case letters, digits and hyphens, a letter or digit at both ends";
pub(super) const IMAGE_ACCEPTED: &str = "an image reference such as registry.example/auditor:1.0";

/// One scalar or key, read from its text. YAML's own types are left aside, so that `0.80` and
/// `yes` stay what was written.
pub(super) struct Scalar<F>(pub(super) F);

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Scalar<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Scalar<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// The keys of a map that takes only certain ones, each once.
pub(super) struct Keys {
    accepted: &'static [&'static str],
    seen: BTreeSet<&'static str>,
}

impl Keys {
    pub(super) fn new(accepted: &'static [&'static str]) -> Self {
        Self { accepted, seen: BTreeSet::new() }
    }

    /// The next key of `map`; `None` at its end.
    pub(super) fn next<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
    ) -> Result<Option<&'static str>, A::Error> {
        map.next_key_seed(Scalar(|text: &str| {
            let accepted = self.accepted.iter().find(|key| **key == text);
            let key = *accepted.ok_or_else(|| {
                format!("unknown key {}, accepted {}", Excerpt(text), self.accepted.join(", "))
            })?;
            if self.seen.insert(key) { Ok(key) } else { Err(twice(text)) }
        }))
    }
}

/// A map from names to scalars, both checked.
pub(super) struct MapSeed {
    pub(super) key: fn(&str) -> Result<String, String>,
    pub(super) value: fn(&str) -> Result<String, String>,
}

impl<'de> DeserializeSeed<'de> for MapSeed {
    type Value = BTreeMap<String, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MapSeed {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from names to values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        loop {
            let key = Scalar(|text: &str| match values.contains_key(text) {
                true => Err(twice(text)),
                false => (self.key)(text),
            });
            let Some(key) = map.next_key_seed(key)? else { return Ok(values) };
            values.insert(key, map.next_value_seed(Scalar(self.value))?);
        }
    }
}

/// Any text.
pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// The name of an entry that comes after the entries `before`.
pub(super) fn name(text: &str, before: &[Auditor]) -> Result<String, String> {
    if !is_dns_label(text) {
        return Err(format!("found {}, accepted {NAME_ACCEPTED}", Found(text)));
    }
    match before.iter().find(|auditor| stem(&auditor.name) == stem(text)) {
        Some(same) if same.name == text => Err(format!("found {text} twice, accepted each name once")),
        Some(same) => {
            Err(format!("found {text}, which means the same as {}, accepted one of them", same.name))
        }
        None => Ok(text.to_owned()),
    }
}

/// An image reference.
pub(super) fn image(text: &str) -> Result<String, String> {
    if is_nothing(text) {
        return Err(format!("found nothing, accepted {IMAGE_ACCEPTED}"));
    }
    ImageReference::from_str(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A port in decimal digits.
pub(super) fn port(text: &str) -> Result<NonZeroU16, String> {
    crate::port::parse(text).ok_or_else(|| format!("found {}, accepted 1 to 65535", Found(text)))
}

/// The name of an environment variable that the catalogue may set.
pub(super) fn env_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if RESERVED_ENV.contains(&text) {
        Err(format!(
            "found {text}, which Lucid sets itself, accepted any name but {}",
            RESERVED_ENV.join(", ")
        ))
    } else if !text.is_empty() && text.bytes().all(allowed) && !text.as_bytes()[0].is_ascii_digit() {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "found {}, accepted a name of letters, digits, '-', '_' and '.' that starts with no digit",
            Found(text)
        ))
    }
}

/// The name of a resource that a container may ask for.
pub(super) fn resource_name(text: &str) -> Result<String, String> {
    let known = matches!(text, "cpu" | "memory" | "ephemeral-storage") || text.starts_with("hugepages-");
    if known || text.contains('/') {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "found {}, accepted cpu, memory, ephemeral-storage, hugepages-<size> or <domain>/<name>",
            Found(text)
        ))
    }
}

/// A resource quantity, kept as written.
pub(super) fn quantity(text: &str) -> Result<String, String> {
    match Quantity::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("found {}, accepted a quantity such as 100m, 0.5 or 256Mi", Found(text))),
    }
}

fn twice(key: &str) -> String {
    format!("found the key {} twice, accepted each key once", Excerpt(key))
}

fn is_dns_label(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    (1..=63).contains(&text.len())
        && text.as_bytes().iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// An absent value as YAML writes it. Read as text, `image: null` would be a valid reference.
fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A value as a message repeats it: bare when that is unmistakable.
struct Found<'a>(&'a str);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if is_nothing(self.0) {
            f.write_str("nothing")
        } else if self.0.len() <= 20 && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            write!(f, "{}", Excerpt(self.0))
        }
    }
}
