//! A required chain must be complete, as planned and in order.

use lucid_chain::{Catalogue, Intercept, PodChoices};
use lucid_policy::{Mode, Severity, Workload};
use serde_json::{Value, json};

use crate::common::{
    Ask, NOTARIZED, REVOKED, annotated, assert_says, catalogue, configuration, configured, hardened,
    injected, injected_by, plain, push, secured, with_other_model,
};

#[test]
fn a_pod_with_its_chain_passes_and_one_without_is_refused() {
    let evaluation = Ask::create(&injected(&secured())).evaluate().unwrap();
    assert_eq!((evaluation.denial(), evaluation.warnings(), evaluation.findings), (None, vec![], vec![]));
    assert_eq!(Ask::create(&secured()).reasons(), ["ChainMissing"]);
    assert_eq!(Ask::create(&plain()).reasons(), Vec::<&str>::new());
}

#[test]
fn a_namespace_can_require_a_chain() {
    let required = |pod: &Value| Ask::create(pod).with(|ask| ask.requires_chain = true);
    let evaluation = required(&plain()).evaluate().unwrap();
    let problem = &evaluation.findings[0].problem;
    assert_eq!(problem.reason, "ChainMissing");
    assert!(problem.message.starts_with("the namespace requires an auditor chain"), "{}", problem.message);
    let denial = evaluation.denial().unwrap();
    assert_says(&denial, &["lucid.computing/require-chain", "lucid.io/secured"]);
    assert_eq!(required(&injected(&secured())).reasons(), Vec::<&str>::new());
    // Containers with auditor names do not make a chain.
    let mut pod = plain();
    push(&mut pod, "containers", json!({"name": "first", "image": format!("reg.test/first@{NOTARIZED}")}));
    assert_says(&required(&pod).denial(), &["differs from the plan"]);
}

#[test]
fn a_new_pod_whose_model_port_is_assumed_is_refused() {
    let declaring = |ports: Value| {
        let mut pod = secured();
        pod["spec"]["containers"][0]["ports"] = ports;
        pod
    };
    let several = declaring(json!([{"containerPort": 8000}, {"containerPort": 8200}]));
    for (pod, candidates) in [(declaring(json!([])), ""), (several.clone(), "8000 (model), 8200 (model)")] {
        let pod = injected(&pod);
        let evaluation = Ask::create(&pod).evaluate().unwrap();
        let denial = evaluation.denial().unwrap();
        assert!(denial.starts_with("the model is assumed to listen on 5000"), "{denial}");
        assert!(denial.contains("lucid.computing/target-port") && denial.ends_with(candidates), "{denial}");
        assert_eq!(Ask::create(&pod).reasons(), ["ModelPortAssumed"]);
        let audited = Ask::create(&pod).with(|ask| ask.policy.mode = Mode::Audit).evaluate().unwrap();
        assert!(audited.denial().is_none() && audited.would_deny, "{audited:?}");
        assert!(audited.warnings()[0].contains(&denial), "{audited:?}");
    }

    // A workaround, a template, and pods that are already running.
    let mut declared = several.clone();
    declared["metadata"]["annotations"] = json!({"lucid.computing/target-port": "8200"});
    assert_eq!(Ask::create(&injected(&declared)).reasons(), Vec::<&str>::new());
    assert_eq!(Ask::of(Workload::Deployment, &several).reasons(), ["ModelPortAssumed"]);
    let running = injected(&several);
    assert_eq!(Ask::update(&running, &running).reasons(), Vec::<&str>::new());
    // No inbound traffic is audited.
    let mut outbound = several;
    outbound["metadata"]["annotations"] = json!({"lucid.computing/direction": "outbound"});
    assert_eq!(Ask::create(&injected(&outbound)).reasons(), Vec::<&str>::new());
}

#[test]
fn skip_audit_counts_only_where_it_is_allowed() {
    let pod = annotated(json!({"lucid.computing/skip-audit": "true"}));
    assert_eq!(Ask::create(&pod).reasons(), ["ChainMissing", "SkipNotAllowed"]);
    assert_eq!(Ask::create(&injected(&pod)).reasons(), ["SkipNotAllowed"]);
    for requires_chain in [false, true] {
        let allowed = Ask::create(&pod).allowing_skip().with(|ask| ask.requires_chain = requires_chain);
        let evaluation = allowed.evaluate().unwrap();
        assert_eq!((evaluation.denial(), evaluation.warnings()), (None, vec![]));
        assert!(evaluation.exempted[0].to_string().contains("skip-audit"), "{:?}", evaluation.exempted);
    }
}

