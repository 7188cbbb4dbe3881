//! Examples from the public contract.

use crate::common::*;
use lucid_chain::{
    AuditMode, Catalogue, ChainSource, Configuration, Decision, Direction, NamespaceChain, Overrides, Plan,
    SkipPolicy, Trigger, keys,
};
use serde_json::{Value, json};

/// Formats the ports of a chain as `8090 -> 8093 -> 5000`.
fn route(plan: &Plan) -> String {
    let mut ports: Vec<_> = plan.containers.iter().map(|planned| planned.port.to_string()).collect();
    ports.push(plan.model_port.port.to_string());
    ports.join(" -> ")
}

#[test]
fn the_keys_match_the_contract() {
    let written = [
        (keys::ENABLED_LABEL, "lucid.computing/enabled"),
        (keys::SECURED_LABEL, "lucid.io/secured"),
        (keys::AUDITORS, "lucid.computing/auditors"),
        (keys::AUDITOR_CHAIN, "lucid.computing/auditor-chain"),
        (keys::AUDIT_MODE, "lucid.computing/audit-mode"),
        (keys::SKIP_AUDIT, "lucid.computing/skip-audit"),
        (keys::TARGET_PORT, "lucid.computing/target-port"),
        (keys::DIRECTION, "lucid.computing/direction"),
        (keys::SIDECAR_MODE, "lucid.computing/sidecar-mode"),
        (keys::INTERCEPT, "lucid.computing/intercept"),
        (keys::STATUS, "lucid.computing/status"),
        (keys::NAMESPACE_CONFIG_MAP, "lucid-auditor-chain"),
        (keys::CHAIN_KEY, "chain"),
        (keys::CATALOGUE_KEY, "auditors.yaml"),
        (keys::CATALOGUE_CONFIG_MAP, "lucid-auditors"),
        (keys::INIT_CONTAINER, "lucid-init"),
        (keys::TRUE, "true"),
    ];
    for (key, text) in written {
        assert_eq!(key, text);
    }
}

#[test]
fn only_the_label_or_the_auditors_annotation_triggers() {
    let pod = |labels: Value, annotations: Value| {
        json!({"metadata": {"labels": labels, "annotations": annotations},
               "spec": {"containers": [{"name": "web", "ports": [{"containerPort": 5000}]}]}})
    };
    let label = |value: &str| json!({"lucid.io/secured": value});
    let cases = [
        (label("true"), json!({}), Some(Trigger::SecuredLabel)),
        (json!({}), json!({"lucid.computing/auditors": "injection"}), Some(Trigger::AuditorsAnnotation)),
        (json!({}), json!({"lucid.computing/auditors": ""}), Some(Trigger::AuditorsAnnotation)),
        (label("false"), json!({}), None),
        (label("TRUE"), json!({}), None),
        (label("1"), json!({}), None),
        (json!({}), json!({}), None),
        (json!({}), json!({"lucid.computing/auditor-chain": "injection"}), None),
        (json!({"lucid.computing/enabled": "true"}), json!({}), None),
    ];
    for (labels, annotations, trigger) in cases {
        let pod = pod(labels, annotations);
        match outcome(&pod).decision {
            Decision::Planned(plan) => assert_eq!(Some(plan.trigger), trigger, "{pod}"),
            decision => assert_eq!((decision, trigger), (Decision::NotRequested, None), "{pod}"),
        }
    }
}

#[test]
fn the_built_in_chain_is_the_same_auditor_twice_under_unique_names() {
    let plan = planned(&pod(json!({}), &[]));
    assert_eq!(plan.source, ChainSource::BuiltIn);
    assert_eq!(auditor_names(&plan), ["lucid-guardrails-auditor"; 2]);
    assert_eq!(names(&plan), ["lucid-guardrails-auditor", "lucid-guardrails-auditor-2"]);
    assert_eq!(route(&plan), "8090 -> 8093 -> 5000");
}

#[test]
fn injection_and_toxicity_yield_8090_8093_5000() {
    let plan = planned(&pod(json!({"lucid.computing/auditors": "injection,toxicity"}), &[5000]));
    assert_eq!(names(&plan), ["lucid-injection-auditor", "lucid-toxicity-auditor"]);
    assert_eq!(route(&plan), "8090 -> 8093 -> 5000");
}

