//! A release on a real API server: updates of objects that Lucid fills.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::Api;
use lucid_e2e::{ClusterExt as _, Operator, eventually};
use lucid_testbed::Cluster;

use super::{as_installed, helm, upgrade};
use crate::cli::{kubectl, kubectl_until, lucid};
use crate::common::{ENABLED, chain, create, secured, stored};
use crate::installation::is_never_forbidden;

/// An API server with controllers, and a namespace for Lucid with Pod Security.
async fn cluster() -> Cluster {
    let cluster = Cluster::builder().controller_manager().start().await.unwrap();
    let restricted = ("pod-security.kubernetes.io/enforce", "restricted");
    cluster.create_namespace("lucid-system", &[restricted]).await.unwrap();
    cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
    cluster
}

/// A program with the settings of a pod and its own log. Its webhooks are registered by Service, which has no endpoint here.
async fn started(cluster: &Cluster, program: &str, log: &'static str) -> Operator {
    as_installed(cluster, program).await.named(log).by_service().start().await.unwrap()
}

/// Waits for the caBundle that the program writes to a registration.
async fn bundle(cluster: &Cluster, registration: &str) -> String {
    let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    kubectl_until(cluster, &["get", registration, "-o", path], |text| !text.is_empty()).await
}

fn is_there(cluster: &Cluster, object: &str) -> bool {
    !kubectl(cluster, &["get", object, "--ignore-not-found", "-o", "name"], "").is_empty()
}

/// Asserts that the validator's registration is deleted, and that a process that may still run lacks the permission to recreate
/// it.
async fn cannot_come_back(cluster: &Cluster) {
    let validator = ["--as", "system:serviceaccount:lucid-system:lucid-validator"];
    for verb in ["create", "patch"] {
        let query = [&["auth", "can-i", verb, BY_VALIDATOR][..], &validator].concat();
        // API servers apply a revoked permission with a delay.
        eventually(verb, async || cluster.kubectl(&query, "").unwrap().stdout == b"no\n").await;
    }
    assert!(!is_there(cluster, BY_VALIDATOR));
}

const MUTATING: &str = "mutatingwebhookconfiguration/lucid-operator";
const BY_OPERATOR: &str = "validatingwebhookconfiguration/lucid-operator";
const BY_VALIDATOR: &str = "validatingwebhookconfiguration/lucid-validator";

#[tokio::test]
async fn upgrades_and_rollbacks_keep_the_fields_of_lucid() {
    let cluster = cluster().await;
    upgrade(&cluster, &[]);
    let operator = started(&cluster, "lucid-operator", "first").await;
    let trusted = bundle(&cluster, MUTATING).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let registered = mutating.get("lucid-operator").await.unwrap().webhooks;

    let changed = [
        "operator.replicas=3",
        "notary.strict=true",
        "notary.url=https://v.test",
        "webhooks.timeoutSeconds=7",
    ];
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let replicas = async || deployments.get("lucid-operator").await.unwrap().spec.unwrap().replicas;
    for (release, expected) in [("upgrade", 3), ("rollback", 2), ("upgrade", 3)] {
        match release {
            "upgrade" => upgrade(&cluster, &changed),
            _ => drop(helm(&cluster, &["rollback", "lucid", "1"]).unwrap()),
        }
        assert_eq!(replicas().await, Some(expected), "{release}");
        assert_eq!(mutating.get("lucid-operator").await.unwrap().webhooks, registered, "{release}");
        assert_eq!(bundle(&cluster, MUTATING).await, trusted, "{release}");
    }
    // The new pod takes over the registration of the old one.
    drop(operator);
    let operator = started(&cluster, "lucid-operator", "second").await;
    kubectl_until(&cluster, &["get", MUTATING, "-o", "jsonpath={.webhooks[*].timeoutSeconds}"], |text| {
        text == "7"
    })
    .await;
    assert_eq!(bundle(&cluster, MUTATING).await, trusted);
    is_never_forbidden(&operator);
    // Pods are created under Pod Security.
    let rolled = [
        "get",
        "-n",
        "lucid-system",
        "deployment/lucid-operator",
        "-o",
        "jsonpath={.status.updatedReplicas}",
    ];
    kubectl_until(&cluster, &rolled, |text| !text.is_empty()).await;
}

