//! The ServiceAccount token of the pod.

use std::collections::BTreeMap;

use lucid_chain::{Catalogue, Configuration, Inputs, NamespaceChain, PodView, keys, plan, uninject};
use serde_json::{Value, json};

use crate::common::*;

const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn configuration(members: &str) -> Configuration {
    let yaml = format!("chain: [{{name: own, image: own, {members}}}]");
    configured(&yaml, &["own", "toxicity"])
}

/// Returns name and volume of the mount at the token's path in each container, as stored by the API server.
fn mounted(pod: &Value) -> BTreeMap<String, Value> {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().unwrap());
    let mount = |container: &Value| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let at: Vec<_> = mounts.iter().filter(|mount| mount["mountPath"] == PATH).collect();
        assert_eq!(at.len(), 1, "{container}");
        (container["name"].as_str().unwrap().to_owned(), at[0]["name"].clone())
    };
    lists.into_iter().flatten().map(mount).collect()
}

fn stored(configuration: &Configuration) -> Value {
    let pod = pod(Value::Null, &[5000]);
    let patched = injected_with(&pod, configuration);
    let stored = defaulted(&patched);
    assert!(patch_in(&stored, configuration).is_empty(), "{stored}");
    stored
}

#[test]
fn the_token_requires_a_grant_in_the_cluster_catalogue() {
    let (token, none) = ("kube-api-access-x7k2p", keys::NO_TOKEN_VOLUME);
    for (members, expected) in
        [("port: 9000", none), ("serviceAccountToken: false", none), ("serviceAccountToken: true", token)]
    {
        let found = mounted(&stored(&configuration(members)));
        let expected =
            [("web", token), ("own", expected), ("lucid-toxicity-auditor", none), ("lucid-init", none)];
        let expected = expected.map(|(name, volume)| (name.to_owned(), json!(volume)));
        assert_eq!(found, BTreeMap::from(expected), "{members}");
    }
}

#[test]
fn a_namespace_cannot_grant_the_token() {
    let yaml = "chain: [{name: own, image: own, serviceAccountToken: true}]".to_owned();
    let data = BTreeMap::from([(keys::CATALOGUE_KEY.to_owned(), yaml)]);
    let error =
        NamespaceChain::from_data("a", &data, &Catalogue::builtin(), &any_image()).unwrap_err().to_string();
    assert!(error.contains("auditor own: expected serviceAccountToken: false, found true"), "{error}");

    // Nor can it keep the token for an auditor whose image it replaces.
    let yaml = "chain: [{name: own, image: other}]".to_owned();
    let data = BTreeMap::from([(keys::CATALOGUE_KEY.to_owned(), yaml)]);
    let configuration = configuration("serviceAccountToken: true");
    let chain = NamespaceChain::from_data("a", &data, configuration.catalogue(), &any_image()).unwrap();
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, Some(&chain)));
    let mounts = &plan.containers[0].manifest()["volumeMounts"];
    assert_eq!(mounts[0]["name"], keys::NO_TOKEN_VOLUME, "{mounts}");
}

