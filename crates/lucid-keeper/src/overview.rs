//! Running pods as `/audit/pods` shows them, in a bounded size.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lucid_text::truncate;
use serde_json::{Value, json};

use crate::fleet::Fleet;

/// Maximum number of pods, and of characters of each reason.
const PODS: usize = 1000;
const REASON: usize = 1024;

pub(crate) fn overview(fleet: &Fleet) -> Value {
    let mut counts = BTreeMap::<_, usize>::new();
    let mut pods: Vec<_> = fleet.pods().collect();
    for pod in &pods {
        *counts.entry(pod.state.as_str()).or_default() += 1;
    }
    pods.sort_by_key(|pod| (!pod.state.is_problem(), Reverse(pod.state)));
    let more = pods.len().saturating_sub(PODS);
    pods.truncate(PODS);
    let pods: Vec<_> = pods
        .into_iter()
        .map(|pod| {
            json!({
                "namespace": pod.namespace,
                "pod": pod.name,
                "workload": pod.workload.as_ref().map(ToString::to_string),
                "state": pod.state,
                "reason": truncate(pod.reason(), REASON),
            })
        })
        .collect();
    json!({"watches": fleet.is_listed(), "counts": counts, "pods": pods, "more": more})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::pod;
    use crate::state::State;

    #[test]
    fn problems_are_first_in_a_bounded_number_of_pods() {
        let mut fleet = Fleet::default();
        assert_eq!(overview(&fleet)["watches"], false);
        fleet.begin_list();
        for number in 0..1500 {
            fleet.set(pod(number, State::Audited, String::new()));
        }
        fleet.set(pod(1500, State::Stale, String::new()));
        fleet.set(pod(1501, State::Missing, "long ".repeat(1000)));
        fleet.set(pod(1502, State::Skipped, String::new()));
        fleet.end_list();
        assert!(fleet.is_complete());
        let overview = overview(&fleet);
        assert_eq!(overview["watches"], true);
        assert_eq!(overview["counts"], json!({"Audited": 1500, "Missing": 1, "Skipped": 1, "Stale": 1}));
        let pods = overview["pods"].as_array().unwrap();
        assert_eq!((pods.len(), &overview["more"]), (1000, &json!(503)));
        let first: Vec<_> = pods.iter().map(|pod| pod["state"].as_str().unwrap()).take(4).collect();
        assert_eq!(first, ["Missing", "Stale", "Skipped", "Audited"]);
        assert!(pods[0]["reason"].as_str().unwrap().len() < 1100);
        assert_eq!((&pods[0]["namespace"], &pods[0]["pod"]), (&json!("shop"), &json!("web-1501")));
    }
}
