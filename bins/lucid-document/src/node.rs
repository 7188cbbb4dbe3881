//! The tree of a document: values, how they are written, and where.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use serde_json::Value;

use crate::{
    error::SyntaxError,
    scalar::{Meaning, plain},
};

/// The most values a document may be after its aliases are resolved; `a: [*b, *b]` doubles them with every line.
const VALUES: usize = 1_000_000;

/// One value.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Where it stands in the text, in bytes. A block collection has only its start; what is new has none.
    pub(crate) span: Option<Range<usize>>,
    pub(crate) tag: Option<Tag>,
    pub(crate) content: Content,
}

/// A tag that decides what a scalar means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    Str,
    /// `!!int`, `!!float`, `!!bool`, `!!null`, `!!timestamp`: what is written means the same anyway.
    Core,
    Binary,
    /// Anything else makes a string of a scalar.
    Other,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Scalar { text: String, style: Style },
    Sequence { flow: bool, items: Vec<Slot<Node>> },
    Mapping { flow: bool, entries: Vec<Slot<Entry>> },
    Alias(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Quoted,
    Block,
}

/// An item of a collection, and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Slot<T> {
    pub(crate) item: T,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Kept,
    Added,
    Removed,
}

impl<T> Slot<T> {
    pub(crate) fn kept(item: T) -> Self {
        Self { item, state: State::Kept }
    }

    pub(crate) fn added(item: T) -> Self {
        Self { item, state: State::Added }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.state != State::Removed
    }
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
}

impl Entry {
    pub(crate) fn is_merge(&self) -> bool {
        matches!(&self.key.content, Content::Scalar { text, style: Style::Plain } if text == "<<")
            && self.key.tag.is_none()
    }
}

/// What aliases stand for.
pub(crate) type Anchors = BTreeMap<usize, Rc<Node>>;

impl Node {
    pub(crate) fn new(content: Content) -> Self {
        Self { span: None, tag: None, content }
    }

    pub(crate) fn string(text: impl Into<String>) -> Self {
        Self::new(Content::Scalar { text: text.into(), style: Style::Quoted })
    }

    pub(crate) fn from_value(value: &Value) -> Self {
        let plain = |text: String| Self::new(Content::Scalar { text, style: Style::Plain });
        match value {
            Value::Null => plain("null".to_owned()),
            Value::Bool(it) => plain(it.to_string()),
            Value::Number(it) => plain(it.to_string()),
            Value::String(it) => Self::string(it),
            Value::Array(items) => {
                let items = items.iter().map(|item| Slot::kept(Self::from_value(item))).collect();
                Self::new(Content::Sequence { flow: false, items })
            }
            Value::Object(members) => {
                let entry = |(key, value)| {
                    Slot::kept(Entry { key: Self::string(key), value: Self::from_value(value) })
                };
                // People look for the name first.
                let is_name = |(key, _): &(&String, &Value)| *key == "name";
                let (names, others): (Vec<_>, Vec<_>) = members.iter().partition(is_name);
                let entries = names.into_iter().chain(others).map(entry).collect();
                Self::new(Content::Mapping { flow: false, entries })
            }
        }
    }

    /// Whether it is a collection with nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.content {
            Content::Sequence { items, .. } => !items.iter().any(Slot::is_there),
            Content::Mapping { entries, .. } => !entries.iter().any(Slot::is_there),
            _ => false,
        }
    }

    /// What a scalar means; a collection means nothing.
    pub(crate) fn meaning(&self) -> Option<Meaning<'_>> {
        let Content::Scalar { text, style } = &self.content else { return None };
        Some(match (self.tag, style) {
            (None, Style::Plain) | (Some(Tag::Core), _) => plain(text),
            _ => Meaning::String(text),
        })
    }

    /// The same value with nothing that refers elsewhere: no alias, no merge, no place in the text. Keys stand in the
    /// order in which they first come.
    pub(crate) fn expanded(&self, text: &str, anchors: &Anchors) -> Result<Self, SyntaxError> {
        Expansion { text, anchors, left: VALUES, open: Vec::new() }.node(self, 0)
    }
}

struct Expansion<'a> {
    text: &'a str,
    anchors: &'a Anchors,
    left: usize,
    /// The aliases that are being resolved.
    open: Vec<usize>,
}

