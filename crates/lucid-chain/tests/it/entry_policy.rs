//! Mode, failure and timeout of single auditors of a chain.

use crate::common::*;
use lucid_chain::{
    AuditMode, Catalogue, Configuration, Inputs, NamespaceSettings, Plan, PodChoices, PodView, keys, plan,
};
use serde_json::{Value, json};

/// Returns mode, failure and timeout of each auditor, as `observe allow 5000`.
fn policies(plan: &Plan) -> Vec<String> {
    let names = [keys::AUDIT_MODE_ENV, keys::AUDIT_FAILURE_ENV, keys::AUDIT_TIMEOUT_ENV];
    let policy =
        |container: Value| -> Vec<_> { names.iter().filter_map(|name| variable(&container, name)).collect() };
    plan.containers.iter().map(|planned| policy(planned.manifest()).join(" ")).collect()
}

fn annotated(chain: &str) -> Value {
    pod(json!({keys::AUDITOR_CHAIN: chain}), &[5000])
}

#[test]
fn parameters_apply_to_their_auditor_alone() {
    for (entry, expected) in [
        ("injection", "enforce"),
        ("injection?mode=observe", "observe"),
        ("injection-auditor?mode=enforce", "enforce"),
        (" lucid-injection-auditor?failure=allow\n", "enforce allow"),
        ("injection?failure=deny&mode=observe&timeout=5s", "observe deny 5000"),
        ("injection?timeout=1ms", "enforce 1"),
        ("injection?timeout=1500ms", "enforce 1500"),
        ("injection?timeout=9999s", "enforce 9999000"),
    ] {
        let pod = annotated(&format!("toxicity,{entry},injection"));
        let outcome = outcome(&pod);
        assert_eq!(outcome.warnings, [], "{entry}");
        assert_eq!(policies(&planned_by(outcome)), ["enforce", expected, "enforce"], "{entry}");
        injected(&pod);
    }
}

