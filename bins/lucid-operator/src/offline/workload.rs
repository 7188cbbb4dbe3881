//! The pods in a manifest: as such, or as templates from which controllers create them.

use std::fmt;

use json_patch::PatchOperation;
use json_patch::jsonptr::PointerBuf;
use lucid_chain::Patch;
use serde_json::Value;

/// How deep lists may stand in each other.
const DEPTH: usize = 8;

/// One pod or pod template of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// JSON pointer to the object in the document.
    pub(super) object: String,
    /// JSON pointer to the pod or pod template in the document.
    pub(super) pod: String,
}

impl Workload {
    /// All of a document, in order. Kinds that are not known have none.
    pub(super) fn all(document: &Value) -> Vec<Self> {
        let mut found = Vec::new();
        collect(document, None, String::new(), DEPTH, &mut found);
        found
    }

    /// The pod as JSON.
    pub(super) fn json(&self, document: &Value) -> String {
        document.pointer(&self.pod).unwrap_or(&Value::Null).to_string()
    }

    /// The operations on the document that are `patch` on the pod.
    pub(super) fn operations(&self, patch: &Patch) -> Vec<PatchOperation> {
        let Ok(Value::Array(operations)) = serde_json::to_value(patch) else { return Vec::new() };
        let moved = operations.into_iter().filter_map(|mut operation| {
            let path = format!("{}{}", self.pod, operation["path"].as_str()?);
            operation["path"] = path.into();
            serde_json::from_value(operation).ok()
        });
        moved.collect()
    }

    /// The operation that takes the object out of its list; an object that is the document has none.
    pub(super) fn removal(&self) -> Option<PatchOperation> {
        let path = PointerBuf::parse(self.object.as_str()).ok().filter(|_| !self.object.is_empty())?;
        Some(PatchOperation::Remove(json_patch::RemoveOperation { path }))
    }
}

/// `Deployment shop/web`.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_debug();
        match &self.namespace {
            Some(namespace) => write!(f, "{} {}/{name}", self.kind, namespace.escape_debug()),
            None => write!(f, "{} {name}", self.kind),
        }
    }
}

fn collect(
    object: &Value,
    item_of: Option<(&str, &str)>,
    at: String,
    depth: usize,
    found: &mut Vec<Workload>,
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
                collect(item, item_of, format!("{at}/items/{place}"), depth - 1, found);
            }
        }
        return;
    }
    let Some(template) = template(api_version, kind) else { return };
    let pod = format!("{at}{template}");
    if object.pointer(template).is_none() {
        return;
    }
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or("(without a name)");
    found.push(Workload {
        kind: kind.to_owned(),
        namespace: metadata["namespace"].as_str().filter(|it| !it.is_empty()).map(str::to_owned),
        name: name.to_owned(),
        object: at,
        pod,
    });
}

/// Where a kind has its pod.
fn template(api_version: &str, kind: &str) -> Option<&'static str> {
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
