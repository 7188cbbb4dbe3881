//! Pods in namespaces of OpenShift, whose SecurityContextConstraints set user IDs.

use lucid_chain::Intercept;
use lucid_policy::Mode;
use serde_json::{Value, json};

use crate::common::{Ask, configuration, injected_within, secured};

const FIRST: u32 = 1_000_740_000;

const RANGE: Option<&str> = Some("1000740000/10000");

fn with_first_uid(mut pod: Value) -> Value {
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let user = &mut container["securityContext"]["runAsUser"];
            if user.is_null() {
                *user = json!(FIRST);
            }
        }
    }
    pod["spec"]["securityContext"] = json!({"fsGroup": FIRST, "seLinuxOptions": {"level": "s0:c27,c14"}});
    pod
}

#[test]
fn uids_count_only_if_rules_identify_auditors_by_uid() {
    for (intercept, uid, expected) in [
        (Intercept::Env, FIRST, ""),
        (Intercept::Env, FIRST + 1, ""),
        (Intercept::Redirect, FIRST, ""),
        (Intercept::Redirect, FIRST + 1, "as user 1000740001, by which the kernel knows auditor first"),
        (Intercept::Redirect, FIRST + 2, "as user 1000740002, by which the kernel knows auditor second"),
    ] {
        let mut configuration = configuration();
        configuration.overrides.intercept = Some(intercept);
        let injected = injected_within(&secured(), &configuration, RANGE);
        let stored = with_first_uid(injected);
        let in_range =
            |ask: Ask| ask.with(|ask| (ask.configuration, ask.uid_range) = (configuration.clone(), RANGE));
        assert_eq!(in_range(Ask::create(&stored)).denial(), "", "{intercept}");
        let container = json!({"name": "debug", "image": "busybox",
            "securityContext": {"runAsUser": uid, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        let ask = in_range(Ask::debug(&stored, &container)).with(|ask| ask.policy.mode = Mode::Enforce);
        let denial = ask.denial();
        assert!(
            denial.contains(expected) && denial.is_empty() == expected.is_empty(),
            "{intercept} {uid}: {denial}"
        );
    }
}
