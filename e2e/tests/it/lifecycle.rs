//! Replicas, crashes, restarts, certificates.

use std::time::{Duration, Instant};

use crate::common::{chain, cluster, create, delete_all_pods, expected, operator, pod, secured, stored};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch};
use lucid_testbed::Cluster;
use serde_json::json;

const GUARDRAILS: &[(&str, i32, &str)] = &[
    ("lucid-guardrails-auditor", 8090, "http://localhost:8093"),
    ("lucid-guardrails-auditor-2", 8093, "http://localhost:5000"),
];

async fn ca_bundle(cluster: &Cluster) -> Vec<u8> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let configuration = api.get("lucid-operator").await.unwrap();
    configuration.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap().0
}

/// Returns `true` if a TLS client that trusts only `ca_bundle` can connect to `url`.
async fn is_served(url: &str, ca_bundle: &[u8]) -> bool {
    let roots = reqwest::Certificate::from_pem_bundle(ca_bundle).unwrap();
    let client = reqwest::Client::builder().tls_certs_only(roots).no_proxy().build().unwrap();
    client.get(format!("{url}/mutate")).send().await.is_ok()
}

#[tokio::test]
async fn a_second_replica_serves_under_the_same_certificate_authority() {
    let cluster = cluster().await;
    let first = operator(&cluster, |operator| operator).await;
    let bundle = ca_bundle(&cluster).await;
    let second = operator(&cluster, |operator| operator.named("lucid-operator-2")).await;
    assert_eq!(ca_bundle(&cluster).await, bundle);
    assert!(is_served(&first.url(), &bundle).await && is_served(&second.url(), &bundle).await);
    // The registration now names the second operator.
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "web").await), expected(GUARDRAILS));
}

#[tokio::test]
async fn while_the_operator_is_dead_labelled_namespaces_are_closed_and_others_open_and_a_restart_heals() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |operator| operator).await;
    let bundle = ca_bundle(&cluster).await;
    create(&cluster, "shop", &secured("before")).await.stored().unwrap();

    operator.kill();
    for manifest in [secured("down"), pod("down", json!({}), json!({}))] {
        let answer = create(&cluster, "shop", &manifest).await;
        assert_eq!(answer.status, 500, "{answer:?}");
        assert!(answer.refusal().contains("failed calling webhook \"mutate.lucid.computing\""), "{answer:?}");
    }
    create(&cluster, "other", &secured("down")).await.stored().unwrap();
    create(&cluster, "kube-system", &secured("down")).await.stored().unwrap();
    // Pods can still be labelled and deleted.
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let label = json!({"metadata": {"labels": {"tier": "A"}}});
    pods.patch("before", &Default::default(), &Patch::Merge(label)).await.unwrap();
    delete_all_pods(&cluster, "shop").await;

    operator.restart().await.unwrap();
    assert_eq!(ca_bundle(&cluster).await, bundle, "a restart keeps the authority");
    create(&cluster, "shop", &secured("after")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "after").await), expected(GUARDRAILS));
}

#[tokio::test]
async fn the_failure_policy_can_be_ignore_for_the_mutating_webhook_only() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| operator.env("LUCID_FAILURE_POLICY", "Ignore")).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let mutating = mutating.get("lucid-operator").await.unwrap().webhooks.unwrap().remove(0);
    let validating = validating.get("lucid-operator").await.unwrap().webhooks.unwrap().remove(0);
    assert_eq!(mutating.failure_policy.as_deref(), Some("Ignore"));
    assert_eq!(validating.failure_policy.as_deref(), Some("Fail"));
    // System namespaces and our own are excluded from both.
    for selector in [mutating.namespace_selector, validating.namespace_selector] {
        let values = selector.unwrap().match_expressions.unwrap().remove(0).values.unwrap();
        assert_eq!(values, ["kube-system", "kube-public", "kube-node-lease", "lucid-system"]);
    }
}

