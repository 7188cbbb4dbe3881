//! Triggers and sources of chains.

use crate::common::*;
use lucid_chain::{
    Catalogue, Configuration, Decision, NamespaceChain, SkipPolicy, SkipReason, keys, short_name,
};
use serde_json::{Value, json};

fn operator(chain: &[&str]) -> Configuration {
    configured("defaults: {}", chain)
}

#[test]
fn the_label_or_the_auditors_annotation_is_a_trigger() {
    let label = |value: &str| json!({"lucid.io/secured": value});
    let auditors = |value: &str| json!({"lucid.computing/auditors": value});
    let none = || json!({});
    let (by_label, by_annotation) =
        (Some("label lucid.io/secured"), Some("annotation lucid.computing/auditors"));
    // Labels, annotations, the trigger and the warning, if any.
    let cases = [
        (none(), none(), None, ""),
        (label("true"), none(), by_label, ""),
        (label("false"), none(), None, ""),
        (
            label("yes"),
            none(),
            None,
            "label lucid.io/secured is ignored: expected \"true\" or \"false\", found \"yes\"",
        ),
        (
            label("TRUE"),
            none(),
            None,
            "label lucid.io/secured is ignored: expected \"true\" or \"false\", found \"TRUE\"",
        ),
        (
            label("1"),
            none(),
            None,
            "label lucid.io/secured is ignored: expected \"true\" or \"false\", found \"1\"",
        ),
        (json!({"lucid.computing/enabled": "true"}), none(), None, ""),
        (none(), auditors("injection"), by_annotation, ""),
        (
            none(),
            auditors(""),
            by_annotation,
            "annotation lucid.computing/auditors is ignored: the list is empty, expected auditor names separated by commas; found \"\"",
        ),
        (label("true"), auditors("injection"), by_label, ""),
        (
            label("false"),
            auditors("injection"),
            by_annotation,
            "label lucid.io/secured: \"false\" does not stop the injection that annotation lucid.computing/auditors asks for: remove the annotation",
        ),
        (
            none(),
            json!({"lucid.computing/auditor-chain": "injection"}),
            None,
            "annotation lucid.computing/auditor-chain has no effect without the label lucid.io/secured: \"true\"; the pod gets no auditors",
        ),
        (none(), json!({"lucid.computing/audit-mode": "nonsense"}), None, ""),
    ];
    for (labels, annotations, trigger, warning) in cases {
        let mut pod = pod(annotations, &[5000]);
        pod["metadata"]["labels"] = labels;
        let outcome = outcome(&pod);
        assert_eq!(warnings(&outcome).concat(), warning, "{pod}");
        assert!(outcome.warnings.len() <= 1, "{pod}");
        match (outcome.decision, trigger) {
            (Decision::NotRequested, None) => {}
            (Decision::Planned(plan), Some(trigger)) => {
                assert_eq!(setting(&plan, "injection"), format!("requested ({trigger})"), "{pod}");
            }
            (other, _) => panic!("{pod}: {other:?}"),
        }
    }
}

#[test]
fn skip_audit_takes_effect_only_if_allowed() {
    let pod = pod(json!({keys::SKIP_AUDIT: "true"}), &[5000]);
    let mut configuration = builtin();

    let refused = outcome_in(&pod, &configuration, None);
    assert_eq!(
        warnings(&refused),
        [r#"annotation lucid.computing/skip-audit: "true" is not allowed here; the pod gets its auditors"#]
    );
    assert_eq!(planned_by(refused).containers.len(), 2);

    configuration.skip = SkipPolicy::Always;
    let skipped = outcome_in(&pod, &configuration, None);
    assert_eq!(skipped.decision, Decision::Skipped { reason: SkipReason::Annotation });
    assert!(skipped.warnings.is_empty());

    for value in ["false", "True", ""] {
        let pod = crate::common::pod(json!({keys::SKIP_AUDIT: value}), &[5000]);
        let outcome = outcome_in(&pod, &configuration, None);
        assert_eq!(outcome.warnings.len(), usize::from(value != "false"), "{value}");
        planned_by(outcome);
    }
}

#[test]
fn the_first_source_with_a_valid_chain_wins() {
    let annotated = "annotation lucid.computing/auditor-chain";
    let listed = "annotation lucid.computing/auditors";
    let of_namespace = "ConfigMap lucid-auditor-chain of the namespace";
    let (of_operator, built_in) = ("operator configuration", "built-in default");
    const INVALID: &str = "nonsense";
    let [one, two] = ["toxicity", "injection, toxicity"].map(|chain| namespace(&[("chain", chain)]).unwrap());
    let (one, two) = (Some(&one), Some(&two));
    let (own, none) = (operator(&["guardrails"]), builtin());
    let chain = |chain: &str| json!({keys::AUDITOR_CHAIN: chain, keys::AUDITORS: "injection,injection"});
    let auditors = |names: &str| json!({keys::AUDITORS: names});
    let neither = json!({keys::AUDITORS: INVALID, keys::AUDITOR_CHAIN: INVALID});
    type Case<'a> = (Value, Option<&'a NamespaceChain>, &'a Configuration, &'a str, &'a [&'a str], usize);
    let cases: [Case<'_>; 10] = [
        (chain("toxicity,injection"), one, &own, annotated, &["toxicity", "injection"], 0),
        (chain(INVALID), one, &own, listed, &["injection"; 2], 1),
        (auditors(" toxicity-auditor ,\n injection "), one, &own, listed, &["toxicity", "injection"], 0),
        (auditors(INVALID), one, &own, of_namespace, &["toxicity"], 1),
        (json!({}), one, &own, of_namespace, &["toxicity"], 0),
        (json!({}), two, &own, of_namespace, &["injection", "toxicity"], 0),
        (json!({}), None, &own, of_operator, &["guardrails"], 0),
        (auditors(INVALID), None, &own, of_operator, &["guardrails"], 1),
        (json!({}), None, &none, built_in, &["guardrails"; 2], 0),
        (neither, None, &none, built_in, &["guardrails"; 2], 2),
    ];
    for (annotations, namespace, configuration, source, chain, warned) in cases {
        let pod = pod(annotations, &[5000]);
        let outcome = outcome_in(&pod, configuration, namespace);
        assert_eq!(outcome.warnings.len(), warned, "{pod}");
        let plan = planned_by(outcome);
        let short: Vec<_> = auditor_names(&plan).into_iter().map(short_name).collect();
        assert_eq!(short, chain, "{pod}");
        assert!(setting(&plan, "chain").ends_with(&format!(" ({source})")), "{pod}");
        assert!(auditor_names(&plan).iter().all(|name| name.starts_with("lucid-")), "{pod}");
    }
}

