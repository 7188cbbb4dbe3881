//! The values of `env` in a catalogue entry.

use std::fmt;

use lucid_text::json::to_string;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    scalars::{self, Found, KEY_EXPECTED, OBJECT_EXPECTED},
    schema::{Fields, Shape},
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum EnvValue {
    Value(String),
    ValueFrom {
        #[serde(rename = "valueFrom")]
        value_from: EnvSource,
    },
}

/// Source of a value: an object in the namespace of the pod, as in core/v1 EnvVarSource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum EnvSource {
    SecretKeyRef(KeyRef),
    ConfigMapKeyRef(KeyRef),
}

/// Key of an object. Serialized with sorted members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyRef {
    key: String,
    name: String,
    /// `true` if the variable is absent without the object or the key. Otherwise the container does not start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
}

impl EnvValue {
    pub(crate) fn is_from_object(&self) -> bool {
        matches!(self, Self::ValueFrom { .. })
    }

    /// Returns the JSON of an environment variable as the API server stores it, which omits an empty value.
    pub(crate) fn variable(&self, name: &str) -> String {
        let name = to_string(name);
        match self {
            Self::Value(text) if text.is_empty() => format!("{{\"name\":{name}}}"),
            Self::Value(text) => format!("{{\"name\":{name},\"value\":{}}}", to_string(text)),
            Self::ValueFrom { value_from } => {
                format!("{{\"name\":{name},\"valueFrom\":{}}}", to_string(value_from))
            }
        }
    }
}

/// Describes the object that the value comes from; empty for text.
impl fmt::Display for EnvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, KeyRef { key, name, optional }) = match self {
            Self::Value(_) => return Ok(()),
            Self::ValueFrom { value_from: EnvSource::SecretKeyRef(found) } => ("secretKeyRef", found),
            Self::ValueFrom { value_from: EnvSource::ConfigMapKeyRef(found) } => ("configMapKeyRef", found),
        };
        write!(f, "{kind} {name}/{key}{}", if *optional { " (optional)" } else { "" })
    }
}

/// A value that is not text.
pub(super) const FIELDS: Fields = Fields {
    keys: &[("valueFrom", Shape::NotNull(&Shape::Map(&SOURCE)))],
    refused: &[],
    finish: |value, _| match value.contains_key("valueFrom") {
        true => Ok(()),
        false => Err("`valueFrom` is missing, expected text or a map with `valueFrom`".to_owned()),
    },
};

const POD: &str = "Lucid sets what an auditor knows of its pod";

const SOURCE: Fields = Fields {
    keys: &[
        ("secretKeyRef", Shape::NotNull(&Shape::Map(&KEY_REF))),
        ("configMapKeyRef", Shape::NotNull(&Shape::Map(&KEY_REF))),
    ],
    refused: &[
        ("fieldRef", POD),
        ("resourceFieldRef", POD),
        ("fileKeyRef", "auditors have no writable volume"),
    ],
    finish: |source, _| match source.len() {
        1 => Ok(()),
        found => Err(format!("expected secretKeyRef or configMapKeyRef, found {found} sources")),
    },
};

const KEY_REF: Fields = Fields {
    keys: &[
        ("name", Shape::Scalar(scalars::object_name)),
        ("key", Shape::Scalar(key)),
        ("optional", Shape::Scalar(scalars::boolean)),
    ],
    refused: &[],
    finish: |found, _| {
        let mut required = [("name", OBJECT_EXPECTED), ("key", KEY_EXPECTED)].into_iter();
        required
            .find(|(key, _)| !found.contains_key(*key))
            .map_or(Ok(()), |(key, expected)| Err(format!("`{key}` is missing, expected {expected}")))
    },
};

fn key(text: &str) -> Result<Value, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = (1..=253).contains(&text.len())
        && text.bytes().all(allowed)
        && text != "."
        && !text.starts_with("..");
    match is_key {
        true => Ok(text.into()),
        false => Err(format!("expected {KEY_EXPECTED}; found {}", Found(text))),
    }
}
