//! `lucid manifests --backstop`: denials by the API server itself while Lucid is unavailable.

mod break_glass;
mod chains;
mod fields;
mod files;
mod hostile;
mod images;
mod namespaces;
mod planner;
mod static_policies;
mod unsecured;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, plan};
use lucid_e2e::{Answer, ClusterExt as _, Operator, OperatorBuilder, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::cli::{apply, lucid, run};
use crate::common::{
    ENABLED, chain, cluster, config_map, create, create_object, deployment, dry_run, label_namespace,
    patch_pod, pod, prepare, restricted, secured, secured_with, unplanned, until,
};

/// Policy and binding, as printed.
pub(crate) fn printed(arguments: &[&str]) -> Vec<Value> {
    let list = run("lucid", &[&["manifests", "--backstop", "-o", "json"], arguments].concat()).json();
    let all = list["items"].as_array().unwrap().iter();
    all.filter(|it| it["metadata"]["name"] == "lucid-backstop").cloned().collect()
}

/// Installs the policy, and waits until the API server enforces it.
pub(crate) async fn install(cluster: &Cluster, arguments: &[&str]) {
    apply(cluster, &printed(arguments));
    in_force(cluster, "shop").await;
}

async fn in_force(cluster: &Cluster, namespace: &str) {
    let mut probe = secured("probe");
    // Admitted in any namespace.
    probe["spec"]["containers"][0]["securityContext"] = restricted();
    eventually("the policy is in force", async || {
        let response = dry_run(cluster, namespace, &probe).await;
        if response.refusal().contains("lucid-backstop") { Ok(()) } else { Err(response) }
    })
    .await;
}

/// Pod after mutation by the webhook with this configuration.
fn injected(pod: &Value, configuration: &Configuration) -> Value {
    planned(pod, &Inputs::new(configuration)).unwrap_or_else(|why| panic!("{why}"))
}

fn planned(pod: &Value, inputs: &Inputs<'_>) -> Result<Value, String> {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    match plan(&view, inputs).decision {
        Decision::Planned(plan) => {
            let mut pod = pod.clone();
            json_patch::patch(&mut pod, &plan.patch(&view).operations()).unwrap();
            Ok(pod)
        }
        other => Err(format!("{other:?}")),
    }
}

fn builtin() -> Configuration {
    Configuration::new(Catalogue::builtin(), None).unwrap()
}

fn refused(response: &Answer, parts: &[&str]) {
    assert!(matches!(response.status, 403 | 422), "{response:?}");
    for part in ["ValidatingAdmissionPolicy 'lucid-backstop'"].iter().chain(parts) {
        assert!(response.refusal().contains(part), "{part:?} is not in {:?}", response.refusal());
    }
}

/// Registers webhooks that may fail, and stops them.
async fn dead_webhook(cluster: &Cluster) -> Operator {
    let mut operator = ignoring(cluster).start().await.unwrap();
    operator.kill();
    operator
}

fn ignoring(cluster: &Cluster) -> OperatorBuilder {
    let operator = Operator::builder(cluster).env("LUCID_FAILURE_POLICY", "Ignore");
    operator.env("LUCID_VALIDATION_FAILURE_POLICY", "Ignore").flag("--webhook-timeout-seconds", "5")
}