#[test]
fn an_invalid_parameter_invalidates_the_chain() {
    let timeout = |found: &str| {
        format!("timeout: expected 1 to 9999 with the unit ms or s, such as 5s; found \"{found}\"")
    };
    for (parameters, problem) in [
        ("", "expected one of mode, failure, timeout; found \"\"".to_owned()),
        ("mode", r#"mode: expected "enforce" or "observe", found """#.to_owned()),
        ("mode=Observe", r#"mode: expected "enforce" or "observe", found "Observe""#.to_owned()),
        ("mode=observe ", String::new()),
        ("mode= observe", r#"mode: expected "enforce" or "observe", found " observe""#.to_owned()),
        ("mode=observe&mode=observe", "expected mode once, found it twice".to_owned()),
        ("mode=observe&", "expected one of mode, failure, timeout; found \"\"".to_owned()),
        ("mode=observe?failure=allow", r#"found "observe?failure=allow""#.to_owned()),
        ("MODE=observe", r#"expected one of mode, failure, timeout; found "MODE""#.to_owned()),
        ("failure=ignore", r#"failure: expected "deny" or "allow", found "ignore""#.to_owned()),
        ("timeout=5", timeout("5")),
        ("timeout=0s", timeout("0s")),
        ("timeout=05s", timeout("05s")),
        ("timeout=+5s", timeout("+5s")),
        ("timeout=10000ms", timeout("10000ms")),
        ("timeout=1.5s", timeout("1.5s")),
        ("timeout=5m", timeout("5m")),
        ("timeout=s", timeout("s")),
    ] {
        let entries = ["toxicity".to_owned(), format!("injection?{parameters}")];
        let outcome = outcome(&annotated(&entries.join(",")));
        let found = warnings(&outcome).concat();
        let of_operator = Configuration::new(Catalogue::builtin(), Some(&entries));
        let of_namespace = namespace(&[("chain", &entries.join(","))]);
        if problem.is_empty() {
            assert_eq!((found.as_str(), of_operator.is_ok(), of_namespace.is_ok()), ("", true, true));
            continue;
        }
        let ignored = "annotation lucid.computing/auditor-chain is ignored: lucid-injection-auditor: ";
        assert!(found.starts_with(ignored) && found.contains(&problem), "{parameters}: {found}");
        let found = of_operator.unwrap_err().to_string();
        let invalid = "failed to read the operator's chain: lucid-injection-auditor: ";
        assert!(found.starts_with(invalid) && found.contains(&problem), "{parameters}: {found}");
        let found = of_namespace.unwrap_err();
        let invalid = "ConfigMap team-a/lucid-auditor-chain, chain: lucid-injection-auditor: ";
        assert!(found.starts_with(invalid) && found.contains(&problem), "{parameters}: {found}");
        assert_eq!(policies(&planned_by(outcome)), ["enforce"; 2], "{parameters}");
    }
}

#[test]
fn the_most_specific_source_wins_below_the_operator() {
    const OWN: &str = "chain: [{name: injection, mode: observe, failure: allow, timeout: 2s}]";
    let strict = |mut configuration: Configuration| {
        configuration.overrides.audit_mode = Some(AuditMode::Enforce);
        configuration
    };
    let plain = || builtin();
    let members = || without_rules(configured(OWN, &["injection"]));
    let chain = || without_rules(configured(OWN, &["injection?mode=enforce&timeout=1s"]));
    let by_chain = namespace(&[("chain", "injection?mode=observe&failure=allow")]).unwrap();
    let by_file = namespace(&[("auditors.yaml", OWN)]).unwrap();
    let auditors = |entry: &str| json!({keys::AUDITOR_CHAIN: entry});
    let mode = |mode: &str| json!({keys::AUDIT_MODE: mode});
    let both = |entry: &str, mode: &str| json!({keys::AUDITOR_CHAIN: entry, keys::AUDIT_MODE: mode});
    let weak = "injection?mode=observe&failure=allow&timeout=1ms";
    for (annotations, namespace, configuration, expected) in [
        // Members of auditors.yaml, and parameters over them.
        (json!({}), None, members(), "observe allow 2000"),
        (json!({}), None, chain(), "enforce allow 1000"),
        (json!({}), Some(&by_file), plain(), "observe allow 2000"),
        (auditors("injection"), Some(&by_file), plain(), "observe allow 2000"),
        (auditors("injection?failure=deny"), None, members(), "observe deny 2000"),
        (json!({}), Some(&by_chain), plain(), "observe allow"),
        // Over the mode of the pod.
        (mode("enforce"), None, members(), "observe allow 2000"),
        (mode("observe"), None, chain(), "enforce allow 1000"),
        (both("injection", "observe"), None, plain(), "observe"),
        (both("injection?mode=enforce", "observe"), None, plain(), "enforce"),
        // The operator's mode is that of all entries, and only its own files and chain set the rest.
        (auditors(weak), None, strict(plain()), "enforce"),
        (auditors(weak), None, strict(members()), "enforce allow 2000"),
        (json!({}), Some(&by_chain), strict(plain()), "enforce"),
        (json!({}), Some(&by_file), strict(plain()), "enforce"),
        (auditors("injection"), Some(&by_file), strict(plain()), "enforce"),
        (json!({}), None, strict(members()), "enforce allow 2000"),
        (json!({}), None, strict(chain()), "enforce allow 1000"),
    ] {
        let pod = pod(annotations, &[5000]);
        let plan = planned_by(outcome_in(&pod, &configuration, namespace));
        assert_eq!(policies(&plan), [expected], "{pod}");
    }
}

#[test]
fn pods_have_parameters_only_where_they_choose_the_mode() {
    let json = annotated("injection?mode=enforce").to_string();
    let view = PodView::from_json(&json).unwrap();
    let configuration = builtin();
    for (choices, is_allowed) in [
        (PodChoices::None, false),
        (PodChoices::Chain, false),
        (PodChoices::Unset, true),
        (PodChoices::All, true),
    ] {
        let mut settings = NamespaceSettings::default();
        settings.pod_choices = choices;
        let outcome = plan(&view, &Inputs { settings: &settings, ..Inputs::new(&configuration) });
        let expected = "annotation lucid.computing/auditor-chain is ignored: expected auditors without parameters, as \
                        lucid.computing/pod-choices of the namespace is \"chain\"; found \"injection?mode=enforce\"";
        assert_eq!(warnings(&outcome).concat() == expected, choices == PodChoices::Chain, "{outcome:?}");
        let names = if is_allowed { 1 } else { 2 };
        assert_eq!(planned_by(outcome).containers.len(), names, "{choices}");
    }
}

#[test]
fn an_observing_auditor_holds_nothing_back() {
    let configuration = configured(
        "chain: [{name: injection, probes: {readiness: {}, startup: {}}}, {name: toxicity, probes: {readiness: {}}}]",
        &["injection?mode=observe", "toxicity"],
    );
    let plan = planned_by(outcome_in(&pod(json!({}), &[5000]), &configuration, None));
    let [observes, enforces] = [0, 1].map(|place: usize| plan.containers[place].manifest());
    assert_eq!((&observes["readinessProbe"], &observes["startupProbe"]), (&Value::Null, &Value::Null));
    assert!(enforces["readinessProbe"].is_object());
    assert_eq!(setting(&plan, "policy of injection"), "mode observe (its entry)");
    assert_eq!(setting(&plan, "policy of toxicity"), "");
}

#[test]
fn another_policy_in_the_pod_is_a_difference() {
    let chain = "toxicity,injection?failure=deny&timeout=5s";
    let injected = injected(&annotated(chain));
    for (place, variable, value) in [
        (1, keys::AUDIT_MODE_ENV, "observe"),
        (1, keys::AUDIT_FAILURE_ENV, "allow"),
        (1, keys::AUDIT_TIMEOUT_ENV, "1"),
        (2, keys::AUDIT_MODE_ENV, "observe"),
        (2, keys::AUDIT_FAILURE_ENV, "allow"),
        (2, keys::AUDIT_TIMEOUT_ENV, "1"),
        (2, keys::AUDIT_TIMEOUT_ENV, "never"),
    ] {
        let mut pod = injected.clone();
        let env = pod["spec"]["containers"][place]["env"].as_array_mut().unwrap();
        env.retain(|it| it["name"] != variable);
        env.insert(env.len().min(6), json!({"name": variable, "value": value}));
        let found = patch_warnings(&patch_of(&pod)).concat();
        assert!(found.contains(&format!("env \"{variable}\"")), "{place} {variable}={value}: {found}");
    }
    let mut pod = injected;
    pod["metadata"]["annotations"][keys::AUDITOR_CHAIN] =
        json!("toxicity,injection?failure=allow&timeout=1s");
    let found = patch_warnings(&patch_of(&pod)).concat();
    assert!(found.contains("lucid-injection-auditor is planned again"), "{found}");
}
