//! `lucid manifests`, applied with kubectl, and the permissions in the output.

use std::process::{Command, Output};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::Api;
use lucid_e2e::{Operator, program};
use lucid_testbed::Cluster;
use serde_json::Value;

use crate::common::{ENABLED, chain, create, secured, stored};

fn manifests(arguments: &[&str]) -> Output {
    Command::new(program("lucid").unwrap()).arg("manifests").args(arguments).output().unwrap()
}

/// Runs `lucid manifests … | kubectl apply -f -`.
pub(crate) fn install(cluster: &Cluster, arguments: &[&str]) {
    let printed = manifests(arguments);
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let mut text = String::from_utf8(printed.stdout).unwrap();
    if !arguments.contains(&"--backstop") {
        // The policy restricts registrations to the Service, and operators of tests register by URL.
        text = text.replace("- Deny", "- Audit").replace("\"Deny\"", "\"Audit\"");
    }
    for mode in [&["apply", "-f", "-"][..], &["apply", "--server-side", "--force-conflicts", "-f", "-"]] {
        let output = cluster.kubectl(mode, &text).unwrap();
        assert!(output.status.success(), "{mode:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn what_is_printed_installs_an_operator_with_the_permissions_it_needs_in_any_namespace() {
    for (namespace, output) in [("audit", "yaml"), ("default", "json")] {
        let cluster = Cluster::builder().start().await.unwrap();
        let arguments = [
            "--namespace",
            namespace,
            "--image",
            "r.test/operator:2",
            "--replicas",
            "3",
            "--catalogue",
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
        let kubeconfig = cluster.folder().join("lucid-operator.kubeconfig");
        let restricted = cluster.kubeconfig_for(&user, Some("system:serviceaccounts")).unwrap();
        std::fs::write(&kubeconfig, restricted).unwrap();
        let operator = Operator::builder(&cluster).kubeconfig(kubeconfig).env("LUCID_NAMESPACE", namespace);
        let operator = operator.start().await.unwrap();
        create(&cluster, "shop", &secured("web")).await.stored().unwrap();
        assert_eq!(chain(&stored(&cluster, "shop", "web").await).len(), 3);
        let registered: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        registered.get("lucid-operator").await.unwrap();
        let log = std::fs::read_to_string(operator.log()).unwrap();
        assert!(!log.contains("forbidden") && !log.contains("ERROR"), "{log}");
    }
}

#[test]
fn json_is_one_list_of_the_same_objects_and_nonsense_is_a_usage_error() {
    let list: Value = serde_json::from_slice(&manifests(&["-o", "json"]).stdout).unwrap();
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
    let yaml = String::from_utf8(manifests(&["--alerts"]).stdout).unwrap();
    assert_eq!(yaml.matches("\nkind: ").count(), kinds.len() + 1, "{yaml}");
    for wrong in
        [&["--namespace", "Bad_Name"][..], &["--image", "a b"], &["--replicas", "-1"], &["-o", "xml"]]
    {
        let output = manifests(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
