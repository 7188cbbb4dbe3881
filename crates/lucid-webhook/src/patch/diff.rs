//! The operations that turn one JSON value into another.

use json_patch::jsonptr::{PointerBuf, Token};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

use super::align::align;

/// Maximum number of elements of a list that are removed, added and changed one by one. Each removal and addition
/// shifts the list, so a list with more changes is replaced.
const MOST_CHANGES: usize = 64;

/// Unlike `json_patch::diff`, inserts a list element with one operation.
pub(super) fn diff(before: &Value, after: &Value) -> Vec<PatchOperation> {
    let mut diff = Diff { operations: Vec::new(), at: PointerBuf::new() };
    diff.value(before, after);
    diff.operations
}

struct Diff {
    operations: Vec<PatchOperation>,
    at: PointerBuf,
}

impl Diff {
    fn value(&mut self, before: &Value, after: &Value) {
        match (before, after) {
            _ if before == after => {}
            (Value::Object(before), Value::Object(after)) => self.object(before, after),
            (Value::Array(before), Value::Array(after)) => self.list(before, after),
            _ => self.replace(after.clone()),
        }
    }

    fn object(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) {
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            self.remove(key);
        }
        for (key, new) in after {
            match before.get(key) {
                Some(old) => self.change(key, old, new),
                None => self.add(key, new),
            }
        }
    }

    fn list(&mut self, before: &[Value], after: &[Value]) {
        let origins = align(before, after);
        let kept: Vec<usize> = origins.iter().flatten().copied().collect();
        let pairs = after.iter().zip(&origins);
        let unchanged = pairs.filter(|(new, old)| old.is_some_and(|old| before[old] == **new)).count();
        if before.len() - kept.len() + after.len() - unchanged > MOST_CHANGES || !kept.is_sorted() {
            return self.replace(after.into());
        }
        for position in (0..before.len()).rev().filter(|position| kept.binary_search(position).is_err()) {
            self.remove(position);
        }
        for (position, new) in after.iter().enumerate().filter(|(position, _)| origins[*position].is_none()) {
            self.add(position, new);
        }
        for (position, (new, old)) in after.iter().zip(origins).enumerate() {
            if let Some(old) = old {
                self.change(position, &before[old], new);
            }
        }
    }

    fn change<'t>(&mut self, member: impl Into<Token<'t>>, before: &Value, after: &Value) {
        self.at.push_back(member);
        self.value(before, after);
        self.at.pop_back();
    }

    fn add<'t>(&mut self, member: impl Into<Token<'t>>, value: &Value) {
        let path = self.at.with_trailing_token(member);
        self.operations.push(PatchOperation::Add(AddOperation { path, value: value.clone() }));
    }

    fn remove<'t>(&mut self, member: impl Into<Token<'t>>) {
        let path = self.at.with_trailing_token(member);
        self.operations.push(PatchOperation::Remove(RemoveOperation { path }));
    }

    fn replace(&mut self, value: Value) {
        let path = self.at.clone();
        self.operations.push(PatchOperation::Replace(ReplaceOperation { path, value }));
    }
}
