//! `lucid uninstall`: removes all registrations, and no request waits for a missing webhook.

pub(crate) mod validator;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use lucid_e2e::{Operator, program};
use lucid_testbed::Cluster;
use serde_json::json;

use crate::common::{cluster, create, operator, prepare, secured, until};
use crate::manifests::install;

async fn uninstall(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    uninstall_as(&cluster.kubeconfig_path(), arguments).await
}

async fn uninstall_as(kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program("lucid").unwrap());
    command.arg("uninstall").args(arguments).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.code(), said)
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

/// Creates pods continuously until it is stopped; returns their number, and the denials.
fn create_pods(
    cluster: &Arc<Cluster>,
    ended: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<(usize, Vec<String>)> {
    let (cluster, ended) = (Arc::clone(cluster), Arc::clone(ended));
    tokio::spawn(async move {
        let (mut created, mut refused) = (0, Vec::new());
        while !ended.load(Ordering::Relaxed) {
            match create(&cluster, "shop", &secured(&format!("web-{created}"))).await.stored() {
                Ok(_) => created += 1,
                Err(error) => refused.push(error.to_string()),
            }
        }
        (created, refused)
    })
}

/// Simulates the node: the Deployment's pods and the operator's process run as long as it requests replicas.
async fn play_the_node(cluster: Arc<Cluster>, mut operator: Operator) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "lucid-system");
    loop {
        let deployment = deployments.get("lucid-operator").await.unwrap();
        if deployment.spec.unwrap().replicas == Some(0) {
            break;
        }
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
async fn no_pod_is_refused_while_an_operator_of_a_deployment_is_uninstalled() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    let cluster = Arc::new(prepare(cluster).await);
    // A pod of the Deployment, which has no controller here.
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "lucid-operator-0", "labels": {"app.kubernetes.io/name": "lucid-operator"}},
        "spec": {"containers": [{"name": "lucid-operator", "image": "r.test/operator", "securityContext": {
            "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"}}}]}});
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "lucid-system");
    pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running = operator(&cluster, |it| it.env("LUCID_LAME_DUCK_SECONDS", "3")).await;
    let ended = Arc::new(AtomicBool::new(false));
    let creating = create_pods(&cluster, &ended);
    let node = tokio::spawn(play_the_node(Arc::clone(&cluster), running));

    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ended.store(true, Ordering::Relaxed);
    let (created, refused) = creating.await.unwrap();
    node.await.unwrap();
    assert_eq!(status, Some(0), "{said}");
    assert!(refused.is_empty(), "{} of {created} were refused: {}", refused.len(), refused[0]);
    assert!(created > 20, "{created}");
    assert!(!registered(&cluster).await && !has_secret(&cluster).await, "{said}");
    for line in [
        "deleted MutatingWebhookConfiguration lucid-operator\n",
        "deleted ValidatingWebhookConfiguration lucid-operator\n",
        "scaled Deployment lucid-system/lucid-operator from 2 to 0\n",
        "again: a running lucid-operator had restored it",
        "deleted Secret lucid-system/lucid-operator-ca\n",
        "Secret lucid-system/lucid-operator-tls not found\n",
        "lucid manifests --namespace lucid-system | kubectl delete",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }

    // A second run has nothing to do.
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(!said.contains("deleted") && !said.contains("scaled"), "{said}");
}

#[tokio::test]
async fn an_operator_that_runs_elsewhere_is_noticed_and_stays_as_it_is() {
    let cluster = Arc::new(cluster().await);
    let mut running = operator(&cluster, |it| it).await;
    let ended = Arc::new(AtomicBool::new(false));
    let creating = create_pods(&cluster, &ended);
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    ended.store(true, Ordering::Relaxed);
    let (created, refused) = creating.await.unwrap();
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("it is restored repeatedly") && said.contains(&running.url()), "{said}");
    assert!(refused.is_empty(), "{} of {created} were refused: {}", refused.len(), refused[0]);
    assert!(registered(&cluster).await && has_secret(&cluster).await, "{said}");

    // Following its advice: stopped, and run again.
    running.terminate();
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(!registered(&cluster).await && !has_secret(&cluster).await, "{said}");
    create(&cluster, "shop", &secured("free")).await.stored().unwrap();
}

#[tokio::test]
async fn nothing_is_touched_without_consent_or_in_a_dry_run_or_without_permissions() {
    let cluster = cluster().await;
    let _running = operator(&cluster, |it| it).await;
    let (status, said) = uninstall(&cluster, &["--dry-run"]).await;
    assert_eq!(status, Some(0), "{said}");
    for line in [
        "would delete MutatingWebhookConfiguration lucid-operator\n",
        "would delete ValidatingWebhookConfiguration lucid-operator\n",
        "would delete Secret lucid-system/lucid-operator-ca\n",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
    let (status, said) = uninstall(&cluster, &[]).await;
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--yes"), "{said}");
    let nobody = cluster.folder().join("nobody.kubeconfig");
    std::fs::write(&nobody, cluster.kubeconfig_for("nobody", None).unwrap()).unwrap();
    let (status, said) = uninstall_as(&nobody, &["--yes"]).await;
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("nothing was removed: missing permissions"), "{said}");

    // It existed all the time.
    assert!(registered(&cluster).await && has_secret(&cluster).await);
    assert_eq!(
        create(&cluster, "shop", &secured("web")).await.stored().unwrap().spec.unwrap().containers.len(),
        3
    );

    let (status, said) = uninstall(&cluster, &["--yes", "--namespace", "elsewhere"]).await;
    assert_ne!(status, Some(2), "{said}");
    let (status, said) = uninstall_as(Path::new("/nonexistent"), &["--yes"]).await;
    assert_eq!(status, Some(2), "{said}");
}

