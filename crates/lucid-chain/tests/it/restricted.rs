//! Pods that satisfy the Pod Security level `restricted` still do with their auditors.

use lucid_chain::{Catalogue, Configuration, Decision, Inputs, PodView, keys, plan};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::common::{apply, level, parsed};

/// Returns the fields of `pod` that violate the levels baseline or restricted of the [Pod Security
/// Standards](https://kubernetes.io/docs/concepts/security/pod-security-standards/).
fn violations(pod: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let mut require = |holds: bool, field: String| {
        if !holds {
            violations.push(field);
        }
    };
    let spec = &pod["spec"];
    let of_pod = &spec["securityContext"];
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        require(absent(&spec[key]) || spec[key] == false, format!("spec.{key}"));
    }
    for volume in items(&spec["volumes"]) {
        let allowed = [
            "name",
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "persistentVolumeClaim",
            "projected",
            "secret",
        ];
        require(
            volume.as_object().unwrap().keys().all(|key| allowed.contains(&key.as_str())),
            "volumes".to_owned(),
        );
    }
    for sysctl in items(&of_pod["sysctls"]) {
        let allowed = [
            "kernel.shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "net.ipv4.ip_unprivileged_port_start",
            "net.ipv4.tcp_syncookies",
            "net.ipv4.ping_group_range",
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_fin_timeout",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
        ];
        require(sysctl["name"].as_str().is_some_and(|name| allowed.contains(&name)), "sysctls".to_owned());
    }
    for (key, profile) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
        let profile = profile.as_str().unwrap();
        let allowed = profile == "runtime/default" || profile.starts_with("localhost/");
        require(!key.starts_with("container.apparmor.security.beta.kubernetes.io/") || allowed, key.clone());
    }
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let containers: Vec<_> = lists.iter().flat_map(|list| items(&spec[*list])).collect();
    let contexts =
        containers.iter().map(|container| (container["name"].to_string(), &container["securityContext"]));
    for (place, context) in contexts.clone().chain([("spec".to_owned(), of_pod)]) {
        let field = |name: &str| format!("{place}.{name}");
        require(context["runAsUser"] != 0, field("runAsUser"));
        require(context["runAsNonRoot"] != false, field("runAsNonRoot"));
        let type_of = |key: &str| context[key]["type"].as_str().map(str::to_owned);
        let profile =
            |key: &str| type_of(key).is_none_or(|kind| kind == "RuntimeDefault" || kind == "Localhost");
        require(profile("seccompProfile"), field("seccompProfile"));
        require(profile("appArmorProfile"), field("appArmorProfile"));
        let se_linux = &context["seLinuxOptions"];
        let kinds = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
        require(kinds.contains(&se_linux["type"].as_str().unwrap_or_default()), field("seLinuxOptions.type"));
        require(absent(&se_linux["user"]) && absent(&se_linux["role"]), field("seLinuxOptions"));
        require(context["windowsOptions"]["hostProcess"] != true, field("windowsOptions.hostProcess"));
    }
    for (container, (place, context)) in containers.iter().zip(contexts) {
        let field = |name: &str| format!("{place}.{name}");
        require(context["privileged"] != true, field("privileged"));
        require(context["allowPrivilegeEscalation"] == false, field("allowPrivilegeEscalation"));
        require(
            items(&context["capabilities"]["drop"]).any(|dropped| dropped == "ALL"),
            field("capabilities.drop"),
        );
        let added = items(&context["capabilities"]["add"]).all(|added| added == "NET_BIND_SERVICE");
        require(added, field("capabilities.add"));
        require(absent(&context["procMount"]) || context["procMount"] == "Default", field("procMount"));
        let inherited = |key: &str| if absent(&context[key]) { &of_pod[key] } else { &context[key] };
        require(inherited("runAsNonRoot") == &json!(true), field("runAsNonRoot"));
        require(inherited("seccompProfile")["type"].is_string(), field("seccompProfile"));
        let host_port = |port: &Value| absent(&port["hostPort"]) || port["hostPort"] == 0;
        require(items(&container["ports"]).all(host_port), field("hostPort"));
        for handler in ["startupProbe", "readinessProbe", "livenessProbe"].map(|probe| &container[probe]) {
            for action in ["httpGet", "tcpSocket"] {
                require(
                    absent(&handler[action]["host"]) || handler[action]["host"] == "",
                    field("probe host"),
                );
            }
        }
    }
    violations
}

