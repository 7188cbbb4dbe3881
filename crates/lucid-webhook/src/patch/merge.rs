//! A change made through a type that knows only a part of the object, carried over to the whole object.

use std::collections::BTreeMap;

use json_patch::jsonptr::{Pointer, PointerBuf};
use serde_json::{Map, Value};

use super::align::{Origin, align, is_keyed};

/// `raw` with what differs between `before` and `after` changed, both as the type writes them.
///
/// `writes_empty` tells whether the type writes an empty value at a place of `before`. One that does not leaves out a
/// value because nothing it knows is left in there, which says nothing about what it does not know.
pub(super) fn merge(
    raw: Value,
    before: &Value,
    after: &Value,
    writes_empty: &mut dyn FnMut(&Pointer, &Value) -> bool,
) -> Value {
    Merge { at: PointerBuf::new(), writes_empty }.value(raw, before, after)
}

struct Merge<'a> {
    /// Where in `before`.
    at: PointerBuf,
    writes_empty: &'a mut dyn FnMut(&Pointer, &Value) -> bool,
}

impl Merge<'_> {
    fn value(&mut self, raw: Value, before: &Value, after: &Value) -> Value {
        if before == after {
            return raw;
        }
        match (raw, before, after) {
            (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
                Value::Object(self.object(raw, before, after))
            }
            (Value::Array(raw), Value::Array(before), Value::Array(after)) => {
                Value::Array(self.list(raw, before, after))
            }
            (_, before, after) => fresh(before, after),
        }
    }

    fn object(
        &mut self,
        mut raw: Map<String, Value>,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Map<String, Value> {
        for (key, old) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
            if let Some(current) = raw.remove(key) {
                self.at.push_back(key);
                if let Some(rest) = self.unknown_rest(current, old) {
                    raw.insert(key.clone(), rest);
                }
                self.at.pop_back();
            }
        }
        for (key, new) in after {
            let old = before.get(key);
            if old == Some(new) {
                continue;
            }
            self.at.push_back(key);
            let target = match (raw.remove(key), old) {
                (Some(current), Some(old)) => self.value(current, old, new),
                // What the type did not write was empty to it.
                (Some(current), None) if same_shape(&current, new) => {
                    self.value(current, &empty_like(new), new)
                }
                (None, Some(old)) => fresh(old, new),
                (_, None) => new.clone(),
            };
            raw.insert(key.clone(), target);
            self.at.pop_back();
        }
        raw
    }

    /// What stays of a value that the type no longer writes.
    fn unknown_rest(&mut self, raw: Value, before: &Value) -> Option<Value> {
        let empty = empty_like(before);
        if knows_all(&raw, before) || (self.writes_empty)(&self.at, &empty) {
            return None;
        }
        Some(self.value(raw, before, &empty)).filter(|rest| !is_empty(rest))
    }

    fn list(&mut self, raw: Vec<Value>, before: &[Value], after: &[Value]) -> Vec<Value> {
        let sources = sources(&raw, before);
        let mut known = vec![false; raw.len()];
        for source in sources.iter().flatten() {
            known[*source] = true;
        }
        let mut raw: Vec<Option<Value>> = raw.into_iter().map(Some).collect();

        // Elements in the order of `after`: what it was in `raw`, and what it becomes.
        let mut elements: Vec<(Option<usize>, Value)> = Vec::with_capacity(after.len());
        let mut in_order = true;
        let mut last = None;
        for (origin, new) in align(before, after).into_iter().zip(after) {
            let Origin::From(place) = origin else {
                elements.push((None, new.clone()));
                continue;
            };
            in_order &= last < Some(place);
            last = Some(place);
            let old = &before[place];
            self.at.push_back(place);
            match sources[place].and_then(|source| Some((source, raw[source].take()?))) {
                Some((source, current)) => elements.push((Some(source), self.value(current, old, new))),
                // The type made it up, and does so again.
                None if old == new => {}
                None => elements.push((None, fresh(old, new))),
            }
            self.at.pop_back();
        }
        let strangers = raw.into_iter().zip(known).enumerate().filter(|(_, (_, known))| !known);
        let strangers = strangers.filter_map(|(source, (value, _))| Some((source, value?))).collect();
        interleave(elements, strangers, in_order)
    }
}

