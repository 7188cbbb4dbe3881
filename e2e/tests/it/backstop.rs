//! `lucid-operator manifests --backstop`: what the API server refuses by itself, while nobody answers for Lucid.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use lucid_chain::{
    Catalogue, Configuration, Decision, Inputs, NamespaceChain, Overrides, PodSecurity, PodView, SkipPolicy,
    plan,
};
use lucid_e2e::{Answer, Operator, OperatorBuilder, program, send};
use lucid_testbed::Cluster;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::common::{ENABLED, chain, cluster, config_map, create, pod, prepare, secured, unplanned, until};
use crate::notices::make;

/// The policy and its binding, as they are printed.
pub(crate) fn printed(arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(program("lucid-operator").unwrap());
    let output = command.args(["manifests", "--backstop", "-o", "json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    all.filter(|it| it["kind"].as_str().unwrap().starts_with("ValidatingAdmissionPolicy")).cloned().collect()
}

pub(crate) fn apply(cluster: &Cluster, documents: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string();
    let output = cluster.kubectl(&["apply", "--server-side", "-f", "-"], &list).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Installs it, and waits until the API server acts on it, which takes a moment.
pub(crate) async fn install(cluster: &Cluster, arguments: &[&str]) {
    apply(cluster, &printed(arguments));
    in_force(cluster, "shop").await;
}

async fn in_force(cluster: &Cluster, namespace: &str) {
    let mut probe = secured("probe");
    // It is let into any namespace.
    let hardened = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
    probe["spec"]["containers"][0]["securityContext"] = hardened;
    let begin = Instant::now();
    loop {
        let answer = dry_run(cluster, namespace, &probe).await;
        if answer.refusal().contains("lucid-backstop") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it never came into force: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn dry_run(cluster: &Cluster, namespace: &str, pod: &Value) -> Answer {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    send(&cluster.client(), Method::POST, &path, "application/json", pod).await.unwrap()
}

/// The pod as the webhook would make it, where nothing is configured but this.
fn injected(pod: &Value, configuration: &Configuration) -> Value {
    planned(pod, &Inputs::new(configuration)).unwrap_or_else(|why| panic!("{why}"))
}

fn planned(pod: &Value, inputs: &Inputs<'_>) -> Result<Value, String> {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    match plan(&view, inputs).decision {
        Decision::Planned(plan) => {
            let mut pod = pod.clone();
            let patch = serde_json::to_value(plan.patch(&view)).unwrap();
            json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(patch).unwrap())
                .unwrap();
            Ok(pod)
        }
        other => Err(format!("{other:?}")),
    }
}

fn builtin() -> Configuration {
    Configuration::new(Catalogue::builtin(), None).unwrap()
}

fn refused(answer: &Answer, parts: &[&str]) {
    assert!(matches!(answer.status, 403 | 422), "{answer:?}");
    for part in ["ValidatingAdmissionPolicy 'lucid-backstop'"].iter().chain(parts) {
        assert!(answer.refusal().contains(part), "{part:?} is not in {:?}", answer.refusal());
    }
}

/// Registers webhooks that may fail, and ends them.
async fn dead_webhook(cluster: &Cluster) -> Operator {
    let mut operator = ignoring(cluster).start().await.unwrap();
    operator.kill();
    operator
}

fn ignoring(cluster: &Cluster) -> OperatorBuilder {
    let operator = Operator::builder(cluster).env("LUCID_FAILURE_POLICY", "Ignore");
    operator.env("LUCID_VALIDATION_FAILURE_POLICY", "Ignore").env("LUCID_WEBHOOK_TIMEOUT_SECONDS", "5")
}

/// What `lucid-operator check` says of the policy.
async fn checked(cluster: &Cluster, status: &str, part: &str) {
    let mut command = Command::new(program("lucid-operator").unwrap());
    command.args(["check", "-o", "json"]).env("KUBECONFIG", cluster.kubeconfig_path());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|it| it["check"] == "backstop").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(found["status"], status, "{found}");
    assert!(found["found"].as_str().unwrap().contains(part), "{found}");
}

#[tokio::test]
async fn while_every_webhook_is_down_no_pod_runs_without_the_chain_it_asks_for() {
    let cluster = prepare(Cluster::builder().controller_manager().start().await.unwrap()).await;
    let mut operator = dead_webhook(&cluster).await;
    let annotated =
        |name: &str, chain: &str| pod(name, json!({}), json!({"lucid.computing/auditors": chain}));
    // This is what the policy is for.
    let answer = create(&cluster, "shop", &secured("open")).await;
    assert_eq!(answer.status, 201, "{answer:?}");

    checked(&cluster, "warning", "there is no ValidatingAdmissionPolicy lucid-backstop").await;
    install(&cluster, &[]).await;
    checked(&cluster, "ok", "lucid-backstop refuses").await;
    let answer = create(&cluster, "shop", &secured("web")).await;
    refused(&answer, &["does not have its chain", "found none", "may be down", "lucid-operator check"]);
    refused(&dry_run(&cluster, "shop", &secured("web")).await, &["does not have its chain"]);
    let answer = create(&cluster, "shop", &annotated("web", "toxicity, injection")).await;
    refused(&answer, &["wanted toxicity, injection;"]);
    for nonsense in ["", "nonsense", ",", "toxicity,nonsense"] {
        let answer = create(&cluster, "shop", &annotated("web", nonsense)).await;
        refused(&answer, &["wanted at least one auditor"]);
    }
    let plain =
        create(&cluster, "shop", &pod("plain", json!({"lucid.io/secured": "false"}), json!({}))).await;
    assert_eq!(plain.status, 201, "{plain:?}");
    for namespace in ["other", "lucid-system", "kube-system"] {
        let label = Patch::Merge(json!({"metadata": {"labels": {"lucid.computing/enabled": "true"}}}));
        if namespace != "other" {
            let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client());
            api.patch(namespace, &PatchParams::default(), &label).await.unwrap();
        }
        // The controller makes service accounts when it comes to it.
        let made = |answer: &Answer| answer.status == 201;
        until(&cluster, namespace, |name| secured(&format!("web-{name}")), made).await;
    }

    // What was there before can be changed and deleted.
    let merge = "application/strategic-merge-patch+json";
    let path = "/api/v1/namespaces/shop/pods/open";
    let changes = [
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/wait"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/wait"]}}),
        json!({"spec": {"activeDeadlineSeconds": 3600}}),
        json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2", "ports": [{"containerPort": 5000}]}]}}),
    ];
    for change in changes {
        let answer = send(&cluster.client(), Method::PATCH, path, merge, &change).await.unwrap();
        assert_eq!(answer.status, 200, "{change}: {answer:?}");
    }
    let answer = send(&cluster.client(), Method::DELETE, path, "application/json", &json!({})).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");

    // The configuration moves on, the policy does not.
    let pii = "chain: [{name: pii, image: example.com/pii}]";
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", pii).await;
    checked(&cluster, "warning", "another configuration: catalogue, names, stems;").await;

    // Who makes pods of a Deployment is told, and nothing is lost: they come when the operator does.
    let mut template = secured("web");
    template["metadata"].as_object_mut().unwrap().remove("name");
    template["metadata"]["labels"]["app"] = json!("web");
    let template = json!({"metadata": template["metadata"], "spec": template["spec"]});
    let deployment = json!({"metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
    make::<Deployment>(&cluster, deployment).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "shop");
    let begin = Instant::now();
    loop {
        let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        if conditions.iter().any(|it| it.message.as_ref().is_some_and(|it| it.contains("lucid-backstop"))) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{conditions:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    operator.restart().await.unwrap();
    let with_chain = |answer: &Answer| answer.result.as_ref().is_ok_and(|pod| chain(pod).len() == 3);
    until(&cluster, "shop", |name| secured(&format!("up-{name}")), with_chain).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let begin = Instant::now();
    while pods.list(&ListParams::default().labels("app=web")).await.unwrap().items.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(90), "the Deployment has no pod");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What a person would make of pods in a cluster that works: the policy has nothing to say.
#[tokio::test]
async fn what_a_running_operator_has_injected_passes() {
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
    install(&cluster, &["--config", &file.display().to_string()]).await;
    let _operator = ignoring(&cluster).start().await.unwrap();
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
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
                let mut pod =
                    pod(&format!("pod-{number}"), json!({"lucid.io/secured": "true"}), json!({key: value}));
                pod["spec"]["restartPolicy"] = json!(restart);
                pod["spec"]["containers"][0]["securityContext"] = restricted.clone();
                let answer = create(&cluster, namespace, &pod).await;
                assert_eq!(answer.status, 201, "{namespace}: {pod}: {answer:?}");
                let stored = answer.stored().unwrap();
                assert!(!unplanned(&stored).contains("NotRequested"), "{pod}");
            }
        }
    }
}

