//! Operations of a JSON Patch on the tree.
//!
//! What is there already stays where it is in the tree, marked as removed, so that [`splice`](crate::splice) finds what
//! to cut out of the text.

use json_patch::{Patch, PatchOperation, jsonptr::PointerBuf};

use crate::{
    error::SyntaxError,
    node::{Anchors, Content, Entry, Node, Slot, State, name_of},
};

/// The tree cannot be changed so; the reason does not matter, for the document is then written anew.
pub(crate) struct Unsupported;

impl From<SyntaxError> for Unsupported {
    fn from(_: SyntaxError) -> Self {
        Self
    }
}

/// Applies `patch` to the tree of `text`.
pub(crate) fn apply(
    root: &mut Node,
    patch: &Patch,
    text: &str,
    anchors: &Anchors,
) -> Result<(), Unsupported> {
    let editor = Editor { text, anchors };
    for operation in &patch.0 {
        let (path, change) = match operation {
            PatchOperation::Add(it) => (&it.path, Change::Add(Node::from_value(&it.value))),
            PatchOperation::Replace(it) => (&it.path, Change::Replace(Node::from_value(&it.value))),
            PatchOperation::Remove(it) => (&it.path, Change::Remove),
            _ => return Err(Unsupported),
        };
        editor.change(root, &parts(path), change)?;
    }
    Ok(())
}

fn parts(path: &PointerBuf) -> Vec<String> {
    path.tokens().map(|token| token.decoded().into_owned()).collect()
}

enum Change {
    Add(Node),
    Replace(Node),
    Remove,
}

struct Editor<'a> {
    text: &'a str,
    anchors: &'a Anchors,
}

impl Editor<'_> {
    fn change(&self, node: &mut Node, path: &[String], change: Change) -> Result<(), Unsupported> {
        let [part, rest @ ..] = path else { return Err(Unsupported) };
        if rest.is_empty() {
            return match &mut node.content {
                Content::Mapping { entries, .. } => self.member(entries, part, change),
                Content::Sequence { items, .. } => item(items, part, change),
                _ => Err(Unsupported),
            };
        }
        let (is_add, is_remove) = (matches!(change, Change::Add(_)), matches!(change, Change::Remove));
        match &mut node.content {
            Content::Mapping { entries, .. } => {
                let place = self.own_entry(entries, part)?;
                let entry = &entries[place].item;
                let place = match self.own_value(&entry.value, rest.len() == 1 && is_add)? {
                    Some(value) => replace(entries, place, Entry { key: entry.key.clone(), value }),
                    None => place,
                };
                let value = &mut entries[place].item.value;
                self.change(value, rest, change)?;
                if is_remove && value.is_empty() && value.span.is_some() {
                    let value = emptied(value);
                    let key = entries[place].item.key.clone();
                    replace(entries, place, Entry { key, value });
                }
            }
            Content::Sequence { items, .. } => {
                let place = place(items, part).ok_or(Unsupported)?;
                let place = match self.own_value(&items[place].item, rest.len() == 1 && is_add)? {
                    Some(value) => replace(items, place, value),
                    None => place,
                };
                let value = &mut items[place].item;
                self.change(value, rest, change)?;
                if is_remove && value.is_empty() && value.span.is_some() {
                    let value = emptied(value);
                    replace(items, place, value);
                }
            }
            _ => return Err(Unsupported),
        }
        Ok(())
    }

    /// A value of its own for what is changed inside: in place of an alias, which others share, and of an empty
    /// collection that is about to have members, for then it is written in another style.
    fn own_value(&self, value: &Node, is_filled: bool) -> Result<Option<Node>, Unsupported> {
        Ok(match value.content {
            Content::Alias(_) => Some(value.expanded(self.text, self.anchors)?),
            _ if is_filled && value.is_empty() && value.span.is_some() => Some(emptied(value)),
            _ => None,
        })
    }

    fn member(&self, entries: &mut Vec<Slot<Entry>>, name: &str, change: Change) -> Result<(), Unsupported> {
        let place = find(entries, name);
        match (change, place) {
            (Change::Remove, Some(place)) => remove(entries, place),
            (Change::Add(value) | Change::Replace(value), Some(place)) => {
                let key = entries[place].item.key.clone();
                replace(entries, place, Entry { key, value });
            }
            (Change::Add(value), None) => {
                entries.push(Slot::added(Entry { key: Node::string(name), value }));
            }
            (Change::Replace(value), None) => {
                let place = self.own_entry(entries, name)?;
                entries[place].item.value = value;
            }
            (Change::Remove, None) => return Err(Unsupported),
        }
        Ok(())
    }

    /// The entry of this name; what is only merged in is written out, and then wins.
    fn own_entry(&self, entries: &mut Vec<Slot<Entry>>, name: &str) -> Result<usize, Unsupported> {
        if let Some(place) = find(entries, name) {
            return Ok(place);
        }
        let merges = entries.iter().filter(|slot| slot.is_there() && slot.item.is_merge()).cloned().collect();
        let merged = Node::new(Content::Mapping { flow: false, entries: merges });
        let merged = merged.expanded(self.text, self.anchors)?;
        let Content::Mapping { entries: merged, .. } = merged.content else { return Err(Unsupported) };
        let place = find(&merged, name).ok_or(Unsupported)?;
        entries.push(Slot::added(merged[place].item.clone()));
        Ok(entries.len() - 1)
    }
}

fn item(items: &mut Vec<Slot<Node>>, part: &str, change: Change) -> Result<(), Unsupported> {
    match change {
        Change::Add(value) => {
            let there = items.iter().filter(|slot| slot.is_there()).count();
            let index = if part == "-" { there } else { part.parse().map_err(|_| Unsupported)? };
            let at = match index {
                0 => 0,
                _ => nth(items, index - 1).ok_or(Unsupported)? + 1,
            };
            items.insert(at, Slot::added(value));
        }
        Change::Replace(value) => {
            let place = place(items, part).ok_or(Unsupported)?;
            replace(items, place, value);
        }
        Change::Remove => {
            let place = place(items, part).ok_or(Unsupported)?;
            remove(items, place);
        }
    }
    Ok(())
}

fn place(items: &[Slot<Node>], part: &str) -> Option<usize> {
    nth(items, part.parse().ok()?)
}

fn nth<T>(items: &[Slot<T>], index: usize) -> Option<usize> {
    items.iter().enumerate().filter(|(_, slot)| slot.is_there()).nth(index).map(|(place, _)| place)
}

fn find(entries: &[Slot<Entry>], name: &str) -> Option<usize> {
    let is_named = |slot: &Slot<Entry>| {
        slot.is_there()
            && !slot.item.is_merge()
            && slot.item.key.meaning().and_then(name_of).as_deref() == Some(name)
    };
    entries.iter().position(is_named)
}

fn emptied(value: &Node) -> Node {
    Node::new(match value.content {
        Content::Sequence { .. } => Content::Sequence { flow: false, items: Vec::new() },
        _ => Content::Mapping { flow: false, entries: Vec::new() },
    })
}

/// Puts `item` in the place of another one, and tells where it is then.
fn replace<T>(slots: &mut Vec<Slot<T>>, place: usize, item: T) -> usize {
    if slots[place].state == State::Added {
        slots[place].item = item;
        return place;
    }
    slots[place].state = State::Removed;
    slots.insert(place + 1, Slot::added(item));
    place + 1
}

fn remove<T>(slots: &mut Vec<Slot<T>>, place: usize) {
    if slots[place].state == State::Added {
        slots.remove(place);
    } else {
        slots[place].state = State::Removed;
    }
}
