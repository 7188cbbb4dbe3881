//! Effect of findings in each mode.

use lucid_policy::{EffectiveMode, Mode, RequiredLabel, Strictness};
use serde_json::{Value, json};

use crate::common::{Ask, plain, push, secured};

fn auditor_by_tag() -> Value {
    let mut pod = plain();
    push(&mut pod, "containers", json!({"name": "first", "image": "reg.test/first:1"}));
    pod
}

#[test]
fn each_mode_refuses_its_findings_and_records_the_rest() {
    use EffectiveMode::{Audit, Enforce};
    use Strictness::{Lenient, Strict};
    let (image, chain, nothing) = (auditor_by_tag(), secured(), plain());
    // Pod, mode, strictness; then: refused, `would_deny`, recorded mode, number of warnings.
    for (number, (pod, mode, strictness, refused, would_deny, effective, warnings)) in [
        (&image, Mode::Audit, Strict, false, true, Audit, 1),
        (&image, Mode::Audit, Lenient, false, false, Audit, 1),
        (&image, Mode::Enforce, Strict, true, true, Enforce, 0),
        (&image, Mode::Enforce, Lenient, false, false, Enforce, 1),
        (&chain, Mode::Audit, Strict, false, true, Audit, 1),
        (&chain, Mode::Enforce, Lenient, true, true, Enforce, 0),
        (&nothing, Mode::Audit, Strict, false, false, Audit, 0),
        (&nothing, Mode::Enforce, Strict, false, false, Enforce, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let ask = Ask::create(pod).with(|ask| {
            ask.policy.mode = mode;
            ask.policy.strictness = strictness;
        });
        let evaluation = ask.evaluate().unwrap();
        let found = (
            evaluation.denial().is_some(),
            evaluation.would_deny,
            evaluation.mode,
            evaluation.warnings().len(),
        );
        assert_eq!(found, (refused, would_deny, effective, warnings), "row {number}");
    }
}

#[test]
fn a_missing_label_is_reported_in_each_mode() {
    for (mode, refused, warnings) in [(Mode::Audit, false, 1), (Mode::Enforce, true, 0)] {
        let ask = Ask::create(&plain()).with(|ask| {
            ask.policy.mode = mode;
            ask.policy.required_label = Some(RequiredLabel::default());
        });
        let evaluation = ask.evaluate().unwrap();
        assert_eq!(
            (evaluation.denial().is_some(), evaluation.warnings().len()),
            (refused, warnings),
            "{mode:?}"
        );
        assert_eq!((evaluation.would_deny, evaluation.findings.len()), (true, 1));
    }
}

#[test]
fn denials_are_bounded() {
    let mut pod = plain();
    let containers =
        (0..1000).map(|number| json!({"name": format!("first-{number}"), "image": "reg.test/first:1"}));
    pod["spec"]["containers"] = containers.collect();
    let denial = Ask::create(&pod).denial();
    assert!(denial.ends_with("; and 968 more"), "{denial}");
}
