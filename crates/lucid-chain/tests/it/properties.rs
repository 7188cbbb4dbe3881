//! Properties that hold for every pod.

use std::collections::{BTreeMap, BTreeSet};

use lucid_chain::{
    Catalogue, Configuration, Decision, ImpossibleReason, Inputs, Intercept, Plan, PodView, keys, plan,
    uninject,
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::common::*;

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

const VALUES: [&str; 12] = [
    "injection,toxicity",
    "guardrails, guardrails,guardrails",
    "observe",
    "true",
    "5000",
    "8090",
    "outbound",
    "both",
    "native",
    "containers",
    "redirect",
    "env",
];

const NAMES: [&str; 7] = [
    "web",
    "db",
    "lucid-guardrails-auditor",
    "lucid-guardrails-auditor-2",
    "lucid-injection-auditor",
    "lucid-toxicity-auditor",
    "lucid-init",
];

fn annotations() -> impl Strategy<Value = Value> {
    let value = prop_oneof![3 => select(&VALUES[..]).prop_map(str::to_owned), 1 => any::<String>()];
    let key = prop_oneof![5 => select(&KEYS[..]).prop_map(str::to_owned), 1 => any::<String>()];
    let map = vec((key, value), 0..5).prop_map(|entries| json!(BTreeMap::from_iter(entries)));
    prop_oneof![1 => Just(Value::Null), 5 => map]
}

fn unknown() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((any::<String>(), inner), 0..3).prop_map(|entries| json!(BTreeMap::from_iter(entries))),
        ]
    })
}

/// Generates `value`, `null` or nothing.
fn maybe(value: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 4 => value.prop_map(Some)]
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    let number = || prop_oneof![select(vec![8090, 8093, 5000, 8096, 0, -1, 70000]), any::<i32>()];
    let port = (
        option(number()),
        option(number()),
        option(select(vec!["model", "http", "x"])),
        option(select(vec!["TCP", "UDP"])),
    )
        .prop_map(|(container, host, name, protocol)| {
            object([
                ("containerPort", container.map(Value::from)),
                ("hostPort", host.map(Value::from)),
                ("name", name.map(Value::from)),
                ("protocol", protocol.map(Value::from)),
            ])
        });
    let variable = (select(vec!["A", "AUDITOR_URL"]), any::<String>())
        .prop_map(|(name, value)| json!({"name": name, "value": value}));
    let fields = (
        maybe(vec(port, 0..4).prop_map(Value::from)),
        maybe(vec(variable, 0..3).prop_map(Value::from)),
        maybe(select(vec!["web:1", "ghcr.io/lucid/lucid-injection-auditor:latest"]).prop_map(Value::from)),
        maybe(select(vec!["Always", "Never"]).prop_map(Value::from)),
        option(probe()),
        maybe(security_context()),
        option(unknown()),
    );
    fields.prop_map(move |(ports, env, image, restart_policy, probe, context, other)| {
        object([
            ("name", Some(json!(name))),
            ("ports", ports),
            ("env", env),
            ("image", image),
            ("restartPolicy", restart_policy),
            ("readinessProbe", probe),
            ("securityContext", context),
            ("somethingNew", other),
        ])
    })
}

fn security_context() -> impl Strategy<Value = Value> {
    let names = || {
        let name = select(vec!["NET_RAW", "net_raw", "CAP_NET_RAW", "ALL", "CHOWN", "SYS_ADMIN"]);
        maybe(vec(name, 0..4).prop_map(|names| json!(names)))
    };
    let capabilities = (names(), names()).prop_map(|(add, drop)| object([("add", add), ("drop", drop)]));
    let boolean = || maybe(any::<bool>().prop_map(Value::from));
    (boolean(), boolean(), maybe(capabilities), option(unknown())).prop_map(
        |(escalation, privileged, capabilities, other)| {
            object([
                ("allowPrivilegeEscalation", escalation),
                ("privileged", privileged),
                ("capabilities", capabilities),
                ("somethingNew", other),
            ])
        },
    )
}

fn probe() -> impl Strategy<Value = Value> {
    let port = prop_oneof![
        select(vec![json!("model"), json!("x"), json!(5000)]),
        any::<i64>().prop_map(Value::from)
    ];
    let path = select(vec!["/health", "/a,b", "", "/$(HOME)", "/ü"]);
    (select(vec!["httpGet", "tcpSocket", "grpc"]), port, path).prop_map(|(kind, port, path)| {
        let action =
            if kind == "httpGet" { json!({"port": port, "path": path}) } else { json!({"port": port}) };
        object([(kind, Some(action))])
    })
}