pub(crate) async fn checked(cluster: &Cluster, status: &str, part: &str) {
    let ran = lucid(cluster, &["check", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|it| it["check"] == "backstop").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(found["status"], status, "{found}");
    assert!(found["found"].as_str().unwrap().contains(part), "{found}");
}

fn containers(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["containers"].as_array_mut().unwrap()
}

fn variables(container: &mut Value) -> &mut Vec<Value> {
    container["env"].as_array_mut().unwrap()
}

/// Sets each variable with the forwarding address of an auditor.
fn forward(auditor: &mut Value, to: &str) {
    for variable in variables(auditor) {
        if variable["name"] == "LUCID_CHAIN_NEXT" || variable["name"] == "AUDITOR_URL" {
            variable["value"] = json!(to);
        }
    }
}

/// In one cluster, with the policy of the default settings.
#[tokio::test]
async fn the_default_policy_denies_pods_without_their_chain() {
    let cluster = cluster().await;
    install(&cluster, &[]).await;
    chains::handmade_chains_are_complete(&cluster).await;
    chains::outbound_traffic_goes_where_the_pod_says(&cluster).await;
    hostile::lookalikes_are_denied(&cluster).await;
    hostile::running_pods_keep_their_chain(&cluster).await;
    hostile::large_pods_keep_their_chain(&cluster).await;
    unsecured::pods_that_are_too_large_are_denied(&cluster).await;
    namespaces::namespaces_can_require_a_chain(&cluster).await;
    namespaces::namespaces_can_close_ports(&cluster).await;
}

/// In one cluster, with the strictest policy.
#[tokio::test]
async fn the_strict_policy_leaves_other_pods_alone() {
    let cluster = cluster().await;
    let strict = ["--strict-notarization", "--break-glass-access-review"];
    install(&cluster, &[&strict[..], &["--allow-skip=shop/batch"]].concat()).await;
    unsecured::size_limits_are_of_secured_pods(&cluster).await;
    hostile::other_pods_are_never_denied(&cluster).await;
}

#[tokio::test]
async fn pods_need_their_chain_while_every_webhook_is_down() {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    let mut operator = dead_webhook(&cluster).await;
    let annotated =
        |name: &str, chain: &str| pod(name, json!({}), json!({"lucid.computing/auditors": chain}));
    // The case that the policy covers.
    let response = create(&cluster, "shop", &secured("open")).await;
    assert_eq!(response.status, 201, "{response:?}");

    checked(&cluster, "warning", "there is no ValidatingAdmissionPolicy lucid-backstop").await;
    install(&cluster, &[]).await;
    checked(&cluster, "ok", "lucid-backstop denies").await;
    let response = create(&cluster, "shop", &secured("web")).await;
    refused(&response, &["does not have its chain", "found none", "may be down", "lucid check"]);
    refused(&dry_run(&cluster, "shop", &secured("web")).await, &["does not have its chain"]);
    let response = create(&cluster, "shop", &annotated("web", "toxicity, injection")).await;
    refused(&response, &["expected toxicity, injection;"]);
    for nonsense in ["", "nonsense", ",", "toxicity,nonsense"] {
        let response = create(&cluster, "shop", &annotated("web", nonsense)).await;
        refused(&response, &["expected at least one auditor"]);
    }
    let plain =
        create(&cluster, "shop", &pod("plain", json!({"lucid.io/secured": "false"}), json!({}))).await;
    assert_eq!(plain.status, 201, "{plain:?}");
    for namespace in ["other", "lucid-system", "kube-system"] {
        if namespace != "other" {
            label_namespace(&cluster, namespace, json!({"lucid.computing/enabled": "true"})).await;
        }
        // The controller creates service accounts with a delay.
        let made = |response: &Answer| response.status == 201;
        until(&cluster, namespace, |name| secured(&format!("web-{name}")), made).await;
    }

    // Existing pods can be changed and deleted.
    let changes = [
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/wait"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/wait"]}}),
        json!({"spec": {"activeDeadlineSeconds": 3600}}),
        json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2", "ports": [{"containerPort": 5000}]}]}}),
    ];
    for change in changes {
        let response = patch_pod(&cluster, "open", &change).await;
        assert_eq!(response.status, 200, "{change}: {response:?}");
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    pods.delete("open", &Default::default()).await.unwrap();

    // The configuration changes, the policy does not.
    let topics = "chain: [{name: topics, image: example.com/topics}]";
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", topics).await;
    checked(&cluster, "warning", "another configuration: catalogue, names, policies, stems;").await;

    // A Deployment reports the denial and loses nothing: its pods are created when the operator is back.
    create_object::<Deployment>(&cluster, deployment("web", 1, &secured(""))).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "shop");
    eventually("a condition names the policy", async || {
        let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let names = |message: &String| message.contains("lucid-backstop");
        if conditions.iter().any(|it| it.message.as_ref().is_some_and(names)) {
            Ok(())
        } else {
            Err(conditions)
        }
    })
    .await;
    operator.restart().await.unwrap();
    let is_injected = |response: &Answer| response.result.as_ref().is_ok_and(|pod| chain(pod).len() == 3);
    until(&cluster, "shop", |name| secured(&format!("up-{name}")), is_injected).await;
    eventually("a pod of the Deployment", async || {
        !pods.list(&ListParams::default().labels("app=web")).await.unwrap().items.is_empty()
    })
    .await;
}

/// Typical manual operations in a healthy cluster: the policy allows all of them.
#[tokio::test]
async fn injected_pods_pass() {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    let levels = ["baseline", "restricted"];
    for level in levels {
        let labels = [ENABLED, ("pod-security.kubernetes.io/enforce", level)];
        cluster.create_namespace(level, &labels).await.unwrap();
    }
    let entry = |number: u32| {
        format!(
            "  - {{name: a-{number}, image: \"r.test:5000/team/a{number}:1\", port: {}, env: {{LEVEL: \"{number}\"}}}}\n",
            9000 + number
        )
    };
    let catalogue = format!("chain:\n{}", (1..=10).map(entry).collect::<String>());
    let file = cluster.folder().join("auditors.yaml");
    std::fs::write(&file, &catalogue).unwrap();
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", &catalogue).await;
    config_map(&cluster, "baseline", "lucid-auditor-chain", "chain", "a-3,a-3,toxicity").await;
    install(&cluster, &["--catalogue", &file.display().to_string()]).await;
    let _operator = ignoring(&cluster).start().await.unwrap();
    let everything = (1..=10).map(|number| format!("a-{number}")).collect::<Vec<_>>().join(",");
    let mut number = 0;
    for namespace in ["shop", "baseline", "restricted"] {
        for (key, value) in [
            ("none", ""),
            ("auditor-chain", &*everything),
            ("auditor-chain", "lucid-toxicity-auditor,injection,toxicity-auditor"),
            ("auditors", "nonsense"),
            ("direction", "outbound"),
            ("direction", "both"),
            ("audit-mode", "observe"),
            ("sidecar-mode", "native"),
            ("sidecar-mode", "containers"),
            ("intercept", "env"),
            ("target-port", "7777"),
        ] {
            for restart in ["Always", "Never"] {
                number += 1;
                let key = format!("lucid.computing/{key}");
                let mut pod = secured_with(&format!("pod-{number}"), json!({key: value}));
                pod["spec"]["restartPolicy"] = json!(restart);
                pod["spec"]["containers"][0]["securityContext"] = restricted();
                let response = create(&cluster, namespace, &pod).await;
                assert_eq!(response.status, 201, "{namespace}: {pod}: {response:?}");
                let stored = response.stored().unwrap();
                assert!(!unplanned(&stored).contains("NotRequested"), "{pod}");
            }
        }
    }
}
