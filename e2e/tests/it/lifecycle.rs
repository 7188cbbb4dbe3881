//! Replicas, crashes, restarts, certificates.

use crate::common::{
    GUARDRAILS, assert_injected, ca_bundle, chain, cluster, config_map, create, delete_all_pods, get, log,
    logged_in, mutating_webhooks, operator, pod, secured, served, until, until_injected, until_ready_is,
    validating_webhooks,
};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch};
use lucid_e2e::{Operator, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

/// In one cluster, with the default settings.
#[tokio::test]
async fn an_operator_survives_crashes_and_damage() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |operator| operator).await;
    health_readiness_and_metrics(&cluster, &operator).await;
    enabled_namespaces_are_closed_while_the_operator_is_down(&cluster, &mut operator).await;
    a_damaged_registration_is_restored(&cluster, &operator).await;
    a_broken_authority_is_replaced_and_reported(&cluster, &mut operator).await;
    a_second_replica_shares_the_authority(&cluster, &operator).await;
}

/// In one cluster, one operator after the other.
#[tokio::test]
async fn settings_apply_from_the_start_to_the_end_of_an_operator() {
    let cluster = cluster().await;
    ignore_is_for_the_mutating_webhook_only(&cluster).await;
    a_terminating_operator_restores_nothing(&cluster).await;
    a_denial_names_the_invalid_setting(&cluster).await;
}

async fn a_second_replica_shares_the_authority(cluster: &Cluster, first: &Operator) {
    let bundle = ca_bundle(cluster).await;
    let second = operator(cluster, |operator| operator.named("lucid-operator-2")).await;
    assert_eq!(ca_bundle(cluster).await, bundle);
    assert!(served(first, &bundle).await.is_some() && served(&second, &bundle).await.is_some());
    // The registration now names the second operator.
    until_injected(cluster, "shop", "second", GUARDRAILS).await;
}

async fn enabled_namespaces_are_closed_while_the_operator_is_down(
    cluster: &Cluster,
    operator: &mut Operator,
) {
    let bundle = ca_bundle(cluster).await;
    create(cluster, "shop", &secured("before")).await.stored().unwrap();

    operator.kill();
    for manifest in [secured("down"), pod("down", json!({}), json!({}))] {
        let response = create(cluster, "shop", &manifest).await;
        assert_eq!(response.status, 500, "{response:?}");
        assert!(
            response.refusal().contains("failed calling webhook \"mutate.lucid.computing\""),
            "{response:?}"
        );
    }
    create(cluster, "other", &secured("down")).await.stored().unwrap();
    create(cluster, "kube-system", &secured("down")).await.stored().unwrap();
    // Pods can still be labelled and deleted.
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let label = json!({"metadata": {"labels": {"tier": "A"}}});
    pods.patch("before", &Default::default(), &Patch::Merge(label)).await.unwrap();
    delete_all_pods(cluster, "shop").await;

    operator.restart().await.unwrap();
    assert_eq!(ca_bundle(cluster).await, bundle, "a restart keeps the authority");
    assert_injected(cluster, "after", GUARDRAILS).await;
}

async fn ignore_is_for_the_mutating_webhook_only(cluster: &Cluster) {
    let _operator = operator(cluster, |operator| operator.env("LUCID_FAILURE_POLICY", "Ignore")).await;
    let mutating = mutating_webhooks(cluster, "lucid-operator").await.remove(0);
    let validating = validating_webhooks(cluster, "lucid-operator").await.remove(0);
    assert_eq!(mutating.failure_policy.as_deref(), Some("Ignore"));
    assert_eq!(validating.failure_policy.as_deref(), Some("Fail"));
    // System namespaces and our own are excluded from both.
    for selector in [mutating.namespace_selector, validating.namespace_selector] {
        let values = selector.unwrap().match_expressions.unwrap().remove(0).values.unwrap();
        assert_eq!(values, ["kube-system", "kube-public", "kube-node-lease", "lucid-system"]);
    }
}

