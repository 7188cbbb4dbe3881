//! Properties of patches of arbitrary JSON.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use lucid_webhook::{AllowedPaths, JsonPatch, RawObject};
use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::patch::patched;

fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(1.0)),
        Just(json!(-0.0)),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(f64::MAX)),
        Just(json!(f64::MIN_POSITIVE)),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        "[ab~/]{0,2}".prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        let key = prop_oneof![
            4 => prop::sample::select(vec!["a", "b", "unknown", "more", "name", "key", "port", "protocol"]),
            1 => prop::sample::select(vec!["", "~", "/", "~1", "a/b", "0", "-", "é"]),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(key, inner.clone(), 0..5).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
            prop::collection::vec((prop::sample::select(vec!["a", "b", "c", "d"]), inner), 0..5).prop_map(
                |list| {
                    list.into_iter()
                        .map(|(name, value)| json!({"name": name, "unknown": value, "b": 1}))
                        .collect()
                }
            ),
        ]
    })
}

fn edited(value: &Value, edits: &[(usize, Value)]) -> Value {
    edits.iter().fold(value.clone(), |mut value, (choice, edit)| {
        let mut place = &mut value;
        let mut choice = *choice;
        loop {
            let size = match place {
                Value::Array(list) => list.len(),
                Value::Object(members) => members.len(),
                _ => 0,
            };
            let act = choice % 7;
            choice /= 7;
            let pick = choice % size.max(1);
            if size > 0 && act > 2 {
                choice /= size;
                place = match place {
                    Value::Array(list) => &mut list[pick],
                    Value::Object(members) => members.values_mut().nth(pick).unwrap(),
                    _ => unreachable!(),
                };
                continue;
            }
            match (place, act) {
                (Value::Array(list), 0) if size > 0 => drop(list.remove(pick)),
                (Value::Array(list), 1) => list.insert(pick, edit.clone()),
                (Value::Array(list), _) if size > 0 => list.rotate_left(pick),
                (Value::Object(members), 0) if size > 0 => {
                    let key = members.keys().nth(pick).unwrap().clone();
                    members.remove(&key);
                }
                (Value::Object(members), 1) => drop(members.insert("more".into(), edit.clone())),
                (place, _) => *place = edit.clone(),
            }
            return value;
        }
    })
}

fn any_change() -> impl Strategy<Value = (Value, Value)> {
    let edits = prop::collection::vec((any::<usize>(), any_json()), 0..4);
    prop_oneof![
        1 => (any_json(), any_json()),
        4 => (any_json(), edits).prop_map(|(value, edits)| {
            let after = edited(&value, &edits);
            (value, after)
        }),
    ]
}

/// Knows all members except those called `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Known(Value);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        Value::deserialize(de).map(|value| Self(known(&value)))
    }
}

fn known(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(key, _)| *key != "unknown");
            members.map(|(key, value)| (key.clone(), known(value))).collect()
        }
        Value::Array(list) => list.iter().map(known).collect(),
        plain => plain.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_type_with_all_fields_changes_all_fields((before, after) in any_change()) {
        let patch = JsonPatch::of_change(&RawObject::from_value(&before), &after).unwrap();
        prop_assert_eq!(&patched(&before, &patch), &after);
        prop_assert_eq!(patch.is_empty(), before == after);
        if after.is_object() || after.is_array() {
            prop_assert_eq!(patch.apply(&before).unwrap(), after);
        }
    }

    #[test]
    fn a_change_applies_once_and_adds_no_unknown_fields((raw, changed) in any_change()) {
        let changed = Known(known(&changed));
        let patch = JsonPatch::of_change(&RawObject::from_value(&raw), &changed).unwrap();
        let target = patched(&raw, &patch);
        prop_assert_eq!(&known(&target), &changed.0);
        prop_assert!(JsonPatch::of_change(&RawObject::from_value(&target), &changed).unwrap().is_empty());
        if target.is_object() {
            prop_assert_eq!(target.get("unknown"), raw.get("unknown"));
        }
        let unchanged = JsonPatch::of_change(&RawObject::from_value(&raw), &Known(known(&raw))).unwrap();
        prop_assert!(unchanged.is_empty());
    }

    #[test]
    fn moved_elements_keep_unknown_fields(
        order in Just(vec!["a", "b", "c", "d", "e"]).prop_shuffle(),
        left in 0..6_usize,
        new in prop::collection::vec(0..6_usize, 0..3),
        image in any_json(),
    ) {
        let element = |name: &str| json!({"name": name, "image": name, "unknown": {"of": name}, "list": [{"unknown": name}]});
        let raw = json!({"spec": {"containers": (["a", "b", "c", "d", "e"].map(element))}});
        let mut containers: Vec<Value> = order[..left.min(5)].iter().map(|name| known(&element(name))).collect();
        for container in &mut containers {
            container["image"] = known(&image);
        }
        for (n, place) in new.iter().enumerate() {
            containers.insert(*place % (containers.len() + 1), json!({"name": format!("new{n}")}));
        }
        let changed = Known(json!({"spec": {"containers": containers}}));
        let patch = JsonPatch::of_change(&RawObject::from_value(&raw), &changed).unwrap();
        let target = patched(&raw, &patch);
        prop_assert_eq!(known(&target), changed.0);
        for container in target["spec"]["containers"].as_array().unwrap() {
            let name = container["name"].as_str().unwrap();
            let expected = if name.starts_with("new") { None } else { Some(json!({"of": name})) };
            prop_assert_eq!(container.get("unknown"), expected.as_ref());
        }
    }

    #[test]
    fn only_allowed_fields_differ_after_a_patch((before, after) in any_change(), path in "/(a|b|more|\\*)(/(a|b|name|\\*))?") {
        let before = json!({"a": before, "b": 1});
        let after = json!({"a": after, "b": 1});
        let allowed = AllowedPaths::parse([&path]).unwrap();
        let patch = JsonPatch::of_change(&RawObject::from_value(&before), &after).unwrap();
        if allowed.check(&before, &patch).is_ok() {
            prop_assert_eq!(without(&before, &path), without(&after, &path));
        }
    }
}

/// `value` without the parts that `path` allows to change, and without containers that are empty then.
fn without(value: &Value, path: &str) -> Value {
    fn cut(value: &Value, path: &[&str]) -> Option<Value> {
        let (first, rest) = path.split_first()?;
        let left = |key: &str, value: &Value| {
            if *first == "*" || *first == key { cut(value, rest) } else { Some(value.clone()) }
        };
        match value {
            Value::Object(members) => {
                let left: Map<_, _> = members
                    .iter()
                    .filter_map(|(key, value)| Some((key.clone(), left(key, value)?)))
                    .collect();
                (!left.is_empty()).then_some(Value::Object(left))
            }
            Value::Array(list) => {
                let left: Vec<_> =
                    list.iter().enumerate().filter_map(|(n, value)| left(&n.to_string(), value)).collect();
                (!left.is_empty()).then_some(Value::Array(left))
            }
            Value::Null => None,
            plain => Some(plain.clone()),
        }
    }
    let path: Vec<&str> = path.split('/').skip(1).collect();
    cut(value, &path).unwrap_or_default()
}
