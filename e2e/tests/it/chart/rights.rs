//! For each source of certificates the rights that the chart gives are enough, for the programs as the chart configures
//! them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_testbed::{AtomicWriter, Cluster};
use serde_json::json;

use super::{as_installed, upgrade};
use crate::auditor::{said, until};
use crate::certificates::Authority;
use crate::common::{ENABLED, chain, create, delete_all_pods, secured, stored};
use crate::installation::is_never_forbidden;

const BOTH: &str = "webhooks.validating.by=both";

/// A cluster where the chart will be installed with a validator beside the operator.
async fn cluster() -> Cluster {
    let cluster = Cluster::builder().start().await.unwrap();
    cluster.create_namespace("lucid-system", &[]).await.unwrap();
    cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    cluster
}

/// Starts both programs as the values say, has a pod injected and validated, sees a registration repaired, and finds no
/// refusal in their logs.
async fn are_enough(cluster: &Cluster, values: &[&str], authority: Option<&Authority>) {
    let values = [&[BOTH], values].concat();
    // Here the webhooks are called by URL, and the definition does not take one beside the chart's Service.
    said(cluster, &["delete", "crd", "auditors.lucid.computing", "--ignore-not-found"], "");
    upgrade(cluster, &values);
    let mut operator = as_installed(cluster, "lucid-operator").await;
    let mut validator = as_installed(cluster, "lucid-validator").await;
    let folder = tempfile::tempdir().unwrap();
    if let Some(authority) = authority {
        // Where the volume is mounted.
        AtomicWriter::new(folder.path()).write(&files(cluster, authority)).unwrap();
        operator = operator.env("LUCID_TLS_DIRECTORY", folder.path().to_str().unwrap());
        validator = validator.env("LUCID_TLS_DIRECTORY", folder.path().to_str().unwrap());
    }
    let operator = operator.start().await.unwrap();
    let validator = validator.start().await.unwrap();
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    assert_eq!(chain(&stored(cluster, "shop", "web").await).len(), 3, "{values:?}");
    delete_all_pods(cluster, "shop").await;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    for name in ["lucid-operator", "lucid-validator"] {
        let never = json!({"webhooks": [{"name": "validate.lucid.computing", "timeoutSeconds": 29}]});
        validating.patch(name, &Default::default(), &Patch::Strategic(never)).await.unwrap();
        let timeout =
            ["get", "validatingwebhookconfiguration", name, "-o", "jsonpath={.webhooks[0].timeoutSeconds}"];
        until(cluster, &timeout, |text| text == "10").await;
    }
    is_never_forbidden(&operator);
    is_never_forbidden(&validator);
}

fn files(cluster: &Cluster, authority: &Authority) -> BTreeMap<String, Vec<u8>> {
    authority.serving(cluster.host_address()).files(Some(&authority.certificate))
}

/// Writes the Secrets of both programs, as a manager of certificates does.
async fn write_secrets(cluster: &Cluster, names: &[&str], authority: &Authority) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    for name in names {
        let data: BTreeMap<_, _> =
            files(cluster, authority).into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name}, "data": data});
        secrets.patch(name, &PatchParams::apply("somebody").force(), &Patch::Apply(secret)).await.unwrap();
    }
}

#[tokio::test]
async fn of_certificates_of_our_own() {
    let cluster = cluster().await;
    are_enough(&cluster, &[], None).await;
    // One for all replicas, in a Secret.
    are_enough(
        &cluster,
        &["certificates.shareCertificate=true", "policy.breakGlass.accessReview=true"],
        None,
    )
    .await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    for name in ["lucid-operator-tls", "lucid-validator-tls"] {
        secrets.get(name).await.unwrap();
    }
}

#[tokio::test]
async fn of_a_secret_or_files_of_somebody_else() {
    let cluster = cluster().await;
    let authority = Authority::new("somebody");
    write_secrets(&cluster, &["mine", "theirs"], &authority).await;
    let secrets = ["certificates.secrets.operator=mine", "certificates.secrets.validator=theirs"];
    are_enough(&cluster, &[&["certificates.source=secret"][..], &secrets].concat(), None).await;
    let files = [
        "certificates.source=files",
        "certificates.volumes.operator.emptyDir.medium=Memory",
        "certificates.volumes.validator.emptyDir.medium=Memory",
    ];
    are_enough(&cluster, &files, Some(&authority)).await;
}
