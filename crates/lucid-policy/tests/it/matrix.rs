//! Auditor images and ways around a chain, in every list of every kind of object and by every operation.

use lucid_policy::Workload;
use serde_json::{Value, json};

use crate::common::{
    Ask, NOTARIZED, REVOKED, assert_says, injected, object, plain, push, secured, with_other_model,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Refused,
    Warned,
    Passes,
}
use Verdict::{Passes, Refused, Warned};

fn verdict(ask: &Ask) -> Verdict {
    match ask.evaluate() {
        Some(evaluation) if evaluation.denial().is_some() => Refused,
        Some(evaluation) if !evaluation.warnings().is_empty() => Warned,
        _ => Passes,
    }
}

const PLACES: [&str; 4] = ["containers", "initContainers", "ephemeralContainers", "volumes"];

fn with_auditor(pod: &Value, list: &str, image: &str) -> Value {
    let mut pod = pod.clone();
    let item = match list {
        "volumes" => json!({"name": "x", "image": {"reference": image}}),
        _ => json!({"name": "x", "image": image}),
    };
    push(&mut pod, list, item);
    pod
}

fn revoked() -> String {
    format!("reg.test/first@{REVOKED}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Create,
    Update,
    /// UPDATE of another field of an object that already has the auditor.
    UpdateElsewhere,
    Ephemeral,
    Scale,
}

fn asked(workload: Workload, way: Way, old: Option<&Value>, new: &Value) -> Ask {
    Ask::of(workload, new).with(|ask| {
        ask.old = old.filter(|_| way != Way::Create).map(|old| object(workload, old));
        ask.subresource = match way {
            Way::Ephemeral => Some("ephemeralcontainers"),
            Way::Scale => Some("scale"),
            _ => None,
        };
    })
}

#[test]
fn images_are_evaluated_in_every_list_and_operation() {
    let pod_ways = [
        // The API server rejects updates that add containers or volumes. The policy does not rely on it.
        (Way::Create, [Refused, Refused, Refused, Refused]),
        (Way::Update, [Refused, Refused, Refused, Passes]),
        (Way::UpdateElsewhere, [Passes; 4]),
        (Way::Ephemeral, [Refused, Refused, Refused, Passes]),
        (Way::Scale, [Passes; 4]),
    ];
    // An update of a template is evaluated like its creation.
    let template_ways = [
        (Way::Create, [Warned; 4]),
        (Way::Update, [Warned; 4]),
        (Way::UpdateElsewhere, [Warned; 4]),
        (Way::Ephemeral, [Warned; 4]),
        (Way::Scale, [Passes; 4]),
    ];
    for workload in Workload::ALL {
        for (way, expected) in if workload.is_pod() { pod_ways } else { template_ways } {
            for (list, expected) in PLACES.into_iter().zip(expected) {
                let before = with_auditor(&plain(), list, &revoked());
                let elsewhere = with_other_model(&before);
                let (old, new) = match way {
                    Way::UpdateElsewhere => (Some(before), elsewhere),
                    Way::Create => (None, before),
                    _ => (Some(plain()), before),
                };
                let ask = asked(workload, way, old.as_ref(), &new);
                assert_eq!(verdict(&ask), expected, "{list} of {workload}, {way:?}");
            }
        }
    }
}

/// Ways around a chain: the reason, and the container fields.
fn bypasses() -> [(&'static str, Value); 5] {
    [
        ("AuditorUid", json!({"securityContext": {"runAsUser": 20001}})),
        ("Privileged", json!({"securityContext": {"privileged": true}})),
        ("Capability", json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})),
        ("UnmaskedProc", json!({"securityContext": {"procMount": "Unmasked"}})),
        ("HostPath", json!({"volumeMounts": [{"name": "node", "mountPath": "/node"}]})),
    ]
}

