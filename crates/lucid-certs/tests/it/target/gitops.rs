//! Objects applied by other clients, such as Helm, kubectl and Argo CD.

use kube::api::{Patch, PatchParams};
use lucid_certs::{
    TrustBundle,
    target::{Reading, TrustTarget},
};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::subject::{Subject, authority};
use crate::common::{kubectl, objects::Kind};

/// `Cg==` in base64: a common placeholder for the bundle in manifests.
const PLACEHOLDER: &[u8] = b"\n";

const APPLY: &[&str] = &["apply"];
const SERVER_SIDE: &[&str] = &["apply", "--server-side", "--field-manager=argo"];
const FORCED: &[&str] = &["apply", "--server-side", "--field-manager=argo", "--force-conflicts"];
const REPLACE: &[&str] = &["replace"];

#[tokio::test(flavor = "multi_thread")]
async fn bundles_survive_writes_by_other_clients() {
    let cluster = &Cluster::builder().start().await.unwrap();
    for kind in Kind::ALL {
        apply_without_a_bundle_keeps_it(cluster, kind, APPLY, "client").await;
        apply_without_a_bundle_keeps_it(cluster, kind, SERVER_SIDE, "server").await;
        apply_without_a_bundle_keeps_it(cluster, kind, FORCED, "forced").await;
        replace_without_a_bundle_is_reverted(cluster, kind).await;
        client_side_apply_of_a_placeholder_is_reverted(cluster, kind).await;
        server_side_apply_of_a_placeholder_is_reverted(cluster, kind).await;
    }
    for kind in [Kind::Mutating, Kind::Validating] {
        three_way_merge_keeps_the_bundle(cluster, kind).await;
    }
    for kind in [Kind::Mutating, Kind::Conversion] {
        updates_remove_webhooks_and_server_side_apply_does_not(cluster, kind).await;
    }
}

/// Returns the manifest of a release or commit: the same object with another label.
fn release(subject: &Subject, number: u32) -> Value {
    let mut manifest = subject.manifest();
    manifest["metadata"]["labels"] = json!({ "release": number.to_string() });
    manifest
}

fn with_placeholder(mut manifest: Value, subject: &Subject) -> Value {
    let (parent, field) = subject.pointer().rsplit_once('/').unwrap();
    manifest.pointer_mut(parent).unwrap()[field] = subject.encoded(PLACEHOLDER);
    manifest
}

async fn assert_released(subject: &Subject, number: u32) {
    assert_eq!(subject.object().await["metadata"]["labels"]["release"], number.to_string());
}

async fn holds(subject: &Subject, bundle: &TrustBundle) -> bool {
    subject.target.read().await.unwrap().holds(bundle)
}

async fn apply_without_a_bundle_keeps_it(cluster: &Cluster, kind: Kind, how: &[&str], word: &str) {
    let subject = Subject::new(&cluster.client(), kind, word);
    let bundle = authority().trust_bundle();
    kubectl(cluster, how, &release(&subject, 1)).unwrap();
    subject.heal(&bundle).await;
    kubectl(cluster, how, &release(&subject, 2)).unwrap();
    assert_released(&subject, 2).await;
    assert!(holds(&subject, &bundle).await, "{kind:?}, {how:?}");
}

/// As by `helm upgrade --force`, and by Argo CD with `Replace=true`.
async fn replace_without_a_bundle_is_reverted(cluster: &Cluster, kind: Kind) {
    let subject = Subject::create(&cluster.client(), kind, "replaced").await;
    let bundle = authority().trust_bundle();
    subject.heal(&bundle).await;
    for number in 1..3 {
        kubectl(cluster, REPLACE, &release(&subject, number)).unwrap();
        let reading = subject.target.read().await.unwrap();
        assert_eq!(reading.bundle(), None, "{kind:?}: {reading:?}");
        subject.heal(&bundle).await;
        assert_released(&subject, number).await;
    }
}

async fn client_side_apply_of_a_placeholder_is_reverted(cluster: &Cluster, kind: Kind) {
    let subject = Subject::new(&cluster.client(), kind, "placeholder");
    let bundle = authority().trust_bundle();
    kubectl(cluster, APPLY, &with_placeholder(release(&subject, 1), &subject)).unwrap();
    assert!(!holds(&subject, &bundle).await);
    subject.heal(&bundle).await;

    let again = kubectl(cluster, APPLY, &with_placeholder(release(&subject, 2), &subject));
    if kind == Kind::Conversion {
        // The API server rejects the placeholder with or without our bundle: it can be applied only once.
        assert!(again.unwrap_err().contains("unable to parse bytes as PEM block"));
        assert!(holds(&subject, &bundle).await);
    } else {
        again.unwrap();
        assert_released(&subject, 2).await;
        assert!(!holds(&subject, &bundle).await);
        assert_eq!(subject.target.read().await.unwrap().other_owners, ["kubectl-client-side-apply"]);
        subject.heal(&bundle).await;
    }

    // Removing the placeholder from the manifest removes the bundle once, and never again.
    kubectl(cluster, APPLY, &release(&subject, 3)).unwrap();
    assert!(!holds(&subject, &bundle).await);
    subject.heal(&bundle).await;
    kubectl(cluster, APPLY, &release(&subject, 4)).unwrap();
    assert_released(&subject, 4).await;
    assert!(holds(&subject, &bundle).await);
}

