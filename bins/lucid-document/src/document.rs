//! One document: its text, its value, and edits.

use json_patch::Patch;
use serde_json::{Map, Value};

use crate::{
    edit,
    error::{EditError, SyntaxError},
    json,
    layout::Layout,
    node::{Anchors, Content, Node, Slot, name_of},
    parse,
    scalar::Meaning,
    splice::splice,
    write::Json,
};

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

/// One document of a file.
///
/// ```
/// let documents = lucid_document::documents("kind: Pod # mine\nspec:\n  containers:\n  - name: web\n    env: []\n");
/// let patch = r#"[{"op": "add", "path": "/spec/containers/0/env/-", "value": {"name": "A", "value": "yes"}}]"#;
/// let patched = documents[0].patch(&serde_json::from_str(patch)?)?;
/// assert_eq!(
///     patched.text(),
///     "kind: Pod # mine\nspec:\n  containers:\n  - name: web\n    env:\n    - name: A\n      value: \"yes\"\n"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Document {
    /// Lines of the file before the body.
    lines: usize,
    format: Format,
    /// What stands before and after the body and is no part of it.
    lead: String,
    body: String,
    tail: String,
    tree: Result<Option<Tree>, SyntaxError>,
}

#[derive(Debug, Clone)]
struct Tree {
    root: Node,
    anchors: Anchors,
    expanded: Node,
    value: Value,
}

impl Tree {
    fn new(text: &str, root: Node, anchors: Anchors) -> Result<Self, SyntaxError> {
        let expanded = root.expanded(text, &anchors)?;
        let value = value_of(&expanded);
        Ok(Self { root, anchors, expanded, value })
    }
}

fn tree(body: &str, format: Format) -> Result<Option<Tree>, SyntaxError> {
    let parsed = match format {
        Format::Yaml => parse::yaml(body)?,
        Format::Json => Some((json::json(body)?, Anchors::new())),
    };
    parsed.map(|(root, anchors)| Tree::new(body, root, anchors)).transpose()
}

impl Document {
    pub(crate) fn new(lead: &str, body: &str, tail: &str, format: Format, lines: usize) -> Self {
        let tree = tree(body, format).map_err(|error| error.after(lines));
        let (lead, body, tail) = (lead.to_owned(), body.to_owned(), tail.to_owned());
        Self { lines, format, lead, body, tail, tree }
    }

    pub(crate) fn broken(body: &str, error: SyntaxError, lines: usize) -> Self {
        let (lead, tail) = (String::new(), String::new());
        Self { lines, format: Format::Json, lead, body: body.to_owned(), tail, tree: Err(error.after(lines)) }
    }

    /// How it is written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The line of the file, counted from 1, in which its value begins.
    #[must_use]
    pub fn line(&self) -> usize {
        let start = match &self.tree {
            Ok(Some(tree)) => tree.root.span.as_ref().map_or(0, |span| span.start),
            _ => 0,
        };
        self.lines + self.body[..start].matches('\n').count() + 1
    }

    /// Its value as kubectl would send it; `None` when there is nothing but comments.
    ///
    /// # Errors
    /// [`SyntaxError`] when it cannot be read.
    pub fn value(&self) -> Result<Option<&Value>, &SyntaxError> {
        self.tree.as_ref().map(|tree| tree.as_ref().map(|tree| &tree.value))
    }

    /// The text, with what separates it from the document before it.
    #[must_use]
    pub fn text(&self) -> String {
        [self.lead.as_str(), &self.body, &self.tail].concat()
    }