#[test]
fn every_field_of_a_planned_container_is_compared() {
    let mut asking = secured();
    let chain = "first,second?failure=deny&timeout=5s";
    asking["metadata"]["annotations"] = json!({"lucid.computing/auditor-chain": chain});
    let pod = injected(&asking);
    let second = "/spec/containers/2";
    let limits = "resources.limits.memory: expected 64Mi to 512Mi, found 1Mi";
    let requests = "resources.requests.memory: expected 16Mi to 128Mi, found 1Mi";
    assert_eq!(pod.pointer(second).unwrap()["name"], "second");
    for (field, path, value) in [
        ("image", format!("{second}/image"), json!(format!("reg.test/other@{NOTARIZED}"))),
        ("env LUCID_CHAIN_NEXT", format!("{second}/env/1/value"), json!("http://evil.test")),
        ("env \\\"LUCID_AUDIT_MODE\\\"", format!("{second}/env/5/value"), json!("observe")),
        ("env \\\"LUCID_AUDIT_FAILURE\\\"", format!("{second}/env/6/value"), json!("allow")),
        ("env \\\"LUCID_AUDIT_TIMEOUT_MS\\\"", format!("{second}/env/7/value"), json!("1")),
        ("ports", format!("{second}/ports/0/containerPort"), json!(9999)),
        ("securityContext", format!("{second}/securityContext/runAsUser"), json!(20001)),
        ("securityContext", format!("{second}/securityContext/readOnlyRootFilesystem"), json!(false)),
        (limits, format!("{second}/resources/limits/memory"), json!("1Mi")),
        (requests, "/spec/initContainers/0/resources/requests/memory".to_owned(), json!("1Mi")),
        ("command", format!("{second}/command"), json!(["true"])),
        ("volumeMounts", format!("{second}/volumeMounts"), json!([{"name": "x", "mountPath": "/app"}])),
        ("lifecycle", format!("{second}/lifecycle"), json!({"preStop": {"exec": {"command": ["true"]}}})),
        ("env", "/spec/initContainers/0/env/0/value".to_owned(), json!("{}")),
        ("securityContext", "/spec/initContainers/0/securityContext/capabilities".to_owned(), json!({})),
    ] {
        let mut changed = pod.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match changed.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
            parent => parent[key] = value,
        }
        let evaluation = Ask::create(&changed).evaluate().unwrap();
        let name = if path.starts_with(second) { "container second" } else { "init container lucid-init" };
        let field = field.replace("\\\"", "");
        let found = evaluation.findings.iter().find(|finding| finding.problem.reason == "ContainerDiffers");
        let text = found.map(ToString::to_string).unwrap_or_default().replace('"', "");
        assert!(
            text.starts_with(name) && text.contains(&format!("from the plan in {field}")),
            "{path}: {text}"
        );
        assert!(evaluation.denial().is_some(), "{path}");
    }
}

#[test]
fn a_missing_planned_container_is_refused() {
    let pod = injected(&secured());
    for (list, place, name) in [
        ("containers", 1, "container first"),
        ("containers", 2, "container second"),
        ("initContainers", 0, "init container lucid-init"),
    ] {
        let mut changed = pod.clone();
        changed["spec"][list].as_array_mut().unwrap().remove(place);
        let denial = Ask::create(&changed).denial();
        assert_says(&denial, &[&format!("{name}: it is part of the pod's auditor chain and is missing")]);
    }
}

#[test]
fn native_auditors_must_be_in_chain_order() {
    let mut job = secured();
    job["spec"]["restartPolicy"] = json!("Never");
    let mut pod = injected(&job);
    assert_eq!(Ask::create(&pod).reasons(), Vec::<&str>::new());
    pod["spec"]["initContainers"].as_array_mut().unwrap().swap(0, 1);
    assert!(Ask::create(&pod).reasons().contains(&"ContainerMoved"));
    let mut pod = injected(&job);
    // Moves lucid-init before the auditors.
    pod["spec"]["initContainers"].as_array_mut().unwrap().rotate_right(1);
    assert!(Ask::create(&pod).reasons().contains(&"ContainerMoved"));
}