fn option<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(value)
}

fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let members = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(members.collect())
}

/// Generates a pod with a trigger and unique container names, as the API server requires.
fn pod() -> impl Strategy<Value = Value> {
    let names = Just(NAMES.to_vec()).prop_shuffle();
    let containers = (names, 1..=4_usize, 0..=2_usize).prop_flat_map(|(names, applications, inits)| {
        let (first, rest) = names.split_at(applications);
        let list = |names: &[&'static str]| names.iter().copied().map(container).collect::<Vec<_>>();
        (list(first), list(&rest[..inits]))
    });
    let secrets = maybe(select(vec![json!([]), json!([{"name": "own"}]), json!([{"name": "mirror"}])]));
    let restart_policy = maybe(select(vec!["Always", "OnFailure", "Never"]).prop_map(Value::from));
    let volumes = maybe(select(vec![json!([]), json!([{"name": "own", "hostPath": {"path": "/"}}])]));
    let spec = (any::<bool>(), restart_policy, secrets, volumes, option(unknown()));
    (annotations(), containers, any::<bool>(), spec, option(unknown())).prop_map(
        |(
            annotations,
            (containers, inits),
            has_inits,
            (host_network, restart_policy, secrets, volumes, in_spec),
            in_pod,
        )| {
            json!({
                "metadata": {"labels": {keys::SECURED_LABEL: "true"}, "annotations": annotations, "uid": "x"},
                "spec": object([
                    ("containers", Some(json!(containers))),
                    ("initContainers", has_inits.then(|| json!(inits))),
                    ("restartPolicy", restart_policy),
                    ("imagePullSecrets", secrets),
                    ("volumes", volumes),
                    ("hostNetwork", Some(json!(host_network))),
                    ("somethingNew", in_spec),
                ]),
                "somethingNew": in_pod,
            })
        },
    )
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap()
}

/// Returns the pod without everything that planning may change: planned containers, environments and privileges of
/// applications, pull secrets, the added volume, the status and their parents.
fn without_planned(pod: &Value, planned: &BTreeSet<String>) -> Value {
    let mut pod = pod.clone();
    if pod["metadata"]["annotations"].is_null() {
        pod["metadata"]["annotations"] = json!({});
    }
    pod["metadata"]["annotations"].as_object_mut().unwrap().remove(keys::STATUS);
    for key in ["containers", "initContainers", "imagePullSecrets", "volumes"] {
        if pod["spec"][key].is_null() {
            pod["spec"][key] = json!([]);
        }
        let list = pod["spec"][key].as_array_mut().unwrap();
        let ours = |name: &str| {
            ["mirror", keys::NO_TOKEN_VOLUME].contains(&name) || name.starts_with(keys::FILES_VOLUME)
        };
        list.retain(|item| !planned.contains(name(item)) && !ours(name(item)));
    }
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        container.as_object_mut().unwrap().remove("env");
    }
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().unwrap() {
            let context = container["securityContext"].take();
            container["securityContext"] = json!([context["privileged"], context["somethingNew"]]);
        }
    }
    pod
}

/// Returns the pod without lists and maps that are `null`, which is equivalent in Kubernetes.
fn without_nulls(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let remove = |parent: &mut Value, key: &str| {
        if parent[key].is_null() {
            parent.as_object_mut().unwrap().remove(key);
        }
    };
    remove(&mut pod["metadata"], "annotations");
    remove(&mut pod["spec"], "initContainers");
    remove(&mut pod["spec"], "imagePullSecrets");
    remove(&mut pod["spec"], "volumes");
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        remove(container, "env");
    }
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            remove(container, "securityContext");
        }
    }
    pod
}

fn configurations() -> impl Strategy<Value = Configuration> {
    const FILES: &str = "chain: [{name: lucid-toxicity-auditor, files: [{mountPath: /a, configMap: {name: a}}]}, \
        {name: lucid-guardrails-auditor, serviceAccountToken: true, files: [{mountPath: /a, image: {reference: a}}]}]";
    (option(select(vec![Intercept::Redirect, Intercept::Env])), any::<bool>(), any::<bool>()).prop_map(
        |(intercept, secrets, files)| {
            let mut configuration = match files {
                true => Configuration::new(Catalogue::builtin().overlay(&parsed(FILES)), None).unwrap(),
                false => with_rules(),
            };
            configuration.overrides.intercept = intercept;
            configuration.image_pull_secrets = secrets.then(|| "mirror".to_owned()).into_iter().collect();
            configuration
        },
    )
}