async fn server_side_apply_of_a_placeholder_is_reverted(cluster: &Cluster, kind: Kind) {
    let subject = Subject::new(&cluster.client(), kind, "claimed");
    let bundle = authority().trust_bundle();
    kubectl(cluster, SERVER_SIDE, &with_placeholder(release(&subject, 1), &subject)).unwrap();
    subject.heal(&bundle).await;

    // A client that claims the field gets a conflict.
    let said = kubectl(cluster, SERVER_SIDE, &with_placeholder(release(&subject, 2), &subject)).unwrap_err();
    assert!(said.contains("conflict with \"lucid-certs\""), "{said}");
    assert!(holds(&subject, &bundle).await);

    let forced = kubectl(cluster, FORCED, &with_placeholder(release(&subject, 2), &subject));
    if kind == Kind::Conversion {
        assert!(forced.unwrap_err().contains("unable to parse bytes as PEM block"));
    } else {
        forced.unwrap();
        assert!(!holds(&subject, &bundle).await);
        assert_eq!(subject.target.read().await.unwrap().other_owners, ["argo"]);
        subject.heal(&bundle).await;
        assert_released(&subject, 2).await;
    }

    // A client that no longer claims the field gets no conflict.
    kubectl(cluster, SERVER_SIDE, &release(&subject, 3)).unwrap();
    assert_released(&subject, 3).await;
    assert!(holds(&subject, &bundle).await);
}

/// `helm upgrade` of Helm 3 sends the difference between two releases, with lists merged by key.
async fn three_way_merge_keeps_the_bundle(cluster: &Cluster, kind: Kind) {
    let subject = Subject::create(&cluster.client(), kind, "chart").await;
    let bundle = authority().trust_bundle();
    subject.heal(&bundle).await;
    let difference = json!({
        "metadata": { "labels": { "release": "2" } },
        "webhooks": [{ "name": "first.example.com", "failurePolicy": "Fail" }],
        "$setElementOrder/webhooks": [{ "name": "first.example.com" }, { "name": "second.example.com" }],
    });
    let params = PatchParams { field_manager: Some("helm".to_owned()), ..PatchParams::default() };
    subject.api.patch(&subject.name, &params, &Patch::Strategic(difference)).await.unwrap();
    assert_released(&subject, 2).await;
    assert!(holds(&subject, &bundle).await);
}

/// A limitation of server-side apply, documented by [`lucid_certs::target::ObjectTarget`]: if the other owner
/// removes a webhook, our field keeps an incomplete one, which is invalid.
async fn updates_remove_webhooks_and_server_side_apply_does_not(cluster: &Cluster, kind: Kind) {
    let subject = Subject::new(&cluster.client(), kind, "less");
    let bundle = authority().trust_bundle();
    kubectl(cluster, SERVER_SIDE, &release(&subject, 1)).unwrap();
    subject.heal(&bundle).await;

    let mut less = release(&subject, 2);
    match kind {
        Kind::Conversion => less["spec"]["conversion"] = json!({ "strategy": "None" }),
        _ => drop(less["webhooks"].as_array_mut().unwrap().pop()),
    }
    let said = kubectl(cluster, FORCED, &less).unwrap_err();
    assert!(said.contains("is invalid"), "{said}");
    assert!(holds(&subject, &bundle).await);

    kubectl(cluster, REPLACE, &less).unwrap();
    match kind {
        Kind::Conversion => assert_eq!(subject.target.read().await.unwrap(), Reading::absent()),
        _ => subject.heal(&bundle).await,
    }

    // After an update, the bundles of the remaining webhooks are kept.
    kubectl(cluster, APPLY, &release(&subject, 3)).unwrap();
    subject.heal(&bundle).await;
    less["metadata"]["labels"] = json!({ "release": "4" });
    kubectl(cluster, APPLY, &less).unwrap();
    assert_released(&subject, 4).await;
    match (kind, subject.target.read().await.unwrap()) {
        (Kind::Conversion, reading) => assert_eq!(reading, Reading::absent()),
        (_, reading) => assert!(reading.holds(&bundle), "{reading:?}"),
    }
}
