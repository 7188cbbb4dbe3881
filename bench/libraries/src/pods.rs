//! Pods as kube-apiserver hands them to a webhook; the same pod is always the same text.

use serde_json::{Map, Value, json};

/// Returns a pod of exactly 10 KB, as a ReplicaSet creates it for a model with a log collector.
pub(crate) fn ordinary() -> Value {
    let mut pod = small();
    pod["spec"]["containers"] = json!([container("model", 24, 5000), container("log-collector", 6, 9117)]);
    pod["spec"]["initContainers"] = json!([container("fetch-weights", 6, 0)]);
    pod["metadata"]["managedFields"] = managed_fields((0..12).map(managed_field));
    padded(pod, 10 << 10)
}

pub(crate) fn with_variables(count: usize) -> Value {
    let mut pod = small();
    pod["spec"]["containers"][0]["env"] = (0..count).map(variable).collect();
    pod
}

pub(crate) fn with_annotations(count: usize) -> Value {
    let mut pod = small();
    for number in 0..count {
        pod["metadata"]["labels"][format!("example.com/label-{number}")] = json!(format!("v{number}"));
        pod["metadata"]["annotations"][format!("example.com/annotation-{number}")] =
            json!(format!("revision {number} of the \"orders\" service"));
    }
    pod
}

/// Returns the largest pod of at most `size` bytes.
pub(crate) fn of_size(size: usize, with: impl Fn(usize) -> Value) -> Value {
    let length = |count| with(count).to_string().len();
    // Numbers get longer: a little less, and the rest is padding.
    let mut count = size * 100 / (length(200) - length(100));
    while length(count) > size {
        count -= count.div_ceil(100);
    }
    padded(with(count), size)
}

fn padded(mut pod: Value, size: usize) -> Value {
    pod["metadata"]["annotations"]["example.com/notes"] = json!("");
    let padding = size.saturating_sub(pod.to_string().len());
    pod["metadata"]["annotations"]["example.com/notes"] = json!("n".repeat(padding));
    pod
}

fn small() -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "orders-7d4b9c6f5-",
            "namespace": "shop",
            "labels": {"app": "orders", "lucid.io/secured": "true", "pod-template-hash": "7d4b9c6f5"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9117"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "orders-7d4b9c6f5",
                "uid": "5e3f0c0e-6f0f-4a53-b8ed-4e7c0a3a1c55", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "containers": [container("model", 0, 5000)],
            "volumes": [
                {"name": "weights", "emptyDir": {"sizeLimit": "20Gi"}},
                {"name": "configuration", "configMap": {"name": "orders", "defaultMode": 420}},
                {"name": "kube-api-access-5x9zd", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ]}},
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "orders",
            "serviceAccount": "orders",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    })
}

/// A container as the API server completes it; it declares no port when that is 0.
fn container(name: &str, variables: usize, port: u16) -> Value {
    let mut container = json!({
        "name": name,
        "image": format!("registry.example.com/shop/{name}@sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
        "args": ["--log-format=json", format!("--name={name}")],
        "env": (0..variables).map(variable).collect::<Vec<_>>(),
        "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
        "volumeMounts": [
            {"name": "weights", "mountPath": "/weights"},
            {"name": "configuration", "readOnly": true, "mountPath": "/etc/orders"},
            {"name": "kube-api-access-5x9zd", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    if port != 0 {
        container["ports"] = json!([{"name": "http", "containerPort": port, "protocol": "TCP"}]);
        container["readinessProbe"] = json!({
            "httpGet": {"path": "/ready", "port": port, "scheme": "HTTP"},
            "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3,
        });
    }
    container
}

fn variable(number: usize) -> Value {
    match number % 8 {
        7 => {
            json!({"name": format!("ORDERS_SECRET_{number}"), "valueFrom": {"secretKeyRef": {"name": "orders", "key": format!("key-{number}")}}})
        }
        5 => {
            json!({"name": format!("ORDERS_SETTING_{number}"), "value": format!("\"{number}\" of https://config.example.com/")})
        }
        _ => {
            json!({"name": format!("ORDERS_SETTING_{number}"), "value": format!("https://config.example.com/{number}")})
        }
    }
}

fn managed_fields(fields: impl Iterator<Item = (String, Value)>) -> Value {
    let fields: Map<_, _> = fields.collect();
    json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-05T08:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"model\"}": {".": {}, "f:env": fields}}}},
    }])
}

fn managed_field(number: usize) -> (String, Value) {
    (format!("k:{{\"name\":\"ORDERS_SETTING_{number}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}}))
}
