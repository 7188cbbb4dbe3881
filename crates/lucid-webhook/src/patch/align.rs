//! Matches the elements of a changed list to those of the list before.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

/// Members that identify list elements in Kubernetes: merge keys of `k8s.io/api`, and `key` of tolerations and selector
/// requirements.
///
/// Earlier keys win: the `name` of a volumeMount or a volumeDevice refers to a volume, and ownerReferences of different
/// objects may have the same `name`.
const KEYS: [&str; 10] =
    ["mountPath", "devicePath", "containerPort", "port", "uid", "name", "ip", "type", "topologyKey", "key"];

/// Returns the position in `before` of each element of `after`; `None` for an added element. No position occurs twice.
///
/// Elements are matched by a key if all of them have a unique one. Otherwise, equal elements are matched and, in a list
/// that keeps its length, elements that changed in place.
pub(super) fn align(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let keyed = KEYS.iter().find_map(|key| Some((keys(before, key)?, keys(after, key)?)));
    if let Some((before, after)) = keyed {
        let places: HashMap<_, _> = before.into_iter().zip(0..).collect();
        return after.into_iter().map(|key| places.get(key).copied()).collect();
    }

    let same_length = before.len() == after.len();
    let unchanged = |position: usize| same_length && before[position] == after[position];
    let mut places: HashMap<&Value, VecDeque<usize>> = HashMap::new();
    for (position, element) in before.iter().enumerate().filter(|(position, _)| !unchanged(*position)) {
        places.entry(element).or_default().push_back(position);
    }
    let elements = after.iter().enumerate();
    let mut origins: Vec<Option<usize>> = elements
        .map(|(position, element)| match unchanged(position) {
            true => Some(position),
            false => places.get_mut(element)?.pop_front(),
        })
        .collect();
    if same_length {
        for position in places.into_values().flatten() {
            origins[position].get_or_insert(position);
        }
    }
    origins
}

/// Values of the member `key`; `None` unless each element has another one.
fn keys<'a>(elements: &'a [Value], key: &str) -> Option<Vec<&'a Value>> {
    let keys =
        elements.iter().map(|element| element.get(key).filter(|key| key.is_string() || key.is_number()));
    let keys: Vec<&Value> = keys.collect::<Option<_>>()?;
    let unique: HashSet<_> = keys.iter().collect();
    (unique.len() == keys.len()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_matched_by_key_then_by_equality_then_in_place() {
        for (case, before, after, expected) in [
            ("key", json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "b", "x": 1}]), vec![Some(1)]),
            (
                "a volume mounted twice",
                json!([{"name": "v", "mountPath": "/a"}]),
                json!([{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a", "readOnly": true}]),
                vec![None, Some(0)],
            ),
            (
                "an element with another key is another element",
                json!([{"name": "a", "image": "i"}]),
                json!([{"name": "b", "image": "i"}]),
                vec![None],
            ),
            (
                "keys that are not unique",
                json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}]),
                json!([{"name": "a", "x": 2}]),
                vec![Some(1)],
            ),
            ("equality", json!(["a", "b"]), json!(["x", "b", "a"]), vec![None, Some(1), Some(0)]),
            (
                "duplicates, in order",
                json!(["a", "b", "a"]),
                json!(["b", "a", "a"]),
                vec![Some(1), Some(0), Some(2)],
            ),
            ("in place", json!([{"a": 1}, {"a": 1}]), json!([{"a": 2}, {"a": 1}]), vec![Some(0), Some(1)]),
            (
                "not in place after an insertion",
                json!([{"a": 1}]),
                json!([{"b": 1}, {"a": 2}]),
                vec![None, None],
            ),
        ] {
            assert_eq!(align(before.as_array().unwrap(), after.as_array().unwrap()), expected, "{case}");
        }
    }
}
