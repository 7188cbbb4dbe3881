//! lucid-validator is uninstalled like lucid-operator, and its decision logs stay.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use lucid_e2e::{Operator, eventually, program};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use super::{registered, uninstall, uninstall_as};
use crate::cli::{apply_manifest, grant, kubeconfig_for};
use crate::common::{assert_contains, cluster, create, operator, prepare, restricted, secured, until};
use crate::manifests::install;
use crate::traffic::Traffic;

const NAME: &str = "lucid-validator";

/// Runs the validator as a StatefulSet instead of the manifest's Deployment, with a log per replica.
pub(crate) async fn make_stateful(cluster: &Cluster, when_scaled: &str) {
    let client = cluster.client();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "lucid-system");
    let before = deployments.get(NAME).await.unwrap();
    deployments.delete(NAME, &DeleteParams::default()).await.unwrap();
    let spec = before.spec.unwrap();
    let set = json!({
        "metadata": {"name": NAME, "labels": before.metadata.labels},
        "spec": {
            "replicas": 2, "selector": spec.selector, "template": spec.template, "serviceName": NAME,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": when_scaled},
            "volumeClaimTemplates": [{"metadata": {"name": "decisions"}, "spec": claim()["spec"]}],
        },
    });
    let sets: Api<StatefulSet> = Api::namespaced(client, "lucid-system");
    sets.create(&Default::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
}

