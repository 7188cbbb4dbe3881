#![allow(missing_docs, unreachable_pub)]
//! JSON patches.
use crate::review::RawObject;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use snafu::{ResultExt, Snafu};

#[derive(Debug, Snafu)]
pub struct ForbiddenPath {}
#[derive(Clone, Debug, serde::Deserialize)]
pub struct AllowedPaths;
impl AllowedPaths {
    pub(crate) fn check(&self, _: &Value, _: &JsonPatch) -> Result<(), ForbiddenPath> {
        Ok(())
    }
}
impl JsonPatch {
    pub fn of_change<T: Serialize + DeserializeOwned>(_: &RawObject, _: &T) -> Result<Self, InvalidPatch> {
        Self::from_operations(&serde_json::json!([]))
    }
}
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
