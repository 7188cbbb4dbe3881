//! JSON patches: explicit operations, changes of a typed object, and restrictions.

mod align;
mod change;
mod diff;
mod paths;
pub(crate) mod touched;

use std::sync::OnceLock;

use bytes::Bytes;
use json_patch::PatchOperation;
use lucid_text::Excerpt;
use lucid_text::json::GoEscapes;
use serde::Serialize;
use serde_json::Value;
use snafu::{Snafu, ensure};

pub use paths::AllowedPaths;

/// Limit in bytes for all `copy` operations of a patch: the API server's default `JSONPatchMaxCopyBytes`.
const MOST_COPIED: usize = 3 * 1024 * 1024;
/// Maximum depth of a patched value: twice the depth of JSON that is read. A `copy` of a value to its deepest location
/// doubles its depth, and values are dropped recursively.
const DEEPEST_RESULT: usize = 256;

/// A JSON patch (RFC 6902), ready to be sent.
#[derive(Clone, Debug)]
pub struct JsonPatch(Form);

#[derive(Clone, Debug)]
enum Form {
    Operations(json_patch::Patch),
    /// Unparsed text. Its operations are parsed on first use.
    Text {
        text: Bytes,
        operations: OnceLock<json_patch::Patch>,
    },
}

/// A patch or an allowed path is invalid, or a patch does not apply or changes a forbidden field.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct PatchError {
    problem: String,
}

fn operations_error(source: serde_json::Error) -> PatchError {
    PatchSnafu { problem: format!("failed to read the operations as a JSON patch (RFC 6902): {source}") }
        .build()
}

impl JsonPatch {
    /// Creates a patch from any value that serializes to a list of RFC 6902 operations.
    ///
    /// ```
    /// use lucid_webhook::JsonPatch;
    /// use serde_json::json;
    ///
    /// let patch = JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/labels", "value": {}}]))?;
    /// assert!(!patch.is_empty());
    /// # Ok::<(), lucid_webhook::PatchError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`PatchError`] if it serializes to anything else.
    pub fn from_operations(operations: &impl Serialize) -> Result<Self, PatchError> {
        let value = serde_json::to_value(operations).map_err(operations_error)?;
        serde_json::from_value::<json_patch::Patch>(value).map(Self::from).map_err(operations_error)
    }

    pub(crate) fn from_slice(text: &[u8]) -> Result<Self, PatchError> {
        serde_json::from_slice::<json_patch::Patch>(text).map(Self::from).map_err(operations_error)
    }

    /// Creates a patch from JSON text without checking it; an empty text is an empty patch.
    ///
    /// The caller guarantees that it is a list of RFC 6902 operations, with Go's escapes (`\u003c` for `<`), that
    /// applies to the object of the request and changes allowed fields only. A property test is the place to show this.
    /// Debug builds check it, and any build does if an administrator sets `allowedPaths`. Use it where a patch is made
    /// of prepared parts, and reading them would cost more than the rest of the call;
    /// [`from_operations`](Self::from_operations) is right elsewhere.
    #[must_use]
    pub fn from_text_unchecked(text: impl Into<Bytes>) -> Self {
        Self(Form::Text { text: text.into(), operations: OnceLock::new() })
    }

    /// Returns `true` if the author of the patch guarantees that it applies.
    pub(crate) const fn is_unchecked(&self) -> bool {
        matches!(self.0, Form::Text { .. })
    }

    /// Fails if the text is not a list of operations.
    pub(crate) fn check_text(&self) -> Result<(), PatchError> {
        match &self.0 {
            Form::Text { text, .. } if !self.is_empty() => Self::from_slice(text).map(drop),
            _ => Ok(()),
        }
    }

    /// Returns the JSON text, with the same escapes as Go: the API server compares the value of a `test` operation byte
    /// by byte with its own serialization.
    pub(crate) fn text(&self) -> Result<Bytes, serde_json::Error> {
        match &self.0 {
            Form::Text { text, .. } => Ok(text.clone()),
            Form::Operations(operations) => {
                let mut text = Vec::with_capacity(1024);
                let mut serializer = serde_json::Serializer::with_formatter(&mut text, GoEscapes);
                operations.serialize(&mut serializer)?;
                Ok(text.into())
            }
        }
    }

