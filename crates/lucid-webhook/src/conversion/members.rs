//! Members of JSON objects as slices of their text: unused values are copied without decoding.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tower::BoxError;

/// Maximum number of members. More distinct names do not fit into 3 MiB, the API server's limit for objects. Without a
/// limit, a body full of `"":0` would use many times its size.
const MOST_MEMBERS: usize = 1 << 19;

/// Members of a JSON object in order, with undecoded values.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Key(key), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    if members.len() == MOST_MEMBERS {
                        return Err(A::Error::custom(format_args!(
                            "it has more than {MOST_MEMBERS} members"
                        )));
                    }
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

impl<'a> Members<'a> {
    /// Value of a member; null counts as absent.
    pub(super) fn get(&self, member: &str) -> Result<Option<&'a RawValue>, BoxError> {
        let mut found = self.0.iter().filter(|(key, _)| key == member);
        let value = found.next().map(|(_, value)| *value);
        if found.next().is_some() {
            return Err(format!("{member} is there twice").into());
        }
        Ok(value.filter(|value| value.get() != "null"))
    }

    /// Removes a member and returns its value, as [`Self::get`] does.
    pub(super) fn take(&mut self, member: &str) -> Result<Option<&'a RawValue>, BoxError> {
        let value = self.get(member)?;
        self.0.retain(|(key, _)| key != member);
        Ok(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }
}

/// Decodes an optional text.
pub(super) fn text<'a>(value: Option<&'a RawValue>, member: &str) -> Result<Option<Cow<'a, str>>, BoxError> {
    let Some(raw) = value else { return Ok(None) };
    match serde_json::from_str::<Key<'a>>(raw.get()) {
        Ok(Key(text)) => Ok(Some(text)),
        Err(_) => Err(format!("{member} is no text").into()),
    }
}

/// Writes a JSON object from serialized members.
pub(super) struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> ObjectWriter<'o> {
    pub(super) fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Starts the member `key` and returns the buffer for its value.
    pub(super) fn nested(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write_text(key, self.out);
        self.out.push(b':');
        self.out
    }

    pub(super) fn raw(&mut self, key: &str, value: &RawValue) {
        self.nested(key).extend_from_slice(value.get().as_bytes());
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        write_text(value, self.nested(key));
    }

    pub(super) fn members(&mut self, members: &Members<'_>) {
        for (key, value) in members.iter() {
            self.raw(key, value);
        }
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }
}

/// Appends a JSON string.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(Value::from(text).to_string().as_bytes());
}