fn claim() -> Value {
    json!({"metadata": {"labels": {"app.kubernetes.io/name": NAME}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

/// Creates claims like a StatefulSet's controller, which does not run here, and a third-party one with our label.
async fn make_claims(cluster: &Cluster) {
    let claims = claims(cluster);
    let names =
        ["decisions-lucid-validator-0", "decisions-lucid-validator-1", "decisions-lucid-operator-0", "notes"];
    for name in names {
        let mut claim = claim();
        if name.contains("operator") {
            claim["metadata"]["labels"]["app.kubernetes.io/name"] = "lucid-operator".into();
        }
        claim["metadata"]["name"] = name.into();
        claims.create(&Default::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }
}

fn claims(cluster: &Cluster) -> Api<PersistentVolumeClaim> {
    Api::namespaced(cluster.client(), "lucid-system")
}

async fn remaining_claims(cluster: &Cluster) -> Vec<String> {
    let found = claims(cluster).list(&ListParams::default()).await.unwrap().items;
    // No controller removes their finalizers.
    let stays = found.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    stays.filter_map(|it| it.metadata.name).collect()
}

async fn is_registered(cluster: &Cluster) -> bool {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    registered(cluster).await || api.get_opt(NAME).await.unwrap().is_some()
}

async fn make_pod(cluster: &Cluster, name: &str, program: &str) {
    let pod = json!({"metadata": {"name": name, "labels": {"app.kubernetes.io/name": program}},
        "spec": {"containers": [{"name": program, "image": "r.test/lucid", "securityContext": restricted()}]}});
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "lucid-system");
    pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// Simulates the node: after the replicas are scaled down, processes end with a delay, and then their pods.
async fn play_the_node(client: Client, processes: Vec<(&'static str, Operator)>) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "lucid-system");
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "lucid-system");
    loop {
        let deployment = deployments.get("lucid-operator").await.unwrap().spec.unwrap().replicas;
        let set = sets.get(NAME).await.unwrap().spec.unwrap().replicas;
        if deployment == Some(0) && set == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pods: Api<Pod> = Api::namespaced(client, "lucid-system");
    for (pod, mut process) in processes {
        tokio::task::spawn_blocking(move || assert!(process.terminate().unwrap().success())).await.unwrap();
        pods.delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
}

#[tokio::test]
async fn uninstalling_a_validator_keeps_logs_and_does_not_deny_pods() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    apply_manifest(&cluster, "validator.yaml");
    let cluster = prepare(cluster).await;
    make_stateful(&cluster, "Retain").await;
    make_claims(&cluster).await;
    // The name of its Secret is configured.
    let tell = json!({"spec": {"template": {"spec": {"containers": [
        {"name": NAME, "args": ["run", "--ca-secret=authority"]}]}}}});
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "lucid-system");
    sets.patch(NAME, &PatchParams::default(), &Patch::Strategic(tell)).await.unwrap();
    let with_lame_duck = |it: lucid_e2e::OperatorBuilder| {
        it.flag("--lame-duck-seconds", "3").flag("--webhook-timeout-seconds", "30")
    };
    let validator = with_lame_duck(Operator::validator(&cluster));
    let validator = validator.flag("--ca-secret", "authority").start().await.unwrap();
    let running = operator(&cluster, |it| with_lame_duck(it).env("LUCID_VALIDATE", "false")).await;
    make_pod(&cluster, "operator-0", "lucid-operator").await;
    make_pod(&cluster, "validator-0", NAME).await;

    let said = uninstall(&cluster, &["--dry-run"], 0).await;
    assert_contains(
        &said,
        &[
            "would delete ValidatingWebhookConfiguration lucid-validator\n",
            "would scale StatefulSet lucid-system/lucid-validator from 2 to 0\n",
            "would delete Secret lucid-system/authority\n",
        ],
    );

    let traffic = Traffic::start(&cluster, secured, |_| Ok(()));
    let processes = vec![("operator-0", running), ("validator-0", validator)];
    let node = tokio::spawn(play_the_node(cluster.client(), processes));
    let said = uninstall(&cluster, &["--yes"], 0).await;
    traffic.end().await;
    node.await.unwrap();
    assert_contains(
        &said,
        &[
            "deleted ValidatingWebhookConfiguration lucid-validator\n",
            "scaled StatefulSet lucid-system/lucid-validator from 2 to 0\n",
            "scaled Deployment lucid-system/lucid-operator from 2 to 0\n",
            "deleted Secret lucid-system/authority\n",
            "deleted Secret lucid-system/lucid-validator-tls\n",
            "kept PersistentVolumeClaim lucid-system/decisions-lucid-validator-1: it holds a decision log",
            "kept PersistentVolumeClaim lucid-system/decisions-lucid-operator-0: it holds a decision log",
        ],
    );
    assert!(!said.contains("notes"), "{said}");
    assert!(!is_registered(&cluster).await);
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=lucid-certs");
    assert!(secrets.list_metadata(&ours).await.unwrap().items.is_empty(), "{said}");
    assert_eq!(remaining_claims(&cluster).await.len(), 4);

    // With the option they are removed too, but not those of third parties.
    let said = uninstall(&cluster, &["--yes", "--decision-logs"], 0).await;
    assert!(
        said.contains("deleted PersistentVolumeClaim lucid-system/decisions-lucid-validator-0\n"),
        "{said}"
    );
    assert_eq!(remaining_claims(&cluster).await, ["notes"]);
}

#[tokio::test]
async fn validators_that_would_lose_their_logs_stay() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    apply_manifest(&cluster, "validator.yaml");
    make_stateful(&cluster, "Delete").await;
    let _validator = Operator::validator(&cluster).start().await.unwrap();
    let said = uninstall(&cluster, &["--yes"], 2).await;
    assert!(
        said.contains("scaling StatefulSet lucid-system/lucid-validator to 0 deletes its decision logs"),
        "{said}"
    );
    assert!(is_registered(&cluster).await);
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "lucid-system");
    assert_eq!(sets.get(NAME).await.unwrap().spec.unwrap().replicas, Some(2));
}

#[tokio::test]
async fn interrupted_runs_are_completed_by_another() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    apply_manifest(&cluster, "validator.yaml");
    let cluster = prepare(cluster).await;
    let mut validator = Operator::validator(&cluster).start().await.unwrap();
    let mut running = operator(&cluster, |it| it.env("LUCID_VALIDATE", "false")).await;
    make_pod(&cluster, "operator-0", "lucid-operator").await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    // Interrupted after each of its steps: running programs restore deleted objects.
    for step in [
        "deleted ValidatingWebhookConfiguration lucid-validator",
        "deleted MutatingWebhookConfiguration",
        "scaled ",
    ] {
        // The former run may have come further than its line.
        for name in ["lucid-operator", "lucid-validator"] {
            let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
            deployments.patch(name, &PatchParams::default(), &two).await.unwrap();
        }
        let mut command = lucid_e2e::command(program("lucid").unwrap());
        command.args(["uninstall", "--yes"]).env("KUBECONFIG", cluster.kubeconfig_path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let found = tokio::task::spawn_blocking(move || {
            let found = out.lines().map_while(Result::ok).any(|line| line.starts_with(step));
            child.kill().unwrap();
            child.wait().unwrap();
            found
        });
        assert!(found.await.unwrap(), "{step:?} was never said");
        until(
            &cluster,
            "shop",
            |name| secured(&format!("{}-{name}", step.len())),
            |response| response.status == 201,
        )
        .await;
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "lucid-system");
    let ending = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for process in [&mut running, &mut validator] {
            assert!(process.terminate().unwrap().success());
        }
        pods.delete("operator-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    };
    let (said, ()) = tokio::join!(uninstall(&cluster, &["--yes"], 0), ending);
    assert!(!is_registered(&cluster).await && !super::has_secret(&cluster).await, "{said}");
    create(&cluster, "shop", &secured("free")).await.stored().unwrap();
}

#[tokio::test]
async fn partial_installations_are_removed() {
    let cluster = cluster().await;
    // A registration created by Helm and not filled yet, and one whose validator is gone.
    let labels = |name: &str| json!({"name": name, "labels": {"app.kubernetes.io/name": name}});
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let empty = json!({"metadata": labels("lucid-operator")});
    api.create(&Default::default(), &serde_json::from_value(empty).unwrap()).await.unwrap();
    let mut validator = Operator::validator(&cluster).start().await.unwrap();
    validator.kill();
    let said = uninstall(&cluster, &["--yes"], 0).await;
    assert_contains(
        &said,
        &[
            "deleted ValidatingWebhookConfiguration lucid-validator\n",
            "deleted ValidatingWebhookConfiguration lucid-operator\n",
            "MutatingWebhookConfiguration lucid-operator not found\n",
            "deleted Secret lucid-system/lucid-validator-ca\n",
            "Secret lucid-system/lucid-operator-ca not found\n",
        ],
    );
    assert!(!is_registered(&cluster).await, "{said}");

    // A validator in another namespace is left unchanged, and the operator is uninstalled anyway.
    let theirs = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": labels(NAME), "webhooks": [{"name": "validate.lucid.computing", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "rules": [],
        "clientConfig": {"service": {"namespace": "audit", "name": "lucid-validator-webhook"}}}]});
    api.patch(NAME, &PatchParams::apply("other"), &Patch::Apply(theirs)).await.unwrap();
    let mut running = operator(&cluster, |it| it).await;
    running.kill();
    let said = uninstall(&cluster, &["--yes"], 1).await;
    assert!(said.contains("use --namespace audit\n") && said.contains("kept lucid-validator"), "{said}");
    assert!(!registered(&cluster).await && !super::has_secret(&cluster).await, "{said}");
    assert!(is_registered(&cluster).await, "{said}");
}

