//! The API server accepts the rendered chart, and Pod Security `restricted` admits its pods.

use lucid_e2e::ClusterExt as _;
use lucid_testbed::Cluster;
use serde_yaml::{Mapping, Value};

use super::{documents, key, pods, template};

/// Values that enable as many features as possible at once.
const EVERYTHING: &[&str] = &[
    "webhooks.validating.by=both",
    "webhooks.clientCa.configMap=api-server",
    "verifier.enabled=true",
    "verifier.tlsSecret=verifier",
    "verifier.token.secret=verifier-token",
    "notary.ca.configMap=verifier-ca",
    "notary.token.secret=verifier-token",
    "notary.clientCertificate.secret=verifier-client",
    "cainjector.enabled=true",
    "networkPolicy.enabled=true",
    "networkPolicy.apiServerCidrs={10.0.0.1/32,fd00::/8}",
    "policy.exemptions[0].name=mirrors",
    "policy.exemptions[0].images={docker.io/mirror}",
    "catalogue.chain[0].name=pii",
    "catalogue.chain[0].image=r.test/pii:1",
    "decisions.token.secret=token",
    "operator.priorityClassName=system-cluster-critical",
    "operator.maxUnavailable=50%",
    "operator.extraEnv[0].name=SSL_CERT_FILE",
    "operator.extraEnv[0].value=/etc/ssl/ours/ca.pem",
    "operator.extraVolumes[0].name=ours",
    "operator.extraVolumes[0].configMap.name=ours",
    "operator.extraVolumeMounts[0].name=ours",
    "operator.extraVolumeMounts[0].mountPath=/etc/ssl/ours",
];
const WITH_LOG: &[&str] =
    &["decisions.log.volume=persistentVolumeClaim", "decisions.log.key.secret=lucid-decisions"];

async fn rendered(log: bool) -> Vec<Value> {
    let values = [EVERYTHING, if log { WITH_LOG } else { &[] }].concat();
    documents(&template("lucid-system", &values, &[]).await.unwrap())
}

fn text(documents: &[Value]) -> String {
    documents.iter().map(|it| format!("---\n{}", serde_yaml::to_string(it).unwrap())).collect()
}

/// Runs `kubectl create --dry-run=server`, which rejects unknown fields.
fn create(cluster: &Cluster, documents: &[Value]) -> Result<(), String> {
    let arguments = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
    let output = cluster.kubectl(&arguments, &text(documents)).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    // Warnings of Pod Security at level `warn` and of deprecated versions would appear here.
    if output.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
}

/// The pod that a controller would create.
fn pod(document: &Value, namespace: &str) -> Value {
    let mut spec = pods(document).unwrap().clone();
    for claim in document["spec"]["volumeClaimTemplates"].as_sequence().into_iter().flatten() {
        let volume =
            serde_yaml::to_value(serde_json::json!({"name": claim["metadata"]["name"], "emptyDir": {}}));
        let volumes =
            spec.as_mapping_mut().unwrap().entry("volumes".into()).or_insert(Value::Sequence(vec![]));
        volumes.as_sequence_mut().unwrap().push(volume.unwrap());
    }
    // The ServiceAccount does not exist in a dry run.
    spec.as_mapping_mut().unwrap().remove("serviceAccountName");
    let metadata = serde_json::json!({"name": key(document).1, "namespace": namespace});
    let members = [
        ("apiVersion", "v1".into()),
        ("kind", "Pod".into()),
        ("metadata", serde_yaml::to_value(metadata).unwrap()),
        ("spec", spec),
    ];
    Value::Mapping(members.into_iter().map(|(key, value)| (Value::from(key), value)).collect::<Mapping>())
}

#[tokio::test]
async fn objects_are_valid_and_pods_satisfy_restricted() {
    let cluster = Cluster::builder().start().await.unwrap();
    let level = "pod-security.kubernetes.io/enforce";
    cluster.create_namespace("lucid-system", &[(level, "restricted")]).await.unwrap();
    let mut seen = Vec::new();
    for log in [false, true] {
        let documents = rendered(log).await;
        create(&cluster, &documents).unwrap();
        let with_pods: Vec<_> = documents.iter().filter(|it| pods(it).is_some()).collect();
        for document in with_pods {
            create(&cluster, &[pod(document, "lucid-system")])
                .unwrap_or_else(|said| panic!("{:?}: {said}", key(document)));
            // The level is enforced: without its security context the same pod is denied.
            let mut loose = pod(document, "lucid-system");
            loose["spec"].as_mapping_mut().unwrap().remove("securityContext");
            let said = create(&cluster, &[loose]).unwrap_err();
            assert!(said.contains("violates PodSecurity \"restricted"), "{said}");
            seen.push(format!("{} {}", key(document).0, key(document).1));
        }
    }
    for workload in [
        "Deployment lucid-operator",
        "Deployment lucid-validator",
        "StatefulSet lucid-validator",
        "Deployment lucid-verifier",
        "Deployment lucid-cainjector",
        "Job lucid-uninstall",
        "Pod lucid-check",
    ] {
        assert!(seen.iter().any(|it| it == workload), "{workload} is not in {seen:?}");
    }
}