#[tokio::test]
async fn health_readiness_and_metrics_are_on_a_port_of_their_own() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    let get = async |path: &str| {
        let answer = reqwest::get(operator.admin_url(path)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get("/readyz").await, (200, "ok\n".to_owned()));
    let (status, metrics) = get("/metrics").await;
    assert_eq!(status, 200);
    for line in [
        r#"lucid_admission_requests_total{webhook="mutate.lucid.computing",operation="CREATE",outcome="patched"} 1"#,
        r#"lucid_admission_requests_total{webhook="validate.lucid.computing",operation="CREATE",outcome="allowed"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn sigterm_ends_it_cleanly() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |operator| operator.env("LUCID_LAME_DUCK_SECONDS", "1")).await;
    let ready = operator.admin_url("/readyz");
    let watch = tokio::spawn(async move {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            match reqwest::get(&ready).await {
                Ok(answer) if answer.status() == 503 => return answer.text().await.unwrap(),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        String::new()
    });
    let status = tokio::task::spawn_blocking(move || operator.terminate()).await.unwrap();
    assert!(status.expect("it does not end").success());
    let said = watch.await.unwrap();
    assert!(said.starts_with("not ready: ") && said.contains("serving"), "a lame duck is not ready: {said}");
}

#[tokio::test]
async fn a_broken_authority_in_the_secret_is_restored_or_replaced_and_reported() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |operator| operator).await;
    let bundle = ca_bundle(&cluster).await;
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
        let begin = Instant::now();
        while !reported(&cluster, reason).await {
            assert!(begin.elapsed() < Duration::from_secs(20), "no event in round {round}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(operator.log()).unwrap();
        assert!(
            log.contains("WARN") && log.contains("tls.crt"),
            "nothing in the log of round {round}: {log}"
        );
        crate::common::until(
            &cluster,
            "shop",
            |name| secured(&format!("round-{round}-{name}")),
            |answer| answer.result.as_ref().is_ok_and(|pod| chain(pod) == expected(GUARDRAILS)),
        )
        .await;
        let new = ca_bundle(&cluster).await;
        assert!(is_served(&operator.url(), &new).await, "round {round}");
        assert_eq!(new == bundle, break_while_running, "round {round}");
    }
    let key = secrets.get("lucid-operator-ca").await.unwrap().data.unwrap()["tls.key"].0.clone();
    let key = String::from_utf8(key).unwrap();
    let secret_line = key.lines().nth(1).unwrap();
    assert!(!std::fs::read_to_string(operator.log()).unwrap().contains(secret_line), "the key is in the log");
}

/// Returns `true` if there is an event with this reason.
async fn reported(cluster: &Cluster, reason: &str) -> bool {
    let events: Api<Event> = Api::all(cluster.client());
    let events = events.list(&ListParams::default()).await.unwrap();
    events.iter().any(|event| event.reason.as_deref() == Some(reason))
}

#[tokio::test]
async fn a_registration_that_somebody_damages_is_put_back_while_the_operator_runs() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let injected = |answer: &lucid_e2e::Answer| {
        answer.result.as_ref().is_ok_and(|pod| chain(pod) == expected(GUARDRAILS))
    };
    let never = json!([{"name": "never", "expression": "false"}]);
    let nobody = json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": never}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(nobody).unwrap());
    api.patch("lucid-operator", &Default::default(), &patch).await.unwrap();
    crate::common::until(&cluster, "shop", |name| secured(&format!("patched-{name}")), injected).await;
    api.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    crate::common::until(&cluster, "shop", |name| secured(&format!("deleted-{name}")), injected).await;
    assert!(std::fs::read_to_string(operator.log()).unwrap().contains("put back"));
}

#[tokio::test]
async fn an_operator_that_leaves_brings_nothing_back() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |operator| operator.env("LUCID_LAME_DUCK_SECONDS", "5")).await;
    let ready = operator.admin_url("/readyz");
    let ended = tokio::task::spawn_blocking(move || operator.terminate());
    while reqwest::get(&ready).await.unwrap().status() != 503 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    mutating.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    secrets.delete("lucid-operator-ca", &DeleteParams::default()).await.unwrap();
    assert!(ended.await.unwrap().expect("it does not end").success());
    assert!(secrets.get_opt("lucid-operator-ca").await.unwrap().is_none(), "the Secret is back");
    assert!(mutating.get_opt("lucid-operator").await.unwrap().is_none(), "the registration is back");
}

#[tokio::test]
async fn a_refused_pod_names_the_setting_that_keeps_the_operator_unready() {
    let cluster = cluster().await;
    let builder = lucid_e2e::Operator::builder(&cluster).env("LUCID_CHAIN", "pii");
    let mut unready = builder.spawn().unwrap();
    let says_why = |answer: &lucid_e2e::Answer| answer.refusal().contains("in the default chain");
    crate::common::until(&cluster, "shop", |name| secured(&format!("unready-{name}")), says_why).await;
    crate::common::eventually(async || {
        let answer = reqwest::get(unready.admin_url("/readyz")).await.unwrap();
        let found = (answer.status().as_u16(), answer.text().await.unwrap());
        if found == (503, "not ready: configuration\n".to_owned()) { Ok(()) } else { Err(found) }
    })
    .await;
    let pii = "chain: [{name: lucid-pii-auditor, image: example.com/pii}]";
    crate::common::config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", pii).await;
    unready.ready().await.unwrap();
    let pod = create(&cluster, "shop", &secured("pii")).await.stored().unwrap();
    assert_eq!(chain(&pod)[1].0, "lucid-pii-auditor");
}
