//! Restrictions of the fields that a patch may change.

use std::fmt;

use json_patch::jsonptr::{Pointer, PointerBuf, Token};
use json_patch::{AddOperation, PatchOperation};
use serde::Deserialize;
use serde_json::{Map, Value};
use snafu::ensure;

use super::align::align;
use super::{JsonPatch, PatchError, PatchSnafu};

/// Maximum depth of the comparison; deeper values are compared as wholes. Bounds the stack and nested list comparisons.
const DEEPEST: usize = 64;

/// Location in an object that may be changed, including everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowedPath {
    written: String,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Named(String),
    /// Beginning of the names; empty for any name.
    Prefix(String),
}

impl Segment {
    fn matches(&self, key: &str) -> bool {
        match self {
            Self::Named(name) => name == key,
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
        }
    }
}

impl AllowedPath {
    fn parse(path: &str) -> Result<Self, PatchError> {
        let invalid = |problem: &str| PatchSnafu {
            problem: format!("the allowed path {path:?} {problem}; expected a path such as /metadata/labels"),
        };
        ensure!(!path.is_empty(), invalid("is empty, which would allow every change"));
        let pointer = Pointer::parse(path)
            .map_err(|error| invalid(&format!("is not a JSON pointer: {error}")).build())?;
        // Kubernetes objects have no members without a name.
        let segment = |token: Token<'_>| match token.decoded().as_ref() {
            "" => invalid("has an empty segment: leave out the slash too many").fail(),
            name => match name.split_once('*') {
                None => Ok(Segment::Named(name.to_owned())),
                Some((prefix, "")) => Ok(Segment::Prefix(prefix.to_owned())),
                Some(_) => invalid("has a * that does not end its segment").fail(),
            },
        };
        Ok(Self {
            written: path.to_owned(),
            segments: pointer.tokens().map(segment).collect::<Result<_, _>>()?,
        })
    }
}

/// Locations that patches may change, including everything below them; everything else is immutable.
///
/// Each is written as a JSON pointer (RFC 6901) in which a `*` at the end of a segment stands for any further
/// characters, such as `/metadata/labels`, `/metadata/annotations/example.com~1*` or `/spec/containers/*/env`.
///
/// The check compares objects, not operations: `test` changes nothing, `move` changes both locations, and `replace` of
/// the whole object changes what differs. Each added, removed or replaced value has to be at or below an allowed path.
/// Adding or removing an object that only holds allowed values is not a change by itself (null counts as absent); an
/// empty object is.
///
/// In a list of unchanged length, elements are compared by position: `/spec/containers/*/env` allows changing the `env`
/// of any container, and forbids swapping two containers. Adding, removing or moving an element changes that element,
/// such as `/spec/containers/2`, and not only its members: `/spec/containers/*/env` does not allow adding a container,
/// whereas `/spec/containers` and `/spec/containers/*` do. If other elements shift, the changes in them have to be
/// allowed at both the old and the new position. If elements of a list of another length change places, all count as
/// moved.
///
/// An empty list allows no changes.
///
/// ```
/// use lucid_webhook::{AllowedPaths, JsonPatch};
/// use serde_json::json;
///
/// let allowed = AllowedPaths::parse(["/metadata/labels", "/spec/containers/*/env"])?;
/// let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app"}]}});
///
/// let label = JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]))?;
/// assert!(allowed.check(&pod, &label).is_ok());
///
/// let image = JsonPatch::from_operations(&json!([{"op": "add", "path": "/spec/containers/0/image", "value": "x"}]))?;
/// assert_eq!(
///     allowed.check(&pod, &image).unwrap_err().to_string(),
///     "the patch changes \"/spec/containers/0/image\"; expected only changes of /metadata/labels, /spec/containers/*/env",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct AllowedPaths(Vec<AllowedPath>);

impl AllowedPaths {
    /// Parses a list of paths.
    ///
    /// # Errors
    ///
    /// A [`PatchError`] for the first path that is invalid.
    pub fn parse<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, PatchError> {
        let paths = paths.into_iter().map(|path| AllowedPath::parse(path.as_ref()));
        paths.collect::<Result<_, _>>().map(Self)
    }

    /// Checks that `patch`, applied to `before`, only changes allowed fields.
    ///
    /// # Errors
    ///
    /// A [`PatchError`] if it changes another field or does not apply.
    pub fn check(&self, before: &Value, patch: &JsonPatch) -> Result<(), PatchError> {
        self.check_change(before, &patch.apply(before)?)
    }