/// Where in `raw` each element of `before` was read from.
fn sources(raw: &[Value], before: &[Value]) -> Vec<Option<usize>> {
    let explains = |sources: &Vec<Option<usize>>| {
        sources
            .iter()
            .zip(before)
            .all(|(source, read)| source.is_some_and(|source| reads_as(&raw[source], read)))
    };
    let aligned = || align(raw, before).into_iter().map(Origin::before).collect();
    if raw.len() != before.len() {
        return aligned();
    }
    // The type may spell values in its own way, and it may sort: not both at once, unless there are keys.
    let in_place: Vec<_> = (0..before.len()).map(Some).collect();
    if explains(&in_place) {
        return in_place;
    }
    let aligned: Vec<_> = aligned();
    if is_keyed(raw, before) || explains(&aligned) { aligned } else { in_place }
}

/// Whether `read` is a part of `raw`.
fn reads_as(raw: &Value, read: &Value) -> bool {
    match (raw, read) {
        (Value::Object(raw), Value::Object(read)) => {
            read.iter().all(|(key, read)| raw.get(key).is_none_or(|raw| reads_as(raw, read)))
        }
        (Value::Array(raw), Value::Array(read)) => {
            raw.len() == read.len() && raw.iter().zip(read).all(|(raw, read)| reads_as(raw, read))
        }
        (raw, read) => raw == read,
    }
}

/// Puts elements that the type does not know behind the one they were behind.
///
/// `elements` are in the order the change gave them; if it left the order as it was, the original order holds, which
/// the type may not keep (as a set does not). What was added follows what it was added behind.
fn interleave(
    elements: Vec<(Option<usize>, Value)>,
    strangers: Vec<(usize, Value)>,
    in_order: bool,
) -> Vec<Value> {
    let mut groups: Vec<(Option<usize>, Vec<Value>)> = vec![(None, Vec::new())];
    let mut places = BTreeMap::new();
    for (source, value) in elements {
        if let Some(source) = source {
            places.insert(source, groups.len());
            groups.push((Some(source), Vec::new()));
        }
        if let Some((_, group)) = groups.last_mut() {
            group.push(value);
        }
    }
    for (source, value) in strangers {
        let place = places.range(..source).next_back().map_or(0, |(_, place)| *place);
        places.insert(source, place);
        groups[place].1.push(value);
    }
    if in_order {
        groups.sort_by_key(|(source, _)| *source);
    }
    groups.into_iter().flat_map(|(_, group)| group).collect()
}

/// A value where there was none: without the nulls that the type writes for what is absent.
fn fresh(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let members = after.iter().filter_map(|(key, new)| match before.get(key) {
        Some(Value::Null) if new.is_null() => None,
        Some(old) => Some((key.clone(), fresh(old, new))),
        None => Some((key.clone(), new.clone())),
    });
    Value::Object(members.collect())
}

/// Whether everything in `raw` was read by the type. List elements go with what is in them.
fn knows_all(raw: &Value, before: &Value) -> bool {
    match (raw, before) {
        (Value::Object(raw), Value::Object(before)) => raw.iter().all(|(key, value)| match before.get(key) {
            Some(before) => knows_all(value, before),
            None => value.is_null(),
        }),
        (Value::Array(raw), Value::Array(before)) => raw.len() <= before.len(),
        _ => true,
    }
}

fn same_shape(one: &Value, other: &Value) -> bool {
    one.is_object() && other.is_object() || one.is_array() && other.is_array()
}

