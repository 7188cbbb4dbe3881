//! JSON values that borrow from their source, and errors with a JSON path.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    marker::PhantomData,
    ops::Deref,
    slice, vec,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, SeqAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use snafu::Snafu;

use crate::text::Line;

/// The JSON is not a pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(path), Line(&reason(source))))]
pub struct PodError {
    /// JSON path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the whole
    /// document.
    path: String,
    source: serde_json::Error,
}

impl PodError {
    pub(super) fn new(path: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { path: path.into(), source: de::Error::custom(problem) }
    }

    /// Returns an error at a path of serde_path_to_error.
    pub(super) fn at(path: String, source: serde_json::Error) -> Self {
        Self { path: if path == "." { String::new() } else { path }, source }
    }

    /// Prepends a key or index to the path.
    pub(super) fn within(self, parent: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{parent}{separator}{}", self.path), ..self }
    }

    /// Completes the path.
    pub(super) fn of_pod(self) -> Self {
        if self.path.is_empty() { self.within(".") } else { self }
    }

    /// Returns the JSON path of the invalid value, such as `spec.containers[0].ports[1].containerPort`; `.` is the
    /// whole document.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Returns the problem, without the line and column of data errors. Users wrote YAML and never saw this JSON, and
/// positions in a container are relative to its start; the path locates the value instead.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) if error.is_data() => reason.to_owned(),
        _ => text,
    }
}

/// A JSON object. The code that serde derives also accepts a list of the field values; this type does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A list of at most [`LONGEST_LIST`] items. The limit bounds memory: an empty object takes 3 bytes of JSON and far
/// more when parsed.
#[derive(Debug, Clone)]
pub(crate) struct List<T>(Vec<T>);

/// Maximum number of items in a list: more than the meaningful items that fit into 1.5 MiB, the size limit of etcd.
pub(crate) const LONGEST_LIST: usize = 65_536;

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = vec::IntoIter<T>;

    fn into_iter(self) -> vec::IntoIter<T> {
        self.0.into_iter()
    }
}

impl<'l, T> IntoIterator for &'l List<T> {
    type Item = &'l T;
    type IntoIter = slice::Iter<'l, T>;

    fn into_iter(self) -> slice::Iter<'l, T> {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = sequence.next_element()? {
                    if items.len() == LONGEST_LIST {
                        return Err(A::Error::custom(format_args!(
                            "found more than {LONGEST_LIST} items, accepted at most {LONGEST_LIST}"
                        )));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// A string that borrows from the JSON unless it contains escapes. serde borrows a plain `Cow` only as a direct
/// field, not inside an `Option`, a list or a map. `null` is parsed as `""`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.to_owned().into())
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok("".into())
            }
        }

        // `deserialize_str` would reject `null`.
        deserializer.deserialize_any(TextVisitor)
    }
}

/// The JSON of a valid string, which is decoded when it is read. This saves a copy of every string with escapes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LazyText<'a>(&'a str);

impl<'a> LazyText<'a> {
    pub(super) fn new(json: &'a str) -> Self {
        Self(json)
    }

    pub(super) fn decode(self) -> Cow<'a, str> {
        serde_json::from_str(self.0).map(|Text(text)| text).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for LazyText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        if !json.starts_with('"') {
            return Err(D::Error::invalid_type(Unexpected::Other("another value"), &"a string"));
        }
        // The scan has checked all escapes but those of surrogates.
        match serde_json::from_str::<Text<'_>>(json) {
            Ok(_) => Ok(Self(json)),
            Err(_) => Err(D::Error::custom("found a lone surrogate in a hex escape")),
        }
    }
}

/// An object of which only the name is read.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}