#[test]
fn a_pod_that_cannot_hold_a_chain_is_refused_with_the_reason() {
    let mut pod = secured();
    pod["spec"]["hostNetwork"] = json!(true);
    let ask = Ask::create(&pod);
    assert_eq!(ask.reasons(), ["ChainImpossible"]);
    assert_says(&ask.denial(), &["hostNetwork"]);
}

#[test]
fn updates_report_missing_chains_but_not_new_configurations() {
    let without = secured();
    assert_eq!(Ask::update(&without, &with_other_model(&without)).reasons(), ["ChainMissing"]);

    // The chain has grown since the pod was created, and an auditor has another image.
    let mut older = injected(&secured());
    older["spec"]["containers"][1]["image"] = json!(format!("reg.test/first:old@{NOTARIZED}"));
    older["spec"]["containers"].as_array_mut().unwrap().remove(2);
    let evaluation = Ask::update(&older, &with_other_model(&older)).evaluate().unwrap();
    assert_eq!(evaluation.denial(), None);
    assert!(evaluation.findings.iter().all(|finding| finding.severity == Severity::Warn));
}

#[test]
fn templates_are_evaluated_by_the_chain_of_their_pods() {
    for workload in Workload::ALL.into_iter().filter(|workload| !workload.is_pod()) {
        let ask = |pod: &Value| Ask::of(workload, pod);
        let evaluation = ask(&secured()).evaluate().unwrap();
        assert_eq!((evaluation.denial(), evaluation.warnings()), (None, vec![]), "{workload}");

        let required = ask(&plain()).with(|ask| ask.requires_chain = true).evaluate().unwrap();
        assert_eq!(required.denial(), None);
        assert!(required.denies() && required.would_deny);
        let warning = &required.warnings()[0];
        assert!(
            warning.starts_with("pods of this template will be refused: the namespace requires"),
            "{warning}"
        );
        let audited = ask(&plain()).with(|ask| {
            ask.requires_chain = true;
            ask.policy.mode = Mode::Audit;
        });
        let warning = audited.evaluate().unwrap().warnings().remove(0);
        assert!(warning.starts_with("admission mode enforce would refuse: "), "{warning}");

        // The images to be injected are verified and named.
        let revoked = ask(&secured()).with(|ask| {
            let yaml = format!("chain:\n- {{name: first, image: 'reg.test/first@{REVOKED}'}}\n");
            ask.configuration = configured(Catalogue::parse("auditors.yaml", &yaml).unwrap(), &["first"]);
        });
        let warnings = revoked.evaluate().unwrap().warnings().join("\n");
        assert_says(&warnings, &["auditor container first", "not notarized"]);
    }
}

#[test]
fn leftovers_and_incomplete_injection_warn() {
    let mut pod = injected(&secured());
    push(
        &mut pod,
        "containers",
        json!({"name": "lucid-toxicity-auditor", "image": format!("ghcr.io/lucid/lucid-toxicity-auditor@{NOTARIZED}"),
            "env": [{"name": "LUCID_AUDITOR_ID", "value": "x"}]}),
    );
    let mut ask = Ask::create(&hardened(&pod));
    ask.configuration = configured(Catalogue::builtin().overlay(&catalogue()), &["first", "second"]);
    ask.configuration.image_pull_secrets = vec!["registry".to_owned()];
    assert_eq!(ask.reasons(), ["LeftoverAuditor", "NotAsInjected"]);
    assert_eq!(ask.denial(), "");
}

