//! Invalid configuration at the start of a replica, which has no valid content to fall back on.

use lucid_e2e::{Answer, ClusterExt as _, Operator};
use serde_json::json;

use crate::common::{
    ENABLED, REQUIRED, TOXICITY, chain, cluster, config_map, create, get, has_chain, logged_in, pod, secured,
    until, until_injected, until_ready_is,
};

#[tokio::test]
async fn invalid_chains_and_restarts_do_not_weaken_namespaces() {
    let cluster = cluster().await;
    let chain_of_shop = async |names: &str| {
        config_map(&cluster, "shop", "lucid-auditor-chain", "chain", names).await;
    };
    chain_of_shop("toxicity").await;
    let operator = Operator::builder(&cluster).env("LUCID_TIER_LABEL", "");
    let enforcing = operator.clone().env("LUCID_ADMISSION_MODE", "enforce");
    let mut enforcing = enforcing.start().await.unwrap();
    until_injected(&cluster, "shop", "valid", TOXICITY).await;

    // The last valid content stays in force.
    chain_of_shop("toxcity").await;
    let warns = |response: &Answer| {
        has_chain(response, TOXICITY)
            && response.warnings.join("\n").contains("the last valid content stays in use")
    };
    until(&cluster, "shop", |name| secured(&format!("kept-{name}")), warns).await;

    // After a restart there is none.
    enforcing.restart().await.unwrap();
    let refused = create(&cluster, "shop", &secured("refused")).await;
    let message = "failed to read the chain of the namespace: ConfigMap shop/lucid-auditor-chain, chain: \
                   unknown auditor \"toxcity\", did you mean lucid-toxicity-auditor?";
    assert!(refused.refusal().contains(message) && refused.status == 403, "{refused:?}");
    create(&cluster, "shop", &pod("plain", json!({}), json!({}))).await.stored().unwrap();
    create(&cluster, "other", &secured("elsewhere")).await.stored().unwrap();
    drop(enforcing);

    // Without enforcement pods get the chain of the cluster, also where the namespace requires a chain.
    let _auditing = operator.named("lucid-operator-2").start().await.unwrap();
    let weaker = |response: &Answer| {
        response.result.as_ref().is_ok_and(|pod| chain(pod).len() == 3)
            && response.warnings.join("\n").contains("otherwise they get the chain of the cluster")
    };
    until(&cluster, "shop", |name| secured(&format!("audit-{name}")), weaker).await;
    cluster.create_namespace("shop", &[ENABLED, REQUIRED]).await.unwrap();
    let plain = |name: &str| pod(&format!("required-{name}"), json!({}), json!({}));
    let requires = |response: &Answer| response.warnings.join("\n").contains("lucid.computing/require-chain");
    until(&cluster, "shop", plain, requires).await;
    let required = create(&cluster, "shop", &secured("required")).await;
    assert!(weaker(&required), "{required:?}");
    chain_of_shop("toxicity").await;
    until_injected(&cluster, "shop", "mended", TOXICITY).await;
}

#[tokio::test]
async fn a_replica_without_a_valid_catalogue_is_not_ready() {
    let cluster = cluster().await;
    let catalogue = async |yaml: &str| {
        config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", yaml).await;
    };
    catalogue("chain: [{name: topics, image: example.com/topics:1}]").await;
    let old = Operator::builder(&cluster).start().await.unwrap();
    catalogue("chain: [{name: topics, picture: example.com/topics:1}]").await;
    let mut new = Operator::builder(&cluster).named("lucid-operator-new").spawn().unwrap();
    logged_in(&new.log(), "this replica is not ready until it is valid").await;
    until_ready_is(&new, (503, "not ready: configuration")).await;
    assert_eq!(get(&old, "/readyz").await.1, "ok\n", "it goes on with the last valid catalogue");
    catalogue("chain: [{name: topics, image: example.com/topics:2}]").await;
    new.ready().await.unwrap();
}