#[tokio::test]
async fn what_others_made_under_our_names_stays_and_is_reported() {
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
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    for line in [
        "kept MutatingWebhookConfiguration lucid-operator: ",
        "kept Secret lucid-system/lucid-operator-tls: ",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
    configurations.get("lucid-operator").await.unwrap();
    secrets.get("lucid-operator-tls").await.unwrap();
}

#[tokio::test]
async fn the_backstop_goes_first_and_refuses_nobody_any_more_unless_it_is_somebody_elses() {
    let cluster = cluster().await;
    crate::backstop::install(&cluster, &[]).await;
    let remains = async || {
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client());
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client());
        let policy = policies.get_opt("lucid-backstop").await.unwrap();
        [policy.is_some(), bindings.get_opt("lucid-backstop").await.unwrap().is_some()]
    };
    let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    let (status, said) = uninstall(&cluster, &["--dry-run"]).await;
    assert_eq!(status, Some(0), "{said}");
    for kind in kinds {
        assert!(said.contains(&format!("would delete {kind} lucid-backstop\n")), "{said}");
    }
    // Registration of an operator in another namespace.
    let (status, said) = uninstall(&cluster, &["--yes", "--namespace", "elsewhere"]).await;
    assert_eq!(status, Some(1), "{said}");
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
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "some"},
        "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "some"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some"},
        "subjects": [{"kind": "User", "name": "some"}]});
    crate::backstop::apply(&cluster, &[role, binding]);
    let some = cluster.folder().join("some.kubeconfig");
    std::fs::write(&some, cluster.kubeconfig_for("some", None).unwrap()).unwrap();
    let (status, said) = uninstall_as(&some, &["--yes"]).await;
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("missing permissions: delete validatingadmissionpolicybindings lucid-backstop\n"),
        "{said}"
    );
    assert_eq!(remains().await, [true, true]);

    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    let lines: Vec<_> = said.lines().take(2).collect();
    assert_eq!(lines, kinds.map(|kind| format!("deleted {kind} lucid-backstop")), "{said}");
    assert_eq!(remains().await, [false, false]);
    until(&cluster, "shop", secured, |answer| answer.status == 201).await;

    // A third-party object under its name.
    let mut theirs = crate::backstop::printed(&[]);
    theirs.iter_mut().for_each(|it| it["metadata"]["labels"] = json!({"app.kubernetes.io/name": "ours"}));
    crate::backstop::apply(&cluster, &theirs);
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    for kind in kinds {
        assert!(said.contains(&format!("kept {kind} lucid-backstop: it has no label")), "{said}");
    }
    assert_eq!(remains().await, [true, true]);
}

#[tokio::test]
async fn auditors_stay_unless_their_definition_is_to_go() {
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
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("deleted 1 event of lucid-operator"), "{said}");
    assert!(definitions.get_opt("auditors.lucid.computing").await.unwrap().is_some());
    assert!(
        events.get_opt("ours").await.unwrap().is_none() && events.get_opt("theirs").await.unwrap().is_some()
    );
    let (status, said) = uninstall(&cluster, &["--yes", "--crds"]).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("deleted CustomResourceDefinition auditors.lucid.computing and all Auditors"),
        "{said}"
    );
    let begin = Instant::now();
    while definitions.get_opt("auditors.lucid.computing").await.unwrap().is_some() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it is still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn the_registration_of_an_operator_in_another_namespace_stays_with_the_hint_where_it_is() {
    let cluster = cluster().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let ours = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "lucid-operator", "labels": {"app.kubernetes.io/name": "lucid-operator"}},
        "webhooks": [{"name": "mutate.lucid.computing", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore", "rules": [],
        "clientConfig": {"service": {"namespace": "audit", "name": "lucid-operator-webhook"}}}]});
    let params = PatchParams::apply("other");
    configurations.patch("lucid-operator", &params, &Patch::Apply(ours)).await.unwrap();
    let begin = Instant::now();
    let (status, said) = uninstall(&cluster, &["--yes"]).await;
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("--namespace audit") && begin.elapsed() < Duration::from_secs(20), "{said}");
    let (status, said) = uninstall(&cluster, &["--yes", "--namespace", "audit"]).await;
    assert_eq!(status, Some(0), "{said}");
    assert!(configurations.get_opt("lucid-operator").await.unwrap().is_none());
}
