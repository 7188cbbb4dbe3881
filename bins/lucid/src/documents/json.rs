//! JSON values one after the other. Unlike kubectl, a key that occurs twice in an object is an error.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{SyntaxError, scalar};

/// One value of a text.
pub(super) struct Json {
    /// Position in the text.
    pub(super) range: Range<usize>,
    /// The value, or the error if a key occurs twice.
    pub(super) value: Result<Value, SyntaxError>,
}

/// Returns the values in `text`, in order.
///
/// # Errors
///
/// Returns an error if the text is not JSON.
pub(super) fn values(text: &str) -> Result<Vec<Json>, SyntaxError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut values = Vec::new();
    while let Some(value) = stream.next() {
        let end = stream.byte_offset();
        let raw = value.map_err(|error| syntax_error(&error))?.get();
        values.push(Json { range: end - raw.len()..end, value: value_of(raw) });
    }
    Ok(values)
}

fn value_of(text: &str) -> Result<Value, SyntaxError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    UniqueKeys.deserialize(&mut deserializer).map_err(|error| syntax_error(&error))
}

fn syntax_error(error: &serde_json::Error) -> SyntaxError {
    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
    SyntaxError { line: error.line(), column: error.column(), problem }
}

/// Deserializes a [`Value`] without duplicate keys.
struct UniqueKeys;

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
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(UniqueKeys)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(UniqueKeys)?;
            if members.contains_key(&key) {
                return Err(A::Error::custom(format_args!("found the key {key:?} twice in one map")));
            }
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}