#[tokio::test]
async fn missing_permissions_for_the_validator_are_named_first() {
    let cluster = Cluster::builder().start().await.unwrap();
    install(&cluster, &[]);
    apply_manifest(&cluster, "validator.yaml");
    make_stateful(&cluster, "Retain").await;
    let _validator = Operator::validator(&cluster).start().await.unwrap();
    let some = kubeconfig_for(&cluster, "some");
    let configurations = [
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "customresourcedefinitions",
    ];
    let read = json!([
        {"apiGroups": ["*"], "resources": configurations, "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["validatingwebhookconfigurations"], "resourceNames": ["lucid-operator"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["deployments", "deployments/scale", "pods"], "verbs": ["*"]},
    ]);
    let name_it = json!({"apiGroups": ["*"], "resources": ["validatingwebhookconfigurations", "statefulsets"], "verbs": ["*"]});
    let mut all = read.clone();
    all.as_array_mut().unwrap().push(name_it);
    for (rules, missing) in [
        (
            read,
            "get and delete validatingwebhookconfigurations lucid-validator; list statefulsets in namespace lucid-system",
        ),
        (all, "patch statefulsets/scale lucid-validator in namespace lucid-system"),
    ] {
        grant(&cluster, "some", &rules);
        // Permissions take effect with a delay.
        eventually("the missing permission is named", async || {
            let said = uninstall_as(&some, &["--yes"], 2).await;
            let message = format!("nothing was removed: missing permissions: {missing}\n");
            if said.contains(&message) { Ok(()) } else { Err(said) }
        })
        .await;
    }
    assert!(is_registered(&cluster).await);
}