#[test]
fn an_annotation_may_name_auditors_of_the_namespace() {
    let own = namespace(&[(
        "auditors.yaml",
        "chain: [{name: topics, image: topics}, {name: injection, image: mine}]",
    )]);
    let pod = pod(json!({keys::AUDITORS: "toxicity,topics,injection"}), &[5000]);
    let plan = planned_by(outcome_in(&pod, &builtin(), Some(&own.unwrap())));
    let images: Vec<_> = plan.containers.iter().map(|planned| planned.auditor.image()).collect();
    assert_eq!(images, ["ghcr.io/lucid/lucid-toxicity-auditor:latest", "topics", "mine"]);
}

#[test]
fn a_namespace_chain_comes_from_either_key_or_both() {
    const YAML: &str = "chain: [{name: topics, image: topics}, {name: lucid-injection-auditor, image: mine}]";
    type Pairs<'a> = &'a [(&'a str, &'a str)];
    let cases: [(Pairs<'_>, Pairs<'_>); 3] = [
        (
            &[("chain", "toxicity, toxicity\n")],
            &[("lucid-toxicity-auditor", "ghcr.io/lucid/lucid-toxicity-auditor:latest"); 2],
        ),
        (&[("auditors.yaml", YAML)], &[("topics", "topics"), ("lucid-injection-auditor", "mine")]),
        (
            &[("auditors.yaml", YAML), ("chain", "injection,guardrails"), ("other", "")],
            &[
                ("lucid-injection-auditor", "mine"),
                ("lucid-guardrails-auditor", "ghcr.io/lucid/lucid-guardrails-auditor:latest"),
            ],
        ),
    ];
    for (data, expected) in cases {
        let chain = namespace(data).unwrap();
        let found: Vec<_> = chain.chain().iter().map(|auditor| (auditor.name(), auditor.image())).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn an_invalid_config_map_is_rejected_with_name_and_key() {
    let many = vec!["injection"; lucid_chain::MAX_CHAIN + 1].join(",");
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[], "ConfigMap team-a/lucid-auditor-chain: expected the key chain or auditors.yaml, found no data"),
        (
            &[("chains", ""), ("x", "")],
            r#"ConfigMap team-a/lucid-auditor-chain: expected the key chain or auditors.yaml, found only the keys "chains, x""#,
        ),
        (&[("chain", " ")], "ConfigMap team-a/lucid-auditor-chain, chain: the list is empty, expected"),
        (
            &[("chain", "injection,")],
            "ConfigMap team-a/lucid-auditor-chain, chain: item 2 is empty, expected",
        ),
        (
            &[("chain", "injectoin")],
            r#"ConfigMap team-a/lucid-auditor-chain, chain: unknown auditor "injectoin", did you mean lucid-injection-auditor?"#,
        ),
        (
            &[("chain", &many)],
            "ConfigMap team-a/lucid-auditor-chain, chain: the list is too long, expected at most 128 auditors",
        ),
        (
            &[("chain", "injection"), ("auditors.yaml", "chain:\n- name: a\n")],
            "ConfigMap team-a/lucid-auditor-chain, auditors.yaml: line 2, column 3: chain[0]: `image` is missing",
        ),
    ];
    for (data, message) in cases {
        let error = namespace(data).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn an_invalid_operator_chain_is_an_error() {
    let cases: [(&[&str], &str); 3] = [
        (&[], "failed to read the operator's chain: the list is empty, expected auditor names"),
        (&["injection", " "], "failed to read the operator's chain: item 2 is empty"),
        (&["topics"], r#"failed to read the operator's chain: unknown auditor "topics" (known: "#),
    ];
    for (chain, message) in cases {
        let chain: Vec<_> = chain.iter().map(|name| (*name).to_owned()).collect();
        let error = Configuration::new(Catalogue::builtin(), Some(&chain)).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let lacking = parsed("chain: [{name: topics, image: topics}]");
    let error = Configuration::new(lacking, None).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to find the built-in chain in the catalogue: unknown auditor"),
        "{error}"
    );
}
