//! Updates of pods that were created before their namespace had auditors.

use lucid_policy::{EvaluatedKeys, Mode, Request, Workload};
use serde_json::{Value, json};

use crate::common::{Ask, NOW, injected, plain, secured};

fn older() -> Value {
    let mut pod = plain();
    pod["metadata"]["labels"] = json!({"app": "worker", "team/class": "gold"});
    pod["metadata"]["annotations"] = json!({"queue.example/admitted": "false"});
    pod["metadata"]["finalizers"] = json!(["batch.example/tracking"]);
    pod["metadata"]["ownerReferences"] =
        json!([{"kind": "PodSet", "name": "worker", "blockOwnerDeletion": true}]);
    pod["spec"]["nodeName"] = json!("node-2");
    pod["spec"]["hostPID"] = json!(true);
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    pod
}

fn is_evaluated(old: &Value, new: &Value, keys: Option<&EvaluatedKeys>) -> bool {
    let (old, new) = (old.to_string(), new.to_string());
    let request = Request::new(Workload::Pod, "shop", NOW.parse().unwrap())
        .with_object(Some(new.as_bytes()))
        .with_old_object(Some(old.as_bytes()));
    let request = keys.map_or(request, |keys| request.with_evaluated_keys(keys));
    request.subject().unwrap().is_some()
}

#[test]
fn every_label_is_evaluated_without_a_list_of_keys() {
    let mut new = older();
    new["metadata"]["labels"]["app"] = json!("other");
    assert!(is_evaluated(&older(), &new, None));
    new = older();
    new["metadata"]["finalizers"] = json!([]);
    assert!(!is_evaluated(&older(), &new, None));
}

#[test]
fn only_the_spec_and_evaluated_keys_are_evaluated() {
    let keys = EvaluatedKeys::default().with(["team/class"]);
    for (change, expected) in [
        (json!({"metadata": {"labels": {"app": "other"}}}), false),
        (json!({"metadata": {"labels": {"app": null}}}), false),
        (json!({"metadata": {"labels": null}}), true),
        (json!({"metadata": {"annotations": {"queue.example/admitted": "true"}}}), false),
        (json!({"metadata": {"annotations": null}}), false),
        (json!({"metadata": {"finalizers": null}}), false),
        (json!({"metadata": {"finalizers": null, "labels": {"app": "other"}}}), false),
        (json!({"metadata": {"ownerReferences": null}}), false),
        (json!({"metadata": {"resourceVersion": "2", "managedFields": []}}), false),
        (json!({"status": {"phase": "Failed"}}), false),
        (json!({"metadata": {"labels": {"team/class": "iron"}}}), true),
        (json!({"metadata": {"labels": {"team/class": null}}}), true),
        (json!({"metadata": {"labels": {"lucid.io/secured": "true"}}}), true),
        (json!({"metadata": {"labels": {"lucid.io/other": "true"}}}), false),
        (json!({"metadata": {"labels": {"lucid.computing/tier": "A"}}}), true),
        (json!({"metadata": {"annotations": {"lucid.computing/auditors": "injection"}}}), true),
        (json!({"metadata": {"annotations": {"canMutate": "mutate"}}}), true),
        (json!({"metadata": {"annotations": {"canValidate": "validate"}}}), true),
        (json!({"spec": {"nodeSelector": {"pool": "gpu"}}}), true),
        (json!({"spec": {"tolerations": [{"operator": "Exists"}]}}), true),
    ] {
        let mut new = older();
        json_patch::merge(&mut new, &change);
        assert_eq!(is_evaluated(&older(), &new, Some(&keys)), expected, "{change}");
        assert_eq!(is_evaluated(&new, &older(), Some(&keys)), expected, "the other way: {change}");
    }
}

#[test]
fn pods_gated_before_their_namespace_was_enabled_are_refused() {
    let gated = |mut pod: Value| {
        pod["spec"]["schedulingGates"] = json!([{"name": "queue.example/admission"}]);
        pod
    };
    let ungated = |mut pod: Value| {
        pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
        pod["spec"]["nodeSelector"] = json!({"pool": "gpu"});
        pod
    };
    for (pod, requires_chain, expected) in [
        (secured(), false, "create it again"),
        (secured(), true, "create it again"),
        (plain(), true, "create it again"),
        (plain(), false, ""),
        (injected(&secured()), false, ""),
    ] {
        let old = gated(pod);
        let ask = Ask::update(&old, &ungated(old.clone())).with(|ask| ask.requires_chain = requires_chain);
        let denial = ask.denial();
        assert!(denial.ends_with(expected) && denial.is_empty() == expected.is_empty(), "{denial}");
        let warnings = ask.with(|ask| ask.policy.mode = Mode::Audit).evaluate().unwrap().warnings();
        assert_eq!(
            warnings.iter().any(|it| it.ends_with("create it again")),
            !expected.is_empty(),
            "{warnings:?}"
        );
    }
}
