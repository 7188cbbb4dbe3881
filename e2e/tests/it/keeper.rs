//! Running pods: their states, and the actions that namespaces ask for.

use std::time::Duration;

use crate::cli::lucid;
use crate::common::{
    STRATEGIC_MERGE, client_of, cluster, config_map, create, create_object, decisions, deployment, get,
    label_namespace, operator, patch_pod, prepare, secured, stored, validating_webhooks,
};
use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, ResourceExt};
use lucid_e2e::{Answer, Operator, Verifier, eventually, send};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

const CATALOGUE: &str = "chain:
  - {name: injection, image: 'registry.example/injection@DIGEST'}
";

/// Policy of signatures that no image has.
const UNSIGNED: &str = "policies:
  - images: [registry.example/injection]
    require: signatures
    keys:
      - |
        -----BEGIN PUBLIC KEY-----
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
        -----END PUBLIC KEY-----
";

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn catalogue(digit: char) -> String {
    CATALOGUE.replace("DIGEST", &digest(digit))
}

/// Waits for the number of pods of namespace `shop` in a state.
async fn until_state(operator: &Operator, state: &str, pods: u64) {
    let series = format!(r#"lucid_running_pods{{resource_namespace="shop",state="{state}"}} "#);
    eventually(&format!("{pods} pods are {state}"), async || {
        let (_, metrics) = get(operator, "/metrics").await;
        let found = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("0");
        if found == pods.to_string() { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// Reports all containers of a pod as a kubelet does.
async fn run(cluster: &Cluster, name: &str, is_ready: bool) {
    report(cluster, &stored(cluster, "shop", name).await, is_ready).await.result.unwrap();
}

async fn report(cluster: &Cluster, pod: &Pod, is_ready: bool) -> Answer {
    let spec = pod.spec.as_ref().unwrap();
    let statuses: Vec<_> = spec
        .containers
        .iter()
        .map(|container| {
            let image = container.image.clone().unwrap_or_default();
            json!({"name": container.name, "ready": is_ready || container.name == "model", "image": image,
                "imageID": image, "restartCount": 0})
        })
        .collect();
    let ready = if is_ready { "True" } else { "False" };
    let conditions = ["Ready", "ContainersReady"].map(|kind| json!({"type": kind, "status": ready}));
    let status =
        json!({"status": {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}});
    let path = format!("/api/v1/namespaces/shop/pods/{}/status", pod.name_any());
    send(&cluster.client(), Method::PATCH, &path, STRATEGIC_MERGE, &status).await.unwrap()
}

fn auditor_image(pod: &Pod) -> String {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let auditor = containers.iter().find(|container| container.name == "injection").unwrap();
    auditor.image.clone().unwrap()
}

async fn events(cluster: &Cluster, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(cluster.client(), "shop");
    let mut found = api.list(&Default::default()).await.unwrap().items;
    found.retain(|event| event.reason.as_deref() == Some(reason));
    found
}

#[tokio::test]
async fn states_of_running_pods_are_reported() {
    let cluster = cluster().await;
    create(&cluster, "shop", &secured("before")).await.result.unwrap();
    set_catalogue(&cluster, 'a').await;
    let (token, log) = (cluster.folder().join("audit-token"), cluster.folder().join("decisions"));
    std::fs::write(&token, "a-token").unwrap();
    let digests = ['a', 'b'].map(digest);
    let digests = digests.each_ref().map(String::as_str);
    let verifier = Verifier::start(cluster.folder(), &digests).await.unwrap();
    let operator = operator(&cluster, |builder| {
        let builder = builder.env("LUCID_CHAIN", "injection").env("LUCID_VERIFIER_URL", verifier.url());
        let builder = builder.env("LUCID_DECISION_LOG", log.display().to_string());
        builder.flag("--audit-token-file", token.display().to_string())
    })
    .await;
    create(&cluster, "shop", &secured("web")).await.result.unwrap();
    until_state(&operator, "Missing", 1).await;
    until_state(&operator, "Audited", 1).await;
    eventually("an event", async || !events(&cluster, "Missing").await.is_empty()).await;

    let bundle = validating_webhooks(&cluster, "lucid-operator").await.remove(0).client_config.ca_bundle;
    let request = client_of(&bundle.unwrap().0).get(format!("{}/audit/pods", operator.url()));
    let shown: Value = request.bearer_auth("a-token").send().await.unwrap().json().await.unwrap();
    assert_eq!(shown["counts"], json!({"Audited": 1, "Missing": 1}));
    assert_eq!((&shown["watches"], &shown["pods"][0]["pod"]), (&json!(true), &json!("before")));

    set_catalogue(&cluster, 'b').await;
    until_state(&operator, "Stale", 1).await;
    let event = eventually("an event", async || events(&cluster, "Stale").await.pop()).await;
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("web"));

    let patch = json!({"spec": {"containers": [{"name": "injection", "image": "registry.example/other:1"}]}});
    label_namespace(&cluster, "shop", json!({"lucid.computing/enabled": null})).await;
    until_state(&operator, "Stale", 0).await;
    patch_pod(&cluster, "web", &patch).await.result.unwrap();
    label_namespace(&cluster, "shop", json!({"lucid.computing/enabled": "true"})).await;
    until_state(&operator, "Altered", 1).await;

    create(&cluster, "shop", &secured("next")).await.result.unwrap();
    until_state(&operator, "Audited", 1).await;
    // `plan` asks the sources of the operator.
    let signatures = cluster.folder().join("signatures");
    std::fs::create_dir(&signatures).unwrap();
    std::fs::write(signatures.join("signatures.yaml"), UNSIGNED).unwrap();
    let signatures = signatures.display().to_string();
    let planning = ["keeper", "plan", "-o", "json", "--chain", "injection", "--verifier-url", verifier.url()];
    for (options, state) in [(&[][..], None), (&["--signatures-directory", &signatures], Some("Revoked"))] {
        let ran = lucid(&cluster, &[&planning, options].concat()).await;
        let planned: Value = serde_json::from_str(&ran.printed()).unwrap();
        let next = planned.as_array().unwrap().iter().find(|planned| planned["pod"] == "next");
        assert_eq!(next.and_then(|next| next["state"].as_str()), state, "{planned:#}");
    }
    verifier.notarize(&digests[..1]).unwrap();
    until_state(&operator, "Revoked", 1).await;
    eventually("a record of each state", async || {
        let records = decisions(&log);
        let is_recorded = |pod: &str, state: &str| {
            records.iter().any(|record| {
                let message = record["message"].as_str().unwrap_or_default();
                record["webhook"] == "keeper" && record["name"] == pod && message.starts_with(state)
            })
        };
        let expected = [("before", "Missing"), ("web", "Stale"), ("next", "Revoked")];
        let missing = expected.into_iter().find(|(pod, state)| !is_recorded(pod, state));
        missing.map_or(Ok(()), |missing| Err(format!("{missing:?} is not in {records:#?}")))
    })
    .await;
}

/// Cluster with controllers, whose catalogue has just changed under the pods of Deployment `web`, all of them ready.
async fn stale_deployment(replicas: u32) -> Cluster {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    config_map(&cluster, "lucid-system", "lucid-policy", "keeperRate", "600").await;
    set_catalogue(&cluster, 'a').await;
    let operator = operator_with(&cluster, "none").await;
    create_object::<Deployment>(&cluster, deployment("web", replicas, &secured(""))).await;
    let expected = usize::try_from(replicas).unwrap();
    eventually("all pods", async || pods(&cluster).await.len() == expected).await;
    run_all(&cluster).await;
    until_state(&operator, "Audited", replicas.into()).await;
    drop(operator);
    set_catalogue(&cluster, 'b').await;
    cluster
}

async fn operator_with(cluster: &Cluster, actions: &str) -> Operator {
    operator(cluster, |builder| {
        let builder = builder.env("LUCID_CHAIN", "injection");
        if actions == "none" { builder } else { builder.env("LUCID_KEEPER_ACTIONS", actions) }
    })
    .await
}

async fn set_catalogue(cluster: &Cluster, digit: char) {
    config_map(cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue(digit)).await;
}

async fn pods(cluster: &Cluster) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let mut pods = api.list(&Default::default()).await.unwrap().items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    pods
}

async fn run_all(cluster: &Cluster) {
    for pod in pods(cluster).await {
        let answer = report(cluster, &pod, true).await;
        // Its controller may have deleted the pod meanwhile.
        assert!(answer.result.is_ok() || answer.status == 404, "{answer:?}");
    }
}

/// Number of pods with the image of the catalogue.
async fn with_image(cluster: &Cluster, digit: char) -> usize {
    pods(cluster).await.iter().filter(|pod| auditor_image(pod).ends_with(digit)).count()
}

/// Waits until `lucid keeper plan` shows a pod with this time and reason.
async fn until_planned(cluster: &Cluster, next: &str, why: &str) {
    eventually(why, async || {
        let ran = lucid(cluster, &["keeper", "plan", "-o", "json"]).await;
        let planned: Value = serde_json::from_str(&ran.stdout).map_err(|_| format!("{ran:?}"))?;
        let is_it = |pod: &Value| pod["next"] == next && pod["why"].as_str().unwrap().contains(why);
        if planned.as_array().unwrap().iter().any(is_it) { Ok(()) } else { Err(format!("{planned:#}")) }
    })
    .await;
}

#[tokio::test]
async fn pods_are_evicted_while_their_budget_and_replacements_permit_it() {
    let cluster = stale_deployment(2).await;
    let budget = json!({"metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    create_object::<PodDisruptionBudget>(&cluster, budget).await;
    label_namespace(&cluster, "shop", json!({"lucid.computing/keeper": "evict"})).await;
    let operator = operator_with(&cluster, "evict").await;
    let series = r#"lucid_keeper_actions_total{action="evict",outcome="waits"} "#;
    eventually("the budget forbids it", async || {
        let (_, metrics) = get(&operator, "/metrics").await;
        if metrics.contains(series) { Ok(()) } else { Err(metrics) }
    })
    .await;
    assert_eq!(with_image(&cluster, 'a').await, 2);

    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "shop");
    budgets.delete("web", &Default::default()).await.unwrap();
    eventually("one pod is replaced", async || with_image(&cluster, 'b').await == 1).await;
    until_state(&operator, "Stale", 1).await;
    until_planned(&cluster, "never", "evict is not among the operator's LUCID_KEEPER_ACTIONS").await;
    // Longer than the pause after a refusal.
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(with_image(&cluster, 'a').await, 1, "the replacement is not ready");
    run_all(&cluster).await;
    eventually("both pods are replaced", async || with_image(&cluster, 'b').await == 2).await;
    assert!(!events(&cluster, "PodEvicted").await.is_empty());
}

#[tokio::test]
async fn a_workload_is_restarted_once_although_leaders_are_killed() {
    let cluster = stale_deployment(2).await;
    label_namespace(&cluster, "shop", json!({"lucid.computing/keeper": "rollout"})).await;
    let start = async |name| {
        let builder = Operator::builder(&cluster).named(name).env("LUCID_CHAIN", "injection");
        builder.env("LUCID_KEEPER_ACTIONS", "rollout").start().await.unwrap()
    };
    let mut leader = start("lucid-operator").await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "shop");
    let restarted = async || {
        let template = deployments.get("web").await.unwrap().spec.unwrap().template;
        template.metadata?.annotations?.remove("kubectl.kubernetes.io/restartedAt")
    };
    let first = eventually("a restart", async || restarted().await).await;
    leader.kill();
    let next = start("lucid-operator-2").await;
    // Some pods are still stale when the next leader sees them.
    until_state(&next, "Stale", 2).await;
    eventually("all pods are replaced", async || {
        run_all(&cluster).await;
        with_image(&cluster, 'b').await == 2 && with_image(&cluster, 'a').await == 0
    })
    .await;
    until_state(&next, "Audited", 2).await;
    assert_eq!(restarted().await, Some(first));
}

#[tokio::test]
async fn images_are_updated_in_one_pod_after_the_other() {
    let cluster = cluster().await;
    set_catalogue(&cluster, 'a').await;
    config_map(&cluster, "lucid-system", "lucid-policy", "keeperRate", "600").await;
    let operator = operator_with(&cluster, "update").await;
    let names = ["a", "b"];
    for name in names {
        create(&cluster, "shop", &secured(name)).await.result.unwrap();
        run(&cluster, name, true).await;
    }
    until_state(&operator, "Audited", 2).await;
    set_catalogue(&cluster, 'b').await;
    until_state(&operator, "Stale", 2).await;
    label_namespace(&cluster, "shop", json!({"lucid.computing/keeper": "update"})).await;
    let updated = async || {
        let mut updated = Vec::new();
        for name in names {
            if auditor_image(&stored(&cluster, "shop", name).await).ends_with('b') {
                updated.push(name);
            }
        }
        updated
    };
    eventually("the first pod is updated", async || updated().await == ["a"]).await;
    // Its auditor runs the former image, then is not ready.
    until_state(&operator, "Stale", 1).await;
    run(&cluster, "a", false).await;
    let waits = "a second pod is not touched before the first is ready";
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(updated().await, ["a"], "{waits}");
    run(&cluster, "a", true).await;
    eventually("both are updated", async || updated().await == names).await;
    let status: Value = serde_json::from_str(
        &stored(&cluster, "shop", "b").await.metadata.annotations.unwrap()["lucid.computing/status"],
    )
    .unwrap();
    assert!(status["images"][0].as_str().unwrap().ends_with('b'), "{status}");
}
