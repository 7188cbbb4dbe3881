//! Containers from `auditors.yaml`, as accepted and stored by the API server.

use crate::common::{create, has_kubernetes};
use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
use lucid_e2e::ClusterExt as _;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

/// Security context and probes of the container of an entry with `members` in addition to its name and image.
fn container(members: &str) -> Value {
    let yaml = format!("chain: [{{name: a, image: a, {members}}}]");
    let catalogue =
        Catalogue::parse("auditors.yaml", &yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
    let configuration = Configuration::new(catalogue, Some(&["a".to_owned()])).unwrap();
    let pod =
        json!({"spec": {"containers": [{"name": "web", "ports": [{"containerPort": 5000}]}]}}).to_string();
    let pod = PodView::from_json(&pod).unwrap();
    let Decision::Planned(plan) =
        plan(&pod, &Inputs { forced: true, ..Inputs::new(&configuration) }).decision
    else {
        panic!("no chain for {yaml}")
    };
    let mut container = plan.containers[0].manifest();
    container.as_object_mut().unwrap().retain(|key, _| key == "securityContext" || key.ends_with("Probe"));
    container
}

/// Creates a pod of one container with these keys, and returns the stored container.
async fn stored(cluster: &Cluster, name: &str, keys: &Value) -> Result<Value, String> {
    let mut container = json!({"name": "a", "image": "registry.example/a:1"});
    container.as_object_mut().unwrap().append(&mut keys.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}});
    create(cluster, "strict", &pod).await.result?;
    let request = http::Request::get(format!("/api/v1/namespaces/strict/pods/{name}")).body(vec![]).unwrap();
    let pod: Value = cluster.client().request(request).await.unwrap();
    Ok(pod["spec"]["containers"][0].clone())
}

#[tokio::test]
async fn entries_satisfy_restricted_and_are_stored_unchanged() {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster
        .create_namespace("strict", &[("pod-security.kubernetes.io/enforce", "restricted")])
        .await
        .unwrap();

    let accepted = [
        "description: nothing besides",
        "probes: {readiness: {}, liveness: {}, startup: {}}",
        "probes: {readiness: {path: '/a?b=%20#c', initialDelaySeconds: 1, periodSeconds: 2, timeoutSeconds: 3,
                              successThreshold: 4, failureThreshold: 5}}",
        "probes: {readiness: {initialDelaySeconds: 2147483647, periodSeconds: 2147483647,
                              timeoutSeconds: 2147483647, successThreshold: 2147483647, failureThreshold: 2147483647}}",
        "probes: {liveness: {successThreshold: 1, initialDelaySeconds: 0}, startup: {successThreshold: 1}}",
        "securityContext: {runAsGroup: 1, seLinuxOptions: {type: container_t}}",
        "securityContext: {runAsGroup: 2147483647, appArmorProfile: {type: RuntimeDefault}}",
        "securityContext: {seccompProfile: {type: Localhost, localhostProfile: a/b.json},
                           appArmorProfile: {type: Localhost, localhostProfile: /usr/bin/auditor}}",
    ];
    for (number, members) in accepted.iter().enumerate() {
        let written = container(members);
        let found = stored(&cluster, &format!("accepted-{number}"), &written).await;
        let found = found.unwrap_or_else(|refusal| panic!("{members}: {refusal}"));
        for key in ["securityContext", "readinessProbe", "livenessProbe", "startupProbe"] {
            assert_eq!(found.get(key), written.get(key), "{members}: {key}");
        }
    }

    // The catalogue has the limits of the API server.
    let hardened = container("probes: {readiness: {}, liveness: {}, startup: {}}");
    let refused = [
        ("/livenessProbe/successThreshold", json!(2)),
        ("/startupProbe/successThreshold", json!(2)),
        ("/readinessProbe/periodSeconds", json!(-1)),
        ("/readinessProbe/periodSeconds", json!(2_147_483_648_u32)),
        ("/securityContext/runAsGroup", json!(2_147_483_648_u32)),
        ("/securityContext/privileged", json!(true)),
        ("/securityContext/procMount", json!("Unmasked")),
        ("/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/securityContext/capabilities", json!({"drop": ["NET_RAW"]})),
        ("/securityContext/capabilities", json!({"drop": ["ALL"], "add": ["NET_ADMIN"]})),
        ("/securityContext/runAsNonRoot", json!(false)),
        ("/securityContext/seccompProfile", json!({"type": "Unconfined"})),
        ("/securityContext/seccompProfile", json!({"type": "Localhost"})),
        ("/securityContext/seccompProfile", json!({"type": "Localhost", "localhostProfile": "../a"})),
        ("/securityContext/seccompProfile", json!({"type": "RuntimeDefault", "localhostProfile": "a"})),
        ("/securityContext/appArmorProfile", json!({"type": "Unconfined"})),
        ("/securityContext/appArmorProfile", json!({"type": "Localhost", "localhostProfile": "a "})),
        (
            "/securityContext/appArmorProfile",
            json!({"type": "Localhost", "localhostProfile": "a".repeat(4096)}),
        ),
        ("/securityContext/seLinuxOptions", json!({"type": "spc_t"})),
        ("/securityContext/seLinuxOptions", json!({"user": "system_u"})),
    ];
    for (number, (pointer, value)) in refused.iter().enumerate() {
        // Dropped by earlier versions.
        if pointer.ends_with("procMount") && !has_kubernetes(&cluster, 33, "procMount").await {
            continue;
        }
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let mut written = hardened.clone();
        written.pointer_mut(parent).unwrap()[key] = value.clone();
        let found = stored(&cluster, &format!("refused-{number}"), &written).await;
        assert!(found.is_err(), "{pointer} {value}: {found:?}");
    }
}
