//! Finds the pods and pod templates in a manifest.

use std::fmt;
use std::ops::Deref;

use json_patch::jsonptr::PointerBuf;
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation,
    TestOperation,
};
use serde_json::Value;

use crate::documents::{Object, objects};

/// One pod or pod template of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodTemplate {
    object: Object,
    /// JSON pointer to the pod or pod template in the document.
    pub(super) pod: PointerBuf,
}

impl PodTemplate {
    /// Returns all workloads of a document, in order. Unknown kinds have none.
    pub(super) fn all(document: &Value) -> Vec<Self> {
        let with_pod = |object: Object| {
            let pod = format!("{}{}", object.pointer, path_of_pod(&object.api_version, &object.kind)?);
            let pod = PointerBuf::parse(pod).ok()?;
            document.pointer(pod.as_str())?;
            Some(Self { object, pod })
        };
        objects(document).into_iter().filter_map(with_pod).collect()
    }

    /// Returns the pod as JSON.
    pub(super) fn json(&self, document: &Value) -> String {
        document.pointer(self.pod.as_str()).unwrap_or(&Value::Null).to_string()
    }

    /// Converts `patch` on the pod to operations on the document.
    pub(super) fn operations(&self, patch: Patch) -> Vec<PatchOperation> {
        let mut operations = patch.0;
        for operation in &mut operations {
            match operation {
                PatchOperation::Add(AddOperation { path, .. })
                | PatchOperation::Remove(RemoveOperation { path })
                | PatchOperation::Replace(ReplaceOperation { path, .. })
                | PatchOperation::Test(TestOperation { path, .. }) => *path = self.pod.concat(path),
                PatchOperation::Move(MoveOperation { from, path })
                | PatchOperation::Copy(CopyOperation { from, path }) => {
                    *from = self.pod.concat(from);
                    *path = self.pod.concat(path);
                }
            }
        }
        operations
    }

    /// Returns the operation that removes the object from its list, or `None` if it is the whole document.
    pub(super) fn removal(&self) -> Option<PatchOperation> {
        let path = PointerBuf::parse(self.pointer.as_str()).ok().filter(|_| !self.pointer.is_empty())?;
        Some(PatchOperation::Remove(RemoveOperation { path }))
    }
}

impl Deref for PodTemplate {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

/// Formats as the object.
impl fmt::Display for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

/// Returns the path of the pod or pod template in a kind.
fn path_of_pod(api_version: &str, kind: &str) -> Option<&'static str> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    Some(match (group, kind) {
        ("", "Pod") => "",
        ("", "ReplicationController")
        | ("apps" | "extensions", "Deployment" | "DaemonSet" | "ReplicaSet")
        | ("apps", "StatefulSet")
        | ("batch", "Job") => "/spec/template",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template",
        ("", "PodTemplate") => "/template",
        _ => return None,
    })
}