#[test]
fn short_forms_of_a_name_are_equivalent() {
    for name in ["injection", "injection-auditor", "lucid-injection", "lucid-injection-auditor"] {
        let plan = planned(&pod(json!({"lucid.computing/auditor-chain": name}), &[5000]));
        assert_eq!(names(&plan), ["lucid-injection-auditor"], "{name}");
    }
}

#[test]
fn a_taken_port_is_replaced_by_8090_8093_8096() {
    let cases: [(&str, &[u16], &str); 5] = [
        ("guardrails,injection,toxicity", &[], "8090 -> 8093 -> 8096 -> 5000"),
        ("toxicity,injection", &[], "8093 -> 8090 -> 5000"),
        ("injection,toxicity", &[8090], "8093 -> 8096 -> 5000"),
        ("injection,toxicity", &[8090, 8093, 8096], "8099 -> 8102 -> 5000"),
        ("toxicity", &[8090], "8093 -> 5000"),
    ];
    for (chain, taken, expected) in cases {
        let annotations = json!({"lucid.computing/auditors": chain, "lucid.computing/target-port": "5000"});
        assert_eq!(route(&planned(&pod(annotations, taken))), expected, "{chain} {taken:?}");
    }
}

#[test]
fn chain_sources_are_ordered_by_precedence() {
    let operator =
        without_rules(Configuration::new(Catalogue::builtin(), Some(&["toxicity".to_owned()])).unwrap());
    let data = [("chain".to_owned(), "injection, toxicity".to_owned())].into();
    let namespace =
        NamespaceChain::from_data("team-a", &data, &Catalogue::builtin(), &lucid_chain::AuditorImages::all())
            .unwrap();
    let auditors = json!({"lucid.computing/auditors": "guardrails"});
    let both = json!({"lucid.computing/auditors": "guardrails", "lucid.computing/auditor-chain": "toxicity,guardrails"});
    type Case<'c> = (Value, Option<&'c NamespaceChain>, &'c Configuration, ChainSource, &'c [&'c str]);
    let cases: [Case<'_>; 5] = [
        (both, Some(&namespace), &operator, ChainSource::AuditorChainAnnotation, &["toxicity", "guardrails"]),
        (auditors, Some(&namespace), &operator, ChainSource::AuditorsAnnotation, &["guardrails"]),
        (json!({}), Some(&namespace), &operator, ChainSource::Namespace, &["injection", "toxicity"]),
        (json!({}), None, &operator, ChainSource::Operator, &["toxicity"]),
        (json!({}), None, &builtin(), ChainSource::BuiltIn, &["guardrails", "guardrails"]),
    ];
    for (annotations, namespace, configuration, source, chain) in cases {
        let plan = planned_by(outcome_in(&pod(annotations, &[5000]), configuration, namespace));
        let chain: Vec<_> = chain.iter().map(|name| format!("lucid-{name}-auditor")).collect();
        assert_eq!((plan.source, auditor_names(&plan)), (source, chain.iter().map(String::as_str).collect()));
    }
}

#[test]
fn setting_sources_are_ordered_by_precedence() {
    let pod_of = |annotations| pod(annotations, &[5000]);
    let annotated = json!({"lucid.computing/audit-mode": "enforce", "lucid.computing/direction": "both"});
    let file =
        Catalogue::parse("auditors.yaml", "defaults: {audit-mode: observe, direction: outbound}").unwrap();
    let mut configuration =
        without_rules(Configuration::new(Catalogue::builtin().overlay(&file), None).unwrap());
    let settings = |annotations: &Value, configuration: &Configuration| {
        let plan = planned_by(outcome_in(&pod_of(annotations.clone()), configuration, None));
        (plan.audit_mode.value, plan.direction.value)
    };
    assert_eq!(settings(&json!({}), &builtin()), (AuditMode::Enforce, Direction::Inbound));
    assert_eq!(settings(&json!({}), &configuration), (AuditMode::Observe, Direction::Outbound));
    assert_eq!(settings(&annotated, &configuration), (AuditMode::Enforce, Direction::Both));
    configuration.overrides = Overrides {
        audit_mode: Some(AuditMode::Observe),
        direction: Some(Direction::Inbound),
        ..configuration.overrides
    };
    assert_eq!(settings(&annotated, &configuration), (AuditMode::Observe, Direction::Inbound));
}

#[test]
fn the_example_of_auditors_yaml_is_accepted() {
    let yaml = "chain:
  - name: lucid-injection-auditor     # short forms injection, injection-auditor mean the same
    description: Detects prompt injection
    image: ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    port: 8090                        # default 8080 in this file
    env: {THRESHOLD: \"0.8\"}
    labels: {tier: core}
    resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 500m, memory: 256Mi}}
  - {name: pii, image: registry.example/pii}
";
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
    let auditor = catalogue.resolve("injection").unwrap();
    assert_eq!(auditor.description(), "Detects prompt injection");
    assert_eq!(auditor.port().get(), 8090);
    assert_eq!(auditor.env()["THRESHOLD"], "0.8");
    assert_eq!(auditor.labels()["tier"], "core");
    assert_eq!(auditor.resources().limits["memory"], "256Mi");
    assert_eq!(catalogue.resolve("pii").unwrap().port().get(), 8080);

    let configuration =
        without_rules(Configuration::new(catalogue, Some(&["injection".to_owned()])).unwrap());
    let pod = pod(json!({}), &[5000]);
    let patched = injected_with(&pod, &configuration);
    let container = &patched["spec"]["containers"][1];
    assert!(
        container["image"]
            .as_str()
            .unwrap()
            .starts_with("ghcr.io/lucid/lucid-injection-auditor:1.4.2@sha256:")
    );
    let env = container["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "THRESHOLD", "value": "0.8"})));
}

#[test]
fn the_built_in_catalogue_has_three_auditors() {
    let builtin = Catalogue::builtin();
    let found: Vec<_> = builtin
        .auditors()
        .iter()
        .map(|auditor| (auditor.name(), auditor.port().get(), auditor.image()))
        .collect();
    assert_eq!(
        found,
        [
            ("lucid-guardrails-auditor", 8090, "ghcr.io/lucid/lucid-guardrails-auditor:latest"),
            ("lucid-injection-auditor", 8090, "ghcr.io/lucid/lucid-injection-auditor:latest"),
            ("lucid-toxicity-auditor", 8093, "ghcr.io/lucid/lucid-toxicity-auditor:latest"),
        ]
    );
}

#[test]
fn a_container_matches_the_contract() {
    let annotations =
        json!({"lucid.computing/auditors": "guardrails,toxicity", "lucid.computing/audit-mode": "observe"});
    let patched = injected(&pod(annotations, &[5000]));
    let container = &patched["spec"]["containers"][1];
    assert_eq!(container["name"], "lucid-guardrails-auditor");
    assert_eq!(container["image"], "ghcr.io/lucid/lucid-guardrails-auditor:latest");
    assert_eq!(container["ports"], json!([{"containerPort": 8090}]));
    assert_eq!(
        container["env"],
        json!([
            {"name": "LUCID_AUDITOR_ID", "value": "lucid-guardrails-auditor"},
            {"name": "LUCID_CHAIN_NEXT", "value": "http://localhost:8093"},
            {"name": "AUDITOR_URL", "value": "http://localhost:8093"},
            {"name": "LUCID_AUDITOR_PORT", "value": "8090"},
            {"name": "PORT", "value": "8090"},
            {"name": "LUCID_AUDIT_MODE", "value": "observe"},
        ])
    );
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}})
    );
    assert!(container["securityContext"]["runAsUser"].as_u64().unwrap() > 1000);
    let last = &patched["spec"]["containers"][2]["env"];
    assert_eq!(last[1], json!({"name": "LUCID_CHAIN_NEXT", "value": "http://localhost:5000"}));
}

