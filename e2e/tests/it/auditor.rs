//! Auditor objects: kubectl, status, and their pods.

use std::time::Duration;

use crate::cli::{apply, apply_manifest, kubectl, kubectl_until};
use crate::common::{
    chain, cluster, config_map, create, env, expected, operator, secured, secured_with, stored,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::DeleteParams;
use lucid_e2e::{ClusterExt as _, Verifier, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

const NOTARIZED: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const UNKNOWN_TO_IT: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// Installs the CustomResourceDefinition and waits until the API server serves it.
pub(crate) async fn define(cluster: &Cluster) {
    apply_manifest(cluster, "auditor-crd.yaml");
    kubectl_until(cluster, &["get", "auditors"], |_| true).await;
}

pub(crate) fn auditor(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "lucid.computing/v1", "kind": "Auditor", "metadata": {"name": name},
        "spec": {
            "image": image, "description": "Finds names",
            "container": {"port": 9000, "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
        },
    })
}

fn asking(name: &str, auditors: &str) -> Value {
    let annotations = json!({"lucid.computing/auditor-chain": auditors, "lucid.computing/intercept": "env"});
    secured_with(name, annotations)
}

/// Creates pods that request `auditors` until one has these images.
async fn until_images(cluster: &Cluster, prefix: &str, auditors: &str, images: &[&str]) {
    until_pods(cluster, prefix, |name| asking(name, auditors), images).await;
}

/// `cargo xtask soak memory` measures the delay on an idle machine.
async fn until_pods(cluster: &Cluster, prefix: &str, manifest: impl Fn(&str) -> Value, images: &[&str]) {
    let mut attempts = 0..;
    eventually("a pod with these images", async || {
        let name = format!("{prefix}-{}", attempts.next().unwrap_or(0));
        create(cluster, "shop", &manifest(&name)).await.stored().unwrap();
        let found = stored(cluster, "shop", &name).await.spec.unwrap();
        let found: Vec<_> = found.containers.into_iter().skip(1).filter_map(|it| it.image).collect();
        if found == images { Ok(()) } else { Err(format!("{prefix}: {found:?}")) }
    })
    .await;
}

#[tokio::test]
async fn auditor_objects_apply_to_the_next_pod() {
    let cluster = cluster().await;
    // Ready without the CustomResourceDefinition.
    let mut operator = operator(&cluster, |operator| operator).await;
    define(&cluster).await;

    apply(&cluster, &[auditor("first", "r.test/first:1")]);
    until_images(&cluster, "first", "first", &["r.test/first:1"]).await;

    apply(&cluster, &[auditor("lucid-topics-auditor", "r.test/topics:1")]);
    until_images(&cluster, "made", "topics", &["r.test/topics:1"]).await;
    create(&cluster, "shop", &asking("whole", "topics")).await.stored().unwrap();
    let whole = stored(&cluster, "shop", "whole").await;
    assert_eq!(chain(&whole), expected(&[("lucid-topics-auditor", 9000, "http://localhost:5000")]));
    assert_eq!(env(&whole.spec.unwrap().containers[1], "B").as_deref(), Some("2"));

    // An object takes precedence over a file entry or a built-in of the same name. Without the object that one applies again.
    apply(&cluster, &[auditor("lucid-toxicity-auditor", "r.test/toxicity:7")]);
    until_images(&cluster, "over", "toxicity", &["r.test/toxicity:7"]).await;
    kubectl(&cluster, &["delete", "auditor", "lucid-toxicity-auditor"], "");
    until_images(&cluster, "gone", "toxicity", &["ghcr.io/lucid/lucid-toxicity-auditor:latest"]).await;

    // After a restart.
    operator.restart().await.unwrap();
    until_images(&cluster, "restarted", "topics", &["r.test/topics:1"]).await;

    // Without the definition there are no objects.
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.delete("auditors.lucid.computing", &DeleteParams::default()).await.unwrap();
    eventually("the definition is removed", async || {
        definitions.get_opt("auditors.lucid.computing").await.unwrap().is_none()
    })
    .await;
    let guardrails = "ghcr.io/lucid/lucid-guardrails-auditor:latest";
    until_images(&cluster, "undefined", "topics", &[guardrails, guardrails]).await;
    define(&cluster).await;
    apply(&cluster, &[auditor("topics", "r.test/topics:2")]);
    until_images(&cluster, "again", "topics", &["r.test/topics:2"]).await;
    an_invalid_object_keeps_its_last_valid_state(&cluster).await;
}

#[tokio::test]
async fn changes_of_config_maps_apply_to_the_next_pods() {
    let cluster = cluster().await;
    let _operator = operator(&cluster, |operator| operator).await;
    the_first_pod_of_a_namespace(&cluster).await;
    let file = |image: &str| format!("chain: [{{name: lucid-topics-auditor, image: {image}}}]");
    let any = |name: &str| secured_with(name, json!({"lucid.computing/intercept": "env"}));
    for round in 0..3 {
        let image = format!("r.test/topics:{round}");
        config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &file(&image)).await;
        until_images(&cluster, &format!("file-{round}"), "topics", &[&image]).await;
        let (chain, images) = match round {
            1 => ("toxicity".to_owned(), vec!["ghcr.io/lucid/lucid-toxicity-auditor:latest".to_owned()]),
            _ => ("topics,topics".to_owned(), vec![image.clone(), image]),
        };
        config_map(&cluster, "shop", "lucid-auditor-chain", "chain", &chain).await;
        let images: Vec<_> = images.iter().map(String::as_str).collect();
        until_pods(&cluster, &format!("chain-{round}"), any, &images).await;
    }
}