async fn health_readiness_and_metrics(cluster: &Cluster, operator: &Operator) {
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(get(operator, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(operator, "/readyz").await, (200, "ok\n".to_owned()));
    let (status, metrics) = get(operator, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        r#"lucid_admission_requests_total{webhook="mutate.lucid.computing",operation="CREATE",outcome="patched"} 1"#,
        r#"lucid_admission_requests_total{webhook="validate.lucid.computing",operation="CREATE",outcome="allowed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

async fn a_broken_authority_is_replaced_and_reported(cluster: &Cluster, operator: &mut Operator) {
    let bundle = ca_bundle(cluster).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");

    // A running replica remembers the previous authority; a starting one does not.
    for (round, break_while_running, reason) in
        [(1, true, "CertificateAuthorityRestored"), (2, false, "CertificateAuthorityReplaced")]
    {
        if !break_while_running {
            operator.kill();
        }
        let broken = json!({"stringData": {"tls.crt": "no certificate"}});
        secrets.patch("lucid-operator-ca", &Default::default(), &Patch::Merge(broken)).await.unwrap();
        if !break_while_running {
            operator.restart().await.unwrap();
        }
        eventually(reason, async || reported(cluster, reason).await).await;
        let log = log(operator);
        assert!(
            log.contains("WARN") && log.contains("tls.crt"),
            "nothing in the log of round {round}: {log}"
        );
        until_injected(cluster, "shop", &format!("round-{round}"), GUARDRAILS).await;
        let new = ca_bundle(cluster).await;
        assert!(served(operator, &new).await.is_some(), "round {round}");
        assert_eq!(new == bundle, break_while_running, "round {round}");
    }
    let key = secrets.get("lucid-operator-ca").await.unwrap().data.unwrap()["tls.key"].0.clone();
    let key = String::from_utf8(key).unwrap();
    let secret_line = key.lines().nth(1).unwrap();
    assert!(!log(operator).contains(secret_line), "the key is in the log");
}

async fn reported(cluster: &Cluster, reason: &str) -> bool {
    let events: Api<Event> = Api::all(cluster.client());
    let events = events.list(&ListParams::default()).await.unwrap();
    events.iter().any(|event| event.reason.as_deref() == Some(reason))
}

async fn a_damaged_registration_is_restored(cluster: &Cluster, operator: &Operator) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let never = json!([{"name": "never", "expression": "false"}]);
    let damage = json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": never}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(damage).unwrap());
    api.patch("lucid-operator", &Default::default(), &patch).await.unwrap();
    logged_in(&operator.log(), "changed by another manager; restored").await;
    until_injected(cluster, "shop", "patched", GUARDRAILS).await;
    api.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    // The API server calls a deleted webhook for a moment, so an injected pod does not show that it is back.
    eventually("it is restored", async || !mutating_webhooks(cluster, "lucid-operator").await.is_empty())
        .await;
    until_injected(cluster, "shop", "deleted", GUARDRAILS).await;
}

async fn a_terminating_operator_restores_nothing(cluster: &Cluster) {
    let mut operator = operator(cluster, |operator| operator.flag("--lame-duck-seconds", "5")).await;
    let ready = operator.admin_url("/readyz");
    let ended = tokio::task::spawn_blocking(move || operator.terminate());
    let said = eventually("it is not ready", async || {
        let response = reqwest::get(&ready).await.unwrap();
        let status = response.status();
        if status == 503 { Ok(response.text().await.unwrap()) } else { Err(status) }
    })
    .await;
    assert!(said.starts_with("not ready: ") && said.contains("serving"), "{said}");
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    mutating.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    secrets.delete("lucid-operator-ca", &DeleteParams::default()).await.unwrap();
    assert!(ended.await.unwrap().expect("it does not end").success());
    assert!(secrets.get_opt("lucid-operator-ca").await.unwrap().is_none(), "the Secret is back");
    assert!(mutating.get_opt("lucid-operator").await.unwrap().is_none(), "the registration is back");
}

async fn a_denial_names_the_invalid_setting(cluster: &Cluster) {
    let builder = Operator::builder(cluster).env("LUCID_CHAIN", "topics");
    let mut unready = builder.spawn().unwrap();
    let says_why = |response: &lucid_e2e::Answer| response.refusal().contains("in the default chain");
    until(cluster, "shop", |name| secured(&format!("unready-{name}")), says_why).await;
    until_ready_is(&unready, (503, "not ready: configuration")).await;
    let topics = "chain: [{name: lucid-topics-auditor, image: example.com/topics}]";
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", topics).await;
    unready.ready().await.unwrap();
    let pod = create(cluster, "shop", &secured("topics")).await.stored().unwrap();
    assert_eq!(chain(&pod)[1].0, "lucid-topics-auditor");
}
