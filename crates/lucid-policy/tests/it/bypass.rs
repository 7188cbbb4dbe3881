//! Ways around a chain are refused; ordinary pods are accepted.

use lucid_policy::{RequiredLabel, Severity, Workload};
use serde_json::{Value, json};

use crate::common::{
    Ask, annotated, assert_says, hardened, injected, plain, push, secured, with_other_model,
};

/// Returns the reasons of refusals, then those of warnings.
fn found(ask: &Ask) -> (Vec<&'static str>, Vec<&'static str>) {
    let findings = ask.evaluate().map(|evaluation| evaluation.findings).unwrap_or_default();
    let of = |severity| {
        let found = findings.iter().filter(move |finding| finding.severity == severity);
        found.map(|finding| finding.problem.reason).collect::<Vec<_>>()
    };
    (of(Severity::Deny), of(Severity::Warn))
}

/// Security contexts of an application: description, JSON, reasons of refusals, reasons of warnings.
const CONTEXTS: &[(&str, &str, &[&str], &[&str])] = &[
    ("nothing", "{}", &[], &[]),
    ("an ordinary user", r#"{"runAsUser": 1000}"#, &[], &[]),
    ("first auditor", r#"{"runAsUser": 20001}"#, &["AuditorUid"], &[]),
    ("last auditor", r#"{"runAsUser": 20002}"#, &["AuditorUid"], &[]),
    ("nobody's", r#"{"runAsUser": 20003}"#, &[], &[]),
    ("root", r#"{"runAsUser": 0}"#, &[], &["Root"]),
    ("root without SETUID", r#"{"runAsUser": 0, "capabilities": {"drop": ["SETUID"]}}"#, &[], &[]),
    ("root without anything", r#"{"runAsUser": 0, "capabilities": {"drop": ["ALL"]}}"#, &[], &[]),
    ("non-root", r#"{"runAsNonRoot": true}"#, &[], &[]),
    ("privileged", r#"{"privileged": true}"#, &["Privileged"], &[]),
    ("not privileged", r#"{"privileged": false}"#, &[], &[]),
    ("NET_ADMIN", r#"{"capabilities": {"add": ["NET_ADMIN"]}}"#, &["Capability"], &[]),
    ("CAP_NET_ADMIN", r#"{"capabilities": {"add": ["CAP_NET_ADMIN"]}}"#, &["Capability"], &[]),
    ("net_admin", r#"{"capabilities": {"add": ["net_admin"]}}"#, &["Capability"], &[]),
    ("SETUID", r#"{"capabilities": {"add": ["SETUID"]}}"#, &["Capability"], &[]),
    ("SYS_ADMIN", r#"{"capabilities": {"add": ["SYS_ADMIN"]}}"#, &["Capability"], &[]),
    ("all", r#"{"capabilities": {"add": ["ALL"]}}"#, &["Capability"], &[]),
    ("dropped and added", r#"{"capabilities": {"add": ["SETUID"], "drop": ["ALL"]}}"#, &["Capability"], &[]),
    ("PERFMON", r#"{"capabilities": {"add": ["PERFMON"]}}"#, &["Capability"], &[]),
    ("DAC_READ_SEARCH", r#"{"capabilities": {"add": ["DAC_READ_SEARCH"]}}"#, &["Capability"], &[]),
    ("an unmasked /proc", r#"{"procMount": "Unmasked"}"#, &["UnmaskedProc"], &[]),
    ("a masked /proc", r#"{"procMount": "Default"}"#, &[], &[]),
    (
        "profiles",
        r#"{"appArmorProfile": {"type": "Unconfined"}, "seccompProfile": {"type": "Unconfined"}}"#,
        &[],
        &[],
    ),
    ("SELinux", r#"{"seLinuxOptions": {"type": "spc_t"}}"#, &[], &[]),
    ("SYS_PTRACE", r#"{"capabilities": {"add": ["SYS_PTRACE"]}}"#, &["Capability"], &[]),
    ("SYS_RAWIO", r#"{"capabilities": {"add": ["SYS_RAWIO"]}}"#, &["Capability"], &[]),
    ("SYS_BOOT", r#"{"capabilities": {"add": ["sys_boot"]}}"#, &["Capability"], &[]),
    ("MAC_ADMIN", r#"{"capabilities": {"add": ["CAP_MAC_ADMIN"]}}"#, &["Capability"], &[]),
    ("SETFCAP and MKNOD", r#"{"capabilities": {"add": ["SETFCAP", "MKNOD"]}}"#, &["Capability"; 2], &[]),
    ("an unknown one", r#"{"capabilities": {"add": ["NEW_IN_LINUX"]}}"#, &["Capability"], &[]),
    (
        "baseline",
        r#"{"capabilities": {"add": ["CHOWN", "cap_fowner", "IPC_LOCK", "KILL", "SYS_CHROOT"]}}"#,
        &[],
        &[],
    ),
    ("escalation", r#"{"allowPrivilegeEscalation": true}"#, &["PrivilegeEscalation"], &[]),
    ("no escalation", r#"{"allowPrivilegeEscalation": false}"#, &[], &[]),
    ("NET_BIND_SERVICE", r#"{"capabilities": {"add": ["NET_BIND_SERVICE"]}}"#, &[], &[]),
];

#[test]
fn security_contexts_that_bypass_a_chain_are_refused() {
    for (what, context, refused, warned) in CONTEXTS {
        let context: Value = serde_json::from_str(context).unwrap();
        let container = json!({"name": "x", "image": "x", "securityContext": context});

        // After injection, which drops NET_RAW.
        let mut pod = injected(&secured());
        pod["spec"]["containers"][0]["securityContext"] = context.clone();
        let after_rules = (refused.to_vec(), warned.to_vec());
        assert_eq!(found(&Ask::create(&hardened(&pod))), after_rules, "{what} in containers");

        // After lucid-init, once the rules are in force.
        let mut pod = injected(&secured());
        push(&mut pod, "initContainers", container.clone());
        assert_eq!(found(&Ask::create(&hardened(&pod))), after_rules, "{what} in initContainers");

        // Before lucid-init, where a container can leave setuid files and rules behind. Injection disallows privilege
        // escalation.
        let mut pod = secured();
        pod["spec"]["initContainers"] = json!([container]);
        let left = refused.iter().copied().filter(|reason| *reason != "PrivilegeEscalation");
        let expected = (left.collect(), warned.to_vec());
        assert_eq!(found(&Ask::create(&injected(&pod))), expected, "{what} before the rules");

        // A native sidecar keeps running, wherever it stands in the list.
        pod["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        assert_eq!(found(&Ask::create(&injected(&pod))), expected, "{what} in a sidecar");

        let debug = Ask::debug(&injected(&secured()), &container);
        assert_eq!(found(&debug), after_rules, "{what} in ephemeralContainers");
        // Unchanged containers are not reported again.
        let next = Ask::debug(&debug.object, &json!({"name": "y", "image": "y"}));
        assert_eq!(found(&next), (vec![], vec![]), "{what} in an update");
    }
}

#[test]
fn containers_inherit_the_user_of_the_pod() {
    for (of_pod, of_container, refused) in [
        (json!({"runAsUser": 20001}), json!({}), true),
        (json!({"runAsUser": 20001}), json!({"runAsUser": 1000}), false),
        (json!({"runAsUser": 1000}), json!({"runAsUser": 20002}), true),
    ] {
        let mut pod = secured();
        pod["spec"]["securityContext"] = of_pod;
        pod["spec"]["containers"][0]["securityContext"] = of_container;
        assert_eq!(!Ask::create(&injected(&pod)).denial().is_empty(), refused, "{pod}");
    }
}

#[test]
fn require_non_root_refuses_containers_without_a_user() {
    for (context, refused) in [
        (json!({}), true),
        (json!({"runAsUser": 0}), true),
        (json!({"runAsUser": 1000}), false),
        (json!({"runAsNonRoot": true}), false),
        (json!({"capabilities": {"drop": ["ALL"]}}), false),
    ] {
        let mut pod = secured();
        pod["spec"]["containers"][0]["securityContext"] = context;
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(false);
        let ask = Ask::create(&injected(&pod)).with(|ask| ask.policy.require_non_root = true);
        assert_eq!(found(&ask).0, if refused { vec!["Root"] } else { vec![] }, "{pod}");
    }
}

#[test]
fn privilege_escalation_is_denied_with_redirects_or_non_root() {
    let own =
        json!({"runAsUser": 1000, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let places = [("containers", 0), ("containers", 1), ("initContainers", 0), ("initContainers", 1)];
    for (intercept, require_non_root) in
        [("redirect", false), ("redirect", true), ("env", false), ("env", true)]
    {
        for (list, place) in
            places.into_iter().filter(|(list, _)| intercept == "redirect" || *list == "containers")
        {
            for allowed in [Value::Null, json!(true), json!(false)] {
                let mut pod = annotated(json!({"lucid.computing/intercept": intercept}));
                pod["spec"]["containers"][0]["securityContext"] = own.clone();
                let mut pod = injected(&pod);
                let mut container = json!({"name": "x", "image": "x", "securityContext": own});
                container["securityContext"]["allowPrivilegeEscalation"] = allowed.clone();
                pod["spec"][list].as_array_mut().unwrap().insert(place, container);
                let ask = Ask::create(&pod).with(|ask| ask.policy.require_non_root = require_non_root);
                let refused = allowed != json!(false) && (require_non_root || intercept == "redirect");
                let warned = allowed == json!(true) && !refused;
                let reason = |found: bool| if found { vec!["PrivilegeEscalation"] } else { vec![] };
                let expected = (reason(refused), reason(warned));
                assert_eq!(found(&ask), expected, "{intercept} {require_non_root} {pod}");
            }
        }
    }
}

#[test]
fn containers_that_keep_net_raw_are_refused() {
    for (capabilities, refused) in [
        (json!({}), true),
        (json!({"drop": ["SETUID"]}), true),
        (json!({"drop": ["NET_RAW"]}), false),
        (json!({"drop": ["cap_net_raw"]}), true),
        (json!({"drop": ["CAP_ALL"]}), true),
        (json!({"drop": ["all"]}), false),
        (json!({"drop": ["ALL"], "add": ["CHOWN"]}), false),
        (json!({"drop": ["ALL"], "add": ["NET_RAW"]}), true),
        (json!({"drop": ["NET_RAW"], "add": ["CAP_net_raw"]}), true),
        (json!({"drop": ["NET_RAW"], "add": ["ALL"]}), true),
    ] {
        let context = json!({"allowPrivilegeEscalation": false, "capabilities": capabilities});
        let container = json!({"name": "x", "image": "x", "securityContext": context});
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let running = injected(&secured());
            let mut pod = running.clone();
            push(&mut pod, list, container.clone());
            let ask = match list {
                "ephemeralContainers" => Ask::update(&running, &pod).on("ephemeralcontainers"),
                _ => Ask::create(&pod),
            };
            let expected = if refused { vec!["Capability"] } else { vec![] };
            assert_eq!(found(&ask), (expected, vec![]), "{list}: {capabilities}");
        }
    }
    // Injection drops NET_RAW in the pods of a template. Without rules there is no redirection to bypass.
    assert_eq!(found(&Ask::of(Workload::Deployment, &secured())), (vec![], vec![]));
    let mut pod = injected(&annotated(json!({"lucid.computing/intercept": "env"})));
    pod["spec"]["containers"][0].as_object_mut().unwrap().remove("securityContext");
    assert_eq!(found(&Ask::create(&pod)), (vec![], vec![]));
}

#[test]
fn the_annotation_keeps_privileges_with_a_warning() {
    let mut pod = injected(&annotated(json!({"lucid.computing/keep-privileges": " true "})));
    for (context, refused, warned) in [
        (json!({}), vec![], vec!["Capability", "PrivilegeEscalation"]),
        (json!({"allowPrivilegeEscalation": true}), vec![], vec!["Capability", "PrivilegeEscalation"]),
        (
            json!({"allowPrivilegeEscalation": false, "capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}}),
            vec![],
            vec!["Capability"],
        ),
        (
            json!({"allowPrivilegeEscalation": false, "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}}),
            vec!["Capability"],
            vec![],
        ),
    ] {
        pod["spec"]["containers"][0]["securityContext"] = context;
        assert_eq!(found(&Ask::create(&pod)), (refused, warned), "{pod}");
    }
}

#[test]
fn a_sidecar_before_the_rules_for_outbound_traffic_is_refused() {
    for (direction, refused) in [("inbound", false), ("outbound", true), ("both", true)] {
        for workload in [Workload::Pod, Workload::Deployment] {
            let mut pod = annotated(json!({"lucid.computing/direction": direction}));
            let sidecar = json!({"name": "early", "image": "x", "restartPolicy": "Always"});
            pod["spec"]["initContainers"] = json!([{"name": "ends", "image": "x"}, sidecar]);
            let pod = if workload.is_pod() { injected(&pod) } else { pod };
            let ask = Ask::of(workload, &pod);
            let expected = if refused { vec!["StartsBeforeRules"] } else { vec![] };
            assert_eq!(found(&ask), (expected, vec![]), "{direction} of {workload}");

            if workload.is_pod() {
                let mut after = pod;
                after["spec"]["initContainers"].as_array_mut().unwrap().rotate_left(2);
                assert_eq!(found(&Ask::create(&after)), (vec![], vec![]), "{direction} of {workload}");
            }
        }
    }
}

#[test]
fn namespaces_shared_with_node_or_auditors_are_refused_with_a_workaround() {
    for (key, reason, intercept, says) in [
        ("hostPID", "HostPID", "redirect", "expected false"),
        ("hostIPC", "HostIPC", "redirect", "expected false, with an emptyDir of medium Memory"),
        (
            "shareProcessNamespace",
            "SharedProcesses",
            "redirect",
            "expected false, with a volume of type image",
        ),
        // Network rules do not fit into such a pod.
        ("hostNetwork", "HostNetwork", "env", "expected false, with a Service or a hostPort"),
    ] {
        let mut pod = annotated(json!({"lucid.computing/intercept": intercept}));
        pod["spec"][key] = json!(true);
        let ask = Ask::create(&injected(&pod));
        assert_eq!(found(&ask), (vec![reason], vec![]), "{key}");
        assert_says(&ask.denial(), &[says]);
        pod["spec"][key] = json!(false);
        assert_eq!(found(&Ask::create(&injected(&pod))), (vec![], vec![]), "{key}");
    }
}

#[test]
fn an_application_may_not_declare_the_port_of_an_auditor() {
    let pod = injected(&secured());
    for (port, protocol, refused) in
        [(8093, "TCP", true), (8090, "TCP", true), (8093, "UDP", false), (8094, "TCP", false)]
    {
        let mut pod = pod.clone();
        let ports = pod["spec"]["containers"][0]["ports"].as_array_mut().unwrap();
        ports.push(json!({"containerPort": port, "protocol": protocol}));
        let reasons = Ask::create(&pod).reasons();
        assert_eq!(reasons.contains(&"AuditorPort"), refused, "{port}/{protocol}: {reasons:?}");
    }
}

#[test]
fn bypass_checks_apply_only_to_secured_pods() {
    let mut pod = plain();
    pod["spec"]["hostNetwork"] = json!(true);
    pod["spec"]["hostPID"] = json!(true);
    pod["spec"]["hostIPC"] = json!(true);
    pod["spec"]["shareProcessNamespace"] = json!(true);
    pod["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["localhost"]}]);
    pod["spec"]["volumes"] = json!([{"name": "node", "hostPath": {"path": "/"}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "node", "mountPath": "/node"}]);
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"privileged": true, "runAsUser": 20001, "capabilities": {"add": ["ALL"]}});
    assert_eq!(found(&Ask::create(&pod)), (vec![], vec![]));
}

#[test]
fn a_large_pod_is_evaluated_in_time() {
    let ports: Vec<_> = (10_000..10_040).map(|port| json!({"containerPort": port})).collect();
    let mut pod = injected(&secured());
    let mounts: Vec<_> =
        (0..20).map(|number| json!({"name": format!("v{number}"), "mountPath": "/x"})).collect();
    let containers = (0..1000).map(|number| {
        json!({"name": format!("c{number}"), "image": "reg.test/first:1", "ports": ports, "volumeMounts": mounts,
            "securityContext": {"privileged": true}})
    });
    pod["spec"]["containers"].as_array_mut().unwrap().extend(containers);
    let volumes = (0..1000).map(|number| json!({"name": format!("w{number}"), "image": {"reference": "a"}}));
    pod["spec"]["volumes"] = volumes.collect();
    // Quadratic work would take minutes.
    let evaluation = Ask::create(&pod).evaluate().unwrap();
    assert_eq!(evaluation.findings.len(), 64);
    assert!(evaluation.unlisted > 1000, "{}", evaluation.unlisted);
}

#[test]
fn refusals_displace_warnings() {
    let mut pod = injected(&secured());
    let labels = (0..200).map(|number| (format!("lucid.computing/tie{number}"), json!("x")));
    pod["metadata"]["labels"].as_object_mut().unwrap().extend(labels);
    pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = json!(0);
    let warned = Ask::create(&pod).evaluate().unwrap();
    assert_eq!((warned.findings.len(), warned.denial()), (64, None));
    // The label is checked last.
    pod["metadata"]["labels"]["lucid.computing/break-glass"] = json!("please");
    let ask = Ask::create(&pod).with(|ask| ask.policy.required_label = Some(RequiredLabel::default()));
    let refused = ask.evaluate().unwrap();
    assert_eq!(refused.findings.len(), 64);
    assert!(refused.denial().unwrap().contains("lucid.computing/tier is missing"));
    assert!(refused.would_deny && refused.unlisted > 0);
    assert!(refused.warnings().iter().any(|warning| warning.ends_with("more findings")));
}

#[test]
fn removing_the_label_of_a_running_pod_does_not_bypass_checks() {
    let mut pod = secured();
    pod["spec"]["resources"] = json!({"limits": {"cpu": "2", "memory": "2Gi"}});
    let mut running = injected(&pod);
    running["metadata"]["labels"] = json!({});
    let many = vec!["first"; 128].join(",");
    for (annotations, what) in [
        (json!({}), "label"),
        (json!({"lucid.computing/auditor-chain": many}), "label, and a chain that fits nowhere"),
        (json!({"lucid.computing/auditor-chain": "toxicity"}), "label, and a chain of others"),
        (json!({"lucid.computing/sidecar-mode": "native"}), "label, and other places"),
        (json!({"lucid.computing/auditor-chain": "first"}), "label, and another chain"),
        (json!({"lucid.computing/intercept": "env"}), "label, and no rules"),
    ] {
        running["metadata"]["annotations"] = annotations;
        for context in [json!({"runAsUser": 20002}), json!({"capabilities": {"add": ["NET_ADMIN"]}})] {
            let mut container = json!({"name": "debug", "image": "x", "securityContext": context});
            assert_eq!(found(&Ask::debug(&running, &container)).0.len(), 1, "{what}: {context}");
            // A container does not become exempt by declaring itself an auditor.
            container["env"] = json!([{"name": "LUCID_AUDITOR_ID", "value": "first"}]);
            assert!(!found(&Ask::debug(&running, &container)).0.is_empty(), "{what}: {context}");
        }
        let mut replaced = running.clone();
        let containers = replaced["spec"]["containers"].as_array_mut().unwrap();
        let auditor = containers.iter_mut().find(|it| it["env"].to_string().contains("\"second\"")).unwrap();
        auditor["image"] = json!(format!("reg.test/first@{}", crate::common::NOTARIZED));
        assert!(!found(&Ask::update(&running, &replaced)).0.is_empty(), "{what}: an auditor's image");
        let mut rules = running.clone();
        let init = rules["spec"]["initContainers"].as_array_mut().unwrap();
        init.iter_mut().find(|it| it["name"] == "lucid-init").unwrap()["image"] = json!("evil.test/init:1");
        assert!(!found(&Ask::update(&running, &rules)).0.is_empty(), "{what}: lucid-init");
        // The model's image may change.
        let model = with_other_model(&running);
        assert_eq!(found(&Ask::update(&running, &model)).0, Vec::<&str>::new(), "{what}: the model");
    }
}

#[test]
fn unrequested_auditors_do_not_block_updates() {
    let mut pod = plain();
    let auditor = json!({"name": "mine", "image": format!("reg.test/first@{}", crate::common::NOTARIZED),
        "env": [{"name": "LUCID_AUDITOR_ID", "value": "first"}]});
    push(&mut pod, "containers", auditor);
    let changed = with_other_model(&pod);
    assert_eq!(found(&Ask::update(&pod, &changed)), (vec![], vec![]));
}

#[test]
fn a_substituted_auditor_volume_is_refused() {
    let mut pod = injected(&secured());
    assert_eq!(found(&Ask::create(&pod)), (vec![], vec![]));
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    let empty = volumes.iter_mut().find(|volume| volume["name"] == "lucid-no-token").unwrap();
    *empty = json!({"name": "lucid-no-token", "secret": {"secretName": "token"}});
    assert_eq!(found(&Ask::create(&pod)), (vec!["NotAsInjected"], vec![]));
}
