//! Drift of bundles and its repair.

use std::time::Duration;

use futures::StreamExt;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use lucid_certs::target::{Reading, TargetError, TrustTarget};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::subject::{MANAGER, OTHER_MANAGER, Subject, authority};
use crate::common::objects::Kind;

#[tokio::test(flavor = "multi_thread")]
async fn bundles_in_objects_are_read_and_healed() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = &cluster.client();
    for kind in Kind::ALL {
        a_write_fills_every_slot_and_changes_nothing_else(client, kind).await;
        drift_is_detected_and_reverted(client, kind).await;
        a_write_after_another_write_conflicts(client, kind).await;
        a_deleted_object_is_not_recreated(client, kind).await;
        changes_are_reported_from_creation_to_deletion(client, kind).await;
        a_bundle_stays_when_its_former_owner_drops_it(client, kind).await;
        a_shared_field_manager_is_rejected(client, kind).await;
    }
    a_deleted_webhook_is_not_recreated(client).await;
    uncalled_objects_read_as_absent(client).await;
    unfit_objects_are_rejected_with_the_reason(client).await;
}

/// Returns the object without the bundle, our ownership, and fields that change with every write.
fn others_part(mut object: Value, subject: &Subject) -> Value {
    object["metadata"]["resourceVersion"].take();
    object["metadata"]["generation"].take();
    let managers = object["metadata"]["managedFields"].as_array_mut().unwrap();
    managers.retain(|entry| entry["manager"] != MANAGER);
    // The API server updates the status of new definitions and services itself.
    managers.retain(|entry| entry["subresource"] != "status");
    object["status"].take();
    let (parent, field) = subject.pointer().rsplit_once('/').unwrap();
    for parent in [parent.to_owned(), parent.replace("/0/", "/1/")] {
        if let Some(Value::Object(parent)) = object.pointer_mut(&parent) {
            parent.remove(field);
        }
    }
    object
}

async fn a_write_fills_every_slot_and_changes_nothing_else(client: &Client, kind: Kind) {
    let subject = Subject::create(client, kind, "fresh").await;
    let before = subject.object().await;
    let bundle = authority().trust_bundle();

    let reading = subject.target.read().await.unwrap();
    assert_eq!(reading.bundle(), None, "{reading:?}");
    assert!(!reading.holds(&bundle));
    subject.heal(&bundle).await;

    let after = subject.object().await;
    let encoded = subject.encoded(bundle.to_pem().as_bytes());
    assert_eq!(after.pointer(subject.pointer()), Some(&encoded));
    assert_eq!(others_part(after.clone(), &subject), others_part(before, &subject));

    // Writing the same bundle again is not a change, so API servers keep their connections.
    subject.heal(&bundle).await;
    assert_eq!(others_part(subject.object().await, &subject), others_part(after, &subject));
}

async fn drift_is_detected_and_reverted(client: &Client, kind: Kind) {
    let subject = Subject::create(client, kind, "drift").await;
    let bundle = authority().trust_bundle();
    let foreign = authority().trust_bundle();
    let (both, foreign) = (bundle.merge(&foreign).to_pem(), foreign.to_pem());
    subject.heal(&bundle).await;

    let cases: [(&str, Option<&[u8]>, bool); 5] = [
        ("wiped", None, true),
        ("a placeholder, Cg== in base64", Some(b"\n"), false),
        ("foreign bytes", Some(b"no certificate"), false),
        ("a foreign authority", Some(foreign.as_bytes()), true),
        ("an authority added", Some(both.as_bytes()), true),
    ];
    for (what, content, parses) in cases {
        let outcome = subject.overwrite_field(content).await;
        if kind == Kind::Conversion && !parses {
            // The API server rejects an update from a valid bundle to an invalid one.
            let Err(kube::Error::Api(status)) = outcome else { panic!("{what}: {outcome:?}") };
            assert!(status.message.contains("unable to parse bytes as PEM block"), "{}", status.message);
            continue;
        }
        outcome.unwrap();
        let reading = subject.target.read().await.unwrap();
        assert!(!reading.holds(&bundle), "{kind:?}, {what}: {reading:?}");
        let owners: &[&str] = if content.is_some() { &[OTHER_MANAGER] } else { &[] };
        assert_eq!(reading.other_owners, owners, "{kind:?}, {what}");
        subject.heal(&bundle).await;
        assert!(subject.target.read().await.unwrap().other_owners.is_empty(), "{kind:?}, {what}");
    }
}

