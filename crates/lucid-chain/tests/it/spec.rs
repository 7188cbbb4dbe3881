//! Examples from the public contract.

use crate::common::*;
use lucid_chain::{Configuration, Decision, Plan, SkipPolicy, keys};
use serde_json::{Value, json};

/// Formats the ports of a chain as `8090 -> 8093 -> 5000`.
fn route(plan: &Plan) -> String {
    let mut ports: Vec<_> = plan.containers.iter().map(|planned| planned.port.to_string()).collect();
    ports.push(model_port(plan).to_string());
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
        (keys::CANARY_CONFIG_MAP, "lucid-auditors-canary"),
        (keys::REVISION_LABEL, "lucid.computing/revision"),
        (keys::CANARY, "canary"),
        (keys::INIT_CONTAINER, "lucid-init"),
        (keys::TRUE, "true"),
    ];
    for (key, text) in written {
        assert_eq!(key, text);
    }
}

#[test]
fn the_built_in_chain_has_one_auditor_twice_with_unique_names() {
    let plan = planned(&pod(json!({}), &[]));
    assert!(setting(&plan, "chain").ends_with(" (built-in default)"));
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
fn pinning_the_documented_auditors_keeps_their_ports() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let pinned = |name: &str, port: &str| {
        format!(
            "- {{name: lucid-{name}-auditor{port}, image: \"ghcr.io/lucid/lucid-{name}-auditor@{digest}\"}}\n"
        )
    };
    for ports in [["", "", ""], [", port: 8090", ", port: 8090", ", port: 8093"]] {
        let [guardrails, injection, toxicity] = ports;
        let yaml = ["chain:\n", &pinned("guardrails", guardrails), &pinned("injection", injection)].concat();
        let configuration = configured(&(yaml + &pinned("toxicity", toxicity)), &["guardrails", "injection"]);
        for (chain, expected) in
            [("injection,toxicity", "8090 -> 8093 -> 5000"), ("", "8090 -> 8093 -> 5000")]
        {
            let annotations = match chain {
                "" => json!({}),
                chain => json!({"lucid.computing/auditors": chain}),
            };
            let plan = planned_by(outcome_in(&pod(annotations, &[5000]), &configuration, None));
            assert_eq!(route(&plan), expected, "{ports:?}");
            assert!(plan.containers.iter().all(|it| it.auditor.image().ends_with(&digest)));
        }
    }
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
    (pod(json!({"lucid.computing/direction": "outbound"}), &[8000]), with_rules())
}

#[test]
fn an_application_calls_its_model_through_8081_and_8082() {
    let (pod, configuration) = outbound_example();
    let plan = planned_by(outcome_in(&pod, &configuration, None));
    // The last hop before the model is lucid-egress, which sends redirected calls to their destination.
    assert_eq!(auditor_names(&plan)[2], "lucid-egress");
    assert_eq!(route(&plan), "8081 -> 8082 -> 8083 -> 5000");
    let patched = injected_with(&pod, &configuration);
    let application = &patched["spec"]["containers"][0];
    assert_eq!(application["env"], json!([{"name": "AUDITOR_URL", "value": "http://localhost:8081"}]));
    let variable = &patched["spec"]["initContainers"][0]["env"][0];
    assert_eq!(variable["name"], "LUCID_REDIRECT");
    assert!(variable["value"].as_str().unwrap().contains(r#""outbound":[8000]"#), "{variable}");
}

#[test]
fn the_iptables_form_redirects_port_8000_to_the_chain() {
    let (pod, configuration) = outbound_example();
    let redirect = redirect_of(&planned_by(outcome_in(&pod, &configuration, None)));
    let rules = redirect.iptables_restore(None);
    let rules: Vec<_> = rules.lines().collect();
    assert!(
        rules.iter().any(|rule| rule.contains("N LUCID_REDIRECT") || rule.starts_with(":LUCID_REDIRECT "))
    );
    // lucid-egress notes the destination and passes the call to 8081.
    assert!(rules.contains(&"-A LUCID_REDIRECT -p tcp -j REDIRECT --to-ports 8084"), "{rules:#?}");
    let leaving = |rule: &&&str| rule.starts_with("-A OUTPUT ! -o lo ") && rule.contains(" --dport 8000 ");
    let jumps: Vec<_> = rules.iter().filter(leaving).collect();
    assert!(matches!(jumps[..], [jump] if jump.ends_with(" -j LUCID_REDIRECT")), "{rules:#?}");
}

#[test]
fn the_nft_form_is_one_inet_table_with_a_rule_per_auditor() {
    let pod = pod(json!({"lucid.computing/auditors": "injection,toxicity"}), &[5000]);
    let redirect = redirect_of(&planned_by(outcome_in(&pod, &with_rules(), None)));
    let script = redirect.nft_script();
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
