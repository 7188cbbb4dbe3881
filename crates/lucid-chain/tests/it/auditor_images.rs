//! Entries of a namespace's `auditors.yaml` and the images they may use.

use std::collections::BTreeMap;

use lucid_chain::{Catalogue, NamespaceChain, NamespaceSettings, keys};
use serde_json::json;

use crate::common::{builtin, outcome_in, planned_by, pod, settings};

const CLUSTER: &str = r#"
chain:
  - name: lucid-pii-auditor
    image: ghcr.io/lucid/pii:1
    port: 9000
    env: {THRESHOLD: "0.8"}
    files: [{mountPath: /models, image: {reference: "ghcr.io/lucid/weights:1"}}]
    securityContext: {runAsGroup: 30000}
"#;

fn read(yaml: &str, images: &str) -> Result<NamespaceChain, String> {
    let cluster = Catalogue::builtin().overlay(&Catalogue::parse("cluster", CLUSTER).unwrap());
    let settings = settings([(keys::AUDITOR_IMAGES, images)]);
    assert!(settings.problems().is_empty());
    let data = BTreeMap::from([(keys::CATALOGUE_KEY.to_owned(), yaml.to_owned())]);
    NamespaceChain::from_data("team-a", &data, &cluster, &settings).map_err(|error| error.to_string())
}

#[test]
fn an_entry_inherits_omitted_keys() {
    let own = read("chain: [{name: pii, port: 9001}, {name: toxicity}]", "").unwrap();
    let [pii, toxicity] = own.chain() else { panic!("{own:?}") };
    assert_eq!((pii.name(), pii.image(), pii.port().get()), ("pii", "ghcr.io/lucid/pii:1", 9001));
    assert_eq!(pii.variables().next().unwrap(), json!({"name": "THRESHOLD", "value": "0.8"}));
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &builtin(), Some(&own)));
    assert_eq!(plan.containers[0].manifest()["securityContext"]["runAsGroup"], 30000);
    assert_eq!(
        (toxicity.image(), toxicity.port().get()),
        ("ghcr.io/lucid/lucid-toxicity-auditor:latest", 8093)
    );
}

#[test]
fn a_namespace_cannot_replace_the_hop_of_outbound_traffic() {
    for (entry, says) in [
        ("name: lucid-egress, image: evil.test/x", "a namespace cannot set image"),
        ("name: egress, env: {LUCID_UPSTREAM_CA: x}", "a namespace cannot set env"),
        ("name: lucid-egress, serviceAccountToken: true", "expected serviceAccountToken: false, found true"),
    ] {
        let error = read(&format!("chain: [{{name: pii}}, {{{entry}}}]"), "").unwrap_err();
        assert!(error.contains(says), "{entry}: {error}");
    }
    read("chain: [{name: pii}, {name: lucid-egress, image: own.test/x}]", "own.test/x").unwrap();
}

#[test]
fn code_and_its_environment_need_an_allowed_image() {
    let own = "image: registry.example/team/pii:1";
    for (entry, key, repository) in [
        (format!("name: other, {own}"), "image", "registry.example/team"),
        (format!("name: pii, {own}"), "image", "registry.example/team"),
        ("name: other, image: 'ghcr.io/lucid/pii:1'".to_owned(), "image", "ghcr.io/lucid/pii"),
        ("name: pii, image: 'ghcr.io/lucid/pii:2'".to_owned(), "image", "ghcr.io/lucid/pii"),
        ("name: pii, env: {}".to_owned(), "env", "ghcr.io/lucid/pii"),
        ("name: pii, env: {HTTPS_PROXY: 'http://evil.test'}".to_owned(), "env", "ghcr.io/lucid"),
        ("name: pii, securityContext: {runAsGroup: 30001}".to_owned(), "securityContext", "ghcr.io/lucid"),
        (
            "name: pii, env: {THRESHOLD: {valueFrom: {secretKeyRef: {name: a, key: b}}}}".to_owned(),
            "env",
            "ghcr.io/lucid",
        ),
        ("name: pii, files: []".to_owned(), "files", "ghcr.io/lucid"),
        (
            "name: pii, files: [{mountPath: /models, secret: {secretName: own}}]".to_owned(),
            "files",
            "ghcr.io/lucid",
        ),
    ] {
        let yaml = format!("chain: [{{{entry}}}]");
        for images in ["", "ghcr.io/lucid/pi", "registry.example/team-2, evil.test/registry.example/team"] {
            let error = read(&yaml, images).unwrap_err();
            let name = if entry.contains("other") { "other" } else { "pii" };
            for part in [
                "ConfigMap team-a/lucid-auditor-chain, auditors.yaml",
                &format!("auditor {name}: a namespace cannot set {key}"),
                "annotation lucid.computing/auditor-images",
            ] {
                assert!(error.contains(part), "{entry} {images}: {error}");
            }
        }
        for images in
            [repository.to_owned(), format!("quay.io/x, {repository}"), format!("quay.io/x {repository}")]
        {
            assert!(read(&yaml, &images).is_ok(), "{entry} {images}");
        }
    }
}

#[test]
fn an_image_volume_needs_permission_like_an_image() {
    let mounts = |entry: &str, image: &str| {
        format!("chain: [{{{entry}, files: [{{mountPath: /models, image: {{reference: '{image}'}}}}]}}]")
    };
    let own = "name: other, image: 'own.test/x/a'";
    for (yaml, images, is_allowed) in [
        (mounts(own, "own.test/x/b"), "own.test/x", true),
        (mounts(own, "ghcr.io/lucid/weights:1"), "own.test/x", false),
        (mounts(own, "evil.test/b"), "own.test/x", false),
        // The cluster's entry mounts it.
        (mounts("name: pii", "ghcr.io/lucid/weights:1"), "", true),
        (mounts("name: pii, image: 'own.test/x/a'", "ghcr.io/lucid/weights:1"), "own.test/x", true),
        (mounts("name: pii, image: 'own.test/x/a'", "ghcr.io/lucid/weights:2"), "own.test/x", false),
        ("chain: [{name: pii, image: 'own.test/x/a'}]".to_owned(), "own.test/x", true),
    ] {
        match read(&yaml, images) {
            Ok(_) => assert!(is_allowed, "{yaml}"),
            Err(error) => {
                assert!(!is_allowed && error.contains("a namespace cannot set files"), "{error}")
            }
        }
    }
}

#[test]
fn a_namespace_controls_order_ports_and_resources() {
    for entry in [
        "name: pii, image: 'ghcr.io/lucid/pii:1'",
        "name: pii, description: x, labels: {a: b}",
        "name: pii, resources: {limits: {memory: 1Gi}}",
        "name: pii, probes: {readiness: {}}",
        "name: pii, env: {THRESHOLD: '0.8'}",
    ] {
        assert!(read(&format!("chain: [{{name: toxicity}}, {{{entry}}}]"), "").is_ok(), "{entry}");
    }
    assert!(read("defaults: {audit-mode: observe}", "").is_ok());
}

#[test]
fn an_invalid_image_list_allows_nothing_and_is_reported() {
    for list in ["acme", "ghcr.io/acme:1", "ghcr.io/acme; quay.io/x", "*"] {
        let settings = settings([(keys::AUDITOR_IMAGES, list)]);
        assert!(settings.allows_same_images(&NamespaceSettings::default()), "{list}");
        let problem = &settings.problems()[0];
        assert!(problem.starts_with("lucid.computing/auditor-images: image pattern"), "{problem}");
    }
}
