//! JSON values one after the other. Unlike kubectl, a key that occurs twice in an object is an error.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Content, DEPTH, SyntaxError, packed, scalar};

pub(super) struct Json {
    pub(super) range: Range<usize>,
    /// The value, or the error if a key occurs twice.
    pub(super) content: Result<Content, SyntaxError>,
}

pub(super) fn values(text: &str) -> Result<Vec<Json>, SyntaxError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut values = Vec::new();
    while let Some(value) = stream.next() {
        let end = stream.byte_offset();
        let raw = value.map_err(|error| syntax_error(&error))?.get();
        values.push(Json { range: end - raw.len()..end, content: content_of(raw) });
    }
    Ok(values)
}

fn content_of(text: &str) -> Result<Content, SyntaxError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    // `UniqueKeys` limits the depth.
    deserializer.disable_recursion_limit();
    let root = UniqueKeys { depth: 0, is_items: false }.deserialize(&mut deserializer);
    root.map(Content::new).map_err(|error| syntax_error(&error))
}

fn syntax_error(error: &serde_json::Error) -> SyntaxError {
    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
    SyntaxError { line: error.line(), column: error.column(), problem }
}

/// Parses JSON that this program has written.
pub(super) fn parse(text: &str) -> Value {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    Value::deserialize(&mut deserializer).unwrap_or_default()
}

/// Deserializes a [`Value`] without duplicate keys. The elements of `items` of the root are packed; see [`Content::new`].
#[derive(Clone, Copy)]
struct UniqueKeys {
    depth: usize,
    is_items: bool,
}

impl UniqueKeys {
    /// Returns the seed for a member or an element.
    fn inner<E: Error>(self, is_items: bool) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > DEPTH {
            return Err(E::custom(format_args!("found values more than {DEPTH} deep in each other")));
        }
        Ok(Self { depth, is_items })
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(scalar::number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(self.inner(false)?)? {
            elements.push(if self.is_items { packed(&element) } else { element });
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let is_items = self.depth == 0 && key == "items";
            let value = map.next_value_seed(self.inner(is_items)?)?;
            if members.contains_key(&key) {
                return Err(A::Error::custom(format_args!("found the key {key:?} twice in one map")));
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}
