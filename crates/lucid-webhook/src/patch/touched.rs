//! Decodes the part of an object that decides whether a patch applies.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use json_patch::PatchOperation;
use json_patch::jsonptr::Pointer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::JsonPatch;
use crate::raw_object::{DecodeError, RawObject};

/// Decodes the part of `object` that `patch` accesses, and the fields that identify it. Other members are omitted;
/// other list elements are empty. The patch succeeds or fails on this part exactly as on `object`.
///
/// Pods are large, and patches access little of them, so this takes a fraction of the time of a full decode.
pub(crate) fn read(object: &RawObject, patch: &JsonPatch) -> Result<Value, DecodeError> {
    let mut touched = Touched::default();
    touched.member("apiVersion").whole = true;
    touched.member("kind").whole = true;
    touched.member("metadata");
    for operation in patch.operations().iter() {
        let place = touched.place(operation.path());
        match operation {
            PatchOperation::Test(_) => place.whole = true,
            PatchOperation::Move(moving) => touched.place(&moving.from).whole = true,
            PatchOperation::Copy(copying) => touched.place(&copying.from).whole = true,
            PatchOperation::Add(_) | PatchOperation::Remove(_) | PatchOperation::Replace(_) => {}
        }
    }
    let mut deserializer = serde_json::Deserializer::from_slice(object.as_bytes());
    match touched.deserialize(&mut deserializer) {
        Ok(part) if deserializer.end().is_ok() => Ok(part),
        // The full decode reports the location of the error.
        _ => object.decode(),
    }
}

/// Accessed part of one location in the object.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// `true` if everything in it is needed, not only `members`.
    whole: bool,
    /// Locations in it by the segment in the patch: a key or an index.
    members: BTreeMap<String, Touched>,
    /// All members merged; see [`Self::element`].
    element: OnceCell<Box<Touched>>,
}

impl Touched {
    fn member(&mut self, name: &str) -> &mut Self {
        self.members.entry(name.to_owned()).or_default()
    }

    fn place(&mut self, pointer: &Pointer) -> &mut Self {
        pointer.tokens().fold(self, |place, token| place.member(&token.decoded()))
    }

    /// Accessed part of each element, if this is a list. Elements shift as others are added or removed, so all are
    /// treated alike.
    fn element(&self) -> &Self {
        self.element.get_or_init(|| {
            let mut element = Self::default();
            self.members.values().for_each(|member| element.merge(member));
            Box::new(element)
        })
    }