/// Returns an application on port 8000 that calls a model through auditors on 8081 and 8082.
fn outbound_example() -> (Value, Configuration) {
    let yaml = "chain: [{name: one, image: a, port: 8081}, {name: two, image: b, port: 8082}]";
    let catalogue = Catalogue::parse("auditors.yaml", yaml).unwrap();
    let chain = ["one".to_owned(), "two".to_owned()];
    let configuration = Configuration::new(catalogue, Some(&chain)).unwrap();
    (pod(json!({"lucid.computing/direction": "outbound"}), &[8000]), configuration)
}

#[test]
fn an_application_calls_its_model_through_8081_and_8082() {
    let (pod, configuration) = outbound_example();
    let plan = planned_by(outcome_in(&pod, &configuration, None));
    assert_eq!(route(&plan), "8081 -> 8082 -> 5000");
    let patched = injected_with(&pod, &configuration);
    let application = &patched["spec"]["containers"][0];
    assert_eq!(application["env"], json!([{"name": "AUDITOR_URL", "value": "http://localhost:8081"}]));
    let variable = &patched["spec"]["initContainers"][0]["env"][0];
    assert_eq!(variable["name"], "LUCID_REDIRECT");
    assert!(variable["value"].as_str().unwrap().contains(r#""outbound":[8000]"#), "{variable}");
}

#[test]
fn the_iptables_form_redirects_port_8000_to_8081() {
    let (pod, configuration) = outbound_example();
    let init = planned_by(outcome_in(&pod, &configuration, None)).init.unwrap();
    let rules = init.redirect.iptables_restore();
    let rules: Vec<_> = rules.lines().collect();
    assert!(
        rules.iter().any(|rule| rule.contains("N LUCID_REDIRECT") || rule.starts_with(":LUCID_REDIRECT "))
    );
    assert!(rules.contains(&"-A LUCID_REDIRECT -p tcp -j REDIRECT --to-ports 8081"), "{rules:#?}");
    let leaving = |rule: &&&str| rule.starts_with("-A OUTPUT ! -o lo ") && rule.contains(" --dport 8000 ");
    let jumps: Vec<_> = rules.iter().filter(leaving).collect();
    assert!(matches!(jumps[..], [jump] if jump.ends_with(" -j LUCID_REDIRECT")), "{rules:#?}");
}

#[test]
fn the_nft_form_is_one_inet_table_with_a_rule_per_auditor() {
    let pod = pod(json!({"lucid.computing/auditors": "injection,toxicity"}), &[5000]);
    let init = planned_by(outcome_in(&pod, &with_rules(), None)).init.unwrap();
    let script = init.redirect.nft_script();
    // Every command refers to the same table.
    assert!(script.lines().all(|line| line.contains(" inet lucid")), "{script}");
    for rule in [
        "type nat hook prerouting priority -100",
        "type nat hook output priority -100",
        "tcp dport { 5000, 8093 } redirect to :8090",
        "meta skuid 20001",
        "meta skuid 20002",
    ] {
        assert!(script.contains(rule), "{rule} is not in\n{script}");
    }
}

#[test]
fn skip_audit_requires_a_permitting_policy() {
    let mut pod = pod(json!({"lucid.computing/skip-audit": "true"}), &[5000]);
    pod["spec"]["serviceAccountName"] = json!("builder");
    pod["metadata"]["namespace"] = json!("tools");
    let listed = SkipPolicy::ServiceAccounts(["tools/builder".to_owned()].into());
    let other = SkipPolicy::ServiceAccounts(["tools/default".to_owned(), "builder/tools".to_owned()].into());
    for (policy, skipped) in
        [(SkipPolicy::Never, false), (SkipPolicy::Always, true), (listed, true), (other, false)]
    {
        let mut configuration = builtin();
        configuration.skip = policy.clone();
        let outcome = outcome_in(&pod, &configuration, None);
        assert_eq!(matches!(outcome.decision, Decision::Skipped { .. }), skipped, "{policy:?}");
        assert_eq!(outcome.warnings.len(), usize::from(!skipped), "{policy:?}");
    }
}

#[test]
fn the_status_is_json_with_version_chain_images_and_hash() {
    let patched = injected(&pod(json!({"lucid.computing/auditors": "injection"}), &[5000]));
    let status = patched["metadata"]["annotations"]["lucid.computing/status"].as_str().unwrap();
    let status: Value = serde_json::from_str(status).unwrap();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["chain"], json!(["lucid-injection-auditor"]));
    assert_eq!(status["images"], json!(["ghcr.io/lucid/lucid-injection-auditor:latest"]));
    let hash = status["planHash"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
}