fn absent(value: &Value) -> bool {
    value.is_null()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn clean() -> Value {
    json!({
        "metadata": {"labels": {keys::SECURED_LABEL: "true"}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "a", "emptyDir": {}}],
            "containers": [{
                "name": "web", "ports": [{"containerPort": 5000}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

#[test]
fn the_check_detects_violations() {
    assert_eq!(violations(&clean()), [""; 0]);
    let context = "/spec/containers/0/securityContext";
    let refused = [
        ("/spec", "hostNetwork", json!(true)),
        ("/spec", "hostPID", json!(true)),
        ("/spec", "hostIPC", json!(true)),
        ("/spec", "volumes", json!([{"name": "a", "hostPath": {"path": "/"}}])),
        ("/spec", "ephemeralContainers", json!([{"name": "b"}])),
        ("/spec", "initContainers", json!([{"name": "b", "securityContext": {"runAsNonRoot": true}}])),
        ("/spec/securityContext", "runAsNonRoot", json!(false)),
        ("/spec/securityContext", "runAsNonRoot", Value::Null),
        ("/spec/securityContext", "runAsUser", json!(0)),
        ("/spec/securityContext", "seccompProfile", Value::Null),
        ("/spec/securityContext", "seccompProfile", json!({"type": "Unconfined"})),
        ("/spec/securityContext", "appArmorProfile", json!({"type": "Unconfined"})),
        ("/spec/securityContext", "seLinuxOptions", json!({"type": "spc_t"})),
        ("/spec/securityContext", "seLinuxOptions", json!({"user": "a"})),
        ("/spec/securityContext", "sysctls", json!([{"name": "kernel.msgmax", "value": "1"}])),
        (context, "runAsNonRoot", json!(false)),
        (context, "runAsUser", json!(0)),
        (context, "privileged", json!(true)),
        (context, "allowPrivilegeEscalation", Value::Null),
        (context, "capabilities", json!({"drop": ["NET_RAW"]})),
        (context, "capabilities", json!({"drop": ["ALL"], "add": ["NET_ADMIN"]})),
        (context, "procMount", json!("Unmasked")),
        (context, "seccompProfile", json!({"type": "Unconfined"})),
        ("/spec/containers/0/ports/0", "hostPort", json!(80)),
        ("/spec/containers/0", "livenessProbe", json!({"tcpSocket": {"host": "10.0.0.1", "port": 1}})),
        (
            "/metadata",
            "annotations",
            json!({"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}),
        ),
    ];
    for (parent, key, value) in refused {
        let mut pod = clean();
        pod.pointer_mut(parent).unwrap()[key] = value;
        assert!(!violations(&pod).is_empty(), "{pod}");
    }
}

/// Generates one of `values`; `null` stands for absent.
fn one_of(values: Value) -> impl Strategy<Value = Value> {
    let mut values = values.as_array().unwrap().clone();
    values.push(Value::Null);
    select(values)
}

fn context(of_pod: bool) -> impl Strategy<Value = Value> {
    let fields = (
        one_of(json!([true])),
        one_of(json!([1000, 20001, 65534])),
        one_of(json!([{"type": "RuntimeDefault"}, {"type": "Localhost", "localhostProfile": "a"}])),
        one_of(json!([{"type": "container_t"}, {"type": "container_init_t", "level": "s0"}])),
        one_of(json!([{"type": "RuntimeDefault"}])),
        one_of(json!([0, 1, 1000])),
    );
    fields.prop_map(move |(non_root, user, seccomp, se_linux, app_armor, group)| {
        let mut context = json!({
            "runAsNonRoot": non_root, "runAsUser": user, "seccompProfile": seccomp, "seLinuxOptions": se_linux,
            "appArmorProfile": app_armor, "runAsGroup": group,
        });
        if of_pod {
            context["fsGroup"] = json!(2000);
            context["sysctls"] = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
        } else {
            context["allowPrivilegeEscalation"] = json!(false);
            context["capabilities"] = json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]});
        }
        context.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        context
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let annotations = (
        one_of(json!(["injection,toxicity", "pii,pii", "nonsense"])),
        one_of(json!(["env", "nonsense"])),
        one_of(json!(["native", "containers"])),
        one_of(json!(["observe"])),
        one_of(json!(["both"])),
    );
    let annotations = annotations.prop_map(|(chain, intercept, sidecar_mode, audit_mode, direction)| {
        let mut annotations = json!({
            keys::AUDITOR_CHAIN: chain, keys::INTERCEPT: intercept, keys::SIDECAR_MODE: sidecar_mode,
            keys::AUDIT_MODE: audit_mode, keys::DIRECTION: direction,
        });
        annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        annotations
    });
    let names = Just(vec!["web", "db", "lucid-guardrails-auditor", "lucid-pii-auditor"]).prop_shuffle();
    let restart_policy = one_of(json!(["Always", "Never"]));
    (annotations, context(true), any::<bool>(), names, vec(context(false), 1..4), restart_policy)
        .prop_map(|(annotations, of_pod, has_context, names, contexts, restart_policy)| {
            let container = |(name, context): (&&str, Value)| {
                json!({"name": name, "image": "a", "ports": [{"containerPort": 5000}], "securityContext": context,
                       "readinessProbe": {"httpGet": {"path": "/health", "port": 5000}}})
            };
            let mut containers: Vec<_> = names.iter().zip(contexts).map(container).collect();
            let init = containers.split_off(1.max(containers.len() - 1));
            let mut spec = json!({"containers": containers, "initContainers": init, "restartPolicy": restart_policy});
            if has_context {
                spec["securityContext"] = of_pod;
            }
            json!({"metadata": {"labels": {keys::SECURED_LABEL: "true"}, "annotations": annotations}, "spec": spec})
        })
        .prop_filter("refused as it is", |pod| violations(pod).is_empty())
}

fn configuration() -> Configuration {
    let yaml = "chain:
- name: lucid-pii-auditor
  image: registry.example/pii:1
  probes: {startup: {path: /a}, readiness: {}, liveness: {path: /live}}
  securityContext:
    runAsGroup: 30000
    seccompProfile: {type: Localhost, localhostProfile: auditor.json}
    appArmorProfile: {type: RuntimeDefault}
    seLinuxOptions: {type: container_t}
";
    let own = parsed(yaml);
    Configuration::new(Catalogue::builtin().overlay(&own), None).unwrap()
}

proptest! {
    #[test]
    fn restricted_stays_restricted(pod in pod()) {
        let configuration = configuration();
        let json = pod.to_string();
        let view = PodView::from_json(&json).unwrap();
        let settings = level("restricted");
        let outcome = plan(&view, &Inputs { settings: &settings, ..Inputs::new(&configuration) });
        let Decision::Planned(plan) = outcome.decision else { panic!("{pod}") };
        prop_assert!(plan.init.is_none());
        let patched = apply(&pod, &plan.patch(&view));
        prop_assert_eq!(violations(&patched), Vec::<String>::new(), "{}", patched);
    }
}