async fn a_write_after_another_write_conflicts(client: &Client, kind: Kind) {
    let subject = Subject::create(client, kind, "race").await;
    let (old, new) = (authority().trust_bundle(), authority().trust_bundle());
    let foreign = authority().trust_bundle();
    subject.heal(&old).await;

    let reading = subject.target.read().await.unwrap();
    subject.overwrite_field(Some(foreign.to_pem().as_bytes())).await.unwrap();
    subject.label("other").await;
    let before = subject.object().await;
    let error = subject.target.write(&new, &reading).await.unwrap_err();
    assert!(matches!(error, TargetError::Changed { .. }), "{kind:?}: {error:?}");
    assert!(error.to_string().contains(subject.target.name()), "{error}");
    let after = subject.object().await;
    assert_eq!(after.pointer(subject.pointer()), before.pointer(subject.pointer()));

    // After reading again, the change of the other client is visible and can be kept.
    let reading = subject.target.read().await.unwrap();
    let merged = reading.bundle().unwrap().merge(&new);
    subject.heal(&merged).await;
    assert_eq!(subject.object().await["metadata"]["labels"]["by"], "other");
}

async fn a_deleted_object_is_not_recreated(client: &Client, kind: Kind) {
    let subject = Subject::create(client, kind, "gone").await;
    let bundle = authority().trust_bundle();
    let reading = subject.target.read().await.unwrap();
    delete(&subject).await;
    let error = subject.target.write(&bundle, &reading).await.unwrap_err();
    assert!(matches!(error, TargetError::Changed { .. }), "{kind:?}: {error:?}");
    let absent = subject.target.read().await.unwrap();
    assert_eq!(absent, Reading::absent());
    assert_eq!(subject.target.write(&bundle, &absent).await.unwrap(), Reading::absent());
    assert!(subject.api.get_opt(&subject.name).await.unwrap().is_none());

    // Another object with the same name is not written either.
    subject.make(&subject.manifest()).await;
    let error = subject.target.write(&bundle, &reading).await.unwrap_err();
    assert!(matches!(error, TargetError::Changed { .. }), "{kind:?}: {error:?}");
    assert_eq!(subject.object().await.pointer(subject.pointer()), None);
}

async fn delete(subject: &Subject) {
    subject.api.delete(&subject.name, &DeleteParams::default()).await.unwrap();
    eventually("deletion", async || subject.api.get_opt(&subject.name).await.unwrap().is_none()).await;
}

async fn changes_are_reported_from_creation_to_deletion(client: &Client, kind: Kind) {
    let subject = Subject::new(client, kind, "later");
    let bundle = authority().trust_bundle();
    let mut changes = subject.target.changes();
    // The last notification comes when the change can be read.
    let mut reports = async |what: &str, is_there: &dyn Fn(&Reading) -> bool| loop {
        let change = timeout(Duration::from_secs(20), changes.next()).await;
        // The stream never ends.
        assert_eq!(change, Ok(Some(())), "{kind:?}: not reported: {what}");
        if is_there(&subject.target.read().await.unwrap()) {
            break;
        }
    };
    reports("there at the start", &|reading| *reading == Reading::absent()).await;
    subject.make(&subject.manifest()).await;
    reports("created", &|reading| *reading != Reading::absent()).await;
    subject.heal(&bundle).await;
    reports("written", &|reading| reading.holds(&bundle)).await;
    subject.overwrite_field(None).await.unwrap();
    reports("wiped", &|reading| !reading.holds(&bundle)).await;
    delete(&subject).await;
    reports("deleted", &|reading| *reading == Reading::absent()).await;
}

