//! Test pods, plans and a simulation of the API server's changes after the webhook.

use lucid_chain::{
    AuditMode, Auditor, Catalogue, Configuration, Decision, Direction, Inputs, Intercept, NamespaceChain,
    NamespaceSettings, Outcome, Plan, PlannedContainer, PodPatch, PodView, keys, plan, redirect::Redirect,
};
use serde_json::{Value, json};

pub(crate) fn with_rules() -> Configuration {
    Configuration::new(Catalogue::builtin(), None).unwrap()
}

pub(crate) fn parsed(yaml: &str) -> Catalogue {
    Catalogue::parse("auditors.yaml", yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"))
}

pub(crate) fn configured(yaml: &str, chain: &[&str]) -> Configuration {
    let chain: Vec<_> = chain.iter().map(|name| (*name).to_owned()).collect();
    Configuration::new(Catalogue::builtin().overlay(&parsed(yaml)), Some(&chain)).unwrap()
}

/// Parses the ConfigMap of the namespace team-a, which may use any image.
pub(crate) fn namespace(data: &[(&str, &str)]) -> Result<NamespaceChain, String> {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    NamespaceChain::from_data("team-a", &data, &Catalogue::builtin(), &any_image())
        .map_err(|error| error.to_string())
}

pub(crate) fn settings<'t>(pairs: impl IntoIterator<Item = (&'t str, &'t str)>) -> NamespaceSettings {
    let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    NamespaceSettings::new(&pairs, &pairs)
}

pub(crate) fn any_image() -> NamespaceSettings {
    NamespaceSettings::default().with_any_auditor_image()
}

pub(crate) fn level(level: &str) -> NamespaceSettings {
    settings([("pod-security.kubernetes.io/enforce", level)])
}

/// Built-in auditors without network rules, to keep tests focused.
pub(crate) fn builtin() -> Configuration {
    without_rules(with_rules())
}

pub(crate) fn without_rules(mut configuration: Configuration) -> Configuration {
    configuration.overrides.intercept = Some(Intercept::Env);
    configuration
}

pub(crate) fn pod(annotations: Value, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|port| json!({"containerPort": port})).collect();
    let mut pod = json!({
        "metadata": {"name": "model", "labels": {keys::SECURED_LABEL: "true"}},
        "spec": {"containers": [{"name": "web", "image": "registry.example/web:1", "ports": ports}]},
    });
    pod["metadata"]["annotations"] = annotations;
    pod
}

pub(crate) fn outcome_in(
    pod: &Value,
    configuration: &Configuration,
    namespace: Option<&NamespaceChain>,
) -> Outcome {
    let json = pod.to_string();
    let view = PodView::from_json(&json).unwrap();
    plan(&view, &Inputs { namespace_chain: Ok(namespace), ..Inputs::new(configuration) })
}

pub(crate) fn outcome(pod: &Value) -> Outcome {
    outcome_in(pod, &builtin(), None)
}

