//! Reports of problems with a pod: an admission warning, an event on the pod's creator, and a metric.

use crate::common::{
    ENABLED, GUARDRAILS, assert_injected, authenticated_cluster, chain, cluster, create, create_object,
    deployment, expected, has_chain, metric, operator, prepare, secured, secured_with, template, until,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::events::v1::Event;
use kube::api::PostParams;
use kube::{Api, Resource};
use lucid_e2e::{API_SERVER, ClusterExt as _, Operator, OperatorBuilder, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

/// Waits until `is_all` returns `true` for the operator's events about `kind` `name`.
pub(crate) async fn events_about(
    cluster: &Cluster,
    kind: &str,
    name: &str,
    is_all: impl Fn(&[Event]) -> bool,
) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(cluster.client(), "shop");
    eventually("events", async || {
        let mut found = api.list(&Default::default()).await.unwrap().items;
        found.retain(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            event.reporting_controller.as_deref() == Some("lucid-operator")
                && regarding.kind.as_deref() == Some(kind)
                && regarding.name.as_deref() == Some(name)
        });
        if is_all(&found) { Ok(found) } else { Err(format!("events about {kind} {name}: {found:#?}")) }
    })
    .await
}

fn said(event: &Event) -> (&str, &str, &str, &str) {
    (
        event.type_.as_deref().unwrap_or_default(),
        event.reason.as_deref().unwrap_or_default(),
        event.action.as_deref().unwrap_or_default(),
        event.note.as_deref().unwrap_or_default(),
    )
}

fn pod_of(annotations: &Value, spec: &Value) -> Value {
    let mut pod = secured_with("", annotations.clone());
    pod["spec"].as_object_mut().unwrap().append(&mut spec.as_object().unwrap().clone());
    pod
}

