//! RBAC permissions of targets.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client,
    api::ListParams,
    runtime::events::{Recorder, Reporter},
};
use lucid_certs::target::{ObjectTarget, TargetError, TrustTarget};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::subject::{MANAGER, OTHER_MANAGER, Subject, authority, target};
use crate::common::{client_of, grant, objects::Kind};

const USER: &str = "lucid-operator";
const VERBS: &[&str] = &["get", "list", "watch", "patch"];

#[tokio::test(flavor = "multi_thread")]
async fn permissions_by_resource_name_are_sufficient() {
    let cluster = Cluster::builder().start().await.unwrap();
    let admin = &cluster.client();
    let user = &client_of(&cluster, USER).await;

    let mut subjects = Vec::new();
    for kind in Kind::ALL {
        subjects
            .push((Subject::create(admin, kind, "ours").await, Subject::create(admin, kind, "other").await));
    }
    let rules: Vec<_> = subjects.iter().map(|(ours, _)| rule(ours)).collect();
    grant(&cluster, "ClusterRole", USER, &rules);
    let events =
        json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] });
    grant(&cluster, "Role", USER, &[events]);

    for (ours, other) in &subjects {
        only_named_objects_are_accessible(user, ours, other).await;
    }
    a_contention_is_one_event(admin, user).await;
}

fn rule(subject: &Subject) -> Value {
    let (group, resource) = match subject.kind {
        Kind::Mutating => ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        Kind::Validating => ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        Kind::Conversion => ("apiextensions.k8s.io", "customresourcedefinitions"),
        Kind::ApiService => ("apiregistration.k8s.io", "apiservices"),
        Kind::ConfigMap => ("", "configmaps"),
    };
    json!({ "apiGroups": [group], "resources": [resource], "resourceNames": [subject.name], "verbs": VERBS })
}

async fn only_named_objects_are_accessible(user: &Client, ours: &Subject, other: &Subject) {
    let kind = ours.kind;
    let bundle = authority().trust_bundle();
    let allowed = target(user, kind, &ours.name);
    // The API server observes new permissions by a watch.
    let reading = eventually("read", async || allowed.read().await).await;
    let mut changes = allowed.changes();
    let written = match allowed.write(&bundle, &reading).await {
        // The API server updated the status.
        Err(TargetError::Changed { .. }) => allowed.write(&bundle, &allowed.read().await.unwrap()).await,
        outcome => outcome,
    };
    assert!(written.unwrap().holds(&bundle), "{kind:?}");
    timeout(Duration::from_secs(20), changes.next()).await.unwrap();

    let forbidden = target(user, kind, &other.name);
    let error = forbidden.read().await.unwrap_err();
    assert!(matches!(error, TargetError::Api { .. }), "{kind:?}: {error:?}");
    assert!(error.to_string().contains(&format!("get {}", forbidden.name())), "{error}");
    let error = forbidden.write(&bundle, &other.target.read().await.unwrap()).await.unwrap_err();
    assert!(matches!(error, TargetError::Api { .. }), "{kind:?}: {error:?}");
}

async fn a_contention_is_one_event(admin: &Client, user: &Client) {
    let subject = Subject::new(admin, Kind::Mutating, "ours");
    let reporter = Reporter { controller: "lucid-operator".to_owned(), instance: Some("test".to_owned()) };
    let ours = ObjectTarget::mutating_webhooks(user.clone(), MANAGER, &subject.name)
        .with_recorder(Recorder::new(user.clone(), reporter));
    subject.overwrite_field(Some(b"mine")).await.unwrap();
    let reading = ours.read().await.unwrap();
    assert!(!reading.holds(&authority().trust_bundle()));
    ours.report_contention(&reading).await;

    let events: Api<Event> = Api::namespaced(admin.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let about = |event: &&Event| event.reason.as_deref() == Some("TrustBundleContended");
    let events: Vec<_> = events.iter().filter(about).collect();
    let [event] = events[..] else { panic!("{events:?}") };
    let note = event.note.clone().unwrap();
    assert!(note.contains("MutatingWebhookConfiguration/ours") && note.contains(OTHER_MANAGER), "{note}");
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.series.is_none());
    let regarding = event.regarding.clone().unwrap();
    assert_eq!(regarding.name.as_deref(), Some("ours"));
    assert_eq!(json!(regarding.uid), subject.object().await["metadata"]["uid"]);
}