    /// Applies the patch to a copy of `value`.
    ///
    /// ```
    /// use lucid_webhook::JsonPatch;
    /// use serde_json::json;
    ///
    /// let patch = JsonPatch::from_operations(&json!([{"op": "add", "path": "/a/0", "value": 1}]))?;
    /// assert_eq!(patch.apply(&json!({"a": [2]}))?, json!({"a": [1, 2]}));
    /// let error = patch.apply(&json!({})).unwrap_err();
    /// assert_eq!(error.to_string(), r#"operation 0 of the patch failed at "/a/0": path is invalid"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`PatchError`] if an operation fails here, or would fail in the stricter API server.
    pub fn apply(&self, value: &Value) -> Result<Value, PatchError> {
        let mut value = value.clone();
        let mut copied = 0_usize;
        for (index, operation) in self.operations().iter().enumerate() {
            let failed =
                |problem: &str| PatchSnafu { problem: format!("operation {index} of the patch {problem}") };
            ensure!(
                !is_for_whole_object(operation),
                failed(
                    "is for the whole object: the API server accepts only replace, with an object or a list, and test"
                )
            );
            let put = match operation {
                PatchOperation::Add(adding) => Some(&adding.value),
                PatchOperation::Replace(replacing) => Some(&replacing.value),
                PatchOperation::Move(moving) => value.pointer(moving.from.as_str()),
                PatchOperation::Copy(copying) => value.pointer(copying.from.as_str()),
                PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
            };
            let levels = operation.path().count() + put.map_or(0, depth);
            ensure!(
                levels <= DEEPEST_RESULT,
                failed(&format!("nests values deeper than {DEEPEST_RESULT} levels"))
            );
            if let (PatchOperation::Copy(_), Some(source)) = (operation, put) {
                copied = copied.saturating_add(source.to_string().len());
                ensure!(
                    copied <= MOST_COPIED,
                    failed(&format!(
                        "copies too much: in all copies, the API server accepts {MOST_COPIED} bytes"
                    ))
                );
            }
            // One operation at a time instead of `json_patch::patch`, whose rollback of a failed `move` panics.
            json_patch::patch_unsafe(&mut value, std::slice::from_ref(operation)).map_err(|error| {
                failed(&format!("failed at {:?}: {}", operation.path().as_str(), error.kind)).build()
            })?;
        }
        Ok(value)
    }

    /// Applies the patch to a copy of a Kubernetes object. In addition to [`Self::apply`], the result has to be an
    /// object of the same `apiVersion` and `kind`, and its `metadata` has to remain an object.
    ///
    /// The API server rejects other kinds of objects, and only sometimes fills in missing fields of built-in types.
    ///
    /// # Errors
    ///
    /// A [`PatchError`] if an operation fails or the result is a different object.
    pub fn apply_to_object(&self, object: &Value) -> Result<Value, PatchError> {
        let after = self.apply(object)?;
        let another = |field: &str, found: Option<&Value>, before: Option<&Value>| {
            let problem = format!(
                "the patch makes {field} {}, which was {}: expected an object of the same apiVersion and kind, with \
                 metadata",
                describe(found),
                describe(before)
            );
            PatchSnafu { problem }.fail()
        };
        if !after.is_object() {
            return another("the object", Some(&after), Some(object));
        }
        for field in ["apiVersion", "kind"] {
            let (found, before) = (after.get(field), object.get(field));
            if found != before {
                return another(field, found, before);
            }
        }
        let (found, before) = (after.get("metadata"), object.get("metadata"));
        if before.is_some_and(Value::is_object) && !found.is_some_and(Value::is_object) {
            return another("metadata", found, before);
        }
        Ok(after)
    }

    /// Returns `true` if the patch has no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Form::Operations(operations) => operations.is_empty(),
            Form::Text { text, .. } => matches!(text.trim_ascii(), b"" | b"[]"),
        }
    }

    /// The operations; none if an [unchecked text](Self::from_text_unchecked) is not a list of operations.
    #[must_use]
    pub fn operations(&self) -> &json_patch::Patch {
        match &self.0 {
            Form::Operations(operations) => operations,
            Form::Text { text, operations } => {
                operations.get_or_init(|| serde_json::from_slice(text).unwrap_or_default())
            }
        }
    }
}

impl From<json_patch::Patch> for JsonPatch {
    fn from(operations: json_patch::Patch) -> Self {
        Self(Form::Operations(operations))
    }
}

impl PartialEq for JsonPatch {
    fn eq(&self, other: &Self) -> bool {
        self.operations() == other.operations()
    }
}

/// Returns `true` for an operation on the root that the API server's library (`evanphx/json-patch` 4) rejects: it sets
/// values through their parent, which the root does not have, and `replace` of the root takes containers only.
/// [`JsonPatch::apply_to_object`] rejects lists.
fn is_for_whole_object(operation: &PatchOperation) -> bool {
    match operation {
        PatchOperation::Add(_) | PatchOperation::Remove(_) => operation.path().is_root(),
        PatchOperation::Move(moving) => moving.path.is_root() || moving.from.is_root(),
        PatchOperation::Copy(copying) => copying.path.is_root() || copying.from.is_root(),
        PatchOperation::Replace(replacing) => {
            replacing.path.is_root() && !replacing.value.is_object() && !replacing.value.is_array()
        }
        PatchOperation::Test(_) => false,
    }
}

/// Describes a value for an error message without quoting objects.
fn describe(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => Excerpt(text).to_string(),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_)) => "null, a number or a boolean".to_owned(),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 1,
    }
}
