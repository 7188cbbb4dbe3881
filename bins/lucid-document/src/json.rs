//! From JSON to the tree.
//!
//! JSON is nearly YAML, but not when tabs indent it; and an error in it should be told in JSON's terms.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    error::SyntaxError,
    node::{Content, Entry, Node, Slot, Style},
};

/// How deep values may stand in each other; the same as for YAML.
const DEPTH: usize = 255;

/// The JSON values of a text, one after the other, as places in it.
pub(crate) fn values(text: &str) -> Result<Vec<&str>, SyntaxError> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut values = Vec::new();
    while let Some(value) = stream.next() {
        values.push(value.map_err(|error| error_at(text, stream.byte_offset(), &error))?.get());
    }
    Ok(values)
}

/// The tree of one JSON value.
pub(crate) fn json(text: &str) -> Result<Node, SyntaxError> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| error_at(text, 0, &error))?;
    node(text, raw.get(), 0)
}

fn error_at(text: &str, from: usize, error: &serde_json::Error) -> SyntaxError {
    let problem = error.to_string();
    let problem = problem.split(" at line ").next().unwrap_or_default().to_owned();
    let rest = text.get(from..).unwrap_or_default();
    let line: usize = rest.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let at = (from + line + error.column().saturating_sub(1)).min(text.len());
    SyntaxError::new(text, at, problem)
}

/// Where a part of the text begins in it.
pub(crate) fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize)
}

fn node(text: &str, part: &str, depth: usize) -> Result<Node, SyntaxError> {
    let start = offset(text, part);
    let error = |error: &serde_json::Error| SyntaxError::new(text, start, error.to_string());
    if depth > DEPTH {
        return Err(SyntaxError::new(
            text,
            start,
            format!("found values more than {DEPTH} deep in each other"),
        ));
    }
    let content = match part.as_bytes().first() {
        Some(b'{') => {
            let Object(members) = serde_json::from_str(part).map_err(|it| error(&it))?;
            let entry = |(key, value): (&RawValue, &RawValue)| {
                let key = node(text, key.get(), depth + 1)?;
                Ok(Slot::kept(Entry { key, value: node(text, value.get(), depth + 1)? }))
            };
            let entries = members.into_iter().map(entry).collect::<Result<_, SyntaxError>>()?;
            Content::Mapping { flow: true, entries }
        }
        Some(b'[') => {
            let List(items) = serde_json::from_str(part).map_err(|it| error(&it))?;
            let items = items.into_iter().map(|item| Ok(Slot::kept(node(text, item.get(), depth + 1)?)));
            Content::Sequence { flow: true, items: items.collect::<Result<_, SyntaxError>>()? }
        }
        Some(b'"') => {
            let text = serde_json::from_str(part).map_err(|it| error(&it))?;
            Content::Scalar { text, style: Style::Quoted }
        }
        _ => Content::Scalar { text: part.to_owned(), style: Style::Plain },
    };
    Ok(Node { span: Some(start..start + part.len()), tag: None, content })
}

/// A JSON object with its keys as they are written.
struct Object<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct List<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(ListVisitor)
    }
}