    /// Returns `true` if the operations alone show that `patch` only changes allowed fields of an object. `part`
    /// contains the locations of that object that the patch accesses.
    pub(crate) fn cover(&self, patch: &JsonPatch, part: &Value) -> bool {
        patch.operations().iter().all(|operation| match operation {
            PatchOperation::Test(_) => true,
            // Annotations of a pod that has none.
            PatchOperation::Add(AddOperation { path, value: Value::Object(members) })
                if !members.is_empty() && !is_element(path) && path.resolve(part).is_err() =>
            {
                self.cover_place(path)
                    || members.keys().all(|key| self.cover_place(&path.with_trailing_token(key)))
            }
            PatchOperation::Move(moving) => self.cover_place(&moving.from) && self.cover_place(&moving.path),
            PatchOperation::Add(_)
            | PatchOperation::Remove(_)
            | PatchOperation::Replace(_)
            | PatchOperation::Copy(_) => self.cover_place(operation.path()),
        })
    }

    /// Returns `true` if a change of the value at `path` stays at or below an allowed path. The elements of a list
    /// behind it may shift, so their list has to be allowed as well.
    fn cover_place(&self, path: &Pointer) -> bool {
        let mut rest: Vec<&[Segment]> = self.0.iter().map(|path| path.segments.as_slice()).collect();
        for token in path.tokens() {
            if rest.iter().any(|rest| rest.is_empty()) {
                return true;
            }
            rest = step(&rest, &token.decoded());
        }
        !is_element(path) && rest.iter().any(|rest| rest.is_empty())
    }

    /// Checks that only allowed fields differ between `before` and `after`.
    pub(crate) fn check_change(&self, before: &Value, after: &Value) -> Result<(), PatchError> {
        let mut walk = Walk { at: PointerBuf::new() };
        walk.value(Some(before), Some(after), &Location::root(self)).map_err(|path| {
            PatchSnafu {
                problem: format!("the patch changes {:?}; expected only changes of {self}", path.to_string()),
            }
            .build()
        })
    }
}

impl Extend<Self> for AllowedPaths {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, others: I) {
        self.0.extend(others.into_iter().flat_map(|paths| paths.0));
    }
}

impl TryFrom<Vec<String>> for AllowedPaths {
    type Error = PatchError;

    fn try_from(paths: Vec<String>) -> Result<Self, PatchError> {
        Self::parse(paths)
    }
}

impl fmt::Display for AllowedPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no paths");
        }
        let written: Vec<_> = self.0.iter().map(|path| &*path.written).collect();
        f.write_str(&written.join(", "))
    }
}

struct Location<'a> {
    /// Remaining segments of the allowed paths that match so far.
    before: Vec<&'a [Segment]>,
    after: Vec<&'a [Segment]>,
}

impl<'a> Location<'a> {
    fn root(allowed: &'a AllowedPaths) -> Self {
        let paths: Vec<&[Segment]> = allowed.0.iter().map(|path| path.segments.as_slice()).collect();
        Self { before: paths.clone(), after: paths }
    }

    fn member(&self, key: &str) -> Self {
        Self { before: step(&self.before, key), after: step(&self.after, key) }
    }

    fn element(&self, before: usize, after: usize) -> Self {
        Self { before: step(&self.before, &before.to_string()), after: step(&self.after, &after.to_string()) }
    }

    fn is_allowed(&self) -> bool {
        [&self.before, &self.after].into_iter().all(|paths| paths.iter().any(|rest| rest.is_empty()))
    }
}

fn step<'a>(paths: &[&'a [Segment]], key: &str) -> Vec<&'a [Segment]> {
    paths
        .iter()
        .filter_map(|path| match path.split_first() {
            None => Some(*path),
            Some((segment, rest)) => segment.matches(key).then_some(rest),
        })
        .collect()
}

/// Returns `true` if the value at `path` may be an element of a list.
fn is_element(path: &Pointer) -> bool {
    path.last().is_some_and(|last| last.encoded() == "-" || last.encoded().parse::<usize>().is_ok())
}

struct Walk {
    at: PointerBuf,
}

type WalkResult = Result<(), PointerBuf>;

impl Walk {
    fn value(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        location: &Location<'_>,
    ) -> WalkResult {
        let absent = Map::new();
        match (before, after) {
            _ if location.is_allowed() => Ok(()),
            (Some(before), Some(after)) if self.at.count() >= DEEPEST => self.require(before == after),
            (Some(Value::Object(before)), Some(Value::Object(after))) => self.object(before, after, location),
            (Some(Value::Array(before)), Some(Value::Array(after))) => self.list(before, after, location),
            // Null sometimes represents an absent value, and holds nothing that could be lost.
            (None | Some(Value::Null), Some(Value::Object(after))) if !after.is_empty() => {
                self.object(&absent, after, location)
            }
            (Some(Value::Object(before)), None | Some(Value::Null)) if !before.is_empty() => {
                self.object(before, &absent, location)
            }
            (None | Some(Value::Null), Some(Value::Array(after))) if !after.is_empty() => {
                self.list(&[], after, location)
            }
            (Some(Value::Array(before)), None | Some(Value::Null)) if !before.is_empty() => {
                self.list(before, &[], location)
            }
            (before, after) => self.require(before == after),
        }
    }

