//! Values: contradictions, invalid values, and the meaning of null.

use std::fs;
use std::path::Path;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::{CHART, printed, template};

/// Values, and the expected error.
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
async fn helm_lint_succeeds() {
    let mut helm = std::process::Command::new(lucid_e2e::binary("helm").unwrap());
    printed(helm.args(["lint", "--strict", CHART]).output().unwrap()).unwrap();
}

#[tokio::test]
async fn contradictory_values_fail_with_a_sentence() {
    are_refused(include_str!("contradictions.yaml")).await;
}

#[tokio::test]
async fn invalid_values_fail_with_their_path() {
    are_refused(include_str!("violations.yaml")).await;
}

/// Values that render each part of the chart.
const EVERYTHING: &[&str] = &[
    "webhooks.validating.by=both",
    "webhooks.clientCa.configMap=api-server",
    "certificates.source=cert-manager",
    "verifier.enabled=true",
    "verifier.tlsSecret=verifier",
    "verifier.token.secret=verifier-token",
    "notary.ca.configMap=verifier-ca",
    "notary.token.secret=verifier-token",
    "decisions.token.secret=token",
    "decisions.alertToken.secret=alert-token",
    "decisions.log.volume=persistentVolumeClaim",
    "decisions.log.key.secret=lucid-decisions",
    "cainjector.enabled=true",
    "networkPolicy.enabled=true",
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboard.enabled=true",
];
/// Sections with members chosen by the user, which null removes.
const FREE: &[&str] = &[".resources.", ".labels."];

/// Paths of values that are not sections, with a flag for those that the schema requires.
fn leaves(values: &Value, schema: &Value, path: &str, found: &mut Vec<(String, bool)>) {
    for (key, value) in values.as_object().unwrap() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if value.as_object().is_some_and(|section| !section.is_empty()) {
            leaves(value, &schema["properties"][key], &path, found);
        } else if !FREE.iter().any(|part| path.contains(part)) {
            let required = schema["required"].as_array().is_some_and(|keys| keys.iter().any(|it| it == key));
            found.push((path, required));
        }
    }
}

#[tokio::test]
async fn null_is_the_default_or_invalid() {
    let read = |name| fs::read_to_string(Path::new(CHART).join(name)).unwrap();
    let values = serde_yaml::from_str(&read("values.yaml")).unwrap();
    let mut found = Vec::new();
    leaves(&values, &serde_json::from_str(&read("values.schema.json")).unwrap(), "", &mut found);
    found.retain(|(path, _)| !EVERYTHING.iter().any(|value| value.starts_with(&format!("{path}="))));
    let (required, optional): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, required)| *required);
    assert!(required.len() > 20 && optional.len() > 80, "{required:?} {optional:?}");

    let nulls: Vec<_> = optional.iter().map(|(path, _)| format!("{path}=null")).collect();
    let everything = template("lucid-system", EVERYTHING, &[]).await.unwrap();
    let nulls = nulls.iter().map(String::as_str).chain(EVERYTHING.iter().copied());
    assert_eq!(template("lucid-system", &nulls.collect::<Vec<_>>(), &[]).await.unwrap(), everything);

    let nulls: Vec<_> = required.iter().map(|(path, _)| format!("{path}=null")).collect();
    let said = template("lucid-system", &nulls, &[]).await.unwrap_err();
    for (path, _) in required {
        let key = path.rsplit('.').next().unwrap();
        assert!(said.contains(&format!("'{key}'")), "{path} is not in {said}");
    }
}

/// As the condition of a parent chart, which is evaluated in the dependency's values.
#[tokio::test]
async fn parent_charts_can_disable_this_chart() {
    template("lucid-system", &["enabled=true"], &[]).await.unwrap();
}

#[tokio::test]
async fn documented_values_are_accepted() {
    let page = |name| fs::read_to_string(Path::new(CHART).join("../../docs").join(name)).unwrap();
    let page =
        page("install.md") + &page("observability.md") + &page("audit-log.md") + &page("authentication.md");
    let blocks = Regex::new("(?s)```yaml\n( *(?:metrics:|operator:|# values.yaml)\n.*?)```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    let mut found = 0;
    for block in blocks.captures_iter(&page) {
        fs::write(&file, &block[1]).unwrap();
        let file = format!("--values={}", file.display());
        template::<&str>("lucid-system", &[], &[file])
            .await
            .unwrap_or_else(|said| panic!("{}{said}", &block[1]));
        found += 1;
    }
    assert_eq!(found, 7);
}