#[tokio::test]
async fn owners_of_invalid_pods_have_events() {
    let builder = Cluster::builder().controller_manager().webhook_client(API_SERVER);
    let cluster = prepare(builder.start().await.unwrap()).await;
    let operator = operator(&cluster, OperatorBuilder::authenticated).await;

    let loud = json!({"lucid.computing/audit-mode": "loud", "lucid.computing/target-port": "0"});
    create_object::<Deployment>(&cluster, deployment("web", 3, &secured_with("", loud))).await;
    let is_all = |events: &[Event]| {
        let times = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
        // A repeated request for the same pod reports the problem again.
        events.len() == 2 && events.iter().all(|event| times(event) >= 3)
    };
    let events = events_about(&cluster, "Deployment", "web", is_all).await;
    for (key, found) in [("audit-mode", "\"loud\""), ("target-port", "\"0\"")] {
        let event = events.iter().find(|event| said(event).3.contains(key)).unwrap();
        let (severity, reason, action, note) = said(event);
        assert_eq!((severity, reason, action), ("Warning", "InvalidAnnotation", "Inject"));
        assert!(note.contains(found) && note.contains("expected"), "{note}");
        assert!(event.regarding.as_ref().unwrap().uid.is_some(), "kubectl describe would not show it");
    }

    // No chain fits: the CronJob shows the reason.
    let on_the_node = json!({"hostNetwork": true, "restartPolicy": "Never"});
    let redirected = json!({"lucid.computing/intercept": "redirect"});
    let job = json!({"backoffLimit": 0, "template": template(&pod_of(&redirected, &on_the_node), "nightly")});
    let cron_job = json!({
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job}},
    });
    let owner = create_object::<CronJob>(&cluster, cron_job).await.controller_owner_ref(&()).unwrap();
    let job = json!({"metadata": {"name": "nightly-1", "ownerReferences": [owner]}, "spec": job});
    create_object::<Job>(&cluster, job).await;
    let events = events_about(&cluster, "CronJob", "nightly", |events| !events.is_empty()).await;
    let (severity, reason, _, note) = said(&events[0]);
    assert_eq!((severity, reason), ("Warning", "HostNetwork"));
    assert!(note.contains("hostNetwork") && note.contains("intercept"), "{note}");

    for (labels, at_least) in [
        (r#"lucid_injections_total{outcome="injected",reason=""}"#, 3),
        (r#"lucid_injections_total{outcome="skipped",reason="HostNetwork"}"#, 1),
        (r#"lucid_injection_warnings_total{reason="InvalidAnnotation"}"#, 6),
        (r#"lucid_injection_events_total{outcome="sent"}"#, 7),
    ] {
        eventually(labels, async || metric(&operator, labels).await >= at_least).await;
    }
    let zero = [
        r#"lucid_injections_total{outcome="failed",reason="Panicked"}"#,
        r#"lucid_injection_events_total{outcome="dropped"}"#,
        r#"lucid_injection_events_total{outcome="failed"}"#,
    ];
    for labels in zero {
        assert_eq!(metric(&operator, labels).await, 0, "{labels}");
    }
    let planned = metric(&operator, "lucid_injection_planning_seconds_count").await;
    assert!(planned >= 4, "{planned}");
}

#[tokio::test]
async fn bare_pods_have_events_and_dry_runs_have_none() {
    let cluster = authenticated_cluster().await;
    let operator = operator(&cluster, OperatorBuilder::authenticated).await;
    let on_the_node = |name: &str| {
        let mut pod = secured_with(name, json!({"lucid.computing/intercept": "redirect"}));
        pod["spec"]["hostNetwork"] = json!(true);
        pod
    };
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(cluster.client(), "shop");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry_run, &serde_json::from_value(on_the_node("dry")).unwrap()).await.unwrap();
    let skip = json!({"lucid.computing/skip-audit": "true"});
    let dry = secured_with("dry", skip.clone());
    api.create(&dry_run, &serde_json::from_value(dry).unwrap()).await.unwrap();

    let response = create(&cluster, "shop", &on_the_node("wet")).await;
    assert!(response.warnings.join("\n").contains("no auditors: failed to redirect"), "{response:?}");
    response.stored().unwrap();
    let skipped = secured_with("skipped", skip);
    assert!(create(&cluster, "shop", &skipped).await.warnings.join("\n").contains("no auditors: annotation"));
    let mut generated = on_the_node("x");
    generated["metadata"] = json!({"generateName": "gen-", "labels": generated["metadata"]["labels"],
        "annotations": generated["metadata"]["annotations"]});
    create(&cluster, "shop", &generated).await.stored().unwrap();

    // Events are sent in the order of the requests.
    events_about(&cluster, "Pod", "gen-", |events| events.len() == 1).await;
    let wet = events_about(&cluster, "Pod", "wet", |events| events.len() == 1).await;
    assert_eq!((said(&wet[0]).0, said(&wet[0]).1), ("Warning", "HostNetwork"));
    let skipped = events_about(&cluster, "Pod", "skipped", |events| events.len() == 1).await;
    assert_eq!((said(&skipped[0]).0, said(&skipped[0]).1), ("Normal", "SkipAudit"));
    events_about(&cluster, "Pod", "dry", |events| events.is_empty()).await;
    let sent = r#"lucid_injection_events_total{outcome="sent"}"#;
    eventually("all are counted", async || metric(&operator, sent).await == 3).await;
    assert_eq!(metric(&operator, r#"lucid_injections_total{outcome="skipped",reason="SkipAudit"}"#).await, 2);
}

#[tokio::test]
async fn unauthenticated_callers_do_not_create_events() {
    let cluster = authenticated_cluster().await;
    let certificates_off = operator(&cluster, |operator| operator.named("open")).await;
    let loud = |name: &str| secured_with(name, json!({"lucid.computing/audit-mode": "loud"}));
    let response = create(&cluster, "shop", &loud("before")).await;
    assert!(response.warnings.join("\n").contains("audit-mode"), "{response:?}");
    drop(certificates_off);
    let _operator = operator(&cluster, OperatorBuilder::authenticated).await;
    // Once a later event exists, the earlier one will not appear.
    let later = until(&cluster, "shop", loud, |response| response.status == 201).await;
    let later = later.stored().unwrap().metadata.name.unwrap();
    events_about(&cluster, "Pod", &later, |events| events.len() == 1).await;
    events_about(&cluster, "Pod", "before", |events| events.is_empty()).await;
}

#[tokio::test]
async fn skip_audit_follows_the_listed_service_accounts() {
    let cluster = cluster().await;
    cluster.create_namespace("lab", &[ENABLED]).await.unwrap();
    let builder = Operator::builder(&cluster).env("LUCID_ALLOW_SKIP", "shop/batch, lab/other");
    let operator = builder.start().await.unwrap();
    for namespace in ["shop", "lab"] {
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client(), namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "batch"}})).unwrap();
        api.create(&PostParams::default(), &account).await.unwrap();
    }
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u-1",
        "controller": true}]);
    for (namespace, account, owners, is_skipped) in [
        ("shop", Some("batch"), json!([]), true),
        ("shop", Some("batch"), owner.clone(), true),
        ("shop", None, json!([]), false),
        ("shop", None, owner.clone(), false),
        ("shop", Some("other"), json!([]), false),
        ("lab", Some("batch"), json!([]), false),
        ("lab", Some("batch"), owner, false),
    ] {
        let mut pod = secured_with("", json!({"lucid.computing/skip-audit": "true"}));
        let metadata = pod["metadata"].as_object_mut().unwrap();
        metadata.remove("name");
        metadata.insert("generateName".into(), json!("web-"));
        metadata.insert("ownerReferences".into(), owners.clone());
        if let Some(account) = account {
            pod["spec"]["serviceAccountName"] = json!(account);
        }
        let response = create(&cluster, namespace, &pod).await;
        let warnings = response.warnings.join("\n");
        let case = format!("{namespace}, {account:?}, {owners}: {warnings}");
        let stored = response.stored().unwrap_or_else(|error| panic!("{case}: {error}"));
        if is_skipped {
            assert_eq!(chain(&stored), expected(&[]), "{case}");
            assert!(warnings.contains("no auditors: annotation lucid.computing/skip-audit"), "{case}");
        } else {
            assert_eq!(chain(&stored), expected(GUARDRAILS), "{case}");
            assert!(warnings.contains("skip-audit: \"true\" is not allowed here"), "{case}");
        }
    }
    drop(operator);
    skip_audit_follows_the_flag(&cluster).await;
}

