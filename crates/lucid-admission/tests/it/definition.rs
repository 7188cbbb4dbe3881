//! The CustomResourceDefinition `auditors.lucid.computing`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use lucid_admission::auditor;
use lucid_chain::{Catalogue, RESERVED_ENV};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::kubectl::{apply, manifest, refusal, said};

#[test]
fn the_chart_has_the_definition() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/lucid/files/auditor-crd.yaml");
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        std::fs::write(path, auditor::CRD).unwrap();
    }
    // Without a diff, which would be very long.
    let is_same = std::fs::read_to_string(path).unwrap() == auditor::CRD;
    assert!(is_same, "run UPDATE_MANIFESTS=1 cargo test -p lucid-admission definition");
}

#[test]
fn the_definition_has_the_defaults_and_rules_of_the_catalogue() {
    let definition: CustomResourceDefinition = serde_yaml::from_str(auditor::CRD).unwrap();
    let (resource, names) = (auditor::resource(), &definition.spec.names);
    let [version] = &definition.spec.versions[..] else { panic!("there is not one version") };
    assert_eq!(definition.metadata.name.as_deref(), Some(auditor::CRD_NAME));
    assert_eq!((&definition.spec.group, &version.name), (&resource.group, &resource.version));
    assert_eq!((&names.kind, &names.plural), (&resource.kind, &resource.plural));
    let schema = serde_json::to_value(&version.schema).unwrap();
    let container = "/openAPIV3Schema/properties/spec/properties/container/properties";
    let container = schema.pointer(container).unwrap();
    assert_eq!(
        container["port"]["default"],
        Catalogue::parse_entry("{name: a, image: a}").unwrap().port().get()
    );
    let rules = &container["env"]["items"]["properties"]["name"]["x-kubernetes-validations"];
    let reserved = format!("!(self in {RESERVED_ENV:?})");
    assert!(rules.as_array().unwrap().iter().any(|rule| rule["rule"] == reserved), "{rules}");
}

async fn cluster() -> Cluster {
    let cluster = Cluster::builder().start().await.unwrap();
    let path = manifest("auditor-crd.yaml");
    said(&cluster, &["apply", "--server-side", "-f", path.to_str().unwrap()], "");
    said(&cluster, &["wait", "--for=condition=Established", "crd", auditor::CRD_NAME, "--timeout=60s"], "");
    cluster
}

fn auditor(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn invalid_objects_are_rejected_with_a_readable_message() {
    let cluster = cluster().await;
    let with = |key: &str, value: Value| json!({"image": "r.test/pii", "container": {key: value}});
    let long = "x".repeat(5000);
    for (name, spec, messages) in [
        ("pii", json!({}), &["spec.image: Required value"] as &[_]),
        ("pii", json!({"image": ""}), &["spec.image"]),
        ("pii", json!({"image": "not an image"}), &["spec.image", "must be an image reference such as"]),
        (
            "pii",
            json!({"image": "a", "description": long}),
            &["spec.description", "may not be more than 4096"],
        ),
        ("a.b", json!({"image": "a"}), &["the name of an auditor is a DNS label"]),
        ("pii", with("port", json!(0)), &["spec.container.port", "greater than or equal to 1"]),
        ("pii", with("port", json!(70000)), &["spec.container.port", "less than or equal to 65535"]),
        ("pii", with("prot", json!(1)), &["unknown field \"spec.container.prot\""]),
        (
            "pii",
            with("env", json!([{"name": "A B", "value": ""}])),
            &["spec.container.env[0].name", "does not start with a digit"],
        ),
        (
            "pii",
            with("env", json!([{"name": "PORT", "value": ""}])),
            &["spec.container.env[0].name", "are set by Lucid"],
        ),
        (
            "pii",
            with("env", json!([{"name": "A"}])),
            &["spec.container.env[0]", "must have value or valueFrom"],
        ),
        (
            "pii",
            with("env", json!([{"name": "A", "valueFrom": {}}])),
            &["env[0].valueFrom", "must have secretKeyRef or configMapKeyRef"],
        ),
        (
            "pii",
            with("env", json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])),
            &["unknown field \"spec.container.env[0].valueFrom.fieldRef\""],
        ),
        (
            "pii",
            with("files", json!([{"mountPath": "/a"}])),
            &["files[0]", "must have one of configMap, secret and image"],
        ),
        (
            "pii",
            with("files", json!([{"mountPath": "a", "configMap": {"name": "a"}}])),
            &["files[0].mountPath", "must be an absolute path"],
        ),
        (
            "pii",
            with("files", json!([{"mountPath": "/a", "hostPath": {"path": "/"}}])),
            &["unknown field \"spec.container.files[0].hostPath\""],
        ),
        (
            "pii",
            with("env", json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])),
            &["spec.container.env[1]: Duplicate value"],
        ),
        (
            "pii",
            with("resources", json!({"limits": {"cpu": "lots"}})),
            &["spec.container.resources.limits.cpu"],
        ),
        (
            "pii",
            with("probes", json!({"liveness": {"successThreshold": 2}})),
            &["successThreshold", "less than or equal to 1"],
        ),
        ("pii", with("probes", json!({"readiness": {"path": "x"}})), &["must be a path such as /health"]),
        (
            "pii",
            with("securityContext", json!({"runAsNonRoot": false})),
            &["runAsNonRoot: Unsupported value: false"],
        ),
        (
            "pii",
            with("securityContext", json!({"capabilities": {"add": ["NET_ADMIN"]}})),
            &["capabilities.add", "at most 0 items"],
        ),
        ("pii", with("securityContext", json!({"capabilities": {"drop": ["KILL"]}})), &["must name ALL"]),
        (
            "pii",
            with("securityContext", json!({"seccompProfile": {"type": "Localhost"}})),
            &["localhostProfile is needed with the type Localhost"],
        ),
        (
            "pii",
            with("securityContext", json!({"runAsUser": 0})),
            &["unknown field \"spec.container.securityContext.runAsUser\""],
        ),
    ] {
        let said = refusal(&cluster, &auditor(name, &spec));
        for message in messages {
            assert!(said.contains(message), "{spec}: {message:?} is not in {said}");
        }
    }
    let files = json!([
        {"mountPath": "/a", "configMap": {"name": "a"}}, {"mountPath": "/b/c", "secret": {"secretName": "b"}},
        {"mountPath": "/d", "image": {"reference": "r.test/d:1"}},
    ]);
    let env =
        json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b", "optional": true}}}]);
    let container = json!({"files": files, "env": env});
    apply(&cluster, &auditor("own", &json!({"image": "r.test/own:1", "container": container})));
    // All fields but the image are optional.
    apply(&cluster, &auditor("pii", &json!({"image": "r.test/pii:1"})));
    assert_eq!(said(&cluster, &["get", "aud", "pii", "-o", "jsonpath={.spec.container.port}"], ""), "8080");
}
