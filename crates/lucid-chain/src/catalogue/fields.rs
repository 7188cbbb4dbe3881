//! Scalars, keys, lists and simple maps of an `auditors.yaml`, validated while they are parsed.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroU16,
    ops::RangeInclusive,
    str::FromStr,
};

use lucid_notary::ImageReference;
use serde::{
    Deserializer,
    de::{self, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};

use super::RESERVED_ENV;
use crate::text::Excerpt;

pub(super) const NAME_ACCEPTED: &str =
    "a DNS label: at most 63 lower-case letters, digits and hyphens, a letter or digit at both ends";
pub(super) const IMAGE_ACCEPTED: &str = "an image reference such as registry.example/auditor:1.0";

/// Maximum size of the keys and values of an entry, in bytes. Aliases can yield the same text many times, so the
/// limit applies to the parsed values, not the text. It also bounds what an auditor adds to a pod.
const ENTRY_BYTES: usize = 16 * 1024;

/// Maximum size of a key or value, in bytes.
const TEXT_BYTES: usize = 4 * 1024;

/// Maximum number of members of a map or list within an entry.
const MEMBERS: usize = 64;

/// Remaining size of an entry, in bytes. Every scalar is charged to it.
pub(super) struct Budget(Cell<usize>);

impl Budget {
    pub(super) fn for_entry() -> Self {
        Self(Cell::new(ENTRY_BYTES))
    }

    /// Returns the seed of a scalar or key that `read` parses from its text. YAML types are not resolved, so `0.80`
    /// and `yes` stay as written.
    pub(super) fn scalar<F>(&self, read: F) -> Scalar<'_, F> {
        Scalar { budget: self, read }
    }

    fn spend(&self, text: &str) -> Result<(), String> {
        if text.len() > TEXT_BYTES {
            return Err(format!("found {} bytes, accepted at most {TEXT_BYTES} in one value", text.len()));
        }
        // The additional byte charges empty texts.
        let left = self.0.get().checked_sub(text.len() + 1);
        self.0.set(left.ok_or_else(|| {
            format!("found more than {ENTRY_BYTES} bytes in one entry, accepted at most {ENTRY_BYTES}")
        })?);
        Ok(())
    }
}

/// See [`Budget::scalar`].
pub(super) struct Scalar<'b, F> {
    budget: &'b Budget,
    read: F,
}

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Scalar<'_, F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Scalar<'_, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a single value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.budget.spend(text).and_then(|()| (self.read)(text)).map_err(E::custom)
    }
}

/// Wraps a seed to distinguish a YAML null from an empty text or map. serde_yaml reports no position for a null, so
/// the enclosing map names the key in its error.
pub(super) struct OrNull<S>(pub(super) S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for OrNull<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// Parser of a map with a fixed set of keys.
pub(super) trait ReadMap {
    type Value;

    /// Description of the map for error messages.
    fn expected(&self) -> String;

    fn read<'de, A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error>;
}

/// Seed of a [`ReadMap`].
pub(super) struct Map<R>(pub(super) R);

impl<'de, R: ReadMap> DeserializeSeed<'de> for Map<R> {
    type Value = R::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<R::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, R: ReadMap> Visitor<'de> for Map<R> {
    type Value = R::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.expected())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<R::Value, A::Error> {
        self.0.read(map)
    }
}

/// Keys of a map that accepts only certain keys, each once.
pub(super) struct Keys<'b> {
    budget: &'b Budget,
    accepted: &'static [&'static str],
    refused: &'static [(&'static str, &'static str)],
    seen: BTreeSet<&'static str>,
}

impl<'b> Keys<'b> {
    pub(super) fn new(budget: &'b Budget, accepted: &'static [&'static str]) -> Self {
        Self { budget, accepted, refused: &[], seen: BTreeSet::new() }
    }

    /// Adds keys of the Kubernetes API that users may expect here, with the reason why each is rejected.
    pub(super) fn refusing(self, refused: &'static [(&'static str, &'static str)]) -> Self {
        Self { refused, ..self }
    }

    /// Returns the next key of `map`; `None` at its end.
    pub(super) fn next<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
    ) -> Result<Option<&'static str>, A::Error> {
        map.next_key_seed(self.budget.scalar(|text: &str| {
            let accepted = self.accepted.iter().find(|key| **key == text);
            let key = *accepted.ok_or_else(|| self.unknown(text))?;
            if self.seen.insert(key) { Ok(key) } else { Err(duplicate_key(text)) }
        }))
    }

    fn unknown(&self, key: &str) -> String {
        let accepted = self.accepted.join(", ");
        match self.refused.iter().find(|(refused, _)| *refused == key) {
            Some((refused, reason)) => format!("found the key {refused}, accepted {accepted}: {reason}"),
            None => format!("unknown key {}, accepted {accepted}", Excerpt(key)),
        }
    }
}

