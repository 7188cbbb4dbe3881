//! Workloads are warned and never denied, and existing objects can be changed.

use http::Method;
use lucid_e2e::{Verifier, ask};
use serde_json::{Value, json};

use super::{JSON, MERGE, PODS, assert_passed, assert_refused, catalogue, enforcing, patch, post, with};
use crate::common::{STRATEGIC_MERGE, cluster, secured, template};

/// Collection path and manifest of each kind that creates pods.
fn workloads(pod: &Value) -> Vec<(&'static str, Value)> {
    let labels = json!({"app": "web"});
    let template = template(pod, "web");
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": labels});
    let object = |spec: Value| json!({"metadata": {"name": "web"}, "spec": spec});
    let apps = object(json!({"replicas": 3, "selector": selector, "template": template}));
    vec![
        ("/apis/apps/v1/namespaces/shop/deployments", apps.clone()),
        ("/apis/apps/v1/namespaces/shop/replicasets", apps.clone()),
        ("/apis/apps/v1/namespaces/shop/statefulsets", with(apps, "/spec/serviceName", json!("web"))),
        (
            "/apis/apps/v1/namespaces/shop/daemonsets",
            object(json!({"selector": selector, "template": template})),
        ),
        (
            "/api/v1/namespaces/shop/replicationcontrollers",
            object(json!({"replicas": 3, "selector": labels, "template": template})),
        ),
        ("/apis/batch/v1/namespaces/shop/jobs", object(json!({"template": job}))),
        (
            "/apis/batch/v1/namespaces/shop/cronjobs",
            object(json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": job}}})),
        ),
        ("/api/v1/namespaces/shop/podtemplates", json!({"metadata": {"name": "web"}, "template": template})),
    ]
}

#[tokio::test]
async fn workloads_are_warned_and_never_denied() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    let verifier = Verifier::start(cluster.folder(), &[]).await.unwrap();
    let mut operator = enforcing(&cluster, &verifier).await;
    let bad = with(secured("x"), "/spec/shareProcessNamespace", json!(true));
    for (path, object) in workloads(&bad) {
        let reply = post(&cluster, path, &object).await;
        assert_passed(path, &reply);
        let warnings = reply.warnings.join("\n");
        for part in
            ["pods of this template will be refused: shareProcessNamespace", "auditor ", "not notarized"]
        {
            assert!(warnings.contains(part), "{path}: {part:?} is not in {warnings:?}");
        }
        // Changes outside of the template cause no warning.
        let labels = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 0}});
        let labels =
            if path.ends_with("podtemplates") { json!({"metadata": labels["metadata"]}) } else { labels };
        let reply = patch(&cluster, &format!("{path}/web"), MERGE, &labels).await;
        assert_passed(path, &reply);
        assert!(!reply.warnings.join("\n").contains("pods of this template"), "{path}: {reply:?}");
    }
    let deployment = "/apis/apps/v1/namespaces/shop/deployments/web";
    let scaled =
        patch(&cluster, &format!("{deployment}/scale"), MERGE, &json!({"spec": {"replicas": 1}})).await;
    assert_passed("scale", &scaled);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}]}}}});
    let updated = patch(&cluster, deployment, STRATEGIC_MERGE, &image).await;
    assert_passed("update", &updated);
    assert!(updated.warnings.join("\n").contains("pods of this template will be refused"), "{updated:?}");

    // Workloads can be applied while the webhook is unavailable.
    operator.kill();
    for (path, object) in workloads(&bad) {
        assert_passed(path, &post(&cluster, path, &with(object, "/metadata/name", json!("later"))).await);
    }
}

#[tokio::test]
async fn existing_violations_can_be_deleted_and_scaled_down() {
    let cluster = cluster().await;
    catalogue(&cluster).await;
    // Before the webhooks are registered.
    let mut bad = with(secured("bad"), "/spec/hostPID", json!(true));
    bad["metadata"]["finalizers"] = json!(["example.com/hold"]);
    assert_passed("bad", &post(&cluster, PODS, &bad).await);
    for (path, object) in workloads(&bad) {
        assert_passed(path, &post(&cluster, path, &object).await);
    }
    let verifier = Verifier::start(cluster.folder(), &[]).await.unwrap();
    let mut operator = enforcing(&cluster, &verifier).await;
    let path = format!("{PODS}/bad");
    let image = json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}]}});
    assert_refused(
        "the chain is missing",
        &patch(&cluster, &path, STRATEGIC_MERGE, &image).await,
        &["create it again"],
    );
    assert_passed(
        "labels",
        &patch(&cluster, &path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}})).await,
    );
    let skip = json!({"metadata": {"annotations": {"lucid.computing/skip-audit": "true"}}});
    assert_refused("skip", &patch(&cluster, &path, MERGE, &skip).await, &["create it again"]);

    // With the webhook running, and while it is down.
    for down in [false, true] {
        if down {
            operator.kill();
        }
        for kind in ["deployments", "statefulsets", "replicasets"] {
            let path = format!("/apis/apps/v1/namespaces/shop/{kind}/web");
            let replicas = json!({"spec": {"replicas": if down { 0 } else { 1 }}});
            assert_passed(kind, &patch(&cluster, &path, MERGE, &replicas).await);
            assert_passed(kind, &patch(&cluster, &format!("{path}/scale"), MERGE, &replicas).await);
        }
    }
    let delete = json!({"gracePeriodSeconds": 0});
    let deleted = ask(&cluster.client(), None, Method::DELETE, &path, JSON, &delete).await.unwrap();
    assert_passed("delete", &deleted);
    assert_passed(
        "finalizers",
        &patch(&cluster, &path, MERGE, &json!({"metadata": {"finalizers": []}})).await,
    );
    let gone = ask(&cluster.client(), None, Method::GET, &path, JSON, &json!({})).await.unwrap();
    assert_eq!(gone.status, 404, "{gone:?}");
}
