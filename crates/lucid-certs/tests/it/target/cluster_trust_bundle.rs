//! ClusterTrustBundles, which Kubernetes serves by default from 1.37.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    discovery::oneshot::pinned_kind,
};
use lucid_certs::{
    TrustBundle,
    target::{ObjectTarget, Reading, TargetError, TrustTarget},
};
use lucid_e2e::{eventually, skip_version};
use lucid_testbed::Cluster;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::subject::{MANAGER, OTHER_MANAGER, authority};
use crate::common::{client_of, grant};

const USER: &str = "lucid-operator";
const SIGNER: &str = "example.com/mesh";

#[tokio::test(flavor = "multi_thread")]
async fn cluster_trust_bundles_are_read_and_healed() {
    let cluster = Cluster::builder().kubernetes("1.37").start().await.unwrap();
    let client = &cluster.client();
    // KUBEBUILDER_ASSETS takes precedence over the version.
    if pinned_kind(client, &kind()).await.is_err() {
        skip_version("certificates.k8s.io/v1 ClusterTrustBundle is not served");
        return;
    }
    the_bundle_is_healed_and_nothing_else_changes(client).await;
    certificates_that_are_not_cas_are_unfit(client).await;
    a_signer_requires_the_permission_to_attest(&cluster).await;
}

fn kind() -> GroupVersionKind {
    GroupVersionKind::gvk("certificates.k8s.io", "v1", "ClusterTrustBundle")
}

fn bundles(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind()))
}

/// Creates the object with a bundle, which the API server requires.
async fn create(client: &Client, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
        "metadata": { "name": name, "labels": { "by": "owner" } }, "spec": spec,
    });
    let params = PostParams { field_manager: Some("owner".to_owned()), ..PostParams::default() };
    bundles(client).create(&params, &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn heal(target: &ObjectTarget, bundle: &TrustBundle) {
    let written = target.write(bundle, &target.read().await.unwrap()).await.unwrap();
    assert!(written.holds(bundle), "{written:?}");
    assert!(written.other_owners.is_empty(), "{written:?}");
    assert_eq!(target.read().await.unwrap(), written);
}

async fn the_bundle_is_healed_and_nothing_else_changes(client: &Client) {
    let target = ObjectTarget::cluster_trust_bundle(client.clone(), MANAGER, "web");
    let [initial, bundle, foreign] = [(); 3].map(|()| authority().trust_bundle());
    assert_eq!(target.read().await.unwrap(), Reading::absent());
    assert_eq!(target.write(&bundle, &Reading::absent()).await.unwrap(), Reading::absent());
    assert!(bundles(client).get_opt("web").await.unwrap().is_none());
    let mut changes = target.changes();
    assert_eq!(timeout(Duration::from_secs(20), changes.next()).await, Ok(Some(())));

    create(client, "web", json!({ "trustBundle": initial.to_pem() })).await;
    let created = target.read().await.unwrap();
    assert_eq!((created.bundle(), &*created.other_owners), (Some(initial), &["owner".to_owned()][..]));
    assert!(!created.holds(&bundle));
    heal(&target, &bundle).await;
    let healed = bundles(client).get("web").await.unwrap();
    assert_eq!(healed.data["spec"], json!({ "trustBundle": bundle.to_pem() }));
    assert_eq!(healed.metadata.labels.unwrap()["by"], "owner");
    heal(&target, &bundle).await;
    let unchanged = bundles(client).get("web").await.unwrap();
    assert_eq!(unchanged.metadata.resource_version, healed.metadata.resource_version);
    let error = target.write(&bundle, &created).await.unwrap_err();
    assert!(matches!(error, TargetError::Changed { .. }), "{error:?}");

    let params = PatchParams { field_manager: Some(OTHER_MANAGER.to_owned()), ..PatchParams::default() };
    let overwrite = Patch::Merge(json!({ "spec": { "trustBundle": foreign.to_pem() } }));
    bundles(client).patch("web", &params, &overwrite).await.unwrap();
    let drifted = eventually("the change is reported", async || {
        assert_eq!(timeout(Duration::from_secs(20), changes.next()).await, Ok(Some(())));
        let reading = target.read().await.unwrap();
        if reading.bundle().as_ref() == Some(&foreign) { Ok(reading) } else { Err(reading) }
    })
    .await;
    assert!(!drifted.holds(&bundle));
    assert_eq!(drifted.other_owners, [OTHER_MANAGER]);
    heal(&target, &bundle).await;
}

async fn certificates_that_are_not_cas_are_unfit(client: &Client) {
    let target = ObjectTarget::cluster_trust_bundle(client.clone(), MANAGER, "web");
    let leaf = rcgen::generate_simple_self_signed(["web.example.com".to_owned()]).unwrap();
    let leaf = TrustBundle::from_pem(leaf.cert.pem().as_bytes()).unwrap();
    let error = target.write(&leaf, &target.read().await.unwrap()).await.unwrap_err();
    assert!(matches!(error, TargetError::Unfit { .. }), "{error:?}");
    assert!(error.to_string().contains("does not have the CA bit set"), "{error}");
}

async fn a_signer_requires_the_permission_to_attest(cluster: &Cluster) {
    let name = "example.com:mesh:roots";
    let spec = json!({ "signerName": SIGNER, "trustBundle": authority().trust_bundle().to_pem() });
    create(&cluster.client(), name, spec).await;
    let user = client_of(cluster, USER).await;
    let target = ObjectTarget::cluster_trust_bundle(user, MANAGER, name);
    let bundle = authority().trust_bundle();
    let rule = |resource: &str, name: &str, verbs: &[&str]| json!({ "apiGroups": ["certificates.k8s.io"], "resources": [resource], "resourceNames": [name], "verbs": verbs });
    let object = rule("clustertrustbundles", name, &["get", "list", "watch", "patch"]);
    grant(cluster, "ClusterRole", USER, std::slice::from_ref(&object));
    // The API server observes new permissions by a watch.
    let reading = eventually("read", async || target.read().await).await;
    let error = target.write(&bundle, &reading).await.unwrap_err();
    assert!(matches!(error, TargetError::Api { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("attest") && source.contains(SIGNER), "{source}");

    grant(cluster, "ClusterRole", USER, &[object, rule("signers", SIGNER, &["attest"])]);
    let written = eventually("write", async || target.write(&bundle, &reading).await).await;
    assert!(written.holds(&bundle), "{written:?}");
}
