//! Decodes patched objects.

use serde_json::Value;

/// API groups with types built into kube-apiserver; the core group is the empty text.
const BUILT_IN: [&str; 22] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Decodes a patched object as the API server does: it has to be of the kind that was `sent`.
///
/// For built-in types, a missing `apiVersion` or `kind` is filled in.
pub(super) fn decode_patched(mut patched: Value, sent: &Value) -> Result<Value, String> {
    let type_name = type_name(&patched);
    let Value::Object(fields) = &mut patched else {
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {type_name} into Go value"
        ));
    };
    let text = |fields: &serde_json::Map<String, Value>, field| {
        fields.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let group =
        sent["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    if BUILT_IN.contains(&group.unwrap_or_default()) {
        for field in ["apiVersion", "kind"] {
            if text(fields, field).is_empty() {
                fields.insert(field.to_owned(), sent[field].clone());
            }
        }
    }
    let (api_version, kind) = (text(fields, "apiVersion"), text(fields, "kind"));
    if let Some(metadata) =
        fields.get("metadata").filter(|metadata| !metadata.is_object() && !metadata.is_null())
    {
        let type_name = self::type_name(metadata);
        return Err(format!(
            "json: cannot unmarshal {type_name} into Go struct field {kind}.metadata of type v1.ObjectMeta"
        ));
    }
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{patched}'"));
    }
    if sent["apiVersion"] != *api_version || sent["kind"] != *kind {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
    }
    Ok(patched)
}

const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
