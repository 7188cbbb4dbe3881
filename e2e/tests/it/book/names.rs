//! Names of labels, metrics and alerts: documented ones exist, and existing ones are documented.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{none, pages, read, sources};

#[test]
fn documented_labels_and_annotations_exist() {
    let key = Regex::new(r"(^|[^.a-z])(lucid\.(?:computing|io)/[a-z][a-z0-9-]*[a-z0-9])").unwrap();
    let names =
        |text: &str| -> BTreeSet<String> { key.captures_iter(text).map(|key| key[2].to_owned()).collect() };
    let mut known = BTreeSet::new();
    for source in sources() {
        known.extend(names(&source.text));
    }
    let mut found = BTreeSet::new();
    for page in pages() {
        let unknown = names(&page.text).into_iter().filter(|name| !known.contains(name));
        found.extend(unknown.map(|name| format!("{}: there is no {name}", page.path)));
    }
    none(&found);
}

#[test]
fn every_public_name_is_documented() {
    let constant = Regex::new(r#"pub const [A-Z_]+: &str = "([^"]+)";"#).unwrap();
    let keys = read("crates/lucid-chain/src/keys.rs");
    let page = read("docs/annotations.md");
    let names: Vec<_> = constant.captures_iter(&keys).map(|name| name[1].to_owned()).collect();
    assert!(names.len() > 20, "{names:?}");
    none(&names.into_iter().filter(|name| !page.contains(&format!("`{name}`")) && name != "true").collect());
}

/// Variants of `name` without the suffixes appended by prometheus-client.
fn stems(name: &str) -> Vec<String> {
    let mut stems = vec![name.to_owned()];
    for suffix in ["_bucket", "_count", "_sum", "_total", "_seconds", "_bytes"] {
        let shorter: Vec<_> =
            stems.iter().filter_map(|it| it.strip_suffix(suffix).map(str::to_owned)).collect();
        stems.extend(shorter);
    }
    stems
}

#[test]
fn documented_metrics_exist() {
    let literal = Regex::new(r#""([a-z][a-z_]*)""#).unwrap();
    let files: Vec<(String, BTreeSet<String>)> = sources()
        .into_iter()
        .map(|source| {
            let literals = literal.captures_iter(&source.text).map(|it| it[1].to_owned()).collect();
            (source.text, literals)
        })
        .collect();
    // A prefix and a name in the same file, the name alone, or the full name as a literal or in exposition format.
    let is_there = |name: &str| {
        let short = name.strip_prefix("lucid_").unwrap_or(name);
        stems(short).iter().any(|stem| {
            files.iter().filter(|(text, _)| text.contains("register")).any(|(_, literals)| {
                let mut cuts = stem.match_indices('_').map(|(place, _)| stem.split_at(place));
                literals.contains(stem)
                    || cuts.any(|(prefix, rest)| literals.contains(prefix) && literals.contains(&rest[1..]))
            })
        }) || files.iter().any(|(text, _)| {
            text.contains(&format!("\"{name}\"")) || text.contains(&format!("# TYPE {name} "))
        })
    };
    assert!(
        is_there("lucid_certificate_expiry_timestamp_seconds")
            && is_there("lucid_injection_planning_seconds_bucket")
    );
    assert!(
        !is_there("lucid_certificate_expiry_timestamp_hours") && !is_there("lucid_injection_planing_seconds")
    );

    let metric = Regex::new(r"\blucid_[a-z_]*[a-z]\b").unwrap();
    let crates = [
        "admission",
        "audit",
        "auditor",
        "certs",
        "chain",
        "e2e",
        "guardrails",
        "keeper",
        "notary",
        "operator",
        "policy",
        "proxy",
        "shared",
        "testbed",
        "text",
        "validator",
        "webhook",
        "webhook_test",
    ];
    let mut found = BTreeSet::new();
    let mut named = BTreeSet::new();
    for page in pages() {
        for name in metric.find_iter(&page.text).map(|name| name.as_str()) {
            if crates.iter().any(|it| name.strip_prefix("lucid_") == Some(*it)) {
                continue;
            }
            named.insert(name.to_owned());
            if !is_there(name) {
                found.insert(format!("{}: there is no metric {name}", page.path));
            }
        }
    }
    assert!(named.len() > 20, "{named:?}");
    none(&found);
}

#[test]
fn every_alert_is_documented_with_its_severity() {
    let alert = Regex::new(r"(?s)- alert: (\w+)\n.*?severity: (\w+)\n").unwrap();
    let pairs = |regex: &Regex, text: &str| -> BTreeMap<String, String> {
        regex.captures_iter(text).map(|it| (it[1].to_owned(), it[2].to_owned())).collect()
    };
    let alerts = |path: &str| pairs(&alert, &read(path));
    let manifest = alerts("deploy/prometheus-rule.yaml");
    assert!(manifest.len() > 5, "{manifest:?}");
    assert_eq!(manifest, alerts("charts/lucid/files/alerts.yaml"));
    let row = Regex::new(r"(?m)^\| `(Lucid\w+)` \| (\w+) \|").unwrap();
    assert_eq!(manifest, pairs(&row, &read("docs/operations.md")));
    let named = Regex::new(r"`(Lucid[A-Z]\w+)`").unwrap();
    let mut found = BTreeSet::new();
    for page in pages() {
        let unknown = named.captures_iter(&page.text).filter(|name| !manifest.contains_key(&name[1]));
        found.extend(unknown.map(|name| format!("{}: there is no alert {}", page.path, &name[1])));
    }
    none(&found);
}

#[test]
fn every_reason_is_documented() {
    let reason =
        Regex::new(r#"(?:=> |Problem::\w+\(\s*|pod\.\w+\(\),\s*|TIER_MISSING: &str = )"([A-Z]\w+)"[,;]"#)
            .unwrap();
    let pages = ["docs/troubleshooting.md", "docs/trust.md"].map(read).concat();
    let mut found = BTreeSet::new();
    let mut reasons = 0;
    let policy = ["bypass/mod", "break_glass", "chain", "labels", "policy"];
    let policy = policy.map(|file| format!("crates/lucid-policy/src/{file}.rs"));
    for source in ["crates/lucid-chain/src/warning.rs".to_owned()].iter().chain(&policy) {
        for reason in reason.captures_iter(&read(source)).map(|reason| reason[1].to_owned()) {
            reasons += 1;
            if !pages.contains(&format!("`{reason}`")) {
                found.insert(format!("{reason} of {source} stands on no page"));
            }
        }
    }
    assert!(reasons > 50, "{reasons} reasons");
    none(&found);
}
