//! The alerts match the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;
use serde_yaml::Value;

use super::{documents, template};

/// Texts of all documents below a folder.
fn texts(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[tokio::test]
async fn alerts_are_those_of_the_documentation() {
    let rendered = template("lucid-system", &["metrics.prometheusRule.enabled=true"], &[]).await.unwrap();
    let rules = documents(&rendered).into_iter().find(|it| it["kind"] == "PrometheusRule").unwrap();
    assert_eq!(rules["metadata"]["name"], "lucid-cert-alerts");
    let groups = rules["spec"]["groups"].as_sequence().unwrap().iter();
    let is_of_certificates = |rule: &Value| rule["alert"] == "LucidOperatorCertExpiringSoon";
    let mut of_certificates =
        groups.clone().filter(|it| it["rules"].as_sequence().unwrap().iter().any(is_of_certificates));
    assert_eq!(of_certificates.next().unwrap()["name"], "certificates");
    let rules = groups.flat_map(|group| group["rules"].as_sequence().unwrap());
    let installed: BTreeSet<_> = rules.map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect();

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut documents = vec![fs::read_to_string(root.join("README.md")).unwrap()];
    for folder in ["docs", "charts"] {
        texts(&root.join(folder), &mut documents);
    }
    let name = Regex::new(r"\bLucid(?:[A-Z][a-z]+)+\b").unwrap();
    let named: BTreeSet<_> =
        documents.iter().flat_map(|text| name.find_iter(text)).map(|it| it.as_str().to_owned()).collect();
    assert_eq!(installed, named);
}
