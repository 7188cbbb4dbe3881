//! `lucid uninstall`: removes all registrations, and no request waits for a missing webhook.

pub(crate) mod validator;

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use lucid_e2e::{Operator, eventually};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::backstop;
use crate::cli::{apply, grant, kubeconfig_for, lucid, lucid_as};
use crate::common::{assert_contains, cluster, create, operator, prepare, restricted, secured, until};
use crate::manifests::install;
use crate::traffic::Traffic;

async fn uninstall(cluster: &Cluster, arguments: &[&str], status: i32) -> String {
    uninstall_as(&cluster.kubeconfig_path(), arguments, status).await
}

async fn uninstall_as(kubeconfig: &Path, arguments: &[&str], status: i32) -> String {
    let ran = lucid_as(kubeconfig, &[&["uninstall"], arguments].concat()).await;
    assert_eq!(ran.status, Some(status), "{ran:?}");
    ran.all()
}

async fn registered(cluster: &Cluster) -> bool {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let mutating = mutating.get_opt("lucid-operator").await.unwrap();
    mutating.is_some() || validating.get_opt("lucid-operator").await.unwrap().is_some()
}

async fn has_secret(cluster: &Cluster) -> bool {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    secrets.get_metadata_opt("lucid-operator-ca").await.unwrap().is_some()
}

/// Simulates the node: the Deployment's pods and the operator's process run as long as it requests replicas.
async fn play_the_node(client: Client, mut operator: Operator) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "lucid-system");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "lucid-system");
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(client);
    loop {
        let deployment = deployments.get("lucid-operator").await.unwrap();
        if deployment.spec.unwrap().replicas == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The operator restores its registration while it runs.
    while registrations.get_opt("lucid-operator").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A kubelet reacts with a delay.
    tokio::time::sleep(Duration::from_secs(2)).await;
    tokio::task::spawn_blocking(move || assert!(operator.terminate().unwrap().success())).await.unwrap();
    let now = kube::api::DeleteParams::default().grace_period(0);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        pods.delete(&pod.name_any(), &now).await.unwrap();
    }
}

#[tokio::test]
async fn uninstalling_an_operator_does_not_deny_pods() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    let cluster = prepare(cluster).await;
    // A pod of the Deployment, which has no controller here.
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "lucid-operator-0", "labels": {"app.kubernetes.io/name": "lucid-operator"}},
        "spec": {"containers": [
            {"name": "lucid-operator", "image": "r.test/operator", "securityContext": restricted()}]}});
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "lucid-system");
    pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running =
        operator(&cluster, |it| it.flag("--lame-duck-seconds", "3").flag("--webhook-timeout-seconds", "30"))
            .await;
    let traffic = Traffic::start(&cluster, secured, |_| Ok(()));
    let node = tokio::spawn(play_the_node(cluster.client(), running));

    let said = uninstall(&cluster, &["--yes"], 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    traffic.end().await;
    node.await.unwrap();
    assert!(!registered(&cluster).await && !has_secret(&cluster).await, "{said}");
    assert_contains(
        &said,
        &[
            "deleted MutatingWebhookConfiguration lucid-operator\n",
            "deleted ValidatingWebhookConfiguration lucid-operator\n",
            "scaled Deployment lucid-system/lucid-operator from 2 to 0\n",
            "again: a running lucid-operator had restored it",
            "deleted Secret lucid-system/lucid-operator-ca\n",
            "deleted Secret lucid-system/lucid-operator-tls\n",
            "lucid manifests --namespace lucid-system | kubectl delete",
        ],
    );

    // A second run has nothing to do.
    let said = uninstall(&cluster, &["--yes"], 0).await;
    assert!(!said.contains("deleted") && !said.contains("scaled"), "{said}");
}

#[tokio::test]
async fn operators_outside_the_cluster_stay_and_are_reported() {
    let cluster = cluster().await;
    let mut running = operator(&cluster, |it| it.flag("--webhook-timeout-seconds", "30")).await;
    let traffic = Traffic::start(&cluster, secured, |_| Ok(()));
    let said = uninstall(&cluster, &["--yes"], 1).await;
    traffic.end().await;
    assert!(said.contains("it is restored repeatedly") && said.contains(&running.url()), "{said}");
    assert!(registered(&cluster).await && has_secret(&cluster).await, "{said}");

    // Following its advice: stopped, and run again.
    running.terminate();
    let said = uninstall(&cluster, &["--yes"], 0).await;
    assert!(!registered(&cluster).await && !has_secret(&cluster).await, "{said}");
    create(&cluster, "shop", &secured("free")).await.stored().unwrap();
}

#[tokio::test]
async fn consent_and_permissions_are_required() {
    let cluster = cluster().await;
    let _running = operator(&cluster, |it| it).await;
    let said = uninstall(&cluster, &["--dry-run"], 0).await;
    assert_contains(
        &said,
        &[
            "would delete MutatingWebhookConfiguration lucid-operator\n",
            "would delete ValidatingWebhookConfiguration lucid-operator\n",
            "would delete Secret lucid-system/lucid-operator-ca\n",
        ],
    );
    let said = uninstall(&cluster, &[], 2).await;
    assert!(said.contains("--yes"), "{said}");
    let nobody = kubeconfig_for(&cluster, "nobody");
    let said = uninstall_as(&nobody, &["--yes"], 2).await;
    assert!(said.contains("nothing was removed: missing permissions"), "{said}");

    // It existed all the time.
    assert!(registered(&cluster).await && has_secret(&cluster).await);
    assert_eq!(
        create(&cluster, "shop", &secured("web")).await.stored().unwrap().spec.unwrap().containers.len(),
        3
    );

    let ran = lucid(&cluster, &["uninstall", "--yes", "--namespace", "elsewhere"]).await;
    assert_ne!(ran.status, Some(2), "{ran:?}");
    uninstall_as(Path::new("/nonexistent"), &["--yes"], 2).await;
}