/// The bundle is kept when its owner changes, for example from another injector to ours.
async fn a_bundle_stays_when_its_former_owner_drops_it(client: &Client, kind: Kind) {
    let subject = Subject::new(client, kind, "handover");
    let bundle = authority().trust_bundle();
    let mut manifest = subject.manifest();
    let encoded = subject.encoded(bundle.to_pem().as_bytes());
    insert(&mut manifest, subject.pointer(), &encoded);
    if matches!(kind, Kind::Mutating | Kind::Validating) {
        insert(&mut manifest, "/webhooks/1/clientConfig/caBundle", &encoded);
    }
    apply(&subject, "argo", &manifest).await;
    let reading = subject.target.read().await.unwrap();
    assert!(reading.stale, "{reading:?}");
    assert!(!reading.holds(&bundle), "it is to be written, so that it is ours too");
    subject.heal(&bundle).await;
    assert_eq!(subject.target.read().await.unwrap().other_owners, ["argo"]);

    apply(&subject, "argo", &subject.manifest()).await;
    let reading = subject.target.read().await.unwrap();
    assert!(reading.holds(&bundle), "{kind:?}: {reading:?}");
    assert!(reading.other_owners.is_empty());
}

fn insert(manifest: &mut Value, pointer: &str, value: &Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    manifest.pointer_mut(parent).unwrap()[field] = value.clone();
}

async fn apply(subject: &Subject, manager: &str, manifest: &Value) {
    let params = PatchParams::apply(manager);
    subject.api.patch(&subject.name, &params, &Patch::Apply(manifest)).await.unwrap();
}

async fn a_shared_field_manager_is_rejected(client: &Client, kind: Kind) {
    let subject = Subject::new(client, kind, "mixed");
    apply(&subject, MANAGER, &subject.manifest()).await;
    is_unfit(subject.target.read().await, "give the target a field manager of its own");
}

async fn a_deleted_webhook_is_not_recreated(client: &Client) {
    for kind in [Kind::Mutating, Kind::Validating] {
        let subject = Subject::create(client, kind, "fewer").await;
        let bundle = authority().trust_bundle();
        subject.heal(&bundle).await;
        let reading = subject.target.read().await.unwrap();
        subject.patch(json!([{ "op": "remove", "path": "/webhooks/0" }])).await.unwrap();
        let error = subject.target.write(&bundle, &reading).await.unwrap_err();
        assert!(matches!(error, TargetError::Changed { .. }), "{error:?}");
        subject.heal(&bundle).await;
        let webhooks = subject.object().await["webhooks"].as_array().unwrap().clone();
        assert_eq!(webhooks.len(), 1);
        assert_eq!(webhooks[0]["name"], "second.example.com");
    }
}

async fn uncalled_objects_read_as_absent(client: &Client) {
    let none = |manifest: &mut Value| manifest["webhooks"] = json!([]);
    let subject = Subject::create_changed(client, Kind::Mutating, "empty", none).await;
    assert_eq!(subject.target.read().await.unwrap(), Reading::absent());

    let subject = Subject::create(client, Kind::Conversion, "none").await;
    subject.heal(&authority().trust_bundle()).await;
    let none = json!([{ "op": "replace", "path": "/spec/conversion", "value": { "strategy": "None" } }]);
    subject.patch(none).await.unwrap();
    assert_eq!(subject.target.read().await.unwrap(), Reading::absent());

    let local = super::subject::target(client, Kind::ApiService, "v1.apps");
    assert_eq!(local.read().await.unwrap(), Reading::absent());
}

async fn unfit_objects_are_rejected_with_the_reason(client: &Client) {
    let insecure = |service: &mut Value| service["spec"]["insecureSkipTLSVerify"] = json!(true);
    let subject = Subject::create_changed(client, Kind::ApiService, "insecure", insecure).await;
    is_unfit(subject.target.read().await, "insecureSkipTLSVerify");

    let binary = |config_map: &mut Value| config_map["binaryData"] = json!({ "ca.crt": "AAAA" });
    let subject = Subject::create_changed(client, Kind::ConfigMap, "binary", binary).await;
    is_unfit(subject.target.read().await, "expected ca.crt in data, found it in binaryData");

    let immutable = |config_map: &mut Value| config_map["immutable"] = json!(true);
    let subject = Subject::create_changed(client, Kind::ConfigMap, "immutable", immutable).await;
    let reading = subject.target.read().await.unwrap();
    is_unfit(subject.target.write(&authority().trust_bundle(), &reading).await, "immutable");
}

fn is_unfit(outcome: Result<Reading, TargetError>, says: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, TargetError::Unfit { .. }), "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}
