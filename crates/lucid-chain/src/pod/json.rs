//! Values that borrow from the JSON they are read from, and where in it something is wrong.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    marker::PhantomData,
    ops::Deref,
    slice, vec,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, Error as _, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use snafu::Snafu;

use crate::text::Line;

/// The bytes are no pod that can be planned for.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the pod at {}: {}", Line(path), Line(&reason(source))))]
pub struct PodError {
    /// JSON path of the offending value, such as `spec.containers[0].ports[1].containerPort`;
    /// `.` is the whole document.
    path: String,
    source: serde_json::Error,
}

impl PodError {
    pub(super) fn new(path: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self { path: path.into(), source: de::Error::custom(problem) }
    }

    /// JSON path of the offending value, such as `spec.containers[0].ports[1].containerPort`.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// What is wrong, without the place in the JSON where the path tells it: no user has seen that text, for the manifest
/// was YAML, and a container's is counted from its own start.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(reason) if error.is_data() => reason.to_owned(),
        _ => text,
    }
}

/// Decodes a value that stands at the path `parent` of the pod and keeps track of the path, which costs more than
/// decoding: only for what is known to be at fault.
pub(super) fn decode<'a, T: Deserialize<'a>>(
    json: &'a [u8],
    parent: impl FnOnce() -> String,
) -> Result<T, PodError> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let (parent, inner) = (parent(), error.path().to_string());
        let path = match (parent.as_str(), inner.as_str()) {
            ("", _) => inner,
            (_, ".") => parent,
            _ => format!("{parent}.{inner}"),
        };
        PodError { path, source: error.into_inner() }
    })?;
    deserializer.end().map_err(|source| PodError { path: ".".to_owned(), source })?;
    Ok(value)
}

/// A JSON object; serde's derived code would also take a list of the fields' values.
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

/// A list of at most [`LONGEST_LIST`] items. An empty object takes 3 bytes of JSON, and many times as much memory.
#[derive(Debug, Clone)]
pub(crate) struct List<T>(Vec<T>);

/// More than an object of 1.5 MiB, which is what etcd stores, can have of items that mean something.
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

/// A string that borrows from the JSON unless it holds an escape. serde borrows a bare `Cow`
/// only as a direct field, not inside an `Option`, a list or a map. `null` reads as `""`.
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

        // `deserialize_str` would take no `null`.
        deserializer.deserialize_any(TextVisitor)
    }
}

/// What is known by its name alone.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Named<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
}
