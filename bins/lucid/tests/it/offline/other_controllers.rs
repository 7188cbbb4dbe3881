//! Pods that other controllers change or check.

use std::fs;

use serde_json::{Value, json};

use super::common::*;

fn in_shop(annotations: &str) -> String {
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, annotations: {{{annotations}}}}}\n---\n"
    );
    namespace + &POD.replace("name: web", "name: web\n  namespace: shop")
}

fn users(pod: &Value) -> Vec<i64> {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers.iter().filter_map(|it| it["securityContext"]["runAsUser"].as_i64()).collect()
}

const RANGE: &str = "openshift.io/sa.scc.uid-range";

#[test]
fn auditors_run_in_the_uid_range_of_the_namespace() {
    let enforce = ["validate", "--admission-mode", "enforce", "--tier-label", ""];
    for (intercept, expected) in [("redirect", &[1_000_740_001, 1_000_740_002][..]), ("env", &[])] {
        let input = in_shop(&format!("{RANGE}: 1000740000/10000"));
        let injected = piped(&["inject", "--intercept", intercept], &input);
        assert_eq!(users(&values(&injected)[1]), expected, "{intercept}");
        piped(&[&enforce[..], &["--intercept", intercept]].concat(), &injected);
        assert_eq!(piped(&["inject", "--intercept", intercept], &injected), injected);
    }
    let by_option = piped(&["inject", "--namespace-labels", &format!("{RANGE}=1000740000/10000")], POD);
    assert_eq!(users(&values(&by_option)[0]), [1_000_740_001, 1_000_740_002]);
    for (range, expected) in [
        ("1000740000/2", "outside of 1000740000-1000740001"),
        ("many", "expected <first>/<size> or <first>-<last>, such as 1000650000/10000, found \"many\""),
    ] {
        let ran = run(&["inject", "-f", "-"], &in_shop(&format!("{RANGE}: {range}")));
        assert!(ran.messages.contains(expected), "{}", ran.messages);
        assert_eq!(users(&values(&ran.output)[1]), [20001, 20002], "{range}");
    }
}

#[test]
fn explain_shows_that_openshift_sets_the_uid() {
    let input = in_shop(&format!("{RANGE}: 1000740000/10000"));
    let explained = piped(&["explain", "--intercept", "env"], &input);
    assert!(!explained.contains("uid ") && !explained.contains("1000740"), "{explained}");
    let explained = piped(&["explain"], &input);
    assert!(explained.contains("uid 1000740001"), "{explained}");
}

#[test]
fn an_auditor_that_gets_no_token_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = folder.path().join("auditors.yaml");
    fs::write(&catalogue, "chain: [{name: lucid-guardrails-auditor, serviceAccountToken: true}]\n").unwrap();
    let account = |automounts: &str| {
        let head = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: shop}\n";
        format!("{head}automountServiceAccountToken: {automounts}\n---\n{}", in_shop(""))
    };
    let off = |input: &str| input.replace("spec:", "spec:\n  automountServiceAccountToken: false");
    for (input, expected) in [
        (in_shop(""), false),
        (off(&in_shop("")), true),
        (account("false"), true),
        (account("true"), false),
        (account("false").replace("name: default", "name: other"), false),
        (account("false").replace("namespace: shop}\nauto", "namespace: other}\nauto"), false),
    ] {
        let ran = run(&["inject", "-f", "-", "--catalogue", catalogue.to_str().unwrap()], &input);
        assert_eq!(ran.code, 0, "{}", ran.messages);
        assert_eq!(
            ran.messages.contains("gets no ServiceAccount token"),
            expected,
            "{input}{}",
            ran.messages
        );
    }
}

/// Returns the review of an update.
fn update(old: &Value, new: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web", "namespace": "shop", "operation": "UPDATE", "dryRun": false,
        "userInfo": {"username": "jane"}, "object": new, "oldObject": old,
    }})
    .to_string()
}

#[test]
fn an_older_pod_may_be_released_but_not_changed() {
    let old = &values(POD)[0];
    for (change, expected) in [
        (json!({"metadata": {"labels": {"app": "other"}}}), 0),
        (json!({"metadata": {"finalizers": ["a/b"]}}), 0),
        (json!({"metadata": {"labels": {"team/class": "gold"}}}), 1),
        (json!({"metadata": {"labels": {"lucid.computing/tier": "A"}}}), 1),
        (json!({"spec": {"nodeSelector": {"pool": "gpu"}}}), 1),
    ] {
        let mut new = old.clone();
        json_patch::merge(&mut new, &change);
        let enforce = ["--require-chain", "--admission-mode", "enforce", "--tier-label", "team/class"];
        let ran = run(&[&["validate", "-f", "-"], &enforce[..]].concat(), &update(old, &new));
        assert_eq!(ran.code, expected, "{change}: {}{}", ran.output, ran.messages);
        assert_eq!(ran.output.contains("create it again"), expected == 1, "{change}: {}", ran.output);
    }
}
