//! Break-glass tickets.

use lucid_chain::PodChoices;
use lucid_policy::{BreakGlass, DEFAULT_TICKET_PATTERN, EffectiveMode, Mode, Permission, Tickets, Workload};
use serde_json::{Value, json};

use crate::common::{Ask, assert_says, plain, secured};

fn with_ticket(ticket: &str) -> Value {
    let mut pod = secured();
    pod["metadata"]["labels"]["lucid.computing/break-glass"] = json!(ticket);
    pod
}

fn until(time: &str) -> Value {
    let mut pod = with_ticket("INC-4711");
    pod["metadata"]["annotations"] = json!({"lucid.computing/break-glass-until": time});
    pod
}

#[test]
fn a_ticket_overrides_all_checks_and_is_reported() {
    for mode in [Mode::Enforce, Mode::Audit] {
        let evaluation =
            Ask::create(&with_ticket("INC-4711")).with(|ask| ask.policy.mode = mode).evaluate().unwrap();
        assert_eq!(evaluation.denial(), None, "{mode:?}");
        assert_eq!(
            (evaluation.mode, evaluation.ticket.as_deref()),
            (EffectiveMode::BreakGlass, Some("INC-4711"))
        );
        assert!(evaluation.would_deny && !evaluation.denies());
        let warnings = evaluation.warnings();
        assert_says(&warnings[0], &[r#"break-glass: admitted by ticket "INC-4711""#]);
        let passed_over = "break-glass: passed over: the pod asks for an auditor chain";
        assert!(warnings[1].starts_with(passed_over), "{warnings:?}");
    }
}

#[test]
fn a_ticket_is_recorded_without_findings() {
    let mut pod = plain();
    pod["metadata"]["labels"]["lucid.computing/break-glass"] = json!("INC-1");
    let evaluation = Ask::create(&pod).evaluate().unwrap();
    assert_eq!((evaluation.break_glass, evaluation.ticket.as_deref()), (BreakGlass::Opened, Some("INC-1")));
    assert_eq!((evaluation.would_deny, evaluation.warnings().len()), (false, 1));
}

#[test]
fn invalid_tickets_do_not_override_findings() {
    for (ticket, pattern, opens) in [
        ("INC-4711", None, true),
        ("INC0012345", None, true),
        ("2026.03.01_a", None, true),
        ("true", None, false),
        ("", None, false),
        ("INC 4711", None, false),
        ("INC-4711", Some("INC-[0-9]+"), true),
        ("xINC-4711", Some("INC-[0-9]+"), false),
        ("INC-4711x", Some("INC-[0-9]+"), false),
        ("INC-4711\n", Some("INC-[0-9]+"), false),
        ("CHG-1", Some("INC-[0-9]+|CHG-[0-9]+"), true),
        ("CHG-1-x", Some("INC-[0-9]+|CHG-[0-9]+"), false),
    ] {
        let ask = Ask::create(&with_ticket(ticket)).with(|ask| {
            ask.policy.tickets = Tickets::new(pattern.unwrap_or(DEFAULT_TICKET_PATTERN)).unwrap()
        });
        let evaluation = ask.evaluate().unwrap();
        assert_eq!(evaluation.denial().is_none(), opens, "{ticket:?} {pattern:?}");
        let reasons = ask.reasons();
        assert_eq!(reasons.contains(&"TicketInvalid"), !opens, "{ticket:?}: {reasons:?}");
        assert_eq!(evaluation.break_glass, if opens { BreakGlass::Opened } else { BreakGlass::Refused });
        assert_eq!(evaluation.ticket.is_some(), opens);
    }
    let none = Ask::create(&with_ticket("INC-1")).with(|ask| ask.policy.tickets = Tickets::default());
    assert!(none.denial().contains("asks for an auditor chain"), "{}", none.denial());
    assert!(Tickets::new("INC-(").is_err());
    // A pattern cannot escape the anchors.
    assert!(Tickets::new("INC-1)|(x").is_err());
}

#[test]
fn an_invalid_ticket_does_not_refuse_a_valid_pod() {
    let mut pod = plain();
    pod["metadata"]["labels"]["lucid.computing/break-glass"] = json!("please");
    let evaluation = Ask::create(&pod).evaluate().unwrap();
    assert_eq!(evaluation.denial(), None);
    assert!(evaluation.warnings()[0].contains(r#"found "please""#), "{:?}", evaluation.warnings());
}

#[test]
fn a_ticket_holds_until_its_expiry() {
    // The current time is 12:00 UTC.
    for (time, reason) in [
        ("2026-03-01T12:00:01Z", None),
        ("2026-03-01T14:00:00+01:00", None),
        (" 2026-03-01T13:00:00Z ", None),
        ("2026-03-01T12:00:00Z", Some("TicketExpired")),
        ("2026-03-01T12:30:00+01:00", Some("TicketExpired")),
        ("2026-03-01", Some("ExpiryInvalid")),
        ("tomorrow", Some("ExpiryInvalid")),
        ("", Some("ExpiryInvalid")),
        ("2026-03-01T13:00:00", Some("ExpiryInvalid")),
    ] {
        let ask = Ask::create(&until(time));
        assert_eq!(ask.denial().is_empty(), reason.is_none(), "{time}");
        let reasons = ask.reasons();
        assert_eq!(reasons.iter().copied().find(|it| *it != "ChainMissing"), reason, "{time}");
    }
}

#[test]
fn break_glass_requires_permission() {
    let ask = |permission| Ask::create(&with_ticket("INC-4711")).with(|ask| ask.permission = permission);
    assert_eq!(ask(Permission::Granted).denial(), "");
    let denied = ask(Permission::Denied { reason: "user jane may not".to_owned() });
    assert!(denied.denial().contains("asks for an auditor chain"));
    assert_eq!(denied.reasons(), ["ChainMissing", "NotPermitted"]);
    assert_eq!(denied.evaluate().unwrap().break_glass, BreakGlass::Refused);
}

#[test]
fn restricted_namespaces_require_a_permission_check() {
    for choices in [PodChoices::None, PodChoices::Chain] {
        let ask = |permission| {
            Ask::create(&with_ticket("INC-4711")).with(|ask| {
                ask.pod_choices = choices;
                ask.permission = permission;
            })
        };
        assert_eq!(ask(Permission::Granted).denial(), "");
        let unchecked = ask(Permission::NotRequired);
        assert_eq!(unchecked.reasons(), ["ChainMissing", "TicketNotAllowed"]);
        let setting = format!("lucid.computing/pod-choices of the namespace is \"{choices}\"");
        let warnings = unchecked.evaluate().unwrap().warnings().join("\n");
        let says = |part: &str| unchecked.denial().contains(part) || warnings.contains(part);
        assert!(says("lucid.computing/break-glass") && says(&setting), "{} {warnings}", unchecked.denial());
    }
}

#[test]
fn only_the_ticket_of_a_template_applies_to_its_pods() {
    let pod = with_ticket("INC-4711");
    for workload in Workload::ALL.into_iter().filter(|workload| !workload.is_pod()) {
        let evaluation = Ask::of(workload, &pod).evaluate().unwrap();
        assert_eq!(
            (evaluation.mode, evaluation.ticket.as_deref()),
            (EffectiveMode::BreakGlass, Some("INC-4711"))
        );
        assert_says(&evaluation.warnings()[0], &["pods of this template will be admitted"]);
        // A label of the workload itself does not apply to its pods.
        let outside = Ask::of(workload, &secured()).with(|ask| {
            ask.object["metadata"]["labels"] = json!({"lucid.computing/break-glass": "INC-4711"});
        });
        let evaluation = outside.evaluate().unwrap();
        assert_eq!(evaluation.break_glass, BreakGlass::No, "{workload}");
    }
}
