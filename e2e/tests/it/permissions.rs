//! The administrator's permissions of the webhooks, in ConfigMap `lucid-webhooks`.

use std::cell::Cell;

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lucid_e2e::{Answer, ClusterExt as _, OperatorBuilder, ask, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::check::check;
use crate::common::{
    ENABLED, GUARDRAILS, authenticated_cluster, chain, config_map, create, decisions, deployment, dry_run,
    has_chain, log, logged_in, metric, operator, patch_pod, secured, secured_with, until, until_injected,
};
use crate::notices::events_about;

#[tokio::test]
async fn permissions_restrict_the_webhook_while_it_is_served() {
    let cluster = authenticated_cluster().await;
    let operator = operator(&cluster, |operator| operator.authenticated().env("LUCID_TIER_LABEL", "")).await;
    until_injected(&cluster, "shop", "free", GUARDRAILS).await;
    let permit = async |permissions: Value| {
        let yaml = json!({"webhooks": {"mutate.lucid.computing": permissions}}).to_string();
        config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", &yaml).await;
    };
    let is_plain = |response: &Answer| response.result.as_ref().is_ok_and(|pod| chain(pod).len() == 1);

    permit(json!({"selector": {"namespace": "elsewhere"}})).await;
    until(&cluster, "shop", |name| secured(&format!("elsewhere-{name}")), is_plain).await;
    let gap = "mutate.lucid.computing: selector: pods that it does not select get no auditors";
    logged_in(&operator.log(), gap).await;
    check(&cluster).await.assert("configuration", "", "warning", &[gap]);

    // Invalid content changes nothing.
    permit(json!({"selector": {"namespaces": ["shop"]}})).await;
    logged_in(&operator.log(), "unknown field `namespaces`").await;
    assert!(log(&operator).contains("the last valid content stays in use"));
    assert!(is_plain(&create(&cluster, "shop", &secured("invalid")).await));
    let is_valid = r#"lucid_configuration_valid{config_map="lucid-webhooks"}"#;
    assert_eq!(metric(&operator, is_valid).await, 0);
    check(&cluster).await.assert("configuration", "", "failed", &["unknown field `namespaces`"]);

    permit(json!({"strictMode": true})).await;
    let consenting = |name: &str| {
        let consent = json!({"lucid.computing/can-mutate": "[\"other\", \"mutate\"]"});
        secured_with(&format!("consenting-{name}"), consent)
    };
    until(&cluster, "shop", consenting, |response| has_chain(response, GUARDRAILS)).await;
    assert!(is_plain(&create(&cluster, "shop", &secured("silent")).await));
    let quoted = secured_with("quoted", json!({"canMutate": "“mutate”"}));
    let response = create(&cluster, "shop", &quoted).await;
    let quote = "annotation canMutate contains the typographic quote “";
    assert!(response.warnings.join("\n").contains(quote), "{response:?}");
    events_about(&cluster, "Pod", "quoted", any_note_contains(quote)).await;

    // The webhook acts within the permissions of a service account.
    permit_mutater(&cluster, "shop", "update").await;
    permit(json!({"serviceAccountName": "lucid-system/nobody"})).await;
    let is_refused = |response: &Answer| {
        is_plain(response)
            && response.warnings.join("\n").contains("lucid-system:nobody may neither update nor mutate pods")
    };
    until(&cluster, "shop", |name| secured(&format!("nobody-{name}")), is_refused).await;
    permit(json!({"serviceAccountName": "lucid-system/mutater"})).await;
    until_injected(&cluster, "shop", "mutater", GUARDRAILS).await;

    // Lucid may not change anything outside of the allowed paths.
    permit(json!({"allowedPaths": ["/metadata/labels"]})).await;
    let is_denied = |response: &Answer| response.refusal().contains("the patch is refused");
    until(&cluster, "shop", |name| secured(&format!("paths-{name}")), is_denied).await;

    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    config_maps.delete("lucid-webhooks", &DeleteParams::default()).await.unwrap();
    until_injected(&cluster, "shop", "again", GUARDRAILS).await;
    assert_eq!(metric(&operator, is_valid).await, 1);

    // Each pod that gets auditors says so, with a warning and an event.
    permit(json!({"strict": true})).await;
    let warns = |response: &Answer| {
        has_chain(response, GUARDRAILS) && response.warnings.join("\n").contains("unknown field `strict`")
    };
    let warned = until(&cluster, "shop", |name| secured(&format!("warned-{name}")), warns).await;
    let name = warned.stored().unwrap().metadata.name.unwrap();
    events_about(&cluster, "Pod", &name, any_note_contains("unknown field `strict`")).await;
}

/// Allows service account `mutater` of lucid-system to use `verb` on pods of `namespace`.
async fn permit_mutater(cluster: &Cluster, namespace: &str, verb: &str) {
    let metadata = json!({"name": "mutater"});
    let role =
        json!({"metadata": metadata, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]});
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mutater"},
        "subjects": [{"kind": "ServiceAccount", "name": "mutater", "namespace": "lucid-system"}],
    });
    let roles: Api<Role> = Api::namespaced(cluster.client(), namespace);
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.client(), namespace);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

