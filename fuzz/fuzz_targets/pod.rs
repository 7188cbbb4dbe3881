//! A pod, as text or made of what a pod's author may write: its plan fits it, the patch applies and changes nothing of the
//! author's, and planning again finds nothing to do.

#![no_main]

use std::{collections::BTreeSet, sync::LazyLock};

use libfuzzer_sys::{
    arbitrary::{Result, Unstructured},
    fuzz_target,
};
use lucid_chain::{
    Catalogue, Configuration, Decision, Inputs, NamespaceSettings, Plan, PodView, keys, plan, uninject,
};
use serde_json::{Map, Value, json};

/// An operator that says little, and one that says much.
static CONFIGURATIONS: LazyLock<[Configuration; 2]> = LazyLock::new(|| {
    let plain = Configuration::new(Catalogue::builtin(), None).expect("the built-in chain");
    let yaml = "chain: [{name: pii, image: a:1, port: 8090, env: {A: ''}, probes: {readiness: {}, liveness: {path: /live}}},
                        {name: lucid-init, image: b, resources: {limits: {cpu: 1}}}]
defaults: {direction: both}";
    let own = Catalogue::parse("auditors.yaml", yaml).expect("a catalogue");
    let chain = ["pii", "lucid-init", "injection", "pii"].map(str::to_owned);
    let mut rich = Configuration::new(Catalogue::builtin().overlay(&own), Some(&chain)).expect("a chain");
    rich.image_pull_secrets = vec!["mirror".to_owned(), "other".to_owned()];
    [plain, rich]
});

fuzz_target!(|data: &[u8]| {
    let (json, choice) = if data.starts_with(b"{") {
        (data.to_vec(), usize::from(data.last() == Some(&b' ')))
    } else {
        let mut bytes = Unstructured::new(data);
        let Ok(pod) = pod(&mut bytes) else { return };
        (pod.to_string().into_bytes(), bytes.arbitrary::<u8>().unwrap_or_default().into())
    };
    let configuration = &CONFIGURATIONS[choice % 2];
    let level = ["privileged", "restricted"][choice / 2 % 2].to_owned();
    let labels = [("pod-security.kubernetes.io/enforce".to_owned(), level)].into();
    let settings = NamespaceSettings::new(&labels, &BTreeMap::new());
    let inputs = Inputs { settings: &settings, ..Inputs::new(configuration) };
    check(&json, &inputs);
    check(&json, &Inputs { forced: true, ..inputs });
});

fn check(json: &[u8], inputs: &Inputs<'_>) {
    let view = match PodView::from_json(json) {
        Ok(view) => view,
        Err(error) => return check_message(&error.to_string()),
    };
    let outcome = plan(&view, inputs);
    outcome.warnings.iter().for_each(|warning| check_message(&warning.to_string()));
    let planned = match outcome.decision {
        Decision::Planned(planned) => planned,
        Decision::Impossible { reason } => return check_message(&reason.to_string()),
        _ => return,
    };
    planned.containers.iter().for_each(|c| check_message(&c.port_reason()));
    let model_port = planned.settings().into_iter().find(|[name, ..]| name == "model port");
    model_port.iter().flatten().for_each(|text| check_message(text));
    let patch = planned.patch(&view);
    patch.warnings.iter().for_each(|warning| check_message(&warning.to_string()));
    check_chain(&planned);

    // The API server denies JSON that nests too deeply or has numbers out of range.
    let Ok(pod) = serde_json::from_slice::<Value>(json) else { return };
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch.operations()).expect("the patch applies");
    check_untouched(&pod, &patched, &planned);
    for pod in [&pod, &patched] {
        let uninjection = uninject(pod);
        uninjection.warnings.iter().for_each(|warning| check_message(&warning.to_string()));
        json_patch::patch(&mut pod.clone(), &uninjection.operations()).expect("the patch applies");
    }

    // The API server refuses a pod with a name that comes twice.
    let names: Vec<_> =
        view.containers().iter().chain(view.init_containers()).map(|found| found.name()).collect();
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return;
    }
    let again = patched.to_string();
    let view = PodView::from_json(&again).expect("what was a pod is one");
    let Decision::Planned(second) = plan(&view, inputs).decision else { panic!("no plan for {again}") };
    assert_eq!(second.containers, planned.containers, "{again}");
    let rest = second.patch(&view);
    assert!(rest.is_empty(), "{rest:?} {again}");
}

