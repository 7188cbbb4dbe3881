//! The operations that turn one JSON value into another.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

use super::align::{Origin, align, stationary};

/// Maximum depth of the comparison; deeper values are compared as wholes. Bounds the stack and nested list comparisons.
pub(super) const DEEPEST: usize = 64;

/// Maximum number of operations times elements for a list, which is otherwise replaced as a whole: each operation
/// shifts it.
const MOST_SHIFTS: usize = 4_000_000;

/// Computes the patch with strict `add`, `remove`, `replace` and `move` only: parents exist, indices are within the
/// list, and `move` stays within one list. It avoids features that implementations disagree about (`-`, `test` of
/// numbers and escaped texts, `add` of the root).
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
            (Value::Object(before), Value::Object(after)) if self.at.count() < DEEPEST => {
                self.object(before, after);
            }
            (Value::Array(before), Value::Array(after)) if self.at.count() < DEEPEST => {
                self.list(before, after);
            }
            _ if before == after => {}
            _ => self.replace(after.clone()),
        }
    }

    fn object(&mut self, before: &Map<String, Value>, after: &Map<String, Value>) {
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            self.at.push_back(key);
            self.remove();
            self.at.pop_back();
        }
        for (key, new) in after {
            self.at.push_back(key);
            match before.get(key) {
                Some(old) => self.value(old, new),
                None => self.add(new.clone()),
            }
            self.at.pop_back();
        }
    }

    fn list(&mut self, before: &[Value], after: &[Value]) {
        let mut origins = align(before, after);
        let stays = stationary(&origins.iter().map(|origin| origin.before()).collect::<Vec<_>>());
        // Replacing in place is only valid for stationary elements; others are removed and added.
        for (origin, stays) in origins.iter_mut().zip(&stays) {
            if !stays && matches!(origin, Origin::Instead(_)) {
                *origin = Origin::New;
            }
        }
        let mut kept: Vec<Option<usize>> = vec![None; before.len()];
        for (position, origin) in origins.iter().enumerate() {
            if let Some(place) = origin.before() {
                kept[place] = Some(position);
            }
        }
        let in_place = origins.iter().filter(|origin| matches!(origin, Origin::Instead(_))).count();
        let left = kept.iter().flatten().count();
        let moved =
            origins.iter().zip(&stays).filter(|(o, stays)| matches!(o, Origin::From(_)) && !**stays).count();
        let shifts = before.len() - left + after.len() - left + moved;
        let nothing_stays = in_place == left && shifts + in_place > 1;
        if nothing_stays || shifts.saturating_mul(before.len().max(after.len())) > MOST_SHIFTS {
            return self.replace(Value::Array(after.to_vec()));
        }

        for place in (0..before.len()).rev().filter(|place| kept[*place].is_none()) {
            self.at.push_back(place);
            self.remove();
            self.at.pop_back();
        }
        self.arrange(kept.into_iter().flatten().collect(), after, &origins, &stays);
        for (position, (origin, new)) in origins.iter().zip(after).enumerate() {
            self.at.push_back(position);
            match origin {
                Origin::From(place) => self.value(&before[*place], new),
                Origin::Instead(_) => self.replace(new.clone()),
                Origin::New => {}
            }
            self.at.pop_back();
        }
    }

    /// Moves and adds elements until the list has the order of `after`. `order` holds the target position of each
    /// remaining element.
    fn arrange(&mut self, mut order: Vec<usize>, after: &[Value], origins: &[Origin], stays: &[bool]) {
        // Insert behind the predecessor; elements that are yet to move may be in between.
        let mut next = 0;
        for (position, new) in after.iter().enumerate() {
            if origins[position] == Origin::New {
                self.at.push_back(next);
                self.add(new.clone());
                self.at.pop_back();
                order.insert(next, position);
            } else if stays[position] {
                next += order[next..].iter().take_while(|other| **other != position).count();
            } else if let Some(from) = order.iter().position(|other| *other == position) {
                order.remove(from);
                if from < next {
                    next -= 1;
                }
                order.insert(next, position);
                if from != next {
                    self.relocate(from, next);
                }
            }
            next += 1;
        }
    }

    fn add(&mut self, value: Value) {
        self.operations.push(PatchOperation::Add(AddOperation { path: self.at.clone(), value }));
    }

    fn remove(&mut self) {
        self.operations.push(PatchOperation::Remove(RemoveOperation { path: self.at.clone() }));
    }

    fn replace(&mut self, value: Value) {
        self.operations.push(PatchOperation::Replace(ReplaceOperation { path: self.at.clone(), value }));
    }

    fn relocate(&mut self, from: usize, to: usize) {
        let at = |position: usize| {
            let mut path = self.at.clone();
            path.push_back(position);
            path
        };
        let operation = MoveOperation { from: at(from), path: at(to) };
        self.operations.push(PatchOperation::Move(operation));
    }
}