impl Expansion<'_> {
    fn error(&self, at: usize, problem: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.text, at, problem)
    }

    /// `near` is where a problem is reported that stands nowhere itself.
    fn node(&mut self, node: &Node, near: usize) -> Result<Node, SyntaxError> {
        let near = node.span.as_ref().map_or(near, |span| span.start);
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            self.error(near, format!("found more than {VALUES} values with all aliases resolved"))
        })?;
        let content = match &node.content {
            Content::Scalar { .. } => {
                if node.tag == Some(Tag::Binary) {
                    return Err(self.error(near, "found the tag !!binary, accepted is text"));
                }
                if node.meaning() == Some(Meaning::NoJson) {
                    return Err(
                        self.error(near, "found an infinite number or none, which JSON does not know")
                    );
                }
                node.content.clone()
            }
            Content::Sequence { items, .. } => {
                let items = items.iter().filter(|slot| slot.is_there());
                let items = items.map(|slot| Ok(Slot::kept(self.node(&slot.item, near)?)));
                Content::Sequence { flow: false, items: items.collect::<Result<_, SyntaxError>>()? }
            }
            Content::Mapping { entries, .. } => {
                let mut members = Members::default();
                for slot in entries.iter().filter(|slot| slot.is_there()) {
                    self.entry(&slot.item, near, &mut members)?;
                }
                Content::Mapping {
                    flow: false,
                    entries: members.entries.into_iter().map(Slot::kept).collect(),
                }
            }
            Content::Alias(id) => {
                let target = self.anchors.get(id).filter(|_| !self.open.contains(id)).cloned();
                let problem = "found an alias inside of what it stands for";
                let target = target.ok_or_else(|| self.error(near, problem))?;
                self.open.push(*id);
                let expanded = self.node(&target, near)?;
                self.open.pop();
                return Ok(expanded);
            }
        };
        Ok(Node { span: None, tag: node.tag, content })
    }

    fn entry(&mut self, entry: &Entry, near: usize, members: &mut Members) -> Result<(), SyntaxError> {
        if entry.is_merge() {
            return self.merge(&entry.value, near, members);
        }
        let at = entry.key.span.as_ref().map_or(near, |span| span.start);
        let key = self.node(&entry.key, near)?;
        let name = key.meaning().and_then(name_of);
        let name = name.ok_or_else(|| self.error(at, "found a key that is no string, number or boolean"))?;
        let value = self.node(&entry.value, near)?;
        if !members.set(&name, key, value, true) {
            return Err(self.error(at, format!("found the key {name:?} twice in one map")));
        }
        Ok(())
    }

    fn merge(&mut self, value: &Node, near: usize, members: &mut Members) -> Result<(), SyntaxError> {
        let sources: Vec<&Node> = match &value.content {
            // The first of several wins, and what is set last stays.
            Content::Sequence { items, .. } => items.iter().rev().map(|slot| &slot.item).collect(),
            _ => vec![value],
        };
        for source in sources {
            let expanded = self.node(source, near)?;
            let Content::Mapping { entries, .. } = expanded.content else {
                return Err(self.error(near, "found << with a value that is no map"));
            };
            for Slot { item: Entry { key, value }, .. } in entries {
                let name = key.meaning().and_then(name_of);
                members.set(&name.unwrap_or_default(), key, value, false);
            }
        }
        Ok(())
    }
}

/// The name of a member, as JSON has it.
pub(crate) fn name_of(key: Meaning<'_>) -> Option<String> {
    match key {
        Meaning::String(text) => Some(text.to_owned()),
        // A key `1.50` is called `1.5`.
        Meaning::Number(number) if number.contains(['.', 'e', 'E']) => {
            number.parse::<f64>().ok().map(|number| number.to_string())
        }
        Meaning::Number(number) => Some(number.into_owned()),
        Meaning::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The members of a map while they are collected.
#[derive(Default)]
struct Members {
    entries: Vec<Entry>,
    /// Place in the list, and whether it was written there rather than merged in.
    places: BTreeMap<String, (usize, bool)>,
}

impl Members {
    /// The last one wins, as for kubectl; false when it was written twice.
    fn set(&mut self, name: &str, key: Node, value: Node, written: bool) -> bool {
        match self.places.get_mut(name) {
            Some((_, true)) if written => return false,
            Some((place, before)) => {
                self.entries[*place] = Entry { key, value };
                *before |= written;
            }
            None => {
                self.places.insert(name.to_owned(), (self.entries.len(), written));
                self.entries.push(Entry { key, value });
            }
        }
        true
    }
}