    fn merge(&mut self, other: &Self) {
        self.whole |= other.whole;
        for (name, member) in &other.members {
            self.member(name).merge(member);
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Touched {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.whole {
            serde::Deserialize::deserialize(deserializer)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for &Touched {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(accessed) = members.next_key_seed(Key(self))? {
            match accessed {
                Some((key, member)) => drop(read.insert(key.clone(), members.next_value_seed(member)?)),
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(read))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(value) = elements.next_element_seed(self.element())? {
            read.push(value);
        }
        Ok(Value::Array(read))
    }

    // Scalars only matter as not being containers.

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Finds a key among the accessed members without copying it.
struct Key<'t>(&'t Touched);

impl<'de, 't> DeserializeSeed<'de> for Key<'t> {
    type Value = Option<(&'t String, &'t Touched)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'t> Visitor<'_> for Key<'t> {
    type Value = Option<(&'t String, &'t Touched)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.members.get_key_value(key))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from),
            Just(json!(0.5)),
            "[ab]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(key(), inner, 0..4).prop_map(|it| it.into_iter().collect()),
            ]
        })
    }

    /// A small set, so that paths often match.
    fn key() -> impl Strategy<Value = String> {
        prop::sample::select(vec!["a", "b", "0", "1", "-", "~/", "metadata", "kind"]).prop_map(str::to_owned)
    }

    /// An operation, with the existing locations that its paths start with.
    type Drawn = (&'static str, [(prop::sample::Index, String); 2], Value);

    fn operation() -> impl Strategy<Value = Drawn> {
        let name = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
        let rest = || prop::sample::select(vec!["", "", "/a", "/0", "/1", "/-", "/~0~1", "/kind", "/01"]);
        let path = || (any::<prop::sample::Index>(), rest().prop_map(str::to_owned));
        (name, [path(), path()], value())
    }

    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Array(elements) => {
                elements.iter().enumerate().for_each(|(i, it)| places(it, &format!("{at}/{i}"), found));
            }
            Value::Object(members) => members.iter().for_each(|(key, it)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(it, &format!("{at}/{key}"), found);
            }),
            _ => {}
        }
    }

    /// Patches whose first operations apply.
    fn patched() -> impl Strategy<Value = (Value, Vec<Value>)> {
        let object = prop::collection::hash_map(key(), value(), 2..5);
        (object, prop::collection::vec(operation(), 1..20)).prop_map(|(object, drawn)| {
            let object = Value::from_iter(object);
            let (mut now, mut kept) = (object.clone(), Vec::new());
            for (name, paths, value) in drawn {
                let mut found = Vec::new();
                places(&now, "", &mut found);
                let [path, from] = paths.map(|(which, rest)| format!("{}{rest}", which.get(&found)));
                let value = match (name, now.pointer(&path)) {
                    ("test", Some(found)) => found.clone(),
                    _ => value,
                };
                kept.push(json!({"op": name, "path": path, "from": from, "value": value}));
                match JsonPatch::from_operations(&[kept.last()]).unwrap().apply(&now) {
                    Ok(after) => now = after,
                    // A failing operation may end the patch.
                    Err(_) if kept.len() > 3 => break,
                    Err(_) => drop(kept.pop()),
                }
            }
            (object, kept)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_patch_applies_to_the_part_as_to_the_whole((object, operations) in patched()) {
            let patch = JsonPatch::from_operations(&operations).unwrap();
            let part = read(&RawObject::from_value(&object), &patch).unwrap();
            let outcome = |object: &Value| {
                patch.apply_to_object(object).map(drop).map_err(|error| error.to_string())
            };
            prop_assert_eq!(outcome(&part), outcome(&object), "{}", part);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_patch_of_allowed_places_changes_only_allowed_fields(
            (object, operations) in patched(),
            allowed in prop::collection::vec("(/(a|b|0|\\*|meta\\*)){1,3}", 1..4),
        ) {
            let allowed = crate::AllowedPaths::parse(&allowed).unwrap();
            let applied = (1..=operations.len()).filter_map(|count| {
                let patch = JsonPatch::from_operations(&&operations[..count]).unwrap();
                patch.apply(&object).ok().map(|after| (patch, after))
            });
            let raw = RawObject::from_value(&object);
            for (patch, after) in applied {
                let covered = allowed.cover(&patch, &read(&raw, &patch).unwrap());
                prop_assert!(!covered || allowed.check_change(&object, &after).is_ok(), "{allowed} {patch:?}");
            }
        }
    }

    #[test]
    fn only_accessed_parts_are_decoded() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"volumes": [{"name": "v"}], "containers": [{"name": "web", "image": "i"}, {"name": "log"}]},
        });
        let patch = JsonPatch::from_operations(&json!([
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "auditor"}},
            {"op": "add", "path": "/spec/containers/0/env", "value": []},
            {"op": "replace", "path": "/metadata/annotations/c", "value": "e"},
        ]))
        .unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"annotations": {"c": null}},
            "spec": {"containers": [{}, {}]},
        });
        assert_eq!(read(&RawObject::from_value(&pod), &patch).unwrap(), expected);
    }

    #[test]
    fn invalid_json_is_reported_with_its_location() {
        let broken = RawObject::new(r#"{"spec": {"a": tru}}"#.into());
        let patch = JsonPatch::from_operations(&json!([{"op": "remove", "path": "/metadata"}])).unwrap();
        assert_eq!(read(&broken, &patch).unwrap_err().path, broken.decode::<Value>().unwrap_err().path);
    }
}
