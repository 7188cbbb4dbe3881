//! Members of JSON objects as slices of their text: unused values are copied without decoding.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'a> Members<'a> {
    /// Value of a member; null counts as absent.
    fn get(&self, member: &str) -> Result<Option<&'a RawValue>, BoxError> {
        let mut found = self.0.iter().filter(|(key, _)| key == member);
        let value = found.next().map(|(_, value)| *value);
        if found.next().is_some() {
            return Err(format!("{member} is there twice").into());
        }
        Ok(value.filter(|value| value.get() != "null"))
    }

    pub(super) fn text(&self, member: &str, path: &str) -> Result<Option<Cow<'a, str>>, BoxError> {
        let Some(raw) = self.get(member)? else { return Ok(None) };
        match serde_json::from_str::<Key<'a>>(raw.get()) {
            Ok(Key(text)) => Ok(Some(text)),
            Err(_) => Err(format!("{path} is not a string").into()),
        }
    }

    pub(super) fn take(&mut self, member: &str) -> Result<Option<&'a RawValue>, BoxError> {
        let value = self.get(member)?;
        self.0.retain(|(key, _)| key != member);
        Ok(value)
    }

    pub(super) fn take_text(&mut self, member: &str) -> Result<Option<Cow<'a, str>>, BoxError> {
        let text = self.text(member, member)?;
        self.take(member)?;
        Ok(text)
    }
}