    /// The value as YAML, without comments, aliases and a separator; the user's own text where it is YAML already.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        match (&self.tree, self.format) {
            (Ok(Some(tree)), Format::Json) => block(&tree.expanded),
            _ => self.text(),
        }
    }

    /// The value as JSON, without a separator; the user's own text where it is JSON already.
    #[must_use]
    pub fn to_json(&self) -> String {
        match (&self.tree, self.format) {
            (Ok(Some(tree)), Format::Yaml) => {
                let mut out = String::new();
                let json = Json::Lines { newline: "\n", prefix: String::new(), indent: "    " };
                json.value(&tree.expanded, &mut out);
                out + "\n"
            }
            (_, Format::Yaml) => String::new(),
            _ => format!("{}\n", self.body),
        }
    }

    /// The document with `patch` applied. An empty patch changes nothing, and one that does changes only the lines it
    /// needs to. Operations other than `add`, `replace` and `remove` cost the comments.
    ///
    /// # Errors
    /// [`EditError`] when an operation does not apply.
    pub fn patch(&self, patch: &Patch) -> Result<Self, EditError> {
        let Ok(Some(tree)) = &self.tree else { return Ok(self.clone()) };
        if patch.0.is_empty() {
            return Ok(self.clone());
        }
        let mut expected = tree.value.clone();
        json_patch::patch(&mut expected, &patch.0).map_err(|source| EditError::Operation { source })?;
        let expected = value_of(&Node::from_value(&expected));
        let proved = |body: String| {
            let patched = Self::new(&self.lead, &body, &self.tail, self.format, self.lines);
            (patched.value().ok().flatten() == Some(&expected)).then_some(patched)
        };
        let spliced = self.spliced(tree, patch).and_then(&proved);
        spliced.or_else(|| proved(self.written_anew(tree, patch)?)).ok_or(EditError::Unproved)
    }

    fn spliced(&self, tree: &Tree, patch: &Patch) -> Option<String> {
        let mut root = tree.root.clone();
        edit::apply(&mut root, patch, &self.body, &tree.anchors).ok()?;
        let layout = Layout::of(&self.body, &tree.root);
        splice(&self.body, &root, &layout, self.format == Format::Json).ok()
    }

    /// Without comments and aliases, but for what stands before the first key.
    fn written_anew(&self, tree: &Tree, patch: &Patch) -> Option<String> {
        let mut root = tree.expanded.clone();
        edit::apply(&mut root, patch, "", &Anchors::new()).ok()?;
        if self.format == Format::Json {
            let mut out = String::new();
            Json::Lines { newline: "\n", prefix: String::new(), indent: "    " }.value(&root, &mut out);
            return Some(out);
        }
        let start = tree.root.span.as_ref()?.start;
        let above = &self.body[..start];
        let above = &above[..above.rfind('\n').map_or(0, |newline| newline + 1)];
        let mut out = above.to_owned();
        let layout = Layout::of(&self.body, &tree.root);
        layout.block(&root, 0, &mut out);
        Some(out + layout.newline)
    }
}

fn block(node: &Node) -> String {
    let mut out = String::new();
    Layout::default().block(node, 0, &mut out);
    out + "\n"
}

fn value_of(node: &Node) -> Value {
    match &node.content {
        Content::Sequence { items, .. } => items.iter().map(|slot| value_of(&slot.item)).collect(),
        Content::Mapping { entries, .. } => {
            let member = |slot: &Slot<crate::node::Entry>| {
                let name = slot.item.key.meaning().and_then(name_of).unwrap_or_default();
                (name, value_of(&slot.item.value))
            };
            Value::Object(entries.iter().map(member).collect::<Map<_, _>>())
        }
        _ => match node.meaning() {
            Some(Meaning::Bool(value)) => Value::Bool(value),
            Some(Meaning::Number(number)) => number_of(&number),
            Some(Meaning::String(text)) => Value::String(text.to_owned()),
            _ => Value::Null,
        },
    }
}

/// A number as it is sent: `1e3` and `1000.0` are `1000`, as Go writes them.
fn number_of(text: &str) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number: Value = serde_json::from_str(text).unwrap_or_default();
    match number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() < EXACT) {
        Some(whole) => serde_json::from_str(&format!("{whole:.0}")).unwrap_or(number),
        None => number,
    }
}
