//! Checks for other mutating webhooks that are called for the same pods.

use kube::ResourceExt;
use kube::api::DynamicObject;
use lucid_chain::keys;
use serde_json::Value;

use super::namespaces::Namespace;
use super::registration::RegisteredWebhook;
use super::registration::selector;
use super::report::Check;

const CHECK: &str = "overlap";

/// Injectors that install network rules in pods, by prefix of the configuration's name.
const NETWORK: [(&str, &str); 5] = [
    ("istio-", "Istio"),
    ("linkerd-proxy-injector", "Linkerd"),
    ("kuma-", "Kuma"),
    ("consul-", "Consul"),
    ("osm-webhook", "Open Service Mesh"),
];

/// Injectors that only add containers, by prefix of the configuration's name.
const CONTAINERS: [(&str, &str); 4] = [
    ("vault-agent-injector", "Vault"),
    ("dapr-sidecar-injector", "Dapr"),
    ("opentelemetry-operator", "OpenTelemetry"),
    ("datadog-", "Datadog"),
];

pub(super) fn check(
    configurations: &[DynamicObject],
    ours: &RegisteredWebhook,
    namespaces: &[Namespace],
) -> Vec<Check> {
    let selected: Vec<_> = namespaces.iter().filter(|it| it.is_selected).collect();
    let others = configurations.iter().filter(|it| it.name_any() != ours.configuration);
    let mut checks = Vec::new();
    for configuration in others {
        let webhooks = configuration.data["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
        for webhook in webhooks.iter().filter(|webhook| is_for_new_pods(webhook)) {
            let namespaces = selector(&webhook["namespaceSelector"]);
            let met: Vec<_> = selected
                .iter()
                .filter(|it| kube::core::SelectorExt::matches(&namespaces, &it.labels))
                .map(|it| it.name.as_str())
                .collect();
            if !met.is_empty() && may_select_secured(&webhook["objectSelector"]) {
                checks.push(evaluate(&configuration.name_any(), webhook, ours, &met));
            }
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(CHECK, "no other mutating webhook is called for the same pods"));
    }
    checks
}

fn evaluate(configuration: &str, webhook: &Value, ours: &RegisteredWebhook, met: &[&str]) -> Check {
    let name = webhook["name"].as_str().unwrap_or_default();
    let object = format!("{configuration}/{name}");
    // The API server calls configurations in alphabetical order.
    let is_after = configuration > ours.configuration.as_str();
    let order = if is_after { "after" } else { "before" };
    let place = met.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if met.len() > 5 { format!(" and {} more namespaces", met.len() - 5) } else { String::new() };
    let called = format!("is called {order} Lucid for pods of {place}{more}");
    let vendor = |known: &[(&str, &'static str)]| {
        known.iter().find(|(begin, _)| configuration.starts_with(begin)).map(|(_, vendor)| *vendor)
    };
    let is_same_service = webhook["clientConfig"]["service"]["name"]
        == ours.webhook["clientConfig"]["service"]["name"]
        && webhook["clientConfig"]["service"]["namespace"]
            == ours.webhook["clientConfig"]["service"]["namespace"]
        && !ours.webhook["clientConfig"]["service"].is_null();
    if is_same_service {
        return Check::warning(
            CHECK,
            format!("{called} and calls the same Service: the operator is called twice"),
        )
        .of(object)
        .action(format!("kubectl delete mutatingwebhookconfiguration {configuration}, if it is not needed"));
    }
    if is_after && ours.webhook["reinvocationPolicy"] != "IfNeeded" {
        return Check::failed(CHECK, format!(
                "{called}, and Lucid is not called again when it changes a pod: containers it adds are not audited"
            ),
        )
        .of(object)
        .action("restart lucid-operator, which sets reinvocationPolicy: IfNeeded");
    }
    let then = if is_after {
        "Lucid is called again when it changes a pod (reinvocationPolicy IfNeeded), and includes its additions in the plan"
    } else if webhook["reinvocationPolicy"] == "IfNeeded" {
        "it is called again after Lucid has changed a pod, and may change the auditors"
    } else {
        "its containers exist when the chain is planned; it does not see the auditors (reinvocationPolicy Never)"
    };
    if let Some(vendor) = vendor(&NETWORK) {
        return Check::warning(CHECK, format!("{vendor} {called}: {then}; both install network rules in the pod"),
        )
        .of(object)
        .action(format!(
            "in these pods use {}: \"env\", or exclude the ports of auditors and model from the redirection of {vendor}",
            keys::INTERCEPT
        ));
    }
    let prefix = vendor(&CONTAINERS).map(|vendor| format!("{vendor} ")).unwrap_or_default();
    Check::ok(CHECK, format!("{prefix}{called}: {then}")).of(object)
}

fn is_for_new_pods(webhook: &Value) -> bool {
    let has = |list: &Value, wanted: &[&str]| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).any(|it| wanted.contains(&it))
    };
    webhook["rules"].as_array().into_iter().flatten().any(|rule| {
        has(&rule["operations"], &["CREATE", "*"])
            && has(&rule["apiGroups"], &["", "*"])
            && has(&rule["apiVersions"], &["v1", "*"])
            && has(&rule["resources"], &["pods", "*", "*/*", "pods/*"])
            && rule["scope"] != "Cluster"
    })
}