#[test]
fn an_unplanned_token_is_a_difference() {
    let configuration = configuration("port: 9000");
    for change in [
        |mounts: &mut Value| mounts[0]["name"] = json!("kube-api-access-x7k2p"),
        |mounts: &mut Value| mounts[0]["readOnly"] = json!(false),
        |mounts: &mut Value| *mounts = json!([]),
    ] {
        let mut stored = stored(&configuration);
        let auditor = &mut stored["spec"]["containers"][1];
        assert_eq!(auditor["name"], "own");
        change(&mut auditor["volumeMounts"]);
        let patch = patch_in(&stored, &configuration);
        let warnings = patch_warnings(&patch);
        assert!(
            warnings.len() == 1 && warnings[0].ends_with("differs from it in volumeMounts"),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_non_empty_token_volume_is_replaced() {
    let mut pod = pod(Value::Null, &[5000]);
    let own = json!({"name": "own", "emptyDir": {}});
    pod["spec"]["volumes"] = json!([own, {"name": keys::NO_TOKEN_VOLUME, "projected": {"sources": []}}]);
    let patch = patch_in(&pod, &builtin());
    assert_eq!(
        patch.warnings[0].to_string(),
        "volume lucid-no-token is replaced: its name is reserved for the volume of auditors, which differs"
    );
    let empty = json!({"name": keys::NO_TOKEN_VOLUME, "downwardAPI": {}});
    assert_eq!(apply(&pod, &patch)["spec"]["volumes"], json!([own, empty]));
}

#[test]
fn uninjection_removes_the_token_volume() {
    for volumes in [Value::Null, json!([]), json!([{"name": "own", "emptyDir": {}}])] {
        let mut pod = pod(json!({}), &[5000]);
        if !volumes.is_null() {
            pod["spec"]["volumes"] = volumes;
        }
        let patched = apply(&pod, &patch_in(&pod, &builtin()));
        assert_eq!(apply(&patched, &uninject(&patched)), pod);
    }
}

#[test]
fn an_auditor_that_gets_no_token_is_reported() {
    let (granted, none) = ("serviceAccountToken: true", "serviceAccountToken: false");
    let by_hand = json!([{"name": "own-token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    for (members, of_pod, of_account, expected) in [
        (granted, None, None, None),
        (granted, None, Some(true), None),
        (granted, Some(true), Some(false), None),
        (granted, Some(false), Some(true), Some("true in the pod, found false")),
        (granted, Some(false), None, Some("true in the pod, found false")),
        (granted, None, Some(false), Some("true in its ServiceAccount or in the pod, found false")),
        (none, Some(false), Some(false), None),
    ] {
        for path in [
            PATH,
            "/var/run/secrets/kubernetes.io/serviceaccount/",
            "/var/run/secrets",
            "/etc/serviceaccount",
        ] {
            let mut pod = pod(Value::Null, &[5000]);
            if let Some(automounts) = of_pod {
                pod["spec"]["automountServiceAccountToken"] = json!(automounts);
            }
            // A mount of the application is none of the auditor.
            pod["spec"]["volumes"] = by_hand.clone();
            pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "own-token", "mountPath": path}]);
            let json = pod.to_string();
            let view = PodView::from_json(&json).unwrap();
            let configuration = configuration(members);
            let inputs = Inputs { automounts_token: of_account, ..Inputs::new(&configuration) };
            let outcome = plan(&view, &inputs);
            assert_eq!(outcome.warnings.len(), usize::from(expected.is_some()), "{of_pod:?} {of_account:?}");
            for (warning, expected) in warnings(&outcome).iter().zip(expected) {
                assert!(warning.starts_with("auditor own gets no ServiceAccount token"), "{warning}");
                assert!(warning.ends_with(&format!("automountServiceAccountToken: {expected}")), "{warning}");
            }
        }
    }
}

#[test]
fn a_pod_without_the_mount_has_no_token() {
    for (mounts, init_mounts, expected) in [
        (json!([]), Value::Null, true),
        (json!([{"name": "a", "mountPath": "/var/run/secrets"}]), Value::Null, true),
        (json!([{"name": "a", "mountPath": PATH}]), Value::Null, false),
        (json!([{"name": "a", "mountPath": format!("{PATH}/")}]), Value::Null, false),
        (json!([{"name": "a", "mountPath": PATH}]), json!([]), false),
    ] {
        let mut pod = pod(Value::Null, &[5000]);
        pod["spec"]["containers"][0]["volumeMounts"] = mounts;
        if !init_mounts.is_null() {
            pod["spec"]["initContainers"] = json!([{"name": "b", "image": "b", "volumeMounts": init_mounts}]);
        }
        assert_eq!(PodView::from_json(&pod.to_string()).unwrap().lacks_token(), expected, "{pod}");
    }
}