#[tokio::test]
async fn a_chain_that_was_made_by_hand_has_to_be_one() {
    let cluster = cluster().await;
    install(&cluster, &[]).await;
    let configuration = builtin();
    let asking = |annotations: Value| pod("web", json!({"lucid.io/secured": "true"}), annotations);
    let two = asking(json!({"lucid.computing/auditor-chain": "injection,toxicity"}));
    let native = asking(
        json!({"lucid.computing/auditor-chain": "injection,toxicity", "lucid.computing/sidecar-mode": "native"}),
    );
    let both = [injected(&two, &configuration), injected(&native, &configuration)];
    let any = injected(&asking(json!({})), &configuration);
    for pod in both.iter().chain([&any]) {
        let answer = dry_run(&cluster, "shop", pod).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    let chain = "does not have its chain";
    let rules = "no init container lucid-init";
    type Change = fn(&mut Value);
    // `auditor` is the first one of the chain, `init` installs the rules.
    let wrong: [(&str, &str, Change); 31] = [
        ("image of somebody else", chain, |it| {
            auditor(it)["image"] = json!("example.com/lucid-injection-auditor:1")
        }),
        ("another registry", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io.example.com/lucid/lucid-injection-auditor:1")
        }),
        ("below another path", chain, |it| {
            auditor(it)["image"] = json!("example.com/ghcr.io/lucid/lucid-injection-auditor:1")
        }),
        ("a longer path", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io/lucid/lucid-injection-auditor/x:1")
        }),
        ("a port like a tag", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io:5000/lucid/lucid-injection-auditor")
        }),
        ("another auditor's image", chain, |it| {
            auditor(it)["image"] = json!("ghcr.io/lucid/lucid-toxicity-auditor:latest")
        }),
        ("command", chain, |it| auditor(it)["command"] = json!(["sleep", "inf"])),
        ("arguments", chain, |it| auditor(it)["args"] = json!(["--off"])),
        ("hook", chain, |it| {
            auditor(it)["lifecycle"] = json!({"postStart": {"exec": {"command": ["kill", "1"]}}})
        }),
        ("probe", chain, |it| auditor(it)["livenessProbe"] = json!({"exec": {"command": ["kill", "1"]}})),
        ("files", chain, |it| {
            it["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            auditor(it)["volumeMounts"] = json!([{"name": "v", "mountPath": "/app"}]);
        }),
        ("files by a way around", chain, |it| {
            it["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
            let path = "/var/run/secrets/../../../app";
            auditor(it)["volumeMounts"] = json!([{"name": "v", "mountPath": path, "readOnly": true}]);
        }),
        ("variable", chain, |it| variables(auditor(it)).push(json!({"name": "THRESHOLD", "value": "9"}))),
        ("variables", chain, |it| auditor(it)["envFrom"] = json!([{"configMapRef": {"name": "x"}}])),
        ("next hop twice", chain, |it| {
            variables(auditor(it))
                .push(json!({"name": "LUCID_CHAIN_NEXT", "value": "http://localhost:5000"}));
        }),
        ("past the next auditor", chain, |it| {
            for variable in variables(auditor(it)) {
                if variable["name"] == "LUCID_CHAIN_NEXT" || variable["name"] == "AUDITOR_URL" {
                    variable["value"] = json!("http://localhost:5000");
                }
            }
        }),
        ("out of the pod", chain, |it| {
            for variable in variables(auditor(it)) {
                if variable["name"] == "LUCID_CHAIN_NEXT" || variable["name"] == "AUDITOR_URL" {
                    variable["value"] = json!("http://example.com:8093");
                }
            }
        }),
        ("other mode", chain, |it| {
            for variable in variables(auditor(it)) {
                if variable["name"] == "LUCID_AUDIT_MODE" {
                    variable["value"] = json!("off");
                }
            }
        }),
        ("other port", chain, |it| auditor(it)["ports"] = json!([{"containerPort": 8091}])),
        ("no marker", chain, |it| variables(auditor(it)).retain(|it| it["name"] != "LUCID_AUDITOR_ID")),
        ("marker alone", chain, |it| {
            *variables(auditor(it)) =
                vec![json!({"name": "LUCID_AUDITOR_ID", "value": "lucid-injection-auditor"})];
        }),
        ("uid of an application", chain, |it| auditor(it)["securityContext"]["runAsUser"] = json!(1000)),
        ("uid of the next", chain, |it| auditor(it)["securityContext"]["runAsUser"] = json!(20002)),
        ("escalation", chain, |it| auditor(it)["securityContext"]["allowPrivilegeEscalation"] = json!(true)),
        ("capability", chain, |it| {
            auditor(it)["securityContext"]["capabilities"]["add"] = json!(["NET_ADMIN"])
        }),
        ("order", chain, |it| {
            it["metadata"]["annotations"]["lucid.computing/auditor-chain"] = json!("toxicity,injection")
        }),
        ("one is missing", chain, |it| {
            it["metadata"]["annotations"]["lucid.computing/auditor-chain"] =
                json!("injection,toxicity,guardrails")
        }),
        ("no rules", rules, |it| inits(it).retain(|it| it["name"] != "lucid-init")),
        ("rules by somebody else", rules, |it| init(it)["image"] = json!("example.com/lucid-init:1")),
        ("rules past the second", rules, |it| rule(it, r#",{"uid":20002,"port":8093}"#, "")),
        ("rules for nothing", rules, |it| rule(it, r#""inbound":true"#, r#""inbound":false"#)),
    ];
    for (name, part, change) in wrong {
        for pod in &both {
            let mut pod = pod.clone();
            change(&mut pod);
            let answer = dry_run(&cluster, "shop", &pod).await;
            assert!(answer.refusal().contains(part), "{name}: {answer:?}");
            refused(&answer, &[]);
        }
    }
    // One that ends before the pod does.
    let mut ends = both[1].clone();
    auditor(&mut ends).as_object_mut().unwrap().remove("restartPolicy");
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        auditor(&mut ends).as_object_mut().unwrap().remove(probe);
    }
    refused(&dry_run(&cluster, "shop", &ends).await, &[chain]);

    // Without a chain that is told, one broken one is none.
    let broken: [(&str, Change); 3] = [
        ("no first one", |it| containers(it).retain(|it| it["securityContext"]["runAsUser"] != 20001)),
        ("hop to nobody else", |it| {
            let variables = variables(&mut containers(it)[1]);
            for variable in variables {
                if variable["name"] == "LUCID_CHAIN_NEXT" || variable["name"] == "AUDITOR_URL" {
                    variable["value"] = json!("http://localhost:8090");
                }
            }
        }),
        ("image of somebody else", |it| containers(it)[1]["image"] = json!("example.com/x:1")),
    ];
    for (name, change) in broken {
        let mut pod = any.clone();
        change(&mut pod);
        let answer = dry_run(&cluster, "shop", &pod).await;
        assert!(answer.refusal().contains(chain), "{name}: {answer:?}");
    }

    // What may differ.
    let fine: [(&str, Change); 7] = [
        ("tag", |it| auditor(it)["image"] = json!("ghcr.io/lucid/lucid-injection-auditor:2")),
        ("digest", |it| {
            auditor(it)["image"] =
                json!(format!("ghcr.io/lucid/lucid-injection-auditor@sha256:{}", "1".repeat(64)))
        }),
        ("pull policy", |it| auditor(it)["imagePullPolicy"] = json!("Never")),
        ("resources", |it| auditor(it)["resources"] = json!({"limits": {"cpu": "1"}})),
        ("identity", |it| variables(auditor(it)).push(json!({"name": "AWS_REGION", "value": "eu-1"}))),
        ("sidecars", |it| {
            containers(it)
                .push(json!({"name": "proxy", "image": "example.com/proxy:1", "env": [{"name": "A"}]}))
        }),
        ("status", |it| {
            drop(it["metadata"]["annotations"].as_object_mut().unwrap().remove("lucid.computing/status"))
        }),
    ];
    for (name, change) in fine {
        for pod in &both {
            let mut pod = pod.clone();
            change(&mut pod);
            let answer = dry_run(&cluster, "shop", &pod).await;
            assert_eq!(answer.status, 201, "{name}: {answer:?}");
        }
    }
}

fn containers(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["containers"].as_array_mut().unwrap()
}

fn inits(pod: &mut Value) -> &mut Vec<Value> {
    pod["spec"]["initContainers"].as_array_mut().unwrap()
}

/// The first auditor of the chain, in whichever list.
fn auditor(pod: &mut Value) -> &mut Value {
    let name = "lucid-injection-auditor";
    let list = if containers(pod).iter().any(|it| it["name"] == name) { containers(pod) } else { inits(pod) };
    list.iter_mut().find(|it| it["name"] == name).unwrap()
}

fn init(pod: &mut Value) -> &mut Value {
    inits(pod).iter_mut().find(|it| it["name"] == "lucid-init").unwrap()
}

fn variables(container: &mut Value) -> &mut Vec<Value> {
    container["env"].as_array_mut().unwrap()
}

fn rule(pod: &mut Value, from: &str, to: &str) {
    let value = &mut variables(init(pod))[0]["value"];
    let text = value.as_str().unwrap();
    assert!(text.contains(from), "{text}");
    *value = json!(text.replace(from, to));
}

#[tokio::test]
async fn strict_notarization_takes_no_auditor_without_digest_and_no_auditor_becomes_something_else() {
    let cluster = cluster().await;
    let digest = format!("sha256:{}", "1".repeat(64));
    let catalogue = format!(
        "chain:\n  - {{name: good, image: \"example.com/good:1@{digest}\"}}\n  - {{name: tagged, image: \"example.com/tagged:1\"}}\n"
    );
    let file = cluster.folder().join("auditors.yaml");
    std::fs::write(&file, &catalogue).unwrap();
    let catalogue = Catalogue::builtin().overlay(&Catalogue::parse("auditors.yaml", &catalogue).unwrap());
    let configuration = Configuration::new(catalogue, None).unwrap();
    install(&cluster, &["--config", &file.display().to_string(), "--strict-notarization"]).await;
    let asking = |name: &str, chain: &str| {
        let annotations = json!({"lucid.computing/auditor-chain": chain});
        injected(&pod(name, json!({"lucid.io/secured": "true"}), annotations), &configuration)
    };
    let unpinned = "auditor containers without digest: ";
    let answer = create(&cluster, "shop", &asking("tagged", "tagged")).await;
    refused(&answer, &[unpinned, "tagged"]);
    for image in
        ["example.com/good:1", "EXAMPLE.com:443/good", "example.com/other:1", "example.com/good@sha256:1"]
    {
        let mut pod = asking("web", "good");
        let more =
            json!({"name": "more", "image": image, "env": [{"name": "LUCID_AUDITOR_ID", "value": "x"}]});
        containers(&mut pod).push(more);
        refused(&create(&cluster, "shop", &pod).await, &[unpinned, "more"]);
    }
    create(&cluster, "shop", &asking("web", "good")).await.stored().unwrap();

    let change = |path: &'static str, patch: Value| {
        let client = cluster.client();
        async move {
            let path = format!("/api/v1/namespaces/shop/pods/{path}");
            let kind = "application/strategic-merge-patch+json";
            send(&client, Method::PATCH, &path, kind, &patch).await.unwrap()
        }
    };
    let image = |name: &str, image: &str| json!({"spec": {"containers": [{"name": name, "image": image}]}});
    let ephemeral =
        |name: &str, image: &str| json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
    let other = format!("example.com/good@sha256:{}", "2".repeat(64));
    let foreign = format!("example.com/model@sha256:{}", "2".repeat(64));
    let none_of_theirs = "auditor containers with an image that is none of theirs: good";
    for secured in ["true", "false"] {
        // Who takes the label away first gains nothing by it.
        let label = json!({"metadata": {"labels": {"lucid.io/secured": secured}}});
        assert_eq!(change("web", label).await.status, 200);
        refused(&change("web", image("good", "example.com/good:2")).await, &[unpinned, "good"]);
        refused(&change("web", image("good", &foreign)).await, &[none_of_theirs]);
        refused(
            &change("web/ephemeralcontainers", ephemeral("e", "example.com/good:2")).await,
            &[unpinned, "e"],
        );
        refused(
            &change("web/ephemeralcontainers", ephemeral("lucid-toxicity-auditor-2", "a:2")).await,
            &[unpinned],
        );
        let answer = change("web", image("model", "example.com/model:2")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = change("web", image("model", "example.com/model:1")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let answer = change("web", image("good", &other)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = change("web/ephemeralcontainers", ephemeral("shell", "example.com/shell:1")).await;
    assert_eq!(answer.status, 200, "{answer:?}");

    // A pod that is not secured.
    create(&cluster, "shop", &pod("plain", json!({}), json!({}))).await.stored().unwrap();
    let answer = change("plain", image("model", "example.com/good:2")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn skip_audit_is_honoured_where_the_operator_honours_it() {
    let cluster = cluster().await;
    install(&cluster, &["--allow-skip-service-accounts", "shop/batch,shop/default"]).await;
    let skipping = |account: Option<&str>, value: &str| {
        let labels = json!({"lucid.io/secured": "true"});
        let mut pod = pod("web", labels, json!({"lucid.computing/skip-audit": value}));
        if let Some(account) = account {
            pod["spec"]["serviceAccountName"] = json!(account);
        }
        pod
    };
    for (account, value, is_skipped) in [
        (None, "true", true),
        (Some("batch"), " true ", true),
        (Some("batch"), "false", false),
        (Some("batch"), "yes", false),
        (Some("builder"), "true", false),
        (Some("shop/batch"), "true", false),
    ] {
        let answer = dry_run(&cluster, "shop", &skipping(account, value)).await;
        assert_eq!(
            answer.refusal().contains("lucid-backstop"),
            !is_skipped && answer.status != 422,
            "{account:?}: {answer:?}"
        );
    }
}

/// Where the webhooks cannot be asked: the API server knows tickets by itself, and its audit log has those that counted.
#[tokio::test]
async fn a_ticket_that_the_webhook_would_accept_breaks_the_glass_and_is_in_the_audit_log() {
    let cluster = cluster().await;
    let pattern = r"(?i)[a-z&&[^x]]+-\d{2,5}|(?<change>chg)[0-9]";
    install(&cluster, &["--break-glass-pattern", pattern]).await;
    let with = |ticket: &str, until: Option<&str>| {
        let labels = json!({"lucid.io/secured": "true", "lucid.computing/break-glass": ticket});
        let annotations =
            until.map_or_else(|| json!({}), |it| json!({"lucid.computing/break-glass-until": it}));
        pod("web", labels, annotations)
    };
    for ticket in ["INC-4711", "inc-10", "CHG7"] {
        let answer = dry_run(&cluster, "shop", &with(ticket, None)).await;
        assert_eq!(answer.status, 201, "{ticket}: {answer:?}");
        let events = cluster.audit_events().unwrap();
        let noted = |event: &Value| event["annotations"]["lucid-backstop/break-glass"] == ticket;
        assert_eq!(events.iter().filter(|event| noted(event)).count(), 1, "{ticket}");
    }
    for ticket in
        ["", "true", "INC-1", "INC-4711.x", "xINC-4711", "INC-123456", "AX-12", "CHG77", "4-12", "CHG7-a"]
    {
        let answer = dry_run(&cluster, "shop", &with(ticket, None)).await;
        refused(&answer, &["does not have its chain"]);
        assert_eq!(answer.refusal().contains("LUCID_BREAK_GLASS_PATTERN"), !ticket.is_empty(), "{answer:?}");
    }
    let events = cluster.audit_events().unwrap();
    let noted = events.iter().filter(|event| !event["annotations"]["lucid-backstop/break-glass"].is_null());
    assert_eq!(noted.count(), 3);
    let written = |seconds: i64, zone: &str| {
        let offset = jiff::tz::TimeZone::fixed(jiff::tz::offset(if zone == "Z" { 0 } else { 9 }));
        let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        format!("{}{zone}", time.to_zoned(offset).strftime("%Y-%m-%dT%H:%M:%S"))
    };
    let open =
        [&*written(300, "Z"), &written(300, "+09:00"), "2096-02-29t00:00:00.5z", " 9999-01-01T00:00:00Z "];
    for until in open {
        let answer = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        assert_eq!(answer.status, 201, "{until}: {answer:?}");
    }
    for until in [&*written(-300, "Z"), &written(-300, "+09:00"), "1970-01-01T00:00:00Z"] {
        let answer = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        refused(&answer, &["Ticket INC-4711 does not count: it has expired"]);
    }
    let nonsense = [
        "",
        "tomorrow",
        "2096-01-01",
        "2096-01-01T00:00:00",
        "2095-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2096-04-31T00:00:00Z",
        "2096-01-01T24:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "0000-01-01T00:00:00Z",
    ];
    for until in nonsense {
        let answer = dry_run(&cluster, "shop", &with("INC-4711", Some(until))).await;
        refused(&answer, &["does not count: lucid.computing/break-glass-until is no RFC 3339 time"]);
    }
    // The time of its creation is the API server's to say.
    let mut forged = with("INC-4711", Some(&written(-300, "Z")));
    forged["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    refused(&dry_run(&cluster, "shop", &forged).await, &["it has expired"]);

    // Changes: an auditor gets another image.
    let merge = "application/strategic-merge-patch+json";
    let mut chained = injected(&secured("made"), &builtin());
    chained["metadata"]["labels"]["lucid.computing/break-glass"] = json!("none");
    create(&cluster, "shop", &chained).await.stored().unwrap();
    let change = async |ticket: &str, until: Option<&str>| {
        let metadata = with(ticket, until)["metadata"].clone();
        let patch = json!({"metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
            "spec": {"containers": [{"name": "lucid-guardrails-auditor", "image": "example.com/rescue:1"}]}});
        let path = "/api/v1/namespaces/shop/pods/made?dryRun=All";
        send(&cluster.client(), Method::PATCH, path, merge, &patch).await.unwrap()
    };
    refused(&change("none", None).await, &["none of theirs", "LUCID_BREAK_GLASS_PATTERN"]);
    refused(&change("INC-4711", Some(&written(300, "Z"))).await, &["none of theirs", "for new pods only"]);
    let answer = change("INC-4711", None).await;
    assert_eq!(answer.status, 200, "{answer:?}");

    for (arguments, part) in
        [(["--break-glass-pattern="], "none does here"), (["--no-break-glass"], "none does here")]
    {
        apply(&cluster, &printed(&arguments));
        let begin = Instant::now();
        loop {
            let answer = dry_run(&cluster, "shop", &with("INC-4711", None)).await;
            if answer.status != 201 {
                refused(&answer, &["does not count", part]);
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{arguments:?} never came into force");
        }
    }
    let mut command = Command::new(program("lucid-operator").unwrap());
    let output =
        command.args(["manifests", "--backstop", r"--break-glass-pattern=\b{start}[0-9]+"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("LUCID_BREAK_GLASS_PATTERN"), "{output:?}");
}

#[tokio::test]
async fn only_who_may_breaks_the_glass_where_that_is_asked_for() {
    let cluster = cluster().await;
    install(&cluster, &["--break-glass-access-review"]).await;
    let rule =
        |group: &str, verb: &str| json!({"apiGroups": [group], "resources": ["pods"], "verbs": [verb]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "on-call", "namespace": "shop"}, "rules": [rule("lucid.computing", "breakglass")]});
    let creator = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "creator"},
        "rules": [rule("", "create"), rule("", "breakglass")]});
    let bound = |kind: &str, role: &str, role_kind: &str, user: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{role}-{user}"),
            "namespace": (kind == "RoleBinding").then_some("shop")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
            "subjects": [{"kind": "User", "name": user}]})
    };
    apply(
        &cluster,
        &[
            role,
            creator,
            bound("ClusterRoleBinding", "creator", "ClusterRole", "jane"),
            bound("ClusterRoleBinding", "creator", "ClusterRole", "joe"),
            bound("RoleBinding", "on-call", "Role", "jane"),
        ],
    );
    cluster.create_namespace("office", &[ENABLED]).await.unwrap();
    let labels = json!({"lucid.io/secured": "true", "lucid.computing/break-glass": "INC-4711"});
    let manifest = pod("web", labels, json!({})).to_string();
    let create_as = |user: &str, namespace: &str| {
        let arguments = ["create", "--dry-run=server", "-f", "-", "--as", user, "-n", namespace];
        let output = cluster.kubectl(&arguments, &manifest).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let begin = Instant::now();
    // The authorizer hears of roles a moment later.
    while !create_as("jane", "shop").0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", create_as("jane", "shop"));
    }
    for (user, namespace) in [("joe", "shop"), ("jane", "office")] {
        let (is_created, said) = create_as(user, namespace);
        let why = "Ticket INC-4711 does not count: the user may not breakglass pods.lucid.computing";
        assert!(!is_created && said.contains(why), "{user} in {namespace}: {said}");
    }
}

/// Whatever is in it: refused or made slow by the policy it is not.
#[tokio::test]
async fn a_pod_that_is_not_secured_is_never_refused_and_a_big_one_that_is_has_room() {
    let cluster = cluster().await;
    install(&cluster, &["--strict-notarization", "--allow-skip-service-accounts", "shop/batch"]).await;
    let with = |labels: Value, annotations: Value, containers: Vec<Value>| {
        let mut pod = pod("web", labels, annotations);
        pod["spec"]["containers"].as_array_mut().unwrap().extend(containers);
        pod
    };
    let variables =
        |count: usize| -> Value { (0..count).map(|number| json!({"name": format!("V{number}")})).collect() };
    let forged = |count: usize| {
        let one = |number: usize| {
            json!({"name": format!("lucid-toxicity-auditor-{number}"), "image": "ghcr.io/lucid/lucid-toxicity-auditor",
            "env": [{"name": "LUCID_AUDITOR_ID"}], "securityContext": {"runAsUser": 20001}})
        };
        (0..count).map(one).collect::<Vec<_>>()
    };
    let long = "true,".repeat(50_000);
    let unsecured = [
        with(json!({"lucid.io/secured": "True"}), json!({"lucid.computing/skip-audit": long}), vec![]),
        with(json!({}), json!({"lucid.computing/auditor-chain": long}), vec![]),
        with(json!({}), json!({"lucid.computing/skip-audit": "true"}), forged(4_000)),
        with(json!({}), json!({}), vec![json!({"name": "env", "image": "a", "env": variables(20_000)})]),
        json!({"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}),
    ];
    for (number, pod) in unsecured.iter().enumerate() {
        let answer = dry_run(&cluster, "shop", pod).await;
        assert_eq!(
            answer.status,
            201,
            "{number}: {}",
            answer.refusal().chars().take(500).collect::<String>()
        );
    }
    // Changing one of these looks for auditors in it.
    for (number, count) in [10, 299, 1_000].into_iter().enumerate() {
        let mut pod = with(json!({}), json!({}), forged(count));
        pod["metadata"]["name"] = json!(format!("big-{number}"));
        create(&cluster, "shop", &pod).await.stored().unwrap();
        let path = format!("/api/v1/namespaces/shop/pods/big-{number}");
        let patch = json!({"spec": {"containers": [{"name": "model", "image": "example.com/model:2"}], "activeDeadlineSeconds": 60}});
        let kind = "application/strategic-merge-patch+json";
        let answer = send(&cluster.client(), Method::PATCH, &path, kind, &patch).await.unwrap();
        assert_eq!(answer.status, 200, "{count}: {}", answer.refusal().chars().take(500).collect::<String>());
    }

    let digest = "1".repeat(64);
    let entry =
        |name: &str| format!("  - {{name: {name}, image: \"ghcr.io/lucid/{name}@sha256:{digest}\"}}\n");
    let names = ["lucid-injection-auditor", "lucid-toxicity-auditor", "lucid-guardrails-auditor"];
    let yaml = format!("chain:\n{}", names.map(entry).concat());
    let yaml = yaml.replacen("@sha256", ":1@sha256", 1);
    let catalogue = yaml.lines().enumerate().map(|(number, line)| {
        if number == 0 {
            format!("{line}\n")
        } else {
            line.replace('}', &format!(", port: {}}}\n", 9000 + number))
        }
    });
    let catalogue = Catalogue::parse("auditors.yaml", &catalogue.collect::<String>()).unwrap();
    let configuration = Configuration::new(Catalogue::builtin().overlay(&catalogue), None).unwrap();
    let longest = vec!["injection,toxicity"; 64].join(", ");
    let secured = |chain: &str, more: Vec<Value>| {
        let annotations = json!({"lucid.computing/auditor-chain": chain});
        injected(&with(json!({"lucid.io/secured": "true"}), annotations, more), &configuration)
    };
    let apps = |count: usize| {
        (0..count).map(|number| json!({"name": format!("app-{number}"), "image": "example.com/app:1", "env": variables(20)})).collect::<Vec<_>>()
    };
    let crowd = dry_run(&cluster, "shop", &secured("injection", apps(600))).await;
    refused(&crowd, &["more than 512 containers"]);
    let room = [
        secured(&longest, vec![]),
        secured("injection,toxicity,guardrails", apps(500)),
        secured("injection", vec![json!({"name": "env", "image": "a", "env": variables(20_000)})]),
    ];
    for (number, pod) in room.iter().enumerate() {
        let answer = dry_run(&cluster, "shop", pod).await;
        assert_eq!(
            answer.status,
            201,
            "{number}: {}",
            answer.refusal().chars().take(1500).collect::<String>()
        );
    }
}

/// Every pod of the planner's own tests, each in a namespace and with a policy of its own.
#[tokio::test]
async fn what_the_planner_makes_of_any_pod_passes_and_what_it_was_before_does_not() {
    let cluster = cluster().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/lucid-chain/tests/it/goldens");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut documents = serde_yaml::Deserializer::from_str(&text);
        let mut pod = Value::deserialize(documents.next().unwrap()).unwrap();
        let said = documents.next().map(|said| Value::deserialize(said).unwrap()).unwrap_or_default();
        let Some(metadata) = pod["metadata"].as_object_mut().filter(|_| said["forced"] != true) else {
            continue;
        };
        metadata.remove("namespace");
        // There are none.
        pod["spec"].as_object_mut().unwrap().remove("runtimeClassName");
        let case = Case::read(&cluster, &name, &said);
        let level = said["podSecurity"].as_str().map(|level| ("pod-security.kubernetes.io/enforce", level));
        let labels: Vec<_> = std::iter::once(ENABLED).chain(level).collect();
        cluster.create_namespace(&name, &labels).await.unwrap();
        let mut documents = printed(&case.arguments.iter().map(String::as_str).collect::<Vec<_>>());
        for document in &mut documents {
            document["metadata"]["name"] = json!(format!("lucid-backstop-{name}"));
        }
        documents[1]["spec"]["policyName"] = documents[0]["metadata"]["name"].clone();
        apply(&cluster, &documents);
        cases.push((name, pod, case));
    }
    assert!(cases.len() > 25, "{}", cases.len());
    for (name, pod, case) in &cases {
        in_force(&cluster, name).await;
        let before = dry_run(&cluster, name, pod).await;
        let inputs = Inputs::new(&case.configuration).with_namespace(name);
        let inputs = inputs.with_namespace_chain(case.chain.as_ref()).with_pod_security(case.level);
        let stopped = |answer: &Answer| answer.refusal().contains("lucid-backstop");
        match planned(pod, &inputs) {
            Ok(after) => {
                let after = dry_run(&cluster, name, &after).await;
                assert!(!stopped(&after), "{name}: {after:?}");
                assert!(
                    before.status == 422 || stopped(&before) || after.status == 403,
                    "{name}: {before:?}"
                );
            }
            Err(why) => {
                assert_eq!(stopped(&before), why.starts_with("Impossible"), "{name}: {before:?}");
            }
        }
    }
}

/// What a file of the planner's tests says of the cluster.
struct Case {
    configuration: Configuration,
    chain: Option<NamespaceChain>,
    level: PodSecurity,
    arguments: Vec<String>,
}

impl Case {
    fn read(cluster: &Cluster, name: &str, said: &Value) -> Self {
        let mut arguments =
            vec!["--namespace-selector".to_owned(), format!("kubernetes.io/metadata.name={name}")];
        let mut add = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        let write = |kind: &str, text: &str| {
            let path = cluster.folder().join(format!("{name}.{kind}.yaml"));
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let mut catalogue = Catalogue::builtin();
        if let Some(yaml) = said["auditors.yaml"].as_str() {
            catalogue = catalogue.overlay(&Catalogue::parse("auditors.yaml", yaml).unwrap());
            add("config", &write("auditors", yaml));
        }
        let names: Option<Vec<String>> =
            said.get("chain").map(|names| serde_json::from_value(names.clone()).unwrap());
        if let Some(names) = &names {
            add("chain", &names.join(","));
        }
        let mut configuration = Configuration::new(catalogue, names.as_deref()).unwrap();
        for (option, value) in said["operator"].as_object().into_iter().flatten() {
            add(option, &value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        if let Some(settings) = said.get("operator") {
            let yaml = json!({"defaults": settings}).to_string();
            let defaults = *Catalogue::parse("operator", &yaml).unwrap().defaults();
            configuration.overrides = Overrides {
                audit_mode: defaults.audit_mode,
                direction: defaults.direction,
                target_port: defaults.target_port,
                sidecar_mode: defaults.sidecar_mode,
                intercept: defaults.intercept,
                outbound_port: defaults.outbound_port,
            };
        }
        if let Some(listed) = said.get("skipServiceAccounts") {
            let listed: Vec<String> = serde_json::from_value(listed.clone()).unwrap();
            // They are of this namespace.
            let listed: Vec<_> =
                listed.iter().map(|it| format!("{name}/{}", it.rsplit_once('/').unwrap().1)).collect();
            add("allow-skip-service-accounts", &listed.join(","));
            configuration.skip = SkipPolicy::ServiceAccounts(listed.into_iter().collect());
        }
        let chain = said.get("namespace").map(|data| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                "metadata": {"name": "lucid-auditor-chain", "namespace": name}});
            add("namespace-config", &write("chain", &map.to_string()));
            let data: BTreeMap<String, String> = serde_json::from_value(data.clone()).unwrap();
            NamespaceChain::from_data(name, &data, configuration.catalogue()).unwrap()
        });
        // Where no namespace has a chain that is not told.
        add("exact-chain", "");
        arguments.last_mut().unwrap().truncate("--exact-chain".len());
        let level = said["podSecurity"].as_str().map_or(PodSecurity::Privileged, PodSecurity::of_label);
        Self { configuration, chain, level, arguments }
    }
}
