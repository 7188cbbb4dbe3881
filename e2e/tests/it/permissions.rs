//! The administrator's permissions of the webhooks, in ConfigMap `lucid-webhooks`.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::DeleteParams;
use lucid_e2e::Answer;
use serde_json::json;

use crate::check::check;
use crate::common::{
    GUARDRAILS, authenticated_cluster, chain, config_map, create, create_object, has_chain, log, logged_in,
    metric, operator, secured, secured_with, until, until_injected,
};
use crate::notices::events_about;

#[tokio::test]
async fn permissions_restrict_the_webhook_while_it_is_served() {
    let cluster = authenticated_cluster().await;
    let operator = operator(&cluster, |operator| operator.authenticated().env("LUCID_TIER_LABEL", "")).await;
    until_injected(&cluster, "shop", "free", GUARDRAILS).await;
    let permit = async |permissions: serde_json::Value| {
        let yaml = json!({"webhooks": {"mutate.lucid.computing": permissions}}).to_string();
        config_map(&cluster, "lucid-system", "lucid-webhooks", "webhooks.yaml", &yaml).await;
    };
    let is_plain = |answer: &Answer| answer.result.as_ref().is_ok_and(|pod| chain(pod).len() == 1);

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
    until(&cluster, "shop", consenting, |answer| has_chain(answer, GUARDRAILS)).await;
    assert!(is_plain(&create(&cluster, "shop", &secured("silent")).await));
    let quoted = secured_with("quoted", json!({"canMutate": "“mutate”"}));
    let answer = create(&cluster, "shop", &quoted).await;
    assert!(
        answer.warnings.join("\n").contains("annotation canMutate contains the typographic quote “"),
        "{answer:?}"
    );

    // The webhook acts within the permissions of a service account.
    let metadata = json!({"name": "mutater", "namespace": "shop"});
    let _: Role = create_object(
        &cluster,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["update"]}],
        }),
    )
    .await;
    let _: RoleBinding = create_object(
        &cluster,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mutater"},
            "subjects": [{"kind": "ServiceAccount", "name": "mutater", "namespace": "lucid-system"}],
        }),
    )
    .await;
    permit(json!({"serviceAccountName": "lucid-system/nobody"})).await;
    let is_refused = |answer: &Answer| {
        is_plain(answer)
            && answer.warnings.join("\n").contains("lucid-system:nobody may neither update nor mutate pods")
    };
    until(&cluster, "shop", |name| secured(&format!("nobody-{name}")), is_refused).await;
    permit(json!({"serviceAccountName": "lucid-system/mutater"})).await;
    until_injected(&cluster, "shop", "mutater", GUARDRAILS).await;

    // Lucid may not change anything outside of the allowed paths.
    permit(json!({"allowedPaths": ["/metadata/labels"]})).await;
    let is_denied = |answer: &Answer| {
        [answer.refusal(), &answer.warnings.join("\n")]
            .iter()
            .any(|text| text.contains("the patch is refused"))
    };
    until(&cluster, "shop", |name| secured(&format!("paths-{name}")), is_denied).await;

    let config_maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    config_maps.delete("lucid-webhooks", &DeleteParams::default()).await.unwrap();
    until_injected(&cluster, "shop", "again", GUARDRAILS).await;
    assert_eq!(metric(&operator, is_valid).await, 1);

    // Each pod that gets auditors says so, with a warning and an event.
    permit(json!({"strict": true})).await;
    let warns = |answer: &Answer| {
        has_chain(answer, GUARDRAILS) && answer.warnings.join("\n").contains("unknown field `strict`")
    };
    let warned = until(&cluster, "shop", |name| secured(&format!("warned-{name}")), warns).await;
    let name = warned.stored().unwrap().metadata.name.unwrap();
    let is_said = |events: &[Event]| {
        events
            .iter()
            .any(|event| event.note.as_deref().is_some_and(|note| note.contains("unknown field `strict`")))
    };
    events_about(&cluster, "Pod", &name, is_said).await;
}
