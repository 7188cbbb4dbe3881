//! The objects in a document: itself, or the items of lists.

use std::fmt;

use serde_json::{Map, Value};

/// Maximum depth of nested lists.
const DEPTH: usize = 8;

/// An item of a list, or the whole value of another document.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// As kubectl would send it.
    pub(crate) value: Value,
    /// JSON pointer to the part in the document.
    pub(crate) pointer: String,
    /// `apiVersion` and `kind` of items, by their list.
    item_of: Option<(String, String)>,
}

impl Part {
    /// Creates the part with this place in a list, or the value of a document.
    pub(super) fn new(value: Value, item_of: Option<(&Map<String, Value>, usize)>) -> Self {
        let Some((list, place)) = item_of else {
            return Self { value, pointer: String::new(), item_of: None };
        };
        let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default();
        let kind = text("kind").strip_suffix("List").filter(|kind| !kind.is_empty());
        let item_of = kind.map(|kind| (text("apiVersion").to_owned(), kind.to_owned()));
        Self { value, pointer: format!("/items/{place}"), item_of }
    }

    pub(crate) fn objects(&self) -> Vec<Object> {
        let mut found = Vec::new();
        let item_of = self.item_of.as_ref().map(|(version, kind)| (version.as_str(), kind.as_str()));
        collect(&self.value, item_of, String::new(), DEPTH, &mut found);
        found
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// `apiVersion`, such as `apps/v1`, or empty.
    pub(crate) api_version: String,
    /// `kind`, such as `Deployment`, or empty.
    pub(crate) kind: String,
    /// `metadata.namespace`, unless it is empty.
    pub(crate) namespace: Option<String>,
    /// `metadata.name`, or `generateName`.
    pub(crate) name: String,
    /// JSON pointer to the object in its part.
    pub(crate) pointer: String,
}

/// Formats as `Deployment shop/web`.
impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = (self.kind.escape_debug(), self.name.escape_debug());
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {}/{name}", namespace.escape_debug()),
            None => write!(f, "{kind} {name}"),
        }
    }
}

fn collect(
    object: &Value,
    item_of: Option<(&str, &str)>,
    pointer: String,
    depth: usize,
    found: &mut Vec<Object>,
) {
    let text = |key: &str| object[key].as_str();
    // The API server leaves kind and apiVersion out of the items of a PodList.
    let of_list = item_of.filter(|_| text("kind").is_none());
    let (api_version, kind) = match of_list {
        Some(types) => types,
        None => (text("apiVersion").unwrap_or_default(), text("kind").unwrap_or_default()),
    };
    if let (Some(item_kind), Some(items)) = (kind.strip_suffix("List"), object["items"].as_array()) {
        let item_of = (!item_kind.is_empty()).then_some((api_version, item_kind));
        if depth > 0 {
            for (place, item) in items.iter().enumerate() {
                collect(item, item_of, format!("{pointer}/items/{place}"), depth - 1, found);
            }
        }
        return;
    }
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or("(without a name)");
    found.push(Object {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: metadata["namespace"].as_str().filter(|it| !it.is_empty()).map(str::to_owned),
        name: name.to_owned(),
        pointer,
    });
}
