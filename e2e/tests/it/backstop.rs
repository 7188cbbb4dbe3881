//! `lucid-operator manifests --backstop`: what the API server refuses by itself, while nobody answers for Lucid.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_chain::{
    Catalogue, Configuration, Decision, Inputs, NamespaceChain, Overrides, PodSecurity, PodView, SkipPolicy, plan,
};
use lucid_e2e::{Answer, Operator, program, send};
use lucid_testbed::Cluster;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::common::{ENABLED, cluster, config_map, create, pod, prepare, secured};

/// The policy and its binding, as they are printed.
fn printed(arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(program("lucid-operator").unwrap());
    let output = command.args(["manifests", "--backstop", "-o", "json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    all.filter(|it| it["kind"].as_str().unwrap().starts_with("ValidatingAdmissionPolicy")).cloned().collect()
}

fn apply(cluster: &Cluster, documents: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string();
    let output = cluster.kubectl(&["apply", "--server-side", "-f", "-"], &list).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Installs it, and waits until the API server acts on it, which takes a moment.
async fn install(cluster: &Cluster, arguments: &[&str]) {
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
            json_patch::patch(&mut pod, &serde_json::from_value::<json_patch::Patch>(patch).unwrap()).unwrap();
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
        let Some(metadata) = pod["metadata"].as_object_mut().filter(|_| said["forced"] != true) else { continue };
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
                eprintln!("{name}: {} / {} {}", before.refusal(), after.status, after.refusal());
                assert!(before.status == 422 || stopped(&before) || after.status == 403, "{name}: {before:?}");
            }
            Err(why) => {
                eprintln!("{name}: {why}: {} {}", before.status, before.refusal());
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
