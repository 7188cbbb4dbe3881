//! Patches from a changed typed object.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::align::align;
use super::diff::diff;
use super::{JsonPatch, PatchError, PatchSnafu};
use crate::raw_object::{DecodeError, RawObject};

impl JsonPatch {
    /// Computes the patch that changes `original` to `changed`, as far as the fields of `T` go.
    ///
    /// `original` is decoded as `T` again, and the differences to `changed` are carried over. Everything else is
    /// preserved: fields unknown to `T`, also in changed or moved list elements; the notation of unchanged quantities
    /// and numbers; null or absent values for which `T` writes a default. `T` may therefore be a struct with a few
    /// fields.
    ///
    /// - List elements are matched by the merge keys of Kubernetes (`name`, `mountPath`, `containerPort`, …) if all of
    ///   them have one: an element with another key is another element. Without keys, equal elements are matched, and
    ///   changed ones if the list keeps its length.
    /// - Inserting or removing a list element is one operation. A list that is reordered, or changes in many places, is
    ///   replaced.
    /// - A value that `T` no longer serializes is removed with the unknown fields in it. A type with a part of the
    ///   fields must not skip an object because the known ones are empty.
    /// - Elements that `T` drops when it decodes a list are removed if the list is changed.
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
        let before = encode(&decode::<T>(original)?)?;
        let after = encode(changed)?;
        let target = merge(raw.clone(), Some(&before), &after);
        Ok(json_patch::Patch(diff(&raw, &target)).into())
    }
}

/// Applies the differences between `before` and `after`, both serialized by the type, to `raw`. `before` is `None` if
/// the type did not serialize the value.
fn merge(raw: Value, before: Option<&Value>, after: &Value) -> Value {
    match (raw, before, after) {
        (raw, Some(before), after) if before == after => raw,
        (Value::Object(raw), Some(Value::Object(before)), Value::Object(after)) => {
            merge_object(raw, before, after)
        }
        (Value::Object(raw), None, Value::Object(after)) => merge_object(raw, &Map::new(), after),
        (Value::Array(raw), Some(Value::Array(before)), Value::Array(after)) => {
            merge_list(raw, before, after)
        }
        _ => after.clone(),
    }
}

fn merge_object(
    mut raw: Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Value {
    raw.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
    for (key, new) in after {
        let old = before.get(key);
        let target = match raw.remove(key) {
            Some(current) => merge(current, old, new),
            // A default that the type writes.
            None if old == Some(new) => continue,
            None => new.clone(),
        };
        raw.insert(key.clone(), target);
    }
    Value::Object(raw)
}

fn merge_list(raw: Vec<Value>, before: &[Value], after: &[Value]) -> Value {
    // A set, for example, does not keep the order.
    let sources = align(&raw, before);
    let mut raw: Vec<Option<Value>> = raw.into_iter().map(Some).collect();
    let elements = align(before, after).into_iter().zip(after).map(|(origin, new)| {
        let current = origin.and_then(|old| Some((raw[sources[old]?].take()?, &before[old])));
        current.map_or_else(|| new.clone(), |(current, old)| merge(current, Some(old), new))
    });
    elements.collect()
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