async fn the_first_pod_of_a_namespace(cluster: &Cluster) {
    for round in 0..5 {
        for (level, redirects) in [("privileged", true), ("baseline", false)] {
            let name = format!("{level}-{round}");
            let labels = [("lucid.computing/enabled", "true"), ("pod-security.kubernetes.io/enforce", level)];
            cluster.create_namespace(&name, &labels).await.unwrap();
            create(cluster, &name, &secured("web")).await.stored().unwrap();
            let init = stored(cluster, &name, "web").await.spec.unwrap().init_containers.unwrap_or_default();
            assert_eq!(init.iter().any(|it| it.name == "lucid-init"), redirects, "{name}");
        }
    }
}

async fn an_invalid_object_keeps_its_last_valid_state(cluster: &Cluster) {
    apply(cluster, &[auditor("topics", "r.test/topics:1")]);
    until_images(cluster, "good", "topics", &["r.test/topics:1"]).await;
    // Constraints that the schema cannot express.
    let resources = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    let mut bad = auditor("topics", "r.test/topics:2");
    bad["spec"]["container"]["resources"] = resources;
    apply(cluster, &[bad]);
    let message =
        ["get", "aud", "topics", "-o", "jsonpath={.status.conditions[?(@.type==\"Ready\")].message}"];
    let message = kubectl_until(cluster, &message, |text| text.contains("requests.cpu")).await;
    assert!(message.starts_with("spec.container.resources: `requests.cpu`: expected at most"), "{message}");
    until_images(cluster, "bad", "topics", &["r.test/topics:1"]).await;
    let response = create(cluster, "shop", &asking("warned", "topics")).await;
    assert!(
        response.warnings.iter().any(|it| it.contains("Auditor topics: spec.container.resources")),
        "{response:?}"
    );
    // The older of two equivalent objects is used.
    apply(cluster, &[auditor("lucid-topics-auditor", "r.test/topics:3")]);
    let wide =
        kubectl_until(cluster, &["get", "auditors", "-o", "wide"], |text| text.contains("NameTaken")).await;
    assert!(wide.contains("Invalid"), "{wide}");
    kubectl(cluster, &["delete", "auditor", "topics"], "");
    until_images(cluster, "next", "topics", &["r.test/topics:3"]).await;
}

