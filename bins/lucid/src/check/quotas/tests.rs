use lucid_chain::{Catalogue, Configuration};
use serde_json::json;

use super::*;

fn chain(yaml: &str, is_native: bool) -> Chain {
    let catalogue = Catalogue::builtin().overlay(&Catalogue::parse("auditors.yaml", yaml).unwrap());
    let configuration = Configuration::new(catalogue, None).unwrap();
    let pod = r#"{"spec": {"containers": [{"name": "model"}]}}"#;
    let pod = PodView::from_json(pod).unwrap();
    let Decision::Planned(plan) =
        plan(&pod, &Inputs { forced: true, ..Inputs::new(&configuration) }).decision
    else {
        panic!("no chain")
    };
    Chain { is_native, ..Chain::planned(&plan) }
}

const A: &str = "lucid-guardrails-auditor, lucid-guardrails-auditor-2";
const ALL: &str = "lucid-guardrails-auditor, lucid-guardrails-auditor-2, lucid-init";
const BUILTIN: &str = "defaults: {audit-mode: enforce}";
const SET: &str = "defaults: {resources: {requests: {cpu: 150m, memory: 128Mi, ephemeral-storage: 64Mi}, \
                   limits: {cpu: 600m, memory: 256Mi, ephemeral-storage: 128Mi}}}";

#[test]
fn a_quota_is_reported_if_the_chain_lacks_or_exceeds_it() {
    let requests = "defaults: {resources: {requests: {cpu: 100m}}}";
    for (yaml, is_native, hard, expected) in [
        (
            BUILTIN,
            false,
            json!({"requests.cpu": "4", "limits.memory": "1Gi", "pods": "0", "services": "1"}),
            vec![],
        ),
        (
            BUILTIN,
            false,
            json!({"requests.ephemeral-storage": "10Gi"}),
            vec![(
                Status::Warning,
                format!("requests.ephemeral-storage: expected a quantity, found none in {ALL}"),
            )],
        ),
        (SET, false, json!({"limits.ephemeral-storage": "256Mi", "ephemeral-storage": "128Mi"}), vec![]),
        (
            requests,
            false,
            json!({"limits.cpu": "1", "cpu": "1"}),
            vec![(Status::Failed, format!("limits.cpu: expected a quantity, found none in {ALL}"))],
        ),
        (
            requests,
            false,
            json!({"memory": "1Gi"}),
            vec![(Status::Failed, format!("requests.memory: expected a quantity, found none in {ALL}"))],
        ),
        (BUILTIN, false, json!({"limits.cpu": "1"}), vec![]),
        (BUILTIN, true, json!({"limits.cpu": "1500m"}), vec![]),
        (
            BUILTIN,
            true,
            json!({"limits.cpu": "1"}),
            vec![(
                Status::Failed,
                "limits.cpu: expected at most 1, found 1500m in the chain alone".to_owned(),
            )],
        ),
        (
            BUILTIN,
            false,
            json!({"requests.memory": "255Mi"}),
            vec![(
                Status::Failed,
                "requests.memory: expected at most 255Mi, found 256Mi in the chain alone".to_owned(),
            )],
        ),
    ] {
        let spec = serde_json::from_value(json!({"hard": hard})).unwrap();
        assert_eq!(quota_problems(&spec, &chain(yaml, is_native)), expected, "{yaml} {hard}");
    }
}

#[test]
fn a_quota_for_some_pods_is_not_reported() {
    for (scopes, is_reported) in [
        (json!({}), true),
        (json!({"scopes": ["NotBestEffort"]}), true),
        (json!({"scopes": ["NotTerminating", "NotBestEffort"]}), true),
        (json!({"scopes": ["BestEffort"]}), false),
        (json!({"scopes": ["Terminating"]}), false),
        (
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}),
            false,
        ),
    ] {
        let mut spec = json!({"hard": {"limits.cpu": "1m"}});
        json_patch::merge(&mut spec, &scopes);
        let problems = quota_problems(&serde_json::from_value(spec).unwrap(), &chain(BUILTIN, false));
        assert_eq!(!problems.is_empty(), is_reported, "{scopes}");
    }
}

#[test]
fn a_limit_range_is_reported_if_a_container_violates_it() {
    let only = "defaults: {resources: {requests: {cpu: 100m}}}";
    for (yaml, item, expected) in [
        (
            BUILTIN,
            json!({"min": {"cpu": "100m"}, "max": {"memory": "256Mi"}, "maxLimitRequestRatio": {"cpu": "5"}}),
            vec![],
        ),
        (
            BUILTIN,
            json!({"min": {"cpu": "150m"}, "maxLimitRequestRatio": {"cpu": "4"}}),
            vec![
                format!("requests.cpu: expected at least 150m, found 100m in {ALL}"),
                format!("limits.cpu: expected at most 4 times requests.cpu, found 500m and 100m in {ALL}"),
            ],
        ),
        (SET, json!({"min": {"cpu": "150m"}, "maxLimitRequestRatio": {"cpu": "4"}}), vec![]),
        (
            BUILTIN,
            json!({"max": {"memory": "255Mi"}}),
            vec![format!("limits.memory: expected at most 255Mi, found 256Mi in {A}")],
        ),
        (
            BUILTIN,
            json!({"min": {"memory": "64Mi"}}),
            vec!["requests.memory: expected at least 64Mi, found 32Mi in lucid-init".to_owned()],
        ),
        (
            only,
            json!({"min": {"memory": "1"}}),
            vec![format!("requests.memory: expected at least 1, found none in {ALL}")],
        ),
        (
            only,
            json!({"max": {"cpu": "1"}}),
            vec![format!("limits.cpu: expected at most 1, found none in {ALL}")],
        ),
        (
            only,
            json!({"maxLimitRequestRatio": {"cpu": "2"}}),
            vec![format!("limits.cpu: expected at most 2 times requests.cpu, found none and 100m in {ALL}")],
        ),
        // Defaults that the LimitRange adds.
        (only, json!({"max": {"cpu": "1"}, "default": {"cpu": "1"}}), vec![]),
        (only, json!({"min": {"memory": "1"}, "defaultRequest": {"memory": "1"}}), vec![]),
        (BUILTIN, json!({"type": "Pod", "max": {"cpu": "1"}}), vec![]),
        (
            BUILTIN,
            json!({"type": "Pod", "max": {"cpu": "900m"}}),
            vec!["limits.cpu: expected at most 900m in a pod, found 1 in the chain alone".to_owned()],
        ),
        (BUILTIN, json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}), vec![]),
    ] {
        let mut written = json!({"type": "Container"});
        json_patch::merge(&mut written, &item);
        let spec: LimitRangeSpec = serde_json::from_value(json!({"limits": [written]})).unwrap();
        let chain = chain(yaml, false).with_defaults([&spec].into_iter());
        let expected: Vec<_> = expected.into_iter().map(|text| (Status::Failed, text)).collect();
        assert_eq!(range_problems(&spec, &chain), expected, "{yaml} {item}");
    }
}
