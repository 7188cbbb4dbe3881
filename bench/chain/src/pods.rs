//! Pods as kube-apiserver hands them to a webhook, of any size and of several shapes; the same pod is always the same
//! text.

use serde_json::{Map, Value, json};

/// Dimension in which a pod is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Variables of one container.
    Env,
    /// Containers, each with variables, probes, mounts and resources.
    Containers,
    /// Init containers, likewise.
    InitContainers,
    /// Small annotations and labels.
    Annotations,
    /// Fields that planning does not read, small ones: node affinity.
    Unknown,
    /// One long text in an annotation, with line breaks: a configuration file.
    Text,
    /// managedFields with escaped keys.
    ManagedFields,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Env,
        Self::Containers,
        Self::InitContainers,
        Self::Annotations,
        Self::Unknown,
        Self::Text,
        Self::ManagedFields,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Containers => "containers",
            Self::InitContainers => "init containers",
            Self::Annotations => "annotations, labels",
            Self::Unknown => "fields not read",
            Self::Text => "one long annotation",
            Self::ManagedFields => "managedFields",
        }
    }
}

/// A pod of exactly `size` bytes, most of them of `shape`, the last few padding in an annotation.
pub fn of_size(shape: Shape, size: usize) -> Value {
    let length = |count| of_count(shape, count).to_string().len();
    let (base, more) = (length(0), length(100));
    // Numbers get longer: a little less, and the rest is padding.
    let mut count = size.saturating_sub(base) * 100 / (more - base);
    while count > 0 && length(count) > size {
        count -= count.div_ceil(100);
    }
    padded(of_count(shape, count), size)
}

/// A pod with that many variables.
pub fn with_variables(count: usize) -> Value {
    of_count(Shape::Env, count)
}

/// Returns a pod of exactly 10 KB, as a ReplicaSet creates it for a model with a log collector.
pub fn ordinary() -> Value {
    let mut pod = small();
    pod["spec"]["containers"] = json!([container("model", 24, 5000), container("log-collector", 6, 9117)]);
    pod["spec"]["initContainers"] = json!([container("fetch-weights", 6, 0)]);
    pod["metadata"]["managedFields"] = managed_fields((0..12).map(managed_field));
    padded(pod, 10 << 10)
}

fn of_count(shape: Shape, count: usize) -> Value {
    let mut pod = small();
    match shape {
        Shape::Env => pod["spec"]["containers"][0]["env"] = (0..count).map(variable).collect(),
        Shape::Containers => {
            let containers = (0..count).map(|number| container(&format!("worker-{number}"), 12, 0));
            if let Some(list) = pod["spec"]["containers"].as_array_mut() {
                list.extend(containers);
            }
        }
        Shape::InitContainers => {
            let containers = (0..count).map(|number| container(&format!("setup-{number}"), 12, 0));
            pod["spec"]["initContainers"] = containers.collect();
        }
        Shape::Annotations => {
            for number in 0..count {
                pod["metadata"]["labels"][format!("example.com/label-{number}")] =
                    json!(format!("v{number}"));
                pod["metadata"]["annotations"][format!("example.com/annotation-{number}")] =
                    json!(format!("revision {number} of the \"orders\" service"));
            }
        }
        Shape::Unknown => {
            let term = |number| {
                json!({"weight": number % 100, "preference": {"matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("zone-{number}"), "any"]},
                ]}})
            };
            pod["spec"]["affinity"] = json!({"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": (0..count).map(term).collect::<Vec<_>>(),
            }});
        }
        Shape::Text => {
            let lines: String =
                (0..count).map(|number| format!("setting_{number}: \"value {number}\"\n")).collect();
            pod["metadata"]["annotations"]["example.com/configuration"] = json!(lines);
        }
        Shape::ManagedFields => {
            pod["metadata"]["managedFields"] = managed_fields((0..count).map(managed_field))
        }
    }
    pod
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