    fn object(
        &mut self,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        location: &Location<'_>,
    ) -> WalkResult {
        let removed = before.keys().filter(|key| !after.contains_key(*key));
        for key in removed.chain(after.keys()) {
            self.at.push_back(key);
            self.value(before.get(key), after.get(key), &location.member(key))?;
            self.at.pop_back();
        }
        Ok(())
    }

    fn list(&mut self, before: &[Value], after: &[Value], location: &Location<'_>) -> WalkResult {
        if before.len() == after.len() {
            for (position, (old, new)) in before.iter().zip(after).enumerate() {
                self.at.push_back(position);
                self.value(Some(old), Some(new), &location.element(position, position))?;
                self.at.pop_back();
            }
            return Ok(());
        }
        let places = align(before, after);
        let mut removed = vec![true; before.len()];
        for place in places.iter().flatten() {
            removed[*place] = false;
        }
        for place in (0..before.len()).filter(|place| removed[*place]) {
            self.element(place, location.element(place, place).is_allowed())?;
        }
        let in_order = places.iter().flatten().is_sorted();
        for (position, place) in places.into_iter().enumerate() {
            let Some(place) = place else {
                self.element(position, location.element(position, position).is_allowed())?;
                continue;
            };
            let location = location.element(place, position);
            self.element(position, in_order || location.is_allowed())?;
            self.at.push_back(position);
            self.value(Some(&before[place]), Some(&after[position]), &location)?;
            self.at.pop_back();
        }
        Ok(())
    }

    /// Fails at an element that may not be added, removed or moved.
    fn element(&mut self, position: usize, allowed: bool) -> WalkResult {
        self.at.push_back(position);
        self.require(allowed)?;
        self.at.pop_back();
        Ok(())
    }

    fn require(&self, allowed: bool) -> WalkResult {
        if allowed { Ok(()) } else { Err(self.at.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_at_and_below_allowed_paths_are_covered() {
        let allowed = AllowedPaths::parse(["/spec/containers/*/env", "/spec/volumes", "/list/0"]).unwrap();
        for (op, path, from, covered) in [
            ("add", "/spec/volumes", "", true),
            ("add", "/spec/volumes/-", "", true),
            ("remove", "/spec/volumes/0", "", true),
            ("add", "/spec/containers/1/env/0", "", true),
            ("replace", "/spec/containers/1/env", "", true),
            ("add", "/spec/containers/1", "", false),
            ("replace", "/spec", "", false),
            ("test", "/spec", "", true),
            ("copy", "/spec/volumes/-", "/spec/other", true),
            ("move", "/spec/volumes/-", "/spec/other", false),
            // The elements behind it shift.
            ("add", "/list/0", "", false),
            ("remove", "/list/0", "", false),
        ] {
            let operation = json!([{"op": op, "path": path, "from": from, "value": 1}]);
            let patch = JsonPatch::from_operations(&operation).unwrap();
            assert_eq!(allowed.cover(&patch, &json!({})), covered, "{operation}");
        }
    }

    #[test]
    fn an_absent_parent_of_allowed_members_may_be_added() {
        let allowed = AllowedPaths::parse(["/metadata/annotations/a.test~1*", "/list/*/b"]).unwrap();
        let (absent, present) =
            (json!({"metadata": {}}), json!({"metadata": {"annotations": {"other": ""}}}));
        for (path, value, part, covered) in [
            ("/metadata/annotations", json!({"a.test/b": ""}), &absent, true),
            ("/metadata/annotations", json!({"a.test/b": ""}), &present, false),
            ("/metadata/annotations", json!({"a.test/b": "", "a.testing/b": ""}), &absent, false),
            ("/metadata/annotations", json!({}), &absent, false),
            ("/metadata/annotations/a.test~1b", json!({}), &present, true),
            ("/list/-", json!({"b": 1}), &absent, false),
        ] {
            let operation = json!([{"op": "add", "path": path, "value": value}]);
            let patch = JsonPatch::from_operations(&operation).unwrap();
            assert_eq!(allowed.cover(&patch, part), covered, "{operation}");
        }
    }
}
