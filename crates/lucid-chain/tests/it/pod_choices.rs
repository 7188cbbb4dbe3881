//! Annotations that the administrator reserves.

use std::collections::BTreeMap;

use crate::common::*;
use lucid_chain::{
    Configuration, Decision, Inputs, NamespaceSettings, Outcome, PodChoices, PodView, SkipPolicy, keys, plan,
};
use serde_json::{Value, json};

const CHAIN: [(&str, &str); 2] = [(keys::AUDITOR_CHAIN, "toxicity"), (keys::AUDITORS, "toxicity")];
const SETTINGS: [(&str, &str); 6] = [
    (keys::AUDIT_MODE, "observe"),
    (keys::SKIP_AUDIT, "true"),
    (keys::TARGET_PORT, "7000"),
    (keys::DIRECTION, "outbound"),
    (keys::SIDECAR_MODE, "native"),
    (keys::INTERCEPT, "env"),
];

fn outcome_with(annotations: Value, choices: PodChoices) -> Outcome {
    let json = pod(annotations, &[5000]).to_string();
    let mut configuration = Configuration::new(lucid_chain::Catalogue::builtin(), None).unwrap();
    configuration.skip = SkipPolicy::Always;
    let view = PodView::from_json(&json).unwrap();
    let mut settings = NamespaceSettings::default();
    settings.pod_choices = choices;
    plan(&view, &Inputs { settings: &settings, ..Inputs::new(&configuration) })
}

#[test]
fn annotations_count_only_if_the_namespace_allows_them() {
    let without = outcome_with(json!({}), PodChoices::None);
    let all = CHAIN.into_iter().chain(SETTINGS);
    for ((key, value), is_chain) in all.zip([true, true].into_iter().chain([false; 6])) {
        for choices in [PodChoices::None, PodChoices::Chain, PodChoices::All] {
            let outcome = outcome_with(json!({key: value}), choices);
            let counts = choices == PodChoices::All || (is_chain && choices == PodChoices::Chain);
            assert_eq!(outcome.decision != without.decision, counts, "{key} {choices}");
            let ignored = format!(
                "annotation {key} is ignored: lucid.computing/pod-choices of the namespace is \"{choices}\""
            );
            assert_eq!(warnings(&outcome).contains(&ignored), !counts, "{key} {choices}: {outcome:?}");
        }
    }
}

#[test]
fn a_disallowed_annotation_still_triggers_injection() {
    let mut unlabelled = pod(json!({keys::AUDITORS: "toxicity"}), &[5000]);
    unlabelled["metadata"]["labels"] = json!({});
    let json = unlabelled.to_string();
    let configuration = builtin();
    let settings = settings([(keys::POD_CHOICES, "none")]);
    let inputs = Inputs { settings: &settings, ..Inputs::new(&configuration) };
    let outcome = plan(&PodView::from_json(&json).unwrap(), &inputs);
    let Decision::Planned(plan) = outcome.decision else { panic!("{outcome:?}") };
    assert_eq!(plan.containers.len(), 2, "the configured chain has two auditors");
}

#[test]
fn namespaces_that_require_a_chain_allow_no_choices() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let required = (keys::REQUIRE_CHAIN, "true");
    let choices = |value| (keys::POD_CHOICES, value);
    for (labels, annotations, expected) in [
        (map(&[]), map(&[]), PodChoices::Unset),
        (map(&[(keys::REQUIRE_CHAIN, "false")]), map(&[(keys::REQUIRE_CHAIN, "")]), PodChoices::Unset),
        (map(&[(keys::REQUIRE_CHAIN, "True")]), map(&[]), PodChoices::None),
        (map(&[]), map(&[(keys::REQUIRE_CHAIN, " yes ")]), PodChoices::None),
        (map(&[choices("all")]), map(&[]), PodChoices::All),
        (map(&[required]), map(&[]), PodChoices::None),
        (map(&[]), map(&[required]), PodChoices::None),
        (map(&[required, choices("chain")]), map(&[]), PodChoices::Chain),
        (map(&[required]), map(&[choices(" all ")]), PodChoices::All),
        (map(&[choices("none")]), map(&[]), PodChoices::None),
        (map(&[choices("all")]), map(&[choices("chain")]), PodChoices::Chain),
    ] {
        let found = NamespaceSettings::new(&labels, &annotations);
        assert_eq!((found.pod_choices, found.problems().len()), (expected, 0));
    }
    for value in ["", "None", "everything"] {
        let found = NamespaceSettings::new(&map(&[choices(value)]), &map(&[]));
        assert_eq!(found.pod_choices, PodChoices::None, "{value}");
        let expected = format!(
            r#"lucid.computing/pod-choices: expected "none", "chain" or "all", found "{value}"; "none" applies"#
        );
        assert_eq!(found.problems(), [expected]);
    }
}