fn empty_like(value: &Value) -> Value {
    match value {
        Value::Object(_) => Value::Object(Map::new()),
        Value::Array(_) => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_touches_only_what_the_type_knows() {
        for (case, raw, before, after, expected) in [
            (
                "unknown members stay",
                json!({"x": 1, "a": {"y": 2, "b": "1"}}),
                json!({"a": {"b": "1"}}),
                json!({"a": {"b": "2"}}),
                json!({"x": 1, "a": {"y": 2, "b": "2"}}),
            ),
            (
                "defaults that the type writes are not added",
                json!({"a": 1}),
                json!({"a": 1, "d": {}, "n": null}),
                json!({"a": 2, "d": {}, "n": null}),
                json!({"a": 2}),
            ),
            (
                "other spellings stay",
                json!({"q": "1000m", "n": 1, "labels": null}),
                json!({"q": 1.0, "n": 1.0, "labels": {}, "a": 1}),
                json!({"q": 1.0, "n": 1.0, "labels": {}, "a": 2}),
                json!({"q": "1000m", "n": 1, "labels": null, "a": 2}),
            ),
            (
                "null where a map was read is no map to add to",
                json!({"labels": null}),
                json!({"labels": {}}),
                json!({"labels": {"a": "b"}}),
                json!({"labels": {"a": "b"}}),
            ),
            (
                "a part that the type leaves out when it knows nothing in there",
                json!({"a": {"unknown": 1}}),
                json!({}),
                json!({"a": {"b": 1}}),
                json!({"a": {"unknown": 1, "b": 1}}),
            ),
            (
                "no nulls into a part that was absent",
                json!({}),
                json!({"a": {"b": null, "c": null}}),
                json!({"a": {"b": null, "c": 1}}),
                json!({"a": {"c": 1}}),
            ),
            (
                "elements that moved and changed",
                json!([{"name": "a", "u": 1}, {"name": "b", "u": 2, "v": 1}]),
                json!([{"name": "a"}, {"name": "b", "v": 1}]),
                json!([{"name": "c"}, {"name": "b", "v": 2}, {"name": "a"}]),
                json!([{"name": "c"}, {"name": "b", "u": 2, "v": 2}, {"name": "a", "u": 1}]),
            ),
            (
                "an element with another key does not inherit",
                json!([{"name": "a", "u": 1}]),
                json!([{"name": "a"}]),
                json!([{"name": "b"}]),
                json!([{"name": "b"}]),
            ),
            (
                "elements of which the type does not know the key",
                json!([{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]),
                json!([{"image": "i"}, {"image": "j"}]),
                json!([{"image": "i"}, {"image": "k"}]),
                json!([{"name": "a", "image": "i"}, {"name": "b", "image": "k"}]),
            ),
            (
                "an element is the one it was read from, whatever else is equal",
                json!([{"a": 1, "u": 1}, {"a": 1}, {"a": 2, "u": 2}]),
                json!([{"a": 1}, {"a": 1}, {"a": 2}]),
                json!([{"a": 3}, {"a": 1}, {"a": 2}]),
                json!([{"a": 3, "u": 1}, {"a": 1}, {"a": 2, "u": 2}]),
            ),
            (
                "elements that the type makes up",
                json!(["a"]),
                json!(["a", "made up"]),
                json!(["a", "made up", "b"]),
                json!(["a", "b"]),
            ),
            (
                "elements that the type skips",
                json!(["?", "a", "!", "b"]),
                json!(["a", "b"]),
                json!(["n", "a", "m", "b", "o"]),
                json!(["n", "?", "a", "m", "!", "b", "o"]),
            ),
            (
                "elements that the type skips, reordered",
                json!(["?", "a", "!", "b"]),
                json!(["a", "b"]),
                json!(["b", "a"]),
                json!(["?", "b", "a", "!"]),
            ),
            (
                "the order that a set does not keep",
                json!(["c", "a", "b"]),
                json!(["a", "b", "c"]),
                json!(["a", "bb", "c"]),
                json!(["c", "a", "bb"]),
            ),
        ] {
            let mut always = |_: &Pointer, _: &Value| true;
            assert_eq!(merge(raw, &before, &after, &mut always), expected, "{case}");
        }
    }

    #[test]
    fn what_the_type_leaves_out_when_empty_keeps_what_it_does_not_know() {
        let raw = json!({"a": {"known": 1, "unknown": 2, "b": {"known": 1}}});
        let before = json!({"a": {"known": 1, "b": {"known": 1}}});
        let mut keeps = |at: &Pointer, _: &Value| at.as_str() != "/a";
        assert_eq!(merge(raw.clone(), &before, &json!({}), &mut keeps), json!({"a": {"unknown": 2}}));
        assert_eq!(merge(raw, &before, &json!({}), &mut |_, _| true), json!({}));
    }
}
