//! Notes that helm prints after an installation.

use serde::Deserialize;
use serde_json::Value;

use super::{CHART, printed};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    set: Vec<String>,
    #[serde(default)]
    says: Vec<String>,
    #[serde(default)]
    omits: Vec<String>,
}

async fn notes(values: &[String]) -> String {
    let mut helm = std::process::Command::new(lucid_e2e::binary("helm").unwrap());
    helm.args(["install", "lucid", CHART, "--namespace", "audit", "--dry-run=client", "--output=json"]);
    // No API server is contacted.
    helm.env("KUBECONFIG", "/nonexistent").args(values.iter().flat_map(|value| ["--set", value]));
    let release: Value = serde_json::from_str(&printed(helm.output().unwrap()).unwrap()).unwrap();
    release["info"]["notes"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn notes_explain_each_mode_and_the_next_steps() {
    for Case { set, says, omits } in serde_yaml::from_str::<Vec<Case>>(include_str!("notes.yaml")).unwrap() {
        let notes = notes(&set).await;
        for part in says.iter().map(String::as_str).chain(["--namespace audit", "rollout status"]) {
            assert!(notes.contains(part), "{set:?}: {part:?} is not in {notes}");
        }
        for part in omits {
            assert!(!notes.contains(&part), "{set:?}: {part:?} is in {notes}");
        }
    }
}