async fn skip_audit_follows_the_flag(cluster: &Cluster) {
    let manifest = |name: &str| secured_with(name, json!({"lucid.computing/skip-audit": "true"}));
    for (allowed, auditors) in [("false", GUARDRAILS), ("true", &[])] {
        let builder = Operator::builder(cluster).env("LUCID_ALLOW_SKIP", allowed);
        let _operator = builder.start().await.unwrap();
        let named = |name: &str| manifest(&format!("{allowed}-{name}"));
        until(cluster, "shop", named, |response| has_chain(response, auditors)).await;
    }
}

/// Number of requests to the API server so far, except those about pods.
async fn requests(cluster: &Cluster) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = cluster.client().request_text(request).await.unwrap();
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && !line.contains(r#"resource="pods""#));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64).sum()
}

#[tokio::test]
async fn pods_cause_no_requests_to_the_api_server() {
    const PODS: u64 = 60;
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    create(&cluster, "shop", &secured("first")).await.stored().unwrap();
    let before = requests(&cluster).await;
    for number in 0..PODS {
        assert_injected(&cluster, &format!("web-{number}"), GUARDRAILS).await;
    }
    let made = requests(&cluster).await - before;
    assert!(made < PODS / 2, "{made} requests for {PODS} pods");
    assert_eq!(metric(&operator, r#"lucid_injections_total{outcome="injected",reason=""}"#).await, PODS + 1);
}
