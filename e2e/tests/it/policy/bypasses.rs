//! Pods that could bypass or change their auditors.

use lucid_e2e::{Answer, Operator};
use lucid_testbed::Cluster;
use serde_json::json;

use super::{PODS, assert_passed, assert_refused, merged, plain, post, with};
use crate::common::{REQUIRED, annotate_namespace, metric, pod, secured, secured_with, until};

pub(super) async fn bypasses_are_denied(cluster: &Cluster, operator: &Operator) {
    let context = "/spec/containers/0/securityContext";
    let skip = json!({"lucid.computing/skip-audit": "true"});
    // One of each kind; lucid-policy's tests have all of them.
    let aliases = json!([{"ip": "203.0.113.7", "hostnames": ["a.example.com", "localhost"]}]);
    let volumes = json!([{"name": "node", "hostPath": {"path": "/var/run/docker.sock"}}]);
    let mounts = json!({"volumeMounts": [{"name": "node", "mountPath": "/node", "readOnly": true}]});
    for (what, pod, says) in [
        ("uid", with(secured("a"), context, json!({"runAsUser": 20001})), "user 20001"),
        ("SETUID", with(secured("a"), context, json!({"capabilities": {"add": ["SETUID"]}})), "SETUID"),
        ("hostPID", with(secured("a"), "/spec/hostPID", json!(true)), "hostPID"),
        (
            "alias",
            with(secured("a"), "/spec/hostAliases", aliases),
            r#"gives "localhost" the address "203.0.113.7""#,
        ),
        ("node", merged("a", json!({"volumes": volumes}), mounts), r#"mounts "/run/docker.sock""#),
        ("skip", secured_with("a", skip), "skip-audit"),
    ] {
        assert_refused(what, &post(cluster, PODS, &pod).await, &[says]);
    }
    for (name, pod) in [
        ("ordinary", secured("ordinary")),
        ("user", with(secured("user"), context, json!({"runAsUser": 1000}))),
        ("root", with(secured("root"), context, json!({"runAsUser": 0}))),
        ("unsecured", with(plain("unsecured"), context, json!({"privileged": true}))),
    ] {
        assert_passed(name, &post(cluster, PODS, &pod).await);
    }

    // A namespace requires a chain, and the denial names the missing parts.
    let bank = "/api/v1/namespaces/bank/pods";
    let misspelt = pod("misspelt", json!({"lucid.io/secure": "true"}), json!({}));
    let refused = post(cluster, bank, &misspelt).await;
    assert_refused("bank", &refused, &["the namespace requires an auditor chain"]);
    assert!(refused.warnings.join("\n").contains("did you mean the label lucid.io/secured?"), "{refused:?}");
    assert_passed("bank", &post(cluster, bank, &secured("web")).await);
    assert!(metric(operator, r#"lucid_policy_findings_total{reason="ChainMissing"}"#).await >= 1);
    // Changes of the namespace take effect, also by an annotation.
    annotate_namespace(cluster, "shop", json!({REQUIRED.0: REQUIRED.1})).await;
    let is_refused = |response: &Answer| response.refusal().contains("requires an auditor chain");
    until(cluster, "shop", |name| plain(&format!("plain-{name}")), is_refused).await;
}