#[tokio::test]
async fn external_objects_of_our_names_stay_and_are_reported() {
    let cluster = cluster().await;
    let foreign = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "lucid-operator"}, "webhooks": [{"name": "other.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "rules": [],
        "clientConfig": {"url": "https://127.0.0.1:1/"}}]});
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let params = PatchParams::apply("other");
    configurations.patch("lucid-operator", &params, &Patch::Apply(foreign)).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lucid-operator-tls"}});
    secrets.patch("lucid-operator-tls", &params, &Patch::Apply(secret)).await.unwrap();
    let said = uninstall(&cluster, &["--yes"], 0).await;
    assert_contains(
        &said,
        &[
            "kept MutatingWebhookConfiguration lucid-operator: ",
            "kept Secret lucid-system/lucid-operator-tls: ",
        ],
    );
    configurations.get("lucid-operator").await.unwrap();
    secrets.get("lucid-operator-tls").await.unwrap();
    the_registration_of_another_namespace_stays(&cluster).await;
}

#[tokio::test]
async fn the_backstop_is_removed_first_unless_it_is_external() {
    let cluster = cluster().await;
    backstop::install(&cluster, &[]).await;
    let remains = async || {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client());
        let policy = policies.get_opt("lucid-backstop").await.unwrap();
        [policy.is_some(), bindings.get_opt("lucid-backstop").await.unwrap().is_some()]
    };
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    let said = uninstall(&cluster, &["--dry-run"], 0).await;
    for kind in kinds {
        assert!(said.contains(&format!("would delete {kind} lucid-backstop\n")), "{said}");
    }
    // Registration of an operator in another namespace.
    let said = uninstall(&cluster, &["--yes", "--namespace", "elsewhere"], 1).await;
    assert!(
        said.contains("use --namespace lucid-system\n") && said.contains("the backstop remains"),
        "{said}"
    );
    // An account with all other permissions.
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations",
            "customresourcedefinitions", "deployments", "statefulsets", "pods", "secrets", "events"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["validatingadmissionpolicies"], "verbs": ["get", "delete"]},
        {"apiGroups": ["*"], "resources": ["validatingadmissionpolicybindings"], "verbs": ["get"]},
    ]);
    grant(&cluster, "some", &rules);
    let some = kubeconfig_for(&cluster, "some");
    let missing = "missing permissions: delete validatingadmissionpolicybindings lucid-backstop\n";
    eventually("the missing permission is named", async || {
        let said = uninstall_as(&some, &["--yes"], 2).await;
        if said.contains(missing) { Ok(()) } else { Err(said) }
    })
    .await;
    assert_eq!(remains().await, [true, true]);

    let said = uninstall(&cluster, &["--yes"], 0).await;
    let lines: Vec<_> = said.lines().take(2).collect();
    assert_eq!(lines, kinds.map(|kind| format!("deleted {kind} lucid-backstop")), "{said}");
    assert_eq!(remains().await, [false, false]);
    until(&cluster, "shop", secured, |response| response.status == 201).await;

    // A third-party object under its name.
    let mut theirs = backstop::printed(&[]);
    theirs.iter_mut().for_each(|it| it["metadata"]["labels"] = json!({"app.kubernetes.io/name": "ours"}));
    apply(&cluster, &theirs);
    let said = uninstall(&cluster, &["--yes"], 0).await;
    for kind in kinds {
        assert!(said.contains(&format!("kept {kind} lucid-backstop: it has no label")), "{said}");
    }
    assert_eq!(remains().await, [true, true]);
}

#[tokio::test]
async fn auditors_stay_unless_their_definition_is_deleted() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let events: Api<Event> = Api::namespaced(cluster.client(), "default");
    for (name, by) in [("ours", "lucid-operator"), ("theirs", "kubelet")] {
        let event = json!({"metadata": {"name": name}, "involvedObject": {"kind": "Node", "name": "n"},
            "reportingComponent": by, "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z"});
        events.create(&Default::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    }
    let said = uninstall(&cluster, &["--yes"], 0).await;
    assert!(said.contains("deleted 1 event of lucid-operator"), "{said}");
    assert!(definitions.get_opt("auditors.lucid.computing").await.unwrap().is_some());
    assert!(
        events.get_opt("ours").await.unwrap().is_none() && events.get_opt("theirs").await.unwrap().is_some()
    );
    let said = uninstall(&cluster, &["--yes", "--crds"], 0).await;
    assert!(
        said.contains("deleted CustomResourceDefinition auditors.lucid.computing and all Auditors"),
        "{said}"
    );
    eventually("the definition is removed", async || {
        definitions.get_opt("auditors.lucid.computing").await.unwrap().is_none()
    })
    .await;
}

async fn the_registration_of_another_namespace_stays(cluster: &Cluster) {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let ours = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "lucid-operator", "labels": {"app.kubernetes.io/name": "lucid-operator"}},
        "webhooks": [{"name": "mutate.lucid.computing", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore", "rules": [],
        "clientConfig": {"service": {"namespace": "audit", "name": "lucid-operator-webhook"}}}]});
    let params = PatchParams::apply("other");
    configurations.patch("lucid-operator", &params, &Patch::Apply(ours)).await.unwrap();
    let begin = Instant::now();
    let said = uninstall(cluster, &["--yes"], 1).await;
    assert!(said.contains("--namespace audit") && begin.elapsed() < Duration::from_secs(90), "{said}");
    uninstall(cluster, &["--yes", "--namespace", "audit"], 0).await;
    assert!(configurations.get_opt("lucid-operator").await.unwrap().is_none());
}
