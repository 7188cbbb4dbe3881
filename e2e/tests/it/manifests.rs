//! `lucid manifests`, applied with kubectl, and the permissions in the output.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use lucid_e2e::{ClusterExt as _, Operator};
use lucid_testbed::Cluster;

use crate::cli::{Ran, kubeconfig_for, kubectl, run};
use crate::common::{ENABLED, chain, create, secured, stored};
use crate::installation::is_never_forbidden;

fn manifests(arguments: &[&str]) -> Ran {
    run("lucid", &[&["manifests"], arguments].concat())
}

/// Runs `lucid manifests … | kubectl apply -f -`.
pub(crate) fn install(cluster: &Cluster, arguments: &[&str]) {
    let mut text = manifests(arguments).printed();
    if !arguments.contains(&"--backstop") {
        // The policy restricts registrations to the Service, and operators of tests register by URL.
        text = text.replace("- Deny", "- Audit").replace("\"Deny\"", "\"Audit\"");
    }
    for mode in [&["apply", "-f", "-"][..], &["apply", "--server-side", "--force-conflicts", "-f", "-"]] {
        kubectl(cluster, mode, &text);
    }
}

#[tokio::test]
async fn printed_manifests_install_an_operator_in_any_namespace() {
    for (namespace, output) in [("audit", "yaml"), ("default", "json")] {
        let cluster = Cluster::builder().start().await.unwrap();
        let arguments = [
            "--namespace",
            namespace,
            "--image",
            "r.test/operator:2",
            "--replicas",
            "3",
            "--example-catalogue",
            "-o",
            output,
        ];
        install(&cluster, &arguments);
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace);
        let spec = deployments.get("lucid-operator").await.unwrap().spec.unwrap();
        assert_eq!(spec.replicas, Some(3));
        assert_eq!(spec.template.spec.unwrap().containers[0].image.as_deref(), Some("r.test/operator:2"));
        let bindings: Api<RoleBinding> = Api::all(cluster.client());
        let bindings = bindings.list(&Default::default()).await.unwrap().items.into_iter();
        let ours: Vec<_> = bindings.filter(|it| it.role_ref.name == "lucid-operator").collect();
        assert!(!ours.is_empty());
        let whole: Api<ClusterRoleBinding> = Api::all(cluster.client());
        let whole = whole.get("lucid-operator").await.unwrap();
        for subject in ours.into_iter().filter_map(|it| it.subjects).chain(whole.subjects).flatten() {
            assert_eq!(subject.namespace.as_deref(), Some(namespace));
        }

        cluster.create_namespace("shop", &[ENABLED]).await.unwrap();
        let user = format!("system:serviceaccount:{namespace}:lucid-operator");
        let kubeconfig = kubeconfig_for(&cluster, &user);
        let operator = Operator::builder(&cluster).kubeconfig(kubeconfig).env("LUCID_NAMESPACE", namespace);
        let operator = operator.start().await.unwrap();
        create(&cluster, "shop", &secured("web")).await.stored().unwrap();
        assert_eq!(chain(&stored(&cluster, "shop", "web").await).len(), 3);
        let registered: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        registered.get("lucid-operator").await.unwrap();
        is_never_forbidden(&operator);
    }
}

#[test]
fn json_is_one_list_and_invalid_options_are_usage_errors() {
    let list = manifests(&["-o", "json"]).json();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&"List".into(), &"v1".into()));
    let kinds: Vec<_> =
        list["items"].as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect();
    for kind in [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "PodDisruptionBudget",
        "Deployment",
    ] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    let yaml = manifests(&["--alerts"]).printed();
    assert_eq!(yaml.matches("\nkind: ").count(), kinds.len() + 1, "{yaml}");
    for wrong in
        [&["--namespace", "Bad_Name"][..], &["--image", "a b"], &["--replicas", "-1"], &["-o", "xml"]]
    {
        let ran = manifests(wrong);
        assert_eq!(ran.status, Some(2), "{wrong:?}: {ran:?}");
    }
}