fn any_note_contains(text: &str) -> impl Fn(&[Event]) -> bool {
    move |events| events.iter().any(|event| event.note.as_deref().is_some_and(|note| note.contains(text)))
}

const EXAMPLE: &str = "\
webhooks:
  mutate.lucid.computing:
    failureAction: warn              # abort | warn | skip
    recoveryPolicy: skip             # after a panic: panic (same as abort) | abort | warn | skip
    selector:
      matchLabels: {app: my-app}
      namespace: my-namespace        # or a list
      resourceKind: Pod
      resourceName: my-pod
    strictMode: true                 # the object must consent
    serviceAccountName: lucid-system/mutater
    allowedPaths: [/spec/containers, /spec/initContainers, /metadata/annotations/lucid.computing~1status]
";

#[tokio::test]
async fn a_pod_within_all_permissions_is_injected() {
    let cluster = authenticated_cluster().await;
    cluster.create_namespace("my-namespace", &[ENABLED]).await.unwrap();
    permit_mutater(&cluster, "my-namespace", "mutate").await;
    config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", EXAMPLE).await;
    let _operator = operator(&cluster, OperatorBuilder::authenticated).await;
    let pod = |name: &str, app: &str, annotations: Value| {
        let mut pod = secured_with(name, annotations);
        pod["metadata"]["labels"]["app"] = json!(app);
        pod
    };
    let consent = json!({"canMutate": "mutate"});
    let wanted = pod("my-pod", "my-app", consent.clone());
    eventually("the pod has its chain", async || {
        let response = dry_run(&cluster, "my-namespace", &wanted).await;
        if has_chain(&response, GUARDRAILS) { Ok(()) } else { Err(response) }
    })
    .await;
    for (namespace, other) in [
        ("shop", wanted.clone()),
        ("my-namespace", pod("other-pod", "my-app", consent.clone())),
        ("my-namespace", pod("my-pod", "other-app", consent)),
        ("my-namespace", pod("my-pod", "my-app", json!({}))),
    ] {
        let response = dry_run(&cluster, namespace, &other).await;
        assert!(has_chain(&response, &[]), "{response:?}");
        assert!(!response.warnings.join("\n").contains("may neither"), "{response:?}");
    }
}