/// Parser of a map from names to scalars.
pub(super) struct Names<'b> {
    pub(super) budget: &'b Budget,
    pub(super) key: fn(&str) -> Result<String, String>,
    pub(super) value: fn(&str) -> Result<String, String>,
}

impl ReadMap for Names<'_> {
    type Value = BTreeMap<String, String>;

    fn expected(&self) -> String {
        "a map from names to values".to_owned()
    }

    fn read<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        loop {
            let key = self.budget.scalar(|text: &str| {
                if is_null(text) {
                    Err("found nothing, accepted a name".to_owned())
                } else if values.contains_key(text) {
                    Err(duplicate_key(text))
                } else if values.len() == MEMBERS {
                    Err(format!("found more than {MEMBERS} names, accepted at most {MEMBERS}"))
                } else {
                    (self.key)(text)
                }
            });
            let Some(key) = map.next_key_seed(key)? else { return Ok(values) };
            let value = map.next_value_seed(OrNull(self.budget.scalar(self.value)))?;
            let value = value.ok_or_else(|| A::Error::custom(null_message(&key)))?;
            values.insert(key, value);
        }
    }
}

/// Seed of a list of scalars.
pub(super) struct List<'b> {
    pub(super) budget: &'b Budget,
    pub(super) item: fn(&str) -> Result<String, String>,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Vec<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let full = items.len() == MEMBERS;
            let item = self.budget.scalar(|text: &str| {
                if full {
                    Err(format!("found more than {MEMBERS} items, accepted at most {MEMBERS}"))
                } else {
                    (self.item)(text)
                }
            });
            let Some(item) = list.next_element_seed(item)? else { return Ok(items) };
            items.push(item);
        }
    }
}

/// Returns the error message for a null as the value of `key`.
pub(super) fn null_message(key: &str) -> String {
    format!("{} has no value, accepted text (\"\" for an empty one)", Excerpt(key))
}

/// Accepts any text.
pub(super) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Parses the name of an entry.
pub(super) fn name(text: &str) -> Result<String, String> {
    // `null` would be a DNS label.
    if is_null(text) || !is_dns_label(text) {
        return Err(format!("found {}, accepted {NAME_ACCEPTED}", Found(text)));
    }
    Ok(text.to_owned())
}

/// Parses an image reference; returns it as written and parsed.
pub(super) fn image(text: &str) -> Result<(String, ImageReference), String> {
    // `null` would be a valid reference.
    if is_null(text) {
        return Err(format!("found nothing, accepted {IMAGE_ACCEPTED}"));
    }
    let reference = ImageReference::from_str(text).map_err(|error| error.to_string())?;
    Ok((text.to_owned(), reference))
}

/// Parses a boolean in any of YAML's three spellings.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "True" | "TRUE" => Ok(true),
        "false" | "False" | "FALSE" => Ok(false),
        _ => Err(format!("found {}, accepted true or false", Found(text))),
    }
}

/// Parses a port in decimal digits.
pub(super) fn port(text: &str) -> Result<NonZeroU16, String> {
    crate::port::parse(text).ok_or_else(|| format!("found {}, accepted 1 to 65535", Found(text)))
}

/// Parses a whole number in decimal digits, without a sign.
pub(super) fn number(text: &str, accepted: RangeInclusive<u32>) -> Result<u32, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten().filter(|number| accepted.contains(number));
    number.ok_or_else(|| {
        let (least, most) = accepted.into_inner();
        let accepted = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!("found {}, accepted {accepted}", Found(text))
    })
}

/// Parses the name of an environment variable that a catalogue may set.
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

fn duplicate_key(key: &str) -> String {
    format!("found the key {} twice, accepted each key once", Excerpt(key))
}

/// Returns `true` if `text` is a DNS label (RFC 1123).
pub(super) fn is_dns_label(text: &str) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    (1..=63).contains(&text.len())
        && text.as_bytes().iter().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Returns `true` for the YAML spellings of null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A value in a message, without quotes if it is unambiguous.
pub(super) struct Found<'a>(pub(super) &'a str);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if is_null(self.0) {
            f.write_str("nothing")
        } else if self.0.len() <= 20 && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            write!(f, "{}", Excerpt(self.0))
        }
    }
}
