//! Every field of a container known to the API server, in every container added by the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use http::Method;
use lucid_chain::{Configuration, Inputs};
use lucid_e2e::{Reply, ask};
use lucid_policy::{Case, Mode, Permission, Policy, Workload};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::{builtin, injected, install};
use crate::common::{cluster, core_schemas, with_chain};

/// Path prefixes of fields that may differ from the plan for the policy.
const OPEN_TO_THE_BACKSTOP: [(&str, &str); 5] = [
    (
        "imagePullPolicy",
        "plugins of the API server change it, and the image is of its repository all the same",
    ),
    ("livenessProbe", "the catalogue may change it without a new policy; exec probes are refused"),
    ("readinessProbe", "the catalogue may change it without a new policy; exec probes are refused"),
    (
        "resources",
        "the catalogue may change them without a new policy; with too little an auditor does not run",
    ),
    ("startupProbe", "the catalogue may change it without a new policy; exec probes are refused"),
];

/// Path prefixes and single changes for `/validate`.
const OPEN_TO_VALIDATE: [(&str, &str); 12] = [
    ("imagePullPolicy=Always", "the plugin AlwaysPullImages sets it"),
    ("resources.limits.cpu=1", "an autoscaler may double it"),
    ("resources.requests=", "the limit, which the API server sets, is within the bounds"),
    ("resources.requests.cpu=", "as requests"),
    ("resources.requests.memory=", "as requests"),
    ("securityContext.capabilities.drop=x", "OpenShift drops more"),
    ("securityContext.capabilities.drop=1", "as x"),
    ("securityContext.capabilities.drop=1Gi", "as x"),
    ("securityContext.capabilities.drop=/x", "as x"),
    ("securityContext.capabilities.drop=metadata.name", "as x"),
    ("resources.limits.ephemeral-storage=1Gi", "a LimitRange adds it"),
    ("resources.requests.ephemeral-storage", "a LimitRange adds it"),
];

struct Change {
    /// Path and new value of the field: `securityContext.privileged=true`.
    name: String,
    container: Value,
}

/// Submits each change of each field to the API server, the policy and the validating webhook.
#[tokio::test]
async fn no_field_of_a_planned_container_can_change() {
    let cluster = cluster().await;
    install(&cluster, &[]).await;
    let schemas = core_schemas(&cluster).await;
    let planned = |mode: &str| {
        let mut pod = with_chain("web", "injection,toxicity");
        pod["metadata"]["annotations"]["lucid.computing/sidecar-mode"] = json!(mode);
        // Generated values refer to these.
        pod["spec"]["volumes"] = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]);
        pod["spec"]["resourceClaims"] = json!([{"name": "x", "resourceClaimName": "x"}]);
        injected(&pod, &builtin())
    };
    let mut faults = Vec::new();
    // `true` if a container with a changed value in the field reached admission.
    let mut seen = BTreeMap::<String, bool>::new();
    for (mode, list, name) in [
        ("containers", "containers", "lucid-toxicity-auditor"),
        ("native", "initContainers", "lucid-toxicity-auditor"),
        ("containers", "initContainers", "lucid-init"),
    ] {
        let pod = planned(mode);
        let before = ask_about(&cluster.client(), "other", &pod).await.body;
        assert!(judged(&before).is_empty(), "{name}: {}", judged(&before));
        let guarded = ask_about(&cluster.client(), "shop", &pod).await;
        assert_eq!(guarded.status, 201, "{guarded:?}");
        let place = place_of(&before, list, name);
        let container = &before["spec"][list][place];
        let changes = changes(&schemas, &schemas["io.k8s.api.core.v1.Container"], Some(container), 0);
        let fields: BTreeSet<_> = changes.iter().map(|(name, _)| field(name).to_owned()).collect();
        assert!(fields.len() > 150, "{fields:?}");
        let mut tasks = JoinSet::new();
        let mut queue =
            changes.into_iter().filter_map(|(name, value)| Some(Change { name, container: value? }));
        loop {
            while tasks.len() < 8 {
                let Some(change) = queue.next() else { break };
                let (client, mut pod, before) = (cluster.client(), pod.clone(), container.clone());
                pod["spec"][list][place] = change.container;
                let place_of_change = (list, place);
                tasks.spawn(
                    async move { (outcome(&client, &pod, place_of_change, &before).await, change.name) },
                );
            }
            let Some(finished) = tasks.join_next().await else { break };
            let (outcome, changed) = finished.unwrap();
            let reached = seen.entry(field(&changed).to_owned()).or_default();
            let Some(Outcome { backstop, validate }) = outcome else { continue };
            *reached = true;
            for (by, refused, open) in [
                ("the backstop", backstop, &OPEN_TO_THE_BACKSTOP[..]),
                ("/validate", validate, &OPEN_TO_VALIDATE),
            ] {
                let is_open =
                    |path: &str| changed == path || (!path.contains('=') && changed.starts_with(path));
                if !refused && !open.iter().any(|(path, _)| is_open(path)) {
                    faults.push(format!("{name} ({mode}): {changed} passes {by}"));
                }
            }
        }
    }
    let unseen: Vec<_> = seen.iter().filter(|(_, reached)| !**reached).map(|(field, _)| field).collect();
    assert!(unseen.len() * 4 < seen.len(), "the API server itself refuses all values of {unseen:?}");
    assert!(faults.is_empty(), "{} pass:\n{}", faults.len(), faults.join("\n"));
}