#[tokio::test]
async fn kubectl_shows_image_port_and_notarization() {
    let cluster = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let mut verifier = Verifier::start(folder.path(), &[NOTARIZED]).await.unwrap();
    let url = verifier.url().to_owned();
    let with = |operator: lucid_e2e::OperatorBuilder| operator.env("LUCID_VERIFIER_URL", url.clone());
    let first = operator(&cluster, with).await;
    // Replicas are registered under the same address.
    let second =
        |it: lucid_e2e::OperatorBuilder| with(it).named("second").env("LUCID_WEBHOOK_URL", first.url());
    let _second = operator(&cluster, second).await;
    define(&cluster).await;
    for (name, image) in [
        ("known", format!("r.test/known@{NOTARIZED}")),
        ("unknown", format!("r.test/unknown@{UNKNOWN_TO_IT}")),
        ("tagged", "r.test/tagged:1".to_owned()),
    ] {
        apply(&cluster, &[auditor(name, &image)]);
    }
    let rows = |text: &str| -> Vec<Vec<String>> {
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let notarized = |text: &str| -> Vec<String> {
        rows(text)[1..].iter().map(|row| row.get(3).cloned().unwrap_or_default()).collect()
    };
    let wanted = ["True", "False", "False"];
    let text = kubectl_until(&cluster, &["get", "auditors"], |text| notarized(text) == wanted).await;
    let table = rows(&text);
    assert_eq!(table[0], ["NAME", "IMAGE", "PORT", "NOTARIZED", "AGE"]);
    assert_eq!(table[1][..4], ["known", &format!("r.test/known@{NOTARIZED}"), "9000", "True"]);
    // Also by the short name and the category.
    for resource in ["aud", "lucid"] {
        assert_eq!(notarized(&kubectl(&cluster, &["get", resource], "")), wanted, "{resource}");
    }
    let wide = rows(&kubectl(&cluster, &["get", "auditors", "-o", "wide"], ""));
    assert_eq!(wide[0][5..], ["READY", "REASON", "VERDICT"]);
    let verdicts: Vec<_> = wide[1..].iter().map(|row| row[5..].join(" ")).collect();
    assert_eq!(
        verdicts,
        ["True Accepted Notarized", "True Accepted MissingDigest", "True Accepted NotNotarized"]
    );

    // An unchanged status is not written again, with two replicas.
    let versions = ["get", "auditors", "-o", "jsonpath={.items[*].metadata.resourceVersion}"];
    let before = kubectl(&cluster, &versions, "");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(kubectl(&cluster, &versions, ""), before);

    // The operator queries a new image at once. Without a response the status is unknown.
    apply(&cluster, &[auditor("tagged", &format!("r.test/tagged@{NOTARIZED}"))]);
    kubectl_until(&cluster, &["get", "auditors"], |text| notarized(text) == ["True", "True", "False"]).await;
    verifier.stop();
    let other = format!("sha256:{}", "c".repeat(64));
    apply(&cluster, &[auditor("tagged", &format!("r.test/tagged@{other}"))]);
    kubectl_until(&cluster, &["get", "auditors"], |text| notarized(text) == ["True", "Unknown", "False"])
        .await;
    let wide = kubectl(&cluster, &["get", "auditors", "-o", "wide"], "");
    assert!(wide.contains("NoAnswer"), "{wide}");
}

#[tokio::test]
async fn the_status_names_the_source_of_a_verdict() {
    let cluster = cluster().await;
    let list = cluster.folder().join("allowlist");
    std::fs::write(&list, format!("{NOTARIZED}\n")).unwrap();
    let list = list.display().to_string();
    // An allow list without a Verifier.
    let _operator = operator(&cluster, |it| it.env("LUCID_VERIFIER_ALLOWLIST_FILE", list)).await;
    define(&cluster).await;
    for (name, digest) in [("listed", NOTARIZED), ("other", UNKNOWN_TO_IT)] {
        apply(&cluster, &[auditor(name, &format!("r.test/{name}@{digest}"))]);
    }
    let status = async |name: &str, parts: &[&str]| {
        let path = "jsonpath={.status.conditions[?(@.type=='Notarized')]}";
        let get = ["get", "auditor", name, "-o", path];
        let text = kubectl_until(&cluster, &get, |text| parts.iter().all(|part| text.contains(part))).await;
        assert!(!text.contains("the Verifier knows"), "{text}");
    };
    status("listed", &["\"True\"", "OnAllowlist", "the allowlist contains"]).await;
    status("other", &["\"Unknown\"", "NoAnswer", "not on the allowlist, and no Verifier is configured"])
        .await;
}
