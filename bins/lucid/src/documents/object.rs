//! The objects in a document: itself, or the items of a list.

use std::fmt;

use serde_json::Value;

/// Maximum depth of nested lists.
const DEPTH: usize = 8;

/// One object of a document.
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
    /// JSON pointer to the object in the document.
    pub(crate) pointer: String,
}

/// Returns all objects of a document, in order: the items of a `List`, a `PodList` and so on, with nested lists, or the
/// document itself.
pub(crate) fn objects(document: &Value) -> Vec<Object> {
    let mut found = Vec::new();
    collect(document, None, String::new(), DEPTH, &mut found);
    found
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
