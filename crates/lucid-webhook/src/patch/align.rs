//! Matches the elements of a changed list to the elements of the original list.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Value;

/// Origin of an element of the changed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The same element as this original one, possibly changed.
    From(usize),
    /// A different element in place of this original one.
    Instead(usize),
    /// Added.
    New,
}

impl Origin {
    pub(super) const fn before(self) -> Option<usize> {
        match self {
            Self::From(before) | Self::Instead(before) => Some(before),
            Self::New => None,
        }
    }
}

/// Members that identify list elements in Kubernetes: `patchMergeKey` and `listMapKey` of `k8s.io/api`. The second
/// member is optional, since the API has a default for it.
///
/// Earlier keys win. An element with a mountPath is a volumeMount, whose `name` refers to the volume; the same goes for
/// devicePath. The name of a port is optional. `uid` precedes `name`, as for ownerReferences. `key` is not a merge key,
/// but identifies tolerations, selector requirements and items of projected volumes in practice.
const KEYS: [(&str, Option<&str>); 10] = [
    ("mountPath", None),
    ("devicePath", None),
    ("containerPort", Some("protocol")),
    ("port", Some("protocol")),
    ("uid", None),
    ("name", None),
    ("ip", None),
    ("type", None),
    ("topologyKey", Some("whenUnsatisfiable")),
    ("key", None),
];

/// Maximum number of pairs of elements compared for similarity; above it, elements are paired in order.
const MOST_PAIRS: usize = 1024;

type Index<'a> = HashMap<(&'a Value, Option<&'a Value>), usize>;

/// Returns the origin of each element of `after`. No element of `before` is used twice.
///
/// Elements with a key are matched by it. Others are matched by equality, then by the members shared with an element
/// removed at the same position, then by order if as many elements were removed as added there.
pub(super) fn align(before: &[Value], after: &[Value]) -> Vec<Origin> {
    let keyed = indices(before, after);
    let mut matches = match &keyed {
        Some((old, new)) => {
            let mut matches = vec![None; after.len()];
            for (key, position) in new {
                matches[*position] = old.get(key).copied();
            }
            matches
        }
        None => by_equality(before, after),
    };
    let mut instead = vec![None; after.len()];
    for (old, new) in gaps(before.len(), &matches) {
        pair(before, after, (old, new), keyed.is_some(), &mut matches, &mut instead);
    }
    matches
        .into_iter()
        .zip(instead)
        .map(|pair| match pair {
            (Some(before), _) => Origin::From(before),
            (None, Some(before)) => Origin::Instead(before),
            (None, None) => Origin::New,
        })
        .collect()
}

/// Returns `true` if the elements have keys that [`align`] matches by.
pub(super) fn is_keyed(before: &[Value], after: &[Value]) -> bool {
    indices(before, after).is_some()
}

fn indices<'a>(before: &'a [Value], after: &'a [Value]) -> Option<(Index<'a>, Index<'a>)> {
    KEYS.iter().find_map(|key| Some((index(before, *key)?, index(after, *key)?)))
}

/// Maps keys to positions; `None` unless every element has a unique key.
fn index<'a>(elements: &'a [Value], (first, second): (&str, Option<&str>)) -> Option<Index<'a>> {
    let mut index = Index::with_capacity(elements.len());
    for (position, element) in elements.iter().enumerate() {
        let members = element.as_object()?;
        let first = members.get(first).filter(|value| is_scalar(value))?;
        let second = second.and_then(|second| members.get(second));
        if second.is_some_and(|value| !is_scalar(value)) || index.insert((first, second), position).is_some()
        {
            return None;
        }
    }
    Some(index)
}

const fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// Matches equal elements: at both ends first, then in order, then anywhere. Linear in the number of elements.
fn by_equality(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut matches = vec![None; after.len()];
    let head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    for (position, slot) in matches.iter_mut().enumerate().take(head) {
        *slot = Some(position);
    }
    for back in 1..=tail {
        matches[after.len() - back] = Some(before.len() - back);
    }

    let mut places: HashMap<&Value, Vec<usize>> = HashMap::new();
    for (position, element) in old[..old.len() - tail].iter().enumerate() {
        places.entry(element).or_default().push(head + position);
    }
    let mut taken = vec![false; before.len()];
    for anywhere in [false, true] {
        let mut next: HashMap<&Value, usize> = HashMap::new();
        let mut last = None;
        for (position, element) in new[..new.len() - tail].iter().enumerate() {
            let slot = &mut matches[head + position];
            let Some(places) = places.get(element).filter(|_| slot.is_none()) else { continue };
            let next = next.entry(element).or_default();
            let fits = |place: usize| !taken[place] && (anywhere || last < Some(place));
            *next += places[*next..].iter().take_while(|place| !fits(**place)).count();
            if let Some(place) = places.get(*next) {
                *slot = Some(*place);
                taken[*place] = true;
                last = Some(*place);
            }
        }
    }
    matches
}

/// Unmatched elements of `before` and `after` in each gap between stationary elements.
fn gaps(before: usize, matches: &[Option<usize>]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut matched = vec![false; before];
    for place in matches.iter().flatten() {
        matched[*place] = true;
    }
    let stationary = stationary(matches);
    let mut gaps = Vec::new();
    let mut old = 0;
    let mut new = Vec::new();
    let ends = matches.iter().zip(stationary).map(|(place, stays)| place.filter(|_| stays));
    for (position, end) in ends.chain([Some(before)]).enumerate() {
        if let Some(end) = end {
            let missing: Vec<usize> = (old..end).filter(|place| !matched[*place]).collect();
            let added = std::mem::take(&mut new);
            if !missing.is_empty() && !added.is_empty() {
                gaps.push((missing, added));
            }
            old = end + 1;
        } else if matches[position].is_none() {
            new.push(position);
        }
    }
    gaps
}