/// Returns `true` if the webhook may be called for secured pods. Only terms about Lucid's own label are evaluated.
fn may_select_secured(object_selector: &Value) -> bool {
    let label = object_selector["matchLabels"].get(keys::SECURED_LABEL);
    let expressions = object_selector["matchExpressions"].as_array().into_iter().flatten();
    let excludes = |expression: &Value| {
        let names_true =
            expression["values"].as_array().into_iter().flatten().any(|value| *value == keys::TRUE);
        expression["key"] == keys::SECURED_LABEL
            && match expression["operator"].as_str() {
                Some("DoesNotExist") => true,
                Some("NotIn") => names_true,
                Some("In") => !names_true,
                _ => false,
            }
    };
    label.is_none_or(|value| *value == keys::TRUE) && !expressions.into_iter().any(excludes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::check::report::Status;

    fn ours(reinvocation: &str) -> RegisteredWebhook {
        RegisteredWebhook {
            configuration: "lucid-operator".to_owned(),
            name: "mutate.lucid.computing",
            object: "mutate.lucid.computing".to_owned(),
            webhook: json!({"reinvocationPolicy": reinvocation,
                "clientConfig": {"service": {"namespace": "lucid-system", "name": "lucid-operator-webhook"}}}),
            since: None,
        }
    }

    fn statuses(
        name: &str,
        ours: &RegisteredWebhook,
        change: impl FnOnce(&mut Value),
    ) -> Vec<(Status, String)> {
        let mut webhook = json!({"name": "other.example.com", "reinvocationPolicy": "Never",
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
        change(&mut webhook);
        let object: DynamicObject =
            serde_json::from_value(json!({"metadata": {"name": name}, "webhooks": [webhook]})).unwrap();
        let shop = Namespace {
            name: "shop".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            is_selected: true,
            is_covered: true,
            since: None,
        };
        check(&[object], ours, &[shop]).into_iter().map(|it| (it.status, it.found)).collect()
    }

    #[test]
    fn other_webhooks_are_reported_with_their_order() {
        let ours = ours("IfNeeded");
        for (name, status, text) in [
            ("istio-sidecar-injector", Status::Warning, "Istio is called before Lucid"),
            ("linkerd-proxy-injector-webhook-config", Status::Warning, "network rules"),
            ("vault-agent-injector-cfg", Status::Ok, "Vault is called after Lucid"),
            ("dapr-sidecar-injector", Status::Ok, "does not see the auditors"),
            ("opentelemetry-operator-mutation", Status::Ok, "is called again when it changes a pod"),
            ("zzz", Status::Ok, "is called after Lucid for pods of shop"),
        ] {
            let found = statuses(name, &ours, |_| ());
            assert!(
                found.len() == 1 && found[0].0 == status && found[0].1.contains(text),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn a_later_webhook_requires_reinvocation() {
        assert_eq!(statuses("zzz", &ours("Never"), |_| ())[0].0, Status::Failed);
        assert_eq!(statuses("aaa", &ours("Never"), |_| ())[0].0, Status::Ok);
    }

    #[test]
    fn another_webhook_of_the_same_service_is_reported() {
        let ours = ours("IfNeeded");
        let found =
            statuses("lucid-webhook", &ours, |it| it["clientConfig"] = ours.webhook["clientConfig"].clone());
        assert_eq!(found[0].0, Status::Warning);
    }

    #[test]
    fn webhooks_for_other_pods_are_ignored() {
        let none = |change: fn(&mut Value)| {
            let found = statuses("istio-sidecar-injector", &ours("IfNeeded"), change);
            assert_eq!(found[0].0, Status::Ok, "{found:?}");
        };
        none(|it| it["rules"][0]["resources"] = json!(["services"]));
        none(|it| it["rules"][0]["operations"] = json!(["UPDATE"]));
        none(|it| it["rules"][0]["scope"] = json!("Cluster"));
        none(|it| it["namespaceSelector"] = json!({"matchLabels": {"team": "b"}}));
        none(|it| it["objectSelector"] = json!({"matchLabels": {"lucid.io/secured": "false"}}));
        none(|it| {
            it["objectSelector"] =
                json!({"matchExpressions": [{"key": "lucid.io/secured", "operator": "DoesNotExist"}]});
        });
    }
}
