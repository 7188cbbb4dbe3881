//! Operator and validator with `hostNetwork`, for control planes that cannot reach pods.

use lucid_e2e::{ClusterExt as _, Installation, create_pod, eventually};
use serde_json::{Value, json};

use super::{pod, stored, values};
use crate::common::ENABLED;

const NAMESPACE: &str = "lucid-system";

#[tokio::test]
async fn host_network_serves_and_is_updated() {
    if !Installation::can_run() {
        return;
    }
    let site = Installation::prepare().await.unwrap();
    site.cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    let mut values = values();
    values["webhooks"] = json!({"validating": {"by": "both"}});
    values["policy"] = json!({"admissionMode": "enforce"});
    // The node has ports for one of each.
    let program = |webhook: u16, admin: u16| json!({"replicas": 1, "hostNetwork": true, "ports": {"webhook": webhook, "admin": admin}});
    values["operator"] = program(10261, 10262);
    values["validator"] = program(10263, 10264);
    site.install(&values.to_string()).await.unwrap();
    let before = names(&site).await;
    it_injects_and_judges(&site, "before").await;

    for program in ["operator", "validator"] {
        values[program]["podAnnotations"] = json!({"example.com/round": "2"});
    }
    site.install(&values.to_string()).await.unwrap();
    let after = names(&site).await;
    assert!(after.iter().all(|name| !before.contains(name)), "{before:?} {after:?}");
    it_injects_and_judges(&site, "after").await;
}

/// The pods of Lucid that serve webhooks, all at the address of the node.
async fn names(site: &Installation) -> Vec<String> {
    let selector = "app.kubernetes.io/name in (lucid-operator, lucid-validator)";
    // A terminating pod may be listed for a while.
    let pods = eventually("two pods", async || {
        let pods = site.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json"]).unwrap();
        let pods: Value = serde_json::from_str(&pods).unwrap();
        let pods = pods["items"].as_array().unwrap().clone();
        if pods.len() == 2 { Ok(pods) } else { Err(pods.len()) }
    })
    .await;
    for pod in &pods {
        assert_eq!(pod["spec"]["hostNetwork"], true);
        assert_eq!(pod["status"]["podIP"], pod["status"]["hostIP"]);
    }
    pods.iter().map(|pod| pod["metadata"]["name"].to_string()).collect()
}

/// A pod with a tier gets its chain, and both webhooks deny one without.
async fn it_injects_and_judges(site: &Installation, name: &str) {
    let mut manifest = pod(name, &json!({}));
    manifest["spec"]["schedulerName"] = json!("none");
    let client = site.cluster.client();
    let response = create_pod(&client, "shop", &manifest).await.unwrap();
    assert!(response.refusal().contains("label lucid.computing/tier is missing"), "{response:?}");
    manifest["metadata"]["labels"] = json!({"lucid.computing/tier": "A"});
    create_pod(&client, "shop", &manifest).await.unwrap().stored().unwrap();
    let made = stored(site, "shop", name).await["spec"].to_string();
    for auditor in ["lucid-injection-auditor", "lucid-toxicity-auditor"] {
        assert!(made.contains(auditor), "{made}");
    }
}
