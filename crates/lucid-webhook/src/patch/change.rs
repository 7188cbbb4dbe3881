//! Patches from a changed typed object.

use std::any::type_name;
use std::collections::HashMap;
use std::marker::PhantomData;

use json_patch::jsonptr::Pointer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::merge::merge;
use super::{JsonPatch, PatchError, PatchSnafu};
use crate::raw_object::{DecodeError, RawObject};

/// Maximum number of probes of a type for empty values. See [`Probes`].
const MOST_PROBES: usize = 64;

impl JsonPatch {
    /// Computes the patch that changes `original` to `changed`, as far as the fields of `T` go.
    ///
    /// `original` is decoded as `T` again, and the differences to `changed` are carried over. Everything else is
    /// preserved: fields unknown to `T`, also in changed or moved list elements; the notation of quantities and
    /// numbers; null or absent values for which `T` writes a default. `T` may therefore be a struct with a few fields.
    ///
    /// - A removed value is removed completely. An object or list that `T` omits only because its known part is empty
    ///   keeps the unknown rest.
    /// - List elements are matched by the merge keys of Kubernetes (`name`, `mountPath`, `containerPort` and
    ///   `protocol`, …) if all of them have one: an element with another key is another element. Without keys, elements
    ///   are matched by equality, then similarity, then position.
    /// - `T` has to serialize equal values equally: a list written from a `HashSet` changes its order spontaneously.
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
    /// A [`PatchError`] if `original` does not decode as `T`, or `T` does not serialize to JSON.
    pub fn of_change<T: Serialize + DeserializeOwned>(
        original: &RawObject,
        changed: &T,
    ) -> Result<Self, PatchError> {
        let raw: Value = decode(original)?;
        let before: Value = encode(&decode::<T>(original)?)?;
        let after = encode(changed)?;
        let mut probes = Probes::<T>::of(&before);
        let mut writes_empty = |at: &Pointer, empty: &Value| probes.writes_empty(at, empty);
        let target = merge(raw.clone(), &before, &after, &mut writes_empty);
        Ok(Self::diff(&raw, &target))
    }
}

/// Finds out by trial whether a type serializes empty values. Each probe decodes and encodes the whole object.
struct Probes<'a, T> {
    before: &'a Value,
    answers: HashMap<String, bool>,
    /// Last answer for a member at this depth and of this name.
    alike: HashMap<(usize, String), bool>,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Serialize + DeserializeOwned> Probes<'a, T> {
    fn of(before: &'a Value) -> Self {
        Self { before, answers: HashMap::new(), alike: HashMap::new(), of: PhantomData }
    }

    /// Returns `true` if the type serializes `empty` at this location. Elements of a list have one type, so one probe
    /// covers all.
    fn writes_empty(&mut self, at: &Pointer, empty: &Value) -> bool {
        let place = self.with_any_index(at);
        if let Some(answer) = self.answers.get(&place) {
            return *answer;
        }
        let name = at.back().map(|token| token.decoded().into_owned()).unwrap_or_default();
        let alike = (at.count(), name);
        // Only maps have that many locations. Their entries are alike, and entries themselves are always serialized.
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

    /// The pointer with `~*`, which is never an escaped token, in place of list indices.
    fn with_any_index(&self, at: &Pointer) -> String {
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

fn decode<T: DeserializeOwned>(original: &RawObject) -> Result<T, PatchError> {
    original.decode().map_err(|DecodeError { path, source }| {
        let problem =
            format!("failed to decode the original object as {}: at {path}: {source}", type_name::<T>());
        PatchSnafu { problem }.build()
    })
}

fn encode<T: Serialize>(object: &T) -> Result<Value, PatchError> {
    serde_path_to_error::serialize(object, serde_json::value::Serializer).map_err(|error| {
        let (path, source) = (error.path(), error.inner());
        let problem = format!("failed to encode {} as JSON: at {path}: {source}", type_name::<T>());
        PatchSnafu { problem }.build()
    })
}