struct Outcome {
    backstop: bool,
    validate: bool,
}

/// Component that denies the pod. `None` if the API server rejects it or stores the container unchanged.
async fn outcome(
    client: &kube::Client,
    pod: &Value,
    (list, place): (&str, usize),
    before: &Value,
) -> Option<Outcome> {
    let unguarded = ask_about(client, "other", pod).await;
    if unguarded.status != 201 || unguarded.body["spec"][list][place] == *before {
        return None;
    }
    let guarded = ask_about(client, "shop", pod).await;
    let message = guarded.body["message"].as_str().unwrap_or_default();
    let backstop = message.contains("ValidatingAdmissionPolicy 'lucid-backstop'");
    Some(Outcome { backstop, validate: !judged(&unguarded.body).is_empty() })
}

async fn ask_about(client: &kube::Client, namespace: &str, pod: &Value) -> Reply {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    ask(client, None, Method::POST, &path, "application/json", pod).await.unwrap()
}

static BUILTIN: LazyLock<Configuration> = LazyLock::new(builtin);

/// Reason of a denial by `/validate` in `enforce`; empty if it allows the pod.
fn judged(pod: &Value) -> String {
    let mut policy = Policy::default();
    policy.mode = Mode::Enforce;
    policy.required_label = None;
    let object = pod.to_string();
    let now = jiff::Timestamp::UNIX_EPOCH;
    let request = lucid_policy::Request::new(Workload::Pod, "shop", now).with_object(Some(object.as_bytes()));
    let subject = request.subject().unwrap().unwrap();
    let catalogues = [BUILTIN.catalogue().clone()];
    let case = Case::new(&subject, &Inputs::new(&BUILTIN), &catalogues);
    let evaluation = policy.evaluate(&case, &case.auditors(), &BTreeMap::new(), &Permission::NotRequired);
    evaluation.denial().unwrap_or_default()
}

fn place_of(pod: &Value, list: &str, name: &str) -> usize {
    pod["spec"][list].as_array().unwrap().iter().position(|it| it["name"] == name).unwrap()
}

fn field(change: &str) -> &str {
    change.split_once('=').map_or(change, |(field, _)| field)
}

fn resolved<'s>(schemas: &'s Map<String, Value>, schema: &'s Value) -> &'s Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    let name = reference.and_then(|it| it.rsplit('/').next());
    name.map_or(schema, |name| &schemas[name])
}

