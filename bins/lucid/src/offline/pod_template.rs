//! Finds the pods and pod templates in a manifest.

use std::fmt;
use std::ops::Deref;

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{
    AddOperation, CopyOperation, MoveOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation,
    TestOperation,
};
use serde_json::Value;

use crate::documents::{Object, Part};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodTemplate {
    object: Object,
    pod: PointerBuf,
}

impl PodTemplate {
    /// Returns all pods and pod templates of a part, in order. Unknown kinds have none.
    pub(super) fn all(part: &Part) -> Vec<Self> {
        let with_pod = |object: Object| {
            let pod = format!("{}{}", object.pointer, path_of_pod(&object.api_version, &object.kind)?);
            let pod = PointerBuf::parse(pod).ok()?;
            part.value.pointer(pod.as_str())?;
            Some(Self { object, pod })
        };
        part.objects().into_iter().filter_map(with_pod).collect()
    }

    pub(super) fn pod<'p>(&self, part: &'p Part) -> &'p Value {
        part.value.pointer(self.pod.as_str()).unwrap_or(&Value::Null)
    }

    pub(super) fn operations(&self, patch: Patch) -> Vec<PatchOperation> {
        prefixed(patch.0, &self.pod)
    }

    pub(super) fn removal(&self) -> PatchOperation {
        let path = PointerBuf::parse(self.pointer.as_str()).unwrap_or_default();
        PatchOperation::Remove(RemoveOperation { path })
    }
}

pub(super) fn prefixed(mut operations: Vec<PatchOperation>, prefix: &Pointer) -> Vec<PatchOperation> {
    for operation in &mut operations {
        match operation {
            PatchOperation::Add(AddOperation { path, .. })
            | PatchOperation::Remove(RemoveOperation { path })
            | PatchOperation::Replace(ReplaceOperation { path, .. })
            | PatchOperation::Test(TestOperation { path, .. }) => *path = prefix.concat(path),
            PatchOperation::Move(MoveOperation { from, path })
            | PatchOperation::Copy(CopyOperation { from, path }) => {
                *from = prefix.concat(from);
                *path = prefix.concat(path);
            }
        }
    }
    operations
}

impl Deref for PodTemplate {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl fmt::Display for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(f)
    }
}

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
