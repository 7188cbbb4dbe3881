//! JSON patches: explicit operations, the difference of two values, the change of a typed object, and what a patch may
//! touch.

mod align;
mod change;
mod diff;
mod merge;
mod paths;
pub(crate) mod touched;

use json_patch::PatchOperation;
use serde::Serialize;
use serde_json::Value;
use snafu::{ResultExt, Snafu, ensure};

pub use change::ChangeError;
pub use paths::{AllowedPath, AllowedPaths, ForbiddenPath, InvalidAllowedPath};

/// What all `copy` operations of a patch may add up to before the API server refuses it: its default
/// `JSONPatchMaxCopyBytes`.
const MOST_COPIED: usize = 3 * 1024 * 1024;
/// How deep a patch may nest values: twice as deep as JSON that is read. `copy` of a value to the deepest place in it
/// doubles its depth, and values are dropped recursively.
const DEEPEST_RESULT: usize = 256;

/// How many characters of a text an error message quotes.
const LONGEST_TEXT: usize = 100;

/// A JSON patch (RFC 6902), ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: json_patch::Patch,
}

/// The operations are not a JSON patch.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read the operations as a JSON patch (RFC 6902): {source}"))]
pub struct InvalidPatch {
    source: serde_json::Error,
}

/// Why a patch does not apply to a value.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum ApplyError {
    /// A place is missing, an index is outside its list, a test failed.
    #[snafu(display("operation {index} of the patch failed at {path:?}: {reason}"))]
    Operation {
        /// Number of the operation, from 0.
        index: usize,
        /// Where the operation was to be done.
        path: String,
        /// What is wrong.
        reason: json_patch::PatchErrorKind,
    },
    /// The API server can only `replace` or `test` the whole object.
    #[snafu(display(
        "operation {index} of the patch is for the whole object: the API server accepts \
         only replace, with an object or a list, and test"
    ))]
    WholeObject {
        /// Number of the operation, from 0.
        index: usize,
    },
    /// The API server limits what `copy` operations add.
    #[snafu(display(
        "operation {index} of the patch copies too much: in all copies, the API server accepts {MOST_COPIED} bytes"
    ))]
    Copies {
        /// Number of the operation, from 0.
        index: usize,
    },
    /// What comes out is not the object any more.
    #[snafu(display(
        "the patch makes {field} {found}, which was {before}: accepted is an object of the same apiVersion and kind, with \
         metadata"
    ))]
    AnotherObject {
        /// `the object`, `apiVersion`, `kind` or `metadata`.
        field: &'static str,
        /// What it became: a text, or what kind of value.
        found: String,
        /// What it was.
        before: String,
    },
    /// Values nested beyond all reason.
    #[snafu(display("operation {index} of the patch nests values deeper than {DEEPEST_RESULT} levels"))]
    TooDeep {
        /// Number of the operation, from 0.
        index: usize,
    },
}

impl JsonPatch {
    /// Takes anything that serialises to a list of RFC 6902 operations.
    ///
    /// ```
    /// use lucid_webhook::JsonPatch;
    /// use serde_json::json;
    ///
    /// let patch = JsonPatch::from_operations(&json!([{"op": "add", "path": "/metadata/labels", "value": {}}]))?;
    /// assert!(!patch.is_empty());
    /// # Ok::<(), lucid_webhook::InvalidPatch>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When it serialises to something else.
    pub fn from_operations(operations: &impl Serialize) -> Result<Self, InvalidPatch> {
        let value = serde_json::to_value(operations).context(InvalidPatchSnafu)?;
        let operations = serde_json::from_value(value).context(InvalidPatchSnafu)?;
        Ok(Self { operations })
    }

