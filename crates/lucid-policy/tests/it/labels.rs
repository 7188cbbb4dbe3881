//! The required label, and misspelled labels and annotations.

use lucid_policy::RequiredLabel;
use serde_json::{Value, json};

use crate::common::{Ask, injected, plain, secured};

fn tiered(pod: &Value) -> Ask {
    Ask::create(pod).with(|ask| ask.policy.required_label = Some(RequiredLabel::default()))
}

fn with_label(key: &str, value: &str) -> Value {
    let mut pod = plain();
    pod["metadata"]["labels"][key] = json!(value);
    pod
}

#[test]
fn pods_must_have_the_required_label_and_value() {
    for (value, reason) in [
        (Some("A"), None),
        (Some("B"), None),
        (Some("C"), Some("TierInvalid")),
        (Some("a"), Some("TierInvalid")),
        (Some(""), Some("TierInvalid")),
        (None, Some("TierMissing")),
    ] {
        let pod = value.map_or_else(plain, |value| with_label("lucid.computing/tier", value));
        let ask = tiered(&pod);
        assert_eq!(ask.reasons(), Vec::from_iter(reason), "{value:?}");
        assert_eq!(ask.denial().is_empty(), reason.is_none());
        let tier = match (value, reason) {
            (None, _) => "missing",
            (_, Some(_)) => "invalid",
            (Some(value), None) => value,
        };
        assert_eq!(ask.evaluate().unwrap().tier, tier);
        assert!(RequiredLabel::default().tiers().any(|known| known == tier));
    }
    assert_eq!(tiered(&plain()).denial(), r#"label lucid.computing/tier is missing, expected "A" or "B""#);
    assert_eq!(
        tiered(&with_label("lucid.computing/tier", "C\n")).denial(),
        r#"label lucid.computing/tier: expected "A" or "B", found "C\n""#
    );
}

#[test]
fn the_required_key_and_values_are_configurable() {
    let ask = |pod: &Value, values: &[&str]| {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Ask::create(pod)
            .with(|ask| ask.policy.required_label = Some(RequiredLabel { key: "team".to_owned(), values }))
    };
    assert_eq!(ask(&with_label("team", "x"), &["x"]).denial(), "");
    assert_ne!(ask(&with_label("team", "y"), &["x"]).denial(), "");
    assert_eq!(ask(&with_label("team", "y"), &[]).denial(), "");
    assert_eq!(ask(&with_label("team", "y"), &[]).evaluate().unwrap().tier, "any");
    assert_ne!(ask(&plain(), &[]).denial(), "");
    assert_eq!(Ask::create(&plain()).denial(), "", "none is required");
}

#[test]
fn an_update_is_evaluated_by_the_label_only_if_it_changes_it() {
    let image = |mut pod: Value| {
        pod["spec"]["containers"][0]["image"] = json!("shop/model:2");
        pod
    };
    let update = |old: &Value, new: &Value| {
        Ask::update(old, new).with(|ask| ask.policy.required_label = Some(RequiredLabel::default()))
    };
    assert_eq!(update(&plain(), &image(plain())).denial(), "");
    assert_ne!(update(&with_label("lucid.computing/tier", "A"), &image(plain())).denial(), "");
}

#[test]
fn misspelled_labels_and_annotations_are_reported() {
    for (list, key, meant) in [
        ("labels", "lucid.io/secure", Some("label lucid.io/secured")),
        ("labels", "lucid.computing/secured", Some("label lucid.io/secured")),
        ("labels", "lucid.example/secured", None),
        ("labels", "example.com/secured", None),
        ("labels", "lucid.computing/skip-audit", Some("annotation lucid.computing/skip-audit")),
        ("labels", "lucid.computing/team", None),
        ("labels", "app.kubernetes.io/name", None),
        ("labels", "app", None),
        ("annotations", "lucid.io/secured", Some("label lucid.io/secured")),
        ("annotations", "lucid.computing/auditor-chains", Some("annotation lucid.computing/auditor-chain")),
        ("annotations", "lucid.computing/audit-mod", Some("annotation lucid.computing/audit-mode")),
        ("annotations", "lucid.io/target-port", Some("annotation lucid.computing/target-port")),
        ("annotations", "lucid.computing/target-port", None),
    ] {
        let mut pod = injected(&secured());
        pod["metadata"][list][key] = json!("5000");
        let evaluation = Ask::create(&pod).evaluate().unwrap();
        let found: Vec<_> = evaluation
            .findings
            .iter()
            .filter(|it| it.problem.reason == "Misspelt")
            .map(ToString::to_string)
            .collect();
        match meant {
            None => assert!(found.is_empty(), "{list} {key}: {found:?}"),
            Some(meant) => {
                assert!(found[0].contains(&format!("did you mean the {meant}?")), "{list} {key}: {found:?}")
            }
        }
        assert_eq!(evaluation.denial(), None);
    }
    // Misspellings are reported only if a chain is required.
    let pod = with_label("lucid.io/secure", "true");
    assert_eq!(Ask::create(&pod).reasons(), Vec::<&str>::new());
    assert_eq!(
        Ask::create(&pod).with(|ask| ask.requires_chain = true).reasons(),
        ["ChainMissing", "Misspelt"]
    );
}
