//! Namespaces that require a chain, and the choices of their pods.

use lucid_e2e::{Answer, Operator};
use lucid_testbed::Cluster;
use serde_json::json;

use super::{assert_passed, assert_refused, post};
use crate::common::{label_namespace, metric, pod, secured_with, until};

pub(super) async fn namespaces_limit_the_choices_of_pods(cluster: &Cluster, operator: &Operator) {
    for (number, (key, value, is_chain)) in
        [("auditor-chain", "weak", true), ("intercept", "env", false), ("skip-audit", "true", false)]
            .into_iter()
            .enumerate()
    {
        let key = format!("lucid.computing/{key}");
        let pod = secured_with(&format!("p{number}"), json!({&key: value}));
        for (namespace, setting, allowed) in [
            ("bank", "none", false),
            ("bank-chain", "chain", is_chain),
            ("bank-all", "all", key != "lucid.computing/skip-audit"),
        ] {
            let what = format!("{key} in {namespace}");
            let reply = post(cluster, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
            if allowed {
                assert_passed(&what, &reply);
            } else if setting == "all" {
                // LUCID_ALLOW_SKIP is false.
                assert_refused(&what, &reply, &[&key]);
            } else {
                let setting = format!("lucid.computing/pod-choices of the namespace is \"{setting}\"");
                assert_refused(&what, &reply, &[&format!("annotation {key} is not allowed"), &setting]);
                let ignored = format!("annotation {key} is ignored: {setting}");
                assert!(reply.warnings.contains(&ignored), "{what}: {:?}", reply.warnings);
            }
        }
    }

    // The ticket of a pod counts only where `lucid.computing/pod-choices` allows it.
    let ticket = json!({"lucid.computing/break-glass": "INC-1"});
    let broken = pod("broken", ticket, json!({}));
    let bank = "/api/v1/namespaces/bank/pods";
    let refused = post(cluster, bank, &broken).await;
    assert_refused("ticket", &refused, &["requires an auditor chain"]);
    let says = "label lucid.computing/break-glass does not count: lucid.computing/pod-choices";
    let said = format!("{} {}", refused.body["message"], refused.warnings.join("\n"));
    assert!(said.contains(says), "{said}");
    assert_passed("ticket", &post(cluster, "/api/v1/namespaces/bank-all/pods", &broken).await);
    assert!(metric(operator, r#"lucid_policy_findings_total{reason="ChoiceNotAllowed"}"#).await >= 1);

    // An invalid value allows nothing and is reported.
    label_namespace(cluster, "bank-all", json!({"lucid.computing/pod-choices": "some"})).await;
    let observe = json!({"lucid.computing/audit-mode": "observe"});
    let observing = |name: &str| secured_with(&format!("observing-{name}"), observe.clone());
    let is_refused = |response: &Answer| response.refusal().contains("audit-mode is not allowed");
    let response = until(cluster, "bank-all", observing, is_refused).await;
    assert!(response.warnings.join("\n").contains(r#"found "some""#), "{:?}", response.warnings);
}