#[test]
fn bypasses_are_evaluated_in_every_list_and_operation() {
    let pod_ways = [
        (Way::Create, Refused),
        (Way::Update, Refused),
        (Way::UpdateElsewhere, Passes),
        (Way::Ephemeral, Refused),
        (Way::Scale, Passes),
    ];
    let template_ways = [
        (Way::Create, Warned),
        (Way::Update, Warned),
        (Way::UpdateElsewhere, Warned),
        (Way::Ephemeral, Warned),
        (Way::Scale, Passes),
    ];
    for (reason, fields) in bypasses() {
        for workload in Workload::ALL {
            let is_pod = workload.is_pod();
            let mut clean = if is_pod { injected(&secured()) } else { secured() };
            let node = json!({"name": "node", "hostPath": {"path": "/proc"}});
            push(&mut clean, "volumes", node);
            // The object has no other findings.
            assert_eq!(asked(workload, Way::Create, None, &clean).reasons(), Vec::<&str>::new());
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                let mut item = json!({"name": "x", "image": "shop/x:1"});
                json_patch::merge(&mut item, &fields);
                let mut bad = clean.clone();
                push(&mut bad, list, item);
                for (way, expected) in if is_pod { pod_ways } else { template_ways } {
                    let elsewhere = with_other_model(&bad);
                    let (old, new) = match way {
                        Way::Create => (None, bad.clone()),
                        Way::UpdateElsewhere => (Some(bad.clone()), elsewhere),
                        _ => (Some(clean.clone()), bad.clone()),
                    };
                    let ask = asked(workload, way, old.as_ref(), &new);
                    let found = match verdict(&ask) {
                        Refused | Warned if !ask.reasons().contains(&reason) => Passes,
                        found => found,
                    };
                    assert_eq!(found, expected, "{reason} in {list} of {workload}, {way:?}");
                }
            }
        }
    }
}

#[test]
fn the_image_of_a_running_auditor_cannot_be_changed() {
    let running = injected(&secured());
    for (list, place) in [("containers", 1), ("initContainers", 0)] {
        let mut changed = running.clone();
        changed["spec"][list][place]["image"] = json!(revoked());
        let denial = Ask::update(&running, &changed).denial();
        assert_says(&denial, &["not notarized", "differs from the plan in image"]);
    }
    assert_eq!(Ask::update(&running, &with_other_model(&running)).denial(), "");
    // An auditor of a pod without a chain.
    let [old, new] = [NOTARIZED, REVOKED]
        .map(|digest| with_auditor(&plain(), "containers", &format!("reg.test/first@{digest}")));
    assert_says(&Ask::update(&old, &new).denial(), &["not notarized"]);
}

#[test]
fn markers_of_an_object_are_not_trusted() {
    let forged = [
        (
            "status",
            json!({"annotations": {"lucid.computing/status": r#"{"chain":["first"],"planHash":"sha256:00"}"#}}),
        ),
        (
            "owner",
            json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true}]}),
        ),
        (
            "node as owner",
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}]}),
        ),
        (
            "mirror",
            json!({"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}}),
        ),
        ("verdict", json!({"annotations": {"lucid.computing/notarized": "true"}})),
        ("ticket as annotation", json!({"annotations": {"lucid.computing/break-glass": "INC-1"}})),
        ("other's ticket", json!({"labels": {"image-policy.k8s.io/break-glass": "INC-1"}})),
        ("namespace", json!({"namespace": "kube-system"})),
        ("managed", json!({"managedFields": [{"manager": "lucid-operator", "operation": "Update"}]})),
    ];
    for (what, metadata) in forged {
        let mut pod = with_auditor(&secured(), "containers", &revoked());
        for (key, value) in metadata.as_object().unwrap() {
            match pod["metadata"][key].as_object_mut().zip(value.as_object()) {
                Some((old, new)) => old.extend(new.clone()),
                None => pod["metadata"][key] = value.clone(),
            }
        }
        let denial = Ask::create(&pod).denial();
        assert!(denial.contains("not notarized"), "{what}: {denial}");
        pod["spec"]["containers"].as_array_mut().unwrap().pop();
        let denial = Ask::create(&pod).denial();
        assert!(denial.contains("asks for an auditor chain and has none"), "{what}: {denial}");
    }
}