/// Returns `true` if planning may write to `path`: a planned container, a list it adds or extends, a hardened
/// security context, `AUDITOR_URL` or the status.
fn may_write(path: &str, pod: &Value, plan: &Plan) -> bool {
    let parts: Vec<_> = path.split('/').skip(1).collect();
    let planned = |name: &Value| {
        let init = plan.init.as_ref().map(|init| &init.name);
        plan.containers.iter().map(|planned| &planned.name).chain(init).any(|planned| *name == **planned)
    };
    match parts[..] {
        ["metadata"] => pod["metadata"].is_null(),
        ["metadata", "annotations"] => pod["metadata"]["annotations"].is_null(),
        ["metadata", "annotations", key] => key == "lucid.computing~1status",
        ["spec", list @ ("initContainers" | "imagePullSecrets" | "volumes")] => pod["spec"][list].is_null(),
        ["spec", "containers" | "initContainers" | "imagePullSecrets" | "volumes", "-"] => true,
        ["spec", "containers", place] => {
            planned(&pod["spec"]["containers"][place.parse::<usize>().unwrap()]["name"])
        }
        // Items are inserted and removed by index; the result is checked instead.
        ["spec", "initContainers", _] => true,
        ["spec", "containers", place, "env"] => {
            pod["spec"]["containers"][place.parse::<usize>().unwrap()]["env"].is_null()
        }
        ["spec", "containers", _, "env", "-"] => true,
        ["spec", list @ ("containers" | "initContainers"), place, "securityContext"] => {
            pod["spec"][list][place.parse::<usize>().unwrap()]["securityContext"].is_null()
        }
        ["spec", "containers" | "initContainers", _, "securityContext", key] => {
            ["allowPrivilegeEscalation", "capabilities"].contains(&key)
        }
        ["spec", "containers" | "initContainers", _, "securityContext", "capabilities", "add" | "drop"] => {
            true
        }
        _ => false,
    }
}

