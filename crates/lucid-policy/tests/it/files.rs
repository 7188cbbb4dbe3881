//! Files of auditors: their volumes, mounts and images.

use lucid_chain::{Catalogue, Configuration};
use lucid_policy::{ContainerList, Workload};
use serde_json::{Value, json};

use crate::common::{
    self, Ask, NOTARIZED, REVOKED, assert_says, configured, injected_by, plain, push, secured,
    with_other_model,
};

/// A chain whose first auditor mounts an image with this reference, a ConfigMap and a Secret.
fn configuration(weights: &str) -> Configuration {
    let yaml = format!(
        "chain: [{{name: first, files: [{{mountPath: /models, image: {{reference: '{weights}'}}}}, \
         {{mountPath: /rules, configMap: {{name: rules}}}}, {{mountPath: /keys, secret: {{secretName: keys}}}}], \
         image: 'reg.test/first@{NOTARIZED}'}}]"
    );
    let own = Catalogue::parse("auditors.yaml", &yaml).unwrap();
    configured(common::catalogue().overlay(&own), &["first", "second"])
}

fn weights(digest: &str) -> String {
    format!("reg.test/weights@{digest}")
}

fn create(pod: &Value, configuration: &Configuration) -> Ask {
    Ask::create(pod).with(|ask| ask.configuration = configuration.clone())
}

fn auditor(pod: &mut Value) -> &mut Value {
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.iter_mut().find(|container| container["name"] == "first").unwrap()
}

fn volume<'p>(pod: &'p mut Value, source: &str) -> &'p mut Value {
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    volumes.iter_mut().find(|volume| !volume[source].is_null()).unwrap()
}

#[test]
fn volume_images_are_pinned_and_notarized_like_auditors() {
    for (reference, problem) in [
        (weights(NOTARIZED), None),
        (weights(REVOKED), Some("not notarized")),
        ("reg.test/weights:1".to_owned(), Some("missing digest")),
    ] {
        let configuration = configuration(&reference);
        let pod = Ask::create(&injected_by(&secured(), &configuration));
        // A template has no volumes yet. Its pods would be refused.
        for ask in [pod, Ask::of(Workload::Deployment, &secured())] {
            let ask = ask.with(|ask| ask.configuration = configuration.clone());
            let evaluation = ask.evaluate().unwrap();
            let findings: Vec<_> = evaluation.findings.iter().map(ToString::to_string).collect();
            match problem {
                None => assert!(!evaluation.would_deny, "{findings:?}"),
                Some(problem) => {
                    let of_volume = findings.iter().find(|it| it.contains("image volume lucid-files-"));
                    assert!(evaluation.would_deny, "{findings:?}");
                    assert_says(of_volume.unwrap(), &[problem]);
                    let location = evaluation.findings[0].location.as_ref().unwrap();
                    assert_eq!((location.list, &location.image), (ContainerList::ImageVolumes, &reference));
                }
            }
        }
    }
}

#[test]
fn files_cannot_be_changed_in_a_created_pod() {
    let configuration = configuration(&weights(NOTARIZED));
    let complete = injected_by(&secured(), &configuration);
    assert_eq!(create(&complete, &configuration).denial(), "");
    type Change = fn(&mut Value);
    let changes: [(&str, &str, Change); 9] = [
        ("a mount that is missing", "ContainerDiffers", |it| drop(mounts(it).pop())),
        ("a mount elsewhere", "ContainerDiffers", |it| mounts(it)[1]["mountPath"] = json!("/other")),
        ("a part of the files", "ContainerDiffers", |it| mounts(it)[1]["subPath"] = json!("empty")),
        ("a mount of the pod", "ContainerDiffers", |it| {
            push(it, "volumes", json!({"name": "own", "emptyDir": {}}));
            mounts(it).push(json!({"name": "own", "mountPath": "/app", "readOnly": true}));
        }),
        ("another notarized image", "NotAsInjected", |it| {
            volume(it, "image")["image"]["reference"] = json!(format!("reg.test/other@{NOTARIZED}"));
        }),
        ("another digest", "NotNotarized", |it| {
            volume(it, "image")["image"]["reference"] = json!(weights(REVOKED));
        }),
        ("another ConfigMap", "NotAsInjected", |it| {
            volume(it, "configMap")["configMap"]["name"] = json!("mine");
        }),
        ("another kind", "NotAsInjected", |it| {
            let secret = volume(it, "secret");
            *secret = json!({"name": secret["name"], "emptyDir": {}});
        }),
        ("no volume", "NotAsInjected", |it| {
            it["spec"]["volumes"].as_array_mut().unwrap().retain(|it| it["secret"].is_null());
        }),
    ];
    for (what, reason, change) in changes {
        let mut pod = complete.clone();
        change(&mut pod);
        let ask = create(&pod, &configuration);
        assert!(!ask.denial().is_empty() && ask.reasons().contains(&reason), "{what}: {:?}", ask.reasons());
    }
}

/// API servers that do not know image volumes store an `emptyDir`. Those where the feature is disabled drop volume and mount.
#[test]
fn a_dropped_image_volume_is_named() {
    let configuration = configuration(&weights(NOTARIZED));
    let mut pod = injected_by(&secured(), &configuration);
    let dropped = volume(&mut pod, "image");
    let name = dropped["name"].clone();
    *dropped = json!({"name": name, "emptyDir": {}});
    let unknown = create(&pod, &configuration).denial();
    pod["spec"]["volumes"].as_array_mut().unwrap().retain(|it| it["name"] != name);
    mounts(&mut pod).retain(|it| it["name"] != name);
    let disabled = create(&pod, &configuration).denial();
    for denial in [unknown, disabled] {
        assert_says(&denial, &[name.as_str().unwrap(), "this Kubernetes has no image volumes"]);
    }
}

fn mounts(pod: &mut Value) -> &mut Vec<Value> {
    auditor(pod)["volumeMounts"].as_array_mut().unwrap()
}

#[test]
fn a_running_pod_is_not_evaluated_by_its_volumes() {
    let configuration = configuration(&weights(REVOKED));
    let old = injected_by(&secured(), &configuration);
    let new = with_other_model(&old);
    let ask = Ask::update(&old, &new).with(|ask| ask.configuration = configuration.clone());
    assert_eq!(ask.denial(), "");
    // Pods without a chain may mount anything.
    let mut pod = plain();
    pod["spec"]["volumes"] = json!([{"name": "weights", "image": {"reference": "reg.test/weights:1"}}]);
    assert_eq!(create(&pod, &configuration).denial(), "");
}
