//! Values that contradict each other, and values that cannot be.

use lucid_testbed::Component;
use serde::Deserialize;

use super::{CHART, printed, program, template};

/// Values, and what is said of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    set: Vec<String>,
    says: String,
}

async fn are_refused(cases: &str) {
    for Refused { set, says } in serde_yaml::from_str::<Vec<Refused>>(cases).unwrap() {
        let said = template("lucid-system", &set, &[]).await.expect_err(&set.join(" "));
        assert!(said.contains(&says), "{set:?}: {says:?} is not in {said}");
    }
}

#[tokio::test]
async fn helm_finds_nothing_to_complain_of() {
    let mut helm = program(Component::Helm).await;
    printed(helm.args(["lint", "--strict", CHART]).output().unwrap()).unwrap();
}

#[tokio::test]
async fn values_that_contradict_each_other_fail_with_a_sentence() {
    are_refused(include_str!("contradictions.yaml")).await;
}

#[tokio::test]
async fn values_that_cannot_be_fail_with_their_path() {
    are_refused(include_str!("violations.yaml")).await;
}