/// It goes to terminals, logs and the API server, which drops a warning with a control character.
fn check_message(message: &str) {
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.chars().count() <= 512, "{message}");
}

fn check_chain(plan: &Plan) {
    let names: BTreeSet<_> = plan.containers.iter().map(|planned| &planned.name).collect();
    let ports: BTreeSet<_> = plan.containers.iter().map(|planned| planned.port).collect();
    assert_eq!((names.len(), ports.len()), (plan.containers.len(), plan.containers.len()));
    let last = plan.containers.last().unwrap().next_port;
    assert!(!ports.contains(&last));
    let label = |name: &str| name.len() <= 63 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    assert!(names.iter().all(|name| label(name)), "{names:?}");
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// All but the planned containers, the applications' variables, pull secrets and the status is as it was.
fn check_untouched(before: &Value, after: &Value, plan: &Plan) {
    let planned: BTreeSet<_> = plan.containers.iter().map(|planned| planned.name.as_str()).collect();
    let init = plan.init.as_ref().map(|init| init.name.as_str());
    let ours =
        |item: &Value| item["name"].as_str().is_some_and(|name| planned.contains(name) || Some(name) == init);
    let settings = plan.settings();
    let secrets = settings.iter().filter(|[name, ..]| name == "pull secrets");
    let secrets: Vec<_> = secrets.flat_map(|[_, names, _]| names.split(", ")).collect();
    let strip = |pod: &Value| {
        let mut pod = pod.clone();
        if let Some(list) = pod["spec"]["imagePullSecrets"].as_array_mut() {
            list.retain(|secret| !secrets.iter().any(|name| secret["name"] == *name));
        }
        for key in ["containers", "initContainers"] {
            let Some(list) = pod["spec"][key].as_array_mut() else { continue };
            list.retain(|item| !ours(item));
            for env in list.iter_mut().filter_map(|item| item.get_mut("env")?.as_array_mut()) {
                env.pop_if(|last| last["name"] == "AUDITOR_URL");
            }
            list.iter_mut().for_each(|item| drop_nothing(item, "env"));
        }
        if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
            annotations.remove(keys::STATUS);
            // Theirs alone are the profiles of their own containers.
            annotations.retain(|key, _| {
                !key.strip_prefix(APP_ARMOR).is_some_and(|name| ours(&json!({"name": name})))
            });
        }
        for (parent, key) in
            [("spec", "initContainers"), ("spec", "imagePullSecrets"), ("metadata", "annotations")]
        {
            drop_nothing(&mut pod[parent], key);
        }
        drop_nothing(&mut pod, "metadata");
        pod
    };
    assert_eq!(strip(before), strip(after));
}

fn drop_nothing(parent: &mut Value, key: &str) {
    if let Some(parent) = parent.as_object_mut() {
        parent.retain(|name, value| name != key || !nothing(value));
    }
}

fn nothing(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => other.is_null(),
    }
}

const KEYS: [&str; 9] = [
    keys::AUDITOR_CHAIN,
    keys::AUDITORS,
    keys::AUDIT_MODE,
    keys::SKIP_AUDIT,
    keys::TARGET_PORT,
    keys::DIRECTION,
    keys::SIDECAR_MODE,
    keys::INTERCEPT,
    keys::STATUS,
];