#[test]
fn a_resize_must_leave_auditors_resources_within_bounds() {
    let old = injected(&secured());
    let resized = |name: &str, list: &str, resource: &str, quantity: &str| {
        let mut new = old.clone();
        let containers = new["spec"]["containers"].as_array_mut().unwrap();
        let container = containers.iter_mut().find(|it| it["name"] == name).unwrap();
        container["resources"][list][resource] = json!(quantity);
        Ask::update(&old, &new).on("resize").reasons()
    };
    for (name, list, resource, quantity, reasons) in [
        ("first", "limits", "memory", "63Mi", &["ContainerDiffers"][..]),
        ("first", "limits", "memory", "64Mi", &[]),
        ("first", "limits", "memory", "512Mi", &[]),
        ("first", "limits", "memory", "513Mi", &["ContainerDiffers"]),
        ("second", "requests", "cpu", "49m", &["ContainerDiffers"]),
        ("second", "requests", "cpu", "50m", &[]),
        ("second", "limits", "ephemeral-storage", "1", &["ContainerDiffers"]),
        ("second", "limits", "example.com/gpu", "1", &["ContainerDiffers"]),
        ("first", "requests", "cpu", "0.2", &[]),
        ("model", "limits", "memory", "1Mi", &[]),
    ] {
        assert_eq!(resized(name, list, resource, quantity), reasons, "{name} {list} {resource} {quantity}");
    }
    // Fields that the update leaves unchanged are not compared with the current plan.
    let mut outdated = old.clone();
    outdated["spec"]["containers"][1]["image"] = json!("reg.test/first@sha512:0");
    outdated["spec"]["containers"][1]["resources"]["limits"]["memory"] = json!("64Mi");
    outdated["metadata"]["annotations"]["lucid.computing/auditors"] = json!("toxicity");
    for (memory, reasons) in [("100Mi", &[][..]), ("63Mi", &["ContainerDiffers"])] {
        let mut new = outdated.clone();
        new["spec"]["containers"][1]["resources"]["limits"]["memory"] = json!(memory);
        let ask = Ask::update(&outdated, &new).on("resize");
        assert_eq!(ask.reasons(), reasons, "{memory}");
    }
    // Quantities that are outside of the bounds before a resize may stay, or come nearer to them.
    for (before, after, reasons) in [
        ("32Mi", "32Mi", &[][..]),
        ("32Mi", "48Mi", &[]),
        ("32Mi", "512Mi", &[]),
        ("32Mi", "31Mi", &["ContainerDiffers"]),
        ("2Gi", "1Gi", &[]),
        ("2Gi", "3Gi", &["ContainerDiffers"]),
        ("2Gi", "63Mi", &["ContainerDiffers"]),
    ] {
        let resized = |memory: &str| {
            let mut pod = old.clone();
            pod["spec"]["containers"][1]["resources"]["limits"]["memory"] = json!(memory);
            pod["metadata"]["annotations"]["example.com/resized"] = json!(after);
            pod
        };
        let mut before_pod = resized(before);
        before_pod["metadata"]["annotations"]["example.com/resized"] = json!("no");
        let ask = Ask::update(&before_pod, &resized(after)).on("resize");
        assert_eq!(ask.reasons(), reasons, "{before} {after}");
    }
}

fn scaled(pod: &Value, resources: &Value, lists: &[&str]) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"]["vpaUpdates"] = json!("Pod resources updated by web");
    for list in lists {
        for container in
            pod["spec"][list].as_array_mut().unwrap().iter_mut().filter(|it| it["name"] != "model")
        {
            json_patch::merge(&mut container["resources"], resources);
        }
    }
    pod
}

#[test]
fn an_autoscaler_may_change_resources_within_bounds() {
    let pod = injected(&secured());
    let requests = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let both = |cpu: &str, memory: &str| {
        let list = json!({"cpu": cpu, "memory": memory});
        json!({"requests": list, "limits": list})
    };
    for (resources, init, field) in [
        (requests("50m", "64Mi"), requests("50m", "16Mi"), None),
        (both("1", "512Mi"), both("1", "128Mi"), None),
        (requests("11m", "20Mi"), json!({}), Some("resources.requests.cpu: expected 50m to 1, found 11m")),
        (both("10m", "16Mi"), json!({}), Some("resources.requests.cpu: expected 50m to 1, found 10m")),
        (json!(null), json!({}), Some("resources.requests.cpu: expected 50m to 1, found none")),
        (both("1", "1Gi"), json!({}), Some("resources.requests.memory: expected 64Mi to 512Mi, found 1Gi")),
    ] {
        let changed = scaled(&scaled(&pod, &resources, &["containers"]), &init, &["initContainers"]);
        let denial = Ask::create(&changed).denial();
        let Some(field) = field else {
            assert_eq!(denial, "", "{resources}");
            // A reinvocation of /mutate does not change it.
            assert_eq!(injected_by(&changed, &configuration()), changed);
            continue;
        };
        let says = format!(
            "container first: it is part of the pod's auditor chain and differs from the plan in {field}; exclude it in the \
             pod's VerticalPodAutoscaler: resourcePolicy.containerPolicies with containerName: \"first\", mode: \"Off\""
        );
        assert_says(&denial, &[&says]);
        let mut unscaled = changed.clone();
        unscaled["metadata"]["annotations"].as_object_mut().unwrap().remove("vpaUpdates");
        let denial = Ask::create(&unscaled).denial();
        assert!(denial.contains(field) && !denial.contains("Autoscaler"), "{denial}");
        // In place.
        let resize = Ask::update(&pod, &changed).on("resize");
        assert!(resize.denial().contains(&says), "{}", resize.denial());
    }
    let changed = scaled(&pod, &requests("11m", "20Mi"), &["initContainers"]);
    let denial = Ask::create(&changed).denial();
    assert_says(&denial, &["init container lucid-init: ", "\"lucid-init\", mode: \"Off\""]);
}