    /// The patch that turns `before` into `after`.
    ///
    /// List elements are recognised by the keys that Kubernetes merges lists by (`name`, `mountPath`, `containerPort`
    /// and `protocol`, …) or else by equality: an element that is prepended, inserted or removed is one operation, and
    /// a change within one is an operation at the place of the change. Beyond a certain amount of change, a list is
    /// replaced as a whole. Values are compared as JSON writes them: 1 and 1.0 differ, as do null and absent.
    ///
    /// This removes what `after` does not have. After a round through a type that does not know every field, use
    /// [`JsonPatch::of_change`].
    ///
    /// ```
    /// use lucid_webhook::JsonPatch;
    /// use serde_json::json;
    ///
    /// let before = json!({"containers": [{"name": "app", "image": "a"}]});
    /// let after = json!({"containers": [{"name": "proxy"}, {"name": "app", "image": "a"}]});
    /// let patch = JsonPatch::diff(&before, &after);
    /// let add = json!([{"op": "add", "path": "/containers/0", "value": {"name": "proxy"}}]);
    /// assert_eq!(serde_json::to_value(patch.operations())?, add);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn diff(before: &Value, after: &Value) -> Self {
        Self { operations: json_patch::Patch(diff::diff(before, after)) }
    }

    /// What becomes of `value`.
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
    /// When an operation fails, here or in the API server, which refuses more: see [`ApplyError`].
    pub fn apply(&self, value: &Value) -> Result<Value, ApplyError> {
        let mut value = value.clone();
        let mut copied = 0_usize;
        for (index, operation) in self.operations.iter().enumerate() {
            ensure!(!is_for_whole_object(operation), WholeObjectSnafu { index });
            let put = match operation {
                PatchOperation::Add(adding) => Some(&adding.value),
                PatchOperation::Replace(replacing) => Some(&replacing.value),
                PatchOperation::Move(moving) => value.pointer(moving.from.as_str()),
                PatchOperation::Copy(copying) => value.pointer(copying.from.as_str()),
                PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
            };
            let levels = operation.path().count() + put.map_or(0, depth);
            ensure!(levels <= DEEPEST_RESULT, TooDeepSnafu { index });
            if let (PatchOperation::Copy(_), Some(source)) = (operation, put) {
                copied = copied.saturating_add(source.to_string().len());
                ensure!(copied <= MOST_COPIED, CopiesSnafu { index });
            }
            // One by one, and not json_patch::patch: its way back from a failed `move` panics.
            json_patch::patch_unsafe(&mut value, std::slice::from_ref(operation)).map_err(|error| {
                let path = operation.path().to_string();
                OperationSnafu { index, path, reason: error.kind }.build()
            })?;
        }
        Ok(value)
    }

    /// What becomes of an object of the Kubernetes API: as [`Self::apply`], but the outcome has to be an object, of the
    /// same `apiVersion` and `kind`, with `metadata` that are an object still.
    ///
    /// The API server refuses another kind of object, and fills in what a built-in type lacks only for some requests.
    ///
    /// # Errors
    ///
    /// When an operation fails, or the outcome is no such object.
    pub fn apply_to_object(&self, object: &Value) -> Result<Value, ApplyError> {
        let after = self.apply(object)?;
        let another = |field, found: Option<&Value>, before: Option<&Value>| {
            AnotherObjectSnafu { field, found: describe(found), before: describe(before) }.fail()
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

    /// Whether there is nothing to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.0.is_empty()
    }

    /// The operations.
    #[must_use]
    pub const fn operations(&self) -> &json_patch::Patch {
        &self.operations
    }
}

impl From<json_patch::Patch> for JsonPatch {
    fn from(operations: json_patch::Patch) -> Self {
        Self { operations }
    }
}

/// Whether an operation on the whole is one that the API server's library (`evanphx/json-patch` 4) refuses: it puts
/// values into their parent, which the whole does not have, and `replace` of the whole takes containers only. That a
/// list is no object of the API is for [`JsonPatch::apply_to_object`] to say.
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

/// A value in an error message, which quotes no objects.
fn describe(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => format!("{:?}", text.chars().take(LONGEST_TEXT).collect::<String>()),
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