/// Values other than `found`, each with the path of the difference; `None` is the absence of a value.
fn changes(
    schemas: &Map<String, Value>,
    schema: &Value,
    found: Option<&Value>,
    depth: usize,
) -> Vec<(String, Option<Value>)> {
    let schema = resolved(schemas, schema);
    let mut changes = Vec::new();
    if depth > 0 && found.is_some() {
        changes.push(("=".to_owned(), None));
    }
    let path = |name: &str, rest: &str| match rest.starts_with(['=', '.']) || rest.is_empty() {
        true if name.is_empty() => rest.to_owned(),
        true => format!("{name}{rest}"),
        false => format!("{name}.{rest}"),
    };
    if let Some(properties) = schema["properties"].as_object() {
        let required = required(schemas, schema);
        let whole = found.and_then(Value::as_object);
        for (name, property) in properties {
            for (rest, value) in
                self::changes(schemas, property, whole.and_then(|it| it.get(name)), depth + 1)
            {
                let path = path(name, &rest);
                let mut bases = vec![whole.unwrap_or(&required).clone()];
                // Alone, for mutually exclusive fields, such as the kinds of probes.
                if let Some(whole) = whole.filter(|it| !it.contains_key(name) && depth > 0) {
                    let mut alone = required.clone();
                    alone.extend(
                        whole
                            .iter()
                            .filter(|(key, _)| required.contains_key(*key))
                            .map(|(key, value)| (key.clone(), value.clone())),
                    );
                    bases.push(alone);
                }
                for mut base in bases {
                    match &value {
                        Some(value) => drop(base.insert(name.clone(), value.clone())),
                        None => drop(base.remove(name)),
                    }
                    changes.push((path.clone(), Some(base.into())));
                }
            }
        }
    } else if schema["additionalProperties"].is_object() {
        let whole = found.and_then(Value::as_object).cloned().unwrap_or_default();
        let more = ["ephemeral-storage", "example.com/x", "x"].map(str::to_owned);
        for name in whole.keys().cloned().chain(more).collect::<BTreeSet<_>>() {
            for (rest, value) in
                self::changes(schemas, &schema["additionalProperties"], whole.get(&name), depth + 1)
            {
                let mut whole = whole.clone();
                match value {
                    Some(value) => drop(whole.insert(name.clone(), value)),
                    None => drop(whole.remove(&name)),
                }
                changes.push((path(&name, &rest), Some(whole.into())));
            }
        }
    } else if schema["type"] == "array" {
        let whole = found.and_then(Value::as_array).cloned().unwrap_or_default();
        for (place, found) in whole.iter().enumerate() {
            for (rest, value) in self::changes(schemas, &schema["items"], Some(found), depth + 1) {
                let mut whole = whole.clone();
                match value {
                    Some(value) => whole[place] = value,
                    None => drop(whole.remove(place)),
                }
                changes.push((path("", &rest), Some(whole.into())));
            }
        }
        for (rest, value) in self::changes(schemas, &schema["items"], None, depth + 1) {
            let mut whole = whole.clone();
            whole.extend(value);
            changes.push((path("", &rest), Some(whole.into())));
        }
    } else {
        let other = samples(schema).into_iter().filter(|sample| found != Some(sample));
        changes.extend(other.map(|value| (format!("={}", text(&value)), Some(value))));
    }
    changes
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn required(schemas: &Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let name = schema["properties"]["name"].is_object().then_some("name");
    names
        .chain(name)
        .map(|name| {
            let schema = resolved(schemas, &schema["properties"][name]);
            let value = match schema["type"].as_str() {
                Some("object") => required(schemas, schema).into(),
                Some("array") => json!([]),
                _ => samples(schema).swap_remove(0),
            };
            (name.to_owned(), value)
        })
        .collect()
}

fn samples(schema: &Value) -> Vec<Value> {
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().filter(|it| *it != "").cloned().collect();
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("boolean"), _) => vec![json!(true), json!(false)],
        (Some("integer" | "number"), _) => vec![json!(1), json!(9999)],
        (Some("object"), _) => vec![json!({})],
        (_, Some("int-or-string")) => vec![json!(1), json!("x")],
        // Names, paths, quantities and fields of the pod.
        _ => vec![json!("x"), json!("/x"), json!("1"), json!("1Gi"), json!("metadata.name")],
    }
}