pub(crate) fn planned_by(outcome: Outcome) -> Plan {
    match outcome.decision {
        Decision::Planned(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn planned(pod: &Value) -> Plan {
    planned_by(outcome(pod))
}

pub(crate) fn warnings(outcome: &Outcome) -> Vec<String> {
    outcome.warnings.iter().map(ToString::to_string).collect()
}

pub(crate) fn patch_of(pod: &Value) -> PodPatch {
    patch_in(pod, &builtin())
}

pub(crate) fn patch_in(pod: &Value, configuration: &Configuration) -> PodPatch {
    let plan = planned_by(outcome_in(pod, configuration, None));
    let json = pod.to_string();
    plan.patch(&PodView::from_json(&json).unwrap())
}

pub(crate) fn apply(pod: &Value, patch: &PodPatch) -> Value {
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch.operations()).unwrap();
    patched
}

pub(crate) fn injected(pod: &Value) -> Value {
    injected_with(pod, &builtin())
}

/// Returns the patched pod, which planning again does not change.
pub(crate) fn injected_with(pod: &Value, configuration: &Configuration) -> Value {
    let patched = apply(pod, &patch_in(pod, configuration));
    assert!(patch_in(&patched, configuration).is_empty(), "planning again changes {patched}");
    patched
}

pub(crate) fn patch_warnings(patch: &PodPatch) -> Vec<String> {
    patch.warnings.iter().map(ToString::to_string).collect()
}

/// Returns a setting as `value (source)`; empty if it has no effect.
pub(crate) fn setting(plan: &Plan, name: &str) -> String {
    let found = plan.settings().into_iter().find(|[found, ..]| found == name);
    found.map(|[_, value, source]| format!("{value} ({source})")).unwrap_or_default()
}

pub(crate) fn model_port(plan: &Plan) -> u16 {
    let ports = setting(plan, "model port");
    ports.split([',', ' ']).next().unwrap().parse().unwrap()
}

pub(crate) fn variable(container: &Value, name: &str) -> Option<String> {
    let found = container["env"].as_array()?.iter().find(|it| it["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

pub(crate) fn redirect_of(plan: &Plan) -> Redirect {
    let init = plan.init.as_ref().unwrap().manifest();
    Redirect::from_json(&variable(&init, keys::REDIRECT_ENV).unwrap()).unwrap()
}

pub(crate) fn names(plan: &Plan) -> Vec<&str> {
    plan.containers.iter().map(|planned| planned.name.as_str()).collect()
}

pub(crate) fn auditor_names(plan: &Plan) -> Vec<&str> {
    plan.containers.iter().map(|planned| planned.auditor.name()).collect()
}

/// Adds the defaults of the API server and of its ServiceAccount and LimitRanger plugins.
pub(crate) fn defaulted(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let host_network = pod["spec"]["hostNetwork"] == true;
    if pod["spec"]["volumes"].is_null() {
        pod["spec"]["volumes"] = json!([]);
    }
    let volume = json!({"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(volume);
    let spec = pod["spec"].as_object_mut().unwrap();
    let lists = ["containers", "initContainers"];
    let lists: Vec<_> = spec.iter_mut().filter(|(key, _)| lists.contains(&key.as_str())).collect();
    for container in lists.into_iter().filter_map(|(_, list)| list.as_array_mut()).flatten() {
        let container = container.as_object_mut().unwrap();
        let filled_in = [
            ("imagePullPolicy", json!("Always")),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("resources", json!({})),
        ];
        for (key, value) in filled_in {
            container.entry(key).or_insert(value);
        }
        let mount = json!({"name": "kube-api-access-x7k2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
        let mounts = container.entry("volumeMounts").or_insert(json!([]));
        match mounts.as_array_mut() {
            Some(mounts) if mounts.iter().any(|found| found["mountPath"] == mount["mountPath"]) => {}
            Some(mounts) => mounts.push(mount),
            None => *mounts = json!([mount]),
        }
        for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = port["containerPort"].clone();
            let port = port.as_object_mut().unwrap();
            port.entry("protocol").or_insert(json!("TCP"));
            if host_network {
                port.entry("hostPort").or_insert(number);
            }
        }
        for list in ["requests", "limits"] {
            let Some(resources) = container["resources"].as_object_mut() else { continue };
            if let Some(quantities) = resources.entry(list).or_insert(json!({})).as_object_mut() {
                quantities.entry("ephemeral-storage").or_insert(json!("1Gi"));
                for quantity in quantities.values_mut().filter(|quantity| **quantity == "1000m") {
                    *quantity = json!("1");
                }
            }
        }
    }
    pod
}

pub(crate) fn refusal(yaml: &str) -> String {
    Catalogue::parse("auditors.yaml", yaml).expect_err(yaml).to_string()
}

pub(crate) fn auditor(members: &str) -> Auditor {
    let yaml = format!("chain: [{{name: a, image: a, {members}}}]");
    parsed(&yaml).auditors()[0].clone()
}

/// Returns the containers of all auditors of `yaml`, which audit inbound traffic and enforce.
pub(crate) fn manifests(yaml: &str) -> Vec<Value> {
    let catalogue = parsed(yaml);
    let names: Vec<_> = catalogue.auditors().iter().map(|auditor| auditor.name().to_owned()).collect();
    let mut configuration = without_rules(Configuration::new(catalogue, Some(&names)).unwrap());
    configuration.overrides.audit_mode = Some(AuditMode::Enforce);
    configuration.overrides.direction = Some(Direction::Inbound);
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, None));
    plan.containers.iter().map(PlannedContainer::manifest).collect()
}

pub(crate) fn manifest(members: &str) -> Value {
    manifests(&format!("chain: [{{name: a, image: a, {members}}}]")).remove(0)
}

pub(crate) fn refusal_of(members: &str) -> String {
    let yaml = format!("chain:\n- {{name: a, image: a, {members}}}");
    let error = Catalogue::parse("auditors.yaml", &yaml).expect_err(&yaml);
    let message = error.to_string();
    assert!(message.starts_with("auditors.yaml: line 2, "), "{message}");
    message.split_once("chain[0].").map_or(message.clone(), |(_, problem)| problem.to_owned())
}
