//! Replicas with different settings, as during a roll-out that changes the chain.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use lucid_e2e::{Answer, Operator, OperatorBuilder, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::common::{chain, cluster, create, expected, secured, stored, until};

const OLD: &[(&str, i32, &str)] = &[("lucid-injection-auditor", 8090, "http://localhost:5000")];

fn enforcing(builder: OperatorBuilder, chain: &str) -> OperatorBuilder {
    let builder = builder.env("LUCID_ADMISSION_MODE", "enforce").env("LUCID_TIER_LABEL", "");
    builder.env("LUCID_CHAIN", chain)
}

/// Generations in ConfigMap `lucid-generations`.
async fn generations(cluster: &Cluster) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    let map = api.get_opt("lucid-generations").await.unwrap().unwrap_or_default();
    map.data.unwrap_or_default().into_keys().collect()
}

fn recorded(log: &Path, pod: &str) -> Vec<Value> {
    let segments = std::fs::read_dir(log.join("segments")).unwrap();
    let text: String =
        segments.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["name"] == pod).map(|record| record["generation"].clone()).collect()
}

#[tokio::test]
async fn previous_chains_pass_while_a_replica_has_their_settings() {
    let cluster = cluster().await;
    let logs = tempfile::tempdir().unwrap();
    let [old_log, new_log] = ["old", "new"].map(|name| logs.path().join(name));
    let old = enforcing(Operator::builder(&cluster), "injection")
        .env("LUCID_VALIDATE", "false")
        .env("LUCID_FAILURE_POLICY", "Ignore")
        .env("LUCID_DECISION_LOG", old_log.display().to_string());
    let mut old = old.start().await.unwrap();
    let [generation] = &generations(&cluster).await[..] else { panic!("there is not one generation") };
    let new = enforcing(Operator::validator(&cluster), "injection,toxicity");
    let _new = new.env("LUCID_DECISION_LOG", new_log.display().to_string()).start().await.unwrap();

    let is_judged = |response: &Answer| !response.warnings.is_empty();
    until(&cluster, "shop", |name| secured(&format!("first-{name}")), is_judged).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    let found = stored(&cluster, "shop", "web").await;
    assert_eq!(chain(&found), expected(OLD));
    assert_eq!(recorded(&old_log, "web"), [json!(generation)]);
    assert_eq!(recorded(&new_log, "web"), [json!(generation)]);

    // Pod authors have no choice: a chain that no replica injects is denied, for any generation in the pod.
    old.terminate().expect("it does not end");
    let copy = |name: &str, change: fn(&mut Pod)| {
        let mut pod = found.clone();
        pod.metadata = serde_json::from_value(secured(name)["metadata"].clone()).unwrap();
        pod.metadata.annotations = found.metadata.annotations.clone();
        pod.status = None;
        change(&mut pod);
        serde_json::to_value(pod).unwrap()
    };
    let shorter = copy("shorter", |pod| pod.spec.as_mut().unwrap().containers.truncate(1));
    let forged = create(&cluster, "shop", &shorter).await;
    assert!(forged.refusal().contains("lucid-injection-auditor"), "{forged:?}");
    let other = copy("other", |pod| {
        pod.spec.as_mut().unwrap().containers[1].image = Some("example.com/mine:1".to_owned());
    });
    let forged = create(&cluster, "shop", &other).await;
    assert!(forged.refusal().contains("lucid-injection-auditor"), "{forged:?}");
    create(&cluster, "shop", &copy("late", |_| {})).await.stored().unwrap();

    // Replicas no longer have these settings.
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    api.delete("lucid-generations", &Default::default()).await.unwrap();
    let mut attempts = 0..;
    eventually("chains of a generation that is over are refused", async || {
        let name = format!("over-{}", attempts.next().unwrap_or(0));
        let response = create(&cluster, "shop", &copy(&name, |_| {})).await;
        response.result.is_err_and(|refusal| refusal.contains("lucid-toxicity-auditor"))
    })
    .await;
}
