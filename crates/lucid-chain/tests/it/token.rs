//! The ServiceAccount token of the pod.

use std::collections::BTreeMap;

use lucid_chain::{AuditorImages, Catalogue, Configuration, NamespaceChain, keys, uninject};
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
    assert!(patch_in(&stored, configuration).operations.is_empty(), "{stored}");
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
    let error = NamespaceChain::from_data("a", &data, &Catalogue::builtin(), &AuditorImages::all())
        .unwrap_err()
        .to_string();
    assert!(error.contains("auditor own: found serviceAccountToken: true, accepted false"), "{error}");

    // Nor can it keep the token for an auditor whose image it replaces.
    let yaml = "chain: [{name: own, image: other}]".to_owned();
    let data = BTreeMap::from([(keys::CATALOGUE_KEY.to_owned(), yaml)]);
    let configuration = configuration("serviceAccountToken: true");
    let chain =
        NamespaceChain::from_data("a", &data, configuration.catalogue(), &AuditorImages::all()).unwrap();
    assert!(!chain.chain()[0].service_account_token());
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