const TEXTS: [&str; 22] = [
    "",
    "true",
    "Always",
    "Never",
    "injection,toxicity",
    "pii, pii,guardrails",
    "lucid-init",
    "observe",
    "both",
    "outbound",
    "native",
    "containers",
    "env",
    "redirect",
    "5000",
    "8090",
    "web",
    "lucid-guardrails-auditor",
    "lucid-guardrails-auditor-2",
    "model",
    "http",
    "http://localhost:8090",
];

fn pod(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut annotations = Map::new();
    while bytes.arbitrary()? {
        annotations.insert((*bytes.choose(&KEYS)?).to_owned(), text(bytes)?);
    }
    let mut spec = Map::new();
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        if key == "containers" || bytes.arbitrary()? {
            spec.insert(key.to_owned(), list(bytes, container)?);
        }
    }
    let fields =
        ["restartPolicy", "hostNetwork", "imagePullSecrets", "volumes", "resources", "shareProcessNamespace"];
    while bytes.arbitrary()? {
        let key = *bytes.choose(&fields)?;
        let value = match key {
            "restartPolicy" => text(bytes)?,
            "imagePullSecrets" => {
                list(bytes, |bytes| Ok(json!({"name": *bytes.choose(&["mirror", "own"])?})))?
            }
            "volumes" => list(bytes, |bytes| Ok(json!({"name": text(bytes)?, "projected": {}})))?,
            "resources" => json!({"limits": {"cpu": text(bytes)?, "memory": number(bytes)?}}),
            _ => json!(bytes.arbitrary::<bool>()?),
        };
        spec.insert(key.to_owned(), value);
    }
    let mut metadata = Map::from_iter([("labels".to_owned(), json!({keys::SECURED_LABEL: text(bytes)?}))]);
    if bytes.arbitrary()? {
        metadata.insert("annotations".to_owned(), annotations.into());
    }
    Ok(json!({"metadata": metadata, "spec": spec}))
}

fn container(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut container = Map::from_iter([("name".to_owned(), text(bytes)?)]);
    let fields = ["ports", "env", "image", "restartPolicy", "readinessProbe", "lifecycle", "securityContext"];
    while bytes.arbitrary()? {
        let key = *bytes.choose(&fields)?;
        let value = match key {
            "ports" => list(bytes, |bytes| {
                Ok(json!({"containerPort": number(bytes)?, "hostPort": number(bytes)?, "name": text(bytes)?}))
            })?,
            "env" => list(bytes, |bytes| {
                let names = ["AUDITOR_URL", "LUCID_AUDITOR_ID", "LUCID_CHAIN_NEXT", "LUCID_REDIRECT", "A"];
                Ok(json!({"name": *bytes.choose(&names)?, "value": text(bytes)?}))
            })?,
            "image" | "restartPolicy" => text(bytes)?,
            "readinessProbe" => json!({"httpGet": {"port": number(bytes)?, "path": text(bytes)?}}),
            _ => json!({"other": text(bytes)?}),
        };
        container.insert(key.to_owned(), value);
    }
    Ok(container.into())
}

fn text(bytes: &mut Unstructured<'_>) -> Result<Value> {
    Ok(if bytes.ratio(1, 8)? { json!(bytes.arbitrary::<&str>()?) } else { json!(bytes.choose(&TEXTS)?) })
}

fn number(bytes: &mut Unstructured<'_>) -> Result<Value> {
    Ok(if bytes.ratio(1, 4)? {
        json!(bytes.arbitrary::<i32>()?)
    } else {
        json!(bytes.choose(&[5000, 8090, 8093, 8096, 8000, 0, 70000])?)
    })
}

fn list(
    bytes: &mut Unstructured<'_>,
    item: impl Fn(&mut Unstructured<'_>) -> Result<Value>,
) -> Result<Value> {
    let mut items = Vec::new();
    while items.len() < 6 && bytes.ratio(2, 3)? {
        items.push(item(bytes)?);
    }
    Ok(items.into())
}