#[test]
fn a_choice_that_the_namespace_does_not_allow_is_refused() {
    let keys = "auditor-chain auditors audit-mode skip-audit target-port direction sidecar-mode intercept open-ports";
    for key in keys.split(' ') {
        let key = format!("lucid.computing/{key}");
        let pod = injected(&secured());
        let annotated = |pod: &Value| {
            let mut pod = pod.clone();
            pod["metadata"]["annotations"][&key] = json!("true");
            pod
        };
        let ask = |choices| Ask::create(&annotated(&pod)).with(|ask| ask.pod_choices = choices);
        assert!(!ask(PodChoices::All).reasons().contains(&"ChoiceNotAllowed"), "{key}");
        let denial = ask(PodChoices::None).denial();
        let setting = r#"lucid.computing/pod-choices of the namespace is "none""#;
        let says = format!("annotation {key} is not allowed: {setting}");
        assert!(denial.contains(&says), "{key}: {denial}");
        let by_chain = ask(PodChoices::Chain).reasons().contains(&"ChoiceNotAllowed");
        assert_eq!(by_chain, !key.contains("auditor"), "{key}");
        // The choice matters only when the pod is created.
        let update = Ask::update(&pod, &annotated(&pod)).with(|ask| ask.pod_choices = PodChoices::None);
        assert_eq!(update.denial(), "", "{key}");
    }
}

#[test]
fn ports_must_be_as_closed_as_the_namespace_requires() {
    let closed = |mut pod: Value| {
        pod["metadata"]["annotations"]["lucid.computing/other-ports"] = json!("closed");
        pod
    };
    let closing = |ask: &mut Ask| ask.other_ports = Some("closed");
    assert_eq!(Ask::create(&injected(&closed(secured()))).denial(), "");
    assert_eq!(Ask::create(&injected(&closed(secured()))).with(closing).denial(), "");
    // Rules that leave the ports open.
    let open = injected(&secured());
    assert_eq!(Ask::create(&open).denial(), "");
    assert_eq!(Ask::create(&open).with(closing).reasons(), ["ContainerDiffers"]);
    assert_eq!(Ask::create(&closed(open.clone())).reasons(), ["ContainerDiffers"]);
    // A running pod keeps its rules.
    let mut labelled = open.clone();
    labelled["metadata"]["labels"]["team"] = json!("a");
    assert_eq!(Ask::update(&open, &labelled).with(closing).denial(), "");
}

#[test]
fn ports_that_the_namespace_closes_need_rules() {
    let mut configuration = configuration();
    configuration.overrides.intercept = Some(Intercept::Env);
    let pod = injected_by(&secured(), &configuration);
    let ask = |of_namespace| {
        Ask::create(&pod).with(|ask| {
            ask.configuration = configuration.clone();
            ask.other_ports = of_namespace;
        })
    };
    assert_eq!(ask(None).denial(), "");
    let refused = ask(Some("closed"));
    assert_eq!(refused.reasons(), ["PortsNotClosed"]);
    let parts = [
        r#"lucid.computing/other-ports of the namespace is "closed", which needs network rules"#,
        r#"expected lucid.computing/intercept "redirect", found "env" (operator configuration)"#,
        r#"or set lucid.computing/other-ports: "open" on the namespace"#,
    ];
    assert_says(&refused.denial(), &parts);
    // An annotation of the pod itself is not a requirement.
    let mut closed = pod.clone();
    closed["metadata"]["annotations"]["lucid.computing/other-ports"] = json!("closed");
    let ask = Ask::create(&closed).with(|ask| ask.configuration = configuration.clone());
    assert_eq!(ask.denial(), "");
}