#[tokio::test]
async fn validation_moves_between_operator_and_validator() {
    let cluster = cluster().await;
    upgrade(&cluster, &[]);
    let mut operator = started(&cluster, "lucid-operator", "first").await;
    bundle(&cluster, BY_OPERATOR).await;

    upgrade(&cluster, &["webhooks.validating.by=both"]);
    let validator = started(&cluster, "lucid-validator", "validator").await;
    bundle(&cluster, BY_VALIDATOR).await;
    assert!(is_there(&cluster, BY_OPERATOR));

    // Switches to the validator alone. The previous operator has no permission to restore its registration.
    upgrade(&cluster, &["webhooks.validating.by=validator"]);
    drop(operator);
    operator = started(&cluster, "lucid-operator", "second").await;
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    assert!(validating.get_opt("lucid-operator").await.unwrap().is_none());
    is_never_forbidden(&operator);

    // With a log on a claim the workload is a StatefulSet.
    let with_log = ["webhooks.validating.by=validator", "decisions.log.volume=persistentVolumeClaim"];
    upgrade(&cluster, &with_log);
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    assert!(deployments.get_opt("lucid-validator").await.unwrap().is_none());
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), "lucid-system");
    assert_eq!(sets.get("lucid-validator").await.unwrap().spec.unwrap().replicas, Some(2));

    // Switches back, while the validator's process still runs.
    is_never_forbidden(&validator);
    upgrade(&cluster, &["webhooks.validating.by=both"]);
    drop(operator);
    let operator = started(&cluster, "lucid-operator", "third").await;
    bundle(&cluster, BY_OPERATOR).await;
    upgrade(&cluster, &[]);
    cannot_come_back(&cluster).await;
    drop(validator);
    is_never_forbidden(&operator);
}

#[tokio::test]
async fn nothing_that_denies_pods_stays_after_helm_uninstall() {
    let cluster = cluster().await;
    // Without a node no Job completes.
    upgrade(&cluster, &["webhooks.validating.by=both", "uninstall.enabled=false"]);
    let mut operator = started(&cluster, "lucid-operator", "operator").await;
    let mut validator = started(&cluster, "lucid-validator", "validator").await;
    bundle(&cluster, BY_OPERATOR).await;
    bundle(&cluster, BY_VALIDATOR).await;

    // Like pods when their Deployments are scaled down.
    operator.kill();
    validator.kill();
    lucid(&cluster, &["uninstall", "--yes"]).await.printed();
    helm(&cluster, &["uninstall", "lucid"]).unwrap();
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        assert_eq!(kubectl(&cluster, &["get", kind, "-o", "name"], ""), "");
    }
    create(&cluster, "shop", &secured("free")).await.stored().unwrap();
    assert_eq!(chain(&stored(&cluster, "shop", "free").await).len(), 1);
    let mut left = kubectl(
        &cluster,
        &[
            "get",
            "-A",
            "-l",
            "app.kubernetes.io/part-of=lucid",
            "-o",
            "name",
            "deployments,statefulsets,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,pdb,configmaps,crds",
        ],
        "",
    );
    left.retain(|character| character != '\n');
    assert_eq!(left, "customresourcedefinition.apiextensions.k8s.io/auditors.lucid.computing");
    // A reinstallation succeeds, also under another name once it adopts the definition.
    let again = ["install", "other", super::CHART];
    let refused = helm(&cluster, &again).unwrap_err();
    assert!(refused.contains("auditors.lucid.computing") && refused.contains("\"lucid\""), "{refused}");
    helm(&cluster, &[&again[..], &["--take-ownership"]].concat()).unwrap();
    // A cluster has one Lucid.
    let second = helm(&cluster, &["install", "second", super::CHART]).unwrap_err();
    assert!(second.contains("current value is \"other\""), "{second}");
}