#[tokio::test]
async fn failures_and_denials_under_permissions_are_recorded() {
    let cluster = authenticated_cluster().await;
    let log = cluster.folder().join("decisions");
    let operator = operator(&cluster, |operator| {
        operator.authenticated().env("LUCID_DECISION_LOG", log.to_str().unwrap())
    })
    .await;
    until_injected(&cluster, "shop", "free", GUARDRAILS).await;
    let attempt = Cell::new(0);
    let outcome = async |webhook: &str, permissions: Value, holds: &dyn Fn(&Answer) -> bool| {
        let yaml = json!({"webhooks": {webhook: permissions}}).to_string();
        config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", &yaml).await;
        eventually("a pod that meets the condition", async || {
            attempt.set(attempt.get() + 1);
            let name = format!("attempt-{}", attempt.get());
            let response = create(&cluster, "shop", &secured(&name)).await;
            if holds(&response) { Ok(name) } else { Err(response) }
        })
        .await
    };
    let recorded = |webhook: &str, name: &str| {
        let all = decisions(&log);
        let found = Vec::from_iter(all.iter().filter(|it| it["webhook"] == webhook && it["name"] == name));
        let [it] = found[..] else { panic!("{webhook} of {name} has to be in {all:?} once") };
        (it["allowed"].clone(), it["tier"].clone(), it["message"].to_string())
    };

    let is_plain = |response: &Answer| has_chain(response, &[]);
    let paths = json!(["/metadata/labels"]);
    let skip = json!({"failureAction": "skip", "allowedPaths": paths});
    let name = outcome("mutate.lucid.computing", skip, &is_plain).await;
    let (allowed, tier, message) = recorded("mutate", &name);
    assert_eq!((allowed, tier), (json!(true), json!("missing")));
    assert!(message.contains("the webhook failed: the patch is refused"), "{message}");
    assert!(
        metric(&operator, r#"lucid_injections_total{outcome="failed",reason="InternalError"}"#).await >= 1
    );
    events_about(&cluster, "Pod", &name, any_note_contains("the patch is refused")).await;

    let is_forbidden =
        |response: &Answer| response.status == 403 && response.refusal().contains("nobody may neither");
    for (webhook, recorded_as) in
        [("mutate.lucid.computing", "mutate"), ("validate.lucid.computing", "validate")]
    {
        let deny = json!({"serviceAccountName": "lucid-system/nobody", "forbidden": "deny"});
        let name = outcome(webhook, deny, &is_forbidden).await;
        let (allowed, tier, message) = recorded(recorded_as, &name);
        assert_eq!((allowed, tier), (json!(false), json!("missing")));
        assert!(message.contains("nobody may neither"), "{message}");
    }
}

#[tokio::test]
async fn permissions_exclude_pods_and_workloads_from_validation() {
    let cluster = authenticated_cluster().await;
    let _operator = operator(&cluster, OperatorBuilder::authenticated).await;
    let pods = "/api/v1/namespaces/shop/pods?dryRun=All";
    let deployments = "/apis/apps/v1/namespaces/shop/deployments?dryRun=All";
    for (webhook, path, object) in [
        ("validate.lucid.computing", pods, secured("web")),
        ("workloads.lucid.computing", deployments, deployment("web", 1, &secured("web"))),
    ] {
        for (namespace, warns) in [("elsewhere", false), ("shop", true)] {
            let yaml = json!({"webhooks": {webhook: {"selector": {"namespace": namespace}}}}).to_string();
            config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", &yaml).await;
            eventually("the webhook follows its selector", async || {
                let response = ask(&cluster.client(), None, Method::POST, path, "application/json", &object)
                    .await
                    .unwrap();
                let is_warned = response.warnings.join("\n").contains("label lucid.computing/tier");
                if response.status == 201 && is_warned == warns { Ok(()) } else { Err(response) }
            })
            .await;
        }
    }
}

#[tokio::test]
async fn changes_of_labels_that_permissions_read_are_validated() {
    let cluster = authenticated_cluster().await;
    let log = cluster.folder().join("decisions");
    let _operator = operator(&cluster, |operator| {
        operator.authenticated().env("LUCID_DECISION_LOG", log.to_str().unwrap())
    })
    .await;
    until_injected(&cluster, "shop", "web", GUARDRAILS).await;
    let name = create(&cluster, "shop", &secured("labelled")).await.stored().unwrap().metadata.name.unwrap();
    let validated_changes = async |team: usize| {
        let label = json!({"metadata": {"labels": {"team": team.to_string()}}});
        assert_eq!(patch_pod(&cluster, &name, &label).await.status, 200);
        let all = decisions(&log).into_iter();
        all.filter(|it| it["name"] == *name && it["operation"] == "UPDATE").count()
    };
    assert_eq!(validated_changes(0).await, 0);
    let permissions = json!({"selector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}});
    let yaml = json!({"webhooks": {"validate.lucid.computing": permissions}}).to_string();
    config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", &yaml).await;
    let mut team = 0;
    eventually("changes are validated", async || {
        team += 1;
        let changes = validated_changes(team).await;
        if changes > 0 { Ok(()) } else { Err(changes) }
    })
    .await;
    check(&cluster).await.assert("registration", "validate.lucid.computing", "ok", &["is as configured"]);
}
