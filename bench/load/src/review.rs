//! Reviews of pods, as kube-apiserver writes them, of any size; the same size is always the same text.

use std::cell::RefCell;

use bytes::Bytes;
use serde_json::{Map, Value, json};

/// Stands for the uid until a request is sent; as long as any uid.
const UID: &str = "00000000-0000-4000-8000-000000000000";
pub(crate) const UID_LENGTH: usize = UID.len();

pub(crate) struct Review(RefCell<Text>);

struct Text {
    bytes: Vec<u8>,
    uid: usize,
    number: u64,
}

impl Review {
    pub(crate) fn new(mut pod: Value, size: usize) -> Option<Self> {
        fill(&mut pod, size);
        let bytes = review(&pod).into_bytes();
        let uid = memchr::memmem::find(&bytes, UID.as_bytes())?;
        Some(Self(RefCell::new(Text { bytes, uid, number: 0 })))
    }

    pub(crate) fn next(&self) -> ([u8; UID_LENGTH], Bytes) {
        let Text { bytes, uid, number } = &mut *self.0.borrow_mut();
        *number += 1;
        let mut text = [0; UID_LENGTH];
        text[..UID_LENGTH - 12].copy_from_slice(&UID.as_bytes()[..UID_LENGTH - 12]);
        text[UID_LENGTH - 12..].copy_from_slice(format!("{number:012x}").as_bytes());
        bytes[*uid..*uid + UID_LENGTH].copy_from_slice(&text);
        (text, Bytes::copy_from_slice(bytes))
    }
}

/// A pod with as many containers as fit into a review of `size` bytes, but at least one.
pub(crate) fn pod_of(size: usize) -> Value {
    let (first, second) = (review(&pod(1)).len(), review(&pod(2)).len());
    let mut pod = pod(1 + size.saturating_sub(first) / (second - first));
    fill(&mut pod, size);
    pod
}

/// Sets an annotation with which the review has `size` bytes.
fn fill(pod: &mut Value, size: usize) {
    let mut set = |notes: String| {
        pod["metadata"]["annotations"]["example.com/notes"] = notes.into();
        review(pod).len()
    };
    let missing = size.saturating_sub(set(String::new()));
    set("n".repeat(missing));
}

fn review(pod: &Value) -> String {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "orders-7d4b9c6f5-x2x9k",
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "5e3f0c0e-6f0f-4a53-b8ed-4e7c0a3a1c55",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": pod,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
    .to_string()
}

fn pod(containers: usize) -> Value {
    let fields: Map<String, Value> = (0..containers).map(managed).collect();
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "orders-7d4b9c6f5-x2x9k",
            "generateName": "orders-7d4b9c6f5-",
            "namespace": "shop",
            "labels": {
                "app": "orders", "example-validation": "true", "lucid.io/secured": "true",
                "pod-template-hash": "7d4b9c6f5",
            },
            "annotations": {"example.com/notes": "", "lucid.computing/target-port": "8080"},
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-05T08:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:containers": fields}},
            }],
        },
        "spec": {
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "volumes": [{"name": "settings", "configMap": {"name": "orders"}}],
            "restartPolicy": "Always",
            "serviceAccountName": "orders",
        },
        "status": {},
    })
}

const VARIABLES: usize = 12;
/// Digest of all images of the application.
const DIGEST: &str = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";

fn container(number: usize) -> Value {
    // The first one is small, so that small reviews can be made.
    if number == 0 {
        return json!({"name": "orders", "image": format!("registry.example.com/shop/orders@{DIGEST}"), "resources": {}});
    }
    let variables = (0..VARIABLES).map(|variable| {
        json!({"name": format!("ORDERS_SETTING_{variable}"), "value": format!("\"{number:04}\" of https://config.example.com/{variable}")})
    });
    json!({
        "name": format!("worker-{number:04}"),
        "image": format!("registry.example.com/shop/worker-{number:04}@{DIGEST}"),
        "args": ["--listen=:8080", "--log-format=json", format!("--queue=orders-{number:04}")],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": variables.collect::<Vec<_>>(),
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "volumeMounts": [{"name": "settings", "readOnly": true, "mountPath": "/etc/orders/settings"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    })
}

fn managed(number: usize) -> (String, Value) {
    let fields = json!({".": {}, "f:image": {}, "f:env": {".": {}}, "f:ports": {".": {}}, "f:resources": {}});
    (format!("k:{{\"name\":\"worker-{number:04}\"}}"), fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_have_the_requested_size_and_parse() {
        for size in [2 << 10, 10 << 10, 100 << 10, 3 << 19] {
            let review = review(&pod_of(size));
            assert_eq!(review.len(), size);
            let value: Value = serde_json::from_str(&review).unwrap();
            let padding = value["request"]["object"]["metadata"]["annotations"]["example.com/notes"].as_str();
            assert!(padding.unwrap().len() < 5000, "{size}: most of it is a real pod");
        }
    }

    #[test]
    fn uids_differ_and_keep_their_place() {
        let review = Review::new(pod_of(2048), 2048).unwrap();
        let ((one, first), (two, second)) = (review.next(), review.next());
        assert_ne!(one, two);
        assert_eq!(two, *b"00000000-0000-4000-8000-000000000002");
        assert!(memchr::memmem::find(&second, &two).is_some());
        assert_eq!(second.len(), first.len());
        let (mut last, mut number) = (two, 2);
        while number < 0xabc {
            (last, number) = (review.next().0, number + 1);
        }
        assert_eq!(last, *b"00000000-0000-4000-8000-000000000abc");
    }
}
