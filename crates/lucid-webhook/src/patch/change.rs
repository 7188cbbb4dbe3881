//! Patches from a changed object of a type.

use std::any::type_name;
use std::collections::HashMap;
use std::marker::PhantomData;

use json_patch::jsonptr::Pointer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use snafu::{IntoError, Snafu};

use super::JsonPatch;
use super::merge::merge;
use crate::review::{DecodeError, RawObject};

/// How often a type is asked whether it writes what is empty. See [`Probes`].
const MOST_PROBES: usize = 64;

/// Why a changed object cannot be expressed as a patch.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum ChangeError {
    /// The original is no JSON.
    #[snafu(transparent)]
    Original {
        /// What the decoder said.
        source: DecodeError,
    },
    /// The original does not fit the type.
    #[snafu(display("failed to decode the original object as {type_name}: at {path}: {source}"))]
    Decode {
        /// The Rust type.
        type_name: &'static str,
        /// Where in the object, such as `spec.containers[0].image`.
        path: String,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// The type cannot be written as JSON.
    #[snafu(display("failed to encode {type_name} as JSON: at {path}: {source}"))]
    Encode {
        /// The Rust type.
        type_name: &'static str,
        /// Where in the object, such as `spec.containers[0].image`.
        path: String,
        /// What the encoder said.
        source: serde_json::Error,
    },
}

impl JsonPatch {
    /// The patch that makes `original` what `changed` is, as far as `T` knows it.
    ///
    /// `original` is read as `T` once more, and what differs between that and `changed` is carried over. Everything
    /// else stays as it was written: what `T` does not know, also in list elements that were changed or moved; how a
    /// quantity or a number is spelled; null, or absent, where `T` writes a default. So `T` may be a view of the few
    /// fields a webhook cares for.
    ///
    /// - What is removed is removed with everything in it. An object or list that `T` leaves out only because what it
    ///   knows of it is empty keeps the rest.
    /// - List elements are recognised by the keys that Kubernetes merges lists by (`name`, `mountPath`, `containerPort`
    ///   and `protocol`, …), if all of them have one: an element with another key is another element. Without a key,
    ///   an element is recognised by equality, by likeness, and at last by its place.
    /// - `T` has to write equal values equally: a list written from a `HashSet` changes its order by itself.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use lucid_webhook::{JsonPatch, RawObject};
    /// use serde::{Deserialize, Serialize};
    /// use serde_json::json;
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct View {
    ///     metadata: Metadata,
    /// }
    /// #[derive(Serialize, Deserialize)]
    /// struct Metadata {
    ///     #[serde(default)]
    ///     labels: BTreeMap<String, String>,
    /// }
    ///
    /// let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app"}]}});
    /// let pod = RawObject::from_value(&pod);
    /// let mut view: View = pod.decode()?;
    /// view.metadata.labels.insert("team".into(), "blue".into());
    ///
    /// let patch = JsonPatch::of_change(&pod, &view)?;
    /// let add = json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "blue"}}]);
    /// assert_eq!(serde_json::to_value(patch.operations())?, add);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When `original` does not fit `T`, or `T` cannot be written as JSON.
    pub fn of_change<T: Serialize + DeserializeOwned>(
        original: &RawObject,
        changed: &T,
    ) -> Result<Self, ChangeError> {
        let raw: Value = original.decode()?;
        let before: Value = encode(&decode::<T>(original.as_bytes())?)?;
        let after = encode(changed)?;
        let mut probes = Probes::<T>::of(&before);
        let mut writes_empty = |at: &Pointer, empty: &Value| probes.writes_empty(at, empty);
        let target = merge(raw.clone(), &before, &after, &mut writes_empty);
        Ok(Self::diff(&raw, &target))
    }
}

/// Whether a type writes empty values, by trying it: each probe reads and writes the whole object.
struct Probes<'a, T> {
    before: &'a Value,
    answers: HashMap<String, bool>,
    /// The last answer for a member of this depth and name.
    alike: HashMap<(usize, String), bool>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Serialize + DeserializeOwned> Probes<'a, T> {
    fn of(before: &'a Value) -> Self {
        Self { before, answers: HashMap::new(), alike: HashMap::new(), of: PhantomData }
    }

    /// Elements of a list are of one type, so that one of them answers for all.
    fn writes_empty(&mut self, at: &Pointer, empty: &Value) -> bool {
        let place = self.in_any_element(at);
        if let Some(answer) = self.answers.get(&place) {
            return *answer;
        }
        let name = at.back().map(|token| token.decoded().into_owned()).unwrap_or_default();
        let alike = (at.count(), name);
        // Only a map has so many places: those in its entries are alike, and entries themselves are written.
        if self.answers.len() >= MOST_PROBES {
            return self.alike.get(&alike).copied().unwrap_or(true);
        }
        let answer = self.probe(at, empty);
        self.answers.insert(place, answer);
        self.alike.insert(alike, answer);
        answer
    }

    fn probe(&self, at: &Pointer, empty: &Value) -> bool {
        let mut emptied = self.before.clone();
        if let Some(place) = emptied.pointer_mut(at.as_str()) {
            *place = empty.clone();
        }
        let written = T::deserialize(&emptied).ok().and_then(|emptied| encode(&emptied).ok());
        written.is_none_or(|written| written.pointer(at.as_str()).is_some())
    }

    /// The pointer with `~*`, which is no escaped token, in place of what is an index and not a member.
    fn in_any_element(&self, at: &Pointer) -> String {
        let mut place = String::with_capacity(at.as_str().len());
        let mut value = Some(self.before);
        for token in at.tokens() {
            place.push('/');
            let key = token.decoded();
            value = match value {
                Some(Value::Array(elements)) => {
                    place.push_str("~*");
                    key.parse().ok().and_then(|index: usize| elements.get(index))
                }
                other => {
                    place.push_str(token.encoded());
                    other.and_then(|value| value.get(key.as_ref()))
                }
            };
        }
        place
    }
}

fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, ChangeError> {
    let mut decoder = serde_json::Deserializer::from_slice(json);
    serde_path_to_error::deserialize(&mut decoder).map_err(|error| {
        let path = error.path().to_string();
        DecodeSnafu { type_name: type_name::<T>(), path }.into_error(error.into_inner())
    })
}

fn encode<T: Serialize>(object: &T) -> Result<Value, ChangeError> {
    serde_path_to_error::serialize(object, serde_json::value::Serializer).map_err(|error| {
        let path = error.path().to_string();
        EncodeSnafu { type_name: type_name::<T>(), path }.into_error(error.into_inner())
    })
}