fn check(pod: &Value, configuration: &Configuration) -> Result<(), TestCaseError> {
    let outcome = outcome_in(pod, configuration, None);
    for warning in warnings(&outcome) {
        prop_assert!(!warning.contains(char::is_control), "{}", warning);
    }
    if let Decision::Impossible { reason } = &outcome.decision {
        let host_network = pod["spec"]["hostNetwork"] == true;
        let expected = match reason {
            ImpossibleReason::HostNetwork => host_network,
            reason => *reason == ImpossibleReason::NoDestination,
        };
        prop_assert!(expected, "{} {}", reason, pod);
        return Ok(());
    }
    let plan = planned_by(outcome);
    let patch = patch_in(pod, configuration);
    for warning in &patch.warnings {
        prop_assert!(!warning.to_string().contains(char::is_control), "{}", warning);
    }
    for operation in json!(patch.operations()).as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        prop_assert!(may_write(path, pod, &plan), "{} {}", path, pod);
    }
    let patched = apply(pod, &patch);
    let containers = list(&patched["spec"], "containers");
    let inits = list(&patched["spec"], "initContainers");

    let names: Vec<_> = containers.iter().chain(inits).map(name).collect();
    prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{:?}", names);
    let auditors: Vec<_> = plan.containers.iter().map(|planned| planned.name.clone()).collect();
    let init = plan.init.as_ref().map(|init| init.name.clone());
    let planned: BTreeSet<_> = auditors.iter().cloned().chain(init.clone()).collect();
    let foreign = |container: &&Value| !planned.contains(name(container));

    // Planned containers are in the right list, in chain order.
    let ours = |list: &[Value]| -> Vec<String> {
        let planned = list.iter().map(name).filter(|name| planned.contains(*name));
        planned.map(str::to_owned).collect()
    };
    if plan.is_native() {
        prop_assert_eq!(ours(inits), Vec::from_iter(auditors.into_iter().chain(init)));
        prop_assert!(ours(containers).is_empty());
    } else {
        prop_assert_eq!(ours(inits), Vec::from_iter(init));
        prop_assert_eq!(ours(containers).len(), auditors.len());
    }
    let model = i64::from(model_port(&plan));
    let is_model = |found: &Value| {
        let is_tcp = |port: &Value| matches!(port["protocol"].as_str(), None | Some("" | "TCP"));
        let listens = list(found, "ports").iter().any(|port| port["containerPort"] == model && is_tcp(port));
        let said = |warning: &str| plan.leftovers.iter().any(|name| name == warning);
        found["restartPolicy"] == "Always" && listens && foreign(&found) && !said(name(found))
    };
    if let Some(model) = inits.iter().position(is_model) {
        prop_assert!(inits[model..].iter().all(|later| foreign(&later)), "{}", patched);
    }

    let ports: BTreeSet<_> = plan.containers.iter().map(|planned| planned.port).collect();
    prop_assert_eq!(ports.len(), plan.containers.len());
    prop_assert!(!ports.iter().any(|port| i64::from(port.get()) == model));
    for port in containers.iter().chain(inits).filter(foreign).flat_map(|container| list(container, "ports"))
    {
        for declared in [&port["containerPort"], &port["hostPort"]] {
            prop_assert!(ports.iter().all(|port| *declared != json!(port)), "{} {:?}", port, ports);
        }
    }
    let hops: Vec<_> = plan.containers.iter().map(|planned| planned.next_port).collect();
    let listeners = plan.containers.iter().skip(1).map(|planned| planned.port);
    prop_assert_eq!(hops, Vec::from_iter(listeners.chain([model_port(&plan).try_into().unwrap()])));

    prop_assert_eq!(without_planned(&patched, &planned), without_planned(pod, &planned));
    let before = list(&pod["spec"], "containers");
    let kept = before.iter().filter(foreign).zip(containers.iter().filter(foreign));
    for (before, after) in kept {
        prop_assert_eq!(name(before), name(after));
        let leftover = plan.leftovers.iter().any(|left| left == name(after));
        let (before, after) = (list(before, "env"), list(after, "env"));
        let set = before.iter().any(|variable| variable["name"] == "AUDITOR_URL");
        let added = usize::from(!set && !leftover && !setting(&plan, "AUDITOR_URL").is_empty());
        prop_assert!(after.starts_with(before) && after.len() == before.len() + added, "{:?}", after);
    }

    prop_assert!(patch_in(&patched, configuration).is_empty(), "{}", patched);
    let stored = defaulted(&patched);
    prop_assert!(patch_in(&stored, configuration).is_empty(), "{}", stored);

    // Replaced containers are not restored.
    let replaced = before.iter().chain(list(&pod["spec"], "initContainers")).any(|found| !foreign(&found));
    if !replaced && pod["metadata"]["annotations"][keys::STATUS].is_null() {
        let uninjection = uninject(&patched);
        prop_assert!(uninjection.warnings.is_empty(), "{:?}", uninjection.warnings);
        let back = apply(&patched, &uninjection);
        prop_assert_eq!(without_nulls(&back), without_nulls(pod));
        prop_assert!(uninject(&back).is_empty());
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_patch_is_complete_and_minimal(pod in pod(), configuration in configurations()) {
        check(&pod, &configuration)?;
    }

    #[test]
    fn arbitrary_annotations_never_panic(entries in vec((select(&KEYS[..]), any::<Vec<u8>>()), 0..9)) {
        let annotations: BTreeMap<_, _> =
            entries.iter().map(|(key, bytes)| (key, String::from_utf8_lossy(bytes))).collect();
        let pod = json!({"metadata": {"labels": {keys::SECURED_LABEL: "true"}, "annotations": annotations},
                         "spec": {"containers": [{"name": "web"}]}});
        check(&pod, &builtin())?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>(), at in any::<prop::sample::Index>()) {
        let _ = PodView::from_json(&bytes);
        let mut json = crate::common::pod(json!({keys::AUDITORS: "injection"}), &[5000]).to_string().into_bytes();
        let at = at.index(json.len());
        json.splice(at..(at + 1), bytes);
        if let Ok(view) = PodView::from_json(&json) {
            let configuration = builtin();
            if let Decision::Planned(plan) = plan(&view, &Inputs::new(&configuration)).decision {
                plan.patch(&view);
            }
        }
    }

    #[test]
    fn arbitrary_catalogues_never_panic(text in any::<String>(), at in any::<prop::sample::Index>()) {
        const YAML: &str = "chain:\n- name: a\n  image: a\n  port: 1\n  env: {A: 'x', B: {valueFrom: {secretKeyRef: {name: a, key: b}}}}\n  files: [{mountPath: /a, secret: {secretName: a}}]\n  resources: {limits: {cpu: 1}}
  probes: {startup: {path: /a, periodSeconds: 2}}
  securityContext: {runAsGroup: 3, capabilities: {drop: [ALL]}, seccompProfile: {type: Localhost, localhostProfile: b}}
defaults: {direction: both}\n";
        let mut yaml = YAML.to_owned();
        yaml.insert_str(at.index(YAML.len()), &text);
        for yaml in [text, yaml] {
            if let Err(error) = Catalogue::parse("auditors.yaml", &yaml) {
                prop_assert!(error.to_string().starts_with("auditors.yaml: line "), "{}", error);
            }
        }
    }
}