/// Pairs removed with added elements in one gap.
fn pair(
    before: &[Value],
    after: &[Value],
    (mut old, mut new): (Vec<usize>, Vec<usize>),
    keyed: bool,
    matches: &mut [Option<usize>],
    instead: &mut [Option<usize>],
) {
    if !keyed && old.len().saturating_mul(new.len()) <= MOST_PAIRS {
        let mut likely: Vec<_> = (0..new.len())
            .flat_map(|n| (0..old.len()).map(move |o| (n, o)))
            .map(|(n, o)| (Reverse(likeness(&before[old[o]], &after[new[n]])), n.abs_diff(o), n, o))
            .filter(|(Reverse(likeness), ..)| *likeness > 0)
            .collect();
        likely.sort_unstable();
        let mut taken = vec![false; old.len()];
        for (_, _, n, o) in likely {
            if matches[new[n]].is_none() && !taken[o] {
                matches[new[n]] = Some(old[o]);
                taken[o] = true;
            }
        }
        old = old.into_iter().zip(taken).filter(|(_, taken)| !taken).map(|(i, _)| i).collect();
        new.retain(|j| matches[*j].is_none());
    }
    // With equal numbers, elements were changed. Otherwise the added one cannot be identified.
    let changed = !keyed && old.len() == new.len();
    for (i, j) in old.into_iter().zip(new) {
        let same_shape =
            before[i].is_object() && after[j].is_object() || before[i].is_array() && after[j].is_array();
        let pairs = if changed && same_shape { &mut *matches } else { &mut *instead };
        pairs[j] = Some(i);
    }
}

/// Number of equal scalar members of two objects.
fn likeness(old: &Value, new: &Value) -> usize {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return 0 };
    old.iter().filter(|(key, value)| is_scalar(value) && new.get(*key) == Some(value)).count()
}

/// Returns which of the matched elements can stay in place while the others move: a longest ascending subsequence.
pub(super) fn stationary(matches: &[Option<usize>]) -> Vec<bool> {
    // `ends[n]` is the position where an ascending run of n + 1 elements ends lowest.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    let mut previous = vec![None; matches.len()];
    for (position, place) in matches.iter().enumerate() {
        let Some(place) = *place else { continue };
        let length = ends.partition_point(|(end, _)| *end < place);
        previous[position] = length.checked_sub(1).map(|shorter| ends[shorter].1);
        if length == ends.len() {
            ends.push((place, position));
        } else {
            ends[length] = (place, position);
        }
    }
    let mut stays = vec![false; matches.len()];
    let mut at = ends.last().map(|(_, position)| *position);
    while let Some(position) = at {
        stays[position] = true;
        at = previous[position];
    }
    stays
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn aligned(before: &Value, after: &Value) -> Vec<Origin> {
        align(before.as_array().unwrap(), after.as_array().unwrap())
    }

    #[test]
    fn elements_are_matched_by_their_keys() {
        use Origin::{From, Instead, New};
        for (case, before, after, expected) in [
            ("name", json!([{"name": "a"}, {"name": "b"}]), json!([{"name": "b", "x": 1}]), vec![From(1)]),
            (
                "mountPath, for two mounts may be of one volume",
                json!([{"name": "v", "mountPath": "/a"}]),
                json!([{"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/a", "readOnly": true}]),
                vec![New, From(0)],
            ),
            (
                "port and protocol, which may be absent",
                json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]),
                json!([{"containerPort": 53, "protocol": "UDP", "name": "u"}, {"containerPort": 53, "name": "t"}]),
                vec![From(1), From(0)],
            ),
            (
                "a key is an identity: another key is another thing",
                json!([{"name": "a", "image": "i"}]),
                json!([{"name": "b", "image": "i"}]),
                vec![Instead(0)],
            ),
            (
                "a name that is not unique is no key",
                json!([{"name": "a", "x": 1}, {"name": "a", "x": 2}]),
                json!([{"name": "a", "x": 2}]),
                vec![From(1)],
            ),
            (
                "equality",
                json!(["a", "b", "c"]),
                json!(["x", "c", "a", "b"]),
                vec![New, From(2), From(0), From(1)],
            ),
            (
                "wherever they went",
                json!(["a", "b", "c", "d"]),
                json!(["d", "c", "b", "a"]),
                vec![From(3), From(2), From(1), From(0)],
            ),
            ("duplicates, in order", json!(["a", "b", "a"]), json!(["b", "a"]), vec![From(1), From(2)]),
            (
                "a plain value has no identity",
                json!([1, 2, 3]),
                json!([1, 5, 3]),
                vec![From(0), Instead(1), From(2)],
            ),
            (
                "likeness",
                json!([{"image": "a", "cpu": 1}]),
                json!([{"image": "new"}, {"image": "a", "cpu": 2}]),
                vec![New, From(0)],
            ),
            ("as many as before", json!([{"image": "a"}]), json!([{"image": "b"}]), vec![From(0)]),
        ] {
            assert_eq!(aligned(&before, &after), expected, "{case}");
        }
    }

    #[test]
    fn the_most_elements_that_can_stay_do() {
        let stays = stationary(&[Some(4), Some(0), None, Some(1), Some(2), Some(3)]);
        assert_eq!(stays, [false, true, false, true, true, true]);
    }
}
