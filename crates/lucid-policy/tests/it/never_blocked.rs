//! Requests that pass regardless of the object.

use lucid_policy::{Request, Workload};
use serde_json::{Value, json};

use crate::common::{Ask, NOW, REVOKED, object, plain, secured};

fn bad() -> Value {
    let mut pod = secured();
    pod["spec"]["hostNetwork"] = json!(true);
    pod["spec"]["containers"][0]["image"] = json!(format!("reg.test/first@{REVOKED}"));
    pod
}

#[test]
fn objects_being_deleted_may_lose_finalizers() {
    for workload in Workload::ALL {
        let old = object(workload, &bad());
        let mut new = object(workload, &plain());
        new["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
        new["metadata"]["finalizers"] = json!([]);
        let ask = Ask::update(&old, &new).with(|ask| ask.workload = workload);
        assert!(ask.evaluate().is_none(), "{workload}");
        let mut created = object(workload, &bad());
        created["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:59:00Z");
        let ask = Ask::create(&created).with(|ask| ask.workload = workload);
        assert!(ask.evaluate().is_some(), "the author of {workload} says that it is being deleted");
    }
}

#[test]
fn deletions_pass() {
    let old = bad().to_string();
    let request = Request::new(Workload::Pod, "shop", NOW.parse().unwrap());
    assert!(request.with_old_object(Some(old.as_bytes())).subject().unwrap().is_none());
}

#[test]
fn updates_outside_spec_and_template_pass() {
    for workload in Workload::ALL {
        let old = object(workload, &bad());
        let is_pod = workload == Workload::Pod;
        for (what, change, is_evaluated) in [
            ("labels", json!({"metadata": {"labels": {"lucid.computing/tier": "Z"}}}), is_pod),
            (
                "annotations",
                json!({"metadata": {"annotations": {"lucid.computing/skip-audit": "true"}}}),
                is_pod,
            ),
            ("finalizers", json!({"metadata": {"finalizers": ["a/b"]}}), false),
            ("owners", json!({"metadata": {"ownerReferences": []}}), false),
            ("status", json!({"status": {"phase": "Running"}}), false),
        ] {
            let mut new = old.clone();
            json_patch::merge(&mut new, &change);
            let ask = Ask::update(&old, &new).with(|ask| ask.workload = workload);
            assert_eq!(ask.evaluate().is_some(), is_evaluated, "{what} of {workload}");
        }
    }
}

#[test]
fn scaling_passes() {
    for workload in [
        Workload::Deployment,
        Workload::StatefulSet,
        Workload::ReplicaSet,
        Workload::ReplicationController,
        Workload::Job,
    ] {
        let old = object(workload, &bad());
        for replicas in [0, 1, 9] {
            let mut new = old.clone();
            new["spec"]["replicas"] = json!(replicas);
            new["spec"]["parallelism"] = json!(replicas);
            let ask = Ask::update(&old, &new).with(|ask| ask.workload = workload);
            assert!(ask.evaluate().is_none(), "{workload} to {replicas}");
        }
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 0}});
        let ask = Ask::update(&scale, &scale).with(|ask| {
            ask.workload = workload;
            ask.subresource = Some("scale");
        });
        assert!(ask.evaluate().is_none(), "{workload}/scale");
    }
    // Suspending a CronJob passes as well.
    let old = object(Workload::CronJob, &bad());
    let mut new = old.clone();
    new["spec"]["suspend"] = json!(true);
    assert!(Ask::update(&old, &new).with(|ask| ask.workload = Workload::CronJob).evaluate().is_none());
}

#[test]
fn other_subresources_of_a_pod_pass() {
    let mut old = bad();
    old["spec"]["nodeName"] = json!("a");
    for subresource in ["status", "binding", "eviction", "exec", "attach", "portforward", "log"] {
        let ask = Ask::update(&old, &bad()).with(|ask| ask.subresource = Some(subresource));
        assert!(ask.evaluate().is_none(), "{subresource}");
    }
}

#[test]
fn objects_without_a_template_pass() {
    for workload in Workload::ALL.into_iter().filter(|workload| !workload.is_pod()) {
        let ask = Ask::create(&json!({"metadata": {"name": "x"}})).with(|ask| ask.workload = workload);
        assert!(ask.evaluate().is_none(), "{workload}");
    }
}

#[test]
fn a_pod_without_a_spec_is_an_error() {
    for pod in [r#"{"metadata": {"name": "x"}}"#, r#"{"metadata": {"name": "x"}, "spec": null}"#] {
        let request = Request::new(Workload::Pod, "shop", NOW.parse().unwrap());
        let error = request.with_object(Some(pod.as_bytes())).subject().unwrap_err();
        assert_eq!(error.to_string(), "failed to read the pod at spec: missing");
    }
}
